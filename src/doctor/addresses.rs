//! Planes without addresses, subnets that ports of one host share, and who answers for an address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::doctor::chain::Seen;
use crate::doctor::fabric::Fabric;
use crate::facts::{Fact, Gids};
use crate::finding::Finding;
use crate::names::{Cidr, Gid};
use crate::plan::ends::{count, list};
use crate::plan::mesh::{DOMAINS, ETHERNET_MTU};

pub(super) fn look(fabric: &Fabric, seen: &mut Vec<Seen>) {
    planes(fabric, seen);
    shared(fabric, seen);
    prefixes(fabric, seen);
    off_cable(fabric, seen);
    neighbours(fabric, seen);
    answers(fabric, seen);
}

/// What the wire answered: an address that two hosts answer for, and machines that are none of these.
fn answers(fabric: &Fabric, seen: &mut Vec<Seen>) {
    for port in 0..fabric.ports.len() {
        let answers = fabric.answers(port);
        let mut by: BTreeMap<IpAddr, BTreeSet<Option<usize>>> = BTreeMap::new();
        let mut strangers = BTreeSet::new();
        for answer in answers {
            let own = |port: &&crate::plan::Located| port.facts.mac == answer.mac;
            let with: Vec<usize> = fabric
                .ports
                .iter()
                .filter(own)
                .map(|port| port.node)
                .collect();
            match with[..] {
                [] => {
                    by.entry(answer.address).or_default().insert(None);
                    strangers.insert(answer.mac.to_string());
                }
                [node] => {
                    by.entry(answer.address).or_default().insert(Some(node));
                }
                // Told as that: which of them it was, nobody knows.
                _ => {}
            }
        }
        // Both functions of a socket hear a question, and both may answer: of one host, that is one answer.
        for (address, hosts) in by.iter().filter(|(_, hosts)| hosts.len() > 1) {
            let names = hosts
                .iter()
                .map(|host| host.map_or("another machine", |node| fabric.hosts[node].as_str()));
            let finding = Finding::problem(
                "address-answered-twice",
                format!("{address} is answered for by {}", list(names)),
                "one host",
            );
            seen.push(Seen::port(fabric, port, finding));
        }
        if !strangers.is_empty() {
            let found = format!(
                "a machine that is none of these hosts answers on this cable (MAC {})",
                list(strangers)
            );
            seen.push(Seen::port(
                fabric,
                port,
                Finding::problem("cabling-stranger", found, "a port of the ring"),
            ));
        }
    }
}

fn is_bare(fabric: &Fabric, port: usize) -> bool {
    fabric.facts(port).ipv4.known().is_some_and(Vec::is_empty)
}

