//! The units: systemd takes them without a remark, and lets the marker do no more than it needs.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use hairpin_mesh::install::{MARKER_UNIT_TEXT, MESH_UNIT_TEXT, PROGRAM};

mod common;

/// The units in a folder, to be run from where this program is: systemd looks whether it is there.
fn units() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("dsv41-mesh.service", MESH_UNIT_TEXT),
        ("dsv41-mesh-marker@.service", MARKER_UNIT_TEXT),
    ] {
        let text = text.replace(PROGRAM, env!("CARGO_BIN_EXE_hairpin-mesh"));
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

/// What `systemd-analyze` says and whether it is content; none where there is none.
fn analyze(test: &str, arguments: &[&str], dir: &Path) -> Option<(bool, String)> {
    let output = Command::new("systemd-analyze")
        .args(arguments)
        .current_dir(dir)
        .output();
    let Ok(output) = output else {
        common::not_tested(test, "no systemd-analyze here");
        return None;
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    // What it does not like it names.
    if !output.status.success() && text.trim().is_empty() {
        common::not_tested(test, "systemd-analyze does not run here");
        return None;
    }
    Some((output.status.success(), text))
}

#[test]
fn systemd_takes_the_units_without_a_remark() {
    let dir = units();
    for unit in ["./dsv41-mesh.service", "./dsv41-mesh-marker@.service"] {
        let arguments = ["verify", "--man=no", unit];
        let Some((ok, said)) = analyze("systemd-analyze verify", &arguments, dir.path()) else {
            return;
        };
        // Other units of this machine may have faults of their own.
        let ours: Vec<&str> = said.lines().filter(|l| l.contains("dsv41-mesh")).collect();
        assert!(ok && ours.is_empty(), "{unit}: {said}");
    }
    // And it would say so.
    std::fs::write(
        dir.path().join("dsv41-mesh.service"),
        MESH_UNIT_TEXT.replace("Type=oneshot", "Type=once"),
    )
    .unwrap();
    let arguments = ["verify", "--man=no", "./dsv41-mesh.service"];
    let (_, said) = analyze("", &arguments, dir.path()).unwrap();
    assert!(said.contains("service type"), "{said}");
}

#[test]
fn the_marker_is_exposed_by_no_more_than_2_of_10() {
    let dir = units();
    let arguments = [
        "security",
        "--offline=true",
        // In tenths.
        "--threshold=20",
        "./dsv41-mesh-marker@.service",
    ];
    if let Some((ok, said)) = analyze("systemd-analyze security", &arguments, dir.path()) {
        assert!(ok, "{said}");
    }
}

/// The settings of a unit: those of a key, in order.
fn settings<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.filter(|(k, _)| *k == key).map(|(_, v)| v).collect()
}

#[test]
fn no_order_is_set_between_the_mesh_and_its_markers_nor_against_docker() {
    for key in ["Before", "After", "PartOf", "BindsTo", "Requires", "Wants"] {
        for (unit, text) in [("mesh", MESH_UNIT_TEXT), ("marker", MARKER_UNIT_TEXT)] {
            let all = settings(text, key).join(" ");
            assert!(
                !all.contains("dsv41-mesh") && !all.contains("docker"),
                "{unit}: {key}={all}"
            );
            assert!(!all.contains(".device"), "{unit}: {key}={all}");
        }
    }
    assert_eq!(settings(MARKER_UNIT_TEXT, "Restart"), ["always"]);
    assert_eq!(settings(MARKER_UNIT_TEXT, "RestartSec"), ["1"]);
    assert_eq!(settings(MARKER_UNIT_TEXT, "StartLimitIntervalSec"), ["0"]);
    assert_eq!(settings(MARKER_UNIT_TEXT, "Type"), ["notify"]);
    assert_eq!(
        settings(MESH_UNIT_TEXT, "ExecStop"),
        [format!("{PROGRAM} down --force --wait 60")]
    );
}

#[test]
fn the_limits_of_the_units_add_up() {
    let seconds = |unit, key| -> u64 { settings(unit, key)[0].parse().unwrap() };
    let wait = |line: &str| -> u64 {
        let words: Vec<&str> = line.split(' ').collect();
        let at = words.iter().position(|word| *word == "--wait").unwrap();
        words[at + 1].parse().unwrap()
    };
    let marker_start = seconds(MARKER_UNIT_TEXT, "TimeoutStartSec");
    let marker_stop = seconds(MARKER_UNIT_TEXT, "TimeoutStopSec");
    // The program itself says what is not there before systemd ends it.
    assert!(wait(settings(MARKER_UNIT_TEXT, "ExecStart")[0]) < marker_start);
    // `up` and `down` give the job of a marker 60 s (UNIT_LIMIT), twice what its unit allows.
    assert_eq!((2 * marker_start, 2 * marker_stop), (60, 60));
    for exec in ["ExecStart", "ExecReload"] {
        let waits = wait(settings(MESH_UNIT_TEXT, exec)[0]);
        // The lock, what is on its way, four functions that are initialised anew; two markers, there and back.
        let all = waits + waits + 4 * waits + 2 * 60 + 2 * 60;
        assert!(
            all <= seconds(MESH_UNIT_TEXT, "TimeoutStartSec"),
            "{exec}: {all}"
        );
    }
    // The lock, two markers, and the rest.
    let stop = wait(settings(MESH_UNIT_TEXT, "ExecStop")[0]) + 2 * 60;
    assert!(stop + 30 <= seconds(MESH_UNIT_TEXT, "TimeoutStopSec"));
}
