//! The canonical form of a tree: which fields are always written, with which value, and which values count as
//! absent.

use super::table::{Element, Empty, Field, Kind, Message};
use values::json::{Object, Value};

/// Returns the value that is written for an absent value of this kind, if the value is always written. `null`
/// inside a list or map also means this value.
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

/// Returns the value that is written for an absent field, if the field is always written.
pub fn zero_field(field: &Field) -> Value {
    if field.pointer { Value::Null } else { zero(&field.kind) }
}

/// Returns the value that `null` means in a map; `None` if the member counts as absent.
pub(crate) fn zero_member(element: &Element) -> Option<Value> {
    let is_value = element.empty != Empty::Kept || has_default(element);
    is_value.then(|| zero_element(element))
}

/// Returns whether defaulting replaces a `null` element.
pub fn has_default(element: &Element) -> bool {
    element.empty == Empty::Kept && element.limits.as_deref().is_some_and(|limits| limits.default.is_some())
}

/// Returns the value that `null` means in a list. In lists of bytes of built-in types, `null` is stored as an
/// empty byte string.
pub(crate) fn zero_element(element: &Element) -> Value {
    match (element.empty, &element.kind) {
        (Empty::Absent, Kind::Bytes) => Value::String(String::new()),
        (Empty::Absent, kind) => zero(kind),
        _ => Value::Null,
    }
}

/// Returns the canonical form of an empty object. A struct cannot contain itself by value, so the recursion
/// ends.
pub fn zero_object(message: &Message) -> Object {
    let written = message.fields.iter().filter(|field| is_always_written(field));
    written.map(|field| (field.name.clone(), zero_field(field))).collect()
}

/// Returns whether the JSON form contains the field even if the object lacks the field.
///
/// `omit_empty` has no effect on a struct that is stored by value, even if the struct is written as text: a
/// zero time is `null`, a zero quantity is `"0"`. The only exception is the creation time in metadata
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

/// Resets the member at a dotted path to the value of an absent field. A member that the type does not
/// declare is removed.
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

/// Returns whether this value counts as absent. An absent field is omitted, or is written with the value of
/// [`zero_field`].
pub fn is_left_out(field: &Field, value: &Value) -> bool {
    match field.empty {
        Empty::Absent => {}
        Empty::Kept => return value.is_null(),
        Empty::Nullable => return false,
    }
    let is_container = || matches!(field.kind, Kind::List(_) | Kind::Map(_));
    // Most values are not zero, and a value that is not zero is present regardless of the field.
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

/// Returns the value of a field that has `value` in the document. A `value` of `None` means `null`. Returns
/// `None` if the field counts as absent.
#[inline]
pub fn present_value(field: &Field, value: Option<Value>) -> Option<Value> {
    let value = match (value, field.empty) {
        (None, Empty::Absent) => return None,
        (None, Empty::Kept | Empty::Nullable) => Value::Null,
        (Some(value), _) => value,
    };
    (!is_lost(field, &value)).then_some(value)
}

/// Returns whether an object with this value is treated like an object without the field.
///
/// An empty list in a field that is always written is stored as `null`. Until the object is stored, the tree contains
/// the empty list: the manager that wrote the list owns the field, and errors and admission plugins show the list.
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
    fn reset_restores_the_value_that_an_omitted_member_has() {
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
    fn an_always_written_list_stays_empty_and_is_omitted_in_the_stored_form() {
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
            assert_eq!(
                present_value(field, Some(empty.clone())),
                is_kept.then_some(empty.clone()),
                "{kind} {name}"
            );
            assert!(is_left_out(field, &empty), "{kind} {name}");
            assert_eq!(present_value(field, None), None, "{kind} {name}");
        }
    }
}
