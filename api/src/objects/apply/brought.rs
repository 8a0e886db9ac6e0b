//! The field set of a new object, written as text in one walk (docs/api/apply.md#field-sets).
//!
//! A new object is compared with one of its type of which nothing was given. What it brings is nearly all it has, so
//! no set is made of it: the walk writes the text that the set would have. The text equals that of
//! `compare(…).brought()`, which stays the definition; where the walk cannot tell, the caller uses that.

use smallvec::SmallVec;

use super::compare::{NULL, indexed, is_empty, is_same, take_run};
use super::typed::{Members, Type};
use crate::types::schema::table::{ListType, Message, Unknown};
use crate::values::field::{Element, FieldSet, write_field, write_step};
use crate::values::json::{Object, Value};

/// Members of a struct or map that are sorted without an allocation.
const MEMBERS_TYPICAL: usize = 24;

/// The older object has a list with elements, which the walk does not compare.
struct Unclear;

/// The text of the fields of `new` that `nothing`, an object of which nothing was given, does not have, without those
/// of `skip` and below; `None` where a comparison has to be made.
pub(super) fn text(message: &Message, nothing: &Object, new: &Object, skip: &FieldSet<'_>) -> Option<String> {
    let mut out = Vec::with_capacity(1024);
    out.push(b'{');
    if !message.atomic {
        let skip = Some(skip).filter(|skip| !skip.is_empty());
        structure(message, Some(nothing), new, skip, &mut out).ok()?;
    }
    out.push(b'}');
    Some(String::from_utf8(out).expect("names are text, and so is what is written around them"))
}

/// Appends a step and what is below it, if the value is brought or something below it is.
fn step(
    name: impl Fn(&mut Vec<u8>),
    of: Type<'_>,
    (old, new): (Option<&Value>, &Value),
    skip: Option<&FieldSet<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), Unclear> {
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

/// Whether a value differs as a whole from the one before it, rather than in parts.
fn is_modified(of: Type<'_>, old: &Value, new: &Value) -> bool {
    let objects_are_empty = || is_empty(old.as_object()) && is_empty(new.as_object());
    match of.for_value(new) {
        Type::Scalar(_)
        | Type::Struct { atomic: true, .. }
        | Type::Map { atomic: true, .. }
        | Type::List { list: ListType::Atomic, .. } => true,
        Type::Struct { .. } => objects_are_empty(),
        Type::Map { .. } | Type::Deduced => {
            let was_leaf =
                matches!((of, of.for_value(old)), (Type::Deduced, Type::Scalar(_) | Type::List { .. }));
            was_leaf || objects_are_empty()
        }
        Type::List { .. } => {
            let is_empty = |value: &Value| value.as_array().unwrap_or_default().is_empty();
            is_empty(old) && is_empty(new)
        }
    }
}

/// Appends the steps below a value.
fn below(
    of: Type<'_>,
    old: Option<&Value>,
    new: &Value,
    skip: Option<&FieldSet<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), Unclear> {
    match (of.for_value(new), new) {
        (Type::Struct { message, atomic: false }, Value::Object(new)) => {
            structure(message, old.and_then(Value::as_object), new, skip, out)
        }
        (Type::Map { value: of, atomic: false }, Value::Object(new)) => {
            let of = Type::of_kind(of);
            members(
                new.iter().map(|(name, value)| (name, of, value)),
                old.and_then(Value::as_object),
                skip,
                out,
            )
        }
        (Type::List { list: ListType::Atomic, .. }, _) => Ok(()),
        (Type::List { item, list }, Value::Array(items)) => {
            if old.and_then(Value::as_array).is_some_and(|old| !old.is_empty()) {
                return Err(Unclear);
            }
            let items = indexed(item, list, items);
            let mut rest = items.as_slice();
            while let [(element, value), ..] = rest {
                // A repeated element is owned as one.
                let (of, value) = match take_run(&mut rest) {
                    [_] => (Type::of_kind(item), *value),
                    _ => (Type::Deduced, &NULL),
                };
                let Some(skip) = left(skip, || element.clone()) else { continue };
                step(|out| write_step(element, out), of, (None, value), skip, out)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn structure(
    message: &Message,
    old: Option<&Object>,
    new: &Object,
    skip: Option<&FieldSet<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), Unclear> {
    let declared = Members::new(message, new).sorted().into_iter().map(|(at, value)| {
        let field = &message.fields[at];
        (&*field.name, Type::of_field(field), value)
    });
    if message.unknown == Unknown::Preserve {
        let unknown = new.iter().filter(|(name, _)| message.position(name.as_bytes()).is_none());
        let unknown = unknown.map(|(name, value)| (name, Type::Deduced, value));
        return members(declared.chain(unknown), old, skip, out);
    }
    members(declared, old, skip, out)
}

/// Appends members by name.
fn members<'m>(
    all: impl Iterator<Item = (&'m str, Type<'m>, &'m Value)>,
    old: Option<&Object>,
    skip: Option<&FieldSet<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), Unclear> {
    let mut all: SmallVec<[_; MEMBERS_TYPICAL]> = all.collect();
    if !all.is_sorted_by(|(a, ..), (b, ..)| a <= b) {
        all.sort_unstable_by_key(|(name, ..)| *name);
    }
    for (name, of, value) in all {
        let Some(skip) = left(skip, || Element::field(name)) else { continue };
        let old = old.and_then(|old| old.get(name));
        step(|out| write_field(name, out), of, (old, value), skip, out)?;
    }
    Ok(())
}

/// What is to be skipped below a step; `None` if the step is to be skipped itself.
fn left<'s, 't, 'e>(
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
#[path = "brought_test.rs"]
mod tests;
