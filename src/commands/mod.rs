//! The verbs: from what was typed to what is done, and the exit code.
//!
//! | file | verb |
//! |---|---|
//! | `inventory.rs` | `inventory` |
//! | `plan.rs` | `plan` |
//! | `up.rs`, `down.rs` | `up`, `down` |
//! | `verify.rs` | `verify` |
//! | `install.rs`, `uninstall.rs`, `deploy.rs` | `install`, `uninstall`, `deploy` |
//! | `doctor.rs`, `watch.rs` | `doctor`, and its `--watch` |
//! | `netplan.rs` | `netplan` |
//! | `completions.rs` | `completions` |
//! | `marker.rs` | `marker` |
//! | `probe.rs` | `probe`, and its end on a node |
//! | `hairpin_queue.rs` | `hairpin-queue`, and the part of `up` that loads the queue size |
//! | `usage.rs` | what is no command line |
//! | `host.rs` | what the verbs on a node share: the plan, the host's name, open queue pairs |

mod completions;
mod deploy;
mod doctor;
mod down;
mod hairpin_queue;
mod host;
mod install;
mod inventory;
mod marker;
mod netplan;
mod plan;
mod probe;
mod uninstall;
mod up;
mod usage;
mod verify;
mod watch;

pub use usage::not_understood;

use crate::cli::{Cli, Verb};
use crate::files::FileError;
use crate::json::DocumentError;
use crate::node::{identity, state};
use crate::output;

/// How a verb ended, as the process says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// In sync, planned, proven.
    Yes = 0,
    /// Refused, drift, not as wanted.
    No = 1,
    /// Usage, bad input, no permission, no device.
    Trouble = 2,
    /// Applying failed, and the host was restored as it was.
    Restored = 3,
    /// Applying failed, and the host could not be restored.
    NotRestored = 4,
    /// What waiting can cure was not ready in time (`EX_TEMPFAIL`, `sysexits.h`).
    NotReady = 75,
}

/// Why a verb could not do its work (exit 2).
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Identity(#[from] identity::Error),
    #[error(transparent)]
    State(#[from] state::Error),
    #[error("writing the result failed: {0}")]
    Output(#[from] std::io::Error),
    #[error("{0}")]
    Usage(String),
    /// Several at once, one line each.
    #[error("{}", .0.join("\n"))]
    Several(Vec<String>),
}

impl Trouble {
    /// What it says, a line each.
    fn lines(&self) -> Vec<String> {
        self.to_string().lines().map(str::to_owned).collect()
    }
}

/// Does what was typed.
pub fn run(cli: Cli) -> Exit {
    let result = match cli.verb {
        Verb::Inventory(args) => inventory::run(args.0),
        Verb::Plan(args) => plan::run(args.0),
        Verb::Up(args) => up::run(args.0),
        Verb::Down(args) => down::run(args.0),
        Verb::Verify(args) => verify::run(args.0),
        Verb::Install(args) => install::run(args.0),
        Verb::Uninstall(args) => uninstall::run(args.0),
        Verb::Deploy(args) => deploy::run(args.0),
        Verb::Doctor(args) => doctor::run(args.0),
        Verb::Netplan(args) => netplan::run(args.0),
        Verb::Completions(args) => completions::run(args.0),
        Verb::Marker(args) => marker::run(args.0),
        Verb::Probe(args) => probe::run(args),
        Verb::ProbeAgent => probe::agent(),
        Verb::HairpinQueue(args) => hairpin_queue::run(args.0),
    };
    result.unwrap_or_else(|trouble| {
        for line in trouble.lines() {
            output::failure(&line);
        }
        Exit::Trouble
    })
}
