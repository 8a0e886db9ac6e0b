//! Copies a tree into a built-in type field by field, as the reference server does with the results of
//! strategic merges and applies. The reference server does not decode these results from text, and its
//! messages for mismatches differ from the messages of its decoder.
//!
//! A number without a fraction is an integer in any notation. A number that does not fit a field of 32 bits
//! loses its upper bits. The type of a quantity, a time or another value that JSON represents as text parses the value
//! itself, and the errors contain no path.

use super::Value;
use types::schema::conform::conform_value;
use types::schema::table::{Kind, Message};
use types::schema::text_types::text_type;
use values::base64_text;
use values::cancellation;
use values::json::plain_number;
use values::json::write;

/// Converts numbers without a fraction to integers if the type has an integer at that position.
///
/// # Errors
/// Returns the first mismatch in schema order. The decoder reports some mismatches that this function
/// ignores.
pub fn restore(message: &Message, value: &mut Value) -> Result<(), String> {
    let Value::Object(members) = value else {
        return Err(format!("cannot restore struct from: {}", kind_of(value)));
    };
    for field in &*message.fields {
        if let Some(value) = members.get_mut(&field.name) {
            restore_value(&field.kind, value, text_type(message, field))?;
        }
    }
    Ok(())
}

/// Converts a value of a kind, like [`restore`]. `text` is the Go type of the strings in the value.
fn restore_value(kind: &Kind, value: &mut Value, text: &str) -> Result<(), String> {
    cancellation::step();
    if value.is_null() {
        return Ok(());
    }
    match kind {
        Kind::Bool if matches!(value, Value::Bool(_)) => Ok(()),
        Kind::Bool => Err(unrecognized("bool")),
        Kind::Int32 => integer("int32", value, |whole| i64::from(whole as i32)),
        Kind::Int64 => integer("int64", value, |whole| whole),
        Kind::Double if matches!(value, Value::Int(_) | Value::Float(_)) => Ok(()),
        Kind::Double => Err(unrecognized("float64")),
        Kind::String => match value {
            Value::String(_) => Ok(()),
            // Go can convert an integer to text, but this code path of the reference server refuses the
            // value.
            Value::Int(_) => Err(format!("cannot convert int64 to {text}")),
            _ => Err(unrecognized("string")),
        },
        Kind::Bytes => match value {
            Value::String(encoded) => match base64_text::canonical(encoded) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("error decoding from json: {error}")),
            },
            other => list(other).map(drop),
        },
        Kind::Message(message) => restore(message, value),
        Kind::List(of) => {
            list(value)?.iter_mut().try_for_each(|item| restore_value(&of.item.kind, item, text))
        }
        Kind::Map(map) => match value {
            Value::Object(members) => {
                members.iter_mut().try_for_each(|(_, value)| restore_value(&map.value.kind, value, text))
            }
            _ => Err(format!("cannot restore map from {}", kind_of(value))),
        },
        Kind::Quantity => amount(value),
        Kind::IntOrString => {
            if let Value::Float(number) = value {
                *value = plain_number(*number);
            }
            alone(kind, value)
        }
        Kind::Time | Kind::MicroTime | Kind::Duration => alone(kind, value),
        _ => Ok(()),
    }
}

/// Converts a value to an integer of the Go type `name`. `held` truncates a number to the width of the Go type.
fn integer(name: &str, value: &mut Value, held: fn(i64) -> i64) -> Result<(), String> {
    let whole = match value {
        Value::Int(number) => *number,
        Value::Float(number) if number.fract() == 0.0 => to_integer(*number),
        Value::Float(_) => return Err(format!("cannot convert float64 to {name}")),
        _ => return Err(unrecognized(name)),
    };
    *value = Value::Int(held(whole));
    Ok(())
}

/// Converts a number without a fraction to an integer. A number outside of 64 bits becomes the smallest
/// integer, as on 64-bit processors.
fn to_integer(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0; // 2^63
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}

/// Checks a quantity. The reference server parses the JSON text of any value as a quantity.
fn amount(value: &Value) -> Result<(), String> {
    if matches!(value, Value::Bool(_) | Value::Array(_) | Value::Object(_)) {
        let mut text = Vec::new();
        write(value, &mut text);
        quantity::canonical(&String::from_utf8_lossy(&text)).map_err(str::to_owned)?;
    }
    alone(&Kind::Quantity, value)
}

/// Checks a value by the parser of its own type.
fn alone(kind: &Kind, value: &Value) -> Result<(), String> {
    conform_value(kind, value.clone()).map(drop).map_err(|error| error.to_string())
}

fn list(value: &mut Value) -> Result<&mut Vec<Value>, String> {
    let kind = kind_of(value);
    value.as_array_mut().ok_or_else(|| format!("cannot restore slice from {kind}"))
}

fn unrecognized(name: &str) -> String {
    format!("unrecognized type: {name}")
}

