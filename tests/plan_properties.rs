//! Facts about plans that hold for every ring, checked on random rings, random faults and garbage.
//!
//! `PROPTEST_CASES` sets how many of each are tried.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::Ipv4Addr;

use hairpin_mesh::doctor::{Case, examine};
use hairpin_mesh::facts::{Applied, Fact, GidEntry, Gids, Inventory, PortFacts, ROCE_V2};
use hairpin_mesh::finding::{Finding, Severity};
use hairpin_mesh::names::{Cidr, Gid, HostName, Mac, NetdevName, PciAddress};
use hairpin_mesh::plan::{Options, PathKind, PathRow, Plan, Planned, PortRow, plan};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::FileFailurePersistence;
use serde_json::{Value, json};

const HOSTS: usize = 4;
/// Fabric ports of a host: two domains with two ports each; number `2 * domain + port`.
const PORTS: usize = 4;

/// A healthy ring, as choices that make one.
#[derive(Debug, Clone)]
struct Recipe {
    /// In TP order.
    names: Vec<HostName>,
    /// Hosts (by TP rank) around the ring.
    around: Vec<usize>,
    /// By TP rank: whether port 0 faces the previous host around the ring and port 1 the next.
    flipped: Vec<bool>,
    /// First /24 of the eight subnets in 10.0.0.0/8.
    first_subnet: u16,
    /// By cable (between a host and the next around the ring) and domain: prefix length, place in
    /// its /24, and whether the next host has the lower address.
    subnets: Vec<(u8, u8, bool)>,
    mac_seed: u64,
    pci: Pci,
    hcas: [&'static str; PORTS],
    gids: GidTables,
    /// By port of the ring (`PORTS * host + port`).
    ports: Vec<PortChoices>,
}

#[derive(Debug, Clone)]
enum Pci {
    /// Not in the inventory: names tell the place.
    Absent,
    /// In the inventory; names of the netdevs tell it as well, or nothing.
    Present {
        domains: (u32, u32),
        bus: u8,
        functions: (u8, u8),
        telling_names: bool,
    },
}

#[derive(Debug, Clone)]
enum GidTables {
    /// As today's tool writes them.
    IndexThree,
    /// Whole tables, the address at this index.
    Whole(u8),
}

/// What may differ from port to port.
#[derive(Debug, Clone)]
struct PortChoices {
    /// Place in the document.
    order: u16,
    second_address: bool,
    queue: Option<u32>,
    applied: Applied,
    steering: bool,
    /// Whether facts that need root or libibverbs are known.
    privileged: bool,
}

prop_compose! {
    fn port_choices()(
        order: u16,
        second_address in prop::bool::weighted(0.2),
        queue in select(vec![None, Some(1024), Some(2048), Some(8192)]),
        applied in select(vec![Applied::Applied, Applied::Pending, Applied::Unknown, Applied::Unsaid]),
        steering: bool,
        privileged: bool,
    ) -> PortChoices {
        PortChoices { order, second_address, queue, applied, steering, privileged }
    }
}

/// Four names, each with its own ending, so that none is a part of another.
fn names() -> impl Strategy<Value = Vec<HostName>> {
    vec("[A-Za-z0-9][A-Za-z0-9_.-]{0,40}", HOSTS).prop_map(|stems| {
        stems
            .iter()
            .enumerate()
            .map(|(i, stem)| format!("{stem}-h{i}").parse().unwrap())
            .collect()
    })
}

fn pci() -> impl Strategy<Value = Pci> {
    prop_oneof![
        Just(Pci::Absent),
        (
            prop_oneof![
                Just((0, 2)),
                (0u32..0xffff).prop_flat_map(|a| (Just(a), a + 1..=0x10000))
            ],
            any::<u8>(),
            (0u8..7).prop_flat_map(|a| (Just(a), a + 1..8)),
            any::<bool>(),
        )
            .prop_map(|(domains, bus, functions, telling_names)| Pci::Present {
                domains,
                bus,
                functions,
                telling_names
            }),
    ]
}

prop_compose! {
    fn recipe()(
        names in names(),
        around in Just((0..HOSTS).collect::<Vec<_>>()).prop_shuffle(),
        flipped in vec(any::<bool>(), HOSTS),
        first_subnet in 0u16..0xff00,
        subnets in vec((select(vec![24u8, 30, 31]), 0u8..60, any::<bool>()), HOSTS * 2),
        mac_seed: u64,
        pci in pci(),
        hcas in select(vec![
            ["rocep1s0f0", "rocep1s0f1", "roceP2p1s0f0", "roceP2p1s0f1"],
            ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"],
            ["z", "y", "x", "w"],
        ]),
        gids in prop_oneof![
            Just(GidTables::IndexThree), Just(GidTables::Whole(3)), any::<u8>().prop_map(GidTables::Whole)
        ],
        ports in vec(port_choices(), HOSTS * PORTS),
    ) -> Recipe {
        Recipe { names, around, flipped, first_subnet, subnets, mac_seed, pci, hcas, gids, ports }
    }
}

impl Recipe {
    /// The host at the other end of a port's cable, and the cable's number.
    fn cable(&self, host: usize, port: usize) -> (usize, usize) {
        let place = self.around.iter().position(|h| *h == host).unwrap();
        let to_next = (port % 2 == 0) != self.flipped[host];
        if to_next {
            (self.around[(place + 1) % HOSTS], place)
        } else {
            let before = (place + HOSTS - 1) % HOSTS;
            (self.around[before], before)
        }
    }

    fn address(&self, host: usize, port: usize) -> Cidr {
        let (_, cable) = self.cable(host, port);
        let number = 2 * cable + port / 2;
        let (prefix, place, next_is_lower) = self.subnets[number];
        let network = 0x0a00_0000 + (u32::from(self.first_subnet) + number as u32) * 256;
        let (network, lowest) = match prefix {
            31 => (network + 2 * u32::from(place), 0),
            30 => (network + 4 * u32::from(place), 1),
            _ => (network, u32::from(place) + 1),
        };
        let higher = (self.around[cable] == host) == next_is_lower;
        Cidr {
            address: Ipv4Addr::from(network + lowest + u32::from(higher)),
            prefix,
        }
    }

    fn mac(&self, host: usize, port: usize) -> Mac {
        let [a, b, c, d, e, f, ..] = self.mac_seed.to_be_bytes();
        Mac([a & 0xfe | 0x02, b, c, d, e, f ^ (PORTS * host + port) as u8])
    }

    fn netdev(&self, host: usize, port: usize) -> NetdevName {
        let name = match &self.pci {
            Pci::Present {
                telling_names: false,
                ..
            } => format!("eth{}", 7 * host + 5 * port),
            _ => [
                "enp1s0f0np0",
                "enp1s0f1np1",
                "enP2p1s0f0np0",
                "enP2p1s0f1np1",
            ][port]
                .to_owned(),
        };
        name.parse().unwrap()
    }

