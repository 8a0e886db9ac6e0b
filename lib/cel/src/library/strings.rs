//! Functions on text. Positions count code points.

use crate::ast::Constant;
use crate::cost::arithmetic::times_factor;
use crate::cost::rules::{self, TEXT_FACTOR};
use crate::cost::{CallEstimate, CallSite, SizeEstimate};
use crate::error::EvalError;
use crate::library::bounds::{RESULT_BYTES_MAX, result_too_large};
use crate::library::{Call, Function, Library, Overload, Version};
use crate::types::Type;
use crate::value::describe::describe;
use crate::value::{List, Text, Value};

pub mod format;

type Outcome<'v> = Result<Value<'v>, EvalError>;

/// Version that introduced `format` and `strings.quote`.
const SECOND: Version = Version::new(1, 29);

/// The type of the texts in the declarations.
const TEXT: Type = Type::String;

/// Returns the declarations of the library.
pub fn library() -> Library {
    let functions = [position_functions(), rewriting_functions(), composing_functions()].concat();
    Library { functions, types: Vec::new() }
}

/// Returns the functions that find a position in a text, or the character at a position.
fn position_functions() -> Vec<Function> {
    use Type::Int;
    let visits = |overload: Overload| overload.costing(rules::visits_elements, rules::visits_elements_actual);
    vec![
        Function::new(
            "charAt",
            [Overload::member("string_char_at_int", [TEXT, Int], TEXT).computed_by(char_at)],
        ),
        Function::new(
            "indexOf",
            [
                visits(Overload::member("string_index_of_string", [TEXT, TEXT], Int).computed_by(index_of)),
                visits(
                    Overload::member("string_index_of_string_int", [TEXT, TEXT, Int], Int)
                        .computed_by(index_of),
                ),
            ],
        ),
        Function::new(
            "lastIndexOf",
            [
                visits(
                    Overload::member("string_last_index_of_string", [TEXT, TEXT], Int)
                        .computed_by(last_index_of),
                ),
                visits(
                    Overload::member("string_last_index_of_string_int", [TEXT, TEXT, Int], Int)
                        .computed_by(last_index_of),
                ),
            ],
        ),
    ]
}

/// Returns the functions that take a text apart or change it.
fn rewriting_functions() -> Vec<Function> {
    use Type::Int;
    let reads =
        |overload: Overload| overload.costing(rules::reads_text_into_as_much, rules::reads_text_actual);
    let replaces = |overload: Overload| overload.costing(replace_estimate, rules::rewrites_text_actual);
    let splits = |overload: Overload| overload.costing(split_estimate, rules::rewrites_text_actual);
    let texts = || Type::list(TEXT);
    vec![
        Function::new(
            "lowerAscii",
            [reads(Overload::member("string_lower_ascii", [TEXT], TEXT).computed_by(lower_ascii))],
        ),
        Function::new(
            "upperAscii",
            [reads(Overload::member("string_upper_ascii", [TEXT], TEXT).computed_by(upper_ascii))],
        ),
        Function::new("trim", [reads(Overload::member("string_trim", [TEXT], TEXT).computed_by(trim))]),
        Function::new(
            "substring",
            [
                reads(Overload::member("string_substring_int", [TEXT, Int], TEXT).computed_by(substring)),
                reads(
                    Overload::member("string_substring_int_int", [TEXT, Int, Int], TEXT)
                        .computed_by(substring),
                ),
            ],
        ),
        Function::new(
            "replace",
            [
                replaces(
                    Overload::member("string_replace_string_string", [TEXT, TEXT, TEXT], TEXT)
                        .computed_by(replace),
                ),
                replaces(
                    Overload::member("string_replace_string_string_int", [TEXT, TEXT, TEXT, Int], TEXT)
                        .computed_by(replace),
                ),
            ],
        ),
        Function::new(
            "split",
            [
                splits(Overload::member("string_split_string", [TEXT, TEXT], texts()).computed_by(split)),
                splits(
                    Overload::member("string_split_string_int", [TEXT, TEXT, Int], texts())
                        .computed_by(split),
                ),
            ],
        ),
    ]
}

