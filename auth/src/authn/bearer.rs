//! Parses the bearer token in the `Authorization` header (docs/api/authentication.md#bearer-tokens) and in
//! the WebSocket protocols. Browsers send a token as a WebSocket protocol, because they cannot set headers.
//!
//! A header with another format counts as absent. Other modules decide whether a token is valid.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Warning for a client whose header is ignored, because two spaces follow the scheme.
pub const EXTRA_SPACE_WARNING: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// Content of an `Authorization` header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bearer<'r> {
    /// The header contains no bearer token: it is empty, has another scheme, or has an empty token.
    Absent,
    /// Two spaces precede the token. The header is ignored, and the response contains
    /// [`EXTRA_SPACE_WARNING`].
    ExtraSpace,
    /// The header contains this bearer token, which is not empty.
    Token(&'r str),
}

/// Parses the value of the first `Authorization` header.
pub fn parse(header: &str) -> Bearer<'_> {
    let mut parts = header.trim().splitn(3, ' ');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(scheme), Some(token), rest) if scheme.eq_ignore_ascii_case("bearer") => match (token, rest) {
            ("", Some(_)) => Bearer::ExtraSpace,
            ("", None) => Bearer::Absent,
            (token, _) => Bearer::Token(token),
        },
        _ => Bearer::Absent,
    }
}

/// Prefix of a WebSocket protocol that contains a token. The token follows the prefix in unpadded base64url.
pub const PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Reasons why the WebSocket protocols of a request contain no usable token.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProtocolError {
    /// Several protocols contain a token.
    #[error("multiple base64.bearer.authorization tokens specified")]
    Several,
    /// The token is not the base64url encoding of UTF-8 text.
    #[error("invalid base64.bearer.authorization token encoding")]
    Encoding,
    /// The request offers no other protocol. The server must select a protocol that is not a token, because
    /// clients refuse a response without a selected protocol.
    #[error("missing additional subprotocol")]
    Alone,
}

/// Iterates over the protocols of a `Sec-WebSocket-Protocol` header, without the protocol that contains the
/// token.
pub fn other_protocols(header: &str) -> impl Iterator<Item = &str> {
    header.split(',').map(str::trim).filter(|protocol| !protocol.starts_with(PROTOCOL_PREFIX))
}

/// Returns the token in the WebSocket protocols of a request, if any.
///
/// # Errors
/// Fails if the token cannot be used.
pub fn protocol_token(header: &str) -> Result<Option<String>, ProtocolError> {
    let mut tokens = header.split(',').filter_map(|protocol| protocol.trim().strip_prefix(PROTOCOL_PREFIX));
    let Some(encoded) = tokens.next() else { return Ok(None) };
    if tokens.next().is_some() {
        return Err(ProtocolError::Several);
    }
    let token = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|token| String::from_utf8(token).ok());
    let token = token.filter(|token| !token.is_empty()).ok_or(ProtocolError::Encoding)?;
    if other_protocols(header).any(|other| !other.is_empty()) {
        Ok(Some(token))
    } else {
        Err(ProtocolError::Alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_websocket_token_needs_another_subprotocol_beside_it() {
        let token = format!("{PROTOCOL_PREFIX}{}", URL_SAFE_NO_PAD.encode("abc"));
        for (header, want) in [
            ("v4.channel.k8s.io".to_owned(), Ok(None)),
            (format!("{token}, v4.channel.k8s.io"), Ok(Some("abc".to_owned()))),
            (format!("v4.channel.k8s.io,{token}"), Ok(Some("abc".to_owned()))),
            (token.clone(), Err(ProtocolError::Alone)),
            (format!("{token},"), Err(ProtocolError::Alone)),
            (format!("{token},{token},x"), Err(ProtocolError::Several)),
            (format!("{PROTOCOL_PREFIX},x"), Err(ProtocolError::Encoding)),
            (format!("{PROTOCOL_PREFIX}_w,x"), Err(ProtocolError::Encoding)), // a byte that is not UTF-8
        ] {
            assert_eq!(protocol_token(&header), want, "{header}");
        }
        assert_eq!(other_protocols(&format!("a, {token},b")).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn only_well_formed_bearer_headers_carry_a_token() {
        // The rows of docs/api/authentication.md#bearer-tokens: the header value and the result.
        for (header, want) in [
            ("Bearer abc", Bearer::Token("abc")),
            ("bEARER abc", Bearer::Token("abc")),
            ("  Bearer abc  ", Bearer::Token("abc")),
            ("Bearer abc def ghi", Bearer::Token("abc")),
            ("Bearer  abc", Bearer::ExtraSpace),
            ("Bearer   abc", Bearer::ExtraSpace),
            ("Bearer ", Bearer::Absent),
            ("Bearer", Bearer::Absent),
            ("", Bearer::Absent),
            ("   ", Bearer::Absent),
            ("Basic dXNlcjpwYXNz", Bearer::Absent),
            ("Bearer\tabc", Bearer::Absent),
            ("abc", Bearer::Absent),
        ] {
            assert_eq!(parse(header), want, "{header:?}");
        }
    }
}
