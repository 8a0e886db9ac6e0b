//! Query and path parameters, and the parameters that each operation accepts
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
    /// contains it. A parameter whose presence clients check is not shared, because these clients search only
    /// the operation.
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

/// The only parameter whose presence clients check, so it is not shared.
static FIELD_VALIDATION: Parameter = Parameter {
    name: Cow::Borrowed("fieldValidation"),
    location: "query",
    kind: "string",
    description: Cow::Borrowed(
        "Treatment of unknown and duplicate fields in the request: `Ignore` drops the fields, `Warn` (the \
         default) drops the fields and sends warnings, and `Strict` refuses the request.",
    ),
    shared: false,
};

/// Returns a path parameter. Path parameters are always required.
pub(super) fn path(name: &'static str, description: impl Into<Text>) -> Parameter {
    let description = description.into();
    Parameter { name: name.into(), location: "path", kind: "string", description, shared: false }
}

queries! {
    /// The parameter of every path.
    pub(super) PRETTY: string "pretty" =
        "Whether the response is indented. By default the server indents responses only for clients that \
         people use, such as `curl` and browsers.";
    LABEL_SELECTOR: string "labelSelector" =
        "Limits the objects to those whose labels match this selector, for example `app=web,tier!=cache`. \
         The default is all objects.";
    SHARD_SELECTOR: string "shardSelector" =
        "Limits the objects to a shard of the collection. This server has no shards and ignores the \
         parameter.";
    FIELD_SELECTOR: string "fieldSelector" =
        "Limits the objects to those whose fields match this selector, for example `status.phase=Running`. \
         The default is all objects.";
    WATCH: boolean "watch" =
        "Watch for changes to the described resources and return them as a stream of events, instead of a \
         list. The stream begins after `resourceVersion`.";
    BOOKMARKS: boolean "allowWatchBookmarks" =
        "Whether a watch may also send BOOKMARK events. A bookmark contains the resourceVersion up to \
         which the client has received all changes.";
    INITIAL_EVENTS: boolean "sendInitialEvents" =
        "Whether a watch begins with one ADDED event for each existing object. If bookmarks are allowed, a \
         bookmark marks the end of these events. The value true requires \
         `resourceVersionMatch=NotOlderThan`.";
    RESOURCE_VERSION: string "resourceVersion" =
        "Version of the data from which the server answers. `resourceVersionMatch` says how the server \
         applies the version. The default is the newest version.";
    RESOURCE_VERSION_MATCH: string "resourceVersionMatch" =
        "Meaning of `resourceVersion`: `Exact` requires this version, and `NotOlderThan` accepts any version \
         that is at least as new.";
    LIMIT: integer "limit" =
        "Largest number of objects in one response. If there are more objects, the response has a \
         `continue` token for the next chunk. All chunks of a list show the same version of the data.";
    CONTINUE: string "continue" =
        "Token from the previous chunk of a list. All parameters except the limit must be the same as in \
         the first request. If the token has expired, the server answers 410 with a new token that \
         continues at the newest version.";
    TIMEOUT: integer "timeoutSeconds" =
        "Maximum duration of a watch in seconds. The server ends the watch after this time, even if there \
         are more events.";
    DRY_RUN: string "dryRun" =
        "The only permitted value is `All`: the server processes the request completely, including \
         admission and validation, but does not store the result.";
    FIELD_MANAGER: string "fieldManager" =
        "Name under which the server records the ownership of the fields that this request sets: at most \
         128 printable characters. The parameter is required for apply requests.";
    FORCE: boolean "force" =
        "Whether an apply request takes over fields that other managers own. By default such a request \
         fails with a conflict.";
    GRACE_PERIOD: integer "gracePeriodSeconds" =
        "Time in seconds between the request and the removal of the object. The value 0 removes the object \
         at once. The default depends on the type of the object.";
    IGNORE_READ_ERROR: boolean "ignoreStoreReadErrorWithClusterBreakingPotential" =
        "Whether the server deletes an object that it cannot read or decode. The server then ignores \
         finalizers and preconditions, and this can leave the cluster inconsistent.";
    ORPHAN_DEPENDENTS: boolean "orphanDependents" =
        "Whether the server keeps dependent objects. Deprecated: use `propagationPolicy`. At most one of \
         the two parameters may be set.";
    PROPAGATION: string "propagationPolicy" =
        "Treatment of dependent objects: `Orphan` keeps them, `Background` deletes them after the object, \
         and `Foreground` deletes them before the object.";
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
        let is_parameter = !matches!(&*field.name, "apiVersion" | "kind")
            && matches!(field.shape(), Shape::Single | Shape::List);
        is_parameter.then(|| Parameter {
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
