//! The part of maintenance that maps complete segments into memory before a reader needs them.
//!
//! The live records of a log with much history are far apart, so a scan would take a page fault for almost every
//! record. The pages of a segment that was just completed are still in memory, and mapping all these pages at once
//! costs less than a tenth of these page faults. Only pages in memory are mapped, so this part never reads from the
//! disk.

use super::{NAP_MAX, Tools, Turn};
use crate::types::SegmentNumber;

/// Number of bytes that a turn maps. While pages are mapped, other threads cannot change the memory map of the process,
/// so a turn must take less than a hundred microseconds.
const TURN_BYTES: u64 = 1024 * 1024;

/// State of the part.
pub(super) struct MappingAhead {
    /// The last segment that is mapped completely.
    mapped: SegmentNumber,
    /// The segment that is being mapped, and the offset of its next bytes to map.
    current: SegmentNumber,
    offset: u64,
}

impl MappingAhead {
    /// Creates the state of a store in which segments up to `last` exist. The pages of these segments are mapped when
    /// readers access them.
    pub fn new(last: SegmentNumber) -> MappingAhead {
        MappingAhead { mapped: last.before(), current: SegmentNumber::NONE, offset: 0 }
    }

    /// Returns the offset and the number of the next bytes to map in segment `number`, whose records end at `end`.
    /// Begins at the start of the segment if the last bytes were in another segment, because reclamation may have
    /// replaced that segment in the meantime.
    fn next_bytes(&mut self, number: SegmentNumber, end: u64) -> (u64, u64) {
        if number != self.current {
            (self.current, self.offset) = (number, 0);
        }
        (self.offset, TURN_BYTES.min(end.saturating_sub(self.offset)))
    }

    /// Maps some pages of the oldest complete segment that is not mapped yet.
    pub fn turn(&mut self, tools: &Tools) -> Turn {
        let root = tools.hub.root();
        let in_order = root.segments.in_order();
        let complete = &in_order[..in_order.len().saturating_sub(1)];
        // Reclamation has read the segments that it writes, so they are mapped.
        let appended = complete.iter().rev().filter(|segment| segment.header.rewritten.is_none());
        let next = appended.take_while(|segment| segment.header.number > self.mapped).last();
        let Some(segment) = next else { return Turn::Idle(NAP_MAX) };
        let (offset, len) = self.next_bytes(segment.header.number, segment.end());
        if len == 0 || !segment.file.map_ahead(offset, len) {
            self.mapped = segment.header.number;
            return Turn::Idle(NAP_MAX);
        }
        self.offset = offset + len;
        Turn::Worked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_segment_is_mapped_from_its_start_even_if_the_one_before_was_not_completed() {
        let mut mapping = MappingAhead::new(SegmentNumber::FIRST);
        let (second, third) = (SegmentNumber::new(2), SegmentNumber::new(3));
        assert_eq!(mapping.next_bytes(second, 5 * TURN_BYTES), (0, TURN_BYTES));
        mapping.offset = TURN_BYTES;
        assert_eq!(mapping.next_bytes(second, 5 * TURN_BYTES), (TURN_BYTES, TURN_BYTES));
        // Reclamation has replaced the second segment.
        assert_eq!(mapping.next_bytes(third, 10), (0, 10));
        mapping.offset = 10;
        assert_eq!(mapping.next_bytes(third, 10), (10, 0));
    }
}
