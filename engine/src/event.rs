//! Committed writes as tails return them, each with a cache for the representations that its consumers make.
//!
//! All tails share an event. An event never changes, except for its cache ([`Memo`]), each slot of which is
//! filled at most once. The consumers agree on the content of each slot; the event does not interpret it.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::entry::Entry;
use crate::record::EventKind;
use crate::types::Revision;

/// Maximum number of representations that an event can cache.
pub const MEMO_SLOTS: usize = 16;

/// A committed write as tails return it. All tails share the event.
pub struct Event {
    /// Revision of the committed write.
    pub revision: Revision,
    /// Whether the key was written or deleted.
    pub kind: EventKind,
    /// Key of the committed write.
    pub key: Bytes,
    /// State after the write; for a delete, the final state.
    pub entry: Entry,
    /// State before the write; `None` if the key did not exist.
    pub previous: Option<Entry>,
    /// Cache for representations that consumers make of this event.
    pub memo: Memo,
    pub(crate) audience: AtomicU32,
}

impl Event {
    /// Returns the number of tails that this event concerned when it was published; 0 if the event was read
    /// back from the log.
    pub fn audience(&self) -> u32 {
        self.audience.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("revision", &self.revision)
            .field("kind", &self.kind)
            .field("key", &String::from_utf8_lossy(&self.key))
            .field("previous", &self.previous.as_ref().map(Entry::revision))
            .finish_non_exhaustive()
    }
}

type Cached = OnceLock<Arc<dyn Any + Send + Sync>>;

/// Cached representations of an event, so that each one is made only once, however many consumers need it.
/// The consumers agree on the content of each slot. The cache lives as long as the event, which the ring
/// keeps for a while.
#[derive(Default)]
pub struct Memo(OnceLock<Box<[Cached; MEMO_SLOTS]>>);

impl Memo {
    /// Returns the content of `slot`, and calls `make` for it if the slot is empty. If two callers find the
    /// slot empty at the same time, one caller calls `make` and the other one waits. A slot at or above
    /// [`MEMO_SLOTS`], or one that holds another type, caches nothing: `make` runs each time.
    pub fn get_or_make<T: Any + Send + Sync>(&self, slot: u8, make: impl FnOnce() -> T) -> Arc<T> {
        let slots = self.0.get_or_init(Default::default);
        let mut make = Some(make);
        let cached = slots.get(usize::from(slot)).and_then(|cached| {
            let held = cached.get_or_init(|| match make.take() {
                Some(make) => Arc::new(make()),
                None => Arc::new(()),
            });
            held.clone().downcast::<T>().ok()
        });
        match (cached, make) {
            (Some(cached), _) => cached,
            (None, Some(make)) => Arc::new(make()),
            (None, None) => unreachable!("a slot that was just made has the type it was made with"),
        }
    }

    /// Returns the content of `slot` if it is filled with a `T`.
    pub fn get<T: Any + Send + Sync>(&self, slot: u8) -> Option<Arc<T>> {
        self.0.get()?.get(usize::from(slot))?.get()?.clone().downcast().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memo_keeps_one_representation_per_slot() {
        let memo = Memo::default();
        assert!(memo.get::<u32>(0).is_none());
        assert_eq!(*memo.get_or_make(0, || 1u32), 1);
        assert_eq!(*memo.get_or_make(0, || 2u32), 1);
        assert_eq!(*memo.get_or_make(MEMO_SLOTS as u8 - 1, || 3u32), 3);
        assert_eq!(memo.get::<u32>(MEMO_SLOTS as u8 - 1).as_deref(), Some(&3));
        // A request for another type, or for a slot that does not exist, calls `make` each time.
        assert_eq!(*memo.get_or_make(0, || "x"), "x");
        assert_eq!(*memo.get_or_make(MEMO_SLOTS as u8, || 4u32), 4);
        assert!(memo.get::<u32>(MEMO_SLOTS as u8).is_none());
        assert_eq!(memo.get::<u32>(0).as_deref(), Some(&1));
    }
}
