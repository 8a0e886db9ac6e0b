//! The shape of a schema: what the build makes of `schema/*.proto`, and what custom types will be compiled into.
//!
//! ```text
//! schema/<group>_<version>.proto ──build.rs──► static Message / Field / ResourceTable tables
//!                                              │
//!        decode · prune · default · validate · merge · table · discovery · OpenAPI · protobuf
//! ```
//!
//! Everything here is `'static` data: starting the server costs nothing. Group names are kept without the vendor's
//! word (`stem` + `suffixed`, package stems) and completed by `naming`; the few other strings that have it exist once
//! per vocabulary, so that every name in a table is what the wire says.

use std::sync::OnceLock;

use crate::json::names::Names;
use crate::naming::Naming;

/// One object type: a struct of named fields, or one of the special scalars that JSON writes as something else.
#[derive(Debug)]
pub struct Message {
    /// Name inside its package, for example `PodSpec`.
    pub name: &'static str,
    /// Package stem as in OpenAPI names without the vendor's root, for example `api.core.v1`,
    /// `apimachinery.pkg.apis.meta.v1`, `apiextensions-apiserver.pkg.apis.apiextensions.v1`.
    pub package: &'static str,
    /// One or two sentences for `explain`; empty where none was written.
    pub description: &'static str,
    /// Fields in the order in which JSON writes them, inlined structs flattened.
    pub fields: &'static [Field],
    /// Finds a field by its JSON name.
    pub names: FieldNames,
    /// Structs inlined in JSON that are a message of their own in protobuf (`Field::inlined` points here).
    pub inlined: &'static [Inlined],
    /// What protobuf writes, by ascending number; empty for types without a protobuf form.
    pub wire: &'static [WireField],
    /// `atomic` where the whole struct is owned and replaced as one (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Fields of which only one may be set.
    pub union: Option<Union>,
    /// Number of the check in code that validation runs over the struct, from 1; 0 without one. Only validation knows
    /// what is behind it.
    pub rule: u16,
}

/// Fields of which one is set, and not a second.
#[derive(Clone, Copy, Debug)]
pub struct Union {
    /// Positions in `Message::fields`.
    pub members: &'static [u16],
    /// What is said when none is set; empty if none needs to be.
    pub none: &'static str,
    /// What is said of the second and all further ones.
    pub several: &'static str,
}

/// One field as protobuf sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WireField {
    /// Field number.
    pub number: u32,
    /// What is written under it.
    pub place: Place,
}

/// What a field number of protobuf stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// The field at this position of `Message::fields`.
    Field(u16),
    /// The struct at this position of `Message::inlined`.
    Inlined(u16),
}

/// A struct whose fields JSON shows in its parent while protobuf nests them under a field number.
#[derive(Debug)]
pub struct Inlined {
    /// Number of the nesting field.
    pub number: u32,
    /// The nested message.
    pub message: &'static Message,
}

/// Where the fields of a message stand, by JSON name. Made when first asked for, because most types are never used.
#[derive(Debug)]
pub struct FieldNames(OnceLock<Option<Names>>);

impl FieldNames {
    /// Not made yet.
    #[expect(clippy::new_without_default, reason = "only the tables have it, and they are constant")]
    pub const fn new() -> Self {
        FieldNames(OnceLock::new())
    }
}

impl Message {
    /// The position of the field that JSON calls `name`. One comparison.
    #[inline(always)] // of the loops of all that read text; as a call it costs them 2 % of their instructions
    pub fn position(&self, name: &[u8]) -> Option<u16> {
        let Some(Some(names)) = self.names.0.get() else { return self.position_otherwise(name) };
        let at = names.candidate(name)?;
        (self.fields[usize::from(at)].name.as_bytes() == name).then_some(at)
    }

    /// The same, where there is no table of names yet, or can be none.
    #[cold]
    fn position_otherwise(&self, name: &[u8]) -> Option<u16> {
        let names = || self.fields.iter().map(|field| field.name);
        if self.names.0.get_or_init(|| Names::new(names())).is_some() {
            return self.position(name);
        }
        names().position(|other| other.as_bytes() == name).and_then(|at| u16::try_from(at).ok())
    }

    /// The field that JSON calls `name`.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.position(name.as_bytes()).map(|at| &self.fields[usize::from(at)])
    }

    /// What protobuf writes under `number`. Binary search.
    pub fn wire_field(&self, number: u32) -> Option<Place> {
        let at = self.wire.binary_search_by_key(&number, |field| field.number).ok()?;
        Some(self.wire[at].place)
    }

    /// The OpenAPI definition name, as `io.example.api.core.v1.Pod`.
    pub fn full_name(&self, naming: &Naming) -> String {
        format!("{}.{}.{}", naming.openapi_root, self.package, self.name)
    }
}

