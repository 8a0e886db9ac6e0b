//! Documents that say of which type they are, in JSON or YAML: configuration files and answers of webhooks.
//!
//! A text that begins with a brace is JSON, and what is wrong with it is said of JSON.

use auth::document::Document;
use auth::strict::Object as Form;

use crate::values::json::{self, Object, Value};
use crate::wire::body;
use crate::wire::codec::yaml;

/// The document that a text is. An empty text is an object without members.
///
/// # Errors
/// It is no object, or what it says of its type is no text.
pub fn parse(text: &[u8]) -> Result<Value, String> {
    let value = if is_json(text) {
        json::parse(text).map_err(|error| go::json::undecided(&error))?
    } else {
        yaml::parse(text).map_err(|error| error.to_string())?.value
    };
    match body::untyped(&value) {
        Some(why) => Err(why),
        None if value.is_null() => Ok(Value::Object(Object::new())),
        None => Ok(value),
    }
}

/// The same of a document that must say of which type it is.
///
/// # Errors
/// It cannot be read, or does not say its type.
pub fn parse_named(text: &[u8]) -> Result<Value, String> {
    let value = parse(text)?;
    check_named(&value, text)?;
    Ok(value)
}

/// Checks that the document that `text` is says of which type it is.
///
/// # Errors
/// It does not.
pub fn check_named(document: &Value, text: &[u8]) -> Result<(), String> {
    for (member, shown) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
        if document.str_at(&[member]).is_empty() {
            return Err(format!("Object '{shown}' is missing in '{}'", String::from_utf8_lossy(text)));
        }
    }
    Ok(())
}

/// Checks the members of the document that a text is strictly: `form` has all of them, `version` is that of its types, and
/// none occurs twice.
///
/// # Errors
/// The text of Go's error.
pub fn check(text: &[u8], form: &Form, version: &str) -> Result<(), String> {
    let (json, duplicates) = if is_json(text) {
        (text.to_vec(), None)
    } else {
        let document = yaml::parse(text).map_err(|error| error.to_string())?;
        let mut json = Vec::new();
        json::write_sorted(&document.value, &mut json);
        (json, document.strict_error())
    };
    let document = Document::new(b"", &json, duplicates).map_err(|error| error.to_string())?;
    document.check_strictly(form, version)
}

fn is_json(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"{")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_say_their_type() {
        for (text, want, want_named) in [
            ("kind: A\napiVersion: a/v1", "", ""),
            (r#"{"kind": "A", "apiVersion": "a/v1"}"#, "", ""),
            ("", "", "Object 'Kind' is missing in ''"),
            ("a: b\n", "", "Object 'Kind' is missing in 'a: b\n'"),
            ("kind: A", "", "Object 'apiVersion' is missing in 'kind: A'"),
        ] {
            assert_eq!(parse(text.as_bytes()).err().unwrap_or_default(), want, "{text}");
            assert_eq!(parse_named(text.as_bytes()).err().unwrap_or_default(), want_named, "{text}");
        }
    }

    #[test]
    fn what_is_no_document_is_said() {
        const UNDECIDED: &str = "couldn't get version/kind; json parse error: ";
        for (text, is_undecided, want) in [
            ("{\"a\":", true, "unexpected end of JSON input"),
            ("- a", true, "json: cannot unmarshal array into Go value of type struct { APIVersion string "),
            ("x", true, "json: cannot unmarshal string into Go value of type struct { APIVersion string "),
            (
                "apiVersion: 1",
                true,
                "json: cannot unmarshal number into Go struct field .apiVersion of type string",
            ),
            ("apiVersion: a/b/c", false, "unexpected GroupVersion string: a/b/c"),
            ("a: [", false, "yaml: line 1: did not find expected node content"),
        ] {
            let want = if is_undecided { format!("{UNDECIDED}{want}") } else { want.to_owned() };
            for found in [parse(text.as_bytes()), parse_named(text.as_bytes())] {
                let found = found.unwrap_err();
                assert!(found.starts_with(&want), "{text}: {found}");
            }
        }
    }

    #[test]
    fn members_are_checked_strictly() {
        const FORM: Form = Form {
            name: "A",
            members: &[("a", auth::strict::Form::Number("int32")), ("b", auth::strict::Form::Text)],
        };
        for (text, want) in [
            ("a: 1\nb: c", ""),
            ("a: null", ""),
            ("a: x", "json: cannot unmarshal string into Go struct field A.a of type int32"),
            ("c: 1\nd: 2", "strict decoding error: unknown field \"c\", unknown field \"d\""),
            (r#"{"a": 1, "a": 2}"#, "strict decoding error: duplicate field \"a\""),
            (
                "b: c\nb: d",
                "strict decoding error: yaml: unmarshal errors:\n  line 2: key \"b\" already set in map",
            ),
            ("", ""),
        ] {
            assert_eq!(check(text.as_bytes(), &FORM, "v1").err().unwrap_or_default(), want, "{text}");
        }
    }
}
