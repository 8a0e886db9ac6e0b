//! Documents in JSON or YAML that state their own type: configuration files and responses of webhooks.
//!
//! ```text
//! text ─► JSON ─┬─► Value, from which the type is read
//!               └─► Document, whose members are checked in order
//! ```
//!
//! A text that begins with a brace is JSON; any other text is YAML, and only its first document is used. The
//! members of YAML are checked in the order of their names.

use std::borrow::Cow;

use auth::document::Document;
use auth::strict::Object as ObjectType;
use go::json::undecided;

use values::json::{self, Object, Value};
use values::type_meta::{type_of, untyped};
use values::yaml;

/// A parsed text: its document, and the data for checking the members.
pub struct Typed<'t> {
    text: &'t [u8],
    document: Value,
    /// Error about keys that the YAML text sets twice.
    duplicates: Option<String>,
}

impl<'t> Typed<'t> {
    /// Parses a text. An empty text is an object without members.
    ///
    /// # Errors
    /// The text is not an object, or its `kind` or `apiVersion` is not a string.
    pub fn read(text: &'t [u8]) -> Result<Typed<'t>, String> {
        let (value, duplicates) = value_and_duplicates(text)?;
        if let Some(why) = untyped(&value) {
            return Err(why);
        }
        let document = if value.is_null() { Value::Object(Object::new()) } else { value };
        Ok(Typed { text, document, duplicates })
    }

    /// Returns the document of the text.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// Returns the document, for a caller that has checked the members.
    pub fn into_document(self) -> Value {
        self.document
    }

    /// Checks that the document states its type.
    ///
    /// # Errors
    /// `kind` or `apiVersion` is missing.
    pub fn check_named(&self) -> Result<(), String> {
        let (kind, api_version) = type_of(&self.document);
        for (value, member) in [(kind, "Kind"), (api_version, "apiVersion")] {
            if value.is_empty() {
                return Err(format!(
                    "Object '{member}' is missing in '{}'",
                    String::from_utf8_lossy(self.text)
                ));
            }
        }
        Ok(())
    }

    /// Checks the members strictly: each must be declared in `object_type` and occur only once. `version` is
    /// the version of the types in `object_type`.
    ///
    /// # Errors
    /// The message has the text of Go's error.
    pub fn check(&self, object_type: &ObjectType, version: &str) -> Result<(), String> {
        let json = json_of(self.text, &self.document);
        let document = Document::new(self.text, &json, self.duplicates.clone());
        document.map_err(|error| undecided(&error))?.check_strictly(object_type, version)
    }
}

/// Parses a text as a document. An empty text is an object without members.
///
/// # Errors
/// The text is not an object, or its `kind` or `apiVersion` is not a string.
pub fn parse(text: &[u8]) -> Result<Value, String> {
    Typed::read(text).map(Typed::into_document)
}

/// Parses a text as a document that keeps the order of its members and keeps repeated members.
///
/// # Errors
/// The text cannot be parsed.
pub fn document(text: &[u8]) -> Result<Document, String> {
    let (value, duplicates) = value_and_duplicates(text)?;
    let json = json_of(text, &value);
    Document::new(text, &json, duplicates).map_err(|error| undecided(&error))
}

/// Converts a tree to a document whose members can be checked.
///
/// # Errors
/// The tree is nested too deep.
pub fn document_of(value: &Value) -> Result<Document, String> {
    let mut json = Vec::new();
    json::write_sorted(value, &mut json);
    Document::new(b"", &json, None).map_err(|error| undecided(&error))
}

/// Converts a text to JSON.
///
/// # Errors
/// The text cannot be parsed.
pub fn to_json(text: &[u8]) -> Result<Vec<u8>, String> {
    let (value, _) = value_and_duplicates(text)?;
    Ok(json_of(text, &value).into_owned())
}

/// Returns the value of a text, and the error about keys that YAML sets twice.
fn value_and_duplicates(text: &[u8]) -> Result<(Value, Option<String>), String> {
    if is_json(text) {
        return Ok((json::parse(text).map_err(|error| undecided(&error))?, None));
    }
    let document = yaml::parse(text).map_err(|error| error.to_string())?;
    let duplicates = document.strict_error();
    Ok((document.value, duplicates))
}

/// Returns the JSON of a text. `value` is the parsed text.
fn json_of<'t>(text: &'t [u8], value: &Value) -> Cow<'t, [u8]> {
    if is_json(text) {
        return text.into();
    }
    let mut json = Vec::new();
    json::write_sorted(value, &mut json);
    json.into()
}

