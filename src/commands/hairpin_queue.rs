//! `hairpin-queue`: what is set and loaded shown, or a size loaded, one function at a time. `up
//! --set-hairpin-queue` does the same with its own part here.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::host::{
    ChangeReport, Here, applied_before, applied_in_place_of_none, ends_on_signals, here,
    left_underway, lines, need_root, no_plan, refuse_another, share,
};
use super::{Exit, Trouble};
use crate::cli::HairpinQueueArgs;
use crate::collect::{Options, collect};
use crate::facts::{Applied, Fact, Gids, HairpinParameter, Inventory, PortFacts, ROCE_V2};
use crate::finding::Finding;
use crate::mesh::condition::identity;
use crate::mesh::present::Present;
use crate::mesh::queue::{
    Allowed, Due, End, Ended, FunctionNow, Load, due, finish, preview, run as load,
};
use crate::mesh::wanted::Wanted;
use crate::names::{Gid, HostName, NetdevName, PciAddress, RdmaName};
use crate::node::platform::Node;
use crate::node::queue::Queues;
use crate::node::read::{Sources, Subject, SubjectPort};
use crate::node::state::{self, State};
use crate::node::wait::Watch;
use crate::output;
use crate::plan::HostPlan;
use crate::plan::mesh::PREFERRED_GID_INDEX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// What is set and loaded was asked, and is known.
    Shown,
    /// What is set and loaded was asked, and is not known of each function.
    NotObserved,
    /// What was asked for is loaded; nothing was touched.
    InSync,
    /// It is loaded now.
    Applied,
    /// There is something to do (`--check`, `--dry-run`).
    WorkToDo,
    /// A function must not be re-initialised, or cannot be.
    Refused,
    /// A function was re-initialised and was not back in time.
    NotReady,
    /// It failed; the host is as it was.
    Restored,
    /// It failed; the host is not as it was.
    NotRestored,
    /// What a run left in the middle is forgotten.
    Forgotten,
    /// There could be no verdict.
    Trouble,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    host: Option<&'a HostName>,
    plan_sha256: Option<&'a str>,
    verdict: Verdict,
    /// The functions, as they are now.
    functions: &'a [FunctionReport],
    /// What was done, or would be, in order.
    changes: &'a [ChangeReport],
    /// Functions on which what was asked for is not loaded, because of what came before.
    not_done: &'a [NetdevName],
    findings: &'a [Finding],
    /// What failed, a line each.
    failures: &'a [String],
    /// What is not as it was, or not back, a line each.
    differs: &'a [String],
    /// What a run that ended in the middle had left, a line each, which is forgotten now.
    forgotten: &'a [String],
    /// Why there could be no verdict (exit 2), a line each.
    trouble: Vec<String>,
}

/// A function's queues.
#[derive(Debug, Clone, Serialize)]
struct FunctionReport {
    /// Its network device.
    netdev: NetdevName,
    /// Its RDMA device.
    rdma: RdmaName,
    /// Its PCI address.
    pci: Fact<String>,
    /// Whether it is a port of the plan.
    planned: bool,
    /// What devlink shows, packets; `null` when the driver has no such parameter.
    hairpin_queue_size: Fact<Option<u32>>,
    /// Whether that is loaded.
    hairpin_queue_state: Fact<Applied>,
    /// What devlink shows; `null` when the driver has no such parameter.
    hairpin_num_queues: Fact<Option<u32>>,
    /// Whether that is loaded.
    hairpin_num_queues_state: Fact<Applied>,
    /// How often the driver was re-initialised.
    reload_count: Fact<u32>,
}

impl FunctionReport {
    fn of(now: &FunctionNow, planned: &[NetdevName]) -> FunctionReport {
        FunctionReport {
            netdev: now.netdev.clone(),
            rdma: now.rdma.clone(),
            pci: now.pci.as_ref().map(PciAddress::to_string),
            planned: planned.contains(&now.netdev),
            hairpin_queue_size: now.size.value.clone(),
            hairpin_queue_state: now.size.state.clone(),
            hairpin_num_queues: now.num_queues.value.clone(),
            hairpin_num_queues_state: now.num_queues.state.clone(),
            reload_count: now.reloads.clone(),
        }
    }

    fn is_observed(&self) -> bool {
        matches!(self.hairpin_queue_size, Fact::Known(Some(_)))
            && self.hairpin_queue_state.known().is_some()
    }

