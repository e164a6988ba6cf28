//! Files put in place or removed all together, or left as they were.
//!
//! Everything is looked at before anything is touched. New files are written beside their places and
//! synced, each old one gets a second name beside its own, and then each new one is renamed over its
//! place. When a step fails, the old files are renamed back and what was made is removed. Nothing is
//! followed through a symbolic link, and every folder on the way must be the owner's alone. A signal counts as
//! a step that fails. One run at a time does this in a root folder; what stands under the names beside the
//! places is what a run left that was killed, and goes.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, fchmod, fstat, linkat, mkdirat, openat,
    readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::files::{FileError, read_whole};
use crate::lock::{self, Lock};
use crate::node::platform::INTERRUPTED;

/// Where the lock is: a folder that every host has of its own, also one that shares `/` with another, and in
/// which root alone may make a file.
const LOCK_FOLDER: &str = "run";
/// What is held by the one run that installs or uninstalls.
const LOCK: &str = "hairpin-mesh-install.lock";

/// Most bytes of a file that is compared: more than any program here.
const LARGEST: u64 = 512 * 1024 * 1024;

/// What a place is to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A regular file.
    File {
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its permissions.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Where it points.
        target: String,
    },
    /// Nothing.
    Nothing,
}

/// A place and what it is to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The place, absolute.
    pub path: String,
    /// What it is to hold.
    pub content: Content,
    /// A file there that does not begin with this is somebody else's.
    pub begins: Option<&'static str>,
    /// A link there that points elsewhere is somebody else's.
    pub points: Option<&'static str>,
}

impl Item {
    /// A place without conditions.
    pub fn new(path: &str, content: Content) -> Item {
        Item {
            path: path.to_owned(),
            content,
            begins: None,
            points: None,
        }
    }

    /// A place that is to hold a file.
    pub fn file(path: &str, bytes: Vec<u8>, mode: u32) -> Item {
        Item::new(path, Content::File { bytes, mode })
    }
}

/// What became of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Did {
    /// It was right.
    Kept,
    /// There was nothing before.
    Added,
    /// There was something of ours before.
    Replaced,
    /// There is nothing any more.
    Removed,
}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Did::Kept => "as it is",
            Did::Added => "added",
            Did::Replaced => "replaced",
            Did::Removed => "removed",
        })
    }
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every place holds what it is to hold.
    Done {
        /// What became of each place, in the order of the items.
        did: Vec<Did>,
        /// Old files under their second names that could not be removed, each with why.
        left: Vec<String>,
    },
    /// Something failed, and every place is as it was.
    Restored {
        /// What failed.
        why: String,
    },
    /// Something failed, and not every place is as it was.
    NotRestored {
        /// What failed.
        why: String,
        /// What could not be put back, each with why.
        differs: Vec<String>,
    },
}

/// Why nothing was touched.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Something that is not ours is in these places.
    #[error("{}", .0.iter().map(FileError::to_string).collect::<Vec<_>>().join("\n"))]
    InTheWay(Vec<FileError>),
    /// A place cannot be looked at, or a folder is not the owner's alone.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Where the installation is: the folder that stands for `/`.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    folder: OwnedFd,
    owner: u32,
    /// Held while it lives, in this folder.
    lock: Option<Lock>,
    lock_folder: OwnedFd,
    /// Set by a signal that is to end the run.
    ended: Option<Arc<AtomicBool>>,
    /// The step of a test that fails.
    #[cfg(test)]
    fault: std::cell::Cell<Fault>,
}

#[cfg(test)]
#[derive(Debug, Clone, Copy, Default)]
struct Fault {
    steps: usize,
    /// These fail, from the first number up to and without the second.
    from: usize,
    to: usize,
    /// At this one a signal comes.
    signal: Option<usize>,
}

impl Drop for Root {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            lock.give_back(&self.lock_folder, LOCK);
        }
    }
}

/// A folder that may have been made.
struct Parent {
    folder: OwnedFd,
    path: PathBuf,
}

/// A place that is to be changed.
struct Change<'a> {
    item: &'a Item,
    parent: Parent,
    name: String,
    /// Whether something is there.
    old: bool,
    /// How far it came.
    staged: bool,
    saved: bool,
    placed: bool,
}

impl Change<'_> {
    fn staging(&self) -> String {
        staging(&self.name)
    }

    fn second_name(&self) -> String {
        second_name(&self.name)
    }

    fn error(&self, what: impl fmt::Display) -> FileError {
        FileError::new(Path::new(&self.item.path), what)
    }
}

