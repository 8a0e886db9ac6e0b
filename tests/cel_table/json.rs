//! Conversion of the tables' values and types from and to JSON.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cel::library::{cidr::Cidr, ip::Ip, quantity::Quantity, semver, url::Url};
use cel::types::{Primitive, Type};
use cel::value::{Duration, Fault, Octets, Opaque, OwnedMap, Timestamp, Value};
use serde_json::{Map, Value as Json, json};

/// Keys that mark an object with a single entry as a tagged value.
const TAGS: [&str; 20] = [
    "uint",
    "double",
    "bytes",
    "duration",
    "timestamp",
    "type",
    "optional",
    "map",
    "object",
    "ip",
    "cidr",
    "url",
    "quantity",
    "semver",
    "format",
    "opaque",
    "$repeat",
    "$list",
    "$range",
    "$map",
];

/// Parses the declared type of a variable.
pub fn to_type(text: &str) -> Option<Type> {
    let text = text.trim();
    if let Some((name, rest)) = text.split_once('(') {
        let inner = rest.strip_suffix(')')?;
        return Some(match name {
            "list" => Type::list(to_type(inner)?),
            "optional_type" => Type::optional(to_type(inner)?),
            "map" => {
                let (key, value) = inner.split_once(',')?;
                Type::map(to_type(key)?, to_type(value)?)
            }
            "wrapper" => Type::Wrapper(match inner {
                "bool" => Primitive::Bool,
                "int" => Primitive::Int,
                "uint" => Primitive::Uint,
                "double" => Primitive::Double,
                "string" => Primitive::String,
                _ => Primitive::Bytes,
            }),
            _ => return None,
        });
    }
    Some(match text {
        "null_type" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "dyn" => Type::Dyn,
        "any" => Type::Any,
        "type" => Type::Type(None),
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        name => Type::object(name),
    })
}

/// Returns the value of a variable.
pub fn to_value(json: &Json) -> Value<'static> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(int) => Value::Int(int),
            None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::string(text.as_str()),
        Json::Array(elements) => Value::list(elements.iter().map(to_value).collect::<Vec<_>>()),
        Json::Object(fields) => match fields.iter().next() {
            Some((tag, value)) if fields.len() == 1 => {
                tagged(tag, value).unwrap_or_else(|| map([(Value::string(tag.as_str()), to_value(value))]))
            }
            _ => map(fields.iter().map(|(key, value)| (Value::string(key.as_str()), to_value(value)))),
        },
    }
}

fn map(entries: impl IntoIterator<Item = (Value<'static>, Value<'static>)>) -> Value<'static> {
    let mut map = OwnedMap::default();
    for (key, value) in entries {
        map.insert(key, value);
    }
    Value::map(map)
}

fn tagged(tag: &str, value: &Json) -> Option<Value<'static>> {
    Some(match tag {
        "uint" => Value::Uint(value.as_u64()?),
        "double" => Value::Double(match value.as_str()? {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            _ => f64::NEG_INFINITY,
        }),
        "bytes" => Value::Bytes(Octets::Shared(match value {
            Json::String(text) => BASE64.decode(text).ok()?.into(),
            repeated => match to_value(repeated) {
                Value::String(text) => text.as_bytes().into(),
                _ => return None,
            },
        })),
        "duration" => Value::Duration(Duration { nanoseconds: go::duration::parse(value.as_str()?).ok()? }),
        "timestamp" => Value::Timestamp(Timestamp::parse(value.as_str()?).ok()?),
        "optional" => match value.as_array()?.first() {
            Some(value) => Value::some(to_value(value)),
            None => Value::Optional(None),
        },
        "type" => Value::Type(type_named(value.as_str()?)),
        "map" => map(value.as_array()?.iter().map(|entry| (to_value(&entry[0]), to_value(&entry[1])))),
        "ip" => Value::Opaque(Arc::new(Ip(value.as_str()?.parse::<IpAddr>().ok()?))),
        "$repeat" => Value::string(value[0].as_str()?.repeat(value[1].as_u64()? as usize)),
        "$list" => Value::list(vec![to_value(&value[0]); value[1].as_u64()? as usize]),
        "$range" => Value::list((0..value.as_i64()?).map(Value::Int).collect::<Vec<_>>()),
        "$map" => map((0..value.as_i64()?).map(|n| (Value::string(format!("k{n}")), Value::Int(n)))),
        _ => return None,
    })
}

