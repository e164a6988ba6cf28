//! The one door to the kernel and to systemd: netlink, sysfs, procfs, one ioctl, D-Bus. No child processes,
//! ever.
//!
//! | file | what it is |
//! |---|---|
//! | `netlink.rs` | the transport of all three families: socket, framing, extended acks |
//! | `attr.rs` | netlink attributes as bytes: reader and writer |
//! | `route.rs` | rtnetlink: links, addresses, routes, neighbours, qdiscs, filters, DCB |
//! | `filter.rs` | a tc filter from its message and back: flower keys, pedit, mirred, statistics |
//! | `change.rs` | every change that the mesh makes: routes, filters, clsact, neighbours |
//! | `refusal.rs` | what a refused change means, with the kernel's words |
//! | `monitor.rs` | waits until something changed: links, addresses, routes, rules, RDMA devices |
//! | `generic.rs` | generic netlink: family numbers and messages |
//! | `ethtool.rs` | the ethtool family: features |
//! | `statistics.rs` | the statistics that a driver keeps of its network device (`ethtool -S`) |
//! | `devlink.rs` | the devlink family: parameters, reload counters, eswitch |
//! | `rdma.rs` | RDMA netlink (nldev): devices, ports, queue pairs |
//! | `packet.rs` | ARP probes on the wire, and who answers |
//! | `sysfs.rs` | small bounded reads below `/sys` and `/proc` |
//! | `process.rs` | processes: command, start, control group |
//! | `dbus.rs` | D-Bus messages as bytes, and a connection |
//! | `systemd.rs` | the units of the markers: state, start, stop |
//!
//! Every decoder takes bytes and gives a value or an error; no bytes make it panic. What the kernel
//! gives leaves this module as a name, an address or a [`crate::facts::Text`].

pub mod attr;
pub mod change;
mod dbus;
pub mod devlink;
pub mod ethtool;
pub mod filter;
pub mod generic;
pub mod monitor;
pub mod netlink;
pub mod packet;
pub mod process;
pub mod rdma;
pub mod refusal;
pub mod route;
pub mod statistics;
pub mod sysfs;
pub mod systemd;

/// Messages that a real kernel sent (see `tests/captured/README.md`), one a line.
#[cfg(test)]
fn captured(text: &str) -> Vec<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.lines()
        .map(|line| line.as_bytes().chunks_exact(2).map(byte).collect())
        .collect()
}

/// Damaged forms of a message: cut at every byte, and every byte changed.
#[cfg(test)]
fn damaged(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let cut = (0..bytes.len()).map(|end| bytes[..end].to_vec());
    let changed = (0..bytes.len()).flat_map(move |at| {
        [0, 1, 3, 0x7f, 0xff].into_iter().map(move |value| {
            let mut bytes = bytes.to_vec();
            bytes[at] = value;
            bytes
        })
    });
    cut.chain(changed)
}
