//! The comparison, its changes and their application, on a host in memory: every state of an object, a
//! fault at every step, a signal and a full disk at every step.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/memory.rs"]
mod memory;

use hairpin_mesh::facts::{Action, Fact, Filter, Mirred, Neighbour, Route};
use hairpin_mesh::mesh::apply::{Outcome, apply, apply_all};
use hairpin_mesh::mesh::change::Change;
use hairpin_mesh::mesh::compare::{Object, Row, Stale, State, compare, differences};
use hairpin_mesh::mesh::present::Present;
use hairpin_mesh::mesh::steps::{self, Down, Up};
use hairpin_mesh::mesh::wanted::Wanted;
use hairpin_mesh::names::{EtherType, Mac};
use hairpin_mesh::plan::{HostPlan, Plan};
use memory::{Fault, Memory, bare, known, marker, plan, port, qdisc};
use proptest::prelude::*;

/// Plans with two and four paths, swapped ports, and the scope-link strategy.
fn plans() -> Vec<Plan> {
    let mut plans: Vec<Plan> = [
        "tp-along-ring",
        "four-opposite-paths",
        "swapped-ports-on-two-nodes",
    ]
    .map(plan)
    .into();
    plans.extend(scope_link());
    plans
}

/// A plan whose routes have no gateway.
fn scope_link() -> Option<Plan> {
    let folder = format!("{}/plans", env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![std::path::PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("plan.json") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
        .iter()
        .map(|path| Plan::from_json("plan", &std::fs::read(path).unwrap()).unwrap())
        .find(|plan| !plan.neighbours.is_empty())
}

fn each_host(mut test: impl FnMut(&Plan, &HostPlan, Wanted)) {
    for plan in plans() {
        for host in &plan.hosts {
            let host = plan.for_host(host.as_str()).unwrap();
            let wanted = Wanted::of(&host);
            test(&plan, &host, wanted);
        }
    }
}

fn up(memory: &Memory) -> Up {
    steps::up(&compare(&memory.wanted, &memory.present), &[])
}

fn down(memory: &Memory) -> Down {
    steps::down(&compare(&memory.wanted, &memory.present), &memory.present)
}

fn state_of(rows: &[Row], pick: impl Fn(&Object) -> bool) -> &State {
    &rows.iter().find(|row| pick(&row.object)).unwrap().state
}

fn brought_up(present: Present, wanted: Wanted) -> Memory {
    let mut memory = Memory::new(present, wanted);
    let up = up(&memory);
    assert_eq!(
        apply(&mut memory, &up.changes, &mut |_, _| {}),
        Outcome::Done
    );
    memory
}

#[test]
fn the_plans_of_these_tests_have_both_strategies_of_routes() {
    assert!(scope_link().is_some());
    assert!(plans().iter().any(|plan| plan.neighbours.is_empty()));
}

#[test]
fn up_makes_everything_once_and_down_leaves_what_was_before() {
    each_host(|plan, host, wanted| {
        let before = bare(plan, host);
        let mut memory = brought_up(before.clone(), wanted);
        assert!(
            compare(&memory.wanted, &memory.present)
                .iter()
                .all(|row| row.state == State::Right)
        );
        assert_eq!(up(&memory), Up::default(), "a second up has nothing to do");
        assert_eq!(memory.journal, None);
        let down = down(&memory);
        assert!(
            apply_all(&mut memory, &down.changes, &mut |_, _| {}).is_empty(),
            "{down:?}"
        );
        assert_eq!((down.left, down.kept), (Vec::new(), Vec::new()));
        assert_eq!(memory.present, before);
        assert_eq!(
            steps::down(&compare(&memory.wanted, &memory.present), &memory.present),
            Down::default(),
            "a second down has nothing to do"
        );
    });
}

#[test]
fn what_forwards_comes_first_then_what_marks_then_what_sends_and_down_is_the_reverse() {
    let rank = |change: &Change| match change {
        Change::AddClsact { .. } | Change::RemoveClsact { .. } => 0,
        Change::AddRule { .. } | Change::RemoveRule { .. } => 1,
        Change::StartMarker { .. } | Change::StopMarker { .. } => 2,
        Change::AddNeighbour { .. } | Change::RemoveNeighbour { .. } => 3,
        Change::AddRoute { .. } | Change::RemoveRoute { .. } => 4,
        other => panic!("{other}"),
    };
    each_host(|plan, host, wanted| {
        let memory = brought_up(bare(plan, host), wanted);
        let ups: Vec<i32> = memory.log.iter().map(|(change, _)| rank(change)).collect();
        assert!(ups.is_sorted(), "{ups:?}");
        let downs: Vec<i32> = down(&memory).changes.iter().map(|c| -rank(c)).collect();
        assert!(downs.is_sorted(), "{downs:?}");
        assert_eq!(ups.len(), downs.len());
    });
}

#[test]
fn each_change_is_in_the_journal_with_its_inverse_before_it_is_made() {
    each_host(|plan, host, wanted| {
        let memory = brought_up(bare(plan, host), wanted);
        for (i, (change, journal)) in memory.log.iter().enumerate() {
            let journal = journal.as_ref().unwrap();
            assert_eq!(journal.len(), i + 1);
            assert_eq!(journal[i].change, *change);
            assert_eq!(journal[i].inverse, change.inverse());
        }
    });
}

/// Hosts in states between nothing and everything: old rules, routes of the scripts of today, markers
/// that lost their rule, some objects there and some not.
fn mixed(plan: &Plan, host: &HostPlan, wanted: &Wanted) -> Vec<Present> {
    let up = brought_up(bare(plan, host), wanted.clone()).present;
    let mut stale = up.clone();
    for (dev, rule) in &wanted.rules {
        let filters = known(&mut port(&mut stale.ports, dev).filters);
        let there = filters.iter_mut().find(|f| f.pref == rule.pref).unwrap();
        there.flower.as_mut().unwrap().src_mac = Some(Mac([2, 0, 0, 0, 0, 1]));
    }
    for route in known(&mut stale.routes) {
        route.protocol = 4;
    }
    for state in stale.markers.values_mut() {
        known(state).holds_device = Fact::Known(false);
    }
    let mut half = up.clone();
    for (dev, rule) in wanted.rules.iter().step_by(2) {
        known(&mut port(&mut half.ports, dev).filters).retain(|f| f.pref != rule.pref);
    }
    known(&mut half.routes).truncate(1);
    let mut clsact_of_others = bare(plan, host);
    for port in &mut clsact_of_others.ports {
        known(&mut port.qdiscs).push(qdisc("clsact", "ffff:", "ffff:fff1"));
    }
    vec![bare(plan, host), stale, half, clsact_of_others]
}

#[test]
fn with_a_fault_at_any_step_the_host_is_as_it_was() {
    let mut restored = 0;
    each_host(|plan, host, wanted| {
        for present in mixed(plan, host, &wanted) {
            let steps = up(&Memory::new(present.clone(), wanted.clone())).changes;
            assert!(!steps.is_empty());
            for at in 1..=steps.len() {
                for fault in [Fault::Refused, Fault::NoAnswer, Fault::Lost, Fault::Lie] {
                    let mut memory = Memory::new(present.clone(), wanted.clone());
                    memory.faults.insert(at, fault);
                    let outcome = apply(&mut memory, &steps, &mut |_, _| {});
                    match outcome {
                        Outcome::Restored { why } => assert!(!why.is_empty()),
                        other => panic!("{fault:?} at {at} of {}: {other:?}", steps.len()),
                    }
                    assert_eq!(memory.journal, None);
                    restored += 1;
                    assert_eq!(
                        differences(&wanted, &present, &memory.present),
                        Vec::<String>::new()
                    );
                }
            }
        }
    });
    assert!(restored > 500, "{restored}");
}

#[test]
fn a_second_fault_while_taking_back_is_said_and_the_journal_kept() {
    let plan = plan("four-opposite-paths");
    let host = plan.for_host("spark2").unwrap();
    let wanted = Wanted::of(&host);
    let mut kept = 0;
    for present in mixed(&plan, &host, &wanted) {
        let steps = up(&Memory::new(present.clone(), wanted.clone())).changes;
        for first in 1..=steps.len() {
            for second in first + 1..=2 * first {
                let mut memory = Memory::new(present.clone(), wanted.clone());
                memory.faults.insert(first, Fault::Refused);
                memory.faults.insert(second, Fault::Refused);
                let outcome = apply(&mut memory, &steps, &mut |_, _| {});
                let same = differences(&wanted, &present, &memory.present).is_empty();
                match outcome {
                    Outcome::Restored { .. } => assert!(same, "{first} {second}"),
                    Outcome::NotRestored { differs, .. } => {
                        assert!(!differs.is_empty());
                        assert!(memory.journal.is_some());
                        kept += 1;
                    }
                    Outcome::Done => panic!("done"),
                }
            }
        }
    }
    assert!(kept > 50, "{kept}");
}

#[test]
fn a_signal_or_a_full_disk_at_any_step_leaves_the_host_as_it_was() {
    each_host(|plan, host, wanted| {
        let present = bare(plan, host);
        let steps = up(&Memory::new(present.clone(), wanted.clone())).changes;
        for at in 1..=steps.len() {
            for signal in [true, false] {
                let mut memory = Memory::new(present.clone(), wanted.clone());
                if signal {
                    memory.signal_at = Some(at);
                } else {
                    memory.journal_fails_at = Some(at);
                }
                let outcome = apply(&mut memory, &steps, &mut |_, _| {});
                assert!(matches!(outcome, Outcome::Restored { .. }), "{outcome:?}");
                assert_eq!(memory.present.ports, present.ports);
                assert_eq!(memory.present.routes, present.routes);
                assert_eq!(memory.present.recorded_clsacts, present.recorded_clsacts);
                assert_eq!(memory.log.len(), 2 * (at - 1));
            }
        }
    });
}

/// A process that is killed between any two system calls: what it had made stays, and its journal.
#[test]
fn killed_at_any_point_the_next_up_converges_and_the_next_down_leaves_what_was_before() {
    each_host(|plan, host, wanted| {
        let before = bare(plan, host);
        let steps = up(&Memory::new(before.clone(), wanted.clone())).changes;
        for killed_after in 0..=steps.len() {
            let mut memory = Memory::new(before.clone(), wanted.clone());
            assert!(apply_all(&mut memory, &steps[..killed_after], &mut |_, _| {}).is_empty());
            if let Some(Change::AddClsact { dev }) = steps.get(killed_after) {
                // Recorded, and killed before it was made.
                memory.present.recorded_clsacts.insert(dev.clone());
            }
            let mut again = Memory::new(memory.present.clone(), wanted.clone());
            let changes = down(&again).changes;
            assert!(apply_all(&mut again, &changes, &mut |_, _| {}).is_empty());
            assert_eq!(again.present, before, "down after {killed_after}");
            let changes = up(&memory).changes;
            assert_eq!(changes.len(), steps.len() - killed_after);
            assert_eq!(apply(&mut memory, &changes, &mut |_, _| {}), Outcome::Done);
        }
    });
}

#[test]
fn a_rule_is_right_only_when_every_part_of_it_is() {
    let plan = plan("tp-along-ring");
    let host = plan.for_host("spark2").unwrap();
    let wanted = Wanted::of(&host);
    let up = brought_up(bare(&plan, &host), wanted.clone()).present;
    let (dev, rule) = wanted.rules[0].clone();
    let with = |change: &dyn Fn(&mut Filter)| {
        let mut present = up.clone();
        let filters = known(&mut port(&mut present.ports, &dev).filters);
        change(filters.iter_mut().find(|f| f.pref == rule.pref).unwrap());
        let rows = compare(&wanted, &present);
        state_of(
            &rows,
            |o| matches!(o, Object::Rule(d, r) if *d == dev && r.pref == rule.pref),
        )
        .clone()
    };
    assert_eq!(with(&|_| {}), State::Right);
    // What counters and ages say is no part of it.
    assert_eq!(
        with(&|f| {
            let actions = &mut f.flower.as_mut().unwrap().actions;
            actions[2].packets = Some(7);
            actions[2].hw_bytes = Some(700);
            actions[2].idle_seconds = Some(3);
        }),
        State::Right
    );
    type Edit<'a> = (&'a str, &'a dyn Fn(&mut Filter));
    fn flower(f: &mut Filter) -> &mut hairpin_mesh::facts::Flower {
        f.flower.as_mut().unwrap()
    }
    fn action(f: &mut Filter, i: usize) -> &mut Action {
        &mut flower(f).actions[i]
    }
    let other = Some(Mac([2, 0, 0, 0, 0, 9]));
    let stale: Vec<Edit> = vec![
        ("source MAC", &|f| {
            flower(f).src_mac = Some(Mac([2, 0, 0, 0, 0, 9]))
        }),
        ("no source MAC", &|f| flower(f).src_mac = None),
        ("source mask", &|f| {
            flower(f).src_mac_mask = Some(Mac([0xff, 0, 0, 0, 0, 0]))
        }),
        ("destination MAC", &|f| {
            flower(f).dst_mac = Some(Mac([2, 0, 0, 0, 0, 9]))
        }),
        ("destination mask", &|f| {
            flower(f).dst_mac_mask = Some(Mac([0xff; 6]))
        }),
        ("EtherType", &|f| {
            flower(f).eth_type = Some(EtherType(0x0800))
        }),
        ("another key", &|f| flower(f).other_keys = vec![44]),
        ("not skip_sw", &|f| flower(f).skip_sw = false),
        ("skip_hw", &|f| flower(f).skip_hw = true),
        ("not in_hw", &|f| flower(f).in_hw = false),
        ("not_in_hw", &|f| flower(f).not_in_hw = true),
        ("in_hw_count none", &|f| flower(f).in_hw_count = None),
        ("in_hw_count 0", &|f| flower(f).in_hw_count = Some(0)),
        ("no actions", &|f| flower(f).actions.clear()),
        ("one action less", &|f| {
            flower(f).actions.pop();
        }),
        ("one action more", &|f| {
            let a = action(f, 0).clone();
            flower(f).actions.push(a);
        }),
        ("other order", &|f| flower(f).actions.swap(0, 1)),
        ("pedit value", &|f| {
            action(f, 0).edits[0].value = "08010000".into()
        }),
        ("pedit mask", &|f| {
            action(f, 0).edits[0].keep = "00000000".into()
        }),
        ("pedit offset", &|f| action(f, 0).edits[0].offset = 16),
        ("pedit header", &|f| {
            action(f, 0).edits[0].header = "ip4".into()
        }),
        ("pedit command", &|f| {
            action(f, 0).edits[0].command = "add".into()
        }),
        ("pedit offset that moves", &|f| {
            action(f, 0).edits[0].moving = true
        }),
        ("new MAC, first word", &|f| {
            action(f, 1).edits[0].value = "00000000".into()
        }),
        ("new MAC, second word", &|f| {
            action(f, 1).edits[1].value = "00000000".into()
        }),
        ("one word less", &|f| {
            action(f, 1).edits.pop();
        }),
        ("pedit control", &|f| {
            action(f, 0).control = Some("pass".into())
        }),
        ("redirect elsewhere", &|f| {
            action(f, 2).mirred.as_mut().unwrap().dev = Some("eth9".parse().unwrap())
        }),
        ("redirect to a device that is gone", &|f| {
            action(f, 2).mirred.as_mut().unwrap().dev = None
        }),
        ("mirror in place of redirect", &|f| {
            action(f, 2).mirred.as_mut().unwrap().way = "egress mirror".into()
        }),
        ("into ingress", &|f| {
            action(f, 2).mirred.as_mut().unwrap().way = "ingress redirect".into()
        }),
        ("mirred control", &|f| {
            action(f, 2).control = Some("pipe".into())
        }),
        ("an action's own flags", &|f| {
            action(f, 2).other = Some(vec!["hw_stats 0".into()])
        }),
        ("in a shared block", &|f| f.block = Some(7)),
    ];
    for (what, change) in &stale {
        assert!(
            matches!(with(change), State::Stale(Stale::Rule(_))),
            "{what}: {:?}",
            with(change)
        );
    }
    let in_the_way: Vec<Edit> = vec![
        ("another handle", &|f| f.handle += 1),
        ("another protocol", &|f| f.protocol = EtherType(0x0800)),
        ("another classifier", &|f| {
            f.kind = "u32".into();
            f.flower = None;
        }),
    ];
    for (what, change) in &in_the_way {
        assert!(matches!(with(change), State::InTheWay { .. }), "{what}");
    }
    assert_eq!(with(&|f| f.chain = 1), State::Absent);
    assert_eq!(with(&|f| f.pref -= 1), State::Absent);
    assert_ne!(other, rule.flower.unwrap().src_mac);
}

#[test]
fn a_route_is_right_only_when_every_part_of_it_is_and_a_foreign_one_is_in_the_way() {
    let plan = plan("tp-along-ring");
    let host = plan.for_host("spark2").unwrap();
    let wanted = Wanted::of(&host);
    let up = brought_up(bare(&plan, &host), wanted.clone()).present;
    let with = |change: &dyn Fn(&mut Route)| {
        let mut present = up.clone();
        change(&mut known(&mut present.routes)[0]);
        compare(&wanted, &present)
            .into_iter()
            .find(|row| matches!(&row.object, Object::Route(r) if *r == wanted.routes[0]))
            .unwrap()
            .state
    };
    assert_eq!(with(&|_| {}), State::Right);
    assert_eq!(with(&|r| r.flags = vec!["linkdown".into()]), State::Right);
    let stale = |change: &dyn Fn(&mut Route)| matches!(with(change), State::Stale(Stale::Route(_)));
    // Of the scripts of today: it differs in its protocol number alone.
    assert!(stale(&|r| r.protocol = 3));
    // Ours, of another plan.
    assert!(stale(&|r| r.gateway = Some("10.99.0.1".parse().unwrap())));
    assert!(stale(&|r| r.dev = Some("eth9".parse().unwrap())));
    assert!(stale(&|r| r.src = None));
    assert!(stale(&|r| r.scope = "link".into()));
    assert!(stale(&|r| r.flags = vec!["onlink".into()]));
    assert!(stale(&|r| r.other = Some(vec!["metrics".into()])));
    // Somebody else's.
    let foreign = |change: &dyn Fn(&mut Route)| matches!(with(change), State::InTheWay { .. });
    assert!(foreign(&|r| {
        r.protocol = 4;
        r.gateway = None;
    }));
    assert!(foreign(&|r| r.metric = 100));
    assert!(foreign(&|r| r.tos = 4));
    assert!(foreign(&|r| r.kind = "blackhole".into()));
    assert!(foreign(&|r| r.multipath = true));
    // Other tables and other destinations are none of our business.
    assert_eq!(with(&|r| r.table = 100), State::Absent);
    assert_eq!(with(&|r| r.destination.prefix = 31), State::Absent);
}

#[test]
fn what_is_not_ours_and_in_the_way_is_named_with_the_way_out_and_never_touched() {
    each_host(|plan, host, wanted| {
        let mut present = bare(plan, host);
        let (dev, rule) = wanted.rules[0].clone();
        known(&mut port(&mut present.ports, &dev).qdiscs).push(qdisc(
            "ingress",
            "ffff:",
            "ffff:fff1",
        ));
        let mut foreign = rule.clone();
        foreign.handle += 1;
        known(&mut port(&mut present.ports, &dev).filters).push(foreign);
        known(&mut present.routes).push(Route {
            metric: 7,
            ..wanted.routes[0].clone()
        });
        let memory = Memory::new(present, wanted.clone());
        let up = up(&memory);
        assert_eq!(up.obstacles.len(), 3, "{:?}", up.obstacles);
        for row in &up.obstacles {
            let State::InTheWay { what, advice, .. } = &row.state else {
                panic!("{row:?}")
            };
            assert!(!what.is_empty() && !advice.is_empty());
        }
        let down = down(&memory);
        assert!(down.changes.is_empty(), "{:?}", down.changes);
        assert_eq!(down.left.len(), 2, "{:?}", down.left);
    });
}

#[test]
fn down_removes_ours_also_beside_something_of_others_and_names_that() {
    each_host(|plan, host, wanted| {
        let before = bare(plan, host);
        let mut memory = brought_up(before.clone(), wanted.clone());
        let (dev, rule) = wanted.rules[0].clone();
        let mut foreign_rule = rule.clone();
        foreign_rule.handle += 1;
        known(&mut port(&mut memory.present.ports, &dev).filters).push(foreign_rule.clone());
        let foreign_route = Route {
            metric: 50,
            protocol: 3,
            ..wanted.routes[0].clone()
        };
        known(&mut memory.present.routes).push(foreign_route.clone());
        let steps = down(&memory);
        assert_eq!(steps.left.len(), 2, "{:?}", steps.left);
        assert_eq!(steps.kept, std::slice::from_ref(&dev));
        for row in &steps.left {
            let State::InTheWay { ours, advice, .. } = &row.state else {
                panic!("{row:?}")
            };
            assert_eq!(**ours, State::Right);
            // The way out names the other's, not ours.
            assert!(
                advice.contains("metric 50")
                    || advice.contains(&format!("{:#x}", foreign_rule.handle)),
                "{advice}"
            );
        }
        assert!(apply_all(&mut memory, &steps.changes, &mut |_, _| {}).is_empty());
        assert_eq!(*known(&mut memory.present.routes), [foreign_route]);
        assert_eq!(
            *known(&mut port(&mut memory.present.ports, &dev).filters),
            [foreign_rule]
        );
        let rows = compare(&wanted, &memory.present);
        for row in rows {
            let ours = match row.state {
                State::InTheWay { ours, .. } => *ours,
                state => state,
            };
            assert!(
                ours == State::Absent || matches!(row.object, Object::Clsact(_)),
                "{} {ours:?}",
                row.object
            );
        }
    });
}

#[test]
fn a_learnt_neighbour_makes_room_and_a_permanent_one_of_another_does_not() {
    let plan = scope_link().unwrap();
    let host = plan
        .hosts
        .iter()
        .map(|h| plan.for_host(h.as_str()).unwrap())
        .find(|h| !h.neighbours.is_empty())
        .unwrap();
    let wanted = Wanted::of(&host);
    let (dev, neighbour) = wanted.neighbours[0].clone();
    let with = |state: &str, mac: Option<Mac>| {
        let mut present = bare(&plan, &host);
        known(&mut port(&mut present.ports, &dev).neighbours).push(Neighbour {
            mac,
            state: state.into(),
            ..neighbour.clone()
        });
        state_of(&compare(&wanted, &present), |o| {
            matches!(o, Object::Neighbour(..))
        })
        .clone()
    };
    let other = Some(Mac([2, 0, 0, 0, 0, 9]));
    assert_eq!(with("permanent", neighbour.mac), State::Right);
    assert_eq!(with("reachable", neighbour.mac), State::Absent);
    assert_eq!(with("failed", None), State::Absent);
    assert!(matches!(with("permanent", other), State::InTheWay { .. }));
    assert!(matches!(with("noarp", other), State::InTheWay { .. }));
}

#[test]
fn a_marker_is_right_only_when_it_runs_and_holds_the_device_as_it_is_now() {
    let plan = plan("tp-along-ring");
    let host = plan.for_host("spark2").unwrap();
    let wanted = Wanted::of(&host);
    let device = wanted.markers[0].clone();
    let with = |now: Fact<memory_marker::Now>| {
        let mut present = bare(&plan, &host);
        present.markers.insert(device.clone(), now);
        state_of(&compare(&wanted, &present), |o| {
            *o == Object::Marker(device.clone())
        })
        .clone()
    };
    assert_eq!(with(Fact::Known(marker("active"))), State::Right);
    for word in ["inactive", "failed"] {
        assert_eq!(with(Fact::Known(marker(word))), State::Absent);
    }
    for word in ["activating", "deactivating", "reloading", "maintenance"] {
        assert_eq!(
            with(Fact::Known(marker(word))),
            State::Changing(word.into())
        );
    }
    let mut gone = marker("active");
    gone.holds_device = Fact::Known(false);
    assert_eq!(with(Fact::Known(gone)), State::Stale(Stale::Marker));
    let unknown = with(Fact::NotObserved("no systemd".into()));
    assert_eq!(unknown, State::NotObserved("no systemd".into()));
}

mod memory_marker {
    pub type Now = hairpin_mesh::mesh::present::MarkerNow;
}

#[test]
fn down_takes_what_became_of_our_rule_and_leaves_what_became_another() {
    let plan = plan("tp-along-ring");
    let host = plan.for_host("spark2").unwrap();
    let wanted = Wanted::of(&host);
    let (dev, rule) = wanted.rules[0].clone();
    let with = |change: &dyn Fn(&mut Filter)| {
        let mut memory = brought_up(bare(&plan, &host), wanted.clone());
        let filters = known(&mut port(&mut memory.present.ports, &dev).filters);
        change(filters.iter_mut().find(|f| f.pref == rule.pref).unwrap());
        let down = down(&memory);
        let removed = down
            .changes
            .iter()
            .any(|c| matches!(c, Change::RemoveRule { rule: r, .. } if r.pref == rule.pref));
        (removed, down.left.len())
    };
    let redirect = |f: &mut Filter, dev: Option<&str>| {
        let action = f.flower.as_mut().unwrap().actions.last_mut().unwrap();
        action.mirred = Some(Mirred {
            way: "egress redirect".into(),
            dev: dev.map(|dev| dev.parse().unwrap()),
        });
    };
    assert_eq!(with(&|_| {}), (true, 0));
    assert_eq!(
        with(&|f| f.flower.as_mut().unwrap().in_hw = false),
        (true, 0)
    );
    assert_eq!(with(&|f| redirect(f, None)), (true, 0));
    assert_eq!(with(&|f| redirect(f, Some("eth9"))), (false, 1));
}

#[test]
fn a_clsact_stays_when_others_use_it_or_made_it() {
    let plan = plan("tp-along-ring");
    let host = plan.for_host("spark2").unwrap();
    let wanted = Wanted::of(&host);
    let dev = wanted.clsacts[0].clone();
    // Ours, with another's filter at egress.
    let mut memory = brought_up(bare(&plan, &host), wanted.clone());
    let mut foreign = wanted.rules[0].1.clone();
    foreign.side = hairpin_mesh::facts::Side::Egress;
    foreign.pref = 1;
    known(&mut port(&mut memory.present.ports, &dev).filters).push(foreign);
    let steps = down(&memory);
    assert_eq!(steps.kept, std::slice::from_ref(&dev));
    assert!(
        !steps
            .changes
            .contains(&Change::RemoveClsact { dev: dev.clone() })
    );
    // Another's: no record.
    let mut memory = brought_up(bare(&plan, &host), wanted.clone());
    memory.present.recorded_clsacts.remove(&dev);
    let steps = down(&memory);
    assert!(
        !steps
            .changes
            .contains(&Change::RemoveClsact { dev: dev.clone() })
    );
    assert!(steps.kept.is_empty());
    // Ours, and gone with its device: the record goes.
    let mut memory = brought_up(bare(&plan, &host), wanted);
    port(&mut memory.present.ports, &dev).link = Fact::Known(None);
    let steps = down(&memory);
    assert!(steps.changes.contains(&Change::ForgetClsact { dev }));
}

#[test]
fn what_an_earlier_plan_left_goes_first_and_exactly_that() {
    let old = plan("four-opposite-paths");
    let new = plan("tp-along-ring");
    assert_eq!(old.hosts, new.hosts);
    for host in &new.hosts {
        let (old_host, new_host) = (
            old.for_host(host.as_str()).unwrap(),
            new.for_host(host.as_str()).unwrap(),
        );
        let (old_wanted, new_wanted) = (Wanted::of(&old_host), Wanted::of(&new_host));
        let mut present = brought_up(bare(&old, &old_host), old_wanted.clone()).present;
        for device in &new_wanted.markers {
            present
                .markers
                .entry(device.clone())
                .or_insert(Fact::Known(marker("inactive")));
        }
        let earlier: Vec<Row> = compare(&old_wanted.without(&new_wanted), &present);
        let steps = steps::up(&compare(&new_wanted, &present), &earlier);
        let mut memory = Memory::new(present, new_wanted.clone());
        assert_eq!(
            apply(&mut memory, &steps.changes, &mut |_, _| {}),
            Outcome::Done
        );
        // The same as had only the new plan ever been applied, but for the clsact that stay recorded.
        let fresh = brought_up(bare(&new, &new_host), new_wanted.clone()).present;
        assert_eq!(
            differences(
                &new_wanted,
                &fresh,
                &Present {
                    recorded_clsacts: fresh.recorded_clsacts.clone(),
                    ..memory.present.clone()
                }
            ),
            Vec::<String>::new()
        );
        let left = compare(&old_wanted.without(&new_wanted), &memory.present);
        assert!(
            left.iter()
                .all(|row| row.state == State::Absent || matches!(row.object, Object::Clsact(_))),
            "{left:?}"
        );
    }
}

fn any_state() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0u8), Just(1), Just(2), Just(3), Just(4)]
}

