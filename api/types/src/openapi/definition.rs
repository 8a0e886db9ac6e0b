//! Schemas from types: one definition per message, special scalar and custom type, in either dialect.
//!
//! ```text
//! operations name bodies ──► Definitions (a work list that follows every reference once)
//!                                │
//!                                └─► (name, schema tree), sorted by name
//! ```
//!
//! OpenAPI v3 keeps defaults and wraps a reference that has siblings in `allOf`. v2 has neither `oneOf` nor
//! defaults and allows members next to `$ref`. Members of a schema are in alphabetical order. A list without
//! a declared merge strategy is published as `atomic`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::constraints::constrain;
use super::custom;
use super::dialect::{Dialect, Gvk, META, gvk_value, push_text};
use crate::schema::builtin;
use crate::schema::published::Published;
use crate::schema::registry::{GroupVersion, Registry, Resource};
use crate::schema::table::{
    Element, Empty, Extension, Field, Kind, ListType, Message, PublishedUnion, Ref, Text, Unknown,
};
use values::json::{self, Object, Value};
use values::naming::Naming;

const APIEXTENSIONS: &str = "apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// The kinds of each message: all kinds in the registry that have the message as body.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    /// Kinds by package and name of the message.
    of: HashMap<(Text, Text), Vec<Gvk>>,
}

impl Kinds {
    pub(super) fn new(registry: &Registry) -> Self {
        let naming = registry.naming();
        let mut kinds = Kinds::default();
        for resource in registry.resources() {
            kinds.add(&resource.table.message, Gvk::of_objects(resource));
            if let Some(list) = list_message(resource, naming) {
                kinds.add(&list, Gvk::of_list(resource));
            }
            for subresource in &resource.subresources {
                kinds.add(&subresource.table.message, Gvk::of_body(subresource));
            }
        }
        let meta = |name: &str| builtin::message(naming, &format!("{META}.{name}"));
        let core = |kind: &'static str| Gvk { group: String::new(), version: "v1".into(), kind: kind.into() };
        for kind in ["Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList"] {
            if let Some(message) = meta(kind) {
                kinds.add(message, core(kind));
            }
        }
        // The two kinds below belong to every group version. Versions without built-in types are omitted, so
        // that the documents of other versions do not change when custom types are created or deleted.
        let is_builtin =
            |version: &&Arc<GroupVersion>| version.resources.iter().any(|resource| !resource.is_custom());
        for kind in ["DeleteOptions", "WatchEvent"] {
            if let Some(message) = meta(kind) {
                kinds.add(message, core(kind));
                let versions = registry.groups().iter().flat_map(|group| &group.versions);
                for version in versions.filter(is_builtin) {
                    let (group, version) = (version.group.clone(), version.version.clone());
                    kinds.add(message, Gvk { group, version, kind: kind.into() });
                }
            }
        }
        kinds
    }

    fn add(&mut self, message: &Message, gvk: Gvk) {
        let known = self.of.entry(identity(message)).or_default();
        if let Err(at) = known.binary_search(&gvk) {
            known.insert(at, gvk);
        }
    }
}

/// Returns the package and name that identify a message.
fn identity(message: &Message) -> (Text, Text) {
    (message.package.clone(), message.name.clone())
}

/// Returns the message of a built-in resource's lists.
fn list_message(resource: &Resource, naming: &Naming) -> Option<Ref<Message>> {
    let (item, list_kind) = (&resource.table.message, &resource.table.list_kind);
    if list_kind.is_empty() || item.custom {
        return None;
    }
    builtin::message(naming, &format!("{}.{list_kind}", item.package)).map(Ref::Static)
}

