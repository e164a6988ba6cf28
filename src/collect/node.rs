//! The facts of the node.

use crate::facts::{Fact, Machine, Memory, NetplanFile, NodeFacts, NodeSysctls, RdmaProcess};
use crate::kernel::process::Process;
use crate::kernel::sysfs;
use crate::names::{NetdevName, Text};

/// All but the routes, the markers and what depends on the ports, which the caller has.
pub(super) fn facts() -> NodeFacts {
    NodeFacts {
        program: Fact::Known(
            concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")).into(),
        ),
        collected_at: std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map(|since| since.as_secs())
            .map_err(|_| "the clock stands before 1970")
            .into(),
        kernel: sysfs::text("/proc/sys/kernel/osrelease").into(),
        architecture: match sysfs::text("/proc/sys/kernel/arch") {
            // Kernels before 6.1 have no such file; this program runs on its own architecture.
            Err(error) if error.is_absent() => Fact::Known(std::env::consts::ARCH.into()),
            other => other.into(),
        },
        boot_id: sysfs::text("/proc/sys/kernel/random/boot_id").into(),
        boot_time: from_table("/proc/stat", boot_time),
        kernel_handover: from_table("/proc/cmdline", |line| {
            Some(word_of_command_line(line, "kho="))
        }),
        machine: Machine {
            product: sysfs::text("/sys/class/dmi/id/product_name").into(),
            bios_version: sysfs::text("/sys/class/dmi/id/bios_version").into(),
            bios_date: sysfs::text("/sys/class/dmi/id/bios_date").into(),
        },
        memory: from_table("/proc/meminfo", memory),
        sysctls: NodeSysctls {
            ip_forward: sysfs::value("/proc/sys/net/ipv4/ip_forward").into(),
            rp_filter: device_sysctl("all", "rp_filter"),
            arp_ignore: device_sysctl("all", "arp_ignore"),
            arp_announce: device_sysctl("all", "arp_announce"),
        },
        ip_forwarded_datagrams: from_table("/proc/net/snmp", |table| {
            snmp(table, "Ip", "ForwDatagrams")
        }),
        routes: Fact::unmentioned(),
        markers: Fact::unmentioned(),
        rdma_core: from_table("/proc/self/maps", verbs_library),
        modules: from_table("/proc/modules", |table| Some(first_words(table))),
        rdma_processes: Fact::unmentioned(),
        netplan_files: Fact::unmentioned(),
        nccl_libraries: Fact::unmentioned(),
    }
}

/// Version in the name of the file that libibverbs was loaded from: `libibverbs.so.1.14.50.0`.
fn verbs_library(maps: &str) -> Option<Text> {
    let file = maps.lines().find_map(|line| {
        let path = line.split_ascii_whitespace().nth(5)?;
        path.rsplit('/').next()?.strip_prefix("libibverbs.so.")
    });
    file.map(Text::from)
}

fn first_words(table: &str) -> Vec<Text> {
    let words = table
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().next());
    let mut words: Vec<Text> = words.map(Text::from).collect();
    words.sort();
    words.truncate(crate::facts::MOST_ROWS);
    words
}

/// Where netplan's files are.
const NETPLAN: &str = "/etc/netplan";

/// The files of netplan that name one of these ports. Nothing in them is taken but that.
pub(super) fn netplan_files(ports: &[NetdevName]) -> Fact<Vec<NetplanFile>> {
    let names: Vec<Text> = match sysfs::names(NETPLAN) {
        Ok(names) => names,
        // A host that does not use netplan has no such folder.
        Err(error) if error.is_absent() => return Fact::Known(Vec::new()),
        Err(error) => return Fact::because(error),
    };
    let mut files = Vec::new();
    for name in names.iter().filter(|name| name.as_str().ends_with(".yaml")) {
        let text = match sysfs::table(std::path::Path::new(NETPLAN).join(name.as_str())) {
            Ok(text) => text,
            Err(error) => return Fact::because(error),
        };
        let netdevs = named(&text, ports);
        if !netdevs.is_empty() {
            files.push(NetplanFile {
                file: name.clone(),
                netdevs,
            });
        }
    }
    Fact::Known(files)
}

/// The ports whose names stand in a text as words of their own, outside comments.
fn named(text: &str, ports: &[NetdevName]) -> Vec<NetdevName> {
    let mut words = std::collections::BTreeSet::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let parts = line.split(|c: char| !(c.is_ascii_alphanumeric() || "_.-".contains(c)));
        words.extend(parts);
    }
    let is_named = |port: &&NetdevName| words.contains(port.as_str());
    ports.iter().filter(is_named).cloned().collect()
}

