//! `doctor`: what is wrong with a fabric, from live nodes or from captured facts.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::path::Path;

use serde::Serialize;

use super::inventory::More;
use super::verify::Failed;
use super::{Exit, Trouble};
use crate::cli::DoctorArgs;
use crate::collect;
use crate::doctor::env::Environment;
use crate::doctor::nccl::{self, Log};
use crate::doctor::{Cabling, Case, Check, Diagnosis, NOT_COVERED, ParityRow, examine};
use crate::facts::Inventory;
use crate::files::{self, Links};
use crate::finding::{Finding, Severity};
use crate::mesh::verify::Standing;
use crate::names::HostName;
use crate::node::identity::{INSTALLED_PLAN, read_plan};
use crate::output;
use crate::plan::Plan;

/// The report's name and version.
const REPORT: &str = "hairpin-mesh.doctor-report/v1";

/// Most hosts of one folder.
const MOST_HOSTS: usize = 16;

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    /// Whether nothing was found.
    healthy: bool,
    /// The hosts whose facts were there, in the order of every list of values.
    hosts: &'a [HostName],
    /// Hosts whose facts were not, and why.
    failed: &'a [Failed],
    /// The ring in its order.
    ring: &'a Option<Vec<HostName>>,
    /// Causes, each with what follows from it.
    findings: &'a [Finding],
    /// Worth knowing, and no fault.
    notes: &'a [Finding],
    /// Every subject, and how it stands.
    checks: &'a [Check],
    cabling: &'a Cabling,
    parity: &'a [ParityRow],
    /// What facts that stand still cannot show.
    not_covered: &'static [&'static str],
}

#[derive(Serialize)]
struct TroubleReport {
    schema: &'static str,
    healthy: bool,
    trouble: Vec<String>,
}

pub(super) fn run(args: DoctorArgs) -> Result<Exit, Trouble> {
    if let Some(seconds) = args.watch {
        let mut hosts = args.hosts.clone();
        if let (true, Some(path)) = (hosts.is_empty(), &args.plan) {
            hosts = read_plan(path)?.plan.hosts;
        }
        return super::watch::run(&args, seconds, &hosts);
    }
    let result = diagnose(&args);
    if let (Err(trouble), true) = (&result, args.json) {
        output::result(&crate::json::pretty(&TroubleReport {
            schema: REPORT,
            healthy: false,
            trouble: trouble.lines(),
        }))?;
    }
    result
}

/// The facts that there are.
struct Facts {
    hosts: Vec<HostName>,
    inventories: Vec<Inventory>,
    failed: Vec<Failed>,
}

fn diagnose(args: &DoctorArgs) -> Result<Exit, Trouble> {
    if let Some((_, host)) = args
        .hosts
        .iter()
        .enumerate()
        .find(|(i, host)| args.hosts[..*i].contains(host))
    {
        return Err(Trouble::Usage(format!(
            "{host} is given twice, every host once wanted"
        )));
    }
    let plan = match &args.plan {
        None => None,
        // Held against facts, and nothing else: a folder of somebody else's may be looked at by root too.
        Some(path) if args.inventory.is_some() => Some(plan_to_show(path)?),
        // Whom root asks over SSH is not for others to say.
        Some(path) => Some(read_plan(path)?.plan),
    };
    let envs: Vec<Environment> = args
        .envs
        .iter()
        .map(|path| environment(path))
        .collect::<Result<_, _>>()?;
    let logs: Vec<Log> = args
        .logs
        .iter()
        .map(|path| log(path))
        .collect::<Result<_, _>>()?;
    let facts = facts(args, plan.as_ref())?;
    let case = Case {
        hosts: &facts.hosts,
        ordered: !args.hosts.is_empty() || plan.is_some() || args.inventory.is_none(),
        inventories: &facts.inventories,
        plan: plan.as_ref(),
        envs: &envs,
        logs: &logs,
    };
    let diagnosis = examine(&case);
    let healthy = diagnosis.is_healthy() && facts.failed.is_empty();
    if args.json {
        output::result(&crate::json::pretty(&Report {
            schema: REPORT,
            healthy,
            hosts: &facts.hosts,
            failed: &facts.failed,
            ring: &diagnosis.ring,
            findings: &diagnosis.findings,
            notes: &diagnosis.notes,
            checks: &diagnosis.checks,
            cabling: &diagnosis.cabling,
            parity: &diagnosis.parity,
            not_covered: NOT_COVERED,
        }))?;
    } else {
        output::result(&shown(&diagnosis, &facts))?;
    }
    for failed in &facts.failed {
        output::failure(&format!("{}: {}", failed.host, failed.why));
    }
    Ok(if !facts.failed.is_empty() {
        Exit::Trouble
    } else if healthy {
        Exit::Yes
    } else {
        Exit::No
    })
}

