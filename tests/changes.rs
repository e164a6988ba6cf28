//! Changes to the kernel, next to iproute2 in a network namespace: what it adds reads as what this
//! program would write, and what this program writes it shows in the same words.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/namespace.rs"]
mod namespace;

use std::process::Command;

use common::not_tested;
use hairpin_mesh::facts::{Action, Edit, Filter, Flower, Mirred, Neighbour, Qdisc, Route, Side};
use hairpin_mesh::kernel::change::{Existing, can_write, can_write_route};
use hairpin_mesh::kernel::netlink::Error;
use hairpin_mesh::kernel::refusal::{Attempt, Situation, sentence, situation};
use hairpin_mesh::kernel::route::{Link, Rtnetlink};
use hairpin_mesh::names::Mac;
use namespace::{in_own_namespace, run};

/// Two ports joined to each other, both up.
struct Ports {
    route: Rtnetlink,
    links: Vec<Link>,
}

impl Ports {
    fn new() -> Ports {
        for line in [
            "ip link add x0 type veth peer name x1",
            "ip link set x0 address 02:00:00:00:00:01 up",
            "ip link set x1 address 02:00:00:00:00:02 up",
            "ip addr add 10.10.0.10/24 dev x0",
        ] {
            run(line);
        }
        let mut route = Rtnetlink::open().unwrap();
        let links = route.links().unwrap().rows;
        Ports { route, links }
    }

    /// Whether this netlink passes messages of tc and of neighbours; where not, that is said.
    /// qemu-user refuses to send them; a kernel answers.
    fn passes_all(&mut self, test: &str) -> bool {
        for result in [
            self.route.qdiscs().map(|_| ()),
            self.route
                .delete_neighbour(1, "10.10.0.77".parse().unwrap())
                .map(|_| ()),
        ] {
            if let Err(Error::Io(error)) = result {
                assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
                not_tested(test, "no tc and no neighbours over this netlink");
                return false;
            }
        }
        true
    }

    fn index(&self, name: &str) -> u32 {
        let link = self.links.iter().find(|l| l.name.as_str() == name);
        link.unwrap().index
    }

    fn routes(&mut self) -> Vec<Route> {
        let listing = self.route.routes(&self.links).unwrap();
        assert_eq!(listing.left_out, Vec::<String>::new());
        listing.rows
    }

    fn filters(&mut self, side: Side) -> Vec<Filter> {
        let index = self.index("x0");
        let listing = self.route.filters(index, side, &self.links).unwrap();
        assert_eq!(listing.left_out, Vec::<String>::new());
        listing.rows
    }

    fn qdiscs(&mut self) -> Vec<Qdisc> {
        let index = self.index("x0");
        let rows = self.route.qdiscs().unwrap().rows;
        let of_x0 = rows.into_iter().filter(|(i, _)| *i == index);
        of_x0.map(|(_, qdisc)| qdisc).collect()
    }
}

/// The filters of x0 as `tc` shows them, without the number that the kernel gives each action.
fn shown(side: &str) -> String {
    let text = run(&format!("tc -d filter show dev x0 {side}"));
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut words: Vec<&str> = line.split(' ').collect();
        if let Some(at) = words.iter().position(|word| word.trim() == "index") {
            words[at + 1] = "N";
        }
        lines.push(words.join(" "));
    }
    lines.join("\n")
}

fn errno(result: Result<Option<String>, Error>) -> Option<i32> {
    result.unwrap_err().errno()
}

/// Whether this kernel has flower and pedit; where not, that is said.
fn flower(test: &str) -> bool {
    let there = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let output = Command::new(words[0]).args(&words[1..]).output();
        output.unwrap().status.success()
    };
    run("ip link add probe type veth peer name prober");
    let clsact = there("tc qdisc add dev probe clsact");
    let rule = "tc filter add dev probe ingress protocol 0x88b5 pref 1 flower \
                src_mac 02:00:00:00:00:01 action pedit ex munge eth type set 0x0800 pipe \
                action mirred egress redirect dev probe";
    let there = clsact && there(rule);
    run("ip link del probe");
    if !there {
        not_tested(
            test,
            "this kernel has no flower classifier or no pedit action",
        );
    }
    there
}

#[test]
fn routes_of_ip_and_ours_are_the_same() {
    in_own_namespace("routes_of_ip_and_ours_are_the_same", routes);
}

