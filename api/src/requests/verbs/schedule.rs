//! Decides when a watch sends a bookmark, and when the watch ends (docs/api/watches.md#bookmarks,
//! #watch-transport). Both decisions depend only on time.

use std::time::Duration;

use tokio::time::Instant;

/// Interval of bookmarks.
const EVERY: Duration = Duration::from_secs(60);

/// Time between the last bookmark and the end of a watch. The client continues from this bookmark with its
/// next watch.
const BEFORE_END: Duration = Duration::from_secs(2);

/// The times of bookmarks and of the end of one watch.
#[derive(Debug)]
pub struct Schedule {
    end: Instant,
    /// Time of the next bookmark; `None` if no further bookmarks are sent.
    next: Option<Instant>,
}

impl Schedule {
    /// Creates the schedule of a watch that begins `now` and lasts `duration`, with or without bookmarks. A
    /// watch that is not longer than `BEFORE_END` has no bookmarks.
    pub fn new(now: Instant, duration: Duration, bookmarks: bool) -> Self {
        let mut schedule = Schedule { end: now + duration, next: None };
        if bookmarks {
            schedule.next = schedule.after(now);
        }
        schedule
    }

    /// Returns the time at which the watch must act even without events.
    pub fn wake_at(&self) -> Instant {
        self.next.map_or(self.end, |next| next.min(self.end))
    }

    /// Returns whether the watch is over.
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.end
    }

    /// Returns whether a bookmark is due. If a bookmark is due, schedules the next bookmark.
    pub fn take_bookmark(&mut self, now: Instant) -> bool {
        let is_due = self.next.is_some_and(|next| next <= now);
        if is_due {
            self.next = self.after(now);
        }
        is_due
    }

    /// Returns the time of the first bookmark after `now`.
    fn after(&self, now: Instant) -> Option<Instant> {
        let last = self.end.checked_sub(BEFORE_END).filter(|last| *last > now)?;
        Some(last.min(now + EVERY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_are_sent_every_minute_and_two_seconds_before_the_timeout() {
        for (section, lasts, bookmarks, want) in [
            ("bookmarks", 150, true, vec![60, 120, 148]),
            ("bookmarks", 120, true, vec![60, 118]),
            ("bookmarks", 62, true, vec![60]),
            ("bookmarks", 63, true, vec![60, 61]),
            ("bookmarks", 10, true, vec![8]),
            ("bookmarks", 3, true, vec![1]),
            ("bookmarks", 2, true, vec![]),
            ("bookmarks", 1, true, vec![]),
            ("watch-transport", 0, true, vec![]),
            ("bookmarks", 150, false, vec![]),
        ] {
            let start = Instant::now();
            let at = |now: Instant| (now - start).as_secs();
            let mut schedule = Schedule::new(start, Duration::from_secs(lasts), bookmarks);
            let mut times = Vec::new();
            loop {
                let now = schedule.wake_at();
                if schedule.is_over(now) {
                    assert_eq!(at(now), lasts, "watch-transport {lasts}");
                    break;
                }
                assert!(schedule.take_bookmark(now), "woken for nothing");
                assert!(!schedule.take_bookmark(now), "due once");
                times.push(at(now));
            }
            assert_eq!(times, want, "{section} {lasts} {bookmarks}");
        }
    }

    #[test]
    fn a_delayed_watch_sends_a_single_bookmark_for_the_missed_times() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, Duration::from_secs(1000), true);
        let late = start + Duration::from_secs(350);
        assert!(schedule.take_bookmark(late));
        assert_eq!(schedule.wake_at(), late + EVERY);
    }
}
