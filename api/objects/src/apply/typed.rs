//! The part of the schema that field ownership needs: types of values, and identities of list elements.
//!
//! An [`OwnershipType`] is a view of the schema tables: a struct with its fields, a map, a list with its
//! merge behavior, a scalar, or a value without a schema. The type of a value without a schema is deduced
//! from the value: maps are granular and lists are atomic. A granular struct, map or list is owned in parts;
//! an atomic value is owned as a whole. A struct without declared fields is a map of values without a schema.
//! Source: docs/api/apply.md#field-sets.

use std::borrow::Cow;

use crate::custom::lookup::MemberLookup;
use types::schema::table::{Field, Kind, ListType, Message, Slice, Text, Unknown};
use values::cancellation;
use values::field::{Element, FieldSet, KeyScalar};
use values::json::{self, Value};

/// The type of a value for field ownership.
#[derive(Clone, Copy, Debug)]
pub enum OwnershipType<'s> {
    /// A scalar, which is owned as a whole.
    Scalar(Primitive),
    /// A struct with named fields.
    Struct {
        /// Table of the declared fields.
        message: &'s Message,
        /// Whether the struct is owned as a whole.
        atomic: bool,
    },
    /// A map with any names and one type of values.
    Map {
        /// Type of the map's values.
        value: &'s Kind,
        /// Whether the map is owned as a whole.
        atomic: bool,
    },
    /// A list with elements of one type.
    List {
        /// Type of the list's elements.
        item: &'s Kind,
        /// Merge behavior of the list.
        list: &'s ListType,
    },
    /// A value without a schema.
    Deduced,
}

/// Class of scalars, by the values that it accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Primitive {
    /// Accepts numbers only.
    Numeric,
    /// Accepts strings only.
    Text,
    /// Accepts booleans only.
    Boolean,
    /// Accepts any scalar, for example for times and quantities.
    Any,
    /// Accepts any value, including objects and lists: JSON whose structure the schema does not describe.
    Whole,
}

/// Kind of values without a schema.
const ANY: &Kind = &Kind::Json;

impl<'s> OwnershipType<'s> {
    /// Returns the type of an object.
    pub fn of_message(message: &'s Message) -> Self {
        OwnershipType::of_struct(message, message.atomic)
    }

    #[inline]
    fn of_struct(message: &'s Message, atomic: bool) -> Self {
        if message.fields.is_empty() {
            return OwnershipType::Map { value: ANY, atomic };
        }
        OwnershipType::Struct { message, atomic }
    }

    /// Returns the type of the value of a field.
    #[inline]
    pub fn of_field(field: &'s Field) -> Self {
        match &field.kind {
            // The declaration of the field takes precedence over the declaration of its struct.
            Kind::Message(message) => OwnershipType::of_struct(message, field.atomic),
            kind => OwnershipType::of_kind(kind),
        }
    }

    /// Returns the type of a value of this kind, such as an element of a list or map.
    pub fn of_kind(kind: &'s Kind) -> Self {
        match kind {
            Kind::Bool => OwnershipType::Scalar(Primitive::Boolean),
            Kind::Int32 | Kind::Int64 | Kind::Double => OwnershipType::Scalar(Primitive::Numeric),
            Kind::String | Kind::Bytes | Kind::Duration => OwnershipType::Scalar(Primitive::Text),
            Kind::Time | Kind::MicroTime | Kind::Quantity => OwnershipType::Scalar(Primitive::Any),
            Kind::RawExtension => OwnershipType::Scalar(Primitive::Whole),
            Kind::Message(message) => OwnershipType::of_message(message),
            Kind::List(list) => OwnershipType::List { item: &list.item.kind, list: &list.merge },
            Kind::Map(map) => OwnershipType::Map { value: &map.value.kind, atomic: map.atomic },
            // The published schema declares no type for these kinds.
            Kind::IntOrString
            | Kind::FieldsV1
            | Kind::Json
            | Kind::SchemaOrArray(_)
            | Kind::SchemaOrBool(_)
            | Kind::SchemaOrStrings(_) => OwnershipType::Deduced,
        }
    }

