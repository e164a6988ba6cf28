//! Inventories to ring: every check that refuses, all problems at once, causes before consequences.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::facts::{Applied, Fact, GidEntry, Gids, Inventory, PortFacts, ROCE_V2};
use crate::finding::Finding;
use crate::names::{Cidr, Gid, HostName, RdmaName};
use crate::plan::ends::{self, End, count, list};
use crate::plan::mesh::{self, DOMAINS};
use crate::plan::ring::{Direction, Node, Ring, RingPort};

/// What the inventories give: the ring, when there is one, and everything found on the way.
pub struct Derived {
    /// The ring; none when it could not be derived.
    pub ring: Option<Ring>,
    /// The GID index that all ports share (the preferred one when there is none).
    pub gid_index: u8,
    /// The smallest applied hairpin queue size, packets.
    pub hairpin_queue_size: u32,
    /// Problems and warnings.
    pub findings: Vec<Finding>,
}

/// Ports of a node per domain: one for each way around the ring.
const PORTS_PER_DOMAIN: usize = 2;

/// A port in its place in its node, with the address that is on the ring.
#[derive(Clone, Copy)]
struct Located<'a> {
    /// Index into the inventories.
    node: usize,
    host: &'a HostName,
    facts: &'a PortFacts,
    domain: usize,
    /// 0 for the lower PCI function of the domain, 1 for the higher.
    port: usize,
    address: Option<Cidr>,
}

impl<'a> Located<'a> {
    fn label(&self) -> String {
        format!("{} {}", self.host, self.facts.netdev)
    }

    fn end(&self) -> End<'a> {
        End {
            host: self.host,
            netdev: &self.facts.netdev,
            rdma: self.facts.rdma.known().and_then(Option::as_ref),
            pci: self.facts.pci.known().copied().flatten(),
            address: self.address,
            mac: self.facts.mac,
        }
    }
}

/// Derives the ring of `hosts` (the head first) from their inventories, in the same order.
pub fn derive(hosts: &[HostName], inventories: &[Inventory], gid_index: Option<u8>) -> Derived {
    let mut findings = Vec::new();
    let nothing = |findings| Derived {
        ring: None,
        gid_index: gid_index.unwrap_or(mesh::PREFERRED_GID_INDEX),
        hairpin_queue_size: mesh::DEFAULT_HAIRPIN_QUEUE,
        findings,
    };
    for (i, host) in hosts.iter().enumerate() {
        if hosts[..i].contains(host) {
            findings.push(Finding::problem("host-repeated", "is given more than once", "every host once").on(host));
        }
    }
    if let Err(what) = crate::plan::ring::check_size(hosts.len()) {
        findings.push(Finding::problem("ring-size", what, "another number of hosts"));
    }
    if hosts.len() != inventories.len() {
        findings.push(Finding::problem(
            "inventory-count",
            format!("{} inventories for {} hosts", inventories.len(), hosts.len()),
            "one of each host",
        ));
    }
    if !findings.is_empty() {
        return nothing(findings);
    }
    for (host, inventory) in hosts.iter().zip(inventories) {
        if inventory.host != *host {
            findings.push(
                Finding::problem(
                    "inventory-of-another-host",
                    format!("its inventory is of host {}", inventory.host),
                    format!("host {host}"),
                )
                .on(host),
            );
        }
    }

    let (mut ports, placed) = locate(hosts, inventories, &mut findings);
    choose_addresses(&mut ports, &mut findings);
    for port in &ports {
        check_port(port, &mut findings);
    }
    let gid_index = choose_gid_index(&ports, gid_index, &mut findings);
    let ends: Vec<End> = ports.iter().map(Located::end).collect();
    findings.extend(ends::check(&ends));
    if placed && let Some(table) = hca_table(hosts, &ports) {
        findings.extend(ends::check_hca_names(&table));
    }
    check_management(inventories, &mut findings);
    let hairpin_queue_size = smallest_queue(&ports, &mut findings);

    let peers = join(&ports, &mut findings);
    let order = if placed { walk(hosts, &ports, &peers, &mut findings) } else { None };
    let ring = order.and_then(|order| build(hosts, inventories, &ports, &peers, &order));
    Derived { ring, gid_index, hairpin_queue_size, findings }
}

