//! `netplan`: the second plane's files as the real program prints them.

#![allow(clippy::unwrap_used, clippy::panic)] // in helpers of tests too

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hairpin_mesh::doctor::netplan;
use hairpin_mesh::facts::{Fact, GidEntry, Gids, Inventory, NetplanFile};
use hairpin_mesh::names::{Cidr, Gid, HostName, Text};
use hairpin_mesh::plan::{Options, Plan, plan};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("plans")
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hairpin-mesh"))
        .current_dir(folder)
        .arg("netplan")
        .args(arguments)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn inventories(case: &str) -> (Vec<HostName>, Vec<Inventory>) {
    let read = |host: &str| {
        let bytes = std::fs::read(
            cases()
                .join(case)
                .join("inventory")
                .join(format!("{host}.json")),
        )
        .unwrap();
        Inventory::from_json(host, &bytes).unwrap()
    };
    let hosts = ["spark1", "spark2", "spark3", "spark4"];
    (
        hosts.iter().map(|host| host.parse().unwrap()).collect(),
        hosts.iter().map(|host| read(host)).collect(),
    )
}

/// The facts without the second plane's addresses.
fn bare(inventories: &mut [Inventory]) {
    for port in inventories
        .iter_mut()
        .flat_map(|inventory| &mut inventory.ports)
    {
        if port.place().unwrap().pci_domain != 0 {
            port.ipv4 = Fact::Known(Vec::new());
            port.gids = Gids::Table(Vec::new());
        }
    }
}

const SPARK1: &str = "\
# /etc/netplan/41-sparkring-plane2.yaml of spark1: the second plane of the switchless ring.
# Review, then install on this node:
#   sudo install -m 600 THIS /etc/netplan/41-sparkring-plane2.yaml && sudo netplan try
network:
  version: 2
  renderer: NetworkManager
  ethernets:
    enP2p1s0f0np0:
      optional: true
      dhcp4: false
      dhcp6: false
      mtu: 9000
      addresses:
        - 10.20.0.10/24
      routes:
        - to: 10.20.1.0/24
          via: 10.20.0.11
    enP2p1s0f1np1:
      optional: true
      dhcp4: false
      dhcp6: false
      mtu: 9000
      addresses:
        - 10.20.3.11/24
      routes:
        - to: 10.20.2.0/24
          via: 10.20.3.10
";

#[test]
fn the_file_has_the_planes_addresses_and_a_route_to_the_two_subnets_that_the_node_is_not_on() {
    let case = cases().join("tp-along-ring");
    assert_eq!(
        text(&run(&case, &["--inventory", "inventory", "spark1"])),
        SPARK1
    );
    let both = text(&run(
        &case,
        &["--inventory", "inventory", "spark1", "spark3"],
    ));
    assert!(
        both.starts_with(SPARK1)
            && both.contains("---\n# /etc/netplan/41-sparkring-plane2.yaml of spark3"),
        "{both}"
    );
    let json: serde_json::Value = serde_json::from_slice(
        &run(&case, &["--inventory", "inventory", "--json", "spark1"]).stdout,
    )
    .unwrap();
    assert_eq!(json["hosts"][0]["text"], SPARK1);
    assert_eq!(json["schema"], "hairpin-mesh.netplan-report/v1");
}

#[test]
fn a_plan_and_the_facts_that_it_was_made_from_give_the_same_file() {
    for case in [
        "tp-along-ring",
        "tp-against-ring",
        "tp-interleaved",
        "swapped-ports-on-two-nodes",
        "slash-30-subnets",
        "slash-31-subnets",
    ] {
        let (hosts, inventories) = inventories(case);
        let bytes = std::fs::read(cases().join(case).join("ring-mesh/plan.json")).unwrap();
        let by_plan = netplan::of_plan(&Plan::from_json("plan.json", &bytes).unwrap()).unwrap();
        let by_facts = netplan::of_facts(&hosts, &inventories).unwrap();
        for plane in &by_plan {
            let same = by_facts
                .iter()
                .find(|other| other.host == plane.host)
                .unwrap();
            assert_eq!(netplan::file(plane), netplan::file(same), "{case}");
        }
    }
}

