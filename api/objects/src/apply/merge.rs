//! Merges a configuration into an object, and removes fields from an object (steps 4 and 6 of
//! docs/api/apply.md#apply).
//!
//! A merge removes no fields. If both sides have a leaf, the leaf of the configuration wins. Granular structs
//! and maps are merged member by member; keyed lists and sets are merged element by element. In a merged
//! list, the elements of the configuration keep the order of the configuration, and the other elements keep their
//! positions relative to the elements of the configuration.

use std::borrow::Cow;

use hashbrown::HashMap;

use super::check::TypeError;
use super::typed::{OwnershipType, item_element, same_item};
use types::schema::table::{Kind, ListType, Message};
use values::cancellation;
use values::field::{Element, FieldSet};
use values::json::{Key, Object, Value};

/// Merges `config` into `live`, both of type `message`.
///
/// # Errors
/// Fails if list elements of the object cannot be distinguished. The elements of the configuration were
/// checked before.
pub fn merge(message: &Message, live: &Object, config: &Object) -> Result<Object, TypeError> {
    let mut merged = live.clone();
    members(OwnershipType::of_message(message), &mut merged, config)?;
    Ok(merged)
}

/// Merges `config` into the value `live`. Unchanged parts are not copied.
fn lay(of: OwnershipType<'_>, live: &mut Value, config: &Value) -> Result<(), TypeError> {
    cancellation::step();
    match of.for_value(config) {
        OwnershipType::Scalar(_)
        | OwnershipType::Struct { atomic: true, .. }
        | OwnershipType::Map { atomic: true, .. }
        | OwnershipType::List { list: ListType::Atomic, .. } => replace(live, config),
        OwnershipType::Struct { .. } | OwnershipType::Map { .. } | OwnershipType::Deduced => {
            if live.as_object().is_some_and(Object::is_settled) && is_unchanged_by(of, live, config) {
                return Ok(()); // the value stays shared with the live object
            }
            let config_members = config.as_object().filter(|members| !members.is_empty());
            if config_members.is_none() && live.as_object().is_none_or(Object::is_empty) {
                replace(live, config);
                return Ok(());
            }
            if live.as_object().is_none() {
                *live = Object::new().into();
            }
            if let (Some(live), Some(config)) = (live.as_object_mut(), config_members) {
                members(of, live, config)?;
            }
        }
        OwnershipType::List { item, list } => {
            let config_items = config.as_array().unwrap_or_default();
            if config_items.is_empty() && live.as_array().is_none_or(<[Value]>::is_empty) {
                replace(live, config);
                return Ok(());
            }
            if live.as_array().is_none() {
                *live = Value::Array(Vec::new());
            }
            if let Some(live) = live.as_array_mut() {
                items(item, list, live, config_items)?;
            }
        }
    }
    Ok(())
}

/// Returns whether merging `config` certainly leaves the live value unchanged. The function may return false
/// for a merge that changes nothing.
fn is_unchanged_by(of: OwnershipType<'_>, live: &Value, config: &Value) -> bool {
    cancellation::step();
    match (of.for_value(config), live, config) {
        (
            OwnershipType::Struct { atomic: false, .. } | OwnershipType::Map { atomic: false, .. },
            Value::Object(live),
            Value::Object(config),
        ) => {
            let mut positions = MemberPositions::new(live);
            config.members().iter().all(|(name, value)| {
                let Some(at) = positions.find(live, name) else { return false };
                let slot = &live.members()[at].1;
                match of.step(&Element::field(&**name)) {
                    Some(below) => is_unchanged_by(below, slot, value),
                    None => slot == value,
                }
            })
        }
        (OwnershipType::List { item, list }, Value::Array(live), Value::Array(config))
            if *list != ListType::Atomic =>
        {
            let of = OwnershipType::of_kind(item);
            live.len() == config.len()
                && live.iter().zip(config).all(|(live, config)| {
                    same_item(item, list, live, config) && is_unchanged_by(of, live, config)
                })
        }
        _ => live == config,
    }
}

/// Replaces `live` if the values differ.
fn replace(live: &mut Value, config: &Value) {
    if live != config {
        *live = config.clone();
    }
}