impl Root {
    /// This host's own, for root.
    pub fn host() -> Result<Root, FileError> {
        Root::at(Path::new("/"), 0)
    }

    /// Takes the folder `path`, in which everything must belong to `owner`.
    pub fn at(path: &Path, owner: u32) -> Result<Root, FileError> {
        let failed = |e: Errno| FileError::new(path, io::Error::from(e));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        let at = path.join(LOCK_FOLDER);
        let lock_folder = openat(
            &folder,
            LOCK_FOLDER,
            flags | OFlags::NOFOLLOW,
            Mode::empty(),
        )
        .map_err(|e| FileError::new(&at, io::Error::from(e)))?;
        let mut root = Root {
            path: path.to_owned(),
            folder,
            owner,
            lock: None,
            lock_folder,
            ended: None,
            #[cfg(test)]
            fault: Default::default(),
        };
        root.check_folder(&root.folder, path, false)?;
        root.check_folder(&root.lock_folder, &at, false)?;
        let lock = Lock::take(&root.lock_folder, LOCK, Instant::now());
        root.lock = Some(lock.map_err(|error| match error {
            lock::Error::Busy(pid) => {
                let run = lock::holder(pid);
                let what = format!(
                    "another run installs or uninstalls here{run}; try again when it has ended"
                );
                FileError::new(path, what)
            }
            lock::Error::Io(e) => FileError::new(&at.join(LOCK), e),
        })?);
        Ok(root)
    }

    /// From now on what is begun is taken back once this is set.
    pub fn end_on(&mut self, ended: Arc<AtomicBool>) {
        self.ended = Some(ended);
    }

    /// Called before every operation that leads on, as [`Root::step`] is before one that puts back, too.
    fn forward(&self) -> io::Result<()> {
        self.step()?;
        match &self.ended {
            Some(ended) if ended.load(Ordering::Relaxed) => Err(io::Error::other(INTERRUPTED)),
            _ => Ok(()),
        }
    }

    /// Called before every operation that changes something. Here a test makes one fail.
    fn step(&self) -> io::Result<()> {
        #[cfg(test)]
        {
            let mut fault = self.fault.get();
            let now = fault.steps;
            fault.steps += 1;
            self.fault.set(fault);
            if let (true, Some(ended)) = (fault.signal == Some(now), &self.ended) {
                ended.store(true, Ordering::Relaxed);
            }
            if (fault.from..fault.to).contains(&now) {
                return Err(io::Error::other("as the test wants it"));
            }
        }
        Ok(())
    }

    /// Whether the folder is the owner's alone. Debian and Ubuntu give /usr/local to the group `staff`:
    /// with `group`, a group may write too.
    fn check_folder(&self, folder: &OwnedFd, path: &Path, group: bool) -> Result<(), FileError> {
        let stat = fstat(folder).map_err(|e| FileError::new(path, io::Error::from(e)))?;
        let others = if group { 0o002 } else { 0o022 };
        if stat.st_uid != self.owner || stat.st_mode & others != 0 {
            let what = format!(
                "is not root's alone (owner {}, mode {:o}), for an installation it has to be",
                stat.st_uid,
                stat.st_mode & 0o7777
            );
            return Err(FileError::new(path, what));
        }
        Ok(())
    }

