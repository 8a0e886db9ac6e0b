//! One walk over a store that adds up what is in it and finds everything that does not agree.

use std::collections::BTreeMap;

use crate::offline::damage::{Damage, Problem};
use crate::offline::records::{Found, LogRecord, RecordKind};
use crate::offline::{Store, checkpoints};
use crate::types::Revision;

/// What a store holds.
#[derive(Debug, Default)]
pub struct Survey {
    /// The newest revision; beside a running engine the newest that is known to be on disk.
    pub revision: Revision,
    /// When it was committed, in milliseconds since 1970; 0 when there is no record.
    pub time_ms: u64,
    /// The lowest revision at which everything can be read.
    pub oldest: Revision,
    /// Records in the log.
    pub records: u64,
    /// The newest state of each key that the log still speaks of, deleted ones included.
    pub keys: BTreeMap<Box<[u8]>, KeyState>,
    /// Bytes of the records that are the present state of their keys.
    pub live_bytes: u64,
    /// Bytes of the records that are not, and are kept because their revisions can still be asked for.
    pub retained_bytes: u64,
    /// Bytes of the records that no reader can reach.
    pub dead_bytes: u64,
    /// The files of the log, in order.
    pub segments: Vec<SegmentSummary>,
    /// How many files wait to be removed, others standing for them.
    pub superseded: u32,
    /// Where the log ends before what is written, after a crash: file and offset.
    pub torn: Option<(String, u64)>,
    /// How many damages were told of.
    pub damages: u64,
}

/// A file of the log.
#[derive(Clone, Debug)]
pub struct SegmentSummary {
    /// Its name.
    pub file: String,
    /// Its size in bytes.
    pub file_bytes: u64,
    /// The lowest revision that may be in it.
    pub first_revision: Revision,
    /// Records in it.
    pub records: u64,
    /// Bytes of these records.
    pub record_bytes: u64,
    /// Whether reclaim wrote it.
    pub rewritten: bool,
}

/// The newest state of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyState {
    /// The revision that wrote it.
    pub revision: Revision,
    /// The revision of the put that made the key exist.
    pub created: Revision,
    /// Length of the record in bytes.
    pub stored_len: u32,
    /// Whether the key is gone.
    pub deleted: bool,
}

/// Walks over `store`. Tells `on_damage` everything that is wrong, in the order of the log, and `on_progress` how
/// many bytes are done.
///
/// Memory is in proportion to the keys and to nothing else: 40 bytes for each beside the key itself, and what a tree
/// and the allocator add (a million keys of 40 bytes: 115 MB in all).
pub fn survey(store: &Store, mut on_damage: impl FnMut(&Damage), mut on_progress: impl FnMut(u64)) -> Survey {
    let segments = store.segments.iter().map(|segment| SegmentSummary {
        file: crate::segment::Segment::name(segment.header.number),
        file_bytes: segment.file.size(),
        first_revision: segment.header.first_revision,
        records: 0,
        record_bytes: 0,
        rewritten: segment.header.rewritten.is_some(),
    });
    let mut survey = Survey {
        oldest: store.oldest(),
        segments: segments.collect(),
        superseded: store.superseded.len() as u32,
        ..Survey::default()
    };
    let mut damages = 0;
    let mut tell = |damage: &Damage| {
        damages += 1;
        on_damage(damage);
    };
    store.damage().iter().for_each(&mut tell);
    let mut lost = Vec::new();
    let mut records = store.records();
    while let Some(found) = records.next() {
        match found {
            Found::Record(record) => {
                if !record.is_sound() {
                    tell(&record.damage(Problem::Body));
                }
                if !survey.continues(&record, &lost) {
                    tell(&record.damage(Problem::History));
                }
                survey.add(&record);
                on_progress(records.bytes_done());
            }
            Found::Damage(damage) => {
                if damage.problem == Problem::Lost {
                    lost.extend(damage.revisions);
                }
                tell(&damage);
            }
            Found::Torn { file, offset } => survey.torn = Some((file, offset)),
        }
    }
    survey.revision = records.revision();
    survey.settle();
    for (revision, file) in &store.checkpoints {
        checkpoints::check(store, *revision, file, &survey, &lost, &mut tell);
    }
    survey.damages = damages;
    survey
}

impl Survey {
    /// Keys that exist.
    pub fn live_keys(&self) -> u64 {
        self.keys.values().filter(|state| !state.deleted).count() as u64
    }

    /// Whether the record names the state before it that the log has. What was reclaimed or is lost cannot be
    /// compared.
    fn continues(&self, record: &LogRecord, lost: &[(Revision, Revision)]) -> bool {
        let known = self.keys.get(&record.key()[..]).filter(|state| !state.deleted);
        let previous = record.previous();
        if known.map_or(Revision::ZERO, |state| state.revision) == previous {
            return known.is_none_or(|state| state.created == record.created());
        }
        // A state that was there and is not any more; or one that was ended by a record that is not any more.
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

    fn add(&mut self, record: &LogRecord) {
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
            // It only says that the key is gone.
            self.dead_bytes += len;
            if let Some(before) = self.keys.remove(&record.key()[..]) {
                self.retire(before, state.revision);
            }
        } else if let Some(before) = self.keys.insert(record.key()[..].into(), state) {
            self.retire(before, state.revision);
        }
    }

    /// Counts a state that was followed by another one at `until`.
    fn retire(&mut self, state: KeyState, until: Revision) {
        let readable = if state.deleted { state.revision >= self.oldest } else { until > self.oldest };
        let bytes = if readable { &mut self.retained_bytes } else { &mut self.dead_bytes };
        *bytes += u64::from(state.stored_len);
    }

    /// Counts the states that nothing followed.
    fn settle(&mut self) {
        for state in self.keys.values() {
            let len = u64::from(state.stored_len);
            match state.deleted {
                false => self.live_bytes += len,
                true if state.revision >= self.oldest => self.retained_bytes += len,
                true => self.dead_bytes += len,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_takes_forty_bytes_beside_its_own() {
        assert_eq!(size_of::<(Box<[u8]>, KeyState)>(), 40);
    }
}
