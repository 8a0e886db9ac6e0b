//! Functions on lists: order, sums, search, slices, flattening, sorting.

use std::cmp::Ordering;

use crate::ast::Constant;
use crate::cost::rules::{self, TEXT_FACTOR, arg_size, is_text};
use crate::cost::{CallEstimate, CallSite, SizeEstimate};
use crate::error::EvalError;
use crate::evaluation::operators;
use crate::library::bounds;
use crate::library::{Call, Function, Implementation, Library, Overload, Version};
use crate::types::Type;
use crate::value::equality;
use crate::value::{Duration, List, Value};

type Outcome<'v> = Result<Value<'v>, EvalError>;

/// Version that introduced the functions that create new lists.
const SECOND: Version = Version::new(1, 34);

/// Maximum length of a range: the largest cost limit of one expression. A longer range would exceed the limit
/// anyway, but only after it was created.
const RANGE_LEN_MAX: i64 = 1_000_000;

/// The overloads of a function for each type with an order.
struct Comparable {
    of: Type,
    is_sorted: &'static str,
    max: &'static str,
    min: &'static str,
    sort: &'static str,
    sort_by: &'static str,
}

/// Returns the types with an order, in the order in which the checker tries them.
fn comparable() -> [Comparable; 8] {
    let row = |of, ids: [&'static str; 5]| {
        let [is_sorted, max, min, sort, sort_by] = ids;
        Comparable { of, is_sorted, max, min, sort, sort_by }
    };
    macro_rules! ids {
        ($short:literal, $long:literal) => {
            [
                concat!("list_", $short, "_is_sorted_bool"),
                concat!("list_", $short, "_max_", $short),
                concat!("list_", $short, "_min_", $short),
                concat!("list_", $long, "_sort"),
                concat!("list_", $long, "_sortByAssociatedKeys"),
            ]
        };
    }
    [
        row(Type::Int, ids!("int", "int")),
        row(Type::Uint, ids!("uint", "uint")),
        row(Type::Double, ids!("double", "double")),
        row(Type::Bool, ids!("bool", "bool")),
        row(Type::Duration, ids!("duration", "google.protobuf.Duration")),
        row(Type::Timestamp, ids!("timestamp", "google.protobuf.Timestamp")),
        row(Type::String, ids!("string", "string")),
        row(Type::Bytes, ids!("bytes", "bytes")),
    ]
}

/// Returns the declarations of the library.
pub fn library() -> Library {
    let functions = reading_functions().into_iter().chain(creating_functions()).collect();
    Library { functions, types: Vec::new() }
}

/// Returns the functions that visit the elements of a list and create no list.
fn reading_functions() -> Vec<Function> {
    let visits = |overload: Overload, implementation: Implementation| {
        overload.computed_by(implementation).costing(rules::visits_elements, rules::visits_elements_actual)
    };
    let kinds = comparable();
    let each = |overload: &dyn Fn(&Comparable) -> Overload| kinds.iter().map(overload).collect::<Vec<_>>();
    let sums: [(&str, Type, Implementation); 4] = [
        ("list_int_sum_int", Type::Int, |call| sum(call, Value::Int(0))),
        ("list_uint_sum_uint", Type::Uint, |call| sum(call, Value::Uint(0))),
        ("list_double_sum_double", Type::Double, |call| sum(call, Value::Double(0.0))),
        ("list_duration_sum_duration", Type::Duration, |call| {
            sum(call, Value::Duration(Duration { nanoseconds: 0 }))
        }),
    ];
    let element = || Type::param("A");
    let search = || [Type::list(element()), element()];
    vec![
        Function::new(
            "isSorted",
            each(&|kind| {
                visits(Overload::member(kind.is_sorted, [Type::list(kind.of.clone())], Type::Bool), is_sorted)
            }),
        ),
        Function::new(
            "sum",
            sums.map(|(id, of, implementation)| {
                visits(Overload::member(id, [Type::list(of.clone())], of), implementation)
            }),
        ),
        Function::new(
            "max",
            each(&|kind| {
                visits(Overload::member(kind.max, [Type::list(kind.of.clone())], kind.of.clone()), max)
            }),
        ),
        Function::new(
            "min",
            each(&|kind| {
                visits(Overload::member(kind.min, [Type::list(kind.of.clone())], kind.of.clone()), min)
            }),
        ),
        Function::new(
            "indexOf",
            [visits(Overload::member("list_a_index_of_int", search(), Type::Int), index_of)],
        ),
        Function::new(
            "lastIndexOf",
            [visits(Overload::member("list_a_last_index_of_int", search(), Type::Int), last_index_of)],
        ),
    ]
}

