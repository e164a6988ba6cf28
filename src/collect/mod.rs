//! This host's inventory: every fact of [`crate::facts`], asked of the kernel and of libibverbs.
//!
//! | file | what it is |
//! |---|---|
//! | `mod.rs` | [`collect`]: what is asked in which order, and the fabric functions found |
//! | `port.rs` | the facts of one fabric port |
//! | `node.rs` | the facts of the node |
//! | `marker.rs` | the processes that hold RDMA-TX rules |
//! | `nccl.rs` | NCCL libraries: marker string and SHA-256 |
//! | `traffic.rs` | the counters of its functions, again and again |
//! | `record.rs` | this program's record that a hairpin queue size was set |
//!
//! A fact that cannot be read is "not observed" with the reason, and never fails the inventory.
//! Nothing is changed, no process is started, and root is not needed: without it a few facts
//! (the eswitch mode, our own record) are not observed.

mod marker;
mod nccl;
pub(crate) mod node;
pub(crate) mod port;
pub mod record;
pub mod traffic;

use std::fmt::Display;

use crate::facts::{
    Fact, Inventory, LeftOut, MOST_ROWS, Neighbour, NodeFacts, Qdisc, Route, WireAnswer,
};
use crate::kernel::devlink::Devlink;
use crate::kernel::ethtool::Ethtool;
use crate::kernel::netlink;
use crate::kernel::packet;
use crate::kernel::rdma::{self, Nldev};
use crate::kernel::route::{Link, Listing, Rtnetlink};
use crate::kernel::sysfs;
use crate::names::{Cidr, HostName, NetdevName, RdmaName, Text};
use crate::verbs::{self, Verbs};

/// Kernel driver of the fabric's NIC (ConnectX-4 and newer). The management NIC of a DGX Spark has
/// another one.
const FABRIC_DRIVER: &str = "mlx5_core";

/// Reasons of one list that are written out; the others are counted.
const MOST_REASONS: usize = 16;

/// `RT_TABLE_MAIN` (`linux/rtnetlink.h`).
const TABLE_MAIN: u32 = 254;

/// What to collect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// What the inventory calls this host; its own name when none is given.
    pub host: Option<HostName>,
    /// RDMA devices whose ports are described, in this order; when empty, those of the fabric's NIC
    /// by rising PCI address.
    pub devices: Vec<RdmaName>,
    /// Addresses to ask for by ARP on every port; none to ask nobody.
    pub wire: Vec<std::net::Ipv4Addr>,
    /// NCCL libraries to look into: files, or folders of `libnccl.so.2.30.7` or `libnccl.so.2`.
    pub nccl_libraries: Vec<std::path::PathBuf>,
}

/// Why there is no inventory at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host has no name that an inventory can carry.
    #[error("this host's own name cannot be used ({0}); give one")]
    HostName(String),
}

