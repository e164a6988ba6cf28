//! The hairpin queues loaded on a host in memory: a fault, an end of the process and a signal at every step,
//! and what may not be re-initialised.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/memory.rs"]
mod memory;

use std::collections::BTreeMap;

use hairpin_mesh::facts::{Applied, Fact, HairpinParameter, HairpinRecord, QueuePair, Route};
use hairpin_mesh::finding::{Finding, Severity};
use hairpin_mesh::mesh::apply::{Failure, Outcome, Platform as _, apply};
use hairpin_mesh::mesh::change::Change;
use hairpin_mesh::mesh::compare::{Object, State, compare};
use hairpin_mesh::mesh::present::{Device, Open, PortNow, Present};
use hairpin_mesh::mesh::queue::{
    Action, Allowed, AtStake, Due, End, Ended, FunctionNow, ParameterNow, Platform, Step, Underway,
    blockers, due, finish, preview, resume, run,
};
use hairpin_mesh::mesh::steps;
use hairpin_mesh::mesh::wanted::Wanted;
use hairpin_mesh::names::{HostName, NetdevName, PciAddress, RdmaName};
use hairpin_mesh::plan::{HostPlan, Plan};
use memory::{Fault, Memory, bare, known, plan, port};
use proptest::prelude::*;

const ASKED: [(HairpinParameter, u32); 1] = [(HairpinParameter::QueueSize, 8192)];

/// A function of the NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Nic {
    netdev: NetdevName,
    rdma: RdmaName,
    pci: PciAddress,
    /// By parameter: what devlink shows, and what is loaded.
    values: BTreeMap<HairpinParameter, (u32, u32)>,
    records: BTreeMap<HairpinParameter, HairpinRecord>,
    reloads: u32,
    failed: bool,
}

/// How a re-initialisation goes wrong beside the faults of every step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reinit {
    Right,
    /// The device goes and does not come back; the driver says so.
    Breaks,
    /// Its address does not come back.
    NoAddress,
}

/// The twin.
struct Machine {
    memory: Memory,
    nics: Vec<Nic>,
    /// The ports as they are once they are back.
    whole: Present,
    note: Option<Underway>,
    calls: usize,
    faults: BTreeMap<usize, Fault>,
    /// The call at which the process ends, and whether that call is still made.
    dies_at: Option<(usize, bool)>,
    dead: bool,
    reinit: Reinit,
    /// Ports on their way back, and after how many waits they are.
    coming: Vec<(NetdevName, usize)>,
    /// Waits until the time is over.
    patience: usize,
    waits: usize,
    signal_at: Option<usize>,
    looks_for_signal: usize,
    /// The look for what is in the way that finds something.
    blocked_at: Option<usize>,
    blocker_looks: usize,
    log: Vec<String>,
}

const DEAD: &str = "the process has ended";

impl Machine {
    fn new(plan: &Plan, host: &HostPlan, up: bool) -> Machine {
        let wanted = Wanted::of(host);
        let mut memory = Memory::new(bare(plan, host), wanted.clone());
        if up {
            let steps = steps::up(&compare(&wanted, &memory.present), &[]);
            assert_eq!(
                apply(&mut memory, &steps.changes, &mut |_, _| {}),
                Outcome::Done
            );
        }
        let nics = host
            .ports
            .iter()
            .map(|row| Nic {
                netdev: row.netdev.clone(),
                rdma: row.rdma.clone(),
                pci: row.pci.unwrap(),
                values: BTreeMap::from([
                    (HairpinParameter::QueueSize, (1024, 1024)),
                    (HairpinParameter::NumQueues, (4, 4)),
                ]),
                records: BTreeMap::new(),
                reloads: 0,
                failed: false,
            })
            .collect();
        Machine {
            whole: memory.present.clone(),
            memory,
            nics,
            note: None,
            calls: 0,
            faults: BTreeMap::new(),
            dies_at: None,
            dead: false,
            reinit: Reinit::Right,
            coming: Vec::new(),
            patience: 10,
            waits: 0,
            signal_at: None,
            looks_for_signal: 0,
            blocked_at: None,
            blocker_looks: 0,
            log: Vec::new(),
        }
    }

    fn names(&self) -> Vec<NetdevName> {
        self.nics.iter().map(|nic| nic.netdev.clone()).collect()
    }

    fn run(&mut self, asked: &[(HairpinParameter, u32)]) -> Ended {
        let (names, wanted) = (self.names(), self.memory.wanted.clone());
        run(self, &names, asked, &wanted, &mut |_, _| {})
    }

    /// The next run: without faults, by whoever comes then.
    fn next_run(&mut self, asked: &[(HairpinParameter, u32)]) -> End {
        self.faults.clear();
        (self.dies_at, self.dead) = (None, false);
        (self.signal_at, self.reinit) = (None, Reinit::Right);
        let wanted = self.memory.wanted.clone();
        if let Some(underway) = self.note.clone() {
            let end = resume(self, &underway, &wanted, &mut |_, _| {});
            if end != End::Done {
                return end;
            }
        }
        self.run(asked).end
    }

    fn nic(&mut self, pci: PciAddress) -> &mut Nic {
        self.nics.iter_mut().find(|nic| nic.pci == pci).unwrap()
    }

    fn loaded(&self) -> Vec<u32> {
        let size = |nic: &Nic| nic.values[&HairpinParameter::QueueSize].1;
        self.nics.iter().map(size).collect()
    }