    fn line(&self) -> String {
        let parameter = |name: &str, value: &Fact<Option<u32>>, state: &Fact<Applied>| match value {
            Fact::Known(Some(value)) => {
                let word = match state {
                    Fact::Known(Applied::Applied) => "applied".to_owned(),
                    Fact::Known(Applied::Pending) => "pending: set and not loaded".to_owned(),
                    Fact::Known(_) => "loaded or not, nobody recorded it".to_owned(),
                    Fact::NotObserved(why) => format!("loaded or not: not observed: {why}"),
                };
                format!("{name} {value} ({word})")
            }
            Fact::Known(None) => format!("the driver has no {name}"),
            Fact::NotObserved(why) => format!("{name} not observed: {why}"),
        };
        let standing = match (&self.hairpin_queue_state, self.is_observed()) {
            (Fact::Known(Applied::Applied), true) => "ok",
            (_, true) => "warning",
            _ => "not observed",
        };
        let pci = match &self.pci {
            Fact::Known(pci) => format!("pci/{pci}"),
            Fact::NotObserved(_) => "no PCI function".into(),
        };
        let reloads = match &self.reload_count {
            Fact::Known(count) => format!("re-initialised {count} times"),
            Fact::NotObserved(why) => format!("re-initialisations not observed: {why}"),
        };
        format!(
            "{} {} {} {pci}: {}, {}, {reloads}{}\n",
            output::standing(standing),
            self.netdev,
            self.rdma,
            parameter(
                HairpinParameter::QueueSize.name(),
                &self.hairpin_queue_size,
                &self.hairpin_queue_state
            ),
            parameter(
                HairpinParameter::NumQueues.name(),
                &self.hairpin_num_queues,
                &self.hairpin_num_queues_state
            ),
            if self.planned {
                ""
            } else {
                ", not in the plan"
            }
        )
    }
}

const REPORT: &str = "hairpin-mesh.hairpin-queue-report/v1";

pub(super) fn run(args: HairpinQueueArgs) -> Result<Exit, Trouble> {
    let mut queue = Queue::default();
    match queue.run(&args) {
        Ok(verdict) => {
            queue.say(&args, verdict)?;
            Ok(match verdict {
                // Showing what would be done is all that was asked for.
                _ if args.dry_run => Exit::Yes,
                Verdict::Shown | Verdict::InSync | Verdict::Applied | Verdict::Forgotten => {
                    Exit::Yes
                }
                Verdict::NotObserved | Verdict::WorkToDo | Verdict::Refused => Exit::No,
                Verdict::NotReady => Exit::NotReady,
                Verdict::Restored => Exit::Restored,
                Verdict::NotRestored => Exit::NotRestored,
                Verdict::Trouble => Exit::Trouble,
            })
        }
        Err(trouble) => {
            if args.json {
                queue.report(Verdict::Trouble, trouble.lines())?;
            }
            Err(trouble)
        }
    }
}

/// A run, and what there is to tell of it.
#[derive(Default)]
struct Queue {
    host: Option<HostName>,
    plan_sha256: Option<String>,
    functions: Vec<FunctionReport>,
    changes: Vec<ChangeReport>,
    not_done: Vec<NetdevName>,
    findings: Vec<Finding>,
    failures: Vec<String>,
    differs: Vec<String>,
    forgotten: Vec<String>,
}

/// What is asked about: the plan's ports, and functions that are none of it.
struct Fabric<'a> {
    host: HostName,
    plan_sha256: String,
    /// This host's share of the plan.
    plan: Option<HostPlan<'a>>,
    subject: Subject,
    planned: Vec<NetdevName>,
    /// The ports that were asked for.
    chosen: Vec<SubjectPort>,
}

