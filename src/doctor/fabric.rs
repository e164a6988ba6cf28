//! The ports in their places, and the sockets that they share.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use crate::facts::{Inventory, PortFacts, WireAnswer};
use crate::finding::Finding;
use crate::names::{Cidr, HostName, Mac};
use crate::plan::ends::list;
use crate::plan::ring::{self, Ring};
use crate::plan::{Derived, Located, PORTS_PER_DOMAIN, Plan, PortRow, derive, survey};

/// A QSFP socket of a node: its index, and the port number (0 or 1). Each carries one function of
/// every domain.
pub(super) type Socket = (usize, usize);

/// The fabric of a case.
pub(super) struct Fabric<'a> {
    pub(super) hosts: &'a [HostName],
    pub(super) inventories: &'a [Inventory],
    /// The ports that have a place.
    pub(super) ports: Vec<Located<'a>>,
    /// Peers of ports, as indices, by their subnets.
    pub(super) peers: BTreeMap<usize, usize>,
    /// The same, and pairs of one host, which no ring has.
    pub(super) pairs: BTreeMap<usize, usize>,
    /// The number of each port's socket on its host.
    numbers: Vec<usize>,
    /// The two sockets whose cable no subnet shows, when it is the only one: it can be nowhere else.
    last: Option<(Socket, Socket)>,
    /// The plan that was given.
    pub(super) plan: Option<&'a Plan>,
    /// Hosts whose facts are those of an earlier one, which is the second of each pair.
    pub(super) copies: Vec<(usize, usize)>,
    /// What `plan` finds.
    pub(super) found: Vec<Finding>,
    /// The ring, where the facts make one.
    pub(super) ring: Option<Ring>,
    /// Whether the number of hosts is one that can make a ring.
    pub(super) whole: bool,
    pub(super) gid_index: u8,
    /// The smallest hairpin queue size that is applied, packets.
    pub(super) hairpin_queue_size: u32,
}