fn routes() {
    let mut ports = Ports::new();
    let before = ports.routes();
    for (what, selector) in [
        (
            "10.10.1.11/32 via 10.10.0.11 dev x0 src 10.10.0.10 proto 141",
            "10.10.1.11/32",
        ),
        (
            "10.10.1.12/32 dev x0 src 10.10.0.10 proto 141 scope link",
            "10.10.1.12/32",
        ),
        (
            "10.10.1.13/32 via inet6 fe80::1 dev x0 table 500 metric 7 tos 8",
            "table 500",
        ),
        ("10.10.1.14/32 via 10.99.0.1 dev x0 onlink", "10.10.1.14/32"),
        ("blackhole 10.98.0.0/16 proto 141", "10.98.0.0/16"),
        (
            "default via 10.10.0.254 dev x0 proto 141 metric 9",
            "default",
        ),
    ] {
        let show = format!("ip -d -N route show table all {selector}");
        run(&format!("ip route add {what}"));
        let (theirs, text) = (ports.routes(), run(&show));
        assert!(!text.is_empty(), "{what}");
        let [new] = &theirs
            .iter()
            .filter(|route| !before.contains(route))
            .cloned()
            .collect::<Vec<_>>()[..]
        else {
            panic!("{what}: {theirs:?}")
        };
        assert_eq!(can_write_route(new), Ok(()), "{what}");
        assert_eq!(
            errno(ports.route.add_route(new, Existing::Refuse, &ports.links)),
            Some(libc::EEXIST)
        );

        assert_eq!(ports.route.delete_route(new, &ports.links).unwrap(), None);
        assert_eq!(ports.routes(), before, "{what}");
        assert_eq!(
            errno(ports.route.delete_route(new, &ports.links)),
            Some(libc::ESRCH)
        );

        assert_eq!(
            ports
                .route
                .add_route(new, Existing::Refuse, &ports.links)
                .unwrap(),
            None
        );
        assert_eq!((ports.routes(), run(&show)), (theirs, text), "{what}");
        ports.route.delete_route(new, &ports.links).unwrap();
    }
    assert_eq!(ports.routes(), before);
}

#[test]
fn a_route_is_adopted_in_place_and_its_removal_takes_no_other() {
    in_own_namespace(
        "a_route_is_adopted_in_place_and_its_removal_takes_no_other",
        adopted,
    );
}

fn adopted() {
    let mut ports = Ports::new();
    let before = ports.routes();
    let line = "10.10.1.11/32 via 10.10.0.11 dev x0 src 10.10.0.10";
    run(&format!("ip route add {line}"));
    let theirs = ports
        .routes()
        .into_iter()
        .find(|r| !before.contains(r))
        .unwrap();
    let ours = Route {
        protocol: 141,
        ..theirs.clone()
    };
    ports
        .route
        .add_route(&ours, Existing::Replace, &ports.links)
        .unwrap();
    let shown = run("ip -N route show 10.10.1.11/32");
    assert_eq!(
        shown.trim(),
        "10.10.1.11 via 10.10.0.11 dev x0 proto 141 src 10.10.0.10"
    );

    // Others to the same destination: none of them is ours, and none goes with ours or for ours.
    ports.route.delete_route(&ours, &ports.links).unwrap();
    let mut others = Vec::new();
    for line in [
        format!("{line} metric 5"),
        "10.10.1.11/32 via 10.10.0.12 dev x0 src 10.10.0.10 proto 141 metric 6".into(),
        "10.10.1.11/32 dev x0 src 10.10.0.10 proto 141 scope link metric 7".into(),
        format!("{line} proto 141 tos 4"),
        format!("{line} proto 141 table 300"),
        "10.10.1.11/32 via 10.10.0.11 dev x1 onlink proto 141 metric 8".into(),
        "blackhole 10.10.1.11/32 proto 141 metric 9".into(),
    ] {
        run(&format!("ip route add {line}"));
        others.push(line);
    }
    let all = ports.routes();
    assert_eq!(all.len(), before.len() + others.len());
    assert_eq!(
        errno(ports.route.delete_route(&ours, &ports.links)),
        Some(libc::ESRCH)
    );
    assert_eq!(ports.routes(), all);
    ports
        .route
        .add_route(&ours, Existing::Refuse, &ports.links)
        .unwrap();
    ports.route.delete_route(&ours, &ports.links).unwrap();
    assert_eq!(ports.routes(), all);
}

