//! Representation of parts of a definition in error messages: all members of the reference server's internal
//! types, with the names in its source code, and `null` for absent values.

use crate::custom::definition::{DefinitionVersion, PrinterColumn, Shared, Subresources, Validation};
use crate::custom::schema::{Additional, Dependency, Items, Schema, SchemaRule};
use values::json::{Object, Value};

/// Returns the versions without the parts that all versions have in common.
pub(super) fn versions(versions: &[DefinitionVersion], shared: Shared) -> Value {
    let version = |version: &DefinitionVersion| {
        let own = |is_shared: bool, value: Value| if is_shared { Value::Null } else { value };
        let selectable = |path: &String| object([("JSONPath", path.as_str().into())]);
        object([
            ("Name", text(&version.name)),
            ("Served", version.served.into()),
            ("Storage", version.storage.into()),
            ("Deprecated", version.deprecated.into()),
            ("DeprecationWarning", optional(version.deprecation_warning.as_deref())),
            ("Schema", own(shared.validation, version.validation.as_ref().map_or(Value::Null, validation))),
            (
                "Subresources",
                own(shared.subresources, version.subresources.as_ref().map_or(Value::Null, subresources)),
            ),
            ("AdditionalPrinterColumns", own(shared.columns, list(&version.columns, column))),
            ("SelectableFields", own(shared.selectable, list(&version.selectable, selectable))),
        ])
    };
    list(versions, version)
}

/// Returns the internal form of a rule.
pub(super) fn rule(rule: &SchemaRule) -> Value {
    object([
        ("Rule", text(&rule.rule)),
        ("Message", text(&rule.message)),
        ("MessageExpression", text(&rule.message_expression)),
        ("Reason", optional(rule.reason.as_deref())),
        ("FieldPath", text(&rule.field_path)),
        ("OptionalOldSelf", rule.optional_old_self.map_or(Value::Null, Value::from)),
    ])
}

/// Returns the internal form of a schema, including the schemas inside it.
pub(super) fn schema(schema: &Schema) -> Value {
    let boxed = |inner: &Option<Box<Schema>>| inner.as_deref().map_or(Value::Null, self::schema);
    object([
        ("ID", text(&schema.id)),
        ("Schema", text(&schema.dialect)),
        ("Ref", optional(schema.reference.as_deref())),
        ("Description", text(&schema.description)),
        ("Type", text(&schema.kind)),
        ("Nullable", schema.nullable.into()),
        ("Format", text(&schema.format)),
        ("Title", text(&schema.title)),
        ("Default", schema.default.clone().unwrap_or_default()),
        ("Maximum", number(schema.maximum)),
        ("ExclusiveMaximum", schema.exclusive_maximum.into()),
        ("Minimum", number(schema.minimum)),
        ("ExclusiveMinimum", schema.exclusive_minimum.into()),
        ("MaxLength", integer(schema.max_length)),
        ("MinLength", integer(schema.min_length)),
        ("Pattern", text(&schema.pattern)),
        ("MaxItems", integer(schema.max_items)),
        ("MinItems", integer(schema.min_items)),
        ("UniqueItems", schema.unique_items.into()),
        ("MultipleOf", number(schema.multiple_of)),
        ("Enum", list(&schema.enumeration, Value::clone)),
        ("MaxProperties", integer(schema.max_properties)),
        ("MinProperties", integer(schema.min_properties)),
        ("Required", texts(&schema.required)),
        ("Items", schema.items.as_ref().map_or(Value::Null, items)),
        ("AllOf", list(&schema.all_of, self::schema)),
        ("OneOf", list(&schema.one_of, self::schema)),
        ("AnyOf", list(&schema.any_of, self::schema)),
        ("Not", boxed(&schema.not)),
        ("Properties", map(schema.properties.iter().map(|(name, inner)| (name, self::schema(inner))))),
        ("AdditionalProperties", additional(schema.additional_properties.as_ref())),
        (
            "PatternProperties",
            map(schema.pattern_properties.iter().map(|(name, inner)| (name, self::schema(inner)))),
        ),
        ("Dependencies", map(schema.dependencies.iter().map(|(name, inner)| (name, dependency(inner))))),
        ("AdditionalItems", additional(schema.additional_items.as_ref())),
        ("Definitions", map(schema.definitions.iter().map(|(name, inner)| (name, self::schema(inner))))),
        (
            "ExternalDocs",
            schema.external_docs.as_ref().map_or(Value::Null, |docs| {
                object([("Description", text(&docs.description)), ("URL", text(&docs.url))])
            }),
        ),
        ("Example", schema.example.clone().unwrap_or_default()),
        ("XPreserveUnknownFields", schema.preserve_unknown_fields.map_or(Value::Null, Value::from)),
        ("XEmbeddedResource", schema.embedded_resource.into()),
        ("XIntOrString", schema.int_or_string.into()),
        ("XListMapKeys", texts(&schema.list_map_keys)),
        ("XListType", optional(schema.list_type.as_deref())),
        ("XMapType", optional(schema.map_type.as_deref())),
        ("XValidations", list(&schema.validations, rule)),
    ])
}

