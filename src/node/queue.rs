//! The hairpin queues of this host's functions: what devlink and our record know, and the platform on which
//! they are loaded.

use std::time::{Duration, Instant};

use crate::collect::record;
use crate::facts::{Applied, Fact, HairpinParameter, HairpinRecord};
use crate::finding::Finding;
use crate::kernel::devlink::{Handle, Mode, Param};
use crate::kernel::ethtool::HW_TC_OFFLOAD;
use crate::kernel::refusal::Attempt;
use crate::kernel::route::Link;
use crate::kernel::sysfs;
use crate::mesh::apply::{Failure, Platform as _};
use crate::mesh::change::Change;
use crate::mesh::present::Present;
use crate::mesh::queue::{
    Allowed, AtStake, FunctionNow, ParameterNow, Platform, Underway, blockers,
};
use crate::names::{NetdevName, PciAddress, Text};
use crate::node::platform::{Node, failure};
use crate::node::read::{Sources, SubjectPort, ask, handle};
use crate::node::wait::Watch;

/// How long a function may take to come back, at least: re-initialising takes about 4 s, and a network
/// manager then gives the address.
pub const RETURN: Duration = Duration::from_secs(60);

/// Prefixes up to this are default routes: ::/0, ::/1 with 8000::/1, which VPNs set before it, and 2000::/3, all
/// addresses that are given out (IANA, "IPv6 Global Unicast Address Assignments").
const IPV6_DEFAULT_PREFIX: u8 = 3;

/// The devices of IPv6 default routes (`ipv6_route_seq_show`, net/ipv6/route.c: destination, prefix,
/// source, prefix, gateway, metric, references, uses, flags, device; numbers in hex).
fn ipv6_default_devices(table: &str) -> Vec<NetdevName> {
    /// `RTF_REJECT` (`linux/route.h`).
    const REJECT: u32 = 0x0200;
    let mut devices = Vec::new();
    for line in table.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, prefix, _, _, _, _, _, _, flags, device] = words.as_slice() else {
            continue;
        };
        let default = u8::from_str_radix(prefix, 16).is_ok_and(|p| p <= IPV6_DEFAULT_PREFIX);
        let rejects = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & REJECT != 0);
        if default && !rejects {
            devices.extend(device.parse::<NetdevName>());
        }
    }
    devices
}

/// A driverinit parameter of a function; `None` when its driver has none of that name.
fn number_of(
    params: &Fact<Vec<(Handle, Param)>>,
    handle: &Handle,
    name: &str,
) -> Fact<Option<u32>> {
    params.as_ref().map(|params| {
        let mut own = params
            .iter()
            .filter(|(of, param)| of == handle && param.name == name)
            .flat_map(|(_, param)| &param.values);
        own.find(|(mode, _)| *mode == Mode::Driverinit)
            .and_then(|(_, value)| value.number())
    })
}

fn boot_id() -> Result<Text, String> {
    sysfs::text("/proc/sys/kernel/random/boot_id").map_err(|e| e.to_string())
}

impl Sources {
    /// What is known of a function's queues. `params` are the parameters of all devices.
    pub(super) fn function(
        &mut self,
        port: &SubjectPort,
        link: Option<&Link>,
        params: &Fact<Vec<(Handle, Param)>>,
    ) -> FunctionNow {
        let nothing = |why: &str| ParameterNow {
            value: Fact::because(why),
            state: Fact::because(why),
            record: None,
        };
        let Some(handle) = handle(link, port) else {
            let why = "the function of the port is not known";
            return FunctionNow {
                netdev: port.netdev.clone(),
                rdma: port.rdma.clone(),
                pci: Fact::because(why),
                reloads: Fact::because(why),
                failed: Fact::because(why),
                size: nothing(why),
                num_queues: nothing(why),
            };
        };
        let pci: Fact<PciAddress> = match handle.bus.as_str() {
            "pci" => handle.device.as_str().parse().into(),
            _ => Fact::because(format!("{handle} is not a PCI function")),
        };
        let reloads = ask(&mut self.devlink, "devlink", |devlink| {
            devlink.reloads(&handle)
        });
        let failed = reloads.as_ref().map(|reloads| reloads.failed);
        let count: Fact<u32> = match &reloads {
            Fact::Known(reloads) => reloads
                .driver_reinit
                .ok_or("the driver does not count its re-initialisations")
                .into(),
            Fact::NotObserved(why) => Fact::NotObserved(why.clone()),
        };
        let parameter = |parameter: HairpinParameter| {
            let value = number_of(params, &handle, parameter.name());
            let read = match (pci.known(), boot_id()) {
                (Some(pci), Ok(boot)) => {
                    record::read(parameter, *pci, &boot).map_err(|e| e.to_string())
                }
                (None, _) => Ok(None),
                (_, Err(why)) => Err(why),
            };
            // A record that cannot be believed is none.
            let record = read.as_ref().ok().cloned().flatten();
            let state = match (&value, &count) {
                (Fact::Known(Some(value)), Fact::Known(count)) => {
                    match (parameter.state(*value, *count, record.as_ref()), read) {
                        (Applied::Unknown, Err(why)) => Fact::NotObserved(why),
                        (state, _) => Fact::Known(state),
                    }
                }
                (Fact::Known(None), _) => Fact::because(format!("the driver shows no {parameter}")),
                (Fact::NotObserved(why), _) | (_, Fact::NotObserved(why)) => {
                    Fact::NotObserved(why.clone())
                }
            };
            ParameterNow {
                value,
                state,
                record,
            }
        };
        FunctionNow {
            netdev: port.netdev.clone(),
            rdma: port.rdma.clone(),
            size: parameter(HairpinParameter::QueueSize),
            num_queues: parameter(HairpinParameter::NumQueues),
            failed,
            reloads: count,
            pci,
        }
    }