/// Returns the type with this name.
fn type_named(name: &str) -> Type {
    match name {
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "optional_type" => Type::optional(Type::Dyn),
        name => to_type(name).unwrap_or(Type::Dyn),
    }
}

/// Converts the result of an evaluation to JSON.
pub fn from_value(value: &Value<'_>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Uint(value) => json!({ "uint": value }),
        Value::Double(value) if value.is_nan() => json!({"double": "NaN"}),
        Value::Double(value) if value.is_infinite() => {
            json!({"double": if *value > 0.0 { "Infinity" } else { "-Infinity" }})
        }
        Value::Double(value) => json!(value),
        Value::String(text) => json!(&**text),
        Value::Bytes(bytes) => json!({"bytes": BASE64.encode(&**bytes)}),
        Value::Duration(value) => json!({"duration": go::duration::to_text(value.nanoseconds)}),
        Value::Timestamp(value) => json!({"timestamp": value.to_text()}),
        Value::Type(of @ (Type::List(_) | Type::Map(_))) => json!({"type": of.declared().to_string()}),
        Value::Type(of) if of.runtime_name() == "map" => json!({"type": "map(dyn, dyn)"}),
        Value::Type(of) => json!({"type": of.runtime_name()}),
        Value::List(list) => list.iter().map(|element| from_value(&element)).collect(),
        Value::Map(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            let has_text_keys = entries.iter().all(|(key, _)| matches!(key, Value::String(_)));
            let looks_tagged =
                entries.len() == 1 && matches!(&entries[0].0, Value::String(key) if TAGS.contains(&&**key));
            if has_text_keys && !looks_tagged {
                let fields: Map<_, _> = entries
                    .iter()
                    .filter_map(|(key, value)| match key {
                        Value::String(key) => Some((key.to_string(), from_value(value))),
                        _ => None,
                    })
                    .collect();
                return fields.into();
            }
            entries.sort_by_cached_key(|(key, _)| from_value(key).to_string());
            let entries: Vec<Json> =
                entries.iter().map(|(key, value)| json!([from_value(key), from_value(value)])).collect();
            json!({ "map": entries })
        }
        Value::Object(object) if object.is_lazy() => {
            let entry = |value: Value<'_>| {
                let under = object.look_up(&value).unwrap_or_else(Value::fault);
                json!([from_value(&value), from_value(&under)])
            };
            let mut entries: Vec<Json> = object.elements().into_iter().map(entry).collect();
            entries.sort_by_cached_key(|entry| entry[0].to_string());
            json!({ "map": entries })
        }
        Value::Object(object) => {
            let names = object.fields();
            let unnamed = object.len().saturating_sub(names.len());
            let fields: Map<_, _> = names
                .iter()
                .filter_map(|name| Some((name.to_string(), from_value(&object.get(name).ok()??))))
                .collect();
            if unnamed == 0 {
                return json!({ "object": fields });
            }
            // The reference has an entry with a nil key and an error as its value for each member that the schema does
            // not declare.
            let mut entries: Vec<Json> =
                fields.into_iter().map(|(name, value)| json!([name, value])).collect();
            entries.sort_by_cached_key(|entry| entry[0].to_string());
            let nothing = json!([{ "opaque": "nil" }, { "opaque": "error: no such overload" }]);
            entries.resize(entries.len() + unnamed, nothing);
            json!({ "map": entries })
        }
        Value::Optional(None) => json!({"optional": []}),
        Value::Optional(Some(value)) => json!({"optional": [from_value(value)]}),
        Value::Opaque(opaque) => from_opaque(&**opaque),
    }
}

fn from_opaque(opaque: &dyn Opaque) -> Json {
    let any = opaque.as_any();
    if let Some(ip) = any.downcast_ref::<Ip>() {
        json!({"ip": ip.0.to_string()})
    } else if let Some(cidr) = any.downcast_ref::<Cidr>() {
        json!({"cidr": cidr.to_string()})
    } else if let Some(quantity) = any.downcast_ref::<Quantity>() {
        json!({"quantity": quantity.to_text()})
    } else if let Some(version) = any.downcast_ref::<semver::SemanticVersion>() {
        json!({"semver": version.to_string()})
    } else if let Some(url) = any.downcast_ref::<Url>() {
        json!({"url": url.to_string()})
    } else if let Some(Fault(error)) = any.downcast_ref() {
        json!({"opaque": format!("error: {error}")})
    } else {
        json!({"opaque": opaque.type_of().runtime_name()})
    }
}
