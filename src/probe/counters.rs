//! The counters of this node that tell which way packets took, and which were lost.

use super::protocol::Counts;
use crate::collect::node::snmp;
use crate::facts::Side;
use crate::kernel::route::Rtnetlink;
use crate::kernel::statistics::statistics;
use crate::kernel::sysfs;
use crate::names::{NetdevName, RdmaName};

/// Of `/sys/class/infiniband/DEVICE/ports/1/hw_counters` (the kernel's drivers/infiniband/hw/mlx5/counters.c and
/// drivers/infiniband/sw/rxe/rxe_hw_counters.c): packets that were lost, came out of turn or had to be sent again.
const ERRORS: &[&str] = &[
    "local_ack_timeout_err",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "rx_icrc_encapsulated",
    "completer_retry_err",
    "out_of_seq_request",
    "retry_exceeded_err",
];

/// Of the driver's statistics of a port (drivers/net/ethernet/mellanox/mlx5/core/en_stats.c): packets for which a
/// receive queue had no room, hairpin queues among them, and those for which the port had none.
const DROPS: &[&str] = &["rx_out_of_buffer", "rx_discards_phy"];

/// Reads them, for these rules at ingress (port and preference), these devices and these ports.
pub(super) fn count(
    rules: &[(NetdevName, u16)],
    devices: &[RdmaName],
    ports: &[NetdevName],
) -> Counts {
    Counts {
        forwarded: sysfs::table("/proc/net/snmp")
            .ok()
            .and_then(|table| snmp(&table, "Ip", "ForwDatagrams")),
        rules: in_hardware(rules),
        errors: devices.iter().flat_map(errors).collect(),
        drops: ports.iter().flat_map(drops).collect(),
    }
}

/// Packets that each rule has taken in hardware.
fn in_hardware(rules: &[(NetdevName, u16)]) -> Vec<Option<u64>> {
    let unknown = || vec![None; rules.len()];
    if rules.is_empty() {
        return Vec::new();
    }
    let Ok(mut route) = Rtnetlink::open() else {
        return unknown();
    };
    let Ok(links) = route.links() else {
        return unknown();
    };
    let links = links.rows;
    rules
        .iter()
        .map(|(port, pref)| {
            let link = links.iter().find(|link| link.name == *port)?;
            let filters = route
                .filters_at(link.index, Side::Ingress, *pref, &links)
                .ok()?
                .rows;
            let flower = filters.iter().find_map(|filter| filter.flower.as_ref())?;
            // The last action is the one that sends the packet on.
            flower.actions.last()?.hw_packets
        })
        .collect()
}

fn errors(device: &RdmaName) -> Vec<(RdmaName, String, u64)> {
    ERRORS
        .iter()
        .filter_map(|name| {
            let parts = [device.as_str(), "ports", "1", "hw_counters", name];
            let value = sysfs::value(sysfs::below("/sys/class/infiniband", &parts)).ok()?;
            Some((device.clone(), (*name).to_owned(), value))
        })
        .collect()
}

fn drops(port: &NetdevName) -> Vec<(NetdevName, String, u64)> {
    let all = statistics(port).unwrap_or_default().into_iter();
    all.filter(|(name, _)| DROPS.contains(&name.as_str()))
        .map(|(name, value)| (port.clone(), name, value))
        .collect()
}
