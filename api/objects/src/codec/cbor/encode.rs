//! Encodes a tree as deterministic CBOR (RFC 8949 §4.2.1).
//!
//! Heads and floats are as short as possible, names are sorted by their encoded bytes, and lengths are
//! definite.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{major, tag};
use types::schema::table::{Kind, Message};
use values::cancellation;
use values::json::{Object, Value};

/// Appends an object of type `message`, without the self-described tag. Members that the type does not
/// declare are written by their JSON type.
pub fn encode(message: &Message, object: &Object, out: &mut Vec<u8>) {
    write_map_head(object.len(), out);
    for (name, value) in sorted(object) {
        write_text(name, out);
        match message.position(name.as_bytes()) {
            Some(at) => write_kind(&message.fields[at].kind, value, out),
            None => write(value, out),
        }
    }
}

/// Appends a tree without a schema.
pub fn write(value: &Value, out: &mut Vec<u8>) {
    cancellation::step();
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(value) => out.push(if *value { 0xf5 } else { 0xf4 }),
        Value::Int(number) => match u64::try_from(*number) {
            Ok(number) => write_head(major::UNSIGNED, number, out),
            Err(_) => write_head(major::NEGATIVE, number.unsigned_abs() - 1, out),
        },
        Value::Float(number) => write_float(*number, out),
        Value::Number(words) => write_float(words.parse().unwrap_or(f64::NAN), out),
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            write_array_head(items.len() as u64, out);
            items.iter().for_each(|item| write(item, out));
        }
        Value::Object(members) => {
            write_map_head(members.len(), out);
            for (name, value) in sorted(members) {
                write_text(name, out);
                write(value, out);
            }
        }
    }
}

/// Appends a string or a name as a byte string, as the reference server does.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    write_head(major::BYTES, text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Appends the head of a map of `members` names and values.
pub fn write_map_head(members: usize, out: &mut Vec<u8>) {
    write_head(major::MAP, members as u64, out);
}

/// Appends the head of an array of `items`.
pub fn write_array_head(items: u64, out: &mut Vec<u8>) {
    write_head(major::ARRAY, items, out);
}

/// Returns the members in the order of their encoded names, which puts shorter names first.
fn sorted(members: &Object) -> Vec<(&str, &Value)> {
    let mut sorted: Vec<(&str, &Value)> = members.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| (name.len(), *name));
    sorted
}

fn write_items(kind: &Kind, items: &[Value], out: &mut Vec<u8>) {
    write_array_head(items.len() as u64, out);
    items.iter().for_each(|item| write_kind(kind, item, out));
}

fn write_kind(kind: &Kind, value: &Value, out: &mut Vec<u8>) {
    cancellation::step();
    match (kind, value) {
        (
            Kind::Message(message)
            | Kind::SchemaOrArray(message)
            | Kind::SchemaOrBool(message)
            | Kind::SchemaOrStrings(message),
            Value::Object(object),
        ) => encode(message, object, out),
        (Kind::List(list), Value::Array(items)) => write_items(&list.item.kind, items, out),
        (Kind::Map(map), Value::Object(members)) => {
            write_map_head(members.len(), out);
            for (name, value) in sorted(members) {
                write_text(name, out);
                write_kind(&map.value.kind, value, out);
            }
        }
        (Kind::SchemaOrArray(message), Value::Array(items)) => {
            write_items(&Kind::Message(message.clone()), items, out);
        }
        (Kind::Bytes, Value::String(text)) => match STANDARD.decode(text) {
            Ok(bytes) => {
                write_head(major::TAG, tag::BASE64, out);
                write_head(major::BYTES, bytes.len() as u64, out);
                out.extend_from_slice(&bytes);
            }
            Err(_) => write_text(text, out),
        },
        (Kind::Time | Kind::MicroTime, Value::String(text)) => {
            write_head(major::TEXT, text.len() as u64, out);
            out.extend_from_slice(text.as_bytes());
        }
        (_, value) => write(value, out),
    }
}

