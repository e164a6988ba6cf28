//! Every folder below `tests/doctor/cases` is a fault: a change of a healthy ring's facts, and what the real
//! program must say of it. `tests/doctor/README.md` has the format.
//!
//! `UPDATE_GOLDEN=1 cargo test --test doctor` writes what comes out in place of comparing it: for review,
//! never blindly.

#![allow(clippy::unwrap_used, clippy::panic)] // in helpers of tests too

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doctor")
}

/// Documents by host.
type Facts = BTreeMap<String, Value>;

fn facts(folder: &Path) -> Facts {
    let mut facts = Facts::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let host = path.file_stem().unwrap().to_str().unwrap().to_owned();
        facts.insert(
            host,
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap(),
        );
    }
    facts
}

fn write(facts: &Facts, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    for (host, document) in facts {
        std::fs::write(folder.join(format!("{host}.json")), document.to_string()).unwrap();
    }
}

/// Does `what` with every value that a path leads to: keys, positions, `*`, or `[key=value]` for the rows
/// that have it, joined by `/`.
fn at(value: &mut Value, path: &str, what: &mut dyn FnMut(&mut Value, &str)) {
    let (first, rest) = match path.split_once('/') {
        None => return what(value, path),
        // A selector may have a `/` in it.
        Some((first, _)) if first.starts_with('[') && !first.ends_with(']') => {
            let end = path.find(']').unwrap() + 1;
            match path[end..].strip_prefix('/') {
                None => return what(value, path),
                Some(rest) => (&path[..end], rest),
            }
        }
        Some(parts) => parts,
    };
    match value {
        Value::Array(rows) => {
            for i in positions(rows, first) {
                at(&mut rows[i], rest, what);
            }
        }
        Value::Object(_) if first == "*" => {
            for (_, value) in value.as_object_mut().unwrap().iter_mut() {
                at(value, rest, what);
            }
        }
        Value::Object(object) => {
            let value = object
                .get_mut(first)
                .unwrap_or_else(|| panic!("no {first} on the way to {path}"));
            at(value, rest, what);
        }
        other => panic!("{other} on the way to {path}"),
    }
}

fn positions(rows: &[Value], which: &str) -> Vec<usize> {
    let is = |row: &Value| match which.strip_prefix('[').and_then(|w| w.strip_suffix(']')) {
        Some(condition) => {
            let (key, wanted) = condition.split_once('=').unwrap();
            match &row[key] {
                Value::String(text) => text == wanted,
                other => other.to_string().as_str() == wanted,
            }
        }
        None => which == "*",
    };
    if let Ok(position) = which.parse::<usize>() {
        return vec![position];
    }
    let found: Vec<usize> = (0..rows.len()).filter(|i| is(&rows[*i])).collect();
    assert!(!found.is_empty(), "no row {which}");
    found
}

/// One step of a change.
fn change(facts: &mut Facts, step: &Value) {
    let hosts = step["host"].as_str().unwrap();
    if step["without"] == Value::Bool(true) {
        facts.remove(hosts).unwrap();
        return;
    }
    for (host, document) in facts.iter_mut() {
        if hosts != "*" && !hosts.split(' ').any(|own| own == host) {
            continue;
        }
        if let Some(path) = step.get("set").and_then(Value::as_str) {
            let to = &step["to"];
            at(document, path, &mut |value, last| match value {
                Value::Array(rows) => {
                    for i in positions(rows, last) {
                        rows[i] = to.clone();
                    }
                }
                Value::Object(_) if last == "*" => {
                    value
                        .as_object_mut()
                        .unwrap()
                        .values_mut()
                        .for_each(|value| *value = to.clone());
                }
                Value::Object(object) => {
                    object.insert(last.to_owned(), to.clone());
                }
                other => panic!("{other} at {path}"),
            });
        } else if let Some(path) = step.get("remove").and_then(Value::as_str) {
            at(document, path, &mut |value, last| match value {
                Value::Array(rows) => {
                    let gone = positions(rows, last);
                    let mut i = 0;
                    rows.retain(|_| {
                        i += 1;
                        !gone.contains(&(i - 1))
                    });
                }
                Value::Object(object) => {
                    object.remove(last).unwrap_or_else(|| panic!("no {last}"));
                }
                other => panic!("{other} at {path}"),
            });
        } else if let Some(path) = step.get("add").and_then(Value::as_str) {
            let row = &step["row"];
            at(document, &format!("{path}/-"), &mut |value, _| {
                value.as_array_mut().unwrap().push(row.clone())
            });
        } else if let Some([from, to]) = step
            .get("replace")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
        {
            // A text everywhere: an address or a MAC that was another from the start.
            let (from, to) = (from.as_str().unwrap(), to.as_str().unwrap());
            let text = document.to_string();
            assert!(text.contains(from), "no {from} in {host}");
            *document = serde_json::from_str(&text.replace(from, to)).unwrap();
        } else if let Some([one, other]) = step
            .get("exchange")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
        {
            // Two texts everywhere.
            let (one, other) = (one.as_str().unwrap(), other.as_str().unwrap());
            let text = document
                .to_string()
                .replace(one, "\u{1}")
                .replace(other, one)
                .replace('\u{1}', other);
            *document = serde_json::from_str(&text).unwrap();
        } else {
            panic!("{step}: no step");
        }
    }
}

