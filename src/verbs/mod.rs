//! What only libibverbs and libmlx5 can tell or do. The one door to the C layer in `native/`.
//!
//! The libraries are loaded at run time: a program on a machine without them starts, and says
//! "not observed". Built without the feature `rdma`, [`Verbs::load`] always gives that error.
//!
//! | file | what it has |
//! |---|---|
//! | `native.rs` | the C layer as `native/verbs.h` declares it |
//! | `device.rs` | [`Verbs`]: libibverbs, loaded; [`Device`]: an opened RDMA device, which borrows it |
//! | `domain.rs` | [`Domain`]: a protection domain; [`Memory`]: bytes registered in it |
//! | `queue.rs` | [`Queue`]: a completion queue |
//! | `queue_pair.rs` | [`Fresh`] and [`Connected`]: an RC queue pair before and after it has its peer |
//! | `mlx5.rs` | [`Mlx5`]: libmlx5, loaded; [`Rule`]: a steering rule in a device, which borrows both |
//! | `without.rs` | the same types in a build without the feature |

use std::io;

use crate::names::{Gid, RdmaName};

#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod device;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod domain;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod mlx5;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod native;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod queue;
#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod queue_pair;
#[cfg(not(feature = "rdma"))]
mod without;

#[cfg(feature = "rdma")]
pub use device::{Device, Verbs};
#[cfg(feature = "rdma")]
pub use domain::{Domain, Memory};
#[cfg(feature = "rdma")]
pub use mlx5::{Mlx5, Rule};
#[cfg(feature = "rdma")]
pub use queue::Queue;
#[cfg(feature = "rdma")]
pub use queue_pair::{Connected, Fresh};
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
    /// A queue pair could not be brought to its peer.
    #[error("{call} of {device}, GID index {gid_index}, peer {peer}: {}", way(*.errno))]
    Connect {
        /// On the way to which state.
        call: &'static str,
        /// Of which device.
        device: RdmaName,
        /// Index of its own GID.
        gid_index: u8,
        /// The peer's GID.
        peer: Gid,
        /// The system's error.
        errno: i32,
    },
}

/// What an errno of a queue pair on its way to its peer says of the path (`rdma_addr_find_l2_eth_by_grh` and
/// `ib_modify_qp_is_ok` of the kernel's drivers/infiniband/core).
fn way(errno: i32) -> String {
    let situation = match errno {
        libc::ETIMEDOUT => {
            "no neighbour answers on the way to the peer: ARP for the next hop is not resolved"
        }
        libc::ENETUNREACH | libc::EHOSTUNREACH => "there is no route to the peer's address",
        libc::ENODEV | libc::EIO => "the device is being initialised anew, or gone",
        libc::EINVAL => "the device takes none of: this GID index, path MTU, packet number",
        libc::ENOMEM => "the kernel or the NIC has no room for it",
        _ => "the device refuses it",
    };
    format!("{situation} ({})", io::Error::from_raw_os_error(errno))
}

/// The most memory that is registered at once, bytes.
pub const LARGEST_MEMORY: usize = 16 << 20;
/// The longest message: half of that, as a side has room for one of each way.
pub const LARGEST_MESSAGE: u32 = (LARGEST_MEMORY / 2) as u32;

/// How a write ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// It is in the peer's memory; the number that it was posted with.
    Done(u64),
    /// It is not known to be.
    Failed {
        /// `enum ibv_wc_status`
        status: u32,
        /// The provider's own code.
        vendor_err: u32,
        /// What libibverbs says of the status.
        text: String,
    },
}

/// The way from a queue pair to its peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The peer's GID.
    pub gid: Gid,
    /// The peer's queue pair, 24 bits.
    pub qp_number: u32,
    /// Number of the first packet that the peer sends, 24 bits.
    pub packet_number: u32,
    /// Path MTU, bytes: 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
    /// Flow label, 20 bits; 0 lets the kernel choose the UDP source port.
    pub flow_label: u32,
    /// Index of the GID of this side.
    pub gid_index: u8,
    /// Hop limit: a diagonal is two hops.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Port of this side.
    pub port: u8,
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
