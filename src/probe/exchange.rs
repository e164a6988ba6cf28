//! The measured loop, between two queue pairs: each side waits for a message, writes one, and waits for its
//! completion; the first side writes first. As perftest's `ib_write_lat` does it, so that figures compare.

use std::time::{Duration, Instant};

use crate::verbs::{self, Completion, Connected, Memory, Queue};

/// One side of a run.
pub struct Side<'a> {
    /// Its queue pair.
    pub pair: &'a Connected<'a>,
    /// Where its writes complete.
    pub queue: &'a Queue<'a>,
    /// Two halves of [`Side::size`] bytes: the peer writes the first, this side sends the second.
    pub memory: &'a Memory<'a>,
    /// Bytes of a message.
    pub size: usize,
    /// Where the peer's first half is.
    pub to: u64,
    /// What the peer's memory is named by.
    pub rkey: u32,
    /// Whether this side writes first.
    pub first: bool,
    /// Whether the run is to be given up.
    pub called: &'a dyn Fn() -> bool,
}

/// Why a run did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// A call failed.
    #[error("{0}")]
    Verbs(#[from] verbs::Error),
    /// A write did.
    #[error("message {message}: {text} (status {status}, vendor_err {vendor_err:#x})")]
    Write {
        /// Which one, from 1.
        message: u64,
        /// `enum ibv_wc_status`
        status: u32,
        /// The provider's own code.
        vendor_err: u32,
        /// What libibverbs says of the status.
        text: String,
    },
    /// Something did not come in time.
    #[error("message {message}: {what} did not come within {} s", .limit.as_secs_f64())]
    Late {
        /// Of which message, from 1.
        message: u64,
        /// What.
        what: &'static str,
        /// How long a run may take.
        limit: Duration,
    },
    /// It was given up.
    #[error("message {message}: given up, as told")]
    Stopped {
        /// At which message, from 1.
        message: u64,
    },
    /// Something else arrived than was sent.
    #[error("byte {at} of the message is {is:#04x}, {wanted:#04x} was sent")]
    Payload {
        /// The first byte that differs, from 0.
        at: usize,
        /// What it is.
        is: u8,
        /// What was sent.
        wanted: u8,
    },
}

/// How many times a place is looked at between two looks at the clock.
const SPINS: u32 = 4096;

impl Side<'_> {
    /// Makes both halves ready for a run whose bytes come from `seed`: to be done on both sides before either
    /// begins.
    pub fn arm(&self, seed: u8) {
        for at in 0..self.size {
            self.memory.write(at, 0);
            self.memory
                .write(self.size + at, pattern(seed, self.first, at));
        }
    }

    /// Exchanges `messages` each way. The times from each of this side's posts to its next, nanoseconds.
    ///
    /// # Errors
    /// A write failed, something did not come in time, or the run was given up.
    pub fn run(&self, messages: u64, limit: Duration) -> Result<Vec<u64>, Lost> {
        let deadline = Instant::now() + limit;
        let (last, own) = (self.size - 1, self.size);
        // Written once before the loop, so that no page of it comes to be in a sample.
        let mut posts = vec![deadline; usize::try_from(messages).unwrap_or(0)];
        // The other side's messages are one ahead of those that are answered, but for the first side.
        let mut received = 0;
        for (message, post) in (1..=messages).zip(&mut posts) {
            if !(self.first && message == 1) {
                received += 1;
                self.receive(last, received, deadline, limit)?;
            }
            *post = Instant::now();
            // The counter in the last byte, modulo 256, is what the peer waits for.
            self.memory.write(own + last, message as u8);
            self.pair.write(
                message,
                self.memory,
                own,
                self.size as u32,
                self.to,
                self.rkey,
            )?;
            self.complete(message, deadline, limit)?;
        }
        if self.first {
            self.receive(last, messages, deadline, limit)?;
        }
        let between = |pair: &[Instant]| {
            let time = pair[1] - pair[0];
            // A run lasts minutes at most.
            time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
        };
        Ok(posts.windows(2).map(between).collect())
    }

    /// Checks the whole of the last message, out of the measured loop.
    ///
    /// # Errors
    /// A byte is not what was sent.
    pub fn check(&self, seed: u8, messages: u64) -> Result<(), Lost> {
        for at in 0..self.size {
            let wanted = if at == self.size - 1 {
                messages as u8
            } else {
                pattern(seed, !self.first, at)
            };
            let is = self.memory.read(at);
            if is != wanted {
                return Err(Lost::Payload { at, is, wanted });
            }
        }
        Ok(())
    }

    fn receive(
        &self,
        last: usize,
        message: u64,
        deadline: Instant,
        limit: Duration,
    ) -> Result<(), Lost> {
        let what = "the peer's message";
        loop {
            for _ in 0..SPINS {
                if self.memory.read(last) == message as u8 {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            // Only then, as it costs: a write of ours that failed late, or nothing for too long.
            self.completed(message)?;
            self.go_on(message, what, deadline, limit)?;
        }
    }

    /// Whether a write has completed.
    fn completed(&self, message: u64) -> Result<bool, Lost> {
        match self.queue.poll()? {
            None => Ok(false),
            Some(Completion::Done(_)) => Ok(true),
            Some(Completion::Failed {
                status,
                vendor_err,
                text,
            }) => Err(Lost::Write {
                message,
                status,
                vendor_err,
                text,
            }),
        }
    }

    fn go_on(
        &self,
        message: u64,
        what: &'static str,
        deadline: Instant,
        limit: Duration,
    ) -> Result<(), Lost> {
        if Instant::now() >= deadline {
            return Err(Lost::Late {
                message,
                what,
                limit,
            });
        }
        if (self.called)() {
            return Err(Lost::Stopped { message });
        }
        Ok(())
    }

    fn complete(&self, message: u64, deadline: Instant, limit: Duration) -> Result<(), Lost> {
        let what = "the completion of the write";
        loop {
            for _ in 0..SPINS {
                if self.completed(message)? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            self.go_on(message, what, deadline, limit)?;
        }
    }
}

/// The byte at `at` of what a side sends: another one for each side, run and place.
fn pattern(seed: u8, first: bool, at: usize) -> u8 {
    let side = if first { 0x00 } else { 0x5a };
    (at as u8)
        .wrapping_mul(31)
        .wrapping_add((at >> 8) as u8)
        .wrapping_add(seed)
        ^ side
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_differs_by_side_by_run_and_by_place() {
        let message = |seed, first| {
            (0..4096)
                .map(|at| pattern(seed, first, at))
                .collect::<Vec<_>>()
        };
        assert_ne!(message(1, true), message(1, false));
        assert_ne!(message(1, true), message(2, true));
        // A page that came in the place of another is seen.
        assert_ne!(message(1, true)[..1024], message(1, true)[1024..2048]);
    }
}
