//! What the host has now of everything that its share of the plan touches, by as few questions as can
//! be: `up` asks them at every start, mostly to find that nothing is to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use crate::collect::port::{of_device, queue_pair};
use crate::facts::{Fact, Filter, GidEntry, Neighbour, Qdisc, QueuePair, Side};
use crate::kernel::devlink::{Devlink, FLOW_STEERING_MODE, Handle, Mode, Param};
use crate::kernel::ethtool::{Ethtool, HW_TC_OFFLOAD};
use crate::kernel::netlink;
use crate::kernel::process::Process;
use crate::kernel::rdma::{self, Nldev};
use crate::kernel::route::{Link, Listing, Rtnetlink};
use crate::kernel::sysfs;
use crate::kernel::systemd::{self, Systemd, UnitState};
use crate::mesh::present::{Device, LinkNow, MarkerNow, Open, PortMore, PortNow, Present};
use crate::names::{Cidr, Gid, NetdevName, PciAddress, RdmaName, Text};
use crate::plan::HostPlan;
use crate::plan::mesh::marker_unit;
use crate::verbs::{self, Verbs};

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// The ports.
    pub ports: Vec<SubjectPort>,
    /// RDMA devices whose marker's unit is asked about.
    pub markers: Vec<RdmaName>,
    /// Preferences of rules, by port; the filters at these alone are read ...
    pub rules: Vec<(NetdevName, u16)>,
    /// ... but for these ports, whose filters are read on both sides.
    pub all_filters: BTreeSet<NetdevName>,
    /// Whether the settings of the ports are asked about: addresses, offload, steering, RDMA port, GID.
    /// Without them the objects of the mesh are seen, and with fewer questions.
    pub settings: bool,
    /// Whether neighbours are asked about.
    pub neighbours: bool,
    /// Whether what `verify` alone looks at is asked about.
    pub more: bool,
}

/// A port that is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectPort {
    /// Its network device.
    pub netdev: NetdevName,
    /// Its RDMA device.
    pub rdma: RdmaName,
    /// Its function, where the plan knows it.
    pub pci: Option<PciAddress>,
    /// The GID index of the plan.
    pub gid_index: u8,
}

impl Subject {
    /// Adds what a host's share of a plan touches.
    pub fn add(&mut self, host: &HostPlan, gid_index: u8) {
        for row in &host.ports {
            if !self.ports.iter().any(|port| port.netdev == row.netdev) {
                self.ports.push(SubjectPort {
                    netdev: row.netdev.clone(),
                    rdma: row.rdma.clone(),
                    pci: row.pci,
                    gid_index,
                });
            }
        }
        for row in &host.markers {
            if !self.markers.contains(&row.device) {
                self.markers.push(row.device.clone());
            }
        }
        for row in &host.rules {
            let rule = (row.dev.clone(), row.pref);
            if !self.rules.contains(&rule) {
                self.rules.push(rule);
            }
        }
        self.neighbours |= !host.neighbours.is_empty();
    }
}

/// Whom to ask; each is opened when it is first asked. A source that cannot be opened gives its reason to
/// every fact that it would have told.
#[derive(Default)]
pub struct Sources {
    route: Option<Result<Rtnetlink, netlink::Error>>,
    pub(super) ethtool: Option<Result<Ethtool, netlink::Error>>,
    pub(super) devlink: Option<Result<Devlink, netlink::Error>>,
    nldev: Option<Result<Nldev, netlink::Error>>,
    systemd: Option<Result<Systemd, systemd::Error>>,
    verbs: Option<Result<Verbs, verbs::Error>>,
    /// The devices as they were when they were last read.
    pub(super) links: Vec<Link>,
}

/// A source that is there once it was asked for.
pub(super) trait Source: Sized {
    type Error: Display;
    fn open() -> Result<Self, Self::Error>;
}

