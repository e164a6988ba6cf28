//! The peer project's topology document, `fabric.json`, read and written.
//!
//! Two kinds of error: a document that is no topology (unknown or missing keys, wrong types) is a
//! [`DocumentError`]; one that describes a fabric that cannot be planned gives findings.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::finding::Finding;
use crate::json::{At, DocumentError, Value, parse, pretty};
use crate::names::{Cidr, HostName, Mac, NetdevName, Place, RdmaName};
use crate::plan::assemble::{Choices, RouteStrategy, RuleIdentity, diagonal_names};
use crate::plan::ends::{self, PLACEHOLDER, list};
use crate::plan::mesh::{self, DOMAINS};
use crate::plan::ring::{self, Direction, Node, Ring, RingPort};
use crate::plan::{Options, Planned, refuses};

/// The schema of the document.
pub const SCHEMA: &str = "sparkring-cx7-hardware-diagonal-fabric/v1";

/// The document's word for what the method is.
const STATUS: &str = "research-only";

/// The longest that a run on the fabric may be bounded to, seconds.
const LONGEST_RUNTIME: u32 = 7200;

/// What the document holds beside the ring, as it is written back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extras {
    /// `group_id`.
    pub group_id: u32,
    /// `bounded_runtime_seconds`, 1 to 7200.
    pub bounded_runtime_seconds: u32,
    /// `orchestration.host_helper_path`, absolute.
    pub host_helper_path: String,
    /// `orchestration.remote_state_root`, absolute.
    pub remote_state_root: String,
    /// `endpoint_route_strategy`.
    pub strategy: RouteStrategy,
    /// `tc_rule_identity_overrides`.
    pub identities: BTreeMap<String, RuleIdentity>,
}

impl Default for Extras {
    /// What the planner of today writes.
    fn default() -> Extras {
        Extras {
            group_id: 77,
            bounded_runtime_seconds: LONGEST_RUNTIME,
            host_helper_path: "/UNSUPPORTED/external-fabric-orchestrator".into(),
            remote_state_root: "/run/dsv41-mesh".into(),
            strategy: RouteStrategy::AdjacentGateway,
            identities: BTreeMap::new(),
        }
    }
}

/// A topology document that is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// What it holds beside the ring.
    pub extras: Extras,
    gid_index: u8,
    ring: Option<Ring>,
    findings: Vec<Finding>,
}

