//! The second plane's netplan file of each node, for the user to review and install. Nothing is written
//! by this program.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::facts::{Inventory, NetplanFile};
use crate::names::{Cidr, HostName, NetdevName};
use crate::plan::ends::{count, list};
use crate::plan::mesh::{DOMAINS, ETHERNET_MTU};
use crate::plan::ring::check_size;
use crate::plan::{PORTS_PER_DOMAIN, Plan, survey};

/// The file that a node's second plane lives in.
pub const FILE: &str = "/etc/netplan/41-sparkring-plane2.yaml";
/// Where netplan has its files.
const FOLDER: &str = "/etc/netplan/";
/// How the names of the copies start that NetworkManager makes of what netplan gave it.
pub(super) const COPY: &str = "90-NM-";

/// The domain that is the second plane.
const SECOND: usize = DOMAINS - 1;

/// A port of the second plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its network device.
    pub netdev: NetdevName,
    /// Its address.
    pub address: Cidr,
    /// Subnets of the plane that this node does not sit on and that lie behind this port, with the
    /// neighbour's address.
    pub routes: Vec<(Cidr, Ipv4Addr)>,
}

/// A node's share of the second plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plane {
    /// The host.
    pub host: HostName,
    /// Its ports, in HCA order.
    pub ports: Vec<Port>,
    /// Whether the addresses are made up from the first plane's.
    pub proposed: bool,
    /// The files of netplan that name a port of the host, where the facts tell them.
    pub files: Vec<NetplanFile>,
}

/// A cable end of the plane.
struct End {
    host: HostName,
    netdev: NetdevName,
    address: Cidr,
    peer: usize,
}

/// The second plane that a plan has.
pub fn of_plan(plan: &Plan) -> Result<Vec<Plane>, Vec<String>> {
    let rows: Vec<_> = plan
        .ports
        .iter()
        .filter(|row| row.domain == SECOND)
        .collect();
    let peer = |row: &crate::plan::PortRow| {
        rows.iter()
            .position(|other| other.host == row.peer_host && other.netdev == row.peer_netdev)
    };
    let ends: Option<Vec<End>> = rows
        .iter()
        .map(|row| {
            Some(End {
                host: row.host.clone(),
                netdev: row.netdev.clone(),
                address: row.ipv4,
                peer: peer(row)?,
            })
        })
        .collect();
    let ends = ends.ok_or_else(|| vec!["the plan's second plane is not whole".to_owned()])?;
    if ends.iter().any(|end| end.address.prefix > 31) {
        return Err(vec![
            "the plan has addresses without their subnets (it is of a topology document)".into(),
        ]);
    }
    Ok(planes(&plan.hosts, &ends))
}

