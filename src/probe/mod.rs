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
//! | `agent.rs` | the end on a node: answers on standard output what is asked on standard input | device, kernel |
//! | `session.rs` | an agent over ssh | child process |
//! | `run.rs` | the paths of a plan, one after the other | sessions |

pub mod agent;
mod counters;
#[cfg(feature = "rdma")]
mod exchange;
pub mod protocol;
pub mod run;
mod session;
pub mod statistics;
pub mod verdict;
