//! The words of a log that tell something by themselves, and what they mean.
//!
//! Errors and events are as the strings of `libnccl.so` 2.28 and older have them, those of events beside as
//! `ibv_event_type_str` (rdma-core, `libibverbs/enum_strs.c`) says them; statuses are those of
//! `enum ibv_wc_status` (`infiniband/verbs.h`).

use crate::finding::Severity;

pub(super) const NO_PATH: &str = "nccl-log-no-path";
pub(super) const TREE: &str = "nccl-log-tree";
pub(super) const UNREACHABLE: &str = "nccl-log-socket-unreachable";

/// What a line tells by its words, and what it means.
pub(super) struct Error {
    /// A line has all words of one of these.
    pub(super) words: &'static [&'static [&'static str]],
    pub(super) code: &'static str,
    pub(super) found: &'static str,
    pub(super) wanted: &'static str,
    pub(super) advice: &'static str,
}

impl Error {
    pub(super) fn is_in(&self, line: &str) -> bool {
        let has = |word: &&str| line.contains(word);
        self.words.iter().any(|all| all.iter().all(has))
    }

    /// Whether it stands for lines that no other row knows.
    pub(super) fn is_rest(&self) -> bool {
        matches!(self.code, "nccl-log-qp-failed" | "nccl-log-event-unknown")
    }

