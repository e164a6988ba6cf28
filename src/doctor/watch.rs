//! Traffic from counters: what each function sent and received between two looks, what was lost, and
//! which function carries nothing while another one does.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

pub(crate) use crate::doctor::traffic::{DROPS, LOSSES};
use crate::finding::Finding;
use crate::json::{At, DocumentError};
use crate::names::{AttributeName, HostName, RdmaName};
use crate::plan::ends::list;

/// The schema of a line.
pub const SCHEMA: &str = "hairpin-mesh.traffic/v1";
/// Most functions of one host.
const MOST_FUNCTIONS: usize = 64;
/// Bytes each way of a host's busiest function from which a silent one is worth a word.
const BUSY: u64 = 1 << 20;

/// What the counters of a function stand at. A counter that is not there is not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Function {
    /// RDMA device.
    pub device: RdmaName,
    /// Socket of the host, which its functions share: the PCI function number, where it is known.
    pub socket: Option<u8>,
    /// Bytes that it sent since its counters began.
    pub sent_bytes: Option<u64>,
    /// Bytes that it received.
    pub received_bytes: Option<u64>,
    /// What was lost or sent again, by counter.
    pub losses: BTreeMap<AttributeName, u64>,
}

/// A look at the functions of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Look {
    /// The host.
    pub host: HostName,
    /// When, by the host's own clock that only runs forward, milliseconds.
    pub at_ms: u64,
    /// Its functions.
    pub functions: Vec<Function>,
}

impl Look {
    fn function(&self, device: &RdmaName) -> Option<&Function> {
        let mut functions = self.functions.iter();
        functions.find(|function| function.device == *device)
    }

    /// Reads a look of the line that `host` told.
    pub fn read(host: &HostName, at: &At) -> Result<Look, DocumentError> {
        at.need("host")?.name::<HostName>()?;
        let number = |at: At| -> Result<Option<u64>, DocumentError> {
            if at.is_null() {
                Ok(None)
            } else {
                at.integer(0, u64::MAX.into()).map(Some)
            }
        };
        let mut functions = Vec::new();
        for function in at.need("functions")?.items(MOST_FUNCTIONS)? {
            let mut losses = BTreeMap::new();
            for (name, value) in function.need("losses")?.entries()? {
                if losses.len() == LOSSES.len() + DROPS.len() {
                    return Err(value.error("is one counter too many"));
                }
                let name: AttributeName = name.parse().map_err(|e| value.error(format!("{e}")))?;
                losses.insert(name, value.integer(0, u64::MAX.into())?);
            }
            functions.push(Function {
                device: function.need("device")?.name()?,
                socket: number(function.need("socket")?)?
                    .and_then(|socket| u8::try_from(socket).ok()),
                sent_bytes: number(function.need("sent_bytes")?)?,
                received_bytes: number(function.need("received_bytes")?)?,
                losses,
            });
        }
        Ok(Look {
            host: host.clone(),
            at_ms: at.need("at_ms")?.integer(0, u64::MAX.into())?,
            functions,
        })
    }
}

/// How far a counter rose. One that fell began anew: what it stands at came since.
fn rise(was: u64, now: u64) -> u64 {
    if now >= was { now - was } else { now }
}

/// What a function did between two looks, each second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// RDMA device.
    pub device: RdmaName,
    /// Bytes sent each second; `null` where the counter is not there.
    pub sent_bytes_per_second: Option<u64>,
    /// Bytes received each second.
    pub received_bytes_per_second: Option<u64>,
    /// What was lost or sent again each second; counters that did not rise are not in it.
    pub losses_per_second: BTreeMap<AttributeName, u64>,
    /// The function whose counters are the same ones: a physical port's, told by both. Added once.
    pub same_counters_as: Option<RdmaName>,
}

/// What a host did between two looks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostRate {
    /// The host.
    pub host: HostName,
    /// Its functions.
    pub functions: Vec<Rate>,
    /// Bytes that all of them sent each second, counters that are told twice added once; `null` where no
    /// function has such a counter.
    pub sent_bytes_per_second: Option<u64>,
    /// Bytes that all of them received each second.
    pub received_bytes_per_second: Option<u64>,
}

/// What was seen of a host so far.
#[derive(Debug, Clone)]
pub struct Watched {
    first: Look,
    last: Look,
    /// Pairs of functions of one socket whose counters differed at any look.
    differed: BTreeSet<(RdmaName, RdmaName)>,
}

impl Watched {
    /// Begins with a first look.
    pub fn new(first: Look) -> Watched {
        let mut watched = Watched {
            last: first.clone(),
            first,
            differed: BTreeSet::new(),
        };
        watched.note();
        watched
    }

