//! `probe`: the latency of RDMA writes over the paths of a plan, and the proof of which way they took.
//!
//! ```text
//! plan -> paths -> for each: an agent on its nodes (ssh) -> queue pairs -> ping-pong -> samples -> statistics
//!                                 \-> counters before and after --------------------------> verdict
//! ```
//!
//! | file | what it has | I/O |
//! |---|---|---|
//! | `statistics.rs` | figures of a run: perftest's, and true ones | none |
//! | `verdict.rs` | what figures and counters say of a path | none |
//! | `protocol.rs` | what is asked of an agent and what it answers, a JSON object a line | none |
//! | `exchange.rs` | the measured loop, between two queue pairs | device |
//! | `counters.rs` | the counters of a node | kernel, read only |
//! | `agent.rs` | the end on a node: answers what is asked | device, kernel |
//! | `session.rs` | an agent over ssh, as a process here, or over TCP | child process, socket |
//! | `agents.rs` | two agents brought together, and messages between them | sessions |
//! | `by_hand.rs` | two ends that are started by hand | socket, sessions |
//! | `sweep.rs` | messages of rising size, until something is lost | sessions |
//! | `picture.rs` | the ring drawn with its latencies | none |
//! | `run.rs` | the paths of a plan, one after the other | sessions |

pub mod agent;
pub mod agents;
pub mod by_hand;
mod counters;
#[cfg(feature = "rdma")]
pub mod exchange;
pub mod picture;
pub mod protocol;
pub mod run;
mod session;
pub mod statistics;
pub mod sweep;
pub mod verdict;
