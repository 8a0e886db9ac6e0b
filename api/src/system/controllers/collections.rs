//! Reads all stored objects of a collection as trees, for controllers.

use bytes::Bytes;
use engine::{Revision, Snapshot};

use values::json::{self, Value};

/// Returns the objects below `prefix`, each with its revision. Objects that cannot be read are skipped, because
/// requests for these objects return an error anyway.
pub(super) fn objects(snapshot: &Snapshot, prefix: &Bytes) -> Vec<(Revision, Value)> {
    let read = |entry: engine::Entry| {
        let revision = entry.revision();
        let record =
            entry.read().inspect_err(|error| tracing::error!(%error, "object cannot be read")).ok()?;
        let object = json::parse(&record.value);
        Some((revision, object.inspect_err(|error| tracing::error!(%error, "object cannot be parsed")).ok()?))
    };
    snapshot.prefix(prefix).filter_map(read).collect()
}
