//! Writes of this server that are under way, with their payloads in the engine's form. When the stream
//! returns a value of such a write, the value need not be decoded.
//!
//! ```text
//! write ─► payload ─ encode ─► value ─► etcd ─ stream ─► the same value ─► that payload
//! ```
//!
//! Decoding a value that this server encoded gives the original payload. Therefore the copies of all servers
//! contain the same bytes, regardless of the server that wrote the value. Builds with assertions decode the
//! value as well and compare the payloads. The entry of a write exists until the engine contains the value of
//! the write. Therefore there are at most as many entries as writes. An entry refers to the memory of its
//! write.

use std::collections::HashMap;

use bytes::Bytes;
use engine::Payload;
use etcd::rpc::KeyValue;
use parking_lot::Mutex;

/// The writes that are under way, by etcd key. Several writes of one key may be under way at the same time.
#[derive(Default)]
pub(super) struct OwnWrites(Mutex<HashMap<Bytes, Vec<Own>>>);

struct Own {
    value: Bytes,
    payload: Payload,
}

/// Guard of the entry of a write. Dropping the guard removes the entry.
pub(super) struct OwnWriteGuard<'o> {
    writes: &'o OwnWrites,
    key: Bytes,
    value: Bytes,
}

impl OwnWrites {
    /// Adds an entry for a write of `value`, which was encoded from `payload`, to a key.
    pub(super) fn note(&self, key: &Bytes, value: &Bytes, payload: &Payload) -> OwnWriteGuard<'_> {
        let own = Own { value: value.clone(), payload: payload.clone() };
        self.0.lock().entry(key.clone()).or_default().push(own);
        OwnWriteGuard { writes: self, key: key.clone(), value: value.clone() }
    }

    /// Returns the payload of a value; `None` if there is no entry for a write of the value.
    pub(super) fn payload(&self, kv: &KeyValue) -> Option<Payload> {
        let noted = self.0.lock();
        noted.get(&kv.key)?.iter().find(|own| own.value == kv.value).map(|own| own.payload.clone())
    }
}

impl Drop for OwnWriteGuard<'_> {
    fn drop(&mut self) {
        let mut noted = self.writes.0.lock();
        let Some(of_key) = noted.get_mut(&self.key) else { return };
        // If two values are equal, removing either entry is correct.
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
    fn an_own_write_is_found_by_key_and_value_while_it_is_in_flight() {
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
