//! Changes carried out on this host: by netlink, and markers by systemd.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::facts::{Filter, Side};
use crate::kernel::change::Existing;
use crate::kernel::netlink;
use crate::kernel::refusal::{Attempt, Situation, sentence, situation};
use crate::kernel::route::{Link, Rtnetlink};
use crate::mesh::apply::{Failure, Platform, Step};
use crate::mesh::change::Change;
use crate::mesh::compare::{State as ObjectState, compare, differences, reads_back, same_keys};
use crate::mesh::present::Present;
use crate::mesh::wanted::Wanted;
use crate::names::{HostName, NetdevName, RdmaName};
use crate::node::read::{Sources, Subject};
use crate::node::state::State;
use crate::plan::mesh::marker_unit;

/// Why work ended that a signal ended.
pub const INTERRUPTED: &str = "interrupted by a signal";

/// How long a marker's unit may take to start or stop: twice what its unit file allows.
const UNIT_LIMIT: Duration = Duration::from_secs(60);

/// This host, being changed.
pub struct Node<'a> {
    /// The kernel and systemd.
    pub sources: Sources,
    /// What this run asks about.
    pub subject: Subject,
    /// What this program remembers.
    pub state: &'a State,
    /// What the plan calls this host.
    pub host: HostName,
    /// SHA-256 of the plan that is applied.
    pub plan_sha256: String,
    /// What the host is to have.
    pub wanted: Wanted,
    /// What this run may change: what the host is to have, and what an earlier plan left.
    pub touched: Wanted,
    /// What it had before the first change.
    pub before: Present,
    /// Set by a signal.
    pub interrupted: Arc<AtomicBool>,
}

