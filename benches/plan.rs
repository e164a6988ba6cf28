//! How long planning takes, without what planning waits for (SSH, disks).

use std::hint::black_box;

use divan::Bencher;
use hairpin_mesh::facts::Inventory;
use hairpin_mesh::folder::topology_svg;
use hairpin_mesh::json::pretty;
use hairpin_mesh::names::HostName;
use hairpin_mesh::plan::{Options, Plan, plan};

fn main() {
    divan::main();
}

/// Host and inventory document, in TP order.
const DOCUMENTS: [(&str, &[u8]); 4] = [
    ("spark1", include_bytes!("../plans/tp-along-ring/inventory/spark1.json")),
    ("spark2", include_bytes!("../plans/tp-along-ring/inventory/spark2.json")),
    ("spark3", include_bytes!("../plans/tp-along-ring/inventory/spark3.json")),
    ("spark4", include_bytes!("../plans/tp-along-ring/inventory/spark4.json")),
];

fn hosts() -> Vec<HostName> {
    DOCUMENTS.iter().map(|(host, _)| host.parse().expect("a host name")).collect()
}

fn inventories() -> Vec<Inventory> {
    let read = |(name, bytes): &(&str, &[u8])| Inventory::from_json(name, bytes).expect("an inventory");
    DOCUMENTS.iter().map(read).collect()
}

fn made(hosts: &[HostName], inventories: &[Inventory]) -> Plan {
    plan(hosts, inventories, &Options::default()).plan.expect("a plan").0
}

/// Four inventories that are read already, to a plan.
#[divan::bench]
fn plan_from_inventories(bencher: Bencher) {
    let (hosts, inventories) = (hosts(), inventories());
    bencher.bench(|| made(black_box(&hosts), black_box(&inventories)));
}

/// Four JSON documents, to a plan.
#[divan::bench]
fn plan_from_documents(bencher: Bencher) {
    let hosts = hosts();
    bencher.bench(|| made(black_box(&hosts), &inventories()));
}

// Plan to files, one bench for each file of the plan folder that takes work to write.

/// `plan.json`.
#[divan::bench]
fn plan_json(bencher: Bencher) {
    let plan = made(&hosts(), &inventories());
    bencher.bench(|| pretty(black_box(&plan)));
}

/// `topology.svg`.
#[divan::bench]
fn topology_picture(bencher: Bencher) {
    let plan = made(&hosts(), &inventories());
    bencher.bench(|| topology_svg(black_box(&plan)));
}