fn members(of: OwnershipType<'_>, live: &mut Object, config: &Object) -> Result<(), TypeError> {
    let mut positions = MemberPositions::new(live);
    for (name, value) in config.members() {
        let Some(at) = positions.find(live, name) else {
            live.members_mut().push((name.clone(), value.clone()));
            continue;
        };
        let slot = &mut live.members_mut()[at].1;
        match of.step(&Element::field(&**name)) {
            Some(below) => lay(below, slot, value).map_err(|error| error.within(Element::field(&**name)))?,
            None => replace(slot, value),
        }
    }
    live.index_members();
    Ok(())
}

/// Positions of the members of an object. A search in a small object starts after the last position that was
/// found; a large object has a hash index. Members that are added later are not included.
struct MemberPositions {
    count: usize,
    next: usize,
    by_name: Option<HashMap<Key, usize>>,
}

impl MemberPositions {
    fn new(object: &Object) -> Self {
        const SCAN_MAX: usize = 32;
        let names = || object.members().iter().enumerate().map(|(at, (name, _))| (name.clone(), at));
        let by_name = (object.len() > SCAN_MAX).then(|| names().collect());
        MemberPositions { count: object.len(), next: 0, by_name }
    }

    fn find(&mut self, object: &Object, name: &str) -> Option<usize> {
        if let Some(by_name) = &self.by_name {
            return by_name.get(name).copied();
        }
        let members = &object.members()[..self.count];
        let is_it = |(other, _): &(Key, Value)| other == name;
        let ahead = members[self.next..].iter().position(is_it).map(|ahead| self.next + ahead);
        let at = ahead.or_else(|| members[..self.next].iter().position(is_it))?;
        self.next = at + 1;
        Some(at)
    }
}

/// A list element: the step to the element, and its value.
type Item<'v> = (Element<'v>, &'v Value);

fn indexed<'v>(item: &Kind, list: &ListType, values: &'v [Value]) -> Result<Vec<Item<'v>>, TypeError> {
    values
        .iter()
        .enumerate()
        .map(|(at, value)| match item_element(item, list, value) {
            Ok(element) => Ok((element, value)),
            Err(error) => Err(TypeError::new(format!("element {at}: {error}"))),
        })
        .collect()
}

/// Source of an element of a merged list.
#[derive(Clone, Copy)]
enum Source {
    /// The element is only in the object, at this position.
    Live(usize),
    /// The element is in the configuration, at this position. The object does not contain the element, or
    /// contains it more than once.
    Config(usize),
    /// The object and the configuration contain the element, at these positions.
    Both { live: usize, config: usize },
}

/// Merges the elements of two lists.
fn items(item: &Kind, list: &ListType, live: &mut Vec<Value>, config: &[Value]) -> Result<(), TypeError> {
    let of = OwnershipType::of_kind(item);
    let lay_one = |live: &mut Value, config: &Value| {
        let within = |error: TypeError| match item_element(item, list, config) {
            Ok(element) => error.within(element),
            Err(_) => error,
        };
        lay(of, live, config).map_err(within)
    };
    // Fast path: in most cases both lists have the same elements in the same order. The configuration has no
    // repeated elements, because it was checked before.
    if live.len() == config.len() && live.iter().zip(config).all(|(a, b)| same_item(item, list, a, b)) {
        return live.iter_mut().zip(config).try_for_each(|(live, config)| lay_one(live, config));
    }
    let plan = plan(&indexed(item, list, live)?, &indexed(item, list, config)?);
    let mut result = Vec::with_capacity(plan.len());
    for source in plan {
        result.push(match source {
            Source::Live(at) => std::mem::take(&mut live[at]),
            Source::Config(at) => config[at].clone(),
            Source::Both { live: at, config: other } => {
                let mut merged = std::mem::take(&mut live[at]);
                lay_one(&mut merged, &config[other])?;
                merged
            }
        });
    }
    *live = result;
    Ok(())
}

