//! Tests in a network namespace of their own.

use std::process::Command;

use crate::common::not_tested;

/// Runs `body` in a network namespace of its own, with root's rights there: starts this program
/// again in one, for the test `name` alone, which then comes here a second time. Where nobody may
/// make a namespace the test is skipped, and says so.
pub fn in_own_namespace(name: &str, body: impl FnOnce()) {
    const INSIDE: &str = "HAIRPIN_MESH_OWN_NAMESPACE";
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let unshare = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(arguments);
        command
    };
    let possible = [&["--net"][..], &["--user", "--map-root-user", "--net"]]
        .into_iter()
        .find(|arguments| {
            unshare(arguments)
                .arg("true")
                .output()
                .is_ok_and(|o| o.status.success())
        });
    let Some(arguments) = possible else {
        not_tested(name, "no network namespace can be made here");
        return;
    };
    let output = unshare(arguments)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("1 passed"), "{said}");
}

/// Runs a command of plain words, which must succeed; gives what it printed.
pub fn run(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .output()
        .unwrap_or_else(|e| panic!("{line}: {e}"));
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