/// The source of a definition.
enum Source<'a> {
    Message(Ref<Message>),
    Scalar(&'static Scalar),
    /// The objects of a custom type, with the schema of the author.
    Custom(&'a Resource, &'a Published),
    CustomList(&'a Resource),
    /// The schema of answers that are not objects of a resource, as JSON text.
    Text {
        package: &'static str,
        schema: &'static str,
    },
}

/// The definitions that a document needs. Methods that return a name add definitions;
/// [`Definitions::for_each`] then returns the schemas.
pub(super) struct Definitions<'a> {
    naming: &'static Naming,
    dialect: Dialect,
    /// Group and version of the document, if it is about one version.
    version: Option<(&'a str, &'a str)>,
    kinds: &'a Kinds,
    sources: BTreeMap<String, Source<'a>>,
    /// Messages whose fields were not yet searched for references.
    pending: Vec<Ref<Message>>,
}

impl<'a> Definitions<'a> {
    pub(super) fn new(naming: &'static Naming, dialect: Dialect, kinds: &'a Kinds) -> Self {
        Definitions { naming, dialect, version: None, kinds, sources: BTreeMap::new(), pending: Vec::new() }
    }

    /// Restricts the definitions to the document of one version. Kinds that belong to every version are then
    /// listed for this version only.
    pub(super) fn for_version(mut self, version: &'a GroupVersion) -> Self {
        self.version = Some((&version.group, &version.version));
        self
    }

    /// Returns the definition name of a metadata type such as `Status`.
    pub(super) fn meta(&mut self, name: &str) -> String {
        self.named(&format!("{META}.{name}"))
    }

    /// Returns the definition name of patch bodies. A patch body can have any patch format and is not a
    /// message.
    pub(super) fn patch(&mut self) -> String {
        let name = self.scalar_name(&PATCH);
        self.sources.entry(name.clone()).or_insert(Source::Scalar(&PATCH));
        name
    }

    /// Returns the definition name of the message with this stem.
    pub(super) fn named(&mut self, stem: &str) -> String {
        if let Some(message) = builtin::message(self.naming, stem) {
            self.need(&message.into());
        }
        format!("{}.{stem}", self.naming.openapi_root)
    }

    /// Adds a schema that is written as JSON text. References in the schema are names of the same package.
    pub(super) fn add_text(&mut self, package: &'static str, name: &str, schema: &'static str) {
        let name = self.full_name(package, name);
        self.sources.entry(name).or_insert(Source::Text { package, schema });
    }

    /// Returns the definition name of a type of this package.
    pub(super) fn full_name(&self, package: &str, name: &str) -> String {
        format!("{}.{package}.{name}", self.naming.openapi_root)
    }

    /// Returns the message with this stem without adding a definition, for callers that need only its fields.
    pub(super) fn options(&self, stem: &str) -> Option<Ref<Message>> {
        builtin::message(self.naming, stem).map(Ref::Static)
    }

    /// Returns the definition name of a message.
    pub(super) fn message(&mut self, message: &Ref<Message>) -> String {
        self.need(message);
        message.full_name(self.naming)
    }

    /// Returns the definition name of a resource's objects.
    pub(super) fn object(&mut self, resource: &'a Resource) -> String {
        let Some(schema) = resource.published.as_deref() else {
            return self.message(&resource.table.message);
        };
        let name = custom::definition_name(&Gvk::of_objects(resource));
        self.meta("ObjectMeta");
        self.sources.entry(name.clone()).or_insert(Source::Custom(resource, schema));
        name
    }

    /// Returns the definition name of a resource's lists; `None` if the resource has no lists.
    pub(super) fn list(&mut self, resource: &'a Resource) -> Option<String> {
        if !resource.table.message.custom {
            let message = list_message(resource, self.naming)?;
            return Some(self.message(&message));
        }
        let name = custom::definition_name(&Gvk::of_list(resource));
        self.meta("ListMeta");
        self.object(resource);
        self.sources.entry(name.clone()).or_insert(Source::CustomList(resource));
        Some(name)
    }

    fn need(&mut self, message: &Ref<Message>) {
        let name = message.full_name(self.naming);
        if let std::collections::btree_map::Entry::Vacant(entry) = self.sources.entry(name) {
            entry.insert(Source::Message(message.clone()));
            self.pending.push(message.clone());
        }
    }