#[test]
fn what_makes_a_route_another_one_is_read() {
    in_own_namespace("what_makes_a_route_another_one_is_read", other_routes);
}

fn other_routes() {
    let mut ports = Ports::new();
    run("ip nexthop add id 5 via 10.10.0.11 dev x0");
    for (line, wanted) in [
        (
            "ip route add 10.10.1.11/32 via 10.10.0.11 dev x0 mtu 1400",
            "metrics",
        ),
        ("ip route add 10.10.1.11/32 nhid 5", "nexthop 5"),
        (
            "ip route add 10.10.1.11/32 via 10.10.0.11 dev x0 realm 3",
            "realm",
        ),
    ] {
        if line.contains("realm")
            && !Command::new("ip")
                .args(line.split(' ').skip(1))
                .status()
                .unwrap()
                .success()
        {
            // CONFIG_IP_ROUTE_CLASSID
            not_tested("a route with a realm", "this kernel has none");
            continue;
        }
        if !line.contains("realm") {
            run(line);
        }
        let routes = ports.routes();
        let route = routes
            .iter()
            .find(|r| r.destination.to_string() == "10.10.1.11/32")
            .unwrap();
        assert_eq!(route.other, Some(vec![wanted.into()]), "{line}");
        assert!(
            can_write_route(route).unwrap_err().contains(wanted),
            "{line}"
        );
        run("ip route del 10.10.1.11/32");
    }
}

#[test]
fn neighbours_of_ip_and_ours_are_the_same() {
    in_own_namespace("neighbours_of_ip_and_ours_are_the_same", neighbours);
}

fn neighbours() {
    let mut ports = Ports::new();
    if !ports.passes_all("neighbours of ip and ours") {
        return;
    }
    let index = ports.index("x0");
    let mac: Mac = "02:00:00:00:00:77".parse().unwrap();
    for address in ["10.10.1.12", "fe80::77"] {
        let show = format!("ip -d neigh show {address}");
        run(&format!(
            "ip neigh replace {address} lladdr {mac} dev x0 nud permanent"
        ));
        let text = run(&show);
        let address = address.parse().unwrap();
        let wanted = Neighbour {
            address,
            mac: Some(mac),
            state: "permanent".into(),
        };
        let read = |ports: &mut Ports| {
            let rows = ports.route.neighbours().unwrap().rows;
            let mut found = rows
                .into_iter()
                .filter(|(i, n)| *i == index && n.address == address);
            found.next().map(|(_, neighbour)| neighbour)
        };
        assert_eq!(read(&mut ports), Some(wanted.clone()));
        ports.route.delete_neighbour(index, address).unwrap();
        assert_eq!(read(&mut ports), None);
        assert_eq!(run(&show), "");
        assert_eq!(
            errno(ports.route.delete_neighbour(index, address)),
            Some(libc::ENOENT)
        );
        // In place of an entry that the kernel learned, and again.
        run(&format!(
            "ip neigh replace {address} lladdr 02:00:00:00:00:78 dev x0 nud stale"
        ));
        for _ in 0..2 {
            assert_eq!(
                ports.route.set_neighbour(index, address, mac).unwrap(),
                None
            );
            assert_eq!(read(&mut ports), Some(wanted.clone()));
            assert_eq!(run(&show), text);
        }
    }
}

#[test]
fn clsact_of_tc_and_ours_are_the_same() {
    in_own_namespace("clsact_of_tc_and_ours_are_the_same", clsact);
}

fn clsact() {
    let mut ports = Ports::new();
    if !ports.passes_all("clsact of tc and ours") {
        return;
    }
    let index = ports.index("x0");
    let before = ports.qdiscs();
    run("tc qdisc add dev x0 clsact");
    let (theirs, text) = (ports.qdiscs(), run("tc -d qdisc show dev x0"));
    assert_eq!(theirs.len(), before.len() + 1);
    assert_eq!(errno(ports.route.add_clsact(index)), Some(libc::EEXIST));
    ports.route.delete_clsact(index).unwrap();
    assert_eq!(ports.qdiscs(), before);
    ports.route.add_clsact(index).unwrap();
    assert_eq!(
        (ports.qdiscs(), run("tc -d qdisc show dev x0")),
        (theirs, text)
    );
    ports.route.delete_clsact(index).unwrap();
    assert!(ports.route.delete_clsact(index).is_err());

    // A plain `ingress` is in the way, and stays.
    run("tc qdisc add dev x0 ingress");
    let text = run("tc qdisc show dev x0");
    assert!(ports.route.add_clsact(index).is_err());
    assert!(ports.route.delete_clsact(index).is_err());
    assert_eq!(run("tc qdisc show dev x0"), text);
    run("tc qdisc del dev x0 ingress");

    run("tc qdisc add dev x0 ingress_block 7 egress_block 8 clsact");
    let shared = ports.qdiscs().pop().unwrap();
    assert_eq!(shared.kind.as_str(), "clsact");
    assert_eq!(
        shared.other,
        Some(vec!["ingress_block 7".into(), "egress_block 8".into()])
    );
}