macro_rules! sources {
    ($($source:ty, $error:ty, $open:path;)*) => {$(
        impl Source for $source {
            type Error = $error;
            fn open() -> Result<Self, Self::Error> {
                $open()
            }
        }
    )*};
}
sources! {
    Rtnetlink, netlink::Error, Rtnetlink::open;
    Ethtool, netlink::Error, Ethtool::open;
    Devlink, netlink::Error, Devlink::open;
    Nldev, netlink::Error, Nldev::open;
    Systemd, systemd::Error, Systemd::open;
    Verbs, verbs::Error, Verbs::load;
}

/// Asks a source. `what` names what is asked, for the reason.
pub(super) fn ask<S: Source, T, F: Display>(
    source: &mut Option<Result<S, S::Error>>,
    what: &str,
    question: impl FnOnce(&mut S) -> Result<T, F>,
) -> Fact<T> {
    match source.get_or_insert_with(S::open) {
        Ok(source) => question(source).map_err(|e| format!("{what}: {e}")).into(),
        Err(error) => Fact::because(format!("{what}: {error}")),
    }
}

/// The rows of a listing. A row that could not be read could be the one that counts, so then none is
/// known.
fn whole<T>(fact: Fact<Listing<T>>) -> Fact<Vec<T>> {
    match fact {
        Fact::Known(listing) => match listing.left_out.first() {
            None => Fact::Known(listing.rows),
            Some(why) => Fact::because(why),
        },
        Fact::NotObserved(why) => Fact::NotObserved(why),
    }
}

/// What rtnetlink told of all devices. Not part of what the library offers: public for the benchmarks,
/// which make it of what a kernel once sent.
#[doc(hidden)]
pub struct Tables {
    pub links: Fact<Vec<Link>>,
    pub addresses: Fact<Vec<(u32, Cidr)>>,
    pub qdiscs: Fact<Vec<(u32, Qdisc)>>,
    pub neighbours: Fact<Vec<(u32, Neighbour)>>,
}

impl Tables {
    /// Tells a port what is known of it, and gives its device.
    pub fn tell(&self, port: &mut PortNow) -> Fact<Option<&Link>> {
        let link = self.links.as_ref().map(|links| {
            let mut links = links.iter();
            links.find(|link| link.name == port.netdev)
        });
        port.link = link.as_ref().map(|link| link.map(link_now));
        if let Fact::Known(Some(link)) = link {
            port.addresses = of_device(&self.addresses, link.index);
            port.qdiscs = of_device(&self.qdiscs, link.index);
            port.neighbours = of_device(&self.neighbours, link.index);
        }
        link
    }
}

impl Sources {
    /// rtnetlink and the devices as they were when they were last read.
    pub(super) fn route(&mut self) -> Result<(&mut Rtnetlink, &[Link]), &netlink::Error> {
        match self.route.get_or_insert_with(Rtnetlink::open) {
            Ok(route) => Ok((route, &self.links)),
            Err(error) => Err(error),
        }
    }

    /// systemd.
    pub(super) fn systemd(&mut self) -> &mut Result<Systemd, systemd::Error> {
        self.systemd.get_or_insert_with(Systemd::open)
    }

    /// What is there now.
    pub fn read(&mut self, subject: &Subject, recorded_clsacts: BTreeSet<NetdevName>) -> Present {
        let links = whole(ask(&mut self.route, "links", Rtnetlink::links));
        self.links = links.known().cloned().unwrap_or_default();
        let unasked = "not asked about";
        let tables = Tables {
            addresses: if subject.settings {
                whole(ask(&mut self.route, "addresses", Rtnetlink::addresses))
            } else {
                Fact::because(unasked)
            },
            qdiscs: whole(ask(&mut self.route, "qdiscs", Rtnetlink::qdiscs)),
            neighbours: if subject.neighbours {
                whole(ask(&mut self.route, "neighbours", Rtnetlink::neighbours))
            } else {
                Fact::because(unasked)
            },
            links,
        };
        let routes = whole(ask(&mut self.route, "routes", |route| {
            route.routes(&self.links)
        }));
        let params = if subject.settings {
            ask(&mut self.devlink, "devlink parameters", Devlink::all_params)
        } else {
            Fact::because(unasked)
        };
        let devices = ask(&mut self.nldev, "RDMA devices", Nldev::devices);
        let mut ports = Vec::new();
        for port in &subject.ports {
            let mut now = nothing(&port.netdev, unasked);
            match tables.tell(&mut now) {
                Fact::Known(Some(link)) => {
                    if subject.settings {
                        now.offload = ask(&mut self.ethtool, "ethtool features", |ethtool| {
                            ethtool.feature(&link.name, HW_TC_OFFLOAD)
                        })
                        .map(|feature| feature.active);
                        (now.rdma_state, now.gid) = self.rdma(port, link, &devices);
                    }
                    now.steering = steering(&params, link, port);
                    now.filters = self.filters(subject, link);
                    if subject.more {
                        now.more = self.more(port, link, &params, &devices);
                    }
                }
                Fact::Known(None) => {
                    now = PortNow {
                        link: Fact::Known(None),
                        ..nothing(&port.netdev, "no such network device")
                    }
                }
                Fact::NotObserved(why) => now = nothing(&port.netdev, &why),
            }
            ports.push(now);
        }
        Present {
            ports,
            routes,
            markers: self.markers(subject, &devices),
            recorded_clsacts,
            dropped_when_made: BTreeMap::new(),
        }
    }

