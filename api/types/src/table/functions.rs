//! General functions of the cell language, which do not depend on particular kinds.
//!
//! A function is a name, a declaration of the parts of the object that it reads (so that the reader can skip
//! the rest) and a Rust function. Functions for particular kinds are in [`super::pods`],
//! [`super::workloads`], [`super::network`] and [`super::cluster`].

use std::borrow::Cow;

use super::cell::{Cell, Function};
use super::duration;
use super::eval::values;
use super::row::{Output, Row};
use values::json::Value;

/// The functions that do not depend on particular kinds.
pub static GENERAL: &[Function] = &[
    Function { shape_only: true, ..Function::general("len", len) },
    Function::general("join", join),
    Function::general("top3", top3),
    Function::general("age", age),
    Function::general("humanDuration", human_duration),
    Function::general("rfc3339", rfc3339),
    Function::general("int", int),
    Function::general("bool", bool),
    Function::general("either", either),
    Function::general("trim", trim),
    Function::general("labelsString", labels_string),
    Function::general("labelSelectorString", label_selector_string),
    Function::general("accessModes", access_modes),
    Function::general("firstGiven", first_given),
    Function::reading_annotations("annotation", "", annotation),
];

/// Returns the first three texts joined by commas, followed by the number of further texts.
pub fn first_three(texts: &[Cow<str>]) -> String {
    first_of(texts, 3, ",")
}

/// Returns the first `max` texts joined by `separator`, followed by the number of further texts.
pub fn first_of(texts: &[Cow<str>], max: usize, separator: &str) -> String {
    let mut text = texts[..texts.len().min(max)].join(separator);
    if texts.len() > max {
        text.push_str(&format!(" + {} more...", texts.len() - max));
    }
    text
}

/// Returns the value of the argument at `at`, if it is a path to a value other than null.
fn value<'r>(row: &Row<'r>, arguments: &'r [Cell], at: usize) -> Option<&'r Value> {
    match arguments.get(at)? {
        Cell::Path(path) => values(row.object, path).first().copied().filter(|value| !value.is_null()),
        _ => None,
    }
}

/// Returns the text of the argument at `at`.
pub fn text<'r>(row: &Row<'r>, arguments: &'r [Cell], at: usize) -> Cow<'r, str> {
    arguments.get(at).map_or(Cow::Borrowed(""), |cell| row.evaluate(cell).into_text())
}

/// `len(path)`: the number of elements of a list or of members of an object.
fn len<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let len = match value(row, arguments, 0) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(members)) => members.len(),
        _ => 0,
    };
    Output::Int(i64::try_from(len).unwrap_or(i64::MAX))
}

/// `join(list, "separator")`: the joined texts of a list.
fn join<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let Some(list) = arguments.first() else { return Output::Unset };
    Output::text(row.texts(list).join(text(row, arguments, 1).as_ref()))
}

/// `top3(list)`: at most three texts; `<unset>` for an empty list.
fn top3<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let texts = arguments.first().map(|list| row.texts(list)).unwrap_or_default();
    if texts.is_empty() { Output::text("<unset>") } else { Output::text(first_three(&texts)) }
}

/// `age(time)`: the age of a time; unset if the argument is not a time.
fn age<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    row.age(&text(row, arguments, 0)).map_or(Output::Unset, Output::text)
}

/// `humanDuration(seconds)`: the duration in the format of ages.
fn human_duration<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let seconds = value(row, arguments, 0).and_then(Value::as_i64);
    seconds.map_or(Output::Unset, |seconds| Output::text(duration::human(seconds)))
}

/// `rfc3339(time)`: the stored text of the time, in UTC; the zero time if the time is absent.
fn rfc3339<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let time = text(row, arguments, 0);
    if time.is_empty() { Output::text("0001-01-01T00:00:00Z") } else { Output::Text(time) }
}

/// `int(path)`: an integer, even in a text column.
fn int<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    value(row, arguments, 0).and_then(Value::as_i64).map_or(Output::Unset, Output::Int)
}

/// `bool(path)`: a boolean, even in a text column.
fn bool<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    value(row, arguments, 0).and_then(Value::as_bool).map_or(Output::Unset, Output::Bool)
}

