//! Declarations of a schema for the expression language: the types of values and their maximum sizes.
//!
//! Values without a type, preserved unknown fields, and lists and maps of such values are not declared. The
//! schema limits the sizes; otherwise the maximum size of a request does. The sizes determine the estimated
//! cost of a rule.

use std::collections::BTreeMap;

use cel::cost::{SizeEstimate, SizeHints};
use cel::identifier::{escape, is_selectable_word};
use cel::types::Type;

use crate::custom::schema::{Additional, Items, Schema};
use crate::expression::types::Types;
use values::json::Value;

/// Maximum size of a request in bytes.
const REQUEST_BYTES_MAX: i64 = 3 * 1024 * 1024;

/// Name of the type of `self`. The type names of the members and elements of `self` begin with this name.
const SELF_TYPE: &str = "selfType";

/// Minimum size of the JSON text of a value, in bytes.
mod least {
    pub(super) const BOOL: i64 = 4;
    pub(super) const NUMBER: i64 = 1;
    pub(super) const TEXT: i64 = 2;
    pub(super) const CONTAINER: i64 = 2;
    pub(super) const DURATION: i64 = 3;
    pub(super) const DATE: i64 = 12;
    pub(super) const DATE_TIME: i64 = 21;
}

/// Maximum length of strings with a format.
mod longest {
    pub(super) const DURATION: i64 = 32;
    pub(super) const DATE: i64 = 12;
    pub(super) const DATE_TIME: i64 = 32;
}

/// A value that expressions can access.
#[derive(Clone, Debug)]
pub(super) struct Declaration {
    of: Of,
    /// Maximum number of elements, members, characters or bytes.
    size_max: i64,
    /// Minimum size of the JSON text in bytes.
    bytes_min: i64,
}

#[derive(Clone, Debug)]
enum Of {
    Simple(Type),
    List(Box<Declaration>),
    Map(Box<Declaration>),
    /// Declarations of the members by identifier.
    Object(BTreeMap<String, Declaration>),
}

impl Declaration {
    /// Returns the declaration of the values of a schema; `None` if expressions cannot access the values.
    /// `is_object` is true for objects with a kind and metadata.
    pub(super) fn from_schema(schema: &Schema, is_object: bool) -> Option<Declaration> {
        let simple = |of, size_max, bytes_min| Some(Declaration { of: Of::Simple(of), size_max, bytes_min });
        if schema.int_or_string {
            let size = schema.max_length.map_or(REQUEST_BYTES_MAX - 2, characters);
            return simple(Type::Dyn, size, least::NUMBER);
        }
        match &*schema.kind {
            "array" => Declaration::list(schema),
            "object" => Declaration::object(schema, is_object),
            "string" => {
                let bytes = schema.max_length.map_or(REQUEST_BYTES_MAX - 2, |max| max.max(0));
                match &*schema.format {
                    "byte" => simple(Type::Bytes, bytes, least::TEXT),
                    "duration" => simple(Type::Duration, longest::DURATION, least::DURATION),
                    "date" => simple(Type::Timestamp, longest::DATE, least::DATE),
                    "date-time" => simple(Type::Timestamp, longest::DATE_TIME, least::DATE_TIME),
                    _ => simple(Type::String, text_size(schema), least::TEXT),
                }
            }
            "boolean" => simple(Type::Bool, 0, least::BOOL),
            "number" => simple(Type::Double, 0, least::NUMBER),
            "integer" => simple(Type::Int, 0, least::NUMBER),
            _ => None,
        }
    }

    fn list(schema: &Schema) -> Option<Declaration> {
        let Some(Items::All(item)) = &schema.items else { return None };
        let item = Declaration::from_schema(item, item.embedded_resource)?;
        let fitting = (REQUEST_BYTES_MAX - 2) / (item.bytes_min + 1);
        let size_max = schema.max_items.map_or(fitting, |max| max.max(0));
        Some(Declaration { of: Of::List(Box::new(item)), size_max, bytes_min: least::CONTAINER })
    }