    fn gids(&self, host: usize, port: usize) -> Gids {
        let (netdev, gid) = (
            Some(self.netdev(host, port)),
            Gid::ipv4_mapped(self.address(host, port).address),
        );
        match self.gids {
            GidTables::IndexThree => Gids::IndexThree { gid, netdev },
            GidTables::Whole(index) => {
                let mut link_local = [0; 16];
                link_local[..2].copy_from_slice(&[0xfe, 0x80]);
                link_local[15] = 1;
                let entry = |index, gid, kind: &str, netdev: &Option<NetdevName>| GidEntry {
                    index,
                    gid,
                    kind: kind.to_owned(),
                    netdev: netdev.clone(),
                };
                Gids::Table(vec![
                    entry(index ^ 4, Gid(link_local), ROCE_V2, &netdev),
                    entry(index, gid, ROCE_V2, &netdev),
                    entry(index ^ 1, gid, "IB/RoCE v1", &netdev),
                    entry(index ^ 2, gid, ROCE_V2, &None),
                ])
            }
        }
    }

    fn port(&self, host: usize, port: usize) -> PortFacts {
        let choices = &self.ports[PORTS * host + port];
        let mut addresses = vec![self.address(host, port)];
        if choices.second_address {
            let address = Ipv4Addr::new(172, 16, (PORTS * host + port) as u8, 1);
            addresses.insert(
                usize::from(choices.order % 2),
                Cidr {
                    address,
                    prefix: 24,
                },
            );
        }
        PortFacts {
            netdev: self.netdev(host, port),
            rdma: Fact::Known(Some(self.hcas[port].parse().unwrap())),
            pci: match self.pci {
                Pci::Absent => Fact::unmentioned(),
                Pci::Present {
                    domains,
                    bus,
                    functions,
                    ..
                } => Fact::Known(Some(PciAddress {
                    domain: if port / 2 == 0 { domains.0 } else { domains.1 },
                    bus,
                    device: 0,
                    function: if port % 2 == 0 {
                        functions.0
                    } else {
                        functions.1
                    },
                })),
            },
            ipv4: Fact::Known(addresses),
            mac: self.mac(host, port),
            mtu: 9000,
            state: "up".into(),
            gids: self.gids(host, port),
            tc_offload: Fact::Known(true),
            hairpin_num_queues: Fact::Known(Some(4)),
            hairpin_queue_size: Fact::Known(choices.queue),
            hairpin_queue_applied: choices.applied,
            flow_steering_mode: Fact::Known(choices.steering.then(|| "hmfs".into())),
            eswitch_mode: if choices.privileged {
                Fact::Known(Some("legacy".into()))
            } else {
                Fact::unmentioned()
            },
            rdma_state: if choices.privileged {
                Fact::Known("ACTIVE".into())
            } else {
                Fact::unmentioned()
            },
            rdma_active_mtu: if choices.privileged {
                Fact::Known(4096)
            } else {
                Fact::unmentioned()
            },
            details: Default::default(),
        }
    }

    fn inventories(&self) -> Vec<Inventory> {
        (0..HOSTS)
            .map(|host| {
                let mut ports: Vec<(u16, PortFacts)> = (0..PORTS)
                    .map(|p| (self.ports[PORTS * host + p].order, self.port(host, p)))
                    .collect();
                ports.sort_by_key(|(order, _)| *order);
                Inventory {
                    host: self.names[host].clone(),
                    ports: ports.into_iter().map(|(_, facts)| facts).collect(),
                    management_netdev: Fact::Known(Some("enP7s7".parse().unwrap())),
                    node: Default::default(),
                    left_out: vec![],
                }
            })
            .collect()
    }

    /// TP ranks in ring order when `head` is the head.
    fn ring_from(&self, head: usize) -> Vec<usize> {
        let mut around = self.around.clone();
        if self.flipped[head] {
            around.reverse();
        }
        let place = around.iter().position(|h| *h == head).unwrap();
        around.rotate_left(place);
        around
    }

    /// The plan with the hosts in the TP order `order`.
    fn plan_of(&self, order: &[usize]) -> Planned {
        let inventories = self.inventories();
        let hosts: Vec<HostName> = order.iter().map(|i| self.names[*i].clone()).collect();
        let inventories: Vec<Inventory> = order.iter().map(|i| inventories[*i].clone()).collect();
        plan(&hosts, &inventories, &Options::default())
    }

    fn plan(&self) -> Plan {
        made(self.plan_of(&[0, 1, 2, 3]))
    }
}

fn made(planned: Planned) -> Plan {
    match planned.plan {
        Some((plan, _)) => plan,
        None => panic!("refused: {:#?}", planned.findings),
    }
}

fn problems(planned: &Planned) -> Vec<&Finding> {
    planned
        .findings
        .iter()
        .filter(|f| f.severity == Severity::Problem)
        .collect()
}

// ---- what every plan has to be, worked out from its ports alone ----

struct Plans<'a>(&'a Plan);

impl Plans<'_> {
    /// The port of `host` that faces `peer` in `domain`.
    fn port(&self, host: &HostName, peer: &HostName, domain: usize) -> &PortRow {
        let mut found = self
            .0
            .ports
            .iter()
            .filter(|p| p.host == *host && p.peer_host == *peer && p.domain == domain);
        let port = found.next().expect("neighbours are joined in both domains");
        assert!(found.next().is_none(), "one port faces {peer}");
        port
    }

    fn diagonals(&self) -> Vec<&PathRow> {
        self.0
            .paths
            .iter()
            .filter(|p| p.kind == PathKind::Diagonal)
            .collect()
    }
}

