//! Checks the defaults of a schema. The schema must accept each default, and a default must have no unknown
//! fields. A default at or below kind, version or metadata of an object must be valid there; unknown fields
//! are ignored in this case.

use crate::custom::resource;
use crate::custom::rules::OBJECT_COST_MAX;
use crate::custom::schema::{Additional, Items, Schema};
use crate::validation::embedded;
use crate::validation::path::FieldPath;
use types::schema::conform::conform;
use types::schema::kind::Kind;
use types::schema::make::Struct;
use values::field::FieldError;
use values::field::is_enough;
use values::json::{Object, Value};

/// Returns the errors of all defaults in a structural schema. `keeps_unknown` tells whether unknown fields
/// are accepted.
pub(super) fn errors(schema: &Schema, path: &FieldPath, keeps_unknown: bool) -> Vec<FieldError> {
    let mut check = Defaults { keeps_unknown, budget: OBJECT_COST_MAX, errors: Vec::new() };
    check.node(schema, path, true, None);
    check.errors
}

/// Returns whether the defaults in a structural schema have no unknown fields.
pub(super) fn are_pruned(schema: &Schema) -> bool {
    let own =
        schema.default.as_ref().is_none_or(|value| is_pruned(value, Some(schema), schema.embedded_resource));
    let item = super::structural::item(schema);
    own && item.into_iter().chain(schema.properties.values().map(|property| &**property)).all(are_pruned)
}

struct Defaults {
    keeps_unknown: bool,
    /// Remaining cost budget for the rules of all defaults.
    budget: u64,
    errors: Vec<FieldError>,
}

impl Defaults {
    /// Visits a node. The schemas of map values are not visited, because defaults in these schemas are not used.
    fn node(
        &mut self,
        schema: &Schema,
        path: &FieldPath,
        is_root: bool,
        location: Option<&MetadataLocation>,
    ) {
        if is_enough(&self.errors) || self.budget == 0 {
            return;
        }
        let is_object = is_root || schema.embedded_resource;
        let location = location.filter(|_| !is_object);
        if let Some(value) = &schema.default {
            let place = path.child("default");
            match location {
                Some(location) => self.check_metadata(schema, value, &place, location),
                None => self.value(schema, value, &place, is_root),
            }
        }
        if let Some(Items::All(item)) = &schema.items {
            self.node(item, &path.child("items"), false, location.map(MetadataLocation::Element).as_ref());
        }
        let properties = path.child("properties");
        for (name, property) in &schema.properties {
            let below = match location {
                None if is_object && is_of_all(name) => Some(MetadataLocation::Member(None, name)),
                None => None,
                within => Some(MetadataLocation::Member(within, name)),
            };
            self.node(property, &properties.key(name), false, below.as_ref());
        }
    }

    /// Checks a default at or below kind, version or metadata of an object.
    fn check_metadata(
        &mut self,
        schema: &Schema,
        value: &Value,
        place: &FieldPath,
        location: &MetadataLocation,
    ) {
        match fault(location.around(value.clone())) {
            Some(fault) => {
                let detail = format!("must result in valid metadata: {fault}");
                self.errors.push(FieldError::invalid(place, value, detail));
            }
            None => self.check(schema, value, place),
        }
    }

    fn value(&mut self, schema: &Schema, value: &Value, place: &FieldPath, is_root: bool) {
        // The root is a Kubernetes object as well.
        let root = is_root.then(|| Schema { embedded_resource: true, ..schema.clone() });
        let schema = root.as_ref().unwrap_or(schema);
        if !self.keeps_unknown && !is_pruned(value, Some(schema), schema.embedded_resource) {
            self.errors.push(FieldError::invalid(place, value, "must not have unknown fields"));
        }
        self.check(schema, value, place);
    }

    /// Checks a default against its schema.
    fn check(&mut self, schema: &Schema, value: &Value, place: &FieldPath) {
        let is_object = schema.embedded_resource;
        let place = place.to_string();
        let budget = &mut self.budget;
        let found = resource::value_errors(schema, is_object, &place, value, embedded::check, budget);
        // If the schema cannot be converted to a type, other rules report the errors of the schema.
        self.errors.extend(found.unwrap_or_default());
    }
}

/// Returns whether `name` is the name of the kind, the version or the metadata.
fn is_of_all(name: &str) -> bool {
    matches!(name, "kind" | "apiVersion" | "metadata")
}

/// Location of a value at or below kind, version or metadata of an object.
enum MetadataLocation<'p> {
    /// A member of another value; without another value, a member of the object.
    Member(Option<&'p MetadataLocation<'p>>, &'p str),
    /// An element of a list.
    Element(&'p MetadataLocation<'p>),
}

impl MetadataLocation<'_> {
    /// Returns a minimal object with `value` at this location.
    fn around(&self, value: Value) -> Object {
        let member = |name: &str, value| Object::from_iter([(name.to_owned().into(), value)]);
        match self {
            MetadataLocation::Element(list) => list.around(Value::Array(vec![value])),
            MetadataLocation::Member(Some(parent), name) => parent.around(Value::Object(member(name, value))),
            MetadataLocation::Member(None, name) => {
                let known = [("apiVersion", "validation/v1"), ("kind", "Validation")];
                let others = known.into_iter().filter(|(other, _)| other != name);
                let others = others.map(|(name, text)| (name.into(), text.into()));
                others.chain([((*name).to_owned().into(), value)]).collect()
            }
        }
    }
}

/// Returns the fault in the kind, version or metadata of an object.
fn fault(object: Object) -> Option<String> {
    let Kind::Message(message) = Struct::new("").embedded().node().ok()?.element().kind else { return None };
    let mut errors = Vec::new();
    match conform(&message, object.into()) {
        Ok(read) => embedded::check("", &read.object, &mut errors),
        Err(error) => return Some(error.message),
    }
    go::join_errors(&errors)
}

