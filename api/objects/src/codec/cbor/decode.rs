//! Decodes one CBOR item to a tree, within limits of size and depth.
//!
//! The decoder allocates memory only for bytes that are present in the input, so a short input that declares a
//! huge length does no harm. Names may be text or byte strings. A repeated name in one map is an error, because
//! no later step could detect it.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::{SELF_DESCRIBED, major, tag};
use values::cancellation;
use values::json::{DEPTH_MAX, Key, MemberCollector, Value};

/// Reason why bytes are not a CBOR item that JSON can represent.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CborError {
    /// The bytes end inside the item.
    #[error("unexpected EOF")]
    Truncated,
    /// More bytes follow the item.
    #[error("cbor: {extra} bytes of extraneous data starting at index {at}")]
    Trailing {
        /// Number of bytes after the item.
        extra: usize,
        /// Offset of the first byte after the item.
        at: usize,
    },
    /// The item is nested deeper than [`DEPTH_MAX`].
    #[error("cbor: exceeded max nested level {DEPTH_MAX}")]
    Depth,
    /// A name occurs twice in one map.
    #[error("cbor: found duplicate map key {0:?}")]
    Duplicate(String),
    /// A string is not valid UTF-8.
    #[error("cbor: invalid UTF-8 string")]
    NotUnicode,
    /// The item is malformed, or it is well-formed but has no JSON equivalent.
    #[error("cbor: {0}")]
    Unsupported(&'static str),
}