impl Node<'_> {
    /// What the host has now.
    pub fn read(&mut self) -> Result<Present, String> {
        let recorded = self.state.recorded_clsacts().map_err(|e| e.to_string())?;
        Ok(self.sources.read(&self.subject, recorded))
    }

    fn route(&mut self) -> Result<(&mut Rtnetlink, &[Link]), Failure> {
        self.sources
            .route()
            .map_err(|error| Failure::clean(error.to_string()))
    }

    fn index(&self, dev: &NetdevName) -> Result<u32, Failure> {
        let mut links = self.sources.links.iter();
        links
            .find(|link| link.name == *dev)
            .map(|link| link.index)
            .ok_or_else(|| Failure::clean(format!("there is no network device {dev}")))
    }

    /// One request to the kernel about what is on a port.
    fn on_port(
        &mut self,
        attempt: Attempt,
        dev: &NetdevName,
        request: impl FnOnce(&mut Rtnetlink, u32, &[Link]) -> Result<Option<String>, netlink::Error>,
    ) -> Result<Option<String>, Failure> {
        let removes = removes(&attempt);
        let index = self.index(dev).map_err(|failure| Failure {
            // What was on a device goes with it.
            already: removes,
            ..failure
        })?;
        let (route, links) = self.route()?;
        request(route, index, links).map_err(|error| failure(&attempt, &error))
    }

    fn add_clsact(&mut self, dev: &NetdevName) -> Result<Option<String>, Failure> {
        // The record first: a clsact without one would stay for ever.
        self.state
            .record_clsact(dev)
            .map_err(|e| Failure::clean(e.to_string()))?;
        let attempt = Attempt::AddClsact(dev);
        let result = self.on_port(attempt, dev, |route, index, _| route.add_clsact(index));
        if result.as_ref().is_err_and(|failure| !failure.half_done) {
            // Not made by us: without the record it is not taken for ours.
            self.state.forget_clsact(dev).map_err(|e| Failure {
                half_done: true,
                ..Failure::clean(e.to_string())
            })?;
        }
        result
    }

    fn remove_clsact(&mut self, dev: &NetdevName) -> Result<Option<String>, Failure> {
        let removed = self.remove_empty_clsact(dev);
        match removed {
            Err(failure) if !failure.already => return Err(failure),
            _ => {}
        }
        self.state.forget_clsact(dev).map_err(|e| Failure {
            half_done: true,
            ..Failure::clean(e.to_string())
        })?;
        removed
    }

    fn remove_empty_clsact(&mut self, dev: &NetdevName) -> Result<Option<String>, Failure> {
        for side in [Side::Ingress, Side::Egress] {
            let mut count = 0;
            self.on_port(Attempt::DeleteClsact(dev), dev, |route, index, links| {
                let listing = route.filters(index, side, links)?;
                count = listing.rows.len() + listing.left_out.len();
                Ok(None)
            })?;
            if count > 0 {
                return Err(Failure::clean(format!(
                    "{dev}: {count} filters are at its {side} now, so its clsact qdisc stays"
                )));
            }
        }
        self.on_port(Attempt::DeleteClsact(dev), dev, |route, index, _| {
            route.delete_clsact(index)
        })
    }

    fn replace_rule(
        &mut self,
        dev: &NetdevName,
        old: &Filter,
        new: &Filter,
    ) -> Result<Option<String>, Failure> {
        let mut gap =
            "the old rule looks at other bits, so it was removed first, with a gap between";
        if leads_nowhere(old) {
            // The NIC keeps a hairpin for as long as a rule uses it, and would give a dead one to the new
            // rule (by reading mlx5: `mlx5e_hairpin_get` finds it by the peer's number).
            gap = "the old rule led to a device that is gone, so it was removed first";
        } else if same_keys(old, new) {
            let index = self.index(dev)?;
            let (route, links) = self.route()?;
            match route.add_filter(index, new, Existing::Replace, links) {
                Ok(said) => return Ok(said),
                // A driver may refuse a second rule with the same match until the first is gone.
                Err(error) if error.errno() == Some(libc::EEXIST) => {
                    gap = "the driver takes no second rule with the same match, so the old one was removed first, with a gap between";
                }
                Err(error) => return Err(failure(&Attempt::AddFilter(dev, new), &error)),
            }
        }
        self.on_port(Attempt::DeleteFilter(dev, old), dev, |route, index, _| {
            route.delete_filter(index, old)
        })?;
        let added = self.on_port(Attempt::AddFilter(dev, new), dev, |route, index, links| {
            route.add_filter(index, new, Existing::Refuse, links)
        });
        match added {
            Ok(said) => Ok(Some(
                said.map_or(gap.to_owned(), |said| format!("{gap}; {said}")),
            )),
            Err(failure) => Err(Failure {
                half_done: true,
                ..failure
            }),
        }
    }

    fn unit(
        &mut self,
        device: &RdmaName,
        act: impl FnOnce(
            &mut crate::kernel::systemd::Systemd,
            &str,
            Instant,
        ) -> Result<(), crate::kernel::systemd::Error>,
    ) -> Result<Option<String>, Failure> {
        let unit = marker_unit(device);
        match self.sources.systemd() {
            Ok(systemd) => match act(systemd, &unit, Instant::now() + UNIT_LIMIT) {
                Ok(()) => Ok(None),
                // A unit that failed may be on its way to another try.
                Err(error) => Err(Failure {
                    half_done: true,
                    ..Failure::clean(format!("{unit}: {error}"))
                }),
            },
            Err(error) => Err(Failure::clean(error.to_string())),
        }
    }
}

fn removes(attempt: &Attempt) -> bool {
    matches!(
        attempt,
        Attempt::DeleteClsact(_)
            | Attempt::DeleteFilter(..)
            | Attempt::DeleteRoute(_)
            | Attempt::DeleteNeighbour(..)
    )
}

/// Whether a rule redirects to a device that is gone.
fn leads_nowhere(rule: &Filter) -> bool {
    let actions = rule.flower.iter().flat_map(|flower| &flower.actions);
    actions
        .filter_map(|action| action.mirred.as_ref())
        .any(|mirred| mirred.dev.is_none())
}

/// Why the kernel did not do as asked.
pub(super) fn failure(attempt: &Attempt, error: &netlink::Error) -> Failure {
    let situation = situation(attempt, error);
    Failure {
        why: sentence(attempt, error),
        // Without an answer it is not known what the kernel did.
        half_done: !matches!(
            error,
            netlink::Error::Kernel(_) | netlink::Error::Unwritable(_)
        ),
        already: removes(attempt) && matches!(situation, Situation::Gone | Situation::NoDevice),
    }
}

