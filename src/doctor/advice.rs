//! What to do about each kind of finding: commands for the node's user, never run by this program.
//!
//! They name the devices, addresses and files that the facts have. A port that a file of netplan names is
//! changed there: what `nmcli` does to it beside that file comes back, or goes, with the next boot.

use std::collections::{BTreeMap, BTreeSet};

use crate::doctor::fabric::Fabric;
use crate::doctor::mesh::ALONE;
use crate::doctor::netplan::{COPY, beside, is_copy, origin};
use crate::facts::NetplanFile;
use crate::finding::Finding;
use crate::names::Cidr;
use crate::plan::ends::list;
use crate::plan::mesh::WANTED_HAIRPIN_QUEUE;

/// Adds what to do to a finding and to everything below it, where they do not say it themselves.
pub(super) fn add(fabric: &Fabric, finding: &mut Finding) {
    let about = About::of(fabric, finding);
    if finding.code == "port-address" && finding.found.starts_with("no IPv4 address") {
        finding.advice = about.address().or(finding.advice.take());
    }
    // Of these `plan` tells a reason, and here is what to do.
    let is_reason = matches!(
        finding.code,
        "gid-index-differs" | "hairpin-queue-unsaid" | "hca-names-differ"
    );
    // Of several, each has its own command.
    let is_of_each = is_gathered(finding) && finding.code.contains("left-over");
    if finding.advice.is_none() || is_reason || is_of_each {
        finding.advice = about.advice(finding);
    }
    for consequence in &mut finding.consequences {
        add(fabric, consequence);
    }
    // What `up` does not bring back of a function that was initialised again.
    if matches!(finding.code, "rule-dead-egress" | "marker-without-rule") {
        let of = |codes: &[&str]| -> Vec<String> {
            let below = finding.consequences.iter();
            let below = below.filter(|below| codes.contains(&below.code));
            below.filter_map(|below| below.advice.clone()).collect()
        };
        let first = of(&["port-tc-offload"]);
        let then = of(&["hairpin-queue-size"]);
        let own = finding.advice.take();
        let all: Vec<String> = first.into_iter().chain(own).chain(then).collect();
        finding.advice = (!all.is_empty()).then(|| all.join("; "));
    }
}

/// The UUID that the name of a copy of NetworkManager's has.
fn uuid(file: &NetplanFile) -> Option<&str> {
    // 8, 4, 4, 4 and 12 hexadecimal digits (RFC 9562); of a wireless network its name follows.
    let name = file.file.as_str().strip_prefix(COPY)?.get(..36)?;
    let dashes = [8, 13, 18, 23];
    let is_right = |(i, byte): (usize, u8)| {
        if dashes.contains(&i) {
            byte == b'-'
        } else {
            byte.is_ascii_hexdigit()
        }
    };
    name.bytes().enumerate().all(is_right).then_some(name)
}

/// Prints the second plane's files of these hosts: from the plan where one with their addresses was given, else
/// from facts that are read anew.
pub(super) fn netplan(fabric: &Fabric, hosts: &[&str]) -> String {
    let has_plane = |node: usize| {
        let own = fabric.of_host(node).into_iter();
        let mut rows = own.filter_map(|port| fabric.planned(port));
        // Of a topology document's addresses the subnets are not known.
        rows.any(|row| row.ipv4.prefix < 32)
    };
    let mut nodes = hosts.iter().map(|host| fabric.node(host));
    if nodes.all(|node| node.is_some_and(has_plane)) {
        return format!(
            "hairpin-mesh netplan --plan FILE {}, with the plan that was given here,",
            hosts.join(" ")
        );
    }
    let all: Vec<String> = fabric
        .hosts
        .iter()
        .map(|host| format!(" --host {host}"))
        .collect();
    let all = all.concat();
    let names = hosts.join(" ");
    format!(
        "hairpin-mesh inventory --out facts{all}; hairpin-mesh netplan --inventory facts {names}"
    )
}

