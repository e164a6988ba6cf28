//! `up`: this host made what the plan says.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::host::{ChangeReport, Here, here, lines, need_root, obstacle, owners, refuse_another};
use super::{Exit, Trouble};
use crate::cli::UpArgs;
use crate::finding::Finding;
use crate::mesh::apply::{Outcome, apply};
use crate::mesh::change::Change;
use crate::mesh::compare::{Row, State as ObjectState, compare};
use crate::mesh::condition::{identity, unmet};
use crate::mesh::present::Present;
use crate::mesh::steps;
use crate::mesh::wanted::Wanted;
use crate::names::HostName;
use crate::node::platform::Node;
use crate::node::read::{Sources, Subject};
use crate::node::state::State;
use crate::node::wait::Watch;
use crate::output;

/// How `up` ended, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// Nothing was to do.
    InSync,
    /// Everything was done.
    Applied,
    /// What adds was done; what would disturb open queue pairs was not.
    PartlyApplied,
    /// There is something to do (`--check`, `--dry-run`).
    WorkToDo,
    /// Something is in the way or not as planned; nothing was done.
    Refused,
    /// Something was not ready in time; nothing was done.
    NotReady,
    /// It failed; the host is as it was.
    Restored,
    /// It failed; the host is not as it was.
    NotRestored,
    /// There could be no verdict.
    Trouble,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    host: Option<&'a HostName>,
    plan_sha256: Option<&'a str>,
    verdict: Verdict,
    /// What was done, or would be, in order.
    changes: &'a [ChangeReport],
    /// What would disturb open queue pairs and was not done.
    not_done: Vec<ChangeReport>,
    findings: &'a [Finding],
    /// What failed, a line each.
    failures: &'a [String],
    /// What is not as it was, a line each.
    differs: &'a [String],
    /// Why there could be no verdict (exit 2), a line each.
    trouble: Vec<String>,
}

const REPORT: &str = "hairpin-mesh.up-report/v1";

pub(super) fn run(args: UpArgs) -> Result<Exit, Trouble> {
    let mut up = Up::default();
    let result = up.run(&args);
    match result {
        Ok(verdict) => {
            up.say(&args, verdict)?;
            Ok(up.exit(&args, verdict))
        }
        Err(trouble) => {
            if args.json {
                let lines = trouble.to_string().lines().map(str::to_owned).collect();
                up.report(Verdict::Trouble, lines)?;
            }
            Err(trouble)
        }
    }
}

/// A run, and what there is to tell of it.
#[derive(Default)]
struct Up {
    here: Option<(HostName, String)>,
    changes: Vec<ChangeReport>,
    not_done: Vec<Change>,
    findings: Vec<Finding>,
    failures: Vec<String>,
    differs: Vec<String>,
}

impl Up {
    fn run(&mut self, args: &UpArgs) -> Result<Verdict, Trouble> {
        need_root()?;
        let deadline = Instant::now() + Duration::from_secs(args.wait.into());
        let Here { document, host } = here(&args.on)?;
        let plan_sha256 = document.sha256();
        self.here = Some((host.clone(), plan_sha256.clone()));
        let state = State::create()?;
        let lock = state.lock(deadline)?;
        let result = self.locked(args, deadline, &document, &host, plan_sha256, &state);
        // Until the first change there is nothing to remember.
        state.leave(lock);
        result
    }

