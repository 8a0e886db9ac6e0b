//! Reclaim at work, one segment after the other; what it does is in `reclaim.rs`.
//!
//! ```text
//! Resting ─► Copying ─► Telling ─► Replacing ─► Resting
//!            in small    adopted;    the log does without the sources,
//!            steps       the index   which are retired
//!                        is told
//! ```
//!
//! Whatever fails leads back to rest: until the sources are replaced they are what counts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{NAP_MAX, RETRY, Tools, Turn};
use crate::chores::{CHORE_KEYS_MAX, Chore};
use crate::pace::Pace;
use crate::reclaim::{self, Candidate, Finished, Rewrite, Step};
use crate::segment::{Segment, Walk};
use crate::snapshot::Root;

/// Bytes that reclaim copies in a second when there is no hurry: little beside what a disk does, and in small
/// steps, so that commits pass in between.
const RECLAIM_BYTES_PER_SECOND: u64 = 32 * 1024 * 1024;

/// How far it is.
#[derive(Default)]
pub(super) struct Reclaiming {
    stage: Stage,
    /// Segments that damage keeps from being written anew.
    stuck: Vec<u32>,
    /// When it goes on, in milliseconds since 1970.
    next_at_ms: u64,
    /// Bytes that were copied since it last rested, times a thousand.
    unrested: u64,
    /// Segments that the log does without since somebody asked last.
    retired: Vec<Arc<Segment>>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Resting,
    Copying(Rewrite),
    /// The segment is adopted, the index is being told.
    Telling {
        finished: Finished,
        walk: Option<Walk>,
    },
    /// All moves are told and the chore that makes it count is asked for.
    Replacing(Finished),
}

impl Reclaiming {
    /// Whether nothing is under way.
    pub fn is_at_rest(&self, now_ms: u64) -> bool {
        now_ms >= self.next_at_ms && !self.is_under_way()
    }

    /// Whether more may be retired soon.
    pub fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::Resting)
    }

    /// Whether the index may refer to a segment that is no part of the log yet.
    pub fn is_moving(&self) -> bool {
        matches!(self.stage, Stage::Telling { .. } | Stage::Replacing(_))
    }

    /// Takes the segments that the log does without since this was called last.
    pub fn take_retired(&mut self) -> Vec<Arc<Segment>> {
        std::mem::take(&mut self.retired)
    }

    /// Writes segments anew that are mostly dead.
    pub fn turn(&mut self, tools: &Tools, now_ms: u64) -> Turn {
        if now_ms < self.next_at_ms {
            return Turn::Idle(Duration::from_millis(self.next_at_ms - now_ms));
        }
        match std::mem::replace(&mut self.stage, Stage::Resting) {
            Stage::Resting => self.begin(tools, now_ms),
            Stage::Copying(rewrite) => self.copy(rewrite, tools, now_ms),
            Stage::Telling { mut finished, walk } => {
                if !finished.unneeded.is_empty() {
                    let rest = finished.unneeded.split_off(finished.unneeded.len().min(CHORE_KEYS_MAX));
                    let keys = std::mem::replace(&mut finished.unneeded, rest);
                    tools.queue.ask(Chore::PruneFully(keys));
                    self.stage = Stage::Telling { finished, walk };
                    return Turn::Waiting;
                }
                let mut walk = match walk.map_or_else(|| finished.walk(), Ok) {
                    Ok(walk) => walk,
                    Err(error) => return self.give_up(&error, tools, now_ms),
                };
                let moves = finished.moves(&mut walk, CHORE_KEYS_MAX);
                if moves.is_empty() {
                    tools.queue.ask(Chore::Replace(finished.segment.clone()));
                    self.stage = Stage::Replacing(finished);
                } else {
                    tools.queue.ask(Chore::Move(moves));
                    self.stage = Stage::Telling { finished, walk: Some(walk) };
                }
                Turn::Waiting
            }
            Stage::Replacing(finished) => {
                let root = tools.hub.root();
                let number = finished.segment.header.number;
                if root.segments.in_order().iter().any(|segment| segment.header.number == number) {
                    self.retired.extend(finished.sources);
                } else {
                    debug_assert!(false, "the index refers to a segment that was written anew");
                    tracing::error!(number, "the index refers to a segment that was written anew; it stays");
                    self.stuck.extend(finished.sources.iter().map(|source| source.header.number));
                }
                Turn::Worked
            }
        }
    }

    fn begin(&mut self, tools: &Tools, now_ms: u64) -> Turn {
        let root = tools.hub.root();
        let candidates = candidates(&root, &self.stuck);
        let Some(range) = reclaim::choose(&candidates, tools.segment_bytes) else {
            return Turn::Idle(NAP_MAX);
        };
        match Rewrite::begin(&*tools.storage, Pace::new(tools.clock.clone()), root, range) {
            Ok(rewrite) => {
                self.stage = Stage::Copying(rewrite);
                Turn::Worked
            }
            Err(error) => self.give_up(&error, tools, now_ms),
        }
    }

    fn copy(&mut self, mut rewrite: Rewrite, tools: &Tools, now_ms: u64) -> Turn {
        let before = rewrite.written();
        let step = rewrite.step();
        let written = rewrite.written() - before;
        tools.vitals.rewritten_bytes.fetch_add(written, Ordering::Relaxed);
        self.next_at_ms = now_ms + self.pause_ms(written, rate(&tools.hub.root()));
        match step {
            Ok(Step::More) => {
                self.stage = Stage::Copying(rewrite);
                Turn::Worked
            }
            Ok(Step::Complete) => match rewrite.finish(&*tools.storage, &tools.numbers) {
                Ok(finished) => {
                    tools.queue.ask(Chore::Adopt(finished.segment.clone()));
                    self.stage = Stage::Telling { finished, walk: None };
                    Turn::Waiting
                }
                Err(error) => self.give_up(&error, tools, now_ms),
            },
            Ok(Step::Damaged) => {
                self.stuck.extend(rewrite.source_numbers());
                let damaged = io::Error::other("a segment is damaged and stays as it is");
                self.give_up(&damaged, tools, now_ms)
            }
            Err(error) => self.give_up(&error, tools, now_ms),
        }
    }

    /// Milliseconds to rest after `written` bytes more at that rate; what is less than one is kept in mind.
    fn pause_ms(&mut self, written: u64, bytes_per_second: u64) -> u64 {
        self.unrested += written * 1_000;
        let pause = self.unrested / bytes_per_second;
        self.unrested %= bytes_per_second;
        pause
    }

    fn give_up(&mut self, error: &io::Error, tools: &Tools, now_ms: u64) -> Turn {
        tracing::warn!("cannot give space back at present: {error}");
        // Opening would remove it as well.
        let _ = tools.storage.remove(reclaim::NEXT_NAME);
        self.stage = Stage::Resting;
        self.next_at_ms = now_ms + RETRY.as_millis() as u64;
        Turn::Worked
    }
}

