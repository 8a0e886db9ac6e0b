//! Whether a part of a custom object is what it was, as far as updates are forgiven for it.
//!
//! An error of a schema at a value that an update leaves as it was does not fail the update. What corresponds to what
//! follows the type: elements of keyed lists by their keys, elements of lists that say nothing by position. Elements of
//! sets, and of lists that say that they are atomic, correspond to none; neither do members that the type does not
//! describe. A value with such parts never counts as unchanged.

use crate::types::schema::limits::Limits;
use crate::types::schema::table::{Kind, ListType};
use crate::values::json::Value;

/// The old element that corresponds to the one at `at`.
pub(super) fn counterpart<'v>(
    kind: &Kind,
    limits: Option<&Limits>,
    (new, at): (&Value, usize),
    old: &'v [Value],
) -> Option<&'v Value> {
    let Kind::List(list) = kind else { return None };
    match &list.merge {
        ListType::Map(keys) => {
            let is_one = |other: &&Value| keys.iter().all(|key| other.get(key) == new.get(key));
            old.iter().find(is_one)
        }
        ListType::Set => None,
        ListType::Atomic if limits.is_some_and(|limits| limits.uncorrelated) => None,
        ListType::Atomic => old.get(at),
    }
}

/// The limits of a value: those of the struct that it is, or else those of its place.
pub fn limits_of<'t>(kind: &'t Kind, limits: Option<&'t Limits>) -> Option<&'t Limits> {
    match kind {
        Kind::Message(message) if message.custom => message.limits.as_deref(),
        _ => limits,
    }
}

/// Whether both are the same value of a kind, all parts of which correspond.
pub(super) fn is_same(kind: &Kind, limits: Option<&Limits>, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Array(new), Value::Array(old)) => {
            let Kind::List(list) = kind else { return new.is_empty() && old.is_empty() };
            let item_limits = limits_of(&list.item.kind, list.item.limits.as_deref());
            new.len() == old.len()
                && new.iter().enumerate().all(|(at, item)| {
                    counterpart(kind, limits, (item, at), old)
                        .is_some_and(|old| is_same(&list.item.kind, item_limits, item, old))
                })
        }
        (Value::Object(new), Value::Object(old)) => {
            if new.len() != old.len() {
                return false;
            }
            // The members of an object with too few or too many are not looked at.
            let (min, max) = limits.map_or((None, None), |limits| limits.members);
            let len = new.len() as u64;
            if !new.is_empty() && (min.is_some_and(|min| len < min) || max.is_some_and(|max| len > max)) {
                return false;
            }
            new.iter().all(|(name, new)| {
                let Some(old) = old.get(name) else { return false };
                match kind {
                    Kind::Message(message)
                        if message.embedded && matches!(name, "apiVersion" | "kind" | "metadata") =>
                    {
                        false
                    }
                    Kind::Message(message) => message.field(name).is_some_and(|field| {
                        is_same(&field.kind, limits_of(&field.kind, field.limits.as_deref()), new, old)
                    }),
                    Kind::Map(map) => {
                        let limits = limits_of(&map.value.kind, map.value.limits.as_deref());
                        is_same(&map.value.kind, limits, new, old)
                    }
                    _ => false,
                }
            })
        }
        (new, old) => new == old,
    }
}
