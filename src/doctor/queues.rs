//! The hairpin queues of the ring as a whole: the smallest one decides.

use std::collections::BTreeMap;

use crate::doctor::chain::Seen;
use crate::doctor::fabric::Fabric;
use crate::facts::{Applied, Fact};
use crate::finding::Finding;
use crate::plan::is_queue_size;
use crate::plan::mesh::{WANTED_HAIRPIN_QUEUE, size_cap};

pub(super) fn look(fabric: &Fabric, seen: &mut Vec<Seen>, notes: &mut Vec<Finding>) {
    let mut sizes: BTreeMap<usize, (u32, Applied)> = BTreeMap::new();
    for port in 0..fabric.ports.len() {
        let facts = fabric.facts(port);
        if let Fact::Known(Some(size)) = facts.hairpin_queue_size {
            sizes.insert(port, (size, facts.hairpin_queue_applied));
        }
    }
    let loaded = |applied: Applied| matches!(applied, Applied::Applied | Applied::Unsaid);
    let largest = sizes.values().map(|(size, _)| *size).max().unwrap_or(0);
    let mut unsaid_small = 0;
    for (port, (size, applied)) in &sizes {
        // What is pending or unknown is told as that.
        if !loaded(*applied) || *size >= WANTED_HAIRPIN_QUEUE || !is_queue_size(*size) {
            continue;
        }
        if *applied == Applied::Unsaid && *size == largest {
            unsaid_small += 1;
            continue;
        }
        let cap = size_cap(*size);
        let others = if *size < largest {
            ", and other ports have more"
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
    if unsaid_small > 0 {
        notes.push(Finding::warning(
            "hairpin-queue-default",
            format!("hairpin_queue_size {largest} on {unsaid_small} ports: messages above {} bytes overflow it", size_cap(largest)),
            format!("{WANTED_HAIRPIN_QUEUE} for larger ones"),
        ));
    }
}
