//! Values of custom objects for the expression language, which reads them without copying.
//!
//! The type of a value determines its meaning: a string may be a point in time, a struct is an object whose
//! fields have identifiers, and the elements of a set have no order. Each value has a view, which contains
//! the type of the value. A list without a view contains JSON of unknown type.

use std::any::Any;
use std::borrow::Cow;

use cel::error::EvalError;
use cel::evaluation::Steps;
use cel::identifier::{escape, unescape};
use cel::value::equality::equal;
use cel::value::{
    Duration, HostList, HostMap, HostObject, HostRef, List, Map, Object, Octets, Text, Value, View,
};

use ref_cast::RefCast;

use super::keyed;
use super::time;
use crate::custom::unchanged::limits_of;
use crate::expression::node::{ObjectNode, ValueNode};
use types::schema::kind;
use types::schema::limits::Limits;
use types::schema::table::{Field, Kind, Message};
use values::json;

/// Maximum number of appended elements that `+` converts by the schema of the list. The cost of `+` does not
/// depend on the length of the lists, so the work must be limited here.
const READ_AGAIN_MAX: usize = 1000;

/// Type and limits of a value below an object.
#[derive(Clone, Copy, Debug)]
pub struct ValueType<'t> {
    pub(super) kind: &'t Kind,
    pub(super) limits: Option<&'t Limits>,
}

impl<'t> ValueType<'t> {
    /// Returns the type of a value of a kind, with the limits of its schema.
    pub fn for_kind(kind: &'t Kind, limits: Option<&'t Limits>) -> ValueType<'t> {
        ValueType { kind, limits: limits_of(kind, limits) }
    }

    /// Returns the type of a field of a struct.
    pub fn of_field(message: &'t Message, name: &str) -> Option<ValueType<'t>> {
        message.field(name).map(|field| ValueType::for_kind(&field.kind, field.limits.as_deref()))
    }

    /// Returns the type of a field; `None` if `self` is not the type of a struct.
    pub fn field(self, name: &str) -> Option<ValueType<'t>> {
        let Kind::Message(message) = self.kind else { return None };
        ValueType::of_field(message, name)
    }

    /// Returns the type of the elements; `None` if `self` is not the type of a list.
    pub fn items(self) -> Option<ValueType<'t>> {
        let Kind::List(list) = self.kind else { return None };
        Some(ValueType::for_kind(&list.item.kind, list.item.limits.as_deref()))
    }

    /// Returns the type of the values; `None` if `self` is not the type of a map.
    pub fn values(self) -> Option<ValueType<'t>> {
        let Kind::Map(map) = self.kind else { return None };
        Some(ValueType::for_kind(&map.value.kind, map.value.limits.as_deref()))
    }

    /// Returns `value` as a value of this type. A string that does not match its declared format is an error
    /// value.
    pub fn value<'v>(self, value: &'v json::Value) -> Value<'v>
    where
        't: 'v,
    {
        value_of_kind(self.kind, self.limits, value)
    }
}

/// Returns a JSON value of a kind as a value of the expression language.
fn value_of_kind<'v>(kind: &'v Kind, limits: Option<&'v Limits>, value: &'v json::Value) -> Value<'v> {
    match (kind, value) {
        (_, json::Value::Null) => Value::Null,
        (_, json::Value::Bool(value)) => Value::Bool(*value),
        (Kind::Double, json::Value::Int(number)) => Value::Double(*number as f64),
        (_, json::Value::Int(number)) => Value::Int(*number),
        (_, json::Value::Float(number)) => Value::Double(*number),
        (_, json::Value::String(text)) => {
            formed(limits.map_or("", |limits| &*limits.format), text).unwrap_or_else(Value::fault)
        }
        (Kind::List(list), json::Value::Array(_)) => {
            let list: &kind::List = list;
            Value::List(List::Host(HostRef { node: ValueNode::ref_cast(value), view: Some(list) }))
        }
        // If values of any type are permitted, the members have no known types.
        (Kind::Map(map), json::Value::Object(members)) if is_open(map) => {
            Value::Object(Object::Host(HostRef { node: ObjectNode::ref_cast(members), view: None }))
        }
        (Kind::Map(map), json::Value::Object(_)) => {
            let map: &kind::Map = map;
            Value::Map(Map::Host(HostRef { node: ValueNode::ref_cast(value), view: Some(map) }))
        }
        (Kind::Message(message), json::Value::Object(members)) => object(message, members),
        // Expressions cannot access values without a type.
        _ => Value::Null,
    }
}

