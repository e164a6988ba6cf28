//! Ring to plan: paths, routes, rules, markers, peer maps and environment.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::names::HostName;
use crate::plan::SIZE_CAPS;
use crate::plan::mesh::{self, DOMAINS};
use crate::plan::ring::{Direction, Ring, RingPort};
use crate::plan::{
    Env, EtherType, MarkerRow, NeighbourRow, OppositePaths, PathKind, PathRow, Plan, PortRow,
    RouteRow, RuleRow, SCHEMA,
};

/// How a source reaches the opposite node's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteStrategy {
    /// A route through the neighbour's address.
    AdjacentGateway,
    /// A scope-link route and a permanent neighbour entry with the neighbour's MAC.
    ScopeLink,
}

/// Preference and handle of a diagonal's rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleIdentity {
    /// tc preference.
    pub pref: u16,
    /// tc handle.
    pub handle: u32,
}

/// What a plan depends on beside the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choices {
    /// Paths per opposite pair.
    pub opposite_paths: OppositePaths,
    /// GID index of every port.
    pub gid_index: u8,
    /// Smallest applied hairpin queue size, packets.
    pub hairpin_queue_size: u32,
    /// Hairpin queue size to set; none to keep what is.
    pub hairpin_queue_wanted: Option<u32>,
    /// How sources reach opposite nodes.
    pub strategy: RouteStrategy,
    /// Rule identities other than the numbering's, by the diagonal's name.
    pub identities: BTreeMap<String, RuleIdentity>,
}

/// A diagonal by its place: `rank` to the opposite node, first step `direction`, in `domain`.
#[derive(Clone, Copy)]
struct Diagonal {
    rank: usize,
    direction: Direction,
    domain: usize,
}

impl Diagonal {
    fn via(self, size: usize) -> usize {
        self.direction.step(self.rank, size)
    }

    fn to(self, size: usize) -> usize {
        self.direction.step(self.via(size), size)
    }

    /// Its number in the order (source, direction, domain), which gives preference and handle.
    fn number(self) -> usize {
        (self.rank * Direction::BOTH.len() + self.direction as usize) * DOMAINS + self.domain
    }

    fn name(self, size: usize) -> String {
        format!(
            "rank{}-to-rank{}-diagonal-{}-via-rank{}-function{}",
            self.rank,
            self.to(size),
            self.direction.as_str(),
            self.via(size),
            self.domain
        )
    }

    /// Whether it is one of the two default paths of its pair: with low the smaller rank of the
    /// pair, domain 0 goes through low+1 and domain 1 through low-1.
    fn is_default(self, size: usize) -> bool {
        let low = self.rank.min(self.to(size));
        let way = if self.domain == 0 {
            Direction::Clockwise
        } else {
            Direction::CounterClockwise
        };
        self.via(size) == way.step(low, size)
    }
}

/// Every place a path can start from, in path order.
fn places(size: usize) -> impl Iterator<Item = Diagonal> {
    (0..size).flat_map(|rank| {
        Direction::BOTH.into_iter().flat_map(move |direction| {
            (0..DOMAINS).map(move |domain| Diagonal {
                rank,
                direction,
                domain,
            })
        })
    })
}

/// Names of all diagonals of a ring, in path order.
pub(super) fn diagonal_names(size: usize) -> Vec<String> {
    places(size).map(|d| d.name(size)).collect()
}