    /// How it is told: certainly wrong, perhaps, or worth knowing.
    pub(super) fn severity(&self) -> Option<Severity> {
        match self.code {
            "nccl-log-event-subnet" | "nccl-log-event-usual" => None,
            // An IPv6 address that comes or goes is a change of the table, too.
            "nccl-log-gid-change"
            | "nccl-log-port-active"
            | "nccl-log-event-path"
            | "nccl-log-event-unknown"
            | "nccl-log-end-peer" => Some(Severity::Warning),
            _ => Some(Severity::Problem),
        }
    }
}

pub(super) const VERSIONS: &str =
    "the same library on all hosts: hairpin-mesh doctor --nccl-library PATH HOST... compares them";
pub(super) const QUEUES: &str = "the first error of either end tells why: the logs of both ranks, and journalctl -k -g mlx5 of that time on both hosts";

// A number alone would be found in the number of any process, and `::` at the start of any mapped address.
pub(super) const ERRORS: &[Error] = &[
    Error {
        words: &[
            &["async", " event", "port error"],
            &["NET/IB", "Got port error"],
        ],
        code: "nccl-log-port-error",
        found: "a port went down while it was in use",
        wanted: "links that stay up",
        advice: "journalctl -k -g 'mlx5|cx7-pcie-hotplug|AER' of that time; the cable's plugs at both ends",
    },
    Error {
        words: &[
            &["async", " event", "GID table change"],
            &["NET/IB", "GID table changed"],
        ],
        code: "nccl-log-gid-change",
        found: "GIDs changed while they were in use: an address or a link went away and came back",
        wanted: "addresses that stay",
        advice: "see what the network manager did at that time; start the engine again, and pin no GID index",
    },
    Error {
        words: &[&["async", " event", "port active"]],
        code: "nccl-log-port-active",
        found: "a port came up while it was in use: it was down before",
        wanted: "links that stay up",
        advice: "journalctl -k -g 'mlx5|cx7-pcie-hotplug|AER' of that time; the cable's plugs at both ends",
    },
    Error {
        words: &[&["async", " event", "local catastrophic error"]],
        code: "nccl-log-event-device",
        found: "a function of the NIC failed under the program (local catastrophic error): its queue pairs are gone, and its marker",
        wanted: "functions that stay",
        advice: "journalctl -k -g 'mlx5|AER' of that time; hairpin-mesh up and hairpin-mesh verify, then start the engine again",
    },
    Error {
        words: &[&["async", " event", "CQ error"]],
        code: "nccl-log-event-queue",
        found: "a completion queue failed (CQ error): it ran over, or its function went away",
        wanted: "queues that work",
        advice: QUEUES,
    },
    Error {
        words: &[&["async", " event", "local work queue catastrophic error"]],
        code: "nccl-log-event-queue",
        found: "a queue pair failed on its own host (local work queue catastrophic error)",
        wanted: "queues that work",
        advice: QUEUES,
    },
    Error {
        words: &[&["async", " event", "invalid request local work queue error"]],
        code: "nccl-log-event-queue",
        found: "a queue pair got a request from its peer that it does not take (invalid request local work queue error)",
        wanted: "queues that work",
        advice: QUEUES,
    },
    Error {
        words: &[&["async", " event", "local access violation work queue error"]],
        code: "nccl-log-event-queue",
        found: "a queue pair's peer reached for memory that it was not given (local access violation work queue error)",
        wanted: "queues that work",
        advice: QUEUES,
    },
    Error {
        words: &[&["async", " event", "SRQ catastrophic error"]],
        code: "nccl-log-event-queue",
        found: "a shared receive queue failed (SRQ catastrophic error)",
        wanted: "queues that work",
        advice: QUEUES,
    },
    Error {
        words: &[&["async", " event", "WQ fatal"]],
        code: "nccl-log-event-queue",
        found: "a receive work queue failed (WQ fatal)",
        wanted: "queues that work",
        advice: QUEUES,
    },
    Error {
        words: &[&["async", " event", "path migration request error"]],
        code: "nccl-log-event-path",
        found: "a queue pair's move to another path was refused (path migration request error), and NCCL asks for none",
        wanted: "no such move",
        advice: "what else uses RDMA here, and moves its queue pairs? rdma resource show qp",
    },
    Error {
        words: &[
            &["async", " event", "LID change"],
            &["async", " event", "P_Key change"],
            &["async", " event", "SM change"],
            &["async", " event", "client reregistration"],
        ],
        code: "nccl-log-event-subnet",
        found: "events of InfiniBand's subnet manager (LID, P_Key or SM change, client reregistration), which say nothing of RoCE",
        wanted: "that",
        advice: "",
    },
    Error {
        words: &[
            &["async", " event", "communication established"],
            &["async", " event", "send queue drained"],
            &["async", " event", "path migrated"],
            &["async", " event", "last WQE reached"],
            &["async", " event", "SRQ limit reached"],
        ],
        code: "nccl-log-event-usual",
        found: "events of queue pairs that live and end as they should (established, drained, migrated, last or few receives left)",
        wanted: "that",
        advice: "",
    },
    Error {
        words: &[&["ibv_reg_mr", "Cannot allocate memory"]],
        code: "nccl-log-memory",
        found: "memory could not be registered",
        wanted: "memory that can be registered",
        advice: "in a container: ulimit -l unlimited and CAP_IPC_LOCK; with kernel 7 see CmaFree and CmaTotal of /proc/meminfo (kho=off)",
    },
    Error {
        words: &[&["Call to ibv_", "Cannot allocate memory"]],
        code: "nccl-log-memory",
        found: "memory of a queue could not be locked",
        wanted: "memory that can be locked",
        advice: "in a container: ulimit -l unlimited and CAP_IPC_LOCK; with kernel 7 see CmaFree and CmaTotal of /proc/meminfo (kho=off)",
    },
    Error {
        words: &[
            &["ibv_modify_qp", "timed out"],
            &["ibv_modify_qp", "with 110"],
            &["ibv_modify_qp", "errno 110"],
            &["ibv_modify_qp", "No route to host"],
            &["ibv_modify_qp", "with 113"],
            &["ibv_modify_qp", "errno 113"],
            &["ibv_modify_qp", "Network is unreachable"],
            &["ibv_modify_qp", "with 101"],
            &["ibv_modify_qp", "errno 101"],
        ],
        code: "nccl-log-no-path",
        found: "a queue pair found no way to its peer's GID: an HCA without a path was chosen (opposite nodes have no common subnet)",
        wanted: "connections to neighbours alone, or a mesh",
        advice: "NCCL_SWITCHLESS_RING_ONLY=1 with the library of the switchless ring; hairpin-mesh verify for the mesh",
    },
    Error {
        words: &[
            &["ibv_modify_qp", "Invalid argument"],
            &["ibv_modify_qp", "with 22 "],
            &["ibv_modify_qp", "errno 22"],
        ],
        code: "nccl-log-qp-refused",
        found: "a queue pair's address or MTU was refused (errno 22): no GID of that kind at the index, GIDs of different kinds at the two ends, or a path MTU above the port's",
        wanted: "a RoCE v2 GID of IPv4 at the index that is used, on both ends, and the same MTU",
        advice: "pin no GID index, or the one that hairpin-mesh plan finds; hairpin-mesh doctor tells the GIDs and MTUs of all ports",
    },
    Error {
        words: &[
            &["ibv_modify_qp", "No data available"],
            &["ibv_modify_qp", "with 61"],
            &["ibv_modify_qp", "errno 61"],
        ],
        code: "nccl-log-gid-empty",
        found: "the GID at the pinned index is empty (errno 61)",
        wanted: "a GID at that index on every HCA",
        advice: "address and MTU of that port first; pin no index, or the one that hairpin-mesh plan finds",
    },
    Error {
        words: &[&["local GID ::,"], &["local GID :: "]],
        code: "nccl-log-gid-empty",
        found: "the GID at the pinned index is empty",
        wanted: "a GID at that index on every HCA",
        advice: "address and MTU of that port first; pin no index, or the one that hairpin-mesh plan finds",
    },
    Error {
        words: &[&["GID_CHANGE"]],
        code: "nccl-log-gid-change",
        found: "a GID changed under the running program",
        wanted: "addresses that stay",
        advice: "see what gave the address again (journalctl -u NetworkManager); restart the program",
    },
    Error {
        words: &[&["No device found"]],
        code: "nccl-log-no-device",
        found: "NCCL found no HCA",
        wanted: "the HCAs that NCCL_IB_HCA names",
        advice: "names exactly as rdma link has them; /dev/infiniband in the container",
    },
    Error {
        words: &[&["Failed to modify QP"]],
        code: "nccl-log-rtr",
        found: "a queue pair could not be brought to RTR",
        wanted: "the same GID type and a reachable GID on both ends",
        advice: "perftest: -x with each side's own index of its RoCE v2 GID, the MTU of both ends; rdma link",
    },
    Error {
        words: &[
            &["Couldn't read remote address"],
            &["Unable to Connect the HCA's through the link"],
        ],
        code: "nccl-log-control",
        found: "the control channel of the test broke: the other end ended first",
        wanted: "its own error first",
        advice: "look at the other end's output",
    },
    Error {
        words: &[&["Couldn't connect to"]],
        code: "nccl-log-control",
        found: "the control channel of the test could not be made",
        wanted: "a host name and port that answer",
        advice: "the server has to be started first; a firewall on its port",
    },
    Error {
        words: &[&["only PCP trust state supported for hairpin"]],
        code: "nccl-log-trust",
        found: "the NIC refused a hairpin rule: the port trusts DSCP",
        wanted: "PCP trust",
        advice: "dcb app show dev DEVICE; dcb app flush dev DEVICE dscp-prio",
    },
    Error {
        words: &[&["hairpin is not supported"]],
        code: "nccl-log-hairpin",
        found: "the NIC refused a hairpin rule: it has no hairpin here",
        wanted: "a ConnectX-7 in NIC mode, eswitch legacy",
        advice: "devlink dev eswitch show; the driver of the device that the rule leads to",
    },
    Error {
        words: &[&["masked priority match not supported for hairpin"]],
        code: "nccl-log-hairpin-rule",
        found: "the NIC refused a hairpin rule: it matches a part of the VLAN priority",
        wanted: "rules of the mesh, which match MACs and EtherType alone",
        advice: "tc -s filter show dev DEVICE ingress: whose rule is it? hairpin-mesh verify for the mesh's own",
    },
    Error {
        words: &[&["invalid ifindex of mirred device"]],
        code: "nccl-log-hairpin-rule",
        found: "the NIC refused a hairpin rule: the device that it leads to is no port of the same NIC, or is gone",
        wanted: "another fabric port of this host",
        advice: "make the plan again from fresh inventories; hairpin-mesh doctor tells which functions are there",
    },
    Error {
        words: &[
            &["Value is not power of two"],
            &["Maximum hairpin queue size is"],
        ],
        code: "nccl-log-queue-size",
        found: "the driver refused a hairpin queue size",
        wanted: "a power of two from 1024 to 8192",
        advice: "hairpin-mesh hairpin-queue 8192",
    },
    Error {
        words: &[&["Exclusivity flag on, cannot modify"]],
        code: "nccl-log-qdisc",
        found: "a discipline is there already that cannot be replaced",
        wanted: "clsact",
        advice: "tc qdisc show dev DEVICE: find what made the ingress discipline",
    },
    Error {
        words: &[
            &["RTNETLINK answers: Not supported"],
            &["RTNETLINK answers: Operation not supported"],
        ],
        code: "nccl-log-offload-refused",
        found: "the NIC took no rule: the driver cannot offload it",
        wanted: "mlx5_core, hw-tc-offload on, eswitch legacy, PCP trust",
        advice: "hairpin-mesh doctor shows which of these a port lacks; a tool that logs success after this did not read its rule back: hairpin-mesh verify does",
    },
    Error {
        words: &[&["RTNETLINK answers: File exists"]],
        code: "nccl-log-exists",
        found: "a route or rule is there already under that key, the same one or another",
        wanted: "it compared, and replaced where it differs",
        advice: "hairpin-mesh verify compares; hairpin-mesh up adds what is missing and replaces what is the mesh's",
    },
    Error {
        words: &[
            &["Failed to connect to devlink Netlink"],
            &["Failed to open NETLINK_RDMA socket"],
        ],
        code: "nccl-log-rights",
        found: "devlink or the RDMA subsystem could not be asked: no rights, or no module",
        wanted: "root, mlx5_core and ib_core",
        advice: "run it as root; modprobe mlx5_ib",
    },
    Error {
        words: &[&["We have an error talking to the kernel"]],
        code: "nccl-log-kernel",
        found: "the kernel refused what tc asked for",
        wanted: "its reason, in the line before",
        advice: "read the line before; root, and modprobe cls_flower act_pedit act_mirred sch_ingress",
    },
    Error {
        words: &[&["ring/line-style with 4 or more machines"]],
        code: "nccl-log-discovery",
        found: "NVIDIA's discovery tool refuses rings of four: it is made for a switch, or for fewer",
        wanted: "addresses made by hand, or by hairpin-mesh netplan",
        advice: "hairpin-mesh doctor --wire with all hosts shows the cables; its frames have the EtherType of the mesh's mark, broadcast, and no rule takes them",
    },
    Error {
        words: &[&["TC classifier not found"]],
        code: "nccl-log-module",
        found: "the kernel has no such classifier loaded",
        wanted: "cls_flower, act_pedit and act_mirred",
        advice: "modprobe cls_flower act_pedit act_mirred, as root",
    },
    Error {
        words: &[&["can't turn hw_tc_offload off"]],
        code: "nccl-log-offload",
        found: "offload cannot be turned off while rules are in the NIC",
        wanted: "rules removed first",
        advice: "hairpin-mesh down, then ethtool -K",
    },
    Error {
        words: &[
            &["RDMA-TX matcher creation failed"],
            &["RDMA-TX header rewrite action creation failed"],
            &["RDMA-TX UDP rewrite flow attachment failed"],
        ],
        code: "nccl-log-marker",
        found: "the marker could not be made",
        wanted: "a NIC and rdma-core that take RDMA-TX rules, and CAP_NET_RAW",
        advice: "rdma-core 32 or newer; root; devlink flow_steering_mode hmfs",
    },
    Error {
        words: &[&["cannot open RDMA device"]],
        code: "nccl-log-marker",
        found: "the marker's device was not there when it started",
        wanted: "a marker that waits for its device",
        advice: "hairpin-mesh up; the units of this program wait",
    },
    Error {
        words: &[&["NCCL", "Using network Socket"]],
        code: "nccl-log-sockets",
        found: "NCCL goes over TCP sockets, and no RDMA device has a part in it",
        wanted: "Using network IB",
        advice: "NET/IB lines before it tell why: is NCCL_IB_DISABLE or NCCL_NET set, does NCCL_IB_HCA name devices that are there (hairpin-mesh doctor --env FILE), and has the container /dev/infiniband",
    },
    Error {
        words: &[&["cx7-pcie-hotplug"]],
        code: "nccl-log-hotplug",
        found: "the platform took functions away or brought them back with a cable",
        wanted: "a mesh that was made again since",
        advice: "hairpin-mesh up on this node, and hairpin-mesh verify",
    },
    Error {
        words: &[&["mlx5_core", "AER"]],
        code: "nccl-log-aer",
        found: "the PCIe link of the NIC had errors",
        wanted: "none",
        advice: "a power cycle with the cord out; firmware of board and NIC",
    },
    Error {
        words: &[
            &["NCCL_IB_DISABLE set by environment to 1"],
            &["NCCL_NET set by environment to Socket"],
            &["NCCL_NET set by environment to socket"],
        ],
        code: "nccl-log-rdma-off",
        found: "RDMA is turned off for NCCL (NCCL_IB_DISABLE, or NCCL_NET)",
        wanted: "RDMA",
        advice: "take NCCL_IB_DISABLE=1 and NCCL_NET=Socket out of the environment; hairpin-mesh doctor --env FILE tells what else is in it",
    },
    Error {
        words: &[
            &["NCCL", "no socket interface found"],
            &["NCCL", "NET/", "No usable listening interface found"],
            &["NCCL", "NET/", "No IP interface found"],
            &["NCCL", "NET/", "no interface found"],
        ],
        code: "nccl-log-no-interface",
        found: "NCCL found no network device for its sockets",
        wanted: "a device that is up and has an address",
        advice: "NCCL_SOCKET_IFNAME with the name of the management network's device, as ip -br address has it on this host and in the container",
    },
    Error {
        words: &[
            &["NCCL", "ocket", "No route to host"],
            &["NCCL", "ocket", "Network is unreachable"],
            &["NCCL", "ocket", "Host is down"],
            &["NCCL", "ocket", "timed out"],
        ],
        code: UNREACHABLE,
        found: "a rank's socket found no way to another's",
        wanted: "sockets over a network that joins all hosts",
        advice: "ping that address; a firewall may answer so, too",
    },
    Error {
        words: &[&["NCCL", "ocket", "Connection refused"]],
        code: "nccl-log-socket-refused",
        found: "a rank's socket was refused by another's host",
        wanted: "a process that listens there",
        advice: "the other rank's log: it ended, or has not started; a firewall may answer so, too",
    },
    Error {
        words: &[
            &["NCCL WARN", "ocket", "Connection closed by remote peer"],
            &["NCCL WARN", "ocket", "Connection reset by peer"],
            &["NCCL WARN", "ocket", "Broken pipe"],
        ],
        code: "nccl-log-end-peer",
        found: "another rank closed its connection",
        wanted: "ranks that end together",
        advice: "the other rank's log: why did it end first?",
    },
    Error {
        words: &[
            &["Watchdog caught collective operation timeout"],
            &["ProcessGroupNCCL watchdog hang"],
        ],
        code: "nccl-log-end-watchdog",
        found: "a collective did not end in time (torch's watchdog)",
        wanted: "collectives that all ranks take part in, and that arrive",
        advice: "which rank has no such line, and what did it do last? When all have one: hairpin-mesh probe, and hairpin-mesh doctor --watch while it runs",
    },
    Error {
        words: &[&["no algorithm/protocol available for function"]],
        code: "nccl-log-algorithm",
        found: "NCCL has no algorithm for a collective with these settings",
        wanted: "an algorithm for each collective that is used",
        advice: "the line names the collective and NCCL_ALGO: take that setting out, or add an algorithm that this collective has; hairpin-mesh doctor --env FILE tells what else is set",
    },
    Error {
        words: &[&["NET/IB", "Unable to open device"]],
        code: "nccl-log-device-open",
        found: "an RDMA device could not be opened",
        wanted: "devices that the program may open",
        advice: "ls -l /dev/infiniband, and ibv_devinfo as the program's user; a container needs --device /dev/infiniband",
    },
    Error {
        words: &[&["NET/IB", "Attempted to connect incompatible devices"]],
        code: "nccl-log-incompatible",
        found: "an RDMA device was to be connected with one of another kind of link",
        wanted: "the fabric's RDMA devices alone",
        advice: "NCCL_IB_HCA with the fabric's devices, exactly as rdma link has them",
    },
    Error {
        words: &[&["Mismatched collective detected"]],
        code: "nccl-log-mismatch",
        found: "ranks called different collectives",
        wanted: "the same collectives in the same order on all ranks",
        advice: "it is the program's: NCCL_DEBUG_SUBSYS=COLL lists the calls of each rank",
    },
    Error {
        words: &[&["NCCL WARN", "Cuda failure"]],
        code: "nccl-log-cuda",
        found: "a call of CUDA failed",
        wanted: "calls that succeed",
        advice: "it is the GPU's, and no matter of the fabric: the line says why; nvidia-smi, journalctl -k -g NVRM",
    },
    Error {
        words: &[
            &["ncclInternalError"],
            &["ncclRemoteError"],
            &["ncclSystemError"],
            &["ncclUnhandledCudaError"],
            &["unhandled system error"],
            &["unhandled cuda error"],
            &["DistBackendError"],
            &["Test NCCL failure"],
        ],
        code: "nccl-log-end-error",
        found: "a program ended with an error of NCCL",
        wanted: "programs that end well",
        advice: "the last NCCL WARN of each rank before that line says why; with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV more of it is told here",
    },
    Error {
        words: &[&["Out of bounds values", "FAILED"]],
        code: "nccl-log-end-values",
        found: "a test found wrong values in what arrived",
        wanted: "the values that were sent",
        advice: "ethtool -S of the ports for CRC and symbol errors, journalctl -k -g 'mlx5|AER|NVRM'; then the test on two neighbours alone, pair by pair",
    },
    Error {
        words: &[&["Mismatched NCCL version detected"]],
        code: "nccl-log-versions",
        found: "NCCL refused ranks of another version",
        wanted: "one version",
        advice: VERSIONS,
    },
    // What no row before says more of.
    Error {
        words: &[&["ibv_modify_qp", "failed"]],
        code: "nccl-log-qp-failed",
        found: "a queue pair could not be brought up, for a reason that is not known here",
        wanted: "queue pairs that come up",
        advice: "the line has the reason: read it, and journalctl -k -g mlx5 of that time",
    },
    Error {
        words: &[
            &["NET/IB", "async", " event"],
            &["NET/IB", "unknown event type"],
        ],
        code: "nccl-log-event-unknown",
        found: "an event of the NIC that is not known here",
        wanted: "events that are known",
        advice: "read the line; journalctl -k -g mlx5 of that time",
    },
];

/// Names of the statuses of completions, as verbs number them; what each means, and whose matter it is.
pub(super) const STATUSES: &[(&str, &str, Matter)] = &[
    ("SUCCESS", "", Matter::Queue),
    (
        "LOC_LEN_ERR",
        "a message was longer than the buffer for it",
        Matter::Memory,
    ),
    (
        "LOC_QP_OP_ERR",
        "a queue pair was asked for what it does not do",
        Matter::Queue,
    ),
    (
        "LOC_EEC_OP_ERR",
        "an end-to-end context was asked for what it does not do",
        Matter::Queue,
    ),
    (
        "LOC_PROT_ERR",
        "a request named memory that is not registered, or no longer",
        Matter::Memory,
    ),
    (
        "WR_FLUSH_ERR",
        "requests were flushed from a queue pair that had failed before",
        Matter::Before,
    ),
    (
        "MW_BIND_ERR",
        "memory could not be bound or registered anew",
        Matter::Memory,
    ),
    (
        "BAD_RESP_ERR",
        "the peer's answer fits no request",
        Matter::Peer,
    ),
    (
        "LOC_ACCESS_ERR",
        "the peer wrote to memory here that takes no writes",
        Matter::Memory,
    ),
    (
        "REM_INV_REQ_ERR",
        "the peer refused a request as invalid",
        Matter::Peer,
    ),
    (
        "REM_ACCESS_ERR",
        "the peer refused the access to its memory",
        Matter::Peer,
    ),
    (
        "REM_OP_ERR",
        "the peer could not do what was asked of it",
        Matter::Peer,
    ),
    ("RETRY_EXC_ERR", "transport retries ran out", Matter::Path),
    (
        "RNR_RETRY_EXC_ERR",
        "the peer had no buffer ready until retries ran out",
        Matter::Receiver,
    ),
    (
        "LOC_RDD_VIOL_ERR",
        "a queue pair and a context are of different domains",
        Matter::Queue,
    ),
    (
        "REM_INV_RD_REQ_ERR",
        "the peer refused a datagram as invalid",
        Matter::Peer,
    ),
    (
        "REM_ABORT_ERR",
        "the peer aborted an operation",
        Matter::Peer,
    ),
    (
        "INV_EECN_ERR",
        "an end-to-end context is none",
        Matter::Queue,
    ),
    (
        "INV_EEC_STATE_ERR",
        "an end-to-end context was in the wrong state",
        Matter::Queue,
    ),
    ("FATAL_ERR", "the NIC gave an operation up", Matter::Queue),
    (
        "RESP_TIMEOUT_ERR",
        "the peer's answer did not come in time",
        Matter::Peer,
    ),
    (
        "GENERAL_ERR",
        "an operation failed in the transport",
        Matter::Queue,
    ),
    ("TM_ERR", "matching of tags failed", Matter::Queue),
    (
        "TM_RNDV_INCOMPLETE",
        "a rendezvous was left to the program",
        Matter::Queue,
    ),
];

/// Whose matter a failed completion is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Matter {
    /// The way between the ends.
    Path,
    /// The other end, which takes no messages.
    Receiver,
    /// The other end, which refuses.
    Peer,
    /// The program's memory.
    Memory,
    /// This end's queue pair.
    Queue,
    /// What failed before.
    Before,
}

