//! The contents of a store, counted record by record.

use std::collections::BTreeMap;

use crate::offline::records::{LogRecord, RecordKind};
use crate::types::Revision;

/// Contents of a store, counted in one walk.
#[derive(Debug, Default)]
pub struct Survey {
    /// The newest revision; while an engine is running, the newest one that is known durable.
    pub revision: Revision,
    /// Time of the newest record, in milliseconds since 1970; 0 if there is no record.
    pub time_ms: u64,
    /// Oldest revision at which everything can be read.
    pub oldest: Revision,
    /// Number of records in the log.
    pub records: u64,
    /// The newest state of each key for which the log has a record, deleted keys included.
    pub keys: BTreeMap<Box<[u8]>, KeyState>,
    /// Bytes of the records that are the newest state of their key.
    pub live_bytes: u64,
    /// Bytes of the other records that are kept because their revisions can still be read.
    pub retained_bytes: u64,
    /// Bytes of the records that no reader can reach.
    pub dead_bytes: u64,
    /// The segments of the log, in order.
    pub segments: Vec<SegmentSummary>,
    /// Number of superseded segments that wait to be removed.
    pub superseded: u32,
    /// File and offset of the end of the log, if a crash left a torn tail behind it.
    pub torn: Option<(String, u64)>,
    /// Number of reported damages.
    pub damages: u64,
}

/// Contents of a segment of the log.
#[derive(Clone, Debug)]
pub struct SegmentSummary {
    /// Name of the segment's file.
    pub file: String,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Lowest revision that may be in the segment.
    pub first_revision: Revision,
    /// Number of records in the segment.
    pub records: u64,
    /// Bytes of the records in the segment.
    pub record_bytes: u64,
    /// Whether reclamation wrote the segment.
    pub rewritten: bool,
}

/// The newest state of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyState {
    /// The revision that wrote the state.
    pub revision: Revision,
    /// The revision of the put that created the key.
    pub created: Revision,
    /// Length of the record in bytes.
    pub stored_len: u32,
    /// Whether the key is deleted.
    pub deleted: bool,
}

impl Survey {
    /// Returns the number of keys that exist.
    pub fn live_keys(&self) -> u64 {
        self.keys.values().filter(|state| !state.deleted).count() as u64
    }

    /// Returns whether the record refers to the previous state that the log contains. Reclaimed and lost
    /// states cannot be compared.
    pub(super) fn continues(&self, record: &LogRecord, lost: &[(Revision, Revision)]) -> bool {
        let known = self.keys.get(&record.key()[..]).filter(|state| !state.deleted);
        let previous = record.previous();
        if known.map_or(Revision::ZERO, |state| state.revision) == previous {
            return known.is_none_or(|state| state.created == record.created());
        }
        // The previous state is gone, or the record that ended it is gone.
        let gone = |revision: Revision| {
            revision <= self.oldest || lost.iter().any(|range| (range.0..=range.1).contains(&revision))
        };
        match (known, previous) {
            (Some(known), Revision::ZERO) => {
                self.oldest > known.revision || lost.iter().any(|range| range.1 > known.revision)
            }
            _ => gone(previous),
        }
    }

    pub(super) fn add(&mut self, record: &LogRecord) {
        let len = record.stored_len() as u64;
        self.records += 1;
        self.time_ms = self.time_ms.max(record.time_ms());
        let file = record.file();
        if let Some(segment) = self.segments.iter_mut().rev().find(|segment| segment.file == file) {
            segment.records += 1;
            segment.record_bytes += len;
        }
        let state = KeyState {
            revision: record.revision(),
            created: record.created(),
            stored_len: record.stored_len() as u32,
            deleted: record.kind() != RecordKind::Put,
        };
        if record.kind() == RecordKind::Tombstone {
            // A tombstone only says that the key is deleted.
            self.dead_bytes += len;
            if let Some(before) = self.keys.remove(&record.key()[..]) {
                self.retire(before, state.revision);
            }
        } else if let Some(before) = self.keys.insert(record.key()[..].into(), state) {
            self.retire(before, state.revision);
        }
    }

    /// Counts a state that was replaced at revision `until`.
    fn retire(&mut self, state: KeyState, until: Revision) {
        let readable = if state.deleted { state.revision >= self.oldest } else { until > self.oldest };
        let bytes = if readable { &mut self.retained_bytes } else { &mut self.dead_bytes };
        *bytes += u64::from(state.stored_len);
    }

    /// Counts the states that were not replaced.
    pub(super) fn settle(&mut self) {
        for state in self.keys.values() {
            let len = u64::from(state.stored_len);
            if !state.deleted {
                self.live_bytes += len;
            } else if state.revision >= self.oldest {
                self.retained_bytes += len;
            } else {
                self.dead_bytes += len;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_surveyed_key_takes_forty_bytes_plus_its_length() {
        assert_eq!(size_of::<(Box<[u8]>, KeyState)>(), 40);
    }
}
