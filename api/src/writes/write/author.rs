//! The author that a write stores with its record: the user, the client and the request.
//!
//! The author contains names and addresses, never credentials. A server on etcd does not store the author,
//! because it creates the record from the value that etcd returns.

use bytes::Bytes;
use engine::Change;

use super::intent::WriteIntent;
use crate::writes::server::Server;
use objects::store::Store;
use types::author::WriteAuthor;
use values::request_scope::{text, with_origin};

/// The user of a write, and data about the write.
#[derive(Clone, Copy, Debug)]
pub struct WritingUser<'a> {
    /// Name of the user.
    pub user: &'a str,
    /// Field manager; empty if the write has no field manager.
    pub manager: &'a str,
    /// Subresource through which the object is written; empty for the object itself.
    pub subresource: &'a str,
    /// Whether a request of a client makes the write. The value is false for writes that the server makes itself, even
    /// if a request caused the write.
    pub is_client: bool,
}

/// Adds the user of the intent to a change as the author. `replaced` are the attributes of the stored object,
/// for a deletion whose final state is the stored state.
pub(super) fn authored(intent: &WriteIntent<'_>, change: Change, replaced: &[u8]) -> Change {
    let writer = WritingUser {
        user: intent.write.user.name.as_str(),
        manager: intent.manager,
        subresource: intent.endpoint.subresource(),
        is_client: intent.permission.is_some(),
    };
    authored_by(intent.server(), &intent.store, writer, change, replaced)
}

/// Adds the writer to a change as the author, if the server records authors.
pub fn authored_by(
    server: &Server,
    store: &Store<'_>,
    writer: WritingUser<'_>,
    change: Change,
    replaced: &[u8],
) -> Change {
    if !server.operations.limits.records_authors || store.has_ledger() {
        return change;
    }
    let by = |deletes, attributes: &[u8]| {
        with_author(writer, deletes, |author| Bytes::from(author.added_to(attributes)))
    };
    match change {
        Change::Put(mut payload) => {
            payload.attributes = by(false, &payload.attributes);
            Change::Put(payload)
        }
        Change::Delete(Some(mut payload)) => {
            payload.attributes = by(true, &payload.attributes);
            Change::Delete(Some(payload))
        }
        Change::Delete(None) | Change::DeleteStored(_) => Change::DeleteStored(by(true, replaced)),
    }
}

/// Calls `take` with the author of a write in the current request.
fn with_author<T>(writer: WritingUser<'_>, deletes: bool, take: impl FnOnce(&WriteAuthor<'_>) -> T) -> T {
    let WritingUser { user, manager, subresource, is_client } = writer;
    let author = WriteAuthor {
        deletes,
        user: user.into(),
        manager: manager.into(),
        subresource: subresource.into(),
        ..WriteAuthor::default()
    };
    with_origin(|origin| match origin.filter(|_| is_client) {
        None => take(&author),
        Some(origin) => take(&WriteAuthor {
            user_agent: origin.user_agent.as_ref().map_or_else(Default::default, text),
            request_id: text(&origin.audit_id),
            source: Some(origin.source),
            ..author
        }),
    })
}