struct Case {
    folder: PathBuf,
    facts: Facts,
}

fn cases() -> Vec<Case> {
    let healthy = facts(&root().join("base"));
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root().join("cases"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    folders
        .into_iter()
        .map(|folder| {
            let mut facts = healthy.clone();
            let steps: Value =
                serde_json::from_slice(&std::fs::read(folder.join("change.json")).unwrap())
                    .unwrap();
            for step in steps.as_array().unwrap() {
                change(&mut facts, step);
            }
            Case { folder, facts }
        })
        .collect()
}

fn doctor(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
        .current_dir(folder)
        .arg("doctor")
        .args(arguments)
        .output()
        .unwrap()
}

/// The verdict as lines: exit code, then causes with what follows, then notes.
fn verdict(output: &Output) -> String {
    fn lines(text: &mut String, finding: &Value, depth: usize) {
        let word = |key: &str| {
            finding[key]
                .as_str()
                .map_or(String::new(), |word| format!(" {word}"))
        };
        let about = format!("{}{}", word("host"), word("object"));
        *text += &format!(
            "{}{} {}{about}: {}, {} wanted\n",
            "    ".repeat(depth),
            finding["severity"].as_str().unwrap(),
            finding["code"].as_str().unwrap(),
            finding["found"].as_str().unwrap(),
            finding["wanted"].as_str().unwrap()
        );
        if depth == 0 {
            if let Some(advice) = finding["advice"].as_str() {
                *text += &format!("  do: {advice}\n");
            }
        }
        for consequence in finding["consequences"].as_array().into_iter().flatten() {
            lines(text, consequence, depth + 1);
        }
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!(
            "{e}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    });
    let mut text = format!("exit {}\n", output.status.code().unwrap());
    for finding in report["findings"].as_array().into_iter().flatten() {
        lines(&mut text, finding, 0);
    }
    for note in report["notes"].as_array().into_iter().flatten() {
        text += &format!(
            "note {}: {}\n",
            note["code"].as_str().unwrap(),
            note["found"].as_str().unwrap()
        );
    }
    for one in report["cabling"]["moves"].as_array().into_iter().flatten() {
        text += &format!("move {}\n", one.as_str().unwrap());
    }
    text
}

fn arguments(case: &Case) -> Vec<String> {
    let mut arguments: Vec<String> = vec!["--json".into()];
    let given = std::fs::read_to_string(case.folder.join("arguments")).unwrap_or_default();
    arguments.extend(given.split_whitespace().map(str::to_owned));
    for (file, option) in [("env.txt", "--env"), ("nccl.log", "--nccl-log")] {
        if case.folder.join(file).is_file() {
            arguments.extend([option.to_owned(), file.to_owned()]);
        }
    }
    arguments
}

#[test]
fn every_case_has_its_verdict() {
    let cases = cases();
    assert!(cases.len() >= 60, "{} cases", cases.len());
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
    std::fs::write(folder.join("spark2.json"), "{").unwrap();
    trouble(&["--inventory", "."], "spark2.json");
}

#[test]
fn a_watch_needs_functions_and_live_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let output = doctor(dir.path(), &["--watch", "1", "--inventory", "."]);
    assert_eq!(output.status.code(), Some(2));
    let output = doctor(dir.path(), &["--metrics", "x.prom"]);
    assert_eq!(output.status.code(), Some(2));
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
