//! The hairpin queues of the fabric functions: what is set and loaded, what is to be done, and the doing,
//! one function at a time.
//!
//! A size counts once the driver of the function is re-initialised. That takes the network device and the
//! RDMA device away and brings bare ones back: addresses come by the network manager, and what the mesh
//! had there is gone. So each function goes through these steps, and the next one begins when it is back:
//!
//! 1. written down: how the port is, and which objects of the mesh go with it (`reinit.json`);
//! 2. recorded: the value and the reload counter (see [`crate::collect::record`]), then set;
//! 3. rules of other ports that lead here are removed: the NIC would keep a dead one's hairpin and give it
//!    to the rule that takes its place (by reading mlx5);
//! 4. re-initialised;
//! 5. waited for: device, link, MTU, addresses, RDMA port, GID as they were; then the offload as it was;
//! 6. the objects of the mesh that were there made again, in the order of `up`, and read back.
//!
//! Up to the re-initialisation a failure is taken back. From then on there is no way back, and the next
//! run goes on from what was written down.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::facts::{Applied, Fact, Filter, HairpinParameter, HairpinRecord, ROCE_V2, Route};
use crate::finding::Finding;
use crate::mesh::apply::Failure;
use crate::mesh::change::Change;
use crate::mesh::compare::{Object, Row, Stale, State, compare, reads_back};
use crate::mesh::condition::owners;
use crate::mesh::present::{Device, Open, PortNow, Present};
use crate::mesh::steps;
use crate::mesh::wanted::Wanted;
use crate::names::{Cidr, Gid, HostName, NetdevName, PciAddress, RdmaName, Text};

/// What devlink and our record know of a parameter of one function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterNow {
    /// The value last set; `None` when the driver has no such parameter.
    pub value: Fact<Option<u32>>,
    /// Whether it is loaded.
    pub state: Fact<Applied>,
    /// Our record of it.
    pub record: Option<HairpinRecord>,
}

/// A fabric function, as far as its hairpin queues go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionNow {
    /// Its network device.
    pub netdev: NetdevName,
    /// Its RDMA device.
    pub rdma: RdmaName,
    /// Its PCI address, by which devlink knows it.
    pub pci: Fact<PciAddress>,
    /// How often its driver was re-initialised.
    pub reloads: Fact<u32>,
    /// Whether the last re-initialisation failed.
    pub failed: Fact<bool>,
    /// `hairpin_queue_size`, packets.
    pub size: ParameterNow,
    /// `hairpin_num_queues`
    pub num_queues: ParameterNow,
}

impl FunctionNow {
    /// What is known of a parameter.
    pub fn parameter(&self, parameter: HairpinParameter) -> &ParameterNow {
        match parameter {
            HairpinParameter::QueueSize => &self.size,
            HairpinParameter::NumQueues => &self.num_queues,
        }
    }
}

/// What a function needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// What was asked for is loaded.
    Nothing,
    /// A re-initialisation, with these values.
    Load(Load),
    /// Nobody can tell, or it cannot be done: why.
    Cannot(String),
}

/// What a re-initialisation is to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The function.
    pub pci: PciAddress,
    /// Its reload counter.
    pub reloads: u32,
    /// Each parameter that the driver has: a re-initialisation loads them all, so all are recorded.
    pub settings: Vec<Setting>,
}

/// The value of a parameter that a re-initialisation loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The parameter.
    pub parameter: HairpinParameter,
    /// The value that devlink shows.
    pub old: u32,
    /// The value to load; set first when it is another.
    pub new: u32,
    /// The record that ours takes the place of.
    pub record: Option<HairpinRecord>,
}

/// What a function needs so that each parameter that was `asked` for is loaded.
pub fn due(function: &FunctionNow, asked: &[(HairpinParameter, u32)]) -> Due {
    let mut right = true;
    for (parameter, wanted) in asked {
        let now = function.parameter(*parameter);
        match &now.value {
            // A state that is not known is one that loading makes known.
            Fact::Known(Some(value)) => {
                right &= value == wanted && now.state == Fact::Known(Applied::Applied);
            }
            Fact::Known(None) => {
                return Due::Cannot(format!("the driver has no {parameter}"));
            }
            Fact::NotObserved(why) => {
                return Due::Cannot(format!("{parameter} not observed: {why}"));
            }
        }
    }
    if right {
        return Due::Nothing;
    }
    let (pci, reloads) = match (&function.pci, &function.reloads) {
        (Fact::Known(pci), Fact::Known(reloads)) => (*pci, *reloads),
        (Fact::NotObserved(why), _) => {
            return Due::Cannot(format!("the function is not known: {why}"));
        }
        // Without a count nobody could tell afterwards what is loaded.
        (_, Fact::NotObserved(why)) => {
            return Due::Cannot(format!(
                "the count of re-initialisations not observed: {why}"
            ));
        }
    };
    let settings = HairpinParameter::ALL
        .into_iter()
        .filter_map(|parameter| {
            let now = function.parameter(parameter);
            let old = now.value.known().copied().flatten()?;
            let wanted = asked.iter().find(|(other, _)| *other == parameter);
            Some(Setting {
                parameter,
                old,
                new: wanted.map_or(old, |(_, wanted)| *wanted),
                record: now.record.clone(),
            })
        })
        .collect();
    Due::Load(Load {
        pci,
        reloads,
        settings,
    })
}