    /// Does one thing, unless a fault is due.
    fn step<T: Default>(
        &mut self,
        what: String,
        act: impl FnOnce(&mut Machine) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.dead {
            return Err(Failure::clean(DEAD));
        }
        self.calls += 1;
        self.log.push(what);
        if let Some((at, made)) = self.dies_at {
            if at == self.calls {
                if made {
                    let _ = act(self);
                }
                self.dead = true;
                return Err(Failure::clean(DEAD));
            }
        }
        let unanswered = Failure {
            half_done: true,
            ..Failure::clean("no answer within 30 s")
        };
        match self.faults.get(&self.calls) {
            Some(Fault::Refused) => Err(Failure::clean("Operation not supported")),
            Some(Fault::Lost) => Err(unanswered),
            Some(Fault::Lie) => Ok(T::default()),
            Some(Fault::NoAnswer) => {
                let _ = act(self);
                Err(unanswered)
            }
            None => act(self),
        }
    }

    fn take_away(&mut self, pci: PciAddress) {
        let reinit = self.reinit;
        let nic = self.nic(pci);
        let (dev, rdma) = (nic.netdev.clone(), nic.rdma.clone());
        if reinit == Reinit::Breaks {
            nic.failed = true;
        } else {
            nic.reloads += 1;
            nic.failed = false;
            for (shown, loaded) in nic.values.values_mut() {
                *loaded = *shown;
            }
        }
        let present = &mut self.memory.present;
        for port in &mut present.ports {
            // A rule that led here leads nowhere, also once the name is back.
            for rule in known(&mut port.filters) {
                for action in &mut rule.flower.as_mut().unwrap().actions {
                    if let Some(mirred) = &mut action.mirred {
                        if mirred.dev.as_ref() == Some(&dev) {
                            mirred.dev = None;
                        }
                    }
                }
            }
            if port.netdev == dev {
                port.link = Fact::Known(None);
                port.addresses = Fact::Known(Vec::new());
                port.offload = Fact::Known(false);
                port.rdma_state = Fact::Known(None);
                port.gid = Fact::Known(None);
                known(&mut port.qdiscs).retain(|q| q.kind.as_str() != "clsact");
                port.filters = Fact::Known(Vec::new());
            }
        }
        known(&mut present.routes).retain(|route| route.dev.as_ref() != Some(&dev));
        if let Some(marker) = present.markers.get_mut(&rdma) {
            known(marker).holds_device = Fact::Known(false);
        }
        if reinit != Reinit::Breaks {
            self.coming.push((dev, 3));
        }
    }

    fn come_back(&mut self, dev: &NetdevName) {
        let whole = port(&mut self.whole.ports, dev).clone();
        let now = port(&mut self.memory.present.ports, dev);
        let mut link = known(&mut whole.link.clone()).clone().unwrap();
        link.index += 100;
        now.link = Fact::Known(Some(link));
        now.rdma_state = whole.rdma_state;
        if self.reinit != Reinit::NoAddress {
            now.addresses = whole.addresses;
            now.gid = whole.gid;
        }
    }

    /// Whether the ports and everything of the mesh are as they were, on new devices.
    fn is_whole(&self) -> Result<(), String> {
        let ordered = |present: &Present| {
            let mut present = present.clone();
            for (port, was) in present.ports.iter_mut().zip(&self.whole.ports) {
                if let (Fact::Known(Some(link)), Fact::Known(Some(was))) =
                    (&mut port.link, &was.link)
                {
                    link.index = was.index;
                }
                known(&mut port.filters).sort_by_key(|filter| filter.pref);
            }
            known(&mut present.routes).sort_by_key(|route| route.destination.to_string());
            present
        };
        let (now, before) = (ordered(&self.memory.present), ordered(&self.whole));
        if now == before {
            Ok(())
        } else {
            Err(format!("now {now:#?}\nbefore {before:#?}"))
        }
    }
}

impl Platform for Machine {
    fn note(&mut self, underway: Option<&Underway>) -> Result<(), String> {
        let underway = underway.cloned();
        self.step("note".into(), |m| {
            m.note = underway;
            Ok(())
        })
        .map_err(|failure| failure.why)
    }

    fn record(
        &mut self,
        pci: PciAddress,
        parameter: HairpinParameter,
        reloads: u32,
        value: u32,
    ) -> Result<(), String> {
        self.step(format!("record {parameter} {value}"), |m| {
            let record = HairpinRecord {
                boot_id: "boot".into(),
                pci,
                reload_count: reloads,
                value,
            };
            m.nic(pci).records.insert(parameter, record);
            Ok(())
        })
        .map_err(|failure| failure.why)
    }

    fn restore_record(
        &mut self,
        pci: PciAddress,
        parameter: HairpinParameter,
        record: Option<&HairpinRecord>,
    ) -> Result<(), String> {
        let record = record.cloned();
        self.step(format!("restore the record of {parameter}"), |m| {
            let records = &mut m.nic(pci).records;
            match record {
                Some(record) => records.insert(parameter, record),
                None => records.remove(&parameter),
            };
            Ok(())
        })
        .map_err(|failure| failure.why)
    }

    fn set(
        &mut self,
        pci: PciAddress,
        parameter: HairpinParameter,
        value: u32,
    ) -> Result<Option<String>, Failure> {
        self.step(format!("set {parameter} {value}"), |m| {
            m.nic(pci).values.get_mut(&parameter).unwrap().0 = value;
            Ok(None)
        })
    }

