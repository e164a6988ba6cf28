//! This program's record that a parameter of the hairpin queues was set.
//!
//! devlink does not tell whether the value that it shows is loaded. So whoever of this program sets
//! `hairpin_queue_size` first writes down what it is about to set, one file for each function:
//!
//! `/run/dsv41-mesh/hairpin-queue-<PCI address>.json` (of `hairpin_num_queues` in the same form
//! `hairpin-num-queues-<PCI address>.json`, schema `hairpin-mesh.hairpin-num-queues/v1`)
//! ```json
//! { "schema": "hairpin-mesh.hairpin-queue/v1",
//!   "boot_id": "6f9d…",          the boot in which it was set
//!   "pci": "0000:01:00.0",       the function
//!   "reload_count": 0,           its reload counter when it was set
//!   "value": 8192 }              the size, packets
//! ```
//! The file replaces an older one atomically (written beside it, then renamed). The directory and
//! the file belong to root and nobody else may write them; otherwise the record is not believed.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::facts::{HairpinParameter, HairpinRecord};
use crate::json::{At, DocumentError, parse, pretty};
use crate::names::{PciAddress, Text};

/// The schema of a record.
fn schema(parameter: HairpinParameter) -> &'static str {
    match parameter {
        HairpinParameter::QueueSize => "hairpin-mesh.hairpin-queue/v1",
        HairpinParameter::NumQueues => "hairpin-mesh.hairpin-num-queues/v1",
    }
}

/// Where this program keeps its state; gone at the next boot.
pub const DIRECTORY: &str = "/run/dsv41-mesh";
/// Most bytes of a record; it has less than 250.
const LARGEST: u64 = 4096;
/// Owner of what is believed.
const ROOT: u32 = 0;

/// Why a record is not believed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Somebody else than root could have written it.
    #[error("{path}: is not root's alone (owner {uid}, mode {mode:o})")]
    NotOurs {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its permissions.
        mode: u32,
    },
    /// It is not a record.
    #[error("{0}")]
    Document(#[from] DocumentError),
}

/// The name of the file of a function's record.
pub fn file_name(parameter: HairpinParameter, pci: PciAddress) -> String {
    match parameter {
        HairpinParameter::QueueSize => format!("hairpin-queue-{pci}.json"),
        HairpinParameter::NumQueues => format!("hairpin-num-queues-{pci}.json"),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    boot_id: &'a Text,
    pci: String,
    reload_count: u32,
    value: u32,
}

/// The document of a record.
pub fn document(parameter: HairpinParameter, record: &HairpinRecord) -> String {
    pretty(&Document {
        schema: schema(parameter),
        boot_id: &record.boot_id,
        pci: record.pci.to_string(),
        reload_count: record.reload_count,
        value: record.value,
    })
}

/// The record of function `pci` made in boot `boot_id`; `None` when there is none.
pub fn read(
    parameter: HairpinParameter,
    pci: PciAddress,
    boot_id: &Text,
) -> Result<Option<HairpinRecord>, Error> {
    read_in(Path::new(DIRECTORY), ROOT, parameter, pci, boot_id)
}

fn read_in(
    directory: &Path,
    owner: u32,
    parameter: HairpinParameter,
    pci: PciAddress,
    boot_id: &Text,
) -> Result<Option<HairpinRecord>, Error> {
    let path = directory.join(file_name(parameter, pci));
    let failed = |path: &Path, source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let ours = |path: &Path, metadata: &fs::Metadata| {
        // Neither group nor others may write.
        if metadata.uid() == owner && metadata.mode() & 0o022 == 0 {
            Ok(())
        } else {
            Err(Error::NotOurs {
                path: path.to_owned(),
                uid: metadata.uid(),
                mode: metadata.mode() & 0o7777,
            })
        }
    };
    match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(directory, error)),
        Ok(metadata) => ours(directory, &metadata)?,
    }
    // No link is followed, and a pipe in the file's place does not block.
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&path, error)),
    };
    ours(&path, &file.metadata().map_err(|e| failed(&path, e))?)?;
    let mut bytes = Vec::new();
    file.take(LARGEST)
        .read_to_end(&mut bytes)
        .map_err(|e| failed(&path, e))?;
    let record = record(parameter, &path.display().to_string(), &bytes)?;
    Ok((record.pci == pci && record.boot_id == *boot_id).then_some(record))
}