/// What may be destroyed, because whoever asked has said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowed {
    /// Open queue pairs of others on the function.
    pub queue_pairs: bool,
    /// The link of the default route.
    pub default_route: bool,
    /// The link of a function that is no port of the plan.
    pub unplanned: bool,
    /// What of a port is not observed, and could not be missed afterwards.
    pub unobserved: bool,
}

/// What the host has that a re-initialisation could destroy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtStake {
    /// Queue pairs of others on fabric devices.
    pub open: Fact<Vec<Open>>,
    /// IPv4 routes.
    pub routes: Fact<Vec<Route>>,
    /// Devices of IPv6 default routes, and of what is as good as one.
    pub ipv6_default: Fact<Vec<NetdevName>>,
    /// All network devices.
    pub devices: Fact<Vec<Device>>,
}

/// Why a function must not be re-initialised. `planned` is whether it is a port of the plan, `port` what it has now.
pub fn blockers(
    host: &HostName,
    function: &FunctionNow,
    planned: bool,
    port: Option<&PortNow>,
    at_stake: &AtStake,
    allowed: Allowed,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let netdev = &function.netdev;
    let mut push = |code, found: String, wanted: &str, advice: &str| {
        let finding = Finding::problem(code, found, wanted);
        findings.push(finding.on(host).at(netdev).advise(advice));
    };
    if !planned && !allowed.unplanned {
        push(
            "not-in-plan",
            "no port of the plan".into(),
            "a port of it",
            "hairpin-mesh plan first; --outside-plan takes its link away for seconds all the same, and leaves what was on it to others",
        );
    }
    if !allowed.default_route {
        let advice = "whoever is connected over it loses the host; --cut-default-route goes on";
        let wanted = "another function";
        match default_route_over(netdev, at_stake) {
            Fact::Known(None) => {}
            Fact::Known(Some(what)) => push("default-route", what, wanted, advice),
            Fact::NotObserved(why) => push(
                "default-route",
                format!("default routes not observed: {why}"),
                wanted,
                advice,
            ),
        }
    }
    let unseen = port.map(unseen).unwrap_or_default();
    if !allowed.unobserved && !unseen.is_empty() {
        push(
            "port-not-observed",
            unseen.join("; "),
            "all of it seen, to tell whether it comes back",
            "--unobserved goes on without",
        );
    }
    if !allowed.queue_pairs {
        let own = at_stake.open.as_ref().map(|open| {
            let own = open.iter().filter(|open| open.device == function.rdma);
            own.cloned().collect()
        });
        findings.extend(owners(host, &own, "--destroy-queue-pairs"));
    }
    findings
}

/// What of a port has to come back after a re-initialisation, and is not known.
fn unseen(port: &PortNow) -> Vec<String> {
    fn why<T>(fact: &Fact<T>) -> Option<&str> {
        match fact {
            Fact::Known(_) => None,
            Fact::NotObserved(why) => Some(why),
        }
    }
    // Of a device that is not there nothing is; that is told where it is looked at.
    if !matches!(port.link, Fact::Known(Some(_))) {
        return Vec::new();
    }
    [
        ("IPv4 addresses", why(&port.addresses)),
        ("hw-tc-offload", why(&port.offload)),
        ("RDMA port", why(&port.rdma_state)),
        ("GID", why(&port.gid)),
        ("flow_steering_mode", why(&port.steering)),
    ]
    .into_iter()
    .filter_map(|(what, why)| Some(format!("{what} not observed: {}", why?)))
    .collect()
}

/// Prefixes up to this are default routes: 0.0.0.0/0, and 0.0.0.0/1 with 128.0.0.0/1, which VPNs set before it.
const DEFAULT_PREFIX: u8 = 1;

/// The device, and all that send through it: bonds and bridges that it is part of, VLANs and macvlans on it, and
/// what is made of these.
fn stacked_on<'a>(netdev: &'a NetdevName, devices: &'a [Device]) -> Vec<&'a NetdevName> {
    let mut all = vec![netdev];
    let mut at = 0;
    while let Some(name) = all.get(at) {
        at += 1;
        let Some(below) = devices.iter().find(|device| device.name == **name) else {
            continue;
        };
        for device in devices {
            let above = device.lower == Some(below.index) || below.master == Some(device.index);
            if above && !all.contains(&&device.name) {
                all.push(&device.name);
            }
        }
    }
    all
}

/// The default route that leaves by a device, or by one that is made of it.
fn default_route_over(netdev: &NetdevName, at_stake: &AtStake) -> Fact<Option<String>> {
    let devices = match &at_stake.devices {
        Fact::Known(devices) => devices,
        Fact::NotObserved(why) => return Fact::because(why),
    };
    let stacked = stacked_on(netdev, devices);
    let by = |dev: &NetdevName| match dev == netdev {
        true => "leaves by it".to_owned(),
        false => format!("leaves by {dev}, which is made of it"),
    };
    let ipv4 = at_stake.routes.as_ref().map(|routes| {
        let mut own = routes
            .iter()
            .filter(|route| route.destination.prefix <= DEFAULT_PREFIX);
        own.find_map(|route| {
            let dev = route.dev.as_ref().filter(|dev| stacked.contains(dev))?;
            Some(match route.destination.prefix {
                0 => format!("the default route {}", by(dev)),
                _ => format!(
                    "the route to {}, as good as a default route, {}",
                    route.destination,
                    by(dev)
                ),
            })
        })
    });
    let ipv6 = at_stake.ipv6_default.as_ref().map(|devices| {
        let dev = devices.iter().find(|dev| stacked.contains(dev))?;
        Some(format!("the IPv6 default route {}", by(dev)))
    });
    match (ipv4, ipv6) {
        (Fact::Known(Some(what)), _) | (_, Fact::Known(Some(what))) => Fact::Known(Some(what)),
        (Fact::Known(None), Fact::Known(None)) => Fact::Known(None),
        (Fact::NotObserved(why), _) | (_, Fact::NotObserved(why)) => Fact::NotObserved(why),
    }
}

