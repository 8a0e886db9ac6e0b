//! Comparison of a checkpoint with the log. The meaning of its Bloom filters is unknown here, so only their
//! presence and checksums are checked.

use crate::chain;
use crate::checkpoint;
use crate::header::{u32_at, u64_at};
use crate::history::Version;
use crate::io::File;
use crate::offline::Store;
use crate::offline::damage::{Damage, Problem};
use crate::offline::files::ReadFile;
use crate::offline::survey::Survey;
use crate::record::Head;
use crate::types::Revision;

/// Checks the checkpoint of `revision`. The bytes of the checkpoint must be sound, each version must refer
/// to a matching record, and the newest state of every key must exist. `survey` has walked over the log;
/// revisions in `lost` have no record.
pub(super) fn check(
    store: &Store,
    revision: Revision,
    file: &ReadFile,
    survey: &Survey,
    lost: &[(Revision, Revision)],
    report: &mut impl FnMut(&Damage),
) {
    let name = checkpoint::name(revision);
    let whole =
        |problem| Damage { revisions: Some((revision, revision)), ..Damage::for_file(&name, problem) };
    let Some(loading) = checkpoint::load(revision, file) else { return report(&whole(Problem::Checkpoint)) };
    let contents = &loading.contents;
    let headers: Vec<_> = store.all().map(|segment| segment.header).collect();
    if chain::from_checkpoint(&headers, contents.store, &contents.segments, contents.numbers_given).is_none()
    {
        return report(&whole(Problem::Index));
    }
    if !loading.blooms_are_sound() {
        return report(&whole(Problem::Checkpoint));
    }
    let is_lost = |revision: Revision| lost.iter().any(|range| (range.0..=range.1).contains(&revision));
    let differs = |key: &[u8], revision: Revision| Damage {
        revisions: Some((revision, revision)),
        key: Some(bytes::Bytes::copy_from_slice(key)),
        ..Damage::for_file(&name, Problem::Index)
    };
    let mut agreeing = 0;
    let read = loading.visit_keys(|key, versions| {
        let newest = versions[0];
        if newest.revision > survey.revision && store.in_use {
            // The record is in a segment that was made after the directory was read.
            agreeing += u64::from(survey.keys.get(key).is_some_and(|state| !state.deleted));
            return;
        }
        for version in versions.iter() {
            if !is_in_place(store, key, version) && !is_lost(version.revision) {
                report(&differs(key, version.revision));
            }
        }
        match survey.keys.get(key) {
            Some(state) if state.revision == newest.revision => {
                agreeing += u64::from(!state.deleted);
                if state.deleted != newest.is_delete() || state.created != newest.created {
                    report(&differs(key, state.revision));
                }
            }
            // The key was written again after the checkpoint.
            Some(state) if state.revision > revision => {}
            // The key was deleted, and its records are reclaimed.
            None if newest.is_delete() || newest.revision < store.oldest() => {}
            _ if is_lost(newest.revision) => {}
            _ => report(&differs(key, newest.revision)),
        }
    });
    if read.is_none() {
        return report(&whole(Problem::Checkpoint));
    }
    // Some keys of the log are missing in the checkpoint.
    let known =
        survey.keys.values().filter(|state| !state.deleted && state.revision <= revision).count() as u64;
    if agreeing < known {
        report(&whole(Problem::Index));
    }
}

/// Returns whether the header of a checkpoint is sound and has this revision.
pub(super) fn proves_durable(revision: Revision, file: &ReadFile) -> bool {
    let header = file.read(0, checkpoint::HEADER_BYTES);
    header.is_ok_and(|header| {
        crc32fast::hash(&header[..124]) == u32_at(&header, 124) && u64_at(&header, 32) == revision.get()
    })
}

/// Returns whether the record of this version of `key` is at its position.
fn is_in_place(store: &Store, key: &[u8], version: &Version) -> bool {
    let segment = store.all().find(|segment| segment.header.number == version.segment);
    segment.is_some_and(|segment| {
        let Ok(bytes) = segment.file.read(version.offset(), version.len()) else { return false };
        Head::read(&bytes, segment.header.salt, version.offset()).is_some_and(|head| {
            head.revision == version.revision && head.record_len() == version.len() && head.key(&bytes) == key
        })
    })
}
