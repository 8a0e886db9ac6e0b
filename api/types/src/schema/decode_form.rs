//! The canonical form of a tree: which fields are always written, what for, and which values are the same as none.

use super::table::{Element, Empty, Field, Kind, Message};
use values::json::{Object, Value};

/// What an absent value that is always written is written as, and what `null` means inside a list or map.
pub fn zero(kind: &Kind) -> Value {
    match kind {
        Kind::Bool => Value::Bool(false),
        Kind::Int32 | Kind::Int64 | Kind::Double | Kind::IntOrString => Value::Int(0),
        Kind::String => Value::String(String::new()),
        Kind::Duration => Value::from("0s"),
        Kind::Quantity => Value::from("0"),
        Kind::Message(message) => Value::Object(zero_object(message)),
        Kind::Bytes | Kind::Time | Kind::MicroTime | Kind::RawExtension | Kind::FieldsV1 => Value::Null,
        Kind::List(_) | Kind::Map(_) => Value::Null,
        Kind::Json | Kind::SchemaOrArray(_) | Kind::SchemaOrBool(_) | Kind::SchemaOrStrings(_) => Value::Null,
    }
}

/// What an absent field that is always written is written as.
pub fn zero_field(field: &Field) -> Value {
    if field.pointer { Value::Null } else { zero(&field.kind) }
}

/// What `null` means as a value of a map; `None` where it counts as not given.
pub(crate) fn zero_member(element: &Element) -> Option<Value> {
    let is_value = element.empty != Empty::Kept || has_default(element);
    is_value.then(|| zero_element(element))
}

/// Whether `null` becomes something else when defaults are filled in.
pub fn has_default(element: &Element) -> bool {
    element.empty == Empty::Kept && element.limits.as_deref().is_some_and(|limits| limits.default.is_some())
}

/// What `null` means as an element of a list. Elements of built-in types that are bytes are stored as no bytes.
pub(crate) fn zero_element(element: &Element) -> Value {
    match (element.empty, &element.kind) {
        (Empty::Absent, Kind::Bytes) => Value::String(String::new()),
        (Empty::Absent, kind) => zero(kind),
        _ => Value::Null,
    }
}

/// An object of which nothing was given. Structs held by value cannot contain themselves, so this ends.
pub fn zero_object(message: &Message) -> Object {
    let written = message.fields.iter().filter(|field| is_always_written(field));
    written.map(|field| (field.name.clone(), zero_field(field))).collect()
}

/// Whether JSON has the field even when nothing was given.
///
/// `omit_empty` has no effect on structs held by value, also where they are written as text: a zero time is `null`,
/// a zero quantity `"0"`. The one exception is the creation time in metadata
/// (docs/api/encodings.md#json-and-yaml-output).
pub fn is_always_written(field: &Field) -> bool {
    let struct_by_value = !field.pointer
        && match &field.kind {
            Kind::Message(_) | Kind::MicroTime | Kind::Duration | Kind::Quantity => true,
            Kind::IntOrString | Kind::RawExtension => true,
            Kind::Time => field.name != "creationTimestamp",
            _ => false,
        };
    !field.omit_empty || struct_by_value
}

/// Makes the member at a dotted path what it is when nothing was given for it. One that the type does not know is removed.
pub fn reset(message: &Message, object: &mut Object, path: &str) {
    let (name, below) = path.split_once('.').unwrap_or((path, ""));
    let field = message.field(name);
    if !below.is_empty() {
        let part = object.get_mut(name).and_then(Value::as_object_mut);
        if let (Some(Kind::Message(message)), Some(part)) = (field.map(|field| &field.kind), part) {
            reset(message, part, below);
        }
        return;
    }
    match field.filter(|field| is_always_written(field)) {
        Some(field) => object.insert(field.name.clone(), zero_field(field)),
        None => object.remove(name),
    };
}