/// The plan's ports, else every fabric function of this host; those that are named, whatever they are.
fn fabric<'a>(args: &HairpinQueueArgs, given: Option<&'a Here>) -> Result<Fabric<'a>, Trouble> {
    let inventory =
        collect(&Options::default()).map_err(|error| Trouble::Usage(error.to_string()))?;
    let mut subject = Subject::default();
    let mut gid_index = None;
    let (host, plan_sha256, plan) = match given {
        Some(Here { document, host }) => {
            let plan = share(&document.plan, host)?;
            gid_index = Some(document.plan.gid_index);
            subject.add(&plan, document.plan.gid_index);
            (host.clone(), document.sha256(), Some(plan))
        }
        None => {
            let host = args.on.host.clone();
            (host.unwrap_or(inventory.host.clone()), String::new(), None)
        }
    };
    let planned: Vec<NetdevName> = subject.ports.iter().map(|p| p.netdev.clone()).collect();
    add_others(&mut subject, &inventory, gid_index);
    subject.settings = true;
    let chosen = if args.devices.is_empty() {
        let mine = |port: &&SubjectPort| planned.is_empty() || planned.contains(&port.netdev);
        subject.ports.iter().filter(mine).cloned().collect()
    } else {
        let mut chosen = Vec::new();
        for device in &args.devices {
            let mut ports = subject.ports.iter();
            match ports.find(|port| port.rdma == *device) {
                Some(port) if !chosen.contains(port) => chosen.push(port.clone()),
                Some(_) => {}
                None => {
                    let names: Vec<&str> = subject
                        .ports
                        .iter()
                        .map(|port| port.rdma.as_str())
                        .collect();
                    return Err(Trouble::Usage(format!(
                        "{device}: no fabric function has this RDMA device, one of {} wanted",
                        names.join(", ")
                    )));
                }
            }
        }
        chosen
    };
    if chosen.is_empty() {
        let why: Vec<String> = inventory
            .left_out
            .iter()
            .map(|hole| format!("{} {}", hole.what, hole.why))
            .collect();
        return Err(Trouble::Usage(format!(
            "this host has no fabric function: {}",
            why.join("; ")
        )));
    }
    Ok(Fabric {
        host,
        plan_sha256,
        plan,
        subject,
        planned,
        chosen,
    })
}

/// The fabric functions that are no ports of the plan.
fn add_others(subject: &mut Subject, inventory: &Inventory, gid_index: Option<u8>) {
    for facts in &inventory.ports {
        let Fact::Known(Some(rdma)) = &facts.rdma else {
            continue;
        };
        let known = |port: &SubjectPort| port.netdev == facts.netdev || port.rdma == *rdma;
        if !subject.ports.iter().any(known) {
            subject.ports.push(SubjectPort {
                netdev: facts.netdev.clone(),
                rdma: rdma.clone(),
                pci: facts.pci.known().copied().flatten(),
                gid_index: gid_index
                    .or_else(|| own_gid_index(facts))
                    .unwrap_or(PREFERRED_GID_INDEX),
            });
        }
    }
}

/// Where the table of a port has the RoCE v2 GID of one of its addresses.
fn own_gid_index(facts: &PortFacts) -> Option<u8> {
    let addresses = facts.ipv4.known()?;
    let own: Vec<Gid> = addresses
        .iter()
        .map(|address| Gid::ipv4_mapped(address.address))
        .collect();
    let Gids::Table(table) = &facts.gids else {
        return None;
    };
    table
        .iter()
        .find(|entry| entry.kind == ROCE_V2 && own.contains(&entry.gid))
        .map(|entry| entry.index)
}

impl Queue {
    fn run(&mut self, args: &HairpinQueueArgs) -> Result<Verdict, Trouble> {
        let asked: Vec<(HairpinParameter, u32)> = [
            (HairpinParameter::QueueSize, args.size),
            (HairpinParameter::NumQueues, args.num_queues),
        ]
        .into_iter()
        .filter_map(|(parameter, value)| Some((parameter, value?)))
        .collect();
        if args.forget {
            return self.forget(args);
        }
        if asked.is_empty() {
            if args.dry_run || args.check {
                return Err(Trouble::Usage(
                    "--dry-run and --check need a SIZE or --num-queues".into(),
                ));
            }
            return self.show(args);
        }
        need_root()?;
        let deadline = Instant::now() + Duration::from_secs(args.wait.into());
        let state = State::create()?;
        let lock = state.lock(deadline)?;
        let result = self.locked(args, &asked, &state);
        state.leave(lock);
        result
    }

    fn show(&mut self, args: &HairpinQueueArgs) -> Result<Verdict, Trouble> {
        let given = if no_plan(&args.on) {
            None
        } else {
            Some(here(&args.on)?)
        };
        let fabric = fabric(args, given.as_ref())?;
        self.about(&fabric);
        if let Some(plan) = &fabric.plan {
            // Of the ports alone.
            let subject = Subject {
                ports: fabric.subject.ports.clone(),
                ..Subject::default()
            };
            let present = Sources::default().read(&subject, Default::default());
            refuse_another(identity(plan, &present), &fabric.host)?;
        }
        // Showing shows all there is.
        let ports = match args.devices.is_empty() {
            true => &fabric.subject.ports,
            false => &fabric.chosen,
        };
        let functions = Sources::default().functions(ports);
        self.tell(&functions, &fabric.planned);
        Ok(if self.functions.iter().all(FunctionReport::is_observed) {
            Verdict::Shown
        } else {
            Verdict::NotObserved
        })
    }

