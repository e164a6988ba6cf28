//! The facts of one fabric port: an Ethernet port of an RDMA device, and its network device.

use std::path::Path;

use crate::collect::{FabricDevice, LeftOuts, Sources, Tables, ask, node, record};
use crate::facts::{
    Applied, Counters, Fact, GidEntry, Gids, HairpinParameter, HairpinRecord, NodeFacts, Pcie,
    PortDetails, PortFacts, PortSysctls, QueuePair, Side,
};
use crate::kernel::devlink::{self, Devlink, Handle, Mode, Param, ParamValue};
use crate::kernel::ethtool::HW_TC_OFFLOAD;
use crate::kernel::process::Process;
use crate::kernel::rdma::{self, Owner};
use crate::kernel::route::Link;
use crate::kernel::sysfs;
use crate::names::{AttributeName, Gid, Mac, NetdevName, PciAddress, Text};

/// Largest MTU of an Ethernet device in the kernel (`ETH_MAX_MTU`).
const LARGEST_MTU: u32 = 65535;
/// A file among the counters that is a setting: how long the kernel may give an old value.
const LIFESPAN: &str = "lifespan";

/// The facts of each Ethernet port of `device`; a port that cannot be described is left out with
/// the reason.
pub(super) fn facts(
    device: &FabricDevice,
    node: &NodeFacts,
    tables: &Tables,
    sources: &mut Sources,
    left_out: &mut LeftOuts,
) -> Vec<PortFacts> {
    let known = tables
        .rdma_devices
        .as_ref()
        .map(|all| all.iter().find(|d| d.name == device.name).cloned());
    let known = match known {
        Fact::Known(Some(known)) => Fact::Known(known),
        Fact::Known(None) => Fact::because("RDMA netlink does not list the device"),
        Fact::NotObserved(why) => Fact::NotObserved(why),
    };
    let ports = match &known {
        Fact::Known(known) => ask(&mut sources.nldev, "RDMA ports", |nldev| {
            nldev.ports(known.index)
        }),
        Fact::NotObserved(why) => Fact::NotObserved(why.clone()),
    };
    let numbers: Vec<u32> = match sysfs::names(device.sysfs(&["ports"])) {
        Ok(numbers) => numbers,
        Err(error) => {
            left_out.add(&device.name, error);
            return Vec::new();
        }
    };
    let mut all = Vec::new();
    for number in numbers {
        let what = format!("{}/{number}", device.name);
        let port = ports
            .known()
            .and_then(|ports| ports.iter().find(|port| port.number == number));
        let link_layer = sysfs::text(device.sysfs(&["ports", &number.to_string(), "link_layer"]));
        match link_layer {
            Ok(layer) if layer.as_str() == "Ethernet" => {}
            Ok(layer) => {
                left_out.add(
                    &what,
                    format!("is not an Ethernet port (its link layer is {layer})"),
                );
                continue;
            }
            Err(error) => {
                left_out.add(&what, error);
                continue;
            }
        }
        let link = match link(device, port, tables) {
            Ok(link) => link,
            Err(why) => {
                left_out.add(&what, why);
                continue;
            }
        };
        let (Some(mac), Some(mtu)) = (
            link.mac.filter(|_| link.ethernet),
            link.mtu.filter(|mtu| *mtu <= LARGEST_MTU),
        ) else {
            left_out.add(&what, format!("{} has no Ethernet MAC and MTU", link.name));
            continue;
        };
        let function = device.function.clone().or_else(|| link.parent.clone());
        let subject = Subject {
            device,
            known: &known,
            number,
            link: &link,
            mac,
            mtu,
            function,
            node,
            tables,
        };
        all.push(subject.facts(port, sources, left_out));
    }
    all
}

/// The network device of a port: as RDMA netlink has it, else the only one of the same function.
fn link(device: &FabricDevice, port: Option<&rdma::Port>, tables: &Tables) -> Result<Link, String> {
    let links = match &tables.links {
        Fact::Known(links) => links,
        Fact::NotObserved(why) => return Err(why.clone()),
    };
    if let Some((index, name)) = port.and_then(|port| port.netdev.as_ref()) {
        let found = links
            .iter()
            .find(|link| link.index == *index && link.name == *name);
        return found
            .cloned()
            .ok_or_else(|| format!("its network device {name} is not in this network namespace"));
    }
    let names: Vec<NetdevName> =
        sysfs::names(device.sysfs(&["device", "net"])).map_err(|error| {
            format!("no network device is known: RDMA netlink has none, and {error}")
        })?;
    let [name] = names.as_slice() else {
        return Err(format!(
            "its function has {} network devices, and RDMA netlink names none",
            names.len()
        ));
    };
    // sysfs may show another network namespace: the index must agree.
    let index: u32 = sysfs::value(device.sysfs(&["device", "net", name.as_str(), "ifindex"]))
        .map_err(|e| e.to_string())?;
    let found = links
        .iter()
        .find(|link| link.index == index && link.name == *name);
    found
        .cloned()
        .ok_or_else(|| format!("its network device {name} is not in this network namespace"))
}

