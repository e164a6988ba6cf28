//! The comparison read as findings: what is right, what is not, what cannot be seen; causes before
//! their consequences.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::facts::{Applied, Fact, Filter, Flower, Qdisc, QueuePair, Side, Trust};
use crate::finding::{Finding, Severity};
use crate::mesh::change::{route_text, rule_passage, rule_text};
use crate::mesh::compare::{Object, Row, Stale, State, compare, same_rule};
use crate::mesh::condition::unmet;
use crate::mesh::present::{PortMore, PortNow, Present};
use crate::mesh::wanted::{TABLE_MAIN, Wanted};
use crate::names::{NetdevName, RdmaName};
use crate::plan::ends::more;
use crate::plan::mesh::{
    DEFAULT_HAIRPIN_QUEUE, MARKED_ETHERTYPE, MARKED_UDP_SOURCE_PORT, QUALIFIED_HAIRPIN_NUM_QUEUES,
    ROCE_MTU, ROUTE_PROTOCOL, marker_unit,
};
use crate::plan::{HostPlan, Plan, PortRow};

/// How something that was looked at stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Standing {
    /// As planned.
    #[serde(rename = "ok")]
    Ok,
    /// As planned, with a remark.
    #[serde(rename = "warning")]
    Warning,
    /// Not as planned.
    #[serde(rename = "FAIL")]
    Fail,
    /// Nobody knows.
    #[serde(rename = "not observed")]
    NotObserved,
}

/// A line of the table: something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// How it stands.
    pub standing: Standing,
    /// What: a port, a rule, a route, a marker.
    pub object: String,
    /// What was seen.
    pub detail: String,
}

/// What `verify` has to say of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Everything that was looked at, in the plan's order.
    pub checks: Vec<Check>,
    /// What is not as planned, causes first, with what follows from each.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Whether every object of the plan and every setting that refuses one was read and is right.
    pub fn in_sync(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| worst(finding) == Severity::Warning)
    }
}

/// What a look cannot show, whatever was found.
pub const NOT_COVERED: &[&str] = &[
    "whether packets really take the hairpin, and none is lost: hairpin-mesh probe shows it",
    "whether the hairpin queues hold the bursts of the engine: rx_out_of_buffer of the ports shows it",
    "whether the kernel forwards in place of the NIC: IpForwDatagrams counts all that a node forwards, so its rise says something around a run alone, which hairpin-mesh probe makes",
];

/// Holds the host against its plan.
pub fn verify(plan: &Plan, host: &HostPlan, present: &Present) -> Verified {
    let wanted = Wanted::of(host);
    let rows = compare(&wanted, present);
    let mut all: Vec<Finding> = unmet(plan, host, present)
        .into_iter()
        .map(|unmet| unmet.finding)
        .map(unseen)
        .collect();
    for row in &host.ports {
        if let Some(port) = present.port(&row.netdev) {
            settings(plan, row, port, &mut all);
        }
    }
    for row in &rows {
        all.extend(object(row, present));
    }
    gateways(plan, host, present, &mut all);
    all.extend(collisions(host, present));
    all.extend(left_over(&wanted, present));
    for finding in &mut all {
        finding.host = Some(host.host.to_string());
    }
    let checks = table(plan, host, present, &rows, &all);
    Verified {
        checks,
        findings: nested(all, host),
    }
}

/// A condition that could not be read is told from one that is not met.
fn unseen(finding: Finding) -> Finding {
    if finding.found.contains("not observed:") {
        Finding {
            severity: Severity::NotObserved,
            ..finding
        }
    } else {
        finding
    }
}