/// Bytes to be copied in a second: as many as it takes not to fall behind.
fn rate(root: &Root) -> u64 {
    let bytes: u64 = root.segments.in_order().iter().map(|segment| segment.record_bytes()).sum();
    let live: u64 = root.segments.all().iter().map(|segment| segment.live()).sum();
    bytes_per_second(bytes, live)
}

/// Bytes that reclaim may copy in a second, when the log has `bytes` bytes of records and `live` of them are live:
/// more the more is dead.
fn bytes_per_second(bytes: u64, live: u64) -> u64 {
    // In quarters of what is live.
    match bytes.saturating_mul(4) / live.max(1) {
        0..6 => RECLAIM_BYTES_PER_SECOND,
        6..12 => 4 * RECLAIM_BYTES_PER_SECOND,
        _ => u64::MAX / 1_000,
    }
}

/// What each segment of the log but the last may give back.
fn candidates(root: &Root, stuck: &[u32]) -> Vec<Candidate> {
    let in_order = root.segments.in_order();
    (0..in_order.len().saturating_sub(1))
        .map(|at| {
            let candidate = Candidate::of(in_order, at, root.oldest);
            let stuck = stuck.contains(&in_order[at].header.number);
            Candidate { forgotten: candidate.forgotten && !stuck, ..candidate }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_add_up_however_small_the_steps() {
        for step in [1_000, 40_000, 300_000] {
            let mut reclaiming = Reclaiming::default();
            let steps = RECLAIM_BYTES_PER_SECOND / step;
            let paused: u64 = (0..steps).map(|_| reclaiming.pause_ms(step, RECLAIM_BYTES_PER_SECOND)).sum();
            assert!((990..=1_000).contains(&paused), "{paused} ms in steps of {step}");
        }
    }

    #[test]
    fn reclaim_hurries_when_most_is_dead() {
        let usual = RECLAIM_BYTES_PER_SECOND;
        for (bytes, live, expected) in [
            (0, 0, usual),
            (100, 100, usual),
            (149, 100, usual),
            (150, 100, 4 * usual),
            (299, 100, 4 * usual),
            (300, 100, u64::MAX / 1_000),
        ] {
            assert_eq!(bytes_per_second(bytes, live), expected, "{live} of {bytes}");
        }
    }
}
