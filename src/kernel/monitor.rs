//! Waits until the kernel says that something changed. What it was is read anew by whoever waited:
//! a message may be lost, the state may not.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::kernel::netlink::{Error, Family, Listener};
use crate::kernel::rdma::Nldev;

/// Multicast groups (`RTNLGRP_*`, `linux/rtnetlink.h`; `RDMA_NL_GROUP_NOTIFY`,
/// `rdma/rdma_netlink.h`).
const LINK: u32 = 1;
const NEIGH: u32 = 3;
const TC: u32 = 4;
const IPV4_IFADDR: u32 = 5;
const IPV4_ROUTE: u32 = 7;
const RDMA_NOTIFY: u32 = 4;

/// What may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Network devices: there, gone, up, down, MTU, MAC.
    Links,
    /// IPv4 addresses.
    Addresses,
    /// IPv4 routes.
    Routes,
    /// Neighbours.
    Neighbours,
    /// Queueing disciplines and filters.
    Tc,
    /// RDMA devices: there, gone, with another network device. Not a device's new name (Linux 6.12
    /// does not tell), nor the state of a port, which follows its network device.
    Rdma,
}

/// Hears of changes from [`Monitor::open`] on.
pub struct Monitor {
    listeners: Vec<Listener>,
    without_rdma: Option<String>,
}

impl Monitor {
    /// Listens to changes of these groups in the calling thread's network namespace. A kernel
    /// without RDMA, or too old to tell of it, is listened to without.
    pub fn open(groups: &[Group]) -> Result<Monitor, Error> {
        let route: Vec<u32> = groups
            .iter()
            .filter_map(|group| route_group(*group))
            .collect();
        let mut monitor = Monitor {
            listeners: Vec::new(),
            without_rdma: None,
        };
        if !route.is_empty() {
            monitor
                .listeners
                .push(Listener::open(Family::Route, &route)?);
        }
        if groups.contains(&Group::Rdma) {
            match rdma() {
                Ok(Some(listener)) => monitor.listeners.push(listener),
                Ok(None) => {
                    monitor.without_rdma =
                        Some("the kernel does not tell of RDMA devices (Linux 6.12 does)".into());
                }
                Err(error) => monitor.without_rdma = Some(error.to_string()),
            }
        }
        Ok(monitor)
    }

    /// Why changes of RDMA devices are not heard, when they were asked for.
    pub fn without_rdma(&self) -> Option<&str> {
        self.without_rdma.as_deref()
    }

    /// Waits until something happened or it is `deadline`, and says whether something did. What
    /// happened since the last wait counts, and what is queued is taken.
    pub fn wait(&mut self, deadline: Instant) -> Result<bool, Error> {
        Ok(self.wait_beside(&[], Some(deadline))?.changed)
    }

    /// As [`Monitor::wait`], until one of `others` has something, too; without a deadline for as long as it
    /// takes. Nothing is woken in between.
    pub fn wait_beside(
        &mut self,
        others: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<Woken, Error> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let timeout = left
                .map(Timespec::try_from)
                .transpose()
                .map_err(io::Error::other)?;
            let own = self.listeners.iter().map(Listener::descriptor);
            let mut descriptors: Vec<PollFd> = own
                .chain(others.iter().copied())
                .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
                .collect();
            match poll(&mut descriptors, timeout.as_ref()) {
                // The timer of a poll may be a little early.
                Ok(0) if deadline.is_some_and(|deadline| Instant::now() < deadline) => continue,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(io::Error::from(error).into()),
            }
            // An error or a closed other end is something to be looked at, too.
            let woken: Vec<bool> = descriptors
                .iter()
                .map(|descriptor| !descriptor.revents().is_empty())
                .collect();
            let readable = woken[self.listeners.len()..].to_vec();
            let mut changed = false;
            for listener in &mut self.listeners {
                changed |= listener.drain()?;
            }
            let nothing = !changed && !readable.contains(&true);
            if nothing && deadline.is_none_or(|deadline| Instant::now() < deadline) {
                continue;
            }
            return Ok(Woken { changed, readable });
        }
    }
}

/// What ended a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Woken {
    /// Something changed, or may have.
    pub changed: bool,
    /// Which of the others have something.
    pub readable: Vec<bool>,
}

fn route_group(group: Group) -> Option<u32> {
    match group {
        Group::Links => Some(LINK),
        Group::Addresses => Some(IPV4_IFADDR),
        Group::Routes => Some(IPV4_ROUTE),
        Group::Neighbours => Some(NEIGH),
        Group::Tc => Some(TC),
        Group::Rdma => None,
    }
}

/// Joins first, asks then: what happens in between is heard.
fn rdma() -> Result<Option<Listener>, Error> {
    let listener = Listener::open(Family::Rdma, &[RDMA_NOTIFY])?;
    Ok(Nldev::open()?.notifies()?.then_some(listener))
}
