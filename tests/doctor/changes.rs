// The cases of `tests/doctor`: facts of a healthy ring, changed. Read by `tests/doctor.rs`, which runs the
// real program on them, and by the checks' own tests in `src/doctor`, which run without it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doctor")
}

/// Documents by host.
pub type Facts = BTreeMap<String, Value>;

pub fn facts(folder: &Path) -> Facts {
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

pub struct Case {
    pub folder: PathBuf,
    pub facts: Facts,
}

impl Case {
    /// Names of its logs, in order: `nccl.log`, or `nccl.0.log`, `nccl.1.log` ... of several.
    pub fn logs(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let is_log = |name: &String| name.starts_with("nccl.") && name.ends_with(".log");
        let mut logs: Vec<String> = names.filter(is_log).collect();
        logs.sort();
        logs
    }
}

pub fn cases() -> Vec<Case> {
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

/// The verdict as lines: exit code, then causes with what follows, then notes. `report` is a diagnosis.
pub fn verdict(report: &Value, code: i32) -> String {
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
    let mut text = format!("exit {}\n", code);
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