    /// Removes what a run left in the middle, whatever it is, and tells what it says.
    fn forget(&mut self, args: &HairpinQueueArgs) -> Result<Verdict, Trouble> {
        need_root()?;
        let Some(state) = State::open()? else {
            return Ok(Verdict::InSync);
        };
        let lock = state.lock(Instant::now() + Duration::from_secs(args.wait.into()))?;
        let result = self.forget_locked(&state);
        state.leave(lock);
        result
    }

    fn forget_locked(&mut self, state: &State) -> Result<Verdict, Trouble> {
        let lines = match state.underway() {
            Ok(None) => return Ok(Verdict::InSync),
            Ok(Some(underway)) => underway.lines(),
            // It says nothing that could be told.
            Err(error @ state::Error::Document(_)) => vec![error.to_string()],
            Err(error) => return Err(error.into()),
        };
        state.note_underway(None)?;
        self.forgotten = lines;
        Ok(Verdict::Forgotten)
    }

    fn about(&mut self, fabric: &Fabric<'_>) {
        self.host = Some(fabric.host.clone());
        self.plan_sha256 = fabric.plan.as_ref().map(|_| fabric.plan_sha256.clone());
    }

    fn tell(&mut self, functions: &[FunctionNow], planned: &[NetdevName]) {
        let report = |function| FunctionReport::of(function, planned);
        self.functions = functions.iter().map(report).collect();
    }

    fn locked(
        &mut self,
        args: &HairpinQueueArgs,
        asked: &[(HairpinParameter, u32)],
        state: &State,
    ) -> Result<Verdict, Trouble> {
        let applied = applied_before(state);
        let given = match applied_in_place_of_none(&args.on, applied.as_ref()) {
            Some(here) => Some(here),
            None if no_plan(&args.on) => None,
            None => Some(here(&args.on)?),
        };
        let mut fabric = fabric(args, given.as_ref())?;
        self.about(&fabric);
        // What is there was made by the plan that was applied last, if it was another one.
        let mut wanted = fabric.plan.as_ref().map(Wanted::of).unwrap_or_default();
        if let Some(applied) = &applied {
            if let Some(old) = applied.plan.for_host(applied.host.as_str()) {
                wanted = Wanted::of(&old).and(&wanted.without(&Wanted::of(&old)));
                fabric.subject.add(&old, applied.plan.gid_index);
            }
        }
        let underway = left_underway(state)?.map(|underway| {
            let mut rows = fabric.plan.iter().flat_map(|plan| &plan.ports);
            match rows.find(|row| row.netdev == underway.netdev) {
                Some(row) => underway.as_planned(row.ipv4),
                None => underway,
            }
        });
        let mut watch = Watch::open();
        let mut node = Node {
            sources: Sources::default(),
            subject: fabric.subject.clone(),
            state,
            host: fabric.host.clone(),
            plan_sha256: fabric.plan_sha256.clone(),
            touched: wanted.clone(),
            wanted: wanted.clone(),
            before: Present::default(),
            interrupted: ends_on_signals()?,
        };
        add_port(&mut node.subject, underway.as_ref());
        let mut queues = Queues {
            node: &mut node,
            watch: &mut watch,
            planned: fabric.planned.clone(),
            allowed: Allowed {
                queue_pairs: args.destroy_queue_pairs,
                default_route: args.cut_default_route,
                unplanned: args.outside_plan,
                unobserved: args.unobserved,
            },
            patience: Duration::from_secs(args.wait.into()),
            deadline: Instant::now(),
        };
        let present = queues.node.read().map_err(Trouble::Usage)?;
        if let Some(plan) = &fabric.plan {
            refuse_another(identity(plan, &present), &fabric.host)?;
        }
        let would = args.dry_run || args.check;
        let unfinished = underway.is_some();
        let mut finished = None;
        if let Some(underway) = underway {
            if would {
                // What comes after it cannot be said before.
                let finding = left_unfinished(&fabric.host, &underway.netdev);
                self.findings.push(finding);
                return Ok(Verdict::WorkToDo);
            } else {
                let mut told = |action, remark: Option<&str>| {
                    self.changes.push(ChangeReport::of_action(action, remark));
                };
                match finish(&mut queues, &underway, &wanted, false, &mut told) {
                    Ok(done) => finished = Some((done, underway.netdev)),
                    Err(end) => {
                        return Ok(self.ended(
                            Ended {
                                done: Vec::new(),
                                at: Some(underway.netdev),
                                left: Vec::new(),
                                end,
                            },
                            state,
                        ));
                    }
                }
            }
        }
        let functions = queues.node.sources.functions(&fabric.chosen);
        self.tell(&functions, &fabric.planned);
        let loads = match loads(&fabric.host, &functions, asked) {
            Ok(loads) => loads,
            Err(findings) => {
                if let Some((finished, dev)) = &finished {
                    self.findings
                        .extend(finished.findings(&fabric.host, dev, false));
                }
                self.findings.extend(findings);
                return Ok(Verdict::Refused);
            }
        };
        if let Some((finished, dev)) = &finished {
            let its = loads.iter().any(|(now, _)| now.netdev == *dev);
            let findings = finished.findings(&fabric.host, dev, its);
            self.findings.extend(findings);
        }
        if loads.is_empty() {
            return Ok(if unfinished {
                Verdict::Applied
            } else {
                Verdict::InSync
            });
        }
        let due: Vec<FunctionNow> = loads.iter().map(|(now, _)| (*now).clone()).collect();
        let blockers = queues.blockers_of(&due, &present);
        let refused = !blockers.is_empty();
        self.findings.extend(blockers);
        if refused {
            return Ok(Verdict::Refused);
        }
        if would {
            for (function, load) in &loads {
                let actions = preview(function, load, &wanted, &present);
                self.changes.extend(
                    actions
                        .into_iter()
                        .map(|action| ChangeReport::of_action(action, None)),
                );
            }
            return Ok(Verdict::WorkToDo);
        }
        let names: Vec<NetdevName> = due.iter().map(|now| now.netdev.clone()).collect();
        let mut told = |action: crate::mesh::queue::Action, remark: Option<&str>| {
            self.changes.push(ChangeReport::of_action(action, remark));
        };
        let ended = load(&mut queues, &names, asked, &wanted, &mut told);
        let functions = queues.node.sources.functions(&fabric.chosen);
        self.tell(&functions, &fabric.planned);
        Ok(self.ended(ended, state))
    }

