//! Defaulting: values that the server fills in for absent fields (docs/api/validation.md#defaults).
//!
//! ```text
//! type ─► plan: assigned values + one rule in code + the fields below which there are defaults
//! ```
//!
//! A plan is made once per type and is stored in the type. The application of a plan visits only the fields
//! that can have defaults. Parents are defaulted before their parts. When a rule runs, the members of its
//! struct already have defaults, and the nested structs are still as the client sent them. Structs that are
//! absent and optional (pointers) stay absent, even if their fields have defaults. Rules in code and the
//! rounding of quantities are for built-in types only. Defaults of elements, which replace `null`, and
//! defaults for parts of metadata are for types made at run time.
//!
//! This module only adds values, except for members that duplicate other members (`defaults_aliases.rs`). The
//! strategy makes all other changes to new objects.

use std::cell::LazyCell;

use hashbrown::HashSet;
use quantity::Quantity;

use super::compiled::Defaults;
use super::decode_form::has_default;
use super::defaults_rules;
use super::limits::Limits;
use super::table::{Element, Field, Kind, Message};
use super::typed_object::{TypedObject, is_complete, is_unset};
use values::cancellation;
use values::json::{self, Key, Object, Value};
use values::naming::Naming;

/// Fingerprint of everything that determines the defaults, computed by the build. The fingerprint differs
/// between releases with different defaults.
pub const MARK: u64 = include!(concat!(env!("OUT_DIR"), "/defaults_mark.rs"));

/// Number of bytes of defaults after which no further defaults are filled in. The limit is necessary because a schema
/// can require a large default in each element of a long list. An object that reaches the limit cannot be stored, so
/// the write is rejected for the size of the object.
const BYTES_MAX: usize = engine::VALUE_BYTES_MAX;

/// Fills in the defaults of an object of type `message`, in place. The operation is idempotent.
///
/// The object has the form that `decode` returns. Members that are set here are inserted in schema order. If
/// the defaults exceed the maximum size of an object, the object gets only some defaults.
pub fn apply(message: &Message, object: &mut Object, naming: &'static Naming) {
    apply_within(message, object, naming, &mut 0);
}

/// Fills in defaults like [`apply`], after `filled` bytes of defaults were already filled in.
fn apply_within(message: &Message, object: &mut Object, naming: &'static Naming, filled: &mut usize) {
    let Some(plan) = plan(message) else { return };
    if *filled > BYTES_MAX {
        return;
    }
    assign(message, plan, object, filled);
    if let Some(rule) = defaults_rules::default_rule(message) {
        rule(&mut TypedObject { message, object }, naming);
    }
    for &at in &plan.below {
        let field = &message.fields[at];
        if is_struct_by_value(field) && object.get(&field.name).is_none_or(Value::is_null) {
            // Trees that code has changed may lack members that decoding always adds.
            TypedObject { message, object }.set(&field.name, Value::Object(Object::new()));
        }
        if object.get(&field.name).is_some_and(is_complete) {
            continue;
        }
        match object.get_mut(&field.name) {
            None => {}
            Some(value) if field.resource_list => round(value),
            Some(value) => match metadata_limits(field) {
                Some(limits) => assign_described(&field.kind, limits, value, filled),
                None => apply_below(&field.kind, value, naming, filled),
            },
        }
    }
}

/// Fills in the defaults of the structs in a value, including the value itself.
fn apply_below(kind: &Kind, value: &mut Value, naming: &'static Naming, filled: &mut usize) {
    cancellation::step();
    match (kind, value) {
        (Kind::Message(message), Value::Object(object)) => apply_within(message, object, naming, filled),
        (Kind::List(list), Value::Array(items)) => {
            apply_to_each(&list.item, items.iter_mut(), naming, filled);
        }
        (Kind::Map(map), Value::Object(members)) => {
            apply_to_each(&map.value, members.iter_mut().map(|(_, value)| value), naming, filled);
        }
        _ => {}
    }
}

/// Fills in the defaults of the elements of a list, or of the values of a map.
fn apply_to_each<'v>(
    element: &Element,
    values: impl Iterator<Item = &'v mut Value>,
    naming: &'static Naming,
    filled: &mut usize,
) {
    let default = LazyCell::new(|| {
        let text = element.limits.as_deref().filter(|_| has_default(element))?.default.as_ref()?;
        Some((json::parse(text.as_bytes()).ok()?, text.len()))
    });
    for value in values {
        if value.is_null()
            && *filled <= BYTES_MAX
            && let Some((default, bytes)) = &*default
        {
            *value = default.clone();
            *filled += bytes;
        }
        apply_below(&element.kind, value, naming, filled);
    }
}

/// Returns the constraints that a custom schema has for the metadata at a field, if the constraints include defaults
/// for parts of the metadata.
fn metadata_limits(field: &Field) -> Option<&Limits> {
    let is_metadata = matches!(&field.kind, Kind::Message(message) if !message.custom);
    field.limits.as_deref().filter(|limits| is_metadata && describes_defaults(limits))
}

/// Returns whether there are defaults for parts of a value.
fn describes_defaults(limits: &Limits) -> bool {
    let has_some = |part: &Limits| part.default.is_some() || describes_defaults(part);
    limits.schemas.as_deref().is_some_and(|schemas| {
        schemas.properties.iter().any(|(_, part)| has_some(part))
            || schemas.items.as_ref().is_some_and(has_some)
    })
}

