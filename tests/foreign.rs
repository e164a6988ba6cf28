//! Very many filters and routes of others change nothing of what is said of the mesh's, and none of what
//! the kernel told is cut.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
// Its faults are for the tests that apply.
#[allow(dead_code)]
#[path = "common/memory.rs"]
mod memory;
#[path = "common/namespace.rs"]
mod namespace;
#[allow(dead_code)]
#[path = "common/recorded.rs"]
mod recorded;

use std::io::Write;
use std::process::{Command, Stdio};

use common::not_tested;
use hairpin_mesh::facts::{Fact, Route};
use hairpin_mesh::mesh::compare::{Row, State, compare};
use hairpin_mesh::mesh::present::{PortNow, Present};
use hairpin_mesh::mesh::steps;
use hairpin_mesh::mesh::verify::{Verified, verify};
use hairpin_mesh::mesh::wanted::Wanted;
use hairpin_mesh::node::read::{Sources, Subject, SubjectPort};
use memory::known;
use namespace::{in_own_namespace, run};
use recorded::Recorded;

/// More than the rows that a document of facts may have (4096), and than a datagram of the kernel holds.
const MANY: usize = 10_000;

struct Node {
    record: Recorded,
    wanted: Wanted,
    present: Present,
}

fn node(foreign: usize) -> Node {
    let record = Recorded::node(foreign);
    let host = record.host_plan();
    let (wanted, present) = (Wanted::of(&host), record.present(&record.rest(&host)));
    Node {
        wanted,
        present,
        record,
    }
}

fn verified(node: &Node) -> Verified {
    verify(
        &node.record.plan.plan,
        &node.record.host_plan(),
        &node.present,
    )
}

fn filters(present: &Present) -> usize {
    let count = |port: &PortNow| port.filters.known().unwrap().len();
    present.ports.iter().map(count).sum()
}

fn rows(node: &Node) -> Vec<Row> {
    compare(&node.wanted, &node.present)
}

#[test]
fn the_recorded_node_is_as_planned() {
    let node = node(0);
    assert!(!node.wanted.rules.is_empty() && !node.wanted.routes.is_empty());
    for row in rows(&node) {
        assert_eq!(row.state, State::Right, "{}", row.object);
    }
    assert_eq!(steps::up(&rows(&node), &[]), steps::Up::default());
    let verified = verified(&node);
    assert!(verified.in_sync(), "{:?}", verified.findings);
    // Packets had been written over a diagonal that this node forwards.
    let counted = |port: &PortNow| {
        let filters = port.filters.known().unwrap();
        let mut actions = filters
            .iter()
            .filter_map(|filter| filter.flower.as_ref()?.actions.last());
        actions.any(|action| action.hw_packets.is_some_and(|count| count > 0))
    };
    assert!(node.present.ports.iter().any(counted));
}

#[test]
fn many_foreign_filters_and_routes_are_all_read_and_change_no_verdict() {
    let (few, many) = (node(0), node(MANY));
    let routes = |node: &Node| node.present.routes.known().unwrap().len();
    assert_eq!(routes(&many), routes(&few) + MANY);
    assert_eq!(filters(&many.present), filters(&few.present) + MANY);
    assert_eq!(rows(&many), rows(&few));
    assert_eq!(verified(&many), verified(&few));
}

/// The last of very many is seen, wherever the mesh's own are missing or wrong.
#[test]
fn among_many_foreign_filters_and_routes_what_is_missing_wrong_or_in_the_way_is_told_as_without() {
    let changes: [fn(&Wanted, &mut Present); 4] = [
        |wanted, present| {
            known(&mut present.routes).retain(|r| r.destination != wanted.routes[0].destination);
        },
        |wanted, present| {
            for port in &mut present.ports {
                known(&mut port.filters).retain(|f| f.pref != wanted.rules[0].1.pref);
            }
        },
        |wanted, present| {
            let foreign = Route {
                metric: 7,
                protocol: 4,
                ..wanted.routes[0].clone()
            };
            known(&mut present.routes).push(foreign);
        },
        |wanted, present| {
            let (dev, rule) = &wanted.rules[0];
            let mut foreign = rule.clone();
            foreign.handle += 1;
            let mut ports = present.ports.iter_mut();
            let port = ports.find(|port| port.netdev == *dev).unwrap();
            known(&mut port.filters).push(foreign);
        },
    ];
    for change in changes {
        let (mut few, mut many) = (node(0), node(MANY));
        for node in [&mut few, &mut many] {
            change(&node.wanted, &mut node.present);
        }
        let wrong = |node: &Node| {
            let rows = rows(node).into_iter();
            rows.filter(|row| row.state != State::Right).count()
        };
        assert!(wrong(&few) > 0);
        assert_eq!(rows(&many), rows(&few));
        assert_eq!(verified(&many), verified(&few));
    }
}

/// Commands for `ip -batch` or `tc -batch`. Whether they were carried out.
fn batch(program: &str, commands: impl Iterator<Item = String>) -> bool {
    let mut child = Command::new(program)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let text: String = commands.map(|line| line + "\n").collect();
    let wrote = child.stdin.take().unwrap().write_all(text.as_bytes());
    child.wait().unwrap().success() && wrote.is_ok()
}

#[test]
fn a_real_kernel_with_very_many_filters_and_routes_is_read_whole() {
    let test = "a_real_kernel_with_very_many_filters_and_routes_is_read_whole";
    in_own_namespace(test, || {
        run("ip link add x0 type veth peer name x1");
        run("ip link set x0 up");
        run("ip link set x1 up");
        let address = |i: usize| format!("198.18.{}.{}", i >> 8, i & 255);
        assert!(batch(
            "ip",
            (0..MANY).map(|i| format!("route add {}/32 dev x0", address(i)))
        ));
        let mut subject = Subject::default();
        let netdev: hairpin_mesh::names::NetdevName = "x0".parse().unwrap();
        subject.ports.push(SubjectPort {
            netdev: netdev.clone(),
            rdma: "rocex0".parse().unwrap(),
            pci: None,
            gid_index: 3,
        });
        subject.all_filters.insert(netdev);
        let read = |subject: &Subject| Sources::default().read(subject, Default::default());
        assert_eq!(
            read(&subject).routes.map(|routes| routes.len()),
            Fact::Known(MANY)
        );

        let filter = |i: usize| {
            format!(
                "filter add dev x0 ingress protocol ip pref 100 handle {} flower dst_ip {} action pass",
                i + 1,
                address(i)
            )
        };
        let clsact = || batch("tc", std::iter::once("qdisc add dev x0 clsact".to_owned()));
        if !clsact() || !batch("tc", (0..MANY).map(filter)) {
            not_tested(test, "no flower in this kernel, so no filters");
            return;
        }
        assert_eq!(filters(&read(&subject)), MANY);
    });
}
