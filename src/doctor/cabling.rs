//! Which socket is cabled to which, and the fewest moves of plugs that make a ring.
//!
//! A cable carries both domains. So where the functions of a socket disagree about its other end, an
//! address is wrong and no cable; who answers on the wire (the MACs that the kernel has learnt) is
//! believed before any subnet.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::doctor::chain::Seen;
use crate::doctor::fabric::{Fabric, Socket};
use crate::finding::Finding;
use crate::plan::PORTS_PER_DOMAIN;
use crate::plan::ends::{count, list, more};
use crate::plan::mesh::DOMAINS;

/// One end of a cable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct End {
    /// Its host.
    pub host: String,
    /// The socket: 0 for the lower functions, 1 for the higher.
    pub socket: usize,
    /// The network devices of its functions, joined by `+`.
    pub ports: String,
}

/// A cable, as far as the facts show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cable {
    /// One end.
    pub from: End,
    /// The other end; `null` where nothing shows it.
    pub to: Option<End>,
    /// What shows it: `wire` (a MAC that answered there), `subnets`, `elimination`; `null` where nothing does.
    pub shown_by: Option<&'static str>,
}

/// The cables of the fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cabling {
    /// Every cable, and every socket whose cable nothing shows.
    pub cables: Vec<Cable>,
    /// Whether they make a ring through all hosts; `null` when not all are known.
    pub is_ring: Option<bool>,
    /// The fewest moves of plugs that make one; empty when they do, or not all are known.
    pub moves: Vec<String>,
}

/// What a socket is cabled to.
#[derive(Clone, Copy)]
struct Link {
    far: Socket,
    shown_by: &'static str,
}

