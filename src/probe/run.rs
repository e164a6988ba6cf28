//! The paths of a plan, one after the other, each measured and judged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::protocol::{Answer, Ask, Counts, End};
use super::session::{Error, Session};
use super::statistics::{Figures, figures};
use super::verdict::{Judged, Seen, Verdict, judge};
use crate::names::{HostName, NetdevName, RdmaName};
use crate::plan::{PathKind, PathRow, Plan, PortRow, RuleRow};

/// How paths are measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of a message, each in turn.
    pub sizes: Vec<u32>,
    /// Messages each way that count.
    pub iterations: u64,
    /// Messages before them that do not.
    pub warm_up: u64,
    /// The longest that a run may take.
    pub limit: Duration,
    /// Whether the samples are part of the report.
    pub raw: bool,
}

/// What there is to tell of a path.
#[derive(Debug, Clone, Serialize)]
pub struct PathReport {
    /// Its name in the plan.
    pub path: String,
    /// Direct or diagonal.
    pub kind: PathKind,
    /// Source.
    pub from: HostName,
    /// The node between.
    pub via: Option<HostName>,
    /// Destination.
    pub to: HostName,
    /// Domain.
    pub domain: usize,
    /// RDMA device of the source.
    pub device: RdmaName,
    /// The worst of its sizes.
    pub verdict: Verdict,
    /// One for each size, in the order asked.
    pub sizes: Vec<SizeReport>,
}

/// What there is to tell of a path at one size.
#[derive(Debug, Clone, Serialize)]
pub struct SizeReport {
    /// Bytes of a message.
    pub size: u32,
    /// What figures and counters say.
    #[serde(flatten)]
    pub judged: Judged,
    /// The figures, microseconds; none when the run failed or was too short.
    pub figures: Option<Figures>,
    /// Of the direct path to the node between, measured right before and right after; of a diagonal alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct: Option<Direct>,
    /// What the counters of the nodes did meanwhile.
    pub counters: Option<Deltas>,
    /// Round trips, nanoseconds, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trips_ns: Option<Vec<u64>>,
}

/// The direct neighbour beside a diagonal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Direct {
    /// p50 before and after, microseconds; none where that run failed.
    pub p50: [Option<f64>; 2],
    /// p50 of the diagonal less the mean of these.
    pub difference: Option<f64>,
}

impl Direct {
    /// The mean of both, or the one that there is.
    pub fn mean(&self) -> Option<f64> {
        let known: Vec<f64> = self.p50.iter().flatten().copied().collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }
}

/// By how much counters rose during a diagonal's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deltas {
    /// Packets that each end sent at least.
    pub sent: u64,
    /// Packets that the rule from source to destination took in hardware.
    pub rule_there: Option<u64>,
    /// Packets that the rule from destination to source took in hardware.
    pub rule_back: Option<u64>,
    /// Packets that the kernel of the node between forwarded, of whomever.
    pub ip_forwarded: Option<u64>,
    /// Error counters that rose: host, device, counter, by how much.
    pub errors: Vec<(HostName, RdmaName, String, u64)>,
}

/// Flow label of a direct path's queue pairs: UDP source port 49153. With 0 the kernel would make one of the
/// numbers of both queue pairs, which can be the one that is tagged.
const DIRECT_FLOW_LABEL: u32 = 1;

/// mlx5 reads the counters of its rules once a second (`MLX5_FC_STATS_PERIOD`, the kernel's
/// drivers/net/ethernet/mellanox/mlx5/core/fs_counters.c): what is read sooner may be old.
const REFRESHED: Duration = Duration::from_millis(1100);
/// How long counters may take to show what was sent.
const SHOWN: Duration = Duration::from_secs(3);

/// The ends of a path, and the rules between.
struct Ends<'a> {
    source: &'a PortRow,
    target: &'a PortRow,
    /// There, and back; of a diagonal.
    rules: Option<[&'a RuleRow; 2]>,
}

fn ends<'a>(plan: &'a Plan, path: &PathRow) -> Option<Ends<'a>> {
    let source = plan
        .ports
        .iter()
        .find(|port| port.host == path.from && port.rdma == path.device)?;
    let Some(via) = &path.via else {
        let target = plan
            .ports
            .iter()
            .find(|port| port.host == path.to && port.netdev == source.peer_netdev)?;
        return Some(Ends {
            source,
            target,
            rules: None,
        });
    };
    let target = plan.ports.iter().find(|port| {
        port.host == path.to && port.peer_host == *via && port.domain == path.domain
    })?;
    let rule = |from: &PortRow, to: &PortRow| {
        plan.rules.iter().find(|rule| {
            rule.host == *via && rule.src_mac == from.mac && rule.set_dst_mac == to.mac
        })
    };
    Some(Ends {
        source,
        target,
        rules: Some([rule(source, target)?, rule(target, source)?]),
    })
}

