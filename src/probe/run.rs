//! The paths of a plan, one after the other, each measured and judged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::agents::{Agents, EndReport, Exchange, Point, Run};
use super::by_hand::Client;
use super::protocol::{Answer, Ask, Counts, Environment};
use super::statistics::{Figures, Histogram, figures, histogram};
use super::verdict::{Around, Judged, Seen, Verdict, judge, remarks};
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
    /// Whether the direct neighbour is measured beside each diagonal.
    pub neighbour: bool,
}

impl Options {
    pub(super) fn exchange(&self, flow_label: u32, size: u32) -> Exchange {
        Exchange {
            flow_label,
            size,
            iterations: self.iterations,
            warm_up: self.warm_up,
            limit: self.limit,
        }
    }
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
    /// How the samples spread; none likewise.
    pub histogram: Option<Histogram>,
    /// Flow label of both queue pairs.
    pub flow_label: u32,
    /// Path MTU, bytes; none when the run failed.
    pub path_mtu: Option<u32>,
    /// Source and destination, as they were; none likewise.
    pub ends: Option<[EndReport; 2]>,
    /// Of the direct path to the node between, measured right before and right after; of a diagonal alone, and not
    /// of a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct: Option<Direct>,
    /// What the counters of the nodes did meanwhile; of a diagonal alone.
    pub counters: Option<Deltas>,
    /// Round trips, nanoseconds, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trips_ns: Option<Vec<u64>>,
}

impl SizeReport {
    /// Of a run of which nothing is known: it failed.
    pub(super) fn nothing(size: u32, flow_label: u32) -> SizeReport {
        SizeReport {
            size,
            judged: Judged {
                verdict: Verdict::Failed,
                reasons: Vec::new(),
            },
            figures: None,
            histogram: None,
            flow_label,
            path_mtu: None,
            ends: None,
            direct: None,
            counters: None,
            round_trips_ns: None,
        }
    }

    /// Takes over what a run that went well has shown.
    fn went(&mut self, run: Run, raw: bool) {
        self.figures = figures(&run.times);
        self.histogram = histogram(&run.times);
        self.path_mtu = Some(run.mtu);
        self.ends = Some(run.ends);
        self.round_trips_ns = raw.then_some(run.times);
    }
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
    /// Counters of lost packets that rose: host, port, counter, by how much.
    pub drops: Vec<(HostName, NetdevName, String, u64)>,
}

/// What the figures of a device depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceEnvironment {
    /// Its host.
    pub host: HostName,
    /// The device.
    pub device: RdmaName,
    /// What there is to tell.
    #[serde(flatten)]
    pub environment: Environment,
}

/// Flow label of a direct path's queue pairs: UDP source port 49153. With 0 the kernel would make one of the
/// numbers of both queue pairs, which can be the one that is tagged.
pub const DIRECT_FLOW_LABEL: u32 = 1;

/// mlx5 reads the counters of its rules once a second (`MLX5_FC_STATS_PERIOD`, the kernel's
/// drivers/net/ethernet/mellanox/mlx5/core/fs_counters.c): what is read sooner may be old.
const REFRESHED: Duration = Duration::from_millis(1100);
/// How long counters may take to show what was sent.
const SHOWN: Duration = Duration::from_secs(3);

/// The ends of a path, and the rules between.
pub(super) struct Ends<'a> {
    pub(super) source: &'a PortRow,
    pub(super) target: &'a PortRow,
    /// There, and back; of a diagonal.
    pub(super) rules: Option<[&'a RuleRow; 2]>,
}

impl Ends<'_> {
    pub(super) fn points(&self) -> [Point; 2] {
        [Point::of(self.source), Point::of(self.target)]
    }
}

pub(super) fn ends<'a>(plan: &'a Plan, path: &PathRow) -> Option<Ends<'a>> {
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

