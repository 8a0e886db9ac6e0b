//! Regular expressions: `find` and `findAll`.

use std::cell::RefCell;

use regex::Regex;

use crate::cost::rules::{self, arg_size};
use crate::cost::{CallEstimate, CallSite, SizeEstimate};
use crate::error::EvalError;
use crate::evaluation::steps::Steps;
use crate::library::strings;
use crate::library::{Call, Function, Library, Overload};
use crate::types::Type;
use crate::value::Value;

pub use self::syntax::{check, compile, compile_within};

mod syntax;

/// Maximum number of compiled patterns that each thread caches. Loops call `find` with the same few patterns
/// repeatedly.
const CACHE_LEN_MAX: usize = 16;

/// Returns the declarations of the library.
pub fn library() -> Library {
    use Type::{Int, String as Text};
    let texts = || Type::list(Text);
    let costing = |overload: Overload| overload.costing(estimate, actual);
    Library {
        functions: vec![
            Function::new(
                "find",
                [costing(Overload::member("string_find_string", [Text, Text], Text).computed_by(find))],
            ),
            Function::new(
                "findAll",
                [
                    costing(
                        Overload::member("string_find_all_string", [Text, Text], texts())
                            .computed_by(find_all),
                    ),
                    costing(
                        Overload::member("string_find_all_string_int", [Text, Text, Int], texts())
                            .computed_by(find_all),
                    ),
                ],
            ),
        ],
        types: Vec::new(),
    }
}

/// Estimates the cost and the result size of a call: in the worst case every character is a match.
fn estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    let text = site.size(0);
    let size = SizeEstimate { min: 0, max: text.max };
    Some(CallEstimate::cost(rules::matching(text, site.size(1))).with_size(size))
}

fn actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    rules::matching_actual(arg_size(args, 0), arg_size(args, 1))
}

/// Returns the compiled pattern, from this thread's cache if possible.
///
/// # Errors
/// The errors of [`compile`], or the evaluation was interrupted.
pub fn cached(pattern: &str, steps: &Steps<'_>) -> Result<Regex, EvalError> {
    thread_local! {
        /// Patterns as written with their compiled form; the most recently used pattern is last.
        static CACHE: RefCell<Vec<(Box<str>, Regex)>> = const { RefCell::new(Vec::new()) };
    }
    CACHE.with_borrow_mut(|cache| {
        let entry = match cache.iter().position(|(known, _)| **known == *pattern) {
            Some(place) => cache.remove(place),
            None => {
                // A short pattern may take tenths of a second to compile, and each element may have another
                // pattern.
                steps.look()?;
                (pattern.into(), compile(pattern)?)
            }
        };
        if cache.len() >= CACHE_LEN_MAX {
            cache.remove(0);
        }
        let regex = entry.1.clone();
        cache.push(entry);
        Ok(regex)
    })
}

/// Counts the steps of matching a text. Matching cannot be interrupted; in the worst case, it visits the
/// whole pattern for each byte of the text. The cost of the call was charged before, and limits its time to
/// less than a second.
pub(crate) fn count(steps: &Steps<'_>, text: &str, pattern: &str) -> Result<(), EvalError> {
    steps.text(text.len().saturating_mul(pattern.len() / 8 + 1))
}

fn find<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(text), Value::String(pattern)] = call.args else {
        return Err(EvalError::no_such_overload());
    };
    count(call.steps, text, pattern)?;
    let regex = cached(pattern, call.steps)?;
    let found = regex.find(text);
    Ok(found.map_or_else(|| Value::string(""), |found| strings::part(text, found.as_str())))
}

fn find_all<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let (text, pattern, limit) = match call.args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => (text, pattern, *limit),
        _ => return Err(EvalError::no_such_overload()),
    };
    count(call.steps, text, pattern)?;
    let regex = cached(pattern, call.steps)?;
    let found = regex.find_iter(text).take(usize::try_from(limit).unwrap_or(usize::MAX));
    let found = found.map(|found| call.steps.one().map(|()| strings::part(text, found.as_str())));
    Ok(Value::list(found.collect::<Result<Vec<_>, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_found_leftmost_first() {
        for (text, pattern, limit, want) in [
            ("abc 123 456", "[0-9]+", -1, "123|456"),
            ("abc 123 456", "[0-9]+", 1, "123"),
            ("abc 123 456", "[0-9]+", 0, ""),
            ("aaa", "aa", -1, "aa"),
            ("ab", "a|ab", -1, "a"),
            ("baaac", "a*", -1, "|aaa|"),
        ] {
            let args = [Value::string(text), Value::string(pattern), Value::Int(limit)];
            let Ok(Value::List(found)) = find_all(&Call { args: &args, steps: &Steps::unlimited() }) else {
                panic!("{pattern}")
            };
            let found: Vec<_> = found
                .iter()
                .map(|found| match found {
                    Value::String(text) => text.to_string(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(found.join("|"), want, "{pattern}");
        }
    }

    #[test]
    fn the_regex_cache_returns_the_pattern_that_was_requested() {
        for round in 0..3 {
            for number in 0..2 * CACHE_LEN_MAX {
                let pattern = format!("^{number}$");
                let regex = cached(&pattern, &Steps::unlimited()).unwrap_or_else(|error| panic!("{error}"));
                assert!(regex.is_match(&number.to_string()), "{pattern} in round {round}");
            }
        }
    }
}
