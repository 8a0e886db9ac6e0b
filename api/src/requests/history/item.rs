//! An item of a history: a version of the object, with its author and its changes.

use std::time::SystemTime;

use bytes::Bytes;
use engine::Entry;

use objects::changes::{Difference, differences};
use objects::store;
use types::attributes;
use types::author::WriteAuthor;
use values::clock;
use values::json::{Object, Value};
use values::query::Query;
use values::status::Status;

/// Maximum number of changed fields that an item names.
const FIELDS_MAX: usize = 100;

/// Maximum number of operations in the patch of an item. A larger patch would be longer than most
/// objects.
const OPERATIONS_MAX: usize = 1_000;

/// A retained version of an object.
pub(super) struct RetainedState {
    /// The index entry of this version.
    pub entry: Entry,
    /// The attributes of the record, which contain the author.
    pub attributes: Bytes,
    /// The object in the requested version.
    pub object: Value,
}

/// Optional members that each item of the log contains if the client requests them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct IncludedParts {
    object: bool,
    patch: bool,
}

impl IncludedParts {
    /// Reads the parameter `include`. A client can repeat the parameter or separate several values by commas.
    ///
    /// # Errors
    /// 400 for an unknown value.
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

    /// Returns the additional size of an item with these members, as a multiple of the size of the stored
    /// version.
    pub fn multiple(self) -> usize {
        usize::from(self.object) + usize::from(self.patch)
    }
}

/// Returns the item of a version. `before` is the previous version, if it is retained.
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
    // If the store itself deletes an object, the record of the deletion is a copy of the deleted state, with
    // the author of that state. The author in such a record did not delete the object.
    let author = author.filter(|author| author.deletes == entry.is_delete());
    let mut item = Object::new();
    item.push("revision", entry.revision().to_string().into());
    item.push("time", clock::format_millis(time).into());
    item.push("operation", operation(entry, before, time, author.as_ref()).into());
    if let Some(author) = author {
        if !author.subresource.is_empty() {
            item.push("subresource", (&*author.subresource).into());
        }
        item.push("author", author_object(&author).into());
    }
    let before = before.filter(|before| !before.entry.is_delete() && !entry.is_delete());
    if let Some(before) = before {
        add_changes(&mut item, before, state, included);
    }
    if included.object {
        item.push("object", state.object.clone());
    }
    Ok(item)
}

/// Adds the changed fields and, if requested, the patch. The member `cut` names the incomplete lists.
fn add_changes(item: &mut Object, before: &RetainedState, state: &RetainedState, included: IncludedParts) {
    let most = if included.patch { OPERATIONS_MAX } else { FIELDS_MAX };
    let changes = differences(&before.object, &state.object, most);
    let fields = changes.found.iter().take(FIELDS_MAX).map(|change| change.path().into());
    item.push("fields", Value::Array(fields.collect()));
    if included.patch {
        let operations = changes.found.iter().map(Difference::operation);
        item.push("patch", Value::Array(operations.collect()));
    }
    let mut cut: Vec<Value> = Vec::new();
    if changes.is_cut || changes.found.len() > FIELDS_MAX {
        cut.push("fields".into());
    }
    if changes.is_cut && included.patch {
        cut.push("patch".into());
    }
    if !cut.is_empty() {
        item.push("cut", Value::Array(cut));
    }
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

fn author_object(author: &WriteAuthor<'_>) -> Object {
    let mut object = Object::new();
    let source = author.source.map(|address| address.to_string()).unwrap_or_default();
    for (name, text) in [
        ("user", &author.user),
        ("userAgent", &author.user_agent),
        ("manager", &author.manager),
        ("requestID", &author.request_id),
        ("source", &source.into()),
    ] {
        if !text.is_empty() {
            object.push(name, (&**text).into());
        }
    }
    object
}
