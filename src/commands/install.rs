//! `install`: this program, its units and a plan on this host.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::host::{Signals, refuse_another, share};
use super::{Exit, Trouble};
use crate::cli::InstallArgs;
use crate::finding::Finding;
use crate::install::transaction::{Did, Outcome, Refusal, Root, own_program};
use crate::install::{self, MARKER_UNITS, MESH_UNIT, PROGRAM, START_LIMIT};
use crate::json::{LARGEST_DOCUMENT, pretty};
use crate::kernel::process::Process;
use crate::kernel::systemd::{self, RELOAD_PATIENCE, Systemd};
use crate::mesh::condition::{identity, owners};
use crate::names::{HostName, RdmaName};
use crate::node::identity::{INSTALLED_PLAN, PlanDocument, is_root, own_name, read_plan, sha256};
use crate::node::platform::INTERRUPTED;
use crate::node::read::{Sources, Subject};
use crate::output;
use crate::plan::mesh::MARKER_UNIT;

/// How long a marker's unit may take to start anew: twice what its unit file allows, to stop and to start.
const MARKER_LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// Everything was there.
    InSync,
    /// Everything is in place.
    Installed,
    /// Something of others is in its place, or queue pairs are open; nothing was done.
    Refused,
    /// It failed; the host is as it was.
    Restored,
    /// It failed; the host is not as it was.
    NotRestored,
    /// Everything is in place, and what was to be started did not start.
    NotStarted,
    /// There could be no verdict.
    Trouble,
}

/// A file of the installation.
#[derive(Debug, Serialize)]
struct FileReport {
    path: String,
    did: Did,
}

/// A marker that goes on as it is.
#[derive(Debug, Serialize)]
struct Kept {
    device: String,
    /// The program that it runs.
    program: String,
    pid: u32,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    verdict: Verdict,
    /// The version of the program that is installed.
    version: &'static str,
    program_sha256: Option<&'a str>,
    plan_sha256: Option<&'a str>,
    /// What the plan calls this host.
    host: Option<&'a HostName>,
    /// What became of each file.
    files: &'a [FileReport],
    /// Whether the mesh starts at boot, as systemd calls it; `null` where systemd does not run.
    mesh_unit: Option<&'a str>,
    /// Markers that go on with an earlier program.
    kept_markers: &'a [Kept],
    /// Markers that were started anew.
    restarted_markers: &'a [String],
    findings: &'a [Finding],
    /// What failed, a line each.
    failures: &'a [String],
    /// What could not be put back, a line each.
    differs: &'a [String],
    /// Why there could be no verdict (exit 2), a line each.
    trouble: Vec<String>,
}

/// The report's name and version.
pub(super) const REPORT: &str = "hairpin-mesh.install-report/v1";

pub(super) fn run(args: InstallArgs) -> Result<Exit, Trouble> {
    let mut install = Install::default();
    match install.run(&args) {
        Ok((verdict, exit)) => {
            install.say(&args, verdict)?;
            Ok(exit)
        }
        Err(trouble) => {
            if args.json {
                let lines = trouble.lines();
                output::result(&pretty(&install.report(Verdict::Trouble, lines)))?;
            }
            Err(trouble)
        }
    }
}

/// Refuses who is not root.
pub(super) fn need_root(what: &str) -> Result<(), Trouble> {
    if is_root() {
        return Ok(());
    }
    Err(Trouble::Usage(format!("must run as root: {what}")))
}

/// The host's systemd; none where there is none, which is told.
pub(super) fn systemd_here() -> Result<Option<Systemd>, Trouble> {
    match Systemd::open() {
        Ok(systemd) => Ok(Some(systemd)),
        Err(systemd::Error::NotRunning) => Ok(None),
        Err(error) => Err(Trouble::Usage(error.to_string())),
    }
}

pub(super) fn trouble(error: impl std::fmt::Display) -> Trouble {
    Trouble::Usage(error.to_string())
}

/// A marker's unit that has a process.
pub(super) struct Marker {
    pub(super) unit: String,
    pub(super) device: String,
    pub(super) pid: u32,
}

