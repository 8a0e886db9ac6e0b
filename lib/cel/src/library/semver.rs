//! Semantic versions: `semver('1.2.3-rc.1')`, their components and order.

use crate::cost::rules;
use crate::error::EvalError;
use crate::library::opaque::{self, opaque_type};
use crate::library::{Call, Function, Implementation, Library, Overload, Version as Compatibility};
use crate::types::Type;
use crate::value::Value;

pub use self::version::SemanticVersion;

mod version;

const SINCE: Compatibility = Compatibility::new(1, 33);

/// Returns the type `kubernetes.Semver`.
pub fn semver_type() -> Type {
    Type::object("kubernetes.Semver")
}

opaque_type!(SemanticVersion, semver_type);

/// Returns the declarations of the library.
pub fn library() -> Library {
    let reading = |id, params: &[Type], result, implementation: Implementation| {
        let overload = Overload::function(id, params, result);
        let overload = Overload { since: SINCE, ..overload }.computed_by(implementation);
        overload.costing(rules::reads_text, rules::reads_text_actual)
    };
    let member = |name, id, params: &[Type], result, implementation: Implementation| {
        let params: Vec<_> = std::iter::once(semver_type()).chain(params.iter().cloned()).collect();
        let overload = Overload { since: SINCE, ..Overload::member(id, params, result) };
        let overload = overload.computed_by(implementation);
        Function::new(name, [overload.costing(rules::nominal, rules::nominal_actual)])
    };
    let semver = semver_type;
    Library {
        functions: vec![
            Function::new(
                "semver",
                [
                    reading("string_to_semver", &[Type::String], semver(), read),
                    reading("string_bool_to_semver", &[Type::String, Type::Bool], semver(), read),
                ],
            ),
            Function::new(
                "isSemver",
                [
                    reading("is_semver_string", &[Type::String], Type::Bool, is_semver),
                    reading("is_semver_string_bool", &[Type::String, Type::Bool], Type::Bool, is_semver),
                ],
            ),
            member("isGreaterThan", "semver_is_greater_than", &[semver()], Type::Bool, is_greater_than),
            member("isLessThan", "semver_is_less_than", &[semver()], Type::Bool, is_less_than),
            member("compareTo", "semver_compare_to", &[semver()], Type::Int, compare_to),
            member("major", "semver_major", &[], Type::Int, major),
            member("minor", "semver_minor", &[], Type::Int, minor),
            member("patch", "semver_patch", &[], Type::Int, patch),
        ],
        types: vec![(semver(), SINCE)],
    }
}

fn parse(call: &Call<'_, '_>) -> Result<Result<SemanticVersion, String>, EvalError> {
    match call.args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Ok(SemanticVersion::parse(text)),
        [Value::String(text), Value::Bool(true)] => Ok(SemanticVersion::parse_lenient(text)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn read<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    parse(call)?.map(opaque::value).map_err(EvalError::new)
}

fn is_semver<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(parse(call)?.is_ok()))
}

fn receiver<'c>(call: &'c Call<'_, '_>) -> Result<&'c SemanticVersion, EvalError> {
    opaque::expect(call.args.first().unwrap_or(&Value::Null))
}

fn operands<'c>(call: &'c Call<'_, '_>) -> Result<(&'c SemanticVersion, &'c SemanticVersion), EvalError> {
    Ok((receiver(call)?, opaque::expect(call.args.get(1).unwrap_or(&Value::Null))?))
}

fn is_greater_than<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let (left, right) = operands(call)?;
    Ok(Value::Bool(left > right))
}

fn is_less_than<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let (left, right) = operands(call)?;
    Ok(Value::Bool(left < right))
}

fn compare_to<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let (left, right) = operands(call)?;
    Ok(Value::Int(left.cmp(right) as i64))
}

/// Returns a version number as an `int`. In the reference, numbers above the range of int wrap around.
fn part<'v>(number: u64) -> Value<'v> {
    Value::Int(number as i64)
}

fn major<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(part(receiver(call)?.major))
}

fn minor<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(part(receiver(call)?.minor))
}

fn patch<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(part(receiver(call)?.patch))
}