/// The settings that `up` does not look at.
fn settings(plan: &Plan, row: &PortRow, port: &PortNow, all: &mut Vec<Finding>) {
    if port.link.known().is_none_or(Option::is_none) {
        return;
    }
    let more = &port.more;
    let mut push = |finding: Finding| all.push(finding.at(&row.netdev));
    match &more.eswitch {
        Fact::Known(None) => {}
        Fact::Known(Some(mode)) if mode.as_str() == "legacy" => {}
        Fact::Known(Some(mode)) => push(Finding::problem(
            "port-eswitch",
            format!("eswitch mode {mode}"),
            "legacy",
        )),
        Fact::NotObserved(why) => push(Finding::not_observed(
            "port-eswitch",
            "eswitch mode",
            why,
            "legacy",
        )),
    }
    match &more.rdma_active_mtu {
        Fact::Known(mtu) if *mtu == ROCE_MTU => {}
        Fact::Known(mtu) => push(Finding::problem(
            "port-rdma-mtu",
            format!("active RDMA MTU {mtu}"),
            ROCE_MTU.to_string(),
        )),
        Fact::NotObserved(why) => push(Finding::not_observed(
            "port-rdma-mtu",
            "active RDMA MTU",
            why,
            ROCE_MTU.to_string(),
        )),
    }
    match &more.trust {
        Fact::Known(Trust::Dscp) => push(
            Finding::warning("port-trust", "the port trusts DSCP", "PCP")
                .advise("mlx5 takes hairpin rules of ports that trust PCP alone: remove the port's dscp-prio entries (dcb app)"),
        ),
        // A driver without DCB trusts nothing.
        Fact::Known(Trust::Pcp) | Fact::NotObserved(_) => {}
    }
    queue(plan, more, &mut push);
}

fn queue(plan: &Plan, more: &PortMore, push: &mut impl FnMut(Finding)) {
    let wanted = plan.hairpin_queue_wanted;
    // It takes the port and its queue pairs away for seconds. `up` does it with --set-hairpin-queue alone.
    let advice = wanted.map(|size| {
        format!("while nothing uses the fabric: hairpin-mesh hairpin-queue {size}, or up --set-hairpin-queue")
    });
    let mut warn = |code, found: String, wanted: String| {
        let finding = Finding::warning(code, found, wanted);
        push(match &advice {
            Some(advice) => finding.advise(advice),
            None => finding,
        });
    };
    let size_wanted = wanted.unwrap_or(plan.hairpin_queue_size);
    match (&more.queue_size, &more.queue_state) {
        (Fact::Known(Some(size)), Fact::Known(Applied::Applied)) if *size >= size_wanted => {}
        (Fact::Known(Some(size)), Fact::Known(Applied::Applied)) => warn(
            "hairpin-queue-size",
            format!("hairpin_queue_size {size}"),
            size_wanted.to_string(),
        ),
        (Fact::Known(Some(size)), Fact::Known(Applied::Pending)) => warn(
            "hairpin-queue-pending",
            format!("hairpin_queue_size {size} is set and not loaded"),
            "it loaded (driver re-initialisation)".into(),
        ),
        (Fact::Known(Some(size)), _) => warn(
            "hairpin-queue-unknown",
            format!(
                "hairpin_queue_size {size} may or may not be loaded; {DEFAULT_HAIRPIN_QUEUE} counts"
            ),
            "a size known to be loaded".into(),
        ),
        (Fact::Known(None), _) => warn(
            "hairpin-queue-unknown",
            "the driver shows no hairpin_queue_size".into(),
            size_wanted.to_string(),
        ),
        (Fact::NotObserved(why), _) => warn(
            "hairpin-queue-unknown",
            format!("hairpin_queue_size not observed: {why}"),
            size_wanted.to_string(),
        ),
    }
    match &more.num_queues {
        Fact::Known(Some(n)) if *n == QUALIFIED_HAIRPIN_NUM_QUEUES => {}
        Fact::Known(Some(n)) => push(Finding::warning(
            "hairpin-num-queues",
            format!("hairpin_num_queues {n}"),
            QUALIFIED_HAIRPIN_NUM_QUEUES.to_string(),
        )
        .advise(format!(
            "while nothing uses the fabric: hairpin-mesh hairpin-queue --num-queues {QUALIFIED_HAIRPIN_NUM_QUEUES}"
        ))),
        Fact::Known(None) | Fact::NotObserved(_) => {}
    }
}

/// Where the user gets everything of this host right again.
const UP: &str = "hairpin-mesh up";

