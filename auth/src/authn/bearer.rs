//! Parses the `Authorization` header into a bearer token, if it holds one (docs/api/authentication.md#bearer-tokens).
//!
//! A header of another form counts as absent; whether a token is valid is decided later.

/// Warning to a client whose header is ignored because of a second space after the scheme.
pub const EXTRA_SPACE_WARNING: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// Contents of an `Authorization` header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bearer<'r> {
    /// No bearer token: empty header, another scheme, or an empty token.
    Absent,
    /// Two spaces before the token: ignored, with [`EXTRA_SPACE_WARNING`].
    ExtraSpace,
    /// The token, never empty.
    Token(&'r str),
}

/// Reads the value of the first `Authorization` header.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_bearer_headers_carry_a_token() {
        // docs/api/authentication.md#bearer-tokens: header value, result.
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
