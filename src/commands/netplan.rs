//! `netplan`: the second plane's netplan file of hosts, printed for the user.

use serde::Serialize;

use super::doctor::{hosts_of, plan_to_show};

use super::{Exit, Trouble};
use crate::cli::NetplanArgs;
use crate::doctor::netplan::{self, FILE, Plane};
use crate::facts::Inventory;
use crate::node::identity::INSTALLED_PLAN;
use crate::output;

/// The report's name and version.
const REPORT: &str = "hairpin-mesh.netplan-report/v1";

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    hosts: Vec<HostPart>,
    /// Why there could be no file, a line each.
    trouble: Vec<String>,
}

#[derive(Serialize)]
struct HostPart {
    host: String,
    /// Where the file belongs.
    file: &'static str,
    /// Whether its addresses are made up from the first plane's.
    proposed: bool,
    /// The file, or with `--remove` the steps.
    text: String,
}

pub(super) fn run(args: NetplanArgs) -> Result<Exit, Trouble> {
    let result = print(&args);
    if let (Err(trouble), true) = (&result, args.json) {
        output::result(&crate::json::pretty(&Report {
            schema: REPORT,
            hosts: Vec::new(),
            trouble: trouble.lines(),
        }))?;
    }
    result
}

fn print(args: &NetplanArgs) -> Result<Exit, Trouble> {
    let planes = match &args.inventory {
        Some(folder) => {
            let hosts = hosts_of(folder)?;
            if let Some(host) = args.hosts.iter().find(|host| !hosts.contains(host)) {
                return Err(Trouble::Usage(format!(
                    "{}: has no facts of {host}, {host}.json wanted",
                    folder.display()
                )));
            }
            let documents = super::plan::read_all(&hosts, Some(folder))?;
            let inventories: Vec<Inventory> = documents.into_iter().map(|(_, own)| own).collect();
            netplan::of_facts(&hosts, &inventories)
        }
        None => {
            let path = args.plan.as_deref().unwrap_or(INSTALLED_PLAN.as_ref());
            netplan::of_plan(&plan_to_show(path)?)
        }
    };
    let planes = match planes {
        Ok(planes) => planes,
        Err(lines) => {
            for line in &lines {
                output::failure(line);
            }
            if args.json {
                output::result(&crate::json::pretty(&Report {
                    schema: REPORT,
                    hosts: Vec::new(),
                    trouble: lines,
                }))?;
            }
            return Ok(Exit::No);
        }
    };
    let mut parts = Vec::new();
    for host in &args.hosts {
        let Some(plane) = planes.iter().find(|plane| plane.host == *host) else {
            let names: Vec<&str> = planes.iter().map(|plane| plane.host.as_str()).collect();
            return Err(Trouble::Usage(format!(
                "{host} is not among the ring's hosts: {}",
                names.join(", ")
            )));
        };
        parts.push(part(plane, args.remove));
    }
    if args.json {
        output::result(&crate::json::pretty(&Report {
            schema: REPORT,
            hosts: parts,
            trouble: Vec::new(),
        }))?;
    } else {
        let texts: Vec<String> = parts.into_iter().map(|part| part.text).collect();
        output::result(&texts.join("---\n"))?;
    }
    Ok(Exit::Yes)
}

fn part(plane: &Plane, remove: bool) -> HostPart {
    HostPart {
        host: plane.host.to_string(),
        file: FILE,
        proposed: plane.proposed,
        text: if remove {
            netplan::removal(plane)
        } else {
            netplan::file(plane)
        },
    }
}
