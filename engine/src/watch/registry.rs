//! The registry of tails: which tails an event concerns, and which callers wait for a revision.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use crate::last_change::LastChanges;
use crate::types::Revision;

/// State shared by a tail and the publisher.
#[derive(Default)]
pub(super) struct TailSlot {
    /// The first revision that concerns the tail and that the tail has not examined yet; 0 if there is no
    /// such revision. Written only under the registry's lock.
    pub pending: AtomicU64,
    pub wake: Notify,
}

/// The tails by their prefixes, and the waiters for a revision.
#[derive(Default)]
pub(super) struct Registry {
    pub tails: BTreeMap<Bytes, Vec<Arc<TailSlot>>>,
    pub count: u64,
    /// The waiters for a revision, by the revision and a number that makes each key unique.
    pub waiters: BTreeMap<(Revision, u64), oneshot::Sender<()>>,
    pub waiters_so_far: u64,
    pub changes: LastChanges,
    pub closed: bool,
}

impl Registry {
    /// Calls `each` for every tail whose prefix is a prefix of `key`.
    pub fn visit_matching(&self, key: &[u8], mut each: impl FnMut(&Arc<TailSlot>)) {
        // The search begins at the greatest prefix that is not greater than the key, and continues with
        // smaller ones. The next match is no longer than the common part of the candidate and the key, so
        // each step shortens the search key.
        let mut search = key;
        while let Some((prefix, slots)) =
            self.tails.range::<[u8], _>((Bound::Unbounded, Bound::Included(search))).next_back()
        {
            let common = prefix.iter().zip(key).take_while(|(a, b)| a == b).count();
            if common < prefix.len() {
                search = &key[..common];
                continue;
            }
            slots.iter().for_each(&mut each);
            match common.checked_sub(1) {
                Some(shorter) => search = &key[..shorter],
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn the_registry_notifies_exactly_the_tails_whose_prefix_matches_the_key() {
        let mut random = Random(3);
        let mut word = |len: u64| -> Vec<u8> {
            let len = random.below(len + 1);
            (0..len).map(|_| b"ab\xff/"[random.below(4) as usize]).collect()
        };
        for _ in 0..300 {
            let mut registry = Registry::default();
            for _ in 0..word(40).len() {
                registry.tails.entry(word(6).into()).or_default().push(Arc::new(TailSlot::default()));
            }
            for _ in 0..30 {
                let key = word(8);
                let mut got = Vec::new();
                registry.visit_matching(&key, |slot| got.push(Arc::as_ptr(slot)));
                let expected = registry.tails.iter().filter(|(prefix, _)| key.starts_with(prefix));
                let mut expected: Vec<_> = expected.flat_map(|(_, slots)| slots).map(Arc::as_ptr).collect();
                got.sort();
                expected.sort();
                assert_eq!(got, expected, "{key:?}");
            }
        }
    }
}
