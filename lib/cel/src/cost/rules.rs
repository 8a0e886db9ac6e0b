//! Cost rules that several functions share, estimated and actual.
//!
//! Costs follow the work. Reading text costs 0.1 per character. Matching a regular expression costs the
//! product of 0.25 per character of the pattern and 0.1 per character of the text. Visiting an element costs
//! 1.

use crate::cost::arithmetic::times_factor;
use crate::cost::{CallEstimate, CallSite, CostEstimate, SizeEstimate};
use crate::types::{Primitive, Type};
use crate::value::Value;

/// Cost per character of text that is read or written.
pub const TEXT_FACTOR: f64 = 0.1;
/// Cost per character of a regular expression; a subexpression has about four characters.
pub const PATTERN_FACTOR: f64 = 0.25;
/// Cost of creating a list.
pub const LIST_COST: u64 = 10;
/// Cost of creating a map.
pub const MAP_COST: u64 = 30;
/// Cost of creating an object.
pub const OBJECT_COST: u64 = 40;
/// Cost of a call whose time hardly depends on its arguments.
pub const CALL_COST: u64 = 1;

/// Returns the size of argument `index`, or 1 if the argument is absent.
pub fn arg_size(args: &[Value<'_>], index: usize) -> u64 {
    args.get(index).map_or(1, Value::cost_size)
}

/// Returns the estimate of a call that costs [`CALL_COST`].
pub fn nominal(_: &dyn CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::cost(CostEstimate::exactly(CALL_COST)))
}

/// Returns the actual cost [`CALL_COST`].
pub fn nominal_actual(_: &[Value<'_>], _: &Value<'_>) -> u64 {
    CALL_COST
}

/// Estimates the cost of a call that reads its first argument, which is text.
pub fn reads_text(site: &dyn CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::cost(site.size(0).times_factor(TEXT_FACTOR)))
}

/// Estimates the cost and the result size of a call that reads its first argument. The result is at most as
/// large as this argument.
pub fn reads_text_into_as_much(site: &dyn CallSite) -> Option<CallEstimate> {
    let size = site.size(0);
    Some(CallEstimate::cost(size.times_factor(TEXT_FACTOR)).with_size(size))
}

/// Returns the actual cost of a call that reads its first argument.
pub fn reads_text_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    times_factor(arg_size(args, 0), TEXT_FACTOR)
}

/// Returns the actual cost of a call that reads its first argument and writes about as much.
pub fn rewrites_text_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    times_factor(arg_size(args, 0), 2.0 * TEXT_FACTOR)
}

/// Estimates the cost of a match of a regular expression of `pattern` characters against a text of `text`
/// characters. The text counts as one character longer, so that the pattern has a cost even for an empty
/// text.
pub fn matching(text: SizeEstimate, pattern: SizeEstimate) -> CostEstimate {
    let text = text.plus(SizeEstimate::exactly(1)).times_factor(TEXT_FACTOR);
    text.times(pattern.times_factor(PATTERN_FACTOR))
}

/// Returns the actual cost of matching.
pub fn matching_actual(text: u64, pattern: u64) -> u64 {
    let text = times_factor(text.saturating_add(1), TEXT_FACTOR);
    text.saturating_mul(times_factor(pattern, PATTERN_FACTOR))
}

/// Estimates the cost of a call that visits each element of its first argument, or reads the argument if it
/// is text. Elements that are text are read as well.
pub fn visits_elements(site: &dyn CallSite) -> Option<CallEstimate> {
    let size = site.size(0);
    let Type::List(element) = site.type_of(0) else {
        return Some(CallEstimate::cost(size.times_factor(TEXT_FACTOR)));
    };
    let visit = CostEstimate::exactly(1);
    let each =
        if is_text(element) { visit.plus(site.element_size(0).times_factor(TEXT_FACTOR)) } else { visit };
    Some(CallEstimate::cost(size.times_cost(each)))
}

/// Returns the actual cost of a call that visits its first argument with all its content.
pub fn visits_elements_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    args.first().map_or(0, traversal)
}

/// Estimates the cost of a call that creates a list of `size` elements: `factor` per element, plus the cost
/// of a call and of a list.
pub fn makes_list(size: SizeEstimate, factor: f64) -> CallEstimate {
    let cost = size.times_factor(factor).plus(CostEstimate::exactly(CALL_COST + LIST_COST));
    CallEstimate::cost(cost).with_size(size)
}

/// Returns the actual cost of [`makes_list`], rounded down.
pub fn makes_list_actual(size: u64, factor: f64) -> u64 {
    ((size as f64 * factor) as u64).saturating_add(CALL_COST + LIST_COST)
}

/// Returns whether a type is text or bytes.
pub fn is_text(of: &Type) -> bool {
    matches!(of, Type::String | Type::Bytes | Type::Wrapper(Primitive::String | Primitive::Bytes))
}

/// Returns the cost of visiting a value and all values in it: a tenth per byte of text, rounded down for each
/// text; one for each number or similar value; and nothing for the lists and maps themselves.
///
/// The walk ends when the cost or the number of values exceeds [`VISITS_MAX`], because a cheap concatenation
/// can create a list of billions of elements.
fn traversal(value: &Value<'_>) -> u64 {
    let mut cost = 0u64;
    let mut visited = 0u64;
    // Lists and maps in progress, with the index of their next child.
    let mut open: Vec<(Value<'_>, usize)> = Vec::new();
    let mut next = Some(value.clone());
    loop {
        if let Some(value) = next.take() {
            let own = match &value {
                Value::String(text) => (text.len() as f64 * TEXT_FACTOR) as u64,
                Value::Bytes(bytes) => (bytes.len() as f64 * TEXT_FACTOR) as u64,
                Value::List(_) | Value::Map(_) => 0,
                _ => 1,
            };
            cost = cost.saturating_add(own);
            visited += 1;
            if visited > VISITS_MAX || cost > VISITS_MAX {
                return u64::MAX;
            }
            if matches!(value, Value::List(_) | Value::Map(_)) {
                open.push((value, 0));
            }
        }
        let Some((inside, at)) = open.last_mut() else { return cost };
        next = match inside {
            Value::List(list) => list.get(*at),
            // Even indices are keys, and odd indices are values.
            Value::Map(map) if at.is_multiple_of(2) => map.key_at(*at / 2),
            Value::Map(map) => map.value_at(*at / 2),
            _ => None,
        };
        *at += 1;
        if next.is_none() {
            open.pop();
        }
    }
}

/// Maximum number of values that are visited to compute the cost of a call, and maximum of this cost. No
/// budget of a host is larger.
const VISITS_MAX: u64 = 10_000_000;