    /// Which functions have counters of their own.
    fn note(&mut self) {
        let all = &self.last.functions;
        for (i, one) in all.iter().enumerate() {
            for other in &all[..i] {
                let counters = |f: &Function| (f.sent_bytes, f.received_bytes);
                // Two that never counted anything are not the same for that.
                let silent = counters(one) == (Some(0), Some(0));
                if one.socket.is_none()
                    || one.socket != other.socket
                    || counters(one) != counters(other)
                    || silent
                {
                    self.differed
                        .insert((other.device.clone(), one.device.clone()));
                }
            }
        }
    }

    /// The function before it that has the same counters.
    fn same(&self, function: &Function) -> Option<&RdmaName> {
        let before = self
            .last
            .functions
            .iter()
            .take_while(|other| other.device != function.device);
        let pair = |other: &&Function| {
            !self
                .differed
                .contains(&(other.device.clone(), function.device.clone()))
        };
        before
            .filter(|other| other.sent_bytes.is_some())
            .find(pair)
            .map(|other| &other.device)
    }

    /// Takes the next look in, and gives what was between.
    pub fn next(&mut self, look: Look) -> HostRate {
        let before = std::mem::replace(&mut self.last, look);
        self.note();
        self.between(&before)
    }

    /// What was since the first look.
    pub fn whole(&self) -> HostRate {
        self.between(&self.first)
    }

    fn between(&self, before: &Look) -> HostRate {
        let passed = self.last.at_ms.saturating_sub(before.at_ms).max(1);
        let rate = |was: u64, now: u64| {
            let milli = u128::from(rise(was, now)) * 1000;
            u64::try_from(milli / u128::from(passed)).unwrap_or(u64::MAX)
        };
        let functions: Vec<Rate> = self
            .last
            .functions
            .iter()
            .map(|now| {
                let was = before.function(&now.device);
                let of = |get: fn(&Function) -> Option<u64>| Some(rate(get(was?)?, get(now)?));
                let losses = now.losses.iter().filter_map(|(name, value)| {
                    let rate = rate(*was?.losses.get(name)?, *value);
                    (rate > 0).then(|| (name.clone(), rate))
                });
                Rate {
                    device: now.device.clone(),
                    sent_bytes_per_second: of(|f| f.sent_bytes),
                    received_bytes_per_second: of(|f| f.received_bytes),
                    losses_per_second: losses.collect(),
                    same_counters_as: self.same(now).cloned(),
                }
            })
            .collect();
        let sum = |get: fn(&Rate) -> Option<u64>| {
            let own = functions
                .iter()
                .filter(|rate| rate.same_counters_as.is_none());
            own.filter_map(get).reduce(u64::saturating_add)
        };
        HostRate {
            host: self.last.host.clone(),
            sent_bytes_per_second: sum(|rate| rate.sent_bytes_per_second),
            received_bytes_per_second: sum(|rate| rate.received_bytes_per_second),
            functions,
        }
    }

    /// What is to be said of the whole watch: functions that carried nothing while another did, and losses.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let moved: Vec<(&Function, u64)> = self
            .last
            .functions
            .iter()
            .filter_map(|now| {
                let was = self.first.function(&now.device)?;
                let sent = rise(was.sent_bytes?, now.sent_bytes?);
                Some((
                    now,
                    sent.saturating_add(rise(was.received_bytes?, now.received_bytes?)),
                ))
            })
            .collect();
        if moved.is_empty() {
            let finding = Finding::not_observed(
                "traffic-unobserved",
                "traffic",
                "no function has counters of bytes",
                "port_xmit_data and port_rcv_data",
            );
            findings.push(finding.on(&self.last.host));
        }
        let most = moved.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        for (function, bytes) in &moved {
            if most >= BUSY && *bytes < most / 1000 {
                let found = format!(
                    "carried {bytes} bytes while another function of the host carried {most}"
                );
                let finding = Finding::problem("function-idle", found, "traffic on every function");
                findings.push(finding.on(&self.last.host).at(&function.device));
            }
        }
        for now in &self.last.functions {
            let was = self.first.function(&now.device);
            let rose: Vec<String> = now
                .losses
                .iter()
                .filter_map(|(name, value)| {
                    let before = *was?.losses.get(name)?;
                    (*value > before).then(|| format!("{name} {}", value - before))
                })
                .collect();
            if !rose.is_empty() {
                let finding = Finding::warning(
                    "losses-rise",
                    format!("rose meanwhile: {}", list(&rose)),
                    "none",
                );
                let finding = finding.on(&self.last.host).at(&now.device);
                findings.push(if rose.iter().any(|text| text.starts_with(DROPS[0])) {
                    finding.advise("hairpin queues that are too small for these bursts count here: hairpin-mesh hairpin-queue tells their size")
                } else {
                    finding
                });
            }
        }
        findings
    }

    /// The last look.
    pub fn last(&self) -> &Look {
        &self.last
    }
}

