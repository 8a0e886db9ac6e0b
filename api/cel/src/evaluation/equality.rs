//! Equality of values.
//!
//! Values of different types are unequal, except that numbers compare by value across the three numeric types. Lists
//! compare by element unless the host has its own rule for one, maps by key. Only a value of a library's own type on the
//! left of a value of another type is not comparable at all: `==` is an error then, and an element of a list or map
//! that is not comparable does not make the whole unequal. That is the reference's rule.

use crate::error::{EvalError, EvalErrorKind};
use crate::number;
use crate::value::{List, Map, Object, Value};

/// Element comparisons between two looks at the caller's interrupt: a few microseconds of work.
const STEPS_PER_CHECK: u32 = 1000;

/// The bookkeeping of one comparison, which may visit many elements: it looks at the interrupt of the evaluation from
/// time to time.
pub struct Comparison<'c> {
    interrupted: &'c dyn Fn() -> bool,
    steps: u32,
}

impl<'c> Comparison<'c> {
    /// A comparison that ends with an error soon after `interrupted` is true.
    pub fn new(interrupted: &'c dyn Fn() -> bool) -> Self {
        Self { interrupted, steps: 0 }
    }

    /// Counts one comparison of elements.
    pub fn step(&mut self) -> Result<(), EvalError> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_PER_CHECK) && (self.interrupted)() {
            return Err(interrupted());
        }
        Ok(())
    }
}

/// The error of an evaluation that was interrupted.
pub fn interrupted() -> EvalError {
    EvalError { kind: EvalErrorKind::Interrupted, ..EvalError::new("operation interrupted") }
}

/// Whether two values are equal; values that are not comparable are not.
///
/// # Errors
/// Only when the evaluation was interrupted.
pub fn equal<'v>(
    left: &Value<'v>,
    right: &Value<'v>,
    comparison: &mut Comparison<'_>,
) -> Result<bool, EvalError> {
    Ok(compare(left, right, comparison)? == Some(true))
}

/// `left == right`; `None` when they are not comparable.
///
/// # Errors
/// Only when the evaluation was interrupted.
pub fn compare<'v>(
    left: &Value<'v>,
    right: &Value<'v>,
    comparison: &mut Comparison<'_>,
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
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::Bytes(a), Value::Bytes(b)) => **a == **b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a.runtime_name() == b.runtime_name(),
        (Value::List(a), Value::List(b)) => equal_lists(a, b, comparison)?,
        (Value::Map(a), Value::Map(b)) => equal_entries(a, b.len(), |key| b.get(key), comparison)?,
        (Value::Object(a), Value::Object(b)) if a.is_lazy() && b.is_lazy() => a.is(b),
        (Value::Object(a), _) if a.is_lazy() => return Ok(None),
        (Value::Map(a), Value::Object(b)) if b.is_lazy() => {
            equal_entries(a, b.len(), |key| b.look_up(key).ok(), comparison)?
        }
        (Value::Object(a), Value::Object(b)) => equal_objects(a, b, comparison)?,
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => return compare(a, b, comparison),
            _ => false,
        },
        (Value::Opaque(a), Value::Opaque(b)) if a.type_of() == b.type_of() => a.equals(&**b),
        (Value::Opaque(_), _) => return Ok(None),
        _ => false,
    }))
}

fn equal_lists<'v>(
    left: &List<'v>,
    right: &List<'v>,
    comparison: &mut Comparison<'_>,
) -> Result<bool, EvalError> {
    if let Some(equal) = left.host_equals(right) {
        return Ok(equal);
    }
    if left.len() != right.len() {
        return Ok(false);
    }
    for (a, b) in left.iter().zip(right.iter()) {
        comparison.step()?;
        if compare(&a, &b, comparison)? == Some(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares a map with entries that are `len` in number and looked up one by one.
fn equal_entries<'v>(
    left: &Map<'v>,
    len: usize,
    right: impl Fn(&Value<'v>) -> Option<Value<'v>>,
    comparison: &mut Comparison<'_>,
) -> Result<bool, EvalError> {
    if left.len() != len {
        return Ok(false);
    }
    for (key, value) in left.iter() {
        comparison.step()?;
        let Some(other) = right(&key) else { return Ok(false) };
        if compare(&value, &other, comparison)? == Some(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_objects<'v>(
    left: &Object<'v>,
    right: &Object<'v>,
    comparison: &mut Comparison<'_>,
) -> Result<bool, EvalError> {
    // An object of the host is itself; what it computes is not computed for that.
    if matches!(left, Object::Host(_)) && left.is(right) {
        return Ok(true);
    }
    if left.type_name() != right.type_name() || left.len() != right.len() {
        return Ok(false);
    }
    if let (Object::Host(a), Object::Host(b)) = (left, right)
        && let Some(equal) = a.node.equals(a.view, *b)
    {
        return Ok(equal);
    }
    for field in left.fields() {
        comparison.step()?;
        let (Some(value), Some(other)) = (left.get(&field)?, right.get(&field)?) else { return Ok(false) };
        if compare(&value, &other, comparison)? == Some(false) {
            return Ok(false);
        }
    }
    Ok(true)
}
