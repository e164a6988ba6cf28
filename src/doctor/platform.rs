//! Kernel, memory, modules, files of the network manager, and the NCCL library of each node.

use std::collections::BTreeMap;

use crate::doctor::chain::Seen;
use crate::doctor::fabric::Fabric;
use crate::doctor::netplan::COPY;
use crate::facts::{Fact, Inventory, NetplanFile};
use crate::finding::Finding;
use crate::names::HostName;
use crate::plan::ends::{count, list};

/// The first rdma-core whose mlx5 provider takes rules of the RDMA-TX table (linux-rdma/rdma-core#729, 2020).
const OLDEST_RDMA_CORE: u32 = 29;

/// `50` of `1.14.50.0`, the file that libibverbs is loaded from.
fn rdma_core(version: &str) -> Option<u32> {
    version.split('.').nth(2)?.parse().ok()
}

/// Bytes of locked memory below which an engine cannot register its buffers.
const ENOUGH_LOCKED: u64 = 1 << 30;

pub(super) fn look(fabric: &Fabric, seen: &mut Vec<Seen>, notes: &mut Vec<Finding>) {
    apart(fabric, notes);
    for (node, inventory) in fabric.inventories.iter().enumerate() {
        let facts = &inventory.node;
        if let Fact::Known(memory) = &facts.memory {
            if let (Some(total), Some(free)) = (memory.cma_total_kb, memory.cma_free_kb) {
                if free > total {
                    let kernel = facts
                        .kernel
                        .known()
                        .map_or(String::new(), |kernel| format!(" (kernel {kernel})"));
                    let kho = match facts.kernel_handover.known() {
                        Some(Some(word)) => format!(", {word}"),
                        Some(None) => ", no kho= on the command line".into(),
                        None => String::new(),
                    };
                    let finding = Finding::problem(
                        "memory-cma",
                        format!(
                            "CmaFree {free} kB is more than CmaTotal {total} kB{kernel}{kho}: registering memory fails with \"Cannot allocate memory\""
                        ),
                        "CmaFree of at most CmaTotal",
                    );
                    seen.push(Seen::host(fabric, node, finding));
                }
            }
        }
        let modules = facts.modules.known().into_iter().flatten();
        if modules
            .into_iter()
            .any(|module| module.as_str() == "mstflint_access")
        {
            let finding = Finding::warning(
                "module-mstflint",
                "mstflint_access is loaded: after a hot-plug its old PCI device panics the node when mstflint runs",
                "it unloaded",
            );
            seen.push(Seen::host(fabric, node, finding));
        }
        if let Fact::Known(version) = &facts.rdma_core {
            if rdma_core(version.as_str()).is_some_and(|own| own < OLDEST_RDMA_CORE) {
                let finding = Finding::problem(
                    "rdma-core-old",
                    format!("rdma-core {version} cannot make the markers' rules"),
                    format!("{OLDEST_RDMA_CORE} or newer"),
                );
                seen.push(Seen::host(fabric, node, finding));
            }
        }
        if let Fact::Known(files) = &facts.netplan_files {
            netplan(fabric, node, files, seen);
        }
        for process in facts.rdma_processes.known().into_iter().flatten() {
            let limit = process.memory_lock_limit.known().copied().flatten();
            if let (Some(limit), Fact::Known(false)) = (
                limit.filter(|limit| *limit < ENOUGH_LOCKED),
                &process.ipc_lock,
            ) {
                let name = process.owner.known().map_or("?", |owner| owner.as_str());
                let finding = Finding::warning(
                    "memory-lock",
                    format!(
                        "{name} (process {}) has queue pairs and may lock {limit} bytes: registering more fails with \"Cannot allocate memory\"",
                        process.pid
                    ),
                    "no limit, or CAP_IPC_LOCK",
                );
                seen.push(Seen::host(fabric, node, finding));
            }
        }
        libraries(fabric, node, seen);
        for left in inventory
            .left_out
            .iter()
            .filter(|left| left.what.as_str() != "fabric functions")
        {
            notes.push(
                Finding::warning(
                    "left-out",
                    format!("{}: {}", left.what, left.why),
                    "it read",
                )
                .on(&fabric.hosts[node]),
            );
        }
    }
}

/// Seconds; facts of hosts that are further apart may be of different states of the ring.
const HOUR: u64 = 3600;

/// Facts that were taken at different times.
fn apart(fabric: &Fabric, notes: &mut Vec<Finding>) {
    let all = fabric.hosts.iter().zip(fabric.inventories);
    let mut times: Vec<(u64, &HostName)> = all
        .filter_map(|(host, own)| Some((*own.node.collected_at.known()?, host)))
        .collect();
    times.sort();
    let (Some((first, early)), Some((last, late))) = (times.first(), times.last()) else {
        return;
    };
    let hours = (last - first) / HOUR;
    if last - first > HOUR {
        notes.push(Finding::warning(
            "facts-apart",
            format!(
                "the facts of {early} are {} older than those of {late}: what changed between fits neither",
                count(usize::try_from(hours).unwrap_or(usize::MAX), "hour")
            ),
            "facts of all hosts at once",
        ));
    }
}

/// A port that two files name has two owners: the one that is removed leaves the other.
fn netplan(fabric: &Fabric, node: usize, files: &[NetplanFile], seen: &mut Vec<Seen>) {
    let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        for netdev in &file.netdevs {
            owners
                .entry(netdev.as_str())
                .or_default()
                .push(file.file.as_str());
        }
    }
    for (netdev, files) in owners.into_iter().filter(|(_, files)| files.len() > 1) {
        let copy = files.iter().any(|file| file.starts_with(COPY));
        let why = if copy {
            "; NetworkManager's copy survives the removal of the other, and brings it back"
        } else {
            ""
        };
        let finding = Finding::warning(
            "netplan-owned-twice",
            format!(
                "{} files of /etc/netplan name it ({}){why}",
                files.len(),
                list(&files)
            ),
            "one",
        );
        seen.push(match fabric.port(node, netdev) {
            Some(port) => Seen::port(fabric, port, finding),
            None => Seen::host(fabric, node, finding.at(netdev)),
        });
    }
}

fn libraries(fabric: &Fabric, node: usize, seen: &mut Vec<Seen>) {
    let all = fabric.inventories[node]
        .node
        .nccl_libraries
        .known()
        .into_iter()
        .flatten();
    let has_any = |node: &Inventory| {
        let all = node.node.nccl_libraries.known();
        all.is_some_and(|all| !all.is_empty())
    };
    let is_bare = fabric.inventories[node].node.nccl_libraries.known();
    if is_bare.is_some_and(Vec::is_empty) && fabric.inventories.iter().any(has_any) {
        let finding = Finding::problem(
            "nccl-library-missing",
            "no NCCL library is where it was looked for, and other hosts have one there",
            "the library of the switchless ring",
        );
        seen.push(Seen::host(fabric, node, finding));
    }
    for library in all {
        let finding = match (&library.sha256, &library.ring_marker) {
            (Fact::NotObserved(why), _) | (_, Fact::NotObserved(why)) => {
                Finding::not_observed("nccl-library-unread", &library.path, why, "an NCCL library")
            }
            (_, Fact::Known(false)) => Finding::problem(
                "nccl-library-other",
                format!(
                    "{} has no SWITCHLESS_RING_ONLY in it: it is an ordinary NCCL, which ignores the ring's settings silently",
                    library.path
                ),
                "the library of the switchless ring",
            ),
            (_, Fact::Known(true)) => continue,
        };
        seen.push(Seen::host(fabric, node, finding));
    }
}
