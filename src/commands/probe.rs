//! `probe`: the paths of a plan measured and judged; and its end on a node.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::{Exit, Trouble};
use crate::cli::ProbeArgs;
use crate::node::identity::read_plan;
use crate::output;
use crate::plan::{PathRow, Plan};
use crate::probe::run::{
    Agents, Direct, Options, PathReport, SizeReport, others, reach, run as measure,
};
use crate::probe::verdict::Verdict;
use crate::probe::{agent as end, statistics};

const REPORT: &str = "hairpin-mesh.probe-report/v1";

/// Sizes that nobody's traffic notices, bytes.
const SMALL: [u32; 2] = [2, 4096];
/// The size of which the method's users published latencies, bytes.
const PUBLISHED: u32 = 61_440;

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    plan_sha256: Option<&'a str>,
    /// Whether every path was carried by NICs alone.
    proven: bool,
    /// Messages each way that counted, and before them.
    iterations: u64,
    warm_up: u64,
    /// Whose queue pairs were open on the devices meanwhile.
    others: &'a [String],
    /// Hosts on which that is not observed.
    others_not_observed: &'a [String],
    paths: &'a [PathReport],
    trouble: Vec<String>,
}

/// What was seen of others.
#[derive(Default)]
struct Seen<'a> {
    others: &'a [String],
    unseen: &'a [String],
}

pub(super) fn run(args: ProbeArgs) -> Result<Exit, Trouble> {
    let result = run_with(&args);
    if let (Err(trouble), true) = (&result, args.json) {
        report(&args, None, Seen::default(), &[], trouble.lines())?;
    }
    result
}

fn run_with(args: &ProbeArgs) -> Result<Exit, Trouble> {
    let document = read_plan(&args.plan)?;
    let plan = &document.plan;
    let paths = selected(plan, args)?;
    let mut agents = Agents::default();
    let unreached = reach(plan, &paths, &mut agents);
    if !unreached.is_empty() {
        return Err(Trouble::Several(unreached));
    }
    let (mut open, mut unseen) = (Vec::new(), Vec::new());
    for (host, rows) in others(plan, &paths, &mut agents) {
        match rows {
            Some(rows) => open.extend(rows.into_iter().map(|row| format!("{host} {row}"))),
            None => unseen.push(host.to_string()),
        }
    }
    for host in &unseen {
        output::warning(&format!(
            "{host}: whether queue pairs of others are open is not observed"
        ));
    }
    for row in &open {
        output::warning(&format!("queue pairs of others are open: {row}"));
    }
    let sizes = if !args.sizes.is_empty() {
        args.sizes.clone()
    } else if open.is_empty() && unseen.is_empty() {
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
    };
    let bar = indicatif::ProgressBar::new_spinner();
    let reports = measure(plan, &paths, &options, &mut agents, &mut |what| {
        bar.set_message(what.to_owned());
        bar.tick();
    });
    bar.finish_and_clear();
    if args.json {
        let seen = Seen {
            others: &open,
            unseen: &unseen,
        };
        report(args, Some(&document.sha256()), seen, &reports, Vec::new())?;
    } else {
        output::result(&table(&reports))?;
    }
    let proven = reports.iter().all(|path| path.verdict == Verdict::Hardware);
    Ok(if proven { Exit::Yes } else { Exit::No })
}

fn report(
    args: &ProbeArgs,
    plan_sha256: Option<&str>,
    seen: Seen,
    paths: &[PathReport],
    trouble: Vec<String>,
) -> Result<(), Trouble> {
    let report = Report {
        schema: REPORT,
        plan_sha256,
        proven: trouble.is_empty() && paths.iter().all(|path| path.verdict == Verdict::Hardware),
        iterations: args.iterations,
        warm_up: args.messages_before(),
        others: seen.others,
        others_not_observed: seen.unseen,
        paths,
        trouble,
    };
    output::result(&crate::json::pretty(&report))?;
    Ok(())
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

/// The paths as a table, microseconds, with what is to be said of each under it.
fn table(paths: &[PathReport]) -> String {
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
    let mut remarks = Vec::new();
    for path in paths {
        let way = match &path.via {
            Some(via) => format!(
                "{} - {via} - {}, domain {}",
                path.from, path.to, path.domain
            ),
            None => format!("{} - {}, domain {}", path.from, path.to, path.domain),
        };
        for size in &path.sizes {
            rows.push(row(&way, size));
            remarks.push(size.judged.reasons.clone());
        }
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..8).map(width).collect();
    for (at, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).enumerate();
        let line: Vec<String> = cells
            .map(|(column, (cell, width))| match column {
                0 | 7 => format!("{cell:width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        text += line.join("  ").trim_end();
        text += "\n";
        for reason in at
            .checked_sub(1)
            .and_then(|at| remarks.get(at))
            .into_iter()
            .flatten()
        {
            text += &format!("    {reason}\n");
        }
    }
    text += "p50, p99 and max of half round trips, and p50 of the direct neighbour measured right before and after, in microseconds\n";
    text
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
    end::serve(&mut stdin.lock(), &mut std::io::stdout().lock(), &called)
        .map_err(|error| Trouble::Usage(error.to_string()))?;
    Ok(Exit::Yes)
}
