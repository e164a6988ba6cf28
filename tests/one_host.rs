//! `install`, `uninstall` and `down` on a host: what is left, what is said, and the exit code.
//!
//! The host is this machine's kernel with folders and a network of its own. systemd does not run there, so
//! whether markers run is not observed, and no `down` of a plan with markers says more than `left`. Needs root.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use hairpin_mesh::node::state::Applied;
use serde_json::Value;

mod common;

/// The folders that a host has for itself.
const OWN_FOLDERS: &str = "mount -t tmpfs -o mode=755 tmpfs /mnt && cp -a /etc /mnt/etc && \
     mount --bind /mnt/etc /etc && mount -t tmpfs -o mode=755 tmpfs /usr/local && mkdir /usr/local/bin && \
     mount -t tmpfs -o mode=755 tmpfs /run && mount -t tmpfs -o mode=755 tmpfs /opt && ip link set lo up";
/// Everything of an installation, with what it is, but for the lock of the state: who could not remove that folder
/// leaves it.
const FIND: &str = "find /etc/systemd /etc/dsv41-mesh /opt /usr/local /run ! -name lock -printf '%p %y %m %l\\n' 2>/dev/null | sort";
const PLAN: &[u8] = include_bytes!("../plans/tp-along-ring/ring-mesh/plan.json");
const PROGRAM: &str = env!("CARGO_BIN_EXE_hairpin-mesh");
/// Where the installation says which host of the plan it is.
const NAME: &str = "/etc/dsv41-mesh/host";
const INSTALLED: &str = "/etc/dsv41-mesh/plan.json";
const APPLIED: &str = "/run/dsv41-mesh/applied.json";
const OURS: &str = "ip route show proto 141";

/// A host: a process in namespaces of its own, which others enter.
struct Host {
    holder: Child,
}

