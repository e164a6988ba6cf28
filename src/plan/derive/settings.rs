//! The settings of a node that refuse it, and the hairpin queue size that it really has.

use std::collections::BTreeSet;

use super::Located;
use crate::facts::{Applied, Fact, Inventory};
use crate::finding::Finding;
use crate::plan::ends::list;
use crate::plan::mesh;

/// The settings of one port that refuse a node.
pub(super) fn check_port(port: &Located, findings: &mut Vec<Finding>) {
    let facts = port.facts;
    let mut problem = |code, found: String, wanted: &str| {
        findings.push(
            Finding::problem(code, found, wanted)
                .on(port.host)
                .at(&facts.netdev),
        );
    };
    if facts.state != "up" {
        problem(
            "port-link",
            format!(
                "link {}",
                if facts.state.is_empty() {
                    "state unknown"
                } else {
                    &facts.state
                }
            ),
            "up",
        );
    }
    if facts.mtu != mesh::ETHERNET_MTU {
        problem("port-mtu", format!("MTU {}", facts.mtu), "9000");
    }
    match &facts.rdma {
        Fact::Known(Some(_)) => {}
        Fact::Known(None) => problem("port-rdma", "no RDMA device".into(), "one"),
        Fact::NotObserved(why) => problem(
            "port-rdma",
            format!("RDMA device not observed: {why}"),
            "one",
        ),
    }
    match &facts.tc_offload {
        Fact::Known(true) => {}
        Fact::Known(false) => problem("port-tc-offload", "hw-tc-offload off".into(), "on"),
        Fact::NotObserved(why) => problem(
            "port-tc-offload",
            format!("hw-tc-offload not observed: {why}"),
            "on",
        ),
    }
    match &facts.flow_steering_mode {
        Fact::Known(None) => {}
        Fact::Known(Some(mode)) if mode == mesh::STEERING_MODE => {}
        Fact::Known(Some(mode)) => problem(
            "port-steering",
            format!("flow_steering_mode {mode}"),
            mesh::STEERING_MODE,
        ),
        Fact::NotObserved(why) => problem(
            "port-steering",
            format!("flow_steering_mode not observed: {why}"),
            mesh::STEERING_MODE,
        ),
    }
    // Reading the next three needs root or libibverbs: unknown is left to `verify`.
    let eswitch_mode = facts.eswitch_mode.known().and_then(Option::as_ref);
    if let Some(mode) = eswitch_mode.filter(|mode| *mode != "legacy") {
        problem("port-eswitch", format!("eswitch mode {mode}"), "legacy");
    }
    if let Some(state) = facts.rdma_state.known().filter(|state| *state != "ACTIVE") {
        problem("port-rdma-state", format!("RDMA port {state}"), "ACTIVE");
    }
    if let Some(mtu) = facts
        .rdma_active_mtu
        .known()
        .filter(|mtu| **mtu != mesh::ROCE_MTU)
    {
        problem("port-rdma-mtu", format!("active RDMA MTU {mtu}"), "4096");
    }
}

/// Management must not live on a fabric port: a re-initialisation takes that port away, and the
/// topology document has no place for it.
pub(super) fn check_management(inventories: &[Inventory], findings: &mut Vec<Finding>) {
    for inventory in inventories {
        let Some(name) = inventory.management_netdev.known().and_then(Option::as_ref) else {
            continue;
        };
        if inventory.ports.iter().any(|port| port.netdev == *name) {
            findings.push(
                Finding::problem(
                    "management-on-fabric",
                    "the default route goes out of a fabric port",
                    "another network device",
                )
                .on(&inventory.host)
                .at(name),
            );
        }
    }
}

/// The smallest applied hairpin queue size; what is not known to be applied counts as the
/// driver's default.
pub(super) fn smallest_queue(ports: &[Located], findings: &mut Vec<Finding>) -> u32 {
    let mut smallest: Option<u32> = None;
    let mut unsaid: Vec<String> = Vec::new();
    let default = mesh::DEFAULT_HAIRPIN_QUEUE;
    for port in ports {
        let facts = port.facts;
        let mut warn = |code, found: String, wanted: &str| {
            findings.push(
                Finding::warning(code, found, wanted)
                    .on(port.host)
                    .at(&facts.netdev),
            );
        };
        let size = match (&facts.hairpin_queue_size, facts.hairpin_queue_applied) {
            (Fact::Known(Some(size)), applied @ (Applied::Applied | Applied::Unsaid)) => {
                if !(default..=mesh::WANTED_HAIRPIN_QUEUE).contains(size) || !size.is_power_of_two()
                {
                    warn(
                        "hairpin-queue-odd",
                        format!("hairpin_queue_size {size}"),
                        "a power of two from 1024 to 8192",
                    );
                }
                if applied == Applied::Unsaid {
                    unsaid.push(format!("{}={size}", port.label()));
                }
                *size
            }
            (Fact::Known(Some(size)), Applied::Pending) => {
                warn(
                    "hairpin-queue-pending",
                    format!(
                        "hairpin_queue_size {size} is set but not loaded; {default} counts for the cap"
                    ),
                    "it applied (driver re-initialisation)",
                );
                default
            }
            (Fact::Known(Some(size)), Applied::Unknown) => {
                warn(
                    "hairpin-queue-unknown",
                    format!(
                        "hairpin_queue_size {size} may or may not be loaded; {default} counts for the cap"
                    ),
                    "a size known to be applied",
                );
                default
            }
            (Fact::Known(None), _) => {
                warn(
                    "hairpin-queue-unknown",
                    format!("the driver shows no hairpin_queue_size; {default} counts for the cap"),
                    "a size known to be applied",
                );
                default
            }
            (Fact::NotObserved(why), _) => {
                warn(
                    "hairpin-queue-unknown",
                    format!("hairpin_queue_size not observed: {why}; {default} counts for the cap"),
                    "a size known to be applied",
                );
                default
            }
        };
        smallest = Some(smallest.map_or(size, |s| s.min(size)));
        let wanted = mesh::QUALIFIED_HAIRPIN_NUM_QUEUES;
        match &facts.hairpin_num_queues {
            Fact::Known(Some(n)) if *n == wanted => {}
            Fact::Known(Some(n)) => {
                warn("hairpin-num-queues", format!("hairpin_num_queues {n}"), "4")
            }
            Fact::Known(None) => warn(
                "hairpin-num-queues",
                "the driver shows no hairpin_num_queues".into(),
                "4",
            ),
            Fact::NotObserved(why) => warn(
                "hairpin-num-queues",
                format!("hairpin_num_queues not observed: {why}"),
                "4",
            ),
        }
    }
    if !unsaid.is_empty() {
        let sizes: BTreeSet<&str> = unsaid.iter().filter_map(|u| u.rsplit('=').next()).collect();
        findings.push(
            Finding::warning(
                "hairpin-queue-unsaid",
                format!(
                    "hairpin_queue_size {} is taken as applied on {} ports whose inventory does not say so",
                    list(sizes),
                    unsaid.len()
                ),
                "an inventory by hairpin-mesh",
            )
            .advise("devlink shows the value last set, loaded or not"),
        );
    }
    smallest.unwrap_or(default)
}