/// The address that a port without one has to have: the plan's, or one beside that of its cable's other end, which
/// is named then.
pub(super) fn own_address(fabric: &Fabric, port: usize) -> Option<(Cidr, Option<usize>)> {
    let planned = fabric.planned(port).map(|row| row.ipv4);
    if let Some(own) = planned.filter(|own| own.prefix < 32) {
        return Some((own, None));
    }
    let far = fabric.far(port)?;
    let there: Cidr = fabric.ports[far].address?;
    // Of a topology document's the prefix is that of the other end.
    if let Some(own) = planned.filter(|own| there.contains(own.address)) {
        let prefix = there.prefix;
        return Some((Cidr { prefix, ..own }, None));
    }
    let of_socket = fabric.of_socket(fabric.socket(port));
    let like = of_socket
        .iter()
        .find_map(|own| fabric.ports[*own].address)
        .unwrap_or(there);
    Some((beside(there, like)?, Some(far)))
}

/// What brings a mesh back that is not there, with the hairpin queues where they are at their default, too.
fn mesh_again(nodes: &str, finding: &Finding) -> String {
    fn has_queue(finding: &Finding) -> bool {
        let mut below = finding.consequences.iter();
        below.any(|below| below.code == "hairpin-queue-size" || has_queue(below))
    }
    if has_queue(finding) {
        format!(
            "on {nodes}: systemctl start dsv41-mesh loads the hairpin queues and makes the mesh (systemctl status dsv41-mesh tells why it did not at the boot); without that unit, while nothing uses the fabric: hairpin-mesh hairpin-queue 8192, then hairpin-mesh up"
        )
    } else {
        format!("hairpin-mesh up on {nodes}")
    }
}

/// `x4` of `PCIe link x4 at 32.0 GT/s`.
fn lanes(link: &str) -> Option<&str> {
    link.split(' ').find(|word| word.starts_with('x'))
}

/// Whether a finding stands for several of its kind.
fn is_gathered(finding: &Finding) -> bool {
    finding
        .consequences
        .iter()
        .any(|below| below.code == finding.code)
}

/// The UUID of the connection that the network manager has on a device.
fn connection(dev: &str) -> String {
    format!("\"$(nmcli -g GENERAL.CON-UUID device show {dev})\"")
}

/// What a finding is about.
struct About<'a, 'b> {
    fabric: &'a Fabric<'b>,
    /// Its ports; empty where it does not say.
    ports: Vec<usize>,
}

impl<'a, 'b> About<'a, 'b> {
    fn of(fabric: &'a Fabric<'b>, finding: &Finding) -> About<'a, 'b> {
        let node = finding.host.as_deref().and_then(|host| fabric.node(host));
        let object = finding.object.as_deref().unwrap_or_default();
        let members = finding.consequences.iter();
        let members = members.filter(|member| member.code == finding.code);
        let mut ports: Vec<usize> = members
            .flat_map(|member| About::of(fabric, member).ports)
            .collect();
        if let (true, Some(node)) = (ports.is_empty(), node) {
            ports = match object.strip_prefix("socket ").map(str::parse) {
                Some(Ok(number)) => fabric.of_socket((node, number)).into_iter().collect(),
                _ => object
                    .split('+')
                    .filter_map(|name| fabric.port(node, name))
                    .collect(),
            };
        }
        About { fabric, ports }
    }

    /// The words of each host's ports, once where hosts have the same; none where a port has none.
    fn of_hosts(&self, word: impl Fn(usize) -> Option<String>) -> Option<BTreeSet<Vec<String>>> {
        let of_host = |node: usize| -> Option<Vec<String>> {
            let own = self.ports.iter().copied();
            let own = own.filter(|port| self.fabric.ports[*port].node == node);
            own.map(&word).collect()
        };
        let nodes = self.ports.iter().map(|port| self.fabric.ports[*port].node);
        let nodes: BTreeSet<usize> = nodes.collect();
        nodes.into_iter().map(of_host).collect()
    }

    /// A command for a word that each port has: the word itself where there is one, a loop where there are
    /// several and all hosts have the same.
    fn each(
        &self,
        name: &str,
        word: impl Fn(usize) -> Option<String>,
        command: impl Fn(&str) -> String,
    ) -> String {
        let words: Vec<Vec<String>> = self.of_hosts(word).into_iter().flatten().collect();
        match &words[..] {
            [only] if only.len() == 1 => command(&only[0]),
            [all] => format!(
                "for {name} in {}; do {}; done",
                all.join(" "),
                command(&format!("${name}"))
            ),
            _ => command(match name {
                "pci" => "ADDRESS",
                _ => "DEVICE",
            }),
        }
    }

