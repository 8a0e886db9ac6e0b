//! The JSONPath dialect of printer columns of custom resources.
//!
//! ```text
//! path     = { "." name | ".*" | ".." [ name ] | "[" selector "]" | literal | " " | "@" | "$" }
//! selector = "" | "*" | index | [ start ] ":" [ end ] [ ":" step ] | "'" path-name "'" | selector "," selector …
//!          | "?(" path op path ")" | "?(" path ")"
//! literal  = 'text' | "text" | number | true | false
//! op       = "==" | "!=" | "<" | "<=" | ">" | ">="
//! ```
//!
//! A missing member gives no result and no error (relaxed evaluation,
//! docs/api/openapi.md#published-custom-types). A step that does not fit its value fails the whole path.
//! Examples are an index or a filter on a value that is not a list, a bound outside of the list, and a
//! comparison of values of different kinds. A backslash makes the next character part of a name
//! (`.metadata.annotations.example\.com/x`), also between quotes: `['a.b']` is `.a.b`. The parser accepts
//! identifiers and operators that the grammar does not define; their evaluation fails. Results are in document order.
//! The number of results is at most [`RESULTS_MAX`], so that recursive descent into a large object stays bounded.

mod parse;

use std::cmp::Ordering;

use smallvec::SmallVec;

use values::json::Value;

/// Maximum number of values that one step may return; a column contains only the first value.
pub const RESULTS_MAX: usize = 10_000;

/// Maximum nesting of filters.
const DEPTH_MAX: usize = 8;

/// A parsed JSONPath of a printer column.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Member(String),
    Wildcard,
    /// The value and all values inside it.
    Recursive,
    Slice(Slice),
    Union(Vec<JsonPath>),
    Filter(JsonPath, Option<(Option<Comparison>, JsonPath)>),
    Literal(Value),
    /// An identifier that the grammar does not define; its evaluation fails.
    Unknown,
}

/// The elements `[start:end:step]`; an index is a slice of one element.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slice {
    start: i64,
    end: Option<i64>,
    /// Whether the slice is a single index.
    is_index: bool,
    step: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Reason why a text is not a path.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct JsonPathError(&'static str);

/// The error of a step that does not fit its value.
#[derive(Debug)]
struct Misfit;

type Found<'v> = SmallVec<[&'v Value; 4]>;

impl JsonPath {
    /// Returns the plain member names at the start of the path. These names determine the part of the object
    /// that must be read.
    pub fn leading_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map_while(|step| match step {
            Step::Member(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Returns the first value at the path; `None` if a step does not fit.
    pub fn first<'v>(&'v self, root: &'v Value) -> Option<&'v Value> {
        self.find(Found::from_elem(root, 1)).ok()?.first().copied()
    }

    fn find<'v>(&'v self, input: Found<'v>) -> Result<Found<'v>, Misfit> {
        self.0.iter().try_fold(input, |current, step| step.apply(&current))
    }
}

impl Step {
    fn apply<'v>(&'v self, input: &Found<'v>) -> Result<Found<'v>, Misfit> {
        let mut found = Found::new();
        match self {
            Step::Unknown => return Err(Misfit),
            Step::Literal(value) => found.extend(input.iter().map(|_| value)),
            Step::Union(paths) => {
                for path in paths {
                    found.extend(path.find(input.clone())?);
                    if found.len() >= RESULTS_MAX {
                        break;
                    }
                }
            }
            _ => {
                for value in input {
                    self.visit(value, &mut found)?;
                    if found.len() >= RESULTS_MAX {
                        break;
                    }
                }
            }
        }
        found.truncate(RESULTS_MAX);
        Ok(found)
    }

    /// Adds the results of the step for one value.
    fn visit<'v>(&'v self, value: &'v Value, found: &mut Found<'v>) -> Result<(), Misfit> {
        match (self, value) {
            (Step::Member(name), Value::Object(members)) => found.extend(members.get(name)),
            (Step::Wildcard, Value::Object(members)) => {
                found.extend(members.iter().map(|(_, value)| value));
            }
            (Step::Wildcard, Value::Array(items)) => found.extend(items),
            (Step::Recursive, value) => descend(value, found),
            (Step::Slice(slice), Value::Array(items)) => found.extend(slice.select(items)?),
            (Step::Slice(_), Value::Null) => {}
            (Step::Filter(left, right), Value::Array(items)) => {
                for item in items {
                    if holds(left, right.as_ref(), item)? {
                        found.push(item);
                    }
                }
            }
            (Step::Slice(_) | Step::Filter(..), _) => return Err(Misfit),
            _ => {}
        }
        Ok(())
    }
}

impl Slice {
    /// Returns the selected elements. Negative bounds count from the end. A bound outside of the list is an
    /// error, except in an empty slice.
    fn select<'v>(&self, items: &'v [Value]) -> Result<impl Iterator<Item = &'v Value>, Misfit> {
        let len = i64::try_from(items.len()).map_err(|_| Misfit)?;
        let from_end = |bound: i64| if bound < 0 { bound.saturating_add(len) } else { bound };
        let start = from_end(self.start);
        let end = match self.end {
            Some(0) if self.is_index => len,
            end => from_end(end.unwrap_or(len)),
        };
        let step = self.step.unwrap_or(1);
        let selected = if start == end {
            &[]
        } else {
            if step < 1 {
                return Err(Misfit);
            }
            let bounds = usize::try_from(start).ok().zip(usize::try_from(end).ok());
            bounds.and_then(|(start, end)| items.get(start..end)).ok_or(Misfit)?
        };
        Ok(selected.iter().step_by(usize::try_from(step).unwrap_or(1).max(1)))
    }
}