/// Whether this value is the same as none: the field is left out, or written as [`zero_field`] says.
pub fn is_left_out(field: &Field, value: &Value) -> bool {
    match field.empty {
        Empty::Absent => {}
        Empty::Kept => return value.is_null(),
        Empty::Nullable => return false,
    }
    let is_container = || matches!(field.kind, Kind::List(_) | Kind::Map(_));
    // Most values are not zero, and settle the question before the field is looked at.
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty() && is_container(),
        Value::Object(members) => is_container() && members.is_empty(),
        Value::String(text) if text.is_empty() => {
            (!field.pointer || matches!(field.kind, Kind::Bytes)) && !is_always_written(field)
        }
        Value::Bool(false) | Value::Int(0) | Value::Float(0.0) => !field.pointer && !is_always_written(field),
        Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Number(_) => false,
    }
}

/// What a field holds that was given this value, `None` for `null`; `None` where that is the same as nothing.
#[inline]
pub fn given(field: &Field, value: Option<Value>) -> Option<Value> {
    let value = match (value, field.empty) {
        (None, Empty::Absent) => return None,
        (None, Empty::Kept | Empty::Nullable) => Value::Null,
        (Some(value), _) => value,
    };
    (!is_lost(field, &value)).then_some(value)
}

/// Whether an object that was sent with this value is as if it was sent without the field.
///
/// An empty list in a field that is always written is stored as `null`, but is kept until then: its writer owns the field,
/// and errors and plugins show it.
pub fn is_lost(field: &Field, value: &Value) -> bool {
    let is_kept =
        |field: &Field| matches!(field.kind, Kind::List(_) | Kind::Map(_)) && is_always_written(field);
    is_left_out(field, value) && (value.is_null() || !is_kept(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;
    use values::naming::KUBERNETES;
    use values::testing::object;

    #[test]
    fn a_member_that_is_reset_is_as_if_nothing_was_given_for_it() {
        let given =
            r#"{"spec":{"type":"NodePort"},"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}"#;
        let empty = r#"{"spec":{"type":"NodePort"},"status":{"loadBalancer":{}}}"#;
        let service = builtin::message(&KUBERNETES, "api.core.v1.Service").unwrap();
        for (path, want) in [
            ("status", empty),
            ("status.loadBalancer", empty),
            ("status.loadBalancer.ingress", empty),
            ("spec.type", r#"{"spec":{},"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}"#),
            ("spec.ports.name", given),
            ("other", given),
        ] {
            let mut reset_one = object(given);
            reset(service, &mut reset_one, path);
            assert_eq!(reset_one, object(want), "{path}");
        }
        let mut unknown = object(r#"{"spec":{},"other":1}"#);
        reset(service, &mut unknown, "other");
        assert_eq!(unknown, object(r#"{"spec":{}}"#));
    }

    #[test]
    fn empty_lists_are_kept_until_they_are_stored_where_the_field_is_always_written() {
        let field =
            |kind: &str, name: &str| builtin::message(&KUBERNETES, kind).unwrap().field(name).unwrap();
        for (kind, name, is_kept) in [
            ("api.rbac.v1.Role", "rules", true),
            ("api.discovery.v1.EndpointSlice", "endpoints", true),
            ("api.discovery.v1.EndpointSlice", "ports", true),
            ("api.core.v1.LimitRangeSpec", "limits", true),
            ("api.core.v1.ServiceSpec", "ports", false),
            ("api.core.v1.ConfigMap", "data", false),
        ] {
            let field = field(kind, name);
            let empty = match field.kind {
                Kind::Map(_) => Value::Object(Object::new()),
                _ => Value::Array(Vec::new()),
            };
            assert_eq!(given(field, Some(empty.clone())), is_kept.then_some(empty.clone()), "{kind} {name}");
            assert!(is_left_out(field, &empty), "{kind} {name}");
            assert_eq!(given(field, None), None, "{kind} {name}");
        }
    }
}
