//! The checkpoint part of maintenance: writes checkpoints block by block and removes superseded files.
//!
//! `enough has changed → begin from a root → blocks → finish → remove the previous checkpoint and retired
//! segments`
//!
//! A segment that left the log is removed only when a checkpoint that was begun later is on disk. So opening
//! never finds a checkpoint that refers to missing segments.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::rate::Rate;
use super::reclaiming::Reclaiming;
use super::{NAP_MAX, RETRY, Tools, Turn};
use crate::checkpoint::{self, CheckpointMetadata, CheckpointWriter};
use crate::io::is_disk_full;
use crate::recovery::UsedCheckpoint;
use crate::sabotage;
use crate::segment::Segment;
use crate::snapshot::Root;
use crate::throttle::WriteThrottle;
use crate::types::{CommitTime, Revision};

/// State of the checkpoint part.
pub(super) struct Checkpointing {
    writer: Option<CheckpointWriter>,
    /// Time of the next attempt, in milliseconds since 1970.
    next_at_ms: u64,
    newest: Option<UsedCheckpoint>,
    /// Bytes of the log when the newest checkpoint was begun.
    log_bytes_then: u64,
    /// Number of checkpoints begun so far.
    begun: u64,
    /// Segments that left the log, each with the number of checkpoints that were begun before it left.
    retired: Vec<(Arc<Segment>, u64)>,
    /// Retired segments that no checkpoint needs. Each turn removes only one, because the file system's work
    /// for many removals at once would delay the syncs of the log.
    superseded: Vec<Arc<Segment>>,
}

impl Checkpointing {
    /// Creates the state after an opening. `newest` is the checkpoint that the opening began with.
    pub fn new(root: &Root, newest: Option<UsedCheckpoint>) -> Checkpointing {
        Checkpointing {
            writer: None,
            next_at_ms: 0,
            log_bytes_then: newest.as_ref().map_or(0, |used| root.bytes_until(used.revision)),
            newest,
            begun: 0,
            retired: Vec::new(),
            superseded: Vec::new(),
        }
    }

    /// Returns whether no work is in progress.
    pub fn is_at_rest(&self, now_ms: u64) -> bool {
        now_ms >= self.next_at_ms && self.writer.is_none()
    }

    /// Notes that these segments have left the log.
    pub fn retire(&mut self, segments: Vec<Arc<Segment>>) {
        self.retired.extend(segments.into_iter().map(|segment| (segment, self.begun)));
        if sabotage::retired_before_checkpoint() {
            self.remove_retired(u64::MAX);
        }
    }

    /// Writes a checkpoint at the given rate if enough has changed, and removes the files that it supersedes.
    pub fn turn(&mut self, tools: &Tools, reclaiming: &Reclaiming, rate: &mut Rate, now_ms: u64) -> Turn {
        if let Some(segment) = self.superseded.pop() {
            let first = segment.header.first_revision;
            tools.status.advance(|stages| stages.reclaimed = stages.reclaimed.max(first));
            remove(&Segment::name(segment.header.number), tools);
            drop(segment);
            if tools.is_short_of_room() {
                // The file system frees the blocks only when no open file refers to them any more, and
                // reclamation waits for these blocks.
                tools.hub.release_events();
                tools.reserve.fill_copies();
                tools.status.note_room_look();
            }
            return Turn::Worked;
        }
        if tools.is_short_of_room() && !has_room_for_one(tools) {
            if self.writer.take().is_some() {
                let _ = tools.storage.remove(checkpoint::NEXT_NAME);
                self.log_bytes_then = 0;
                return Turn::Worked;
            }
            if self.retired.is_empty() {
                return Turn::Idle(NAP_MAX);
            }
            self.remove_retired_without_checkpoint(tools);
            return Turn::Worked;
        }
        if now_ms < self.next_at_ms {
            return Turn::Idle(Duration::from_millis(self.next_at_ms - now_ms));
        }
        if self.writer.is_some()
            && let Some(rest) = rate.pause(now_ms)
        {
            return Turn::Idle(rest);
        }
        let begun_at = self.writer.as_ref().map_or(0, CheckpointWriter::end);
        let outcome = match self.writer.take() {
            None => self.begin(tools, reclaiming),
            Some(mut writer) => match writer.step() {
                Ok(true) => {
                    let written = writer.end() - begun_at;
                    rate.wrote(written, now_ms);
                    self.writer = Some(writer);
                    Ok(Turn::Worked)
                }
                Ok(false) => self.finish(writer, tools),
                Err(error) => Err(error),
            },
        };
        outcome.unwrap_or_else(|error| {
            self.next_at_ms = now_ms + RETRY.as_millis() as u64;
            self.log_bytes_then = 0;
            tracing::warn!("cannot write a checkpoint, trying again later: {error}");
            let _ = tools.storage.remove(checkpoint::NEXT_NAME);
            if is_disk_full(&error) && !self.retired.is_empty() {
                self.remove_retired_without_checkpoint(tools);
            }
            Turn::Worked
        })
    }