    fn locked(
        &mut self,
        args: &UpArgs,
        deadline: Instant,
        document: &crate::node::identity::PlanDocument,
        host: &HostName,
        plan_sha256: String,
        state: &State,
    ) -> Result<Verdict, Trouble> {
        let plan = &document.plan;
        let Some(host_plan) = plan.for_host(host.as_str()) else {
            return Err(Trouble::Usage(format!("the plan has no host {host}")));
        };
        let wanted = Wanted::of(&host_plan);
        let mut known_already = state.is_applied(host, &plan_sha256).unwrap_or(false);
        let mut earlier = None;
        if !known_already {
            earlier = state.applied().unwrap_or_else(|error| {
                output::warning(&format!("{error}; what an earlier plan left is not known"));
                None
            });
            known_already = earlier
                .as_ref()
                .is_some_and(|applied| applied.plan == *plan && applied.host == *host);
        }
        let earlier = earlier.filter(|_| !known_already);
        let earlier_plan = earlier
            .as_ref()
            .and_then(|applied| applied.plan.for_host(applied.host.as_str()));
        let leftover = earlier_plan
            .as_ref()
            .map(|old| Wanted::of(old).without(&wanted));
        let mut subject = Subject::default();
        subject.add(&host_plan, plan.gid_index);
        if let Some(old) = &earlier_plan {
            subject.add(old, plan.gid_index);
        }
        let steps_of = |present: &Present| {
            let leftover = leftover.as_ref().map(|old| compare(old, present));
            let rows = compare(&wanted, present);
            let steps = steps::up(&rows, &leftover.unwrap_or_default());
            (rows, steps)
        };

        // The objects alone first: at most starts nothing is to do, and then nothing else is asked.
        let mut sources = Sources::default();
        let present = sources.read(&subject, Default::default());
        refuse_another(identity(&host_plan, &present), host)?;
        if steps_of(&present).1 == steps::Up::default() {
            if state.has_journal() {
                state.remove_journal()?;
            }
            if !known_already && !args.check && !args.dry_run {
                state.write_applied(host, plan, &plan_sha256)?;
            }
            return Ok(Verdict::InSync);
        }

        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
        ] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        let mut watch = Watch::open();
        subject.settings = true;
        let mut node = Node {
            sources,
            subject,
            state,
            host: host.clone(),
            plan_sha256: plan_sha256.clone(),
            touched: match &leftover {
                Some(old) => wanted.and(old),
                None => wanted.clone(),
            },
            wanted: wanted.clone(),
            before: Present::default(),
            interrupted,
        };
        let changes = loop {
            node.before = node.read().map_err(Trouble::Usage)?;
            refuse_another(identity(&host_plan, &node.before), host)?;
            let unmet = unmet(plan, &host_plan, &node.before);
            let (rows, steps) = steps_of(&node.before);
            let (passing, lasting): (Vec<&Row>, Vec<&Row>) = steps
                .obstacles
                .iter()
                .partition(|row| row.state == ObjectState::NoPort);
            self.findings = unmet
                .iter()
                .filter(|unmet| !unmet.waiting_helps)
                .map(|unmet| unmet.finding.clone())
                .chain(
                    lasting
                        .into_iter()
                        .map(|row| obstacle(host, row, "as planned")),
                )
                .collect();
            if !self.findings.is_empty() {
                return Ok(Verdict::Refused);
            }
            self.findings = unmet
                .into_iter()
                .map(|unmet| unmet.finding)
                .chain(
                    steps
                        .changing
                        .iter()
                        .map(|row| obstacle(host, row, "as planned")),
                )
                .collect();
            if self.findings.is_empty() && passing.is_empty() {
                break self.without_disturbing(args, &mut node, &rows, steps.changes);
            }
            if let Some(why) = crate::mesh::apply::Platform::interrupted(&mut node) {
                return Err(Trouble::Usage(format!("{why}; nothing was changed")));
            }
            if !watch.wait(deadline)? {
                return Ok(Verdict::NotReady);
            }
        };
        if args.dry_run || args.check {
            self.changes = changes
                .iter()
                .map(|change| ChangeReport::of(change, None))
                .collect();
            let work = !self.changes.is_empty() || !self.not_done.is_empty();
            return Ok(if work {
                Verdict::WorkToDo
            } else {
                Verdict::InSync
            });
        }
        if changes.is_empty() && self.not_done.is_empty() {
            return Ok(Verdict::InSync);
        }
        // What an earlier plan left must not be forgotten before it is gone.
        if earlier.is_none() && !known_already {
            state.write_applied(host, plan, &plan_sha256)?;
        }
        // The objects alone are read back.
        node.subject.settings = false;
        let mut done = Vec::new();
        let outcome = apply(&mut node, &changes, &mut |change, remark| {
            done.push(ChangeReport::of(change, remark));
        });
        match outcome {
            Outcome::Done => {
                self.changes = done;
                let dropped = node
                    .wanted
                    .clsacts
                    .iter()
                    .filter_map(|dev| {
                        let count = node.before.port(dev)?.link.known()?.as_ref()?.rx_dropped?;
                        Some((dev.clone(), count))
                    })
                    .collect();
                // The host is as wanted, whatever becomes of these notes.
                let mut noted = state.write_dropped(&dropped);
                if earlier.is_some() && self.not_done.is_empty() {
                    noted = noted.and(state.write_applied(host, plan, &plan_sha256));
                }
                if let Err(error) = noted {
                    output::warning(&error.to_string());
                }
                Ok(if self.not_done.is_empty() {
                    Verdict::Applied
                } else {
                    Verdict::PartlyApplied
                })
            }
            Outcome::Restored { why } => {
                self.failures = why;
                if earlier.is_none() && !known_already {
                    state.remove_applied()?;
                }
                Ok(Verdict::Restored)
            }
            Outcome::NotRestored { why, differs } => {
                self.failures = why;
                self.differs = differs;
                self.differs.push(format!(
                    "the journal of what was done is kept in {}",
                    state.journal_path().display()
                ));
                Ok(Verdict::NotRestored)
            }
        }
    }

    /// The changes that may be made now: while somebody's queue pairs are open, those alone that only add
    /// what is missing. What is then not done is kept, with whose queue pairs they are.
    fn without_disturbing(
        &mut self,
        args: &UpArgs,
        node: &mut Node,
        rows: &[Row],
        changes: Vec<Change>,
    ) -> Vec<Change> {
        if args.force || !changes.iter().any(Change::disturbs) {
            return changes;
        }
        let subject = node.subject.clone();
        self.findings = owners(&node.host, &node.sources.open_queue_pairs(&subject));
        if self.findings.is_empty() {
            return changes;
        }
        let (disturbing, adding) = changes.into_iter().partition(Change::disturbs);
        self.not_done = disturbing;
        // What stays as it is cannot be asked to read back as wanted.
        let stays = |row: &Row| matches!(row.state, ObjectState::Stale(_));
        node.wanted = node
            .wanted
            .but(rows.iter().filter(|row| stays(row)).map(|row| &row.object));
        adding
    }

    fn exit(&self, args: &UpArgs, verdict: Verdict) -> Exit {
        match verdict {
            // Showing what would be done is all that was asked for.
            _ if args.dry_run => Exit::Yes,
            Verdict::InSync | Verdict::Applied => Exit::Yes,
            Verdict::WorkToDo | Verdict::PartlyApplied | Verdict::Refused => Exit::No,
            Verdict::NotReady => Exit::NotReady,
            Verdict::Restored => Exit::Restored,
            Verdict::NotRestored => Exit::NotRestored,
            Verdict::Trouble => Exit::Trouble,
        }
    }

    fn say(&self, args: &UpArgs, verdict: Verdict) -> Result<(), Trouble> {
        let host = self
            .here
            .as_ref()
            .map_or("this host", |(host, _)| host.as_str());
        output::findings(&self.findings);
        for line in &self.failures {
            output::failure(line);
        }
        for line in &self.differs {
            output::failure(&format!("not as it was: {line}"));
        }
        if !self.not_done.is_empty() {
            for change in &self.not_done {
                output::warning(&format!("not done while queue pairs are open: {change}"));
            }
        }
        if args.json {
            return self.report(verdict, Vec::new());
        }
        let mut text = lines(&self.changes, args.dry_run || args.check);
        text += &match verdict {
            Verdict::InSync => format!("{host}: nothing to do\n"),
            Verdict::Applied => format!("{host}: done, {} changed\n", self.changes.len()),
            Verdict::PartlyApplied => format!(
                "{host}: {} changed, {} not done\n",
                self.changes.len(),
                self.not_done.len()
            ),
            Verdict::WorkToDo => format!(
                "{host}: {} to do\n",
                self.changes.len() + self.not_done.len()
            ),
            Verdict::Refused | Verdict::NotReady => format!("{host}: nothing was changed\n"),
            Verdict::Restored => format!("{host}: failed; the host is as it was\n"),
            Verdict::NotRestored => format!("{host}: failed, and the host is not as it was\n"),
            Verdict::Trouble => String::new(),
        };
        output::result(&text)?;
        Ok(())
    }

    fn report(&self, verdict: Verdict, trouble: Vec<String>) -> Result<(), Trouble> {
        let report = Report {
            schema: REPORT,
            host: self.here.as_ref().map(|(host, _)| host),
            plan_sha256: self.here.as_ref().map(|(_, sum)| sum.as_str()),
            verdict,
            changes: &self.changes,
            not_done: self
                .not_done
                .iter()
                .map(|change| ChangeReport::of(change, None))
                .collect(),
            findings: &self.findings,
            failures: &self.failures,
            differs: &self.differs,
            trouble,
        };
        output::result(&crate::json::pretty(&report))?;
        Ok(())
    }
}
