//! What `verify` says of hosts in memory: each fault has its code, its cause on top, and a healthy host
//! has none.

#![allow(clippy::unwrap_used, clippy::panic)]

// Its faults are for the tests that apply.
#[allow(dead_code)]
#[path = "common/memory.rs"]
mod memory;

use hairpin_mesh::facts::{Applied, Fact, Mirred, Neighbour, QueuePair, Route, Side, Trust};
use hairpin_mesh::finding::{Finding, Severity};
use hairpin_mesh::mesh::apply::{Outcome, apply};
use hairpin_mesh::mesh::compare::compare;
use hairpin_mesh::mesh::condition::unmet;
use hairpin_mesh::mesh::present::Present;
use hairpin_mesh::mesh::steps;
use hairpin_mesh::mesh::verify::{Standing, Verified, marks, udp_source_port, verify};
use hairpin_mesh::mesh::wanted::Wanted;
use hairpin_mesh::names::{EtherType, Gid, Mac};
use hairpin_mesh::plan::{HostPlan, Plan};
use memory::{Memory, bare, known, marker, plan, port, qdisc};
use proptest::prelude::*;

/// A host as its plan wants it.
fn healthy(plan: &Plan, host: &HostPlan) -> Present {
    let wanted = Wanted::of(host);
    let mut memory = Memory::new(bare(plan, host), wanted);
    let up = steps::up(&compare(&memory.wanted, &memory.present), &[]);
    assert_eq!(
        apply(&mut memory, &up.changes, &mut |_, _| {}),
        Outcome::Done
    );
    memory.present
}

/// All findings, those under others too: code, object, severity.
fn flat(findings: &[Finding]) -> Vec<(&'static str, String, Severity)> {
    findings
        .iter()
        .flat_map(|finding| {
            let own = (
                finding.code,
                finding.object.clone().unwrap_or_default(),
                finding.severity,
            );
            std::iter::once(own).chain(flat(&finding.consequences))
        })
        .collect()
}

/// `spark2` of the plan whose queues need nothing, changed by `change`.
fn seen(change: impl FnOnce(&Plan, &HostPlan, &mut Present)) -> Verified {
    let plan = plan("queue-8192");
    let host = plan.for_host("spark2").unwrap();
    let mut present = healthy(&plan, &host);
    change(&plan, &host, &mut present);
    verify(&plan, &host, &present)
}

/// The codes on top, and of those the first's consequences.
fn codes(verified: &Verified) -> (Vec<&'static str>, Vec<&'static str>) {
    let top = verified.findings.iter().map(|f| f.code).collect();
    let under = verified
        .findings
        .first()
        .map(|f| f.consequences.iter().map(|f| f.code).collect())
        .unwrap_or_default();
    (top, under)
}

#[test]
fn a_healthy_host_has_no_finding_in_any_plan() {
    for case in [
        "tp-along-ring",
        "tp-against-ring",
        "four-opposite-paths",
        "swapped-ports-on-two-nodes",
        "queue-8192",
        "gid-index-5-everywhere",
    ] {
        let plan = plan(case);
        for host in &plan.hosts {
            let host = plan.for_host(host.as_str()).unwrap();
            let verified = verify(&plan, &host, &healthy(&plan, &host));
            assert_eq!(verified.findings, [], "{case} {}", host.host);
            assert!(verified.in_sync());
            assert!(verified.checks.iter().all(|c| c.standing == Standing::Ok));
            let objects = host.ports.len()
                + Wanted::of(&host).clsacts.len()
                + host.rules.len()
                + host.markers.len()
                + host.neighbours.len()
                + host.routes.len();
            assert_eq!(verified.checks.len(), objects, "everything is in the table");
        }
    }
}