/// A step that is no change of an object of the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Step {
    /// Sets a parameter, which counts after the re-initialisation.
    SetParameter {
        /// The port.
        dev: NetdevName,
        /// Its function.
        #[serde(serialize_with = "written")]
        pci: PciAddress,
        /// The parameter.
        parameter: HairpinParameter,
        /// What devlink showed.
        old: u32,
        /// What it is set to.
        new: u32,
    },
    /// Re-initialises the driver of a function.
    Reinitialise {
        /// The port.
        dev: NetdevName,
        /// Its RDMA device.
        device: RdmaName,
        /// Its function.
        #[serde(serialize_with = "written")]
        pci: PciAddress,
    },
    /// Sees to it that `hw-tc-offload` is as it was.
    KeepOffload {
        /// The port.
        dev: NetdevName,
        /// How it was.
        on: bool,
    },
}

fn written<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::SetParameter {
                dev,
                pci,
                parameter,
                old,
                new,
            } => write!(f, "{dev}: set {parameter} {new} of pci/{pci}, {old} before"),
            Step::Reinitialise { dev, device, pci } => write!(
                f,
                "{dev}: re-initialise pci/{pci}: the port and {device} go and come back"
            ),
            Step::KeepOffload { dev, on } => write!(
                f,
                "{dev}: keep hw-tc-offload {}",
                if *on { "on" } else { "off" }
            ),
        }
    }
}

/// A step, or a change of an object of the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Action {
    /// Of the queue.
    Queue(Step),
    /// Of the mesh.
    Object(Box<Change>),
}

impl From<Change> for Action {
    fn from(change: Change) -> Action {
        Action::Object(Box::new(change))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Queue(step) => step.fmt(f),
            Action::Object(change) => change.fmt(f),
        }
    }
}

/// How a port was before its driver was re-initialised: what has to come back. Written down before, so
/// that the next run can go on when this one ends in the middle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Underway {
    /// The port.
    pub netdev: NetdevName,
    /// Its RDMA device.
    pub rdma: RdmaName,
    /// Its function.
    #[serde(serialize_with = "written")]
    pub pci: PciAddress,
    /// The reload counter: a higher one says that the re-initialisation took place.
    pub reload_count: u32,
    /// The index of its network device: another one says that it went.
    pub index: u32,
    /// Whether its link was up.
    pub up: bool,
    /// Its MTU, bytes.
    pub mtu: Option<u32>,
    /// Its IPv4 addresses.
    pub addresses: Vec<Cidr>,
    /// Whether its RDMA port was there and ACTIVE.
    pub active: bool,
    /// The RoCE v2 GID at the plan's index.
    pub gid: Option<Gid>,
    /// `hw-tc-offload`
    pub offload: Option<bool>,
    /// `flow_steering_mode`
    pub steering: Option<Text>,
    /// The objects of the mesh that were there and go with it, as reports name them.
    pub objects: Vec<String>,
}

impl Underway {
    /// How a port is; why that cannot be said.
    fn of(
        function: &FunctionNow,
        load: &Load,
        port: &PortNow,
        rows: &[Row],
    ) -> Result<Underway, String> {
        let link = match &port.link {
            Fact::Known(Some(link)) => link,
            Fact::Known(None) => return Err("there is no such network device".into()),
            Fact::NotObserved(why) => return Err(format!("not observed: {why}")),
        };
        // What is not known now cannot be waited for: whoever allowed that knows it.
        Ok(Underway {
            netdev: function.netdev.clone(),
            rdma: function.rdma.clone(),
            pci: load.pci,
            reload_count: load.reloads,
            index: link.index,
            up: link.state.as_str() == "up",
            mtu: link.mtu,
            addresses: port.addresses.known().cloned().unwrap_or_default(),
            active: matches!(&port.rdma_state, Fact::Known(Some(state)) if state.as_str() == "ACTIVE"),
            gid: gid(port),
            offload: port.offload.known().copied(),
            steering: port.steering.known().cloned().flatten(),
            objects: rows
                .iter()
                .filter(|row| goes_with(&row.object, &function.netdev, &function.rdma))
                .filter(|row| is_there(&row.state))
                .map(|row| row.object.to_string())
                .collect(),
        })
    }

    /// What of it still makes sense to wait for, where the plan has this port with this address: the
    /// plan's address in place of those that the port had.
    pub fn as_planned(&self, address: Cidr) -> Underway {
        let gid = Gid::ipv4_mapped(address.address);
        Underway {
            addresses: vec![address],
            gid: self.gid.map(|_| gid),
            ..self.clone()
        }
    }

