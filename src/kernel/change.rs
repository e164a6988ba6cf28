//! Every change to the kernel that the mesh makes: routes, filters, `clsact`, neighbours.
//!
//! What is written is the same types that are read: a message of this file, answered to a dump,
//! reads as what it was made from. Each change is one request, made by one function without I/O,
//! and gives what the kernel remarks although it did as asked.

use std::net::IpAddr;

use netlink_packet_core::NetlinkSerializable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteScope, RouteType,
    RouteVia,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use crate::facts::{Filter, Route};
use crate::kernel::filter;
use crate::kernel::netlink::{Error, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use crate::kernel::route::{Link, Rtnetlink, route_kind, route_scope};
use crate::names::{Mac, NetdevName, Text};

/// What is done when something is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// The kernel refuses with `EEXIST`.
    Refuse,
    /// It takes its place in one step.
    Replace,
}

/// What the kernel remarks although it did as asked.
pub type Warning = Option<String>;

impl Rtnetlink {
    fn change(&mut self, request: Result<Request, String>) -> Result<Warning, Error> {
        let request = request.map_err(Error::Unwritable)?;
        let answer = self
            .0
            .request(request.kind, request.flags, &request.payload)?;
        Ok(answer.warning)
    }

    /// Adds a `clsact` discipline; `EEXIST` when there is one, or a plain `ingress`.
    pub fn add_clsact(&mut self, index: u32) -> Result<Warning, Error> {
        self.change(Ok(add_clsact(index)))
    }

    /// Removes the `clsact` discipline with all filters on it. A plain `ingress` stays: `EINVAL`.
    pub fn delete_clsact(&mut self, index: u32) -> Result<Warning, Error> {
        self.change(Ok(delete_clsact(index)))
    }

    /// Adds a filter to the device with this index.
    ///
    /// The kernel takes [`Existing::Replace`] at the same preference, protocol, handle and set of
    /// keys alone; the new filter enters the hardware before the old one leaves.
    pub fn add_filter(
        &mut self,
        index: u32,
        filter: &Filter,
        existing: Existing,
        links: &[Link],
    ) -> Result<Warning, Error> {
        self.change(add_filter(index, filter, existing, links))
    }

    /// Removes the filter of this side, protocol, preference, handle, kind and chain.
    pub fn delete_filter(&mut self, index: u32, filter: &Filter) -> Result<Warning, Error> {
        self.change(Ok(delete_filter(index, filter)))
    }

    /// Adds an IPv4 route.
    ///
    /// [`Existing::Replace`] takes the place of the route to the same destination with the same
    /// table, TOS and metric, whatever else it is; the caller knows that one.
    pub fn add_route(
        &mut self,
        route: &Route,
        existing: Existing,
        links: &[Link],
    ) -> Result<Warning, Error> {
        self.change(add_route(route, existing, links))
    }

    /// Removes the route that has this destination, gateway, device, source, protocol, table, TOS,
    /// scope, type and metric.
    ///
    /// The kernel reads metric 0 as any, and takes the lowest (`fib_nh_match`,
    /// net/ipv4/fib_semantics.c): another metric goes only when there is none with 0 and the rest
    /// is the same.
    pub fn delete_route(&mut self, route: &Route, links: &[Link]) -> Result<Warning, Error> {
        self.change(delete_route(route, links))
    }

    /// Makes `mac` the permanent neighbour entry of `address`, in place of any other entry.
    pub fn set_neighbour(
        &mut self,
        index: u32,
        address: IpAddr,
        mac: Mac,
    ) -> Result<Warning, Error> {
        self.change(Ok(set_neighbour(index, address, mac)))
    }

    /// Removes the neighbour entry of `address`.
    pub fn delete_neighbour(&mut self, index: u32, address: IpAddr) -> Result<Warning, Error> {
        self.change(Ok(delete_neighbour(index, address)))
    }
}

/// Whether `filter` is made of parts that [`Rtnetlink::add_filter`] can write: what can be put back
/// after it was removed or replaced. The reason when it is not.
///
/// Those parts are flower, the keys EtherType, source and destination MAC with their masks,
/// `skip_sw` and `skip_hw`, `pedit` of the extended kind with fixed offsets, and `mirred` to a
/// device that is there.
pub fn can_write(filter: &Filter) -> Result<(), String> {
    filter::encode(0, filter, |_| Some(1)).map(|_| ())
}