/// Puts every port into its domain and port number. The second value says whether every node has
/// exactly the ports that a ring needs.
fn locate<'a>(
    hosts: &'a [HostName],
    inventories: &'a [Inventory],
    findings: &mut Vec<Finding>,
) -> (Vec<Located<'a>>, bool) {
    let mut located = Vec::new();
    let mut complete = true;
    for (node, (host, inventory)) in hosts.iter().zip(inventories).enumerate() {
        let mut domains: BTreeMap<u32, Vec<(u8, &PortFacts)>> = BTreeMap::new();
        for facts in &inventory.ports {
            let Some(place) = facts.place() else {
                complete = false;
                findings.push(
                    Finding::problem(
                        "port-place-unknown",
                        match &facts.pci {
                            Fact::NotObserved(why) => {
                                format!("no PCI address ({why}) and a name that does not tell it")
                            }
                            Fact::Known(_) => "no PCI address and a name that does not tell it".into(),
                        },
                        "a PCI address, or a name like enP2p1s0f1np1",
                    )
                    .on(host)
                    .at(&facts.netdev),
                );
                continue;
            };
            domains.entry(place.pci_domain).or_default().push((place.function, facts));
        }
        if domains.len() != DOMAINS {
            complete = false;
            let names: Vec<String> = domains.iter().map(|(d, p)| format!("{d:04x}: {}", netdevs(p))).collect();
            findings.push(
                Finding::problem(
                    "domains-per-node",
                    if names.is_empty() {
                        "no fabric ports".to_owned()
                    } else {
                        format!("fabric ports in {} ({})", count(names.len(), "PCI domain"), names.join("; "))
                    },
                    format!("{PORTS_PER_DOMAIN} ports in each of {DOMAINS} PCI domains"),
                )
                .on(host),
            );
        }
        for (domain, (pci_domain, mut ports)) in domains.into_iter().enumerate() {
            ports.sort_by_key(|(function, facts)| (*function, facts.pci.known().copied().flatten(), &facts.netdev));
            if ports.len() != PORTS_PER_DOMAIN {
                complete = false;
                findings.push(
                    Finding::problem(
                        "ports-per-domain",
                        format!("{} in PCI domain {pci_domain:04x} ({})", count(ports.len(), "port"), netdevs(&ports)),
                        format!("{PORTS_PER_DOMAIN}"),
                    )
                    .on(host),
                );
            }
            if ports.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                complete = false;
                findings.push(
                    Finding::problem(
                        "port-numbers",
                        format!("{} are the same PCI function number in PCI domain {pci_domain:04x}", netdevs(&ports)),
                        "two functions of one card, one per QSFP port",
                    )
                    .on(host),
                );
            }
            located.extend(ports.into_iter().enumerate().map(|(port, (_, facts))| Located {
                node,
                host,
                facts,
                domain,
                port,
                address: None,
            }));
        }
    }
    (located, complete)
}

fn netdevs(ports: &[(u8, &PortFacts)]) -> String {
    list(ports.iter().map(|(_, facts)| &facts.netdev))
}

