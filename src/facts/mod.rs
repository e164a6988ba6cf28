//! The facts of one node: the inventory, as a value.
//!
//! | file | what it is |
//! |---|---|
//! | `mod.rs` | the types: [`Inventory`], [`PortFacts`], [`Fact`] |
//! | `node.rs` | the richer facts: [`NodeFacts`], [`PortDetails`] and the rows in them |
//! | `record.rs` | a struct as a JSON object, both ways from one list of fields |
//! | `document.rs` | an inventory from its JSON document, ours or today's tool's, and back |
//! | `hairpin.rs` | whether the driver has loaded the hairpin queue parameter that devlink shows |
//!
//! Nothing here asks a kernel: `kernel` and `collect` do, and fill these types.

mod document;
mod hairpin;
mod node;
mod record;

pub(crate) use document::{MOST_ADDRESSES, MOST_PORTS};
pub use hairpin::{HairpinParameter, applied};
pub use node::*;
pub use record::MOST_ROWS;

use serde::{Serialize, Serializer};

use crate::names::{Cidr, Gid, HostName, Mac, NetdevName, PciAddress, Place, RdmaName};

/// The schema of an inventory document.
pub const SCHEMA: &str = "hairpin-mesh.inventory/v1";

/// Something that was read, or why it was not.
///
/// "Not observed" is a result of its own. It is written `{"not_observed": "why"}` and never
/// counts as fine, absent or zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact<T> {
    /// Read.
    Known(T),
    /// Not read, and why.
    NotObserved(String),
}

impl<T> Fact<T> {
    /// The value, when it was read.
    pub fn known(&self) -> Option<&T> {
        match self {
            Fact::Known(value) => Some(value),
            Fact::NotObserved(_) => None,
        }
    }

    /// Why it was not observed; empty when it was.
    pub fn reason(self) -> String {
        match self {
            Fact::Known(_) => String::new(),
            Fact::NotObserved(why) => why,
        }
    }

    /// The same fact about the value in place.
    pub fn as_ref(&self) -> Fact<&T> {
        match self {
            Fact::Known(value) => Fact::Known(value),
            Fact::NotObserved(why) => Fact::NotObserved(why.clone()),
        }
    }

    /// A fact that the document does not mention.
    pub fn unmentioned() -> Fact<T> {
        Fact::NotObserved(UNMENTIONED.into())
    }

    /// Whether the document does not mention it: an inventory of an earlier program, or of today's tool.
    pub fn is_unmentioned(&self) -> bool {
        matches!(self, Fact::NotObserved(why) if why == UNMENTIONED)
    }

    /// Not observed, because of `why`: one line, bounded.
    pub fn because(why: impl std::fmt::Display) -> Fact<T> {
        Fact::NotObserved(record::reason(&why.to_string()))
    }

    /// The fact that follows from the value, which may itself not be observed.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Fact<U>) -> Fact<U> {
        match self {
            Fact::Known(value) => f(value),
            Fact::NotObserved(why) => Fact::NotObserved(why),
        }
    }

    /// The same fact about another form of the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Fact::Known(value) => Fact::Known(f(value)),
            Fact::NotObserved(why) => Fact::NotObserved(why),
        }
    }
}

/// The reason of a fact that the document does not mention.
const UNMENTIONED: &str = "not in the inventory";

/// A fact that the document does not mention.
impl<T> Default for Fact<T> {
    fn default() -> Fact<T> {
        Fact::unmentioned()
    }
}

impl<T, E: std::fmt::Display> From<Result<T, E>> for Fact<T> {
    fn from(result: Result<T, E>) -> Fact<T> {
        match result {
            Ok(value) => Fact::Known(value),
            Err(error) => Fact::because(error),
        }
    }
}

#[derive(Serialize)]
struct NotObserved<'a> {
    not_observed: &'a str,
}

impl<T: Serialize> Serialize for Fact<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Fact::Known(value) => value.serialize(serializer),
            Fact::NotObserved(why) => NotObserved { not_observed: why }.serialize(serializer),
        }
    }
}

