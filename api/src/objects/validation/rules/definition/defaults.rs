//! Defaults of a schema: each is a value that the schema itself accepts, without fields that it does not have.

use crate::objects::custom::resource;
use crate::objects::custom::rules::OBJECT_COST_MAX;
use crate::objects::custom::schema::{Additional, Items, Schema};
use crate::objects::validation::embedded;
use crate::objects::validation::metadata::is_enough;
use crate::objects::validation::path::Path;
use crate::values::field::FieldError;
use crate::values::json::Value;

/// The errors of all defaults in a structural schema. Unknown fields are accepted if `keeps_unknown`.
pub(super) fn errors(schema: &Schema, path: &Path, keeps_unknown: bool) -> Vec<FieldError> {
    let mut check = Defaults { keeps_unknown, budget: OBJECT_COST_MAX, errors: Vec::new() };
    check.node(schema, path, true);
    check.errors
}

/// Whether no default in a structural schema has unknown fields.
pub(super) fn are_pruned(schema: &Schema) -> bool {
    let own =
        schema.default.as_ref().is_none_or(|value| is_pruned(value, Some(schema), schema.embedded_resource));
    let item = super::structural::item(schema);
    own && item.into_iter().chain(schema.properties.values().map(|property| &**property)).all(are_pruned)
}

struct Defaults {
    keeps_unknown: bool,
    /// What the rules of all defaults may still cost.
    budget: u64,
    errors: Vec<FieldError>,
}

impl Defaults {
    /// The values of maps are not visited: defaults in them are no defaults of anything.
    fn node(&mut self, schema: &Schema, path: &Path, is_root: bool) {
        if is_enough(&self.errors) || self.budget == 0 {
            return;
        }
        if let Some(value) = &schema.default {
            self.value(schema, value, &path.child("default"), is_root);
        }
        if let Some(Items::All(item)) = &schema.items {
            self.node(item, &path.child("items"), false);
        }
        let properties = path.child("properties");
        for (name, property) in &schema.properties {
            self.node(property, &properties.key(name), false);
        }
    }

    fn value(&mut self, schema: &Schema, value: &Value, place: &Path, is_root: bool) {
        // The root is an object, too.
        let root = is_root.then(|| Schema { embedded_resource: true, ..schema.clone() });
        let schema = root.as_ref().unwrap_or(schema);
        if !self.keeps_unknown && !is_pruned(value, Some(schema), schema.embedded_resource) {
            self.errors.push(FieldError::invalid(place, value, "must not have unknown fields"));
        }
        let is_object = schema.embedded_resource;
        let value = (&*place.to_string(), value);
        let found = resource::value_errors(schema, is_object, value, embedded::check, &mut self.budget);
        // A schema of which no type can be made has errors of its own.
        self.errors.extend(found.unwrap_or_default());
    }
}

/// Whether pruning leaves a value as it is; `None` is the schema of what is not specified.
fn is_pruned(value: &Value, schema: Option<&Schema>, is_object: bool) -> bool {
    let keeps = schema.is_some_and(Schema::preserves_unknown_fields);
    match value {
        Value::Object(members) => members.iter().all(|(name, member)| {
            if is_object && matches!(name, "kind" | "apiVersion" | "metadata") {
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

/// The schema of a member, if it is specified; nothing inside if all that is known is that it may be there.
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
    use crate::testing::object;

    #[test]
    fn a_default_has_no_unknown_fields() {
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
}
