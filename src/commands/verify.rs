//! `verify`: this host, or all hosts over SSH, held against the plan. Changes nothing.

use std::io::Read;
use std::path::Path;

use serde::Serialize;

use super::host::{plan_again, refuse_another, share};
use super::{Exit, Trouble};
use crate::cli::VerifyArgs;
use crate::facts::{Applied, Fact};
use crate::finding::Finding;
use crate::json::{At, DocumentError, LARGEST_DOCUMENT, Value, parse, pretty};
use crate::kernel::sysfs;
use crate::mesh::condition::identity;
use crate::mesh::present::{PortNow, Present};
use crate::mesh::verify::{Check, NOT_COVERED, verify};
use crate::names::HostName;
use crate::node::identity::{INSTALLED_PLAN, PlanDocument, own_name, read_file, read_plan, sha256};
use crate::node::read::{Sources, Subject};
use crate::node::state::State;
use crate::output;
use crate::plan::mesh::DEFAULT_HAIRPIN_QUEUE;
use crate::remote::{self, Question};

/// The report's name and version.
const REPORT: &str = "hairpin-mesh.verify-report/v1";

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    /// SHA-256 of the plan that the hosts were held against.
    plan_sha256: &'a str,
    /// Whether every host was read and is as planned.
    in_sync: bool,
    /// One for each host that answered.
    hosts: Vec<Value<'static>>,
    /// Hosts that did not, and why.
    failed: Vec<Failed>,
    /// What a look cannot show.
    not_covered: &'static [&'static str],
    /// The command that makes the plan again, while its queue size is below the applied one of these hosts.
    plan_again: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Failed {
    pub(super) host: HostName,
    pub(super) why: String,
}

/// What hosts told when they were asked.
pub(super) struct Asked {
    /// The part of a report that each host told.
    pub(super) told: Vec<Value<'static>>,
    /// Hosts that did not, and why.
    pub(super) failed: Vec<Failed>,
}

#[derive(Serialize)]
struct HostReport<'a> {
    host: &'a HostName,
    in_sync: bool,
    checks: &'a [Check],
    findings: &'a [Finding],
    /// The smallest hairpin queue size that is applied here; one that may not be counts as the driver's
    /// default.
    hairpin_queue_applied: u32,
    /// Packets that the kernel forwarded since boot.
    ip_forwarded_datagrams: Fact<u64>,
}

#[derive(Serialize)]
struct TroubleReport {
    schema: &'static str,
    in_sync: bool,
    trouble: Vec<String>,
}

pub(super) fn run(args: VerifyArgs) -> Result<Exit, Trouble> {
    let result = run_with(&args);
    if let (Err(trouble), true) = (&result, args.json) {
        output::result(&pretty(&TroubleReport {
            schema: REPORT,
            in_sync: false,
            trouble: trouble.lines(),
        }))?;
    }
    result
}

fn run_with(args: &VerifyArgs) -> Result<Exit, Trouble> {
    let given = args.plan == Path::new("-");
    let document = if given {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .take(LARGEST_DOCUMENT + 1)
            .read_to_end(&mut bytes)?;
        PlanDocument::read("standard input", bytes)?
    } else {
        read_plan(&args.plan)?
    };
    let plan_sha256 = document.sha256();
    let Asked {
        told: hosts,
        failed,
    } = if args.all {
        ask(&document, &document.plan.hosts)
    } else {
        Asked {
            told: vec![this_host(args, &document, given)?],
            failed: Vec::new(),
        }
    };
    // The folder of a plan that is not the installed one.
    let in_folder = args
        .plan
        .file_name()
        .is_some_and(|name| name == "plan.json")
        && args.plan != Path::new(INSTALLED_PLAN);
    let folder = args.plan.parent().filter(|_| in_folder);
    let plan_again = smallest_queue(&hosts)
        .filter(|_| failed.is_empty())
        .and_then(|applied| plan_again(&document.plan, folder, applied));
    let all_in_sync = hosts.iter().all(is_in_sync);
    let report = Report {
        schema: REPORT,
        plan_sha256: &plan_sha256,
        in_sync: failed.is_empty() && all_in_sync,
        hosts,
        failed,
        not_covered: NOT_COVERED,
        plan_again,
    };
    if args.json {
        output::result(&pretty(&report))?;
    } else {
        show(&report)?;
    }
    for failed in &report.failed {
        output::failure(&format!("{}: {}", failed.host, failed.why));
    }
    Ok(if !report.failed.is_empty() {
        Exit::Trouble
    } else if report.in_sync {
        Exit::Yes
    } else {
        Exit::No
    })
}