    fn ended(&mut self, ended: Ended, state: &State) -> Verdict {
        let told = Told::of(ended, state);
        self.not_done = told.not_done;
        self.findings.extend(told.findings);
        self.failures = told.failures;
        self.differs = told.differs;
        match told.how {
            How::Done => Verdict::Applied,
            How::Refused => Verdict::Refused,
            How::NotBack => Verdict::NotReady,
            How::Restored => Verdict::Restored,
            How::NotRestored => Verdict::NotRestored,
        }
    }

    fn say(&self, args: &HairpinQueueArgs, verdict: Verdict) -> Result<(), Trouble> {
        let host = self.host.as_ref().map_or("this host", HostName::as_str);
        output::findings(&self.findings);
        for line in self.failures.iter().chain(&self.differs) {
            output::failure(line);
        }
        for dev in &self.not_done {
            output::warning(&format!("{dev}: not done"));
        }
        if args.json {
            return self.report(verdict, Vec::new());
        }
        let mut text = lines(&self.changes, args.dry_run || args.check);
        for line in &self.forgotten {
            text += &format!("ok    forgotten: {line}\n");
        }
        match verdict {
            Verdict::WorkToDo => {}
            _ => text.extend(self.functions.iter().map(FunctionReport::line)),
        }
        text += &match verdict {
            Verdict::InSync if args.forget => format!("{host}: nothing to forget\n"),
            Verdict::InSync => format!("{host}: nothing to do\n"),
            Verdict::Forgotten => {
                format!("{host}: forgotten; what is not back is not waited for any more\n")
            }
            Verdict::Applied => format!("{host}: done\n"),
            Verdict::WorkToDo => format!("{host}: {} to do\n", self.changes.len()),
            Verdict::Refused if self.changes.is_empty() => format!("{host}: nothing was changed\n"),
            Verdict::Refused => format!("{host}: stopped\n"),
            Verdict::NotReady => format!("{host}: re-initialised, and not back in time\n"),
            Verdict::Restored => format!("{host}: failed; the host is as it was\n"),
            Verdict::NotRestored => format!("{host}: failed, and the host is not as it was\n"),
            Verdict::Shown | Verdict::NotObserved | Verdict::Trouble => String::new(),
        };
        output::result(&text)?;
        Ok(())
    }

