//! `down`: exactly what `up` made, removed.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::host::{
    ChangeReport, Here, agreed, applied_before, engine_first, here_or_applied, lines, need_root,
    obstacle, refuse_another, share,
};
use super::{Exit, Trouble};
use crate::cli::DownArgs;
use crate::finding::Finding;
use crate::mesh::apply::apply_all;
use crate::mesh::change::Change;
use crate::mesh::compare::compare;
use crate::mesh::condition::{identity, owners};
use crate::mesh::present::Present;
use crate::mesh::queue::Underway;
use crate::mesh::steps;
use crate::mesh::verify::left_over;
use crate::mesh::wanted::Wanted;
use crate::names::{HostName, NetdevName};
use crate::node::platform::Node;
use crate::node::read::{Sources, Subject};
use crate::node::state::State;
use crate::output;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// Nothing of ours was there.
    InSync,
    /// Everything of ours is gone.
    Removed,
    /// There is something to remove (`--dry-run`).
    WorkToDo,
    /// Something in the place of ours is not exactly ours, and was left.
    Left,
    /// Queue pairs are open; nothing was done.
    Refused,
    /// Something of ours could not be removed.
    Failed,
    /// There could be no verdict.
    Trouble,
}

#[derive(Serialize)]
pub(super) struct Report<'a> {
    schema: &'static str,
    host: Option<&'a HostName>,
    verdict: Verdict,
    /// The engine's environment that has to be in place first.
    engine_first: Option<&'a str>,
    /// What was done, or would be, in order.
    changes: &'a [ChangeReport],
    /// Ports whose `clsact` discipline is ours and stays, because it holds filters of others.
    kept_clsact: &'a [NetdevName],
    findings: &'a [Finding],
    /// What failed, a line each.
    failures: &'a [String],
    /// Why there could be no verdict (exit 2), a line each.
    trouble: Vec<String>,
}

const REPORT: &str = "hairpin-mesh.down-report/v1";

/// Takes the mesh down. Where that is refused because of open queue pairs, somebody at a terminal is asked.
pub(super) fn take_down(args: &DownArgs) -> (Down, Result<Verdict, Trouble>) {
    let mut down = Down::default();
    let verdict = down.run(args);
    let refused = matches!(verdict, Ok(Verdict::Refused));
    if !refused || args.json {
        return (down, verdict);
    }
    output::findings(&down.findings);
    down.findings.clear();
    if !agreed() {
        return (down, verdict);
    }
    // Anew: a while has passed.
    let mut again = Down::default();
    let verdict = again.run(&DownArgs {
        force: true,
        ..args.clone()
    });
    (again, verdict)
}

pub(super) fn run(args: DownArgs) -> Result<Exit, Trouble> {
    let (down, verdict) = take_down(&args);
    match verdict {
        Ok(verdict) => {
            down.say(&args, verdict)?;
            Ok(match verdict {
                _ if args.dry_run => Exit::Yes,
                Verdict::InSync | Verdict::Removed | Verdict::WorkToDo => Exit::Yes,
                Verdict::Left | Verdict::Refused => Exit::No,
                Verdict::Failed | Verdict::Trouble => Exit::Trouble,
            })
        }
        Err(trouble) => {
            if args.json {
                down.report(Verdict::Trouble, trouble.lines())?;
            }
            Err(trouble)
        }
    }
}

/// A run, and what there is to tell of it.
#[derive(Default)]
pub(super) struct Down {
    host: Option<HostName>,
    engine_first: Option<String>,
    changes: Vec<ChangeReport>,
    kept: Vec<NetdevName>,
    findings: Vec<Finding>,
    failures: Vec<String>,
}

impl Down {
    fn run(&mut self, args: &DownArgs) -> Result<Verdict, Trouble> {
        need_root()?;
        let state = State::create()?;
        let lock = state.lock(Instant::now() + Duration::from_secs(args.wait.into()))?;
        let result = self.locked(args, &state);
        state.leave(lock);
        result
    }

