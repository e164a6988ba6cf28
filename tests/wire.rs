//! ARP probes on real wires: pairs of virtual Ethernet devices between two network namespaces.

#![allow(clippy::unwrap_used, clippy::panic)] // in helpers of tests too

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use hairpin_mesh::kernel::packet::ask;
use hairpin_mesh::names::Mac;

mod common;
#[path = "common/namespace.rs"]
mod namespace;

use namespace::{in_own_namespace, run};

/// A process in another network namespace.
struct There(Child);

impl There {
    fn new() -> There {
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let child = Command::new("unshare")
            .args(["--net", "sleep", "60"])
            .spawn()
            .unwrap();
        let theirs = format!("/proc/{}/ns/net", child.id());
        let begin = Instant::now();
        while std::fs::read_link(&theirs).is_ok_and(|ns| ns == own) {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "no other namespace"
            );
            std::thread::yield_now();
        }
        There(child)
    }

    fn run(&self, line: &str) -> String {
        run(&format!(
            "nsenter --net=/proc/{}/ns/net {line}",
            self.0.id()
        ))
    }
}

impl Drop for There {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn index(dev: &str) -> u32 {
    std::fs::read_to_string(format!("/sys/class/net/{dev}/ifindex")).map_or_else(
        |_| {
            // sysfs may show another namespace.
            let text = run(&format!("ip -o link show dev {dev}"));
            text.split(':').next().unwrap().trim().parse().unwrap()
        },
        |text| text.trim().parse().unwrap(),
    )
}

#[test]
fn whose_mac_answers_tells_where_a_cable_leads_before_any_subnet_agrees() {
    in_own_namespace(
        "whose_mac_answers_tells_where_a_cable_leads_before_any_subnet_agrees",
        || {
            let there = There::new();
            let pid = there.0.id();
            let mac = |n: u8| Mac([2, 0, 0, 0, 0, n]);
            for n in [1u8, 2] {
                run(&format!(
                    "ip link add a{n} address {} type veth peer name b{n} address {}",
                    mac(n),
                    mac(0x10 + n)
                ));
                run(&format!("ip link set b{n} netns {pid}"));
                run(&format!("ip link set a{n} up"));
                there.run(&format!("ip link set b{n} up"));
            }
            // A device without another end that answers.
            run(&format!(
                "ip link add a3 address {} type veth peer name c3",
                mac(3)
            ));
            // Addresses of no common subnet; none at all on our side, and one that is on no cable.
            there.run("ip addr add 10.9.0.1/30 dev b1");
            there.run("ip addr add 192.168.5.7/24 dev b2");
            there.run("ip link set lo up");
            there.run("ip addr add 172.16.0.9/32 dev lo");
            let address = |text: &str| text.parse::<Ipv4Addr>().unwrap();
            let asked = ["10.9.0.1", "192.168.5.7", "172.16.0.9", "10.99.99.99"].map(address);
            let ports: Vec<(u32, Mac)> = (1..=3u8).map(|n| (text_index(n), mac(n))).collect();
            let answers = ask(&ports, &asked, Duration::from_secs(1));
            // Any address of the host there is answered for on each cable, by the port at its end.
            let all = |n: u8| -> BTreeSet<(Ipv4Addr, Mac)> {
                asked[..3]
                    .iter()
                    .map(|address| (*address, mac(0x10 + n)))
                    .collect()
            };
            assert_eq!(answers[0], Ok(all(1)));
            assert_eq!(answers[1], Ok(all(2)));
            assert_eq!(answers[2], Ok(BTreeSet::new()));
            // A device that is not there is an error of its own port alone.
            let answers = ask(
                &[(999_999, mac(9)), ports[0]],
                &asked,
                Duration::from_millis(600),
            );
            assert!(
                answers[0]
                    .as_ref()
                    .is_err_and(|why| why.contains("packet socket")),
                "{answers:?}"
            );
            assert_eq!(answers[1], Ok(all(1)));
        },
    );
}

fn text_index(n: u8) -> u32 {
    index(&format!("a{n}"))
}