proptest! {
    /// Each object absent, right, stale, of another, or half of both; a fault anywhere: what is not ours
    /// stays, and what is ours is either all there or as it was.
    #[test]
    fn whatever_is_there_foreign_things_stay_and_ours_are_all_or_as_before(
        which in 0usize..4,
        states in prop::collection::vec(any_state(), 16),
        fault in prop::option::of((1usize..20, 0u8..4)),
        second in prop::option::of(1usize..30),
    ) {
        let plan = plan("four-opposite-paths");
        let host = plan.for_host(plan.hosts[which].as_str()).unwrap();
        let wanted = Wanted::of(&host);
        let mut present = bare(&plan, &host);
        let mut states = states.into_iter().cycle();
        let mut foreign_filters = Vec::new();
        let mut foreign_routes = Vec::new();
        for (dev, rule) in &wanted.rules {
            let state = states.next().unwrap();
            let port = port(&mut present.ports, dev);
            if state != 0 && !known(&mut port.qdiscs).iter().any(|q| q.kind.as_str() == "clsact") {
                known(&mut port.qdiscs).push(qdisc("clsact", "ffff:", "ffff:fff1"));
            }
            let mut rule = rule.clone();
            match state {
                1 => known(&mut port.filters).push(rule),
                2 => {
                    rule.flower.as_mut().unwrap().dst_mac = Some(Mac([2, 0, 0, 0, 0, 7]));
                    known(&mut port.filters).push(rule);
                }
                3 => {
                    rule.pref -= 20000;
                    foreign_filters.push(rule.clone());
                    known(&mut port.filters).push(rule);
                }
                4 => {
                    rule.handle += 1;
                    foreign_filters.push(rule.clone());
                    known(&mut port.filters).push(rule);
                }
                _ => {}
            }
        }
        for route in &wanted.routes {
            let mut route = route.clone();
            match states.next().unwrap() {
                1 => known(&mut present.routes).push(route),
                2 => { route.protocol = 4; known(&mut present.routes).push(route); }
                3 => { route.destination.prefix = 24; foreign_routes.push(route.clone()); known(&mut present.routes).push(route); }
                4 => { route.metric = 5; foreign_routes.push(route.clone()); known(&mut present.routes).push(route); }
                _ => {}
            }
        }
        for device in &wanted.markers {
            let word = ["inactive", "active", "failed", "active", "inactive"][usize::from(states.next().unwrap())];
            present.markers.insert(device.clone(), Fact::Known(marker(word)));
        }
        let mut memory = Memory::new(present.clone(), wanted.clone());
        let steps = up(&memory);
        if let Some((at, kind)) = fault {
            let kind = [Fault::Refused, Fault::NoAnswer, Fault::Lost, Fault::Lie][usize::from(kind)];
            memory.faults.insert(at, kind);
        }
        if let Some(at) = second {
            memory.faults.insert(at, Fault::Refused);
        }
        if steps.obstacles.is_empty() {
            match apply(&mut memory, &steps.changes, &mut |_, _| {}) {
                Outcome::Done => prop_assert!(memory.not_as_wanted_now().is_empty()),
                Outcome::Restored { .. } => prop_assert!(differences(&wanted, &present, &memory.present).is_empty()),
                Outcome::NotRestored { differs, .. } => prop_assert!(!differs.is_empty()),
            }
        }
        let down = down(&memory);
        memory.faults.clear();
        apply_all(&mut memory, &down.changes, &mut |_, _| {});
        for filter in &foreign_filters {
            prop_assert!(memory.present.ports.iter_mut().any(|p| known(&mut p.filters).contains(filter)));
        }
        for route in &foreign_routes {
            prop_assert!(known(&mut memory.present.routes).contains(route));
        }
        let rows = compare(&wanted, &memory.present);
        for row in rows {
            if !matches!(row.object, Object::Clsact(_)) {
                prop_assert!(!matches!(row.state, State::Right), "{} stays", row.object);
            }
        }
    }
}
