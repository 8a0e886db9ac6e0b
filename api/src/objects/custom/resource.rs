//! From a custom schema to a type: the fields, kinds and constraints of its objects.
//!
//! ```text
//! Schema ─┬─ type, properties, items, list and map types ─► Struct, Node ─► ResourceMaker
//!         └─ bounds, formats, allOf, anyOf, oneOf, not    ─► Limits of the same node
//! ```
//!
//! The schema is structural: a definition with another one is not served. What structural schemas forbid is passed over
//! here. Formats that are not enforced are no constraint.

use super::format;
use super::rules;
use super::schema::{Additional, Items, Rule, Schema};
use super::validate::{self, InnerCheck};
use crate::types::schema::limits::{self, Limits, Schemas};
use crate::types::schema::make::{MakeError, Node, Struct};
use crate::types::schema::pattern::Pattern;
use crate::types::schema::table::{Element, Kind, Text, Unknown};
use crate::values::field::FieldError;
use crate::values::json::{self, Value};

/// The type of the objects of `kind` that a schema describes.
///
/// # Errors
/// [`MakeError`] for a schema that is not structural.
pub fn object(kind: &str, schema: &Schema) -> Result<Struct, MakeError> {
    let metadata = schema.properties.get("metadata").and_then(|metadata| restrictions(metadata));
    let object = structure(schema, kind, Keeps::at(schema, Keeps::default()))?;
    Ok(match metadata {
        Some(metadata) => object.metadata(metadata),
        None => object,
    })
}

/// What is wrong with a single value at `place`, such as a default, where `schema` says what it looks like. Its rules are
/// evaluated for a new value and for one that stays, and their cost is taken from `budget`; `is_object` is set for the objects of
/// the type.
///
/// # Errors
/// [`MakeError`] for a schema that is not structural.
pub fn value_errors(
    schema: &Schema,
    is_object: bool,
    (place, value): (&str, &Value),
    inner: InnerCheck,
    budget: &mut u64,
) -> Result<Vec<FieldError>, MakeError> {
    let Element { kind, empty, limits } = node(schema, Keeps::default())?.element();
    let limits = limits.as_deref();
    let errors = validate::value(&kind, empty, limits, value, inner);
    if !errors.is_empty() {
        return Ok(errors.into_iter().map(|error| validate::placed(place, ".", error)).collect());
    }
    for old in [Some(value), None] {
        let Some(verdict) = rules::judge_value(schema, is_object, (&kind, limits), value, old, *budget)
        else {
            break;
        };
        *budget = budget.saturating_sub(verdict.cost.unwrap_or(u64::MAX));
        if !verdict.errors.is_empty() {
            // Errors of schemas have a dot before the first index, errors of rules have none.
            let separator = |error: &FieldError| if error.path.starts_with('[') { "" } else { "." };
            return Ok(verdict
                .errors
                .into_iter()
                .map(|error| validate::placed(place, separator(&error), error))
                .collect());
        }
    }
    Ok(Vec::new())
}

/// Which structs keep unknown fields.
#[derive(Clone, Copy, Default)]
struct Keeps {
    /// That of a node, and those in the elements of a list.
    here: bool,
    /// One around the node.
    above: bool,
}

impl Keeps {
    /// At a node that a parent passes this on to.
    fn at(schema: &Schema, passed: Keeps) -> Keeps {
        Keeps { here: passed.here || schema.preserves_unknown_fields(), above: passed.above }
    }

    /// Passed on to the properties of a struct and to the values of a map.
    fn below(self) -> Keeps {
        Keeps { here: false, above: self.here || self.above }
    }

    fn unknown(self) -> Unknown {
        match self {
            Keeps { here: true, .. } => Unknown::Preserve,
            Keeps { above: true, .. } => Unknown::PruneApplied,
            Keeps { .. } => Unknown::Prune,
        }
    }
}

/// The struct of a node.
fn structure(schema: &Schema, name: &str, keeps: Keeps) -> Result<Struct, MakeError> {
    // What the parts are for is published from the author's text alone.
    let mut made = Struct::new(name.to_owned());
    if let Some(limits) = node_limits(schema) {
        made = made.limits(limits);
    }
    for (name, property) in &schema.properties {
        let node = node(property, keeps.below())?;
        made = if schema.required.contains(name) {
            made.required(name.clone(), node)
        } else {
            made.field(name.clone(), node)
        };
    }
    made = made.unknown(keeps.unknown());
    if schema.embedded_resource {
        if let Some(metadata) = schema.properties.get("metadata").and_then(|metadata| restrictions(metadata))
        {
            made = made.metadata(metadata);
        }
        made = made.embedded();
    }
    if schema.map_type.as_deref() == Some("atomic") {
        made = made.atomic();
    }
    Ok(made)
}

/// A value below the object.
fn node(schema: &Schema, keeps: Keeps) -> Result<Node, MakeError> {
    let keeps = Keeps::at(schema, keeps);
    let mut has_own_limits = false;
    let mut node = match &*schema.kind {
        _ if schema.int_or_string => Node::new(Kind::IntOrString),
        "boolean" => Node::new(Kind::Bool),
        "integer" => Node::new(Kind::Int64),
        "number" => Node::new(Kind::Double),
        "string" => Node::new(Kind::String),
        "array" => list(schema, keeps)?,
        _ => match &schema.additional_properties {
            Some(Additional::Schema(value)) if schema.properties.is_empty() => {
                map(schema, self::node(value, keeps.below())?)
            }
            Some(Additional::Allowed(true)) if schema.properties.is_empty() && !keeps.here => {
                // Any value is allowed, but nothing is said of its parts, so they are dropped.
                let limits = Limits { any_type: true, ..Limits::default() };
                map(schema, Struct::new("").limits(limits).node()?)
            }
            _ if schema.kind.is_empty() && schema.properties.is_empty() && !schema.embedded_resource => {
                Node::new(Kind::Json)
            }
            _ => {
                has_own_limits = true;
                structure(schema, "", keeps)?.node()?
            }
        },
    };
    if let Some(limits) = node_limits(schema).filter(|_| !has_own_limits) {
        node = node.limits(limits);
    }
    if let Some(default) = &schema.default {
        node = node.default(text_of(default));
    }
    if schema.nullable {
        node = node.nullable();
    }
    Ok(node)
}

