//! Converts a custom schema to a type: the fields, kinds and constraints of the objects.
//!
//! ```text
//! Schema ─┬─ type, properties, items, list and map types ─► Struct, Node ─► ResourceMaker
//!         └─ bounds, formats, allOf, anyOf, oneOf, not    ─► Limits of the same node
//! ```
//!
//! The schema must be structural; the server does not serve other definitions. This module ignores keywords
//! that structural schemas forbid. A format that is not enforced is not a constraint.
//!
//! The maker visits each node of the schema a fixed number of times, and `Maker` counts the visits. The limit
//! of visits is far above the need of the largest definition that a client can send. If this module has a
//! defect, the limit makes one type fail instead of blocking a thread forever.

use std::collections::HashSet;

use super::format;
use super::inner_check::InnerCheck;
use super::rules::{self, value::ValueType};
use super::schema::{Additional, Items, Schema, SchemaRule};
use super::validate;
use types::schema::limits::{self, Limits, Schemas};
use types::schema::make::{Struct, ValueBuilder};
use types::schema::make_error::MakeError;
use types::schema::pattern::Pattern;
use types::schema::table::{Element, Kind, Text, Unknown};
use values::field::FieldError;
use values::json::{self, Value};

/// Returns the type that a schema describes for the objects of `kind`.
///
/// # Errors
/// [`MakeError`] if the schema is not structural.
pub fn object(kind: &str, schema: &Schema) -> Result<Struct, MakeError> {
    Maker::default().object(kind, schema)
}

