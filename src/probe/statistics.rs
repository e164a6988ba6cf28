//! Figures of a run, from its samples. Pure.
//!
//! A sample is half the time between two posts of one side: half of a round trip of the pair of directions, as
//! perftest's `ib_write_lat` has it.

use serde::Serialize;

/// How many of the largest samples perftest leaves out of everything but its maximum
/// (`LATENCY_MEASURE_TAIL`, perftest's `perftest_parameters.h`).
const TAIL: usize = 2;

/// The fewest samples of which perftest's figures can be given.
pub const FEWEST: usize = TAIL + 1;

/// Figures of one run, microseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// How many samples.
    pub n: usize,
    /// The smallest.
    pub min: f64,
    /// Half of all are at most this (nearest rank, as the other percentiles).
    pub p50: f64,
    /// 99 of 100 are.
    pub p99: f64,
    /// 999 of 1000 are.
    pub p99_9: f64,
    /// The largest.
    pub max: f64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, of all samples.
    pub stdev: f64,
    /// What `ib_write_lat` would print of the same samples.
    pub perftest: Perftest,
}

/// The columns of `ib_write_lat`, microseconds, by its own definitions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Perftest {
    /// `t_min`
    pub t_min: f64,
    /// `t_max`: the largest but two (the second largest from 0).
    pub t_max: f64,
    /// `t_typical`: the median of all but the two largest.
    pub t_typical: f64,
    /// `t_avg`: the mean of these.
    pub t_avg: f64,
    /// `t_stdev`: of these, from differences cut to whole microseconds.
    pub t_stdev: f64,
    /// `99% percentile`
    pub p99: f64,
    /// `99.9% percentile`
    pub p99_9: f64,
}

/// Figures of round trips in nanoseconds; `None` when there are fewer than [`FEWEST`].
pub fn figures(round_trips: &[u64]) -> Option<Figures> {
    if round_trips.len() < FEWEST {
        return None;
    }
    // A round trip of 2^53 ns is a hundred days.
    let mut samples: Vec<f64> = round_trips.iter().map(|ns| *ns as f64 / 2000.0).collect();
    samples.sort_by(f64::total_cmp);
    let n = samples.len();
    let mean = samples.iter().sum::<f64>() / n as f64;
    let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
    // Nearest rank: the smallest sample that at least this part of all do not exceed.
    let rank = |parts_of_1000: usize| samples[(n * parts_of_1000).div_ceil(1000).max(1) - 1];
    Some(Figures {
        n,
        min: samples[0],
        p50: rank(500),
        p99: rank(990),
        p99_9: rank(999),
        max: samples[n - 1],
        mean,
        stdev: variance.sqrt(),
        perftest: perftest(&samples),
    })
}

/// Buckets of a histogram.
pub const BUCKETS: usize = 24;

/// How samples spread, from the smallest to the 99th percentile in equal steps, and beyond.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Histogram {
    /// Where the first bucket begins, microseconds.
    pub from: f64,
    /// Where the last one ends.
    pub to: f64,
    /// How many samples each holds.
    pub counts: Vec<usize>,
    /// How many are larger.
    pub beyond: usize,
}

/// The histogram of round trips in nanoseconds; `None` when there are fewer than [`FEWEST`].
pub fn histogram(round_trips: &[u64]) -> Option<Histogram> {
    let figures = figures(round_trips)?;
    let (from, to) = (figures.min, figures.p99);
    let mut counts = vec![0; BUCKETS];
    let mut beyond = 0;
    for ns in round_trips {
        let sample = *ns as f64 / 2000.0;
        if sample > to {
            beyond += 1;
            continue;
        }
        // All in one bucket where all are alike.
        let part = if to > from {
            (sample - from) / (to - from)
        } else {
            0.0
        };
        // A float becomes an integer by leaving out what is behind the point; 1 belongs to the last bucket.
        counts[((part * BUCKETS as f64) as usize).min(BUCKETS - 1)] += 1;
    }
    Some(Histogram {
        from,
        to,
        counts,
        beyond,
    })
}