/// The rule of a diagonal, but for `skip_sw`, which no port here takes.
const RULE: &str = "ingress protocol 0x88b5 pref 49152 handle 49152 flower \
    src_mac aa:bb:cc:00:00:01 dst_mac aa:bb:cc:00:00:02 \
    action pedit ex munge eth type set 0x0800 pipe \
    action pedit ex munge eth dst set aa:bb:cc:00:00:03 pipe \
    action mirred egress redirect dev x1";

#[test]
fn filters_of_tc_and_ours_are_the_same() {
    in_own_namespace("filters_of_tc_and_ours_are_the_same", filters);
}

fn filters() {
    if !flower("filters of tc and ours") {
        return;
    }
    let mut ports = Ports::new();
    if !ports.passes_all("filters of tc and ours") {
        return;
    }
    let index = ports.index("x0");
    ports.route.add_clsact(index).unwrap();
    for (side, line) in [
        (Side::Ingress, RULE),
        (
            Side::Egress,
            "egress protocol 0x88b5 pref 7 handle 9 chain 3 flower skip_hw \
             src_mac aa:bb:cc:00:00:01/ff:ff:ff:00:00:00 \
             action pedit ex munge eth src set aa:bb:cc:00:00:04 pipe \
             action mirred ingress mirror dev x1 pipe action mirred egress redirect dev x0",
        ),
        (
            Side::Ingress,
            "ingress protocol ip pref 2 handle 1 flower dst_mac aa:bb:cc:00:00:02 \
             action pedit ex munge ip ttl add 0xff munge udp dport set 9 continue",
        ),
        (
            Side::Ingress,
            "ingress protocol all pref 3 handle 1 flower src_mac aa:bb:cc:00:00:02 \
             action mirred egress redirect dev x1",
        ),
    ] {
        let word = side.to_string();
        run(&format!("tc filter add dev x0 {line}"));
        let (theirs, text) = (ports.filters(side), shown(&word));
        let [filter] = &theirs[..] else {
            panic!("{line}: {theirs:?}")
        };
        let filter = filter.as_written();
        assert_eq!(can_write(&filter), Ok(()), "{line}");
        assert_eq!(
            errno(
                ports
                    .route
                    .add_filter(index, &filter, Existing::Refuse, &ports.links)
            ),
            Some(libc::EEXIST),
            "{line}"
        );
        assert_eq!(ports.route.delete_filter(index, &filter).unwrap(), None);
        assert_eq!(
            (ports.filters(side), shown(&word)),
            (Vec::new(), String::new()),
            "{line}"
        );
        assert!(ports.route.delete_filter(index, &filter).is_err());

        for existing in [Existing::Refuse, Existing::Replace] {
            let warning = ports
                .route
                .add_filter(index, &filter, existing, &ports.links);
            assert_eq!(warning.unwrap(), None);
            let ours: Vec<Filter> = ports
                .filters(side)
                .into_iter()
                .map(|filter| filter.as_written())
                .collect();
            assert_eq!(
                (ours, shown(&word)),
                (vec![filter.clone()], text.clone()),
                "{line}"
            );
        }
        ports.route.delete_filter(index, &filter).unwrap();
    }
}

#[test]
fn a_rule_is_replaced_in_place_and_found_by_its_preference() {
    in_own_namespace(
        "a_rule_is_replaced_in_place_and_found_by_its_preference",
        replaced,
    );
}