impl<'a> Fabric<'a> {
    pub(super) fn of(
        hosts: &'a [HostName],
        inventories: &'a [Inventory],
        plan: Option<&'a Plan>,
    ) -> Fabric<'a> {
        let survey = survey(hosts, inventories, None);
        let whole = ring::check_size(hosts.len()).is_ok();
        let (ring, found) = if whole {
            let Derived { ring, findings, .. } = derive(hosts, inventories, None);
            (ring, findings)
        } else {
            (None, survey.findings)
        };
        let peers: BTreeMap<usize, usize> = survey.peers.into_iter().collect();
        let mut fabric = Fabric {
            hosts,
            inventories,
            numbers: numbers(&survey.ports),
            pairs: pairs(&survey.ports, &peers),
            ports: survey.ports,
            peers,
            found,
            ring,
            whole,
            gid_index: survey.gid_index,
            hairpin_queue_size: survey.hairpin_queue_size,
            last: None,
            plan,
            copies: copies(inventories),
        };
        fabric.last = fabric.by_elimination();
        fabric
    }

    /// The only two sockets of a whole ring whose cable no subnet shows.
    fn by_elimination(&self) -> Option<(Socket, Socket)> {
        let sockets: BTreeSet<Socket> = (0..self.ports.len())
            .map(|port| self.socket(port))
            .collect();
        let mut loose = sockets
            .iter()
            .filter(|socket| self.other_socket(**socket).is_none());
        let (a, b) = (*loose.next()?, *loose.next()?);
        let whole = self.whole
            && self.copies.is_empty()
            && sockets.len() == self.hosts.len() * PORTS_PER_DOMAIN;
        (whole && loose.next().is_none() && a.0 != b.0).then_some((a, b))
    }

    pub(super) fn facts(&self, port: usize) -> &'a PortFacts {
        self.ports[port].facts
    }

    /// What the wire answered on a port, where it was asked.
    pub(super) fn answers(&self, port: usize) -> impl Iterator<Item = &'a WireAnswer> + use<'a> {
        let wire = &self.facts(port).details.wire;
        wire.known().into_iter().flatten()
    }

    pub(super) fn socket(&self, port: usize) -> Socket {
        (self.ports[port].node, self.numbers[port])
    }

    /// The ports of a socket.
    pub(super) fn of_socket(&self, socket: Socket) -> BTreeSet<usize> {
        (0..self.ports.len())
            .filter(|port| self.socket(*port) == socket)
            .collect()
    }

    /// The ports of a host, by its index.
    pub(super) fn of_host(&self, node: usize) -> BTreeSet<usize> {
        (0..self.ports.len())
            .filter(|port| self.ports[*port].node == node)
            .collect()
    }

    /// The ports of a port's host that are on its domain.
    pub(super) fn of_domain(&self, port: usize) -> BTreeSet<usize> {
        let own = &self.ports[port];
        let mut all = self.of_host(own.node);
        all.retain(|other| self.ports[*other].domain == own.domain);
        all
    }

    /// Names of hosts, by their indices.
    pub(super) fn host_names(&self, hosts: &BTreeSet<usize>) -> String {
        list(hosts.iter().map(|node| &self.hosts[*node]))
    }

    /// The port of a host by the name of its network device.
    pub(super) fn port(&self, node: usize, netdev: &str) -> Option<usize> {
        (0..self.ports.len()).find(|port| {
            self.ports[*port].node == node && self.facts(*port).netdev.as_str() == netdev
        })
    }

    pub(super) fn node(&self, host: &str) -> Option<usize> {
        self.hosts.iter().position(|own| own.as_str() == host)
    }

    /// A port that has this address.
    pub(super) fn with_address(&self, address: Ipv4Addr) -> Option<usize> {
        (0..self.ports.len()).find(|port| {
            let mut own = self.facts(*port).ipv4.known().into_iter().flatten();
            own.any(|own| own.address == address)
        })
    }

    /// Of a domain, the ports that are alone in their subnet, and those whose address another one has too.
    pub(super) fn alone_and_repeated(&self, domain: usize) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let others = |port: &usize, is: &dyn Fn(Cidr, Cidr) -> bool| {
            let address = |port: usize| self.ports[port].address;
            let mut all = (0..self.ports.len()).filter(|other| other != port);
            address(*port)
                .is_some_and(|own| all.any(|other| address(other).is_some_and(|a| is(own, a))))
        };
        let own = (0..self.ports.len()).filter(|port| self.ports[*port].domain == domain);
        let own: Vec<usize> = own.collect();
        let near = |port: &usize| others(port, &|a, b| a.network() == b.network());
        let same = |port: &usize| others(port, &|a, b| a.address == b.address);
        let alone = own
            .iter()
            .filter(|port| self.ports[**port].address.is_some() && !near(port));
        let repeated = own.iter().filter(|port| same(port));
        (alone.copied().collect(), repeated.copied().collect())
    }

    /// The hosts' devices of the management network, as far as they are known.
    pub(super) fn management(&self) -> BTreeSet<&'a str> {
        let known = |node: &'a Inventory| Some(node.management_netdev.known()?.as_ref()?.as_str());
        self.inventories.iter().filter_map(known).collect()
    }

    /// The port that has this MAC, when exactly one has.
    pub(super) fn with_mac(&self, mac: Mac) -> Option<usize> {
        let mut with = (0..self.ports.len()).filter(|port| self.facts(*port).mac == mac);
        with.next().filter(|_| with.next().is_none())
    }

    /// The socket that this one is cabled to, as the subnets of its functions say, where they agree.
    pub(super) fn other_socket(&self, socket: Socket) -> Option<Socket> {
        let mut ends = BTreeSet::new();
        for port in self.of_socket(socket) {
            if let Some(peer) = self.pairs.get(&port) {
                ends.insert(self.socket(*peer));
            }
        }
        ends.first().copied().filter(|_| ends.len() == 1)
    }

    /// The same, or where the last cable can only be.
    pub(super) fn far_socket(&self, socket: Socket) -> Option<Socket> {
        self.other_socket(socket).or_else(|| {
            // A socket that no subnet shows is one of these two.
            let (a, b) = self.last?;
            Some(if socket == a { b } else { a })
        })
    }

    /// The function of the same domain at the other end of the cable, by the subnet, by that of the
    /// cable's other function, or because all other cables are known.
    pub(super) fn far(&self, port: usize) -> Option<usize> {
        if let Some(peer) = self.peers.get(&port) {
            return Some(*peer);
        }
        let domain = self.ports[port].domain;
        let other = self.far_socket(self.socket(port))?;
        self.of_socket(other)
            .into_iter()
            .find(|far| self.ports[*far].domain == domain)
    }

    /// What the plan that was given has of a port.
    pub(super) fn planned(&self, port: usize) -> Option<&'a PortRow> {
        let (host, netdev) = (self.ports[port].host, &self.facts(port).netdev);
        let mut rows = self.plan?.ports.iter();
        rows.find(|row| row.host == *host && row.netdev == *netdev)
    }

    /// The port of a row of a plan.
    pub(super) fn of_row(&self, row: &PortRow) -> Option<usize> {
        self.port(self.node(row.host.as_str())?, row.netdev.as_str())
    }

    /// The port at the other end of the cable, by the plan where the facts do not show it.
    pub(super) fn end(&self, port: usize) -> Option<usize> {
        let planned = || self.of_row(self.plan?.peer(self.planned(port)?)?);
        self.far(port).or_else(planned)
    }

    /// Network devices of a host's ports, joined by `+`.
    pub(super) fn names(&self, ports: &BTreeSet<usize>) -> String {
        let names: Vec<&str> = ports
            .iter()
            .map(|port| self.facts(*port).netdev.as_str())
            .collect();
        names.join("+")
    }

    /// RDMA device of a port, or its network device where it has none.
    pub(super) fn device(&self, port: usize) -> String {
        let facts = self.facts(port);
        match facts.rdma.known() {
            Some(Some(name)) => name.to_string(),
            _ => facts.netdev.to_string(),
        }
    }
}

