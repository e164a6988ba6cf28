//! The ring as a value: nodes in ring order and the port that faces each way in each domain.

use std::ops::RangeInclusive;

use serde::Serialize;

use crate::finding::Finding;
use crate::names::{Cidr, HostName, Mac, NetdevName, PciAddress, RdmaName};
use crate::plan::ends::{self, End};
use crate::plan::mesh::DOMAINS;

/// Ring sizes that can be planned. The one place that says so: everything else counts nodes.
pub const SIZES: RangeInclusive<usize> = 4..=4;

/// Refuses a number of hosts that cannot be planned, and says what can.
pub fn check_size(hosts: usize) -> Result<(), String> {
    if SIZES.contains(&hosts) {
        return Ok(());
    }
    let wanted = if SIZES.start() == SIZES.end() {
        format!("{}", SIZES.start())
    } else {
        format!("{} to {}", SIZES.start(), SIZES.end())
    };
    Err(format!(
        "{hosts} host{} given, a ring of {wanted} wanted",
        if hosts == 1 { "" } else { "s" }
    ))
}

/// A way around the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From ring rank i to i+1: the way that the head's domain-0 f0 port takes.
    Clockwise,
    /// From ring rank i to i-1.
    CounterClockwise,
}

impl Direction {
    /// Both, in path order.
    pub const BOTH: [Direction; 2] = [Direction::Clockwise, Direction::CounterClockwise];

    /// The other way.
    pub fn opposite(self) -> Direction {
        match self {
            Direction::Clockwise => Direction::CounterClockwise,
            Direction::CounterClockwise => Direction::Clockwise,
        }
    }

    /// As documents name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Direction::Clockwise => "clockwise",
            Direction::CounterClockwise => "counter_clockwise",
        }
    }

    /// The ring rank one step from `rank` in a ring of `size`.
    pub fn step(self, rank: usize, size: usize) -> usize {
        match self {
            Direction::Clockwise => (rank + 1) % size,
            Direction::CounterClockwise => (rank + size - 1) % size,
        }
    }
}

/// A fabric port in its place in the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingPort {
    /// Network device.
    pub netdev: NetdevName,
    /// RDMA device.
    pub rdma: RdmaName,
    /// PCI address, where known.
    pub pci: Option<PciAddress>,
    /// Address on the cable.
    pub ipv4: Cidr,
    /// MAC address.
    pub mac: Mac,
    /// Position in the node's list of HCAs: by domain, then port number.
    pub hca_index: usize,
}

/// A node in its place in the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub host: HostName,
    /// The ports that face clockwise, by domain, then those that face counter-clockwise.
    pub ports: [[RingPort; DOMAINS]; 2],
    /// The network device that carries management, where known.
    pub management_netdev: Option<NetdevName>,
}

impl Node {
    /// The port that faces `direction` in `domain`.
    pub fn port(&self, direction: Direction, domain: usize) -> &RingPort {
        &self.ports[direction as usize][domain]
    }

    /// All ports with their places, by HCA index.
    pub fn by_hca_index(&self) -> Vec<(Direction, usize, &RingPort)> {
        let mut all: Vec<_> = Direction::BOTH
            .into_iter()
            .flat_map(|direction| (0..DOMAINS).map(move |domain| (direction, domain)))
            .map(|(direction, domain)| (direction, domain, self.port(direction, domain)))
            .collect();
        all.sort_by_key(|(_, _, port)| port.hca_index);
        all
    }
}

/// Nodes in ring order, the head first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// By ring rank.
    pub nodes: Vec<Node>,
}

impl Ring {
    /// Number of nodes.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// What is wrong with the ring by itself: addresses and MACs that no port or more than one port
    /// can have, cables whose ends are in different subnets, HCAs named differently.
    pub(super) fn check(&self) -> Vec<Finding> {
        let mut all = Vec::new();
        let mut hcas = Vec::new();
        for node in &self.nodes {
            let ports = node.by_hca_index();
            all.extend(ports.iter().map(|(_, _, port)| End {
                host: &node.host,
                netdev: &port.netdev,
                rdma: Some(&port.rdma),
                pci: port.pci,
                address: Some(port.ipv4),
                mac: port.mac,
            }));
            hcas.push((
                &node.host,
                ports.iter().map(|(_, _, port)| &port.rdma).collect(),
            ));
        }
        let mut findings = ends::check(&all);
        findings.extend(ends::check_hca_names(&hcas));
        for (rank, node) in self.nodes.iter().enumerate() {
            for domain in 0..DOMAINS {
                let near = node.port(Direction::Clockwise, domain);
                let peer = &self.nodes[Direction::Clockwise.step(rank, self.size())];
                let far = peer.port(Direction::CounterClockwise, domain);
                // A topology document has addresses alone (/32): its cables are given, not derived.
                if (near.ipv4.prefix, far.ipv4.prefix) != (32, 32)
                    && near.ipv4.network() != far.ipv4.network()
                {
                    let found = format!(
                        "{} and {} of {} {} are in different subnets",
                        near.ipv4, far.ipv4, peer.host, far.netdev
                    );
                    findings.push(
                        Finding::problem("subnet-ends", found, "one subnet per cable")
                            .on(&node.host)
                            .at(&near.netdev),
                    );
                }
            }
        }
        findings
    }

    /// The port of node `rank` that faces `direction` in `domain`.
    pub fn port(&self, rank: usize, direction: Direction, domain: usize) -> &RingPort {
        self.nodes[rank].port(direction, domain)
    }
}
