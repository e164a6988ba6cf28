//! The doctor on facts that nobody has: it never panics, says the same twice, and keeps to its own rules.

#![allow(clippy::unwrap_used, clippy::panic)]

use hairpin_mesh::doctor::env::Environment;
use hairpin_mesh::doctor::nccl::Log;
use hairpin_mesh::doctor::{Case, examine, netplan};
use hairpin_mesh::facts::Inventory;
use hairpin_mesh::finding::Finding;
use hairpin_mesh::names::HostName;
use proptest::prelude::*;
use serde_json::{Value, json};

const HOSTS: [&str; 4] = ["spark1", "spark2", "spark3", "spark4"];

fn base() -> Vec<Value> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doctor/base");
    let read = |host: &&str| {
        serde_json::from_slice(&std::fs::read(folder.join(format!("{host}.json"))).unwrap())
            .unwrap()
    };
    HOSTS.iter().map(read).collect()
}

/// Every place of a document: its keys and positions.
fn places(value: &Value, way: &mut Vec<String>, all: &mut Vec<Vec<String>>) {
    let mut below = |key: String, value: &Value| {
        way.push(key);
        all.push(way.clone());
        places(value, way, all);
        way.pop();
    };
    match value {
        Value::Object(object) => object
            .iter()
            .for_each(|(key, value)| below(key.clone(), value)),
        Value::Array(rows) => rows
            .iter()
            .enumerate()
            .for_each(|(i, value)| below(i.to_string(), value)),
        _ => {}
    }
}

fn at<'a>(value: &'a mut Value, way: &[String]) -> Option<&'a mut Value> {
    let Some((first, rest)) = way.split_first() else {
        return Some(value);
    };
    match value {
        Value::Object(object) => at(object.get_mut(first)?, rest),
        Value::Array(rows) => at(rows.get_mut(first.parse::<usize>().ok()?)?, rest),
        _ => None,
    }
}

/// A change of one place: which host, which place, what becomes of it.
#[derive(Debug, Clone)]
enum Change {
    Remove,
    NotObserved,
    Twice,
    Other(usize),
    Set(Value),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Remove),
        Just(Change::NotObserved),
        Just(Change::Twice),
        any::<usize>().prop_map(Change::Other),
        prop_oneof![
            Just(json!("")),
            Just(json!(null)),
            Just(json!([])),
            Just(json!({})),
            Just(json!(0)),
            Just(json!(4_294_967_295u32)),
            Just(json!("down")),
            Just(json!("10.10.0.10/24")),
            Just(json!("255.255.255.255/1")),
            Just(json!("0.0.0.0/0")),
            Just(json!("ff:ff:ff:ff:ff:ff")),
            Just(json!("1024")),
            Just(json!("pending")),
            Just(json!("0009:ff:1f.7")),
            "[a-z0-9]{1,12}".prop_map(Value::from),
            any::<u32>().prop_map(Value::from),
        ]
        .prop_map(Change::Set),
    ]
}

fn changed(document: &mut Value, place: usize, change: &Change) {
    let mut all = Vec::new();
    places(document, &mut Vec::new(), &mut all);
    if all.is_empty() {
        return;
    }
    let way = all[place % all.len()].clone();
    let (last, parent) = way.split_last().unwrap();
    match change {
        Change::Remove => match at(document, parent) {
            Some(Value::Object(object)) => {
                object.remove(last);
            }
            Some(Value::Array(rows)) => {
                let i: usize = last.parse().unwrap();
                rows.remove(i);
            }
            _ => {}
        },
        Change::NotObserved => {
            *at(document, &way).unwrap() = json!({"not_observed": "permission denied"})
        }
        Change::Twice => {
            if let Some(Value::Array(rows)) = at(document, parent) {
                let i: usize = last.parse().unwrap();
                rows.push(rows[i].clone());
            }
        }
        Change::Other(other) => {
            let from = all[other % all.len()].clone();
            let value = at(document, &from).unwrap().clone();
            *at(document, &way).unwrap() = value;
        }
        Change::Set(value) => *at(document, &way).unwrap() = value.clone(),
    }
}