    /// Removes all checkpoints, then the retired segments. Free space is more important than a fast opening:
    /// the log is complete without any checkpoint.
    fn remove_retired_without_checkpoint(&mut self, tools: &Tools) {
        self.remove_all_but(None, tools);
        self.log_bytes_then = 0;
        self.remove_retired(u64::MAX);
    }

    fn begin(&mut self, tools: &Tools, reclaiming: &Reclaiming) -> io::Result<Turn> {
        let root = tools.hub.root();
        let moving = reclaiming.is_moving() && !sabotage::checkpoint_while_moving();
        let requested = tools.requests.requested_checkpoint();
        let newest = self.newest.as_ref();
        let due = CheckpointDue {
            requested: requested.min(root.revision) > newest.map_or(Revision::ZERO, |newest| newest.revision),
            log_bytes: root.bytes_until(root.revision).saturating_sub(self.log_bytes_then),
            image_bytes: newest.map_or(0, |newest| newest.bytes),
            retired_bytes: self.retired.iter().map(|(segment, _)| segment.record_bytes()).sum(),
            live_bytes: root.segments.all().iter().map(|segment| segment.live()).sum(),
            reclaiming: reclaiming.is_under_way(),
        };
        // A checkpoint that only makes opening faster must not fill the disk.
        let is_needed = due.requested || !self.retired.is_empty();
        if moving || !due.is_due(tools.segment_bytes) || !is_needed && !has_room_for_one(tools) {
            return Ok(Turn::Idle(NAP_MAX));
        }
        let metadata = CheckpointMetadata {
            time: CommitTime::from_ms(tools.status.time_ms.load(Ordering::Acquire)),
            lost_revisions: tools.lost_revisions,
            numbers_given: tools.numbers.highest(),
            bloom_kind: tools.bloom_kind,
        };
        self.begun += 1;
        self.log_bytes_then = root.bytes_until(root.revision);
        let throttle = WriteThrottle::new(tools.clock.clone());
        self.writer = Some(CheckpointWriter::begin(&*tools.storage, throttle, root, metadata)?);
        Ok(Turn::Worked)
    }

    fn finish(&mut self, writer: CheckpointWriter, tools: &Tools) -> io::Result<Turn> {
        let root = writer.root().clone();
        let status = &tools.status;
        if status.synced() < root.revision && !sabotage::checkpoint_of_unsynced() {
            // A checkpoint must not refer to records that are not durable. Earlier segments were synced
            // before the next one was begun.
            let last = root.segments.in_order().last();
            let synced = last.map_or(Ok(()), |last| status.sync(last, root.revision));
            synced.map_err(io::Error::other)?;
        }
        let bytes = writer.end();
        let name = writer.finish(&*tools.storage)?;
        self.newest =
            Some(UsedCheckpoint { revision: root.revision, bytes, lost_revisions: tools.lost_revisions });
        status.advance(|stages| stages.checkpointed = root.revision);
        self.remove_all_but(Some(&name), tools);
        self.remove_retired(self.begun);
        tools.requests.update_progress(|progress| progress.checkpoint = root.revision);
        Ok(Turn::Worked)
    }