/// One field of a message.
#[derive(Debug)]
pub struct Field {
    /// Name in JSON.
    pub name: &'static str,
    /// Number in protobuf (inside the innermost inlined message where `inlined` is set); 0 = not in protobuf.
    pub number: u32,
    /// What one value (one element, one map value) is.
    pub kind: Kind,
    /// One value, a list of them, or a map from string to them.
    pub shape: Shape,
    /// Description for `explain`; empty where none was written.
    pub description: &'static str,
    /// Must be given (the published schema's `required`).
    pub required: bool,
    /// Left out of JSON when zero; otherwise always written.
    pub omit_empty: bool,
    /// `null` (absent) differs from zero, and protobuf writes the field only when set.
    pub pointer: bool,
    /// The published schema's default, as JSON text.
    pub default: Option<&'static str>,
    /// What the server sets where nothing was given, as JSON text.
    pub assigned: Option<&'static str>,
    /// The closed set of values, if there is one.
    pub enumeration: &'static [&'static str],
    /// Format named in OpenAPI beyond the one that `kind` implies (`byte`, `int-or-string` are implied).
    pub format: &'static str,
    /// How server-side apply merges a list; `Atomic` for everything that is no list.
    pub list: ListType,
    /// The map or single struct below is owned and replaced as one. This is the last word: a struct type's own mark is
    /// already in it. For the elements of lists and maps of structs, [`Message::atomic`] counts.
    pub atomic: bool,
    /// How a strategic merge patch treats the field.
    pub patch: PatchStrategy,
    /// Index into `Message::inlined` of the struct that protobuf nests this field in. That struct may inline another
    /// in turn: its own field of the same name says so.
    pub inlined: Option<u16>,
    /// What validation asks of the value beyond its type.
    pub check: Option<&'static Check>,
}

/// What validation asks of a field beyond its type. Of a list each element is meant, of a map each value.
#[derive(Debug)]
pub struct Check {
    /// Whether it must be given.
    pub presence: Presence,
    /// What follows "Required value"; may be empty.
    pub required_detail: &'static str,
    /// What a value looks like.
    pub form: Option<Form>,
    /// What the keys of a map look like.
    pub keys: Option<Form>,
    /// Smallest number.
    pub min: Option<i64>,
    /// Largest number.
    pub max: Option<i64>,
    /// What is said of a number out of range; empty for the usual sentence.
    pub range_detail: &'static str,
    /// Most elements of a list; 0 = any number.
    pub items_max: u32,
    /// Most bytes of a text; 0 = any number.
    pub bytes_max: u32,
    /// Elements of a list differ.
    pub unique: bool,
    /// The closed set in the order in which it is reported; empty = as published.
    pub reported: &'static [&'static str],
    /// Code refuses what is not in the closed set.
    pub set_in_code: bool,
    /// An empty text is not in the closed set either.
    pub empty_is_refused: bool,
    /// Nothing below is looked at.
    pub unseen: bool,
}

/// Whether a field must be given; an empty text or list is not given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Presence {
    /// As the published schema says.
    Published,
    /// It need not be, whatever the published schema says.
    Taken,
    /// It must be, although the published schema does not say so.
    Needed,
    /// It must be, and zero is not given.
    NotZero,
}

/// What a value looks like (`schema/options.proto`, `Form`). Empty texts are not looked at, unless stated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// RFC 1123 label.
    Label,
    /// RFC 1035 label.
    Label1035,
    /// RFC 1123 subdomain.
    Subdomain,
    /// What can stand between two slashes of a URL.
    PathSegment,
    /// `[prefix/]name`.
    Qualified,
    /// Value of a label.
    LabelValue,
    /// Key of a config map.
    ConfigKey,
    /// Name of an environment variable.
    Environment,
    /// Name of a port that others refer to.
    PortName,
    /// A domain to search names in.
    SearchDomain,
    /// Address of either family.
    Ip,
    /// Network of either family.
    Cidr,
    /// Path without a step `..`.
    NoBacksteps,
    /// Relative path without such a step.
    Descending,
    /// Descending path that does not begin with two dots.
    Local,
    /// Path that begins with a slash.
    Absolute,
    /// Domain and path, as `example.com/path`.
    DomainPath,
    /// Name of a storage driver.
    Driver,
    /// Network with spaces around it.
    CidrPadded,
    /// RFC 1123 subdomain, empty texts included.
    SubdomainGiven,
    /// `[prefix/]name`, empty texts included.
    QualifiedGiven,
    /// Number of a port.
    Port,
    /// Permission bits.
    FileMode,
    /// Id of a user or group.
    Id,
    /// Number or name of a port.
    PortOrName,
    /// A count that is not negative, or a percentage.
    CountOrPercent,
    /// Quantity of zero or more.
    NotNegative,
    /// Quantity of more than zero.
    Positive,
    /// Map of labels: keys and values.
    Labels,
}

