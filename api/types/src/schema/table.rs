//! Type descriptions. The build generates the descriptions of built-in types from `schema/*.proto`. Types
//! made at run time consist of the same parts.
//!
//! ```text
//! schema/<group>_<version>.proto ──build.rs──► static tables ─┐
//! api/types/src/schema/make.rs ───────────── at run time ──► Arc ───┴─► Message ─ Field ─ Kind ─┬─ scalar, any
//!                                                                   ▲                     ├─ struct ─► Message
//!                                                                   └── list and map of any Kind ◄────┘
//! ```
//!
//! A [`Kind`] is a scalar, a struct, any JSON, or a list or map of any kind. Parts are referenced through
//! [`Text`], [`Slice`] and [`Ref`], which are static for built-in types (so that starting the server costs
//! nothing) and owned for all other types. Values derived from a type are stored in the type (`compiled`) and
//! are dropped with it.
//!
//! Group names are stored without the suffix of the naming profile (`stem` + `suffixed`, package stems) and
//! are completed by `naming`. The few other strings that depend on the profile exist once per profile, so
//! these strings in a table are already the names on the wire.

pub use super::behavior::Behavior;
use super::compiled::Compiled;
pub use super::handle::{Ref, Slice, Slot, Text};
pub use super::kind::{Element, Empty, Kind, List, ListType, Map, Shape, Unknown};
use super::limits::Limits;
use values::json::names::Names;
use values::naming::Naming;

/// An object type: a struct of named fields, or a special scalar that JSON writes as text or number.
#[derive(Debug)]
pub struct Message {
    /// Name within its package, for example `PodSpec`.
    pub name: Text,
    /// Package stem as in OpenAPI names without the root of the naming profile, for example `api.core.v1`,
    /// `apimachinery.pkg.apis.meta.v1`, `apiextensions-apiserver.pkg.apis.apiextensions.v1`.
    pub package: Text,
    /// Description for `explain` in one or two sentences; empty if the schema has none.
    pub description: Text,
    /// Fields in the order in which JSON writes them; fields of inlined structs are included.
    pub fields: Slice<Field>,
    /// Structs that are inlined in JSON but are separate messages in protobuf (`Field::inlined` refers to
    /// them).
    pub inlined: Slice<Inlined>,
    /// Protobuf fields by ascending number; empty for types without a protobuf form.
    pub wire: Slice<WireField>,
    /// Whether the whole struct is owned and replaced as one value (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Fields of which only one may be set.
    pub union: Option<Union>,
    /// Union in the published schema; validation does not use it.
    pub published_union: Option<&'static PublishedUnion>,
    /// Number of the check in code that validation runs on the struct, from 1; 0 means no check. Only
    /// validation can resolve the number.
    pub rule: u16,
    /// Whether validation leaves the struct to the code that checks metadata.
    pub checked_apart: bool,
    /// Number of the default rule in code, from 1; 0 means no rule. Only `defaults` can resolve the number.
    pub default_rule: u16,
    /// Policy for members that `fields` does not declare.
    pub unknown: Unknown,
    /// Whether the struct is an object inside an object, with its own `kind`, `apiVersion` and `metadata`. `fields`
    /// includes these three fields.
    pub embedded: bool,
    /// Whether the type was made at run time, so that no code refers to it by name.
    pub custom: bool,
    /// Constraints of the struct of a type made at run time, in addition to its fields.
    pub limits: Option<Ref<Limits>>,
    /// Values that are derived from the other fields.
    pub compiled: Compiled,
}

/// Fields of which at most one may be set.
#[derive(Clone, Copy, Debug)]
pub struct Union {
    /// Positions of the fields in `Message::fields`.
    pub members: &'static [u16],
    /// Error detail if no field is set; empty if no field needs to be set.
    pub none: &'static str,
    /// Error detail for the second and all further fields; empty if code reports these fields.
    pub several: &'static str,
    /// Positions of members that have another name in errors, each with this name. An empty name means that
    /// the member is not rejected.
    pub error_names: &'static [(u16, &'static str)],
}

/// Fields of which one is in use (`x-kubernetes-unions`).
#[derive(Debug)]
pub struct PublishedUnion {
    /// Field that selects the member in use; may be empty.
    pub discriminator: &'static str,
    /// Names of the fields.
    pub members: &'static [&'static str],
}