    /// What it says, a line each.
    pub fn lines(&self) -> Vec<String> {
        let count = match self.reload_count {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        let mut before = vec![if self.up { "link up" } else { "link not up" }.to_owned()];
        before.extend(self.mtu.map(|mtu| format!("MTU {mtu}")));
        before.extend(self.addresses.iter().map(Cidr::to_string));
        before.extend(self.active.then(|| "RDMA port ACTIVE".to_owned()));
        before.extend(self.gid.map(|gid| format!("GID {gid}")));
        let switched = |on| if on { "on" } else { "off" };
        before.extend(
            self.offload
                .map(|on| format!("hw-tc-offload {}", switched(on))),
        );
        before.extend(
            self.steering
                .as_ref()
                .map(|mode| format!("flow_steering_mode {mode}")),
        );
        let mut lines = vec![
            format!(
                "{} ({}, pci/{}): its driver had been re-initialised {count}, and was to be once more",
                self.netdev, self.rdma, self.pci
            ),
            format!("{}: {}", self.netdev, before.join(", ")),
        ];
        let with_it = |object: &String| format!("{}: with it goes {object}", self.netdev);
        lines.extend(self.objects.iter().map(with_it));
        lines
    }

    /// What of it is not back, but for the offload.
    pub fn missing(&self, present: &Present) -> Vec<String> {
        let dev = &self.netdev;
        let port = match present.port(dev) {
            Some(port) => port,
            None => return vec![format!("{dev}: not looked at")],
        };
        let link = match &port.link {
            Fact::Known(Some(link)) => link,
            Fact::Known(None) => return vec![format!("{dev}: no such network device")],
            Fact::NotObserved(why) => return vec![format!("{dev}: not observed: {why}")],
        };
        let mut missing = Vec::new();
        if self.up && link.state.as_str() != "up" {
            missing.push(format!("{dev}: link {}, up wanted", link.state));
        }
        if self.mtu.is_some() && link.mtu != self.mtu {
            let word = |mtu: Option<u32>| mtu.map_or("unknown".into(), |mtu| mtu.to_string());
            missing.push(format!(
                "{dev}: MTU {}, {} wanted",
                word(link.mtu),
                word(self.mtu)
            ));
        }
        for address in &self.addresses {
            match &port.addresses {
                Fact::Known(addresses) if addresses.contains(address) => {}
                Fact::Known(_) => missing.push(format!("{dev}: no IPv4 address {address}")),
                Fact::NotObserved(why) => {
                    missing.push(format!("{dev}: {address} not observed: {why}"));
                }
            }
        }
        if self.active {
            match &port.rdma_state {
                Fact::Known(Some(state)) if state.as_str() == "ACTIVE" => {}
                Fact::Known(Some(state)) => {
                    missing.push(format!("{}: RDMA port {state}, ACTIVE wanted", self.rdma));
                }
                Fact::Known(None) => missing.push(format!("{}: no such RDMA device", self.rdma)),
                Fact::NotObserved(why) => {
                    missing.push(format!("{}: RDMA port not observed: {why}", self.rdma));
                }
            }
        }
        if let Some(wanted) = self.gid {
            if gid(port) != Some(wanted) {
                missing.push(format!("{}: no {ROCE_V2} GID {wanted}", self.rdma));
            }
        }
        if self.steering.is_some() && port.steering.known().cloned().flatten() != self.steering {
            let word = self.steering.as_ref().map_or("", Text::as_str);
            missing.push(format!("{dev}: flow_steering_mode is not {word}"));
        }
        missing
    }
}

/// The RoCE v2 GID of a port at the plan's index.
fn gid(port: &PortNow) -> Option<Gid> {
    let entry = port.gid.known()?.as_ref()?;
    let own = entry.kind == ROCE_V2 && entry.netdev.as_ref() == Some(&port.netdev);
    own.then_some(entry.gid)
}

/// Whether an object of the mesh goes, or dies, with this port.
fn goes_with(object: &Object, netdev: &NetdevName, rdma: &RdmaName) -> bool {
    match object {
        Object::Clsact(dev) | Object::Neighbour(dev, _) => dev == netdev,
        Object::Rule(dev, rule) => dev == netdev || leads_to(rule, netdev),
        Object::Marker(device) => device == rdma,
        Object::Route(route) => route.dev.as_ref() == Some(netdev),
    }
}

fn leads_to(rule: &Filter, netdev: &NetdevName) -> bool {
    let actions = rule.flower.iter().flat_map(|flower| &flower.actions);
    actions
        .filter_map(|action| action.mirred.as_ref())
        .any(|mirred| mirred.dev.as_ref() == Some(netdev))
}

/// Whether there is something of ours. (A marker that systemd is bringing up comes up, or not, by itself.)
fn is_there(state: &State) -> bool {
    match state {
        State::Right | State::Stale(_) => true,
        State::InTheWay { ours, .. } => is_there(ours),
        State::Absent | State::Changing(_) | State::NoPort | State::NotObserved(_) => false,
    }
}

/// What removes the rules of other ports that lead to this one.
fn cut(rows: &[Row], netdev: &NetdevName) -> Vec<Change> {
    rows.iter()
        .filter(|row| {
            matches!(&row.object, Object::Rule(dev, rule) if dev != netdev && leads_to(rule, netdev))
        })
        .filter_map(|row| steps::removal(&row.object, &row.state))
        .collect()
}

/// What is done to one function, in order, so far as it can be said before.
pub fn preview(
    function: &FunctionNow,
    load: &Load,
    wanted: &Wanted,
    present: &Present,
) -> Vec<Action> {
    let rows = compare(wanted, present);
    let dev = &function.netdev;
    let mut actions: Vec<Action> = sets(dev, load).map(Action::Queue).collect();
    actions.extend(cut(&rows, dev).into_iter().map(Action::from));
    actions.push(Action::Queue(reinitialisation(function, load)));
    if let Some(Fact::Known(on)) = present.port(dev).map(|port| &port.offload) {
        actions.push(Action::Queue(Step::KeepOffload {
            dev: dev.clone(),
            on: *on,
        }));
    }
    let gone = rows
        .into_iter()
        .filter(|row| goes_with(&row.object, dev, &function.rdma) && is_there(&row.state))
        .map(|row| Row {
            state: match &row.object {
                Object::Marker(_) => State::Stale(Stale::Marker),
                _ => State::Absent,
            },
            object: row.object,
        });
    let again = steps::up(&gone.collect::<Vec<Row>>(), &[]);
    actions.extend(again.changes.into_iter().map(Action::from));
    actions
}

/// The settings that differ from what devlink shows.
fn sets<'a>(dev: &'a NetdevName, load: &'a Load) -> impl Iterator<Item = Step> + 'a {
    let differ = |setting: &&Setting| setting.old != setting.new;
    load.settings
        .iter()
        .filter(differ)
        .map(|setting| Step::SetParameter {
            dev: dev.clone(),
            pci: load.pci,
            parameter: setting.parameter,
            old: setting.old,
            new: setting.new,
        })
}

fn reinitialisation(function: &FunctionNow, load: &Load) -> Step {
    Step::Reinitialise {
        dev: function.netdev.clone(),
        device: function.rdma.clone(),
        pci: load.pci,
    }
}

/// What the queues are set on: devlink and the rest of the host, or their twin in memory.
pub trait Platform {
    /// Writes down what is underway, so that it outlives this process; `None`: that nothing is.
    fn note(&mut self, underway: Option<&Underway>) -> Result<(), String>;
    /// Records that `value` is set, or about to be, at this count of re-initialisations.
    fn record(
        &mut self,
        pci: PciAddress,
        parameter: HairpinParameter,
        reloads: u32,
        value: u32,
    ) -> Result<(), String>;
    /// Puts back the record that was there before, or none.
    fn restore_record(
        &mut self,
        pci: PciAddress,
        parameter: HairpinParameter,
        record: Option<&HairpinRecord>,
    ) -> Result<(), String>;
    /// Sets a parameter. A remark that the kernel made although it did as asked comes back.
    fn set(
        &mut self,
        pci: PciAddress,
        parameter: HairpinParameter,
        value: u32,
    ) -> Result<Option<String>, Failure>;
    /// Re-initialises the driver of a function.
    fn reinitialise(
        &mut self,
        dev: &NetdevName,
        pci: PciAddress,
    ) -> Result<Option<String>, Failure>;
    /// Switches `hw-tc-offload`.
    fn switch_offload(&mut self, dev: &NetdevName, on: bool) -> Result<Option<String>, Failure>;
    /// Makes one change of an object of the mesh.
    fn change(&mut self, change: &Change) -> Result<Option<String>, Failure>;
    /// What the host has now.
    fn look(&mut self) -> Result<Present, String>;
    /// What a function's queues are now.
    fn function(&mut self, dev: &NetdevName) -> Result<FunctionNow, String>;
    /// Why a function must not be re-initialised now, when this is what the host has.
    fn blockers(&mut self, function: &FunctionNow, present: &Present) -> Vec<Finding>;
    /// From now on a function is to come back: the time in which it may begins.
    fn expect_back(&mut self);
    /// Waits until something may have changed; `false` once the time is over.
    fn wait(&mut self) -> Result<bool, String>;
    /// Why the work is to be ended early (a signal).
    fn interrupted(&mut self) -> Option<String>;
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Each function has loaded what was asked for.
    Done,
    /// This function must not be re-initialised; nothing of it was changed.
    Refused {
        /// Why.
        findings: Vec<Finding>,
    },
    /// This function is re-initialised and not back in time. What is underway stays written down.
    NotBack {
        /// What is missing, one line each.
        missing: Vec<String>,
    },
    /// This function is as it was.
    Restored {
        /// What failed, one line each.
        why: Vec<String>,
    },
    /// This function is not as it was. What is underway stays written down.
    NotRestored {
        /// What failed, one line each.
        why: Vec<String>,
        /// What differs from before, or from what is wanted, one line each.
        differs: Vec<String>,
    },
}

/// How far it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Functions that are re-initialised and back.
    pub done: Vec<NetdevName>,
    /// The function at which it ended early.
    pub at: Option<NetdevName>,
    /// Functions that were not begun.
    pub left: Vec<NetdevName>,
    /// How.
    pub end: End,
}

