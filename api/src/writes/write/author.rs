//! The author that a write stores with its record: who wrote, with which client, in which request.
//!
//! The author consists of names and addresses, never of credentials. On etcd nothing is stored, because the
//! record is made from the value that etcd returns.

use bytes::Bytes;
use engine::Change;

use super::intent::WriteIntent;
use types::attributes::with_author;
use types::author::WriteAuthor;
use values::request_scope::{text, with_origin};

/// Returns a change with the author of the intent. `replaced` are the attributes of the state that a delete
/// removes as it is stored.
pub(super) fn authored(intent: &WriteIntent<'_>, change: Change, replaced: &[u8]) -> Change {
    if !intent.server().operations.limits.records_authors || intent.store.has_ledger() {
        return change;
    }
    let by = |deletes, attributes: &[u8]| Bytes::from(with_author(attributes, &author(intent, deletes)));
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

fn author(intent: &WriteIntent<'_>, deletes: bool) -> Vec<u8> {
    let author = WriteAuthor {
        deletes,
        user: intent.write.user.name.as_str().into(),
        manager: intent.manager.into(),
        subresource: intent.endpoint.subresource().into(),
        ..WriteAuthor::default()
    };
    // A write that the server makes by itself because of a request has no client.
    if intent.permission.is_none() {
        return author.encode();
    }
    with_origin(|origin| match origin {
        None => author.encode(),
        Some(origin) => WriteAuthor {
            user_agent: origin.user_agent.as_ref().map_or_else(Default::default, text),
            request_id: text(&origin.audit_id),
            source: origin.source.to_string().into(),
            ..author
        }
        .encode(),
    })
}