/// An extension of a published schema.
#[derive(Debug)]
pub struct Extension {
    /// Name without the prefix of the naming profile.
    pub name: &'static str,
    /// Value of the extension, a text.
    pub value: &'static str,
}

/// A protobuf field of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WireField {
    /// Field number in protobuf.
    pub number: u32,
    /// Field or struct that is written under the number.
    pub place: WireMeaning,
}

/// The meaning of a protobuf field number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WireMeaning {
    /// The field at this position of `Message::fields`.
    Field(u16),
    /// The struct at this position of `Message::inlined`.
    Inlined(u16),
}

/// A struct whose fields JSON writes among the fields of the parent, while protobuf nests the struct under a
/// field number.
#[derive(Clone, Debug)]
pub struct Inlined {
    /// Protobuf number of the nesting field.
    pub number: u32,
    /// The nested message, whose fields the parent contains too.
    pub message: Ref<Message>,
}

/// Number of fields at the beginning of every object made at run time: kind, version, metadata.
const TYPE_FIELDS: usize = 3;

impl Message {
    /// Returns the position of the field with the JSON name `name`. Costs one comparison.
    #[inline(always)] // every decoding loop calls this; without inlining, a loop executes 2 % more instructions
    pub fn position(&self, name: &[u8]) -> Option<usize> {
        let Some(Some(names)) = self.compiled.names.get() else { return self.position_otherwise(name) };
        let at = usize::from(names.candidate(name)?);
        let found = self.fields[at].name.as_bytes();
        // Names that decoding took from this table have the address of the field's own text.
        (std::ptr::eq(found, name) || found == name).then_some(at)
    }

    /// Does the work of `position` if the table of names has not been built yet, or cannot be built.
    #[cold]
    fn position_otherwise(&self, name: &[u8]) -> Option<usize> {
        let names = || self.fields.iter().map(|field| &*field.name);
        if self.compiled.names.get_or_init(|| Names::new(names())).is_some() {
            return self.position(name);
        }
        if !self.custom {
            return names().position(|other| other.as_bytes() == name);
        }
        // The fields of a type made at run time are sorted, except for the fields with which every object
        // begins.
        let unsorted = self.fields.iter().take(TYPE_FIELDS).position(|field| field.name.as_bytes() == name);
        let sorted = || {
            let rest = self.fields.get(TYPE_FIELDS..)?;
            let at = rest.binary_search_by(|field| field.name.as_bytes().cmp(name)).ok()?;
            Some(TYPE_FIELDS + at)
        };
        unsorted.or_else(sorted)
    }

    /// Returns the field with the JSON name `name`.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name.as_bytes()).map(|at| &self.fields[at])
    }

    /// Returns the field or struct that protobuf writes under `number`, by binary search.
    pub fn wire_field(&self, number: u32) -> Option<WireMeaning> {
        let at = self.wire.binary_search_by_key(&number, |field| field.number).ok()?;
        Some(self.wire[at].place)
    }

    /// Returns the OpenAPI definition name, as in `io.example.api.core.v1.Pod`.
    pub fn full_name(&self, naming: &Naming) -> String {
        if self.custom {
            return format!("{}.{}", self.package, self.name); // named after its own group
        }
        format!("{}.{}.{}", naming.openapi_root, self.package, self.name)
    }
}

/// A field of a message.
#[derive(Clone, Debug)]
pub struct Field {
    /// Name of the field in JSON.
    pub name: Text,
    /// Number in protobuf (inside the innermost inlined message if `inlined` is set); 0 means not in
    /// protobuf.
    pub number: u32,
    /// Kind of the value.
    pub kind: Kind,
    /// Meaning of `null` and empty values.
    pub empty: Empty,
    /// Description for `explain`; empty if the schema has none.
    pub description: Text,
    /// Whether the published schema lists the field as `required`.
    pub required: bool,
    /// Whether JSON omits the field when it is zero; otherwise the field is always written.
    pub omit_empty: bool,
    /// Whether `null` (absent) differs from zero. If so, protobuf writes the field only if the field is set.
    pub pointer: bool,
    /// Default in the published schema, as JSON text.
    pub default: Option<Text>,
    /// Value that the server assigns if the field is absent, as JSON text.
    pub assigned: Option<Text>,
    /// Closed set of values; empty for any value.
    pub enumeration: Slice<Text>,
    /// OpenAPI format of the field, unless `kind` implies it (`byte` and `int-or-string` are implied).
    pub format: Text,
    /// Whether the struct at this field is owned and replaced as a whole. The value is also true if the struct type has
    /// this mark. For the elements of lists and maps of structs, only [`Message::atomic`] counts.
    pub atomic: bool,
    /// Whether the field is a map of resource amounts, as in containers. Defaulting rounds the amounts up to
    /// thousandths.
    pub resource_list: bool,
    /// The way in which a strategic merge patch treats the field.
    pub patch: PatchStrategy,
    /// Index into `Message::inlined` of the struct in which protobuf nests this field. If the field is nested
    /// more deeply, the field of the same name in that struct has the next index.
    pub inlined: Option<u16>,
    /// Constraints of a value of a built-in type, in addition to its kind.
    pub check: Option<&'static Check>,
    /// Constraints of a value of a type made at run time, in addition to its kind.
    pub limits: Option<Ref<Limits>>,
    /// Extension of the published schema that does not follow from the other fields.
    pub published: Option<&'static Extension>,
}

