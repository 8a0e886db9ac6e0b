//! The choice of an overload by the types of the arguments at run time.

use std::sync::Arc;

use crate::error::EvalError;
use crate::evaluation::steps::Steps;
use crate::library::{Call, Implementation, Overload};
use crate::types::{Primitive, Type};
use crate::value::Value;

/// Calls the first overload that accepts the types of the arguments.
///
/// # Errors
/// "no such overload" with the function and the types if no overload accepts them, and the errors of the
/// implementation.
pub fn call<'v>(
    function: &str,
    overloads: &[(Arc<Overload>, Implementation)],
    args: &[Value<'v>],
    steps: &Steps<'_>,
) -> Result<Value<'v>, EvalError> {
    let fits = |overload: &Overload| {
        overload.params.len() == args.len()
            && overload.params.iter().zip(args).all(|(param, arg)| accepts(param, arg))
    };
    match overloads.iter().find(|(overload, _)| fits(overload)) {
        Some((_, implementation)) => implementation(&Call { args, steps }),
        None => Err(no_such_overload(function, args)),
    }
}

/// Creates the error of a call whose arguments match no overload: `no such overload: f(int, string)`.
pub fn no_such_overload(function: &str, args: &[Value<'_>]) -> EvalError {
    let types: Vec<_> = args.iter().map(Value::type_name).collect();
    EvalError::new(format!("no such overload: {function}({})", types.join(", ")))
}

/// Returns whether a parameter accepts a value. In lists and maps only the first element is checked.
pub fn accepts(param: &Type, value: &Value<'_>) -> bool {
    match (param, value) {
        (Type::Dyn | Type::Any | Type::Param(_) | Type::Error, _)
        | (Type::Null, Value::Null)
        | (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Uint, Value::Uint(_))
        | (Type::Double, Value::Double(_))
        | (Type::String, Value::String(_))
        | (Type::Bytes, Value::Bytes(_))
        | (Type::Duration, Value::Duration(_))
        | (Type::Timestamp, Value::Timestamp(_))
        | (Type::Type(_), Value::Type(_))
        | (Type::Optional(_), Value::Optional(_)) => true,
        (Type::Wrapper(primitive), value) => match value {
            Value::Null => true,
            value => accepts(&Primitive::unwrapped(*primitive), value),
        },
        (Type::List(element), Value::List(list)) => list.get(0).is_none_or(|first| accepts(element, &first)),
        (Type::Map(types), Value::Map(map)) => {
            map.entry_at(0).is_none_or(|(key, value)| accepts(&types.0, &key) && accepts(&types.1, &value))
        }
        (Type::Opaque(name) | Type::Object(name), Value::Opaque(_) | Value::Object(_)) => {
            value.type_name() == **name
        }
        _ => false,
    }
}