    fn devices(&self, command: impl Fn(&str) -> String) -> String {
        let name = |port: usize| Some(self.fabric.facts(port).netdev.to_string());
        self.each("dev", name, command)
    }

    fn functions(&self, command: impl Fn(&str) -> String) -> String {
        let pci = |port: usize| {
            let address = self.fabric.facts(port).pci.known()?.as_ref()?;
            Some(address.to_string())
        };
        self.each("pci", pci, command)
    }

    /// The file of netplan that a port is set by, without its ending; none where NetworkManager alone has it.
    fn file(&self, port: usize) -> Option<String> {
        let node = self.fabric.ports[port].node;
        let files = self.fabric.inventories[node].node.netplan_files.known()?;
        let netdev = &self.fabric.facts(port).netdev;
        // A dot would have to be escaped in a key of netplan's.
        let mut own = files.iter().filter(|file| {
            file.netdevs.contains(netdev) && !is_copy(file) && !netdev.as_str().contains('.')
        });
        own.next().and_then(origin).map(str::to_owned)
    }

    /// The UUID of the connection that NetworkManager keeps for a port in a copy of its own.
    fn copy(&self, port: usize) -> Option<String> {
        let node = self.fabric.ports[port].node;
        let files = self.fabric.inventories[node].node.netplan_files.known()?;
        let netdev = &self.fabric.facts(port).netdev;
        let mut own = files
            .iter()
            .filter(|file| file.netdevs.contains(netdev) && is_copy(file));
        own.next()
            .map(|file| uuid(file).map_or_else(|| connection(netdev.as_str()), str::to_owned))
    }

    /// A setting of the ports, made where it is made: in netplan's files, else by `nmcli`.
    fn set(&self, key: &str, nmcli: &str) -> String {
        let in_file = |port: usize| {
            let netdev = &self.fabric.facts(port).netdev;
            Some(format!(
                "netplan set --origin-hint {} 'ethernets.{netdev}.{key}'",
                self.file(port)?
            ))
        };
        let Some(files) = self.of_hosts(in_file) else {
            return self.devices(|dev| {
                let connection = connection(dev);
                format!("nmcli connection modify {connection} {nmcli} && nmcli connection up {connection}")
            });
        };
        let mut files = files.into_iter();
        match (files.next(), files.next()) {
            (Some(all), None) => format!("{}; netplan apply", all.join("; ")),
            // What is right on one host makes a file too many on another.
            _ => format!(
                "netplan set --origin-hint FILE 'ethernets.DEVICE.{key}' for each port, FILE the one in /etc/netplan that names it, without .yaml; netplan apply"
            ),
        }
    }

    /// The commands of what is told as one, host by host.
    fn each_of(&self, finding: &Finding) -> String {
        let mut hosts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for member in &finding.consequences {
            let own = member.advice.clone();
            let own = own.or_else(|| About::of(self.fabric, member).advice(member));
            let host = member.host.as_deref().unwrap_or_default();
            hosts.entry(host).or_default().extend(own);
        }
        let on_host = |(host, all): (&str, Vec<String>)| format!("on {host}: {}", all.join("; "));
        let all: Vec<String> = hosts.into_iter().map(on_host).collect();
        all.join("; ")
    }

    /// What gives the ports the addresses that the plan has, host by host.
    fn planned_addresses(&self) -> String {
        let back = |port: &usize| {
            let own = self.fabric.planned(*port)?.ipv4;
            let about = About {
                fabric: self.fabric,
                ports: vec![*port],
            };
            Some(about.set(
                &format!("addresses=[{own}]"),
                &format!("ipv4.addresses {own}"),
            ))
        };
        let nodes = self.ports.iter().map(|port| self.fabric.ports[*port].node);
        let nodes: BTreeSet<usize> = nodes.collect();
        let on_host = |node: &usize| {
            let own = self.ports.iter();
            let own = own.filter(|port| self.fabric.ports[**port].node == *node);
            let all: Vec<String> = own.filter_map(back).collect();
            // Applied once: half of them may give two ports one address.
            let all = all.join("; ");
            let all = all.replace("; netplan apply; netplan set", "; netplan set");
            match nodes.len() {
                1 => all,
                _ => format!("on {}: {all}", self.fabric.hosts[*node]),
            }
        };
        let hosts: Vec<String> = nodes.iter().map(on_host).collect();
        hosts.join("; ")
    }

