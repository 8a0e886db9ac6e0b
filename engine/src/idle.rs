//! Idle detection: after a second without a commit, the store notes in the log that the whole log is durable.
//!
//! Each record proves that the records before it are durable, but no record follows the last batch. While the
//! engine runs, the last batch cannot be distinguished from a batch that is being written, and after a crash
//! damage in the last batch cannot be distinguished from a torn tail. Under load, the next record follows
//! after some milliseconds. On an idle store no record follows, so the store writes a note that proves the
//! same.

use std::time::Duration;

use crate::types::Revision;

/// Time without a commit after which a store is idle. An additional sync each second is negligible compared
/// to the syncs of commits.
const IDLE: Duration = Duration::from_secs(1);

/// Tracker of the time since the last commit of a store.
#[derive(Debug)]
pub(crate) struct Idle {
    /// The newest revision at the last check.
    revision: Revision,
    /// Time of the first check that found this revision, in milliseconds since 1970; `None` if a note already
    /// covers the revision.
    since_ms: Option<u64>,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoteDue {
    /// No note is due before this time has passed.
    In(Duration),
    /// The note must be written now.
    Now,
}

impl Idle {
    /// Creates the tracker of a store with a note that the log is durable up to `noted`.
    pub fn new(noted: Revision) -> Idle {
        Idle { revision: noted, since_ms: None }
    }

    /// Checks a store whose newest revision is `revision`.
    pub fn check(&mut self, revision: Revision, now_ms: u64) -> NoteDue {
        if revision != self.revision {
            *self = Idle { revision, since_ms: Some(now_ms) };
        }
        let Some(since_ms) = self.since_ms else { return NoteDue::In(IDLE) };
        // If the clock was set back, the interval begins anew.
        let since_ms = since_ms.min(now_ms);
        self.since_ms = Some(since_ms);
        let left = IDLE.saturating_sub(Duration::from_millis(now_ms - since_ms));
        if left.is_zero() { NoteDue::Now } else { NoteDue::In(left) }
    }

    /// Records that the note covers the revision of the last check.
    pub fn mark_noted(&mut self) {
        self.since_ms = None;
    }

    /// Records that the note could not be written, so that a later check returns [`NoteDue::Now`] again.
    pub fn mark_failed(&mut self, now_ms: u64) {
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
                0 => NoteDue::Now,
                ms => NoteDue::In(Duration::from_millis(ms)),
            };
            assert_eq!(idle.check(Revision::new(revision), now_ms), want, "revision {revision} at {now_ms}");
        }
        idle.mark_failed(41_000);
        assert_eq!(idle.check(Revision::new(9), 41_500), NoteDue::In(Duration::from_millis(500)));
        idle.mark_noted();
        assert_eq!(idle.check(Revision::new(9), 99_000), NoteDue::In(IDLE), "once is enough");
        assert_eq!(idle.check(Revision::new(10), 99_000), NoteDue::In(IDLE));
        assert_eq!(idle.check(Revision::new(10), 100_000), NoteDue::Now);
    }
}