/// Who hears of each step that was made.
pub type Told<'a> = dyn FnMut(Action, Option<&str>) + 'a;

/// Loads what was `asked` for on each of these functions, one at a time, and stops at the first that
/// fails. What of `wanted` is there and goes with a function is made again.
pub fn run(
    platform: &mut impl Platform,
    functions: &[NetdevName],
    asked: &[(HairpinParameter, u32)],
    wanted: &Wanted,
    told: &mut Told,
) -> Ended {
    let mut done = Vec::new();
    for (i, dev) in functions.iter().enumerate() {
        let end = match platform.interrupted() {
            Some(why) => End::Restored { why: vec![why] },
            None => one(platform, dev, asked, wanted, told),
        };
        if end != End::Done {
            return Ended {
                done,
                at: Some(dev.clone()),
                left: functions[i + 1..].to_vec(),
                end,
            };
        }
        done.push(dev.clone());
    }
    Ended {
        done,
        at: None,
        left: Vec::new(),
        end: End::Done,
    }
}

fn untouched(dev: &NetdevName, why: impl fmt::Display) -> End {
    End::Restored {
        why: vec![format!("{dev}: {why}")],
    }
}

fn one(
    platform: &mut impl Platform,
    dev: &NetdevName,
    asked: &[(HairpinParameter, u32)],
    wanted: &Wanted,
    told: &mut Told,
) -> End {
    let function = match platform.function(dev) {
        Ok(function) => function,
        Err(why) => return untouched(dev, why),
    };
    let load = match due(&function, asked) {
        Due::Nothing => return End::Done,
        Due::Load(load) => load,
        Due::Cannot(why) => return untouched(dev, why),
    };
    let present = match platform.look() {
        Ok(present) => present,
        Err(why) => return untouched(dev, why),
    };
    // Between the first look at all functions and the turn of this one seconds may have passed.
    let findings = platform.blockers(&function, &present);
    if !findings.is_empty() {
        return End::Refused { findings };
    }
    let rows = compare(wanted, &present);
    let underway = present
        .port(dev)
        .ok_or_else(|| "not looked at".to_owned())
        .and_then(|port| Underway::of(&function, &load, port, &rows));
    let underway = match underway {
        Ok(underway) => underway,
        Err(why) => return untouched(dev, why),
    };
    if let Err(why) = platform.note(Some(&underway)) {
        // It may be there all the same.
        return match platform.note(None) {
            Ok(()) => untouched(dev, why),
            Err(also) => End::NotRestored {
                why: vec![format!("{dev}: {why}")],
                differs: vec![also],
            },
        };
    }
    let mut made = Made::default();
    match prepare(platform, &load, cut(&rows, dev), dev, &mut made, told) {
        Ok(()) => {}
        Err(why) => return take_back(platform, &load, &made, why),
    }
    platform.expect_back();
    let step = reinitialisation(&function, &load);
    match platform.reinitialise(dev, load.pci) {
        Ok(remark) => told(Action::Queue(step), remark.as_deref()),
        Err(failure) => match took_place(platform, &underway, &failure) {
            TookPlace::Yes => told(Action::Queue(step), Some(&failure.why)),
            TookPlace::No => return take_back(platform, &load, &made, failure.why),
            TookPlace::InPart(differs) => {
                return End::NotRestored {
                    why: vec![failure.why],
                    differs,
                };
            }
        },
    }
    match bring_back(platform, &underway, wanted, told) {
        End::Done => is_loaded(platform, dev, asked),
        end => end,
    }
}

