//! Files: bounded reading of what others wrote, and replacing a file or folder as a whole.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

use crate::json::LARGEST_DOCUMENT;

/// A file or folder that could not be read or written: which, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct FileError {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

impl FileError {
    pub(crate) fn new(path: &Path, what: impl std::fmt::Display) -> FileError {
        FileError {
            path: path.to_owned(),
            what: what.to_string(),
        }
    }
}

/// Whether a symbolic link may stand at the end of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// It is followed.
    Follow,
    /// It is refused.
    Refuse,
}

/// Most bytes of a program.
const LARGEST_PROGRAM: u64 = 512 * 1024 * 1024;

/// Reads a regular file of at most [`LARGEST_DOCUMENT`] bytes.
pub fn read_document(path: &Path, links: Links) -> Result<Vec<u8>, FileError> {
    bounded(open_regular(path, links)?, path, LARGEST_DOCUMENT)
}

/// Reads a program: a regular file of at most 512 MiB.
pub fn read_program(path: &Path, links: Links) -> Result<Vec<u8>, FileError> {
    bounded(open_regular(path, links)?, path, LARGEST_PROGRAM)
}

fn open_regular(path: &Path, links: Links) -> Result<File, FileError> {
    let error = |e: &dyn std::fmt::Display| FileError::new(path, e);
    let nofollow = if links == Links::Refuse {
        libc::O_NOFOLLOW
    } else {
        0
    };
    // O_NONBLOCK: a FIFO at that path must not hang the program.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nofollow | libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| match e.raw_os_error() {
            Some(libc::ELOOP) if links == Links::Refuse => {
                error(&"is a symbolic link, a regular file wanted")
            }
            _ => error(&e),
        })?;
    if !file.metadata().map_err(|e| error(&e))?.is_file() {
        return Err(error(&"is no regular file"));
    }
    Ok(file)
}

/// Reads a regular file of at most [`LARGEST_DOCUMENT`] bytes that nobody but root can have written: it
/// and every folder above it belong to root and are writable by nobody else, and none of them is a
/// symbolic link. Each is looked at after it was opened.
pub fn read_trusted(path: &Path) -> Result<Vec<u8>, FileError> {
    use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
    const ROOT: u32 = 0;
    let absolute = std::path::absolute(path).map_err(|e| FileError::new(path, e))?;
    let mut at = File::open("/").map_err(|e| FileError::new(Path::new("/"), e))?;
    let mut so_far = PathBuf::from("/");
    let check = |file: &File, so_far: &Path| {
        let stat = fstat(file).map_err(|e| FileError::new(so_far, io::Error::from(e)))?;
        if stat.st_uid != ROOT || stat.st_mode & 0o022 != 0 {
            let what = format!(
                "is not root's alone (owner {}, mode {:o}), for root to read {} it has to be",
                stat.st_uid,
                stat.st_mode & 0o7777,
                path.display()
            );
            return Err(FileError::new(so_far, what));
        }
        Ok(FileType::from_raw_mode(stat.st_mode))
    };
    check(&at, &so_far)?;
    let names: Vec<_> = absolute
        .components()
        .filter(|part| {
            !matches!(
                part,
                std::path::Component::RootDir | std::path::Component::CurDir
            )
        })
        .collect();
    for (i, part) in names.iter().enumerate() {
        // No link is followed, so `..` is the folder that the path says.
        so_far.push(part);
        let last = i + 1 == names.len();
        let kind = if last {
            OFlags::NONBLOCK
        } else {
            OFlags::DIRECTORY
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | kind;
        let next = openat(&at, part.as_os_str(), flags, Mode::empty()).map_err(|e| {
            // What a link gives: ELOOP, and ENOTDIR where a folder is wanted.
            let link = std::fs::symlink_metadata(&so_far).is_ok_and(|m| m.is_symlink());
            if link {
                FileError::new(
                    &so_far,
                    "is a symbolic link, which root does not follow here",
                )
            } else {
                FileError::new(&so_far, io::Error::from(e))
            }
        })?;
        at = File::from(next);
        let kind = check(&at, &so_far)?;
        if last && kind != FileType::RegularFile {
            return Err(FileError::new(path, "is no regular file"));
        }
    }
    bounded(at, path, LARGEST_DOCUMENT)
}

/// The content of a file, no more than `most` bytes.
fn bounded(file: File, path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    let bytes = read_whole(file, most + 1).map_err(|e| FileError::new(path, e))?;
    if bytes.len() as u64 > most {
        return Err(FileError::new(path, format!("is larger than {most} bytes")));
    }
    Ok(bytes)
}

/// The first `most` bytes of a file, by as few reads as can be: `up` is to be cheap when nothing is to do.
pub(crate) fn read_whole(mut file: File, most: u64) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len().min(most);
    let mut bytes = vec![0; size as usize + 1];
    let mut length = 0;
    while (length as u64) < most {
        if length == bytes.len() {
            // It is longer than it was said to be.
            bytes.resize(2 * length, 0);
        }
        match file.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(length.min(most as usize));
    Ok(bytes)
}

/// What a folder is to hold: relative path to content. One level of sub-folders is enough.
pub type Content = BTreeMap<String, Entry>;

/// A file of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether it is a script to run.
    pub executable: bool,
}

