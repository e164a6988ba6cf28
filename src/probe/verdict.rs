//! What a run and the counters around it say of a path. Pure.

use serde::Serialize;

/// The verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Messages arrived both ways, and NICs alone carried them.
    Hardware,
    /// They arrived, and the kernel of the node between forwarded them.
    SoftwareForwarded,
    /// They arrived, and the counters do not say how.
    NotProven,
    /// They did not arrive.
    Failed,
}

/// What was seen around a diagonal's run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Packets that each end sent at least: its messages.
    pub sent: u64,
    /// By how much the rule from source to destination rose.
    pub there: Option<u64>,
    /// By how much the rule from destination to source rose.
    pub back: Option<u64>,
    /// By how much the node between forwarded in its kernel.
    pub forwarded: Option<u64>,
}

/// A verdict with its reasons, a sentence each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// What speaks for it, or what is wrong.
    pub reasons: Vec<String>,
}

/// Judges a diagonal from `from` through `via` to `to`: what was seen, and why the run failed if it did.
pub fn judge(seen: &Seen, failed: Option<&str>, from: &str, via: &str, to: &str) -> Judged {
    let mut reasons: Vec<String> = failed.map(str::to_owned).into_iter().collect();
    let enough = |count: Option<u64>| count.map(|count| count >= seen.sent);
    // A little is forwarded on any node: from half of one end's packets on it was these.
    let by_kernel = seen
        .forwarded
        .map(|count| count >= seen.sent.div_ceil(2).max(1));
    let directions = [(from, to, seen.there), (to, from, seen.back)];
    if failed.is_some() {
        for (source, target, count) in directions {
            match count {
                Some(0) if seen.forwarded.is_some_and(|count| count > 0) => reasons.push(format!(
                    "no packet of {source} to {target} took {via}'s rule while {via}'s kernel forwarded {}: the marker of {source} is off?",
                    seen.forwarded.unwrap_or_default()
                )),
                Some(0) => reasons.push(format!(
                    "no packet of {source} to {target} took {via}'s rule: the rule is not there or dead, the marker of {source} is off, or nothing was sent"
                )),
                None => reasons.push(format!(
                    "the rule of {via} from {source} to {target} could not be read"
                )),
                Some(_) => {}
            }
        }
        if seen.there.is_some_and(|n| n > 0) && seen.back == Some(0) {
            reasons.push(format!(
                "packets went from {from} to {to} alone, and none came back"
            ));
        }
        return Judged {
            verdict: Verdict::Failed,
            reasons,
        };
    }
    let verdict = match (enough(seen.there), enough(seen.back), by_kernel) {
        (Some(true), Some(true), Some(false)) => {
            if let Some(count @ 1..) = seen.forwarded {
                reasons.push(format!(
                    "{via}'s kernel forwarded {count} packets meanwhile, of whomever"
                ));
            }
            Verdict::Hardware
        }
        (there, back, Some(true)) if there == Some(false) || back == Some(false) => {
            for (source, target, count) in directions {
                if enough(count) == Some(false) {
                    reasons.push(format!(
                        "{via}'s kernel forwarded {} packets, and its rule took {} of {source}'s at least {} to {target}: the marker of {source} is off?",
                        seen.forwarded.unwrap_or_default(),
                        count.unwrap_or_default(),
                        seen.sent
                    ));
                }
            }
            Verdict::SoftwareForwarded
        }
        _ => {
            for (source, target, count) in directions {
                match count {
                    None => reasons.push(format!(
                        "the rule of {via} from {source} to {target} could not be read"
                    )),
                    Some(count) if count < seen.sent => reasons.push(format!(
                        "the rule of {via} from {source} to {target} counted {count} packets, {} at least were sent",
                        seen.sent
                    )),
                    Some(_) => {}
                }
            }
            match seen.forwarded {
                None => reasons.push(format!("IpForwDatagrams of {via} could not be read")),
                Some(count) if by_kernel == Some(true) => reasons.push(format!(
                    "{via}'s kernel forwarded {count} packets meanwhile, of whomever"
                )),
                Some(_) => {}
            }
            Verdict::NotProven
        }
    };
    Judged { verdict, reasons }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(
        there: Option<u64>,
        back: Option<u64>,
        forwarded: Option<u64>,
        failed: Option<&str>,
    ) -> Judged {
        let seen = Seen {
            sent: 1000,
            there,
            back,
            forwarded,
        };
        judge(&seen, failed, "spark1", "spark2", "spark3")
    }

    fn verdict(there: Option<u64>, back: Option<u64>, forwarded: Option<u64>) -> Verdict {
        judged(there, back, forwarded, None).verdict
    }

    #[test]
    fn rules_that_took_all_packets_both_ways_and_a_kernel_that_forwarded_none_are_hardware() {
        assert_eq!(verdict(Some(2000), Some(1000), Some(0)), Verdict::Hardware);
        // Some other traffic of the node between.
        assert_eq!(
            verdict(Some(2000), Some(2000), Some(499)),
            Verdict::Hardware
        );
        assert!(
            judged(Some(2000), Some(2000), Some(0), None)
                .reasons
                .is_empty()
        );
    }

    #[test]
    fn packets_of_one_end_that_the_kernel_forwarded_are_software_forwarded_and_name_the_marker() {
        let judged = judged(Some(0), Some(2000), Some(2000), None);
        assert_eq!(judged.verdict, Verdict::SoftwareForwarded);
        assert_eq!(judged.reasons.len(), 1);
        assert!(
            judged.reasons[0].contains("the marker of spark1 is off"),
            "{judged:?}"
        );
        assert_eq!(
            verdict(Some(2000), Some(10), Some(2000)),
            Verdict::SoftwareForwarded
        );
        assert_eq!(
            verdict(Some(0), Some(0), Some(4000)),
            Verdict::SoftwareForwarded
        );
    }

    #[test]
    fn what_the_counters_do_not_say_is_not_proven() {
        for (there, back, forwarded, words) in [
            (None, Some(2000), Some(0), "could not be read"),
            (Some(2000), Some(2000), None, "IpForwDatagrams"),
            (Some(999), Some(2000), Some(0), "counted 999"),
            (Some(2000), Some(2000), Some(1000), "of whomever"),
        ] {
            let judged = judged(there, back, forwarded, None);
            assert_eq!(judged.verdict, Verdict::NotProven);
            assert!(
                judged.reasons.iter().any(|r| r.contains(words)),
                "{judged:?}"
            );
        }
    }

    #[test]
    fn a_run_that_failed_is_failed_whatever_was_counted_and_says_where_packets_ended() {
        let lost = Some("retries exceeded");
        for (there, back, forwarded, words) in [
            (Some(0), Some(0), Some(0), "no packet of spark1 to spark3"),
            (Some(8), Some(0), Some(0), "and none came back"),
            (Some(0), Some(0), Some(8), "the marker of spark1 is off"),
            (Some(2000), Some(2000), Some(0), "retries exceeded"),
            (None, None, None, "could not be read"),
        ] {
            let judged = judged(there, back, forwarded, lost);
            assert_eq!(judged.verdict, Verdict::Failed);
            assert_eq!(judged.reasons[0], "retries exceeded");
            assert!(
                judged.reasons.iter().any(|r| r.contains(words)),
                "{judged:?}"
            );
        }
    }
}
