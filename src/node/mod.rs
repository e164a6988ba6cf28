//! This host as the mesh changes it: who it is, what it has now, its own state between runs, and the
//! kernel and systemd as the [`Platform`](crate::mesh::apply::Platform) of `mesh`.
//!
//! | file | what it is |
//! |---|---|
//! | `identity.rs` | which plan, and which host of it this is |
//! | `state.rs` | `/run/dsv41-mesh`: the lock, the journal, the plan that was applied, records |
//! | `read.rs` | what the host has now, by as few questions as can be |
//! | `platform.rs` | changes carried out by netlink and systemd |
//! | `queue.rs` | the hairpin queues by devlink: what is known of them, and how they are loaded |
//! | `wait.rs` | waiting for what comes right by itself |

pub mod identity;
pub mod platform;
pub mod queue;
pub mod read;
pub mod state;
pub mod wait;
