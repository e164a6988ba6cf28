//! `marker` beside stand-ins for libibverbs and libmlx5: what it hands them, what it says of each refusal,
//! and how it ends. What a real kernel makes of it is the ring's.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/stand_in.rs"]
mod stand_in;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use common::not_tested;
use stand_in::libraries;
use tempfile::TempDir;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A machine with the two libraries.
struct Machine {
    folder: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Machine {
    fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let events = folder.path().join("events");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &events,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let variables = vec![
            ("RECORD", path("record")),
            ("EVENTS", path("events")),
            ("DEVICES", "rocep1s0f0 rocep1s0f1".into()),
        ];
        Machine { folder, variables }
    }

    fn with(mut self, name: &'static str, value: &str) -> Machine {
        self.variables.push((name, value.into()));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `marker` with these arguments, with root's rights: at least those of a user namespace.
    fn command(&self, arguments: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_hairpin-mesh");
        let mut command = if rustix::process::geteuid().is_root() {
            Command::new(program)
        } else {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", program]);
            command
        };
        command
            .arg("marker")
            .args(arguments)
            .env_remove("NOTIFY_SOCKET")
            .env("LD_LIBRARY_PATH", libraries())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Exit code and standard error of a marker that does not start.
    fn refused(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.command(arguments).output().unwrap();
        assert_eq!(text(&output.stdout), "");
        (output.status.code(), text(&output.stderr))
    }

    fn start(&self, arguments: &[&str]) -> Marker {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let marker = Marker {
            child,
            stdout,
            line,
        };
        if marker.line.is_empty() {
            panic!("no marker: {:?}", marker.end());
        }
        marker
    }

    /// An asynchronous event of the device.
    fn event(&self, kind: u32) {
        let mut pipe = std::fs::OpenOptions::new()
            .write(true)
            .open(self.path("events"))
            .unwrap();
        pipe.write_all(&kind.to_ne_bytes()).unwrap();
    }

    fn record(&self) -> Vec<String> {
        let record = std::fs::read_to_string(self.path("record")).unwrap_or_default();
        record.lines().map(str::to_owned).collect()
    }
}

/// A marker that holds its rule.
struct Marker {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// What it printed first.
    line: String,
}

impl Marker {
    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Exit code and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let mut stderr = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        let mut more = String::new();
        self.stdout.read_to_string(&mut more).unwrap();
        assert_eq!(more, "");
        (self.child.wait().unwrap().code(), stderr)
    }

    fn status(&self, key: &str) -> String {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim_start_matches(':').trim().to_owned()
    }
}

/// Whether these tests can run here.
fn possible(test: &str) -> bool {
    if !cfg!(feature = "rdma") {
        not_tested(test, "built without the feature rdma");
        return false;
    }
    let namespace = Command::new("unshare")
        .args(["--user", "--map-root-user", "true"])
        .output();
    if rustix::process::geteuid().is_root() || namespace.is_ok_and(|o| o.status.success()) {
        return true;
    }
    not_tested(test, "needs root, or a user namespace");
    false
}

const DEVICE: [&str; 2] = ["--device", "rocep1s0f0"];

/// The bytes of a match that are not zero, as the stand-in writes them.
fn only(places: &[(usize, &str)]) -> String {
    let mut bytes = vec!["00"; 0x180];
    for (at, byte) in places {
        bytes[*at] = byte;
    }
    bytes.concat()
}

#[test]
fn the_libraries_are_handed_the_rule_to_the_byte_and_everything_is_taken_back() {
    if !possible("marker's calls") {
        return;
    }
    let machine = Machine::new();
    let marker = machine.start(&[
        "--device",
        "rocep1s0f1",
        "--source-port",
        "65535",
        "--replacement-ethertype",
        "0x88b5",
        "--attach",
        "--managed",
    ]);
    assert_eq!(
        marker.line,
        "{\"device\":\"rocep1s0f1\",\"rdma_tx_matcher\":true,\"action\":\"ethertype_rewrite\",\"source_port\":65535,\
         \"replacement_port\":0,\"attached\":true,\"requested_run_seconds\":0,\"max_run_seconds\":7200,\
         \"sigint_sigterm_cleanup\":true,\"managed\":true,\"lifetime_seconds\":null}\n"
    );
    marker.signal(rustix::process::Signal::TERM);
    let (code, stderr) = marker.end();
    assert_eq!(code, Some(0), "{stderr}");
    let port = only(&[(28, "ff"), (29, "ff")]);
    assert_eq!(
        machine.record(),
        [
            "open_device rocep1s0f1".to_owned(),
            format!(
                "create_flow_matcher type 0 flags 0 priority 0 criteria 1 comp_mask 1 ft_type 4 mask 384 {port}"
            ),
            "create_flow_action_modify_header ft_type 4 commands 8 10030010000088b5".into(),
            format!(
                "create_flow the matcher value 384 {port} actions 1 type 3 padding 0 the action"
            ),
            "destroy_flow 30".into(),
            "destroy_flow_action of the device".into(),
            "destroy_flow_matcher the matcher".into(),
            "close_device".into(),
        ]
    );
}

#[test]
fn another_port_ethertype_and_destination_are_handed_on_as_asked() {
    if !possible("marker's other values") {
        return;
    }
    let machine = Machine::new();
    let marker = machine.start(
        &[
            &DEVICE[..],
            &[
                "--source-port",
                "49153",
                "--replacement-ethertype",
                "0x1234",
            ],
            &["--match-destination", "10.10.2.11"],
        ]
        .concat(),
    );
    assert!(
        marker
            .line
            .ends_with("\"lifetime_seconds\":null,\"match_destination\":\"10.10.2.11\"}\n")
    );
    marker.signal(rustix::process::Signal::INT);
    let (code, stderr) = marker.end();
    assert_eq!(code, Some(0));
    assert!(stderr.contains("experimental"), "{stderr}");
    let record = machine.record();
    let ff = |at| (at, "ff");
    let mask = only(&[(18, "1e"), ff(28), ff(29), ff(60), ff(61), ff(62), ff(63)]);
    let value = only(&[
        (18, "08"),
        (28, "c0"),
        (29, "01"),
        (60, "0a"),
        (61, "0a"),
        (62, "02"),
        (63, "0b"),
    ]);
    assert!(
        record[1].ends_with(&format!(" mask 384 {mask}")),
        "{record:?}"
    );
    assert!(
        record[2].ends_with(" commands 8 1003001000001234"),
        "{record:?}"
    );
    assert!(
        record[3].contains(&format!(" value 384 {value} ")),
        "{record:?}"
    );
}

#[test]
fn each_refusal_has_its_reason_and_leaves_nothing() {
    if !possible("marker's refusals") {
        return;
    }
    let matcher = "destroy_flow_matcher the matcher";
    let action = "destroy_flow_action of the device";
    for (call, errno, wanted, undone) in [
        ("is_supported", 1, "not a device of mlx5", &[][..]),
        (
            "create_flow_matcher",
            libc::EOPNOTSUPP,
            "no RDMA-TX table",
            &[],
        ),
        ("create_flow_matcher", libc::ENOMEM, "no room", &[]),
        (
            "create_flow_action_modify_header",
            libc::EOPNOTSUPP,
            "no modify-header here: flow_steering_mode",
            &[matcher],
        ),
        (
            "create_flow",
            libc::EPERM,
            "CAP_NET_RAW",
            &[action, matcher],
        ),
        (
            "create_flow",
            libc::EINVAL,
            "flow_steering_mode is not hmfs",
            &[action, matcher],
        ),
        (
            "create_flow",
            libc::EEXIST,
            "another marker",
            &[action, matcher],
        ),
        (
            "create_flow",
            libc::EIO,
            "initialised anew",
            &[action, matcher],
        ),
    ] {
        let machine = Machine::new().with("REFUSE", &format!("{call}:{errno}"));
        let (code, stderr) = machine.refused(&DEVICE);
        assert_eq!(code, Some(2), "{call}: {stderr}");
        assert!(stderr.contains(wanted), "{call} {errno}: {stderr}");
        assert!(stderr.contains("rocep1s0f0"), "{stderr}");
        let record = machine.record();
        let made = record
            .iter()
            .rposition(|line| line.starts_with("create_"))
            .map_or(1, |at| at + 1);
        let (closed, undoing) = record[made..].split_last().unwrap();
        assert_eq!(closed, "close_device", "{call}: {record:?}");
        assert_eq!(undoing, undone, "{call} {errno}");
    }
}

#[test]
fn a_device_that_there_is_not_is_named_beside_those_that_there_are() {
    if !possible("marker without its device") {
        return;
    }
    let (code, stderr) = Machine::new().refused(&["--device", "rocep9s0f0"]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("there is no RDMA device rocep9s0f0; this host has "),
        "{stderr}"
    );
    let none = Machine::new().with("REFUSE", &format!("get_device_list:{}", libc::ENOSYS));
    let (code, stderr) = none.refused(&DEVICE);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("there is no RDMA device rocep1s0f0; "),
        "{stderr}"
    );
}

