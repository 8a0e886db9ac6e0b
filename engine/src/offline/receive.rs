//! The receiving side of a backup of a running store: writes frames (`transfer.rs`) to a directory.
//!
//! ```text
//! frames ─► start ─► segment ─► data … ─► segment (held: kept from the earlier backup) … ─► end ─► Ready
//! ```
//!
//! The receiver does not trust the sender. Frames must come in order and make up a log, records must match
//! their checksums, and if a segment is not sent, the receiver must have reported that it holds the segment.
//! Until the last frame has arrived, the new directory stays unfinished next to the target. The receiver
//! keeps about one frame in memory.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::chain::{self, LogOrder};
use crate::header::{Header, Note, RECORDS_START};
use crate::io::File;
use crate::offline::OfflineError;
use crate::offline::damage::Damage;
use crate::offline::target::{Copied, PendingBackup, Target};
use crate::record::RECORD_BYTES_MAX;
use crate::transfer::{Frame, FrameError, HeldSegment, SegmentAnnouncement, TRANSFER_VERSION, TransferStart};
use crate::types::{Revision, SEGMENT_BYTES_MAX, SegmentNumber};

/// Maximum size of a segment's file: a large record may need more than the configured size.
const FILE_BYTES_MAX: u64 = SEGMENT_BYTES_MAX + RECORDS_START + RECORD_BYTES_MAX as u64;

/// A backup that is being received.
pub struct Receiver {
    target: Target,
    /// The segments that the receiver has reported as held.
    held: HashMap<SegmentNumber, HeldSegment>,
    /// The received beginning of a frame.
    buffer: Vec<u8>,
    /// Number of frames received so far.
    frames: u32,
    start: Option<TransferStart>,
    headers: Vec<Header>,
    numbers: HashSet<SegmentNumber>,
    /// The segment whose records are arriving, or whose last revision is not known yet.
    arriving: Option<Arriving>,
    received: u64,
    ended: bool,
}

struct Arriving {
    announcement: SegmentAnnouncement,
    file: Arc<dyn File>,
    at: u64,
}

impl Receiver {
    /// Begins to receive a backup for `target`, which may contain an earlier backup of the same store.
    pub fn begin(target: &Path) -> Result<Receiver, OfflineError> {
        Ok(Receiver {
            target: Target::begin(target)?,
            held: HashMap::new(),
            buffer: Vec::new(),
            frames: 0,
            start: None,
            headers: Vec::new(),
            numbers: HashSet::new(),
            arriving: None,
            received: 0,
            ended: false,
        })
    }

    /// Returns a description of the segments in the earlier backup for
    /// [`Engine::backup`](crate::Engine::backup). The description takes 152 bytes for each segment, and at
    /// most `bytes_max` bytes in total. Segments that do not fit are sent again. Reads and checks all
    /// segments, and calls `on_progress` with the bytes done and the total bytes.
    pub fn held(&mut self, bytes_max: usize, on_progress: impl FnMut(u64, u64)) -> Vec<u8> {
        let held = self.target.held(on_progress);
        let held_copy = HeldSegment::encode(&held, bytes_max);
        self.held = held.into_iter().map(|held| (held.header.number, held)).collect();
        held_copy
    }