pub(super) fn look(fabric: &Fabric, seen: &mut Vec<Seen>) -> Cabling {
    let sockets = sockets(fabric);
    let wires = wires(fabric, &sockets);
    differs(fabric, &wires, seen);
    // The domain whose subnets are believed where the domains disagree.
    let believed = believed(fabric, &wires);
    let crossed = crossed(fabric, &sockets, believed);
    // One wire is enough: where it leads, no other cable is, whatever the subnets of the rest say.
    let denied_by_wire = |a: Socket, b: Socket| {
        let ours = |end: &Socket| *end == a || *end == b;
        wires.iter().any(|(from, to)| ours(from) != ours(to))
    };
    let mut links: BTreeMap<Socket, Link> = BTreeMap::new();
    for socket in &sockets {
        let by_subnets = fabric
            .other_socket(*socket)
            .or_else(|| by_domain(fabric, *socket, believed?.0));
        let link = match (wires.get(socket), by_subnets) {
            (Some(far), _) => Link {
                far: *far,
                shown_by: "wire",
            },
            (None, Some(far)) if !denied_by_wire(*socket, far) => Link {
                far,
                shown_by: "subnets",
            },
            _ => continue,
        };
        links.insert(*socket, link);
    }
    // Only what both ends say, or one says and neither the other nor a third denies.
    let denied: Vec<Socket> = links
        .iter()
        .filter(|(socket, link)| match links.get(&link.far) {
            Some(back) => back.far != **socket,
            None => links.values().filter(|other| other.far == link.far).count() > 1,
        })
        .map(|(socket, _)| *socket)
        .collect();
    for socket in denied {
        links.remove(&socket);
    }
    let mut pairs: BTreeMap<Socket, (Socket, &'static str)> = BTreeMap::new();
    for (socket, link) in &links {
        let (a, b) = if *socket <= link.far {
            (*socket, link.far)
        } else {
            (link.far, *socket)
        };
        pairs.insert(a, (b, link.shown_by));
    }
    let hosts = fabric.hosts.len();
    let end_of = |socket: &Socket| {
        pairs.contains_key(socket) || pairs.values().any(|(far, _)| far == socket)
    };
    let loose: Vec<Socket> = sockets
        .iter()
        .copied()
        .filter(|socket| !end_of(socket))
        .collect();
    let has_link = |socket: &Socket| {
        fabric
            .of_socket(*socket)
            .iter()
            .any(|port| fabric.facts(*port).state == "up")
    };
    // Facts of one host twice say nothing of the cables of the other, and a socket that is not there may have
    // its cable all the same.
    let whole =
        fabric.whole && fabric.copies.is_empty() && sockets.len() == hosts * PORTS_PER_DOMAIN;
    // The last cable can only be where two sockets with a link are left.
    if let ([a, b], true) = (&loose[..], whole && loose.iter().all(has_link)) {
        pairs.insert(*a, (*b, "elimination"));
    }
    let end = |socket: Socket| End {
        host: fabric.hosts[socket.0].to_string(),
        socket: socket.1,
        ports: fabric.names(&fabric.of_socket(socket)),
    };
    let mut cables = Vec::new();
    for socket in &sockets {
        match pairs.get(socket) {
            Some((far, shown_by)) => cables.push(Cable {
                from: end(*socket),
                to: Some(end(*far)),
                shown_by: Some(shown_by),
            }),
            None if pairs.values().any(|(far, _)| far == socket) => {}
            None => cables.push(Cable {
                from: end(*socket),
                to: None,
                shown_by: None,
            }),
        }
    }
    let known: Vec<(Socket, Socket)> = pairs.iter().map(|(a, (b, _))| (*a, *b)).collect();
    let is_ring = (whole && known.len() == hosts).then(|| makes_ring(&known, hosts));
    let mut moves = Vec::new();
    if is_ring == Some(false) {
        let by_addresses = by_addresses(fabric, &sockets);
        moves = sentences(fabric, to_ring(&known, &by_addresses, hosts));
        let shown = list(known.iter().map(|(a, b)| {
            format!(
                "{} socket {} to {} socket {}",
                fabric.hosts[a.0], a.1, fabric.hosts[b.0], b.1
            )
        }));
        let finding = Finding::problem(
            "cabling-no-ring",
            format!("the cables make no ring through all hosts ({shown})"),
            format!("a ring through all {hosts}"),
        )
        .advise(format!(
            "{}: {}",
            count(moves.len(), "move"),
            moves.join("; ")
        ));
        seen.push(Seen::ring(finding));
    }
    moved(fabric, &sockets, &wires, &known, seen);
    if let Some(found) = crossed {
        let right: Vec<String> = known
            .iter()
            .flat_map(|(a, b)| wrong_pairs(fabric, *a, *b))
            .collect();
        let finding = Finding::problem(
            "cabling-crossed",
            found,
            "the same other end on both functions: one cable carries both",
        );
        let finding = if let Some(node) = exchanged(fabric, &sockets) {
            finding
                .on(&fabric.hosts[node])
                .advise(exchange(fabric, node, believed))
        } else if right.is_empty() {
            finding.advise("compare with the cables which plane's addresses are right; hairpin-mesh netplan HOST prints a second plane that follows the first")
        } else {
            finding.advise(format!(
                "give these one subnet each, then look again: {}",
                right.join("; ")
            ))
        };
        let is_believed =
            |port: &usize| believed.is_some_and(|(domain, _)| domain == fabric.ports[*port].domain);
        let ports = (0..fabric.ports.len())
            .filter(|port| fabric.other_socket(fabric.socket(*port)).is_none())
            .filter(|port| !is_believed(port));
        seen.push(Seen::ports(fabric, ports.collect(), finding));
    }
    Cabling {
        cables,
        is_ring,
        moves,
    }
}

/// Where the wire leads to another socket than the addresses say, as one finding.
pub(super) fn elsewhere(fabric: &Fabric) -> Option<Finding> {
    let mut seen = Vec::new();
    differs(fabric, &wires(fabric, &sockets(fabric)), &mut seen);
    let finding = seen.first()?.finding.clone();
    Some(Finding {
        found: finding.found + &more(seen.len() - 1),
        ..finding
    })
}

fn sockets(fabric: &Fabric) -> BTreeSet<Socket> {
    (0..fabric.ports.len())
        .map(|port| fabric.socket(port))
        .collect()
}

/// The other end of each socket whose cable the wire shows.
fn wires(fabric: &Fabric, sockets: &BTreeSet<Socket>) -> BTreeMap<Socket, Socket> {
    sockets
        .iter()
        .filter_map(|socket| Some((*socket, on_the_wire(fabric, *socket)?)))
        .collect()
}

/// The cables that the addresses are made for.
fn by_addresses(fabric: &Fabric, sockets: &BTreeSet<Socket>) -> Vec<(Socket, Socket)> {
    let cable = |socket: &Socket| {
        let far = fabric.far_socket(*socket)?;
        Some((far.min(*socket), far.max(*socket)))
    };
    let all: BTreeSet<(Socket, Socket)> = sockets.iter().filter_map(cable).collect();
    all.into_iter().collect()
}

/// Plugs that are in other sockets than the addresses are made for: what has to move so that they agree.
fn moved(
    fabric: &Fabric,
    sockets: &BTreeSet<Socket>,
    wires: &BTreeMap<Socket, Socket>,
    cables: &[(Socket, Socket)],
    seen: &mut Vec<Seen>,
) {
    let wanted = by_addresses(fabric, sockets);
    let differ = wires.iter().any(|(socket, wire)| {
        let by_subnets = fabric.far_socket(*socket);
        by_subnets.is_some_and(|far| far != *wire)
    });
    let hosts = fabric.hosts.len();
    if !differ || !fabric.whole || wanted.len() != hosts || cables.len() != hosts {
        return;
    }
    let moves = moves_to(cables, &wanted, &orders(hosts));
    let sockets: BTreeSet<Socket> = moves
        .iter()
        .flat_map(|(from, to, _)| [*from, *to])
        .collect();
    let ports = sockets
        .iter()
        .flat_map(|socket| fabric.of_socket(*socket))
        .collect();
    let names = sockets
        .iter()
        .map(|socket| format!("{} socket {}", fabric.hosts[socket.0], socket.1));
    let finding = Finding::problem(
        "cabling-moved",
        format!(
            "the wires lead elsewhere than the addresses: plugs are in other sockets ({})",
            list(names)
        ),
        "cables where the addresses are made for them",
    )
    .advise(format!(
        "{}: {}; or give the ports the addresses of the cables that they have",
        count(moves.len(), "move"),
        sentences(fabric, moves).join("; ")
    ));
    seen.push(Seen::ports(fabric, ports, finding));
}

/// The socket whose port's MAC the kernel has learnt on this one, when it is one alone.
fn on_the_wire(fabric: &Fabric, socket: Socket) -> Option<Socket> {
    // What was confirmed lately is believed before what is stale.
    let mut by_rank: BTreeMap<u8, BTreeSet<Socket>> = BTreeMap::new();
    for port in fabric.of_socket(socket) {
        for entry in fabric
            .facts(port)
            .details
            .neighbours
            .known()
            .into_iter()
            .flatten()
        {
            // An entry that somebody made says what he thought.
            let rank = match entry.state.as_str() {
                "reachable" | "delay" | "probe" => 1,
                "stale" => 0,
                _ => continue,
            };
            let Some(far) = entry.mac.and_then(|mac| fabric.with_mac(mac)) else {
                continue;
            };
            let far = fabric.socket(far);
            if far == socket {
                continue;
            }
            by_rank.entry(rank).or_default().insert(far);
        }
    }
    // Asked just now: believed before what was learnt some time.
    let mut answered = BTreeSet::new();
    for port in fabric.of_socket(socket) {
        let answers = fabric.answers(port);
        answered.extend(answers.filter_map(|answer| fabric.with_mac(answer.mac)));
    }
    let answered: BTreeSet<Socket> = answered
        .into_iter()
        .map(|port| fabric.socket(port))
        .filter(|far| *far != socket)
        .collect();
    if let (Some(far), 1) = (answered.first(), answered.len()) {
        return Some(*far);
    }
    let (_, ends) = by_rank.pop_last()?;
    ends.first().copied().filter(|_| ends.len() == 1)
}

/// Where the wire leads to another socket than the addresses say.
fn differs(fabric: &Fabric, wires: &BTreeMap<Socket, Socket>, seen: &mut Vec<Seen>) {
    let mut looped = BTreeSet::new();
    for (socket, wire) in wires {
        if socket.0 == wire.0 {
            // Either end alone may have heard of the other.
            if looped.insert((socket.min(wire), socket.max(wire))) {
                self_cabled(fabric, *socket, *wire, seen);
            }
            continue;
        }
        for port in fabric.of_socket(*socket) {
            let Some(peer) = fabric.peers.get(&port) else {
                continue;
            };
            if fabric.socket(*peer) == *wire {
                continue;
            }
            let there = fabric.names(&fabric.of_socket(*wire));
            let finding = Finding::problem(
                "cabling-wire-differs",
                format!(
                    "{} {there} answers on this cable, the addresses say {}",
                    fabric.hosts[wire.0],
                    fabric.ports[*peer].label()
                ),
                "cable and addresses that agree",
            );
            seen.push(Seen::port(fabric, port, finding));
        }
    }
}

/// A cable that joins both sockets of a host.
fn self_cabled(fabric: &Fabric, one: Socket, other: Socket, seen: &mut Vec<Seen>) {
    let (a, b) = (fabric.of_socket(one), fabric.of_socket(other));
    let finding = Finding::problem(
        "cabling-looped",
        format!(
            "its own {} answers on the cable of {}",
            fabric.names(&b),
            fabric.names(&a)
        ),
        "a cable from each socket to another node",
    );
    seen.push(Seen::some(
        fabric,
        one.0,
        a.union(&b).copied().collect(),
        finding,
    ));
}

/// The socket at the other end, as one domain's subnets say.
fn by_domain(fabric: &Fabric, socket: Socket, domain: usize) -> Option<Socket> {
    let own = fabric.of_socket(socket);
    let port = own
        .into_iter()
        .find(|port| fabric.ports[*port].domain == domain)?;
    fabric.pairs.get(&port).map(|peer| fabric.socket(*peer))
}

/// Why a domain's subnets are believed.
#[derive(Clone, Copy)]
enum Because {
    /// Who answers on the wire is where they say.
    Wire,
    /// They make a ring.
    Ring,
}

/// The one domain whose subnets agree with the wire, or else make a ring, when exactly one does.
fn believed(fabric: &Fabric, wires: &BTreeMap<Socket, Socket>) -> Option<(usize, Because)> {
    let only = |is: &dyn Fn(&usize) -> bool| {
        let mut with = (0..DOMAINS).filter(is);
        with.next().filter(|_| with.next().is_none())
    };
    let agrees = |domain: &usize| {
        wires.iter().all(|(socket, wire)| {
            by_domain(fabric, *socket, *domain).is_none_or(|far| far == *wire)
        })
    };
    let rings = |domain: &usize| {
        let mut pairs = BTreeSet::new();
        for (port, peer) in &fabric.peers {
            if fabric.ports[*port].domain == *domain {
                let (a, b) = (fabric.socket(*port), fabric.socket(*peer));
                pairs.insert((a.min(b), a.max(b)));
            }
        }
        let pairs: Vec<_> = pairs.into_iter().collect();
        makes_ring(&pairs, fabric.hosts.len())
    };
    only(&agrees)
        .map(|domain| (domain, Because::Wire))
        .or(only(&rings).map(|domain| (domain, Because::Ring)))
}

/// What the domains disagree about, in a sentence.
fn crossed(
    fabric: &Fabric,
    sockets: &BTreeSet<Socket>,
    believed: Option<(usize, Because)>,
) -> Option<String> {
    let mut told = Vec::new();
    for socket in sockets {
        let ends: Vec<Option<Socket>> = (0..DOMAINS)
            .map(|domain| by_domain(fabric, *socket, domain))
            .collect();
        let [Some(first), Some(second)] = ends[..] else {
            continue;
        };
        if first != second {
            told.push(format!(
                "socket {} of {} reaches {} socket {} on domain 0 and {} socket {} on domain 1",
                socket.1,
                fabric.hosts[socket.0],
                fabric.hosts[first.0],
                first.1,
                fabric.hosts[second.0],
                second.1
            ));
        }
    }
    let (first, rest) = told.split_first()?;
    let more = more(rest.len());
    let which = match believed {
        Some((domain, why)) => {
            let why = match why {
                Because::Wire => format!("the wire agrees with domain {domain}"),
                Because::Ring => format!("domain {domain} makes a ring"),
            };
            format!("; {why}, so the addresses of the other are wrong")
        }
        None => String::new(),
    };
    Some(format!(
        "the planes disagree about the cables: {first}{more}{which}"
    ))
}

/// The functions of a cable that should share a subnet and do not.
fn wrong_pairs(fabric: &Fabric, a: Socket, b: Socket) -> Vec<String> {
    let beside = |one: usize| {
        let domain = fabric.ports[one].domain;
        let mut there = fabric.of_socket(b).into_iter();
        there.find(|other| fabric.ports[*other].domain == domain)
    };
    fabric
        .of_socket(a)
        .into_iter()
        .filter_map(|one| Some((one, beside(one)?)))
        .filter(|(one, other)| fabric.peers.get(one) != Some(other))
        .map(|(one, other)| {
            format!(
                "{} and {}",
                fabric.ports[one].label(),
                fabric.ports[other].label()
            )
        })
        .collect()
}

/// Whether the cables make one ring through all hosts.
fn makes_ring(cables: &[(Socket, Socket)], hosts: usize) -> bool {
    let mut at: Socket = (0, 0);
    for step in 1..=hosts {
        let far = cables.iter().find_map(|(a, b)| match at {
            at if at == *a => Some(*b),
            at if at == *b => Some(*a),
            _ => None,
        });
        let Some((node, port)) = far else {
            return false;
        };
        at = (node, 1 - port.min(1));
        if node == 0 {
            return step == hosts;
        }
    }
    false
}

/// All orders of `0..n`.
pub(super) fn orders(n: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for next in 0..n {
        all = all
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                (0..=order.len()).map(move |at| {
                    let mut longer = order.clone();
                    longer.insert(at, next);
                    longer
                })
            })
            .collect();
    }
    all.sort();
    all
}

