//! Paths of fields in a schema, as rules and selectable fields write them: `.spec.ports['http']`.
//!
//! ```text
//! path = { "." name | "['" name "']" }
//! ```
//!
//! A name extends to the next `.`, `[` or `]`, so `-` and `/` need no quotes. Inside quotes, a backslash
//! begins an escape sequence (`\'`, `\\`, `\n` …). A path cannot refer to elements of lists.

use std::fmt::Write;

use super::schema::{Additional, Schema};

/// A path that was resolved in a schema.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedPath<'s> {
    /// Path in the notation of field errors: `spec.ports[http]`.
    pub text: String,
    /// First step of the path.
    pub first: String,
    /// Schema at the path; `None` below a map without a schema for its values.
    pub schema: Option<&'s Schema>,
}

/// Resolves a path from a schema. Steps in brackets are only accepted if `brackets` is true.
///
/// # Errors
/// Returns the reason why the path is invalid.
pub fn resolve<'s>(path: &str, schema: &'s Schema, brackets: bool) -> Result<ResolvedPath<'s>, String> {
    let mut found = ResolvedPath { text: String::new(), first: String::new(), schema: Some(schema) };
    let mut tokens = Tokens { rest: path };
    while let Some(token) = tokens.next() {
        match token {
            "." => {
                let name = tokens.next().ok_or(END)?;
                found.step(name)?;
            }
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let token = tokens.next().ok_or(END)?;
                let quoted = token.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let quoted =
                    quoted.ok_or_else(|| format!("expected single quoted string but got {token}"))?;
                found.step(&unescape(quoted).map_err(|error| format!("invalid string literal: {error}"))?)?;
                match tokens.next().ok_or(END)? {
                    "]" => {}
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok(found)
}

const END: &str = "unexpected end of JSON path";
const NO_FIELD: &str = "does not refer to a valid field";

impl ResolvedPath<'_> {
    fn step(&mut self, name: &str) -> Result<(), String> {
        let schema = self.schema.ok_or(NO_FIELD)?;
        if self.text.is_empty() {
            self.first = name.to_owned();
        }
        if !schema.properties.is_empty() {
            self.schema = Some(schema.properties.get(name).ok_or(NO_FIELD)?);
            if !self.text.is_empty() {
                self.text.push('.');
            }
            self.text.push_str(name);
            return Ok(());
        }
        self.schema = match schema.additional_properties.as_ref().ok_or(NO_FIELD)? {
            Additional::Schema(schema) => Some(schema),
            Additional::Allowed(_) => None,
        };
        write!(self.text, "[{name}]").expect("writing to a string cannot fail");
        Ok(())
    }
}

/// Iterator over the delimiters and the texts between them.
struct Tokens<'p> {
    rest: &'p str,
}

impl<'p> Iterator for Tokens<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let bytes = self.rest.as_bytes();
        let end = match bytes.first()? {
            b'.' | b'[' | b']' => 1,
            b'\'' => {
                let is_end = |at: &usize| bytes[*at] == b'\'' && bytes[at - 1] != b'\\';
                (1..bytes.len()).find(is_end).map_or(bytes.len(), |at| at + 1)
            }
            _ => self.rest.find(['.', '[', ']']).unwrap_or(bytes.len()),
        };
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(token)
    }
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match rest.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some('\'') => '\'',
            Some('\\') => '\\',
            Some(other) => return Err(format!("invalid escape char \\{other}")),
            None => '\\',
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn json_paths_resolve_to_fields_and_map_values_of_the_schema() {
        let schema = r#"{"properties":{"a":{"properties":{"b-c":{"type":"string"},"d.e":{},"it's":{}}},
            "m":{"additionalProperties":{"type":"integer"}},"any":{"additionalProperties":true}}}"#;
        let schema = Schema::read(&object(schema).into());
        for (path, want) in [
            ("", Ok("")),
            (".a", Ok("a")),
            (".a.b-c", Ok("a.b-c")),
            (".a['d.e']", Ok("a.d.e")),
            (r".a['it\'s']", Ok("a.it's")),
            (".m.x", Ok("m[x]")),
            (".m['x.y']", Ok("m[x.y]")),
            (".any.x", Ok("any[x]")),
            ("a", Err("expected [ or . but got: a")),
            (".", Err(END)),
            (".b", Err(NO_FIELD)),
            (".a.b-c.d", Err(NO_FIELD)),
            (".any.x.y", Err(NO_FIELD)),
            (".m[x]", Err("expected single quoted string but got x")),
            (".m['x'", Err(END)),
            (".m['x'.", Err("expected ] but got .")),
            (r".m['\q']", Err(r"invalid string literal: invalid escape char \q")),
            (".m['", Err("expected single quoted string but got '")),
        ] {
            let got = resolve(path, &schema, true).map(|found| found.text);
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{path}");
        }
        assert_eq!(resolve(".m['x']", &schema, false), Err("array notation is not allowed".to_owned()));
        let found = resolve(".m.x", &schema, false).unwrap();
        assert_eq!((found.first.as_str(), found.schema.unwrap().kind.as_str()), ("m", "integer"));
    }
}
