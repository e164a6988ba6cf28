//! What is wrong with a fabric: the facts of its nodes in, causes with what follows from each out.
//!
//! Pure: no I/O, no clock, stable order. The same facts give the same diagnosis to the byte, whether
//! they come from live nodes or from a folder.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | [`Case`] to [`Diagnosis`]: who looks at what, in the order of proof |
//! | `fabric.rs` | the ports in their places, and the sockets that they share |
//! | `chain.rs` | findings to a chain: what causes what, what is told as one |
//! | `advice.rs` | what to do about each kind of finding, as commands for the node's user |
//! | `links.rs` | functions, links, PCIe, drivers |
//! | `addresses.rs` | planes without addresses, shared subnets, who answers for an address |
//! | `gid.rs` | GID tables: moved and stale entries |
//! | `settings.rs` | what refuses a plan, offload, trust, ingress disciplines |
//! | `queues.rs` | the hairpin queues of the ring as a whole |
//! | `cabling.rs` | which socket is cabled to which, and the fewest moves that make a ring |
//! | `mesh.rs` | rules, routes and markers against the plan that the facts give |
//! | `routes.rs` | where each port's packets to its peer really go |
//! | `parity.rs` | the nodes side by side |
//! | `platform.rs` | kernel, memory, modules, files of the network manager |
//! | `traffic.rs` | what counters say of functions that carry nothing |
//! | `watch.rs` | traffic between looks at the counters while a load runs |
//! | `env.rs` | an engine's or launcher's environment against the fabric |
//! | `env/shell.rs`, `unit.rs`, `compose.rs` | the same as a shell, systemd and compose read it |
//! | `nccl.rs` | what an NCCL log says of itself |
//! | `nccl/words.rs` | the words that tell something by themselves, and what they mean |
//! | `netplan.rs` | the second plane's netplan file, for the user to review |
//! | `corpus.rs` | tests: the cases of `tests/doctor` |
//!
//! Checks that `plan` refuses by are made there ([`crate::plan::derive`]) and read here; objects of
//! the mesh are compared by [`crate::mesh`]. Nothing here decides them a second time.

mod addresses;
mod advice;
mod cabling;
mod chain;
pub mod env;
mod fabric;
mod gid;
mod links;
mod mesh;
pub mod nccl;
pub mod netplan;
mod parity;
mod platform;
mod queues;
mod routes;
mod settings;
mod traffic;
pub mod watch;

#[cfg(test)]
#[path = "../../tests/doctor/changes.rs"]
#[allow(clippy::panic)]
mod changes;
#[cfg(test)]
mod corpus;

use serde::Serialize;

use crate::facts::{Fact, Inventory, PortFacts};
use crate::finding::{Finding, Severity};
use crate::mesh::verify::Standing;
use crate::names::HostName;
use crate::plan::Plan;

pub use cabling::Cabling;
pub use parity::Row as ParityRow;

use chain::Seen;
use fabric::Fabric;

/// What is diagnosed.
pub struct Case<'a> {
    /// The hosts, the head first where it is known.
    pub hosts: &'a [HostName],
    /// Whether that order is the TP rank order, or just some order.
    pub ordered: bool,
    /// Their facts, in the same order.
    pub inventories: &'a [Inventory],
    /// The plan that the fabric was set up by, where it is given.
    pub plan: Option<&'a Plan>,
    /// Environments of engines or launchers.
    pub envs: &'a [env::Environment],
    /// Logs of NCCL or the engine.
    pub logs: &'a [nccl::Log],
}

/// A subject that was looked at, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What: `links`, `addresses` ...
    pub subject: &'static str,
    /// How it stands.
    pub standing: Standing,
    /// How much of it was seen, or why it was not.
    pub detail: String,
}

