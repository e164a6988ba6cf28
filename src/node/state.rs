//! `/run/dsv41-mesh`: what this program remembers of a host between two runs, until the next boot.
//!
//! | file | what it is |
//! |---|---|
//! | `lock` | held by the one run that changes the host |
//! | `applied.json` | the plan that was applied last, and which host of it this is |
//! | `journal.json` | a run that changes the host: each change with its inverse; gone when it has ended well |
//! | `dropped.json` | by port: packets that the kernel had dropped there when `up` had made its rules |
//! | `clsact-<port>` | the `clsact` discipline of this port was made by us (the scripts of the plan write it too) |
//! | `hairpin-queue-<PCI address>.json`, `hairpin-num-queues-…` | see [`crate::collect::record`] |
//! | `reinit.json` | how a port was whose driver is being re-initialised; gone when it is back |
//!
//! The folder belongs to root and nobody else may write it; otherwise nothing in it is believed. Files
//! are written beside their place, synced and renamed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{AtFlags, Mode, OFlags, fstat, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use serde::Serialize;

use crate::collect::record::{self, DIRECTORY};
use crate::facts::{HairpinParameter, HairpinRecord};
use crate::json::{At, DocumentError, parse, pretty};
use crate::lock::{self, Lock};
use crate::mesh::apply::Step;
use crate::mesh::queue::Underway;
use crate::names::{HostName, NetdevName, PciAddress};
use crate::plan::Plan;

/// The schema of the journal.
const JOURNAL_SCHEMA: &str = "hairpin-mesh.journal/v1";
/// The schema of the applied plan.
const APPLIED_SCHEMA: &str = "hairpin-mesh.applied/v1";
const JOURNAL: &str = "journal.json";
const APPLIED: &str = "applied.json";
/// The schema of what is underway.
const REINIT_SCHEMA: &str = "hairpin-mesh.reinit/v1";
const REINIT: &str = "reinit.json";
const DROPPED: &str = "dropped.json";
const DROPPED_SCHEMA: &str = "hairpin-mesh.dropped/v1";
const LOCK: &str = "lock";
const CLSACT: &str = "clsact-";
/// Owner of what is believed.
const ROOT: u32 = 0;
/// Most bytes of a file here: a plan and its wrapper.
const LARGEST: u64 = 4 * 1024 * 1024;

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Somebody else than root could have written it.
    #[error("{}: is not root's alone (owner {uid}, mode {mode:o}); remove it", path.display())]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its permissions.
        mode: u32,
    },
    /// Another run changes this host.
    #[error("another hairpin-mesh changes this host{}; --wait SECONDS waits for its end", lock::holder(*.pid))]
    Busy {
        /// Its process, when it said.
        pid: Option<u32>,
    },
    /// A file of ours does not hold what it should.
    #[error("{0}")]
    Document(#[from] DocumentError),
}

/// The folder, open.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    folder: OwnedFd,
}

/// The plan that was applied last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Which host of it this is.
    pub host: HostName,
    /// The plan.
    pub plan: Plan,
}

impl Applied {
    /// Its document, for a plan read from `plan`. Not part of what the library offers: public for the
    /// benchmarks.
    #[doc(hidden)]
    pub fn document(host: &HostName, plan: &[u8]) -> Vec<u8> {
        let begins = Applied::begins(host);
        [begins.as_bytes(), plan.trim_ascii(), APPLIED_ENDS].concat()
    }

    /// Whether a document is that of this plan document, as its host `host`. The plan is in it to the byte, so
    /// it need not be read.
    #[doc(hidden)]
    pub fn is_of(document: &[u8], host: &HostName, plan: &[u8]) -> bool {
        let rest = document.strip_prefix(Applied::begins(host).as_bytes());
        rest.and_then(|rest| rest.strip_suffix(APPLIED_ENDS)) == Some(plan.trim_ascii())
    }

    /// What comes before the plan.
    fn begins(host: &HostName) -> String {
        let text = pretty(&AppliedBeginning {
            schema: APPLIED_SCHEMA,
            host,
        });
        // Without the end of the object.
        let text = text.trim_end().trim_end_matches('}').trim_end();
        format!("{text},\n  \"plan\": ")
    }
}

/// What comes behind the plan.
const APPLIED_ENDS: &[u8] = b"\n}\n";

#[derive(Serialize)]
struct AppliedBeginning<'a> {
    schema: &'static str,
    host: &'a HostName,
}