/// Returns the internal form of `items`.
pub(super) fn items(items: &Items) -> Value {
    let (one, all) = match items {
        Items::All(item) => (schema(item), Value::Null),
        Items::Each(items) => (Value::Null, list(items, schema)),
    };
    object([("Schema", one), ("JSONSchemas", all)])
}

/// Returns a list of strings; `null` if the list is empty.
pub(super) fn texts(items: &[String]) -> Value {
    list(items, |item| text(item))
}

fn validation(validation: &Validation) -> Value {
    object([("OpenAPIV3Schema", validation.schema.as_ref().map_or(Value::Null, schema))])
}

fn subresources(subresources: &Subresources) -> Value {
    let scale = subresources.scale.as_ref().map_or(Value::Null, |scale| {
        object([
            ("SpecReplicasPath", text(&scale.spec_replicas_path)),
            ("StatusReplicasPath", text(&scale.status_replicas_path)),
            ("LabelSelectorPath", optional(scale.label_selector_path.as_deref())),
        ])
    });
    let status = if subresources.status { object([]) } else { Value::Null };
    object([("Status", status), ("Scale", scale)])
}

fn column(column: &PrinterColumn) -> Value {
    object([
        ("Name", text(&column.name)),
        ("Type", text(&column.kind)),
        ("Format", text(&column.format)),
        ("Description", text(&column.description)),
        ("Priority", column.priority.into()),
        ("JSONPath", text(&column.json_path)),
    ])
}

fn additional(additional: Option<&Additional>) -> Value {
    let (allows, inner) = match additional {
        None => return Value::Null,
        Some(Additional::Allowed(allows)) => (*allows, Value::Null),
        Some(Additional::Schema(inner)) => (true, schema(inner)),
    };
    object([("Allows", allows.into()), ("Schema", inner)])
}

fn dependency(dependency: &Dependency) -> Value {
    let (inner, names) = match dependency {
        Dependency::Schema(inner) => (schema(inner), Value::Null),
        Dependency::Properties(names) => (Value::Null, texts(names)),
    };
    object([("Schema", inner), ("Property", names)])
}

fn object<const N: usize>(members: [(&'static str, Value); N]) -> Value {
    let mut object = Object::new();
    for (name, value) in members {
        object.push(name, value);
    }
    object.into()
}

fn map<'s>(members: impl ExactSizeIterator<Item = (&'s String, Value)>) -> Value {
    if members.len() == 0 {
        return Value::Null;
    }
    let mut object = Object::new();
    for (name, value) in members {
        object.push(name.clone(), value);
    }
    object.into()
}

fn list<T>(items: &[T], print: impl Fn(&T) -> Value) -> Value {
    if items.is_empty() { Value::Null } else { Value::Array(items.iter().map(print).collect()) }
}

fn text(text: &str) -> Value {
    text.into()
}

fn optional(text: Option<&str>) -> Value {
    text.map_or(Value::Null, Value::from)
}

fn integer(number: Option<i64>) -> Value {
    number.map_or(Value::Null, Value::Int)
}

/// Returns a number, without a fraction if it is an integer.
fn number(number: Option<f64>) -> Value {
    number.map_or(Value::Null, Value::Float)
}