/// A domain whose ports have no address on whole hosts: the plane was never set up, and nothing that
/// follows is a fault of its own.
fn planes(fabric: &Fabric, seen: &mut Vec<Seen>) {
    for domain in 0..DOMAINS {
        let of = |node: usize| -> BTreeSet<usize> {
            let own = fabric.of_host(node).into_iter();
            own.filter(|port| fabric.ports[*port].domain == domain)
                .collect()
        };
        let bare: Vec<usize> = (0..fabric.hosts.len())
            .filter(|node| {
                let own = of(*node);
                own.len() > 1 && own.iter().all(|port| is_bare(fabric, *port))
            })
            .collect();
        if bare.is_empty() {
            continue;
        }
        let ports: BTreeSet<usize> = bare.iter().flat_map(|node| of(*node)).collect();
        let up = ports
            .iter()
            .filter(|port| fabric.facts(**port).state == "up")
            .count();
        let mtus: BTreeSet<u32> = ports.iter().map(|port| fabric.facts(*port).mtu).collect();
        let low = if mtus.iter().all(|mtu| *mtu == ETHERNET_MTU) {
            String::new()
        } else {
            format!(", MTU {}", list(&mtus))
        };
        let plane = match domain {
            0 => "the first plane",
            _ => "the second plane",
        };
        let hosts: Vec<&str> = bare
            .iter()
            .map(|node| fabric.hosts[*node].as_str())
            .collect();
        let finding = Finding::problem(
            "plane-unaddressed",
            format!(
                "{plane} (domain {domain}) has no IPv4 address on {}: {}, {up} with a link{low}",
                if bare.len() == fabric.hosts.len() { "any host".to_owned() } else { list(&hosts) },
                count(ports.len(), "port"),
            ),
            "one address per cable and domain, MTU 9000",
        )
        .advise(if domain == 0 {
            first_plane(fabric, &ports)
        } else {
            format!(
                "{} prints a file for each node's network manager to review and install; then look again",
                super::advice::netplan(fabric, &hosts)
            )
        });
        let mut plane = Seen::ports(fabric, ports.clone(), finding);
        if let [only] = hosts.as_slice() {
            plane.finding.host = Some((*only).to_owned());
        }
        seen.push(plane);
    }
    // What follows, host by host: no GID, and no traffic.
    for node in 0..fabric.hosts.len() {
        let bare: BTreeSet<usize> = fabric
            .of_host(node)
            .into_iter()
            .filter(|port| is_bare(fabric, *port))
            .collect();
        let zero: BTreeSet<usize> = bare
            .iter()
            .copied()
            .filter(|port| match &fabric.facts(*port).gids {
                Gids::Table(table) => table.iter().all(|entry| entry.gid.ipv4().is_none()),
                Gids::IndexThree { gid, .. } => *gid == Gid::ZERO,
                Gids::NotObserved(_) => false,
            })
            .collect();
        if zero.is_empty() {
            continue;
        }
        let devices = |ports: &BTreeSet<usize>| list(ports.iter().map(|port| fabric.device(*port)));
        let finding = Finding::problem(
            "gid-zero",
            format!(
                "GID index {} of {} is all zero",
                fabric.gid_index,
                devices(&zero)
            ),
            "the IPv4-mapped RoCE v2 GID of an address",
        );
        seen.push(Seen::some(fabric, node, zero.clone(), finding));
        let rest: BTreeSet<usize> = fabric.of_host(node).difference(&zero).copied().collect();
        if rest.is_empty() {
            continue;
        }
        let sent = |ports: &BTreeSet<usize>| super::traffic::sent(fabric, ports);
        let counted = match (sent(&zero), sent(&rest)) {
            (Some(0), Some(others)) if others > 0 => {
                format!(" (their port_xmit_data is 0, {others} bytes left by the others)")
            }
            _ => String::new(),
        };
        let finding = Finding::problem(
            "devices-carry-nothing",
            format!(
                "{} {} nothing: a program that lists all devices plans channels on them that move no byte, and falls back to {}{counted}",
                devices(&zero),
                if zero.len() == 1 { "carries" } else { "carry" },
                devices(&rest)
            ),
            "traffic on every device",
        );
        seen.push(Seen::some(fabric, node, zero, finding));
    }
}

/// What gives these ports of the first plane, which have no address, theirs.
fn first_plane(fabric: &Fabric, ports: &BTreeSet<usize>) -> String {
    let how = "netplan, or nmcli connection add type ethernet ifname DEVICE ipv4.method manual ipv4.addresses ADDRESS 802-3-ethernet.mtu 9000";
    let own = |port: &usize| {
        let (address, far) = super::advice::own_address(fabric, *port)?;
        let place = fabric.ports[*port].label();
        let beside = far.map_or(String::new(), |far| {
            format!(" (beside {})", list(fabric.ports[far].address))
        });
        Some(format!("{place} {address}{beside}"))
    };
    let all: Option<Vec<String>> = ports.iter().map(own).collect();
    match all {
        Some(all) => format!(
            "give these ports their addresses and MTU 9000 ({how}): {}; then look again",
            list(all)
        ),
        None => format!(
            "give each cable a subnet of its own and both ends an address in it ({how}); hairpin-mesh doctor --wire with all hosts shows the cables"
        ),
    }
}

