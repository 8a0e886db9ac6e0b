//! Label selectors: the query grammar, the object form, and matching (docs/api/selectors.md#label-selectors).
//!
//! ```text
//! selector    = [ requirement { "," requirement } ]
//! requirement = [ "!" ] key | key ( "=" | "==" | "!=" | "<" | ">" ) [ value ]
//!             | key ( "in" | "notin" ) "(" [ [ value ] { "," [ value ] } ] ")"
//! ```
//!
//! Requirements are combined with AND and sorted by key; values are sorted and unique. Matching allocates
//! nothing.

use std::fmt;

use values::field::{FieldError, go_quote};
use values::json::Value;
use values::status::Status;

/// A label selector: requirements that must all hold.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    /// Whether the selector selects no object, regardless of the requirements. `null` in the object form has
    /// this meaning.
    nothing: bool,
}

/// A condition on one label.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
    /// Value with which `<` and `>` compare the label.
    bound: i64,
}

/// The comparison of a requirement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operator {
    /// `key`: the label exists.
    Exists,
    /// `!key`: the label does not exist.
    DoesNotExist,
    /// `key=value`: the label has this value.
    Equals,
    /// `key==value`: the same as `Equals`, except for the text form.
    DoubleEquals,
    /// `key!=value`: the label has another value or does not exist.
    NotEquals,
    /// `key in (…)`: the label has one of the values.
    In,
    /// `key notin (…)`: the label has none of the values or does not exist.
    NotIn,
    /// `key>value`: the label is an integer greater than the value.
    GreaterThan,
    /// `key<value`: the label is an integer less than the value.
    LessThan,
}

impl LabelSelector {
    /// Creates a selector that selects every object.
    pub const fn everything() -> Self {
        LabelSelector { requirements: Vec::new(), nothing: false }
    }

    /// Creates a selector that selects no object.
    pub const fn nothing() -> Self {
        LabelSelector { requirements: Vec::new(), nothing: true }
    }

    /// Parses the query form; an empty text selects everything.
    ///
    /// # Errors
    /// 400 with the texts of upstream. Source: docs/api/selectors.md#label-selectors.
    pub fn parse(text: &str) -> Result<Self, Status> {
        let mut requirements = Parser::new(text).selector().map_err(Status::bad_request)?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(LabelSelector { requirements, nothing: false })
    }

    /// Parses the object form, `{matchLabels, matchExpressions}`. An absent selector or `null` selects
    /// nothing; an empty selector selects everything.
    ///
    /// # Errors
    /// 400 for invalid operators, keys and values, and for members of the wrong type.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, Status> {
        let Some(members) = selector.and_then(Value::as_object) else {
            return Ok(Self::nothing());
        };
        let malformed = || Status::bad_request("the label selector has members of the wrong type");
        let mut requirements = Vec::new();
        if let Some(labels) = members.get("matchLabels").filter(|labels| !labels.is_null()) {
            for (key, value) in labels.as_object().ok_or_else(malformed)?.iter() {
                let value = value.as_str().ok_or_else(malformed)?.to_owned();
                requirements.push(Requirement::new(key, Operator::Equals, vec![value])?);
            }
        }
        if let Some(expressions) = members.get("matchExpressions").filter(|list| !list.is_null()) {
            for expression in expressions.as_array().ok_or_else(malformed)? {
                let operator = match expression.str_at(&["operator"]) {
                    "In" => Operator::In,
                    "NotIn" => Operator::NotIn,
                    "Exists" => Operator::Exists,
                    "DoesNotExist" => Operator::DoesNotExist,
                    other => {
                        let quoted = go_quote(other);
                        return Err(Status::bad_request(format!(
                            "{quoted} is not a valid label selector operator"
                        )));
                    }
                };
                let values = match expression.get("values") {
                    None | Some(Value::Null) => Vec::new(),
                    Some(values) => values
                        .as_array()
                        .and_then(|values| {
                            values.iter().map(|value| value.as_str().map(str::to_owned)).collect()
                        })
                        .ok_or_else(malformed)?,
                };
                requirements.push(Requirement::new(expression.str_at(&["key"]), operator, values)?);
            }
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(LabelSelector { requirements, nothing: false })
    }