impl Topology {
    /// Reads a topology document. `name` is what errors call it.
    pub fn from_json(name: &str, bytes: &[u8]) -> Result<Topology, DocumentError> {
        let value = parse(name, bytes)?;
        let root = At::root(name, &value);
        refuse_placeholders(&root)?;
        const OPTIONAL: [&str; 2] = ["endpoint_route_strategy", "tc_rule_identity_overrides"];
        let known = [
            "schema",
            "status",
            "group_id",
            "socket_direct_functions",
            "flow_label_base",
            "shared_diagonal_flow_label",
            "standard_ether_type",
            "marked_ether_type",
            "standard_udp_destination_port",
            "roce_gid_index",
            "bounded_runtime_seconds",
            "expected_ethernet_mtu",
            "expected_roce_mtu",
            "orchestration",
            "ranks",
        ];
        root.only(&[known.as_slice(), &OPTIONAL].concat())?;
        for key in known {
            root.need(key)?;
        }
        root.need("schema")?.exactly(SCHEMA)?;
        root.need("status")?.exactly(STATUS)?;

        let mut findings = Vec::new();
        let mut constant = |key: &str, wanted: u32| -> Result<(), DocumentError> {
            let found: u32 = root.need(key)?.integer(0, u32::MAX.into())?;
            if found != wanted {
                findings.push(
                    Finding::problem("topology-constant", found.to_string(), wanted.to_string())
                        .at(key),
                );
            }
            Ok(())
        };
        constant("socket_direct_functions", DOMAINS as u32)?;
        constant("flow_label_base", mesh::FLOW_LABEL)?;
        constant("standard_ether_type", mesh::IPV4_ETHERTYPE.into())?;
        constant("marked_ether_type", mesh::MARKED_ETHERTYPE.into())?;
        constant("standard_udp_destination_port", mesh::ROCE_UDP_PORT.into())?;
        constant("expected_ethernet_mtu", mesh::ETHERNET_MTU)?;
        constant("expected_roce_mtu", mesh::ROCE_MTU)?;
        if !root.need("shared_diagonal_flow_label")?.bool()? {
            findings.push(
                Finding::problem("topology-constant", "false", "true")
                    .at("shared_diagonal_flow_label"),
            );
        }

        let orchestration = root.need("orchestration")?;
        orchestration.only(&["host_helper_path", "remote_state_root"])?;
        let extras = Extras {
            group_id: root.need("group_id")?.integer(0, u32::MAX.into())?,
            bounded_runtime_seconds: root
                .need("bounded_runtime_seconds")?
                .integer(1, LONGEST_RUNTIME.into())?,
            host_helper_path: absolute_path(&orchestration.need("host_helper_path")?)?,
            remote_state_root: absolute_path(&orchestration.need("remote_state_root")?)?,
            strategy: match root.get("endpoint_route_strategy")? {
                None => RouteStrategy::ScopeLink,
                Some(at) => match at.text()? {
                    ADJACENT_GATEWAY => RouteStrategy::AdjacentGateway,
                    SCOPE_LINK => RouteStrategy::ScopeLink,
                    _ => {
                        return Err(at.error(format!(
                            "is not a strategy that is known, {ADJACENT_GATEWAY:?} or {SCOPE_LINK:?} wanted"
                        )));
                    }
                },
            },
            identities: BTreeMap::new(),
        };
        let gid_index = root.need("roce_gid_index")?.integer(0, 255)?;
        let ranks = read_ranks(&root.need("ranks")?)?;
        let identities = match root.get("tc_rule_identity_overrides")? {
            Some(at) => read_identities(&at, ranks.len())?,
            None => BTreeMap::new(),
        };
        let ring = ring_of(ranks, &mut findings);
        Ok(Topology {
            extras: Extras {
                identities,
                ..extras
            },
            gid_index,
            ring,
            findings,
        })
    }

    /// Plans the ring for `hosts` in TP rank order, the head first.
    pub fn plan(&self, hosts: &[HostName], options: &Options) -> Planned {
        let mut findings = self.findings.clone();
        if let Some(demanded) = options
            .gid_index
            .filter(|demanded| *demanded != self.gid_index)
        {
            findings.push(
                Finding::problem(
                    "gid-index",
                    format!("is {}", self.gid_index),
                    format!("{demanded} (--gid-index)"),
                )
                .at("roce_gid_index"),
            );
        }
        let Some(ring) = &self.ring else {
            return Planned::refused(findings);
        };
        let aliases = list(ring.nodes.iter().map(|n| &n.host));
        for (i, host) in hosts.iter().enumerate() {
            if hosts[..i].contains(host) {
                findings.push(
                    Finding::problem(
                        "host-repeated",
                        "is given more than once",
                        "every host once",
                    )
                    .on(host),
                );
            } else if !ring.nodes.iter().any(|n| n.host == *host) {
                let found = format!("is no ssh_alias of the topology ({aliases})");
                findings
                    .push(Finding::problem("host-not-in-topology", found, "one of them").on(host));
            }
        }
        if hosts.len() != ring.size() {
            let found = format!("{} given", ends::count(hosts.len(), "host"));
            findings.push(Finding::problem(
                "ring-size",
                found,
                format!("all {} of the topology", ring.size()),
            ));
        } else if hosts.first() != Some(&ring.nodes[0].host) {
            let found = format!("ring rank 0 is {}", ring.nodes[0].host);
            let wanted = hosts
                .first()
                .map_or_else(String::new, |h| format!("the head, {h}"));
            findings.push(Finding::problem("head", found, wanted).at("ranks"));
        }
        findings.push(Finding::warning(
            "hairpin-queue-unknown",
            format!(
                "a topology does not tell hairpin_queue_size; {} counts for the cap",
                mesh::DEFAULT_HAIRPIN_QUEUE
            ),
            "an inventory",
        ));
        if refuses(&findings) {
            return Planned::refused(findings);
        }
        let choices = Choices {
            opposite_paths: options.opposite_paths,
            gid_index: self.gid_index,
            hairpin_queue_size: mesh::DEFAULT_HAIRPIN_QUEUE,
            hairpin_queue_wanted: options.hairpin_queue,
            strategy: self.extras.strategy,
            identities: self.extras.identities.clone(),
        };
        Planned::assembled(ring.clone(), hosts, &choices, findings)
    }
}