/// Whether what was asked for is loaded, after all was said to be done.
fn is_loaded(
    platform: &mut impl Platform,
    dev: &NetdevName,
    asked: &[(HairpinParameter, u32)],
) -> End {
    let why = match platform.function(dev).map(|now| due(&now, asked)) {
        Ok(Due::Nothing) => return End::Done,
        Ok(Due::Load(_)) => "re-initialised, and what was set is not known to be loaded".into(),
        Ok(Due::Cannot(why)) | Err(why) => why,
    };
    End::NotRestored {
        why: vec![format!("{dev}: {why}")],
        differs: Vec::new(),
    }
}

/// What was made before the re-initialisation, in order.
#[derive(Default)]
struct Made {
    /// Settings that were recorded.
    recorded: Vec<Setting>,
    /// Those of them that were set, or may have been.
    set: Vec<Setting>,
    /// Rules that were removed, or may have been.
    removed: Vec<Change>,
}

fn prepare(
    platform: &mut impl Platform,
    load: &Load,
    cut: Vec<Change>,
    dev: &NetdevName,
    made: &mut Made,
    told: &mut Told,
) -> Result<(), String> {
    for setting in &load.settings {
        made.recorded.push(setting.clone());
        platform.record(load.pci, setting.parameter, load.reloads, setting.new)?;
        if setting.old == setting.new {
            continue;
        }
        made.set.push(setting.clone());
        let remark = platform
            .set(load.pci, setting.parameter, setting.new)
            .map_err(|failure| failure.why)?;
        let step = Step::SetParameter {
            dev: dev.clone(),
            pci: load.pci,
            parameter: setting.parameter,
            old: setting.old,
            new: setting.new,
        };
        told(Action::Queue(step), remark.as_deref());
    }
    // Read back before the step from which there is no way back.
    let now = platform.function(dev)?;
    for setting in &load.settings {
        let parameter = now.parameter(setting.parameter);
        let recorded = parameter
            .record
            .as_ref()
            .map(|record| (record.reload_count, record.value));
        if parameter.value != Fact::Known(Some(setting.new)) {
            return Err(format!(
                "{dev}: {} was set to {} and is not so",
                setting.parameter, setting.new
            ));
        }
        if recorded != Some((load.reloads, setting.new)) {
            return Err(format!(
                "{dev}: the record of {} does not read back",
                setting.parameter
            ));
        }
    }
    for change in cut {
        made.removed.push(change.clone());
        match platform.change(&change) {
            Ok(remark) => told(change.into(), remark.as_deref()),
            Err(failure) if failure.already => {
                made.removed.pop();
            }
            Err(failure) => {
                if !failure.half_done {
                    made.removed.pop();
                }
                return Err(failure.why);
            }
        }
    }
    Ok(())
}