/// What is to be said of an object, beyond that it is right.
pub(crate) fn object(row: &Row, present: &Present) -> Option<Finding> {
    let (kind, wanted): (&str, String) = match &row.object {
        Object::Clsact(_) => ("clsact", "a clsact qdisc".into()),
        Object::Rule(_, rule) => ("rule", rule_text(rule)),
        Object::Marker(_) => ("marker", "one that runs and holds its rule".into()),
        Object::Neighbour(_, neighbour) => {
            ("neighbour", crate::mesh::change::neighbour_text(neighbour))
        }
        Object::Route(route) => ("route", route_text(route)),
    };
    let code = |missing, other, in_the_way| match &row.state {
        State::Absent | State::NoPort => missing,
        State::InTheWay { .. } => in_the_way,
        _ => other,
    };
    let code = match kind {
        "clsact" => code("clsact-missing", "clsact-other", "clsact-in-the-way"),
        "rule" => code("rule-missing", "rule-other", "rule-in-the-way"),
        "marker" => code("marker-missing", "marker-without-rule", "marker-in-the-way"),
        "neighbour" => code(
            "neighbour-missing",
            "neighbour-other",
            "neighbour-in-the-way",
        ),
        _ => code("route-missing", "route-other", "route-in-the-way"),
    };
    let problem = |code, found: String| Finding::problem(code, found, wanted.clone());
    let missing = |kind: &str, object: &Object, why: &str| {
        // In the words of the plan; the whole rule helps nobody who has none.
        let wanted = match object {
            Object::Rule(_, rule) => rule_passage(rule),
            _ => wanted.clone(),
        };
        Finding::problem(code, format!("no {kind}{why}"), wanted)
    };
    let finding = match (&row.object, &row.state) {
        (Object::Route(route), State::Right) => return link_of(route, present),
        (Object::Rule(dev, rule), State::Right) => return idle(dev, rule, present),
        (_, State::Right) => return None,
        (_, State::NotObserved(why)) => Finding::not_observed(code, kind, why, wanted.clone()),
        (Object::Marker(device), State::Absent) => {
            let failed = present
                .markers
                .get(device)
                .and_then(Fact::known)
                .is_some_and(|marker| marker.active.as_str() == "failed");
            let found = if failed { "its unit failed" } else { "no marker" };
            problem(code, found.into()).advise(if failed {
                format!("journalctl -u {}, then {UP}", marker_unit(device))
            } else {
                UP.into()
            })
        }
        (_, State::Absent) => missing(kind, &row.object, "").advise(UP),
        (_, State::NoPort) => missing(kind, &row.object, ": its port is not there").advise(UP),
        (Object::Rule(_, wanted), State::Stale(Stale::Rule(found))) => stale_rule(wanted, found),
        (_, State::Stale(Stale::Route(found))) => problem(code, route_text(found)).advise(UP),
        (_, State::Stale(Stale::Marker)) => problem(
            code,
            "the marker runs and does not hold the device as it is now: its rule went with a re-initialisation".into(),
        )
        .advise(UP),
        (_, State::Stale(Stale::Rule(found))) => problem(code, rule_text(found)).advise(UP),
        (_, State::Changing(word)) => problem("marker-changing", format!("its unit is {word}"))
            .advise("wait, and look at systemctl status if it stays so"),
        (_, State::InTheWay { what, advice, ours }) => {
            problem(code, format!("{}; ours is {ours}", what.join("; "))).advise(advice.clone())
        }
    };
    Some(finding.at(&row.object))
}

fn stale_rule(wanted: &Filter, found: &Filter) -> Finding {
    let flower = found.flower.as_ref();
    let dead = flower.is_some_and(|flower| {
        flower
            .actions
            .iter()
            .filter_map(|action| action.mirred.as_ref())
            .any(|mirred| mirred.dev.is_none())
    });
    let finding = if same_rule(found, wanted) {
        let count = flower.and_then(|flower| flower.in_hw_count);
        Finding::problem(
            "rule-not-in-hardware",
            match count {
                Some(0) | None => "the rule is not in hardware".to_owned(),
                Some(count) => format!("the rule is not in hardware, and {count} devices have it"),
            },
            "in_hw",
        )
    } else if dead {
        Finding::problem(
            "rule-dead-egress",
            "the rule redirects to a device that is gone: its port was re-initialised after the rule was made, or is not there",
            rule_text(wanted),
        )
    } else {
        Finding::problem("rule-other", rule_text(found), rule_text(wanted))
    };
    finding.advise(UP)
}

