//! Compares two versions of an object and returns removed, modified and added fields
//! (docs/api/apply.md#field-sets).
//!
//! ```text
//! old ─┐
//!      ├─► removed · modified · added        a path is in at most one of them
//! new ─┘
//! ```
//!
//! Each struct, map, list and list element has its own path. If only one side has a path, this path and
//! all paths below it count as added or removed. If both sides have a path, only a leaf can be modified: a
//! scalar, an atomic value, or a value that is empty on both sides in different ways. The comparison walks
//! both trees once and does not descend into equal branches.

use std::cmp::Ordering;

use super::typed::{OwnershipType, below, item_element};
use types::schema::declared::Declared;
use types::schema::table::{Kind, ListType, Message, Unknown};
use values::cancellation;
use values::field::{Element, FieldSet, Node};
use values::json::{Object, Value};

/// Placeholder for the value of a list element that occurs more than once. Such an element is owned as a
/// whole, so the fields inside it are not compared.
pub(super) static NULL: Value = Value::Null;

/// The difference of two versions of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison<'t> {
    /// Fields that only the old version has.
    pub removed: FieldSet<'t>,
    /// Fields that both versions have with different values.
    pub modified: FieldSet<'t>,
    /// Fields that only the new version has.
    pub added: FieldSet<'t>,
}

impl<'t> Comparison<'t> {
    /// Returns whether the versions are equal.
    pub fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Converts the comparison into one without borrows.
    pub fn into_owned(self) -> Comparison<'static> {
        Comparison {
            removed: self.removed.into_owned(),
            modified: self.modified.into_owned(),
            added: self.added.into_owned(),
        }
    }

    /// Returns the fields that are added or modified.
    pub fn into_changed(self) -> FieldSet<'t> {
        self.modified.union(self.added)
    }
}

/// Compares two objects of type `message`. Ignores the paths in `skip` and everything below these paths.
pub fn compare<'t>(
    message: &Message,
    old: &'t Object,
    new: &'t Object,
    skip: &FieldSet<'_>,
) -> Comparison<'t> {
    let mut found = Found::default();
    let skip = Some(skip).filter(|skip| !skip.is_empty());
    if message.atomic {
        return Comparison::default(); // the object itself cannot be owned
    }
    structs(message, Some(old), Some(new), skip, &mut found);
    found.finish()
}

/// The nodes of one level in each of the three sets.
#[derive(Default)]
struct Found<'t> {
    removed: Vec<Node<'t>>,
    modified: Vec<Node<'t>>,
    added: Vec<Node<'t>>,
}

/// Difference of a path itself, without the paths below it.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Own {
    Same,
    Removed,
    Modified,
    Added,
}

impl<'t> Found<'t> {
    fn finish(self) -> Comparison<'t> {
        Comparison {
            removed: FieldSet::from_nodes(self.removed),
            modified: FieldSet::from_nodes(self.modified),
            added: FieldSet::from_nodes(self.added),
        }
    }

    /// Adds the result for `element` and for the paths below it.
    fn push(&mut self, element: impl Fn() -> Element<'t>, own: Own, below: Found<'t>) {
        for (level, below, member) in [
            (&mut self.removed, below.removed, own == Own::Removed),
            (&mut self.modified, below.modified, own == Own::Modified),
            (&mut self.added, below.added, own == Own::Added),
        ] {
            if member || !below.is_empty() {
                level.push(Node { element: element(), member, children: FieldSet::from_nodes(below) });
            }
        }
    }

    /// Compares the old and the new value at one step.
    fn step(
        &mut self,
        element: impl Fn() -> Element<'t>,
        of: OwnershipType<'_>,
        old: Option<&'t Value>,
        new: Option<&'t Value>,
        skip: Option<&FieldSet<'_>>,
    ) {
        cancellation::step();
        let skip = match skip.and_then(|skip| skip.get(&element())) {
            Some(node) if node.member => return,
            Some(node) => Some(&node.children).filter(|children| !children.is_empty()),
            None => None,
        };
        let mut found = Found::default();
        let own = match (old, new) {
            (None, None) => return,
            (None, Some(new)) => {
                found.added = present(of, new, skip);
                Own::Added
            }
            (Some(old), None) => {
                found.removed = present(of, old, skip);
                Own::Removed
            }
            (Some(old), Some(new)) if is_same(old, new) => return,
            (Some(old), Some(new)) => differing(of, old, new, skip, &mut found),
        };
        self.push(element, own, found);
    }
}

/// Returns whether two values are equal. Ignores the order of members and zero fractions of numbers.
pub(super) fn is_same(a: &Value, b: &Value) -> bool {
    cancellation::step();
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let same = |((a, old), (b, new)): ((&str, &Value), (&str, &Value))| a == b && is_same(old, new);
            if a.is_one_with(b) {
                return true;
            }
            if a.len() != b.len() {
                return false;
            }
            if a.iter().zip(b.iter()).all(|((a, _), (b, _))| a == b) {
                return a.iter().zip(b.iter()).all(same);
            }
            in_order(Some(a)).into_iter().zip(in_order(Some(b))).all(same)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Int(int), Value::Float(float)) | (Value::Float(float), Value::Int(int)) => {
            *int as f64 == *float
        }
        (a, b) => a == b,
    }
}

