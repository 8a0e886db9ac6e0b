//! Reports unreadable disk pages to the operator, with one log line for a segment each time that more of its
//! pages fail.
//!
//! A read through a mapping cannot report the error of the disk (`mapping.rs`): the reader only finds a
//! damaged record.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{NAP_MAX, Tools, Turn};
use crate::segment::Segment;
use crate::types::SegmentNumber;

/// The failures that were reported.
#[derive(Default)]
pub(super) struct FailureReports {
    /// Number of reported pages of each segment.
    reported: BTreeMap<SegmentNumber, u64>,
    /// Time of the next check, in milliseconds since 1970.
    next_at_ms: u64,
}

impl FailureReports {
    /// Reports pages that were not reported yet.
    pub fn turn(&mut self, tools: &Tools, now_ms: u64) -> Turn {
        if now_ms < self.next_at_ms {
            return Turn::Idle(Duration::from_millis(self.next_at_ms - now_ms).min(NAP_MAX));
        }
        self.next_at_ms = now_ms + NAP_MAX.as_millis() as u64;
        let root = tools.hub.root();
        let segments = root.segments.all();
        self.reported.retain(|&number, _| root.segments.get(number).is_some());
        for segment in segments {
            let pages = segment.file.unreadable_pages();
            let reported = self.reported.get(&segment.header.number).copied().unwrap_or(0);
            if pages > reported {
                tracing::error!(
                    path = %tools.storage.path(&Segment::name(segment.header.number)).display(),
                    pages,
                    "the disk cannot read parts of a segment, and the records there are damaged: run verify to list them"
                );
                self.reported.insert(segment.header.number, pages);
            }
        }
        Turn::Idle(NAP_MAX)
    }
}
