//! `uninstall`: the mesh taken down, and everything taken away that `install` put there.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::down::{self, Down, take_down};
use super::host::agreed;
use super::install::{Marker, markers, need_root, owners_on, systemd_here, this_host, trouble};
use super::{Exit, Trouble};
use crate::cli::{DownArgs, HostArgs, UninstallArgs};
use crate::finding::Finding;
use crate::install::transaction::{Did, Outcome, Refusal, Root};
use crate::install::{self, FOLDERS, MESH_UNIT};
use crate::json::pretty;
use crate::kernel::systemd::{RELOAD_PATIENCE, Systemd};
use crate::node::identity::INSTALLED_PLAN;
use crate::node::state::State;
use crate::output;

/// How long the mesh's unit may take to stop (its `TimeoutStopSec=`), and some.
const STOP_LIMIT: Duration = Duration::from_secs(200);
/// How long a marker's unit may take to stop: twice what its unit file allows.
const MARKER_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// Nothing of ours was there.
    InSync,
    /// Everything of ours is gone.
    Removed,
    /// Every file of ours is gone, and something in the place of a rule or route is not ours and was left; or
    /// the mesh could not be taken down, and is still there.
    Left,
    /// Queue pairs are open; nothing was done.
    Refused,
    /// The mesh could not be taken down, or files could not be removed; the files are as they were.
    Failed,
    /// Files could not be removed, and not all are as they were.
    NotRestored,
    /// There could be no verdict.
    Trouble,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    verdict: Verdict,
    /// What `down` reported; `null` where there was no plan to take down.
    down: Option<down::Report<'a>>,
    stopped_markers: &'a [String],
    removed: &'a [String],
    /// What is not this program's and stays, a line each.
    kept: &'a [String],
    findings: &'a [Finding],
    failures: &'a [String],
    trouble: Vec<String>,
}

const REPORT: &str = "hairpin-mesh.uninstall-report/v1";

pub(super) fn run(args: UninstallArgs) -> Result<Exit, Trouble> {
    let mut uninstall = Uninstall::default();
    match uninstall.run(&args) {
        Ok(verdict) => {
            uninstall.say(&args, verdict)?;
            Ok(match verdict {
                Verdict::InSync | Verdict::Removed => Exit::Yes,
                Verdict::Left | Verdict::Refused => Exit::No,
                Verdict::NotRestored => Exit::NotRestored,
                Verdict::Failed | Verdict::Trouble => Exit::Trouble,
            })
        }
        Err(trouble) => {
            if args.json {
                let lines = trouble.lines();
                output::result(&pretty(&uninstall.report(Verdict::Trouble, lines)))?;
            }
            Err(trouble)
        }
    }
}

/// A run, and what there is to tell of it.
#[derive(Default)]
struct Uninstall {
    down: Option<(Down, down::Verdict)>,
    stopped: Vec<String>,
    removed: Vec<String>,
    kept: Vec<String>,
    findings: Vec<Finding>,
    failures: Vec<String>,
    /// The mesh could not be taken down, and `--force` went on.
    not_taken_down: bool,
}

impl Uninstall {
    fn run(&mut self, args: &UninstallArgs) -> Result<Verdict, Trouble> {
        need_root("it takes the mesh down and removes files below /opt, /etc and /usr/local")?;
        let root = Root::host()?;
        let mut systemd = systemd_here()?;
        if let Some(verdict) = self.take_down(args, systemd.as_mut())? {
            return Ok(verdict);
        }
        if let Some(systemd) = &mut systemd {
            let units = [MESH_UNIT.to_owned()];
            if systemd
                .unit_file_state(MESH_UNIT)
                .map_err(trouble)?
                .is_some()
            {
                systemd
                    .stop(MESH_UNIT, Instant::now() + STOP_LIMIT)
                    .and_then(|()| systemd.forget_failure(MESH_UNIT))
                    .and_then(|()| systemd.disable(&units))
                    .map_err(trouble)?;
            }
            // Those of a plan that is not known any more.
            for marker in markers(systemd).map_err(trouble)? {
                systemd
                    .stop(&marker.unit, Instant::now() + MARKER_LIMIT)
                    .and_then(|()| systemd.forget_failure(&marker.unit))
                    .map_err(trouble)?;
                self.stopped.push(marker.device);
            }
        }
        self.remove(&root, &mut systemd)
    }

