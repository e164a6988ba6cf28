//! The cases of `tests/doctor`, judged without the program around the checks: whoever changes a check sees at
//! once which verdict changes.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use super::cabling::{Cable, End};
use super::changes::{Case as Folder, cases, verdict};
use super::env::Environment;
use super::nccl::Log;
use super::{Case, Diagnosis, ParityRow, examine};
use crate::facts::Inventory;
use crate::finding::Finding;
use crate::names::HostName;
use crate::plan::Plan;

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// What is made of the case.
fn examined(case: &Folder) -> Diagnosis {
    let log = |name: &String| Log::read(name, &read(&case.folder.join(name)));
    let logs: Vec<Log> = case.logs().iter().map(log).collect();
    examined_with(case, &logs)
}

/// The same with these logs.
fn examined_with(case: &Folder, logs: &[Log]) -> Diagnosis {
    let given = std::fs::read_to_string(case.folder.join("arguments")).unwrap_or_default();
    let words: Vec<&str> = given.split_whitespace().collect();
    let (plan, hosts) = match words[..] {
        ["--plan", path, ref given @ ..] => {
            let plan = Plan::from_json("plan.json", &read(&case.folder.join(path))).unwrap();
            let hosts = match given {
                [] => plan.hosts.clone(),
                given => given.iter().map(|host| host.parse().unwrap()).collect(),
            };
            (Some(plan), hosts)
        }
        [] => {
            let all = case.facts.keys().map(|host| host.parse().unwrap());
            (None, all.collect::<Vec<HostName>>())
        }
        _ => (
            None,
            words.iter().map(|host| host.parse().unwrap()).collect(),
        ),
    };
    let inventory = |host: &HostName| {
        let document = case.facts[host.as_str()].to_string();
        Inventory::from_json("facts", document.as_bytes()).unwrap()
    };
    let inventories: Vec<Inventory> = hosts.iter().map(inventory).collect();
    let file = |name: &str| {
        let path = case.folder.join(name);
        path.is_file().then(|| read(&path))
    };
    let envs: Vec<Environment> = file("env.txt")
        .map(|bytes| Environment::read("env.txt", &bytes).unwrap())
        .into_iter()
        .collect();
    examine(&Case {
        hosts: &hosts,
        ordered: !words.is_empty(),
        inventories: &inventories,
        plan: plan.as_ref(),
        envs: &envs,
        logs,
    })
}

/// What the case says of itself, as lines.
fn judged(diagnosis: &Diagnosis) -> String {
    let report = json!({
        "findings": diagnosis.findings,
        "notes": diagnosis.notes,
        "cabling": diagnosis.cabling,
    });
    verdict(&report, i32::from(!diagnosis.is_healthy()))
}

/// How each subject stands: all of them of two cases, of the others those that are not well or not wholly seen.
fn standings(name: &str, diagnosis: &Diagnosis) -> String {
    let mut told = String::new();
    for check in &diagnosis.checks {
        let standing = json!(check.standing);
        let seen = ["port", "ports", "host", "hosts"];
        let seen = seen.iter().any(|unit| check.detail.ends_with(unit));
        if standing != "ok" || !seen || matches!(name, "healthy" | "one-host-alone") {
            let standing = standing.as_str().unwrap();
            told += &format!("{name}: {}: {standing}: {}\n", check.subject, check.detail);
        }
    }
    told
}

/// The tables of a diagnosis as lines: the cables, and the nodes side by side.
fn tables(diagnosis: &Diagnosis) -> BTreeSet<String> {
    let end = |end: &End| format!("{} socket {} ({})", end.host, end.socket, end.ports);
    let cable = |cable: &Cable| {
        let to = cable.to.as_ref().map_or("?".to_owned(), end);
        let by = cable.shown_by.unwrap_or("nothing");
        format!("{} to {to}: shown by {by}", end(&cable.from))
    };
    let row = |row: &ParityRow| {
        let values = row
            .values
            .iter()
            .map(|value| value.as_deref().unwrap_or("?"));
        let values: Vec<&str> = values.collect();
        format!(
            "{}: {}: same: {}",
            row.property,
            values.join(" | "),
            json!(row.same)
        )
    };
    let ring = format!("ring: {}", json!(diagnosis.cabling.is_ring));
    let cables = diagnosis.cabling.cables.iter().map(cable);
    cables
        .chain([ring])
        .chain(diagnosis.parity.iter().map(row))
        .collect()
}

