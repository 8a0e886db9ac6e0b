//! Query and path parameters of operations, and which operation takes which (docs/api/paths-and-verbs.md#options).

use std::borrow::Cow;

use crate::types::schema::table::{Field, Kind, Message, Shape, Text};

/// One parameter.
#[derive(Clone, Debug)]
pub(super) struct Parameter {
    pub name: Text,
    /// `query` or `path`.
    pub location: &'static str,
    /// `string`, `integer`, `boolean`.
    pub kind: &'static str,
    pub description: Text,
    /// In v2 written once for the document and referred to; otherwise written in each operation. Clients that
    /// decide by a parameter's presence look for it in the operation, so those parameters are not shared.
    pub shared: bool,
}

const fn query(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    let (name, description) = (Cow::Borrowed(name), Cow::Borrowed(description));
    Parameter { name, location: "query", kind, description, shared: true }
}

/// The one parameter that clients look for: not shared.
static FIELD_VALIDATION: Parameter = Parameter {
    name: Cow::Borrowed("fieldValidation"),
    location: "query",
    kind: "string",
    description: Cow::Borrowed(
        "What to do about unknown and duplicate fields: `Ignore` drops them, `Warn` (the default) drops them \
         and answers with warnings, `Strict` refuses the request.",
    ),
    shared: false,
};

/// A parameter in the path; always required.
pub(super) fn path(name: &'static str, description: impl Into<Text>) -> Parameter {
    let description = description.into();
    Parameter { name: name.into(), location: "path", kind: "string", description, shared: false }
}

/// On every path.
pub(super) static PRETTY: Parameter =
    query("pretty", "string", "`true` asks for indented output, whatever the client is.");

static LABEL_SELECTOR: Parameter =
    query("labelSelector", "string", "Only objects whose labels match this selector.");
static FIELD_SELECTOR: Parameter =
    query("fieldSelector", "string", "Only objects whose fields match this selector.");
static WATCH: Parameter = query(
    "watch",
    "boolean",
    "Answers with a stream of changes from `resourceVersion` on instead of a list.",
);
static BOOKMARKS: Parameter = query(
    "allowWatchBookmarks",
    "boolean",
    "A watch may also send BOOKMARK events, which say up to which resourceVersion everything was seen.",
);
static INITIAL_EVENTS: Parameter = query(
    "sendInitialEvents",
    "boolean",
    "A watch begins with an event for each object there is, then a bookmark that marks the end of them. Needs \
     `resourceVersionMatch=NotOlderThan`.",
);
static RESOURCE_VERSION: Parameter = query(
    "resourceVersion",
    "string",
    "Which state to answer from; `resourceVersionMatch` says how it is meant. Unset means the latest.",
);
static RESOURCE_VERSION_MATCH: Parameter = query(
    "resourceVersionMatch",
    "string",
    "How `resourceVersion` is meant: `Exact`, or `NotOlderThan` for any state at least as new.",
);
static LIMIT: Parameter = query(
    "limit",
    "integer",
    "Most objects to answer with at once. If there are more, the answer has a `continue` token for the next \
     ones. All parts of a list show the same state.",
);
static CONTINUE: Parameter = query(
    "continue",
    "string",
    "Token of the previous part of a list, sent with otherwise equal parameters. An expired one is answered \
     410 with a token that goes on at the latest state.",
);
static TIMEOUT: Parameter =
    query("timeoutSeconds", "integer", "Ends the list or watch after this many seconds, whatever happens.");
static DRY_RUN: Parameter =
    query("dryRun", "string", "`All` goes through every step of the request but stores nothing.");
static FIELD_MANAGER: Parameter = query(
    "fieldManager",
    "string",
    "Name under which this request owns the fields it sets: at most 128 printable characters. Apply needs it.",
);
static FORCE: Parameter =
    query("force", "boolean", "An apply takes over fields that others own instead of reporting conflicts.");
