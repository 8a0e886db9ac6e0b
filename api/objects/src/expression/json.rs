//! Reads JSON without a schema as expression values without copying, and converts expression values to JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cel::value::{HostMap, HostRef, List, Map, Text, Value, View};
use ref_cast::RefCast;

use super::node::{ObjectNode, ValueNode};
use values::cancellation;
use values::json::{self, Key, Object};

/// Returns a JSON value as a value of the expression language.
pub fn json_value(value: &json::Value) -> Value<'_> {
    match value {
        json::Value::Null => Value::Null,
        json::Value::Bool(value) => Value::Bool(*value),
        json::Value::Int(number) => Value::Int(*number),
        json::Value::Float(number) => Value::Double(*number),
        json::Value::Number(words) => Value::Double(words.parse().unwrap_or(f64::NAN)),
        json::Value::String(text) => Value::String(Text::Borrowed(text)),
        json::Value::Array(_) => {
            Value::List(List::Host(HostRef { node: ValueNode::ref_cast(value), view: None }))
        }
        json::Value::Object(members) => object(members),
    }
}

/// Returns a JSON object as a map.
pub fn object(members: &Object) -> Value<'_> {
    Value::Map(Map::Host(HostRef { node: ObjectNode::ref_cast(members), view: None }))
}

/// Returns a JSON object as a map, or `null` for `None`.
pub fn optional(members: Option<&Object>) -> Value<'_> {
    members.map_or(Value::Null, object)
}

impl HostMap for ObjectNode {
    fn len<'v>(&'v self, _: View<'v>) -> usize {
        self.0.len()
    }

    fn get<'v>(&'v self, _: View<'v>, key: &str) -> Option<Value<'v>> {
        self.0.get(key).map(json_value)
    }

    fn value_at<'v>(&'v self, _: View<'v>, index: usize) -> Option<Value<'v>> {
        self.0.members().get(index).map(|(_, value)| json_value(value))
    }

    fn key_at<'v>(&'v self, _: View<'v>, index: usize) -> &'v str {
        self.0.members().get(index).map_or("", |(key, _)| key)
    }
}

/// Maximum nesting of lists and maps that are converted to JSON. Requests have the same limit.
const DEPTH_MAX: usize = json::DEPTH_MAX;

/// Maximum number of elements and members that are converted to JSON. The largest request contains fewer
/// elements and members, but an expression can make a list of billions of elements by repeatedly adding a
/// list to itself.
const NODES_MAX: usize = 4_000_000;

/// Converts a value to JSON.
///
/// # Errors
/// Returns a text about the part of the value that has no JSON form. Also fails if the value is too large.
pub fn from(value: &Value<'_>) -> Result<json::Value, String> {
    convert(value, DEPTH_MAX, &mut { NODES_MAX })
}

fn convert(value: &Value<'_>, depth: usize, nodes: &mut usize) -> Result<json::Value, String> {
    let depth = depth.checked_sub(1).ok_or("the value is nested too deeply")?;
    *nodes = nodes.checked_sub(1).ok_or("the value is too large")?;
    cancellation::step();
    Ok(match value {
        Value::Null => json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(number) => (*number).into(),
        Value::Uint(number) => {
            i64::try_from(*number).map_or(json::Value::Float(*number as f64), json::Value::Int)
        }
        Value::Double(number) if number.is_finite() => json::Value::Float(*number),
        Value::Double(_) => return Err(unsupported(value)),
        Value::String(text) => (&**text).into(),
        Value::Bytes(bytes) => BASE64.encode(&**bytes).into(),
        Value::Duration(duration) => cel::duration::to_seconds_text(duration.nanoseconds).into(),
        Value::Timestamp(time) => time.to_text().into(),
        Value::List(list) => {
            let items = list.iter().map(|item| convert(&item, depth, nodes));
            json::Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let mut members = Object::with_capacity(map.len());
            for (key, value) in map.iter() {
                members.insert(key_text(&key)?, convert(&value, depth, nodes)?);
            }
            members.into()
        }
        Value::Object(object) => {
            let mut members = Object::new();
            for field in object.fields() {
                let value = object.get(&field).map_err(|error| error.to_string())?;
                members.insert(field.into_owned(), convert(&value.unwrap_or(Value::Null), depth, nodes)?);
            }
            members.into()
        }
        Value::Optional(Some(value)) => convert(value, depth, nodes)?,
        Value::Optional(None) => json::Value::Null,
        Value::Type(_) | Value::Opaque(_) => return Err(unsupported(value)),
    })
}

fn unsupported(value: &Value<'_>) -> String {
    format!("type conversion not supported for '{}'", value.type_name())
}

/// Converts the key of a map to the name of a member.
fn key_text(key: &Value<'_>) -> Result<Key, String> {
    match key {
        Value::String(text) => Ok(text.to_string().into()),
        Value::Int(number) => Ok(number.to_string().into()),
        Value::Uint(number) => Ok(number.to_string().into()),
        Value::Bool(value) => Ok(value.to_string().into()),
        other => Err(unsupported(other)),
    }
}