/// Chooses every port's address on the ring: the only one, or the only one that another port's
/// address shares a subnet with.
fn choose_addresses(ports: &mut [Located], findings: &mut Vec<Finding>) {
    let mut on_network: HashMap<Cidr, BTreeSet<usize>> = HashMap::new();
    for (i, port) in ports.iter().enumerate() {
        for address in port.facts.ipv4.known().into_iter().flatten() {
            on_network.entry(address.network()).or_default().insert(i);
        }
    }
    for port in ports.iter_mut() {
        let finding = match &port.facts.ipv4 {
            Fact::NotObserved(why) => {
                Some(Finding::problem("port-address", format!("IPv4 addresses not observed: {why}"), "one"))
            }
            Fact::Known(addresses) => match addresses.as_slice() {
                [] => {
                    let gid = match &port.facts.gids {
                        Gids::IndexThree { gid: Gid::ZERO, .. } => " and GID index 3 is all zero",
                        Gids::Table(table) if table.iter().all(|e| e.gid.ipv4().is_none()) => " and no GID maps one",
                        _ => "",
                    };
                    Some(
                        Finding::problem("port-address", format!("no IPv4 address{gid}"), "one")
                            .advise("give the port an address of its cable's subnet first: GIDs follow from it"),
                    )
                }
                [only] => {
                    port.address = Some(*only);
                    None
                }
                several => {
                    let with_peer: Vec<&Cidr> =
                        several.iter().filter(|a| on_network.get(&a.network()).is_some_and(|p| p.len() > 1)).collect();
                    match with_peer.as_slice() {
                        [one] => {
                            port.address = Some(**one);
                            None
                        }
                        [] => Some(Finding::problem(
                            "port-address",
                            format!("none of its addresses ({}) has its peer on the ring", list(several)),
                            "exactly one",
                        )),
                        more => Some(Finding::problem(
                            "port-in-two-subnets",
                            format!("more than one of its addresses ({}) has a peer on the ring", list(more)),
                            "exactly one",
                        )),
                    }
                }
            },
        };
        findings.extend(finding.map(|f| f.on(port.host).at(&port.facts.netdev)));
        if let Some(address) = port.address {
            if !(8..=31).contains(&address.prefix) {
                let found = format!("address {address} has a prefix of {} bits", address.prefix);
                let wanted = "8 to 31 (/24, /30 or /31 as a rule)";
                findings.push(Finding::problem("port-prefix", found, wanted).on(port.host).at(&port.facts.netdev));
            }
            // RFC 2544's range; local proxies answer DNS with its addresses.
            if address.address.octets()[0] == 198 && matches!(address.address.octets()[1], 18 | 19) {
                findings.push(
                    Finding::warning(
                        "port-address-198-18",
                        format!("address {address} is in 198.18.0.0/15"),
                        "another range",
                    )
                    .on(port.host)
                    .at(&port.facts.netdev)
                    .advise("local proxies use that range for fake DNS answers"),
                );
            }
        }
    }
}

/// The settings of one port that refuse a node.
fn check_port(port: &Located, findings: &mut Vec<Finding>) {
    let facts = port.facts;
    let mut problem = |code, found: String, wanted: &str| {
        findings.push(Finding::problem(code, found, wanted).on(port.host).at(&facts.netdev));
    };
    if facts.state != "up" {
        problem(
            "port-link",
            format!("link {}", if facts.state.is_empty() { "state unknown" } else { &facts.state }),
            "up",
        );
    }
    if facts.mtu != mesh::ETHERNET_MTU {
        problem("port-mtu", format!("MTU {}", facts.mtu), "9000");
    }
    match &facts.rdma {
        Fact::Known(Some(_)) => {}
        Fact::Known(None) => problem("port-rdma", "no RDMA device".into(), "one"),
        Fact::NotObserved(why) => problem("port-rdma", format!("RDMA device not observed: {why}"), "one"),
    }
    match &facts.tc_offload {
        Fact::Known(true) => {}
        Fact::Known(false) => problem("port-tc-offload", "hw-tc-offload off".into(), "on"),
        Fact::NotObserved(why) => problem("port-tc-offload", format!("hw-tc-offload not observed: {why}"), "on"),
    }
    match &facts.flow_steering_mode {
        Fact::Known(None) => {}
        Fact::Known(Some(mode)) if mode == mesh::STEERING_MODE => {}
        Fact::Known(Some(mode)) => problem("port-steering", format!("flow_steering_mode {mode}"), mesh::STEERING_MODE),
        Fact::NotObserved(why) => {
            problem("port-steering", format!("flow_steering_mode not observed: {why}"), mesh::STEERING_MODE)
        }
    }
    // Reading the next three needs root or libibverbs: unknown is left to `verify`.
    if let Some(Some(mode)) = facts.eswitch_mode.known()
        && mode != "legacy"
    {
        problem("port-eswitch", format!("eswitch mode {mode}"), "legacy");
    }
    if let Some(state) = facts.rdma_state.known()
        && state != "ACTIVE"
    {
        problem("port-rdma-state", format!("RDMA port {state}"), "ACTIVE");
    }
    if let Some(mtu) = facts.rdma_active_mtu.known()
        && *mtu != mesh::ROCE_MTU
    {
        problem("port-rdma-mtu", format!("active RDMA MTU {mtu}"), "4096");
    }
}

