//! Notes of the test features about one request.

use std::sync::OnceLock;

use bytes::Bytes;

use super::recording::Recording;
use super::under_way::WriteUnderWay;
use super::watches::WatchFault;

/// Notes about a request on a server with test features.
#[derive(Debug, Default)]
pub struct TestedRequest {
    /// Number of the fault rule that applies to the request.
    pub rule: Option<u64>,
    /// Disturbance of the watch that the request begins.
    pub watch: Option<WatchFault>,
    /// Earlier point at which the request reads.
    pub stale_at: Option<String>,
    /// Whether the response is aborted after the request is served.
    pub closes: bool,
    /// Counts the request among the writes under way, if the request is a write.
    pub write: Option<WriteUnderWay>,
    /// The body, if the body is recorded, and the size of the body.
    body: OnceLock<(Option<Bytes>, usize)>,
}

impl TestedRequest {
    /// Keeps a copy of the body for the record of requests.
    pub fn keep_body(&self, recording: &Recording, body: &[u8]) {
        if !body.is_empty() {
            self.body.get_or_init(|| (recording.copied(body), body.len()));
        }
    }

    /// Returns the kept body, and the size of the body.
    pub fn body(&self) -> (Option<Bytes>, usize) {
        self.body.get().cloned().unwrap_or_default()
    }
}