/// Codes of findings with what is to be done about them, and whether they are a cause: else they follow from
/// one, or are notes.
type Advice = BTreeSet<(&'static str, bool, String)>;

fn advice(all: &mut Advice, findings: &[Finding], cause: bool) {
    for finding in findings {
        let text = finding.advice.as_deref().unwrap_or("nothing");
        all.insert((finding.code, cause, text.to_owned()));
        advice(all, &finding.consequences, false);
    }
}

/// The advice that no `expected.txt` shows: of codes that are a cause in no case.
fn advice_of_no_cause(all: &Advice) -> String {
    let causes: BTreeSet<&str> = all.iter().filter(|row| row.1).map(|row| row.0).collect();
    let others = all.iter().filter(|row| !causes.contains(row.0));
    others
        .map(|(code, _, text)| format!("{code}: {text}\n"))
        .collect()
}

/// Holds a golden file beside the cases against what comes out.
fn golden(name: &str, told: &str) {
    let path = super::changes::root().join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, told).unwrap();
    }
    assert_eq!(told, std::fs::read_to_string(&path).unwrap(), "{name}");
}

/// The facts of a case's hosts, in order.
pub(super) fn facts_of(name: &str) -> (Vec<HostName>, Vec<Inventory>) {
    let cases = cases();
    let case = cases.iter().find(|own| own.folder.ends_with(name)).unwrap();
    let inventory = |document: &serde_json::Value| {
        Inventory::from_json("facts", document.to_string().as_bytes()).unwrap()
    };
    (
        case.facts
            .keys()
            .map(|host| host.parse().unwrap())
            .collect(),
        case.facts.values().map(inventory).collect(),
    )
}

/// The lines of logs as one text.
fn joined(case: &Folder) -> String {
    let logs = case.logs();
    let text = |name: &String| String::from_utf8(read(&case.folder.join(name))).unwrap();
    logs.iter().map(text).collect()
}