/// Returns the members, sorted by name.
fn in_order(object: Option<&Object>) -> Vec<(&str, &Value)> {
    let mut members: Vec<_> = object.map(|object| object.iter().collect()).unwrap_or_default();
    if !members.is_sorted_by(|(a, _), (b, _)| a <= b) {
        members.sort_by_key(|(name, _)| *name);
    }
    members
}

/// Compares two values that are not equal.
fn differing<'t>(
    of: OwnershipType<'_>,
    old: &'t Value,
    new: &'t Value,
    skip: Option<&FieldSet<'_>>,
    found: &mut Found<'t>,
) -> Own {
    cancellation::step();
    let (old_is, new_is) = (of.for_value(old), of.for_value(new));
    match new_is {
        OwnershipType::Scalar(_) => {
            // If a value without a schema changes its type, everything below the old value is removed.
            if let OwnershipType::Map { .. } = old_is
                && matches!(of, OwnershipType::Deduced)
            {
                found.removed = present(old_is, old, skip);
            }
            Own::Modified
        }
        OwnershipType::Struct { atomic: true, .. }
        | OwnershipType::Map { atomic: true, .. }
        | OwnershipType::List { list: ListType::Atomic, .. } => {
            if matches!((of, old_is), (OwnershipType::Deduced, OwnershipType::Map { .. })) {
                found.removed = present(old_is, old, skip);
            }
            Own::Modified
        }
        OwnershipType::Struct { message, .. } => {
            let (old, new) = (old.as_object(), new.as_object());
            if is_empty(old) && is_empty(new) {
                return Own::Modified;
            }
            structs(message, old, new, skip, found);
            Own::Same
        }
        OwnershipType::Map { .. } | OwnershipType::Deduced => {
            let was_leaf = matches!(
                (of, old_is),
                (OwnershipType::Deduced, OwnershipType::Scalar(_) | OwnershipType::List { .. })
            );
            let (old, new) = (old.as_object(), new.as_object());
            if is_empty(old) && is_empty(new) {
                return Own::Modified;
            }
            let value = match of {
                OwnershipType::Map { value, .. } => OwnershipType::of_kind(value),
                _ => OwnershipType::Deduced,
            };
            maps(value, old, new, skip, found);
            if was_leaf { Own::Modified } else { Own::Same }
        }
        OwnershipType::List { item, list } => {
            let (old, new) = (old.as_array().unwrap_or_default(), new.as_array().unwrap_or_default());
            if old.is_empty() && new.is_empty() {
                return Own::Modified;
            }
            lists(item, list, old, new, skip, found);
            Own::Same
        }
    }
}

/// Returns whether the object is absent or has no members.
pub(super) fn is_empty(object: Option<&Object>) -> bool {
    object.is_none_or(Object::is_empty)
}

fn structs<'t>(
    message: &Message,
    old: Option<&'t Object>,
    new: Option<&'t Object>,
    skip: Option<&FieldSet<'_>>,
    found: &mut Found<'t>,
) {
    let (before, after) = (old, new);
    let (mut declared_before, mut declared_after) = (Declared::new(), Declared::new());
    let old = old.map_or(&[][..], |object| declared_before.collect(message, object));
    let new = new.map_or(&[][..], |object| declared_after.collect(message, object));
    zip(old.iter().copied(), new.iter().copied(), |at, old, new| {
        let field = &message.fields[at];
        found.step(|| Element::Field(field.name.clone()), OwnershipType::of_field(field), old, new, skip);
    });
    if message.unknown == Unknown::Preserve {
        let unknown = |object: Option<&'t Object>| {
            let mut members = in_order(object);
            members.retain(|(name, _)| message.position(name.as_bytes()).is_none());
            members
        };
        zip(unknown(before).into_iter(), unknown(after).into_iter(), |name, old, new| {
            found.step(|| Element::field(name), OwnershipType::Deduced, old, new, skip);
        });
    }
}

fn maps<'t>(
    value: OwnershipType<'_>,
    old: Option<&'t Object>,
    new: Option<&'t Object>,
    skip: Option<&FieldSet<'_>>,
    found: &mut Found<'t>,
) {
    zip(in_order(old).into_iter(), in_order(new).into_iter(), |name, old, new| {
        found.step(|| Element::field(name), value, old, new, skip);
    });
}