/// Replaces the folder `path` as a whole, or leaves everything as it was.
///
/// The new folder is built beside the old one and takes its place in one step. `ours` says which
/// relative paths (folders end in `/`) an earlier call put there. A folder that holds anything else
/// is not replaced, unless the new folder has the same file to the byte: nothing of the user's is
/// lost. `kind` says which paths a folder of this kind has at all: what a run that was killed has
/// left beside it consists of those.
pub fn replace_folder(
    path: &Path,
    content: &Content,
    ours: impl Fn(&str) -> bool,
    kind: impl Fn(&str) -> bool,
) -> Result<(), FileError> {
    let place = Place::take(path)?;
    let replaceable = |name: &str, file: &Path| {
        ours(name)
            || (name.ends_with('/') && content.keys().any(|new| new.starts_with(name)))
            || content
                .get(name)
                .is_some_and(|entry| std::fs::read(file).is_ok_and(|bytes| bytes == entry.bytes))
    };
    let mode = check_target(&place.target, &replaceable)?;
    place.clear_staging(&kind)?;
    stage(&place.staging, content, mode.clone())
        .map_err(|e| FileError::new(path, format!("could not be written: {e}")))?;
    let result = match mode {
        Some(_) => exchange(&place.staging, &place.target),
        None => put_new(&place.staging, &place.target),
    };
    if result.is_err() {
        let _ = remove_content(&place.staging, &|_| true);
    }
    result.map_err(|e| FileError::new(path, format!("could not be put in place: {e}")))?;
    if mode.is_some() {
        // The new folder is in place. Of the old one only what was looked at goes: a file that
        // somebody put there since stays, and the old folder with it.
        let _ = remove_content(&place.staging, &|name| {
            ours(name) || content.contains_key(name) || name.ends_with('/')
        });
    }
    place.sync()
}

/// Writes one file beside `path` and renames it into place.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let place = Place::take(path)?;
    let write = || -> io::Result<()> {
        match std::fs::remove_file(&place.staging) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        write_new(&place.staging, bytes, false)?.sync_all()?;
        std::fs::rename(&place.staging, &place.target).inspect_err(|_| {
            let _ = std::fs::remove_file(&place.staging);
        })
    };
    write().map_err(|e| FileError::new(path, format!("could not be written: {e}")))?;
    place.sync()
}

/// Where something is replaced. One process at a time does that in a folder, so what stands at
/// `staging` is what a run that was killed has left.
struct Place {
    parent: PathBuf,
    target: PathBuf,
    staging: PathBuf,
    /// Holds the lock on the parent folder.
    lock: File,
}

impl Place {
    fn take(path: &Path) -> Result<Place, FileError> {
        let name = path
            .file_name()
            .filter(|_| !path.as_os_str().as_encoded_bytes().ends_with(b"/."))
            .and_then(|name| name.to_str())
            .ok_or_else(|| FileError::new(path, "a path that ends in a name wanted"))?;
        let parent = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => Path::new("/"),
        };
        if !parent.is_dir() {
            let what = format!("cannot be made: {} is no folder", parent.display());
            return Err(FileError::new(path, what));
        }
        let lock = File::open(parent).map_err(|e| FileError::new(parent, e))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let what = "another run is writing in the same folder; try again when it has ended";
                return Err(FileError::new(path, what));
            }
            Err(e) => return Err(FileError::new(parent, format!("cannot be locked: {e}"))),
        }
        Ok(Place {
            parent: parent.to_owned(),
            target: parent.join(name),
            staging: parent.join(format!(".{name}.new")),
            lock,
        })
    }

    /// Removes what a run that was killed has left.
    fn clear_staging(&self, ours: &impl Fn(&str) -> bool) -> Result<(), FileError> {
        match std::fs::symlink_metadata(&self.staging) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            _ => remove_content(&self.staging, ours).map_err(|e| {
                let what = format!("is in the way and cannot be removed, by hand wanted: {e}");
                FileError::new(&self.staging, what)
            }),
        }
    }

    fn sync(&self) -> Result<(), FileError> {
        self.lock
            .sync_all()
            .map_err(|e| FileError::new(&self.parent, e))
    }
}

