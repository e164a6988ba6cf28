//! Inventories over SSH, with a real sshd and the real ssh client on loopback.
//!
//! Needs root (sshd, and a mount namespace in which the program is "installed"), `sshd` and `ssh`.

#![allow(clippy::unwrap_used, clippy::panic)] // in helpers of tests too

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

mod common;

const SSHD: &str = "/usr/sbin/sshd";
const SSH: &str = "/usr/bin/ssh";

/// A "host": an sshd of its own, in a mount namespace of its own.
struct Host {
    sshd: Child,
}

impl Drop for Host {
    fn drop(&mut self) {
        // The sshd is the leader of its own session; unshare --kill-child takes it along.
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

struct Lab {
    dir: tempfile::TempDir,
    hosts: Vec<Host>,
}

impl Lab {
    fn new() -> Option<Lab> {
        // In a chroot, say, root is not enough.
        let mount_namespace = || {
            Command::new("unshare")
                .args(["--mount", "true"])
                .output()
                .is_ok_and(|output| output.status.success())
        };
        for (what, missing) in [
            ("root", !is_root()),
            (SSHD, !Path::new(SSHD).exists()),
            (SSH, !Path::new(SSH).exists()),
            ("a mount namespace", !mount_namespace()),
        ] {
            if missing {
                common::not_tested("inventories over SSH", &format!("needs {what}"));
                return None;
            }
        }
        std::fs::create_dir_all("/run/sshd").unwrap();
        let dir = tempfile::tempdir().unwrap();
        for key in ["host_key", "user_key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(dir.path().join(key))
                .status()
                .unwrap();
            assert!(made.success());
        }
        // The real client, with a configuration of its own in place of the user's.
        let lab = Lab {
            dir,
            hosts: Vec::new(),
        };
        let wrapper = lab.path("bin/ssh");
        std::fs::create_dir(lab.path("bin")).unwrap();
        let config = lab.path("ssh_config");
        std::fs::write(
            &wrapper,
            format!("#!/bin/sh\nexec {SSH} -F '{}' \"$@\"\n", config.display()),
        )
        .unwrap();
        std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(
            &config,
            format!(
                "Host *\n  HostName 127.0.0.1\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
                 StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
                lab.path("user_key").display()
            ),
        )
        .unwrap();
        Some(lab)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a host on which `installed` (if any) stands where the program is installed.
    fn host(&mut self, name: &str, installed: Option<&Path>) {
        // Somebody else may take the port between its choice and its use: then another one.
        let port = (0..5).find_map(|_| self.try_host(name, installed));
        let port = port.expect("an sshd that listens");
        let ssh_config = self.path("ssh_config");
        let known = std::fs::read_to_string(&ssh_config).unwrap();
        std::fs::write(&ssh_config, format!("Host {name}\n  Port {port}\n{known}")).unwrap();
    }

    /// The port that the new sshd listens on; none, with what it said shown, when it does not.
    fn try_host(&mut self, name: &str, installed: Option<&Path>) -> Option<u16> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let config = self.path(&format!("sshd_config_{name}"));
        std::fs::write(
            &config,
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
                 UsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nPidFile none\n",
                self.path("host_key").display(),
                self.path("user_key.pub").display()
            ),
        )
        .unwrap();
        let install = installed.map_or(String::new(), |binary| {
            format!(
                "mkdir -p /opt/dsv41-mesh/bin && cp '{}' /opt/dsv41-mesh/bin/hairpin-mesh && \
                 chmod 755 /opt/dsv41-mesh/bin/hairpin-mesh && ",
                binary.display()
            )
        });
        let script = format!(
            "mount -t tmpfs tmpfs /opt && {install} exec {SSHD} -D -e -f '{}'",
            config.display()
        );
        let mut sshd = Command::new("unshare")
            .args(["--mount", "--fork", "--kill-child", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(sshd.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let listening = lines.by_ref().map_while(Result::ok).any(|line| {
            let listening = line.contains("Server listening");
            said.push(line);
            listening
        });
        self.hosts.push(Host { sshd });
        if !listening {
            eprintln!("sshd did not start: {said:?}");
            return None;
        }
        // Keep its stderr drained, so that it never blocks.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Some(port)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let path = format!(
            "{}:{}",
            self.path("bin").display(),
            std::env::var("PATH").unwrap()
        );
        Command::new(program())
            .env("PATH", path)
            .current_dir(self.dir.path())
            .args(arguments)
            .output()
            .unwrap()
    }
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

fn script(lab: &Lab, name: &str, text: &str) -> PathBuf {
    let path = lab.path(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    path
}

#[test]
fn hosts_answer_by_the_name_that_they_were_called_by() {
    let Some(mut lab) = Lab::new() else { return };
    lab.host("spark1", Some(program()));
    lab.host("spark2.lab", Some(program()));
    let output = lab.run(&["inventory", "--host", "spark2.lab", "--host", "spark1"]);
    assert!(output.status.success(), "{output:?}");
    let hosts: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = hosts
        .as_array()
        .unwrap()
        .iter()
        .map(|h| h["host"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["spark2.lab", "spark1"]);
    // One host is an object, not an array, and is what the host itself says.
    let one: Value =
        serde_json::from_slice(&lab.run(&["inventory", "--host", "spark1"]).stdout).unwrap();
    assert_eq!(one["schema"], "hairpin-mesh.inventory/v1");
    let output = lab.run(&[
        "inventory",
        "--out",
        "facts",
        "--host",
        "spark1",
        "--host",
        "spark2.lab",
    ]);
    assert!(output.status.success(), "{output:?}");
    for name in ["spark1", "spark2.lab"] {
        let file: Value = serde_json::from_slice(
            &std::fs::read(lab.path(&format!("facts/{name}.json"))).unwrap(),
        )
        .unwrap();
        assert_eq!(file["host"], name);
    }
    let output = lab.run(&[
        "inventory",
        "--redact",
        "--out",
        "shown",
        "--host",
        "spark1",
        "--host",
        "spark2.lab",
    ]);
    assert!(output.status.success(), "{output:?}");
    let mut shown: Vec<_> = std::fs::read_dir(lab.path("shown"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    shown.sort();
    assert_eq!(shown, ["host1.json", "host2.json"]);
    let text = std::fs::read_to_string(lab.path("shown/host2.json")).unwrap();
    assert!(!text.contains("spark") && text.contains("\"host\": \"host2\""));
}

#[test]
fn a_host_that_gives_no_inventory_is_named_with_the_reason_and_no_plan_is_made() {
    let Some(mut lab) = Lab::new() else { return };
    lab.host("good", Some(program()));
    lab.host("bare", None);
    let garbage = script(&lab, "garbage", "echo 'Welcome to the lab!'; exit 0");
    lab.host("garbage", Some(&garbage));
    let failing = script(
        &lab,
        "failing",
        "printf 'no \\033[31mkernel\\n' >&2; exit 2",
    );
    lab.host("failing", Some(&failing));
    let hostile = script(
        &lab,
        "hostile",
        "echo '{\"host\": \"x\", \"ports\": {\"a;reboot\": {}}}'",
    );
    lab.host("hostile", Some(&hostile));
    let output = lab.run(&[
        "inventory",
        "--out",
        "facts",
        "--host",
        "good",
        "--host",
        "bare",
        "--host",
        "garbage",
        "--host",
        "failing",
        "--host",
        "hostile",
        "--host",
        "nowhere",
    ]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    for said in [
        "bare: /opt/dsv41-mesh/bin/hairpin-mesh is not installed there",
        "garbage: its inventory: is not JSON",
        "failing: hairpin-mesh failed there (exit status: 2): no [31mkernel",
        "hostile: its inventory: ports.\"a;reboot\": is \"a;reboot\"",
        "nowhere: ssh failed: ",
    ] {
        assert!(stderr.contains(said), "{said:?} not in\n{stderr}");
    }
    assert!(!stderr.contains("FAIL: good"), "{stderr}");
    let written: Vec<_> = std::fs::read_dir(lab.path("facts"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(written, ["good.json"], "what answered is kept");

    let output = lab.run(&["plan", "good", "bare", "garbage", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!lab.path("ring-mesh").exists());
}

#[test]
fn a_ring_is_planned_from_hosts_that_are_asked_over_ssh() {
    let Some(mut lab) = Lab::new() else { return };
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/tp-along-ring");
    for host in ["spark1", "spark2", "spark3", "spark4"] {
        // What a node with the NIC would say; the node has another name for itself than we have.
        let facts = std::fs::read_to_string(case.join(format!("inventory/{host}.json"))).unwrap();
        let facts = facts.replacen(&format!("\"{host}\""), "\"dgx\"", 1);
        std::fs::write(lab.path(&format!("{host}.json")), facts).unwrap();
        let answer = format!(
            "test \"$*\" = 'inventory --json' || exit 2\nexec cat '{}'",
            lab.path(&format!("{host}.json")).display()
        );
        let answer = script(&lab, &format!("answer-{host}"), &answer);
        lab.host(host, Some(&answer));
    }
    let output = lab.run(&[
        "plan", "--out", "live", "spark1", "spark2", "spark3", "spark4",
    ]);
    assert!(output.status.success(), "{output:?}");
    let output = lab.run(&[
        "plan",
        "--inventory",
        "live/inventory",
        "--out",
        "again",
        "spark1",
        "spark2",
        "spark3",
        "spark4",
    ]);
    assert!(output.status.success(), "{output:?}");
    for file in [
        "plan.json",
        "env.txt",
        "fabric.json",
        "inventory/spark3.json",
    ] {
        assert_eq!(
            std::fs::read(lab.path("live").join(file)).unwrap(),
            std::fs::read(lab.path("again").join(file)).unwrap()
        );
    }
    let facts: Value =
        serde_json::from_slice(&std::fs::read(lab.path("live/inventory/spark3.json")).unwrap())
            .unwrap();
    assert_eq!(facts["host"], "spark3");
}
