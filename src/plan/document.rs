//! `plan.json` read back.
//!
//! Everything in a plan but its ports and choices follows from them. So a plan is read by taking
//! those, assembling the plan again, and refusing the document at the first place where it says
//! something else: a plan that was edited by hand, cut short, or made by another version of the
//! rules is never applied.

use std::collections::BTreeMap;

use crate::json::{At, DocumentError, Value, first_difference, is_pretty, parse, pretty};
use crate::names::{HostName, NetdevName};
use crate::plan::assemble::{Choices, RouteStrategy, RuleIdentity, assemble};
use crate::plan::mesh::DOMAINS;
use crate::plan::ring::{self, Direction, Node, Ring, RingPort};
use crate::plan::{OppositePaths, Plan, SCHEMA};

/// More rows than any plan of a ring has; only bounds what is read.
const MOST_ROWS: usize = 4096;

impl Plan {
    /// Reads a plan document. `name` is what errors call it.
    pub fn from_json(name: &str, bytes: &[u8]) -> Result<Plan, DocumentError> {
        let value = parse(name, bytes)?;
        let root = At::root(name, &value);
        root.need("schema")?.exactly(SCHEMA)?;
        let hosts = read_hosts(&root.need("hosts")?)?;
        let order_at = root.need("ring")?;
        let order = read_hosts(&order_at)?;
        if order.first() != hosts.first()
            || !order.iter().all(|h| hosts.contains(h))
            || order.len() != hosts.len()
        {
            return Err(order_at.error("is not the plan's hosts in another order, the head first"));
        }
        let paths_at = root.need("opposite_paths")?;
        let choices = Choices {
            opposite_paths: match paths_at.integer(2, 4)? {
                2 => OppositePaths::Two,
                4 => OppositePaths::Four,
                n => return Err(paths_at.error(format!("is {n}, 2 or 4 wanted"))),
            },
            gid_index: root.need("gid_index")?.integer(0, 255)?,
            hairpin_queue_size: root
                .need("hairpin_queue_size")?
                .integer(0, u32::MAX.into())?,
            hairpin_queue_wanted: {
                let at = root.need("hairpin_queue_wanted")?;
                if at.is_null() {
                    None
                } else {
                    Some(crate::plan::read_queue(&at)?)
                }
            },
            strategy: if root.need("neighbours")?.items(MOST_ROWS)?.next().is_none() {
                RouteStrategy::AdjacentGateway
            } else {
                RouteStrategy::ScopeLink
            },
            identities: read_identities(&root)?,
        };
        let ports_at = root.need("ports")?;
        let ring = Ring {
            nodes: order
                .iter()
                .map(|host| read_node(&ports_at, host))
                .collect::<Result<_, _>>()?,
        };
        let fault = |what: String| ports_at.error(what);
        if let Some(finding) = ring.check().first() {
            return Err(fault(finding.to_string()));
        }
        let plan = assemble(&ring, &hosts, &choices).map_err(|findings| {
            fault(
                findings
                    .first()
                    .map_or_else(String::new, ToString::to_string),
            )
        })?;
        // As this program writes it; one that was written anew by others is compared by its values.
        if is_pretty(&plan, bytes) {
            return Ok(plan);
        }
        let text = pretty(&plan);
        match first_difference(&value, &as_value(&text)) {
            None => Ok(plan),
            Some((place, what)) => Err(DocumentError {
                place: format!("{name}: {place}"),
                what: format!("{what} (what follows from the plan's own hosts and ports)"),
            }),
        }
    }
}

/// A plan's document as it reads.
fn as_value(text: &str) -> Value<'_> {
    // What `pretty` writes is JSON, so this cannot fail; were it to, the comparison would refuse.
    parse("plan", text.as_bytes()).unwrap_or(Value::Null)
}

fn read_hosts(at: &At) -> Result<Vec<HostName>, DocumentError> {
    let mut hosts: Vec<HostName> = Vec::new();
    for item in at.items(MOST_ROWS)? {
        let host = item.name()?;
        if hosts.contains(&host) {
            return Err(item.error("is a host for a second time"));
        }
        hosts.push(host);
    }
    ring::check_size(hosts.len()).map_err(|what| at.error(what))?;
    Ok(hosts)
}

/// Preferences and handles of the rules, by the name of their diagonal: the nth rule is the nth
/// diagonal's.
fn read_identities(root: &At) -> Result<BTreeMap<String, RuleIdentity>, DocumentError> {
    let mut diagonals = Vec::new();
    for path in root.need("paths")?.items(MOST_ROWS)? {
        if path.need("kind")?.text()? == "diagonal" {
            diagonals.push(path.need("name")?.text()?.to_owned());
        }
    }
    let rules = root.need("rules")?;
    let mut identities = BTreeMap::new();
    for (name, rule) in diagonals.into_iter().zip(rules.items(MOST_ROWS)?) {
        let identity = RuleIdentity {
            pref: rule.need("pref")?.integer(1, u16::MAX.into())?,
            handle: rule.need("handle")?.integer(1, u32::MAX.into())?,
        };
        identities.insert(name, identity);
    }
    Ok(identities)
}

fn read_node(ports_at: &At, host: &HostName) -> Result<Node, DocumentError> {
    let mut ports: [[Option<RingPort>; DOMAINS]; 2] = Default::default();
    let mut hca_index = 0;
    for row in ports_at.items(MOST_ROWS)? {
        if row.need("host")?.text()? != host.as_str() {
            continue;
        }
        let domain_at = row.need("domain")?;
        let domain: usize = domain_at.integer(0, DOMAINS as i128 - 1)?;
        let direction_at = row.need("direction")?;
        let direction = Direction::BOTH
            .into_iter()
            .find(|d| direction_at.text() == Ok(d.as_str()))
            .ok_or_else(|| {
                direction_at.error("is no direction, \"clockwise\" or \"counter_clockwise\" wanted")
            })?;
        let port = RingPort {
            netdev: row.need("netdev")?.name::<NetdevName>()?,
            rdma: row.need("rdma")?.name()?,
            pci: row.get("pci")?.map(|at| at.name()).transpose()?,
            ipv4: row.need("ipv4")?.name()?,
            mac: row.need("mac")?.name()?,
            hca_index,
        };
        hca_index += 1;
        if ports[direction as usize][domain].replace(port).is_some() {
            return Err(domain_at.error(format!(
                "is {domain} for a second port of {host} that faces {}",
                direction.as_str()
            )));
        }
    }
    match ports {
        [[Some(a), Some(b)], [Some(c), Some(d)]] => Ok(Node {
            host: host.clone(),
            ports: [[a, b], [c, d]],
            management_netdev: None,
        }),
        _ => Err(ports_at.error(format!(
            "has not one port for each direction and domain of {host}"
        ))),
    }
}
