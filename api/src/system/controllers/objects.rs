//! Stored objects as controllers read them: all of a collection, as trees.

use bytes::Bytes;
use engine::{Revision, Snapshot};

use values::json::{self, Value};

/// The objects below `prefix`, each with its revision. One that cannot be read is passed over: requests for it are
/// answered with an error anyway.
pub(super) fn objects(snapshot: &Snapshot, prefix: &Bytes) -> Vec<(Revision, Value)> {
    let read = |entry: engine::Entry| {
        let revision = entry.revision();
        let record = entry.read().inspect_err(|error| tracing::error!(%error, "cannot be read")).ok()?;
        let object = json::parse(&record.value);
        Some((revision, object.inspect_err(|error| tracing::error!(%error, "cannot be parsed")).ok()?))
    };
    snapshot.prefix(prefix).filter_map(read).collect()
}