/// perftest's `print_report_lat`, of sorted samples.
fn perftest(sorted: &[f64]) -> Perftest {
    let measured = sorted.len() - TAIL;
    let kept = &sorted[..measured];
    let average = kept.iter().sum::<f64>() / measured as f64;
    let squares: f64 = kept.iter().map(|x| (average - x).trunc().powi(2)).sum();
    let median = if measured % 2 == 0 {
        (kept[measured / 2] + kept[measured / 2 - 1]) / 2.0
    } else {
        kept[measured / 2]
    };
    let at = |parts_of_1000: usize| sorted[(measured * parts_of_1000).div_ceil(1000)];
    Perftest {
        t_min: sorted[0],
        t_max: sorted[measured],
        t_typical: median,
        t_avg: average,
        t_stdev: (squares / measured as f64).sqrt(),
        p99: at(990),
        p99_9: at(999),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Samples of 1, 2, 3 ... n us.
    fn counting(n: u64) -> Vec<u64> {
        (1..=n).map(|us| us * 2000).collect()
    }

    #[test]
    fn figures_of_999_samples_are_those_of_their_definitions() {
        let figures = figures(&counting(999)).unwrap();
        assert_eq!(
            (
                figures.n,
                figures.min,
                figures.p50,
                figures.p99,
                figures.p99_9,
                figures.max
            ),
            (999, 1.0, 500.0, 990.0, 999.0, 999.0)
        );
        assert_eq!(figures.mean, 500.0);
        // Of 1 to n: (n^2 - 1) / 12.
        assert!((figures.stdev.powi(2) - (999.0 * 999.0 - 1.0) / 12.0).abs() < 1e-6);
        // 997 are measured: the median is the 499th, the mean 499, 99 % is at index ceil(987.03) from 0.
        let perftest = figures.perftest;
        assert_eq!(
            (
                perftest.t_min,
                perftest.t_max,
                perftest.t_typical,
                perftest.t_avg
            ),
            (1.0, 998.0, 499.0, 499.0)
        );
        // At 1000 iterations the 99.9 % value is the same element as t_max.
        assert_eq!((perftest.p99, perftest.p99_9), (989.0, 998.0));
        assert!((perftest.t_stdev.powi(2) - (997.0 * 997.0 - 1.0) / 12.0).abs() < 1e-6);
    }

    #[test]
    fn perftest_s_deviation_is_0_where_all_differences_are_below_a_microsecond() {
        let samples: Vec<u64> = (0..100).map(|i| 4000 + 10 * (i % 50)).collect();
        let figures = figures(&samples).unwrap();
        assert_eq!(figures.perftest.t_stdev, 0.0);
        assert!(figures.stdev > 0.0);
    }

    #[test]
    fn the_median_of_an_even_count_is_perftest_s_mean_of_two_and_the_true_one_a_sample() {
        let figures = figures(&counting(6)).unwrap();
        assert_eq!(figures.perftest.t_typical, 2.5);
        assert_eq!(figures.p50, 3.0);
    }

    #[test]
    fn too_few_samples_have_no_figures() {
        assert_eq!(figures(&counting(2)), None);
        assert_eq!(figures(&counting(3)).unwrap().perftest.t_max, 2.0);
    }

    #[test]
    fn a_histogram_has_every_sample_in_its_step() {
        // 1 to 100 us: up to 99 in 24 steps of a little over 4, and one beyond.
        let spread = histogram(&counting(100)).unwrap();
        assert_eq!((spread.from, spread.to, spread.beyond), (1.0, 99.0, 1));
        assert_eq!(spread.counts[0], 5, "{spread:?}");
        assert_eq!(spread.counts.iter().sum::<usize>(), 99);
        assert!(spread.counts.iter().all(|count| (4..=5).contains(count)));
        let alike = histogram(&[2000; 50]).unwrap();
        assert_eq!((alike.counts[0], alike.beyond), (50, 0));
        assert_eq!(histogram(&[2000; 2]), None);
    }

    proptest! {
        #[test]
        fn figures_are_in_order_and_do_not_depend_on_the_order_of_samples(
            mut samples in proptest::collection::vec(1u64..1_000_000_000, FEWEST..300),
        ) {
            let all = figures(&samples).unwrap();
            prop_assert!(all.min <= all.p50 && all.p50 <= all.p99);
            prop_assert!(all.p99 <= all.p99_9 && all.p99_9 <= all.max);
            let perftest = &all.perftest;
            prop_assert!(perftest.t_min <= perftest.t_typical && perftest.t_typical <= perftest.t_max);
            prop_assert!(perftest.p99 <= perftest.p99_9 && perftest.p99_9 <= perftest.t_max);
            samples.reverse();
            prop_assert_eq!(figures(&samples).unwrap(), all);
        }
    }
}