    /// Follows the references of all messages so far.
    fn close(&mut self) {
        while let Some(message) = self.pending.pop() {
            for field in &*message.fields {
                self.need_kind(&field.kind);
            }
        }
    }

    /// Adds the definitions that a kind refers to.
    fn need_kind(&mut self, kind: &Kind) {
        match kind {
            // Structs of types made at run time are written inline.
            Kind::Message(message) if message.custom => {
                message.fields.iter().for_each(|field| self.need_kind(&field.kind));
            }
            Kind::Message(message) => self.need(message),
            Kind::List(list) => self.need_kind(&list.item.kind),
            Kind::Map(map) => self.need_kind(&map.value.kind),
            kind => {
                if let Some(scalar) = Scalar::for_kind(kind) {
                    let name = self.scalar_name(scalar);
                    self.sources.entry(name).or_insert(Source::Scalar(scalar));
                }
                if let Some(message) = kind.message() {
                    self.need(message);
                }
            }
        }
    }

    /// Calls `each` with the name and schema of every definition, sorted by name.
    pub(super) fn for_each(mut self, mut each: impl FnMut(&str, &Value)) {
        self.close();
        for (name, source) in &self.sources {
            let schema = match source {
                Source::Message(message) => self.message_schema(message),
                Source::Scalar(scalar) => scalar.schema(self.dialect),
                Source::Custom(resource, schema) => {
                    custom::object(resource, schema.schema(), self.naming, self.dialect)
                }
                Source::CustomList(resource) => custom::list(resource, self.naming, self.dialect),
                Source::Text { package, schema } => self.text_schema(package, schema),
            };
            each(name, &schema);
        }
    }

    /// Parses a schema, and completes its references.
    fn text_schema(&self, package: &str, schema: &str) -> Value {
        let mut schema = json::parse(schema.as_bytes()).expect("tests parse each of these constants");
        self.complete_references(package, &mut schema);
        schema
    }

    fn complete_references(&self, package: &str, schema: &mut Value) {
        match schema {
            Value::Array(items) => items.iter_mut().for_each(|item| self.complete_references(package, item)),
            Value::Object(members) => {
                for (name, member) in members.members_mut() {
                    match member {
                        Value::String(target) if *name == "$ref" => {
                            *target = format!(
                                "{}{}",
                                self.dialect.reference_prefix(),
                                self.full_name(package, target)
                            );
                        }
                        member => self.complete_references(package, member),
                    }
                }
            }
            _ => {}
        }
    }

    fn scalar_name(&self, scalar: &Scalar) -> String {
        self.full_name(scalar.package, scalar.name)
    }

    fn message_schema(&self, message: &Message) -> Value {
        let mut schema = Object::with_capacity(6);
        push_text(&mut schema, "description", &message.description);
        if !message.fields.is_empty() {
            let mut fields: Vec<&Field> = message.fields.iter().collect();
            fields.sort_by_key(|field| &field.name);
            let properties: Object =
                fields.iter().map(|field| (field.name.clone(), self.property(message, field))).collect();
            schema.push("properties", properties.into());
        }
        let required: Vec<Value> =
            message.fields.iter().filter(|field| field.required).map(|field| (*field.name).into()).collect();
        if !required.is_empty() {
            schema.push("required", Value::Array(required));
        }
        schema.push("type", "object".into());
        if let Some(kinds) = self.kinds.of.get(&identity(message)) {
            let is_of_all = matches!(&*message.name, "DeleteOptions" | "WatchEvent");
            let is_listed = |gvk: &&Gvk| match self.version {
                Some(version) if is_of_all => gvk.group.is_empty() || (&*gvk.group, &*gvk.version) == version,
                _ => true,
            };
            let kinds = kinds.iter().filter(is_listed).map(gvk_value).collect();
            schema.push(self.naming.extension("group-version-kind"), Value::Array(kinds));
        }
        if message.atomic {
            schema.push(self.naming.extension("map-type"), "atomic".into());
        }
        if message.embedded {
            schema.push(self.naming.extension("embedded-resource"), true.into());
        }
        if let Some(union) = message.published_union {
            schema.push(self.naming.extension("unions"), Value::Array(vec![published_union(union)]));
        }
        if message.unknown == Unknown::Preserve {
            schema.push(self.naming.extension("preserve-unknown-fields"), true.into());
        }
        schema.into()
    }