/// Takes back what was made before the re-initialisation that did not take place.
fn take_back(platform: &mut impl Platform, load: &Load, made: &Made, why: String) -> End {
    let mut differs = Vec::new();
    for change in made.removed.iter().rev() {
        let Some(inverse) = change.inverse() else {
            continue;
        };
        if let Err(failure) = platform.change(&inverse) {
            differs.push(failure.why);
        }
    }
    for setting in made.set.iter().rev() {
        if let Err(failure) = platform.set(load.pci, setting.parameter, setting.old) {
            differs.push(failure.why);
        }
    }
    for setting in made.recorded.iter().rev() {
        let record = setting.record.as_ref();
        if let Err(why) = platform.restore_record(load.pci, setting.parameter, record) {
            differs.push(why);
        }
    }
    if differs.is_empty() {
        if let Err(why) = platform.note(None) {
            differs.push(why);
        }
    }
    let why = vec![why];
    if differs.is_empty() {
        End::Restored { why }
    } else {
        End::NotRestored { why, differs }
    }
}

enum TookPlace {
    Yes,
    No,
    InPart(Vec<String>),
}

/// What became of a re-initialisation that failed, or of which no word came.
fn took_place(platform: &mut impl Platform, underway: &Underway, failure: &Failure) -> TookPlace {
    let dev = &underway.netdev;
    loop {
        let function = match platform.function(dev) {
            Ok(function) => function,
            Err(why) => return TookPlace::InPart(vec![format!("{dev}: {why}")]),
        };
        if matches!(function.reloads, Fact::Known(count) if count > underway.reload_count) {
            return TookPlace::Yes;
        }
        // Where no answer came the device may be on its way, and the look would wait for it too.
        let unmoved = if failure.half_done {
            Ok(false)
        } else {
            is_unmoved(platform, underway)
        };
        match (failure.half_done, &function.failed, unmoved) {
            (false, Fact::Known(false), Ok(true)) => return TookPlace::No,
            (_, Fact::Known(true), _) => {
                return TookPlace::InPart(vec![format!(
                    "{dev}: the driver says that its re-initialisation failed: devlink dev reload pci/{} action driver_reinit, or a reboot, may bring the port back",
                    underway.pci
                )]);
            }
            (false, Fact::NotObserved(why), _) => {
                return TookPlace::InPart(vec![format!("{dev}: not observed: {why}")]);
            }
            (false, _, Err(why)) => {
                return TookPlace::InPart(vec![format!("{dev}: not observed: {why}")]);
            }
            (false, _, Ok(false)) => {
                return TookPlace::InPart(vec![format!(
                    "{dev}: the network device is not the one that it was"
                )]);
            }
            // No answer: it may be underway.
            (true, ..) => {}
        }
        match (platform.interrupted(), platform.wait()) {
            (None, Ok(true)) => {}
            (Some(why), _) | (_, Err(why)) => return TookPlace::InPart(vec![why]),
            (None, Ok(false)) => {
                return TookPlace::InPart(vec![format!(
                    "{dev}: whether it was re-initialised is not known: its count is not higher than before"
                )]);
            }
        }
    }
}

/// Whether the network device is the one that it was.
fn is_unmoved(platform: &mut impl Platform, underway: &Underway) -> Result<bool, String> {
    let present = platform.look()?;
    match present.port(&underway.netdev).map(|port| &port.link) {
        Some(Fact::Known(Some(link))) => Ok(link.index == underway.index),
        Some(Fact::Known(None)) => Ok(false),
        Some(Fact::NotObserved(why)) => Err(why.clone()),
        None => Err("not looked at".into()),
    }
}

/// Goes on with what a run that ended in the middle wrote down.
pub fn resume(
    platform: &mut impl Platform,
    underway: &Underway,
    wanted: &Wanted,
    told: &mut Told,
) -> End {
    platform.expect_back();
    bring_back(platform, underway, wanted, told)
}

/// How going on with what a run left in the middle ended, when it ended well enough to go on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Finished {
    /// What is not back and is waited for no more, a line each.
    pub given_up: Vec<String>,
    /// What is set and not loaded, because the re-initialisation did not take place.
    pub pending: Vec<(HairpinParameter, u32)>,
}