#[derive(Serialize)]
struct JournalDocument<'a> {
    schema: &'static str,
    /// The host, as the plan calls it.
    host: &'a HostName,
    /// SHA-256 of the plan that is being applied.
    plan_sha256: &'a str,
    /// What was done and what was about to be, in order.
    steps: &'a [Step],
}

#[derive(Serialize)]
struct DroppedDocument<'a> {
    schema: &'static str,
    ports: &'a BTreeMap<NetdevName, u64>,
}

#[derive(Serialize)]
struct ReinitDocument<'a> {
    schema: &'static str,
    #[serde(flatten)]
    underway: &'a Underway,
}

/// Most objects of the mesh that go with one port: rules, routes and the like of a plan are far fewer.
const MOST_OBJECTS: usize = 4096;

fn underway(name: &str, bytes: &[u8]) -> Result<Underway, DocumentError> {
    let value = parse(name, bytes)?;
    let root = At::root(name, &value);
    root.need("schema")?.exactly(REINIT_SCHEMA)?;
    let text = |at: At| at.text().map(str::to_owned);
    Ok(Underway {
        netdev: root.need("netdev")?.name()?,
        rdma: root.need("rdma")?.name()?,
        pci: root.need("pci")?.name()?,
        reload_count: root.need("reload_count")?.integer(0, u32::MAX.into())?,
        index: root.need("index")?.integer(0, u32::MAX.into())?,
        up: root.need("up")?.bool()?,
        mtu: given(&root, "mtu", |at| at.integer(0, u32::MAX.into()))?,
        addresses: root
            .need("addresses")?
            .items(MOST_OBJECTS)?
            .map(|at| at.name())
            .collect::<Result<_, _>>()?,
        active: root.need("active")?.bool()?,
        gid: given(&root, "gid", |at| at.name())?,
        offload: given(&root, "offload", |at| at.bool())?,
        steering: given(&root, "steering", |at| at.name())?,
        objects: root
            .need("objects")?
            .items(MOST_OBJECTS)?
            .map(text)
            .collect::<Result<_, _>>()?,
    })
}

/// The value of a key, or nothing when it is `null`.
fn given<T>(
    root: &At,
    key: &str,
    read: impl FnOnce(&At) -> Result<T, DocumentError>,
) -> Result<Option<T>, DocumentError> {
    let at = root.need(key)?;
    if at.is_null() {
        Ok(None)
    } else {
        read(&at).map(Some)
    }
}

impl State {
    /// Opens the folder; `None` when there is none.
    pub fn open() -> Result<Option<State>, Error> {
        State::open_at(Path::new(DIRECTORY), ROOT)
    }

    /// Opens the folder, and makes it first when there is none.
    pub fn create() -> Result<State, Error> {
        State::create_at(Path::new(DIRECTORY), ROOT)
    }

