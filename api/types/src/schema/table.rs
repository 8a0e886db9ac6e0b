//! The shape of types: what the build makes of `schema/*.proto`, and what types made at run time are built of.
//!
//! ```text
//! schema/<group>_<version>.proto ──build.rs──► static tables ─┐
//! api/src/types/schema/build.rs ──────────── at run time ──► Arc ───┴─► Message ─ Field ─ Kind ─┬─ scalar, any
//!                                                                   ▲                     ├─ struct ─► Message
//!                                                                   └── list and map of any Kind ◄────┘
//! ```
//!
//! The algebra is closed: a [`Kind`] is a scalar, a struct, any JSON, or a list or map of any kind. Parts are held by
//! [`Text`], [`Slice`] and [`Ref`], which are static for built-in types (starting the server costs nothing) and owned
//! for all others. What is worked out of a type lives in the type (`compiled`) and is dropped with it.
//!
//! Group names are kept without the vendor's word (`stem` + `suffixed`, package stems) and completed by `naming`; the
//! few other strings that have it exist once per naming profile, so that every name in a table is what the wire says.

pub use super::behavior::Behavior;
use super::compiled::Compiled;
pub use super::handle::{Ref, Slice, Slot, Text};
pub use super::kind::{Element, Empty, Kind, List, ListType, Map, Shape, Unknown};
use super::limits::Limits;
use values::json::names::Names;
use values::naming::Naming;

/// One object type: a struct of named fields, or one of the special scalars that JSON writes as something else.
#[derive(Debug)]
pub struct Message {
    /// Name inside its package, for example `PodSpec`.
    pub name: Text,
    /// Package stem as in OpenAPI names without the vendor's root, for example `api.core.v1`,
    /// `apimachinery.pkg.apis.meta.v1`, `apiextensions-apiserver.pkg.apis.apiextensions.v1`.
    pub package: Text,
    /// One or two sentences for `explain`; empty where none was written.
    pub description: Text,
    /// Fields in the order in which JSON writes them, inlined structs flattened.
    pub fields: Slice<Field>,
    /// Structs inlined in JSON that are a message of their own in protobuf (`Field::inlined` points here).
    pub inlined: Slice<Inlined>,
    /// What protobuf writes, by ascending number; empty for types without a protobuf form.
    pub wire: Slice<WireField>,
    /// `atomic` where the whole struct is owned and replaced as one (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Fields of which only one may be set.
    pub union: Option<Union>,
    /// The union that the published schema tells of; validation does not look at it.
    pub published_union: Option<&'static PublishedUnion>,
    /// Number of the check in code that validation runs over the struct, from 1; 0 without one. Only validation knows
    /// what is behind it.
    pub rule: u16,
    /// Validation leaves the struct to the code that checks metadata.
    pub checked_apart: bool,
    /// Number of the defaults in code, from 1; 0 without. Only `defaults` knows what is behind it.
    pub default_rule: u16,
    /// What becomes of members that `fields` does not have.
    pub unknown: Unknown,
    /// An object inside an object, with its own `kind`, `apiVersion` and `metadata`, which are among `fields`.
    pub embedded: bool,
    /// Made at run time: no code knows the type by its name.
    pub custom: bool,
    /// What validation asks of the struct of a type made at run time beyond its fields.
    pub limits: Option<Ref<Limits>>,
    /// What is worked out of the rest.
    pub compiled: Compiled,
}

/// Fields of which one is set, and not a second.
#[derive(Clone, Copy, Debug)]
pub struct Union {
    /// Positions in `Message::fields`.
    pub members: &'static [u16],
    /// What is said when none is set; empty if none needs to be.
    pub none: &'static str,
    /// What is said of the second and all further ones; empty if code says it.
    pub several: &'static str,
    /// Positions of members, and what they are called there; empty if they are not refused.
    pub shown: &'static [(u16, &'static str)],
}