    /// Returns whether every object is selected.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Returns whether no object is selected.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// Returns the requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Returns whether the object is selected; `label` returns the value of a label of the object.
    pub fn matches<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        !self.nothing
            && self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

impl fmt::Display for LabelSelector {
    /// Writes the canonical query form: requirements are sorted, and spaces occur only around `in` and
    /// `notin`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl Requirement {
    /// Creates a requirement and checks it.
    ///
    /// # Errors
    /// 400 for an invalid key, an invalid value, or a number of values that the operator does not accept.
    pub fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, Status> {
        Self::build(key, operator, values).map_err(Status::bad_request)
    }

    /// Returns the name of the label.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the comparison operator.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// Returns the values with which the label is compared, sorted and unique.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Returns whether a label with `value` satisfies the requirement. `None` means that the label does not
    /// exist.
    pub fn matches(&self, value: Option<&str>) -> bool {
        match (self.operator, value) {
            (Operator::Exists, value) => value.is_some(),
            (Operator::DoesNotExist, value) => value.is_none(),
            (Operator::Equals | Operator::DoubleEquals | Operator::In, value) => {
                value.is_some_and(|value| self.has(value))
            }
            (Operator::NotEquals | Operator::NotIn, value) => value.is_none_or(|value| !self.has(value)),
            (Operator::GreaterThan, value) => integer(value).is_some_and(|n| n > self.bound),
            (Operator::LessThan, value) => integer(value).is_some_and(|n| n < self.bound),
        }
    }

    fn has(&self, value: &str) -> bool {
        match self.values.as_slice() {
            [only] => only == value,
            values => values.binary_search_by(|candidate| candidate.as_str().cmp(value)).is_ok(),
        }
    }

    fn build(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, String> {
        let mut errors: Vec<FieldError> = Vec::new();
        errors.extend(bad_key("key", key));
        let count = values.len();
        let wrong_count = match operator {
            Operator::In | Operator::NotIn if count == 0 => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if count != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist if count != 0 => {
                Some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan if count != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        if let Some(text) = wrong_count {
            let list = Value::from(values.as_slice());
            errors.push(FieldError::invalid("values", &list, text));
        }
        let mut bound = 0;
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (at, value) in values.iter().enumerate() {
                match integer(Some(value)) {
                    Some(n) => bound = n,
                    None => errors.push(FieldError::invalid(
                        format!("values[{at}]"),
                        &value.as_str().into(),
                        "for 'Gt', 'Lt' operators, the value must be an integer",
                    )),
                }
            }
        }
        for (at, value) in values.iter().enumerate() {
            let texts = names::label_value(value);
            if !texts.is_empty() && errors.len() < ERRORS_MAX {
                let path = format!("values[{at}][{key}]");
                errors.push(FieldError::invalid(path, &value.as_str().into(), texts.join("; ")));
            }
        }
        if let Some(errors) = go::join_errors(&errors) {
            return Err(errors);
        }
        values.sort_unstable();
        values.dedup();
        Ok(Requirement { key: key.to_owned(), operator, values, bound })
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (before, after) = match self.operator {
            Operator::Exists => return f.write_str(&self.key),
            Operator::DoesNotExist => return write!(f, "!{}", self.key),
            Operator::Equals => ("=", ""),
            Operator::DoubleEquals => ("==", ""),
            Operator::NotEquals => ("!=", ""),
            Operator::GreaterThan => (">", ""),
            Operator::LessThan => ("<", ""),
            Operator::In => (" in (", ")"),
            Operator::NotIn => (" notin (", ")"),
        };
        f.write_str(&self.key)?;
        f.write_str(before)?;
        for (at, value) in self.values.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{value}")?;
        }
        f.write_str(after)
    }
}

fn integer(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

fn bad_key(path: &str, key: &str) -> Option<FieldError> {
    let texts = names::qualified(key);
    (!texts.is_empty()).then(|| FieldError::invalid(path, &key.into(), texts.join("; ")))
}

/// Maximum number of invalid values that are reported. Without this limit, a URL of a megabyte could cause a
/// response that is a hundred times as long.
const ERRORS_MAX: usize = 100;

/// A token of the query form.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Token<'t> {
    End,
    /// A symbol: `!`, `=`, `==`, `!=`, `<`, `>`, `(`, `)` or `,`.
    Symbol(&'t str),
    /// A word between white space and symbols; `in` and `notin` are words too.
    Word(&'t str),
}

impl<'t> Token<'t> {
    /// Returns the token's text for errors.
    fn text(self) -> &'t str {
        match self {
            Token::End => "",
            Token::Symbol(text) | Token::Word(text) => text,
        }
    }
}

/// Parser of the query form with one token of look-ahead.
struct Parser<'t> {
    rest: &'t str,
    next: Token<'t>,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Self {
        let mut parser = Parser { rest: text, next: Token::End };
        parser.take();
        parser
    }