/// Returns the functions that create a new list.
fn creating_functions() -> Vec<Function> {
    let second = |overload: Overload, implementation: Implementation| {
        Overload { since: SECOND, ..overload }.computed_by(implementation)
    };
    let list = || Type::list(Type::param("T"));
    let dyns = || Type::list(Type::Dyn);
    let kinds = comparable();
    let each = |overload: &dyn Fn(&Comparable) -> Overload| kinds.iter().map(overload).collect::<Vec<_>>();
    let range = Overload::function("lists_range", [Type::Int], Type::list(Type::Int));
    vec![
        Function::new(
            "slice",
            [second(Overload::member("list_slice", [list(), Type::Int, Type::Int], list()), slice)
                .costing(slice_estimate, result_actual)
                .by_result()],
        ),
        Function::new(
            "flatten",
            [
                second(Overload::member("list_flatten", [Type::list(list())], list()), flatten)
                    .costing(flatten_estimate, flatten_actual),
                second(Overload::member("list_flatten_int", [dyns(), Type::Int], dyns()), flatten)
                    .costing(flatten_estimate, flatten_actual),
            ],
        ),
        Function::new(
            "sort",
            each(&|kind| {
                let of = Type::list(kind.of.clone());
                let estimate = if is_text(&kind.of) { sort_text_estimate } else { sort_estimate };
                second(Overload::member(kind.sort, [of.clone()], of), sort)
                    .costing(estimate, sort_actual)
                    .if_chosen()
            }),
        ),
        Function::new(
            "@sortByAssociatedKeys",
            each(&|kind| {
                let keys = Type::list(kind.of.clone());
                let estimate = if is_text(&kind.of) { sort_by_text_estimate } else { sort_by_estimate };
                second(Overload::member(kind.sort_by, [list(), keys], list()), sort_by)
                    .costing(estimate, sort_by_actual)
                    .if_chosen()
            }),
        ),
        Function::new(
            "lists.range",
            [second(range, make_range).costing(range_estimate, result_actual).by_result()],
        ),
        Function::new(
            "reverse",
            [second(Overload::member("list_reverse", [list()], list()), reverse)
                .costing(reverse_estimate, result_actual)
                .by_result()],
        ),
        Function::new(
            "distinct",
            [second(Overload::member("list_distinct", [list()], list()), distinct)
                .costing(sort_estimate, sort_actual)],
        ),
    ]
}

/// Returns the value of an argument that is an integer literal; 0 for a negative literal.
fn literal(site: &dyn CallSite, arg: usize) -> Option<u64> {
    match site.constant(arg) {
        Some(Constant::Int(int)) => Some(u64::try_from(*int).unwrap_or(0)),
        _ => None,
    }
}

fn slice_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    let start = literal(site, 1).unwrap_or(0);
    let end = literal(site, 2).unwrap_or(site.size(0).max);
    // In the reference, a range whose end is before its start wraps around.
    Some(rules::makes_list(SizeEstimate::exactly(end.wrapping_sub(start)), 1.0))
}

fn range_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    Some(rules::makes_list(SizeEstimate::exactly(literal(site, 0).unwrap_or(u64::MAX)), 1.0))
}

fn reverse_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    Some(rules::makes_list(site.size(0), 1.0))
}

fn flatten_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    let depth = if site.len() == 2 { literal(site, 1).unwrap_or(u64::MAX) } else { 1 };
    Some(rules::makes_list(site.size(0), depth as f64))
}