/// Every check that needs nothing but the plan.
fn check_plan(plan: &Plan) {
    let plans = Plans(plan);
    let size = plan.ring.len();
    assert_eq!(
        BTreeSet::from_iter(&plan.ring),
        BTreeSet::from_iter(&plan.hosts)
    );
    assert_eq!(plan.ring[0], plan.hosts[0]);

    // Ports: both ends of a cable name each other, in one subnet and domain, one clockwise.
    assert_eq!(plan.ports.len(), PORTS * size);
    for port in &plan.ports {
        let peer = plans.port(&port.peer_host, &port.host, port.domain);
        assert_eq!(
            (&peer.netdev, &peer.peer_netdev),
            (&port.peer_netdev, &port.netdev)
        );
        assert_eq!(peer.ipv4.network(), port.ipv4.network());
        assert_ne!(peer.ipv4.address, port.ipv4.address);
        assert_eq!(peer.direction, port.direction.opposite());
        let rank = plan.ring.iter().position(|h| *h == port.host).unwrap();
        assert_eq!(plan.ring[port.direction.step(rank, size)], port.peer_host);
    }

    // Direct paths: one for each port. Diagonals: each with its reverse.
    let direct: BTreeSet<_> = plan
        .paths
        .iter()
        .filter(|p| p.kind == PathKind::Direct)
        .map(|p| {
            assert_eq!((&p.via, p.flow_label), (&None, None));
            assert_eq!(plans.port(&p.from, &p.to, p.domain).rdma, p.device);
            (&p.from, &p.device)
        })
        .collect();
    assert_eq!(
        direct,
        plan.ports.iter().map(|p| (&p.host, &p.rdma)).collect()
    );
    let diagonals = plans.diagonals();
    let places: HashSet<_> = diagonals
        .iter()
        .map(|p| (&p.from, &p.to, &p.via, p.domain))
        .collect();
    assert_eq!(places.len(), diagonals.len());
    for path in &diagonals {
        assert!(
            places.contains(&(&path.to, &path.from, &path.via, path.domain)),
            "{} has no reverse",
            path.name
        );
    }
    assert_eq!(
        diagonals.len(),
        size * usize::from(plan.opposite_paths.number())
    );
    assert_eq!(
        plan.paths
            .iter()
            .map(|p| &p.name)
            .collect::<HashSet<_>>()
            .len(),
        plan.paths.len()
    );

    // The default paths of a pair: domain 0 after its lower rank, domain 1 before it.
    if plan.opposite_paths.number() == 2 {
        for path in &diagonals {
            let rank = |host: &HostName| plan.ring.iter().position(|h| h == host).unwrap();
            let low = rank(&path.from).min(rank(&path.to));
            let via = if path.domain == 0 {
                low + 1
            } else {
                low + size - 1
            } % size;
            assert_eq!(path.via.as_ref(), Some(&plan.ring[via]), "{}", path.name);
        }
    }

    // Route, rule and marker of every diagonal, in its place in their lists.
    assert_eq!(
        [plan.routes.len(), plan.rules.len(), plan.markers.len()],
        [diagonals.len(); 3]
    );
    assert!(plan.neighbours.is_empty());
    for (i, path) in diagonals.iter().enumerate() {
        let (from, via, to) = (&path.from, path.via.as_ref().unwrap(), &path.to);
        let source = plans.port(from, via, path.domain);
        let ingress = plans.port(via, from, path.domain);
        let egress = plans.port(via, to, path.domain);
        let destination = plans.port(to, via, path.domain);
        assert_eq!((&path.device, path.flow_label), (&source.rdma, Some(16383)));
        let route = &plan.routes[i];
        assert_eq!(
            (&route.host, &route.dev, route.src),
            (from, &source.netdev, source.ipv4.address)
        );
        assert_eq!(
            (route.destination, route.gateway),
            (destination.ipv4.address, Some(ingress.ipv4.address))
        );
        assert!(
            source.ipv4.contains(ingress.ipv4.address) && !source.ipv4.contains(route.destination)
        );
        let rule = &plan.rules[i];
        assert_eq!(
            (&rule.host, &rule.dev, &rule.redirect),
            (via, &ingress.netdev, &egress.netdev)
        );
        assert_eq!(
            (rule.src_mac, rule.dst_mac, rule.set_dst_mac),
            (source.mac, ingress.mac, destination.mac)
        );
        assert_eq!(u32::from(rule.pref), rule.handle);
        assert_eq!((rule.protocol.0, rule.set_ethertype.0), (0x88b5, 0x0800));
        let marker = &plan.markers[i];
        assert_eq!(
            (&marker.host, &marker.device, marker.udp_source_port),
            (from, &source.rdma, 65535)
        );
    }
    let distinct = |keys: Vec<_>| {
        let count = keys.len();
        assert_eq!(
            keys.into_iter().collect::<HashSet<(_, _, String)>>().len(),
            count
        );
    };
    distinct(
        plan.rules
            .iter()
            .map(|r| (&r.host, &r.dev, r.pref.to_string()))
            .collect(),
    );
    distinct(
        plan.rules
            .iter()
            .map(|r| (&r.host, &r.dev, format!("{}>{}", r.src_mac, r.dst_mac)))
            .collect(),
    );
    let routes: HashSet<_> = plan
        .routes
        .iter()
        .map(|r| (&r.host, r.destination))
        .collect();
    assert_eq!(
        routes.len(),
        plan.routes.len(),
        "a host has one route to an address"
    );

    // The peer maps say for each TP rank which HCA starts the path to which peer.
    assert_eq!(readable_maps(plan), expected_maps(&plans));
    let env: BTreeMap<&str, &str> = plan
        .env
        .0
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    assert_eq!(env["B12X_ROCE_PEER_HCA_MAPS"], plan.peer_maps);
    assert_eq!(env["SGLANG_ROCE_MAX_SIZE"], plan.size_cap_bytes.to_string());
    assert_eq!(
        plan.size_cap_bytes,
        if plan.hairpin_queue_size < 8192 {
            81920
        } else {
            262144
        }
    );
}

/// `peer_maps` by names: host to peer to HCA indices.
type Maps = BTreeMap<String, BTreeMap<String, Vec<usize>>>;

fn readable_maps(plan: &Plan) -> Maps {
    let maps: Vec<&str> = plan.peer_maps.split(';').collect();
    assert_eq!(maps.len(), plan.hosts.len());
    let peers = |map: &str| -> BTreeMap<String, Vec<usize>> {
        map.split(',')
            .map(|entry| {
                let (peer, indices) = entry.split_once('=').unwrap();
                let indices = indices.split('/').map(|i| i.parse().unwrap()).collect();
                (
                    plan.hosts[peer.parse::<usize>().unwrap()].to_string(),
                    indices,
                )
            })
            .collect()
    };
    plan.hosts
        .iter()
        .zip(maps)
        .map(|(host, map)| (host.to_string(), peers(map)))
        .collect()
}

fn expected_maps(plans: &Plans) -> Maps {
    let mut maps = Maps::new();
    for domain in 0..2 {
        for path in plans.0.paths.iter().filter(|p| p.domain == domain) {
            let own: Vec<_> = plans
                .0
                .ports
                .iter()
                .filter(|p| p.host == path.from)
                .collect();
            let index = own.iter().position(|p| p.rdma == path.device).unwrap();
            maps.entry(path.from.to_string())
                .or_default()
                .entry(path.to.to_string())
                .or_default()
                .push(index);
        }
    }
    maps
}

/// The plan with every host called what `name` gives.
fn renamed(mut plan: Plan, name: &dyn Fn(&HostName) -> HostName) -> Plan {
    let each = |hosts: &mut dyn Iterator<Item = &mut HostName>| hosts.for_each(|h| *h = name(h));
    each(&mut plan.hosts.iter_mut());
    each(&mut plan.ring.iter_mut());
    each(
        &mut plan
            .ports
            .iter_mut()
            .flat_map(|p| [&mut p.host, &mut p.peer_host]),
    );
    each(
        &mut plan
            .paths
            .iter_mut()
            .flat_map(|p| [&mut p.from, &mut p.to].into_iter().chain(&mut p.via)),
    );
    each(&mut plan.routes.iter_mut().map(|r| &mut r.host));
    each(&mut plan.rules.iter_mut().map(|r| &mut r.host));
    each(&mut plan.markers.iter_mut().map(|m| &mut m.host));
    plan
}

