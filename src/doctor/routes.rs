//! Where each port's packets to its peer really go: the kernel takes the longest prefix, then the lowest
//! metric, whoever made the route.

use crate::doctor::chain::Seen;
use crate::doctor::fabric::Fabric;
use crate::facts::Route;
use crate::finding::Finding;
use crate::mesh::change::route_text;
use crate::mesh::wanted::TABLE_MAIN;

pub(super) fn look(fabric: &Fabric, seen: &mut Vec<Seen>) {
    for (port, far) in &fabric.peers {
        let located = &fabric.ports[*port];
        let (Some(routes), Some(peer)) = (
            fabric.inventories[located.node].node.routes.known(),
            fabric.ports[*far].address,
        ) else {
            continue;
        };
        let peer_name = fabric.ports[*far].label();
        let wanted = format!(
            "a route to {} ({peer_name}) by {}",
            peer.address, located.facts.netdev
        );
        let rank = |route: &&Route| (route.destination.prefix, std::cmp::Reverse(route.metric));
        let best = routes
            .iter()
            .filter(|route| {
                route.table == TABLE_MAIN
                    && route.tos == 0
                    && route.destination.contains(peer.address)
            })
            .max_by_key(rank);
        let finding = match best {
            // Two equal ones: the port's own counts when it is one of them.
            Some(best)
                if routes.iter().any(|route| {
                    route.table == TABLE_MAIN
                        && route.destination.contains(peer.address)
                        && rank(&route) == rank(&best)
                        && route.kind.as_str() == "unicast"
                        && route.dev.as_ref() == Some(&located.facts.netdev)
                }) =>
            {
                continue;
            }
            Some(best) if best.destination.prefix == 0 => Finding::problem(
                "peer-route-missing",
                format!(
                    "no route of its own leads to {}: the default route takes it ({})",
                    peer.address,
                    route_text(best)
                ),
                wanted,
            ),
            Some(best) => Finding::problem(
                "peer-route-elsewhere",
                format!(
                    "packets to {} leave by another way: {}",
                    peer.address,
                    route_text(best)
                ),
                wanted,
            ),
            None => Finding::problem(
                "peer-route-missing",
                format!("no route leads to {}", peer.address),
                wanted,
            ),
        };
        seen.push(Seen::port(fabric, *port, finding));
    }
}