/// Management must not live on a fabric port: a re-initialisation takes that port away, and the
/// topology document has no place for it.
fn check_management(inventories: &[Inventory], findings: &mut Vec<Finding>) {
    for inventory in inventories {
        let name = match &inventory.management_netdev {
            Fact::Known(Some(name)) => name.as_str(),
            _ => mesh::DEFAULT_MANAGEMENT_NETDEV,
        };
        if inventory.ports.iter().any(|p| p.netdev.as_str() == name) {
            findings.push(
                Finding::problem(
                    "management-on-fabric",
                    "the default route goes out of a fabric port",
                    "another network device",
                )
                .on(&inventory.host)
                .at(name),
            );
        }
    }
}

/// Whether `entry` is the RoCE v2 GID of `address` on the port's own network device.
fn maps(entry: &GidEntry, port: &PortFacts, address: Cidr) -> bool {
    entry.gid == Gid::ipv4_mapped(address.address)
        && entry.kind == ROCE_V2
        && entry.netdev.as_ref() == Some(&port.netdev)
}

/// The GID indices at which a port has its address.
fn valid_gid_indices(port: &PortFacts, address: Cidr) -> BTreeSet<u8> {
    match &port.gids {
        Gids::Table(table) => table.iter().filter(|e| maps(e, port, address)).map(|e| e.index).collect(),
        Gids::IndexThree { gid, netdev } => {
            // Today's tool does not record the type; its index 3 is the RoCE v2 entry.
            let good = *gid == Gid::ipv4_mapped(address.address) && netdev.as_ref() == Some(&port.netdev);
            good.then_some(3).into_iter().collect()
        }
        Gids::NotObserved(_) => BTreeSet::new(),
    }
}

/// What is at `index` of a port's GID table, for a message.
fn gid_at(port: &PortFacts, index: u8) -> String {
    let shown = |gid: Gid, kind: &str, netdev: Option<&crate::names::NetdevName>| {
        if gid == Gid::ZERO {
            return "all zero".to_owned();
        }
        let address = gid.ipv4().map(|a| format!(" ({a})")).unwrap_or_default();
        let kind = if kind.is_empty() { String::new() } else { format!(", {kind}") };
        let netdev = netdev.map_or_else(|| ", of no network device".to_owned(), |n| format!(", of {n}"));
        format!("{gid}{address}{kind}{netdev}")
    };
    match &port.gids {
        Gids::Table(table) => table
            .iter()
            .find(|e| e.index == index)
            .map_or_else(|| "empty".to_owned(), |e| shown(e.gid, &e.kind, e.netdev.as_ref())),
        Gids::IndexThree { gid, netdev } if index == 3 => shown(*gid, "", netdev.as_ref()),
        Gids::IndexThree { .. } => "not in this inventory (it has index 3 alone)".to_owned(),
        Gids::NotObserved(why) => format!("not observed: {why}"),
    }
}

