//! The reclamation part of maintenance: drives one rewrite after the other; `reclaim.rs` does the rewriting.
//!
//! ```text
//! Resting ─► Copying ─► Copied ─► Relocating ─► Replacing ─► Resting
//!            in small   and on    adopted;       the sources leave the log
//!            steps      disk      the index      and are retired
//!                                 is updated
//! ```
//!
//! Copying continues while the sequencer carries out a maintenance step of any part; the later stages need
//! maintenance steps of their own. Every failure leads back to `Resting`: until the sources are replaced,
//! they are part of the log.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::rate::Rate;
use super::{NAP_MAX, RETRY, Tools, Turn};
use crate::io::is_disk_full;
use crate::reclaim::{self, FinishedRewrite, Rewrite, RewriteCandidate, RewriteStep};
use crate::segment::{Segment, Walk};
use crate::snapshot::Root;
use crate::steps::MaintenanceStep;
use crate::throttle::WriteThrottle;
use crate::types::SegmentNumber;

/// State of the reclamation part.
#[derive(Default)]
pub(super) struct Reclaiming {
    stage: RewriteStage,
    /// Segments that cannot be rewritten because of damage.
    stuck: Vec<SegmentNumber>,
    /// Segments whose copies did not fit on a full disk. These segments are tried again once another segment
    /// was rewritten, or after some time.
    unfit: Vec<SegmentNumber>,
    /// Time of the next work, in milliseconds since 1970.
    next_at_ms: u64,
    /// Segments that left the log since the last call of [`Reclaiming::take_retired`].
    retired: Vec<Arc<Segment>>,
}

#[derive(Default)]
enum RewriteStage {
    #[default]
    Resting,
    Copying(Rewrite),
    /// Every record is copied.
    Copied(Rewrite),
    /// The segment is adopted, and the index is being updated.
    Relocating {
        finished: FinishedRewrite,
        walk: Option<Walk>,
    },
    /// All moves are done, and the step that puts the segment into the log is requested.
    Replacing(FinishedRewrite),
}

impl Reclaiming {
    /// Returns whether no rewrite is in progress.
    pub fn is_at_rest(&self, now_ms: u64) -> bool {
        now_ms >= self.next_at_ms && !self.is_under_way()
    }

    /// Returns whether more segments may be retired soon.
    pub fn is_under_way(&self) -> bool {
        !matches!(self.stage, RewriteStage::Resting)
    }

    /// Returns whether the index may refer to a segment that is not part of the log yet.
    pub fn is_moving(&self) -> bool {
        matches!(self.stage, RewriteStage::Relocating { .. } | RewriteStage::Replacing(_))
    }

    /// Takes the segments that left the log since the last call.
    pub fn take_retired(&mut self) -> Vec<Arc<Segment>> {
        std::mem::take(&mut self.retired)
    }

    /// Rewrites segments that are mostly dead, at the given rate.
    pub fn turn(&mut self, tools: &Tools, rate: &mut Rate, now_ms: u64) -> Turn {
        if now_ms < self.next_at_ms {
            return Turn::Idle(Duration::from_millis(self.next_at_ms - now_ms));
        }
        if matches!(self.stage, RewriteStage::Copying(_))
            && !tools.is_short_of_room()
            && let Some(rest) = rate.pause(now_ms)
        {
            return Turn::Idle(rest);
        }
        // From this stage on, every turn needs a maintenance step.
        if !matches!(self.stage, RewriteStage::Resting | RewriteStage::Copying(_)) && !tools.queue.is_free() {
            return Turn::Waiting;
        }
        match std::mem::replace(&mut self.stage, RewriteStage::Resting) {
            RewriteStage::Resting => self.begin(tools, now_ms),
            RewriteStage::Copying(rewrite) => self.copy(rewrite, tools, rate, now_ms),
            RewriteStage::Copied(rewrite) => {
                match rewrite.finish(&*tools.storage, &tools.numbers, &tools.reserve) {
                    Ok(finished) => {
                        tools.queue.request_step(MaintenanceStep::Adopt(finished.segment.clone()));
                        self.stage = RewriteStage::Relocating { finished, walk: None };
                        Turn::Waiting
                    }
                    Err(error) => self.give_up(&error, tools, now_ms),
                }
            }
            RewriteStage::Relocating { mut finished, walk } => {
                if !finished.unneeded.is_empty() {
                    let rest = finished.unneeded.split_off(finished.unneeded.len().min(rate.step_keys()));
                    let keys = std::mem::replace(&mut finished.unneeded, rest);
                    tools.queue.request_step(MaintenanceStep::PruneFully(keys));
                    self.stage = RewriteStage::Relocating { finished, walk };
                    return Turn::Waiting;
                }
                let mut walk = match walk.map_or_else(|| finished.walk(), Ok) {
                    Ok(walk) => walk,
                    Err(error) => return self.give_up(&error, tools, now_ms),
                };
                let moves = finished.moves(&mut walk, rate.step_keys());
                if moves.is_empty() {
                    tools.queue.request_step(MaintenanceStep::Replace(finished.segment.clone()));
                    self.stage = RewriteStage::Replacing(finished);
                } else {
                    tools.queue.request_step(MaintenanceStep::Move(moves));
                    self.stage = RewriteStage::Relocating { finished, walk: Some(walk) };
                }
                Turn::Waiting
            }
            RewriteStage::Replacing(finished) => {
                let root = tools.hub.root();
                let number = finished.segment.header.number;
                if root.segments.in_order().iter().any(|segment| segment.header.number == number) {
                    self.retired.extend(finished.sources);
                    self.unfit.clear();
                } else {
                    debug_assert!(false, "the index still refers to a rewritten segment");
                    tracing::error!(
                        number = number.get(),
                        "the index still refers to a rewritten segment, which is kept"
                    );
                    self.stuck.extend(finished.sources.iter().map(|source| source.header.number));
                }
                Turn::Worked
            }
        }
    }

