//! The settings of a host's ports without which nothing may be applied: who the host is, what waiting
//! can cure, and what it cannot.

use crate::facts::{Fact, GidEntry, ROCE_V2};
use crate::finding::Finding;
use crate::mesh::present::{LinkNow, Open, PortNow, Present};
use crate::names::{Cidr, Gid, HostName};
use crate::plan::mesh::STEERING_MODE;
use crate::plan::{HostPlan, Plan, PortRow};

/// A setting that is not as planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// What is, what is wanted.
    pub finding: Finding,
    /// Whether it may come right by itself: a link that comes up, an address that a network manager
    /// is about to give.
    pub waiting_helps: bool,
}

/// Whether the plan is this host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// Every port that is there has the planned MAC, and at least one is there.
    This {
        /// Planned ports that are not there (being re-initialised, say).
        missing: usize,
    },
    /// A port has another MAC: each with what is and what is wanted.
    Another(Vec<Finding>),
    /// None of the ports is there: another host, or one whose driver is not there yet.
    NoPort(Finding),
    /// It could not be read.
    NotObserved(String),
}

/// Compares the MACs of the plan's ports for this host with those that are there.
pub fn identity(host: &HostPlan, present: &Present) -> Identity {
    let mut strange = Vec::new();
    let (mut known, mut missing) = (0, 0);
    for row in &host.ports {
        let link = match present.port(&row.netdev).map(|port| &port.link) {
            Some(Fact::Known(link)) => link,
            Some(Fact::NotObserved(why)) => return Identity::NotObserved(why.clone()),
            None => return Identity::NotObserved(format!("{} was not looked at", row.netdev)),
        };
        match link {
            None => missing += 1,
            Some(LinkNow { mac: Some(mac), .. }) if *mac == row.mac => known += 1,
            Some(link) => strange.push(
                Finding::problem(
                    "plan-other-host",
                    link.mac
                        .map_or("no MAC".to_owned(), |mac| format!("MAC {mac}")),
                    format!("{} of {} in the plan", row.mac, host.host),
                )
                .at(&row.netdev),
            ),
        }
    }
    if strange.is_empty() && known == 0 {
        let names: Vec<&str> = host.ports.iter().map(|row| row.netdev.as_str()).collect();
        return Identity::NoPort(Finding::problem(
            "plan-other-host",
            "none of the planned ports is there",
            format!("{} of {}", names.join(", "), host.host),
        ));
    }
    if strange.is_empty() {
        Identity::This { missing }
    } else {
        Identity::Another(strange)
    }
}

/// Every setting of every planned port that is not as planned, port by port, causes first.
pub fn unmet(plan: &Plan, host: &HostPlan, present: &Present) -> Vec<Unmet> {
    let mut all = Vec::new();
    for row in &host.ports {
        match present.port(&row.netdev) {
            Some(port) => check_port(plan, row, port, &mut all),
            None => all.push(Unmet {
                finding: Finding::problem("port-link", "not looked at", "up").at(&row.netdev),
                waiting_helps: false,
            }),
        }
    }
    for unmet in &mut all {
        unmet.finding.host = Some(host.host.to_string());
    }
    all
}