/// The one index at which every port has its address: the demanded one, else the preferred one,
/// else the lowest.
fn choose_gid_index(ports: &[Located], demanded: Option<u8>, findings: &mut Vec<Finding>) -> u8 {
    let sets: Vec<(&Located, Cidr, BTreeSet<u8>)> =
        ports.iter().filter_map(|p| p.address.map(|a| (p, a, valid_gid_indices(p.facts, a)))).collect();
    if demanded.is_none() {
        let mut common: Option<BTreeSet<u8>> = None;
        for (_, _, set) in &sets {
            common = Some(common.map_or_else(|| set.clone(), |c| c.intersection(set).copied().collect()));
        }
        let common = common.unwrap_or_default();
        if common.contains(&mesh::PREFERRED_GID_INDEX) {
            return mesh::PREFERRED_GID_INDEX;
        }
        if let Some(lowest) = common.first() {
            return *lowest;
        }
        let without_any = sets.iter().any(|(_, _, set)| set.is_empty());
        if !without_any && !sets.is_empty() {
            let table = list(sets.iter().map(|(p, _, set)| {
                format!("{}={}", p.label(), set.iter().map(u8::to_string).collect::<Vec<_>>().join("/"))
            }));
            findings.push(
                Finding::problem("gid-index-differs", format!("the ports have their RoCE v2 IPv4 GIDs at different indices ({table})"), "one index on all")
                    .advise("an entry still held when its address came back leaves a hole: stop what holds it, then remove and add the address again"),
            );
            return mesh::PREFERRED_GID_INDEX;
        }
    }
    let index = demanded.unwrap_or(mesh::PREFERRED_GID_INDEX);
    for (port, address, set) in &sets {
        // Without a demand, a port that has its GID at another index is not the one to blame.
        if if demanded.is_some() { set.contains(&index) } else { !set.is_empty() } {
            continue;
        }
        let wanted =
            format!("{} (RoCE v2, {}) of {}", Gid::ipv4_mapped(address.address), address.address, port.facts.netdev);
        let elsewhere = if set.is_empty() { String::new() } else { format!("; it is at index {}", list(set)) };
        findings.push(
            Finding::problem(
                "port-gid",
                format!("GID index {index} is {}{elsewhere}", gid_at(port.facts, index)),
                wanted,
            )
            .on(port.host)
            .at(&port.facts.netdev),
        );
    }
    index
}

/// The HCAs of every host in HCA order, when every node has its ports and every port its device.
fn hca_table<'a>(hosts: &'a [HostName], ports: &[Located<'a>]) -> Option<Vec<(&'a HostName, Vec<&'a RdmaName>)>> {
    let table = hosts.iter().enumerate().map(|(node, host)| {
        let mut own: Vec<&Located> = ports.iter().filter(|p| p.node == node).collect();
        own.sort_by_key(|p| (p.domain, p.port));
        let names: Option<Vec<&RdmaName>> = own.iter().map(|p| p.facts.rdma.known()?.as_ref()).collect();
        Some((host, names?))
    });
    table.collect()
}