/// Whether `route` is made of parts that [`Rtnetlink::add_route`] can write. The reason when it is
/// not.
pub fn can_write_route(route: &Route) -> Result<(), String> {
    route_message(route, |_| Some(1)).map(|_| ())
}

/// A request that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    kind: u16,
    /// Beside `NLM_F_REQUEST` and `NLM_F_ACK`.
    flags: u16,
    /// What follows the netlink header.
    payload: Vec<u8>,
}

impl Request {
    fn of(flags: u16, message: &RouteNetlinkMessage) -> Request {
        let mut payload = vec![0; message.buffer_len()];
        message.serialize(&mut payload);
        Request {
            kind: message.message_type(),
            flags,
            payload,
        }
    }
}

fn add_clsact(index: u32) -> Request {
    Request::of(
        NLM_F_CREATE | NLM_F_EXCL,
        &RouteNetlinkMessage::NewQueueDiscipline(clsact(index)),
    )
}

fn delete_clsact(index: u32) -> Request {
    Request::of(0, &RouteNetlinkMessage::DelQueueDiscipline(clsact(index)))
}

fn clsact(index: u32) -> TcMessage {
    let mut message = TcMessage::default();
    // Indices are positive and below 2^31 (`dev_new_index`, net/core/dev.c).
    message.header.index = index as i32;
    message.header.parent = TcHandle::CLSACT;
    message.header.handle = TcHandle {
        major: 0xffff,
        minor: 0,
    };
    message.attributes = vec![TcAttribute::Kind("clsact".to_owned())];
    message
}

fn add_filter(
    index: u32,
    filter: &Filter,
    existing: Existing,
    links: &[Link],
) -> Result<Request, String> {
    let message = filter::encode(index, filter, |name| index_of(name, links))?;
    // The kernel does not look at NLM_F_REPLACE here (`tc_new_tfilter`, net/sched/cls_api.c).
    let flags = match existing {
        Existing::Refuse => NLM_F_CREATE | NLM_F_EXCL,
        Existing::Replace => NLM_F_CREATE,
    };
    Ok(Request::of(
        flags,
        &RouteNetlinkMessage::NewTrafficFilter(message),
    ))
}

fn delete_filter(index: u32, filter: &Filter) -> Request {
    Request::of(
        0,
        &RouteNetlinkMessage::DelTrafficFilter(filter::encode_removal(index, filter)),
    )
}

fn add_route(route: &Route, existing: Existing, links: &[Link]) -> Result<Request, String> {
    let message = route_message(route, |name| index_of(name, links))?;
    let flags = match existing {
        Existing::Refuse => NLM_F_CREATE | NLM_F_EXCL,
        Existing::Replace => NLM_F_CREATE | NLM_F_REPLACE,
    };
    Ok(Request::of(flags, &RouteNetlinkMessage::NewRoute(message)))
}

fn delete_route(route: &Route, links: &[Link]) -> Result<Request, String> {
    let mut message = route_message(route, |name| index_of(name, links))?;
    // How the route is resolved is not part of what it is (`fib_table_delete`).
    message.header.flags = RouteFlags::empty();
    Ok(Request::of(0, &RouteNetlinkMessage::DelRoute(message)))
}

