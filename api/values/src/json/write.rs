//! Serialization of trees, byte for byte like the encoder of the reference server.
//!
//! Output is compact. `<`, `>`, `&` and the line separators U+2028 and U+2029 are escaped. Doubles have their
//! shortest form.

use std::io::Write;

use super::Value;
use crate::cancellation;

/// Appends `value` as compact JSON.
pub fn write(value: &Value, out: &mut Vec<u8>) {
    cancellation::step();
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(n) => write_display(n, out),
        Value::Float(n) => write_double(*n, out),
        Value::Number(words) => out.extend_from_slice(words.as_bytes()),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => write_items(items, out, write),
        Value::Object(members) => write_members(members.iter(), out, |_, member, out| write(member, out)),
    }
}

/// Appends an array whose elements are written by `write`.
#[inline]
pub fn write_items(items: &[Value], out: &mut Vec<u8>, write: impl Fn(&Value, &mut Vec<u8>)) {
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

/// Appends an object of `members` whose values are written by `write`.
#[inline]
pub fn write_members<'v>(
    members: impl Iterator<Item = (&'v str, &'v Value)>,
    out: &mut Vec<u8>,
    write: impl Fn(&str, &Value, &mut Vec<u8>),
) {
    out.push(b'{');
    for (at, (name, value)) in members.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(name, out);
        out.push(b':');
        write(name, value, out);
    }
    out.push(b'}');
}

/// Appends `value` as compact JSON, with the members of objects sorted by name.
pub fn write_sorted(value: &Value, out: &mut Vec<u8>) {
    cancellation::step();
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            write_members(sorted.into_iter(), out, |_, value, out| write_sorted(value, out));
        }
        Value::Array(items) => write_items(items, out, write_sorted),
        scalar => write(scalar, out),
    }
}

/// Appends `value` indented by two spaces per level, without a final newline
/// (docs/api/encodings.md#json-and-yaml-output).
pub fn write_pretty(value: &Value, out: &mut Vec<u8>) {
    write_indented(value, 0, out);
}

fn write_indented(value: &Value, level: usize, out: &mut Vec<u8>) {
    cancellation::step();
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                out.extend_from_slice(if at > 0 { b",\n" } else { b"\n" });
                indent(level + 1, out);
                write_indented(item, level + 1, out);
            }
            out.push(b'\n');
            indent(level, out);
            out.push(b']');
        }
        Value::Object(members) if !members.is_empty() => {
            out.push(b'{');
            for (at, (name, member)) in members.iter().enumerate() {
                out.extend_from_slice(if at > 0 { b",\n" } else { b"\n" });
                indent(level + 1, out);
                write_string(name, out);
                out.extend_from_slice(b": ");
                write_indented(member, level + 1, out);
            }
            out.push(b'\n');
            indent(level, out);
            out.push(b'}');
        }
        flat => write(flat, out),
    }
}

fn indent(level: usize, out: &mut Vec<u8>) {
    for _ in 0..level {
        out.extend_from_slice(b"  ");
    }
}

/// Appends `text` as a JSON string with the escapes of the reference server.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    write_escaped(text, out);
    out.push(b'"');
}

/// Appends `text` escaped as in a JSON string, without the quotes.
pub fn write_escaped(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    if is_plain(bytes) {
        return out.extend_from_slice(bytes);
    }
    let mut plain_from = 0;
    let mut at = 0;
    // Bytes before this position are checked one by one.
    let mut looked_to = 0;
    while at < bytes.len() {
        if at >= looked_to
            && let Some(chunk) = bytes[at..].first_chunk::<16>()
        {
            if !any_special(chunk) {
                at += chunk.len();
                continue;
            }
            looked_to = at + chunk.len();
        }
        let byte = bytes[at];
        // U+2028 and U+2029 are e2 80 a8 and e2 80 a9.
        let (escape, len): (&[u8], usize) = match byte {
            b'"' => (b"\\\"", 1),
            b'\\' => (b"\\\\", 1),
            b'\n' => (b"\\n", 1),
            b'\r' => (b"\\r", 1),
            b'\t' => (b"\\t", 1),
            0x08 => (b"\\b", 1),
            0x0c => (b"\\f", 1),
            b'<' => (b"\\u003c", 1),
            b'>' => (b"\\u003e", 1),
            b'&' => (b"\\u0026", 1),
            0..=0x1f => (b"", 1),
            0xe2 if bytes[at + 1..].starts_with(&[0x80, 0xa8]) => (b"\\u2028", 3),
            0xe2 if bytes[at + 1..].starts_with(&[0x80, 0xa9]) => (b"\\u2029", 3),
            _ => {
                at += 1;
                continue;
            }
        };
        out.extend_from_slice(&bytes[plain_from..at]);
        if escape.is_empty() {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 15)]);
        } else {
            out.extend_from_slice(escape);
        }
        at += len;
        plain_from = at;
    }
    out.extend_from_slice(&bytes[plain_from..]);
}

