//! The header fields of a request, for authenticators.
//!
//! Users are texts in rules, in audit events and in answers, so that a value becomes one here: bytes that are no UTF-8
//! become U+FFFD. Two values that differ in such bytes only are the same user, group or extra value to every rule. A field
//! is not dropped for them: a proxy that names a group would lose it, and with the group what is denied to it.

use std::borrow::Cow;

use auth::authn::HeaderFields;
use http::{HeaderMap, HeaderValue};

/// The fields of a request.
pub(super) struct Fields<'h>(pub(super) &'h HeaderMap);

impl HeaderFields for Fields<'_> {
    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in self.0 {
            visit(name.as_str(), &text(value));
        }
    }
}

/// A value as a text.
pub(super) fn text(value: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_utf8_become_replacement_characters() {
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