    /// Takes the mesh down; a verdict where it ends there.
    fn take_down(
        &mut self,
        args: &UninstallArgs,
        systemd: Option<&mut Systemd>,
    ) -> Result<Option<Verdict>, Trouble> {
        let applied = match State::open()?.map(|state| state.applied()) {
            Some(Ok(applied)) => applied.is_some(),
            Some(Err(error)) if !args.force => return Err(error.into()),
            Some(Err(error)) => {
                output::warning(&format!("{error}; going on, as told"));
                self.not_taken_down = true;
                false
            }
            None => false,
        };
        let planned = std::fs::symlink_metadata(INSTALLED_PLAN).is_ok();
        if !applied && !planned {
            // What runs without a plan is stopped as well, on the same condition.
            let running: Vec<Marker> = match systemd {
                Some(systemd) => markers(systemd).map_err(trouble)?,
                None => Vec::new(),
            };
            let owners = owners_on(&this_host()?, &running);
            if !running.is_empty() && !owners.is_empty() && !args.force {
                output::findings(&owners);
                if args.json || !agreed() {
                    self.findings = owners;
                    return Ok(Some(Verdict::Refused));
                }
            }
            return Ok(None);
        }
        let (down, verdict) = take_down(&DownArgs {
            on: HostArgs {
                plan: INSTALLED_PLAN.into(),
                host: None,
            },
            force: args.force,
            dry_run: false,
            json: args.json,
        });
        let verdict = match verdict {
            Ok(verdict) => verdict,
            Err(trouble) if args.force => {
                for line in trouble.lines() {
                    output::warning(&format!("{line}; going on, as told"));
                }
                self.not_taken_down = true;
                return Ok(None);
            }
            Err(trouble) => {
                output::note(
                    "nothing is uninstalled while the mesh cannot be taken down; --force goes on without",
                );
                return Err(trouble);
            }
        };
        self.down = Some((down, verdict));
        Ok(match verdict {
            down::Verdict::Refused => Some(Verdict::Refused),
            down::Verdict::Failed | down::Verdict::Trouble => Some(Verdict::Failed),
            _ => None,
        })
    }