fn is_json(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"{")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_named(text: &[u8]) -> Result<(), String> {
        Typed::read(text)?.check_named()
    }

    #[test]
    fn a_configuration_document_must_name_its_kind_and_version() {
        for (text, want, want_named) in [
            ("kind: A\napiVersion: a/v1", "", ""),
            (r#"{"kind": "A", "apiVersion": "a/v1"}"#, "", ""),
            ("", "", "Object 'Kind' is missing in ''"),
            ("a: b\n", "", "Object 'Kind' is missing in 'a: b\n'"),
            ("kind: A", "", "Object 'apiVersion' is missing in 'kind: A'"),
            ("Kind: A\nAPIVersion: a/v1", "", ""),
        ] {
            assert_eq!(parse(text.as_bytes()).err().unwrap_or_default(), want, "{text}");
            assert_eq!(parse_named(text.as_bytes()).err().unwrap_or_default(), want_named, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_an_object_is_refused_with_a_reason() {
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
            (
                "APIVersion: 1",
                true,
                "json: cannot unmarshal number into Go struct field .apiVersion of type string",
            ),
            ("apiVersion: a/b/c", false, "unexpected GroupVersion string: a/b/c"),
            ("a: [", false, "yaml: line 1: did not find expected node content"),
        ] {
            let want = if is_undecided { format!("{UNDECIDED}{want}") } else { want.to_owned() };
            for found in [parse(text.as_bytes()).map(drop), parse_named(text.as_bytes())] {
                let found = found.unwrap_err();
                assert!(found.starts_with(&want), "{text}: {found}");
            }
        }
    }

    #[test]
    fn unknown_duplicate_and_mistyped_members_are_refused() {
        const OBJECT_TYPE: ObjectType = ObjectType {
            name: "A",
            members: &[
                ("a", auth::strict::MemberType::Int32),
                ("b", auth::strict::MemberType::Text),
                ("c", auth::strict::MemberType::Int64),
            ],
        };
        for (text, want) in [
            ("a: 1\nb: c", ""),
            ("a: null", ""),
            ("a: x", "json: cannot unmarshal string into Go struct field A.a of type int32"),
            ("a: 2147483647\nc: 2147483648", ""),
            ("a: -2147483648\nc: -2147483649", ""),
            (
                "a: 2147483648",
                "json: cannot unmarshal number 2147483648 into Go struct field A.a of type int32",
            ),
            ("a: 1.5", "json: cannot unmarshal number 1.5 into Go struct field A.a of type int32"),
            (
                "{\"c\": 9223372036854775808}",
                "json: cannot unmarshal number 9223372036854775808 into Go struct field A.c of type int64",
            ),
            ("d: 1\ne: 2", "strict decoding error: unknown field \"d\", unknown field \"e\""),
            (r#"{"a": 1, "a": 2}"#, "strict decoding error: duplicate field \"a\""),
            (
                "b: c\nb: d",
                "strict decoding error: yaml: unmarshal errors:\n  line 2: key \"b\" already set in map",
            ),
            ("", ""),
        ] {
            let checked = Typed::read(text.as_bytes()).and_then(|typed| typed.check(&OBJECT_TYPE, "v1"));
            assert_eq!(checked.err().unwrap_or_default(), want, "{text}");
        }
    }

    #[test]
    fn to_json_accepts_json_and_yaml() {
        for (text, want) in [
            ("{\"b\":1, \"a\":2}", Ok("{\"b\":1, \"a\":2}")),
            ("b: 1\na: 2\n", Ok("{\"a\":2,\"b\":1}")),
            ("hello", Ok("\"hello\"")),
            ("{", Err("couldn't get version/kind; json parse error: unexpected end of JSON input")),
            ("a: b\nc: d\n\te: []\n", Err("yaml: line 3: found a tab character that violates indentation")),
        ] {
            let got = to_json(text.as_bytes()).map(|json| String::from_utf8(json).unwrap());
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }
}