/// The second plane that the facts have, or one that follows the first plane where they have none.
pub fn of_facts(hosts: &[HostName], inventories: &[Inventory]) -> Result<Vec<Plane>, Vec<String>> {
    let survey = survey(hosts, inventories, None);
    let numbers = super::fabric::numbers(&survey.ports);
    let find = |node: usize, domain: usize, number: usize| {
        let mut all = 0..survey.ports.len();
        all.find(|port| {
            let own = &survey.ports[*port];
            own.node == node && own.domain == domain && numbers[*port] == number
        })
    };
    let mut trouble = Vec::new();
    let mut sockets = Vec::new();
    for (node, host) in hosts.iter().enumerate() {
        for number in 0..PORTS_PER_DOMAIN {
            match (find(node, 0, number), find(node, SECOND, number)) {
                (Some(first), Some(second)) => sockets.push((first, second)),
                (own, other) => {
                    let netdev = |port: usize| &survey.ports[port].facts.netdev;
                    let there = match own.or(other) {
                        Some(port) => format!("{} alone of its functions", netdev(port)),
                        None => "none of its functions".into(),
                    };
                    trouble.push(format!(
                        "{host}: socket {number} has {there}, one of each domain wanted"
                    ));
                }
            }
        }
    }
    if check_size(hosts.len()).is_err() {
        trouble.push(format!(
            "the facts of {} are here, those of all hosts of a ring wanted",
            count(hosts.len(), "host")
        ));
    }
    // Of a ring that is not all here, no cable's other end is missed.
    if trouble.is_empty() {
        let alone = sockets
            .iter()
            .filter(|(first, _)| !survey.peers.contains_key(first));
        trouble.extend(alone.map(|(first, _)| {
            let label = survey.ports[*first].label();
            format!("{label}: its cable's other end is not known by an address of the first plane")
        }));
    }
    if !trouble.is_empty() {
        return Err(trouble);
    }
    // What a host gave itself for want of an address is none (RFC 3927).
    let second: Vec<Option<Cidr>> = sockets
        .iter()
        .map(|(_, second)| {
            let address = survey.ports[*second].address;
            address.filter(|own| !own.address.is_link_local())
        })
        .collect();
    let first: Vec<Option<Cidr>> = sockets
        .iter()
        .map(|(first, _)| survey.ports[*first].address)
        .collect();
    let peers: Vec<Option<usize>> = sockets
        .iter()
        .map(|(own, _)| {
            let peer = survey.peers.get(own)?;
            sockets.iter().position(|(first, _)| first == peer)
        })
        .collect();
    // The subnets of cables of which neither end has an address yet.
    let both: Vec<Cidr> = (0..sockets.len())
        .filter(|i| second[*i].is_none() && peers[*i].is_none_or(|peer| second[peer].is_none()))
        .filter_map(|i| first[i])
        .collect();
    let shift = shift(&both, inventories);
    let mut ends = Vec::new();
    let mut proposed = BTreeSet::new();
    for (i, (_, plane)) in sockets.iter().enumerate() {
        let plane = &survey.ports[*plane];
        let made_up = || {
            proposed.insert(plane.host.clone());
            match second[peers[i]?] {
                Some(far) => beside(far, first[i]?),
                None => Some(moved(first[i]?, shift?)),
            }
        };
        if let (Some(address), Some(peer)) = (second[i].or_else(made_up), peers[i]) {
            ends.push(End {
                host: plane.host.clone(),
                netdev: plane.facts.netdev.clone(),
                address,
                peer,
            });
        } else {
            trouble.push(format!(
                "{}: no address that is free on all hosts was found for it",
                plane.label()
            ));
        }
    }
    if !trouble.is_empty() {
        return Err(trouble);
    }
    for end in &ends {
        let far = &ends[end.peer];
        if !end.address.contains(far.address.address) {
            trouble.push(format!(
                "{} {}: has {}, and the other end of its cable, {} {}, has {}: two addresses of one subnet wanted",
                end.host, end.netdev, end.address, far.host, far.netdev, far.address
            ));
        }
    }
    if !trouble.is_empty() {
        return Err(trouble);
    }
    let mut planes = planes(hosts, &ends);
    for (plane, inventory) in planes.iter_mut().zip(inventories) {
        plane.proposed = proposed.contains(&plane.host);
        plane.files = inventory
            .node
            .netplan_files
            .known()
            .cloned()
            .unwrap_or_default();
    }
    Ok(planes)
}

/// Another address of the subnet of `far`: with the host part of `like` where that can be, else the first
/// that can.
pub(super) fn beside(far: Cidr, like: Cidr) -> Option<Cidr> {
    let network = u32::from(far.network().address);
    let last = u32::from(far.last());
    let with = |address: u32| Cidr {
        address: Ipv4Addr::from(address),
        prefix: far.prefix,
    };
    let host = u32::from(like.address) & (last - network);
    std::iter::once(network + host)
        .chain((network..=last).take(256))
        .map(with)
        .find(|address| address.address != far.address && address.unusable().is_none())
}

/// An address with one of its octets moved.
fn moved(address: Cidr, (octet, step): (usize, u8)) -> Cidr {
    let mut octets = address.address.octets();
    octets[octet] = octets[octet].wrapping_add(step);
    Cidr {
        address: Ipv4Addr::from(octets),
        prefix: address.prefix,
    }
}

