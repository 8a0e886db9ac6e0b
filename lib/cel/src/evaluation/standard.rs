//! The functions of the standard library and of optionals.
//!
//! [`implementation`] finds a function by name. The evaluator checks the argument types of a signature
//! before a call, except for the functions in [`checks_types_itself`].

use std::sync::Arc;

use crate::error::EvalError;
use crate::evaluation::conversion;
use crate::library::bounds;
use crate::library::{Call, Implementation};
use crate::timestamp::Civil;
use crate::value::{List, Value};

type Outcome<'v> = Result<Value<'v>, EvalError>;

/// Returns the implementation of a standard function; `None` for other functions and for operators.
pub fn implementation(function: &str) -> Option<Implementation> {
    Some(match function {
        "bool" => conversion::to_bool,
        "bytes" => conversion::to_bytes,
        "double" => conversion::to_double,
        "duration" => conversion::to_duration,
        "dyn" => conversion::to_dyn,
        "int" => conversion::to_int,
        "string" => conversion::to_string,
        "timestamp" => conversion::to_timestamp,
        "type" => conversion::to_type,
        "uint" => conversion::to_uint,
        "contains" => contains,
        "startsWith" => starts_with,
        "endsWith" => ends_with,
        "getFullYear" => |call| calendar(call, |civil| civil.year),
        "getMonth" => |call| calendar(call, |civil| civil.month - 1),
        "getDayOfYear" => |call| calendar(call, |civil| civil.day_of_year),
        "getDayOfMonth" => |call| calendar(call, |civil| civil.day - 1),
        "getDate" => |call| calendar(call, |civil| civil.day),
        "getDayOfWeek" => |call| calendar(call, |civil| civil.weekday),
        "getHours" => |call| clock(call, 3_600_000_000_000, |civil| civil.hour),
        "getMinutes" => |call| clock(call, 60_000_000_000, |civil| civil.minute),
        "getSeconds" => |call| clock(call, 1_000_000_000, |civil| civil.second),
        "getMilliseconds" => milliseconds,
        "optional.of" => optional_of,
        "optional.ofNonZeroValue" => optional_of_non_zero,
        "optional.none" => |_| Ok(Value::Optional(None)),
        "optional.unwrap" | "unwrapOpt" => unwrap_all,
        "hasValue" => has_value,
        "value" => value,
        "first" => |call| element(call, |_| 0),
        "last" => |call| element(call, |len| len.wrapping_sub(1)),
        _ => return None,
    })
}

/// Returns whether a function accepts arguments of any type at run time and creates the error itself.
pub fn checks_types_itself(function: &str) -> bool {
    matches!(function, "contains" | "startsWith" | "endsWith" | "dyn" | "type")
}

/// Returns whether a call with constant arguments is computed when the program is created.
pub fn is_conversion(function: &str) -> bool {
    matches!(
        function,
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint"
    )
}

/// Computes `size(x)`, or an error.
pub fn size<'v>(value: &Value<'v>) -> Outcome<'v> {
    let size = value.size().filter(|_| !matches!(value, Value::Object(object) if object.is_lazy()));
    match size {
        Some(size) => Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX))),
        None => Err(super::operators::unsupported(value, "size")),
    }
}

fn texts<'c>(call: &'c Call<'_, '_>) -> Result<(&'c str, &'c str), EvalError> {
    match call.args {
        [Value::String(text), Value::String(part)] => {
            call.steps.text(text.len())?;
            Ok((text, part))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn contains<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    texts(call).map(|(text, part)| Value::Bool(text.contains(part)))
}

fn starts_with<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    texts(call).map(|(text, part)| Value::Bool(text.starts_with(part)))
}

fn ends_with<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    texts(call).map(|(text, part)| Value::Bool(text.ends_with(part)))
}

/// Returns a calendar field of a timestamp, in UTC or in the time zone of the second argument.
fn calendar<'v>(call: &Call<'_, 'v>, field: fn(Civil) -> i64) -> Outcome<'v> {
    let (timestamp, offset) = match call.args {
        [Value::Timestamp(timestamp)] => (timestamp, 0),
        [Value::Timestamp(timestamp), Value::String(zone)] => {
            (timestamp, timestamp.zone_offset(zone).map_err(EvalError::new)?)
        }
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(Value::Int(field(timestamp.civil(offset))))
}

/// Returns a time-of-day field of a timestamp, or the number of whole units of a duration.
fn clock<'v>(call: &Call<'_, 'v>, unit_nanos: i64, field: fn(Civil) -> i64) -> Outcome<'v> {
    match call.args {
        [Value::Duration(duration)] => Ok(Value::Int(duration.nanoseconds / unit_nanos)),
        _ => calendar(call, field),
    }
}

fn milliseconds<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    match call.args {
        [Value::Timestamp(timestamp), ..] => {
            // The fraction of a second does not depend on the time zone, but the zone must exist.
            calendar(call, |civil| civil.second)?;
            Ok(Value::Int(i64::from(timestamp.nanos() / 1_000_000)))
        }
        _ => clock(call, 1_000_000, |civil| civil.second),
    }
}

fn optional_of<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    call.args.first().cloned().map(Value::some).ok_or(EvalError::no_such_overload())
}

fn optional_of_non_zero<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let value = call.args.first().ok_or(EvalError::no_such_overload())?;
    let zero = match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) => true,
        Value::Double(d) => *d == 0.0,
        Value::Duration(d) => d.nanoseconds == 0,
        Value::Timestamp(t) => t.seconds() == crate::timestamp::SECONDS_MIN && t.nanos() == 0,
        Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) => value.size() == Some(0),
        _ => false,
    };
    Ok(if zero { Value::Optional(None) } else { Value::some(value.clone()) })
}

/// Returns the values in a list of optionals, without the empty optionals.
fn unwrap_all<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let [Value::List(list)] = call.args else { return Err(EvalError::no_such_overload()) };
    bounds::make_list(list.len(), call.steps)?;
    let mut values = Vec::new();
    for element in list.iter() {
        match element {
            Value::Optional(Some(value)) => values.push((*value).clone()),
            Value::Optional(None) => {}
            other => {
                let name = other.type_name();
                return Err(EvalError::new(format!("value {name} is not optional")));
            }
        }
    }
    Ok(Value::List(List::Shared(values.into())))
}

fn has_value<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    match call.args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn value<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    match call.args {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(EvalError::new("optional.none() dereference")),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Returns an element of a list as an optional.
fn element<'v>(call: &Call<'_, 'v>, index: fn(usize) -> usize) -> Outcome<'v> {
    match call.args {
        [Value::List(list)] => Ok(Value::Optional(list.get(index(list.len())).map(Arc::new))),
        _ => Err(EvalError::no_such_overload()),
    }
}
