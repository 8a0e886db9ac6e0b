//! Bounds on the work and the memory of one call.
//!
//! A call is charged for its arguments before it is computed. But some calls cost almost nothing regardless
//! of their work, and other calls are charged only for their result. Such a call must be refused before it is
//! computed if its work or its result would be excessive.

use crate::error::{EvalError, EvalErrorKind};
use crate::evaluation::steps::Steps;

/// Maximum size in bytes of a text or list that one call creates. Costs depend on the arguments, not on the
/// result, so this limit bounds the memory of calls such as `s.replace('a', t)`.
pub(crate) const RESULT_BYTES_MAX: usize = 32 << 20;

/// Creates the error of a result above [`RESULT_BYTES_MAX`].
pub(crate) fn result_too_large() -> EvalError {
    EvalError { kind: EvalErrorKind::CostLimit, ..EvalError::new("operation cancelled: result too large") }
}

/// Maximum number of element comparisons of one call: the largest budget of a host. A call with more
/// comparisons would exceed the budget anyway, but only after the comparisons were made.
const COMPARISONS_MAX: usize = 10_000_000;

/// Refuses a call that compares each of `left` elements with each of `right` elements if that is too much
/// work.
///
/// # Errors
/// The error of an exceeded cost limit.
pub(crate) fn limit_comparisons(left: usize, right: usize) -> Result<(), EvalError> {
    if left.saturating_mul(right) <= COMPARISONS_MAX {
        return Ok(());
    }
    Err(cost_limit_exceeded())
}

/// Creates the error of a call whose cost exceeds every limit.
pub(crate) fn cost_limit_exceeded() -> EvalError {
    let message = "operation cancelled: actual cost limit exceeded";
    EvalError { kind: EvalErrorKind::CostLimit, ..EvalError::new(message) }
}

/// Maximum number of elements of a list that one call creates: more than fit in a request of the largest
/// size. Concatenations only refer to their operands, and may have billions of elements.
const ELEMENTS_MAX: usize = 4_000_000;

/// Refuses a call that creates a list of too many elements.
///
/// # Errors
/// The result is too large.
pub(crate) fn limit_list(elements: usize) -> Result<(), EvalError> {
    if elements > ELEMENTS_MAX { Err(result_too_large()) } else { Ok(()) }
}

/// Checks a call like [`limit_list`], and counts the steps of visiting each element.
///
/// # Errors
/// The result is too large, or the evaluation was interrupted.
pub(crate) fn make_list(elements: usize, steps: &Steps<'_>) -> Result<(), EvalError> {
    limit_list(elements)?;
    steps.many(elements)
}
