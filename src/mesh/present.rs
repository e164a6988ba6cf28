//! What the host has now of everything that its share of the plan touches.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{Applied, Fact, Filter, GidEntry, Neighbour, Qdisc, QueuePair, Route, Trust};
use crate::names::{Cidr, Mac, NetdevName, RdmaName, Text};

/// What the host has now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Present {
    /// One for each port of the host's plan, in its order.
    pub ports: Vec<PortNow>,
    /// IPv4 routes of all tables but `local`.
    pub routes: Fact<Vec<Route>>,
    /// The unit of each planned marker, and of those that an earlier plan had.
    pub markers: BTreeMap<RdmaName, Fact<MarkerNow>>,
    /// Ports whose `clsact` discipline this program or a script of the plan recorded as made by it.
    pub recorded_clsacts: BTreeSet<NetdevName>,
    /// By port: what [`LinkNow::rx_dropped`] was when `up` had made the rules, where it was `up`.
    pub dropped_when_made: BTreeMap<NetdevName, u64>,
}

/// What a port has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortNow {
    /// Its name in the plan.
    pub netdev: NetdevName,
    /// The network device of that name; `None` when there is none.
    pub link: Fact<Option<LinkNow>>,
    /// Its IPv4 addresses.
    pub addresses: Fact<Vec<Cidr>>,
    /// `hw-tc-offload`.
    pub offload: Fact<bool>,
    /// `flow_steering_mode`; `None` when the driver has no such parameter.
    pub steering: Fact<Option<Text>>,
    /// State of the port of the planned RDMA device (`ACTIVE`); `None` when the device is not there.
    pub rdma_state: Fact<Option<Text>>,
    /// The GID table's entry at the plan's index; `None` when the slot is empty.
    pub gid: Fact<Option<GidEntry>>,
    /// Queueing disciplines.
    pub qdiscs: Fact<Vec<Qdisc>>,
    /// tc filters at ingress and egress.
    pub filters: Fact<Vec<Filter>>,
    /// Neighbours.
    pub neighbours: Fact<Vec<Neighbour>>,
    /// What `verify` looks at beside these.
    pub more: PortMore,
}

/// What is asked of a port by `verify` alone; `up` leaves it not observed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortMore {
    /// eswitch mode; `None` when the driver has none.
    pub eswitch: Fact<Option<Text>>,
    /// Active MTU of the RDMA port, bytes.
    pub rdma_active_mtu: Fact<u32>,
    /// How the port maps packets to priorities.
    pub trust: Fact<Trust>,
    /// `hairpin_queue_size`, packets; `None` when the driver has no such parameter.
    pub queue_size: Fact<Option<u32>>,
    /// Whether that size is loaded.
    pub queue_state: Fact<Applied>,
    /// `hairpin_num_queues`; `None` when the driver has no such parameter.
    pub num_queues: Fact<Option<u32>>,
    /// Queue pairs of the RDMA device.
    pub queue_pairs: Fact<Vec<QueuePair>>,
}

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkNow {
    /// Its index; a device that went and came back has another.
    pub index: u32,
    /// Its MAC.
    pub mac: Option<Mac>,
    /// MTU, bytes.
    pub mtu: Option<u32>,
    /// Operational state as sysfs `operstate` names it.
    pub state: Text,
    /// Packets that came in and that the kernel dropped since the device is there. What the mesh marked
    /// and no rule of the NIC took is among them.
    pub rx_dropped: Option<u64>,
}

/// How a network device of the host stands to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: NetdevName,
    /// Its index.
    pub index: u32,
    /// The index of the device that it sends through: a VLAN's, a macvlan's.
    pub lower: Option<u32>,
    /// The index of the bond, bridge or VRF that it is part of.
    pub master: Option<u32>,
}

/// The unit of a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkerNow {
    /// systemd's word: `active`, `inactive`, `failed`, `activating` ...
    pub active: Text,
    /// systemd's more exact word: `running`, `dead`, `auto-restart` ...
    pub sub: Text,
    /// Its main process; 0 when there is none.
    pub pid: u32,
    /// Whether a process of the unit has the RDMA device, as it is now, open. One that had it open
    /// before the driver was re-initialised has not, and its rule is gone.
    pub holds_device: Fact<bool>,
}

/// Queue pairs of somebody else on a fabric device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// The RDMA device.
    pub device: RdmaName,
    /// Them.
    pub queue_pairs: Vec<QueuePair>,
}

impl Present {
    /// The port of this name in the plan.
    pub fn port(&self, netdev: &NetdevName) -> Option<&PortNow> {
        self.ports.iter().find(|port| port.netdev == *netdev)
    }
}
