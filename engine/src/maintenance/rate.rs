//! The maintenance rate: the bytes per second that maintenance may write, so that writers are not delayed and
//! maintenance keeps up.
//!
//! `bytes of the log, live bytes, committed bytes → bytes per second → pause after each piece`
//!
//! With a single writer, each piece that maintenance writes delays a commit, so the parts of maintenance run
//! one at a time and pause after each piece. With many concurrent writers, each commit waits for a large
//! batch anyway, and more maintenance is needed, so all parts run concurrently.

use std::time::Duration;

use crate::snapshot::Root;
use crate::steps::{STEP_KEYS, STEP_KEYS_MAX};

/// Bytes per second that maintenance writes when there are few commits. Maintenance writes in small steps,
/// so that commits pass in between.
const QUIET_BYTES_PER_SECOND: u64 = 32 * 1024 * 1024;

/// Minimum number of commits in a batch at which the writers count as many concurrent writers.
const MANY: u64 = 8;

/// Interval between two measurements, in milliseconds.
const MEASURE_MS: u64 = 100;

/// The rate, measured from time to time, and the pauses that keep all parts of maintenance together within
/// the rate.
#[derive(Default)]
pub(super) struct Rate {
    /// Time of the last measurement, in milliseconds since 1970; 0 before the first one.
    measured_at_ms: u64,
    /// Committed amounts at the last measurement.
    committed: CommitTally,
    /// Bytes committed per second, as a moving average.
    load: u64,
    /// Whether batches were large at the last measurement.
    has_many_writers: bool,
    /// Whether batches always count as large.
    #[cfg(feature = "fault")]
    assumes_many_writers: bool,
    bytes_per_second: u64,
    /// Bytes written since the last pause, times a thousand.
    unpaused: u64,
    /// End of the pause, in milliseconds since 1970.
    paused_until_ms: u64,
}

/// Amounts committed since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CommitTally {
    pub bytes: u64,
    pub commits: u64,
    pub batches: u64,
}

impl Rate {
    /// Computes the rate from `root` and the committed amounts, if the last measurement is old enough.
    pub fn measure(&mut self, root: &Root, committed: CommitTally, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.measured_at_ms);
        let was_set_back = now_ms < self.measured_at_ms;
        if was_set_back {
            self.paused_until_ms = 0;
        } else if self.measured_at_ms > 0 && passed_ms < MEASURE_MS {
            return;
        } else if self.measured_at_ms > 0 {
            let before = self.committed;
            let lately = (committed.bytes - before.bytes).saturating_mul(1_000) / passed_ms;
            self.load = self.load / 2 + lately / 2;
            let batches = committed.batches - before.batches;
            self.has_many_writers = batches > 0 && (committed.commits - before.commits) / batches >= MANY;
        }
        (self.measured_at_ms, self.committed) = (now_ms, committed);
        let bytes: u64 = root.segments.in_order().iter().map(|segment| segment.record_bytes()).sum();
        let live: u64 = root.segments.all().iter().map(|segment| segment.live()).sum();
        self.bytes_per_second = bytes_per_second(bytes, live, self.load);
    }

    /// Returns whether there are many concurrent writers.
    pub fn has_many_writers(&self) -> bool {
        #[cfg(feature = "fault")]
        if self.assumes_many_writers {
            return true;
        }
        self.has_many_writers
    }

    /// Makes maintenance behave as if there were always many concurrent writers, because a simulation has
    /// few.
    #[cfg(feature = "fault")]
    pub fn assume_many_writers(&mut self) {
        self.assumes_many_writers = true;
    }

    /// Returns the best number of keys or records for a maintenance step.
    pub fn step_keys(&self) -> usize {
        if self.has_many_writers() { STEP_KEYS_MAX } else { STEP_KEYS }
    }

    /// Returns the remaining time of the pause, if there is one.
    pub fn pause(&self, now_ms: u64) -> Option<Duration> {
        let left = self.paused_until_ms.saturating_sub(now_ms);
        (left > 0).then_some(Duration::from_millis(left))
    }

    /// Notes that `bytes` were written. Pauses of less than a millisecond accumulate.
    pub fn wrote(&mut self, bytes: u64, now_ms: u64) {
        self.unpaused += bytes * 1_000;
        self.paused_until_ms = now_ms + self.unpaused / self.bytes_per_second.max(1);
        self.unpaused %= self.bytes_per_second.max(1);
    }
}