/// The status of a completion that failed, as NCCL, perftest and others tell it.
pub(super) fn status(line: &str) -> Option<u32> {
    let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    // What was asked for is told by such a name, too: IBV_WC_SEND.
    let of_name = |name: &str| STATUSES.iter().position(|(own, ..)| *own == name);
    let mut named = words.filter_map(|word| of_name(word.strip_prefix("IBV_WC_")?));
    // Other programs have a status, too.
    let keys = [("Failed status ", ""), ("status=", "ompletion")];
    let of_key = |(key, with): (&str, &str)| {
        let (_, rest) = line.split_once(key).filter(|_| line.contains(with))?;
        let mut digits = rest.split(|c: char| !c.is_ascii_digit());
        digits.find_map(|digits| digits.parse().ok())
    };
    let number = || keys.into_iter().find_map(of_key);
    let text = || {
        let texts = ["retry counter exceeded", "RETRY_EXC_ERR"];
        let is_told = texts.iter().any(|text| line.contains(text));
        let name = if line.contains("RNR") {
            "RNR_RETRY_EXC_ERR"
        } else {
            "RETRY_EXC_ERR"
        };
        is_told.then(|| of_name(name)).flatten()
    };
    let named = named.next().map(|at| at as u32);
    let status = named.or_else(number).or_else(|| text().map(|at| at as u32));
    status.filter(|status| *status != 0)
}
