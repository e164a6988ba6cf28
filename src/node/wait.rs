//! Waiting for what comes right by itself: links, addresses, RDMA ports, GIDs, units.

use std::io;
use std::time::{Duration, Instant};

use crate::kernel::monitor::{Group, Monitor};

/// How long at most until the next look. Links, addresses and RDMA devices make events; a GID that
/// follows an address and a unit that gets ready make none here.
const NEXT_LOOK: Duration = Duration::from_millis(250);

/// Hears of changes from when it was opened.
pub struct Watch(Option<Monitor>);

impl Watch {
    /// Opens it; before the first look, so that no change is missed. Where the kernel gives no
    /// notifications, the next look is after a while.
    pub fn open() -> Watch {
        Watch(Monitor::open(&[Group::Links, Group::Addresses, Group::Rdma]).ok())
    }

    /// Waits until something may have changed; `false` once `deadline` has passed.
    pub fn wait(&mut self, deadline: Instant) -> io::Result<bool> {
        let now = Instant::now();
        if now >= deadline {
            return Ok(false);
        }
        let until = deadline.min(now + NEXT_LOOK);
        match &mut self.0 {
            Some(monitor) => {
                monitor.wait(until).map_err(io::Error::other)?;
            }
            None => std::thread::sleep(until - now),
        }
        Ok(true)
    }
}
