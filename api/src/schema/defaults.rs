//! Defaulting: what the server fills in where nothing was given (facts: defaults).
//!
//! ```text
//! type ─► plan: assigned values + one rule in code + the fields below which there is something to do
//! ```
//!
//! A plan is made once per type and kept; applying it walks only where defaults can be. Parents come before what is
//! below them, so a rule sees its own members defaulted and those of its parts as they were given. Structs that are
//! absent because nothing was given for them (pointers) are left absent, whatever defaults they would hold.
//!
//! This module only adds, but for members that say the same as others (`defaults_aliases.rs`). What the server does to
//! new objects beyond defaults is the strategy's business.

use std::sync::{Arc, LazyLock};

use hashbrown::HashMap;
use parking_lot::RwLock;

use super::decode_form::{is_left_out, zero_object};
use super::defaults_rules::{self, Rule};
use super::scalars::quantity::Quantity;
use super::table::{Field, Kind, Message, Shape};
use crate::json::{self, Key, Object, Value};
use crate::naming::Naming;

/// Tells apart the defaults of releases: a fingerprint of everything that decides them, made by the build.
pub const MARK: u64 = include!(concat!(env!("OUT_DIR"), "/defaults_mark.rs"));

/// Fills in the defaults of an object of type `message`, in place. Doing it again changes nothing.
///
/// The object is in the form that `decode` gives; members set here stand in schema order.
pub fn apply(message: &'static Message, object: &mut Object, naming: &'static Naming) {
    if let Some(plan) = plan_of(message, naming) {
        plan.apply(object, naming);
    }
}

/// What there is to do for objects of one type.
struct Plan {
    message: &'static Message,
    /// Position of the field and its value, ascending.
    assigned: Vec<(u16, Value)>,
    rule: Option<Rule>,
    below: Vec<Below>,
}

/// A field with something to do below it.
struct Below {
    field: &'static Field,
    work: Work,
}

enum Work {
    /// Structs with a plan of their own.
    Plan(Arc<Plan>),
    /// A map of resource quantities, each rounded up to thousandths.
    Round,
}

/// Plans by vocabulary and type; `None` where there is nothing to do. Tables live as long as the process.
type Plans = HashMap<(usize, usize), Option<Arc<Plan>>>;
static PLANS: LazyLock<RwLock<Plans>> = LazyLock::new(Default::default);

fn plan_of(message: &'static Message, naming: &'static Naming) -> Option<Arc<Plan>> {
    let key = (std::ptr::from_ref(naming).addr(), std::ptr::from_ref(message).addr());
    if let Some(plan) = PLANS.read().get(&key) {
        return plan.clone();
    }
    let plan = Maker { naming, made: HashMap::new() }.plan(message);
    PLANS.write().insert(key, plan.clone());
    plan
}

/// Makes the plan of a type and of everything below it.
struct Maker {
    naming: &'static Naming,
    made: HashMap<usize, Option<Arc<Plan>>>,
}

impl Maker {
    fn plan(&mut self, message: &'static Message) -> Option<Arc<Plan>> {
        let key = std::ptr::from_ref(message).addr();
        if let Some(plan) = self.made.get(&key) {
            return plan.clone();
        }
        // Types that contain themselves (schemas) have no defaults inside the cycle, so an unfinished plan is none.
        self.made.insert(key, None);
        let plan = self.make(message).map(Arc::new);
        self.made.insert(key, plan.clone());
        plan
    }

    fn make(&mut self, message: &'static Message) -> Option<Plan> {
        let naming = self.naming;
        let package = message.package.strip_prefix(naming.system_prefix).unwrap_or(message.package);
        let name = format!("{package}.{}", message.name);
        let assigned: Vec<(u16, Value)> = (0u16..)
            .zip(message.fields)
            .filter_map(|(at, field)| Some((at, json::parse(field.assigned?.as_bytes()).ok()?)))
            .collect();
        let below: Vec<Below> = message
            .fields
            .iter()
            .filter_map(|field| {
                let work = match field.kind {
                    Kind::Message(inner) => Work::Plan(self.plan(inner)?),
                    Kind::Quantity if is_resource_list(message, field) => Work::Round,
                    _ => return None,
                };
                Some(Below { field, work })
            })
            .collect();
        let rule = defaults_rules::rule(&name);
        let idle = assigned.is_empty() && below.is_empty() && rule.is_none();
        (!idle).then_some(Plan { message, assigned, rule, below })
    }
}