fn replaced() {
    if !flower("a rule replaced in place") {
        return;
    }
    let mut ports = Ports::new();
    if !ports.passes_all("a rule replaced in place") {
        return;
    }
    let index = ports.index("x0");
    run("tc qdisc add dev x0 clsact");
    run(&format!("tc filter add dev x0 {RULE}"));
    run(
        "tc filter add dev x0 ingress protocol ip pref 5 handle 800::1 u32 match u32 0 0 action drop",
    );
    let all = ports.filters(Side::Ingress);
    assert!(all.len() > 1, "{all:?}");
    let mut at = |pref| {
        let listing = ports
            .route
            .filters_at(index, Side::Ingress, pref, &ports.links);
        listing.unwrap().rows
    };
    let [rule] = &at(49152)[..] else { panic!() };
    assert_eq!(rule.pref, 49152);
    assert!(at(5).iter().all(|f| f.kind.as_str() == "u32"));
    assert_eq!(at(6), []);

    let mut stale = rule.as_written();
    let flower = stale.flower.as_mut().unwrap();
    flower.dst_mac = Some("aa:bb:cc:00:00:09".parse().unwrap());
    flower.actions[1].edits[0].value = "aabbcc01".into();
    let links = ports.links.clone();
    let route = &mut ports.route;
    assert_eq!(
        errno(route.add_filter(index, &stale, Existing::Refuse, &links)),
        Some(libc::EEXIST)
    );
    route
        .add_filter(index, &stale, Existing::Replace, &links)
        .unwrap();
    let [now] = &route
        .filters_at(index, Side::Ingress, 49152, &links)
        .unwrap()
        .rows[..]
    else {
        panic!()
    };
    assert_eq!(now.as_written(), stale);

    // Another set of keys at the handle, another protocol at the preference, the same match under
    // another handle.
    let mut keys = stale.clone();
    keys.flower.as_mut().unwrap().src_mac = None;
    assert_eq!(
        errno(route.add_filter(index, &keys, Existing::Replace, &links)),
        Some(libc::EINVAL)
    );
    let mut protocol = stale.clone();
    protocol.protocol = "0x88b6".parse().unwrap();
    assert_eq!(
        errno(route.add_filter(index, &protocol, Existing::Replace, &links)),
        Some(libc::EINVAL)
    );
    let mut handle = stale.clone();
    handle.handle = 7;
    assert_eq!(
        errno(route.add_filter(index, &handle, Existing::Replace, &links)),
        Some(libc::EEXIST)
    );

    // In hardware alone: no port here has any, for tc as for us.
    let mut hardware = stale.clone();
    hardware.pref = 6;
    hardware.flower.as_mut().unwrap().skip_sw = true;
    let ours = route
        .add_filter(index, &hardware, Existing::Refuse, &links)
        .unwrap_err();
    assert_eq!(ours.errno(), Some(libc::EOPNOTSUPP), "{ours}");
    let line = format!(
        "filter add dev x0 {}",
        RULE.replace("flower", "flower skip_sw")
            .replace("49152", "6")
    );
    let output = Command::new("tc")
        .args(line.split_whitespace())
        .output()
        .unwrap();
    let theirs = String::from_utf8(output.stderr).unwrap();
    assert!(theirs.contains("Operation not supported"), "{theirs}");
}

#[test]
fn what_makes_a_filter_another_one_is_read() {
    in_own_namespace("what_makes_a_filter_another_one_is_read", other_filters);
}

fn other_filters() {
    if !flower("what makes a filter another one") {
        return;
    }
    let mut ports = Ports::new();
    if !ports.passes_all("what makes a filter another one") {
        return;
    }
    let links = ports.links.clone();
    run("tc qdisc add dev x0 clsact");
    run("tc actions add action mirred egress redirect dev x1 index 77");
    let head = "tc filter add dev x0 ingress protocol 0x88b5 pref 49152 handle 49152 flower";
    for (line, wanted) in [
        (
            "action mirred egress redirect dev x1 cookie aabb",
            "cookie aabb",
        ),
        (
            "action mirred egress redirect dev x1 hw_stats disabled",
            "hw_stats 0",
        ),
        ("action mirred egress redirect dev x1 no_percpu", "flags 1"),
        ("action mirred index 77", "shared"),
    ] {
        run(&format!("{head} {line}"));
        let [filter] = &ports.filters(Side::Ingress)[..] else {
            panic!()
        };
        let flower = filter.flower.as_ref().unwrap();
        assert_eq!(flower.actions[0].other, Some(vec![wanted.into()]), "{line}");
        let why = can_write(&filter.as_written()).unwrap_err();
        assert!(why.contains(wanted), "{why}");
        run("tc filter del dev x0 ingress");
    }
    run("tc qdisc del dev x0 clsact");

    // A block that two ports share.
    run("tc qdisc add dev x0 ingress_block 7 clsact");
    run("tc qdisc add dev x1 ingress_block 7 clsact");
    run(&format!(
        "tc filter add block 7 {}",
        RULE.strip_prefix("ingress ").unwrap()
    ));
    let [filter] = &ports.filters(Side::Ingress)[..] else {
        panic!()
    };
    assert_eq!(filter.block, Some(7));
    assert!(can_write(filter).unwrap_err().contains("block 7"));
    let index = ports.index("x0");
    let mut alone = filter.as_written();
    alone.block = None;
    let refused = ports
        .route
        .add_filter(index, &alone, Existing::Refuse, &links);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("block is shared"), "{refused}");
}

