//! rtnetlink: links, addresses, routes, neighbours, queueing disciplines, filters, DCB.
//!
//! The codec is `netlink-packet-route`; this file asks, and turns its messages into facts.

use std::net::IpAddr;

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, Nla};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use crate::facts::{Filter, Neighbour, Qdisc, Route, Side, Trust};
use crate::kernel::attr::{Attrs, Malformed, Writer};
use crate::kernel::filter;
use crate::kernel::netlink::{Error, Family, Message, Socket};
use crate::names::{Cidr, Mac, NetdevName, Text};

/// `RT_TABLE_LOCAL` (`linux/rtnetlink.h`): the kernel's own addresses, one row for each.
const TABLE_LOCAL: u32 = 255;

/// `TCA_INGRESS_BLOCK`, `TCA_EGRESS_BLOCK` (`linux/rtnetlink.h`).
const TCA_INGRESS_BLOCK: u16 = 13;
const TCA_EGRESS_BLOCK: u16 = 14;

/// DCB (`linux/rtnetlink.h`, `linux/dcbnl.h`): message, command, attributes, and the selector of
/// application entries that map DSCP to priority (IEEE 802.1Q-2018, table D-9).
const RTM_GETDCB: u16 = 78;
const DCB_CMD_IEEE_GET: u8 = 21;
const DCB_ATTR_IFNAME: u16 = 1;
const DCB_ATTR_IEEE: u16 = 13;
const DCB_ATTR_IEEE_APP_TABLE: u16 = 3;
const DCB_ATTR_IEEE_APP: u16 = 1;
const IEEE_8021QAZ_APP_SEL_DSCP: u8 = 5;
/// Bytes of `struct dcbmsg`: family, command, padding.
const DCB_HEADER: usize = 4;

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: NetdevName,
    /// Whether its frames are Ethernet (`ARPHRD_ETHER`).
    pub ethernet: bool,
    /// Its MAC, when it has one of six octets.
    pub mac: Option<Mac>,
    /// MTU, bytes.
    pub mtu: Option<u32>,
    /// Operational state as sysfs `operstate` names it.
    pub state: Option<String>,
    /// Whether there is a carrier.
    pub carrier: Option<bool>,
    /// Name that the driver gives the port.
    pub phys_port_name: Option<Text>,
    /// Bus and name of the device it belongs to: `pci`, `0000:01:00.0` (kernel 5.14 and newer).
    pub parent: Option<(Text, Text)>,
    /// Packets that came in and that the kernel dropped, for nobody wanted their protocol, say.
    pub rx_dropped: Option<u64>,
    /// Index of the device that this one sends through: a VLAN's, a macvlan's, a tunnel's. (A device of another
    /// network namespace is none here.)
    pub lower: Option<u32>,
    /// Index of the bond, bridge or VRF that it is part of.
    pub master: Option<u32>,
}

impl Link {
    /// An Ethernet device of which nothing else is known yet.
    pub fn new(index: u32, name: NetdevName) -> Link {
        Link {
            index,
            name,
            ethernet: true,
            mac: None,
            mtu: None,
            state: None,
            carrier: None,
            phys_port_name: None,
            parent: None,
            rx_dropped: None,
            lower: None,
            master: None,
        }
    }
}

/// What a table held, and what in it could not be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// One reason for each row that is missing.
    pub left_out: Vec<String>,
}

impl<T> Listing<T> {
    /// Each message through `row`; `None` passes one over.
    fn of(
        messages: &[Message],
        mut row: impl FnMut(RouteNetlinkMessage) -> Result<Vec<T>, String>,
    ) -> Listing<T> {
        let mut listing = Listing {
            rows: Vec::new(),
            left_out: Vec::new(),
        };
        for message in messages {
            match decode(message).and_then(&mut row) {
                Ok(rows) => listing.rows.extend(rows),
                Err(why) => listing.left_out.push(why),
            }
        }
        listing
    }
}

/// Each table from the messages of its dump. Not part of what the library offers: public for the
/// benchmarks, which decode what a kernel once sent.
#[doc(hidden)]
impl Listing<Link> {
    pub fn links(messages: &[Message]) -> Self {
        Listing::of(messages, |message| match message {
            RouteNetlinkMessage::NewLink(message) => link(&message).map(|link| vec![link]),
            _ => Ok(Vec::new()),
        })
    }
}