/// Ports of one host in one subnet: ARP answers for one on another, and the kernel sends all by one.
fn shared(fabric: &Fabric, seen: &mut Vec<Seen>) {
    let mut by: BTreeMap<Cidr, BTreeSet<usize>> = BTreeMap::new();
    for port in 0..fabric.ports.len() {
        for address in fabric.facts(port).ipv4.known().into_iter().flatten() {
            by.entry(address.network()).or_default().insert(port);
        }
    }
    for (network, ports) in by {
        let mut hosts: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for port in &ports {
            hosts
                .entry(fabric.ports[*port].node)
                .or_default()
                .insert(*port);
        }
        let twice: BTreeSet<usize> = hosts
            .values()
            .filter(|own| own.len() > 1)
            .flatten()
            .copied()
            .collect();
        // Two ends, both on one host: a cable from a node to itself, or two addresses for one cable. `plan`
        // has a name for it.
        if twice.is_empty() || ports.len() == 2 {
            continue;
        }
        let labels = list(twice.iter().map(|port| fabric.ports[*port].label()));
        let found = format!("{network} is the subnet of more than one port of a host ({labels})");
        let finding = Finding::problem(
            "plane-subnet-shared",
            found,
            "a subnet of its own for each cable and domain",
        );
        seen.push(Seen::ports(fabric, ports.clone(), finding.at(network)));
        for (node, own) in hosts.iter().filter(|(_, own)| own.len() > 1) {
            let settings = |port: &usize| {
                let sysctls = &fabric.facts(*port).details.sysctls;
                let of = &fabric.inventories[*node].node.sysctls;
                let most =
                    |a: &Fact<u32>, b: &Fact<u32>| a.known().copied().max(b.known().copied());
                Some((
                    most(&of.arp_ignore, &sysctls.arp_ignore)?,
                    most(&of.rp_filter, &sysctls.rp_filter)?,
                ))
            };
            let all: BTreeSet<(u32, u32)> = own.iter().filter_map(settings).collect();
            let mut what = Vec::new();
            if all.iter().any(|(ignore, _)| *ignore == 0) {
                what.push("any of these ports answers ARP for the others' addresses");
            }
            // Strict alone: loose (2) takes what comes in by any of them.
            if all.iter().any(|(_, filter)| *filter == 1) {
                what.push("what comes in by another of them than replies leave by is dropped");
            }
            if !what.is_empty() {
                let finding = Finding::problem(
                    "arp-flux",
                    format!(
                        "{}: {}",
                        list(all.iter().map(|(ignore, filter)| format!(
                            "arp_ignore is {ignore} and rp_filter {filter}"
                        ))),
                        what.join(", and ")
                    ),
                    "subnets of their own",
                );
                seen.push(Seen::some(fabric, *node, own.clone(), finding));
            }
        }
    }
}

/// Two ends of a cable whose prefixes differ: each takes the other for a stranger or for too near.
fn prefixes(fabric: &Fabric, seen: &mut Vec<Seen>) {
    for b in 0..fabric.ports.len() {
        for a in 0..b {
            let (Some(one), Some(other)) = (fabric.ports[a].address, fabric.ports[b].address)
            else {
                continue;
            };
            if one.prefix == other.prefix || fabric.ports[a].node == fabric.ports[b].node {
                continue;
            }
            if fabric.ports[a].domain != fabric.ports[b].domain
                || fabric.peers.contains_key(&a)
                || fabric.peers.contains_key(&b)
            {
                continue;
            }
            if one.contains(other.address) || other.contains(one.address) {
                let found = format!(
                    "{} and {} of {} have different prefixes",
                    one,
                    other,
                    fabric.ports[b].label()
                );
                let finding = Finding::problem(
                    "address-prefix-differs",
                    found,
                    "one prefix length at both ends of a cable",
                )
                .on(fabric.ports[a].host)
                .at(&fabric.facts(a).netdev);
                seen.push(Seen::ports(fabric, [a, b].into(), finding));
            }
        }
    }
}

