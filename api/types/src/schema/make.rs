//! Builders of types at run time: values, structs and resources, to be added to a registry.
//!
//! ```text
//! Node (a value) ─► Struct (fields) ─► ResourceMaker ─ make ─► Arc<Resource> ─► Registry::with
//! ```
//!
//! The resulting types follow the rules of structural schemas: all given values are kept unchanged, including
//! zeros and empty lists, and `null` is a value only if the schema allows it. Every object begins with
//! `kind`, `apiVersion` and `metadata`; its other fields are sorted by name. This module does not depend on
//! the source of the type descriptions.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::builtin::{self, FIELD};
use super::compiled::Compiled;
use super::limits::Limits;
use super::make_error::MakeError;
use super::published::Published;
use super::registry::{Resource, Storage, subresource};
use super::share::Pool;
use super::table::{
    Behavior, Column, Element, Empty, Field, Kind, List, ListType, Map, Message, NameRule, Ref,
    ResourceTable, ScalePaths, Scope, Selectable, Slot, StatusRules, StorageTable, SubresourceTable, Text,
    Unknown,
};
use values::json;
use values::naming::Naming;

/// Verbs of a stored resource.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Name of the type of scales.
const SCALE: &str = "api.autoscaling.v1.Scale";

/// Builder of one value: its kind, constraints and description.
#[derive(Clone, Debug)]
pub struct ValueBuilder {
    kind: Kind,
    empty: Empty,
    limits: Option<Limits>,
    default: Option<Text>,
    description: Text,
    format: Text,
}

impl ValueBuilder {
    /// Creates a value of a kind such as [`Kind::String`], or of any JSON with [`Kind::Json`].
    pub fn new(kind: Kind) -> Self {
        ValueBuilder {
            kind,
            empty: Empty::Kept,
            limits: None,
            default: None,
            description: "".into(),
            format: "".into(),
        }
    }

    /// Creates a list that is replaced as a whole.
    pub fn list(item: ValueBuilder) -> Self {
        ValueBuilder::list_of(item, ListType::Atomic)
    }

    /// Creates a list of unique scalars.
    pub fn set(item: ValueBuilder) -> Self {
        ValueBuilder::list_of(item, ListType::Set)
    }

    /// Creates a list whose elements are identified by the fields `keys`.
    pub fn keyed(item: ValueBuilder, keys: impl IntoIterator<Item = impl Into<Text>>) -> Self {
        ValueBuilder::list_of(
            item,
            ListType::Map(keys.into_iter().map(Into::into).collect::<Vec<Text>>().into()),
        )
    }

    fn list_of(item: ValueBuilder, merge: ListType) -> Self {
        ValueBuilder::new(Kind::List(Ref::new(List { item: item.element(), merge, wrapped: false })))
    }

    /// Creates a map whose values are owned separately.
    pub fn map(value: ValueBuilder) -> Self {
        ValueBuilder::new(Kind::Map(Ref::new(Map { value: value.element(), atomic: false })))
    }

    /// Creates a map that is replaced as a whole.
    pub fn atomic_map(value: ValueBuilder) -> Self {
        ValueBuilder::new(Kind::Map(Ref::new(Map { value: value.element(), atomic: true })))
    }

    /// Allows `null` as a value.
    #[must_use]
    pub fn nullable(self) -> Self {
        ValueBuilder { empty: Empty::Nullable, ..self }
    }

    /// Sets the default as JSON text. In lists and maps, the default replaces `null`.
    #[must_use]
    pub fn default(self, json: impl Into<Text>) -> Self {
        ValueBuilder { default: Some(json.into()), ..self }
    }

