//! Conversion between resource/v1beta1 and resource/v1: device claims, their templates, and slices of pools.
//!
//! ```text
//! v1                                  v1beta1
//! request.exactly.deviceClassName … ◄─► request.deviceClassName …
//! device.attributes …               ◄─► device.basic.attributes …
//! ```
//!
//! A request of v1beta1 gets the member `exactly` if one of the moved members is set, even if the request
//! also has alternatives. Validation rejects such a request. Every device of v1beta1 has `basic`.

use super::Conversion;
use values::json::{Key, Object, Value};

/// Conversion of device claims.
pub(super) const CLAIM: Conversion = Conversion {
    to_served: |claim, _| convert_list(claim, &["spec", "devices", "requests"], flat),
    to_stored: |claim, _| convert_list(claim, &["spec", "devices", "requests"], nested),
};

/// Conversion of claim templates.
pub(super) const TEMPLATE: Conversion = Conversion {
    to_served: |template, _| convert_list(template, &["spec", "spec", "devices", "requests"], flat),
    to_stored: |template, _| convert_list(template, &["spec", "spec", "devices", "requests"], nested),
};

/// Conversion of resource slices.
pub(super) const SLICE: Conversion = Conversion {
    to_served: |slice, _| convert_list(slice, &["spec", "devices"], basic),
    to_stored: |slice, _| convert_list(slice, &["spec", "devices"], plain),
};

/// Members of a request and of a device that are the same in both versions.
const OF_REQUEST: [&str; 2] = ["name", "firstAvailable"];
const OF_DEVICE: [&str; 1] = ["name"];

/// Returns an object in which each struct of the list at `path` is converted.
fn convert_list(mut object: Object, path: &[&str], convert: fn(Object) -> Object) -> Object {
    let Some((name, rest)) = path.split_first() else { return object };
    let Some(member) = object.get_mut(name) else { return object };
    *member = match std::mem::take(member) {
        Value::Object(inner) => Value::Object(convert_list(inner, rest, convert)),
        Value::Array(items) if rest.is_empty() => {
            let converted = items.into_iter().map(|item| match item {
                Value::Object(one) => Value::Object(convert(one)),
                other => other,
            });
            Value::Array(converted.collect())
        }
        other => other,
    };
    object
}

/// Converts a request to v1beta1.
fn flat(request: Object) -> Object {
    lifted(request, "exactly")
}

/// Converts a device to v1.
fn plain(device: Object) -> Object {
    lifted(device, "basic")
}

/// Converts a request to v1.
fn nested(request: Object) -> Object {
    let (mut kept, exactly) = split(request, &OF_REQUEST);
    if !exactly.is_empty() {
        kept.insert("exactly", Value::Object(exactly));
    }
    kept
}

/// Converts a device to v1beta1.
fn basic(device: Object) -> Object {
    let (mut kept, basic) = split(device, &OF_DEVICE);
    kept.insert("basic", Value::Object(basic));
    kept
}

/// Returns the object with the members of the object at `name` in place of the member `name`.
fn lifted(object: Object, name: &str) -> Object {
    let members = object.into_members().into_iter();
    let lifted = members.flat_map(|(key, value)| match value {
        Value::Object(inner) if &*key == name => inner.into_members(),
        _ if &*key == name => Vec::new(),
        value => vec![(key, value)],
    });
    lifted.collect()
}

/// Splits an object into the named members, and the other members that are set.
fn split(object: Object, named: &[&str]) -> (Object, Object) {
    let is_set = |value: &Value| match value {
        Value::Null | Value::Int(0) => false,
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    let (kept, others): (Vec<(Key, Value)>, Vec<_>) =
        object.into_members().into_iter().partition(|(key, _)| named.contains(&&**key));
    (kept.into_iter().collect(), others.into_iter().filter(|(_, value)| is_set(value)).collect())
}
