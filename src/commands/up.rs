//! `up`: this host made what the plan says.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::hairpin_queue::{How, Told, add_port, left_unfinished, loads as loads_of};
use super::host::{
    ChangeReport, Here, applied_before, ends_on_signals, here, left_underway, lines, need_root,
    obstacle, refuse_another, share,
};
use super::{Exit, Trouble};
use crate::cli::UpArgs;
use crate::facts::{Fact, HairpinParameter};
use crate::finding::{Finding, Severity};
use crate::mesh::apply::{Outcome, apply};
use crate::mesh::change::Change;
use crate::mesh::compare::{Row, State as ObjectState, compare};
use crate::mesh::condition::{Identity, identity, owners, unmet};
use crate::mesh::present::Present;
use crate::mesh::queue::{
    self, Action, Allowed, Due, Ended, FunctionNow, Load, Underway, due, preview,
};
use crate::mesh::steps;
use crate::mesh::wanted::Wanted;
use crate::names::{HostName, NetdevName};
use crate::node::identity::PlanDocument;
use crate::node::platform::Node;
use crate::node::queue::{Queues, RETURN};
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
    /// Everything of the mesh is as planned; the hairpin queue alone was left as it is.
    QueueLeft,
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
    plan_sha256: Option<String>,
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
                up.report(Verdict::Trouble, trouble.lines())?;
            }
            Err(trouble)
        }
    }
}

/// A run, and what there is to tell of it.
#[derive(Default)]
struct Up {
    document: Option<Rc<PlanDocument>>,
    host: Option<HostName>,
    changes: Vec<ChangeReport>,
    not_done: Vec<Action>,
    findings: Vec<Finding>,
    /// Why the hairpin queue was left as it is.
    queue_findings: Vec<Finding>,
    /// Whether it was.
    queue_left: bool,
    failures: Vec<String>,
    differs: Vec<String>,
}

/// What there is to do about the hairpin queue.
struct QueueWork {
    /// The size to load, where `--set-hairpin-queue` asks for it and the plan has one.
    size: Option<u32>,
    /// The ports of the plan.
    planned: Vec<NetdevName>,
    /// What a run left in the middle.
    underway: Option<Underway>,
}

impl QueueWork {
    /// Whether nothing is to be done.
    fn is_done(&self, sources: &mut Sources, subject: &Subject) -> bool {
        if self.underway.is_some() {
            return false;
        }
        let Some(size) = self.size else {
            return true;
        };
        let ports = subject.ports.iter().cloned();
        let planned: Vec<_> = ports.filter(|p| self.planned.contains(&p.netdev)).collect();
        let asked = [(HairpinParameter::QueueSize, size)];
        let functions = sources.functions(&planned);
        functions.iter().all(|now| due(now, &asked) == Due::Nothing)
    }
}

impl Up {
    fn run(&mut self, args: &UpArgs) -> Result<Verdict, Trouble> {
        need_root()?;
        let deadline = Instant::now() + Duration::from_secs(args.wait.into());
        let Here { document, host } = here(&args.on)?;
        let document = self.document.insert(Rc::new(document)).clone();
        self.host = Some(host.clone());
        let state = State::create()?;
        let lock = state.lock(deadline)?;
        let result = self.locked(args, deadline, &document, &host, &state);
        // Until the first change there is nothing to remember.
        state.leave(lock);
        result
    }