    /// The folder of a place, and the place's name in it; `None` when there is no such folder. With
    /// `made`, folders that are missing are made, and told there.
    fn parent(
        &self,
        path: &str,
        mut made: Option<&mut Vec<PathBuf>>,
    ) -> Result<Option<(Parent, String)>, FileError> {
        let relative = path.trim_start_matches('/');
        let (folders, name) = relative.rsplit_once('/').unwrap_or(("", relative));
        let group = path.starts_with("/usr/local/");
        let mut so_far = PathBuf::from("/");
        let failed = |so_far: &Path, e: Errno| FileError::new(so_far, io::Error::from(e));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at =
            openat(&self.folder, ".", flags, Mode::empty()).map_err(|e| failed(&self.path, e))?;
        for part in folders.split('/').filter(|part| !part.is_empty()) {
            so_far.push(part);
            let mut next = openat(&at, part, flags, Mode::empty());
            if let (Err(Errno::NOENT), Some(made)) = (&next, made.as_deref_mut()) {
                self.forward().map_err(|e| FileError::new(&so_far, e))?;
                mkdirat(&at, part, Mode::from_raw_mode(0o755)).map_err(|e| failed(&so_far, e))?;
                made.push(so_far.clone());
                next = openat(&at, part, flags, Mode::empty());
                if let Ok(folder) = &next {
                    // Whatever this process's umask is.
                    fchmod(folder, Mode::from_raw_mode(0o755)).map_err(|e| failed(&so_far, e))?;
                }
            }
            let next = match next {
                Ok(next) => next,
                Err(Errno::NOENT) => return Ok(None),
                // What a link gives where a folder is wanted.
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let what =
                        "is no folder of its own, which is wanted here (links are not followed)";
                    return Err(FileError::new(&so_far, what));
                }
                Err(e) => return Err(failed(&so_far, e)),
            };
            self.check_folder(&next, &so_far, group)?;
            at = next;
        }
        let parent = Parent {
            folder: at,
            path: so_far,
        };
        Ok(Some((parent, name.to_owned())))
    }

    /// Bytes of the regular file at `path` under this root; `None` when there is nothing.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>, FileError> {
        let Some((parent, name)) = self.parent(path, None)? else {
            return Ok(None);
        };
        let failed = |what: io::Error| FileError::new(Path::new(path), what);
        match statat(&parent.folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(failed(e.into())),
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return Err(FileError::new(Path::new(path), "is no regular file"));
            }
            Ok(_) => {}
        }
        read_file(&parent.folder, &name).map(Some).map_err(failed)
    }

    /// Whether the place holds what it is to hold, in which folder it is, and whether it holds anything.
    fn look(&self, item: &Item, parent: &Parent, name: &str) -> Result<Look, FileError> {
        let failed = |e: io::Error| FileError::new(Path::new(&item.path), e);
        let stat = match statat(&parent.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                return Ok(match item.content {
                    Content::Nothing => Look::Right,
                    _ => Look::Empty,
                });
            }
            Err(e) => return Err(failed(e.into())),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let link = || -> Result<String, FileError> {
            let target =
                readlinkat(&parent.folder, name, Vec::new()).map_err(|e| failed(e.into()))?;
            Ok(target.to_string_lossy().into_owned())
        };
        if let Some(points) = item.points {
            return Ok(match kind {
                FileType::Symlink if link()? == points => Look::Ours,
                _ => Look::Strange(format!("is no link to {points}")),
            });
        }
        if let Content::Link { target } = &item.content {
            return Ok(match kind {
                FileType::Symlink if link()? == *target => Look::Right,
                _ => Look::Strange(format!("is there, and no link to {target}")),
            });
        }
        match kind {
            FileType::RegularFile => {}
            FileType::Symlink => {
                return Ok(Look::Strange(format!(
                    "is a symbolic link to {}, a file wanted{}",
                    link()?,
                    match link()?.as_str() {
                        "/dev/null" => " (the unit is masked: systemctl unmask)",
                        _ => "",
                    }
                )));
            }
            _ => return Ok(Look::Strange("is no regular file, one wanted".into())),
        }
        let present = read_file(&parent.folder, name).map_err(failed)?;
        if let Some(mark) = item
            .begins
            .filter(|mark| !present.starts_with(mark.as_bytes()))
        {
            return Ok(Look::Foreign(format!(
                "is not of this program (it does not begin with {mark:?})"
            )));
        }
        Ok(match &item.content {
            Content::File { bytes, mode }
                if present == *bytes
                    && stat.st_mode & 0o7777 == *mode
                    && stat.st_uid == self.owner =>
            {
                Look::Right
            }
            _ => Look::Ours,
        })
    }

    /// Whether a place is not as it is to be: what is there, when it is somebody else's.
    fn is_right(&self, item: &Item) -> Result<bool, FileError> {
        let Some((parent, name)) = self.parent(&item.path, None)? else {
            return Ok(item.content == Content::Nothing);
        };
        Ok(matches!(self.look(item, &parent, &name)?, Look::Right))
    }

    /// What each place is to hold, put there: everything or nothing.
    ///
    /// `foreign` says whether files that others wrote in the places of ours are replaced, too. `settle` is
    /// called when everything is in place, and again when everything was put back: a failure of it counts
    /// as one of a step.
    pub fn apply(
        &self,
        items: &[Item],
        foreign: bool,
        settle: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Outcome, Refusal> {
        // All that is in the way, before anything is touched.
        let mut in_the_way = Vec::new();
        let mut changing = Vec::new();
        for item in items {
            let look = match self.parent(&item.path, None)? {
                Some((parent, name)) => self.look(item, &parent, &name)?,
                None if item.content == Content::Nothing => Look::Right,
                None => Look::Empty,
            };
            match look {
                Look::Strange(what) => {
                    in_the_way.push(FileError::new(Path::new(&item.path), what));
                }
                Look::Foreign(what) if !foreign => {
                    in_the_way.push(FileError::new(Path::new(&item.path), what));
                }
                Look::Right => changing.push(None),
                Look::Empty => changing.push(Some(Did::Added)),
                Look::Ours | Look::Foreign(_) => changing.push(Some(match item.content {
                    Content::Nothing => Did::Removed,
                    _ => Did::Replaced,
                })),
            }
        }
        if !in_the_way.is_empty() {
            return Err(Refusal::InTheWay(in_the_way));
        }
        let did = changing
            .iter()
            .map(|did| did.unwrap_or(Did::Kept))
            .collect();
        let mut made = Vec::new();
        let mut changes = Vec::new();
        let wanted = items.iter().zip(changing);
        let wanted = wanted.filter_map(|(item, did)| did.map(|_| item));
        let result = self
            .clear(items)
            .and_then(|()| self.place(wanted, &mut changes, &mut made))
            .map_err(|e| e.to_string())
            .and_then(|()| if changes.is_empty() { Ok(()) } else { settle() })
            .and_then(|()| self.read_back(&changes));
        let Err(why) = result else {
            let left = self.forget_old(&changes);
            return Ok(Outcome::Done { did, left });
        };
        let placed = changes.iter().any(|change| change.placed || change.saved);
        let mut differs = self.put_back(&changes, &made);
        if placed {
            if let Err(why) = settle() {
                differs.push(why);
            }
        }
        Ok(match differs.is_empty() {
            true => Outcome::Restored { why },
            false => Outcome::NotRestored { why, differs },
        })
    }

    /// Removes what a run left beside the places that was killed.
    fn clear(&self, items: &[Item]) -> Result<(), FileError> {
        for item in items {
            let Some((parent, name)) = self.parent(&item.path, None)? else {
                continue;
            };
            for stale in [staging(&name), second_name(&name)] {
                self.forward()
                    .and_then(|()| remove(&parent.folder, &stale))
                    .map_err(|e| FileError::new(&parent.path.join(&stale), e))?;
            }
        }
        Ok(())
    }

    /// Stages everything, then puts it in place.
    fn place<'a>(
        &self,
        items: impl Iterator<Item = &'a Item>,
        changes: &mut Vec<Change<'a>>,
        made: &mut Vec<PathBuf>,
    ) -> Result<(), FileError> {
        for item in items {
            let keep = item.content != Content::Nothing;
            let Some((parent, name)) = self.parent(&item.path, keep.then_some(&mut *made))? else {
                continue;
            };
            let old = statat(&parent.folder, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            changes.push(Change {
                item,
                parent,
                name,
                old,
                staged: false,
                saved: false,
                placed: false,
            });
            if let Some(change) = changes.last_mut() {
                self.stage(change).map_err(|e| change.error(e))?;
            }
        }
        for change in changes.iter_mut() {
            self.put(change).map_err(|e| change.error(e))?;
        }
        for change in changes.iter() {
            self.sync(change).map_err(|e| change.error(e))?;
        }
        Ok(())
    }

    fn stage(&self, change: &mut Change) -> io::Result<()> {
        let (folder, staging) = (&change.parent.folder, change.staging());
        self.forward()?;
        match &change.item.content {
            Content::Nothing => {}
            Content::Link { target } => {
                symlinkat(target.as_str(), folder, &staging)?;
                change.staged = true;
            }
            Content::File { bytes, mode } => {
                let flags = OFlags::WRONLY
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let file = openat(folder, &staging, flags, Mode::from_raw_mode(0o600))?;
                change.staged = true;
                let mut file = File::from(file);
                self.forward()?;
                file.write_all(bytes)?;
                self.forward()?;
                fchmod(&file, Mode::from_raw_mode(*mode))?;
                self.forward()?;
                file.sync_all()?;
            }
        }
        Ok(())
    }

    fn put(&self, change: &mut Change) -> io::Result<()> {
        let (folder, name) = (&change.parent.folder, &change.name);
        let (staging, second) = (change.staging(), change.second_name());
        self.forward()?;
        if change.item.content == Content::Nothing {
            renameat_with(folder, name, folder, &second, RenameFlags::NOREPLACE)?;
            change.saved = true;
            return Ok(());
        }
        if change.old {
            // The place is never empty: the old file gets a second name, then the new one replaces it.
            linkat(folder, name, folder, &second, AtFlags::empty())?;
            change.saved = true;
            self.forward()?;
            renameat(folder, &staging, folder, name)?;
        } else {
            renameat_with(folder, &staging, folder, name, RenameFlags::NOREPLACE)?;
        }
        (change.staged, change.placed) = (false, true);
        Ok(())
    }

    fn sync(&self, change: &Change) -> io::Result<()> {
        self.forward()?;
        Ok(rustix::fs::fsync(&change.parent.folder)?)
    }

    /// Looks whether every place that was changed now holds what it is to hold.
    fn read_back(&self, changes: &[Change]) -> Result<(), String> {
        for change in changes {
            self.forward().map_err(|e| e.to_string())?;
            if !self.is_right(change.item).map_err(|e| e.to_string())? {
                return Err(change
                    .error("does not hold what was written there")
                    .to_string());
            }
        }
        Ok(())
    }

    /// Puts everything back; what could not be, with why.
    fn put_back(&self, changes: &[Change], made: &[PathBuf]) -> Vec<String> {
        let mut differs = Vec::new();
        for change in changes.iter().rev() {
            if let Err(e) = self.put_one_back(change) {
                differs.push(
                    change
                        .error(format!("could not be put back: {e}"))
                        .to_string(),
                );
            }
        }
        for path in made.iter().rev() {
            if let Err(e) = self.remove_folder(path) {
                let what = format!("was made and could not be removed: {e}");
                differs.push(FileError::new(path, what).to_string());
            }
        }
        differs
    }

    fn put_one_back(&self, change: &Change) -> io::Result<()> {
        let (folder, name) = (&change.parent.folder, &change.name);
        if change.saved {
            self.step()?;
            match change.placed || change.item.content == Content::Nothing {
                true => renameat(folder, change.second_name(), folder, name)?,
                // Two names of one file: renaming one over the other does nothing.
                false => unlinkat(folder, change.second_name(), AtFlags::empty())?,
            }
        } else if change.placed {
            self.step()?;
            unlinkat(folder, name, AtFlags::empty())?;
        }
        if change.staged {
            self.step()?;
            unlinkat(folder, change.staging(), AtFlags::empty())?;
        }
        self.step()?;
        Ok(rustix::fs::fsync(folder)?)
    }

    /// Removes the second names of old files; those that stay, with why.
    fn forget_old(&self, changes: &[Change]) -> Vec<String> {
        let mut left = Vec::new();
        for change in changes.iter().filter(|change| change.saved) {
            let second = change.second_name();
            let gone = self
                .step()
                .and_then(|()| remove(&change.parent.folder, &second))
                .and_then(|()| Ok(rustix::fs::fsync(&change.parent.folder)?));
            if let Err(e) = gone {
                let path = change.parent.path.join(&second);
                left.push(FileError::new(&path, e).to_string());
            }
        }
        left
    }

    /// Removes a folder; one that is not there is no error.
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        let Some((parent, name)) = self
            .parent(&path.to_string_lossy(), None)
            .map_err(io::Error::other)?
        else {
            return Ok(());
        };
        match unlinkat(&parent.folder, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Removes those of the folders that are empty; the others, which hold things of others.
    pub fn remove_empty(&self, folders: &[&str]) -> Result<Vec<String>, FileError> {
        let mut kept = Vec::new();
        for folder in folders {
            let path = Path::new(folder);
            match self.remove_folder(path) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    kept.push((*folder).to_owned());
                }
                Err(e) => return Err(FileError::new(path, e)),
            }
        }
        Ok(kept)
    }
}