    fn reinitialise(
        &mut self,
        dev: &NetdevName,
        pci: PciAddress,
    ) -> Result<Option<String>, Failure> {
        self.step(format!("re-initialise {dev}"), |m| {
            m.take_away(pci);
            match m.reinit {
                Reinit::Breaks => Err(Failure::clean("Input/output error")),
                _ => Ok(None),
            }
        })
    }

    fn switch_offload(&mut self, dev: &NetdevName, on: bool) -> Result<Option<String>, Failure> {
        let dev = dev.clone();
        self.step(format!("offload {dev}"), |m| {
            port(&mut m.memory.present.ports, &dev).offload = Fact::Known(on);
            Ok(None)
        })
    }

    fn change(&mut self, change: &Change) -> Result<Option<String>, Failure> {
        let change = change.clone();
        self.step(change.to_string(), |m| m.memory.carry_out(&change))
    }

    fn look(&mut self) -> Result<Present, String> {
        if self.dead {
            return Err(DEAD.into());
        }
        Ok(self.memory.present.clone())
    }

    fn function(&mut self, dev: &NetdevName) -> Result<FunctionNow, String> {
        if self.dead {
            return Err(DEAD.into());
        }
        let nic = self.nics.iter().find(|nic| nic.netdev == *dev).unwrap();
        let parameter = |parameter: HairpinParameter| {
            let value = nic.values[&parameter].0;
            let record = nic.records.get(&parameter).cloned();
            ParameterNow {
                state: Fact::Known(parameter.state(value, nic.reloads, record.as_ref())),
                value: Fact::Known(Some(value)),
                record,
            }
        };
        Ok(FunctionNow {
            netdev: nic.netdev.clone(),
            rdma: nic.rdma.clone(),
            pci: Fact::Known(nic.pci),
            reloads: Fact::Known(nic.reloads),
            failed: Fact::Known(nic.failed),
            size: parameter(HairpinParameter::QueueSize),
            num_queues: parameter(HairpinParameter::NumQueues),
        })
    }

    fn blockers(&mut self, _: &FunctionNow, _: &Present) -> Vec<Finding> {
        self.blocker_looks += 1;
        if self.blocked_at == Some(self.blocker_looks) {
            vec![Finding::problem(
                "queue-pairs-open",
                "1 open queue pair",
                "none",
            )]
        } else {
            Vec::new()
        }
    }

    fn expect_back(&mut self) {
        self.waits = 0;
    }

    fn wait(&mut self) -> Result<bool, String> {
        if self.dead {
            return Err(DEAD.into());
        }
        self.waits += 1;
        let mut back = Vec::new();
        for (dev, left) in &mut self.coming {
            *left -= 1;
            if *left == 0 {
                back.push(dev.clone());
            }
        }
        self.coming.retain(|(_, left)| *left > 0);
        for dev in back {
            self.come_back(&dev);
        }
        Ok(self.waits < self.patience)
    }

    fn interrupted(&mut self) -> Option<String> {
        self.looks_for_signal += 1;
        (self.signal_at == Some(self.looks_for_signal)).then(|| "interrupted by a signal".into())
    }
}

fn each(mut test: impl FnMut(&Plan, &HostPlan, bool)) {
    for case in ["own-inventories-queue-applied", "four-opposite-paths"] {
        let mut plan = plan(case);
        for (i, row) in plan.ports.iter_mut().enumerate() {
            // A plan of today's inventories has none.
            let text = format!("{:04x}:01:00.{}", i / 2 % 2 * 2, i % 2);
            row.pci = row.pci.or(Some(text.parse().unwrap()));
        }
        let host = plan.for_host(plan.hosts[1].as_str()).unwrap();
        for up in [false, true] {
            test(&plan, &host, up);
        }
    }
}

#[test]
fn each_function_is_loaded_and_comes_back_with_what_the_mesh_had_there() {
    each(|plan, host, up| {
        let mut machine = Machine::new(plan, host, up);
        let ended = machine.run(&ASKED);
        assert_eq!(ended.end, End::Done);
        assert_eq!(ended.done, machine.names());
        assert_eq!(machine.loaded(), [8192; 4]);
        machine.is_whole().unwrap();
        assert_eq!(machine.note, None);
        let reloads: Vec<u32> = machine.nics.iter().map(|nic| nic.reloads).collect();
        assert_eq!(reloads, [1; 4]);
        // The same again touches nothing.
        let calls = machine.calls;
        assert_eq!(machine.run(&ASKED).end, End::Done);
        assert_eq!(machine.calls, calls);
    });
}

#[test]
fn what_is_said_before_is_what_is_done() {
    each(|plan, host, up| {
        let mut machine = Machine::new(plan, host, up);
        let mut said = Vec::new();
        for dev in machine.names() {
            let function = machine.function(&dev).unwrap();
            let Due::Load(load) = due(&function, &ASKED) else {
                panic!("nothing is due");
            };
            let wanted = machine.memory.wanted.clone();
            said.extend(preview(&function, &load, &wanted, &machine.memory.present));
        }
        let mut done = Vec::new();
        let (names, wanted) = (machine.names(), machine.memory.wanted.clone());
        let ended = run(&mut machine, &names, &ASKED, &wanted, &mut |action, _| {
            done.push(action);
        });
        assert_eq!(ended.end, End::Done);
        assert_eq!(done, said);
    });
}

