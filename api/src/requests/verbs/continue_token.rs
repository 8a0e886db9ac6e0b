//! Continue tokens: the position at which a chunked list continues, and its revision
//! (docs/api/lists.md#continue-tokens).
//!
//! A token is the unpadded base64url of `{"v":"meta…/v1","rv":<version>,"start":"<key suffix>\u0000"}`. The
//! suffix is relative to the collection that was authorized, and is checked to be a clean path, so that a
//! forged token cannot reach other keys.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use engine::Revision;
use serde::Serialize;

use values::json::{self, Value};
use values::status::Status;

/// The contents of a continue token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContinueToken {
    /// Revision of all chunks of the list; `None` means that the list continues at the newest revision.
    pub revision: Option<Revision>,
    /// First key of the chunk, relative to the collection's prefix.
    pub start: String,
}

#[derive(Default, Serialize)]
struct Wire {
    v: String,
    rv: i64,
    start: String,
}

impl Wire {
    /// Parses JSON text as `encoding/json` does: the case of names is ignored, `null` changes nothing, and the
    /// error describes the first value of a wrong type.
    fn read(text: &[u8]) -> Result<Self, String> {
        let value = json::parse(text).map_err(|error| error.to_string())?;
        let mut wire = Wire::default();
        let members = match &value {
            Value::Null => return Ok(wire),
            Value::Object(members) => members,
            other => return Err(go::json::unfit(other.go_kind(), "storage.continueToken")),
        };
        for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
            wire.set(name, value)?;
        }
        Ok(wire)
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let wrong = |field: &str, expected: &str| {
            let found = match value {
                Value::Float(number) if expected == "int64" => format!("number {number}"),
                other => other.go_kind().to_owned(),
            };
            go::json::unfit_member(&found, &format!("continueToken.{field}"), expected)
        };
        let text = |field: &str| value.as_str().map(str::to_owned).ok_or_else(|| wrong(field, "string"));
        match name {
            name if name.eq_ignore_ascii_case("v") => self.v = text("v")?,
            name if name.eq_ignore_ascii_case("start") => self.start = text("start")?,
            name if name.eq_ignore_ascii_case("rv") => {
                self.rv = value.as_i64().ok_or_else(|| wrong("rv", "int64"))?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl ContinueToken {
    /// Encodes the token for clients.
    pub fn encode(&self, meta_version: &str) -> String {
        let rv = self.revision.map_or(-1, |revision| i64::try_from(revision.get()).unwrap_or(i64::MAX));
        let wire = Wire { v: meta_version.to_owned(), rv, start: self.start.clone() };
        // A struct of strings and numbers can always be serialised.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    /// Parses a token made for `meta_version` (`meta…/v1`).
    pub fn decode(text: &str, meta_version: &str) -> Result<Self, Status> {
        let invalid = |why: String| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = go::base64::raw_url(text).map_err(invalid)?;
        let wire = Wire::read(&bytes).map_err(invalid)?;
        if wire.v != meta_version {
            return Err(invalid(format!("server does not recognize this encoded version {}", wire.v)));
        }
        if wire.rv == 0 {
            return Err(invalid(format!("incorrect encoded start resourceVersion (version {meta_version})")));
        }
        if wire.start.is_empty() {
            return Err(invalid(format!("encoded start key empty (version {meta_version})")));
        }
        let token =
            ContinueToken { revision: u64::try_from(wire.rv).ok().map(Revision::new), start: wire.start };
        if is_clean(token.suffix()) { Ok(token) } else { Err(invalid(token.start)) }
    }

    /// Returns the first key of the chunk without the prefix of the collection.
    pub fn suffix(&self) -> &str {
        self.start.strip_prefix('/').unwrap_or(&self.start)
    }
}

/// Returns whether a relative path contains neither empty segments nor dot segments. The empty path is clean:
/// it means the start of the collection.
fn is_clean(path: &str) -> bool {
    path.is_empty() || path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = "meta.example/v1";

    #[test]
    fn continue_tokens_survive_a_round_trip() {
        for (start, suffix) in
            [("ns/name\0", "ns/name\0"), ("/ns/name", "ns/name"), ("/", ""), ("..\0", "..\0")]
        {
            for revision in [Some(Revision::new(7)), None] {
                let token = ContinueToken { revision, start: start.to_owned() };
                assert_eq!(ContinueToken::decode(&token.encode(META), META).unwrap(), token);
                assert_eq!(token.suffix(), suffix);
            }
        }
    }

    #[test]
    fn malformed_continue_tokens_are_refused_as_documented() {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for (token, end) in [
            (
                encode(r#"{"v":"meta.example/v1","rv":0,"start":"a"}"#),
                "incorrect encoded start resourceVersion (version meta.example/v1)",
            ),
            (
                encode(r#"{"v":"meta.example/v1","rv":5,"start":""}"#),
                "encoded start key empty (version meta.example/v1)",
            ),
            (encode(r#"{"v":"meta.example/v1","rv":5,"start":"../x"}"#), "../x"),
            (encode(r#"{"v":"meta.example/v1","rv":5,"start":"/../x"}"#), "/../x"),
            (encode(r#"{"v":"meta.example/v1","rv":5,"start":"a/.."}"#), "a/.."),
            (encode(r#"{"v":"meta.example/v1","rv":5,"start":"a/./b"}"#), "a/./b"),
            (encode(r#"{"v":"meta.example/v1","rv":5,"start":"a/"}"#), "a/"),
            (encode(r#"{"v":"meta.example/v1","rv":5,"start":"//a"}"#), "//a"),
            (encode(r#"{"v":"meta.example/v1","rv":5,"start":"a//x"}"#), "a//x"),
            (encode(r#"{"v":"v9","rv":5,"start":"a"}"#), "server does not recognize this encoded version v9"),
            (encode(r#"{"V":"meta.example/v1","RV":5,"Start":"a/.."}"#), "a/.."),
            (encode("null"), "server does not recognize this encoded version "),
            (encode("[]"), "json: cannot unmarshal array into Go value of type storage.continueToken"),
            (
                encode(r#"{"v":"meta.example/v1","rv":"x"}"#),
                "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            (
                encode(r#"{"rv":1.5,"v":1}"#),
                "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64",
            ),
            (
                encode(r#"{"v":1}"#),
                "json: cannot unmarshal number into Go struct field continueToken.v of type string",
            ),
            (
                encode(r#"{"start":{}}"#),
                "json: cannot unmarshal object into Go struct field continueToken.start of type string",
            ),
            ("%%%".to_owned(), "illegal base64 data at input byte 0"),
            ("ab+c".to_owned(), "illegal base64 data at input byte 2"),
            ("abcd=".to_owned(), "illegal base64 data at input byte 4"),
            ("abc=".to_owned(), "illegal base64 data at input byte 3"),
            ("abcde".to_owned(), "illegal base64 data at input byte 4"),
        ] {
            let status = ContinueToken::decode(&token, META).unwrap_err();
            let want = format!("invalid continue token: continue key is not valid: {end}");
            assert_eq!((status.code.as_u16(), status.message.clone()), (400, want));
        }
        for token in ["%%%", "e30", "bm90IGpzb24", "====", &"A".repeat(100_000)] {
            assert_eq!(ContinueToken::decode(token, META).unwrap_err().code.as_u16(), 400);
        }
    }
}
