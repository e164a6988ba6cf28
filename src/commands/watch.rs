//! `doctor --watch`: the counters of live hosts, each second, while a load runs.
//!
//! Another host is watched by the program that is installed there: `doctor --watch SECONDS --json`, one line
//! a second, over one SSH connection.

use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Exit, Trouble};
use crate::cli::DoctorArgs;
use crate::collect::Options;
use crate::collect::traffic::Traffic;
use crate::doctor::watch::{HostRate, Look, Rate, SCHEMA, Watched, metrics};
use crate::files;
use crate::finding::Finding;
use crate::json::{At, parse};
use crate::names::HostName;
use crate::output;
use crate::remote;

/// Longest line that a host tells.
const LONGEST_LINE: u64 = 256 * 1024;
/// How long the next line of a host may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A line: one second.
#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    /// Seconds since the watch began, the first line 0.
    second: u32,
    /// What the counters stand at.
    looks: &'a [Look],
    /// What was in this second; empty in the first line.
    rates: &'a [HostRate],
    /// Hosts that no longer tell, and why.
    failed: &'a [Failed],
    /// In the last line: what is to be said of the whole watch.
    #[serde(skip_serializing_if = "Option::is_none")]
    findings: Option<&'a [Finding]>,
}

#[derive(Serialize, Clone)]
struct Failed {
    host: HostName,
    why: String,
}

/// Where a host's looks come from.
enum Source {
    Here {
        traffic: Traffic,
        began: Instant,
    },
    There {
        host: HostName,
        child: Child,
        lines: Receiver<Result<Look, String>>,
    },
}

