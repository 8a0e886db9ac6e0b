//! Arithmetic, ordering, membership and the other operators on values.
//!
//! The type of the left operand selects the implementation. If this type lacks the operator, the error is "no
//! such overload" with the name of the operator. The name is absent if the left operand is a string, duration
//! or timestamp, and if only the right operand has a wrong type. These error texts equal the texts of the
//! reference.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::EvalError;
use crate::evaluation::steps::Steps;
use crate::number;
use crate::value::equality;
use crate::value::{Duration, List, Octets, Text, Value};

type Outcome<'v> = Result<Value<'v>, EvalError>;

const INT_OVERFLOW: &str = "integer overflow";
const UINT_OVERFLOW: &str = "unsigned integer overflow";
const TIMESTAMP_OVERFLOW: &str = "timestamp overflow";
const DIVISION_BY_ZERO: &str = "division by zero";
const MODULUS_BY_ZERO: &str = "modulus by zero";
const NOT_ORDERED: &str = "NaN values cannot be ordered";

/// Creates the error about a left operand whose type lacks the operator `name`.
pub fn unsupported(operand: &Value<'_>, name: &str) -> EvalError {
    match operand {
        Value::String(_) | Value::Duration(_) | Value::Timestamp(_) => EvalError::no_such_overload(),
        _ => EvalError::new(format!("no such overload: {name}")),
    }
}

fn int<'v>(result: Option<i64>) -> Outcome<'v> {
    result.map(Value::Int).ok_or(EvalError::new(INT_OVERFLOW))
}

fn uint<'v>(result: Option<u64>) -> Outcome<'v> {
    result.map(Value::Uint).ok_or(EvalError::new(UINT_OVERFLOW))
}

fn duration<'v>(result: Option<i64>) -> Outcome<'v> {
    result.map(|nanoseconds| Value::Duration(Duration { nanoseconds })).ok_or(EvalError::new(INT_OVERFLOW))
}

/// Computes the sum `left + right`.
pub fn add<'v>(left: &Value<'v>, right: &Value<'v>) -> Outcome<'v> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => Ok(Value::String(concat_text(a, b))),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes(concat_bytes(a, b))),
        (Value::List(a), Value::List(b)) => List::concat(a, b).map(Value::List),
        (Value::Duration(a), Value::Duration(b)) => duration(a.nanoseconds.checked_add(b.nanoseconds)),
        (Value::Timestamp(at), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(at)) => {
            at.checked_add(by.nanoseconds).map(Value::Timestamp).ok_or(EvalError::new(TIMESTAMP_OVERFLOW))
        }
        (Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Bytes(_) | Value::List(_), _) => {
            Err(EvalError::no_such_overload())
        }
        _ => Err(unsupported(left, "_+_")),
    }
}

fn concat_text<'v>(left: &Text<'v>, right: &Text<'v>) -> Text<'v> {
    if left.is_empty() {
        return right.clone();
    }
    if right.is_empty() {
        return left.clone();
    }
    Text::Shared(Arc::from([&**left, &**right].concat()))
}

fn concat_bytes<'v>(left: &Octets<'v>, right: &Octets<'v>) -> Octets<'v> {
    Octets::Shared(Arc::from([&**left, &**right].concat()))
}

/// Computes the difference `left - right`.
pub fn subtract<'v>(left: &Value<'v>, right: &Value<'v>) -> Outcome<'v> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => duration(a.nanoseconds.checked_sub(b.nanoseconds)),
        (Value::Timestamp(a), Value::Timestamp(b)) => duration(a.checked_since(*b)),
        (Value::Timestamp(at), Value::Duration(by)) => {
            let negated = by.nanoseconds.checked_neg().ok_or(EvalError::new(INT_OVERFLOW))?;
            at.checked_add(negated).map(Value::Timestamp).ok_or(EvalError::new(TIMESTAMP_OVERFLOW))
        }
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), _) => Err(EvalError::no_such_overload()),
        _ => Err(unsupported(left, "_-_")),
    }
}

/// Computes the product `left * right`.
pub fn multiply<'v>(left: &Value<'v>, right: &Value<'v>) -> Outcome<'v> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_mul(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_mul(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), _) => Err(EvalError::no_such_overload()),
        _ => Err(unsupported(left, "_*_")),
    }
}