/// `either(value, "wanted", then, otherwise)`: `then` if the value equals the wanted text, and `otherwise` if the value
/// differs; unset if the value is unset.
fn either<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let Some(given) = arguments.first().map(|cell| row.evaluate(cell)).filter(Output::is_set) else {
        return Output::Unset;
    };
    let at = if given.into_text() == text(row, arguments, 1) { 2 } else { 3 };
    Output::Text(text(row, arguments, at))
}

/// `trim(path)`: the text without surrounding white space.
fn trim<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    match text(row, arguments, 0) {
        Cow::Borrowed(text) => Output::text(text.trim()),
        Cow::Owned(text) => Output::text(text.trim().to_owned()),
    }
}

/// `firstGiven(a, b, …)`: the first value that the object has, even an empty value.
fn first_given<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let given = |it: &Output| !matches!(it, Output::Unset);
    arguments.iter().map(|cell| row.evaluate(cell)).find(given).unwrap_or(Output::Unset)
}

/// `annotation("name", …)`: the first annotation that exists.
fn annotation<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let found = arguments
        .iter()
        .filter_map(Cell::literal)
        .find_map(|name| row.at(&["metadata", "annotations", name])?.as_str());
    found.map_or(Output::Unset, Output::text)
}

/// `labelsString(path)`: labels as `k=v`, sorted and joined.
fn labels_string<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let labels = value(row, arguments, 0).and_then(Value::as_object);
    let mut pairs: Vec<String> = labels
        .into_iter()
        .flat_map(|labels| labels.iter())
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or("")))
        .collect();
    pairs.sort_unstable();
    Output::text(pairs.join(","))
}

/// `labelSelectorString(path[, "text for an invalid one"])`: a label selector in its query form.
fn label_selector_string<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let Some(selector) = value(row, arguments, 0) else { return Output::Unset };
    match label_selector(selector) {
        Some(text) => Output::text(text),
        None if arguments.len() > 1 => Output::Text(text(row, arguments, 1)),
        None => Output::text("<error>"),
    }
}

/// Returns a label selector in its query form, with requirements sorted by key; `None` if the selector is
/// malformed.
fn label_selector(selector: &Value) -> Option<String> {
    let mut requirements: Vec<(&str, String)> = Vec::new();
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        requirements.extend(
            labels.iter().map(|(key, value)| (key, format!("{key}={}", value.as_str().unwrap_or("")))),
        );
    }
    for expression in selector.get("matchExpressions").and_then(Value::as_array).unwrap_or_default() {
        let key = expression.str_at(&["key"]);
        let list = expression.get("values").and_then(Value::as_array).unwrap_or_default();
        let mut values: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let text = match (expression.str_at(&["operator"]), values.as_slice()) {
            ("In", [_, ..]) => format!("{key} in ({})", values.join(",")),
            ("NotIn", [_, ..]) => format!("{key} notin ({})", values.join(",")),
            ("Exists", []) => key.to_owned(),
            ("DoesNotExist", []) => format!("!{key}"),
            _ => return None,
        };
        requirements.push((key, text));
    }
    requirements.sort_by_key(|(key, _)| *key);
    Some(requirements.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
}

/// `accessModes(path)`: the short forms of access modes, in a fixed order.
fn access_modes<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = value(row, arguments, 0).and_then(Value::as_array).unwrap_or_default();
    let has = |name: &str| modes.iter().any(|mode| mode.as_str() == Some(name));
    let short: Vec<&str> = SHORT.iter().filter(|(name, _)| has(name)).map(|(_, short)| *short).collect();
    Output::text(short.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json;

    #[test]
    fn selectors_are_shown_in_their_query_form() {
        for (selector, want) in [
            ("{}", Some("")),
            (r#"{"matchLabels":{"b":"2","a":"1"}}"#, Some("a=1,b=2")),
            (
                r#"{"matchLabels":{"m":"1"},"matchExpressions":[{"key":"z","operator":"In","values":["y","x"]},
                    {"key":"b","operator":"Exists"},{"key":"c","operator":"DoesNotExist"},
                    {"key":"a","operator":"NotIn","values":["q"]}]}"#,
                Some("a notin (q),b,!c,m=1,z in (x,y)"),
            ),
            (r#"{"matchExpressions":[{"key":"z","operator":"In"}]}"#, None),
            (r#"{"matchExpressions":[{"key":"z","operator":"Like","values":["x"]}]}"#, None),
        ] {
            let selector = json::parse(selector.as_bytes()).unwrap();
            assert_eq!(label_selector(&selector).as_deref(), want);
        }
    }
}
