//! Continue tokens: where a chunked list goes on, and at which version (semantics §8.4).
//!
//! Unpadded base64url of `{"v":"meta…/v1","rv":<version>,"start":"<key suffix>\u0000"}`. The suffix is relative to
//! the collection that was authorized, and is checked to be a clean path, so that no forged token reaches outside.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::status::Status;

/// A decoded token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContinueToken {
    /// Version of every chunk; `None` = go on at the newest version.
    pub revision: Option<u64>,
    /// First key of the chunk, relative to the collection's prefix.
    pub start: String,
}

#[derive(Deserialize, Serialize)]
struct Wire {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

impl ContinueToken {
    /// The token as clients see it.
    pub fn encode(&self, meta_version: &str) -> String {
        let rv = self.revision.map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX));
        let wire = Wire { v: meta_version.to_owned(), rv, start: self.start.clone() };
        // A struct of strings and numbers always serialises.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).unwrap_or_default())
    }

    /// Reads a token made for `meta_version` (`meta…/v1`).
    pub fn decode(text: &str, meta_version: &str) -> Result<Self, Status> {
        let invalid = |why: String| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| invalid(error.to_string()))?;
        let wire: Wire = serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))?;
        if wire.v != meta_version {
            return Err(invalid(format!("server does not recognize this encoded version {}", wire.v)));
        }
        if wire.rv == 0 {
            return Err(invalid(format!("incorrect encoded start resourceVersion (version {meta_version})")));
        }
        if wire.start.is_empty() {
            return Err(invalid(format!("encoded start key empty (version {meta_version})")));
        }
        if !is_clean(wire.start.trim_end_matches('\0')) {
            return Err(invalid(wire.start));
        }
        Ok(ContinueToken { revision: u64::try_from(wire.rv).ok(), start: wire.start })
    }
}

/// Whether a relative path has neither empty nor dot segments.
fn is_clean(path: &str) -> bool {
    path.strip_prefix('/').unwrap_or(path).split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = "meta.example/v1";

    #[test]
    fn tokens_survive_the_round_trip() {
        for revision in [Some(7), None] {
            let token = ContinueToken { revision, start: "ns/name\0".to_owned() };
            assert_eq!(ContinueToken::decode(&token.encode(META), META).unwrap(), token);
        }
    }

    #[test]
    fn bad_tokens_are_refused_as_semantics_8_4_says() {
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
            (encode(r#"{"v":"meta.example/v1","rv":5,"start":"a//x"}"#), "a//x"),
            (encode(r#"{"v":"v9","rv":5,"start":"a"}"#), "server does not recognize this encoded version v9"),
        ] {
            let status = ContinueToken::decode(&token, META).unwrap_err();
            let want = format!("invalid continue token: continue key is not valid: {end}");
            assert_eq!((status.code.as_u16(), status.message), (400, want));
        }
        for token in ["%%%", "e30", "bm90IGpzb24", "====", &"A".repeat(100_000)] {
            assert_eq!(ContinueToken::decode(token, META).unwrap_err().code.as_u16(), 400);
        }
    }
}