/// Returns the functions that create a text from values.
fn composing_functions() -> Vec<Function> {
    let joins = |overload: Overload| overload.costing(join_estimate, join_actual).by_result();
    let texts = || Type::list(TEXT);
    let dyns = || Type::list(Type::Dyn);
    let second = |overload: Overload| Overload { since: SECOND, ..overload };
    let quoting = Overload::function("strings_quote", [TEXT], TEXT).computed_by(quote);
    vec![
        Function::new(
            "join",
            [
                joins(Overload::member("list_join", [texts()], TEXT).computed_by(join)),
                joins(Overload::member("list_join_string", [texts(), TEXT], TEXT).computed_by(join)),
            ],
        ),
        Function::new(
            "format",
            [second(Overload::member("string_format", [TEXT, dyns()], TEXT))
                .computed_by(format::format)
                .costing(
                    // `None` selects the standard estimate of the overload.
                    |_| None,
                    rules::reads_text_actual,
                )],
        )
        .checked_by(SECOND.major, SECOND.minor, format::check),
        Function::new("strings.quote", [second(quoting).costing(|_| None, rules::reads_text_actual)]),
    ]
}

/// Estimates the cost and the result size of a replacement. The result is longest if the shortest possible
/// text is replaced by the longest possible text. The result is shortest if the longest possible text is
/// replaced by the shortest possible text.
fn replace_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    if site.len() < 3 {
        return None;
    }
    let (text, old, new) = (site.size(0), site.size(1), site.size(2));
    let times = |text: u64, old: u64| (text as f64 / old as f64).ceil() as u64;
    // An empty text matches before and after every character. If no replacement can make the result longer,
    // the upper bound assumes that nothing is replaced; if no replacement can make the result shorter, the
    // lower bound assumes that nothing is replaced.
    let (count_max, kept_max) = match old.min {
        0 => (text.max.saturating_add(1), text.max),
        min if new.max <= min => (0, text.max),
        min => (times(text.max, min), 0),
    };
    let (count_min, kept_min) = match old.max {
        0 => (text.min.saturating_add(1), text.min),
        max if max <= new.min => (0, text.min),
        max => (times(text.min, max), 0),
    };
    let count = SizeEstimate { min: count_min, max: count_max };
    let size = count.times(new).plus(SizeEstimate { min: kept_min, max: kept_max });
    Some(CallEstimate::cost(text.times_factor(2.0 * TEXT_FACTOR)).with_size(size))
}

/// Estimates the cost and the result size of a split: in the worst case every character is an element,
/// unless a literal argument limits the number of elements.
fn split_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    let text = site.size(0);
    let max = match site.constant(2) {
        Some(Constant::Int(limit)) => *limit as u64,
        _ => text.max,
    };
    Some(CallEstimate::cost(text.times_factor(2.0 * TEXT_FACTOR)).with_size(SizeEstimate { min: 0, max }))
}

fn join_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    let list = site.size(0);
    let mut size = list.times(site.element_size(0));
    if site.len() > 1 {
        let separators = SizeEstimate { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
        size = size.plus(site.size(1).times(separators));
    }
    Some(CallEstimate::cost(size.times_factor(TEXT_FACTOR)).with_size(size))
}

fn join_actual(_: &[Value<'_>], result: &Value<'_>) -> u64 {
    times_factor(result.cost_size(), 2.0 * TEXT_FACTOR)
}

/// Returns the value for a substring. A substring of borrowed text is borrowed as well.
pub(crate) fn part<'v>(whole: &Text<'v>, part: &str) -> Value<'v> {
    if let Text::Borrowed(text) = whole {
        let start = part.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
        if let Some(part) = text.get(start..start.saturating_add(part.len())) {
            return Value::String(Text::Borrowed(part));
        }
    }
    Value::string(part)
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::new(format!("index out of range: {index}"))
}

/// Returns the byte offset of the code point at `index`, which may be the end of the text.
fn byte_offset(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    let mut offsets = text.char_indices().map(|(offset, _)| offset).chain([text.len()]);
    offsets.nth(index)
}