/// Adds the value and all values inside it, in document order. The JSON parser limits the depth.
fn descend<'v>(value: &'v Value, found: &mut Found<'v>) {
    if found.len() >= RESULTS_MAX {
        return;
    }
    match value {
        Value::Object(members) if !members.is_empty() => {
            found.push(value);
            members.iter().for_each(|(_, value)| descend(value, found));
        }
        Value::Array(items) if !items.is_empty() => {
            found.push(value);
            items.iter().for_each(|value| descend(value, found));
        }
        Value::String(text) if !text.is_empty() => found.push(value),
        _ => {}
    }
}

/// Returns whether a filter selects `item`. A filter that is only a path selects `item` if the path has a
/// result, or if a step of the path does not fit its value.
fn holds<'v>(
    left: &'v JsonPath,
    right: Option<&'v (Option<Comparison>, JsonPath)>,
    item: &'v Value,
) -> Result<bool, Misfit> {
    let resolve = |path: &'v JsonPath| path.find(Found::from_elem(item, 1));
    let Some((comparison, right)) = right else {
        return Ok(resolve(left).map_or(true, |found| !found.is_empty()));
    };
    match (resolve(left)?.as_slice(), resolve(right)?.as_slice()) {
        ([], _) | (_, []) => Ok(false),
        ([left], [right]) => comparison.ok_or(Misfit)?.holds(left, right),
        _ => Err(Misfit),
    }
}

impl Comparison {
    /// Returns whether the comparison holds between values of one kind. An integer and a number with a
    /// fraction are of different kinds.
    fn holds(self, left: &Value, right: &Value) -> Result<bool, Misfit> {
        let order = match (left, right) {
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
            (Value::Bool(a), Value::Bool(b)) if matches!(self, Self::Equal | Self::Unequal) => a.cmp(b),
            _ => return Err(Misfit),
        };
        Ok(match self {
            Comparison::Equal => order == Ordering::Equal,
            Comparison::Unequal => order != Ordering::Equal,
            Comparison::Less => order == Ordering::Less,
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order == Ordering::Greater,
            Comparison::GreaterOrEqual => order.is_ge(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json;

    #[test]
    fn paths_select_values_as_their_grammar_says() {
        let text = br#"{"a":{"b":[{"n":"x","v":1},{"n":"y","v":2.5,"on":true},{"n":"z","v":7}],"c.d":"e"},
            "deep":{"er":{"target":5}},"conditions":[{"type":"Ready","status":"True"}]}"#;
        let value = json::parse(text).unwrap();
        for (path, want) in [
            (".a.c\\.d", Some("\"e\"")),
            (".a['c\\.d']", Some("\"e\"")),
            (".a['c.d']", None),
            (".a['b'][0].n", Some("\"x\"")),
            (".a.b[-1].n", Some("\"z\"")),
            (".a.b[-4].n", None),
            (".a.b[9].n", None),
            (".a.b[*].v", Some("1")),
            (".a.b[1:].n", Some("\"y\"")),
            (".a.b[-1:].n", Some("\"z\"")),
            (".a.b[2:1].n", None),
            (".a.b[?(@.n==\"y\")].v", Some("2.5")),
            (".a.b[0,1].n", Some("\"x\"")),
            (".a.b[9,1].n", None),
            (".a.b[].n", Some("\"x\"")),
            (".a.b[1:9].n", None),
            (".a.b[::2].n", Some("\"x\"")),
            (".a.b[::0].n", None),
            (".a[*]", None),
            (".a.b[0].", None),
            (".a.b[0].n .v", None),
            (".a.b[0].v}", Some("1")),
            // An integer cannot be compared with a number that has a fraction, and words cannot be compared.
            (".a.b[?(@.v > 2)].n", None),
            (".a.b[:1][?(@.v < 2)].n", None),
            (".a.b[?(@.n > 1)].n", None),
            (".a.b[?(@.n == null)].n", None),
            (".a.b[?(@.n === 'y')].n", None),
            (".a.b[?(@.missing == 1)].n", None),
            (".a[?(@.n)]", None),
            (".a.b[?(@.on)].n", Some("\"y\"")),
            (".a.b[?(@.on == true)].n", Some("\"y\"")),
            (".a.b[?(@.n!='x')].n", Some("\"y\"")),
            (".conditions[?(@.type=='Ready')].status", Some("\"True\"")),
            ("..target", Some("5")),
            (".missing.deeper", None),
            (".a.b.n", None),
            ("$.deep.er", Some("{\"target\":5}")),
        ] {
            let found = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let got = found.first(&value).map(|value| {
                let mut out = Vec::new();
                json::write(value, &mut out);
                String::from_utf8(out).unwrap()
            });
            assert_eq!(got.as_deref(), want, "{path}");
        }
    }

    #[test]
    fn texts_outside_the_grammar_are_refused() {
        let deep = "[?(@".repeat(10_000);
        for path in [
            ".a[",
            ".a[x]",
            ".a[ 0 ]",
            ".a[\"b\"]",
            ".a[?(@.b==)]",
            ".a[?(@.b",
            ".a['b",
            ".a{b}",
            "{.a.b}",
            "....",
            ".a\\",
            &deep,
        ] {
            assert!(JsonPath::parse(path).is_err(), "{path:.20}");
        }
    }
}