/// Returns whether a text certainly needs no escapes. Each step compares many bytes; the last step overlaps
/// the previous step.
fn is_plain(bytes: &[u8]) -> bool {
    match bytes.len() {
        16.. => {
            let (chunks, _) = bytes.as_chunks::<16>();
            chunks.iter().chain(bytes.last_chunk()).all(|chunk| !any_special(chunk))
        }
        8.. => [bytes.first_chunk::<8>(), bytes.last_chunk()]
            .into_iter()
            .flatten()
            .all(|chunk| !any_special(chunk)),
        _ => !bytes.iter().fold(false, |found, &byte| found | SPECIAL[usize::from(byte)]),
    }
}

/// Returns whether a byte may need an escape, or may begin a sequence that needs an escape.
const fn is_special(byte: u8) -> bool {
    (byte < 0x20)
        | (byte == b'"')
        | (byte == b'\\')
        | (byte == b'<')
        | (byte == b'>')
        | (byte == b'&')
        | (byte == 0xe2)
}

/// Table of [`is_special`], for texts that are too short for a step of many bytes.
static SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = is_special(byte as u8);
        byte += 1;
    }
    table
};

/// Returns whether one of the bytes is special. The function has no branches, so that the compiler vectorizes
/// it.
#[inline]
fn any_special(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, &byte| found | is_special(byte))
}

/// Appends the shortest digits that parse back to the same double, with an exponent below 1e-6 and from 1e21
/// on, as in Go and ECMAScript.
fn write_double(n: f64, out: &mut Vec<u8>) {
    let size = n.abs();
    if !n.is_finite() {
        out.extend_from_slice(b"null"); // not finite; our decoders never produce it
    } else if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{n:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                out.extend_from_slice(digits.as_bytes());
                out.extend_from_slice(b"e+");
                out.extend_from_slice(exponent.as_bytes());
            }
            _ => out.extend_from_slice(text.as_bytes()),
        }
    } else {
        write_display(&n, out);
    }
}

fn write_display(value: &dyn std::fmt::Display, out: &mut Vec<u8>) {
    write!(out, "{value}").expect("writing to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_to_escape_are_found_at_every_position() {
        for len in 1..40 {
            for at in 0..len {
                for (special, escaped) in
                    [("\"", "\\\""), ("\u{1f}", "\\u001f"), ("\u{2028}", "\\u2028"), ("&", "\\u0026")]
                {
                    let text =
                        |special: &str| format!("{}{special}{}", "a".repeat(at), "é".repeat(len - at - 1));
                    let mut out = Vec::new();
                    write_escaped(&text(special), &mut out);
                    assert_eq!(String::from_utf8(out).unwrap(), text(escaped));
                }
            }
        }
    }

    #[test]
    fn doubles_are_written_as_go_writes_them() {
        for (n, text) in [
            (0.5, "0.5"),
            (1.0, "1"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-7, "1e-7"),
            (0.000001, "0.000001"),
            (-0.0, "-0"),
        ] {
            let mut out = Vec::new();
            write(&Value::Float(n), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn pretty_form_indents_by_two_and_keeps_empty_containers_flat() {
        let value = super::super::parse(br#"{"a":[1,{"b":{}}],"c":[]}"#).unwrap();
        let mut out = Vec::new();
        write_pretty(&value, &mut out);
        let want = "{\n  \"a\": [\n    1,\n    {\n      \"b\": {}\n    }\n  ],\n  \"c\": []\n}";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}
