//! The nodes side by side: what has to be the same on all, in one table.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::doctor::chain::Seen;
use crate::doctor::fabric::{Fabric, usual};
use crate::facts::{Applied, Fact, Inventory, PortFacts};
use crate::finding::Finding;
use crate::plan::ends::list;

/// A row: a property of every node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What.
    pub property: &'static str,
    /// What each host has, in their order; `null` where it was not observed.
    pub values: Vec<Option<String>>,
    /// Whether all that were observed are the same; `null` when none or one was.
    pub same: Option<bool>,
}

/// A property: how to read it, and the code of a finding when nodes differ; none where another finding
/// tells it.
struct Property {
    name: &'static str,
    of: fn(&Fabric, usize) -> Option<String>,
    code: Option<&'static str>,
}

fn shown<T: std::fmt::Display>(fact: &Fact<T>) -> Option<String> {
    fact.known().map(ToString::to_string)
}

/// What the ports of a node have, the same once; none when any is not observed.
fn ports(
    fabric: &Fabric,
    node: usize,
    of: impl Fn(&PortFacts) -> Option<String>,
) -> Option<String> {
    let inventory: &Inventory = &fabric.inventories[node];
    let mut values: Vec<String> = Vec::new();
    for port in &inventory.ports {
        let value = of(port)?;
        if !values.contains(&value) {
            values.push(value);
        }
    }
    (!values.is_empty()).then(|| list(values))
}

const PROPERTIES: &[Property] = &[
    Property {
        name: "kernel",
        of: |f, n| shown(&f.inventories[n].node.kernel),
        code: Some("parity-kernel"),
    },
    Property {
        name: "architecture",
        of: |f, n| shown(&f.inventories[n].node.architecture),
        code: Some("parity-architecture"),
    },
    Property {
        name: "driver",
        of: |f, n| {
            ports(f, n, |port| {
                let driver = shown(&port.details.driver)?;
                Some(match port.details.driver_version.known() {
                    Some(Some(version)) => format!("{driver} {version}"),
                    _ => driver,
                })
            })
        },
        code: Some("parity-driver"),
    },
    Property {
        name: "firmware",
        of: |f, n| ports(f, n, |port| shown(&port.details.firmware)),
        code: Some("parity-firmware"),
    },
    Property {
        name: "rdma-core",
        of: |f, n| shown(&f.inventories[n].node.rdma_core),
        code: Some("parity-rdma-core"),
    },
    Property {
        name: "BIOS",
        of: |f, n| shown(&f.inventories[n].node.machine.bios_version),
        code: Some("parity-bios"),
    },
    Property {
        name: "BIOS date",
        of: |f, n| shown(&f.inventories[n].node.machine.bios_date),
        code: None,
    },
    Property {
        name: "hairpin queue size",
        of: |f, n| {
            ports(f, n, |port| {
                let size = (*port.hairpin_queue_size.known()?)?;
                Some(match port.hairpin_queue_applied {
                    Applied::Applied | Applied::Unsaid => size.to_string(),
                    Applied::Pending => format!("{size} (pending)"),
                    Applied::Unknown => format!("{size} (loaded?)"),
                })
            })
        },
        code: None,
    },
    Property {
        name: "hairpin queues",
        of: |f, n| {
            ports(f, n, |port| {
                port.hairpin_num_queues.known()?.map(|n| n.to_string())
            })
        },
        code: None,
    },
    Property {
        name: "GID index",
        of: |f, n| {
            let own = f.of_host(n);
            let sets: Option<Vec<String>> = own
                .iter()
                .map(|port| {
                    let set: BTreeSet<u8> = f.ports[*port].gid_indices();
                    (!set.is_empty())
                        .then(|| set.iter().map(u8::to_string).collect::<Vec<_>>().join("/"))
                })
                .collect();
            let mut sets = sets?;
            sets.dedup();
            (!sets.is_empty()).then(|| list(sets))
        },
        code: None,
    },
    Property {
        name: "MTU",
        of: |f, n| ports(f, n, |port| Some(port.mtu.to_string())),
        code: None,
    },
    Property {
        name: "RDMA MTU",
        of: |f, n| ports(f, n, |port| shown(&port.rdma_active_mtu)),
        code: None,
    },
    Property {
        name: "PCIe",
        of: |f, n| {
            ports(f, n, |port| {
                let pcie = port.details.pcie.known()?.as_ref()?;
                Some(format!(
                    "x{} {}",
                    pcie.current_width.known()?,
                    pcie.current_speed.known()?
                ))
            })
        },
        code: None,
    },
    Property {
        name: "offload",
        of: |f, n| {
            ports(f, n, |port| {
                Some(
                    if *port.tc_offload.known()? {
                        "on"
                    } else {
                        "off"
                    }
                    .into(),
                )
            })
        },
        code: None,
    },
    Property {
        name: "steering",
        of: |f, n| ports(f, n, |port| port.flow_steering_mode.known()?.clone()),
        code: None,
    },
    Property {
        name: "eswitch",
        of: |f, n| ports(f, n, |port| port.eswitch_mode.known()?.clone()),
        code: None,
    },
    Property {
        name: "trust",
        of: |f, n| ports(f, n, |port| shown(&port.details.trust)),
        code: None,
    },
    Property {
        name: "kho",
        of: |f, n| {
            f.inventories[n]
                .node
                .kernel_handover
                .known()
                .map(|word| word.as_ref().map_or("unset".into(), ToString::to_string))
        },
        code: None,
    },
    Property {
        name: "NCCL library",
        of: |f, n| {
            let all = f.inventories[n].node.nccl_libraries.known()?;
            let sums: Option<Vec<&str>> = all
                .iter()
                .map(|library| Some(library.sha256.known()?.as_str()))
                .collect();
            sums.filter(|sums| !sums.is_empty()).map(list)
        },
        code: Some("nccl-library-differs"),
    },
];

