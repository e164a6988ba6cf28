//! The inventory document: what is written reads back, and nothing that is read makes it panic.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

use hairpin_mesh::facts::{Applied, Fact, Gids, Inventory};
use hairpin_mesh::json;
use proptest::prelude::*;

/// An inventory that this program wrote on a real kernel (see `tests/captured/README.md`).
const OURS: &str = include_str!("captured/inventory.json");

fn read(bytes: &[u8]) -> Inventory {
    Inventory::from_json("x.json", bytes).unwrap()
}

/// Inventories of today's tool: those of every case folder.
fn todays() -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("plans")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("not-an-inventory") {
                // What its name says.
            } else if path.is_dir() {
                folders.push(path);
            } else if path
                .parent()
                .and_then(|p| p.file_name())
                .is_some_and(|n| n == "inventory")
            {
                let bytes = std::fs::read(&path).unwrap();
                found.push((path, bytes));
            }
        }
    }
    found.retain(|(_, bytes)| !bytes.windows(8).any(|w| w == b"\"schema\""));
    found.sort();
    assert!(
        found.len() >= 24,
        "{} inventories of today's tool",
        found.len()
    );
    found
}

#[test]
fn our_own_document_reads_back_to_the_byte() {
    assert_eq!(json::pretty(&read(OURS.as_bytes())), OURS);
}

#[test]
fn the_first_key_is_the_schema() {
    assert!(OURS.starts_with("{\n  \"schema\": \"hairpin-mesh.inventory/v1\",\n"));
}

#[test]
fn the_facts_of_the_captured_document_are_those_of_the_machine_it_was_made_on() {
    let inventory = read(OURS.as_bytes());
    assert_eq!(inventory.host.as_str(), "host0");
    assert_eq!(
        inventory
            .management_netdev
            .known()
            .unwrap()
            .as_ref()
            .unwrap()
            .as_str(),
        "mgmt0"
    );
    let ports: Vec<_> = inventory
        .ports
        .iter()
        .map(|p| {
            let size = *p.hairpin_queue_size.known().unwrap();
            (
                p.netdev.as_str(),
                size,
                p.hairpin_queue_applied,
                *p.details.reload_count.known().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        ports,
        [
            ("enp1s0f0np0", Some(1024), Applied::Applied, 0),
            ("enp1s0f1np1", Some(8192), Applied::Pending, 0),
            ("enP2p1s0f0np0", Some(8192), Applied::Applied, 1),
            ("enP2p1s0f1np1", Some(1024), Applied::Applied, 0),
        ]
    );
    let port = &inventory.ports[1];
    assert!(
        matches!(&port.gids, Gids::Table(table) if table.iter().any(|e| e.gid.ipv4() == Some([10, 10, 3, 11].into())))
    );
    assert_eq!(port.rdma_active_mtu, Fact::Known(4096));
    let owners: Vec<_> = port
        .details
        .queue_pairs
        .known()
        .unwrap()
        .iter()
        .map(|q| (q.kind.as_str(), q.pid.is_some()))
        .collect();
    assert_eq!(owners, [("RC", true), ("RC", true), ("GSI", false)]);
}

/// Today's fields keep name, type and meaning when a document of today's tool is written again.
#[test]
fn a_document_of_todays_tool_keeps_every_field() {
    for (path, bytes) in todays() {
        let inventory = read(&bytes);
        let written = json::pretty(&inventory);
        assert_eq!(read(written.as_bytes()), inventory, "{}", path.display());
        let before: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let after: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(before["host"], after["host"], "{}", path.display());
        for (netdev, port) in before["ports"].as_object().unwrap() {
            for (key, value) in port.as_object().unwrap() {
                assert_eq!(
                    value,
                    &after["ports"][netdev][key],
                    "{} {netdev} {key}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn a_fact_that_was_not_observed_is_written_with_its_reason_and_read_back() {
    for key in [
        "tc_offload",
        "hairpin_queue_size",
        "flow_steering_mode",
        "eswitch_mode",
        "pci",
        "rdma",
        "filters",
    ] {
        let mut document: serde_json::Value = serde_json::from_str(OURS).unwrap();
        document["ports"]["enp1s0f0np0"][key] = serde_json::json!({"not_observed": "because"});
        let inventory = read(document.to_string().as_bytes());
        let again: serde_json::Value = serde_json::from_str(&json::pretty(&inventory)).unwrap();
        assert_eq!(
            again["ports"]["enp1s0f0np0"][key],
            serde_json::json!({"not_observed": "because"}),
            "{key}"
        );
    }
}

#[test]
fn a_row_of_the_wrong_shape_names_its_place() {
    let mut document: serde_json::Value = serde_json::from_str(OURS).unwrap();
    document["routes"][1]["metric"] = "0".into();
    let error = Inventory::from_json("x.json", document.to_string().as_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "x.json: routes[1].metric: is \"0\", an integer from 0 to 4294967295 wanted"
    );
}

/// Every value of a document, by a path of keys and indices.
fn places(value: &serde_json::Value, here: &mut Vec<String>, all: &mut Vec<Vec<String>>) {
    all.push(here.clone());
    let children: Vec<(String, &serde_json::Value)> = match value {
        serde_json::Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), v)).collect(),
        serde_json::Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(i, v)| (i.to_string(), v))
            .collect(),
        _ => Vec::new(),
    };
    for (key, child) in children {
        here.push(key);
        places(child, here, all);
        here.pop();
    }
}

fn at<'a>(value: &'a mut serde_json::Value, path: &[String]) -> &'a mut serde_json::Value {
    path.iter().fold(value, |value, key| match value {
        serde_json::Value::Array(list) => &mut list[key.parse::<usize>().unwrap()],
        other => &mut other[key.as_str()],
    })
}