    /// What is known of the queues of these ports' functions.
    pub fn functions(&mut self, ports: &[SubjectPort]) -> Vec<FunctionNow> {
        // The function of a port is that of the device of its name.
        if let Ok((route, _)) = self.route() {
            if let Ok(listing) = route.links() {
                self.links = listing.rows;
            }
        }
        let params = ask(&mut self.devlink, "devlink parameters", |devlink| {
            devlink.all_params()
        });
        let links = self.links.clone();
        let link = |port: &SubjectPort| links.iter().find(|link| link.name == port.netdev);
        ports
            .iter()
            .map(|port| self.function(port, link(port), &params))
            .collect()
    }
}

/// This host, its queues being loaded.
pub struct Queues<'a, 'n> {
    /// The host.
    pub node: &'a mut Node<'n>,
    /// Hears of changes.
    pub watch: &'a mut Watch,
    /// The ports of the plan.
    pub planned: Vec<NetdevName>,
    /// What may be destroyed.
    pub allowed: Allowed,
    /// How long a function may take to come back.
    pub patience: Duration,
    /// Until when the one may that was re-initialised last.
    pub deadline: Instant,
}

impl Queues<'_, '_> {
    /// What a re-initialisation could destroy.
    pub fn at_stake(&mut self, present: &Present) -> AtStake {
        let subject = self.node.subject.clone();
        let ipv6 = match sysfs::table("/proc/net/ipv6_route") {
            Ok(table) => Fact::Known(ipv6_default_devices(&table)),
            // A kernel without IPv6 has none.
            Err(error) if error.is_absent() => Fact::Known(Vec::new()),
            Err(error) => Fact::because(error),
        };
        AtStake {
            devices: self.node.sources.devices(),
            open: self.node.sources.open_queue_pairs(&subject),
            routes: present.routes.clone(),
            ipv6_default: ipv6,
        }
    }

    /// Why one of these functions must not be re-initialised.
    pub fn blockers_of(&mut self, functions: &[FunctionNow], present: &Present) -> Vec<Finding> {
        let at_stake = self.at_stake(present);
        functions
            .iter()
            .flat_map(|function| {
                let planned = self.planned.contains(&function.netdev);
                let port = present.port(&function.netdev);
                let host = &self.node.host;
                blockers(host, function, planned, port, &at_stake, self.allowed)
            })
            .collect()
    }

    fn devlink<T>(
        &mut self,
        attempt: Attempt,
        act: impl FnOnce(
            &mut crate::kernel::devlink::Devlink,
        ) -> Result<T, crate::kernel::netlink::Error>,
    ) -> Result<T, Failure> {
        let devlink = &mut self.node.sources.devlink;
        match devlink.get_or_insert_with(crate::kernel::devlink::Devlink::open) {
            Ok(devlink) => act(devlink).map_err(|error| failure(&attempt, &error)),
            Err(error) => Err(Failure::clean(error.to_string())),
        }
    }
}

fn pci_handle(pci: PciAddress) -> Handle {
    Handle {
        bus: "pci".into(),
        device: pci.to_string().as_str().into(),
    }
}

impl Platform for Queues<'_, '_> {
    fn note(&mut self, underway: Option<&Underway>) -> Result<(), String> {
        self.node
            .state
            .note_underway(underway)
            .map_err(|e| e.to_string())
    }