#[test]
fn a_plane_that_follows_the_first_one_makes_a_ring_that_can_be_planned() {
    for case in [
        "own-inventories-queue-applied",
        "slash-30-subnets",
        "slash-31-subnets",
        "swapped-ports-on-two-nodes",
    ] {
        let (hosts, mut inventories) = inventories(case);
        bare(&mut inventories);
        let planes = netplan::of_facts(&hosts, &inventories).unwrap();
        for (inventory, plane) in inventories.iter_mut().zip(&planes) {
            assert!(plane.proposed);
            assert!(netplan::file(plane).contains("follow the first plane's"));
            for own in &plane.ports {
                let port = inventory
                    .ports
                    .iter_mut()
                    .find(|port| port.netdev == own.netdev)
                    .unwrap();
                port.ipv4 = Fact::Known(vec![own.address]);
                port.mtu = 9000;
                port.gids = Gids::Table(vec![GidEntry {
                    index: 3,
                    gid: Gid::ipv4_mapped(own.address.address),
                    kind: "RoCE v2".into(),
                    netdev: Some(own.netdev.clone()),
                }]);
                assert_eq!(own.routes.len(), 1);
            }
        }
        let planned = plan(&hosts, &inventories, &Options::default());
        assert!(planned.plan.is_some(), "{case}: {:?}", planned.findings);
    }
}

#[test]
fn a_proposed_plane_keeps_off_every_network_that_a_host_has() {
    let (hosts, mut inventories) = inventories("own-inventories-queue-applied");
    bare(&mut inventories);
    let before = netplan::of_facts(&hosts, &inventories).unwrap();
    assert_eq!(before[0].ports[0].address.to_string(), "10.20.0.10/24");
    // A wider network, whose first address is in none of the plane's.
    let taken: Cidr = "10.16.0.0/13".parse().unwrap();
    let route = serde_json::json!({"destination": taken.to_string(), "table": 254, "tos": 0, "kind": "unicast", "protocol": 4,
        "scope": "global", "gateway": "192.168.77.1", "dev": "enP7s7", "src": null, "metric": 100, "multipath": false, "flags": []});
    let mut document: serde_json::Value =
        serde_json::from_str(&hairpin_mesh::json::pretty(&inventories[2])).unwrap();
    // A default route is no network.
    let mut default = route.clone();
    default["destination"] = "0.0.0.0/0".into();
    document["routes"] = serde_json::json!([route, default]);
    inventories[2] = Inventory::from_json("x", document.to_string().as_bytes()).unwrap();
    let after = netplan::of_facts(&hosts, &inventories).unwrap();
    assert_eq!(after[0].ports[0].address.to_string(), "10.30.0.10/24");
}

#[test]
fn a_host_that_lacks_its_share_of_the_plane_gets_the_other_ends_of_its_cables() {
    let (hosts, mut inventories) = inventories("own-inventories-queue-applied");
    let whole = netplan::of_facts(&hosts, &inventories).unwrap();
    bare(&mut inventories[1..2]);
    let filled = netplan::of_facts(&hosts, &inventories).unwrap();
    let proposed: Vec<bool> = filled.iter().map(|plane| plane.proposed).collect();
    assert_eq!(proposed, [false, true, false, false]);
    let ports: Vec<_> = filled.iter().map(|plane| &plane.ports).collect();
    assert_eq!(
        ports,
        whole.iter().map(|plane| &plane.ports).collect::<Vec<_>>()
    );
}

#[test]
fn a_cable_of_which_neither_end_has_an_address_gets_the_subnet_beside_the_others() {
    let (hosts, mut inventories) = inventories("own-inventories-queue-applied");
    let whole = netplan::of_facts(&hosts, &inventories).unwrap();
    bare(&mut inventories[1..3]);
    let filled = netplan::of_facts(&hosts, &inventories).unwrap();
    for (plane, filled) in whole.iter().zip(&filled) {
        assert_eq!(plane.ports, filled.ports, "{}", plane.host);
    }
}