/// Estimates sorting, which compares each pair of elements twice.
fn quadratic(size: SizeEstimate, factor: f64) -> Option<CallEstimate> {
    Some(rules::makes_list(size.times(size), factor))
}

fn sort_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    quadratic(site.size(0), 2.0)
}

fn sort_text_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    quadratic(site.size(0), 2.0 + TEXT_FACTOR)
}

fn sort_by_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    quadratic(site.size(1), 2.0)
}

fn sort_by_text_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    quadratic(site.size(1), 2.0 + TEXT_FACTOR)
}

fn result_actual(_: &[Value<'_>], result: &Value<'_>) -> u64 {
    rules::makes_list_actual(result.cost_size(), 1.0)
}

fn flatten_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    let depth = match args.get(1) {
        Some(Value::Int(depth)) => *depth as f64,
        _ => 1.0,
    };
    rules::makes_list_actual(arg_size(args, 0), depth)
}

fn sort_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    quadratic_actual(args.first())
}

fn sort_by_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    quadratic_actual(args.get(1))
}

fn quadratic_actual(keys: Option<&Value<'_>>) -> u64 {
    let first = match keys {
        Some(Value::List(list)) => list.get(0),
        _ => None,
    };
    let is_text = matches!(first, Some(Value::String(_) | Value::Bytes(_)));
    let size = keys.map_or(1, Value::cost_size);
    rules::makes_list_actual(size.saturating_mul(size), if is_text { 2.0 + TEXT_FACTOR } else { 2.0 })
}

fn receiver<'c, 'v>(call: &'c Call<'_, 'v>) -> Result<&'c List<'v>, EvalError> {
    match call.args.first() {
        Some(Value::List(list)) => Ok(list),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Returns the order of two values; `None` if they have no order.
fn order(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    operators::compare(left, right).flatten()
}

fn is_sorted<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let mut previous: Option<Value<'v>> = None;
    for element in receiver(call)?.iter() {
        call.steps.one()?;
        if !has_order(&element) {
            return Err(EvalError::no_such_overload());
        }
        // Two values without an order do not make the list unsorted.
        if previous.as_ref().and_then(|previous| order(previous, &element)) == Some(Ordering::Greater) {
            return Ok(Value::Bool(false));
        }
        previous = Some(element);
    }
    Ok(Value::Bool(true))
}

/// Returns whether values of this type can be ordered.
fn has_order(value: &Value<'_>) -> bool {
    operators::compare(value, value).is_some()
}

fn sum<'v>(call: &Call<'_, 'v>, zero: Value<'v>) -> Outcome<'v> {
    receiver(call)?.iter().try_fold(zero, |sum, element| {
        call.steps.one()?;
        operators::add(&sum, &element)
    })
}

fn max<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    extreme(call, "max", Ordering::Less)
}

fn min<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    extreme(call, "min", Ordering::Greater)
}

/// Returns the maximum of a list if `replaced` is `Less`, and the minimum if `replaced` is `Greater`. An
/// element replaces the best element so far if the best element compares to the new element as `replaced`.
fn extreme<'v>(call: &Call<'_, 'v>, name: &str, replaced: Ordering) -> Outcome<'v> {
    let mut best: Option<Value<'v>> = None;
    for element in receiver(call)?.iter() {
        call.steps.one()?;
        if !has_order(&element) {
            return Err(EvalError::no_such_overload());
        }
        if best.as_ref().is_none_or(|best| order(best, &element) == Some(replaced)) {
            best = Some(element);
        }
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

fn index_of<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let len = receiver(call)?.len();
    position(call, 0..len)
}

fn last_index_of<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let len = receiver(call)?.len();
    position(call, (0..len).rev())
}

