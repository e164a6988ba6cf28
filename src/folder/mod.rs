//! The plan folder: what `plan` writes.
//!
//! | file | what it makes |
//! |---|---|
//! | `mod.rs` | the whole folder as a value, and which paths an earlier one has |
//! | `script.rs` | `mesh-up-<host>.sh`, `mesh-down-<host>.sh` |
//! | `topology_svg.rs` | `topology.svg` |

pub mod script;
mod topology_svg;

pub(crate) use topology_svg::escaped;

use std::collections::BTreeSet;
use std::path::Path;

use crate::files::{Content, Entry, Links, read_document};
use crate::json::{At, parse, pretty};
use crate::names::HostName;
use crate::plan::Plan;
use crate::plan::ring::Ring;
use crate::plan::topology::{Extras, fabric_json};

/// What a plan was made from, kept in its folder byte for byte.
pub enum Source<'a> {
    /// One inventory per host.
    Inventories(Vec<(&'a HostName, &'a [u8])>),
    /// A topology document.
    Topology(&'a [u8]),
}

/// Everything that the folder of `plan` holds.
pub fn content(plan: &Plan, ring: &Ring, extras: &Extras, source: &Source) -> Content {
    let mut content = Content::new();
    let mut file = |path: String, bytes: Vec<u8>| {
        let executable = path.ends_with(".sh");
        content.insert(path, Entry { bytes, executable });
    };
    file("plan.json".into(), pretty(plan).into());
    file("env.txt".into(), plan.env.to_string().into());
    file(
        "fabric.json".into(),
        fabric_json(ring, plan.gid_index, extras).into(),
    );
    file(
        "topology.svg".into(),
        topology_svg::topology_svg(plan).into(),
    );
    for host in plan
        .hosts
        .iter()
        .filter_map(|host| plan.for_host(host.as_str()))
    {
        file(
            format!("mesh-up-{}.sh", host.host),
            script::mesh_up(plan, &host).into(),
        );
        file(
            format!("mesh-down-{}.sh", host.host),
            script::mesh_down(plan, &host).into(),
        );
    }
    match source {
        Source::Inventories(inventories) => {
            for (host, bytes) in inventories {
                file(format!("inventory/{host}.json"), bytes.to_vec());
            }
        }
        Source::Topology(bytes) => file("topology.json".into(), bytes.to_vec()),
    }
    content
}

/// The paths that an earlier plan put into `folder`, by the hosts in its `plan.json`; none when
/// there is no plan of this program in it.
pub fn earlier(folder: &Path) -> BTreeSet<String> {
    let read = || -> Option<BTreeSet<String>> {
        let bytes = read_document(&folder.join("plan.json"), Links::Refuse).ok()?;
        let value = parse("plan.json", &bytes).ok()?;
        let root = At::root("plan.json", &value);
        root.need("schema")
            .ok()?
            .exactly(crate::plan::SCHEMA)
            .ok()?;
        let mut paths: BTreeSet<String> = FILES.map(str::to_owned).into();
        for host in root.need("hosts").ok()?.items(MOST_HOSTS).ok()? {
            let host: HostName = host.name().ok()?;
            paths.insert(format!("mesh-up-{host}.sh"));
            paths.insert(format!("mesh-down-{host}.sh"));
            paths.insert(format!("inventory/{host}.json"));
        }
        Some(paths)
    };
    read().unwrap_or_default()
}

/// Whether any plan folder has this path (folders end in `/`).
pub fn is_of_a_plan(path: &str) -> bool {
    let host_between = |start: &str, end: &str| {
        path.strip_prefix(start)
            .and_then(|rest| rest.strip_suffix(end))
            .is_some_and(|host| host.parse::<HostName>().is_ok())
    };
    FILES.contains(&path)
        || host_between("mesh-up-", ".sh")
        || host_between("mesh-down-", ".sh")
        || host_between("inventory/", ".json")
}

/// The paths of a plan folder that do not name a host. A folder has an inventory for each host, or
/// a topology document.
const FILES: [&str; 6] = [
    "plan.json",
    "env.txt",
    "fabric.json",
    "topology.svg",
    "topology.json",
    "inventory/",
];

/// More hosts than any ring has; only bounds what is read.
const MOST_HOSTS: usize = 64;