fn route_message(
    route: &Route,
    device: impl Fn(&NetdevName) -> Option<u32>,
) -> Result<RouteMessage, String> {
    let cannot = |what: String| {
        format!(
            "the route to {} {what}, which cannot be written",
            route.destination
        )
    };
    if route.multipath {
        return Err(cannot("has several next hops".into()));
    }
    if let Some(other) = route.other.as_ref().and_then(|all| all.first()) {
        return Err(cannot(format!("has {other}")));
    }
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = route.destination.prefix;
    message.header.tos = route.tos;
    // A table above 255 has its number in an attribute alone.
    let short = u8::try_from(route.table);
    message.header.table = short.unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    message.header.protocol = route.protocol.into();
    message.header.scope = numbered(&route.scope, |n| route_scope(RouteScope::from(n)))
        .ok_or_else(|| cannot(format!("has the scope {}", route.scope)))?
        .into();
    message.header.kind = numbered(&route.kind, |n| route_kind(RouteType::from(n)))
        .ok_or_else(|| cannot(format!("is of the type {}", route.kind)))?
        .into();
    if route.flags.iter().any(|flag| flag.as_str() == "onlink") {
        message.header.flags = RouteFlags::Onlink;
    }
    let attributes = &mut message.attributes;
    if route.destination.prefix > 0 {
        attributes.push(RouteAttribute::Destination(RouteAddress::Inet(
            route.destination.address,
        )));
    }
    attributes.extend(route.gateway.map(|gateway| match gateway {
        IpAddr::V4(address) => RouteAttribute::Gateway(RouteAddress::Inet(address)),
        IpAddr::V6(address) => RouteAttribute::Via(RouteVia::Inet6(address)),
    }));
    attributes.extend(match route.src {
        None => None,
        Some(IpAddr::V4(address)) => Some(RouteAttribute::PrefSource(RouteAddress::Inet(address))),
        Some(IpAddr::V6(address)) => return Err(cannot(format!("has the source {address}"))),
    });
    if short.is_err() {
        attributes.push(RouteAttribute::Table(route.table));
    }
    if route.metric != 0 {
        attributes.push(RouteAttribute::Priority(route.metric));
    }
    if let Some(dev) = &route.dev {
        let index = device(dev).ok_or_else(|| format!("the network device {dev} is not there"))?;
        attributes.push(RouteAttribute::Oif(index));
    }
    Ok(message)
}

/// The number whose word is `word`.
fn numbered(word: &Text, of: impl Fn(u8) -> Text) -> Option<u8> {
    (0..=u8::MAX).find(|number| of(*number) == *word)
}

fn index_of(name: &NetdevName, links: &[Link]) -> Option<u32> {
    links
        .iter()
        .find(|link| link.name == *name)
        .map(|link| link.index)
}

fn set_neighbour(index: u32, address: IpAddr, Mac(mac): Mac) -> Request {
    let mut message = neighbour(index, address);
    message
        .attributes
        .push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
    Request::of(
        NLM_F_CREATE | NLM_F_REPLACE,
        &RouteNetlinkMessage::NewNeighbour(message),
    )
}

fn delete_neighbour(index: u32, address: IpAddr) -> Request {
    Request::of(
        0,
        &RouteNetlinkMessage::DelNeighbour(neighbour(index, address)),
    )
}

