//! What only libibverbs and libmlx5 can tell or do. The one door to the C layer in `native/`.
//!
//! The libraries are loaded at run time: a program on a machine without them starts, and says
//! "not observed". Built without the feature `rdma`, [`Verbs::load`] always gives that error.
//!
//! | file | what it has |
//! |---|---|
//! | `native.rs` | the C layer as `native/verbs.h` declares it |
//! | `device.rs` | [`Verbs`]: libibverbs, loaded; [`Device`]: an opened RDMA device, which borrows it |
//! | `mlx5.rs` | [`Mlx5`]: libmlx5, loaded; [`Rule`]: a steering rule in a device, which borrows both |
//! | `without.rs` | the same types in a build without the feature |

use std::io;

use crate::names::RdmaName;

#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod device;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod mlx5;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod native;
#[cfg(not(feature = "rdma"))]
mod without;

#[cfg(feature = "rdma")]
pub use device::{Device, Verbs};
#[cfg(feature = "rdma")]
pub use mlx5::{Mlx5, Rule};
#[cfg(not(feature = "rdma"))]
pub use without::{Device, Mlx5, Rule, Verbs};

/// Why a library gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// libibverbs is not there, or lacks something.
    #[error("libibverbs cannot be used: {0}")]
    Library(String),
    /// libmlx5 is not there, or lacks something.
    #[error("libmlx5 cannot be used: {0}")]
    Mlx5(String),
    /// A call failed.
    #[error("{call} of {device}: {source}")]
    Call {
        /// What was asked.
        call: &'static str,
        /// Of which device.
        device: RdmaName,
        /// The system's error.
        source: io::Error,
    },
}

/// What a device says of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortAttr {
    /// Active MTU, bytes; `None` for a code that this program does not know.
    pub active_mtu: Option<u32>,
    /// Largest MTU, bytes; likewise.
    pub max_mtu: Option<u32>,
}

/// `IBV_EVENT_DEVICE_FATAL` (`enum ibv_event_type`, `infiniband/verbs.h`): the device is gone or must be
/// initialised anew, and nothing that was made in it is there any more.
pub const DEVICE_FATAL: u32 = 8;

/// The calls that make a rule, as [`Error::Call`] names them.
pub const CREATE_MATCHER: &str = "mlx5dv_create_flow_matcher";
/// The second.
pub const CREATE_ACTION: &str = "mlx5dv_create_flow_action_modify_header";
/// The third.
pub const CREATE_FLOW: &str = "mlx5dv_create_flow";

/// Size of a match of an mlx5 rule, bytes: `fte_match_param` up to and with `misc_parameters_4`
/// (`linux/mlx5/mlx5_ifc.h`), six sets of 512 bits.
pub const MATCH_SIZE: usize = 0x180;
/// Size of a command of a modify-header action, bytes: `set_action_in` (`linux/mlx5/mlx5_ifc.h`).
pub const COMMAND_SIZE: usize = 8;

/// What a rule of the RDMA-TX table matches in outer headers, and the one command that changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleBytes {
    /// Which bits count.
    pub mask: [u8; MATCH_SIZE],
    /// What they must be.
    pub value: [u8; MATCH_SIZE],
    /// The modify-header command.
    pub command: [u8; COMMAND_SIZE],
}

#[cfg(all(test, feature = "rdma"))]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_does_not_exist_is_an_error_that_names_it() {
        let verbs = match Verbs::load() {
            Ok(verbs) => verbs,
            Err(error) => {
                // A machine without libibverbs: the error says so.
                assert!(error.to_string().contains("libibverbs"), "{error}");
                return;
            }
        };
        let name = "no-such-device".parse().unwrap();
        let error = verbs.open(&name).err().unwrap();
        assert!(
            error
                .to_string()
                .starts_with("ibv_open_device of no-such-device: "),
            "{error}"
        );
    }
}
