//! Rules, routes and markers against the plan that the facts give: what `verify` compares on a node, of
//! all nodes at once and from their facts alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use crate::doctor::Case;
use crate::doctor::chain::Seen;
use crate::doctor::fabric::Fabric;
use crate::facts::{Applied, Fact, Filter, Inventory, Route};
use crate::finding::Finding;
use crate::mesh::compare::{Object, Stale, State, compare, is_in_hardware};
use crate::mesh::present::{LinkNow, MarkerNow, PortMore, PortNow, Present};
use crate::mesh::verify::{collision, collisions, left_over, object};
use crate::mesh::wanted::{TABLE_MAIN, Wanted};
use crate::names::{Cidr, HostName, Mac, RdmaName, Text};
use crate::plan::ends::{count, list};
use crate::plan::mesh::{
    MARKED_ETHERTYPE, MARKED_UDP_SOURCE_PORT, ROUTE_PROTOCOL, WANTED_HAIRPIN_QUEUE, size_cap,
};
use crate::plan::{Choices, HostPlan, OppositePaths, Plan, PortRow, RouteStrategy, assemble};

/// What of a mesh is on a host.
#[derive(Default, Clone, Copy)]
struct Traces {
    rules: usize,
    routes: usize,
    markers: usize,
}

impl Traces {
    fn of(inventory: &Inventory) -> Traces {
        let filters = inventory
            .ports
            .iter()
            .flat_map(|port| port.details.filters.known().into_iter().flatten());
        let routes = inventory.node.routes.known().into_iter().flatten();
        Traces {
            rules: filters
                .filter(|filter| filter.protocol.0 == MARKED_ETHERTYPE)
                .count(),
            routes: routes
                .filter(|route| route.protocol == ROUTE_PROTOCOL)
                .count(),
            markers: inventory.node.markers.known().map_or(0, Vec::len),
        }
    }

    fn any(self) -> bool {
        self.rules + self.routes + self.markers > 0
    }
}

/// Whether there is no mesh on any host, by facts that would show one.
pub(super) fn is_absent(fabric: &Fabric) -> bool {
    fabric.inventories.iter().all(|inventory| {
        let filters = inventory
            .ports
            .iter()
            .all(|port| port.details.filters.known().is_some());
        let observed = inventory.node.routes.known().is_some()
            && inventory.node.markers.known().is_some()
            && filters;
        observed && !Traces::of(inventory).any()
    })
}

/// Compares, and gives the plan that it compared with.
pub(super) fn look(
    case: &Case,
    fabric: &Fabric,
    seen: &mut Vec<Seen>,
    notes: &mut Vec<Finding>,
) -> Option<Plan> {
    let traces: Vec<Traces> = fabric.inventories.iter().map(Traces::of).collect();
    if let Some(plan) = case.plan {
        given_plan(plan, fabric, seen);
        notes.extend(other_order(plan, fabric));
    }
    let plan = of_facts(case, fabric).or_else(|| case.plan.cloned());
    let installed = traces.iter().any(|traces| traces.any());
    let Some(plan) = plan else {
        if installed {
            by_themselves(fabric, seen);
            notes.push(Finding::warning(
                "mesh-not-judged",
                "rules, routes and markers are there, and the facts make no plan to hold them against",
                "a ring, or --plan",
            ));
        }
        return None;
    };
    if !installed {
        let observed = fabric.inventories.iter().any(|inventory| {
            inventory.node.routes.known().is_some()
                && inventory
                    .ports
                    .iter()
                    .any(|port| port.details.filters.known().is_some())
        });
        if observed {
            let found = "no rule, route or marker of the mesh is on any host";
            let wanted = "hairpin-mesh up on each, for paths to opposite nodes";
            // Who gives its plan wants the mesh.
            if case.plan.is_some() {
                seen.push(Seen {
                    hosts: (0..fabric.hosts.len()).collect(),
                    ..Seen::ring(Finding::problem("mesh-absent", found, wanted))
                });
            } else {
                notes.push(Finding::warning("mesh-absent", found, wanted));
            }
        }
        return Some(plan);
    }
    let mut stale = Vec::new();
    for (node, host) in fabric.hosts.iter().enumerate() {
        let Some(share) = plan.for_host(host.as_str()) else {
            continue;
        };
        // Markers whose devices are others now are what a driver that was loaded anew leaves.
        let running = fabric.inventories[node].node.markers.known();
        let is_void = running.is_some_and(|all| {
            let mut held = all.iter().map(|marker| &marker.holds_device);
            traces[node].rules + traces[node].routes == 0
                && held.all(|held| *held == Fact::Known(false))
        });
        let has_any = traces[node].any() && !is_void;
        let present = present(&share, &fabric.inventories[node]);
        let wanted = Wanted::of(&share);
        if !has_any && observed(&present) {
            let others: Vec<&str> = (0..fabric.hosts.len())
                .filter(|other| traces[*other].any())
                .map(|other| fabric.hosts[other].as_str())
                .collect();
            let finding = Finding::problem(
                "mesh-incomplete",
                if traces[node].markers > 0 {
                    "no rule or route of the mesh is here, and its markers do not hold the devices as they are now: all functions were initialised again".to_owned()
                } else {
                    format!(
                        "no rule, route or marker of the mesh is here, and there are on {}",
                        list(others)
                    )
                },
                "all of the mesh on all hosts",
            );
            seen.push(Seen::host(fabric, node, finding));
        }
        unread(fabric, node, seen);
        stale.extend(objects(fabric, node, &share, &wanted, &present, seen));
        for finding in collisions(&share, &present)
            .into_iter()
            .chain(left_over(&wanted, &present))
        {
            seen.push(about(fabric, node, &share, finding));
        }
        markers(fabric, node, Some(&share), seen);
    }
    old_macs(fabric, &stale, seen);
    old_addresses(&plan, fabric, seen);
    other_ring(&plan, fabric, seen);
    Some(plan)
}

