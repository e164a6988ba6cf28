//! One run at a time: a file that one process holds, and that says which.
//!
//! The file is in a folder that only its owner may write, and nobody else may open it: who can open a file can
//! lock it (flock(2)), and keep everybody else out.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Held for as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why it cannot be held.
#[derive(Debug)]
pub enum Error {
    /// Another process holds it: which, when it said.
    Busy(Option<u32>),
    /// A system call failed.
    Io(io::Error),
}

impl Lock {
    /// Holds the file `name` in `folder`, and waits for that until `deadline`.
    pub fn take(folder: &OwnedFd, name: &str, deadline: Instant) -> Result<Lock, Error> {
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(folder, name, flags, Mode::RUSR | Mode::WUSR)
                .map_err(|e| Error::Io(e.into()))?;
            let mut file = File::from(file);
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let mut text = String::new();
                    let _ = (&mut file).take(32).read_to_string(&mut text);
                    let pid = text.trim().parse::<u32>().ok();
                    if !wait_for_end(pid, deadline) {
                        return Err(Error::Busy(pid));
                    }
                    continue;
                }
                Err(e) => return Err(Error::Io(e.into())),
            }
            // Whoever held it may have removed the file: then another may lock a new one.
            let (own, named) = (
                fstat(&file),
                statat(folder, name, AtFlags::SYMLINK_NOFOLLOW),
            );
            match (own, named) {
                (Ok(own), Ok(named))
                    if (own.st_dev, own.st_ino) == (named.st_dev, named.st_ino) => {}
                _ => continue,
            }
            // Of fixed width: it overwrites what the holder before wrote.
            let line = format!("{:<10}\n", std::process::id());
            file.write_all(line.as_bytes()).map_err(Error::Io)?;
            return Ok(Lock { _file: file });
        }
    }

    /// Gives it back, and takes the file away. One that stays behind is harmless: the next run uses it.
    pub fn give_back(self, folder: &OwnedFd, name: &str) {
        let _ = unlinkat(folder, name, AtFlags::empty());
    }
}

/// Who holds it, in brackets; nothing when that is not known.
pub fn holder(pid: Option<u32>) -> String {
    pid.map_or(String::new(), |pid| format!(" (process {pid})"))
}

/// Waits for the end of the process that holds the lock. Whether it is worth another try.
fn wait_for_end(pid: Option<u32>, deadline: Instant) -> bool {
    let Some(left) = deadline.checked_duration_since(Instant::now()) else {
        return false;
    };
    if left.is_zero() {
        return false;
    }
    let pid = pid
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw);
    let Ok(timeout) = rustix::event::Timespec::try_from(left) else {
        return false;
    };
    match pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Some(Ok(process)) => {
            let mut fds = [PollFd::new(&process, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(count) => count > 0,
                Err(e) => e == Errno::INTR,
            }
        }
        // It ended between the two looks.
        Some(Err(Errno::SRCH)) => true,
        // Locked, and the number is not written yet, which takes a moment and makes no event.
        _ => {
            std::thread::sleep(Duration::from_millis(10));
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(dir: &tempfile::TempDir) -> OwnedFd {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap()
    }

    #[test]
    fn one_at_a_time_and_nobody_else_may_open_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(&dir);
        let now = Instant::now();
        let lock = Lock::take(&folder, "lock", now).unwrap();
        let file = dir.path().join("lock");
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        // flock counts for each opening of the file, in one process too.
        match Lock::take(&folder, "lock", now) {
            Err(Error::Busy(pid)) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        lock.give_back(&folder, "lock");
        assert!(!file.exists());
        Lock::take(&folder, "lock", now).unwrap();
    }

    #[test]
    fn waiting_for_a_run_ends_with_it() {
        let mut child = std::process::Command::new("sleep")
            .arg("0.2")
            .spawn()
            .unwrap();
        let pid = Some(child.id());
        assert!(!wait_for_end(pid, Instant::now()));
        assert!(wait_for_end(pid, Instant::now() + Duration::from_secs(60)));
        child.wait().unwrap();
    }
}
