//! Every folder below `plans/` is a case: what goes in, and what must come out of the real program.
//!
//! `UPDATE_GOLDEN=1 cargo test --test plan_cases` writes what comes out in place of comparing it:
//! for review, never blindly.

#![allow(clippy::unwrap_used, clippy::panic)] // in helpers of tests too

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn cases(group: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("plans")
        .join(group);
    let mut cases: Vec<PathBuf> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("inventory").is_dir() || path.join("topology.json").is_file())
        .collect();
    cases.sort();
    assert!(!cases.is_empty(), "no cases in plans/{group}");
    cases
}

/// Runs `plan` in the case's folder, so that messages name relative paths.
fn plan(case: &Path, out: &Path, more: &[&str]) -> Output {
    let input = if case.join("topology.json").is_file() {
        ["--topology", "topology.json"]
    } else {
        ["--inventory", "inventory"]
    };
    let arguments = std::fs::read_to_string(case.join("arguments"))
        .unwrap_or_else(|_| "spark1 spark2 spark3 spark4".into());
    Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
        .current_dir(case)
        .arg("plan")
        .args(input)
        .arg("--out")
        .arg(out)
        .args(more)
        .args(arguments.split_whitespace())
        .output()
        .unwrap()
}

/// All files below a folder, by relative path.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(folder: &Path, root: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, files);
            } else {
                let name = path
                    .strip_prefix(root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                files.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    if root.is_dir() {
        walk(root, root, &mut found);
    }
    found
}

fn updating() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

/// Compares with a golden file (or writes it) and gives the complaint, if there is one.
fn golden(path: &Path, got: &[u8]) -> Option<String> {
    if updating() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, got).unwrap();
        return None;
    }
    match std::fs::read(path) {
        Ok(wanted) if wanted == got => None,
        Ok(wanted) => {
            let (wanted, got) = (
                String::from_utf8_lossy(&wanted),
                String::from_utf8_lossy(got),
            );
            let line = wanted
                .lines()
                .zip(got.lines())
                .position(|(a, b)| a != b)
                .unwrap_or_default();
            Some(format!(
                "{} differs at line {}:\n  wanted {:?}\n  got    {:?}",
                path.display(),
                line + 1,
                wanted.lines().nth(line),
                got.lines().nth(line)
            ))
        }
        Err(e) => Some(format!("{}: {e}", path.display())),
    }
}

/// The case in which the scripts of spark1 are kept whole.
const WHOLE_SCRIPTS: &str = "tp-along-ring";

/// The plan folder of the case whose scripts are kept whole, made once.
fn whole_scripts() -> &'static BTreeMap<String, Vec<u8>> {
    static MADE: std::sync::OnceLock<BTreeMap<String, Vec<u8>>> = std::sync::OnceLock::new();
    MADE.get_or_init(|| {
        let case = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("plans")
            .join(WHOLE_SCRIPTS);
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("ring-mesh");
        assert!(plan(&case, &out, &[]).status.success());
        files(&out)
    })
}

/// The functions of a script are the same on every host of every case, so all but one keep a script
/// without them, as `<script>.short`: what is before them and what is after. That they are the same is
/// checked here, against the case that keeps them.
fn shortened(wanted: &Path, bytes: &[u8]) -> (PathBuf, Vec<u8>) {
    let case = wanted.parent().and_then(Path::parent).unwrap();
    let whole = case.ends_with(WHOLE_SCRIPTS)
        && wanted
            .file_stem()
            .is_some_and(|stem| stem.to_str().unwrap().ends_with("-spark1"));
    if wanted.extension().is_none_or(|e| e != "sh") || whole {
        return (wanted.to_owned(), bytes.to_vec());
    }
    fn parts(script: &str) -> (&str, &str, &str) {
        let begin = script
            .find("\n\n# Where a clsact")
            .expect("the settings end")
            + 1;
        let end = script.find("# --- This host").expect("the tables begin");
        (&script[..begin], &script[begin..end], &script[end..])
    }
    let name = wanted.file_name().unwrap().to_str().unwrap();
    let whole = if name.starts_with("mesh-up-") {
        "mesh-up-spark1.sh"
    } else {
        "mesh-down-spark1.sh"
    };
    let whole = std::str::from_utf8(&whole_scripts()[whole]).unwrap();
    let script = String::from_utf8(bytes.to_vec()).unwrap();
    let (before, functions, after) = parts(&script);
    assert!(
        functions == parts(whole).1,
        "{}: its functions are its own",
        wanted.display()
    );
    let short =
        format!("{before}\n# ... the functions, as in plans/{WHOLE_SCRIPTS} ...\n\n{after}");
    (wanted.with_extension("sh.short"), short.into_bytes())
}

