//! Writes of this server that are under way, with their payloads in the engine's form. A value that the
//! stream returns need not be decoded again.
//!
//! ```text
//! write ─► payload ─ encode ─► value ─► etcd ─ stream ─► the same value ─► that payload
//! ```
//!
//! Decoding a value that was encoded here yields the original payload. Therefore all copies have the same
//! bytes, no matter which server wrote the value. Builds with assertions decode the value anyway and compare
//! the payloads. A write lasts until the engine has its value, and its entry is kept for the same time. So
//! there are no more entries than writes, and an entry shares the memory of its write.

use std::collections::HashMap;

use bytes::Bytes;
use engine::Payload;
use etcd::rpc::KeyValue;
use parking_lot::Mutex;

/// The writes under way, by etcd key. Several writes of one key may be under way at the same time.
#[derive(Default)]
pub(super) struct OwnWrites(Mutex<HashMap<Bytes, Vec<Own>>>);

struct Own {
    value: Bytes,
    payload: Payload,
}

/// Keeps the entry of a write until it is dropped.
pub(super) struct Noted<'o> {
    writes: &'o OwnWrites,
    key: Bytes,
    value: Bytes,
}

impl OwnWrites {
    /// Records that `value`, which was encoded from `payload`, is being written to a key.
    pub(super) fn note(&self, key: &Bytes, value: &Bytes, payload: &Payload) -> Noted<'_> {
        let own = Own { value: value.clone(), payload: payload.clone() };
        self.0.lock().entry(key.clone()).or_default().push(own);
        Noted { writes: self, key: key.clone(), value: value.clone() }
    }

    /// Returns the payload of a value, if a write of it is recorded.
    pub(super) fn payload(&self, kv: &KeyValue) -> Option<Payload> {
        let noted = self.0.lock();
        noted.get(&kv.key)?.iter().find(|own| own.value == kv.value).map(|own| own.payload.clone())
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        let mut noted = self.writes.0.lock();
        let Some(of_key) = noted.get_mut(&self.key) else { return };
        // If two values are equal, either entry may be removed.
        if let Some(at) = of_key.iter().position(|own| own.value == self.value) {
            of_key.swap_remove(at);
        }
        if of_key.is_empty() {
            noted.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(text: &str) -> Payload {
        Payload { value: text.to_owned().into(), ..Payload::default() }
    }

    #[test]
    fn a_write_is_known_by_its_key_and_value_for_as_long_as_it_is_under_way() {
        let writes = OwnWrites::default();
        let key = Bytes::from_static(b"k");
        let found = |key: &str, value: &str| {
            let (key, value) = (key.to_owned().into(), value.to_owned().into());
            let payload = writes.payload(&KeyValue { key, value, ..KeyValue::default() });
            payload.map(|payload| String::from_utf8(payload.value.to_vec()).unwrap())
        };
        let note = |value: &str, of: &str| writes.note(&key, &value.to_owned().into(), &payload(of));
        let (first, second) = (note("v1", "p1"), note("v2", "p2"));
        let same = note("v2", "p2");
        assert_eq!(found("k", "v1").as_deref(), Some("p1"));
        assert_eq!(found("k", "v2").as_deref(), Some("p2"));
        assert_eq!((found("k", "v3"), found("other", "v1")), (None, None));
        drop((first, second));
        assert_eq!(found("k", "v1"), None);
        assert_eq!(found("k", "v2").as_deref(), Some("p2"), "the other one is under way");
        drop(same);
        assert!(writes.0.lock().is_empty());
    }
}
