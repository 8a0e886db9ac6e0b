//! The texts of the numbers in a JSON document.

use std::cell::Cell;

use super::Value;

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
    pub(super) fn from_text(text: &'t [u8]) -> Option<Self> {
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
/// arbitrary parts of the text, and still ends.
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
