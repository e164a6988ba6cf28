//! The objects that a host has to have, in the same types in which the kernel's are read: what is
//! wanted is compared with what is there by equality, and written by the encoder of what was read.

use std::net::{IpAddr, Ipv4Addr};

use crate::facts::{Action, Edit, Filter, Flower, Mirred, Neighbour, Route, Side};
use crate::mesh::compare::Object;
use crate::names::{Cidr, EtherType, Mac, NetdevName, RdmaName, Text};
use crate::plan::mesh::ROUTE_PROTOCOL;
use crate::plan::{HostPlan, NeighbourRow, RouteRow, RuleRow};

/// `RT_TABLE_MAIN` (`linux/rtnetlink.h`).
pub const TABLE_MAIN: u32 = 254;

/// Byte of the EtherType in an Ethernet header (IEEE 802.3): it is the first half of the 32-bit word
/// at this offset.
const ETHERTYPE_WORD: u32 = 12;

/// What a host has to have, each kind in the plan's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Ports with transit rules, which need a `clsact` discipline.
    pub clsacts: Vec<NetdevName>,
    /// Transit rules, by the port at whose ingress they are.
    pub rules: Vec<(NetdevName, Filter)>,
    /// RDMA devices that need a marker.
    pub markers: Vec<RdmaName>,
    /// Permanent neighbours (scope-link strategy only), by port.
    pub neighbours: Vec<(NetdevName, Neighbour)>,
    /// Host routes.
    pub routes: Vec<Route>,
}

impl Wanted {
    /// The share of one host.
    pub fn of(host: &HostPlan) -> Wanted {
        let mut wanted = Wanted {
            rules: host
                .rules
                .iter()
                .map(|row| (row.dev.clone(), rule(row)))
                .collect(),
            markers: host.markers.iter().map(|row| row.device.clone()).collect(),
            neighbours: host
                .neighbours
                .iter()
                .map(|row| (row.dev.clone(), neighbour(row)))
                .collect(),
            routes: host.routes.iter().map(|row| route(row)).collect(),
            clsacts: Vec::new(),
        };
        for (dev, _) in &wanted.rules {
            if !wanted.clsacts.contains(dev) {
                wanted.clsacts.push(dev.clone());
            }
        }
        wanted
    }

    /// This and `other`, each kind together.
    pub fn and(&self, other: &Wanted) -> Wanted {
        Wanted {
            clsacts: [&self.clsacts[..], &other.clsacts[..]].concat(),
            rules: [&self.rules[..], &other.rules[..]].concat(),
            markers: [&self.markers[..], &other.markers[..]].concat(),
            neighbours: [&self.neighbours[..], &other.neighbours[..]].concat(),
            routes: [&self.routes[..], &other.routes[..]].concat(),
        }
    }

    /// This without some of its objects.
    pub fn but<'a>(&self, objects: impl Iterator<Item = &'a Object>) -> Wanted {
        let mut rest = self.clone();
        for object in objects {
            match object {
                Object::Clsact(dev) => rest.clsacts.retain(|own| own != dev),
                Object::Rule(dev, rule) => rest.rules.retain(|own| (&own.0, &own.1) != (dev, rule)),
                Object::Marker(device) => rest.markers.retain(|own| own != device),
                Object::Neighbour(dev, neighbour) => rest
                    .neighbours
                    .retain(|own| (&own.0, &own.1) != (dev, neighbour)),
                Object::Route(route) => rest.routes.retain(|own| own != route),
            }
        }
        rest
    }

    /// What of this `other` does not have too: of an earlier plan, what is left over. The `clsact`
    /// disciplines are no part of it; they go by their record.
    pub fn without(&self, other: &Wanted) -> Wanted {
        fn rest<T: PartialEq + Clone>(one: &[T], other: &[T]) -> Vec<T> {
            one.iter()
                .filter(|it| !other.contains(it))
                .cloned()
                .collect()
        }
        // One that has the place of one of `other` is not left over: it is replaced.
        let place = |(dev, rule): &(NetdevName, Filter)| (dev.clone(), rule.pref);
        let rules = rest(&self.rules, &other.rules);
        let routes = rest(&self.routes, &other.routes);
        Wanted {
            clsacts: Vec::new(),
            rules: rules
                .into_iter()
                .filter(|rule| !other.rules.iter().any(|new| place(new) == place(rule)))
                .collect(),
            markers: rest(&self.markers, &other.markers),
            neighbours: rest(&self.neighbours, &other.neighbours),
            routes: routes
                .into_iter()
                .filter(|route| {
                    let mut new = other.routes.iter();
                    !new.any(|new| new.destination == route.destination)
                })
                .collect(),
        }
    }
}

