//! Subnets to cables, cables to a ring.

use std::collections::{BTreeMap, HashMap};

use super::{Located, PORTS_PER_DOMAIN};
use crate::finding::Finding;
use crate::names::{Cidr, HostName};
use crate::plan::ends::{count, list};
use crate::plan::mesh::DOMAINS;

/// Peers of ports, as indices: joined by their subnets. Reports every subnet that is not a cable.
pub(super) fn join(ports: &[Located], findings: &mut Vec<Finding>) -> HashMap<usize, usize> {
    let mut subnets: BTreeMap<Cidr, Vec<usize>> = BTreeMap::new();
    for (i, port) in ports.iter().enumerate() {
        let networks = port.address.map(Cidr::network).into_iter();
        for network in networks.chain(port.ambiguous.iter().copied()) {
            subnets.entry(network).or_default().push(i);
        }
    }
    let mut peers = HashMap::new();
    for (subnet, ends) in &subnets {
        let names = || list(ends.iter().map(|i| ports[*i].label()));
        let [a, b] = ends.as_slice() else {
            findings.push(
                Finding::problem(
                    "subnet-ends",
                    format!("{} ({})", count(ends.len(), "end"), names()),
                    "two",
                )
                .at(subnet),
            );
            continue;
        };
        let (one, other) = (&ports[*a], &ports[*b]);
        if one.node == other.node {
            findings.push(
                Finding::problem(
                    "self-cable",
                    format!("both ends are on one host ({})", names()),
                    "two hosts",
                )
                .at(subnet),
            );
        } else if one.domain != other.domain {
            findings.push(
                Finding::problem(
                    "cross-domain-cable",
                    format!(
                        "joins domain {} of {} to domain {} of {}",
                        one.domain,
                        one.label(),
                        other.domain,
                        other.label()
                    ),
                    "the same domain at both ends",
                )
                .at(subnet),
            );
        } else {
            peers.insert(*a, *b);
            peers.insert(*b, *a);
        }
    }
    // Sorted by address, then prefix: a network that contains another comes right before it.
    let networks: Vec<&Cidr> = subnets.keys().collect();
    for (i, wide) in networks.iter().enumerate() {
        for narrow in networks[i + 1..]
            .iter()
            .take_while(|n| wide.contains(n.address))
        {
            findings.push(
                Finding::problem(
                    "subnets-overlap",
                    format!("contains {narrow}"),
                    "subnets that do not overlap",
                )
                .at(wide)
                .advise("both ends of a cable need the same prefix length"),
            );
        }
    }
    peers
}

/// The ring order as indices into `hosts`, the head first; none (with what was found) when the
/// cables make no ring.
pub(super) fn walk(
    hosts: &[HostName],
    ports: &[Located],
    peers: &HashMap<usize, usize>,
    findings: &mut Vec<Finding>,
) -> Option<Vec<usize>> {
    let find = |node: usize, domain: usize, port: usize| {
        ports
            .iter()
            .position(|p| p.node == node && p.domain == domain && p.port == port)
    };
    let peer_node = |node, domain, port| Some(ports[*peers.get(&find(node, domain, port)?)?].node);
    let before = findings.len();

    for (node, host) in hosts.iter().enumerate() {
        for domain in 0..DOMAINS {
            let first = peer_node(node, domain, 0);
            if let Some(twice) = first.filter(|_| first == peer_node(node, domain, 1)) {
                findings.push(
                    Finding::problem(
                        "neighbour-twice",
                        format!("reaches {} over two ports of domain {domain}", hosts[twice]),
                        "one port of a domain per neighbour",
                    )
                    .on(host),
                );
            }
        }
        for port in 0..PORTS_PER_DOMAIN {
            let reached: Vec<Option<usize>> = (0..DOMAINS)
                .map(|domain| peer_node(node, domain, port))
                .collect();
            let [Some(first), Some(second)] = reached[..] else {
                continue;
            };
            if first != second {
                let names = list(
                    (0..DOMAINS)
                        .filter_map(|d| find(node, d, port))
                        .map(|i| &ports[i].facts.netdev),
                );
                findings.push(
                    Finding::problem(
                        "domains-differ",
                        format!(
                            "port {port} reaches {} on domain 0 and {} on domain 1",
                            hosts[first], hosts[second]
                        ),
                        "the same neighbour on both domains of a cable",
                    )
                    .on(host)
                    .at(names.replace(", ", "+")),
                );
            }
        }
    }

    let mut order = vec![0];
    let mut leave = find(0, 0, 0)?;
    loop {
        let arrive = *peers.get(&leave)?;
        let node = ports[arrive].node;
        if node == 0 {
            break;
        }
        if order.contains(&node) {
            // Cannot happen while every cable has two ends; ends the walk if it ever does.
            findings.push(Finding::problem(
                "ring-open",
                format!(
                    "the walk from {} comes back to {} and never to its head",
                    hosts[0], hosts[node]
                ),
                "a ring through all hosts",
            ));
            return None;
        }
        order.push(node);
        leave = find(node, 0, 1 - ports[arrive].port)?;
    }
    if order.len() != hosts.len() {
        findings.push(Finding::problem(
            "ring-size",
            format!(
                "the walk from {} closes after {} ({})",
                hosts[0],
                count(order.len(), "host"),
                list(order.iter().map(|n| &hosts[*n]))
            ),
            format!("a ring through all {}", hosts.len()),
        ));
    }
    (findings.len() == before).then_some(order)
}
