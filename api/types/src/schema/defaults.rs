//! Defaulting: what the server fills in where nothing was given (docs/api/validation.md#defaults).
//!
//! ```text
//! type ─► plan: assigned values + one rule in code + the fields below which there is something to do
//! ```
//!
//! A plan is made once per type and lives in it; applying it walks only where defaults can be. Parents come before what
//! is below them, so a rule sees its own members defaulted and those of its parts as they were given. Structs that are
//! absent because nothing was given for them (pointers) are left absent, whatever defaults they would hold. Rules in code
//! and the rounding of quantities are for built-in types only; defaults of elements, which `null` gets, and of parts of
//! metadata are for types made at run time.
//!
//! This module only adds, but for members that say the same as others (`defaults_aliases.rs`). What the server does to
//! new objects beyond defaults is the strategy's business.

use std::cell::LazyCell;

use hashbrown::HashSet;
use quantity::Quantity;

use super::compiled::Defaults;
use super::decode_form::{has_default, is_left_out, zero_object};
use super::defaults_rules;
use super::limits::Limits;
use super::table::{Element, Empty, Field, Kind, Message};
use values::cancellation;
use values::json::{self, Key, Object, Value};
use values::naming::Naming;

/// Tells apart the defaults of releases: a fingerprint of everything that decides them, made by the build.
pub const MARK: u64 = include!(concat!(env!("OUT_DIR"), "/defaults_mark.rs"));

/// Bytes of defaults after which no more are filled in: more than any stored object may have, so that a write of such an
/// object is refused for its size. A schema can ask for a large default in each element of a long list.
const BYTES_MAX: usize = engine::VALUE_BYTES_MAX;

/// Fills in the defaults of an object of type `message`, in place. Doing it again changes nothing.
///
/// The object is in the form that `decode` gives; members set here stand in schema order. One whose defaults are larger
/// than an object can be does not get all of them.
pub fn apply(message: &Message, object: &mut Object, naming: &'static Naming) {
    apply_within(message, object, naming, &mut 0);
}