impl Drop for Host {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

impl Host {
    fn new(test: &str) -> Option<Host> {
        let script = format!("{OWN_FOLDERS} && echo ready && exec cat");
        let mut holder = Command::new("unshare")
            .args(["--mount", "--net", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut line = String::new();
        let _ = BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line);
        let host = Host { holder };
        if line != "ready\n" {
            common::not_tested(test, "needs root, and a mount and a network namespace");
            return None;
        }
        Some(host)
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        let target = self.holder.id().to_string();
        command.args(["--target", &target, "--mount", "--net", "sh", "-c", script]);
        command
    }

    fn run(&self, script: &str) -> Output {
        self.command(script).stdin(Stdio::null()).output().unwrap()
    }

    /// What a script that has to succeed prints.
    fn on(&self, script: &str) -> String {
        let output = self.run(script);
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let mut child = self
            .command(&format!("mkdir -p -m 755 $(dirname {path}); cat >{path}"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// The program with `--json`: its exit code, its report and what it said.
    fn ask(&self, words: &str) -> (i32, Value, String) {
        let output = self.run(&format!("{PROGRAM} {words} --json"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let report = serde_json::from_slice(&output.stdout);
        let report = report.unwrap_or_else(|e| panic!("{words}: {e}: {output:?}"));
        (output.status.code().unwrap(), report, said)
    }

    /// The ports of spark1, and the installation of its plan.
    fn install(&self) {
        let plan: Value = serde_json::from_slice(PLAN).unwrap();
        let ports = plan["ports"].as_array().unwrap().iter();
        for (n, port) in ports.filter(|port| port["host"] == "spark1").enumerate() {
            let text = |key: &str| port[key].as_str().unwrap();
            let (dev, mac, address) = (text("netdev"), text("mac"), text("ipv4"));
            self.on(&format!(
                "ip link add {dev} address {mac} type veth peer name other{n} && ip link set {dev} up && \
                 ip link set other{n} up && ip addr add {address} dev {dev}"
            ));
        }
        self.write("/mnt/plan.json", PLAN);
        self.on(&format!(
            "{PROGRAM} install --plan - --host spark1 </mnt/plan.json"
        ));
    }

    /// The first route of the plan of spark1, as `up` makes it, and the plan written down as applied by `host`.
    fn bring_up(&self, host: &str) {
        let plan: Value = serde_json::from_slice(PLAN).unwrap();
        let mut routes = plan["routes"].as_array().unwrap().iter();
        let route = routes.find(|route| route["host"] == "spark1").unwrap();
        let text = |key: &str| route[key].as_str().unwrap();
        self.on(&format!(
            "ip route add {}/32 via {} dev {} src {} proto 141",
            text("destination"),
            text("gateway"),
            text("dev"),
            text("src")
        ));
        let document = Applied::document(&host.parse().unwrap(), PLAN);
        self.write(APPLIED, &document);
    }
}

fn texts(value: &Value) -> String {
    let lines = value.as_array().unwrap().iter();
    lines.map(|line| format!("{line}\n")).collect()
}

fn changed(report: &Value) -> Vec<&str> {
    let changes = report["changes"].as_array().unwrap().iter();
    changes
        .map(|change| change["do"].as_str().unwrap())
        .collect()
}

#[test]
fn uninstall_goes_by_what_was_applied_where_the_installed_plan_is_damaged_or_gone() {
    for spoil in [
        &format!("echo '{{' >{INSTALLED}") as &str,
        &format!("chmod 666 {INSTALLED}"),
        &format!("echo elsewhere >{NAME}"),
        &format!("rm {INSTALLED}"),
    ] {
        let Some(host) = Host::new("uninstall of a damaged plan") else {
            return;
        };
        let bare = host.on(FIND);
        host.install();
        host.bring_up("spark1");
        host.on(spoil);
        let (code, report, said) = host.ask("uninstall --force");
        assert_eq!(
            (code, &report["verdict"]),
            (1, &"left".into()),
            "{spoil}: {report}"
        );
        assert_eq!(changed(&report["down"]), ["remove-route"], "{spoil}");
        assert_eq!(
            said.contains("going by the plan that was applied last"),
            !spoil.starts_with("rm"),
            "{said}"
        );
        assert_eq!(host.on(OURS), "", "{spoil}");
        assert_eq!(host.on(FIND), bare, "{spoil}");
    }
}

#[test]
fn down_goes_by_what_was_applied_where_the_installed_plan_is_damaged() {
    let Some(host) = Host::new("down of a damaged plan") else {
        return;
    };
    host.install();
    host.bring_up("spark1");
    host.write(INSTALLED, b"{}");
    // One that is named is not passed over.
    host.write("/mnt/named.json", b"{}");
    let (code, report, _) = host.ask("down --force --plan /mnt/named.json");
    assert_eq!(
        (code, &report["verdict"]),
        (2, &"trouble".into()),
        "{report}"
    );
    let (_, report, said) = host.ask("down --force");
    assert_eq!(changed(&report), ["remove-route"], "{report}");
    assert!(said.contains("/etc/dsv41-mesh/plan.json"), "{said}");
    assert_eq!(host.on(OURS), "");
}

#[test]
fn uninstall_of_a_mesh_that_nobody_knows_is_trouble_and_forced_says_what_could_not_be_known() {
    let Some(host) = Host::new("uninstall of an unknown mesh") else {
        return;
    };
    host.install();
    host.bring_up("spark1");
    host.write(INSTALLED, b"{");
    host.write(APPLIED, b"[]");
    let before = host.on(FIND);
    let (code, report, said) = host.ask("uninstall");
    assert_eq!(
        (code, &report["verdict"]),
        (2, &"trouble".into()),
        "{report}"
    );
    let trouble = texts(&report["trouble"]);
    assert!(
        trouble.contains(APPLIED) && trouble.contains(INSTALLED),
        "{trouble}"
    );
    assert!(said.contains("--force goes on"), "{said}");
    assert_eq!(host.on(FIND), before);
    let (code, report, said) = host.ask("uninstall --force");
    assert_eq!((code, &report["verdict"]), (1, &"left".into()), "{report}");
    let kept = texts(&report["kept"]);
    for words in [
        "proto 141",
        "not known, because",
        "what is known of the mesh, in /run/dsv41-mesh",
    ] {
        assert!(kept.contains(words), "{words}: {kept}");
    }
    assert!(said.contains("going on, as told"), "{said}");
    host.on(&format!(
        "test -e {APPLIED} && test ! -e {INSTALLED} && {OURS} | grep -q ."
    ));
}

#[test]
fn uninstall_looks_for_what_a_mesh_has_here_also_without_any_plan() {
    let Some(host) = Host::new("uninstall without a plan") else {
        return;
    };
    let bare = host.on(FIND);
    host.install();
    host.bring_up("spark1");
    host.on(&format!("rm {APPLIED} {INSTALLED}; rmdir /run/dsv41-mesh"));
    // A kernel without the flower classifier has no rule.
    let rule = "tc qdisc add dev other0 clsact && tc filter add dev other0 ingress protocol 0x88b5 pref 49152 \
         handle 49152 flower skip_hw src_mac 02:00:00:00:00:01 action drop";
    let has_rule = host.run(rule).status.success();
    let before = host.on(FIND);
    let (code, report, said) = host.ask("uninstall");
    assert_eq!(
        (code, &report["verdict"]),
        (1, &"refused".into()),
        "{report}"
    );
    let findings = texts(&report["findings"]);
    assert!(
        findings.contains("left-over-route") && findings.contains("proto 141"),
        "{findings}"
    );
    assert_eq!(
        findings.contains("other0 rule 49152"),
        has_rule,
        "{findings}"
    );
    assert!(said.contains("down --plan FILE"), "{said}");
    assert_eq!(host.on(FIND), before);
    let (code, report, _) = host.ask("uninstall --force");
    assert_eq!((code, &report["verdict"]), (1, &"left".into()), "{report}");
    let kept = texts(&report["kept"]);
    assert!(kept.contains("ip route del"), "{kept}");
    assert_eq!(
        kept.contains("tc filter del dev other0"),
        has_rule,
        "{kept}"
    );
    assert_eq!(host.on(FIND), bare);
    // Without marks of a mesh there is nothing to refuse.
    host.on("ip route flush proto 141; tc qdisc del dev other0 clsact || true");
    let (code, report, _) = host.ask("uninstall");
    assert_eq!(
        (code, &report["verdict"]),
        (0, &"in-sync".into()),
        "{report}"
    );
}

#[test]
fn uninstall_names_what_another_plan_left() {
    let Some(host) = Host::new("uninstall beside another plan's route") else {
        return;
    };
    host.install();
    host.bring_up("spark1");
    host.on("ip route add 192.0.2.77/32 dev other0 proto 141");
    let (code, report, _) = host.ask("uninstall --force");
    assert_eq!((code, &report["verdict"]), (1, &"left".into()), "{report}");
    assert_eq!(changed(&report["down"]), ["remove-route"]);
    assert!(texts(&report["kept"]).contains("192.0.2.77"), "{report}");
    host.on("test ! -e /opt/dsv41-mesh");
}

#[test]
fn uninstall_forced_keeps_what_is_known_of_a_mesh_that_could_not_be_taken_down() {
    let Some(host) = Host::new("uninstall of another host's mesh") else {
        return;
    };
    host.install();
    host.bring_up("spark2");
    host.on(&format!("echo spark2 >{NAME}"));
    let before = host.on(FIND);
    let (code, report, _) = host.ask("uninstall");
    assert_eq!(
        (code, &report["verdict"]),
        (2, &"trouble".into()),
        "{report}"
    );
    assert!(
        texts(&report["trouble"]).contains("this is not spark2"),
        "{report}"
    );
    assert_eq!(host.on(FIND), before);
    let (code, report, said) = host.ask("uninstall --force");
    assert_eq!((code, &report["verdict"]), (1, &"left".into()), "{report}");
    assert!(said.contains("going on, as told"), "{said}");
    assert!(
        texts(&report["kept"]).contains("could not be taken down"),
        "{report}"
    );
    host.on(&format!("test -e {APPLIED} && test ! -e /opt/dsv41-mesh"));
}

/// A mount over a file keeps it from being renamed.
const PIN: &str = "mount --bind /opt/dsv41-mesh/bin/hairpin-mesh /opt/dsv41-mesh/bin/hairpin-mesh";

#[test]
fn files_that_are_put_back_after_the_mesh_was_taken_down_are_not_the_host_as_it_was() {
    let Some(host) = Host::new("uninstall that fails") else {
        return;
    };
    host.install();
    host.on(PIN);
    let before = host.on(FIND);
    // Without a mesh it is.
    host.on(&format!("mv {INSTALLED} /mnt/away.json"));
    let as_it_was = host.on(FIND);
    let (code, report, _) = host.ask("uninstall");
    assert_eq!(
        (code, &report["verdict"]),
        (3, &"restored".into()),
        "{report}"
    );
    assert_eq!(host.on(FIND), as_it_was);
    host.on(&format!("mv /mnt/away.json {INSTALLED}"));
    host.bring_up("spark1");
    let (code, report, _) = host.ask("uninstall --force");
    assert_eq!(
        (code, &report["verdict"]),
        (4, &"not-restored".into()),
        "{report}"
    );
    let failures = texts(&report["failures"]);
    assert!(
        failures.contains("the mesh was taken down before, and stays so"),
        "{failures}"
    );
    assert_eq!(host.on(OURS), "");
    assert_eq!(host.on(FIND), before);
}

#[test]
fn copies_of_deployments_go_when_they_are_old_and_one_that_stays_is_named() {
    let Some(host) = Host::new("uninstall beside copies of deployments") else {
        return;
    };
    host.install();
    host.on(
        "cd /opt && mkdir .hairpin-mesh.old .hairpin-mesh.held .hairpin-mesh.held/in .hairpin-mesh.new && \
         mount -t tmpfs tmpfs .hairpin-mesh.held/in && touch -d '2 hours ago' .hairpin-mesh.old .hairpin-mesh.held && \
         touch -d '50 minutes ago' .hairpin-mesh.new",
    );
    host.on(&format!("rm {INSTALLED}"));
    let output = host.run(&format!("{PROGRAM} uninstall"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text.contains("ok    /opt/.hairpin-mesh.old removed"),
        "{text}"
    );
    assert!(
        text.contains("uninstalled, but for what is named"),
        "{text}"
    );
    assert!(
        said.contains("FAIL: /opt/.hairpin-mesh.held: cannot be removed"),
        "{said}"
    );
    assert!(
        said.contains("stays: /opt/.hairpin-mesh.new: of a deployment"),
        "{said}"
    );
    host.on("cd /opt && test ! -e .hairpin-mesh.old && test -e .hairpin-mesh.held && test -e .hairpin-mesh.new");
    // The one that may be at work is reason enough.
    host.on("umount /opt/.hairpin-mesh.held/in");
    let (code, report, _) = host.ask("uninstall");
    assert_eq!((code, &report["verdict"]), (1, &"left".into()), "{report}");
    host.on("touch -d '61 minutes ago' /opt/.hairpin-mesh.new");
    let (code, report, _) = host.ask("uninstall");
    assert_eq!(
        (code, &report["verdict"]),
        (0, &"removed".into()),
        "{report}"
    );
}

#[test]
fn a_signal_during_an_installation_leaves_the_host_as_it_was() {
    let test = "a signal during an installation";
    let Some(host) = Host::new(test) else { return };
    let traced = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status();
    if !traced.is_ok_and(|status| status.success()) {
        return common::not_tested(test, "needs strace that may trace");
    }
    let fresh = host.on(FIND);
    for signal in ["INT", "TERM", "HUP"] {
        // The second file is synced, the first is synced already; then the folders.
        for nth in [1, 2, 5] {
            let output = host.run(&format!(
                "strace -f -o /dev/null -e trace=fsync -e inject=fsync:signal={signal}:when={nth} {PROGRAM} \
                 install --enable --json </dev/null || exit $?"
            ));
            // Without systemd nothing can be enabled: refused before anything.
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            let output = host.run(&format!(
                "strace -f -o /dev/null -e trace=fsync -e inject=fsync:signal={signal}:when={nth} {PROGRAM} install --json"
            ));
            let report: Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|e| panic!("{signal} {nth}: {e} {output:?}"));
            if report["verdict"] == "installed" {
                assert!(nth > 2, "{signal} {nth}: {report}");
                host.on(&format!("{PROGRAM} uninstall"));
            } else {
                assert_eq!(output.status.code(), Some(3), "{signal} {nth}: {output:?}");
                assert!(
                    texts(&report["failures"]).contains("interrupted by a signal"),
                    "{report}"
                );
            }
            assert_eq!(host.on(FIND), fresh, "{signal} {nth}");
        }
    }
    // An upgrade that is ended leaves the program of before.
    host.on(&format!(
        "{PROGRAM} install && echo older >/opt/dsv41-mesh/bin/hairpin-mesh"
    ));
    let before = host.on(FIND);
    let output = host.run(&format!(
        "strace -f -o /dev/null -e trace=fsync -e inject=fsync:signal=TERM:when=1 {PROGRAM} install"
    ));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(host.on(FIND), before);
    assert_eq!(host.on("cat /opt/dsv41-mesh/bin/hairpin-mesh"), "older\n");
}

#[test]
fn who_may_open_a_folder_does_not_hold_up_an_installation() {
    let Some(host) = Host::new("the lock of an installation") else {
        return;
    };
    // By somebody who is nobody.
    host.on(&format!(
        "setpriv --reuid 65534 --clear-groups flock --no-fork /etc sleep 100 >/dev/null 2>&1 & busy=$!; \
         while flock -n /etc true; do sleep 0.05; done; {PROGRAM} install && {PROGRAM} uninstall; result=$?; \
         kill $busy; exit $result"
    ));
    // One that installs holds up another, and is named.
    host.on("mkfifo /mnt/go && chmod 600 /mnt/go");
    let output = host.run(&format!(
        "(flock 9; echo 4711 >&9; cat /mnt/go) 9>/run/hairpin-mesh-install.lock & \
         while flock -n /run/hairpin-mesh-install.lock true; do sleep 0.05; done; {PROGRAM} install; result=$?; \
         echo >/mnt/go; wait; exit $result"
    ));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("another run installs or uninstalls here"),
        "{said}"
    );
}

#[test]
fn down_waits_for_another_run_as_long_as_it_is_told_to() {
    let Some(host) = Host::new("down beside another run") else {
        return;
    };
    host.install();
    host.bring_up("spark1");
    host.on("mkfifo /mnt/go");
    let held = "(flock 9; cat /mnt/go) 9>/run/dsv41-mesh/lock & \
         while flock -n /run/dsv41-mesh/lock true; do sleep 0.05; done";
    let output = host.run(&format!(
        "{held}; {PROGRAM} down --force; result=$?; echo >/mnt/go; wait; exit $result"
    ));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("another hairpin-mesh changes this host"),
        "{said}"
    );
    assert_ne!(host.on(OURS), "");
    let output = host.run(&format!(
        "{held}; {PROGRAM} down --force --wait 100 & down=$!; sleep 0.2; echo >/mnt/go; wait $down"
    ));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("another hairpin-mesh"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(host.on(OURS), "");
}

#[test]
fn a_note_that_cannot_be_read_is_a_warning_of_down_and_no_more() {
    let Some(host) = Host::new("down beside an unreadable note") else {
        return;
    };
    host.install();
    let mut ends = Vec::new();
    for note in [None, Some("{")] {
        host.bring_up("spark1");
        if let Some(note) = note {
            host.write("/run/dsv41-mesh/reinit.json", note.as_bytes());
        }
        let (code, report, said) = host.ask("down --force");
        assert_eq!(changed(&report), ["remove-route"], "{report}");
        assert_eq!(host.on(OURS), "");
        let warned = said.contains("warning: /run/dsv41-mesh/reinit.json");
        assert_eq!(warned, note.is_some(), "{said}");
        ends.push((code, report["verdict"].clone(), report["failures"].clone()));
    }
    assert_eq!(ends[0], ends[1]);
}

/// What a run writes down of a port before it re-initialises its driver.
const NOTE: &str = r#"{"schema": "hairpin-mesh.reinit/v1", "netdev": "enp1s0f0np0", "rdma": "rocep1s0f0",
    "pci": "0000:01:00.0", "reload_count": 3, "index": 12, "up": true, "mtu": 9000, "addresses": ["10.10.0.10/24"],
    "active": true, "gid": null, "offload": true, "steering": "hmfs", "objects": ["enp1s0f0np0 clsact"]}"#;

#[test]
fn hairpin_queue_forgets_a_note_and_says_what_it_was() {
    let Some(host) = Host::new("hairpin-queue --forget") else {
        return;
    };
    let (code, report, _) = host.ask("hairpin-queue --forget");
    assert_eq!(
        (code, &report["verdict"]),
        (0, &"in-sync".into()),
        "{report}"
    );
    host.install();
    let note = "/run/dsv41-mesh/reinit.json";
    host.write(note, NOTE.as_bytes());
    let (code, report, _) = host.ask("hairpin-queue --forget");
    assert_eq!(
        (code, &report["verdict"]),
        (0, &"forgotten".into()),
        "{report}"
    );
    let said = texts(&report["forgotten"]);
    for words in [
        "enp1s0f0np0 (rocep1s0f0, pci/0000:01:00.0)",
        "MTU 9000",
        "10.10.0.10/24",
        "enp1s0f0np0 clsact",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    host.on("test ! -e /run/dsv41-mesh");
    // One that nobody can read keeps `up` from its work, which names the way out.
    host.write(note, b"{");
    let (code, report, _) = host.ask("up");
    assert_eq!(code, 2, "{report}");
    assert!(
        texts(&report["trouble"]).contains("hairpin-queue --forget"),
        "{report}"
    );
    let output = host.run(&format!("{PROGRAM} hairpin-queue --forget"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text.contains(&format!("ok    forgotten: {note}")), "{text}");
    host.on("test ! -e /run/dsv41-mesh");
}

#[test]
fn hairpin_queue_shows_nothing_by_the_plan_of_another_host() {
    let Some(host) = Host::new("hairpin-queue of another host") else {
        return;
    };
    host.install();
    let (code, report, _) = host.ask("hairpin-queue");
    // The ports are no functions.
    assert_eq!(
        (code, &report["verdict"]),
        (1, &"not-observed".into()),
        "{report}"
    );
    let (code, report, _) = host.ask("hairpin-queue --host spark2");
    assert_eq!(
        (code, &report["verdict"]),
        (2, &"trouble".into()),
        "{report}"
    );
    assert!(
        texts(&report["trouble"]).contains("this is not spark2"),
        "{report}"
    );
}

#[test]
fn up_waits_for_ports_whose_driver_is_not_there_yet() {
    let Some(host) = Host::new("up before the driver is there") else {
        return;
    };
    host.install();
    let plan: Value = serde_json::from_slice(PLAN).unwrap();
    let ports = plan["ports"].as_array().unwrap().iter();
    let ports: Vec<&str> = ports
        .filter(|port| port["host"] == "spark1")
        .map(|port| port["netdev"].as_str().unwrap())
        .collect();
    for port in &ports {
        host.on(&format!("ip link del {port}"));
    }
    let none = "none of the planned ports is there";
    // Nothing says that any port is on its way.
    let (code, report, said) = host.ask("up");
    assert_eq!(code, 2, "{report}");
    assert!(
        said.contains(none) || report.to_string().contains(none),
        "{report}{said}"
    );
    let (code, report, _) = host.ask("up --wait 1");
    assert_eq!((code, &report["verdict"]), (75, &"not-ready".into()));
    assert!(texts(&report["findings"]).contains(none), "{report}");
    assert_eq!(changed(&report), [""; 0]);
    // One comes: it is this host.
    let row = &plan["ports"].as_array().unwrap()[0];
    assert_eq!(row["host"], "spark1");
    let (mac, dev) = (row["mac"].as_str().unwrap(), ports[0]);
    let comes = format!("(sleep 0.3; ip link add {dev} address {mac} type veth peer name late0) &");
    let output = host.run(&format!("{comes} {PROGRAM} up --wait 2 --json"));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // What this kernel cannot show of it is refused.
    assert_eq!(output.status.code(), Some(1), "{report}");
    let findings = texts(&report["findings"]);
    assert!(
        !findings.contains(none) && findings.contains(dev),
        "{report}"
    );
    // With another MAC it is not: that does not pass.
    host.on(&format!("ip link set {dev} address 02:00:00:00:00:01"));
    let (code, report, said) = host.ask("up --wait 100");
    assert_eq!(code, 2, "{report}{said}");
}
