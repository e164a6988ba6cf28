//! Inventories and deployments over SSH, with a real sshd and the real ssh client on loopback.
//!
//! Needs root (sshd, and a mount namespace in which the program is "installed"), `sshd` and `ssh`; a part
//! needs `sudo`.

#![allow(clippy::unwrap_used, clippy::panic)] // in helpers of tests too

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

mod common;
#[path = "common/namespace.rs"]
mod namespace;

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
        let install = installed.map_or(String::new(), |binary| {
            format!(
                "mkdir -p /opt/dsv41-mesh/bin && cp '{}' /opt/dsv41-mesh/bin/hairpin-mesh && \
                 chmod 755 /opt/dsv41-mesh/bin/hairpin-mesh && ",
                binary.display()
            )
        });
        self.host_with(name, &install);
    }

    /// Starts a host on which `script`, which ends in `&&`, has run.
    fn host_with(&mut self, name: &str, script: &str) {
        // Somebody else may take the port between its choice and its use: then another one.
        let port = (0..5).find_map(|_| self.try_host(name, script));
        let port = port.expect("an sshd that listens");
        let ssh_config = self.path("ssh_config");
        let known = std::fs::read_to_string(&ssh_config).unwrap();
        std::fs::write(&ssh_config, format!("Host {name}\n  Port {port}\n{known}")).unwrap();
    }

    /// The port that the new sshd listens on; none, with what it said shown, when it does not.
    fn try_host(&mut self, name: &str, script: &str) -> Option<u16> {
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
                 UsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nPidFile none\nSetEnv TMPDIR=/mnt/tmp\n",
                self.path("host_key").display(),
                self.path("user_key.pub").display()
            ),
        )
        .unwrap();
        let script = format!(
            "mount -t tmpfs -o mode=755 tmpfs /opt && {script} exec {SSHD} -D -e -f '{}'",
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

    /// Runs a command on a host; what it printed.
    fn on(&self, host: &str, command: &str) -> String {
        let output = Command::new(self.path("bin/ssh"))
            .args(["--", host, command])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{host}: {command}: {said}");
        String::from_utf8(output.stdout).unwrap()
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

/// Where an installation is, and where one that failed could have left something, all of it the host's own.
const OWN_FOLDERS: &str = "mount -t tmpfs -o mode=755 tmpfs /mnt && cp -a /etc /mnt/etc && \
     mount --bind /mnt/etc /etc && mount -t tmpfs -o mode=755 tmpfs /usr/local && mkdir /usr/local/bin && \
     mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/sshd && \
     mkdir -m 1777 /mnt/tmp && ";
/// Everything there, with what it is.
const FIND: &str = "find /etc/systemd /etc/dsv41-mesh /opt /usr/local /run /mnt/tmp ! -path '/run/sshd*' ! -path '/run/sudo*' \
     -printf '%p %y %m %l\\n' 2>/dev/null | sort";

/// A plan that root may read; none where there is no folder for it.
fn plan_folder() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in("/root").ok()?;
    let plan =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/tp-along-ring/ring-mesh/plan.json");
    std::fs::copy(plan, dir.path().join("plan.json")).unwrap();
    Some(dir)
}

/// The ports that the plan has for a host.
fn make_ports(host: &str) {
    let plan = include_bytes!("../plans/tp-along-ring/ring-mesh/plan.json");
    let plan: Value = serde_json::from_slice(plan).unwrap();
    let ports = plan["ports"].as_array().unwrap().iter();
    for (n, port) in ports.filter(|port| port["host"] == host).enumerate() {
        let (netdev, mac) = (
            port["netdev"].as_str().unwrap(),
            port["mac"].as_str().unwrap(),
        );
        namespace::run(&format!(
            "ip link add {netdev} address {mac} type veth peer name other{n}"
        ));
    }
}

/// A lab in a network namespace of its own, which has the ports of spark1.
fn with_ports_of_spark1(name: &str, body: impl FnOnce(Lab, &Path)) {
    if !is_root() {
        common::not_tested(name, "needs root");
        return;
    }
    namespace::in_own_namespace(name, || {
        namespace::run("ip link set lo up");
        make_ports("spark1");
        let (Some(lab), Some(plan)) = (Lab::new(), plan_folder()) else {
            common::not_tested(name, "needs a lab, and a folder of root alone below /root");
            return;
        };
        body(lab, plan.path());
    });
}

/// The program without what debuggers want of it, which is most of it: it is sent and summed many times.
fn stripped(lab: &Lab) -> String {
    let path = lab.path("stripped");
    let strip = Command::new("strip")
        .arg("-o")
        .args([path.as_path(), program()])
        .status();
    if !strip.is_ok_and(|status| status.success()) {
        std::fs::copy(program(), &path).unwrap();
    }
    path.to_str().unwrap().to_owned()
}

/// What is on a host is what was there before.
fn assert_same(lab: &Lab, host: &str, before: &str) {
    let now = lab.on(host, FIND);
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), now.lines().collect());
    let gone: Vec<_> = old.iter().filter(|line| !new.contains(line)).collect();
    let more: Vec<_> = new.iter().filter(|line| !old.contains(line)).collect();
    assert!(
        gone.is_empty() && more.is_empty(),
        "{host}: gone {gone:?}, more {more:?}"
    );
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn deploy_installs_on_each_host_all_or_nothing_and_uninstall_leaves_no_file() {
    with_ports_of_spark1(
        "deploy_installs_on_each_host_all_or_nothing_and_uninstall_leaves_no_file",
        |mut lab, plan| {
            for host in ["spark1", "spark2"] {
                lab.host_with(host, OWN_FOLDERS);
            }
            let fresh = lab.on("spark1", FIND);
            let binary = stripped(&lab);
            // The program alone.
            let output = lab.run(&["deploy", "--binary", &binary, "--json", "spark1", "spark2"]);
            assert!(output.status.success(), "{output:?}");
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let own = std::fs::read(&binary).unwrap();
            let sum = hairpin_mesh::node::identity::sha256(&own);
            assert_eq!(report["program_sha256"], sum.as_str());
            for host in ["spark1", "spark2"] {
                let there = lab.on(host, "sha256sum </opt/dsv41-mesh/bin/hairpin-mesh");
                assert_eq!(there, format!("{sum}  -\n"));
                assert_eq!(
                    lab.on(host, "stat -c '%a %u %g' /opt/dsv41-mesh/bin/hairpin-mesh"),
                    "755 0 0\n"
                );
                let all = lab.on(host, FIND);
                let more: Vec<&str> = all.lines().filter(|l| !fresh.contains(l)).collect();
                assert_eq!(
                    more.len(),
                    4,
                    "the program, its folders and its link: {more:?}"
                );
                lab.on(host, "hairpin-mesh --version");
            }
            // The plan, which is not for the second host: it stays as it was, and the first goes on.
            let before = lab.on("spark2", FIND);
            let plan = plan.to_str().unwrap();
            let output = lab.run(&[
                "deploy", "--binary", &binary, "--plan", plan, "spark1", "spark2",
            ]);
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(
                said(&output).contains("this is not spark2 of this plan"),
                "{output:?}"
            );
            assert_same(&lab, "spark2", &before);
            assert_eq!(lab.on("spark1", "cat /etc/dsv41-mesh/host"), "spark1\n");
            let given = std::fs::read_to_string(format!("{plan}/plan.json")).unwrap();
            assert_eq!(lab.on("spark1", "cat /etc/dsv41-mesh/plan.json"), given);
            let installed = lab.on("spark1", FIND);
            for unit in [
                "dsv41-mesh.service f 644",
                "dsv41-mesh-marker@.service f 644",
            ] {
                assert!(
                    installed.contains(&format!("/etc/systemd/system/{unit}")),
                    "{installed}"
                );
            }
            let output = lab.run(&["deploy", "--binary", &binary, "--plan", plan, "spark1"]);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains("everything was installed already"), "{text}");
            // A unit that somebody else wrote is somebody else's.
            lab.on(
                "spark1",
                "echo theirs >/etc/systemd/system/dsv41-mesh.service",
            );
            let before = lab.on("spark1", FIND);
            let output = lab.run(&["deploy", "--binary", &binary, "--plan", plan, "spark1"]);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(
                said(&output).contains("is not of this program"),
                "{output:?}"
            );
            assert_same(&lab, "spark1", &before);
            let output = lab.run(&[
                "deploy",
                "--binary",
                &binary,
                "--plan",
                plan,
                "--replace",
                "spark1",
            ]);
            assert!(output.status.success(), "{output:?}");
            // No host of the plan, and a host twice: nothing is asked of anybody.
            for hosts in [["spark1", "elsewhere"], ["spark1", "spark1"]] {
                let output = lab.run(&["deploy", "--plan", plan, hosts[0], hosts[1]]);
                assert_eq!(output.status.code(), Some(2), "{output:?}");
            }
            // A copy that was abandoned an hour ago goes with the next deployment.
            let copy = "/opt/.hairpin-mesh.abcdefghij";
            lab.on(
                "spark1",
                &format!("mkdir {copy}; touch -d '2 hours ago' {copy}"),
            );
            lab.run(&["deploy", "--binary", &binary, "spark1"]);
            lab.on("spark1", &format!("test ! -e {copy}"));
            // Without a systemd, whether markers run is not observed; nothing else is left.
            lab.on("spark1", "hairpin-mesh uninstall --force || test $? = 1");
            // What a deployment leaves that is killed while root copies the program.
            lab.on("spark2", "mkdir /opt/.hairpin-mesh.0123456789; touch /opt/.hairpin-mesh.0123456789/hairpin-mesh; touch -d '2 hours ago' /opt/.hairpin-mesh.0123456789");
            lab.on("spark2", "hairpin-mesh uninstall");
            for host in ["spark1", "spark2"] {
                assert_same(&lab, host, &fresh);
            }
        },
    );
}