#[doc(hidden)]
impl Listing<(u32, Cidr)> {
    pub fn addresses(messages: &[Message]) -> Self {
        Listing::of(messages, |message| match message {
            RouteNetlinkMessage::NewAddress(message) => address(&message).map(|row| vec![row]),
            _ => Ok(Vec::new()),
        })
    }
}

#[doc(hidden)]
impl Listing<Route> {
    pub fn routes(messages: &[Message], links: &[Link]) -> Self {
        Listing::of(messages, |message| match message {
            RouteNetlinkMessage::NewRoute(message) => routes(&message, links),
            _ => Ok(Vec::new()),
        })
    }
}

#[doc(hidden)]
impl Listing<(u32, Neighbour)> {
    pub fn neighbours(messages: &[Message]) -> Self {
        Listing::of(messages, |message| match message {
            RouteNetlinkMessage::NewNeighbour(message) => {
                Ok(neighbour(&message).into_iter().collect())
            }
            _ => Ok(Vec::new()),
        })
    }
}

#[doc(hidden)]
impl Listing<(u32, Qdisc)> {
    pub fn qdiscs(messages: &[Message]) -> Self {
        Listing::of(messages, |message| match message {
            RouteNetlinkMessage::NewQueueDiscipline(message) => Ok(vec![qdisc(&message)]),
            _ => Ok(Vec::new()),
        })
    }
}

#[doc(hidden)]
impl Listing<Filter> {
    pub fn filters(messages: &[Message], side: Side, links: &[Link]) -> Self {
        Listing::of(messages, |message| match message {
            RouteNetlinkMessage::NewTrafficFilter(message) => {
                Ok(filter::decode(&message, side, links)?.into_iter().collect())
            }
            _ => Ok(Vec::new()),
        })
    }
}

/// A socket for rtnetlink.
pub struct Rtnetlink(pub(super) Socket);

impl Rtnetlink {
    /// Opens it in the calling thread's network namespace.
    pub fn open() -> Result<Rtnetlink, Error> {
        Socket::open(Family::Route).map(Rtnetlink)
    }

    fn dump(&mut self, request: &RouteNetlinkMessage) -> Result<Vec<Message>, Error> {
        let mut payload = vec![0; request.buffer_len()];
        request.serialize(&mut payload);
        self.0.dump(request.message_type(), &payload)
    }

    /// All network devices.
    pub fn links(&mut self) -> Result<Listing<Link>, Error> {
        let messages = self.dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        Ok(Listing::links(&messages))
    }

    /// All IPv4 addresses: index of the device, address. In the kernel's order.
    pub fn addresses(&mut self) -> Result<Listing<(u32, Cidr)>, Error> {
        let mut request = AddressMessage::default();
        request.header.family = AddressFamily::Inet;
        let messages = self.dump(&RouteNetlinkMessage::GetAddress(request))?;
        Ok(Listing::addresses(&messages))
    }

    /// The IPv4 routes of all tables but `local`. `links` gives the names of the devices.
    pub fn routes(&mut self, links: &[Link]) -> Result<Listing<Route>, Error> {
        let mut request = RouteMessage::default();
        request.header.address_family = AddressFamily::Inet;
        let messages = self.dump(&RouteNetlinkMessage::GetRoute(request))?;
        Ok(Listing::routes(&messages, links))
    }

    /// The neighbours of all devices: index of the device, neighbour. Entries that the kernel makes
    /// for multicast and broadcast are passed over, as `ip neigh` does.
    pub fn neighbours(&mut self) -> Result<Listing<(u32, Neighbour)>, Error> {
        let messages = self.dump(&RouteNetlinkMessage::GetNeighbour(
            NeighbourMessage::default(),
        ))?;
        Ok(Listing::neighbours(&messages))
    }

    /// The queueing disciplines of all devices: index of the device, discipline.
    pub fn qdiscs(&mut self) -> Result<Listing<(u32, Qdisc)>, Error> {
        let messages = self.dump(&RouteNetlinkMessage::GetQueueDiscipline(
            TcMessage::default(),
        ))?;
        Ok(Listing::qdiscs(&messages))
    }

    /// The filters on one side of the device with this index; none when it has no `clsact` or
    /// `ingress` discipline.
    pub fn filters(
        &mut self,
        index: u32,
        side: Side,
        links: &[Link],
    ) -> Result<Listing<Filter>, Error> {
        self.filters_at(index, side, 0, links)
    }