fn is_open(map: &kind::Map) -> bool {
    limits_of(&map.value.kind, map.value.limits.as_deref()).is_some_and(|limits| limits.any_type)
}

/// Returns a JSON object of type `message` as a value of the expression language.
pub fn object<'v>(message: &'v Message, value: &'v json::Object) -> Value<'v> {
    Value::Object(Object::Host(HostRef { node: ObjectNode::ref_cast(value), view: Some(message) }))
}

fn formed<'v>(format: &str, text: &'v str) -> Result<Value<'v>, EvalError> {
    let failed = |what: &str, why: &str| EvalError::new(format!("Invalid {what} {text}: {why}"));
    match format {
        "duration" => {
            let nanoseconds = crate::custom::format::duration(text);
            let why = || failed("duration", &format!("unable to parse {text} as duration"));
            Ok(Value::Duration(Duration { nanoseconds: nanoseconds.ok_or_else(why)? }))
        }
        "date" => {
            let parsed = time::date(text).map_err(|why| failed("date formatted string", &why))?;
            Ok(Value::Timestamp(parsed))
        }
        "date-time" => {
            let parsed = time::date_time(text).map_err(|why| failed("date-time formatted string", &why))?;
            Ok(Value::Timestamp(parsed))
        }
        "byte" => {
            let bytes = go::base64::url(text).map_err(|why| failed("byte formatted string", &why))?;
            Ok(Value::Bytes(Octets::Shared(bytes.into())))
        }
        _ => Ok(Value::String(Text::Borrowed(text))),
    }
}

/// Returns an element that was appended to a list, or an error value. The reference server converts such an
/// element to JSON and reads the JSON by the schema of the list. This conversion fails for times, for bytes,
/// and for collections that the expression created.
fn read_again<'v>(kind: &Kind, item: Value<'v>) -> Value<'v> {
    let mismatch = match (kind, &item) {
        (_, Value::Timestamp(_)) => "expected string, got time.Time",
        (_, Value::Duration(_)) => "expected string, got time.Duration",
        (_, Value::Bytes(_)) => "expected string, got []uint8",
        (Kind::List(_), Value::List(List::Shared(_))) => {
            "expected an array for the provided schema with type=array"
        }
        (Kind::Map(_) | Kind::Message(_), Value::Map(Map::Shared(_))) => {
            "expected a map for the provided schema with type=object"
        }
        _ => return item,
    };
    Value::fault(EvalError::new(format!("invalid data, {mismatch}")))
}

fn equal_fields(
    message: Option<&Message>,
    own: &json::Object,
    other: &json::Object,
    steps: &Steps<'_>,
) -> Result<bool, EvalError> {
    for (name, value) in own.iter() {
        steps.one()?;
        let found = other.get(name);
        let is_equal = match message.and_then(|message| declared(message, name)) {
            Some(field) => {
                let limits = limits_of(&field.kind, field.limits.as_deref());
                match found.filter(|found| !found.is_null()) {
                    Some(found) => equal(
                        &value_of_kind(&field.kind, limits, value),
                        &value_of_kind(&field.kind, limits, found),
                        steps,
                    )?,
                    None => false,
                }
            }
            None => found.is_none_or(|found| found == value),
        };
        if !is_equal {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the field of a struct if rules can access it. In metadata, only the names are accessible.
fn declared<'t>(message: &'t Message, name: &str) -> Option<&'t Field> {
    let is_metadata = message.checked_apart;
    message.field(name).filter(|_| !is_metadata || matches!(name, "name" | "generateName"))
}

fn view<'v, T: 'static>(view: View<'v>) -> Option<&'v T> {
    view?.downcast_ref()
}

impl HostList for ValueNode {
    fn len<'v>(&'v self, _: View<'v>) -> usize {
        self.0.as_array().map_or(0, <[json::Value]>::len)
    }

    fn get<'v>(&'v self, list: View<'v>, index: usize) -> Value<'v> {
        let item = self.0.as_array().and_then(|items| items.get(index));
        let Some(list) = view::<kind::List>(list) else {
            return item.map_or(Value::Null, crate::expression::json::json_value);
        };
        let limits = limits_of(&list.item.kind, list.item.limits.as_deref());
        item.map_or(Value::Null, |item| value_of_kind(&list.item.kind, limits, item))
    }

    fn equals<'v>(
        &'v self,
        list: View<'v>,
        other: &List<'v>,
        steps: &Steps<'_>,
    ) -> Option<Result<bool, EvalError>> {
        let own = List::Host(HostRef { node: self, view: list });
        keyed::equal(&view::<kind::List>(list)?.merge, &own, other, steps)
    }

    fn concat<'v>(&'v self, list: View<'v>, other: &List<'v>) -> Option<Result<List<'v>, EvalError>> {
        let own = List::Host(HostRef { node: self, view: list });
        let kind = view::<kind::List>(list)?;
        let read = |item| read_again(&kind.item.kind, item);
        if let Some(sum) = keyed::sum(&kind.merge, &own, other, &read) {
            return Some(Ok(sum));
        }
        // The reference server appends the elements as JSON, and reads each element by the schema of the list
        // when the expression uses the element.
        if other.len() > READ_AGAIN_MAX {
            return None;
        }
        let items: Vec<Value<'v>> = other.iter().map(read).collect();
        let is_changed = items.iter().any(|item| item.clone().checked().is_err());
        is_changed.then(|| Ok(List::Shared(own.iter().chain(items).collect())))
    }
}