/// All markers of this host that run, or are about to, of this plan or another.
pub(super) fn markers(systemd: &mut Systemd) -> Result<Vec<Marker>, systemd::Error> {
    let units = systemd.matching(MARKER_UNITS)?;
    let states = systemd.states(&units)?;
    let active = units
        .into_iter()
        .zip(states)
        .filter(|(_, state)| !matches!(state.active.as_str(), "inactive" | "failed"));
    Ok(active
        .map(|(unit, state)| Marker {
            device: unit
                .strip_prefix(MARKER_UNIT)
                .and_then(|rest| rest.strip_suffix(".service"))
                .unwrap_or(&unit)
                .to_owned(),
            pid: state.main_pid,
            unit,
        })
        .collect())
}

/// Whose queue pairs are open on the devices of markers.
pub(super) fn owners_on(host: &HostName, markers: &[Marker]) -> Vec<Finding> {
    let devices: Vec<RdmaName> = markers
        .iter()
        .filter_map(|marker| marker.device.parse().ok())
        .collect();
    owners(
        host,
        &Sources::default().open_queue_pairs_on(&devices),
        "--force",
    )
}

/// What this host calls itself.
pub(super) fn this_host() -> Result<HostName, Trouble> {
    let name = crate::kernel::sysfs::text("/proc/sys/kernel/hostname").map_err(trouble)?;
    name.as_str()
        .parse()
        .map_err(|error| Trouble::Usage(format!("this host's name {error}")))
}

/// A run, and what there is to tell of it.
#[derive(Default)]
struct Install {
    program_sha256: Option<String>,
    plan_sha256: Option<String>,
    host: Option<HostName>,
    files: Vec<FileReport>,
    mesh_unit: Option<String>,
    kept: Vec<Kept>,
    restarted: Vec<String>,
    findings: Vec<Finding>,
    failures: Vec<String>,
    differs: Vec<String>,
}

impl Install {
    fn run(&mut self, args: &InstallArgs) -> Result<(Verdict, Exit), Trouble> {
        need_root("it writes below /opt, /etc and /usr/local")?;
        let program = own_program()?;
        let sum = sha256(&program);
        matches_sum("this program", &sum, args.program_sha256.as_deref())?;
        self.program_sha256 = Some(sum);
        let plan = self.plan(args)?;
        let mut root = Root::host()?;
        let mut units = plan.is_some();
        for path in install::unit_paths() {
            units |= std::fs::symlink_metadata(path).is_ok();
        }
        if args.enable && plan.is_none() && root.read(INSTALLED_PLAN)?.is_none() {
            return Err(Trouble::Usage(format!(
                "--enable needs a plan: none is given, and {INSTALLED_PLAN} is not there"
            )));
        }
        let mut systemd = systemd_here()?;
        if systemd.is_none() && (args.enable || args.choices.restart) {
            return Err(trouble(systemd::Error::NotRunning));
        }
        if let (Some(systemd), true) = (&mut systemd, args.choices.restart) {
            let running = markers(systemd).map_err(trouble)?;
            let host = self.host.clone().map_or_else(this_host, Ok)?;
            let owners = owners_on(&host, &running);
            if !owners.is_empty() && !args.choices.force {
                self.findings = owners;
                return Ok((Verdict::Refused, Exit::No));
            }
            for owner in owners {
                output::warning(&format!("{owner}: going on, as told"));
            }
        }
        let parts = install::Parts {
            program,
            units: units || args.enable,
            plan: plan
                .as_ref()
                .map(|(document, host)| (document.bytes.as_slice(), host.as_str())),
        };
        // Not before: until then a signal ends the process, and nothing was changed.
        let signals = Signals::heed()?;
        let came = signals.came();
        root.end_on(Arc::clone(&came));
        let verdict = self.put(&root, &parts, args.choices.replace, &mut systemd)?;
        let exit = match verdict {
            Verdict::InSync | Verdict::Installed => Exit::Yes,
            Verdict::Refused => Exit::No,
            Verdict::Restored => Exit::Restored,
            Verdict::NotRestored => Exit::NotRestored,
            Verdict::NotStarted | Verdict::Trouble => Exit::Trouble,
        };
        // What starts now may take its time, and asks nothing of what was written.
        drop(root);
        drop(signals);
        if exit == Exit::Yes && came.load(Ordering::Relaxed) {
            let why = format!("{INTERRUPTED} when everything was in place; nothing was started");
            self.failures.push(why);
            return Ok((Verdict::NotStarted, Exit::Trouble));
        }
        match &mut systemd {
            Some(systemd) if exit == Exit::Yes => self.start(args, systemd, verdict),
            _ => Ok((verdict, exit)),
        }
    }

