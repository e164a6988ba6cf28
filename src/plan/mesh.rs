//! The constants of the mesh, each written once, with its source.

use crate::names::RdmaName;

/// Domains of a node: a DGX Spark's ConnectX-7 shows every QSFP port as one PCI function in each
/// of two PCI root domains.
pub const DOMAINS: usize = 2;

/// RoCE flow label of a diagonal's queue pairs, on both ends. The kernel folds it to UDP source
/// port 65535 (`rdma_flow_label_to_udp_sport`, `rdma/ib_verbs.h`).
pub const FLOW_LABEL: u32 = 16383;

/// UDP source port that the marker tags: [`FLOW_LABEL`] folded.
pub const MARKED_UDP_SOURCE_PORT: u16 = 65535;

/// UDP destination port of RoCE v2 (IBTA annex A17; IANA `roce`).
pub const ROCE_UDP_PORT: u16 = 4791;

/// EtherType of a marked packet on the wire (IEEE 802 local experimental EtherType 1).
pub const MARKED_ETHERTYPE: u16 = 0x88b5;

/// EtherType that the transit rule restores: IPv4 (`ETH_P_IP`, `linux/if_ether.h`).
pub const IPV4_ETHERTYPE: u16 = 0x0800;

/// Preference and handle of diagonal 0; diagonal n has this plus n (the peer project's numbering,
/// the first of the preferences that the kernel would choose by itself).
pub const FIRST_PREFERENCE: u32 = 49152;

/// `rtm_protocol` of our routes. Not one that the kernel, iproute2's `rt_protos` or a routing
/// daemon uses, and not one that NetworkManager prunes (0 to 4, 9, 16).
pub const ROUTE_PROTOCOL: u8 = 141;

/// MTU of every fabric network device, bytes.
pub const ETHERNET_MTU: u32 = 9000;

/// Active MTU of every RDMA port, bytes: the largest IBTA path MTU that fits [`ETHERNET_MTU`].
pub const ROCE_MTU: u32 = 4096;

/// GID index on the tested machines; preferred where it is valid.
pub const PREFERRED_GID_INDEX: u8 = 3;

/// `hairpin_queue_size` that mlx5 starts with, packets.
pub const DEFAULT_HAIRPIN_QUEUE: u32 = 1024;

/// `hairpin_queue_size` that the mesh wants, packets; the largest that the driver takes.
pub const WANTED_HAIRPIN_QUEUE: u32 = 8192;

/// `hairpin_num_queues` that hardware forwarding was qualified on.
pub const QUALIFIED_HAIRPIN_NUM_QUEUES: u32 = 4;

/// `flow_steering_mode` that hardware forwarding was qualified on.
pub const STEERING_MODE: &str = "hmfs";

/// Network device that carries management on a DGX Spark, where an inventory does not tell.
pub const DEFAULT_MANAGEMENT_NETDEV: &str = "enP7s7";

/// Largest message, bytes, that is safe to forward at hairpin queue size `queue` (packets).
///
/// Measured in the field by the method's users, not by this project: at 1024 bursts above about
/// 100 KB overflow the queue, 60 KB does not; at 8192 up to 480 KB pass.
pub fn size_cap(queue: u32) -> u32 {
    if queue < WANTED_HAIRPIN_QUEUE {
        81_920
    } else {
        262_144
    }
}

/// The unit of a marker: this, the RDMA device, `.service`.
pub const MARKER_UNIT: &str = "dsv41-mesh-marker@";

/// The unit of the marker on `device`: the name as it is, because all of its characters may stand in the
/// name of a unit (systemd.unit(5)) and `%i` gives them back as they are.
pub fn marker_unit(device: &RdmaName) -> String {
    format!("{MARKER_UNIT}{device}.service")
}

/// The engine's environment without its ring: what has to be in place before a mesh is taken down.
pub const ENGINE_OFF: &str = "DSV41_ROCE_RING=0 SGLANG_ROCE_ALLREDUCE=0";