/// What is wrong, and what was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Causes, the first cause first, each with what follows from it.
    pub findings: Vec<Finding>,
    /// Worth knowing, and no fault.
    pub notes: Vec<Finding>,
    /// Every subject, in the order of proof.
    pub checks: Vec<Check>,
    /// The ring in its order, where the facts make one.
    pub ring: Option<Vec<HostName>>,
    /// Which socket is cabled to which.
    pub cabling: Cabling,
    /// The nodes side by side.
    pub parity: Vec<ParityRow>,
}

impl Diagnosis {
    /// Whether nothing was found. Notes are no findings; what was not observed is one where a ring
    /// cannot be judged without it.
    pub fn is_healthy(&self) -> bool {
        self.findings.is_empty()
    }
}

/// What facts that stand still cannot show, whatever was found.
pub const NOT_COVERED: &[&str] = &[
    "a cable that carries one direction well and both badly, with no error counted: only a bandwidth test both ways at once shows it",
    "a NIC that starts capped near 13 Gb/s on a healthy link: only a bandwidth test shows it, and a cold power cycle cures it",
    "whether packets really take the hairpin: hairpin-mesh probe shows it",
    "a rule whose out-port was re-initialised after it was made, while both look right: hairpin-mesh probe shows it",
    "whether the management network blinked: one look says nothing about a moment",
];

/// Looks at everything.
pub fn examine(case: &Case) -> Diagnosis {
    let fabric = Fabric::of(case.hosts, case.inventories, case.plan);
    let mut seen: Vec<Seen> = Vec::new();
    let mut notes: Vec<Finding> = Vec::new();
    settings::of_plan(&fabric, &mut seen, &mut notes);
    links::look(&fabric, &mut seen, &mut notes);
    addresses::look(&fabric, &mut seen);
    gid::look(&fabric, &mut seen);
    settings::look(&fabric, &mut seen);
    queues::look(&fabric, case.plan, &mut seen, &mut notes);
    let cabling = cabling::look(&fabric, &mut seen);
    routes::look(&fabric, &mut seen);
    let mesh = mesh::look(case, &fabric, &mut seen, &mut notes);
    platform::look(&fabric, &mut seen, &mut notes);
    traffic::look(&fabric, &mut seen, &mut notes);
    let parity = parity::look(&fabric, &mut seen);
    for env in case.envs {
        env::look(env, &fabric, mesh.as_ref(), case.ordered, &mut seen);
    }
    nccl::look(case.logs, &fabric, &mut seen, &mut notes);
    let checks = checks(&fabric, case, &cabling, &seen, &notes);
    let mut findings = chain::chained(&fabric, seen);
    for finding in findings.iter_mut().chain(&mut notes) {
        advice::add(&fabric, finding);
    }
    Diagnosis {
        findings,
        notes,
        checks,
        ring: fabric
            .ring
            .as_ref()
            .map(|ring| ring.nodes.iter().map(|node| node.host.clone()).collect()),
        cabling,
        parity,
    }
}

/// Where the wire leads to another port than the addresses say, as a warning: a plan is made by the addresses.
pub fn wires_elsewhere(hosts: &[HostName], inventories: &[Inventory]) -> Option<Finding> {
    let finding = cabling::elsewhere(&Fabric::of(hosts, inventories, None))?;
    let finding = Finding {
        severity: Severity::Warning,
        ..finding
    };
    Some(finding.advise("hairpin-mesh doctor tells which plugs or addresses were exchanged: a plan is made by the addresses, and its paths end in the wrong ports when the wires are right"))
}

/// A subject: its name, how its codes start, and whether a port's facts have what it needs.
struct Subject {
    name: &'static str,
    codes: &'static [&'static str],
    needs: fn(&PortFacts) -> Fact<()>,
}

fn known<T>(fact: &Fact<T>) -> Fact<()> {
    fact.as_ref().map(|_| ())
}