/// A value that may stand in another's place.
fn any_value() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<f64>().prop_map(|f| serde_json::json!(f)),
        "\\PC{0,40}".prop_map(Into::into),
        "[ -~]{0,600}".prop_map(Into::into),
        prop::sample::select(vec![
            "",
            "on",
            "off",
            "up",
            "applied",
            "pending",
            "0x88b5",
            "aa:bb:cc:00:00:01",
            "10.0.0.1/24",
            "0000:01:00.0",
            "fe80::1",
            "255.255.255.255",
            "8192",
            "RoCE v2",
            "pcp",
        ])
        .prop_map(Into::into),
        Just(serde_json::json!([])),
        Just(serde_json::json!({})),
        "\\PC{0,40}".prop_map(|why| serde_json::json!({ "not_observed": why })),
        prop::collection::vec(any::<u8>(), 0..5).prop_map(Into::into),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Inventory::from_json("x", &bytes);
    }

    /// Values of one document changed: either an error, or a value that is written and read again.
    #[test]
    fn a_changed_document_is_an_error_or_reads_back(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_value()), 1..4),
        today: bool,
    ) {
        let source = if today { include_str!("../plans/tp-along-ring/inventory/spark1.json") } else { OURS };
        let mut document: serde_json::Value = serde_json::from_str(source).unwrap();
        for (index, value) in changes {
            let mut all = Vec::new();
            places(&document, &mut Vec::new(), &mut all);
            let path = index.get(&all).clone();
            *at(&mut document, &path) = value;
        }
        if let Ok(inventory) = Inventory::from_json("x", document.to_string().as_bytes()) {
            prop_assert_eq!(read(json::pretty(&inventory).as_bytes()), inventory);
        }
    }

    /// Bytes of a document changed, cut or doubled.
    #[test]
    fn a_damaged_document_never_makes_it_panic(
        at in any::<prop::sample::Index>(),
        byte: u8,
        length in 0usize..40,
        insert: bool,
    ) {
        let mut bytes = OURS.as_bytes().to_vec();
        let at = at.index(bytes.len());
        let end = (at + length).min(bytes.len());
        if insert {
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        } else {
            bytes.splice(at..end, [byte]);
        }
        if let Ok(inventory) = Inventory::from_json("x", &bytes) {
            prop_assert_eq!(read(json::pretty(&inventory).as_bytes()), inventory);
        }
    }
}