impl Finished {
    /// What there is to tell of it. `loads` is whether what is set is loaded next.
    pub fn findings(&self, host: &HostName, dev: &NetdevName, loads: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        if !self.given_up.is_empty() {
            findings.push(Finding::warning(
                "hairpin-queue-given-up",
                format!("not back: {}", self.given_up.join("; ")),
                "it back; --force gave up waiting for it",
            ));
        }
        for (parameter, value) in self.pending.iter().filter(|_| !loads) {
            let words = match parameter {
                HairpinParameter::QueueSize => format!("{value}"),
                HairpinParameter::NumQueues => format!("--num-queues {value}"),
            };
            findings.push(
                Finding::warning(
                    "hairpin-queue-pending",
                    format!("{parameter} {value} is set and not loaded: the re-initialisation did not take place"),
                    "it loaded",
                )
                .advise(format!("hairpin-mesh hairpin-queue {words} loads it")),
            );
        }
        let about = |finding: Finding| finding.on(host).at(dev);
        findings.into_iter().map(about).collect()
    }
}

/// Goes on with what a run that ended in the middle wrote down ([`resume`]). With `give_up`, what does not come
/// back in time is waited for no more, and what was written down goes. Otherwise how it ended that it is not done.
pub fn finish(
    platform: &mut impl Platform,
    underway: &Underway,
    wanted: &Wanted,
    give_up: bool,
    told: &mut Told,
) -> Result<Finished, End> {
    let mut finished = Finished::default();
    match resume(platform, underway, wanted, told) {
        End::Done => {}
        End::NotBack { missing } if give_up => {
            if let Err(why) = platform.note(None) {
                let (why, differs) = (vec![why], missing);
                return Err(End::NotRestored { why, differs });
            }
            finished.given_up = missing;
        }
        end => return Err(end),
    }
    // Its record has the count of re-initialisations: the same count says that what was set waits.
    if let Ok(function) = platform.function(&underway.netdev) {
        let waits = |parameter: HairpinParameter| {
            let now = function.parameter(parameter);
            let value = now.value.known().copied().flatten()?;
            (now.state == Fact::Known(Applied::Pending)).then_some((parameter, value))
        };
        finished.pending = HairpinParameter::ALL
            .into_iter()
            .filter_map(waits)
            .collect();
    }
    Ok(finished)
}

/// Waits until a port is back as it was, and makes again what of the mesh was there.
fn bring_back(
    platform: &mut impl Platform,
    underway: &Underway,
    wanted: &Wanted,
    told: &mut Told,
) -> End {
    let dev = &underway.netdev;
    let broken = |why: Vec<String>, differs: Vec<String>| End::NotRestored { why, differs };
    let present = loop {
        let present = match platform.look() {
            Ok(present) => present,
            Err(why) => return broken(vec![why], Vec::new()),
        };
        let missing = underway.missing(&present);
        if missing.is_empty() {
            break present;
        }
        if let Some(why) = platform.interrupted() {
            return broken(vec![why], missing);
        }
        match platform.wait() {
            Ok(true) => {}
            Ok(false) => return End::NotBack { missing },
            Err(why) => return broken(vec![why], missing),
        }
    };
    if let Some(on) = underway.offload {
        let is = present.port(dev).and_then(|port| port.offload.known());
        let remark = if is == Some(&on) {
            Ok(Some("it came back so".to_owned()))
        } else {
            platform.switch_offload(dev, on)
        };
        let step = Step::KeepOffload {
            dev: dev.clone(),
            on,
        };
        match remark {
            Ok(remark) => told(Action::Queue(step), remark.as_deref()),
            Err(failure) => return broken(vec![failure.why], Vec::new()),
        }
    }
    let its = |rows: Vec<Row>| -> Vec<Row> {
        let was_there = |row: &Row| underway.objects.contains(&row.object.to_string());
        rows.into_iter().filter(was_there).collect()
    };
    let steps = steps::up(&its(compare(wanted, &present)), &[]);
    let mut failures: Vec<String> = steps.obstacles.iter().map(reads_back).collect();
    // A marker that systemd is bringing up by itself comes back with the device, or not before its next
    // try: now is the time.
    let restarts = steps.changing.iter().filter_map(|row| match &row.object {
        Object::Marker(device) => Some(Change::RestartMarker {
            device: device.clone(),
        }),
        _ => None,
    });
    let (mut before, after): (Vec<Change>, Vec<Change>) = steps
        .changes
        .into_iter()
        .map(|change| match change {
            // One that ended with its device was running: its unit may have given up.
            Change::StartMarker { device } => Change::RestartMarker { device },
            other => other,
        })
        .partition(|change| {
            !matches!(
                change,
                Change::AddNeighbour { .. } | Change::AddRoute { .. } | Change::ReplaceRoute { .. }
            )
        });
    before.extend(restarts);
    for change in before.into_iter().chain(after) {
        match platform.change(&change) {
            Ok(remark) => told(change.into(), remark.as_deref()),
            Err(failure) => failures.push(failure.why),
        }
    }
    let differs = match platform.look() {
        Ok(present) => {
            let rows = its(compare(wanted, &present));
            let wrong = rows.iter().filter(|row| row.state != State::Right);
            let mut differs: Vec<String> = wrong.map(reads_back).collect();
            let offload = present.port(dev).and_then(|port| port.offload.known());
            if underway.offload.is_some() && offload != underway.offload.as_ref() {
                differs.push(format!("{dev}: hw-tc-offload is not as it was"));
            }
            differs
        }
        Err(why) => vec![why],
    };
    if !failures.is_empty() || !differs.is_empty() {
        return broken(failures, differs);
    }
    match platform.note(None) {
        Ok(()) => End::Done,
        Err(why) => broken(vec![why], Vec::new()),
    }
}