    /// The plan that is given, and what it calls this host: only one whose ports this host has.
    fn plan(&mut self, args: &InstallArgs) -> Result<Option<(PlanDocument, HostName)>, Trouble> {
        let Some(path) = &args.plan else {
            return Ok(None);
        };
        let document = if path == Path::new("-") {
            let mut bytes = Vec::new();
            std::io::stdin()
                .lock()
                .take(LARGEST_DOCUMENT + 1)
                .read_to_end(&mut bytes)?;
            // Before anything is made of it: half a document is told as that.
            matches_sum("the plan", &sha256(&bytes), args.plan_sha256.as_deref())?;
            PlanDocument::read("standard input", bytes)?
        } else {
            read_plan(path)?
        };
        let sum = document.sha256();
        matches_sum("the plan", &sum, args.plan_sha256.as_deref())?;
        self.plan_sha256 = Some(sum);
        let plan = &document.plan;
        let host = own_name(plan, args.host.as_ref())?;
        let host_plan = share(plan, &host)?;
        let mut subject = Subject::default();
        subject.add(&host_plan, plan.gid_index);
        let present = Sources::default().read(&subject, Default::default());
        refuse_another(identity(&host_plan, &present), &host)?;
        self.host = Some(host.clone());
        Ok(Some((document, host)))
    }

    /// Puts the files in place; systemd has read the units when it is done.
    fn put(
        &mut self,
        root: &Root,
        parts: &install::Parts,
        foreign: bool,
        systemd: &mut Option<Systemd>,
    ) -> Result<Verdict, Trouble> {
        let items = install::files(parts);
        let mut settle = || match systemd {
            Some(systemd) if parts.units => systemd
                .reload(Instant::now() + RELOAD_PATIENCE)
                .map_err(|e| e.to_string()),
            _ => Ok(()),
        };
        Ok(match root.apply(&items, foreign, &mut settle) {
            Err(Refusal::InTheWay(what)) => {
                let finding = |error: &crate::files::FileError| {
                    Finding::problem("in-the-way", error.what.clone(), "what is installed")
                        .at(error.path.display())
                        .advise("move it away, or --replace for a unit of another installation")
                };
                self.findings = what.iter().map(finding).collect();
                Verdict::Refused
            }
            Err(Refusal::File(error)) => return Err(error.into()),
            Ok(Outcome::Done { did, left }) => {
                for line in left {
                    output::warning(&format!("{line}; it can be removed"));
                }
                let changed = did.iter().any(|did| *did != Did::Kept);
                self.files = items
                    .into_iter()
                    .zip(did)
                    .map(|(item, did)| FileReport {
                        path: item.path,
                        did,
                    })
                    .collect();
                match changed {
                    true => Verdict::Installed,
                    false => Verdict::InSync,
                }
            }
            Ok(Outcome::Restored { why }) => {
                self.failures.push(why);
                Verdict::Restored
            }
            Ok(Outcome::NotRestored { why, differs }) => {
                self.failures.push(why);
                self.differs = differs;
                Verdict::NotRestored
            }
        })
    }

    /// What is started now: markers anew and the mesh, each only as told. Says which markers go on.
    fn start(
        &mut self,
        args: &InstallArgs,
        systemd: &mut Systemd,
        verdict: Verdict,
    ) -> Result<(Verdict, Exit), Trouble> {
        for marker in markers(systemd).map_err(trouble)? {
            let program = Process(marker.pid).program();
            if program.as_deref() == Some(PROGRAM) {
                continue;
            }
            if args.choices.restart {
                match systemd.restart(&marker.unit, Instant::now() + MARKER_LIMIT) {
                    Ok(()) => self.restarted.push(marker.device),
                    Err(error) => self.failures.push(format!("{}: {error}", marker.unit)),
                }
            } else {
                self.kept.push(Kept {
                    device: marker.device,
                    program: program.unwrap_or_else(|| "not observed".into()),
                    pid: marker.pid,
                });
            }
        }
        let mut exit = match self.failures.is_empty() {
            true => Exit::Yes,
            false => Exit::Trouble,
        };
        if args.enable {
            if let Err((why, code)) = enable(systemd) {
                self.failures.push(why);
                exit = code;
            }
        }
        // Where there is no unit there is nothing to tell.
        let state = systemd.unit_file_state(MESH_UNIT).map_err(trouble)?;
        self.mesh_unit = state.map(|state| state.as_str().to_owned());
        Ok(match exit {
            Exit::Yes => (verdict, exit),
            _ => (Verdict::NotStarted, exit),
        })
    }

