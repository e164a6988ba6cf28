//! The ring drawn with the latencies on its paths, as an SVG without script or font of its own. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::run::{PathReport, SizeReport};
use super::verdict::Verdict;
use crate::folder::escaped;
use crate::names::HostName;
use crate::plan::Plan;

/// Width and height of the picture, and where the ring stands in it.
const SIZE: (i32, i32) = (1000, 800);
const CENTRE: (f64, f64) = (500.0, 420.0);
const RADIUS: (f64, f64) = (330.0, 280.0);
/// Half of a host's box.
const BOX: (i32, i32) = (95, 20);
/// Height of a line of text.
const LINE: i32 = 15;

const STYLE: &str = "text{font:12px monospace;text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:4px}\
.t{font-size:16px;font-weight:bold}.box{fill:#eee;stroke:#000}.ok{stroke:#06652b;fill:none;stroke-width:2}\
.no{stroke:#b00020;fill:none;stroke-width:3;stroke-dasharray:9 5}.bad{fill:#b00020;font-weight:bold}";

/// The picture of these paths at the largest size of which all of them have a run; none when there is none.
pub fn picture(plan: &Plan, paths: &[PathReport]) -> Option<String> {
    let sizes = |path: &PathReport| {
        path.sizes
            .iter()
            .map(|size| size.size)
            .collect::<Vec<u32>>()
    };
    let first = paths.first()?;
    let of_all = |size: &u32| paths.iter().all(|path| sizes(path).contains(size));
    let size = sizes(first).into_iter().filter(of_all).max()?;
    let mut svg = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">\n<style>{STYLE}</style>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
        SIZE.0, SIZE.1
    );
    let title =
        format!("RDMA-write latency at {size} bytes: p50 of half round trips, microseconds");
    text(&mut svg, "t", (SIZE.0 / 2, 40), &title);
    let hosts: Vec<&HostName> = plan.ring.iter().collect();
    let at = |host: &HostName| {
        let rank = hosts.iter().position(|other| *other == host)?;
        // Clockwise from the top left, as the ring is drawn elsewhere.
        let turn = std::f64::consts::TAU * (rank as f64 / hosts.len() as f64 - 0.375);
        Some((
            (CENTRE.0 + RADIUS.0 * turn.cos()).round() as i32,
            (CENTRE.1 + RADIUS.1 * turn.sin()).round() as i32,
        ))
    };
    // What runs between the same two nodes past the same one is one line with several labels.
    type Between<'a> = (&'a HostName, Option<&'a HostName>, &'a HostName);
    let mut lines: BTreeMap<Between, Vec<(&PathReport, &SizeReport)>> = BTreeMap::new();
    for path in paths {
        let run = path.sizes.iter().find(|run| run.size == size)?;
        let ends = if path.from <= path.to {
            (&path.from, &path.to)
        } else {
            (&path.to, &path.from)
        };
        let line = lines
            .entry((ends.0, path.via.as_ref(), ends.1))
            .or_default();
        line.push((path, run));
    }
    let mut labels = Vec::new();
    for ((from, via, to), runs) in &lines {
        let (start, end) = (at(from)?, at(to)?);
        let good = runs.iter().all(|(_, run)| fine(run));
        // A diagonal bends towards the node that carries it.
        let middle = ((start.0 + end.0) / 2, (start.1 + end.1) / 2);
        let bend = match via {
            Some(via) => {
                let via = at(via)?;
                let part = |a: i32, b: i32| a + (b - a) * 7 / 10;
                (part(middle.0, via.0), part(middle.1, via.1))
            }
            None => middle,
        };
        let class = if good { "ok" } else { "no" };
        let _ = writeln!(
            svg,
            "<path class=\"{class}\" d=\"M{} {}Q{} {} {} {}\"/>",
            start.0, start.1, bend.0, bend.1, end.0, end.1
        );
        // The middle of the curve (Bezier, t = 1/2).
        let place = ((middle.0 + bend.0) / 2, (middle.1 + bend.1) / 2);
        labels.push((place, runs));
    }
    for host in &hosts {
        let (x, y) = at(host)?;
        let _ = writeln!(
            svg,
            "<rect class=\"box\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            x - BOX.0,
            y - BOX.1,
            2 * BOX.0,
            2 * BOX.1
        );
        text(&mut svg, "t", (x, y + 6), &shortened(host.as_str()));
    }
    for ((x, y), runs) in labels {
        let above = i32::try_from(runs.len()).unwrap_or(0) * LINE / 2;
        for ((path, run), line) in runs.iter().zip(0..) {
            let class = if fine(run) { "" } else { "bad" };
            let words = label(plan, path, run);
            text(
                &mut svg,
                class,
                (x, y - above + (line + 1) * LINE - 3),
                &words,
            );
        }
    }
    svg += "</svg>\n";
    Some(svg)
}