    /// Sets the constraints that validation checks.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        ValueBuilder { limits: Some(limits), ..self }
    }

    /// Sets the description of the value.
    #[must_use]
    pub fn described(self, description: impl Into<Text>) -> Self {
        ValueBuilder { description: description.into(), ..self }
    }

    /// Sets the published format of the value.
    #[must_use]
    pub fn format(self, format: impl Into<Text>) -> Self {
        ValueBuilder { format: format.into(), ..self }
    }

    /// Returns the type of list elements or map values.
    pub fn element(self) -> Element {
        let mut limits = self.limits;
        if self.default.is_some() {
            limits.get_or_insert_default().default = self.default;
        }
        Element { kind: self.kind, empty: self.empty, limits: limits.map(Ref::new) }
    }

    fn field(self, name: Text, required: bool) -> Result<Field, MakeError> {
        if self.default.as_ref().is_some_and(|default| json::parse(default.as_bytes()).is_err()) {
            return Err(MakeError::Default(name));
        }
        check_keys(&self.kind)?;
        Ok(Field {
            name,
            atomic: matches!(&self.kind, Kind::Message(message) if message.atomic),
            kind: self.kind,
            empty: self.empty,
            description: self.description,
            required,
            pointer: true,
            assigned: self.default.clone(),
            default: self.default,
            format: self.format,
            limits: self.limits.map(Ref::new),
            ..FIELD
        })
    }
}

/// Checks that the elements of every list in a value have the fields that form the key of the list.
fn check_keys(kind: &Kind) -> Result<(), MakeError> {
    match kind {
        Kind::List(list) => {
            if let ListType::Map(keys) = &list.merge {
                let has = |key: &Text| match &list.item.kind {
                    Kind::Message(item) => item.field(key).is_some(),
                    _ => false,
                };
                if let Some(key) = keys.iter().find(|key| !has(key)) {
                    return Err(MakeError::NoKey(key.clone()));
                }
            }
            check_keys(&list.item.kind)
        }
        Kind::Map(map) => check_keys(&map.value.kind),
        _ => Ok(()),
    }
}

/// Builder of a struct.
#[derive(Clone, Debug, Default)]
pub struct Struct {
    name: Text,
    fields: Vec<(Text, ValueBuilder, bool)>,
    unknown: Unknown,
    is_atomic: bool,
    is_embedded: bool,
    description: Text,
    limits: Option<Limits>,
    metadata: Option<Limits>,
}

impl Struct {
    /// Creates a struct without fields. Errors refer to the struct by `name`.
    pub fn new(name: impl Into<Text>) -> Self {
        Struct { name: name.into(), ..Struct::default() }
    }

    /// Adds an optional field to the struct.
    #[must_use]
    pub fn field(mut self, name: impl Into<Text>, node: ValueBuilder) -> Self {
        self.fields.push((name.into(), node, false));
        self
    }

    /// Adds a required field to the struct.
    #[must_use]
    pub fn required(mut self, name: impl Into<Text>, node: ValueBuilder) -> Self {
        self.fields.push((name.into(), node, true));
        self
    }

