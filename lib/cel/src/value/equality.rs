//! Equality of values.
//!
//! Values of different types are unequal, except that numbers are compared by value across the three numeric
//! types. Lists are compared by element, unless the host has its own rule for a list, and maps by key. Only a
//! value of a library's own type on the left and a value of another type on the right are not comparable:
//! then `==` is an error. Inside lists or maps, such a pair does not make the lists or maps unequal. The
//! reference has the same rule.
//!
//! The time of a comparison is proportional to the smaller value. A map key is looked up only if the other
//! map has another key at the same position.

use crate::error::EvalError;
use crate::evaluation::steps::Steps;
use crate::number;
use crate::value::map::same_key;
use crate::value::{List, Map, Object, Value};

/// Returns whether two values are equal; values that are not comparable are unequal.
///
/// # Errors
/// The evaluation was interrupted.
pub fn equal<'v>(left: &Value<'v>, right: &Value<'v>, steps: &Steps<'_>) -> Result<bool, EvalError> {
    Ok(compare(left, right, steps)? == Some(true))
}

/// Computes `left == right`; `None` if the values are not comparable.
///
/// # Errors
/// The evaluation was interrupted.
pub fn compare<'v>(
    left: &Value<'v>,
    right: &Value<'v>,
    steps: &Steps<'_>,
) -> Result<Option<bool>, EvalError> {
    Ok(Some(match (left, right) {
        (Value::Null, Value::Null) => true,
        (_, Value::Null) => false,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Uint(a), Value::Uint(b)) => a == b,
        (Value::Double(a), Value::Double(b)) => a == b,
        (Value::Int(a), Value::Uint(b)) | (Value::Uint(b), Value::Int(a)) => {
            number::compare_int_uint(*a, *b).is_eq()
        }
        (Value::Int(a), Value::Double(b)) | (Value::Double(b), Value::Int(a)) => {
            number::compare_int_double(*a, *b).is_some_and(|ordering| ordering.is_eq())
        }
        (Value::Uint(a), Value::Double(b)) | (Value::Double(b), Value::Uint(a)) => {
            number::compare_uint_double(*a, *b).is_some_and(|ordering| ordering.is_eq())
        }
        (Value::String(a), Value::String(b)) => {
            steps.text(a.len().min(b.len()))?;
            **a == **b
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            steps.text(a.len().min(b.len()))?;
            **a == **b
        }
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a.runtime_name() == b.runtime_name(),
        (Value::List(a), Value::List(b)) => equal_lists(a, b, steps)?,
        (Value::Map(a), Value::Map(b)) => equal_maps(a, b, steps)?,
        (Value::Object(a), Value::Object(b)) if a.is_lazy() && b.is_lazy() => a.is(b),
        (Value::Object(a), _) if a.is_lazy() => return Ok(None),
        (Value::Map(a), Value::Object(b)) if b.is_lazy() => {
            a.len() == b.len() && equal_entries(a, |_, key| b.look_up(key).ok(), steps)?
        }
        (Value::Object(a), Value::Object(b)) => equal_objects(a, b, steps)?,
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => return compare(a, b, steps),
            _ => false,
        },
        (Value::Opaque(a), Value::Opaque(b)) if a.type_of() == b.type_of() => a.equals(&**b),
        (Value::Opaque(_), _) => return Ok(None),
        _ => false,
    }))
}

fn equal_lists<'v>(left: &List<'v>, right: &List<'v>, steps: &Steps<'_>) -> Result<bool, EvalError> {
    if let Some(equal) = left.host_equals(right, steps) {
        return equal;
    }
    if left.len() != right.len() {
        return Ok(false);
    }
    for (a, b) in left.iter().zip(right.iter()) {
        steps.one()?;
        if compare(&a, &b, steps)? == Some(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares two maps. Usually both maps have the same keys in the same order, and then no key is looked up.
fn equal_maps<'v>(left: &Map<'v>, right: &Map<'v>, steps: &Steps<'_>) -> Result<bool, EvalError> {
    let found = |at: usize, key: &Value<'v>| match right.key_at(at) {
        Some(beside) if same_key(&beside, key) => right.value_at(at),
        _ => right.get(key),
    };
    Ok(left.len() == right.len() && equal_entries(left, found, steps)?)
}

/// Compares each entry of a map with the result of `right` for its key. `right` also receives the index of
/// the entry.
fn equal_entries<'v>(
    left: &Map<'v>,
    right: impl Fn(usize, &Value<'v>) -> Option<Value<'v>>,
    steps: &Steps<'_>,
) -> Result<bool, EvalError> {
    for (at, (key, value)) in left.iter().enumerate() {
        steps.one()?;
        let Some(other) = right(at, &key) else { return Ok(false) };
        if compare(&value, &other, steps)? == Some(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_objects<'v>(left: &Object<'v>, right: &Object<'v>, steps: &Steps<'_>) -> Result<bool, EvalError> {
    // An object of the host equals itself, without computing its fields.
    if matches!(left, Object::Host(_)) && left.is(right) {
        return Ok(true);
    }
    if left.type_name() != right.type_name() || left.len() != right.len() {
        return Ok(false);
    }
    if let (Object::Host(a), Object::Host(b)) = (left, right)
        && let Some(equal) = a.node.equals(a.view, *b, steps)
    {
        return equal;
    }
    for field in left.fields() {
        steps.one()?;
        let (Some(value), Some(other)) = (left.get(&field)?, right.get(&field)?) else { return Ok(false) };
        if compare(&value, &other, steps)? == Some(false) {
            return Ok(false);
        }
    }
    Ok(true)
}