    /// Processes the next received bytes, which may be a part of a frame or several frames. Blocks on the
    /// disk. After an error the transfer cannot be continued. Calls `on_damage` for records that are damaged
    /// in the store itself.
    pub fn take(&mut self, bytes: &[u8], mut on_damage: impl FnMut(&Damage)) -> Result<(), OfflineError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let decoded = Frame::decode(&buffer[at..], self.frames).map_err(|broken| match broken {
                FrameError::Malformed => no_backup("a frame is damaged or missing"),
                FrameError::Newer(found) => {
                    OfflineError::NewerTransfer { found, supported: TRANSFER_VERSION }
                }
            })?;
            let Some((frame, len)) = decoded else { break };
            if self.ended {
                return Err(no_backup("something comes behind its end"));
            }
            self.frame(frame, &mut on_damage)?;
            self.frames = self.frames.wrapping_add(1);
            at += len;
        }
        if self.ended && at < buffer.len() {
            return Err(no_backup("something comes behind its end"));
        }
        buffer.drain(..at);
        self.buffer = buffer;
        Ok(())
    }

    /// Returns the bytes of records received so far, and the total bytes of records. The total is 0 until it
    /// is known.
    pub fn progress(&self) -> (u64, u64) {
        (self.received, self.start.map_or(0, |start| start.bytes))
    }

    /// Returns the complete backup, or an error if the transfer is not complete.
    pub fn ready(self) -> Result<PendingBackup, OfflineError> {
        let (received, total) = self.progress();
        if self.ended { Ok(self.target.ready()) } else { Err(OfflineError::CutShort { received, total }) }
    }

    fn frame(&mut self, frame: Frame<'_>, on_damage: &mut dyn FnMut(&Damage)) -> Result<(), OfflineError> {
        let start = match (frame, self.start) {
            (Frame::Failed(reason), _) => return Err(OfflineError::GivenUp { reason: printable(&reason) }),
            (Frame::Start(start), None) => {
                self.target.check_store(start.store)?;
                (self.target.summary.revision, self.target.summary.oldest) = (start.revision, start.oldest);
                self.start = Some(start);
                return Ok(());
            }
            (Frame::Segment(announcement), Some(start)) => {
                self.complete(announcement.header.first_revision, on_damage)?;
                return self.begin_segment(announcement, &start);
            }
            (Frame::Data(bytes), Some(_)) => return self.data(bytes),
            (Frame::End, Some(start)) => start,
            _ => return Err(no_backup("its frames come in no order")),
        };
        self.complete(start.revision.next(), on_damage)?;
        let LogOrder { log, gaps } = chain::order(&self.headers);
        let is_log = gaps.is_empty()
            && log.len() == self.headers.len()
            && start.segments as usize == self.headers.len();
        self.ended = is_log && !self.headers.is_empty();
        if self.ended { Ok(()) } else { Err(no_backup("its segments make no log")) }
    }

    fn begin_segment(
        &mut self,
        announcement: SegmentAnnouncement,
        start: &TransferStart,
    ) -> Result<(), OfflineError> {
        let SegmentAnnouncement { header, size, end, held } = announcement;
        let follows = self.headers.last().is_none_or(|last| last.first_revision <= header.first_revision);
        let fits = self.headers.len() < start.segments as usize && size <= FILE_BYTES_MAX;
        if header.store != start.store || !follows || !fits || !self.numbers.insert(header.number) {
            return Err(no_backup("a segment does not belong to the others"));
        }
        self.headers.push(header);
        let is_last = self.headers.len() == start.segments as usize;
        if held {
            let held_copy = self
                .held
                .get(&header.number)
                .filter(|held_copy| held_copy.header == header && held_copy.end == end);
            let had = held_copy.and_then(|held_copy| self.target.earlier(&held_copy.header));
            let had = had.ok_or_else(|| no_backup("a segment is left out that is not there"))?;
            return self.target.keep(&had, end);
        }
        let block = if is_last {
            // The note about the log must be true for the copy.
            Note { sequence: 1, synced: start.revision, oldest: start.oldest }.block(&header)
        } else {
            header.block().to_vec().into()
        };
        let file = self.target.create(header.number, size, &block)?;
        self.arriving = Some(Arriving { announcement, file, at: RECORDS_START });
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), OfflineError> {
        let Some(Arriving { announcement, file, at }) = &mut self.arriving else {
            return Err(no_backup("records come without their segment"));
        };
        if bytes.len() as u64 > announcement.end - *at {
            return Err(no_backup("a segment has more records than it was said to have"));
        }
        file.write_at(*at, bytes).map_err(self.target.failed(announcement.header.number))?;
        *at += bytes.len() as u64;
        self.received += bytes.len() as u64;
        Ok(())
    }

    /// Completes the segment whose records were arriving. The segment must have all its revisions before
    /// `end_revision`.
    fn complete(
        &mut self,
        end_revision: Revision,
        on_damage: &mut dyn FnMut(&Damage),
    ) -> Result<(), OfflineError> {
        let Some(Arriving { announcement, file, at }) = self.arriving.take() else { return Ok(()) };
        if at != announcement.end {
            return Err(no_backup("a segment has fewer records than it was said to have"));
        }
        file.sync_data().map_err(self.target.failed(announcement.header.number))?;
        let copied = Copied { file, unreadable: None };
        self.target.copied(&announcement.header, copied, end_revision, at - RECORDS_START, on_damage)
    }
}

fn no_backup(what: &'static str) -> OfflineError {
    OfflineError::NoBackup { what }
}

/// Returns the text without control characters, so that it can be part of a line.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