/// The subjects that are read from ports, in the order of proof.
const SUBJECTS: &[Subject] = &[
    Subject {
        name: "functions",
        codes: &[
            "function-",
            "nic-",
            "port-driver",
            "reload-",
            "domains-per-node",
            "ports-per-domain",
            "port-place-",
            "port-numbers",
            "pci-repeated",
            "rdma-repeated",
            "netdev-repeated",
            "hca-names-",
        ],
        needs: |port| known(&port.rdma),
    },
    Subject {
        name: "links",
        codes: &["cable-down", "port-link", "port-carrier"],
        needs: |port| match port.state.as_str() {
            "" => Fact::because("the inventory has none"),
            _ => Fact::Known(()),
        },
    },
    Subject {
        name: "RDMA ports",
        codes: &["port-rdma-state", "port-rdma-phys", "port-rate"],
        needs: |port| known(&port.rdma_state),
    },
    Subject {
        name: "PCIe",
        codes: &["pcie-"],
        needs: |port| known(&port.details.pcie),
    },
    Subject {
        name: "addresses",
        codes: &[
            "plane-",
            "port-address",
            "port-in-",
            "port-prefix",
            "address-",
            "subnet",
            "mac-",
            "port-mac",
            "management-",
        ],
        needs: |port| known(&port.ipv4),
    },
    Subject {
        name: "MTU",
        codes: &["port-mtu"],
        needs: |_| Fact::Known(()),
    },
    Subject {
        name: "RDMA MTU",
        codes: &["port-rdma-mtu"],
        needs: |port| known(&port.rdma_active_mtu),
    },
    Subject {
        name: "GIDs",
        codes: &["port-gid", "gid-"],
        needs: |port| match &port.gids {
            crate::facts::Gids::NotObserved(why) => Fact::NotObserved(why.clone()),
            _ => Fact::Known(()),
        },
    },
    Subject {
        name: "cabling",
        codes: &[
            "cabling-",
            "self-cable",
            "cross-domain-cable",
            "neighbour-twice",
            "domains-differ",
            "ring-",
        ],
        needs: |port| known(&port.ipv4),
    },
    Subject {
        name: "neighbours",
        codes: &["neighbour-mac", "neighbour-silent", "arp-"],
        needs: |port| known(&port.details.neighbours),
    },
    Subject {
        name: "offload",
        codes: &["port-tc-offload"],
        needs: |port| known(&port.tc_offload),
    },
    Subject {
        name: "steering",
        codes: &["port-steering", "port-eswitch"],
        needs: |port| known(&port.flow_steering_mode),
    },
    Subject {
        name: "eswitch",
        codes: &["port-eswitch"],
        needs: |port| known(&port.eswitch_mode),
    },
    Subject {
        name: "trust",
        codes: &["port-trust"],
        needs: |port| known(&port.details.trust),
    },
    Subject {
        name: "hairpin queues",
        codes: &["hairpin-"],
        needs: |port| known(&port.hairpin_queue_size),
    },
    Subject {
        name: "disciplines",
        codes: &["ingress-qdisc", "clsact-"],
        needs: |port| known(&port.details.qdiscs),
    },
    Subject {
        name: "rules",
        codes: &["rule-", "left-over-rule"],
        needs: |port| known(&port.details.filters),
    },
    Subject {
        name: "queue pairs",
        codes: &["source-port-collision"],
        needs: |port| known(&port.details.queue_pairs),
    },
    Subject {
        name: "counters",
        codes: &["function-idle", "plane-idle"],
        needs: |port| known(&port.details.counters),
    },
];