/// Which octet has to move how far so that the first plane's subnets come to lie where nothing is: the
/// second one, else the third.
fn shift(first: &[Cidr], inventories: &[Inventory]) -> Option<(usize, u8)> {
    let mut taken: BTreeSet<Cidr> = BTreeSet::new();
    for inventory in inventories {
        let addresses = inventory
            .ports
            .iter()
            .flat_map(|port| port.ipv4.known().into_iter().flatten());
        taken.extend(addresses.map(|address| address.network()));
        let routes = inventory.node.routes.known().into_iter().flatten();
        taken.extend(
            routes
                .map(|route| route.destination)
                .filter(|net| net.prefix > 0),
        );
    }
    let overlaps = |one: &Cidr, other: &Cidr| {
        one.contains(other.network().address) || other.contains(one.network().address)
    };
    // A first plane that is in such a range already has nothing to lose by it.
    let avoided: Vec<Cidr> = [
        "198.18.0.0/15",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/3",
        "0.0.0.0/8",
    ]
    .iter()
    .filter_map(|net| net.parse().ok())
    .filter(|net: &Cidr| !first.iter().any(|address| net.contains(address.address)))
    .collect();
    // Who uses an address of one of these means to stay in it (RFC 1918, RFC 6598, RFC 2544).
    let private: Vec<Cidr> = [
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "198.18.0.0/15",
    ]
    .iter()
    .filter_map(|net| net.parse().ok())
    .collect();
    let free = |shift: &(usize, u8)| {
        let nets: Vec<Cidr> = first
            .iter()
            .map(|address| moved(*address, *shift).network())
            .collect();
        nets.iter().zip(first).all(|(net, from)| {
            let of_same = private
                .iter()
                .all(|range| range.contains(from.address) == range.contains(net.address));
            of_same
                && !taken
                    .iter()
                    .chain(&avoided)
                    .any(|other| overlaps(net, other))
        })
    };
    // Only an octet that is whole of the network part is free to move.
    let octets = [1usize, 2].into_iter().filter(|octet| {
        first
            .iter()
            .all(|address| usize::from(address.prefix) >= 8 * (octet + 1))
    });
    let steps = || (1..=25u8).map(|step| step * 10).chain(1..=255);
    octets
        .flat_map(|octet| steps().map(move |step| (octet, step)))
        .find(free)
}

fn planes(hosts: &[HostName], ends: &[End]) -> Vec<Plane> {
    let of = |host: &HostName| {
        ends.iter()
            .enumerate()
            .filter(|(_, end)| end.host == *host)
            .map(|(i, _)| i)
            .collect::<Vec<_>>()
    };
    let network = |end: usize| ends[end].address.network();
    hosts
        .iter()
        .map(|host| {
            let own = of(host);
            let ports = own
                .iter()
                .map(|i| {
                    let end = &ends[*i];
                    // The neighbour's other cable: its subnet lies behind the neighbour.
                    let far = &ends[end.peer];
                    let beyond = of(&far.host).into_iter().filter(|other| *other != end.peer);
                    let routes = beyond
                        .map(network)
                        .filter(|net| !own.iter().any(|own| network(*own) == *net))
                        .map(|net| (net, far.address.address));
                    Port {
                        netdev: end.netdev.clone(),
                        address: end.address,
                        routes: routes.collect(),
                    }
                })
                .collect();
            Plane {
                host: host.clone(),
                ports,
                proposed: false,
                files: Vec::new(),
            }
        })
        .collect()
}

/// The other files that name a port of the plane. None of them is written anew: which devices beside the fabric's
/// it names, the facts do not tell.
fn others(plane: &Plane) -> Vec<&str> {
    let is_of_plane = |name: &NetdevName| plane.ports.iter().any(|port| port.netdev == *name);
    let naming = plane
        .files
        .iter()
        .filter(|file| file.netdevs.iter().any(is_of_plane));
    naming
        .map(|file| file.file.as_str())
        .filter(|name| format!("{FOLDER}{name}") != FILE)
        .collect()
}