/// Creates a folder (and those above it) unless it is there.
pub fn create_folder(path: &Path) -> Result<(), FileError> {
    std::fs::create_dir_all(path).map_err(|e| FileError::new(path, e))
}

/// The permissions of the target, or `None` when there is none; an error when it may not be replaced.
fn check_target(
    target: &Path,
    replaceable: &impl Fn(&str, &Path) -> bool,
) -> Result<Option<Permissions>, FileError> {
    let error = |what: &dyn std::fmt::Display| FileError::new(target, what);
    let metadata = match std::fs::symlink_metadata(target) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| error(&e))?,
    };
    if metadata.is_symlink() {
        return Err(error(&"is a symbolic link, a folder wanted"));
    }
    if !metadata.is_dir() {
        return Err(error(&"is a file, a folder wanted"));
    }
    match first_foreign(target, "", replaceable).map_err(|e| error(&e))? {
        Some(foreign) => Err(error(&format!(
            "holds {}, which is not of a plan that this program wrote there; a new folder, or one \
             that it wrote before, wanted",
            crate::names::quoted(&foreign)
        ))),
        None => Ok(Some(metadata.permissions())),
    }
}

/// The first entry below `folder` that may not be replaced.
fn first_foreign(
    folder: &Path,
    below: &str,
    replaceable: &impl Fn(&str, &Path) -> bool,
) -> io::Result<Option<String>> {
    let mut entries: Vec<_> = std::fs::read_dir(folder)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let name = format!("{name}/");
            if !below.is_empty() || !replaceable(&name, &entry.path()) {
                return Ok(Some(name));
            }
            if let Some(foreign) = first_foreign(&entry.path(), &name, replaceable)? {
                return Ok(Some(foreign));
            }
        } else if !kind.is_file() || !replaceable(&name, &entry.path()) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn write_new(path: &Path, bytes: &[u8], executable: bool) -> io::Result<File> {
    let mode = if executable { 0o755 } else { 0o644 };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Makes files and folders durable. All at once, so that a journalling file system commits them
/// together and not one after the other.
fn sync_all(files: &[File]) -> io::Result<()> {
    std::thread::scope(|scope| {
        let syncing: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(|| file.sync_all()))
            .collect();
        syncing.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread failed")))
        })
    })
}

/// Builds the new folder, with the permissions of the one that it replaces.
fn stage(staging: &Path, content: &Content, mode: Option<Permissions>) -> io::Result<()> {
    std::fs::create_dir(staging)?;
    let fill = || -> io::Result<()> {
        let mut folders = vec![staging.to_owned()];
        let mut written = Vec::new();
        for (path, entry) in content {
            let path = staging.join(path);
            let known = |folder: &&Path| folders.iter().any(|known| known == folder);
            if let Some(folder) = path.parent().filter(|folder| !known(folder)) {
                std::fs::create_dir(folder)?;
                folders.push(folder.to_owned());
            }
            written.push(write_new(&path, &entry.bytes, entry.executable)?);
        }
        if let Some(mode) = mode {
            std::fs::set_permissions(staging, mode)?;
        }
        for folder in &folders {
            written.push(File::open(folder)?);
        }
        sync_all(&written)
    };
    fill().inspect_err(|_| {
        let _ = remove_content(staging, &|_| true);
    })
}

/// Whether the kernel or file system cannot do what `renameat2` was asked for.
fn unsupported(e: rustix::io::Errno) -> bool {
    matches!(e, rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS)
}

