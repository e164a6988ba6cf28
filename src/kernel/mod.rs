//! The one door to the kernel: netlink, sysfs, procfs. No child processes, ever.
//!
//! | file | what it is |
//! |---|---|
//! | `netlink.rs` | the transport of all three families: socket, framing, extended acks |
//! | `attr.rs` | netlink attributes as bytes: reader and writer |
//! | `route.rs` | rtnetlink: links, addresses, routes, neighbours, qdiscs, filters, DCB |
//! | `filter.rs` | a tc filter from its message: flower keys, pedit, mirred, statistics |
//! | `generic.rs` | generic netlink: family numbers and messages |
//! | `ethtool.rs` | the ethtool family: features |
//! | `devlink.rs` | the devlink family: parameters, reload counters, eswitch |
//! | `rdma.rs` | RDMA netlink (nldev): devices, ports, queue pairs |
//! | `sysfs.rs` | small bounded reads below `/sys` and `/proc` |
//! | `process.rs` | processes: command, start, control group |
//!
//! Every decoder takes bytes and gives a value or an error; no bytes make it panic. What the kernel
//! gives leaves this module as a name, an address or a [`crate::facts::Text`].

pub mod attr;
pub mod devlink;
pub mod ethtool;
pub mod filter;
pub mod generic;
pub mod netlink;
pub mod process;
pub mod rdma;
pub mod route;
pub mod sysfs;