// ---- an inventory as its document ----

fn fact<T>(fact: &Fact<T>, value: impl Fn(&T) -> Value) -> Value {
    match fact {
        Fact::Known(known) => value(known),
        Fact::NotObserved(why) => json!({ "not_observed": why }),
    }
}

fn text(text: &Option<impl ToString>) -> Value {
    json!(text.as_ref().map_or_else(String::new, |t| t.to_string()))
}

/// The document of an inventory, by the field list of the interface.
fn document(inventory: &Inventory) -> Value {
    let ports: serde_json::Map<String, Value> = inventory
        .ports
        .iter()
        .map(|p| (p.netdev.to_string(), port_document(p)))
        .collect();
    json!({
        "host": inventory.host.as_str(),
        "ports": ports,
        "management_netdev": fact(&inventory.management_netdev, |n| json!(n.as_ref().map(|n| n.as_str()))),
        "a key of a later version": [1, {}],
    })
}

fn port_document(port: &PortFacts) -> Value {
    let mut value = json!({
        "rdma": fact(&port.rdma, text),
        "ipv4": fact(&port.ipv4, |all| text(&all.first())),
        "ipv4_addresses": fact(&port.ipv4, |all| json!(all.iter().map(Cidr::to_string).collect::<Vec<_>>())),
        "mac": port.mac.to_string(),
        "mtu": port.mtu,
        "state": port.state,
        "tc_offload": fact(&port.tc_offload, |on| json!(if *on { "on" } else { "off" })),
        "hairpin_num_queues": fact(&port.hairpin_num_queues, text),
        "hairpin_queue_size": fact(&port.hairpin_queue_size, text),
        "flow_steering_mode": fact(&port.flow_steering_mode, text),
    });
    let mut set = |key: &str, v: Value| value[key] = v;
    if port.pci != Fact::unmentioned() {
        set("pci", fact(&port.pci, text));
    }
    if port.eswitch_mode != Fact::unmentioned() {
        set("eswitch_mode", fact(&port.eswitch_mode, text));
        set("rdma_state", fact(&port.rdma_state, |s| json!(s)));
        set("rdma_active_mtu", fact(&port.rdma_active_mtu, |m| json!(m)));
    }
    match port.hairpin_queue_applied {
        Applied::Unsaid => {}
        applied => set("hairpin_queue_state", json!(applied)),
    }
    match &port.gids {
        Gids::IndexThree { gid, netdev } => {
            set("gid3", json!(gid.to_string()));
            set("gid3_netdev", text(netdev));
        }
        Gids::Table(table) => {
            let third = table.iter().find(|e| e.index == 3);
            set(
                "gid3",
                json!(third.map_or(Gid::ZERO, |e| e.gid).to_string()),
            );
            set("gid3_netdev", text(&third.and_then(|e| e.netdev.clone())));
            let entry = |e: &GidEntry| json!({"index": e.index, "gid": e.gid.to_string(), "type": e.kind, "netdev": text(&e.netdev)});
            set("gids", table.iter().map(entry).collect());
        }
        Gids::NotObserved(why) => {
            set("gid3", json!({ "not_observed": why }));
            set("gid3_netdev", json!(""));
        }
    }
    value
}

// ---- faults ----

macro_rules! faults {
    ($($fault:ident)*) => {
        /// One thing that is wrong with one port (or its node).
        #[derive(Debug, Clone, Copy, PartialEq)]
        enum Fault { $($fault),* }
        const FAULTS: &[Fault] = &[$(Fault::$fault),*];
    };
}
faults! {
    LinkDown Mtu MacMulticast MacZero MacOfAnotherPort
    AddressGone AddressNotObserved AddressOfAnotherPort AddressUnusable AddressElsewhere
    PrefixOfAHost PrefixOther AddressesSwappedInDomain AddressesSwappedAcrossDomains
    GidOfAnotherAddress GidOfAnotherNetdev GidVersionOne GidZero GidsNotObserved
    OffloadOff OffloadNotObserved Steering SteeringNotObserved Switchdev
    RdmaDown RdmaMtu RdmaGone RdmaNotObserved RdmaOfAnotherPort RdmaNamedOtherwise
    PortMissing PortTooMany PlaceUnknown PciOfAnotherPort
}

/// A port by host (TP rank) and number, as `Recipe` counts.
type At = (usize, usize);

impl Fault {
    /// Whether the fault can be put into a ring of this recipe.
    fn applies(self, recipe: &Recipe) -> bool {
        match self {
            // Today's tool does not record the type of a GID.
            Fault::GidVersionOne => matches!(recipe.gids, GidTables::Whole(_)),
            Fault::PciOfAnotherPort => matches!(recipe.pci, Pci::Present { .. }),
            _ => true,
        }
    }

    /// What the refusal has to name: usually the port, else the least that tells where to look.
    fn names_port(self) -> bool {
        // A port that is not there, or that has another name for its device, cannot be named by
        // its own device name alone: the host is.
        !matches!(self, Fault::PortMissing | Fault::RdmaNamedOtherwise)
    }