    fn begin(&mut self, tools: &Tools, now_ms: u64) -> Turn {
        let root = tools.hub.root();
        let passed_over = [&self.stuck[..], &self.unfit[..]].concat();
        let candidates = candidates(&root, &passed_over);
        let chosen = if tools.is_short_of_room() {
            let free = tools.storage.free_bytes().unwrap_or(0) / 2;
            reclaim::choose_on_full(&candidates, free.saturating_add(tools.reserve.copy_bytes()))
        } else {
            reclaim::choose(&candidates, tools.segment_bytes)
        };
        let Some(range) = chosen else {
            if !self.unfit.is_empty() {
                self.unfit.clear();
                self.next_at_ms = now_ms + RETRY.as_millis() as u64;
            }
            return Turn::Idle(NAP_MAX);
        };
        match Rewrite::begin(&*tools.storage, WriteThrottle::new(tools.clock.clone()), root, range) {
            Ok(rewrite) => {
                self.stage = RewriteStage::Copying(rewrite);
                Turn::Worked
            }
            Err(error) => self.give_up(&error, tools, now_ms),
        }
    }

    fn copy(&mut self, mut rewrite: Rewrite, tools: &Tools, rate: &mut Rate, now_ms: u64) -> Turn {
        let before = rewrite.written();
        let step = rewrite.step(&tools.reserve);
        let written = rewrite.written() - before;
        tools.status.rewritten_bytes.fetch_add(written, Ordering::Relaxed);
        rate.wrote(written, now_ms);
        match step {
            Ok(RewriteStep::More) => {
                self.stage = RewriteStage::Copying(rewrite);
                Turn::Worked
            }
            Ok(RewriteStep::Complete) => {
                self.stage = RewriteStage::Copied(rewrite);
                Turn::Worked
            }
            Ok(RewriteStep::Damaged) => {
                self.stuck.extend(rewrite.source_numbers());
                let damaged = io::Error::other("a segment is damaged and stays as it is");
                self.give_up(&damaged, tools, now_ms)
            }
            Err(error) => {
                if is_disk_full(&error) {
                    self.unfit.extend(rewrite.source_numbers());
                }
                self.give_up(&error, tools, now_ms)
            }
        }
    }

    fn give_up(&mut self, error: &io::Error, tools: &Tools, now_ms: u64) -> Turn {
        tracing::warn!("reclamation failed, trying again later: {error}");
        // If the removal fails, the next opening removes the file.
        let _ = tools.storage.remove(reclaim::NEXT_NAME);
        self.stage = RewriteStage::Resting;
        tools.reserve.fill_copies();
        // Another segment may need less room.
        let may_go_on = tools.is_short_of_room() && is_disk_full(error) && !self.unfit.is_empty();
        self.next_at_ms = if may_go_on { now_ms } else { now_ms + RETRY.as_millis() as u64 };
        Turn::Worked
    }
}

/// Returns the candidates for a rewrite: all segments of the log except the last one.
fn candidates(root: &Root, stuck: &[SegmentNumber]) -> Vec<RewriteCandidate> {
    let in_order = root.segments.in_order();
    (0..in_order.len().saturating_sub(1))
        .map(|at| {
            let candidate = RewriteCandidate::from_log(in_order, at, root.oldest);
            let stuck = stuck.contains(&in_order[at].header.number);
            RewriteCandidate { forgotten: candidate.forgotten && !stuck, ..candidate }
        })
        .collect()
}