/// Computes `left / right`; integers round towards zero.
pub fn divide<'v>(left: &Value<'v>, right: &Value<'v>) -> Outcome<'v> {
    match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            Err(EvalError::new(DIVISION_BY_ZERO))
        }
        (Value::Int(a), Value::Int(b)) => int(a.checked_div(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_div(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), _) => Err(EvalError::no_such_overload()),
        _ => Err(unsupported(left, "_/_")),
    }
}

/// Computes `left % right`; the result has the sign of `left`.
pub fn modulo<'v>(left: &Value<'v>, right: &Value<'v>) -> Outcome<'v> {
    match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            Err(EvalError::new(MODULUS_BY_ZERO))
        }
        (Value::Int(a), Value::Int(b)) => int(a.checked_rem(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_rem(*b)),
        (Value::Int(_) | Value::Uint(_), _) => Err(EvalError::no_such_overload()),
        _ => Err(unsupported(left, "_%_")),
    }
}

/// Computes the negation `-operand`.
pub fn negate<'v>(operand: &Value<'v>) -> Outcome<'v> {
    match operand {
        Value::Int(i) => int(i.checked_neg()),
        Value::Double(d) => Ok(Value::Double(-d)),
        Value::Duration(d) => duration(d.nanoseconds.checked_neg()),
        Value::Bool(_) => Err(EvalError::no_such_overload()),
        _ => Err(unsupported(operand, "-_")),
    }
}

/// Computes the logical negation `!operand`.
pub fn not<'v>(operand: &Value<'v>) -> Outcome<'v> {
    match operand {
        Value::Bool(b) => Ok(Value::Bool(!b)),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// The four ordering operators.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Order {
    /// The operator `<` (less than).
    Less,
    /// The operator `<=` (less or equal).
    LessEquals,
    /// The operator `>` (greater than).
    Greater,
    /// The operator `>=` (greater or equal).
    GreaterEquals,
}

impl Order {
    /// Applies the operator to `left` and `right`.
    pub fn apply<'v>(self, left: &Value<'v>, right: &Value<'v>) -> Outcome<'v> {
        let ordering = compare(left, right).ok_or_else(|| match left {
            Value::Null
            | Value::List(_)
            | Value::Map(_)
            | Value::Object(_)
            | Value::Type(_)
            | Value::Optional(_)
            | Value::Opaque(_) => unsupported(left, self.name()),
            _ => EvalError::no_such_overload(),
        })?;
        let ordering = ordering.ok_or(EvalError::new(NOT_ORDERED))?;
        Ok(Value::Bool(match self {
            Self::Less => ordering.is_lt(),
            Self::LessEquals => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterEquals => ordering.is_ge(),
        }))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Less => "_<_",
            Self::LessEquals => "_<=_",
            Self::Greater => "_>_",
            Self::GreaterEquals => "_>=_",
        }
    }
}

/// Returns the order of two values of one type, or of two numbers. `None` means that the values are not
/// comparable; `Some(None)` means that a number is NaN.
pub fn compare(left: &Value<'_>, right: &Value<'_>) -> Option<Option<Ordering>> {
    Some(match (left, right) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Uint(b)) => Some(number::compare_int_uint(*a, *b)),
        (Value::Int(a), Value::Double(b)) => number::compare_int_double(*a, *b),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Int(b)) => Some(number::compare_int_uint(*b, *a).reverse()),
        (Value::Uint(a), Value::Double(b)) => number::compare_uint_double(*a, *b),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => number::compare_int_double(*b, *a).map(Ordering::reverse),
        (Value::Double(a), Value::Uint(b)) => number::compare_uint_double(*b, *a).map(Ordering::reverse),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (Value::Bytes(a), Value::Bytes(b)) => Some((**a).cmp(&**b)),
        (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
        _ => return None,
    })
}

/// Computes the membership `element in container`.
pub fn contains<'v>(container: &Value<'v>, element: &Value<'v>, steps: &Steps<'_>) -> Outcome<'v> {
    let found = match container {
        Value::List(list) => {
            let mut found = false;
            for candidate in list.iter() {
                steps.one()?;
                if equality::equal(element, &candidate, steps)? {
                    found = true;
                    break;
                }
            }
            found
        }
        Value::Map(map) => map.get(element).is_some(),
        Value::Object(object) if !object.is_lazy() => match element {
            Value::String(field) => object.get(field)?.is_some(),
            _ => false,
        },
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(Value::Bool(found))
}