fn facts(args: &DoctorArgs, plan: Option<&Plan>) -> Result<Facts, Trouble> {
    let mut hosts = args.hosts.clone();
    if hosts.is_empty() {
        hosts.extend(plan.into_iter().flat_map(|plan| plan.hosts.clone()));
    }
    if let Some(folder) = &args.inventory {
        if hosts.is_empty() {
            hosts = hosts_of(folder)?;
        }
        // Of a plan's hosts, those whose facts are here are diagnosed all the same.
        let file = |host: &HostName| folder.join(format!("{host}.json"));
        let is_here = |host: &HostName| file(host).symlink_metadata().is_ok();
        let (here, absent): (Vec<_>, Vec<_>) = hosts
            .iter()
            .cloned()
            .partition(|host| !args.hosts.is_empty() || is_here(host));
        let absent: Vec<Failed> = if here.is_empty() {
            Vec::new()
        } else {
            hosts = here;
            let why = |host: &HostName| format!("{} is not there", file(host).display());
            absent
                .into_iter()
                .map(|host| Failed {
                    why: why(&host),
                    host,
                })
                .collect()
        };
        let documents = super::plan::read_all(&hosts, Some(folder))?;
        return Ok(Facts {
            inventories: documents
                .into_iter()
                .map(|(_, inventory)| inventory)
                .collect(),
            failed: absent,
            hosts,
        });
    }
    if hosts.is_empty() && Path::new(INSTALLED_PLAN).exists() {
        hosts = read_plan(Path::new(INSTALLED_PLAN))?.plan.hosts;
    }
    if hosts.is_empty() {
        let options = collect::Options {
            nccl_libraries: args
                .nccl_libraries
                .iter()
                .map(|path| path.as_str().into())
                .collect(),
            ..collect::Options::default()
        };
        let inventory = collect::collect(&options).map_err(|e| Trouble::Usage(e.to_string()))?;
        return Ok(Facts {
            hosts: vec![inventory.host.clone()],
            inventories: vec![inventory],
            failed: Vec::new(),
        });
    }
    let mut facts = Facts {
        hosts: Vec::new(),
        inventories: Vec::new(),
        failed: Vec::new(),
    };
    let mut more = More {
        nccl_libraries: &args.nccl_libraries,
        wire: &[],
    };
    let mut asked = super::inventory::ask_all(&hosts, &more);
    let addresses = addresses(asked.iter().flatten().map(|asked| &asked.inventory));
    if args.wire && !addresses.is_empty() {
        // Whose addresses to ask for is known only now.
        more.wire = &addresses;
        asked = super::inventory::ask_all(&hosts, &more);
    }
    for (host, result) in hosts.into_iter().zip(asked) {
        match result {
            Ok(asked) => {
                facts.hosts.push(host);
                facts.inventories.push(asked.inventory);
            }
            Err(why) => {
                let why = why
                    .strip_prefix(&format!("{host}: "))
                    .unwrap_or(&why)
                    .to_owned();
                facts.failed.push(Failed { host, why });
            }
        }
    }
    Ok(facts)
}

/// Most addresses that are asked for on the wire.
const MOST_ADDRESSES: usize = 64;

/// Every address of the hosts: those of their ports, and those that their routes send from, management's
/// among them. A host answers for any of its own on every port.
fn addresses<'a>(inventories: impl Iterator<Item = &'a Inventory>) -> Vec<Ipv4Addr> {
    let mut all = BTreeSet::new();
    for inventory in inventories {
        let ports = inventory.ports.iter();
        let own = ports.flat_map(|port| port.ipv4.known().into_iter().flatten());
        all.extend(own.map(|address| address.address));
        let routes = inventory.node.routes.known().into_iter().flatten();
        all.extend(routes.filter_map(|route| match route.src {
            Some(std::net::IpAddr::V4(address)) => Some(address),
            _ => None,
        }));
    }
    all.into_iter().take(MOST_ADDRESSES).collect()
}

