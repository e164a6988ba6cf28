//! Functions, links, PCIe and drivers.

use std::collections::{BTreeMap, BTreeSet};

use crate::doctor::chain::Seen;
use crate::doctor::fabric::{Fabric, usual};
use crate::facts::{Fact, PortFacts};
use crate::finding::Finding;
use crate::names::Place;
use crate::plan::ends::list;
use crate::plan::mesh::DOMAINS;

/// Driver of the fabric's NIC.
const DRIVER: &str = "mlx5_core";
/// Lanes of a function: a socket of the machine is two functions of four lanes each.
const LANES: u32 = 4;

/// Rate of a socket of the machine, Gb/s.
const RATE: f64 = 200.0;

pub(super) fn look(fabric: &Fabric, seen: &mut Vec<Seen>, notes: &mut Vec<Finding>) {
    functions(fabric, seen);
    cables(fabric, seen);
    for port in 0..fabric.ports.len() {
        let facts = fabric.facts(port);
        let details = &facts.details;
        if let Fact::Known(driver) = &details.driver {
            if driver.as_str() != DRIVER {
                let finding =
                    Finding::problem("port-driver", format!("its driver is {driver}"), DRIVER);
                seen.push(Seen::port(fabric, port, finding));
            }
        }
        if details.reload_failed == Fact::Known(true) {
            let finding = Finding::problem(
                "reload-failed",
                "the last driver re-initialisation failed",
                "a driver that works",
            );
            seen.push(Seen::port(fabric, port, finding));
        }
        if facts.state == "up" && details.carrier == Fact::Known(false) {
            seen.push(Seen::port(
                fabric,
                port,
                Finding::problem("port-carrier", "no carrier", "one"),
            ));
        }
        if let Fact::Known(state) = &details.rdma_phys_state {
            if !state.as_str().eq_ignore_ascii_case("linkup")
                && !state.as_str().eq_ignore_ascii_case("link_up")
            {
                let finding = Finding::problem(
                    "port-rdma-phys",
                    format!("physical state {state}"),
                    "LinkUp",
                );
                seen.push(Seen::port(fabric, port, finding));
            }
        }
    }
    rates(fabric, seen, notes);
    pcie(fabric, seen);
}

/// Functions that other nodes have and this one has not.
fn functions(fabric: &Fabric, seen: &mut Vec<Seen>) {
    let places = |ports: &[PortFacts]| -> BTreeMap<(u32, u8), String> {
        let place = |port: &PortFacts| {
            let Place {
                pci_domain,
                function,
            } = port.place()?;
            Some(((pci_domain, function), port.netdev.to_string()))
        };
        ports.iter().filter_map(place).collect()
    };
    let all: Vec<_> = fabric
        .inventories
        .iter()
        .map(|node| places(&node.ports))
        .collect();
    let of_name: Vec<_> = all
        .iter()
        .map(|own| own.keys().copied().collect::<Vec<_>>())
        .collect();
    let complete = |keys: &Vec<(u32, u8)>| keys.len() == DOMAINS * crate::plan::PORTS_PER_DOMAIN;
    let usual_keys = usual(of_name.iter().filter(|keys| complete(keys)).cloned());
    // Hosts that lack a socket, and what they lack of it.
    let mut sockets: Vec<(usize, Finding)> = Vec::new();
    for (node, own) in all.iter().enumerate() {
        let inventory = &fabric.inventories[node];
        let left: Vec<String> = inventory
            .left_out
            .iter()
            .take(4)
            .map(|left| format!("{}: {}", left.what, left.why))
            .collect();
        let said = if left.is_empty() {
            String::new()
        } else {
            format!(" ({})", list(left))
        };
        if inventory.ports.is_empty() {
            let finding = Finding::problem(
                "nic-missing",
                format!("no fabric function is there{said}"),
                "four functions of a ConnectX-7",
            );
            seen.push(Seen::host(fabric, node, finding));
            continue;
        }
        let Some(wanted) = &usual_keys else { continue };
        let missing: Vec<&(u32, u8)> = wanted
            .iter()
            .filter(|key| !own.contains_key(*key))
            .collect();
        // Another board numbers its functions in another way.
        if missing.is_empty() || own.len() >= wanted.len() {
            continue;
        }
        let called = |key: &(u32, u8)| {
            let name = all
                .iter()
                .filter(|other| other.len() == wanted.len())
                .find_map(|other| other.get(key));
            let name = name.map_or(String::new(), |name| format!(" ({name} on the others)"));
            format!("function {} of PCI domain {:04x}{name}", key.1, key.0)
        };
        let finding = Finding::problem(
            "function-missing",
            format!(
                "{} {} not there{said}",
                list(missing.iter().map(|key| called(key))),
                if missing.len() == 1 { "is" } else { "are" }
            ),
            "the functions that the other nodes have",
        );
        // Both domains of one socket: its cable was pulled. Otherwise a whole controller is gone.
        let functions: BTreeSet<u8> = missing.iter().map(|key| key.1).collect();
        if missing.len() == DOMAINS && functions.len() == 1 {
            sockets.push((node, finding.advise("both functions of one socket are gone: the platform takes them away with the cable; plug it in, and see journalctl -k -g 'cx7-pcie-hotplug|MTKP0001'; then hairpin-mesh up on this node")));
        } else {
            seen.push(Seen::host(fabric, node, finding));
        }
    }
    // The cable between the only two sockets that are gone: every other one has its other end.
    let others = (0..fabric.ports.len()).all(|port| fabric.far(port).is_some());
    if let ([(one, first), (other, second)], true) = (&sockets[..], fabric.whole && others) {
        let hosts = [*one, *other];
        let names = hosts.map(|node| fabric.hosts[node].as_str());
        let finding = Finding {
            host: Some(names.join(", ")),
            found: format!(
                "the sockets at both ends of a cable are gone ({}: {}; {}: {})",
                names[0], first.found, names[1], second.found
            ),
            ..first.clone()
        };
        seen.push(Seen {
            finding,
            ports: BTreeSet::new(),
            hosts: hosts.into(),
            addresses: BTreeSet::new(),
        });
        return;
    }
    seen.extend(
        sockets
            .into_iter()
            .map(|(node, finding)| Seen::host(fabric, node, finding)),
    );
}

