//! One committed write as tails hand it out, and the representations that its consumers cache in it.
//!
//! An event is shared by all tails and never changes, but for its cache ([`Memo`]), in which each slot is filled at most
//! once. It does not know what a slot holds: the consumers agree on that.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::record::EventKind;
use crate::snapshot::Entry;
use crate::types::Revision;

/// Representations one event can keep.
pub const MEMO_SLOTS: usize = 16;

/// One committed write, as tails hand it out. Shared by all of them.
pub struct Event {
    /// Its revision.
    pub revision: Revision,
    /// What happened to the key.
    pub kind: EventKind,
    /// The key.
    pub key: Bytes,
    /// The state after it; for a delete the final state.
    pub entry: Entry,
    /// The state before it; `None` when the key did not exist.
    pub previous: Option<Entry>,
    /// Where consumers may keep what they made of it.
    pub memo: Memo,
    pub(crate) audience: AtomicU32,
}

impl Event {
    /// How many tails it concerned when it was published; 0 for one that was read back from the log.
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

/// Shared representations of an event, so that each is made once however many consumers want it. Consumers agree
/// among themselves on what each slot holds. Lives as long as the event: in the ring, for a while.
#[derive(Default)]
pub struct Memo(OnceLock<Box<[Cached; MEMO_SLOTS]>>);

impl Memo {
    /// What `slot` holds, made by `make` if it is empty. When two ask at once, one makes and the other waits.
    /// A slot past [`MEMO_SLOTS`], or one that holds another type, keeps nothing: `make` runs each time.
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

    /// What `slot` holds already.
    pub fn get<T: Any + Send + Sync>(&self, slot: u8) -> Option<Arc<T>> {
        self.0.get()?.get(usize::from(slot))?.get()?.clone().downcast().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memo_keeps_one_representation_in_each_slot() {
        let memo = Memo::default();
        assert!(memo.get::<u32>(0).is_none());
        assert_eq!(*memo.get_or_make(0, || 1u32), 1);
        assert_eq!(*memo.get_or_make(0, || 2u32), 1);
        assert_eq!(*memo.get_or_make(MEMO_SLOTS as u8 - 1, || 3u32), 3);
        assert_eq!(memo.get::<u32>(MEMO_SLOTS as u8 - 1).as_deref(), Some(&3));
        // The wrong type and the slot that is not there are made anew each time.
        assert_eq!(*memo.get_or_make(0, || "x"), "x");
        assert_eq!(*memo.get_or_make(MEMO_SLOTS as u8, || 4u32), 4);
        assert!(memo.get::<u32>(MEMO_SLOTS as u8).is_none());
        assert_eq!(memo.get::<u32>(0).as_deref(), Some(&1));
    }
}