/// The situation of a refusal, and its sentence, which has the kernel's words in it.
fn told(attempt: Attempt, result: Result<Option<String>, Error>) -> (Situation, String) {
    let error = result.unwrap_err();
    let line = sentence(&attempt, &error);
    println!("{line}");
    assert!(line.contains(&error.to_string()), "{line}");
    (situation(&attempt, &error), line)
}

fn a_route(dev: &str, gateway: &str, src: &str) -> Route {
    Route {
        destination: "10.10.1.11/32".parse().unwrap(),
        table: 254,
        tos: 0,
        kind: "unicast".into(),
        protocol: 141,
        scope: "global".into(),
        gateway: Some(gateway.parse().unwrap()),
        dev: Some(dev.parse().unwrap()),
        src: Some(src.parse().unwrap()),
        metric: 0,
        multipath: false,
        flags: Vec::new(),
        other: None,
    }
}

#[test]
fn refused_routes_and_neighbours_say_why() {
    in_own_namespace("refused_routes_and_neighbours_say_why", refused_routes);
}

fn refused_routes() {
    let mut ports = Ports::new();
    let mut links = ports.links.clone();
    let gone = Link {
        index: 77,
        name: "gone".parse().unwrap(),
        ..links[0].clone()
    };
    links.push(gone);
    let mut add = |route: &Route| {
        told(
            Attempt::AddRoute(route),
            ports.route.add_route(route, Existing::Refuse, &links),
        )
    };
    let (why, line) = add(&a_route("x0", "10.99.0.1", "10.10.0.10"));
    assert_eq!(why, Situation::NotReady);
    assert!(
        line.contains("gateway 10.99.0.1 is in no subnet of x0"),
        "{line}"
    );
    assert!(line.contains("Nexthop has invalid gateway"), "{line}");
    let (why, line) = add(&a_route("x0", "10.10.0.11", "10.10.0.99"));
    assert_eq!(why, Situation::NotReady);
    assert!(
        line.contains("source 10.10.0.99 is not an address"),
        "{line}"
    );
    let (why, line) = add(&Route {
        gateway: None,
        scope: "link".into(),
        ..a_route("gone", "10.10.0.11", "10.10.0.10")
    });
    assert_eq!(why, Situation::NoDevice);
    assert!(line.contains("gone is not there"), "{line}");
    run("ip route add 10.10.1.11/32 dev x0 src 10.10.0.10");
    let (why, line) = add(&a_route("x0", "10.10.0.11", "10.10.0.10"));
    assert_eq!(why, Situation::InTheWay);
    assert!(
        line.contains("ip route show table 254 10.10.1.11/32"),
        "{line}"
    );

    let route = a_route("x0", "10.10.0.11", "10.10.0.10");
    let (why, line) = told(
        Attempt::DeleteRoute(&route),
        ports.route.delete_route(&route, &links),
    );
    assert_eq!(why, Situation::Gone);
    assert!(
        line.starts_with("cannot remove the route to 10.10.1.11/32: it is not there"),
        "{line}"
    );
    run("ip link set x0 down");
    let (why, line) = told(
        Attempt::AddRoute(&route),
        ports.route.add_route(&route, Existing::Refuse, &links),
    );
    assert_eq!(why, Situation::NotReady);
    assert!(line.contains("x0 is down"), "{line}");

    if !ports.passes_all("refused neighbours") {
        return;
    }
    let address = "10.10.0.77".parse().unwrap();
    let (gone, x0) = ("gone".parse().unwrap(), "x0".parse().unwrap());
    let (why, _) = told(
        Attempt::SetNeighbour(&gone, address),
        ports
            .route
            .set_neighbour(77, address, Mac([2, 0, 0, 0, 0, 7])),
    );
    assert_eq!(why, Situation::NoDevice);
    let index = ports.index("x0");
    let (why, _) = told(
        Attempt::DeleteNeighbour(&x0, address),
        ports.route.delete_neighbour(index, address),
    );
    assert_eq!(why, Situation::Gone);
}

