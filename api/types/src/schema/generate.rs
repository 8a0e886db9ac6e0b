//! Generates objects of any type from its schema table and a seed, for tests of codecs and of field
//! ownership. The objects have the protobuf form, without `kind` and `apiVersion`, which only JSON has.

use crate::schema::decode_form::{is_always_written, zero_field};
use crate::schema::table::{Field, Kind, Message, Shape};
use testkit::Random;
use values::json::{Object, Value};

/// Depth below which only required members are generated.
const LEVELS_MAX: usize = 5;

/// Returns a canonical object. Every field is present with probability one half; zeros and extremes are
/// frequent.
pub fn object(random: &mut Random, message: &Message, level: usize) -> Object {
    let mut object = Object::new();
    for field in &*message.fields {
        let has_value = level < LEVELS_MAX && random.index(1 + level) == 0;
        let value =
            if has_value && field.number > 0 { random_field(random, field, level) } else { Value::Null };
        object.push(field.name.clone(), value);
    }
    object.retain(|name, value| {
        let field = message.field(name).expect("the members were made from the fields");
        // Protobuf does not distinguish an empty list from an absent list, even where JSON does.
        let is_none = matches!(value, Value::Array(items) if items.is_empty());
        if !is_none && !crate::schema::decode_form::is_left_out(field, value) {
            return true;
        }
        *value = zero_field(field);
        is_always_written(field)
    });
    object
}

/// Removes about one in four of all members and elements.
pub fn thin(random: &mut Random, value: &mut Value) {
    match value {
        Value::Object(members) => members.retain(|_, value| {
            thin(random, value);
            random.index(4) > 0
        }),
        Value::Array(items) => items.retain_mut(|item| {
            thin(random, item);
            random.index(4) > 0
        }),
        _ => {}
    }
}

/// Makes one random change in a tree, as a patch might do: removes, moves, duplicates or renames a member or
/// an element, or replaces a value by one of another type.
pub fn disturb(random: &mut Random, value: &mut Value) {
    let choice = random.index(8);
    match value {
        Value::Object(object) if !object.is_empty() && choice > 0 => {
            let members = object.members_mut();
            let at = random.index(members.len());
            match choice {
                1 => drop(members.remove(at)),
                2 => members.swap(0, at),
                3 if !members.iter().any(|(name, _)| name == "x") => members[at].0 = "x".into(),
                _ => disturb(random, &mut members[at].1),
            }
        }
        Value::Array(items) if !items.is_empty() && choice > 0 => {
            let at = random.index(items.len());
            match choice {
                1 => drop(items.remove(at)),
                2 => items.swap(0, at),
                3 => items.push(items[at].clone()),
                _ => disturb(random, &mut items[at]),
            }
        }
        Value::String(text) if choice > 2 => text.push('x'),
        Value::Int(number) if choice > 2 => *number ^= 1,
        other => *other = any(random),
    }
}

fn random_field(random: &mut Random, field: &Field, level: usize) -> Value {
    let count = random.index(4);
    match field.shape() {
        Shape::Single => random_value(random, field.element(), level),
        Shape::List | Shape::WrappedList => {
            Value::Array((0..count).map(|_| random_value(random, field.element(), level + 1)).collect())
        }
        Shape::Map | Shape::MapOfLists => {
            let members = (0..count).map(|at| {
                let name = format!("{}{at}", random.pick(&["", "a", "ключ", "a/b.c"]));
                let value = match field.shape() {
                    Shape::Map => random_value(random, field.element(), level + 1),
                    _ => Value::Array((0..random.index(3)).map(|_| text(random)).collect()),
                };
                (name, value)
            });
            let sorted: std::collections::BTreeMap<String, Value> = members.collect();
            Value::Object(sorted.into_iter().map(|(name, value)| (name.into(), value)).collect())
        }
    }
}

fn text(random: &mut Random) -> Value {
    random.pick(&["", "a", "zwölf", "line\nbreak \"quoted\" <html>", "\u{10ffff}"]).into()
}

fn any(random: &mut Random) -> Value {
    values::json::parse(
        random.pick(&["{}", "[]", "1", "\"x\"", "{\"a\":{\"b\":[1,null,2.5,\"c\"]}}", "false"]).as_bytes(),
    )
    .expect("the texts above are JSON")
}

fn random_value(random: &mut Random, kind: &Kind, level: usize) -> Value {
    match kind {
        Kind::Bool => Value::Bool(random.index(2) == 1),
        Kind::Int32 => Value::Int(i64::from(random.pick(&[0, 1, -1, 300, i32::MAX, i32::MIN]))),
        Kind::Int64 => Value::Int(random.pick(&[0, 1, -1, 1 << 40, i64::MAX, i64::MIN])),
        Kind::Double => random.pick(&[Some(0.5), Some(-1e300), None]).map_or(Value::Int(7), Value::Float),
        Kind::String => text(random),
        Kind::Bytes => random.pick(&["AA==", "aGVsbG8gd29ybGQ="]).into(),
        Kind::Message(message) => object(random, message, level + 1).into(),
        Kind::Time => {
            random.pick(&["1970-01-01T00:00:01Z", "2024-02-29T23:59:59Z", "9999-12-31T23:59:59Z"]).into()
        }
        Kind::MicroTime => {
            random.pick(&["1969-12-31T23:59:59.999999Z", "2024-02-29T23:59:59.000001Z"]).into()
        }
        Kind::Duration => random.pick(&["0s", "1h0m0s", "-1.5s", "100µs"]).into(),
        Kind::Quantity => random.pick(&["0", "100m", "1Gi", "-1500m", "1e3"]).into(),
        Kind::IntOrString if random.index(2) == 0 => Value::Int(random.pick(&[0, 80, -1])),
        Kind::IntOrString => random.pick(&["", "http", "25%"]).into(),
        Kind::FieldsV1 => random.pick(&["{}", "{\"f:a\":{\".\":{},\"f:b\":{}}}"]).into(),
        Kind::RawExtension | Kind::Json => any(random),
        Kind::List(_) | Kind::Map(_) => Value::Null,
        Kind::SchemaOrArray(_) if random.index(2) == 0 => {
            Value::Array(vec![random_value(random, &without_choice(kind), level + 1)])
        }
        Kind::SchemaOrBool(_) if random.index(2) == 0 => Value::Bool(random.index(2) == 1),
        Kind::SchemaOrStrings(_) if random.index(2) == 0 => Value::Array(vec![text(random), text(random)]),
        Kind::SchemaOrArray(_) | Kind::SchemaOrBool(_) | Kind::SchemaOrStrings(_) => {
            random_value(random, &without_choice(kind), level)
        }
    }
}

fn without_choice(kind: &Kind) -> Kind {
    match kind {
        Kind::SchemaOrArray(message) | Kind::SchemaOrBool(message) | Kind::SchemaOrStrings(message) => {
            Kind::Message(message.clone())
        }
        other => other.clone(),
    }
}