    /// How all network devices stand to each other.
    pub fn devices(&mut self) -> Fact<Vec<Device>> {
        let links = whole(ask(&mut self.route, "links", Rtnetlink::links));
        let device = |link: &Link| Device {
            name: link.name.clone(),
            index: link.index,
            lower: link.lower,
            master: link.master,
        };
        links
            .as_ref()
            .map(|links| links.iter().map(device).collect())
    }

    /// The routes, and of every network device the queueing disciplines and filters: what a mesh leaves that
    /// nobody knows the plan of. Nothing else is asked.
    pub fn everywhere(&mut self, recorded_clsacts: BTreeSet<NetdevName>) -> Present {
        let links = whole(ask(&mut self.route, "links", Rtnetlink::links));
        self.links = match links {
            Fact::Known(links) => links,
            Fact::NotObserved(why) => {
                return Present {
                    routes: Fact::NotObserved(why),
                    recorded_clsacts,
                    ..Present::default()
                };
            }
        };
        let qdiscs = whole(ask(&mut self.route, "qdiscs", Rtnetlink::qdiscs));
        let routes = whole(ask(&mut self.route, "routes", |route| {
            route.routes(&self.links)
        }));
        let subject = Subject {
            all_filters: self.links.iter().map(|link| link.name.clone()).collect(),
            ..Subject::default()
        };
        let ports = self.links.clone().into_iter().map(|link| PortNow {
            qdiscs: of_device(&qdiscs, link.index),
            filters: self.filters(&subject, &link),
            link: Fact::Known(Some(link_now(&link))),
            ..nothing(&link.name, "not asked about")
        });
        Present {
            ports: ports.collect(),
            routes,
            recorded_clsacts,
            ..Present::default()
        }
    }

    /// The state of a port's RDMA port, and the GID at the plan's index.
    fn rdma(
        &mut self,
        port: &SubjectPort,
        link: &Link,
        devices: &Fact<Vec<rdma::Device>>,
    ) -> (Fact<Option<Text>>, Fact<Option<GidEntry>>) {
        let unknown = |why: &str| (Fact::because(why), Fact::because(why));
        let device = device_of(devices, &port.rdma);
        let device = match device {
            Fact::Known(Some(device)) => device,
            Fact::Known(None) => return (Fact::Known(None), Fact::Known(None)),
            Fact::NotObserved(why) => return unknown(&why),
        };
        let own = ask(&mut self.nldev, "RDMA ports", |nldev| {
            nldev.ports(device.index)
        })
        .map(|ports| {
            let on_link = |p: &rdma::Port| {
                p.netdev
                    .as_ref()
                    .is_some_and(|(index, _)| *index == link.index)
            };
            ports.into_iter().find(on_link)
        });
        match own {
            Fact::Known(Some(own)) => (
                match own.state {
                    Some(state) => Fact::Known(Some(state)),
                    None => Fact::because("RDMA netlink does not give it"),
                },
                gid(port, own.number),
            ),
            // The device of that name is another port's.
            Fact::Known(None) => unknown(&format!("{} is not on {}", port.rdma, port.netdev)),
            Fact::NotObserved(why) => unknown(&why),
        }
    }

