//! Encoding of a tree as canonical JSON by schema: the last step of the write path. The result is stored and
//! served.
//!
//! ```text
//! {"kind":"Pod","apiVersion":"v1","metadata":{"name":…,"uid":…,"resourceVersion":"⎵","generation":…},"spec":…}
//!  └──── prefix_len ────────────┘                                          stamp_at ┘
//! ```
//!
//! Fields are written in schema order, regardless of their order in the tree; maps are written in key order.
//! Some fields are omitted if the value is zero; all other fields are always written. Members that the schema
//! does not declare are written only if the schema preserves them. Such members follow the fields, sorted by name.

use std::borrow::Cow;

use super::declared::{Declared, visit};
use super::decode_form::{is_always_written, is_left_out, zero_field};
use super::table::{Empty, Field, Kind, Message, Text, Unknown};
use values::cancellation;
use values::json::{self, Object, Value};

/// Appends `object` as canonical JSON.
pub fn encode(message: &Message, object: &Object, out: &mut Vec<u8>) {
    write_object(message, object, out, &mut Stamp::None);
}

/// Returns the stored form of `object`, and the byte offset at which the caller inserts the decimal form of
/// the revision. This offset is between the quotes of `metadata.resourceVersion`. The function writes an empty
/// `metadata.resourceVersion` regardless of the tree.
///
/// The caller must have set `kind` and `apiVersion`. The offset is 0 for a type without
/// `metadata.resourceVersion`.
pub fn encode_stamped(message: &Message, object: &Object) -> (Vec<u8>, u32) {
    let mut out = Vec::with_capacity(2048);
    let mut stamp = Stamp::Metadata;
    write_object(message, object, &mut out, &mut stamp);
    let at = match stamp {
        Stamp::At(at) => u32::try_from(at).unwrap_or(0),
        _ => 0,
    };
    (out, at)
}

/// Returns the length of `{"kind":"…","apiVersion":"…",` at the start of a stored object. A list item is `{`
/// followed by the bytes after this prefix. Returns 1 (the brace alone) if the object has another start.
pub fn prefix_len(stored: &[u8]) -> usize {
    let member = |rest: &[u8], name: &[u8]| {
        let value = rest.strip_prefix(name)?;
        let end = value.iter().position(|&byte| byte == b'"')?;
        (value.get(end + 1) == Some(&b',')).then_some(name.len() + end + 2)
    };
    let both = || {
        let rest = stored.strip_prefix(b"{")?;
        let kind = member(rest, b"\"kind\":\"")?;
        Some(1 + kind + member(&rest[kind..], b"\"apiVersion\":\"")?)
    };
    both().unwrap_or(1)
}

/// Returns the position of the digits of `resourceVersion` in the bytes of a stored `metadata` object.
///
/// The search cannot match inside a string before the member, because quotes inside strings are escaped.
pub fn resource_version_range(metadata: &[u8]) -> Option<std::ops::Range<usize>> {
    const MEMBER: &[u8] = b"\"resourceVersion\":\"";
    let start = metadata.windows(MEMBER.len()).position(|window| window == MEMBER)? + MEMBER.len();
    let len = metadata[start..].iter().position(|&byte| byte == b'"')?;
    Some(start..start + len)
}

/// State of the slot for the revision: whether the slot must still be written, or the offset at which the slot was
/// written.
enum Stamp {
    /// No slot is needed in this object.
    None,
    /// The slot is in the member `metadata` of this object.
    Metadata,
    /// The slot is the value of the member `resourceVersion` of this object.
    ResourceVersion,
    /// The slot was written at this offset.
    At(usize),
}

fn write_object(message: &Message, object: &Object, out: &mut Vec<u8>, stamp: &mut Stamp) {
    if let (Some(text), Stamp::None) = (object.settled_text(), &*stamp) {
        #[cfg(any(test, feature = "testing"))]
        values::json::sharing::written();
        return out.extend_from_slice(text);
    }
    let start = out.len();
    out.push(b'{');
    let mut declared = Declared::new();
    let declared = declared.collect(message, object);
    // The slot for the revision is written even if the field of the slot would otherwise be omitted.
    let slot = match stamp {
        Stamp::None | Stamp::At(_) => None,
        Stamp::Metadata => message.position(b"metadata"),
        Stamp::ResourceVersion => message.position(b"resourceVersion"),
    };
    let always = message.always_written();
    let mut write = |due: &[usize]| {
        visit(message, declared, due, |field, value| write_field(field, value, start, out, stamp));
    };
    match slot.map(|slot| (slot, always.binary_search(&slot))) {
        Some((slot, Err(at))) => write(&[&always[..at], &[slot], &always[at..]].concat()),
        _ => write(always),
    }
    if message.unknown == Unknown::Preserve && declared.len() < object.members().len() {
        write_unknown(message, object, start, out);
    }
    out.push(b'}');
}

