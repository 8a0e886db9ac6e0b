//! Trees of scalar texts, which the `test` operation of a JSON patch compares
//! (docs/api/patches.md#json-patch).
//!
//! Such a tree contains the JSON text of each scalar instead of the scalar; only `null` stays unchanged. Two
//! spellings of the same number or string therefore differ. The order of members is ignored.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use serde_json::value::RawValue;

use super::Value;
use values::cancellation;
use values::json::{Object, write};

/// Returns the tree of scalar texts of `value`, in the spelling of this server.
pub(super) fn write_scalars_as_text(value: &Value) -> Value {
    cancellation::step();
    match value {
        Value::Null => Value::Null,
        Value::Array(items) => Value::Array(items.iter().map(write_scalars_as_text).collect()),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.to_owned().into(), write_scalars_as_text(value)))
            .collect::<Object>()
            .into(),
        scalar => Value::String(text_of(scalar)),
    }
}

/// Returns the text of the value of each operation in a JSON patch; `None` if the value is `null` or absent.
pub(super) fn values(text: &[u8]) -> Vec<Option<&RawValue>> {
    type Members<'t> = BTreeMap<String, Option<&'t RawValue>>;
    let operations: Vec<Option<Members<'_>>> = serde_json::from_slice(text).unwrap_or_default();
    operations.into_iter().map(|members| members?.remove("value").flatten()).collect()
}

/// Returns the tree of scalar texts of a JSON text.
pub(super) fn read(raw: &RawValue) -> Value {
    let text = raw.get();
    let word = || Value::String(text.to_owned());
    match text.as_bytes().first() {
        Some(b'n') => Value::Null,
        Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(items) => Value::Array(items.into_iter().map(read).collect()),
            Err(_) => word(),
        },
        Some(b'{') => match serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
            Ok(members) => {
                let members = members.into_iter().map(|(name, value)| (name.into(), read(value)));
                members.collect::<Object>().into()
            }
            Err(_) => word(),
        },
        _ => word(),
    }
}

/// Returns whether `words` is the tree of scalar texts of `value`.
pub(super) fn equal(value: &Value, words: &Value) -> bool {
    cancellation::step();
    match (value, words) {
        (Value::Null, Value::Null) => true,
        (Value::Array(items), Value::Array(words)) => {
            items.len() == words.len() && items.iter().zip(words).all(|(item, words)| equal(item, words))
        }
        (Value::Object(members), Value::Object(words)) => {
            members.len() == words.len() && equal_members(members, words)
        }
        (Value::Null | Value::Array(_) | Value::Object(_), _) => false,
        (scalar, Value::String(word)) => text_of(scalar) == *word,
        _ => false,
    }
}

/// Compares members. In most cases the members have the same order. After the first difference, members are
/// looked up by hash.
fn equal_members(members: &Object, words: &Object) -> bool {
    let same_names = members.iter().zip(words.iter()).take_while(|((a, _), (b, _))| a == b).count();
    let by_name: HashMap<&str, &Value> = words.iter().skip(same_names).collect();
    members.iter().zip(words.iter()).take(same_names).all(|((_, value), (_, words))| equal(value, words))
        && members
            .iter()
            .skip(same_names)
            .all(|(name, value)| by_name.get(name).is_some_and(|words| equal(value, words)))
}

/// Returns the JSON text of a scalar.
fn text_of(scalar: &Value) -> String {
    let mut text = Vec::new();
    write(scalar, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