fn record(
    parameter: HairpinParameter,
    name: &str,
    bytes: &[u8],
) -> Result<HairpinRecord, DocumentError> {
    let value = parse(name, bytes)?;
    let root = At::root(name, &value);
    root.need("schema")?.exactly(schema(parameter))?;
    root.only(&["schema", "boot_id", "pci", "reload_count", "value"])?;
    Ok(HairpinRecord {
        boot_id: root.need("boot_id")?.name()?,
        pci: root.need("pci")?.name()?,
        reload_count: root.need("reload_count")?.integer(0, u32::MAX.into())?,
        value: root.need("value")?.integer(1, u32::MAX.into())?,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const GOOD: &str = r#"{"schema": "hairpin-mesh.hairpin-queue/v1", "boot_id": "b-1", "pci": "0000:01:00.0",
                           "reload_count": 2, "value": 8192}"#;

    struct Place {
        directory: tempfile::TempDir,
        owner: u32,
    }

    impl Place {
        fn new() -> Place {
            let directory = tempfile::tempdir().unwrap();
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let owner = fs::metadata(directory.path()).unwrap().uid();
            Place { directory, owner }
        }
        fn file(&self) -> PathBuf {
            let name = file_name(HairpinParameter::QueueSize, "0000:01:00.0".parse().unwrap());
            self.directory.path().join(name)
        }
        fn read(&self) -> Result<Option<HairpinRecord>, Error> {
            read_in(
                self.directory.path(),
                self.owner,
                HairpinParameter::QueueSize,
                "0000:01:00.0".parse().unwrap(),
                &"b-1".into(),
            )
        }
    }

    #[test]
    fn a_record_of_this_boot_and_function_is_taken() {
        let place = Place::new();
        assert_eq!(place.read().unwrap(), None);
        fs::write(place.file(), GOOD).unwrap();
        let record = place.read().unwrap().unwrap();
        assert_eq!((record.reload_count, record.value), (2, 8192));
        fs::write(place.file(), GOOD.replace("b-1", "b-0")).unwrap();
        assert_eq!(place.read().unwrap(), None);
        fs::write(place.file(), GOOD.replace("01:00.0", "01:00.1")).unwrap();
        assert_eq!(place.read().unwrap(), None);
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        for parameter in HairpinParameter::ALL {
            let record = HairpinRecord {
                boot_id: "b-1".into(),
                pci: "0002:01:00.1".parse().unwrap(),
                reload_count: 7,
                value: 8192,
            };
            let document = document(parameter, &record);
            assert_eq!(
                super::record(parameter, "r", document.as_bytes()).unwrap(),
                record
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn no_change_to_a_record_makes_its_reader_panic(at: proptest::sample::Index, byte: u8) {
            let mut bytes = GOOD.as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            for parameter in HairpinParameter::ALL {
                let _ = record(parameter, "r", &bytes);
                let _ = record(parameter, "r", &bytes[..at]);
            }
        }
    }

    #[test]
    fn a_record_that_others_could_have_written_is_not_believed() {
        let place = Place::new();
        fs::write(place.file(), GOOD).unwrap();
        fs::set_permissions(place.file(), fs::Permissions::from_mode(0o664)).unwrap();
        assert!(matches!(place.read(), Err(Error::NotOurs { .. })));
        fs::set_permissions(place.file(), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(place.read().unwrap().is_some());
        fs::set_permissions(place.directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(place.read(), Err(Error::NotOurs { .. })));
        let stranger = Place {
            owner: place.owner + 1,
            ..Place::new()
        };
        assert!(matches!(stranger.read(), Err(Error::NotOurs { .. })));
    }

    #[test]
    fn a_link_in_place_of_a_record_is_not_followed() {
        let place = Place::new();
        let elsewhere = place.directory.path().join("elsewhere");
        fs::write(&elsewhere, GOOD).unwrap();
        std::os::unix::fs::symlink(&elsewhere, place.file()).unwrap();
        assert!(matches!(place.read(), Err(Error::Io { .. })));
    }

    #[test]
    fn what_is_not_a_record_is_an_error_that_names_the_file() {
        let place = Place::new();
        for bad in [
            "",
            "{}",
            &GOOD.replace("v1", "v2"),
            &GOOD.replace("8192", "0"),
            &GOOD.replace("8192", "\"x\""),
        ] {
            fs::write(place.file(), bad).unwrap();
            let error = place.read().unwrap_err().to_string();
            assert!(error.contains("hairpin-queue-0000:01:00.0.json"), "{error}");
        }
    }
}
