//! Lists as sets: containment, equivalence, intersection. Elements are compared with `==`.

use crate::cost::rules::arg_size;
use crate::cost::{CallEstimate, CallSite, CostEstimate};
use crate::error::EvalError;
use crate::evaluation::steps::Steps;
use crate::library::bounds;
use crate::library::{Call, Function, Implementation, Library, Overload, Version};
use crate::types::Type;
use crate::value::equality;
use crate::value::{List, Value};

const SINCE: Version = Version::new(1, 29);

/// Returns the declarations of the library.
pub fn library() -> Library {
    let list = || Type::list(Type::param("T"));
    let function = |name, id, implementation: Implementation| {
        let overload = Overload { since: SINCE, ..Overload::function(id, [list(), list()], Type::Bool) };
        (name, overload.computed_by(implementation))
    };
    let (contains, equivalent, intersects) = (
        function("sets.contains", "sets_contains_list_list", contains),
        function("sets.equivalent", "sets_equivalent_list_list", equivalent),
        function("sets.intersects", "sets_intersects_list_list", intersects),
    );
    Library {
        functions: vec![
            Function::new(contains.0, [contains.1.costing(one_way, one_way_actual)]),
            Function::new(equivalent.0, [equivalent.1.costing(both_ways, both_ways_actual)]),
            Function::new(intersects.0, [intersects.1.costing(one_way, one_way_actual)]),
        ],
        types: Vec::new(),
    }
}

/// Estimates the cost of a call that looks up each element of one list in the other list.
fn one_way(site: &dyn CallSite) -> Option<CallEstimate> {
    let visits = site.size(0).times(site.size(1)).times_factor(1.0);
    Some(CallEstimate::cost(visits.plus(CostEstimate::exactly(1))))
}

fn both_ways(site: &dyn CallSite) -> Option<CallEstimate> {
    let visits = site.size(0).times(site.size(1)).times_factor(2.0);
    Some(CallEstimate::cost(visits.plus(CostEstimate::exactly(1))))
}

fn one_way_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    arg_size(args, 0).saturating_mul(arg_size(args, 1)).saturating_add(1)
}

fn both_ways_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    arg_size(args, 0).saturating_mul(arg_size(args, 1)).saturating_mul(2).saturating_add(1)
}

fn lists<'c, 'v>(call: &'c Call<'_, 'v>) -> Result<(&'c List<'v>, &'c List<'v>), EvalError> {
    let [Value::List(left), Value::List(right)] = call.args else {
        return Err(EvalError::no_such_overload());
    };
    bounds::limit_comparisons(left.len(), right.len())?;
    Ok((left, right))
}

fn has<'v>(list: &List<'v>, element: &Value<'v>, steps: &Steps<'_>) -> Result<bool, EvalError> {
    for candidate in list.iter() {
        steps.one()?;
        if equality::equal(&candidate, element, steps)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_all<'v>(list: &List<'v>, elements: &List<'v>, steps: &Steps<'_>) -> Result<bool, EvalError> {
    for element in elements.iter() {
        if !has(list, &element, steps)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let (left, right) = lists(call)?;
    has_all(left, right, call.steps).map(Value::Bool)
}

fn equivalent<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let (left, right) = lists(call)?;
    Ok(Value::Bool(has_all(left, right, call.steps)? && has_all(right, left, call.steps)?))
}

fn intersects<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let (left, right) = lists(call)?;
    for element in left.iter() {
        if has(right, &element, call.steps)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(values: impl IntoIterator<Item = i64>) -> Value<'static> {
        Value::list(values.into_iter().map(Value::Int).collect::<Vec<_>>())
    }

    #[test]
    fn sets_ignore_order_and_repetition() {
        let cases: [(Implementation, &[i64], &[i64], bool); 9] = [
            (contains, &[1, 2], &[2, 1, 1], true),
            (contains, &[1], &[1, 2], false),
            (contains, &[], &[], true),
            (equivalent, &[1, 2], &[2, 1, 1], true),
            (equivalent, &[1, 2], &[1], false),
            (equivalent, &[1], &[1, 2], false),
            (intersects, &[1, 2], &[2, 3], true),
            (intersects, &[1], &[2], false),
            (intersects, &[], &[], false),
        ];
        for (implementation, left, right, want) in cases {
            let args = [ints(left.iter().copied()), ints(right.iter().copied())];
            let got = implementation(&Call { args: &args, steps: &Steps::unlimited() });
            assert!(matches!(got, Ok(Value::Bool(got)) if got == want), "{left:?} {right:?}: {got:?}");
        }
    }

    #[test]
    fn numbers_are_equal_across_types() {
        let args = [Value::list(vec![Value::Int(1)]), Value::list(vec![Value::Double(1.0), Value::Uint(1)])];
        assert!(matches!(
            equivalent(&Call { args: &args, steps: &Steps::unlimited() }),
            Ok(Value::Bool(true))
        ));
    }

    #[test]
    fn sets_too_large_to_compare_are_refused() {
        let args = [ints(0..10_000), ints(10_000..20_000)];
        let refused = intersects(&Call { args: &args, steps: &Steps::unlimited() });
        assert!(matches!(refused, Err(error) if error.message.contains("cost limit exceeded")));
    }
}