impl HostMap for ValueNode {
    fn len<'v>(&'v self, _: View<'v>) -> usize {
        self.0.as_object().map_or(0, json::Object::len)
    }

    fn get<'v>(&'v self, map: View<'v>, key: &str) -> Option<Value<'v>> {
        let map = view::<kind::Map>(map)?;
        let limits = limits_of(&map.value.kind, map.value.limits.as_deref());
        Some(value_of_kind(&map.value.kind, limits, self.0.get(key)?))
    }

    fn value_at<'v>(&'v self, map: View<'v>, index: usize) -> Option<Value<'v>> {
        let map = view::<kind::Map>(map)?;
        let limits = limits_of(&map.value.kind, map.value.limits.as_deref());
        let (_, value) = self.0.as_object()?.members().get(index)?;
        Some(value_of_kind(&map.value.kind, limits, value))
    }

    fn key_at<'v>(&'v self, _: View<'v>, index: usize) -> &'v str {
        let members = self.0.as_object().map_or(&[][..], json::Object::members);
        members.get(index).map_or("", |(key, _)| key)
    }
}

impl HostObject for ObjectNode {
    fn type_name<'v>(&'v self, _: View<'v>) -> &'v str {
        "map"
    }

    fn get<'v>(&'v self, message: View<'v>, field: &str) -> Option<Value<'v>> {
        self.try_get(message, field).ok().flatten()
    }

    fn try_get<'v>(&'v self, message: View<'v>, field: &str) -> Result<Option<Value<'v>>, EvalError> {
        let found = || {
            let name = unescape(field)?;
            let field = view::<Message>(message)?.field(&name)?;
            Some((field, self.0.get(&name)?))
        };
        // A member with the value null counts as absent.
        let Some((field, value)) = found().filter(|(_, value)| !value.is_null()) else { return Ok(None) };
        Ok(Some(value_of_kind(&field.kind, limits_of(&field.kind, field.limits.as_deref()), value)))
    }

    fn fields<'v>(&'v self, message: View<'v>) -> Vec<Cow<'v, str>> {
        let Some(message) = view::<Message>(message) else { return Vec::new() };
        let declared = self.0.iter().filter(|(name, _)| declared(message, name).is_some());
        // A name that has no identifier is used unchanged.
        let identifier = |name: &'v str| match escape(name) {
            Some(identifier) if identifier != name => Cow::Owned(identifier),
            _ => Cow::Borrowed(name),
        };
        declared.map(|(name, _)| identifier(name)).collect()
    }

    fn len<'v>(&'v self, _: View<'v>) -> usize {
        self.0.len()
    }

    /// Compares declared fields as expression values, and other fields in their stored form. An undeclared
    /// field that the other object lacks makes no difference.
    fn equals<'v>(
        &'v self,
        message: View<'v>,
        other: HostRef<'v, dyn HostObject + 'v>,
        steps: &Steps<'_>,
    ) -> Option<Result<bool, EvalError>> {
        let message = view::<Message>(message);
        let other: &json::Object = other.node.data()?.downcast_ref()?;
        Some(equal_fields(message, &self.0, other, steps))
    }

    fn data(&self) -> Option<&dyn Any> {
        Some(&self.0)
    }
}
