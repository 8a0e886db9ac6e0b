//! Expiry queue: the versions that expire, ordered by time, 16 bytes each.
//!
//! If a write replaces such a version, the entry of the version stays in the queue. When the entry becomes
//! due, its version is no longer the newest one, so nothing is deleted. The delete itself is a write like any
//! other, made by `maintenance/expiring.rs`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use parking_lot::Mutex;

use crate::history::Version;
use crate::types::Revision;

/// A version and the time at which its key expires.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct DueVersion {
    /// Time of the expiry, in seconds since 1970.
    pub at_s: u32,
    pub revision: Revision,
}

impl DueVersion {
    /// Returns the expiry of a key whose newest version is `newest`; `None` if the key does not expire.
    pub fn from_newest(newest: &Version) -> Option<DueVersion> {
        let expires = newest.expires_s > 0 && !newest.is_delete();
        expires.then_some(DueVersion { at_s: newest.expires_s, revision: newest.revision })
    }
}

/// All versions that expire; always empty in a follower, which receives each expiry as a delete.
pub(crate) struct Expiry {
    heap: Mutex<BinaryHeap<Reverse<DueVersion>>>,
    is_follower: bool,
}

impl Expiry {
    pub fn new(due: Vec<DueVersion>) -> Expiry {
        let heap = Mutex::new(due.into_iter().map(Reverse).collect());
        Expiry { heap, is_follower: false }
    }

    /// Creates the queue of a follower, which stays empty.
    pub fn for_follower() -> Expiry {
        Expiry { heap: Mutex::default(), is_follower: true }
    }

    pub fn add(&self, due: DueVersion) {
        if !self.is_follower {
            self.heap.lock().push(Reverse(due));
        }
    }

    /// Takes up to `max` entries that are due at `now_s` or earlier, the earliest first.
    pub fn take_due(&self, now_s: u32, max: usize) -> Vec<DueVersion> {
        let mut heap = self.heap.lock();
        let mut due = Vec::new();
        while due.len() < max && heap.peek().is_some_and(|Reverse(first)| first.at_s <= now_s) {
            due.extend(heap.pop().map(|Reverse(first)| first));
        }
        due
    }

    /// Returns the number of entries, replaced versions included.
    pub fn len(&self) -> usize {
        self.heap.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_versions_are_returned_once_in_order() {
        let due = |at_s, revision| DueVersion { at_s, revision };
        let expiry = Expiry::new(vec![due(30, Revision::new(1)), due(10, Revision::new(2))]);
        expiry.add(due(20, Revision::new(3)));
        expiry.add(due(10, Revision::new(1)));
        assert_eq!(expiry.len(), 4);
        assert_eq!(expiry.take_due(9, 10), []);
        assert_eq!(expiry.take_due(20, 2), [due(10, Revision::new(1)), due(10, Revision::new(2))]);
        assert_eq!(expiry.take_due(20, 2), [due(20, Revision::new(3))]);
        assert_eq!(expiry.len(), 1);
    }
}
