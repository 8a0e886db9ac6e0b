//! Records for the engine's benchmarks, under the keys of pods.

use bytes::Bytes;
use engine::{Change, Expected, Payload, Write};

/// Prefix of the records' keys.
pub const PREFIX: &str = "/core/pods/default/";

/// Returns the key of a record. The keys of the first hundred million records have 31 bytes each.
pub fn key(at: usize) -> Bytes {
    format!("{PREFIX}pod-{at:08}").into()
}

/// Returns an unconditional write of a record.
pub fn put(at: usize, value: &Bytes) -> Write {
    let payload = Payload {
        attributes: Bytes::from_static(b"app=web"),
        value: value.clone(),
        stamp_at: Some(80),
        ttl: None,
        essential: false,
    };
    Write { key: key(at), expected: Expected::Any, change: Change::Put(payload) }
}