/// The smallest applied hairpin queue size; what is not known to be applied counts as the
/// driver's default.
fn smallest_queue(ports: &[Located], findings: &mut Vec<Finding>) -> u32 {
    let mut smallest: Option<u32> = None;
    let mut unsaid: Vec<String> = Vec::new();
    let default = mesh::DEFAULT_HAIRPIN_QUEUE;
    for port in ports {
        let facts = port.facts;
        let mut warn = |code, found: String, wanted: &str| {
            findings.push(Finding::warning(code, found, wanted).on(port.host).at(&facts.netdev));
        };
        let size = match (&facts.hairpin_queue_size, facts.hairpin_queue_applied) {
            (Fact::Known(Some(size)), applied @ (Applied::Applied | Applied::Unsaid)) => {
                if !(default..=mesh::WANTED_HAIRPIN_QUEUE).contains(size) || !size.is_power_of_two() {
                    warn("hairpin-queue-odd", format!("hairpin_queue_size {size}"), "a power of two from 1024 to 8192");
                }
                if applied == Applied::Unsaid {
                    unsaid.push(format!("{}={size}", port.label()));
                }
                *size
            }
            (Fact::Known(Some(size)), Applied::Pending) => {
                warn(
                    "hairpin-queue-pending",
                    format!("hairpin_queue_size {size} is set but not loaded; {default} counts for the cap"),
                    "it applied (driver re-initialisation)",
                );
                default
            }
            (Fact::Known(Some(size)), Applied::Unknown) => {
                warn(
                    "hairpin-queue-unknown",
                    format!("hairpin_queue_size {size} may or may not be loaded; {default} counts for the cap"),
                    "a size known to be applied",
                );
                default
            }
            (Fact::Known(None), _) => {
                warn(
                    "hairpin-queue-unknown",
                    format!("the driver shows no hairpin_queue_size; {default} counts for the cap"),
                    "a size known to be applied",
                );
                default
            }
            (Fact::NotObserved(why), _) => {
                warn(
                    "hairpin-queue-unknown",
                    format!("hairpin_queue_size not observed: {why}; {default} counts for the cap"),
                    "a size known to be applied",
                );
                default
            }
        };
        smallest = Some(smallest.map_or(size, |s| s.min(size)));
        let wanted = mesh::QUALIFIED_HAIRPIN_NUM_QUEUES;
        match &facts.hairpin_num_queues {
            Fact::Known(Some(n)) if *n == wanted => {}
            Fact::Known(Some(n)) => warn("hairpin-num-queues", format!("hairpin_num_queues {n}"), "4"),
            Fact::Known(None) => warn("hairpin-num-queues", "the driver shows no hairpin_num_queues".into(), "4"),
            Fact::NotObserved(why) => {
                warn("hairpin-num-queues", format!("hairpin_num_queues not observed: {why}"), "4")
            }
        }
    }
    if !unsaid.is_empty() {
        let sizes: BTreeSet<&str> = unsaid.iter().filter_map(|u| u.rsplit('=').next()).collect();
        findings.push(
            Finding::warning(
                "hairpin-queue-unsaid",
                format!(
                    "hairpin_queue_size {} is taken as applied on {} ports whose inventory does not say so",
                    list(sizes),
                    unsaid.len()
                ),
                "an inventory by hairpin-mesh",
            )
            .advise("devlink shows the value last set, loaded or not"),
        );
    }
    smallest.unwrap_or(default)
}

/// Peers of ports, as indices: joined by their subnets. Reports every subnet that is not a cable.
fn join(ports: &[Located], findings: &mut Vec<Finding>) -> HashMap<usize, usize> {
    let mut subnets: BTreeMap<Cidr, Vec<usize>> = BTreeMap::new();
    for (i, port) in ports.iter().enumerate() {
        if let Some(address) = port.address {
            subnets.entry(address.network()).or_default().push(i);
        }
    }
    let mut peers = HashMap::new();
    for (subnet, ends) in &subnets {
        let names = || list(ends.iter().map(|i| ports[*i].label()));
        let [a, b] = ends.as_slice() else {
            findings.push(
                Finding::problem("subnet-ends", format!("{} ({})", count(ends.len(), "end"), names()), "two")
                    .at(subnet),
            );
            continue;
        };
        let (one, other) = (&ports[*a], &ports[*b]);
        if one.node == other.node {
            findings.push(
                Finding::problem("self-cable", format!("both ends are on one host ({})", names()), "two hosts")
                    .at(subnet),
            );
        } else if one.domain != other.domain {
            findings.push(
                Finding::problem(
                    "cross-domain-cable",
                    format!(
                        "joins domain {} of {} to domain {} of {}",
                        one.domain,
                        one.label(),
                        other.domain,
                        other.label()
                    ),
                    "the same domain at both ends",
                )
                .at(subnet),
            );
        } else {
            peers.insert(*a, *b);
            peers.insert(*b, *a);
        }
    }
    // Sorted by address, then prefix: a network that contains another comes right before it.
    let networks: Vec<&Cidr> = subnets.keys().collect();
    for (i, wide) in networks.iter().enumerate() {
        for narrow in networks[i + 1..].iter().take_while(|n| wide.contains(n.address)) {
            findings.push(
                Finding::problem("subnets-overlap", format!("contains {narrow}"), "subnets that do not overlap")
                    .at(wide)
                    .advise("both ends of a cable need the same prefix length"),
            );
        }
    }
    peers
}