    /// Sets the constraints that validation checks in addition to the fields. Fields that were declared
    /// required stay required.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Struct { limits: Some(limits), ..self }
    }

    /// Sets the constraints of the metadata of an object.
    #[must_use]
    pub fn metadata(self, limits: Limits) -> Self {
        Struct { metadata: Some(limits), ..self }
    }

    /// Sets the policy for members that the struct does not declare.
    #[must_use]
    pub fn unknown(self, unknown: Unknown) -> Self {
        Struct { unknown, ..self }
    }

    /// Makes server-side apply own and replace the struct as a whole.
    #[must_use]
    pub fn atomic(self) -> Self {
        Struct { is_atomic: true, ..self }
    }

    /// Makes the struct an object inside an object, with `kind`, `apiVersion` and `metadata` in addition to
    /// its fields.
    #[must_use]
    pub fn embedded(self) -> Self {
        Struct { is_embedded: true, ..self }
    }

    /// Sets the description of the struct.
    #[must_use]
    pub fn described(self, description: impl Into<Text>) -> Self {
        Struct { description: description.into(), ..self }
    }

    /// Returns the struct as a value.
    ///
    /// # Errors
    /// [`MakeError`] if a field is invalid or its name occurs twice.
    pub fn node(self) -> Result<ValueBuilder, MakeError> {
        Ok(ValueBuilder::new(Kind::Message(self.message("", false)?)))
    }

    /// Returns the type of the objects of a group version.
    ///
    /// # Errors
    /// [`MakeError`] if a field is invalid or its name occurs twice.
    pub fn object(self, group: &str, version: &str) -> Result<Ref<Message>, MakeError> {
        let reversed: Vec<&str> = group.rsplit('.').collect();
        self.message(&format!("{}.{version}", reversed.join(".")), true)
    }

    fn message(self, package: &str, is_object: bool) -> Result<Ref<Message>, MakeError> {
        let mut limits = self.limits;
        let mut known: HashSet<Text> = limits.iter().flat_map(|limits| &limits.required).cloned().collect();
        let mut fields = Vec::with_capacity(self.fields.len() + 3);
        for (name, node, required) in self.fields {
            if required && known.insert(name.clone()) {
                limits.get_or_insert_default().required.push(name.clone());
            }
            fields.push(node.field(name, required)?);
        }
        fields.sort_by(|a: &Field, b| a.name.cmp(&b.name));
        if is_object || self.is_embedded {
            let is_of_all = |field: &Field| matches!(&*field.name, "kind" | "apiVersion" | "metadata");
            let mut first = type_fields(is_object, self.metadata);
            for field in first.iter_mut().filter(|_| self.is_embedded) {
                let described = fields.iter().find(|described| described.name == field.name);
                field.assigned = described.and_then(|described| described.assigned.clone());
            }
            fields.retain(|field| !is_of_all(field));
            fields.splice(0..0, first);
        }
        if let Some(pair) = fields.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(MakeError::Twice(pair[0].name.clone()));
        }
        Ok(Ref::new(Message {
            name: self.name,
            package: package.to_owned().into(),
            description: self.description,
            fields: fields.into(),
            inlined: (&[]).into(),
            wire: (&[]).into(),
            atomic: self.is_atomic,
            union: None,
            published_union: None,
            rule: 0,
            checked_apart: false,
            default_rule: 0,
            unknown: self.unknown,
            embedded: self.is_embedded,
            custom: true,
            limits: limits.map(Ref::new),
            compiled: Compiled::new(),
        }))
    }
}

/// Description of `apiVersion` in custom types. Tools search for the first words of the description.
pub const API_VERSION_DESCRIPTION: &str =
    "APIVersion defines the schema that the object is written in, as `<group>/<version>`.";

/// Description of `kind` in custom types. Tools search for the first words of the description.
pub const KIND_DESCRIPTION: &str =
    "Kind is a string value that names the type of the object, in CamelCase. The value cannot change.";

/// Returns the fields with which every object begins.
fn type_fields(is_object: bool, limits: Option<Limits>) -> [Field; 3] {
    let of = |name: &'static str, kind: Kind, description: &'static str| Field {
        name: name.into(),
        kind,
        description: description.into(),
        pointer: !is_object,
        ..FIELD
    };
    [
        of("kind", Kind::String, KIND_DESCRIPTION),
        of("apiVersion", Kind::String, API_VERSION_DESCRIPTION),
        Field {
            limits: limits.map(Ref::new),
            ..of(
                "metadata",
                Kind::Message(Ref::Static(builtin::OBJECT_META)),
                "Metadata that every object has.",
            )
        },
    ]
}

/// Builder of one resource of a group version.
#[derive(Debug)]
pub struct ResourceMaker {
    group: String,
    version: Text,
    table: ResourceTable,
    has_status: bool,
    scale: Option<ScalePaths>,
    prefix: Option<String>,
    published: Option<Ref<Published>>,
    fault: Option<Ref<Option<MakeError>>>,
}

impl ResourceMaker {
    /// Creates a stored resource with the name `plural`, whose objects have the fields of `object`.
    ///
    /// # Errors
    /// [`MakeError`] if a field is invalid or its name occurs twice.
    pub fn new(
        group: &str,
        version: &str,
        plural: impl Into<Text>,
        scope: Scope,
        object: Struct,
    ) -> Result<Self, MakeError> {
        let kind = object.name.clone();
        let message = object.object(group, version)?;
        Ok(ResourceMaker::from_message(group, version, plural, scope, kind, message))
    }

