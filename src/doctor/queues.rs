//! The hairpin queues of the ring as a whole: the smallest one decides.

use std::collections::BTreeMap;

use crate::doctor::chain::Seen;
use crate::doctor::fabric::Fabric;
use crate::facts::{Applied, Fact, HairpinParameter, PortFacts};
use crate::finding::Finding;
use crate::plan::mesh::{WANTED_HAIRPIN_QUEUE, size_cap};
use crate::plan::{Plan, is_queue_size};

/// Whether the size is loaded, where the inventory says so, or the count of re-initialisations does.
fn said(facts: &PortFacts, size: u32) -> Applied {
    match (facts.hairpin_queue_applied, &facts.details.reload_count) {
        (Applied::Unsaid, Fact::Known(0)) => HairpinParameter::QueueSize.state(size, 0, None),
        (state, _) => state,
    }
}

pub(super) fn look(
    fabric: &Fabric,
    plan: Option<&Plan>,
    seen: &mut Vec<Seen>,
    notes: &mut Vec<Finding>,
) {
    let mut sizes: BTreeMap<usize, (u32, Applied)> = BTreeMap::new();
    for port in 0..fabric.ports.len() {
        let facts = fabric.facts(port);
        if let Fact::Known(Some(size)) = facts.hairpin_queue_size {
            let state = said(facts, size);
            if facts.hairpin_queue_applied == Applied::Unsaid && state == Applied::Pending {
                let found = format!(
                    "hairpin_queue_size {size} is set, and the driver was never re-initialised"
                );
                let finding = Finding::warning(
                    "hairpin-queue-pending",
                    found,
                    "it applied (driver re-initialisation)",
                );
                seen.push(Seen::port(fabric, port, finding));
            }
            sizes.insert(port, (size, state));
        }
        if facts.details.hairpin_num_queues_state == Fact::Known(Applied::Pending) {
            let finding = Finding::warning(
                "hairpin-num-queues",
                "hairpin_num_queues is set but not loaded",
                "it applied (driver re-initialisation)",
            );
            seen.push(Seen::port(fabric, port, finding));
        }
    }
    let loaded = |applied: Applied| matches!(applied, Applied::Applied | Applied::Unsaid);
    let largest = sizes.values().map(|(size, _)| *size).max().unwrap_or(0);
    // Where no mesh is, nothing goes through these queues.
    let absent = super::mesh::is_absent(fabric);
    let mut small = 0;
    for (port, (size, applied)) in &sizes {
        // What is pending or unknown is told as that.
        if !loaded(*applied) || *size >= WANTED_HAIRPIN_QUEUE || !is_queue_size(*size) {
            continue;
        }
        let planned = plan.is_some_and(|plan| *size < plan.hairpin_queue_size);
        if (*applied == Applied::Unsaid || absent) && *size == largest && !planned {
            small += 1;
            continue;
        }
        let cap = size_cap(*size);
        let others = if *size < largest {
            ", and other ports have more"
        } else if planned {
            ", and the plan counts on more"
        } else {
            ""
        };
        let finding = Finding::warning(
            "hairpin-queue-size",
            format!(
                "hairpin_queue_size {size} is loaded: bursts above {cap} bytes overflow it{others}"
            ),
            WANTED_HAIRPIN_QUEUE.to_string(),
        );
        seen.push(Seen::port(fabric, *port, finding));
    }
    if small > 0 {
        notes.push(Finding::warning(
            "hairpin-queue-default",
            format!("hairpin_queue_size {largest} on {small} ports: messages above {} bytes overflow it", size_cap(largest)),
            format!("{WANTED_HAIRPIN_QUEUE} for larger ones"),
        ));
    }
}