/// The facts of this host, in the network namespace of the calling thread.
pub fn collect(options: &Options) -> Result<Inventory, Error> {
    let host = match &options.host {
        Some(host) => host.clone(),
        None => own_name()?,
    };
    let mut left_out = LeftOuts::default();
    let mut sources = Sources::open();
    let tables = Tables::read(&mut sources, &mut left_out);

    let routes = tables.routes.clone();
    let holders = |device: &RdmaName| {
        let devices = tables.rdma_devices.as_ref();
        devices.and_then(|all| match all.iter().find(|known| known.name == *device) {
            Some(known) => ask(&mut sources.nldev, "who has the device open", |nldev| {
                nldev.openers(known.index)
            }),
            // It went, and whoever had it open has it no more.
            None => Fact::Known(Vec::new()),
        })
    };
    let markers = marker::all(holders);
    let mut node = NodeFacts {
        routes,
        markers,
        nccl_libraries: nccl::libraries(&options.nccl_libraries),
        ..node::facts()
    };
    let mut ports: Vec<crate::facts::PortFacts> = Vec::new();
    for device in devices(&options.devices, &mut sources, &mut left_out) {
        for facts in port::facts(&device, &node, &tables, &mut sources, &mut left_out) {
            if ports.iter().any(|port| port.netdev == facts.netdev) {
                left_out.add(
                    &device.name,
                    format!("is a second RDMA device on {}", facts.netdev),
                );
            } else if ports.len() == crate::facts::MOST_PORTS {
                left_out.add(
                    &device.name,
                    format!(
                        "is beyond the {} ports of an inventory",
                        crate::facts::MOST_PORTS
                    ),
                );
            } else {
                ports.push(facts);
            }
        }
    }
    if !options.wire.is_empty() {
        ask_the_wire(&options.wire, &mut ports);
    }
    let names: Vec<NetdevName> = ports.iter().map(|port| port.netdev.clone()).collect();
    node.netplan_files = node::netplan_files(&names);
    node.rdma_processes = node::rdma_processes(&ports);
    Ok(Inventory {
        host,
        ports,
        management_netdev: node.routes.as_ref().map(|routes| management_netdev(routes)),
        node,
        left_out: left_out.0,
    })
}

/// How long answers of the wire are waited for.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

fn ask_the_wire(addresses: &[std::net::Ipv4Addr], ports: &mut [crate::facts::PortFacts]) {
    let asked: Vec<(u32, crate::names::Mac)> = ports
        .iter()
        .map(|port| (port.details.ifindex.known().copied().unwrap_or(0), port.mac))
        .collect();
    let answers = packet::ask(&asked, addresses, PATIENCE);
    for (port, answers) in ports.iter_mut().zip(answers) {
        let row = |(address, mac): (std::net::Ipv4Addr, crate::names::Mac)| WireAnswer {
            address: address.into(),
            mac,
        };
        port.details.wire = Fact::from(answers).map(|all| all.into_iter().map(row).collect());
    }
}

/// The name that `uname -n` gives: whole, or up to its first dot when it is not one as a whole.
fn own_name() -> Result<HostName, Error> {
    let name =
        sysfs::text("/proc/sys/kernel/hostname").map_err(|e| Error::HostName(e.to_string()))?;
    let short = name.as_str().split('.').next().unwrap_or_default();
    name.as_str()
        .parse()
        .or_else(|_| short.parse())
        .map_err(|e| Error::HostName(format!("{e}")))
}

/// The device of the default route: of several, the one with the lowest metric.
fn management_netdev(routes: &[Route]) -> Option<NetdevName> {
    let default = Cidr {
        address: std::net::Ipv4Addr::UNSPECIFIED,
        prefix: 0,
    };
    routes
        .iter()
        .filter(|route| {
            route.table == TABLE_MAIN
                && route.destination == default
                && route.kind.as_str() == "unicast"
        })
        .filter(|route| route.dev.is_some())
        .min_by_key(|route| route.metric)
        .and_then(|route| route.dev.clone())
}

/// What the inventory should have and does not.
#[derive(Default)]
struct LeftOuts(Vec<LeftOut>);

impl LeftOuts {
    fn add(&mut self, what: impl Display, why: impl Display) {
        let text = |value: &dyn Display| Text::from(value.to_string().as_str());
        // A bound like that of every list; a document with this many holes says enough.
        if self.0.len() < MOST_ROWS {
            self.0.push(LeftOut {
                what: text(&what),
                why: text(&why),
            });
        }
    }

    /// The rows of a listing, no more than a document takes, with a word about each hole in it.
    fn rows<T>(&mut self, what: &str, listing: Listing<T>) -> Vec<T> {
        for why in listing.left_out.iter().take(MOST_REASONS) {
            self.add(what, why);
        }
        if listing.left_out.len() > MOST_REASONS {
            self.add(
                what,
                format!(
                    "{} more could not be read",
                    listing.left_out.len() - MOST_REASONS
                ),
            );
        }
        self.cut(what, listing.rows)
    }

