//! Generates JSON documents from choices: objects that mostly fit a schema, with occasional deviations.
//!
//! Depth and the number of members per object are limited. The length of the input limits the size of a
//! document, because every member uses at least one byte of the input, and values after the end of the input
//! are empty.

use types::schema::table::{Kind, Message};
use values::json::write_string;

use crate::input::Input;

/// Maximum depth of objects and lists below the top.
const DEPTH_MAX: usize = 7;

/// Maximum number of members of an object or elements of a list.
const MEMBERS_MAX: usize = 9;

const NAMES: &[&str] = &["a", "name", "app", "example.com/role", "", "x.y", "é", "a\"b", "spec", "0"];

const TEXTS: &[&str] = &[
    "",
    "a",
    "x",
    "default",
    "web",
    "0",
    "-1",
    "true",
    "TCP",
    "100m",
    "1Gi",
    "1.5e3",
    "0.1Ki",
    "9Ei",
    "1h2m3.5s",
    "-0",
    "2024-02-29T23:59:59Z",
    "2024-03-01T00:30:00.123456+01:00",
    "0001-01-01T00:00:00.5Z",
    "aGk=",
    "aGl=",
    "<&>\u{2028}",
];

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "80",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-0",
    "0.1",
    "1e3",
    "1e-7",
    "1.7976931348623157e308",
    "122.416294033786585",
    "5e-324",
    "1e21",
];

/// Returns the text of an object that mostly fits `message`.
pub(crate) fn object(message: &Message, input: &mut Input) -> Vec<u8> {
    let mut out = Vec::new();
    write_object(message, input, DEPTH_MAX, &mut out);
    out
}

/// Returns the text of an arbitrary JSON value.
pub(crate) fn anything(input: &mut Input) -> Vec<u8> {
    let mut out = Vec::new();
    write_anything(input, DEPTH_MAX, &mut out);
    out
}

/// Writes `count` members or elements between two brackets.
fn write_all(brackets: &[u8; 2], count: usize, out: &mut Vec<u8>, mut each: impl FnMut(&mut Vec<u8>)) {
    out.push(brackets[0]);
    for at in 0..count {
        if at > 0 {
            out.push(b',');
        }
        each(out);
    }
    out.push(brackets[1]);
}

fn write_object(message: &Message, input: &mut Input, depth: usize, out: &mut Vec<u8>) {
    let count = if depth == 0 || message.fields.is_empty() { 0 } else { input.below(MEMBERS_MAX + 1) };
    write_all(b"{}", count, out, |out| {
        if input.one_in(40) {
            write_string(input.pick(NAMES), out);
            out.push(b':');
            return write_anything(input, depth - 1, out);
        }
        let field = &message.fields[input.below(message.fields.len())];
        write_string(&field.name, out);
        out.push(b':');
        if input.one_in(40) {
            return write_anything(input, depth - 1, out);
        }
        write_kind(&field.kind, input, depth - 1, out);
    });
}

fn write_kind(kind: &Kind, input: &mut Input, depth: usize, out: &mut Vec<u8>) {
    match kind {
        Kind::Bool => out.extend_from_slice(if input.byte() & 1 == 1 { b"true" } else { b"false" }),
        Kind::Int32 | Kind::Int64 | Kind::Double => write_number(input, out),
        Kind::IntOrString | Kind::Quantity if input.byte() & 1 == 1 => write_number(input, out),
        Kind::String | Kind::Bytes | Kind::Time | Kind::MicroTime | Kind::Duration => write_text(input, out),
        Kind::IntOrString | Kind::Quantity => write_text(input, out),
        Kind::Message(message) => write_object(message, input, depth, out),
        Kind::List(list) => {
            let count = if depth == 0 { 0 } else { input.below(4) };
            write_all(b"[]", count, out, |out| write_kind(&list.item.kind, input, depth - 1, out));
        }
        Kind::Map(map) => {
            let count = if depth == 0 { 0 } else { input.below(4) };
            write_all(b"{}", count, out, |out| {
                write_string(input.pick(NAMES), out);
                out.push(b':');
                write_kind(&map.value.kind, input, depth - 1, out);
            });
        }
        Kind::RawExtension | Kind::FieldsV1 | Kind::Json => write_anything(input, depth, out),
        Kind::SchemaOrArray(message) | Kind::SchemaOrBool(message) | Kind::SchemaOrStrings(message) => {
            match input.below(4) {
                0 => out.extend_from_slice(b"true"),
                1 if depth > 0 => {
                    let count = input.below(3);
                    write_all(b"[]", count, out, |out| write_object(message, input, depth - 1, out));
                }
                2 => write_all(b"[]", 1, out, |out| write_text(input, out)),
                _ => write_object(message, input, depth, out),
            }
        }
    }
}

fn write_number(input: &mut Input, out: &mut Vec<u8>) {
    match input.below(4) {
        0 => out.extend_from_slice(input.byte().to_string().as_bytes()),
        1 => {
            let number = f64::from_bits(input.u64());
            let text = if number.is_finite() { format!("{number:e}") } else { "0".to_owned() };
            out.extend_from_slice(text.as_bytes());
        }
        _ => out.extend_from_slice(input.pick(NUMBERS).as_bytes()),
    }
}

fn write_text(input: &mut Input, out: &mut Vec<u8>) {
    if input.one_in(8) {
        let len = input.below(24);
        return write_string(&String::from_utf8_lossy(input.take(len)), out);
    }
    write_string(input.pick(TEXTS), out);
}

fn write_anything(input: &mut Input, depth: usize, out: &mut Vec<u8>) {
    match input.below(if depth == 0 { 6 } else { 10 }) {
        0 => out.extend_from_slice(b"null"),
        1 => out.extend_from_slice(b"true"),
        2 => write_number(input, out),
        3..=5 => write_text(input, out),
        6..=7 => {
            let count = input.below(4);
            write_all(b"[]", count, out, |out| write_anything(input, depth - 1, out));
        }
        _ => {
            let count = input.below(5);
            write_all(b"{}", count, out, |out| {
                write_string(input.pick(NAMES), out);
                out.push(b':');
                write_anything(input, depth - 1, out);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use types::schema::builtin;
    use types::schema::decode::decode;
    use values::naming::CLUSTER;

    use super::*;

    #[test]
    fn most_generated_documents_are_valid_json_and_many_decode() {
        let (mut json, mut decoded, mut members) = (0, 0, 0);
        let messages = builtin::messages(&CLUSTER);
        let mut state = 1u32;
        for at in 0..2000 {
            let bytes: Vec<u8> = (0..at % 400)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            let message = messages[at % messages.len()];
            let text = object(message, &mut Input::new(&bytes));
            json += usize::from(values::json::parse(&text).is_ok());
            if let Ok(found) = decode(message, &text) {
                decoded += 1;
                members += found.object.len();
            }
        }
        assert_eq!(json, 2000);
        assert!(decoded > 500 && members > 1500, "{decoded} decode, with {members} members");
    }
}
