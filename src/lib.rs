//! `hairpin-mesh`: RDMA fabric verifier and hairpin mesh installer.
//!
//! Where things live:
//!
//! | module | what it is | I/O |
//! |---|---|---|
//! | [`names`] | validated names and addresses; nothing from outside becomes a name elsewhere | none |
//! | [`json`] | strict JSON input whose errors name the place | none |
//! | [`finding`] | the unit of every report | none |
//! | [`facts`] | the facts of one node, and their document | none |
//! | [`plan`] | facts to plan: checks, ring, paths, routes, rules, markers, environment | none |
//! | [`folder`] | plan to plan folder: scripts, picture, documents | none |
//! | [`redact`] | facts that can be shown to others | none |
//! | [`files`] | bounded reading; replacing a file or folder as a whole | files |
//! | [`lock`] | one run at a time | files |
//! | [`kernel`] | netlink, sysfs and procfs: bytes to values, no child processes | kernel |
//! | [`verbs`] | what only libibverbs knows, through the C layer in `native/` | device |
//! | [`collect()`](collect::collect) | this host's inventory | kernel, device |
//! | [`marker`] | the source marker of one RDMA device: its rule, and holding it | device, kernel |
//! | [`mesh`] | a host's plan against what the host has: comparison, changes, findings | none |
//! | [`doctor`] | facts of all nodes to what is wrong: causes, and what follows from each | none |
//! | [`node`] | this host as `mesh` changes it: identity, state between runs, kernel and systemd | kernel, files |
//! | [`probe`] | RDMA-write latency over the paths of a plan, and the proof of the path | device, kernel, child processes |
//! | [`install`] | the program, its units and its plan on a host: all put in place, or none | files |
//! | `remote` | the program on other hosts over SSH | child processes |
//! | `cli`, `commands`, `output` | what is typed, what is done, what is shown | terminal |

// A test that cannot go on fails.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod collect;
pub mod doctor;
pub mod facts;
pub mod files;
pub mod finding;
pub mod folder;
pub mod install;
pub mod json;
pub mod kernel;
pub mod lock;
pub mod marker;
pub mod mesh;
pub mod names;
pub mod node;
pub mod plan;
pub mod probe;
pub mod redact;
pub mod verbs;

mod cli;
mod commands;
mod output;
mod remote;

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod testing;

pub use cli::Cli;
pub use commands::{Exit, not_understood, run};