    /// The filters at one preference (all of them for 0): the kernel passes the others over.
    pub fn filters_at(
        &mut self,
        index: u32,
        side: Side,
        pref: u16,
        links: &[Link],
    ) -> Result<Listing<Filter>, Error> {
        let request = filter::selection(index, side, pref);
        let messages = self.dump(&RouteNetlinkMessage::GetTrafficFilter(request))?;
        Ok(Listing::filters(&messages, side, links))
    }

    /// How the device maps packets to priorities, by its DCB application table: any entry with the
    /// DSCP selector makes the driver trust DSCP (mlx5: `mlx5e_dcbnl_ieee_setapp`).
    pub fn trust(&mut self, device: &NetdevName) -> Result<Trust, Error> {
        let mut payload = vec![0, DCB_CMD_IEEE_GET, 0, 0];
        let mut attrs = Writer::default();
        attrs.text(DCB_ATTR_IFNAME, device.as_str());
        payload.extend(attrs.bytes());
        let answer = self.0.request(RTM_GETDCB, 0, &payload)?;
        let message = answer
            .messages
            .first()
            .ok_or_else(|| Error::Malformed("no answer in the answer".into()))?;
        Ok(trust(&message.payload)?)
    }
}

fn trust(payload: &[u8]) -> Result<Trust, Malformed> {
    let attrs = Attrs::parse(payload.get(DCB_HEADER..).unwrap_or(&[]))?;
    let table = attrs
        .need(DCB_ATTR_IEEE)?
        .nested()?
        .nested(DCB_ATTR_IEEE_APP_TABLE)?;
    // struct dcb_app: selector, priority, protocol (16 bits).
    let dscp = table
        .all(DCB_ATTR_IEEE_APP)
        .any(|app| app.value.first() == Some(&IEEE_8021QAZ_APP_SEL_DSCP));
    Ok(if dscp { Trust::Dscp } else { Trust::Pcp })
}

fn decode(message: &Message) -> Result<RouteNetlinkMessage, String> {
    let mut header = NetlinkHeader::default();
    header.message_type = message.kind;
    RouteNetlinkMessage::deserialize(&header, &message.payload)
        .map_err(|e| format!("a message of type {} cannot be read: {e}", message.kind))
}

fn link(message: &LinkMessage) -> Result<Link, String> {
    let name = message.attributes.iter().find_map(|a| match a {
        LinkAttribute::IfName(text) => Some(text),
        _ => None,
    });
    let index = message.header.index;
    let name = name
        .ok_or_else(|| format!("network device {index} has no name"))?
        .parse()
        .map_err(|e| format!("the name of network device {index} {e}"))?;
    let mut link = Link {
        ethernet: message.header.link_layer_type == LinkLayerType::Ether,
        ..Link::new(index, name)
    };
    let (mut bus, mut parent) = (None, None);
    let mut elsewhere = false;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::Address(bytes) => link.mac = mac(bytes),
            LinkAttribute::Mtu(mtu) => link.mtu = Some(*mtu),
            LinkAttribute::OperState(state) => {
                link.state = Some(state.to_string().to_ascii_lowercase())
            }
            LinkAttribute::Carrier(carrier) => link.carrier = Some(*carrier != 0),
            LinkAttribute::PhysPortName(text) => link.phys_port_name = Some(text.as_str().into()),
            LinkAttribute::Stats64(stats) => link.rx_dropped = Some(stats.rx_dropped),
            LinkAttribute::Link(index) => link.lower = Some(*index),
            LinkAttribute::LinkNetNsId(_) => elsewhere = true,
            LinkAttribute::Controller(index) => link.master = Some(*index),
            LinkAttribute::ParentDevBusName(text) => bus = Some(text.as_str().into()),
            LinkAttribute::ParentDevName(text) => parent = Some(text.as_str().into()),
            _ => {}
        }
    }
    link.parent = bus.zip(parent);
    // 0: of no device here.
    link.lower = link.lower.filter(|index| !elsewhere && *index != 0);
    Ok(link)
}

fn mac(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok().map(Mac)
}

