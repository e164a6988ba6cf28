//! `plan`: facts in, plan folder out.

use std::path::Path;

use serde::Serialize;

use super::{Exit, Trouble};
use crate::cli::PlanArgs;
use crate::facts::Inventory;
use crate::files::{self, Links};
use crate::finding::{Finding, Severity};
use crate::folder::{self, Source};
use crate::names::HostName;
use crate::output;
use crate::plan::topology::{Extras, Topology};
use crate::plan::{Options, Plan, Planned, ring};

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    /// Whether there is a plan.
    planned: bool,
    /// The folder that was written.
    out: Option<&'a Path>,
    findings: &'a [Finding],
    plan: Option<&'a Plan>,
    /// Why there could be no verdict (exit 2), a line each.
    trouble: Vec<String>,
}

/// The report's name and version.
const REPORT: &str = "hairpin-mesh.plan-report/v1";

pub(super) fn run(args: PlanArgs) -> Result<Exit, Trouble> {
    let result = plan(&args);
    if let (Err(trouble), true) = (&result, args.json) {
        output::result(&crate::json::pretty(&Report {
            schema: REPORT,
            planned: false,
            out: None,
            findings: &[],
            plan: None,
            trouble: trouble.lines(),
        }))?;
    }
    result
}

fn plan(args: &PlanArgs) -> Result<Exit, Trouble> {
    ring::check_size(args.hosts.len()).map_err(Trouble::Usage)?;
    let options = Options {
        opposite_paths: args.opposite_paths,
        gid_index: args.gid_index,
        hairpin_queue: args.hairpin_queue.0,
    };
    let documents;
    let topology_bytes;
    let (planned, extras, source) = match &args.topology {
        Some(path) => {
            topology_bytes = files::read_document(path, Links::Refuse)?;
            let topology = Topology::from_json(&path.display().to_string(), &topology_bytes)?;
            (
                topology.plan(&args.hosts, &options),
                topology.extras,
                Source::Topology(&topology_bytes),
            )
        }
        None => {
            documents = read_all(&args.hosts, args.inventory.as_deref())?;
            let inventories: Vec<Inventory> = documents.iter().map(|(_, i)| i.clone()).collect();
            let source = args
                .hosts
                .iter()
                .zip(&documents)
                .map(|(h, (bytes, _))| (h, bytes.as_slice()))
                .collect();
            let mut planned = crate::plan::plan(&args.hosts, &inventories, &options);
            planned
                .findings
                .extend(crate::doctor::wires_elsewhere(&args.hosts, &inventories));
            (planned, Extras::default(), Source::Inventories(source))
        }
    };
    finish(args, &planned, &extras, &source)
}

/// The documents of all hosts, in their order; everything that is wrong with any of them at once.
pub(super) fn read_all(
    hosts: &[HostName],
    folder: Option<&Path>,
) -> Result<Vec<(Vec<u8>, Inventory)>, Trouble> {
    let results: Vec<Result<(Vec<u8>, Inventory), String>> = match folder {
        Some(folder) => hosts
            .iter()
            .map(|host| {
                let path = folder.join(format!("{host}.json"));
                let bytes =
                    files::read_document(&path, Links::Follow).map_err(|e| e.to_string())?;
                let inventory = Inventory::from_json(&path.display().to_string(), &bytes)
                    .map_err(|e| e.to_string())?;
                Ok((bytes, inventory))
            })
            .collect(),
        None => super::inventory::ask_all(hosts, &Default::default())
            .into_iter()
            .map(|result| result.map(|asked| (asked.bytes, asked.inventory)))
            .collect(),
    };
    let failures: Vec<String> = results
        .iter()
        .filter_map(|r| r.as_ref().err().cloned())
        .collect();
    if !failures.is_empty() {
        return Err(Trouble::Several(failures));
    }
    Ok(results.into_iter().flatten().collect())
}

fn finish(
    args: &PlanArgs,
    planned: &Planned,
    extras: &Extras,
    source: &Source,
) -> Result<Exit, Trouble> {
    output::findings(&planned.findings);
    if let Some((plan, ring)) = &planned.plan {
        let content = folder::content(plan, ring, extras, source);
        let earlier = folder::earlier(&args.out);
        let ours = |path: &str| earlier.contains(path);
        files::replace_folder(&args.out, &content, ours, folder::is_of_a_plan)?;
    }
    let plan = planned.plan.as_ref().map(|(plan, _)| plan);
    if args.json {
        output::result(&crate::json::pretty(&Report {
            schema: REPORT,
            planned: plan.is_some(),
            out: plan.map(|_| args.out.as_path()),
            findings: &planned.findings,
            plan,
            trouble: Vec::new(),
        }))?;
    } else if let Some(plan) = plan {
        output::result(&summary(plan, &args.out))?;
    }
    match plan {
        Some(_) => Ok(Exit::Yes),
        None => {
            let problems = planned
                .findings
                .iter()
                .filter(|f| f.severity == Severity::Problem)
                .count();
            let plural = if problems == 1 { "" } else { "s" };
            output::failure(&format!(
                "no plan: {problems} problem{plural}, nothing written"
            ));
            Ok(Exit::No)
        }
    }
}

/// What a person wants to see of a plan: the ring, what follows, and what to do next.
fn summary(plan: &Plan, out: &Path) -> String {
    let join = |hosts: &[HostName], by: &str| {
        hosts
            .iter()
            .map(HostName::as_str)
            .collect::<Vec<_>>()
            .join(by)
    };
    let head = plan.ring.first().map_or("", HostName::as_str);
    let queue = match plan.hairpin_queue_wanted {
        Some(wanted) => format!("{} applied, {wanted} wanted", plan.hairpin_queue_size),
        None => format!("{} applied, kept", plan.hairpin_queue_size),
    };
    let mut text = format!(
        "ok        ring of {} planned into {}\n\
         TP order  {}\n\
         ring      {} - {head}\n\
         paths     {} direct, {} diagonal; {} routes, {} rules, {} markers\n\
         GID index {}\n\
         queue     {queue}; messages up to {} bytes\n",
        plan.hosts.len(),
        out.display(),
        join(&plan.hosts, " "),
        join(&plan.ring, " - "),
        plan.paths.iter().filter(|p| p.via.is_none()).count(),
        plan.paths.iter().filter(|p| p.via.is_some()).count(),
        plan.routes.len(),
        plan.rules.len(),
        plan.markers.len(),
        plan.gid_index,
        plan.size_cap_bytes,
    );
    if plan
        .hairpin_queue_wanted
        .is_some_and(|wanted| wanted > plan.hairpin_queue_size)
    {
        text.push_str(
            "next      plan again once the wanted queue size is applied: the size cap may rise\n",
        );
    }
    text
}
