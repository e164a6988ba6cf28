//! Whether the driver has loaded the value that devlink shows for a driverinit parameter.
//!
//! devlink shows the value that was last set, loaded or not, and nothing in the kernel shows the
//! loaded one. What is known: the reload counter, the driver's default, and what this program wrote
//! down when it set the value.

use crate::facts::{Applied, HairpinRecord};

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
