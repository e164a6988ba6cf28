//! The plan: everything that follows from the facts of the nodes, and nothing else.
//!
//! Pure: no I/O, no clock, stable order. The same facts give the same plan to the byte.
//!
//! | file | what it is |
//! |---|---|
//! | `mod.rs` | the plan as a value: [`Plan`] and its rows; [`HostPlan`], one host's share |
//! | `mesh.rs` | the constants of the mesh, with their sources |
//! | `ring.rs` | the ring as a value; the ring sizes that can be planned |
//! | `ends.rs` | checks on the ends of cables, whatever they were read from |
//! | `derive/` | inventories to ring: every check, all problems at once |
//! | `assemble.rs` | ring to plan: paths, routes, rules, markers, environment |
//! | `topology.rs` | the peer project's topology document (`fabric.json`), read and written |
//! | `document.rs` | `plan.json` read back, and checked against its own ports |

mod assemble;
mod derive;
mod document;
pub(crate) mod ends;
pub mod mesh;
pub mod ring;
pub mod topology;

use std::net::Ipv4Addr;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

pub use self::assemble::{Choices, RouteStrategy, RuleIdentity, assemble};
pub use self::derive::{Derived, derive};
pub(crate) use self::derive::{Located, PORTS_PER_DOMAIN, survey};
use crate::facts::Inventory;
use crate::finding::{Finding, Severity};
use crate::json::{At, DocumentError};
use crate::names::{Cidr, HostName, Mac, NetdevName, PciAddress, RdmaName};
use crate::plan::ring::{Direction, Ring};

/// The schema of `plan.json`.
pub const SCHEMA: &str = "hairpin-mesh.plan/v1";

/// How many of the paths between opposite nodes are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OppositePaths {
    /// Two per pair, one in each domain and each through another neighbour.
    Two,
    /// All four per pair.
    Four,
}

impl OppositePaths {
    /// The number, 2 or 4.
    pub fn number(self) -> u8 {
        match self {
            OppositePaths::Two => 2,
            OppositePaths::Four => 4,
        }
    }
}

impl Serialize for OppositePaths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.number())
    }
}

pub use crate::names::EtherType;

/// A fabric port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortRow {
    /// Its host.
    pub host: HostName,
    /// Network device.
    pub netdev: NetdevName,
    /// RDMA device.
    pub rdma: RdmaName,
    /// PCI address; absent where the inventory had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci: Option<PciAddress>,
    /// 0 or 1: PCI domains by rising number.
    pub domain: usize,
    /// The way around the ring that it faces.
    pub direction: Direction,
    /// Address with prefix.
    pub ipv4: Cidr,
    /// MAC address.
    pub mac: Mac,
    /// The host at the other end of its cable.
    pub peer_host: HostName,
    /// The port at the other end of its cable.
    pub peer_netdev: NetdevName,
}

/// Direct (to a neighbour) or diagonal (to the opposite node, through a neighbour).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PathKind {
    /// Over one cable.
    Direct,
    /// Over two cables, through the hairpin queues of the node between.
    Diagonal,
}

/// A path that an RDMA queue pair can take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathRow {
    /// As the peer project's topology document names it.
    pub name: String,
    /// Direct or diagonal.
    pub kind: PathKind,
    /// Source.
    pub from: HostName,
    /// Destination.
    pub to: HostName,
    /// The node between; none for a direct path.
    pub via: Option<HostName>,
    /// Domain, the same all the way.
    pub domain: usize,
    /// RDMA device of the source.
    pub device: RdmaName,
    /// Flow label of its queue pairs; none (any) for a direct path.
    pub flow_label: Option<u32>,
}

/// A host route on a source: the destination's address through the neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouteRow {
    /// The source.
    pub host: HostName,
    /// The /32: the destination's port that faces the node between.
    pub destination: Ipv4Addr,
    /// The port of the node between that faces the source; none with the scope-link strategy.
    pub gateway: Option<Ipv4Addr>,
    /// The source's port that faces the node between.
    pub dev: NetdevName,
    /// That port's address.
    pub src: Ipv4Addr,
}

