//! Chores of the project, in Rust so that the toolchain is all they need: `cargo xtask test`,
//! `cargo xtask demo`, `cargo xtask ring`.

mod not_tested;
mod ring;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use not_tested::NotTested;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test   installs what the tests need where it is missing (Debian, Ubuntu: apt-get, as root or by
         sudo -n), then runs all of them; arguments after it go to `cargo test`
  demo   plans the ring of plans/tp-along-ring into target/demo/ring-mesh and shows what was made
  ring   the virtual ring: four machines, their cables and NICs, in software; `cargo xtask ring help`
  not-tested FILE
         shows what the tests said in this file that they did not test; `.ci/run` ends with it
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("test") => test(&arguments[1..]),
        Some("demo") if arguments.len() == 1 => demo(),
        Some("not-tested") if arguments.len() == 2 => not_tested::show(Path::new(&arguments[1])),
        Some("ring") => match arguments.get(1).map(String::as_str) {
            Some("up" | "run" | "down" | "test" | "check" | "gate" | "demo" | "image") => {
                ring::ring(&arguments[1..])
            }
            Some("--help" | "-h" | "help") => {
                print!("{}", ring::USAGE);
                Ok(())
            }
            _ => {
                eprint!("{}", ring::USAGE);
                return ExitCode::from(2);
            }
        },
        Some("--help" | "-h" | "help") => {
            print!("{USAGE}");
            Ok(())
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("xtask: {what}");
            ExitCode::FAILURE
        }
    }
}

fn test(more: &[String]) -> Result<(), String> {
    let root = root()?;
    let missing = install(NEEDS);
    let not_tested = NotTested::new(&root)?;
    for need in &missing {
        not_tested.say(&format!("{}: {} missing", need.what, need.package))?;
    }
    let default_features = !missing
        .iter()
        .any(|need| need.package == RDMA_HEADERS.package);

    let mut results = Vec::new();
    let features: &[&str] = if default_features {
        &[]
    } else {
        &["--no-default-features"]
    };
    let mut tests = cargo(&root);
    // All test programs run, also after one that failed: one run shows everything.
    tests
        .args(["test", "--workspace", "--locked", "--no-fail-fast"])
        .args(features)
        .args(more)
        .env(not_tested::VARIABLE, not_tested.file());
    results.push(run(&mut tests));
    // The program without libibverbs, which must go on building.
    let mut check = cargo(&root);
    check.args([
        "check",
        "--package",
        "hairpin-mesh",
        "--all-targets",
        "--locked",
        "--no-default-features",
    ]);
    results.push(run(&mut check));

    let failed: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    if !missing.is_empty() {
        eprintln!(
            "xtask: to test more, install as root: apt-get update && apt-get install --no-install-recommends {}",
            packages(&missing)
        );
    }
    let all = not_tested.finish()?;
    if !failed.is_empty() {
        return Err(failed.join("; "));
    }
    eprintln!(
        "xtask: {}",
        if all {
            "all tests passed"
        } else {
            "what was tested passed; some was NOT TESTED"
        }
    );
    Ok(())
}

fn demo() -> Result<(), String> {
    let root = root()?;
    let out = "target/demo/ring-mesh";
    fs::create_dir_all(root.join("target/demo")).map_err(|e| format!("target/demo: {e}"))?;
    let mut plan = cargo(&root);
    plan.args(["run", "--quiet", "--locked", "--package", "hairpin-mesh"]);
    if !install(&[RDMA_HEADERS]).is_empty() {
        eprintln!(
            "xtask: building without libibverbs ({} is missing): `plan` does not need it",
            RDMA_HEADERS.package
        );
        plan.arg("--no-default-features");
    }
    plan.args([
        "--",
        "plan",
        "--inventory",
        "plans/tp-along-ring/inventory",
        "--out",
        out,
    ]);
    plan.args(["spark1", "spark2", "spark3", "spark4"]);
    run(&mut plan)?;

    println!("\n{out}:");
    let mut files = Vec::new();
    list(&root.join(out), &mut files).map_err(|e| format!("{out}: {e}"))?;
    files.sort();
    for (file, bytes) in files {
        let file = file.strip_prefix(root.join(out)).unwrap_or(&file).display();
        println!("{bytes:>8}  {file}");
    }
    let env = fs::read_to_string(root.join(out).join("env.txt"))
        .map_err(|e| format!("{out}/env.txt: {e}"))?;
    println!("\n{out}/env.txt:\n{env}\nthe ring to look at or to print: {out}/topology.svg");
    Ok(())
}

fn list(folder: &Path, files: &mut Vec<(PathBuf, u64)>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push((entry.path(), about.len()));
        }
    }
    Ok(())
}