/// Returns the order of a merged list.
///
/// The function walks both lists at once. An element that only the object has keeps its position. An element
/// that both lists have follows the order of the configuration. An element that the live list contains more
/// than once is replaced instead of merged, at its position in the configuration.
fn plan(live: &[Item<'_>], config: &[Item<'_>]) -> Vec<Source> {
    let in_config = positions(config);
    let in_live = positions(live);
    // The elements that both have, in the order of the configuration.
    let mut shared = config.iter().map(|(element, _)| element).filter(|element| in_live.has(element));
    let mut next_shared = shared.next();
    let mut is_merged = vec![false; config.len()];
    let mut result = Vec::with_capacity(live.len().max(config.len()));
    let (mut at_live, mut at_config) = (0, 0);
    let merged = |at: usize| match in_live.only(&config[at].0) {
        Some(live) => Source::Both { live, config: at },
        None => Source::Config(at),
    };
    while at_live < live.len() || at_config < config.len() {
        if let Some((element, _)) = live.get(at_live) {
            let partner = in_config.first(element);
            if at_config < config.len() {
                if *element == config[at_config].0 {
                    is_merged[at_config] = true;
                    result.push(merged(at_config));
                    at_live += 1;
                    at_config += 1;
                    next_shared = shared.next();
                    continue;
                }
                if partner.is_some() && next_shared.is_some_and(|next| next != element) {
                    at_live += 1; // both lists have the element, but the next element of the configuration is different
                    continue;
                }
            }
            match partner {
                None => {
                    result.push(Source::Live(at_live));
                    at_live += 1;
                    continue;
                }
                // This element was already merged.
                Some(at) if is_merged[at] => at_live += 1,
                Some(_) => {}
            }
        }
        if at_config < config.len() {
            is_merged[at_config] = true;
            result.push(merged(at_config));
            if next_shared == Some(&config[at_config].0) {
                next_shared = shared.next();
            }
            at_config += 1;
        }
    }
    result
}

/// Positions of the elements of a list, sorted by the step to the element.
struct Positions<'p, 'v> {
    sorted: Vec<(&'p Element<'v>, usize)>,
}

fn positions<'p, 'v>(items: &'p [Item<'v>]) -> Positions<'p, 'v> {
    let mut sorted: Vec<_> = items.iter().enumerate().map(|(at, (element, _))| (element, at)).collect();
    sorted.sort();
    Positions { sorted }
}

impl Positions<'_, '_> {
    fn range(&self, element: &Element<'_>) -> &[(&Element<'_>, usize)] {
        let start = self.sorted.partition_point(|(other, _)| *other < element);
        let len = self.sorted[start..].partition_point(|(other, _)| *other == element);
        &self.sorted[start..start + len]
    }

    fn has(&self, element: &Element<'_>) -> bool {
        !self.range(element).is_empty()
    }

    fn first(&self, element: &Element<'_>) -> Option<usize> {
        self.range(element).first().map(|(_, at)| *at)
    }

    /// Returns the position of an element that occurs exactly once.
    fn only(&self, element: &Element<'_>) -> Option<usize> {
        match self.range(element) {
            [(_, at)] => Some(*at),
            _ => None,
        }
    }
}

/// Removes the members of `fields` from `object`. Structs, maps and lists that become empty are set to
/// `null`.
pub fn remove(message: &Message, object: &Object, fields: &FieldSet<'_>) -> Object {
    without_members(OwnershipType::of_message(message), object, fields).unwrap_or_default()
}

fn without(of: OwnershipType<'_>, value: &Value, fields: &FieldSet<'_>) -> Value {
    cancellation::step();
    match (of.for_value(value), value) {
        (OwnershipType::Scalar(_), _) => value.clone(),
        (
            OwnershipType::Struct { atomic: false, .. } | OwnershipType::Map { atomic: false, .. },
            Value::Object(object),
        ) => without_members(of, object, fields).map_or(Value::Null, Value::Object),
        (OwnershipType::List { item, list }, Value::Array(values)) if *list != ListType::Atomic => {
            let of = OwnershipType::of_kind(item);
            let mut kept = Vec::with_capacity(values.len());
            for value in values {
                match item_element(item, list, value).ok().and_then(|element| fields.get(&element)) {
                    Some(node) if node.member => {}
                    Some(node) => kept.push(match without(of, value, &node.children) {
                        // An element without members still exists, because its keys have default values.
                        Value::Null => Object::new().into(),
                        left => left,
                    }),
                    None => kept.push(value.clone()),
                }
            }
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        _ => Value::Null,
    }
}

fn without_members(of: OwnershipType<'_>, object: &Object, fields: &FieldSet<'_>) -> Option<Object> {
    let mut kept: Vec<(Key, Value)> = Vec::with_capacity(object.len());
    for (name, value) in object.members() {
        let element = Element::Field(Cow::Borrowed(&**name));
        let value = match (fields.get(&element), of.step(&element)) {
            (Some(node), _) if node.member => continue,
            (Some(node), Some(below)) => without(below, value, &node.children),
            _ => value.clone(),
        };
        kept.push((name.clone(), value));
    }
    (!kept.is_empty()).then(|| kept.into_iter().collect())
}

#[cfg(test)]
#[path = "merge_test.rs"]
mod tests;