    /// Puts the fault into port `at`; `other` is another port, for those that need two.
    fn put(self, recipe: &Recipe, inventories: &mut [Inventory], at: At, other: At) {
        let (mac, rdma, address) = (
            recipe.mac(other.0, other.1),
            recipe.hcas[other.1],
            recipe.address(other.0, other.1),
        );
        let own_address = recipe.address(at.0, at.1);
        // Sets a port's only address, and its GIDs to match.
        let set_address = |inventories: &mut [Inventory], at: At, address: Cidr| {
            let port = find(recipe, inventories, at);
            let was = port.ipv4.known().unwrap().clone();
            let own = recipe.address(at.0, at.1);
            port.ipv4 = Fact::Known(
                was.into_iter()
                    .map(|a| if a == own { address } else { a })
                    .collect(),
            );
            let (from, to) = (
                Gid::ipv4_mapped(own.address),
                Gid::ipv4_mapped(address.address),
            );
            each_gid(port, |gid, _| {
                if *gid == from {
                    *gid = to;
                }
            });
        };
        match self {
            Fault::AddressOfAnotherPort => return set_address(inventories, at, address),
            Fault::AddressUnusable => {
                let unusable = Cidr {
                    address: Ipv4Addr::new(10, 255, 255, 255),
                    prefix: 24,
                };
                find(recipe, inventories, at).ipv4 = Fact::Known(vec![unusable]);
                return;
            }
            Fault::AddressElsewhere => {
                find(recipe, inventories, at).ipv4 =
                    Fact::Known(vec!["192.168.7.1/24".parse().unwrap()]);
                return;
            }
            Fault::PrefixOfAHost => {
                return set_address(
                    inventories,
                    at,
                    Cidr {
                        prefix: 32,
                        ..own_address
                    },
                );
            }
            Fault::PrefixOther => {
                // A network with another prefix length is another network, whatever its address.
                return set_address(
                    inventories,
                    at,
                    Cidr {
                        prefix: own_address.prefix - 1,
                        ..own_address
                    },
                );
            }
            Fault::AddressesSwappedInDomain | Fault::AddressesSwappedAcrossDomains => {
                let with = if self == Fault::AddressesSwappedInDomain {
                    at.1 ^ 1
                } else {
                    at.1 ^ 2
                };
                let (a, b) = (own_address, recipe.address(at.0, with));
                set_address(inventories, at, b);
                return set_address(inventories, (at.0, with), a);
            }
            Fault::PortMissing | Fault::PortTooMany => {
                let netdev = recipe.netdev(at.0, at.1);
                let ports = &mut inventories[at.0].ports;
                let index = ports.iter().position(|p| p.netdev == netdev).unwrap();
                if self == Fault::PortMissing {
                    ports.remove(index);
                } else {
                    let more = PortFacts {
                        netdev: "enp9s0f7".parse().unwrap(),
                        mac: Mac([2, 0xff, 0, 0, 0, 1]),
                        ipv4: Fact::Known(vec!["192.168.7.1/24".parse().unwrap()]),
                        ..ports[index].clone()
                    };
                    ports.push(more);
                }
                return;
            }
            _ => {}
        }
        let pci = inventories[at.0]
            .ports
            .iter()
            .find(|p| p.netdev == recipe.netdev(at.0, at.1 ^ 1))
            .unwrap()
            .pci
            .clone();
        let port = find(recipe, inventories, at);
        let why = || "Operation not permitted (os error 1)".to_owned();
        match self {
            Fault::LinkDown => port.state = "lowerlayerdown".into(),
            Fault::Mtu => port.mtu = 1500,
            Fault::MacMulticast => port.mac.0[0] |= 1,
            Fault::MacZero => port.mac = Mac([0; 6]),
            Fault::MacOfAnotherPort => port.mac = mac,
            Fault::AddressGone => port.ipv4 = Fact::Known(Vec::new()),
            Fault::AddressNotObserved => port.ipv4 = Fact::NotObserved(why()),
            Fault::GidOfAnotherAddress => each_gid(port, |gid, _| gid.0[15] ^= 0x40),
            Fault::GidOfAnotherNetdev => {
                each_gid(port, |_, netdev| {
                    *netdev = netdev.as_ref().map(|_| "enp9s9".parse().unwrap())
                });
            }
            Fault::GidVersionOne => {
                if let Gids::Table(table) = &mut port.gids {
                    table.iter_mut().for_each(|e| e.kind = "IB/RoCE v1".into());
                }
            }
            Fault::GidZero => each_gid(port, |gid, _| *gid = Gid::ZERO),
            Fault::GidsNotObserved => port.gids = Gids::NotObserved(why()),
            Fault::OffloadOff => port.tc_offload = Fact::Known(false),
            Fault::OffloadNotObserved => port.tc_offload = Fact::NotObserved(why()),
            Fault::Steering => port.flow_steering_mode = Fact::Known(Some("smfs".into())),
            Fault::SteeringNotObserved => port.flow_steering_mode = Fact::NotObserved(why()),
            Fault::Switchdev => port.eswitch_mode = Fact::Known(Some("switchdev".into())),
            Fault::RdmaDown => port.rdma_state = Fact::Known("DOWN".into()),
            Fault::RdmaMtu => port.rdma_active_mtu = Fact::Known(1024),
            Fault::RdmaGone => port.rdma = Fact::Known(None),
            Fault::RdmaNotObserved => port.rdma = Fact::NotObserved(why()),
            Fault::RdmaOfAnotherPort => {
                let rdma = if other.1 == at.1 {
                    recipe.hcas[at.1 ^ 1]
                } else {
                    rdma
                };
                port.rdma = Fact::Known(Some(rdma.parse().unwrap()));
            }
            Fault::RdmaNamedOtherwise => {
                port.rdma = Fact::Known(Some("rocep7s0f0".parse().unwrap()))
            }
            Fault::PlaceUnknown => {
                port.pci = Fact::Known(None);
                // The name tells nothing; the GIDs go with it.
                let was = std::mem::replace(&mut port.netdev, "fabric".parse().unwrap());
                each_gid(port, |_, netdev| {
                    if *netdev == Some(was.clone()) {
                        *netdev = Some("fabric".parse().unwrap());
                    }
                });
            }
            Fault::PciOfAnotherPort => port.pci = pci,
            _ => unreachable!("{self:?} is put above"),
        }
    }
}

fn find<'a>(recipe: &Recipe, inventories: &'a mut [Inventory], at: At) -> &'a mut PortFacts {
    let netdev = recipe.netdev(at.0, at.1);
    inventories[at.0]
        .ports
        .iter_mut()
        .find(|p| p.netdev == netdev)
        .unwrap()
}

fn each_gid(port: &mut PortFacts, mut change: impl FnMut(&mut Gid, &mut Option<NetdevName>)) {
    match &mut port.gids {
        Gids::IndexThree { gid, netdev } => change(gid, netdev),
        Gids::Table(table) => table
            .iter_mut()
            .for_each(|e| change(&mut e.gid, &mut e.netdev)),
        Gids::NotObserved(_) => {}
    }
}

/// Whether a finding names the host, and the port when there is one to name.
fn names_place(finding: &Finding, host: &HostName, netdev: Option<&NetdevName>) -> bool {
    let line = finding.to_string();
    match netdev {
        None => line.contains(host.as_str()),
        Some(netdev) => {
            finding.host.as_deref() == Some(host.as_str()) && line.contains(netdev.as_str())
                || line.contains(&format!("{host} {netdev}"))
        }
    }
}

// ---- garbage ----

