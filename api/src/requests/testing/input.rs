//! The bodies of requests for the test features: JSON objects. An error message contains the path of the invalid field.

use std::time::Duration;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};

use crate::requests::request::Request;
use values::memory::Memory;
use values::status::Status;

/// Longest duration in a request for the test features: ten years.
const SPAN_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// A duration in a request, in the notation of Go: `1h30m`, `250ms`. A negative duration is an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Span(pub Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected =
            "expected a duration such as 250ms or 1h30m that is not negative and at most ten years";
        let nanos =
            go::duration::parse(&text).map_err(|error| D::Error::custom(format!("{error}; {expected}")))?;
        match u64::try_from(nanos).map(Duration::from_nanos) {
            Ok(span) if span <= SPAN_MAX => Ok(Span(span)),
            _ => Err(D::Error::custom(format!("invalid duration {text:?}; {expected}"))),
        }
    }
}

/// Decodes the body of a request.
///
/// # Errors
/// Fails with 400 if the body is invalid. The message names the position and the invalid field.
pub(super) fn decoded<T: DeserializeOwned>(request: &Request<'_>, body: &[u8]) -> Result<T, Status> {
    Memory::check_text(body).map_err(Status::no_memory)?;
    serde_json::from_slice(body).map_err(|error| {
        let (method, path) = (&request.head.method, &request.info.path);
        let error = error.to_string();
        let found = if body.is_empty() { "the body is empty" } else { shortened(&error) };
        Status::bad_request(format!(
            "cannot decode the body of {method} {path}: {found}; docs/api/testing.md lists the fields"
        ))
    })
}

/// Returns at most the first 400 bytes of a text from a client, for an error message.
pub(super) fn shortened(text: &str) -> &str {
    let mut end = text.len().min(400);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_truncated_between_characters() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"ä".repeat(300)).len(), 400);
        assert_eq!(shortened(&format!("a{}", "ä".repeat(300))).len(), 399);
    }

    #[test]
    fn a_span_is_a_go_duration_that_is_not_negative() {
        let ms = |ms| Some(Span(Duration::from_millis(ms)));
        for (text, want) in [
            ("\"0\"", ms(0)),
            ("\"250ms\"", ms(250)),
            ("\"1h30m\"", ms(5_400_000)),
            ("\"-0s\"", ms(0)),
            ("\"-1s\"", None),
            ("\"1\"", None),
            ("\"\"", None),
            ("\"87841h\"", None),
            ("\"2562047h47m\"", None),
            ("\"999999999999h\"", None),
            ("250", None),
            ("null", None),
            ("[]", None),
        ] {
            let got = serde_json::from_str::<Span>(text);
            assert_eq!(got.as_ref().ok(), want.as_ref(), "{text}: {got:?}");
        }
    }
}