#[test]
fn a_refusal_for_a_want_of_permission_says_so() {
    in_own_namespace("a_refusal_for_a_want_of_permission_says_so", not_permitted);
}

fn not_permitted() {
    let mut ports = Ports::new();
    let route = a_route("x0", "10.10.0.11", "10.10.0.10");
    // The capability of this thread, which the kernel asks for beside that of who opened the socket.
    caps::drop(
        None,
        caps::CapSet::Effective,
        caps::Capability::CAP_NET_ADMIN,
    )
    .unwrap();
    let result = ports
        .route
        .add_route(&route, Existing::Refuse, &ports.links);
    let (why, line) = told(Attempt::AddRoute(&route), result);
    assert_eq!(why, Situation::NotPermitted);
    assert!(
        line.starts_with("cannot add the route to 10.10.1.11/32: only root (CAP_NET_ADMIN)"),
        "{line}"
    );
}

/// The rule of [`RULE`].
fn a_rule() -> Filter {
    let action = |kind: &str, control: &str| Action {
        control: Some(control.into()),
        ..Action::new(kind)
    };
    let edit = |offset, keep: &str, value: &str| Edit {
        header: "eth".into(),
        command: "set".into(),
        offset,
        keep: keep.into(),
        value: value.into(),
        moving: false,
    };
    Filter {
        side: Side::Ingress,
        pref: 49152,
        protocol: "0x88b5".parse().unwrap(),
        chain: 0,
        handle: 49152,
        kind: "flower".into(),
        flower: Some(Flower {
            eth_type: Some("0x88b5".parse().unwrap()),
            src_mac: Some("aa:bb:cc:00:00:01".parse().unwrap()),
            src_mac_mask: None,
            dst_mac: Some("aa:bb:cc:00:00:02".parse().unwrap()),
            dst_mac_mask: None,
            other_keys: Vec::new(),
            skip_sw: false,
            skip_hw: false,
            in_hw: false,
            not_in_hw: false,
            in_hw_count: None,
            actions: vec![
                Action {
                    edits: vec![edit(12, "0000ffff", "08000000")],
                    ..action("pedit", "pipe")
                },
                Action {
                    edits: vec![
                        edit(0, "00000000", "aabbcc00"),
                        edit(4, "0000ffff", "00030000"),
                    ],
                    ..action("pedit", "pipe")
                },
                Action {
                    mirred: Some(Mirred {
                        way: "egress redirect".into(),
                        dev: Some("x1".parse().unwrap()),
                    }),
                    ..action("mirred", "stolen")
                },
            ],
        }),
        block: None,
    }
}

/// On a kernel without one of the modules, which one is missing is what is said.
#[test]
fn a_refused_rule_says_why() {
    in_own_namespace("a_refused_rule_says_why", refused_rules);
}

