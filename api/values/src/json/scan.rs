//! A cursor over stored JSON that builds no tree: canonical text is scanned once, byte by byte.
//!
//! The cursor is for text whose checksum was verified. The cursor follows lengths and nesting, and validates
//! nothing else. On unusual text a method returns `None`, and the caller uses a slower parser that can
//! report the error. No input causes a panic, an endless loop or recursion.

use std::borrow::Cow;

/// A read position in a text.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'t> {
    text: &'t [u8],
    at: usize,
}

/// The content of a string, without its quotes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Text<'t> {
    /// The bytes of the text, with escapes.
    pub raw: &'t [u8],
    /// Whether the text contains escapes.
    pub is_escaped: bool,
}

impl<'t> Scan<'t> {
    /// Creates a cursor at the start of `text`.
    pub fn new(text: &'t [u8]) -> Self {
        Scan { text, at: 0 }
    }

    /// Returns the number of bytes read so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the unread part of the text.
    #[inline]
    pub fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Returns the next byte without reading it; 0 at the end.
    #[inline]
    pub fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// Returns whether the whole text was read.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// Skips `byte` if it is the next byte. Returns whether `byte` was skipped.
    #[inline]
    pub fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    /// Skips the comma after a member or element. Returns `false` before the closing bracket `end`.
    #[inline]
    pub fn more(&mut self, end: u8) -> Option<bool> {
        let is_more = self.take(b',');
        (is_more || self.peek() == end).then_some(is_more)
    }

    /// Reads the name of a member and its colon.
    #[inline]
    pub fn name(&mut self) -> Option<Text<'t>> {
        let name = self.string()?;
        self.take(b':').then_some(name)
    }

    /// Reads a string, and returns its content without unescaping it.
    #[inline]
    pub fn string(&mut self) -> Option<Text<'t>> {
        if !self.take(b'"') {
            return None;
        }
        let start = self.at;
        let mut is_escaped = false;
        loop {
            self.at = find_quote_or_backslash(self.text, self.at)?;
            if self.text[self.at] == b'"' {
                self.at += 1;
                return Some(Text { raw: &self.text[start..self.at - 1], is_escaped });
            }
            is_escaped = true;
            self.at += 2; // the backslash and the escaped byte
        }
    }

    /// Reads a number and returns its text.
    #[inline]
    pub fn number(&mut self) -> Option<&'t str> {
        let rest = self.text.get(self.at..)?;
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let len = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        self.at += len;
        std::str::from_utf8(&rest[..len]).ok().filter(|text| !text.is_empty())
    }

    /// Skips `word` if the unread text starts with it. Returns whether `word` was skipped.
    #[inline]
    pub fn word(&mut self, word: &str) -> bool {
        let found = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes()));
        self.at += if found { word.len() } else { 0 };
        found
    }

    /// Skips `len` bytes that the caller has already examined.
    pub fn skip(&mut self, len: usize) {
        self.at += len;
    }

    /// Skips a value of any kind and returns its text.
    pub fn value(&mut self) -> Option<&'t [u8]> {
        let start = self.at;
        match self.peek() {
            b'"' => drop(self.string()?),
            b'{' | b'[' => self.nested()?,
            _ => {
                let rest = self.text.get(start..)?;
                let len = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']'));
                self.at += len.unwrap_or(rest.len());
            }
        }
        (self.at > start).then(|| &self.text[start..self.at])
    }

    /// Skips an object or array by counting brackets.
    fn nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.text.get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

impl<'t> Text<'t> {
    /// Returns the string unescaped; `None` if it has invalid escapes.
    pub fn unescaped(self) -> Option<Cow<'t, [u8]>> {
        if !self.is_escaped {
            return Some(Cow::Borrowed(self.raw));
        }
        let mut meant = Vec::with_capacity(self.raw.len());
        let mut rest = self.raw;
        while let Some(at) = memchr::memchr(b'\\', rest) {
            meant.extend_from_slice(&rest[..at]);
            let (&escape, after) = rest[at + 1..].split_first()?;
            rest = after;
            let plain = match escape {
                b'"' | b'\\' | b'/' => escape,
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'u' => {
                    let mut code = u32::from(code_unit(&mut rest)?);
                    if (0xd800..0xdc00).contains(&code) {
                        rest = rest.strip_prefix(b"\\u")?;
                        let low = u32::from(code_unit(&mut rest)?);
                        code = 0x10000
                            + ((code - 0xd800) << 10)
                            + low.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                    }
                    meant.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
                    continue;
                }
                _ => return None,
            };
            meant.push(plain);
        }
        meant.extend_from_slice(rest);
        Some(Cow::Owned(meant))
    }
}

