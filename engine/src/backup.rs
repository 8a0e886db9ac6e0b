//! The sending side of a backup of a running store: it sends the segments as of one revision, frame by frame.
//!
//! A published root lists the segments of the log and the end of the last one. Complete segments never
//! change, and the last one only grows. So the root describes the whole backup, and no write waits for the
//! receiver of the frames. If reclamation removes a file in the meantime, the backup can still send it,
//! because the file stays open until its last byte is sent. Only one frame is in memory at a time. The bytes
//! of a frame are read from the file instead of the mapping, because a backup reads everything once and must
//! not displace the pages that readers use.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::header::RECORDS_START;
use crate::segment::Segment;
use crate::snapshot::Root;
use crate::transfer::{self, Frame, HeldSegment, SegmentAnnouncement, TransferStart};
use crate::types::{Revision, SegmentNumber};

/// A backup that is being sent, frame by frame.
pub struct Outgoing {
    revision: Revision,
    start: Option<TransferStart>,
    segments: VecDeque<SegmentRange>,
    /// The segment whose records are being sent, and the offset of its next bytes.
    current: Option<(SegmentRange, u64)>,
    /// Number of frames made so far.
    frames: u32,
    ended: bool,
}

struct SegmentRange {
    segment: Arc<Segment>,
    end: u64,
    held: bool,
}

impl Outgoing {
    /// Begins a backup of the log of `root`. The whole log must be on disk. `held` describes the segments
    /// that the receiver already has.
    pub(crate) fn new(root: &Root, held: Vec<HeldSegment>) -> Outgoing {
        let in_order = root.segments.in_order();
        let held: HashMap<SegmentNumber, HeldSegment> =
            held.into_iter().map(|held| (held.header.number, held)).collect();
        let parts = in_order.iter().enumerate().map(|(at, segment)| {
            let end = root.end_of(segment);
            // The last segment may have grown since the receiver's copy was made.
            let is_complete = at + 1 < in_order.len() || segment.header.rewritten.is_some();
            let held = held
                .get(&segment.header.number)
                .is_some_and(|held| is_complete && held.describes(segment, end));
            SegmentRange { segment: segment.clone(), end, held }
        });
        let segments: VecDeque<SegmentRange> = parts.collect();
        let sent = segments.iter().filter(|part| !part.held);
        let start = TransferStart {
            segments: segments.len() as u32,
            store: in_order.first().map_or(0, |segment| segment.header.store),
            revision: root.revision,
            oldest: root.oldest,
            bytes: sent.map(|part| part.end - RECORDS_START).sum(),
        };
        Outgoing {
            revision: root.revision,
            start: Some(start),
            segments,
            current: None,
            frames: 0,
            ended: false,
        }
    }

    /// Returns the revision at which the backup is consistent: the newest revision at the beginning of the
    /// backup.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the next frame, of about 256 KiB at most; `None` after the last one. Blocks on the disk. Bytes
    /// that the disk cannot read are sent as zeros; the receiver checks every record and reports the damaged
    /// ones.
    pub fn next_frame(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let number = self.frames;
        if let Some((part, at)) = &mut self.current {
            let frame = transfer::data(&part.segment, *at, part.end, number);
            *at += (frame.len() - transfer::FRAME_HEAD) as u64;
            if *at == part.end {
                self.current = None;
            }
            self.frames += 1;
            return Some(frame);
        }
        let frame = if let Some(start) = self.start.take() {
            Frame::Start(start)
        } else if let Some(part) = self.segments.pop_front() {
            let SegmentRange { segment, end, held } = &part;
            let (header, size) = (segment.header, segment.file.size());
            let announcement = SegmentAnnouncement { header, size, end: *end, held: *held };
            if !held && *end > RECORDS_START {
                self.current = Some((part, RECORDS_START));
            }
            Frame::Segment(announcement)
        } else {
            self.ended = true;
            Frame::End
        };
        self.frames += 1;
        Some(frame.encode(number))
    }

    /// Returns the final frame of a transfer that ends early because of `reason`.
    pub fn give_up(&mut self, reason: &str) -> Bytes {
        self.ended = true;
        self.current = None;
        self.segments.clear();
        Frame::Failed(reason.to_owned()).encode(self.frames)
    }
}
