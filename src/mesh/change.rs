//! One change to the kernel or to systemd, and the change that takes it back.

use std::fmt;

use serde::Serialize;

use crate::facts::{Filter, Neighbour, Route};
use crate::mesh::wanted::TABLE_MAIN;
use crate::names::{NetdevName, RdmaName};

/// One change. Everything that it takes to make it and to take it back is in it: it is journaled as
/// it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Change {
    /// Records that the `clsact` discipline of this port is ours, then adds it.
    AddClsact {
        /// The port.
        dev: NetdevName,
    },
    /// Removes the `clsact` discipline of this port, then the record.
    RemoveClsact {
        /// The port.
        dev: NetdevName,
    },
    /// Removes the record alone: the discipline is gone, with its device, say.
    ForgetClsact {
        /// The port.
        dev: NetdevName,
    },
    /// Adds a rule where there is none.
    AddRule {
        /// The port.
        dev: NetdevName,
        /// The rule.
        rule: Filter,
    },
    /// Puts a rule in the place of another, at once where the kernel can.
    ReplaceRule {
        /// The port.
        dev: NetdevName,
        /// The rule that goes.
        old: Filter,
        /// The rule that comes.
        new: Filter,
    },
    /// Removes a rule.
    RemoveRule {
        /// The port.
        dev: NetdevName,
        /// The rule.
        rule: Filter,
    },
    /// Starts a marker's unit.
    StartMarker {
        /// The RDMA device.
        device: RdmaName,
    },
    /// Restarts a marker's unit whose rule is gone.
    RestartMarker {
        /// The RDMA device.
        device: RdmaName,
    },
    /// Stops a marker's unit.
    StopMarker {
        /// The RDMA device.
        device: RdmaName,
    },
    /// Adds a permanent neighbour.
    AddNeighbour {
        /// The port.
        dev: NetdevName,
        /// The neighbour.
        neighbour: Neighbour,
    },
    /// Removes a permanent neighbour.
    RemoveNeighbour {
        /// The port.
        dev: NetdevName,
        /// The neighbour.
        neighbour: Neighbour,
    },
    /// Adds a route where there is none.
    AddRoute {
        /// The route.
        route: Route,
    },
    /// Puts a route in the place of another, at once.
    ReplaceRoute {
        /// The route that goes.
        old: Route,
        /// The route that comes.
        new: Route,
    },
    /// Removes a route.
    RemoveRoute {
        /// The route.
        route: Route,
    },
}

impl Change {
    /// What takes it back; `None` for a restart, which leaves things as they were.
    pub fn inverse(&self) -> Option<Change> {
        let inverse = match self.clone() {
            Change::AddClsact { dev } => Change::RemoveClsact { dev },
            Change::RemoveClsact { dev } => Change::AddClsact { dev },
            Change::AddRule { dev, rule } => Change::RemoveRule { dev, rule },
            Change::RemoveRule { dev, rule } => Change::AddRule { dev, rule },
            Change::ReplaceRule { dev, old, new } => Change::ReplaceRule {
                dev,
                old: new,
                new: old,
            },
            Change::StartMarker { device } => Change::StopMarker { device },
            Change::StopMarker { device } => Change::StartMarker { device },
            Change::AddNeighbour { dev, neighbour } => Change::RemoveNeighbour { dev, neighbour },
            Change::RemoveNeighbour { dev, neighbour } => Change::AddNeighbour { dev, neighbour },
            Change::AddRoute { route } => Change::RemoveRoute { route },
            Change::RemoveRoute { route } => Change::AddRoute { route },
            Change::ReplaceRoute { old, new } => Change::ReplaceRoute { old: new, new: old },
            Change::ForgetClsact { .. } | Change::RestartMarker { .. } => return None,
        };
        Some(inverse)
    }

    /// Whether traffic that flows may notice: something goes or is put in another's place. What only
    /// adds what is missing disturbs nobody.
    pub fn disturbs(&self) -> bool {
        match self {
            Change::AddClsact { .. }
            | Change::AddRule { .. }
            | Change::StartMarker { .. }
            | Change::AddNeighbour { .. }
            | Change::AddRoute { .. }
            // The discipline that is removed holds no filter, and the record is only ours.
            | Change::RemoveClsact { .. }
            | Change::ForgetClsact { .. } => false,
            Change::ReplaceRule { .. }
            | Change::RemoveRule { .. }
            | Change::RestartMarker { .. }
            | Change::StopMarker { .. }
            | Change::RemoveNeighbour { .. }
            | Change::ReplaceRoute { .. }
            | Change::RemoveRoute { .. } => true,
        }
    }
}