/// Constraints of a field in addition to its type. The constraints of a list apply to each element, and the
/// constraints of a map to each value.
#[derive(Debug)]
pub struct Check {
    /// Whether the field must be present.
    pub presence: Presence,
    /// Text after "Required value"; may be empty.
    pub required_detail: &'static str,
    /// Required form of a value.
    pub form: Option<ValueFormat>,
    /// Required form of the keys of a map.
    pub keys: Option<ValueFormat>,
    /// Smallest allowed number, if limited.
    pub min: Option<i64>,
    /// Largest allowed number, if limited.
    pub max: Option<i64>,
    /// Error detail for a number out of range; empty for the usual text.
    pub range_detail: &'static str,
    /// Maximum number of elements of a list; 0 means unlimited.
    pub items_max: u32,
    /// Maximum length of a text in bytes; 0 means unlimited.
    pub bytes_max: u32,
    /// Whether the elements of a list must differ.
    pub unique: bool,
    /// Closed set in the order in which errors list it; empty means the published order.
    pub reported: &'static [&'static str],
    /// Whether a validation rule of the kind checks the closed set. The generic check of the table then skips
    /// the set.
    pub set_in_code: bool,
    /// Whether the closed set rejects an empty text too.
    pub empty_is_refused: bool,
    /// Whether validation skips everything below the field.
    pub unseen: bool,
}

/// Whether a field must be present. An empty text or list counts as absent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Presence {
    /// The published schema decides.
    Published,
    /// The field is optional, even if the published schema lists it as required.
    Taken,
    /// The field is required, although the published schema does not say so.
    Needed,
    /// The field is required, and zero counts as absent.
    NotZero,
    /// An absent text is checked like an empty text.
    AsEmpty,
}

/// The required form of a value (`schema/options.proto`, `Form`). An empty text is checked only in a list, or
/// if the description of the variant says so.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ValueFormat {
    /// A label as defined in RFC 1123.
    Label,
    /// A subdomain as defined in RFC 1123.
    Subdomain,
    /// A text that can be one segment of a URL path.
    PathSegment,
    /// A qualified name, `[prefix/]name`.
    Qualified,
    /// The value of a label.
    LabelValue,
    /// The key of a config map.
    ConfigKey,
    /// The name of an environment variable.
    Environment,
    /// The name of a port. Other fields refer to the port by this name.
    PortName,
    /// A DNS search domain.
    SearchDomain,
    /// An IP address of either family.
    Ip,
    /// A network in CIDR notation, of either family.
    Cidr,
    /// A path without a step `..`.
    NoBacksteps,
    /// A relative path without a step `..`.
    Descending,
    /// A relative path without a step `..` that does not begin with two dots.
    Local,
    /// A path that begins with a slash.
    Absolute,
    /// Domain and path, as in `example.com/path`.
    DomainPath,
    /// The name of a storage driver.
    Driver,
    /// A network in CIDR notation that may have surrounding spaces.
    CidrPadded,
    /// An RFC 1123 subdomain; empty texts are checked too.
    SubdomainGiven,
    /// A qualified name, `[prefix/]name`; empty texts are checked too.
    QualifiedGiven,
    /// The number of a port.
    Port,
    /// Permission bits of a file.
    FileMode,
    /// The id of a user or group.
    Id,
    /// The number or name of a port.
    PortOrName,
    /// A count that is not negative, or a percentage.
    CountOrPercent,
    /// A quantity of zero or more.
    NotNegative,
    /// A quantity of more than zero.
    Positive,
    /// A map of labels; keys and values are checked.
    Labels,
}

