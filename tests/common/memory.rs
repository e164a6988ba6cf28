//! A host in memory: what the mesh compares with, and the twin of the kernel and systemd that takes its
//! changes, and fails when it is told to.

use std::collections::{BTreeMap, BTreeSet};

use hairpin_mesh::facts::{Applied, Fact, Filter, GidEntry, Qdisc, ROCE_V2, Side, Trust};
use hairpin_mesh::mesh::apply::{Failure, Platform, Step};
use hairpin_mesh::mesh::change::Change;
use hairpin_mesh::mesh::compare::{State, compare, differences, reads_back};
use hairpin_mesh::mesh::present::{LinkNow, MarkerNow, PortMore, PortNow, Present};
use hairpin_mesh::mesh::wanted::Wanted;
use hairpin_mesh::names::Gid;
use hairpin_mesh::plan::{HostPlan, Plan};

/// The plan of a case below `plans`.
pub fn plan(case: &str) -> Plan {
    let path = format!(
        "{}/plans/{case}/ring-mesh/plan.json",
        env!("CARGO_MANIFEST_DIR")
    );
    Plan::from_json(&path, &std::fs::read(&path).unwrap()).unwrap()
}

/// A host as its plan wants its ports, without anything of the mesh.
pub fn bare(plan: &Plan, host: &HostPlan) -> Present {
    let ports = host
        .ports
        .iter()
        .enumerate()
        .map(|(i, row)| PortNow {
            netdev: row.netdev.clone(),
            link: Fact::Known(Some(LinkNow {
                index: 10 + i as u32,
                mac: Some(row.mac),
                mtu: Some(plan.mtu),
                state: "up".into(),
                rx_dropped: Some(0),
            })),
            addresses: Fact::Known(vec![row.ipv4]),
            offload: Fact::Known(true),
            steering: Fact::Known(Some("hmfs".into())),
            rdma_state: Fact::Known(Some("ACTIVE".into())),
            gid: Fact::Known(Some(GidEntry {
                index: plan.gid_index,
                gid: Gid::ipv4_mapped(row.ipv4.address),
                kind: ROCE_V2.into(),
                netdev: Some(row.netdev.clone()),
            })),
            qdiscs: Fact::Known(vec![qdisc("mq", "0:", "root")]),
            filters: Fact::Known(Vec::new()),
            neighbours: Fact::Known(Vec::new()),
            more: PortMore {
                eswitch: Fact::Known(Some("legacy".into())),
                rdma_active_mtu: Fact::Known(4096),
                trust: Fact::Known(Trust::Pcp),
                queue_size: Fact::Known(Some(8192)),
                queue_state: Fact::Known(Applied::Applied),
                num_queues: Fact::Known(Some(4)),
                queue_pairs: Fact::Known(Vec::new()),
            },
        })
        .collect();
    Present {
        ports,
        routes: Fact::Known(Vec::new()),
        markers: host
            .markers
            .iter()
            .map(|row| (row.device.clone(), Fact::Known(marker("inactive"))))
            .collect(),
        recorded_clsacts: BTreeSet::new(),
        dropped_when_made: BTreeMap::new(),
    }
}

pub fn qdisc(kind: &str, handle: &str, parent: &str) -> Qdisc {
    Qdisc {
        kind: kind.into(),
        handle: handle.into(),
        parent: parent.into(),
        other: None,
    }
}

pub fn marker(active: &str) -> MarkerNow {
    MarkerNow {
        active: active.into(),
        sub: if active == "active" {
            "running"
        } else {
            "dead"
        }
        .into(),
        pid: if active == "active" { 4711 } else { 0 },
        holds_device: Fact::Known(active == "active"),
    }
}

/// What a change does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is refused, and nothing is made.
    Refused,
    /// It is made, and no answer comes.
    NoAnswer,
    /// It is not made, and no answer comes.
    Lost,
    /// It is said to be made, and is not.
    Lie,
}