    /// Removes the files, and what is remembered.
    fn remove(&mut self, root: &Root, systemd: &mut Option<Systemd>) -> Result<Verdict, Trouble> {
        // Before the first file goes: another run may be at work with them.
        let held = match State::open()? {
            Some(state) => {
                let lock = state.lock(Instant::now())?;
                Some((state, lock))
            }
            None => None,
        };
        let mut items = install::nothing();
        let mut settle = || match systemd {
            Some(systemd) => systemd
                .reload(Instant::now() + RELOAD_PATIENCE)
                .map_err(|e| e.to_string()),
            None => Ok(()),
        };
        let outcome = loop {
            match root.apply(&items, false, &mut settle) {
                Ok(outcome) => break outcome,
                Err(Refusal::File(error)) => return Err(error.into()),
                // Not ours: it stays, and is told.
                Err(Refusal::InTheWay(what)) => {
                    let path = |item: &str| what.iter().any(|e| e.path == Path::new(item));
                    items.retain(|item| !path(&item.path));
                    self.kept.extend(what.iter().map(|e| e.to_string()));
                }
            }
        };
        match outcome {
            Outcome::Done { did, left } => {
                let gone = items
                    .iter()
                    .zip(did)
                    .filter(|(_, did)| *did == Did::Removed);
                self.removed = gone.map(|(item, _)| item.path.clone()).collect();
                self.failures.extend(left);
            }
            Outcome::Restored { why } => {
                self.failures.push(why);
                return Ok(Verdict::Failed);
            }
            Outcome::NotRestored { why, differs } => {
                self.failures.push(why);
                let differs = differs.iter().map(|line| format!("not as it was: {line}"));
                self.failures.extend(differs);
                return Ok(Verdict::NotRestored);
            }
        }
        for folder in root.remove_empty(&FOLDERS)? {
            self.kept
                .push(format!("{folder}: holds files that are not this program's"));
        }
        for path in install::unit_paths() {
            let drop_ins = format!("{path}.d");
            if std::fs::symlink_metadata(&drop_ins).is_ok() {
                self.kept.push(format!("{drop_ins}: settings of this host"));
            }
        }
        for path in abandoned() {
            match std::fs::remove_dir_all(&path) {
                Ok(()) => self.removed.push(path.display().to_string()),
                Err(e) => self.failures.push(format!("{}: {e}", path.display())),
            }
        }
        if self.not_taken_down {
            // What is known of it is all there is to find it by.
            self.kept.push(
                "what the mesh has in the kernel, which could not be taken down (ip route show proto 141; tc \
                 filter show dev PORT ingress), and what is known of it in /run/dsv41-mesh"
                    .into(),
            );
        } else if let Some((state, lock)) = held {
            state.forget_all(lock)?;
        }
        let left = self.not_taken_down || matches!(&self.down, Some((_, down::Verdict::Left)));
        let nothing = self.removed.is_empty() && self.stopped.is_empty();
        Ok(if !self.failures.is_empty() {
            Verdict::Failed
        } else if left {
            Verdict::Left
        } else if nothing {
            Verdict::InSync
        } else {
            Verdict::Removed
        })
    }

    fn say(&self, args: &UninstallArgs, verdict: Verdict) -> Result<(), Trouble> {
        if let Some((down, verdict)) = self.down.as_ref().filter(|_| !args.json) {
            down.say(
                &DownArgs {
                    on: HostArgs {
                        plan: INSTALLED_PLAN.into(),
                        host: None,
                    },
                    force: args.force,
                    dry_run: false,
                    json: false,
                },
                *verdict,
            )?;
        }
        if args.json {
            output::findings(&self.findings);
        }
        for line in &self.failures {
            output::failure(line);
        }
        for line in &self.kept {
            output::warning(&format!("stays: {line}"));
        }
        if args.json {
            output::result(&pretty(&self.report(verdict, Vec::new())))?;
            return Ok(());
        }
        let mut text: String = self
            .stopped
            .iter()
            .map(|device| format!("ok    the marker of {device} stopped\n"))
            .collect();
        for path in &self.removed {
            text += &format!("ok    {path} removed\n");
        }
        text += match verdict {
            Verdict::InSync => "nothing to uninstall\n",
            Verdict::Removed | Verdict::Left => {
                "uninstalled; the hairpin queues keep their size until the next boot\n"
            }
            Verdict::Refused => "nothing was uninstalled\n",
            Verdict::Failed => "failed; not uninstalled\n",
            Verdict::NotRestored => "failed, and not everything is as it was\n",
            Verdict::Trouble => "",
        };
        output::result(&text)?;
        Ok(())
    }

    fn report(&self, verdict: Verdict, trouble: Vec<String>) -> Report<'_> {
        let down = self.down.as_ref();
        Report {
            schema: REPORT,
            verdict,
            down: down.map(|(down, verdict)| down.reported(*verdict, Vec::new())),
            stopped_markers: &self.stopped,
            removed: &self.removed,
            kept: &self.kept,
            findings: &self.findings,
            failures: &self.failures,
            trouble,
        }
    }
}

/// What a `deploy` left that was killed while root copied the program: see `deploy.rs`.
fn abandoned() -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(super::deploy::COPIES) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| {
            let name = entry.file_name();
            let ours = name.to_string_lossy().starts_with(super::deploy::COPY);
            let own = |m: std::fs::Metadata| m.is_dir() && m.uid() == 0;
            ours && entry.metadata().is_ok_and(own)
        })
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}