    /// Returns the schema of a property, with all data of the field.
    fn property(&self, message: &Message, field: &Field) -> Value {
        // Lists of objects have no merge extensions. Lists of verbs in discovery have their own type and no merge
        // extensions either.
        let is_unmarked = match &field.kind {
            Kind::List(list) => list.wrapped || (field.name == "items" && is_list(message)),
            _ => false,
        };
        let mut schema = self.value(&field.kind, field.empty, field);
        constrain(&mut schema, field.limits.as_deref(), field.empty, self.dialect);
        let reference = schema.remove("$ref");
        push_text(&mut schema, "description", &field.description);
        if let (Dialect::V3, Some(default)) = (self.dialect, &field.default)
            && let Ok(default) = json::parse(default.as_bytes())
        {
            schema.push("default", default);
        }
        self.push_merge_rules(&mut schema, field, is_unmarked);
        if let Some(reference) = reference {
            if self.dialect == Dialect::V2 || schema.is_empty() {
                schema.push("$ref", reference);
            } else {
                let target = Object::from_iter([("$ref".into(), reference)]);
                schema.push("allOf", Value::Array(vec![target.into()]));
            }
        }
        json::sort_members(schema.members_mut());
        schema.into()
    }

    fn push_list_type(&self, schema: &mut Object, merge: &ListType) {
        let list_type = match merge {
            ListType::Atomic => "atomic",
            ListType::Set => "set",
            ListType::Map(keys) => {
                let keys = keys.iter().map(|key| (**key).into()).collect();
                schema.push(self.naming.extension("list-map-keys"), Value::Array(keys));
                "map"
            }
        };
        schema.push(self.naming.extension("list-type"), list_type.into());
    }

    /// Adds the extensions about merging. `is_unmarked` is true for a list that must not get these
    /// extensions.
    fn push_merge_rules(&self, schema: &mut Object, field: &Field, is_unmarked: bool) {
        if let Kind::List(list) = &field.kind {
            if !is_unmarked {
                self.push_list_type(schema, &list.merge);
            }
        } else if let Some(map_type) = map_type(field) {
            schema.push(self.naming.extension("map-type"), map_type.into());
        }
        if let Some(Extension { name, value }) = field.published {
            schema.push(self.naming.extension(name), (*value).into());
        }
        let patch = field.patch;
        let strategies =
            [(patch.merge, "merge"), (patch.retain_keys, "retainKeys"), (patch.replace, "replace")];
        let strategies: Vec<&str> =
            strategies.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect();
        if !strategies.is_empty() {
            schema.push(self.naming.extension("patch-strategy"), strategies.join(",").into());
        }
        if let Some(key) = patch.merge_key {
            schema.push(self.naming.extension("patch-merge-key"), key.into());
        }
    }