/// Ports whose addresses, MACs and names come from pools so small that they meet.
fn garbage_port() -> impl Strategy<Value = PortFacts> {
    let address =
        (0u8..12, select(vec![0u8, 8, 24, 29, 30, 31, 32])).prop_map(|(last, prefix)| Cidr {
            address: Ipv4Addr::new(10, 0, 0, last),
            prefix,
        });
    let pci = prop_oneof![
        Just(Fact::unmentioned()),
        Just(Fact::Known(None)),
        (0u32..3, 0u8..3).prop_map(|(domain, function)| Fact::Known(Some(PciAddress {
            domain,
            bus: 1,
            device: 0,
            function
        }))),
    ];
    let netdev = select(vec![
        "enp1s0f0",
        "enp1s0f1",
        "enP2p1s0f0",
        "enP2p1s0f1",
        "eth0",
        "en",
        "enPps0f99999999",
    ]);
    let healthy = prop::bool::weighted(0.9);
    (
        netdev,
        pci,
        vec(address, 0..4),
        0u8..8,
        0u8..4,
        0u8..6,
        [healthy, healthy, healthy],
    )
        .prop_map(
            |(netdev, pci, addresses, mac, rdma, gid, [up, offload, mtu])| {
                let netdev: NetdevName = netdev.parse().unwrap();
                let mapped = addresses
                    .first()
                    .map_or(Gid::ZERO, |a| Gid::ipv4_mapped(a.address));
                PortFacts {
                    rdma: Fact::Known((rdma > 0).then(|| format!("rdma{rdma}").parse().unwrap())),
                    pci,
                    ipv4: Fact::Known(addresses),
                    mac: Mac([2, 0, 0, 0, 0, mac]),
                    mtu: if mtu { 9000 } else { 1500 },
                    state: if up { "up" } else { "" }.into(),
                    gids: match gid {
                        0 => Gids::NotObserved("no".into()),
                        1 => Gids::IndexThree {
                            gid: mapped,
                            netdev: None,
                        },
                        _ => Gids::Table(vec![GidEntry {
                            index: gid,
                            gid: mapped,
                            kind: ROCE_V2.into(),
                            netdev: Some(netdev.clone()),
                        }]),
                    },
                    tc_offload: Fact::Known(offload),
                    hairpin_num_queues: Fact::Known(None),
                    hairpin_queue_size: Fact::Known(Some(u32::MAX)),
                    hairpin_queue_applied: Applied::Applied,
                    flow_steering_mode: Fact::Known(None),
                    eswitch_mode: Fact::unmentioned(),
                    rdma_state: Fact::unmentioned(),
                    rdma_active_mtu: Fact::unmentioned(),
                    netdev,
                    details: Default::default(),
                }
            },
        )
}

/// Four hosts with a place for every port and healthy settings, every port joined to any other:
/// self-cables, cables across domains, lollipops, two rings of two, and now and then a ring.
fn any_cabling() -> impl Strategy<Value = Vec<Inventory>> {
    (
        recipe(),
        Just((0..HOSTS * PORTS).collect::<Vec<_>>()).prop_shuffle(),
        any::<bool>(),
    )
        .prop_map(|(recipe, ends, within_domains)| {
            let mut inventories = recipe.inventories();
            let ends: Vec<usize> = if within_domains {
                // Pairs of one domain: only the order of hosts around each is garbage.
                let of = |domain: usize| {
                    ends.iter()
                        .copied()
                        .filter(move |end| end % PORTS / 2 == domain)
                };
                of(0).chain(of(1)).collect()
            } else {
                ends
            };
            for (cable, pair) in ends.chunks(2).enumerate() {
                for (last, end) in (1..).zip(pair) {
                    let address = Cidr {
                        address: Ipv4Addr::new(10, 0, cable as u8, last),
                        prefix: 24,
                    };
                    let port = find(&recipe, &mut inventories, (end / PORTS, end % PORTS));
                    port.ipv4 = Fact::Known(vec![address]);
                    port.gids = Gids::IndexThree {
                        gid: Gid::ipv4_mapped(address.address),
                        netdev: Some(port.netdev.clone()),
                    };
                }
            }
            inventories
        })
}

/// JSON values that a field may meet, right ones for some field among them.
fn any_json() -> impl Strategy<Value = Value> {
    let words = select(vec![
        "",
        "on",
        "off",
        "up",
        "applied",
        "pending",
        "10.0.0.1/24",
        "0.0.0.0/0",
        "::",
        "02:00:00:00:00:01",
        "enp1s0f0np0",
        "0000:01:00.0",
        "8192",
        "-1",
        "99999999999999999999",
        "\u{1b}[31m",
        "a\nb",
        "../../etc",
        "$(reboot)",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(|b| json!(b)),
        any::<i64>().prop_map(|i| json!(i)),
        any::<f64>().prop_map(|f| json!(f)),
        words.prop_map(|w| json!(w)),
        any::<String>().prop_map(|t| json!(t)),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|items| json!(items)),
            vec(
                (select(vec!["not_observed", "index", "gid", "x"]), inner),
                0..4
            )
            .prop_map(|entries| entries
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

/// JSON pointers (RFC 6901) to every value of a document. No key of ours needs escaping.
fn collect_pointers(value: &Value, pointer: String, all: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            entries
                .iter()
                .for_each(|(key, value)| collect_pointers(value, format!("{pointer}/{key}"), all));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(i, item)| collect_pointers(item, format!("{pointer}/{i}"), all));
        }
        _ => {}
    }
    all.push(pointer);
}

