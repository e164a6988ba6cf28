//! A host's share of the plan made true: the one comparison of what is wanted with what is there,
//! and everything that comes of it.
//!
//! ```text
//! host plan + what the host has now --compare (pure)--> comparison
//! comparison --steps (pure)--> changes --apply--> kernel, systemd; journal; back again on failure
//! comparison --findings (pure)--> verify
//! ```
//!
//! Pure but for the [`apply::Platform`] that `apply` is given: no I/O, no clock, stable order. The
//! kernel and systemd are behind `node`.
//!
//! | file | what it is |
//! |---|---|
//! | `wanted.rs` | the objects of a host, in the same types as the facts |
//! | `present.rs` | what the host has now of everything that the plan touches |
//! | `compare.rs` | the comparison: each object right, absent, stale, to adopt, or something in the way |
//! | `condition.rs` | the settings of a port without which nothing may be applied |
//! | `change.rs` | one change and its inverse |
//! | `steps.rs` | the changes that bring a host up, or down, in their order |
//! | `queue.rs` | the hairpin queues: what is set and loaded, and how they are loaded, function by function |
//! | `apply.rs` | carries changes out, journals each before it is done, takes back on failure |
//! | `verify.rs` | the comparison as findings, causes before consequences |

pub mod apply;
pub mod change;
pub mod compare;
pub mod condition;
pub mod present;
pub mod queue;
pub mod steps;
pub mod verify;
pub mod wanted;
