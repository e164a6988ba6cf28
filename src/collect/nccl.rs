//! NCCL libraries: whether one is of the switchless ring, and its SHA-256, which must be the same on all
//! nodes.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::facts::{Fact, NcclLibrary};
use crate::names::Text;

/// What the library of the switchless ring has in it.
const MARKER: &[u8] = b"SWITCHLESS_RING_ONLY";
/// File names in a folder, the preferred one first.
const NAMES: [&str; 2] = ["libnccl.so.2.30.7", "libnccl.so.2"];
/// Largest library that is read; NCCL with the kernels of all architectures stays well below.
const LARGEST: u64 = 2 << 30;

/// The libraries that were asked for; unmentioned when none was.
pub(super) fn libraries(asked: &[PathBuf]) -> Fact<Vec<NcclLibrary>> {
    if asked.is_empty() {
        return Fact::unmentioned();
    }
    Fact::Known(asked.iter().map(|path| library(path)).collect())
}

fn library(asked: &Path) -> NcclLibrary {
    let path = picked(asked);
    let read = look(&path);
    let (sha256, ring_marker) = match read {
        Ok((sum, marker)) => (Fact::Known(sum), Fact::Known(marker)),
        Err(why) => (Fact::because(&why), Fact::because(&why)),
    };
    NcclLibrary {
        path: Text::from_bytes(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())),
        sha256,
        ring_marker,
    }
}

/// The library that a folder stands for.
fn picked(asked: &Path) -> PathBuf {
    if !asked.is_dir() {
        return asked.to_owned();
    }
    let there = NAMES
        .iter()
        .map(|name| asked.join(name))
        .find(|path| path.exists());
    there.unwrap_or_else(|| asked.join(NAMES[0]))
}

fn look(path: &Path) -> Result<(Text, bool), String> {
    let error = |e: std::io::Error| format!("{}: {e}", path.display());
    let file = File::open(path).map_err(error)?;
    if !file.metadata().map_err(error)?.is_file() {
        return Err(format!("{}: is no regular file", path.display()));
    }
    let mut file = file.take(LARGEST + 1);
    let mut sum = Sha256::new();
    let mut found = false;
    let mut buffer = vec![0u8; 1 << 20];
    // What could be the first part of the marker stays in front of the next block.
    let mut kept = 0;
    let mut whole = 0u64;
    loop {
        let read = file.read(&mut buffer[kept..]).map_err(error)?;
        if read == 0 {
            break;
        }
        whole += read as u64;
        if whole > LARGEST {
            return Err(format!(
                "{}: is larger than {LARGEST} bytes",
                path.display()
            ));
        }
        sum.update(&buffer[kept..kept + read]);
        let end = kept + read;
        found |= buffer[..end]
            .windows(MARKER.len())
            .any(|window| window == MARKER);
        let keep = end.min(MARKER.len() - 1);
        buffer.copy_within(end - keep..end, 0);
        kept = keep;
    }
    let mut hex = String::new();
    for byte in sum.finalize() {
        hex += &format!("{byte:02x}");
    }
    Ok((hex.as_str().into(), found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_is_found_across_the_border_of_two_blocks() {
        let dir = tempfile::tempdir().unwrap();
        for before in [0, (1 << 20) - 7, (1 << 20) - 1, (1 << 21) - 25] {
            let path = dir.path().join("libnccl.so.2");
            let mut bytes = vec![b'x'; before];
            bytes.extend(MARKER);
            bytes.extend([b'y'; 9]);
            std::fs::write(&path, &bytes).unwrap();
            let found = library(dir.path());
            assert_eq!(found.ring_marker, Fact::Known(true), "{before}");
            let sum = found.sha256.known().unwrap().clone();
            assert_eq!(sum.as_str(), crate::node::identity::sha256(&bytes));
        }
    }

    #[test]
    fn a_library_without_the_marker_or_that_is_not_there_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let missing = library(&dir.path().join("libnccl.so.2"));
        assert!(missing.sha256.known().is_none());
        std::fs::write(dir.path().join("libnccl.so.2"), "SWITCHLESS_RING_ONL").unwrap();
        std::fs::write(dir.path().join("libnccl.so.2.30.7"), "SWITCHLESS_RING_ONLY").unwrap();
        assert_eq!(
            library(&dir.path().join("libnccl.so.2")).ring_marker,
            Fact::Known(false)
        );
        // In a folder the newer name is taken.
        assert!(
            library(dir.path())
                .path
                .as_str()
                .ends_with("libnccl.so.2.30.7")
        );
    }
}