/// Agents, each started when its host is first needed.
#[derive(Default)]
pub struct Agents(BTreeMap<HostName, Session>);

impl Agents {
    fn of(&mut self, host: &HostName) -> Result<&mut Session, String> {
        if !self.0.contains_key(host) {
            let session = Session::open(host).and_then(|mut session| {
                session.hello()?;
                Ok(session)
            });
            let session = session.map_err(|error| format!("{host}: {error}"))?;
            self.0.insert(host.clone(), session);
        }
        self.0
            .get_mut(host)
            .ok_or_else(|| format!("{host}: no agent"))
    }

    fn ask(&mut self, host: &HostName, ask: &Ask) -> Result<Answer, String> {
        let result = self.of(host)?.ask(ask);
        self.kept(host, result)
    }

    fn order(&mut self, host: &HostName, ask: &Ask) -> Result<(), String> {
        let result = self.of(host)?.order(ask);
        self.kept(host, result)
    }

    /// An agent that did not answer as it should is not gone on with.
    fn kept<T>(&mut self, host: &HostName, result: Result<T, Error>) -> Result<T, String> {
        result.map_err(|error| {
            if !matches!(error, Error::Refused(_)) {
                self.0.remove(host);
            }
            format!("{host}: {error}")
        })
    }
}

/// The devices of these paths, by host.
fn all_devices(plan: &Plan, paths: &[&PathRow]) -> BTreeMap<HostName, Vec<RdmaName>> {
    let mut devices: BTreeMap<HostName, Vec<RdmaName>> = BTreeMap::new();
    for path in paths {
        let of_path = ends(plan, path).map(|ends| self::devices(plan, path, &ends));
        for (host, names) in of_path.into_iter().flatten() {
            let all = devices.entry(host).or_default();
            all.extend(names);
            all.sort();
            all.dedup();
        }
    }
    devices
}

/// Starts the agent of every host on these paths; why where that cannot be done, a line for each host.
pub fn reach(plan: &Plan, paths: &[&PathRow], agents: &mut Agents) -> Vec<String> {
    all_devices(plan, paths)
        .keys()
        .filter_map(|host| agents.of(host).err())
        .collect()
}

/// Queue pairs of others on the devices of these paths, in words: `None` for a host that does not say.
pub fn others(
    plan: &Plan,
    paths: &[&PathRow],
    agents: &mut Agents,
) -> Vec<(HostName, Option<Vec<String>>)> {
    let answer = |(host, devices): (HostName, Vec<RdmaName>)| {
        let rows = match agents.ask(&host, &Ask::Others { devices }) {
            Ok(Answer::Others { rows }) => rows,
            _ => None,
        };
        (host, rows)
    };
    all_devices(plan, paths).into_iter().map(answer).collect()
}

/// Measures each path. `step` is told what comes next.
pub fn run(
    plan: &Plan,
    paths: &[&PathRow],
    options: &Options,
    agents: &mut Agents,
    step: &mut dyn FnMut(&str),
) -> Vec<PathReport> {
    paths
        .iter()
        .map(|path| {
            let sizes: Vec<SizeReport> = options
                .sizes
                .iter()
                .map(|size| {
                    step(&format!("{} at {size} bytes", path.name));
                    one(plan, path, *size, options, agents)
                })
                .collect();
            PathReport {
                path: path.name.clone(),
                kind: path.kind,
                from: path.from.clone(),
                via: path.via.clone(),
                to: path.to.clone(),
                domain: path.domain,
                device: path.device.clone(),
                verdict: worst(sizes.iter().map(|size| size.judged.verdict)),
                sizes,
            }
        })
        .collect()
}

/// The worst verdict; of none that nothing is proven.
fn worst(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Hardware => 0,
        Verdict::NotProven => 1,
        Verdict::SoftwareForwarded => 2,
        Verdict::Failed => 3,
    };
    verdicts.max_by_key(rank).unwrap_or(Verdict::NotProven)
}