#[test]
fn what_cannot_be_deployed_changes_nothing_and_other_hosts_go_on() {
    let Some(mut lab) = Lab::new() else { return };
    // A disk without room, a folder that is not root's alone, a host that cannot be reached, and a good one.
    lab.host_with("good", OWN_FOLDERS);
    let full = format!("{OWN_FOLDERS} mount -t tmpfs -o size=1m,mode=755 tmpfs /opt && ");
    lab.host_with("full", &full);
    lab.host_with("open", &format!("{OWN_FOLDERS} chmod 777 /opt && "));
    lab.host_with("shared", &format!("{OWN_FOLDERS} chmod 777 /usr/local && "));
    let hosts = ["good", "full", "open", "shared"];
    let before: Vec<String> = hosts.iter().map(|host| lab.on(host, FIND)).collect();
    // For another machine.
    let binary = stripped(&lab);
    let mut other = std::fs::read(&binary).unwrap();
    other[18] = if other[18] == 183 { 62 } else { 183 };
    std::fs::write(lab.path("other"), other).unwrap();
    let output = lab.run(&["deploy", "--binary", "other", "good"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        said(&output).contains("--binary FILE gives another"),
        "{output:?}"
    );
    std::fs::write(lab.path("script"), "#!/bin/sh\n").unwrap();
    let output = lab.run(&["deploy", "--binary", "script", "good"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        said(&output).contains("script: is no ELF program"),
        "{output:?}"
    );
    // A program that is no program of ours: it does not know `install`, and nothing is left of it.
    let output = lab.run(&["deploy", "--binary", "/bin/true", "good"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_same(&lab, "good", &before[0]);

    let output = lab.run(&[
        "deploy", "--binary", &binary, "good", "full", "open", "shared", "nowhere",
    ]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = said(&output);
    for line in [
        "full: not installed: ",
        "open: not installed: /opt is not a folder of root alone",
        "shared: not installed: ",
        "/usr/local: is not root's alone",
        "nowhere: not deployed: ssh failed",
    ] {
        assert!(said.contains(line), "{line:?} not in\n{said}");
    }
    for (host, before) in hosts.iter().zip(&before).skip(1) {
        assert_same(&lab, host, before);
    }
    lab.on("good", "hairpin-mesh --version");
}

#[test]
fn an_ssh_user_deploys_by_sudo_and_what_that_user_changes_afterwards_is_not_run() {
    let Some(mut lab) = Lab::new() else { return };
    if !Path::new("/usr/bin/sudo").exists() {
        common::not_tested("deployments by sudo", "needs sudo");
        return;
    }
    let user = format!(
        "{OWN_FOLDERS} echo mesh:x:4242:4242::/tmp:/bin/sh >>/etc/passwd && echo mesh:x:4242: >>/etc/group && \
         echo 'mesh:*:19000:0:99999:7:::' >>/etc/shadow && "
    );
    let sudo = "echo 'mesh ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/mesh && chmod 440 /etc/sudoers.d/mesh && ";
    // What the user's PATH finds first, and what another process of the user could do as well.
    let tamper = "printf '#!/bin/sh\\nfor d in \"$@\"; do test -e \"$d/hairpin-mesh\" && printf X | dd of=\"$d/hairpin-mesh\" \
         bs=1 seek=100 conv=notrunc 2>/dev/null; done\\nexec /usr/bin/sudo \"$@\"\\n' >/usr/local/bin/sudo && \
         chmod 755 /usr/local/bin/sudo && ";
    lab.host_with("spark1", &format!("{user}{sudo}"));
    lab.host_with("may-not", &user);
    lab.host_with("changed", &format!("{user}{sudo}{tamper}"));
    let binary = stripped(&lab);
    let hosts = ["spark1", "may-not", "changed"];
    let before: Vec<String> = hosts.iter().map(|host| lab.on(host, FIND)).collect();
    // From here on it is this user who logs in.
    let config = std::fs::read_to_string(lab.path("ssh_config")).unwrap();
    let as_user = config.replace("User root", "User mesh");
    std::fs::write(lab.path("ssh_config"), as_user).unwrap();
    // It has to find its key.
    for entry in ["", "user_key.pub"] {
        let path = lab.path(entry);
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let output = lab.run(&[
        "deploy", "--binary", &binary, "spark1", "may-not", "changed",
    ]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = said(&output);
    for line in [
        "may-not: not deployed: needs root there",
        "changed: not installed: the program was changed after its upload",
    ] {
        assert!(said.contains(line), "{line:?} not in\n{said}");
    }
    assert_eq!(lab.on("spark1", "id -u"), "4242\n");
    assert_eq!(
        lab.on("spark1", "stat -c '%a %u' /opt/dsv41-mesh/bin/hairpin-mesh"),
        "755 0\n"
    );
    // The plan comes through sudo whole: it is read, and is another host's.
    if let Some(plan) = plan_folder() {
        let plan = plan.path().to_str().unwrap();
        let output = lab.run(&["deploy", "--binary", &binary, "--plan", plan, "spark1"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let why = "this is not spark1 of this plan, or its NIC is gone (hairpin-mesh doctor tells); nothing was changed";
        assert!(self::said(&output).contains(why), "{output:?}");
    }
    std::fs::write(lab.path("ssh_config"), config).unwrap();
    for (host, before) in hosts.iter().zip(&before).skip(1) {
        assert_same(&lab, host, before);
    }
    lab.on("spark1", "hairpin-mesh uninstall");
    assert_same(&lab, "spark1", &before[0]);
}

#[test]
fn the_doctor_says_of_live_hosts_what_it_says_of_their_facts() {
    let Some(mut lab) = Lab::new() else { return };
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doctor/base");
    let hosts = ["spark1", "spark2", "spark3", "spark4"];
    std::fs::create_dir(lab.path("facts")).unwrap();
    for host in hosts {
        let facts = std::fs::read_to_string(base.join(format!("{host}.json"))).unwrap();
        let facts = if host == "spark3" {
            facts.replacen("\"mtu\": 9000", "\"mtu\": 1500", 1)
        } else {
            facts
        };
        let file = lab.path(&format!("facts/{host}.json"));
        std::fs::write(&file, facts).unwrap();
        let told = script(&lab, host, &format!("exec cat '{}'", file.display()));
        lab.host(host, Some(&told));
    }
    let live = lab.run(&[&["doctor", "--json"][..], &hosts].concat());
    let captured = lab.run(&["doctor", "--json", "--inventory", "facts"]);
    assert_eq!(live.status.code(), Some(1), "{live:?}");
    assert_eq!(captured.status.code(), Some(1));
    assert_eq!(live.stdout, captured.stdout);
    let report: Value = serde_json::from_slice(&live.stdout).unwrap();
    assert_eq!(report["findings"][0]["code"], "port-mtu");

    // One that does not answer is trouble, and the others are diagnosed all the same.
    let output = lab.run(&["doctor", "--json", "spark1", "spark2", "spark3", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["failed"][0]["host"], "nowhere");
    assert_eq!(report["healthy"], false);
    assert_eq!(report["findings"][0]["code"], "port-mtu");
}

#[test]
fn hosts_are_watched_together_and_the_function_that_carries_nothing_is_named() {
    let Some(mut lab) = Lab::new() else { return };
    let line = |second: u64, busy: u64| {
        format!(
            "echo '{{\"schema\": \"hairpin-mesh.traffic/v1\", \"second\": {second}, \"looks\": [{{\"host\": \"x\", \"at_ms\": {}, \"functions\": [\
             {{\"device\": \"rocep1s0f0\", \"socket\": 0, \"sent_bytes\": {busy}, \"received_bytes\": 0, \"losses\": {{}}}}, \
             {{\"device\": \"roceP2p1s0f0\", \"socket\": 0, \"sent_bytes\": 1, \"received_bytes\": 0, \"losses\": {{}}}}]}}], \"rates\": [], \"failed\": []}}'",
            second * 1000
        )
    };
    let good = script(
        &lab,
        "good",
        &[line(0, 0), line(1, 5_000_000), line(2, 9_000_000)].join("\n"),
    );
    lab.host("spark1", Some(&good));
    lab.host("spark2", Some(&good));
    let output = lab.run(&[
        "doctor",
        "--watch",
        "2",
        "--json",
        "--metrics",
        "mesh.prom",
        "spark1",
        "spark2",
    ]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1]["rates"][1]["host"], "spark2");
    assert_eq!(
        lines[1]["rates"][1]["functions"][0]["sent_bytes_per_second"],
        5_000_000
    );
    assert_eq!(
        lines[2]["rates"][0]["functions"][0]["sent_bytes_per_second"],
        4_000_000
    );
    let findings = lines[2]["findings"].as_array().unwrap();
    let idle: Vec<(&str, &str)> = findings
        .iter()
        .map(|f| (f["host"].as_str().unwrap(), f["object"].as_str().unwrap()))
        .collect();
    assert_eq!(
        idle,
        [("spark1", "roceP2p1s0f0"), ("spark2", "roceP2p1s0f0")]
    );
    let prom = std::fs::read_to_string(lab.path("mesh.prom")).unwrap();
    assert!(
        prom.contains(
            "hairpin_mesh_sent_bytes_total{host=\"spark2\",device=\"rocep1s0f0\"} 9000000\n"
        ),
        "{prom}"
    );

    // A link in the place of the file is replaced, not followed.
    std::fs::write(lab.path("other"), "kept").unwrap();
    std::os::unix::fs::symlink(lab.path("other"), lab.path("link.prom")).unwrap();
    let output = lab.run(&["doctor", "--watch", "2", "--metrics", "link.prom", "spark1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("4 MB/s") || text.contains("4500 kB/s"),
        "{text}"
    );
    assert!(text.contains("[function-idle]"), "{text}");
    assert_eq!(std::fs::read_to_string(lab.path("other")).unwrap(), "kept");

    // One that ends early, or tells something else, is trouble and named.
    let garbage = script(&lab, "garbage", "echo hello; echo why >&2");
    lab.host("spark3", Some(&garbage));
    let output = lab.run(&["doctor", "--watch", "2", "--json", "spark1", "spark3"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("spark3: its line: is not JSON"),
        "{output:?}"
    );
}
