//! The backfill sets default values of this release in objects that an older release stored.
//!
//! ```text
//! store with another mark ─► each stored kind ─► each object ─► defaults ─► unchanged? ─► else one write
//! ```
//!
//! Objects are served in their stored form. If a release adds a default, the objects that were stored before
//! do not have this default. A check on every read would be too expensive, so the backfill runs once, when a
//! release opens a store with the mark of another release's defaults
//! (`docs/decisions/0008-older-objects-get-new-defaults-once.md`). Watchers receive the change like any other
//! change. The backfill skips an object that cannot be read, because clients cannot read it either.

use engine::Entry;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store;
use types::schema::defaults;
pub use types::schema::defaults::MARK;
use types::schema::registry::Resource;
use values::status::Status;

/// Number of concurrent writes. Concurrent writes share syncs.
const WRITES: usize = 64;

/// The result of a backfill, in numbers of objects.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BackfillCounts {
    /// Number of objects that were examined.
    pub seen: usize,
    /// Number of objects that lacked a default and were written.
    pub written: usize,
}

/// Sets the defaults of this release in every stored object. A second run makes no writes.
///
/// The backfill reads every object once. Only a few objects are in memory at a time.
///
/// # Errors
/// Returns the first failure of the store. The objects that were written before the failure stay written.
/// Another run writes the remaining objects.
pub async fn apply_defaults(server: &Server) -> Result<BackfillCounts, Status> {
    let loopback = Loopback::new(server).without_admission();
    let snapshot = loopback.store().view();
    let mut outcome = BackfillCounts::default();
    let types = server.types.now();
    for resource in types.registry().stored() {
        let entries = snapshot.prefix(&store::collection(resource, ""));
        let writes = stream::iter(entries).map(|entry| complete(&loopback, resource, entry));
        let mut writes = std::pin::pin!(writes.buffer_unordered(WRITES));
        while let Some(is_written) = writes.try_next().await? {
            outcome.seen += 1;
            outcome.written += usize::from(is_written);
        }
    }
    Ok(outcome)
}

/// Writes one object if the object lacks a default. The comparison happens here, so that an object with all
/// defaults causes no write.
async fn complete(loopback: &Loopback<'_>, resource: &Resource, entry: Entry) -> Result<bool, Status> {
    let revision = entry.revision();
    let Ok(stored) = store::read(entry) else { return Ok(false) };
    let Ok(before) = stored.object(resource) else { return Ok(false) };
    let mut object = before.clone();
    defaults::apply(&resource.stored().message, &mut object, loopback.server().types.naming);
    if object == before {
        return Ok(false);
    }
    loopback.backfill(resource, store::object_name(resource, &stored.record.key), revision).await
}