const ADJACENT_GATEWAY: &str = "adjacent_gateway";
const SCOPE_LINK: &str = "scope_link_permanent_final_neighbor";

fn refuse_placeholders(at: &At) -> Result<(), DocumentError> {
    match at.value() {
        Value::Text(text) if text.contains(PLACEHOLDER) => Err(at.error(format!(
            "is {}, which nobody has filled in yet",
            crate::names::quoted(text)
        ))),
        Value::Array(_) => at
            .items(usize::MAX)?
            .try_for_each(|item| refuse_placeholders(&item)),
        Value::Object(_) => at
            .entries()?
            .try_for_each(|(_, value)| refuse_placeholders(&value)),
        _ => Ok(()),
    }
}

fn absolute_path(at: &At) -> Result<String, DocumentError> {
    let text = at.text()?;
    if !text.starts_with('/') || text.len() > 4096 || text.chars().any(char::is_control) {
        return Err(at.error(format!(
            "is {}, an absolute path wanted",
            crate::names::quoted(text)
        )));
    }
    Ok(text.to_owned())
}

fn read_identities(at: &At, size: usize) -> Result<BTreeMap<String, RuleIdentity>, DocumentError> {
    let names = diagonal_names(size);
    let mut identities = BTreeMap::new();
    for (name, at) in at.entries()? {
        if !names.iter().any(|n| n == name) {
            return Err(at.error("is no diagonal of this ring"));
        }
        at.only(&["preference", "handle"])?;
        let identity = RuleIdentity {
            pref: at.need("preference")?.integer(1, u16::MAX.into())?,
            handle: at.need("handle")?.integer(1, u32::MAX.into())?,
        };
        identities.insert(name.to_owned(), identity);
    }
    Ok(identities)
}

/// A port as the document has it.
struct TopologyPort {
    netdev: NetdevName,
    rdma: RdmaName,
    ipv4: Cidr,
    mac: Mac,
    peer_rank: usize,
    peer_direction: Direction,
    peer_function: usize,
}

/// A node as the document has it; ports by direction, then function.
struct TopologyRank {
    alias: HostName,
    management_netdev: NetdevName,
    ports: [[TopologyPort; DOMAINS]; 2],
}

fn read_ranks(at: &At) -> Result<Vec<TopologyRank>, DocumentError> {
    let items: Vec<At> = at.items(64)?.collect();
    let size = items.len();
    ring::check_size(size).map_err(|what| at.error(what.replace("host", "rank")))?;
    let mut ranks: BTreeMap<usize, TopologyRank> = BTreeMap::new();
    for item in items {
        item.only(&["rank", "ssh_alias", "management_netdev", "ports"])?;
        let rank_at = item.need("rank")?;
        let rank: usize = rank_at.integer(0, size as i128 - 1)?;
        let ports = item.need("ports")?;
        ports.only(&Direction::BOTH.map(Direction::as_str))?;
        let way = |direction: Direction| read_way(&ports.need(direction.as_str())?, size);
        let read = TopologyRank {
            alias: item.need("ssh_alias")?.name()?,
            management_netdev: item.need("management_netdev")?.name()?,
            ports: [
                way(Direction::Clockwise)?,
                way(Direction::CounterClockwise)?,
            ],
        };
        if ranks.insert(rank, read).is_some() {
            return Err(rank_at.error(format!("is {rank} for a second time")));
        }
    }
    Ok(ranks.into_values().collect())
}