/// Resource lists are the maps of quantities of the core group; those of claims hold exact numbers.
fn is_resource_list(message: &Message, field: &Field) -> bool {
    field.shape == Shape::Map
        && message.package == "api.core.v1"
        && message.name != "NodeAllocatableResourceClaimStatus"
}

impl Plan {
    fn apply(&self, object: &mut Object, naming: &'static Naming) {
        self.assign(object);
        if let Some(rule) = self.rule {
            rule(&mut Node { message: self.message, object }, naming);
        }
        for Below { field, work } in &self.below {
            if is_struct_by_value(field) && object.get(field.name).is_none_or(Value::is_null) {
                // Trees that were changed by hand may lack what decoding always gives.
                Node { message: self.message, object }.set(field.name, Value::Object(Object::new()));
            }
            // What is settled was given its defaults before it was stored, or since (`older`).
            let is_settled =
                |value: &Value| value.as_object().is_some_and(|object| object.settled_text().is_some());
            if object.get(field.name).is_some_and(is_settled) {
                continue;
            }
            let Some(value) = object.get_mut(field.name) else { continue };
            match work {
                Work::Plan(plan) => plan.apply_to(field.shape, value, naming),
                Work::Round => round(value),
            }
        }
    }

    fn apply_to(&self, shape: Shape, value: &mut Value, naming: &'static Naming) {
        let each = |value: &mut Value| {
            if let Value::Object(object) = value {
                self.apply(object, naming);
            }
        };
        match (shape, value) {
            (Shape::Single, value) => each(value),
            (Shape::Map, Value::Object(members)) => members.iter_mut().for_each(|(_, value)| each(value)),
            (_, Value::Array(items)) => items.iter_mut().for_each(each),
            _ => {}
        }
    }

    /// Sets what is unset, walking members and values side by side.
    fn assign(&self, object: &mut Object) {
        let fields = self.message.fields;
        let members = object.members_mut();
        let (mut at, mut field_at) = (0, 0);
        for (target, value) in &self.assigned {
            let target = usize::from(*target);
            let field = &fields[target];
            // Where the field's member is, or else where it belongs.
            let found = loop {
                let Some((name, _)) = members.get(at) else { break false };
                match fields[field_at..].iter().position(|field| field.name == name) {
                    Some(step) if field_at + step < target => field_at += step + 1,
                    Some(step) => break field_at + step == target,
                    None => {} // no field's member, or one out of order
                }
                at += 1;
            };
            if found {
                if is_unset(field, &members[at].1) {
                    members[at].1 = value.clone();
                }
            } else if !members[at..].iter().any(|(name, _)| name == field.name) {
                members.insert(at, (Key::Borrowed(field.name), value.clone()));
            }
        }
    }
}

fn is_struct_by_value(field: &Field) -> bool {
    field.shape == Shape::Single && !field.pointer && matches!(field.kind, Kind::Message(_))
}

fn is_unset(field: &Field, value: &Value) -> bool {
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
        // Canonical text is finer than a thousandth only with these letters in it.
        if text.bytes().any(|byte| matches!(byte, b'n' | b'u' | b'e'))
            && let Ok(quantity) = Quantity::parse(text)
        {
            *text = quantity.rounded_up_to_milli().to_text();
        }
    }
}

/// An object together with its type, as rules see it.
pub(super) struct Node<'o> {
    pub(super) message: &'static Message,
    pub(super) object: &'o mut Object,
}

impl Node<'_> {
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
        let field = &self.message.fields[usize::from(target)];
        if let Some(slot) = self.object.get_mut(name) {
            *slot = value;
            return;
        }
        let later = |name: &Key| self.message.position(name.as_bytes()).is_some_and(|at| at > target);
        let members = self.object.members_mut();
        let at = members.iter().position(|(name, _)| later(name)).unwrap_or(members.len());
        members.insert(at, (Key::Borrowed(field.name), value));
    }

    /// Sets the field if nothing was given for it.
    pub(super) fn fill(&mut self, name: &str, value: impl FnOnce() -> Value) {
        if self.is_unset(name) {
            self.set(name, value());
        }
    }

    /// The struct at a field, if it is there.
    pub(super) fn child(&mut self, name: &str) -> Option<Node<'_>> {
        let message = self.inner(name)?;
        let object = self.object.get_mut(name)?.as_object_mut()?;
        Some(Node { message, object })
    }

    /// The struct at a field, made if it is not there.
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

    fn inner(&self, name: &str) -> Option<&'static Message> {
        match self.message.field(name)?.kind {
            Kind::Message(message) => Some(message),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "defaults_test.rs"]
mod tests;