#[test]
fn arguments_that_are_none_are_refused_before_anything_is_opened() {
    for arguments in [
        &[][..],
        &["--device", "../x"],
        &["--device", "rocep1s0f0", "--source-port", "0"],
        &["--device", "rocep1s0f0", "--source-port", "65536"],
        &[
            "--device",
            "rocep1s0f0",
            "--replacement-ethertype",
            "0x05ff",
        ],
        &[
            "--device",
            "rocep1s0f0",
            "--replacement-ethertype",
            "0x+8b5",
        ],
        &["--device", "rocep1s0f0", "--match-destination", "10.0.0"],
    ] {
        let machine = Machine::new();
        let (code, _) = machine.refused(arguments);
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(machine.record().is_empty());
    }
}

#[test]
fn a_device_that_comes_late_is_waited_for_and_one_that_does_not_is_told() {
    if !possible("marker before its device") {
        return;
    }
    let machine = Machine::new();
    let present = machine.path("present").display().to_string();
    let machine = machine.with("PRESENT", &present);
    let (code, stderr) = machine.refused(&[&DEVICE[..], &["--wait", "1"]].concat());
    assert_eq!(code, Some(75));
    assert!(
        stderr.contains("no RDMA device rocep1s0f0 within 1 s: there is no"),
        "{stderr}"
    );

    // A signal ends the wait.
    let socket = UnixDatagram::bind(machine.path("notify")).unwrap();
    let notify = machine.path("notify").display().to_string();
    let waits = |arguments: &[&str]| {
        let mut child = machine
            .command(arguments)
            .env("NOTIFY_SOCKET", &notify)
            .spawn()
            .unwrap();
        let mut told = [0; 256];
        let length = socket.recv(&mut told).unwrap();
        assert_eq!(text(&told[..length]), "STATUS=waits for rocep1s0f0");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Marker {
            child,
            stdout,
            line: String::new(),
        }
    };
    let long = [&DEVICE[..], &["--wait", "600"]].concat();
    let marker = waits(&long);
    marker.signal(rustix::process::Signal::TERM);
    assert_eq!(marker.end().0, Some(0));

    let mut marker = waits(&long);
    std::fs::write(&present, "").unwrap();
    marker.stdout.read_line(&mut marker.line).unwrap();
    assert!(marker.line.contains("\"attached\":true"), "{}", marker.line);
    marker.signal(rustix::process::Signal::TERM);
    assert_eq!(marker.end().0, Some(0));
}

