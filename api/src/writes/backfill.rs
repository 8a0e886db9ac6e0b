//! Backfill: objects that an older release stored get the defaults of this release.
//!
//! ```text
//! store of another mark ─► each stored kind ─► each object ─► defaults ─► the same? ─► else one write
//! ```
//!
//! The stored form is the served form, so a default that a release adds is missing from what was stored before. Reads
//! must not look for that, so it is done once, when a release meets a store whose defaults bear another mark
//! (`docs/decisions/0008-older-objects-get-new-defaults-once.md`). Watchers see the change like any other. An object
//! that cannot be read is passed over: it is served as an error anyway.

use engine::Entry;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::writes::context::Context;
use crate::writes::loopback::Loopback;
use objects::store;
use types::schema::defaults;
pub use types::schema::defaults::MARK;
use types::schema::registry::Resource;
use values::status::Status;

/// How many writes are under way at once, so that they share syncs.
const WRITES: usize = 64;

/// What came of it, in numbers of objects.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// Looked at.
    pub seen: usize,
    /// Lacked a default, and were written.
    pub written: usize,
}

/// Gives every stored object the defaults of this release. Running it again writes nothing.
///
/// Costs reading every object once; holds a few of them at a time.
///
/// # Errors
/// The first failure of the store. What was written by then stays; running it again completes the rest.
pub async fn apply_defaults(api: &Context) -> Result<Outcome, Status> {
    let loopback = Loopback::new(api).unasked();
    let snapshot = loopback.store().view();
    let mut outcome = Outcome::default();
    let types = api.types();
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

/// Writes one object if it lacks a default. The others are looked at here, so that only a difference costs a write.
async fn complete(loopback: &Loopback<'_>, resource: &Resource, entry: Entry) -> Result<bool, Status> {
    let revision = entry.revision();
    let Ok(stored) = store::read(entry) else { return Ok(false) };
    let Ok(before) = stored.object(resource) else { return Ok(false) };
    let mut object = before.clone();
    defaults::apply(&resource.stored().message, &mut object, loopback.api().naming());
    if object == before {
        return Ok(false);
    }
    loopback.backfill(resource, store::identity(resource, &stored.record.key), revision).await
}