#[test]
fn a_rule_that_leads_to_a_function_is_removed_before_and_the_others_are_left() {
    each(|plan, host, up| {
        if !up {
            return;
        }
        let mut machine = Machine::new(plan, host, true);
        let dev = host.rules[0].redirect.clone();
        let wanted = machine.memory.wanted.clone();
        let mut done = Vec::new();
        run(
            &mut machine,
            std::slice::from_ref(&dev),
            &ASKED,
            &wanted,
            &mut |action, _| done.push(action),
        );
        let at = |wanted: &dyn Fn(&Action) -> bool| done.iter().position(wanted).unwrap();
        let reload = at(&|a| matches!(a, Action::Queue(Step::Reinitialise { .. })));
        let removed: Vec<&NetdevName> = done[..reload]
            .iter()
            .filter_map(|action| match action {
                Action::Object(change) => match change.as_ref() {
                    Change::RemoveRule { dev, .. } => Some(dev),
                    _ => None,
                },
                Action::Queue(_) => None,
            })
            .collect();
        let leads: Vec<&NetdevName> = host
            .rules
            .iter()
            .filter(|row| row.redirect == dev && row.dev != dev)
            .map(|row| &row.dev)
            .collect();
        assert_eq!(removed, leads);
        let touched = |object: &Object| match object {
            Object::Rule(on, _) => *on == dev || leads.contains(&on),
            Object::Marker(device) => host
                .ports
                .iter()
                .any(|p| p.netdev == dev && p.rdma == *device),
            Object::Route(route) => route.dev.as_ref() == Some(&dev),
            Object::Clsact(on) | Object::Neighbour(on, _) => *on == dev,
        };
        let count = compare(&wanted, &machine.memory.present)
            .iter()
            .filter(|row| touched(&row.object))
            .count();
        let made = done[reload..]
            .iter()
            .filter(|a| matches!(a, Action::Object(_)));
        assert_eq!(made.count(), count);
    });
}

