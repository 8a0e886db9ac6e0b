//! Reading of values that contain other values: structs, lists and maps, by schema and from any source.
//!
//! The members of a struct are returned in schema order, the members of a map sorted by name. If a name
//! occurs several times, the last member is kept.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::builtin;
use super::decode::Single;
use super::decode_form::{is_always_written, present_value, zero_element, zero_field, zero_member};
use super::decode_inner::read_inner;
use super::decode_merge::is_merged;
use super::decode_report::{At, DecodePath, DecodeStep, Report};
use super::raw_tree::RAW;
use super::table::{Field, Kind, List, Map, Message, Unknown};
use values::base64_text;
use values::json::{Key, Object, Value};

pub(super) fn read_message<'de, A: MapAccess<'de>>(
    report: &Report,
    message: &Message,
    parent: At<'_>,
    mut source: A,
) -> Result<Object, A::Error> {
    // Values with the positions of their fields. Most documents have few fields, and the fields are usually in schema
    // order.
    let mut given: SmallVec<[(usize, Option<Value>); 12]> = SmallVec::new();
    let mut seen: SmallVec<[u64; 2]> = SmallVec::from_elem(0, message.fields.len().div_ceil(64));
    let mut ascending = true;
    let mut preserved: Vec<(Key, Value)> = Vec::new();
    while let Some(found) = source.next_key_seed(FieldName { message })? {
        let at = match found {
            Ok(at) => at,
            Err(name) => {
                match message.unknown {
                    Unknown::Prune | Unknown::PruneApplied => {
                        report.note("unknown", parent, &name);
                        source.next_value::<IgnoredAny>()?;
                    }
                    Unknown::Preserve => {
                        preserved.push((Key::Owned(name), source.next_value_seed(report.raw())?));
                    }
                    Unknown::Refuse => {
                        return Err(
                            report.fail(parent, format!("unknown field {}", values::field::go_quote(&name)))
                        );
                    }
                }
                continue;
            }
        };
        let field = &message.fields[at];
        let path = DecodePath { parent, step: DecodeStep::Field(message, field) };
        let (word, bit) = (at / 64, 1u64 << (at % 64));
        let repeated = seen[word] & bit != 0;
        if repeated {
            report.note("duplicate", parent, &field.name);
            if !message.custom && is_merged(&field.kind) {
                report.note_merged();
            }
        }
        seen[word] |= bit;
        let is_free = message.custom && is_described_by_schema(field);
        let single = Single { report, kind: &field.kind, path: Some(&path), is_free };
        let value = if message.embedded && matches!(&*field.name, "kind" | "apiVersion" | "metadata") {
            read_inner(&path, single, &mut source)?
        } else {
            source.next_value_seed(single)?
        };
        // In built-in types, `null` has no effect on most fields of structs, so an earlier value stays.
        if repeated && value.is_none() && !message.custom {
            report.note_merged();
        }
        let value = self::present_value(field, value);
        if repeated && let Some(slot) = given.iter_mut().find(|(position, _)| *position == at) {
            slot.1 = value;
            continue;
        }
        ascending &= given.last().is_none_or(|(last, _)| *last < at);
        given.push((at, value));
    }
    if !ascending {
        given.sort_unstable_by_key(|(at, _)| *at);
    }
    let mut members = Vec::with_capacity(given.len() + 2);
    let mut given = given.into_iter().peekable();
    for (at, field) in message.fields.iter().enumerate() {
        let value = given.next_if(|(position, _)| *position == at).and_then(|(_, value)| value);
        match value {
            Some(value) => members.push((field.name.clone(), value)),
            None if is_always_written(field) => members.push((field.name.clone(), zero_field(field))),
            None => {}
        }
    }
    members.extend(sorted(preserved, |name| report.note("duplicate", parent, name)));
    Ok(members.into_iter().collect())
}

/// Returns whether the author's schema of a custom type describes the field. The fields that every object has
/// are not described there.
fn is_described_by_schema(field: &Field) -> bool {
    field.pointer && !matches!(&field.kind, Kind::Message(message) if !message.custom)
}

/// Reader of a member name. Returns the position of the field with this name, or the name if there is no such
/// field.
struct FieldName<'c> {
    message: &'c Message,
}

impl<'de> DeserializeSeed<'de> for FieldName<'_> {
    type Value = Result<usize, String>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldName<'_> {
    type Value = Result<usize, String>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.message.position(name.as_bytes()).ok_or_else(|| name.to_owned()))
    }
}