/// A mesh most of whose rules are for another ring than the addresses make: plugs or addresses were exchanged
/// since.
fn other_ring(plan: &Plan, fabric: &Fabric, seen: &mut Vec<Seen>) {
    let Fit {
        wanted,
        right,
        there,
    } = Fit::of(plan, fabric);
    let is_explained = seen
        .iter()
        .any(|seen| matches!(seen.finding.code, "mesh-old-mac" | "mesh-other-plan"));
    if is_explained || there * 2 < wanted || right * 2 >= wanted {
        return;
    }
    seen.push(Seen::ring(Finding::problem(
        "mesh-other-ring",
        format!(
            "the ring of these addresses needs {}: of the {there} that are there {right} are among them",
            count(wanted, "rule")
        ),
        "a mesh that was made for this ring",
    )));
}

/// How the rules of a mesh that are there fit a plan.
#[derive(Default)]
struct Fit {
    /// Rules that the plan has, where rules were read.
    wanted: usize,
    /// Of these, those that are there as the plan has them.
    right: usize,
    /// Rules of a mesh that are there.
    there: usize,
}

impl Fit {
    fn of(plan: &Plan, fabric: &Fabric) -> Fit {
        let mut fit = Fit::default();
        for (host, inventory) in fabric.hosts.iter().zip(fabric.inventories) {
            let Some(share) = plan.for_host(host.as_str()) else {
                continue;
            };
            for (dev, rule) in &Wanted::of(&share).rules {
                let port = inventory.ports.iter().find(|port| port.netdev == *dev);
                let Some(filters) = port.and_then(|port| port.details.filters.known()) else {
                    continue;
                };
                let is_there = filters
                    .iter()
                    .any(|filter| crate::mesh::compare::same_rule(filter, rule));
                fit.wanted += 1;
                fit.right += usize::from(is_there);
            }
            fit.there += Traces::of(inventory).rules;
        }
        fit
    }

    /// How many rules are missing, and how many are there that the plan has not.
    fn misfit(&self) -> usize {
        self.wanted - self.right + self.there.saturating_sub(self.right)
    }
}

/// What of a mesh could not be read where there is one; an inventory that does not mention it says nothing.
fn unread(fabric: &Fabric, node: usize, seen: &mut Vec<Seen>) {
    let inventory = &fabric.inventories[node];
    let mut push = |code, what: &str, why: &str| {
        seen.push(Seen::host(
            fabric,
            node,
            Finding::not_observed(code, what, why, "what the plan has"),
        ));
    };
    fn why<T>(fact: &Fact<T>) -> Option<&str> {
        match fact {
            Fact::NotObserved(why) if !fact.is_unmentioned() => Some(why),
            _ => None,
        }
    }
    if let Some(why) = inventory
        .ports
        .iter()
        .find_map(|port| why(&port.details.filters))
    {
        push("rule-unread", "rules", why);
    }
    if let Some(why) = why(&inventory.node.routes) {
        push("route-unread", "routes", why);
    }
    let markers = &inventory.node.markers;
    let held = markers
        .known()
        .into_iter()
        .flatten()
        .find_map(|marker| why(&marker.holds_device));
    if let Some(why) = why(markers).or(held) {
        push("marker-unread", "markers", why);
    }
}

/// Whether a rule of a mesh is on any host.
pub(super) fn has_rules(fabric: &Fabric) -> bool {
    let mut traces = fabric.inventories.iter().map(Traces::of);
    traces.any(|traces| traces.rules > 0)
}

/// What shows without a plan that a rule, route or marker cannot work.
fn by_themselves(fabric: &Fabric, seen: &mut Vec<Seen>) {
    for port in 0..fabric.ports.len() {
        let facts = fabric.facts(port);
        let filters = facts.details.filters.known().into_iter().flatten();
        for filter in filters.filter(|filter| filter.protocol.0 == MARKED_ETHERTYPE) {
            let Some(flower) = &filter.flower else {
                continue;
            };
            let target = flower
                .actions
                .iter()
                .filter_map(|action| action.mirred.as_ref())
                .next_back();
            let finding = if !is_in_hardware(flower) {
                Finding::problem(
                    "rule-not-in-hardware",
                    format!("rule {} is not in hardware", filter.pref),
                    "in_hw",
                )
            } else if target.is_some_and(|mirred| mirred.dev.is_none()) {
                Finding::problem(
                    "rule-dead-egress",
                    format!("rule {} redirects to a device that is gone", filter.pref),
                    "a device",
                )
            } else if flower.dst_mac.is_some_and(|mac| mac != facts.mac) {
                Finding::problem(
                    "rule-other",
                    format!(
                        "rule {} matches another destination MAC than the port's",
                        filter.pref
                    ),
                    facts.mac.to_string(),
                )
            } else {
                continue;
            };
            seen.push(Seen::port(
                fabric,
                port,
                finding.advise("hairpin-mesh up on this node"),
            ));
        }
    }
    for (node, inventory) in fabric.inventories.iter().enumerate() {
        unread(fabric, node, seen);
        markers(fabric, node, None, seen);
        let devices: BTreeSet<&RdmaName> = inventory
            .node
            .markers
            .known()
            .into_iter()
            .flatten()
            .filter_map(|marker| marker.device.as_ref())
            .collect();
        for device in devices {
            let Some(port) = of_device(fabric, node, device) else {
                continue;
            };
            let pairs = fabric.facts(port).details.queue_pairs.known();
            let found = pairs.into_iter().flatten();
            seen.extend(
                found
                    .filter_map(|pair| collision(device, pair))
                    .map(|finding| Seen {
                        finding: finding.on(&fabric.hosts[node]),
                        ports: [port].into(),
                        hosts: [node].into(),
                        addresses: BTreeSet::new(),
                    }),
            );
        }
        let routes = inventory.node.routes.known().into_iter().flatten();
        for route in routes.filter(|route| route.protocol == ROUTE_PROTOCOL) {
            if let Some(flag) = route
                .flags
                .iter()
                .find(|flag| matches!(flag.as_str(), "linkdown" | "dead"))
            {
                let finding = Finding::problem(
                    "route-linkdown",
                    format!("the route is {flag}"),
                    "its link up",
                );
                let port = route.dev.as_ref();
                let port = port.and_then(|dev| fabric.port(node, dev.as_str()));
                let finding = finding.at(format!("route {}", route.destination));
                let mut link = Seen::host(fabric, node, finding);
                link.ports.extend(port);
                seen.push(link);
            }
        }
        for marker in inventory.node.markers.known().into_iter().flatten() {
            if let (Fact::Known(false), Some(device)) = (&marker.holds_device, &marker.device) {
                let finding = Finding::problem(
                    "marker-without-rule",
                    format!(
                        "process {} runs and does not hold the device as it is now: its rule went with a re-initialisation",
                        marker.pid
                    ),
                    "a marker that holds it",
                );
                seen.push(Seen::host(
                    fabric,
                    node,
                    finding.at(device).advise("hairpin-mesh up on this node"),
                ));
            }
        }
    }
}

