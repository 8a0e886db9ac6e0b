//! Versions in a fixed room, added at the end and never changed: a slice that grows while others look at it.
//!
//! ```text
//! places  v1 v2 v3 ·  ·          filled = 3: what anybody sees
//!                  └ claimed by whoever is the first to say "behind the third"
//! ```
//!
//! Whoever adds says behind how many. When there is something already, put there by somebody whose past is the same up to
//! here and goes on differently, nothing is added, and that past has to be copied. What is seen of the slice beyond one's
//! own past is for its owner to ignore.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::history::Version;

/// See the module.
pub(crate) struct Versions {
    places: Box<[UnsafeCell<MaybeUninit<Version>>]>,
    /// Places from the first on that somebody has written or is writing.
    claimed: AtomicU32,
    /// Places from the first on that are written, and are not written again.
    filled: AtomicU32,
}

// SAFETY: a place is written once, by the one thread whose exchange of `claimed` succeeded for it, and read only below
// `filled`, which is raised past it after that, with release and acquire.
unsafe impl Sync for Versions {}

impl Versions {
    /// Room for `capacity` versions, of which `first` are there.
    pub fn new(first: &[Version], capacity: usize) -> Versions {
        let rest = capacity.saturating_sub(first.len());
        let places = first.iter().map(|version| MaybeUninit::new(*version));
        let places = places.chain(std::iter::repeat_n(MaybeUninit::uninit(), rest)).map(UnsafeCell::new);
        let filled = first.len() as u32;
        Versions { places: places.collect(), claimed: AtomicU32::new(filled), filled: AtomicU32::new(filled) }
    }

    /// What is there, in the order in which it came.
    pub fn as_slice(&self) -> &[Version] {
        let filled = self.filled.load(Ordering::Acquire) as usize;
        // SAFETY: cell and `MaybeUninit` have the layout of what is in them. Places below `filled` are written, before
        // the load that tells so, and nobody writes them again while this lives.
        unsafe { std::slice::from_raw_parts(self.places.as_ptr().cast::<Version>(), filled) }
    }

    /// Adds `version` behind the first `len`; false when there is no room, or somebody else's version.
    pub fn push_behind(&self, len: usize, version: Version) -> bool {
        let len = len as u32;
        let Some(place) = self.places.get(len as usize) else { return false };
        // Not before the one who claimed the place before is done with it.
        if self.filled.load(Ordering::Acquire) != len
            || self.claimed.compare_exchange(len, len + 1, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // SAFETY: the exchange above succeeds once for each place, and nobody reads it before the store below.
        unsafe { (*place.get()).write(version) };
        self.filled.store(len + 1, Ordering::Release);
        true
    }
}

impl std::fmt::Debug for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Place;

    fn version(revision: u64) -> Version {
        Version { revision, created: revision, segment: 0, expires_s: 0, place: Place::new(64, 100, false) }
    }

    #[test]
    fn what_is_there_is_added_to_and_never_changed() {
        let versions = Versions::new(&[version(1), version(2)], 3);
        let before = versions.as_slice();
        assert!(!versions.push_behind(1, version(9)), "there is something");
        assert!(versions.push_behind(2, version(3)));
        assert!(!versions.push_behind(3, version(4)), "there is no room");
        assert_eq!(before, [version(1), version(2)]);
        assert_eq!(versions.as_slice(), [version(1), version(2), version(3)]);
        assert!(Versions::new(&[], 0).as_slice().is_empty());
    }

    #[test]
    fn of_many_who_add_at_once_one_wins_each_place_and_readers_see_whole_versions() {
        const COUNT: u64 = 10_000;
        let versions = Versions::new(&[], COUNT as usize);
        let won = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let mut won = 0;
                        while versions.as_slice().len() < COUNT as usize {
                            let seen = versions.as_slice();
                            assert!(seen.last().is_none_or(|last| last.revision == last.created));
                            let len = seen.len();
                            won += u64::from(versions.push_behind(len, version(len as u64 + 1)));
                        }
                        won
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum::<u64>()
        });
        assert_eq!(won, COUNT);
        assert!(versions.as_slice().iter().map(|version| version.revision).eq(1..=COUNT));
    }
}