/// Removes four hexadecimal digits from the front and returns their value.
fn code_unit(rest: &mut &[u8]) -> Option<u16> {
    let (digits, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)? as u16))
}

/// Returns the position of the first quote or backslash from `at` on. The function compares eight bytes at a
/// time, because most strings are short; the rest of a long string goes to a vectorized search, which has a
/// higher fixed cost.
#[inline]
fn find_quote_or_backslash(text: &[u8], at: usize) -> Option<usize> {
    const LONG: usize = 48;
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut at = at;
    let long = at + LONG;
    while at < long
        && let Some(bytes) = text.get(at..).and_then(|rest| rest.first_chunk::<8>())
    {
        let bytes = u64::from_le_bytes(*bytes);
        // The lowest bit set marks the first zero byte; higher bits may be wrong.
        let zero = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes & (ONES << 7);
        let found = zero(bytes ^ (ONES * b'"' as u64)) | zero(bytes ^ (ONES * b'\\' as u64));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    memchr::memchr2(b'"', b'\\', text.get(at..)?).map(|found| at + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scanning_skips_whole_json_values() {
        for (text, value) in [
            (r#""abc",1"#, r#""abc""#),
            (r#""a\"b\\",1"#, r#""a\"b\\""#),
            (
                r#""a string that is longer than what is looked at eight bytes at a time \" here",1"#,
                r#""a string that is longer than what is looked at eight bytes at a time \" here""#,
            ),
            (r#"{"a":{"b":"}"},"c":["]",{}]}]"#, r#"{"a":{"b":"}"},"c":["]",{}]}"#),
            ("[]}", "[]"),
            ("12.5e3,", "12.5e3"),
            ("null}", "null"),
            ("true", "true"),
        ] {
            let mut scan = Scan::new(text.as_bytes());
            assert_eq!(scan.value().map(String::from_utf8_lossy).as_deref(), Some(value), "{text}");
            assert_eq!(scan.at, value.len(), "{text}");
        }
        for text in ["", ",", "}", "\"", "\"a", "\"a\\", "\"a\\\"", "{", "{\"a\":1", "[[]", "{\"a"] {
            assert_eq!(Scan::new(text.as_bytes()).value(), None, "{text}");
        }
        let deep = vec![b'['; 1 << 20];
        assert_eq!(Scan::new(&deep).value(), None);
    }

    #[test]
    fn quotes_and_backslashes_are_found_at_every_position() {
        for len in 0..80 {
            for at in 0..len {
                for byte in [b'"', b'\\'] {
                    // The other bytes differ from a quote or a backslash in one bit, or have the highest bit
                    // set.
                    let mut text: Vec<u8> =
                        (0..len).map(|at| [b'#', b']', 0xa2, 0xdc, 0x21][at % 5]).collect();
                    text[at] = byte;
                    for from in 0..=at {
                        assert_eq!(find_quote_or_backslash(&text, from), Some(at), "{text:?} from {from}");
                    }
                    assert_eq!(find_quote_or_backslash(&text, at + 1), None);
                }
            }
        }
    }

    #[test]
    fn strings_unescape_as_in_the_general_parser() {
        for text in [
            r#""""#,
            r#""plain""#,
            r#""a\n\r\t\b\f\"\\\/z""#,
            r#""\u003ca\u0026\u2028\u00e9""#,
            r#""\ud83d\ude00x""#,
            r#""é😀""#,
            r#""\ud83d""#,
            r#""\ud83dx""#,
            r#""\ud83d\u0041""#,
            r#""\ude00""#,
            r#""\x""#,
            r#""\u12""#,
            r#""\u12g4""#,
        ] {
            let other: Option<String> = serde_json::from_str(text).ok();
            let read = Scan::new(text.as_bytes()).string().and_then(Text::unescaped);
            assert_eq!(read.as_deref(), other.as_deref().map(str::as_bytes), "{text}");
        }
    }
}
