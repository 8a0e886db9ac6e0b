//! Commit times, and the expiries that follow from them.
//!
//! The time of a record is never lower than the time of the previous record, even if the clock is set back,
//! so a time identifies a position in the log. If the clock is set back, commit times stand still until the
//! clock has caught up.

use std::sync::Arc;
use std::time::Duration;

use crate::expiry::{DueVersion, Expiry};
use crate::history::Version;
use crate::io::Clock;
use crate::types::CommitTime;

/// Assigns commit times, and registers the commits that expire.
pub(crate) struct Times {
    clock: Arc<dyn Clock>,
    expiry: Arc<Expiry>,
    /// The last assigned time.
    last: CommitTime,
}

impl Times {
    /// Continues after `last`, the time of the newest record.
    pub fn new(clock: Arc<dyn Clock>, last: CommitTime, expiry: Arc<Expiry>) -> Times {
        Times { clock, expiry, last }
    }

    /// Registers the committed `version` for expiry, if it expires.
    pub fn committed(&self, version: &Version) {
        if let Some(due) = DueVersion::from_newest(version) {
            self.expiry.add(due);
        }
    }

    /// Returns the last assigned time.
    pub fn last(&self) -> CommitTime {
        self.last
    }

    /// Assigns a time to a commit that takes place now, and returns the time.
    pub fn next(&mut self) -> CommitTime {
        let now_ms = self.clock.now_ms().min(CommitTime::END.ms() - 1);
        self.last = CommitTime::from_ms(now_ms).max(self.last);
        self.last
    }
}

/// Returns the first full second since 1970 at which a state committed at `time` has lived for `ttl`.
pub(crate) fn expiry_s(time: CommitTime, ttl: Duration) -> u32 {
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    let expires_s = time.ms().saturating_add(ttl_ms).div_ceil(1_000);
    // 0 means never, so the result is at least 1. The highest value lies in 2106.
    u32::try_from(expires_s).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now_ms(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn commit_times_never_decrease() {
        let clock = Arc::new(Hand(AtomicU64::new(0)));
        let mut times = Times::new(clock.clone(), CommitTime::from_ms(50), Arc::new(Expiry::new(Vec::new())));
        for (shown, given) in [(60, 60), (55, 60), (0, 60), (61, 61), (u64::MAX, CommitTime::END.ms() - 1)] {
            clock.0.store(shown, Ordering::Relaxed);
            assert_eq!(times.next().ms(), given, "{shown}");
        }
    }

    #[test]
    fn a_state_expires_in_full_seconds_rounded_up() {
        for (time_ms, ttl_ms, expires_s) in [
            (10_000, 5_000, 15),
            (10_001, 5_000, 16),
            (10_999, 1, 11),
            (0, 0, 1),
            (CommitTime::END.ms() - 1, 0, u32::MAX),
            (10_000, u64::MAX, u32::MAX),
        ] {
            assert_eq!(
                expiry_s(CommitTime::from_ms(time_ms), Duration::from_millis(ttl_ms)),
                expires_s,
                "{time_ms} + {ttl_ms}"
            );
        }
        assert_eq!(expiry_s(CommitTime::from_ms(1), Duration::MAX), u32::MAX);
    }
}