/// The netplan file of a node.
pub fn file(plane: &Plane) -> String {
    let others = others(plane);
    let mut text = format!(
        "# {FILE} of {}: the second plane of the switchless ring.\n",
        plane.host
    );
    if !others.is_empty() {
        let names = list(others);
        text += &format!(
            "# These ports are in {names} of {FOLDER} as well, and a port of two files has two owners: change the\n# addresses there in place of this, or take the ports out first (hairpin-mesh netplan {} --remove).\n",
            plane.host
        );
    }
    if plane.proposed {
        text += "# Addresses that were not there follow the first plane's, where no host's facts name a network.\n";
    }
    text += "# Review, then install on this node:\n";
    text += &format!("#   sudo install -m 600 THIS {FILE} && sudo netplan try\n");
    text += "network:\n  version: 2\n  renderer: NetworkManager\n  ethernets:\n";
    for port in &plane.ports {
        text += &format!(
            "    {}:\n      optional: true\n      dhcp4: false\n      dhcp6: false\n      mtu: {ETHERNET_MTU}\n      addresses:\n        - {}\n",
            port.netdev, port.address
        );
        if !port.routes.is_empty() {
            text += "      routes:\n";
        }
        for (net, via) in &port.routes {
            text += &format!("        - to: {net}\n          via: {via}\n");
        }
    }
    text
}

/// Whether a file is a copy of NetworkManager's.
pub(super) fn is_copy(file: &NetplanFile) -> bool {
    file.file.as_str().starts_with(COPY)
}

/// A file as `netplan set --origin-hint` takes it, when its name is one that no shell takes for anything else.
pub(super) fn origin(file: &NetplanFile) -> Option<&str> {
    let name = file.file.as_str().strip_suffix(".yaml")?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (name.bytes().all(plain) && !name.starts_with('-') && !name.is_empty()).then_some(name)
}

/// The steps that really take the second plane away.
pub fn removal(plane: &Plane) -> String {
    let names: Vec<&str> = plane
        .ports
        .iter()
        .map(|port| port.netdev.as_str())
        .collect();
    let pattern = names
        .iter()
        .map(|name| name.replace('.', "\\."))
        .collect::<Vec<_>>()
        .join("|");
    let mut text = format!(
        "# On {}, as root, with no engine running and the mesh down (hairpin-mesh down):\n",
        plane.host
    );
    let is_of_plane = |name: &NetdevName| plane.ports.iter().any(|port| port.netdev == *name);
    let own = |file: &&NetplanFile| format!("{FOLDER}{}", file.file) == FILE;
    // A file that names other ports, too, is not taken away; nor is one that is not ours, of which the facts
    // tell no other device that it may name.
    if plane
        .files
        .iter()
        .find(own)
        .is_none_or(|file| file.netdevs.iter().all(is_of_plane))
    {
        text += &format!("rm -f {FILE}\n");
    }
    for file in &plane.files {
        let named: Vec<&NetdevName> = file
            .netdevs
            .iter()
            .filter(|name| is_of_plane(name))
            .collect();
        let whole = own(&file) && named.len() == file.netdevs.len();
        if whole || named.is_empty() || is_copy(file) {
            continue;
        }
        match origin(file) {
            Some(origin) => {
                for name in named {
                    // A dot is between keys where it is not escaped.
                    let key = name.as_str().replace('.', "\\.");
                    text += &format!("netplan set --origin-hint {origin} 'ethernets.{key}=NULL'\n");
                }
            }
            None => {
                let names: Vec<&str> = named.iter().map(|name| name.as_str()).collect();
                text += &format!(
                    "# Take out of the file of {FOLDER} that names them: {}\n",
                    names.join(", ")
                );
            }
        }
    }
    text += "# NetworkManager keeps copies of what netplan gave it, and brings the plane back from them:\n";
    text += &format!(
        "grep -lE '(^|[^[:alnum:]_.-])({pattern})([^[:alnum:]_.-]|$)' {FOLDER}{COPY}*.yaml 2>/dev/null | xargs -r rm -v --\n"
    );
    for name in &names {
        text += &format!(
            "nmcli -g GENERAL.CON-UUID device show {name} | grep . | xargs -r nmcli connection delete uuid\n"
        );
    }
    text += "netplan generate && netplan apply\n";
    for name in &names {
        text += &format!("ip -4 address flush dev {name}\n");
    }
    text += "# Then nothing of it may be left:\n";
    text += &format!("grep -lE '{pattern}' /etc/netplan/*.yaml\n");
    for name in &names {
        text += &format!("ip -4 -br address show dev {name}\n");
    }
    text
}
