//! `uninstall`: the mesh taken down, and everything taken away that `install` put there.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::down::{self, Down, take_down};
use super::host::{Signals, agreed, here};
use super::install::{Marker, markers, need_root, owners_on, systemd_here, this_host, trouble};
use super::{Exit, Trouble};
use crate::cli::{DownArgs, HostArgs, UninstallArgs};
use crate::collect::record::DIRECTORY;
use crate::finding::Finding;
use crate::install::transaction::{Did, Outcome, Refusal, Root};
use crate::install::{self, FOLDERS, MESH_UNIT, STOP_LIMIT};
use crate::json::pretty;
use crate::kernel::systemd::{RELOAD_PATIENCE, Systemd};
use crate::mesh::verify::marks;
use crate::node::identity::INSTALLED_PLAN;
use crate::node::read::Sources;
use crate::node::state::State;
use crate::output;

/// How long the mesh's unit may take to stop, and some.
const UNIT_LIMIT: Duration = Duration::from_secs(STOP_LIMIT + 20);
/// How old a copy of a deployment is that is at work no more. `deploy.rs` has the same.
const ABANDONED: Duration = Duration::from_secs(3600);
/// How long a marker's unit may take to stop: twice what its unit file allows.
const MARKER_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// Nothing of ours was there.
    InSync,
    /// Everything of ours is gone.
    Removed,
    /// The files of the installation are gone, and something stays: in the place of a rule or route something
    /// that is not ours, what is or may be of a mesh that could not be taken down, what could not be removed.
    Left,
    /// Queue pairs are open, or there is something of a mesh of which no plan is known; nothing was done.
    Refused,
    /// The mesh could not be taken down; the files are as they were.
    Failed,
    /// Files could not be removed; the host is as it was.
    Restored,
    /// Files could not be removed, and the host is not as it was: not all of them are, or the mesh is down.
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
                Verdict::Restored => Exit::Restored,
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
    /// Whether the mesh's unit was active or enabled, and is not any more.
    unit_gone: bool,
    stopped: Vec<String>,
    removed: Vec<String>,
    kept: Vec<String>,
    findings: Vec<Finding>,
    failures: Vec<String>,
    /// The mesh could not be taken down, and `--force` went on.
    not_taken_down: bool,
    /// Why it is not known what the mesh has here, and `--force` went on.
    unknown: Vec<String>,
}

/// What `down` is asked, as part of this.
fn down_args(args: &UninstallArgs) -> DownArgs {
    DownArgs {
        on: HostArgs {
            plan: INSTALLED_PLAN.into(),
            host: None,
        },
        wait: args.wait,
        force: args.force,
        dry_run: false,
        json: args.json,
    }
}

impl Uninstall {
    fn run(&mut self, args: &UninstallArgs) -> Result<Verdict, Trouble> {
        need_root("it takes the mesh down and removes files below /opt, /etc and /usr/local")?;
        let mut root = Root::host()?;
        let mut systemd = systemd_here()?;
        if let Some(verdict) = self.take_down(args, systemd.as_mut())? {
            return Ok(verdict);
        }
        let result = self
            .stop_units(systemd.as_mut())
            .and_then(|()| self.remove(args, &mut root, &mut systemd));
        match (result, self.gone_already()) {
            (Err(trouble), gone) if !gone.is_empty() => {
                self.failures.extend(trouble.lines());
                self.failures.extend(gone);
                Ok(Verdict::NotRestored)
            }
            (Ok(Verdict::Restored), gone) if !gone.is_empty() => {
                self.failures.extend(gone);
                Ok(Verdict::NotRestored)
            }
            (result, _) => result,
        }
    }

    /// What is not as it was although the files are, a line each.
    fn gone_already(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self
            .down
            .as_ref()
            .is_some_and(|(down, _)| down.has_changed())
        {
            lines.push("the mesh was taken down before, and stays so".to_owned());
        }
        if self.unit_gone {
            lines.push(format!(
                "{MESH_UNIT} was stopped and disabled before, and stays so"
            ));
        }
        let stays =
            |device: &String| format!("the marker of {device} was stopped before, and stays so");
        lines.extend(self.stopped.iter().map(stays));
        lines
    }