#[test]
fn an_address_that_the_cables_other_end_has_is_not_given_twice() {
    let (hosts, mut inventories) = inventories("own-inventories-queue-applied");
    bare(&mut inventories[1..2]);
    // On the first plane spark2 has 11 here.
    let mut ports = inventories[0].ports.iter_mut();
    let far = ports.find(|port| port.netdev.as_str() == "enP2p1s0f0np0");
    far.unwrap().ipv4 = Fact::Known(vec!["10.20.0.11/24".parse().unwrap()]);
    let planes = netplan::of_facts(&hosts, &inventories).unwrap();
    let own: Vec<String> = planes[1]
        .ports
        .iter()
        .map(|port| port.address.to_string())
        .collect();
    assert_eq!(own, ["10.20.1.10/24", "10.20.0.1/24"]);
}

#[test]
fn no_plane_is_proposed_where_no_octet_is_whole_of_the_network_part() {
    let (hosts, mut inventories) = inventories("own-inventories-queue-applied");
    bare(&mut inventories);
    for port in inventories.iter_mut().flat_map(|node| &mut node.ports) {
        if let Some(own) = port.ipv4.known().and_then(|all| all.first().copied()) {
            let [_, _, cable, end] = own.address.octets();
            let wide = format!("10.{}.0.{end}/12", 16 * (cable + 1));
            port.ipv4 = Fact::Known(vec![wide.parse().unwrap()]);
        }
    }
    let trouble = netplan::of_facts(&hosts, &inventories).unwrap_err();
    assert!(
        trouble[0].contains("no address that is free"),
        "{trouble:?}"
    );
}

#[test]
fn a_plan_without_subnets_is_refused() {
    let bytes =
        std::fs::read(cases().join("topology/adjacent-gateway/ring-mesh/plan.json")).unwrap();
    let trouble = netplan::of_plan(&Plan::from_json("plan.json", &bytes).unwrap()).unwrap_err();
    assert!(trouble[0].contains("without their subnets"), "{trouble:?}");
}