    /// What `verify` alone looks at.
    fn more(
        &mut self,
        port: &SubjectPort,
        link: &Link,
        params: &Fact<Vec<(Handle, Param)>>,
        devices: &Fact<Vec<rdma::Device>>,
    ) -> PortMore {
        let device = device_of(devices, &port.rdma);
        let queue_pairs = match device {
            Fact::Known(Some(device)) => ask(&mut self.nldev, "queue pairs", |nldev| {
                nldev.queue_pairs(device.index)
            })
            .map(|all| all.into_iter().filter_map(of_others).collect()),
            Fact::Known(None) => Fact::because(format!("no RDMA device {}", port.rdma)),
            Fact::NotObserved(why) => Fact::NotObserved(why),
        };
        let rdma_active_mtu = match ask(&mut self.verbs, "active MTU", |verbs: &mut Verbs| {
            verbs.open(&port.rdma)?.port(1)
        }) {
            Fact::Known(attr) => attr
                .active_mtu
                .ok_or("libibverbs gives a code that is not known here")
                .into(),
            Fact::NotObserved(why) => Fact::NotObserved(why),
        };
        let trust = ask(&mut self.route, "DCB", |route| route.trust(&link.name));
        let Some(handle) = handle(Some(link), port) else {
            let why = "the function of the port is not known";
            return PortMore {
                eswitch: Fact::because(why),
                rdma_active_mtu,
                trust,
                queue_size: Fact::because(why),
                queue_state: Fact::because(why),
                num_queues: Fact::because(why),
                queue_pairs,
            };
        };
        let function = self.function(port, Some(link), params);
        let eswitch = ask(&mut self.devlink, "devlink eswitch", |devlink| {
            devlink.eswitch_mode(&handle)
        });
        PortMore {
            eswitch: eswitch.map(|mode| mode.as_deref().map(Text::from)),
            rdma_active_mtu,
            trust,
            queue_size: function.size.value,
            queue_state: function.size.state,
            num_queues: function.num_queues.value,
            queue_pairs,
        }
    }

    fn filters(&mut self, subject: &Subject, link: &Link) -> Fact<Vec<Filter>> {
        let links = &self.links;
        let mut all = Vec::new();
        if subject.all_filters.contains(&link.name) {
            for side in [Side::Ingress, Side::Egress] {
                match whole(ask(&mut self.route, "tc filters", |route| {
                    route.filters(link.index, side, links)
                })) {
                    Fact::Known(filters) => all.extend(filters),
                    unknown => return unknown,
                }
            }
            return Fact::Known(all);
        }
        for (dev, pref) in &subject.rules {
            if *dev != link.name {
                continue;
            }
            match whole(ask(&mut self.route, "tc filters", |route| {
                route.filters_at(link.index, Side::Ingress, *pref, links)
            })) {
                Fact::Known(filters) => all.extend(filters),
                unknown => return unknown,
            }
        }
        Fact::Known(all)
    }

    fn markers(
        &mut self,
        subject: &Subject,
        devices: &Fact<Vec<rdma::Device>>,
    ) -> BTreeMap<RdmaName, Fact<MarkerNow>> {
        if subject.markers.is_empty() {
            return BTreeMap::new();
        }
        let mut markers = BTreeMap::new();
        let mut unsure = Vec::new();
        for name in &subject.markers {
            match self.at_rest(name, devices) {
                // `verify` shows systemd's own words.
                Some(marker) if !subject.more => {
                    markers.insert(name.clone(), Fact::Known(marker));
                }
                _ => unsure.push(name),
            }
        }
        if unsure.is_empty() {
            return markers;
        }
        let units: Vec<String> = unsure.iter().map(|name| marker_unit(name)).collect();
        let states = ask(&mut self.systemd, "systemd", |systemd| {
            systemd.states(&units)
        });
        for (i, (name, unit)) in unsure.into_iter().zip(&units).enumerate() {
            let state = match &states {
                Fact::Known(states) => states.get(i).cloned().ok_or("no answer").into(),
                Fact::NotObserved(why) => Fact::NotObserved(why.clone()),
            };
            let marker = match state {
                Fact::Known(state) => Fact::Known(self.marker(name, unit, &state, devices)),
                Fact::NotObserved(why) => Fact::NotObserved(why),
            };
            markers.insert(name.clone(), marker);
        }
        markers
    }

