//! Which plan is applied, and which of its hosts this is.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::files::{self, FileError, Links};
use crate::json::DocumentError;
use crate::kernel::sysfs;
use crate::names::HostName;
use crate::plan::Plan;

/// Where `deploy` puts the plan of a host.
pub const INSTALLED_PLAN: &str = "/etc/dsv41-mesh/plan.json";
/// Where `deploy` writes what the plan calls this host.
pub const HOST_FILE: &str = "/etc/dsv41-mesh/host";

/// Why there is no plan for this host.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No plan is named, and none is installed.
    #[error(
        "{INSTALLED_PLAN}: there is none, an installed plan wanted: `hairpin-mesh deploy` installs one, --plan FILE names another"
    )]
    NotInstalled,
    /// A file cannot be read, or is not root's alone.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is not a plan.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The host of that name is not in the plan.
    #[error("{source_of_name}: the plan has no host {name}, one of {} wanted", .hosts.join(", "))]
    UnknownHost {
        /// What named the host: an option, a file, the host name.
        source_of_name: String,
        /// The name.
        name: String,
        /// The hosts of the plan.
        hosts: Vec<String>,
    },
    /// The file with the host's name does not hold one.
    #[error("{path}: {what}")]
    HostFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// A plan with what it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanDocument {
    /// The plan.
    pub plan: Plan,
    /// The document.
    pub bytes: Vec<u8>,
}

impl PlanDocument {
    /// Reads a plan document; `name` is what errors call it.
    pub fn read(name: &str, bytes: Vec<u8>) -> Result<PlanDocument, DocumentError> {
        Ok(PlanDocument {
            plan: Plan::from_json(name, &bytes)?,
            bytes,
        })
    }

    /// SHA-256 of the document, in hex.
    pub fn sha256(&self) -> String {
        sha256(&self.bytes)
    }
}

/// SHA-256 in hex.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Whether this process is root's.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The file at `path`; for root only when nobody but root can have written it.
pub fn read_file(path: &Path) -> Result<Vec<u8>, FileError> {
    if is_root() {
        files::read_trusted(path)
    } else {
        files::read_document(path, Links::Refuse)
    }
}

/// Whether anything is there, readable or not. (Looked at, not opened: it may be a pipe.)
fn is_there(path: &Path) -> bool {
    !matches!(rustix::fs::lstat(path), Err(rustix::io::Errno::NOENT))
}

/// The plan at `path`.
pub fn read_plan(path: &Path) -> Result<PlanDocument, Error> {
    read_plan_by(path, Path::new(INSTALLED_PLAN))
}

fn read_plan_by(path: &Path, installed: &Path) -> Result<PlanDocument, Error> {
    if path == installed && !is_there(path) {
        return Err(Error::NotInstalled);
    }
    let bytes = read_file(path)?;
    Ok(PlanDocument::read(&path.display().to_string(), bytes)?)
}

/// What the plan calls this host: `given` (by `--host`), else what [`HOST_FILE`] says, else the host
/// name, whole or up to its first dot.
pub fn own_name(plan: &Plan, given: Option<&HostName>) -> Result<HostName, Error> {
    own_name_by(plan, given, Path::new(HOST_FILE))
}

fn own_name_by(plan: &Plan, given: Option<&HostName>, file: &Path) -> Result<HostName, Error> {
    let unknown = |source_of_name: &str, name: &str| Error::UnknownHost {
        source_of_name: source_of_name.to_owned(),
        name: name.to_owned(),
        hosts: plan.hosts.iter().map(HostName::to_string).collect(),
    };
    let find = |name: &str| {
        plan.hosts
            .iter()
            .find(|host| host.as_str() == name)
            .cloned()
    };
    if let Some(name) = given {
        return find(name.as_str()).ok_or_else(|| unknown("--host", name.as_str()));
    }
    // There is none on a host that was set up by hand.
    if is_there(file) {
        let bytes = read_file(file)?;
        let name: HostName = std::str::from_utf8(bytes.trim_ascii())
            .map_err(|_| "is not text".to_owned())
            .and_then(|text| text.parse().map_err(|e| format!("{e}")))
            .map_err(|what| Error::HostFile {
                path: file.to_owned(),
                what,
            })?;
        return find(name.as_str())
            .ok_or_else(|| unknown(&file.display().to_string(), name.as_str()));
    }
    let name = sysfs::text("/proc/sys/kernel/hostname")
        .map(|text| text.as_str().to_owned())
        .unwrap_or_default();
    let short = name.split('.').next().unwrap_or_default();
    find(&name)
        .or_else(|| find(short))
        .ok_or_else(|| unknown("this host's name (--host gives another)", &name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let bytes = include_bytes!("../../plans/tp-along-ring/ring-mesh/plan.json");
        Plan::from_json("plan.json", bytes).unwrap()
    }

    #[test]
    fn a_name_that_is_given_counts_before_the_file_and_the_file_before_the_host_name() {
        let folder = tempfile::tempdir_in("/root")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let file = folder.path().join("host");
        std::fs::write(&file, "spark3\n").unwrap();
        let given = "spark2".parse().unwrap();
        let named = |given, file: &Path| own_name_by(&plan(), given, file).map(|n| n.to_string());
        assert_eq!(named(Some(&given), &file).unwrap(), "spark2");
        // Read as root, the file must be root's with all its folders; else any will do.
        match named(None, &file) {
            Ok(name) => assert_eq!(name, "spark3"),
            Err(error) => assert!(is_root() && error.to_string().contains("root"), "{error}"),
        }
    }

    #[test]
    fn a_plan_that_is_not_installed_is_told_from_one_that_is_named_and_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let installed = folder.path().join("plan.json");
        let error = |path: &Path| read_plan_by(path, &installed).unwrap_err();
        assert!(matches!(error(&installed), Error::NotInstalled));
        let error = error(&folder.path().join("other.json"));
        assert!(matches!(error, Error::File(_)), "{error}");
    }

    #[test]
    fn a_host_that_the_plan_does_not_have_is_named_with_those_that_it_has() {
        let given = "spark9".parse().unwrap();
        let error = own_name_by(&plan(), Some(&given), Path::new("/nowhere")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--host: the plan has no host spark9, one of spark1, spark2, spark3, spark4 wanted"
        );
        let error = own_name_by(&plan(), None, Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().starts_with("this host's name"), "{error}");
    }

    #[test]
    fn a_sum_is_that_of_sha256sum() {
        // printf abc | sha256sum (FIPS 180-4, example B.1)
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
