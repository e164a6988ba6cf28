//! What a run and the counters around it say of a path. Pure.

use serde::Serialize;

use super::agents::EndReport;
use super::run::Deltas;
use crate::names::HostName;

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

/// What else is known of a run.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// Bytes of a message.
    pub size: u32,
    /// Half of all half round trips are at most this, microseconds.
    pub p50: Option<f64>,
    /// Path MTU, bytes.
    pub path_mtu: Option<u32>,
    /// The GID index of the plan.
    pub planned_gid_index: u8,
    /// Both ends.
    pub ends: Option<&'a [EndReport; 2]>,
    /// The node between.
    pub via: Option<&'a HostName>,
    /// What the counters did meanwhile.
    pub counters: Option<&'a Deltas>,
}

/// Path MTU of the mesh: what an Ethernet MTU of 9000 carries (`plan::mesh`).
const PATH_MTU: u32 = crate::plan::mesh::ROCE_MTU;
/// The least size of which the time is that of its bytes more than that of its packets.
const LARGE: u32 = 32 * 1024;
/// What a badly started NIC moves, Gb/s: about 13 where the link says 200, cured by a cold power cycle (field
/// reports of the machine's makers). The time that every message takes beside its bytes makes it look a little less.
const BAD_START: std::ops::RangeInclusive<f64> = 11.0..=14.0;

/// What is to be said beside the verdict, a sentence each: what was lost on the way, and what is not as planned.
pub fn remarks(around: &Around) -> Vec<String> {
    let mut said = Vec::new();
    let counters = around.counters;
    for (host, port, name, rise) in counters.into_iter().flat_map(|deltas| &deltas.drops) {
        said.push(if around.via == Some(host) && name == "rx_out_of_buffer" {
            format!(
                "{host} {port}: {name} rose by {rise}: its hairpin queue has no room for bursts of this size (hairpin-queue loads a larger one)"
            )
        } else {
            format!("{host} {port}: {name} rose by {rise}: packets were lost there")
        });
    }
    for (host, device, name, rise) in counters.into_iter().flat_map(|deltas| &deltas.errors) {
        said.push(format!(
            "{host} {device}: {name} rose by {rise}: packets were lost and sent again"
        ));
    }
    if let Some(mtu) = around.path_mtu.filter(|mtu| *mtu < PATH_MTU) {
        let least = |end: &&EndReport| end.mtu == mtu;
        let of: Vec<String> = around
            .ends
            .into_iter()
            .flatten()
            .filter(least)
            .map(|end| format!("{} {}", end.host, end.device))
            .collect();
        said.push(format!(
            "the path MTU is {mtu} bytes, {PATH_MTU} wanted: the port of {} has no MTU of 9000",
            of.join(" and of ")
        ));
    }
    for end in around.ends.into_iter().flatten() {
        if end.gid_index != around.planned_gid_index {
            said.push(format!(
                "{} {}: the GID of its address has index {}, {} is the plan's: an engine that is told the plan's index uses another GID",
                end.host, end.device, end.gid_index, around.planned_gid_index
            ));
        }
    }
    // A half round trip is one message: bits by microseconds are Mb/s.
    let speed = around
        .p50
        .map(|us| f64::from(around.size) * 8.0 / us / 1000.0);
    if around.size >= LARGE && speed.is_some_and(|gbps| BAD_START.contains(&gbps)) {
        said.push(
            "about 13 Gb/s: what a NIC moves that started badly, whatever its link says; a cold power cycle cures it".into(),
        );
    }
    said
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

    fn end(host: &str, gid_index: u8, mtu: u32) -> EndReport {
        EndReport {
            host: host.parse().unwrap(),
            device: "rocep1s0f0".parse().unwrap(),
            gid: "::ffff:10.10.0.10".parse().unwrap(),
            gid_index,
            qp_number: 17,
            mtu,
            cpu: 0,
        }
    }

    #[test]
    fn what_was_lost_and_what_is_not_as_planned_is_said_of_its_place() {
        let via: HostName = "spark2".parse().unwrap();
        let fine = [end("spark1", 3, 4096), end("spark3", 3, 4096)];
        let quiet = Deltas {
            sent: 1000,
            rule_there: Some(1000),
            rule_back: Some(1000),
            ip_forwarded: Some(0),
            errors: Vec::new(),
            drops: Vec::new(),
        };
        let healthy = Around {
            size: 61440,
            p50: Some(8.5),
            path_mtu: Some(4096),
            planned_gid_index: 3,
            ends: Some(&fine),
            via: Some(&via),
            counters: Some(&quiet),
        };
        let nothing: [String; 0] = [];
        assert_eq!(remarks(&healthy), nothing);
        // The field's figure of a bad start at this size.
        let slow = Around {
            p50: Some(38.0),
            ..healthy
        };
        assert_eq!(remarks(&slow).len(), 1);
        assert!(remarks(&slow)[0].contains("13 Gb/s"));
        for fine in [(2, 0.0012), (61440, 5.05), (61440, 60.0)] {
            let (size, p50) = (fine.0, Some(fine.1));
            assert_eq!(
                remarks(&Around {
                    size,
                    p50,
                    ..healthy
                }),
                nothing
            );
        }
        let moved = [end("spark1", 3, 4096), end("spark3", 4, 1024)];
        let moved = remarks(&Around {
            ends: Some(&moved),
            path_mtu: Some(1024),
            ..healthy
        });
        assert_eq!(moved.len(), 2, "{moved:?}");
        assert!(
            moved[0].contains("spark3 rocep1s0f0 has no MTU"),
            "{moved:?}"
        );
        assert!(
            moved[1].starts_with("spark3 rocep1s0f0: the GID"),
            "{moved:?}"
        );
        let lossy = Deltas {
            drops: ["spark2", "spark1"]
                .map(|host| {
                    let port = "enp1s0f0np0".parse().unwrap();
                    (host.parse().unwrap(), port, "rx_out_of_buffer".into(), 7)
                })
                .to_vec(),
            errors: vec![(
                "spark3".parse().unwrap(),
                "rocep1s0f0".parse().unwrap(),
                "out_of_sequence".into(),
                3,
            )],
            ..quiet.clone()
        };
        let lossy = remarks(&Around {
            counters: Some(&lossy),
            ..healthy
        });
        assert_eq!(lossy.len(), 3, "{lossy:?}");
        assert!(lossy[0].contains("hairpin queue has no room"), "{lossy:?}");
        assert!(!lossy[1].contains("hairpin queue"), "{lossy:?}");
        assert!(lossy[2].contains("sent again"), "{lossy:?}");
    }
}