    /// A marker that the kernel shows to hold its rule, so that systemd need not be asked, which takes longer
    /// than all the rest: a process of its unit has the device open and has given up every capability, which
    /// the marker does once its rule is in and not before. Anything else is systemd's to tell.
    fn at_rest(&mut self, name: &RdmaName, devices: &Fact<Vec<rdma::Device>>) -> Option<MarkerNow> {
        let device = device_of(devices, name).known()?.clone()?;
        let openers = ask(&mut self.nldev, "who has the device open", |nldev| {
            nldev.openers(device.index)
        });
        let unit = marker_unit(name);
        let pid = openers.known()?.iter().copied().find(|pid| {
            let process = Process(*pid);
            process
                .system_unit()
                .is_ok_and(|own| own.as_ref() == Some(&unit))
                && process.has_no_capability()
        })?;
        Some(MarkerNow {
            active: "active".into(),
            sub: "running".into(),
            pid,
            holds_device: Fact::Known(true),
        })
    }

    fn marker(
        &mut self,
        name: &RdmaName,
        unit: &str,
        state: &UnitState,
        devices: &Fact<Vec<rdma::Device>>,
    ) -> MarkerNow {
        let device = device_of(devices, name);
        let holds_device = if state.active.as_str() != "active" {
            Fact::Known(false)
        } else {
            match device {
                Fact::Known(Some(device)) => {
                    ask(&mut self.nldev, "who has the device open", |nldev| {
                        nldev.openers(device.index)
                    })
                    .and_then(|pids| {
                        // The main process, or one that it started.
                        let its = |pid: u32| {
                            let own = Process(pid).unit();
                            own.is_ok_and(|own| own.as_deref() == Some(unit))
                        };
                        if pids.contains(&state.main_pid) || pids.iter().any(|pid| its(*pid)) {
                            Fact::Known(true)
                        } else if its(state.main_pid) {
                            Fact::Known(false)
                        } else {
                            // RDMA netlink shows the processes of its own PID namespace alone.
                            Fact::because(format!(
                                "process {} of its unit is not seen from here (another PID namespace?)",
                                state.main_pid
                            ))
                        }
                    })
                }
                Fact::Known(None) => Fact::Known(false),
                Fact::NotObserved(why) => Fact::NotObserved(why),
            }
        };
        MarkerNow {
            active: state.active.clone(),
            sub: state.sub.clone(),
            pid: state.main_pid,
            holds_device,
        }
    }

    /// The queue pairs of others on the RDMA devices of the plan: not the kernel's own that every port
    /// has (`SMI`, `GSI`), and not this process's.
    pub fn open_queue_pairs(&mut self, subject: &Subject) -> Fact<Vec<Open>> {
        let wanted: Vec<RdmaName> = subject.ports.iter().map(|port| port.rdma.clone()).collect();
        self.open_queue_pairs_on(&wanted)
    }

    /// The same, on these RDMA devices.
    pub fn open_queue_pairs_on(&mut self, wanted: &[RdmaName]) -> Fact<Vec<Open>> {
        let devices = match ask(&mut self.nldev, "RDMA devices", Nldev::devices) {
            Fact::Known(devices) => devices,
            Fact::NotObserved(why) => return Fact::NotObserved(why),
        };
        let mut all = Vec::new();
        for name in wanted {
            let Some(device) = devices.iter().find(|device| device.name == *name) else {
                continue;
            };
            let found = ask(&mut self.nldev, "queue pairs", |nldev| {
                nldev.queue_pairs(device.index)
            });
            let queue_pairs: Vec<QueuePair> = match found {
                Fact::Known(found) => found.into_iter().filter_map(of_others).collect(),
                Fact::NotObserved(why) => return Fact::NotObserved(why),
            };
            if !queue_pairs.is_empty() {
                all.push(Open {
                    device: name.clone(),
                    queue_pairs,
                });
            }
        }
        Fact::Known(all)
    }
}