/// The plan of `ring` for `hosts` in TP rank order, or why there can be none.
///
/// `hosts` and the ring's nodes are the same names; who calls has checked that.
pub fn assemble(ring: &Ring, hosts: &[HostName], choices: &Choices) -> Result<Plan, Vec<Finding>> {
    let size = ring.size();
    let host = |rank: usize| ring.nodes[rank].host.clone();
    let selected =
        |d: &Diagonal| choices.opposite_paths == OppositePaths::Four || d.is_default(size);

    let ports = (0..size)
        .flat_map(|rank| {
            ring.nodes[rank]
                .by_hca_index()
                .into_iter()
                .map(move |(dir, dom, port)| (rank, dir, dom, port))
        })
        .map(|(rank, direction, domain, port)| {
            let peer = direction.step(rank, size);
            PortRow {
                host: host(rank),
                netdev: port.netdev.clone(),
                rdma: port.rdma.clone(),
                pci: port.pci,
                domain,
                direction,
                ipv4: port.ipv4,
                mac: port.mac,
                peer_host: host(peer),
                peer_netdev: ring.port(peer, direction.opposite(), domain).netdev.clone(),
            }
        })
        .collect();

    let mut paths = Vec::new();
    let mut routes = Vec::new();
    let mut neighbours = Vec::new();
    let mut rules = Vec::new();
    let mut markers: Vec<MarkerRow> = Vec::new();

    for d in places(size) {
        let (via, to) = (d.via(size), d.to(size));
        let source = ring.port(d.rank, d.direction, d.domain);
        paths.push(PathRow {
            name: format!(
                "rank{}-to-rank{via}-direct-{}-function{}",
                d.rank,
                d.direction.as_str(),
                d.domain
            ),
            kind: PathKind::Direct,
            from: host(d.rank),
            to: host(via),
            via: None,
            domain: d.domain,
            device: source.rdma.clone(),
            flow_label: None,
        });
        if !selected(&d) {
            continue;
        }
        let name = d.name(size);
        let ingress = ring.port(via, d.direction.opposite(), d.domain);
        let egress = ring.port(via, d.direction, d.domain);
        let destination = ring.port(to, d.direction.opposite(), d.domain);
        routes.push(RouteRow {
            host: host(d.rank),
            destination: destination.ipv4.address,
            gateway: match choices.strategy {
                RouteStrategy::AdjacentGateway => Some(ingress.ipv4.address),
                RouteStrategy::ScopeLink => None,
            },
            dev: source.netdev.clone(),
            src: source.ipv4.address,
        });
        if choices.strategy == RouteStrategy::ScopeLink {
            neighbours.push(NeighbourRow {
                host: host(d.rank),
                dev: source.netdev.clone(),
                address: destination.ipv4.address,
                mac: ingress.mac,
            });
        }
        let identity = identity(&d, &name, choices);
        rules.push(RuleRow {
            host: host(via),
            dev: ingress.netdev.clone(),
            pref: identity.pref,
            handle: identity.handle,
            protocol: EtherType(mesh::MARKED_ETHERTYPE),
            src_mac: source.mac,
            dst_mac: ingress.mac,
            set_ethertype: EtherType(mesh::IPV4_ETHERTYPE),
            set_dst_mac: destination.mac,
            redirect: egress.netdev.clone(),
        });
        markers.push(MarkerRow {
            host: host(d.rank),
            device: source.rdma.clone(),
            udp_source_port: mesh::MARKED_UDP_SOURCE_PORT,
            ethertype: EtherType(mesh::MARKED_ETHERTYPE),
        });
        paths.push(PathRow {
            name,
            kind: PathKind::Diagonal,
            from: host(d.rank),
            to: host(to),
            via: Some(host(via)),
            domain: d.domain,
            device: source.rdma.clone(),
            flow_label: Some(mesh::FLOW_LABEL),
        });
    }

    let peer_maps = peer_maps(ring, hosts, choices.opposite_paths);
    let hcas = hca_names(ring);
    if choices.opposite_paths == OppositePaths::Four {
        let findings = engine_refuses_four_paths(&peer_maps, &hcas);
        if !findings.is_empty() {
            return Err(findings);
        }
    }
    let cap = mesh::size_cap(choices.hairpin_queue_size);
    let env = env(&hcas, &peer_maps, cap, choices);
    Ok(Plan {
        schema: SCHEMA,
        hosts: hosts.to_vec(),
        ring: ring.nodes.iter().map(|n| n.host.clone()).collect(),
        opposite_paths: choices.opposite_paths,
        gid_index: choices.gid_index,
        mtu: mesh::ETHERNET_MTU,
        hairpin_queue_size: choices.hairpin_queue_size,
        size_cap_bytes: cap,
        hairpin_queue_wanted: choices.hairpin_queue_wanted,
        ports,
        paths,
        routes,
        neighbours,
        rules,
        markers,
        peer_maps,
        env,
    })
}

fn identity(d: &Diagonal, name: &str, choices: &Choices) -> RuleIdentity {
    choices.identities.get(name).copied().unwrap_or_else(|| {
        let number = mesh::FIRST_PREFERENCE + d.number() as u32;
        // Preferences end at 65535: 49152 + 16383 leaves room for rings of thousands of nodes.
        RuleIdentity {
            pref: number as u16,
            handle: number,
        }
    })
}

/// Names of the HCAs in HCA order. All hosts have the same; who built the ring has checked that.
fn hca_names(ring: &Ring) -> String {
    let names: Vec<&str> = ring.nodes[0]
        .by_hca_index()
        .into_iter()
        .map(|(_, _, p)| p.rdma.as_str())
        .collect();
    names.join(",")
}