/// A permanent neighbour entry on a source (scope-link strategy only).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NeighbourRow {
    /// The source.
    pub host: HostName,
    /// The source's port that faces the node between.
    pub dev: NetdevName,
    /// The destination's address.
    pub address: Ipv4Addr,
    /// MAC of the node between.
    pub mac: Mac,
}

/// A transit rule on a node between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleRow {
    /// The node between.
    pub host: HostName,
    /// Its port that faces the source: the rule is at its ingress.
    pub dev: NetdevName,
    /// tc preference, 1 to 65535.
    pub pref: u16,
    /// tc handle, not 0.
    pub handle: u32,
    /// EtherType that it matches.
    pub protocol: EtherType,
    /// Source MAC that it matches: the source's port.
    pub src_mac: Mac,
    /// Destination MAC that it matches: the port that the rule is on.
    pub dst_mac: Mac,
    /// EtherType that it restores.
    pub set_ethertype: EtherType,
    /// Destination MAC that it writes: the destination's port.
    pub set_dst_mac: Mac,
    /// The port that it redirects to: the one that faces the destination.
    pub redirect: NetdevName,
}

/// A marker: the RDMA-TX rule on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MarkerRow {
    /// Its host.
    pub host: HostName,
    /// RDMA device.
    pub device: RdmaName,
    /// UDP source port that it matches.
    pub udp_source_port: u16,
    /// EtherType that it writes.
    pub ethertype: EtherType,
}

/// The engine's environment, in the order of `env.txt`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Env(pub Vec<(String, String)>);

/// Which of its variables are the size cap.
const SIZE_CAPS: [&str; 2] = ["SGLANG_ROCE_MAX_SIZE", "DSV41_ROCE_GATHER"];

impl Env {
    /// The same with another size cap, bytes.
    pub fn with_size_cap(&self, cap: u32) -> Env {
        let mut env = self.clone();
        for (name, value) in &mut env.0 {
            if SIZE_CAPS.contains(&name.as_str()) {
                *value = cap.to_string();
            }
        }
        env
    }
}

impl Serialize for Env {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// `env.txt`: one line of assignments.
impl std::fmt::Display for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={value}", if i > 0 { " " } else { "" })?;
        }
        writeln!(f)
    }
}

/// The plan of a ring: `plan.json`, field for field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub(crate) schema: &'static str,
    /// Hosts in TP rank order.
    pub hosts: Vec<HostName>,
    /// Hosts in ring order, from the head.
    pub ring: Vec<HostName>,
    /// Paths per opposite pair.
    pub opposite_paths: OppositePaths,
    /// The GID index that holds every port's RoCE v2 GID.
    pub gid_index: u8,
    /// MTU of the network devices, bytes.
    pub mtu: u32,
    /// The smallest applied hairpin queue size, packets.
    pub hairpin_queue_size: u32,
    /// The largest message that may cross a hairpin, bytes.
    pub size_cap_bytes: u32,
    /// The hairpin queue size that `up --set-hairpin-queue` sets, packets; none to keep what is.
    pub hairpin_queue_wanted: Option<u32>,
    /// By ring rank, then HCA index.
    pub ports: Vec<PortRow>,
    /// In path order.
    pub paths: Vec<PathRow>,
    /// In path order.
    pub routes: Vec<RouteRow>,
    /// In path order; empty with gateway routes.
    pub neighbours: Vec<NeighbourRow>,
    /// In path order of the diagonals that they carry.
    pub rules: Vec<RuleRow>,
    /// In path order.
    pub markers: Vec<MarkerRow>,
    /// `B12X_ROCE_PEER_HCA_MAPS`: one map per TP rank.
    pub peer_maps: String,
    /// The engine's environment.
    pub env: Env,
}

/// One host's share of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPlan<'a> {
    /// The host.
    pub host: &'a HostName,
    /// Its ports, by HCA index.
    pub ports: Vec<&'a PortRow>,
    /// Its routes.
    pub routes: Vec<&'a RouteRow>,
    /// Its permanent neighbour entries.
    pub neighbours: Vec<&'a NeighbourRow>,
    /// The rules that it forwards by.
    pub rules: Vec<&'a RuleRow>,
    /// Its markers.
    pub markers: Vec<&'a MarkerRow>,
}

