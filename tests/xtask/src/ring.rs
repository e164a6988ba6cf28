//! `cargo xtask ring`: installs what the virtual ring needs, builds the program that its nodes get, and
//! hands over to `tests/ring/ring.py`, which owns every process and file of a ring.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::not_tested::NotTested;
use super::{Need, RDMA_HEADERS, cargo, install, packages, root, root_command, run};

pub const USAGE: &str = "\
usage: cargo xtask ring COMMAND

  up [--case NAME] [--set LINE]...
                  starts four machines, cabled as the case says, and leaves them running
  run [--case NAME] [--set LINE]... [--instructions] -- COMMAND [ARGUMENT]...
                  runs COMMAND with the ring that is up; with one of these options, or when none is up,
                  with a ring of its own that ends with it. COMMAND reaches a node as `ssh spark1`; its
                  environment has RING_NODES, RING_SSH_CONFIG, RING_PROGRAM, RING_DIR, RING_CASE and
                  RING_CLOCK. With --instructions a nanosecond of the machines' clock is one instruction
  down            ends the ring that is up
  test [--reruns N] [--rounds N] [--kill-every N] [CASE]...
                  the tests of tests/ring/cases, each on a ring of its own
  check           the checks of the imitated NIC and of the stand-in for libmlx5, on machines of their own
  gate [--reruns N] [--rounds N] [--kill-every N]
                  `check` and `test`, where a ring can run; elsewhere, or with HAIRPIN_MESH_RING=skip, it
                  succeeds and says loudly that nothing of this was tested
  demo            the whole job on a ring of its own: inventory, plan, up, verify, RDMA to opposite nodes, down
  image           fetches and builds what the machines boot, and no more

The first start fetches Debian packages and takes three minutes; later ones take seconds. What was
fetched and built is in target/ring. See tests/ring/README.md.
";

const NEEDS: &[Need] = &[
    Need {
        package: "qemu-system-x86",
        there: &["qemu-system-x86_64"],
        what: "the virtual ring",
    },
    Need {
        package: "mmdebstrap",
        there: &["mmdebstrap"],
        what: "the virtual ring",
    },
    // On Ubuntu the keys of Debian are a package of their own.
    Need {
        package: "debian-archive-keyring",
        there: &["/usr/share/keyrings/debian-archive-keyring.gpg"],
        what: "the virtual ring",
    },
    Need {
        package: "python3",
        there: &["python3"],
        what: "the virtual ring",
    },
    Need {
        package: "openssh-client",
        there: &["ssh"],
        what: "the virtual ring",
    },
];

/// `skip` leaves the ring out of the gate.
const SWITCH: &str = "HAIRPIN_MESH_RING";
/// What nothing else than the ring tests.
const ONLY_HERE: &str = "the virtual ring: rules in (imitated) hardware, RDMA to the opposite nodes, the \
                         marker, plans over SSH from four machines, fakehw, mlx5-shim";

/// Runs a command of the ring; returns only when it could not start, or when the gate goes on without it.
pub fn ring(arguments: &[String]) -> Result<(), String> {
    let root = root()?;
    if arguments.first().is_some_and(|verb| verb == "gate") && !gate(&root)? {
        return Ok(());
    }
    // In place of this process, so that a signal for it is one for the ring, which cleans up.
    let error = prepare(&root, arguments)?.exec();
    Err(format!("python3 did not start: {error}"))
}

/// Whether the gate of every change can test the ring here; said as not tested when it cannot.
fn gate(root: &Path) -> Result<bool, String> {
    let not_tested = NotTested::new(root)?;
    let cannot = |why: &str| {
        not_tested.say(&format!("{ONLY_HERE}: {why}"))?;
        not_tested.finish().map(|_| false)
    };
    match env::var(SWITCH).as_deref() {
        Ok("skip") => return cannot(&format!("{SWITCH}=skip")),
        Ok("") | Err(env::VarError::NotPresent) => {}
        _ => return Err(format!("{SWITCH}: `skip` or nothing wanted")),
    }
    if env::consts::ARCH != "x86_64" {
        return cannot(&format!(
            "its machines are x86-64, this one is {}",
            env::consts::ARCH
        ));
    }
    let image = prepare(root, &["image".to_owned()]).and_then(|mut command| run(&mut command));
    match image {
        Ok(()) => Ok(true),
        // Root can install, fetch and build everything: then it is a failure.
        Err(what) if root_command().is_some_and(<[_]>::is_empty) => Err(what),
        Err(what) => cannot(&format!(
            "not root, and without root `cargo xtask ring image` does not work here: {what}"
        )),
    }
}

/// Installs and builds what the command needs; the runner of the ring with its arguments.
fn prepare(root: &Path, arguments: &[String]) -> Result<Command, String> {
    let verb = arguments.first().map(String::as_str);
    let rings = root.join("target/ring/rings");
    let program = root.join("target/release/hairpin-mesh");
    if !matches!(verb, Some("down")) {
        let missing = install(NEEDS);
        if !missing.is_empty() {
            return Err(format!(
                "the ring needs {} (apt-get install --no-install-recommends {0})",
                packages(&missing)
            ));
        }
    }
    if !matches!(verb, Some("down" | "image")) {
        let mut build = cargo(root);
        build.args([
            "build",
            "--release",
            "--locked",
            "--quiet",
            "--package",
            "hairpin-mesh",
        ]);
        if !install(&[RDMA_HEADERS]).is_empty() {
            eprintln!(
                "xtask: building without libibverbs ({} is missing)",
                RDMA_HEADERS.package
            );
            build.arg("--no-default-features");
        }
        run(&mut build)?;
    }
    let mut runner = Command::new("python3");
    runner
        .arg(root.join("tests/ring/ring.py"))
        .arg("--cache")
        .arg(root.join("target/ring"))
        .arg("--rings")
        .arg(rings)
        .arg("--program")
        .arg(program)
        .args(arguments);
    Ok(runner)
}