fn fine(run: &SizeReport) -> bool {
    run.judged.verdict == Verdict::Hardware
}

/// Ring ranks and domain of a path, with its latency, or what is wrong.
fn label(plan: &Plan, path: &PathReport, run: &SizeReport) -> String {
    let rank = |host: &HostName| {
        plan.ring
            .iter()
            .position(|other| other == host)
            .unwrap_or(0)
    };
    let way = format!("{}>{} d{}", rank(&path.from), rank(&path.to), path.domain);
    let latency = run
        .figures
        .as_ref()
        .map(|figures| format!("{:.2}", figures.p50));
    let latency = latency.as_deref().unwrap_or("-");
    match run.judged.verdict {
        Verdict::Hardware => format!("{way} {latency}"),
        Verdict::SoftwareForwarded => format!("{way} {latency} software-forwarded"),
        Verdict::NotProven => format!("{way} {latency} not proven"),
        Verdict::Failed => format!("{way} failed"),
    }
}

/// A name of at most 20 characters.
fn shortened(name: &str) -> String {
    const MOST: usize = 20;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    name.chars().take(MOST - 1).chain(['…']).collect()
}

fn text(svg: &mut String, class: &str, (x, y): (i32, i32), words: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>",
        escaped(words)
    );
}

#[cfg(test)]
mod tests {
    use super::super::statistics::figures;
    use super::*;

    fn reports(plan: &Plan, verdict: Verdict) -> Vec<PathReport> {
        let of = |path: &crate::plan::PathRow| {
            let mut run = SizeReport::nothing(61440, 16383);
            run.judged.verdict = verdict;
            run.figures = figures(&[17_000; 9]);
            PathReport {
                path: path.name.clone(),
                kind: path.kind,
                from: path.from.clone(),
                via: path.via.clone(),
                to: path.to.clone(),
                domain: path.domain,
                device: path.device.clone(),
                verdict,
                sizes: vec![run, SizeReport::nothing(2, 16383)],
            }
        };
        plan.paths.iter().map(of).collect()
    }

    #[test]
    fn every_path_has_its_latency_at_the_largest_size_and_its_verdict() {
        let plan = Plan::from_json(
            "plan.json",
            include_bytes!("../../plans/tp-along-ring/ring-mesh/plan.json"),
        )
        .unwrap();
        let good = picture(&plan, &reports(&plan, Verdict::Hardware)).unwrap();
        assert!(good.contains("latency at 61440 bytes"));
        // 4 cables, 2 opposite pairs past 2 nodes each.
        assert_eq!(good.matches("<path class=\"ok\"").count(), 8, "{good}");
        assert_eq!(good.matches(" 8.50</text>").count(), plan.paths.len());
        assert!(
            plan.hosts
                .iter()
                .all(|host| good.contains(&format!(">{host}</text>")))
        );
        let bad = picture(&plan, &reports(&plan, Verdict::Failed)).unwrap();
        assert_eq!(bad.matches("<path class=\"no\"").count(), 8);
        assert_eq!(bad.matches(" failed</text>").count(), plan.paths.len());
        assert_eq!(picture(&plan, &[]), None);
    }
}
