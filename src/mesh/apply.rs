//! Carries changes out, each journaled with its inverse before it is done, and takes them back when
//! one fails.

use serde::Serialize;

use crate::mesh::change::Change;

/// What changes are carried out on: the kernel and systemd, or their twin in memory.
pub trait Platform {
    /// Writes down, so that it outlives this process, what has been done and what is about to be.
    fn journal(&mut self, steps: &[Step]) -> Result<(), String>;
    /// Removes the journal.
    fn end_journal(&mut self) -> Result<(), String>;
    /// Carries out one change. A remark that the kernel made although it did as asked comes back.
    fn carry_out(&mut self, change: &Change) -> Result<Option<String>, Failure>;
    /// Reads back; everything that is not as it was to become, one line each.
    fn not_as_wanted(&mut self) -> Vec<String>;
    /// Reads back; everything that is not as it was before the first change, one line each.
    fn not_as_before(&mut self) -> Vec<String>;
    /// Why the work is to be ended early (a signal), between two changes.
    fn interrupted(&mut self) -> Option<String>;
}

/// A change with what takes it back, as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The change.
    pub change: Change,
    /// What takes it back; `null` for a change that needs nothing.
    pub inverse: Option<Change>,
}

/// Why a change was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Why: a sentence that names the object and has the kernel's own words.
    pub why: String,
    /// Whether a part of it may have been made, so that its inverse is due.
    pub half_done: bool,
    /// Whether it failed because things already are as it would have made them: what was to be removed
    /// is not there.
    pub already: bool,
}

impl Failure {
    /// A change of which nothing was made.
    pub fn clean(why: impl Into<String>) -> Failure {
        Failure {
            why: why.into(),
            half_done: false,
            already: false,
        }
    }
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every change was made, and reads back right.
    Done,
    /// Not made: the host is as it was before.
    Restored {
        /// What failed, one line each.
        why: Vec<String>,
    },
    /// Not made, and the host is not as it was before. The journal is kept.
    NotRestored {
        /// What failed, one line each.
        why: Vec<String>,
        /// What differs from before, and what could not be taken back, one line each.
        differs: Vec<String>,
    },
}

/// Carries out `changes` in their order, or none of them. `told` hears of each change that was made.
pub fn apply(
    platform: &mut impl Platform,
    changes: &[Change],
    told: &mut dyn FnMut(&Change, Option<&str>),
) -> Outcome {
    let mut steps: Vec<Step> = Vec::new();
    let failed = (|| {
        for change in changes {
            if let Some(why) = platform.interrupted() {
                return vec![why];
            }
            let step = Step {
                change: change.clone(),
                inverse: change.inverse(),
            };
            steps.push(step);
            if let Err(why) = platform.journal(&steps) {
                steps.pop();
                return vec![why];
            }
            match platform.carry_out(change) {
                Ok(remark) => told(change, remark.as_deref()),
                Err(failure) => {
                    if !failure.half_done {
                        steps.pop();
                    }
                    return vec![failure.why];
                }
            }
        }
        platform.not_as_wanted()
    })();
    if failed.is_empty() {
        return match platform.end_journal() {
            Ok(()) => Outcome::Done,
            // The host is as wanted; a journal that stays says no more than what happened.
            Err(why) => {
                if let Some(last) = changes.last() {
                    told(last, Some(&why));
                }
                Outcome::Done
            }
        };
    }
    let mut differs = take_back(platform, &steps);
    differs.extend(platform.not_as_before());
    if differs.is_empty() {
        if let Err(why) = platform.end_journal() {
            differs.push(why);
        }
    }
    if differs.is_empty() {
        Outcome::Restored { why: failed }
    } else {
        Outcome::NotRestored {
            why: failed,
            differs,
        }
    }
}

/// Takes back in reverse what was made, and goes on after a failure; what could not be taken back.
fn take_back(platform: &mut impl Platform, steps: &[Step]) -> Vec<String> {
    let mut failures = Vec::new();
    for step in steps.iter().rev() {
        let Some(inverse) = &step.inverse else {
            continue;
        };
        match platform.carry_out(inverse) {
            Ok(_) => {}
            Err(failure) if failure.already => {}
            Err(failure) => failures.push(failure.why),
        }
    }
    failures
}

/// Carries out `changes` in their order and goes on after a failure; what failed, one line each. What
/// was to be removed and is not there any more is no failure.
pub fn apply_all(
    platform: &mut impl Platform,
    changes: &[Change],
    told: &mut dyn FnMut(&Change, Option<&str>),
) -> Vec<String> {
    let mut failures = Vec::new();
    for change in changes {
        match platform.carry_out(change) {
            Ok(remark) => told(change, remark.as_deref()),
            Err(failure) if failure.already => {}
            Err(failure) => failures.push(failure.why),
        }
    }
    failures
}
