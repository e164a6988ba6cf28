//! Waiting for changes, in a network namespace.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/namespace.rs"]
mod namespace;

use std::time::{Duration, Instant};

use common::not_tested;
use hairpin_mesh::kernel::monitor::{Group, Monitor};
use namespace::{in_own_namespace, run};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Waits until nothing more comes: what a change brings with it (a carrier, an address of the kernel's
/// own) comes a little later.
fn settle(monitor: &mut Monitor) {
    while monitor
        .wait(Instant::now() + Duration::from_millis(300))
        .unwrap()
    {}
}

#[test]
fn each_group_is_told_of_its_own_changes() {
    in_own_namespace("each_group_is_told_of_its_own_changes", groups);
}

fn groups() {
    run("ip link add x0 type veth peer name x1");
    run("ip link set x0 up");
    run("ip link set x1 up");
    run("ip addr add 10.10.0.10/24 dev x0");
    let all = [
        Group::Links,
        Group::Addresses,
        Group::Routes,
        Group::Neighbours,
        Group::Tc,
    ];
    for (group, line) in [
        (Group::Links, "ip link set x0 mtu 1400"),
        (Group::Addresses, "ip addr add 10.10.7.1/32 dev x0"),
        (
            Group::Routes,
            "ip route add 10.10.1.11/32 via 10.10.0.11 dev x0",
        ),
        (
            Group::Neighbours,
            "ip neigh add 10.10.0.12 lladdr 02:00:00:00:00:77 dev x0 nud permanent",
        ),
        (Group::Tc, "tc qdisc add dev x0 clsact"),
    ] {
        let mut theirs = Monitor::open(&[group]).unwrap();
        let mut every = Monitor::open(&all).unwrap();
        settle(&mut every);
        settle(&mut theirs);
        run(line);
        assert!(theirs.wait(soon()).unwrap(), "{line}");
        assert!(every.wait(soon()).unwrap(), "{line}");
    }
    // Of what is not asked for nothing is told; what is told is told once.
    let mut routes = Monitor::open(&[Group::Routes]).unwrap();
    let mut others = Monitor::open(&[Group::Addresses, Group::Tc]).unwrap();
    settle(&mut routes);
    settle(&mut others);
    for number in 0..50 {
        run(&format!(
            "ip route add 10.11.{number}.0/24 via 10.10.0.11 dev x0"
        ));
    }
    assert!(!others.wait(Instant::now()).unwrap());
    assert!(routes.wait(Instant::now()).unwrap());
    assert!(!routes.wait(Instant::now()).unwrap());
}

#[test]
fn a_wait_ends_at_an_event_of_meanwhile_and_else_at_its_deadline() {
    in_own_namespace(
        "a_wait_ends_at_an_event_of_meanwhile_and_else_at_its_deadline",
        meanwhile,
    );
}

fn meanwhile() {
    let mut monitor = Monitor::open(&[Group::Links]).unwrap();
    settle(&mut monitor);
    let start = Instant::now();
    let wait = Duration::from_millis(200);
    assert!(!monitor.wait(start + wait).unwrap());
    assert!(start.elapsed() >= wait);
    // A thread is in the network namespace of the one that started it.
    let later = std::thread::spawn(move || {
        std::thread::sleep(wait);
        run("ip link add x0 type veth peer name x1");
    });
    assert!(monitor.wait(soon()).unwrap());
    later.join().unwrap();
    settle(&mut monitor);
}

/// More than the queue holds: the kernel drops, and says so.
#[test]
fn messages_that_were_lost_count_as_a_change() {
    in_own_namespace("messages_that_were_lost_count_as_a_change", lost);
}

fn lost() {
    run("ip link add x0 type veth peer name x1");
    run("ip link set x0 up");
    run("ip link set x1 up");
    run("ip addr add 10.10.0.10/24 dev x0");
    let mut monitor = Monitor::open(&[Group::Routes]).unwrap();
    settle(&mut monitor);
    // A message takes about 1 KiB of the queue, which has 208 KiB.
    let folder = tempfile::tempdir().unwrap();
    let batch = folder.path().join("batch");
    let lines: String = (0..4000)
        .map(|n| format!("route add 10.{}.{}.0/24 dev x0\n", 11 + n / 250, n % 250))
        .collect();
    std::fs::write(&batch, lines).unwrap();
    run(&format!("ip -batch {}", batch.display()));
    assert!(monitor.wait(Instant::now()).unwrap());
    assert!(!monitor.wait(Instant::now()).unwrap());
    run("ip route add 10.200.0.0/16 dev x0");
    assert!(monitor.wait(soon()).unwrap());
}

#[test]
fn a_kernel_without_rdma_is_listened_to_without() {
    let mut monitor = Monitor::open(&[Group::Rdma]).unwrap();
    match monitor.without_rdma() {
        Some(why) => not_tested("changes of RDMA devices", why),
        None => assert!(!monitor.wait(Instant::now()).unwrap()),
    }
    assert!(!Monitor::open(&[]).unwrap().wait(Instant::now()).unwrap());
}
