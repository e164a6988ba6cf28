//! How long `up` and `verify` work by themselves, without what they wait for (the kernel, systemd, disks):
//! on what the kernel of a node once told, alone and beside very many filters and routes of others. The time
//! for one foreign filter with its route, which `Mitem/s` tells, is to be the same for any number of them.

#![allow(clippy::unwrap_used, clippy::panic)]

// Their faults and counts are for the tests.
#[allow(dead_code)]
#[path = "../tests/common/memory.rs"]
mod memory;
#[path = "../tests/common/recorded.rs"]
mod recorded;

use std::hint::black_box;

use divan::Bencher;
use divan::counter::ItemsCount;
use hairpin_mesh::json::{parse, pretty};
use hairpin_mesh::mesh::compare::{Row, compare};
use hairpin_mesh::mesh::condition::{Identity, identity};
use hairpin_mesh::mesh::present::Present;
use hairpin_mesh::mesh::steps;
use hairpin_mesh::mesh::verify::verify;
use hairpin_mesh::mesh::wanted::Wanted;
use hairpin_mesh::node::identity::PlanDocument;
use hairpin_mesh::node::state::Applied;
use recorded::Recorded;

fn main() {
    println!(
        "goals: compare under 0.5 ms, up and verify under 3 ms with 0 foreign filters and routes; linear in their number"
    );
    divan::main();
}

/// Numbers of foreign filters, and of foreign routes.
const FOREIGN: &[usize] = &[0, 1_000, 10_000];

fn nothing_to_do(wanted: &Wanted, present: &Present) -> Vec<Row> {
    let rows = compare(black_box(wanted), black_box(present));
    assert_eq!(steps::up(&rows, &[]), steps::Up::default());
    rows
}

/// The comparison and its changes, on what was read already.
#[divan::bench(args = FOREIGN)]
fn compare_and_steps(bencher: Bencher, foreign: usize) {
    let node = Recorded::node(foreign);
    let host = node.host_plan();
    let wanted = Wanted::of(&host);
    let present = node.present(&node.rest(&host));
    bencher
        .counter(ItemsCount::new(foreign))
        .bench(|| nothing_to_do(&wanted, &present));
}

/// All tables from their messages, and the comparison and its changes.
#[divan::bench(args = FOREIGN)]
fn decode_compare_and_steps(bencher: Bencher, foreign: usize) {
    let node = Recorded::node(foreign);
    let host = node.host_plan();
    let wanted = Wanted::of(&host);
    let rest = node.rest(&host);
    bencher
        .counter(ItemsCount::new(foreign))
        .bench(|| nothing_to_do(&wanted, &black_box(&node).present(&rest)));
}

/// `up` that finds nothing to do: the installed plan is read and is what was applied last, the tables are
/// decoded, the host is recognised and compared. (The kernel gives it no filter at another preference.)
#[divan::bench(args = FOREIGN)]
fn up(bencher: Bencher, foreign: usize) {
    let node = Recorded::node(foreign).at_own_preferences();
    let host = node.host_plan();
    let rest = node.rest(&host);
    let applied = Applied::document(&node.host, &node.plan.bytes);
    bencher.counter(ItemsCount::new(foreign)).bench(|| {
        let document = PlanDocument::read("plan.json", black_box(&node.plan.bytes).clone());
        let document = document.unwrap();
        let host = document.plan.for_host(node.host.as_str()).unwrap();
        let wanted = Wanted::of(&host);
        let known_already = Applied::is_of(black_box(&applied), &node.host, &document.bytes);
        assert!(known_already);
        let present = node.present(&rest);
        let identity = identity(&host, &present);
        assert!(matches!(identity, Identity::This { .. }), "{identity:?}");
        nothing_to_do(&wanted, &present)
    });
}

/// `verify`: the plan is read, the tables decoded, the host recognised and held against the plan, and the
/// report made and read back for showing.
#[divan::bench(args = FOREIGN)]
fn verify_report(bencher: Bencher, foreign: usize) {
    let node = Recorded::node(foreign);
    let host = node.host_plan();
    let rest = node.rest(&host);
    bencher.counter(ItemsCount::new(foreign)).bench(|| {
        let document = PlanDocument::read("plan.json", black_box(&node.plan.bytes).clone());
        let document = document.unwrap();
        let sha256 = document.sha256();
        let host = document.plan.for_host(node.host.as_str()).unwrap();
        let present = node.present(&rest);
        let identity = identity(&host, &present);
        assert!(matches!(identity, Identity::This { .. }), "{identity:?}");
        let verified = verify(&document.plan, &host, &present);
        assert!(verified.in_sync(), "{:?}", verified.findings);
        let report = pretty(&(&verified.checks, &verified.findings));
        (
            sha256,
            parse("report", report.as_bytes()).unwrap().into_owned(),
        )
    });
}
