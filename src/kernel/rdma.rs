//! RDMA netlink (nldev): devices, their ports and queue pairs.

use crate::kernel::attr::{Attrs, Malformed, Writer};
use crate::kernel::netlink::{Error, Family, Message, Socket};
use crate::names::{NetdevName, RdmaName, Text};

/// `rdma/rdma_netlink.h`
const RDMA_NL_NLDEV: u16 = 5;
const CMD_GET: u16 = 1;
const CMD_PORT_GET: u16 = 5;
const CMD_SYS_GET: u16 = 6;
const CMD_RES_QP_GET: u16 = 10;
const CMD_RES_CTX_GET: u16 = 22;
const ATTR_DEV_INDEX: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_PORT_INDEX: u16 = 3;
const ATTR_FW_VERSION: u16 = 5;
const ATTR_NODE_GUID: u16 = 6;
const ATTR_PORT_STATE: u16 = 12;
const ATTR_PORT_PHYS_STATE: u16 = 13;
const ATTR_RES_QP: u16 = 19;
const ATTR_RES_QP_ENTRY: u16 = 20;
const ATTR_RES_LQPN: u16 = 21;
const ATTR_RES_RQPN: u16 = 22;
const ATTR_RES_TYPE: u16 = 26;
const ATTR_RES_STATE: u16 = 27;
const ATTR_RES_PID: u16 = 28;
const ATTR_RES_KERN_NAME: u16 = 29;
const ATTR_RES_CTX: u16 = 86;
const ATTR_RES_CTX_ENTRY: u16 = 87;
const ATTR_NDEV_INDEX: u16 = 50;
const ATTR_NDEV_NAME: u16 = 51;
const SYS_ATTR_MONITOR_MODE: u16 = 103;

/// Message type of a command: `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command)`.
const fn kind(command: u16) -> u16 {
    (RDMA_NL_NLDEV << 10) | command
}

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: RdmaName,
    /// Firmware version; empty for a device of software.
    pub firmware: Option<Text>,
    /// Node GUID, as sysfs writes it: `4cbb:4703:00a5:4dca`.
    pub node_guid: Option<Text>,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its number, from 1.
    pub number: u32,
    /// `ACTIVE`, `DOWN` ..., as sysfs names them.
    pub state: Option<Text>,
    /// `LinkUp`, `Disabled` ..., as sysfs names them.
    pub phys_state: Option<Text>,
    /// Its network device, when it is in this network namespace.
    pub netdev: Option<(u32, NetdevName)>,
}

/// A queue pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qp {
    /// Port, when the kernel says one (a queue pair in RESET has none).
    pub port: Option<u32>,
    /// Its number.
    pub number: u32,
    /// The number of its peer, for connected types.
    pub remote: Option<u32>,
    /// `RC`, `UD` ... or a number.
    pub kind: Text,
    /// `RESET`, `RTS` ... or a number.
    pub state: Text,
    /// Who has it.
    pub owner: Owner,
}

/// Who has a queue pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A process.
    User(u32),
    /// A kernel module.
    Kernel(Text),
    /// The kernel does not say: a process outside this PID namespace.
    Hidden,
}

/// A socket for RDMA netlink.
pub struct Nldev(Socket);

impl Nldev {
    /// Opens it. The kernel has the family only while `ib_core` is loaded.
    pub fn open() -> Result<Nldev, Error> {
        Socket::open(Family::Rdma).map(Nldev)
    }

    fn dump(&mut self, command: u16, device: Option<u32>) -> Result<Vec<Message>, Error> {
        let mut attrs = Writer::default();
        if let Some(index) = device {
            attrs.put(ATTR_DEV_INDEX, &index.to_ne_bytes());
        }
        self.0.dump(kind(command), attrs.bytes())
    }

    /// All RDMA devices that this process may see.
    pub fn devices(&mut self) -> Result<Vec<Device>, Error> {
        self.dump(CMD_GET, None)?
            .iter()
            .map(|m| device(&m.payload))
            .collect()
    }

    /// The ports of a device.
    pub fn ports(&mut self, device: u32) -> Result<Vec<Port>, Error> {
        self.dump(CMD_PORT_GET, Some(device))?
            .iter()
            .map(|m| Ok(port(&m.payload)?))
            .collect()
    }

    /// Whether the kernel tells who listens of devices and network devices that come and go (Linux
    /// 6.12 and newer). The group can be joined on older ones, too.
    pub fn notifies(&mut self) -> Result<bool, Error> {
        let answer = self.0.request(kind(CMD_SYS_GET), 0, &[])?;
        for message in &answer.messages {
            if let Some(mode) = Attrs::parse(&message.payload)?.get(SYS_ATTR_MONITOR_MODE) {
                return Ok(mode.u8()? != 0);
            }
        }
        Ok(false)
    }

