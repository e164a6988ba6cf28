//! Every folder below `tests/doctor/cases` is a fault: a change of a healthy ring's facts, and what the real
//! program must say of it. `tests/doctor/README.md` has the format.
//!
//! `UPDATE_GOLDEN=1 cargo test --test doctor` writes what comes out in place of comparing it: for review,
//! never blindly.

#![allow(clippy::unwrap_used, clippy::panic)] // in helpers of tests too

#[path = "doctor/changes.rs"]
mod changes;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use changes::{Case, Facts, cases, facts, root};

fn write(facts: &Facts, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    for (host, document) in facts {
        std::fs::write(folder.join(format!("{host}.json")), document.to_string()).unwrap();
    }
}

fn doctor(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
        .current_dir(folder)
        .arg("doctor")
        .args(arguments)
        .output()
        .unwrap()
}

/// The verdict of a run.
fn verdict(output: &Output) -> String {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!(
            "{e}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    });
    changes::verdict(&report, output.status.code().unwrap())
}

fn arguments(case: &Case) -> Vec<String> {
    let mut arguments: Vec<String> = vec!["--json".into()];
    let given = std::fs::read_to_string(case.folder.join("arguments")).unwrap_or_default();
    arguments.extend(given.split_whitespace().map(str::to_owned));
    if case.folder.join("env.txt").is_file() {
        arguments.extend(["--env".to_owned(), "env.txt".to_owned()]);
    }
    for log in case.logs() {
        arguments.extend(["--nccl-log".to_owned(), log]);
    }
    arguments
}

#[test]
fn every_case_has_its_verdict() {
    let cases = cases();
    assert!(cases.len() >= 140, "{} cases", cases.len());
    let mut complaints = Vec::new();
    for case in &cases {
        let dir = tempfile::tempdir().unwrap();
        write(&case.facts, dir.path());
        let arguments = arguments(case);
        let inventory = dir.path().to_str().unwrap();
        let words: Vec<&str> = ["--inventory", inventory]
            .into_iter()
            .chain(arguments.iter().map(String::as_str))
            .collect();
        let first = doctor(&case.folder, &words);
        let again = doctor(&case.folder, &words);
        assert_eq!(
            first.stdout,
            again.stdout,
            "{}: not the same twice",
            case.folder.display()
        );
        let got = verdict(&first);
        // Whatever is on top says what to do about it.
        let lines: Vec<&str> = got.lines().collect();
        for (i, line) in lines.iter().enumerate().skip(1) {
            let on_top = !line.starts_with([' ', 'n', 'm']) || line.starts_with("not-observed");
            if on_top
                && !lines
                    .get(i + 1)
                    .is_some_and(|next| next.starts_with("  do: "))
            {
                complaints.push(format!("{}: {line}: what is to do?", case.folder.display()));
            }
        }
        let wanted = case.folder.join("expected.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&wanted, &got).unwrap();
        } else if std::fs::read_to_string(&wanted).unwrap_or_default() != got {
            complaints.push(format!("{}: got\n{got}", wanted.display()));
        }
        // For people it is another form of the same: the same verdict, and every code is in it.
        let words: Vec<&str> = words.into_iter().filter(|word| *word != "--json").collect();
        let people = doctor(&case.folder, &words);
        assert_eq!(
            people.status.code(),
            first.status.code(),
            "{}",
            case.folder.display()
        );
        let text = String::from_utf8(people.stdout).unwrap();
        for line in got.lines().filter(|line| {
            !line.starts_with(['e', 'n', 'm']) && !line.trim_start().starts_with("do:")
        }) {
            let code = line
                .split_whitespace()
                .nth(1)
                .unwrap()
                .trim_end_matches(':');
            assert!(
                text.contains(&format!("[{code}]")),
                "{}: {code} is not told",
                case.folder.display()
            );
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_healthy_ring_is_found_healthy_in_every_layout() {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    let mut folders = vec![root().join("base")];
    for entry in std::fs::read_dir(plans).unwrap() {
        let inventory = entry.unwrap().path().join("inventory");
        // What waits to be loaded is no fault of a plan, and one of a ring.
        let pending = inventory.to_str().unwrap().contains("queue-pending");
        if inventory.is_dir() && !pending {
            folders.push(inventory);
        }
    }
    assert!(folders.len() > 12);
    for folder in folders {
        let output = doctor(&folder, &["--inventory", ".", "--json"]);
        let text = verdict(&output);
        assert!(text.starts_with("exit 0\n"), "{}: {text}", folder.display());
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with("note hairpin-queue-")
                    || line.starts_with("note port-address-198-18")),
            "{text}"
        );
    }
}

#[test]
fn every_refused_ring_has_a_finding() {
    let refused = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/refused");
    for entry in std::fs::read_dir(refused).unwrap() {
        let folder = entry.unwrap().path();
        let arguments = std::fs::read_to_string(folder.join("arguments")).unwrap_or_default();
        // What refuses only a wish of the command line is no fault of the fabric.
        if arguments.contains("--") || folder.ends_with("a-host-twice") {
            continue;
        }
        let output = doctor(&folder, &["--inventory", "inventory", "--json"]);
        assert_eq!(output.status.code(), Some(1), "{}", folder.display());
    }
}

#[test]
fn what_cannot_be_read_is_trouble() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let trouble = |arguments: &[&str], word: &str| {
        let output = doctor(folder, &[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["schema"], "hairpin-mesh.doctor-report/v1");
        let text = report["trouble"].to_string();
        assert!(text.contains(word), "{arguments:?}: {text}");
    };
    trouble(&["--inventory", "."], "no facts");
    trouble(&["--inventory", "gone"], "gone");
    write(&facts(&root().join("base")), folder);
    trouble(&["--inventory", ".", "spark1", "spark9"], "spark9");
    trouble(&["--inventory", ".", "spark1", "spark1"], "twice");
    trouble(&["--inventory", ".", "--env", "no.txt"], "no.txt");
    trouble(&["--inventory", ".", "--nccl-log", "no.log"], "no.log");
    trouble(&["--inventory", ".", "--plan", "no.json"], "no.json");
    // Of a plan's hosts, those that are here are told all the same.
    let plan = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("plans/own-inventories-queue-applied/ring-mesh/plan.json");
    let plan = ["--inventory", ".", "--plan", plan.to_str().unwrap()];
    std::fs::remove_file(folder.join("spark4.json")).unwrap();
    let output = doctor(folder, &[&plan[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["failed"][0]["host"], "spark4");
    assert_eq!(report["hosts"].as_array().unwrap().len(), 3);
    assert_eq!(report["healthy"], false);
    let text = String::from_utf8(doctor(folder, &plan).stdout).unwrap();
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("not observed") && first.ends_with("spark3; not read: spark4"),
        "{text}"
    );
    for host in ["spark1", "spark2", "spark3"] {
        std::fs::remove_file(folder.join(format!("{host}.json"))).unwrap();
    }
    trouble(&plan, "spark1.json");
    write(&facts(&root().join("base")), folder);
    std::fs::write(folder.join("spark2.json"), "{").unwrap();
    trouble(&["--inventory", "."], "spark2.json");
    // What an editor leaves beside is nobody's.
    write(&facts(&root().join("base")), folder);
    std::fs::write(folder.join(".spark2.json"), "{").unwrap();
    std::fs::write(folder.join(".#spark2.json"), "{").unwrap();
    let output = doctor(folder, &["--inventory", "."]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// The facts of a case, in a folder of their own.
fn facts_of(case: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let cases = cases();
    let case = cases.iter().find(|own| own.folder.ends_with(case)).unwrap();
    write(&case.facts, dir.path());
    dir
}

#[test]
fn a_ring_of_addresses_alone_is_called_so() {
    for (case, wanted) in [
        (
            "healthy",
            "ring        spark1 - spark2 - spark3 - spark4 - spark1\n",
        ),
        (
            "two-plugs-exchanged-on-one-node",
            "ring        spark1 - spark2 - spark3 - spark4 - spark1, by the addresses; the wires lead elsewhere\n",
        ),
        (
            "two-cables-exchanged-between-nodes",
            "- spark1, by the addresses; the wires lead elsewhere\n",
        ),
    ] {
        let dir = facts_of(case);
        let output = doctor(dir.path(), &["--inventory", "."]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(wanted), "{case}: {text}");
    }
}

#[test]
fn a_plan_of_a_ring_whose_wires_lead_elsewhere_is_made_with_a_warning() {
    for (case, warned) in [
        ("healthy", false),
        ("two-plugs-exchanged-on-one-node", true),
    ] {
        let dir = facts_of(case);
        let output = Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
            .current_dir(dir.path())
            .args(["plan", "--inventory", ".", "--json"])
            .args(["spark1", "spark2", "spark3", "spark4"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{case}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        let wires: Vec<&Value> = findings
            .iter()
            .filter(|finding| finding["code"] == "cabling-wire-differs")
            .collect();
        assert_eq!(wires.len(), usize::from(warned), "{case}: {findings:?}");
        assert_eq!(
            String::from_utf8_lossy(&output.stderr).contains("7 more of the kind"),
            warned,
            "{output:?}"
        );
        assert!(wires.iter().all(|finding| finding["severity"] == "warning"));
    }
}

#[test]
fn a_watch_needs_functions_and_live_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let output = doctor(dir.path(), &["--watch", "1", "--inventory", "."]);
    assert_eq!(output.status.code(), Some(2));
    let output = doctor(dir.path(), &["--metrics", "x.prom"]);
    assert_eq!(output.status.code(), Some(2));
    for other in [
        ["--inventory", "."],
        ["--env", "x"],
        ["--nccl-log", "x"],
        ["--nccl-library", "/x"],
    ] {
        for own in [["--metrics", "x.prom"], ["--device", "rocep1s0f0"]] {
            let output = doctor(dir.path(), &[own, other].concat());
            assert_eq!(output.status.code(), Some(2), "{own:?} {other:?}");
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(told.contains("cannot be used with"), "{told}");
        }
    }
    let output = doctor(dir.path(), &["--metrics", "x.prom", "--wire", "spark1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be used with"));
    let output = doctor(
        dir.path(),
        &[
            "--watch",
            "1",
            "--device",
            "no-such-device",
            "--metrics",
            "x.prom",
        ],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no fabric function"),
        "{output:?}"
    );
    assert!(!dir.path().join("x.prom").exists());
}

#[test]
fn a_path_of_a_library_that_a_shell_would_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["/opt/$(id)", "/a b", "relative/libnccl.so.2", "/a;b"] {
        let output = doctor(dir.path(), &["--nccl-library", path, "spark1"]);
        assert_eq!(output.status.code(), Some(2), "{path}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("absolute path"),
            "{output:?}"
        );
    }
}
