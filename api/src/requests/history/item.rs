//! An item of a history: a version of the object, with its author and its changes.

use std::time::SystemTime;

use bytes::Bytes;
use engine::Entry;
use jiff::Timestamp;

use objects::changes::differences;
use objects::store;
use types::attributes;
use types::author::WriteAuthor;
use values::json::{Object, Value};
use values::query::Query;
use values::status::Status;

/// Maximum number of changed fields that an item names.
const FIELDS_MAX: usize = 100;

/// A retained version of an object.
pub(super) struct RetainedState {
    /// The version in the index.
    pub entry: Entry,
    /// The attributes of its record, with the author.
    pub attributes: Bytes,
    /// The object in the requested version.
    pub object: Value,
}

/// The parts that each item has in addition, on request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct IncludedParts {
    object: bool,
    patch: bool,
}

impl IncludedParts {
    /// Reads the parameter `include`, which may be repeated or have several values with commas.
    ///
    /// # Errors
    /// 400 for an unknown part.
    pub fn parse(query: &Query) -> Result<IncludedParts, Status> {
        let mut included = IncludedParts::default();
        for part in query.all("include").flat_map(|parts| parts.split(',')) {
            match part {
                "object" => included.object = true,
                "patch" => included.patch = true,
                _ => {
                    return Err(Status::bad_request(format!(
                        "invalid include {part:?}: must be object or patch"
                    )));
                }
            }
        }
        Ok(included)
    }
}

/// Returns the item of a version. `before` is the version before it, if that is retained.
///
/// # Errors
/// 500 if the record cannot be read.
pub(super) fn item(
    state: &RetainedState,
    before: Option<&RetainedState>,
    included: IncludedParts,
) -> Result<Object, Status> {
    let entry = &state.entry;
    let time = entry.committed_at().map_err(store::damaged)?;
    let author = attributes::author(&state.attributes).and_then(WriteAuthor::decode);
    // A delete by the store copies the author of the state that it removes.
    let author = author.filter(|author| author.deletes == entry.is_delete());
    let mut item = Object::new();
    item.push("revision", entry.revision().to_string().into());
    item.push("time", shown(time).into());
    item.push("operation", operation(entry, before, time, author.as_ref()).into());
    if let Some(author) = author {
        if !author.subresource.is_empty() {
            item.push("subresource", (&*author.subresource).into());
        }
        item.push("author", shown_author(&author).into());
    }
    let before = before.filter(|before| !before.entry.is_delete() && !entry.is_delete());
    if let Some(before) = before {
        let changes = differences(&before.object, &state.object);
        let fields = changes.iter().take(FIELDS_MAX).map(|change| change.path().into());
        item.push("fields", Value::Array(fields.collect()));
        if included.patch {
            item.push("patch", Value::Array(changes.iter().map(|change| change.operation()).collect()));
        }
    }
    if included.object {
        item.push("object", state.object.clone());
    }
    Ok(item)
}

fn operation(
    entry: &Entry,
    before: Option<&RetainedState>,
    time: SystemTime,
    author: Option<&WriteAuthor<'_>>,
) -> &'static str {
    if !entry.is_delete() {
        return if entry.created() == entry.revision() { "Create" } else { "Update" };
    }
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let expires_s = before.and_then(|before| before.entry.expires_s());
    let has_expired = expires_s.is_some_and(|expires_s| u64::from(expires_s) <= since);
    if has_expired && author.is_none() { "Expire" } else { "Delete" }
}

fn shown_author(author: &WriteAuthor<'_>) -> Object {
    let mut shown = Object::new();
    for (name, text) in [
        ("user", &author.user),
        ("userAgent", &author.user_agent),
        ("manager", &author.manager),
        ("requestID", &author.request_id),
        ("source", &author.source),
    ] {
        if !text.is_empty() {
            shown.push(name, (&**text).into());
        }
    }
    shown
}

fn shown(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