    fn report(&self, verdict: Verdict, trouble: Vec<String>) -> Result<(), Trouble> {
        let report = Report {
            schema: REPORT,
            host: self.host.as_ref(),
            plan_sha256: self.plan_sha256.as_deref(),
            verdict,
            functions: &self.functions,
            changes: &self.changes,
            not_done: &self.not_done,
            findings: &self.findings,
            failures: &self.failures,
            differs: &self.differs,
            forgotten: &self.forgotten,
            trouble,
        };
        output::result(&crate::json::pretty(&report))?;
        Ok(())
    }
}

/// Adds the port of what is underway to what is asked about, where the plan has it no more.
pub(super) fn add_port(subject: &mut Subject, underway: Option<&crate::mesh::queue::Underway>) {
    let Some(underway) = underway else { return };
    let known = |port: &SubjectPort| port.netdev == underway.netdev;
    if !subject.ports.iter().any(known) {
        subject.ports.push(SubjectPort {
            netdev: underway.netdev.clone(),
            rdma: underway.rdma.clone(),
            pci: Some(underway.pci),
            gid_index: subject
                .ports
                .first()
                .map_or(PREFERRED_GID_INDEX, |port| port.gid_index),
        });
    }
}

/// What an earlier run left in the middle, where this one may change nothing.
pub(super) fn left_unfinished(host: &HostName, dev: &NetdevName) -> Finding {
    Finding::warning(
        "hairpin-queue-unfinished",
        "a run that was to re-initialise it ended in the middle",
        "its end",
    )
    .advise("hairpin-mesh up, or hairpin-queue SIZE, goes on from there; up --force also gives up what does not come back")
    .on(host)
    .at(dev)
}

/// The functions that need a re-initialisation, in order; why it cannot be done on some.
pub(super) fn loads<'a>(
    host: &HostName,
    functions: &'a [FunctionNow],
    asked: &[(HairpinParameter, u32)],
) -> Result<Vec<(&'a FunctionNow, Load)>, Vec<Finding>> {
    let (mut loads, mut findings) = (Vec::new(), Vec::new());
    for function in functions {
        match due(function, asked) {
            Due::Nothing => {}
            Due::Load(load) => loads.push((function, load)),
            Due::Cannot(why) => findings.push(
                Finding::problem("hairpin-queue-unknown", why, asked_words(asked))
                    .on(host)
                    .at(&function.netdev),
            ),
        }
    }
    if findings.is_empty() {
        Ok(loads)
    } else {
        Err(findings)
    }
}

fn asked_words(asked: &[(HairpinParameter, u32)]) -> String {
    let words: Vec<String> = asked
        .iter()
        .map(|(parameter, value)| format!("{parameter} {value}"))
        .collect();
    words.join(", ")
}

/// How loading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Done,
    Refused,
    NotBack,
    Restored,
    NotRestored,
}

/// What there is to tell of how loading ended.
pub(super) struct Told {
    pub(super) how: How,
    pub(super) not_done: Vec<NetdevName>,
    pub(super) findings: Vec<Finding>,
    pub(super) failures: Vec<String>,
    pub(super) differs: Vec<String>,
}

impl Told {
    pub(super) fn of(ended: Ended, state: &State) -> Told {
        let Ended {
            done,
            at,
            left,
            end,
        } = ended;
        let mut told = Told {
            how: How::Done,
            not_done: left,
            findings: Vec::new(),
            failures: Vec::new(),
            differs: Vec::new(),
        };
        // One that is not back has loaded what was asked for.
        if !matches!(end, End::NotBack { .. }) {
            told.not_done.splice(0..0, at);
        }
        match end {
            End::Done => {}
            End::Refused { findings } => {
                told.how = How::Refused;
                told.findings = findings;
            }
            End::NotBack { missing } => {
                told.how = How::NotBack;
                told.failures = missing;
            }
            End::Restored { why } => {
                told.how = How::Restored;
                told.failures = why;
                // A re-initialisation is never taken back by another.
                if !done.is_empty() {
                    told.how = How::NotRestored;
                    let stays = |dev: &NetdevName| format!("{dev}: re-initialised, and stays so");
                    told.differs = done.iter().map(stays).collect();
                }
            }
            End::NotRestored { why, differs } => {
                told.how = How::NotRestored;
                told.failures = why;
                told.differs = differs;
            }
        }
        if matches!(state.underway(), Ok(Some(_))) {
            told.differs.push(format!(
                "how the port was is kept in {}, and the next run goes on from it; hairpin-mesh up --force gives up what does not come back",
                state.underway_path().display()
            ));
        }
        told
    }
}
