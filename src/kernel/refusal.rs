//! What a refused change means to who asked for it, with the kernel's own words.
//!
//! The texts are those of `net/sched` and `net/ipv4` (Linux 6.12 and 6.18); where a kernel says
//! less, the error number decides alone.

use std::fmt;
use std::net::IpAddr;

use crate::facts::{Filter, Route};
use crate::kernel::netlink::{Error, Refusal};
use crate::names::{NetdevName, PciAddress};

/// A change that was asked for.
#[derive(Debug, Clone, Copy)]
pub enum Attempt<'a> {
    /// [`Rtnetlink::add_clsact`](crate::kernel::route::Rtnetlink::add_clsact)
    AddClsact(&'a NetdevName),
    /// [`Rtnetlink::delete_clsact`](crate::kernel::route::Rtnetlink::delete_clsact)
    DeleteClsact(&'a NetdevName),
    /// [`Rtnetlink::add_filter`](crate::kernel::route::Rtnetlink::add_filter)
    AddFilter(&'a NetdevName, &'a Filter),
    /// [`Rtnetlink::delete_filter`](crate::kernel::route::Rtnetlink::delete_filter)
    DeleteFilter(&'a NetdevName, &'a Filter),
    /// [`Rtnetlink::add_route`](crate::kernel::route::Rtnetlink::add_route)
    AddRoute(&'a Route),
    /// [`Rtnetlink::delete_route`](crate::kernel::route::Rtnetlink::delete_route)
    DeleteRoute(&'a Route),
    /// [`Rtnetlink::set_neighbour`](crate::kernel::route::Rtnetlink::set_neighbour)
    SetNeighbour(&'a NetdevName, IpAddr),
    /// [`Rtnetlink::delete_neighbour`](crate::kernel::route::Rtnetlink::delete_neighbour)
    DeleteNeighbour(&'a NetdevName, IpAddr),
    /// [`Devlink::set_driverinit`](crate::kernel::devlink::Devlink::set_driverinit)
    SetParameter(PciAddress, &'a str, u32),
    /// [`Devlink::reinitialise`](crate::kernel::devlink::Devlink::reinitialise)
    Reinitialise(&'a NetdevName, PciAddress),
    /// [`Ethtool::set_feature`](crate::kernel::ethtool::Ethtool::set_feature)
    SwitchFeature(&'a NetdevName, &'a str, bool),
}

impl fmt::Display for Attempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attempt::AddClsact(dev) => write!(f, "cannot add clsact to {dev}"),
            Attempt::DeleteClsact(dev) => write!(f, "cannot remove clsact from {dev}"),
            Attempt::AddFilter(dev, filter) => write!(
                f,
                "cannot add the {} filter of preference {} to {dev} {}",
                filter.kind, filter.pref, filter.side
            ),
            Attempt::DeleteFilter(dev, filter) => write!(
                f,
                "cannot remove the {} filter of preference {} from {dev} {}",
                filter.kind, filter.pref, filter.side
            ),
            Attempt::AddRoute(route) => {
                write!(f, "cannot add the route to {}", route.destination)
            }
            Attempt::DeleteRoute(route) => {
                write!(f, "cannot remove the route to {}", route.destination)
            }
            Attempt::SetNeighbour(dev, address) => {
                write!(f, "cannot set the neighbour {address} of {dev}")
            }
            Attempt::DeleteNeighbour(dev, address) => {
                write!(f, "cannot remove the neighbour {address} of {dev}")
            }
            Attempt::SetParameter(pci, name, value) => {
                write!(f, "cannot set {name} {value} of pci/{pci}")
            }
            Attempt::Reinitialise(dev, pci) => {
                write!(f, "cannot re-initialise pci/{pci} of {dev}")
            }
            Attempt::SwitchFeature(dev, name, on) => {
                let word = if *on { "on" } else { "off" };
                write!(f, "cannot switch {name} of {dev} {word}")
            }
        }
    }
}

/// What a refusal comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Situation {
    /// The process may not change the network.
    NotPermitted,
    /// The kernel has no such classifier, action or discipline: its module is missing.
    NoModule,
    /// The driver or device does not take the rule into hardware.
    NotOffloaded,
    /// The network device is not there.
    NoDevice,
    /// The device is down, the gateway cannot be reached, or the source is not an address of this
    /// host.
    NotReady,
    /// Something is in the way.
    InTheWay,
    /// What was to be removed is not there.
    Gone,
    /// What it would stand on is not there: the filter's discipline.
    NothingToStandOn,
    /// Nothing of the kind was found out, or it may work later.
    Other,
}

/// The situation that a refusal of `attempt` comes from.
pub fn situation(attempt: &Attempt, error: &Error) -> Situation {
    match error {
        Error::Kernel(refusal) => diagnosis(attempt, refusal).0,
        _ => Situation::Other,
    }
}

/// One sentence: what was attempted, what the refusal means, and the kernel's words.
pub fn sentence(attempt: &Attempt, error: &Error) -> String {
    match error {
        Error::Kernel(refusal) => match diagnosis(attempt, refusal).1 {
            Some(why) => format!("{attempt}: {why} (the kernel: {refusal})"),
            None => format!("{attempt} (the kernel: {refusal})"),
        },
        other => format!("{attempt}: {other}"),
    }
}

fn diagnosis(attempt: &Attempt, refusal: &Refusal) -> (Situation, Option<String>) {
    use Situation::*;
    let text = refusal.message.as_deref().unwrap_or("");
    let says = |part: &str| text.contains(part);
    let because = |situation, why: &str| (situation, Some(why.to_owned()));
    match refusal.errno {
        libc::EPERM | libc::EACCES if refusal.lacks_net_admin => because(
            NotPermitted,
            "only root (CAP_NET_ADMIN) may change the network",
        ),
        libc::EPERM | libc::EACCES => because(
            NotPermitted,
            "not permitted, although this process has CAP_NET_ADMIN: it may not own this network namespace, or a security module refuses",
        ),
        libc::ENOMEM => because(Other, "the kernel or the device has no memory left for it"),
        libc::ENOBUFS => because(Other, "the kernel has no buffers left for it"),
        libc::ENOSPC => because(Other, "the device's or the kernel's table is full"),
        libc::EBUSY | libc::EAGAIN => because(Other, "what it needs is busy: try again"),
        libc::ETIMEDOUT | libc::EIO => because(Other, "the device did not do it"),
        libc::ENODEV | libc::ENXIO => (NoDevice, Some(no_device(attempt))),
        errno => match attempt {
            Attempt::AddClsact(dev) => match errno {
                libc::EEXIST => (
                    InTheWay,
                    Some(format!(
                        "{dev} has a clsact or ingress discipline already (tc qdisc show dev {dev})"
                    )),
                ),
                libc::ENOENT => because(NoModule, "this kernel has no module sch_ingress"),
                _ => (Other, None),
            },
            Attempt::DeleteClsact(dev) => match errno {
                libc::ENOENT | libc::ESRCH => (Gone, Some(format!("{dev} has none"))),
                // Without any, the kernel compares the handle with the one of no discipline.
                libc::EINVAL if says("Invalid handle") => (Gone, Some(format!("{dev} has none"))),
                libc::EINVAL if says("Invalid qdisc name") => (
                    InTheWay,
                    Some(format!("what {dev} has is a plain ingress discipline")),
                ),
                _ => (Other, None),
            },
            Attempt::AddFilter(dev, filter) => add_filter(dev, filter, errno, text),
            Attempt::DeleteFilter(dev, filter) => match errno {
                libc::ENOENT | libc::ESRCH => because(Gone, "it is not there"),
                libc::EINVAL if says("Parent Qdisc") => (
                    Gone,
                    Some(format!("{dev} has no clsact discipline any more")),
                ),
                libc::EINVAL if says("filter kind does not match") => (
                    InTheWay,
                    Some(format!(
                        "preference {} belongs to another classifier",
                        filter.pref
                    )),
                ),
                libc::EOPNOTSUPP if says("block is shared") => because(
                    InTheWay,
                    "the device shares its block of filters with others",
                ),
                _ => (Other, None),
            },
            Attempt::AddRoute(route) => add_route(route, errno, text),
            Attempt::DeleteRoute(_) => match errno {
                libc::ESRCH | libc::ENOENT => because(Gone, "it is not there"),
                _ => (Other, None),
            },
            Attempt::SetNeighbour(dev, _) => match errno {
                libc::ENETDOWN => (NotReady, Some(format!("{dev} is down"))),
                libc::EINVAL => (
                    NotReady,
                    Some(format!("{dev} does not take neighbours now")),
                ),
                _ => (Other, None),
            },
            Attempt::DeleteNeighbour(..) => match errno {
                libc::ENOENT | libc::ESRCH => because(Gone, "it is not there"),
                _ => (Other, None),
            },
            Attempt::SetParameter(..) => match errno {
                libc::EOPNOTSUPP => because(Other, "the driver does not take it in this mode"),
                _ => (Other, None),
            },
            Attempt::Reinitialise(..) => match errno {
                libc::EOPNOTSUPP => because(
                    Other,
                    "the driver does not re-initialise, or something of it (VFs, a firmware state) keeps it from it",
                ),
                _ => (Other, None),
            },
            Attempt::SwitchFeature(dev, name, _) => match errno {
                libc::EOPNOTSUPP => (
                    NotOffloaded,
                    Some(format!("the driver of {dev} cannot switch {name}")),
                ),
                _ => (Other, None),
            },
        },
    }
}

fn no_device(attempt: &Attempt) -> String {
    match attempt {
        Attempt::AddFilter(dev, filter) => {
            let actions = filter.flower.iter().flat_map(|flower| &flower.actions);
            let to = actions
                .filter_map(|action| action.mirred.as_ref()?.dev.as_ref())
                .map(|dev| format!(", or {dev}, which it redirects to,"))
                .next()
                .unwrap_or_default();
            format!("{dev}{to} is not there")
        }
        Attempt::AddRoute(route) | Attempt::DeleteRoute(route) => match &route.dev {
            Some(dev) => format!("{dev} is not there"),
            None => "its device is not there".to_owned(),
        },
        Attempt::AddClsact(dev)
        | Attempt::DeleteClsact(dev)
        | Attempt::DeleteFilter(dev, _)
        | Attempt::SetNeighbour(dev, _)
        | Attempt::DeleteNeighbour(dev, _)
        | Attempt::SwitchFeature(dev, ..) => format!("{dev} is not there"),
        Attempt::SetParameter(pci, ..) | Attempt::Reinitialise(_, pci) => {
            format!("devlink has no pci/{pci}")
        }
    }
}

fn add_filter(
    dev: &NetdevName,
    filter: &Filter,
    errno: i32,
    text: &str,
) -> (Situation, Option<String>) {
    use Situation::*;
    let says = |part: &str| text.contains(part);
    let skip_sw = filter.flower.as_ref().is_some_and(|flower| flower.skip_sw);
    let actions = || {
        let mut modules: Vec<String> = filter
            .flower
            .iter()
            .flat_map(|flower| &flower.actions)
            .map(|action| format!("act_{}", action.kind))
            .collect();
        modules.dedup();
        modules.join(" or ")
    };
    let (situation, why) = match errno {
        libc::EOPNOTSUPP if says("block is shared") => (
            InTheWay,
            format!("{dev} shares its block of filters with others"),
        ),
        libc::EOPNOTSUPP if says("compile options") => {
            (NoModule, "this kernel is built without tc actions".to_owned())
        }
        libc::EOPNOTSUPP if says("offload is disabled") => (
            NotOffloaded,
            format!("hardware offload is off (ethtool -K {dev} hw-tc-offload on)"),
        ),
        libc::EOPNOTSUPP if text.is_empty() => (
            NotOffloaded,
            format!(
                "the driver or device of {dev} takes no such rule in hardware; is hw-tc-offload off?"
            ),
        ),
        libc::EOPNOTSUPP => (
            NotOffloaded,
            format!("the driver of {dev} does not take it into hardware"),
        ),
        // `fl_hw_replace_filter`: nobody took a rule that is not for software.
        libc::EINVAL if skip_sw && text.is_empty() => (
            NotOffloaded,
            format!(
                "no device took it into hardware (is hw-tc-offload off on {dev}?), or the filter with this handle matches on other keys"
            ),
        ),
        libc::ENOENT if says("classifier not found") => (
            NoModule,
            format!("this kernel has no module cls_{}", filter.kind),
        ),
        libc::ENOENT if says("action module") => {
            (NoModule, format!("this kernel has no module {}", actions()))
        }
        libc::EEXIST if says("Filter already exists") => (
            InTheWay,
            format!(
                "a filter with preference {} and handle {:#x} is there",
                filter.pref, filter.handle
            ),
        ),
        libc::EEXIST => (
            InTheWay,
            "a filter that matches the same is there, here under another handle or in the device under another preference"
                .to_owned(),
        ),
        libc::EINVAL if says("Parent Qdisc") => (
            NothingToStandOn,
            format!("{dev} has no clsact discipline"),
        ),
        libc::EINVAL if says("filter kind does not match") => (
            InTheWay,
            format!("preference {} belongs to another classifier", filter.pref),
        ),
        libc::EINVAL if says("priority/protocol not found") => (
            InTheWay,
            format!(
                "preference {} belongs to another protocol than {}",
                filter.pref, filter.protocol
            ),
        ),
        libc::EINVAL if text.is_empty() => (
            InTheWay,
            format!(
                "the filter with handle {:#x} matches on other keys, or preference {} belongs to another protocol than {}",
                filter.handle, filter.pref, filter.protocol
            ),
        ),
        _ => return (Other, None),
    };
    (situation, Some(why))
}

fn add_route(route: &Route, errno: i32, text: &str) -> (Situation, Option<String>) {
    use Situation::*;
    let dev = route.dev.as_ref().map_or("its device", NetdevName::as_str);
    let (situation, why) = match errno {
        libc::EEXIST => (
            InTheWay,
            format!(
                "there is another route to it (ip route show table {} {})",
                route.table, route.destination
            ),
        ),
        libc::ENETUNREACH | libc::EHOSTUNREACH => match route.gateway {
            Some(gateway) => (
                NotReady,
                format!("its gateway {gateway} is in no subnet of {dev}, or {dev} is down or gone"),
            ),
            None => (
                NotReady,
                format!("{dev} is down or gone, or does not reach it"),
            ),
        },
        libc::ENETDOWN => (NotReady, format!("{dev} is down")),
        libc::EINVAL if text.contains("prefsrc") => match route.src {
            Some(src) => (
                NotReady,
                format!("its source {src} is not an address of this host"),
            ),
            None => return (Other, None),
        },
        libc::EINVAL if text.contains("gateway") => match route.gateway {
            Some(gateway) => (
                NotReady,
                format!("its gateway {gateway} cannot be one on {dev}"),
            ),
            None => return (Other, None),
        },
        _ => return (Other, None),
    };
    (situation, Some(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Flower, Side};

    fn refused(errno: i32, message: &str) -> Error {
        Error::Kernel(Refusal {
            errno,
            message: Some(message.to_owned()).filter(|text| !text.is_empty()),
            offset: None,
            missing: None,
            lacks_net_admin: false,
        })
    }

    fn rule() -> Filter {
        Filter {
            side: Side::Ingress,
            pref: 49152,
            protocol: crate::names::EtherType(0x88b5),
            chain: 0,
            handle: 49152,
            kind: "flower".into(),
            flower: Some(Flower {
                eth_type: None,
                src_mac: None,
                src_mac_mask: None,
                dst_mac: None,
                dst_mac_mask: None,
                other_keys: Vec::new(),
                skip_sw: true,
                skip_hw: false,
                in_hw: false,
                not_in_hw: false,
                in_hw_count: None,
                actions: Vec::new(),
            }),
            block: None,
        }
    }

    /// What the kernels of the tests have no device for (see `tests/changes.rs` for the rest):
    /// `tc_can_offload_extack` (include/net/pkt_cls.h), `fl_hw_replace_filter`, and a driver's words.
    #[test]
    fn a_rule_that_no_hardware_takes_says_why() {
        let (dev, rule) = ("enp1s0f0np0".parse().unwrap(), rule());
        let attempt = Attempt::AddFilter(&dev, &rule);
        for (errno, text, wanted) in [
            (
                libc::EOPNOTSUPP,
                "TC offload is disabled on net device",
                "hardware offload is off (ethtool -K enp1s0f0np0 hw-tc-offload on)",
            ),
            (
                libc::EOPNOTSUPP,
                "devices are not on same switch HW, can't offload forwarding",
                "the driver of enp1s0f0np0 does not take it into hardware",
            ),
            (
                libc::EOPNOTSUPP,
                "",
                "takes no such rule in hardware; is hw-tc-offload off?",
            ),
            (libc::EINVAL, "", "no device took it into hardware"),
        ] {
            let error = refused(errno, text);
            let line = sentence(&attempt, &error);
            assert_eq!(
                situation(&attempt, &error),
                Situation::NotOffloaded,
                "{line}"
            );
            assert!(line.contains(wanted) && line.contains(text), "{line}");
        }
        for (errno, text, wanted, why) in [
            (
                libc::EOPNOTSUPP,
                "This filter block is shared. Please use the block index to manipulate the filters",
                "shares its block",
                Situation::InTheWay,
            ),
            (libc::ENOSPC, "", "table is full", Situation::Other),
            (libc::ENOMEM, "", "no memory left", Situation::Other),
            (libc::EBUSY, "", "busy", Situation::Other),
            (
                libc::EPERM,
                "",
                "although this process has",
                Situation::NotPermitted,
            ),
        ] {
            let error = refused(errno, text);
            let line = sentence(&attempt, &error);
            assert_eq!(situation(&attempt, &error), why, "{line}");
            assert!(
                line.contains(wanted) && line.contains(&error.to_string()),
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_not_known_keeps_the_kernels_words() {
        let dev = "x0".parse().unwrap();
        let line = sentence(
            &Attempt::AddClsact(&dev),
            &refused(libc::ERANGE, "new words"),
        );
        assert!(
            line.starts_with("cannot add clsact to x0 (the kernel: "),
            "{line}"
        );
        assert!(line.ends_with("new words)"), "{line}");
        let line = sentence(&Attempt::DeleteClsact(&dev), &Error::Interrupted);
        assert!(
            line.starts_with("cannot remove clsact from x0: the kernel's tables"),
            "{line}"
        );
    }
}