    /// No more rows than a document takes, with a word when there were more.
    fn cut<T>(&mut self, what: impl Display, mut rows: Vec<T>) -> Vec<T> {
        if rows.len() > MOST_ROWS {
            self.add(
                what,
                format!("the first {MOST_ROWS} of {} are shown", rows.len()),
            );
            rows.truncate(MOST_ROWS);
        }
        rows
    }
}

/// Whom to ask. A source that cannot be opened gives its reason to every fact that it would have
/// told.
struct Sources {
    route: Result<Rtnetlink, netlink::Error>,
    ethtool: Result<Ethtool, netlink::Error>,
    devlink: Result<Devlink, netlink::Error>,
    nldev: Result<Nldev, netlink::Error>,
    verbs: Result<Verbs, verbs::Error>,
}

impl Sources {
    fn open() -> Sources {
        Sources {
            route: Rtnetlink::open(),
            ethtool: Ethtool::open(),
            devlink: Devlink::open(),
            nldev: Nldev::open(),
            verbs: Verbs::load(),
        }
    }
}

/// Asks a source. `what` names what is asked, for the reason.
fn ask<S, T, E: Display, F: Display>(
    source: &mut Result<S, E>,
    what: &str,
    question: impl FnOnce(&mut S) -> Result<T, F>,
) -> Fact<T> {
    match source {
        Ok(source) => question(source).map_err(|e| format!("{what}: {e}")).into(),
        Err(error) => Fact::because(format!("{what}: {error}")),
    }
}

/// The tables that the kernel gives as a whole, read once.
struct Tables {
    links: Fact<Vec<Link>>,
    addresses: Fact<Vec<(u32, Cidr)>>,
    routes: Fact<Vec<Route>>,
    neighbours: Fact<Vec<(u32, Neighbour)>>,
    qdiscs: Fact<Vec<(u32, Qdisc)>>,
    rdma_devices: Fact<Vec<rdma::Device>>,
}

impl Tables {
    fn read(sources: &mut Sources, left_out: &mut LeftOuts) -> Tables {
        let links = ask(&mut sources.route, "links", Rtnetlink::links)
            .map(|list| left_out.rows("links", list));
        let names = links.known().map_or(&[][..], Vec::as_slice);
        Tables {
            addresses: ask(&mut sources.route, "addresses", Rtnetlink::addresses)
                .map(|list| left_out.rows("addresses", list)),
            routes: ask(&mut sources.route, "routes", |s| s.routes(names))
                .map(|list| left_out.rows("routes", list)),
            neighbours: ask(&mut sources.route, "neighbours", Rtnetlink::neighbours)
                .map(|list| left_out.rows("neighbours", list)),
            qdiscs: ask(&mut sources.route, "qdiscs", Rtnetlink::qdiscs)
                .map(|list| left_out.rows("qdiscs", list)),
            rdma_devices: ask(&mut sources.nldev, "RDMA devices", Nldev::devices),
            links,
        }
    }
}

/// An RDMA device whose ports are described.
struct FabricDevice {
    name: RdmaName,
    /// Bus and name of the function that it belongs to; none for a device of software.
    function: Option<(Text, Text)>,
}

impl FabricDevice {
    fn of(name: &RdmaName) -> FabricDevice {
        let at = |file: &str| sysfs::below("/sys/class/infiniband", &[name.as_str(), file]);
        let function = sysfs::link_name(at("device/subsystem"))
            .ok()
            .zip(sysfs::link_name(at("device")).ok());
        FabricDevice {
            name: name.clone(),
            function,
        }
    }

    /// A file below the device's own directory in sysfs.
    fn sysfs(&self, parts: &[&str]) -> std::path::PathBuf {
        sysfs::below(
            "/sys/class/infiniband",
            &[&[self.name.as_str()], parts].concat(),
        )
    }
}

