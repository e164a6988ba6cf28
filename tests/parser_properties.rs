//! Bounded fuzzing of everything that reads a document: inventories, plans, topologies.
//!
//! `PROPTEST_CASES` sets how long; the long run is `.ci/long`.

#![allow(clippy::unwrap_used, clippy::panic)] // in helpers of tests too

use std::path::Path;

use hairpin_mesh::facts::Inventory;
use hairpin_mesh::json::{self, Value};
use hairpin_mesh::names::HostName;
use hairpin_mesh::plan::topology::Topology;
use hairpin_mesh::plan::{self, Options, Plan};
use proptest::prelude::*;

fn case(path: &str) -> Vec<u8> {
    std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("plans")
            .join(path),
    )
    .unwrap()
}

fn hosts() -> Vec<HostName> {
    ["spark1", "spark2", "spark3", "spark4"]
        .map(|h| h.parse().unwrap())
        .to_vec()
}

fn inventories(case_name: &str) -> Vec<Vec<u8>> {
    hosts()
        .iter()
        .map(|h| case(&format!("{case_name}/inventory/{h}.json")))
        .collect()
}

/// Reads `bytes` as every kind of document and plans from whatever can be planned from.
fn read_as_everything(bytes: &[u8]) {
    let _ = Plan::from_json("plan", bytes);
    if let Ok(topology) = Topology::from_json("topology", bytes) {
        let _ = topology.plan(&hosts(), &Options::default());
    }
    if let Ok(inventory) = Inventory::from_json("inventory", bytes) {
        let mut all: Vec<Inventory> = inventories("tp-along-ring")
            .iter()
            .map(|b| Inventory::from_json("i", b).unwrap())
            .collect();
        all[1] = inventory;
        let _ = plan::plan(&hosts(), &all, &Options::default());
    }
}

/// A change somewhere in a document: `path` picks the place, `with` what stands there afterwards.
fn mutate<'d>(value: &mut Value<'d>, path: &[u16], with: &Value<'d>) {
    let pick = |n: usize| path.first().map(|p| usize::from(*p) % (n + 1));
    match value {
        Value::Object(entries) if !entries.is_empty() => match pick(entries.len()) {
            Some(i) if i < entries.len() => mutate(&mut entries[i].1, &path[1..], with),
            Some(_) => {
                entries.remove(usize::from(*path.last().unwrap_or(&0)) % entries.len());
            }
            None => *value = with.clone(),
        },
        Value::Array(items) if !items.is_empty() => match pick(items.len()) {
            Some(i) if i < items.len() => mutate(&mut items[i], &path[1..], with),
            Some(_) => {
                let i = usize::from(*path.last().unwrap_or(&0)) % items.len();
                let item = items[i].clone();
                items.push(item);
            }
            None => *value = with.clone(),
        },
        _ => *value = with.clone(),
    }
}

fn any_value() -> impl Strategy<Value = Value<'static>> {
    let text = prop_oneof![
        any::<String>(),
        Just("".to_owned()),
        Just("up".to_owned()),
        Just("10.10.0.10/24".to_owned()),
        Just("255.255.255.255/31".to_owned()),
        Just("0.0.0.0/0".to_owned()),
        Just("4c:bb:47:4a:eb:e8".to_owned()),
        Just("ff:ff:ff:ff:ff:ff".to_owned()),
        Just("ffffffff:ff:1f.7".to_owned()),
        Just("enP4294967295p1s0f1np1".to_owned()),
        Just("enP99999p1s0f1".to_owned()),
        Just("::ffff:10.10.0.10".to_owned()),
        Just("4294967295".to_owned()),
    ];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(|i| Value::Integer(i.into())),
        (-2i128..10).prop_map(Value::Integer),
        any::<f64>().prop_map(Value::Float),
        text.prop_map(|text| Value::Text(text.into())),
        Just(Value::Array(vec![])),
        Just(Value::Object(vec![])),
        Just(Value::Object(vec![(
            "not_observed".into(),
            Value::Text("why".into())
        )])),
    ]
}

fn mutations() -> impl Strategy<Value = Vec<(Vec<u16>, Value<'static>)>> {
    proptest::collection::vec(
        (proptest::collection::vec(any::<u16>(), 0..7), any_value()),
        1..4,
    )
}

