//! What an NCCL log says of itself: routing records, listeners, rings and trees; and errors in it, or in any
//! other text (perftest's, `tc`'s, the kernel's), that have a cause in the fabric. The words that tell these are in
//! `nccl/words.rs`.

mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::doctor::chain::Seen;
use crate::doctor::env::MANAGEMENT;
use crate::doctor::fabric::Fabric;
use crate::finding::Finding;
use crate::names::quoted;
use crate::plan::PORTS_PER_DOMAIN;
use crate::plan::ends::{count, list};

use words::{
    ERRORS, Error, Matter, NO_PATH, QUEUES, STATUSES, TREE, UNREACHABLE, VERSIONS, status,
};

/// Longest log that is read, bytes; what comes after it is not looked at.
pub const LONGEST: u64 = 256 * 1024 * 1024;
/// Longest line that is looked at, bytes.
const LONGEST_LINE: usize = 4096;

/// A log, reduced to what tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    /// What findings call it.
    pub name: String,
    /// Lines of NCCL.
    lines: u64,
    /// Lines of its network part.
    net: u64,
    /// `advertised` and `observed` of the listener records.
    listeners: BTreeSet<(u32, u32)>,
    /// Pairs of devices of which one was taken for the other, and whether a root was preserved.
    overrides: BTreeSet<(u32, u32, bool)>,
    processes: BTreeMap<Option<Process>, Connected>,
    /// A line says that connecting the trees failed.
    tree_failed: bool,
    /// Ends of queue pairs that found no way while trees were being connected, where the line tells them.
    of_trees: BTreeSet<Option<(Ipv4Addr, Ipv4Addr)>>,
    /// A line says that trees are turned off.
    ring_only: bool,
    /// The environment leaves trees out.
    no_trees: bool,
    /// Communicators that began and are not complete.
    begun: BTreeMap<Origin, Communicator>,
    /// Those that are complete.
    complete: BTreeSet<(Origin, Communicator)>,
    /// The host of each rank of a communicator; none where several say that they are it.
    ranks: BTreeMap<(String, u32), Option<String>>,
    /// Orders of ranks in rings, with their communicator.
    orders: BTreeSet<(Option<String>, Vec<u32>)>,
    /// Hosts and their versions of NCCL.
    versions: BTreeSet<(String, String)>,
    /// Most hosts that a communicator has.
    nodes: Option<u32>,
    /// RDMA devices of the lines that list those in use, with the host that says so.
    using: BTreeSet<(Option<String>, BTreeSet<String>)>,
    /// Hosts that lines are of.
    hosts: BTreeSet<String>,
    /// Network devices and addresses of the bootstrap and of sockets, with the host that says so.
    sockets: BTreeSet<Socket>,
    /// Addresses that a socket found no way to.
    unreachable: BTreeSet<Ipv4Addr>,
    /// Local and remote address of queue pairs that found no way, with how many lines tell of them.
    no_path: BTreeMap<(Ipv4Addr, Ipv4Addr), u64>,
    /// How often queue pairs were tried again.
    retries: u64,
    /// Completions that failed, by their status.
    statuses: BTreeMap<u32, u64>,
    /// World and devices of the engine's line.
    ready: BTreeSet<(u32, Vec<String>)>,
    /// The first warning whose words are not known, and how many there are.
    warnings: Option<(String, u64)>,
    /// Causes that error lines tell, by their place in [`ERRORS`], with how many.
    errors: BTreeMap<usize, u64>,
}

/// Host and process.
type Process = (String, u64);
/// Process and thread, where a line tells them.
type Origin = Option<(Process, u64)>;

/// How far a process came with its communicators.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Connected {
    rings: bool,
    trees: bool,
    /// A communicator of it is complete.
    complete: bool,
    /// RDMA devices by the number that they have here.
    devices: Vec<String>,
    /// Numbers of those that channels go over.
    used: BTreeSet<u32>,
}

/// A communicator, as far as a line tells which.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Communicator {
    /// What all its ranks call it.
    id: Option<String>,
    rank: Option<u32>,
    /// How many ranks it has. No fewer than the ring's hosts are wanted: a job on two hosts, or an engine
    /// that makes a communicator of each pair, is right, and no line tells it from one that lacks hosts.
    ranks: Option<u32>,
}

impl Communicator {
    fn of(line: &str) -> Communicator {
        let (_, id) = line.split_once(" commId ").unwrap_or_default();
        Communicator {
            id: id.split_whitespace().next().map(printable),
            rank: value(line, " rank "),
            ranks: value(line, " nranks "),
        }
    }
}

impl Connected {
    /// Rings are connected before trees and a communicator is complete after both, unless each algorithm is
    /// connected when it is first used.
    fn waits_for_trees(&self) -> bool {
        self.rings && !self.trees && !self.complete
    }

    fn join(&mut self, other: &Connected) {
        self.rings |= other.rings;
        self.trees |= other.trees;
        self.complete |= other.complete;
        if !other.devices.is_empty() {
            self.devices.clone_from(&other.devices);
        }
        let used = other.used.iter();
        used.for_each(|device| keep(&mut self.used, *device));
    }
}

/// Most different things of one kind that are kept of a log.
const MOST: usize = 256;
/// Most ranks of a ring whose order is kept.
const MOST_RANKS: usize = 64;

fn keep<T: Ord>(all: &mut BTreeSet<T>, one: T) {
    if all.len() < MOST {
        all.insert(one);
    }
}

/// The value of a key, where there is room for it.
fn kept<K: Ord, V: Default>(all: &mut BTreeMap<K, V>, key: K) -> Option<&mut V> {
    let has_room = all.len() < MOST || all.contains_key(&key);
    has_room.then(|| all.entry(key).or_default())
}

/// Host, network device, address.
type Socket = (Option<String>, String, Option<Ipv4Addr>);

/// The number after `key=` in a line.
fn value(line: &str, key: &str) -> Option<u32> {
    let rest = &line[line.find(key)? + key.len()..];
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The host, process and thread of a line: `spark1:4711:4720 [0] NCCL INFO`.
fn origin(line: &str) -> Origin {
    let (before, _) = line.split_once(" NCCL ")?;
    let mut behind = "";
    for word in before.split_whitespace().rev() {
        let mut parts = word.splitn(3, ':');
        if let (Some(name), Some(process), Some(thread)) =
            (parts.next(), parts.next(), parts.next())
        {
            // The number of a thread may be padded.
            let thread = if thread.is_empty() {
                behind.parse().ok().or(Some(0))
            } else {
                thread.parse().ok()
            };
            if let (false, Ok(process), Some(thread)) = (name.is_empty(), process.parse(), thread) {
                return Some(((printable(name), process), thread));
            }
        }
        behind = word;
    }
    None
}

/// Whether a value of `NCCL_ALGO` leaves trees out: `Ring`, `allreduce:ring`, `^tree`.
fn leaves_trees_out(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let has_tree = value.contains("tree");
    match value.strip_prefix('^') {
        Some(_) => has_tree,
        None => value.contains("ring") && !has_tree,
    }
}

/// What the environment has for a variable, as a line tells it.
fn set<'a>(line: &'a str, variable: &str) -> Option<&'a str> {
    let (before, value) = line.split_once(" set by environment to ")?;
    (before.split_whitespace().next_back() == Some(variable)).then(|| {
        value
            .split_whitespace()
            .next()
            .unwrap_or_default()
            .trim_end_matches('.')
    })
}

/// The devices in a list of them: `[0]rocep1s0f0:1/RoCE [1]={[2] ...}`.
fn devices(list: &str) -> BTreeSet<String> {
    let words = list.split(|c: char| c.is_whitespace() || "[]{},=".contains(c));
    let device = |word: &str| {
        let (name, rest) = word.split_once(':')?;
        let (port, _) = rest.split_once('/')?;
        (!name.is_empty() && port.parse::<u8>().is_ok()).then(|| printable(name))
    };
    words.filter_map(device).collect()
}

/// The devices of such a list by their numbers; none where some are taken together.
fn numbered(list: &str) -> Vec<String> {
    let mut all = Vec::new();
    for word in list.split_whitespace() {
        let Some((number, device)) = word.strip_prefix('[').and_then(|word| word.split_once(']'))
        else {
            break;
        };
        match device.split_once(':') {
            Some((name, _)) if number.parse() == Ok(all.len()) && !list.contains('{') => {
                all.push(printable(name));
            }
            _ => break,
        }
    }
    all
}

/// The order of ranks in a ring: `Channel 00/04 : 0 1 2 3`.
fn order(line: &str) -> Option<Vec<u32>> {
    let (channel, ranks) = line.split_once(" Channel ")?.1.split_once(" : ")?;
    let (number, of) = channel.split_once('/')?;
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let ranks = ranks.split_whitespace().take(MOST_RANKS + 1);
    let ranks: Option<Vec<u32>> = ranks.map(|rank| rank.parse().ok()).collect();
    ranks.filter(|ranks| is_number(number) && is_number(of) && ranks.len() <= MOST_RANKS)
}