fn check(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_ring_gives_its_plan_folder_to_the_byte() {
    let mut complaints = Vec::new();
    for case in cases("").into_iter().chain(cases("topology")) {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("ring-mesh");
        let output = plan(&case, &out, &[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        if output.status.code() != Some(0) {
            complaints.push(format!("{}: {}\n{stderr}", case.display(), output.status));
            continue;
        }
        complaints.extend(golden(&case.join("ring-mesh.stderr"), stderr.as_bytes()));
        let made = files(&out);
        let wanted_folder = case.join("ring-mesh");
        if updating() {
            let _ = std::fs::remove_dir_all(&wanted_folder);
        }
        for (name, bytes) in &made {
            // What it was made from is the case's own input and not stored twice.
            let wanted = match name.as_str() {
                "topology.json" => case.join(name),
                name if name.starts_with("inventory/") => case.join(name),
                name => wanted_folder.join(name),
            };
            if wanted.starts_with(&wanted_folder) {
                let (wanted, bytes) = shortened(&wanted, bytes);
                complaints.extend(golden(&wanted, &bytes));
            } else if std::fs::read(&wanted).unwrap() != *bytes {
                complaints.push(format!("{}: {name} is not the input", case.display()));
            }
        }
        for name in files(&wanted_folder)
            .keys()
            .filter(|name| !made.contains_key(name.trim_end_matches(".short")))
        {
            complaints.push(format!("{}: {name} is missing", case.display()));
        }
    }
    check(complaints);
}

/// `expected.json`: what a case must come to, written by others than this program.
#[test]
fn public_cases_come_to_what_they_must() {
    fn sorted(rows: impl IntoIterator<Item = Value>) -> Vec<String> {
        let mut rows: Vec<String> = rows.into_iter().map(|row| row.to_string()).collect();
        rows.sort();
        rows
    }
    let mut compared = 0;
    for case in cases("") {
        let Ok(expected) = std::fs::read(case.join("expected.json")) else {
            continue;
        };
        compared += 1;
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("ring-mesh");
        assert!(plan(&case, &out, &[]).status.success());
        let plan: Value =
            serde_json::from_slice(&std::fs::read(out.join("plan.json")).unwrap()).unwrap();
        let rows = |document: &Value, key: &str| document[key].as_array().unwrap().clone();
        assert_eq!(plan["ring"], expected["order"], "{}", case.display());
        assert_eq!(
            plan["peer_maps"],
            expected["peer_maps"],
            "{}",
            case.display()
        );
        assert_eq!(
            plan["size_cap_bytes"],
            expected["cap"],
            "{}",
            case.display()
        );
        assert_eq!(
            sorted(rows(&plan, "routes")),
            sorted(rows(&expected, "routes")),
            "{}",
            case.display()
        );
        let rules = rows(&plan, "rules").into_iter().map(|mut rule| {
            let constants = ["protocol", "set_ethertype"]
                .map(|key| rule.as_object_mut().unwrap().remove(key).unwrap());
            assert_eq!(constants, ["0x88b5", "0x0800"]);
            rule
        });
        assert_eq!(
            sorted(rules),
            sorted(rows(&expected, "rules")),
            "{}",
            case.display()
        );
        let markers = rows(&plan, "markers")
            .into_iter()
            .map(|m| serde_json::json!([m["host"], m["device"]]));
        assert_eq!(
            sorted(markers),
            sorted(rows(&expected, "markers")),
            "{}",
            case.display()
        );
    }
    assert_eq!(compared, 7);
}

#[test]
fn every_refused_ring_is_refused_with_all_its_problems_and_nothing_is_written() {
    let mut complaints = Vec::new();
    for case in cases("refused")
        .into_iter()
        .chain(cases("topology-refused"))
    {
        complaints.extend(refused(&case, 1));
    }
    check(complaints);
}

#[test]
fn what_is_not_an_inventory_or_topology_is_trouble_that_names_its_place() {
    let mut complaints = Vec::new();
    for case in cases("not-an-inventory") {
        complaints.extend(refused(&case, 2));
    }
    check(complaints);
}

fn refused(case: &Path, code: i32) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("ring-mesh");
    let output = plan(case, &out, &[]);
    let mut complaints: Vec<String> = golden(&case.join("refused.txt"), &output.stderr)
        .into_iter()
        .collect();
    if output.status.code() != Some(code) {
        complaints.push(format!(
            "{}: {}, exit code {code} wanted",
            case.display(),
            output.status
        ));
    }
    if !output.stdout.is_empty() || std::fs::read_dir(dir.path()).unwrap().next().is_some() {
        complaints.push(format!("{}: something was written", case.display()));
    }
    let report: Option<Value> = serde_json::from_slice(&plan(case, &out, &["--json"]).stdout).ok();
    match (code, report) {
        (1, Some(report)) => {
            let problems = report["findings"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|f| f["severity"] == "problem")
                .count();
            let lines = String::from_utf8_lossy(&output.stderr)
                .lines()
                .filter(|l| !l.starts_with("warning: ") && !l.starts_with("FAIL: "))
                .count();
            if (report["planned"].as_bool(), problems) != (Some(false), lines) {
                complaints.push(format!(
                    "{}: the report and the lines disagree",
                    case.display()
                ));
            }
        }
        (2, Some(report)) => {
            let trouble = report["trouble"].as_array().unwrap();
            let lines = String::from_utf8_lossy(&output.stderr).lines().count();
            if (report["planned"].as_bool(), trouble.len()) != (Some(false), lines) {
                complaints.push(format!(
                    "{}: the report and the lines disagree",
                    case.display()
                ));
            }
        }
        _ => complaints.push(format!(
            "{}: a report where none or none where one is wanted",
            case.display()
        )),
    }
    complaints
}

#[test]
fn a_refused_plan_leaves_the_folder_of_before_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("ring-mesh");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    assert!(
        plan(&root.join("tp-along-ring"), &out, &[])
            .status
            .success()
    );
    let before = files(&out);
    assert_eq!(
        plan(&root.join("refused/mtu-1500"), &out, &[])
            .status
            .code(),
        Some(1)
    );
    assert_eq!(
        plan(&root.join("not-an-inventory/cut-short"), &out, &[])
            .status
            .code(),
        Some(2)
    );
    assert_eq!(files(&out), before);
    assert!(plan(&root.join("queue-8192"), &out, &[]).status.success());
    assert_ne!(files(&out), before);
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "nothing is left beside the folder"
    );
}

