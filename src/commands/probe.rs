//! `probe`: the paths of a plan measured and judged; a sweep; two ends by hand; and its end on a node.

use std::io::IsTerminal;
use std::net::{IpAddr, TcpListener};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::{Exit, Trouble};
use crate::cli::{ProbeArgs, ProbeClientArgs, ProbeEnd, ProbeServerArgs};
use crate::files;
use crate::names::RdmaName;
use crate::node::identity::read_plan;
use crate::output;
use crate::plan::{PathKind, PathRow, Plan};
use crate::probe::agent as end;
use crate::probe::agents::Agents;
use crate::probe::by_hand::{self, Client};
use crate::probe::picture::picture;
use crate::probe::run::{
    DeviceEnvironment, Direct, Options, PathReport, SizeReport, environment, others, reach,
    run as measure,
};
use crate::probe::statistics::{self, Histogram};
use crate::probe::sweep::{self, SweepReport};
use crate::probe::verdict::Verdict;

const REPORT: &str = "hairpin-mesh.probe-report/v1";

/// Sizes that nobody's traffic notices, bytes.
const SMALL: [u32; 2] = [2, 4096];
/// The size of which the method's users published latencies, bytes.
const PUBLISHED: u32 = 61_440;

#[derive(Default, Serialize)]
struct Report<'a> {
    schema: &'static str,
    plan_sha256: Option<String>,
    /// Whether every path was carried by NICs alone.
    proven: bool,
    /// Messages each way that counted, and before them.
    iterations: u64,
    warm_up: u64,
    /// Whose queue pairs were open on the devices meanwhile.
    others: Vec<String>,
    /// Hosts on which that is not observed.
    others_not_observed: Vec<String>,
    /// What figures depend on beside the path, for each device.
    environment: Vec<DeviceEnvironment>,
    paths: &'a [PathReport],
    /// Of a sweep, in place of the paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep: Option<Sweep<'a>>,
    trouble: Vec<String>,
}

#[derive(Serialize)]
struct Sweep<'a> {
    /// The largest size of which no diagonal lost anything, bytes.
    size_cap_bytes: Option<u32>,
    /// The plan's, which follows from the smallest hairpin queue.
    planned_size_cap_bytes: u32,
    /// The engine's environment with the measured cap.
    env: Option<String>,
    diagonals: &'a [SweepReport],
}

pub(super) fn run(args: ProbeArgs) -> Result<Exit, Trouble> {
    match &args.end {
        None => {}
        Some(ProbeEnd::Server(args)) => return server(args),
        Some(ProbeEnd::Client(args)) => return client(args),
    }
    let mut report = Report {
        schema: REPORT,
        iterations: args.iterations,
        warm_up: args.messages_before(),
        ..Report::default()
    };
    let result = run_with(&args, &mut report);
    if let (Err(trouble), true) = (&result, args.json) {
        report.trouble = trouble.lines();
        output::result(&crate::json::pretty(&report))?;
    }
    result
}

