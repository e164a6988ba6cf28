//! Which port is which: domain and port number of every fabric function.

use std::collections::BTreeMap;

use super::{Located, PORTS_PER_DOMAIN};
use crate::facts::{Fact, Inventory, PortFacts};
use crate::finding::Finding;
use crate::names::HostName;
use crate::plan::ends::{count, list};
use crate::plan::mesh::DOMAINS;

/// Puts every port into its domain and port number. The second value says whether every node has
/// exactly the ports that a ring needs.
pub(super) fn locate<'a>(
    hosts: &'a [HostName],
    inventories: &'a [Inventory],
    findings: &mut Vec<Finding>,
) -> (Vec<Located<'a>>, bool) {
    let mut located = Vec::new();
    let mut complete = true;
    for (node, (host, inventory)) in hosts.iter().zip(inventories).enumerate() {
        let mut domains: BTreeMap<u32, Vec<(u8, &PortFacts)>> = BTreeMap::new();
        for facts in &inventory.ports {
            let Some(place) = facts.place() else {
                complete = false;
                findings.push(
                    Finding::problem(
                        "port-place-unknown",
                        match &facts.pci {
                            Fact::NotObserved(why) => {
                                format!("no PCI address ({why}) and a name that does not tell it")
                            }
                            Fact::Known(_) => {
                                "no PCI address and a name that does not tell it".into()
                            }
                        },
                        "a PCI address, or a name like enP2p1s0f1np1",
                    )
                    .on(host)
                    .at(&facts.netdev),
                );
                continue;
            };
            domains
                .entry(place.pci_domain)
                .or_default()
                .push((place.function, facts));
        }
        if domains.len() != DOMAINS {
            complete = false;
            let names: Vec<String> = domains
                .iter()
                .map(|(d, p)| format!("{d:04x}: {}", netdevs(p)))
                .collect();
            findings.push(
                Finding::problem(
                    "domains-per-node",
                    if names.is_empty() {
                        "no fabric ports".to_owned()
                    } else {
                        format!(
                            "fabric ports in {} ({})",
                            count(names.len(), "PCI domain"),
                            names.join("; ")
                        )
                    },
                    format!("{PORTS_PER_DOMAIN} ports in each of {DOMAINS} PCI domains"),
                )
                .on(host),
            );
        }
        for (domain, (pci_domain, mut ports)) in domains.into_iter().enumerate() {
            ports.sort_by_key(|(function, facts)| {
                (
                    *function,
                    facts.pci.known().copied().flatten(),
                    &facts.netdev,
                )
            });
            if ports.len() != PORTS_PER_DOMAIN {
                complete = false;
                findings.push(
                    Finding::problem(
                        "ports-per-domain",
                        format!(
                            "{} in PCI domain {pci_domain:04x} ({})",
                            count(ports.len(), "port"),
                            netdevs(&ports)
                        ),
                        format!("{PORTS_PER_DOMAIN}"),
                    )
                    .on(host),
                );
            }
            if ports.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                complete = false;
                findings.push(
                    Finding::problem(
                        "port-numbers",
                        format!(
                            "{} are the same PCI function number in PCI domain {pci_domain:04x}",
                            netdevs(&ports)
                        ),
                        "two functions of one card, one per QSFP port",
                    )
                    .on(host),
                );
            }
            located.extend(
                ports
                    .into_iter()
                    .enumerate()
                    .map(|(port, (_, facts))| Located {
                        node,
                        host,
                        facts,
                        domain,
                        port,
                        address: None,
                        ambiguous: Vec::new(),
                    }),
            );
        }
    }
    (located, complete)
}

fn netdevs(ports: &[(u8, &PortFacts)]) -> String {
    list(ports.iter().map(|(_, facts)| &facts.netdev))
}