impl Field {
    /// Returns the outermost layer of the field's kind.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.kind.shape()
    }

    /// Returns the kind of the single value, of a list element or of a map value.
    #[inline]
    pub fn element(&self) -> &Kind {
        self.kind.element()
    }

    /// Returns how server-side apply merges the list; `Atomic` if the field is not a list.
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
    /// Whether lists are merged (by key, or as a set of scalars) instead of replaced.
    pub merge: bool,
    /// Whether a patch may list the members to retain.
    pub retain_keys: bool,
    /// Whether the whole value is taken from the patch.
    pub replace: bool,
    /// Member that identifies an element.
    pub merge_key: Option<&'static str>,
}

/// An API group with its versions in order of preference.
#[derive(Debug)]
pub struct GroupTable {
    /// Group name without the suffix of the naming profile: empty for core, `apps`, `rbac.authorization`.
    pub stem: Text,
    /// Whether the suffix of the naming profile follows the stem.
    pub suffixed: bool,
    /// Discovery priority; higher values come first (docs/api/discovery.md#built-in-resources).
    pub priority: u32,
    /// Versions of the group, with the preferred version first.
    pub versions: &'static [VersionTable],
}

/// A version of a group with its resources in path order.
#[derive(Debug)]
pub struct VersionTable {
    /// Name of the version: `v1`, `v2`, `v1beta1`.
    pub version: Text,
    /// Priority among the versions of the group; higher values come first.
    pub priority: u32,
    /// Resources of the version, sorted by plural.
    pub resources: &'static [&'static ResourceTable],
}

/// Whether objects belong to a namespace or to the cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Objects belong to a namespace.
    Namespaced,
    /// Objects belong to the cluster, without a namespace.
    Cluster,
}

/// A resource type of a group version, with all its data.
#[derive(Debug)]
pub struct ResourceTable {
    /// Plural name, used in URLs.
    pub plural: Text,
    /// Singular name, the kind in lower case.
    pub singular: Text,
    /// Kind of the objects.
    pub kind: Text,
    /// Kind of lists of the objects.
    pub list_kind: Text,
    /// Short names for command lines.
    pub short_names: Slice<Text>,
    /// Categories of the resource, such as `all`.
    pub categories: Slice<Text>,
    /// Whether the objects belong to a namespace or to the cluster.
    pub scope: Scope,
    /// Verbs in the order in which discovery lists them; the verbs of built-in types are sorted.
    pub verbs: &'static [&'static str],
    /// Type of the objects.
    pub message: Ref<Message>,
    /// Subresources of the resource, sorted by name.
    pub subresources: Slice<SubresourceTable>,
    /// Storage of the objects; `None` for virtual types, which represent an operation.
    pub storage: Option<StorageTable>,
    /// Table columns; empty means the default columns `Name` and `Created At`.
    pub columns: Slice<Column>,
    /// Fields that a field selector may use, in addition to `metadata.name` and `metadata.namespace`.
    pub selectable: Slice<Selectable>,
    /// Error message for other labels (docs/api/selectors.md#field-selectors). The label replaces `%q`, or is
    /// appended if there is no `%q`. `None` for kinds without selectable fields of their own.
    pub selectable_refusal: Option<Text>,
    /// Required form of an object's name.
    pub name_rule: NameRule,
    /// Whether PUT creates an absent object.
    pub put_creates: bool,
    /// Whether PUT without a resourceVersion updates the current version of the object.
    pub unconditional_update: bool,
    /// Whether the default propagation policy of a delete is `orphan` instead of `background`.
    pub orphans_by_default: bool,
    /// Whether a delete keeps the object for a grace period (pods).
    pub graceful_delete: bool,
    /// Whether a completed delete returns the object instead of a Status.
    pub delete_returns_object: bool,
    /// Dotted paths whose changes `metadata.generation` counts, from 1; empty means no generation. Types made
    /// at run time count changes of everything except metadata.
    pub generation_on: Slice<Text>,
    /// Fields that `/status` and the main resource must not change; `None` without a status subresource.
    pub status: Option<StatusRules>,
    /// Dotted paths that no update may change. Conditional restrictions are in code.
    pub immutable: &'static [&'static str],
    /// The conversion of objects to table rows; used by `table` only.
    pub format: Slot,
    /// Rules of a type made at run time, in the expression language; only `custom` uses them.
    pub rules: Option<Ref<Slot>>,
    /// Fingerprint of the form in which a version of a custom type writes its objects; `None` for built-in
    /// types.
    pub form: Option<Ref<u32>>,
    /// Release since which the version is deprecated, as in `1.33`; empty if the version is not deprecated. For types
    /// made at run time, the warning itself.
    pub deprecated: Text,
    /// Properties of the kind that the other fields do not describe.
    pub behavior: &'static Behavior,
}