pub(super) fn look(fabric: &Fabric, seen: &mut Vec<Seen>) -> Vec<Row> {
    let mut rows = Vec::new();
    for property in PROPERTIES {
        let values: Vec<Option<String>> = (0..fabric.hosts.len())
            .map(|node| (property.of)(fabric, node))
            .collect();
        let known: Vec<&String> = values.iter().flatten().collect();
        let same = (known.len() > 1).then(|| known.iter().all(|value| *value == known[0]));
        if let (Some(code), Some(false)) = (property.code, same) {
            differs(fabric, property.name, code, &values, seen);
        }
        rows.push(Row {
            property: property.name,
            values,
            same,
        });
    }
    rows
}

fn differs(
    fabric: &Fabric,
    name: &str,
    code: &'static str,
    values: &[Option<String>],
    seen: &mut Vec<Seen>,
) {
    // A library is another one or it is not: all must run the same.
    let finding = |found: String, wanted: String| {
        if code.starts_with("nccl-") {
            Finding::problem(code, found, wanted)
        } else {
            Finding::warning(code, found, wanted)
        }
    };
    match usual(values.iter().flatten().cloned()) {
        Some(most) => {
            for (node, value) in values.iter().enumerate() {
                if let Some(value) = value.as_ref().filter(|value| **value != most) {
                    let finding = finding(
                        format!("{name} {value}"),
                        format!("{most}, as the other hosts have"),
                    );
                    seen.push(Seen::host(fabric, node, finding));
                }
            }
        }
        None => {
            let table = values
                .iter()
                .zip(fabric.hosts)
                .map(|(value, host)| format!("{host} {}", value.as_deref().unwrap_or("?")));
            seen.push(Seen::ring(finding(
                format!("{name} differs ({})", list(table)),
                "the same on all hosts".into(),
            )));
        }
    }
}
