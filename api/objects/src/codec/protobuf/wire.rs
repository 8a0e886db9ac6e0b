//! The protobuf wire format: tags, variable-length integers, lengths. This module does not depend on message types.
//!
//! Reading never copies and never allocates: the bytes of a field are a slice of the input. Writing a length
//! before its bytes would need an extra pass over the value. Instead one byte is reserved for the length, and
//! the bytes are moved in the rare case that the length needs more than one byte.

use prost::encoding::{encode_varint, encoded_len_varint};

/// Reason why bytes are not a sequence of fields. The messages are the same as in the reference server.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WireError {
    /// The input ends inside a field, or a length exceeds the rest of the input.
    #[error("unexpected EOF")]
    Truncated,
    /// A length is negative as a signed number.
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    /// An integer has more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field number is zero or out of range.
    #[error("proto: illegal tag {number} (wire type {wire})")]
    IllegalTag {
        /// Field number in the tag.
        number: i32,
        /// Wire type in the tag.
        wire: u8,
    },
    /// The tag has an undefined wire type.
    #[error("proto: illegal wireType {0}")]
    IllegalWire(u8),
    /// A group ends that did not begin.
    #[error("proto: unexpected end of group")]
    EndOfGroup,
    /// The schema contains the field, but with another wire type.
    #[error("proto: wrong wireType = {0}")]
    WrongWire(u8),
    /// A string is not valid UTF-8.
    #[error("proto: string field contains invalid UTF-8")]
    Utf8,
}

/// The value of an encoded field.
#[derive(Clone, Copy, Debug)]
pub enum Data<'b> {
    /// Wire type 0: an integer.
    Varint(u64),
    /// Wire type 1: 64 bits.
    Fixed64([u8; 8]),
    /// Wire type 2: bytes with a length.
    Bytes(&'b [u8]),
    /// A group (3) or 32 bits (5). No known field has these wire types, so the value is skipped.
    Other(u8),
}

impl<'b> Data<'b> {
    fn wire(self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Other(wire) => wire,
        }
    }

    /// Returns the integer; fails for other wire types.
    pub fn varint(self) -> Result<u64, WireError> {
        match self {
            Self::Varint(value) => Ok(value),
            other => Err(WireError::WrongWire(other.wire())),
        }
    }

    /// Returns the double; fails for other wire types.
    pub fn double(self) -> Result<f64, WireError> {
        match self {
            Self::Fixed64(bytes) => Ok(f64::from_le_bytes(bytes)),
            other => Err(WireError::WrongWire(other.wire())),
        }
    }

    /// Returns the bytes; fails if the field is not length-delimited.
    pub fn bytes(self) -> Result<&'b [u8], WireError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(WireError::WrongWire(other.wire())),
        }
    }

    /// Returns the string; fails if the field is not a UTF-8 string.
    pub fn string(self) -> Result<&'b str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::Utf8)
    }
}