fn is_down(facts: &PortFacts) -> bool {
    facts.state != "up" && facts.state != "unknown" && !facts.state.is_empty()
}

/// A socket both of whose functions are down has lost its cable, and so has the one at the other end.
fn cables(fabric: &Fabric, seen: &mut Vec<Seen>) {
    let sockets: BTreeSet<_> = (0..fabric.ports.len())
        .map(|port| fabric.socket(port))
        .collect();
    let down = |socket| {
        let ports = fabric.of_socket(socket);
        ports.len() > 1 && ports.iter().all(|port| is_down(fabric.facts(*port)))
    };
    let mut told = BTreeSet::new();
    for socket in sockets.iter().copied().filter(|socket| down(*socket)) {
        if told.contains(&socket) {
            continue;
        }
        let (node, number) = socket;
        let mut ports = fabric.of_socket(socket);
        let here = fabric.names(&ports);
        let far = fabric.far_socket(socket).filter(|far| *far != socket);
        let mut found = format!("no link on either function of socket {number} ({here})");
        if let Some(far) = far {
            let there = fabric.of_socket(far);
            let names = fabric.names(&there);
            let host = &fabric.hosts[far.0];
            if down(far) {
                found += &format!(", nor at the other end ({host} {names})");
                ports.extend(there);
                told.insert(far);
            } else {
                found += &format!("; its other end by the addresses has one ({host} {names})");
            }
        }
        told.insert(socket);
        let mut cable = Seen::ports(
            fabric,
            ports,
            Finding::problem("cable-down", found, "a cable that carries both")
                .on(&fabric.hosts[node]),
        );
        cable.finding.object = Some(format!("socket {number}"));
        seen.push(cable);
    }
}

/// `200` of `200 Gb/sec (4X HDR)`.
fn rate(facts: &PortFacts) -> Option<f64> {
    let text = facts.details.rdma_rate.known()?;
    text.as_str().split(' ').next()?.parse().ok()
}

fn rates(fabric: &Fabric, seen: &mut Vec<Seen>, notes: &mut Vec<Finding>) {
    let best = (0..fabric.ports.len())
        .filter_map(|port| rate(fabric.facts(port)))
        .fold(0.0, f64::max);
    // All alike may be what somebody bought.
    if best > 0.0 && best < RATE {
        notes.push(Finding::warning(
            "links-slow",
            format!("no port has a higher rate than {best} Gb/s"),
            format!("{RATE}, which the sockets of this machine carry"),
        ));
    }
    for port in 0..fabric.ports.len() {
        if let Some(own) = rate(fabric.facts(port)).filter(|own| *own < best) {
            let finding = Finding::problem(
                "port-rate",
                format!("rate {own} Gb/s"),
                format!("{best}, as other ports have"),
            );
            seen.push(Seen::port(fabric, port, finding));
        }
    }
}

/// `32` of `32.0 GT/s PCIe`.
fn transfers(speed: &Fact<crate::names::Text>) -> Option<f64> {
    speed.known()?.as_str().split(' ').next()?.parse().ok()
}

fn pcie(fabric: &Fabric, seen: &mut Vec<Seen>) {
    let link = |port: usize| {
        let pcie = fabric.facts(port).details.pcie.known()?.as_ref()?;
        Some((
            pcie,
            *pcie.current_width.known()?,
            transfers(&pcie.current_speed),
        ))
    };
    let all: Vec<_> = (0..fabric.ports.len()).filter_map(link).collect();
    let widest = all.iter().map(|(_, width, _)| *width).max().unwrap_or(0);
    let fastest = all
        .iter()
        .filter_map(|(_, _, speed)| *speed)
        .fold(0.0, f64::max);
    for port in 0..fabric.ports.len() {
        let Some((pcie, width, speed)) = link(port) else {
            continue;
        };
        // A function may be able to take more lanes than the board gives it.
        let able = pcie
            .max_width
            .known()
            .copied()
            .unwrap_or(LANES)
            .min(LANES)
            .max(widest.min(LANES));
        let can = transfers(&pcie.max_speed).unwrap_or(0.0).max(fastest);
        let slow = speed.is_some_and(|speed| speed < can);
        if width >= able && !slow {
            continue;
        }
        let shown = |width: u32, speed: Option<f64>| match speed {
            Some(speed) => format!("x{width} at {speed:.1} GT/s"),
            None => format!("x{width}"),
        };
        let finding = Finding::problem(
            "pcie-degraded",
            format!("PCIe link {}", shown(width, speed)),
            shown(able.max(width), Some(can).filter(|can| *can > 0.0)),
        );
        seen.push(Seen::port(fabric, port, finding));
    }
}