fn write_head(major: u8, argument: u64, out: &mut Vec<u8>) {
    let major = major << 5;
    match argument {
        0..=23 => out.push(major | argument as u8),
        24..=0xff => out.extend_from_slice(&[major | 24, argument as u8]),
        0x100..=0xffff => {
            out.push(major | 25);
            out.extend_from_slice(&(argument as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend_from_slice(&(argument as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&argument.to_be_bytes());
        }
    }
}

/// Appends the shortest float that has the same value.
fn write_float(number: f64, out: &mut Vec<u8>) {
    let single = number as f32;
    if f64::from(single) != number {
        out.push(major::SIMPLE << 5 | 27);
        out.extend_from_slice(&number.to_be_bytes());
    } else if let Some(half) = half(single) {
        out.push(major::SIMPLE << 5 | 25);
        out.extend_from_slice(&half.to_be_bytes());
    } else {
        out.push(major::SIMPLE << 5 | 26);
        out.extend_from_slice(&single.to_be_bytes());
    }
}

/// Converts a single-precision number to half-precision bits, if that is lossless.
fn half(number: f32) -> Option<u16> {
    let bits = number.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let (exponent, fraction) = ((bits >> 23 & 0xff) as i32 - 127, bits & 0x7f_ffff);
    if number == 0.0 {
        return Some(sign);
    }
    if (-14..=15).contains(&exponent) && fraction & 0x1fff == 0 {
        return Some(sign | ((exponent + 15) as u16) << 10 | (fraction >> 13) as u16);
    }
    // A subnormal number is the fraction, including the implicit bit, in units of 2^-24.
    let shift = u32::try_from(-1 - exponent).ok().filter(|_| (-24..-14).contains(&exponent))?;
    let whole = fraction | 0x80_0000;
    (whole.trailing_zeros() >= shift).then(|| sign | (whole >> shift) as u16)
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use values::json;

    fn hex(value: &Value) -> String {
        let mut out = Vec::new();
        write(value, &mut out);
        out.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn cbor_integers_and_lengths_are_encoded_in_their_shortest_form() {
        for (text, want) in [
            ("0", "00"),
            ("23", "17"),
            ("24", "1818"),
            ("256", "190100"),
            ("65536", "1a00010000"),
            ("4294967296", "1b0000000100000000"),
            ("-1", "20"),
            ("-25", "3818"),
            ("-9223372036854775808", "3b7fffffffffffffff"),
            ("1.5", "f93e00"),
            ("65504.5", "fa477fe080"),
            ("0.1", "fb3fb999999999999a"),
            ("5.960464477539063e-8", "f90001"),
            ("0.00006097555160522461", "f903ff"),
            ("1e300", "fb7e37e43c8800759c"),
            (r#""a""#, "4161"),
            (r#"{"bb":1,"c":[true,false,null],"a":{}}"#, "a34161a0416383f5f4f642626201"),
        ] {
            assert_eq!(hex(&json::parse(text.as_bytes()).unwrap()), want, "{text}");
        }
    }

    #[test]
    fn encoded_cbor_decodes_to_the_same_tree() {
        let text = br#"{"a":[1,-1,1.5,3.4e38,-0.0,1e-310,"\u0000\u20ac",[],{}],"b":{"":null}}"#;
        let value = json::parse(text).unwrap();
        let mut out = super::super::SELF_DESCRIBED.to_vec();
        write(&value, &mut out);
        assert_eq!(parse(&out).unwrap(), value);
        for bits in 0..=u16::MAX {
            let bytes = [0xf9, (bits >> 8) as u8, bits as u8];
            if let Ok(value @ Value::Float(_)) = parse(&bytes) {
                let mut out = Vec::new();
                write(&value, &mut out);
                assert_eq!(out, bytes, "{value:?}");
            }
        }
    }
}
