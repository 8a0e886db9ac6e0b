//! Backfill: gives objects that an older release stored the defaults of this release.
//!
//! ```text
//! store with another mark ─► each stored kind ─► each object ─► defaults ─► unchanged? ─► else one write
//! ```
//!
//! The stored form is the served form, so an object that was stored before a release added a default lacks
//! that default. Reads must not check for this, so the work is done once, when a release opens a store whose
//! defaults bear another mark (`docs/decisions/0008-older-objects-get-new-defaults-once.md`). Watchers see
//! the change like any other. The backfill skips an object that cannot be read, since reads of it fail
//! anyway.

use engine::Entry;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store;
use types::schema::defaults;
pub use types::schema::defaults::MARK;
use types::schema::registry::Resource;
use values::status::Status;

/// Number of concurrent writes, so that they share syncs.
const WRITES: usize = 64;

/// The result of a backfill, in numbers of objects.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// Number of objects that were examined.
    pub seen: usize,
    /// Number of objects that lacked a default and were written.
    pub written: usize,
}

/// Gives every stored object the defaults of this release. A second run writes nothing.
///
/// The cost is one read of every object; a few objects are in memory at a time.
///
/// # Errors
/// Returns the first failure of the store. Writes made until then stay; another run completes the rest.
pub async fn apply_defaults(server: &Server) -> Result<Outcome, Status> {
    let loopback = Loopback::new(server).unasked();
    let snapshot = loopback.store().view();
    let mut outcome = Outcome::default();
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

/// Writes one object if it lacks a default. The comparison happens here, so that an object that lacks nothing
/// causes no write.
async fn complete(loopback: &Loopback<'_>, resource: &Resource, entry: Entry) -> Result<bool, Status> {
    let revision = entry.revision();
    let Ok(stored) = store::read(entry) else { return Ok(false) };
    let Ok(before) = stored.object(resource) else { return Ok(false) };
    let mut object = before.clone();
    defaults::apply(&resource.stored().message, &mut object, loopback.server().types.naming);
    if object == before {
        return Ok(false);
    }
    loopback.backfill(resource, store::identity(resource, &stored.record.key), revision).await
}