    fn open_at(path: &Path, owner: u32) -> Result<Option<State>, Error> {
        let failed = |e: Errno| Error::Io {
            path: path.to_owned(),
            source: e.into(),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let stat = fstat(&folder).map_err(failed)?;
        if stat.st_uid != owner || stat.st_mode & 0o022 != 0 {
            return Err(Error::NotOurs {
                path: path.to_owned(),
                uid: stat.st_uid,
                mode: stat.st_mode & 0o7777,
            });
        }
        Ok(Some(State {
            path: path.to_owned(),
            folder,
        }))
    }

    fn create_at(path: &Path, owner: u32) -> Result<State, Error> {
        if let Some(state) = State::open_at(path, owner)? {
            return Ok(state);
        }
        match mkdirat(rustix::fs::CWD, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => {
                return Err(Error::Io {
                    path: path.to_owned(),
                    source: e.into(),
                });
            }
        }
        State::open_at(path, owner)?.ok_or_else(|| Error::Io {
            path: path.to_owned(),
            source: io::ErrorKind::NotFound.into(),
        })
    }

    fn failed(&self, name: &str) -> impl Fn(io::Error) -> Error {
        let path = self.path.join(name);
        move |source| Error::Io {
            path: path.clone(),
            source,
        }
    }

    /// Takes the right to change this host, and waits for it until `deadline`.
    pub fn lock(&self, deadline: Instant) -> Result<Lock, Error> {
        Lock::take(&self.folder, LOCK, deadline).map_err(|error| match error {
            lock::Error::Busy(pid) => Error::Busy { pid },
            lock::Error::Io(e) => self.failed(LOCK)(e),
        })
    }

    /// Gives the right back. Where nothing is remembered, the folder goes too.
    pub fn leave(self, lock: Lock) {
        if statat(&self.folder, APPLIED, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return drop(lock);
        }
        lock.give_back(&self.folder, LOCK);
        let _ = rustix::fs::rmdir(&self.path);
    }

    /// Removes everything that is remembered, and the folder: for good, once nothing is left to remember.
    pub fn forget_all(self, lock: Lock) -> Result<(), Error> {
        let failed = self.failed("");
        let entries = rustix::fs::Dir::read_from(&self.folder).map_err(|e| failed(e.into()))?;
        for entry in entries {
            let entry = entry.map_err(|e| failed(e.into()))?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                unlinkat(&self.folder, name, AtFlags::empty())
                    .map_err(|e| self.failed(&name.to_string_lossy())(e.into()))?;
            }
        }
        rustix::fs::rmdir(&self.path).map_err(|e| failed(e.into()))?;
        drop(lock);
        Ok(())
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let failed = self.failed(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.folder, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(failed(e.into())),
        };
        let bytes = crate::files::read_whole(file, LARGEST).map_err(failed)?;
        Ok(Some(bytes))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let failed = self.failed(name);
        let staging = format!(".{name}.new");
        let write = || -> io::Result<()> {
            let flags = OFlags::WRONLY
                | OFlags::CREATE
                | OFlags::TRUNC
                | OFlags::NOFOLLOW
                | OFlags::CLOEXEC;
            let file = openat(&self.folder, &staging, flags, Mode::RUSR | Mode::WUSR)?;
            let mut file = File::from(file);
            file.write_all(bytes)?;
            file.sync_all()?;
            renameat(&self.folder, &staging, &self.folder, name)?;
            rustix::fs::fsync(&self.folder)?;
            Ok(())
        };
        write().map_err(failed)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        match unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(self.failed(name)(e.into())),
        }
    }

    /// Ports whose `clsact` discipline is recorded as ours.
    pub fn recorded_clsacts(&self) -> Result<BTreeSet<NetdevName>, Error> {
        let failed = self.failed("");
        let entries = rustix::fs::Dir::read_from(&self.folder).map_err(|e| failed(e.into()))?;
        let mut ports = BTreeSet::new();
        for entry in entries {
            let entry = entry.map_err(|e| failed(e.into()))?;
            let name = entry.file_name().to_str().ok();
            // Names that are none of a port are not ours.
            if let Some(port) = name.and_then(|name| name.strip_prefix(CLSACT)) {
                ports.extend(port.parse::<NetdevName>());
            }
        }
        Ok(ports)
    }

    /// Records that the `clsact` discipline of `port` is ours.
    pub fn record_clsact(&self, port: &NetdevName) -> Result<(), Error> {
        self.write(&format!("{CLSACT}{port}"), b"")
    }

    /// Removes that record.
    pub fn forget_clsact(&self, port: &NetdevName) -> Result<(), Error> {
        self.remove(&format!("{CLSACT}{port}"))
    }

    /// Writes down what is underway on a port whose driver is about to be re-initialised; `None`: that
    /// nothing is any more.
    pub fn note_underway(&self, underway: Option<&Underway>) -> Result<(), Error> {
        match underway {
            Some(underway) => {
                let document = ReinitDocument {
                    schema: REINIT_SCHEMA,
                    underway,
                };
                self.write(REINIT, pretty(&document).as_bytes())
            }
            None => self.remove(REINIT),
        }
    }

    /// What a run that re-initialised a driver left unfinished.
    pub fn underway(&self) -> Result<Option<Underway>, Error> {
        let Some(bytes) = self.read(REINIT)? else {
            return Ok(None);
        };
        let name = self.path.join(REINIT).display().to_string();
        Ok(Some(underway(&name, &bytes)?))
    }

    /// Where what is underway is written down.
    pub fn underway_path(&self) -> PathBuf {
        self.path.join(REINIT)
    }

    /// Records which value of a parameter of the hairpin queues is set; `None` removes the record.
    pub fn record_hairpin(
        &self,
        parameter: HairpinParameter,
        pci: PciAddress,
        hairpin: Option<&HairpinRecord>,
    ) -> Result<(), Error> {
        let name = record::file_name(parameter, pci);
        match hairpin {
            Some(hairpin) => self.write(&name, record::document(parameter, hairpin).as_bytes()),
            None => self.remove(&name),
        }
    }

    /// Writes the journal.
    pub fn write_journal(
        &self,
        host: &HostName,
        plan_sha256: &str,
        steps: &[Step],
    ) -> Result<(), Error> {
        let document = JournalDocument {
            schema: JOURNAL_SCHEMA,
            host,
            plan_sha256,
            steps,
        };
        self.write(JOURNAL, pretty(&document).as_bytes())
    }

    /// Removes the journal.
    pub fn remove_journal(&self) -> Result<(), Error> {
        self.remove(JOURNAL)
    }

    /// Where the journal is.
    pub fn journal_path(&self) -> PathBuf {
        self.path.join(JOURNAL)
    }

    /// Whether a run has left its journal: it was killed, or could not take back what it had done.
    pub fn has_journal(&self) -> bool {
        statat(&self.folder, JOURNAL, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// The plan that was applied last; `None` when none is.
    pub fn applied(&self) -> Result<Option<Applied>, Error> {
        let Some(bytes) = self.read(APPLIED)? else {
            return Ok(None);
        };
        let name = self.path.join(APPLIED).display().to_string();
        let value = parse(&name, &bytes)?;
        let root = At::root(&name, &value);
        root.need("schema")?.exactly(APPLIED_SCHEMA)?;
        let plan = root.need("plan")?;
        Ok(Some(Applied {
            host: root.need("host")?.name()?,
            plan: Plan::from_json(&name, pretty(plan.value()).as_bytes())?,
        }))
    }

    /// Whether what was written down last is this plan document, as its host `host`. That is so at most
    /// starts, and takes a small part of the time in which a plan is read.
    pub fn is_applied(&self, host: &HostName, plan: &[u8]) -> Result<bool, Error> {
        let document = self.read(APPLIED)?;
        Ok(document.is_some_and(|document| Applied::is_of(&document, host, plan)))
    }

    /// Writes down that the plan of this document is applied, as its host `host`.
    pub fn write_applied(&self, host: &HostName, plan: &[u8]) -> Result<(), Error> {
        self.write(APPLIED, &Applied::document(host, plan))
    }

    /// Removes what says which plan is applied, and what goes with it.
    pub fn remove_applied(&self) -> Result<(), Error> {
        self.remove(APPLIED)?;
        self.remove(DROPPED)
    }

    /// Writes down how many packets the kernel had dropped at each port when the rules were made.
    pub fn write_dropped(&self, ports: &BTreeMap<NetdevName, u64>) -> Result<(), Error> {
        let document = DroppedDocument {
            schema: DROPPED_SCHEMA,
            ports,
        };
        self.write(DROPPED, pretty(&document).as_bytes())
    }

    /// How many packets the kernel had dropped at each port when `up` had made its rules; empty where it
    /// was not `up`.
    pub fn dropped(&self) -> Result<BTreeMap<NetdevName, u64>, Error> {
        let Some(bytes) = self.read(DROPPED)? else {
            return Ok(BTreeMap::new());
        };
        let name = self.path.join(DROPPED).display().to_string();
        let value = parse(&name, &bytes)?;
        let root = At::root(&name, &value);
        root.need("schema")?.exactly(DROPPED_SCHEMA)?;
        let mut ports = BTreeMap::new();
        for (port, count) in root.need("ports")?.entries()? {
            let name = port.parse().map_err(|e| count.error(format!("{e}")))?;
            ports.insert(name, count.integer(0, u64::MAX.into())?);
        }
        Ok(ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_state() -> (tempfile::TempDir, State) {
        let folder = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let state = State::create_at(&folder.path().join("state"), uid).unwrap();
        (folder, state)
    }

    fn port() -> NetdevName {
        "enp1s0f0np0".parse().unwrap()
    }

    #[test]
    fn a_folder_that_others_may_write_is_not_believed() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let path = folder.path().join("state");
        assert!(State::open_at(&path, uid).unwrap().is_none());
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(
            State::open_at(&path, uid),
            Err(Error::NotOurs { .. })
        ));
        std::fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("/", &path).unwrap();
        assert!(matches!(
            State::create_at(&path, uid),
            Err(Error::Io { .. })
        ));
    }

    #[test]
    fn records_of_clsact_are_the_files_that_the_scripts_write() {
        let (folder, state) = own_state();
        assert!(state.recorded_clsacts().unwrap().is_empty());
        state.record_clsact(&port()).unwrap();
        assert!(folder.path().join("state/clsact-enp1s0f0np0").exists());
        std::fs::write(folder.path().join("state/clsact-x y"), "").unwrap();
        assert_eq!(state.recorded_clsacts().unwrap(), BTreeSet::from([port()]));
        state.forget_clsact(&port()).unwrap();
        state.forget_clsact(&port()).unwrap();
        assert!(state.recorded_clsacts().unwrap().is_empty());
    }

    #[test]
    fn the_applied_plan_reads_back_and_a_damaged_one_is_an_error() {
        let (folder, state) = own_state();
        assert_eq!(state.applied().unwrap(), None);
        let bytes = include_bytes!("../../plans/tp-along-ring/ring-mesh/plan.json").to_vec();
        let plan = Plan::from_json("plan.json", &bytes).unwrap();
        let host: HostName = "spark2".parse().unwrap();
        let spark1 = "spark1".parse().unwrap();
        let other = include_bytes!("../../plans/tp-against-ring/ring-mesh/plan.json");
        assert!(!state.is_applied(&host, &bytes).unwrap());
        state.write_applied(&host, &bytes).unwrap();
        assert!(state.is_applied(&host, &bytes).unwrap());
        assert!(!state.is_applied(&spark1, &bytes).unwrap());
        assert!(!state.is_applied(&host, other).unwrap());
        // Another writer's spelling of the same plan is read and compared.
        let compact = serde_json::to_vec(&plan).unwrap();
        assert!(!state.is_applied(&host, &compact).unwrap());
        let applied = state.applied().unwrap().unwrap();
        assert_eq!((&applied.host, &applied.plan), (&host, &plan));
        state.write_applied(&host, &compact).unwrap();
        assert_eq!(state.applied().unwrap(), Some(Applied { host, plan }));
        let ports = BTreeMap::from([(port(), 7)]);
        assert_eq!(state.dropped().unwrap(), BTreeMap::new());
        state.write_dropped(&ports).unwrap();
        assert_eq!(state.dropped().unwrap(), ports);
        std::fs::write(folder.path().join("state/applied.json"), "{").unwrap();
        assert!(matches!(state.applied(), Err(Error::Document(_))));
        state.remove_applied().unwrap();
        assert_eq!(state.applied().unwrap(), None);
    }

    #[test]
    fn what_is_underway_reads_back_and_a_damaged_note_is_an_error() {
        let (folder, state) = own_state();
        assert_eq!(state.underway().unwrap(), None);
        let mut underway = Underway {
            netdev: port(),
            rdma: "rocep1s0f0".parse().unwrap(),
            pci: "0000:01:00.0".parse().unwrap(),
            reload_count: 3,
            index: 12,
            up: true,
            mtu: Some(9000),
            addresses: vec!["10.10.0.10/24".parse().unwrap()],
            active: true,
            gid: Some(crate::names::Gid::ipv4_mapped([10, 10, 0, 10].into())),
            offload: Some(true),
            steering: Some("hmfs".into()),
            objects: vec!["enp1s0f0np0 rule 49152".into()],
        };
        state.note_underway(Some(&underway)).unwrap();
        assert_eq!(state.underway().unwrap().as_ref(), Some(&underway));
        (underway.gid, underway.mtu, underway.steering) = (None, None, None);
        underway.offload = None;
        state.note_underway(Some(&underway)).unwrap();
        assert_eq!(state.underway().unwrap(), Some(underway));
        std::fs::write(folder.path().join("state/reinit.json"), "{}").unwrap();
        assert!(matches!(state.underway(), Err(Error::Document(_))));
        state.note_underway(None).unwrap();
        assert_eq!(state.underway().unwrap(), None);
    }

    proptest::proptest! {
        #[test]
        fn no_change_to_a_note_makes_its_reader_panic(at: proptest::sample::Index, byte: u8, cut: bool) {
            let mut note = br#"{"schema": "hairpin-mesh.reinit/v1", "netdev": "enp1s0f0np0", "rdma": "rocep1s0f0",
                "pci": "0000:01:00.0", "reload_count": 3, "index": 12, "up": true, "mtu": 9000,
                "addresses": ["10.10.0.10/24"], "active": true, "gid": null, "offload": true,
                "steering": "hmfs", "objects": ["enp1s0f0np0 clsact"]}"#.to_vec();
            proptest::prop_assert!(underway("note", &note).is_ok());
            let at = at.index(note.len());
            note[at] = byte;
            if cut {
                note.truncate(at);
            }
            let _ = underway("note", &note);
        }
    }

    #[test]
    fn one_run_at_a_time_and_the_next_as_soon_as_it_has_ended() {
        let (folder, state) = own_state();
        let now = Instant::now();
        let lock = state.lock(now).unwrap();
        // flock counts for each opening of the file, in one process too.
        match state.lock(now) {
            Err(Error::Busy { pid }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(lock);
        let lock = state.lock(now).unwrap();
        let path = folder.path().join("state");
        state.leave(lock);
        assert!(!path.exists());
    }
}