impl Platform for Node<'_> {
    fn journal(&mut self, steps: &[Step]) -> Result<(), String> {
        self.state
            .write_journal(&self.host, &self.plan_sha256, steps)
            .map_err(|e| e.to_string())
    }

    fn end_journal(&mut self) -> Result<(), String> {
        self.state.remove_journal().map_err(|e| e.to_string())
    }

    fn carry_out(&mut self, change: &Change) -> Result<Option<String>, Failure> {
        match change {
            Change::AddClsact { dev } => self.add_clsact(dev),
            Change::RemoveClsact { dev } => self.remove_clsact(dev),
            Change::ForgetClsact { dev } => self
                .state
                .forget_clsact(dev)
                .map(|()| None)
                .map_err(|e| Failure::clean(e.to_string())),
            Change::AddRule { dev, rule } => {
                self.on_port(Attempt::AddFilter(dev, rule), dev, |route, index, links| {
                    route.add_filter(index, rule, Existing::Refuse, links)
                })
            }
            Change::ReplaceRule { dev, old, new } => self.replace_rule(dev, old, new),
            Change::RemoveRule { dev, rule } => {
                self.on_port(Attempt::DeleteFilter(dev, rule), dev, |route, index, _| {
                    route.delete_filter(index, rule)
                })
            }
            // One whose device was away may have failed too often for systemd to start it again.
            Change::StartMarker { device } => self.unit(device, |systemd, unit, by| {
                systemd.forget_failure(unit)?;
                systemd.start(unit, by)
            }),
            Change::RestartMarker { device } => self.unit(device, |systemd, unit, by| {
                systemd.forget_failure(unit)?;
                systemd.restart(unit, by)
            }),
            Change::StopMarker { device } => {
                // One that failed to start is not left as failed: it was not before.
                self.unit(device, |systemd, unit, by| {
                    systemd.stop(unit, by)?;
                    systemd.forget_failure(unit)
                })
            }
            Change::AddNeighbour { dev, neighbour } => {
                let Some(mac) = neighbour.mac else {
                    return Err(Failure::clean("a neighbour without a MAC"));
                };
                let attempt = Attempt::SetNeighbour(dev, neighbour.address);
                self.on_port(attempt, dev, |route, index, _| {
                    route.set_neighbour(index, neighbour.address, mac)
                })
            }
            Change::RemoveNeighbour { dev, neighbour } => {
                let attempt = Attempt::DeleteNeighbour(dev, neighbour.address);
                self.on_port(attempt, dev, |route, index, _| {
                    route.delete_neighbour(index, neighbour.address)
                })
            }
            Change::AddRoute { route: wanted } => {
                let (route, links) = self.route()?;
                route
                    .add_route(wanted, Existing::Refuse, links)
                    .map_err(|error| failure(&Attempt::AddRoute(wanted), &error))
            }
            Change::ReplaceRoute { new, .. } => {
                let (route, links) = self.route()?;
                route
                    .add_route(new, Existing::Replace, links)
                    .map_err(|error| failure(&Attempt::AddRoute(new), &error))
            }
            Change::RemoveRoute { route: ours } => {
                let (route, links) = self.route()?;
                route
                    .delete_route(ours, links)
                    .map_err(|error| failure(&Attempt::DeleteRoute(ours), &error))
            }
        }
    }

    fn not_as_wanted(&mut self) -> Vec<String> {
        match self.read() {
            Ok(present) => compare(&self.wanted, &present)
                .iter()
                .filter(|row| row.state != ObjectState::Right)
                .map(reads_back)
                .collect(),
            Err(why) => vec![why],
        }
    }

    fn not_as_before(&mut self) -> Vec<String> {
        match self.read() {
            Ok(present) => differences(&self.touched, &self.before, &present),
            Err(why) => vec![why],
        }
    }

    fn interrupted(&mut self) -> Option<String> {
        self.interrupted
            .load(Ordering::Relaxed)
            .then(|| INTERRUPTED.to_owned())
    }
}