/// This host's part of the report.
fn this_host(
    args: &VerifyArgs,
    document: &PlanDocument,
    given: bool,
) -> Result<Value<'static>, Trouble> {
    let plan = &document.plan;
    let host = own_name(plan, args.host.as_ref())?;
    let host_plan = share(plan, &host)?;
    let mut subject = Subject::default();
    subject.add(&host_plan, plan.gid_index);
    subject.all_filters = host_plan
        .ports
        .iter()
        .map(|row| row.netdev.clone())
        .collect();
    subject.settings = true;
    subject.neighbours = true;
    subject.more = true;
    let mut present = Sources::default().read(&subject, Default::default());
    // Without root there is nothing to be read there.
    if let Ok(Some(state)) = State::open() {
        present.dropped_when_made = state.dropped().unwrap_or_default();
    }
    refuse_another(identity(&host_plan, &present), &host)?;
    let mut verified = verify(plan, &host_plan, &present);
    verified.findings.extend(plan_findings(
        &host,
        document,
        given || args.plan != Path::new(INSTALLED_PLAN),
    ));
    let report = HostReport {
        host: &host,
        // After all findings are in.
        in_sync: verified.in_sync(),
        checks: &verified.checks,
        findings: &verified.findings,
        hairpin_queue_applied: applied_queue(&present),
        ip_forwarded_datagrams: sysfs::table("/proc/net/snmp")
            .map_err(|e| e.to_string())
            .and_then(|table| {
                crate::collect::node::snmp(&table, "Ip", "ForwDatagrams")
                    .ok_or_else(|| "/proc/net/snmp does not have it".to_owned())
            })
            .into(),
    };
    Ok(parse("this host's report", pretty(&report).as_bytes())?.into_owned())
}

/// Whether the plan is the one that is installed, and the one that was applied.
fn plan_findings(host: &HostName, document: &PlanDocument, elsewhere: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let own = document.sha256();
    let mut push = |finding: Finding| findings.push(finding.on(host).at(INSTALLED_PLAN));
    if elsewhere {
        let path = Path::new(INSTALLED_PLAN);
        if std::fs::symlink_metadata(path).is_err() {
            push(Finding::warning(
                "plan-not-installed",
                "no plan is installed",
                format!("SHA-256 {own}"),
            ));
        } else {
            match read_file(path) {
                Ok(bytes) if sha256(&bytes) == own => {}
                Ok(bytes) => push(
                    Finding::problem(
                        "plan-other-installed",
                        format!("the installed plan has SHA-256 {}", sha256(&bytes)),
                        own.clone(),
                    )
                    .advise(format!("hairpin-mesh deploy --plan FOLDER {host}")),
                ),
                Err(error) => push(Finding::not_observed(
                    "plan-other-installed",
                    "the installed plan",
                    error,
                    own.clone(),
                )),
            }
        }
    }
    // Without root there is nothing to be read here.
    if let Ok(Some(state)) = State::open() {
        if state.has_journal() {
            push(
                Finding::warning(
                    "journal-left",
                    format!(
                        "{} is there: a run was killed or could not take back what it did",
                        state.journal_path().display()
                    ),
                    "none",
                )
                .advise("hairpin-mesh up"),
            );
        }
        if let Ok(Some(applied)) = state.applied() {
            if applied.plan != document.plan {
                push(
                    Finding::warning(
                        "plan-other-applied",
                        "another plan was applied last",
                        "this one",
                    )
                    .advise("hairpin-mesh up"),
                );
            }
        }
    }
    findings
}