/// Parses one item, which may begin with the self-described tag.
///
/// # Errors
/// See [`CborError`].
pub fn parse(bytes: &[u8]) -> Result<Value, CborError> {
    let mut reader = Reader { bytes, at: 0 };
    if bytes.starts_with(&SELF_DESCRIBED) {
        reader.at = SELF_DESCRIBED.len();
    }
    let value = reader.item(0)?;
    match bytes.len() - reader.at {
        0 => Ok(value),
        extra => Err(CborError::Trailing { extra, at: reader.at }),
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

/// The head of an item: the major type and the argument.
#[derive(Clone, Copy)]
struct Head {
    major: u8,
    info: u8,
    /// The value, length or tag number, or the bits of a float. `None` for an indefinite length or a break.
    argument: Option<u64>,
}

impl<'b> Reader<'b> {
    fn take(&mut self, len: usize) -> Result<&'b [u8], CborError> {
        let end =
            self.at.checked_add(len).filter(|end| *end <= self.bytes.len()).ok_or(CborError::Truncated)?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn head(&mut self) -> Result<Head, CborError> {
        let first = self.take(1)?[0];
        let (major, info) = (first >> 5, first & 31);
        let argument = match info {
            0..=23 => Some(u64::from(info)),
            24..=27 => {
                let bytes = self.take(1 << (info - 24))?;
                Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
            }
            31 if matches!(major, major::BYTES..=major::MAP | major::SIMPLE) => None,
            _ => return Err(CborError::Unsupported("invalid additional information")),
        };
        Ok(Head { major, info, argument })
    }

    /// Returns whether the container ends at the current position: after `length` items, or at its break.
    fn is_end(&mut self, length: Option<u64>, done: u64) -> Result<bool, CborError> {
        match length {
            Some(length) => Ok(done >= length),
            None => {
                let is_break = *self.bytes.get(self.at).ok_or(CborError::Truncated)? == 0xff;
                self.at += usize::from(is_break);
                Ok(is_break)
            }
        }
    }

    fn item(&mut self, depth: usize) -> Result<Value, CborError> {
        cancellation::step();
        let head = self.head()?;
        match (head.major, head.argument) {
            (major::UNSIGNED, Some(number)) => {
                i64::try_from(number).map(Value::Int).map_err(|_| CborError::Unsupported("integer overflow"))
            }
            (major::NEGATIVE, Some(number)) => match i64::try_from(number) {
                Ok(number) => Ok(Value::Int(-1 - number)),
                Err(_) => Err(CborError::Unsupported("integer overflow")),
            },
            (major::BYTES | major::TEXT, _) => self.string(head).map(Value::String),
            (major::ARRAY, length) => {
                let depth = deeper(depth)?;
                let mut items = Vec::new();
                while !self.is_end(length, items.len() as u64)? {
                    items.push(self.item(depth)?);
                }
                Ok(Value::Array(items))
            }
            (major::MAP, length) => {
                let depth = deeper(depth)?;
                let mut members = MemberCollector::default();
                let mut done = 0;
                while !self.is_end(length, done)? {
                    let head = self.head()?;
                    if !matches!(head.major, major::BYTES | major::TEXT) {
                        return Err(CborError::Unsupported("map key is not a string"));
                    }
                    let name = self.string(head)?;
                    let value = self.item(depth)?;
                    if members.find(&name).is_some() {
                        return Err(CborError::Duplicate(name));
                    }
                    members.set(Key::Owned(name), value);
                    done += 1;
                }
                Ok(Value::Object(members.finish()))
            }
            (major::TAG, Some(number)) => self.tagged(number, deeper(depth)?),
            (major::SIMPLE, Some(bits)) => simple(head.info, bits),
            _ => Err(CborError::Unsupported("unexpected break")),
        }
    }

    /// Returns the bytes of a string whose head was read; chunks are concatenated.
    fn raw(&mut self, head: Head) -> Result<Vec<u8>, CborError> {
        let length = |number: u64| usize::try_from(number).map_err(|_| CborError::Truncated);
        if let Some(number) = head.argument {
            return Ok(self.take(length(number)?)?.to_vec());
        }
        let mut joined = Vec::new();
        while !self.is_end(None, 0)? {
            let piece = self.head()?;
            match piece.argument {
                Some(number) if piece.major == head.major => {
                    joined.extend_from_slice(self.take(length(number)?)?)
                }
                _ => return Err(CborError::Unsupported("wrong piece of an indefinite-length string")),
            }
        }
        Ok(joined)
    }

    fn string(&mut self, head: Head) -> Result<String, CborError> {
        String::from_utf8(self.raw(head)?).map_err(|_| CborError::NotUnicode)
    }

    /// Returns the value of tagged content. Interprets the tags of times, and of byte strings that are
    /// expected as base64 or base16 text. Ignores other tags.
    fn tagged(&mut self, number: u64, depth: usize) -> Result<Value, CborError> {
        match number {
            tag::POSITIVE_BIGNUM | tag::NEGATIVE_BIGNUM => {
                Err(CborError::Unsupported("bignums are not accepted"))
            }
            tag::BASE64_URL | tag::BASE64 | tag::BASE16 => {
                let at = self.at;
                let head = self.head()?;
                if head.major != major::BYTES {
                    self.at = at;
                    return self.item(depth);
                }
                let bytes = self.raw(head)?;
                Ok(Value::String(match number {
                    tag::BASE64_URL => URL_SAFE_NO_PAD.encode(bytes),
                    tag::BASE64 => STANDARD.encode(bytes),
                    _ => bytes.iter().fold(String::new(), |mut text, byte| {
                        let _ = write!(text, "{byte:02x}");
                        text
                    }),
                }))
            }
            tag::TIME_TEXT => match self.item(depth)? {
                Value::String(text) => Ok(Value::String(text)),
                _ => Err(CborError::Unsupported("time is not a string")),
            },
            _ => self.item(depth),
        }
    }
}

fn deeper(depth: usize) -> Result<usize, CborError> {
    if depth < DEPTH_MAX { Ok(depth + 1) } else { Err(CborError::Depth) }
}

fn simple(info: u8, bits: u64) -> Result<Value, CborError> {
    let number = match info {
        20 => return Ok(Value::Bool(false)),
        21 => return Ok(Value::Bool(true)),
        22 => return Ok(Value::Null),
        25 => half(bits as u16),
        26 => f64::from(f32::from_bits(bits as u32)),
        27 => f64::from_bits(bits),
        _ => {
            return Err(CborError::Unsupported(
                "simple values other than false, true and null are not accepted",
            ));
        }
    };
    if number.is_finite() {
        Ok(Value::Float(number))
    } else {
        Err(CborError::Unsupported("number is not finite"))
    }
}

/// Converts a half-precision float.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 => f64::INFINITY, // also for NaN; the caller refuses infinity and NaN
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let hex: String = hex.split_whitespace().collect();
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn cbor_items_are_decoded_as_documented() {
        for (hex, json) in [
            ("d9d9f7 a1 41 61 01", r#"{"a":1}"#),
            ("a1 61 61 01", r#"{"a":1}"#), // a text string as the name
            ("bf 41 61 9f 01 02 ff ff", r#"{"a":[1,2]}"#),
            ("5f 41 61 42 62 63 ff", r#""abc""#),
            ("7f 61 61 ff", r#""a""#),
            ("00", "0"),
            ("18 18", "24"),
            ("1b 7fffffffffffffff", "9223372036854775807"),
            ("20", "-1"),
            ("3b 7fffffffffffffff", "-9223372036854775808"),
            ("f4", "false"),
            ("f5", "true"),
            ("f6", "null"),
            ("f9 3e00", "1.5"),
            ("f9 0001", "5.960464477539063e-8"),
            ("fa 3fc00000", "1.5"),
            ("fb 3ff8000000000000", "1.5"),
            ("d6 42 00ff", r#""AP8=""#), // tag 22
            ("d7 42 00ff", r#""00ff""#), // tag 23
            ("d5 42 fbff", r#""-_8""#),  // tag 21
            ("c0 54 323030312d30312d30315430303a30303a30305a", r#""2001-01-01T00:00:00Z""#),
            ("d8 64 01", "1"), // an unknown tag
        ] {
            assert_eq!(
                parse(&bytes(hex)).as_ref(),
                Ok(&values::json::parse(json.as_bytes()).unwrap()),
                "{hex}"
            );
        }
    }

    #[test]
    fn items_without_a_json_equivalent_are_refused() {
        for (hex, want) in [
            ("", "unexpected EOF"),
            ("a1 41 61", "unexpected EOF"),
            ("9b ffffffffffffffff", "unexpected EOF"),
            ("5b ffffffffffffffff", "unexpected EOF"),
            ("9f 01", "unexpected EOF"),
            ("01 02", "cbor: 1 bytes of extraneous data starting at index 1"),
            ("a2 41 61 01 61 61 02", "cbor: found duplicate map key \"a\""),
            ("a1 01 02", "cbor: map key is not a string"),
            ("41 ff", "cbor: invalid UTF-8 string"),
            ("1b 8000000000000000", "cbor: integer overflow"),
            ("3b 8000000000000000", "cbor: integer overflow"),
            ("c2 41 01", "cbor: bignums are not accepted"),
            ("f7", "cbor: simple values other than false, true and null are not accepted"),
            ("e0", "cbor: simple values other than false, true and null are not accepted"),
            ("f9 7c00", "cbor: number is not finite"),
            ("fb 7ff8000000000000", "cbor: number is not finite"),
            ("ff", "cbor: unexpected break"),
            ("1c", "cbor: invalid additional information"),
            ("5f 61 61 ff", "cbor: wrong piece of an indefinite-length string"),
            (&"81".repeat(100_000), "cbor: exceeded max nested level 128"),
            (&"c6".repeat(100_000), "cbor: exceeded max nested level 128"),
        ] {
            assert_eq!(parse(&bytes(hex)).unwrap_err().to_string(), want, "{hex:.40}");
        }
    }
}