fn run_with(args: &ProbeArgs, report: &mut Report) -> Result<Exit, Trouble> {
    let document = read_plan(&args.plan)?;
    let plan = &document.plan;
    let mut paths = selected(plan, args)?;
    if args.sweep {
        paths.retain(|path| path.kind == PathKind::Diagonal);
        if paths.is_empty() {
            return Err(Trouble::Usage(
                "--sweep: none of these paths is a diagonal".into(),
            ));
        }
    }
    let mut agents = Agents::default();
    let unreached = reach(plan, &paths, &mut agents);
    if !unreached.is_empty() {
        return Err(Trouble::Several(unreached));
    }
    for (host, rows) in others(plan, &paths, &mut agents) {
        match rows {
            Some(rows) => {
                let rows = rows.into_iter().map(|row| format!("{host} {row}"));
                report.others.extend(rows);
            }
            None => report.others_not_observed.push(host.to_string()),
        }
    }
    for host in &report.others_not_observed {
        output::warning(&format!(
            "{host}: whether queue pairs of others are open is not observed"
        ));
    }
    for row in &report.others {
        output::warning(&format!("queue pairs of others are open: {row}"));
    }
    let alone = report.others.is_empty() && report.others_not_observed.is_empty();
    if args.sweep && !alone && !args.beside_others {
        report.plan_sha256 = Some(document.sha256());
        return Err(Trouble::Usage(
            "a sweep fills the hairpin queues until packets are lost, and queue pairs of others are open or cannot be seen: nothing was sent (--beside-others goes on)".into(),
        ));
    }
    let sizes = if !args.sizes.is_empty() {
        let mut sizes = args.sizes.clone();
        if args.sweep {
            sizes.sort_unstable();
        }
        sizes
    } else if args.sweep {
        sweep::SIZES.to_vec()
    } else if alone {
        let mut sizes = vec![SMALL[0], SMALL[1], PUBLISHED, plan.size_cap_bytes];
        sizes.dedup();
        sizes
    } else {
        output::warning("no size above 4096 bytes is measured then (--size does)");
        SMALL.to_vec()
    };
    let options = Options {
        sizes,
        iterations: args.iterations,
        warm_up: args.messages_before(),
        limit: Duration::from_secs(args.limit.into()),
        raw: args.raw,
        neighbour: !args.sweep,
    };
    report.plan_sha256 = Some(document.sha256());
    report.environment = environment(plan, &paths, &mut agents);
    if args.sweep {
        let mut progress = Progress::new();
        let reports = sweep::sweep(plan, &paths, &options, &mut agents, &mut |what| {
            progress.step(what)
        });
        drop(progress);
        return swept(args, plan, report, &reports);
    }
    let mut progress = Progress::new();
    let reports = measure(plan, &paths, &options, &mut agents, &mut |what| {
        progress.step(what)
    });
    drop(progress);
    let proven = reports.iter().all(|path| path.verdict == Verdict::Hardware);
    // What was measured is told, whatever becomes of the picture.
    let mut undrawn = Vec::new();
    if let Some(file) = &args.svg {
        match picture(plan, &reports) {
            Some(svg) => {
                let drawn = files::replace_file(file, svg.as_bytes());
                undrawn.extend(drawn.err().map(|error| error.to_string()));
            }
            None => output::warning("no size was measured on every path: no picture was drawn"),
        }
    }
    if args.json {
        let report = Report {
            proven,
            paths: &reports,
            trouble: undrawn.clone(),
            ..std::mem::take(report)
        };
        output::result(&crate::json::pretty(&report))?;
    } else {
        output::result(&table(&reports))?;
    }
    for line in &undrawn {
        output::failure(line);
    }
    Ok(match proven {
        _ if !undrawn.is_empty() => Exit::Trouble,
        true => Exit::Yes,
        false => Exit::No,
    })
}

/// What comes next, on a terminal.
struct Progress(indicatif::ProgressBar);

impl Progress {
    fn new() -> Progress {
        Progress(indicatif::ProgressBar::new_spinner())
    }