/// A port, and what is needed to ask about it.
struct Subject<'a> {
    device: &'a FabricDevice,
    known: &'a Fact<rdma::Device>,
    number: u32,
    link: &'a Link,
    mac: Mac,
    mtu: u32,
    /// Bus and name of the function.
    function: Option<(Text, Text)>,
    node: &'a NodeFacts,
    tables: &'a Tables,
}

impl Subject<'_> {
    fn facts(
        &self,
        port: Option<&rdma::Port>,
        sources: &mut Sources,
        left_out: &mut LeftOuts,
    ) -> PortFacts {
        let link = self.link;
        let pci = self
            .function
            .as_ref()
            .filter(|(bus, _)| bus.as_str() == "pci")
            .map(|(_, name)| name.as_str().parse::<PciAddress>())
            .transpose();
        let pci: Fact<Option<PciAddress>> = pci.into();
        let feature = ask(&mut sources.ethtool, "ethtool features", |e| {
            e.feature(&link.name, HW_TC_OFFLOAD)
        });
        let driver = self.driver(&pci, sources);
        let active_mtu = self.active_mtu(sources);
        PortFacts {
            netdev: link.name.clone(),
            rdma: Fact::Known(Some(self.device.name.clone())),
            ipv4: self
                .tables
                .addresses
                .as_ref()
                .map(|all| {
                    all.iter()
                        .filter(|(index, _)| *index == link.index)
                        .map(|(_, cidr)| *cidr)
                        .collect()
                })
                .map(|rows: Vec<_>| {
                    self.cut(left_out, "addresses", rows, crate::facts::MOST_ADDRESSES)
                }),
            mac: self.mac,
            mtu: self.mtu,
            state: link.state.clone().unwrap_or_else(|| "unknown".into()),
            gids: self.gids(),
            tc_offload: feature.as_ref().map(|feature| feature.active),
            hairpin_num_queues: driver.number(devlink::HAIRPIN_NUM_QUEUES),
            hairpin_queue_size: driver.number(devlink::HAIRPIN_QUEUE_SIZE),
            hairpin_queue_applied: driver.state(HairpinParameter::QueueSize),
            flow_steering_mode: driver.word(devlink::FLOW_STEERING_MODE),
            eswitch_mode: driver.eswitch_mode.clone(),
            rdma_state: self
                .port_word("state", port.and_then(|p| p.state.clone()))
                .map(|t| t.as_str().to_owned()),
            rdma_active_mtu: active_mtu,
            details: PortDetails {
                ifindex: Fact::Known(link.index),
                rdma_port: Fact::Known(self.number),
                phys_port_name: Fact::Known(link.phys_port_name.clone()),
                carrier: link.carrier.ok_or("rtnetlink does not give it").into(),
                driver: sysfs::link_name(self.device.sysfs(&["device", "driver"])).into(),
                driver_version: self.driver_version(),
                firmware: self.firmware(),
                node_guid: match self.known {
                    Fact::Known(known) => known
                        .node_guid
                        .clone()
                        .ok_or("RDMA netlink does not give it")
                        .into(),
                    Fact::NotObserved(why) => Fact::NotObserved(why.clone()),
                },
                tc_offload_fixed: feature.map(|feature| feature.fixed),
                devlink: driver
                    .handle
                    .as_ref()
                    .map(|h| h.as_ref().map(|h| h.to_string().as_str().into())),
                reload_count: driver.reload_count(),
                reload_failed: driver.reload_failed(),
                hairpin_num_queues_state: Fact::Known(driver.state(HairpinParameter::NumQueues)),
                hairpin_queue_record: driver.record.clone(),
                rdma_phys_state: self
                    .port_word("phys_state", port.and_then(|p| p.phys_state.clone())),
                rdma_rate: sysfs::text(self.port_file(&["rate"])).into(),
                pcie: pci.as_ref().map(|pci| pci.map(pcie)),
                trust: ask(&mut sources.route, "DCB", |route| route.trust(&link.name)),
                sysctls: PortSysctls {
                    rp_filter: node::device_sysctl(link.name.as_str(), "rp_filter"),
                    arp_ignore: node::device_sysctl(link.name.as_str(), "arp_ignore"),
                    arp_announce: node::device_sysctl(link.name.as_str(), "arp_announce"),
                },
                qdiscs: of_device(&self.tables.qdiscs, link.index),
                filters: self.filters(sources, left_out),
                neighbours: of_device(&self.tables.neighbours, link.index),
                wire: Fact::unmentioned(),
                queue_pairs: self.queue_pairs(sources, left_out),
                counters: self.counters("counters"),
                hw_counters: self.counters("hw_counters"),
            },
            pci,
        }
    }

    fn port_file(&self, parts: &[&str]) -> std::path::PathBuf {
        self.device
            .sysfs(&[&["ports", &self.number.to_string()], parts].concat())
    }

    /// No more than `most` rows, with a word when there were more.
    fn cut<T>(&self, left_out: &mut LeftOuts, what: &str, mut rows: Vec<T>, most: usize) -> Vec<T> {
        if rows.len() > most {
            left_out.add(
                format!("{} {what}", self.link.name),
                format!("the first {most} of {} are shown", rows.len()),
            );
            rows.truncate(most);
        }
        rows
    }

    /// A state of the RDMA port: `4: ACTIVE` in sysfs, else as RDMA netlink has it.
    fn port_word(&self, file: &str, netlink: Option<Text>) -> Fact<Text> {
        match (sysfs::text(self.port_file(&[file])), netlink) {
            (Ok(text), _) => {
                let word = text
                    .as_str()
                    .split_once(": ")
                    .map_or(text.as_str(), |(_, word)| word);
                Fact::Known(word.into())
            }
            (Err(_), Some(word)) => Fact::Known(word),
            (Err(error), None) => Fact::because(error),
        }
    }

    fn firmware(&self) -> Fact<Text> {
        let version = match self.known.known().and_then(|known| known.firmware.clone()) {
            Some(version) => version,
            None => match sysfs::text(self.device.sysfs(&["fw_ver"])) {
                Ok(version) => version,
                Err(error) => return Fact::because(error),
            },
        };
        if version.as_str().is_empty() {
            Fact::because("the device gives none")
        } else {
            Fact::Known(version)
        }
    }

    fn driver_version(&self) -> Fact<Option<Text>> {
        if let Err(error) = sysfs::link_name(self.device.sysfs(&["device", "driver"])) {
            return Fact::because(error);
        }
        match sysfs::text(
            self.device
                .sysfs(&["device", "driver", "module", "version"]),
        ) {
            Ok(version) => Fact::Known(Some(version)),
            Err(error) if error.is_absent() => Fact::Known(None),
            Err(error) => Fact::because(error),
        }
    }

    /// The GID table: every slot that is not empty.
    fn gids(&self) -> Gids {
        let indices: Vec<u32> = match sysfs::names(self.port_file(&["gids"])) {
            Ok(indices) => indices,
            Err(error) => return Gids::NotObserved(Fact::<()>::because(error).reason()),
        };
        let mut table = Vec::new();
        // An index that does not fit in 8 bits cannot be used by a queue pair.
        for index in indices
            .into_iter()
            .filter_map(|index| u8::try_from(index).ok())
        {
            let slot = index.to_string();
            let gid: Gid = match sysfs::value(self.port_file(&["gids", &slot])) {
                Ok(gid) => gid,
                Err(error) => return Gids::NotObserved(Fact::<()>::because(error).reason()),
            };
            if gid == Gid::ZERO {
                continue;
            }
            // EINVAL is the kernel's word for an empty slot: it was emptied meanwhile.
            match sysfs::text(self.port_file(&["gid_attrs", "types", &slot])) {
                Ok(kind) => table.push(GidEntry {
                    index,
                    gid,
                    kind: kind.as_str().to_owned(),
                    netdev: sysfs::value(self.port_file(&["gid_attrs", "ndevs", &slot])).ok(),
                }),
                Err(error) if error.errno == Some(libc::EINVAL) => {}
                Err(error) => return Gids::NotObserved(Fact::<()>::because(error).reason()),
            }
        }
        Gids::Table(table)
    }

    fn active_mtu(&self, sources: &mut Sources) -> Fact<u32> {
        let Ok(number) = u8::try_from(self.number) else {
            return Fact::because(format!(
                "port number {} does not fit in 8 bits",
                self.number
            ));
        };
        let attr = ask(&mut sources.verbs, "active MTU", |verbs| {
            verbs.open(&self.device.name)?.port(number)
        });
        match attr {
            Fact::Known(attr) => attr
                .active_mtu
                .ok_or("libibverbs gives a code that is not known here")
                .into(),
            Fact::NotObserved(why) => Fact::NotObserved(why),
        }
    }

    fn filters(
        &self,
        sources: &mut Sources,
        left_out: &mut LeftOuts,
    ) -> Fact<Vec<crate::facts::Filter>> {
        let links = self.tables.links.known().map_or(&[][..], Vec::as_slice);
        let what = format!("{} filters", self.link.name);
        let mut all = Vec::new();
        // A plain `ingress` discipline has one list, and the kernel gives it for either side.
        let qdiscs = of_device(&self.tables.qdiscs, self.link.index);
        let one_list = qdiscs
            .known()
            .is_some_and(|all| all.iter().any(|qdisc| qdisc.kind.as_str() == "ingress"));
        for side in if one_list {
            &[Side::Ingress][..]
        } else {
            &[Side::Ingress, Side::Egress]
        }
        .iter()
        .copied()
        {
            match ask(&mut sources.route, "tc filters", |route| {
                route.filters(self.link.index, side, links)
            }) {
                Fact::Known(listing) => all.extend(left_out.rows(&what, listing)),
                Fact::NotObserved(why) => return Fact::NotObserved(why),
            }
        }
        Fact::Known(left_out.cut(what, all))
    }

    fn queue_pairs(&self, sources: &mut Sources, left_out: &mut LeftOuts) -> Fact<Vec<QueuePair>> {
        let known = match self.known {
            Fact::Known(known) => known,
            Fact::NotObserved(why) => return Fact::NotObserved(why.clone()),
        };
        ask(&mut sources.nldev, "queue pairs", |nldev| {
            nldev.queue_pairs(known.index)
        })
        .map(|all| {
            let rows: Vec<QueuePair> = all
                .into_iter()
                // A queue pair that is not bound to a port yet could still be for this one.
                .filter(|qp| qp.port.is_none_or(|port| port == self.number))
                .map(queue_pair)
                .collect();
            left_out.cut(format!("{} queue pairs", self.device.name), rows)
        })
    }

    fn counters(&self, directory: &str) -> Fact<Counters> {
        let path = self.port_file(&[directory]);
        match sysfs::names::<AttributeName>(&path) {
            Ok(names) => Fact::Known(
                names
                    .into_iter()
                    .filter(|name| name.as_str() != LIFESPAN)
                    .map(|name| {
                        let value = sysfs::value(path.join(name.as_str())).into();
                        (name, value)
                    })
                    .collect(),
            ),
            Err(error) => Fact::because(error),
        }
    }

    /// Everything that devlink and our record know of the function.
    fn driver(&self, pci: &Fact<Option<PciAddress>>, sources: &mut Sources) -> Driver {
        let Some((bus, device)) = self.function.clone() else {
            return Driver::none();
        };
        let handle = Handle { bus, device };
        let reloads = match ask(&mut sources.devlink, "devlink", |devlink| {
            match devlink.reloads(&handle) {
                // The function is there and devlink does not have it: no parameters, no eswitch.
                Err(error) if error.errno() == Some(libc::ENODEV) => Ok(None),
                other => other.map(Some),
            }
        }) {
            Fact::Known(None) => return Driver::none(),
            Fact::Known(Some(reloads)) => Fact::Known(reloads),
            Fact::NotObserved(why) => Fact::NotObserved(why),
        };
        let record = |parameter| match (pci, &self.node.boot_id) {
            (Fact::Known(Some(pci)), Fact::Known(boot_id)) => {
                record::read(parameter, *pci, boot_id).into()
            }
            (Fact::Known(None), _) => Fact::Known(None),
            (Fact::NotObserved(why), _) | (_, Fact::NotObserved(why)) => {
                Fact::NotObserved(why.clone())
            }
        };
        Driver {
            params: ask(
                &mut sources.devlink,
                "devlink parameters",
                |devlink: &mut Devlink| devlink.params(&handle),
            ),
            eswitch_mode: ask(&mut sources.devlink, "devlink eswitch", |devlink| {
                devlink.eswitch_mode(&handle)
            }),
            handle: match &reloads {
                Fact::Known(_) => Fact::Known(Some(handle)),
                Fact::NotObserved(why) => Fact::NotObserved(why.clone()),
            },
            reloads,
            record: record(HairpinParameter::QueueSize),
            num_queues_record: record(HairpinParameter::NumQueues),
        }
    }
}

