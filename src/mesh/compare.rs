//! The comparison of what is wanted with what is there: the only place that knows when an object of
//! the mesh is right, and what is ours.

use crate::facts::{Fact, Filter, Flower, Neighbour, Qdisc, Route, Side};
use crate::mesh::change::{neighbour_text, route_text, rule_text};
use crate::mesh::present::{PortNow, Present};
use crate::mesh::wanted::{TABLE_MAIN, Wanted};
use crate::names::{NetdevName, RdmaName, Text};
use crate::plan::mesh::ROUTE_PROTOCOL;

/// An object of the mesh on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// The `clsact` discipline of a port.
    Clsact(NetdevName),
    /// A transit rule at the ingress of a port.
    Rule(NetdevName, Filter),
    /// The marker on an RDMA device.
    Marker(RdmaName),
    /// A permanent neighbour of a port.
    Neighbour(NetdevName, Neighbour),
    /// A host route.
    Route(Route),
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Object::Clsact(dev) => write!(f, "{dev} clsact"),
            Object::Rule(dev, rule) => write!(f, "{dev} rule {}", rule.pref),
            Object::Marker(device) => write!(f, "{device} marker"),
            Object::Neighbour(dev, neighbour) => write!(f, "{dev} neighbour {}", neighbour.address),
            Object::Route(route) => write!(f, "route {}", route.destination),
        }
    }
}

/// What is ours and not as wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stale {
    /// A rule with our preference, handle and protocol, and another content or not in hardware.
    Rule(Filter),
    /// A route with our protocol number and another content, or one that differs from ours in its
    /// protocol number alone.
    Route(Route),
    /// A marker that runs and does not hold the device as it is now: its rule is gone.
    Marker,
}

/// How an object stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// As wanted.
    Right,
    /// Not there, and nothing is in its place.
    Absent,
    /// Ours, and not as wanted.
    Stale(Stale),
    /// On its way from one state to another (systemd's word).
    Changing(Text),
    /// Something that is not ours is in its place: each named, and the way out.
    InTheWay {
        /// What it is, in the words of `ip` and `tc`.
        what: Vec<String>,
        /// What the user can do.
        advice: String,
        /// How ours stands beside it; [`State::Absent`] when it is not there.
        ours: Box<State>,
    },
    /// The port that it belongs to is not there.
    NoPort,
    /// It could not be read.
    NotObserved(String),
}

/// An object and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The object.
    pub object: Object,
    /// Its state.
    pub state: State,
}

/// Every wanted object with its state, in the order in which `up` makes them: what forwards, then
/// what marks, then what sends.
pub fn compare(wanted: &Wanted, present: &Present) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |object, state| rows.push(Row { object, state });
    for dev in &wanted.clsacts {
        row(
            Object::Clsact(dev.clone()),
            at_port(present, dev, clsact_state),
        );
    }
    for (dev, rule) in &wanted.rules {
        row(
            Object::Rule(dev.clone(), rule.clone()),
            at_port(present, dev, |port| rule_state(port, rule)),
        );
    }
    for device in &wanted.markers {
        row(
            Object::Marker(device.clone()),
            marker_state(present, device),
        );
    }
    for (dev, neighbour) in &wanted.neighbours {
        row(
            Object::Neighbour(dev.clone(), neighbour.clone()),
            at_port(present, dev, |port| neighbour_state(port, neighbour)),
        );
    }
    for route in &wanted.routes {
        row(Object::Route(route.clone()), route_state(present, route));
    }
    rows
}

/// The state of an object that lives on a port.
fn at_port(present: &Present, dev: &NetdevName, state: impl FnOnce(&PortNow) -> State) -> State {
    match present.port(dev) {
        Some(port) => match &port.link {
            Fact::Known(Some(_)) => state(port),
            Fact::Known(None) => State::NoPort,
            Fact::NotObserved(why) => State::NotObserved(why.clone()),
        },
        None => State::NotObserved(format!("{dev} is not among the ports that were read")),
    }
}

/// Where `clsact` hangs (`TC_H_CLSACT`, `linux/pkt_sched.h`, which is `TC_H_INGRESS` too).
const CLSACT_PARENT: &str = "ffff:fff1";

fn clsact_state(port: &PortNow) -> State {
    let qdiscs = match &port.qdiscs {
        Fact::Known(qdiscs) => qdiscs,
        Fact::NotObserved(why) => return State::NotObserved(why.clone()),
    };
    let at_place = |qdisc: &&Qdisc| qdisc.parent.as_str() == CLSACT_PARENT;
    match qdiscs.iter().find(at_place) {
        None => State::Absent,
        Some(qdisc) if qdisc.kind.as_str() == "clsact" && qdisc.other.is_none() => State::Right,
        Some(qdisc) => State::InTheWay {
            what: vec![qdisc_text(qdisc)],
            ours: Box::new(State::Absent),
            advice: format!(
                "both cannot be there; whoever made it can use clsact in its place, else tc qdisc del dev {} {}",
                port.netdev, qdisc.kind
            ),
        },
    }
}