    /// Returns the next token and reads the token after it.
    fn take(&mut self) -> Token<'t> {
        let text = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let is_special = |c| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
        let is_end = |c| is_special(c) || matches!(c, ' ' | '\t' | '\r' | '\n');
        let (token, rest) = match text.chars().next() {
            None => (Token::End, text),
            Some(first) if is_special(first) => {
                let len = if text.starts_with("==") || text.starts_with("!=") { 2 } else { 1 };
                let (symbol, rest) = text.split_at(len);
                (Token::Symbol(symbol), rest)
            }
            Some(_) => {
                let (word, rest) = text.split_at(text.find(is_end).unwrap_or(text.len()));
                (Token::Word(word), rest)
            }
        };
        self.rest = rest;
        std::mem::replace(&mut self.next, token)
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.next {
                Token::End => return Ok(requirements),
                Token::Word(_) | Token::Symbol("!") => {}
                other => {
                    let found = other.text();
                    return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
                }
            }
            let requirement =
                self.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?;
            requirements.push(requirement);
            match (self.take(), self.next) {
                (Token::End, _) => return Ok(requirements),
                (Token::Symbol(","), Token::Word(_) | Token::Symbol("!")) => {}
                (Token::Symbol(","), other) => {
                    return Err(format!("found '{}', expected: identifier after ','", other.text()));
                }
                (other, _) => {
                    return Err(format!("found '{}', expected: ',' or 'end of string'", other.text()));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.next == Token::Symbol("!");
        if absent {
            self.take();
        }
        let key = match self.take() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        if let Some(error) = bad_key("", key) {
            return Err(error.to_string());
        }
        if absent {
            return Requirement::build(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.next, Token::End | Token::Symbol(",")) {
            return Requirement::build(key, Operator::Exists, Vec::new());
        }
        let operator = match self.take() {
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            Token::Symbol("=") => Operator::Equals,
            Token::Symbol("==") => Operator::DoubleEquals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            other => {
                let found = other.text();
                return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.value()?.to_owned()],
        };
        Requirement::build(key, operator, values)
    }

    /// Reads the value after a comparison; empty if absent.
    fn value(&mut self) -> Result<&'t str, String> {
        if matches!(self.next, Token::End | Token::Symbol(",")) {
            return Ok("");
        }
        match self.take() {
            Token::Word(value) => Ok(value),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// Reads the values in parentheses, sorted and unique. An omitted value between commas is the empty
    /// value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.take() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        if !matches!(self.next, Token::Word(_) | Token::Symbol("," | ")")) {
            return Err(format!("found '{}', expected: ',', ')' or identifier", self.next.text()));
        }
        let mut values = Vec::new();
        let mut last_was_value = false;
        loop {
            match self.take() {
                Token::Word(value) if !last_was_value => {
                    values.push(value.to_owned());
                    if !matches!(self.next, Token::Symbol("," | ")")) {
                        return Err(format!("found '{}', expected: ',' or ')'", self.next.text()));
                    }
                    last_was_value = true;
                }
                Token::Symbol(",") => {
                    if !last_was_value {
                        values.push(String::new());
                    }
                    last_was_value = false;
                }
                Token::Symbol(")") => {
                    if !last_was_value {
                        values.push(String::new());
                    }
                    break;
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
            }
        }
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }
}

#[cfg(test)]
#[path = "label_test.rs"]
mod tests;
