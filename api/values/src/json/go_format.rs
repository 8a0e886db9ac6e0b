//! Formatting of values for the messages of the reference server: type names of Go's decoder, Go types, and
//! texts.

use cel::number::format_double;

use super::Value;

impl Value {
    /// Returns the name of the value's type in messages of Go's decoder.
    pub fn go_kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Float(_) | Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }

    /// Returns the Go type (`%T`) that the value has if Go decodes it without a target type.
    pub fn go_type(&self) -> &'static str {
        match self {
            Value::Null => "<nil>",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int64",
            Value::Float(_) | Value::Number(_) => "float64",
            Value::String(_) => "string",
            Value::Array(_) => "[]interface {}",
            Value::Object(_) => go::json::MAP,
        }
    }
}

/// Formats a value like Go's `%v`: `map[a:1 b:[x y] c:<nil>]`, maps sorted by key, strings unquoted. The
/// recursion is as deep as the value.
pub fn go_print(value: &Value) -> String {
    let mut out = String::new();
    print_into(value, &mut out);
    out
}

fn print_into(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(n) => out.push_str(&n.to_string()),
        Value::Float(n) => out.push_str(&format_double(*n)),
        Value::Number(words) => out.push_str(words),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                print_into(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            out.push_str("map[");
            for (at, (name, member)) in sorted.into_iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                print_into(member, out);
            }
            out.push(']');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;

    #[test]
    fn values_are_shown_as_go_shows_them() {
        for (text, kind, of_type, shown) in [
            ("null", "null", "<nil>", "<nil>"),
            ("true", "bool", "bool", "true"),
            ("-3", "number", "int64", "-3"),
            ("1e21", "number", "float64", "1e+21"),
            (r#""a b""#, "string", "string", "a b"),
            (r#"["a",1]"#, "array", "[]interface {}", "[a 1]"),
            (r#"{"b":[{}],"a":null}"#, "object", "map[string]interface {}", "map[a:<nil> b:[map[]]]"),
        ] {
            let value = parse(text.as_bytes()).unwrap();
            let found = (value.go_kind(), value.go_type(), go_print(&value));
            assert_eq!(found, (kind, of_type, shown.to_owned()), "{text}");
        }
    }
}
