//! When a refused client may come again: the later, the more are refused (docs/api/fairness.md#refusals).

use std::time::{Duration, Instant};

/// Longest time that a client is asked to wait.
const LONGEST_S: u32 = 32;

/// The time that refused clients are asked to wait.
#[derive(Debug)]
pub struct RetryAfter {
    seconds: u32,
    dropped: u32,
    since: Instant,
}

impl RetryAfter {
    /// A second at first.
    pub fn new(now: Instant) -> RetryAfter {
        RetryAfter { seconds: 1, dropped: 0, since: now }
    }

    /// Counts a refusal; returns the seconds to wait.
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