#[test]
fn a_host_without_the_mesh_lacks_each_object_once() {
    let plan = plan("queue-8192");
    let host = plan.for_host("spark2").unwrap();
    let verified = verify(&plan, &host, &bare(&plan, &host));
    assert!(!verified.in_sync());
    let found = flat(&verified.findings);
    let count = |code: &str| found.iter().filter(|f| f.0 == code).count();
    assert_eq!(count("clsact-missing"), Wanted::of(&host).clsacts.len());
    assert_eq!(count("rule-missing"), host.rules.len());
    assert_eq!(count("marker-missing"), host.markers.len());
    assert_eq!(count("route-missing"), host.routes.len());
    assert_eq!(
        found.len(),
        Wanted::of(&host).clsacts.len() + host.rules.len() + host.markers.len() + host.routes.len()
    );
    // A rule cannot be where no clsact is.
    let top: Vec<&str> = verified.findings.iter().map(|f| f.code).collect();
    assert!(!top.contains(&"rule-missing"), "{top:?}");
}

#[test]
fn each_setting_of_a_port_has_its_code() {
    type Change<'a> = &'a dyn Fn(&mut hairpin_mesh::mesh::present::PortNow);
    let cases: Vec<(&str, Severity, Change)> = vec![
        ("port-mtu", Severity::Problem, &|p| {
            known(&mut p.link).as_mut().unwrap().mtu = Some(1500)
        }),
        ("port-address", Severity::Problem, &|p| {
            known(&mut p.addresses).clear()
        }),
        ("port-address", Severity::Problem, &|p| {
            known(&mut p.addresses)[0].prefix = 16
        }),
        ("port-gid", Severity::Problem, &|p| {
            *known(&mut p.gid) = None
        }),
        ("port-gid", Severity::Problem, &|p| {
            known(&mut p.gid).as_mut().unwrap().kind = "IB/RoCE v1".into()
        }),
        ("port-gid", Severity::Problem, &|p| {
            known(&mut p.gid).as_mut().unwrap().gid = Gid([0xfe; 16])
        }),
        ("port-gid", Severity::Problem, &|p| {
            known(&mut p.gid).as_mut().unwrap().netdev = None
        }),
        ("port-rdma", Severity::Problem, &|p| {
            *known(&mut p.rdma_state) = None
        }),
        ("port-rdma-state", Severity::Problem, &|p| {
            *known(&mut p.rdma_state) = Some("DOWN".into())
        }),
        ("port-rdma-mtu", Severity::Problem, &|p| {
            p.more.rdma_active_mtu = Fact::Known(1024)
        }),
        ("port-tc-offload", Severity::Problem, &|p| {
            p.offload = Fact::Known(false)
        }),
        ("port-steering", Severity::Problem, &|p| {
            p.steering = Fact::Known(Some("smfs".into()))
        }),
        ("port-eswitch", Severity::Problem, &|p| {
            p.more.eswitch = Fact::Known(Some("switchdev".into()))
        }),
        ("port-trust", Severity::Warning, &|p| {
            p.more.trust = Fact::Known(Trust::Dscp)
        }),
        ("hairpin-queue-size", Severity::Warning, &|p| {
            p.more.queue_size = Fact::Known(Some(1024))
        }),
        ("hairpin-queue-pending", Severity::Warning, &|p| {
            p.more.queue_state = Fact::Known(Applied::Pending)
        }),
        ("hairpin-queue-unknown", Severity::Warning, &|p| {
            p.more.queue_state = Fact::Known(Applied::Unknown)
        }),
        ("hairpin-queue-unknown", Severity::Warning, &|p| {
            p.more.queue_size = Fact::because("no")
        }),
        ("hairpin-num-queues", Severity::Warning, &|p| {
            p.more.num_queues = Fact::Known(Some(2))
        }),
        ("port-address", Severity::NotObserved, &|p| {
            p.addresses = Fact::because("no")
        }),
        ("port-gid", Severity::NotObserved, &|p| {
            p.gid = Fact::because("no")
        }),
        ("port-rdma-state", Severity::NotObserved, &|p| {
            p.rdma_state = Fact::because("no")
        }),
        ("port-rdma-mtu", Severity::NotObserved, &|p| {
            p.more.rdma_active_mtu = Fact::because("no")
        }),
        ("port-tc-offload", Severity::NotObserved, &|p| {
            p.offload = Fact::because("no")
        }),
        ("port-steering", Severity::NotObserved, &|p| {
            p.steering = Fact::because("no")
        }),
        ("port-eswitch", Severity::NotObserved, &|p| {
            p.more.eswitch = Fact::because("no")
        }),
    ];
    for (code, severity, change) in cases {
        let verified = seen(|_, _, present| change(&mut present.ports[1]));
        let port = seen(|_, _, _| {}).checks[1].object.clone();
        assert_eq!(
            flat(&verified.findings),
            [(code, port.clone(), severity)],
            "{code}"
        );
        assert_eq!(verified.in_sync(), severity == Severity::Warning, "{code}");
        let standing = verified
            .checks
            .iter()
            .find(|c| c.object == port)
            .unwrap()
            .standing;
        assert_eq!(
            standing,
            match severity {
                Severity::Warning => Standing::Warning,
                Severity::NotObserved => Standing::NotObserved,
                Severity::Problem => Standing::Fail,
            },
            "{code}"
        );
    }
}