/// Returns the errors of a single value, such as a default, that `schema` describes. `place` is the path of
/// the value. Rules are evaluated twice, for an unchanged value and for a new value. The cost of the rules is
/// subtracted from `budget`. `is_object` is true if the value is an object with a kind and metadata.
///
/// # Errors
/// [`MakeError`] if the schema is not structural.
pub fn value_errors(
    schema: &Schema,
    is_object: bool,
    place: &str,
    value: &Value,
    inner: InnerCheck,
    budget: &mut u64,
) -> Result<Vec<FieldError>, MakeError> {
    let Element { kind, empty, limits } = Maker::default().node(schema, Keeps::default())?.element();
    let limits = limits.as_deref();
    let errors = validate::value(&kind, empty, limits, value, inner);
    if !errors.is_empty() {
        return Ok(errors.into_iter().map(|error| validate::placed(place, ".", error)).collect());
    }
    for old in [Some(value), None] {
        let Some(verdict) =
            rules::evaluate_value(schema, is_object, ValueType::for_kind(&kind, limits), value, old, *budget)
        else {
            break;
        };
        *budget = budget.saturating_sub(verdict.cost.unwrap_or(u64::MAX));
        if !verdict.errors.is_empty() {
            // Paths of schema errors have a dot before the first index; paths of rule errors do not.
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

/// Whether a node keeps unknown fields.
#[derive(Clone, Copy, Default)]
struct Keeps {
    /// Whether the node, or the elements of a list at the node, keep unknown fields.
    here: bool,
    /// Whether a node above keeps unknown fields.
    above: bool,
}

impl Keeps {
    /// Returns the value for a node with `schema`. `passed` is the value that its parent passes down.
    fn at(schema: &Schema, passed: Keeps) -> Keeps {
        Keeps { here: passed.here || schema.preserves_unknown_fields(), above: passed.above }
    }

    /// Returns the value that a node passes to the properties of a struct and to the values of a map.
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

/// Maximum number of node visits for one type. A definition of 3 MiB has at most half a million nodes, and
/// each node is visited fewer than eight times.
const VISITS_MAX: usize = 4_000_000;

/// Builder of one type.
#[derive(Default)]
struct Maker {
    /// Number of visits of nodes so far.
    visits: usize,
}

impl Maker {
    fn visit(&mut self) -> Result<(), MakeError> {
        self.visits += 1;
        if self.visits > VISITS_MAX { Err(MakeError::TooLarge) } else { Ok(()) }
    }

    fn object(&mut self, kind: &str, schema: &Schema) -> Result<Struct, MakeError> {
        let metadata = self.metadata(schema)?;
        let object = self.structure(schema, kind, Keeps::at(schema, Keeps::default()))?;
        Ok(match metadata {
            Some(metadata) => object.metadata(metadata),
            None => object,
        })
    }

    /// Returns the constraints that the schema of an object declares for its metadata.
    fn metadata(&mut self, schema: &Schema) -> Result<Option<Limits>, MakeError> {
        let Some(metadata) = schema.properties.get("metadata") else { return Ok(None) };
        let limits = self.nested(metadata)?;
        Ok((limits.schemas.is_some() || !is_plain(metadata)).then_some(limits))
    }

    /// Returns the struct type of a node.
    fn structure(&mut self, schema: &Schema, name: &str, keeps: Keeps) -> Result<Struct, MakeError> {
        self.visit()?;
        // OpenAPI publishes descriptions from the text of the definition, so the type does not contain them.
        let mut structure = Struct::new(name.to_owned());
        if let Some(limits) = self.node_limits(schema)? {
            structure = structure.limits(limits);
        }
        let required: HashSet<&str> = schema.required.iter().map(String::as_str).collect();
        for (name, property) in &schema.properties {
            let node = self.node(property, keeps.below())?;
            structure = if required.contains(name.as_str()) {
                structure.required(name.clone(), node)
            } else {
                structure.field(name.clone(), node)
            };
        }
        structure = structure.unknown(keeps.unknown());
        if schema.embedded_resource {
            if let Some(metadata) = self.metadata(schema)? {
                structure = structure.metadata(metadata);
            }
            structure = structure.embedded();
        }
        if schema.map_type.as_deref() == Some("atomic") {
            structure = structure.atomic();
        }
        Ok(structure)
    }

    /// Returns the type of the values of a node.
    fn node(&mut self, schema: &Schema, keeps: Keeps) -> Result<ValueBuilder, MakeError> {
        self.visit()?;
        let keeps = Keeps::at(schema, keeps);
        let mut has_own_limits = false;
        let mut node = match &*schema.kind {
            _ if schema.int_or_string => ValueBuilder::new(Kind::IntOrString),
            "boolean" => ValueBuilder::new(Kind::Bool),
            "integer" => ValueBuilder::new(Kind::Int64),
            "number" => ValueBuilder::new(Kind::Double),
            "string" => ValueBuilder::new(Kind::String),
            "array" => self.list(schema, keeps)?,
            _ => match &schema.additional_properties {
                Some(Additional::Schema(value)) if schema.properties.is_empty() => {
                    map(schema, self.node(value, keeps.below())?)
                }
                Some(Additional::Allowed(true)) if schema.properties.is_empty() && !keeps.here => {
                    // The values may have any members, but the schema does not declare any member, so all members are
                    // dropped.
                    let limits = Limits { any_type: true, ..Limits::default() };
                    map(schema, Struct::new("").limits(limits).node()?)
                }
                _ if schema.kind.is_empty() && schema.properties.is_empty() && !schema.embedded_resource => {
                    ValueBuilder::new(Kind::Json)
                }
                _ => {
                    has_own_limits = true;
                    self.structure(schema, "", keeps)?.node()?
                }
            },
        };
        if !has_own_limits && let Some(limits) = self.node_limits(schema)? {
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

    fn list(&mut self, schema: &Schema, keeps: Keeps) -> Result<ValueBuilder, MakeError> {
        let item = match &schema.items {
            Some(Items::All(item)) => self.node(item, keeps)?,
            _ => ValueBuilder::new(Kind::Json),
        };
        Ok(match schema.list_type.as_deref() {
            Some("set") => ValueBuilder::set(item),
            Some("map") => ValueBuilder::keyed(item, schema.list_map_keys.iter().cloned()),
            _ => ValueBuilder::list(item),
        })
    }

    /// Returns the constraints of a node except the type of its values; `None` if there are no such
    /// constraints.
    fn node_limits(&mut self, schema: &Schema) -> Result<Option<Limits>, MakeError> {
        let any_type = schema.kind.is_empty() && !schema.int_or_string;
        let schemas = self.combined(schema)?;
        if is_plain(schema) && !any_type && schemas.is_none() {
            return Ok(None);
        }
        Ok(Some(Limits { any_type, schemas: schemas.map(Box::new), ..bounds(schema) }))
    }

    /// Returns the constraints of a schema in `allOf`, `anyOf`, `oneOf` or `not`, or of the schema of
    /// metadata.
    fn nested(&mut self, schema: &Schema) -> Result<Limits, MakeError> {
        self.visit()?;
        let combined = self.combined(schema)?;
        let has_logic = combined.is_some();
        let mut schemas = combined.unwrap_or_default();
        schemas.kind = schema.kind.clone().into();
        for (name, part) in &schema.properties {
            schemas.properties.push((name.clone().into(), self.nested(part)?));
        }
        if let Some(Items::All(item)) = &schema.items {
            schemas.items = Some(self.nested(item)?);
        }
        let is_empty =
            !has_logic && schemas.kind.is_empty() && schemas.properties.is_empty() && schemas.items.is_none();
        Ok(Limits {
            schemas: (!is_empty).then(|| Box::new(schemas)),
            default: schema.default.as_ref().map(|default| text_of(default).into()),
            ..bounds(schema)
        })
    }

    /// Returns the schemas in `allOf`, `anyOf`, `oneOf` and `not`; `None` if the schema has none of these
    /// keywords.
    fn combined(&mut self, schema: &Schema) -> Result<Option<Schemas>, MakeError> {
        if schema.all_of.is_empty()
            && schema.any_of.is_empty()
            && schema.one_of.is_empty()
            && schema.not.is_none()
        {
            return Ok(None);
        }
        let mut all = |schemas: &[Schema]| {
            schemas.iter().map(|schema| self.nested(schema)).collect::<Result<Vec<_>, _>>()
        };
        let (all_of, any_of, one_of) = (all(&schema.all_of)?, all(&schema.any_of)?, all(&schema.one_of)?);
        let not = schema.not.as_deref().map(|schema| self.nested(schema)).transpose()?;
        Ok(Some(Schemas { all_of, any_of, one_of, not, ..Schemas::default() }))
    }
}

fn map(schema: &Schema, value: ValueBuilder) -> ValueBuilder {
    if schema.map_type.as_deref() == Some("atomic") {
        ValueBuilder::atomic_map(value)
    } else {
        ValueBuilder::map(value)
    }
}

/// Returns whether a schema has no keyword that [`bounds`] reads.
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

/// Returns the constraints in the keywords of the schema itself.
fn bounds(schema: &Schema) -> Limits {
    // A negative lower bound has no effect, and no value satisfies a negative upper bound.
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

fn rule(rule: &SchemaRule) -> limits::ValidationRule {
    limits::ValidationRule {
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
