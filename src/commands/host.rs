//! What the verbs on a node share.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::Trouble;
use crate::cli::HostArgs;
use crate::finding::Finding;
use crate::mesh::change::Change;
use crate::mesh::compare::{Row, State};
use crate::mesh::condition::Identity;
use crate::mesh::queue::{Action, Underway};
use crate::names::HostName;
use crate::node::identity::{INSTALLED_PLAN, PlanDocument, is_root, own_name, read_plan};
use crate::node::state::{self, Applied};
use crate::output;
use crate::plan::mesh::{ENGINE_OFF, WANTED_HAIRPIN_QUEUE};
use crate::plan::{HostPlan, OppositePaths, Plan};

/// Signals that end a process, heeded between two steps of what must not end in the middle.
pub(super) struct Signals {
    came: Arc<AtomicBool>,
    /// Whether they end the process by themselves again.
    over: Arc<AtomicBool>,
}

impl Signals {
    /// From now on until this is dropped.
    pub(super) fn heed() -> Result<Signals, Trouble> {
        let over = Arc::new(AtomicBool::new(false));
        for signal in ENDING {
            // In this order: while it is over, the process ends here.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&over))?;
        }
        let came = ends_on_signals()?;
        Ok(Signals { came, over })
    }

    /// Set by a signal.
    pub(super) fn came(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.came)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

const ENDING: [i32; 3] = [
    signal_hook::consts::SIGINT,
    signal_hook::consts::SIGTERM,
    signal_hook::consts::SIGHUP,
];

/// A flag that a signal which ends a process sets.
pub(super) fn ends_on_signals() -> Result<Arc<AtomicBool>, Trouble> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in ENDING {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    Ok(interrupted)
}

/// The plan and the host of it that this is.
pub(super) struct Here {
    pub(super) document: PlanDocument,
    pub(super) host: HostName,
}

/// Refuses who is not root.
pub(super) fn need_root() -> Result<(), Trouble> {
    if is_root() {
        Ok(())
    } else {
        Err(Trouble::Usage(
            "must run as root: it changes routes, tc rules and systemd units".into(),
        ))
    }
}

/// Reads the plan and finds this host in it.
pub(super) fn here(args: &HostArgs) -> Result<Here, Trouble> {
    let document = read_plan(&args.plan)?;
    let host = own_name(&document.plan, args.host.as_ref())?;
    Ok(Here { document, host })
}

/// Whether no plan is named and none is installed.
pub(super) fn no_plan(args: &HostArgs) -> bool {
    let installed = Path::new(INSTALLED_PLAN);
    args.plan == installed && std::fs::symlink_metadata(installed).is_err()
}

/// The plan that was applied last, where no plan is named and none is installed any more.
pub(super) fn applied_in_place_of_none(args: &HostArgs, applied: Option<&Applied>) -> Option<Here> {
    Some(as_applied(args, applied.filter(|_| no_plan(args))?))
}

fn as_applied(args: &HostArgs, applied: &Applied) -> Here {
    let bytes = crate::json::pretty(&applied.plan).into_bytes();
    Here {
        document: PlanDocument {
            plan: applied.plan.clone(),
            bytes,
        },
        host: args.host.clone().unwrap_or_else(|| applied.host.clone()),
    }
}

/// What `down` goes by: the plan; where none is named, and the installed one is gone or does not tell what this
/// host is, the one that was applied last, which is what there is to remove.
pub(super) fn here_or_applied(args: &HostArgs, applied: Option<&Applied>) -> Result<Here, Trouble> {
    if let Some(here) = applied_in_place_of_none(args, applied) {
        return Ok(here);
    }
    match (here(args), applied) {
        (Err(trouble), Some(applied)) if args.plan == Path::new(INSTALLED_PLAN) => {
            for line in trouble.lines() {
                output::warning(&format!("{line}; going by the plan that was applied last"));
            }
            Ok(as_applied(args, applied))
        }
        (result, _) => result,
    }
}

/// The share of the plan that a host of it has.
pub(super) fn share<'a>(plan: &'a Plan, host: &HostName) -> Result<HostPlan<'a>, Trouble> {
    plan.for_host(host.as_str())
        .ok_or_else(|| Trouble::Usage(format!("the plan has no host {host}")))
}

/// The plan that was applied last; none, with a warning, when what says so cannot be read.
pub(super) fn applied_before(state: &state::State) -> Option<Applied> {
    state.applied().unwrap_or_else(|error| {
        output::warning(&format!("{error}; what an earlier plan left is not known"));
        None
    })
}

/// What a run left that ended in the middle of a re-initialisation.
pub(super) fn left_underway(state: &state::State) -> Result<Option<Underway>, Trouble> {
    state.underway().map_err(|error| {
        let way_out = "hairpin-mesh hairpin-queue --forget shows and removes it";
        Trouble::Usage(format!("{error}; {way_out}"))
    })
}