/// The same, with `filled` bytes filled in before.
fn apply_within(message: &Message, object: &mut Object, naming: &'static Naming, filled: &mut usize) {
    let Some(plan) = plan(message) else { return };
    if *filled > BYTES_MAX {
        return;
    }
    assign(message, plan, object, filled);
    if let Some(rule) = plan.rule {
        rule(&mut Node { message, object }, naming);
    }
    for &at in &plan.below {
        let field = &message.fields[at];
        if is_struct_by_value(field) && object.get(&field.name).is_none_or(Value::is_null) {
            // Trees that were changed by hand may lack what decoding always gives.
            Node { message, object }.set(&field.name, Value::Object(Object::new()));
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

/// Fills in the defaults of the structs that a value is or has.
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

/// What a schema says of the metadata that stands at a field, if it has defaults for parts of it.
fn metadata_limits(field: &Field) -> Option<&Limits> {
    let is_metadata = matches!(&field.kind, Kind::Message(message) if !message.custom);
    field.limits.as_deref().filter(|limits| is_metadata && describes_defaults(limits))
}

/// Whether there are defaults for what is in a value.
fn describes_defaults(limits: &Limits) -> bool {
    let has_some = |part: &Limits| part.default.is_some() || describes_defaults(part);
    limits.schemas.as_deref().is_some_and(|schemas| {
        schemas.properties.iter().any(|(_, part)| has_some(part))
            || schemas.items.as_ref().is_some_and(has_some)
    })
}

/// Fills in what a schema says of parts of metadata.
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

/// Sets a member of a struct in schema order, or of a map in order of names.
fn insert(kind: &Kind, object: &mut Object, name: &str, value: Value) {
    if let Kind::Message(message) = kind {
        return Node { message, object }.set(name, value);
    }
    let members = object.members_mut();
    match members.binary_search_by(|(other, _)| (**other).cmp(name)) {
        Ok(at) => members[at].1 = value,
        Err(at) => members.insert(at, (Key::from(name.to_owned()), value)),
    }
}

/// What there is to do for objects of a type; `None` for nothing.
fn plan(message: &Message) -> Option<&Defaults> {
    let made = message.compiled.defaults.get_or_init(|| {
        let plan = make(message);
        let is_idle = plan.assigned.is_empty() && plan.below.is_empty() && plan.rule.is_none();
        (!is_idle).then(|| Box::new(plan))
    });
    made.as_deref()
}

fn make(message: &Message) -> Defaults {
    let assigned = message
        .fields
        .iter()
        .enumerate()
        .filter_map(|(at, field)| Some((at, json::parse(field.assigned.as_ref()?.as_bytes()).ok()?)));
    let has_work = |field: &Field| has_defaults_below(field, &mut HashSet::new());
    let below = message.fields.iter().enumerate().filter(|(_, field)| has_work(field));
    Defaults {
        assigned: assigned.collect(),
        rule: defaults_rules::of(message),
        below: below.map(|(at, _)| at).collect(),
    }
}

/// Whether there is something to fill in below a field.
fn has_defaults_below(field: &Field, seen: &mut HashSet<*const Message>) -> bool {
    field.resource_list || metadata_limits(field).is_some() || kind_has_defaults(&field.kind, seen)
}

/// Whether there is something to fill in in values of a kind. `seen` are the structs that were looked at already, known
/// by where they are for as long as the look takes.
fn kind_has_defaults<'m>(kind: &'m Kind, seen: &mut HashSet<*const Message>) -> bool {
    match kind {
        Kind::Message(message) => {
            let message: &'m Message = message;
            seen.insert(std::ptr::from_ref(message))
                && (defaults_rules::of(message).is_some()
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

/// Sets what is unset, walking members and values side by side.
fn assign(message: &Message, plan: &Defaults, object: &mut Object, filled: &mut usize) {
    let fields = &*message.fields;
    let members = object.members_mut();
    let (mut at, mut field_at) = (0, 0);
    for (target, value) in &plan.assigned {
        let target = *target;
        let field = &fields[target];
        // Where the field's member is, or else where it belongs.
        let found = loop {
            let Some((name, _)) = members.get(at) else { break false };
            match message.position(name.as_bytes()).filter(|position| field_at <= *position) {
                Some(position) if position < target => field_at = position + 1,
                Some(position) => break position == target,
                None => {} // no field's member, or one out of order
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

/// What is settled was given its defaults before it was stored, or by the backfill since.
fn is_complete(value: &Value) -> bool {
    value.as_object().is_some_and(Object::is_settled)
}

fn is_struct_by_value(field: &Field) -> bool {
    !field.pointer && matches!(field.kind, Kind::Message(_))
}

fn is_unset(field: &Field, value: &Value) -> bool {
    if field.empty != Empty::Absent {
        return value.is_null() && field.empty == Empty::Kept;
    }
    let zero_by_value = match value {
        Value::String(text) => !field.pointer && text.is_empty(),
        Value::Int(n) => !field.pointer && *n == 0,
        _ => false,
    };
    zero_by_value || is_left_out(field, value)
}

/// Rounds every quantity of a resource list up to thousandths.
fn round(list: &mut Value) {
    let Value::Object(list) = list else { return };
    for (_, value) in list.iter_mut() {
        let Value::String(text) = value else { continue };
        // Text is finer than a thousandth only with one of these in it.
        if text.bytes().any(|byte| matches!(byte, b'n' | b'u' | b'e' | b'E' | b'.'))
            && let Ok(quantity) = Quantity::parse(text)
            && let rounded = quantity.rounded_up_to_milli()
            && rounded != quantity
        {
            *text = rounded.to_text();
        }
    }
}

/// An object together with its type, as rules see it.
pub(super) struct Node<'o> {
    pub(super) message: &'o Message,
    pub(super) object: &'o mut Object,
}

impl<'o> Node<'o> {
    /// Whether nothing was given for the field.
    pub(super) fn is_unset(&self, name: &str) -> bool {
        let Some(value) = self.object.get(name) else { return true };
        match self.message.field(name) {
            Some(field) => is_unset(field, value),
            None => value.is_null(),
        }
    }

    /// The text of a string field; empty if there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.object.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Sets the field, in its place in schema order.
    pub(super) fn set(&mut self, name: &str, value: Value) {
        let Some(target) = self.message.position(name.as_bytes()) else { return };
        let field = &self.message.fields[target];
        if let Some(slot) = self.object.get_mut(name) {
            *slot = value;
            return;
        }
        let later = |name: &Key| self.message.position(name.as_bytes()).is_some_and(|at| at > target);
        let members = self.object.members_mut();
        let at = members.iter().position(|(name, _)| later(name)).unwrap_or(members.len());
        members.insert(at, (field.name.clone(), value));
    }

    /// Sets the field if nothing was given for it.
    pub(super) fn fill(&mut self, name: &str, value: impl FnOnce() -> Value) {
        if self.is_unset(name) {
            self.set(name, value());
        }
    }

    /// The struct at a field, if it is there and may lack defaults.
    pub(super) fn child(&mut self, name: &str) -> Option<Node<'_>> {
        let message = self.inner(name)?;
        let object = self.object.get_mut(name).filter(|value| !is_complete(value))?.as_object_mut()?;
        Some(Node { message, object })
    }

    /// The struct at a field, made if it is not there; `None` for one that lacks nothing.
    pub(super) fn child_or_new(&mut self, name: &str) -> Option<Node<'_>> {
        let message = self.inner(name)?;
        if self.object.get(name).is_none_or(|value| !matches!(value, Value::Object(_))) {
            self.set(name, Value::Object(zero_object(message)));
        }
        self.child(name)
    }

    /// Each struct of a list.
    pub(super) fn each(&mut self, name: &str, mut visit: impl FnMut(Node)) {
        let Some(message) = self.inner(name) else { return };
        let Some(items) = self.object.get_mut(name).and_then(Value::as_array_mut) else { return };
        for object in items.iter_mut().filter_map(Value::as_object_mut) {
            visit(Node { message, object });
        }
    }

    /// The members of a map field, if there are any.
    pub(super) fn map(&self, name: &str) -> Option<&Object> {
        self.object.get(name).and_then(Value::as_object).filter(|members| !members.is_empty())
    }

    fn inner(&self, name: &str) -> Option<&'o Message> {
        let message: &'o Message = self.message;
        match message.field(name)?.element() {
            Kind::Message(message) => Some(message),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "defaults_test.rs"]
mod tests;