fn position<'v>(call: &Call<'_, 'v>, places: impl Iterator<Item = usize>) -> Outcome<'v> {
    let [Value::List(list), needle] = call.args else { return Err(EvalError::no_such_overload()) };
    for place in places {
        call.steps.one()?;
        if let Some(element) = list.get(place)
            && equality::equal(&element, needle, call.steps)?
        {
            return Ok(Value::Int(place as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn slice<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = call.args else {
        return Err(EvalError::no_such_overload());
    };
    let fail = |reason: &str| Err(EvalError::new(format!("cannot slice({start}, {end}), {reason}")));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return fail("negative indexes not supported");
    };
    if from > to {
        return fail("start index must be less than or equal to end index");
    }
    if list.len() < to {
        return fail(&format!("list is length {}", list.len()));
    }
    bounds::make_list(to - from, call.steps)?;
    Ok(Value::list((from..to).filter_map(|place| list.get(place)).collect::<Vec<_>>()))
}

fn flatten<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let depth = match call.args.get(1) {
        None => 1,
        Some(Value::Int(depth)) => *depth,
        Some(_) => return Err(EvalError::no_such_overload()),
    };
    if depth < 0 {
        return Err(EvalError::new("level must be non-negative"));
    }
    let list = receiver(call)?;
    bounds::make_list(list.len(), call.steps)?;
    let mut flat = Vec::new();
    // Elements that are still to be visited, with their remaining levels. The last element of this vector
    // is visited next.
    let mut rest: Vec<_> = list.iter().map(|element| (element, depth)).collect();
    rest.reverse();
    while let Some((value, levels)) = rest.pop() {
        call.steps.one()?;
        match value {
            Value::List(list) if levels > 0 => {
                let first = rest.len();
                bounds::limit_list(first.saturating_add(flat.len()).saturating_add(list.len()))?;
                rest.extend(list.iter().map(|element| (element, levels - 1)));
                rest[first..].reverse();
            }
            value => flat.push(value),
        }
    }
    Ok(Value::list(flat))
}

fn sort<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let list = receiver(call)?;
    sorted(call, list, list)
}

fn sort_by<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let [Value::List(list), Value::List(keys)] = call.args else { return Err(EvalError::no_such_overload()) };
    sorted(call, list, keys)
}

/// Returns the elements of `list`, sorted by their `keys`.
fn sorted<'v>(call: &Call<'_, 'v>, list: &List<'v>, keys: &List<'v>) -> Outcome<'v> {
    if list.len() != keys.len() {
        return Err(EvalError::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        )));
    }
    bounds::make_list(list.len(), call.steps)?;
    let mut pairs: Vec<_> = keys.iter().zip(list.iter()).collect();
    if let Some((first, _)) = pairs.first() {
        if !has_order(first) {
            return Err(EvalError::new("list elements must be comparable"));
        }
        let kind = std::mem::discriminant(first);
        if pairs.iter().any(|(key, _)| std::mem::discriminant(key) != kind) {
            return Err(EvalError::new("list elements must have the same type"));
        }
    }
    // NaN has no order. NaN is placed at the end, so that the order stays total.
    let not_a_number = |value: &Value<'_>| matches!(value, Value::Double(double) if double.is_nan());
    // After an interruption, all comparisons return equal, so that sorting ends soon.
    let mut interrupted = Ok(());
    pairs.sort_by(|(left, _), (right, _)| {
        if interrupted.is_ok() {
            interrupted = call.steps.one();
        }
        match interrupted {
            Ok(()) => order(left, right).unwrap_or_else(|| not_a_number(left).cmp(&not_a_number(right))),
            Err(_) => Ordering::Equal,
        }
    });
    interrupted?;
    Ok(Value::list(pairs.into_iter().map(|(_, element)| element).collect::<Vec<_>>()))
}

fn make_range<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let [Value::Int(len)] = call.args else { return Err(EvalError::no_such_overload()) };
    if *len > RANGE_LEN_MAX {
        return Err(bounds::cost_limit_exceeded());
    }
    bounds::make_list(usize::try_from(*len).unwrap_or(0), call.steps)?;
    Ok(Value::list((0..*len).map(Value::Int).collect::<Vec<_>>()))
}

fn reverse<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let list = receiver(call)?;
    bounds::make_list(list.len(), call.steps)?;
    Ok(Value::list((0..list.len()).rev().filter_map(|place| list.get(place)).collect::<Vec<_>>()))
}