/// Whether everything that a mesh is made of was read.
fn observed(present: &Present) -> bool {
    present.routes.known().is_some()
        && present
            .ports
            .iter()
            .all(|port| port.filters.known().is_some())
}

/// The plan of the ring that the facts make, in the shape that the mesh seems to have.
fn of_facts(case: &Case, fabric: &Fabric) -> Option<Plan> {
    fabric.ring.as_ref()?;
    let selections = match case.plan {
        Some(plan) => vec![plan.opposite_paths],
        None => vec![OppositePaths::Two, OppositePaths::Four],
    };
    let scope_link = match case.plan {
        Some(plan) => !plan.neighbours.is_empty(),
        None => {
            let all = fabric
                .inventories
                .iter()
                .flat_map(|node| node.node.routes.known().into_iter().flatten());
            let is_ours =
                |route: &&Route| route.protocol == ROUTE_PROTOCOL && route.destination.prefix == 32;
            let (with, without): (Vec<&Route>, Vec<&Route>) = all
                .filter(is_ours)
                .partition(|route| route.gateway.is_some());
            without.len() > with.len()
        }
    };
    let choices = Choices {
        opposite_paths: OppositePaths::Two,
        gid_index: fabric.gid_index,
        hairpin_queue_size: fabric.hairpin_queue_size,
        hairpin_queue_wanted: Some(WANTED_HAIRPIN_QUEUE),
        strategy: if scope_link {
            RouteStrategy::ScopeLink
        } else {
            RouteStrategy::AdjacentGateway
        },
        identities: Default::default(),
    };
    // The head decides the ring ranks, and so the numbers of the rules. Without a plan it is the one whose
    // rules fit best what is there, the first host before others, two paths before four.
    let order = case.plan.map(|plan| plan.hosts.clone()).filter(|hosts| {
        hosts.len() == fabric.hosts.len() && hosts.iter().all(|host| fabric.hosts.contains(host))
    });
    let orders: Vec<Vec<HostName>> = match order {
        Some(order) => vec![order],
        None => (0..fabric.hosts.len())
            .map(|head| {
                let mut order = fabric.hosts.to_vec();
                let head = order.remove(head);
                order.insert(0, head);
                order
            })
            .collect(),
    };
    let plans_for = |order: &Vec<HostName>| {
        let inventories: Option<Vec<Inventory>> = order
            .iter()
            .map(|host| Some(fabric.inventories[fabric.node(host.as_str())?].clone()))
            .collect();
        let ring = crate::plan::derive(order, &inventories?, None).ring?;
        let with = |paths: &OppositePaths| {
            let choices = Choices {
                opposite_paths: *paths,
                ..choices.clone()
            };
            assemble(&ring, order, &choices).ok()
        };
        Some(selections.iter().filter_map(with).collect::<Vec<Plan>>())
    };
    let plans = orders.iter().filter_map(plans_for).flatten();
    plans.min_by_key(|plan| Fit::of(plan, fabric).misfit())
}

/// Hosts that were given in another order than the plan's, which is that of the TP ranks.
fn other_order(plan: &Plan, fabric: &Fabric) -> Option<Finding> {
    let in_plan = |host: &HostName| plan.hosts.contains(host);
    let differs = fabric.hosts != plan.hosts.as_slice();
    (differs && fabric.hosts.len() == plan.hosts.len() && fabric.hosts.iter().all(in_plan)).then(
        || {
            Finding::warning(
                "plan-order",
                format!(
                    "the hosts are given as {}: what depends on TP ranks is held against the plan's order",
                    list(fabric.hosts)
                ),
                list(&plan.hosts),
            )
        },
    )
}

/// Said of an address that was changed at one end of a cable.
pub(super) const ALONE: &str = ", and the cables' other ends still have the plan's";