/// The rule as the kernel has it.
fn found_rule<'a>(present: &'a Present, dev: &NetdevName, rule: &Filter) -> Option<&'a Filter> {
    let filters = present.port(dev)?.filters.known()?;
    let place = |f: &Filter| (f.side, f.chain, f.pref);
    filters.iter().find(|found| place(found) == place(rule))
}

/// Packets that the NIC forwarded by a rule: its last action counts them.
fn forwarded(rule: &Filter) -> Option<u64> {
    rule.flower.as_ref()?.actions.last()?.hw_packets
}

/// Packets that came in at a port since `up` made its rules, and that the kernel dropped. Not known where
/// it was not `up`.
fn dropped(present: &Present, dev: &NetdevName) -> Option<u64> {
    let now = present.port(dev)?.link.known()?.as_ref()?.rx_dropped?;
    // A device that was re-initialised counts from 0 again.
    Some(now.saturating_sub(*present.dropped_when_made.get(dev)?))
}

/// A rule that is in hardware and never took a packet, while the kernel drops packets that come in there:
/// the NIC may have lost it. (Protocols that nobody listens to, LLDP say, are dropped there too.)
fn idle(dev: &NetdevName, rule: &Filter, present: &Present) -> Option<Finding> {
    let dropped = dropped(present, dev).filter(|count| *count > 0)?;
    let found = found_rule(present, dev, rule)?;
    if forwarded(found) != Some(0) {
        return None;
    }
    Some(
        Finding::warning(
            "rule-takes-nothing",
            format!("the rule never took a packet, and the kernel dropped {dropped} that came in at {dev} since it was made"),
            "marked packets taken by the NIC",
        )
        .at(Object::Rule(dev.clone(), rule.clone()))
        .advise("hairpin-mesh probe tells whether the path works; when it does not: hairpin-mesh down, then up"),
    )
}

/// A right route over a link that is down carries nothing.
fn link_of(wanted: &crate::facts::Route, present: &Present) -> Option<Finding> {
    let routes = present.routes.known()?;
    let found = routes.iter().find(|route| {
        route.table == TABLE_MAIN
            && route.destination == wanted.destination
            && route.protocol == wanted.protocol
    })?;
    let down = found
        .flags
        .iter()
        .find(|flag| matches!(flag.as_str(), "linkdown" | "dead"))?;
    Some(
        Finding::problem(
            "route-linkdown",
            format!("the route is {down}"),
            "its link up",
        )
        .at(Object::Route(wanted.clone())),
    )
}

/// What the kernel knows of the gateways, against the ports that the plan has there.
fn gateways(plan: &Plan, host: &HostPlan, present: &Present, all: &mut Vec<Finding>) {
    for route in &host.routes {
        let Some(gateway) = route.gateway else {
            continue;
        };
        let Some(peer) = plan.ports.iter().find(|port| port.ipv4.address == gateway) else {
            continue;
        };
        let Some(neighbours) = present
            .port(&route.dev)
            .and_then(|port| port.neighbours.known())
        else {
            continue;
        };
        let entry = neighbours
            .iter()
            .find(|neighbour| neighbour.address == std::net::IpAddr::V4(gateway));
        let wanted = format!("{} of {} {}", peer.mac, peer.host, peer.netdev);
        let finding = match entry {
            Some(entry) => match entry.mac {
                Some(mac) if mac == peer.mac => continue,
                Some(mac) => Finding::problem(
                    "gateway-mac",
                    format!("the gateway {gateway} answers with MAC {mac}"),
                    wanted,
                )
                .advise("the cable, the address or the plan is another: make the plan again from fresh inventories"),
                None if entry.state.as_str() == "failed" => Finding::warning(
                    "gateway-silent",
                    format!("the gateway {gateway} does not answer"),
                    wanted,
                )
                .advise(format!("is {} up?", peer.host)),
                None => continue,
            },
            // Nobody has asked yet.
            None => continue,
        };
        all.push(finding.at(&route.dev));
    }
}