/// The devices that were asked for, or those of the fabric's NIC by rising PCI address.
fn devices(
    wanted: &[RdmaName],
    sources: &mut Sources,
    left_out: &mut LeftOuts,
) -> Vec<FabricDevice> {
    let present: Vec<RdmaName> = match sysfs::names("/sys/class/infiniband") {
        Ok(names) => names,
        Err(error) => {
            // Without RDMA modules there is no such directory, and RDMA netlink says so too.
            let also = sources
                .nldev
                .as_ref()
                .err()
                .map(|e| format!("; {e}"))
                .unwrap_or_default();
            left_out.add("RDMA devices", format!("{error}{also}"));
            Vec::new()
        }
    };
    if !wanted.is_empty() {
        let mut devices: Vec<FabricDevice> = Vec::new();
        for name in wanted {
            if !present.contains(name) {
                left_out.add(name, "there is no such RDMA device");
            } else if !devices.iter().any(|device| device.name == *name) {
                devices.push(FabricDevice::of(name));
            }
        }
        return devices;
    }
    let mut devices: Vec<FabricDevice> = Vec::new();
    for name in &present {
        let device = FabricDevice::of(name);
        match sysfs::link_name(device.sysfs(&["device", "driver"])) {
            Ok(driver) if driver.as_str() == FABRIC_DRIVER => {
                if sysfs::exists(device.sysfs(&["device", "physfn"])) {
                    left_out.add(name, "is a virtual function");
                } else {
                    devices.push(device);
                }
            }
            // Another driver: not the fabric's NIC, nothing is missing.
            Ok(_) => {}
            Err(error) if error.is_absent() => {}
            Err(error) => left_out.add(name, error),
        }
    }
    if devices.is_empty() {
        left_out.add(
            "fabric functions",
            format!("there is no RDMA device with driver {FABRIC_DRIVER}"),
        );
    }
    devices.sort_by_key(|device| {
        let pci = device
            .function
            .as_ref()
            .and_then(|(_, name)| name.as_str().parse::<crate::names::PciAddress>().ok());
        (pci.is_none(), pci, device.name.clone())
    });
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str, table: u32, metric: u32, dev: Option<&str>) -> Route {
        Route {
            destination: destination.parse().unwrap(),
            table,
            tos: 0,
            kind: "unicast".into(),
            protocol: 4,
            scope: "global".into(),
            gateway: None,
            dev: dev.map(|dev| dev.parse().unwrap()),
            src: None,
            metric,
            multipath: false,
            flags: Vec::new(),
            other: None,
        }
    }

    #[test]
    fn management_is_the_default_route_of_the_main_table_with_the_lowest_metric() {
        let routes = [
            route("0.0.0.0/0", 254, 600, Some("wlan0")),
            route("0.0.0.0/0", 254, 100, Some("enP7s7")),
            route("0.0.0.0/0", 100, 1, Some("vpn0")),
            route("10.0.0.0/8", 254, 0, Some("enp1s0f0np0")),
            route("0.0.0.0/0", 254, 0, None),
        ];
        assert_eq!(management_netdev(&routes).unwrap().as_str(), "enP7s7");
        assert_eq!(management_netdev(&routes[2..]), None);
    }

    #[test]
    fn a_list_that_is_cut_says_so() {
        let mut left_out = LeftOuts::default();
        let listing = Listing {
            rows: vec![0u8; MOST_ROWS + 1],
            left_out: vec!["odd".into(); MOST_REASONS + 2],
        };
        assert_eq!(left_out.rows("routes", listing).len(), MOST_ROWS);
        let said: Vec<&str> = left_out.0.iter().map(|l| l.why.as_str()).collect();
        assert_eq!(said.len(), MOST_REASONS + 2);
        assert_eq!(said[MOST_REASONS], "2 more could not be read");
        assert_eq!(said[MOST_REASONS + 1], "the first 4096 of 4097 are shown");
    }
}
