//! Processes, from `/proc`.

use std::path::PathBuf;

use caps::CapSet;

use crate::kernel::sysfs::{self, Unread};
use crate::names::Text;

/// Ticks of process times in a second: `USER_HZ`, 100 on every architecture that Linux still has.
const USER_HZ: u64 = 100;

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process(pub u32);

impl Process {
    fn file(self, name: &str) -> PathBuf {
        sysfs::below("/proc", &[&self.0.to_string(), name])
    }

    /// All processes of this PID namespace that `/proc` shows.
    pub fn all() -> Result<Vec<Process>, Unread> {
        Ok(sysfs::names::<u32>("/proc")?
            .into_iter()
            .map(Process)
            .collect())
    }

    /// Whether `/proc` hides other users' processes from this one (mount option `hidepid`): then
    /// [`Process::all`] is not all. Process 1 is always there, and root's.
    pub fn others_are_hidden() -> bool {
        !sysfs::exists("/proc/1/stat")
    }

    /// The name that the kernel shows (`comm`).
    pub fn name(self) -> Result<Text, Unread> {
        sysfs::text(self.file("comm"))
    }

    /// The file that it runs; with ` (deleted)` behind it when that is not there any more, or is another by
    /// now (proc(5)). `None` when it cannot be read.
    pub fn program(self) -> Option<String> {
        let target = std::fs::read_link(self.file("exe")).ok()?;
        Some(
            Text::from_bytes(target.as_os_str().as_encoded_bytes())
                .as_str()
                .to_owned(),
        )
    }

    /// Its arguments; none for a kernel thread. A command line of more than a page is an error.
    pub fn arguments(self) -> Result<Vec<Vec<u8>>, Unread> {
        let bytes = sysfs::bytes(self.file("cmdline"))?;
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        Ok(if bytes.is_empty() {
            Vec::new()
        } else {
            bytes.split(|b| *b == 0).map(<[u8]>::to_vec).collect()
        })
    }

    /// When it started, seconds since boot.
    pub fn started(self) -> Result<u64, Unread> {
        let path = self.file("stat");
        let line = String::from_utf8_lossy(&sysfs::bytes(&path)?).into_owned();
        started(&line).ok_or_else(|| Unread {
            path: path.display().to_string(),
            why: "has no start time".into(),
            errno: None,
        })
    }

    /// The user that it runs as; `None` when it is not there (any more). root for one that hides its memory.
    pub fn user(self) -> Option<u32> {
        let folder = sysfs::below("/proc", &[&self.0.to_string()]);
        rustix::fs::stat(folder).ok().map(|stat| stat.st_uid)
    }

    /// The systemd unit that it runs in: the last part of its control group that ends in `.service`.
    pub fn unit(self) -> Result<Option<String>, Unread> {
        Ok(unit(&self.control_groups()?))
    }

    /// The same, where it is one of the system's: no user can put a process there.
    pub fn system_unit(self) -> Result<Option<String>, Unread> {
        Ok(system_unit(&self.control_groups()?))
    }

    fn control_groups(self) -> Result<String, Unread> {
        Ok(String::from_utf8_lossy(&sysfs::bytes(self.file("cgroup"))?).into_owned())
    }

    /// Whether it has no capability, and cannot take one (capget(2)); `false` where that is not known.
    pub fn has_no_capability(self) -> bool {
        i32::try_from(self.0).is_ok_and(|pid| {
            caps::read(Some(pid), CapSet::Permitted).is_ok_and(|all| all.is_empty())
        })
    }
}

impl Process {
    /// How much memory it may lock, bytes; `None` without a limit.
    pub fn memory_lock_limit(self) -> Result<Option<u64>, Unread> {
        let path = self.file("limits");
        let text = String::from_utf8_lossy(&sysfs::bytes(&path)?).into_owned();
        memory_lock_limit(&text).ok_or_else(|| Unread {
            path: path.display().to_string(),
            why: "has no limit of locked memory".into(),
            errno: None,
        })
    }

    /// Whether it may lock memory beyond that limit (`CAP_IPC_LOCK`).
    pub fn may_lock_memory(self) -> Result<bool, String> {
        let pid = i32::try_from(self.0).map_err(|e| e.to_string())?;
        caps::has_cap(Some(pid), CapSet::Effective, caps::Capability::CAP_IPC_LOCK)
            .map_err(|e| e.to_string())
    }
}