impl Plan {
    /// The port at the other end of a port's cable.
    pub fn peer(&self, row: &PortRow) -> Option<&PortRow> {
        let is_peer =
            |other: &&PortRow| other.host == row.peer_host && other.netdev == row.peer_netdev;
        self.ports.iter().find(is_peer)
    }

    /// What `host` has to have; `None` when the plan does not know the host.
    pub fn for_host(&self, host: &str) -> Option<HostPlan<'_>> {
        fn of<'a, T>(rows: &'a [T], host: &HostName, its: impl Fn(&T) -> &HostName) -> Vec<&'a T> {
            rows.iter().filter(|row| its(row) == host).collect()
        }
        let host = self.hosts.iter().find(|h| h.as_str() == host)?;
        Some(HostPlan {
            host,
            ports: of(&self.ports, host, |r| &r.host),
            routes: of(&self.routes, host, |r| &r.host),
            neighbours: of(&self.neighbours, host, |r| &r.host),
            rules: of(&self.rules, host, |r| &r.host),
            markers: of(&self.markers, host, |r| &r.host),
        })
    }
}

/// What the user of `plan` chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Paths per opposite pair.
    pub opposite_paths: OppositePaths,
    /// The GID index to demand; none to find it.
    pub gid_index: Option<u8>,
    /// The hairpin queue size to want, packets; none to keep what is.
    pub hairpin_queue: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            opposite_paths: OppositePaths::Two,
            gid_index: None,
            hairpin_queue: Some(mesh::WANTED_HAIRPIN_QUEUE),
        }
    }
}

/// A plan with the ring that it came from and what to warn of; or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The plan; none when any finding is a problem.
    pub plan: Option<(Plan, Ring)>,
    /// Problems and warnings, causes first.
    pub findings: Vec<Finding>,
}

/// Whether any finding refuses.
pub fn refuses(findings: &[Finding]) -> bool {
    findings.iter().any(|f| f.severity == Severity::Problem)
}

impl Planned {
    fn refused(findings: Vec<Finding>) -> Planned {
        Planned {
            plan: None,
            findings,
        }
    }

    /// The plan of a ring that nothing in `findings` refuses.
    fn assembled(
        ring: Ring,
        hosts: &[HostName],
        choices: &Choices,
        mut findings: Vec<Finding>,
    ) -> Planned {
        match assemble(&ring, hosts, choices) {
            Ok(plan) => Planned {
                plan: Some((plan, ring)),
                findings,
            },
            Err(more) => {
                findings.extend(more);
                Planned::refused(findings)
            }
        }
    }
}

/// Plans the ring of `hosts` (TP rank order, the head first) from their inventories, which are in
/// the same order.
pub fn plan(hosts: &[HostName], inventories: &[Inventory], options: &Options) -> Planned {
    let Derived {
        ring,
        gid_index,
        hairpin_queue_size,
        mut findings,
    } = derive(hosts, inventories, options.gid_index);
    let Some(ring) = ring.filter(|_| !refuses(&findings)) else {
        return Planned::refused(findings);
    };
    findings.extend(topology::unreadable(&ring));
    let choices = Choices {
        opposite_paths: options.opposite_paths,
        gid_index,
        hairpin_queue_size,
        hairpin_queue_wanted: options.hairpin_queue,
        strategy: RouteStrategy::AdjacentGateway,
        identities: Default::default(),
    };
    Planned::assembled(ring, hosts, &choices, findings)
}

/// Hairpin queue sizes that may be wanted, packets: powers of two from the driver's default to the
/// largest that it takes.
pub fn is_queue_size(size: u32) -> bool {
    size.is_power_of_two()
        && (mesh::DEFAULT_HAIRPIN_QUEUE..=mesh::WANTED_HAIRPIN_QUEUE).contains(&size)
}

fn read_queue(at: &At) -> Result<u32, DocumentError> {
    let size = at.integer(0, u32::MAX.into())?;
    if is_queue_size(size) {
        Ok(size)
    } else {
        Err(at.error(format!(
            "is {size}, a power of two from 1024 to 8192 wanted"
        )))
    }
}