/// Returns the bytes that maintenance may write per second, for a log of `bytes` bytes of records, of which
/// `live` are live, while `load` bytes are committed per second. The rate rises with the share of the log
/// that is dead.
fn bytes_per_second(bytes: u64, live: u64, load: u64) -> u64 {
    // The ratio of the log to its live bytes, in quarters.
    match bytes.saturating_mul(4) / live.max(1) {
        12.. => u64::MAX / 1_000,
        // No caller waits for the disk.
        _ if load == 0 => 4 * QUIET_BYTES_PER_SECOND,
        0..6 => QUIET_BYTES_PER_SECOND.saturating_add(load),
        // Freeing a byte takes at most one and a half copied bytes.
        6..12 => QUIET_BYTES_PER_SECOND.saturating_add(load.saturating_mul(2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::Segments;
    use crate::types::Revision;

    fn nothing() -> Root {
        Root {
            revision: Revision::ZERO,
            oldest: Revision::ZERO,
            tree: Default::default(),
            segments: Segments::new(vec![]),
            end: 0,
        }
    }

    #[test]
    fn maintenance_pauses_add_up_to_the_rate_for_any_step_size() {
        for step in [1_000, 40_000, 300_000] {
            let mut rate = Rate::default();
            let mut now_ms = 1_000;
            rate.measure(&nothing(), CommitTally::default(), now_ms);
            for _ in 0..rate.bytes_per_second / step {
                rate.wrote(step, now_ms);
                now_ms += rate.pause(now_ms).map_or(0, |pause| pause.as_millis() as u64);
                assert_eq!(rate.pause(now_ms), None);
            }
            assert!((1_990..=2_000).contains(&now_ms), "{now_ms} ms in steps of {step}");
        }
    }

    #[test]
    fn the_maintenance_rate_follows_the_write_load_and_rises_if_most_bytes_are_dead() {
        let quiet = QUIET_BYTES_PER_SECOND;
        for (bytes, live, load, expected) in [
            (0, 0, 0, 4 * quiet),
            (100, 100, 0, 4 * quiet),
            (149, 100, 1_000, quiet + 1_000),
            (150, 100, 0, 4 * quiet),
            (150, 100, 1_000, quiet + 2_000),
            (299, 100, 1_000, quiet + 2_000),
            (300, 100, 0, u64::MAX / 1_000),
        ] {
            assert_eq!(bytes_per_second(bytes, live, load), expected, "{live} of {bytes}, {load}");
        }
    }

    #[test]
    fn many_concurrent_writers_are_distinguished_from_a_single_writer() {
        let mut rate = Rate::default();
        // Commits and batches so far, and whether there are many writers.
        for (at, (commits, batches, has_many_writers)) in
            [(0, 0, false), (10, 10, false), (30, 12, true), (38, 13, true), (45, 14, false), (45, 14, false)]
                .into_iter()
                .enumerate()
        {
            rate.measure(&nothing(), CommitTally { bytes: 0, commits, batches }, 1_000 * (at as u64 + 1));
            assert_eq!(rate.has_many_writers(), has_many_writers, "{commits} in {batches}");
            assert_eq!(rate.step_keys(), if has_many_writers { STEP_KEYS_MAX } else { STEP_KEYS });
        }
    }

    #[test]
    fn the_load_is_the_recently_committed_bytes() {
        let mut rate = Rate::default();
        // Milliseconds, bytes committed so far, load.
        for (now_ms, committed, expected) in [
            (1_000, 5_000, 0), // no earlier measurement
            (1_050, 9_000, 0), // too soon to measure
            (2_000, 9_000, 2_000),
            (3_000, 13_000, 3_000),
            (3_099, 99_000, 3_000),
            (2_000, 13_000, 3_000), // the clock was set back
            (3_000, 13_000, 1_500),
            (4_000, 13_000, 750),
        ] {
            rate.measure(&nothing(), CommitTally { bytes: committed, ..CommitTally::default() }, now_ms);
            assert_eq!(rate.load, expected, "at {now_ms}");
            assert_eq!(rate.bytes_per_second, bytes_per_second(0, 0, expected));
        }
    }
}