#[test]
fn a_plan_can_be_made_again_from_its_own_folder() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("ring-mesh");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    assert!(
        plan(&root.join("tp-along-ring"), &out, &[])
            .status
            .success()
    );
    let before = files(&out);
    let again = |input: [&str; 2]| {
        Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
            .current_dir(dir.path())
            .args([
                "plan", input[0], input[1], "spark1", "spark2", "spark3", "spark4",
            ])
            .output()
            .unwrap()
    };
    assert!(
        again(["--inventory", "ring-mesh/inventory"])
            .status
            .success()
    );
    assert_eq!(files(&out), before);
    // fabric.json is a topology document: it plans the same ring, but for what it cannot say.
    assert!(
        again(["--topology", "ring-mesh/fabric.json"])
            .status
            .success()
    );
    let after = files(&out);
    for same in ["env.txt", "fabric.json"] {
        assert_eq!(after[same], before[same], "{same}");
    }
    let rows = |files: &BTreeMap<String, Vec<u8>>, key: &str| {
        serde_json::from_slice::<Value>(&files["plan.json"]).unwrap()[key].clone()
    };
    for key in ["routes", "rules", "markers", "paths", "peer_maps", "ring"] {
        assert_eq!(rows(&after, key), rows(&before, key), "{key}");
    }
}