/// Fields of which one is in use (`x-kubernetes-unions`).
#[derive(Debug)]
pub struct PublishedUnion {
    /// The field that says which; empty without one.
    pub discriminator: &'static str,
    /// Names of the fields.
    pub members: &'static [&'static str],
}

/// One extension of a published schema.
#[derive(Debug)]
pub struct Extension {
    /// Without the vendor's prefix.
    pub name: &'static str,
    /// A text.
    pub value: &'static str,
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
#[derive(Clone, Debug)]
pub struct Inlined {
    /// Number of the nesting field.
    pub number: u32,
    /// The nested message.
    pub message: Ref<Message>,
}

/// How many fields stand at the beginning of every object made at run time: its kind, its version, its metadata.
const TYPE_FIELDS: usize = 3;

impl Message {
    /// The position of the field that JSON calls `name`. One comparison.
    #[inline(always)] // of the loops of all that read text; as a call it costs them 2 % of their instructions
    pub fn position(&self, name: &[u8]) -> Option<usize> {
        let Some(Some(names)) = self.compiled.names.get() else { return self.position_otherwise(name) };
        let at = usize::from(names.candidate(name)?);
        let found = self.fields[at].name.as_bytes();
        // A name that decoding took from this table is the field's own text.
        (std::ptr::eq(found, name) || found == name).then_some(at)
    }

    /// The same, where there is no table of names yet, or can be none.
    #[cold]
    fn position_otherwise(&self, name: &[u8]) -> Option<usize> {
        let names = || self.fields.iter().map(|field| &*field.name);
        if self.compiled.names.get_or_init(|| Names::new(names())).is_some() {
            return self.position(name);
        }
        if !self.custom {
            return names().position(|other| other.as_bytes() == name);
        }
        // The fields of a type made at run time are sorted, but for those that every object begins with.
        let unsorted = self.fields.iter().take(TYPE_FIELDS).position(|field| field.name.as_bytes() == name);
        let sorted = || {
            let rest = self.fields.get(TYPE_FIELDS..)?;
            let at = rest.binary_search_by(|field| field.name.as_bytes().cmp(name)).ok()?;
            Some(TYPE_FIELDS + at)
        };
        unsorted.or_else(sorted)
    }

    /// The field that JSON calls `name`.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name.as_bytes()).map(|at| &self.fields[at])
    }

    /// What protobuf writes under `number`. Binary search.
    pub fn wire_field(&self, number: u32) -> Option<Place> {
        let at = self.wire.binary_search_by_key(&number, |field| field.number).ok()?;
        Some(self.wire[at].place)
    }

    /// The OpenAPI definition name, as `io.example.api.core.v1.Pod`.
    pub fn full_name(&self, naming: &Naming) -> String {
        if self.custom {
            return format!("{}.{}", self.package, self.name); // named after its own group
        }
        format!("{}.{}.{}", naming.openapi_root, self.package, self.name)
    }
}

/// One field of a message.
#[derive(Clone, Debug)]
pub struct Field {
    /// Name in JSON.
    pub name: Text,
    /// Number in protobuf (inside the innermost inlined message where `inlined` is set); 0 = not in protobuf.
    pub number: u32,
    /// What the value is.
    pub kind: Kind,
    /// What `null` and empty values mean.
    pub empty: Empty,
    /// Description for `explain`; empty where none was written.
    pub description: Text,
    /// Must be given (the published schema's `required`).
    pub required: bool,
    /// Left out of JSON when zero; otherwise always written.
    pub omit_empty: bool,
    /// `null` (absent) differs from zero, and protobuf writes the field only when set.
    pub pointer: bool,
    /// The published schema's default, as JSON text.
    pub default: Option<Text>,
    /// What the server sets where nothing was given, as JSON text.
    pub assigned: Option<Text>,
    /// The closed set of values, if there is one.
    pub enumeration: Slice<Text>,
    /// Format named in OpenAPI beyond the one that `kind` implies (`byte`, `int-or-string` are implied).
    pub format: Text,
    /// The struct here is owned and replaced as one. This is the last word: a struct type's own mark is already in it.
    /// For the elements of lists and maps of structs, [`Message::atomic`] counts.
    pub atomic: bool,
    /// A map of amounts of resources, as those of containers: defaulting rounds them up to thousandths.
    pub resource_list: bool,
    /// How a strategic merge patch treats the field.
    pub patch: PatchStrategy,
    /// Index into `Message::inlined` of the struct that protobuf nests this field in. That struct may inline another
    /// in turn: its own field of the same name says so.
    pub inlined: Option<u16>,
    /// What validation asks of the value of a built-in type beyond its kind.
    pub check: Option<&'static Check>,
    /// What validation asks of the value of a type made at run time beyond its kind.
    pub limits: Option<Ref<Limits>>,
    /// What the published schema says beside what follows from the rest.
    pub published: Option<&'static Extension>,
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
    /// An absent text is checked as an empty one.
    AsEmpty,
}