/// The devices and addresses in a list of sockets: `[0]enP7s7:192.168.77.1<0>`.
fn sockets(list: &str) -> impl Iterator<Item = (String, Option<Ipv4Addr>)> {
    let words = list.split(|c: char| c.is_whitespace() || "[]".contains(c));
    words.filter_map(|word| {
        let (word, _) = word.split_once('<')?;
        let (name, address) = word.split_once(':')?;
        (!name.is_empty()).then(|| (printable(name), address.parse().ok()))
    })
}

/// The IPv4 address of the GID that a line tells behind `key`; the index of the GID may be told so, too.
fn gid(line: &str, key: &str) -> Option<Ipv4Addr> {
    line.split(key).skip(1).find_map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_hexdigit() || c == ':' || c == '.'));
        let gid: Ipv6Addr = rest[..end.unwrap_or(rest.len())].parse().ok()?;
        gid.to_ipv4_mapped()
    })
}

impl Log {
    /// An empty log.
    pub fn new(name: &str) -> Log {
        Log {
            name: name.to_owned(),
            ..Log::default()
        }
    }

    /// Takes a line in.
    pub fn line(&mut self, bytes: &[u8]) {
        let line = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST_LINE)]);
        let line = line.as_ref();
        if line.contains("RoCEnante ready:") {
            if let Some(world) = value(line, "world=") {
                let devices = line
                    .split("hcas=")
                    .nth(1)
                    .and_then(|rest| rest.split_whitespace().next());
                let devices = devices
                    .unwrap_or_default()
                    .split(',')
                    .filter(|d| !d.is_empty())
                    .map(printable);
                keep(&mut self.ready, (world, devices.collect()));
            }
        }
        let origin = origin(line);
        let process = origin.as_ref().map(|(process, _)| process.clone());
        let mut told: BTreeSet<&str> = BTreeSet::new();
        // What is tried again has not failed yet.
        let is_retry = line.contains("retrying");
        self.retries += u64::from(is_retry && line.contains("ibv_modify_qp"));
        for (i, error) in ERRORS.iter().enumerate().filter(|_| !is_retry) {
            let is_known = !told.is_empty();
            if !(error.is_rest() && is_known) && error.is_in(line) && told.insert(error.code) {
                *self.errors.entry(i).or_default() += 1;
            }
        }
        let failed = status(line);
        if let Some(times) = failed.and_then(|status| kept(&mut self.statuses, status)) {
            *times += 1;
        }
        if let Some((_, text)) = line.split_once("NCCL WARN ") {
            if told.is_empty() && failed.is_none() && !is_retry {
                let first = self
                    .warnings
                    .get_or_insert_with(|| (quoted(text.trim_end()), 0));
                first.1 += 1;
            }
        }
        if told.contains(NO_PATH) {
            let pair = gid(line, "local GID ").zip(gid(line, "remote GID "));
            if let Some(pair) = pair {
                if let Some(times) = kept(&mut self.no_path, pair) {
                    *times += 1;
                }
            }
            let connected = self.processes.get(&process);
            if connected.is_some_and(Connected::waits_for_trees) {
                keep(&mut self.of_trees, pair);
            }
        }
        if told.contains(UNREACHABLE) {
            let socket = |word: &str| word.split_once('<')?.0.parse().ok();
            if let Some(address) = line.split_whitespace().find_map(socket) {
                keep(&mut self.unreachable, address);
            }
        }
        if !line.contains("NCCL") {
            return;
        }
        self.lines += 1;
        let host = process.as_ref().map(|(host, _)| host.clone());
        if let Some(host) = &host {
            keep(&mut self.hosts, host.clone());
        }
        if line.contains("NET/")
            || line.contains("ListenerRouting")
            || line.contains("Subnet-aware routing")
        {
            self.net += 1;
        }
        if line.contains("ListenerRouting") {
            if let (Some(advertised), Some(observed)) =
                (value(line, "advertised="), value(line, "observed="))
            {
                keep(&mut self.listeners, (advertised, observed));
            }
        }
        if line.contains("Subnet-aware routing") {
            if let (Some(from), Some(to)) =
                (value(line, "overriding dev "), value(line, "with dev "))
            {
                let preserved = line.contains("preserving PCI root");
                keep(&mut self.overrides, (from, to, preserved));
            }
        }
        if let Some((_, list)) = line.split_once("NET/IB : Using ") {
            let devices = devices(list);
            if !devices.is_empty() {
                keep(&mut self.using, (host.clone(), devices));
            }
        }
        let starts = [
            "; OOB ",
            "NET/Socket : Using ",
            // Older releases have the space.
            "Bootstrap : Using ",
            "Bootstrap: Using ",
        ];
        for (_, list) in starts.iter().filter_map(|start| line.split_once(start)) {
            for (netdev, address) in sockets(list) {
                keep(&mut self.sockets, (host.clone(), netdev, address));
            }
        }
        self.tree_failed |= line.contains("TransportTreeConnect");
        self.ring_only |=
            line.contains("Tree transport setup disabled by NCCL_SWITCHLESS_RING_ONLY");
        self.no_trees |= set(line, "NCCL_ALGO").is_some_and(leaves_trees_out)
            || set(line, "NCCL_SWITCHLESS_RING_ONLY").is_some_and(|value| value != "0");
        // The same version is built for several of CUDA.
        let version = line.split_once("NCCL version ").map(|(_, rest)| {
            let of_number = |c: char| c.is_ascii_digit() || c == '.';
            printable(rest.split(|c| !of_number(c)).next().unwrap_or_default())
        });
        if let (Some(host), Some(version)) = (host, version.filter(|version| !version.is_empty())) {
            keep(&mut self.versions, (host, version));
        }
        self.nodes = self.nodes.max(value(line, " nNodes "));
        self.communicator(line, origin);
        if let Some(connected) = kept(&mut self.processes, process) {
            connected.rings |= line.contains("Connected all rings");
            connected.trees |= line.contains("Connected all trees");
            connected.complete |= line.contains("Init COMPLETE");
            if let Some((_, list)) = line.split_once("NET/IB : Using ") {
                connected.devices = numbered(list);
            }
            if let Some(device) = value(line, " via NET/IB/") {
                keep(&mut connected.used, device);
            }
        }
    }

    /// What a line tells of a communicator and its ranks.
    fn communicator(&mut self, line: &str, origin: Origin) {
        let own = Communicator::of(line);
        if let (Some(id), Some(rank), Some(((host, _), _))) = (&own.id, own.rank, &origin) {
            self.rank((id.clone(), rank), Some(host.clone()));
        }
        if let Some(order) = order(line) {
            let id = self.begun.get(&origin).and_then(|begun| begun.id.clone());
            keep(&mut self.orders, (id, order));
        }
        if line.contains("Init COMPLETE") {
            self.begun.remove(&origin);
            // An earlier process of this rank has ended.
            self.begun.retain(|begun, of| match (begun, &origin) {
                (Some(((host, process), _)), Some(((own_host, own_process), _))) => {
                    host != own_host || process == own_process || of.rank != own.rank
                }
                _ => true,
            });
            keep(&mut self.complete, (origin, own));
        } else if line.contains("Init START") {
            if let Some(begun) = kept(&mut self.begun, origin) {
                *begun = own;
            }
        } else if line.contains(" Trees [") {
            // Older releases do not tell that one began.
            kept(&mut self.begun, origin);
        }
    }

    /// The host of a communicator's rank.
    fn rank(&mut self, rank: (String, u32), host: Option<String>) {
        let has_room = self.ranks.len() < MOST;
        match self.ranks.get_mut(&rank) {
            Some(known) if *known != host => *known = None,
            None if has_room => {
                self.ranks.insert(rank, host);
            }
            _ => {}
        }
    }

    /// Takes another log of the same program in: what several ranks tell is judged once.
    fn join(&mut self, other: &Log) {
        fn all<T: Ord + Clone>(own: &mut BTreeSet<T>, other: &BTreeSet<T>) {
            other.iter().for_each(|one| keep(own, one.clone()));
        }
        fn sums<K: Ord + Clone>(own: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
            for (key, times) in other {
                if let Some(own) = kept(own, key.clone()) {
                    *own += times;
                }
            }
        }
        self.lines += other.lines;
        self.net += other.net;
        self.retries += other.retries;
        self.tree_failed |= other.tree_failed;
        self.ring_only |= other.ring_only;
        self.no_trees |= other.no_trees;
        self.nodes = self.nodes.max(other.nodes);
        all(&mut self.listeners, &other.listeners);
        all(&mut self.overrides, &other.overrides);
        all(&mut self.of_trees, &other.of_trees);
        all(&mut self.orders, &other.orders);
        all(&mut self.versions, &other.versions);
        all(&mut self.using, &other.using);
        all(&mut self.hosts, &other.hosts);
        all(&mut self.sockets, &other.sockets);
        all(&mut self.unreachable, &other.unreachable);
        all(&mut self.ready, &other.ready);
        sums(&mut self.no_path, &other.no_path);
        sums(&mut self.statuses, &other.statuses);
        sums(&mut self.errors, &other.errors);
        for (process, connected) in &other.processes {
            if let Some(own) = kept(&mut self.processes, process.clone()) {
                own.join(connected);
            }
        }
        for (rank, host) in &other.ranks {
            self.rank(rank.clone(), host.clone());
        }
        if let Some((first, times)) = &other.warnings {
            let own = self.warnings.get_or_insert_with(|| (first.clone(), 0));
            own.1 += times;
        }
    }

    /// Whether what began in another log is complete in this one, or a later process of its rank is: the order
    /// of files is none of time, and numbers of processes grow.
    fn completes(&self, begun: &Origin, of: &Communicator) -> bool {
        self.complete.iter().any(|(origin, complete)| {
            let is_later = match (origin, begun) {
                (Some(((host, process), _)), Some(((begun_host, begun_process), _))) => {
                    host == begun_host && process > begun_process && complete.rank == of.rank
                }
                _ => false,
            };
            is_later || origin == begun && (of.id.is_none() || of.id == complete.id)
        })
    }

    /// Whether a line of it is known by this code.
    fn has(&self, code: &str) -> bool {
        self.errors.keys().any(|i| ERRORS[*i].code == code)
    }

    /// Whether nothing tells anything.
    fn is_empty(&self) -> bool {
        self.lines == 0
            && self.ready.is_empty()
            && self.errors.is_empty()
            && self.statuses.is_empty()
    }

    /// Takes a whole text in.
    pub fn read(name: &str, text: &[u8]) -> Log {
        let mut log = Log::new(name);
        text.split(|b| *b == b'\n').for_each(|line| log.line(line));
        log
    }
}

