//! Findings to a chain: the first cause on top, what follows from it below.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use crate::doctor::fabric::{Fabric, Socket};
use crate::doctor::mesh::ALONE;
use crate::facts::Fact;
use crate::finding::{Finding, Severity};
use crate::plan::ends::{count, more};

/// A finding and what of the fabric it is about.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) finding: Finding,
    /// The ports that it is about, as indices.
    pub(super) ports: BTreeSet<usize>,
    /// The hosts that it is about, as indices.
    pub(super) hosts: BTreeSet<usize>,
    /// Of routes, the addresses that they lead to, by and from; of a cause, those that were changed.
    pub(super) addresses: BTreeSet<Ipv4Addr>,
}

impl Seen {
    /// A finding about one port.
    pub(super) fn port(fabric: &Fabric, port: usize, finding: Finding) -> Seen {
        let located = &fabric.ports[port];
        Seen {
            finding: finding.on(located.host).at(&located.facts.netdev),
            ports: [port].into(),
            hosts: [located.node].into(),
            addresses: BTreeSet::new(),
        }
    }

    /// A finding about several ports, which says itself which.
    pub(super) fn ports(fabric: &Fabric, ports: BTreeSet<usize>, finding: Finding) -> Seen {
        Seen {
            finding,
            hosts: ports.iter().map(|port| fabric.ports[*port].node).collect(),
            ports,
            addresses: BTreeSet::new(),
        }
    }

    /// A finding about ports of one host.
    pub(super) fn some(
        fabric: &Fabric,
        node: usize,
        ports: BTreeSet<usize>,
        finding: Finding,
    ) -> Seen {
        let names = fabric.names(&ports);
        Seen {
            finding: finding.on(&fabric.hosts[node]).at(names),
            ports,
            hosts: [node].into(),
            addresses: BTreeSet::new(),
        }
    }

    /// A finding about a host as a whole.
    pub(super) fn host(fabric: &Fabric, node: usize, finding: Finding) -> Seen {
        Seen {
            finding: finding.on(&fabric.hosts[node]),
            ports: BTreeSet::new(),
            hosts: [node].into(),
            addresses: BTreeSet::new(),
        }
    }

    /// A finding about the ring.
    pub(super) fn ring(finding: Finding) -> Seen {
        Seen {
            finding,
            ports: BTreeSet::new(),
            hosts: BTreeSet::new(),
            addresses: BTreeSet::new(),
        }
    }
}

/// How far a cause reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Findings of the same ports.
    Port,
    /// Also those of the ports at the other end of the cable, and of the same socket.
    Cable,
    /// Findings about ports of the same domains.
    Plane,
    /// As a cable's, of sockets without a link whose other end has one: what is in that is another plug.
    Loose,
    /// Findings about ports whose other end is not there.
    Lonely,
    /// Findings of the same host.
    Host,
    /// Findings of the same port, and routes that have one of the same addresses.
    Address,
    /// The functions of the same socket whose driver has loaded nothing since it came up: what a function was told
    /// before goes with it, and its count of re-initialisations starts again.
    Fresh,
    /// An object of the same name on the same host: what was made in another place than wanted.
    Moved,
    /// Ends of cables that are alone in the planes of addresses that are on two ports, as many at most as there are of
    /// these: who has another's address is missed where its own was.
    Robbed,
    /// Findings of the same ports, where all that have a peer have it by an address that is on two ports.
    Copied,
    /// Every finding.
    Ring,
}

use Reach::{Address, Cable, Copied, Fresh, Host, Lonely, Loose, Moved, Plane, Port, Ring, Robbed};