fn read_way(at: &At, size: usize) -> Result<[TopologyPort; DOMAINS], DocumentError> {
    let mut ports: [Option<TopologyPort>; DOMAINS] = [const { None }; DOMAINS];
    for item in at.items(64)? {
        item.only(&[
            "function",
            "netdev",
            "rdma_device",
            "ipv4_cidr",
            "mac",
            "peer_rank",
            "peer_direction",
            "peer_function",
        ])?;
        let function_at = item.need("function")?;
        let function: usize = function_at.integer(0, DOMAINS as i128 - 1)?;
        let address_at = item.need("ipv4_cidr")?;
        let ipv4: Cidr = address_at.name()?;
        if ipv4.prefix != 32 {
            return Err(address_at.error(format!("is {ipv4}, a /32 wanted")));
        }
        let direction_at = item.need("peer_direction")?;
        let peer_direction = Direction::BOTH
            .into_iter()
            .find(|d| direction_at.text() == Ok(d.as_str()));
        let read = TopologyPort {
            netdev: item.need("netdev")?.name()?,
            rdma: item.need("rdma_device")?.name()?,
            ipv4,
            mac: item.need("mac")?.name()?,
            peer_rank: item.need("peer_rank")?.integer(0, size as i128 - 1)?,
            peer_direction: peer_direction.ok_or_else(|| {
                direction_at.error("is no direction, \"clockwise\" or \"counter_clockwise\" wanted")
            })?,
            peer_function: item
                .need("peer_function")?
                .integer(0, DOMAINS as i128 - 1)?,
        };
        if ports[function].replace(read).is_some() {
            return Err(function_at.error(format!("is {function} for a second time")));
        }
    }
    match ports {
        [Some(first), Some(second)] => Ok([first, second]),
        _ => Err(at.error(format!(
            "is not one port for each of functions 0 to {}",
            DOMAINS - 1
        ))),
    }
}