/// Returns whether pruning leaves a value unchanged. `schema` is `None` if the schema does not describe the
/// value.
fn is_pruned(value: &Value, schema: Option<&Schema>, is_object: bool) -> bool {
    let keeps = schema.is_some_and(Schema::preserves_unknown_fields);
    match value {
        Value::Object(members) => members.iter().all(|(name, member)| {
            if is_object && is_of_all(name) {
                return true;
            }
            match schema.and_then(|schema| member_schema(schema, name)) {
                None => keeps,
                Some(None) => keeps || is_pruned(member, None, false),
                Some(Some(inner)) => is_pruned(member, Some(inner), inner.embedded_resource),
            }
        }),
        Value::Array(items) => {
            let inner = schema.and_then(super::structural::item);
            let is_object = inner.is_some_and(|inner| inner.embedded_resource);
            items.iter().all(|item| (keeps && inner.is_none()) || is_pruned(item, inner, is_object))
        }
        _ => true,
    }
}

/// Returns the schema of a member; `None` if the member is unknown. Returns `Some(None)` if the member is
/// permitted but not described.
fn member_schema<'s>(schema: &'s Schema, name: &str) -> Option<Option<&'s Schema>> {
    match (schema.properties.get(name), &schema.additional_properties) {
        (Some(property), _) => Some(Some(property)),
        (None, Some(Additional::Schema(inner))) => Some(Some(inner)),
        (None, Some(Additional::Allowed(_))) => Some(None),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn a_default_with_unknown_fields_is_refused() {
        for (schema, want) in [
            (r#"{"default":{"a":1},"properties":{"a":{}}}"#, true),
            (r#"{"default":{"a":1,"b":2},"properties":{"a":{}}}"#, false),
            (
                r#"{"default":{"a":1,"b":2},"properties":{"a":{}},"x-kubernetes-preserve-unknown-fields":true}"#,
                true,
            ),
            (
                r#"{"default":{"a":{"b":2}},"properties":{"a":{}},"x-kubernetes-preserve-unknown-fields":true}"#,
                false,
            ),
            (r#"{"default":{"a":{"b":2}},"additionalProperties":{"properties":{"b":{}}}}"#, true),
            (r#"{"default":{"a":{"b":2}},"additionalProperties":true}"#, false),
            (r#"{"default":[{"a":1}],"items":{"properties":{"a":{}}}}"#, true),
            (r#"{"default":[{"b":1}],"items":{"properties":{"a":{}}}}"#, false),
            (r#"{"default":{"kind":"a"},"properties":{"a":{}}}"#, false),
            (r#"{"default":{"kind":"a"},"properties":{"a":{}},"x-kubernetes-embedded-resource":true}"#, true),
            (r#"{"properties":{"p":{"items":{"default":{"b":1}}}}}"#, false),
            (r#"{"additionalProperties":{"default":{"b":1}}}"#, true),
        ] {
            assert_eq!(are_pruned(&Schema::read(&object(schema).into())), want, "{schema}");
        }
    }

    #[test]
    fn defaults_for_type_and_metadata_of_embedded_objects_must_be_valid() {
        const BELOW: &str = "properties[a].properties";
        let embedded = |properties: &str| {
            format!(
                r#"{{"properties":{{"a":{{"type":"object","x-kubernetes-embedded-resource":true,
                "properties":{{{properties}}}}}}}}}"#
            )
        };
        for (schema, want) in [
            (
                embedded(
                    r#""metadata":{"type":"object","properties":{"name":{"type":"string","default":"a/b"}}}"#,
                ),
                r#"[metadata].properties[name].default: Invalid value: "a/b": must result in valid metadata: metadata.name: Invalid value: "a/b": may not contain '/'"#,
            ),
            (
                embedded(
                    r#""metadata":{"type":"object","properties":{"finalizers":{"type":"array","items":{"type":"string","default":"a b"}}}}"#,
                ),
                r#"[metadata].properties[finalizers].items.default: Invalid value: "a b": must result in valid metadata: metadata.finalizers"#,
            ),
            (embedded(r#""metadata":{"type":"object","default":{"foo":"bar"}}"#), ""),
            (
                embedded(r#""metadata":{"type":"object","default":{"labels":{"a":1}}}"#),
                r#"[metadata].default: Invalid value: {"labels":{"a":1}}: must result in valid metadata: metadata: Invalid value"#,
            ),
            (
                embedded(r#""kind":{"type":"string","default":"a b"}"#),
                r#"[kind].default: Invalid value: "a b": must result in valid metadata: kind: Invalid value: "a b": may have mixed case"#,
            ),
            (
                embedded(r#""apiVersion":{"type":"string","default":"a/b/c"}"#),
                r#"[apiVersion].default: Invalid value: "a/b/c": must result in valid metadata: apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
            ),
            (embedded(r#""apiVersion":{"type":"string","default":"v1"}"#), ""),
            (
                embedded(r#""other":{"type":"object","default":{"foo":"bar"}}"#),
                r#"[other].default: Invalid value: {"foo":"bar"}: must not have unknown fields"#,
            ),
            (r#"{"properties":{"metadata":{"type":"object","default":{"name":"x"}}}}"#.to_owned(), ""),
        ] {
            let found = errors(&Schema::read(&object(&schema).into()), &FieldPath::ROOT, false);
            let found = found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            match want {
                "" => assert_eq!(found, "", "{schema}"),
                want => assert!(found.starts_with(&format!("{BELOW}{want}")), "{schema}: {found}"),
            }
        }
    }
}