fn neighbour(index: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    let destination = match address {
        IpAddr::V4(address) => {
            message.header.family = AddressFamily::Inet;
            NeighbourAddress::Inet(address)
        }
        IpAddr::V6(address) => {
            message.header.family = AddressFamily::Inet6;
            NeighbourAddress::Inet6(address)
        }
    };
    message.attributes = vec![NeighbourAttribute::Destination(destination)];
    message
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader};
    use proptest::prelude::*;

    use super::*;
    use crate::facts::{Action, Edit, Flower, Mirred, Side};
    use crate::kernel::captured;
    use crate::kernel::route::routes;
    use crate::names::{Cidr, EtherType};

    /// `NLM_F_REQUEST | NLM_F_ACK`, which the transport adds.
    const ASKED: u16 = 0x5;

    fn link(index: u32, name: &str) -> Link {
        Link::new(index, name.parse().unwrap())
    }

    /// The devices of the captures.
    fn links() -> Vec<Link> {
        vec![link(2, "x1"), link(3, "x0"), link(5, "y0")]
    }

    /// A whole message as `strace` shows it, without sequence number and port.
    fn sent(hex: &str) -> Request {
        let bytes = &captured(hex)[0];
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!(bytes.len(), usize::from(half(0)));
        Request {
            kind: half(4),
            flags: half(6) & !ASKED,
            payload: bytes[16..].to_vec(),
        }
    }

    fn decoded(request: &Request) -> RouteNetlinkMessage {
        let mut header = NetlinkHeader::default();
        header.message_type = request.kind;
        RouteNetlinkMessage::deserialize(&header, &request.payload).unwrap()
    }

    fn filter_of(request: &Request, side: Side) -> Filter {
        let RouteNetlinkMessage::NewTrafficFilter(message) = decoded(request) else {
            panic!("{request:?}")
        };
        filter::decode(&message, side, &links()).unwrap().unwrap()
    }

    fn route_of(request: &Request) -> Route {
        let RouteNetlinkMessage::NewRoute(message) = decoded(request) else {
            panic!("{request:?}")
        };
        routes(&message, &links()).unwrap().remove(0)
    }

    fn action(kind: &str, control: &str) -> Action {
        Action {
            control: Some(control.into()),
            ..Action::new(kind)
        }
    }

    fn pedit(edits: &[(&str, u32, &str, &str)]) -> Action {
        let edit = |(header, offset, keep, value): &(&str, u32, &str, &str)| Edit {
            header: (*header).into(),
            command: "set".into(),
            offset: *offset,
            keep: (*keep).into(),
            value: (*value).into(),
            moving: false,
        };
        Action {
            edits: edits.iter().map(edit).collect(),
            ..action("pedit", "pipe")
        }
    }

    fn mirred(way: &str, dev: &str, control: &str) -> Action {
        Action {
            mirred: Some(Mirred {
                way: way.into(),
                dev: Some(dev.parse().unwrap()),
            }),
            ..action("mirred", control)
        }
    }

    /// The rule of a diagonal.
    fn rule(redirect: &str) -> Filter {
        Filter {
            side: Side::Ingress,
            pref: 49152,
            protocol: EtherType(0x88b5),
            chain: 0,
            handle: 49152,
            kind: "flower".into(),
            flower: Some(Flower {
                eth_type: Some(EtherType(0x88b5)),
                src_mac: Some("aa:bb:cc:00:00:01".parse().unwrap()),
                src_mac_mask: None,
                dst_mac: Some("aa:bb:cc:00:00:02".parse().unwrap()),
                dst_mac_mask: None,
                other_keys: Vec::new(),
                skip_sw: true,
                skip_hw: false,
                in_hw: false,
                not_in_hw: false,
                in_hw_count: None,
                actions: vec![
                    pedit(&[("eth", 12, "0000ffff", "08000000")]),
                    pedit(&[
                        ("eth", 0, "00000000", "aabbcc00"),
                        ("eth", 4, "0000ffff", "00030000"),
                    ]),
                    mirred("egress redirect", redirect, "stolen"),
                ],
            }),
            block: None,
        }
    }

    /// `X ingress protocol 0x88b5 pref 49152 handle 49152 flower skip_sw
    /// src_mac aa:bb:cc:00:00:01 dst_mac aa:bb:cc:00:00:02
    /// action pedit ex munge eth type set 0x0800 pipe
    /// action pedit ex munge eth dst set aa:bb:cc:00:00:03 pipe
    /// action mirred egress redirect dev Y`, with X = 3 and Y = 5, sent by
    /// `tc filter add dev` (iproute2 6.1).
    const RULE: &str = "\
        980100002c0005061bf30e6b00000000000000000300000000c00000f2ffffff88b500c00b000100666c6f7765720000\
        680102000a000600aabbcc00000100000a000700ffffffffffff00000a000400aabbcc00000200000a000500ffffffff\
        ffff000024010300600001000a0001007065646974000000500002803400040000000000000000000300000000000000\
        00000000010000000000ffff080000000c00000000000000000000000000000018000580140006800600010001000000\
        06000200000000008c0002000a00010070656469740000007c0002804c00040000000000000000000300000000000000\
        000000000200000000000000aabbcc00000000000000000000000000000000000000ffff000300000400000000000000\
        00000000000000002c000580140006800600010001000000060002000000000014000680060001000100000006000200\
        00000000340003000b0001006d6972726564000024000280200002000000000000000000040000000000000000000000\
        010000000500000008001600020000000600080088b50000";

    #[test]
    fn the_rule_of_a_diagonal_is_written_as_tc_writes_it() {
        let request = add_filter(3, &rule("y0"), Existing::Refuse, &links()).unwrap();
        assert_eq!(request, sent(RULE));
        assert_eq!(request.payload.len(), 408 - 16);
        assert_eq!(filter_of(&sent(RULE), Side::Ingress), rule("y0"));
        // `tc filter replace dev` of the same differs in NLM_F_EXCL alone.
        let replaced = add_filter(3, &rule("y0"), Existing::Replace, &links()).unwrap();
        assert_eq!(replaced.flags, 0x400);
        assert_eq!(replaced.payload, request.payload);
    }

    /// `tc filter add dev x0 egress protocol 0x88b5 pref 49152 handle 49152 chain 3 flower skip_hw
    /// src_mac aa:bb:cc:00:00:01/ff:ff:ff:00:00:00
    /// action pedit ex munge ip ttl set 63 pipe
    /// action mirred ingress mirror dev x1 continue`
    #[test]
    fn a_filter_of_other_parts_is_written_as_tc_writes_it() {
        let bytes = sent(
            "fc0000002c000506a13e0f6b00000000000000000300000000c00000f3ffffff88b500c008000b00030000000b000100\
             666c6f7765720000c40002000a000600aabbcc00000100000a000700ffffff000000000098000300600001000a000100\
             7065646974000000500002803400040000000000000000000300000000000000000000000100000000ffffff3f000000\
             08000000000000000000000000000000180005801400068006000100020000000600020000000000340002000b000100\
             6d6972726564000024000280200002000000000000000000ffffffff0000000000000000040000000200000008001600\
             010000000600080088b50000",
        );
        let mut filter = rule("x1");
        filter.side = Side::Egress;
        filter.chain = 3;
        let flower = filter.flower.as_mut().unwrap();
        flower.src_mac_mask = Some("ff:ff:ff:00:00:00".parse().unwrap());
        flower.dst_mac = None;
        (flower.skip_sw, flower.skip_hw) = (false, true);
        flower.actions = vec![
            pedit(&[("ip4", 8, "00ffffff", "3f000000")]),
            mirred("ingress mirror", "x1", "continue"),
        ];
        assert_eq!(
            add_filter(3, &filter, Existing::Refuse, &links()).unwrap(),
            bytes
        );
        assert_eq!(filter_of(&bytes, Side::Egress), filter);

        // `tc filter del dev x0 egress protocol 0x88b5 pref 49152 handle 49152 chain 3 flower`
        let bytes = sent(
            "4c0000002d000500a13e0f6b00000000000000000300000000c00000f3ffffff88b500c008000b00030000000b000100\
             666c6f77657200001400020008001600000000000600080088b50000",
        );
        assert_eq!(delete_filter(3, &filter), bytes);
    }

    /// `tc filter del dev x0 ingress protocol 0x88b5 pref 49152 handle 49152 flower`
    #[test]
    fn the_removal_of_a_rule_is_written_as_tc_writes_it() {
        let bytes = sent(
            "440000002d000500a13e0f6b00000000000000000300000000c00000f2ffffff88b500c00b000100666c6f7765720000\
             1400020008001600000000000600080088b50000",
        );
        assert_eq!(delete_filter(3, &rule("x1")), bytes);
        let RouteNetlinkMessage::DelTrafficFilter(message) = decoded(&bytes) else {
            panic!()
        };
        let named = filter::decode(&message, Side::Ingress, &[])
            .unwrap()
            .unwrap();
        assert_eq!(
            (named.pref, named.handle, named.protocol, named.chain),
            (49152, 49152, EtherType(0x88b5), 0)
        );
    }

    /// `tc filter show dev x0 ingress pref 49152`, and `egress pref 49153`.
    #[test]
    fn filters_at_a_preference_are_asked_for_as_tc_asks() {
        for (side, pref, hex) in [
            (
                Side::Ingress,
                49152,
                "240000002e000103a23e0f6b00000000000000000300000000000000f2ffffff000000c0",
            ),
            (
                Side::Egress,
                49153,
                "240000002e000103323f0f6b00000000000000000300000000000000f3ffffff000001c0",
            ),
        ] {
            let message = RouteNetlinkMessage::GetTrafficFilter(filter::selection(3, side, pref));
            let bytes = sent(hex);
            assert_eq!(Request::of(bytes.flags, &message), bytes);
        }
    }

    /// `tc qdisc add dev x0 clsact`, `tc qdisc del dev x0 clsact`
    #[test]
    fn clsact_is_written_as_tc_writes_it() {
        assert_eq!(
            add_clsact(3),
            sent(
                "3000000024000506a13e0f6b0000000000000000030000000000fffff1ffffff000000000b000100636c736163740000"
            )
        );
        assert_eq!(
            delete_clsact(3),
            sent(
                "3000000025000500a13e0f6b0000000000000000030000000000fffff1ffffff000000000b000100636c736163740000"
            )
        );
    }

    fn route(destination: &str, gateway: Option<&str>) -> Route {
        Route {
            destination: destination.parse().unwrap(),
            table: 254,
            tos: 0,
            kind: "unicast".into(),
            protocol: 141,
            scope: "global".into(),
            gateway: gateway.map(|text| text.parse().unwrap()),
            dev: Some("x0".parse().unwrap()),
            src: Some("10.10.0.10".parse().unwrap()),
            metric: 0,
            multipath: false,
            flags: Vec::new(),
            other: None,
        }
    }

    /// Routes, what `ip route add` sends to add them, and `ip route del` with all of it said to
    /// remove them. Where iproute2 knows no way to say it all there is no second one.
    fn routes_and_bytes() -> Vec<(Route, &'static str, Option<&'static str>)> {
        vec![
            // ip route add 10.10.1.11/32 via 10.10.0.11 dev x0 src 10.10.0.10 proto 141
            // ip route del unicast ... scope global
            (
                route("10.10.1.11/32", Some("10.10.0.11")),
                "3c00000018000506a03e0f6b0000000002200000fe8d000100000000080001000a0a010b080005000a0a000b080007000a0a000a0800040003000000",
                Some(
                    "3c00000019000500313f0f6b0000000002200000fe8d000100000000080001000a0a010b080005000a0a000b080007000a0a000a0800040003000000",
                ),
            ),
            // ip route add 10.10.1.12/32 dev x0 src 10.10.0.10 proto 141 scope link
            // ip route del unicast ... scope link
            (
                Route {
                    scope: "link".into(),
                    ..route("10.10.1.12/32", None)
                },
                "3400000018000506a03e0f6b0000000002200000fe8dfd0100000000080001000a0a010c080007000a0a000a0800040003000000",
                Some(
                    "3400000019000500313f0f6b0000000002200000fe8dfd0100000000080001000a0a010c080007000a0a000a0800040003000000",
                ),
            ),
            // ip route add 10.10.1.14/32 via 10.99.0.1 dev x0 onlink
            (
                Route {
                    protocol: 3,
                    src: None,
                    flags: vec!["onlink".into()],
                    ..route("10.10.1.14/32", Some("10.99.0.1"))
                },
                "3400000018000506a03e0f6b0000000002200000fe03000104000000080001000a0a010e080005000a6300010800040003000000",
                None,
            ),
            // ip route add blackhole 10.98.0.0/16
            (
                Route {
                    kind: "blackhole".into(),
                    protocol: 3,
                    src: None,
                    dev: None,
                    ..route("10.98.0.0/16", None)
                },
                "2400000018000506a03e0f6b0000000002100000fe03000600000000080001000a620000",
                None,
            ),
            // ip route add 10.10.1.13/32 via inet6 fe80::1 dev x0 table 500 metric 7 tos 8
            (
                Route {
                    table: 500,
                    metric: 7,
                    tos: 8,
                    protocol: 3,
                    src: None,
                    ..route("10.10.1.13/32", Some("fe80::1"))
                },
                "5400000018000506a03e0f6b00000000022000080003000100000000080001000a0a010d160012000a00fe800000000000000000000000000001000008000f00f401000008000600070000000800040003000000",
                None,
            ),
        ]
    }

    #[test]
    fn routes_are_written_as_ip_writes_them() {
        for (route, added, removed) in routes_and_bytes() {
            let added = sent(added);
            let ours = add_route(&route, Existing::Refuse, &links()).unwrap();
            assert_eq!(ours, added, "{route:?}");
            assert_eq!(route_of(&added), route);
            // `ip route replace` of the same differs in the flags alone.
            let replaced = add_route(&route, Existing::Replace, &links()).unwrap();
            assert_eq!((replaced.flags, &replaced.payload), (0x500, &ours.payload));
            if let Some(removed) = removed {
                assert_eq!(
                    delete_route(&route, &links()).unwrap(),
                    sent(removed),
                    "{route:?}"
                );
            }
        }
    }

    /// `ip neigh replace 10.10.1.12 lladdr 02:00:00:00:00:77 dev x0 nud permanent`,
    /// `ip neigh del 10.10.1.12 dev x0`,
    /// `ip neigh replace fe80::77 lladdr 02:00:00:00:00:78 dev x0 nud permanent`
    #[test]
    fn neighbours_are_written_as_ip_writes_them() {
        let address = "10.10.1.12".parse().unwrap();
        let mac = "02:00:00:00:00:77".parse().unwrap();
        assert_eq!(
            set_neighbour(3, address, mac),
            sent(
                "300000001c000505a13e0f6b00000000020000000300000080000000080001000a0a010c0a0002000200000000770000"
            )
        );
        assert_eq!(
            delete_neighbour(3, address),
            sent("240000001d000500a13e0f6b00000000020000000300000080000000080001000a0a010c")
        );
        assert_eq!(
            set_neighbour(
                3,
                "fe80::77".parse().unwrap(),
                "02:00:00:00:00:78".parse().unwrap()
            ),
            sent(
                "3c0000001c000505a13e0f6b000000000a000000030000008000000014000100fe8000000000000000000000000000770a0002000200000000780000"
            )
        );
    }

    #[test]
    fn what_cannot_be_written_says_what_it_is() {
        let with = |change: &dyn Fn(&mut Filter)| {
            let mut filter = rule("y0");
            change(&mut filter);
            can_write(&filter).unwrap_err()
        };
        fn flower(filter: &mut Filter) -> &mut Flower {
            filter.flower.as_mut().unwrap()
        }
        assert_eq!(can_write(&rule("y0")), Ok(()));
        for (why, wanted) in [
            (
                with(&|f| (f.kind, f.flower) = ("u32".into(), None)),
                "a u32 filter",
            ),
            (with(&|f| f.block = Some(7)), "block 7"),
            (with(&|f| flower(f).other_keys = vec![23]), "TCA_FLOWER 23"),
            (
                with(&|f| {
                    flower(f).src_mac = None;
                    flower(f).src_mac_mask = Some(Mac([1; 6]));
                }),
                "no MAC",
            ),
            (
                with(&|f| flower(f).actions[0].edits[0].moving = true),
                "from the packet",
            ),
            (
                with(&|f| flower(f).actions[0].edits[0].header = "network".into()),
                "header network",
            ),
            (
                with(&|f| flower(f).actions[0].edits[0].command = "7".into()),
                "does 7",
            ),
            (
                with(&|f| flower(f).actions[0].edits[0].keep = "zz".into()),
                "eight hex digits",
            ),
            (
                with(&|f| flower(f).actions[2].mirred.as_mut().unwrap().dev = None),
                "gone",
            ),
            (with(&|f| flower(f).actions[2].control = None), "control"),
            (
                with(&|f| flower(f).actions[0].other = Some(vec!["cookie aabb".into()])),
                "with cookie aabb",
            ),
            (
                with(&|f| flower(f).actions[0].kind = "police".into()),
                "a police action",
            ),
            (
                with(&|f| flower(f).actions = vec![action("pedit", "pipe"); 33]),
                "33 actions",
            ),
        ] {
            assert!(why.contains(wanted), "{why}");
        }
        let error = add_filter(3, &rule("z9"), Existing::Refuse, &links()).unwrap_err();
        assert_eq!(error, "the network device z9 is not there");

        let with = |change: &dyn Fn(&mut Route)| {
            let mut route = route("10.10.1.11/32", Some("10.10.0.11"));
            change(&mut route);
            can_write_route(&route).unwrap_err()
        };
        for (why, wanted) in [
            (with(&|r| r.multipath = true), "several next hops"),
            (
                with(&|r| r.other = Some(vec!["metrics".into()])),
                "has metrics",
            ),
            (with(&|r| r.kind = "new".into()), "type new"),
            (with(&|r| r.scope = "new".into()), "scope new"),
            (
                with(&|r| r.src = Some("::1".parse().unwrap())),
                "source ::1",
            ),
        ] {
            assert!(why.contains(wanted), "{why}");
        }
    }

    prop_compose! {
        fn any_edit()(
            header in prop::sample::select(vec!["eth", "ip4", "ip6", "tcp", "udp"]),
            command in prop::sample::select(vec!["set", "add"]),
            offset: u32,
            keep: u32,
            value: u32,
        ) -> Edit {
            Edit {
                header: header.into(),
                command: command.into(),
                offset,
                keep: format!("{keep:08x}").as_str().into(),
                value: format!("{value:08x}").as_str().into(),
                moving: false,
            }
        }
    }

    fn any_action() -> impl Strategy<Value = Action> {
        let words = [
            "continue",
            "pass",
            "reclassify",
            "drop",
            "pipe",
            "stolen",
            "trap",
        ];
        let control = prop_oneof![
            prop::sample::select(words.to_vec()).prop_map(str::to_owned),
            // `goto chain`: TC_ACT_GOTO_CHAIN, the chain's number.
            (0u32..1 << 28).prop_map(|chain| (0x2000_0000 | chain).to_string()),
        ];
        let ways = [
            "egress redirect",
            "egress mirror",
            "ingress redirect",
            "ingress mirror",
        ];
        let what = prop_oneof![
            prop::collection::vec(any_edit(), 0..8).prop_map(|edits| (edits, None)),
            (
                prop::sample::select(ways.to_vec()),
                prop::sample::select(vec!["x0", "x1", "y0"])
            )
                .prop_map(|(way, dev)| (Vec::new(), Some((way, dev)))),
        ];
        (control, what).prop_map(|(control, (edits, to))| match to {
            Some((way, dev)) => mirred(way, dev, &control),
            None => Action {
                edits,
                ..action("pedit", &control)
            },
        })
    }

    prop_compose! {
        fn any_filter()(
            ingress: bool,
            (pref, protocol, chain, handle) in any::<(u16, u16, u32, u32)>(),
            eth_type: Option<u16>,
            macs: [Option<([u8; 6], Option<[u8; 6]>)>; 2],
            (skip_sw, skip_hw) in any::<(bool, bool)>(),
            actions in prop::collection::vec(any_action(), 0..6),
        ) -> Filter {
            let [source, destination] = macs;
            // A mask of all bits is read as none.
            let mask = |mac: Option<([u8; 6], Option<[u8; 6]>)>| {
                mac.and_then(|(_, mask)| mask).filter(|mask| *mask != [0xff; 6]).map(Mac)
            };
            Filter {
                side: if ingress { Side::Ingress } else { Side::Egress },
                pref,
                protocol: EtherType(protocol),
                chain,
                handle,
                kind: "flower".into(),
                flower: Some(Flower {
                    eth_type: eth_type.map(EtherType),
                    src_mac: source.map(|(mac, _)| Mac(mac)),
                    src_mac_mask: mask(source),
                    dst_mac: destination.map(|(mac, _)| Mac(mac)),
                    dst_mac_mask: mask(destination),
                    other_keys: Vec::new(),
                    skip_sw,
                    skip_hw,
                    in_hw: false,
                    not_in_hw: false,
                    in_hw_count: None,
                    actions,
                }),
                block: None,
            }
        }
    }

    prop_compose! {
        fn any_route()(
            (address, prefix) in any::<(u32, u8)>(),
            (table, tos, protocol, metric) in any::<(u32, u8, u8, u32)>(),
            (kind, scope) in any::<(u8, u8)>(),
            gateway: Option<IpAddr>,
            src: Option<Ipv4Addr>,
            dev in prop::option::of(prop::sample::select(vec!["x0", "x1", "y0"])),
            onlink: bool,
        ) -> Route {
            let prefix = prefix % 33;
            Route {
                destination: Cidr { address: address.into(), prefix }.network(),
                // `local` is passed over when it is read.
                table: if table == 255 { 254 } else { table },
                tos,
                kind: route_kind(RouteType::from(kind)),
                protocol,
                scope: route_scope(RouteScope::from(scope)),
                gateway,
                dev: dev.map(|name| name.parse().unwrap()),
                src: src.map(IpAddr::V4),
                metric,
                multipath: false,
                flags: if onlink { vec!["onlink".into()] } else { Vec::new() },
                other: None,
            }
        }
    }

    proptest! {
        #[test]
        fn a_filter_that_is_written_reads_back(filter in any_filter()) {
            prop_assert_eq!(can_write(&filter), Ok(()));
            let request = add_filter(3, &filter, Existing::Refuse, &links()).unwrap();
            prop_assert_eq!(filter_of(&request, filter.side), filter);
        }

        #[test]
        fn a_route_that_is_written_reads_back(route in any_route()) {
            prop_assert_eq!(can_write_route(&route), Ok(()));
            let request = add_route(&route, Existing::Refuse, &links()).unwrap();
            prop_assert_eq!(route_of(&request), route);
        }
    }
}