fn of_others(qp: rdma::Qp) -> Option<QueuePair> {
    if matches!(qp.kind.as_str(), "SMI" | "GSI") {
        return None;
    }
    let qp = queue_pair(qp);
    // Another process of this program (a probe of another head, say) is somebody.
    (qp.pid != Some(std::process::id())).then_some(qp)
}

fn link_now(link: &Link) -> LinkNow {
    LinkNow {
        index: link.index,
        mac: link.mac,
        mtu: link.mtu,
        state: link.state.as_deref().unwrap_or("unknown").into(),
        rx_dropped: link.rx_dropped,
    }
}

/// A port of which nothing is known, and why.
fn nothing(netdev: &NetdevName, why: &str) -> PortNow {
    PortNow {
        netdev: netdev.clone(),
        link: Fact::because(why),
        addresses: Fact::because(why),
        offload: Fact::because(why),
        steering: Fact::because(why),
        rdma_state: Fact::because(why),
        gid: Fact::because(why),
        qdiscs: Fact::because(why),
        filters: Fact::because(why),
        neighbours: Fact::because(why),
        more: PortMore::default(),
    }
}

/// The RDMA device of this name; `None` when there is none.
fn device_of(devices: &Fact<Vec<rdma::Device>>, name: &RdmaName) -> Fact<Option<rdma::Device>> {
    devices
        .as_ref()
        .map(|devices| devices.iter().find(|device| device.name == *name).cloned())
}

/// The port's function as devlink names it.
pub(super) fn handle(link: Option<&Link>, port: &SubjectPort) -> Option<Handle> {
    match (link.and_then(|link| link.parent.as_ref()), port.pci) {
        (Some((bus, device)), _) => Some(Handle {
            bus: bus.clone(),
            device: device.clone(),
        }),
        (None, Some(pci)) => Some(Handle {
            bus: "pci".into(),
            device: pci.to_string().as_str().into(),
        }),
        (None, None) => None,
    }
}

fn steering(
    params: &Fact<Vec<(Handle, Param)>>,
    link: &Link,
    port: &SubjectPort,
) -> Fact<Option<Text>> {
    let Some(handle) = handle(Some(link), port) else {
        return Fact::because("the function of the port is not known");
    };
    params.as_ref().map(|params| {
        let mut own = params
            .iter()
            .filter(|(of, param)| *of == handle && param.name == FLOW_STEERING_MODE)
            .flat_map(|(_, param)| &param.values);
        own.find(|(mode, _)| *mode == Mode::Runtime)
            .and_then(|(_, value)| value.text().cloned())
    })
}

/// The entry of the GID table at the plan's index.
fn gid(port: &SubjectPort, number: u32) -> Fact<Option<GidEntry>> {
    let slot = port.gid_index.to_string();
    let number = number.to_string();
    let file = |parts: &[&str]| {
        let parts = [&[port.rdma.as_str(), "ports", &number], parts, &[&slot]].concat();
        sysfs::below("/sys/class/infiniband", &parts)
    };
    let gid: Gid = match sysfs::value(file(&["gids"])) {
        Ok(gid) => gid,
        Err(error) if error.is_absent() => return Fact::Known(None),
        Err(error) => return Fact::because(error),
    };
    if gid == Gid::ZERO {
        return Fact::Known(None);
    }
    let kind = match sysfs::text(file(&["gid_attrs", "types"])) {
        Ok(kind) => kind,
        // EINVAL is the kernel's word for an empty slot: it was emptied meanwhile.
        Err(error) if error.is_absent() || error.errno == Some(libc::EINVAL) => {
            return Fact::Known(None);
        }
        Err(error) => return Fact::because(error),
    };
    Fact::Known(Some(GidEntry {
        index: port.gid_index,
        gid,
        kind: kind.as_str().to_owned(),
        netdev: sysfs::value(file(&["gid_attrs", "ndevs"])).ok(),
    }))
}
