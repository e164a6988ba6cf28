//! GID tables: entries that moved, and entries that stayed behind.

use std::collections::{BTreeMap, BTreeSet};

use crate::doctor::chain::Seen;
use crate::doctor::fabric::{Fabric, usual};
use crate::facts::{Gids, ROCE_V2};
use crate::finding::Finding;
use crate::plan::ends::list;

pub(super) fn look(fabric: &Fabric, seen: &mut Vec<Seen>) {
    moved(fabric, seen);
    stale(fabric, seen);
}

/// The indices at which a port has the RoCE v2 GID of its address.
pub(super) fn indices(fabric: &Fabric, port: usize) -> BTreeSet<u8> {
    fabric.ports[port].gid_indices()
}

/// Ports whose GID is at another index than most have it.
fn moved(fabric: &Fabric, seen: &mut Vec<Seen>) {
    let sets: BTreeMap<usize, BTreeSet<u8>> = (0..fabric.ports.len())
        .map(|port| (port, indices(fabric, port)))
        .filter(|(_, set)| !set.is_empty())
        .collect();
    let mut common = sets.values().cloned();
    let first = common.next().unwrap_or_default();
    if !common
        .fold(first, |all, set| all.intersection(&set).copied().collect())
        .is_empty()
    {
        return;
    }
    let Some(index) = usual(sets.values().flatten().copied()) else {
        return;
    };
    for (port, set) in sets.iter().filter(|(_, set)| !set.contains(&index)) {
        let finding = Finding::problem(
            "gid-moved",
            format!("its RoCE v2 GID is at index {}", list(set)),
            format!("{index}, as most ports have it"),
        );
        seen.push(Seen::port(fabric, *port, finding));
    }
}

/// Entries of addresses that the port no longer has.
fn stale(fabric: &Fabric, seen: &mut Vec<Seen>) {
    for port in 0..fabric.ports.len() {
        let facts = fabric.facts(port);
        let (Gids::Table(table), Some(addresses)) = (&facts.gids, facts.ipv4.known()) else {
            continue;
        };
        let left: Vec<String> = table
            .iter()
            .filter(|entry| entry.kind == ROCE_V2 && entry.netdev.as_ref() == Some(&facts.netdev))
            .filter_map(|entry| Some((entry.index, entry.gid.ipv4()?)))
            .filter(|(_, address)| addresses.iter().all(|own| own.address != *address))
            .map(|(index, address)| format!("{address} at index {index}"))
            .collect();
        if !left.is_empty() {
            let finding = Finding::warning(
                "gid-stale",
                format!("the GID table still has {}", list(left)),
                "entries of the port's own addresses",
            );
            seen.push(Seen::port(fabric, port, finding));
        }
    }
}
