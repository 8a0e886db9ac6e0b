//! The JSONPath dialect of printer columns of custom resources.
//!
//! ```text
//! path     = [ "{" ] { "." name | ".*" | ".." name | "[" selector "]" } [ "}" ]
//! selector = "*" | index | start ":" end [ ":" step ] | "'" name "'" | "?(" operand op operand ")" | "?(" operand ")"
//! operand  = "@" path | 'text' | "text" | number | true | false
//! op       = "==" | "!=" | "<" | "<=" | ">" | ">="
//! ```
//!
//! A missing member gives no result and no error (relaxed evaluation, docs/api/openapi.md#published-custom-types). A
//! backslash makes the next character part of a name (`.metadata.annotations.example\.com/x`). Results come in document
//! order, at most [`RESULTS_MAX`], so that recursive descent into a large object stays bounded.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::values::json::Value;

/// Most values that one step may yield; a column shows only the first.
pub const RESULTS_MAX: usize = 10_000;

/// Deepest filter in a filter.
const DEPTH_MAX: usize = 8;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Segment>);

#[derive(Clone, Debug, PartialEq)]
enum Segment {
    Member(String),
    Wildcard,
    Descend(String),
    Index(i64),
    Slice { start: Option<i64>, end: Option<i64>, step: i64 },
    Filter(Operand, Option<(Comparison, Operand)>),
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
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

/// Why a text is not a path.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct JsonPathError {
    /// The error.
    pub what: &'static str,
    /// Offset of the error in bytes.
    pub at: usize,
}

type Found<'v> = SmallVec<[&'v Value; 4]>;

impl JsonPath {
    /// Parses `text`.
    ///
    /// # Errors
    /// The text is outside the grammar above.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let braces = parser.take("{");
        let path = parser.path()?;
        if braces && !parser.take("}") {
            return Err(parser.error("no closing brace"));
        }
        if parser.at < text.len() {
            return Err(parser.error("unexpected text"));
        }
        Ok(path)
    }

    /// The plain member names at the start of the path: the part of the object to be read.
    pub fn leading_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map_while(|segment| match segment {
            Segment::Member(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The first value at the path.
    pub fn first<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        self.find(root).first().copied()
    }

    fn find<'v>(&self, root: &'v Value) -> Found<'v> {
        let mut current = Found::from_elem(root, 1);
        for segment in &self.0 {
            let mut next = Found::new();
            for value in current {
                segment.apply(value, &mut next);
                if next.len() >= RESULTS_MAX {
                    next.truncate(RESULTS_MAX);
                    break;
                }
            }
            current = next;
        }
        current
    }
}

impl Segment {
    fn apply<'v>(&self, value: &'v Value, found: &mut Found<'v>) {
        match (self, value) {
            (Segment::Member(name), Value::Object(members)) => found.extend(members.get(name)),
            (Segment::Wildcard, Value::Object(members)) => {
                found.extend(members.iter().map(|(_, value)| value))
            }
            (Segment::Wildcard, Value::Array(items)) => found.extend(items),
            (Segment::Descend(name), value) => descend(name, value, found),
            (Segment::Index(index), Value::Array(items)) => {
                found.extend(position(*index, items.len()).and_then(|at| items.get(at)));
            }
            (Segment::Slice { start, end, step }, Value::Array(items)) => {
                let bound = |bound: Option<i64>, unset| {
                    bound.map_or(unset, |at| position(at, items.len()).unwrap_or(0)).min(items.len())
                };
                let (start, end) = (bound(*start, 0), bound(*end, items.len()));
                let step = usize::try_from(*step).unwrap_or(1).max(1);
                found.extend(items.get(start..end).unwrap_or_default().iter().step_by(step));
            }
            (Segment::Filter(left, rest), Value::Array(items)) => {
                found.extend(items.iter().filter(|item| holds(left, rest.as_ref(), item)));
            }
            _ => {}
        }
    }
}

