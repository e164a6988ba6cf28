//! `cargo xtask ring`: installs what the virtual ring needs, builds the program that its nodes get, and
//! hands over to `tests/ring/ring.py`, which owns every process and file of a ring.

use std::os::unix::process::CommandExt;

use super::{Need, RDMA_HEADERS, cargo, install, packages, root, run};

pub const USAGE: &str = "\
usage: cargo xtask ring COMMAND

  up [--case NAME] [--set LINE]...
                  starts four machines, cabled as the case says, and leaves them running
  run [--case NAME] [--set LINE]... -- COMMAND [ARGUMENT]...
                  runs COMMAND with the ring that is up; with --case or --set, or when none is up, with
                  a ring of its own that ends with it. COMMAND reaches a node as `ssh spark1`; its
                  environment has RING_NODES, RING_SSH_CONFIG, RING_PROGRAM, RING_DIR and RING_CASE
  down            ends the ring that is up
  test [--reruns N] [CASE]...
                  the tests of tests/ring/cases, each on a ring of its own
  demo            the whole job on a ring of its own: inventory, plan, mesh-up, RDMA to opposite nodes
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

/// Runs a command of the ring; returns only when it could not start.
pub fn ring(arguments: &[String]) -> Result<(), String> {
    let root = root()?;
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
        let mut build = cargo(&root);
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
    // In place of this process, so that a signal for it is one for the ring, which cleans up.
    let error = std::process::Command::new("python3")
        .arg(root.join("tests/ring/ring.py"))
        .arg("--cache")
        .arg(root.join("target/ring"))
        .arg("--rings")
        .arg(rings)
        .arg("--program")
        .arg(program)
        .args(arguments)
        .exec();
    Err(format!("python3 did not start: {error}"))
}
