//! Computes the strategic merge patch that error messages contain after a merge
//! (docs/api/patches.md#patch-requests).
//!
//! The reference server merges in place and changes the patch. The merge removes three parts of the patch:
//! the directives that it carries out, the lists that it orders, and the `null` members of values that are
//! new to the object. The rest of the patch stays unchanged. This module makes the same changes, and needs no
//! error handling, because the patch was already merged successfully.

use hashbrown::{HashMap, HashSet};

use super::Value;
use super::lists::Key;
use super::strategic::{
    DELETE_PREFIX, DIRECTIVE, MergeType, ORDER_PREFIX, RETAIN_KEYS, discard_nulls, target,
};
use types::schema::table::Message;
use values::cancellation;
use values::json::Object;

/// Returns the state of the patch after the merge into `original`.
pub(super) fn merged_patch(message: &Message, original: &Value, mut patch: Value) -> Value {
    if let (Value::Object(original), Value::Object(patch)) = (original, &mut patch) {
        object(original, patch, MergeType::Struct(message));
    }
    patch
}

fn object(original: &Object, patch: &mut Object, kind: MergeType<'_>) {
    cancellation::step();
    if let Some(directive) = patch.get(DIRECTIVE) {
        if directive.as_str() == Some("replace") {
            patch.remove(DIRECTIVE);
        }
        return;
    }
    let mut current: HashMap<&str, &Value> = original.iter().collect();
    if let Some(Value::Array(retained)) = patch.remove(RETAIN_KEYS) {
        let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
        current.retain(|name, _| retained.contains(name));
    }
    let ordered = patch.iter().filter_map(|(name, _)| target(name, ORDER_PREFIX).map(str::to_owned));
    let ordered: HashSet<String> = ordered.collect();
    patch.retain(|name, _| !name.starts_with(ORDER_PREFIX) && !ordered.contains(name));
    for (name, change) in patch.iter_mut() {
        if change.is_null() || name.starts_with(DELETE_PREFIX) {
            continue;
        }
        let (kind, strategy) = kind.member(name);
        match (current.get(name), change) {
            (Some(Value::Object(_)), Value::Object(_)) if strategy.replace => {}
            (Some(Value::Object(current)), Value::Object(change)) => object(current, change, kind),
            (Some(Value::Array(current)), Value::Array(change)) => {
                if let Some(merge_key) = strategy.merge_key.filter(|_| strategy.merge) {
                    elements(current, change, kind, Key::Member(merge_key));
                }
            }
            (_, change) => {
                discard_nulls(change);
                drop_directives(change);
            }
        }
    }
}

/// Visits the elements of a list that were merged into existing elements. The object contains these elements,
/// and the patch does not delete them. After `$patch: replace` there are no such elements.
fn elements(current: &[Value], patch: &mut [Value], kind: MergeType<'_>, key: Key) {
    let is_replacing = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str) == Some("replace");
    if patch.iter().any(is_replacing) {
        return;
    }
    let Ok(mut positions) = key.positions(current) else { return };
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_some()) {
        if let Ok(scalar) = key.scalar(item) {
            positions.remove(&scalar);
        }
    }
    for item in patch.iter_mut().filter(|item| item.get(DIRECTIVE).is_none()) {
        let at = key.scalar(item).ok().and_then(|scalar| positions.get(&scalar).copied());
        if let (Some(Some(Value::Object(current))), Value::Object(item)) =
            (at.map(|at| current.get(at)), item)
        {
            object(current, item, kind);
        }
    }
}

/// Removes the objects that contain `$patch` from the members of a new value. The value itself is kept. If
/// the value is a list, its elements are also kept.
fn drop_directives(value: &mut Value) {
    match value {
        Value::Object(members) if !members.contains(DIRECTIVE) => members.retain(|_, member| {
            if let Value::Array(items) = &mut *member {
                items.retain(|item| item.get(DIRECTIVE).is_none());
            }
            drop_directives(member);
            member.get(DIRECTIVE).is_none()
        }),
        Value::Array(items) => items.iter_mut().for_each(drop_directives),
        _ => {}
    }
}
