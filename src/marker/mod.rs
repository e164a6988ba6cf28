//! The source marker: the rule in the RDMA-TX table of one mlx5 device by which RoCE packets of one UDP
//! source port leave with another EtherType. It lives as long as the process that made it.
//!
//! | file | what it has | I/O |
//! |---|---|---|
//! | `rule.rs` | what is matched and changed, to the byte | none |
//! | `hold.rs` | making the rule and holding it until it is told to stop or the rule can no longer be there | device, kernel |
//! | `notify.rs` | what systemd is told | socket |
//! | `privilege.rs` | giving up what is not needed once the rule is in | process |

pub mod hold;
mod notify;
mod privilege;
mod rule;

pub use rule::Rewrite;
