//! The end of a probe on a node: answers what is asked, on standard input and output or on a connection. It ends
//! with its input, so that nothing is left behind by who asks, however that ends.

use std::io::{self, BufRead, Read, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::counters::count;
use super::protocol::{Answer, Ask, Environment, LONGEST_QUESTION, PROTOCOL, line};
use crate::facts::ROCE_V2;
use crate::kernel::sysfs;
use crate::names::{Gid, RdmaName};
use crate::node::read::Sources;

/// The one device that an end may be asked to use, with the address of its port.
pub type Offer = (RdmaName, Ipv4Addr);

/// Serves until the input ends. `called` says whether something came in, which ends a run that is under way.
/// With an offer nothing else is opened.
///
/// # Errors
/// Input or output failed, or a question was no question: what is out of step is not gone on with.
pub fn serve(
    input: &mut impl BufRead,
    output: &mut impl Write,
    called: &dyn Fn() -> bool,
    offer: Option<&Offer>,
) -> io::Result<()> {
    while let Some(ask) = next(input)? {
        let answer = match ask {
            Ask::Open {
                device, address, ..
            } if offer.is_some_and(|offer| *offer != (device.clone(), address)) => error(format!(
                "{device} with {address} is not what is offered here"
            )),
            Ask::Hello { protocol } if protocol == PROTOCOL => Answer::Hello {
                protocol: PROTOCOL.into(),
            },
            Ask::Hello { protocol } => error(format!(
                "{PROTOCOL} is spoken here, {protocol:?} was asked for: deploy one version everywhere"
            )),
            Ask::Count {
                rules,
                devices,
                ports,
            } => Answer::Count(count(&rules, &devices, &ports)),
            Ask::Environment { device } => Answer::Environment(environment(&device)),
            Ask::Offered => match offer.cloned() {
                Some((device, address)) => Answer::Offered { device, address },
                None => error("no device was named when this end was started"),
            },
            Ask::Others { devices } => Answer::Others {
                rows: others(&devices),
            },
            #[cfg(feature = "rdma")]
            Ask::Open {
                device,
                address,
                size,
                first,
            } => match opened::serve((&device, address, size, first), input, output, called)? {
                Some(answer) => answer,
                None => return Ok(()),
            },
            #[cfg(not(feature = "rdma"))]
            Ask::Open { .. } => {
                // No run can be under way.
                let _ = called;
                error("this program was built without the feature `rdma`")
            }
            Ask::Connect { .. } | Ask::Arm { .. } | Ask::Run { .. } | Ask::Close => {
                error("nothing is open")
            }
        };
        say(output, &answer)?;
    }
    Ok(())
}

/// What figures of a device here depend on.
fn environment(device: &RdmaName) -> Environment {
    let text = |path: PathBuf| sysfs::text(path).ok().map(|text| text.as_str().to_owned());
    let of_device = |parts: &[&str]| text(sysfs::below("/sys/class/infiniband", parts));
    let cpu = rustix::thread::sched_getcpu();
    Environment {
        program: Some(concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")).into()),
        kernel: text("/proc/sys/kernel/osrelease".into()),
        architecture: Some(std::env::consts::ARCH.into()),
        governor: text(sysfs::below(
            "/sys/devices/system/cpu",
            &[&format!("cpu{cpu}"), "cpufreq", "scaling_governor"],
        )),
        firmware: of_device(&[device.as_str(), "fw_ver"]),
        link: of_device(&[device.as_str(), "ports", "1", "rate"]),
    }
}

/// Whose queue pairs are open on these devices, in words, one for each process; `None` when that cannot be seen.
fn others(devices: &[RdmaName]) -> Option<Vec<String>> {
    let open = Sources::default().open_queue_pairs_on(devices);
    let mut rows: Vec<String> = Vec::new();
    for device in open.known()? {
        for qp in &device.queue_pairs {
            let owner = qp.owner.known().map_or("?", |name| name.as_str());
            let row = match qp.pid {
                Some(pid) => format!("{}: {owner} (process {pid})", device.device),
                None => format!("{}: {owner}", device.device),
            };
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    Some(rows)
}

/// The next question; `None` at the end of the input.
fn next(input: &mut impl BufRead) -> io::Result<Option<Ask>> {
    let mut bytes = Vec::new();
    let most = LONGEST_QUESTION as u64 + 1;
    let length = input.by_ref().take(most).read_until(b'\n', &mut bytes)?;
    if length == 0 {
        return Ok(None);
    }
    if length > LONGEST_QUESTION {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a question of more than {LONGEST_QUESTION} bytes"),
        ));
    }
    Ask::read(&bytes)
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

fn say(output: &mut impl Write, answer: &Answer) -> io::Result<()> {
    output.write_all(line(answer).as_bytes())?;
    output.flush()
}

fn error(why: impl Into<String>) -> Answer {
    Answer::Error { why: why.into() }
}

#[cfg(feature = "rdma")]
mod opened {
    use std::io::{self, BufRead, Write};
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::super::exchange::Side;
    use super::super::protocol::{Answer, Ask, End};
    use super::{error, next, roce_v2_gids, say};
    use crate::names::{Gid, RdmaName};
    use crate::verbs::{Path, Verbs};

    /// The port of every function of these cards.
    const PORT: u8 = 1;
    /// A diagonal is two hops; the rest is for those who look at packets (RFC 1700's default).
    const HOP_LIMIT: u8 = 64;
    /// How much of a write travels with its request: perftest's default for latency on mlx5.
    const IN_ITSELF: u32 = 220;
    /// One write at a time is under way.
    const DEPTH: u16 = 4;

    /// Serves a queue pair until it is closed: the answer to that. `None` when the input ended. What cannot
    /// be opened is an answer, too.
    pub(super) fn serve(
        wanted: (&RdmaName, Ipv4Addr, u32, bool),
        input: &mut impl BufRead,
        output: &mut impl Write,
        called: &dyn Fn() -> bool,
    ) -> io::Result<Option<Answer>> {
        match with_device(wanted, input, output, called) {
            Ok(result) => result,
            Err(why) => Ok(Some(error(why))),
        }
    }

    fn with_device(
        (name, address, size, first): (&RdmaName, Ipv4Addr, u32, bool),
        input: &mut impl BufRead,
        output: &mut impl Write,
        called: &dyn Fn() -> bool,
    ) -> Result<io::Result<Option<Answer>>, String> {
        let text = |error: crate::verbs::Error| error.to_string();
        let (gid_index, gid) = gid(name, address)?;
        let verbs = Verbs::load().map_err(text)?;
        let device = verbs.open(name).map_err(text)?;
        let mtu = device
            .port(PORT)
            .map_err(text)?
            .active_mtu
            .ok_or_else(|| format!("{name}: the active MTU is one that is not known here"))?;
        let domain = device.domain().map_err(text)?;
        let queue = device.queue(DEPTH).map_err(text)?;
        let size = size as usize;
        let memory = domain.memory(2 * size).map_err(text)?;
        let fresh = domain.queue_pair(&queue, DEPTH, IN_ITSELF).map_err(text)?;
        // Any will do: what a stranger cannot guess matters less than what is seen in a capture.
        let packet_number = std::process::id() & 0xff_ffff;
        let end = End {
            gid,
            qp_number: fresh.number(),
            packet_number,
            address: memory.address(0),
            rkey: memory.rkey(),
            mtu,
        };
        if let Err(error) = say(output, &Answer::Open { end, gid_index }) {
            return Ok(Err(error));
        }
        let (peer, flow_label, mtu) = match next(input) {
            Ok(Some(Ask::Connect {
                peer,
                flow_label,
                mtu,
            })) => (peer, flow_label, mtu),
            Ok(Some(Ask::Close)) => return Ok(Ok(Some(Answer::Done))),
            Ok(Some(_)) => return Err("its peer was to be named".into()),
            Ok(None) => return Ok(Ok(None)),
            Err(error) => return Ok(Err(error)),
        };
        let path = Path {
            gid: peer.gid,
            qp_number: peer.qp_number,
            packet_number: peer.packet_number,
            mtu,
            flow_label,
            gid_index,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            port: PORT,
        };
        let pair = fresh.connect(&path, packet_number).map_err(text)?;
        let label = pair.flow_label().map_err(text)?;
        if label != flow_label {
            return Err(format!(
                "{name}: the driver has flow label {label}, {flow_label} was asked for: packets would leave from another UDP source port"
            ));
        }
        let side = Side {
            pair: &pair,
            queue: &queue,
            memory: &memory,
            size,
            to: peer.address,
            rkey: peer.rkey,
            first,
            called,
        };
        Ok(connected(&side, input, output))
    }

    fn connected(
        side: &Side<'_>,
        input: &mut impl BufRead,
        output: &mut impl Write,
    ) -> io::Result<Option<Answer>> {
        let mut seed = None;
        say(output, &Answer::Done)?;
        while let Some(ask) = next(input)? {
            let answer = match (ask, seed) {
                (Ask::Close, _) => return Ok(Some(Answer::Done)),
                (Ask::Arm { seed: new }, _) => {
                    side.arm(new);
                    seed = Some(new);
                    Answer::Done
                }
                (Ask::Run { messages, limit_ms }, Some(armed)) => {
                    seed = None;
                    let limit = Duration::from_millis(limit_ms.into());
                    let times = side
                        .run(messages, limit)
                        .and_then(|times| side.check(armed, messages).map(|()| times));
                    match times {
                        Ok(times) => Answer::Run {
                            times,
                            cpu: rustix::thread::sched_getcpu() as u32,
                        },
                        Err(lost) => error(lost.to_string()),
                    }
                }
                (Ask::Run { .. }, None) => error("the memory is to be made ready first"),
                _ => error("something is open"),
            };
            say(output, &answer)?;
        }
        Ok(None)
    }

    /// The GID of a device that is this address in RoCE v2, with its index. Wherever it is: the index differs
    /// between machines.
    fn gid(device: &RdmaName, address: Ipv4Addr) -> Result<(u8, Gid), String> {
        let wanted = Gid::ipv4_mapped(address);
        let all = roce_v2_gids(device)?;
        all.into_iter()
            .find(|(_, gid)| *gid == wanted)
            .ok_or_else(|| format!("{device} has no RoCE v2 GID {wanted}"))
    }
}

/// The RoCE v2 GIDs of a device, with their indices.
fn roce_v2_gids(device: &RdmaName) -> Result<Vec<(u8, Gid)>, String> {
    let file = |parts: &[&str]| {
        let parts = [&[device.as_str(), "ports", "1"], parts].concat();
        sysfs::below("/sys/class/infiniband", &parts)
    };
    let slots: Vec<u8> = sysfs::names(file(&["gids"])).map_err(|error| {
        if sysfs::below("/sys/class/infiniband", &[device.as_str()]).exists() {
            error.to_string()
        } else {
            format!("{device}: no such RDMA device here, one that rdma link shows wanted")
        }
    })?;
    let gid = |slot: u8| {
        let number = slot.to_string();
        let gid: Gid = sysfs::value(file(&["gids", &number])).ok()?;
        let kind = sysfs::text(file(&["gid_attrs", "types", &number])).ok()?;
        (kind.as_str() == ROCE_V2).then_some((slot, gid))
    };
    Ok(slots.into_iter().filter_map(gid).collect())
}

/// The one address of a device's port that a RoCE v2 GID maps.
///
/// # Errors
/// It has none or several.
pub fn own_address(device: &RdmaName) -> Result<Ipv4Addr, String> {
    let mut all: Vec<Ipv4Addr> = roce_v2_gids(device)?
        .iter()
        .filter_map(|(_, gid)| gid.ipv4())
        .collect();
    all.sort();
    all.dedup();
    match all.as_slice() {
        [one] => Ok(*one),
        [] => Err(format!("{device} has no RoCE v2 GID of an IPv4 address")),
        several => {
            let names: Vec<String> = several.iter().map(Ipv4Addr::to_string).collect();
            Err(format!(
                "{device} has the addresses {}: --address says which",
                names.join(", ")
            ))
        }
    }
}

/// The RDMA device whose address this is, where it is one's: then it is none of the management network.
pub fn device_of(address: Ipv4Addr) -> Option<RdmaName> {
    let devices: Vec<RdmaName> = sysfs::names("/sys/class/infiniband").ok()?;
    devices.into_iter().find(|device| {
        let gids = roce_v2_gids(device).unwrap_or_default();
        gids.iter().any(|(_, gid)| gid.ipv4() == Some(address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is answered to these lines, and how it ended.
    fn answered(lines: &str) -> (Vec<Answer>, io::Result<()>) {
        let mut output = Vec::new();
        let ended = serve(&mut lines.as_bytes(), &mut output, &|| false, None);
        let answers = output
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| Answer::read(line).unwrap())
            .collect();
        (answers, ended)
    }

    #[test]
    fn it_speaks_one_version_and_ends_with_its_input() {
        let hello = |protocol: &str| {
            line(&Ask::Hello {
                protocol: protocol.into(),
            })
        };
        let (answers, ended) = answered(&(hello(PROTOCOL) + &hello("hairpin-mesh.probe/v0")));
        ended.unwrap();
        assert!(matches!(&answers[0], Answer::Hello { protocol } if protocol == PROTOCOL));
        assert!(
            matches!(&answers[1], Answer::Error { why } if why.contains("deploy")),
            "{answers:?}"
        );
    }

    #[test]
    fn what_is_out_of_turn_or_cannot_be_opened_is_answered_with_the_reason() {
        let open = line(&Ask::Open {
            device: "no-such-device".parse().unwrap(),
            address: std::net::Ipv4Addr::LOCALHOST,
            size: 8,
            first: true,
        });
        let run = line(&Ask::Run {
            messages: 1,
            limit_ms: 1,
        });
        let (answers, ended) = answered(&(open + &run));
        ended.unwrap();
        assert_eq!(answers.len(), 2);
        for answer in &answers {
            assert!(matches!(answer, Answer::Error { .. }), "{answers:?}");
        }
    }

    #[test]
    fn a_line_that_is_no_question_or_too_long_ends_it() {
        for lines in ["what\n", "{\"ask\": \"open\"}\n"] {
            let (answers, ended) = answered(lines);
            assert!(answers.is_empty() && ended.is_err());
        }
        let (_, ended) = answered(&" ".repeat(LONGEST_QUESTION + 1));
        assert!(ended.unwrap_err().to_string().contains("more than"));
    }
}