/// A port whose address is in no cable's subnet, where the cable's other function says which port is at the
/// other end.
fn off_cable(fabric: &Fabric, seen: &mut Vec<Seen>) {
    let alone = |port: &usize| !fabric.peers.contains_key(port);
    // Each pair once; which of the two is wrong, the other cables of the plane may tell.
    let cables: BTreeSet<(usize, usize)> = (0..fabric.ports.len())
        .filter(alone)
        .filter_map(|port| Some((port, fabric.far(port).filter(alone)?)))
        .map(|(port, far)| (port.min(far), port.max(far)))
        .collect();
    for (port, far) in cables {
        let (Some(address), Some(other)) = (fabric.ports[port].address, fabric.ports[far].address)
        else {
            continue;
        };
        // Told as prefixes that differ.
        if address.contains(other.address) || other.contains(address.address) {
            continue;
        }
        // Those that share its subnet, and are the ends of one cable.
        let others = |own: Cidr, port: usize| -> Vec<usize> {
            let in_it = |one: &usize| {
                let there = fabric.ports[*one].address;
                *one != port && there.is_some_and(|there| there.network() == own.network())
            };
            (0..fabric.ports.len()).filter(in_it).collect()
        };
        let (here, there) = (others(address, port), others(other, far));
        let (port, far, address, other, strange) = match (&here[..], &there[..]) {
            ([], []) => (port, far, address, other, None),
            ([a, b], []) if fabric.far(*a) == Some(*b) => (port, far, address, other, Some(*a)),
            ([], [a, b]) if fabric.far(*a) == Some(*b) => (far, port, other, address, Some(*a)),
            // Told by whose subnet it is in.
            _ => continue,
        };
        let why = match fabric.other_socket(fabric.socket(port)) {
            Some(_) => "the other function of this cable leads there",
            None => "this cable can lead nowhere else",
        };
        let end = fabric.ports[far].label();
        let found = match strange {
            None => format!("{address} and {other} of {end} are in different subnets, and {why}"),
            Some(a) => format!(
                "{address} is in the subnet of another cable ({} has one end of it), and {why}: to {end}, which has {other}",
                fabric.ports[a].label()
            ),
        };
        let finding = Finding::problem(
            "address-off-cable",
            found,
            "one subnet at both ends of a cable",
        )
        .on(fabric.ports[port].host)
        .at(&fabric.facts(port).netdev);
        seen.push(Seen::ports(fabric, [port, far].into(), finding));
    }
}

/// Who answers for the peer's address, as the kernel has learnt it.
fn neighbours(fabric: &Fabric, seen: &mut Vec<Seen>) {
    for (port, far) in &fabric.peers {
        let Some(address) = fabric.ports[*far].address else {
            continue;
        };
        let wanted = fabric.facts(*far).mac;
        let entries = fabric
            .facts(*port)
            .details
            .neighbours
            .known()
            .into_iter()
            .flatten();
        for entry in entries.filter(|entry| entry.address == IpAddr::V4(address.address)) {
            let peer = fabric.ports[*far].label();
            let state = entry.state.as_str();
            let finding = match entry.mac {
                Some(mac) if mac == wanted => continue,
                Some(mac) => {
                    let whose = match fabric.with_mac(mac) {
                        Some(other) => format!(", which is {}'s", fabric.ports[other].label()),
                        None => ", which is no fabric port's".into(),
                    };
                    Finding::problem(
                        "neighbour-mac",
                        format!(
                            "{} answers with MAC {mac}{whose} ({state})",
                            address.address
                        ),
                        format!("{wanted} of {peer}"),
                    )
                }
                None if state == "failed" => Finding::problem(
                    "neighbour-silent",
                    format!("{} does not answer", address.address),
                    format!("an answer of {peer}"),
                ),
                None => continue,
            };
            seen.push(Seen::port(fabric, *port, finding));
        }
    }
}
