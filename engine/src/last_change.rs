//! The revision of the last change under a prefix of keys, for callers that cache results computed from these
//! keys.
//!
//! A result computed from a snapshot of revision *r* is still valid if [`LastChange::revision`] is at most
//! *r*. The revision rises before the root with the change is published, so a caller may recompute a result
//! without need, but never misses a change. Changes before the tracker was created do not count, because
//! every snapshot taken afterwards contains these changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::types::Revision;

/// The revision of the last change under a prefix. The engine updates the revision for as long as this value
/// exists.
#[derive(Clone, Debug)]
pub struct LastChange(Arc<AtomicU64>);

impl LastChange {
    /// Returns the newest revision in which a key under the prefix was written or deleted since this tracker
    /// was created; 0 if there was no such change.
    #[inline]
    pub fn revision(&self) -> Revision {
        Revision::new(self.0.load(Ordering::Acquire))
    }
}

/// All trackers with their prefixes. There are only a few trackers: one for each kind of object that every
/// write depends on.
#[derive(Default)]
pub(crate) struct LastChanges(Vec<(Bytes, LastChange)>);

impl LastChanges {
    /// Adds a tracker, and removes the trackers that no caller holds any more.
    pub fn add(&mut self, prefix: Bytes) -> LastChange {
        self.0.retain(|(_, held)| Arc::strong_count(&held.0) > 1);
        let change = LastChange(Arc::default());
        self.0.push((prefix, change.clone()));
        change
    }

    /// Notes that `key` changes in `revision`, which is about to be published.
    pub fn note(&self, key: &[u8], revision: Revision) {
        for (prefix, change) in &self.0 {
            if key.starts_with(prefix) {
                change.0.store(revision.get(), Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_for_each_prefix_of_its_key() {
        let mut all = LastChanges::default();
        let mut tracker = |prefix: &'static str| all.add(Bytes::from(prefix));
        let (whole, a, ab, b) = (tracker(""), tracker("a/"), tracker("a/b/"), tracker("b/"));
        let seen = || [&whole, &a, &ab, &b].map(|change| change.revision().get());
        assert_eq!(seen(), [0, 0, 0, 0]);
        all.note(b"a/b/c", Revision::new(7));
        assert_eq!(seen(), [7, 7, 7, 0]);
        all.note(b"a/c", Revision::new(8));
        assert_eq!(seen(), [8, 8, 7, 0]);
        drop((whole, ab));
        let again = all.add(Bytes::from("b/"));
        assert_eq!(all.0.len(), 3);
        all.note(b"b/", Revision::new(9));
        assert_eq!([&a, &b, &again].map(|change| change.revision().get()), [8, 9, 9]);
    }
}