/// Fills in the defaults of a custom schema for parts of metadata.
fn assign_described(kind: &Kind, limits: &Limits, value: &mut Value, filled: &mut usize) {
    cancellation::step();
    let Some(schemas) = limits.schemas.as_deref() else { return };
    match (kind, value) {
        (Kind::Message(_) | Kind::Map(_), Value::Object(object)) => {
            for (name, part) in &schemas.properties {
                let below = match kind {
                    Kind::Message(message) => message.field(name).map(|field| &field.kind),
                    _ => Some(kind.element()),
                };
                let Some(below) = below else { continue };
                if object.get(name).is_none_or(Value::is_null)
                    && let Some(default) = described_default(part, filled)
                {
                    insert(kind, object, name, default);
                }
                if let Some(value) = object.get_mut(name) {
                    assign_described(below, part, value, filled);
                }
            }
        }
        (Kind::List(list), Value::Array(items)) => {
            let Some(part) = &schemas.items else { return };
            items.iter_mut().for_each(|item| assign_described(&list.item.kind, part, item, filled));
        }
        _ => {}
    }
}

fn described_default(part: &Limits, filled: &mut usize) -> Option<Value> {
    let text = part.default.as_ref().filter(|_| *filled <= BYTES_MAX)?;
    *filled += text.len();
    json::parse(text.as_bytes()).ok()
}

/// Sets a member: in schema order in a struct, and in name order in a map.
fn insert(kind: &Kind, object: &mut Object, name: &str, value: Value) {
    if let Kind::Message(message) = kind {
        return TypedObject { message, object }.set(name, value);
    }
    let members = object.members_mut();
    match members.binary_search_by(|(other, _)| (**other).cmp(name)) {
        Ok(at) => members[at].1 = value,
        Err(at) => members.insert(at, (Key::from(name.to_owned()), value)),
    }
}

/// Returns the plan for objects of a type; `None` if the type has no defaults.
fn plan(message: &Message) -> Option<&Defaults> {
    let plan = message.compiled.defaults.get_or_init(|| {
        let plan = make(message);
        let has_rule = defaults_rules::default_rule(message).is_some();
        let is_idle = plan.assigned.is_empty() && plan.below.is_empty() && !has_rule;
        (!is_idle).then(|| Box::new(plan))
    });
    plan.as_deref()
}

fn make(message: &Message) -> Defaults {
    let assigned = message
        .fields
        .iter()
        .enumerate()
        .filter_map(|(at, field)| Some((at, json::parse(field.assigned.as_ref()?.as_bytes()).ok()?)));
    let has_work = |field: &Field| has_defaults_below(field, &mut HashSet::new());
    let below = message.fields.iter().enumerate().filter(|(_, field)| has_work(field));
    Defaults { assigned: assigned.collect(), below: below.map(|(at, _)| at).collect() }
}

/// Returns whether there are defaults below a field.
fn has_defaults_below(field: &Field, seen: &mut HashSet<*const Message>) -> bool {
    field.resource_list || metadata_limits(field).is_some() || kind_has_defaults(&field.kind, seen)
}

/// Returns whether there are defaults in values of a kind. `seen` contains the structs that were already
/// visited, identified by their addresses, which are stable during the search.
fn kind_has_defaults<'m>(kind: &'m Kind, seen: &mut HashSet<*const Message>) -> bool {
    match kind {
        Kind::Message(message) => {
            let message: &'m Message = message;
            seen.insert(std::ptr::from_ref(message))
                && (defaults_rules::default_rule(message).is_some()
                    || message
                        .fields
                        .iter()
                        .any(|field| field.assigned.is_some() || has_defaults_below(field, seen)))
        }
        Kind::List(list) => has_default(&list.item) || kind_has_defaults(&list.item.kind, seen),
        Kind::Map(map) => has_default(&map.value) || kind_has_defaults(&map.value.kind, seen),
        _ => false,
    }
}

/// Sets the absent fields of the plan. The function steps through the members and the plan in parallel.
fn assign(message: &Message, plan: &Defaults, object: &mut Object, filled: &mut usize) {
    let fields = &*message.fields;
    let members = object.members_mut();
    let (mut at, mut field_at) = (0, 0);
    for (target, value) in &plan.assigned {
        let target = *target;
        let field = &fields[target];
        // After this loop, `at` is the position of the field's member, or the position at which to insert the
        // member.
        let found = loop {
            let Some((name, _)) = members.get(at) else { break false };
            match message.position(name.as_bytes()).filter(|position| field_at <= *position) {
                Some(position) if position < target => field_at = position + 1,
                Some(position) => break position == target,
                None => {} // an undeclared member, or a member out of order
            }
            at += 1;
        };
        if found {
            if !is_unset(field, &members[at].1) {
                continue;
            }
            members[at].1 = value.clone();
        } else if members[at..].iter().any(|(name, _)| *name == field.name) {
            continue;
        } else {
            members.insert(at, (field.name.clone(), value.clone()));
        }
        *filled += field.assigned.as_ref().map_or(0, |text| text.len());
        if *filled > BYTES_MAX {
            return;
        }
    }
}

fn is_struct_by_value(field: &Field) -> bool {
    !field.pointer && matches!(field.kind, Kind::Message(_))
}

/// Rounds every quantity of a resource list up to thousandths.
fn round(list: &mut Value) {
    let Value::Object(list) = list else { return };
    for (_, value) in list.iter_mut() {
        let Value::String(text) = value else { continue };
        // Text can be more precise than a thousandth only if it contains one of these characters.
        if text.bytes().any(|byte| matches!(byte, b'n' | b'u' | b'e' | b'E' | b'.'))
            && let Ok(quantity) = Quantity::parse(text)
            && let rounded = quantity.rounded_up_to_milli()
            && rounded != quantity
        {
            *text = rounded.to_text();
        }
    }
}

#[cfg(test)]
#[path = "defaults_test.rs"]
mod tests;
