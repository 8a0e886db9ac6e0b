//! Parsing of a path's text to steps. As in the templates of clients, a single character determines the kind
//! of each step. Therefore the parser also accepts steps without a meaning. Such steps fail during
//! evaluation.

use super::{Comparison, DEPTH_MAX, JsonPath, JsonPathError, Slice, Step};
use values::json::Value;

impl JsonPath {
    /// Parses `text` as a path.
    ///
    /// # Errors
    /// The text is not in the grammar of the parent module.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        Self::nested(text, 0)
    }

    /// Parses a path that is nested `depth` levels deep in another path.
    fn nested(text: &str, depth: usize) -> Result<Self, JsonPathError> {
        if depth > DEPTH_MAX {
            return Err(JsonPathError("filters too deep"));
        }
        // A path ends at a closing brace; the text up to the next opening brace is literal.
        let braced = format!("{{{text}}}");
        let mut parser = Parser { text: &braced, at: 0, depth };
        let mut first = None;
        while let Some(offset) = parser.rest().find('{') {
            parser.at += offset + 1;
            let path = parser.path()?;
            first.get_or_insert(path);
        }
        first.ok_or(JsonPathError("no path"))
    }
}

impl Slice {
    /// Parses a slice.
    fn parse(text: &str) -> Result<Self, JsonPathError> {
        const NO_SLICE: JsonPathError = JsonPathError("no index");
        let mut parts = text.split(':');
        let mut next = || match parts.next() {
            None | Some("") => Ok(None),
            Some(number) if number.starts_with('+') => Err(NO_SLICE),
            Some(number) => number.parse::<i64>().map(Some).map_err(|_| NO_SLICE),
        };
        let (start, end, step) = (next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(NO_SLICE);
        }
        let (start, is_index) = (start.unwrap_or(0), !text.contains(':'));
        let end = if is_index { Some(start.saturating_add(1)) } else { end };
        Ok(Slice { start, end, is_index, step })
    }
}

impl Comparison {
    fn from_operator(operator: &str) -> Option<Self> {
        Some(match operator {
            "==" => Comparison::Equal,
            "!=" => Comparison::Unequal,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return None,
        })
    }
}

