//! Which of a port's addresses is on the ring, and whether it can be.

use std::collections::{BTreeSet, HashMap};

use super::Located;
use crate::facts::{Fact, Gids};
use crate::finding::Finding;
use crate::names::{Cidr, Gid};
use crate::plan::ends::list;

/// Chooses every port's address on the ring: the only one, or the only one that another port's
/// address shares a subnet with.
pub(super) fn choose_addresses(ports: &mut [Located], findings: &mut Vec<Finding>) {
    let mut on_network: HashMap<Cidr, BTreeSet<usize>> = HashMap::new();
    for (i, port) in ports.iter().enumerate() {
        for address in port.facts.ipv4.known().into_iter().flatten() {
            on_network.entry(address.network()).or_default().insert(i);
        }
    }
    for port in ports.iter_mut() {
        let distinct: Vec<Cidr> = {
            let mut seen = BTreeSet::new();
            let all = port.facts.ipv4.known().into_iter().flatten().copied();
            all.filter(|address| seen.insert(*address)).collect()
        };
        let finding = match &port.facts.ipv4 {
            Fact::NotObserved(why) => Some(Finding::problem(
                "port-address",
                format!("IPv4 addresses not observed: {why}"),
                "one",
            )),
            Fact::Known(_) => match distinct.as_slice() {
                [] => {
                    let gid = match &port.facts.gids {
                        Gids::IndexThree { gid: Gid::ZERO, .. } => " and GID index 3 is all zero",
                        Gids::Table(table) if table.iter().all(|e| e.gid.ipv4().is_none()) => {
                            " and no GID maps one"
                        }
                        _ => "",
                    };
                    Some(
                        Finding::problem("port-address", format!("no IPv4 address{gid}"), "one")
                            .advise("give the port an address of its cable's subnet first: GIDs follow from it"),
                    )
                }
                [only] => {
                    port.address = Some(*only);
                    None
                }
                several => {
                    let with_peer: Vec<&Cidr> = several
                        .iter()
                        .filter(|a| on_network.get(&a.network()).is_some_and(|p| p.len() > 1))
                        .collect();
                    match with_peer.as_slice() {
                        [one] => {
                            port.address = Some(**one);
                            None
                        }
                        [] => Some(Finding::problem(
                            "port-address",
                            format!(
                                "none of its addresses ({}) has its peer on the ring",
                                list(several)
                            ),
                            "exactly one",
                        )),
                        more => {
                            port.ambiguous = more.iter().map(|address| address.network()).collect();
                            Some(Finding::problem(
                                "port-in-two-subnets",
                                format!(
                                    "more than one of its addresses ({}) has a peer on the ring",
                                    list(more)
                                ),
                                "exactly one",
                            ))
                        }
                    }
                }
            },
        };
        findings.extend(finding.map(|f| f.on(port.host).at(&port.facts.netdev)));
        if let Some(address) = port.address {
            if !(8..=31).contains(&address.prefix) {
                let found = format!("address {address} has a prefix of {} bits", address.prefix);
                let wanted = "8 to 31 (/24, /30 or /31 as a rule)";
                findings.push(
                    Finding::problem("port-prefix", found, wanted)
                        .on(port.host)
                        .at(&port.facts.netdev),
                );
            }
            // RFC 2544's range; local proxies answer DNS with its addresses.
            if address.address.octets()[0] == 198 && matches!(address.address.octets()[1], 18 | 19)
            {
                findings.push(
                    Finding::warning(
                        "port-address-198-18",
                        format!("address {address} is in 198.18.0.0/15"),
                        "another range",
                    )
                    .on(port.host)
                    .at(&port.facts.netdev)
                    .advise("local proxies use that range for fake DNS answers"),
                );
            }
        }
    }
}

/// What the addresses beside the chosen ones must not do: be a ring address of any port, or reach
/// into a subnet of the ring, whose packets the kernel would then send elsewhere.
pub(super) fn check_others(ports: &[Located], findings: &mut Vec<Finding>) {
    let chosen: Vec<(&Located, Cidr)> = ports
        .iter()
        .filter_map(|port| Some((port, port.address?)))
        .collect();
    for (port, own) in &chosen {
        let others = port.facts.ipv4.known().into_iter().flatten();
        for other in others.filter(|other| *other != own) {
            let taken = ports.iter().find(|owner| {
                let is_same = |address: &Cidr| address.address == other.address;
                owner.address.as_ref().is_some_and(is_same)
                    || (!std::ptr::eq(*owner, *port)
                        && owner.facts.ipv4.known().into_iter().flatten().any(is_same))
            });
            let crossed = chosen.iter().find(|(_, address)| {
                other.contains(address.address) || address.contains(other.address)
            });
            let (code, found) = match (taken, crossed) {
                (Some(owner), _) => (
                    "address-repeated",
                    format!(
                        "its other address {other} is an address of {}",
                        owner.label()
                    ),
                ),
                (None, Some((_, address))) => (
                    "address-overlaps",
                    format!(
                        "its other address {other} overlaps the ring's subnet {}",
                        address.network()
                    ),
                ),
                (None, None) => continue,
            };
            findings.push(
                Finding::problem(code, found, "addresses off the ring beside the one on it")
                    .on(port.host)
                    .at(&port.facts.netdev),
            );
        }
    }
}