fn one(
    plan: &Plan,
    path: &PathRow,
    size: u32,
    options: &Options,
    agents: &mut Agents,
) -> SizeReport {
    let failed = |why: String| SizeReport {
        size,
        judged: Judged {
            verdict: Verdict::Failed,
            reasons: vec![why],
        },
        figures: None,
        direct: None,
        counters: None,
        round_trips_ns: None,
    };
    let Some(own) = ends(plan, path) else {
        return failed("the plan has no ports or rules for it".into());
    };
    let Some(rules) = own.rules else {
        return match exchange(&own, DIRECT_FLOW_LABEL, size, options, agents) {
            Ok(run) => SizeReport {
                size,
                judged: Judged {
                    // There is no node between.
                    verdict: Verdict::Hardware,
                    reasons: Vec::new(),
                },
                figures: figures(&run.times),
                direct: None,
                counters: None,
                round_trips_ns: options.raw.then_some(run.times),
            },
            Err(why) => failed(why),
        };
    };
    let Some(via) = &path.via else {
        return failed("the plan does not say through whom".into());
    };
    let beside = plan.paths.iter().find(|other| {
        other.kind == PathKind::Direct
            && other.from == path.from
            && other.to == *via
            && other.device == path.device
    });
    let neighbour = |agents: &mut Agents| {
        let ends = ends(plan, beside?)?;
        let run = exchange(&ends, DIRECT_FLOW_LABEL, size, options, agents).ok()?;
        figures(&run.times).map(|figures| figures.p50)
    };
    let before_p50 = neighbour(agents);
    let counted = Counted {
        via,
        rules: rules.map(|rule| (rule.dev.clone(), rule.pref)),
        devices: devices(plan, path, &own),
    };
    let before = counted.settled(agents);
    let label = path.flow_label.unwrap_or(crate::plan::mesh::FLOW_LABEL);
    let run = exchange(&own, label, size, options, agents);
    // A run that failed has sent something all the same.
    let sent = run.as_ref().map_or(0, |run| run.sent);
    let after = counted.until(agents, &before, sent);
    let after_p50 = neighbour(agents);
    let deltas = counted.deltas(&before, &after, sent);
    let seen = Seen {
        sent,
        there: deltas.rule_there,
        back: deltas.rule_back,
        forwarded: deltas.ip_forwarded,
    };
    let judged = judge(
        &seen,
        run.as_ref().err().map(String::as_str),
        path.from.as_str(),
        via.as_str(),
        path.to.as_str(),
    );
    let figures = run.as_ref().ok().and_then(|run| figures(&run.times));
    let mut direct = Direct {
        p50: [before_p50, after_p50],
        difference: None,
    };
    direct.difference = figures
        .as_ref()
        .and_then(|own| Some(own.p50 - direct.mean()?));
    SizeReport {
        size,
        judged,
        figures,
        direct: Some(direct),
        counters: Some(deltas),
        round_trips_ns: run.ok().filter(|_| options.raw).map(|run| run.times),
    }
}

/// A run that went well.
struct Run {
    /// Round trips as the source saw them, nanoseconds.
    times: Vec<u64>,
    /// Packets that each side sent at least.
    sent: u64,
}

/// Opens both ends, exchanges messages, and closes them again.
fn exchange(
    ends: &Ends,
    flow_label: u32,
    size: u32,
    options: &Options,
    agents: &mut Agents,
) -> Result<Run, String> {
    let result = exchange_open(ends, flow_label, size, options, agents);
    // A side that never opened says so, and one that lost its agent has nothing to close.
    for port in [ends.source, ends.target] {
        if agents.0.contains_key(&port.host) {
            let _ = agents.order(&port.host, &Ask::Close);
        }
    }
    result
}

fn exchange_open(
    ends: &Ends,
    flow_label: u32,
    size: u32,
    options: &Options,
    agents: &mut Agents,
) -> Result<Run, String> {
    let open = |port: &PortRow, first: bool, agents: &mut Agents| {
        let ask = Ask::Open {
            device: port.rdma.clone(),
            address: port.ipv4.address,
            size,
            first,
        };
        match agents.ask(&port.host, &ask)? {
            Answer::Open { end, .. } => Ok::<End, String>(end),
            _ => Err(format!("{}: {}", port.host, Error::OutOfTurn)),
        }
    };
    let source = open(ends.source, true, agents)?;
    let target = open(ends.target, false, agents)?;
    let mtu = source.mtu.min(target.mtu);
    for (port, peer) in [(ends.source, &target), (ends.target, &source)] {
        let ask = Ask::Connect {
            peer: peer.clone(),
            flow_label,
            mtu,
        };
        agents.order(&port.host, &ask)?;
    }
    let hosts = [&ends.source.host, &ends.target.host];
    let packets = u64::from(size.div_ceil(mtu));
    let mut sent = 0;
    let mut times = Vec::new();
    // One message alone, whose whole payload is checked; some to warm up; those that count.
    let runs = [1, options.warm_up, options.iterations];
    for (seed, messages) in (1u8..).zip(runs) {
        if messages == 0 {
            continue;
        }
        for host in hosts {
            agents.order(host, &Ask::Arm { seed })?;
        }
        times = both(hosts, messages, options.limit, agents)?;
        sent += messages * packets;
    }
    Ok(Run { times, sent })
}

