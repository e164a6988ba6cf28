//! Whether the driver has loaded the value that devlink shows for a driverinit parameter.
//!
//! devlink shows the value that was last set, loaded or not, and nothing in the kernel shows the
//! loaded one. What is known: the reload counter, the driver's default, and what this program wrote
//! down when it set the value.

use serde::{Serialize, Serializer};

use crate::facts::{Applied, HairpinRecord};
use crate::kernel::devlink::{HAIRPIN_NUM_QUEUES, HAIRPIN_QUEUE_SIZE};
use crate::plan::mesh::{DEFAULT_HAIRPIN_QUEUE, QUALIFIED_HAIRPIN_NUM_QUEUES};

/// A parameter of the hairpin queues, which counts after a re-initialisation of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HairpinParameter {
    /// Packets that a queue holds.
    QueueSize,
    /// Queues of a pair of functions.
    NumQueues,
}

impl HairpinParameter {
    /// Both.
    pub const ALL: [HairpinParameter; 2] =
        [HairpinParameter::QueueSize, HairpinParameter::NumQueues];

    /// devlink's name of it.
    pub fn name(self) -> &'static str {
        match self {
            HairpinParameter::QueueSize => HAIRPIN_QUEUE_SIZE,
            HairpinParameter::NumQueues => HAIRPIN_NUM_QUEUES,
        }
    }

    /// Whether the driver has loaded `value`, which devlink shows.
    ///
    /// mlx5 starts with one queue for each 50 Gb/s of the fastest link mode, 4 on the NIC of the mesh
    /// (its devlink initialisation, by reading). Another number may be what another NIC starts with, or
    /// one that waits: without a record that is unknown.
    pub fn state(self, value: u32, reloads: u32, record: Option<&HairpinRecord>) -> Applied {
        match self {
            HairpinParameter::QueueSize => applied(value, DEFAULT_HAIRPIN_QUEUE, reloads, record),
            HairpinParameter::NumQueues => {
                let own = record.filter(|record| record.value == value);
                match applied(value, QUALIFIED_HAIRPIN_NUM_QUEUES, reloads, record) {
                    Applied::Pending if own.is_none() => Applied::Unknown,
                    state => state,
                }
            }
        }
    }
}

impl std::fmt::Display for HairpinParameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for HairpinParameter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The state of `value` at reload counter `reloads`, when the driver starts with `default` and
/// `record` is this program's record of this function in this boot.
pub fn applied(value: u32, default: u32, reloads: u32, record: Option<&HairpinRecord>) -> Applied {
    let record = record.filter(|record| record.value == value);
    if reloads == 0 && value == default
        || record.is_some_and(|record| record.reload_count < reloads)
    {
        Applied::Applied
    } else if reloads == 0 || record.is_some_and(|record| record.reload_count == reloads) {
        Applied::Pending
    } else {
        Applied::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(reload_count: u32, value: u32) -> HairpinRecord {
        HairpinRecord {
            boot_id: "b".into(),
            pci: "0000:01:00.0".parse().unwrap(),
            reload_count,
            value,
        }
    }

    #[test]
    fn before_any_reload_only_the_default_is_loaded() {
        assert_eq!(applied(1024, 1024, 0, None), Applied::Applied);
        assert_eq!(applied(8192, 1024, 0, None), Applied::Pending);
        assert_eq!(
            applied(8192, 1024, 0, Some(&record(0, 8192))),
            Applied::Pending
        );
        assert_eq!(
            applied(8192, 1024, 0, Some(&record(0, 4096))),
            Applied::Pending
        );
    }

    #[test]
    fn a_number_of_queues_that_nobody_recorded_is_unknown_where_a_size_is_pending() {
        let state = HairpinParameter::NumQueues;
        assert_eq!(state.state(4, 0, None), Applied::Applied);
        assert_eq!(state.state(8, 0, None), Applied::Unknown);
        assert_eq!(state.state(8, 0, Some(&record(0, 8))), Applied::Pending);
        assert_eq!(state.state(8, 1, Some(&record(0, 8))), Applied::Applied);
        let size = HairpinParameter::QueueSize;
        assert_eq!(size.state(8192, 0, None), Applied::Pending);
    }

    #[test]
    fn after_a_reload_only_our_record_tells() {
        assert_eq!(applied(8192, 1024, 1, None), Applied::Unknown);
        assert_eq!(applied(1024, 1024, 1, None), Applied::Unknown);
        assert_eq!(
            applied(8192, 1024, 1, Some(&record(0, 8192))),
            Applied::Applied
        );
        assert_eq!(
            applied(8192, 1024, 3, Some(&record(2, 8192))),
            Applied::Applied
        );
        assert_eq!(
            applied(8192, 1024, 2, Some(&record(2, 8192))),
            Applied::Pending
        );
        assert_eq!(
            applied(8192, 1024, 2, Some(&record(1, 4096))),
            Applied::Unknown
        );
        // A counter below the record's: the driver was loaded anew since.
        assert_eq!(
            applied(8192, 1024, 1, Some(&record(2, 8192))),
            Applied::Unknown
        );
    }
}