fn mutated(bytes: &[u8], mutations: &[(Vec<u16>, Value<'static>)]) -> Vec<u8> {
    let mut value = json::parse("t", bytes).unwrap();
    for (path, with) in mutations {
        mutate(&mut value, path, with);
    }
    json::pretty(&value).into_bytes()
}

fn planned(case_name: &str) -> Plan {
    let all: Vec<Inventory> = inventories(case_name)
        .iter()
        .map(|b| Inventory::from_json("i", b).unwrap())
        .collect();
    plan::plan(&hosts(), &all, &Options::default())
        .plan
        .unwrap()
        .0
}

#[test]
fn a_plan_document_reads_back_to_the_same_plan() {
    for case_name in [
        "tp-along-ring",
        "tp-against-ring",
        "slash-30-subnets",
        "names-of-another-board",
    ] {
        let plan = planned(case_name);
        let text = json::pretty(&plan);
        assert_eq!(
            Plan::from_json("plan.json", text.as_bytes()).unwrap(),
            plan,
            "{case_name}"
        );
    }
}

#[test]
fn an_edited_plan_is_refused_at_the_place_of_the_edit() {
    let text = json::pretty(&planned("tp-along-ring"));
    for (from, to, place) in [
        ("\"pref\": 49152", "\"pref\": 49153", None),
        (
            "\"redirect\": \"enp1s0f0np0\"",
            "\"redirect\": \"enp1s0f1np1\"",
            Some("rules[0].redirect"),
        ),
        (
            "\"gateway\": \"10.10.0.11\"",
            "\"gateway\": \"10.10.0.12\"",
            Some("routes[0].gateway"),
        ),
        ("\"mtu\": 9000", "\"mtu\": 1500", Some("mtu")),
        (
            "\"size_cap_bytes\": 81920",
            "\"size_cap_bytes\": 262144",
            Some("size_cap_bytes"),
        ),
        (
            "\"DSV41_ROCE_RING\": \"1\"",
            "\"DSV41_ROCE_RING\": \"1; reboot\"",
            Some("env.DSV41_ROCE_RING"),
        ),
        (
            "\"udp_source_port\": 65535",
            "\"udp_source_port\": 4791",
            Some("markers[0].udp_source_port"),
        ),
        (
            "\"hosts\": [",
            "\"note\": 1, \"hosts\": [",
            Some("\"note\""),
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let read = Plan::from_json("plan.json", text.replacen(from, to, 1).as_bytes());
        match (place, read) {
            // A preference is the one thing that a topology may choose.
            (None, Ok(_)) => {}
            (Some(place), Err(e)) => assert!(
                e.to_string().starts_with(&format!("plan.json: {place}: ")),
                "{e}"
            ),
            (_, read) => panic!("{from}: {read:?}"),
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        read_as_everything(&bytes);
    }

    #[test]
    fn no_text_that_looks_like_json_makes_a_parser_panic(text in "[\\[\\]{}\",:0-9a-z \\\\]{0,200}") {
        read_as_everything(text.as_bytes());
    }

    #[test]
    fn no_change_to_an_inventory_makes_the_planner_panic(
        own in any::<bool>(), mutations in mutations(), cut in proptest::option::of(any::<u16>()))
    {
        let name = if own { "own-inventories-queue-applied" } else { "tp-along-ring" };
        let mut bytes = mutated(&inventories(name)[1], &mutations);
        if let Some(cut) = cut {
            bytes.truncate(usize::from(cut) % (bytes.len() + 1));
        }
        read_as_everything(&bytes);
    }

    #[test]
    fn no_change_to_a_topology_makes_a_parser_panic(mutations in mutations()) {
        read_as_everything(&mutated(&case("topology/rule-identities-of-its-own/topology.json"), &mutations));
    }

    #[test]
    fn a_changed_plan_is_refused_or_is_a_plan_that_writes_itself(mutations in mutations()) {
        let bytes = mutated(json::pretty(&planned("tp-along-ring")).as_bytes(), &mutations);
        if let Ok(plan) = Plan::from_json("plan", &bytes) {
            let text = json::pretty(&plan);
            let again = json::parse("again", text.as_bytes()).unwrap();
            prop_assert_eq!(json::first_difference(&json::parse("given", &bytes).unwrap(), &again), None);
        }
    }
}