    /// Creates a stored resource from the kind and the type of its objects. A lazy type is not created here.
    pub fn from_message(
        group: &str,
        version: &str,
        plural: impl Into<Text>,
        scope: Scope,
        kind: Text,
        message: Ref<Message>,
    ) -> Self {
        ResourceMaker {
            group: group.to_owned(),
            version: version.to_owned().into(),
            table: ResourceTable { scope, ..table(plural.into(), kind, message) },
            has_status: false,
            scale: None,
            prefix: None,
            published: None,
            fault: None,
        }
    }

    /// Sets the singular name, the kind of lists, the short names and the categories.
    #[must_use]
    pub fn names(
        mut self,
        singular: impl Into<Text>,
        list_kind: impl Into<Text>,
        short_names: &[&str],
        categories: &[&str],
    ) -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| Text::Owned((*name).to_owned())).collect();
        let (short_names, categories): (Vec<Text>, Vec<Text>) = (owned(short_names), owned(categories));
        self.table.singular = singular.into();
        self.table.list_kind = list_kind.into();
        self.table.short_names = short_names.into();
        self.table.categories = categories.into();
        self
    }

    /// Sets the verbs, which must be sorted.
    #[must_use]
    pub fn verbs(mut self, verbs: &'static [&'static str]) -> Self {
        self.table.verbs = verbs;
        self
    }

    /// Adds a table column whose cell is a JSON path.
    #[must_use]
    pub fn column(mut self, column: Column) -> Self {
        self.table.columns.to_mut().push(column);
        self
    }

    /// Allows selectors to use the field at the dotted path `path`.
    #[must_use]
    pub fn selectable(mut self, path: impl Into<Text>) -> Self {
        let path = path.into();
        let selectable = Selectable { label: path.clone(), path, absent: "".into() };
        self.table.selectable.to_mut().push(selectable);
        self
    }

    /// Marks the version as deprecated; `warning` is sent with each response.
    #[must_use]
    pub fn deprecated(mut self, warning: impl Into<Text>) -> Self {
        self.table.deprecated = warning.into();
        self
    }

    /// Adds the subresource `status`. Only this subresource can write the field `status`.
    #[must_use]
    pub fn status(mut self) -> Self {
        self.has_status = true;
        self
    }

    /// Adds the subresource `scale`, which reads and writes its values at `paths` in the object.
    #[must_use]
    pub fn scale(self, paths: ScalePaths) -> Self {
        ResourceMaker { scale: Some(paths), ..self }
    }

    /// Sets the rules that validation evaluates.
    #[must_use]
    pub fn rules(mut self, rules: Ref<Slot>) -> Self {
        self.table.rules = Some(rules);
        self
    }

    /// Sets the fingerprint of the form in which objects are stored.
    #[must_use]
    pub fn form(mut self, form: Ref<u32>) -> Self {
        self.table.form = Some(form);
        self
    }

    /// Sets the prefix of keys in the store, instead of `/custom:<group>/<plural>/`. No key of a built-in
    /// type may start with this prefix. In keys, the groups of built-in types are written without the suffix
    /// of the naming profile, so such a group could otherwise equal a custom group.
    #[must_use]
    pub fn storage_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets the author's schema for OpenAPI documents. Without this call, the published schema is derived
    /// from the type.
    #[must_use]
    pub fn published(mut self, schema: Ref<Published>) -> Self {
        self.published = Some(schema);
        self
    }

    /// Sets the slot in which a lazy type records the reason why the type cannot be created.
    #[must_use]
    pub fn fault(mut self, fault: Ref<Option<MakeError>>) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Shares equal parts of the objects' type with other types in the pool.
    #[must_use]
    pub fn shared(mut self, pool: &mut Pool) -> Self {
        pool.share(&mut self.table.message);
        self
    }

    /// Builds the resource, to be added to registries of this naming profile.
    pub fn make(self, naming: &Naming) -> Arc<Resource> {
        Arc::new(self.resource(naming))
    }

    /// Builds the resource for callers that modify it further.
    pub fn resource(self, naming: &Naming) -> Resource {
        let ResourceMaker { group, version, mut table, has_status, scale, prefix, published, fault } = self;
        let subresource_of = |name, group: Text, version, kind, message| SubresourceTable {
            name,
            group,
            group_suffixed: false,
            version,
            kind,
            verbs: &["get", "patch", "update"],
            message,
            connect: false,
            update_rule: 0,
            scale: None,
        };
        let mut subresources = Vec::new();
        if let (Some(paths), Some(message)) = (scale, builtin::message(naming, SCALE)) {
            let table =
                subresource_of("scale", "autoscaling".into(), "v1".into(), "Scale".into(), message.into());
            subresources.push(SubresourceTable { scale: Some(paths), ..table });
        }
        if has_status {
            let (kind, message) = (table.kind.clone(), table.message.clone());
            subresources.push(subresource_of("status", group.clone().into(), version.clone(), kind, message));
            let status: Vec<Text> = vec!["status".into()];
            table.status = Some(StatusRules {
                kept_by_main: status.clone().into(),
                // This list is not used for custom types: a write of their status keeps all other fields.
                kept_by_status: (&[]).into(),
                reset_by_main: status.into(),
                reset_by_status: vec!["metadata".into(), "spec".into()].into(),
                kept_on_create: false,
            });
        }
        table.subresources = subresources.into();
        table.storage = Some(StorageTable {
            group: group.clone().into(),
            group_suffixed: false,
            version: version.clone(),
            resource: table.plural.clone(),
        });
        let api_version = format!("{group}/{version}");
        let key_prefix = prefix.unwrap_or_else(|| format!("/custom:{group}/{}/", table.plural));
        let subresources = table.subresources.iter().map(|table| subresource(naming, table)).collect();
        let table = Ref::new(table);
        let storage = Storage {
            group: group.clone(),
            api_version: api_version.clone(),
            kind: table.kind.clone(),
            message: table.message.clone(),
            table: table.clone(),
            key_prefix,
            ttl: None,
        };
        let storage = Some(storage);
        Resource {
            table,
            group,
            version,
            api_version,
            storage,
            subresources,
            published,
            fault,
            versions: None,
            unserved: Vec::new(),
            ending: AtomicBool::new(false),
        }
    }
}