/// Hosts all of whose MACs an earlier host has too.
fn copies(inventories: &[Inventory]) -> Vec<(usize, usize)> {
    let macs = |node: &Inventory| -> BTreeSet<Mac> { node.ports.iter().map(|p| p.mac).collect() };
    let all: Vec<BTreeSet<Mac>> = inventories.iter().map(macs).collect();
    let copy = |node: usize| {
        let first = (0..node).find(|other| all[*other] == all[node])?;
        (!all[node].is_empty()).then_some((node, first))
    };
    (0..all.len()).filter_map(copy).collect()
}

/// Of each port, which of its host's sockets it is in. A host that lacks functions numbers those that it has
/// as the others do.
pub(super) fn numbers(ports: &[Located]) -> Vec<usize> {
    let function = |port: &Located| port.facts.place().map(|place| place.function);
    let all: BTreeSet<u8> = ports.iter().filter_map(function).collect();
    let number = |port: &Located| {
        let at = function(port).and_then(|own| all.iter().position(|function| *function == own));
        at.filter(|_| all.len() == PORTS_PER_DOMAIN)
            .unwrap_or(port.port)
    };
    ports.iter().map(number).collect()
}

/// Peers, and ports of one host and domain that are alone in a subnet together.
fn pairs(ports: &[Located], peers: &BTreeMap<usize, usize>) -> BTreeMap<usize, usize> {
    let mut all = peers.clone();
    let network = |port: &Located| port.address.map(|address| address.network());
    for (i, port) in ports.iter().enumerate() {
        let Some(own) = network(port) else { continue };
        let with: Vec<usize> = (0..ports.len())
            .filter(|other| network(&ports[*other]) == Some(own))
            .collect();
        if let [a, b] = with[..] {
            let far = if a == i { b } else { a };
            if ports[far].node == port.node && ports[far].domain == port.domain {
                all.insert(i, far);
            }
        }
    }
    all
}

/// The most frequent value, when it is more frequent than any other.
pub(super) fn usual<T: Ord + Clone>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let mut with = counts.iter().filter(|(_, count)| **count == most);
    let first = with.next().map(|(value, _)| value.clone());
    first.filter(|_| with.next().is_none())
}
