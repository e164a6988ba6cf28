//! What the measured loop of `probe` costs by itself: between a queue pair and itself, beside a stand-in for
//! libibverbs in whose memory a write is at once where it is to be. What the stand-in takes for a write and its
//! completion, with nothing around them, is subtracted. No NIC is part of it.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../tests/common/stand_in.rs"]
mod stand_in;

use std::process::Command;
use std::time::Duration;

use hairpin_mesh::probe::exchange::Side;
use hairpin_mesh::probe::protocol::MOST_MESSAGES;
use hairpin_mesh::verbs::{Path, Verbs};

/// The longest run that there is.
const MESSAGES: u64 = MOST_MESSAGES;
/// As many as the stand-in has queue pairs for.
const RUNS: usize = 7;
const DEVICE: &str = "rocep1s0f0";
const INSIDE: &str = "HAIRPIN_MESH_STAND_IN";
/// How much of an iteration may be the loop's own, nanoseconds.
const GOAL: f64 = 50.0;

fn main() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let folder = tempfile::tempdir().unwrap();
    let (record, events) = (folder.path().join("record"), folder.path().join("events"));
    std::fs::write(&events, "").unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .env(INSIDE, "1")
        .env("LD_LIBRARY_PATH", stand_in::libraries())
        .env("RECORD", &record)
        .env("EVENTS", &events)
        .env("DEVICES", DEVICE)
        .env("BARE", MESSAGES.to_string())
        .status()
        .unwrap();
    assert!(status.success());
}

fn inside() {
    let mut own = Vec::new();
    for _ in 0..RUNS {
        own.push(run());
    }
    let record = std::fs::read_to_string(std::env::var_os("RECORD").unwrap()).unwrap();
    let mut bare: Vec<f64> = record
        .lines()
        .filter_map(|line| {
            line.strip_prefix("bare ")?
                .strip_suffix(" ns")?
                .parse()
                .ok()
        })
        .collect();
    assert_eq!(bare.len(), RUNS, "{record}");
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (own, bare) = (median(&mut own), median(&mut bare));
    println!(
        "an iteration of the loop {own:.1} ns, of it the stand-in's write and completion {bare:.1} ns: {:.1} ns are the loop's own, at most {GOAL} wanted (medians of {RUNS} runs of {MESSAGES})",
        own - bare
    );
}

/// Nanoseconds from a post to the next.
fn run() -> f64 {
    let verbs = Verbs::load().unwrap();
    let device = verbs.open(&DEVICE.parse().unwrap()).unwrap();
    let domain = device.domain().unwrap();
    let queue = device.queue(4).unwrap();
    let memory = domain.memory(4).unwrap();
    let fresh = domain.queue_pair(&queue, 4, 220).unwrap();
    let path = Path {
        gid: "::ffff:10.10.0.10".parse().unwrap(),
        qp_number: fresh.number(),
        packet_number: 1,
        mtu: 4096,
        flow_label: 16383,
        gid_index: 3,
        hop_limit: 64,
        traffic_class: 0,
        port: 1,
    };
    let pair = fresh.connect(&path, 1).unwrap();
    let side = Side {
        pair: &pair,
        queue: &queue,
        memory: &memory,
        size: 2,
        to: memory.address(0),
        rkey: memory.rkey(),
        first: true,
        called: &|| false,
    };
    let limit = Duration::from_secs(60);
    side.arm(1);
    side.run(1000, limit).unwrap();
    side.arm(2);
    let times = side.run(MESSAGES, limit).unwrap();
    assert_eq!(times.len() as u64, MESSAGES - 1);
    // Of the loop alone: the lists are made before it and read after it.
    times.iter().sum::<u64>() as f64 / times.len() as f64
}
