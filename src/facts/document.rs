//! An inventory from its JSON document.
//!
//! Two writers are read: today's tool (`host` and `ports` with eleven fields) and our own, which
//! writes the same fields and more beside them. Keys that are not known are left alone, so that a
//! newer inventory can be planned from; a known key of the wrong type is an error.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::facts::record::{Read, field, not_observed};
use crate::facts::{
    Applied, Fact, GidEntry, Gids, Inventory, LeftOut, PortDetails, PortFacts, SCHEMA,
};
use crate::json::{At, DocumentError, parse};
use crate::names::{Cidr, Gid, NetdevName, RdmaName};

/// More fabric functions than any node has; only bounds what is read.
pub(crate) const MOST_PORTS: usize = 64;
/// More addresses on one port than anybody configures; only bounds what is read.
pub(crate) const MOST_ADDRESSES: usize = 256;
/// Entries of a GID table (256 is what `gid_index`, 8 bits, can name).
const MOST_GIDS: usize = 256;
/// Longest word taken for a state or mode.
const LONGEST_WORD: usize = 64;

impl Inventory {
    /// Reads an inventory document. `name` is what errors call it.
    pub fn from_json(name: &str, bytes: &[u8]) -> Result<Inventory, DocumentError> {
        let value = parse(name, bytes)?;
        let root = At::root(name, &value);
        if let Some(schema) = root.get("schema")? {
            schema.exactly(SCHEMA)?;
        }
        let ports_at = root.need("ports")?;
        let mut ports = Vec::new();
        for (key, at) in ports_at.entries()? {
            let netdev = key.parse().map_err(|e| at.error(format!("{e}")))?;
            if ports.len() == MOST_PORTS {
                return Err(ports_at.error(format!("has more than {MOST_PORTS} ports")));
            }
            ports.push(port(netdev, &at)?);
        }
        Ok(Inventory {
            host: root.need("host")?.name()?,
            ports,
            management_netdev: field(&root, "management_netdev")?,
            node: Read::read(&root)?,
            left_out: field::<Option<Vec<LeftOut>>>(&root, "left_out")?.unwrap_or_default(),
        })
    }
}

fn port(netdev: NetdevName, at: &At) -> Result<PortFacts, DocumentError> {
    let gids = gids(at)?;
    Ok(PortFacts {
        rdma: fact(&at.need("rdma")?, |at| {
            empty_or(at, |at| at.name::<RdmaName>())
        })?,
        pci: optional(at.get("pci")?, |at| empty_or(at, At::name))?,
        ipv4: addresses(at)?,
        mac: at.need("mac")?.name()?,
        // 65535 is the largest MTU of an Ethernet device in the kernel (ETH_MAX_MTU).
        mtu: at.need("mtu")?.integer(0, 65535)?,
        state: empty_or(&at.need("state")?, word)?
            .unwrap_or_default()
            .to_ascii_lowercase(),
        gids,
        tc_offload: fact(&at.need("tc_offload")?, |at| match at.text()? {
            "on" => Ok(true),
            "off" => Ok(false),
            other => Err(at.error(format!(
                "is {}, \"on\" or \"off\" wanted",
                crate::names::quoted(other)
            ))),
        })?,
        hairpin_num_queues: fact(&at.need("hairpin_num_queues")?, number)?,
        hairpin_queue_size: fact(&at.need("hairpin_queue_size")?, number)?,
        hairpin_queue_applied: at
            .get("hairpin_queue_state")?
            .map_or(Ok(Applied::Unsaid), |at| Applied::read(&at))?,
        flow_steering_mode: fact(&at.need("flow_steering_mode")?, |at| empty_or(at, word))?,
        eswitch_mode: optional(at.get("eswitch_mode")?, |at| empty_or(at, word))?,
        rdma_state: optional(at.get("rdma_state")?, word)?,
        rdma_active_mtu: optional(at.get("rdma_active_mtu")?, |at| at.integer(0, 65535))?,
        details: PortDetails::read(at)?,
        netdev,
    })
}

impl Read for Applied {
    fn read(at: &At) -> Result<Applied, DocumentError> {
        match at.text()? {
            "applied" => Ok(Applied::Applied),
            "pending" => Ok(Applied::Pending),
            "unknown" => Ok(Applied::Unknown),
            other => Err(at.error(format!(
                "is {}, \"applied\", \"pending\" or \"unknown\" wanted",
                crate::names::quoted(other)
            ))),
        }
    }
}