fn configuration() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn a_healthy_ring_of_any_order_orientation_and_names_has_a_consistent_plan(recipe in recipe()) {
        let planned = recipe.plan_of(&[0, 1, 2, 3]);
        prop_assert!(problems(&planned).is_empty(), "{:#?}", problems(&planned));
        let plan = made(planned);
        let names = |ranks: Vec<usize>| ranks.into_iter().map(|i| recipe.names[i].clone()).collect::<Vec<_>>();
        prop_assert_eq!(&plan.ring, &names(recipe.ring_from(0)));
        prop_assert_eq!(&plan.hosts, &recipe.names);
        let index = if let GidTables::Whole(index) = recipe.gids { index } else { 3 };
        prop_assert_eq!(plan.gid_index, index);
        let env: BTreeMap<_, _> = plan.env.0.iter().cloned().collect();
        prop_assert_eq!(env.get("B12X_ROCE_GID_INDEX").cloned(), (index != 3).then(|| index.to_string()));
        prop_assert_eq!(&env["B12X_ROCE_HCA"], &recipe.hcas.join(","));
        check_plan(&plan);
        // Ports stand by ring rank, then by domain and port number, with the facts of the inventory.
        let mut ports = plan.ports.iter();
        for host in recipe.ring_from(0) {
            for port in 0..PORTS {
                let row = ports.next().unwrap();
                prop_assert_eq!((&row.host, &row.netdev), (&recipe.names[host], &recipe.netdev(host, port)));
                prop_assert_eq!(row.rdma.as_str(), recipe.hcas[port]);
                prop_assert_eq!((row.ipv4, row.mac), (recipe.address(host, port), recipe.mac(host, port)));
                prop_assert_eq!(&row.peer_host, &recipe.names[recipe.cable(host, port).0]);
                prop_assert_eq!(row.domain, port / 2);
                prop_assert_eq!(row.pci.is_some(), matches!(recipe.pci, Pci::Present { .. }));
            }
        }
        // The smallest queue that is known to be applied; anything else counts as 1024.
        let applied = |c: &PortChoices| match c.applied {
            Applied::Applied | Applied::Unsaid => c.queue.unwrap_or(1024),
            Applied::Pending | Applied::Unknown => 1024,
        };
        prop_assert_eq!(plan.hairpin_queue_size, recipe.ports.iter().map(applied).min().unwrap());
    }

    #[test]
    fn demanding_the_gid_index_that_is_found_changes_nothing_and_another_one_refuses_every_port(
        recipe in recipe(), other: u8,
    ) {
        let plan_with = |gid_index| {
            plan(&recipe.names, &recipe.inventories(), &Options { gid_index, ..Options::default() })
        };
        let found = recipe.plan();
        prop_assert_eq!(&made(plan_with(Some(found.gid_index))), &found);
        if other != found.gid_index {
            let refused = plan_with(Some(other));
            prop_assert!(refused.plan.is_none());
            let codes: Vec<&str> = problems(&refused).iter().map(|f| f.code).collect();
            prop_assert_eq!(codes, vec!["port-gid"; HOSTS * PORTS]);
        }
    }

    #[test]
    fn a_healthy_ring_of_any_layout_is_found_healthy(recipe in recipe(), with_plan: bool) {
        let mut recipe = recipe;
        for port in &mut recipe.ports {
            (port.queue, port.applied) = (Some(8192), Applied::Applied);
        }
        let (plan, inventories) = (recipe.plan(), recipe.inventories());
        let diagnosis = examine(&Case {
            hosts: &recipe.names,
            ordered: true,
            inventories: &inventories,
            plan: with_plan.then_some(&plan),
            envs: &[],
            logs: &[],
        });
        prop_assert_eq!(&diagnosis.findings, &[]);
        prop_assert_eq!(diagnosis.cabling.is_ring, Some(true));
        prop_assert_eq!(diagnosis.ring, Some(plan.ring));
    }

    #[test]
    fn other_host_names_give_the_same_plan_under_those_names(recipe in recipe(), names in names()) {
        let before = recipe.plan();
        let after = Recipe { names: names.clone(), ..recipe.clone() }.plan();
        let name = |host: &HostName| names[recipe.names.iter().position(|n| n == host).unwrap()].clone();
        prop_assert_eq!(renamed(before, &name), after);
    }

    #[test]
    fn the_order_of_ports_in_the_documents_does_not_matter(recipe in recipe(), orders in vec(any::<u16>(), HOSTS * PORTS)) {
        let mut shuffled = recipe.inventories();
        let mut orders = orders.into_iter();
        for inventory in &mut shuffled {
            inventory.ports.sort_by_cached_key(|_| orders.next());
        }
        let shuffled = made(plan(&recipe.names, &shuffled, &Options::default()));
        prop_assert_eq!(shuffled, recipe.plan());
    }

    #[test]
    fn an_inventory_read_from_its_document_is_the_same_inventory(recipe in recipe()) {
        for inventory in recipe.inventories() {
            let bytes = serde_json::to_vec(&document(&inventory)).unwrap();
            let read = Inventory::from_json("x.json", &bytes).unwrap();
            // serde_json's map sorts the ports by name.
            let sorted = |mut i: Inventory| { i.ports.sort_by(|a, b| a.netdev.cmp(&b.netdev)); i };
            prop_assert_eq!(sorted(read), sorted(inventory));
        }
    }

    /// Of any document one value is another value, one key is gone or one key more is there.
    #[test]
    fn an_altered_document_ends_in_an_error_with_its_place_or_in_an_inventory_that_planning_takes(
        recipe in recipe(), host in 0..HOSTS, place in any::<Index>(), value in any_json(), how in 0..3,
    ) {
        let mut inventories = recipe.inventories();
        let mut altered = document(&inventories[host]);
        let mut pointers = Vec::new();
        collect_pointers(&altered, String::new(), &mut pointers);
        let pointer = place.get(&pointers).clone();
        match (how, pointer.rsplit_once('/')) {
            (0, Some((parent, key))) => {
                if let Some(Value::Object(parent)) = altered.pointer_mut(parent) {
                    parent.remove(key);
                }
            }
            (1, _) => {
                if let Some(Value::Object(object)) = altered.pointer_mut(&pointer) {
                    object.insert("more".into(), value);
                }
            }
            _ => *altered.pointer_mut(&pointer).unwrap() = value,
        }
        match Inventory::from_json("x.json", &serde_json::to_vec(&altered).unwrap()) {
            Ok(inventory) => {
                inventories[host] = inventory;
                let planned = plan(&recipe.names, &inventories, &Options::default());
                match &planned.plan {
                    Some((plan, _)) => check_plan(plan),
                    None => prop_assert!(!problems(&planned).is_empty()),
                }
            }
            Err(error) => {
                let line = error.to_string();
                prop_assert!(line.starts_with("x.json: "), "{}", line);
                prop_assert!(!line.chars().any(char::is_control), "{:?}", line);
            }
        }
    }

    /// With the same head the ring, and so every object on every host, stays: the TP order shows in
    /// `hosts`, the peer maps and the environment alone, and the maps say the same of each pair of hosts.
    #[test]
    fn the_tp_order_of_the_hosts_after_the_head_is_only_in_hosts_peer_maps_and_env(
        recipe in recipe(), rest in Just(vec![1usize, 2, 3]).prop_shuffle(),
    ) {
        let before = recipe.plan();
        let order: Vec<usize> = std::iter::once(0).chain(rest).collect();
        let after = made(recipe.plan_of(&order));
        check_plan(&after);
        prop_assert_eq!(readable_maps(&before), readable_maps(&after));
        let others = |plan: &Plan| {
            let mut plan = plan.clone();
            plan.hosts.sort();
            plan.peer_maps.clear();
            plan.env.0.retain(|(name, _)| name != "B12X_ROCE_PEER_HCA_MAPS");
            plan
        };
        prop_assert_eq!(others(&before), others(&after));
    }

    /// Another head turns the ring, or turns it around. Cables and direct paths stay; of each
    /// opposite pair either both default paths stay, with their routes and rules up to preference
    /// and handle, or both swap domains, as the smaller ring rank of the pair now says.
    #[test]
    fn another_head_turns_the_ring_and_keeps_cables_and_paths_but_for_the_choice_of_domains(
        recipe in recipe(), head in 0..HOSTS,
    ) {
        let before = recipe.plan();
        let order: Vec<usize> = (0..HOSTS).map(|i| (head + i) % HOSTS).collect();
        let after = made(recipe.plan_of(&order));
        check_plan(&after);
        let names: Vec<_> = recipe.ring_from(head).into_iter().map(|i| recipe.names[i].clone()).collect();
        prop_assert_eq!(&after.ring, &names);

        let cables = |plan: &Plan| -> BTreeSet<_> {
            plan.ports.iter().map(|p| (
                p.host.clone(), p.netdev.clone(), p.rdma.clone(), p.pci, p.domain, p.ipv4, p.mac,
                p.peer_host.clone(), p.peer_netdev.clone(),
            )).collect()
        };
        prop_assert_eq!(cables(&before), cables(&after));
        let direct = |plan: &Plan| -> BTreeSet<_> {
            let direct = plan.paths.iter().filter(|p| p.kind == PathKind::Direct);
            direct.map(|p| (p.from.clone(), p.to.clone(), p.domain, p.device.clone())).collect()
        };
        prop_assert_eq!(direct(&before), direct(&after));

        // By pair: its paths, each with what is installed for it.
        let pairs = |plan: &Plan| {
            let mut pairs: BTreeMap<BTreeSet<HostName>, BTreeMap<_, _>> = BTreeMap::new();
            for (path, (route, rule)) in Plans(plan).diagonals().into_iter().zip(plan.routes.iter().zip(&plan.rules)) {
                let mut rule = rule.clone();
                (rule.pref, rule.handle) = (0, 0);
                pairs.entry(BTreeSet::from([path.from.clone(), path.to.clone()])).or_default()
                    .insert((path.from.clone(), path.via.clone(), path.domain), (route.clone(), rule));
            }
            pairs
        };
        let (before, after) = (pairs(&before), pairs(&after));
        prop_assert_eq!(before.len(), HOSTS / 2);
        prop_assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
        for (pair, were) in &before {
            let are = &after[pair];
            let kept = were.keys().all(|path| are.contains_key(path));
            if kept {
                prop_assert_eq!(were, are);
            } else {
                let swapped: BTreeSet<_> =
                    were.keys().map(|(from, via, domain)| (from.clone(), via.clone(), 1 - domain)).collect();
                prop_assert_eq!(swapped, are.keys().cloned().collect());
            }
        }
    }

    #[test]
    fn any_single_fault_refuses_the_plan_and_names_where_it_is(
        recipe in recipe(), fault in select(FAULTS), host in 0..HOSTS, port in 0..PORTS, other in any::<Index>(),
    ) {
        prop_assume!(fault.applies(&recipe));
        // Any other port of the ring.
        let number = PORTS * host + port;
        let other = (number + 1 + other.index(HOSTS * PORTS - 1)) % (HOSTS * PORTS);
        let mut inventories = recipe.inventories();
        fault.put(&recipe, &mut inventories, (host, port), (other / PORTS, other % PORTS));
        let refused = plan(&recipe.names, &inventories, &Options::default());
        prop_assert!(refused.plan.is_none(), "planned despite {:?}", fault);
        let netdev = match fault {
            Fault::PlaceUnknown => "fabric".parse().unwrap(),
            Fault::PortTooMany => "enp9s0f7".parse().unwrap(),
            _ => recipe.netdev(host, port),
        };
        let netdev = fault.names_port().then_some(&netdev);
        let found = problems(&refused);
        prop_assert!(
            found.iter().any(|f| names_place(f, &recipe.names[host], netdev)),
            "{:?} at {} {:?} is named by none of {:#?}", fault, recipe.names[host], netdev, found
        );
        for finding in found {
            let line = finding.to_string();
            prop_assert!(!line.chars().any(char::is_control) && !finding.code.is_empty());
        }
    }

    #[test]
    fn an_inventory_of_another_host_a_host_given_twice_and_a_wrong_number_of_hosts_refuse(
        recipe in recipe(), host in 0..HOSTS, count in 0usize..12,
    ) {
        let mut inventories = recipe.inventories();
        inventories[host].host = "somebody-else".parse().unwrap();
        let refused = plan(&recipe.names, &inventories, &Options::default());
        prop_assert!(refused.plan.is_none());
        prop_assert!(problems(&refused).iter().any(|f| f.host.as_deref() == Some(recipe.names[host].as_str())));

        let mut twice = recipe.names.clone();
        twice[host] = twice[(host + 1) % HOSTS].clone();
        let refused = plan(&twice, &recipe.inventories(), &Options::default());
        prop_assert!(refused.plan.is_none());
        prop_assert!(problems(&refused).iter().any(|f| f.host.as_deref() == Some(twice[host].as_str())));

        let hosts: Vec<HostName> = (0..count).map(|i| format!("host{i}").parse().unwrap()).collect();
        let all: Vec<Inventory> = hosts.iter().enumerate().map(|(i, host)| {
            Inventory { host: host.clone(), ..recipe.inventories()[i % HOSTS].clone() }
        }).collect();
        let planned = plan(&hosts, &all, &Options::default());
        prop_assert_eq!(planned.plan.is_some(), count == HOSTS);
    }

    #[test]
    fn any_cabling_of_healthy_ports_ends_in_a_consistent_plan_or_a_refusal(inventories in any_cabling()) {
        let hosts: Vec<HostName> = inventories.iter().map(|i| i.host.clone()).collect();
        let planned = plan(&hosts, &inventories, &Options::default());
        match &planned.plan {
            Some((plan, _)) => check_plan(plan),
            None => prop_assert!(!problems(&planned).is_empty()),
        }
    }

    #[test]
    fn garbage_ends_in_a_refusal_that_says_why(
        ports in vec(vec(garbage_port(), 0..7), 0..6), gid_index in proptest::option::of(any::<u8>()), extra: bool,
    ) {
        let mut hosts: Vec<HostName> = (0..ports.len()).map(|i| format!("host{i}").parse().unwrap()).collect();
        let inventories: Vec<Inventory> = hosts.iter().zip(ports).map(|(host, ports)| {
            Inventory { host: host.clone(), ports, management_netdev: Fact::unmentioned(), node: Default::default(), left_out: vec![] }
        }).collect();
        if extra {
            hosts.push("one-more".parse().unwrap());
        }
        let planned = plan(&hosts, &inventories, &Options { gid_index, ..Options::default() });
        match &planned.plan {
            Some((plan, _)) => check_plan(plan),
            None => prop_assert!(!problems(&planned).is_empty(), "refused without a reason: {:#?}", planned.findings),
        }
    }
}

/// Bytes that are no document end in an error that names the file, never in a panic.
#[test]
fn truncated_and_altered_documents_end_in_an_inventory_or_an_error_with_a_place() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/plans/tp-along-ring/inventory/spark1.json"
    );
    let whole = std::fs::read(path).unwrap();
    let read = |bytes: &[u8]| {
        if let Err(error) = Inventory::from_json("x.json", bytes) {
            assert!(error.to_string().starts_with("x.json: "), "{error}");
        }
    };
    for end in 0..whole.len() {
        read(&whole[..end]);
        for byte in [0, b'"', b'0', b'{', 0xff] {
            let mut altered = whole.clone();
            altered[end] = byte;
            read(&altered);
        }
    }
}
