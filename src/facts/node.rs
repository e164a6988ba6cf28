//! The facts of a node beyond those that a plan needs: what `verify` and `doctor` compare and
//! explain. Every struct here is a record of the inventory document, key by key.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::facts::record::{record, word};
use crate::facts::{Applied, Fact};
use crate::names::{AttributeName, Cidr, EtherType, Mac, NetdevName, PciAddress, RdmaName, Text};

/// Values of a directory of counters, by file name.
pub type Counters = BTreeMap<AttributeName, Fact<u64>>;

record! {
    /// What is known of the whole node.
    #[derive(Default)]
    pub struct NodeFacts {
        /// What wrote the inventory: `hairpin-mesh 0.1.0`.
        pub program: Fact<Text>,
        /// When it was written, seconds since 1970 by this node's clock.
        pub collected_at: Fact<u64>,
        /// `uname -r`.
        pub kernel: Fact<Text>,
        /// `uname -m`.
        pub architecture: Fact<Text>,
        /// A new one at each boot (`/proc/sys/kernel/random/boot_id`).
        pub boot_id: Fact<Text>,
        /// When the node booted, seconds since 1970 (`btime` of `/proc/stat`).
        pub boot_time: Fact<u64>,
        /// The `kho=` word of the kernel's command line, which reserves contiguous memory.
        pub kernel_handover: Fact<Option<Text>>,
        /// Board and firmware.
        pub machine: Machine,
        /// Memory.
        pub memory: Fact<Memory>,
        /// Settings below `/proc/sys/net/ipv4`.
        pub sysctls: NodeSysctls,
        /// `Ip: ForwDatagrams` of `/proc/net/snmp`: packets that the kernel forwarded since boot.
        pub ip_forwarded_datagrams: Fact<u64>,
        /// IPv4 routes of all tables but `local`, in the kernel's order.
        pub routes: Fact<Vec<Route>>,
        /// Processes that hold, or should hold, an RDMA-TX rule.
        pub markers: Fact<Vec<Marker>>,
        /// Processes that have queue pairs on the fabric's ports.
        #[serde(skip_serializing_if = "Fact::is_unmentioned")]
        pub rdma_processes: Fact<Vec<RdmaProcess>>,
        /// Version of rdma-core, by the file that libibverbs was loaded from: `1.14.50.0`.
        #[serde(skip_serializing_if = "Fact::is_unmentioned")]
        pub rdma_core: Fact<Text>,
        /// Kernel modules that are loaded (`/proc/modules`); what is built in is not among them.
        #[serde(skip_serializing_if = "Fact::is_unmentioned")]
        pub modules: Fact<Vec<Text>>,
        /// Files of `/etc/netplan` that name a fabric port.
        #[serde(skip_serializing_if = "Fact::is_unmentioned")]
        pub netplan_files: Fact<Vec<NetplanFile>>,
        /// The NCCL libraries that were asked for.
        #[serde(skip_serializing_if = "Fact::is_unmentioned")]
        pub nccl_libraries: Fact<Vec<NcclLibrary>>,
    }

    /// A process that has queue pairs.
    pub struct RdmaProcess {
        /// Process.
        pub pid: u32,
        /// Its name.
        pub owner: Fact<Text>,
        /// How much memory it may lock, bytes; `null` without a limit.
        pub memory_lock_limit: Fact<Option<u64>>,
        /// Whether it may lock more all the same (`CAP_IPC_LOCK`).
        pub ipc_lock: Fact<bool>,
    }

    /// A file of netplan that names a fabric port.
    pub struct NetplanFile {
        /// Its name in `/etc/netplan`.
        pub file: Text,
        /// The fabric ports that it names.
        pub netdevs: Vec<NetdevName>,
    }

    /// An NCCL library.
    pub struct NcclLibrary {
        /// Where it is, as it was asked for.
        pub path: Text,
        /// Its SHA-256.
        pub sha256: Fact<Text>,
        /// Whether it has the marker string of the switchless ring in it.
        pub ring_marker: Fact<bool>,
    }

    /// Board and firmware, as `/sys/class/dmi/id` has them.
    #[derive(Default)]
    pub struct Machine {
        /// `product_name`
        pub product: Fact<Text>,
        /// `bios_version`
        pub bios_version: Fact<Text>,
        /// `bios_date`
        pub bios_date: Fact<Text>,
    }

    /// Memory, kB, from `/proc/meminfo`. The CMA figures are `null` on a kernel without CMA.
    pub struct Memory {
        /// `MemTotal`
        pub total_kb: u64,
        /// `MemAvailable`
        pub available_kb: u64,
        /// `CmaTotal`: memory reserved for contiguous allocations.
        pub cma_total_kb: Option<u64>,
        /// `CmaFree`; more than `cma_total_kb` on kernels whose accounting is off.
        pub cma_free_kb: Option<u64>,
    }