/// One map per TP rank, joined by `;`: `peer=i/j` by rising peer, where i and j are the local HCA
/// indices of the peer's domain-0 and domain-1 path.
fn peer_maps(ring: &Ring, hosts: &[HostName], opposite_paths: OppositePaths) -> String {
    let size = ring.size();
    let rank_of = |host: &HostName| ring.nodes.iter().position(|n| n.host == *host);
    let tp_of = |rank: usize| hosts.iter().position(|h| *h == ring.nodes[rank].host);
    let index = |rank: usize, direction, domain| {
        let port: &RingPort = ring.port(rank, direction, domain);
        port.hca_index
    };
    let maps = hosts.iter().filter_map(rank_of).map(|rank| {
        let mut entries: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
        for direction in Direction::BOTH {
            let neighbour = direction.step(rank, size);
            entries
                .entry(tp_of(neighbour))
                .or_default()
                .extend((0..DOMAINS).map(|domain| index(rank, direction, domain)));
        }
        let mut defaults: Vec<Diagonal> = places(size)
            .filter(|d| d.rank == rank && d.is_default(size))
            .collect();
        defaults.sort_by_key(|d| d.domain);
        for d in &defaults {
            entries
                .entry(tp_of(d.to(size)))
                .or_default()
                .push(index(rank, d.direction, d.domain));
        }
        if opposite_paths == OppositePaths::Four {
            // The engine's order: after the two defaults, the same ways in the other domain.
            for d in &defaults {
                entries.entry(tp_of(d.to(size))).or_default().push(index(
                    rank,
                    d.direction,
                    DOMAINS - 1 - d.domain,
                ));
            }
        }
        let entries: Vec<String> = entries
            .into_iter()
            .filter_map(|(peer, indices)| {
                let indices: Vec<String> = indices.iter().map(usize::to_string).collect();
                Some(format!("{}={}", peer?, indices.join("/")))
            })
            .collect();
        entries.join(",")
    });
    maps.collect::<Vec<_>>().join(";")
}

/// The only maps and HCA names that the engine takes with four paths per opposite pair.
const FOUR_PATH_MAPS: &str =
    "1=0/2,2=0/3/2/1,3=1/3;0=1/3,2=0/2,3=0/3/2/1;0=1/2/3/0,1=1/3,3=0/2;0=0/2,1=1/2/3/0,2=1/3";
const FOUR_PATH_HCAS: &str = "rocep1s0f0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1";

fn engine_refuses_four_paths(maps: &str, hcas: &str) -> Vec<Finding> {
    let advice = "the engine takes four paths per opposite pair on that layout alone; use --opposite-paths 2";
    let mut findings = Vec::new();
    if maps != FOUR_PATH_MAPS {
        findings.push(
            Finding::problem(
                "four-path-maps",
                format!("the peer map of this ring is {maps}"),
                FOUR_PATH_MAPS,
            )
            .at("--opposite-paths 4")
            .advise(advice),
        );
    }
    if hcas != FOUR_PATH_HCAS {
        findings.push(
            Finding::problem(
                "four-path-hcas",
                format!("the HCAs of this ring are {hcas}"),
                FOUR_PATH_HCAS,
            )
            .at("--opposite-paths 4")
            .advise(advice),
        );
    }
    findings
}