fn ring_of(ranks: Vec<TopologyRank>, findings: &mut Vec<Finding>) -> Option<Ring> {
    let size = ranks.len();
    let before = findings.len();
    for (i, rank) in ranks.iter().enumerate() {
        if ranks[..i].iter().any(|r| r.alias == rank.alias) {
            findings.push(
                Finding::problem(
                    "host-repeated",
                    "is the ssh_alias of more than one rank",
                    "of one",
                )
                .on(&rank.alias),
            );
        }
    }
    if findings.len() > before {
        return None;
    }
    let mut nodes = Vec::new();
    for (rank, node) in ranks.into_iter().enumerate() {
        for (direction, ports) in Direction::BOTH.into_iter().zip(&node.ports) {
            for (function, port) in ports.iter().enumerate() {
                let wanted = (direction.step(rank, size), direction.opposite(), function);
                if (port.peer_rank, port.peer_direction, port.peer_function) != wanted {
                    let shown = |(r, d, f): (usize, Direction, usize)| {
                        format!("rank {r} {} function {f}", d.as_str())
                    };
                    let found = (port.peer_rank, port.peer_direction, port.peer_function);
                    findings.push(
                        Finding::problem(
                            "link-not-reciprocal",
                            format!("its peer is {}", shown(found)),
                            shown(wanted),
                        )
                        .on(&node.alias)
                        .at(&port.netdev),
                    );
                }
            }
        }
        if node
            .ports
            .iter()
            .flatten()
            .any(|p| p.netdev == node.management_netdev)
        {
            findings.push(
                Finding::problem(
                    "management-on-fabric",
                    "management_netdev is a fabric port",
                    "another network device",
                )
                .on(&node.alias)
                .at(&node.management_netdev),
            );
        }
        let places = node
            .ports
            .each_ref()
            .map(|way| way.each_ref().map(|p| Place::of_netdev(&p.netdev)));
        for (function, port, place) in node
            .ports
            .iter()
            .zip(&places)
            .flat_map(|(w, p)| w.iter().zip(p).enumerate().map(|(f, (w, p))| (f, w, p)))
        {
            let domains: std::collections::BTreeSet<u32> = places
                .iter()
                .flatten()
                .flatten()
                .map(|p| p.pci_domain)
                .collect();
            let found = match place {
                None => Some("its name does not tell its PCI domain and port".to_owned()),
                Some(place)
                    if domains.iter().position(|d| *d == place.pci_domain) != Some(function) =>
                {
                    Some(format!(
                        "function {function} is in PCI domain {:04x}",
                        place.pci_domain
                    ))
                }
                Some(_) => None,
            };
            findings.extend(found.map(|found| {
                Finding::problem(
                    "port-place-unknown",
                    found,
                    "a name like enP2p1s0f1np1, functions numbered by rising PCI domain",
                )
                .on(&node.alias)
                .at(&port.netdev)
            }));
        }
        let mut numbers: Vec<(Option<Place>, Direction, usize)> = Vec::new();
        for direction in Direction::BOTH {
            numbers.extend((0..DOMAINS).map(|f| (places[direction as usize][f], direction, f)));
        }
        numbers.sort_by_key(|(place, _, function)| (*function, *place));
        let alias = node.alias;
        for pair in numbers
            .windows(2)
            .filter(|pair| pair[0].2 == pair[1].2 && pair[0].0.is_some() && pair[0].0 == pair[1].0)
        {
            let found = format!(
                "both ports of function {} have the same port number",
                pair[0].2
            );
            findings.push(Finding::problem("port-numbers", found, "one of each").on(&alias));
        }
        let index = |direction: Direction, function: usize| {
            numbers
                .iter()
                .position(|(_, d, f)| (*d, *f) == (direction, function))
                .unwrap_or_default()
        };
        let [clockwise, counter] = node.ports;
        let place = |direction: Direction, [a, b]: [TopologyPort; DOMAINS]| {
            let port = |f: usize, p: TopologyPort| RingPort {
                netdev: p.netdev,
                rdma: p.rdma,
                pci: None,
                ipv4: p.ipv4,
                mac: p.mac,
                hca_index: index(direction, f),
            };
            [port(0, a), port(1, b)]
        };
        nodes.push(Node {
            host: alias,
            ports: [
                place(Direction::Clockwise, clockwise),
                place(Direction::CounterClockwise, counter),
            ],
            management_netdev: Some(node.management_netdev),
        });
    }
    let ring = Ring { nodes };
    findings.extend(ring.check());
    (findings.len() == before).then_some(ring)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    status: &'static str,
    group_id: u32,
    socket_direct_functions: usize,
    flow_label_base: u32,
    shared_diagonal_flow_label: bool,
    endpoint_route_strategy: &'static str,
    standard_ether_type: u16,
    marked_ether_type: u16,
    standard_udp_destination_port: u16,
    roce_gid_index: u8,
    bounded_runtime_seconds: u32,
    expected_ethernet_mtu: u32,
    expected_roce_mtu: u32,
    orchestration: Orchestration<'a>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tc_rule_identity_overrides: BTreeMap<&'a str, IdentityRow>,
    ranks: Vec<RankRow<'a>>,
}

#[derive(Serialize)]
struct Orchestration<'a> {
    host_helper_path: &'a str,
    remote_state_root: &'a str,
}

#[derive(Serialize)]
struct IdentityRow {
    preference: u16,
    handle: u32,
}

#[derive(Serialize)]
struct RankRow<'a> {
    rank: usize,
    ssh_alias: &'a HostName,
    management_netdev: &'a str,
    ports: Ways<'a>,
}

#[derive(Serialize)]
struct Ways<'a> {
    clockwise: Vec<RankPort<'a>>,
    counter_clockwise: Vec<RankPort<'a>>,
}

#[derive(Serialize)]
struct RankPort<'a> {
    function: usize,
    netdev: &'a NetdevName,
    rdma_device: &'a RdmaName,
    ipv4_cidr: Cidr,
    mac: Mac,
    peer_rank: usize,
    peer_direction: Direction,
    peer_function: usize,
}