    /// The RDMA device of the only port.
    fn rdma(&self) -> String {
        match self.ports[..] {
            [port] => self.fabric.device(port),
            _ => "DEVICE".into(),
        }
    }

    /// The host whose cables are those that these ports are at.
    fn silent_host(&self) -> Option<&'b str> {
        let fabric = self.fabric;
        let cable = |port: &usize| {
            let socket = fabric.socket(*port);
            let far = fabric.far_socket(socket);
            far.map_or(socket, |far| socket.min(far))
        };
        let silent: BTreeSet<_> = self.ports.iter().map(cable).collect();
        let mut hosts = (0..fabric.hosts.len()).filter(|node| {
            let own: BTreeSet<_> = fabric.of_host(*node).iter().map(cable).collect();
            own == silent
        });
        let host = hosts.next()?;
        hosts.next().is_none().then(|| fabric.hosts[host].as_str())
    }

    /// The only host none of whose addresses is in a subnet of another host's.
    fn stranger(&self) -> Option<&'b str> {
        let fabric = self.fabric;
        let mut hosts = (0..fabric.hosts.len()).filter(|node| {
            let own = fabric.of_host(*node);
            own.iter().all(|port| {
                fabric.ports[*port].address.is_some() && !fabric.peers.contains_key(port)
            })
        });
        let host = hosts.next()?;
        hosts.next().is_none().then(|| fabric.hosts[host].as_str())
    }

    /// An address for a port that has none.
    fn address(&self) -> Option<String> {
        let [port] = self.ports[..] else {
            return None;
        };
        let fabric = self.fabric;
        let (own, whence) = own_address(fabric, port)?;
        let dev = &fabric.facts(port).netdev;
        let command = match self.file(port) {
            Some(file) => format!(
                "netplan set --origin-hint {file} 'ethernets.{dev}.addresses=[{own}]'; netplan set --origin-hint {file} 'ethernets.{dev}.mtu=9000'; netplan apply"
            ),
            None => match self.copy(port) {
                // Its connection is there and has no address.
                Some(uuid) => format!(
                    "nmcli connection modify {uuid} ipv4.method manual ipv4.addresses {own} 802-3-ethernet.mtu 9000 && nmcli connection up {uuid}"
                ),
                None => format!(
                    "nmcli connection add type ethernet ifname {dev} ipv4.method manual ipv4.addresses {own} 802-3-ethernet.mtu 9000"
                ),
            },
        };
        Some(match whence {
            None => format!("the plan has {own}, and the GID follows ({command})"),
            Some(far) => {
                let there = list(fabric.ports[far].address);
                let end = fabric.ports[far].label();
                format!(
                    "the other end of its cable, {end}, has {there}: an address beside it, like {own}, and the GID follows ({command})"
                )
            }
        })
    }

    fn advice(&self, finding: &Finding) -> Option<String> {
        let again = "hairpin-mesh up on this node";
        let unread = finding.found.contains("not observed: ");
        Some(match finding.code {
        "port-address" | "port-gid" | "hairpin-queue-unknown" | "port-eswitch" | "port-steering" | "port-tc-offload" | "port-rdma-state" | "port-rdma-mtu" | "rule-unread" | "route-unread" | "marker-unread" if unread => "collect the facts as root: sudo hairpin-mesh inventory (over SSH: a user who may sudo without a password)".into(),
        "nic-missing" => "see journalctl -k -g 'mlx5|AER|pcieport' for what took it away; a power cycle with the cord out brings a NIC back that an AER error took".into(),
        "function-missing" => "see journalctl -k -g 'mlx5|cx7-pcie-hotplug|AER' and the cable; echo 1 >/sys/bus/pci/rescan looks for it again".into(),
        "port-driver" => "see which driver holds the function: lspci -k; modprobe mlx5_core mlx5_ib".into(),
        "reload-failed" => "see journalctl -k -g mlx5; a power cycle of the node clears it".into(),
        "cable-down" => format!("seat the plugs at both ends, or change the cable; {} says what the link sees; where an end was taken down: {}", self.devices(|dev| format!("ethtool {dev}")), self.devices(|dev| format!("ip link set {dev} up"))),
        "port-link" => format!("{}; {}; then the plugs at both ends", self.devices(|dev| format!("ip link set {dev} up")), self.devices(|dev| format!("ethtool {dev}"))),
        "port-carrier" => format!("{}, at both ends of the cable", self.devices(|dev| format!("ethtool {dev}"))),
        "port-rdma" => "modprobe mlx5_ib; rdma link".into(),
        "port-rdma-state" | "port-rdma-phys" => format!("rdma link; {}; it follows the link of its network device", self.devices(|dev| format!("ethtool {dev}"))),
        "port-rate" => format!("{} at both ends: plug, cable and auto-negotiation", self.devices(|dev| format!("ethtool {dev}"))),
        "pcie-degraded" if lanes(&finding.found) == lanes(&finding.wanted) => format!("it has all its lanes and a lower speed: a power cycle, then the slot's own speed and AER errors (journalctl -k -g AER); {} shows LnkSta", self.functions(|pci| format!("lspci -vv -s {pci}"))),
        "pcie-degraded" => format!("update the firmware of the board (one of before April 2026 wires the second controller with two lanes) where it is older, else look at the slot's own speed and at AER errors; then a power cycle; {} shows LnkSta", self.functions(|pci| format!("lspci -vv -s {pci}"))),
        "port-address" => format!("an address of its cable's subnet, and MTU 9000; the GID follows. {} prints files for the second plane", netplan(self.fabric, &["HOST"])),
        "plane-subnet-shared" if finding.object.as_deref().is_some_and(|net| net.starts_with("169.254.")) => format!("these are what hosts give themselves for want of an address: {} prints files for the second plane", netplan(self.fabric, &["HOST"])),
        "plane-subnet-shared" => "give each cable and domain a subnet of its own, in the files or connections that give these addresses (netplan get, nmcli connection show), then netplan apply or nmcli connection up UUID".into(),
        "address-repeated" | "address-off-cable" | "address-prefix-differs" | "port-prefix" | "address-overlaps" | "port-in-two-subnets" => "change the address in the file or connection that gives it (netplan get, nmcli connection show), then netplan apply or nmcli connection up NAME".into(),
        "subnet-ends" => match self.stranger() {
            Some(host) => format!("no address of {host} is in a subnet of another host: look there first for what gives it these (netplan get, nmcli connection show)"),
            None => "look for a wrong octet at one end, or a port without address".into(),
        },
        "cross-domain-cable" => "a cable joins equal domains: exchange the addresses of both functions of that socket at one end".into(),
        "cabling-looped" => "one cable joins both sockets of this node: plug each end of it, and of those that hang loose, into the neighbours".into(),
        "self-cable" => "a cable from a node to itself, or two addresses of one cable on one node: plug one end into the neighbour, or correct one address".into(),
        "mac-repeated" => "find out which of the two was set by hand: ip link show DEVICE tells permaddr".into(),
        "address-answered-twice" => "find the second owner by its MAC (ip neigh, ethtool -P DEVICE), and change its address".into(),
        "cabling-stranger" => "follow that cable: it leads to another machine or to a switch".into(),
        "arp-flux" => "with a subnet for each port this goes; until then sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2".into(),
        "neighbour-mac" => format!("{}, ping, look again; when it stays, the cable or an address is another", self.devices(|dev| format!("ip neigh flush dev {dev}"))),
        "neighbour-silent" if self.ports.len() > 1 => format!(
            "{}hairpin-mesh doctor --wire with all hosts asks which port is at the other end of each; {}",
            match self.silent_host() {
                Some(host) => format!("every cable of {host} is silent, and no other: plugs or addresses were exchanged there, or it is down. "),
                None => String::new(),
            },
            self.devices(|dev| format!("ip neigh show dev {dev}"))
        ),
        "neighbour-silent" => format!("is the peer up, with that address on that cable? {}; {}; hairpin-mesh doctor --wire with all hosts asks which port is at the other end", self.devices(|dev| format!("ip neigh show dev {dev}")), self.devices(|dev| format!("arping -c 3 -I {dev} {}", finding.found.split(' ').next().unwrap_or("ADDRESS")))),
        "cabling-wire-differs" => "the plug is in another socket than the addresses are made for: move the plug, or the addresses".into(),
        "peer-route-missing" => format!("{}: the connected route comes with address and link; {}", self.devices(|dev| format!("ip addr show {dev}")), self.devices(|dev| format!("nmcli connection up {}", connection(dev)))),
        "peer-route-elsewhere" => "take the more specific or cheaper route away, or the network that made it out of the fabric's range".into(),
        "port-mtu" => format!("while nothing uses the fabric: {}; until the next boot alone: {}", self.set("mtu=9000", "802-3-ethernet.mtu 9000"), self.devices(|dev| format!("ip link set {dev} mtu 9000"))),
        "port-rdma-mtu" => format!("it follows the MTU of the network device. While nothing uses the fabric: {}; then hairpin-mesh up, as routes went with the link", self.devices(|dev| format!("ip link set {dev} down && ip link set {dev} up"))),
        "gid-moved" | "gid-index-differs" => format!("pin no index: look it up by address. To pack the table, stop what holds RDMA devices open (rdma resource show qp), then take the address away and give it again: {}", self.devices(|dev| format!("nmcli device disconnect {dev} && nmcli device connect {dev}"))),
        "gid-stale" => "something still holds the entry: stop what has the RDMA device open (rdma resource show qp), and it goes".into(),
        "port-gid" => format!("the address is there, and no RoCE v2 GID of it: stop what holds the RDMA device open (rdma resource show qp), then {}", self.devices(|dev| format!("nmcli device disconnect {dev} && nmcli device connect {dev}"))),
        "gid-zero" => "GIDs follow from the address of the port: it comes first".into(),
        "devices-carry-nothing" => "first address and MTU, then the program's flags, then hairpin-mesh doctor again for the counters".into(),
        "hairpin-queue-size" | "hairpin-queue-unknown" | "hairpin-queue-odd" => "while nothing uses the fabric: hairpin-mesh hairpin-queue 8192; until then no message above 81920 bytes".into(),
        "hairpin-queue-pending" => "the value is set and the driver runs with its default: while nothing uses the fabric, hairpin-mesh hairpin-queue 8192; it survives no boot, so the mesh's unit does it each time".into(),
        "hairpin-num-queues" => "while nothing uses the fabric: hairpin-mesh hairpin-queue --num-queues 4".into(),
        "port-tc-offload" if finding.found.contains("fixed") => "the driver lets nobody turn it on: eswitch mode legacy, driver mlx5_core and firmware as the other hosts have them".into(),
        "port-tc-offload" => format!("{}; then hairpin-mesh up; to keep it over a boot, where NetworkManager alone has the port: {}", self.devices(|dev| format!("ethtool -K {dev} hw-tc-offload on")), self.devices(|dev| format!("nmcli connection modify {} ethtool.feature-hw-tc-offload on", connection(dev)))),
        "port-trust" => format!("{}: dscp-prio entries; {} (mlnx_qos --trust pcp does the same); then hairpin-mesh up", self.devices(|dev| format!("dcb app show dev {dev}")), self.devices(|dev| format!("dcb app flush dev {dev} dscp-prio"))),
        "port-steering" => format!("while nothing uses the fabric, with the mesh down (hairpin-mesh down): {}; then hairpin-mesh up", self.functions(|pci| format!("devlink dev param set pci/{pci} name flow_steering_mode value hmfs cmode runtime"))),
        "port-eswitch" => format!("while nothing uses the fabric, with the mesh down (hairpin-mesh down): {}; then hairpin-mesh up", self.functions(|pci| format!("devlink dev eswitch set pci/{pci} mode legacy"))),
        "ingress-qdisc" => format!("find what made it ({}), let that use clsact; only when nobody needs it: {}", self.devices(|dev| format!("tc -s filter show dev {dev} ingress")), self.devices(|dev| format!("tc qdisc del dev {dev} ingress"))),
        "domains-per-node" | "ports-per-domain" => "one ConnectX-7 of four functions, two on each of two PCI domains, has all of them: lspci -D -d 15b3: shows which are there, rdma link which have RDMA".into(),
        "ring-not-judged" => "collect the facts of all hosts of the ring: hairpin-mesh inventory --out facts --host HOST for each, or give doctor all of them".into(),
        "rule-shadowed" => format!("{}: whoever made the earlier rule has to take it away, or give it a preference behind those of the mesh", self.devices(|dev| format!("tc -s filter show dev {dev} ingress"))),
        "mesh-absent" => mesh_again("each node", finding),
        "mesh-incomplete" if is_gathered(finding) => mesh_again("each of these nodes", finding),
        "mesh-incomplete" => mesh_again("this node", finding),
        "left-over-route" | "left-over-rule" | "marker-left-over" if is_gathered(finding) => self.each_of(finding),
        "marker-twice" => again.into(),
        "marker-left-over" => format!("stop it when nothing uses it: systemctl stop dsv41-mesh-marker@{}.service", self.rdma()),
        "mesh-plan-address" if finding.found.ends_with(ALONE) => format!(
            "give back what the plan has ({}); when the change is meant, the other ends need addresses beside these, and the ring a new plan",
            self.planned_addresses()
        ),
        // Not a fabric that was given other subnets as a whole.
        "mesh-plan-address" if self.ports.len() < self.fabric.ports.len() => format!(
            "give back what the plan has ({}); when the change is meant, make the plan again: hairpin-mesh plan --out ring-mesh HOST..., then hairpin-mesh deploy --plan ring-mesh HOST...",
            self.planned_addresses()
        ),
        "mesh-old-address" => {
            let old = finding.found.split(' ').next().unwrap_or("ADDRESS");
            let own = self.ports.first().and_then(|port| self.fabric.ports[*port].address);
            let back = match own {
                Some(own) if !is_gathered(finding) => {
                    let back = format!("{old}/{}", own.prefix);
                    self.set(&format!("addresses=[{back}]"), &format!("ipv4.addresses {back}"))
                }
                _ => "in the files or connections that give the ports' addresses".into(),
            };
            format!("hairpin-mesh verify on each host tells what its plan has: where these routes are right by it, give back the addresses that they have ({back}); where they are not, hairpin-mesh up. When the change is meant: hairpin-mesh plan --out ring-mesh HOST..., then hairpin-mesh deploy --plan ring-mesh HOST...")
        }
        "mesh-other-ring" => "hairpin-mesh doctor --wire with all hosts shows which plugs or addresses were exchanged: put them back; when they are meant: hairpin-mesh plan --out ring-mesh HOST..., then hairpin-mesh deploy --plan ring-mesh HOST...".into(),
        "mesh-other-plan" | "mesh-plan-port" | "mesh-plan-address" | "mesh-plan-peer" | "mesh-plan-cap" | "mesh-plan-gid-index" => "make the plan again: hairpin-mesh plan --out ring-mesh HOST..., then hairpin-mesh deploy --plan ring-mesh HOST...".into(),
        "memory-cma" => "boot with kho=off (kernel command line: /etc/default/grub, update-grub), or the 6.17 kernel".into(),
        "memory-lock" => "ulimit -l unlimited (LimitMEMLOCK=infinity of a unit); in a container --ulimit memlock=-1 or --cap-add IPC_LOCK".into(),
        "module-mstflint" => "rmmod mstflint_access; run no mstflint after a cable was plugged".into(),
        "netplan-owned-twice" => "keep one; hairpin-mesh netplan HOST --remove prints the steps that take a plane away for good".into(),
        "parity-kernel" | "parity-driver" | "parity-firmware" | "parity-rdma-core" | "parity-bios" | "parity-architecture" => "bring it to what the others have before looking for anything finer".into(),
        "nccl-library-differs" | "nccl-library-other" | "nccl-library-missing" => "put the same library of the switchless ring on all nodes, and look again with --nccl-library".into(),
        "management-on-fabric" => "move the default route to the management network".into(),
        "hca-names-differ" => "rename the RDMA devices alike on all nodes (udev), or fix the node whose function is missing".into(),
        "hairpin-queue-default" => "hairpin-mesh hairpin-queue 8192, while nothing uses the fabric".into(),
        "inventory-repeated" | "inventory-of-another-host" | "facts-apart" => format!("collect the facts again: hairpin-mesh inventory --out facts{}", self.fabric.hosts.iter().map(|host| format!(" --host {host}")).collect::<String>()),
        "domains-differ" | "neighbour-twice" | "ring-open" | "ring-size" => "hairpin-mesh doctor --wire with all hosts asks the wire which socket is cabled to which; then the addresses that say otherwise are changed, or plugs moved".into(),
        "route-linkdown" => "the link of its port comes first (ip link show); then hairpin-mesh up on this node".into(),
        "marker-other" => format!("it tags other packets than the mesh's: systemctl cat dsv41-mesh-marker@{}.service tells who says so; take that drop-in away, systemctl daemon-reload, and while nothing uses the fabric restart that unit", self.rdma()),
        "rdma-core-old" => "apt-get install --only-upgrade rdma-core libibverbs1 ibverbs-providers, then restart the markers: hairpin-mesh up on this node".into(),
        "env-cap-over-queue" if self.fabric.hairpin_queue_size >= WANTED_HAIRPIN_QUEUE => "lower it: no larger queue can be loaded".into(),
        "env-cap-over-queue" => "lower it, or while nothing uses the fabric: hairpin-mesh hairpin-queue 8192 on each node".into(),
        "env-unknown-name" => "write it as what reads it has it, or take it out".into(),
        "env-hca-missing" | "env-hca-unknown" | "env-hca-order" | "env-hca-twice" | "env-hca-space" | "env-hca-port" | "env-hca-filter" => "name each HCA once, exactly as rdma link has it, in the order of env.txt of the plan folder, joined by commas alone".into(),
        "env-gid-index" if finding.found.starts_with("is not set") => "add it to the file".into(),
        "env-gid-index" => "take it out, or set the index that every port has: hairpin-mesh plan prints it into env.txt when it is not 3".into(),
        "env-without-mesh" => "hairpin-mesh up on each node, before the engine starts".into(),
        "env-not-expanded" | "env-conditional" => "print what the engine has, and give that: tr '\\0' '\\n' </proc/PID/environ >env.now, or docker compose config".into(),
        "env-gid-selection" => "take it out: the GIDs of the mesh are what NCCL takes by itself".into(),
        "env-socket-on-fabric" | "env-socket-loopback" => "name the management network's device: ip route get ADDRESS of another node there shows it".into(),
        "env-elsewhere" => "give what the engine has: tr '\\0' '\\n' </proc/PID/environ >env.now, docker exec CONTAINER env, or docker compose config".into(),
        "env-not-passed" => "-e NAME hands on what is exported; docker exec CONTAINER env shows what is there".into(),
        "env-nothing-read" => "give the file that the engine or its launcher is started with".into(),
        "env-shell-cut" => "put the value in single quotes: NAME='VALUE'".into(),
        "env-quote-open" => "close it, or give what the engine has: tr '\\0' '\\n' </proc/PID/environ >env.now".into(),
        "env-carriage-return" => "sed -i 's/\\r$//' FILE".into(),
        "env-not-exported" => "export them, or put set -a before the first and set +a behind the last".into(),
        "env-unit-section" => "move the lines below [Service], then systemctl daemon-reload".into(),
        "env-value-end" => "take the last character out".into(),
        "env-quotes" => "take the quotes out, or put them around the whole item".into(),
        "env-unset" => "take out what unsets it, or turn the ring off".into(),
        "env-comment" => "put the comment on a line of its own, or give the file to nothing but a shell".into(),
        "env-socket-unknown" => "write it as the hosts have it: ip -br link on each node".into(),
        "env-setting-missing" if finding.found.starts_with("is on without") => "add them to the file".into(),
        "env-setting-missing" | "env-ring-only" | "env-opposite-paths" if finding.found.starts_with("is not set") => "add it to the file".into(),
        "env-peer-maps" | "env-opposite-paths" | "env-setting-missing" | "env-prefix-length" | "env-ring-only" | "env-conflict" | "env-set-twice" | "env-no-number" | "env-no-assignment" => {
            let of_nccl = finding.object.as_deref().is_some_and(|name| name.starts_with("NCCL_"));
            format!("correct it in the file{}", if of_nccl { "" } else { "; what the engine needs is in env.txt of the plan folder" })
        }
        "nccl-library-unread" => "is the path right on every host, and readable? hairpin-mesh doctor --nccl-library PATH HOST...".into(),
        "nccl-log-empty" => "run the program with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV, and give that log".into(),
        "nccl-log-world" => "start the engine on all hosts of the ring, with its tensor parallel size theirs".into(),
        "nccl-log-hcas" => "B12X_ROCE_HCA as env.txt of the plan folder has it".into(),
        "function-idle" | "plane-idle" => "does the program list all four HCAs, and is the plane of this one addressed? NCCL_IB_HCA, B12X_ROCE_HCA".into(),
        "hairpin-queue-unsaid" => "hairpin-mesh inventory tells whether it is loaded".into(),
        _ => return None,
    })
    }
}
