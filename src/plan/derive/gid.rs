//! The GID index that all ports share.

use std::collections::BTreeSet;

use super::Located;
use crate::facts::{GidEntry, Gids, PortFacts, ROCE_V2};
use crate::finding::Finding;
use crate::names::{Cidr, Gid};
use crate::plan::ends::list;
use crate::plan::mesh;

/// Whether `entry` is the RoCE v2 GID of `address` on the port's own network device.
fn maps(entry: &GidEntry, port: &PortFacts, address: Cidr) -> bool {
    entry.gid == Gid::ipv4_mapped(address.address)
        && entry.kind == ROCE_V2
        && entry.netdev.as_ref() == Some(&port.netdev)
}

/// The GID indices at which a port has its address.
pub(super) fn valid_gid_indices(port: &PortFacts, address: Cidr) -> BTreeSet<u8> {
    match &port.gids {
        Gids::Table(table) => table
            .iter()
            .filter(|e| maps(e, port, address))
            .map(|e| e.index)
            .collect(),
        Gids::IndexThree { gid, netdev } => {
            // Today's tool does not record the type; its index 3 is the RoCE v2 entry.
            let good =
                *gid == Gid::ipv4_mapped(address.address) && netdev.as_ref() == Some(&port.netdev);
            good.then_some(3).into_iter().collect()
        }
        Gids::NotObserved(_) => BTreeSet::new(),
    }
}

/// What is at `index` of a port's GID table, for a message.
fn gid_at(port: &PortFacts, index: u8) -> String {
    let shown = |gid: Gid, kind: &str, netdev: Option<&crate::names::NetdevName>| {
        if gid == Gid::ZERO {
            return "all zero".to_owned();
        }
        let address = gid.ipv4().map(|a| format!(" ({a})")).unwrap_or_default();
        let kind = if kind.is_empty() {
            String::new()
        } else {
            format!(", {kind}")
        };
        let netdev = netdev.map_or_else(
            || ", of no network device".to_owned(),
            |n| format!(", of {n}"),
        );
        format!("{gid}{address}{kind}{netdev}")
    };
    match &port.gids {
        Gids::Table(table) => table.iter().find(|e| e.index == index).map_or_else(
            || "empty".to_owned(),
            |e| shown(e.gid, &e.kind, e.netdev.as_ref()),
        ),
        Gids::IndexThree { gid, netdev } if index == 3 => shown(*gid, "", netdev.as_ref()),
        Gids::IndexThree { .. } => "not in this inventory (it has index 3 alone)".to_owned(),
        Gids::NotObserved(why) => format!("not observed: {why}"),
    }
}

/// The one index at which every port has its address: the demanded one, else the preferred one,
/// else the lowest.
pub(super) fn choose_gid_index(
    ports: &[Located],
    demanded: Option<u8>,
    findings: &mut Vec<Finding>,
) -> u8 {
    let sets: Vec<(&Located, Cidr, BTreeSet<u8>)> = ports
        .iter()
        .filter_map(|p| p.address.map(|a| (p, a, valid_gid_indices(p.facts, a))))
        .collect();
    if demanded.is_none() {
        let mut common: Option<BTreeSet<u8>> = None;
        for (_, _, set) in &sets {
            common = Some(
                common.map_or_else(|| set.clone(), |c| c.intersection(set).copied().collect()),
            );
        }
        let common = common.unwrap_or_default();
        if common.contains(&mesh::PREFERRED_GID_INDEX) {
            return mesh::PREFERRED_GID_INDEX;
        }
        if let Some(lowest) = common.first() {
            return *lowest;
        }
        let without_any = sets.iter().any(|(_, _, set)| set.is_empty());
        if !without_any && !sets.is_empty() {
            let table = list(sets.iter().map(|(p, _, set)| {
                format!(
                    "{}={}",
                    p.label(),
                    set.iter().map(u8::to_string).collect::<Vec<_>>().join("/")
                )
            }));
            findings.push(
                Finding::problem("gid-index-differs", format!("the ports have their RoCE v2 IPv4 GIDs at different indices ({table})"), "one index on all")
                    .advise("an entry still held when its address came back leaves a hole: stop what holds it, then remove and add the address again"),
            );
            return mesh::PREFERRED_GID_INDEX;
        }
    }
    let index = demanded.unwrap_or(mesh::PREFERRED_GID_INDEX);
    for (port, address, set) in &sets {
        // Without a demand, a port that has its GID at another index is not the one to blame.
        if if demanded.is_some() {
            set.contains(&index)
        } else {
            !set.is_empty()
        } {
            continue;
        }
        let wanted = format!(
            "{} (RoCE v2, {}) of {}",
            Gid::ipv4_mapped(address.address),
            address.address,
            port.facts.netdev
        );
        let elsewhere = if set.is_empty() {
            String::new()
        } else {
            format!("; it is at index {}", list(set))
        };
        findings.push(
            Finding::problem(
                "port-gid",
                format!(
                    "GID index {index} is {}{elsewhere}",
                    gid_at(port.facts, index)
                ),
                wanted,
            )
            .on(port.host)
            .at(&port.facts.netdev),
        );
    }
    index
}