    /// Settings of the node as a whole.
    #[derive(Default)]
    pub struct NodeSysctls {
        /// `net.ipv4.ip_forward`
        pub ip_forward: Fact<u32>,
        /// `net.ipv4.conf.all.rp_filter`; the stricter of this and the device's counts.
        pub rp_filter: Fact<u32>,
        /// `net.ipv4.conf.all.arp_ignore`
        pub arp_ignore: Fact<u32>,
        /// `net.ipv4.conf.all.arp_announce`
        pub arp_announce: Fact<u32>,
    }

    /// What is known of one fabric port beyond what a plan needs.
    #[derive(Default)]
    pub struct PortDetails {
        /// Index of the network device; a device that went and came back has another.
        pub ifindex: Fact<u32>,
        /// Port number of the RDMA device.
        pub rdma_port: Fact<u32>,
        /// Name that the driver gives the port (`p0`); `null` when it gives none.
        pub phys_port_name: Fact<Option<Text>>,
        /// Whether there is a carrier.
        pub carrier: Fact<bool>,
        /// Kernel driver of the RDMA device's function.
        pub driver: Fact<Text>,
        /// Version of the driver module; `null` for one that is part of the kernel's tree, whose
        /// version is the kernel's.
        pub driver_version: Fact<Option<Text>>,
        /// Firmware version.
        pub firmware: Fact<Text>,
        /// Node GUID of the RDMA device.
        pub node_guid: Fact<Text>,
        /// Whether `hw-tc-offload` cannot be changed.
        pub tc_offload_fixed: Fact<bool>,
        /// devlink handle: `pci/0000:01:00.0`; `null` when the function has none.
        pub devlink: Fact<Option<Text>>,
        /// Driver re-initialisations since the driver was loaded (devlink, `driver_reinit`
        /// without limit).
        pub reload_count: Fact<u32>,
        /// Whether the last re-initialisation failed.
        pub reload_failed: Fact<bool>,
        /// Whether `hairpin_num_queues` is loaded.
        pub hairpin_num_queues_state: Fact<Applied>,
        /// Our own record of the last `hairpin_queue_size` that was set; `null` when there is none.
        pub hairpin_queue_record: Fact<Option<HairpinRecord>>,
        /// Physical state of the RDMA port (`LinkUp`, `Disabled` ...).
        pub rdma_phys_state: Fact<Text>,
        /// Rate of the RDMA port: `200 Gb/sec (4X HDR)`.
        pub rdma_rate: Fact<Text>,
        /// The function's PCIe link; `null` for a device that is not on PCI.
        pub pcie: Fact<Option<Pcie>>,
        /// How the port maps packets to priorities.
        pub trust: Fact<Trust>,
        /// Settings of the network device.
        pub sysctls: PortSysctls,
        /// Queueing disciplines of the network device.
        pub qdiscs: Fact<Vec<Qdisc>>,
        /// tc filters at ingress and egress.
        pub filters: Fact<Vec<Filter>>,
        /// Neighbours (ARP and IPv6), without the multicast and broadcast entries.
        pub neighbours: Fact<Vec<Neighbour>>,
        /// Who answered ARP probes on the port, for whichever addresses were asked for.
        #[serde(skip_serializing_if = "Fact::is_unmentioned")]
        pub wire: Fact<Vec<WireAnswer>>,
        /// Queue pairs of the RDMA port.
        pub queue_pairs: Fact<Vec<QueuePair>>,
        /// `/sys/class/infiniband/<device>/ports/<port>/counters`
        pub counters: Fact<Counters>,
        /// `/sys/class/infiniband/<device>/ports/<port>/hw_counters`
        pub hw_counters: Fact<Counters>,
    }

    /// Our record that a hairpin queue size was set (see [`crate::collect::record`]).
    pub struct HairpinRecord {
        /// The boot in which it was set.
        pub boot_id: Text,
        /// The function.
        pub pci: PciAddress,
        /// Its reload counter when it was set.
        pub reload_count: u32,
        /// The size, packets.
        pub value: u32,
    }

    /// A PCIe link.
    pub struct Pcie {
        /// `32.0 GT/s PCIe`
        pub current_speed: Fact<Text>,
        /// Lanes.
        pub current_width: Fact<u32>,
        /// What the function can do.
        pub max_speed: Fact<Text>,
        /// Lanes.
        pub max_width: Fact<u32>,
    }

