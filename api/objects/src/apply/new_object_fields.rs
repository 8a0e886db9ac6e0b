//! The field set of a new object, written as text in one walk (docs/api/apply.md#field-sets).
//!
//! A new object is compared with an empty object of its type. The new object sets nearly all of its fields,
//! so this module does not build a set but writes the text of the set directly. The text must equal
//! `compare(…).into_changed().text()`, which defines the correct result. If the walk cannot decide a case,
//! the caller compares instead.

use std::borrow::Cow;
use std::cmp::Ordering;

use smallvec::SmallVec;

use super::compare::{NULL, indexed, is_empty, is_same, take_run};
use super::typed::OwnershipType;
use types::schema::table::{Field, ListType, Message, Unknown};
use values::cancellation;
use values::field::{Element, FieldSet, write_field, write_plain_field, write_step};
use values::json::{Object, Value};

/// The walk cannot decide the case, because the old object has a list with elements.
struct Unclear;

/// Returns the text of the fields that `new` has and that `nothing`, an empty object of the same type, lacks. Leaves
/// out `skip` and everything below `skip`. Returns `None` if the caller must compare instead.
pub(super) fn text(message: &Message, nothing: &Object, new: &Object, skip: &FieldSet<'_>) -> Option<String> {
    let mut out = Vec::with_capacity(1024);
    out.push(b'{');
    if !message.atomic {
        let skip = Some(skip).filter(|skip| !skip.is_empty());
        structure(message, Some(nothing), new, skip, &mut out).ok()?;
    }
    out.push(b'}');
    Some(String::from_utf8(out).expect("names and punctuation are UTF-8"))
}

/// Appends a step and the steps below it if the value or a value below it is new.
fn step(
    name: impl Fn(&mut Vec<u8>),
    of: OwnershipType<'_>,
    old: Option<&Value>,
    new: &Value,
    skip: Option<&FieldSet<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), Unclear> {
    cancellation::step();
    if old.is_some_and(|old| is_same(old, new)) {
        return Ok(());
    }
    let start = out.len();
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    name(out);
    out.extend_from_slice(b":{");
    let mark = out.len();
    let is_member = match old {
        None => true,
        Some(old) => is_modified(of, old, new),
    };
    if is_member {
        out.extend_from_slice(b"\".\":{}");
    }
    let children = out.len();
    below(of, old, new, skip, out)?;
    if out.len() == children {
        if !is_member {
            out.truncate(start);
            return Ok(());
        }
        out.truncate(mark); // a member without members below it is an empty object
    }
    out.push(b'}');
    Ok(())
}

/// Returns whether a value is modified as a whole, and not only in parts.
fn is_modified(of: OwnershipType<'_>, old: &Value, new: &Value) -> bool {
    cancellation::step();
    let objects_are_empty = || is_empty(old.as_object()) && is_empty(new.as_object());
    match of.for_value(new) {
        OwnershipType::Scalar(_)
        | OwnershipType::Struct { atomic: true, .. }
        | OwnershipType::Map { atomic: true, .. }
        | OwnershipType::List { list: ListType::Atomic, .. } => true,
        OwnershipType::Struct { .. } => objects_are_empty(),
        OwnershipType::Map { .. } | OwnershipType::Deduced => {
            let was_leaf = matches!(
                (of, of.for_value(old)),
                (OwnershipType::Deduced, OwnershipType::Scalar(_) | OwnershipType::List { .. })
            );
            was_leaf || objects_are_empty()
        }
        OwnershipType::List { .. } => {
            let is_empty = |value: &Value| value.as_array().unwrap_or_default().is_empty();
            is_empty(old) && is_empty(new)
        }
    }
}