/// The storage of a resource. Versions of one kind, and `events` of both groups, share one storage.
#[derive(Clone, Debug)]
pub struct StorageTable {
    /// Group stem of the stored form.
    pub group: Text,
    /// Whether the stored group has the suffix of the naming profile.
    pub group_suffixed: bool,
    /// Version of the stored form.
    pub version: Text,
    /// Resource name in the key.
    pub resource: Text,
}

/// The description of a subresource.
#[derive(Clone, Debug)]
pub struct SubresourceTable {
    /// Name of the subresource: `status`, `scale`, `binding` …
    pub name: &'static str,
    /// Group stem of the body's kind.
    pub group: Text,
    /// Whether the group of the body's kind has the suffix of the naming profile.
    pub group_suffixed: bool,
    /// Version of the body's kind.
    pub version: Text,
    /// Kind of the request body.
    pub kind: Text,
    /// Verbs of the subresource, sorted.
    pub verbs: &'static [&'static str],
    /// Type of the request body.
    pub message: Ref<Message>,
    /// Whether the subresource is a streaming or proxying connection instead of an object.
    pub connect: bool,
    /// Number of the check in code for updates through the subresource, from 1; 0 means no check. Only
    /// validation can resolve the number.
    pub update_rule: u16,
    /// Paths of the scale in objects of a type made at run time. In built-in types the paths are
    /// `spec.replicas`, `status.replicas` and `spec.selector`.
    pub scale: Option<ScalePaths>,
}

/// Paths of a scale's values in an object. Each name in a path has a dot in front, including the first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScalePaths {
    /// Path of the desired number of replicas.
    pub spec: Text,
    /// Path of the observed number of replicas.
    pub status: Text,
    /// Path of the selector, which is a text.
    pub selector: Option<Text>,
}

/// Fields of an object that each endpoint may write (docs/api/apply.md#managed-fields).
#[derive(Debug)]
pub struct StatusRules {
    /// Dotted paths that a write of the main resource keeps from the stored object (normally `status`).
    pub kept_by_main: Slice<Text>,
    /// Dotted paths that a write of `/status` keeps from the stored object (normally `spec`, often
    /// `metadata.labels` …).
    pub kept_by_status: Slice<Text>,
    /// Dotted paths that a write of the main resource does not own.
    pub reset_by_main: Slice<Text>,
    /// Dotted paths that a write of `/status` does not own (`metadata` if most of the metadata is kept).
    pub reset_by_status: Slice<Text>,
    /// Whether a create stores the given status (nodes) instead of clearing it.
    pub kept_on_create: bool,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Header of the column. A column without a header has cells but no definition.
    pub name: Text,
    /// Type of the cells: `string`, `integer`, `boolean`, `date`.
    pub kind: Text,
    /// `name` for the first column, otherwise empty.
    pub format: Text,
    /// Priority of the column; 0 means that clients always show it.
    pub priority: i32,
    /// Description in one sentence. If empty, the standard description that belongs to the column header is
    /// used.
    pub description: Text,
    /// Expression for the cell: the language of `table/cell`, or a JSON path in types made at run time.
    pub cell: Text,
}

/// A field that a field selector may use.
#[derive(Clone, Debug)]
pub struct Selectable {
    /// Label of the field in the query.
    pub label: Text,
    /// Dotted path of the value in the stored form; alternatives are separated by `|`.
    pub path: Text,
    /// Text for an absent value (`false` for booleans, `0` for counts, empty otherwise).
    pub absent: Text,
}

/// The required form of an object's name (docs/api/writes.md#metadata-rules).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NameRule {
    /// An RFC 1123 subdomain of at most 253 characters.
    Subdomain,
    /// An RFC 1123 label of at most 63 characters.
    Label,
    /// Any text that is valid as a path segment.
    PathSegment,
}
