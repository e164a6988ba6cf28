//! Processes, from `/proc`.

use std::path::PathBuf;

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

    /// The systemd unit that it runs in: the last part of its control group that ends in `.service`.
    pub fn unit(self) -> Result<Option<String>, Unread> {
        Ok(unit(&String::from_utf8_lossy(&sysfs::bytes(
            self.file("cgroup"),
        )?)))
    }
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
