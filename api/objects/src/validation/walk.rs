//! The schema walk visits every field of an object and checks the declarations of the schema.
//!
//! ```text
//! struct ─► each field in schema order: presence ─► enum ─► format, range, size ─► children ─► union ─► rule
//! ```
//!
//! The rule of a type runs after the checks of its members. A valid object of usual size needs no allocation.
//! The walk skips metadata and status: metadata has its own rules, and writes of the main resource do not
//! change the status. A write through `/status` walks only the status. As in the reference server, this walk
//! omits the checks of presence and enums.

use hashbrown::HashSet;

use super::Validator;
use super::path::FieldPath;
use super::rules;
use super::rules::view::StructView;
use super::scalar_formats;
use types::schema::declared::{Declared, visit};
use types::schema::table::{Check, Field, Kind, Message, Presence, Union, ValueFormat};
use values::cancellation;
use values::field::{FieldError, is_enough};
use values::json::{Object, Value};

/// Checks an object of type `message` except for its metadata and status.
pub(super) fn object(validator: &mut Validator, message: &Message, object: &Object) {
    structure(validator, message, object, &FieldPath::ROOT, true);
}

/// Checks the status of an object for a write through `/status`.
pub(super) fn status(validator: &mut Validator, message: &Message, object: &Object) {
    let kind = message.field("status").map(|field| &field.kind);
    if let (Some(Kind::Message(message)), Some(Value::Object(status))) = (kind, object.get("status")) {
        structure(validator, message, status, &FieldPath::ROOT.child("status"), false);
    }
}

/// Checks a struct below an object.
fn structure(validator: &mut Validator, message: &Message, object: &Object, path: &FieldPath, is_top: bool) {
    if validator.has_enough() {
        return;
    }
    let is_other = |name: &str| is_top && matches!(name, "metadata" | "status");
    let is_status = validator.is_status;
    let surplus = surplus(message, object);
    let mut declared = Declared::new();
    visit(message, declared.collect(message, object), message.demanded(), |field, value| {
        if is_other(&field.name) || surplus.contains(&&*field.name) {
            return;
        }
        match value.filter(|value| !value.is_null()) {
            Some(value) => member(validator, field, value, &path.child(&field.name)),
            None if is_needed(field, is_status) => refuse_absent(validator, field, &path.child(&field.name)),
            None => {}
        }
    });
    if let Some(union) = &message.union {
        one_of(validator, message, union, object, path, &surplus);
    }
    if let Some(rule) = rules::check_of(message) {
        rule(validator, path, StructView::from_object(object));
    }
}

/// Returns the members of a union that are given in addition to the first given member. These members are
/// refused without a check of their content. The result lacks members that the reference server does not
/// refuse.
fn surplus<'m>(message: &'m Message, object: &Object) -> Vec<&'m str> {
    let Some(union) = &message.union else { return Vec::new() };
    let is_member = |(name, value): &(&str, &Value)| {
        let at = || message.position(name.as_bytes()).and_then(|at| u16::try_from(at).ok());
        !value.is_null() && at().is_some_and(|at| union.members.contains(&at))
    };
    if object.iter().filter(is_member).nth(1).is_none() {
        return Vec::new();
    }
    let is_refused =
        |&&at: &&u16| !union.error_names.iter().any(|&(other, name)| other == at && name.is_empty());
    let name = |at: &u16| &*message.fields[usize::from(*at)].name;
    let given = union.members.iter().filter(|at| object.get(name(at)).is_some_and(|value| !value.is_null()));
    given.skip(1).filter(is_refused).map(name).collect()
}

fn is_needed(field: &Field, is_status: bool) -> bool {
    field.is_demanded() && !(is_status && field.presence() == Presence::Published)
}

fn zero_is_absent(field: &Field) -> bool {
    field.presence() == Presence::NotZero
}

fn refuse_absent(validator: &mut Validator, field: &Field, path: &FieldPath) {
    let is_scalar = matches!(field.kind, Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::Double);
    let by_value = matches!(field.kind, Kind::Message(_)) || (is_scalar && !zero_is_absent(field));
    // A struct that is not a pointer is always present and has zero values.
    if field.pointer || !by_value {
        refuse_missing(validator, field, path);
    }
}

fn refuse_missing(validator: &mut Validator, field: &Field, path: &FieldPath) {
    let detail = field.check.map_or("", |check| check.required_detail);
    match field.check.and_then(|check| check.form) {
        Some(form) if field.presence() == Presence::AsEmpty => {
            scalar_formats::check_form(form, path, "", &mut validator.errors);
        }
        _ => validator.errors.push(FieldError::required(path, detail)),
    }
}

/// Checks a member that is present.
fn member(validator: &mut Validator, field: &Field, value: &Value, path: &FieldPath) {
    cancellation::step();
    let is_empty = match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Int(0) => zero_is_absent(field),
        _ => false,
    };
    if is_empty && is_needed(field, validator.is_status) && (!field.pointer || zero_is_absent(field)) {
        return refuse_missing(validator, field, path);
    }
    if !field.enumeration.is_empty() && !validator.is_status {
        closed_set(validator, field, value, path);
    }
    if let Some(check) = field.check {
        demands(validator, check, value, path);
        if check.unseen {
            return;
        }
    }
    below(validator, &field.kind, value, path);
}

/// Checks the parts of a value, such as list elements.
fn below(validator: &mut Validator, kind: &Kind, value: &Value, path: &FieldPath) {
    cancellation::step();
    match (kind, value) {
        (Kind::Message(inner), Value::Object(object)) if !inner.checked_apart => {
            structure(validator, inner, object, path, false);
        }
        (Kind::List(list), Value::Array(items)) if has_parts(&list.item.kind) => {
            for (at, item) in items.iter().enumerate() {
                if validator.has_enough() {
                    return;
                }
                below(validator, &list.item.kind, item, &path.index(at));
            }
        }
        (Kind::Map(map), Value::Object(members)) if has_parts(&map.value.kind) => {
            for (key, value) in members.iter() {
                if validator.has_enough() {
                    return;
                }
                below(validator, &map.value.kind, value, &path.key(key));
            }
        }
        _ => {}
    }
}