pub(super) fn read_list<'de, A: SeqAccess<'de>>(
    whole: Single<'_>,
    list: &List,
    source: A,
) -> Result<Value, A::Error> {
    let mut items =
        read_items(Single { kind: &list.item.kind, ..whole }, source, || zero_element(&list.item))?;
    if items.is_empty() && is_managed_fields(&list.item.kind) {
        // An empty list of managed fields has the same meaning as a list with one empty entry: all ownership
        // is dropped. Other empty lists of built-in types count as absent.
        items.push(Value::Object(Object::new()));
    }
    Ok(Value::Array(items))
}

/// Reads the elements of a list, each with the kind and the options of `item`. `null` becomes the result of
/// `absent`.
pub(super) fn read_items<'de, A: SeqAccess<'de>>(
    item: Single<'_>,
    mut source: A,
    absent: impl Fn() -> Value,
) -> Result<Vec<Value>, A::Error> {
    let mut items = Vec::new();
    loop {
        let path = DecodePath { parent: item.path, step: DecodeStep::Index(items.len()) };
        match source.next_element_seed(Single { path: Some(&path), ..item })? {
            Some(value) => items.push(value.unwrap_or_else(&absent)),
            None => return Ok(items),
        }
    }
}

/// Reads bytes from a list of numbers. A `null` in the list is 0.
pub(super) fn read_bytes<'de, A: SeqAccess<'de>>(
    whole: Single<'_>,
    mut source: A,
) -> Result<Value, A::Error> {
    let mut read = Vec::new();
    while let Some(item) = source.next_element_seed(RAW)? {
        let found = match item {
            Value::Null => {
                read.push(0);
                continue;
            }
            Value::Int(number) => match u8::try_from(number) {
                Ok(byte) => {
                    read.push(byte);
                    continue;
                }
                Err(_) => format!("number {number}"),
            },
            Value::Float(number) => format!("number {number}"),
            Value::Number(words) => format!("number {words}"),
            other => other.go_kind().to_owned(),
        };
        whole.report.mismatch(whole.path, &found, "uint8");
    }
    Ok(Value::String(base64_text::encode(&read)))
}

pub(super) fn skip_items<'de, A: SeqAccess<'de>>(mut source: A) -> Result<(), A::Error> {
    while source.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

pub(super) fn skip_members<'de, A: MapAccess<'de>>(mut source: A) -> Result<(), A::Error> {
    while source.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

fn is_managed_fields(kind: &Kind) -> bool {
    matches!(kind, Kind::Message(message) if message.is(builtin::MANAGED_FIELDS_ENTRY))
}

pub(super) fn read_map<'de, A: MapAccess<'de>>(
    whole: Single<'_>,
    map: &Map,
    mut source: A,
) -> Result<Value, A::Error> {
    let Single { report, path: parent, .. } = whole;
    let mut members: Vec<(Key, Value)> = Vec::new();
    let mut ascending = true;
    while let Some(name) = source.next_key::<String>()? {
        let value = {
            let path = DecodePath { parent, step: DecodeStep::Key(&name) };
            let value = Single { kind: &map.value.kind, path: Some(&path), ..whole };
            source.next_value_seed(value)?.or_else(|| zero_member(&map.value))
        };
        let Some(value) = value else { continue };
        ascending &= members.last().is_none_or(|(last, _)| last.as_ref() < name.as_str());
        members.push((Key::Owned(name), value));
    }
    if !ascending {
        members = sorted(members, |name| report.note("duplicate", parent, name));
    }
    Ok(Value::Object(members.into_iter().collect()))
}

/// Sorts members by name and keeps the last of several members with the same name. Calls `duplicate` for each
/// repetition, in document order.
fn sorted(members: Vec<(Key, Value)>, mut duplicate: impl FnMut(&str)) -> Vec<(Key, Value)> {
    let mut placed: Vec<(usize, (Key, Value))> = members.into_iter().enumerate().collect();
    placed.sort_by(|(_, (a, _)), (_, (b, _))| a.cmp(b)); // stable: equal names stay in document order
    let mut repeated: Vec<(usize, Key)> = Vec::new();
    let mut unique: Vec<(Key, Value)> = Vec::with_capacity(placed.len());
    for (at, (name, value)) in placed {
        match unique.last_mut() {
            Some(last) if last.0 == name => {
                last.1 = value;
                repeated.push((at, name));
            }
            _ => unique.push((name, value)),
        }
    }
    repeated.sort_unstable_by_key(|(at, _)| *at);
    repeated.iter().for_each(|(_, name)| duplicate(name));
    unique
}