/// Logs that are judged as one: each rank may have its own.
struct Logs<'a> {
    each: Vec<&'a Log>,
    joined: Log,
}

impl<'a> Logs<'a> {
    fn of(each: Vec<&'a Log>) -> Logs<'a> {
        let mut joined = Log::default();
        for (i, log) in each.iter().enumerate() {
            joined.join(log);
            let others = || each.iter().enumerate().filter(|(other, _)| *other != i);
            for (origin, of) in &log.begun {
                if !others().any(|(_, other)| other.completes(origin, of)) {
                    if let Some(begun) = kept(&mut joined.begun, origin.clone()) {
                        begun.clone_from(of);
                    }
                }
            }
        }
        Logs { each, joined }
    }

    /// The names of the logs that tell it: of all, where none does alone.
    fn named(&self, tells: impl Fn(&Log) -> bool) -> String {
        let names = |tells: &dyn Fn(&Log) -> bool| -> Vec<String> {
            let those = self.each.iter().filter(|log| tells(log));
            those.map(|log| log.name.clone()).collect()
        };
        let those = names(&tells);
        shown(if those.is_empty() {
            names(&|_| true)
        } else {
            those
        })
    }
}

/// As much of an untrusted word as a finding repeats.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .filter(char::is_ascii_graphic)
        .take(64)
        .collect()
}

/// The host of the ring that a log calls so: without its domain, whatever the case of the letters.
fn node(fabric: &Fabric, host: Option<&String>) -> Option<usize> {
    let short = |name: &str| match name.parse::<Ipv4Addr>() {
        Ok(_) => name.to_owned(),
        Err(_) => name.split('.').next().unwrap_or(name).to_ascii_lowercase(),
    };
    let host = short(host?);
    fabric
        .hosts
        .iter()
        .position(|own| short(own.as_str()) == host)
}

/// The RDMA devices of a host.
fn devices_of(fabric: &Fabric, node: usize) -> BTreeSet<String> {
    let own = fabric.of_host(node).into_iter();
    own.map(|port| fabric.device(port)).collect()
}

/// The device for sockets, as a word of an assignment.
fn device_of_sockets(fabric: &Fabric) -> String {
    let management = fabric.management();
    match management.first() {
        Some(only) if management.len() == 1 => (*only).to_owned(),
        _ => "DEVICE, the device of the management network on all hosts".to_owned(),
    }
}

/// Whether a device reaches no other host: the loopback, or a bridge of containers or virtual machines.
fn is_local(netdev: &str, address: Option<Ipv4Addr>) -> bool {
    const BRIDGES: &[&str] = &["docker", "br-", "virbr", "veth", "cni", "podman", "lxcbr"];
    netdev == "lo"
        || address.is_some_and(|address| address.is_loopback())
        || BRIDGES.iter().any(|start| netdev.starts_with(start))
}

/// Connections that every node makes to every other, over ports that reach a neighbour alone, or over devices
/// that reach nobody.
fn of_sockets(log: &Log, fabric: &Fabric) -> Vec<Finding> {
    let mut ports: BTreeSet<usize> = BTreeSet::new();
    let mut local: BTreeSet<&str> = BTreeSet::new();
    let management = fabric.management();
    for (host, netdev, address) in &log.sockets {
        let named = node(fabric, host.as_ref()).and_then(|node| fabric.port(node, netdev));
        // In a container the host may have another name.
        let addressed = address.and_then(|address| fabric.with_address(address));
        let addressed = addressed.filter(|port| fabric.facts(*port).netdev.as_str() == netdev);
        match named.or(addressed) {
            Some(port) => {
                ports.insert(port);
            }
            // What is on one host alone needs no more.
            None if log.nodes != Some(1)
                && is_local(netdev, *address)
                && !management.contains(netdev.as_str()) =>
            {
                local.insert(netdev);
            }
            None => {}
        }
    }
    let labels = ports.iter().map(|port| fabric.ports[*port].label());
    let over_fabric = (!ports.is_empty()).then(|| {
        Finding::warning(
            "nccl-log-socket-on-fabric",
            format!(
                "bootstrap and sockets go over the fabric ({}): opposite nodes do not reach each other there but through a neighbour's kernel",
                shown(labels.collect())
            ),
            MANAGEMENT,
        )
    });
    let over_local = (!local.is_empty()).then(|| {
        let names = local.iter().map(|name| (*name).to_owned()).collect();
        Finding::warning(
            "nccl-log-socket-local",
            format!(
                "bootstrap and sockets go over {}, which no other host reaches",
                shown(names)
            ),
            MANAGEMENT,
        )
    });
    let all = over_fabric.into_iter().chain(over_local);
    let advice = format!("NCCL_SOCKET_IFNAME={}", device_of_sockets(fabric));
    all.map(|finding| finding.advise(advice.as_str())).collect()
}

/// Sockets that found no way to another rank.
fn of_unreachable(log: &Log, fabric: &Fabric, error: &Error, times: u64) -> Finding {
    let port = |address: &Ipv4Addr| fabric.with_address(*address);
    let place = |address: &Ipv4Addr| match port(address) {
        Some(port) => format!("{address} ({}, of the fabric)", fabric.ports[port].label()),
        None => address.to_string(),
    };
    let places = log.unreachable.iter().map(place).collect::<Vec<_>>();
    let to = if places.is_empty() {
        String::new()
    } else {
        format!(": {}", shown(places))
    };
    let found = format!("{}{to} ({})", error.found, lines(times));
    let finding = Finding::problem(error.code, found, error.wanted);
    if log
        .unreachable
        .iter()
        .any(|address| port(address).is_some())
    {
        finding.advise(format!("NCCL_SOCKET_IFNAME={}", device_of_sockets(fabric)))
    } else {
        finding.advise(error.advice)
    }
}

/// Hosts with NCCL of different versions.
fn of_versions(log: &Log) -> Option<Finding> {
    let mut hosts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (host, version) in &log.versions {
        hosts.entry(version).or_default().insert(host);
    }
    if hosts.len() < 2 {
        return None;
    }
    let names = |(version, hosts): (&&str, &BTreeSet<&str>)| {
        format!(
            "{version} on {}",
            shown(hosts.iter().map(|host| (*host).to_owned()).collect())
        )
    };
    let told = shown(hosts.iter().map(names).collect());
    let all: BTreeSet<&str> = hosts.values().flatten().copied().collect();
    let mut members: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for ((id, _), host) in &log.ranks {
        members.entry(id).or_default().extend(host.as_deref());
    }
    let is_mixed = |members: &BTreeSet<&str>| {
        let with = hosts.values().filter(|own| !own.is_disjoint(members));
        with.count() > 1
    };
    let is_member = |host: &&str| members.values().any(|members| members.contains(*host));
    // Logs of several runs may be given together.
    let are_apart = all.iter().all(is_member) && !members.values().any(is_mixed);
    let wanted = "one version";
    let finding = if all.len() < log.versions.len() {
        let found = format!(
            "NCCL is of several versions, on one host too, which several runs would have: {told}"
        );
        Finding::warning("nccl-log-versions", found, wanted)
    } else if are_apart {
        let found = format!(
            "NCCL is of several versions, on hosts that have no communicator together: {told}"
        );
        Finding::warning("nccl-log-versions", found, wanted)
    } else {
        Finding::problem(
            "nccl-log-versions",
            format!("NCCL is of several versions: {told}"),
            wanted,
        )
    };
    Some(finding.advise(VERSIONS))
}