/// The smallest queue size of the ports that is known to be loaded.
fn applied_queue(present: &Present) -> u32 {
    let of = |port: &PortNow| match (&port.more.queue_size, &port.more.queue_state) {
        (Fact::Known(Some(size)), Fact::Known(Applied::Applied)) => *size,
        _ => DEFAULT_HAIRPIN_QUEUE,
    };
    let sizes = present.ports.iter().map(of);
    sizes.min().unwrap_or(DEFAULT_HAIRPIN_QUEUE)
}

/// The smallest queue size that is applied on these hosts.
pub(super) fn smallest_queue(parts: &[Value]) -> Option<u32> {
    let of = |part: &Value| {
        let root = At::root("report", part);
        // One of an earlier version does not tell.
        let size = root.get("hairpin_queue_applied").ok()??;
        size.integer(0, u32::MAX.into()).ok()
    };
    let sizes: Option<Vec<u32>> = parts.iter().map(of).collect();
    sizes?.into_iter().min()
}

/// Hosts of the plan, over SSH: each is given the plan and tells its part of the report.
pub(super) fn ask(document: &PlanDocument, hosts: &[HostName]) -> Asked {
    let arguments: Vec<[&str; 6]> = hosts
        .iter()
        .map(|host| ["verify", "--json", "--plan", "-", "--host", host.as_str()])
        .collect();
    let questions: Vec<(&HostName, Question)> = hosts
        .iter()
        .zip(&arguments)
        .map(|(host, arguments)| {
            let question = Question {
                arguments,
                input: &document.bytes,
                answers: &[0, 1],
            };
            (host, question)
        })
        .collect();
    let (mut told, mut failed) = (Vec::new(), Vec::new());
    for (host, result) in hosts.iter().zip(remote::ask_all(&questions)) {
        let part = result
            .map_err(|e| e.to_string())
            .and_then(|bytes| part_of(host, &bytes).map_err(|e| e.to_string()));
        match part {
            Ok(part) => told.push(part),
            Err(why) => failed.push(Failed {
                host: host.clone(),
                why,
            }),
        }
    }
    Asked { told, failed }
}

/// Most hosts, checks and findings that are taken from one report.
const MOST: usize = 4096;

/// The one host's part of a report that another host told, checked as far as it is used here.
fn part_of(host: &HostName, bytes: &[u8]) -> Result<Value<'static>, DocumentError> {
    let name = "its report";
    let value = parse(name, bytes)?;
    let root = At::root(name, &value);
    root.need("schema")?.exactly(REPORT)?;
    let hosts = root.need("hosts")?;
    let part = hosts
        .items(1)?
        .next()
        .ok_or_else(|| hosts.error("is empty, one host wanted"))?;
    part.need("host")?.exactly(host.as_str())?;
    let in_sync = part.need("in_sync")?.bool()?;
    for check in part.need("checks")?.items(MOST)? {
        for key in ["standing", "object", "detail"] {
            check.need(key)?.text()?;
        }
    }
    let mut refuses = false;
    for finding in part.need("findings")?.items(MOST)? {
        refuses |= check_finding(&finding, 0)?;
    }
    if in_sync == refuses {
        return Err(part.error("says in_sync, and its findings say otherwise"));
    }
    Ok(part.value().clone().into_owned())
}

/// How deep consequences are nested at most.
const DEEPEST: usize = 4;

/// Whether the finding, or one that follows from it, is more than a warning.
fn check_finding(finding: &At, depth: usize) -> Result<bool, DocumentError> {
    for key in ["code", "severity", "found", "wanted"] {
        finding.need(key)?.text()?;
    }
    let mut refuses = finding.need("severity")?.text()? != "warning";
    if let Some(consequences) = finding.get("consequences")? {
        if depth == DEEPEST {
            return Err(consequences.error("is nested too deep"));
        }
        for finding in consequences.items(MOST)? {
            refuses |= check_finding(&finding, depth + 1)?;
        }
    }
    Ok(refuses)
}

/// Whether this is the part that `host` told.
pub(super) fn is_of(part: &Value, host: &HostName) -> bool {
    At::root("report", part)
        .need("host")
        .and_then(|at| at.exactly(host.as_str()))
        .is_ok()
}

