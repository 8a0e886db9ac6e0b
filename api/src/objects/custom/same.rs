//! Whether a part of a custom object is what it was, as far as updates are forgiven for it.
//!
//! An error of a schema at a value that an update leaves as it was does not fail the update. What corresponds to what
//! follows the type: members by name, elements of keyed lists by their keys. Elements of other lists correspond to none:
//! such a list is compared as a whole. Members that the type does not describe correspond to none either, and an object
//! that has any never counts as unchanged.

use crate::types::schema::limits::Limits;
use crate::types::schema::table::{Kind, List, ListType, Message};
use crate::values::cancellation;
use crate::values::json::{Object, Value};

/// What stood in the stored object where a value stands now, and the type by which both are compared.
#[derive(Clone, Copy)]
pub(super) enum Before<'v> {
    /// The object itself.
    Object(&'v Message, &'v Object),
    /// A value in it.
    Value(&'v Kind, &'v Value),
}

impl<'v> Before<'v> {
    /// What corresponds to the member of this name.
    pub(super) fn member(self, name: &str) -> Option<Before<'v>> {
        let (message, object): (&'v Message, &'v Object) = match self {
            Before::Object(message, object) => (message, object),
            Before::Value(Kind::Message(message), Value::Object(object)) => (message, object),
            Before::Value(Kind::Map(map), Value::Object(members)) => {
                return Some(Before::Value(&map.value.kind, members.get(name)?));
            }
            Before::Value(..) => return None,
        };
        Some(Before::Value(&message.field(name)?.kind, object.get(name)?))
    }

    /// What corresponds to an element of the list.
    pub(super) fn item(self, new: &Value) -> Option<Before<'v>> {
        let Before::Value(Kind::List(list), Value::Array(items)) = self else { return None };
        counterpart(list, new, items).map(|old| Before::Value(&list.item.kind, old))
    }

    /// Whether `new` is the same value, all parts of which correspond.
    pub(super) fn is(self, new: &Value) -> bool {
        let Before::Value(kind, old) = self else { return false };
        match (kind, old, new) {
            (Kind::List(list), Value::Array(old), Value::Array(new))
                if matches!(list.merge, ListType::Map(_)) =>
            {
                old.len() == new.len() && new.iter().all(|new| self.item(new).is_some_and(|old| old.is(new)))
            }
            (_, Value::Object(old), Value::Object(new)) => {
                let is_same = |name: &str, new: &Value| self.member(name).is_some_and(|old| old.is(new));
                old.len() == new.len()
                    && new.iter().all(|(name, new)| is_described(kind, name) && is_same(name, new))
            }
            (_, old, new) => is_equal(old, new),
        }
    }
}

/// The old element that has the keys of an element of a keyed list; none of other lists.
pub(super) fn counterpart<'v>(list: &List, new: &Value, old: &'v [Value]) -> Option<&'v Value> {
    let ListType::Map(keys) = &list.merge else { return None };
    old.iter().find(|old| keys.iter().all(|key| old.get(key) == new.get(key)))
}

/// The limits of a value: those of the struct that it is, or else those of its place.
pub fn limits_of<'t>(kind: &'t Kind, limits: Option<&'t Limits>) -> Option<&'t Limits> {
    match kind {
        Kind::Message(message) if message.custom => message.limits.as_deref(),
        _ => limits,
    }
}

/// Whether the schema of a value describes its member of this name, beyond what every object has.
fn is_described(kind: &Kind, name: &str) -> bool {
    match kind {
        Kind::Message(message) => {
            message.custom && !(message.embedded && matches!(name, "apiVersion" | "kind" | "metadata"))
        }
        _ => true,
    }
}

/// Equality without regard to the order of members.
fn is_equal(a: &Value, b: &Value) -> bool {
    cancellation::step();
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_equal(a, b)))
        }
        (a, b) => a == b,
    }
}
