//! A walk over a store that collects statistics and finds all inconsistencies.

use crate::offline::damage::{Damage, Problem};
use crate::offline::records::LogItem;
use crate::offline::survey::{SegmentSummary, Survey};
use crate::offline::{Store, checkpoints};
use crate::segment::Segment;

/// Walks over `store`. Calls `on_damage` for every damage, in the order of the log, and `on_progress` with
/// the number of bytes read.
///
/// The memory grows only with the keys: 40 bytes for each key in addition to the key itself, plus the
/// overhead of the tree and the allocator (a million keys of 40 bytes take 115 MB in total).
pub fn survey(store: &Store, mut on_damage: impl FnMut(&Damage), mut on_progress: impl FnMut(u64)) -> Survey {
    let segments = store.segments.iter().map(|segment| SegmentSummary {
        file: Segment::name(segment.header.number),
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
    let mut report = |damage: &Damage| {
        damages += 1;
        on_damage(damage);
    };
    store.damage().iter().for_each(&mut report);
    let mut lost = Vec::new();
    let mut records = store.records();
    while let Some(found) = records.next() {
        match found {
            LogItem::Record(record) => {
                if !record.is_sound() {
                    report(&record.damage(Problem::Body));
                }
                if !survey.continues(&record, &lost) {
                    report(&record.damage(Problem::History));
                }
                survey.add(&record);
                on_progress(records.bytes_done());
            }
            LogItem::Damage(damage) => {
                if damage.problem == Problem::Lost {
                    lost.extend(damage.revisions);
                }
                report(&damage);
            }
            LogItem::Torn { file, offset } => survey.torn = Some((file, offset)),
        }
    }
    survey.revision = records.revision();
    survey.settle();
    for (revision, file) in &store.checkpoints {
        checkpoints::check(store, *revision, file, &survey, &lost, &mut report);
    }
    survey.damages = damages;
    survey
}
