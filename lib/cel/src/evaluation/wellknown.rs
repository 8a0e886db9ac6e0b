//! Struct literals of the well-known protobuf types, which are values of the language:
//! `google.protobuf.Int32Value{value: 1}` is the integer 1.

use crate::error::EvalError;
use crate::value::{Duration, OwnedMap, OwnedObject, Timestamp, Value};

type Outcome<'v> = Result<Value<'v>, EvalError>;

/// Returns the value of a struct literal of a well-known type; `None` for all other types.
pub fn convert<'v>(object: &OwnedObject<'v>) -> Option<Outcome<'v>> {
    let name = object.type_name.strip_prefix("google.protobuf.")?;
    let field =
        |field: &str| object.fields.iter().find(|(name, _)| **name == *field).map(|(_, value)| value.clone());
    let value = |default: Value<'v>| field("value").unwrap_or(default);
    let integer = |name: &str| match field(name) {
        Some(Value::Int(value)) => value,
        _ => 0,
    };
    Some(Ok(match name {
        "BoolValue" => value(Value::Bool(false)),
        "Int32Value" | "Int64Value" => return Some(in_range(value(Value::Int(0)), name == "Int32Value")),
        "UInt32Value" | "UInt64Value" => return Some(in_range(value(Value::Uint(0)), name == "UInt32Value")),
        "FloatValue" => match value(Value::Double(0.0)) {
            Value::Double(double) => Value::Double(f64::from(double as f32)),
            other => other,
        },
        "DoubleValue" => value(Value::Double(0.0)),
        "StringValue" => value(Value::string("")),
        "BytesValue" => value(Value::Bytes(crate::value::Octets::Borrowed(&[]))),
        "Duration" => {
            let seconds = integer("seconds").checked_mul(crate::duration::NANOS_PER_SECOND);
            let nanoseconds = seconds.and_then(|seconds| seconds.checked_add(integer("nanos")));
            match nanoseconds {
                Some(nanoseconds) => Value::Duration(Duration { nanoseconds }),
                None => return Some(Err(EvalError::new("integer overflow"))),
            }
        }
        "Timestamp" => {
            let epoch = Timestamp::from_seconds(integer("seconds"));
            match epoch.and_then(|epoch| epoch.checked_add(integer("nanos"))) {
                Some(timestamp) => Value::Timestamp(timestamp),
                None => return Some(Err(EvalError::new("timestamp overflow"))),
            }
        }
        "Struct" => field("fields").unwrap_or_else(|| Value::map(OwnedMap::default())),
        "ListValue" => field("values").unwrap_or_else(|| Value::list(Vec::new())),
        "Value" => object.fields.first().map_or(Value::Null, |(_, value)| value.clone()),
        _ => return None,
    }))
}

/// Refuses integers that do not fit in a 32-bit wrapper.
fn in_range(value: Value<'_>, narrow: bool) -> Outcome<'_> {
    match value {
        Value::Int(int) if narrow && i32::try_from(int).is_err() => Err(EvalError::new("integer overflow")),
        Value::Uint(uint) if narrow && u32::try_from(uint).is_err() => {
            Err(EvalError::new("unsigned integer overflow"))
        }
        value => Ok(value),
    }
}