    fn record(
        &mut self,
        pci: PciAddress,
        parameter: HairpinParameter,
        reloads: u32,
        value: u32,
    ) -> Result<(), String> {
        let record = HairpinRecord {
            boot_id: boot_id()?,
            pci,
            reload_count: reloads,
            value,
        };
        self.restore_record(pci, parameter, Some(&record))
    }

    fn restore_record(
        &mut self,
        pci: PciAddress,
        parameter: HairpinParameter,
        record: Option<&HairpinRecord>,
    ) -> Result<(), String> {
        self.node
            .state
            .record_hairpin(parameter, pci, record)
            .map_err(|e| e.to_string())
    }

    fn set(
        &mut self,
        pci: PciAddress,
        parameter: HairpinParameter,
        value: u32,
    ) -> Result<Option<String>, Failure> {
        let attempt = Attempt::SetParameter(pci, parameter.name(), value);
        self.devlink(attempt, |devlink| {
            devlink.set_driverinit(&pci_handle(pci), parameter.name(), value)
        })
    }

    fn reinitialise(
        &mut self,
        dev: &NetdevName,
        pci: PciAddress,
    ) -> Result<Option<String>, Failure> {
        self.devlink(Attempt::Reinitialise(dev, pci), |devlink| {
            devlink.reinitialise(&pci_handle(pci))
        })
    }

    fn switch_offload(&mut self, dev: &NetdevName, on: bool) -> Result<Option<String>, Failure> {
        let attempt = Attempt::SwitchFeature(dev, HW_TC_OFFLOAD, on);
        let ethtool = &mut self.node.sources.ethtool;
        match ethtool.get_or_insert_with(crate::kernel::ethtool::Ethtool::open) {
            Ok(ethtool) => match ethtool.set_feature(dev, HW_TC_OFFLOAD, on) {
                Ok(true) => Ok(None),
                Ok(false) => Err(Failure::clean(format!(
                    "{attempt}: the driver left it as it is, and gives no reason"
                ))),
                Err(error) => Err(failure(&attempt, &error)),
            },
            Err(error) => Err(Failure::clean(error.to_string())),
        }
    }

    fn change(&mut self, change: &Change) -> Result<Option<String>, Failure> {
        self.node.carry_out(change)
    }

    fn look(&mut self) -> Result<Present, String> {
        self.node.read()
    }

    fn function(&mut self, dev: &NetdevName) -> Result<FunctionNow, String> {
        let ports = self.node.subject.ports.clone();
        let own: Vec<SubjectPort> = ports.into_iter().filter(|p| p.netdev == *dev).collect();
        let mut functions = self.node.sources.functions(&own);
        functions.pop().ok_or_else(|| "no port of this run".into())
    }

    fn blockers(&mut self, function: &FunctionNow, present: &Present) -> Vec<Finding> {
        self.blockers_of(std::slice::from_ref(function), present)
    }

    fn expect_back(&mut self) {
        self.deadline = Instant::now() + self.patience;
    }

    fn wait(&mut self) -> Result<bool, String> {
        self.watch.wait(self.deadline).map_err(|e| e.to_string())
    }

    fn interrupted(&mut self) -> Option<String> {
        crate::mesh::apply::Platform::interrupted(self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn no_table_makes_its_reader_panic(table in "[0-9a-f \n]{0,300}") {
            let _ = ipv6_default_devices(&table);
        }
    }

    #[test]
    fn ipv6_default_routes_are_those_that_lead_somewhere() {
        let zero = "00000000000000000000000000000000";
        let gateway = "fe800000000000000000000000000001";
        let table = format!(
            "{zero} 00 {zero} 00 {gateway} 00000400 00000001 00000000 00450003   enP7s7\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n\
             fe800000000000000000000000000000 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001 enp1s0f0np0\n\
             {zero} 01 {zero} 00 {gateway} 00000400 00000001 00000000 00450003   tun0\n\
             80000000000000000000000000000000 01 {zero} 00 {gateway} 00000400 00000001 00000000 00450003   tun1\n\
             20000000000000000000000000000000 03 {zero} 00 {gateway} 00000400 00000001 00000000 00450003   wg0\n\
             20010db8000000000000000000000000 20 {zero} 00 {gateway} 00000400 00000001 00000000 00450003   enp1s0f0np0\n\
             {zero} 60 {zero} 00 {zero} 00000100 00000001 00000000 00000001 enp1s0f1np1\n\
             damaged\n"
        );
        let devices = ipv6_default_devices(&table);
        let names: Vec<&str> = devices.iter().map(NetdevName::as_str).collect();
        assert_eq!(names, ["enP7s7", "tun0", "tun1", "wg0"]);
    }
}