#[test]
fn systemd_is_told_that_the_rule_is_in_only_once_it_is() {
    if !possible("marker and systemd") {
        return;
    }
    let machine = Machine::new();
    let socket = UnixDatagram::bind(machine.path("notify")).unwrap();
    let notify = machine.path("notify").display().to_string();
    let machine = machine.with("NOTIFY_SOCKET", &notify);
    let taken = || {
        let mut told = [0; 256];
        let length = socket.recv(&mut told).unwrap();
        text(&told[..length])
    };
    let mut command = machine.command(&DEVICE);
    command.env("NOTIFY_SOCKET", &notify);
    let mut child = command.spawn().unwrap();
    assert_eq!(
        taken(),
        "READY=1\nSTATUS=tags what leaves rocep1s0f0 with UDP source port 65535 with EtherType 0x88b5"
    );
    let made = machine.record();
    assert!(
        made.last().unwrap().starts_with("create_flow the matcher "),
        "{made:?}"
    );
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let mut marker = Marker {
        child,
        stdout,
        line: String::new(),
    };
    marker.stdout.read_line(&mut marker.line).unwrap();
    marker.signal(rustix::process::Signal::TERM);
    assert_eq!(taken(), "STOPPING=1\nSTATUS=takes the rule out");
    assert_eq!(marker.end().0, Some(0));

    // One that fails says nothing of being ready.
    let machine = machine.with("REFUSE", "create_flow:95");
    let mut command = machine.command(&DEVICE);
    command.env("NOTIFY_SOCKET", &notify);
    assert_eq!(command.output().unwrap().status.code(), Some(2));
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 256]).is_err());
}

