//! Idle detection: when a store has had no commit for a second, its log gets a note that all of it is on disk.
//!
//! Each record makes those before it known durable; the last batch has no later record. Beside a running engine it could
//! not be told from a batch being written, and after a crash its damage could not be told from a torn end. Under load that
//! lasts milliseconds; on an idle store it would last as long as the store is idle, so the note takes the record's place.

use std::time::Duration;

use crate::types::Revision;

/// Without a commit for so long, a store is idle. One sync more in a second is nothing beside those of commits.
const IDLE: Duration = Duration::from_secs(1);

/// What is known of how long a store has been left alone.
#[derive(Debug)]
pub(crate) struct Idle {
    /// The newest revision when it was looked at.
    revision: Revision,
    /// When it was looked at first, in milliseconds since 1970; `None`: it is noted already.
    since_ms: Option<u64>,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Due {
    /// Nothing before so long.
    In(Duration),
    /// To note it.
    Now,
}

impl Idle {
    /// A store that is noted to be on disk up to `noted`.
    pub fn new(noted: Revision) -> Idle {
        Idle { revision: noted, since_ms: None }
    }

    /// Looks at a store whose newest revision is `revision`.
    pub fn look(&mut self, revision: Revision, now_ms: u64) -> Due {
        if revision != self.revision {
            *self = Idle { revision, since_ms: Some(now_ms) };
        }
        let Some(since_ms) = self.since_ms else { return Due::In(IDLE) };
        // A clock that was set back begins anew.
        let since_ms = since_ms.min(now_ms);
        self.since_ms = Some(since_ms);
        let left = IDLE.saturating_sub(Duration::from_millis(now_ms - since_ms));
        if left.is_zero() { Due::Now } else { Due::In(left) }
    }

    /// It is noted up to the revision looked at last.
    pub fn noted(&mut self) {
        self.since_ms = None;
    }

    /// It could not be noted: it will be tried again.
    pub fn failed(&mut self, now_ms: u64) {
        self.since_ms = Some(now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_idle_a_second_after_its_newest_revision_was_seen() {
        let mut idle = Idle::new(Revision::new(7));
        for (revision, now_ms, due_in_ms) in [
            (7, 50_000, 1_000),
            (8, 50_100, 1_000),
            (8, 50_900, 200),
            (9, 51_000, 1_000),
            (9, 51_999, 1),
            (9, 52_000, 0),
            (9, 60_000, 0),
            // The clock is set back.
            (9, 40_000, 1_000),
            (9, 41_000, 0),
        ] {
            let want = match due_in_ms {
                0 => Due::Now,
                ms => Due::In(Duration::from_millis(ms)),
            };
            assert_eq!(idle.look(Revision::new(revision), now_ms), want, "revision {revision} at {now_ms}");
        }
        idle.failed(41_000);
        assert_eq!(idle.look(Revision::new(9), 41_500), Due::In(Duration::from_millis(500)));
        idle.noted();
        assert_eq!(idle.look(Revision::new(9), 99_000), Due::In(IDLE), "once is enough");
        assert_eq!(idle.look(Revision::new(10), 99_000), Due::In(IDLE));
        assert_eq!(idle.look(Revision::new(10), 100_000), Due::Now);
    }
}
