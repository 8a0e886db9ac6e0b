//! The header fields of a request, for authenticators.
//!
//! Rules, audit events and responses contain users as text, so header values become text here: bytes that are
//! not UTF-8 become U+FFFD. Two values that differ only in such bytes are the same user, group or extra value
//! for every rule. The server does not drop a header field with such bytes. Otherwise the user would not have
//! the group that a proxy names, and rules that deny access to this group would not apply.

use std::borrow::Cow;

use auth::authn::HeaderFields;
use http::{HeaderMap, HeaderValue};

/// The header fields of a request.
pub(super) struct Fields<'h>(pub(super) &'h HeaderMap);

impl HeaderFields for Fields<'_> {
    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in self.0 {
            visit(name.as_str(), &text(value));
        }
    }
}

/// Returns a header value as text.
pub(super) fn text(value: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_bytes_that_are_not_utf8_become_replacement_characters() {
        let mut headers = HeaderMap::new();
        for value in [&b"carol"[..], b"d\xc3\xa4ve", b"e\xffve", b"e\xfeve", b"\xc3"] {
            headers.append("x-remote-group", HeaderValue::from_bytes(value).unwrap());
        }
        let mut seen = Vec::new();
        Fields(&headers).each(&mut |name, value| seen.push(format!("{name}={value}")));
        let want = ["carol", "d\u{e4}ve", "e\u{fffd}ve", "e\u{fffd}ve", "\u{fffd}"];
        assert_eq!(seen, want.map(|value| format!("x-remote-group={value}")));
    }
}
