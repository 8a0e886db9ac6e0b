//! Two functions on typed values: lay a configuration over an object, and take fields out of it (semantics §7.4
//! steps 4 and 6).
//!
//! Merging never removes anything: where both speak of a leaf, the configuration wins; granular structs and maps are
//! merged member by member, keyed lists and sets element by element. Of a merged list, the elements of the
//! configuration keep its order, and the others keep their place among them.

use std::borrow::Cow;

use hashbrown::HashMap;

use super::check::TypeError;
use super::typed::{Type, item_element};
use crate::field::{Element, FieldSet};
use crate::json::{Key, Object, Value};
use crate::schema::table::{Kind, ListType, Message};

/// Lays `config` over `live`, both of type `message`.
///
/// # Errors
/// Elements of lists that cannot be told apart. The configuration was checked before, so it is the object that has
/// them.
pub fn merge(message: &'static Message, live: &Object, config: &Object) -> Result<Object, TypeError> {
    members(Type::of_message(message), Some(live), Some(config))
}

fn merged(of: Type, live: &Value, config: &Value) -> Result<Value, TypeError> {
    Ok(match of.for_value(config) {
        Type::Struct { atomic: true, .. } | Type::Map { atomic: true, .. } | Type::Scalar(_) => {
            config.clone()
        }
        Type::List { list: ListType::Atomic, .. } => config.clone(),
        Type::Struct { .. } | Type::Map { .. } | Type::Deduced => {
            let (live, config_members) = (live.as_object(), config.as_object());
            if live.is_none_or(Object::is_empty) && config_members.is_none_or(Object::is_empty) {
                return Ok(config.clone());
            }
            members(of, live, config_members)?.into()
        }
        Type::List { item, list } => {
            let (live, config_items) =
                (live.as_array().unwrap_or_default(), config.as_array().unwrap_or_default());
            if live.is_empty() && config_items.is_empty() {
                return Ok(config.clone());
            }
            Value::Array(items(item, list, live, config_items)?)
        }
    })
}

fn members(of: Type, live: Option<&Object>, config: Option<&Object>) -> Result<Object, TypeError> {
    let empty = Object::new();
    let (live, config) = (live.unwrap_or(&empty), config.unwrap_or(&empty));
    let mut over = Lookup::new(config);
    let mut result = Vec::with_capacity(live.len() + config.len());
    for (name, value) in live.iter() {
        let value = match over.take(name) {
            None => value.clone(),
            Some(config) => match of.step(&Element::field(name)) {
                Some(below) => {
                    merged(below, value, config).map_err(|error| error.within(Element::field(name)))?
                }
                None => config.clone(),
            },
        };
        result.push((Key::Owned(name.to_owned()), value));
    }
    for (name, value) in over.rest() {
        result.push((Key::Owned(name.to_owned()), value.clone()));
    }
    Ok(result.into_iter().collect())
}

/// The members of an object by name, each taken once. Scans while there are few, hashes when there are many.
struct Lookup<'o> {
    object: &'o Object,
    by_name: Option<HashMap<&'o str, usize>>,
    members: Vec<Option<(&'o str, &'o Value)>>,
}

impl<'o> Lookup<'o> {
    fn new(object: &'o Object) -> Self {
        const SCAN_MAX: usize = 32;
        let members: Vec<_> = object.iter().map(Some).collect();
        let by_name = (members.len() > SCAN_MAX)
            .then(|| object.iter().enumerate().map(|(at, (name, _))| (name, at)).collect());
        Lookup { object, by_name, members }
    }

    fn take(&mut self, name: &str) -> Option<&'o Value> {
        let at = match &self.by_name {
            Some(by_name) => by_name.get(name).copied()?,
            None => self.object.iter().position(|(other, _)| other == name)?,
        };
        self.members[at].take().map(|(_, value)| value)
    }

    fn rest(self) -> impl Iterator<Item = (&'o str, &'o Value)> {
        self.members.into_iter().flatten()
    }
}

/// An element of a list: its step and its value.
type Item<'v> = (Element<'v>, &'v Value);

fn indexed<'v>(item: Kind, list: ListType, values: &'v [Value]) -> Result<Vec<Item<'v>>, TypeError> {
    values
        .iter()
        .enumerate()
        .map(|(at, value)| match item_element(item, list, value) {
            Ok(element) => Ok((element, value)),
            Err(error) => Err(TypeError::new(format!("element {at}: {error}"))),
        })
        .collect()
}

