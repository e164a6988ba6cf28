//! What refuses a plan, as `plan` finds it, and the settings that mlx5 takes no hairpin rule with.

use std::collections::BTreeSet;

use crate::doctor::chain::Seen;
use crate::doctor::fabric::{Fabric, usual};
use crate::facts::{Fact, Trust};
use crate::finding::{Finding, Severity};

/// What `plan` finds, each with the ports that it is about.
pub(super) fn of_plan(fabric: &Fabric, seen: &mut Vec<Seen>, notes: &mut Vec<Finding>) {
    for (node, first) in &fabric.copies {
        let finding = Finding::problem(
            "inventory-repeated",
            format!(
                "its facts are those of {}: every port has the same MAC",
                fabric.hosts[*first]
            ),
            "the facts of this host",
        );
        let mut copy = Seen::host(fabric, *node, finding);
        copy.hosts.insert(*first);
        seen.push(copy);
    }
    for finding in &fabric.found {
        let mut finding = finding.clone();
        match finding.code {
            // A range that works; told once.
            "port-address-198-18" => {
                if !notes.iter().any(|note| note.code == finding.code) {
                    notes.push(finding);
                }
                continue;
            }
            // Nobody knows, and the plan goes on: no fault.
            "hairpin-queue-unsaid" => {
                notes.push(finding);
                continue;
            }
            // Told for the ring as a whole (`queues`), or for each node (`links`).
            "hairpin-queue-odd"
            | "hairpin-num-queues"
            | "hairpin-queue-unknown"
            | "hairpin-queue-pending" => {
                finding.found = finding.found.replace("; 1024 counts for the cap", "");
            }
            // Of fewer hosts than a ring has, most cables lead to somebody who is not here.
            "subnet-ends" if !fabric.whole && finding.found.starts_with("1 end") => continue,
            _ => {}
        }
        if finding.found.contains("not observed: ") {
            finding.severity = Severity::NotObserved;
        }
        let ports = match finding.code {
            "hca-names-differ" => exchanged_names(fabric),
            _ => ports_of(fabric, &finding),
        };
        if finding.code == "port-tc-offload"
            && finding.severity == Severity::Problem
            && ports
                .iter()
                .any(|port| fabric.facts(*port).details.tc_offload_fixed == Fact::Known(true))
        {
            finding.found += " and fixed";
        }
        let mut hosts: BTreeSet<usize> =
            ports.iter().map(|port| fabric.ports[*port].node).collect();
        hosts.extend(finding.host.as_deref().and_then(|host| fabric.node(host)));
        seen.push(Seen {
            finding,
            ports,
            hosts,
            addresses: BTreeSet::new(),
        });
    }
    if !fabric.whole {
        let hosts = fabric.hosts.len();
        let mut finding = Finding::warning(
            "ring-not-judged",
            format!(
                "the facts of {} are here",
                crate::plan::ends::count(hosts, "host")
            ),
            "those of all four of a ring, to judge its cables",
        );
        // A node that looks at itself means no ring; a ring of which hosts are left out is not fine.
        if hosts < 2 {
            notes.push(finding);
        } else {
            finding.severity = Severity::NotObserved;
            seen.push(Seen::ring(finding));
        }
    }
}

/// The ports that a finding of the plan is about: by its host and device, by its subnet, or those that it
/// names.
fn ports_of(fabric: &Fabric, finding: &Finding) -> BTreeSet<usize> {
    let node = finding.host.as_deref().and_then(|host| fabric.node(host));
    let object = finding.object.as_deref().unwrap_or_default();
    if let Some(node) = node {
        let names = object.split('+');
        return names.filter_map(|name| fabric.port(node, name)).collect();
    }
    let network = object.parse::<crate::names::Cidr>().ok();
    let named = |port: &usize| names(&finding.found, &fabric.ports[*port].label());
    let inside = |port: &usize| {
        let address = fabric.ports[*port].address;
        address
            .zip(network)
            .is_some_and(|(own, net)| net.contains(own.address))
    };
    (0..fabric.ports.len())
        .filter(|port| named(port) || inside(port))
        .collect()
}

/// Ports whose device has the name that another port of the host has on most hosts, and on which a marker runs
/// by that name: these, and those others.
fn exchanged_names(fabric: &Fabric) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    for port in 0..fabric.ports.len() {
        let own = &fabric.ports[port];
        let alike = fabric
            .ports
            .iter()
            .enumerate()
            .filter(|(_, other)| (other.domain, other.port) == (own.domain, own.port));
        let Some(usual) = usual(alike.map(|(other, _)| fabric.device(other))) else {
            continue;
        };
        let mut others = fabric.of_host(own.node).into_iter();
        let Some(other) = others.find(|other| *other != port && fabric.device(*other) == usual)
        else {
            continue;
        };
        let markers = fabric.inventories[own.node].node.markers.known();
        let mut markers = markers.into_iter().flatten();
        let is_its = |device: &crate::names::RdmaName| device.as_str() == usual;
        if markers.any(|marker| marker.device.as_ref().is_some_and(is_its)) {
            all.extend([port, other]);
        }
    }
    all
}

/// Whether a text names a port by this label. A name that goes on is another one.
fn names(text: &str, label: &str) -> bool {
    text.match_indices(label).any(|(at, _)| {
        let after = text[at + label.len()..].bytes().next();
        after.is_none_or(|b| !(b.is_ascii_alphanumeric() || b"_.:-".contains(&b)))
    })
}

/// Trust and ingress disciplines.
pub(super) fn look(fabric: &Fabric, seen: &mut Vec<Seen>) {
    for port in 0..fabric.ports.len() {
        let details = &fabric.facts(port).details;
        if let Fact::Known(Trust::Dscp) = details.trust {
            let finding = Finding::problem(
                "port-trust",
                "the port trusts DSCP",
                "PCP: mlx5 takes hairpin rules in that state alone",
            );
            seen.push(Seen::port(fabric, port, finding));
        }
        let qdiscs = details.qdiscs.known().into_iter().flatten();
        for qdisc in qdiscs.filter(|qdisc| qdisc.kind.as_str() == "ingress") {
            let finding = Finding::problem(
                "ingress-qdisc",
                format!(
                    "an ingress discipline is there ({} {})",
                    qdisc.kind, qdisc.handle
                ),
                "clsact or none: both cannot be there",
            );
            seen.push(Seen::port(fabric, port, finding));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_name_that_goes_on_is_another_one() {
        let found = "2 ends (spark1 rail0b, spark1 rail1.7, spark2 rail0)";
        assert!(names(found, "spark1 rail0b"));
        assert!(names(found, "spark2 rail0"));
        assert!(!names(found, "spark1 rail0"));
        assert!(!names(found, "spark1 rail1"));
        assert!(names("spark1 rail0b and spark1 rail0", "spark1 rail0"));
    }
}