fn env(hcas: &str, maps: &str, cap: u32, choices: &Choices) -> Env {
    let mut env = Env::default();
    let mut set = |name: &str, value: String| env.0.push((name.to_owned(), value));
    set("DSV41_ROCE_RING", "1".into());
    set("SGLANG_ROCE_ALLREDUCE", "1".into());
    for name in SIZE_CAPS {
        set(name, cap.to_string());
    }
    set("B12X_ROCE_HCA", hcas.into());
    set("B12X_ROCE_PEER_HCA_MAPS", maps.into());
    set("B12X_ROCE_TWO_WAVE_THRESHOLD_BYTES", "0".into());
    if choices.gid_index != mesh::PREFERRED_GID_INDEX {
        set("B12X_ROCE_GID_INDEX", choices.gid_index.to_string());
    }
    // The engine's contract: the last word of the line.
    if choices.opposite_paths == OppositePaths::Four {
        set("B12X_ROCE_OPPOSITE_PATHS", "4".into());
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ring::Node;

    /// A ring of any size, with names and addresses that say where a port is.
    fn ring(size: usize) -> Ring {
        let port = |rank: usize, direction: Direction, domain: usize| {
            let function = direction as usize;
            let cable = if direction == Direction::Clockwise {
                rank
            } else {
                (rank + size - 1) % size
            };
            let end = 1 + function;
            RingPort {
                netdev: format!("enP{domain}p1s0f{function}").parse().unwrap(),
                rdma: format!("roceP{domain}p1s0f{function}").parse().unwrap(),
                pci: None,
                ipv4: format!("10.{domain}.{cable}.{end}/24").parse().unwrap(),
                mac: format!("02:00:00:{rank:02x}:{domain:02x}:{function:02x}")
                    .parse()
                    .unwrap(),
                hca_index: domain * 2 + function,
            }
        };
        let node = |rank: usize| Node {
            host: format!("n{rank}").parse().unwrap(),
            ports: Direction::BOTH
                .map(|direction| [0, 1].map(|domain| port(rank, direction, domain))),
            management_netdev: None,
        };
        Ring {
            nodes: (0..size).map(node).collect(),
        }
    }

    fn plan_of(size: usize) -> Plan {
        let ring = ring(size);
        assert_eq!(ring.check(), []);
        let hosts: Vec<HostName> = ring.nodes.iter().map(|n| n.host.clone()).collect();
        let choices = Choices {
            opposite_paths: OppositePaths::Two,
            gid_index: 3,
            hairpin_queue_size: 1024,
            hairpin_queue_wanted: None,
            strategy: RouteStrategy::AdjacentGateway,
            identities: BTreeMap::new(),
        };
        assemble(&ring, &hosts, &choices).unwrap()
    }

    #[test]
    fn nothing_here_depends_on_a_ring_of_four() {
        for size in 4..=8 {
            let plan = plan_of(size);
            assert_eq!(plan.ports.len(), 4 * size);
            assert_eq!(
                plan.paths
                    .iter()
                    .filter(|p| p.kind == PathKind::Direct)
                    .count(),
                4 * size
            );
            let diagonals: Vec<&PathRow> = plan
                .paths
                .iter()
                .filter(|p| p.kind == PathKind::Diagonal)
                .collect();
            assert_eq!(diagonals.len(), 2 * size, "{size}");
            for d in &diagonals {
                assert!(
                    diagonals.iter().any(|r| (&r.from, &r.to, &r.via, r.domain)
                        == (&d.to, &d.from, &d.via, d.domain)),
                    "{} has no way back",
                    d.name
                );
            }
            let mut prefs: Vec<u16> = plan.rules.iter().map(|r| r.pref).collect();
            prefs.dedup();
            assert_eq!(prefs.len(), plan.rules.len());
            assert!(
                plan.rules
                    .iter()
                    .all(|r| u32::from(r.pref) == r.handle && r.handle >= mesh::FIRST_PREFERENCE)
            );
        }
    }

    #[test]
    fn the_load_of_the_selected_diagonals_on_each_cable_is_the_published_one() {
        // By cable (ring ranks i and i+1): diagonals on domain 0 and on domain 1.
        let plan = plan_of(4);
        let rank = |host: &HostName| plan.ring.iter().position(|h| h == host).unwrap();
        let mut load = [[0; 2]; 4];
        for path in plan.paths.iter().filter(|p| p.kind == PathKind::Diagonal) {
            let stops = [
                rank(&path.from),
                rank(path.via.as_ref().unwrap()),
                rank(&path.to),
            ];
            for hop in stops.windows(2) {
                let cable = if (hop[0] + 1) % 4 == hop[1] {
                    hop[0]
                } else {
                    hop[1]
                };
                load[cable][path.domain] += 1;
            }
        }
        assert_eq!(load, [[2, 2], [4, 0], [2, 2], [0, 4]]);
    }

    #[test]
    fn a_host_route_leads_through_the_neighbour_to_the_port_that_faces_it() {
        let plan = plan_of(4);
        let rows: Vec<String> = plan
            .routes
            .iter()
            .filter(|r| r.host.as_str() == "n0")
            .map(|r| {
                format!(
                    "{} via {} dev {} src {}",
                    r.destination,
                    r.gateway.unwrap(),
                    r.dev,
                    r.src
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                "10.0.1.2 via 10.0.0.2 dev enP0p1s0f0 src 10.0.0.1",
                "10.1.2.1 via 10.1.3.1 dev enP1p1s0f1 src 10.1.3.2"
            ]
        );
    }
}
