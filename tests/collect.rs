//! Collecting facts from the kernel that the tests run on, and the same tables as `iproute2` shows
//! them in a network namespace of our own.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/namespace.rs"]
mod namespace;

use hairpin_mesh::collect::{Options, collect};
use hairpin_mesh::facts::{Fact, Inventory, Side};
use hairpin_mesh::json;
use hairpin_mesh::kernel::ethtool::{Ethtool, Feature, HW_TC_OFFLOAD};
use hairpin_mesh::kernel::netlink::Error;
use hairpin_mesh::kernel::route::Rtnetlink;
use hairpin_mesh::kernel::statistics::statistics;
use hairpin_mesh::node::read::Sources;
use namespace::{in_own_namespace, run};
use serde_json::Value;

#[test]
fn this_machine_has_a_valid_inventory_with_honest_holes() {
    let inventory = collect(&Options {
        host: Some("here".parse().unwrap()),
        ..Options::default()
    })
    .unwrap();
    let text = json::pretty(&inventory);
    assert_eq!(
        Inventory::from_json("here.json", text.as_bytes()).unwrap(),
        inventory
    );
    assert_eq!(inventory.host.as_str(), "here");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(inventory.node.kernel, Fact::Known(kernel.trim().into()));
    // A machine without the fabric's NIC says so; one with it has ports.
    let holes: Vec<&str> = inventory
        .left_out
        .iter()
        .map(|hole| hole.what.as_str())
        .collect();
    assert_eq!(
        inventory.ports.is_empty(),
        holes.contains(&"fabric functions"),
        "{holes:?}"
    );
}

#[test]
fn the_host_is_called_by_its_own_name_when_none_is_given() {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let inventory = collect(&Options::default()).unwrap();
    assert!(
        name.trim().starts_with(inventory.host.as_str()),
        "{name} {}",
        inventory.host
    );
}

#[test]
fn a_device_that_is_not_there_is_left_out_by_name() {
    let options = Options {
        host: None,
        devices: vec!["no-such-device".parse().unwrap()],
        ..Options::default()
    };
    let inventory = collect(&options).unwrap();
    assert!(inventory.ports.is_empty());
    assert!(
        inventory
            .left_out
            .iter()
            .any(|hole| hole.what.as_str() == "no-such-device"),
        "{:?}",
        inventory.left_out
    );
}