/// Why the plan is not for this host, or cannot be known to be: trouble, nothing done.
pub(super) fn refuse_another(identity: Identity, host: &HostName) -> Result<(), Trouble> {
    let (findings, or) = match identity {
        Identity::This { .. } => return Ok(()),
        Identity::Another(findings) => (findings, ""),
        Identity::NoPort(finding) => (
            vec![finding],
            ", or its NIC is gone (hairpin-mesh doctor tells)",
        ),
        Identity::NotObserved(why) => {
            return Err(Trouble::Usage(format!(
                "whether this is {host} of the plan cannot be seen: {why}; nothing was changed"
            )));
        }
    };
    let mut lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    lines.push(format!(
        "this is not {host} of this plan{or}; nothing was changed"
    ));
    Err(Trouble::Several(lines))
}

/// An obstacle as a finding. `wanted` is what the object is to become: as planned, or gone.
pub(super) fn obstacle(host: &HostName, row: &Row, wanted: &str) -> Finding {
    let (code, found, advice) = match &row.state {
        State::InTheWay { what, advice, .. } => (
            "in-the-way",
            format!("in the way and not ours, left alone: {}", what.join("; ")),
            Some(advice.clone()),
        ),
        State::NotObserved(why) => ("not-observed", format!("not observed: {why}"), None),
        State::NoPort => ("port-missing", "its port is not there".into(), None),
        state => ("not-as-planned", state.to_string(), None),
    };
    let mut finding = Finding::problem(code, found, wanted)
        .on(host)
        .at(&row.object);
    finding.advice = advice;
    finding
}

/// A change as reports have it.
#[derive(Debug, Serialize)]
pub(super) struct ChangeReport {
    /// The change in words.
    pub(super) what: String,
    /// The change.
    #[serde(flatten)]
    pub(super) change: Action,
    /// What the kernel remarked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remark: Option<String>,
}

/// Changes for people, a line each: done, or what would be.
pub(super) fn lines(changes: &[ChangeReport], would: bool) -> String {
    let word = if would { "would" } else { "ok   " };
    let line = |change: &ChangeReport| match &change.remark {
        Some(remark) => format!("{word} {} ({remark})\n", change.what),
        None => format!("{word} {}\n", change.what),
    };
    changes.iter().map(line).collect()
}

impl ChangeReport {
    pub(super) fn of(change: &Change, remark: Option<&str>) -> ChangeReport {
        ChangeReport::of_action(change.clone().into(), remark)
    }

    pub(super) fn of_action(change: Action, remark: Option<&str>) -> ChangeReport {
        ChangeReport {
            what: change.to_string(),
            change,
            remark: remark.map(str::to_owned),
        }
    }
}

/// What has to be so before a mesh goes: the engine's environment, told before anything is done.
pub(super) fn engine_first(plan: &Plan) -> String {
    format!(
        "first, on every node, the engine's environment: {ENGINE_OFF} in place of {}",
        plan.env.to_string().trim_end()
    )
}

/// Asks on the terminal whether to go on; `false` where there is none.
pub(super) fn agreed() -> bool {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return false;
    }
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "go on all the same? [y/N] ").and_then(|()| stderr.flush());
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
}

/// The command that makes the plan again, while the hairpin queues hold more than it was made for: its
/// size cap follows from them. `folder` is where the plan is, when it is in a plan folder.
pub(super) fn plan_again(plan: &Plan, folder: Option<&Path>, applied: u32) -> Option<String> {
    if applied <= plan.hairpin_queue_size {
        return None;
    }
    let folder = folder.map_or_else(|| "ring-mesh".to_owned(), |path| path.display().to_string());
    let mut line = format!("hairpin-mesh plan --out {folder}");
    if plan.opposite_paths == OppositePaths::Four {
        line += " --opposite-paths 4";
    }
    match plan.hairpin_queue_wanted {
        None => line += " --hairpin-queue keep",
        Some(WANTED_HAIRPIN_QUEUE) => {}
        Some(size) => line += &format!(" --hairpin-queue {size}"),
    }
    for host in &plan.hosts {
        line += &format!(" {host}");
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let bytes = include_bytes!("../../plans/tp-along-ring/ring-mesh/plan.json");
        Plan::from_json("plan.json", bytes).unwrap()
    }

    #[test]
    fn a_plan_is_made_again_while_more_is_applied_than_it_was_made_for() {
        let mut plan = plan();
        assert_eq!(plan.hairpin_queue_size, 1024);
        assert_eq!(plan_again(&plan, None, 1024), None);
        assert_eq!(
            plan_again(&plan, None, 8192).unwrap(),
            "hairpin-mesh plan --out ring-mesh spark1 spark2 spark3 spark4"
        );
        plan.hairpin_queue_wanted = Some(4096);
        plan.opposite_paths = OppositePaths::Four;
        assert_eq!(
            plan_again(&plan, Some(Path::new("x/y")), 2048).unwrap(),
            "hairpin-mesh plan --out x/y --opposite-paths 4 --hairpin-queue 4096 spark1 spark2 spark3 spark4"
        );
        plan.hairpin_queue_size = 8192;
        assert_eq!(plan_again(&plan, None, 8192), None);
    }

    #[test]
    fn what_goes_first_is_the_engines_environment_on_one_line() {
        let line = engine_first(&plan());
        assert!(
            line.contains(
                "DSV41_ROCE_RING=0 SGLANG_ROCE_ALLREDUCE=0 in place of DSV41_ROCE_RING=1"
            )
        );
        assert!(
            line.contains("DSV41_ROCE_GATHER=") && line.lines().count() == 1,
            "{line}"
        );
    }
}