/// The processes that have queue pairs on these ports.
pub(super) fn rdma_processes(ports: &[crate::facts::PortFacts]) -> Fact<Vec<RdmaProcess>> {
    let mut owners = std::collections::BTreeMap::new();
    for port in ports {
        match &port.details.queue_pairs {
            Fact::Known(all) => {
                owners.extend(
                    all.iter()
                        .filter_map(|pair| Some((pair.pid?, pair.owner.clone()))),
                );
            }
            Fact::NotObserved(why) => return Fact::NotObserved(why.clone()),
        }
    }
    let own = std::process::id();
    let rows = owners
        .into_iter()
        .filter(|(pid, _)| *pid != own)
        .map(|(pid, owner)| RdmaProcess {
            pid,
            owner,
            memory_lock_limit: Process(pid).memory_lock_limit().into(),
            ipc_lock: Process(pid).may_lock_memory().into(),
        });
    Fact::Known(rows.take(crate::facts::MOST_ROWS).collect())
}

/// A setting of one device, or of `all`.
pub(super) fn device_sysctl(device: &str, setting: &str) -> Fact<u32> {
    sysfs::value(sysfs::below("/proc/sys/net/ipv4/conf", &[device, setting])).into()
}

fn from_table<T>(path: &str, read: impl FnOnce(&str) -> Option<T>) -> Fact<T> {
    match sysfs::table(path) {
        Ok(table) => read(&table)
            .ok_or_else(|| format!("{path}: does not have it"))
            .into(),
        Err(error) => Fact::because(error),
    }
}

fn boot_time(stat: &str) -> Option<u64> {
    stat.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

fn word_of_command_line(line: &str, start: &str) -> Option<Text> {
    line.split_ascii_whitespace()
        .find(|word| word.starts_with(start))
        .map(Text::from)
}

fn memory(meminfo: &str) -> Option<Memory> {
    let kb = |name: &str| -> Option<u64> {
        let line = meminfo
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    Some(Memory {
        total_kb: kb("MemTotal")?,
        available_kb: kb("MemAvailable")?,
        cma_total_kb: kb("CmaTotal"),
        cma_free_kb: kb("CmaFree"),
    })
}

/// `/proc/net/snmp` has two lines for each protocol: names, then values in the same order.
/// A counter of `/proc/net/snmp` (proc(5)): a line of names, then one of values.
pub(crate) fn snmp(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = table
        .lines()
        .filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
    let (names, values) = (lines.next()?, lines.next()?);
    let position = names.split_ascii_whitespace().position(|n| n == name)?;
    values.split_ascii_whitespace().nth(position)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_of_snmp_is_found_by_its_name() {
        let table = "Ip: Forwarding DefaultTTL InReceives ForwDatagrams\nIp: 1 64 100 7\nIcmp: InMsgs\nIcmp: 3\n";
        assert_eq!(snmp(table, "Ip", "ForwDatagrams"), Some(7));
        assert_eq!(snmp(table, "Ip", "Other"), None);
        assert_eq!(snmp("Ip: A B\nIp: 1\n", "Ip", "B"), None);
        assert_eq!(snmp("", "Ip", "B"), None);
    }

    #[test]
    fn cma_of_a_kernel_without_it_is_none_not_zero() {
        let with = memory(
            "MemTotal: 100 kB\nMemAvailable: 50 kB\nCmaTotal:       0 kB\nCmaFree:   940604 kB\n",
        )
        .unwrap();
        assert_eq!(
            (with.cma_total_kb, with.cma_free_kb),
            (Some(0), Some(940_604))
        );
        let without = memory("MemTotal: 100 kB\nMemAvailable: 50 kB\n").unwrap();
        assert_eq!((without.cma_total_kb, without.cma_free_kb), (None, None));
        assert_eq!(memory("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_version_of_rdma_core_is_in_the_name_of_the_library() {
        let maps = "7f00-7f01 r--p 00000000 08:01 12 /usr/lib/libc.so.6\n7f02-7f03 r-xp 00001000 08:01 77  /usr/lib/x/libibverbs.so.1.14.50.0\n7f04-7f05 rw-p 00000000 00:00 0\n";
        assert_eq!(verbs_library(maps), Some("1.14.50.0".into()));
        assert_eq!(verbs_library("7f04-7f05 rw-p 00000000 00:00 0\n"), None);
    }

    #[test]
    fn a_netplan_file_names_a_port_by_a_word_of_its_own() {
        let ports: Vec<NetdevName> = ["enp1s0f0np0", "enp1s0f1np1", "enp1s0f1"]
            .iter()
            .map(|name| name.parse().unwrap())
            .collect();
        let text = "network:\n  ethernets:\n    enp1s0f0np0: # not enp1s0f1np1\n      mtu: 9000\n";
        assert_eq!(named(text, &ports), ports[..1]);
        let text = "match: {name: \"enp1s0f1np1\"}";
        assert_eq!(named(text, &ports), ports[1..2]);
    }

    #[test]
    fn boot_time_and_command_line_words_are_found() {
        assert_eq!(
            boot_time("cpu 1 2\nbtime 1764000000\nprocesses 1\n"),
            Some(1_764_000_000)
        );
        assert_eq!(
            word_of_command_line("quiet kho=off ro", "kho="),
            Some("kho=off".into())
        );
        assert_eq!(word_of_command_line("quiet ro", "kho="), None);
    }
}
