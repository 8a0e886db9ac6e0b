//! The list of segments: the segments that make up the log, in order, and the segments that the index may
//! refer to.

use std::sync::Arc;

use bytes::Bytes;

use crate::entry::Entry;
use crate::history::Version;
use crate::segment::Segment;
use crate::types::{Revision, SegmentNumber};

/// The segments of a log. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Segments(Arc<Lists>);

struct Lists {
    /// The segments that make up the log, in its order.
    in_order: Vec<Arc<Segment>>,
    /// The segments of the log, and the segments that the index refers to while records are moved, sorted by
    /// number.
    by_number: Vec<Arc<Segment>>,
}

impl Segments {
    /// Creates the list from segments in the order of the log.
    pub fn new(in_order: Vec<Arc<Segment>>) -> Segments {
        let by_number = in_order.clone();
        Segments::from_lists(in_order, by_number)
    }

    fn from_lists(in_order: Vec<Arc<Segment>>, mut by_number: Vec<Arc<Segment>>) -> Segments {
        by_number.sort_unstable_by_key(|segment| segment.header.number);
        Segments(Arc::new(Lists { in_order, by_number }))
    }

    /// Returns the segment with the given number.
    pub fn get(&self, number: SegmentNumber) -> Option<&Arc<Segment>> {
        let by_number = &self.0.by_number;
        let at = by_number.binary_search_by_key(&number, |segment| segment.header.number).ok()?;
        Some(&by_number[at])
    }

    /// Returns the entry for a version of a key; `None` if its segment is not in the list.
    pub fn entry(&self, key: Bytes, version: Version) -> Option<Entry> {
        Some(Entry::new(key, version, self.get(version.segment)?.clone()))
    }

    /// Returns the segments that make up the log, in its order.
    pub fn in_order(&self) -> &[Arc<Segment>] {
        &self.0.in_order
    }

    /// Returns all segments that the index may refer to.
    pub fn all(&self) -> &[Arc<Segment>] {
        &self.0.by_number
    }

    /// Returns the bytes of all records that are retained history: readers can reach them, but they are not the newest
    /// state of a key that exists.
    pub fn retained_bytes(&self) -> u64 {
        // The two counters of a segment are read one after the other, so the difference may be inexact for a moment.
        self.all().iter().map(|segment| segment.live().saturating_sub(segment.newest())).sum()
    }

    /// Returns the segments from the segment that may contain `revision` to the last one.
    pub fn starting_at(&self, revision: Revision) -> &[Arc<Segment>] {
        let in_order = &self.0.in_order;
        let after = in_order.partition_point(|segment| segment.header.first_revision <= revision);
        &in_order[after.saturating_sub(1)..]
    }

    /// Returns these segments with `segment` added at the end of the log.
    pub fn with(&self, segment: Arc<Segment>) -> Segments {
        let add = |list: &[Arc<Segment>]| list.iter().cloned().chain([segment.clone()]).collect();
        Segments::from_lists(add(&self.0.in_order), add(&self.0.by_number))
    }

    /// Returns these segments with `segment` added as a segment that the index may refer to but that is not
    /// part of the log yet.
    pub fn with_rewritten(&self, segment: Arc<Segment>) -> Segments {
        let by_number = self.0.by_number.iter().cloned().chain([segment]).collect();
        Segments::from_lists(self.0.in_order.clone(), by_number)
    }

    /// Returns these segments with `segment` in the log, where it replaces all segments between its first and
    /// its last revision.
    pub fn replacing(&self, segment: &Arc<Segment>) -> Segments {
        let header = &segment.header;
        let last = header.rewritten.map_or(header.first_revision, |rewritten| rewritten.last_revision);
        let replaced = |other: &Arc<Segment>| {
            (header.first_revision..=last).contains(&other.header.first_revision)
                && other.header.number != header.number
        };
        let mut in_order: Vec<_> = self.0.in_order.iter().filter(|s| !replaced(s)).cloned().collect();
        let at = in_order.partition_point(|other| other.header.first_revision < header.first_revision);
        in_order.insert(at, segment.clone());
        Segments::new(in_order)
    }
}