/// Every ring that plugs can make: the hosts in each order, each leaving by either socket.
fn rings(hosts: usize) -> Vec<Vec<(Socket, Socket)>> {
    let mut all = Vec::new();
    for order in orders(hosts)
        .into_iter()
        .filter(|order| order.first() == Some(&0))
    {
        for leaves in 0..1usize << hosts {
            let out = |rank: usize| (leaves >> rank) & 1;
            let cable = |rank: usize| {
                let next = (rank + 1) % hosts;
                ((order[rank], out(rank)), (order[next], 1 - out(next)))
            };
            all.push((0..hosts).map(cable).collect());
        }
    }
    all
}

/// The plug of `from` into `to`, of the cable whose other end is in the third socket.
type Move = (Socket, Socket, Socket);

/// The moves that make the cables those wanted, as few as can be.
fn moves_to(
    cables: &[(Socket, Socket)],
    wanted: &[(Socket, Socket)],
    orders: &[Vec<usize>],
) -> Vec<Move> {
    let of_order = |order: &Vec<usize>| -> Vec<Move> {
        let targets = order.iter().filter_map(|at| wanted.get(*at));
        let of_cable = |((a, b), target): (&(Socket, Socket), &(Socket, Socket))| {
            let into = |to_a: Socket, to_b: Socket| -> Vec<Move> {
                let both = [(*a, to_a, *b), (*b, to_b, *a)].into_iter();
                both.filter(|(from, to, _)| from != to).collect()
            };
            // The way round that leaves more plugs where they are.
            let ways = [into(target.0, target.1), into(target.1, target.0)];
            ways.into_iter().min_by_key(Vec::len).unwrap_or_default()
        };
        cables.iter().zip(targets).flat_map(of_cable).collect()
    };
    let all = orders.iter().map(of_order);
    all.min_by_key(Vec::len).unwrap_or_default()
}

