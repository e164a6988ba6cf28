//! Inventories to ring: every check that refuses, all problems at once, causes before consequences.
//!
//! | file | what it decides |
//! |---|---|
//! | `place.rs` | which port is which: domain and port number |
//! | `address.rs` | which of a port's addresses is on the ring |
//! | `settings.rs` | the settings that refuse a node; the queue size that it has |
//! | `gid.rs` | the GID index that all ports share |
//! | `cables.rs` | subnets to cables, cables to ring order |

mod address;
mod cables;
mod gid;
mod place;
mod settings;

use std::collections::{BTreeSet, HashMap};

use crate::facts::{Inventory, PortFacts};
use crate::finding::Finding;
use crate::names::{Cidr, HostName, RdmaName};
use crate::plan::ends::{self, End};
use crate::plan::mesh;
use crate::plan::ring::{Direction, Node, Ring, RingPort};

/// What the inventories give: the ring, when there is one, and everything found on the way.
pub struct Derived {
    /// The ring; none when it could not be derived.
    pub ring: Option<Ring>,
    /// The GID index that all ports share (the preferred one when there is none).
    pub gid_index: u8,
    /// The smallest applied hairpin queue size, packets.
    pub hairpin_queue_size: u32,
    /// Problems and warnings.
    pub findings: Vec<Finding>,
}

/// Ports of a node per domain: one for each way around the ring.
pub(crate) const PORTS_PER_DOMAIN: usize = 2;

/// A port in its place in its node, with the address that is on the ring.
pub(crate) struct Located<'a> {
    /// Index into the inventories.
    pub(crate) node: usize,
    pub(crate) host: &'a HostName,
    pub(crate) facts: &'a PortFacts,
    pub(crate) domain: usize,
    /// 0 for the lower PCI function of the domain, 1 for the higher.
    pub(crate) port: usize,
    pub(crate) address: Option<Cidr>,
    /// Where no address is chosen because several could be: their networks.
    ambiguous: Vec<Cidr>,
}

impl<'a> Located<'a> {
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.host, self.facts.netdev)
    }

    /// The GID indices at which it has the RoCE v2 GID of its address.
    pub(crate) fn gid_indices(&self) -> BTreeSet<u8> {
        self.address
            .map(|address| gid::valid_gid_indices(self.facts, address))
            .unwrap_or_default()
    }

    fn end(&self) -> End<'a> {
        End {
            host: self.host,
            netdev: &self.facts.netdev,
            rdma: self.facts.rdma.known().and_then(Option::as_ref),
            pci: self.facts.pci.known().copied().flatten(),
            address: self.address,
            mac: self.facts.mac,
        }
    }
}

/// Derives the ring of `hosts` (the head first) from their inventories, in the same order.
pub fn derive(hosts: &[HostName], inventories: &[Inventory], gid_index: Option<u8>) -> Derived {
    let mut findings = Vec::new();
    let nothing = |findings| Derived {
        ring: None,
        gid_index: gid_index.unwrap_or(mesh::PREFERRED_GID_INDEX),
        hairpin_queue_size: mesh::DEFAULT_HAIRPIN_QUEUE,
        findings,
    };
    for (i, host) in hosts.iter().enumerate() {
        // DNS, and so ssh, does not tell upper from lower case (RFC 4343).
        let mut before = hosts[..i]
            .iter()
            .filter(|other| other.as_str().eq_ignore_ascii_case(host.as_str()));
        if let (Some(first), None) = (before.next(), before.next()) {
            let found = if first == host {
                "is given more than once".to_owned()
            } else {
                format!("differs from {first} in upper and lower case alone")
            };
            findings.push(Finding::problem("host-repeated", found, "every host once").on(host));
        }
    }
    if let Err(what) = crate::plan::ring::check_size(hosts.len()) {
        findings.push(Finding::problem(
            "ring-size",
            what,
            "another number of hosts",
        ));
    }
    if hosts.len() != inventories.len() {
        findings.push(Finding::problem(
            "inventory-count",
            format!(
                "{} inventories for {} hosts",
                inventories.len(),
                hosts.len()
            ),
            "one of each host",
        ));
    }
    if !findings.is_empty() {
        return nothing(findings);
    }
    let mut survey = survey(hosts, inventories, gid_index);
    let order = if survey.placed {
        cables::walk(hosts, &survey.ports, &survey.peers, &mut survey.findings)
    } else {
        None
    };
    let ring =
        order.and_then(|order| build(hosts, inventories, &survey.ports, &survey.peers, &order));
    Derived {
        ring,
        gid_index: survey.gid_index,
        hairpin_queue_size: survey.hairpin_queue_size,
        findings: survey.findings,
    }
}