/// Whether it is a problem, or one is among what follows from it.
fn is_problem(finding: &At) -> Result<bool, DocumentError> {
    let mut problem = finding.need("severity")?.text()? == "problem";
    if let Some(consequences) = finding.get("consequences")? {
        for consequence in consequences.items(MOST)? {
            problem |= is_problem(&consequence)?;
        }
    }
    Ok(problem)
}

pub(super) fn is_in_sync(part: &Value) -> bool {
    At::root("report", part)
        .need("in_sync")
        .and_then(|at| at.bool())
        .unwrap_or(false)
}

/// The report as a table and findings, for people.
fn show(report: &Report) -> Result<(), Trouble> {
    let mut text = String::new();
    for part in &report.hosts {
        let root = At::root("report", part);
        show_host(&mut text, &root)?;
    }
    let not_in_sync = report.hosts.iter().filter(|part| !is_in_sync(part)).count();
    if report.hosts.len() + report.failed.len() > 1 {
        text += &format!(
            "{} of {} hosts as planned\n",
            report.hosts.len() - not_in_sync,
            report.hosts.len() + report.failed.len()
        );
    }
    if let Some(line) = &report.plan_again {
        text += &format!("the hairpin queues hold more now; plan again: {line}\n");
    }
    text += "not covered:\n";
    for what in report.not_covered {
        text += &format!("  {what}\n");
    }
    output::result(&text)?;
    Ok(())
}

/// One host's part of a report, for people.
pub(super) fn shown(part: &Value) -> Result<String, DocumentError> {
    let mut text = String::new();
    show_host(&mut text, &At::root("report", part))?;
    Ok(text)
}

fn show_host(text: &mut String, part: &At) -> Result<(), DocumentError> {
    let host = plain(part.need("host")?.text()?);
    let mut problem = false;
    for finding in part.need("findings")?.items(MOST)? {
        problem |= is_problem(&finding)?;
    }
    let headline = match (part.need("in_sync")?.bool()?, problem) {
        (true, _) => "as planned",
        (false, true) => "not as planned",
        (false, false) => "as planned as far as it was observed, which is not all",
    };
    *text += &format!("{host}: {headline}\n");
    let checks: Vec<[String; 3]> = part
        .need("checks")?
        .items(MOST)?
        .map(|check| {
            let field = |key: &str| Ok(plain(check.need(key)?.text()?));
            Ok([field("standing")?, field("object")?, field("detail")?])
        })
        .collect::<Result<_, DocumentError>>()?;
    let width = checks.iter().map(|row| row[1].len()).max().unwrap_or(0);
    for [standing, object, detail] in &checks {
        let line = format!("  {} {object:width$}  {detail}", output::standing(standing));
        *text += line.trim_end();
        *text += "\n";
    }
    for finding in part.need("findings")?.items(MOST)? {
        show_finding(text, &finding, 1)?;
    }
    let forwarded = part.get("ip_forwarded_datagrams")?;
    if let Some(count) = forwarded.and_then(|at| at.integer::<u64>(0, u64::MAX.into()).ok()) {
        *text += &format!("  IpForwDatagrams {count}\n");
    }
    Ok(())
}

/// `FAIL port-link enp1s0f0np0: what is, what is wanted`, what to do, and what follows.
fn show_finding(text: &mut String, finding: &At, depth: usize) -> Result<(), DocumentError> {
    let field = |key: &str| Ok::<_, DocumentError>(plain(finding.need(key)?.text()?));
    let word = match finding.need("severity")?.text()? {
        "problem" => "FAIL",
        "warning" => "warning",
        _ => "not observed",
    };
    let indent = "  ".repeat(depth);
    let object = match finding.get("object")? {
        Some(object) if !object.is_null() => format!(" {}", plain(object.text()?)),
        _ => String::new(),
    };
    *text += &format!(
        "{indent}{} [{}]{object}: {}, {} wanted\n",
        output::standing(word).trim_end(),
        field("code")?,
        field("found")?,
        field("wanted")?
    );
    if let Some(advice) = finding.get("advice")? {
        *text += &format!("{indent}  do: {}\n", plain(advice.text()?));
    }
    if let Some(consequences) = finding.get("consequences")? {
        let mut first = true;
        for consequence in consequences.items(MOST)? {
            if first {
                *text += &format!("{indent}  and so:\n");
                first = false;
            }
            show_finding(text, &consequence, depth + 2)?;
        }
    }
    Ok(())
}