    /// Returns the schema of a field's value: a reference, or type, format and values of a scalar, or the
    /// schema of the elements of a list or map.
    fn value(&self, kind: &Kind, empty: Empty, field: &Field) -> Object {
        let is_custom = empty != Empty::Absent;
        let element = |element: &Element| {
            let mut schema = self.value(&element.kind, element.empty, field);
            constrain(&mut schema, element.limits.as_deref(), element.empty, self.dialect);
            if let (Kind::List(list), true) = (&element.kind, element.empty != Empty::Absent) {
                self.push_list_type(&mut schema, &list.merge);
            }
            json::sort_members(schema.members_mut());
            schema
        };
        let extension = |name: &str| Object::from_iter([(self.naming.extension(name).into(), true.into())]);
        let (kind, format) = match kind {
            Kind::Bool => ("boolean", ""),
            Kind::Int32 => ("integer", "int32"),
            Kind::Int64 => ("integer", "int64"),
            Kind::Double => ("number", "double"),
            Kind::String => ("string", ""),
            Kind::Bytes => ("string", "byte"),
            Kind::List(list) => return container("items", element(&list.item), "array"),
            Kind::Map(map) => return container("additionalProperties", element(&map.value), "object"),
            Kind::Message(message) if message.custom => {
                return match self.message_schema(message) {
                    Value::Object(schema) => schema,
                    _ => Object::new(),
                };
            }
            Kind::Message(message) => return self.reference(&message.full_name(self.naming)),
            Kind::IntOrString if is_custom => return extension("int-or-string"),
            Kind::Json if is_custom => return extension("preserve-unknown-fields"),
            other => {
                let name = Scalar::for_kind(other).map(|scalar| self.scalar_name(scalar));
                return self.reference(&name.unwrap_or_default());
            }
        };
        let mut schema = Object::with_capacity(3);
        if !field.enumeration.is_empty() {
            let values = field.enumeration.iter().map(|value| (**value).into()).collect();
            schema.push("enum", Value::Array(values));
        }
        push_text(&mut schema, "format", if field.format.is_empty() { format } else { &field.format });
        schema.push("type", kind.into());
        schema
    }

    fn reference(&self, name: &str) -> Object {
        let target = format!("{}{name}", self.dialect.reference_prefix());
        Object::from_iter([("$ref".into(), target.into())])
    }
}

/// Returns the extension for a union: each field with its discriminator value. This value is the name of the
/// field with an upper-case first letter.
fn published_union(union: &PublishedUnion) -> Value {
    let mut object = Object::new();
    if !union.discriminator.is_empty() {
        object.push("discriminator", union.discriminator.into());
    }
    let value = |name: &str| {
        let (first, rest) = name.split_at(1);
        Value::String(first.to_ascii_uppercase() + rest)
    };
    let fields: Object = union.members.iter().map(|name| ((*name).into(), value(name))).collect();
    object.push("fields-to-discriminateBy", fields.into());
    object.into()
}

/// Returns whether a message is a list of objects.
fn is_list(message: &Message) -> bool {
    let metadata = message.field("metadata").and_then(|field| field.kind.message());
    metadata.is_some_and(|metadata| matches!(&*metadata.name, "ListMeta"))
}

/// Returns the merge type of the map or struct at a field; `None` if the type of the value has the same merge type.
fn map_type(field: &Field) -> Option<&'static str> {
    let (own, by_type) = match &field.kind {
        Kind::Message(message) => (field.atomic, message.atomic),
        Kind::Map(map) => (map.atomic, false),
        _ => (false, false),
    };
    match (own, by_type) {
        (true, false) => Some("atomic"),
        (false, true) => Some("granular"),
        _ => None,
    }
}

fn container(member: &'static str, inner: Object, kind: &'static str) -> Object {
    Object::from_iter([(member.into(), inner.into()), ("type".into(), kind.into())])
}

/// A type that JSON does not write as an object of its fields.
struct Scalar {
    package: &'static str,
    name: &'static str,
    description: &'static str,
    kind: &'static str,
    format: &'static str,
    /// Alternative types in v3; v2 publishes `kind`.
    one_of: &'static [&'static str],
}