/// A plan that is only looked at.
pub(super) fn plan_to_show(path: &Path) -> Result<Plan, Trouble> {
    let bytes = files::read_document(path, Links::Follow)?;
    Ok(Plan::from_json(&path.display().to_string(), &bytes)?)
}

/// The hosts of a folder of facts: the files' names without `.json`, in order.
pub(super) fn hosts_of(folder: &Path) -> Result<Vec<HostName>, Trouble> {
    let trouble = |e: std::io::Error| Trouble::Usage(format!("{}: {e}", folder.display()));
    let mut hosts = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(trouble)? {
        let name = entry.map_err(trouble)?.file_name();
        // What an editor or another system left there is no host's, whose name starts with no dot.
        let name = name.to_str().filter(|name| !name.starts_with('.'));
        let Some(host) = name.and_then(|name| name.strip_suffix(".json")) else {
            continue;
        };
        let host = host
            .parse()
            .map_err(|e| Trouble::Usage(format!("{}: a file's name {e}", folder.display())))?;
        hosts.push(host);
        if hosts.len() > MOST_HOSTS {
            return Err(Trouble::Usage(format!(
                "{}: has more than {MOST_HOSTS} hosts",
                folder.display()
            )));
        }
    }
    if hosts.is_empty() {
        return Err(Trouble::Usage(format!(
            "{}: has no facts in it, HOST.json of each host wanted",
            folder.display()
        )));
    }
    hosts.sort();
    Ok(hosts)
}

fn environment(path: &Path) -> Result<Environment, Trouble> {
    let bytes = files::read_document(path, Links::Follow)?;
    Ok(Environment::read(&path.display().to_string(), &bytes)?)
}

/// Longest line of a log that is taken in; the rest of it is passed over.
const LONGEST_LINE: u64 = 64 * 1024;

fn log(path: &Path) -> Result<Log, Trouble> {
    let error = |e: std::io::Error| Trouble::Usage(format!("{}: {e}", path.display()));
    let mut log = Log::new(&path.display().to_string());
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(error)?)
    };
    let mut reader = BufReader::new(source.take(nccl::LONGEST));
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)
            .map_err(error)?;
        if read == 0 {
            return Ok(log);
        }
        log.line(&line);
    }
}