/// The plan that was given, against the ports as they are: it is of another time when they differ.
fn given_plan(plan: &Plan, fabric: &Fabric, seen: &mut Vec<Seen>) {
    let known = |row: &&PortRow| {
        fabric
            .ports
            .iter()
            .any(|port| *port.host == row.host && port.facts.mac == row.mac)
    };
    let strange = plan.ports.iter().filter(|row| !known(row)).count();
    if strange * 2 > plan.ports.len() {
        seen.push(Seen::ring(Finding::problem(
            "mesh-other-plan",
            format!(
                "{strange} of the plan's {} ports have MACs that these hosts have not",
                plan.ports.len()
            ),
            "the plan of this ring",
        )));
    }
    // Of each host the ports that have other MACs, and other addresses, with what the plan has of them.
    type OfHosts<'a> = BTreeMap<usize, Vec<(usize, &'a PortRow)>>;
    let (mut others, mut moved) = (OfHosts::new(), OfHosts::new());
    for row in &plan.ports {
        let Some(node) = fabric.node(row.host.as_str()) else {
            continue;
        };
        let Some(port) = fabric.port(node, row.netdev.as_str()) else {
            let finding = Finding::problem(
                "mesh-plan-port",
                "the plan's port is not there",
                row.netdev.to_string(),
            )
            .at(&row.netdev);
            seen.push(Seen::host(fabric, node, finding));
            continue;
        };
        let facts = fabric.facts(port);
        if facts.mac != row.mac {
            others.entry(node).or_default().push((port, row));
        }
        let addresses = facts.ipv4.known();
        // A topology document has no prefixes.
        let is_planned = |own: &Cidr| {
            *own == row.ipv4 || row.ipv4.prefix == 32 && own.address == row.ipv4.address
        };
        if addresses.is_some_and(|all| !all.is_empty() && !all.iter().any(is_planned)) {
            moved.entry(node).or_default().push((port, row));
        }
        let far = fabric.peers.get(&port).map(|far| &fabric.ports[*far]);
        if let Some(far) =
            far.filter(|far| *far.host != row.peer_host || far.facts.netdev != row.peer_netdev)
        {
            let finding = Finding::problem(
                "mesh-plan-peer",
                format!("its cable leads to {}", far.label()),
                format!("{} {} of the plan", row.peer_host, row.peer_netdev),
            );
            seen.push(Seen::port(fabric, port, finding));
        }
    }
    for (node, ports) in &others {
        let now = ports
            .iter()
            .map(|(port, row)| format!("{} {}", row.netdev, fabric.facts(*port).mac));
        let planned = ports
            .iter()
            .map(|(_, row)| format!("{} {}", row.netdev, row.mac));
        let finding = Finding::problem(
            "mesh-plan-port",
            format!(
                "other MACs than the plan's ({}): the NIC is another than at the time of the plan",
                list(now)
            ),
            list(planned),
        );
        let ports = ports.iter().map(|(port, _)| *port).collect();
        seen.push(Seen::some(fabric, *node, ports, finding));
    }
    for (node, ports) in &moved {
        let has_its_own = |row: &PortRow| {
            plan.peer(row).is_some_and(|other| {
                let node = fabric.node(other.host.as_str());
                let port = node.and_then(|node| fabric.port(node, other.netdev.as_str()));
                let own = port.and_then(|port| fabric.facts(port).ipv4.known());
                own.is_some_and(|own| own.contains(&other.ipv4))
            })
        };
        let alone = if ports.iter().all(|(_, row)| has_its_own(row)) {
            ALONE
        } else {
            ""
        };
        let now = ports.iter().map(|(port, row)| {
            let addresses = fabric.facts(*port).ipv4.known();
            format!("{} {}", row.netdev, list(addresses.into_iter().flatten()))
        });
        let planned = ports
            .iter()
            .map(|(_, row)| format!("{} {}", row.netdev, row.ipv4));
        let finding = Finding::problem(
            "mesh-plan-address",
            format!("other addresses than the plan's ({}){alone}", list(now)),
            list(planned),
        );
        let planned = ports.iter().map(|(_, row)| row.ipv4.address);
        let now = ports.iter().filter_map(|(port, _)| {
            let address = fabric.ports[*port].address?;
            Some(address.address)
        });
        let addresses = planned.chain(now).collect();
        let ports = ports.iter().map(|(port, _)| *port).collect();
        seen.push(Seen {
            addresses,
            ..Seen::some(fabric, *node, ports, finding)
        });
    }
    let cap = size_cap(fabric.hairpin_queue_size);
    if plan.size_cap_bytes > cap {
        seen.push(Seen::ring(Finding::problem(
            "mesh-plan-cap",
            format!(
                "the plan lets messages of {} bytes through",
                plan.size_cap_bytes
            ),
            format!(
                "{cap}: the smallest hairpin queue known to be loaded holds {} packets",
                fabric.hairpin_queue_size
            ),
        )));
    }
    if plan.gid_index != fabric.gid_index && fabric.ring.is_some() {
        seen.push(Seen::ring(Finding::problem(
            "mesh-plan-gid-index",
            format!("the plan has GID index {}", plan.gid_index),
            format!("{}, where the ports have their GIDs", fabric.gid_index),
        )));
    }
}

/// What a host's inventory says of its share of the plan, as `verify` reads it from the kernel.
fn present(share: &HostPlan, inventory: &Inventory) -> Present {
    let ports = share.ports.iter().map(|row| {
        let Some(facts) = inventory
            .ports
            .iter()
            .find(|port| port.netdev == row.netdev)
        else {
            return PortNow {
                netdev: row.netdev.clone(),
                link: Fact::Known(None),
                addresses: Fact::unmentioned(),
                offload: Fact::unmentioned(),
                steering: Fact::unmentioned(),
                rdma_state: Fact::unmentioned(),
                gid: Fact::unmentioned(),
                qdiscs: Fact::unmentioned(),
                filters: Fact::unmentioned(),
                neighbours: Fact::unmentioned(),
                more: PortMore::default(),
            };
        };
        let details = &facts.details;
        let text = |mode: &Option<String>| mode.as_deref().map(Text::from);
        PortNow {
            netdev: row.netdev.clone(),
            link: Fact::Known(Some(LinkNow {
                index: details.ifindex.known().copied().unwrap_or(0),
                mac: Some(facts.mac),
                mtu: Some(facts.mtu),
                state: facts.state.as_str().into(),
                rx_dropped: None,
            })),
            addresses: facts.ipv4.clone(),
            offload: facts.tc_offload.clone(),
            steering: facts.flow_steering_mode.as_ref().map(text),
            rdma_state: facts
                .rdma_state
                .as_ref()
                .map(|state| Some(state.as_str().into())),
            // GIDs are looked at for themselves.
            gid: Fact::unmentioned(),
            qdiscs: details.qdiscs.clone(),
            filters: details.filters.clone(),
            neighbours: details.neighbours.clone(),
            more: PortMore {
                eswitch: facts.eswitch_mode.as_ref().map(text),
                rdma_active_mtu: facts.rdma_active_mtu.clone(),
                trust: details.trust.clone(),
                queue_size: facts.hairpin_queue_size.clone(),
                queue_state: match facts.hairpin_queue_applied {
                    Applied::Unsaid => Fact::unmentioned(),
                    state => Fact::Known(state),
                },
                num_queues: facts.hairpin_num_queues.clone(),
                queue_pairs: details.queue_pairs.clone(),
            },
        }
    });
    let markers = share.markers.iter().map(|row| {
        let now = inventory.node.markers.as_ref().map(|all| {
            let own: Vec<_> = all
                .iter()
                .filter(|marker| marker.device.as_ref() == Some(&row.device))
                .collect();
            // The one that holds the device, else any.
            let marker = own
                .iter()
                .find(|marker| marker.holds_device == Fact::Known(true))
                .or(own.first());
            match marker {
                Some(marker) => MarkerNow {
                    active: "active".into(),
                    sub: "running".into(),
                    pid: marker.pid,
                    holds_device: marker.holds_device.clone(),
                },
                None => MarkerNow {
                    active: "inactive".into(),
                    sub: "dead".into(),
                    pid: 0,
                    holds_device: Fact::Known(false),
                },
            }
        });
        (row.device.clone(), now)
    });
    Present {
        ports: ports.collect(),
        routes: inventory.node.routes.clone(),
        markers: markers.collect(),
        recorded_clsacts: Default::default(),
        dropped_when_made: Default::default(),
    }
}