/// What devlink and our record know of a function.
struct Driver {
    /// `None` when devlink does not have the function.
    handle: Fact<Option<Handle>>,
    params: Fact<Vec<Param>>,
    reloads: Fact<devlink::Reloads>,
    eswitch_mode: Fact<Option<String>>,
    record: Fact<Option<HairpinRecord>>,
    num_queues_record: Fact<Option<HairpinRecord>>,
}

impl Driver {
    /// A function that devlink does not have: its driver has no parameters and no eswitch.
    fn none() -> Driver {
        Driver {
            handle: Fact::Known(None),
            params: Fact::Known(Vec::new()),
            reloads: Fact::because("devlink does not have the function"),
            eswitch_mode: Fact::Known(None),
            record: Fact::Known(None),
            num_queues_record: Fact::Known(None),
        }
    }

    /// The value of a parameter that `take` takes; `None` when the driver has no such parameter.
    fn value<T>(
        &self,
        name: &str,
        take: impl Fn(&Mode, &ParamValue) -> Option<T>,
    ) -> Fact<Option<T>> {
        let param = self
            .params
            .as_ref()
            .map(|params| params.iter().find(|param| param.name == name));
        match param {
            Fact::Known(None) => Fact::Known(None),
            Fact::Known(Some(param)) => match param
                .values
                .iter()
                .find_map(|(mode, value)| take(mode, value))
            {
                Some(value) => Fact::Known(Some(value)),
                None => Fact::because(format!(
                    "devlink gives {name} in a form that is not known here"
                )),
            },
            Fact::NotObserved(why) => Fact::NotObserved(why),
        }
    }