/// The ring order as indices into `hosts`, the head first; none (with what was found) when the
/// cables make no ring.
fn walk(
    hosts: &[HostName],
    ports: &[Located],
    peers: &HashMap<usize, usize>,
    findings: &mut Vec<Finding>,
) -> Option<Vec<usize>> {
    let find = |node: usize, domain: usize, port: usize| {
        ports.iter().position(|p| p.node == node && p.domain == domain && p.port == port)
    };
    let peer_node = |node, domain, port| Some(ports[*peers.get(&find(node, domain, port)?)?].node);
    let before = findings.len();

    for (node, host) in hosts.iter().enumerate() {
        for domain in 0..DOMAINS {
            if let (Some(a), Some(b)) = (peer_node(node, domain, 0), peer_node(node, domain, 1))
                && a == b
            {
                findings.push(
                    Finding::problem(
                        "neighbour-twice",
                        format!("reaches {} over two ports of domain {domain}", hosts[a]),
                        "one port of a domain per neighbour",
                    )
                    .on(host),
                );
            }
        }
        for port in 0..PORTS_PER_DOMAIN {
            let reached: Vec<Option<usize>> = (0..DOMAINS).map(|domain| peer_node(node, domain, port)).collect();
            if let [Some(first), Some(second)] = reached[..]
                && first != second
            {
                let names = list((0..DOMAINS).filter_map(|d| find(node, d, port)).map(|i| &ports[i].facts.netdev));
                findings.push(
                    Finding::problem(
                        "domains-differ",
                        format!("port {port} reaches {} on domain 0 and {} on domain 1", hosts[first], hosts[second]),
                        "the same neighbour on both domains of a cable",
                    )
                    .on(host)
                    .at(names.replace(", ", "+")),
                );
            }
        }
    }

    let mut order = vec![0];
    let mut leave = find(0, 0, 0)?;
    loop {
        let arrive = *peers.get(&leave)?;
        let node = ports[arrive].node;
        if node == 0 {
            break;
        }
        if order.contains(&node) {
            // Cannot happen while every cable has two ends; ends the walk if it ever does.
            findings.push(Finding::problem(
                "ring-open",
                format!("the walk from {} comes back to {} and never to its head", hosts[0], hosts[node]),
                "a ring through all hosts",
            ));
            return None;
        }
        order.push(node);
        leave = find(node, 0, 1 - ports[arrive].port)?;
    }
    if order.len() != hosts.len() {
        findings.push(Finding::problem(
            "ring-size",
            format!(
                "the walk from {} closes after {} ({})",
                hosts[0],
                count(order.len(), "host"),
                list(order.iter().map(|n| &hosts[*n]))
            ),
            format!("a ring through all {}", hosts.len()),
        ));
    }
    (findings.len() == before).then_some(order)
}

/// The ring value, from a walk that found no fault.
fn build(
    hosts: &[HostName],
    inventories: &[Inventory],
    ports: &[Located],
    peers: &HashMap<usize, usize>,
    order: &[usize],
) -> Option<Ring> {
    let size = order.len();
    let facing = |rank: usize, direction: Direction, domain: usize| -> Option<RingPort> {
        let (node, neighbour) = (order[rank], order[direction.step(rank, size)]);
        let (i, port) = ports.iter().enumerate().find(|(i, p)| {
            p.node == node && p.domain == domain && peers.get(i).is_some_and(|peer| ports[*peer].node == neighbour)
        })?;
        debug_assert!(peers.contains_key(&i));
        Some(RingPort {
            netdev: port.facts.netdev.clone(),
            rdma: port.facts.rdma.known()?.clone()?,
            pci: port.facts.pci.known().copied().flatten(),
            ipv4: port.address?,
            mac: port.facts.mac,
            hca_index: domain * PORTS_PER_DOMAIN + port.port,
        })
    };
    let nodes = (0..size).map(|rank| {
        let way = |direction| Some([facing(rank, direction, 0)?, facing(rank, direction, 1)?]);
        Some(Node {
            host: hosts[order[rank]].clone(),
            ports: [way(Direction::Clockwise)?, way(Direction::CounterClockwise)?],
            management_netdev: inventories[order[rank]].management_netdev.known().cloned().flatten(),
        })
    });
    Some(Ring { nodes: nodes.collect::<Option<_>>()? })
}