/// A discipline in the words of `tc`.
fn qdisc_text(qdisc: &Qdisc) -> String {
    let other = qdisc.other.iter().flatten();
    let words: Vec<&str> = other.map(Text::as_str).collect();
    format!("qdisc {} {} {}", qdisc.kind, qdisc.handle, words.join(" "))
        .trim_end()
        .to_owned()
}

/// Whether two rules do the same to the same packets, wherever they are held.
pub fn same_rule(one: &Filter, other: &Filter) -> bool {
    one.as_written() == other.as_written()
}

/// Whether two rules look at the same bits of a packet: the kernel replaces one by the other at once.
pub fn same_keys(one: &Filter, other: &Filter) -> bool {
    let keys = |rule: &Filter| {
        let flower = rule.flower.as_ref()?;
        let mask = |mac: Option<crate::names::Mac>, mask: Option<crate::names::Mac>| {
            mac.map(|_| mask.unwrap_or(crate::names::Mac([0xff; 6])))
        };
        Some((
            flower.eth_type.is_some(),
            mask(flower.src_mac, flower.src_mac_mask),
            mask(flower.dst_mac, flower.dst_mac_mask),
            flower.other_keys.clone(),
        ))
    };
    match (keys(one), keys(other)) {
        // Of other keys only the numbers are known, not the masks.
        (Some(one), Some(other)) => one.3.is_empty() && one == other,
        _ => false,
    }
}

/// Whether a device has the rule. (How many have it must be known and not none: a filter says so only
/// when a driver took it.)
pub fn is_in_hardware(flower: &Flower) -> bool {
    flower.in_hw && !flower.not_in_hw && flower.in_hw_count.is_some_and(|count| count > 0)
}

fn rule_state(port: &PortNow, wanted: &Filter) -> State {
    let filters = match &port.filters {
        Fact::Known(filters) => filters,
        Fact::NotObserved(why) => return State::NotObserved(why.clone()),
    };
    let (mut ours, mut others, mut ways) = (None, Vec::new(), Vec::new());
    for filter in filters {
        if filter.side != Side::Ingress || filter.chain != 0 || filter.pref != wanted.pref {
            continue;
        }
        let identity = |f: &Filter| (f.protocol, f.handle, f.kind.clone());
        if identity(filter) == identity(wanted) {
            ours = Some(filter);
        } else {
            others.push(format!("filter {}", rule_text(filter)));
            ways.push(format!(
                "tc filter del dev {} ingress protocol {} pref {} handle {:#x} {}",
                port.netdev, filter.protocol, filter.pref, filter.handle, filter.kind
            ));
        }
    }
    let state = match ours {
        None => State::Absent,
        Some(rule)
            if same_rule(rule, wanted) && rule.flower.as_ref().is_some_and(is_in_hardware) =>
        {
            State::Right
        }
        Some(rule) => State::Stale(Stale::Rule(rule.clone())),
    };
    if others.is_empty() {
        return state;
    }
    State::InTheWay {
        what: others,
        advice: format!(
            "preference {} of {} is the mesh's; move the filter to another one, or {}",
            wanted.pref,
            port.netdev,
            ways.join("; ")
        ),
        ours: Box::new(state),
    }
}

fn marker_state(present: &Present, device: &RdmaName) -> State {
    let marker = match present.markers.get(device) {
        Some(Fact::Known(marker)) => marker,
        Some(Fact::NotObserved(why)) => return State::NotObserved(why.clone()),
        None => return State::NotObserved("its unit was not looked at".into()),
    };
    match marker.active.as_str() {
        "active" => match &marker.holds_device {
            Fact::Known(true) => State::Right,
            Fact::Known(false) => State::Stale(Stale::Marker),
            Fact::NotObserved(why) => State::NotObserved(why.clone()),
        },
        "inactive" | "failed" => State::Absent,
        _ => State::Changing(marker.active.clone()),
    }
}

fn neighbour_state(port: &PortNow, wanted: &Neighbour) -> State {
    let neighbours = match &port.neighbours {
        Fact::Known(neighbours) => neighbours,
        Fact::NotObserved(why) => return State::NotObserved(why.clone()),
    };
    match neighbours
        .iter()
        .find(|neighbour| neighbour.address == wanted.address)
    {
        None => State::Absent,
        Some(found) if found == wanted => State::Right,
        // An entry that the kernel learnt may go at any time by itself; ours takes its place.
        Some(found) if !matches!(found.state.as_str(), "permanent" | "noarp") => State::Absent,
        Some(found) => State::InTheWay {
            what: vec![format!("neighbour {}", neighbour_text(found))],
            ours: Box::new(State::Absent),
            advice: format!("ip neigh del {} dev {}", found.address, port.netdev),
        },
    }
}