/// Text of another host, safe to show on a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(2000)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host() -> HostName {
        "spark1".parse().unwrap()
    }

    fn report(in_sync: bool, findings: &str) -> Vec<u8> {
        format!(
            r#"{{"schema": "{REPORT}", "hosts": [{{"host": "spark1", "in_sync": {in_sync},
              "checks": [{{"standing": "ok", "object": "enp1s0f0np0", "detail": "up"}}], "findings": [{findings}]}}]}}"#
        )
        .into_bytes()
    }

    const PROBLEM: &str = r#"{"code": "a", "severity": "problem", "found": "b", "wanted": "c"}"#;

    #[test]
    fn a_report_of_another_host_counts_as_far_as_it_agrees_with_itself() {
        assert!(is_in_sync(&part_of(&host(), &report(true, "")).unwrap()));
        assert!(!is_in_sync(
            &part_of(&host(), &report(false, PROBLEM)).unwrap()
        ));
        let failed = |bytes: &[u8], why: &str| {
            let error = part_of(&host(), bytes).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(error.starts_with("its report"), "{error}");
        };
        failed(&report(true, PROBLEM), "its findings say otherwise");
        failed(&report(false, ""), "its findings say otherwise");
        // A problem under a warning is a problem.
        let under = format!(
            r#"{{"code": "a", "severity": "warning", "found": "b", "wanted": "c", "consequences": [{PROBLEM}]}}"#
        );
        failed(&report(true, &under), "its findings say otherwise");
        failed(b"", "JSON");
        failed(br#"{"schema": "x"}"#, "schema");
        let other = String::from_utf8(report(true, ""))
            .unwrap()
            .replace("spark1", "spark2");
        failed(other.as_bytes(), "spark2");
        let mut deep = PROBLEM.to_owned();
        for _ in 0..=DEEPEST {
            deep = PROBLEM.replace('}', &format!(r#", "consequences": [{deep}]}}"#));
        }
        failed(&report(false, &deep), "too deep");
    }

    #[test]
    fn what_was_not_observed_is_told_apart_from_what_is_wrong() {
        let headline = |report: &[u8]| {
            let part = part_of(&host(), report).unwrap();
            let mut text = String::new();
            show_host(&mut text, &At::root("report", &part)).unwrap();
            text.lines().next().unwrap().to_owned()
        };
        let unseen = PROBLEM.replace("problem", "not-observed");
        let under = format!(
            r#"{{"code": "a", "severity": "not-observed", "found": "b", "wanted": "c", "consequences": [{PROBLEM}]}}"#
        );
        assert_eq!(headline(&report(true, "")), "spark1: as planned");
        assert_eq!(headline(&report(false, PROBLEM)), "spark1: not as planned");
        assert_eq!(headline(&report(false, &under)), "spark1: not as planned");
        assert_eq!(
            headline(&report(false, &unseen)),
            "spark1: as planned as far as it was observed, which is not all"
        );
    }

    #[test]
    fn text_of_another_host_cannot_drive_a_terminal() {
        let evil = PROBLEM.replace("\"b\"", r#""\u001b[2J\u0007gone""#);
        let part = part_of(&host(), &report(false, &evil)).unwrap();
        let mut text = String::new();
        show_host(&mut text, &At::root("report", &part)).unwrap();
        assert!(text.contains("[2Jgone"), "{text}");
        assert!(
            !text.contains('\u{7}') && !text.contains("\u{1b}[2J"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn a_damaged_report_is_an_error_or_a_report_and_never_a_panic(
            at in 0usize..400, byte in any::<u8>(), cut in 0usize..400,
        ) {
            let mut bytes = report(false, PROBLEM);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.truncate(cut.max(1));
            if let Ok(part) = part_of(&host(), &bytes) {
                let mut text = String::new();
                let _ = show_host(&mut text, &At::root("report", &part));
            }
        }
    }
}