#[test]
fn hosts_on_the_command_line_are_names_and_a_ring_of_them() {
    let run = |hosts: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
            .current_dir(dir.path())
            .args(["plan", "--inventory", "."])
            .args(hosts)
            .output()
            .unwrap()
    };
    for hosts in [
        &["a", "b", "c"][..],
        &["a", "b", "c", "d", "e"],
        &["--", "-oProxyCommand=x", "b", "c", "d"],
        &["a/b", "b", "c", "d"],
        &["a b", "b", "c", "d"],
        &[],
    ] {
        assert_eq!(run(hosts).status.code(), Some(2), "{hosts:?}");
    }
}

/// What a diagnosis sees must not change when facts are redacted.
#[test]
fn redacted_inventories_give_the_same_verdict() {
    use hairpin_mesh::facts::Inventory;
    use hairpin_mesh::json::{parse, pretty};
    use hairpin_mesh::names::HostName;
    use hairpin_mesh::plan::{Options, plan};
    use hairpin_mesh::redact::Redactor;

    const HOSTS: [&str; 4] = ["spark1", "spark2", "spark3", "spark4"];
    let mut compared = 0;
    let has_all = |case: &PathBuf| {
        HOSTS
            .iter()
            .all(|h| case.join(format!("inventory/{h}.json")).is_file())
    };
    for case in cases("")
        .into_iter()
        .chain(cases("refused"))
        .filter(has_all)
    {
        let documents: Vec<Vec<u8>> = HOSTS
            .iter()
            .map(|h| std::fs::read(case.join(format!("inventory/{h}.json"))).unwrap())
            .collect();
        let mut redactor = Redactor::new(&HOSTS);
        let redacted: Vec<Vec<u8>> = documents
            .iter()
            .map(|bytes| {
                let mut document = parse("document", bytes).unwrap();
                redactor.redact(&mut document);
                pretty(&document).into_bytes()
            })
            .collect();
        let verdict = |names: &[String], documents: &[Vec<u8>]| {
            let hosts: Vec<HostName> = names.iter().map(|n| n.parse().unwrap()).collect();
            let inventories: Vec<Inventory> = documents
                .iter()
                .map(|bytes| Inventory::from_json("inventory", bytes).unwrap())
                .collect();
            let planned = plan(&hosts, &inventories, &Options::default());
            let mut codes: Vec<(String, Option<String>)> = planned
                .findings
                .iter()
                .map(|f| {
                    (
                        f.code.to_owned(),
                        f.host.as_ref().map(|h| h.replace("spark", "host")),
                    )
                })
                .collect();
            codes.sort();
            (
                codes,
                planned
                    .plan
                    .map(|(plan, _)| (plan.peer_maps, plan.size_cap_bytes, plan.gid_index)),
            )
        };
        let names: Vec<String> = HOSTS.map(str::to_owned).to_vec();
        let new_names: Vec<String> = HOSTS.map(|h| h.replace("spark", "host")).to_vec();
        assert_eq!(
            verdict(&names, &documents),
            verdict(&new_names, &redacted),
            "{}",
            case.display()
        );
        compared += 1;
    }
    assert!(compared > 40);
}

/// Nothing of the user's is lost, whatever it is called.
#[test]
fn files_that_no_earlier_plan_wrote_stop_a_plan() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/tp-along-ring");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let put = |name: &str, bytes: &[u8]| {
        let path = out.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    for name in [
        "env.txt",
        "plan.json",
        "mesh-up-spark1.sh",
        "inventory/spark9.json",
        "notes",
    ] {
        let _ = std::fs::remove_dir_all(&out);
        put(name, b"mine");
        let output = plan(&case, &out, &[]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert_eq!(
            files(&out),
            BTreeMap::from([(name.to_owned(), b"mine".to_vec())])
        );
    }
    // Facts that were gathered into the folder's own place are the plan's input: the same bytes.
    let _ = std::fs::remove_dir_all(&out);
    for host in ["spark1", "spark2", "spark3", "spark4"] {
        let name = format!("inventory/{host}.json");
        put(&name, &std::fs::read(case.join(&name)).unwrap());
    }
    assert!(plan(&case, &out, &[]).status.success());
    assert!(out.join("plan.json").is_file());
    // Beside a plan, only what that plan has.
    put("inventory/spark9.json", b"mine");
    assert_eq!(plan(&case, &out, &[]).status.code(), Some(2));
    assert_eq!(
        std::fs::read(out.join("inventory/spark9.json")).unwrap(),
        b"mine"
    );
}