/// A negative index counts from the end.
fn position(index: i64, len: usize) -> Option<usize> {
    usize::try_from(index).ok().or_else(|| len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?))
}

fn descend<'v>(name: &str, value: &'v Value, found: &mut Found<'v>) {
    if found.len() >= RESULTS_MAX {
        return;
    }
    // The JSON parser bounds the depth.
    match value {
        Value::Object(members) => {
            found.extend(members.get(name));
            members.iter().for_each(|(_, value)| descend(name, value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| descend(name, value, found)),
        _ => {}
    }
}

fn holds(left: &Operand, rest: Option<&(Comparison, Operand)>, item: &Value) -> bool {
    let (Some(left), Some((comparison, right))) = (resolve(left, item), rest) else {
        return rest.is_none() && resolve(left, item).is_some();
    };
    let Some(right) = resolve(right, item) else { return false };
    let order = match (&left, &right) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (a, b) => match (double(a), double(b)) {
            (Some(a), Some(b)) => a.partial_cmp(&b),
            _ => None,
        },
    };
    match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::Unequal => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessOrEqual => order.is_some_and(Ordering::is_le),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
    }
}

fn resolve<'v>(operand: &'v Operand, item: &'v Value) -> Option<&'v Value> {
    match operand {
        Operand::Path(path) => path.first(item),
        Operand::Literal(value) => Some(value),
    }
}