/// Communicators that began and are not complete.
fn of_begun(log: &Log) -> Option<Finding> {
    let label = |(origin, of): (&Origin, &Communicator)| {
        let host = origin.as_ref().map_or("a process", |((host, _), _)| host);
        match of.rank {
            Some(rank) => format!("{host} rank {rank}"),
            None => host.to_owned(),
        }
    };
    let labels: BTreeSet<String> = log.begun.iter().map(label).collect();
    if labels.is_empty() {
        return None;
    }
    let found = format!(
        "a communicator began and is not complete ({}): the log is cut, or it hangs there",
        shown(labels.into_iter().collect())
    );
    Some(Finding::warning("nccl-log-end-unfinished", found, "Init COMPLETE").advise("when the program waits: the logs of the other ranks tell who did not come; hairpin-mesh probe tells whether the paths carry"))
}

/// Ranks of communicators that are not complete of which no line is.
fn of_other_ranks(log: &Log) -> Option<Finding> {
    // Of more, some are not kept.
    if log.ranks.len() >= MOST {
        return None;
    }
    let others = |of: &Communicator| -> Option<BTreeSet<u32>> {
        let (id, ranks) = of.id.as_ref().zip(of.ranks)?;
        let is_told = |rank: &u32| log.ranks.contains_key(&(id.clone(), *rank));
        let few = ranks.min(MOST as u32);
        Some((0..few).filter(|rank| !is_told(rank)).collect())
    };
    let others: BTreeSet<u32> = log.begun.values().filter_map(others).flatten().collect();
    (!others.is_empty()).then(|| {
        let ranks = of_ranks(&others);
        Finding::not_observed(
            "nccl-log-other-ranks",
            "how far all ranks of a communicator came that is not complete",
            format!("no line of {ranks} is there"),
            "the logs of all ranks",
        )
        .advise("give the log of each rank, with --nccl-log once for each")
    })
}

/// Ranks by their numbers.
fn of_ranks(ranks: &BTreeSet<u32>) -> String {
    let all = shown(ranks.iter().map(u32::to_string).collect());
    match ranks.len() {
        1 => format!("rank {all}"),
        _ => format!("ranks {all}"),
    }
}

/// Cables of which channels take some functions and leave others, which the log lists, alone.
fn of_channels(log: &Log, fabric: &Fabric) -> Option<Finding> {
    let mut told: BTreeSet<String> = BTreeSet::new();
    // A host may have another name in a container, and devices have the same on all hosts.
    let port = |name: &String| {
        let mut ports = 0..fabric.ports.len();
        ports.find(|port| fabric.device(*port) == *name)
    };
    for connected in log.processes.values() {
        let used = connected.used.iter();
        let used: Option<BTreeSet<&String>> = used
            .map(|number| connected.devices.get(*number as usize))
            .collect();
        // Devices that are taken together have numbers that the list has not.
        let Some(used) = used.filter(|_| connected.rings) else {
            continue;
        };
        let sockets: BTreeSet<_> = used
            .iter()
            .filter_map(|name| Some(fabric.socket(port(name)?)))
            .collect();
        let left = connected.devices.iter().filter(|name| {
            !used.contains(name)
                && port(name).is_some_and(|port| sockets.contains(&fabric.socket(port)))
        });
        let left = list(left);
        if !left.is_empty() {
            told.insert(format!("{} and not over {left}", list(used)));
        }
    }
    if told.is_empty() {
        return None;
    }
    let found = format!(
        "channels go over {}, which carry the other half of a cable's bandwidth",
        shown(told.into_iter().collect())
    );
    Some(Finding::warning("nccl-log-channels", found, "channels over all functions of a cable").advise("NCCL_MIN_NCHANNELS=4 NCCL_MAX_NCHANNELS=4; NCCL_IB_EXTENDED_IPV4_GIDS=1 and NCCL_IB_PRESERVE_PCI_DOMAIN=1 with the library of the switchless ring"))
}

/// Rings of NCCL against the cables: what crosses a diagonal, and the ranks whose host is not known.
fn of_orders(log: &Log, fabric: &Fabric) -> (Option<Finding>, Option<Finding>) {
    let Some(ring) = &fabric.ring else {
        return (None, None);
    };
    let mut crossing: BTreeSet<String> = BTreeSet::new();
    let mut unknown: BTreeSet<u32> = BTreeSet::new();
    // With fewer there may be no other order.
    let orders = log.orders.iter();
    for (id, order) in orders.filter(|(_, order)| order.len() >= ring.size()) {
        let host = |rank: u32| {
            let host = log.ranks.get(&(id.clone()?, rank))?;
            node(fabric, host.as_ref())
        };
        unknown.extend(order.iter().filter(|rank| host(**rank).is_none()));
        let next = order.iter().cycle().skip(1);
        let crosses: Vec<String> = order
            .iter()
            .zip(next)
            .filter_map(|(rank, next)| Some((host(*rank)?, host(*next)?)))
            .filter(|(one, other)| one != other && !are_neighbours(fabric, *one, *other))
            .map(|(one, other)| format!("{} to {}", fabric.hosts[one], fabric.hosts[other]))
            .collect();
        if !crosses.is_empty() {
            let ranks: Vec<String> = order.iter().map(u32::to_string).collect();
            crossing.insert(format!("{} ({})", ranks.join(" "), list(crosses)));
        }
    }
    let hosts = list(ring.nodes.iter().map(|node| &node.host));
    // Of other communicators it is no news beside one whose rings cross.
    unknown.retain(|_| crossing.is_empty());
    let crossing = (!crossing.is_empty()).then(|| {
        let found = format!(
            "rings of NCCL join opposite nodes, which no cable joins: {}",
            shown(crossing.into_iter().collect())
        );
        Finding::problem("nccl-log-ring-order", found, "rings along the cables").advise(format!(
            "give the ranks to the hosts in the order of the cables: {hosts}"
        ))
    });
    let unknown = (!unknown.is_empty()).then(|| {
        let ranks = of_ranks(&unknown);
        Finding::not_observed(
            "nccl-log-ring-order",
            "whether the rings of NCCL follow the cables",
            format!("the log does not tell the hosts of {ranks}"),
            "the logs of all ranks",
        )
    });
    (crossing, unknown)
}

/// The first of several, and how many more there are.
fn shown(all: Vec<String>) -> String {
    const FEW: usize = 8;
    let more = match all.len().saturating_sub(FEW) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{}{more}", list(all.into_iter().take(FEW)))
}

/// Whether a cable joins ports of these hosts.
fn are_neighbours(fabric: &Fabric, one: usize, other: usize) -> bool {
    let far = |port| fabric.end(port).map(|far| fabric.ports[far].node);
    let own = fabric.of_host(one).into_iter();
    own.filter_map(far).any(|node| node == other)
}

/// Trees that could not be connected, or are not yet: they join opposite nodes.
fn of_trees(log: &Log, fabric: &Fabric) -> Option<Finding> {
    let node = |address| Some(fabric.ports[fabric.with_address(address)?].node);
    let opposite = |(local, remote): (Ipv4Addr, Ipv4Addr)| {
        let ends = node(local).zip(node(remote));
        ends.is_some_and(|(one, other)| one != other && !are_neighbours(fabric, one, other))
    };
    let ring = log.ring_only || log.no_trees;
    // A line that does not tell the ends tells the time.
    let mut of_trees = log.of_trees.iter();
    let failed = log.tree_failed || !ring && of_trees.any(|pair| pair.is_none_or(opposite));
    let mut processes = log.processes.values();
    let finding = if failed {
        Finding::problem(
            TREE,
            "all rings are connected and no tree is: connecting the trees failed",
            "trees turned off on a switchless ring",
        )
    } else if !ring && processes.any(Connected::waits_for_trees) {
        Finding::warning(
            TREE,
            "all rings are connected and no tree is, yet: connecting one fails on a switchless ring",
            "trees turned off on a switchless ring",
        )
    } else {
        return None;
    };
    Some(finding.advise("NCCL_SWITCHLESS_RING_ONLY=1 with the library of the switchless ring (NCCL_SKIP_TREE_CONNECT alone is not enough)"))
}