fn char_at<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let [Value::String(text), Value::Int(index)] = call.args else {
        return Err(EvalError::no_such_overload());
    };
    call.steps.text(text.len())?;
    let offset = byte_offset(text, *index).ok_or_else(|| out_of_range(*index))?;
    let found = text[offset..].chars().next();
    Ok(Value::string(found.map(String::from).unwrap_or_default()))
}

fn index_of<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let (text, part, from) = match call.args {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        _ => return Err(EvalError::no_such_overload()),
    };
    call.steps.text(text.len())?;
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    if from < 0 {
        return Err(out_of_range(from));
    }
    let found = byte_offset(text, from).and_then(|start| text[start..].find(&**part).map(|at| (start, at)));
    Ok(Value::Int(found.map_or(-1, |(start, at)| from + text[start..start + at].chars().count() as i64)))
}

fn last_index_of<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let (text, part, from) = match call.args {
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, Some(*from)),
        _ => return Err(EvalError::no_such_overload()),
    };
    call.steps.text(text.len())?;
    if part.is_empty() {
        return Ok(Value::Int(from.unwrap_or_else(|| text.chars().count() as i64)));
    }
    let end = match from {
        None => text.len(),
        Some(from) if from < 0 => return Err(out_of_range(from)),
        Some(from) => match byte_offset(text, from) {
            // A match that begins at or before `start` ends at or before this offset.
            Some(start) if start < text.len() => floor_boundary(text, start.saturating_add(part.len())),
            _ => return Ok(Value::Int(-1)),
        },
    };
    let found = text[..end].rfind(&**part);
    Ok(Value::Int(found.map_or(-1, |at| text[..at].chars().count() as i64)))
}

fn floor_boundary(text: &str, offset: usize) -> usize {
    (0..=offset.min(text.len())).rev().find(|&offset| text.is_char_boundary(offset)).unwrap_or(0)
}

fn lower_ascii<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    call.steps.text(text.len())?;
    Ok(Value::string(text.to_ascii_lowercase()))
}

fn upper_ascii<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    call.steps.text(text.len())?;
    Ok(Value::string(text.to_ascii_uppercase()))
}

fn trim<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    call.steps.text(text.len())?;
    Ok(part(text, text.trim()))
}

fn substring<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let (text, start, end) = match call.args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(EvalError::no_such_overload()),
    };
    call.steps.text(text.len())?;
    if let Some(end) = end.filter(|end| *end < start) {
        return Err(EvalError::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let offset = |index: i64| byte_offset(text, index).ok_or_else(|| out_of_range(index));
    let from = offset(start)?;
    let to = end.map_or(Ok(text.len()), offset)?;
    Ok(part(text, &text[from..to]))
}

fn replace<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let (text, old, new, limit) = match call.args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(limit)] => {
            (text, old, new, *limit)
        }
        _ => return Err(EvalError::no_such_overload()),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = text.matches(&**old).take(limit).count();
    let grown = count.saturating_mul(new.len()).saturating_add(text.len());
    if grown > RESULT_BYTES_MAX {
        return Err(result_too_large());
    }
    call.steps.text(grown)?;
    Ok(Value::string(text.replacen(&**old, new, count)))
}

fn split<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let (text, separator, limit) = match call.args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => (text, separator, *limit),
        _ => return Err(EvalError::no_such_overload()),
    };
    call.steps.text(text.len())?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let value = |piece: &str| part(text, piece);
    let parts: Vec<_> = if !separator.is_empty() {
        text.splitn(limit, &**separator).map(value).collect()
    } else {
        explode(text, limit).map(value).collect()
    };
    Ok(Value::list(parts))
}

/// Splits a text into at most `limit` elements: its characters, and the remainder as the last element.
fn explode(text: &str, limit: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    let mut left = limit;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        left = left.checked_sub(1)?;
        let len = if left == 0 { rest.len() } else { first.len_utf8() };
        let (part, after) = rest.split_at(len);
        rest = after;
        Some(part)
    })
}