#[test]
fn what_is_set_beside_the_address_is_waited_for_only_while_its_port_comes_up() {
    type Change<'a> = &'a dyn Fn(&mut hairpin_mesh::mesh::present::PortNow);
    let cases: [(&str, Change); 3] = [
        ("port-mtu", &|p| {
            known(&mut p.link).as_mut().unwrap().mtu = Some(1500)
        }),
        ("port-tc-offload", &|p| p.offload = Fact::Known(false)),
        ("port-steering", &|p| {
            p.steering = Fact::Known(Some("smfs".into()))
        }),
    ];
    let plan = plan("queue-8192");
    let host = plan.for_host("spark2").unwrap();
    let dev = host.rules[0].dev.clone();
    for (code, change) in cases {
        for coming_up in [false, true] {
            let mut present = healthy(&plan, &host);
            let port = port(&mut present.ports, &dev);
            change(port);
            if coming_up {
                known(&mut port.addresses).clear();
            }
            let all = unmet(&plan, &host, &present);
            let found: Vec<bool> = all
                .iter()
                .filter(|unmet| unmet.finding.code == code)
                .map(|unmet| unmet.waiting_helps)
                .collect();
            assert_eq!(found, [coming_up], "{code}");
        }
    }
}

#[test]
fn a_port_that_is_gone_is_the_cause_of_everything_on_it() {
    let verified = seen(|_, host, present| {
        let dev = host.rules[0].dev.clone();
        let port = port(&mut present.ports, &dev);
        port.link = Fact::Known(None);
        port.rdma_state = Fact::Known(None);
        port.gid = Fact::Known(None);
    });
    let (top, under) = codes(&verified);
    assert_eq!(top, ["port-missing"]);
    assert!(
        under.contains(&"clsact-missing") && under.contains(&"rule-missing"),
        "{under:?}"
    );
}

#[test]
fn a_link_that_is_down_explains_its_rdma_port_its_gid_and_its_route() {
    let verified = seen(|_, host, present| {
        let route = host.routes[0];
        let port = port(&mut present.ports, &route.dev);
        known(&mut port.link).as_mut().unwrap().state = "down".into();
        port.rdma_state = Fact::Known(Some("DOWN".into()));
        port.gid = Fact::Known(None);
        for route in known(&mut present.routes) {
            if route.dev.as_ref() == Some(&host.routes[0].dev) {
                route.flags = vec!["linkdown".into()];
            }
        }
    });
    let (top, under) = codes(&verified);
    assert_eq!(top, ["port-link"]);
    assert_eq!(under, ["port-rdma-state", "port-gid", "route-linkdown"]);
}