/// The counters as node_exporter's textfile collector reads them.
pub fn metrics<'a>(looks: impl Iterator<Item = &'a Look> + Clone) -> String {
    let mut text = String::new();
    let mut family = |name: &str, help: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            text += &format!(
                "# HELP {name} {help}\n# TYPE {name} counter\n{}",
                lines.concat()
            );
        }
    };
    let bytes = |name: &str, get: fn(&Function) -> Option<u64>| -> Vec<String> {
        let of = |look: &'a Look| {
            let name = name.to_owned();
            look.functions.iter().filter_map(move |function| {
                let value = get(function)?;
                Some(format!(
                    "{name}{{host=\"{}\",device=\"{}\"}} {value}\n",
                    look.host, function.device
                ))
            })
        };
        looks.clone().flat_map(of).collect()
    };
    let sent = "hairpin_mesh_sent_bytes_total";
    family(
        sent,
        "Bytes that an RDMA function sent.",
        bytes(sent, |f| f.sent_bytes),
    );
    let received = "hairpin_mesh_received_bytes_total";
    family(
        received,
        "Bytes that an RDMA function received.",
        bytes(received, |f| f.received_bytes),
    );
    let losses = "hairpin_mesh_losses_total";
    let lines = looks.flat_map(|look| {
        look.functions.iter().flat_map(move |function| {
            function.losses.iter().map(move |(name, value)| {
                format!(
                    "{losses}{{host=\"{}\",device=\"{}\",counter=\"{name}\"}} {value}\n",
                    look.host, function.device
                )
            })
        })
    });
    family(
        losses,
        "Packets lost or sent again, by counter of the RDMA function.",
        lines.collect(),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(device: &str, socket: u8, sent: u64, received: u64) -> Function {
        Function {
            device: device.parse().unwrap(),
            socket: Some(socket),
            sent_bytes: Some(sent),
            received_bytes: Some(received),
            losses: BTreeMap::new(),
        }
    }

    fn look(at_ms: u64, functions: Vec<Function>) -> Look {
        Look {
            host: "spark1".parse().unwrap(),
            at_ms,
            functions,
        }
    }

    #[test]
    fn rates_are_by_the_time_that_really_passed_and_a_counter_that_fell_began_anew() {
        let mut watched = Watched::new(look(0, vec![function("a", 0, 1000, 5000)]));
        let rate = watched.next(look(2000, vec![function("a", 0, 5000, 300)]));
        assert_eq!(rate.functions[0].sent_bytes_per_second, Some(2000));
        assert_eq!(rate.functions[0].received_bytes_per_second, Some(150));
        assert_eq!(
            (rate.sent_bytes_per_second, rate.received_bytes_per_second),
            (Some(2000), Some(150))
        );
    }

    #[test]
    fn counters_that_two_functions_of_a_socket_share_are_added_once() {
        let shared = |n| {
            vec![
                function("a", 0, n, n),
                function("b", 0, n, n),
                function("c", 1, n, n),
            ]
        };
        let mut watched = Watched::new(look(0, shared(1000)));
        let rate = watched.next(look(1000, shared(3000)));
        // c is of another socket: the same value by chance.
        assert_eq!(rate.sent_bytes_per_second, Some(4000));
        assert_eq!(
            rate.functions[1]
                .same_counters_as
                .as_ref()
                .unwrap()
                .as_str(),
            "a"
        );
        assert_eq!(rate.functions[2].same_counters_as, None);
        // Once they differ, they are two for good.
        let rate = watched.next(look(
            2000,
            vec![
                function("a", 0, 4000, 0),
                function("b", 0, 3500, 0),
                function("c", 1, 3000, 0),
            ],
        ));
        assert_eq!(rate.sent_bytes_per_second, Some(1500));
        assert_eq!(watched.whole().functions[1].same_counters_as, None);
    }

    #[test]
    fn functions_that_never_counted_are_not_one() {
        let watched = Watched::new(look(
            0,
            vec![function("a", 0, 0, 0), function("b", 0, 0, 0)],
        ));
        assert_eq!(watched.whole().functions[1].same_counters_as, None);
    }

    #[test]
    fn the_function_that_carries_nothing_is_named_and_losses_are() {
        let mut first = vec![function("a", 0, 7, 7), function("b", 0, 9, 9)];
        first[0]
            .losses
            .insert("out_of_sequence".parse().unwrap(), 5);
        let mut last = vec![function("a", 0, 7 + BUSY, 7), function("b", 0, 9, 9)];
        last[0].losses.insert("out_of_sequence".parse().unwrap(), 8);
        // What stands still is no loss.
        for look in [&mut first, &mut last] {
            look[0].losses.insert("out_of_buffer".parse().unwrap(), 4);
        }
        let mut watched = Watched::new(look(0, first.clone()));
        assert!(watched.findings().is_empty());
        let rate = watched.next(look(3000, last));
        assert_eq!(
            rate.functions[0]
                .losses_per_second
                .values()
                .copied()
                .collect::<Vec<_>>(),
            [1]
        );
        let findings = watched.findings();
        let codes: Vec<_> = findings
            .iter()
            .map(|f| (f.code, f.object.as_deref().unwrap()))
            .collect();
        assert_eq!(codes, [("function-idle", "b"), ("losses-rise", "a")]);
        // Below what is worth a word.
        let mut watched = Watched::new(look(0, first.clone()));
        watched.next(look(
            1,
            vec![function("a", 0, 6 + BUSY, 7), function("b", 0, 9, 9)],
        ));
        assert!(watched.findings().is_empty());
    }

    #[test]
    fn a_function_carries_nothing_below_a_thousandth_of_the_busiest() {
        let named = |busy: u64, other: u64| {
            let before = vec![function("a", 0, 0, 0), function("b", 0, 0, 0)];
            let mut watched = Watched::new(look(0, before));
            let now = vec![function("a", 0, busy, 0), function("b", 0, other, 0)];
            watched.next(look(1000, now));
            !watched.findings().is_empty()
        };
        assert!(named(5_000_000_000, 4_999_999));
        assert!(!named(5_000_000_000, 5_000_000));
    }

    #[test]
    fn traffic_that_no_counter_shows_is_not_observed_and_no_silence() {
        let bare = || {
            vec![Function {
                sent_bytes: None,
                received_bytes: None,
                ..function("a", 0, 0, 0)
            }]
        };
        let mut watched = Watched::new(look(0, bare()));
        assert_eq!(watched.next(look(1000, bare())).sent_bytes_per_second, None);
        let codes: Vec<_> = watched
            .findings()
            .iter()
            .map(|f| (f.code, f.severity))
            .collect();
        assert_eq!(
            codes,
            [("traffic-unobserved", crate::finding::Severity::NotObserved)]
        );
    }

    #[test]
    fn metrics_are_counters_with_host_and_device() {
        let mut one = look(0, vec![function("a", 0, 1, 2)]);
        one.functions[0]
            .losses
            .insert("out_of_buffer".parse().unwrap(), 3);
        one.functions.push(Function {
            sent_bytes: None,
            received_bytes: None,
            ..function("b", 1, 0, 0)
        });
        let wanted = "# HELP hairpin_mesh_sent_bytes_total Bytes that an RDMA function sent.\n# TYPE hairpin_mesh_sent_bytes_total counter\n\
            hairpin_mesh_sent_bytes_total{host=\"spark1\",device=\"a\"} 1\n\
            # HELP hairpin_mesh_received_bytes_total Bytes that an RDMA function received.\n# TYPE hairpin_mesh_received_bytes_total counter\n\
            hairpin_mesh_received_bytes_total{host=\"spark1\",device=\"a\"} 2\n\
            # HELP hairpin_mesh_losses_total Packets lost or sent again, by counter of the RDMA function.\n# TYPE hairpin_mesh_losses_total counter\n\
            hairpin_mesh_losses_total{host=\"spark1\",device=\"a\",counter=\"out_of_buffer\"} 3\n";
        assert_eq!(metrics([one].iter()), wanted);
    }

    #[test]
    fn a_look_reads_back_and_a_damaged_one_is_an_error() {
        let mut one = look(12, vec![function("a", 0, 1, 2)]);
        one.functions[0]
            .losses
            .insert("out_of_buffer".parse().unwrap(), 3);
        one.functions.push(Function {
            sent_bytes: None,
            socket: None,
            ..function("b", 1, 0, 0)
        });
        let text = crate::json::pretty(&one);
        let read = |text: &str| -> Result<Look, DocumentError> {
            let value = crate::json::parse("x", text.as_bytes())?;
            Look::read(&one.host, &At::root("x", &value))
        };
        assert_eq!(read(&text).unwrap(), one);
        for (from, to) in [
            ("\"at_ms\": 12", "\"at_ms\": -1"),
            ("\"device\": \"a\"", "\"device\": \"../a\""),
            ("\"losses\": {}", "\"losses\": 0"),
        ] {
            assert!(read(&text.replace(from, to)).is_err(), "{from}");
        }
        // As many counters as there are to be told, and none more.
        let mut all: Vec<&str> = [LOSSES, DROPS].concat();
        let mut with = |name: Option<&'static str>| {
            all.extend(name);
            let losses = all.iter().map(|name| (name.parse().unwrap(), 0));
            one.functions[0].losses = losses.collect();
            let text = crate::json::pretty(&one);
            let value = crate::json::parse("x", text.as_bytes()).unwrap();
            Look::read(&one.host, &At::root("x", &value)).is_ok()
        };
        assert!(with(None));
        assert!(!with(Some("one_more")));
    }
}