/// Visits the entries of two ascending lists in order, and entries with equal keys together.
fn zip<'t, K: Copy + Ord>(
    old: impl Iterator<Item = (K, &'t Value)>,
    new: impl Iterator<Item = (K, &'t Value)>,
    mut visit: impl FnMut(K, Option<&'t Value>, Option<&'t Value>),
) {
    let (mut old, mut new) = (old.peekable(), new.peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let before = if order.is_le() { old.next() } else { None };
        let after = if order.is_ge() { new.next() } else { None };
        if let Some((key, _)) = before.or(after) {
            visit(key, before.map(|(_, value)| value), after.map(|(_, value)| value));
        }
    }
}

/// Returns the elements of a list with their steps, in ascending order of steps. Elements with equal steps
/// keep the order of the list. Elements without a step are left out, because a manager cannot own such elements.
pub(super) fn indexed<'t>(
    item: &Kind,
    list: &ListType,
    values: &'t [Value],
) -> Vec<(Element<'t>, &'t Value)> {
    let mut items: Vec<_> = values
        .iter()
        .filter_map(|value| item_element(item, list, value).ok().map(|element| (element, value)))
        .collect();
    if !items.is_sorted_by(|(a, _), (b, _)| a <= b) {
        items.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    items
}

/// Splits off the first run of equal steps of `items`.
pub(super) fn take_run<'s, 't>(items: &mut &'s [(Element<'t>, &'t Value)]) -> &'s [(Element<'t>, &'t Value)] {
    let len =
        items.first().map_or(0, |(first, _)| items.iter().take_while(|(other, _)| other == first).count());
    let (run, rest) = items.split_at(len);
    *items = rest;
    run
}

fn lists<'t>(
    item: &Kind,
    list: &ListType,
    old: &'t [Value],
    new: &'t [Value],
    skip: Option<&FieldSet<'_>>,
    found: &mut Found<'t>,
) {
    let of = OwnershipType::of_kind(item);
    let (old, new) = (indexed(item, list, old), indexed(item, list, new));
    let (mut old, mut new) = (old.as_slice(), new.as_slice());
    loop {
        let order = match (old.first(), new.first()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let before = if order.is_le() { take_run(&mut old) } else { &[] };
        let after = if order.is_ge() { take_run(&mut new) } else { &[] };
        let Some((element, _)) = before.first().or(after.first()) else { return };
        let one = |run: &[(Element<'t>, &'t Value)]| run.first().map(|(_, value)| *value);
        match (before, after) {
            ([] | [_], [] | [_]) => {
                found.step(|| element.clone(), of, one(before), one(after), skip);
            }
            // A repeated element is owned as a whole, without paths below it.
            ([_, _, ..], [_, _, ..]) => {
                let same = |((_, a), (_, b)): (&(Element<'t>, &Value), &(Element<'t>, &Value))| is_same(a, b);
                if before.len() != after.len() || !before.iter().zip(after).all(same) {
                    found.push(|| element.clone(), Own::Modified, Found::default());
                }
            }
            ([_, _, ..], _) => {
                found.step(|| element.clone(), of, None, one(after), skip);
                found.push(|| element.clone(), Own::Removed, Found::default());
            }
            (_, [_, _, ..]) => {
                found.step(|| element.clone(), of, one(before), None, skip);
                found.push(|| element.clone(), Own::Added, Found::default());
            }
        }
    }
}

/// Returns all paths below a value that only one side has.
fn present<'t>(of: OwnershipType<'_>, value: &'t Value, skip: Option<&FieldSet<'_>>) -> Vec<Node<'t>> {
    let mut nodes = Vec::new();
    let mut push = |element: Element<'t>, of: OwnershipType<'_>, value: &'t Value| {
        if let Some(node) = skip.and_then(|skip| skip.get(&element))
            && node.member
        {
            return;
        }
        let children = FieldSet::from_nodes(present(of, value, below(skip, &element)));
        nodes.push(Node { element, member: true, children });
    };
    match (of.for_value(value), value) {
        (OwnershipType::Struct { message, atomic: false }, Value::Object(object)) => {
            for &(at, value) in Declared::new().collect(message, object) {
                let field = &message.fields[at];
                push(Element::Field(field.name.clone()), OwnershipType::of_field(field), value);
            }
            if message.unknown == Unknown::Preserve {
                for (name, value) in
                    object.iter().filter(|(name, _)| message.position(name.as_bytes()).is_none())
                {
                    push(Element::field(name), OwnershipType::Deduced, value);
                }
            }
        }
        (OwnershipType::Map { value: of, atomic: false }, Value::Object(object)) => {
            for (name, value) in object.iter() {
                push(Element::field(name), OwnershipType::of_kind(of), value);
            }
        }
        (OwnershipType::List { list: ListType::Atomic, .. }, _) => {}
        (OwnershipType::List { item, list }, Value::Array(items)) => {
            let items = indexed(item, list, items);
            let mut rest = items.as_slice();
            while let [(element, value), ..] = rest {
                match take_run(&mut rest) {
                    [_] => push(element.clone(), OwnershipType::of_kind(item), value),
                    // A repeated element is owned as a whole.
                    _ => push(element.clone(), OwnershipType::Deduced, &NULL),
                }
            }
        }
        _ => {}
    }
    nodes
}

#[cfg(test)]
#[path = "compare_test.rs"]
mod tests;