/// What one value is, on the wire and in JSON.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Boolean.
    Bool,
    /// 32-bit integer.
    Int32,
    /// 64-bit integer.
    Int64,
    /// Double.
    Double,
    /// String.
    String,
    /// Bytes; base64 in JSON.
    Bytes,
    /// A struct.
    Message(&'static Message),
    /// RFC 3339 with seconds; message {1 seconds, 2 nanos} in protobuf.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// Go duration text; message {1 nanoseconds}.
    Duration,
    /// Quantity text (a number is accepted); message {1 string}.
    Quantity,
    /// Integer or string; message {1 type, 2 intVal, 3 strVal}.
    IntOrString,
    /// Any embedded object; message {1 raw}.
    RawExtension,
    /// The field set of a managed-fields entry; message {1 Raw}. A tree has its JSON text, as a string.
    FieldsV1,
    /// Any JSON value; message {1 raw}.
    Json,
    /// A schema (the message given), or an array of them.
    SchemaOrArray(&'static Message),
    /// A schema (the message given), or a boolean.
    SchemaOrBool(&'static Message),
    /// A schema (the message given), or an array of strings.
    SchemaOrStrings(&'static Message),
}

/// How many values a field holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// One.
    Single,
    /// A list.
    List,
    /// A map from string.
    Map,
    /// A list of strings that protobuf wraps in one message, {1 repeated string} (`Verbs`).
    WrappedList,
    /// A map from string to lists of strings, each wrapped like that (`ExtraValue`).
    MapOfLists,
}

/// How apply merges a list (`x-kubernetes-list-type`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ListType {
    /// Replaced as one.
    Atomic,
    /// A set of scalars.
    Set,
    /// Keyed by these members of the elements.
    Map(&'static [&'static str]),
}

/// Strategic merge behaviour of a field (`x-kubernetes-patch-strategy` and `-merge-key`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PatchStrategy {
    /// Lists merge (by key, or as a set of scalars) instead of being replaced.
    pub merge: bool,
    /// A patch may say which members to retain.
    pub retain_keys: bool,
    /// The whole value is taken from the patch.
    pub replace: bool,
    /// Member that identifies an element.
    pub merge_key: Option<&'static str>,
}

/// One API group with its versions in order of preference.
#[derive(Debug)]
pub struct GroupTable {
    /// Group without the vendor's suffix: empty for core, `apps`, `rbac.authorization`.
    pub stem: &'static str,
    /// Whether the vendor's suffix follows the stem.
    pub suffixed: bool,
    /// Discovery priority; higher comes first (semantics §2.5).
    pub priority: u32,
    /// Versions, preferred first.
    pub versions: &'static [VersionTable],
}

/// One version of a group with its resources in path order.
#[derive(Debug)]
pub struct VersionTable {
    /// `v1`, `v2`, `v1beta1`.
    pub version: &'static str,
    /// Order among the versions of the group; higher first.
    pub priority: u32,
    /// Resources sorted by plural.
    pub resources: &'static [ResourceTable],
}

/// Whether and how many objects there are a name for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// In namespaces.
    Namespaced,
    /// Once in the cluster.
    Cluster,
}

