//! Command lines that are none: exit code 2, the reason on stderr, and with `--json` a report of it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::{Command, Output};

use serde_json::Value;

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
        .args(words)
        .output()
        .unwrap()
}

#[test]
fn each_verb_reports_a_command_line_that_is_none_with_json_and_prints_nothing_without() {
    for (verb, words) in [
        ("inventory", &["--what"][..]),
        ("plan", &[]),
        ("up", &["--wait", "never"]),
        ("down", &["--wait", "never"]),
        ("verify", &["--all", "--host", "spark1"]),
        ("doctor", &["--watch", "never"]),
        ("install", &["--plan"]),
        ("uninstall", &["--what"]),
        ("deploy", &["--enable", "spark1"]),
        ("completions", &["cmd"]),
        ("marker", &[]),
        ("probe", &["--raw=x"]),
        ("hairpin-queue", &["5000"]),
        ("hairpin-queue", &["--forget", "8192"]),
    ] {
        let plain = run(&[&[verb], words].concat());
        assert_eq!(plain.status.code(), Some(2), "{verb}: {plain:?}");
        assert_eq!(plain.stdout, b"", "{verb}");
        // Wherever it stands; an option without its value would take it.
        let json = run(&[&[verb, "--json"], words].concat());
        assert_eq!(json.status.code(), Some(2), "{verb}: {json:?}");
        // The usage that follows may differ.
        let reason = |output: &Output| {
            output
                .stderr
                .split(|b| *b == b'\n')
                .next()
                .unwrap()
                .to_vec()
        };
        assert_eq!(reason(&json), reason(&plain), "{verb}");
        let report: Value = serde_json::from_slice(&json.stdout)
            .unwrap_or_else(|e| panic!("{verb}: {e}: {json:?}"));
        assert_eq!(report["schema"], format!("hairpin-mesh.{verb}-report/v1"));
        assert_eq!(report["verdict"], "trouble");
        for (own, answer) in [
            ("plan", "planned"),
            ("verify", "in_sync"),
            ("doctor", "healthy"),
            ("probe", "proven"),
        ] {
            let wanted = if verb == own {
                false.into()
            } else {
                Value::Null
            };
            assert_eq!(report[answer], wanted, "{verb}");
        }
        let trouble = report["trouble"].as_array().unwrap();
        assert!(!trouble.is_empty(), "{verb}: {report}");
        let said = String::from_utf8(json.stderr).unwrap();
        for line in trouble {
            assert!(
                said.contains(line.as_str().unwrap()),
                "{verb}: {line} {said}"
            );
        }
    }
}

#[test]
fn without_a_verb_there_is_no_report_and_help_is_help() {
    for words in [&["--json"][..], &["fly", "--json"]] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(output.stdout, b"");
    }
    for words in [&["up", "--json", "--help"][..], &["--version"]] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(!output.stdout.starts_with(b"{") && !output.stdout.is_empty());
    }
}

#[test]
fn help_that_cannot_be_written_is_no_success() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
        .arg("--help")
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("stdout: No space left"));
}

#[test]
fn what_was_typed_does_nothing_to_a_terminal() {
    for typed in ["x\u{202e}y", "x\u{7}\u{8}y", "x\u{1b}[31my z", "x\ny"] {
        for words in [&["doctor", typed][..], &["doctor", "--json", typed]] {
            let output = run(words);
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            let said = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
            let odd =
                |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
            assert!(!said.contains(odd), "{said:?}");
            assert!(said.contains("host name"), "{said:?}");
        }
    }
}

#[test]
fn the_trouble_of_deploy_has_the_keys_of_its_other_reports() {
    let output = run(&["deploy", "--json", "spark1", "spark1"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let keys: Vec<&str> = report
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    for key in [
        "schema",
        "program_sha256",
        "plan_sha256",
        "enabled",
        "hosts",
        "verified",
        "plan_again",
        "trouble",
    ] {
        assert!(keys.contains(&key), "{key}: {keys:?}");
    }
    assert_eq!(report["enabled"], false);
    assert!(
        report["trouble"][0]
            .as_str()
            .unwrap()
            .contains("given twice")
    );
}

#[test]
fn what_a_sweep_alone_has_is_refused_beside_what_no_sweep_has() {
    let output = run(&["probe", "--beside-others", "--svg", "x.svg"]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("cannot be used with"), "{told}");
}