/// The twin.
pub struct Memory {
    pub present: Present,
    pub before: Present,
    pub wanted: Wanted,
    /// Changes that were asked for so far, those that take back included.
    pub calls: usize,
    /// The calls that go wrong.
    pub faults: BTreeMap<usize, Fault>,
    /// The journal as it stands; `None` when there is none.
    pub journal: Option<Vec<Step>>,
    /// The writing of the journal that fails.
    pub journal_fails_at: Option<usize>,
    pub journals: usize,
    /// The look for a signal that finds one.
    pub signal_at: Option<usize>,
    pub looks: usize,
    /// What was carried out, as the journal stood at that moment.
    pub log: Vec<(Change, Option<Vec<Step>>)>,
}

impl Memory {
    pub fn new(present: Present, wanted: Wanted) -> Memory {
        Memory {
            before: present.clone(),
            present,
            wanted,
            calls: 0,
            faults: BTreeMap::new(),
            journal: None,
            journal_fails_at: None,
            journals: 0,
            signal_at: None,
            looks: 0,
            log: Vec::new(),
        }
    }

    /// What is not as wanted.
    pub fn not_as_wanted_now(&mut self) -> Vec<String> {
        self.not_as_wanted()
    }

    fn make(&mut self, change: &Change) -> Result<(), Failure> {
        let present = &mut self.present;
        match change {
            Change::AddClsact { dev } => {
                present.recorded_clsacts.insert(dev.clone());
                let qdiscs = known(&mut port(&mut present.ports, dev).qdiscs);
                if qdiscs.iter().any(|q| q.parent.as_str() == "ffff:fff1") {
                    present.recorded_clsacts.remove(dev);
                    return Err(Failure::clean("File exists"));
                }
                qdiscs.push(qdisc("clsact", "ffff:", "ffff:fff1"));
            }
            Change::RemoveClsact { dev } => {
                let port = port(&mut present.ports, dev);
                if !known(&mut port.filters).is_empty() {
                    return Err(Failure::clean("filters are on it"));
                }
                let qdiscs = known(&mut port.qdiscs);
                let before = qdiscs.len();
                qdiscs.retain(|q| q.kind.as_str() != "clsact");
                let gone = qdiscs.len() == before;
                present.recorded_clsacts.remove(dev);
                if gone {
                    return Err(absent());
                }
            }
            Change::ForgetClsact { dev } => {
                present.recorded_clsacts.remove(dev);
            }
            Change::AddRule { dev, rule } => {
                let port = port(&mut present.ports, dev);
                let mut qdiscs = known(&mut port.qdiscs).iter();
                if !qdiscs.any(|q| q.kind.as_str() == "clsact") {
                    return Err(Failure::clean("Parent Qdisc doesn't exists."));
                }
                let filters = known(&mut port.filters);
                if filters.iter().any(|f| at_same_place(f, rule)) {
                    return Err(Failure::clean("File exists"));
                }
                filters.push(in_hardware(rule));
            }
            Change::ReplaceRule { dev, old, new } => {
                let filters = known(&mut port(&mut present.ports, dev).filters);
                let Some(there) = filters.iter_mut().find(|f| at_same_place(f, old)) else {
                    return Err(Failure::clean("nothing to replace"));
                };
                *there = in_hardware(new);
            }
            Change::RemoveRule { dev, rule } => {
                let filters = known(&mut port(&mut present.ports, dev).filters);
                let before = filters.len();
                filters.retain(|f| !at_same_place(f, rule));
                if filters.len() == before {
                    return Err(absent());
                }
            }
            Change::StartMarker { device } | Change::RestartMarker { device } => {
                present
                    .markers
                    .insert(device.clone(), Fact::Known(marker("active")));
            }
            Change::StopMarker { device } => {
                present
                    .markers
                    .insert(device.clone(), Fact::Known(marker("inactive")));
            }
            Change::AddNeighbour { dev, neighbour } => {
                let all = known(&mut port(&mut present.ports, dev).neighbours);
                all.retain(|n| n.address != neighbour.address);
                all.push(neighbour.clone());
            }
            Change::RemoveNeighbour { dev, neighbour } => {
                let all = known(&mut port(&mut present.ports, dev).neighbours);
                let before = all.len();
                all.retain(|n| n.address != neighbour.address);
                if all.len() == before {
                    return Err(absent());
                }
            }
            Change::AddRoute { route } => {
                let all = known(&mut present.routes);
                if all.iter().any(|r| r.destination == route.destination) {
                    return Err(Failure::clean("File exists"));
                }
                all.push(route.clone());
            }
            Change::ReplaceRoute { old, new } => {
                let all = known(&mut present.routes);
                let Some(there) = all.iter_mut().find(|r| r.destination == old.destination) else {
                    return Err(Failure::clean("nothing to replace"));
                };
                *there = new.clone();
            }
            Change::RemoveRoute { route } => {
                let all = known(&mut present.routes);
                let before = all.len();
                all.retain(|r| r != route);
                if all.len() == before {
                    return Err(absent());
                }
            }
        }
        Ok(())
    }
}