/// Parser of a text in which each path is in braces.
struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
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

    fn next(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Reads the text up to the first character for which `ends` is true, or to the end.
    fn until(&mut self, ends: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let len = rest.find(ends).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// Reads a path after its opening brace, including the closing brace.
    fn path(&mut self) -> Result<JsonPath, JsonPathError> {
        let mut steps = Vec::new();
        while !self.take("}") {
            if self.take("[?(") {
                steps.push(self.filter()?);
            } else if self.take("..") {
                if steps.last() == Some(&Step::Recursive) {
                    return Err(JsonPathError("repeated recursion"));
                }
                steps.push(Step::Recursive);
                if self.rest().starts_with(is_word) {
                    steps.push(self.member());
                }
            } else {
                self.step(&mut steps)?;
            }
        }
        Ok(JsonPath(steps))
    }

    /// Reads a step. The first character determines the kind of the step.
    fn step(&mut self, steps: &mut Vec<Step>) -> Result<(), JsonPathError> {
        let start = self.at;
        match self.next() {
            None | Some('\n' | '\r') => return Err(JsonPathError("the path does not end")),
            Some(' ' | '@' | '$') => {}
            Some('[') => self.selector(steps)?,
            Some(quote @ ('"' | '\'')) => steps.push(self.quoted(quote)?),
            Some('.') => steps.push(self.member()),
            Some(first) if first == '+' || first == '-' || first.is_numeric() => {
                self.until(|c| c != '.' && !c.is_numeric());
                steps.push(number(&self.text[start..self.at])?);
            }
            Some(first) if is_word(first) => {
                self.until(is_terminator);
                steps.push(match &self.text[start..self.at] {
                    "true" => Step::Literal(Value::Bool(true)),
                    "false" => Step::Literal(Value::Bool(false)),
                    _ => Step::Unknown,
                });
            }
            Some(_) => return Err(JsonPathError("unexpected character")),
        }
        Ok(())
    }

    /// Reads a name up to the next character that cannot be part of a name. A backslash makes the next
    /// character part of the name.
    fn member(&mut self) -> Step {
        let start = self.at;
        loop {
            self.until(|c| c == '\\' || is_terminator(c));
            if !self.take("\\") || self.next().is_none() {
                break;
            }
        }
        match &self.text[start..self.at] {
            "*" => Step::Wildcard,
            name => Step::Member(name.replace('\\', "")),
        }
    }

    fn selector(&mut self, steps: &mut Vec<Step>) -> Result<(), JsonPathError> {
        let inner = self.until(|c| c == ']' || c == '\n');
        if !self.take("]") {
            return Err(JsonPathError("no closing bracket"));
        }
        if inner.contains(',') {
            let nested =
                |part: &str| JsonPath::nested(&format!("[{}]", part.trim_matches(' ')), self.depth + 1);
            steps.push(Step::Union(inner.split(',').map(nested).collect::<Result<_, _>>()?));
        } else if let Some(name) = inner.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
            if name.contains('\'') {
                return Err(JsonPathError("quote in a name"));
            }
            steps.extend(JsonPath::nested(&format!(".{name}"), self.depth + 1)?.0);
        } else {
            steps.push(Step::Slice(Slice::parse(if inner == "*" { ":" } else { inner })?));
        }
        Ok(())
    }

    /// Reads a filter after `[?(`, including the closing bracket. A parenthesis in the first quoted text does
    /// not close the filter.
    fn filter(&mut self) -> Result<Step, JsonPathError> {
        let start = self.at;
        let (mut quote, mut is_closed, mut previous) = (None, false, ' ');
        loop {
            let next =
                self.next().filter(|next| *next != '\n').ok_or(JsonPathError("the filter does not end"))?;
            match next {
                '"' | '\'' if quote.is_none() => quote = Some(next),
                '"' | '\'' => is_closed |= quote == Some(next) && previous != '\\',
                ')' if quote.is_some() == is_closed => break,
                _ => {}
            }
            previous = next;
        }
        let inner = &self.text[start..self.at - 1];
        if !self.take("]") {
            return Err(JsonPathError("no closing bracket"));
        }
        let nested = |text: &str| JsonPath::nested(text, self.depth + 1);
        let is_operator = |c: char| matches!(c, '!' | '<' | '=' | '>');
        match inner.find(is_operator) {
            Some(at) if at > 0 => {
                let (left, rest) = inner.split_at(at);
                let right = rest.trim_start_matches(is_operator);
                if right.is_empty() {
                    return Err(JsonPathError("no operand"));
                }
                let comparison = Comparison::from_operator(&rest[..rest.len() - right.len()]);
                Ok(Step::Filter(nested(left)?, Some((comparison, nested(right)?))))
            }
            _ => Ok(Step::Filter(nested(inner)?, None)),
        }
    }

    /// Reads a text after its opening quote, including the closing quote.
    fn quoted(&mut self, quote: char) -> Result<Step, JsonPathError> {
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => return Err(JsonPathError("the text does not end")),
                Some('\\') => text.push(match self.next() {
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    Some(escaped) if escaped == '\\' || escaped == quote => escaped,
                    _ => return Err(JsonPathError("unknown escape")),
                }),
                Some(end) if end == quote => return Ok(Step::Literal(Value::String(text))),
                Some(next) => text.push(next),
            }
        }
    }
}

fn number(text: &str) -> Result<Step, JsonPathError> {
    let value = match text.parse::<i64>() {
        Ok(number) => Value::Int(number),
        Err(_) => Value::Float(text.parse().map_err(|_| JsonPathError("no number"))?),
    };
    Ok(Step::Literal(value))
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns whether the character ends a name or a word.
fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}