/// Returns the Go kind of a value in an untyped tree.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) | Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::schema::builtin;
    use values::json::parse;
    use values::naming::KUBERNETES;
    use values::testing::text;

    #[test]
    fn a_patch_with_values_of_the_wrong_type_fails_with_the_error_text_of_the_reference_server() {
        let quantity =
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        for (name, patched, want) in [
            (
                "core.v1.Pod",
                r#"{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a"}],"priority":2.0}}"#,
                None,
            ),
            ("core.v1.Pod", r#"{"metadata":{"labels":"x"}}"#, Some("cannot restore map from string")),
            ("core.v1.Pod", r#"{"spec":{"containers":"x"}}"#, Some("cannot restore slice from string")),
            ("core.v1.Pod", r#"{"spec":{"containers":{}}}"#, Some("cannot restore slice from map")),
            ("core.v1.Pod", r#"{"spec":"x"}"#, Some("cannot restore struct from: string")),
            ("core.v1.Pod", r#"{"metadata":{"labels":{"a":1}}}"#, Some("cannot convert int64 to string")),
            ("core.v1.Pod", r#"{"metadata":{"labels":{"a":true}}}"#, Some("unrecognized type: string")),
            ("core.v1.Pod", r#"{"spec":{"activeDeadlineSeconds":"x"}}"#, Some("unrecognized type: int64")),
            (
                "core.v1.Pod",
                r#"{"spec":{"activeDeadlineSeconds":1.5}}"#,
                Some("cannot convert float64 to int64"),
            ),
            ("core.v1.Pod", r#"{"spec":{"priority":1.5}}"#, Some("cannot convert float64 to int32")),
            ("core.v1.Pod", r#"{"spec":{"hostNetwork":1}}"#, Some("unrecognized type: bool")),
            (
                "core.v1.Pod",
                r#"{"spec":{"containers":[{"imagePullPolicy":5}]}}"#,
                Some("cannot convert int64 to v1.PullPolicy"),
            ),
            (
                "core.v1.Pod",
                r#"{"spec":{"containers":[{"ports":[{"protocol":1}]}]}}"#,
                Some("cannot convert int64 to v1.Protocol"),
            ),
            (
                "apps.v1.Deployment",
                r#"{"spec":{"strategy":{"type":1}}}"#,
                Some("cannot convert int64 to v1.DeploymentStrategyType"),
            ),
            (
                "core.v1.Service",
                r#"{"spec":{"ipFamilies":[1]}}"#,
                Some("cannot convert int64 to v1.IPFamily"),
            ),
            (
                "core.v1.Pod",
                r#"{"metadata":{"creationTimestamp":3}}"#,
                Some("json: cannot unmarshal number into Go value of type string"),
            ),
            (
                "core.v1.Pod",
                r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":true}}}]}}"#,
                Some(quantity),
            ),
            (
                "core.v1.Pod",
                r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":{}}}}]}}"#,
                Some(quantity),
            ),
            (
                "core.v1.Pod",
                r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"x"}}}]}}"#,
                Some(quantity),
            ),
            (
                "core.v1.ConfigMap",
                r#"{"binaryData":{"a":"!!"}}"#,
                Some("error decoding from json: illegal base64 data at input byte 0"),
            ),
            ("core.v1.ConfigMap", r#"{"binaryData":{"a":3}}"#, Some("cannot restore slice from int64")),
            (
                "apps.v1.Deployment",
                r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":true}}}}"#,
                Some("json: cannot unmarshal bool into Go value of type int32"),
            ),
            (
                "apps.v1.Deployment",
                r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":1.5}}}}"#,
                Some("json: cannot unmarshal number 1.5 into Go value of type int32"),
            ),
        ] {
            let message = builtin::message(&KUBERNETES, &format!("api.{name}")).unwrap();
            let mut value = parse(patched.as_bytes()).unwrap();
            assert_eq!(restore(message, &mut value).err().as_deref(), want, "{patched}");
        }
    }

    #[test]
    fn whole_numbers_in_a_patch_become_integers() {
        let deployment = builtin::message(&KUBERNETES, "api.apps.v1.Deployment").unwrap();
        let patched = r#"{"spec":{"replicas":2.0,"strategy":{"rollingUpdate":{"maxSurge":1e0}}}}"#;
        let mut value = parse(patched.as_bytes()).unwrap();
        restore(deployment, &mut value).unwrap();
        assert!(!format!("{value:?}").contains("Float"));
        assert_eq!(text(&value), r#"{"spec":{"replicas":2,"strategy":{"rollingUpdate":{"maxSurge":1}}}}"#);
    }

    #[test]
    fn integers_out_of_range_lose_their_upper_bits() {
        let deployment = builtin::message(&KUBERNETES, "api.apps.v1.Deployment").unwrap();
        for (given, want) in
            [("99999999999", 1_215_752_191), ("-3e9", 1_294_967_296), ("4294967296", 0), ("1e20", 0)]
        {
            let mut value = parse(format!(r#"{{"spec":{{"replicas":{given}}}}}"#).as_bytes()).unwrap();
            restore(deployment, &mut value).unwrap();
            assert_eq!(text(&value), format!(r#"{{"spec":{{"replicas":{want}}}}}"#));
        }
        let mut value = parse(br#"{"spec":{"template":{"spec":{"activeDeadlineSeconds":1e20}}}}"#).unwrap();
        restore(deployment, &mut value).unwrap();
        let least = i64::MIN;
        let want = format!(r#"{{"spec":{{"template":{{"spec":{{"activeDeadlineSeconds":{least}}}}}}}}}"#);
        assert_eq!(text(&value), want);
    }
}