    /// Settings below `/proc/sys/net/ipv4/conf/<device>`.
    #[derive(Default)]
    pub struct PortSysctls {
        /// Reverse path filter: 0 off, 1 strict, 2 loose.
        pub rp_filter: Fact<u32>,
        /// Which addresses ARP answers for.
        pub arp_ignore: Fact<u32>,
        /// Which source address ARP asks with.
        pub arp_announce: Fact<u32>,
    }

    /// An IPv4 route, or one next hop of a multipath route.
    pub struct Route {
        /// The network; `0.0.0.0/0` for a default route.
        pub destination: Cidr,
        /// Routing table (254 is `main`).
        pub table: u32,
        /// Type of service; 0 for a route that serves all.
        pub tos: u8,
        /// `unicast`, `blackhole` ...
        pub kind: Text,
        /// `rtm_protocol`: who made it (2 kernel, 3 boot, 4 static).
        pub protocol: u8,
        /// `global`, `link`, `host`, `site` or a number.
        pub scope: Text,
        /// Next hop.
        pub gateway: Option<IpAddr>,
        /// Network device.
        pub dev: Option<NetdevName>,
        /// Preferred source address.
        pub src: Option<IpAddr>,
        /// Priority; lower wins.
        pub metric: u32,
        /// Whether this is one of several next hops.
        pub multipath: bool,
        /// `linkdown`, `dead`, `onlink` ...
        pub flags: Vec<Text>,
        /// Attributes beside these, which make it another route: `metrics`, `nexthop 5` ...;
        /// `null` when there are none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub other: Option<Vec<Text>>,
    }

    /// A neighbour of a port.
    pub struct Neighbour {
        /// Its address.
        pub address: IpAddr,
        /// Its MAC; `null` while it is not known.
        pub mac: Option<Mac>,
        /// `reachable`, `stale`, `permanent`, `failed` ...
        pub state: Text,
    }

    /// An answer to an ARP probe.
    pub struct WireAnswer {
        /// The address that was asked for.
        pub address: IpAddr,
        /// The MAC of the port that answered.
        pub mac: Mac,
    }

    /// A queueing discipline.
    pub struct Qdisc {
        /// `clsact`, `ingress`, `mq`, `fq_codel` ...
        pub kind: Text,
        /// `ffff:`
        pub handle: Text,
        /// `root`, or `ffff:fff1`
        pub parent: Text,
        /// Blocks of filters that it shares with other disciplines: `ingress_block 1` ...; `null`
        /// when its filters are its own.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub other: Option<Vec<Text>>,
    }

    /// A tc filter.
    pub struct Filter {
        /// Which side of the port.
        pub side: Side,
        /// Preference.
        pub pref: u16,
        /// EtherType that it is for.
        pub protocol: EtherType,
        /// Chain; 0 is where packets start.
        pub chain: u32,
        /// Handle.
        pub handle: u32,
        /// Classifier: `flower`, `u32`, `bpf` ...
        pub kind: Text,
        /// The parts of a flower filter; `null` for other classifiers, which are not looked into.
        pub flower: Option<Flower>,
        /// Number of the block that the port shares with others and that the filter is in; `null`
        /// for a filter of the port alone.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub block: Option<u32>,
    }

    /// The parts of a flower filter.
    pub struct Flower {
        /// EtherType that it matches.
        pub eth_type: Option<EtherType>,
        /// Source MAC that it matches.
        pub src_mac: Option<Mac>,
        /// Bits of the source MAC that it looks at; `null` for all of them.
        pub src_mac_mask: Option<Mac>,
        /// Destination MAC that it matches.
        pub dst_mac: Option<Mac>,
        /// Bits of the destination MAC that it looks at; `null` for all of them.
        pub dst_mac_mask: Option<Mac>,
        /// Numbers (`TCA_FLOWER_*`) of keys that it matches beside these.
        pub other_keys: Vec<u16>,
        /// Not in software.
        pub skip_sw: bool,
        /// Not in hardware.
        pub skip_hw: bool,
        /// A device has it.
        pub in_hw: bool,
        /// No device has it.
        pub not_in_hw: bool,
        /// How many devices have it.
        pub in_hw_count: Option<u32>,
        /// What it does, in order.
        pub actions: Vec<Action>,
    }