#[test]
fn an_unknown_cable_or_host_is_refused() {
    let output = run(
        &cases().join("refused/prefix-differs-on-a-cable"),
        &["--inventory", "inventory", "spark1"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("not known"),
        "{output:?}"
    );
    let output = run(
        &cases().join("tp-along-ring"),
        &["--inventory", "inventory", "spark9"],
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_socket_that_lacks_a_function_is_told_by_its_number_and_what_is_left_of_it() {
    for (gone, number, left) in [
        ("enP2p1s0f0np0", 0, "enp1s0f0np0"),
        ("enP2p1s0f1np1", 1, "enp1s0f1np1"),
        ("enp1s0f0np0", 0, "enP2p1s0f0np0"),
    ] {
        let (hosts, mut inventories) = inventories("tp-along-ring");
        inventories[1]
            .ports
            .retain(|port| port.netdev.as_str() != gone);
        let told = netplan::of_facts(&hosts, &inventories).unwrap_err();
        let wanted = format!(
            "spark2: socket {number} has {left} alone of its functions, one of each domain wanted"
        );
        assert_eq!(told, [wanted]);
    }
    let (hosts, mut inventories) = inventories("tp-along-ring");
    inventories[1].ports.retain(|port| {
        let name = port.netdev.as_str();
        !name.ends_with("f0np0")
    });
    let told = netplan::of_facts(&hosts, &inventories).unwrap_err();
    let wanted = "spark2: socket 0 has none of its functions, one of each domain wanted";
    assert_eq!(told, [wanted]);
}

#[test]
fn facts_of_fewer_hosts_than_a_ring_has_are_refused_as_that() {
    let (hosts, inventories) = inventories("tp-along-ring");
    let told = netplan::of_facts(&hosts[1..], &inventories[1..]).unwrap_err();
    assert_eq!(
        told,
        ["the facts of 3 hosts are here, those of all hosts of a ring wanted"]
    );
    let folder = tempfile::tempdir().unwrap();
    for host in &hosts[1..] {
        let name = format!("{host}.json");
        let from = cases().join("tp-along-ring/inventory").join(&name);
        std::fs::copy(from, folder.path().join(&name)).unwrap();
    }
    let output = run(folder.path(), &["--inventory", ".", "spark1"]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        told,
        "FAIL: .: has no facts of spark1, spark1.json wanted\n"
    );
}

#[test]
fn removal_names_the_copies_of_the_network_manager_and_flushes_and_nothing_is_written() {
    let case = cases().join("tp-along-ring");
    let text = text(&run(
        &case,
        &["--inventory", "inventory", "--remove", "spark1"],
    ));
    for step in [
        "rm -f /etc/netplan/41-sparkring-plane2.yaml",
        "/etc/netplan/90-NM-*.yaml",
        "netplan apply",
        "ip -4 address flush dev enP2p1s0f0np0",
        "ip -4 address flush dev enP2p1s0f1np1",
        "connection delete",
        "netplan generate",
    ] {
        assert!(text.contains(step), "{step}: {text}");
    }
    // A shell takes it.
    let check = Command::new("sh")
        .args(["-n", "-c", &text])
        .output()
        .unwrap();
    assert!(check.status.success(), "{check:?}");
    assert!(!Path::new("/etc/netplan/41-sparkring-plane2.yaml").exists());
}

#[test]
fn removal_takes_the_plane_out_of_the_file_that_it_is_in() {
    const OURS: &str = "rm -f /etc/netplan/41-sparkring-plane2.yaml\n";
    const BOTH: [&str; 2] = ["enP2p1s0f0np0", "enP2p1s0f1np1"];
    let steps = |files: &[(&str, &[&str])]| {
        let (hosts, mut inventories) = inventories("tp-along-ring");
        let files = files.iter().map(|(file, netdevs)| NetplanFile {
            file: Text::from(*file),
            netdevs: netdevs.iter().map(|name| name.parse().unwrap()).collect(),
        });
        inventories[0].node.netplan_files = Fact::Known(files.collect());
        let planes = netplan::of_facts(&hosts, &inventories).unwrap();
        let text = netplan::removal(&planes[0]);
        let check = Command::new("sh")
            .args(["-n", "-c", &text])
            .status()
            .unwrap();
        assert!(check.success(), "{text}");
        text
    };
    // Our own file, of these ports alone; the first plane's is none of it, and copies are told anyhow.
    let text = steps(&[
        ("40-sparkring.yaml", &["enp1s0f0np0", "enp1s0f1np1"]),
        ("41-sparkring-plane2.yaml", &BOTH),
        ("90-NM-x.yaml", &["enP2p1s0f0np0"]),
    ]);
    assert!(
        text.contains(OURS) && !text.contains("netplan set"),
        "{text}"
    );
    // A file with the first plane in it stays, whatever its name.
    for file in ["41-sparkring-plane2", "50-all"] {
        let named = ["enp1s0f0np0", BOTH[0], BOTH[1]];
        let text = steps(&[(&format!("{file}.yaml"), &named)]);
        for dev in BOTH {
            let step = format!("netplan set --origin-hint {file} 'ethernets.{dev}=NULL'\n");
            assert!(text.contains(&step), "{text}");
        }
        assert!(!text.contains("ethernets.enp1s0f0np0"), "{text}");
        assert_eq!(text.contains(OURS), file == "50-all", "{text}");
    }
    // Another's file may name more than the facts tell; one with an odd name is no word of a shell.
    let text = steps(&[("50-fabric.yaml", &BOTH)]);
    let step = "netplan set --origin-hint 50-fabric 'ethernets.enP2p1s0f0np0=NULL'\n";
    assert!(text.contains(step), "{text}");
    for odd in ["$(id).yaml", "a b.yaml", "-x.yaml", ".yaml", "50-plane"] {
        let text = steps(&[(odd, &["enP2p1s0f1np1"])]);
        assert!(text.contains("that names them: enP2p1s0f1np1\n"), "{text}");
        assert!(!text.contains("netplan set"), "{text}");
        assert!(odd == ".yaml" || !text.contains(odd), "{text}");
    }
}

/// Gives the ports of a domain other addresses.
fn readdress(inventories: &mut [Inventory], second: bool, with: impl Fn(Cidr) -> String) {
    let ports = inventories.iter_mut().flat_map(|own| &mut own.ports);
    for port in ports.filter(|port| (port.place().unwrap().pci_domain != 0) == second) {
        let own = port.ipv4.known().unwrap()[0];
        port.ipv4 = Fact::Known(vec![with(own).parse().unwrap()]);
    }
}

#[test]
fn a_proposed_plane_stays_in_the_range_that_the_first_one_is_in() {
    for (first, second) in [
        ("198.18", "198.19"),
        ("100.64", "100.74"),
        ("100.118", "100.72"),
        ("172.28", "172.22"),
    ] {
        let (hosts, mut inventories) = inventories("own-inventories-queue-applied");
        bare(&mut inventories);
        readdress(&mut inventories, false, |own| {
            own.to_string().replace("10.10", first)
        });
        let planes = netplan::of_facts(&hosts, &inventories).unwrap();
        for port in planes.iter().flat_map(|plane| &plane.ports) {
            let address = port.address.to_string();
            assert!(address.starts_with(second), "{first}: {address}");
        }
    }
}

#[test]
fn an_address_that_a_host_gave_itself_is_none() {
    let (hosts, mut inventories) = inventories("own-inventories-queue-applied");
    let whole = netplan::of_facts(&hosts, &inventories).unwrap();
    readdress(&mut inventories, true, |own| {
        let [.., c, d] = own.address.octets();
        format!("169.254.{}.{d}/16", c + 1)
    });
    let planes = netplan::of_facts(&hosts, &inventories).unwrap();
    for (plane, whole) in planes.iter().zip(&whole) {
        assert!(plane.proposed);
        assert_eq!(plane.ports, whole.ports);
    }
}

#[test]
fn ends_of_no_common_subnet_are_refused_by_name() {
    let (hosts, mut inventories) = inventories("own-inventories-queue-applied");
    readdress(&mut inventories[3..], true, |own| {
        own.to_string().replace("10.20.3", "10.30.3")
    });
    let trouble = netplan::of_facts(&hosts, &inventories).unwrap_err();
    assert_eq!(trouble.len(), 2, "{trouble:?}");
    for line in trouble {
        assert!(
            line.contains("10.20.3.") && line.contains("10.30.3."),
            "{line}"
        );
        assert!(line.contains("spark4") && line.contains("two addresses of one subnet wanted"));
    }
}

#[test]
fn a_file_that_has_the_ports_already_is_named_before_there_are_two() {
    let first_lines = |files: &[(&str, &[&str])]| -> String {
        let (hosts, mut inventories) = inventories("tp-along-ring");
        let files = files.iter().map(|(file, netdevs)| NetplanFile {
            file: Text::from(*file),
            netdevs: netdevs.iter().map(|name| name.parse().unwrap()).collect(),
        });
        inventories[0].node.netplan_files = Fact::Known(files.collect());
        let planes = netplan::of_facts(&hosts, &inventories).unwrap();
        let text = netplan::file(&planes[0]);
        let (comment, rest) = text.split_once("network:\n").unwrap();
        assert!(comment.lines().all(|line| line.starts_with('#')), "{text}");
        assert!(rest.starts_with("  version: 2\n"), "{text}");
        comment.to_owned()
    };
    let (first, plane): (&[&str], &[&str]) = (&["enp1s0f0np0"], &["enP2p1s0f0np0"]);
    let ours = "41-sparkring-plane2.yaml";
    let alone = first_lines(&[("40-sparkring.yaml", first), (ours, plane)]);
    assert!(!alone.contains("as well"), "{alone}");
    let shared = first_lines(&[("60 b\nx: y.yaml", plane), (ours, plane), ("a.yaml", plane)]);
    assert!(
        shared.contains("# These ports are in 60 b\\x0ax: y.yaml, a.yaml of /etc/netplan/ as well")
            && shared.contains("(hairpin-mesh netplan spark1 --remove)"),
        "{shared}"
    );
    assert!(shared.contains("sudo install -m 600 THIS /etc/netplan/41-sparkring-plane2.yaml"));
}
