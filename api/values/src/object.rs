//! Access to the fields that objects of every kind have, and to dotted paths in the rest of an object.

use crate::json::{Object, Value};

/// Returns the field `name` of `metadata` as text; empty if it is absent.
pub fn meta<'o>(object: &'o Object, name: &str) -> &'o str {
    object.get("metadata").map_or("", |metadata| metadata.str_at(&[name]))
}

/// Fields of `metadata` that the server sets. The state that a user gave an object does not contain these fields.
pub const SERVER_METADATA: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Returns `metadata` and creates it if it is absent.
pub fn metadata_mut(object: &mut Object) -> &mut Object {
    object.object_entry("metadata")
}

/// Sets the field `name` of `metadata`, or removes it if `value` is `None`.
pub fn set_meta(object: &mut Object, name: &'static str, value: Option<Value>) {
    let metadata = metadata_mut(object);
    match value {
        Some(value) => {
            metadata.insert(name, value);
        }
        None => {
            metadata.remove(name);
        }
    }
}

/// Returns the finalizers of an object.
pub fn finalizers(object: &Object) -> Vec<&str> {
    let list = object.get("metadata").and_then(|metadata| metadata.get("finalizers"));
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Replaces the finalizers of an object. An empty list removes the field.
pub fn set_finalizers(object: &mut Object, finalizers: Vec<Value>) {
    let value = (!finalizers.is_empty()).then_some(Value::Array(finalizers));
    set_meta(object, "finalizers", value);
}

/// Returns the value at a dotted path.
pub fn at<'o>(object: &'o Object, path: &str) -> Option<&'o Value> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let value = object.get(first)?;
    if rest.is_empty() { Some(value) } else { at(value.as_object()?, rest) }
}

/// Sets `path` in `target` to its value in `source`. Removes `path` from `target` if `path` is absent in
/// `source`.
pub fn copy_path(target: &mut Object, source: &Object, path: &str) {
    match path.split_once('.') {
        None => match source.members().iter().find(|(name, _)| name == path) {
            Some((name, value)) => {
                target.insert(name.clone(), value.clone());
            }
            None => {
                target.remove(path);
            }
        },
        Some((first, rest)) => {
            let empty = Object::new();
            let below = source.get(first).and_then(Value::as_object);
            if below.is_some() || target.get(first).is_some_and(|value| value.as_object().is_some()) {
                copy_path(target.object_entry(first.to_owned()), below.unwrap_or(&empty), rest);
            }
        }
    }
}

/// Returns whether two objects are equal at a dotted path. Absent, `null` and empty containers are equal, as
/// in the semantic comparison of the reference server.
pub fn same_at(a: &Object, b: &Object, path: &str) -> bool {
    a.shares(path, b) || same(at(a, path), at(b, path))
}

/// Returns whether two values are equal in the sense of [`same_at`].
pub fn same_values(a: &Value, b: &Value) -> bool {
    same(Some(a), Some(b))
}

/// Returns whether two objects are equal in the sense of [`same_at`], except for managed fields and
/// resourceVersion.
pub fn same_but_for_managed_fields(a: &Object, b: &Object) -> bool {
    same_but_for_metadata(a, b, &["managedFields", "resourceVersion"])
}

/// Returns whether two objects differ at most in fields that garbage collection writes and in fields that the
/// server derives.
pub fn same_but_for_collection(a: &Object, b: &Object) -> bool {
    const WRITTEN: [&str; 5] =
        ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation"];
    same_but_for_metadata(a, b, &WRITTEN)
}

/// Returns whether two objects are equal in the sense of [`same_at`], except for the `ignored` fields of
/// `metadata`.
pub fn same_but_for_metadata(a: &Object, b: &Object, ignored: &[&str]) -> bool {
    static EMPTY: Object = Object::new();
    fn metadata(object: &Object) -> &Object {
        object.get("metadata").and_then(Value::as_object).unwrap_or(&EMPTY)
    }
    same_members(metadata(a), metadata(b), |name| !ignored.contains(&name))
        && same_members(a, b, |name| name != "metadata")
}

/// Returns whether two objects are equal in the members that `is_compared` selects.
fn same_members(a: &Object, b: &Object, is_compared: impl Fn(&str) -> bool) -> bool {
    a.iter().all(|(name, value)| !is_compared(name) || same(Some(value), b.get(name)))
        && b.iter().all(|(name, value)| !is_compared(name) || a.contains(name) || is_empty(value))
}

fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    if let (Some(Value::Object(a)), Some(Value::Object(b))) = (a, b)
        && a.is_one_with(b)
    {
        return true;
    }
    match (a.filter(|value| !is_empty(value)), b.filter(|value| !is_empty(value))) {
        (None, None) => true,
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            // Fast path without searches: usually both objects have the same members in the same order.
            if a.len() == b.len() && a.iter().zip(b.iter()).all(|((a, _), (b, _))| a == b) {
                return a.iter().zip(b.iter()).all(|((_, a), (_, b))| same(Some(a), Some(b)));
            }
            a.iter().all(|(name, value)| same(Some(value), b.get(name)))
                && b.iter().all(|(name, value)| a.contains(name) || is_empty(value))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(Some(a), Some(b)))
        }
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    #[test]
    fn copy_path_copies_a_value_or_removes_it_if_it_is_absent() {
        for (target, source, path, want) in [
            (r#"{"a":1}"#, r#"{"a":2}"#, "a", r#"{"a":2}"#),
            (r#"{"a":1}"#, "{}", "a", "{}"),
            (r#"{"m":{"l":1,"x":2}}"#, r#"{"m":{"l":9}}"#, "m.l", r#"{"m":{"l":9,"x":2}}"#),
            (r#"{"m":{"l":1}}"#, "{}", "m.l", r#"{"m":{}}"#),
            ("{}", r#"{"m":{"l":1}}"#, "m.l", r#"{"m":{"l":1}}"#),
            ("{}", "{}", "m.l", "{}"),
        ] {
            let mut got = object(target);
            copy_path(&mut got, &object(source), path);
            assert_eq!(got, object(want), "{target} {path} from {source}");
        }
    }

    #[test]
    fn same_at_treats_absent_and_empty_values_as_equal() {
        for (a, b, same) in [
            (r#"{"s":{}}"#, "{}", true),
            (r#"{"s":{"l":[],"x":1}}"#, r#"{"s":{"x":1}}"#, true),
            (r#"{"s":{"x":1}}"#, r#"{"s":{"x":2}}"#, false),
            (r#"{"s":{"x":1,"y":2}}"#, r#"{"s":{"x":1}}"#, false),
            (r#"{"s":[1,{}]}"#, r#"{"s":[1,{}]}"#, true),
        ] {
            assert_eq!(same_at(&object(a), &object(b), "s"), same, "{a} {b}");
        }
    }
}