    fn number(&self, name: &str) -> Fact<Option<u32>> {
        self.value(name, |mode, value| {
            if *mode == Mode::Driverinit {
                value.number()
            } else {
                None
            }
        })
    }

    fn word(&self, name: &str) -> Fact<Option<String>> {
        self.value(name, |mode, value| {
            if *mode == Mode::Runtime {
                value.text().map(|text| text.as_str().to_owned())
            } else {
                None
            }
        })
    }

    fn reload_count(&self) -> Fact<u32> {
        match &self.reloads {
            Fact::Known(reloads) => reloads
                .driver_reinit
                .ok_or("the driver does not count its reloads")
                .into(),
            Fact::NotObserved(why) => Fact::NotObserved(why.clone()),
        }
    }

    fn reload_failed(&self) -> Fact<bool> {
        self.reloads.as_ref().map(|reloads| reloads.failed)
    }

    /// Whether the driver has loaded the value of a driverinit parameter.
    fn state(&self, parameter: HairpinParameter) -> Applied {
        let record = match parameter {
            HairpinParameter::QueueSize => &self.record,
            HairpinParameter::NumQueues => &self.num_queues_record,
        };
        match (self.number(parameter.name()), self.reload_count()) {
            (Fact::Known(Some(value)), Fact::Known(reloads)) => {
                parameter.state(value, reloads, record.known().and_then(Option::as_ref))
            }
            _ => Applied::Unknown,
        }
    }
}