fn absent() -> Failure {
    Failure {
        already: true,
        ..Failure::clean("No such file or directory")
    }
}

pub fn known<T>(fact: &mut Fact<T>) -> &mut T {
    match fact {
        Fact::Known(value) => value,
        Fact::NotObserved(why) => panic!("not observed: {why}"),
    }
}

pub fn port<'a>(
    ports: &'a mut [PortNow],
    dev: &hairpin_mesh::names::NetdevName,
) -> &'a mut PortNow {
    ports.iter_mut().find(|p| p.netdev == *dev).unwrap()
}

fn at_same_place(one: &Filter, other: &Filter) -> bool {
    (one.side, one.chain, one.pref, one.protocol, one.handle)
        == (
            Side::Ingress,
            other.chain,
            other.pref,
            other.protocol,
            other.handle,
        )
}

/// As the kernel shows a rule that the driver has taken.
fn in_hardware(rule: &Filter) -> Filter {
    let mut rule = rule.clone();
    if let Some(flower) = &mut rule.flower {
        flower.in_hw = !flower.skip_hw;
        flower.not_in_hw = flower.skip_hw;
        flower.in_hw_count = (!flower.skip_hw).then_some(1);
        for action in &mut flower.actions {
            action.packets = Some(0);
            action.installed_seconds = Some(0);
        }
    }
    rule
}

impl Platform for Memory {
    fn journal(&mut self, steps: &[Step]) -> Result<(), String> {
        self.journals += 1;
        if self.journal_fails_at == Some(self.journals) {
            return Err("No space left on device".into());
        }
        self.journal = Some(steps.to_vec());
        Ok(())
    }

    fn end_journal(&mut self) -> Result<(), String> {
        self.journal = None;
        Ok(())
    }

    fn carry_out(&mut self, change: &Change) -> Result<Option<String>, Failure> {
        self.calls += 1;
        self.log.push((change.clone(), self.journal.clone()));
        let unanswered = Failure {
            half_done: true,
            ..Failure::clean("no answer within 30 s")
        };
        match self.faults.get(&self.calls) {
            Some(Fault::Refused) => Err(Failure::clean("Operation not supported")),
            Some(Fault::Lost) => Err(unanswered),
            Some(Fault::Lie) => Ok(None),
            Some(Fault::NoAnswer) => {
                let _ = self.make(change);
                Err(unanswered)
            }
            None => self.make(change).map(|()| None),
        }
    }

    fn not_as_wanted(&mut self) -> Vec<String> {
        compare(&self.wanted, &self.present)
            .iter()
            .filter(|row| row.state != State::Right)
            .map(reads_back)
            .collect()
    }

    fn not_as_before(&mut self) -> Vec<String> {
        differences(&self.wanted, &self.before, &self.present)
    }

    fn interrupted(&mut self) -> Option<String> {
        self.looks += 1;
        (self.signal_at == Some(self.looks)).then(|| "interrupted by a signal".into())
    }
}