/// What a value looks like (`schema/options.proto`, `Form`). Empty texts are not looked at, unless stated, except in lists.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// RFC 1123 label.
    Label,
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

impl Field {
    /// The outermost layer of its kind.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.kind.shape()
    }

    /// What one value, one element or one map value is.
    #[inline]
    pub fn element(&self) -> &Kind {
        self.kind.element()
    }

    /// How server-side apply merges the list; `Atomic` for everything that is no list.
    pub fn list_type(&self) -> &ListType {
        match &self.kind {
            Kind::List(list) => &list.merge,
            _ => &ListType::Atomic,
        }
    }
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
    pub stem: Text,
    /// Whether the vendor's suffix follows the stem.
    pub suffixed: bool,
    /// Discovery priority; higher comes first (docs/api/discovery.md#built-in-resources).
    pub priority: u32,
    /// Versions, preferred first.
    pub versions: &'static [VersionTable],
}

/// One version of a group with its resources in path order.
#[derive(Debug)]
pub struct VersionTable {
    /// `v1`, `v2`, `v1beta1`.
    pub version: Text,
    /// Order among the versions of the group; higher first.
    pub priority: u32,
    /// Resources sorted by plural.
    pub resources: &'static [&'static ResourceTable],
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
    pub plural: Text,
    /// Lower-case kind.
    pub singular: Text,
    /// Object kind.
    pub kind: Text,
    /// Kind of its lists.
    pub list_kind: Text,
    /// Short names for command lines.
    pub short_names: Slice<Text>,
    /// Categories such as `all`.
    pub categories: Slice<Text>,
    /// Namespaced or cluster.
    pub scope: Scope,
    /// Verbs in the order in which discovery tells them: of built-in types they are sorted.
    pub verbs: &'static [&'static str],
    /// The object's type.
    pub message: Ref<Message>,
    /// Subresources sorted by name.
    pub subresources: Slice<SubresourceTable>,
    /// How it is stored; `None` for virtual types, which represent an operation.
    pub storage: Option<StorageTable>,
    /// Table columns; empty means the default `Name` and `Created At`.
    pub columns: Slice<Column>,
    /// Fields beyond `metadata.name` and `metadata.namespace` that a field selector may name.
    pub selectable: Slice<Selectable>,
    /// Message for other labels (docs/api/selectors.md#field-selectors), in which `%q` stands for the label, which otherwise
    /// follows; `None` for kinds without a list of their own.
    pub selectable_refusal: Option<Text>,
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
    /// `metadata.generation` starts at 1 and counts changes of these dotted paths; empty = no generation. Types made at
    /// run time count changes of everything but metadata.
    pub generation_on: Slice<Text>,
    /// What `/status` and the main resource leave alone; `None` without a status subresource.
    pub status: Option<StatusRules>,
    /// Dotted paths that an update may not change, in the plain form that needs no condition.
    pub immutable: &'static [&'static str],
    /// How objects become rows of tables; the business of `table`.
    pub format: Slot,
    /// Rules of a type made at run time, in the expression language; the business of `custom`.
    pub rules: Option<Ref<Slot>>,
    /// Fingerprint of the form in which a version of a custom type writes its objects; none for built-in types.
    pub form: Option<Ref<u32>>,
    /// Release since which the version is deprecated, as `1.33`; empty = it is not. Of types made at run time, the
    /// warning itself.
    pub deprecated: Text,
    /// What the server does for the kind beyond the rest of the table.
    pub behavior: &'static Behavior,
}