/// The MACs that a rule of the mesh has: whose packets, for whom, and whom it hands them to.
fn macs(rule: &Filter) -> Option<[Mac; 3]> {
    let flower = rule.flower.as_ref()?;
    let edits = flower.actions.iter().flat_map(|action| &action.edits);
    let written: Vec<&str> = edits
        .filter(|edit| matches!(edit.offset, 0 | 4))
        .map(|edit| edit.value.as_str())
        .collect();
    let written = written.concat();
    let mut bytes = [0u8; 6];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(written.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some([flower.src_mac?, flower.dst_mac?, Mac(bytes)])
}

/// Rules that are made for a MAC that no port has any more: a NIC was replaced, and all of them follow.
fn old_macs(fabric: &Fabric, stale: &[(usize, Filter, Filter)], seen: &mut Vec<Seen>) {
    type Old = BTreeMap<(Mac, Mac), BTreeSet<usize>>;
    let mut old: Old = BTreeMap::new();
    let rules = (0..fabric.ports.len()).flat_map(|port| {
        let filters = fabric.facts(port).details.filters.known();
        filters.into_iter().flatten()
    });
    let in_rules: BTreeSet<Mac> = rules.filter_map(macs).flatten().collect();
    for (port, wanted, found) in stale {
        let (Some(wanted), Some(found)) = (macs(wanted), macs(found)) else {
            continue;
        };
        for (wanted, found) in wanted.into_iter().zip(found) {
            let gone = fabric.ports.iter().all(|port| port.facts.mac != found);
            if wanted != found && gone {
                old.entry((found, wanted)).or_default().insert(*port);
            }
        }
    }
    for ((found, wanted), ports) in old {
        let Some(owner) = fabric.with_mac(wanted) else {
            continue;
        };
        // Where another rule has the MAC that the port has, or the plan, the NIC is the one that they were made
        // for: this rule is wrong for itself.
        let planned = fabric.planned(owner).is_some_and(|row| row.mac == wanted);
        if planned || in_rules.contains(&wanted) {
            continue;
        }
        let finding = Finding::problem(
            "mesh-old-mac",
            format!("MAC {found} is in {}, and no port has it: the NIC was replaced after they were made", count(ports.len(), "rule")),
            wanted.to_string(),
        )
        .advise("make the plan again from fresh inventories, deploy it, then hairpin-mesh up on each node");
        let mut nic = Seen::port(fabric, owner, finding);
        nic.ports.extend(ports);
        seen.push(nic);
    }
}

/// Routes of a mesh to or by an address that no port has: most likely a port was given another one after they were
/// made, and `up` refuses a host whose addresses are not its plan's.
fn old_addresses(plan: &Plan, fabric: &Fabric, seen: &mut Vec<Seen>) {
    // Of each address that is gone and the one in its place, how many routes have it, and which port a gateway is.
    type Old = BTreeMap<(Ipv4Addr, Ipv4Addr), (usize, Option<usize>)>;
    let mut old: Old = BTreeMap::new();
    let mut in_routes: BTreeSet<Ipv4Addr> = BTreeSet::new();
    for (node, (host, inventory)) in fabric.hosts.iter().zip(fabric.inventories).enumerate() {
        let Some(share) = plan.for_host(host.as_str()) else {
            continue;
        };
        let wanted = Wanted::of(&share).routes;
        let there: Vec<&Route> = inventory
            .node
            .routes
            .known()
            .into_iter()
            .flatten()
            .filter(|route| route.protocol == ROUTE_PROTOCOL && route.table == TABLE_MAIN)
            .collect();
        in_routes.extend(there.iter().flat_map(|route| ends(route)));
        for own in &wanted {
            let same = there
                .iter()
                .find(|route| route.destination == own.destination);
            let pair = match same {
                Some(route) if route.dev == own.dev => gateways(route, own),
                Some(_) => None,
                None => {
                    let is_in_place = |route: &&&Route| {
                        let planned = |own: &Route| own.destination == route.destination;
                        (&route.dev, route.gateway) == (&own.dev, own.gateway)
                            && !wanted.iter().any(planned)
                    };
                    let mut in_place = there.iter().filter(is_in_place);
                    let only = in_place.next().filter(|_| in_place.next().is_none());
                    only.map(|route| (route.destination.address, own.destination.address))
                }
            };
            // An address that another port has now may be the gateway of somebody's making. But where a route of
            // this mesh leads somewhere else by the same device and neighbour, that was the same port's address.
            let is_old = |(found, wanted): &(Ipv4Addr, Ipv4Addr)| {
                found != wanted && (same.is_none() || fabric.with_address(*found).is_none())
            };
            if let Some(pair) = pair.filter(is_old) {
                let port = own.dev.as_ref().filter(|_| same.is_some());
                let port = port.and_then(|dev| fabric.port(node, dev.as_str()));
                let (routes, owner) = old.entry(pair).or_default();
                *routes += 1;
                *owner = owner.or_else(|| fabric.peers.get(&port?).copied());
            }
        }
    }
    for ((found, wanted), (routes, gateway)) in old {
        let is_owner = |port: &usize| {
            let own = fabric.ports[*port].address;
            own.is_some_and(|own| own.address == wanted)
        };
        let Some(owner) = gateway.or_else(|| (0..fabric.ports.len()).find(is_owner)) else {
            continue;
        };
        // The address is the one that the plan has, or that other routes of the mesh lead to: these are wrong for
        // themselves.
        let planned = fabric.planned(owner);
        let by_plan = planned.is_some_and(|row| row.ipv4.address == wanted);
        let alone = (0..fabric.ports.len()).filter(is_owner).count() == 1;
        let now = fabric.with_address(found);
        if by_plan || now.is_none() && alone && in_routes.contains(&wanted) {
            continue;
        }
        let whose = match now {
            Some(port) => format!("{} has it now", fabric.ports[port].label()),
            None => "no port has it".into(),
        };
        let finding = Finding::problem(
            "mesh-old-address",
            format!(
                "{found} is in {}, and {whose}: the address, or these, were changed after the mesh was made",
                count(routes, "route")
            ),
            wanted.to_string(),
        );
        seen.push(Seen {
            addresses: [found, wanted].into(),
            ..Seen::port(fabric, owner, finding)
        });
    }
}

/// The addresses that a route leads to, by and from.
fn ends(route: &Route) -> impl Iterator<Item = Ipv4Addr> {
    let v4 = |address: IpAddr| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    };
    let more = [route.gateway, route.src].into_iter().flatten();
    more.filter_map(v4).chain([route.destination.address])
}