fn check_port(plan: &Plan, row: &PortRow, port: &PortNow, all: &mut Vec<Unmet>) {
    let before = all.len();
    let mut push = |waiting_helps, code, found: String, wanted: String| {
        all.push(Unmet {
            finding: Finding::problem(code, found, wanted).at(&row.netdev),
            waiting_helps,
        });
    };
    let link = match &port.link {
        Fact::Known(Some(link)) => link,
        // Everything else of the port follows from this.
        Fact::Known(None) => {
            return push(
                true,
                "port-missing",
                "no such network device".into(),
                "it".into(),
            );
        }
        Fact::NotObserved(why) => {
            return push(
                false,
                "port-missing",
                format!("network device not observed: {why}"),
                "it".into(),
            );
        }
    };
    if link.state.as_str() != "up" {
        push(
            true,
            "port-link",
            format!("link {}", link.state),
            "up".into(),
        );
    }
    match &port.addresses {
        Fact::Known(addresses) if has(addresses, row.ipv4) => {}
        Fact::Known(addresses) if addresses.is_empty() => push(
            true,
            "port-address",
            "no IPv4 address".into(),
            row.ipv4.to_string(),
        ),
        Fact::Known(addresses) => push(
            false,
            "port-address",
            format!("IPv4 address {}", words(addresses)),
            row.ipv4.to_string(),
        ),
        Fact::NotObserved(why) => push(
            false,
            "port-address",
            format!("IPv4 addresses not observed: {why}"),
            row.ipv4.to_string(),
        ),
    }
    match &port.rdma_state {
        Fact::Known(Some(state)) if state.as_str() == "ACTIVE" => {}
        Fact::Known(Some(state)) => push(
            true,
            "port-rdma-state",
            format!("RDMA port {state} of {}", row.rdma),
            "ACTIVE".into(),
        ),
        Fact::Known(None) => push(
            true,
            "port-rdma",
            format!("no RDMA device {}", row.rdma),
            "it".into(),
        ),
        Fact::NotObserved(why) => push(
            false,
            "port-rdma-state",
            format!("RDMA port of {} not observed: {why}", row.rdma),
            "ACTIVE".into(),
        ),
    }
    let wanted_gid = Gid::ipv4_mapped(row.ipv4.address);
    let gid_wanted = format!("{ROCE_V2} {wanted_gid} at index {}", plan.gid_index);
    match &port.gid {
        // Without the device there is no table to look into.
        _ if matches!(port.rdma_state, Fact::Known(None)) => {}
        Fact::Known(Some(entry)) if is_the_gid(entry, wanted_gid, row) => {}
        Fact::Known(None) => push(
            true,
            "port-gid",
            format!("GID index {} of {} is empty", plan.gid_index, row.rdma),
            gid_wanted,
        ),
        Fact::Known(Some(entry)) => push(
            false,
            "port-gid",
            format!(
                "GID index {} of {} has {} {}{}",
                plan.gid_index,
                row.rdma,
                entry.kind,
                entry.gid,
                match &entry.netdev {
                    Some(netdev) => format!(" on {netdev}"),
                    None => " on no network device".into(),
                }
            ),
            gid_wanted,
        ),
        Fact::NotObserved(why) => push(
            false,
            "port-gid",
            format!(
                "GID index {} of {} not observed: {why}",
                plan.gid_index, row.rdma
            ),
            gid_wanted,
        ),
    }
    // MTU and GID may change for a moment while a port comes up (a network manager sets them with the address),
    // and at boot whoever sets offload and steering may come after the driver; on a port that is otherwise
    // ready they stay.
    let coming_up = all[before..].iter().any(|unmet| unmet.waiting_helps);
    if link.mtu != Some(plan.mtu) {
        all.push(Unmet {
            finding: Finding::problem(
                "port-mtu",
                link.mtu
                    .map_or("MTU unknown".into(), |mtu| format!("MTU {mtu}")),
                plan.mtu.to_string(),
            )
            .at(&row.netdev),
            waiting_helps: coming_up,
        });
    }
    for unmet in &mut all[before..] {
        if unmet.finding.code == "port-gid" && coming_up {
            unmet.waiting_helps = true;
        }
    }
    let mut push = |waiting_helps, code, found: String, wanted: &str, advice: &str| {
        all.push(Unmet {
            finding: Finding::problem(code, found, wanted)
                .at(&row.netdev)
                .advise(advice),
            waiting_helps,
        });
    };
    let offload_advice = format!("ethtool -K {} hw-tc-offload on", row.netdev);
    match &port.offload {
        Fact::Known(true) => {}
        Fact::Known(false) => push(
            coming_up,
            "port-tc-offload",
            "hw-tc-offload off".into(),
            "on",
            &offload_advice,
        ),
        Fact::NotObserved(why) => push(
            false,
            "port-tc-offload",
            format!("hw-tc-offload not observed: {why}"),
            "on",
            &offload_advice,
        ),
    }
    let steering_advice = match row.pci {
        Some(pci) => format!(
            "devlink dev param set pci/{pci} name flow_steering_mode value {STEERING_MODE} cmode runtime"
        ),
        None => format!("the devlink parameter flow_steering_mode of {}", row.netdev),
    };
    match &port.steering {
        Fact::Known(None) => {}
        Fact::Known(Some(mode)) if mode.as_str() == STEERING_MODE => {}
        Fact::Known(Some(mode)) => push(
            coming_up,
            "port-steering",
            format!("flow_steering_mode {mode}"),
            STEERING_MODE,
            &steering_advice,
        ),
        Fact::NotObserved(why) => push(
            false,
            "port-steering",
            format!("flow_steering_mode not observed: {why}"),
            STEERING_MODE,
            &steering_advice,
        ),
    }
}

/// A plan made from a topology document knows no prefix: its addresses are /32.
fn has(addresses: &[Cidr], planned: Cidr) -> bool {
    addresses.iter().any(|found| {
        found.address == planned.address && (found.prefix == planned.prefix || planned.prefix == 32)
    })
}

fn words(addresses: &[Cidr]) -> String {
    let words: Vec<String> = addresses.iter().map(Cidr::to_string).collect();
    words.join(", ")
}

fn is_the_gid(entry: &GidEntry, wanted: Gid, row: &PortRow) -> bool {
    entry.gid == wanted && entry.kind == ROCE_V2 && entry.netdev.as_ref() == Some(&row.netdev)
}

/// Somebody's queue pairs that a change would disturb, one finding for each process. `way_out` is the option
/// that goes on all the same.
pub fn owners(host: &HostName, open: &Fact<Vec<Open>>, way_out: &str) -> Vec<Finding> {
    let finding = |found: String| {
        Finding::problem("queue-pairs-open", found, format!("none, or {way_out}"))
            .on(host)
            .advise("stop what uses the fabric first")
    };
    let all = match open {
        Fact::Known(all) => all,
        Fact::NotObserved(why) => {
            return vec![finding(format!("open queue pairs not observed: {why}"))];
        }
    };
    let mut findings = Vec::new();
    for device in all {
        let mut seen: Vec<String> = Vec::new();
        for qp in &device.queue_pairs {
            let owner = match (&qp.owner, qp.pid) {
                (Fact::Known(name), Some(pid)) => format!("{name} (process {pid})"),
                (Fact::Known(name), None) => format!("the kernel's {name}"),
                (Fact::NotObserved(why), Some(pid)) => format!("process {pid} ({why})"),
                (Fact::NotObserved(why), None) => why.clone(),
            };
            if seen.contains(&owner) {
                continue;
            }
            let count = device
                .queue_pairs
                .iter()
                .filter(|other| (&other.owner, other.pid) == (&qp.owner, qp.pid))
                .count();
            findings.push(
                finding(format!(
                    "{count} open queue pair{} of {owner}",
                    if count == 1 { "" } else { "s" }
                ))
                .at(&device.device),
            );
            seen.push(owner);
        }
    }
    findings
}