/// Writes the members that the schema does not declare, sorted by name.
fn write_unknown(message: &Message, object: &Object, start: usize, out: &mut Vec<u8>) {
    let unknown = object.members().iter().filter(|(name, _)| message.position(name.as_bytes()).is_none());
    let mut unknown: Vec<_> = unknown.collect();
    unknown.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    for (name, value) in unknown {
        if out.len() > start + 1 {
            out.push(b',');
        }
        json::write_string(name, out);
        out.push(b':');
        json::write(value, out);
    }
}

fn write_field(field: &Field, value: Option<&Value>, start: usize, out: &mut Vec<u8>, stamp: &mut Stamp) {
    let zero;
    let mut value = value;
    if matches!(stamp, Stamp::ResourceVersion) && field.name == "resourceVersion" {
        write_name(&field.name, start, out);
        out.push(b'"');
        *stamp = Stamp::At(out.len());
        out.push(b'"');
        return;
    }
    if value.is_none_or(|value| is_left_out(field, value)) {
        let holds_stamp = matches!(stamp, Stamp::Metadata) && field.name == "metadata";
        if !is_always_written(field) && !holds_stamp {
            return;
        }
        zero = zero_field(field);
        value = Some(&zero);
    }
    let Some(value) = value else { return };
    write_name(&field.name, start, out);
    if matches!(stamp, Stamp::Metadata)
        && field.name == "metadata"
        && let (Kind::Message(message), Value::Object(object)) = (&field.kind, value)
    {
        *stamp = Stamp::ResourceVersion;
        write_object(message, object, out, stamp);
        if matches!(stamp, Stamp::ResourceVersion) {
            *stamp = Stamp::None;
        }
        return;
    }
    write_value(&field.kind, field.empty == Empty::Absent, value, out);
}

fn write_name(name: &Text, start: usize, out: &mut Vec<u8>) {
    if out.len() > start + 1 {
        out.push(b',');
    }
    match name {
        Cow::Borrowed(name) => {
            out.push(b'"');
            out.extend_from_slice(name.as_bytes()); // names of built-in fields need no escapes
            out.extend_from_slice(b"\":");
        }
        Cow::Owned(name) => {
            json::write_string(name, out);
            out.push(b':');
        }
    }
}

/// Writes a value. Empty lists and maps are written as `null` if `null` has the same meaning.
fn write_value(kind: &Kind, empty_is_null: bool, value: &Value, out: &mut Vec<u8>) {
    cancellation::step();
    match (kind, value) {
        (
            Kind::Message(message)
            | Kind::SchemaOrArray(message)
            | Kind::SchemaOrBool(message)
            | Kind::SchemaOrStrings(message),
            Value::Object(object),
        ) => write_object(message, object, out, &mut Stamp::None),
        (Kind::List(_), Value::Array(items)) if empty_is_null && items.is_empty() => {
            out.extend_from_slice(b"null");
        }
        (Kind::Map(_), Value::Object(members)) if empty_is_null && members.is_empty() => {
            out.extend_from_slice(b"null");
        }
        (Kind::List(list), Value::Array(items)) => {
            json::write_items(items, out, |item, out| write_value(&list.item.kind, false, item, out));
        }
        (Kind::Map(map), Value::Object(members)) => write_map(&map.value.kind, members, out),
        (Kind::SchemaOrArray(message), Value::Array(items)) => {
            json::write_items(items, out, |item, out| match item {
                Value::Object(object) => write_object(message, object, out, &mut Stamp::None),
                other => json::write(other, out),
            });
        }
        // The tree contains the text of the field set.
        (Kind::FieldsV1, Value::String(text)) => out.extend_from_slice(text.as_bytes()),
        _ => json::write(value, out),
    }
}

fn write_map(kind: &Kind, members: &Object, out: &mut Vec<u8>) {
    let write = |_: &str, value: &Value, out: &mut Vec<u8>| write_value(kind, false, value, out);
    if members.iter().map(|(name, _)| name).is_sorted() {
        return json::write_members(members.iter(), out, write);
    }
    let mut sorted: Vec<(&str, &Value)> = members.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    json::write_members(sorted.into_iter(), out, write);
}