/// `enp1s0f0np0 preference 49152: add the transit rule to ...`: what is done and to what, one line.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::AddClsact { dev } => write!(f, "{dev}: add the clsact qdisc"),
            Change::RemoveClsact { dev } => write!(f, "{dev}: remove the clsact qdisc"),
            Change::ForgetClsact { dev } => {
                write!(f, "{dev}: forget the clsact qdisc, which is gone")
            }
            Change::AddRule { dev, rule } => {
                write!(f, "{dev}: add the rule {}", rule_passage(rule))
            }
            Change::ReplaceRule { dev, old, new } => write!(
                f,
                "{dev}: replace the rule {} by {}",
                rule_text(old),
                rule_text(new)
            ),
            Change::RemoveRule { dev, rule } => {
                write!(f, "{dev}: remove the rule {}", rule_passage(rule))
            }
            Change::StartMarker { device } => write!(f, "{device}: start the marker"),
            Change::RestartMarker { device } => write!(f, "{device}: restart the marker"),
            Change::StopMarker { device } => write!(f, "{device}: stop the marker"),
            Change::AddNeighbour { dev, neighbour } => {
                write!(f, "{dev}: add the neighbour {}", neighbour_text(neighbour))
            }
            Change::RemoveNeighbour { dev, neighbour } => write!(
                f,
                "{dev}: remove the neighbour {}",
                neighbour_text(neighbour)
            ),
            Change::AddRoute { route } => write!(f, "add the route {}", route_text(route)),
            Change::ReplaceRoute { old, new } => write!(
                f,
                "replace the route {} by {}",
                route_text(old),
                route_text(new)
            ),
            Change::RemoveRoute { route } => write!(f, "remove the route {}", route_text(route)),
        }
    }
}

/// What a rule of the mesh does, in a few words: `49152, from 4c:bb:... out by enp1s0f0np0`.
pub fn rule_passage(rule: &Filter) -> String {
    let flower = rule.flower.as_ref();
    let from = flower.and_then(|flower| flower.src_mac);
    let to = flower
        .and_then(|flower| flower.actions.last())
        .and_then(|action| action.mirred.as_ref())
        .and_then(|mirred| mirred.dev.as_ref());
    match (from, to) {
        (Some(from), Some(to)) => format!("{}, from {from} out by {to}", rule.pref),
        _ => rule_text(rule),
    }
}

/// A filter in the words of `tc`, with what makes it a rule of the mesh.
pub fn rule_text(rule: &Filter) -> String {
    let mut s = format!("protocol {} pref {}", rule.protocol, rule.pref);
    if rule.chain != 0 {
        s += &format!(" chain {}", rule.chain);
    }
    s += &format!(" handle {:#x} {}", rule.handle, rule.kind);
    let Some(flower) = &rule.flower else {
        return s;
    };
    let mac = |name: &str, mac: Option<crate::names::Mac>, mask: Option<crate::names::Mac>| {
        let mask = mask.map_or(String::new(), |mask| format!("/{mask}"));
        mac.map_or(String::new(), |mac| format!(" {name} {mac}{mask}"))
    };
    s += &mac("src_mac", flower.src_mac, flower.src_mac_mask);
    s += &mac("dst_mac", flower.dst_mac, flower.dst_mac_mask);
    if !flower.other_keys.is_empty() {
        s += &format!(" and {} more keys", flower.other_keys.len());
    }
    for (set, word) in [
        (flower.skip_sw, " skip_sw"),
        (flower.skip_hw, " skip_hw"),
        (flower.in_hw, " in_hw"),
        (flower.not_in_hw, " not_in_hw"),
    ] {
        if set {
            s += word;
        }
    }
    for action in &flower.actions {
        s += &format!(" action {}", action.kind);
        for edit in &action.edits {
            s += &format!(
                " {}+{}: {} {} mask {}",
                edit.header, edit.offset, edit.command, edit.value, edit.keep
            );
        }
        if let Some(mirred) = &action.mirred {
            let dev = mirred.dev.as_ref().map_or("*", |dev| dev.as_str());
            s += &format!(" {} dev {dev}", mirred.way);
        }
        if let Some(control) = &action.control {
            s += &format!(" {control}");
        }
    }
    s
}

/// A route in the words of `ip route`.
pub fn route_text(route: &Route) -> String {
    let mut s = if route.kind.as_str() == "unicast" {
        String::new()
    } else {
        format!("{} ", route.kind)
    };
    s += &route.destination.to_string();
    if let Some(gateway) = route.gateway {
        s += &format!(" via {gateway}");
    }
    if let Some(dev) = &route.dev {
        s += &format!(" dev {dev}");
    }
    if route.table != TABLE_MAIN {
        s += &format!(" table {}", route.table);
    }
    if let Some(src) = route.src {
        s += &format!(" src {src}");
    }
    s += &format!(" proto {}", route.protocol);
    if route.scope.as_str() != "global" {
        s += &format!(" scope {}", route.scope);
    }
    if route.metric != 0 {
        s += &format!(" metric {}", route.metric);
    }
    if route.tos != 0 {
        s += &format!(" tos {:#x}", route.tos);
    }
    if route.multipath {
        s += " (one of several next hops)";
    }
    s
}

/// A neighbour in the words of `ip neigh`.
pub fn neighbour_text(neighbour: &Neighbour) -> String {
    match neighbour.mac {
        Some(mac) => format!("{} lladdr {mac} {}", neighbour.address, neighbour.state),
        None => format!("{} {}", neighbour.address, neighbour.state),
    }
}
