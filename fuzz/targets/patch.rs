//! Patches on real types: no panic, results that can be stored, and limits on the size of results.

use std::collections::BTreeMap;

use objects::patch::{Patch, PatchKind, apply, undecodable};
use types::schema::builtin;
use types::schema::conform::conform;
use types::schema::decode::decode;
use types::schema::table::{Message, Ref};
use values::json::{Key, Object, Value, go_print, parse, parse_exact};
use values::naming::CLUSTER;

use super::patch_model::{COPIED_BYTES_MAX, carried_out};
use super::{check_refusal, schema, text};
use crate::document;
use crate::input::Input;
use crate::tree::Tree;

/// Maximum number of reports about the members of one patch.
const REPORTED_MAX: usize = 100;

/// Types that together have lists of every kind: lists by one key and by several keys, sets, atomic lists,
/// and lists of structs with a single member.
pub(super) const TYPES: &[&str] = &[
    "api.core.v1.Pod",
    "api.apps.v1.Deployment",
    "api.core.v1.Service",
    "api.core.v1.ConfigMap",
    "api.core.v1.Node",
    "api.rbac.v1.ClusterRole",
    "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
];

/// Chooses a kind of patch, a type and a form of the input. In one form, object and patch are two texts with
/// a zero byte between them; in the other form, they are built from the bytes.
pub fn patch(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = input.pick(&[PatchKind::Json, PatchKind::Merge, PatchKind::Strategic]);
    let stem = input.pick(TYPES);
    let message =
        builtin::message(&CLUSTER, stem).map_or_else(|| schema::some_message(&mut input), Ref::Static);
    let strict = input.byte() & 1 == 1;
    let (original, change) = if input.byte() & 1 == 0 {
        (input.section().to_vec(), input.rest().to_vec())
    } else {
        let text = document::object(&message, &mut input);
        let change = build_patch(kind, &message, &text, &mut input);
        (text, change)
    };
    // The object is in canonical form if possible.
    let original = match decode(&message, &original) {
        Ok(decoded) => Value::Object(decoded.object),
        Err(_) => match parse(&original) {
            Ok(value) => value,
            Err(_) => return,
        },
    };
    check(kind, &message, original, &change, strict);
}

fn check(kind: PatchKind, message: &Message, original: Value, change: &[u8], strict: bool) {
    let original_len = text(&original).len();
    if kind == PatchKind::Json {
        check_operations(message, &original, change);
    }
    let patched = match apply(kind, Some(message), original.clone(), change, strict) {
        Ok(patched) => patched,
        Err(status) => return check_refusal(&status, &[400, 413, 422, 500]),
    };
    assert!(patched.strict.len() <= REPORTED_MAX);
    let written = text(&patched.value);
    // Escapes and doubles grow at most sixfold when they are written.
    let bound = original_len + 6 * change.len() + 2 * COPIED_BYTES_MAX;
    assert!(written.len() <= bound, "{} bytes from {original_len} and {}", written.len(), change.len());
    assert!(parse_exact(&written).is_ok(), "the result is nested too deeply to be read back");
    if kind == PatchKind::Merge {
        let change = parse_exact(change).expect("it was applied");
        assert_eq!(text(&merged(original.clone(), &change)), written, "not what RFC 7386 says");
    }
    let parsed = Patch::parse(kind, change, strict).expect("it was applied");
    let shown = parsed.error_document(message, original).expect("it was applied");
    match conform(message, patched.value.clone()) {
        Ok(decoded) => schema::check_canonical(message, decoded.object),
        Err(error) => check_refusal(&undecodable(shown, &error.message), &[422]),
    }
    assert!(!go_print(&patched.value).is_empty());
}

/// Compares a JSON patch, written as this server writes JSON, with its model.
fn check_operations(message: &Message, original: &Value, change: &[u8]) {
    let Ok(operations) = parse_exact(change) else { return };
    let model = || carried_out(operations.as_array().unwrap_or_default(), original);
    match apply(PatchKind::Json, Some(message), original.clone(), &text(&operations), false) {
        Ok(patched) => assert_eq!(Some(Tree::from(&patched.value)), model(), "not what RFC 6902 says"),
        Err(status) if status.code == 422 => {
            assert_eq!(model(), None, "refused, and could have been carried out");
        }
        Err(_) => {}
    }
}

/// Applies a merge patch by RFC 7386 §2, with the added members of the patch sorted, and without `null` members in new
/// lists.
pub(super) fn merged(target: Value, patch: &Value) -> Value {
    if patch.as_object().is_some() { replaced(target, patch) } else { pruned(patch) }
}

