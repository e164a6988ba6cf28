//! Messages of rising size over a diagonal, until something is lost on the way: how large they may be. Pure, but
//! for the measuring that is asked for.

use serde::Serialize;

use super::agents::Agents;
use super::run::{Options, SizeReport, one};
use super::verdict::Verdict;
use crate::names::HostName;
use crate::plan::{PathRow, Plan};

/// Bytes of the messages, in turn: around the sizes of which the field's figures are (60 to 960 KB), and the two
/// caps of the plan.
pub const SIZES: [u32; 14] = [
    16_384, 32_768, 49_152, 65_536, 81_920, 98_304, 131_072, 163_840, 196_608, 262_144, 393_216,
    524_288, 786_432, 1_048_576,
];

/// How far a diagonal went.
#[derive(Debug, Clone, Serialize)]
pub struct SweepReport {
    /// Its name in the plan.
    pub path: String,
    /// Source.
    pub from: HostName,
    /// The node between.
    pub via: Option<HostName>,
    /// Destination.
    pub to: HostName,
    /// The largest size of which nothing was lost; none when the first was.
    pub largest_clean: Option<u32>,
    /// The size of which something was; none when none was.
    pub first_loss: Option<u32>,
    /// The runs, the last one the first of which something was lost.
    pub sizes: Vec<SizeReport>,
}

impl SweepReport {
    fn of(path: &PathRow, sizes: Vec<SizeReport>) -> SweepReport {
        let size = |report: &SizeReport| report.size;
        SweepReport {
            path: path.name.clone(),
            from: path.from.clone(),
            via: path.via.clone(),
            to: path.to.clone(),
            largest_clean: sizes.iter().rfind(|report| clean(report)).map(size),
            first_loss: sizes.iter().find(|report| !clean(report)).map(size),
            sizes,
        }
    }
}

/// Whether NICs alone carried all of it and lost nothing.
fn clean(report: &SizeReport) -> bool {
    report.judged.verdict == Verdict::Hardware
        && report
            .counters
            .as_ref()
            .is_some_and(|deltas| deltas.drops.is_empty() && deltas.errors.is_empty())
}

/// The largest size of which no diagonal lost anything.
pub fn cap(reports: &[SweepReport]) -> Option<u32> {
    let each: Option<Vec<u32>> = reports.iter().map(|report| report.largest_clean).collect();
    each?.into_iter().min()
}

/// Sends the sizes of `options` in turn over each of these diagonals. `step` is told what comes next.
pub fn sweep(
    plan: &Plan,
    paths: &[&PathRow],
    options: &Options,
    agents: &mut Agents,
    step: &mut dyn FnMut(&str),
) -> Vec<SweepReport> {
    let over = |path: &&PathRow| {
        let mut sizes = Vec::new();
        for size in &options.sizes {
            step(&format!("{} at {size} bytes", path.name));
            let report = one(plan, path, *size, options, agents);
            let lost = !clean(&report);
            sizes.push(report);
            if lost {
                break;
            }
        }
        SweepReport::of(path, sizes)
    };
    paths.iter().map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::super::run::Deltas;
    use super::super::verdict::Judged;
    use super::*;

    fn report(size: u32, verdict: Verdict, drops: u64) -> SizeReport {
        let port = "enp1s0f0np0".parse().unwrap();
        let drop = (
            "spark2".parse().unwrap(),
            port,
            "rx_out_of_buffer".into(),
            drops,
        );
        SizeReport {
            judged: Judged {
                verdict,
                reasons: Vec::new(),
            },
            counters: Some(Deltas {
                sent: 9,
                rule_there: Some(9),
                rule_back: Some(9),
                ip_forwarded: Some(0),
                errors: Vec::new(),
                drops: [drop].into_iter().filter(|_| drops > 0).collect(),
            }),
            ..SizeReport::nothing(size, 16383)
        }
    }

    #[test]
    fn the_cap_is_the_largest_size_of_which_no_diagonal_lost_anything() {
        let plan = Plan::from_json(
            "plan.json",
            include_bytes!("../../plans/tp-along-ring/ring-mesh/plan.json"),
        )
        .unwrap();
        let path = plan.paths.iter().find(|path| path.via.is_some()).unwrap();
        let of = |sizes: &[(u32, Verdict, u64)]| {
            let reports = sizes
                .iter()
                .map(|(size, verdict, drops)| report(*size, *verdict, *drops));
            SweepReport::of(path, reports.collect())
        };
        use Verdict::{Failed, Hardware};
        let lossy = of(&[(1, Hardware, 0), (2, Hardware, 0), (3, Hardware, 5)]);
        assert_eq!((lossy.largest_clean, lossy.first_loss), (Some(2), Some(3)));
        let whole = of(&[(1, Hardware, 0), (2, Hardware, 0), (3, Hardware, 0)]);
        assert_eq!((whole.largest_clean, whole.first_loss), (Some(3), None));
        let dead = of(&[(1, Failed, 0)]);
        assert_eq!((dead.largest_clean, dead.first_loss), (None, Some(1)));
        assert_eq!(cap(&[lossy.clone(), whole]), Some(2));
        assert_eq!(cap(&[lossy, dead]), None);
        assert!(SIZES.is_sorted() && SIZES.contains(&81_920) && SIZES.contains(&262_144));
    }
}