/// Appends the steps below a value.
fn below(
    of: OwnershipType<'_>,
    old: Option<&Value>,
    new: &Value,
    skip: Option<&FieldSet<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), Unclear> {
    match (of.for_value(new), new) {
        (OwnershipType::Struct { message, atomic: false }, Value::Object(new)) => {
            structure(message, old.and_then(Value::as_object), new, skip, out)
        }
        (OwnershipType::Map { value: of, atomic: false }, Value::Object(new)) => {
            let of = OwnershipType::of_kind(of);
            let mut all: Named<'_> = new.iter().map(|(name, value)| (Name::Given(name), value)).collect();
            members(&mut all, |_| of, old.and_then(Value::as_object), skip, out)
        }
        (OwnershipType::List { list: ListType::Atomic, .. }, _) => Ok(()),
        (OwnershipType::List { item, list }, Value::Array(items)) => {
            if old.and_then(Value::as_array).is_some_and(|old| !old.is_empty()) {
                return Err(Unclear);
            }
            let items = indexed(item, list, items);
            let mut rest = items.as_slice();
            while let [(element, value), ..] = rest {
                // A repeated element is owned as a whole.
                let (of, value) = match take_run(&mut rest) {
                    [_] => (OwnershipType::of_kind(item), *value),
                    _ => (OwnershipType::Deduced, &NULL),
                };
                let Some(skip) = remaining_skip(skip, || element.clone()) else { continue };
                step(|out| write_step(element, out), of, None, value, skip, out)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Number of members of a struct or map that are sorted without an allocation.
const MEMBERS_TYPICAL: usize = 24;

/// Members to be written.
type Named<'m> = SmallVec<[(Name<'m>, &'m Value); MEMBERS_TYPICAL]>;

/// The name of a member.
#[derive(Clone, Copy)]
enum Name<'m> {
    /// A declared field, with its rank in the sort order of the fields.
    Field(&'m Field, u32),
    /// Any other name.
    Given(&'m str),
}

impl<'m> Name<'m> {
    fn text(self) -> &'m str {
        match self {
            Name::Field(field, _) => &field.name,
            Name::Given(name) => name,
        }
    }

    fn order(&self, other: &Name<'_>) -> Ordering {
        match (self, other) {
            (Name::Field(_, rank), Name::Field(_, other)) => rank.cmp(other),
            _ => self.text().cmp(other.text()),
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            // Names of built-in fields need no escapes.
            Name::Field(Field { name: Cow::Borrowed(name), .. }, _) => write_plain_field(name, out),
            _ => write_field(self.text(), out),
        }
    }
}

fn structure(
    message: &Message,
    old: Option<&Object>,
    new: &Object,
    skip: Option<&FieldSet<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), Unclear> {
    cancellation::step();
    let ranks = message.ranks();
    let mut all = Named::new();
    for (name, value) in new.iter() {
        match message.position(name.as_bytes()) {
            Some(at) => all.push((Name::Field(&message.fields[at], ranks[at]), value)),
            None if message.unknown == Unknown::Preserve => all.push((Name::Given(name), value)),
            None => {}
        }
    }
    let of = |name| match name {
        Name::Field(field, _) => OwnershipType::of_field(field),
        Name::Given(_) => OwnershipType::Deduced,
    };
    members(&mut all, of, old, skip, out)
}

/// Appends members, sorted by name.
fn members<'m>(
    all: &mut Named<'m>,
    of: impl Fn(Name<'m>) -> OwnershipType<'m>,
    old: Option<&Object>,
    skip: Option<&FieldSet<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), Unclear> {
    all.sort_unstable_by(|(name, _), (other, _)| name.order(other));
    for (name, value) in all.iter().copied() {
        let Some(skip) = remaining_skip(skip, || Element::field(name.text())) else { continue };
        let old = old.and_then(|old| old.get(name.text()));
        step(|out| name.write(out), of(name), old, value, skip, out)?;
    }
    Ok(())
}

/// Returns the paths to skip below a step; `None` if the step itself is skipped.
fn remaining_skip<'s, 't, 'e>(
    skip: Option<&'s FieldSet<'t>>,
    element: impl FnOnce() -> Element<'e>,
) -> Option<Option<&'s FieldSet<'t>>> {
    match skip.and_then(|skip| skip.get(&element())) {
        Some(node) if node.member => None,
        Some(node) => Some(Some(&node.children).filter(|children| !children.is_empty())),
        None => Some(None),
    }
}

#[cfg(test)]
#[path = "new_object_fields_test.rs"]
mod tests;