    fn stop_units(&mut self, systemd: Option<&mut Systemd>) -> Result<(), Trouble> {
        let Some(systemd) = systemd else {
            return Ok(());
        };
        let units = [MESH_UNIT.to_owned()];
        if let Some(at_boot) = systemd.unit_file_state(MESH_UNIT).map_err(trouble)? {
            let states = systemd.states(&units).map_err(trouble)?;
            let running = |active: &str| !matches!(active, "inactive" | "failed");
            self.unit_gone = at_boot.as_str() == "enabled"
                || states.iter().any(|state| running(state.active.as_str()));
            systemd
                .stop(MESH_UNIT, Instant::now() + UNIT_LIMIT)
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
        Ok(())
    }

    /// Takes the mesh down; a verdict where it ends there.
    fn take_down(
        &mut self,
        args: &UninstallArgs,
        systemd: Option<&mut Systemd>,
    ) -> Result<Option<Verdict>, Trouble> {
        let down_args = down_args(args);
        let applied = match State::open()? {
            Some(state) => state.applied(),
            None => Ok(None),
        };
        let planned = std::fs::symlink_metadata(INSTALLED_PLAN).is_ok();
        let plan = planned.then(|| here(&down_args.on));
        let mut unknown = Vec::new();
        if let Err(error) = &applied {
            unknown.push(error.to_string());
        }
        if let (Some(Err(trouble)), false) = (&plan, matches!(applied, Ok(Some(_)))) {
            unknown.extend(trouble.lines());
        }
        if !unknown.is_empty() && !args.force {
            not_while();
            return Err(Trouble::Several(unknown));
        }
        for line in &unknown {
            output::warning(&format!("{line}; going on, as told"));
        }
        self.unknown = unknown;
        if !matches!(applied, Ok(Some(_))) && !matches!(plan, Some(Ok(_))) {
            return self.without_a_plan(args, systemd);
        }
        let (down, verdict) = take_down(&down_args);
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
                not_while();
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

    /// Nobody knows what to take down: what runs is stopped, on the same condition, and what has the marks of a
    /// mesh is somebody's to remove while there is a program to do it with.
    fn without_a_plan(
        &mut self,
        args: &UninstallArgs,
        systemd: Option<&mut Systemd>,
    ) -> Result<Option<Verdict>, Trouble> {
        let running: Vec<Marker> = match systemd {
            Some(systemd) => markers(systemd).map_err(trouble)?,
            None => Vec::new(),
        };
        let mut findings = self.look()?;
        if !running.is_empty() {
            findings.extend(owners_on(&this_host()?, &running));
        }
        if findings.is_empty() || args.force {
            return Ok(None);
        }
        output::findings(&findings);
        output::note(
            "no plan of this host is known: hairpin-mesh down --plan FILE takes a mesh down, --force leaves it",
        );
        if args.json || !agreed() {
            self.findings = findings;
            return Ok(Some(Verdict::Refused));
        }
        Ok(None)
    }

    /// What has the marks of a mesh on this host now.
    fn look(&self) -> Result<Vec<Finding>, Trouble> {
        let recorded = match State::open()? {
            Some(state) => state.recorded_clsacts()?,
            None => Default::default(),
        };
        Ok(marks(&Sources::default().everywhere(recorded)))
    }

    /// Removes the files, and what is remembered.
    fn remove(
        &mut self,
        args: &UninstallArgs,
        root: &mut Root,
        systemd: &mut Option<Systemd>,
    ) -> Result<Verdict, Trouble> {
        // Before the first file goes: another run may be at work with them.
        let held = match State::open()? {
            Some(state) => {
                let lock = state.lock(Instant::now() + Duration::from_secs(args.wait.into()))?;
                Some((state, lock))
            }
            None => None,
        };
        let left = self.look()?;
        let signals = Signals::heed()?;
        root.end_on(signals.came());
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
                return Ok(Verdict::Restored);
            }
            Outcome::NotRestored { why, differs } => {
                self.failures.push(why);
                let differs = differs.iter().map(|line| format!("not as it was: {line}"));
                self.failures.extend(differs);
                return Ok(Verdict::NotRestored);
            }
        }
        // The files are gone: what fails from here on stays, and is told.
        match root.remove_empty(&FOLDERS) {
            Ok(kept) => {
                let told = |folder| format!("{folder}: holds files that are not this program's");
                self.kept.extend(kept.into_iter().map(told));
            }
            Err(error) => self.failures.push(error.to_string()),
        }
        for path in install::unit_paths() {
            let drop_ins = format!("{path}.d");
            if std::fs::symlink_metadata(&drop_ins).is_ok() {
                self.kept.push(format!("{drop_ins}: settings of this host"));
            }
        }
        let at_work = self.remove_copies();
        let known = self.keep_what_is_known(&left);
        if let (Some((state, lock)), false) = (held, known) {
            if let Err(error) = state.forget_all(lock) {
                self.failures.push(error.to_string());
            }
        }
        let left = known
            || at_work
            || !self.failures.is_empty()
            || matches!(&self.down, Some((_, down::Verdict::Left)));
        let nothing = self.removed.is_empty() && self.stopped.is_empty();
        Ok(if left {
            Verdict::Left
        } else if nothing {
            Verdict::InSync
        } else {
            Verdict::Removed
        })
    }