/// The diagnosis for people: the verdict, causes with what follows, notes, what was looked at.
fn shown(diagnosis: &Diagnosis, facts: &Facts) -> String {
    let mut text = String::new();
    let hosts = &facts.hosts;
    let names: Vec<&str> = hosts.iter().map(HostName::as_str).collect();
    let head = output::standing(match diagnosis.findings.iter().map(worst).max() {
        None if hosts.is_empty() || !facts.failed.is_empty() => "not observed",
        None => "ok",
        Some(Severity::Problem) => "FAIL",
        Some(Severity::NotObserved) => "not observed",
        Some(Severity::Warning) => "warning",
    });
    let causes = match diagnosis.findings.len() {
        0 if hosts.is_empty() => "no host was read".to_owned(),
        0 => "nothing wrong was found".to_owned(),
        1 => "1 cause".to_owned(),
        n => format!("{n} causes, the first one first"),
    };
    let unread: Vec<&str> = facts
        .failed
        .iter()
        .map(|failed| failed.host.as_str())
        .collect();
    let unread = match unread[..] {
        [] => String::new(),
        _ => format!("; not read: {}", unread.join(" ")),
    };
    text += &format!("{head}{causes}; {}{unread}\n", names.join(" "));
    if let Some(ring) = &diagnosis.ring {
        let ring: Vec<&str> = ring.iter().map(HostName::as_str).collect();
        let wires = if by_other_wires(diagnosis) {
            ", by the addresses; the wires lead elsewhere"
        } else {
            ""
        };
        text += &format!(
            "ring        {} - {}{wires}\n",
            ring.join(" - "),
            ring.first().unwrap_or(&"")
        );
    }
    for (i, finding) in diagnosis.findings.iter().enumerate() {
        text += &format!("\n{}. ", i + 1);
        tree(&mut text, finding, 0);
    }
    if !diagnosis.notes.is_empty() {
        text += "\nworth knowing:\n";
    }
    for note in &diagnosis.notes {
        text += &format!("  {note} [{}]\n", note.code);
    }
    text += "\nlooked at:\n";
    for check in &diagnosis.checks {
        let word = match check.standing {
            Standing::Ok => "ok",
            Standing::Warning => "warning",
            Standing::Fail => "FAIL",
            Standing::NotObserved => "not observed",
        };
        text += &format!(
            "  {} {:<16}{}\n",
            output::standing(word),
            check.subject,
            check.detail
        );
    }
    if hosts.len() > 1 {
        text += "\nside by side:\n";
        text += &table(&diagnosis.parity, hosts);
    }
    text += "\ncables:\n";
    for cable in &diagnosis.cabling.cables {
        let from = format!(
            "{} socket {} ({})",
            cable.from.host, cable.from.socket, cable.from.ports
        );
        text += &match (&cable.to, cable.shown_by) {
            (Some(to), Some(by)) => format!(
                "  {from} - {} socket {} ({}), shown by {by}\n",
                to.host, to.socket, to.ports
            ),
            _ => format!("  {from} - not observed\n"),
        };
    }
    text += "\nnot covered:\n";
    for what in NOT_COVERED {
        text += &format!("  {what}\n");
    }
    text
}

/// Whether the wires are not where the addresses are made for them.
fn by_other_wires(diagnosis: &Diagnosis) -> bool {
    fn any(findings: &[Finding]) -> bool {
        findings
            .iter()
            .any(|finding| finding.code == "cabling-wire-differs" || any(&finding.consequences))
    }
    diagnosis.cabling.is_ring == Some(false) || any(&diagnosis.findings)
}

fn worst(finding: &Finding) -> Severity {
    let below = finding.consequences.iter().map(worst);
    below.fold(finding.severity, Severity::max)
}

/// How a finding stands, as a word.
pub(super) fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Problem => "FAIL",
        Severity::NotObserved => "not observed",
        Severity::Warning => "warning",
    }
}

fn tree(text: &mut String, finding: &Finding, depth: usize) {
    let word = word(finding.severity);
    let plain = Finding {
        advice: None,
        ..finding.clone()
    };
    let indent = "   ".repeat(depth + 1);
    if depth == 0 {
        *text += &format!("{}{plain} [{}]\n", output::standing(word), finding.code);
    } else {
        *text += &format!("{indent}so: {plain} [{}]\n", finding.code);
    }
    if let Some(advice) = finding.advice.as_ref().filter(|_| depth == 0) {
        *text += &format!("{indent}do: {advice}\n");
    }
    for consequence in &finding.consequences {
        // What is told of several ports at once is not told again of each.
        let named = match (&finding.object, &consequence.object) {
            (Some(all), Some(own)) => {
                all.starts_with("all ") || all == own || all.split('+').any(|name| name == own)
            }
            (all, own) => all == own,
        };
        let again = named && consequence.code == finding.code && consequence.found == finding.found;
        if !again || !consequence.consequences.is_empty() {
            tree(text, consequence, depth + 1);
        }
    }
}

/// The nodes side by side: a value that all have stands once.
fn table(rows: &[ParityRow], hosts: &[HostName]) -> String {
    let mut text = String::new();
    for row in rows {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "not observed".into());
        let values: Vec<String> = row.values.iter().map(value).collect();
        let shown = match (row.same, values.first()) {
            (_, Some(first)) if values.iter().all(|value| value == first) => first.clone(),
            _ => values
                .iter()
                .zip(hosts)
                .map(|(value, host)| format!("{host} {value}"))
                .collect::<Vec<_>>()
                .join("; "),
        };
        let mark = if row.same == Some(false) {
            "differs"
        } else {
            ""
        };
        text += &format!("  {:<20}{:<9}{shown}\n", row.property, mark);
    }
    text
}