/// The devices of these paths, by host.
fn all_devices(plan: &Plan, paths: &[&PathRow]) -> BTreeMap<HostName, Vec<RdmaName>> {
    let mut devices: BTreeMap<HostName, Vec<RdmaName>> = BTreeMap::new();
    for path in paths {
        let of_path = ends(plan, path).map(|ends| ports(plan, path, &ends));
        for port in of_path.into_iter().flatten() {
            let all = devices.entry(port.host.clone()).or_default();
            if !all.contains(&port.rdma) {
                all.push(port.rdma.clone());
            }
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

/// What the figures of these paths depend on. What a host does not tell is empty.
pub fn environment(plan: &Plan, paths: &[&PathRow], agents: &mut Agents) -> Vec<DeviceEnvironment> {
    let mut all = Vec::new();
    for (host, devices) in all_devices(plan, paths) {
        for device in devices {
            let ask = Ask::Environment {
                device: device.clone(),
            };
            let environment = match agents.ask(&host, &ask) {
                Ok(Answer::Environment(environment)) => environment,
                _ => Environment::default(),
            };
            all.push(DeviceEnvironment {
                host: host.clone(),
                device,
                environment,
            });
        }
    }
    all
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

/// Measures between two ends that were started by hand.
pub fn by_hand(
    client: &mut Client,
    flow_label: u32,
    options: &Options,
    step: &mut dyn FnMut(&str),
) -> Vec<SizeReport> {
    let measure = |size: &u32| {
        step(&format!("{size} bytes"));
        let mut report = SizeReport::nothing(*size, flow_label);
        match client.exchange(&options.exchange(flow_label, *size)) {
            Ok(run) => {
                report.went(run, options.raw);
                report.judged.verdict = Verdict::NotProven;
                let why = "no counter of a node was looked at: which way packets took is not known (probe --plan looks)";
                report.judged.reasons.push(why.to_owned());
            }
            Err(why) => report.judged.reasons.push(why),
        }
        report
    };
    options.sizes.iter().map(measure).collect()
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

/// Measures and judges a path at one size.
pub(super) fn one(
    plan: &Plan,
    path: &PathRow,
    size: u32,
    options: &Options,
    agents: &mut Agents,
) -> SizeReport {
    let flow_label = match path.kind {
        PathKind::Direct => DIRECT_FLOW_LABEL,
        PathKind::Diagonal => path.flow_label.unwrap_or(crate::plan::mesh::FLOW_LABEL),
    };
    let mut report = SizeReport::nothing(size, flow_label);
    let Some(own) = ends(plan, path) else {
        let why = "the plan has no ports or rules for it";
        report.judged.reasons.push(why.to_owned());
        return report;
    };
    let [source, target] = own.points();
    let exchange = options.exchange(flow_label, size);
    let run = match (own.rules, &path.via) {
        (Some(rules), Some(via)) => {
            let counted = Counted::of_path(plan, path, &own, via, rules);
            let beside = |agents: &mut Agents| {
                if !options.neighbour {
                    return None;
                }
                neighbour(plan, path, size, options, agents)
            };
            let before_p50 = beside(agents);
            let before = counted.settled(agents);
            let run = agents.exchange([&source, &target], &exchange);
            // A run that failed has sent something all the same.
            let sent = run.as_ref().map_or(0, |run| run.sent);
            let after = counted.until(agents, &before, sent);
            let after_p50 = beside(agents);
            let deltas = counted.deltas(&before, &after, sent);
            let seen = Seen {
                sent,
                there: deltas.rule_there,
                back: deltas.rule_back,
                forwarded: deltas.ip_forwarded,
            };
            report.judged = judge(
                &seen,
                run.as_ref().err().map(String::as_str),
                path.from.as_str(),
                via.as_str(),
                path.to.as_str(),
            );
            report.counters = Some(deltas);
            report.direct = options.neighbour.then_some(Direct {
                p50: [before_p50, after_p50],
                difference: None,
            });
            run.ok()
        }
        _ => match agents.exchange([&source, &target], &exchange) {
            Ok(run) => {
                // There is no node between.
                report.judged.verdict = Verdict::Hardware;
                Some(run)
            }
            Err(why) => {
                report.judged.reasons.push(why);
                None
            }
        },
    };
    if let Some(run) = run {
        report.went(run, options.raw);
    }
    let p50 = report.figures.as_ref().map(|figures| figures.p50);
    if let Some(direct) = &mut report.direct {
        direct.difference = p50.and_then(|own| Some(own - direct.mean()?));
    }
    report.judged.reasons.extend(remarks(&Around {
        size,
        p50,
        path_mtu: report.path_mtu,
        planned_gid_index: plan.gid_index,
        ends: report.ends.as_ref(),
        via: path.via.as_ref(),
        counters: report.counters.as_ref(),
    }));
    report
}

/// p50 of the direct path to the node between, microseconds.
fn neighbour(
    plan: &Plan,
    path: &PathRow,
    size: u32,
    options: &Options,
    agents: &mut Agents,
) -> Option<f64> {
    let beside = plan.paths.iter().find(|other| {
        other.kind == PathKind::Direct
            && other.from == path.from
            && Some(&other.to) == path.via.as_ref()
            && other.device == path.device
    })?;
    let [source, target] = ends(plan, beside)?.points();
    let exchange = options.exchange(DIRECT_FLOW_LABEL, size);
    let run = agents.exchange([&source, &target], &exchange).ok()?;
    figures(&run.times).map(|figures| figures.p50)
}

/// The ports whose counters are of interest, with their devices: of both ends and of the node between.
fn ports<'a>(plan: &'a Plan, path: &PathRow, ends: &Ends<'a>) -> Vec<&'a PortRow> {
    let between = plan.ports.iter().filter(|port| {
        path.via.as_ref() == Some(&port.host)
            && port.domain == path.domain
            && (port.peer_host == path.from || port.peer_host == path.to)
    });
    [ends.source, ends.target]
        .into_iter()
        .chain(between)
        .collect()
}

/// What is counted around a diagonal.
pub(super) struct Counted<'a> {
    via: &'a HostName,
    rules: [(NetdevName, u16); 2],
    ports: BTreeMap<HostName, Vec<&'a PortRow>>,
}

pub(super) type Read = BTreeMap<HostName, Counts>;

impl<'a> Counted<'a> {
    pub(super) fn of_path(
        plan: &'a Plan,
        path: &PathRow,
        ends: &Ends<'a>,
        via: &'a HostName,
        rules: [&RuleRow; 2],
    ) -> Counted<'a> {
        let mut by_host: BTreeMap<HostName, Vec<&PortRow>> = BTreeMap::new();
        for port in ports(plan, path, ends) {
            by_host.entry(port.host.clone()).or_default().push(port);
        }
        Counted {
            via,
            rules: rules.map(|rule| (rule.dev.clone(), rule.pref)),
            ports: by_host,
        }
    }

    fn of(&self, host: &HostName, agents: &mut Agents) -> Option<Counts> {
        let own = self.ports.get(host).map(Vec::as_slice).unwrap_or_default();
        let ask = Ask::Count {
            rules: if host == self.via {
                self.rules.to_vec()
            } else {
                Vec::new()
            },
            devices: own.iter().map(|port| port.rdma.clone()).collect(),
            ports: own.iter().map(|port| port.netdev.clone()).collect(),
        };
        match agents.ask(host, &ask) {
            Ok(Answer::Count(counts)) => Some(counts),
            _ => None,
        }
    }

    fn all(&self, agents: &mut Agents) -> Read {
        let hosts = self.ports.keys();
        hosts
            .filter_map(|host| Some((host.clone(), self.of(host, agents)?)))
            .collect()
    }

    /// The counters, once two looks agree on the rules.
    pub(super) fn settled(&self, agents: &mut Agents) -> Read {
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
    pub(super) fn until(&self, agents: &mut Agents, before: &Read, sent: u64) -> Read {
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

    pub(super) fn deltas(&self, before: &Read, after: &Read, sent: u64) -> Deltas {
        let of = |what: &dyn Fn(&Counts) -> Option<u64>| {
            let count = |read: &Read| what(read.get(self.via)?);
            // A rule that was made anew counts from 0: that is no count of this run.
            count(after)?.checked_sub(count(before)?)
        };
        Deltas {
            sent,
            rule_there: of(&|counts| counts.rules.first().copied().flatten()),
            rule_back: of(&|counts| counts.rules.get(1).copied().flatten()),
            ip_forwarded: of(&|counts| counts.forwarded),
            errors: risen(before, after, |counts| &counts.errors),
            drops: risen(before, after, |counts| &counts.drops),
        }
    }
}

/// One counter of something: whose, which, and its value.
type Row<T> = (T, String, u64);

/// The counters that rose, by how much, with their host.
fn risen<T: Clone + PartialEq>(
    before: &Read,
    after: &Read,
    rows: impl Fn(&Counts) -> &Vec<Row<T>>,
) -> Vec<(HostName, T, String, u64)> {
    let mut all = Vec::new();
    for (host, counts) in after {
        for (of, name, value) in rows(counts) {
            let was = before.get(host).and_then(|counts| {
                let mut all = rows(counts).iter();
                all.find(|(o, n, _)| o == of && n == name)
                    .map(|(_, _, value)| *value)
            });
            let rise = was.map_or(0, |was| value.saturating_sub(was));
            if rise > 0 {
                all.push((host.clone(), of.clone(), name.clone(), rise));
            }
        }
    }
    all
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
        let via = path.via.as_ref().unwrap();
        let counted = Counted::of_path(&plan, path, &own, via, own.rules.unwrap());
        // Both ends with a port each, and the two between.
        let numbers: Vec<usize> = counted.ports.values().map(Vec::len).collect();
        assert_eq!((numbers.len(), numbers.iter().sum()), (3, 4));
        let device = own.source.rdma.clone();
        let read = |there, forwarded, errors| {
            let counts = Counts {
                forwarded: Some(forwarded),
                rules: vec![Some(there), None],
                errors: vec![(device.clone(), "out_of_sequence".to_owned(), errors)],
                drops: Vec::new(),
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