/// Checks what an end says of the machine, and that the next run gets everything done.
fn holds(machine: &mut Machine, before: &Machine, ended: &Ended, what: &str) {
    match &ended.end {
        End::Done => assert_eq!(machine.loaded(), [8192; 4], "{what}"),
        End::Restored { why } => {
            assert!(!why.is_empty());
            let begun = ended.done.len();
            assert_eq!(
                machine.nics[begun..],
                before.nics[begun..],
                "{what}: {why:?}"
            );
            assert_eq!(machine.note, None, "{what}");
            machine.is_whole().unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        End::NotBack { missing } => {
            assert!(!missing.is_empty());
            assert!(machine.note.is_some(), "{what}");
        }
        End::NotRestored { why, differs } => assert!(!why.is_empty() || !differs.is_empty()),
        End::Refused { .. } => panic!("{what}: refused"),
    }
    assert_eq!(
        machine.next_run(&ASKED),
        End::Done,
        "{what}, and the next run"
    );
    assert_eq!(machine.loaded(), [8192; 4], "{what}, and the next run");
    machine
        .is_whole()
        .unwrap_or_else(|e| panic!("{what}, and the next run: {e}"));
    assert_eq!(machine.note, None, "{what}, and the next run");
    let (calls, asked) = (machine.calls, ASKED);
    assert_eq!(machine.next_run(&asked), End::Done);
    assert_eq!(
        machine.calls, calls,
        "{what}: a third run has something to do"
    );
}

#[test]
fn with_a_fault_at_any_step_the_end_says_what_is_and_the_next_run_gets_it_done() {
    each(|plan, host, up| {
        let before = Machine::new(plan, host, up);
        let mut dry = Machine::new(plan, host, up);
        dry.run(&ASKED);
        let (mut restored, mut broken) = (0, 0);
        for at in 1..=dry.calls {
            for fault in [Fault::Refused, Fault::NoAnswer, Fault::Lost, Fault::Lie] {
                if fault == Fault::Lie && dry.log[at - 1] == "note" {
                    // A file system that lies is not seen through.
                    continue;
                }
                let mut machine = Machine::new(plan, host, up);
                machine.faults.insert(at, fault);
                let ended = machine.run(&ASKED);
                let what = format!("{fault:?} at {at} ({})", dry.log[at - 1]);
                match ended.end {
                    End::Restored { .. } => restored += 1,
                    End::NotRestored { .. } => broken += 1,
                    _ => {}
                }
                holds(&mut machine, &before, &ended, &what);
            }
        }
        assert!(restored > 0 && broken > 0, "{restored} {broken}");
    });
}

#[test]
fn a_process_that_ends_at_any_step_leaves_what_the_next_one_needs() {
    each(|plan, host, up| {
        let mut dry = Machine::new(plan, host, up);
        dry.run(&ASKED);
        for at in 1..=dry.calls {
            for made in [false, true] {
                let mut machine = Machine::new(plan, host, up);
                machine.dies_at = Some((at, made));
                let ended = machine.run(&ASKED);
                assert_ne!(ended.end, End::Done);
                let what = format!("ended at {at} ({}), made {made}", dry.log[at - 1]);
                assert_eq!(machine.next_run(&ASKED), End::Done, "{what}");
                assert_eq!(machine.loaded(), [8192; 4], "{what}");
                machine.is_whole().unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(machine.note, None, "{what}");
            }
        }
    });
}

#[test]
fn a_signal_at_any_look_stops_it_and_the_next_run_goes_on() {
    each(|plan, host, up| {
        let before = Machine::new(plan, host, up);
        let mut dry = Machine::new(plan, host, up);
        dry.run(&ASKED);
        assert!(dry.looks_for_signal > 4);
        for at in 1..=dry.looks_for_signal {
            let mut machine = Machine::new(plan, host, up);
            machine.signal_at = Some(at);
            let ended = machine.run(&ASKED);
            assert_ne!(ended.end, End::Done);
            holds(&mut machine, &before, &ended, &format!("a signal at {at}"));
        }
    });
}

#[test]
fn an_address_that_does_not_come_back_is_named_and_the_next_function_is_not_begun() {
    each(|plan, host, up| {
        let mut machine = Machine::new(plan, host, up);
        machine.reinit = Reinit::NoAddress;
        let ended = machine.run(&ASKED);
        let End::NotBack { missing } = &ended.end else {
            panic!("{ended:?}");
        };
        let address = host.ports[0].ipv4.to_string();
        assert!(missing[0].contains(&address), "{missing:?}");
        assert_eq!((ended.done.len(), ended.left.len()), (0, 3));
        assert_eq!(machine.loaded()[1..], [1024; 3]);
        // It comes later, and the next run goes on.
        for dev in machine.names().into_iter().take(1) {
            machine.reinit = Reinit::Right;
            machine.come_back(&dev);
        }
        assert_eq!(machine.next_run(&ASKED), End::Done);
        machine.is_whole().unwrap();
    });
}

#[test]
fn a_note_is_given_up_where_that_is_asked_for_and_what_is_not_back_is_a_warning() {
    let host_name: HostName = "spark2".parse().unwrap();
    each(|plan, host, up| {
        let mut machine = Machine::new(plan, host, up);
        machine.reinit = Reinit::NoAddress;
        machine.run(&ASKED);
        let note = machine.note.clone().unwrap();
        let wanted = machine.memory.wanted.clone();
        // Without that it stays.
        let end = finish(&mut machine, &note, &wanted, false, &mut |_, _| {});
        assert!(matches!(end, Err(End::NotBack { .. })), "{end:?}");
        assert_eq!(machine.note.as_ref(), Some(&note));
        let finished = finish(&mut machine, &note, &wanted, true, &mut |_, _| {}).unwrap();
        assert_eq!(machine.note, None);
        let findings = finished.findings(&host_name, &note.netdev, false);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(
            (findings[0].code, findings[0].severity),
            ("hairpin-queue-given-up", Severity::Warning)
        );
        let address = host.ports[0].ipv4.to_string();
        assert!(findings[0].found.contains(&address), "{findings:?}");
        // A note that cannot be removed is not given up.
        machine.note = Some(note.clone());
        machine.faults.insert(machine.calls + 1, Fault::Refused);
        let end = finish(&mut machine, &note, &wanted, true, &mut |_, _| {});
        assert!(matches!(end, Err(End::NotRestored { .. })), "{end:?}");
    });
}

#[test]
fn a_size_that_was_set_before_a_run_ended_and_is_not_loaded_is_told() {
    let host_name: HostName = "spark2".parse().unwrap();
    each(|plan, host, up| {
        let mut dry = Machine::new(plan, host, up);
        dry.run(&ASKED);
        let first = |what: &str| dry.log.iter().position(|l| l.starts_with(what)).unwrap() + 1;
        let (set, reinitialise) = (first("set "), first("re-initialise"));
        for (dies_at, waits) in [
            ((set, false), false),
            ((set, true), true),
            ((reinitialise, false), true),
            ((reinitialise, true), false),
        ] {
            let mut machine = Machine::new(plan, host, up);
            machine.dies_at = Some(dies_at);
            machine.run(&ASKED);
            (machine.dies_at, machine.dead) = (None, false);
            let note = machine.note.clone().unwrap();
            let wanted = machine.memory.wanted.clone();
            let finished = finish(&mut machine, &note, &wanted, false, &mut |_, _| {}).unwrap();
            assert_eq!(machine.note, None);
            let pending = [(HairpinParameter::QueueSize, 8192)];
            let pending = if waits { &pending[..] } else { &[] };
            assert_eq!(finished.pending, pending, "{dies_at:?}");
            let found = |loads| finished.findings(&host_name, &note.netdev, loads);
            assert_eq!(found(false).len(), usize::from(waits));
            assert_eq!(found(true), []);
            for finding in found(false) {
                assert_eq!(
                    (finding.code, finding.severity),
                    ("hairpin-queue-pending", Severity::Warning)
                );
                assert!(finding.advice.unwrap().contains("hairpin-queue 8192"));
            }
        }
    });
}

#[test]
fn a_note_says_what_was_there() {
    let mut said = 0;
    each(|plan, host, up| {
        let mut machine = Machine::new(plan, host, up);
        machine.reinit = Reinit::NoAddress;
        machine.run(&ASKED);
        let note = machine.note.clone().unwrap();
        let lines = note.lines();
        let all = lines.join("\n");
        for words in [
            note.netdev.as_str(),
            &note.pci.to_string(),
            "re-initialised 0 times",
            &host.ports[0].ipv4.to_string(),
            "MTU 9000",
            "RDMA port ACTIVE",
            "hw-tc-offload on",
            "link up",
        ] {
            assert!(all.contains(words), "{words}: {all}");
        }
        assert_eq!(lines.len(), 2 + note.objects.len());
        said += note.objects.len();
    });
    assert!(said > 0);
}

#[test]
fn a_note_whose_port_has_another_address_in_the_plan_is_finished_by_the_plans() {
    each(|plan, host, up| {
        let mut machine = Machine::new(plan, host, up);
        machine.reinit = Reinit::NoAddress;
        machine.run(&ASKED);
        machine.reinit = Reinit::Right;
        let dev = host.ports[0].netdev.clone();
        machine.come_back(&dev);
        let mut note = machine.note.clone().unwrap();
        note.addresses = vec!["192.0.2.7/24".parse().unwrap()];
        let wanted = machine.memory.wanted.clone();
        let end = resume(&mut machine, &note, &wanted, &mut |_, _| {});
        assert!(matches!(end, End::NotBack { .. }), "{end:?}");
        let note = note.as_planned(host.ports[0].ipv4);
        let end = resume(&mut machine, &note, &wanted, &mut |_, _| {});
        assert_eq!(end, End::Done);
        assert_eq!(machine.note, None);
    });
}

#[test]
fn a_re_initialisation_that_breaks_is_told_with_what_may_help() {
    each(|plan, host, up| {
        let mut machine = Machine::new(plan, host, up);
        machine.reinit = Reinit::Breaks;
        let ended = machine.run(&ASKED);
        let End::NotRestored { why, differs } = &ended.end else {
            panic!("{ended:?}");
        };
        assert_eq!(why, &["Input/output error"]);
        assert!(differs[0].contains("driver_reinit"), "{differs:?}");
        assert!(machine.note.is_some());
        assert_eq!(machine.loaded(), [1024; 4]);
    });
}

#[test]
fn whoever_opens_queue_pairs_meanwhile_stops_it_at_that_function() {
    each(|plan, host, up| {
        let mut machine = Machine::new(plan, host, up);
        machine.blocked_at = Some(3);
        let ended = machine.run(&ASKED);
        assert!(matches!(ended.end, End::Refused { .. }), "{ended:?}");
        assert_eq!((ended.done.len(), ended.left.len()), (2, 1));
        assert_eq!(machine.loaded(), [8192, 8192, 1024, 1024]);
        machine.is_whole().unwrap();
    });
}

#[test]
fn a_size_that_waits_needs_the_re_initialisation_alone() {
    each(|plan, host, up| {
        let mut machine = Machine::new(plan, host, up);
        for nic in &mut machine.nics {
            nic.values.get_mut(&HairpinParameter::QueueSize).unwrap().0 = 8192;
        }
        assert_eq!(machine.run(&ASKED).end, End::Done);
        assert_eq!(machine.loaded(), [8192; 4]);
        assert!(!machine.log.iter().any(|line| line.starts_with("set ")));
    });
}

#[test]
fn both_parameters_are_recorded_because_a_re_initialisation_loads_both() {
    each(|plan, host, up| {
        let mut machine = Machine::new(plan, host, up);
        let both = [ASKED[0], (HairpinParameter::NumQueues, 8)];
        assert_eq!(machine.run(&both[1..]).end, End::Done);
        for dev in machine.names() {
            let now = machine.function(&dev).unwrap();
            assert_eq!(now.size.state, Fact::Known(Applied::Applied));
            assert_eq!(now.num_queues.value, Fact::Known(Some(8)));
            assert_eq!(now.num_queues.state, Fact::Known(Applied::Applied));
        }
        assert_eq!(machine.run(&both).end, End::Done);
        assert_eq!(machine.loaded(), [8192; 4]);
    });
}

fn function() -> FunctionNow {
    let known = |value| ParameterNow {
        value: Fact::Known(Some(value)),
        state: Fact::Known(Applied::Applied),
        record: None,
    };
    FunctionNow {
        netdev: "enp1s0f0np0".parse().unwrap(),
        rdma: "rocep1s0f0".parse().unwrap(),
        pci: Fact::Known("0000:01:00.0".parse().unwrap()),
        reloads: Fact::Known(0),
        failed: Fact::Known(false),
        size: known(1024),
        num_queues: known(4),
    }
}

#[test]
fn what_cannot_be_read_or_counted_cannot_be_loaded() {
    let cannot = |change: &dyn Fn(&mut FunctionNow)| {
        let mut function = function();
        change(&mut function);
        match due(&function, &ASKED) {
            Due::Cannot(why) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(cannot(&|f| f.size.value = Fact::Known(None)).contains("no hairpin_queue_size"));
    assert!(cannot(&|f| f.size.value = Fact::because("a")).contains("not observed: a"));
    assert!(cannot(&|f| f.reloads = Fact::because("b")).contains("not observed: b"));
    assert!(cannot(&|f| f.pci = Fact::because("c")).contains("not known: c"));
}

#[test]
fn only_a_value_that_is_known_to_be_loaded_needs_nothing() {
    for (value, state, nothing) in [
        (8192, Fact::Known(Applied::Applied), true),
        (8192, Fact::Known(Applied::Pending), false),
        (8192, Fact::Known(Applied::Unknown), false),
        (8192, Fact::because("the record cannot be read"), false),
        (4096, Fact::Known(Applied::Applied), false),
    ] {
        let mut function = function();
        function.size.value = Fact::Known(Some(value));
        function.size.state = state;
        assert_eq!(
            due(&function, &ASKED) == Due::Nothing,
            nothing,
            "{function:?}"
        );
    }
}

fn nothing_at_stake() -> AtStake {
    AtStake {
        open: Fact::Known(Vec::new()),
        routes: Fact::Known(Vec::new()),
        ipv6_default: Fact::Known(Vec::new()),
        devices: Fact::Known(vec![device("enp1s0f0np0", 7, None, None)]),
    }
}

fn device(name: &str, index: u32, lower: Option<u32>, master: Option<u32>) -> Device {
    Device {
        name: name.parse().unwrap(),
        index,
        lower,
        master,
    }
}

fn default_route(dev: &str) -> Route {
    Route {
        destination: "0.0.0.0/0".parse().unwrap(),
        table: 100,
        tos: 0,
        kind: "unicast".into(),
        protocol: 4,
        scope: "global".into(),
        gateway: None,
        dev: Some(dev.parse().unwrap()),
        src: None,
        metric: 7,
        multipath: false,
        flags: Vec::new(),
        other: None,
    }
}

fn open(device: &str) -> Open {
    Open {
        device: device.parse().unwrap(),
        queue_pairs: vec![QueuePair {
            number: 21,
            remote_number: None,
            kind: "RC".into(),
            state: "RTS".into(),
            pid: Some(4711),
            owner: Fact::Known("python3".into()),
        }],
    }
}

#[test]
fn what_would_be_destroyed_keeps_a_function_from_it_until_the_option_that_names_it() {
    let host: HostName = "spark1".parse().unwrap();
    let codes = |planned, at_stake: &AtStake, allowed| -> Vec<&'static str> {
        blockers(&host, &function(), planned, None, at_stake, allowed)
            .iter()
            .map(|finding| finding.code)
            .collect()
    };
    let none = Allowed::default();
    assert_eq!(codes(true, &nothing_at_stake(), none), [""; 0]);
    let mut at_stake = nothing_at_stake();
    at_stake.open = Fact::Known(vec![open("rocep1s0f0"), open("rocep1s0f1")]);
    at_stake.routes = Fact::Known(vec![default_route("enp1s0f0np0")]);
    assert_eq!(
        codes(false, &at_stake, none),
        ["not-in-plan", "default-route", "queue-pairs-open"]
    );
    let text = blockers(&host, &function(), true, None, &at_stake, none);
    assert!(text[1].found.contains("python3 (process 4711)"), "{text:?}");
    for (allowed, left) in [
        (
            Allowed {
                queue_pairs: true,
                ..none
            },
            ["not-in-plan", "default-route"],
        ),
        (
            Allowed {
                default_route: true,
                ..none
            },
            ["not-in-plan", "queue-pairs-open"],
        ),
        (
            Allowed {
                unplanned: true,
                ..none
            },
            ["default-route", "queue-pairs-open"],
        ),
    ] {
        assert_eq!(codes(false, &at_stake, allowed), left);
    }
    // Of other functions.
    at_stake.open = Fact::Known(vec![open("rocep1s0f1")]);
    at_stake.routes = Fact::Known(vec![default_route("enP7s7")]);
    assert_eq!(codes(true, &at_stake, none), [""; 0]);
    at_stake.ipv6_default = Fact::Known(vec!["enp1s0f0np0".parse().unwrap()]);
    assert_eq!(codes(true, &at_stake, none), ["default-route"]);
}

#[test]
fn what_could_not_be_read_counts_as_in_the_way() {
    let host: HostName = "spark1".parse().unwrap();
    type Spoil = fn(&mut AtStake);
    let changes: [(&str, Spoil); 4] = [
        ("queue-pairs-open", |a| a.open = Fact::because("x")),
        ("default-route", |a| a.routes = Fact::because("x")),
        ("default-route", |a| a.ipv6_default = Fact::because("x")),
        ("default-route", |a| a.devices = Fact::because("x")),
    ];
    for (code, change) in changes {
        let mut at_stake = nothing_at_stake();
        change(&mut at_stake);
        let found = blockers(
            &host,
            &function(),
            true,
            None,
            &at_stake,
            Allowed::default(),
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].code, code);
        assert!(found[0].found.contains("not observed: x"), "{found:?}");
    }
}

#[test]
fn what_of_a_port_is_not_observed_keeps_it_from_a_re_initialisation() {
    let plan = plan("own-inventories-queue-applied");
    let host = plan.for_host(plan.hosts[1].as_str()).unwrap();
    let port = bare(&plan, &host).ports[0].clone();
    let found = |port: &PortNow, unobserved| {
        let allowed = Allowed {
            unobserved,
            ..Allowed::default()
        };
        let at_stake = nothing_at_stake();
        let name = &host.host;
        blockers(name, &function(), true, Some(port), &at_stake, allowed)
    };
    assert_eq!(found(&port, false), []);
    type Spoil = fn(&mut PortNow);
    let spoils: [(&str, Spoil); 5] = [
        ("IPv4 addresses", |p| p.addresses = Fact::because("x")),
        ("hw-tc-offload", |p| p.offload = Fact::because("x")),
        ("RDMA port", |p| p.rdma_state = Fact::because("x")),
        ("GID", |p| p.gid = Fact::because("x")),
        ("flow_steering_mode", |p| p.steering = Fact::because("x")),
    ];
    let mut all = port.clone();
    for (what, spoil) in spoils {
        let mut port = port.clone();
        spoil(&mut port);
        let one = found(&port, false);
        assert_eq!(one.len(), 1, "{one:?}");
        assert_eq!(one[0].code, "port-not-observed");
        assert_eq!(one[0].found, format!("{what} not observed: x"));
        assert!(one[0].advice.as_ref().unwrap().contains("--unobserved"));
        assert_eq!(found(&port, true), []);
        spoil(&mut all);
    }
    // All of a port is one finding.
    assert_eq!(found(&all, false).len(), 1);
}

#[test]
fn a_port_that_is_re_initialised_unseen_is_waited_for_by_what_is_known_of_it() {
    each(|plan, host, up| {
        let mut machine = Machine::new(plan, host, up);
        let before = &mut machine.memory.present.ports[0];
        before.addresses = Fact::because("x");
        before.gid = Fact::because("x");
        before.offload = Fact::because("x");
        let dev = before.netdev.clone();
        machine.reinit = Reinit::NoAddress;
        let wanted = machine.memory.wanted.clone();
        let ended = run(&mut machine, &[dev], &ASKED, &wanted, &mut |_, _| {});
        // What was on it and needs what did not come back is named all the same.
        assert_eq!(ended.done.len(), usize::from(ended.end == End::Done));
        assert!(!matches!(ended.end, End::NotBack { .. }), "{ended:?}");
        assert_eq!(machine.loaded()[0], 8192);
    });
}

#[test]
fn a_default_route_is_seen_also_over_what_is_made_of_a_function_and_in_halves() {
    let host: HostName = "spark1".parse().unwrap();
    let own = "enp1s0f0np0";
    let found = |devices: Vec<Device>, route: Route| -> Option<String> {
        let at_stake = AtStake {
            routes: Fact::Known(vec![route]),
            devices: Fact::Known(devices),
            ..nothing_at_stake()
        };
        let none = Allowed::default();
        let found = blockers(&host, &function(), true, None, &at_stake, none);
        assert!(found.len() <= 1 && found.iter().all(|f| f.code == "default-route"));
        found.into_iter().next().map(|finding| finding.found)
    };
    let plain = device(own, 7, None, None);
    let member = device(own, 7, None, Some(20));
    let bond = device("bond0", 20, None, None);
    let vlan = device("vlan7", 30, Some(7), None);
    let other = device("enP7s7", 2, None, None);
    // A bond or bridge that it is part of; a VLAN or macvlan on it; a VLAN on the bond; a bridge of that.
    let cases = [
        (vec![member.clone(), bond.clone()], "bond0"),
        (vec![vlan.clone(), plain.clone()], "vlan7"),
        (
            vec![
                device("bond0.5", 40, Some(20), None),
                bond.clone(),
                member.clone(),
            ],
            "bond0.5",
        ),
        (
            vec![
                device("br0", 50, None, None),
                device("bond0.5", 40, Some(20), Some(50)),
                bond.clone(),
                member.clone(),
            ],
            "br0",
        ),
    ];
    for (devices, over) in cases {
        let mut devices = devices;
        devices.push(other.clone());
        let what = found(devices.clone(), default_route(over)).unwrap();
        assert!(what.contains(over) && what.contains("made of it"), "{what}");
        assert_eq!(found(devices, default_route("enP7s7")), None);
    }
    // Devices that stand in a circle end somewhere.
    let circle = vec![
        device(own, 7, Some(8), Some(8)),
        device("x", 8, Some(7), Some(7)),
    ];
    assert!(found(circle.clone(), default_route("x")).is_some());
    assert_eq!(found(circle, default_route("enP7s7")), None);
    // Halves, as VPNs set them; a quarter of all addresses is no default route.
    for half in ["0.0.0.0/1", "128.0.0.0/1"] {
        let route = Route {
            destination: half.parse().unwrap(),
            ..default_route(own)
        };
        let what = found(vec![plain.clone()], route).unwrap();
        assert!(what.contains(half), "{what}");
    }
    let route = Route {
        destination: "64.0.0.0/2".parse().unwrap(),
        ..default_route(own)
    };
    assert_eq!(found(vec![plain.clone()], route), None);
    // IPv6 likewise.
    let at_stake = AtStake {
        ipv6_default: Fact::Known(vec!["vlan7".parse().unwrap()]),
        devices: Fact::Known(vec![vlan, plain]),
        ..nothing_at_stake()
    };
    let none = Allowed::default();
    let six = blockers(&host, &function(), true, None, &at_stake, none);
    assert!(
        six[0].found.contains("IPv6 default route leaves by vlan7"),
        "{six:?}"
    );
}

proptest! {
    /// Whatever waits where, two faults in a row included: what is said to be restored is, and the run after
    /// the last fault gets everything done.
    #[test]
    fn two_faults_leave_nothing_that_a_run_does_not_get_right(
        first in 1usize..60,
        second in 1usize..60,
        kinds in (0usize..3, 0usize..3),
        up: bool,
    ) {
        let mut plan = plan("four-opposite-paths");
        for (i, row) in plan.ports.iter_mut().enumerate() {
            let text = format!("{:04x}:01:00.{}", i / 2 % 2 * 2, i % 2);
            row.pci = Some(text.parse().unwrap());
        }
        let host = plan.for_host(plan.hosts[2].as_str()).unwrap();
        let mut machine = Machine::new(&plan, &host, up);
        let faults = [Fault::Refused, Fault::NoAnswer, Fault::Lost];
        machine.faults.insert(first, faults[kinds.0]);
        machine.faults.insert(first + second, faults[kinds.1]);
        let ended = machine.run(&ASKED);
        if let End::Restored { .. } = &ended.end {
            prop_assert_eq!(machine.is_whole(), Ok(()));
        }
        prop_assert_eq!(machine.next_run(&ASKED), End::Done);
        prop_assert_eq!(machine.loaded(), [8192u32; 4].to_vec());
        prop_assert_eq!(machine.is_whole(), Ok(()));
        let right = compare(&machine.memory.wanted, &machine.memory.present)
            .iter()
            .all(|row| row.state == State::Right);
        prop_assert_eq!(right, up);
        prop_assert_eq!(machine.memory.not_as_wanted_now().is_empty(), up);
    }
}