/// A run on both sides at once; the source's times. When one side fails the other is told.
fn both(
    hosts: [&HostName; 2],
    messages: u64,
    limit: Duration,
    agents: &mut Agents,
) -> Result<Vec<u64>, String> {
    let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
    let patience = limit + super::session::PATIENCE;
    let [source, target] = hosts;
    // The side that answers first, so that it is there when the first message comes.
    for host in [target, source] {
        let result = agents.of(host)?.send(&Ask::Run { messages, limit_ms });
        agents.kept(host, result)?;
    }
    let take = |host: &HostName, agents: &mut Agents| {
        let result = agents.of(host)?.answer(patience);
        match agents.kept(host, result)? {
            Answer::Run { times } => Ok(times),
            _ => Err(format!("{host}: {}", Error::OutOfTurn)),
        }
    };
    let first = take(source, agents);
    if first.is_err() && agents.0.contains_key(target) {
        // It waits for what does not come: any question ends that. Its answer comes first, then the one
        // to the question.
        let sent = agents.of(target)?.send(&Ask::Arm { seed: 0 });
        agents.kept(target, sent)?;
    }
    let second = take(target, agents);
    if first.is_err() && agents.0.contains_key(target) {
        let result = agents.of(target)?.answer(super::session::PATIENCE);
        agents.kept(target, result)?;
    }
    match (first, second) {
        (Ok(times), Ok(_)) => Ok(times),
        (Err(why), Ok(_)) | (Ok(_), Err(why)) => Err(why),
        // Which of them is the cause is not known.
        (Err(one), Err(other)) => Err(format!("{one}; {other}")),
    }
}

/// The devices whose error counters are of interest: of both ends and of the ports between.
fn devices(plan: &Plan, path: &PathRow, ends: &Ends) -> BTreeMap<HostName, Vec<RdmaName>> {
    let mut devices = BTreeMap::new();
    for port in [ends.source, ends.target] {
        devices.insert(port.host.clone(), vec![port.rdma.clone()]);
    }
    if let Some(via) = &path.via {
        let between = plan.ports.iter().filter(|port| {
            port.host == *via
                && port.domain == path.domain
                && (port.peer_host == path.from || port.peer_host == path.to)
        });
        devices.insert(via.clone(), between.map(|port| port.rdma.clone()).collect());
    }
    devices
}

/// What is counted around a diagonal.
struct Counted<'a> {
    via: &'a HostName,
    rules: [(NetdevName, u16); 2],
    devices: BTreeMap<HostName, Vec<RdmaName>>,
}

type Read = BTreeMap<HostName, Counts>;

