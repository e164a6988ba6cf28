//! The plan folder: what `plan` writes.
//!
//! | file | what it makes |
//! |---|---|
//! | `mod.rs` | the whole folder as a value, and which paths belong to one |
//! | `script.rs` | `mesh-up-<host>.sh`, `mesh-down-<host>.sh` |
//! | `topology_svg.rs` | `topology.svg` |

pub mod script;
mod topology_svg;

use crate::files::{Content, Entry};
use crate::json::pretty;
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

/// Whether a relative path (folders end in `/`) is one that a plan folder holds.
pub fn is_ours(path: &str) -> bool {
    let host_between = |start: &str, end: &str| {
        path.strip_prefix(start)
            .and_then(|rest| rest.strip_suffix(end))
            .is_some_and(|host| host.parse::<HostName>().is_ok())
    };
    matches!(
        path,
        "plan.json" | "env.txt" | "fabric.json" | "topology.svg" | "topology.json" | "inventory/"
    ) || host_between("mesh-up-", ".sh")
        || host_between("mesh-down-", ".sh")
        || host_between("inventory/", ".json")
}
