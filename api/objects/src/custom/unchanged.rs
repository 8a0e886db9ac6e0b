//! The values of a custom object that an update leaves unchanged, whose errors are ignored.
//!
//! An update does not fail because of a schema error at an unchanged value. The type determines the old value
//! that corresponds to a new value: members correspond by name, and elements of keyed lists correspond by
//! their keys. Elements of other lists do not correspond, so such a list is compared as a whole. Members that
//! the type does not describe have no corresponding value. An object with such members never counts as
//! unchanged.
//!
//! A single walk over both objects compares all values and records the results. Without the record, each
//! error would compare its value again, and a value would be visited once for every value that contains it.

use hashbrown::HashMap;

use super::lookup::{Keyed, MemberLookup};
use types::schema::limits::Limits;
use types::schema::table::{Kind, ListType, Message};
use values::cancellation;
use values::json::{Object, Value};

/// The values of an object that equal the corresponding values of the stored object.
///
/// Values are identified by their addresses, so the object must not be moved or changed during the lifetime
/// of this value.
#[derive(Debug, Default)]
pub(super) struct Unchanged {
    values: HashMap<usize, bool>,
}

impl Unchanged {
    /// Compares an object with the stored object.
    pub(super) fn of_object(message: &Message, old: &Object, new: &Object) -> Unchanged {
        let mut unchanged = Unchanged::default();
        let kind = |name: &str| message.field(name).map(|field| &field.kind);
        unchanged.members(&kind, old, new);
        unchanged
    }

    /// Returns whether a value equals its corresponding stored value.
    pub(super) fn has(&self, new: &Value) -> bool {
        self.values.get(&address(new)).copied().unwrap_or_default()
    }

    fn value(&mut self, kind: &Kind, old: &Value, new: &Value) -> bool {
        cancellation::step();
        let is_same = match (kind, old, new) {
            (Kind::List(list), Value::Array(old), Value::Array(new)) => match &list.merge {
                ListType::Map(keys) => {
                    let elements = Keyed::new(keys, old);
                    let mut is_same = old.len() == new.len();
                    for item in new {
                        let old = elements.get(item);
                        is_same &= old.is_some_and(|old| self.value(&list.item.kind, old, item));
                    }
                    is_same
                }
                _ => is_equal_list(old, new),
            },
            (_, Value::Object(old), Value::Object(new)) => {
                let member = |name: &str| match kind {
                    Kind::Message(message) => message.field(name).map(|field| &field.kind),
                    Kind::Map(map) => Some(&map.value.kind),
                    _ => None,
                };
                let is_same = self.members(&member, old, new);
                is_same && new.iter().all(|(name, _)| is_described(kind, name))
            }
            (_, old, new) => is_equal(old, new),
        };
        self.values.insert(address(new), is_same);
        is_same
    }

    /// Returns whether all members equal the corresponding stored members.
    fn members<'t>(&mut self, kind: &dyn Fn(&str) -> Option<&'t Kind>, old: &Object, new: &Object) -> bool {
        let mut is_same = old.len() == new.len();
        let members = MemberLookup::new(old, new.len());
        for (name, value) in new.iter() {
            let counterpart = kind(name).zip(members.get(name));
            is_same &= counterpart.is_some_and(|(kind, old)| self.value(kind, old, value));
        }
        is_same
    }
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Returns the limits of a value. A struct of a custom type has its own limits; other values have the limits
/// of their location.
pub fn limits_of<'t>(kind: &'t Kind, limits: Option<&'t Limits>) -> Option<&'t Limits> {
    match kind {
        Kind::Message(message) if message.custom => message.limits.as_deref(),
        _ => limits,
    }
}

/// Returns whether the schema of a value describes the member `name`. Kind, version and metadata of an
/// embedded object are not described.
fn is_described(kind: &Kind, name: &str) -> bool {
    match kind {
        Kind::Message(message) => {
            message.custom && !(message.embedded && matches!(name, "apiVersion" | "kind" | "metadata"))
        }
        _ => true,
    }
}

/// Returns whether two values are equal. Ignores the order of members.
fn is_equal(a: &Value, b: &Value) -> bool {
    cancellation::step();
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => is_equal_list(a, b),
        (Value::Object(a), Value::Object(b)) => {
            let members = MemberLookup::new(b, a.len());
            a.len() == b.len() && a.iter().all(|(name, a)| members.get(name).is_some_and(|b| is_equal(a, b)))
        }
        (a, b) => a == b,
    }
}

fn is_equal_list(a: &[Value], b: &[Value]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
}
