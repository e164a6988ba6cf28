//! Two agents brought together: a queue pair at each end, and messages between them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::Serialize;

use super::protocol::{Answer, Ask, End};
use super::session::{Error, PATIENCE, Session};
use crate::names::{Gid, HostName, RdmaName};
use crate::plan::PortRow;

/// One end of what is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Point {
    /// Whose agent it is.
    pub(super) host: HostName,
    /// Its RDMA device.
    pub(super) device: RdmaName,
    /// The address of that device's port.
    pub(super) address: Ipv4Addr,
}

impl Point {
    /// A port of a plan.
    pub(super) fn of(port: &PortRow) -> Point {
        Point {
            host: port.host.clone(),
            device: port.rdma.clone(),
            address: port.ipv4.address,
        }
    }
}

/// How messages are exchanged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    /// Flow label of both queue pairs.
    pub(super) flow_label: u32,
    /// Bytes of a message.
    pub(super) size: u32,
    /// Messages each way that count.
    pub(super) iterations: u64,
    /// Messages before them that do not.
    pub(super) warm_up: u64,
    /// The longest that a run may take.
    pub(super) limit: Duration,
}

/// One end of a run, as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndReport {
    /// Its host.
    pub host: HostName,
    /// Its RDMA device.
    pub device: RdmaName,
    /// Its GID.
    pub gid: Gid,
    /// The index of its GID, which was found by type and address.
    pub gid_index: u8,
    /// The number of its queue pair.
    pub qp_number: u32,
    /// The active MTU of its port, bytes.
    pub mtu: u32,
    /// The processor that it ended on.
    pub cpu: u32,
}

/// A run that went well.
pub(super) struct Run {
    /// Round trips as the first end saw them, nanoseconds.
    pub(super) times: Vec<u64>,
    /// Packets that each end sent at least.
    pub(super) sent: u64,
    /// Path MTU, bytes: the smaller active one.
    pub(super) mtu: u32,
    /// Both ends.
    pub(super) ends: [EndReport; 2],
}

/// Agents, each started when its host is first needed.
#[derive(Default)]
pub struct Agents(BTreeMap<HostName, Session>);

impl Agents {
    /// One that was started otherwise, once it speaks this program's protocol.
    pub(super) fn add(&mut self, host: &HostName, mut session: Session) -> Result<(), String> {
        session
            .hello()
            .map_err(|error| format!("{host}: {error}"))?;
        self.0.insert(host.clone(), session);
        Ok(())
    }

    pub(super) fn of(&mut self, host: &HostName) -> Result<&mut Session, String> {
        if !self.0.contains_key(host) {
            let session = Session::open(host).map_err(|error| format!("{host}: {error}"))?;
            self.add(host, session)?;
        }
        self.0
            .get_mut(host)
            .ok_or_else(|| format!("{host}: no agent"))
    }

    pub(super) fn ask(&mut self, host: &HostName, ask: &Ask) -> Result<Answer, String> {
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

    /// Opens both ends, exchanges messages, and closes them again. The first writes first.
    pub(super) fn exchange(
        &mut self,
        points: [&Point; 2],
        exchange: &Exchange,
    ) -> Result<Run, String> {
        let result = self.exchange_open(points, exchange);
        // A side that never opened says so, and one that lost its agent has nothing to close.
        for point in points {
            if self.0.contains_key(&point.host) {
                let _ = self.order(&point.host, &Ask::Close);
            }
        }
        result
    }

    fn open(&mut self, point: &Point, size: u32, first: bool) -> Result<(End, u8), String> {
        let ask = Ask::Open {
            device: point.device.clone(),
            address: point.address,
            size,
            first,
        };
        match self.ask(&point.host, &ask)? {
            Answer::Open { end, gid_index } => Ok((end, gid_index)),
            _ => Err(format!("{}: {}", point.host, Error::OutOfTurn)),
        }
    }

    fn exchange_open(&mut self, points: [&Point; 2], exchange: &Exchange) -> Result<Run, String> {
        let [first, second] = points;
        let ends = [
            self.open(first, exchange.size, true)?,
            self.open(second, exchange.size, false)?,
        ];
        let mtu = ends[0].0.mtu.min(ends[1].0.mtu);
        for (point, (peer, _)) in [(first, &ends[1]), (second, &ends[0])] {
            let ask = Ask::Connect {
                peer: peer.clone(),
                flow_label: exchange.flow_label,
                mtu,
            };
            self.order(&point.host, &ask)?;
        }
        let hosts = [&first.host, &second.host];
        let packets = u64::from(exchange.size.div_ceil(mtu));
        let (mut sent, mut times, mut cpus) = (0, Vec::new(), [0, 0]);
        // One message alone, whose whole payload is checked; some to warm up; those that count.
        let runs = [1, exchange.warm_up, exchange.iterations];
        for (seed, messages) in (1u8..).zip(runs) {
            if messages == 0 {
                continue;
            }
            for host in hosts {
                self.order(host, &Ask::Arm { seed })?;
            }
            (times, cpus) = self.both(hosts, messages, exchange.limit)?;
            sent += messages * packets;
        }
        let report = |at: usize| EndReport {
            host: points[at].host.clone(),
            device: points[at].device.clone(),
            gid: ends[at].0.gid,
            gid_index: ends[at].1,
            qp_number: ends[at].0.qp_number,
            mtu: ends[at].0.mtu,
            cpu: cpus[at],
        };
        Ok(Run {
            times,
            sent,
            mtu,
            ends: [report(0), report(1)],
        })
    }

    /// A run on both sides at once: the first one's times, and the processors of both. When one side fails the
    /// other is told.
    fn both(
        &mut self,
        hosts: [&HostName; 2],
        messages: u64,
        limit: Duration,
    ) -> Result<(Vec<u64>, [u32; 2]), String> {
        let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        let [source, target] = hosts;
        // The side that answers first, so that it is there when the first message comes.
        for host in [target, source] {
            let result = self.of(host)?.send(&Ask::Run { messages, limit_ms });
            self.kept(host, result)?;
        }
        let first = self.taken(source, limit + PATIENCE);
        if first.is_err() && self.0.contains_key(target) {
            // It waits for what does not come: any question ends that. Its answer comes first, then the one
            // to the question.
            let sent = self.of(target)?.send(&Ask::Arm { seed: 0 });
            self.kept(target, sent)?;
        }
        let second = self.taken(target, limit + PATIENCE);
        if first.is_err() && self.0.contains_key(target) {
            let result = self.of(target)?.answer(PATIENCE);
            self.kept(target, result)?;
        }
        match (first, second) {
            (Ok((times, cpu)), Ok((_, other))) => Ok((times, [cpu, other])),
            (Err(why), Ok(_)) | (Ok(_), Err(why)) => Err(why),
            // Which of them is the cause is not known.
            (Err(one), Err(other)) => Err(format!("{one}; {other}")),
        }
    }

    /// The times of a run, and the processor.
    fn taken(&mut self, host: &HostName, patience: Duration) -> Result<(Vec<u64>, u32), String> {
        let result = self.of(host)?.answer(patience);
        match self.kept(host, result)? {
            Answer::Run { times, cpu } => Ok((times, cpu)),
            _ => Err(format!("{host}: {}", Error::OutOfTurn)),
        }
    }
}
