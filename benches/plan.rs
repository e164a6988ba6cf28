//! How long planning takes, without what planning waits for (SSH, disks).

use std::hint::black_box;

use divan::Bencher;
use hairpin_mesh::facts::Inventory;
use hairpin_mesh::files;
use hairpin_mesh::folder::{self, Source};
use hairpin_mesh::names::HostName;
use hairpin_mesh::plan::ring::Ring;
use hairpin_mesh::plan::topology::Extras;
use hairpin_mesh::plan::{Options, Plan, plan};

fn main() {
    divan::main();
}

/// Host and inventory document, in TP order.
const DOCUMENTS: [(&str, &[u8]); 4] = [
    (
        "spark1",
        include_bytes!("../plans/tp-along-ring/inventory/spark1.json"),
    ),
    (
        "spark2",
        include_bytes!("../plans/tp-along-ring/inventory/spark2.json"),
    ),
    (
        "spark3",
        include_bytes!("../plans/tp-along-ring/inventory/spark3.json"),
    ),
    (
        "spark4",
        include_bytes!("../plans/tp-along-ring/inventory/spark4.json"),
    ),
];

fn hosts() -> Vec<HostName> {
    DOCUMENTS
        .iter()
        .map(|(host, _)| host.parse().expect("a host name"))
        .collect()
}

fn inventories() -> Vec<Inventory> {
    let read =
        |(name, bytes): &(&str, &[u8])| Inventory::from_json(name, bytes).expect("an inventory");
    DOCUMENTS.iter().map(read).collect()
}

fn made(hosts: &[HostName], inventories: &[Inventory]) -> (Plan, Ring) {
    plan(hosts, inventories, &Options::default())
        .plan
        .expect("a plan")
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

/// A plan to the content of its folder: all documents, scripts and the picture.
#[divan::bench]
fn plan_to_folder_content(bencher: Bencher) {
    let inventories = inventories();
    let (plan, ring) = made(&hosts(), &inventories);
    bencher.bench(|| folder::content(black_box(&plan), &ring, &Extras::default(), &source(&plan)));
}

/// The same to a folder in memory (tmpfs, where there is one), replaced every time. What a disk adds
/// is its own.
#[divan::bench]
fn plan_to_files(bencher: Bencher) {
    let (plan, ring) = made(&hosts(), &inventories());
    let memory = std::path::Path::new("/dev/shm");
    let dir = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
    .expect("a folder");
    let out = dir.path().join("ring-mesh");
    bencher.bench_local(|| {
        let content = folder::content(&plan, &ring, &Extras::default(), &source(&plan));
        let earlier = folder::earlier(&out);
        files::replace_folder(
            &out,
            &content,
            |path| earlier.contains(path),
            folder::is_of_a_plan,
        )
        .expect("written");
    });
}

fn source(plan: &Plan) -> Source<'_> {
    Source::Inventories(
        plan.hosts
            .iter()
            .zip(DOCUMENTS)
            .map(|(host, (_, bytes))| (host, bytes))
            .collect(),
    )
}