fn check(finding: &Finding, depth: usize) {
    assert!(depth < 16, "{finding}");
    assert!(
        !finding.code.is_empty() && !finding.found.is_empty() && !finding.wanted.is_empty(),
        "{finding:?}"
    );
    assert!(
        !finding.to_string().contains(['\n', '\u{1b}']),
        "{finding:?}"
    );
    finding
        .consequences
        .iter()
        .for_each(|finding| check(finding, depth + 1));
}

proptest! {
    #[test]
    fn changed_facts_never_panic_and_say_the_same_twice(
        changes in prop::collection::vec((any::<usize>(), any::<usize>(), change()), 1..8),
        hosts in 1usize..=4,
        env in "[A-Z_]{0,12}=[ -~]{0,40}",
    ) {
        let mut documents = base();
        for (host, place, change) in &changes {
            // Most changes make a document that is refused at the door: then the one before counts.
            let host = host % HOSTS.len();
            let before = documents[host].clone();
            changed(&mut documents[host], *place, change);
            if Inventory::from_json("x", documents[host].to_string().as_bytes()).is_err() {
                documents[host] = before;
            }
        }
        let inventories: Vec<Inventory> = documents.iter().take(hosts).map(|document| Inventory::from_json("x", document.to_string().as_bytes()).unwrap()).collect();
        let names: Vec<HostName> = HOSTS.iter().take(hosts).map(|host| host.parse().unwrap()).collect();
        let envs: Vec<Environment> = Environment::read("env", format!("B12X_ROCE_HCA=rocep1s0f0 {env}").as_bytes()).into_iter().collect();
        let logs = [Log::read("log", env.as_bytes())];
        let case = Case { hosts: &names, ordered: true, inventories: &inventories, plan: None, envs: &envs, logs: &logs };
        let diagnosis = examine(&case);
        prop_assert_eq!(&examine(&case), &diagnosis);
        diagnosis.findings.iter().chain(&diagnosis.notes).for_each(|finding| check(finding, 0));
        prop_assert_eq!(diagnosis.is_healthy(), diagnosis.findings.is_empty());
        // What a plan refuses has a finding.
        if hosts == 4 {
            let planned = hairpin_mesh::plan::derive(&names, &inventories, None);
            if hairpin_mesh::plan::refuses(&planned.findings) {
                prop_assert!(!diagnosis.is_healthy());
            }
        }
        let _ = netplan::of_facts(&names, &inventories).map(|planes| planes.iter().map(netplan::file).collect::<String>());
    }

    #[test]
    fn any_words_are_an_environment_and_a_log(
        start in prop_oneof![Just(""), Just("export A=1\n"), Just("#!/bin/sh\n"), Just("services:\n  a:\n    environment:\n"), Just("x: &x\n")],
        words in prop::collection::vec(prop_oneof![
            Just("NCCL_SOCKET_IFNAME"), Just("GLOO_SOCKET_IFNAME"), Just("B12X_ROCE_PEER_HCA_MAPS"), Just("unset "), Just("export "), Just("environment:"),
            Just("services:"), Just("  "), Just("\n"), Just("- "), Just(": "), Just("*x"), Just("&x"), Just("<<: "), Just("{"), Just("}"), Just("["), Just("]"),
            Just("="), Just("^"), Just(";"), Just("&"), Just("|"), Just("<"), Just(">"), Just("("), Just(")"), Just("$"), Just("`"), Just("#"), Just("'"),
            Just("\""), Just("\\"), Just(","), Just("é"), Just("enp7s7"), Just("enP7s7"), Just("NCCL INFO "), Just("NET/IB : Using "), Just("spark1:1:1 "),
            Just("; OOB "), Just("NET/Socket : Using "), Just("ibv_modify_qp failed with 110"), Just("local GID "), Just("remote GID "), Just("::ffff:10.10.0.10"),
            Just("::ffff:10.10.0.11"), Just("enp1s0f0np0:10.10.0.10<0>"), Just("mlx5_0:1/RoCE"), Just("\u{1b}"), Just("\r"),
            Just(" Channel 00/04 : "), Just("0 2 1 3 "), Just(" rank "), Just("0"), Just(" commId "), Just("Init START"), Just("Init COMPLETE"), Just(" Trees ["),
            Just("Got completion status="), Just("IBV_WC_"), Just("Failed status "), Just("4294967296"), Just(" via NET/IB/"), Just("NCCL version "),
            Just("socket 10.10.0.10<1> No route to host"), Just("Connected all rings"), Just("[0]rocep1s0f0:1/RoCE "), Just(" nNodes "),
        ], 0..80),
    ) {
        let text = format!("{start}{}", words.concat());
        let inventories: Vec<Inventory> = base().iter().map(|document| Inventory::from_json("x", document.to_string().as_bytes()).unwrap()).collect();
        let names: Vec<HostName> = HOSTS.iter().map(|host| host.parse().unwrap()).collect();
        let envs = [Environment::read("env", text.as_bytes()).unwrap()];
        let logs = [Log::read("log", text.as_bytes())];
        let case = Case { hosts: &names, ordered: true, inventories: &inventories, plan: None, envs: &envs, logs: &logs };
        let diagnosis = examine(&case);
        diagnosis.findings.iter().chain(&diagnosis.notes).for_each(|finding| check(finding, 0));
        // Whatever is a cause says what to do.
        for finding in &diagnosis.findings {
            prop_assert!(finding.advice.is_some(), "{}", finding);
        }
    }

    /// Words of the language in any order, as who is in the middle of writing a script has them.
    #[test]
    fn any_words_of_a_shell_are_a_script_or_an_error(
        words in prop::collection::vec(prop::sample::select(&[
            "f()", "function", "g", "f", "{", "}", "(", ")", "if", "then", "elif", "else", "fi", "case", "in", "esac", ";;", "for", "while",
            "select", "do", "done", "\n", ";", "&&", "||", "|", "&", "<", ">", "2>&1", "<<EOF", "<<-'EOF'", "EOF", "<<<", "export", "unset",
            "declare -x", "set -a", "set -o allexport", "local", "exec", "exit", "return", "NCCL_DEBUG=INFO", "NCCL_ALGO+=Ring", "A=(1 2)", "=", "'",
            "\"", "$(", "${", "$((", "`", "\\", "-e", "--env=NCCL_ALGO=Ring", "docker run", "python3", "bash -c", "ssh h", "#", "$NCCL_ALGO", "[[", "]]",
            "[Service]", "Environment=", "UnsetEnvironment=", "services:", "environment:", "- ", ">-", "é",
        ][..]), 0..40),
        joint in prop::sample::select(&[" ", "", "\n", "\n  "][..]),
        name in prop::sample::select(&["run.sh", "x.service", "compose.yaml", "x.env"][..]),
    ) {
        let text = words.join(joint);
        let envs: Vec<Environment> = [text.clone(), format!("#!/bin/bash\n{text}")]
            .iter()
            .filter_map(|text| Environment::read(name, text.as_bytes()).ok())
            .collect();
        let inventories: Vec<Inventory> = base().iter().map(|document| Inventory::from_json("x", document.to_string().as_bytes()).unwrap()).collect();
        let names: Vec<HostName> = HOSTS.iter().map(|host| host.parse().unwrap()).collect();
        let case = Case { hosts: &names, ordered: true, inventories: &inventories, plan: None, envs: &envs, logs: &[] };
        for finding in &examine(&case).findings {
            check(finding, 0);
            prop_assert!(finding.advice.is_some(), "{}", finding);
        }
    }

    #[test]
    fn any_bytes_are_an_environment_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Environment::read("x", &bytes);
        let _ = Log::read("x", &bytes);
    }
}
