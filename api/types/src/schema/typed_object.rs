//! An object with its type, for rules in code that fill in defaults.

use super::decode_form::{is_left_out, zero_object};
use super::table::{Empty, Field, Kind, Message};
use values::json::{Key, Object, Value};

/// Returns whether a value is settled. A settled value got its defaults before it was stored, or from a later
/// backfill.
pub(super) fn is_complete(value: &Value) -> bool {
    value.as_object().is_some_and(Object::is_settled)
}

/// Returns whether a value counts as absent.
pub(super) fn is_unset(field: &Field, value: &Value) -> bool {
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

/// An object with its type, as the parameter of default rules.
pub(super) struct TypedObject<'o> {
    pub(super) message: &'o Message,
    pub(super) object: &'o mut Object,
}

impl<'o> TypedObject<'o> {
    /// Returns whether the field is absent.
    pub(super) fn is_unset(&self, name: &str) -> bool {
        let Some(value) = self.object.get(name) else { return true };
        match self.message.field(name) {
            Some(field) => is_unset(field, value),
            None => value.is_null(),
        }
    }

    /// Returns the text of a string field; empty if the field is absent.
    pub(super) fn text(&self, name: &str) -> &str {
        self.object.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Sets the field at its position in schema order.
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

    /// Sets the field if the field is absent.
    pub(super) fn fill(&mut self, name: &str, value: impl FnOnce() -> Value) {
        if self.is_unset(name) {
            self.set(name, value());
        }
    }

    /// Returns the struct at a field, if the struct is present and may lack defaults.
    pub(super) fn child(&mut self, name: &str) -> Option<TypedObject<'_>> {
        let message = self.inner(name)?;
        let object = self.object.get_mut(name).filter(|value| !is_complete(value))?.as_object_mut()?;
        Some(TypedObject { message, object })
    }

    /// Returns the struct at a field, and creates the struct if it is absent. Returns `None` if the struct is
    /// settled, because a settled struct lacks no defaults.
    pub(super) fn child_or_new(&mut self, name: &str) -> Option<TypedObject<'_>> {
        let message = self.inner(name)?;
        if self.object.get(name).is_none_or(|value| !matches!(value, Value::Object(_))) {
            self.set(name, Value::Object(zero_object(message)));
        }
        self.child(name)
    }

    /// Visits each struct of a list.
    pub(super) fn each(&mut self, name: &str, mut visit: impl FnMut(TypedObject)) {
        let Some(message) = self.inner(name) else { return };
        let Some(items) = self.object.get_mut(name).and_then(Value::as_array_mut) else { return };
        for object in items.iter_mut().filter_map(Value::as_object_mut) {
            visit(TypedObject { message, object });
        }
    }

    /// Returns the members of a map field, if there are any.
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