    /// The queue pairs of a device, users' and kernel's.
    pub fn queue_pairs(&mut self, device: u32) -> Result<Vec<Qp>, Error> {
        let mut all = Vec::new();
        for message in self.dump(CMD_RES_QP_GET, Some(device))? {
            all.extend(queue_pairs(&message.payload)?);
        }
        Ok(all)
    }

    /// The processes that have a device open (a user context on it), as the device is now: those of
    /// before a re-initialisation of its driver are gone. A process of another PID namespace is not
    /// among them.
    pub fn openers(&mut self, device: u32) -> Result<Vec<u32>, Error> {
        let mut all = Vec::new();
        for message in self.dump(CMD_RES_CTX_GET, Some(device))? {
            all.extend(openers(&message.payload)?);
        }
        Ok(all)
    }
}

fn openers(payload: &[u8]) -> Result<Vec<u32>, Malformed> {
    let attrs = Attrs::parse(payload)?;
    let mut pids = Vec::new();
    for entry in attrs.nested(ATTR_RES_CTX)?.all(ATTR_RES_CTX_ENTRY) {
        if let Some(pid) = entry.nested()?.get(ATTR_RES_PID) {
            pids.push(pid.u32()?);
        }
    }
    Ok(pids)
}

fn device(payload: &[u8]) -> Result<Device, Error> {
    let attrs = Attrs::parse(payload)?;
    let name = attrs.need(ATTR_DEV_NAME)?.text();
    Ok(Device {
        index: attrs.need(ATTR_DEV_INDEX)?.u32()?,
        name: name
            .parse()
            .map_err(|e| Error::Malformed(format!("the name of an RDMA device {e}")))?,
        firmware: attrs
            .get(ATTR_FW_VERSION)
            .map(|a| a.text())
            .filter(|t| !t.is_empty())
            .map(|t| t.as_str().into()),
        node_guid: attrs
            .get(ATTR_NODE_GUID)
            .and_then(|a| a.u64().ok())
            .map(guid),
    })
}

/// The kernel's number as sysfs writes it, four groups of four hex digits.
fn guid(number: u64) -> Text {
    let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (number >> shift) & 0xffff);
    format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}").as_str().into()
}

fn port(payload: &[u8]) -> Result<Port, Malformed> {
    let attrs = Attrs::parse(payload)?;
    let byte = |kind| attrs.get(kind).map(|a| a.u8()).transpose();
    let index = attrs.get(ATTR_NDEV_INDEX).map(|a| a.u32()).transpose()?;
    let name = attrs
        .get(ATTR_NDEV_NAME)
        .and_then(|a| a.text().parse().ok());
    Ok(Port {
        number: attrs.need(ATTR_PORT_INDEX)?.u32()?,
        // enum ib_port_state and the names of `state` in drivers/infiniband/core/sysfs.c.
        state: byte(ATTR_PORT_STATE)?.map(|n| {
            word(
                n,
                &["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"],
            )
        }),
        // enum ib_port_phys_state and the names of `phys_state` there.
        phys_state: byte(ATTR_PORT_PHYS_STATE)?.map(|n| {
            word(
                n,
                &[
                    "<unknown>",
                    "Sleep",
                    "Polling",
                    "Disabled",
                    "PortConfigurationTraining",
                    "LinkUp",
                    "LinkErrorRecovery",
                    "Phy Test",
                ],
            )
        }),
        netdev: index.zip(name),
    })
}

/// The word for a number, or the number.
fn word(number: u8, words: &[&str]) -> Text {
    match words.get(usize::from(number)) {
        Some(word) => (*word).into(),
        None => number.to_string().as_str().into(),
    }
}