fn address(message: &AddressMessage) -> Result<(u32, Cidr), String> {
    let find = |local: bool| {
        message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                AddressAttribute::Local(IpAddr::V4(address)) if local => Some(*address),
                AddressAttribute::Address(IpAddr::V4(address)) if !local => Some(*address),
                _ => None,
            })
    };
    // IFA_ADDRESS is the peer's address on a point-to-point link; IFA_LOCAL is always our own.
    let address = find(true).or_else(|| find(false)).ok_or_else(|| {
        format!(
            "an address of network device {} has no address",
            message.header.index
        )
    })?;
    Ok((
        message.header.index,
        Cidr {
            address,
            prefix: message.header.prefix_len.min(32),
        },
    ))
}

/// Name of the device with this index.
pub(super) fn name_of(index: u32, links: &[Link]) -> Option<NetdevName> {
    links
        .iter()
        .find(|link| link.index == index)
        .map(|link| link.name.clone())
}

pub(super) fn routes(message: &RouteMessage, links: &[Link]) -> Result<Vec<Route>, String> {
    let header = &message.header;
    let mut route = Route {
        destination: Cidr {
            address: std::net::Ipv4Addr::UNSPECIFIED,
            prefix: header.destination_prefix_length.min(32),
        },
        table: header.table.into(),
        tos: header.tos,
        kind: route_kind(header.kind),
        protocol: header.protocol.into(),
        scope: route_scope(header.scope),
        gateway: None,
        dev: None,
        src: None,
        metric: 0,
        multipath: false,
        flags: route_flags(header.flags.bits()),
        other: None,
    };
    let mut hops = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                route.destination.address = *address
            }
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::PrefSource(address) => route.src = ip(address),
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::MultiPath(rows) => hops = Some(rows),
            other => next_hop(&mut route, other, links)?,
        }
    }
    if route.table == TABLE_LOCAL {
        return Ok(Vec::new());
    }
    let Some(hops) = hops else {
        return Ok(vec![route]);
    };
    hops.iter()
        .map(|hop| {
            let mut route = Route {
                multipath: true,
                flags: route_flags(hop.flags.bits().into()),
                ..route.clone()
            };
            next_hop(&mut route, &RouteAttribute::Oif(hop.interface_index), links)?;
            for attribute in &hop.attributes {
                next_hop(&mut route, attribute, links)?;
            }
            Ok(route)
        })
        .collect()
}

/// The parts of a route that each next hop of a multipath route has for itself.
fn next_hop(route: &mut Route, attribute: &RouteAttribute, links: &[Link]) -> Result<(), String> {
    match attribute {
        RouteAttribute::Gateway(address) => route.gateway = ip(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => route.gateway = Some(IpAddr::V4(*address)),
        RouteAttribute::Via(RouteVia::Inet6(address)) => route.gateway = Some(IpAddr::V6(*address)),
        RouteAttribute::Metrics(_) => other(route, "metrics"),
        RouteAttribute::Realm(_) => other(route, "realm"),
        RouteAttribute::Encap(_) | RouteAttribute::EncapType(_) => other(route, "encap"),
        RouteAttribute::TtlPropagate(_) => other(route, "ttl_propagate"),
        RouteAttribute::NhId(number) => other(route, &format!("nexthop {number}")),
        RouteAttribute::Oif(index) => {
            let name = name_of(*index, links).ok_or_else(|| {
                format!(
                    "the route to {} is on network device {index}, whose name is not known",
                    route.destination
                )
            })?;
            route.dev = Some(name);
        }
        _ => {}
    }
    Ok(())
}

fn other(route: &mut Route, word: &str) {
    let all = route.other.get_or_insert_default();
    if !all.iter().any(|known| known.as_str() == word) {
        all.push(word.into());
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

/// The words of `ip route`.
pub(super) fn route_kind(kind: RouteType) -> Text {
    match kind {
        RouteType::Unicast => "unicast".into(),
        RouteType::Local => "local".into(),
        RouteType::Broadcast => "broadcast".into(),
        RouteType::Anycast => "anycast".into(),
        RouteType::Multicast => "multicast".into(),
        RouteType::BlackHole => "blackhole".into(),
        RouteType::Unreachable => "unreachable".into(),
        RouteType::Prohibit => "prohibit".into(),
        RouteType::Throw => "throw".into(),
        RouteType::Nat => "nat".into(),
        other => u8::from(other).to_string().as_str().into(),
    }
}

/// The words of `ip route`.
pub(super) fn route_scope(scope: RouteScope) -> Text {
    match scope {
        RouteScope::Universe => "global".into(),
        RouteScope::Site => "site".into(),
        RouteScope::Link => "link".into(),
        RouteScope::Host => "host".into(),
        RouteScope::NoWhere => "nowhere".into(),
        other => u8::from(other).to_string().as_str().into(),
    }
}

/// Flags of a route or next hop that say something about its state (`RTNH_F_*`,
/// `linux/rtnetlink.h`), with the words of `ip route`.
fn route_flags(flags: u32) -> Vec<Text> {
    [
        (RouteFlags::Dead, "dead"),
        (RouteFlags::Pervasive, "pervasive"),
        (RouteFlags::Onlink, "onlink"),
        (RouteFlags::Offload, "offload"),
        (RouteFlags::Linkdown, "linkdown"),
        (RouteFlags::Unresolved, "unresolved"),
        (RouteFlags::Trap, "trap"),
    ]
    .into_iter()
    .filter(|(flag, _)| flags & flag.bits() != 0)
    .map(|(_, word)| word.into())
    .collect()
}

fn neighbour(message: &NeighbourMessage) -> Option<(u32, Neighbour)> {
    if matches!(
        message.header.state,
        NeighbourState::Noarp | NeighbourState::None
    ) {
        return None;
    }
    let address = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
                Some(IpAddr::V4(*address))
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
                Some(IpAddr::V6(*address))
            }
            _ => None,
        })?;
    let state = match message.header.state {
        NeighbourState::Other(bits) => format!("{bits:#x}"),
        named => named.to_string(),
    };
    let mac = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => mac(bytes),
            _ => None,
        });
    Some((
        message.header.ifindex,
        Neighbour {
            address,
            mac,
            state: state.as_str().into(),
        },
    ))
}