/// A queue pair, and the name of who has it.
pub(crate) fn queue_pair(qp: rdma::Qp) -> QueuePair {
    let (pid, owner) = match qp.owner {
        Owner::User(pid) => (Some(pid), Process(pid).name().into()),
        Owner::Kernel(name) => (None, Fact::Known(name)),
        Owner::Hidden => (None, Fact::because("a process outside this PID namespace")),
    };
    QueuePair {
        number: qp.number,
        remote_number: qp.remote,
        kind: qp.kind,
        state: qp.state,
        pid,
        owner,
    }
}

/// The rows of the device with this index.
pub(crate) fn of_device<T: Clone>(rows: &Fact<Vec<(u32, T)>>, index: u32) -> Fact<Vec<T>> {
    rows.as_ref().map(|rows| {
        rows.iter()
            .filter(|(i, _)| *i == index)
            .map(|(_, row)| row.clone())
            .collect()
    })
}

fn pcie(pci: PciAddress) -> Pcie {
    let directory = sysfs::below("/sys/bus/pci/devices", &[&pci.to_string()]);
    let file = |name: &str| -> std::path::PathBuf { Path::new(&directory).join(name) };
    Pcie {
        current_speed: sysfs::text(file("current_link_speed")).into(),
        current_width: sysfs::value(file("current_link_width")).into(),
        max_speed: sysfs::text(file("max_link_speed")).into(),
        max_width: sysfs::value(file("max_link_width")).into(),
    }
}