#[test]
fn a_device_that_is_initialised_anew_ends_it_and_a_port_that_goes_down_does_not() {
    if !possible("marker and its device's end") {
        return;
    }
    const DEVICE_FATAL: u32 = 8;
    const PORT_ACTIVE: u32 = 9;
    const PORT_ERR: u32 = 10;
    let machine = Machine::new();
    let marker = machine.start(&DEVICE);
    for kind in [PORT_ERR, PORT_ACTIVE, DEVICE_FATAL] {
        machine.event(kind);
    }
    let (code, stderr) = marker.end();
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("rocep1s0f0 has no rule any more")
            && stderr.contains("IBV_EVENT_DEVICE_FATAL"),
        "{stderr}"
    );
    let record = machine.record();
    let acknowledged: Vec<&String> = record
        .iter()
        .filter(|line| line.starts_with("ack"))
        .collect();
    assert_eq!(
        acknowledged,
        [
            "ack_async_event 10",
            "ack_async_event 9",
            "ack_async_event 8"
        ]
    );
}

#[test]
fn events_that_cannot_be_read_end_it() {
    if !possible("marker and a dead event descriptor") {
        return;
    }
    let machine = Machine::new().with("REFUSE", &format!("get_async_event:{}", libc::EIO));
    let marker = machine.start(&DEVICE);
    machine.event(9);
    let (code, stderr) = marker.end();
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("ibv_get_async_event of rocep1s0f0"),
        "{stderr}"
    );
}

#[test]
fn while_it_holds_the_rule_it_has_no_capability_is_never_woken_and_is_small() {
    if !possible("marker at rest") {
        return;
    }
    let machine = Machine::new();
    let marker = machine.start(&DEVICE);
    // It still has to tell nobody that it is ready; then it waits.
    let stat = format!("/proc/{}/stat", marker.child.id());
    while !text(&std::fs::read(&stat).unwrap()).contains(") S ") {
        std::thread::yield_now();
    }
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(marker.status(set), "0000000000000000", "{set}");
    }
    assert_eq!(marker.status("NoNewPrivs"), "1");
    // The memory, threads and wake-ups of an emulator are its own.
    let exe = std::fs::read_link(format!("/proc/{}/exe", marker.child.id())).unwrap();
    if exe
        .file_name()
        .unwrap()
        .as_encoded_bytes()
        .starts_with(b"qemu-")
    {
        return common::not_tested("a marker at rest", "the program runs in qemu-user");
    }
    assert_eq!(marker.status("Threads"), "1");
    // A program that is not optimised is larger; on the ring the released one is held to 4 MiB.
    let most = if cfg!(debug_assertions) { 6144 } else { 4096 };
    // What it does last before it waits is to give memory back.
    let resident = || -> u32 {
        let text = marker.status("VmRSS");
        text.trim_end_matches(" kB").parse().unwrap()
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while resident() >= most && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    assert!(resident() < most, "{} KiB", resident());
    let before = marker.status("voluntary_ctxt_switches");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(marker.status("voluntary_ctxt_switches"), before);
    marker.signal(rustix::process::Signal::TERM);
    assert_eq!(marker.end().0, Some(0));
}

#[test]
fn without_cap_net_raw_it_is_refused_before_the_device_is_opened() {
    if !possible("marker without CAP_NET_RAW") {
        return;
    }
    let machine = Machine::new();
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", "-net_raw", "--inh-caps", "-net_raw"])
        .arg(env!("CARGO_BIN_EXE_hairpin-mesh"))
        .args(["marker", "--device", "rocep1s0f0"])
        .env("LD_LIBRARY_PATH", libraries())
        .envs(machine.variables.iter().map(|(name, value)| (name, value)));
    if !rustix::process::geteuid().is_root() {
        // Nobody's process has it anyway.
        command = Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"));
        command.args(["marker", "--device", "rocep1s0f0"]);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("CAP_NET_RAW"),
        "{}",
        text(&output.stderr)
    );
    assert!(machine.record().is_empty());
}