#[test]
fn a_port_without_its_rdma_device_explains_all_that_its_rdma_port_would_tell() {
    let verified = seen(|_, host, present| {
        let port = port(&mut present.ports, &host.ports[0].netdev);
        port.rdma_state = Fact::Known(None);
        port.more.rdma_active_mtu = Fact::because("no RDMA device");
    });
    let (top, under) = codes(&verified);
    assert_eq!(top, ["port-rdma"]);
    assert_eq!(under, ["port-rdma-mtu"]);
}

#[test]
fn offload_that_is_off_explains_rules_that_are_not_there() {
    let verified = seen(|_, host, present| {
        let dev = host.rules[0].dev.clone();
        let port = port(&mut present.ports, &dev);
        port.offload = Fact::Known(false);
        known(&mut port.filters).clear();
    });
    let (top, under) = codes(&verified);
    assert_eq!(
        (top, under),
        (vec!["port-tc-offload"], vec!["rule-missing"])
    );
}

#[test]
fn what_is_wrong_with_a_rule_is_told_apart() {
    let with = |change: &dyn Fn(&mut hairpin_mesh::facts::Filter)| {
        let verified = seen(|_, host, present| {
            let dev = host.rules[0].dev.clone();
            change(&mut known(&mut port(&mut present.ports, &dev).filters)[0]);
        });
        assert_eq!(verified.findings.len(), 1, "{:?}", verified.findings);
        assert!(!verified.in_sync());
        verified.findings[0].code
    };
    assert_eq!(
        with(&|f| f.flower.as_mut().unwrap().in_hw = false),
        "rule-not-in-hardware"
    );
    assert_eq!(
        with(&|f| f.flower.as_mut().unwrap().in_hw_count = Some(0)),
        "rule-not-in-hardware"
    );
    assert_eq!(
        with(&|f| f.flower.as_mut().unwrap().src_mac = Some(Mac([2; 6]))),
        "rule-other"
    );
    assert_eq!(
        with(&|f| {
            let action = f.flower.as_mut().unwrap().actions.last_mut().unwrap();
            action.mirred = Some(Mirred {
                way: "egress redirect".into(),
                dev: None,
            });
        }),
        "rule-dead-egress"
    );
    assert_eq!(with(&|f| f.handle += 1), "rule-in-the-way");
}