fn double(value: &Value) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(n) => Some(*n),
        _ => None,
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn error(&self, what: &'static str) -> JsonPathError {
        JsonPathError { what, at: self.at }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn space(&mut self) {
        while self.take(" ") {}
    }

    fn path(&mut self) -> Result<JsonPath, JsonPathError> {
        let mut segments = Vec::new();
        let _ = self.take("$");
        loop {
            if self.take("..") {
                segments.push(Segment::Descend(self.name()?));
            } else if self.take(".*") {
                segments.push(Segment::Wildcard);
            } else if self.take(".") {
                if self.rest().starts_with('[') {
                    continue; // `.[0]` is `[0]`
                }
                // A lone dot is the object itself.
                if segments.is_empty() && (self.rest().is_empty() || self.rest().starts_with('}')) {
                    return Ok(JsonPath(segments));
                }
                segments.push(Segment::Member(self.name()?));
            } else if self.take("[") {
                segments.push(self.selector()?);
            } else {
                return Ok(JsonPath(segments));
            }
        }
    }

    /// The name up to the next special character; a backslash escapes one.
    fn name(&mut self) -> Result<String, JsonPathError> {
        let mut name = String::new();
        let mut chars = self.rest().chars();
        while let Some(next) = chars.next() {
            match next {
                '\\' => {
                    let Some(escaped) = chars.next() else {
                        return Err(self.error("nothing after the backslash"));
                    };
                    name.push(escaped);
                    self.at += 1 + escaped.len_utf8();
                    continue;
                }
                '.' | '[' | ']' | '{' | '}' | '(' | ')' | ' ' | '=' | '!' | '<' | '>' | '\'' | '"' | '@' => {
                    break;
                }
                other => name.push(other),
            }
            self.at += next.len_utf8();
        }
        if name.is_empty() { Err(self.error("no name")) } else { Ok(name) }
    }

    fn selector(&mut self) -> Result<Segment, JsonPathError> {
        let segment = if self.take("*") {
            Segment::Wildcard
        } else if self.rest().starts_with(['\'', '"']) {
            Segment::Member(self.quoted()?)
        } else if self.take("?(") {
            self.filter()?
        } else {
            let start = self.integer()?;
            if self.take(":") {
                let end = self.integer()?;
                let step = if self.take(":") { self.integer()?.unwrap_or(1) } else { 1 };
                if step < 1 {
                    return Err(self.error("step is not positive"));
                }
                Segment::Slice { start, end, step }
            } else {
                Segment::Index(start.ok_or_else(|| self.error("no index"))?)
            }
        };
        if self.take("]") { Ok(segment) } else { Err(self.error("no closing bracket")) }
    }

    fn integer(&mut self) -> Result<Option<i64>, JsonPathError> {
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(rest.len());
        if len == 0 {
            return Ok(None);
        }
        let number = rest[..len].parse().map_err(|_| self.error("no integer"))?;
        self.at += len;
        Ok(Some(number))
    }

    fn quoted(&mut self) -> Result<String, JsonPathError> {
        let mut chars = self.rest().chars();
        let quote = chars.next();
        let mut text = String::new();
        let mut len = 1;
        while let Some(next) = chars.next() {
            len += next.len_utf8();
            if Some(next) == quote {
                self.at += len;
                return Ok(text);
            }
            let plain = if next == '\\' {
                let Some(escaped) = chars.next() else { break };
                len += escaped.len_utf8();
                escaped
            } else {
                next
            };
            text.push(plain);
        }
        Err(self.error("text does not end"))
    }

    fn filter(&mut self) -> Result<Segment, JsonPathError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("filters too deep"));
        }
        const COMPARISONS: [(&str, Comparison); 6] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Unequal),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let left = self.operand()?;
        let comparison = COMPARISONS.iter().find(|(token, _)| self.take(token)).map(|(_, it)| *it);
        let rest = match comparison {
            Some(comparison) => Some((comparison, self.operand()?)),
            None => None,
        };
        if !self.take(")") {
            return Err(self.error("no closing parenthesis"));
        }
        self.depth -= 1;
        Ok(Segment::Filter(left, rest))
    }

    fn operand(&mut self) -> Result<Operand, JsonPathError> {
        self.space();
        let operand = if self.take("@") {
            Operand::Path(self.path()?)
        } else if self.rest().starts_with(['\'', '"']) {
            Operand::Literal(Value::String(self.quoted()?))
        } else if self.take("true") {
            Operand::Literal(Value::Bool(true))
        } else if self.take("false") {
            Operand::Literal(Value::Bool(false))
        } else {
            let rest = self.rest();
            let len = rest
                .find(|c: char| !c.is_ascii_digit() && !matches!(c, '-' | '+' | '.' | 'e' | 'E'))
                .unwrap_or(rest.len());
            let number = &rest[..len];
            let value = match number.parse::<i64>() {
                Ok(n) => Value::Int(n),
                Err(_) => Value::Float(number.parse().map_err(|_| self.error("no operand"))?),
            };
            self.at += len;
            Operand::Literal(value)
        };
        self.space();
        Ok(operand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::json;

    #[test]
    fn paths_select_values_as_their_grammar_says() {
        let text = br#"{"a":{"b":[{"n":"x","v":1},{"n":"y","v":2.5,"on":true},{"n":"z","v":7}],"c.d":"e"},
            "deep":{"er":{"target":5}},"conditions":[{"type":"Ready","status":"True"}]}"#;
        let value = json::parse(text).unwrap();
        for (path, want) in [
            (".a.c\\.d", Some("\"e\"")),
            (".a['c.d']", Some("\"e\"")),
            ("{.a.b[0].n}", Some("\"x\"")),
            (".a.b[-1].n", Some("\"z\"")),
            (".a.b[-4].n", None),
            (".a.b[9].n", None),
            (".a.b[*].v", Some("1")),
            (".a.b[1:].n", Some("\"y\"")),
            (".a.b[-1:].n", Some("\"z\"")),
            (".a.b[2:1].n", None),
            (".a.b[?(@.n==\"y\")].v", Some("2.5")),
            (".a.b[?(@.v > 2)].n", Some("\"y\"")),
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
        for path in
            [".a.", ".a[", ".a[x]", ".a[?(@.b==)]", ".a[?(@.b", ".a['b", "{.a", ".a b", "a", ".a\\", &deep]
        {
            assert!(JsonPath::parse(path).is_err(), "{path:.20}");
        }
    }
}
