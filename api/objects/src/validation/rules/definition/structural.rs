//! Structural schemas: every value has a type that is declared outside of logical keywords. Therefore objects
//! can be pruned and defaulted.
//!
//! ```text
//! invariants    each node has a type; logical keywords (allOf, anyOf, oneOf, not) only restrict values
//! completeness  each field inside logical keywords is declared outside of them
//! ```
//!
//! Errors are sorted by their text, as in the reference server.

use super::extension_names::ExtensionNames;
use crate::custom::schema::{Additional, Items, Schema};
use crate::validation::path::FieldPath;
use values::field::FieldError;
use values::field::is_enough;
use values::json::Value;

/// Location of a schema, which selects the message for a missing type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Returns the reason why a schema cannot be read as a structural schema; `None` if it can be read.
pub(super) fn obstacle(schema: &Schema, words: &ExtensionNames) -> Option<String> {
    let unsupported = [
        ("id", !schema.id.is_empty()),
        ("schema", !schema.dialect.is_empty()),
        ("$ref", schema.reference.as_ref().is_some_and(|reference| !reference.is_empty())),
        ("patternProperties", !schema.pattern_properties.is_empty()),
        ("dependencies", !schema.dependencies.is_empty()),
        ("additionalItems", schema.additional_items.is_some()),
        ("definitions", !schema.definitions.is_empty()),
    ];
    if let Some((name, _)) = unsupported.iter().find(|(_, is_set)| *is_set) {
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    let below = |inner: &Schema| obstacle(inner, words);
    let logic = [&schema.all_of, &schema.any_of, &schema.one_of].into_iter().flatten();
    let additional = match &schema.additional_properties {
        Some(Additional::Schema(inner)) => Some(&**inner),
        _ => None,
    };
    if let Some(found) = schema.not.as_deref().into_iter().chain(logic).chain(additional).find_map(below) {
        return Some(found);
    }
    if schema.preserve_unknown_fields == Some(false) {
        let name = &words.preserve_unknown_fields;
        return Some(format!("internal error: '{name}' must be true or undefined"));
    }
    let item = match &schema.items {
        Some(Items::Each(items)) if !items.is_empty() => {
            return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
        }
        Some(Items::All(item)) => Some(&**item),
        _ => None,
    };
    item.into_iter().chain(schema.properties.values().map(|property| &**property)).find_map(below)
}

/// Returns the errors of a schema that can be read as a structural schema.
pub(super) fn errors(schema: &Schema, path: &FieldPath, words: &ExtensionNames) -> Vec<FieldError> {
    let mut check = Structural { words, errors: Vec::new() };
    check.invariants(schema, Level::Root, path);
    check.complete(schema, Some(schema), path, path);
    check.errors.sort_by_cached_key(ToString::to_string);
    check.errors
}

/// Returns the schema of the elements of a list, if there is one.
pub(super) fn item(schema: &Schema) -> Option<&Schema> {
    match &schema.items {
        Some(Items::All(item)) => Some(item),
        _ => None,
    }
}

struct Structural<'w> {
    words: &'w ExtensionNames,
    errors: Vec<FieldError>,
}