impl Scalar {
    /// Returns the scalar of a kind; `None` for kinds that are written inline or are messages.
    fn for_kind(kind: &Kind) -> Option<&'static Scalar> {
        Some(match kind {
            Kind::Time => &TIME,
            Kind::MicroTime => &MICRO_TIME,
            Kind::Duration => &DURATION,
            Kind::Quantity => &QUANTITY,
            Kind::IntOrString => &INT_OR_STRING,
            Kind::RawExtension => &RAW_EXTENSION,
            Kind::FieldsV1 => &FIELDS_V1,
            Kind::Json => &JSON,
            Kind::SchemaOrArray(_) => &SCHEMA_OR_ARRAY,
            Kind::SchemaOrBool(_) => &SCHEMA_OR_BOOL,
            Kind::SchemaOrStrings(_) => &SCHEMA_OR_STRINGS,
            Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::Double => return None,
            Kind::String | Kind::Bytes | Kind::Message(_) => return None,
            Kind::List(_) | Kind::Map(_) => return None,
        })
    }

    fn schema(&self, dialect: Dialect) -> Value {
        let mut schema = Object::with_capacity(4);
        push_text(&mut schema, "description", self.description);
        push_text(&mut schema, "format", self.format);
        if dialect == Dialect::V3 && !self.one_of.is_empty() {
            let types = self.one_of.iter().map(|kind| Object::from_iter([("type".into(), (*kind).into())]));
            schema.push("oneOf", Value::Array(types.map(Value::Object).collect()));
        } else {
            push_text(&mut schema, "type", self.kind);
        }
        schema.into()
    }
}

const fn scalar(
    package: &'static str,
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    one_of: &'static [&'static str],
    description: &'static str,
) -> Scalar {
    Scalar { package, name, description, kind, format, one_of }
}

static TIME: Scalar =
    scalar(META, "Time", "string", "date-time", &[], "A moment as RFC 3339 with whole seconds, in UTC.");
static MICRO_TIME: Scalar =
    scalar(META, "MicroTime", "string", "date-time", &[], "A moment as RFC 3339 with microseconds, in UTC.");
static PATCH: Scalar = scalar(
    META,
    "Patch",
    "object",
    "",
    &[],
    "A patch in the format that the Content-Type of the request names.",
);
static DURATION: Scalar =
    scalar(META, "Duration", "string", "", &[], "A span of time such as `300ms`, `1.5h` or `2h45m`.");
static FIELDS_V1: Scalar = scalar(
    META,
    "FieldsV1",
    "object",
    "",
    &[],
    "A set of fields as a tree: `f:<name>` is a member, `k:<keys>` a list element by its keys, `v:<value>` a \
     set element, `.` the node itself.",
);
static QUANTITY: Scalar = scalar(
    "apimachinery.pkg.api.resource",
    "Quantity",
    "string",
    "",
    &["string", "number"],
    "A fixed-point number with a decimal (m, k, M, G …) or binary (Ki, Mi, Gi …) suffix or an exponent, such \
     as `500m`, `1.5Gi` or `2e3`. At most three digits follow the point; more are rounded up.",
);
static INT_OR_STRING: Scalar = scalar(
    "apimachinery.pkg.util.intstr",
    "IntOrString",
    "string",
    "int-or-string",
    &["integer", "string"],
    "A number, or a string such as a name or a percentage.",
);
static RAW_EXTENSION: Scalar =
    scalar("apimachinery.pkg.runtime", "RawExtension", "object", "", &[], "An embedded object of any kind.");
static JSON: Scalar = scalar(APIEXTENSIONS, "JSON", "", "", &[], "Any JSON value.");
static SCHEMA_OR_ARRAY: Scalar =
    scalar(APIEXTENSIONS, "JSONSchemaPropsOrArray", "", "", &[], "A schema, or an array of schemas.");
static SCHEMA_OR_BOOL: Scalar =
    scalar(APIEXTENSIONS, "JSONSchemaPropsOrBool", "", "", &[], "A schema, or a boolean.");
static SCHEMA_OR_STRINGS: Scalar =
    scalar(APIEXTENSIONS, "JSONSchemaPropsOrStringArray", "", "", &[], "A schema, or an array of strings.");
