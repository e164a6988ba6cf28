//! The counters of this host's functions, again and again.

use crate::collect::{Error, Options, collect};
use crate::doctor::watch::{DROPS, Function, LOSSES, Look};
use crate::kernel::statistics::statistics;
use crate::kernel::sysfs;
use crate::names::{AttributeName, HostName, NetdevName, RdmaName};

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
    /// Its network device, whose driver counts what hairpin queues lose.
    netdev: NetdevName,
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
                netdev: port.netdev.clone(),
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
            LOSSES.iter().filter_map(move |name| {
                let value: u64 = sysfs::value(file(folder, name)).ok()?;
                Some((name.parse::<AttributeName>().ok()?, value))
            })
        });
        Function {
            device: self.device.clone(),
            socket: self.socket,
            sent_bytes: bytes("port_xmit_data"),
            received_bytes: bytes("port_rcv_data"),
            losses: losses
                .chain(drops(statistics(&self.netdev).unwrap_or_default()))
                .collect(),
        }
    }
}

/// Of a driver's statistics, those of packets that were lost.
fn drops(all: Vec<(String, u64)>) -> impl Iterator<Item = (AttributeName, u64)> {
    let lost = |(name, _): &(String, u64)| DROPS.contains(&name.as_str());
    let named = |(name, value): (String, u64)| Some((name.parse().ok()?, value));
    all.into_iter().filter(lost).filter_map(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_drivers_statistics_those_of_lost_packets_are_watched() {
        let all = [
            ("rx_packets", 900),
            ("rx_out_of_buffer", 4),
            ("rx0_out_of_buffer", 3),
            ("rx_discards_phy", 0),
        ];
        let all = all.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let seen: Vec<(String, u64)> = drops(all)
            .map(|(name, value)| (name.to_string(), value))
            .collect();
        assert_eq!(
            seen,
            [
                ("rx_out_of_buffer".to_owned(), 4),
                ("rx_discards_phy".to_owned(), 0)
            ]
        );
    }
}