    fn say(&self, args: &InstallArgs, verdict: Verdict) -> Result<(), Trouble> {
        output::findings(&self.findings);
        for line in &self.failures {
            output::failure(line);
        }
        for line in &self.differs {
            output::failure(&format!("not as it was: {line}"));
        }
        for kept in &self.kept {
            output::warning(&format!(
                "the marker of {} goes on as it is (process {}, {}): --restart starts it anew",
                kept.device, kept.pid, kept.program
            ));
        }
        if args.json {
            output::result(&pretty(&self.report(verdict, Vec::new())))?;
            return Ok(());
        }
        let mut text: String = self
            .files
            .iter()
            .map(|file| format!("ok    {} {}\n", file.path, file.did))
            .collect();
        for device in &self.restarted {
            text += &format!("ok    the marker of {device} started anew\n");
        }
        text += match verdict {
            Verdict::InSync => "nothing to install\n",
            Verdict::Installed => "installed\n",
            Verdict::Refused => "nothing was changed\n",
            Verdict::Restored => "failed; the host is as it was\n",
            Verdict::NotRestored => "failed, and the host is not as it was\n",
            Verdict::NotStarted => "installed, and not all of it was started\n",
            Verdict::Trouble => "",
        };
        if let Some(state) = &self.mesh_unit {
            text += &format!("{MESH_UNIT}: {state}\n");
        }
        output::result(&text)?;
        Ok(())
    }

    fn report(&self, verdict: Verdict, trouble: Vec<String>) -> Report<'_> {
        Report {
            schema: REPORT,
            verdict,
            version: env!("CARGO_PKG_VERSION"),
            program_sha256: self.program_sha256.as_deref(),
            plan_sha256: self.plan_sha256.as_deref(),
            host: self.host.as_ref(),
            files: &self.files,
            mesh_unit: self.mesh_unit.as_deref(),
            kept_markers: &self.kept,
            restarted_markers: &self.restarted,
            findings: &self.findings,
            failures: &self.failures,
            differs: &self.differs,
            trouble,
        }
    }
}

/// Has the mesh start at boot, and start now; where it is up, has it made right. The exit code of a start
/// that fails is that of `up`.
fn enable(systemd: &mut Systemd) -> Result<(), (String, Exit)> {
    let failed = |error: systemd::Error| (error.to_string(), Exit::Trouble);
    let units = [MESH_UNIT.to_owned()];
    systemd.enable(&units).map_err(failed)?;
    let states = systemd.states(&units).map_err(failed)?;
    let active = states.iter().any(|state| state.active.as_str() == "active");
    let deadline = Instant::now() + Duration::from_secs(START_LIMIT);
    let result = match active {
        true => systemd.reload_unit(MESH_UNIT, deadline),
        false => systemd.start(MESH_UNIT, deadline),
    };
    result.map_err(|error| {
        let code = match (&error, systemd.exit_status(MESH_UNIT)) {
            (systemd::Error::Job { .. }, Ok(1)) => Exit::No,
            (systemd::Error::Job { .. }, Ok(3)) => Exit::Restored,
            (systemd::Error::Job { .. }, Ok(4)) => Exit::NotRestored,
            (systemd::Error::Job { .. }, Ok(75)) => Exit::NotReady,
            _ => Exit::Trouble,
        };
        let why = format!("{error}; what it said: journalctl -u {MESH_UNIT} -n 20");
        (why, code)
    })
}

fn matches_sum(what: &str, found: &str, wanted: Option<&str>) -> Result<(), Trouble> {
    match wanted {
        Some(wanted) if wanted != found => Err(Trouble::Usage(format!(
            "{what} has SHA-256 {found}, {wanted} wanted; nothing was changed"
        ))),
        _ => Ok(()),
    }
}