/// What stands in a place.
enum Look {
    /// What is wanted.
    Right,
    /// Nothing, and something is wanted.
    Empty,
    /// Something of ours, and something else is wanted.
    Ours,
    /// A file that somebody else wrote.
    Foreign(String),
    /// Nothing that a file of ours may replace.
    Strange(String),
}

/// Where a new file is written, in the folder of its place.
fn staging(name: &str) -> String {
    format!(".{name}.hairpin-mesh-new")
}

/// What an old file is called as well, until every new one is in place.
fn second_name(name: &str) -> String {
    format!(".{name}.hairpin-mesh-old")
}

fn read_file(folder: &OwnedFd, name: impl AsRef<OsStr>) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(folder, name.as_ref(), flags, Mode::empty())?;
    read_whole(File::from(file), LARGEST)
}

fn remove(folder: &OwnedFd, name: &str) -> io::Result<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// The bytes of the program that this process runs, whatever has become of its file since.
pub fn own_program() -> Result<Vec<u8>, FileError> {
    // Not the path that it points to, which may name another file by now.
    let path = Path::new("/proc/self/exe");
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| FileError::new(path, io::Error::from(e)))?;
    read_whole(File::from(file), LARGEST).map_err(|e| FileError::new(path, e))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn scratch() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(LOCK_FOLDER)).unwrap();
        let root = Root::at(dir.path(), rustix::process::geteuid().as_raw()).unwrap();
        (dir, root)
    }

    /// Everything below the folder: path, and what it is.
    fn tree(dir: &Path) -> BTreeMap<String, String> {
        fn walk(dir: &Path, below: &str, into: &mut BTreeMap<String, String>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{below}/{}", entry.file_name().to_str().unwrap());
                let metadata = entry.path().symlink_metadata().unwrap();
                let mode = metadata.mode() & 0o7777;
                let what = if metadata.is_symlink() {
                    format!("-> {}", std::fs::read_link(entry.path()).unwrap().display())
                } else if metadata.is_dir() {
                    walk(&entry.path(), &name, into);
                    format!("{mode:o}")
                } else {
                    let text = std::fs::read_to_string(entry.path()).unwrap();
                    format!("{mode:o} {} {text}", metadata.nlink())
                };
                into.insert(name, what);
            }
        }
        let mut into = BTreeMap::new();
        walk(dir, "", &mut into);
        into
    }

    const MARK: &str = "# ours";

    fn wanted(version: &str) -> Vec<Item> {
        let mut unit = Item::file("/etc/units/mesh", format!("{MARK} {version}").into(), 0o644);
        unit.begins = Some(MARK);
        vec![
            Item::file("/etc/mesh/plan", format!("plan {version}").into(), 0o644),
            unit,
            Item::new(
                "/usr/local/bin/mesh",
                Content::Link {
                    target: "/opt/mesh/mesh".into(),
                },
            ),
            Item::file("/opt/mesh/mesh", format!("program {version}").into(), 0o755),
        ]
    }

    fn gone() -> Vec<Item> {
        let mut items = wanted("");
        for item in &mut items {
            if let Content::Link { .. } = item.content {
                item.points = Some("/opt/mesh/mesh");
            }
            item.content = Content::Nothing;
        }
        items
    }

    fn apply(root: &Root, items: &[Item]) -> Outcome {
        root.apply(items, false, &mut || Ok(())).unwrap()
    }

    fn done(outcome: Outcome) -> Vec<Did> {
        match outcome {
            Outcome::Done { did, left } if left.is_empty() => did,
            other => panic!("{other:?}"),
        }
    }

    /// The starts from which an installation, an upgrade and a removal are tried.
    fn starts() -> Vec<(&'static str, Vec<Item>, Vec<Item>)> {
        vec![
            ("a fresh host", Vec::new(), wanted("1")),
            ("an upgrade", wanted("1"), wanted("2")),
            ("a part of it", wanted("1")[..2].to_vec(), wanted("2")),
            ("a removal", wanted("1"), gone()),
        ]
    }

    #[test]
    fn files_are_added_kept_replaced_and_removed_and_nothing_is_left_beside_them() {
        let (dir, root) = scratch();
        assert_eq!(done(apply(&root, &wanted("1"))), [Did::Added; 4]);
        let first = tree(dir.path());
        assert_eq!(first["/opt/mesh/mesh"], "755 1 program 1");
        assert_eq!(first["/usr/local/bin/mesh"], "-> /opt/mesh/mesh");
        assert_eq!(done(apply(&root, &wanted("1"))), [Did::Kept; 4]);
        assert_eq!(tree(dir.path()), first);
        let did = done(apply(&root, &wanted("2")));
        assert_eq!(
            did,
            [Did::Replaced, Did::Replaced, Did::Kept, Did::Replaced]
        );
        assert_eq!(tree(dir.path())["/etc/mesh/plan"], "644 1 plan 2");
        // Another mode is another file.
        let program = dir.path().join("opt/mesh/mesh");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(done(apply(&root, &wanted("2")))[3], Did::Replaced);
        assert_eq!(done(apply(&root, &gone())), [Did::Removed; 4]);
        assert_eq!(done(apply(&root, &gone())), [Did::Kept; 4]);
        std::fs::write(dir.path().join("etc/mesh/notes"), "mine").unwrap();
        let kept = root
            .remove_empty(&["/opt/mesh", "/etc/mesh", "/no/where"])
            .unwrap();
        assert_eq!(kept, ["/etc/mesh"]);
        assert!(!dir.path().join("opt/mesh").exists());
    }

    #[test]
    fn a_failure_at_any_step_leaves_everything_as_it_was() {
        for (start, before, wanted) in starts() {
            let mut steps = 0;
            loop {
                let (dir, root) = scratch();
                apply(&root, &before);
                let was = tree(dir.path());
                root.fault.set(Fault {
                    steps: 0,
                    from: steps,
                    to: steps + 1,
                    signal: None,
                });
                match apply(&root, &wanted) {
                    Outcome::Restored { why } => {
                        assert!(why.ends_with("as the test wants it"), "{why}");
                        assert_eq!(tree(dir.path()), was, "{start}, step {steps}");
                    }
                    // Beyond what puts things in place: an old file's second name stays, and is named.
                    Outcome::Done { left, .. } if !left.is_empty() => {
                        assert!(left[0].contains("hairpin-mesh-old"), "{left:?}");
                        root.fault.set(Fault::default());
                        let now = tree(dir.path());
                        assert_eq!(
                            now.keys()
                                .filter(|p| p.contains("hairpin-mesh-old"))
                                .count(),
                            1
                        );
                    }
                    Outcome::Done { .. } => break,
                    other => panic!("{start}, step {steps}: {other:?}"),
                }
                steps += 1;
            }
            assert!(steps > 12, "{start}: {steps} steps failed");
        }
    }

    #[test]
    fn a_signal_at_any_step_leaves_everything_as_it_was_or_all_in_place() {
        for (start, before, wanted) in starts() {
            let (mut restored, mut done) = (0, 0);
            for at in 0..60 {
                let (dir, mut root) = scratch();
                apply(&root, &before);
                let was = tree(dir.path());
                root.end_on(Arc::default());
                root.fault.set(Fault {
                    signal: Some(at),
                    ..Fault::default()
                });
                match apply(&root, &wanted) {
                    Outcome::Restored { why } => {
                        restored += 1;
                        assert!(why.ends_with(INTERRUPTED), "{why}");
                        assert_eq!(tree(dir.path()), was, "{start}, step {at}");
                    }
                    Outcome::Done { left, .. } => {
                        done += 1;
                        assert_eq!(left, [""; 0], "{start}, step {at}");
                        for item in &wanted {
                            assert!(root.is_right(item).unwrap(), "{start}, step {at}");
                        }
                    }
                    other => panic!("{start}, step {at}: {other:?}"),
                }
                let left = tree(dir.path());
                assert!(
                    !left
                        .keys()
                        .any(|path| path.contains("hairpin-mesh-") && !path.ends_with(LOCK)),
                    "{start}, step {at}: {left:?}"
                );
            }
            assert!(restored > 12 && done > 1, "{start}: {restored} {done}");
        }
    }

    #[test]
    fn what_cannot_be_put_back_is_named_and_a_second_run_makes_it_right() {
        for (start, before, wanted) in starts() {
            let mut not_restored = 0;
            for from in 0..60 {
                let (dir, root) = scratch();
                apply(&root, &before);
                let was = tree(dir.path());
                root.fault.set(Fault {
                    steps: 0,
                    from,
                    to: usize::MAX,
                    signal: None,
                });
                match apply(&root, &wanted) {
                    Outcome::NotRestored { differs, .. } => {
                        not_restored += 1;
                        assert!(
                            differs.iter().all(|line| line.starts_with('/')),
                            "{differs:?}"
                        );
                    }
                    Outcome::Restored { .. } => assert_eq!(tree(dir.path()), was),
                    Outcome::Done { .. } => break,
                }
                // As after a run that was killed there.
                root.fault.set(Fault::default());
                done(apply(&root, &wanted));
                let (clean, again) = scratch();
                apply(&again, &before);
                apply(&again, &wanted);
                assert_eq!(tree(dir.path()), tree(clean.path()), "{start}, from {from}");
            }
            assert!(not_restored > 3, "{start}");
        }
    }

    #[test]
    fn what_settles_after_the_files_counts_as_a_step() {
        let (dir, root) = scratch();
        apply(&root, &wanted("1"));
        let was = tree(dir.path());
        let mut said = Vec::new();
        let mut settle = || {
            said.push(std::fs::read_to_string(dir.path().join("etc/mesh/plan")).unwrap());
            match said.len() {
                1 => Err("no reload".to_owned()),
                _ => Ok(()),
            }
        };
        let outcome = root.apply(&wanted("2"), false, &mut settle).unwrap();
        assert_eq!(
            outcome,
            Outcome::Restored {
                why: "no reload".into()
            }
        );
        assert_eq!(said, ["plan 2", "plan 1"]);
        assert_eq!(tree(dir.path()), was);
        let outcome = root.apply(&wanted("2"), false, &mut || Err("never".into()));
        assert!(
            matches!(outcome, Ok(Outcome::NotRestored { .. })),
            "{outcome:?}"
        );
    }

    #[test]
    fn what_others_put_there_is_named_all_at_once_and_nothing_is_touched() {
        let (dir, root) = scratch();
        for folder in ["etc/units", "usr/local/bin", "opt/mesh", "etc/mesh"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        std::fs::write(dir.path().join("etc/units/mesh"), "theirs").unwrap();
        std::fs::write(dir.path().join("usr/local/bin/mesh"), "theirs").unwrap();
        symlink("/etc/shadow", dir.path().join("etc/mesh/plan")).unwrap();
        std::fs::create_dir(dir.path().join("opt/mesh/mesh")).unwrap();
        let was = tree(dir.path());
        let refused = |items: &[Item], foreign| match root.apply(items, foreign, &mut || Ok(())) {
            Err(Refusal::InTheWay(what)) => {
                what.iter().map(FileError::to_string).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        let lines = refused(&wanted("1"), false);
        for (line, word) in lines
            .iter()
            .zip(["shadow", "does not begin", "no link", "no regular"])
        {
            assert!(line.contains(word), "{lines:?}");
        }
        assert_eq!(lines.len(), 4);
        assert_eq!(refused(&wanted("1"), true).len(), 3);
        assert_eq!(tree(dir.path()), was);
        // A unit of others is replaced when that is asked for, and put back when something fails.
        let unit = &wanted("1")[1..2];
        let outcome = root.apply(unit, true, &mut || Err("no".into())).unwrap();
        assert!(matches!(outcome, Outcome::NotRestored { .. }));
        assert_eq!(tree(dir.path()), was);
        assert_eq!(
            done(root.apply(unit, true, &mut || Ok(())).unwrap()),
            [Did::Replaced]
        );
        symlink("/dev/null", dir.path().join("etc/units/other")).unwrap();
        let masked = Item {
            path: "/etc/units/other".into(),
            ..unit[0].clone()
        };
        assert!(refused(&[masked], true)[0].contains("masked"));
    }

    #[test]
    fn folders_that_others_may_write_and_links_on_the_way_are_refused() {
        let (dir, root) = scratch();
        let failed = |why: &str| {
            let error = root.apply(&wanted("1"), true, &mut || Ok(())).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        };
        let folder = dir.path().join("opt");
        std::fs::create_dir(&folder).unwrap();
        for mode in [0o777, 0o775, 0o1777] {
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
            failed("/opt: is not root's alone");
        }
        std::fs::remove_dir(&folder).unwrap();
        symlink("/tmp", &folder).unwrap();
        failed("/opt: is no folder of its own");
        std::fs::remove_file(&folder).unwrap();
        std::fs::write(&folder, "").unwrap();
        failed("/opt: is no folder of its own");
        std::fs::remove_file(&folder).unwrap();
        // /usr/local alone may be a group's.
        std::fs::create_dir_all(dir.path().join("usr/local/bin")).unwrap();
        let local = dir.path().join("usr/local");
        std::fs::set_permissions(&local, std::fs::Permissions::from_mode(0o2775)).unwrap();
        assert_eq!(done(apply(&root, &wanted("1"))), [Did::Added; 4]);
    }

    #[test]
    fn one_run_at_a_time_by_a_file_that_nobody_else_may_open() {
        let (dir, root) = scratch();
        let file = dir.path().join(LOCK_FOLDER).join(LOCK);
        let mode = file.metadata().unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let owner = root.owner;
        let error = Root::at(dir.path(), owner).unwrap_err().to_string();
        let own = format!(
            "another run installs or uninstalls here (process {})",
            std::process::id()
        );
        assert!(error.contains(&own), "{error}");
        drop(root);
        assert!(!file.exists());
        // What everybody can open holds up nobody.
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        let etc = std::fs::File::open(dir.path().join("etc")).unwrap();
        rustix::fs::flock(&etc, rustix::fs::FlockOperation::LockExclusive).unwrap();
        Root::at(dir.path(), owner).unwrap();
        // Where everybody may make the file it is no lock.
        let folder = dir.path().join(LOCK_FOLDER);
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o1777)).unwrap();
        let error = Root::at(dir.path(), owner).unwrap_err().to_string();
        assert!(error.contains("/run: is not root's alone"), "{error}");
    }

    #[test]
    fn the_own_program_is_what_this_process_runs() {
        let path = std::env::current_exe().unwrap();
        assert!(own_program().unwrap() == std::fs::read(path).unwrap());
    }
}
