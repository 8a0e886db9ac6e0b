//! Computes the delay after which a refused client may retry. The delay grows with the number of
//! refused requests (docs/api/fairness.md#refusals).

use std::time::{Duration, Instant};

/// Maximum delay in seconds.
const LONGEST_S: u32 = 32;

/// The delay for refused clients.
#[derive(Debug)]
pub struct RetryAfter {
    seconds: u32,
    dropped: u32,
    since: Instant,
}

impl RetryAfter {
    /// Creates the delay with an initial value of one second.
    pub fn new(now: Instant) -> RetryAfter {
        RetryAfter { seconds: 1, dropped: 0, since: now }
    }

    /// Counts a refusal, and returns the seconds to wait.
    pub fn dropped(&mut self, now: Instant) -> u32 {
        if now.saturating_duration_since(self.since) >= Duration::from_secs(self.seconds.into()) {
            if self.dropped >= 3 * self.seconds {
                self.seconds = (self.seconds * 2).min(LONGEST_S);
            } else if self.dropped < self.seconds {
                self.seconds = (self.seconds - 1).max(1);
            }
            (self.dropped, self.since) = (0, now);
        }
        self.dropped += 1;
        self.seconds
    }
}