/// Everything that the inventories give before the ring is walked, of any number of hosts.
pub(crate) struct Survey<'a> {
    /// The fabric ports that have a place.
    pub(crate) ports: Vec<Located<'a>>,
    /// Peers of ports, as indices: joined by their subnets.
    pub(crate) peers: HashMap<usize, usize>,
    /// Whether every node has exactly the ports that a ring needs.
    pub(crate) placed: bool,
    /// As in [`Derived`].
    pub(crate) gid_index: u8,
    /// As in [`Derived`].
    pub(crate) hairpin_queue_size: u32,
    /// Problems and warnings.
    pub(crate) findings: Vec<Finding>,
}

/// Surveys the ports of `hosts`, each given once, from their inventories, in the same order.
pub(crate) fn survey<'a>(
    hosts: &'a [HostName],
    inventories: &'a [Inventory],
    gid_index: Option<u8>,
) -> Survey<'a> {
    let mut findings = Vec::new();
    for (host, inventory) in hosts.iter().zip(inventories) {
        if inventory.host != *host {
            findings.push(
                Finding::problem(
                    "inventory-of-another-host",
                    format!("its inventory is of host {}", inventory.host),
                    format!("host {host}"),
                )
                .on(host),
            );
        }
    }

    let (mut ports, placed) = place::locate(hosts, inventories, &mut findings);
    address::choose_addresses(&mut ports, &mut findings);
    address::check_others(&ports, &mut findings);
    for port in &ports {
        settings::check_port(port, &mut findings);
    }
    let gid_index = gid::choose_gid_index(&ports, gid_index, &mut findings);
    let ends: Vec<End> = ports.iter().map(Located::end).collect();
    findings.extend(ends::check(&ends));
    if let Some(table) = hca_table(hosts, &ports).filter(|_| placed) {
        findings.extend(ends::check_hca_names(&table));
    }
    settings::check_management(inventories, &mut findings);
    let hairpin_queue_size = settings::smallest_queue(&ports, &mut findings);

    let peers = cables::join(&ports, &mut findings);
    Survey {
        ports,
        peers,
        placed,
        gid_index,
        hairpin_queue_size,
        findings,
    }
}

/// The HCAs of every host in HCA order, when every node has its ports and every port its device.
fn hca_table<'a>(
    hosts: &'a [HostName],
    ports: &[Located<'a>],
) -> Option<Vec<(&'a HostName, Vec<&'a RdmaName>)>> {
    let table = hosts.iter().enumerate().map(|(node, host)| {
        let mut own: Vec<&Located> = ports.iter().filter(|p| p.node == node).collect();
        own.sort_by_key(|p| (p.domain, p.port));
        let names: Option<Vec<&RdmaName>> =
            own.iter().map(|p| p.facts.rdma.known()?.as_ref()).collect();
        Some((host, names?))
    });
    table.collect()
}

/// The ring value, from a walk that found no fault.
fn build(
    hosts: &[HostName],
    inventories: &[Inventory],
    ports: &[Located],
    peers: &HashMap<usize, usize>,
    order: &[usize],
) -> Option<Ring> {
    let size = order.len();
    let facing = |rank: usize, direction: Direction, domain: usize| -> Option<RingPort> {
        let (node, neighbour) = (order[rank], order[direction.step(rank, size)]);
        let (i, port) = ports.iter().enumerate().find(|(i, p)| {
            p.node == node
                && p.domain == domain
                && peers
                    .get(i)
                    .is_some_and(|peer| ports[*peer].node == neighbour)
        })?;
        debug_assert!(peers.contains_key(&i));
        Some(RingPort {
            netdev: port.facts.netdev.clone(),
            rdma: port.facts.rdma.known()?.clone()?,
            pci: port.facts.pci.known().copied().flatten(),
            ipv4: port.address?,
            mac: port.facts.mac,
            hca_index: domain * PORTS_PER_DOMAIN + port.port,
        })
    };
    let nodes = (0..size).map(|rank| {
        let way = |direction| Some([facing(rank, direction, 0)?, facing(rank, direction, 1)?]);
        Some(Node {
            host: hosts[order[rank]].clone(),
            ports: [
                way(Direction::Clockwise)?,
                way(Direction::CounterClockwise)?,
            ],
            management_netdev: inventories[order[rank]]
                .management_netdev
                .known()
                .cloned()
                .flatten(),
        })
    });
    Some(Ring {
        nodes: nodes.collect::<Option<_>>()?,
    })
}