/// Returns whether values of this kind have parts to check.
fn has_parts(kind: &Kind) -> bool {
    matches!(kind, Kind::Message(_) | Kind::List(_) | Kind::Map(_))
}

/// Calls `visit` for each element of a list, or for the value itself.
fn each(value: &Value, path: &FieldPath, mut visit: impl FnMut(&Value, &FieldPath)) {
    match value {
        Value::Array(items) => items.iter().enumerate().for_each(|(at, item)| visit(item, &path.index(at))),
        one => visit(one, path),
    }
}

fn closed_set(validator: &mut Validator, field: &Field, value: &Value, path: &FieldPath) {
    if field.check.is_some_and(|check| check.set_in_code) {
        return;
    }
    // An element counts as given even if it is empty.
    let is_list = matches!(value, Value::Array(_));
    let empty_is_refused =
        field.pointer || is_list || field.check.is_some_and(|check| check.empty_is_refused);
    each(value, path, |value, path| {
        let Value::String(text) = value else { return };
        if validator.has_enough() {
            return;
        }
        if field.enumeration.iter().any(|known| known == text) || (text.is_empty() && !empty_is_refused) {
            return;
        }
        let reported = field.check.map_or(&[][..], |check| check.reported);
        validator.errors.push(if reported.is_empty() {
            FieldError::not_supported(path, value, &field.enumeration)
        } else {
            FieldError::not_supported(path, value, reported)
        });
    });
}

fn demands(validator: &mut Validator, check: &'static Check, value: &Value, path: &FieldPath) {
    let errors = &mut validator.errors;
    if let Value::Array(items) = value {
        let most = check.items_max as usize;
        if most > 0 && items.len() > most {
            errors.push(FieldError::too_many(path, items.len(), most));
        }
        if check.unique {
            refuse_repeated(items, path, errors);
        }
    }
    if let Some(form) = check.keys {
        for (key, _) in value.as_object().into_iter().flat_map(Object::iter) {
            if is_enough(errors) {
                return;
            }
            scalar_formats::text(form, &path.key(key), key, errors);
        }
    }
    if let Some(form) = check.form {
        match value {
            Value::Object(members) if form != ValueFormat::Labels => {
                for (key, value) in members.iter() {
                    if is_enough(errors) {
                        return;
                    }
                    scalar_formats::value(form, &path.key(key), value, errors);
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    if is_enough(errors) {
                        return;
                    }
                    scalar_formats::element(form, &path.index(at), item, errors);
                }
            }
            value => scalar_formats::value(form, path, value, errors),
        }
    }
    if check.bytes_max > 0 {
        each(value, path, |value, path| {
            let is_long = value.as_str().is_some_and(|text| text.len() > check.bytes_max as usize);
            if is_long && !is_enough(errors) {
                errors.push(FieldError::too_long(path, check.bytes_max as usize));
            }
        });
    }
    if check.min.is_some() || check.max.is_some() {
        each(value, path, |value, path| in_range(check, value, path, errors));
    }
}

fn in_range(check: &Check, value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Value::Int(number) = value else { return };
    let is_above = check.min.is_none_or(|min| *number >= min);
    let is_below = check.max.is_none_or(|max| *number <= max);
    if is_above && is_below || is_enough(errors) {
        return;
    }
    let detail = match (check.range_detail, check.min, check.max) {
        ("", Some(min), Some(max)) => format!("must be between {min} and {max}, inclusive"),
        ("", Some(min), None) => format!("must be greater than or equal to {min}"),
        ("", None, max) => format!("must be less than or equal to {}", max.unwrap_or_default()),
        (detail, ..) => detail.to_owned(),
    };
    errors.push(FieldError::invalid(path, value, detail));
}

/// Maximum length of a list of strings whose repetitions are found without a hash set.
const FEW: usize = 16;

fn refuse_repeated(items: &[Value], path: &FieldPath, errors: &mut Vec<FieldError>) {
    let texts = || items.iter().enumerate().filter_map(|(at, item)| Some((at, item.as_str()?)));
    if items.len() <= FEW {
        for (at, text) in texts() {
            if items[..at].iter().any(|earlier| earlier.as_str() == Some(text)) {
                errors.push(FieldError::duplicate(path.index(at), &text.into()));
            }
        }
        return;
    }
    let mut seen = HashSet::new();
    for (at, text) in texts() {
        if is_enough(errors) {
            return;
        }
        if !seen.insert(text) {
            errors.push(FieldError::duplicate(path.index(at), &text.into()));
        }
    }
}

fn one_of(
    validator: &mut Validator,
    message: &Message,
    union: &Union,
    object: &Object,
    path: &FieldPath,
    surplus: &[&str],
) {
    let is_given =
        |&at: &u16| object.get(&message.fields[usize::from(at)].name).is_some_and(|v| !v.is_null());
    if !union.none.is_empty() && !union.members.iter().any(is_given) {
        validator.errors.push(FieldError::required(path, union.none));
    }
    for name in surplus.iter().filter(|_| !union.several.is_empty()) {
        let renamed =
            union.error_names.iter().find(|(at, _)| message.fields[usize::from(*at)].name == **name);
        let error_name = renamed.map_or(*name, |(_, error_name)| error_name);
        validator.errors.push(FieldError::forbidden(path.child(error_name), union.several));
    }
}
