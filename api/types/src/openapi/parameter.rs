//! Query and path parameters of operations, and which operation takes which parameters
//! (docs/api/paths-and-verbs.md#options).

use std::borrow::Cow;

use crate::schema::table::{Field, Kind, Message, Shape, Text};

/// A parameter of an operation.
#[derive(Clone, Debug)]
pub(super) struct Parameter {
    pub name: Text,
    /// Location of the parameter: `query` or `path`.
    pub location: &'static str,
    /// `string`, `integer` or `boolean`.
    pub kind: &'static str,
    pub description: Text,
    /// Whether v2 contains the parameter once per document, with references to it; otherwise each operation
    /// contains it. Parameters whose presence some clients check are not shared, because these clients look
    /// for them in the operation.
    pub shared: bool,
}

/// Defines query parameters that v2 shares: their type, their name and their description.
macro_rules! queries {
    ($($(#[$doc:meta])* $visibility:vis $name:ident: $kind:ident $text:literal = $description:literal;)*) => {
        $($(#[$doc])* $visibility static $name: Parameter = Parameter {
            name: Cow::Borrowed($text),
            location: "query",
            kind: stringify!($kind),
            description: Cow::Borrowed($description),
            shared: true,
        };)*
    };
}

/// The only parameter whose presence clients check; it is not shared.
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

/// Returns a path parameter, which is always required.
pub(super) fn path(name: &'static str, description: impl Into<Text>) -> Parameter {
    let description = description.into();
    Parameter { name: name.into(), location: "path", kind: "string", description, shared: false }
}

queries! {
    /// Used on every path.
    pub(super) PRETTY: string "pretty" =
        "`true` asks for indented output, whatever the client is.";
    LABEL_SELECTOR: string "labelSelector" =
        "Only objects whose labels match this selector.";
    SHARD_SELECTOR: string "shardSelector" =
        "Only the objects of a shard. This server has no shards and ignores the parameter.";
    FIELD_SELECTOR: string "fieldSelector" =
        "Only objects whose fields match this selector.";
    WATCH: boolean "watch" =
        "Watch for changes to the described resources and return them as a stream of events that begins after \
         `resourceVersion`, instead of a list.";
    BOOKMARKS: boolean "allowWatchBookmarks" =
        "A watch may also send BOOKMARK events, which say up to which resourceVersion everything was \
         seen.";
    INITIAL_EVENTS: boolean "sendInitialEvents" =
        "A watch begins with an event for each object there is, then a bookmark that marks the end of \
         them. Needs `resourceVersionMatch=NotOlderThan`.";
    RESOURCE_VERSION: string "resourceVersion" =
        "Which state to answer from; `resourceVersionMatch` says how it is meant. Unset means the latest.";
    RESOURCE_VERSION_MATCH: string "resourceVersionMatch" =
        "How `resourceVersion` is meant: `Exact`, or `NotOlderThan` for any state at least as new.";
    LIMIT: integer "limit" =
        "Most objects to answer with at once. If there are more, the answer has a `continue` token for \
         the next ones. All parts of a list show the same state.";
    CONTINUE: string "continue" =
        "Token of the previous part of a list, sent with otherwise equal parameters. An expired one is \
         answered 410 with a token that goes on at the latest state.";
    TIMEOUT: integer "timeoutSeconds" =
        "Ends the list or watch after this many seconds, whatever happens.";
    DRY_RUN: string "dryRun" =
        "`All` goes through every step of the request but stores nothing.";
    FIELD_MANAGER: string "fieldManager" =
        "Name under which this request owns the fields it sets: at most 128 printable characters. Apply \
         needs it.";
    FORCE: boolean "force" =
        "An apply takes over fields that others own instead of reporting conflicts.";
    GRACE_PERIOD: integer "gracePeriodSeconds" =
        "Seconds before the object is gone; 0 removes it at once. Unset means the default of the type.";
    IGNORE_READ_ERROR: boolean "ignoreStoreReadErrorWithClusterBreakingPotential" =
        "Deletes an object that cannot be read any more, without what normally precedes a deletion.";
    ORPHAN_DEPENDENTS: boolean "orphanDependents" =
        "Deprecated in favour of `propagationPolicy`: whether dependents stay. Only one of the two may be \
         set.";
    PROPAGATION: string "propagationPolicy" =
        "What becomes of dependents: `Orphan` leaves them, `Background` deletes them afterwards, \
         `Foreground` deletes them first.";
}

/// Parameters of GET of a collection, of the watch paths, and of DELETE of a collection of custom objects.
pub(super) static LIST: &[&Parameter] = &[
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
/// Parameters of GET of a custom object.
pub(super) static READ: &[&Parameter] = &[&RESOURCE_VERSION];
/// Parameters of POST, PUT, and PATCH of custom objects.
pub(super) static WRITE: &[&Parameter] = &[&DRY_RUN, &FIELD_MANAGER, &FIELD_VALIDATION];
/// Parameters of PATCH of built-in objects.
pub(super) static PATCH: &[&Parameter] = &[&DRY_RUN, &FIELD_MANAGER, &FIELD_VALIDATION, &FORCE];
/// Parameters of DELETE of an object.
pub(super) static DELETE: &[&Parameter] =
    &[&DRY_RUN, &GRACE_PERIOD, &IGNORE_READ_ERROR, &ORPHAN_DEPENDENTS, &PROPAGATION];
/// Parameters of DELETE of a collection of built-in objects.
pub(super) static DELETE_COLLECTION: &[&Parameter] = &[
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

/// Returns all shared parameters of v2, each name once.
pub(super) fn shared() -> impl Iterator<Item = &'static Parameter> {
    let all = [LIST, WRITE, PATCH, DELETE, DELETE_COLLECTION, &[&PRETTY]].concat();
    let mut shared: Vec<&Parameter> = all.into_iter().filter(|parameter| parameter.shared).collect();
    shared.sort_by(|a, b| a.name.cmp(&b.name));
    shared.dedup_by(|a, b| a.name == b.name);
    shared.into_iter()
}

/// Returns the fields of an options message as query parameters, sorted by name. Fields that a query cannot
/// represent are omitted.
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