fn shown(line: &str) -> Vec<Value> {
    let text = run(line);
    if text.trim().is_empty() {
        Vec::new()
    } else {
        serde_json::from_str(&text).unwrap()
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[test]
fn devices_are_known_by_what_they_send_through_and_what_they_are_part_of() {
    let test = "devices_are_known_by_what_they_send_through_and_what_they_are_part_of";
    in_own_namespace(test, || {
        for line in [
            "ip link add port0 type veth peer name port1",
            "ip link add link port0 name mv0 type macvlan mode bridge",
            "ip link add name br0 type bridge",
            "ip link set dev mv0 master br0",
        ] {
            run(line);
        }
        // A peer in another namespace has a number of that namespace.
        let mut other = std::process::Command::new("unshare")
            .args(["--net", "sleep", "60"])
            .spawn()
            .unwrap();
        let pid = other.id();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        while std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|ns| ns == own) {
            std::thread::yield_now();
        }
        run(&format!(
            "ip link add far0 type veth peer name far1 netns {pid}"
        ));
        let devices = Sources::default().devices();
        let devices = devices.known().unwrap();
        let named = |index: Option<u32>| {
            let mut of = devices.iter().filter(|d| Some(d.index) == index);
            of.next().map(|d| d.name.as_str())
        };
        let found = |name: &str| {
            let device = devices.iter().find(|d| d.name.as_str() == name).unwrap();
            (named(device.lower), named(device.master))
        };
        assert_eq!(found("mv0"), (Some("port0"), Some("br0")));
        assert_eq!(found("br0"), (None, None));
        assert_eq!(found("port0"), (Some("port1"), None));
        let far = devices.iter().find(|d| d.name.as_str() == "far0").unwrap();
        assert_eq!((far.lower, far.master), (None, None));
        other.kill().unwrap();
        other.wait().unwrap();
    });
}

#[test]
fn tables_read_as_iproute2_shows_them() {
    in_own_namespace("tables_read_as_iproute2_shows_them", tables);
}

fn tables() {
    for line in [
        "ip link set lo up",
        "ip link add x0 type veth peer name x1",
        "ip link set x0 mtu 9000 up",
        "ip link set x1 mtu 9000 up",
        "ip link add d0 type veth peer name d1",
        "ip addr add 10.10.0.10/24 dev x0",
        "ip addr add 10.10.7.1/31 dev x0",
        "ip addr add 10.0.0.1 peer 10.0.0.2/32 dev d0",
        "ip link set d1 up",
        "ip link set d0 up",
        "ip route add 10.10.1.11/32 via 10.10.0.11 dev x0 src 10.10.0.10 proto 141",
        "ip route add default via 10.10.0.254 dev x0 metric 100",
        "ip route add 10.97.0.0/16 via inet6 fe80::1 dev x0",
        "ip route add blackhole 10.98.0.0/16",
        "ip route add 10.99.0.0/16 nexthop via 10.10.0.20 dev x0 nexthop dev d0 weight 2",
        "ip route add 10.96.0.0/16 dev x0 table 500 tos 8 metric 7",
        "ip neigh add 10.10.0.11 lladdr 02:00:00:00:00:77 dev x0 nud permanent",
        "ip neigh add fe80::77 lladdr 02:00:00:00:00:78 dev x0 nud stale",
        "tc qdisc add dev x0 clsact",
        "tc qdisc add dev x1 ingress",
    ] {
        run(line);
    }
    // One device has so many names that a datagram of the size that the kernel begins with does not hold it.
    for number in 0..200 {
        run(&format!(
            "ip link property add dev d1 altname {number:0>120}"
        ));
    }
    let mut route = Rtnetlink::open().unwrap();
    // A link that was just set up may still become "up" while it is read: only what stayed the same
    // between two reads of ours is compared.
    let (links, theirs) = loop {
        let before = route.links().unwrap();
        let theirs = shown("ip -j link");
        if route.links().unwrap() == before {
            break (before, theirs);
        }
    };
    assert_eq!(links.left_out, Vec::<String>::new());
    let links = links.rows;
    let ours: Vec<_> = links
        .iter()
        .map(|l| {
            let mac = l.mac.map(|mac| mac.to_string());
            (
                u64::from(l.index),
                l.name.to_string(),
                mac,
                l.mtu.map(u64::from),
                l.state.clone(),
            )
        })
        .collect();
    let theirs: Vec<_> = theirs
        .iter()
        .map(|l| {
            let state = text(&l["operstate"]).map(|s| s.to_ascii_lowercase());
            (
                l["ifindex"].as_u64().unwrap(),
                text(&l["ifname"]).unwrap(),
                text(&l["address"]),
                l["mtu"].as_u64(),
                state,
            )
        })
        .collect();
    assert_eq!(ours, theirs);
    let index = |name: &str| {
        links
            .iter()
            .find(|l| l.name.as_str() == name)
            .unwrap()
            .index
    };

    let addresses = route.addresses().unwrap().rows;
    for name in ["x0", "x1", "d0"] {
        let ours: Vec<String> = addresses
            .iter()
            .filter(|(i, _)| *i == index(name))
            .map(|(_, cidr)| cidr.to_string())
            .collect();
        let theirs: Vec<String> = shown(&format!("ip -j -4 addr show dev {name}"))
            .iter()
            .flat_map(|l| l["addr_info"].as_array().cloned().unwrap_or_default())
            .map(|a| format!("{}/{}", a["local"].as_str().unwrap(), a["prefixlen"]))
            .collect();
        assert_eq!(ours, theirs, "{name}");
    }

    let routes = route.routes(&links).unwrap();
    assert_eq!(routes.left_out, Vec::<String>::new());
    let mut ours: Vec<_> = routes
        .rows
        .iter()
        .map(|r| {
            let gateway = r.gateway.map(|g| g.to_string());
            let dev = r.dev.as_ref().map(|d| d.to_string());
            let src = r.src.map(|s| s.to_string());
            let flags: Vec<String> = r.flags.iter().map(|f| f.to_string()).collect();
            let numbers = (r.table, r.protocol.to_string(), r.metric, r.tos);
            (
                r.destination.to_string(),
                r.kind.to_string(),
                numbers,
                gateway,
                dev,
                src,
                flags,
            )
        })
        .collect();
    let mut theirs = Vec::new();
    for r in shown("ip -j -N -d -4 route show table all") {
        let number = |key: &str, none: u32| match &r[key] {
            Value::Null => none,
            value => value
                .as_str()
                .map_or_else(|| value.as_u64().unwrap() as u32, |s| s.parse().unwrap()),
        };
        // RT_TABLE_LOCAL is left out on purpose.
        if number("table", 254) == 255 {
            continue;
        }
        let destination = match r["dst"].as_str().unwrap() {
            "default" => "0.0.0.0/0".to_owned(),
            d if d.contains('/') => d.to_owned(),
            d => format!("{d}/32"),
        };
        // iproute2 writes TOS in hexadecimal.
        let tos = r["tos"].as_str().map_or(0, |t| {
            u8::from_str_radix(t.trim_start_matches("0x"), 16).unwrap()
        });
        let kind = match r["type"].as_str().unwrap() {
            "1" => "unicast",
            "6" => "blackhole",
            other => other,
        };
        let numbers = (
            number("table", 254),
            text(&r["protocol"]).unwrap(),
            number("metric", 0),
            tos,
        );
        for hop in r["nexthops"].as_array().unwrap_or(&vec![r.clone()]) {
            let gateway = text(&hop["gateway"]).or_else(|| text(&hop["via"]["host"]));
            let flags = hop["flags"]
                .as_array()
                .unwrap()
                .iter()
                .map(|f| text(f).unwrap())
                .collect();
            let src = text(&r["prefsrc"]);
            theirs.push((
                destination.clone(),
                kind.to_owned(),
                numbers.clone(),
                gateway,
                text(&hop["dev"]),
                src,
                flags,
            ));
        }
    }
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 10);

    let mut ours: Vec<_> = route
        .neighbours()
        .unwrap()
        .rows
        .iter()
        .filter(|(i, _)| *i == index("x0"))
        .map(|(_, n)| {
            (
                n.address.to_string(),
                n.mac.map(|m| m.to_string()),
                n.state.to_string(),
            )
        })
        .collect();
    let mut theirs: Vec<_> = shown("ip -j neigh show dev x0")
        .iter()
        .map(|n| {
            (
                text(&n["dst"]).unwrap(),
                text(&n["lladdr"]),
                n["state"][0].as_str().unwrap().to_ascii_lowercase(),
            )
        })
        .collect();
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 2);

    let qdiscs = match route.qdiscs() {
        Ok(listing) => listing.rows,
        // qemu-user does not pass tc's messages: it refuses to send them. A kernel answers.
        Err(Error::Io(error)) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            common::not_tested(
                "tc tables as iproute2 shows them",
                "no tc over this netlink",
            );
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for name in ["x0", "x1"] {
        let ours: Vec<_> = qdiscs
            .iter()
            .filter(|(i, _)| *i == index(name))
            .map(|(_, q)| {
                (
                    q.kind.to_string(),
                    q.handle.to_string(),
                    q.parent.to_string(),
                )
            })
            .collect();
        let theirs: Vec<_> = shown(&format!("tc -j qdisc show dev {name}"))
            .iter()
            .map(|q| {
                let parent = if q["root"] == true {
                    "root".into()
                } else {
                    text(&q["parent"]).unwrap()
                };
                (
                    text(&q["kind"]).unwrap(),
                    text(&q["handle"]).unwrap(),
                    parent,
                )
            })
            .collect();
        assert_eq!(ours, theirs, "{name}");
        assert_eq!(ours.len(), 2, "{name}");
    }

    // No filters there; a veth has no DCB.
    assert_eq!(
        route
            .filters(index("x0"), Side::Ingress, &links)
            .unwrap()
            .rows,
        []
    );
    assert_eq!(
        route
            .filters(index("d0"), Side::Egress, &links)
            .unwrap()
            .rows,
        []
    );
    let refused = route.trust(&"x0".parse().unwrap()).unwrap_err();
    assert!(
        matches!(&refused, Error::Kernel(r) if r.errno == libc::EOPNOTSUPP),
        "{refused}"
    );

    let inventory = collect(&Options::default()).unwrap();
    assert_eq!(
        inventory.management_netdev,
        Fact::Known(Some("x0".parse().unwrap()))
    );
    assert_eq!(inventory.node.routes, Fact::Known(routes.rows));
}