    fn object(schema: &Schema, is_object: bool) -> Option<Declaration> {
        if let Some(Additional::Schema(value)) = &schema.additional_properties {
            let value = Declaration::from_schema(value, value.embedded_resource)?;
            let fitting = (REQUEST_BYTES_MAX - 2) / (value.bytes_min + 6);
            let size_max = schema.max_properties.map_or(fitting, |max| max.max(0));
            return Some(Declaration { of: Of::Map(Box::new(value)), size_max, bytes_min: least::CONTAINER });
        }
        let is_object = is_object && !schema.describes_object();
        let mut fields = BTreeMap::new();
        let mut bytes_min = least::CONTAINER;
        for (name, property) in &schema.properties {
            if is_object && matches!(&**name, "kind" | "apiVersion" | "metadata") {
                continue;
            }
            let Some(declared) = Declaration::from_schema(property, property.embedded_resource) else {
                continue;
            };
            if schema.required.contains(name) && property.default.is_none() {
                bytes_min += name.len() as i64 + declared.bytes_min + 4;
            }
            if is_selectable_word(name) {
                fields.insert(name.clone(), declared.clone());
            }
            if let Some(identifier) = escape(name) {
                fields.insert(identifier, declared);
            }
        }
        for name in ["kind", "apiVersion", "metadata"].into_iter().filter(|_| is_object) {
            let member = schema.declared_member(true, name);
            let Some(declared) = member.and_then(|member| Declaration::from_schema(member, false)) else {
                continue;
            };
            if schema.required.iter().any(|required| required == name) {
                bytes_min += name.len() as i64 + declared.bytes_min + 4;
            }
            fields.insert(name.to_owned(), declared);
        }
        Some(Declaration { of: Of::Object(fields), size_max: 0, bytes_min })
    }

    /// Returns the maximum number of values of this declaration in one request.
    pub(super) fn cardinality(&self) -> u64 {
        u64::try_from(REQUEST_BYTES_MAX / (self.bytes_min + 1)).unwrap_or(0)
    }

    /// Returns the type of `self` and the object types that it uses.
    pub(super) fn types(&self) -> (Type, Types) {
        let mut types = Types::default();
        let of = self.name(SELF_TYPE, &mut types);
        (of, types)
    }

    /// Returns the type of this declaration. The name of an object type begins with `name`.
    fn name(&self, name: &str, types: &mut Types) -> Type {
        match &self.of {
            Of::Simple(of) => of.clone(),
            Of::List(item) => Type::list(item.name(&format!("{name}.@idx"), types)),
            Of::Map(value) => Type::map(Type::String, value.name(&format!("{name}.@elem"), types)),
            Of::Object(fields) => {
                let typed: Vec<_> = fields
                    .iter()
                    .map(|(field, declared)| {
                        (field.as_str(), declared.name(&format!("{name}.{field}"), types))
                    })
                    .collect();
                types.declare(name, typed)
            }
        }
    }
}

impl SizeHints for Declaration {
    fn size(&self, path: &[&str]) -> Option<SizeEstimate> {
        let mut declared = self;
        // The first step is skipped, because it is the name of the variable.
        for step in path.get(1..)? {
            declared = match (&declared.of, *step) {
                (Of::List(part), "@items" | "@values") | (Of::Map(part), "@items" | "@values") => part,
                // The estimate does not include the size of keys, although keys can have any length.
                (Of::Map(_), "@keys") => return Some(SizeEstimate { min: 0, max: 0 }),
                (Of::Object(fields), name) => fields.get(name)?,
                _ => return None,
            };
        }
        Some(SizeEstimate { min: 0, max: u64::try_from(declared.size_max).unwrap_or(0) })
    }
}

/// Returns the maximum number of bytes of a string with `count` characters.
fn characters(count: i64) -> i64 {
    count.max(0).saturating_mul(4)
}

fn text_size(schema: &Schema) -> i64 {
    let longest = || schema.enumeration.iter().filter_map(Value::as_str).map(str::len).max().unwrap_or(0);
    match schema.max_length {
        Some(max) => characters(max),
        None if schema.enumeration.is_empty() => REQUEST_BYTES_MAX - 2,
        None => i64::try_from(longest()).unwrap_or(i64::MAX),
    }
}
