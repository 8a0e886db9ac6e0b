//! The test features: additional features for servers that a test suite starts, below `/testing`
//! (docs/api/testing.md).
//!
//! ```text
//! pipeline ─► FaultRules: fail, delay, stale ─► serve ─► Recording
//!                                watches ─► OpenWatches: stall, end, quiescence
//! /testing ─► clock (values::clock) · rules · record · watches · StateSnapshots
//! ```
//!
//! The features exist only with `--testing`. Without this flag there is no [`Testing`], and each request
//! executes only one additional branch.

mod faults;
mod pattern;
mod recording;
mod snapshots;
mod tested;
mod under_way;
mod watches;

use std::sync::Arc;

use values::memory::Memory;

pub use self::faults::{AppliedFault, FaultEffect, FaultRule, FaultRules, InjectedError};
pub use self::pattern::{AnyOf, RequestPattern, RequestSubject, TextPattern};
pub use self::recording::{RecordedPart, RecordedRequest, Recording};
pub use self::snapshots::{SnapshotFailure, StateSnapshots};
pub use self::tested::TestedRequest;
pub use self::under_way::{WriteUnderWay, WritesUnderWay};
pub use self::watches::{OpenWatches, WatchDisturbance, WatchEnd, WatchFault, WatchIdentity, WatchProbe};

/// The test features of a server.
pub struct Testing {
    /// The rules that disturb requests.
    pub faults: FaultRules,
    /// The record of requests.
    pub recording: Recording,
    /// The watches that are open.
    pub watches: OpenWatches,
    /// The states that were saved.
    pub snapshots: StateSnapshots,
    /// The writes of clients that are not answered yet.
    pub writes: WritesUnderWay,
}

impl Testing {
    /// Creates the test features of a server. The memory of the test features is charged to `memory`.
    pub fn new(memory: Arc<Memory>) -> Testing {
        Testing {
            faults: FaultRules::default(),
            recording: Recording::new(memory),
            watches: OpenWatches::default(),
            snapshots: StateSnapshots::default(),
            writes: WritesUnderWay::default(),
        }
    }
}

/// The paths of the test features, for the index of paths.
pub const PATHS: [&str; 7] = [
    "/testing",
    "/testing/clock",
    "/testing/faults",
    "/testing/quiescence",
    "/testing/requests",
    "/testing/snapshots",
    "/testing/watches",
];

/// Returns whether a path belongs to the test features.
pub fn is_own_path(path: &str) -> bool {
    path.strip_prefix("/testing").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