    /// An action of a filter.
    pub struct Action {
        /// `pedit`, `mirred`, `gact` ...
        pub kind: Text,
        /// What follows it: `pipe`, `stolen`, `drop`, `pass` ... or a number.
        pub control: Option<Text>,
        /// Words that a `pedit` writes.
        pub edits: Vec<Edit>,
        /// Where a `mirred` sends packets.
        pub mirred: Option<Mirred>,
        /// What else makes it another action than these parts say: `hw_stats 0`, `flags 1`,
        /// `cookie aabb`, `shared` (others hold it too, and may change it) ...; `null` when nothing
        /// does.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub other: Option<Vec<Text>>,
        /// Bytes that went through it.
        pub bytes: Option<u64>,
        /// Packets that went through it.
        pub packets: Option<u64>,
        /// Of these, bytes that a device counted.
        pub hw_bytes: Option<u64>,
        /// Of these, packets that a device counted.
        pub hw_packets: Option<u64>,
        /// Seconds since it was installed.
        pub installed_seconds: Option<u64>,
        /// Seconds since it was last used.
        pub idle_seconds: Option<u64>,
    }

    /// A 32-bit word that `pedit` writes. Mask and value are the packet's bytes in their order.
    pub struct Edit {
        /// Header that the offset counts from: `eth`, `ip4`, `ip6`, `tcp`, `udp`, `network`.
        pub header: Text,
        /// `set` or `add`.
        pub command: Text,
        /// Bytes from the header's start.
        pub offset: u32,
        /// Eight hex digits: bits that are kept.
        pub keep: Text,
        /// Eight hex digits: bits that are written.
        pub value: Text,
        /// Whether the offset also depends on the packet.
        pub moving: bool,
    }

    /// Where `mirred` sends packets.
    pub struct Mirred {
        /// `egress redirect`, `egress mirror`, `ingress redirect`, `ingress mirror`
        pub way: Text,
        /// The device; `null` when it is gone (`*` in `tc`).
        pub dev: Option<NetdevName>,
    }

    /// A process that holds, or should hold, an RDMA-TX rule.
    pub struct Marker {
        /// The systemd unit that it runs in, `dsv41-mesh-marker@<device>.service`; `null` outside one.
        pub unit: Option<Text>,
        /// RDMA device; `null` when neither unit nor command line names one.
        pub device: Option<RdmaName>,
        /// Process.
        pub pid: u32,
        /// When it started, seconds since boot.
        pub started_seconds: u64,
        /// Whether it has the RDMA device, as it is now, open: one that had it open before the driver was
        /// re-initialised has not, and its rule is gone.
        #[serde(skip_serializing_if = "Fact::is_unmentioned")]
        pub holds_device: Fact<bool>,
        /// Its command line.
        pub command_line: Fact<Text>,
    }

    /// A queue pair.
    pub struct QueuePair {
        /// Its number.
        pub number: u32,
        /// The number of its peer, for connected types.
        pub remote_number: Option<u32>,
        /// `RC`, `UD`, `GSI`, `SMI` ... or a number.
        pub kind: Text,
        /// `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE`, `ERR` or a number.
        pub state: Text,
        /// Process of a user's queue pair; `null` for the kernel's.
        pub pid: Option<u32>,
        /// Name of that process, or of the kernel module that owns it.
        pub owner: Fact<Text>,
    }

    /// Something that the inventory should have and does not.
    pub struct LeftOut {
        /// What: `rocep1s0f0`, `routes`.
        pub what: Text,
        /// Why.
        pub why: Text,
    }
}

impl Action {
    /// An action of a kind, with nothing said of it yet.
    pub fn new(kind: &str) -> Action {
        Action {
            kind: kind.into(),
            control: None,
            edits: Vec::new(),
            mirred: None,
            other: None,
            bytes: None,
            packets: None,
            hw_bytes: None,
            hw_packets: None,
            installed_seconds: None,
            idle_seconds: None,
        }
    }
}

impl Filter {
    /// The filter as it was written: without what the kernel and the driver say of it, counters, ages and
    /// whether it is in hardware.
    pub fn as_written(&self) -> Filter {
        let mut filter = self.clone();
        if let Some(flower) = &mut filter.flower {
            (flower.in_hw, flower.not_in_hw, flower.in_hw_count) = (false, false, None);
            for action in &mut flower.actions {
                *action = Action {
                    control: action.control.take(),
                    edits: std::mem::take(&mut action.edits),
                    mirred: action.mirred.take(),
                    other: action.other.take(),
                    ..Action::new(action.kind.as_str())
                };
            }
        }
        filter
    }
}

word! {
    /// Side of a port that a filter is on.
    pub enum Side {
        /// Packets that come in.
        Ingress = "ingress",
        /// Packets that go out.
        Egress = "egress",
    }
}

word! {
    /// How a port maps packets to priorities.
    pub enum Trust {
        /// By the VLAN tag's priority. mlx5 takes hairpin rules in this state alone.
        Pcp = "pcp",
        /// By the IP header's DSCP.
        Dscp = "dscp",
    }
}
