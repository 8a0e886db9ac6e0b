//! The well-known protobuf messages that struct literals may name.
//!
//! The language has its own types for these messages: `google.protobuf.Int32Value{value: 1}` is a
//! `wrapper(int)`.

use crate::types::{Primitive, Type};

/// Returns the type of a message; `None` for other names.
pub(super) fn message(name: &str) -> Option<Type> {
    Some(match name.strip_prefix("google.protobuf.")? {
        "Any" => Type::Any,
        "BoolValue" => Type::Wrapper(Primitive::Bool),
        "BytesValue" => Type::Wrapper(Primitive::Bytes),
        "DoubleValue" | "FloatValue" => Type::Wrapper(Primitive::Double),
        "Duration" => Type::Duration,
        "Int32Value" | "Int64Value" => Type::Wrapper(Primitive::Int),
        "ListValue" => Type::list(Type::Dyn),
        "StringValue" => Type::Wrapper(Primitive::String),
        "Struct" => Type::map(Type::String, Type::Dyn),
        "Timestamp" => Type::Timestamp,
        "UInt32Value" | "UInt64Value" => Type::Wrapper(Primitive::Uint),
        "Value" => Type::Dyn,
        _ => return None,
    })
}

/// Returns the type of a field of a message.
pub(super) fn field(name: &str, field: &str) -> Option<Type> {
    Some(match (message(name)?, field) {
        (Type::Any, "type_url") => Type::String,
        (Type::Any, "value") => Type::Bytes,
        (Type::Wrapper(primitive), "value") => primitive.unwrapped(),
        (Type::Duration | Type::Timestamp, "seconds" | "nanos") => Type::Int,
        (Type::List(element), "values") => Type::List(element),
        (Type::Map(entry), "fields") => Type::Map(entry),
        (Type::Dyn, "null_value") => Type::Int,
        (Type::Dyn, "number_value") => Type::Double,
        (Type::Dyn, "string_value") => Type::String,
        (Type::Dyn, "bool_value") => Type::Bool,
        (Type::Dyn, "struct_value") => Type::map(Type::String, Type::Dyn),
        (Type::Dyn, "list_value") => Type::list(Type::Dyn),
        _ => return None,
    })
}

/// Returns the value of an enumeration member.
pub(super) fn enumeration(name: &str) -> Option<i64> {
    (name == "google.protobuf.NullValue.NULL_VALUE").then_some(0)
}