/// The soft limit of `Max locked memory` in `/proc/PID/limits` (proc(5)): bytes, or `unlimited`.
fn memory_lock_limit(limits: &str) -> Option<Option<u64>> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(None),
        bytes => bytes.parse().ok().map(Some),
    }
}

/// The unit of a path of the unified hierarchy below the slice of systemd's own services.
fn system_unit(cgroup: &str) -> Option<String> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    let unit = path.strip_prefix("/system.slice/")?.rsplit('/').next()?;
    unit.ends_with(".service").then(|| unit.to_owned())
}

/// Field 22 of `/proc/PID/stat` (proc(5)). Field 2, the name in parentheses, may hold spaces and
/// parentheses itself.
fn started(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let ticks: u64 = after_name
        .split_ascii_whitespace()
        .nth(22 - 3)?
        .parse()
        .ok()?;
    Some(ticks / USER_HZ)
}

/// Lines are `number:controllers:path` (cgroups(7)); the unified hierarchy is number 0.
fn unit(cgroup: &str) -> Option<String> {
    cgroup
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .flat_map(|path| path.split('/'))
        .rfind(|part| part.ends_with(".service"))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_locked_memory_is_the_soft_one() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
            Max locked memory         8388608              unlimited            bytes     \n";
        assert_eq!(memory_lock_limit(limits), Some(Some(8_388_608)));
        let limits = "Max locked memory         unlimited            unlimited            bytes\n";
        assert_eq!(memory_lock_limit(limits), Some(None));
        assert_eq!(memory_lock_limit("Max locked memory\n"), None);
        assert_eq!(memory_lock_limit(""), None);
    }

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 1 18446744073709551615";
        assert_eq!(started(stat), Some(123));
        assert_eq!(started("7 (x) S 1"), None);
        assert_eq!(started(""), None);
    }

    #[test]
    fn the_unit_is_the_innermost_service_of_either_hierarchy() {
        let unified = "0::/system.slice/system-dsv41\\x2dmesh\\x2dmarker.slice/dsv41-mesh-marker@rocep1s0f0.service\n";
        assert_eq!(
            unit(unified).as_deref(),
            Some("dsv41-mesh-marker@rocep1s0f0.service")
        );
        assert_eq!(
            unit("1:name=systemd:/system.slice/a.service\n0::/\n").as_deref(),
            Some("a.service")
        );
        assert_eq!(unit("0::/user.slice/session-1.scope\n"), None);
    }

    #[test]
    fn a_unit_of_the_system_is_below_its_slice_and_no_user_s() {
        let unit = "dsv41-mesh-marker@rocep1s0f0.service";
        let of = |path: &str| system_unit(&format!("0::{path}\n"));
        assert_eq!(
            of(&format!(
                "/system.slice/system-dsv41\\x2dmesh\\x2dmarker.slice/{unit}"
            ))
            .as_deref(),
            Some(unit)
        );
        for other in [
            format!("/user.slice/user-1000.slice/user@1000.service/app.slice/{unit}"),
            format!("/../system.slice/{unit}"),
            format!("/system.slice/{unit}/below"),
            "/system.slice".into(),
            "/".into(),
        ] {
            assert_eq!(of(&other), None, "{other}");
        }
        assert_eq!(
            system_unit("1:name=systemd:/system.slice/a.service\n"),
            None
        );
        assert_eq!(system_unit(""), None);
    }

    #[test]
    fn a_process_without_capabilities_is_told_from_one_with_some() {
        // Process 1 is root's; a user's process has none, this one is whoever runs the tests.
        assert!(!Process(1).has_no_capability());
        let own = caps::read(None, CapSet::Permitted).unwrap();
        let me = Process(std::process::id());
        assert_eq!(me.has_no_capability(), own.is_empty());
        assert!(!Process(u32::MAX).has_no_capability());
    }

    #[test]
    fn this_process_has_a_name_arguments_and_a_start() {
        let me = Process(std::process::id());
        assert!(!me.name().unwrap().as_str().is_empty());
        assert!(!me.arguments().unwrap().is_empty());
        let uptime = sysfs::table("/proc/uptime").unwrap();
        let now: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        assert!(me.started().unwrap() <= now as u64);
        assert!(Process::all().unwrap().contains(&me));
    }
}