fn put_new(staging: &Path, target: &Path) -> io::Result<()> {
    match renameat_with(CWD, staging, CWD, target, RenameFlags::NOREPLACE) {
        // A plain rename replaces at most an empty folder: nothing can be lost.
        Err(e) if unsupported(e) => std::fs::rename(staging, target),
        other => Ok(other?),
    }
}

/// Puts `staging` in the place of `target`, and `target` in the place of `staging`.
fn exchange(staging: &Path, target: &Path) -> io::Result<()> {
    match renameat_with(CWD, staging, CWD, target, RenameFlags::EXCHANGE) {
        Err(e) if unsupported(e) => {
            // Without an exchange the folder is away for a moment between two renames.
            let old = staging.with_extension("old");
            std::fs::rename(target, &old)?;
            if let Err(e) = std::fs::rename(staging, target) {
                std::fs::rename(&old, target)?;
                return Err(e);
            }
            std::fs::rename(&old, staging)
        }
        other => Ok(other?),
    }
}

/// Removes what is `ours` below `folder`, and then the folder when nothing else is in it.
fn remove_content(folder: &Path, ours: &impl Fn(&str) -> bool) -> io::Result<()> {
    fn remove(folder: &Path, below: &str, ours: &impl Fn(&str) -> bool) -> io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let path = format!("{below}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                let path = format!("{path}/");
                if ours(&path) {
                    remove(&entry.path(), &path, ours)?;
                }
            } else if ours(&path) {
                std::fs::remove_file(entry.path())?;
            }
        }
        std::fs::remove_dir(folder)
    }
    remove(folder, "", ours)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn content(names: &[&str]) -> Content {
        names
            .iter()
            .map(|n| {
                (
                    (*n).to_owned(),
                    Entry {
                        bytes: n.as_bytes().to_vec(),
                        executable: n.ends_with(".sh"),
                    },
                )
            })
            .collect()
    }

    fn ours(path: &str) -> bool {
        matches!(path, "a" | "b.sh" | "in/" | "in/c")
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(path)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_is_made_and_then_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        replace_folder(&path, &content(&["a", "b.sh", "in/c"]), ours, ours).unwrap();
        assert_eq!(names(&path), ["a", "b.sh", "in"]);
        assert_eq!(
            std::fs::metadata(path.join("b.sh"))
                .unwrap()
                .permissions()
                .mode()
                & 0o111,
            0o111
        );
        replace_folder(&path, &content(&["a"]), ours, ours).unwrap();
        assert_eq!(names(&path), ["a"]);
        assert_eq!(names(dir.path()), ["out"], "nothing is left beside it");
    }

    #[test]
    fn a_folder_that_holds_something_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        for foreign in ["notes.txt", "in/notes.txt", "a/x", "in/deep/x"] {
            let _ = std::fs::remove_dir_all(&path);
            let file = path.join(foreign);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "mine").unwrap();
            let error = replace_folder(&path, &content(&["a"]), ours, ours)
                .unwrap_err()
                .to_string();
            assert!(error.contains("not of a plan"), "{error}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
            assert_eq!(names(dir.path()), ["out"]);
        }
    }

    #[test]
    fn a_file_of_the_users_that_the_new_folder_has_to_the_byte_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        std::fs::create_dir_all(path.join("more")).unwrap();
        std::fs::write(path.join("more/x"), "more/x").unwrap();
        replace_folder(&path, &content(&["a", "more/x"]), |_| false, ours).unwrap();
        assert_eq!(names(&path), ["a", "more"]);
        let error =
            replace_folder(&path, &content(&["b.sh", "more/x"]), |_| false, ours).unwrap_err();
        assert!(error.to_string().contains("holds \"a\""), "{error}");
        std::fs::write(path.join("a"), "edited").unwrap();
        assert!(replace_folder(&path, &content(&["a", "more/x"]), |_| false, ours).is_err());
    }

    #[test]
    fn what_a_killed_run_left_is_cleared_and_what_somebody_put_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (path, staging) = (dir.path().join("out"), dir.path().join(".out.new"));
        std::fs::create_dir_all(staging.join("in")).unwrap();
        std::fs::write(staging.join("in/c"), "half").unwrap();
        replace_folder(&path, &content(&["a"]), ours, ours).unwrap();
        assert_eq!(names(dir.path()), ["out"]);
        std::fs::create_dir(&staging).unwrap();
        std::fs::write(staging.join("mine"), "mine").unwrap();
        let error = replace_folder(&path, &content(&["a"]), ours, ours)
            .unwrap_err()
            .to_string();
        assert!(error.contains(".out.new: is in the way"), "{error}");
        assert_eq!(names(&staging), ["mine"]);
        std::fs::write(dir.path().join(".f.new"), "half").unwrap();
        replace_file(&dir.path().join("f"), b"whole").unwrap();
        assert_eq!(names(dir.path()), [".out.new", "f", "out"]);
    }

    #[test]
    fn a_second_run_in_the_same_folder_is_refused_while_the_first_writes() {
        let dir = tempfile::tempdir().unwrap();
        let first = Place::take(&dir.path().join("out")).unwrap();
        let second =
            replace_folder(&dir.path().join("out"), &content(&["a"]), ours, ours).unwrap_err();
        assert!(
            second.to_string().contains("another run is writing"),
            "{second}"
        );
        drop(first);
        replace_folder(&dir.path().join("out"), &content(&["a"]), ours, ours).unwrap();
    }

    #[test]
    fn a_folder_keeps_its_permissions_when_it_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        replace_folder(&path, &content(&["a"]), ours, ours).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_link_or_file_in_the_place_of_the_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (link, file) = (dir.path().join("link"), dir.path().join("file"));
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        std::fs::write(&file, "mine").unwrap();
        for path in [
            &link,
            &file,
            &dir.path().join("no/such/out"),
            &dir.path().join(".."),
            &dir.path().join("."),
        ] {
            assert!(
                replace_folder(path, &content(&["a"]), ours, ours).is_err(),
                "{}",
                path.display()
            );
        }
        assert_eq!(names(dir.path()), ["file", "link"]);
    }

    #[test]
    fn documents_are_regular_files_of_bounded_size() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("f"), dir.path().join("l"));
        std::fs::write(&file, "{}").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_document(&link, Links::Follow).unwrap(), b"{}");
        assert!(
            read_document(&link, Links::Refuse)
                .unwrap_err()
                .to_string()
                .contains("symbolic link")
        );
        assert!(read_document(dir.path(), Links::Follow).is_err());
        assert!(read_document(Path::new("/dev/zero"), Links::Follow).is_err());
        File::create(&file)
            .unwrap()
            .set_len(LARGEST_DOCUMENT + 1)
            .unwrap();
        assert!(
            read_document(&file, Links::Follow)
                .unwrap_err()
                .to_string()
                .contains("larger")
        );
    }

    #[test]
    fn root_reads_only_what_root_alone_may_write() {
        use std::os::unix::fs::symlink;
        // The folder for temporary files is everybody's.
        let open = tempfile::tempdir().unwrap();
        let file = open.path().join("plan.json");
        std::fs::write(&file, "x").unwrap();
        let error = read_trusted(&file).unwrap_err().to_string();
        assert!(error.contains("is not root's alone"), "{error}");
        assert!(error.contains(&file.display().to_string()), "{error}");
        // root's own folder, where this runs as root.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let Ok(own) = tempfile::tempdir_in("/root") else {
            return;
        };
        let file = own.path().join("plan.json");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(read_trusted(&file).unwrap(), b"x");
        assert_eq!(
            read_trusted(
                &own.path()
                    .join("../")
                    .join(own.path().file_name().unwrap())
                    .join("plan.json")
            )
            .unwrap(),
            b"x"
        );
        let failed = |path: &Path, why: &str| {
            let error = read_trusted(path).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        mode(&file, 0o666);
        failed(&file, "mode 666");
        mode(&file, 0o664);
        failed(&file, "mode 664");
        mode(&file, 0o644);
        // A user namespace may have no other user.
        if rustix::fs::chown(&file, Some(rustix::fs::Uid::from_raw(1)), None).is_ok() {
            failed(&file, "owner 1");
            rustix::fs::chown(&file, Some(rustix::fs::Uid::ROOT), None).unwrap();
        }
        mode(own.path(), 0o777);
        failed(&file, "mode 777");
        mode(own.path(), 0o700);
        let link = own.path().join("link.json");
        symlink(&file, &link).unwrap();
        failed(&link, "is a symbolic link");
        let folder = own.path().join("folder");
        symlink(own.path(), &folder).unwrap();
        failed(&folder.join("plan.json"), "is a symbolic link");
        failed(own.path(), "is no regular file");
        failed(&own.path().join("none"), "No such file");
    }
}