fn join<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let (list, separator): (&List<'v>, &str) = match call.args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, separator),
        _ => return Err(EvalError::no_such_overload()),
    };
    let mut joined = String::new();
    for (index, element) in list.iter().enumerate() {
        let Value::String(text) = &element else {
            return Err(EvalError::new(format!("join: invalid input: {}", describe(&element))));
        };
        call.steps.one()?;
        call.steps.text(separator.len() + text.len())?;
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
        if joined.len() > RESULT_BYTES_MAX {
            return Err(result_too_large());
        }
    }
    Ok(Value::string(joined))
}

fn quote<'v>(call: &Call<'_, 'v>) -> Outcome<'v> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    call.steps.text(text.len())?;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    Ok(Value::string(quoted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::steps::Steps;
    use crate::library::Implementation;

    fn text(value: &str) -> Value<'static> {
        Value::string(value)
    }

    fn display(result: Outcome<'_>) -> String {
        match result {
            Ok(Value::String(text)) => text.to_string(),
            Ok(Value::Int(int)) => int.to_string(),
            Ok(Value::List(list)) => {
                list.iter().map(|element| display(Ok(element))).collect::<Vec<_>>().join("|")
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => error.message.into_owned(),
        }
    }

    #[test]
    fn string_positions_count_code_points() {
        use Value::Int;
        let cases: &[(Implementation, Vec<Value<'_>>, &str)] = &[
            (char_at, vec![text("aé世"), Int(2)], "世"),
            (char_at, vec![text("aé世"), Int(3)], ""),
            (char_at, vec![text("aé世"), Int(4)], "index out of range: 4"),
            (char_at, vec![text("a"), Int(-1)], "index out of range: -1"),
            (index_of, vec![text("éaéa"), text("a")], "1"),
            (index_of, vec![text("éaéa"), text("a"), Int(2)], "3"),
            (index_of, vec![text("éa"), text("a"), Int(2)], "-1"),
            (index_of, vec![text("éa"), text("a"), Int(9)], "-1"),
            (index_of, vec![text("éa"), text("a"), Int(-1)], "index out of range: -1"),
            (index_of, vec![text("éa"), text(""), Int(7)], "7"),
            (last_index_of, vec![text("éaéa"), text("éa")], "2"),
            (last_index_of, vec![text("éaéa"), text("éa"), Int(1)], "0"),
            (last_index_of, vec![text("éaéa"), text("éa"), Int(2)], "2"),
            (last_index_of, vec![text("éaéa"), text("éa"), Int(4)], "-1"),
            (last_index_of, vec![text("éé"), text("")], "2"),
            (substring, vec![text("aé世"), Int(1)], "é世"),
            (substring, vec![text("aé世"), Int(1), Int(2)], "é"),
            (substring, vec![text("aé世"), Int(2), Int(1)], "invalid substring range. start: 2, end: 1"),
            (substring, vec![text("aé世"), Int(2), Int(4)], "index out of range: 4"),
            (replace, vec![text("aaa"), text("aa"), text("b")], "ba"),
            (replace, vec![text("aé"), text(""), text("-")], "-a-é-"),
            (replace, vec![text("aé"), text(""), text("-"), Int(2)], "-a-é"),
            (replace, vec![text("aa"), text("a"), text("b"), Int(0)], "aa"),
            (split, vec![text("a b c"), text(" "), Int(2)], "a|b c"),
            (split, vec![text("aé世"), text("")], "a|é|世"),
            (split, vec![text("aé世"), text(""), Int(2)], "a|é世"),
            (split, vec![text(""), text(",")], ""),
            (quote, vec![text("\"é\\\n")], "\"\\\"é\\\\\\n\""),
        ];
        for (implementation, args, want) in cases {
            assert_eq!(
                display(implementation(&Call { args, steps: &Steps::unlimited() })),
                *want,
                "{args:?}"
            );
        }
    }

    #[test]
    fn string_results_have_a_size_limit() {
        let many = text(&"a".repeat(1 << 14));
        let args = [many.clone(), text("a"), many];
        let result = replace(&Call { args: &args, steps: &Steps::unlimited() });
        assert_eq!(display(result), "operation cancelled: result too large");
    }
}
