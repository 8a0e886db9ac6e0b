//! The record of requests: a ring buffer of the newest requests, with their bodies.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use values::memory::{Account, Allotment, Memory};

/// Maximum number of requests in the record.
const REQUESTS_MAX: usize = 16_384;

/// Maximum size of all requests in the record in bytes, including the request bodies.
const RECORD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum size of a body in the record; larger bodies are left out.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a request in the record in addition to its texts.
const REQUEST_BYTES: usize = 512;

/// A request that was answered.
#[derive(Clone, Debug, Default)]
pub struct RecordedRequest {
    /// Position in the record: ascending without gaps, never reused.
    pub sequence: u64,
    /// Time of the answer, on the clock of the server.
    pub time: String,
    /// The verb, with the name that roles use.
    pub verb: String,
    /// API group; empty for the core group, and for requests outside of the resource API.
    pub group: String,
    /// API version, as in the path.
    pub version: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Name of the subresource.
    pub subresource: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object, as in the path.
    pub name: String,
    /// Path and query of the URL.
    pub uri: String,
    /// Name of the user, after impersonation; empty if the request was not authenticated.
    pub user: String,
    /// The header `User-Agent`.
    pub user_agent: String,
    /// HTTP status code of the answer.
    pub code: u16,
    /// Time from the request to its answer, in microseconds. For a stream, the time ends when the response begins.
    pub micros: u64,
    /// Number of the fault rule that was applied.
    pub rule: Option<u64>,
    /// The request body; `None` if the body is too large or no memory was available.
    pub body: Option<Bytes>,
    /// Size of the body in bytes.
    pub body_bytes: usize,
}

impl RecordedRequest {
    fn bytes(&self) -> usize {
        let texts = [
            &self.time,
            &self.verb,
            &self.group,
            &self.version,
            &self.resource,
            &self.subresource,
            &self.namespace,
            &self.name,
            &self.uri,
            &self.user,
            &self.user_agent,
        ];
        let texts: usize = texts.iter().map(|text| text.len()).sum();
        REQUEST_BYTES + texts + self.body.as_ref().map_or(0, Bytes::len)
    }
}

/// The record of requests of a server.
pub struct Recording {
    ring: Mutex<Ring>,
    /// Account that the bodies are charged to.
    account: Account,
}

#[derive(Default)]
struct Ring {
    /// Position of the next request.
    next: u64,
    requests: VecDeque<Arc<RecordedRequest>>,
    bytes: usize,
}

/// A part of the record.
#[derive(Clone, Debug, Default)]
pub struct RecordedPart {
    /// The requests, in the order of their answers.
    pub requests: Vec<Arc<RecordedRequest>>,
    /// Position from which to continue.
    pub next: u64,
    /// Number of requests before this part that are no longer in the record.
    pub lost: u64,
}

impl Recording {
    /// Creates an empty record, whose bodies are charged to `memory`.
    pub fn new(memory: Arc<Memory>) -> Recording {
        Recording { ring: Mutex::default(), account: Account::new(memory, Allotment::default()) }
    }

    /// Returns a copy of a request body for the record; `None` if the body is too large or no memory is
    /// available.
    pub fn copied(&self, body: &[u8]) -> Option<Bytes> {
        if body.len() > BODY_BYTES_MAX {
            return None;
        }
        let charge = self.account.try_answer(body.len()).ok()?;
        Some(charge.hold(Bytes::copy_from_slice(body)))
    }

    /// Adds a request, which gets the next position. If the record is full, the oldest requests are removed.
    pub fn add(&self, request: RecordedRequest) {
        let mut ring = self.ring.lock();
        let request = RecordedRequest { sequence: ring.next, ..request };
        ring.next += 1;
        ring.bytes += request.bytes();
        ring.requests.push_back(Arc::new(request));
        while ring.requests.len() > REQUESTS_MAX || ring.bytes > RECORD_BYTES_MAX {
            let Some(oldest) = ring.requests.pop_front() else { break };
            ring.bytes -= oldest.bytes();
        }
    }

    /// Returns the position of the next request. A client can use this position later as the start of a part.
    pub fn mark(&self) -> u64 {
        self.ring.lock().next
    }

    /// Returns the requests that start at the position `since`: at most `most` requests with at most `bytes` bytes in
    /// total, but at least one request.
    pub fn part(&self, since: u64, most: usize, bytes: usize) -> RecordedPart {
        let ring = self.ring.lock();
        let first = ring.requests.front().map_or(ring.next, |first| first.sequence);
        let from = since.clamp(first, ring.next);
        let skipped = usize::try_from(from - first).unwrap_or(usize::MAX);
        let mut left = bytes;
        let mut requests = Vec::new();
        for request in ring.requests.iter().skip(skipped).take(most) {
            if !requests.is_empty() && request.bytes() > left {
                break;
            }
            left = left.saturating_sub(request.bytes());
            requests.push(request.clone());
        }
        let next = requests.last().map_or(from, |last: &Arc<RecordedRequest>| last.sequence + 1);
        RecordedPart { requests, next, lost: first.saturating_sub(since) }
    }

    /// Removes all requests. The positions of later requests continue after the positions of the removed requests.
    pub fn clear(&self) {
        let mut ring = self.ring.lock();
        ring.requests.clear();
        ring.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str) -> RecordedRequest {
        RecordedRequest { name: name.to_owned(), ..RecordedRequest::default() }
    }

    #[test]
    fn a_part_of_a_recording_begins_at_its_mark_and_counts_lost_requests() {
        let recording = Recording::new(Arc::default());
        assert_eq!(recording.part(0, 10, 1 << 20).next, 0);
        for name in ["a", "b", "c"] {
            recording.add(request(name));
        }
        let part = |since, most| {
            let part = recording.part(since, most, 1 << 20);
            let names: Vec<_> = part.requests.iter().map(|request| request.name.clone()).collect();
            (names.concat(), part.next, part.lost)
        };
        assert_eq!(part(0, 10), ("abc".to_owned(), 3, 0));
        assert_eq!(part(1, 1), ("b".to_owned(), 2, 0));
        assert_eq!(part(3, 10), (String::new(), 3, 0));
        assert_eq!(part(u64::MAX, 10), (String::new(), 3, 0));
        recording.clear();
        recording.add(request("d"));
        assert_eq!(part(1, 10), ("d".to_owned(), 4, 2));
        assert_eq!(recording.mark(), 4);
    }

    #[test]
    fn a_recording_is_bounded_in_requests_and_bytes() {
        let recording = Recording::new(Arc::default());
        for _ in 0..REQUESTS_MAX + 10 {
            recording.add(request("x"));
        }
        let part = recording.part(0, usize::MAX, usize::MAX);
        assert_eq!((part.requests.len(), part.lost), (REQUESTS_MAX, 10));
        let long = "u".repeat(64 * 1024);
        for _ in 0..1000 {
            recording.add(RecordedRequest { uri: long.clone(), ..RecordedRequest::default() });
        }
        assert!(recording.ring.lock().bytes <= RECORD_BYTES_MAX);
        assert!(recording.copied(&vec![0; BODY_BYTES_MAX + 1]).is_none());
        assert_eq!(recording.copied(b"body").as_deref(), Some(&b"body"[..]));
        assert_eq!(recording.part(0, usize::MAX, 10).requests.len(), 1);
    }
}