#[test]
fn a_rule_that_takes_nothing_while_the_kernel_drops_is_remarked() {
    let with = |packets: Option<u64>, before: Option<u64>, dropped: u64| {
        let verified = seen(|_, host, present| {
            let dev = host.rules[0].dev.clone();
            if let Some(before) = before {
                present.dropped_when_made.insert(dev.clone(), before);
            }
            let port = port(&mut present.ports, &dev);
            known(&mut port.link).as_mut().unwrap().rx_dropped = Some(dropped);
            let flower = known(&mut port.filters)[0].flower.as_mut().unwrap();
            flower.actions.last_mut().unwrap().hw_packets = packets;
        });
        assert!(verified.in_sync());
        flat(&verified.findings)
            .into_iter()
            .map(|f| f.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(with(Some(0), Some(0), 3), ["rule-takes-nothing"]);
    assert_eq!(with(Some(0), Some(2), 3), ["rule-takes-nothing"]);
    let none = Vec::<&str>::new();
    assert_eq!(with(Some(0), Some(3), 3), none);
    assert_eq!(with(Some(0), Some(9), 3), none, "the device counts anew");
    assert_eq!(with(Some(0), None, 3), none, "nobody knows since when");
    assert_eq!(with(Some(5), Some(0), 3), none);
    assert_eq!(with(None, Some(0), 3), none);
}

#[test]
fn what_is_wrong_with_a_marker_is_told_apart() {
    let with = |now: hairpin_mesh::mesh::present::MarkerNow| {
        let verified = seen(|_, host, present| {
            present
                .markers
                .insert(host.markers[0].device.clone(), Fact::Known(now));
        });
        assert_eq!(verified.findings.len(), 1, "{:?}", verified.findings);
        (
            verified.findings[0].code,
            verified.findings[0].found.clone(),
        )
    };
    assert_eq!(
        with(marker("inactive")),
        ("marker-missing", "no marker".into())
    );
    assert_eq!(
        with(marker("failed")),
        ("marker-missing", "its unit failed".into())
    );
    assert_eq!(with(marker("activating")).0, "marker-changing");
    let mut gone = marker("active");
    gone.holds_device = Fact::Known(false);
    assert_eq!(with(gone).0, "marker-without-rule");
}

#[test]
fn routes_that_are_missing_other_or_in_the_way_are_told_apart() {
    let with = |change: &dyn Fn(&mut Vec<Route>)| {
        let verified = seen(|_, _, present| change(known(&mut present.routes)));
        flat(&verified.findings)
            .into_iter()
            .map(|f| f.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        with(&|r| {
            r.remove(0);
        }),
        ["route-missing"]
    );
    assert_eq!(with(&|r| r[0].protocol = 3), ["route-other"]);
    assert_eq!(with(&|r| r[0].metric = 3), ["route-in-the-way"]);
    assert_eq!(
        with(&|r| r[0].flags = vec!["dead".into()]),
        ["route-linkdown"]
    );
    assert_eq!(
        with(&|r| {
            let mut other = r[0].clone();
            other.destination.prefix = 31;
            r.push(other);
        }),
        ["left-over-route"]
    );
}

#[test]
fn very_many_things_that_are_left_over_are_told_in_part_and_counted() {
    let verified = seen(|_, _, present| {
        let routes = known(&mut present.routes);
        let one = routes[0].clone();
        for i in 0..5000u32 {
            let mut other = one.clone();
            other.destination.address = (0xc612_0000 + i).into();
            routes.push(other);
        }
    });
    let found = flat(&verified.findings);
    assert_eq!(found.len(), 32);
    assert!(found.iter().all(|f| f.0 == "left-over-route"));
    assert!(
        verified.findings[31]
            .found
            .ends_with("and 4968 more of the kind"),
        "{}",
        verified.findings[31].found
    );
}

#[test]
fn a_gateway_that_answers_with_another_mac_is_not_the_planned_neighbour() {
    let with = |mac: Option<Mac>, state: &str| {
        let verified = seen(|_, host, present| {
            let route = host.routes[0];
            known(&mut port(&mut present.ports, &route.dev).neighbours).push(Neighbour {
                address: std::net::IpAddr::V4(route.gateway.unwrap()),
                mac,
                state: state.into(),
            });
        });
        flat(&verified.findings)
            .into_iter()
            .map(|f| (f.0, f.2))
            .collect::<Vec<_>>()
    };
    let plan = plan("queue-8192");
    let gateway = plan.for_host("spark2").unwrap().routes[0].gateway.unwrap();
    let peer = plan
        .ports
        .iter()
        .find(|p| p.ipv4.address == gateway)
        .unwrap();
    assert_eq!(with(Some(peer.mac), "reachable"), []);
    assert_eq!(
        with(Some(Mac([2, 0, 0, 0, 0, 1])), "stale"),
        [("gateway-mac", Severity::Problem)]
    );
    assert_eq!(
        with(None, "failed"),
        [("gateway-silent", Severity::Warning)]
    );
    assert_eq!(with(None, "incomplete"), []);
}

#[test]
fn ordinary_queue_pairs_that_leave_from_the_marked_port_are_warned_of_on_marker_devices_alone() {
    let (local, remote) = (0x3fff, 1);
    assert_eq!(udp_source_port(local, remote), 65535);
    let qp = |number, remote_number| QueuePair {
        number,
        remote_number: Some(remote_number),
        kind: "RC".into(),
        state: "RTS".into(),
        pid: Some(7),
        owner: Fact::Known("engine".into()),
    };
    let with = |marked: bool, number| {
        let verified = seen(|_, host, present| {
            let row = host
                .ports
                .iter()
                .find(|row| host.markers.iter().any(|m| m.device == row.rdma) == marked)
                .unwrap();
            known(&mut port(&mut present.ports, &row.netdev).more.queue_pairs)
                .push(qp(number, remote));
        });
        flat(&verified.findings)
            .into_iter()
            .map(|f| f.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(with(true, local), ["source-port-collision"]);
    assert_eq!(with(true, local - 1), Vec::<&str>::new());
    assert_eq!(with(false, local), Vec::<&str>::new());
}

#[test]
fn very_many_rules_that_come_first_are_one_remark_that_counts_them() {
    let verified = seen(|_, host, present| {
        let dev = host.rules[0].dev.clone();
        let filters = known(&mut port(&mut present.ports, &dev).filters);
        let mut other = filters[0].clone();
        other.pref -= 100;
        other.protocol = EtherType(3);
        for handle in 1..=5000 {
            other.handle = handle;
            filters.push(other.clone());
        }
    });
    let [remark] = &verified.findings[..] else {
        panic!("{} findings", verified.findings.len());
    };
    assert_eq!(remark.code, "rule-shadowed");
    assert!(remark.found.contains("handle 0x1 "), "{}", remark.found);
    assert!(
        remark.found.ends_with(", and 4999 more"),
        "{}",
        remark.found
    );
}

/// Thousands of findings are each under their cause, in the order in which they were found.
#[test]
fn very_many_findings_are_under_their_causes() {
    let verified = seen(|_, host, present| {
        let dev = host.rules[0].dev.clone();
        let filters = known(&mut port(&mut present.ports, &dev).filters);
        let mut other = filters[0].clone();
        for pref in 1..=5000 {
            other.pref = pref;
            filters.push(other.clone());
        }
        filters.retain(|filter| filter.pref <= 5000);
        port(&mut present.ports, &dev).qdiscs = Fact::Known(Vec::new());
    });
    let (top, under) = codes(&verified);
    assert_eq!(top[0], "clsact-missing");
    assert_eq!(under, ["rule-missing"]);
    assert_eq!(top.iter().filter(|c| **c == "left-over-rule").count(), 32);
}

#[test]
fn marks_of_another_plan_and_rules_that_come_first_are_remarked() {
    let with = |change: &dyn Fn(&mut hairpin_mesh::facts::Filter)| {
        let verified = seen(|_, host, present| {
            let dev = host.rules[0].dev.clone();
            let filters = known(&mut port(&mut present.ports, &dev).filters);
            let mut other = filters[0].clone();
            other.pref -= 100;
            change(&mut other);
            filters.push(other);
        });
        assert!(verified.in_sync());
        flat(&verified.findings)
            .into_iter()
            .map(|f| f.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(with(&|_| {}), ["left-over-rule"]);
    assert_eq!(with(&|f| f.protocol = EtherType(3)), ["rule-shadowed"]);
    assert_eq!(
        with(&|f| f.protocol = EtherType(0x0800)),
        Vec::<&str>::new()
    );
    assert_eq!(
        with(&|f| {
            f.protocol = EtherType(3);
            f.flower.as_mut().unwrap().in_hw = false;
        }),
        Vec::<&str>::new()
    );
    assert_eq!(
        with(&|f| {
            f.protocol = EtherType(3);
            f.side = Side::Egress;
        }),
        Vec::<&str>::new()
    );
}

#[test]
fn a_plain_ingress_discipline_is_in_the_way_of_the_rules() {
    let verified = seen(|_, host, present| {
        let dev = host.rules[0].dev.clone();
        let port = port(&mut present.ports, &dev);
        known(&mut port.qdiscs).retain(|q| q.kind.as_str() != "clsact");
        known(&mut port.qdiscs).push(qdisc("ingress", "ffff:", "ffff:fff1"));
        known(&mut port.filters).clear();
    });
    let (top, under) = codes(&verified);
    assert_eq!(
        (top, under),
        (vec!["clsact-in-the-way"], vec!["rule-missing"])
    );
    assert!(
        verified.findings[0]
            .advice
            .as_ref()
            .unwrap()
            .contains("tc qdisc del")
    );
}

proptest! {
    /// However many things are wrong at once: nothing is lost by putting consequences under causes,
    /// and what refuses comes before what only warns.
    #[test]
    fn every_finding_is_told_once_whatever_else_is_wrong(
        bits in prop::collection::vec(any::<bool>(), 64),
    ) {
        let plan = plan("queue-8192");
        let host = plan.for_host("spark2").unwrap();
        let mut present = healthy(&plan, &host);
        let mut bits = bits.into_iter().cycle();
        let mut wrong = 0;
        let mut coin = || { let bit = bits.next().unwrap(); wrong += usize::from(bit); bit };
        for port in &mut present.ports {
            if coin() { known(&mut port.link).as_mut().unwrap().state = "down".into(); }
            if coin() { known(&mut port.link).as_mut().unwrap().mtu = Some(1500); }
            if coin() { known(&mut port.addresses).clear(); }
            if coin() { *known(&mut port.gid) = None; }
            if coin() { port.offload = Fact::Known(false); }
            if coin() { port.more.trust = Fact::Known(Trust::Dscp); }
            if coin() { port.more.rdma_active_mtu = Fact::because("no"); }
            if coin() { port.rdma_state = Fact::Known(Some("DOWN".into())); }
        }
        for (dev, rule) in &Wanted::of(&host).rules {
            if coin() {
                known(&mut port(&mut present.ports, dev).filters).retain(|f| f.pref != rule.pref);
            }
        }
        if coin() { known(&mut present.routes).remove(0); }
        let verified = verify(&plan, &host, &present);
        let all = flat(&verified.findings);
        prop_assert_eq!(all.len(), wrong, "{:?}", all);
        let mut unique = all.clone();
        unique.sort();
        unique.dedup();
        prop_assert_eq!(unique.len(), all.len());
    }
}

#[test]
fn whatever_has_the_marks_of_a_mesh_is_found_without_a_plan() {
    let plan = plan("queue-8192");
    let host = plan.for_host("spark2").unwrap();
    assert_eq!(marks(&bare(&plan, &host)), []);
    let present = healthy(&plan, &host);
    let found = flat(&marks(&present));
    let count = |code: &str| found.iter().filter(|f| f.0 == code).count();
    assert_eq!(count("left-over-route"), host.routes.len());
    assert_eq!(count("left-over-rule"), host.rules.len());
    assert_eq!(found.len(), host.routes.len() + host.rules.len());
    assert!(
        marks(&present)
            .iter()
            .all(|f| f.advice.is_some() && f.wanted == "none")
    );
    // A discipline that we made is ours until somebody else uses it.
    let dev = host.rules[0].dev.clone();
    let mut present = healthy(&plan, &host);
    present.routes = Fact::Known(Vec::new());
    for port in &mut present.ports {
        if port.netdev != dev {
            port.filters = Fact::Known(Vec::new());
            port.qdiscs = Fact::Known(Vec::new());
        }
    }
    let mut foreign = known(&mut port(&mut present.ports, &dev).filters)[0].clone();
    known(&mut port(&mut present.ports, &dev).filters).clear();
    present.recorded_clsacts.insert(dev.clone());
    let of = |present: &Present| -> Vec<&'static str> {
        marks(present).iter().map(|f| f.code).collect()
    };
    assert_eq!(of(&present), ["left-over-clsact"]);
    foreign.protocol = EtherType(0x0806);
    known(&mut port(&mut present.ports, &dev).filters).push(foreign);
    assert_eq!(of(&present), [""; 0]);
    // What cannot be looked at is not taken for none.
    present.routes = Fact::because("no");
    port(&mut present.ports, &dev).filters = Fact::because("no");
    let severities: Vec<Severity> = marks(&present).iter().map(|f| f.severity).collect();
    assert_eq!(severities, [Severity::NotObserved; 2]);
}