/// Reads fields one after the other.
pub struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    /// Creates a reader of `bytes`.
    pub fn new(bytes: &'b [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// Returns the number and the value of the next field; `None` at the end.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "an item that cannot be read is an error of the reader"
    )]
    pub fn next(&mut self) -> Result<Option<(u32, Data<'b>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire) = self.tag()?;
        let data = match wire {
            3 => {
                self.skip_group()?;
                Data::Other(3)
            }
            4 => return Err(WireError::EndOfGroup),
            wire => self.data(wire)?,
        };
        Ok(Some((number, data)))
    }

    /// Returns the number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Returns the next value of wire type `wire` in a packed list.
    pub fn packed(&mut self, wire: u8) -> Result<Option<Data<'b>>, WireError> {
        if self.rest.is_empty() { Ok(None) } else { self.data(wire).map(Some) }
    }

    fn tag(&mut self) -> Result<(u32, u8), WireError> {
        let tag = self.varint()?;
        let (number, wire) = (tag >> 3, (tag & 7) as u8);
        match u32::try_from(number) {
            Ok(number @ 1..=0x1fff_ffff) => Ok((number, wire)),
            _ => Err(WireError::IllegalTag { number: number as i32, wire }),
        }
    }

    fn data(&mut self, wire: u8) -> Result<Data<'b>, WireError> {
        match wire {
            0 => Ok(Data::Varint(self.varint()?)),
            1 => {
                let (value, rest) = self.rest.split_first_chunk::<8>().ok_or(WireError::Truncated)?;
                self.rest = rest;
                Ok(Data::Fixed64(*value))
            }
            2 => {
                let len = i64::try_from(self.varint()?).map_err(|_| WireError::NegativeLength)?;
                let len = usize::try_from(len).map_err(|_| WireError::Truncated)?;
                let (value, rest) = self.rest.split_at_checked(len).ok_or(WireError::Truncated)?;
                self.rest = rest;
                Ok(Data::Bytes(value))
            }
            5 => {
                self.rest = self.rest.get(4..).ok_or(WireError::Truncated)?;
                Ok(Data::Other(5))
            }
            other => Err(WireError::IllegalWire(other)),
        }
    }

    /// Skips a group and its nested groups, with a counter instead of recursion.
    fn skip_group(&mut self) -> Result<(), WireError> {
        let mut open = 1usize;
        while open > 0 {
            match self.tag()?.1 {
                3 => open += 1,
                4 => open -= 1,
                wire => drop(self.data(wire)?),
            }
        }
        Ok(())
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, WireError> {
        if let Some((&byte, rest)) = self.rest.split_first()
            && byte < 0x80
        {
            self.rest = rest;
            return Ok(u64::from(byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for (at, &byte) in self.rest.iter().enumerate() {
            if at == 9 && byte > 1 {
                return Err(WireError::Overflow);
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(WireError::Truncated)
    }
}

/// Appends a variable-length integer.
#[inline]
pub fn write_varint(value: u64, out: &mut Vec<u8>) {
    if value < 0x80 {
        out.push(value as u8);
    } else {
        encode_varint(value, out);
    }
}

/// Appends the tag of an integer field, and the integer. Negative values take ten bytes, including 32-bit
/// values.
pub fn write_int(number: u32, value: i64, out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3, out);
    write_varint(value as u64, out);
}

/// Appends a boolean field.
pub fn write_bool(number: u32, value: bool, out: &mut Vec<u8>) {
    write_int(number, i64::from(value), out);
}

/// Appends a double field.
pub fn write_double(number: u32, value: f64, out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3 | 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a string or bytes field.
pub fn write_bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3 | 2, out);
    write_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Appends a length-delimited field; `body` appends its bytes.
pub fn write_delimited<E>(
    number: u32,
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    write_varint(u64::from(number) << 3 | 2, out);
    let at = out.len();
    out.push(0);
    body(out)?;
    write_length(at, out);
    Ok(())
}

/// Replaces the byte at `at` by the number of bytes after it.
fn write_length(at: usize, out: &mut Vec<u8>) {
    let len = out.len() - at - 1;
    if len < 0x80 {
        out[at] = len as u8;
        return;
    }
    let head = encoded_len_varint(len as u64);
    out.resize(out.len() + head - 1, 0);
    out.copy_within(at + 1..at + 1 + len, at + head);
    let mut slot = &mut out[at..at + head];
    encode_varint(len as u64, &mut slot);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(u32, String)>, WireError> {
        let mut reader = Reader::new(bytes);
        let mut fields = Vec::new();
        while let Some((number, data)) = reader.next()? {
            fields.push((number, format!("{data:?}")));
        }
        Ok(fields)
    }

    #[test]
    fn wire_fields_are_read_in_order() {
        for (bytes, want) in [
            (&b"\x08\x96\x01"[..], Some((1, "Varint(150)"))),
            (b"\x12\x02hi", Some((2, "Bytes([104, 105])"))),
            (b"\x19\0\0\0\0\0\0\0\0", Some((3, "Fixed64([0, 0, 0, 0, 0, 0, 0, 0])"))),
            (b"\x25\0\0\0\0", Some((4, "Other(5)"))),
            (b"\x0b\x13\x08\x01\x14\x0c", Some((1, "Other(3)"))), // a group inside a group
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Some((1, "Varint(18446744073709551615)"))),
            (b"", None),
        ] {
            let want: Vec<_> = want.into_iter().map(|(number, text)| (number, text.to_owned())).collect();
            assert_eq!(read(bytes).unwrap(), want, "{bytes:x?}");
        }
    }

    #[test]
    fn malformed_wire_bytes_are_errors_with_a_reason() {
        for (bytes, want) in [
            (&b"\x08"[..], WireError::Truncated),
            (b"\x08\x80", WireError::Truncated),
            (b"\x12\x03hi", WireError::Truncated),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", WireError::Truncated),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", WireError::NegativeLength),
            (b"\x19\0", WireError::Truncated),
            (b"\x25\0", WireError::Truncated),
            (b"\x0b\x08\x01", WireError::Truncated),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", WireError::Overflow),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", WireError::Overflow),
            (b"\x00\x00", WireError::IllegalTag { number: 0, wire: 0 }),
            (b"\x0e", WireError::IllegalWire(6)),
            (b"\x0f", WireError::IllegalWire(7)),
            (b"\x0c", WireError::EndOfGroup),
        ] {
            assert_eq!(read(bytes).unwrap_err(), want, "{bytes:x?}");
        }
        let groups = vec![0x0b; 1 << 20];
        assert_eq!(
            read(&groups).unwrap_err(),
            WireError::Truncated,
            "a million groups are no million frames"
        );
    }

    #[test]
    fn lengths_of_every_width_are_written() {
        for len in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152] {
            let mut out = vec![9];
            write_delimited(5, &mut out, |out| {
                out.resize(out.len() + len, 7);
                Ok::<_, WireError>(())
            })
            .unwrap();
            let mut reader = Reader::new(&out[1..]);
            let (number, data) = reader.next().unwrap().unwrap();
            let bytes = data.bytes().unwrap();
            assert!(number == 5 && bytes.len() == len && bytes.iter().all(|&byte| byte == 7), "{len}");
            assert!(reader.next().unwrap().is_none());
        }
    }

    #[test]
    fn negative_integers_take_ten_bytes() {
        let mut out = Vec::new();
        write_int(1, -1, &mut out);
        assert_eq!(out, b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    }
}