/// The gateways of two routes, where both have one of IPv4.
fn gateways(one: &Route, other: &Route) -> Option<(Ipv4Addr, Ipv4Addr)> {
    match (one.gateway?, other.gateway?) {
        (IpAddr::V4(one), IpAddr::V4(other)) => Some((one, other)),
        _ => None,
    }
}

/// Every object that is not right; of stale rules, which port, what is wanted and what is there.
fn objects(
    fabric: &Fabric,
    node: usize,
    share: &HostPlan,
    wanted: &Wanted,
    present: &Present,
    seen: &mut Vec<Seen>,
) -> Vec<(usize, Filter, Filter)> {
    let mut stale = Vec::new();
    for row in compare(wanted, present) {
        if let (Object::Rule(dev, rule), State::Stale(Stale::Rule(found))) =
            (&row.object, &row.state)
        {
            if let Some(port) = fabric.port(node, dev.as_str()) {
                stale.push((port, rule.clone(), found.clone()));
            }
        }
        match (&row.object, &row.state) {
            // A route of the scripts of today has the kernel's default protocol, and works as well.
            (Object::Route(route), State::Stale(Stale::Route(found)))
                if Route {
                    protocol: route.protocol,
                    ..found.clone()
                } == *route =>
            {
                continue;
            }
            // What was not read is told once, by its subject.
            (_, State::NotObserved(_)) => continue,
            _ => {}
        }
        if let Some(finding) = object(&row, present) {
            let mut about = about(fabric, node, share, finding);
            // Of the port that it leads to: that was initialised again, or is gone.
            if let ("rule-dead-egress", Object::Rule(_, rule)) = (about.finding.code, &row.object) {
                let egress = egress(rule).and_then(|dev| fabric.port(node, dev.as_str()));
                about.ports = egress.into_iter().collect();
                if let Some(dev) = egress.map(|port| &fabric.facts(port).netdev) {
                    about.finding.advice = Some(format!(
                        "{dev} was initialised again since its rules were made: hairpin-mesh up on this node"
                    ));
                }
            }
            seen.push(about);
        }
    }
    stale
}

/// The port that a rule hands packets to.
fn egress(rule: &Filter) -> Option<&crate::names::NetdevName> {
    let actions = &rule.flower.as_ref()?.actions;
    let mut mirred = actions.iter().filter_map(|action| action.mirred.as_ref());
    mirred.next_back()?.dev.as_ref()
}

/// A finding about an object of a host, with its port.
fn about(fabric: &Fabric, node: usize, share: &HostPlan, finding: Finding) -> Seen {
    let verified = crate::mesh::verify::port_of(&finding, share);
    let port = verified.and_then(|netdev| fabric.port(node, netdev.as_str()));
    Seen {
        addresses: of_route(&finding),
        finding: finding.on(&fabric.hosts[node]),
        ports: port.into_iter().collect(),
        hosts: [node].into(),
    }
}

/// The addresses of a route that a finding is about: those of what is there and of what is wanted.
fn of_route(finding: &Finding) -> BTreeSet<Ipv4Addr> {
    let is_route = finding
        .object
        .as_deref()
        .is_some_and(|object| object.starts_with("route "));
    let words = [&finding.found, &finding.wanted]
        .into_iter()
        .filter(|_| is_route)
        .flat_map(|text| text.split(' '));
    words
        .filter_map(|word| word.split('/').next()?.parse().ok())
        .collect()
}

/// The value of an option on a command line.
fn given<'a>(line: &'a str, option: &str) -> Option<&'a str> {
    let mut words = line.split(' ');
    let value = words.find_map(|word| word.strip_prefix(option))?;
    match value.strip_prefix('=') {
        Some(value) => Some(value),
        None => words.next().filter(|_| value.is_empty()),
    }
}

