//! The counters of this host's functions, again and again.

use crate::collect::{Error, Options, collect};
use crate::doctor::watch::{Function, Look};
use crate::kernel::sysfs;
use crate::names::{AttributeName, HostName, RdmaName};

/// `port_xmit_data` and `port_rcv_data` count words of four bytes (IBTA, PortCounters).
const WORD: u64 = 4;

/// Where counters are: those of the port and those of the driver.
const FOLDERS: [&str; 2] = ["counters", "hw_counters"];

/// The functions of this host.
pub struct Traffic {
    host: HostName,
    functions: Vec<Place>,
}

struct Place {
    device: RdmaName,
    port: String,
    socket: Option<u8>,
}

impl Traffic {
    /// Finds them, as an inventory does.
    pub fn open(options: &Options) -> Result<Traffic, Error> {
        let inventory = collect(options)?;
        let place = |port: &crate::facts::PortFacts| {
            Some(Place {
                device: port.rdma.known()?.clone()?,
                port: port.details.rdma_port.known()?.to_string(),
                socket: port.place().map(|place| place.function),
            })
        };
        Ok(Traffic {
            functions: inventory.ports.iter().filter_map(place).collect(),
            host: inventory.host,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// What they stand at.
    pub fn look(&self, at_ms: u64) -> Look {
        Look {
            host: self.host.clone(),
            at_ms,
            functions: self.functions.iter().map(Place::look).collect(),
        }
    }
}

impl Place {
    fn look(&self) -> Function {
        let file = |folder: &str, name: &str| {
            let parts = [self.device.as_str(), "ports", &self.port, folder, name];
            sysfs::below("/sys/class/infiniband", &parts)
        };
        let bytes = |name: &str| {
            let words: u64 = sysfs::value(file(FOLDERS[0], name)).ok()?;
            Some(words.saturating_mul(WORD))
        };
        let losses = FOLDERS.iter().flat_map(|folder| {
            let all = crate::doctor::watch::LOSSES.iter();
            all.filter_map(move |name| {
                let value: u64 = sysfs::value(file(folder, name)).ok()?;
                Some((name.parse::<AttributeName>().ok()?, value))
            })
        });
        Function {
            device: self.device.clone(),
            socket: self.socket,
            sent_bytes: bytes("port_xmit_data"),
            received_bytes: bytes("port_rcv_data"),
            losses: losses.collect(),
        }
    }
}
