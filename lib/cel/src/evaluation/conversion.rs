//! The type conversions: `int(x)`, `string(x)`, `timestamp(x)` and the other conversions.
//!
//! The signatures of the overloads exclude types that cannot be converted; other failures depend on the
//! value.

use std::sync::Arc;

use crate::duration;
use crate::error::EvalError;
use crate::library::Call;
use crate::number;
use crate::timestamp::TimestampError;
use crate::value::{Duration, Octets, Text, Timestamp, Value};

type Outcome<'v> = Result<Value<'v>, EvalError>;

fn failed(from: &Value<'_>, to: &str) -> EvalError {
    EvalError::new(format!("type conversion error from '{}' to '{to}'", from.type_of().runtime_name()))
}

/// Computes the conversion `bool(x)`.
pub fn to_bool<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    match call.args {
        [value @ Value::Bool(_)] => Ok(value.clone()),
        [value @ Value::String(text)] => {
            number::parse_bool(text).map(Value::Bool).ok_or_else(|| failed(value, "bool"))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Computes the conversion `bytes(x)`.
pub fn to_bytes<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    match call.args {
        [value @ Value::Bytes(_)] => Ok(value.clone()),
        [Value::String(Text::Borrowed(text))] => Ok(Value::Bytes(Octets::Borrowed(text.as_bytes()))),
        [Value::String(Text::Shared(text))] => Ok(Value::Bytes(Octets::Shared(Arc::from(text.as_bytes())))),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Computes the conversion `double(x)`.
pub fn to_double<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    match call.args {
        [value @ Value::Double(_)] => Ok(value.clone()),
        [Value::Int(i)] => Ok(Value::Double(*i as f64)),
        [Value::Uint(u)] => Ok(Value::Double(*u as f64)),
        [value @ Value::String(text)] => {
            number::parse_double(text).map(Value::Double).ok_or_else(|| failed(value, "double"))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Computes `duration(x)`; integers are nanoseconds.
pub fn to_duration<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    match call.args {
        [value @ Value::Duration(_)] => Ok(value.clone()),
        [Value::Int(nanoseconds)] => Ok(Value::Duration(Duration { nanoseconds: *nanoseconds })),
        [value @ Value::String(text)] => go::duration::parse(text)
            .map(|nanoseconds| Value::Duration(Duration { nanoseconds }))
            .map_err(|_| failed(value, "google.protobuf.Duration")),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Computes `dyn(x)`, the value itself.
pub fn to_dyn<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    call.args.first().cloned().ok_or(EvalError::no_such_overload())
}

/// Computes `int(x)`; doubles round towards zero, timestamps give seconds and durations give nanoseconds.
pub fn to_int<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let overflow = || EvalError::new("integer overflow");
    match call.args {
        [value @ Value::Int(_)] => Ok(value.clone()),
        [Value::Uint(u)] => i64::try_from(*u).map(Value::Int).map_err(|_| overflow()),
        [Value::Double(d)] => number::double_to_int(*d).map(Value::Int).ok_or_else(overflow),
        [Value::Duration(d)] => Ok(Value::Int(d.nanoseconds)),
        [Value::Timestamp(t)] => Ok(Value::Int(t.seconds())),
        [value @ Value::String(text)] => text.parse().map(Value::Int).map_err(|_| failed(value, "int")),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Computes the conversion `string(x)`.
pub fn to_string<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    match call.args {
        [value @ Value::String(_)] => Ok(value.clone()),
        [Value::Bool(b)] => Ok(Value::String(Text::Borrowed(if *b { "true" } else { "false" }))),
        [Value::Int(i)] => Ok(Value::string(i.to_string())),
        [Value::Uint(u)] => Ok(Value::string(u.to_string())),
        [Value::Double(d)] => Ok(Value::string(number::format_double(*d))),
        [Value::Duration(d)] => Ok(Value::string(duration::to_seconds_text(d.nanoseconds))),
        [Value::Timestamp(t)] => Ok(Value::string(t.to_text())),
        [Value::Bytes(bytes)] => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Value::string(text)),
            Err(_) => Err(EvalError::new("invalid UTF-8 in bytes, cannot convert to string")),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Computes `timestamp(x)`; integers are seconds since the epoch.
pub fn to_timestamp<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let overflow = || EvalError::new("timestamp overflow");
    match call.args {
        [value @ Value::Timestamp(_)] => Ok(value.clone()),
        [Value::Int(seconds)] => Timestamp::from_seconds(*seconds).map(Value::Timestamp).ok_or_else(overflow),
        [value @ Value::String(text)] => {
            Timestamp::parse(text).map(Value::Timestamp).map_err(|error| match error {
                TimestampError::Malformed => failed(value, "google.protobuf.Timestamp"),
                TimestampError::OutOfRange => overflow(),
            })
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Computes `type(x)`, the type as a value.
pub fn to_type<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    call.args.first().map(|value| Value::Type(value.type_of())).ok_or(EvalError::no_such_overload())
}

/// Computes `uint(x)`; doubles round towards zero.
pub fn to_uint<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let overflow = || EvalError::new("unsigned integer overflow");
    match call.args {
        [value @ Value::Uint(_)] => Ok(value.clone()),
        [Value::Int(i)] => u64::try_from(*i).map(Value::Uint).map_err(|_| overflow()),
        [Value::Double(d)] => number::double_to_uint(*d).map(Value::Uint).ok_or_else(overflow),
        [value @ Value::String(text)] => {
            number::parse_uint(text).map(Value::Uint).ok_or_else(|| failed(value, "uint"))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}