fn queue_pairs(payload: &[u8]) -> Result<Vec<Qp>, Malformed> {
    let attrs = Attrs::parse(payload)?;
    attrs
        .nested(ATTR_RES_QP)?
        .all(ATTR_RES_QP_ENTRY)
        .map(|entry| {
            let entry = entry.nested()?;
            let number = |kind| entry.get(kind).map(|a| a.u32()).transpose();
            let owner = match (number(ATTR_RES_PID)?, entry.get(ATTR_RES_KERN_NAME)) {
                (_, Some(name)) => Owner::Kernel(name.text().as_str().into()),
                (Some(pid), None) if pid != 0 => Owner::User(pid),
                _ => Owner::Hidden,
            };
            Ok(Qp {
                port: number(ATTR_PORT_INDEX)?,
                number: entry.need(ATTR_RES_LQPN)?.u32()?,
                remote: number(ATTR_RES_RQPN)?,
                // enum ib_qp_type.
                kind: word(
                    entry.need(ATTR_RES_TYPE)?.u8()?,
                    &[
                        "SMI",
                        "GSI",
                        "RC",
                        "UC",
                        "UD",
                        "RAW_IPV6",
                        "RAW_ETHERTYPE",
                        "7",
                        "RAW_PACKET",
                        "XRC_INI",
                        "XRC_TGT",
                    ],
                ),
                // enum ib_qp_state.
                state: word(
                    entry.need(ATTR_RES_STATE)?.u8()?,
                    &["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"],
                ),
                owner,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{captured, damaged};

    #[test]
    fn devices_and_ports_of_a_real_kernel_read_as_rdma_shows_them() {
        let devices: Vec<Device> = captured(include_str!("../../tests/captured/nldev-devices.hex"))
            .iter()
            .map(|bytes| device(bytes).unwrap())
            .collect();
        let names: Vec<(u32, &str)> = devices.iter().map(|d| (d.index, d.name.as_str())).collect();
        assert_eq!(
            names,
            [
                (0, "rocep1s0f0"),
                (1, "rocep1s0f1"),
                (3, "roceP2p1s0f1"),
                (4, "roceP2p1s0f0")
            ]
        );
        assert_eq!(devices[1].node_guid, Some("00ca:feff:fe00:0101".into()));
        assert_eq!(devices[1].firmware, None);

        let ports: Vec<Port> = captured(include_str!("../../tests/captured/nldev-port.hex"))
            .iter()
            .map(|bytes| port(bytes).unwrap())
            .collect();
        let active = |index, netdev: &str| Port {
            number: 1,
            state: Some("ACTIVE".into()),
            phys_state: Some("LinkUp".into()),
            netdev: Some((index, netdev.parse().unwrap())),
        };
        assert_eq!(
            ports,
            [active(9, "enp1s0f1np1"), active(12, "enP2p1s0f0np0")]
        );
    }

    #[test]
    fn queue_pairs_of_a_real_kernel_read_as_rdma_shows_them() {
        let all: Vec<Qp> = captured(include_str!("../../tests/captured/nldev-queue-pairs.hex"))
            .iter()
            .flat_map(|bytes| queue_pairs(bytes).unwrap())
            .collect();
        let rc = |number, remote, pid| Qp {
            port: Some(1),
            number,
            remote: Some(remote),
            kind: "RC".into(),
            state: "RTS".into(),
            owner: Owner::User(pid),
        };
        let gsi = Qp {
            port: Some(1),
            number: 1,
            remote: None,
            kind: "GSI".into(),
            state: "RTS".into(),
            owner: Owner::Kernel("ib_core".into()),
        };
        assert_eq!(
            all,
            [rc(21, 22, 17604), rc(22, 21, 17599), gsi.clone(), gsi]
        );
    }

    #[test]
    fn the_openers_of_a_device_of_a_real_kernel_read_as_rdma_shows_them() {
        // rdma resource show ctx: dev rocep1s0f0 ctxn 7 pid 686 comm marker-test
        let bytes = &captured(
            "08000100000000000f000200726f63657031733066300000\
             1800560014005700080040000700000008001c00ae020000",
        )[0];
        assert_eq!(openers(bytes), Ok(vec![686]));
        assert_eq!(openers(&bytes[..24]), Ok(Vec::new()));
        for bytes in damaged(bytes) {
            let _ = openers(&bytes);
        }
    }

    #[test]
    fn a_port_without_a_network_device_has_none() {
        let mut w = Writer::default();
        w.put(ATTR_PORT_INDEX, &1u32.to_ne_bytes());
        w.put(ATTR_PORT_STATE, &[77]);
        let port = port(w.bytes()).unwrap();
        assert_eq!(port.netdev, None);
        assert_eq!(port.state, Some("77".into()));
    }

    #[test]
    fn damaged_messages_never_make_it_panic() {
        for text in [
            include_str!("../../tests/captured/nldev-devices.hex"),
            include_str!("../../tests/captured/nldev-port.hex"),
            include_str!("../../tests/captured/nldev-queue-pairs.hex"),
        ] {
            for bytes in captured(text).iter().flat_map(|bytes| damaged(bytes)) {
                let _ = (device(&bytes), port(&bytes), queue_pairs(&bytes));
            }
        }
    }
}