/// A warning when the document of `ring` cannot be planned from: it has no PCI addresses, so the names
/// of its ports have to tell where they sit.
pub(super) fn unreadable(ring: &Ring) -> Option<Finding> {
    let ports = ring.nodes.iter().flat_map(|node| {
        node.by_hca_index()
            .into_iter()
            .map(move |(_, _, port)| (&node.host, port))
    });
    let silent: Vec<String> = ports
        .filter(|(_, port)| Place::of_netdev(&port.netdev).is_none())
        .map(|(host, port)| format!("{host} {}", port.netdev))
        .collect();
    let first = silent.first()?;
    Some(
        Finding::warning(
            "topology-names",
            format!(
                "the names of {} ({first} first) do not tell their PCI domain and port",
                ends::count(silent.len(), "port")
            ),
            "names like enP2p1s0f1np1",
        )
        .at("fabric.json")
        .advise("plan --topology cannot read this one; the inventories can be planned from again"),
    )
}

/// The network device that carries management: the known one, else the usual one. The document wants
/// one that is no fabric port.
fn management_netdev(node: &Node) -> &str {
    let is_fabric = |name: &str| {
        node.by_hca_index()
            .iter()
            .any(|(_, _, port)| port.netdev.as_str() == name)
    };
    match &node.management_netdev {
        Some(name) => name.as_str(),
        None if is_fabric(mesh::DEFAULT_MANAGEMENT_NETDEV) => "lo",
        None => mesh::DEFAULT_MANAGEMENT_NETDEV,
    }
}

/// `fabric.json` of `ring`.
pub fn fabric_json(ring: &Ring, gid_index: u8, extras: &Extras) -> String {
    let size = ring.size();
    let way = |rank: usize, direction: Direction| -> Vec<RankPort> {
        (0..DOMAINS)
            .map(|function| {
                let port = ring.port(rank, direction, function);
                RankPort {
                    function,
                    netdev: &port.netdev,
                    rdma_device: &port.rdma,
                    ipv4_cidr: Cidr {
                        address: port.ipv4.address,
                        prefix: 32,
                    },
                    mac: port.mac,
                    peer_rank: direction.step(rank, size),
                    peer_direction: direction.opposite(),
                    peer_function: function,
                }
            })
            .collect()
    };
    pretty(&Document {
        schema: SCHEMA,
        status: STATUS,
        group_id: extras.group_id,
        socket_direct_functions: DOMAINS,
        flow_label_base: mesh::FLOW_LABEL,
        shared_diagonal_flow_label: true,
        endpoint_route_strategy: match extras.strategy {
            RouteStrategy::AdjacentGateway => ADJACENT_GATEWAY,
            RouteStrategy::ScopeLink => SCOPE_LINK,
        },
        standard_ether_type: mesh::IPV4_ETHERTYPE,
        marked_ether_type: mesh::MARKED_ETHERTYPE,
        standard_udp_destination_port: mesh::ROCE_UDP_PORT,
        roce_gid_index: gid_index,
        bounded_runtime_seconds: extras.bounded_runtime_seconds,
        expected_ethernet_mtu: mesh::ETHERNET_MTU,
        expected_roce_mtu: mesh::ROCE_MTU,
        orchestration: Orchestration {
            host_helper_path: &extras.host_helper_path,
            remote_state_root: &extras.remote_state_root,
        },
        tc_rule_identity_overrides: extras
            .identities
            .iter()
            .map(|(name, id)| {
                (
                    name.as_str(),
                    IdentityRow {
                        preference: id.pref,
                        handle: id.handle,
                    },
                )
            })
            .collect(),
        ranks: ring
            .nodes
            .iter()
            .enumerate()
            .map(|(rank, node)| RankRow {
                rank,
                ssh_alias: &node.host,
                management_netdev: management_netdev(node),
                ports: Ways {
                    clockwise: way(rank, Direction::Clockwise),
                    counter_clockwise: way(rank, Direction::CounterClockwise),
                },
            })
            .collect(),
    })
}