    fn locked(
        &mut self,
        args: &UpArgs,
        mut deadline: Instant,
        document: &PlanDocument,
        host: &HostName,
        state: &State,
    ) -> Result<Verdict, Trouble> {
        let plan = &document.plan;
        let host_plan = share(plan, host)?;
        let wanted = Wanted::of(&host_plan);
        let mut known_already = state.is_applied(host, &document.bytes).unwrap_or(false);
        let mut earlier = None;
        if !known_already {
            earlier = applied_before(state);
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
        let mut present = sources.read(&subject, Default::default());
        // At boot the driver may come after this.
        let mut watch = None;
        while let Identity::NoPort(finding) = identity(&host_plan, &present) {
            if args.wait == 0 {
                break;
            }
            if !watch.get_or_insert_with(Watch::open).wait(deadline)? {
                self.findings = vec![finding];
                return Ok(Verdict::NotReady);
            }
            present = sources.read(&subject, Default::default());
        }
        refuse_another(identity(&host_plan, &present), host)?;
        let queue = QueueWork {
            size: plan.hairpin_queue_wanted.filter(|_| args.set_hairpin_queue),
            planned: host_plan
                .ports
                .iter()
                .map(|row| row.netdev.clone())
                .collect(),
            underway: left_underway(state)?.map(|underway| {
                let mut rows = host_plan.ports.iter();
                match rows.find(|row| row.netdev == underway.netdev) {
                    Some(row) => underway.as_planned(row.ipv4),
                    None => underway,
                }
            }),
        };
        if queue.is_done(&mut sources, &subject) && steps_of(&present).1 == steps::Up::default() {
            let may_write = !args.check && !args.dry_run;
            if may_write && state.has_journal() {
                state.remove_journal()?;
            }
            if may_write && !known_already {
                state.write_applied(host, &document.bytes)?;
            }
            return Ok(Verdict::InSync);
        }

        let mut watch = watch.unwrap_or_else(Watch::open);
        subject.settings = true;
        add_port(&mut subject, queue.underway.as_ref());
        let mut node = Node {
            sources,
            subject,
            state,
            host: host.clone(),
            plan_sha256: document.sha256(),
            touched: match &leftover {
                Some(old) => wanted.and(old),
                None => wanted.clone(),
            },
            wanted: wanted.clone(),
            before: Present::default(),
            interrupted: ends_on_signals()?,
        };
        if let Some(verdict) = self.load_queue(args, &queue, &mut node, &mut watch, deadline)? {
            return Ok(verdict);
        }
        if !self.changes.is_empty() {
            // What the re-initialisations took is not taken from what the user waits for.
            deadline = Instant::now() + Duration::from_secs(args.wait.into());
        }
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
            self.changes
                .extend(changes.iter().map(|change| ChangeReport::of(change, None)));
            let work = !self.changes.is_empty() || !self.is_whole();
            return Ok(if work {
                Verdict::WorkToDo
            } else {
                Verdict::InSync
            });
        }
        if changes.is_empty() && self.is_whole() && self.changes.is_empty() {
            return Ok(Verdict::InSync);
        }
        // What an earlier plan left must not be forgotten before it is gone.
        if earlier.is_none() && !known_already {
            state.write_applied(host, &document.bytes)?;
        }
        // The objects alone are read back.
        node.subject.settings = false;
        let mut done = Vec::new();
        let outcome = apply(&mut node, &changes, &mut |change, remark| {
            done.push(ChangeReport::of(change, remark));
        });
        match outcome {
            Outcome::Done => {
                self.changes.extend(done);
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
                let left = |action: &Action| matches!(action, Action::Object(_));
                if earlier.is_some() && !self.not_done.iter().any(left) {
                    noted = noted.and(state.write_applied(host, &document.bytes));
                }
                if let Err(error) = noted {
                    output::warning(&error.to_string());
                }
                Ok(if self.is_whole() {
                    Verdict::Applied
                } else if self.not_done.iter().any(left) {
                    Verdict::PartlyApplied
                } else {
                    Verdict::QueueLeft
                })
            }
            Outcome::Restored { why } => {
                self.failures = why;
                if !self.changes.is_empty() {
                    // A rollback re-initialises nothing.
                    output::warning("what is said of the hairpin queue was done, and stays");
                }
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
        self.findings = owners(
            &node.host,
            &node.sources.open_queue_pairs(&subject),
            "--force",
        );
        if self.findings.is_empty() {
            return changes;
        }
        let (disturbing, adding) = changes.into_iter().partition(Change::disturbs);
        let disturbing: Vec<Change> = disturbing;
        self.not_done
            .extend(disturbing.into_iter().map(Action::from));
        // What stays as it is cannot be asked to read back as wanted.
        let stays = |row: &Row| matches!(row.state, ObjectState::Stale(_));
        node.wanted = node
            .wanted
            .but(rows.iter().filter(|row| stays(row)).map(|row| &row.object));
        adding
    }

    /// Loads the plan's hairpin queue size, where it was asked for and is not loaded, and finishes what a
    /// run left in the middle. A verdict when nothing else is to be done.
    fn load_queue(
        &mut self,
        args: &UpArgs,
        work: &QueueWork,
        node: &mut Node,
        watch: &mut Watch,
        deadline: Instant,
    ) -> Result<Option<Verdict>, Trouble> {
        let would = args.dry_run || args.check;
        let host = node.host.clone();
        let wanted = node.wanted.clone();
        let mut queues = Queues {
            node,
            watch,
            planned: work.planned.clone(),
            allowed: Allowed::default(),
            patience: RETURN.max(Duration::from_secs(args.wait.into())),
            deadline,
        };
        let mut finished = None;
        match &work.underway {
            Some(underway) if would => {
                // What comes after it cannot be said before.
                let finding = left_unfinished(&host, &underway.netdev);
                self.queue_findings.push(finding);
                return Ok(Some(Verdict::WorkToDo));
            }
            Some(underway) => {
                let mut told = |action, remark: Option<&str>| {
                    self.changes.push(ChangeReport::of_action(action, remark));
                };
                match queue::finish(&mut queues, underway, &wanted, args.force, &mut told) {
                    Ok(done) => finished = Some((done, &underway.netdev)),
                    Err(end) => {
                        let ended = Ended {
                            done: Vec::new(),
                            at: Some(underway.netdev.clone()),
                            left: Vec::new(),
                            end,
                        };
                        return Ok(self.queue_ended(Told::of(ended, queues.node.state)));
                    }
                }
            }
            None => {}
        }
        let tell = |loads: &[(&FunctionNow, Load)]| {
            let finished = finished.iter();
            let findings = finished.flat_map(|(finished, dev)| {
                let its = loads.iter().any(|(now, _)| now.netdev == **dev);
                finished.findings(&host, dev, its)
            });
            findings.collect::<Vec<Finding>>()
        };
        let Some(size) = work.size else {
            self.queue_findings.extend(tell(&[]));
            return Ok(None);
        };
        let asked = [(HairpinParameter::QueueSize, size)];
        // A port that is not there yet cannot be re-initialised, and could come back as anything.
        let present = loop {
            let present = queues.node.read().map_err(Trouble::Usage)?;
            let absent = |dev: &&NetdevName| {
                let link = present.port(dev).map(|port| &port.link);
                matches!(link, Some(Fact::Known(None)))
            };
            let Some(absent) = work.planned.iter().find(absent) else {
                break present;
            };
            self.findings = vec![
                Finding::problem("port-missing", "no such network device", "it")
                    .on(&host)
                    .at(absent),
            ];
            if let Some(why) = queue::Platform::interrupted(&mut queues) {
                return Err(Trouble::Usage(format!("{why}; nothing was changed")));
            }
            if !queues.watch.wait(deadline)? {
                self.queue_findings.extend(tell(&[]));
                return Ok(Some(Verdict::NotReady));
            }
        };
        self.findings = Vec::new();
        let ports: Vec<_> = queues.node.subject.ports.clone();
        let planned = ports
            .into_iter()
            .filter(|port| work.planned.contains(&port.netdev));
        let planned: Vec<_> = planned.collect();
        let functions = queues.node.sources.functions(&planned);
        let (loads, mut blockers) = match loads_of(&host, &functions, &asked) {
            Ok(loads) => (loads, Vec::new()),
            Err(findings) => (Vec::new(), findings),
        };
        self.queue_findings.extend(tell(&loads));
        if loads.is_empty() && blockers.is_empty() {
            return Ok(None);
        }
        if blockers.is_empty() {
            // On any of them: whoever uses one uses the ring.
            blockers = queues.blockers_of(&functions, &present);
        }
        let previews = |loads: &[(&FunctionNow, Load)]| -> Vec<Action> {
            let preview =
                |(now, load): &(&FunctionNow, Load)| preview(now, load, &wanted, &present);
            loads.iter().flat_map(preview).collect()
        };
        let of_queue = |actions: Vec<Action>| -> Vec<Action> {
            let own = |action: &Action| matches!(action, Action::Queue(_));
            actions.into_iter().filter(own).collect()
        };
        if !blockers.is_empty() {
            self.queue_blocked(blockers, of_queue(previews(&loads)));
            return Ok(None);
        }
        if would {
            let report = |action| ChangeReport::of_action(action, None);
            self.changes
                .extend(previews(&loads).into_iter().map(report));
            return Ok(None);
        }
        let names: Vec<NetdevName> = loads.iter().map(|(now, _)| now.netdev.clone()).collect();
        let mut told = |action, remark: Option<&str>| {
            self.changes.push(ChangeReport::of_action(action, remark));
        };
        let ended = queue::run(&mut queues, &names, &asked, &wanted, &mut told);
        let told = Told::of(ended, queues.node.state);
        if told.how == How::Refused {
            // Somebody came between two functions.
            let functions = queues.node.sources.functions(&planned);
            let left = loads_of(&host, &functions, &asked).unwrap_or_default();
            self.queue_blocked(told.findings, of_queue(previews(&left)));
            return Ok(None);
        }
        Ok(self.queue_ended(told))
    }

    /// The queue stays as it is: a warning, and the rest is done.
    fn queue_blocked(&mut self, why: Vec<Finding>, not_done: Vec<Action>) {
        self.queue_left = true;
        self.not_done.extend(not_done);
        self.queue_findings
            .extend(why.into_iter().map(|finding| Finding {
                severity: Severity::Warning,
                ..finding
            }));
    }

    fn queue_ended(&mut self, told: Told) -> Option<Verdict> {
        self.failures = told.failures;
        self.differs = told.differs;
        self.queue_findings.extend(told.findings);
        match told.how {
            How::Done => None,
            How::Refused => Some(Verdict::Refused),
            How::NotBack => Some(Verdict::NotReady),
            How::Restored => Some(Verdict::Restored),
            How::NotRestored => Some(Verdict::NotRestored),
        }
    }

    /// Whether nothing was left out.
    fn is_whole(&self) -> bool {
        self.not_done.is_empty() && !self.queue_left
    }

    fn exit(&self, args: &UpArgs, verdict: Verdict) -> Exit {
        match verdict {
            // Showing what would be done is all that was asked for.
            _ if args.dry_run => Exit::Yes,
            Verdict::InSync | Verdict::Applied | Verdict::QueueLeft => Exit::Yes,
            Verdict::WorkToDo | Verdict::PartlyApplied | Verdict::Refused => Exit::No,
            Verdict::NotReady => Exit::NotReady,
            Verdict::Restored => Exit::Restored,
            Verdict::NotRestored => Exit::NotRestored,
            Verdict::Trouble => Exit::Trouble,
        }
    }

    fn say(&self, args: &UpArgs, verdict: Verdict) -> Result<(), Trouble> {
        let host = self.host.as_ref().map_or("this host", HostName::as_str);
        output::findings(&self.queue_findings);
        output::findings(&self.findings);
        for line in &self.failures {
            output::failure(line);
        }
        for line in &self.differs {
            output::failure(&format!("not as it was: {line}"));
        }
        if !self.not_done.is_empty() {
            for action in &self.not_done {
                output::warning(&match action {
                    Action::Queue(_) => format!("not done: {action}"),
                    Action::Object(_) => format!("not done while queue pairs are open: {action}"),
                });
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
            Verdict::QueueLeft => format!(
                "{host}: done, {} changed; the hairpin queue was left as it is\n",
                self.changes.len()
            ),
            Verdict::WorkToDo => format!(
                "{host}: {} to do\n",
                // What a run left in the middle is one, too: what comes of it cannot be said before.
                (self.changes.len() + self.not_done.len()).max(1)
            ),
            Verdict::Refused | Verdict::NotReady if self.changes.is_empty() => {
                format!("{host}: nothing was changed\n")
            }
            Verdict::Refused | Verdict::NotReady => {
                format!("{host}: stopped, {} changed\n", self.changes.len())
            }
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
            host: self.host.as_ref(),
            plan_sha256: self.document.as_ref().map(|document| document.sha256()),
            verdict,
            changes: &self.changes,
            not_done: self
                .not_done
                .iter()
                .map(|action| ChangeReport::of_action(action.clone(), None))
                .collect(),
            findings: &[&self.queue_findings[..], &self.findings[..]].concat(),
            failures: &self.failures,
            differs: &self.differs,
            trouble,
        };
        output::result(&crate::json::pretty(&report))?;
        Ok(())
    }
}