/// One resource type of one group version, with everything that is data about it.
#[derive(Debug)]
pub struct ResourceTable {
    /// Name in URLs.
    pub plural: &'static str,
    /// Lower-case kind.
    pub singular: &'static str,
    /// Object kind.
    pub kind: &'static str,
    /// Kind of its lists.
    pub list_kind: &'static str,
    /// Short names for command lines.
    pub short_names: &'static [&'static str],
    /// Categories such as `all`.
    pub categories: &'static [&'static str],
    /// Namespaced or cluster.
    pub scope: Scope,
    /// Verbs, sorted: `create delete deletecollection get list patch update watch`.
    pub verbs: &'static [&'static str],
    /// The object's type.
    pub message: &'static Message,
    /// Subresources sorted by name.
    pub subresources: &'static [SubresourceTable],
    /// How it is stored; `None` for virtual types, which represent an operation.
    pub storage: Option<StorageTable>,
    /// Table columns; empty means the default `Name` and `Created At`.
    pub columns: &'static [Column],
    /// Fields beyond `metadata.name` and `metadata.namespace` that a field selector may name.
    pub selectable: &'static [Selectable],
    /// Whether the kind has an own list of field labels (decides the wording of the error, semantics §4.3).
    pub selectable_explicit: bool,
    /// What the name must look like.
    pub name_rule: NameRule,
    /// PUT of an absent object creates it.
    pub put_creates: bool,
    /// PUT without resourceVersion takes the current one.
    pub unconditional_update: bool,
    /// Default propagation of a delete is `orphan` instead of `background`.
    pub orphans_by_default: bool,
    /// A delete leaves the object for a grace period (pods).
    pub graceful_delete: bool,
    /// A completed delete answers with the object instead of a Status.
    pub delete_returns_object: bool,
    /// `metadata.generation` starts at 1 and counts changes of these dotted paths; empty = no generation.
    pub generation_on: &'static [&'static str],
    /// What `/status` and the main resource leave alone; `None` without a status subresource.
    pub status: Option<StatusRules>,
    /// Dotted paths that an update may not change, in the plain form that needs no condition.
    pub immutable: &'static [&'static str],
    /// Release since which the version is deprecated, as `1.33`; empty = it is not.
    pub deprecated: &'static str,
}

/// How a resource is stored. Versions of one kind, and `events` of both groups, share one storage.
#[derive(Clone, Copy, Debug)]
pub struct StorageTable {
    /// Group stem of the stored form.
    pub group: &'static str,
    /// Whether the stored group carries the vendor's suffix.
    pub group_suffixed: bool,
    /// Version of the stored form.
    pub version: &'static str,
    /// Resource part of the key.
    pub resource: &'static str,
}

/// One subresource.
#[derive(Debug)]
pub struct SubresourceTable {
    /// `status`, `scale`, `binding` …
    pub name: &'static str,
    /// Group stem of the body's kind.
    pub group: &'static str,
    /// Whether that group carries the vendor's suffix.
    pub group_suffixed: bool,
    /// Version of the body's kind.
    pub version: &'static str,
    /// Kind of the body.
    pub kind: &'static str,
    /// Verbs, sorted.
    pub verbs: &'static [&'static str],
    /// Type of the body.
    pub message: &'static Message,
    /// A streaming or proxying connection instead of an object.
    pub connect: bool,
}

/// Which side of an object each endpoint may write (facts: reset_fields, status_subresource).
#[derive(Debug)]
pub struct StatusRules {
    /// Dotted paths the main resource keeps from the stored object (normally `status`).
    pub kept_by_main: &'static [&'static str],
    /// Dotted paths `/status` keeps from the stored object (normally `spec`, often `metadata.labels` …).
    pub kept_by_status: &'static [&'static str],
    /// Dotted paths that the main resource takes out of its managed fields.
    pub reset_by_main: &'static [&'static str],
    /// Dotted paths that `/status` takes out of its managed fields (`metadata` where most of it is kept).
    pub reset_by_status: &'static [&'static str],
    /// A create stores the status it is given (nodes) instead of clearing it.
    pub kept_on_create: bool,
}

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Header.
    pub name: &'static str,
    /// `string`, `integer`, `boolean`, `date`.
    pub kind: &'static str,
    /// `name` for the first column, else empty.
    pub format: &'static str,
    /// 0 = always shown.
    pub priority: i32,
    /// How the cell is made: the expression language of `table/cell`.
    pub cell: &'static str,
}

/// A field that a selector may name.
#[derive(Clone, Copy, Debug)]
pub struct Selectable {
    /// The label in the query.
    pub label: &'static str,
    /// The dotted path of the value in the stored form; alternatives separated by `|`.
    pub path: &'static str,
    /// The text for an absent value (`false` for booleans, `0` for counts, empty otherwise).
    pub absent: &'static str,
}

/// What an object's name must look like (semantics §5.1, facts `name_rule`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NameRule {
    /// RFC 1123 subdomain, at most 253.
    Subdomain,
    /// RFC 1123 label, at most 63.
    Label,
    /// RFC 1035 label, at most 63.
    Label1035,
    /// Any path segment.
    PathSegment,
}
