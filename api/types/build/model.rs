//! The content of the schema files without shorthand: every default is filled in, inlined structs are
//! flattened, and special types are kinds. The structs mirror `src/schema/table.rs`, but contain indices
//! instead of references. Strings still contain the placeholders for vendor names.

/// An index into [`Schema::messages`].
pub type MessageId = usize;

pub struct Schema {
    pub messages: Vec<Message>,
    /// API groups, highest priority first.
    pub groups: Vec<Group>,
}

pub struct Message {
    pub name: String,
    /// Stem of the package name in OpenAPI.
    pub package: String,
    pub description: String,
    pub fields: Vec<Field>,
    /// Number and type of the structs that JSON flattens.
    pub inlined: Vec<(u32, MessageId)>,
    pub atomic: bool,
    /// Columns of a message that is not a resource; a resource has its own columns.
    pub columns: Vec<Column>,
    pub union: Option<Union>,
    pub published_union: Option<PublishedUnion>,
    /// Name of the validation rule of the message, a function in the code; empty if the message has no rule.
    pub rule: String,
    pub checked_apart: bool,
    /// Name of the default rule of the message, a function in the code; empty if the message has no rule.
    pub default_rule: String,
}

pub struct Union {
    /// Indices of the members in `fields`.
    pub members: Vec<usize>,
    pub none: String,
    pub several: String,
    /// Indices of members in `fields`, each with the name in the message `several`.
    pub error_names: Vec<(usize, String)>,
}

pub struct PublishedUnion {
    /// Name of the discriminator field; empty if there is no discriminator.
    pub discriminator: String,
    pub members: Vec<String>,
}

/// The checks of a field. Names are the names of enum variants in the tables; a name is empty if there is no
/// such check.
#[derive(Clone, Default)]
pub struct Check {
    pub presence: &'static str,
    pub required_detail: String,
    pub form: String,
    pub keys: String,
    pub min: Option<i64>,
    pub max: Option<i64>,
    pub range_detail: String,
    pub items_max: u32,
    pub bytes_max: u32,
    pub unique: bool,
    pub reported: Vec<String>,
    pub set_in_code: bool,
    pub empty_is_refused: bool,
    pub unseen: bool,
}

#[derive(Clone)]
pub struct Field {
    pub name: String,
    pub number: u32,
    pub kind: Kind,
    pub shape: Shape,
    pub description: String,
    pub required: bool,
    pub omit_empty: bool,
    pub pointer: bool,
    pub default: Option<String>,
    pub assigned: Option<String>,
    pub enumeration: Vec<String>,
    pub list: List,
    pub atomic: bool,
    pub resource_list: bool,
    pub keeps_empty: bool,
    pub patch: Patch,
    pub inlined: Option<usize>,
    pub check: Option<Check>,
    /// Name and value of an OpenAPI extension.
    pub published: Option<(String, String)>,
}

#[derive(Clone, Copy)]
pub enum Kind {
    /// A kind without a message, by its name in the tables.
    Plain(&'static str),
    /// A kind that contains a message: the name of the kind in the tables, and the message.
    Of(&'static str, MessageId),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    Single,
    List,
    Map,
    WrappedList,
    MapOfLists,
}

#[derive(Clone, PartialEq)]
pub enum List {
    Atomic,
    Set,
    Map(Vec<String>),
}

#[derive(Clone, Default)]
pub struct Patch {
    pub merge: bool,
    pub retain_keys: bool,
    pub replace: bool,
    pub merge_key: String,
}

#[derive(Clone)]
pub struct GroupVersion {
    pub stem: String,
    pub suffixed: bool,
    pub version: String,
    pub priority: u32,
    pub version_priority: u32,
}

pub struct Group {
    pub stem: String,
    pub suffixed: bool,
    pub priority: u32,
    /// Versions of the group, highest priority first.
    pub versions: Vec<Version>,
}

pub struct Version {
    pub version: String,
    pub priority: u32,
    /// Resources of the version, sorted by plural.
    pub resources: Vec<Resource>,
}

pub struct Resource {
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub short: Vec<String>,
    pub categories: Vec<String>,
    pub cluster_scoped: bool,
    pub verbs: Vec<String>,
    pub message: MessageId,
    pub subresources: Vec<Subresource>,
    pub storage: Option<(GroupVersion, String)>,
    pub columns: Vec<Column>,
    /// Selectable fields; `None` if the kind does not have its own list.
    pub selectable: Option<Vec<Selectable>>,
    /// Error message for labels that are not in the list of selectable fields.
    pub selectable_refusal: String,
    /// Variant of the enum `NameRule` in the tables.
    pub name: &'static str,
    pub put_creates: bool,
    pub conditional_update: bool,
    pub orphans_by_default: bool,
    pub graceful_delete: bool,
    pub delete_returns_object: bool,
    pub generation_on: Vec<String>,
    pub status: Option<Status>,
    pub immutable: Vec<String>,
    pub deprecated: String,
    pub behavior: Behavior,
}

/// The code of a resource, and its flags for generic code. A function is given by its name; the name is empty
/// if there is no function.
pub struct Behavior {
    pub strategy: String,
    pub normalization: String,
    pub update_rule: String,
    pub conversion: String,
    /// Flags for generic code: the name of the field in the table, and the value.
    pub flags: Vec<(&'static str, bool)>,
    pub undeletable: Vec<String>,
    pub undeletable_detail: String,
    /// Immutable paths that have special error details.
    pub refusals: Vec<(String, String)>,
    pub delete_warning: String,
    pub replacement: String,
    pub removed: String,
    pub hashed_version: String,
    pub rows_sorted_by: String,
}

pub struct Subresource {
    pub name: String,
    pub body: GroupVersion,
    pub message: MessageId,
    pub verbs: Vec<String>,
    pub connect: bool,
    pub update_rule: String,
}

pub struct Status {
    pub kept_by_main: Vec<String>,
    pub kept_by_status: Vec<String>,
    pub reset_by_main: Vec<String>,
    pub reset_by_status: Vec<String>,
    pub kept_on_create: bool,
}

pub struct Column {
    pub name: String,
    pub cell: String,
    pub kind: String,
    pub format: String,
    pub wide: bool,
}

pub struct Selectable {
    pub label: String,
    pub path: String,
    pub absent: String,
}