/// `{"not_observed": "why"}`, or a value that `read` takes.
fn fact<'a, T>(
    at: &At<'a>,
    read: impl FnOnce(&At<'a>) -> Result<T, DocumentError>,
) -> Result<Fact<T>, DocumentError> {
    match not_observed(at)? {
        Some(why) => Ok(Fact::NotObserved(why)),
        None => read(at).map(Fact::Known),
    }
}

/// Like [`fact`], for a key that today's tool does not write.
fn optional<'a, T>(
    at: Option<At<'a>>,
    read: impl FnOnce(&At<'a>) -> Result<T, DocumentError>,
) -> Result<Fact<T>, DocumentError> {
    at.map_or_else(|| Ok(Fact::unmentioned()), |at| fact(&at, read))
}

/// The empty string or `null` for "has none", else what `read` takes.
fn empty_or<'a, T>(
    at: &At<'a>,
    read: impl FnOnce(&At<'a>) -> Result<T, DocumentError>,
) -> Result<Option<T>, DocumentError> {
    if at.is_null() || at.text()?.is_empty() {
        Ok(None)
    } else {
        read(at).map(Some)
    }
}

/// A state or mode: printable ASCII, so that it can be shown as it is.
fn word(at: &At) -> Result<String, DocumentError> {
    let text = at.text()?;
    if text.is_empty()
        || text.len() > LONGEST_WORD
        || !text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
    {
        return Err(at.error(format!(
            "is {}, a word of printable characters wanted",
            crate::names::quoted(text)
        )));
    }
    Ok(text.to_owned())
}

/// A number as today's tool writes it: a string of decimal digits, empty for "no such parameter".
fn number(at: &At) -> Result<Option<u32>, DocumentError> {
    empty_or(at, |at| {
        let text = at.text()?;
        text.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse().ok())
            .flatten()
            .ok_or_else(|| {
                at.error(format!(
                    "is {}, a number from 0 to 4294967295 in decimal digits, or nothing, wanted",
                    crate::names::quoted(text)
                ))
            })
    })
}

fn addresses(at: &At) -> Result<Fact<Vec<Cidr>>, DocumentError> {
    let ipv4_at = at.need("ipv4")?;
    let first = fact(&ipv4_at, |at| empty_or(at, |at| at.name::<Cidr>()))?;
    let Some(all_at) = at.get("ipv4_addresses")? else {
        return Ok(first.map(|one| one.into_iter().collect()));
    };
    let all = fact(&all_at, |at| {
        at.items(MOST_ADDRESSES)?
            .map(|at| at.name::<Cidr>())
            .collect::<Result<Vec<_>, _>>()
    })?;
    if let (Fact::Known(first), Fact::Known(all)) = (&first, &all) {
        let agrees = match first {
            Some(first) => all.contains(first),
            None => all.is_empty(),
        };
        if !agrees {
            return Err(ipv4_at.error("is not among ipv4_addresses beside it"));
        }
    }
    Ok(all)
}

fn gids(at: &At) -> Result<Gids, DocumentError> {
    let gid3 = fact(&at.need("gid3")?, |at| empty_or(at, |at| at.name::<Gid>()))?;
    let netdev3 = fact(&at.need("gid3_netdev")?, |at| {
        empty_or(at, |at| at.name::<NetdevName>())
    })?;
    if let Some(table_at) = at.get("gids")? {
        let table = fact(&table_at, |at| {
            let mut table: Vec<GidEntry> = Vec::new();
            for entry in at.items(MOST_GIDS)? {
                let read = GidEntry {
                    index: entry.need("index")?.integer(0, 255)?,
                    gid: entry.need("gid")?.name()?,
                    kind: empty_or(&entry.need("type")?, word)?.unwrap_or_default(),
                    netdev: empty_or(&entry.need("netdev")?, At::name)?,
                };
                if table.iter().any(|e| e.index == read.index) {
                    return Err(entry.error(format!("is a second entry for index {}", read.index)));
                }
                table.push(read);
            }
            Ok(table)
        })?;
        match table {
            Fact::Known(table) => {
                let third = table
                    .iter()
                    .find(|e| e.index == 3)
                    .map_or(Gid::ZERO, |e| e.gid);
                if matches!(&gid3, Fact::Known(Some(gid)) if *gid != third) {
                    return Err(table_at.error("has another GID at index 3 than gid3 beside it"));
                }
                return Ok(Gids::Table(table));
            }
            Fact::NotObserved(why) => return Ok(Gids::NotObserved(why)),
        }
    }
    Ok(match gid3 {
        Fact::Known(Some(gid)) => Gids::IndexThree {
            gid,
            netdev: netdev3.known().cloned().flatten(),
        },
        Fact::Known(None) => Gids::NotObserved("the inventory has none".into()),
        Fact::NotObserved(why) => Gids::NotObserved(why),
    })
}