fn replaced(target: Value, patch: &Value) -> Value {
    let (Value::Object(target), Value::Object(patch)) = (&target, patch) else {
        return if target.as_object().is_some() { patch.clone() } else { pruned(patch) };
    };
    let mut members: BTreeMap<String, Value> =
        target.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
    for (name, change) in patch.iter() {
        let current = members.remove(name).unwrap_or_default();
        if !change.is_null() {
            members.insert(name.to_owned(), replaced(current, change));
        }
    }
    sorted(members)
}

fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(_, value)| !value.is_null());
            sorted(kept.map(|(name, value)| (name.to_owned(), pruned(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(pruned).collect()),
        scalar => scalar.clone(),
    }
}

fn sorted(members: BTreeMap<String, Value>) -> Value {
    members.into_iter().map(|(name, value)| (name.into(), value)).collect::<Object>().into()
}

/// Builds a patch for the object.
pub(super) fn build_patch(kind: PatchKind, message: &Message, original: &[u8], input: &mut Input) -> Vec<u8> {
    let original = parse(original).unwrap_or_default();
    if kind == PatchKind::Json {
        let count = input.below(12);
        let operations = (0..count).map(|_| operation(&original, input)).collect();
        return text(&Value::Array(operations));
    }
    let mut change = parse(&document::object(message, input)).unwrap_or_default();
    if input.byte() & 1 == 1 {
        // Change the present value, instead of replacing it by another value of the same type.
        change = original.clone();
    }
    if kind == PatchKind::Strategic {
        direct(&mut change, input);
    }
    text(&change)
}

fn operation(original: &Value, input: &mut Input) -> Value {
    let mut members = Object::new();
    let verb = input.pick(&["add", "replace", "remove", "test", "copy", "move", "ad"]);
    members.insert("op", verb.into());
    members.insert("path", pointer(original, input).into());
    if matches!(verb, "copy" | "move") || input.one_in(20) {
        members.insert("from", pointer(original, input).into());
    }
    if matches!(verb, "add" | "replace" | "test") {
        members.insert("value", parse(&document::anything(input)).unwrap_or_default());
    }
    members.into()
}

/// Returns a JSON pointer to a value in `value`, or to an absent neighbour.
fn pointer(value: &Value, input: &mut Input) -> String {
    let mut path = String::new();
    let mut at = Some(value);
    while !input.one_in(4) {
        let (step, next) = match at {
            Some(Value::Object(members)) if !members.is_empty() => {
                let name = members.iter().nth(input.below(members.len())).map_or("", |(name, _)| name);
                (name.replace('~', "~0").replace('/', "~1"), members.get(name))
            }
            Some(Value::Array(items)) if !items.is_empty() => {
                let index = input.below(items.len());
                (index.to_string(), items.get(index))
            }
            _ => {
                let odd =
                    input.pick(&["-", "x", "-1", "00", "", "~", "18446744073709551616", "metadata", "0"]);
                path.push('/');
                path.push_str(odd);
                return path;
            }
        };
        path.push('/');
        path.push_str(&step);
        at = next;
        if input.is_empty() {
            break;
        }
    }
    path
}

/// Inserts directives into some objects of a strategic merge patch.
fn direct(value: &mut Value, input: &mut Input) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| direct(item, input)),
        Value::Object(members) => {
            members.iter_mut().for_each(|(_, member)| direct(member, input));
            let members = members.members_mut();
            if members.is_empty() || !input.one_in(3) {
                return;
            }
            let at = input.below(members.len());
            let (name, value) = (members[at].0.clone(), members[at].1.clone());
            let (directive, operand): (Key, Value) = match input.below(6) {
                0 => ("$patch".into(), (input.pick(&["delete", "replace", "merge", "x"])).into()),
                1 => ("$patch".into(), parse(&document::anything(input)).unwrap_or_default()),
                2 => {
                    let names = members.iter().map(|(name, _)| Value::String(name.to_string()));
                    ("$retainKeys".into(), Value::Array(names.skip(input.below(2)).collect()))
                }
                3 => (format!("$deleteFromPrimitiveList/{name}").into(), value),
                4 => (
                    format!("$setElementOrder/{name}").into(),
                    parse(&document::anything(input)).unwrap_or_default(),
                ),
                _ => {
                    let mut order = value;
                    if let Some(items) = order.as_array_mut()
                        && input.byte() & 1 == 1
                    {
                        items.reverse();
                    }
                    (format!("$setElementOrder/{name}").into(), order)
                }
            };
            if members.iter().all(|(name, _)| *name != directive) {
                members.push((directive, operand));
            }
        }
        _ => {}
    }
}