/// A cause, how far it reaches, and how the codes of its effects start.
type Row = (&'static str, Reach, &'static [&'static str]);

/// How a log ends that tells a failure before.
const ENDS: &[&str] = &["nccl-log-end-"];

/// What a log tells of ports without addresses.
const OF_ADDRESSES: &[&str] = &[
    "nccl-log-gid-empty",
    "nccl-log-collapse",
    "nccl-log-devices",
    "nccl-log-hcas",
];
/// What a log tells where paths to opposite nodes are not whole.
const OF_MESH: &[&str] = &["nccl-log-no-path", "nccl-log-retries"];

/// What causes what, the first causes first. An effect goes under the last row here that names it of
/// those whose cause is there: the nearest cause, which is itself under its own. Nothing causes its own cause,
/// and a remark that is named here may cause what is worse: a queue that is too small, an entry that holds a
/// place.
const CAUSES: &[Row] = &[
    (
        "inventory-repeated",
        Host,
        &[
            "mac-repeated",
            "address-",
            "plane-subnet-shared",
            "subnet",
            "neighbour-",
            "self-cable",
            "mesh-plan-",
            "mesh-old-mac",
            "inventory-of-another-host",
        ],
    ),
    (
        "inventory-repeated",
        Ring,
        &[
            "subnet-ends",
            "ring-",
            "neighbour-twice",
            "domains-differ",
            "cabling-",
            "address-",
            "neighbour-mac",
        ],
    ),
    (
        "inventory-of-another-host",
        Host,
        &[
            "mac-repeated",
            "address-repeated",
            "subnet",
            "ring-",
            "neighbour-",
            "mesh-plan-port",
        ],
    ),
    ("inventory-of-another-host", Ring, &["subnet-ends", "ring-"]),
    ("rdma-repeated", Ring, &["hca-names-"]),
    (
        "mesh-other-ring",
        Ring,
        // Addresses that were exchanged: with plugs, the mesh would be that of the addresses.
        &[
            "rule-",
            "route-",
            "left-over-",
            "marker-",
            "clsact-",
            "neighbour-silent",
        ],
    ),
    (
        "nic-missing",
        Host,
        &[
            "domains-per-node",
            "ports-per-domain",
            "function-",
            "subnet",
            "route-",
            "marker-",
            "rule-",
            "clsact-",
            "hca-names-",
            "ring-",
            "peer-route",
            "mesh-plan-port",
        ],
    ),
    (
        "nic-missing",
        Ring,
        &["ring-", "cabling-no-ring", "cabling-crossed"],
    ),
    (
        "nic-missing",
        Lonely,
        &["subnet-ends", "port-link", "cable-down"],
    ),
    (
        "function-missing",
        Host,
        &[
            "domains-per-node",
            "ports-per-domain",
            "port-numbers",
            "hca-names-",
            "route-",
            "marker-",
            "rule-",
            "clsact-",
            "mesh-plan-port",
        ],
    ),
    (
        "function-missing",
        Ring,
        &["ring-", "cabling-no-ring", "cabling-crossed", "hca-names-"],
    ),
    (
        "function-missing",
        Lonely,
        &["subnet-ends", "port-link", "cable-down"],
    ),
    // Of whose neighbours plugs hang loose now.
    ("cabling-looped", Cable, &["cable-down", "neighbour-silent"]),
    ("cabling-wire-differs", Loose, &["cable-down"]),
    (
        "mac-repeated",
        Cable,
        &["neighbour-mac", "arp-", "mesh-plan-port"],
    ),
    // Rules are made for the port's own MAC.
    ("mac-repeated", Ring, &["rule-other"]),
    (
        "plane-subnet-shared",
        Ring,
        &[
            "plane-subnet-shared",
            "subnet",
            "self-cable",
            "cross-domain-cable",
            "port-in-two-subnets",
            "address-",
            "neighbour-mac",
            "neighbour-silent",
            "arp-",
            "peer-route",
            "ring-",
            "neighbour-twice",
            "cabling-no-ring",
            "cabling-crossed",
            "cabling-wire-differs",
            "domains-differ",
            "port-gid",
        ],
    ),
    ("port-in-two-subnets", Port, &["subnet", "address-"]),
    (
        "port-driver",
        Port,
        &[
            "port-steering",
            "port-tc-offload",
            "rule-",
            "hairpin-",
            "port-eswitch",
            "marker-",
        ],
    ),
    ("port-driver", Host, &["parity-driver"]),
    (
        "reload-failed",
        Port,
        &[
            "port-link",
            "port-rdma",
            "port-gid",
            "port-address",
            "hairpin-",
            "marker-",
            "rule-",
            "route-",
        ],
    ),
    (
        "cable-down",
        Cable,
        &[
            "port-link",
            "port-carrier",
            "port-rdma-state",
            "port-rdma-phys",
            "port-rdma-mtu",
            "port-rate",
            "port-gid",
            "port-address",
            "plane-unaddressed",
            "plane-idle",
            "subnet-ends",
            "route-linkdown",
            "route-missing",
            "peer-route",
            "neighbour-silent",
            "function-idle",
        ],
    ),
    (
        "port-link",
        Cable,
        &[
            "port-carrier",
            "port-rdma-state",
            "port-rdma-phys",
            "port-rdma-mtu",
            "port-rate",
            "route-linkdown",
            "peer-route",
            "neighbour-silent",
            "function-idle",
        ],
    ),
    (
        "port-link",
        Port,
        &[
            "port-gid",
            "port-address",
            "route-linkdown",
            "route-missing",
        ],
    ),
    (
        "port-rdma",
        Port,
        &["port-gid", "port-rdma-", "marker-", "hca-names-"],
    ),
    ("port-rdma", Ring, &["hca-names-"]),
    (
        "port-rdma-phys",
        Port,
        &["port-rdma-state", "port-rate", "port-rdma-mtu"],
    ),
    ("domains-per-node", Ring, &["ring-"]),
    ("domains-per-node", Host, &["ports-per-domain"]),
    ("ports-per-domain", Ring, &["ring-"]),
    (
        "port-place-unknown",
        Host,
        &["domains-per-node", "ports-per-domain", "function-missing"],
    ),
    (
        "cabling-no-ring",
        Ring,
        &[
            "self-cable",
            "cross-domain-cable",
            "neighbour-twice",
            "domains-differ",
            "ring-",
        ],
    ),
    (
        "cabling-crossed",
        Ring,
        &[
            "subnet-ends",
            "domains-differ",
            "neighbour-twice",
            "ring-",
            "cross-domain-cable",
            "self-cable",
        ],
    ),
    (
        "cabling-crossed",
        Cable,
        &[
            "cabling-wire-differs",
            "subnet",
            "neighbour-mac",
            "neighbour-silent",
            "route-missing",
            "route-other",
            "left-over-route",
            "rule-",
            "mesh-plan-peer",
        ],
    ),
    (
        "cabling-wire-differs",
        Cable,
        &[
            "neighbour-mac",
            "neighbour-silent",
            "subnet",
            "arp-",
            "rule-other",
            "mesh-plan-peer",
        ],
    ),
    // What a log ends with follows from what it tells before.
    ("nccl-log-socket-unreachable", Ring, ENDS),
    ("nccl-log-socket-unreachable", Ring, &["nccl-log-no-net"]),
    ("nccl-log-socket-refused", Ring, ENDS),
    ("nccl-log-socket-refused", Ring, &["nccl-log-no-net"]),
    ("nccl-log-no-interface", Ring, ENDS),
    (
        "nccl-log-no-interface",
        Ring,
        &["nccl-log-no-net", "nccl-log-sockets"],
    ),
    ("nccl-log-rdma-off", Ring, &["nccl-log-sockets"]),
    // A program that found no HCA goes over sockets, and does not end for that.
    ("nccl-log-no-device", Ring, &["nccl-log-sockets"]),
    ("nccl-log-algorithm", Ring, ENDS),
    ("nccl-log-device-open", Ring, ENDS),
    ("nccl-log-incompatible", Ring, ENDS),
    ("nccl-log-mismatch", Ring, ENDS),
    ("nccl-log-cuda", Ring, ENDS),
    ("nccl-log-socket-on-fabric", Ring, ENDS),
    ("nccl-log-socket-local", Ring, ENDS),
    ("nccl-log-versions", Ring, ENDS),
    ("nccl-library-differs", Ring, &["nccl-log-versions"]),
    ("nccl-log-ring-order", Ring, ENDS),
    ("nccl-log-tree", Ring, ENDS),
    ("nccl-log-memory", Ring, ENDS),
    ("nccl-log-qp-", Ring, ENDS),
    ("nccl-log-gid-change", Ring, ENDS),
    ("nccl-log-gid-empty", Ring, ENDS),
    ("nccl-log-gid-empty", Ring, &["nccl-log-qp-refused"]),
    ("nccl-log-no-path", Ring, ENDS),
    ("nccl-log-neighbour", Ring, ENDS),
    ("nccl-log-status-", Ring, ENDS),
    ("nccl-log-retries", Ring, ENDS),
    ("nccl-log-event-queue", Ring, ENDS),
    ("nccl-log-event-device", Ring, ENDS),
    (
        "nccl-log-event-device",
        Ring,
        &["nccl-log-retries", "nccl-log-event-queue"],
    ),
    (
        "nccl-log-port-error",
        Ring,
        &[
            "nccl-log-gid-change",
            "nccl-log-port-active",
            "nccl-log-retries",
            "nccl-log-end-",
        ],
    ),
    ("cable-down", Cable, &["nccl-log-neighbour"]),
    ("port-prefix", Port, &["address-prefix-differs"]),
    (
        "address-prefix-differs",
        Cable,
        &["subnet", "peer-route", "neighbour-silent"],
    ),
    (
        "address-off-cable",
        Cable,
        &[
            "subnet",
            "peer-route",
            "neighbour-silent",
            "cross-domain-cable",
            "self-cable",
            "port-address",
            "port-gid",
        ],
    ),
    (
        "address-off-cable",
        Ring,
        &["ring-", "neighbour-twice", "domains-differ", "mesh-not"],
    ),
    ("address-repeated", Ring, &["route-other", "rule-other"]),
    ("address-repeated", Cable, &["address-answered-twice"]),
    (
        "cabling-stranger",
        Port,
        &["neighbour-mac", "address-answered-twice"],
    ),
    ("memory-cma", Host, &["parity-kernel"]),
    ("rdma-core-old", Host, &["parity-rdma-core", "marker-"]),
    ("pcie-degraded", Host, &["parity-bios"]),
    ("nccl-library-other", Host, &["nccl-library-differs"]),
    ("env-no-assignment", Ring, &["env-hca-"]),
    ("env-unit-section", Ring, &["env-nothing-read"]),
    (
        "env-not-passed",
        Ring,
        &["env-setting-missing", "env-ring-only"],
    ),
    ("plane-unaddressed", Port, &["plane-idle"]),
    ("plane-idle", Port, &["function-idle"]),
    (
        "cabling-no-ring",
        Ring,
        &["cabling-moved", "cabling-wire-differs", "cabling-looped"],
    ),
    (
        "cabling-moved",
        Ring,
        &["cabling-wire-differs", "mesh-other-ring"],
    ),
    (
        "address-repeated",
        Cable,
        &[
            "address-off-cable",
            "subnet",
            "neighbour-mac",
            "arp-",
            "self-cable",
        ],
    ),
    ("address-repeated", Robbed, &["subnet-ends"]),
    ("address-repeated", Copied, &["cabling-crossed"]),
    (
        "plane-unaddressed",
        Port,
        &[
            "port-address",
            "port-mtu",
            "port-gid",
            "gid-zero",
            "devices-carry-nothing",
            "function-idle",
            "subnet-ends",
            "route-",
            "peer-route",
        ],
    ),
    ("plane-unaddressed", Ring, &["ring-", "env-hca-missing"]),
    // `up` refuses a host that has not its plan's addresses.
    (
        "plane-unaddressed",
        Host,
        &["mesh-incomplete", "mesh-absent"],
    ),
    ("port-address", Host, &["mesh-incomplete"]),
    ("plane-unaddressed", Plane, &["subnet-ends"]),
    ("port-address", Port, &["gid-stale"]),
    (
        "port-address",
        Cable,
        &[
            "port-gid",
            "gid-zero",
            "devices-carry-nothing",
            "subnet-ends",
            "route-missing",
            "route-in",
            "peer-route",
            "neighbour-silent",
            "function-idle",
        ],
    ),
    (
        "gid-zero",
        Port,
        &["devices-carry-nothing", "function-idle", "port-gid"],
    ),
    ("self-cable", Ring, &["ring-"]),
    ("cross-domain-cable", Ring, &["ring-"]),
    ("subnet-ends", Ring, &["ring-"]),
    ("neighbour-twice", Ring, &["ring-"]),
    ("domains-differ", Ring, &["ring-"]),
    ("port-mtu", Cable, &["port-rdma-mtu"]),
    ("gid-moved", Ring, &["gid-index-differs", "port-gid"]),
    ("gid-stale", Port, &["gid-moved", "port-gid"]),
    ("parity-kernel", Ring, &["parity-driver"]),
    ("netplan-owned-twice", Host, &["netplan-"]),
    // A function that was initialised again has lost its rules and routes, and what its marker and others' rules held
    // is another one. It comes back with offload off; a driver that was loaded anew also with the default queue.
    (
        "marker-without-rule",
        Port,
        &[
            "clsact-missing",
            "rule-missing",
            "route-missing",
            "port-tc-offload",
        ],
    ),
    ("marker-without-rule", Fresh, &["hairpin-queue-size"]),
    (
        "rule-dead-egress",
        Port,
        &[
            "marker-without-rule",
            "clsact-missing",
            "rule-missing",
            "route-missing",
            "port-tc-offload",
        ],
    ),
    ("rule-dead-egress", Fresh, &["hairpin-queue-size"]),
    (
        "port-tc-offload",
        Port,
        &["rule-missing", "rule-not-in-hardware"],
    ),
    (
        "port-trust",
        Port,
        &["rule-missing", "rule-not-in-hardware"],
    ),
    (
        "port-eswitch",
        Port,
        &[
            "rule-missing",
            "rule-not-in-hardware",
            "port-steering",
            "port-tc-offload",
        ],
    ),
    (
        "port-steering",
        Port,
        &["rule-missing", "rule-not-in-hardware", "marker-"],
    ),
    ("ingress-qdisc", Port, &["clsact-", "rule-missing"]),
    ("clsact-", Port, &["rule-missing"]),
    ("mesh-other-plan", Ring, &["mesh-plan-"]),
    ("mesh-plan-port", Cable, &["neighbour-mac"]),
    ("route-missing", Host, &["left-over-route"]),
    ("rule-missing", Moved, &["left-over-rule"]),
    ("marker-missing", Host, &["marker-left-over"]),
    // A marker's unit is started by the name of its device.
    (
        "hca-names-differ",
        Port,
        &["marker-missing", "marker-left-over"],
    ),
    (
        "mesh-plan-address",
        Cable,
        &[
            "subnet",
            "address-",
            "port-prefix",
            "cross-domain-cable",
            "self-cable",
            "mesh-plan-peer",
            "neighbour-silent",
            "cabling-crossed",
            "cabling-wire-differs",
        ],
    ),
    ("mesh-plan-address", Ring, &["mesh-other-ring", "ring-"]),
    (
        "mesh-plan-address",
        Address,
        &[
            "mesh-old-address",
            "route-other",
            "route-missing",
            "left-over-route",
            "plane-subnet-shared",
        ],
    ),
    ("mesh-old-address", Port, &["address-repeated"]),
    (
        "mesh-old-address",
        Address,
        &["route-other", "route-missing", "left-over-route"],
    ),
    ("mesh-plan-port", Port, &["mesh-plan-", "mesh-old-mac"]),
    ("mesh-plan-port", Host, &["mesh-incomplete"]),
    ("mesh-old-mac", Host, &["mesh-incomplete"]),
    ("mesh-old-mac", Port, &["rule-other"]),
    // What a neighbour learnt of the NIC before.
    ("mesh-old-mac", Cable, &["neighbour-mac"]),
    ("peer-route", Cable, &["neighbour-silent"]),
    ("hairpin-queue-pending", Port, &["hairpin-queue-"]),
    (
        "hairpin-queue-",
        Ring,
        &["env-cap-over-queue", "mesh-plan-cap"],
    ),
    // A node that came up without its mesh has the queue that it booted with.
    ("mesh-absent", Ring, &["hairpin-queue-size"]),
    (
        "mesh-incomplete",
        Host,
        &[
            "hairpin-queue-size",
            "rule-missing",
            "route-missing",
            "marker-missing",
            "marker-without-rule",
            "clsact-missing",
        ],
    ),
    // What a log tells follows from what the facts show.
    (
        "cable-down",
        Ring,
        &[
            "nccl-log-port-error",
            "nccl-log-retries",
            "nccl-log-no-path",
        ],
    ),
    (
        "port-link",
        Ring,
        &[
            "nccl-log-port-error",
            "nccl-log-retries",
            "nccl-log-no-path",
        ],
    ),
    ("port-mtu", Ring, &["nccl-log-retries"]),
    ("plane-unaddressed", Ring, OF_ADDRESSES),
    ("port-address", Ring, OF_ADDRESSES),
    ("mesh-absent", Ring, OF_MESH),
    ("mesh-absent", Ring, &["env-without-mesh"]),
    ("mesh-incomplete", Ring, OF_MESH),
    ("marker-missing", Ring, OF_MESH),
    ("marker-without-rule", Ring, OF_MESH),
    ("rule-missing", Ring, OF_MESH),
    ("rule-not-in-hardware", Ring, OF_MESH),
    ("rule-other", Ring, OF_MESH),
    ("route-missing", Ring, OF_MESH),
    ("route-other", Ring, OF_MESH),
    (
        "env-hca-missing",
        Ring,
        &["nccl-log-devices", "nccl-log-hcas"],
    ),
    ("env-conflict", Ring, &["nccl-log-rdma-off"]),
];

/// Whether a code is `start`, or one of its kind when that ends in `-`.
fn is_code(code: &str, start: &str) -> bool {
    if start.ends_with('-') {
        code.starts_with(start)
    } else {
        code == start
    }
}

/// Whether a list of devices that lacks some explains what a log tells of them: NCCL has one, the engine another, and
/// a list of the fabric's devices makes neither take others.
fn is_of_list(cause: &Finding, effect: &Finding) -> bool {
    let list = match effect.code {
        _ if cause.code != "env-hca-missing" => return true,
        "nccl-log-devices" => "NCCL_IB_HCA",
        "nccl-log-hcas" => "B12X_ROCE_HCA",
        _ => return true,
    };
    let is_strange = effect.found.contains("no RDMA device of the fabric");
    let object = cause.object.as_deref().unwrap_or_default();
    !is_strange && object.starts_with(list)
}

fn reaches(fabric: &Fabric, reach: Reach, cause: &Seen, effect: &Seen) -> bool {
    let same_port = !cause.ports.is_disjoint(&effect.ports);
    match reach {
        Ring => true,
        Port => same_port,
        Address => same_port || !cause.addresses.is_disjoint(&effect.addresses),
        Cable => {
            same_port
                || cause.ports.iter().any(|port| {
                    fabric
                        .end(*port)
                        .is_some_and(|far| effect.ports.contains(&far))
                })
                // An end whose cable the plan alone shows.
                || effect.ports.iter().any(|port| {
                    fabric
                        .end(*port)
                        .is_some_and(|far| cause.ports.contains(&far))
                })
        }
        Loose => {
            let has_link = |port: &usize| {
                let far = fabric.far_socket(fabric.socket(*port));
                let there = far.map(|far| fabric.of_socket(far)).unwrap_or_default();
                there.iter().any(|far| fabric.facts(*far).state == "up")
            };
            effect.ports.iter().all(has_link) && reaches(fabric, Cable, cause, effect)
        }
        Plane => {
            let domain = |port: &usize| fabric.ports[*port].domain;
            let domains: BTreeSet<usize> = cause.ports.iter().map(domain).collect();
            !effect.ports.is_empty()
                && effect
                    .ports
                    .iter()
                    .all(|port| domains.contains(&domain(port)))
        }
        Lonely => {
            !effect.ports.is_empty() && effect.ports.iter().all(|port| fabric.far(*port).is_none())
        }
        Host => !cause.hosts.is_disjoint(&effect.hosts),
        Fresh => {
            let sockets: BTreeSet<Socket> = cause.ports.iter().map(|p| fabric.socket(*p)).collect();
            let is_fresh = |port: &usize| {
                fabric.facts(*port).details.reload_count == Fact::Known(0)
                    && sockets.contains(&fabric.socket(*port))
            };
            !effect.ports.is_empty() && effect.ports.iter().all(is_fresh)
        }
        Moved => cause.hosts == effect.hosts && name(&cause.finding) == name(&effect.finding),
        Robbed => {
            let domain = |port: &usize| fabric.ports[*port].domain;
            let domains: BTreeSet<usize> = cause.ports.iter().map(domain).collect();
            let is_robbed = |port: &usize| {
                let (alone, repeated) = fabric.alone_and_repeated(domain(port));
                let address = |port: &usize| Some(fabric.ports[*port].address?.address);
                let addresses: BTreeSet<Ipv4Addr> = repeated.iter().filter_map(address).collect();
                domains.contains(&domain(port))
                    && alone.contains(port)
                    && alone.len() <= addresses.len()
            };
            !effect.ports.is_empty()
                && cause.hosts.is_disjoint(&effect.hosts)
                && effect.ports.iter().all(is_robbed)
        }
        Copied => {
            let is_repeated = |port: &usize| {
                let (_, repeated) = fabric.alone_and_repeated(fabric.ports[*port].domain);
                repeated.contains(port)
            };
            let mut with_peers = effect
                .ports
                .iter()
                .filter(|port| fabric.peers.contains_key(port));
            same_port && with_peers.all(is_repeated)
        }
    }
}

/// The last words of what an object is called: `rule 49152`.
fn name(finding: &Finding) -> Option<&str> {
    Some(finding.object.as_deref()?.split_once(' ')?.1)
}

/// What is told of several ports as one: those alike, and whole planes.
fn is_of_many(seen: &Seen) -> bool {
    !seen.finding.consequences.is_empty()
        || seen.finding.code.starts_with("plane-")
        || seen.finding.code == "mesh-absent"
}

/// Whether causes of one kind together reach all that a finding is told of. One cable without link explains
/// no MTU that is low everywhere.
fn cover(fabric: &Fabric, reach: Reach, causes: &[&Seen], effect: &Seen) -> bool {
    if !is_of_many(effect) {
        return true;
    }
    match reach {
        Port | Cable => {
            let mut reached: BTreeSet<usize> = causes
                .iter()
                .flat_map(|cause| cause.ports.iter().copied())
                .collect();
            if reach == Cable {
                let far: Vec<usize> = reached
                    .iter()
                    .filter_map(|port| fabric.end(*port))
                    .collect();
                reached.extend(far);
            }
            effect.ports.is_subset(&reached)
        }
        Host => effect
            .hosts
            .iter()
            .all(|host| causes.iter().any(|cause| cause.hosts.contains(host))),
        Plane | Loose | Lonely | Address | Fresh | Moved | Robbed | Copied | Ring => true,
    }
}

/// The findings as a chain.
pub(super) fn chained(fabric: &Fabric, seen: Vec<Seen>) -> Vec<Finding> {
    let seen = rolled_up(fabric, seen);
    // The findings of each row's cause, so that each effect is held against these alone.
    let of_rows: Vec<Vec<usize>> = CAUSES
        .iter()
        .map(|(cause, ..)| {
            let is = |i: &usize| is_code(seen[*i].finding.code, cause);
            (0..seen.len()).filter(is).collect()
        })
        .collect();
    let mut parents: Vec<Option<usize>> = vec![None; seen.len()];
    for (i, effect) in seen.iter().enumerate() {
        for ((cause, reach, effects), of_row) in CAUSES.iter().zip(&of_rows).rev() {
            if is_code(effect.finding.code, cause)
                || !effects
                    .iter()
                    .any(|start| effect.finding.code.starts_with(start))
            {
                continue;
            }
            let explains = |j: usize, reach: Reach| {
                is_of_list(&seen[j].finding, &effect.finding)
                    && reaches(fabric, reach, &seen[j], effect)
            };
            // The port's own cause before one of the cable's other end or of the host.
            let find = |reach| {
                let all: Vec<&Seen> = of_row
                    .iter()
                    .filter(|j| explains(**j, reach))
                    .map(|j| &seen[*j])
                    .collect();
                cover(fabric, reach, &all, effect)
                    .then(|| of_row.iter().copied().find(|j| explains(*j, reach)))
                    .flatten()
            };
            let parent = find(Port).or_else(|| find(*reach));
            if parent.is_some() {
                parents[i] = parent;
                break;
            }
        }
    }
    let nodes: Vec<Finding> = seen.iter().map(|seen| seen.finding.clone()).collect();
    let roots = (0..nodes.len()).filter(|i| parents[*i].is_none());
    let mut all: Vec<Finding> = gathered(fabric, &seen, roots.collect())
        .into_iter()
        .filter_map(|alike| {
            let members: Vec<Finding> = alike
                .iter()
                .map(|root| taken(&nodes, &parents, *root))
                .collect();
            match members.len() {
                1 => members.into_iter().next(),
                _ => together(fabric, &seen, &alike, members),
            }
        })
        .collect();
    // What refuses first, then what is not known, then remarks; of these by the order of proof.
    all.sort_by_key(|finding| (Reverse(worst(finding)), layer(finding.code)));
    all
}

/// Causes that are one: the same of both ends of a cable, and the same of several hosts.
fn gathered(fabric: &Fabric, seen: &[Seen], roots: Vec<usize>) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::new();
    for root in roots {
        let own = &seen[root];
        let with = all.iter_mut().find(|alike| {
            alike
                .iter()
                .all(|other| are_one(fabric, own, &seen[*other]))
        });
        match with {
            Some(alike) => alike.push(root),
            None => all.push(vec![root]),
        }
    }
    all
}

/// Kinds of which several are one cause, whatever each of them tells: what is missing of a mesh went at once, and
/// who exchanges two plugs or takes a plane's addresses away silences several ports.
const OF_ONE_CAUSE: &[&str] = &[
    "neighbour-silent",
    "inventory-of-another-host",
    "plane-subnet-shared",
    "plane-unaddressed",
    "cabling-wire-differs",
    "cross-domain-cable",
    "subnet-ends",
    "port-gid",
    "mesh-old-mac",
    "mesh-old-address",
    "marker-missing",
    "marker-without-rule",
    "route-missing",
    "route-other",
    "rule-missing",
    "rule-other",
    // Of an earlier mesh.
    "left-over-route",
    "left-over-rule",
    "marker-left-over",
];

fn are_one(fabric: &Fabric, one: &Seen, other: &Seen) -> bool {
    let (a, b) = (&one.finding, &other.finding);
    if a.code != b.code || a.severity != b.severity {
        return false;
    }
    match a.code {
        // Both cables of a host: it is the host's.
        "cable-down" => !one.hosts.is_disjoint(&other.hosts),
        code if OF_ONE_CAUSE.contains(&code) => true,
        // Both ends of a cable were given other addresses.
        "mesh-plan-address" => {
            are_ends(fabric, &one.ports, &other.ports)
                || are_of_whole_hosts(fabric, one) && are_of_whole_hosts(fabric, other)
        }
        // The same ports of two hosts: one has the other's file.
        "address-repeated" => {
            one.hosts == other.hosts && are_alike(fabric, one) && are_alike(fabric, other)
        }
        _ if !same(a, b) => false,
        _ => match (one.ports.is_empty(), other.ports.is_empty()) {
            (true, true) => !one.hosts.is_empty(),
            (false, false) => {
                one.hosts == other.hosts
                    || are_ends(fabric, &one.ports, &other.ports)
                    || are_of_plane(fabric, one, other)
                    // Settings that were made by one hand. Links that are bad for themselves are problems.
                    || a.severity == Severity::Warning
                        && places(fabric, one) == places(fabric, other)
            }
            _ => false,
        },
    }
}

/// Whether these are both functions that two hosts have on the same domain.
fn are_of_plane(fabric: &Fabric, one: &Seen, other: &Seen) -> bool {
    let whole = |seen: &Seen| {
        let first = *seen.ports.first()?;
        (fabric.of_domain(first) == seen.ports).then_some(fabric.ports[first].domain)
    };
    whole(one).is_some() && whole(one) == whole(other)
}

/// The places of ports on their hosts.
fn places(fabric: &Fabric, seen: &Seen) -> BTreeSet<(usize, usize)> {
    let place = |port: &usize| (fabric.ports[*port].domain, fabric.ports[*port].port);
    seen.ports.iter().map(place).collect()
}

/// Whether this is about ports of several hosts that have one place there.
fn are_alike(fabric: &Fabric, seen: &Seen) -> bool {
    seen.hosts.len() > 1 && places(fabric, seen).len() == 1
}

/// Whether every port of the hosts is meant, and no cable's other end is as it was.
fn are_of_whole_hosts(fabric: &Fabric, seen: &Seen) -> bool {
    let mut own = seen.hosts.iter().flat_map(|node| fabric.of_host(*node));
    !seen.finding.found.ends_with(ALONE) && own.all(|port| seen.ports.contains(&port))
}

/// Whether findings tell the same, of whatever it is.
fn same(one: &Finding, other: &Finding) -> bool {
    one.code == other.code
        && one.severity == other.severity
        && one.found == other.found
        && one.wanted == other.wanted
}

/// Whether these are functions of two sockets that one cable joins.
fn are_ends(fabric: &Fabric, one: &BTreeSet<usize>, other: &BTreeSet<usize>) -> bool {
    let sockets = |ports: &BTreeSet<usize>| -> BTreeSet<Socket> {
        ports.iter().map(|port| fabric.socket(*port)).collect()
    };
    let (one, other) = (sockets(one), sockets(other));
    match (one.first(), other.first()) {
        (Some(a), Some(b)) => {
            one.len() == 1 && other.len() == 1 && a != b && fabric.far_socket(*a) == Some(*b)
        }
        _ => false,
    }
}

/// Findings that are told as one, each below.
fn together(
    fabric: &Fabric,
    seen: &[Seen],
    alike: &[usize],
    members: Vec<Finding>,
) -> Option<Finding> {
    let all = || alike.iter().map(|i| &seen[*i].hosts);
    let mut hosts: BTreeSet<usize> = all().flatten().copied().collect();
    let first = members.first()?.clone();
    let of_cables = first.code == "cable-down";
    if of_cables {
        // The host that all of these cables end at.
        hosts.retain(|host| all().all(|own| own.contains(host)));
    }
    let objects: BTreeSet<&Option<String>> = members.iter().map(|member| &member.object).collect();
    let ends = match alike {
        [a, b] => are_ends(fabric, &seen[*a].ports, &seen[*b].ports),
        _ => false,
    };
    let object = match objects.len() {
        _ if of_cables => Some(count(members.len(), "cable")),
        1 => first.object.clone(),
        _ if ends => Some("both ends of a cable".into()),
        _ => Some(count(members.len(), "place")),
    };
    let alike = |member: &Finding| member.found == first.found;
    let found = if of_cables {
        "no link on any function of them".to_owned()
    } else if members.iter().all(alike) {
        first.found.clone()
    } else {
        first.found.clone() + &more(members.len() - 1)
    };
    Some(Finding {
        host: (!hosts.is_empty()).then(|| fabric.host_names(&hosts)),
        object,
        found,
        consequences: members,
        ..first
    })
}

fn taken(nodes: &[Finding], parents: &[Option<usize>], at: usize) -> Finding {
    let below: Vec<usize> = (0..nodes.len())
        .filter(|i| parents[*i] == Some(at))
        .collect();
    let effects: Vec<Finding> = below
        .into_iter()
        .map(|effect| taken(nodes, parents, effect))
        .collect();
    let mut finding = nodes[at].clone();
    finding.consequences.extend(effects);
    finding
}

/// The severity of a finding and of everything below it.
pub(super) fn worst(finding: &Finding) -> Severity {
    let below = finding.consequences.iter().map(worst);
    below.fold(finding.severity, Severity::max)
}

/// Where in the order of proof a code stands.
fn layer(code: &str) -> usize {
    const ORDER: &[&[&str]] = &[
        &["host-", "inventory-", "port-place", "name-"],
        &[
            "nic-",
            "function-missing",
            "domains-per-node",
            "ports-per-domain",
            "port-numbers",
            "port-driver",
            "reload-failed",
            "pci-",
            "rdma-repeated",
            "netdev-repeated",
            "hca-names",
            "mac-",
            "port-mac",
        ],
        &[
            "cable-down",
            "port-link",
            "port-rdma",
            "port-carrier",
            "port-rate",
            "pcie-",
        ],
        &[
            "cabling-no-ring",
            "cabling-moved",
            "cabling-looped",
            "cabling-stranger",
            "self-cable",
        ],
        &[
            "cabling-",
            "plane-",
            "address-",
            "port-address",
            "port-in",
            "port-prefix",
            "subnet",
            "cross-domain",
            "neighbour",
            "arp-",
            "domains-differ",
            "ring-",
            "management",
            "peer-route",
        ],
        &["port-mtu"],
        &["gid-", "port-gid"],
        &["hairpin-"],
        &[
            "port-tc-offload",
            "port-trust",
            "port-steering",
            "port-eswitch",
            "ingress-qdisc",
        ],
        &["memory-", "module-", "netplan-", "rdma-core-"],
        &["clsact-", "rule-", "mesh-"],
        &["route-", "marker-", "source-port"],
        &["env-", "nccl-"],
    ];
    let at = ORDER
        .iter()
        .position(|codes| codes.iter().any(|start| code.starts_with(start)));
    at.unwrap_or(ORDER.len())
}

/// The same found on every port of hosts, on both ports of a domain of a host, or on both functions of a
/// socket is told once, with each port below.
fn rolled_up(fabric: &Fabric, seen: Vec<Seen>) -> Vec<Seen> {
    let mut rest: Vec<Option<Seen>> = seen.into_iter().map(Some).collect();
    let mut all = Vec::new();
    for i in 0..rest.len() {
        let Some(first) = rest[i].take() else {
            continue;
        };
        let alone = |seen: &Seen| {
            seen.ports
                .iter()
                .next()
                .copied()
                .filter(|_| seen.ports.len() == 1)
        };
        let Some(port) = alone(&first) else {
            all.push(first);
            continue;
        };
        let alike = |other: &Seen| {
            same(&first.finding, &other.finding) && other.finding.consequences.is_empty()
        };
        // Where each of these is, by its port.
        let mut places: BTreeMap<usize, usize> = [(port, i)].into();
        for (j, other) in rest.iter().enumerate().skip(i + 1) {
            if let Some(other) = other.as_ref().filter(|other| alike(other)) {
                places.extend(alone(other).map(|port| (port, j)));
            }
        }
        let ports: BTreeSet<usize> = places.keys().copied().collect();
        let covered = |own: &BTreeSet<usize>| own.len() > 1 && own.is_subset(&ports);
        let whole: BTreeSet<usize> = (0..fabric.hosts.len())
            .filter(|node| covered(&fabric.of_host(*node)))
            .collect();
        let located = &fabric.ports[port];
        let of_domain = fabric.of_domain(port);
        let of_socket = fabric.of_socket(fabric.socket(port));
        let (own, object) = if whole.contains(&located.node) {
            let own: BTreeSet<usize> = whole
                .iter()
                .flat_map(|node| fabric.of_host(*node))
                .collect();
            let object = format!("all {} ports", own.len());
            (own, object)
        } else if let Some(own) = [of_domain, of_socket].into_iter().find(|own| covered(own)) {
            let object = fabric.names(&own);
            (own, object)
        } else {
            all.push(first);
            continue;
        };
        let mut members = vec![first];
        members.extend(
            own.iter()
                .filter(|own| **own != port)
                .filter_map(|own| rest[places[own]].take()),
        );
        all.push(group(fabric, members, object));
    }
    all
}

fn group(fabric: &Fabric, members: Vec<Seen>, object: String) -> Seen {
    let ports: BTreeSet<usize> = members.iter().flat_map(|seen| seen.ports.clone()).collect();
    let hosts: BTreeSet<usize> = members.iter().flat_map(|seen| seen.hosts.clone()).collect();
    let first = members[0].finding.clone();
    let finding = Finding {
        host: Some(fabric.host_names(&hosts)),
        object: Some(object),
        consequences: members.into_iter().map(|seen| seen.finding).collect(),
        ..first
    };
    Seen {
        finding,
        ports,
        hosts,
        addresses: BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::doctor::corpus::facts_of;

    /// What is found at these places of these hosts.
    fn at(fabric: &Fabric, finding: Finding, places: &[(usize, usize)]) -> Seen {
        let port = |(node, place): &(usize, usize)| {
            let own: Vec<usize> = fabric.of_host(*node).into_iter().collect();
            own[*place]
        };
        Seen {
            finding,
            ports: places.iter().map(port).collect(),
            hosts: places.iter().map(|(node, _)| *node).collect(),
            addresses: BTreeSet::new(),
        }
    }

    #[test]
    fn findings_are_one_that_one_hand_made() {
        let (hosts, inventories) = facts_of("healthy");
        let fabric = Fabric::of(&hosts, &inventories, None);
        let are = |one: (&Finding, &[(usize, usize)]), other: (&Finding, &[(usize, usize)])| {
            let seen = |(finding, places): (&Finding, &[(usize, usize)])| {
                at(&fabric, finding.clone(), places)
            };
            are_one(&fabric, &seen(one), &seen(other))
        };
        // Of one host, or of the same place on several by a setting; of links, where they say the same.
        let (link, other) = (
            Finding::problem("port-mtu", "1500", "9000"),
            Finding::problem("port-mtu", "1400", "9000"),
        );
        assert!(are((&link, &[(0, 0)]), (&link, &[(0, 3)])));
        assert!(!are((&link, &[(0, 0)]), (&other, &[(0, 3)])));
        assert!(!are((&link, &[(0, 0)]), (&link, &[(2, 0)])));
        let setting = Finding::warning("port-mtu", "1500", "9000");
        assert!(are((&setting, &[(0, 0)]), (&setting, &[(2, 0)])));
        assert!(!are((&setting, &[(0, 0)]), (&setting, &[(2, 1)])));
        // Addresses of the same ports of two hosts.
        let twice = Finding::problem("address-repeated", "twice", "once");
        let (first, second) = ([(0, 0), (2, 0)], [(0, 1), (2, 1)]);
        assert!(are((&twice, &first), (&twice, &second)));
        assert!(!are((&twice, &first), (&twice, &[(0, 1), (2, 3)])));
        assert!(!are((&twice, &[(0, 1), (2, 3)]), (&twice, &first)));
        assert!(!are((&twice, &first), (&twice, &[(0, 1), (1, 1)])));
        assert!(!are((&twice, &[(0, 0)]), (&twice, &[(0, 1)])));
        // All addresses of hosts, or of a cable.
        let all = |node: usize| -> Vec<(usize, usize)> { (0..4).map(|i| (node, i)).collect() };
        let moved = Finding::problem("mesh-plan-address", "others", "the plan's");
        let alone = Finding::problem("mesh-plan-address", format!("others{ALONE}"), "the plan's");
        assert!(are((&moved, &all(0)), (&moved, &all(2))));
        assert!(!are((&moved, &all(0)), (&moved, &[(2, 0)])));
        assert!(!are((&moved, &[(0, 0)]), (&moved, &all(2))));
        assert!(!are((&alone, &all(0)), (&moved, &all(2))));
    }

    #[test]
    fn a_cause_reaches_what_it_explains() {
        let (hosts, inventories) = facts_of("healthy");
        let fabric = Fabric::of(&hosts, &inventories, None);
        let far = fabric.far(*fabric.of_host(0).first().unwrap()).unwrap();
        let node = fabric.ports[far].node;
        let place = fabric.of_host(node).iter().position(|own| *own == far);
        let far = (node, place.unwrap());
        let finding = |object: &str| Finding::problem("x", "a", "b").at(object);
        let does =
            |reach: Reach, cause: &Seen, effect: &Seen| reaches(&fabric, reach, cause, effect);
        let here = at(&fabric, finding("a rule 1"), &[(0, 0)]);
        let there = at(&fabric, finding("b rule 1"), &[far]);
        let beside = at(&fabric, finding("b rule 1"), &[(0, 3)]);
        let other = at(&fabric, finding("b rule 2"), &[(0, 3)]);
        assert!(does(Cable, &here, &here) && does(Cable, &here, &there));
        assert!(!does(Cable, &here, &beside));
        // What has the same name on the same host.
        assert!(does(Moved, &here, &beside));
        assert!(!does(Moved, &here, &other) && !does(Moved, &here, &there));
        // Nobody has another's address here.
        assert!(!does(Copied, &here, &here) && !does(Robbed, &here, &there));
    }

    #[test]
    fn a_list_of_devices_explains_what_a_log_tells_of_the_same_list() {
        let cause = |code, object: &str| Finding::problem(code, "x", "y").at(object);
        let effect = |code| Finding::problem(code, "2 devices", "4");
        let (nccl, engine) = (
            cause("env-hca-missing", "NCCL_IB_HCA"),
            cause("env-hca-missing", "B12X_ROCE_HCA"),
        );
        let (devices, hcas) = (effect("nccl-log-devices"), effect("nccl-log-hcas"));
        assert!(is_of_list(&nccl, &devices) && !is_of_list(&nccl, &hcas));
        assert!(!is_of_list(&engine, &devices) && is_of_list(&engine, &hcas));
        assert!(is_of_list(&nccl, &effect("x")));
        assert!(is_of_list(&cause("port-down", "a"), &devices));
        let strange =
            Finding::problem("nccl-log-devices", "a is no RDMA device of the fabric", "4");
        assert!(!is_of_list(&nccl, &strange));
    }

    #[test]
    fn nothing_causes_its_own_cause() {
        let causes: BTreeSet<&str> = CAUSES.iter().map(|(cause, ..)| *cause).collect();
        // Each cause, and the causes that are among its effects.
        let mut below: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (cause, _, effects) in CAUSES {
            let of_kind = |other: &&str| {
                other != cause
                    && effects.iter().any(|start| {
                        other.starts_with(start)
                            || other.ends_with('-') && start.starts_with(*other)
                    })
            };
            let among = causes.iter().copied().filter(of_kind);
            below.entry(cause).or_default().extend(among);
        }
        // Those that cause none of the rest can be taken away, again and again, until none is left.
        while !below.is_empty() {
            let left: BTreeSet<&str> = below.keys().copied().collect();
            below.retain(|_, effects| !effects.is_disjoint(&left));
            assert!(below.len() < left.len(), "{below:?}");
        }
    }
}