    fn locked(&mut self, args: &DownArgs, state: &State) -> Result<Verdict, Trouble> {
        let applied = applied_before(state);
        let Here { document, host } = here_or_applied(&args.on, applied.as_ref())?;
        self.host = Some(host.clone());
        let plan = &document.plan;
        let host_plan = share(plan, &host)?;
        let mut wanted = Wanted::of(&host_plan);
        let mut subject = Subject::default();
        subject.add(&host_plan, plan.gid_index);
        let old = applied
            .as_ref()
            .and_then(|applied| applied.plan.for_host(applied.host.as_str()));
        if let Some(old) = &old {
            wanted = wanted.and(&Wanted::of(old).without(&wanted));
            subject.add(old, plan.gid_index);
        }
        let recorded = state.recorded_clsacts()?;
        subject.all_filters = recorded;
        let mut node = Node {
            sources: Sources::default(),
            subject,
            state,
            host: host.clone(),
            plan_sha256: document.sha256(),
            touched: wanted.clone(),
            wanted,
            before: Present::default(),
            interrupted: Default::default(),
        };
        node.before = node.read().map_err(Trouble::Usage)?;
        refuse_another(identity(&host_plan, &node.before), &host)?;
        let steps = steps::down(&compare(&node.wanted, &node.before), &node.before);
        self.kept = steps.kept;
        self.findings = steps
            .left
            .iter()
            .map(|row| obstacle(&host, row, "gone"))
            .collect();
        // What another plan or a script made is not this plan's to remove, and is not passed over either.
        for finding in left_over(&node.wanted, &node.before) {
            output::warning(&finding.to_string());
        }
        if !steps.changes.is_empty() {
            let first = engine_first(plan);
            output::note(&first);
            self.engine_first = Some(first);
        }
        if args.dry_run {
            let changes = steps.changes.iter();
            self.changes = changes
                .map(|change| ChangeReport::of(change, None))
                .collect();
            return Ok(if self.changes.is_empty() {
                Verdict::InSync
            } else {
                Verdict::WorkToDo
            });
        }
        if steps.changes.iter().any(Change::disturbs) {
            let subject = node.subject.clone();
            let owners = owners(&host, &node.sources.open_queue_pairs(&subject), "--force");
            if !owners.is_empty() && !args.force {
                self.findings = owners;
                return Ok(Verdict::Refused);
            }
            for owner in owners {
                output::warning(&format!("{owner}: going on, as told"));
            }
        }
        // Before the first change. One that cannot be read is of no use to anybody, and in nobody's way here.
        let underway = state.underway().unwrap_or_else(|error| {
            output::warning(&error.to_string());
            None
        });
        let mut done = Vec::new();
        self.failures = apply_all(&mut node, &steps.changes, &mut |change, remark| {
            done.push(ChangeReport::of(change, remark));
        });
        self.changes = done;
        if !self.failures.is_empty() {
            return Ok(Verdict::Failed);
        }
        state.remove_applied()?;
        state.remove_journal()?;
        // A port that is on its way back comes back without what is gone now.
        if let Some(underway) = underway {
            let objects = Vec::new();
            state.note_underway(Some(&Underway {
                objects,
                ..underway
            }))?;
        }
        Ok(if !self.findings.is_empty() {
            Verdict::Left
        } else if self.changes.is_empty() {
            Verdict::InSync
        } else {
            Verdict::Removed
        })
    }

    /// Whether anything was removed.
    pub(super) fn has_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(super) fn say(&self, args: &DownArgs, verdict: Verdict) -> Result<(), Trouble> {
        let host = self.host.as_ref().map_or("this host", HostName::as_str);
        output::findings(&self.findings);
        for line in &self.failures {
            output::failure(line);
        }
        if args.json {
            return self.report(verdict, Vec::new());
        }
        let mut text = lines(&self.changes, args.dry_run);
        for dev in &self.kept {
            text += &format!("stays {dev}: the clsact qdisc, which holds filters of others\n");
        }
        text += &match verdict {
            Verdict::InSync => format!("{host}: nothing to do\n"),
            Verdict::Refused => format!("{host}: nothing was changed\n"),
            Verdict::WorkToDo => format!("{host}: {} to do\n", self.changes.len()),
            _ => format!("{host}: done, {} removed\n", self.changes.len()),
        };
        output::result(&text)?;
        Ok(())
    }

    fn report(&self, verdict: Verdict, trouble: Vec<String>) -> Result<(), Trouble> {
        output::result(&crate::json::pretty(&self.reported(verdict, trouble)))?;
        Ok(())
    }

    pub(super) fn reported(&self, verdict: Verdict, trouble: Vec<String>) -> Report<'_> {
        Report {
            schema: REPORT,
            host: self.host.as_ref(),
            verdict,
            engine_first: self.engine_first.as_deref(),
            changes: &self.changes,
            kept_clsact: &self.kept,
            findings: &self.findings,
            failures: &self.failures,
            trouble,
        }
    }
}
