//! The point of the log at which recovery begins to read: after the newest sound checkpoint, or at the beginning of the
//! log.

use std::sync::Arc;

use super::UsedCheckpoint;
use super::blooms::make_blooms;
use super::scan::LogScan;
use crate::bloom::BloomScheme;
use crate::chain;
use crate::checkpoint;
use crate::error::OpenError;
use crate::header::{Header, RECORDS_START};
use crate::io::Storage;
use crate::sabotage;
use crate::segment::Segment;
use crate::types::{Revision, SegmentNumber};

/// The starting point of the walk over the log.
pub(super) struct ScanStart {
    /// The segments of the log, in order.
    pub segments: Vec<Arc<Segment>>,
    pub used: Option<UsedCheckpoint>,
    pub state: LogScan,
    /// Index of the first segment that must be scanned.
    pub first_to_scan: usize,
    pub numbers_given: SegmentNumber,
    /// Everything up to this revision is known to have been durable.
    pub known_durable: Revision,
}

/// Facts that follow from a checkpoint even if opening cannot begin with it: everything up to its revision
/// was durable.
struct Witness {
    revision: Revision,
    store: u64,
    /// Number and salt of the last segment of the log.
    last: (SegmentNumber, u64),
    /// A revision that is in the last segment, or will be written to it.
    last_holds: Revision,
}

impl ScanStart {
    /// Starts from the newest sound checkpoint, or at the beginning of the log.
    pub fn find(
        storage: &dyn Storage,
        found: &[Arc<Segment>],
        checkpoints: &[Revision],
        bloom_scheme: BloomScheme,
    ) -> Result<ScanStart, OpenError> {
        match ScanStart::from_checkpoints(storage, found, checkpoints, bloom_scheme) {
            Ok(start) => Ok(start),
            Err(witnesses) => ScanStart::from_segments(storage, found, &witnesses, bloom_scheme),
        }
    }

    /// Starts at the beginning of the log, without a checkpoint.
    fn from_segments(
        storage: &dyn Storage,
        found: &[Arc<Segment>],
        witnesses: &[Witness],
        bloom_scheme: BloomScheme,
    ) -> Result<ScanStart, OpenError> {
        let missing = |number| OpenError::MissingSegment { path: storage.path(&Segment::name(number)) };
        let headers: Vec<_> = found.iter().map(|segment| segment.header).collect();
        let log = chain::from_headers(&headers).map_err(|gap| missing(gap.number))?;
        let is_ours = |witness: &&Witness| headers.iter().all(|header| header.store == witness.store);
        let mut known_durable = Revision::ZERO;
        for witness in witnesses.iter().filter(is_ours) {
            // A missing segment is noticed because of the segments after it. If the last segment is missing, only the
            // checkpoints show this, so they are checked here.
            let reaches = |header: &Header| {
                let stands_for = header.rewritten.map_or(Revision::ZERO, |rewritten| rewritten.last_revision);
                (header.number, header.salt) == witness.last
                    || stands_for >= witness.last_holds
                    || header.first_revision > witness.last_holds
            };
            if !headers.iter().any(reaches) {
                return Err(missing(witness.last.0));
            }
            known_durable = known_durable.max(witness.revision);
        }
        let segments = log.iter().map(|&at| found[at].clone()).collect();
        let state = LogScan { bloom_scheme, ..LogScan::default() };
        Ok(ScanStart {
            segments,
            used: None,
            state,
            first_to_scan: 0,
            numbers_given: SegmentNumber::NONE,
            known_durable,
        })
    }

