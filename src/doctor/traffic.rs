//! What counters say of functions that carry nothing, and of losses; queue pairs that failed.

use std::collections::BTreeSet;

use crate::doctor::chain::Seen;
use crate::doctor::fabric::Fabric;
use crate::facts::{Counters, Fact};
use crate::finding::Finding;
use crate::plan::ends::list;
use crate::plan::mesh::DOMAINS;

/// `port_xmit_data` counts words of four bytes (IBTA, PortCounters).
const WORD: u64 = 4;
/// Bytes of the busiest function of a host from which a silent one is worth a word.
const BUSY: u64 = 1 << 30;

/// Counters of an RDMA port that only rise when something is lost or sent again, or a queue overflows (the
/// kernel's drivers/infiniband/hw/mlx5/counters.c, and drivers/infiniband/sw/rxe/rxe_hw_counters.c).
pub(crate) const LOSSES: &[&str] = &[
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "duplicate_request",
    "rnr_nak_retry_err",
    "req_transport_retries_exceeded",
    "completer_retry_err",
    "out_of_seq_request",
    "retry_exceeded_err",
    "out_of_buffer",
    "rx_icrc_encapsulated",
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
];

/// Statistics of the network device that only rise when something is lost: a receive queue had no room, hairpin
/// queues among them, or the port had none (drivers/net/ethernet/mellanox/mlx5/core/en_stats.c).
pub(crate) const DROPS: &[&str] = &["rx_out_of_buffer", "rx_discards_phy"];

fn count(counters: &Fact<Counters>, name: &str) -> Option<u64> {
    let (_, value) = counters
        .known()?
        .iter()
        .find(|(key, _)| key.as_str() == name)?;
    value.known().copied()
}

/// Bytes that left by these ports since the counters began; none when any is not known.
pub(super) fn sent(fabric: &Fabric, ports: &BTreeSet<usize>) -> Option<u64> {
    let of = |port: &usize| count(&fabric.facts(*port).details.counters, "port_xmit_data");
    let words: Option<Vec<u64>> = ports.iter().map(of).collect();
    Some(
        words?
            .into_iter()
            .fold(0, u64::saturating_add)
            .saturating_mul(WORD),
    )
}

pub(super) fn look(fabric: &Fabric, seen: &mut Vec<Seen>, notes: &mut Vec<Finding>) {
    broken_pairs(fabric, notes);
    let mut idle: BTreeSet<usize> = BTreeSet::new();
    for node in 0..fabric.hosts.len() {
        let own: Vec<(usize, u64)> = fabric
            .of_host(node)
            .into_iter()
            .filter_map(|port| Some((port, sent(fabric, &[port].into())?)))
            .collect();
        let most = own.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        for (port, bytes) in own {
            if most >= BUSY && bytes < most / 1000 {
                idle.insert(port);
                let finding = Finding::warning(
                    "function-idle",
                    format!(
                        "{} sent {bytes} bytes, another function of the host {most}",
                        fabric.device(port)
                    ),
                    "traffic on every function",
                );
                seen.push(Seen::port(fabric, port, finding));
            }
        }
    }
    planes(fabric, &idle, seen);
    // Since boot: no proof of a fault now, and the first thing to look at again.
    let mut counted = Vec::new();
    for port in 0..fabric.ports.len() {
        let details = &fabric.facts(port).details;
        let own: Vec<String> = LOSSES
            .iter()
            .filter_map(|name| {
                let value =
                    count(&details.hw_counters, name).or_else(|| count(&details.counters, name))?;
                (value > 0).then(|| format!("{name} {value}"))
            })
            .collect();
        if !own.is_empty() {
            counted.push(format!("{}: {}", fabric.ports[port].label(), list(own)));
        }
    }
    if !counted.is_empty() {
        notes.push(Finding::warning(
            "losses-counted",
            format!("counted since boot: {}", counted.join("; ")),
            "no rise while the load runs",
        ));
    }
}

/// Queue pairs that have failed and are still there: whatever uses them waits for nothing.
fn broken_pairs(fabric: &Fabric, notes: &mut Vec<Finding>) {
    for port in 0..fabric.ports.len() {
        let pairs = fabric.facts(port).details.queue_pairs.known();
        let broken = pairs.into_iter().flatten();
        let broken: Vec<_> = broken.filter(|pair| pair.state.as_str() == "ERR").collect();
        let Some(first) = broken.first() else {
            continue;
        };
        let owner = first.owner.known().map_or("?", |owner| owner.as_str());
        let finding = Finding::warning(
            "queue-pairs-broken",
            format!(
                "{} in state ERR (the first of {owner}): a peer did not answer, or went away",
                crate::plan::ends::count(broken.len(), "queue pair")
            ),
            "none",
        );
        let seen = Seen::port(fabric, port, finding);
        notes.push(seen.finding);
    }
}

/// A whole plane of a host that carries nothing.
fn planes(fabric: &Fabric, idle: &BTreeSet<usize>, seen: &mut Vec<Seen>) {
    for domain in 0..DOMAINS {
        let mut ports = BTreeSet::new();
        let mut hosts = Vec::new();
        for node in 0..fabric.hosts.len() {
            let own: BTreeSet<usize> = fabric
                .of_host(node)
                .into_iter()
                .filter(|port| fabric.ports[*port].domain == domain)
                .collect();
            if own.len() > 1 && own.is_subset(idle) {
                ports.extend(own);
                hosts.push(fabric.hosts[node].as_str());
            }
        }
        if !hosts.is_empty() {
            let found = format!(
                "the plane of domain {domain} carries nothing on {}: half of the bandwidth is unused",
                list(&hosts)
            );
            let finding = Finding::warning("plane-idle", found, "traffic on both planes");
            seen.push(Seen::ports(fabric, ports, finding));
        }
    }
}
