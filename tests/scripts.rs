//! The scripts of the plan folder: what bash makes of them, and what their functions make of what
//! iproute2 6.1 and 6.15 print (recorded by `tests/data/iproute2/record.sh`).

#![allow(clippy::unwrap_used)] // helpers of tests too

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hairpin_mesh::facts::Inventory;
use hairpin_mesh::folder::script::{mesh_down, mesh_up};
use hairpin_mesh::names::HostName;
use hairpin_mesh::plan::{Choices, OppositePaths, Options, Plan, RouteStrategy, assemble, plan};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Whether a tool can be started; a test that needs one says that it is left out.
fn installed(tool: &str) -> bool {
    let found = Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        common::not_tested("the scripts", &format!("no {tool}"));
    }
    found
}

/// Runs `script` in bash and gives what it prints. A failing script fails the test.
fn bash(script: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("script");
    std::fs::write(&file, script).unwrap();
    let output = Command::new("bash").arg(&file).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {stderr}\n{script}",
        output.status
    );
    assert_eq!(stderr, "");
    String::from_utf8(output.stdout).unwrap()
}

/// The hosts of a case: those that it has an inventory of, by name.
fn hosts_of(case: &Path) -> Vec<HostName> {
    let files = std::fs::read_dir(case.join("inventory")).unwrap();
    let mut hosts: Vec<HostName> = files
        .map(|f| {
            f.unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    hosts.sort();
    hosts
}

fn planned(case: &Path, opposite_paths: OppositePaths, strategy: RouteStrategy) -> Option<Plan> {
    let hosts = hosts_of(case);
    let inventories: Vec<Inventory> = hosts
        .iter()
        .map(|host| {
            let path = case.join(format!("inventory/{host}.json"));
            Inventory::from_json(&path.display().to_string(), &std::fs::read(&path).unwrap())
                .unwrap()
        })
        .collect();
    let options = Options {
        opposite_paths,
        ..Options::default()
    };
    let (made, ring) = plan(&hosts, &inventories, &options).plan?;
    let choices = Choices {
        opposite_paths,
        gid_index: made.gid_index,
        hairpin_queue_size: made.hairpin_queue_size,
        hairpin_queue_wanted: made.hairpin_queue_wanted,
        strategy,
        identities: Default::default(),
    };
    Some(assemble(&ring, &hosts, &choices).unwrap())
}

/// Every plan of the cases in `plans/`: both route strategies, two and (where the engine takes them)
/// four paths.
fn plans() -> Vec<(String, Plan)> {
    let mut plans = Vec::new();
    let mut cases: Vec<PathBuf> = std::fs::read_dir(root().join("plans"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    cases.sort();
    for case in cases.iter().filter(|c| c.join("expected.json").exists()) {
        for strategy in [RouteStrategy::AdjacentGateway, RouteStrategy::ScopeLink] {
            for paths in [OppositePaths::Two, OppositePaths::Four] {
                let name = format!(
                    "{} {strategy:?} {paths:?}",
                    case.file_name().unwrap().to_string_lossy()
                );
                plans.extend(planned(case, paths, strategy).map(|p| (name, p)));
            }
        }
    }
    assert!(plans.len() > 12, "{} plans", plans.len());
    plans
}

fn scripts(plan: &Plan) -> Vec<(String, String)> {
    let of = |host: &HostName| {
        let share = plan.for_host(host.as_str()).unwrap();
        [
            (format!("mesh-up-{host}.sh"), mesh_up(plan, &share)),
            (format!("mesh-down-{host}.sh"), mesh_down(plan, &share)),
        ]
    };
    plan.hosts.iter().flat_map(of).collect()
}

const TABLES: &str = "# --- This host, row by row";

/// The functions of a script, without its tables and the call that starts it.
fn functions(script: &str) -> &str {
    let end = script.find(TABLES).unwrap();
    &script[..end]
}

#[test]
fn bash_and_shellcheck_find_no_fault_in_any_script_of_any_case() {
    if !installed("bash") {
        return;
    }
    let shellcheck = installed("shellcheck");
    let mut checked = Vec::new();
    for (case, plan) in plans() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in scripts(&plan) {
            let file = dir.path().join(&name);
            std::fs::write(&file, &text).unwrap();
            let output = Command::new("bash").arg("-n").arg(&file).output().unwrap();
            assert!(
                output.status.success(),
                "{case} {name}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            // shellcheck takes a second each. The functions are the same in all: with them once, of
            // the others the tables alone.
            let both = checked.len() < 2;
            let tables = &text[text.find(TABLES).unwrap()..];
            let text = if both {
                text.clone()
            } else {
                format!("#!/bin/bash\n{}", tables.replace("\nmain ", "\n: "))
            };
            if shellcheck && !checked.contains(&text) {
                std::fs::write(&file, &text).unwrap();
                checked.push(text);
            } else {
                std::fs::remove_file(&file).unwrap();
            }
        }
        let files: Vec<PathBuf> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        if !files.is_empty() {
            let mut command = Command::new("shellcheck");
            // SC2317, SC2329: functions of the tables, called by name from what is left out here.
            let output = command
                .args(["--norc", "--exclude=SC2317,SC2329"])
                .args(&files)
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{case}: {}",
                String::from_utf8_lossy(&output.stdout)
            );
        }
    }
}

#[test]
fn the_tables_as_bash_reads_them_are_the_rows_of_the_plan() {
    if !installed("bash") {
        return;
    }
    for (case, plan) in plans() {
        for host in &plan.hosts {
            let share = plan.for_host(host.as_str()).unwrap();
            let mut wanted = String::new();
            let mut row = |cells: &[&dyn std::fmt::Display]| {
                for cell in cells {
                    let _ = writeln!(wanted, "{cell}");
                }
                wanted.push('\n');
            };
            for p in &share.ports {
                row(&[&p.netdev, &p.mac, &p.ipv4.address]);
            }
            for r in &share.rules {
                row(&[
                    &r.dev,
                    &r.pref,
                    &r.handle,
                    &r.protocol,
                    &r.src_mac,
                    &r.dst_mac,
                    &r.set_ethertype,
                    &r.set_dst_mac,
                    &r.redirect,
                ]);
            }
            for m in &share.markers {
                row(&[&m.device]);
            }
            for n in &share.neighbours {
                row(&[&n.dev, &n.address, &n.mac]);
            }
            for r in &share.routes {
                let gateway = r.gateway.map_or("-".to_owned(), |g| g.to_string());
                row(&[&r.destination, &gateway, &r.dev, &r.src]);
            }
            for text in [mesh_up(&plan, &share), mesh_down(&plan, &share)] {
                let tables = text[text.find(TABLES).unwrap()..].replace("\nmain ", "\n: ");
                let read = bash(&format!(
                    "{tables}\nshow() {{ printf '%s\\n' \"$@\" ''; }}\n\
                     for table in ports rules markers neighbours routes; do $table show; done\n"
                ));
                assert_eq!(read, wanted, "{case} {host}");
            }
        }
    }
}

#[test]
fn every_device_with_a_rule_gets_one_clsact_qdisc() {
    if !installed("bash") {
        return;
    }
    for (case, plan) in plans() {
        for host in &plan.hosts {
            let share = plan.for_host(host.as_str()).unwrap();
            let mut wanted: Vec<&str> = share.rules.iter().map(|r| r.dev.as_str()).collect();
            wanted.sort();
            wanted.dedup();
            let text = mesh_up(&plan, &share);
            let tables = text[text.find(TABLES).unwrap()..].replace("\nmain ", "\n: ");
            let read = bash(&format!(
                "{tables}\nshow() {{ printf '%s\\n' \"$@\"; }}\nclsacts show\n"
            ));
            let mut read: Vec<&str> = read.lines().collect();
            read.sort();
            assert_eq!(read, wanted, "{case} {host}");
        }
    }
}

#[test]
fn up_makes_rules_then_markers_then_routes_and_down_the_reverse() {
    let (_, plan) = plans().remove(0);
    let share = plan.for_host(plan.hosts[0].as_str()).unwrap();
    let order = |text: &str, steps: &[&str]| {
        let places: Vec<usize> = steps
            .iter()
            .map(|s| text.find(&format!("\n    {s}\n")).unwrap())
            .collect();
        assert!(places.is_sorted(), "{steps:?} at {places:?}");
    };
    order(
        &mesh_up(&plan, &share),
        &[
            "ports check_port",
            "clsacts check_clsact",
            "rules check_rule",
            "neighbours check_neighbour",
            "routes check_route",
            "clsacts make_clsact",
            "rules make_rule",
            "markers start_marker",
            "neighbours make_neighbour",
            "routes make_route",
        ],
    );
    order(
        &mesh_down(&plan, &share),
        &[
            "routes remove_route",
            "neighbours remove_neighbour",
            "markers stop_marker",
            "rules remove_rule",
            "clsacts drop_clsact",
        ],
    );
}

/// Runs `questions` with the functions of the script `text`, `ip` and `tc` answering the file
/// `$ANSWER` of both recorded versions; gives what is printed, which must be the same for both.
fn asked(text: &str, questions: &str) -> String {
    let [old, new] = ["6.1", "6.15"].map(|version| {
        let data = root().join("tests/data/iproute2").join(version);
        bash(&format!(
            "{}\n\
             DATA='{}'\n\
             ip() {{ printf '%s' \"$(<\"$DATA/$ANSWER.txt\")\"; }}\n\
             tc() {{ ip; }}\n\
             show() {{ printf '%s' \"$ANSWER $*: $STATE\"; printf ' [%s]' \"${{OTHERS[@]}}\"; echo; }}\n\
             {questions}\n\
             leave 0\n",
            functions(text),
            data.display(),
        ))
    });
    assert_eq!(old, new);
    old
}

fn a_script() -> String {
    let (_, plan) = plans().remove(0);
    mesh_up(&plan, &plan.for_host(plan.hosts[0].as_str()).unwrap())
}

/// `lines`, one a row, each `LABEL: what is wanted after it`.
#[track_caller]
fn assert_answers(answers: &str, wanted: &[(&str, &str)]) {
    let answers: Vec<(&str, &str)> = answers
        .lines()
        .map(|l| l.split_once(": ").unwrap())
        .collect();
    let labels: Vec<&str> = answers.iter().map(|(label, _)| *label).collect();
    assert_eq!(
        labels,
        wanted.iter().map(|(label, _)| *label).collect::<Vec<_>>()
    );
    for ((label, answer), (_, wanted)) in answers.iter().zip(wanted) {
        assert!(
            answer.starts_with(wanted),
            "{label}: {answer}, {wanted} wanted"
        );
    }
}

#[test]
fn a_rule_counts_as_present_only_when_everything_of_it_is_right() {
    if !installed("bash") {
        return;
    }
    let answers = asked(
        &a_script(),
        r#"
        ask() { # PREF [SOURCE DESTINATION TYPE NEW OUT]
            rule_state enp1s0f0np0 "$1" "$1" 0x88b5 "${2:-02:ca:fe:03:00:01}" "${3:-02:ca:fe:00:00:01}" \
                "${4:-0x0800}" "${5:-02:ca:fe:01:01:01}" "${6:-enp1s0f1np1}"
            show "$@"
        }
        ANSWER=filters
        for pref in {49151..49168}; do ask "$pref"; done
        ask 49152 02:ca:fe:03:00:02
        ask 49152 02:ca:fe:03:00:01 02:ca:fe:00:00:02
        ask 49152 02:ca:fe:03:00:01 02:ca:fe:00:00:01 0x0801
        ask 49152 02:ca:fe:03:00:01 02:ca:fe:00:00:01 0x0800 02:ca:fe:01:01:02
        ask 49152 02:ca:fe:03:00:01 02:ca:fe:00:00:01 0x0800 02:ca:fe:01:01:01 enp1s0f1np
        ANSWER=filters-none
        ask 49152
        "#,
    );
    assert_answers(
        &answers,
        &[
            ("filters 49151", "absent []"),
            ("filters 49152", "right []"),
            ("filters 49153", "stale []"), // skip_hw, not_in_hw
            ("filters 49154", "stale []"), // in_hw without skip_sw
            ("filters 49155", "stale []"), // a MAC with a mask
            ("filters 49156", "stale []"), // actions in another order
            ("filters 49157", "stale []"), // mirror in place of redirect
            ("filters 49158", "stale []"), // another MAC
            (
                "filters 49159",
                "absent [filter protocol [2048] pref 49159 flower chain 0 handle 0x1 ",
            ),
            (
                "filters 49160",
                "absent [filter protocol [34997] pref 49160 flower chain 0 handle 0x7 ",
            ),
            (
                "filters 49161",
                "absent [filter protocol [34997] pref 49161 matchall chain 0 handle 0x1 ",
            ),
            ("filters 49162", "absent []"), // in another chain
            ("filters 49163", "stale []"),  // one key more
            ("filters 49164", "stale []"),  // an action cookie
            (
                "filters 49165",
                "absent [filter protocol [2048] pref 49165 u32 chain 0 fh 800:",
            ),
            (
                "filters 49166",
                "stale [filter protocol [34997] pref 49166 flower chain 0 handle 0x8 ",
            ),
            ("filters 49167", "stale []"), // the target is gone
            ("filters 49168", "absent []"),
            ("filters 49152 02:ca:fe:03:00:02", "stale []"),
            (
                "filters 49152 02:ca:fe:03:00:01 02:ca:fe:00:00:02",
                "stale []",
            ),
            (
                "filters 49152 02:ca:fe:03:00:01 02:ca:fe:00:00:01 0x0801",
                "stale []",
            ),
            (
                "filters 49152 02:ca:fe:03:00:01 02:ca:fe:00:00:01 0x0800 02:ca:fe:01:01:02",
                "stale []",
            ),
            (
                "filters 49152 02:ca:fe:03:00:01 02:ca:fe:00:00:01 0x0800 02:ca:fe:01:01:01 enp1s0f1np",
                "stale []",
            ),
            ("filters-none 49152", "absent []"),
        ],
    );
}

#[test]
fn a_route_counts_as_present_only_when_everything_of_it_is_right() {
    if !installed("bash") {
        return;
    }
    let answers = asked(
        &a_script(),
        r#"
        for route in none right todays other-gateway other-source onlink mtu metric tos blackhole multipath \
            scope-link two; do
            ANSWER=route-$route
            route_state 10.10.1.11 10.10.0.11 enp1s0f0np0 10.10.0.10
            show "$PROTOCOL_NOW"
        done
        ANSWER=route-scope-link
        route_state 10.10.1.11 - enp1s0f0np0 10.10.0.10
        show ''
        ANSWER=route-right
        route_state 10.10.1.11 - enp1s0f0np0 10.10.0.10
        show ''
        route_state 10.10.1.11 10.10.0.11 enp1s0f0np 10.10.0.10
        show ''
        ip() { echo '1 10.10.1.11 via 10.10.0.11 dev enp1s0f0np0 proto 141 scope 0 src 10.10.0.10 linkdown rt_offload '; }
        route_state 10.10.1.11 10.10.0.11 enp1s0f0np0 10.10.0.10
        show ''
        "#,
    );
    assert_answers(
        &answers,
        &[
            ("route-none ", "absent []"),
            ("route-right ", "right []"),
            ("route-todays 3", "adopt []"),
            // With our protocol number and another content: of another plan.
            ("route-other-gateway ", "stale []"),
            ("route-other-source ", "stale []"),
            ("route-onlink ", "stale []"),
            ("route-mtu ", "stale []"),
            ("route-metric ", "absent [route"),
            ("route-tos ", "absent [route"),
            (
                "route-blackhole ",
                "absent [route 10.10.1.11 proto 3 scope 0 (of type 6)]",
            ),
            ("route-multipath ", "absent [route"),
            ("route-scope-link ", "stale []"),
            ("route-two ", "right [route 10.10.1.11 via 10.10.0.12"),
            ("route-scope-link ", "right []"),
            ("route-right ", "stale []"),
            ("route-right ", "stale []"),
            ("route-right ", "right []"),
        ],
    );
}

#[test]
fn qdiscs_neighbours_links_and_addresses_are_read_as_they_are() {
    if !installed("bash") {
        return;
    }
    let answers = asked(
        &a_script(),
        r#"
        for ANSWER in qdisc-none qdisc-clsact qdisc-ingress qdisc-shared-block; do
            clsact_state enp1s0f0np0
            show
        done
        for ANSWER in none right right-with-protocol other-mac noarp learnt; do
            ANSWER=neighbour-$ANSWER
            neighbour_state enp1s0f0np0 10.10.1.11 02:ca:fe:01:01:01
            show
        done
        OTHERS=()
        for ANSWER in link-up link-down link-no-carrier; do
            link_of enp1s0f0np0
            STATE="$LINK $MTU_NOW"
            show
        done
        for ANSWER in addresses addresses-none addresses-two; do
            addresses_of enp1s0f0np0
            STATE=$ADDRESSES
            show
        done
        "#,
    );
    assert_answers(
        &answers.replace(" : ", ": "),
        &[
            ("qdisc-none", "absent []"),
            ("qdisc-clsact", "right []"),
            (
                "qdisc-ingress",
                "absent [qdisc ingress ffff: parent ffff:fff1",
            ),
            (
                "qdisc-shared-block",
                "absent [qdisc clsact ffff: parent ffff:fff1 ingress_block 5]",
            ),
            ("neighbour-none", "absent []"),
            ("neighbour-right", "right []"),
            ("neighbour-right-with-protocol", "right []"),
            (
                "neighbour-other-mac",
                "absent [neighbour 10.10.1.11 lladdr 02:ca:fe:03:00:01 PERMANENT]",
            ),
            (
                "neighbour-noarp",
                "absent [neighbour 10.10.1.11 lladdr 02:ca:fe:01:01:01 NOARP]",
            ),
            ("neighbour-learnt", "absent []"),
            ("link-up", "yes 9000 []"),
            ("link-down", "no 1500 []"),
            ("link-no-carrier", "no 1500 []"),
            ("addresses", " 10.10.0.10 []"),
            ("addresses-none", " []"),
            ("addresses-two", " 10.10.1.1 10.10.1.3 []"),
        ],
    );
}

#[test]
fn a_command_that_fails_is_not_taken_for_an_empty_answer() {
    if !installed("bash") {
        return;
    }
    let answers = asked(
        &a_script(),
        r#"
        exec 2>/dev/null
        ip() { return 1; }
        tc() { return 1; }
        systemctl() { return 1; }
        for question in 'clsact_state enp1s0f0np0' 'route_state 10.10.1.11 10.10.0.11 enp1s0f0np0 10.10.0.10' \
            'rule_state enp1s0f0np0 1 1 0x88b5 02:ca:fe:03:00:01 02:ca:fe:00:00:01 0x0800 02:ca:fe:01:01:01 enp1s0f1np1' \
            'neighbour_state enp1s0f0np0 10.10.1.11 02:ca:fe:01:01:01' 'marker_state rocep1s0f0' \
            'link_of enp1s0f0np0' 'addresses_of enp1s0f0np0'; do
            read -ra words <<<"$question"
            if "${words[@]}"; then echo "$question: read"; else echo "${words[0]}: not read"; fi
        done
        "#,
    );
    assert_eq!(answers.lines().count(), 7);
    assert!(
        answers.lines().all(|l| l.ends_with(": not read")),
        "{answers}"
    );
}