    fn step(&mut self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// What a sweep has shown: yes when no diagonal lost anything up to the plan's cap.
fn swept(
    args: &ProbeArgs,
    plan: &Plan,
    report: &mut Report,
    reports: &[SweepReport],
) -> Result<Exit, Trouble> {
    let cap = sweep::cap(reports);
    let env = cap.map(|cap| {
        plan.env
            .with_size_cap(cap)
            .to_string()
            .trim_end()
            .to_owned()
    });
    let enough = cap.is_some_and(|cap| cap >= plan.size_cap_bytes);
    if args.json {
        let report = Report {
            proven: cap.is_some(),
            sweep: Some(Sweep {
                size_cap_bytes: cap,
                planned_size_cap_bytes: plan.size_cap_bytes,
                env,
                diagonals: reports,
            }),
            ..std::mem::take(report)
        };
        output::result(&crate::json::pretty(&report))?;
        return Ok(if enough { Exit::Yes } else { Exit::No });
    }
    let mut text = String::new();
    for report in reports {
        let via = report.via.as_ref().map_or("?", |via| via.as_str());
        let clean = report
            .largest_clean
            .map_or("nothing".into(), |size| format!("{size} bytes"));
        let word = match report.largest_clean {
            Some(size) if size >= plan.size_cap_bytes => "ok",
            _ => "FAIL",
        };
        text += &format!(
            "{}{} - {via} - {}: up to {clean} without a loss",
            output::standing(word),
            report.from,
            report.to
        );
        match report.first_loss {
            Some(size) => text += &format!(", not {size}:\n"),
            None => text += "\n",
        }
        let last = report.sizes.last().filter(|_| report.first_loss.is_some());
        for reason in last.into_iter().flat_map(|size| &size.judged.reasons) {
            text += &format!("    {reason}\n");
        }
    }
    match cap {
        Some(cap) => {
            text += &format!(
                "size cap: {cap} bytes were carried by every diagonal, one message at a time; {} is the plan's, by the smallest hairpin queue\n",
                plan.size_cap_bytes
            );
            text += &format!(
                "the engine's environment with {cap}: {}\n",
                env.unwrap_or_default()
            );
            if reports.iter().all(|report| report.first_loss.is_none()) {
                text += "no size lost anything: no limit was found\n";
            }
            if cap > plan.size_cap_bytes {
                text += "the plan's cap leaves room for several senders at once, which were not tried here\n";
            }
        }
        None => text += "size cap: none, as not every diagonal carried the smallest size\n",
    }
    output::result(&text)?;
    Ok(if enough { Exit::Yes } else { Exit::No })
}

/// The device and address of an end by hand.
fn offer(device: &RdmaName, address: Option<std::net::Ipv4Addr>) -> Result<end::Offer, Trouble> {
    let address = match address {
        Some(address) => address,
        None => end::own_address(device).map_err(Trouble::Usage)?,
    };
    Ok((device.clone(), address))
}

/// What `probe server --json` prints, a line each.
#[derive(Serialize)]
struct ServerLine {
    schema: &'static str,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

impl ServerLine {
    fn of(event: &'static str) -> ServerLine {
        ServerLine {
            schema: "hairpin-mesh.probe-server/v1",
            event,
            listen: None,
            token: None,
            trouble: None,
        }
    }

    fn print(&self) -> Result<(), Trouble> {
        // Text alone, which does not fail to be written.
        output::result(&(serde_json::to_string(self).unwrap_or_default() + "\n"))?;
        Ok(())
    }
}

fn server(args: &ProbeServerArgs) -> Result<Exit, Trouble> {
    let result = server_with(args);
    if let (Err(trouble), true) = (&result, args.json) {
        ServerLine {
            trouble: Some(trouble.to_string()),
            ..ServerLine::of("trouble")
        }
        .print()?;
    }
    result
}

fn server_with(args: &ProbeServerArgs) -> Result<Exit, Trouble> {
    let listen = args.listen;
    if listen.ip().is_unspecified() || listen.ip().is_multicast() {
        return Err(Trouble::Usage(format!(
            "--listen {listen}: an address of the management network wanted, not all of them"
        )));
    }
    let offer = offer(&args.device, args.address)?;
    let device = match listen.ip() {
        IpAddr::V4(address) => end::device_of(address),
        IpAddr::V6(_) => None,
    };
    if let Some(device) = device {
        return Err(Trouble::Usage(format!(
            "--listen {listen}: is an address of {device}, one of the management network wanted"
        )));
    }
    let usage = |error: std::io::Error| Trouble::Usage(format!("{listen}: {error}"));
    let listener = TcpListener::bind(listen).map_err(usage)?;
    // So that a peer that is gone again before it is taken is not waited for.
    listener.set_nonblocking(true).map_err(usage)?;
    let at = listener.local_addr().map_err(usage)?;
    let token = by_hand::token().map_err(usage)?;
    if args.json {
        ServerLine {
            listen: Some(at.to_string()),
            token: Some(token.clone()),
            ..ServerLine::of("listening")
        }
        .print()?;
    } else {
        output::result(&format!(
            "listening on {at}; on the other node, with this token on its standard input:\n  hairpin-mesh probe client {at} --device RDMA_DEVICE\ntoken: {token}\n"
        ))?;
    }
    let wait = Duration::from_secs(args.wait.into());
    let mut stray =
        |peer| output::warning(&format!("{peer}: came without the token, and was closed"));
    let came = by_hand::server(&listener, &token, &offer, wait, &mut stray).map_err(usage)?;
    if args.json {
        ServerLine::of(if came { "served" } else { "nobody-came" }).print()?;
    } else {
        let said = if came { "served" } else { "nobody came" };
        output::note(&format!("{at}: {said}"));
    }
    Ok(if came { Exit::Yes } else { Exit::NotReady })
}

/// The report of `probe client`.
#[derive(Serialize)]
struct ClientReport<'a> {
    schema: &'static str,
    /// Whether every message arrived as it was sent.
    arrived: bool,
    iterations: u64,
    warm_up: u64,
    sizes: &'a [SizeReport],
    trouble: Vec<String>,
}

fn client(args: &ProbeClientArgs) -> Result<Exit, Trouble> {
    let result = client_with(args);
    let (sizes, trouble) = match &result {
        Ok(sizes) => (sizes.as_slice(), Vec::new()),
        Err(trouble) => (&[][..], trouble.lines()),
    };
    let arrived = trouble.is_empty()
        && sizes
            .iter()
            .all(|size| size.judged.verdict != Verdict::Failed);
    if args.json {
        output::result(&crate::json::pretty(&ClientReport {
            schema: "hairpin-mesh.probe-client-report/v1",
            arrived,
            iterations: args.iterations,
            warm_up: args.warm_up,
            sizes,
            trouble,
        }))?;
    }
    let sizes = result?;
    if !args.json {
        let way = format!("{} - {}", args.device, args.server);
        output::result(&rows(sizes.iter().map(|size| (way.as_str(), size))))?;
    }
    Ok(if arrived { Exit::Yes } else { Exit::No })
}

fn client_with(args: &ProbeClientArgs) -> Result<Vec<SizeReport>, Trouble> {
    let own = offer(&args.device, args.address)?;
    if std::io::stdin().is_terminal() {
        output::note("the server's token:");
    }
    let token = by_hand::read_token(std::io::stdin().lock())
        .map_err(|why| Trouble::Usage(format!("standard input: {why}")))?;
    let mut client = Client::connect(args.server, &token, own).map_err(Trouble::Usage)?;
    let options = Options {
        sizes: args.sizes.clone(),
        iterations: args.iterations,
        warm_up: args.warm_up,
        limit: Duration::from_secs(args.limit.into()),
        raw: args.raw,
        neighbour: false,
    };
    let mut progress = Progress::new();
    Ok(crate::probe::run::by_hand(
        &mut client,
        args.flow_label,
        &options,
        &mut |what| progress.step(what),
    ))
}

/// The paths that are asked for: of all of the plan those that fit everything that was given.
fn selected<'a>(plan: &'a Plan, args: &ProbeArgs) -> Result<Vec<&'a PathRow>, Trouble> {
    for host in args.from.iter().chain(&args.to) {
        if !plan.hosts.contains(host) {
            let hosts: Vec<&str> = plan.hosts.iter().map(|host| host.as_str()).collect();
            return Err(Trouble::Usage(format!(
                "the plan has no host {host}, one of {} wanted",
                hosts.join(", ")
            )));
        }
    }
    for name in &args.paths {
        if !plan.paths.iter().any(|path| path.name == *name) {
            let names: Vec<&str> = plan.paths.iter().map(|path| path.name.as_str()).collect();
            return Err(Trouble::Usage(format!(
                "the plan has no path {name:?}, one of these wanted: {}",
                names.join(", ")
            )));
        }
    }
    let fits = |path: &&PathRow| {
        args.from.as_ref().is_none_or(|host| *host == path.from)
            && args.to.as_ref().is_none_or(|host| *host == path.to)
            && (args.paths.is_empty() || args.paths.contains(&path.name))
    };
    let paths: Vec<&PathRow> = plan.paths.iter().filter(fits).collect();
    if paths.is_empty() {
        return Err(Trouble::Usage("the plan has no such path".into()));
    }
    Ok(paths)
}