/// Queue pairs that found no way, by what their addresses are to each other.
fn no_paths(logs: &Logs, fabric: &Fabric) -> Vec<Seen> {
    let log = &logs.joined;
    let mut all = Vec::new();
    let mut cables: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    let mut apart: BTreeMap<String, u64> = BTreeMap::new();
    let mut strange: BTreeSet<Ipv4Addr> = BTreeSet::new();
    let mut of_strange = 0;
    for ((local, remote), times) in &log.no_path {
        match (fabric.with_address(*local), fabric.with_address(*remote)) {
            (Some(one), Some(other)) if fabric.end(one) == Some(other) => {
                *cables.entry((one.min(other), one.max(other))).or_default() += times;
            }
            (Some(one), Some(other)) => {
                let (a, b) = (&fabric.ports[one.min(other)], &fabric.ports[one.max(other)]);
                let what = if a.node == b.node {
                    format!("{} and {} of one host", a.label(), b.label())
                } else if are_neighbours(fabric, a.node, b.node) {
                    format!("{} and {} of two cables", a.label(), b.label())
                } else {
                    format!("opposite nodes {} and {}", a.host, b.host)
                };
                *apart.entry(what).or_default() += times;
            }
            (one, other) => {
                strange.extend(one.is_none().then_some(local));
                strange.extend(other.is_none().then_some(remote));
                of_strange += times;
            }
        }
    }
    for ((one, other), times) in cables {
        let end =
            |port: usize, address: &str| format!("{} ({address})", fabric.ports[port].label());
        let address = |port: usize| {
            let own = fabric.facts(port).ipv4.known().and_then(|all| all.first());
            own.map_or("no address".to_owned(), |own| own.address.to_string())
        };
        let (dev, to) = (&fabric.facts(one).netdev, address(other));
        let finding = Finding::problem(
            "nccl-log-neighbour",
            format!(
                "a queue pair found no way between {} and {}, neighbours on one cable ({})",
                end(one, &address(one)),
                end(other, &to),
                lines(times)
            ),
            "a link, and an answer to ARP, on that cable",
        );
        let ends = [Some(one), Some(other)];
        let is_of_cable = |(local, remote): &(Ipv4Addr, Ipv4Addr)| {
            let mut own = [*local, *remote].map(|address| fabric.with_address(address));
            own.sort();
            own == ends
        };
        let name = logs.named(|log| log.no_path.keys().any(is_of_cable));
        let finding = finding.at(name).advise(format!(
            "on {}: ethtool {dev}; ip neigh show dev {dev}; arping -c 3 -I {dev} {to}; hairpin-mesh doctor --wire with all hosts asks which port is at the other end of each cable",
            fabric.ports[one].host
        ));
        all.push(Seen::ports(fabric, [one, other].into(), finding));
    }
    let name = logs.named(|log| log.has(NO_PATH));
    let mut ring = |found: String, wanted: &str, advice: &str| {
        let finding = Finding::problem(NO_PATH, found, wanted);
        all.push(Seen::ring(finding.at(&name).advise(advice)));
    };
    let error = ERRORS.iter().find(|error| error.code == NO_PATH);
    let (found, wanted, advice) = error.map_or(("", "", ""), |e| (e.found, e.wanted, e.advice));
    if !apart.is_empty() {
        let times = apart.values().sum();
        let pairs = shown(apart.into_keys().collect());
        ring(
            format!("{found}: {pairs} ({})", lines(times)),
            wanted,
            advice,
        );
    }
    if !strange.is_empty() {
        let several = strange.len() > 1;
        let strange = shown(strange.iter().map(Ipv4Addr::to_string).collect());
        ring(
            format!(
                "a queue pair found no way to its peer's GID: none of these hosts has {} {strange} ({})",
                if several {
                    "the addresses"
                } else {
                    "the address"
                },
                lines(of_strange)
            ),
            "addresses of these hosts",
            "is the log of this ring, and are the facts those of all its hosts? A program that ran when an address was changed has the old one: start it again",
        );
    }
    let sum = |code| -> u64 {
        let of_code = log.errors.iter().filter(|(i, _)| ERRORS[**i].code == code);
        of_code.map(|(_, times)| times).sum()
    };
    let rest = sum(NO_PATH).saturating_sub(log.no_path.values().sum());
    if rest > 0 {
        ring(format!("{found} ({})", lines(rest)), wanted, advice);
    }
    all
}

fn lines(times: u64) -> String {
    count(usize::try_from(times).unwrap_or(usize::MAX), "line")
}

/// What the logs tell.
pub(super) fn look(all: &[Log], fabric: &Fabric, seen: &mut Vec<Seen>, notes: &mut Vec<Finding>) {
    let (empty, each): (Vec<&Log>, Vec<&Log>) = all.iter().partition(|log| log.is_empty());
    for log in empty {
        let finding = Finding::not_observed(
            "nccl-log-empty",
            "NCCL",
            "no line of it is in the log",
            "a log with NCCL_DEBUG=INFO",
        );
        seen.push(Seen::ring(finding.at(&log.name)));
    }
    if !each.is_empty() {
        told(&Logs::of(each), fabric, seen, notes);
    }
}

