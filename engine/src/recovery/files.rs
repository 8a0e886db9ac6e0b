//! The files that recovery finds in a store's directory, before recovery has determined which segments make
//! up the log.

use std::io;
use std::sync::Arc;

use crate::checkpoint;
use crate::error::OpenError;
use crate::header::{FORMAT_VERSION, HeaderError};
use crate::high_water::{HighWater, HighWaterMark};
use crate::io::Storage;
use crate::log;
use crate::reclaim;
use crate::sabotage;
use crate::segment::Segment;
use crate::types::{Revision, SegmentNumber};

/// The files of a store's directory.
pub(super) struct FoundFiles {
    /// All segments, in the order of their numbers.
    pub segments: Vec<Arc<Segment>>,
    /// The revisions of the checkpoints, in ascending order.
    pub checkpoints: Vec<Revision>,
    pub high_water: HighWater,
}

impl FoundFiles {
    /// Removes unfinished files, and opens the other files. Fails if a segment belongs to another store, or
    /// if the last segment of the store is missing.
    pub fn read(storage: &dyn Storage) -> Result<FoundFiles, OpenError> {
        let names = storage.list().map_err(failed(storage, "", "list the store's directory"))?;
        for unfinished in [log::NEXT_NAME, reclaim::NEXT_NAME, checkpoint::NEXT_NAME] {
            if names.iter().any(|name| name == unfinished) {
                let removed = storage.remove(unfinished);
                removed.map_err(failed(storage, unfinished, "remove an unfinished file"))?;
            }
        }
        if !sabotage::recovery_without_sync() {
            // The process may have ended after it renamed a segment and before it synced the directory.
            storage.sync_dir().map_err(failed(storage, "", "sync the store's directory"))?;
        }
        let mut numbers: Vec<SegmentNumber> = names.iter().filter_map(|name| Segment::number(name)).collect();
        numbers.sort_unstable();
        let segments: Vec<_> =
            numbers.iter().map(|&number| open(storage, number)).collect::<Result<_, _>>()?;
        let is_stranger = |segment: &&Arc<Segment>| segment.header.store != segments[0].header.store;
        if let Some(stranger) = segments.iter().find(is_stranger) {
            let path = storage.path(&Segment::name(stranger.header.number));
            return Err(OpenError::OtherStore { path });
        }
        let high_water = HighWater::open(storage);
        let headers: Vec<_> = segments.iter().map(|segment| segment.header).collect();
        if let Some(mark) = high_water.mark().filter(|mark| !mark.is_reached_by(&headers)) {
            return Err(OpenError::MissingEnd {
                path: storage.path(&Segment::name(mark.number)),
                first_revision: mark.first_revision,
            });
        }
        let mut checkpoints: Vec<Revision> =
            names.iter().filter_map(|name| checkpoint::revision(name)).collect();
        checkpoints.sort_unstable();
        Ok(FoundFiles { segments, checkpoints, high_water })
    }

    /// Returns the revision up to which everything is durable according to the high-water mark.
    pub fn noted_durable(&self) -> Revision {
        let is_ours = |mark: &HighWaterMark| {
            self.segments.iter().all(|segment| segment.header.store == mark.store)
                && !sabotage::synced_marks_ignored()
        };
        self.high_water.mark().filter(is_ours).map_or(Revision::ZERO, |mark| mark.durable)
    }

    /// Returns the highest number of a segment.
    pub fn last_number(&self) -> SegmentNumber {
        self.segments.last().map_or(SegmentNumber::NONE, |segment| segment.header.number)
    }
}

/// Returns a function that converts the I/O error of an operation on the file with this name.
pub(super) fn failed(
    storage: &dyn Storage,
    name: &str,
    operation: &'static str,
) -> impl Fn(io::Error) -> OpenError + use<> {
    let path = storage.path(name);
    move |source| OpenError::Io { path: path.clone(), operation, source }
}

fn open(storage: &dyn Storage, number: SegmentNumber) -> Result<Arc<Segment>, OpenError> {
    let name = Segment::name(number);
    let path = storage.path(&name);
    let opened = storage.open(&name).map_err(HeaderError::Io).and_then(|file| Segment::open(number, file));
    opened.map(Arc::new).map_err(|error| match error {
        HeaderError::Newer(found) => OpenError::NewerFormat { path, found, supported: FORMAT_VERSION },
        HeaderError::Damaged => OpenError::BadHeader { path },
        HeaderError::Io(source) => OpenError::Io { path, operation: "open", source },
    })
}