    /// Returns the type for `value`. If the schema declares no type, deduces the type from `value`.
    pub fn for_value(self, value: &Value) -> Self {
        match (self, value) {
            (OwnershipType::Deduced, Value::Object(_)) => OwnershipType::Map { value: ANY, atomic: false },
            (OwnershipType::Deduced, Value::Array(_)) => {
                OwnershipType::List { item: ANY, list: &ListType::Atomic }
            }
            (OwnershipType::Deduced, Value::Null) => OwnershipType::Deduced,
            (OwnershipType::Deduced, _) => OwnershipType::Scalar(Primitive::Any),
            (known, _) => known,
        }
    }

    /// Returns the type of the value after one step, as far as the schema alone determines it.
    pub fn step(self, element: &Element<'_>) -> Option<Self> {
        match (self, element) {
            (OwnershipType::Struct { message, .. }, Element::Field(name)) => match message.field(name) {
                Some(field) => Some(OwnershipType::of_field(field)),
                None => matches!(message.unknown, Unknown::Preserve | Unknown::PruneApplied)
                    .then_some(OwnershipType::Deduced),
            },
            (OwnershipType::Map { value, .. }, Element::Field(_)) => Some(OwnershipType::of_kind(value)),
            (OwnershipType::List { item, .. }, Element::Key(_) | Element::Value(_)) => {
                Some(OwnershipType::of_kind(item))
            }
            (OwnershipType::Deduced, _) => Some(OwnershipType::Deduced),
            _ => None,
        }
    }

    /// Returns whether `element` is a field that the schema declares.
    pub fn declares(self, element: &Element<'_>) -> bool {
        matches!((self, element), (OwnershipType::Struct { message, .. }, Element::Field(name)) if message.field(name).is_some())
    }
}

/// Reason why a list element has no identity.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum KeyError {
    /// The element is `null`, but keys are needed.
    #[error("associative list with keys may not have a null element")]
    Null,
    /// The element is not an object, but keys are needed.
    #[error("associative list with keys may not have non-map elements")]
    NotAMap,
    /// All keys of the element are absent, and the keys have no defaults.
    #[error(
        "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
        .keys.iter().map(|key| format!("\"{key}\"")).collect::<Vec<_>>().join(" ")
    )]
    NoKey {
        /// Names of the keys.
        keys: Slice<Text>,
    },
    /// The element of a set is an object.
    #[error("associative list without keys has an element that's a map type")]
    SetOfMaps,
    /// The element of a set is a list.
    #[error("not supported: associative list with lists as elements")]
    SetOfLists,
    /// The element of a set is `null`.
    #[error("associative list without keys has an element that's an explicit null")]
    SetOfNulls,
    /// The list is atomic, so its elements have no paths.
    #[error("invalid indexing of non-associative list")]
    Atomic,
}

/// Returns the step that leads to an element of a list. A key that the element lacks has the default value of
/// the schema.
pub fn item_element<'t>(item: &Kind, list: &ListType, value: &'t Value) -> Result<Element<'t>, KeyError> {
    cancellation::step();
    match list {
        ListType::Atomic => Err(KeyError::Atomic),
        ListType::Set => match value {
            Value::Object(_) => Err(KeyError::SetOfMaps),
            Value::Array(_) => Err(KeyError::SetOfLists),
            Value::Null => Err(KeyError::SetOfNulls),
            scalar => Ok(Element::Value(KeyScalar::from_ref(scalar))),
        },
        ListType::Map(keys) => {
            let members = match value {
                Value::Object(members) => members,
                Value::Null => return Err(KeyError::Null),
                _ => return Err(KeyError::NotAMap),
            };
            let mut found = Vec::with_capacity(keys.len());
            let members = MemberLookup::new(members, keys.len());
            for key in &**keys {
                let value = match members.get(key) {
                    Some(value) => Some(KeyScalar::from_ref(value)),
                    None => key_default(item, key),
                };
                if let Some(value) = value {
                    found.push((key.clone(), value));
                }
            }
            if found.is_empty() {
                return Err(KeyError::NoKey { keys: keys.clone() });
            }
            if !found.is_sorted_by(|(a, _), (b, _)| a <= b) {
                found.sort_by(|(a, _), (b, _)| a.cmp(b));
            }
            Ok(Element::Key(found))
        }
    }
}