static GRACE_PERIOD: Parameter = query(
    "gracePeriodSeconds",
    "integer",
    "Seconds before the object is gone; 0 removes it at once. Unset means the default of the type.",
);
static IGNORE_READ_ERROR: Parameter = query(
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "boolean",
    "Deletes an object that cannot be read any more, without what normally precedes a deletion.",
);
static ORPHAN_DEPENDENTS: Parameter = query(
    "orphanDependents",
    "boolean",
    "Deprecated in favour of `propagationPolicy`: whether dependents stay. Only one of the two may be set.",
);
static PROPAGATION: Parameter = query(
    "propagationPolicy",
    "string",
    "What becomes of dependents: `Orphan` leaves them, `Background` deletes them afterwards, `Foreground` \
     deletes them first.",
);

static SHARD_SELECTOR: Parameter = query(
    "shardSelector",
    "string",
    "Only the objects of a shard. This server has no shards and ignores the parameter.",
);

/// GET of a collection, and the watch paths.
pub(super) static LIST: [&Parameter; 11] = [
    &BOOKMARKS,
    &CONTINUE,
    &FIELD_SELECTOR,
    &LABEL_SELECTOR,
    &LIMIT,
    &RESOURCE_VERSION,
    &RESOURCE_VERSION_MATCH,
    &INITIAL_EVENTS,
    &SHARD_SELECTOR,
    &TIMEOUT,
    &WATCH,
];
/// POST and PUT.
pub(super) static WRITE: [&Parameter; 3] = [&DRY_RUN, &FIELD_MANAGER, &FIELD_VALIDATION];
/// PATCH.
pub(super) static PATCH: [&Parameter; 4] = [&DRY_RUN, &FIELD_MANAGER, &FIELD_VALIDATION, &FORCE];
/// DELETE of an object.
pub(super) static DELETE: [&Parameter; 5] =
    [&DRY_RUN, &GRACE_PERIOD, &IGNORE_READ_ERROR, &ORPHAN_DEPENDENTS, &PROPAGATION];
/// DELETE of a collection.
pub(super) static DELETE_COLLECTION: [&Parameter; 14] = [
    &CONTINUE,
    &DRY_RUN,
    &FIELD_SELECTOR,
    &GRACE_PERIOD,
    &IGNORE_READ_ERROR,
    &LABEL_SELECTOR,
    &LIMIT,
    &ORPHAN_DEPENDENTS,
    &PROPAGATION,
    &RESOURCE_VERSION,
    &RESOURCE_VERSION_MATCH,
    &INITIAL_EVENTS,
    &SHARD_SELECTOR,
    &TIMEOUT,
];

/// Everything that v2 writes once, each name once.
pub(super) fn shared() -> impl Iterator<Item = &'static Parameter> {
    let all = [&LIST[..], &WRITE, &PATCH, &DELETE, &DELETE_COLLECTION, &[&PRETTY]].concat();
    let mut shared: Vec<&Parameter> = all.into_iter().filter(|parameter| parameter.shared).collect();
    shared.sort_by(|a, b| a.name.cmp(&b.name));
    shared.dedup_by(|a, b| a.name == b.name);
    shared.into_iter()
}

/// The fields of an options message as query parameters, by name. Fields that no query can hold are left out.
pub(super) fn from_message(message: &Message) -> Vec<Parameter> {
    let parameter = |field: &Field| {
        let kind = match field.element() {
            Kind::Bool => "boolean",
            Kind::Int32 | Kind::Int64 => "integer",
            Kind::Double => "number",
            Kind::String | Kind::Time | Kind::MicroTime => "string",
            _ => return None,
        };
        let wanted = !matches!(&*field.name, "apiVersion" | "kind")
            && matches!(field.shape(), Shape::Single | Shape::List);
        wanted.then(|| Parameter {
            name: field.name.clone(),
            location: "query",
            kind,
            description: field.description.clone(),
            shared: false,
        })
    };
    let mut parameters: Vec<Parameter> = message.fields.iter().filter_map(parameter).collect();
    parameters.sort_by(|a, b| a.name.cmp(&b.name));
    parameters
}