/// Merges the elements of two lists.
///
/// Both are walked at once. An element that only the object has is taken where it stands; one that both have is taken
/// where the configuration has it. An element that the object has twice is replaced, not merged, where the
/// configuration has it.
fn items(item: Kind, list: ListType, live: &[Value], config: &[Value]) -> Result<Vec<Value>, TypeError> {
    let of = Type::of_kind(item);
    let live = indexed(item, list, live)?;
    let config = indexed(item, list, config)?;
    let in_config = positions(&config);
    let in_live = positions(&live);
    // What both have, in the order of the configuration.
    let mut shared = config.iter().map(|(element, _)| element).filter(|element| in_live.has(element));
    let mut next_shared = shared.next();
    let mut is_merged = vec![false; config.len()];
    let mut result = Vec::with_capacity(live.len().max(config.len()));
    let (mut at_live, mut at_config) = (0, 0);
    let merge_at = |at: usize| -> Result<Value, TypeError> {
        let (element, value) = &config[at];
        match in_live.only(element).map(|at| live[at].1) {
            Some(live) => merged(of, live, value).map_err(|error| error.within(element.clone())),
            None => Ok((*value).clone()),
        }
    };
    while at_live < live.len() || at_config < config.len() {
        if let Some((element, value)) = live.get(at_live) {
            let partner = in_config.first(element);
            if at_config < config.len() {
                if *element == config[at_config].0 {
                    is_merged[at_config] = true;
                    result.push(merge_at(at_config)?);
                    at_live += 1;
                    at_config += 1;
                    next_shared = shared.next();
                    continue;
                }
                if partner.is_some() && next_shared.is_some_and(|next| next != element) {
                    at_live += 1; // shared, but another one is next
                    continue;
                }
            }
            match partner {
                None => {
                    result.push((*value).clone());
                    at_live += 1;
                    continue;
                }
                // Merged already: not taken twice.
                Some(at) if is_merged[at] => at_live += 1,
                Some(_) => {}
            }
        }
        if at_config < config.len() {
            is_merged[at_config] = true;
            result.push(merge_at(at_config)?);
            if next_shared == Some(&config[at_config].0) {
                next_shared = shared.next();
            }
            at_config += 1;
        }
    }
    Ok(result)
}

/// Places of the elements of a list, ascending by step.
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

    /// The place of an element that comes once.
    fn only(&self, element: &Element<'_>) -> Option<usize> {
        match self.range(element) {
            [(_, at)] => Some(*at),
            _ => None,
        }
    }
}

/// Takes the members of `fields` out of `object`. Structs, maps and lists of which nothing is left become `null`.
pub fn remove(message: &'static Message, object: &Object, fields: &FieldSet<'_>) -> Object {
    without_members(Type::of_message(message), object, fields).unwrap_or_default()
}

fn without(of: Type, value: &Value, fields: &FieldSet<'_>) -> Value {
    match (of.for_value(value), value) {
        (Type::Scalar(_), _) => value.clone(),
        (Type::Struct { atomic: false, .. } | Type::Map { atomic: false, .. }, Value::Object(object)) => {
            without_members(of, object, fields).map_or(Value::Null, Value::Object)
        }
        (Type::List { item, list }, Value::Array(values)) if list != ListType::Atomic => {
            let of = Type::of_kind(item);
            let mut kept = Vec::with_capacity(values.len());
            for value in values {
                match item_element(item, list, value).ok().and_then(|element| fields.get(&element)) {
                    Some(node) if node.member => {}
                    Some(node) => kept.push(match without(of, value, &node.children) {
                        // Still the element with the keys that it has by default.
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

fn without_members(of: Type, object: &Object, fields: &FieldSet<'_>) -> Option<Object> {
    let mut kept: Vec<(Key, Value)> = Vec::with_capacity(object.len());
    for (name, value) in object.iter() {
        let element = Element::Field(Cow::Borrowed(name));
        let value = match (fields.get(&element), of.step(&element)) {
            (Some(node), _) if node.member => continue,
            (Some(node), Some(below)) => without(below, value, &node.children),
            _ => value.clone(),
        };
        kept.push((Key::Owned(name.to_owned()), value));
    }
    (!kept.is_empty()).then(|| kept.into_iter().collect())
}

#[cfg(test)]
#[path = "merge_test.rs"]
mod tests;
