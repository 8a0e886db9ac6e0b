//! Required fields and closed sets of values, by schema (facts: types, `required` and `enum`).
//!
//! The published schema says more than the reference server enforces: what it takes although the schema calls it
//! required is listed here. Metadata and status are not looked at: metadata has rules of its own, and main writes do not
//! change status.

use super::metadata::is_enough;
use super::path::Path;
use crate::field::FieldError;
use crate::json::{Object, Value};
use crate::schema::table::{Field, Kind, Message, Shape};

/// Required by the schema, but absent or empty is accepted, or refused in other words by a rule of the kind.
const TAKEN: &[(&str, &str)] = &[
    ("CSINodeSpec", "drivers"),
    ("HTTPHeader", "name"),
    ("HTTPHeader", "value"),
    ("LabelSelectorRequirement", "key"),
    ("LabelSelectorRequirement", "operator"),
    ("LimitRangeSpec", "limits"),
    ("NodeSelectorRequirement", "key"),
    ("NodeSelectorRequirement", "operator"),
    ("PodFailurePolicy", "rules"),
    ("PolicyRule", "verbs"),
    ("RoleRef", "kind"),
    ("Subject", "kind"),
    ("Sysctl", "value"),
    ("TokenRequest", "audience"),
    ("TokenRequestSpec", "audiences"),
];

/// Parts that the reference server does not look into: the mounts in the template of a stateful set name claims that are
/// volumes only once its pods are made, so it leaves judging the template to the pods.
const UNSEEN: &[(&str, &str)] = &[("StatefulSetSpec", "template")];

/// Numbers for which zero counts as not given.
const REQUIRED_NUMBERS: &[(&str, &str)] = &[("ContainerPort", "containerPort")];

/// What the reference server adds to "Required value".
const DETAILS: &[(&str, &str, &str)] = &[
    ("NodeSelector", "nodeSelectorTerms", "must have at least one node selector term"),
    ("PodAffinityTerm", "topologyKey", "can not be empty"),
    ("TopologySpreadConstraint", "topologyKey", "can not be empty"),
];

/// Closed sets that a rule of the kind refuses in other words.
const OTHER_WORDS: &[(&str, &str)] = &[("NodeSelectorRequirement", "operator")];

/// Checks an object of type `message`, but for its metadata and status.
pub(super) fn validate(message: &'static Message, object: &Object, errors: &mut Vec<FieldError>) {
    walk(message, object, &Path::ROOT, true, errors);
}

fn walk(message: &'static Message, object: &Object, path: &Path, top: bool, errors: &mut Vec<FieldError>) {
    if is_enough(errors) {
        return;
    }
    let mut members = object.iter().peekable();
    for field in message.fields {
        if top && matches!(field.name, "metadata" | "status") {
            members.next_if(|(name, _)| *name == field.name);
            continue;
        }
        let next = members.next_if(|(name, _)| *name == field.name).map(|(_, value)| value);
        let value = match next {
            None if field.required => object.get(field.name),
            value => value,
        };
        match value.filter(|value| !value.is_null()) {
            Some(value) => visit(message, field, value, &path.child(field.name), errors),
            None if field.required => refuse_absent(message, field, path, errors),
            None => {}
        }
    }
    // Members out of schema order, which only hands leave behind.
    for (name, value) in members {
        if let Some(field) = message.field(name).filter(|field| !field.required && !value.is_null())
            && !(top && matches!(name, "metadata" | "status"))
        {
            visit(message, field, value, &path.child(name), errors);
        }
    }
}

fn refuse_absent(message: &Message, field: &Field, path: &Path, errors: &mut Vec<FieldError>) {
    let is_scalar = matches!(field.kind, Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::Double);
    let plain = field.shape == Shape::Single && is_scalar && !field.pointer;
    let by_value = field.shape == Shape::Single && matches!(field.kind, Kind::Message(_)) && !field.pointer;
    if by_value || TAKEN.contains(&(message.name, field.name)) {
        return;
    }
    if plain && !REQUIRED_NUMBERS.contains(&(message.name, field.name)) {
        return;
    }
    let detail = DETAILS.iter().find(|(name, member, _)| (*name, *member) == (message.name, field.name));
    errors.push(FieldError::required(path.child(field.name), detail.map_or("", |(_, _, detail)| *detail)));
}

fn visit(
    message: &'static Message,
    field: &'static Field,
    value: &Value,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    match value {
        Value::String(text) if text.is_empty() => {
            if field.required && !field.pointer {
                refuse_empty(message, field, path, errors);
            }
            return;
        }
        Value::Int(0) if field.required && REQUIRED_NUMBERS.contains(&(message.name, field.name)) => {
            return refuse_empty(message, field, path, errors);
        }
        Value::Array(items) if field.required && items.is_empty() => {
            return refuse_empty(message, field, path, errors);
        }
        _ => {}
    }
    if !field.enumeration.is_empty() && !OTHER_WORDS.contains(&(message.name, field.name)) {
        check_enumeration(field, value, path, errors);
    }
    let inner = match field.kind {
        Kind::Message(inner)
            if inner.name != "ObjectMeta" && !UNSEEN.contains(&(message.name, field.name)) =>
        {
            inner
        }
        _ => return,
    };
    match value {
        Value::Object(object) if field.shape == Shape::Single => walk(inner, object, path, false, errors),
        Value::Object(members) => {
            for (key, value) in members.iter() {
                if let Value::Object(object) = value {
                    walk(inner, object, &path.key(key), false, errors);
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                if let Value::Object(object) = item {
                    walk(inner, object, &path.index(at), false, errors);
                }
            }
        }
        _ => {}
    }
}

fn refuse_empty(message: &Message, field: &Field, path: &Path, errors: &mut Vec<FieldError>) {
    if TAKEN.contains(&(message.name, field.name)) {
        return;
    }
    let detail = DETAILS.iter().find(|(name, member, _)| (*name, *member) == (message.name, field.name));
    errors.push(FieldError::required(path, detail.map_or("", |(_, _, detail)| *detail)));
}

fn check_enumeration(field: &Field, value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let mut check = |value: &Value, path: &Path| {
        let Value::String(text) = value else { return };
        if !text.is_empty() && !field.enumeration.contains(&text.as_str()) {
            errors.push(FieldError::not_supported(path, value, field.enumeration));
        }
    };
    match value {
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                check(item, &path.index(at));
            }
        }
        one => check(one, path),
    }
}