fn refused_rules() {
    let mut ports = Ports::new();
    if !ports.passes_all("refused rules") {
        return;
    }
    let links = ports.links.clone();
    let (index, x0) = (ports.index("x0"), "x0".parse().unwrap());
    let rule = a_rule();
    let deleted = told(Attempt::DeleteClsact(&x0), ports.route.delete_clsact(index));
    assert_eq!(deleted.0, Situation::Gone);
    if let Err(error) = ports.route.add_clsact(index) {
        let line = sentence(&Attempt::AddClsact(&x0), &error);
        assert!(line.contains("no module sch_ingress"), "{line}");
        not_tested("refused rules", &line);
        return;
    }
    let clsact = told(Attempt::AddClsact(&x0), ports.route.add_clsact(index));
    assert_eq!(clsact.0, Situation::InTheWay);
    ports.route.delete_clsact(index).unwrap();
    let deleted = told(Attempt::DeleteClsact(&x0), ports.route.delete_clsact(index));
    assert_eq!(deleted.0, Situation::Gone);
    run("tc qdisc add dev x0 ingress");
    let (why, _) = told(Attempt::AddClsact(&x0), ports.route.add_clsact(index));
    assert_eq!(why, Situation::InTheWay);
    let (why, line) = told(Attempt::DeleteClsact(&x0), ports.route.delete_clsact(index));
    assert_eq!(why, Situation::InTheWay, "{line}");
    run("tc qdisc del dev x0 ingress");

    let mut add = |filter: &Filter, existing| {
        let result = ports.route.add_filter(index, filter, existing, &links);
        told(Attempt::AddFilter(&x0, filter), result)
    };
    let (why, line) = add(&rule, Existing::Refuse);
    assert_eq!(why, Situation::NothingToStandOn);
    assert!(line.contains("x0 has no clsact"), "{line}");
    let deleted = told(
        Attempt::DeleteFilter(&x0, &rule),
        ports.route.delete_filter(index, &rule),
    );
    assert_eq!(deleted.0, Situation::Gone);

    ports.route.add_clsact(index).unwrap();
    if let Err(error) = ports
        .route
        .add_filter(index, &rule, Existing::Refuse, &links)
    {
        let attempt = Attempt::AddFilter(&x0, &rule);
        let line = sentence(&attempt, &error);
        assert_eq!(situation(&attempt, &error), Situation::NoModule, "{line}");
        assert!(line.contains("this kernel has no module"), "{line}");
        not_tested("refused rules beyond a missing module", &line);
        return;
    }
    let mut add = |change: &dyn Fn(&mut Filter), existing| {
        let mut filter = rule.clone();
        change(&mut filter);
        let result = ports.route.add_filter(index, &filter, existing, &links);
        told(Attempt::AddFilter(&x0, &filter), result)
    };
    fn flower(filter: &mut Filter) -> &mut Flower {
        filter.flower.as_mut().unwrap()
    }
    use Existing::*;
    for ((why, line), situation, wanted) in [
        (
            add(&|_| {}, Refuse),
            Situation::InTheWay,
            "handle 0xc000 is there",
        ),
        (
            add(&|f| f.handle = 7, Refuse),
            Situation::InTheWay,
            "matches the same",
        ),
        (
            add(&|f| flower(f).src_mac = None, Replace),
            Situation::InTheWay,
            "other keys",
        ),
        (
            add(&|f| f.protocol = "0x88b6".parse().unwrap(), Replace),
            Situation::InTheWay,
            "another protocol than 0x88b6",
        ),
        (
            add(
                &|f| {
                    f.pref = 6;
                    flower(f).skip_sw = true;
                },
                Refuse,
            ),
            Situation::NotOffloaded,
            "hw-tc-offload",
        ),
    ] {
        assert_eq!(why, situation, "{line}");
        assert!(line.contains(wanted), "{line}");
    }
    run("tc filter add dev x0 ingress protocol 0x88b5 pref 8 u32 match u32 0 0 action pass");
    let (why, line) = add(&|f| f.pref = 8, Refuse);
    assert_eq!(why, Situation::InTheWay);
    assert!(
        line.contains("preference 8 belongs to another classifier"),
        "{line}"
    );

    let mut remove = |change: &dyn Fn(&mut Filter)| {
        let mut filter = rule.clone();
        change(&mut filter);
        let result = ports.route.delete_filter(index, &filter);
        told(Attempt::DeleteFilter(&x0, &filter), result)
    };
    assert_eq!(remove(&|f| f.pref = 8).0, Situation::InTheWay);
    assert_eq!(remove(&|f| f.pref = 9).0, Situation::Gone);
    assert_eq!(remove(&|f| f.handle = 9).0, Situation::Gone);
    assert_eq!(remove(&|f| f.chain = 9).0, Situation::Gone);

    let mut links = links.clone();
    for link in &mut links {
        if link.name.as_str() == "x1" {
            link.index = 77;
        }
    }
    let result = ports
        .route
        .add_filter(index, &rule, Existing::Replace, &links);
    let (why, line) = told(Attempt::AddFilter(&x0, &rule), result);
    assert_eq!(why, Situation::NoDevice);
    assert!(line.contains("x1, which it redirects to"), "{line}");
    let result = ports.route.delete_filter(77, &rule);
    let (why, _) = told(Attempt::DeleteFilter(&x0, &rule), result);
    assert_eq!(why, Situation::NoDevice);
}
