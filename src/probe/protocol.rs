//! What is asked of an agent, and what it answers: a JSON object a line, one answer to each question, in turn.
//!
//! Both ends belong to one installation, so a version that differs is an error, not something to be translated.
//! Neither end trusts the other: every line is bounded and every value checked.

use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::Serialize;

use crate::json::{At, DocumentError, Value, parse};
use crate::names::{Gid, NameError, NetdevName, RdmaName};
use crate::verbs::LARGEST_MESSAGE;

/// Name and version.
pub const PROTOCOL: &str = "hairpin-mesh.probe/v2";
/// The longest question, bytes.
pub const LONGEST_QUESTION: usize = 64 * 1024;
/// The longest answer, bytes: [`MOST_MESSAGES`] times of ten digits.
pub const LONGEST_ANSWER: usize = 4 << 20;
/// The most messages of one run.
pub const MOST_MESSAGES: u64 = 100_000;
/// The longest that a run may take, milliseconds.
pub const LONGEST_RUN_MS: u32 = 120_000;
/// The most rules and devices whose counters are asked for at once.
const MOST_COUNTED: usize = 64;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    /// Which protocol is spoken.
    Hello {
        /// [`PROTOCOL`]
        protocol: String,
    },
    /// Counters as they are now.
    Count {
        /// Rules at ingress: port and preference.
        rules: Vec<(NetdevName, u16)>,
        /// RDMA devices.
        devices: Vec<RdmaName>,
        /// Ports.
        ports: Vec<NetdevName>,
    },
    /// What a machine and a device of it are.
    Environment {
        /// The RDMA device.
        device: RdmaName,
    },
    /// Which device and address are to be used; of an end that was started by hand.
    Offered,
    /// Whose queue pairs are open.
    Others {
        /// On which RDMA devices.
        devices: Vec<RdmaName>,
    },
    /// A queue pair, and memory for messages of a size.
    Open {
        /// The RDMA device.
        device: RdmaName,
        /// The address of its port: the GID that is its IPv4-mapped form is used.
        address: Ipv4Addr,
        /// Bytes of a message.
        size: u32,
        /// Whether this side writes first.
        first: bool,
    },
    /// The queue pair to its peer.
    Connect {
        /// The peer.
        peer: End,
        /// The flow label of this side's packets.
        flow_label: u32,
        /// Bytes of a packet.
        mtu: u32,
    },
    /// Both halves of the memory made ready.
    Arm {
        /// Which bytes are sent.
        seed: u8,
    },
    /// Messages exchanged, and the last one checked.
    Run {
        /// How many each way.
        messages: u64,
        /// In how many milliseconds at most.
        limit_ms: u32,
    },
    /// The queue pair is closed.
    Close,
}

/// One end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct End {
    /// Its GID.
    pub gid: Gid,
    /// Its queue pair.
    pub qp_number: u32,
    /// The number of its first packet.
    pub packet_number: u32,
    /// Where messages to it go.
    pub address: u64,
    /// What its memory is named by.
    pub rkey: u32,
    /// The active MTU of its port, bytes.
    pub mtu: u32,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// To `Hello`.
    Hello {
        /// [`PROTOCOL`]
        protocol: String,
    },
    /// To `Count`.
    Count(Counts),
    /// To `Environment`.
    Environment(Environment),
    /// To `Offered`.
    Offered {
        /// The RDMA device.
        device: RdmaName,
        /// The address of its port.
        address: Ipv4Addr,
    },
    /// To `Others`.
    Others {
        /// In words; `None` when that cannot be seen.
        rows: Option<Vec<String>>,
    },
    /// To `Open`.
    Open {
        /// This end.
        end: End,
        /// The index of its GID.
        gid_index: u8,
    },
    /// To `Connect`, `Arm` and `Close`.
    Done,
    /// To `Run`.
    Run {
        /// From each post of this side to its next, nanoseconds.
        times: Vec<u64>,
        /// The processor that it ended on.
        cpu: u32,
    },
    /// It cannot be done.
    Error {
        /// Why.
        why: String,
    },
}