impl Structural<'_> {
    fn required(&mut self, path: FieldPath, detail: impl Into<String>) {
        self.errors.push(FieldError::required(path, detail));
    }

    fn invalid(&mut self, path: FieldPath, value: impl Into<Value>, detail: impl Into<String>) {
        self.errors.push(FieldError::invalid(path, &value.into(), detail));
    }

    fn forbidden(&mut self, path: FieldPath, detail: &str) {
        self.errors.push(FieldError::forbidden(path, detail));
    }

    fn invariants(&mut self, schema: &Schema, level: Level, path: &FieldPath) {
        if is_enough(&self.errors) {
            return;
        }
        let items = path.child("items");
        match item(schema) {
            Some(item) => self.invariants(item, Level::Item, &items),
            None if schema.kind == "array" => self.required(items, "must be specified"),
            None => {}
        }
        let properties = path.child("properties");
        for (name, property) in &schema.properties {
            self.invariants(property, Level::Field, &properties.key(name));
        }
        if let Some(additional) = &schema.additional_properties {
            let place = path.child("additionalProperties");
            if level == Level::Root {
                self.forbidden(place, "must not be used at the root");
            }
            if let Additional::Schema(inner) = additional {
                self.invariants(inner, Level::Field, &place);
            }
        }
        self.extensions(schema, path);
        let is_pattern = |any_of: &[Schema]| is_int_or_string(any_of);
        let first_is_pattern = schema.all_of.first().is_some_and(|first| is_pattern(&first.any_of));
        self.restrictions(schema, is_pattern(&schema.any_of), first_is_pattern, path);
        self.kind(schema, level, path);
        self.members_of_objects(schema, level, path);
    }

    fn extensions(&mut self, schema: &Schema, path: &FieldPath) {
        if !schema.int_or_string {
            return;
        }
        let detail = format!("must be false if {} is true", self.words.int_or_string);
        if schema.preserves_unknown_fields() {
            self.invalid(path.child(&self.words.preserve_unknown_fields), true, detail.as_str());
        }
        if schema.embedded_resource {
            self.invalid(path.child(&self.words.embedded_resource), true, detail);
        }
    }

    fn kind(&mut self, schema: &Schema, level: Level, path: &FieldPath) {
        let place = path.child("type");
        if schema.embedded_resource && schema.kind != "object" {
            let detail = format!("must be object if {} is true", self.words.embedded_resource);
            if schema.kind.is_empty() {
                self.required(place, detail);
            } else {
                self.invalid(place, schema.kind.as_str(), detail);
            }
        } else if schema.kind.is_empty() && !schema.int_or_string && !schema.preserves_unknown_fields() {
            let detail = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            self.required(place, detail);
        }
        if schema.embedded_resource && schema.additional_properties.is_some() {
            let detail = format!("must not be used if {} is set", self.words.embedded_resource);
            self.forbidden(path.child("additionalProperties"), &detail);
        }
        if level == Level::Root && !schema.kind.is_empty() && schema.kind != "object" {
            self.invalid(place, schema.kind.as_str(), "must be object at the root");
        }
    }

    /// Checks the schemas of kind, version and metadata of an object, which the server itself declares.
    fn members_of_objects(&mut self, schema: &Schema, level: Level, path: &FieldPath) {
        let properties = path.child("properties");
        let is_object = level == Level::Root || schema.embedded_resource;
        for name in ["kind", "apiVersion"] {
            if let Some(property) = schema.properties.get(name)
                && is_object
                && property.kind != "string"
            {
                let place = properties.key(name);
                self.invalid(place.child("type"), property.kind.as_str(), "must be string");
            }
        }
        if let Some(metadata) = schema.properties.get("metadata") {
            let place = properties.key("metadata");
            if is_object && metadata.kind != "object" {
                self.invalid(place.child("type"), metadata.kind.as_str(), "must be object");
            }
            if level == Level::Root && !restricts_names_only(metadata) {
                let detail = "must not specify anything other than name and generateName, but metadata is implicitly \
                              specified";
                self.forbidden(place, detail);
            }
        }
        if schema.embedded_resource && !schema.preserves_unknown_fields() && schema.properties.is_empty() {
            let detail = format!(
                "must not be empty if {} is true without {}",
                self.words.embedded_resource, self.words.preserve_unknown_fields
            );
            self.required(properties, detail);
        }
    }

    /// Checks the logical keywords and the pattern of a schema. `skip_any_of` and `skip_first` skip the
    /// alternatives that declare an integer or a string.
    fn restrictions(&mut self, schema: &Schema, skip_any_of: bool, skip_first: bool, path: &FieldPath) {
        let lists = [("anyOf", &schema.any_of), ("allOf", &schema.all_of), ("oneOf", &schema.one_of)];
        for (name, list) in lists {
            if name == "anyOf" && skip_any_of {
                continue;
            }
            let place = path.child(name);
            for (at, inner) in list.iter().enumerate() {
                self.nested(inner, name == "allOf" && at == 0 && skip_first, &place.index(at));
            }
        }
        if let Some(inner) = &schema.not {
            self.nested(inner, false, &path.child("not"));
        }
        if !schema.pattern.is_empty()
            && let Err(error) = cel::library::regex::check(&schema.pattern)
        {
            let detail = format!("must be a valid regular expression, but isn't: {}", error.message);
            self.invalid(path.child("pattern"), schema.pattern.as_str(), detail);
        }
    }

    /// Checks a schema inside a logical keyword. Such a schema may only restrict values.
    fn nested(&mut self, schema: &Schema, skip_any_of: bool, path: &FieldPath) {
        if is_enough(&self.errors) {
            return;
        }
        self.restrictions(schema, skip_any_of, false, path);
        if let Some(item) = item(schema) {
            self.nested(item, false, &path.child("items"));
        }
        let properties = path.child("properties");
        for (name, property) in &schema.properties {
            self.nested(property, false, &properties.key(name));
        }
        const EMPTY: &str = "must be empty to be structural";
        const UNDEFINED: &str = "must be undefined to be structural";
        const FALSE: &str = "must be false to be structural";
        let words = self.words;
        for (name, is_set, detail) in [
            ("type", !schema.kind.is_empty(), EMPTY),
            ("additionalProperties", schema.additional_properties.is_some(), UNDEFINED),
            ("default", schema.default.is_some(), UNDEFINED),
            ("title", !schema.title.is_empty(), EMPTY),
            ("description", !schema.description.is_empty(), EMPTY),
            ("nullable", schema.nullable, FALSE),
            ("externalDocs", schema.external_docs.is_some(), UNDEFINED),
            (&words.preserve_unknown_fields, schema.preserves_unknown_fields(), FALSE),
            (&words.embedded_resource, schema.embedded_resource, FALSE),
            (&words.int_or_string, schema.int_or_string, FALSE),
            (&words.list_map_keys, !schema.list_map_keys.is_empty(), EMPTY),
            (&words.list_type, schema.list_type.is_some(), UNDEFINED),
            (&words.map_type, schema.map_type.is_some(), UNDEFINED),
            (&words.validations, !schema.validations.is_empty(), EMPTY),
        ] {
            if is_set {
                self.forbidden(path.child(name), detail);
            }
        }
        if schema.properties.contains_key("metadata") {
            self.forbidden(properties.key("metadata"), "must not be specified in a nested context");
        }
    }

    /// Checks that `stated` declares every field that the logical keywords of `schema` contain. `stated` is
    /// the schema outside of logical keywords.
    fn complete(&mut self, schema: &Schema, stated: Option<&Schema>, place: &FieldPath, inside: &FieldPath) {
        if let Some(inner) = &schema.not {
            self.nested_complete(inner, stated, place, &inside.child("not"));
        }
        let lists = [("allOf", &schema.all_of), ("anyOf", &schema.any_of), ("oneOf", &schema.one_of)];
        for (name, list) in lists {
            let inside = inside.child(name);
            for (at, inner) in list.iter().enumerate() {
                self.nested_complete(inner, stated, place, &inside.index(at));
            }
        }
    }

    fn nested_complete(
        &mut self,
        schema: &Schema,
        stated: Option<&Schema>,
        place: &FieldPath,
        inside: &FieldPath,
    ) {
        if is_enough(&self.errors) {
            return;
        }
        let Some(stated) = stated else {
            return self.required(*place, format!("because it is defined in {inside}"));
        };
        self.complete(schema, Some(stated), place, inside);
        if let Some(inner) = item(schema) {
            self.nested_complete(inner, item(stated), &place.child("items"), &inside.child("items"));
        }
        let (place, inside) = (place.child("properties"), inside.child("properties"));
        for (name, property) in &schema.properties {
            let stated = stated.properties.get(name).map(|stated| &**stated);
            self.nested_complete(property, stated, &place.key(name), &inside.key(name));
        }
    }
}

/// Returns whether the alternatives only declare that a value is an integer or a string.
fn is_int_or_string(any_of: &[Schema]) -> bool {
    let kind = |kind: &str| Schema { kind: kind.to_owned(), ..Schema::default() };
    matches!(any_of, [a, b] if *a == kind("integer") && *b == kind("string"))
}

/// Returns whether the schema of metadata only restricts the names.
fn restricts_names_only(metadata: &Schema) -> bool {
    let names_only = metadata.properties.keys().all(|name| matches!(name.as_str(), "name" | "generateName"));
    let rest = Schema { properties: [].into(), ..metadata.clone() };
    let rest = Schema { kind: String::new(), default: None, example: None, ..rest };
    names_only && rest == Schema::default()
}