/// One entry of a port's GID table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GidEntry {
    /// Index in the table, 0 to 255 (`struct ibv_ah_attr` holds it in 8 bits).
    pub index: u8,
    /// The GID.
    pub gid: Gid,
    /// `RoCE v2`, `IB/RoCE v1`, as sysfs `gid_attrs/types` names it; empty when the slot is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The network device that the entry belongs to, when it belongs to one.
    pub netdev: Option<NetdevName>,
}

/// The name of RoCE v2 in sysfs `gid_attrs/types`.
pub const ROCE_V2: &str = "RoCE v2";

/// What is known of a port's GIDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gids {
    /// The whole table (entries that are not zero).
    Table(Vec<GidEntry>),
    /// Index 3 alone, as today's tool records it, without its type.
    IndexThree {
        /// The GID at index 3.
        gid: Gid,
        /// The network device of that entry, when the tool saw one.
        netdev: Option<NetdevName>,
    },
    /// Nothing, and why.
    NotObserved(String),
}

/// Whether the value of a devlink driverinit parameter is the one that the driver has loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Applied {
    /// The loaded value is the one shown.
    Applied,
    /// The value shown waits for the next re-initialisation.
    Pending,
    /// The kernel does not tell and no record of ours does.
    Unknown,
    /// The document does not say (an inventory of today's tool): counts as applied, with a warning.
    #[serde(skip)]
    Unsaid,
}

/// The facts of one fabric function (a port in one PCI domain).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortFacts {
    /// Network device.
    pub netdev: NetdevName,
    /// RDMA device of the same function; `None` when it has none.
    pub rdma: Fact<Option<RdmaName>>,
    /// PCI address; `None` for a device that is not on PCI.
    pub pci: Fact<Option<PciAddress>>,
    /// All IPv4 addresses, in the kernel's order.
    pub ipv4: Fact<Vec<Cidr>>,
    /// MAC address.
    pub mac: Mac,
    /// MTU of the network device, bytes.
    pub mtu: u32,
    /// Operational state as sysfs `operstate` names it (`up`, `down`, `lowerlayerdown` …).
    pub state: String,
    /// GIDs of the RDMA port.
    pub gids: Gids,
    /// Whether `hw-tc-offload` is active.
    pub tc_offload: Fact<bool>,
    /// devlink `hairpin_num_queues`; `None` when the driver has no such parameter.
    pub hairpin_num_queues: Fact<Option<u32>>,
    /// devlink `hairpin_queue_size`, packets; `None` when the driver has no such parameter.
    pub hairpin_queue_size: Fact<Option<u32>>,
    /// Whether `hairpin_queue_size` is loaded.
    pub hairpin_queue_applied: Applied,
    /// devlink `flow_steering_mode`; `None` when the driver has no such parameter.
    pub flow_steering_mode: Fact<Option<String>>,
    /// devlink eswitch mode (`legacy`, `switchdev`); `None` when the driver has none.
    pub eswitch_mode: Fact<Option<String>>,
    /// State of the RDMA port (`ACTIVE`, `DOWN` …).
    pub rdma_state: Fact<String>,
    /// Active MTU of the RDMA port, bytes.
    pub rdma_active_mtu: Fact<u32>,
    /// What is known beyond what a plan needs.
    pub details: PortDetails,
}

impl PortFacts {
    /// PCI domain and function: from the PCI address, else from a predictable device name.
    pub fn place(&self) -> Option<Place> {
        match self.pci.known() {
            Some(Some(pci)) => Some(Place::of_pci(*pci)),
            _ => Place::of_netdev(&self.netdev),
        }
    }
}

/// The facts of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// The host, as the command line called it.
    pub host: HostName,
    /// Its fabric ports, in the document's order.
    pub ports: Vec<PortFacts>,
    /// The network device of the default route, which carries management; `None` when there is no
    /// default route.
    pub management_netdev: Fact<Option<NetdevName>>,
    /// What is known of the node beyond what a plan needs.
    pub node: NodeFacts,
    /// Functions that could not be described, and lists that were cut.
    pub left_out: Vec<LeftOut>,
}