/// A route without what the kernel notes of its state.
fn plain(route: &Route) -> Route {
    Route {
        flags: route
            .flags
            .iter()
            // `onlink` is a wish of who made it; the others are how things stand.
            .filter(|flag| flag.as_str() == "onlink")
            .cloned()
            .collect(),
        ..route.clone()
    }
}

fn route_state(present: &Present, wanted: &Route) -> State {
    let routes = match &present.routes {
        Fact::Known(routes) => routes,
        Fact::NotObserved(why) => return State::NotObserved(why.clone()),
    };
    let (mut right, mut ours, mut others) = (false, None, Vec::new());
    for route in routes {
        if route.table != TABLE_MAIN || route.destination != wanted.destination {
            continue;
        }
        let found = plain(route);
        if found == *wanted {
            right = true;
        } else if ours.is_none() && may_take_over(&found, wanted) {
            ours = Some(found);
        } else {
            others.push(route_text(route));
        }
    }
    // Beside a right one, what could have been taken over is in the way: the kernel would replace the one
    // that it finds first.
    if right {
        others.extend(ours.take().as_ref().map(route_text));
    }
    let state = match ours {
        Some(found) => State::Stale(Stale::Route(found)),
        None if right => State::Right,
        None => State::Absent,
    };
    if others.is_empty() {
        return state;
    }
    let ways: Vec<String> = others
        .iter()
        .map(|route| format!("ip route del {route}"))
        .collect();
    State::InTheWay {
        advice: format!(
            "only one route to {} can be the mesh's; ask whoever made it, or {}",
            wanted.destination,
            ways.join("; ")
        ),
        what: others
            .iter()
            .map(|route| format!("route {route}"))
            .collect(),
        ours: Box::new(state),
    }
}

/// Whether a route to our destination can be replaced by ours: it has our protocol number, or differs
/// from ours in that number alone (it is of the scripts of today).
fn may_take_over(found: &Route, wanted: &Route) -> bool {
    let same_place = (found.metric, found.tos, found.multipath, &found.kind)
        == (wanted.metric, wanted.tos, false, &wanted.kind);
    let but_protocol = Route {
        protocol: wanted.protocol,
        ..found.clone()
    };
    same_place && (found.protocol == ROUTE_PROTOCOL || but_protocol == *wanted)
}

/// How an object that was just made reads back, when it is not right.
pub fn reads_back(row: &Row) -> String {
    format!("{} was made and is not right: {}", row.object, row.state)
}

/// What is said of an object in this state, in a few words.
impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            State::Right => f.write_str("right"),
            State::Absent => f.write_str("absent"),
            State::Stale(Stale::Rule(rule)) => write!(f, "{}", rule_text(rule)),
            State::Stale(Stale::Route(route)) => write!(f, "{}", route_text(route)),
            State::Stale(Stale::Marker) => {
                f.write_str("running, without the device as it is now: its rule is gone")
            }
            State::Changing(word) => write!(f, "{word}"),
            State::InTheWay { what, .. } => {
                write!(f, "in the way and not ours: {}", what.join("; "))
            }
            State::NoPort => f.write_str("the port is not there"),
            State::NotObserved(why) => write!(f, "not observed: {why}"),
        }
    }
}

/// What differs between two looks at the host, of the objects that `wanted` names and the `clsact`
/// records: one line each. Counters and ages are no difference.
pub fn differences(wanted: &Wanted, before: &Present, now: &Present) -> Vec<String> {
    let rows = |present: &Present| -> Vec<Row> {
        let mut rows = compare(wanted, present);
        for row in &mut rows {
            if let State::Stale(Stale::Rule(rule)) = &mut row.state {
                *rule = rule.as_written();
            }
        }
        rows
    };
    let mut lines: Vec<String> = rows(before)
        .iter()
        .zip(rows(now))
        // A marker that systemd was bringing up by itself may have arrived, and one that had lost its
        // rule may have been restarted: nothing takes that back, and nothing has to.
        .filter(|(before, now)| {
            let may_differ = match before.state {
                State::Changing(_) => true,
                State::Stale(Stale::Marker) => now.state == State::Right,
                _ => false,
            };
            **before != *now && !may_differ
        })
        .map(|(before, now)| format!("{}: was {}, is {}", before.object, before.state, now.state))
        .collect();
    if before.recorded_clsacts != now.recorded_clsacts {
        let names = |ports: &std::collections::BTreeSet<NetdevName>| {
            let names: Vec<&str> = ports.iter().map(NetdevName::as_str).collect();
            if names.is_empty() {
                "none".into()
            } else {
                names.join(", ")
            }
        };
        lines.push(format!(
            "records of clsact: was {}, is {}",
            names(&before.recorded_clsacts),
            names(&now.recorded_clsacts)
        ));
    }
    lines
}