/// Returns the table of a stored resource with objects of this type and no special properties.
pub fn table(plural: Text, kind: Text, message: Ref<Message>) -> ResourceTable {
    ResourceTable {
        plural,
        singular: kind.to_lowercase().into(),
        list_kind: format!("{kind}List").into(),
        kind,
        short_names: (&[]).into(),
        categories: (&[]).into(),
        scope: Scope::Namespaced,
        verbs: VERBS,
        message,
        subresources: (&[]).into(),
        storage: None,
        columns: (&[]).into(),
        selectable: (&[]).into(),
        selectable_refusal: Some("field label not supported: ".into()),
        name_rule: NameRule::Subdomain,
        put_creates: false,
        unconditional_update: false,
        orphans_by_default: false,
        graceful_delete: false,
        delete_returns_object: false,
        generation_on: (&[]).into(),
        status: None,
        immutable: &[],
        format: Slot::new(),
        rules: None,
        form: None,
        deprecated: "".into(),
        behavior: &Behavior::PLAIN,
    }
}

/// Returns a type with these fields and no special properties, like a built-in type.
#[cfg(any(test, feature = "testing"))]
pub fn plain(name: &'static str, fields: Vec<Field>) -> Message {
    Message {
        name: name.into(),
        package: "test".into(),
        description: "".into(),
        fields: fields.into(),
        inlined: (&[]).into(),
        wire: (&[]).into(),
        atomic: false,
        union: None,
        published_union: None,
        rule: 0,
        checked_apart: false,
        default_rule: 0,
        unknown: Unknown::Prune,
        embedded: false,
        custom: false,
        limits: None,
        compiled: Compiled::new(),
    }
}

/// Returns a resource of objects without fields, for tests that check something else.
#[cfg(any(test, feature = "testing"))]
pub fn nothing(plural: &'static str, kind: &'static str) -> ResourceTable {
    table(
        plural.into(),
        kind.into(),
        Struct::new(kind).message("test", false).expect("there are no fields to go wrong"),
    )
}