/// The lines by the host and process that they begin with, as `NCCL_DEBUG_FILE=nccl.%h.%p.log` has them: what is
/// of none is of the one before.
fn by_process(text: &str) -> Vec<String> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let mut parts = line.splitn(3, ':');
        let key = match (parts.next(), parts.next().map(str::parse::<u64>)) {
            (Some(host), Some(Ok(process))) if !host.contains(' ') => {
                Some(format!("{host}.{process}"))
            }
            _ => None,
        };
        if let Some(key) = key {
            let known = all.iter().position(|(own, _)| *own == key);
            at = known.unwrap_or(all.len());
            if known.is_none() {
                all.push((key, String::new()));
            }
        } else if all.is_empty() {
            all.push(("others".to_owned(), String::new()));
        }
        all[at].1 += line;
    }
    all.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn a_log_that_tells_nothing_is_named_by_no_finding_of_another() {
    /// Codes and the logs that they are of, if one of them tells anything.
    fn named(findings: &[Finding], all: &mut BTreeSet<(&'static str, String)>) {
        for finding in findings {
            let object = finding.object.clone().unwrap_or_default();
            if object.contains("0.log") {
                all.insert((finding.code, object));
            }
            named(&finding.consequences, all);
        }
    }
    let judged = |case: &Folder, texts: &[&str]| {
        let logs = texts.iter().enumerate();
        let logs: Vec<Log> = logs
            .map(|(i, text)| Log::read(&format!("{i}.log"), text.as_bytes()))
            .collect();
        let diagnosis = examined_with(case, &logs);
        let mut all = BTreeSet::new();
        named(&diagnosis.findings, &mut all);
        named(&diagnosis.notes, &mut all);
        all
    };
    for case in cases().iter().filter(|case| !case.logs().is_empty()) {
        let text = joined(case);
        let one = judged(case, &[&text]);
        let of_nothing = judged(case, &[&text, "nothing\n"]);
        assert_eq!(of_nothing, one, "{}", case.folder.display());
        let mut of_nccl = judged(case, &[&text, "[0] NCCL INFO cudaDriverVersion 13000\n"]);
        // That no line of a subsystem is there is told of all.
        let all = |own: &mut BTreeSet<(&str, String)>| {
            own.retain(|(code, _)| *code != "nccl-log-no-net");
        };
        let mut one = one;
        all(&mut one);
        all(&mut of_nccl);
        assert_eq!(of_nccl, one, "{}", case.folder.display());
    }
}

#[test]
fn logs_of_each_process_tell_what_they_tell_as_one() {
    // Names of files are others, and which warning was the first is told by no order of files.
    fn told(findings: &[Finding], all: &mut Vec<String>) {
        for finding in findings {
            let first = finding.code == "nccl-log-warnings";
            let found = if first { "" } else { &finding.found };
            all.push(format!("{} {:?} {found}", finding.code, finding.severity));
            told(&finding.consequences, all);
            all.push("end".to_owned());
        }
    }
    let judged = |case: &Folder, texts: &[String]| {
        let logs = texts.iter().enumerate();
        let logs: Vec<Log> = logs
            .map(|(i, text)| Log::read(&format!("{i}.log"), text.as_bytes()))
            .collect();
        let diagnosis = examined_with(case, &logs);
        let mut all = Vec::new();
        told(&diagnosis.findings, &mut all);
        told(&diagnosis.notes, &mut all);
        all
    };
    let mut several = 0;
    for case in cases().iter().filter(|case| !case.logs().is_empty()) {
        let text = joined(case);
        let mut split = by_process(&text);
        several += usize::from(split.len() > 1);
        let one = judged(case, &[text]);
        assert_eq!(judged(case, &split), one, "{}", case.folder.display());
        split.reverse();
        assert_eq!(judged(case, &split), one, "{}", case.folder.display());
    }
    assert!(several >= 20, "{several}");
}

#[test]
fn where_the_wires_lead_elsewhere_a_plan_is_warned_once() {
    for (case, ends) in [
        ("healthy", None),
        (
            "two-plugs-exchanged-on-one-node",
            Some(", and 7 more of the kind"),
        ),
        (
            "cable-joins-both-sockets-of-a-node",
            Some("enp1s0f0np0+enP2p1s0f0np0"),
        ),
    ] {
        let (hosts, inventories) = facts_of(case);
        let finding = super::wires_elsewhere(&hosts, &inventories);
        assert_eq!(finding.is_some(), ends.is_some(), "{case}: {finding:?}");
        if let (Some(finding), Some(ends)) = (finding, ends) {
            assert!(finding.found.ends_with(ends), "{case}: {}", finding.found);
            assert_eq!(finding.severity, crate::finding::Severity::Warning);
            assert!(finding.advice.is_some());
        }
    }
}

#[test]
fn every_case_is_judged_alike_without_the_program() {
    let (mut told, mut shown, mut advised) = (String::new(), String::new(), Advice::new());
    let cases = cases();
    let name = |case: &Folder| {
        case.folder
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    let healthy = cases.iter().find(|case| name(case) == "healthy").unwrap();
    let healthy = tables(&examined(healthy));
    for case in &cases {
        let diagnosis = examined(case);
        let wanted = std::fs::read_to_string(case.folder.join("expected.txt")).unwrap_or_default();
        assert_eq!(judged(&diagnosis), wanted, "{}", case.folder.display());
        let name = name(case);
        told += &standings(&name, &diagnosis);
        for line in tables(&diagnosis) {
            if name == "healthy" || !healthy.contains(&line) {
                shown += &format!("{name}: {line}\n");
            }
        }
        advice(&mut advised, &diagnosis.findings, true);
        advice(&mut advised, &diagnosis.notes, false);
    }
    golden("checks.txt", &told);
    golden("tables.txt", &shown);
    golden("advice.txt", &advice_of_no_cause(&advised));
}