#[test]
fn offload_features_read_as_the_kernel_has_them() {
    in_own_namespace("offload_features_read_as_the_kernel_has_them", features);
}

fn features() {
    run("ip link add x0 type veth peer name x1");
    let mut ethtool = match Ethtool::open() {
        Ok(ethtool) => ethtool,
        // qemu-user passes rtnetlink only.
        Err(Error::Open { source, .. }) if source.raw_os_error() == Some(libc::EPROTONOSUPPORT) => {
            common::not_tested("offload features of the kernel", "no generic netlink here");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut read = |device: &str, name| ethtool.feature(&device.parse().unwrap(), name);
    // Loopback cannot be offloaded, and its checksums are always on (net/core/loopback).
    assert_eq!(
        read("lo", HW_TC_OFFLOAD).unwrap(),
        Feature {
            active: false,
            fixed: true
        }
    );
    assert_eq!(
        read("lo", "loopback").unwrap(),
        Feature {
            active: true,
            fixed: true
        }
    );
    assert_eq!(
        read("x0", "tx-nocache-copy").unwrap(),
        Feature {
            active: false,
            fixed: false
        }
    );
    let refused = read("none", HW_TC_OFFLOAD).unwrap_err();
    assert_eq!(refused.errno(), Some(libc::ENODEV));
    assert!(
        refused.to_string().contains("no device matches name"),
        "{refused}"
    );
}

#[test]
fn statistics_of_a_driver_are_its_own() {
    in_own_namespace("statistics_of_a_driver_are_its_own", driver_statistics);
}

fn driver_statistics() {
    run("ip link add x0 type veth peer name x1");
    let index =
        |device: &str| shown(&format!("ip -j link show dev {device}"))[0]["ifindex"].as_u64();
    let peer = |device: &str| {
        let rows = statistics(&device.parse().unwrap())?;
        // Names are told whole, in the driver's order, each once.
        let mut names: Vec<&String> = rows.iter().map(|(name, _)| name).collect();
        assert_eq!(
            names.first().map(|name| name.as_str()),
            Some("peer_ifindex")
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), rows.len());
        std::io::Result::Ok(Some(rows[0].1))
    };
    match peer("x0") {
        Ok(found) => assert_eq!(found, index("x1")),
        // qemu-user does not know the call.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::ENOSYS)) => {
            common::not_tested("statistics of a driver", "no SIOCETHTOOL here");
            return;
        }
        Err(error) => panic!("{error}"),
    }
    assert_eq!(peer("x1").unwrap(), index("x0"));
}
