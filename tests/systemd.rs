//! Units of a systemd of our own: what is read is what `systemctl` shows, and jobs do what they say.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use common::not_tested;
use hairpin_mesh::kernel::systemd::{Error, Systemd, UnitState, Way};
use hairpin_mesh::plan::mesh::marker_unit;

const SYSTEMD: &str = "/usr/lib/systemd/systemd";

/// Set, to the folder to use, in the process that has the namespaces.
const INSIDE: &str = "HAIRPIN_MESH_OWN_SYSTEMD";

/// Runs `body` beside a systemd that manages units of a user, in namespaces of its own: starts this
/// program again in them, for the test `name` alone, which then comes here a second time.
fn beside_systemd(name: &str, body: impl FnOnce(&Path)) {
    if let Some(folder) = std::env::var_os(INSIDE) {
        let folder = PathBuf::from(folder);
        let mut systemd = start(&folder);
        body(&folder);
        systemd.kill().unwrap();
        systemd.wait().unwrap();
        // What it started goes with it, and its control groups.
        shell(
            &folder,
            "cd /sys/fs/cgroup; echo $PPID >cgroup.procs; echo $$ >cgroup.procs; echo 1 >$NAME/cgroup.kill
            until find $NAME -depth -type d -exec rmdir {} +; do sleep 0.01; done",
        );
        return;
    }
    let namespaces = [
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--cgroup",
        "--mount-proc",
    ];
    let can = |command: &mut Command| command.output().is_ok_and(|o| o.status.success());
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(namespaces);
        command
    };
    if !Path::new(SYSTEMD).exists() || !can(unshare().arg("true")) {
        not_tested(name, "no systemd, or no namespaces for one, here");
        return;
    }
    let folder = tempfile::Builder::new()
        .prefix("hairpin-mesh")
        .tempdir()
        .unwrap();
    let output = unshare()
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, folder.path())
        .env("XDG_RUNTIME_DIR", folder.path())
        // Where links of units that are enabled are, which the user has of their own.
        .env("XDG_CONFIG_HOME", folder.path().join("config"))
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

/// Starts it, and waits until it answers.
fn start(folder: &Path) -> Child {
    // It starts where systemd runs alone, and puts its units below the control group that it is in.
    shell(
        folder,
        "mkdir -p /run/systemd; mount -t tmpfs run /run/systemd; mkdir /run/systemd/system
        mount -t tmpfs cgroup /sys/fs/cgroup; mount -t cgroup2 cgroup /sys/fs/cgroup
        mkdir /sys/fs/cgroup/$NAME; echo $PPID >/sys/fs/cgroup/$NAME/cgroup.procs",
    );
    let units = folder.join("systemd/user");
    std::fs::create_dir_all(&units).unwrap();
    for (name, service) in [
        // Without Type=exec a unit counts as started before its program runs, and fails when it is
        // stopped then.
        ("dsv41-mesh-marker@", "Type=exec\nExecStart=sleep 1000"),
        ("failing", "Type=oneshot\nExecStart=false"),
        ("slow", "Type=oneshot\nExecStart=sleep 1000"),
        (
            "mesh",
            "Type=oneshot\nRemainAfterExit=yes\nExecStart=true\nExecReload=sh -c 'exit 3'",
        ),
        ("late", "Type=oneshot\nExecStart=sh -c 'exit 75'"),
    ] {
        let path = units.join(format!("{name}.service"));
        let install = "[Install]\nWantedBy=default.target";
        std::fs::write(path, format!("[Service]\n{service}\n{install}\n")).unwrap();
    }
    let systemd = Command::new(SYSTEMD)
        .args(["--user", "--log-target=null"])
        .spawn()
        .unwrap();
    let socket = folder.join("systemd/private");
    wait_for("systemd", || UnixStream::connect(&socket).is_ok());
    systemd
}

/// Runs a script that finds the folder's name as `NAME`, and this process as `PPID`.
fn shell(folder: &Path, script: &str) {
    let status = Command::new("sh")
        .args(["-ec", script])
        .env("NAME", folder.file_name().unwrap())
        .status()
        .unwrap();
    assert!(status.success(), "{script}");
}

