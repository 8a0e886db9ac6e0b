//! Parsing that keeps the original text of numbers where it matters.
//!
//! The reference server applies a patch to text, so that a quantity in the patch keeps all its digits. This
//! module first finds the numbers of the text; they are few, and most of them are 64-bit integers. Only if
//! other numbers are among them, each number that the tokenizer returns is replaced by its original text.

use std::cell::Cell;

use super::parse::{Duplicates, read_words};
use super::{ParseError, Value, parse, parse_reporting_duplicates};

/// Parses one JSON document like [`parse`], except that numbers other than 64-bit integers become
/// [`Value::Number`], even if they exceed the range of a double.
///
/// # Errors
/// The same as for [`parse`].
pub fn parse_exact(text: &[u8]) -> Result<Value, ParseError> {
    match Words::of(text) {
        None => parse(text),
        Some(words) => read_words(text, &words, None),
    }
}

/// Parses like [`parse_exact`] and also returns the paths of members that occur more than once.
///
/// # Errors
/// The same as for [`parse`].
pub fn parse_exact_reporting_duplicates(text: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    match Words::of(text) {
        None => parse_reporting_duplicates(text),
        Some(words) => {
            let watch = Duplicates::default();
            let value = read_words(text, &words, Some(&watch))?;
            Ok((value, watch.into_found()))
        }
    }
}

/// The texts of the numbers of a document, in document order.
pub(super) struct Words<'t> {
    numbers: Vec<&'t str>,
    next: Cell<usize>,
    /// The document with `0` in place of each number that is too large for a double; `None` if it has no such
    /// number.
    pub(super) readable: Option<Vec<u8>>,
}

impl<'t> Words<'t> {
    /// Returns the numbers of `text`; `None` if all of them are 64-bit integers.
    fn of(text: &'t [u8]) -> Option<Self> {
        let is_integer = |word: &str| word.parse::<i64>().is_ok();
        numbers(text).any(|(_, word)| !is_integer(word)).then(|| {
            let mut readable: Option<Vec<u8>> = None;
            let mut copied = 0;
            for (at, word) in numbers(text) {
                if !is_integer(word) && word.parse().is_ok_and(f64::is_infinite) {
                    let readable = readable.get_or_insert_default();
                    readable.extend_from_slice(&text[copied..at]);
                    readable.push(b'0');
                    copied = at + word.len();
                }
            }
            if let Some(readable) = &mut readable {
                readable.extend_from_slice(&text[copied..]);
            }
            let numbers = numbers(text).map(|(_, word)| word).collect();
            Words { numbers, next: Cell::new(0), readable }
        })
    }

    /// Starts again with the first number.
    pub(super) fn rewind(&self) {
        self.next.set(0);
    }

    /// Returns the next number, for which the tokenizer returned `read`.
    pub(super) fn next(&self, read: Value) -> Value {
        let at = self.next.replace(self.next.get() + 1);
        match self.numbers.get(at).copied() {
            Some(word) => word.parse().map_or_else(|_| Value::Number(word.into()), Value::Int),
            None => read,
        }
    }
}

/// Returns the numbers of a JSON text with their positions. On a text that is not JSON, the iterator returns
/// arbitrary parts of it, and ends.
pub(super) fn numbers(text: &[u8]) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            match text.get(at)? {
                b'"' => {
                    at += 1;
                    while *text.get(at)? != b'"' {
                        at += if text[at] == b'\\' { 2 } else { 1 };
                    }
                    at += 1;
                }
                b'-' | b'0'..=b'9' => {
                    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                    let start = at;
                    at += text[start..].iter().take_while(|byte| is_part(byte)).count();
                    return std::str::from_utf8(&text[start..at]).ok().map(|word| (start, word));
                }
                // The `e` in `true` and `false` does not begin a number.
                _ => at += 1,
            }
        }
    })
}

/// Returns the first number of a JSON text that is too large for a double.
pub(super) fn out_of_range(text: &[u8]) -> Option<&str> {
    numbers(text).map(|(_, word)| word).find(|word| word.parse().is_ok_and(f64::is_infinite))
}

#[cfg(test)]
mod tests {
    use super::super::write;
    use super::*;

    #[test]
    fn numbers_keep_their_words() {
        for (text, want) in [
            ("[1,-2,3]", "[1,-2,3]"),
            ("[1.0,1e3,-0,1E+2]", "[1.0,1e3,0,1E+2]"),
            (
                r#"{"a":18446744073709551615,"b":"1e400","c":1e400}"#,
                r#"{"a":18446744073709551615,"b":"1e400","c":1e400}"#,
            ),
            (
                r#"{"a\"1.5":{"x":1e400,"x":2.50},"b":[-1e999,true,7]}"#,
                r#"{"a\"1.5":{"x":2.50},"b":[-1e999,true,7]}"#,
            ),
            ("100000000000000000001", "100000000000000000001"),
        ] {
            let mut out = Vec::new();
            write(&parse_exact(text.as_bytes()).unwrap(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want, "{text}");
        }
        let (value, duplicates) =
            parse_exact_reporting_duplicates(br#"{"a":[{"x":1e400,"x":1.50}]}"#).unwrap();
        assert_eq!(duplicates, ["a[0].x"]);
        assert_eq!(
            value.at(&["a"]).unwrap().as_array().unwrap()[0].get("x"),
            Some(&Value::Number("1.50".into()))
        );
        // Invalid strings are repaired here too.
        assert!(parse_exact(b"[1.0,\"\xff\",2.0]").is_ok());
        for text in ["[1.5", "[1.5,]", "1.5 2", "-", "1e", "\"1.5", "[1e400,x]"] {
            assert!(parse_exact(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(out_of_range(br#"{"1e400":1,"a":[1e300,-1e400]}"#), Some("-1e400"));
    }
}