impl Counted<'_> {
    fn of(&self, host: &HostName, agents: &mut Agents) -> Option<Counts> {
        let ask = Ask::Count {
            rules: if host == self.via {
                self.rules.to_vec()
            } else {
                Vec::new()
            },
            devices: self.devices.get(host).cloned().unwrap_or_default(),
        };
        match agents.ask(host, &ask) {
            Ok(Answer::Count(counts)) => Some(counts),
            _ => None,
        }
    }

    fn all(&self, agents: &mut Agents) -> Read {
        let hosts = self.devices.keys();
        hosts
            .filter_map(|host| Some((host.clone(), self.of(host, agents)?)))
            .collect()
    }

    /// The counters, once two looks agree on the rules.
    fn settled(&self, agents: &mut Agents) -> Read {
        let rules = |agents: &mut Agents| self.of(self.via, agents).map(|counts| counts.rules);
        let mut last = rules(agents);
        // Others may use the path all the time: then the last look counts.
        for _ in 0..3 {
            std::thread::sleep(REFRESHED);
            let now = rules(agents);
            if now == last {
                break;
            }
            last = now;
        }
        self.all(agents)
    }

    /// The counters, once the rules show what was sent or time is up.
    fn until(&self, agents: &mut Agents, before: &Read, sent: u64) -> Read {
        let until = Instant::now() + SHOWN;
        loop {
            let after = self.all(agents);
            let deltas = self.deltas(before, &after, sent);
            let shown = |count: Option<u64>| count.is_none_or(|count| count >= sent.max(1));
            if (shown(deltas.rule_there) && shown(deltas.rule_back)) || Instant::now() >= until {
                return after;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn deltas(&self, before: &Read, after: &Read, sent: u64) -> Deltas {
        let of = |what: &dyn Fn(&Counts) -> Option<u64>| {
            let count = |read: &Read| what(read.get(self.via)?);
            // A rule that was made anew counts from 0: that is no count of this run.
            count(after)?.checked_sub(count(before)?)
        };
        let mut errors = Vec::new();
        for (host, counts) in after {
            for (device, name, value) in &counts.errors {
                let was = before.get(host).and_then(|counts| {
                    let mut all = counts.errors.iter();
                    all.find(|(d, n, _)| d == device && n == name)
                        .map(|(_, _, value)| *value)
                });
                let rise = was.map_or(0, |was| value.saturating_sub(was));
                if rise > 0 {
                    errors.push((host.clone(), device.clone(), name.clone(), rise));
                }
            }
        }
        Deltas {
            sent,
            rule_there: of(&|counts| counts.rules.first().copied().flatten()),
            rule_back: of(&|counts| counts.rules.get(1).copied().flatten()),
            ip_forwarded: of(&|counts| counts.forwarded),
            errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let bytes = include_bytes!("../../plans/tp-along-ring/ring-mesh/plan.json");
        Plan::from_json("plan.json", bytes).unwrap()
    }

    #[test]
    fn every_path_has_its_ends_and_a_diagonal_its_rule_each_way() {
        let plan = plan();
        for path in &plan.paths {
            let ends = ends(&plan, path).unwrap();
            assert_eq!(
                (&ends.source.host, &ends.target.host),
                (&path.from, &path.to)
            );
            assert_eq!(ends.source.domain, ends.target.domain);
            match (ends.rules, &path.via) {
                (Some([there, back]), Some(via)) => {
                    assert_eq!((&there.host, &back.host), (via, via));
                    assert_eq!((&there.dev, &there.redirect), (&back.redirect, &back.dev));
                    assert_eq!(ends.source.peer_netdev, there.dev);
                    assert_eq!(ends.target.peer_netdev, back.dev);
                }
                (None, None) => assert_eq!(ends.source.peer_netdev, ends.target.netdev),
                _ => panic!("{}", path.name),
            }
        }
    }

    #[test]
    fn a_rule_that_was_made_anew_during_the_run_has_no_count_of_it() {
        let plan = plan();
        let path = plan.paths.iter().find(|p| p.via.is_some()).unwrap();
        let own = ends(&plan, path).unwrap();
        let counted = Counted {
            via: path.via.as_ref().unwrap(),
            rules: own.rules.unwrap().map(|rule| (rule.dev.clone(), rule.pref)),
            devices: devices(&plan, path, &own),
        };
        let device = own.source.rdma.clone();
        let read = |there, forwarded, errors| {
            let counts = Counts {
                forwarded: Some(forwarded),
                rules: vec![Some(there), None],
                errors: vec![(device.clone(), "out_of_sequence".to_owned(), errors)],
            };
            BTreeMap::from([(counted.via.clone(), counts)])
        };
        let deltas = counted.deltas(&read(5, 7, 1), &read(15, 8, 4), 10);
        assert_eq!(
            (deltas.rule_there, deltas.rule_back, deltas.ip_forwarded),
            (Some(10), None, Some(1))
        );
        assert_eq!(
            deltas.errors,
            [(
                counted.via.clone(),
                device.clone(),
                "out_of_sequence".into(),
                3
            )]
        );
        let anew = counted.deltas(&read(5, 7, 1), &read(2, 7, 1), 10);
        assert_eq!((anew.rule_there, anew.errors.len()), (None, 0));
        assert_eq!(
            counted
                .deltas(&BTreeMap::new(), &read(2, 7, 1), 10)
                .ip_forwarded,
            None
        );
    }

    #[test]
    fn the_worst_of_all_sizes_is_the_verdict_of_a_path() {
        use Verdict::{Failed, Hardware, NotProven, SoftwareForwarded};
        assert_eq!(worst([Hardware, NotProven].into_iter()), NotProven);
        assert_eq!(
            worst([SoftwareForwarded, Hardware].into_iter()),
            SoftwareForwarded
        );
        assert_eq!(worst([Failed, SoftwareForwarded].into_iter()), Failed);
        assert_eq!(worst([].into_iter()), NotProven);
    }
}