/// The same of what is read from nodes.
type OfNode = (
    &'static str,
    &'static [&'static str],
    fn(&Inventory) -> Fact<()>,
);
const OF_NODES: &[OfNode] = &[
    (
        "routes",
        &["route-", "peer-route", "left-over-route"],
        |node| known(&node.node.routes),
    ),
    ("markers", &["marker-"], |node| known(&node.node.markers)),
    ("rdma-core", &["rdma-core-", "parity-rdma-core"], |node| {
        known(&node.node.rdma_core)
    }),
    ("memory", &["memory-"], |node| known(&node.node.memory)),
    ("kernel", &["parity-kernel"], |node| {
        known(&node.node.kernel)
    }),
    ("modules", &["module-"], |node| known(&node.node.modules)),
    ("netplan files", &["netplan-"], |node| {
        known(&node.node.netplan_files)
    }),
    ("NCCL library", &["nccl-library"], |node| {
        known(&node.node.nccl_libraries)
    }),
];

fn checks(
    fabric: &Fabric,
    case: &Case,
    cabling: &Cabling,
    seen: &[Seen],
    notes: &[Finding],
) -> Vec<Check> {
    let worst = |codes: &[&str]| {
        let of = |finding: &&Finding| codes.iter().any(|code| finding.code.starts_with(code));
        let found = seen.iter().map(|seen| &seen.finding).filter(of);
        found.map(|finding| finding.severity).max()
    };
    let standing = |codes: &[&str], unseen: usize| match worst(codes) {
        Some(Severity::Problem) => Standing::Fail,
        Some(Severity::NotObserved) => Standing::NotObserved,
        Some(Severity::Warning) => Standing::Warning,
        None if unseen > 0 => Standing::NotObserved,
        None => Standing::Ok,
    };
    let detail = |all: Vec<Fact<()>>, what: &str| {
        let whole = all.len();
        let why = all.iter().find(|fact| fact.known().is_none()).cloned();
        let unseen = all.iter().filter(|fact| fact.known().is_none()).count();
        let detail = match why {
            None if whole == 0 => format!("no {what}"),
            None => crate::plan::ends::count(whole, what),
            Some(why) => format!(
                "{unseen} of {} not observed: {}",
                crate::plan::ends::count(whole, what),
                why.reason()
            ),
        };
        (if whole == 0 { 1 } else { unseen }, detail)
    };
    let mut checks = Vec::new();
    for subject in SUBJECTS {
        let of_ports = fabric
            .inventories
            .iter()
            .flat_map(|node| &node.ports)
            .map(subject.needs);
        let (unseen, detail) = detail(of_ports.collect(), "port");
        checks.push(Check {
            subject: subject.name,
            standing: standing(subject.codes, unseen),
            detail,
        });
    }
    for (name, codes, needs) in OF_NODES {
        let (unseen, detail) = detail(fabric.inventories.iter().map(needs).collect(), "host");
        checks.push(Check {
            subject: name,
            standing: standing(codes, unseen),
            detail,
        });
    }
    let mut not_held = |subjects: &[&str], why: &str| {
        for check in &mut checks {
            if subjects.contains(&check.subject) && check.standing == Standing::Ok {
                check.standing = Standing::NotObserved;
                check.detail = why.to_owned();
            }
        }
    };
    // Whatever was read: without a mesh there is nothing of it to be right.
    let told = notes.iter().chain(seen.iter().map(|seen| &seen.finding));
    if told
        .into_iter()
        .any(|note| note.code == "mesh-absent" || note.code == "mesh-not-judged")
    {
        not_held(
            &["rules", "routes", "markers"],
            "no mesh to hold it against",
        );
    }
    let loose = cabling.cables.iter().filter(|cable| cable.to.is_none());
    let loose = loose.count();
    if loose > 0 {
        let ends = crate::plan::ends::count(loose, "cable end");
        not_held(
            &["cabling"],
            &format!("{ends} whose other end is not observed"),
        );
    }
    if !case.envs.is_empty() {
        checks.push(Check {
            subject: "environment",
            standing: standing(&["env-"], 0),
            detail: "read".into(),
        });
    }
    if !case.logs.is_empty() {
        checks.push(Check {
            subject: "NCCL log",
            standing: standing(&["nccl-log-"], 0),
            detail: crate::plan::ends::count(case.logs.len(), "log"),
        });
    }
    checks
}