/// The document, in the order of its keys. The fields of today's tool are written as that tool
/// writes them: numbers of the driver as strings, and empty strings for what there is none of.
impl Serialize for Inventory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: &'a str,
            host: &'a crate::names::HostName,
            management_netdev: &'a Fact<Option<NetdevName>>,
            #[serde(flatten)]
            node: &'a crate::facts::NodeFacts,
            left_out: &'a [LeftOut],
            ports: Ports<'a>,
        }
        Document {
            schema: SCHEMA,
            host: &self.host,
            management_netdev: &self.management_netdev,
            node: &self.node,
            left_out: &self.left_out,
            ports: Ports(&self.ports),
        }
        .serialize(serializer)
    }
}

struct Ports<'a>(&'a [PortFacts]);

impl Serialize for Ports<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for port in self.0 {
            map.serialize_entry(&port.netdev, &PortDocument::of(port))?;
        }
        map.end()
    }
}

/// A port's object, key by key.
#[derive(Serialize)]
struct PortDocument<'a> {
    rdma: Fact<String>,
    ipv4: Fact<String>,
    mac: crate::names::Mac,
    mtu: u32,
    state: &'a str,
    gid3: Fact<String>,
    gid3_netdev: Fact<String>,
    tc_offload: Fact<&'static str>,
    hairpin_num_queues: Fact<String>,
    hairpin_queue_size: Fact<String>,
    flow_steering_mode: Fact<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hairpin_queue_state: Option<Applied>,
    pci: &'a Fact<Option<crate::names::PciAddress>>,
    ipv4_addresses: &'a Fact<Vec<Cidr>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gids: Option<Fact<&'a [GidEntry]>>,
    eswitch_mode: &'a Fact<Option<String>>,
    rdma_state: &'a Fact<String>,
    rdma_active_mtu: &'a Fact<u32>,
    #[serde(flatten)]
    details: &'a PortDetails,
}

/// As today's tool writes a value that may not be there: empty when it is not.
fn or_empty<T: ToString>(fact: &Fact<Option<T>>) -> Fact<String> {
    fact.as_ref()
        .map(|value| value.as_ref().map(T::to_string).unwrap_or_default())
}

impl<'a> PortDocument<'a> {
    fn of(port: &'a PortFacts) -> PortDocument<'a> {
        let (gid3, gid3_netdev, gids) = match &port.gids {
            Gids::Table(table) => {
                let third = table.iter().find(|entry| entry.index == 3);
                (
                    Fact::Known(third.map_or(Gid::ZERO, |entry| entry.gid).to_string()),
                    or_empty(&Fact::Known(third.and_then(|entry| entry.netdev.clone()))),
                    Some(Fact::Known(table.as_slice())),
                )
            }
            Gids::IndexThree { gid, netdev } => (
                Fact::Known(gid.to_string()),
                or_empty(&Fact::Known(netdev.clone())),
                None,
            ),
            Gids::NotObserved(why) => (
                Fact::NotObserved(why.clone()),
                Fact::NotObserved(why.clone()),
                Some(Fact::NotObserved(why.clone())),
            ),
        };
        PortDocument {
            rdma: or_empty(&port.rdma),
            ipv4: port
                .ipv4
                .as_ref()
                .map(|all| all.first().map(Cidr::to_string).unwrap_or_default()),
            mac: port.mac,
            mtu: port.mtu,
            state: &port.state,
            gid3,
            gid3_netdev,
            tc_offload: port
                .tc_offload
                .as_ref()
                .map(|on| if *on { "on" } else { "off" }),
            hairpin_num_queues: or_empty(&port.hairpin_num_queues),
            hairpin_queue_size: or_empty(&port.hairpin_queue_size),
            flow_steering_mode: or_empty(&port.flow_steering_mode),
            hairpin_queue_state: Some(port.hairpin_queue_applied)
                .filter(|state| *state != Applied::Unsaid),
            pci: &port.pci,
            ipv4_addresses: &port.ipv4,
            gids,
            eswitch_mode: &port.eswitch_mode,
            rdma_state: &port.rdma_state,
            rdma_active_mtu: &port.rdma_active_mtu,
            details: &port.details,
        }
    }
}