fn wait_for(what: &str, there: impl Fn() -> bool) {
    let end = soon();
    while !there() {
        assert!(Instant::now() < end, "{what} does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A unit as `systemctl` shows it.
fn shown(unit: &str) -> UnitState {
    let properties = "-pLoadState,ActiveState,SubState,MainPID,ExecMainStartTimestampMonotonic";
    let output = Command::new("systemctl")
        .args(["--user", "show", properties, "--", unit])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let value = |key: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("{key}: {text}")).to_owned()
    };
    let main_pid = value("MainPID").parse().unwrap();
    let started = value("ExecMainStartTimestampMonotonic").parse().unwrap();
    UnitState {
        load: value("LoadState").as_str().into(),
        active: value("ActiveState").as_str().into(),
        sub: value("SubState").as_str().into(),
        main_pid,
        started_usec_monotonic: if main_pid == 0 { 0 } else { started },
    }
}

#[test]
fn units_are_started_stopped_and_read_as_systemctl_shows_them() {
    beside_systemd(
        "units_are_started_stopped_and_read_as_systemctl_shows_them",
        |folder| jobs(&folder.join("systemd/private"), Way::Peer),
    );
}

#[test]
fn the_same_goes_over_a_bus() {
    beside_systemd("the_same_goes_over_a_bus", |folder| {
        // Where a user has a bus, systemd listens for its clients from early on.
        if !Path::new("/usr/lib/systemd/user/dbus.socket").exists() {
            not_tested("systemd over a bus", "no bus daemon here");
            return;
        }
        let bus = folder.join("bus");
        wait_for("the bus", || UnixStream::connect(&bus).is_ok());
        jobs(&bus, Way::Bus);
    });
}

fn jobs(socket: &Path, way: Way) {
    let mut systemd = Systemd::connect(socket, way).unwrap();
    let [a, b] = ["rocep1s0f0", "mlx5-0"].map(|name| marker_unit(&name.parse().unwrap()));
    let units = [
        a.clone(),
        b.clone(),
        "none@x.service".to_owned(),
        "failing.service".to_owned(),
    ];
    let states = |systemd: &mut Systemd| {
        let states = systemd.states(&units).unwrap();
        let theirs: Vec<UnitState> = units.iter().map(|unit| shown(unit)).collect();
        assert_eq!(states, theirs);
        states
    };
    let before = states(&mut systemd);
    assert_eq!(before[0].load.as_str(), "loaded");
    assert_eq!(
        (before[0].active.as_str(), before[0].main_pid),
        ("inactive", 0)
    );
    assert_eq!(before[2].load.as_str(), "not-found");

    systemd.start(&a, soon()).unwrap();
    systemd.start(&b, soon()).unwrap();
    let started = states(&mut systemd);
    for state in &started[..2] {
        assert_eq!(
            (state.active.as_str(), state.sub.as_str()),
            ("active", "running")
        );
        assert!(state.main_pid > 0 && state.started_usec_monotonic > 0);
    }
    // Again: nothing to do. Then anew, and away.
    systemd.start(&a, soon()).unwrap();
    assert_eq!(states(&mut systemd), started);
    systemd.restart(&a, soon()).unwrap();
    let again = states(&mut systemd);
    assert_ne!(again[0].main_pid, started[0].main_pid);
    assert!(again[0].started_usec_monotonic > started[0].started_usec_monotonic);
    assert_eq!(again[1], started[1]);
    systemd.stop(&a, soon()).unwrap();
    systemd.stop(&b, soon()).unwrap();
    assert_eq!(states(&mut systemd)[0].active.as_str(), "inactive");

    let error = systemd.start("failing.service", soon()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot start failing.service: the job ended in failed, the unit in exit-code (systemctl status failing.service)"
    );
    assert_eq!(states(&mut systemd)[3].active.as_str(), "failed");
    let error = systemd.start("none@x.service", soon()).unwrap_err();
    assert!(
        matches!(&error, Error::Refused { name, .. } if name.as_str() == "org.freedesktop.systemd1.NoSuchUnit"),
        "{error}"
    );
    assert!(
        error.to_string().contains("Unit none@x.service not found"),
        "{error}"
    );

    let short = Instant::now() + Duration::from_millis(200);
    let error = systemd.start("slow.service", short).unwrap_err();
    assert!(
        matches!(error, Error::Late { verb: "start", .. }),
        "{error}"
    );
    // The connection is as good as before, and what goes on is another job's.
    systemd.start(&a, soon()).unwrap();
    systemd.stop("slow.service", soon()).unwrap();
    systemd.stop(&a, soon()).unwrap();
    states(&mut systemd);
    assert_eq!(systemd.states(&[]).unwrap(), []);
    files(&mut systemd);
}

/// What installing needs: units enabled, disabled and read anew, found by pattern, and how one ended.
fn files(systemd: &mut Systemd) {
    let unit = "mesh.service";
    let is_enabled = || {
        let mut command = Command::new("systemctl");
        command.args(["--user", "is-enabled", "--", unit]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let state = |systemd: &mut Systemd, unit: &str| {
        let state = systemd.unit_file_state(unit).unwrap();
        state.map(|state| state.as_str().to_owned())
    };
    assert_eq!(state(systemd, unit).as_deref(), Some("disabled"));
    for _ in 0..2 {
        systemd.enable(&[unit.to_owned()]).unwrap();
        assert_eq!(state(systemd, unit).as_deref(), Some("enabled"));
        assert_eq!(is_enabled(), "enabled\n");
    }
    for _ in 0..2 {
        systemd.disable(&[unit.to_owned()]).unwrap();
        assert_eq!(is_enabled(), "disabled\n");
    }
    assert_eq!(state(systemd, "none.service"), None);

    let pattern = "dsv41-mesh-marker@*.service";
    assert_eq!(systemd.matching(pattern).unwrap(), Vec::<String>::new());
    let marker = marker_unit(&"mlx5-0".parse().unwrap());
    systemd.start(&marker, soon()).unwrap();
    assert_eq!(
        systemd.matching(pattern).unwrap(),
        std::slice::from_ref(&marker)
    );
    systemd.stop(&marker, soon()).unwrap();

    systemd.start(unit, soon()).unwrap();
    let error = systemd.reload_unit(unit, soon()).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot reload mesh.service"),
        "{error}"
    );
    systemd.stop(unit, soon()).unwrap();
    systemd.start("late.service", soon()).unwrap_err();
    assert_eq!(systemd.exit_status("late.service").unwrap(), 75);

    // A new text counts once the files are read anew.
    let path = {
        let mut command = Command::new("systemctl");
        command.args(["--user", "show", "-pFragmentPath", "--value", "--", unit]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    std::fs::write(path.trim(), "[Service]\nExecStart=false\nType=oneshot\n").unwrap();
    systemd.reload(soon()).unwrap();
    systemd.start(unit, soon()).unwrap_err();
    assert_eq!(systemd.exit_status(unit).unwrap(), 1);
}

#[test]
fn the_unit_of_a_marker_is_named_after_its_device_as_the_scripts_of_the_plan_name_it() {
    for name in ["rocep1s0f0", "mlx5-0", "a.b_c:d-e--f", "0", "x_2d"] {
        assert_eq!(
            marker_unit(&name.parse().unwrap()),
            format!("dsv41-mesh-marker@{name}.service")
        );
    }
    let script = include_str!("../src/folder/script/common.sh");
    assert!(script.contains(r#"UNIT="dsv41-mesh-marker@$1.service""#));
}

#[test]
fn a_host_without_systemd_says_so() {
    match Systemd::open() {
        Err(Error::NotRunning) => assert!(!Path::new("/run/systemd/system").exists()),
        _ => assert!(Path::new("/run/systemd/system").exists()),
    }
    let error = Systemd::connect(Path::new("/dev/null/none"), Way::Peer)
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .starts_with("cannot reach systemd: /dev/null/none: "),
        "{error}"
    );
}
