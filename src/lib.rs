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
//! | [`kernel`] | netlink, sysfs and procfs: bytes to values, no child processes | kernel |
//! | [`verbs`] | what only libibverbs knows, through the C layer in `native/` | device |
//! | [`collect()`](collect::collect) | this host's inventory | kernel, device |
//! | [`plan`] | facts to plan: checks, ring, paths, routes, rules, markers, environment | none |

#![warn(missing_docs)]

pub mod collect;
pub mod facts;
pub mod finding;
pub mod json;
pub mod kernel;
pub mod names;
pub mod plan;
pub mod verbs;