    /// Starts from the newest of `checkpoints` that is sound and matches the segments. Otherwise returns the
    /// facts that follow from the checkpoints.
    fn from_checkpoints(
        storage: &dyn Storage,
        found: &[Arc<Segment>],
        checkpoints: &[Revision],
        bloom_scheme: BloomScheme,
    ) -> Result<ScanStart, Vec<Witness>> {
        let mut witnesses = Vec::new();
        for &revision in checkpoints.iter().rev() {
            match ScanStart::from_checkpoint(storage, found, revision, bloom_scheme) {
                Ok(start) => return Ok(start),
                Err(witness) => witnesses.extend(witness),
            }
            tracing::warn!(
                path = %storage.path(&checkpoint::name(revision)).display(),
                "a checkpoint is damaged or does not fit the log; the log is read instead"
            );
        }
        Err(witnesses)
    }

    fn from_checkpoint(
        storage: &dyn Storage,
        found: &[Arc<Segment>],
        revision: Revision,
        bloom_scheme: BloomScheme,
    ) -> Result<ScanStart, Option<Witness>> {
        let file = storage.open(&checkpoint::name(revision)).map_err(|_| None)?;
        let loading = checkpoint::load(revision, &*file).ok_or(None)?;
        let contents = &loading.contents;
        let witness = contents.segments.last().map(|last| Witness {
            revision,
            store: contents.store,
            last: (last.number, last.salt),
            last_holds: if last.end == RECORDS_START { revision.next() } else { revision },
        });
        let start = ScanStart::from_image(found, revision, loading, bloom_scheme);
        start.ok_or(witness.filter(|_| !sabotage::witness_ignored()))
    }

    /// Starts from a loaded checkpoint. Returns `None` if the checkpoint does not match the segments, or if
    /// its keys are damaged.
    fn from_image(
        found: &[Arc<Segment>],
        revision: Revision,
        loading: checkpoint::CheckpointLoader,
        bloom_scheme: BloomScheme,
    ) -> Option<ScanStart> {
        let contents = loading.contents.clone();
        let headers: Vec<_> = found.iter().map(|segment| segment.header).collect();
        let log =
            chain::from_checkpoint(&headers, contents.store, &contents.segments, contents.numbers_given)?;
        let segments: Vec<_> = log.iter().map(|&at| found[at].clone()).collect();
        let first_to_scan = contents.segments.len() - 1;
        let fits = contents.segments.iter().zip(&segments).all(|(image, segment)| {
            let end_is_right = segment.header.rewritten.is_none_or(|rewritten| rewritten.end == image.end);
            end_is_right && image.end <= segment.file.size()
        });
        let goes_on_in = &segments[first_to_scan].header;
        if !fits || goes_on_in.rewritten.is_some() || goes_on_in.first_revision > revision.next() {
            return None;
        }
        let oldest = oldest(&segments).max(contents.oldest).min(revision);
        let bytes = loading.bytes();
        let (mut tree, has_blooms) = loading.tree(oldest, bloom_scheme.kind)?;
        if !has_blooms && bloom_scheme.kind != 0 {
            tracing::info!(
                "the checkpoint has no Bloom filters of this release; the attributes in the log are read"
            );
            make_blooms(&bloom_scheme, &mut tree, &segments);
        }
        for (image, segment) in contents.segments.into_iter().zip(&segments) {
            segment.advance(image.end);
            segment.set_marks(image.marks.into());
        }
        let state = LogScan {
            tree,
            bloom_scheme,
            revision,
            time: contents.time,
            lost_revisions: contents.lost_revisions,
            oldest,
            ..LogScan::default()
        };
        let used = Some(UsedCheckpoint { revision, bytes, lost_revisions: contents.lost_revisions });
        let numbers_given = contents.numbers_given;
        Some(ScanStart { segments, used, state, first_to_scan, numbers_given, known_durable: revision })
    }
}

/// Returns the oldest readable revision according to the segments.
pub(super) fn oldest(segments: &[Arc<Segment>]) -> Revision {
    let revisions = segments.iter().map(|segment| {
        let rewritten = segment.header.rewritten.map_or(Revision::ZERO, |rewritten| rewritten.oldest);
        rewritten.max(segment.note().oldest)
    });
    revisions.max().unwrap_or(Revision::ZERO)
}
