//! Why the result of a strategic merge does not fit its type. The reference server does not decode it as text but
//! copies the tree into its structs, and words mismatches differently from its decoder.

use super::Value;
use crate::types::schema::table::{Kind, Message};

/// The first mismatch of `value`, in schema order; `None` if there is none that this conversion words itself.
pub fn mismatch(message: &Message, value: &Value) -> Option<String> {
    let Value::Object(members) = value else {
        return Some(format!("cannot restore struct from: {}", kind_of(value)));
    };
    message.fields.iter().find_map(|field| within(&field.kind, members.get(&field.name)?))
}

fn within(kind: &Kind, value: &Value) -> Option<String> {
    let scalar = |name: &str, fits: bool| match value {
        _ if fits => None,
        // Go converts numbers to text, and this conversion then refuses to.
        Value::Int(_) if name == "string" => Some("cannot convert int64 to string".to_owned()),
        _ => Some(format!("unrecognized type: {name}")),
    };
    let is_number = matches!(value, Value::Int(_) | Value::Float(_));
    match kind {
        _ if value.is_null() => None,
        Kind::Bool => scalar("bool", matches!(value, Value::Bool(_))),
        Kind::Int32 => scalar("int32", is_number),
        Kind::Int64 => scalar("int64", is_number),
        Kind::Double => scalar("float64", is_number),
        Kind::String => scalar("string", matches!(value, Value::String(_))),
        Kind::Message(message) => mismatch(message, value),
        Kind::List(list) => match value {
            Value::Array(items) => items.iter().find_map(|item| within(&list.item.kind, item)),
            _ => Some(format!("cannot restore slice from {}", kind_of(value))),
        },
        Kind::Map(map) => match value {
            Value::Object(members) => members.iter().find_map(|(_, value)| within(&map.value.kind, value)),
            _ => Some(format!("cannot restore map from {}", kind_of(value))),
        },
        // These read themselves from text.
        _ => None,
    }
}

/// Go's kind of a value in an untyped tree.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::schema::builtin;
    use crate::values::json::parse;
    use crate::values::naming::KUBERNETES;

    #[test]
    fn mismatches_are_worded_as_a_conversion_of_trees() {
        let pod = builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap();
        for (patched, want) in [
            (r#"{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a"}]}}"#, None),
            (r#"{"metadata":{"labels":"x"}}"#, Some("cannot restore map from string")),
            (r#"{"spec":{"containers":"x"}}"#, Some("cannot restore slice from string")),
            (r#"{"spec":{"containers":{}}}"#, Some("cannot restore slice from map")),
            (r#"{"spec":"x"}"#, Some("cannot restore struct from: string")),
            (r#"{"metadata":{"labels":{"a":1}}}"#, Some("cannot convert int64 to string")),
            (r#"{"metadata":{"labels":{"a":true}}}"#, Some("unrecognized type: string")),
            (r#"{"spec":{"activeDeadlineSeconds":"x"}}"#, Some("unrecognized type: int64")),
            (r#"{"spec":{"hostNetwork":1}}"#, Some("unrecognized type: bool")),
        ] {
            let patched = parse(patched.as_bytes()).unwrap();
            assert_eq!(mismatch(pod, &patched).as_deref(), want);
        }
    }
}
