//! Small bounded reads below `/sys` and `/proc`.
//!
//! Paths are made of fixed words and validated names, so nothing from outside can leave them. A
//! read that fails says which file it was.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::names::Text;

/// Most bytes of one file: a page, which is the most that sysfs gives.
const PAGE: u64 = 4096;
/// Most bytes of a table in `/proc` (`stat` of a machine with many processors is the longest).
const TABLE: u64 = 4 * 1024 * 1024;
/// Most names that are taken from one directory.
const MOST_NAMES: usize = 65536;

/// Why something below `/sys` or `/proc` could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct Unread {
    /// What.
    pub path: String,
    /// Why.
    pub why: String,
    /// The system's error number, when it is one.
    pub errno: Option<i32>,
}

impl Unread {
    fn io(path: &Path, error: io::Error) -> Unread {
        Unread {
            path: path.display().to_string(),
            errno: error.raw_os_error(),
            why: error.to_string(),
        }
    }

    fn other(path: &Path, why: impl Into<String>) -> Unread {
        Unread {
            path: path.display().to_string(),
            why: why.into(),
            errno: None,
        }
    }

    /// Whether it is not there.
    pub fn is_absent(&self) -> bool {
        self.errno == Some(libc::ENOENT)
    }
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, Unread> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|e| Unread::io(path, e))?;
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Unread::io(path, e))?;
    if bytes.len() as u64 > most {
        return Err(Unread::other(path, format!("longer than {most} bytes")));
    }
    Ok(bytes)
}

/// The bytes of a file of one value: of one read, because the kernel gives such a file as a whole.
pub fn bytes(path: impl AsRef<Path>) -> Result<Vec<u8>, Unread> {
    let path = path.as_ref();
    let mut bytes = vec![0; PAGE as usize + 1];
    let mut file = fs::File::open(path).map_err(|e| Unread::io(path, e))?;
    let length = loop {
        match file.read(&mut bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => break other.map_err(|e| Unread::io(path, e))?,
        }
    };
    if length as u64 > PAGE {
        return Err(Unread::other(path, format!("longer than {PAGE} bytes")));
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// The text of a table, with bytes that are not UTF-8 replaced.
pub fn table(path: impl AsRef<Path>) -> Result<String, Unread> {
    read(path.as_ref(), TABLE).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A file of one value, without the newline at its end.
pub fn text(path: impl AsRef<Path>) -> Result<Text, Unread> {
    bytes(path).map(|bytes| Text::from_bytes(bytes.trim_ascii()))
}

/// A file of one value that must be a `T`: a number, a name.
pub fn value<T: FromStr>(path: impl AsRef<Path>) -> Result<T, Unread> {
    let path = path.as_ref();
    let text = text(path)?;
    text.as_str().parse().map_err(|_| {
        Unread::other(
            path,
            format!("is {:?}, which cannot be read", text.as_str()),
        )
    })
}

/// The last part of what a symbolic link names.
pub fn link_name(path: impl AsRef<Path>) -> Result<Text, Unread> {
    let path = path.as_ref();
    let target = fs::read_link(path).map_err(|e| Unread::io(path, e))?;
    let name = target
        .file_name()
        .ok_or_else(|| Unread::other(path, "a link to no name"))?;
    Ok(Text::from_bytes(name.as_encoded_bytes()))
}

/// The names in a directory that are a `T`, in order; others are passed over.
pub fn names<T: FromStr + Ord>(path: impl AsRef<Path>) -> Result<Vec<T>, Unread> {
    let path = path.as_ref();
    let entries = fs::read_dir(path).map_err(|e| Unread::io(path, e))?;
    let mut names = Vec::new();
    for entry in entries.take(MOST_NAMES) {
        let entry = entry.map_err(|e| Unread::io(path, e))?;
        names.extend(
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok()),
        );
    }
    names.sort();
    Ok(names)
}

/// Whether something is there.
pub fn exists(path: impl AsRef<Path>) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// `root` and the parts below it.
pub fn below(root: &str, parts: &[&str]) -> PathBuf {
    parts
        .iter()
        .fold(PathBuf::from(root), |path, part| path.join(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_read_names_the_file() {
        let error = text("/sys/class/infiniband/none/fw_ver").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("/sys/class/infiniband/none/fw_ver: No such file"),
            "{error}"
        );
        assert!(error.is_absent());
    }

    #[test]
    fn a_file_that_never_ends_is_refused() {
        assert!(
            bytes("/dev/zero")
                .unwrap_err()
                .to_string()
                .contains("longer than 4096 bytes")
        );
    }

    #[test]
    fn what_is_not_the_wanted_kind_of_value_is_refused() {
        assert!(value::<u32>("/proc/version").is_err());
        assert!(value::<u32>("/proc/sys/net/ipv4/ip_forward").is_ok());
    }
}