/// How a resource is stored. Versions of one kind, and `events` of both groups, share one storage.
#[derive(Clone, Debug)]
pub struct StorageTable {
    /// Group stem of the stored form.
    pub group: Text,
    /// Whether the stored group carries the vendor's suffix.
    pub group_suffixed: bool,
    /// Version of the stored form.
    pub version: Text,
    /// Resource part of the key.
    pub resource: Text,
}

/// One subresource.
#[derive(Clone, Debug)]
pub struct SubresourceTable {
    /// `status`, `scale`, `binding` …
    pub name: &'static str,
    /// Group stem of the body's kind.
    pub group: Text,
    /// Whether that group carries the vendor's suffix.
    pub group_suffixed: bool,
    /// Version of the body's kind.
    pub version: Text,
    /// Kind of the body.
    pub kind: Text,
    /// Verbs, sorted.
    pub verbs: &'static [&'static str],
    /// Type of the body.
    pub message: Ref<Message>,
    /// A streaming or proxying connection instead of an object.
    pub connect: bool,
    /// Number of the check in code of updates through it, from 1; 0 without. Only validation knows what is behind it.
    pub update_rule: u16,
    /// Where the scale of a type made at run time stands in its objects. Those of built-in types stand at
    /// `spec.replicas`, `status.replicas` and `spec.selector`.
    pub scale: Option<ScalePaths>,
}

/// Where the parts of a scale stand in an object: names after dots, with one in front.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScalePaths {
    /// The wanted number.
    pub spec: Text,
    /// The number that there is.
    pub status: Text,
    /// The selector, as text.
    pub selector: Option<Text>,
}

/// Which side of an object each endpoint may write (docs/api/apply.md#managed-fields).
#[derive(Debug)]
pub struct StatusRules {
    /// Dotted paths the main resource keeps from the stored object (normally `status`).
    pub kept_by_main: Slice<Text>,
    /// Dotted paths `/status` keeps from the stored object (normally `spec`, often `metadata.labels` …).
    pub kept_by_status: Slice<Text>,
    /// Dotted paths that the main resource takes out of its managed fields.
    pub reset_by_main: Slice<Text>,
    /// Dotted paths that `/status` takes out of its managed fields (`metadata` where most of it is kept).
    pub reset_by_status: Slice<Text>,
    /// A create stores the status it is given (nodes) instead of clearing it.
    pub kept_on_create: bool,
}

/// One column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Header; a column without one has cells, and no definition.
    pub name: Text,
    /// `string`, `integer`, `boolean`, `date`.
    pub kind: Text,
    /// `name` for the first column, else empty.
    pub format: Text,
    /// 0 = always shown.
    pub priority: i32,
    /// What it is, in one sentence; empty for the sentence that goes with the header.
    pub description: Text,
    /// How the cell is made: the expression language of `table/cell`, or of types made at run time, a JSON path.
    pub cell: Text,
}

/// A field that a selector may name.
#[derive(Clone, Debug)]
pub struct Selectable {
    /// The label in the query.
    pub label: Text,
    /// The dotted path of the value in the stored form; alternatives separated by `|`.
    pub path: Text,
    /// The text for an absent value (`false` for booleans, `0` for counts, empty otherwise).
    pub absent: Text,
}

/// What an object's name must look like (docs/api/writes.md#metadata-rules).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NameRule {
    /// RFC 1123 subdomain, at most 253.
    Subdomain,
    /// RFC 1123 label, at most 63.
    Label,
    /// Any path segment.
    PathSegment,
}
