//! Points of the retained history: the oldest one, and the conversion between times and revisions.
//!
//! Commit times never decrease ([`time`](crate::time)), so the state at a time is the state at the newest
//! revision committed at or before that time. The record of the oldest readable revision may have been
//! reclaimed, because a newer record of its key exists. Then the commit time of that revision is unknown, and
//! the times that can be read begin with the first record after it.

use std::time::{Duration, SystemTime};

use crate::snapshot::Root;
use crate::types::{CommitTime, Revision};

/// The oldest point of the retained history.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OldestPoint {
    /// The oldest revision that can be read.
    pub revision: Revision,
    /// The earliest time at which the state is known; `None` if no record with this time can be read.
    pub time: Option<SystemTime>,
}

/// Returns the oldest point of a root whose revisions before `gap_until` have only final states.
pub(crate) fn oldest(root: &Root, gap_until: Revision) -> OldestPoint {
    let revision = root.oldest.max(gap_until).max(Revision::FIRST);
    OldestPoint { revision, time: first_from(root, revision).map(|(_, time)| system_time(time)) }
}

/// Returns the time at which `revision` was committed; `None` if its record is no longer in the log.
pub(crate) fn time_of(root: &Root, revision: Revision) -> Option<SystemTime> {
    let (found, time) = first_from(root, revision)?;
    (found == revision).then(|| system_time(time))
}

/// Returns the time at which the first write after `revision` was committed. If the record of that write was reclaimed,
/// the function returns the time of a later write.
pub(crate) fn superseded_at(root: &Root, revision: Revision) -> Option<SystemTime> {
    first_from(root, revision.next()).map(|(_, time)| system_time(time))
}

/// Returns revision and time of the first record at or after `from`.
fn first_from(root: &Root, from: Revision) -> Option<(Revision, CommitTime)> {
    for segment in root.segments.starting_at(from) {
        // A segment that cannot be read now is skipped.
        let Ok(mut walk) = segment.walk_from(from) else { continue };
        while let Some(found) = walk.next() {
            if found.head.revision > root.revision {
                return None;
            }
            if found.head.revision >= from {
                return Some((found.head.revision, found.head.time));
            }
        }
    }
    None
}

fn system_time(time: CommitTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(time.ms())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Engine;
    use crate::error::SnapshotError;
    use crate::options::Options;
    use crate::testing::TempDir;
    use crate::types::{Change, Expected, Payload, Write};

    async fn put(engine: &Engine, key: &str) -> Revision {
        let change = Change::Put(Payload { value: Bytes::from_static(b"v"), ..Payload::default() });
        let write = Write { key: Bytes::copy_from_slice(key.as_bytes()), expected: Expected::Any, change };
        engine.commit(write).await.unwrap().revision
    }

    #[tokio::test]
    async fn times_of_retained_history_have_revisions_and_earlier_times_are_compacted() {
        let dir = TempDir::new();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        assert_eq!(engine.oldest(), OldestPoint { revision: Revision::FIRST, time: None });
        let now = SystemTime::now();
        assert!(engine.readable_revision_at(now).is_err());
        let mut times = Vec::new();
        for _ in 0..5 {
            let revision = put(&engine, "/a").await;
            times.push((revision, engine.time_of(revision).unwrap()));
            // The next commit gets a later time.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for (revision, time) in &times {
            assert_eq!(engine.readable_revision_at(*time).unwrap(), *revision);
            let later = *time + Duration::from_millis(1);
            assert_eq!(engine.readable_revision_at(later).unwrap(), *revision);
        }
        let before = times[0].1 - Duration::from_millis(1);
        assert!(engine.readable_revision_at(before).is_err());
        assert_eq!(engine.time_of(times[4].0.next()), None);
        assert_eq!(engine.superseded_at(times[1].0), Some(times[2].1));
        assert_eq!(engine.superseded_at(times[4].0), None);

        engine.compact(times[2].0).await.unwrap();
        let oldest = engine.oldest();
        assert_eq!((oldest.revision, oldest.time), (times[2].0, Some(times[2].1)));
        let error = engine.readable_revision_at(times[1].1).unwrap_err();
        assert!(matches!(error, SnapshotError::Compacted { oldest } if oldest == times[2].0), "{error}");
        assert_eq!(engine.readable_revision_at(times[3].1).unwrap(), times[3].0);
    }
}