/// The fewest moves of plugs that make a ring of the cables.
fn fewest_moves(cables: &[(Socket, Socket)], hosts: usize) -> Vec<Move> {
    let orders = orders(hosts);
    let all = rings(hosts)
        .into_iter()
        .map(|ring| moves_to(cables, &ring, &orders));
    all.min_by_key(Vec::len).unwrap_or_default()
}

/// The fewest moves that make a ring; of as few, those that make the ring of the addresses.
fn to_ring(
    cables: &[(Socket, Socket)],
    by_addresses: &[(Socket, Socket)],
    hosts: usize,
) -> Vec<Move> {
    let fewest = fewest_moves(cables, hosts);
    let to_addresses = moves_to(cables, by_addresses, &orders(hosts));
    if makes_ring(by_addresses, hosts) && to_addresses.len() == fewest.len() {
        to_addresses
    } else {
        fewest
    }
}

fn sentences(fabric: &Fabric, moves: Vec<Move>) -> Vec<String> {
    let name = |socket: Socket| {
        format!(
            "{} socket {} ({})",
            fabric.hosts[socket.0],
            socket.1,
            fabric.names(&fabric.of_socket(socket))
        )
    };
    moves
        .into_iter()
        .map(|(from, to, other)| {
            format!(
                "the plug in {} of the cable to {} socket {} into {}",
                name(from),
                fabric.hosts[other.0],
                other.1,
                name(to)
            )
        })
        .collect()
}