/// What logs tell that are not empty.
fn told(logs: &Logs, fabric: &Fabric, seen: &mut Vec<Seen>, notes: &mut Vec<Finding>) {
    let log = &logs.joined;
    let mut push = |finding: Finding, tells: &dyn Fn(&Log) -> bool| {
        seen.push(Seen::ring(finding.at(logs.named(tells))));
    };
    let devices = (0..fabric.hosts.len())
        .map(|node| fabric.of_host(node).len())
        .max()
        .unwrap_or(0);
    let ports = 0..fabric.ports.len();
    let names: BTreeSet<String> = ports.map(|port| fabric.device(port)).collect();
    let node_of = |host: &Option<String>| node(fabric, host.as_ref());
    // A log of another ring: its devices and its hosts are others, and this one is no measure for it.
    let is_strange = !log.using.is_empty()
        && log
            .using
            .iter()
            .all(|(_, devices)| devices.is_disjoint(&names))
        && !log
            .hosts
            .iter()
            .any(|host| node(fabric, Some(host)).is_some());
    for record in &log.listeners {
        let (advertised, observed) = record;
        let tells = |log: &Log| log.listeners.contains(record);
        if advertised != observed {
            push(
                Finding::problem(
                    "nccl-log-listeners",
                    format!("{advertised} listeners are advertised and {observed} observed"),
                    "as many as there are devices",
                )
                .advise("both ends need the same library and the same NCCL_IB_EXTENDED_IPV4_GIDS"),
                &tells,
            );
        } else if (*advertised as usize) < devices && !is_strange {
            push(Finding::problem("nccl-log-cap", format!("{} advertised for {devices} devices: the cap is in force, devices past number {advertised} move nothing", count(*advertised as usize, "listener")), devices.to_string())
                .advise("NCCL_IB_EXTENDED_IPV4_GIDS=1 and the library of the switchless ring on all nodes"), &tells);
        }
    }
    let root = |device: u32| device as usize / PORTS_PER_DOMAIN;
    let is_collapse =
        |(from, to, preserved): &&(u32, u32, bool)| !preserved && root(*from) != root(*to);
    let collapsed: Vec<String> = log
        .overrides
        .iter()
        .filter(is_collapse)
        .map(|(from, to, _)| format!("dev {from} with dev {to}"))
        .collect();
    if !collapsed.is_empty() {
        push(Finding::problem("nccl-log-collapse", format!("devices of one PCI root are overridden by those of the other ({}): both channels use one", list(collapsed)), "each on its own PCI root")
            .advise("NCCL_IB_PRESERVE_PCI_DOMAIN=1; an address on every port of the second plane"), &|log| log.overrides.iter().any(|one| is_collapse(&one)));
    } else if !log.overrides.is_empty() {
        notes.push(
            Finding::warning(
                "nccl-log-override",
                "devices are overridden within their PCI root, which is right here",
                "that",
            )
            .at(logs.named(|log| !log.overrides.is_empty())),
        );
    }
    let uses = |log: &Log| !log.using.is_empty();
    // Of each line the devices that are known here.
    let mut using: BTreeSet<Vec<String>> = BTreeSet::new();
    let mut wrong: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let mut strange: BTreeSet<String> = BTreeSet::new();
    for (host, used) in &log.using {
        let node = node_of(host);
        let known: Vec<String> = match node {
            Some(node) => devices_of(fabric, node)
                .intersection(used)
                .cloned()
                .collect(),
            None => names.intersection(used).cloned().collect(),
        };
        match (known.is_empty(), node) {
            (false, _) => {
                using.insert(known);
            }
            (true, Some(node)) if !fabric.of_host(node).is_empty() => {
                wrong.entry(list(used)).or_default().insert(node);
            }
            (true, Some(_)) => {}
            (true, None) => {
                strange.insert(host.clone().unwrap_or("an unnamed host".into()));
            }
        }
    }
    for used in using.iter().filter(|used| used.len() < devices) {
        push(Finding::problem("nccl-log-devices", format!("{} of {devices} RDMA devices in use ({}): each has a share of the bandwidth that no other can give", used.len(), list(used)), format!("all {devices}"))
            .advise("an address and MTU on every port, then NCCL_IB_HCA with all of them, exactly as rdma link has them"), &uses);
    }
    for (used, nodes) in wrong {
        let own: BTreeSet<String> = nodes
            .iter()
            .flat_map(|node| devices_of(fabric, *node))
            .collect();
        push(Finding::problem("nccl-log-devices", format!("{used} in use on {}: no RDMA device of the fabric is among them", fabric.host_names(&nodes)), list(own))
            .advise("NCCL_IB_HCA with all of them, exactly as rdma link has them; in a container they have the names that they have on the host"), &uses);
    }
    if !strange.is_empty() {
        let hosts = shown(strange.into_iter().collect());
        let why = format!("the log is of {hosts}, none of these hosts, and of other RDMA devices");
        let finding = Finding::not_observed(
            "nccl-log-other-host",
            "what NCCL uses here",
            why,
            "a log of these hosts",
        );
        let finding = finding.advise("give the log of a process on one of these hosts");
        if is_strange {
            push(finding, &uses);
        } else {
            notes.push(finding.at(logs.named(uses)));
        }
    }
    let (crossing, unknown) = of_orders(log, fabric);
    for finding in of_sockets(log, fabric) {
        push(finding, &|log| !log.sockets.is_empty());
    }
    if let Some(finding) = of_channels(log, fabric) {
        let uses = |connected: &Connected| !connected.used.is_empty();
        push(finding, &|log| log.processes.values().any(uses));
    }
    if let Some(finding) = of_versions(log) {
        push(finding, &|log| !log.versions.is_empty());
    }
    let is_begun = |own: &Log| {
        own.begun
            .keys()
            .any(|origin| log.begun.contains_key(origin))
    };
    if let Some(finding) = of_begun(log) {
        push(finding, &is_begun);
    }
    notes.extend(of_other_ranks(log).map(|note| note.at(logs.named(is_begun))));
    let has_orders = |log: &Log| !log.orders.is_empty();
    if let Some(finding) = crossing {
        push(finding, &has_orders);
    }
    notes.extend(unknown.map(|note| note.at(logs.named(has_orders))));
    if log.lines > 0 && log.net == 0 {
        push(
            Finding::not_observed(
                "nccl-log-no-net",
                "routing",
                "the log has no line of the subsystem NET",
                "NCCL_DEBUG_SUBSYS with NET in it",
            )
            .advise("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV"),
            &|log| log.lines > 0,
        );
    }
    if let Some(finding) = of_trees(log, fabric) {
        let waits = |log: &Log| log.processes.values().any(Connected::waits_for_trees);
        let tells = |log: &Log| [log.tree_failed, !log.of_trees.is_empty(), waits(log)];
        push(finding, &|log| tells(log).contains(&true));
    }
    if log.ring_only && log.processes.values().any(|process| process.rings) {
        notes.push(
            Finding::warning(
                "nccl-log-ring-only",
                "all rings are connected, trees are turned off, as a switchless ring wants it",
                "that",
            )
            .at(logs.named(|log| log.ring_only)),
        );
    }
    for ready in log.ready.iter().filter(|_| !is_strange) {
        let (world, names) = ready;
        let tells = |log: &Log| log.ready.contains(ready);
        if fabric.whole && *world as usize != fabric.hosts.len() {
            push(
                Finding::problem(
                    "nccl-log-world",
                    format!("the engine is ready with world={world}"),
                    fabric.hosts.len().to_string(),
                ),
                &tells,
            );
        }
        let there: BTreeSet<String> = (0..fabric.ports.len())
            .map(|port| fabric.device(port))
            .collect();
        let strange: Vec<&String> = names.iter().filter(|name| !there.contains(*name)).collect();
        if !names.is_empty()
            && !strange.is_empty()
            && names.iter().all(|name| name.parse::<u32>().is_err())
        {
            push(
                Finding::problem(
                    "nccl-log-hcas",
                    format!("the engine has {}", list(strange)),
                    format!("of {}", list(&there)),
                ),
                &tells,
            );
        } else if !names.is_empty()
            && names.len() < devices
            && names.iter().all(|name| name.parse::<u32>().is_err())
        {
            push(
                Finding::problem(
                    "nccl-log-hcas",
                    format!(
                        "the engine has {} ({})",
                        count(names.len(), "HCA"),
                        list(names)
                    ),
                    format!("{devices}"),
                ),
                &tells,
            );
        } else {
            notes.push(
                Finding::warning(
                    "nccl-log-ready",
                    format!(
                        "the engine is ready: world={world} hcas={}",
                        names.join(",")
                    ),
                    "that",
                )
                .at(logs.named(tells)),
            );
        }
    }
    let mut told: BTreeSet<&str> = BTreeSet::new();
    // Runs that are right have some, too.
    if let Some((first, times)) = &log.warnings {
        let found = format!(
            "{} of NCCL that {} not known here, the first: {first}",
            count(*times as usize, "warning"),
            if *times == 1 { "is" } else { "are" }
        );
        let finding = Finding::warning("nccl-log-warnings", found, "to be read");
        notes.push(finding.at(logs.named(|log| log.warnings.is_some())));
    }
    let mut no_paths = Some(no_paths(logs, fabric));
    for (i, times) in &log.errors {
        let error = &ERRORS[*i];
        if error.code == NO_PATH {
            seen.extend(no_paths.take().into_iter().flatten());
            continue;
        }
        if error.code == UNREACHABLE {
            let finding = of_unreachable(log, fabric, error, *times);
            let name = logs.named(|log| log.has(UNREACHABLE));
            seen.push(Seen::ring(finding.at(name)));
            continue;
        }
        // Of events, each kind has its own meaning.
        let is_event = error.code.starts_with("nccl-log-event-");
        if !told.insert(if is_event { error.found } else { error.code }) {
            continue;
        }
        let found = format!("{} ({})", error.found, lines(*times));
        let name = logs.named(|log| log.errors.contains_key(i));
        match error.severity() {
            Some(severity) => {
                let finding = Finding::problem(error.code, found, error.wanted);
                let finding = Finding {
                    severity,
                    ..finding
                }
                .advise(error.advice);
                seen.push(Seen::ring(finding.at(name)));
            }
            None => {
                let note = Finding::warning(error.code, found, error.wanted);
                notes.push(note.at(name));
            }
        }
    }
    for (status, times) in &log.statuses {
        let tells = |log: &Log| log.statuses.contains_key(status);
        let mut telling = logs.each.iter().filter(|log| tells(log));
        let is_of_nccl = telling.any(|log| log.lines > 0);
        let finding = of_status(*status, *times, is_of_nccl);
        seen.push(Seen::ring(finding.at(logs.named(tells))));
    }
    let qp = ["nccl-log-no-path", "nccl-log-qp-"];
    let failed = |i: &usize| qp.iter().any(|code| ERRORS[*i].code.starts_with(code));
    if log.retries > 0 && !log.errors.keys().any(failed) {
        let found = format!(
            "queue pairs were tried again before they found a way, if they did ({})",
            lines(log.retries)
        );
        let finding = Finding::warning("nccl-log-retried", found, "a way at the first try")
            .advise("ip neigh show dev DEVICE on both ends: who answers late, or not at first? ethtool DEVICE: did the link just come up?");
        seen.push(Seen::ring(finding.at(logs.named(|log| log.retries > 0))));
    }
}