/// A transit rule as the kernel shows it once a device has it.
fn rule(row: &RuleRow) -> Filter {
    let EtherType(ethertype) = row.set_ethertype;
    let Mac(mac) = row.set_dst_mac;
    let [high, low] = ethertype.to_be_bytes();
    Filter {
        side: Side::Ingress,
        pref: row.pref,
        protocol: row.protocol,
        chain: 0,
        handle: row.handle,
        kind: "flower".into(),
        block: None,
        flower: Some(Flower {
            eth_type: Some(row.protocol),
            src_mac: Some(row.src_mac),
            src_mac_mask: None,
            dst_mac: Some(row.dst_mac),
            dst_mac_mask: None,
            other_keys: Vec::new(),
            skip_sw: true,
            skip_hw: false,
            in_hw: true,
            not_in_hw: false,
            in_hw_count: Some(1),
            actions: vec![
                pedit(vec![edit(
                    ETHERTYPE_WORD,
                    [0, 0, 0xff, 0xff],
                    [high, low, 0, 0],
                )]),
                pedit(vec![
                    edit(0, [0; 4], [mac[0], mac[1], mac[2], mac[3]]),
                    edit(4, [0, 0, 0xff, 0xff], [mac[4], mac[5], 0, 0]),
                ]),
                Action {
                    control: Some("stolen".into()),
                    mirred: Some(Mirred {
                        way: "egress redirect".into(),
                        dev: Some(row.redirect.clone()),
                    }),
                    ..Action::new("mirred")
                },
            ],
        }),
    }
}

fn pedit(edits: Vec<Edit>) -> Action {
    Action {
        control: Some("pipe".into()),
        edits,
        ..Action::new("pedit")
    }
}

/// A word of the Ethernet header that is set. A bit of `keep` that is 1 leaves the packet's.
fn edit(offset: u32, keep: [u8; 4], value: [u8; 4]) -> Edit {
    Edit {
        header: "eth".into(),
        command: "set".into(),
        offset,
        keep: hex(keep),
        value: hex(value),
        moving: false,
    }
}

fn hex(bytes: [u8; 4]) -> Text {
    format!("{:08x}", u32::from_be_bytes(bytes)).as_str().into()
}

/// The /32 of one address.
pub fn host_route(address: Ipv4Addr) -> Cidr {
    Cidr {
        address,
        prefix: 32,
    }
}

fn route(row: &RouteRow) -> Route {
    Route {
        destination: host_route(row.destination),
        table: TABLE_MAIN,
        tos: 0,
        kind: "unicast".into(),
        protocol: ROUTE_PROTOCOL,
        scope: if row.gateway.is_some() {
            "global".into()
        } else {
            "link".into()
        },
        gateway: row.gateway.map(IpAddr::V4),
        dev: Some(row.dev.clone()),
        src: Some(IpAddr::V4(row.src)),
        metric: 0,
        multipath: false,
        flags: Vec::new(),
        other: None,
    }
}

fn neighbour(row: &NeighbourRow) -> Neighbour {
    Neighbour {
        address: IpAddr::V4(row.address),
        mac: Some(row.mac),
        state: "permanent".into(),
    }
}
