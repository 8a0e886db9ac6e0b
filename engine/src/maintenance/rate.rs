//! Maintenance rate: how fast maintenance may use the disk so that writers are not delayed and maintenance keeps up.
//!
//! `bytes of the log and live ones, bytes committed → bytes in a second → after each piece, how long to rest`
//!
//! A lone writer notices each piece that is written while it waits for the disk; so the parts of the work then wait for
//! each other's steps, and for each piece. Many concurrent writers each wait for a whole batch anyway and make more work:
//! then all parts run side by side.

use std::time::Duration;

use crate::snapshot::Root;
use crate::steps::{STEP_KEYS, STEP_KEYS_MAX};

/// Bytes that maintenance writes in a second beside a few commits. In small steps, so that these pass in between.
const QUIET_BYTES_PER_SECOND: u64 = 32 * 1024 * 1024;

/// Commits in a batch from which on they are many.
const MANY: u64 = 8;

/// How long what was found holds.
const LOOK_MS: u64 = 100;

/// The rate, looked at from time to time, and the rests that keep all parts of maintenance to it together.
#[derive(Default)]
pub(super) struct Rate {
    /// When it was looked at, in milliseconds since 1970; 0: never.
    looked_at_ms: u64,
    /// What had been committed then.
    committed: Tally,
    /// Bytes committed in a second, lately.
    load: u64,
    /// Whether batches were large when it was looked at.
    pressed: bool,
    /// Whether they count as large, whatever they are.
    #[cfg(feature = "fault")]
    held: bool,
    bytes_per_second: u64,
    /// Bytes that were written since the last rest, times a thousand.
    unrested: u64,
    /// When the rest is over, in milliseconds since 1970.
    rests_until_ms: u64,
}

/// What was committed since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub bytes: u64,
    pub commits: u64,
    pub batches: u64,
}

impl Rate {
    /// Looks, once in a while, at the store as `root` shows it and at what was committed.
    pub fn look(&mut self, root: &Root, committed: Tally, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.looked_at_ms);
        let was_set_back = now_ms < self.looked_at_ms;
        if was_set_back {
            self.rests_until_ms = 0;
        } else if self.looked_at_ms > 0 && passed_ms < LOOK_MS {
            return;
        } else if self.looked_at_ms > 0 {
            let before = self.committed;
            let lately = (committed.bytes - before.bytes).saturating_mul(1_000) / passed_ms;
            self.load = self.load / 2 + lately / 2;
            let batches = committed.batches - before.batches;
            self.pressed = batches > 0 && (committed.commits - before.commits) / batches >= MANY;
        }
        (self.looked_at_ms, self.committed) = (now_ms, committed);
        let bytes: u64 = root.segments.in_order().iter().map(|segment| segment.record_bytes()).sum();
        let live: u64 = root.segments.all().iter().map(|segment| segment.live()).sum();
        self.bytes_per_second = bytes_per_second(bytes, live, self.load);
    }

    /// Whether many write at once.
    pub fn is_pressed(&self) -> bool {
        #[cfg(feature = "fault")]
        if self.held {
            return true;
        }
        self.pressed
    }

    /// From now on it is as if many wrote at once: a simulation has few writers.
    #[cfg(feature = "fault")]
    pub fn press(&mut self) {
        self.held = true;
    }

    /// Keys or records that a maintenance step is best about.
    pub fn step_keys(&self) -> usize {
        if self.is_pressed() { STEP_KEYS_MAX } else { STEP_KEYS }
    }

    /// How long nothing is to be written yet.
    pub fn rest(&self, now_ms: u64) -> Option<Duration> {
        let left = self.rests_until_ms.saturating_sub(now_ms);
        (left > 0).then_some(Duration::from_millis(left))
    }

    /// Hears that `bytes` were written. A rest of less than a millisecond is kept in mind.
    pub fn wrote(&mut self, bytes: u64, now_ms: u64) {
        self.unrested += bytes * 1_000;
        self.rests_until_ms = now_ms + self.unrested / self.bytes_per_second.max(1);
        self.unrested %= self.bytes_per_second.max(1);
    }
}

/// Bytes that maintenance may write in a second, when the log has `bytes` bytes of records, `live` of them are live, and `load`
/// more are committed in a second: more the more is dead.
fn bytes_per_second(bytes: u64, live: u64, load: u64) -> u64 {
    // In quarters of what is live.
    match bytes.saturating_mul(4) / live.max(1) {
        12.. => u64::MAX / 1_000,
        // No caller waits for it.
        _ if load == 0 => 4 * QUIET_BYTES_PER_SECOND,
        0..6 => QUIET_BYTES_PER_SECOND.saturating_add(load),
        // To give back a byte takes copying one and a half at the worst.
        6..12 => QUIET_BYTES_PER_SECOND.saturating_add(load.saturating_mul(2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Segments;
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
    fn rests_add_up_however_small_the_steps() {
        for step in [1_000, 40_000, 300_000] {
            let mut rate = Rate::default();
            let mut now_ms = 1_000;
            rate.look(&nothing(), Tally::default(), now_ms);
            for _ in 0..rate.bytes_per_second / step {
                rate.wrote(step, now_ms);
                now_ms += rate.rest(now_ms).map_or(0, |rest| rest.as_millis() as u64);
                assert_eq!(rate.rest(now_ms), None);
            }
            assert!((1_990..=2_000).contains(&now_ms), "{now_ms} ms in steps of {step}");
        }
    }

    #[test]
    fn maintenance_keeps_up_with_those_who_write_and_hurries_when_most_is_dead() {
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
    fn many_at_once_are_told_from_a_lone_writer() {
        let mut rate = Rate::default();
        // Commits and batches so far.
        for (at, (commits, batches, pressed)) in
            [(0, 0, false), (10, 10, false), (30, 12, true), (38, 13, true), (45, 14, false), (45, 14, false)]
                .into_iter()
                .enumerate()
        {
            rate.look(&nothing(), Tally { bytes: 0, commits, batches }, 1_000 * (at as u64 + 1));
            assert_eq!(rate.is_pressed(), pressed, "{commits} in {batches}");
            assert_eq!(rate.step_keys(), if pressed { STEP_KEYS_MAX } else { STEP_KEYS });
        }
    }

    #[test]
    fn the_load_is_what_was_committed_lately() {
        let mut rate = Rate::default();
        // Milliseconds, bytes committed so far, load.
        for (now_ms, committed, expected) in [
            (1_000, 5_000, 0), // since an unknown time
            (1_050, 9_000, 0), // too soon to look
            (2_000, 9_000, 2_000),
            (3_000, 13_000, 3_000),
            (3_099, 99_000, 3_000),
            (2_000, 13_000, 3_000), // the clock was set back
            (3_000, 13_000, 1_500),
            (4_000, 13_000, 750),
        ] {
            rate.look(&nothing(), Tally { bytes: committed, ..Tally::default() }, now_ms);
            assert_eq!(rate.load, expected, "at {now_ms}");
            assert_eq!(rate.bytes_per_second, bytes_per_second(0, 0, expected));
        }
    }
}