/// What a failed completion tells.
fn of_status(status: u32, times: u64, is_of_nccl: bool) -> Finding {
    let known = STATUSES.get(status as usize);
    let (_, meaning, matter) = known
        .copied()
        .unwrap_or(("", "a completion failed", Matter::Queue));
    let name = known.map_or(String::new(), |(name, ..)| format!(", IBV_WC_{name}"));
    let found = format!("{meaning} (status {status}{name}; {})", lines(times));
    match matter {
        Matter::Path => Finding::problem(
            "nccl-log-retries",
            format!("{meaning} (status {status}): packets of this size or path do not arrive ({})", lines(times)),
            "acknowledgements",
        )
        .advise(if is_of_nccl {
            "large messages alone: the MTU of one end; an opposite node alone: rule or marker (hairpin-mesh probe); one queue pair alone: its source port is the marker's"
        } else {
            "perftest to an opposite node needs --flow_label=16383 and the same -x on both ends; large messages alone: the MTU of one end"
        }),
        Matter::Receiver => Finding::problem(
            "nccl-log-status-receiver",
            found,
            "a peer that receives",
        )
        .advise("packets arrive: the peer hangs, or is slow; its log, and whether its process lives"),
        Matter::Peer => Finding::problem("nccl-log-status-peer", found, "requests that the peer takes")
            .advise("the first error in the peer's log; the same library on all hosts (hairpin-mesh doctor --nccl-library PATH HOST...)"),
        Matter::Memory => Finding::problem("nccl-log-status-memory", found, "memory that stays registered while it is used")
            .advise("no cable does this: the program, the library or the driver of the memory; the same versions on all hosts, and journalctl -k of that time"),
        Matter::Queue => Finding::problem("nccl-log-status-queue", found, "requests that the queue pair takes").advise(QUEUES),
        Matter::Before => Finding::warning("nccl-log-end-flushed", found, "the failure before it")
            .advise(QUEUES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_of_the_ring_are_read() {
        let text = b"spark1:1:1 [0] NCCL INFO NET/IB : ListenerRouting format=ipv4-v1 advertised=2 observed=4\n\
            spark1:1:1 [0] NCCL INFO Subnet-aware routing: overriding dev 2 with dev 0\n\
            spark1:1:1 [0] NCCL INFO Subnet-aware routing: overriding dev 1 with dev 0 preserving PCI root 0000:00\n\
            spark1:1:1 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0\n\
            RoCEnante ready: world=4 hcas=rocep1s0f0,rocep1s0f1 x\n\
            spark1:1:1 [0] NCCL WARN NET/IB : ibv_modify_qp failed with 110 Connection timed out\n";
        let log = Log::read("x.log", text);
        assert_eq!(log.listeners, [(2, 4)].into());
        assert_eq!(log.overrides, [(2, 0, false), (1, 0, true)].into());
        let connected = Connected {
            rings: true,
            ..Connected::default()
        };
        assert_eq!(
            log.processes,
            [(Some(("spark1".into(), 1)), connected)].into()
        );
        assert_eq!(log.of_trees, [None].into());
        assert!(!log.ring_only && !log.no_trees);
        assert_eq!(
            log.ready,
            [(4, vec!["rocep1s0f0".into(), "rocep1s0f1".into()])].into()
        );
        assert_eq!((log.lines, log.net), (5, 4));
        let codes: BTreeSet<&str> = log.errors.keys().map(|i| ERRORS[*i].code).collect();
        assert_eq!(codes, ["nccl-log-no-path"].into());
    }

    #[test]
    fn a_number_of_a_process_or_a_mapped_address_is_no_error() {
        let codes = |text: &str| -> BTreeSet<&str> {
            let log = Log::read("x", text.as_bytes());
            log.errors.keys().map(|i| ERRORS[*i].code).collect()
        };
        let no_path = "spark1:61:610 [0] NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev rocep1s0f0:1, local GID index 3, local GID ::ffff:10.10.0.10, remote GID ::ffff:10.10.1.11";
        assert_eq!(codes(no_path), ["nccl-log-no-path"].into());
        let empty = "spark1:1103: 61 [0] NCCL WARN Call to ibv_modify_qp failed with 61 No data available, on dev rocep1s0f0:1, local GID index 3, local GID ::, remote GID ::ffff:10.10.1.11";
        assert_eq!(codes(empty), ["nccl-log-gid-empty"].into());
    }

    #[test]
    fn a_log_of_many_ranks_is_read_whole_and_what_is_kept_of_it_has_a_limit() {
        assert_eq!(LONGEST, 268_435_456);
        let line = |i| format!("NCCL INFO Subnet-aware routing: overriding dev {i} with dev 0\n");
        let log = Log::read("x", (0..300).map(line).collect::<String>().as_bytes());
        assert_eq!(log.overrides.len(), 256);
        let line = |i| format!("NCCL INFO NET/IB : Using [0]mlx5_{i}:1/RoCE\n");
        let log = Log::read("x", (0..300).map(line).collect::<String>().as_bytes());
        assert_eq!(log.using.len(), 256);
    }

    #[test]
    fn the_host_of_a_line_is_in_front_of_its_process_and_thread() {
        let of = |line: &str| {
            origin(line).map(|((host, process), thread)| format!("{host} {process} {thread}"))
        };
        for (line, wanted) in [
            ("spark1:4711:4720 [0] NCCL INFO x", Some("spark1 4711 4720")),
            (
                "12:00:01 (Worker pid=3) spark1:110: 61 [0] NCCL INFO x",
                Some("spark1 110 61"),
            ),
            (
                "spark1:1:2 [0] misc/ibvwrap.cc:301 NCCL WARN x",
                Some("spark1 1 2"),
            ),
            ("spark1:1: [0] NCCL INFO x", Some("spark1 1 0")),
            ("[0] NCCL INFO x spark1:1:2", None),
            (":1:2 [0] NCCL INFO", None),
            ("a:b:c d:1 e::1 f:1:g [0] NCCL INFO", None),
            ("spark1:1:2 [0] NCCL", None),
        ] {
            assert_eq!(of(line).as_deref(), wanted, "{line}");
        }
    }

    #[test]
    fn the_environment_leaves_trees_out_by_the_algorithm() {
        let of = |line: &str| Log::read("x", line.as_bytes()).no_trees;
        for value in [
            "Ring",
            "ring",
            "allreduce:ring;broadcast:ring",
            "^Tree",
            "^tree,nvls",
        ] {
            assert!(
                of(&format!(
                    "NCCL INFO NCCL_ALGO set by environment to {value}"
                )),
                "{value}"
            );
        }
        for value in ["Tree", "ring,tree", "^ring", "", "nvls"] {
            assert!(
                !of(&format!(
                    "NCCL INFO NCCL_ALGO set by environment to {value}"
                )),
                "{value}"
            );
        }
        assert!(of(
            "NCCL INFO NCCL_SWITCHLESS_RING_ONLY set by environment to 1."
        ));
        assert!(!of(
            "NCCL INFO NCCL_SWITCHLESS_RING_ONLY set by environment to 0."
        ));
        assert!(!of(
            "NCCL INFO NCCL_IB_HCA set by environment to NCCL_ALGO=Ring"
        ));
    }

    #[test]
    fn devices_sockets_and_gids_are_read_out_of_their_lines() {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let list =
            "[0]a:1/RoCE [1]={[2] b:1/IB, [3] c:2/RoCE} [RO]; OOB d:10.0.0.1<0> e:x/f :1/g h:300/i";
        assert_eq!(devices(list), all(&["a", "b", "c"]));
        assert_eq!(devices("4"), BTreeSet::new());
        let of: Vec<_> = sockets("[0]a:10.0.0.1<0> [1]b:fe80::1%b<0> :10.0.0.1<0> c<0>").collect();
        assert_eq!(
            of,
            [
                ("a".to_owned(), Some(Ipv4Addr::new(10, 0, 0, 1))),
                ("b".to_owned(), None)
            ]
        );
        let line = "local GID index 3, local GID ::ffff:10.10.0.10, remote GIDs 0000:0000:0000:0000:0000:ffff:0a0a:000b";
        assert_eq!(gid(line, "local GID "), Some(Ipv4Addr::new(10, 10, 0, 10)));
        assert_eq!(
            gid(line, "remote GIDs "),
            Some(Ipv4Addr::new(10, 10, 0, 11))
        );
        assert_eq!(gid("local GID ::, x", "local GID "), None);
        assert_eq!(gid("local GID fe80::1", "local GID "), None);
        assert_eq!(gid("local GID ", "local GID "), None);
    }

    #[test]
    fn of_pairs_hosts_and_sockets_some_are_kept_and_all_lines_are_counted() {
        let lines = (0..2000).map(|i| {
            let (a, b) = (i / 200, i % 200);
            format!("h{i}:1:1 [0] NCCL WARN ibv_modify_qp failed with 110, local GID ::ffff:10.0.{a}.{b}, remote GID ::ffff:10.1.{a}.{b}; OOB e{i}:10.0.{a}.{b}<0>\n")
        });
        let text = lines.collect::<String>();
        let log = Log::read("x", format!("{text}{text}").as_bytes());
        assert_eq!(
            (log.no_path.len(), log.hosts.len(), log.sockets.len()),
            (256, 256, 256)
        );
        assert_eq!(log.no_path.values().sum::<u64>(), 512);
        assert_eq!(log.errors.values().sum::<u64>(), 4000);
    }

    #[test]
    fn the_status_of_a_completion_is_read_by_its_name_its_number_or_its_text() {
        assert_eq!(STATUSES.len(), 24);
        for (number, (name, meaning, _)) in STATUSES.iter().enumerate().skip(1) {
            let number = number as u32;
            assert!(!meaning.is_empty());
            for line in [
                format!(
                    "Got completion from peer x with status=IBV_WC_{name}({number}) opcode=IBV_WC_SEND(0)"
                ),
                format!(
                    "Got completion from peer x with status={number} opcode=0 len=0 vendor err 129"
                ),
                format!(" Failed status {number}: wr_id 0 syndrom 0x81"),
                format!(" Failed status some words ({number}): wr_id 0 syndrom 0x81"),
            ] {
                assert_eq!(status(&line), Some(number), "{line}");
            }
        }
        for (line, wanted) in [
            ("transport retry counter exceeded", Some(12)),
            ("RNR retry counter exceeded", Some(13)),
            ("(IBV_WC_LOC_PROT_ERR) on queue pair 7", Some(4)),
            ("WC_RETRY_EXC_ERR", Some(12)),
            ("WC_RNR_RETRY_EXC_ERR", Some(13)),
            ("Completion with status=IBV_WC_NEW_ERR(77)", Some(77)),
            (
                "Completion with error at client: Failed status 10",
                Some(10),
            ),
            ("completion with status=IBV_WC_SUCCESS(0) opcode=1", None),
            ("completion with status=0", None),
            ("completion with status=99999999999", None),
            ("the process ended with status=12", None),
            ("opcode=IBV_WC_SEND(0)", None),
        ] {
            assert_eq!(status(line), wanted, "{line}");
        }
    }

    #[test]
    fn numbers_of_devices_and_orders_of_ranks_are_read_where_they_are_plain() {
        let all =
            |names: &[&str]| -> Vec<String> { names.iter().map(|n| (*n).to_owned()).collect() };
        assert_eq!(
            numbered("[0]a:1/RoCE [1]b:1/RoCE [RO]; OOB c:10.0.0.1<0>"),
            all(&["a", "b"])
        );
        assert_eq!(numbered("[0]a:1/RoCE [2]b:1/RoCE"), all(&["a"]));
        assert_eq!(numbered("[0]a:1/RoCE [1]={[0] a:1/RoCE}"), all(&[]));
        assert_eq!(numbered("4"), all(&[]));
        let of = |line: &str| order(&format!("h:1:1 [0] NCCL INFO {line}"));
        assert_eq!(
            of("Channel 00/04 :    0   2   1   3"),
            Some(vec![0, 2, 1, 3])
        );
        assert_eq!(of("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0"), None);
        assert_eq!(of("Channel x/04 : 0 1"), None);
        assert_eq!(of("Channel 00/x : 0 1"), None);
        assert_eq!(of("Ring 00 : 0 1"), None);
        let ranks = |n: u32| (0..n).map(|rank| format!(" {rank}")).collect::<String>();
        let of_many = |n| of(&format!("Channel 00/04 :{}", ranks(n)));
        assert_eq!(of_many(64).map(|order| order.len()), Some(64));
        assert_eq!(of_many(65), None);
    }

    #[test]
    fn of_processes_and_communicators_some_are_kept() {
        let lines = (0..300).map(|i| {
            let line = format!("h{i}:1:1 [0] NCCL INFO");
            let events = [
                format!("NCCL version 2.{i}.0+cuda13.0"),
                format!("comm 0x1 rank {i} nranks 4 commId 0x{i} - Init START"),
                format!("Channel 00/04 : {i} 1"),
                format!("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/{i}"),
                format!(
                    "socketStartConnect: Connect to 10.0.{}.{}<1> failed : No route to host",
                    i / 200,
                    i % 200
                ),
                format!("Got completion from peer x with status={}", i + 1),
                format!("ListenerRouting format=ipv4-v1 advertised={i} observed=1"),
                format!("RoCEnante ready: world={i} hcas=a"),
            ];
            events.map(|event| format!("{line} {event}\n")).concat()
        });
        let log = Log::read("x", lines.collect::<String>().as_bytes());
        assert_eq!(
            [
                log.versions.len(),
                log.begun.len(),
                log.ranks.len(),
                log.orders.len(),
                log.processes.len(),
                log.unreachable.len(),
                log.statuses.len(),
                log.listeners.len(),
                log.ready.len(),
            ],
            [MOST; 9]
        );
        let lines = (0..300).map(|i| format!("h:1:1 [0] NCCL INFO x via NET/IB/{i}\n"));
        let log = Log::read("x", lines.collect::<String>().as_bytes());
        let used = |connected: &Connected| connected.used.len();
        assert_eq!(log.processes.values().map(used).max(), Some(MOST));
    }

    #[test]
    fn a_communicator_is_complete_where_it_began_or_in_a_later_process_of_its_rank() {
        let begun = |lines: &[&str]| {
            let log = Log::read("x", lines.join("\n").as_bytes());
            log.begun.len()
        };
        const START: &str = "h:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x1 - Init START";
        assert_eq!(begun(&[START]), 1);
        assert_eq!(begun(&["h:1:1 [0] NCCL INFO Trees [0] -1/-1/-1->0->1"]), 1);
        for (complete, left) in [
            ("h:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x1", 0),
            // Another thread, which has a communicator of its own.
            ("h:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x2", 1),
            ("h:2:2 [0] NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x2", 0),
            ("h:2:2 [0] NCCL INFO comm 0x1 rank 1 nranks 4 commId 0x2", 1),
            ("i:2:2 [0] NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x2", 1),
            ("NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x2", 1),
        ] {
            let complete = format!("{complete} - Init COMPLETE");
            assert_eq!(begun(&[START, &complete]), left, "{complete}");
        }
    }

    #[test]
    fn a_communicator_is_complete_in_another_log_in_any_order() {
        const START: &str = "h:8:1 [0] NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x1 - Init START";
        for (complete, left) in [
            ("h:8:1 [0] NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x1", 0),
            ("h:8:1 [0] NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x2", 1),
            ("h:9:1 [0] NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x2", 0),
            ("h:7:1 [0] NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x2", 1),
            ("h:9:1 [0] NCCL INFO comm 0x1 rank 1 nranks 4 commId 0x1", 1),
            ("i:9:1 [0] NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x1", 1),
            ("NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x1", 1),
        ] {
            let complete = format!("{complete} - Init COMPLETE");
            let one = Log::read("one", START.as_bytes());
            let other = Log::read("other", complete.as_bytes());
            for each in [vec![&one, &other], vec![&other, &one]] {
                assert_eq!(Logs::of(each).joined.begun.len(), left, "{complete}");
            }
        }
    }

    #[test]
    fn a_rank_that_several_hosts_say_that_they_are_is_on_no_known_host() {
        let of = |host: &str| {
            let line = format!("{host}:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 4 commId 0x1");
            Log::read(host, line.as_bytes())
        };
        let (one, same, other) = (of("a"), of("a"), of("b"));
        let host = |each| Logs::of(each).joined.ranks.into_values().next().unwrap();
        assert_eq!(host(vec![&one, &same]).as_deref(), Some("a"));
        assert_eq!(host(vec![&one, &other]), None);
        assert_eq!(host(vec![&one, &other, &same]), None);
    }

    #[test]
    fn versions_of_hosts_that_have_no_communicator_together_may_be_of_several_runs() {
        let of = |host: &str, version: &str, id: &str| {
            let line = format!("{host}:1:1 [0] NCCL INFO");
            let rank = format!("comm 0x1 rank {} nranks 2 commId {id}", host.len());
            let text = format!("{line} NCCL version {version}\n{line} {rank}\n");
            Log::read(host, text.as_bytes())
        };
        let severity = |a: &Log, b: &Log| {
            let finding = of_versions(&Logs::of(vec![a, b]).joined)?;
            Some(finding.severity)
        };
        use crate::finding::Severity::{Problem, Warning};
        let one = of("h", "2.28.9", "0x1");
        assert_eq!(severity(&one, &of("hh", "2.28.9", "0x1")), None);
        assert_eq!(severity(&one, &of("hh", "2.27.7", "0x1")), Some(Problem));
        assert_eq!(severity(&one, &of("hh", "2.27.7", "0x2")), Some(Warning));
        let alone = Log::read("x", b"hh:1:1 [0] NCCL INFO NCCL version 2.27.7");
        assert_eq!(severity(&one, &alone), Some(Problem));
    }

    #[test]
    fn a_device_reaches_no_other_host_by_its_name_or_its_address() {
        for name in [
            "lo",
            "docker0",
            "br-0a1b2c",
            "virbr0",
            "veth0a1b",
            "cni0",
            "podman1",
            "lxcbr0",
        ] {
            assert!(is_local(name, None), "{name}");
        }
        for name in ["enP7s7", "eth0", "br0", "wlP9s9", "lob0"] {
            assert!(
                !is_local(name, Some(Ipv4Addr::new(192, 168, 77, 1))),
                "{name}"
            );
        }
        assert!(is_local("eth0", Some(Ipv4Addr::new(127, 0, 1, 1))));
    }

    #[test]
    fn any_bytes_are_a_log() {
        let log = Log::read("x", &[0xff; 10_000]);
        assert_eq!((log.lines, log.net), (0, 0));
        let log = Log::read("x", b"NCCL ListenerRouting advertised=99999999999 observed=\nNCCL Subnet-aware routing: overriding dev  with dev 1");
        assert!(log.listeners.is_empty() && log.overrides.is_empty());
    }
}