    /// Removes all checkpoints except `kept`.
    fn remove_all_but(&mut self, kept: Option<&str>, tools: &Tools) {
        let Ok(names) = tools.storage.list() else { return };
        for name in names.iter().filter(|name| checkpoint::revision(name).is_some()) {
            if kept != Some(name) {
                remove(name, tools);
            }
        }
        if kept.is_none() {
            self.newest = None;
            tools.status.advance(|stages| stages.checkpointed = Revision::ZERO);
            // The removal of the checkpoints must be durable before the segments that they refer to are
            // removed.
            let _ = tools.storage.sync_dir();
        }
    }

    /// Queues the removal of the segments that were retired before checkpoint number `begun` was begun.
    fn remove_retired(&mut self, begun: u64) {
        let (gone, remaining): (Vec<_>, _) =
            std::mem::take(&mut self.retired).into_iter().partition(|&(_, at)| at < begun);
        self.retired = remaining;
        self.superseded.extend(gone.into_iter().map(|(segment, _)| segment));
    }
}

/// Returns whether the disk has room for two checkpoints of the committed state.
fn has_room_for_one(tools: &Tools) -> bool {
    let free = tools.storage.free_bytes().unwrap_or(0);
    free / 2 >= checkpoint::image_bytes(&tools.hub.root())
}

fn remove(name: &str, tools: &Tools) {
    if let Err(error) = tools.storage.remove(name) {
        tracing::warn!(name, "cannot remove a superseded file: {error}");
    }
}

/// Growth of the log, in multiples of the image size, after which the next checkpoint is written.
const IMAGES: u64 = 4;

/// The conditions that decide whether a checkpoint is due.
struct CheckpointDue {
    /// Whether a caller requested a checkpoint.
    requested: bool,
    /// Bytes of the log that opening would have to read.
    log_bytes: u64,
    /// Bytes of the newest checkpoint.
    image_bytes: u64,
    /// Bytes of segments that the next checkpoint allows to be removed.
    retired_bytes: u64,
    /// Bytes that the index refers to.
    live_bytes: u64,
    /// Whether more segments may be retired soon.
    reclaiming: bool,
}

impl CheckpointDue {
    /// Returns whether a checkpoint is due. A checkpoint is due after a certain growth of the log: one
    /// segment or, when images are large, four images. Therefore each byte written to the log causes at most
    /// a quarter of a byte in checkpoints. A checkpoint is also due when retired segments exceed a tenth of
    /// the live bytes, or when no more segments will be retired soon.
    fn is_due(&self, segment_bytes: u64) -> bool {
        let much_log = self.log_bytes >= segment_bytes.max(IMAGES * self.image_bytes);
        let much_retired = self.retired_bytes > self.live_bytes / 10 && self.retired_bytes >= segment_bytes;
        let all_retired = self.retired_bytes > 0 && !self.reclaiming;
        self.requested || much_log || much_retired || all_retired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_after_enough_log_or_if_it_frees_space() {
        let none = CheckpointDue {
            requested: false,
            log_bytes: 0,
            image_bytes: 0,
            retired_bytes: 0,
            live_bytes: 1_000,
            reclaiming: false,
        };
        for (due, expected) in [
            (CheckpointDue { ..none }, false),
            (CheckpointDue { requested: true, ..none }, true),
            (CheckpointDue { log_bytes: 99, ..none }, false),
            (CheckpointDue { log_bytes: 100, ..none }, true),
            // A large image is not written for a small log.
            (CheckpointDue { log_bytes: 399, image_bytes: 100, ..none }, false),
            (CheckpointDue { log_bytes: 400, image_bytes: 100, ..none }, true),
            (CheckpointDue { log_bytes: 100, image_bytes: 25, ..none }, true),
            // No more segments will be retired soon.
            (CheckpointDue { retired_bytes: 1, ..none }, true),
            (CheckpointDue { retired_bytes: 100, reclaiming: true, ..none }, false),
            (CheckpointDue { retired_bytes: 101, reclaiming: true, ..none }, true),
            (CheckpointDue { retired_bytes: 99, live_bytes: 10, reclaiming: true, ..none }, false),
        ] {
            let numbers = (due.log_bytes, due.image_bytes, due.retired_bytes, due.reclaiming);
            assert_eq!(due.is_due(100), expected, "{numbers:?}");
        }
    }
}
