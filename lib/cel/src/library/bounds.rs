//! Bounds on the work and the memory of one call.
//!
//! A call is charged before it is computed, by its arguments, but some calls cost next to nothing whatever they do, and some are
//! charged by their result; those whose work or result is out of all proportion must be refused before.

use crate::error::{EvalError, EvalErrorKind};
use crate::evaluation::steps::Steps;

/// Text and lists that one call may make. Costs follow the arguments and not the result, so this is what bounds the
/// memory of calls such as `s.replace('a', t)`.
pub(crate) const RESULT_BYTES_MAX: usize = 32 << 20;

/// The error of a result above [`RESULT_BYTES_MAX`].
pub(crate) fn result_too_large() -> EvalError {
    EvalError { kind: EvalErrorKind::CostLimit, ..EvalError::new("operation cancelled: result too large") }
}

/// Comparisons of elements that one call may make: the largest budget of a host. A call with more would exceed the budget
/// anyway, but only after it made them.
const COMPARISONS_MAX: usize = 10_000_000;

/// Refuses a call that compares each of `left` elements with each of `right` ones when they are too many.
///
/// # Errors
/// The one of an exceeded cost limit.
pub(crate) fn limit_comparisons(left: usize, right: usize) -> Result<(), EvalError> {
    if left.saturating_mul(right) <= COMPARISONS_MAX {
        return Ok(());
    }
    Err(cost_limit_exceeded())
}

/// The error of a call whose cost is above every limit.
pub(crate) fn cost_limit_exceeded() -> EvalError {
    let message = "operation cancelled: actual cost limit exceeded";
    EvalError { kind: EvalErrorKind::CostLimit, ..EvalError::new(message) }
}

/// Elements of a list that one call may make: more than a request of the largest size can hold. Concatenations share their sides, and
/// may have billions of elements.
const ELEMENTS_MAX: usize = 4_000_000;

/// Refuses a call that makes a list of so many elements.
///
/// # Errors
/// The result is too large.
pub(crate) fn limit_list(elements: usize) -> Result<(), EvalError> {
    if elements > ELEMENTS_MAX { Err(result_too_large()) } else { Ok(()) }
}

/// The same for a call that visits each element as it makes the list: counts its steps.
///
/// # Errors
/// The result is too large, or the evaluation was interrupted.
pub(crate) fn make_list(elements: usize, steps: &Steps<'_>) -> Result<(), EvalError> {
    limit_list(elements)?;
    steps.many(elements)
}