fn list(schema: &Schema, keeps: Keeps) -> Result<Node, MakeError> {
    let item = match &schema.items {
        Some(Items::All(item)) => node(item, keeps)?,
        _ => Node::new(Kind::Json),
    };
    Ok(match schema.list_type.as_deref() {
        Some("set") => Node::set(item),
        Some("map") => Node::keyed(item, schema.list_map_keys.iter().cloned()),
        _ => Node::list(item),
    })
}

fn map(schema: &Schema, value: Node) -> Node {
    if schema.map_type.as_deref() == Some("atomic") { Node::atomic_map(value) } else { Node::map(value) }
}

/// What a node asks of its values beyond their type; `None` for nothing.
fn node_limits(schema: &Schema) -> Option<Limits> {
    let any_type = schema.kind.is_empty() && !schema.int_or_string;
    let schemas = combined(schema);
    if is_plain(schema) && !any_type && schemas.is_none() {
        return None;
    }
    Some(Limits { any_type, schemas: schemas.map(Box::new), ..bounds(schema) })
}

/// What is said of a value that gets its type elsewhere; `None` for nothing.
fn restrictions(schema: &Schema) -> Option<Limits> {
    let limits = nested(schema);
    (limits.schemas.is_some() || !is_plain(schema)).then_some(limits)
}

/// The constraints of a schema inside `allOf`, `anyOf`, `oneOf` or `not`.
fn nested(schema: &Schema) -> Limits {
    let mut schemas = combined(schema).unwrap_or_default();
    schemas.kind = schema.kind.clone().into();
    schemas.properties =
        schema.properties.iter().map(|(name, part)| (name.clone().into(), nested(part))).collect();
    if let Some(Items::All(item)) = &schema.items {
        schemas.items = Some(nested(item));
    }
    let says_nothing = schemas.kind.is_empty()
        && schemas.properties.is_empty()
        && schemas.items.is_none()
        && combined(schema).is_none();
    Limits {
        schemas: (!says_nothing).then(|| Box::new(schemas)),
        default: schema.default.as_ref().map(|default| text_of(default).into()),
        ..bounds(schema)
    }
}

/// The schemas beside a schema.
fn combined(schema: &Schema) -> Option<Schemas> {
    let all = |schemas: &[Schema]| schemas.iter().map(nested).collect::<Vec<_>>();
    let combined = Schemas {
        all_of: all(&schema.all_of),
        any_of: all(&schema.any_of),
        one_of: all(&schema.one_of),
        not: schema.not.as_deref().map(nested),
        ..Schemas::default()
    };
    let is_some = !combined.all_of.is_empty()
        || !combined.any_of.is_empty()
        || !combined.one_of.is_empty()
        || combined.not.is_some();
    is_some.then_some(combined)
}

/// Whether a schema has no keyword that [`bounds`] reads.
fn is_plain(schema: &Schema) -> bool {
    let has_bound = schema.minimum.is_some() || schema.maximum.is_some() || schema.multiple_of.is_some();
    let counts = [
        schema.min_length,
        schema.max_length,
        schema.min_items,
        schema.max_items,
        schema.min_properties,
        schema.max_properties,
    ];
    !has_bound
        && counts.iter().all(Option::is_none)
        && schema.pattern.is_empty()
        && !format::is_enforced(&schema.kind, &schema.format)
        && !schema.unique_items
        && schema.required.is_empty()
        && schema.enumeration.is_empty()
        && schema.validations.is_empty()
}

/// The constraints that a schema states itself.
fn bounds(schema: &Schema) -> Limits {
    // A negative bound is no bound from below, and one from above that nothing satisfies.
    let count = |count: Option<i64>| count.map(|count| u64::try_from(count).unwrap_or(0));
    let enforced = format::is_enforced(&schema.kind, &schema.format);
    Limits {
        min: schema.minimum.map(|bound| (bound, schema.exclusive_minimum)),
        max: schema.maximum.map(|bound| (bound, schema.exclusive_maximum)),
        multiple_of: schema.multiple_of,
        length: (count(schema.min_length), count(schema.max_length)),
        pattern: (!schema.pattern.is_empty()).then(|| Pattern::new(schema.pattern.clone())),
        format: if enforced { schema.format.clone().into() } else { Text::default() },
        items: (count(schema.min_items), count(schema.max_items)),
        members: (count(schema.min_properties), count(schema.max_properties)),
        unique: schema.unique_items,
        required: schema.required.iter().cloned().map(Into::into).collect(),
        enumeration: schema.enumeration.clone(),
        rules: schema.validations.iter().map(rule).collect::<Vec<_>>().into(),
        ..Limits::default()
    }
}

fn rule(rule: &Rule) -> limits::Rule {
    limits::Rule {
        rule: rule.rule.clone().into(),
        message: rule.message.clone().into(),
        message_expression: rule.message_expression.clone().into(),
        reason: rule.reason.clone().unwrap_or_default().into(),
        field_path: rule.field_path.clone().into(),
        optional_old_self: rule.optional_old_self.unwrap_or_default(),
    }
}

fn text_of(value: &Value) -> String {
    let mut out = Vec::new();
    json::write(value, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
#[path = "resource_test.rs"]
mod tests;
