//! Checks of custom objects that no schema keyword expresses. Elements of sets and keyed lists must be
//! distinct, and embedded objects must have a kind and valid metadata.

use hashbrown::HashMap;

use super::inner_check::InnerCheck;
use super::lookup::MemberLookup;
use super::path::ValuePath;
use types::schema::table::{Kind, ListType, Message, Slice, Text};
use values::field::{FieldError, is_enough};
use values::json::{self, Object, Value};

/// Function that checks one value of a kind.
type Check<'c> = &'c dyn Fn(&Kind, &Value, &ValuePath, &mut Vec<FieldError>);

/// Appends errors for repeated elements of sets and repeated keys of keyed lists.
pub(super) fn repeated(message: &Message, object: &Object, errors: &mut Vec<FieldError>) {
    walk(&repeated_here, message, object, &ValuePath::Root, errors);
}

/// Returns whether any set or keyed list has repeated elements.
pub(super) fn has_repeated(message: &Message, object: &Object) -> bool {
    let mut errors = Vec::new();
    repeated(message, object, &mut errors);
    !errors.is_empty()
}

/// Appends the errors that `check` finds in embedded objects.
pub(super) fn inner(message: &Message, object: &Object, check: InnerCheck, errors: &mut Vec<FieldError>) {
    let here = |kind: &Kind, value: &Value, path: &ValuePath, errors: &mut Vec<FieldError>| {
        if let (Kind::Message(message), Value::Object(object)) = (kind, value)
            && message.embedded
        {
            check(&format!("{path:#}"), object, errors);
        }
    };
    walk(&here, message, object, &ValuePath::Root, errors);
}

fn walk(check: Check, message: &Message, object: &Object, path: &ValuePath, errors: &mut Vec<FieldError>) {
    for (name, value) in object.iter() {
        if let Some(field) = message.field(name) {
            walk_value(check, &field.kind, value, &path.child(name), errors);
        }
    }
}

fn walk_value(check: Check, kind: &Kind, value: &Value, path: &ValuePath, errors: &mut Vec<FieldError>) {
    if is_enough(errors) {
        return;
    }
    check(kind, value, path, errors);
    match (kind, value) {
        (Kind::Message(message), Value::Object(object)) if message.custom => {
            walk(check, message, object, path, errors);
        }
        (Kind::List(list), Value::Array(items)) if has_parts(&list.item.kind) => {
            for (at, item) in items.iter().enumerate() {
                walk_value(check, &list.item.kind, item, &path.index(at), errors);
            }
        }
        (Kind::Map(map), Value::Object(members)) if has_parts(&map.value.kind) => {
            for (key, value) in members.iter() {
                walk_value(check, &map.value.kind, value, &path.key(key), errors);
            }
        }
        _ => {}
    }
}

fn has_parts(kind: &Kind) -> bool {
    matches!(kind, Kind::Message(_) | Kind::List(_) | Kind::Map(_))
}

fn repeated_here(kind: &Kind, value: &Value, path: &ValuePath, errors: &mut Vec<FieldError>) {
    let (Kind::List(list), Value::Array(items)) = (kind, value) else { return };
    match &list.merge {
        ListType::Atomic => {}
        ListType::Set => refuse_repeated(items, path, errors, Value::clone),
        ListType::Map(keys) => repeated_keys(keys, items, path, errors),
    }
}

fn repeated_keys(keys: &Slice<Text>, items: &[Value], path: &ValuePath, errors: &mut Vec<FieldError>) {
    let is_element = |item: &Value| matches!(item, Value::Object(_) | Value::Null);
    if let Some((at, item)) = items.iter().enumerate().find(|(_, item)| !is_element(item)) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(format!("{:#}", path.index(at)), item, detail));
        return;
    }
    let keys_of = |item: &Value| -> Value {
        let members = item.as_object().map(|members| MemberLookup::new(members, keys.len()));
        let member = |key: &Text| members.as_ref()?.get(key).cloned();
        let given = keys.iter().filter_map(|key| Some((key.clone(), member(key)?)));
        let mut members: Vec<_> = given.collect();
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        members.into_iter().collect::<Object>().into()
    };
    refuse_repeated(items, path, errors, keys_of);
}

/// Reports the second occurrence of each element. `part` returns the part of an element that identifies the
/// element and that the error contains.
fn refuse_repeated(
    items: &[Value],
    path: &ValuePath,
    errors: &mut Vec<FieldError>,
    part: impl Fn(&Value) -> Value,
) {
    if items.len() < 2 {
        return;
    }
    let mut times: HashMap<Vec<u8>, usize> = HashMap::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        if is_enough(errors) {
            return;
        }
        let part = part(item);
        let times = times.entry(identity(&part)).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(format!("{:#}", path.index(at)), &part));
        }
    }
}

/// Returns the identity of a value: its JSON text with sorted members.
fn identity(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    json::write_sorted(value, &mut out);
    out
}
