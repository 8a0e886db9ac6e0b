//! The failure for a response with a code other than success, with the wording of the reference server's HTTP
//! client. If the body is a Status, the failure is taken from the Status. Otherwise the failure consists of
//! the code and the beginning of the text.

use http::StatusCode;

use super::{Failure, error};
use values::json::{self, Value};
use values::yaml;

/// Maximum number of bytes of a text that become part of a message.
const TEXT_BYTES_MAX: usize = 2048;

/// Returns the failure for a response whose code is not a success.
pub(super) fn failure(code: StatusCode, media_type: &str, body: &[u8]) -> Failure {
    if let Some(failure) = status(body) {
        return failure;
    }
    // A body without a media type counts as text.
    let is_text = media_type.is_empty() || media_type.to_ascii_lowercase().starts_with("text/");
    let text = String::from_utf8_lossy(&body[..body.len().min(TEXT_BYTES_MAX)]);
    let text = error::unexpected_code(code, if is_text { text.trim() } else { "unknown" });
    Failure::Code { code: code.as_u16(), text }
}

/// Returns the failure in a Status with `status: Failure`. The apiVersion may be missing.
fn status(body: &[u8]) -> Option<Failure> {
    let document = match body.trim_ascii_start().first()? {
        b'{' => json::parse(body).ok()?,
        _ => yaml::parse(body).ok()?.value,
    };
    let is_status =
        document.str_at(&["kind"]) == "Status" && matches!(document.str_at(&["apiVersion"]), "" | "v1");
    if !is_status || document.str_at(&["status"]) != "Failure" {
        return None;
    }
    let code = match document.str_at(&["reason"]) {
        "InternalError" => 500,
        "Timeout" => 504,
        "TooManyRequests" => 429,
        _ => document
            .get("code")
            .and_then(Value::as_i64)
            .and_then(|code| u16::try_from(code).ok())
            .unwrap_or(0),
    };
    Some(Failure::Code { code, text: document.str_at(&["message"]).to_owned() })
}

/// Checks that a text is empty or a media type with parameters (RFC 2045, 5.1).
///
/// # Errors
/// The message says why the text is not a media type.
pub(super) fn media_type(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Ok(());
    }
    let (name, mut rest) = text.split_at(text.find(';').unwrap_or(text.len()));
    let (main, after) = token(name.trim());
    match (main, after.split_at_checked(1)) {
        ("", _) => return Err("mime: no media type"),
        (_, None) => {}
        (_, Some(("/", after))) => match token(after) {
            ("", _) => return Err("mime: expected token after slash"),
            (_, "") => {}
            _ => return Err("mime: unexpected content after media subtype"),
        },
        _ => return Err("mime: unexpected content after media type"),
    }
    let mut known: Vec<(String, &str)> = Vec::new();
    while !matches!(rest.trim(), "" | ";") {
        let (name, value, after) = parameter(rest.trim_start()).ok_or("mime: invalid media parameter")?;
        let name = name.to_ascii_lowercase();
        if known.iter().any(|(other, other_value)| *other == name && *other_value != value) {
            return Err("mime: duplicate parameter name");
        }
        known.push((name, value));
        rest = after;
    }
    Ok(())
}

/// Returns the token at the start of a text, and the rest of the text.
fn token(text: &str) -> (&str, &str) {
    let is_part = |c: char| c.is_ascii_graphic() && !"()<>@,;:\\\"/[]?=".contains(c);
    text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()))
}

/// Parses a parameter: returns its name, its value as written, and the rest of the text.
fn parameter(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = token(text.strip_prefix(';')?.trim_start());
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        None => token(rest),
        Some(quoted) => quoted.split_at(quoted.find('"')?),
    };
    let rest = rest.strip_prefix('"').unwrap_or(rest);
    (!name.is_empty()).then_some((name, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_message_of_its_status_or_the_beginning_of_its_text() {
        let long = "x".repeat(3000);
        let shown = format!(
            "an error on the server (\"{}\") has prevented the request from succeeding",
            &long[..2048]
        );
        for (code, media_type, body, want) in [
            (500, "text/plain", &*long, (500, &*shown)),
            (403, "", " no\n", (403, "no")),
            (403, "Text/Plain", "no", (403, "no")),
            (403, "application/json", "no", (403, "unknown")),
            (
                418,
                "a/b",
                r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"m","code":409}"#,
                (409, "m"),
            ),
            (
                500,
                "a/b",
                r#"{"kind":"Status","status":"Failure","message":"m","reason":"Timeout"}"#,
                (504, "m"),
            ),
            (503, "a/b", "kind: Status\nstatus: Failure\n", (0, "")),
            (
                409,
                "a/b",
                r#"{"kind":"Status","apiVersion":"v1","status":"Success","message":"m"}"#,
                (409, "the server reported a conflict"),
            ),
            (
                404,
                "a/b",
                r#"{"kind":"Status","apiVersion":"v2","status":"Failure","message":"m"}"#,
                (404, "the server could not find the requested resource"),
            ),
        ] {
            let got = failure(StatusCode::from_u16(code).unwrap(), media_type, body.as_bytes());
            assert_eq!(got, Failure::Code { code: want.0, text: want.1.to_owned() }, "{media_type} {body}");
        }
    }

    #[test]
    fn a_malformed_media_type_is_refused_with_a_reason() {
        for (text, want) in [
            ("", Ok(())),
            ("application/json", Ok(())),
            ("json", Ok(())),
            ("a/b; charset=utf-8;", Ok(())),
            ("a/b ; x=\"y z\" ; w=v", Ok(())),
            (";;", Err("mime: no media type")),
            ("a b", Err("mime: unexpected content after media type")),
            ("a/", Err("mime: expected token after slash")),
            ("a/b c", Err("mime: unexpected content after media subtype")),
            ("a/b; x", Err("mime: invalid media parameter")),
            ("a/b; x=1; X=2", Err("mime: duplicate parameter name")),
        ] {
            assert_eq!(media_type(text), want, "{text}");
        }
    }
}