/// Counters of a node; `None` where there is none that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Packets that the kernel forwarded (`Ip: ForwDatagrams`).
    pub forwarded: Option<u64>,
    /// Packets that each rule that was asked about has taken in hardware, in the order asked.
    pub rules: Vec<Option<u64>>,
    /// Error counters of the devices: device, counter, value.
    pub errors: Vec<(RdmaName, String, u64)>,
    /// Counters of packets that a port lost: port, counter, value.
    pub drops: Vec<(NetdevName, String, u64)>,
}

/// What a figure depends on beside the path; `None` where it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Environment {
    /// This program there.
    pub program: Option<String>,
    /// Its kernel.
    pub kernel: Option<String>,
    /// Its architecture.
    pub architecture: Option<String>,
    /// What chooses the clock of its processors (cpufreq).
    pub governor: Option<String>,
    /// Firmware of the device.
    pub firmware: Option<String>,
    /// Speed of the device's link, as its driver tells it.
    pub link: Option<String>,
}

impl Environment {
    /// Its values with their names.
    fn fields(&mut self) -> [(&'static str, &mut Option<String>); 6] {
        [
            ("program", &mut self.program),
            ("kernel", &mut self.kernel),
            ("architecture", &mut self.architecture),
            ("governor", &mut self.governor),
            ("firmware", &mut self.firmware),
            ("link", &mut self.link),
        ]
    }
}

const U32: i128 = u32::MAX as i128;
const U64: i128 = u64::MAX as i128;
/// Numbers of queue pairs and packets have 24 bits (IBTA 9.2).
const U24: i128 = (1 << 24) - 1;

impl Ask {
    /// Reads a question.
    pub fn read(line: &[u8]) -> Result<Ask, DocumentError> {
        let value = parse("question", line)?;
        let root = At::root("question", &value);
        let ask = root.need("ask")?;
        Ok(match ask.text()? {
            "hello" => Ask::Hello {
                protocol: root.need("protocol")?.text()?.to_owned(),
            },
            "count" => Ask::Count {
                rules: root
                    .need("rules")?
                    .items(MOST_COUNTED)?
                    .map(|rule| {
                        let pair: Vec<At> = rule.items(2)?.collect();
                        match pair.as_slice() {
                            [port, pref] => Ok((port.name()?, pref.integer(1, 0xffff)?)),
                            _ => Err(rule.error("is not a port and a preference")),
                        }
                    })
                    .collect::<Result<_, _>>()?,
                devices: names(&root, "devices")?,
                ports: names(&root, "ports")?,
            },
            "environment" => Ask::Environment {
                device: root.need("device")?.name()?,
            },
            "offered" => Ask::Offered,
            "others" => Ask::Others {
                devices: names(&root, "devices")?,
            },
            "open" => Ask::Open {
                device: root.need("device")?.name()?,
                address: address(&root.need("address")?)?,
                size: root.need("size")?.integer(1, LARGEST_MESSAGE.into())?,
                first: root.need("first")?.bool()?,
            },
            "connect" => Ask::Connect {
                peer: End::read(&root.need("peer")?)?,
                // 20 bits (IBTA 8.3.3).
                flow_label: root.need("flow_label")?.integer(0, (1 << 20) - 1)?,
                mtu: root.need("mtu")?.integer(256, 4096)?,
            },
            "arm" => Ask::Arm {
                seed: root.need("seed")?.integer(0, 255)?,
            },
            "run" => Ask::Run {
                messages: root.need("messages")?.integer(1, MOST_MESSAGES.into())?,
                limit_ms: root.need("limit_ms")?.integer(1, LONGEST_RUN_MS.into())?,
            },
            "close" => Ask::Close,
            _ => return Err(ask.error("is no question that is known here")),
        })
    }
}

impl End {
    fn read(at: &At) -> Result<End, DocumentError> {
        Ok(End {
            gid: at.need("gid")?.name()?,
            qp_number: at.need("qp_number")?.integer(0, U24)?,
            packet_number: at.need("packet_number")?.integer(0, U24)?,
            address: at.need("address")?.integer(0, U64)?,
            rkey: at.need("rkey")?.integer(0, U32)?,
            mtu: at.need("mtu")?.integer(256, 4096)?,
        })
    }
}

fn names<T: FromStr<Err = NameError>>(root: &At, key: &str) -> Result<Vec<T>, DocumentError> {
    let names = root.need(key)?;
    names.items(MOST_COUNTED)?.map(|name| name.name()).collect()
}

/// Counters: whose, which, and its value.
fn counters<T: FromStr<Err = NameError>>(
    root: &At,
    key: &str,
) -> Result<Vec<(T, String, u64)>, DocumentError> {
    root.need(key)?
        .items(MOST_COUNTED * 8)?
        .map(|row| {
            let parts: Vec<At> = row.items(3)?.collect();
            match parts.as_slice() {
                [of, name, value] => {
                    Ok((of.name()?, printable(name.text()?), value.integer(0, U64)?))
                }
                _ => Err(row.error("is not whose, which counter and its value")),
            }
        })
        .collect()
}

fn address(at: &At) -> Result<Ipv4Addr, DocumentError> {
    at.text()?
        .parse()
        .map_err(|_| at.error("is not an IPv4 address"))
}

impl Answer {
    /// Reads an answer.
    pub fn read(line: &[u8]) -> Result<Answer, DocumentError> {
        let value = parse("answer", line)?;
        let root = At::root("answer", &value);
        let answer = root.need("answer")?;
        let optional = |at: &At| match at.value() {
            Value::Null => Ok(None),
            _ => at.integer::<u64>(0, U64).map(Some),
        };
        Ok(match answer.text()? {
            "hello" => Answer::Hello {
                protocol: root.need("protocol")?.text()?.to_owned(),
            },
            "count" => Answer::Count(Counts {
                forwarded: optional(&root.need("forwarded")?)?,
                rules: root
                    .need("rules")?
                    .items(MOST_COUNTED)?
                    .map(|count| optional(&count))
                    .collect::<Result<_, _>>()?,
                errors: counters(&root, "errors")?,
                drops: counters(&root, "drops")?,
            }),
            "environment" => {
                let mut environment = Environment::default();
                for (name, value) in environment.fields() {
                    let at = root.need(name)?;
                    if !at.is_null() {
                        *value = Some(printable(at.text()?));
                    }
                }
                Answer::Environment(environment)
            }
            "offered" => Answer::Offered {
                device: root.need("device")?.name()?,
                address: address(&root.need("address")?)?,
            },
            "others" => {
                let rows = root.need("rows")?;
                Answer::Others {
                    rows: match rows.value() {
                        Value::Null => None,
                        _ => Some(
                            rows.items(MOST_COUNTED * 8)?
                                .map(|row| Ok(printable(row.text()?)))
                                .collect::<Result<_, DocumentError>>()?,
                        ),
                    },
                }
            }
            "open" => Answer::Open {
                end: End::read(&root.need("end")?)?,
                gid_index: root.need("gid_index")?.integer(0, 255)?,
            },
            "done" => Answer::Done,
            "run" => Answer::Run {
                times: root
                    .need("times")?
                    .items(MOST_MESSAGES as usize)?
                    .map(|time| time.integer(0, U64))
                    .collect::<Result<_, _>>()?,
                cpu: root.need("cpu")?.integer(0, U32)?,
            },
            "error" => Answer::Error {
                why: printable(root.need("why")?.text()?),
            },
            _ => return Err(answer.error("is no answer that is known here")),
        })
    }
}

/// Text of the other end that may be shown on a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(500).collect()
}