/// Returns whether two list elements have the same identity; false if either has no identity. Does not
/// allocate a step.
pub fn same_item(item: &Kind, list: &ListType, a: &Value, b: &Value) -> bool {
    cancellation::step();
    match list {
        ListType::Atomic => false,
        ListType::Set => match (a, b) {
            (Value::Object(_) | Value::Array(_) | Value::Null, _) => false,
            (a, b) => KeyScalar::from_ref(a) == KeyScalar::from_ref(b),
        },
        ListType::Map(keys) => {
            let (Value::Object(a), Value::Object(b)) = (a, b) else { return false };
            let (a, b) = (MemberLookup::new(a, keys.len()), MemberLookup::new(b, keys.len()));
            let mut has_key = false;
            keys.iter().all(|key| {
                let same = match (a.get(key), b.get(key)) {
                    (None, None) => return true, // both elements have the default of the key, if any
                    (Some(a), Some(b)) => KeyScalar::from_ref(a) == KeyScalar::from_ref(b),
                    (Some(given), None) | (None, Some(given)) => {
                        key_default(item, key).is_some_and(|default| default == KeyScalar::from_ref(given))
                    }
                };
                has_key = true;
                same
            }) && (has_key || keys.iter().any(|key| key_default(item, key).is_some()))
        }
    }
}

fn key_default(item: &Kind, key: &str) -> Option<KeyScalar<'static>> {
    let Kind::Message(message) = item else { return None };
    let text = message.field(key)?.default.as_ref()?;
    match json::parse(text.as_bytes()).ok()? {
        Value::String(text) => Some(KeyScalar::Text(Cow::Owned(text))),
        Value::Int(n) => Some(KeyScalar::Int(n)),
        Value::Bool(value) => Some(KeyScalar::Bool(value)),
        _ => None,
    }
}

/// Returns the part of a field set below `element`, if there is any.
pub fn below<'s, 't>(set: Option<&'s FieldSet<'t>>, element: &Element<'_>) -> Option<&'s FieldSet<'t>> {
    set?.get(element).map(|node| &node.children).filter(|children| !children.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::schema::builtin;
    use values::json::parse;
    use values::naming::KUBERNETES;

    #[test]
    fn list_elements_are_identified_by_the_keys_that_the_list_declares() {
        let item = |name: &str| {
            Kind::Message(builtin::message(&KUBERNETES, &format!("api.core.v1.{name}")).unwrap().into())
        };
        const PORT: ListType =
            ListType::Map(Cow::Borrowed(&[Cow::Borrowed("protocol"), Cow::Borrowed("containerPort")]));
        const OPTIONAL: ListType =
            ListType::Map(Cow::Borrowed(&[Cow::Borrowed("hostIP"), Cow::Borrowed("name")]));
        for (item, list, value, want) in [
            // Keys are sorted by name, and absent keys have their default values.
            (item("ContainerPort"), PORT, r#"{"containerPort":80}"#, r#"[containerPort=80,protocol="TCP"]"#),
            (item("ContainerPort"), OPTIONAL, r#"{"name":"a"}"#, r#"[name="a"]"#),
            (
                item("ContainerPort"),
                OPTIONAL,
                r#"{"hostPort":1}"#,
                r#"associative list with keys has an element that omits all key fields ["hostIP" "name"] (and doesn't have default values for any key fields)"#,
            ),
            (item("ContainerPort"), PORT, "1", "associative list with keys may not have non-map elements"),
            (item("ContainerPort"), PORT, "null", "associative list with keys may not have a null element"),
            (Kind::String, ListType::Set, r#""a""#, r#"[="a"]"#),
            (Kind::Int32, ListType::Set, "3", "[=3]"),
            (
                Kind::String,
                ListType::Set,
                "null",
                "associative list without keys has an element that's an explicit null",
            ),
            (
                Kind::String,
                ListType::Set,
                "{}",
                "associative list without keys has an element that's a map type",
            ),
            (Kind::String, ListType::Set, "[]", "not supported: associative list with lists as elements"),
            (Kind::String, ListType::Atomic, r#""a""#, "invalid indexing of non-associative list"),
        ] {
            let value = parse(value.as_bytes()).unwrap();
            let said =
                item_element(&item, &list, &value).map_or_else(|error| error.to_string(), |e| e.to_string());
            assert_eq!(said, want);
        }
    }
}