/// The root of the workspace, from what cargo tells the programs that it runs.
fn root() -> Result<PathBuf, String> {
    let own = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    own.and_then(|own| Some(own.parent()?.parent()?.to_owned()))
        .ok_or_else(|| "run it as `cargo xtask`".to_owned())
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

/// Runs a command in the open; an error when it does not succeed.
fn run(command: &mut Command) -> Result<(), String> {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_owned();
    let words: Vec<_> = std::iter::once(program.as_os_str())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    let line = words.join(" ");
    eprintln!("xtask: {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` failed ({status})")),
        Err(e) => Err(format!("`{line}` did not start: {e}")),
    }
}

/// A package of Debian and Ubuntu that a build or a test needs.
struct Need {
    package: &'static str,
    /// There when one of these is: a program by its name, a file by its path.
    there: &'static [&'static str],
    /// What cannot be tested without it.
    what: &'static str,
}

const RDMA_HEADERS: Need = Need {
    package: "libibverbs-dev",
    there: &["/usr/include/infiniband/verbs.h"],
    what: "the feature `rdma`: facts that only libibverbs has",
};

const NEEDS: &[Need] = &[
    RDMA_HEADERS,
    Need {
        package: "iproute2",
        there: &["ip"],
        what: "kernel facts in a network namespace, the scripts' ip and tc",
    },
    Need {
        package: "openssh-client",
        there: &["ssh"],
        what: "inventory over SSH",
    },
    Need {
        package: "openssh-server",
        there: &["sshd"],
        what: "inventory over SSH",
    },
    Need {
        package: "shellcheck",
        there: &["shellcheck"],
        what: "the scripts, by shellcheck",
    },
    Need {
        package: "librsvg2-bin",
        there: &["rsvg-convert"],
        what: "topology.svg, by a renderer",
    },
];

impl Need {
    fn is_there(&self) -> bool {
        self.there
            .iter()
            .any(|name| name.starts_with('/') && Path::new(name).exists() || has_program(name))
    }
}

fn has_program(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // Users have no sbin in their PATH; tc and sshd are there.
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).any(|file| {
        file.metadata()
            .is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0)
    })
}

fn packages(needs: &[&Need]) -> String {
    needs
        .iter()
        .map(|need| need.package)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Installs what is missing, and returns what still is.
fn install(needs: &[Need]) -> Vec<&Need> {
    let missing = || {
        needs
            .iter()
            .filter(|need| !need.is_there())
            .collect::<Vec<_>>()
    };
    let before = missing();
    if before.is_empty() {
        return before;
    }
    let wanted = packages(&before);
    let Some(as_root) = root_command() else {
        eprintln!("xtask: {wanted}: missing, and neither root nor `sudo -n` to install with");
        return before;
    };
    if !has_program("apt-get") {
        eprintln!(
            "xtask: {wanted}: missing, and no apt-get to install with; on this system the packages may have other names"
        );
        return before;
    }
    eprintln!("xtask: installing {wanted}");
    let privileged = |words: &[&str]| {
        let words: Vec<&str> = as_root
            .iter()
            .copied()
            .chain(words.iter().copied())
            .collect();
        run(Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::null()))
    };
    // The tests start their own sshd on the loopback. That of the package must not start listening
    // on this machine because somebody ran tests.
    let quiet_sshd = before.iter().any(|need| need.package == "openssh-server")
        && Path::new("/run/systemd/system").exists();
    let units = ["ssh.service", "ssh.socket"];
    let systemctl = |verb: &str| privileged(&["systemctl", verb, units[0], units[1]]);
    let result = (|| {
        if quiet_sshd {
            systemctl("mask")?;
        }
        let apt = |words: &[&str]| {
            let quiet = [
                "env",
                "DEBIAN_FRONTEND=noninteractive",
                "apt-get",
                "-qq",
                "-o",
                "DPkg::Lock::Timeout=120",
            ];
            privileged(&[&quiet[..], words].concat())
        };
        // Old lists still name most packages, so a mirror that is away is not yet a failure.
        let updated = apt(&["update"]);
        let mut words = vec!["install", "--yes", "--no-install-recommends"];
        words.extend(before.iter().map(|need| need.package));
        apt(&words).map_err(|e| {
            updated
                .err()
                .map_or_else(|| e.clone(), |u| format!("{u}; {e}"))
        })
    })();
    if quiet_sshd {
        for verb in ["unmask", "disable"] {
            if let Err(e) = systemctl(verb) {
                eprintln!("xtask: {e}");
            }
        }
    }
    if let Err(e) = result {
        eprintln!("xtask: {e}");
    }
    missing()
}

/// The words before a command that make it root's; none when there is no way.
fn root_command() -> Option<&'static [&'static str]> {
    // /proc/self belongs to the effective user.
    if fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0) {
        return Some(&[]);
    }
    let sudo = Command::new("sudo")
        .args(["-n", "true"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    sudo.is_ok_and(|status| status.success())
        .then_some(&["sudo", "-n"])
}