/// The paths as a table.
fn table(paths: &[PathReport]) -> String {
    let way = |path: &PathReport| match &path.via {
        Some(via) => format!(
            "{} - {via} - {}, domain {}",
            path.from, path.to, path.domain
        ),
        None => format!("{} - {}, domain {}", path.from, path.to, path.domain),
    };
    let ways: Vec<String> = paths.iter().map(way).collect();
    rows(
        paths
            .iter()
            .zip(&ways)
            .flat_map(|(path, way)| path.sizes.iter().map(|size| (way.as_str(), size))),
    )
}

/// Runs as a table, microseconds, with what is to be said of each under it.
fn rows<'a>(runs: impl Iterator<Item = (&'a str, &'a SizeReport)>) -> String {
    let mut text = String::new();
    let mut rows = vec![
        [
            "path",
            "bytes",
            "p50",
            "p99",
            "max",
            "neighbour",
            "more",
            "verdict",
        ]
        .map(str::to_owned),
    ];
    let mut remarks = vec![Vec::new()];
    for (way, size) in runs {
        rows.push(row(way, size));
        let mut under = size.judged.reasons.clone();
        if let (true, Some(spread)) = (std::io::stdout().is_terminal(), &size.histogram) {
            under.push(bars(spread));
        }
        remarks.push(under);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..8).map(width).collect();
    for (row, under) in rows.iter().zip(&remarks) {
        let cells = row.iter().zip(&widths).enumerate();
        let line: Vec<String> = cells
            .map(|(column, (cell, width))| match column {
                0 | 7 => format!("{cell:width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        text += line.join("  ").trim_end();
        text += "\n";
        for line in under {
            text += &format!("    {line}\n");
        }
    }
    text += "p50, p99 and max of half round trips, and p50 of the direct neighbour measured right before and after, in microseconds\n";
    text
}

/// A histogram as a line, the highest bar for the fullest step.
fn bars(spread: &Histogram) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = spread.counts.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: &usize| BARS[(count * (BARS.len() - 1)).div_ceil(most)];
    let bars: String = spread.counts.iter().map(bar).collect();
    format!(
        "{:.2} {bars} {:.2}, {} beyond",
        spread.from, spread.to, spread.beyond
    )
}

fn row(way: &str, size: &SizeReport) -> [String; 8] {
    let us = |figure: Option<f64>| figure.map_or("-".to_owned(), |us| format!("{us:.2}"));
    let own = |of: fn(&statistics::Figures) -> f64| us(size.figures.as_ref().map(of));
    let direct = size.direct.as_ref();
    let neighbour = direct.and_then(Direct::mean);
    let more = direct.and_then(|direct| direct.difference);
    [
        way.to_owned(),
        size.size.to_string(),
        own(|f| f.p50),
        own(|f| f.p99),
        own(|f| f.max),
        us(neighbour),
        more.map_or("-".to_owned(), |us| format!("{us:+.2}")),
        match size.judged.verdict {
            Verdict::Hardware => output::standing("ok").trim_end().to_owned() + " hardware",
            Verdict::SoftwareForwarded => {
                output::standing("FAIL").trim_end().to_owned() + " software-forwarded"
            }
            Verdict::NotProven => output::standing("not proven").trim_end().to_owned(),
            Verdict::Failed => output::standing("FAIL").trim_end().to_owned() + " failed",
        },
    ]
}

/// The end on a node.
pub(super) fn agent() -> Result<Exit, Trouble> {
    let stdin = std::io::stdin();
    let called = || {
        // Something to be read, or the end of the input.
        let mut waited = [PollFd::new(&stdin, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut waited, Some(&now)).is_ok_and(|ready| ready > 0)
    };
    end::serve(
        &mut stdin.lock(),
        &mut std::io::stdout().lock(),
        &called,
        None,
    )
    .map_err(|error| Trouble::Usage(error.to_string()))?;
    Ok(Exit::Yes)
}