/// The host and domain whose two addresses have to change places so that the domains agree, when there is
/// one host that can cure it.
fn exchanged(fabric: &Fabric, sockets: &BTreeSet<Socket>) -> Option<usize> {
    let links = |domain: usize| -> BTreeMap<Socket, Socket> {
        let link = |socket: &Socket| Some((*socket, by_domain(fabric, *socket, domain)?));
        sockets.iter().filter_map(link).collect()
    };
    let (first, second) = (links(0), links(1));
    if first.len() != sockets.len() {
        return None;
    }
    let turned = |node: usize| -> BTreeMap<Socket, Socket> {
        let turn = |(own, port): Socket| {
            if own == node {
                (own, 1 - port.min(1))
            } else {
                (own, port)
            }
        };
        second.iter().map(|(a, b)| (turn(*a), turn(*b))).collect()
    };
    let mut cures = (0..fabric.hosts.len()).filter(|node| turned(*node) == first);
    cures.next().filter(|_| cures.next().is_none())
}

/// Which addresses of the host have to change places.
fn exchange(fabric: &Fabric, node: usize, believed: Option<(usize, Because)>) -> String {
    let of = |domain: usize| {
        let own = fabric.of_host(node).into_iter();
        let own = own.filter(|port| fabric.ports[*port].domain == domain);
        let named = own.filter_map(|port| {
            let address = fabric.ports[port].address?;
            Some(format!("{} ({address})", fabric.facts(port).netdev))
        });
        let both: Vec<String> = named.collect();
        both.join(" and ")
    };
    match believed {
        Some((domain, _)) => format!(
            "on this host two addresses have changed places: exchange those of {}",
            of(DOMAINS - 1 - domain)
        ),
        None => format!(
            "on this host the addresses of both ports of one domain have changed places: exchange those of {}, or those of {} where the cables say so",
            of(DOMAINS - 1),
            of(0)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_one_way_through_all_hosts() {
        let ring: Vec<(Socket, Socket)> = (0..4).map(|i| ((i, 0), ((i + 1) % 4, 1))).collect();
        assert!(makes_ring(&ring, 4));
        let swapped = [
            ((0, 0), (1, 0)),
            ((1, 1), (2, 1)),
            ((2, 0), (3, 1)),
            ((3, 0), (0, 1)),
        ];
        assert!(makes_ring(&swapped, 4));
        let twice = [
            ((0, 0), (1, 1)),
            ((0, 1), (1, 0)),
            ((2, 0), (3, 1)),
            ((2, 1), (3, 0)),
        ];
        assert!(!makes_ring(&twice, 4));
        let own = [
            ((0, 0), (0, 1)),
            ((1, 0), (2, 1)),
            ((2, 0), (3, 1)),
            ((3, 0), (1, 1)),
        ];
        assert!(!makes_ring(&own, 4));
        assert!(!makes_ring(&ring[..3], 4));
        assert!(!makes_ring(&[], 4));
    }

    #[test]
    fn every_ring_that_is_tried_is_one() {
        let all = rings(4);
        // Six orders of the others, two sockets to leave by each.
        assert_eq!(all.len(), 6 * 16);
        assert!(all.iter().all(|ring| makes_ring(ring, 4)));
    }

    /// All orders of `rest` after `first`.
    fn all_orders(first: &mut Vec<usize>, rest: &[usize], each: &mut dyn FnMut(&[usize])) {
        if rest.is_empty() {
            return each(first);
        }
        for (i, next) in rest.iter().enumerate() {
            first.push(*next);
            let left = [&rest[..i], &rest[i + 1..]].concat();
            all_orders(first, &left, each);
            first.pop();
        }
    }

    #[test]
    fn of_as_few_moves_those_to_the_addresses_ring_are_named() {
        let ring = |order: [usize; 4]| -> Vec<(Socket, Socket)> {
            let pair = |i: usize| ((order[i], 0), (order[(i + 1) % 4], 1));
            (0..4).map(pair).collect()
        };
        let after = |cables: &[(Socket, Socket)], moves: &[Move]| {
            let moved = |end: Socket| {
                let found = moves.iter().find(|(from, ..)| *from == end);
                found.map_or(end, |(_, to, _)| *to)
            };
            let cable = |(a, b): &(Socket, Socket)| {
                let (a, b) = (moved(*a), moved(*b));
                (a.min(b), a.max(b))
            };
            cables.iter().map(cable).collect::<BTreeSet<_>>()
        };
        // Two rings of two hosts: one exchange makes one of all four, in several ways.
        let twice = vec![
            ((0, 0), (1, 1)),
            ((0, 1), (1, 0)),
            ((2, 0), (3, 1)),
            ((2, 1), (3, 0)),
        ];
        for order in [[0, 1, 2, 3], [1, 0, 3, 2], [0, 1, 3, 2]] {
            let moves = to_ring(&twice, &ring(order), 4);
            assert_eq!(moves.len(), fewest_moves(&twice, 4).len());
            assert_eq!(after(&twice, &moves), after(&ring(order), &[]), "{order:?}");
        }
        // A ring that takes more moves, and addresses that make none, count for nothing.
        for others in [ring([0, 2, 1, 3]), twice.clone(), Vec::new()] {
            let moves = to_ring(&twice, &others, 4);
            assert_eq!(moves, fewest_moves(&twice, 4));
        }
    }

    #[test]
    fn no_ring_can_be_made_by_fewer_moves_than_those_that_are_named() {
        let socket = |i: usize| (i / 2, i % 2);
        // Each line: the cables, by their sockets' numbers.
        for plugs in [
            [0, 3, 2, 5, 4, 7, 6, 1],
            [0, 1, 2, 5, 3, 7, 4, 6],
            [0, 1, 2, 3, 4, 5, 6, 7],
            [0, 3, 1, 2, 4, 7, 5, 6],
            [0, 5, 1, 4, 2, 7, 3, 6],
        ] {
            let cables_of = |order: &[usize]| -> Vec<(Socket, Socket)> {
                let ends = order.chunks(2);
                ends.map(|ends| (socket(ends[0]), socket(ends[1])))
                    .collect()
            };
            let mut fewest = usize::MAX;
            all_orders(&mut Vec::new(), &[0, 1, 2, 3, 4, 5, 6, 7], &mut |order| {
                let moved = order.iter().zip(&plugs).filter(|(a, b)| a != b).count();
                if moved < fewest && makes_ring(&cables_of(order), 4) {
                    fewest = moved;
                }
            });
            let mut cables = cables_of(&plugs);
            let moves = fewest_moves(&cables, 4);
            assert_eq!(moves.len(), fewest, "{plugs:?}");
            // And they do make one.
            let before = cables.clone();
            for (from, to, other) in moves {
                let at = before
                    .iter()
                    .position(|cable| *cable == (from, other) || *cable == (other, from));
                let cable = &mut cables[at.unwrap()];
                let end = if before[at.unwrap()].0 == from {
                    &mut cable.0
                } else {
                    &mut cable.1
                };
                *end = to;
            }
            assert!(makes_ring(&cables, 4), "{plugs:?}: {cables:?}");
        }
    }
}