    /// Whether something of a mesh is, or may be, still there: it is told, and what is known of it is all there
    /// is to find it by.
    fn keep_what_is_known(&mut self, left: &[Finding]) -> bool {
        self.kept.extend(left.iter().map(Finding::to_string));
        if self.not_taken_down {
            self.kept.push(
                "what the mesh has in the kernel, which could not be taken down (ip route show proto 141; tc \
                 filter show dev PORT ingress)"
                    .into(),
            );
        }
        for why in &self.unknown {
            self.kept.push(format!(
                "what the mesh may have here beside routes, rules and markers, which were looked for (permanent \
                 neighbours): not known, because {why}"
            ));
        }
        let known = !left.is_empty() || self.not_taken_down || !self.unknown.is_empty();
        if known && std::fs::symlink_metadata(DIRECTORY).is_ok() {
            self.kept
                .push(format!("what is known of the mesh, in {DIRECTORY}"));
        }
        known
    }

    /// Removes what deployments left that were killed while root copied the program (see `deploy.rs`). Whether
    /// there is one that may be at work.
    fn remove_copies(&mut self) -> bool {
        let mut at_work = false;
        let entries = match std::fs::read_dir(super::deploy::COPIES) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return false,
            Err(e) => {
                self.failures
                    .push(format!("{}: {e}", super::deploy::COPIES));
                return false;
            }
        };
        let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let ours = |m: &std::fs::Metadata| m.is_dir() && m.uid() == 0;
            let name = entry.file_name();
            if !name.to_string_lossy().starts_with(super::deploy::COPY) {
                continue;
            }
            let Some(metadata) = entry.metadata().ok().filter(ours) else {
                continue;
            };
            let (path, age) = (entry.path(), metadata.modified().ok().map(|t| t.elapsed()));
            if !matches!(age, Some(Ok(age)) if age > ABANDONED) {
                at_work = true;
                self.kept.push(format!(
                    "{}: of a deployment that may be at work; the next one removes it once it is an hour old",
                    path.display()
                ));
                continue;
            }
            match std::fs::remove_dir_all(&path) {
                Ok(()) => self.removed.push(path.display().to_string()),
                Err(e) => self
                    .failures
                    .push(format!("{}: cannot be removed: {e}", path.display())),
            }
        }
        at_work
    }

    fn say(&self, args: &UninstallArgs, verdict: Verdict) -> Result<(), Trouble> {
        if let Some((down, verdict)) = self.down.as_ref().filter(|_| !args.json) {
            down.say(&down_args(args), *verdict)?;
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
            Verdict::Removed => {
                "uninstalled; the hairpin queues keep their size until the next boot\n"
            }
            Verdict::Left => {
                "uninstalled, but for what is named; the hairpin queues keep their size until the next boot\n"
            }
            Verdict::Refused => "nothing was uninstalled\n",
            Verdict::Failed => "failed; not uninstalled\n",
            Verdict::Restored => "failed; not uninstalled, and the host is as it was\n",
            Verdict::NotRestored => "failed, and the host is not as it was\n",
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

/// Why a run ends that could not take the mesh down.
fn not_while() {
    output::note(
        "nothing is uninstalled while the mesh cannot be taken down; --force goes on without",
    );
}
