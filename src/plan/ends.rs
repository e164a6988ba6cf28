//! Checks that hold for the ends of cables wherever they come from: inventories, a topology
//! document, or a plan file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use crate::finding::Finding;
use crate::names::{Cidr, HostName, Mac, NetdevName, PciAddress, RdmaName};

/// A port as one end of a cable.
#[derive(Clone, Copy)]
pub(super) struct End<'a> {
    pub(super) host: &'a HostName,
    pub(super) netdev: &'a NetdevName,
    pub(super) rdma: Option<&'a RdmaName>,
    pub(super) pci: Option<PciAddress>,
    pub(super) address: Option<Cidr>,
    pub(super) mac: Mac,
}

impl Display for End<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.host, self.netdev)
    }
}

/// Items joined by `, `.
pub(crate) fn list(items: impl IntoIterator<Item = impl Display>) -> String {
    items
        .into_iter()
        .map(|item| item.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// `1 port`, `3 ports`.
pub(crate) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// What is said behind the first of several: nothing where there is no other.
pub(crate) fn more(rest: usize) -> String {
    match rest {
        0 => String::new(),
        rest => format!(", and {rest} more of the kind"),
    }
}

/// Everything that one end, or two ends together, have wrong by themselves.
pub(super) fn check(ends: &[End]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for end in ends {
        let mut problem = |code, found: String, wanted: &str| {
            findings.push(
                Finding::problem(code, found, wanted)
                    .on(end.host)
                    .at(end.netdev),
            );
        };
        if let Some((address, why)) = end.address.and_then(|a| Some((a, a.unusable()?))) {
            problem(
                "port-address-unusable",
                format!("address {address} is {why}"),
                "a unicast host address",
            );
        }
        if !end.mac.is_unicast() {
            problem(
                "port-mac",
                format!("MAC {} is no unicast address", end.mac),
                "a unicast MAC",
            );
        }
        // The reader of fabric.json takes such a name for a placeholder that nobody filled in.
        let names = [Some(end.netdev.as_str()), end.rdma.map(RdmaName::as_str)];
        if let Some(name) = names
            .into_iter()
            .flatten()
            .find(|name| name.contains(PLACEHOLDER))
        {
            problem(
                "name-placeholder",
                format!("{name} has {PLACEHOLDER} in it"),
                "a name without",
            );
        }
    }
    let hosts: BTreeSet<&HostName> = ends.iter().map(|e| e.host).collect();
    for host in &hosts {
        if host.as_str().contains(PLACEHOLDER) {
            findings.push(
                Finding::problem(
                    "name-placeholder",
                    format!("its name has {PLACEHOLDER} in it"),
                    "a name without",
                )
                .on(host),
            );
        }
    }
    let all: Vec<&End> = ends.iter().collect();
    repeated(&mut findings, "address-repeated", "address", &all, |e| {
        e.address.map(|a| a.address)
    });
    repeated(&mut findings, "mac-repeated", "MAC", &all, |e| {
        Some(e.mac).filter(|m| m.is_unicast())
    });
    for host in hosts {
        let own: Vec<&End> = ends.iter().filter(|e| e.host == host).collect();
        repeated(
            &mut findings,
            "netdev-repeated",
            "network device",
            &own,
            |e| Some(e.netdev),
        );
        repeated(&mut findings, "rdma-repeated", "RDMA device", &own, |e| {
            e.rdma
        });
        repeated(&mut findings, "pci-repeated", "PCI function", &own, |e| {
            e.pci
        });
    }
    findings
}

/// What the peer project's reader takes for a value that somebody still has to fill in.
pub(super) const PLACEHOLDER: &str = "REPLACE";

fn repeated<'a, 'b, K: Ord + Display>(
    findings: &mut Vec<Finding>,
    code: &'static str,
    what: &str,
    ends: &[&'a End<'b>],
    key: impl Fn(&'a End<'b>) -> Option<K>,
) {
    let mut by: BTreeMap<K, Vec<&End>> = BTreeMap::new();
    for end in ends {
        if let Some(key) = key(end) {
            by.entry(key).or_default().push(end);
        }
    }
    for (key, ends) in by.into_iter().filter(|(_, ends)| ends.len() > 1) {
        let found = format!(
            "{what} {key} is on {} ({})",
            count(ends.len(), "port"),
            list(&ends)
        );
        findings.push(Finding::problem(code, found, "on one"));
    }
}

/// One environment serves all hosts, so their HCAs must have the same names in HCA order.
pub(super) fn check_hca_names(hosts: &[(&HostName, Vec<&RdmaName>)]) -> Option<Finding> {
    let differ = hosts.iter().any(|(_, names)| *names != hosts[0].1);
    differ.then(|| {
        let table: Vec<String> = hosts
            .iter()
            .map(|(host, names)| {
                format!(
                    "{host} {}",
                    names
                        .iter()
                        .map(|n| n.as_str())
                        .collect::<Vec<_>>()
                        .join(",")
                )
            })
            .collect();
        Finding::problem(
            "hca-names-differ",
            format!("the HCAs are named differently ({})", table.join("; ")),
            "the same names in HCA order on all hosts",
        )
        .advise("one env.txt serves all hosts")
    })
}
