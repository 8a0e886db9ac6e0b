//! The object of a table row, and the result of a cell.

use std::borrow::Cow;

use jiff::Timestamp;

use super::duration;
use values::json::{self, Value};

/// The object of a row.
#[derive(Clone, Copy, Debug)]
pub struct Row<'r> {
    /// Parts of the object that the table reads.
    pub object: &'r Value,
    /// Time to which ages refer.
    pub now: Timestamp,
}

/// The result of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Output<'r> {
    /// No value; the table contains the zero value of the column.
    Unset,
    /// A text, borrowed or computed.
    Text(Cow<'r, str>),
    /// A value of the object; text columns contain the value as text.
    Value(&'r Value),
    /// An integer, even in a text column.
    Int(i64),
    /// A boolean, even in a text column.
    Bool(bool),
}

impl<'r> Output<'r> {
    /// Creates a text that was computed for this cell.
    pub fn text(text: impl Into<Cow<'r, str>>) -> Self {
        Output::Text(text.into())
    }

    /// Returns whether the cell is set: neither absent, null nor the empty text.
    pub fn is_set(&self) -> bool {
        match self {
            Output::Unset | Output::Value(Value::Null) => false,
            Output::Text(text) => !text.is_empty(),
            Output::Value(Value::String(text)) => !text.is_empty(),
            Output::Value(_) | Output::Int(_) | Output::Bool(_) => true,
        }
    }

    /// Converts the result to text.
    pub fn into_text(self) -> Cow<'r, str> {
        match self {
            Output::Unset => Cow::Borrowed(""),
            Output::Text(text) => text,
            Output::Value(value) => text_of(value),
            Output::Int(n) => Cow::Owned(n.to_string()),
            Output::Bool(b) => Cow::Borrowed(if b { "true" } else { "false" }),
        }
    }

    /// Returns the number; 0 if the result is not a number.
    pub fn number(&self) -> i64 {
        match self {
            Output::Int(n) => *n,
            Output::Value(value) => value.as_i64().unwrap_or(0),
            _ => 0,
        }
    }
}

/// Returns a value as text: strings are unquoted, null is the empty text, and all other values are JSON.
pub fn text_of(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Null => Cow::Borrowed(""),
        Value::String(text) => Cow::Borrowed(text),
        Value::Bool(b) => Cow::Borrowed(if *b { "true" } else { "false" }),
        Value::Int(n) => Cow::Owned(n.to_string()),
        other => {
            let mut text = Vec::new();
            json::write(other, &mut text);
            Cow::Owned(String::from_utf8_lossy(&text).into_owned())
        }
    }
}

impl<'r> Row<'r> {
    /// Returns the value at a path of member names.
    pub fn at(&self, path: &[&str]) -> Option<&'r Value> {
        self.object.at(path)
    }

    /// Returns the string at a path, or the empty string.
    pub fn str(&self, path: &[&str]) -> &'r str {
        self.object.str_at(path)
    }

    /// Returns the integer at a path, or 0.
    pub fn int(&self, path: &[&str]) -> i64 {
        self.at(path).and_then(Value::as_i64).unwrap_or(0)
    }

    /// Returns the list at a path, or an empty list.
    pub fn list(&self, path: &[&str]) -> &'r [Value] {
        self.at(path).and_then(Value::as_array).unwrap_or_default()
    }

    /// Returns whether the object is being deleted.
    pub fn is_deleted(&self) -> bool {
        self.at(&["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null())
    }

    /// Returns the condition of type `kind`; component statuses have their conditions at the top level.
    pub fn condition(&self, kind: &str) -> Option<&'r Value> {
        let mut list = self.list(&["status", "conditions"]);
        if list.is_empty() {
            list = self.list(&["conditions"]);
        }
        list.iter().find(|condition| condition.str_at(&["type"]) == kind)
    }

    /// Returns whether the condition of type `kind` exists and is true.
    pub fn condition_is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.str_at(&["status"]) == "True")
    }

    /// Returns the age of the time in `text`; `None` if `text` is not a time.
    pub fn age(&self, text: &str) -> Option<String> {
        let since = duration::time(text)?;
        Some(duration::human(duration::seconds_between(since, self.now)))
    }
}