/// UDP source port of a connected queue pair whose flow label is 0 (`rdma_calc_flow_label` and
/// `rdma_flow_label_to_udp_sport`, `rdma/ib_verbs.h`).
pub fn udp_source_port(local: u32, remote: u32) -> u16 {
    let mut v = u64::from(local) * u64::from(remote);
    v ^= v >> 20;
    v ^= v >> 40;
    let label = (v & 0xf_ffff) as u32;
    (((label & 0x3fff) ^ (label >> 14)) as u16) | 0xc000
}

/// Ordinary queue pairs that leave from the marker's port by chance, and are then forwarded to the
/// wrong node. The kernel shows no flow label, so one of a diagonal looks the same.
pub(crate) fn collisions(host: &HostPlan, present: &Present) -> Vec<Finding> {
    let mut findings = Vec::new();
    for marker in &host.markers {
        let port = host
            .ports
            .iter()
            .find(|row| row.rdma == marker.device)
            .and_then(|row| present.port(&row.netdev));
        let Some(queue_pairs) = port.and_then(|port| port.more.queue_pairs.known()) else {
            continue;
        };
        findings.extend(
            queue_pairs
                .iter()
                .filter_map(|qp| collision(&marker.device, qp)),
        );
    }
    findings
}

/// A queue pair of a marker's device that may send from the source port that is the mark.
pub(crate) fn collision(device: &RdmaName, qp: &QueuePair) -> Option<Finding> {
    let remote = collides(qp)?;
    let owner = qp.owner.known().map_or("?", |owner| owner.as_str());
    let finding = Finding::warning(
        "source-port-collision",
        format!(
            "queue pair {} (peer {remote}) of {owner} sends from UDP port {MARKED_UDP_SOURCE_PORT} if its flow label is 0",
            qp.number
        ),
        "another port, unless it is a diagonal's",
    );
    Some(
        finding
            .at(device)
            .advise("restart what opened it: it gets other numbers"),
    )
}

fn collides(qp: &QueuePair) -> Option<u32> {
    let remote = qp.remote_number.filter(|remote| *remote != 0)?;
    (udp_source_port(qp.number, remote) == MARKED_UDP_SOURCE_PORT).then_some(remote)
}

/// Objects of one kind that are left over and told one by one; the others are counted.
const MOST_LEFT_OVER: usize = 32;

/// The first of the findings of a kind, and how many more there are.
fn first_of(mut findings: Vec<Finding>) -> Vec<Finding> {
    let rest = findings.len().saturating_sub(MOST_LEFT_OVER);
    findings.truncate(MOST_LEFT_OVER);
    if let Some(last) = findings.last_mut() {
        last.found += &more(rest);
    }
    findings
}

