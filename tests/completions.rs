//! Completions: every verb in every shell's, and a shell that takes them.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::Write;
use std::process::{Command, Stdio};

fn completions(shell: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
        .args(["completions", shell])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_shell_completes_every_verb() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = completions(shell);
        for verb in [
            "inventory",
            "plan",
            "up",
            "down",
            "verify",
            "install",
            "uninstall",
            "deploy",
        ] {
            assert!(script.contains(verb), "{shell}: {verb}");
        }
    }
    let output = Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
        .args(["completions", "cmd"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn bash_takes_them() {
    let bash = Command::new("bash")
        .args(["-n"])
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut bash) = bash else {
        common::not_tested("completions in bash", "no bash here");
        return;
    };
    let mut stdin = bash.stdin.take().unwrap();
    stdin.write_all(completions("bash").as_bytes()).unwrap();
    drop(stdin);
    assert!(bash.wait().unwrap().success());
}

#[test]
fn with_json_the_script_is_in_a_report() {
    let output = Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
        .args(["completions", "fish", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "hairpin-mesh.completions-report/v1");
    assert_eq!(report["shell"], "fish");
    assert_eq!(report["script"], completions("fish"));
}