/// A number in decimal, or in hexadecimal after `0x`.
fn number(word: &str) -> Option<u16> {
    match word.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// The port of a host that has this RDMA device.
fn of_device(fabric: &Fabric, node: usize, device: &RdmaName) -> Option<usize> {
    (0..fabric.ports.len())
        .find(|port| fabric.ports[*port].node == node && fabric.device(*port) == device.as_str())
}

/// Markers beyond the plan's: two on a device, or, where there is a plan, one on a device that needs none.
fn markers(fabric: &Fabric, node: usize, share: Option<&HostPlan>, seen: &mut Vec<Seen>) {
    let all = fabric.inventories[node]
        .node
        .markers
        .known()
        .into_iter()
        .flatten();
    let mut by = BTreeMap::new();
    for marker in all {
        let Some(device) = &marker.device else {
            continue;
        };
        by.entry(device).or_insert_with(Vec::new).push(marker.pid);
        let line = marker.command_line.known().map_or("", Text::as_str);
        if let Some(value) = given(line, "--match-destination") {
            let finding = Finding::problem(
                "marker-other",
                format!(
                    "the marker on {device} (process {}) tags packets to {value} alone",
                    marker.pid
                ),
                "packets to any address, as the mesh's units tag them",
            );
            seen.push(match of_device(fabric, node, device) {
                Some(port) => Seen::port(fabric, port, finding),
                None => Seen::host(fabric, node, finding),
            });
        }
        for (option, wanted, shown) in [
            (
                "--source-port",
                MARKED_UDP_SOURCE_PORT,
                MARKED_UDP_SOURCE_PORT.to_string(),
            ),
            (
                "--replacement-ethertype",
                MARKED_ETHERTYPE,
                format!("{MARKED_ETHERTYPE:#06x}"),
            ),
        ] {
            let Some(value) = given(line, option).filter(|own| number(own) != Some(wanted)) else {
                continue;
            };
            let finding = Finding::problem(
                "marker-other",
                format!(
                    "the marker on {device} (process {}) runs with {option} {value}",
                    marker.pid
                ),
                shown,
            );
            seen.push(match of_device(fabric, node, device) {
                Some(port) => Seen::port(fabric, port, finding),
                None => Seen::host(fabric, node, finding),
            });
        }
    }
    for (device, pids) in by {
        let port = of_device(fabric, node, device);
        let planned =
            share.is_none_or(|share| share.markers.iter().any(|row| row.device == *device));
        let finding = if !planned {
            Finding::warning(
                "marker-left-over",
                format!(
                    "{} on {device} (process {})",
                    count(pids.len(), "marker"),
                    list(&pids)
                ),
                "markers of the plan's devices alone",
            )
        } else if pids.len() > 1 {
            Finding::warning(
                "marker-twice",
                format!(
                    "{} markers on {device} (processes {})",
                    pids.len(),
                    list(&pids)
                ),
                "one",
            )
        } else {
            continue;
        };
        seen.push(match port {
            Some(port) => Seen::port(fabric, port, finding),
            None => Seen::host(fabric, node, finding),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{Case, examine};
    use crate::facts::{Marker, Qdisc};

    /// The rings of the case folders, as inventories.
    fn rings() -> Vec<(Vec<HostName>, Vec<Inventory>)> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
        let mut all = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let case = entry.unwrap().path();
            if !case.join("ring-mesh/plan.json").is_file() || !case.join("inventory").is_dir() {
                continue;
            }
            let bytes = std::fs::read(case.join("ring-mesh/plan.json")).unwrap();
            let hosts = Plan::from_json("plan.json", &bytes).unwrap().hosts;
            let read = |host: &HostName| {
                let bytes = std::fs::read(case.join(format!("inventory/{host}.json"))).unwrap();
                let mut inventory = Inventory::from_json("x.json", &bytes).unwrap();
                for port in &mut inventory.ports {
                    port.hairpin_queue_applied = Applied::Unsaid;
                }
                inventory
            };
            let inventories = hosts.iter().map(read).collect();
            all.push((hosts, inventories));
        }
        assert!(all.len() > 10);
        all
    }

    /// The facts with the whole mesh of a plan on every host.
    fn with_mesh(plan: &Plan, inventories: &[Inventory]) -> Vec<Inventory> {
        let with = |inventory: &Inventory| {
            let mut inventory = inventory.clone();
            let share = plan.for_host(inventory.host.as_str()).unwrap();
            let wanted = Wanted::of(&share);
            let mut routes = wanted.routes.clone();
            for port in &mut inventory.ports {
                let own = wanted.rules.iter().filter(|(dev, _)| *dev == port.netdev);
                port.details.filters = Fact::Known(own.map(|(_, rule)| rule.clone()).collect());
                let clsact = wanted.clsacts.contains(&port.netdev).then(|| Qdisc {
                    kind: "clsact".into(),
                    handle: "ffff:".into(),
                    parent: "ffff:fff1".into(),
                    other: None,
                });
                port.details.qdiscs = Fact::Known(clsact.into_iter().collect());
                let own = wanted
                    .neighbours
                    .iter()
                    .filter(|(dev, _)| *dev == port.netdev);
                port.details.neighbours = Fact::Known(own.map(|(_, own)| own.clone()).collect());
                for address in port.ipv4.known().unwrap() {
                    routes.push(Route {
                        destination: address.network(),
                        protocol: 2,
                        scope: "link".into(),
                        gateway: None,
                        dev: Some(port.netdev.clone()),
                        ..routes[0].clone()
                    });
                }
            }
            inventory.node.routes = Fact::Known(routes);
            let marker = |(i, device): (usize, &crate::names::RdmaName)| Marker {
                unit: None,
                device: Some(device.clone()),
                pid: 100 + i as u32,
                started_seconds: 1,
                holds_device: Fact::Known(true),
                command_line: Fact::unmentioned(),
            };
            let markers = wanted.markers.iter().enumerate().map(marker).collect();
            inventory.node.markers = Fact::Known(markers);
            inventory
        };
        inventories.iter().map(with).collect()
    }

    fn plan_with(
        hosts: &[HostName],
        inventories: &[Inventory],
        paths: OppositePaths,
        strategy: RouteStrategy,
    ) -> Option<Plan> {
        let derived = crate::plan::derive(hosts, inventories, None);
        let choices = Choices {
            opposite_paths: paths,
            gid_index: derived.gid_index,
            hairpin_queue_size: derived.hairpin_queue_size,
            hairpin_queue_wanted: Some(WANTED_HAIRPIN_QUEUE),
            strategy,
            identities: Default::default(),
        };
        assemble(&derived.ring.unwrap(), hosts, &choices).ok()
    }

    #[test]
    fn the_order_in_which_hosts_are_given_does_not_matter_to_a_mesh_that_is_up() {
        for (hosts, inventories) in rings() {
            let plan = plan_with(
                &hosts,
                &inventories,
                OppositePaths::Two,
                RouteStrategy::AdjacentGateway,
            )
            .unwrap();
            let up = with_mesh(&plan, &inventories);
            for turn in 1..hosts.len() {
                let (mut others, mut theirs) = (hosts.clone(), up.clone());
                others.rotate_left(turn);
                theirs.rotate_left(turn);
                assert_eq!(findings(&others, &theirs, None), [], "{others:?}");
            }
        }
    }

    fn findings(
        hosts: &[HostName],
        inventories: &[Inventory],
        plan: Option<&Plan>,
    ) -> Vec<Finding> {
        let case = Case {
            hosts,
            inventories,
            plan,
            envs: &[],
            logs: &[],
            ordered: true,
        };
        examine(&case).findings
    }

    #[test]
    fn a_mesh_that_is_up_is_right_in_every_layout_with_two_and_four_paths_and_both_kinds_of_routes()
    {
        let mut looked_at = 0;
        for (hosts, inventories) in rings() {
            for paths in [OppositePaths::Two, OppositePaths::Four] {
                for strategy in [RouteStrategy::AdjacentGateway, RouteStrategy::ScopeLink] {
                    let Some(plan) = plan_with(&hosts, &inventories, paths, strategy) else {
                        continue;
                    };
                    let up = with_mesh(&plan, &inventories);
                    assert_eq!(findings(&hosts, &up, None), [], "{hosts:?}");
                    assert_eq!(findings(&hosts, &up, Some(&plan)), [], "{hosts:?}");
                    looked_at += 1;
                }
            }
        }
        assert!(looked_at > 30, "{looked_at}");
    }

    /// Codes of everything that is found, causes and what follows.
    fn codes(findings: &[Finding]) -> Vec<&'static str> {
        let below = |finding: &Finding| {
            let mut all = vec![finding.code];
            all.extend(codes(&finding.consequences));
            all
        };
        findings.iter().flat_map(below).collect()
    }

    #[test]
    fn a_plan_that_is_given_is_what_the_mesh_has_to_be_like() {
        let (hosts, inventories) = rings().swap_remove(0);
        let plan_of = |hosts: &[HostName], inventories: &[Inventory]| {
            let strategy = RouteStrategy::AdjacentGateway;
            plan_with(hosts, inventories, OppositePaths::Two, strategy).unwrap()
        };
        let plan = plan_of(&hosts, &inventories);
        let up = with_mesh(&plan, &inventories);
        // Another head: other numbers of the same rules.
        let (mut others, mut theirs) = (hosts.clone(), inventories.clone());
        others.rotate_left(1);
        theirs.rotate_left(1);
        let other = plan_of(&others, &theirs);
        let found = codes(&findings(&hosts, &up, Some(&other)));
        assert!(found.contains(&"rule-missing"), "{found:?}");
        // Of hosts that are not here nothing can be held against it: the facts say what has to be.
        let mut strange = serde_json::to_string(&plan).unwrap();
        for host in &hosts {
            strange = strange.replace(host.as_str(), &format!("of-another-ring-{host}"));
        }
        let strange = Plan::from_json("plan.json", strange.as_bytes()).unwrap();
        let mut less = up.clone();
        less[0].node.markers = Fact::Known(Vec::new());
        let found = codes(&findings(&hosts, &less, Some(&strange)));
        assert!(found.contains(&"mesh-other-plan"), "{found:?}");
        assert!(found.contains(&"marker-missing"), "{found:?}");
    }

    #[test]
    fn a_mesh_of_four_paths_is_known_by_the_rules_of_the_hosts_that_were_read() {
        let strategy = RouteStrategy::AdjacentGateway;
        let mut looked_at = 0;
        for (hosts, inventories) in rings() {
            let four = plan_with(&hosts, &inventories, OppositePaths::Four, strategy);
            let Some(plan) = four else {
                continue;
            };
            let mut up = with_mesh(&plan, &inventories);
            for port in up[1..].iter_mut().flat_map(|node| &mut node.ports) {
                port.details.filters = Fact::because("no rights");
            }
            let found = codes(&findings(&hosts, &up, None));
            // Told once, with each of the three hosts below.
            assert_eq!(found, ["rule-unread"; 4]);
            // A mesh of two of which one rule of four is left is one of two.
            let two = plan_with(&hosts, &inventories, OppositePaths::Two, strategy).unwrap();
            let of_four = with_mesh(&plan, &inventories);
            let mut up = with_mesh(&two, &inventories);
            let pairs = up[0].ports.iter_mut().zip(&of_four[0].ports);
            let (own, more) = pairs
                .map(|(own, more)| (&mut own.details.filters, &more.details.filters))
                .find(|(own, more)| own != more)
                .unwrap();
            *own = more.clone();
            assert_eq!(codes(&findings(&hosts, &up, None)), ["left-over-rule"]);
            looked_at += 1;
        }
        assert!(looked_at > 0);
    }

    #[test]
    fn a_plan_most_of_whose_ports_are_not_here_is_of_another_ring() {
        let (hosts, inventories) = rings().swap_remove(0);
        let strategy = RouteStrategy::AdjacentGateway;
        let plan = plan_with(&hosts, &inventories, OppositePaths::Two, strategy).unwrap();
        for replaced in 0..=16 {
            let mut now = inventories.clone();
            let ports = now.iter_mut().flat_map(|node| &mut node.ports);
            for (i, port) in ports.take(replaced).enumerate() {
                port.mac = Mac([0x4c, 0xbb, 0x47, 0xff, 0xff, i as u8]);
            }
            let found = codes(&findings(&hosts, &now, Some(&plan)));
            let another = found.contains(&"mesh-other-plan");
            assert_eq!(another, replaced > 8, "{replaced}: {found:?}");
        }
    }

    #[test]
    fn every_object_of_the_mesh_that_is_taken_away_is_missed() {
        let (hosts, inventories) = rings().swap_remove(0);
        let plan = plan_with(
            &hosts,
            &inventories,
            OppositePaths::Two,
            RouteStrategy::AdjacentGateway,
        )
        .unwrap();
        let up = with_mesh(&plan, &inventories);
        let codes = |inventories: &[Inventory]| -> Vec<&'static str> {
            findings(&hosts, inventories, None)
                .iter()
                .map(|finding| finding.code)
                .collect()
        };
        for (node, inventory) in up.iter().enumerate() {
            let mut less = up.clone();
            less[node].node.markers =
                Fact::Known(inventory.node.markers.known().unwrap()[1..].to_vec());
            assert_eq!(codes(&less), ["marker-missing"]);
            let mut less = up.clone();
            less[node].node.routes =
                Fact::Known(inventory.node.routes.known().unwrap()[1..].to_vec());
            assert_eq!(codes(&less), ["route-missing"]);
            for (i, port) in inventory.ports.iter().enumerate() {
                if port
                    .details
                    .filters
                    .known()
                    .is_some_and(|all| !all.is_empty())
                {
                    let mut less = up.clone();
                    less[node].ports[i].details.filters = Fact::Known(Vec::new());
                    assert_eq!(codes(&less), ["rule-missing"]);
                }
            }
        }
    }
}