/// A line, with its end.
pub fn line(message: &impl Serialize) -> String {
    // Nothing in these messages fails to be written: no map with keys that are not text, no reader.
    serde_json::to_string(message).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end() -> End {
        End {
            gid: "::ffff:10.10.0.10".parse().unwrap(),
            qp_number: 0xff_ffff,
            packet_number: 1,
            address: u64::MAX,
            rkey: u32::MAX,
            mtu: 4096,
        }
    }

    fn questions() -> Vec<Ask> {
        vec![
            Ask::Hello {
                protocol: PROTOCOL.into(),
            },
            Ask::Count {
                rules: vec![("enp1s0f0np0".parse().unwrap(), 49152)],
                devices: vec!["rocep1s0f0".parse().unwrap()],
                ports: vec!["enp1s0f0np0".parse().unwrap()],
            },
            Ask::Environment {
                device: "rocep1s0f0".parse().unwrap(),
            },
            Ask::Offered,
            Ask::Others {
                devices: vec!["rocep1s0f0".parse().unwrap()],
            },
            Ask::Open {
                device: "rocep1s0f0".parse().unwrap(),
                address: Ipv4Addr::new(10, 10, 0, 10),
                size: 61440,
                first: true,
            },
            Ask::Connect {
                peer: end(),
                flow_label: 16383,
                mtu: 1024,
            },
            Ask::Arm { seed: 255 },
            Ask::Run {
                messages: 1000,
                limit_ms: 10_000,
            },
            Ask::Close,
        ]
    }

    fn answers() -> Vec<Answer> {
        vec![
            Answer::Hello {
                protocol: PROTOCOL.into(),
            },
            Answer::Count(Counts {
                forwarded: Some(7),
                rules: vec![Some(1), None],
                errors: vec![("rocep1s0f0".parse().unwrap(), "out_of_sequence".into(), 3)],
                drops: vec![("enp1s0f0np0".parse().unwrap(), "rx_out_of_buffer".into(), 4)],
            }),
            Answer::Environment(Environment {
                kernel: Some("6.17.0".into()),
                ..Environment::default()
            }),
            Answer::Offered {
                device: "rocep1s0f0".parse().unwrap(),
                address: Ipv4Addr::new(10, 10, 0, 10),
            },
            Answer::Others {
                rows: Some(vec!["rocep1s0f0: 2 of engine (process 7)".into()]),
            },
            Answer::Others { rows: None },
            Answer::Open {
                end: end(),
                gid_index: 3,
            },
            Answer::Done,
            Answer::Run {
                times: vec![1, u64::MAX],
                cpu: 19,
            },
            Answer::Error {
                why: "no such device".into(),
            },
        ]
    }

    #[test]
    fn every_message_reads_as_it_was_written() {
        for ask in questions() {
            assert_eq!(Ask::read(line(&ask).as_bytes()).unwrap(), ask);
        }
        for answer in answers() {
            assert_eq!(Answer::read(line(&answer).as_bytes()).unwrap(), answer);
        }
    }

    #[test]
    fn values_out_of_their_range_are_refused_with_their_place() {
        for (line, words) in [
            (r#"{"ask":"run","messages":0,"limit_ms":1}"#, "messages"),
            (
                r#"{"ask":"run","messages":100001,"limit_ms":1}"#,
                "messages",
            ),
            (
                r#"{"ask":"run","messages":1,"limit_ms":120001}"#,
                "limit_ms",
            ),
            (
                r#"{"ask":"open","device":"../x","address":"10.0.0.1","size":2,"first":true}"#,
                "device",
            ),
            (
                r#"{"ask":"open","device":"x","address":"10.0.0.1","size":8388609,"first":true}"#,
                "size",
            ),
            (
                r#"{"ask":"open","device":"x","address":"10.0.0","size":1,"first":true}"#,
                "address",
            ),
            (r#"{"ask":"boot"}"#, "ask"),
            ("[]", "question"),
        ] {
            let error = Ask::read(line.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    proptest! {
        #[test]
        fn damaged_lines_are_errors_or_messages_and_never_a_panic(
            which in 0usize..64, at in 0usize..300, byte in any::<u8>(), cut in 0usize..300,
        ) {
            let mut lines: Vec<String> = questions().iter().map(line).collect();
            lines.extend(answers().iter().map(line));
            let mut bytes = lines[which % lines.len()].clone().into_bytes();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.truncate(cut.max(1));
            let _ = (Ask::read(&bytes), Answer::read(&bytes));
        }
    }
}