/// What has the marks of the mesh and is not in this plan, and what comes before its rules.
pub fn left_over(wanted: &Wanted, present: &Present) -> Vec<Finding> {
    let (mut routes, mut rules, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    for route in present.routes.known().into_iter().flatten() {
        let planned = |own: &crate::facts::Route| own.destination == route.destination;
        if route.protocol == ROUTE_PROTOCOL
            && !(route.table == TABLE_MAIN && wanted.routes.iter().any(planned))
        {
            routes.push(
                Finding::warning("left-over-route", route_text(route), "only the plan's")
                    .at(format!("route {}", route.destination))
                    .advise(format!("ip route del {}", route_text(route))),
            );
        }
    }
    for port in &present.ports {
        let own: Vec<&Filter> = wanted
            .rules
            .iter()
            .filter(|(dev, _)| *dev == port.netdev)
            .map(|(_, rule)| rule)
            .collect();
        let mut before: Vec<&Filter> = Vec::new();
        for filter in port.filters.known().into_iter().flatten() {
            if filter.side != Side::Ingress || filter.chain != 0 {
                continue;
            }
            if own.iter().any(|rule| rule.pref == filter.pref) {
                continue;
            }
            let marked = filter.protocol.0 == MARKED_ETHERTYPE;
            let first = own.iter().any(|rule| filter.pref < rule.pref);
            if marked {
                let before = match &filter.flower {
                    Some(flower) if first && flower.in_hw => {
                        ", in hardware before the mesh's rules: packets that it matches never come to these"
                    }
                    _ => "",
                };
                let found = rule_text(filter) + before;
                rules.push(
                    Finding::warning("left-over-rule", found, "only the plan's")
                        .at(format!("{} rule {}", port.netdev, filter.pref))
                        .advise(format!(
                            "tc filter del dev {} ingress pref {}",
                            port.netdev, filter.pref
                        )),
                );
            } else if first && may_take_all(filter) {
                before.push(filter);
            }
        }
        // Who puts one there may put very many: they are one remark.
        if let Some(first) = before.first() {
            let more = match before.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            let text = rule_text(first);
            let found = match first.flower {
                Some(_) => format!("in hardware before the mesh's rules: {text}{more}"),
                None => format!(
                    "before the mesh's rules: {text}{more}; whether the device has it, and what it takes, is not looked into"
                ),
            };
            let wanted = "nothing that takes marked packets first";
            findings.push(Finding::warning("rule-shadowed", found, wanted).at(&port.netdev));
        }
    }
    [first_of(routes), first_of(rules), findings].concat()
}

/// What has the marks of the mesh, whatever plan it is of, and what could not be looked at for them.
pub fn marks(present: &Present) -> Vec<Finding> {
    let mut findings = left_over(&Wanted::default(), present);
    for finding in &mut findings {
        finding.wanted = "none".into();
    }
    if let Fact::NotObserved(why) = &present.routes {
        let finding =
            Finding::not_observed("left-over-route", "routes", why, "none of protocol 141");
        findings.push(finding);
    }
    for port in &present.ports {
        if let Fact::NotObserved(why) = &port.filters {
            let wanted = "none of the mesh";
            let finding = Finding::not_observed("left-over-rule", "tc filters", why, wanted);
            findings.push(finding.at(&port.netdev));
            continue;
        }
        // One that holds filters is somebody's by now.
        let recorded = present.recorded_clsacts.contains(&port.netdev);
        let is_clsact = |qdisc: &Qdisc| qdisc.kind.as_str() == "clsact";
        let there = !matches!(&port.qdiscs, Fact::Known(all) if !all.iter().any(is_clsact));
        if recorded && there && port.filters.known().is_some_and(Vec::is_empty) {
            let advice = format!("tc qdisc del dev {} clsact", port.netdev);
            let finding = Finding::warning("left-over-clsact", "a clsact of the mesh", "none");
            findings.push(finding.at(&port.netdev).advise(advice));
        }
    }
    findings
}

/// `ETH_P_ALL` (`linux/if_ether.h`).
const ETH_P_ALL: u16 = 0x0003;

/// Whether a filter takes packets of any EtherType where the mesh's rules do, or may.
fn may_take_all(filter: &Filter) -> bool {
    let in_hw = |flower: &Flower| flower.in_hw;
    filter.protocol.0 == ETH_P_ALL && filter.flower.as_ref().is_none_or(in_hw)
}

/// What causes what on one port: a finding of the first code explains those of the others.
const CAUSES: &[(&str, &[&str])] = &[
    (
        "port-missing",
        &[
            "port-",
            "clsact-",
            "rule-",
            "marker-",
            "neighbour-",
            "route-",
            "gateway-",
            "hairpin-",
        ],
    ),
    ("port-rdma", &["port-gid", "port-rdma-", "marker-"]),
    (
        "port-link",
        &[
            "port-rdma-state",
            "port-gid",
            "port-rdma-mtu",
            "route-",
            "gateway-",
        ],
    ),
    ("port-address", &["port-gid", "route-missing", "gateway-"]),
    ("port-mtu", &["port-rdma-mtu"]),
    ("port-tc-offload", &["rule-missing", "rule-not-in-hardware"]),
    ("port-trust", &["rule-missing", "rule-not-in-hardware"]),
    ("clsact-", &["rule-missing"]),
];

/// The findings with each consequence under its cause, where the cause is among them.
fn nested(all: Vec<Finding>, host: &HostPlan) -> Vec<Finding> {
    let ports: Vec<Option<NetdevName>> = all.iter().map(|f| port_of(f, host)).collect();
    // For each row of the table, the first cause that is there for each port. (A host can have very many
    // findings: each is looked at once for each row.)
    let first: Vec<BTreeMap<&NetdevName, usize>> = CAUSES
        .iter()
        .map(|(cause, _)| {
            let mut first = BTreeMap::new();
            for (i, port) in ports.iter().enumerate() {
                match port {
                    Some(port) if is_code(all[i].code, cause) => {
                        first.entry(port).or_insert(i);
                    }
                    _ => {}
                }
            }
            first
        })
        .collect();
    // The parent of each: the first cause in the table's order that is there for the same port.
    let parents: Vec<Option<usize>> = all
        .iter()
        .zip(&ports)
        .map(|(effect, port)| {
            let port = port.as_ref()?;
            CAUSES
                .iter()
                .zip(&first)
                .find_map(|((cause, effects), first)| {
                    let explained = effects.iter().any(|start| effect.code.starts_with(start));
                    if !explained || is_code(effect.code, cause) {
                        return None;
                    }
                    first.get(port).copied()
                })
        })
        .collect();
    let mut slots: Vec<Option<Finding>> = all.into_iter().map(Some).collect();
    // The root of each chain takes everything under it, in the order found.
    let root = |mut i: usize| {
        for _ in 0..parents.len() {
            match parents[i] {
                Some(parent) => i = parent,
                None => break,
            }
        }
        i
    };
    for i in 0..slots.len() {
        let top = root(i);
        if top == i {
            continue;
        }
        if let Some(effect) = slots[i].take() {
            match &mut slots[top] {
                Some(cause) => cause.consequences.push(effect),
                None => slots[i] = Some(effect),
            }
        }
    }
    let mut rest: Vec<Finding> = slots.into_iter().flatten().collect();
    // What refuses first, then what is not known, then remarks.
    rest.sort_by_key(|finding| std::cmp::Reverse(worst(finding)));
    rest
}

fn worst(finding: &Finding) -> Severity {
    finding
        .consequences
        .iter()
        .map(worst)
        .fold(finding.severity, Severity::max)
}

/// Whether a code is `cause`, or one of its kind when that ends in `-`.
fn is_code(code: &str, cause: &str) -> bool {
    if cause.ends_with('-') {
        code.starts_with(cause)
    } else {
        code == cause
    }
}

/// The port that a finding is about.
pub(crate) fn port_of(finding: &Finding, host: &HostPlan) -> Option<NetdevName> {
    let object = finding.object.as_deref()?;
    let first = object.split(' ').next()?;
    let port = host
        .ports
        .iter()
        .find(|row| row.netdev.as_str() == first || row.rdma.as_str() == first);
    if let Some(port) = port {
        return Some(port.netdev.clone());
    }
    let destination = object.strip_prefix("route ")?;
    let route = host
        .routes
        .iter()
        .find(|row| destination == format!("{}/32", row.destination))?;
    Some(route.dev.clone())
}

/// Everything that was looked at.
fn table(
    plan: &Plan,
    host: &HostPlan,
    present: &Present,
    rows: &[Row],
    findings: &[Finding],
) -> Vec<Check> {
    let standing = |object: &str| {
        findings
            .iter()
            .filter(|finding| finding.object.as_deref() == Some(object))
            .map(|finding| finding.severity)
            .max()
            .map_or(Standing::Ok, |severity| match severity {
                Severity::Warning => Standing::Warning,
                Severity::NotObserved => Standing::NotObserved,
                Severity::Problem => Standing::Fail,
            })
    };
    let mut checks = Vec::new();
    let mut push = |object: String, detail: String| {
        checks.push(Check {
            standing: standing(&object),
            object,
            detail,
        });
    };
    for row in &host.ports {
        let detail = present
            .port(&row.netdev)
            .map_or_else(String::new, |port| port_detail(plan, row, port));
        push(row.netdev.to_string(), detail);
    }
    for row in rows {
        let detail = match (&row.object, &row.state) {
            (Object::Rule(dev, rule), State::Right) => rule_detail(present, dev, rule),
            (Object::Route(route), State::Right) => route_text(route),
            (Object::Marker(device), State::Right) => {
                let pid = present.markers.get(device).and_then(Fact::known);
                pid.map_or_else(String::new, |marker| format!("process {}", marker.pid))
            }
            (_, state) => state.to_string(),
        };
        push(row.object.to_string(), detail);
    }
    checks
}

fn port_detail(plan: &Plan, row: &PortRow, port: &PortNow) -> String {
    fn shown<T: std::fmt::Display>(fact: &Fact<T>) -> String {
        fact.known().map_or("?".into(), ToString::to_string)
    }
    let link = match &port.link {
        Fact::Known(Some(link)) => link,
        Fact::Known(None) => return "no such network device".into(),
        Fact::NotObserved(why) => return format!("not observed: {why}"),
    };
    let addresses = port.addresses.known().map_or("?".into(), |all| {
        let words: Vec<String> = all.iter().map(ToString::to_string).collect();
        if words.is_empty() {
            "no address".into()
        } else {
            words.join(" ")
        }
    });
    let rdma = match port.rdma_state.known() {
        Some(Some(state)) => state.to_string(),
        Some(None) => "absent".into(),
        None => "?".into(),
    };
    let offload = match port.offload.known() {
        Some(true) => "on",
        Some(false) => "off",
        None => "?",
    };
    let steering = match port.steering.known() {
        Some(Some(mode)) => format!(", {mode}"),
        _ => String::new(),
    };
    let queue = match port.more.queue_size.known() {
        Some(Some(size)) => {
            let state = match port.more.queue_state.known() {
                Some(Applied::Applied) => "",
                Some(Applied::Pending) => " (pending)",
                _ => " (loaded?)",
            };
            format!(", hairpin queue {size}{state}")
        }
        _ => String::new(),
    };
    let trust = port
        .more
        .trust
        .known()
        .map_or(String::new(), |trust| format!(", trust {trust}"));
    format!(
        "{}, MTU {}, {addresses}, {} {rdma} (MTU {}), GID {}, offload {offload}{steering}{queue}{trust}",
        link.state,
        link.mtu.map_or("?".into(), |mtu| mtu.to_string()),
        row.rdma,
        shown(&port.more.rdma_active_mtu),
        plan.gid_index
    )
}

fn rule_detail(present: &Present, dev: &NetdevName, rule: &Filter) -> String {
    let Some(found) = found_rule(present, dev, rule) else {
        return String::new();
    };
    let action = found
        .flower
        .as_ref()
        .and_then(|flower| flower.actions.last());
    let to = action
        .and_then(|action| action.mirred.as_ref())
        .and_then(|mirred| mirred.dev.as_ref())
        .map_or("*", |dev| dev.as_str());
    let packets = match forwarded(found) {
        Some(packets) => format!("{packets} packets forwarded by the NIC"),
        None => "packets not counted".into(),
    };
    let dropped = match dropped(present, dev) {
        Some(0) | None => String::new(),
        Some(count) => format!(", {count} dropped by the kernel at {dev} since"),
    };
    format!("in hardware, to {to}, {packets}{dropped}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_leaves_from_the_port_that_the_kernel_computes() {
        // 0x11 * 0x12 = 306 = 0x132: label 0x132, port 0xc132.
        assert_eq!(udp_source_port(0x11, 0x12), 0xc132);
        // A product of more than 20 bits folds: 0x1000 * 0x1000 = 1 << 24; the 20 upper bits give 0x10.
        assert_eq!(udp_source_port(0x1000, 0x1000), 0xc010);
        // Bits 14 to 19 of the label fold onto the lowest: 0x4000 gives 1.
        assert_eq!(udp_source_port(0x4000, 1), 0xc001);
        assert_eq!(udp_source_port(0x3fff, 1), MARKED_UDP_SOURCE_PORT);
        assert_eq!(udp_source_port(0, 77), 0xc000);
    }
}
