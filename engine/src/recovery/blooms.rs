//! Bloom filters of the keys that opening finds, computed from the attributes in the log.

use std::sync::Arc;

use crate::bloom::{BloomFilter, BloomScheme};
use crate::index::Tree;
use crate::record::{EventKind, Head};
use crate::segment::Segment;

/// Returns the Bloom filter of a record whose head is sound. No query looks for a delete. A state with
/// damaged attributes passes every query, so that its reader gets an error instead of missing it.
pub(super) fn filter_of_record(scheme: &BloomScheme, head: &Head, record: &[u8]) -> BloomFilter {
    match head.kind {
        EventKind::Delete => BloomFilter::NONE,
        EventKind::Put if scheme.kind == 0 || !head.attributes_are_sound(record) => BloomFilter::UNKNOWN,
        EventKind::Put => (scheme.filter)(head.attributes_in(record)),
    }
}

/// Recomputes the Bloom filter of every key in `tree` from its record in `segments`.
pub(super) fn make_blooms(scheme: &BloomScheme, tree: &mut Tree, segments: &[Arc<Segment>]) {
    let mut states = Vec::with_capacity(tree.live() as usize);
    let mut blooms = Vec::with_capacity(tree.size().keys as usize);
    let mut cursor = tree.cursor(b"");
    while let Some((_, slot)) = cursor.next_slot() {
        let newest = slot.newest;
        if newest.is_delete() {
            blooms.push(BloomFilter::NONE);
        } else {
            states.push((newest.segment, newest.offset(), newest.len(), blooms.len()));
            blooms.push(BloomFilter::UNKNOWN);
        }
    }
    drop(cursor);
    states.sort_unstable();
    for of_segment in states.chunk_by(|a, b| a.0 == b.0) {
        let number = of_segment[0].0;
        let Some(segment) = segments.iter().find(|segment| segment.header.number == number) else {
            continue;
        };
        for &(_, offset, len, at) in of_segment {
            let Ok(bytes) = segment.file.read(offset, len) else { continue };
            if let Some(head) = Head::read(&bytes, segment.header.salt, offset) {
                blooms[at] = filter_of_record(scheme, &head, &bytes);
            }
        }
    }
    tree.set_blooms(&mut blooms.into_iter());
}
