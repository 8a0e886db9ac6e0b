//! Cost rules that several functions share, estimated and actual.
//!
//! Costs follow the work: reading text costs a tenth per character, matching a regular expression a quarter per
//! character of the pattern for each tenth of the text, visiting elements one each.

use crate::cost::arithmetic::times_factor;
use crate::cost::{CallEstimate, CallSite, CostEstimate, SizeEstimate};
use crate::types::{Primitive, Type};
use crate::value::Value;

/// Cost per character of text that is read or written.
pub const TEXT_FACTOR: f64 = 0.1;
/// Cost per character of a regular expression; an expression of the pattern has about four characters.
pub const PATTERN_FACTOR: f64 = 0.25;
/// Cost of a list that is made.
pub const LIST_COST: u64 = 10;
/// Cost of a map that is made.
pub const MAP_COST: u64 = 30;
/// Cost of an object that is made.
pub const OBJECT_COST: u64 = 40;
/// Cost of a call that takes about the same time whatever its arguments.
pub const CALL_COST: u64 = 1;

/// The size of argument `index`, and 1 for an argument that is not there.
pub fn arg_size(args: &[Value<'_>], index: usize) -> u64 {
    args.get(index).map_or(1, Value::cost_size)
}

/// A call that costs [`CALL_COST`].
pub fn nominal(_: &dyn CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::cost(CostEstimate::exactly(CALL_COST)))
}

/// A call that cost [`CALL_COST`].
pub fn nominal_actual(_: &[Value<'_>], _: &Value<'_>) -> u64 {
    CALL_COST
}

/// A call that reads its first argument, which is text.
pub fn reads_text(site: &dyn CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::cost(site.size(0).times_factor(TEXT_FACTOR)))
}

/// A call that reads its first argument and gives a result of at most that size.
pub fn reads_text_into_as_much(site: &dyn CallSite) -> Option<CallEstimate> {
    let size = site.size(0);
    Some(CallEstimate::cost(size.times_factor(TEXT_FACTOR)).with_size(size))
}

/// A call that read its first argument.
pub fn reads_text_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    times_factor(arg_size(args, 0), TEXT_FACTOR)
}

/// A call that read its first argument and wrote about as much.
pub fn rewrites_text_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    times_factor(arg_size(args, 0), 2.0 * TEXT_FACTOR)
}

/// The cost of matching `pattern` characters of a regular expression against `text` characters. One is added to the
/// text: an empty one does not make the pattern free.
pub fn matching(text: SizeEstimate, pattern: SizeEstimate) -> CostEstimate {
    let text = text.plus(SizeEstimate::exactly(1)).times_factor(TEXT_FACTOR);
    text.times(pattern.times_factor(PATTERN_FACTOR))
}

/// The actual cost of matching.
pub fn matching_actual(text: u64, pattern: u64) -> u64 {
    let text = times_factor(text.saturating_add(1), TEXT_FACTOR);
    text.saturating_mul(times_factor(pattern, PATTERN_FACTOR))
}

/// A call that visits each element of its first argument, or reads it when it is text. Elements that are text
/// themselves are read, too.
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

/// A call that visited its first argument with all that is in it.
pub fn visits_elements_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    args.first().map_or(0, traversal)
}

/// A call that makes a list from `size` elements at `factor` each, and what a call and a list cost.
pub fn makes_list(size: SizeEstimate, factor: f64) -> CallEstimate {
    let cost = size.times_factor(factor).plus(CostEstimate::exactly(CALL_COST + LIST_COST));
    CallEstimate::cost(cost).with_size(size)
}

/// The actual cost of [`makes_list`], rounded down.
pub fn makes_list_actual(size: u64, factor: f64) -> u64 {
    ((size as f64 * factor) as u64).saturating_add(CALL_COST + LIST_COST)
}

/// Whether a type is text or bytes.
pub fn is_text(of: &Type) -> bool {
    matches!(of, Type::String | Type::Bytes | Type::Wrapper(Primitive::String | Primitive::Bytes))
}

/// The cost of visiting a value and all values in it: a tenth per byte of text, rounded down for each text, one for
/// each number and the like, nothing for the lists and maps themselves.
///
/// The walk ends at a cost or a number of values that no host allows: concatenations make lists of billions of elements out of
/// a few.
fn traversal(value: &Value<'_>) -> u64 {
    let mut cost = 0u64;
    let mut visited = 0u64;
    // Lists and maps whose parts are visited, with the place of the next one.
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
            // Keys and values take turns.
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

/// Values that are visited to find out what a call costs, and what that may be: the largest budget of a host.
const VISITS_MAX: u64 = 10_000_000;
