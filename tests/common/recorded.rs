//! A node of the mesh as its kernel once told it (`tests/captured/node`), with as many filters and routes
//! of others beside the mesh's as is asked for.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hairpin_mesh::facts::{Fact, Filter, Side};
use hairpin_mesh::kernel::netlink::Message;
use hairpin_mesh::kernel::route::{Link, Listing};
use hairpin_mesh::mesh::present::Present;
use hairpin_mesh::names::HostName;
use hairpin_mesh::node::identity::PlanDocument;
use hairpin_mesh::node::read::Tables;
use hairpin_mesh::plan::HostPlan;

use crate::memory::{bare, marker};

/// rtnetlink's answers to dumps (`linux/rtnetlink.h`).
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;
const RTM_NEWQDISC: u16 = 36;
const RTM_NEWTFILTER: u16 = 44;
/// Where the index of the device, the handle and `tcm_info` are in `struct tcmsg` (`linux/rtnetlink.h`).
const TCM_IFINDEX: std::ops::Range<usize> = 4..8;
const TCM_HANDLE: std::ops::Range<usize> = 8..12;
const TCM_INFO: std::ops::Range<usize> = 16..20;

/// The address of the one route, and of the one filter, of somebody else in the record.
const FOREIGN: [u8; 4] = [198, 18, 0, 1];

/// The messages of each table, and the plan that the node had.
pub struct Recorded {
    pub plan: PlanDocument,
    pub host: HostName,
    links: Vec<Message>,
    addresses: Vec<Message>,
    routes: Vec<Message>,
    neighbours: Vec<Message>,
    qdiscs: Vec<Message>,
    /// By index of the device, as they are asked for.
    filters: BTreeMap<u32, Vec<Message>>,
}

impl Recorded {
    /// The node with `foreign` routes of somebody else, and as many filters at the ingress of one of its
    /// ports, which has a rule of the mesh too.
    pub fn node(foreign: usize) -> Recorded {
        let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "captured", "node"]
            .iter()
            .collect();
        let file = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let table = |name: &str, kind| -> Vec<Message> {
            let message = |line: &str| Message {
                kind,
                payload: unhex(line),
            };
            file(name).lines().map(message).collect()
        };
        let mut filters: BTreeMap<u32, Vec<Message>> = BTreeMap::new();
        for message in many(table("filters.hex", RTM_NEWTFILTER), foreign) {
            let index = word(&message, TCM_IFINDEX);
            filters.entry(index).or_default().push(message);
        }
        Recorded {
            plan: PlanDocument::read("plan.json", file("plan.json").into_bytes()).unwrap(),
            host: file("host").trim().parse().unwrap(),
            links: table("links.hex", RTM_NEWLINK),
            addresses: table("addresses.hex", RTM_NEWADDR),
            routes: many(table("routes.hex", RTM_NEWROUTE), foreign),
            neighbours: table("neighbours.hex", RTM_NEWNEIGH),
            qdiscs: table("qdiscs.hex", RTM_NEWQDISC),
            filters,
        }
    }

    /// The node's share of its plan.
    pub fn host_plan(&self) -> HostPlan<'_> {
        self.plan.plan.for_host(self.host.as_str()).unwrap()
    }

    /// The same with the filters alone that the kernel gives when it is asked for those at the mesh's
    /// preferences.
    pub fn at_own_preferences(mut self) -> Recorded {
        let rules = self.host_plan().rules;
        let own: Vec<u32> = rules.iter().map(|rule| rule.pref.into()).collect();
        let own = |message: &Message| {
            let pref = word(message, TCM_INFO) >> 16;
            own.contains(&pref)
        };
        for messages in self.filters.values_mut() {
            messages.retain(own);
        }
        self
    }

    /// A port, and what a marker of it is, as the plan wants them: for what is not rtnetlink's.
    pub fn rest(&self, host: &HostPlan) -> Present {
        let mut rest = bare(&self.plan.plan, host);
        for state in rest.markers.values_mut() {
            *state = Fact::Known(marker("active"));
        }
        rest
    }

    /// What the host has, by the decoders and the way of putting together that `up` and `verify` have.
    pub fn present(&self, rest: &Present) -> Present {
        let mut present = rest.clone();
        let links = whole(Listing::links(&self.links));
        present.routes = Fact::Known(whole(Listing::routes(&self.routes, &links)));
        let filters_of = |link: &Link, links: &[Link]| -> Vec<Filter> {
            let messages = self.filters.get(&link.index).map_or(&[][..], Vec::as_slice);
            whole(Listing::filters(messages, Side::Ingress, links))
        };
        let tables = Tables {
            links: Fact::Known(links),
            addresses: Fact::Known(whole(Listing::addresses(&self.addresses))),
            qdiscs: Fact::Known(whole(Listing::qdiscs(&self.qdiscs))),
            neighbours: Fact::Known(whole(Listing::neighbours(&self.neighbours))),
        };
        let links = tables.links.known().unwrap();
        for port in &mut present.ports {
            match tables.tell(port) {
                Fact::Known(Some(link)) => port.filters = Fact::Known(filters_of(link, links)),
                other => panic!("{}: {other:?}", port.netdev),
            }
        }
        present
    }
}

fn whole<T>(listing: Listing<T>) -> Vec<T> {
    assert_eq!(listing.left_out, Vec::<String>::new());
    listing.rows
}

/// The messages with `count` in place of the one that has the foreign address, each with an address of
/// its own and, a filter, a handle of its own.
fn many(messages: Vec<Message>, count: usize) -> Vec<Message> {
    let mut all = Vec::new();
    let mut found = 0;
    for message in messages {
        let places: Vec<usize> = (0..message.payload.len().saturating_sub(3))
            .filter(|at| message.payload[*at..*at + 4] == FOREIGN)
            .collect();
        let [place] = places[..] else {
            assert!(places.is_empty(), "{places:?}");
            all.push(message);
            continue;
        };
        found += 1;
        for number in 1..=count {
            let mut one = message.clone();
            let [_, high, middle, low] = u32::try_from(number).unwrap().to_be_bytes();
            let address = [198, 18 + high, middle, low];
            one.payload[place..place + 4].copy_from_slice(&address);
            if one.kind == RTM_NEWTFILTER {
                let handle = u32::try_from(number).unwrap().to_ne_bytes();
                one.payload[TCM_HANDLE].copy_from_slice(&handle);
            }
            all.push(one);
        }
    }
    assert_eq!(found, 1, "the record has one foreign object of each kind");
    all
}

fn word(message: &Message, at: std::ops::Range<usize>) -> u32 {
    u32::from_ne_bytes(message.payload[at].try_into().unwrap())
}

fn unhex(line: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    line.as_bytes().chunks_exact(2).map(byte).collect()
}