impl Source {
    fn there(host: &HostName, seconds: u32) -> Result<Source, String> {
        let seconds = seconds.to_string();
        let mut child = remote::ssh(host, &["doctor", "--watch", &seconds, "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("ssh cannot be started: {e}"))?;
        let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err("a pipe is missing".into());
        };
        let (tell, lines) = channel();
        let name = host.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            loop {
                let mut line = Vec::new();
                match reader
                    .by_ref()
                    .take(LONGEST_LINE)
                    .read_until(b'\n', &mut line)
                {
                    Ok(0) => break,
                    Ok(_) => {
                        if tell.send(read(&name, &line)).is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error.to_string()));
                        return;
                    }
                }
            }
            let mut said = Vec::new();
            let _ = stderr.by_ref().take(LONGEST_LINE).read_to_end(&mut said);
            let _ = tell.send(Err(format!("it ended: {}", remote::last_words(&said))));
        });
        Ok(Source::There {
            host: host.clone(),
            child,
            lines,
        })
    }

    /// The next look, of this second.
    fn look(&self) -> Result<Look, String> {
        match self {
            Source::Here { traffic, began } => {
                let passed = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                Ok(traffic.look(passed))
            }
            Source::There { lines, .. } => match lines.recv_timeout(PATIENCE) {
                Ok(look) => look,
                Err(RecvTimeoutError::Timeout) => {
                    Err(format!("no line within {} s", PATIENCE.as_secs()))
                }
                Err(RecvTimeoutError::Disconnected) => Err("it ended".into()),
            },
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Source::There { child, .. } = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The look of a line that a host told.
fn read(host: &HostName, line: &[u8]) -> Result<Look, String> {
    let read = || {
        let value = parse("its line", line)?;
        let root = At::root("its line", &value);
        root.need("schema")?.exactly(SCHEMA)?;
        let looks = root.need("looks")?;
        let first = looks.items(1)?.next();
        let look = first.ok_or_else(|| looks.error("is empty, one host wanted"))?;
        Look::read(host, &look)
    };
    read().map_err(|e| e.to_string())
}

pub(super) fn run(args: &DoctorArgs, seconds: u32, hosts: &[HostName]) -> Result<Exit, Trouble> {
    let mut failed: Vec<Failed> = Vec::new();
    let mut sources: Vec<Source> = Vec::new();
    if hosts.is_empty() {
        let options = Options {
            devices: args.devices.clone(),
            ..Options::default()
        };
        let traffic = Traffic::open(&options).map_err(|e| Trouble::Usage(e.to_string()))?;
        if traffic.is_empty() {
            return Err(Trouble::Usage(
                "this host has no fabric function whose counters can be read".into(),
            ));
        }
        sources.push(Source::Here {
            traffic,
            began: Instant::now(),
        });
    }
    for host in hosts {
        match Source::there(host, seconds) {
            Ok(source) => sources.push(source),
            Err(why) => failed.push(Failed {
                host: host.clone(),
                why,
            }),
        }
    }
    let mut watched: Vec<Option<Watched>> = sources.iter().map(|_| None).collect();
    let began = Instant::now();
    let live = !args.json && std::io::stdout().is_terminal();
    let mut drawn = 0;
    for second in 0..=seconds {
        // Others keep the time for their own lines.
        if hosts.is_empty() {
            let until = began + Duration::from_secs(second.into());
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        let mut rates = Vec::new();
        for (source, watched) in sources.iter().zip(&mut watched) {
            let gone = |host: &HostName| failed.iter().any(|failed| failed.host == *host);
            if matches!(source, Source::There { host, .. } if gone(host)) {
                continue;
            }
            match (source.look(), watched.as_mut()) {
                (Ok(look), Some(watched)) => rates.push(watched.next(look)),
                (Ok(look), None) => *watched = Some(Watched::new(look)),
                (Err(why), _) => {
                    if let Source::There { host, .. } = source {
                        failed.push(Failed {
                            host: host.clone(),
                            why,
                        });
                    }
                }
            }
        }
        let looks: Vec<Look> = watched
            .iter()
            .flatten()
            .map(|watched| watched.last().clone())
            .collect();
        if let Some(path) = &args.metrics {
            files::replace_file(path, metrics(looks.iter()).as_bytes())?;
        }
        let findings: Vec<Finding> = watched
            .iter()
            .flatten()
            .flat_map(Watched::findings)
            .collect();
        if args.json {
            let line = Line {
                schema: SCHEMA,
                second,
                looks: &looks,
                rates: &rates,
                failed: &failed,
                findings: (second == seconds).then_some(&findings),
            };
            let text = serde_json::to_string(&line).map_err(std::io::Error::other)?;
            output::result(&format!("{text}\n"))?;
        } else if live && second > 0 {
            let table = table(&rates);
            let up = if drawn > 0 {
                format!("\u{1b}[{drawn}A\u{1b}[J")
            } else {
                String::new()
            };
            drawn = table.lines().count();
            output::result(&format!("{up}{table}"))?;
        }
        if !sources.is_empty() && failed.len() == hosts.len() && !hosts.is_empty() {
            break;
        }
    }
    let findings: Vec<Finding> = watched
        .iter()
        .flatten()
        .flat_map(Watched::findings)
        .collect();
    if !args.json {
        let whole: Vec<HostRate> = watched.iter().flatten().map(Watched::whole).collect();
        let mut text = format!("over {seconds} s, each second:\n{}", table(&whole));
        for finding in &findings {
            text += &format!(
                "{}{finding} [{}]\n",
                output::standing(super::doctor::word(finding.severity)),
                finding.code
            );
        }
        output::result(&text)?;
    }
    for failed in &failed {
        output::failure(&format!("{}: {}", failed.host, failed.why));
    }
    Ok(if !failed.is_empty() {
        Exit::Trouble
    } else if findings.is_empty() {
        Exit::Yes
    } else {
        Exit::No
    })
}

/// Bytes in a unit that a person reads.
fn size(bytes: Option<u64>) -> String {
    match bytes {
        None => "not observed".into(),
        Some(bytes) if bytes < 10_000 => format!("{bytes} B/s"),
        Some(bytes) if bytes < 10_000_000 => format!("{} kB/s", bytes / 1000),
        Some(bytes) => format!("{} MB/s", bytes / 1_000_000),
    }
}

fn table(rates: &[HostRate]) -> String {
    let mut text = String::new();
    for host in rates {
        for Rate {
            device,
            sent_bytes_per_second: sent,
            received_bytes_per_second: received,
            losses_per_second: losses,
            same_counters_as: same,
        } in &host.functions
        {
            let mut remarks: Vec<String> = losses
                .iter()
                .map(|(name, rate)| format!("{name} {rate}/s"))
                .collect();
            remarks.extend(
                same.iter()
                    .map(|other| format!("the same counters as {other}, added once")),
            );
            text += &format!(
                "{:<12} {:<16} sent {:>12}  received {:>12}  {}\n",
                host.host.as_str(),
                device.as_str(),
                size(*sent),
                size(*received),
                remarks.join(", ")
            );
        }
        text += &format!(
            "{:<12} {:<16} sent {:>12}  received {:>12}\n",
            host.host.as_str(),
            "all",
            size(host.sent_bytes_per_second),
            size(host.received_bytes_per_second)
        );
    }
    text
}