fn distinct<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let list = receiver(call)?;
    bounds::limit_comparisons(list.len(), list.len())?;
    let mut distinct: Vec<Value<'v>> = Vec::new();
    'elements: for element in list.iter() {
        for other in &distinct {
            call.steps.one()?;
            if equality::equal(&element, other, call.steps)? {
                continue 'elements;
            }
        }
        distinct.push(element);
    }
    Ok(Value::list(distinct))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::steps::Steps;

    fn ints(values: &[i64]) -> Value<'static> {
        Value::list(values.iter().copied().map(Value::Int).collect::<Vec<_>>())
    }

    fn display(result: Outcome<'_>) -> String {
        match result {
            Ok(Value::Int(int)) => int.to_string(),
            Ok(Value::Bool(bool)) => bool.to_string(),
            Ok(Value::Double(double)) => double.to_string(),
            Ok(Value::List(list)) => {
                list.iter().map(|element| display(Ok(element))).collect::<Vec<_>>().join(" ")
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => error.message.into_owned(),
        }
    }

    #[test]
    fn lists_are_searched_sorted_and_cut() {
        use Value::{Double, Int};
        let nested = Value::list(vec![ints(&[1]), Value::list(vec![ints(&[2, 3]), Int(4)])]);
        let numbers = Value::list(vec![Double(f64::NAN), Double(2.0), Double(1.0)]);
        let cases: &[(Implementation, Vec<Value<'_>>, &str)] = &[
            (is_sorted, vec![ints(&[1, 1, 2])], "true"),
            (is_sorted, vec![ints(&[2, 1])], "false"),
            (is_sorted, vec![Value::list(vec![Double(f64::NAN), Double(1.0)])], "true"),
            (max, vec![ints(&[1, 3, 2])], "3"),
            (min, vec![ints(&[])], "min called on empty list"),
            (index_of, vec![ints(&[1, 2, 2]), Double(2.0)], "1"),
            (last_index_of, vec![ints(&[1, 2, 2]), Int(2)], "2"),
            (last_index_of, vec![ints(&[1]), Int(2)], "-1"),
            (slice, vec![ints(&[1, 2, 3]), Int(1), Int(3)], "2 3"),
            (slice, vec![ints(&[1]), Int(-1), Int(1)], "cannot slice(-1, 1), negative indexes not supported"),
            (
                slice,
                vec![ints(&[1]), Int(1), Int(0)],
                "cannot slice(1, 0), start index must be less than or equal to end index",
            ),
            (slice, vec![ints(&[1]), Int(2), Int(2)], "cannot slice(2, 2), list is length 1"),
            (flatten, vec![nested.clone(), Int(0)], "1 2 3 4"),
            (flatten, vec![nested.clone(), Int(2)], "1 2 3 4"),
            (flatten, vec![nested, Int(-1)], "level must be non-negative"),
            (sort, vec![ints(&[3, 1, 2])], "1 2 3"),
            (sort, vec![numbers], "1 2 NaN"),
            (sort, vec![Value::list(vec![Int(1), Double(1.0)])], "list elements must have the same type"),
            (sort_by, vec![ints(&[1, 2, 3]), ints(&[3, 1, 2])], "2 3 1"),
            (make_range, vec![Int(3)], "0 1 2"),
            (make_range, vec![Int(-1)], ""),
            (make_range, vec![Int(i64::MAX)], "operation cancelled: actual cost limit exceeded"),
            (reverse, vec![ints(&[1, 2, 3])], "3 2 1"),
            (distinct, vec![ints(&[2, 1, 2])], "2 1"),
        ];
        for (implementation, args, want) in cases {
            assert_eq!(
                display(implementation(&Call { args, steps: &Steps::unlimited() })),
                *want,
                "{args:?}"
            );
        }
        let sum = |list: &[i64]| {
            let args = [ints(list)];
            display(super::sum(&Call { args: &args, steps: &Steps::unlimited() }, Value::Int(0)))
        };
        assert_eq!(sum(&[1, 2]), "3");
        assert_eq!(sum(&[i64::MAX, 1]), "integer overflow");
    }
}