fn qdisc(message: &TcMessage) -> (u32, Qdisc) {
    let kind = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind.as_str().into()),
            _ => None,
        })
        .unwrap_or_else(|| Text::from("?"));
    let parent = match message.header.parent {
        TcHandle::ROOT => "root".to_owned(),
        TcHandle { major, minor } => format!("{major:x}:{minor:x}"),
    };
    let handle = format!("{:x}:", message.header.handle.major);
    let blocks: Vec<Text> = message
        .attributes
        .iter()
        .filter_map(|attribute| {
            let TcAttribute::Other(nla) = attribute else {
                return None;
            };
            let name = match nla.kind() {
                TCA_INGRESS_BLOCK => "ingress_block",
                TCA_EGRESS_BLOCK => "egress_block",
                _ => return None,
            };
            let mut number = [0; 4];
            if nla.value_len() == number.len() {
                nla.emit_value(&mut number);
            }
            Some(
                format!("{name} {}", u32::from_ne_bytes(number))
                    .as_str()
                    .into(),
            )
        })
        .collect();
    // Indices are positive (see `filters`).
    (
        message.header.index as u32,
        Qdisc {
            kind,
            handle: handle.as_str().into(),
            parent: parent.as_str().into(),
            other: (!blocks.is_empty()).then_some(blocks),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to `DCB_CMD_IEEE_GET` (`linux/dcbnl.h`), with application entries of these
    /// selectors.
    fn dcb(selectors: &[u8]) -> Vec<u8> {
        let mut w = Writer::default();
        w.text(DCB_ATTR_IFNAME, "enp1s0f0np0");
        w.nest(DCB_ATTR_IEEE, |ieee| {
            // IEEE_8021QAZ ETS (1), which this program does not look at.
            ieee.put(1, &[0; 59]);
            ieee.nest(DCB_ATTR_IEEE_APP_TABLE, |table| {
                for selector in selectors {
                    table.put(DCB_ATTR_IEEE_APP, &[*selector, 3, 26, 0]);
                }
            });
        });
        [&[0, DCB_CMD_IEEE_GET, 0, 0], w.bytes()].concat()
    }

    #[test]
    fn any_dscp_entry_means_dscp_trust() {
        assert_eq!(trust(&dcb(&[])), Ok(Trust::Pcp));
        // Selectors 1 to 4 are EtherType and port numbers.
        assert_eq!(trust(&dcb(&[1, 4])), Ok(Trust::Pcp));
        assert_eq!(
            trust(&dcb(&[1, IEEE_8021QAZ_APP_SEL_DSCP])),
            Ok(Trust::Dscp)
        );
        assert!(trust(&[0, 0]).is_err());
    }
}
