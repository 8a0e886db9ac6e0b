//! Descriptions of values for error texts, which follow the reference's internal representation.

use crate::number;
use crate::value::Value;

/// Formats a value for error texts, as the reference prints its internal representation. For texts, bytes and
/// times, the representation differs from the notation of the language.
pub fn describe(value: &Value<'_>) -> String {
    let mut out = String::new();
    write_described(value, &mut out);
    out
}

/// Size limit of a description in bytes. Descriptions are only for error texts.
const DESCRIPTION_BYTES_MAX: usize = 64 * 1024;

/// Writes a description. The recursion is as deep as the value, whose depth is limited by the depth of
/// expressions and of JSON.
fn write_described(value: &Value<'_>, out: &mut String) {
    if out.len() > DESCRIPTION_BYTES_MAX {
        return;
    }
    match value {
        Value::Null => out.push('0'),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(i) => out.push_str(&i.to_string()),
        Value::Uint(u) => out.push_str(&u.to_string()),
        Value::Double(d) => out.push_str(&number::format_double(*d)),
        Value::String(text) => out.push_str(text),
        Value::Bytes(bytes) => {
            let numbers: Vec<String> =
                bytes.iter().take(DESCRIPTION_BYTES_MAX).map(ToString::to_string).collect();
            out.push_str(&format!("[{}]", numbers.join(" ")));
        }
        Value::Duration(d) => out.push_str(&go::duration::to_text(d.nanoseconds)),
        Value::Timestamp(t) => out.push_str(&t.to_plain_text()),
        Value::List(list) => {
            out.push('[');
            for (index, element) in list.iter().enumerate().take(DESCRIPTION_BYTES_MAX) {
                out.push_str(if index > 0 { ", " } else { "" });
                write_described(&element, out);
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (index, (key, value)) in map.iter().enumerate().take(DESCRIPTION_BYTES_MAX) {
                out.push_str(if index > 0 { ", " } else { "" });
                write_described(&key, out);
                out.push_str(": ");
                write_described(&value, out);
            }
            out.push('}');
        }
        Value::Optional(None) => out.push_str("optional.none()"),
        Value::Optional(Some(value)) => {
            out.push_str("optional(");
            write_described(value, out);
            out.push(')');
        }
        Value::Type(of) => out.push_str(of.runtime_name()),
        Value::Opaque(_) | Value::Object(_) => out.push_str(&value.type_name()),
    }
}

/// Returns the name of the reference's Go type for a value, for error texts that contain it.
pub fn kind_name(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Duration(_) => "types.Duration",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Type(_) => "*types.Type",
        Value::List(_) => "*types.baseList",
        Value::Map(_) => "*types.baseMap",
        Value::Optional(_) => "*types.Optional",
        Value::Object(_) | Value::Opaque(_) => "object",
    }
}
