//! Selector attributes: the labels and selectable fields of an object, encoded next to the stored value, so
//! that lists and watches need not parse the value.
//!
//! ```text
//! 0  version, 1
//! 1  flags: 1 has finalizers, 2 is being deleted, 4 too large: nothing follows the header, 8 the object is stored in another
//!    store (etcd) and has fields there that this release does not know, 16 an author follows at the end
//! 2  layout (u32 LE): fingerprint of the paths whose values follow, and of the form of a custom object
//! 6  labels_len (u32 LE)
//! 10 labels, sorted by (length of key, key): key len (varint) ‖ value len (varint) ‖ key ‖ value …
//!    values of the slots, in order: len (varint) ‖ text …
//!    with flag 16: author of the write ‖ its length (u16 LE)
//! ```
//!
//! Decoding never panics: damaged or truncated parts count as absent. Name and namespace are part of the key
//! and are not repeated. The *layout* identifies the slots that were written. If a resource's selectable
//! fields change (by a release or a custom resource definition), older attributes are recognised by their
//! layout, and field selectors are matched against the value instead ([`Selection::is_outdated`],
//! [`Selection::matches_object`]).

use std::borrow::Cow;

use crate::schema::table::{ResourceTable, Selectable};
use crate::selector::field::{FieldSelector, slots};
use crate::selector::label::LabelSelector;
use values::json::{Object, Value, write};
use values::status::Status;

const VERSION: u8 = 1;
const HAS_FINALIZERS: u8 = 1;
const IS_DELETING: u8 = 2;
const IS_TOO_LARGE: u8 = 4;
const HAS_UNKNOWN: u8 = 8;
/// Flag in the byte [`FLAGS_AT`]: the attributes end with an author.
pub(crate) const HAS_AUTHOR: u8 = 16;
pub(crate) const FLAGS_AT: usize = 1;
pub(crate) const HEADER_LEN: usize = 10;
pub(crate) const AUTHOR_LEN_BYTES: usize = 2;

/// Encodes the selector attributes of `object`, whose storage is described by `stored`. If labels and values
/// exceed the engine's limit, only the header is written, and the object is always matched by its value.
///
/// Slot values are the texts that field selectors compare: unchanged strings, decimal integers, `true` and
/// `false`. If the field is absent, the slot value is the text that the field defines for an absent value.
pub fn encode(stored: &ResourceTable, object: &Object) -> Vec<u8> {
    encode_changed(stored, object, &[])
}

/// Encodes the attributes of `object` like [`encode`]. `object` replaces an object with the attributes
/// `replaced`. A part that was never parsed is unchanged, so the values of this part are copied from `replaced`.
pub fn encode_changed(stored: &ResourceTable, object: &Object, replaced: &[u8]) -> Vec<u8> {
    let replaced = Attributes::new(replaced);
    let layout = layout(stored);
    let metadata = object.get("metadata").and_then(Value::as_object);
    let member = |name| metadata.and_then(|metadata| metadata.get(name));
    let mut flags = 0;
    if member("finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
        flags |= HAS_FINALIZERS;
    }
    if member("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        flags |= IS_DELETING;
    }
    let mut labels: Vec<(&str, &str)> = member("labels")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Object::iter)
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .collect();
    labels.sort_unstable_by_key(|(key, _)| (key.len(), *key));

    let mut out = Vec::with_capacity(HEADER_LEN + 48 * labels.len() + 16 * stored.selectable.len());
    out.extend([VERSION, flags]);
    out.extend(layout.to_le_bytes());
    out.extend([0; 4]);
    for (key, value) in labels {
        push_len(key.len(), &mut out);
        push_len(value.len(), &mut out);
        out.extend(key.as_bytes());
        out.extend(value.as_bytes());
    }
    // If the length exceeds 4 GiB, the size check below drops the labels anyway.
    let labels_len = u32::try_from(out.len() - HEADER_LEN).unwrap_or(u32::MAX);
    out[6..HEADER_LEN].copy_from_slice(&labels_len.to_le_bytes());
    let mut before = (replaced.layout() == Some(layout)).then(|| replaced.raw_fields());
    for slot in slots(stored) {
        let before = before.as_mut().and_then(Iterator::next).filter(|_| is_unread(slot, object));
        let text = before.map_or_else(|| select(slot, object), String::from_utf8_lossy);
        push_len(text.len(), &mut out);
        out.extend(text.as_bytes());
    }
    if out.len() > engine::ATTRIBUTES_BYTES_MAX {
        out.truncate(HEADER_LEN);
        out[1] |= IS_TOO_LARGE;
        out[6..].fill(0);
    }
    out
}

/// Returns whether the only path of a selectable field leads into an unread part of the object.
fn is_unread(field: &Selectable, object: &Object) -> bool {
    let path = field.path.trim();
    let (root, _) = step(&mut path.strip_prefix('.').unwrap_or(path));
    let part = object.get(root).and_then(Value::as_object);
    !field.path.contains('|') && part.is_some_and(|part| part.unread_text().is_some())
}

/// Sets the flag that the object has fields in another store (etcd) that this release does not know.
pub fn note_unknown(attributes: &mut [u8]) {
    if let Some(flags) = attributes.get_mut(1) {
        *flags |= HAS_UNKNOWN;
    }
}

/// Returns the encoded author in attributes; `None` if the attributes contain no author.
pub fn author(attributes: &[u8]) -> Option<&[u8]> {
    split_author(attributes).1
}

/// Splits attributes into the bytes before the author and the encoded author.
#[inline]
pub(crate) fn split_author(attributes: &[u8]) -> (&[u8], Option<&[u8]>) {
    let split = || {
        let [VERSION, flags, ..] = *attributes else { return None };
        if flags & HAS_AUTHOR == 0 {
            return None;
        }
        let (rest, len) = attributes.split_last_chunk::<AUTHOR_LEN_BYTES>()?;
        let at = rest.len().checked_sub(usize::from(u16::from_le_bytes(*len)))?;
        (at >= HEADER_LEN).then(|| rest.split_at(at))
    };
    split().map_or((attributes, None), |(attributes, author)| (attributes, Some(author)))
}

/// Returns the text of a selectable field: the first non-empty scalar at its paths, or else the text for an
/// absent value.
pub fn select<'o>(field: &Selectable, object: &'o Object) -> Cow<'o, str> {
    let found = |path: &str| follow(path.trim(), object).and_then(text).filter(|text| !text.is_empty());
    let path = &*field.path;
    let selected =
        if path.bytes().any(|byte| byte == b'|') { path.split('|').find_map(found) } else { found(path) };
    selected.unwrap_or_else(|| field.absent.clone())
}

/// Resolves paths such as `spec.a` and `status.podIPs[0].ip`.
fn follow<'o>(path: &str, object: &'o Object) -> Option<&'o Value> {
    let mut rest = path.strip_prefix('.').unwrap_or(path);
    let (name, indices) = step(&mut rest);
    let mut value = pick(object.get(name)?, indices)?;
    while !rest.is_empty() {
        let (name, indices) = step(&mut rest);
        value = pick(value.get(name)?, indices)?;
    }
    Some(value)
}

/// Removes the first step from a path and returns its name and its indices.
fn step<'p>(rest: &mut &'p str) -> (&'p str, &'p str) {
    // Steps are short, so a loop over their bytes costs less than a search.
    let len = rest.bytes().position(|byte| byte == b'.').unwrap_or(rest.len());
    let step = &rest[..len];
    *rest = rest.get(len + 1..).unwrap_or_default();
    step.split_at(step.bytes().position(|byte| byte == b'[').unwrap_or(len))
}

/// Resolves indices such as `[0][1]`.
fn pick<'v>(mut value: &'v Value, mut indices: &str) -> Option<&'v Value> {
    while !indices.is_empty() {
        let (index, rest) = indices.strip_prefix('[')?.split_once(']')?;
        value = value.as_array()?.get(index.parse::<usize>().ok()?)?;
        indices = rest;
    }
    Some(value)
}

fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Bool(true) => Some("true".into()),
        Value::Bool(false) => Some("false".into()),
        Value::Int(n) => Some(n.to_string().into()),
        Value::Float(_) | Value::Number(_) => {
            let mut digits = Vec::new();
            write(value, &mut digits);
            Some(String::from_utf8_lossy(&digits).into_owned().into())
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns the fingerprint of the slots of a storage, and of the form of a custom object. The fingerprint is
/// FNV-1a over the paths of the slots and their texts for absent values.
pub fn layout(stored: &ResourceTable) -> u32 {
    let mut hash = 0x811c_9dc5_u32 ^ stored.form.as_deref().copied().unwrap_or(0);
    for slot in slots(stored) {
        for byte in slot.path.bytes().chain([0]).chain(slot.absent.bytes()).chain([0]) {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
    hash
}

/// Appends a length as LEB128, like protobuf's lengths.
pub(crate) fn push_len(mut len: usize, out: &mut Vec<u8>) {
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
}

/// Reads a length from the front. A length has at most four bytes, which is far more than any key or value
/// needs.
#[inline]
pub(crate) fn take_len(bytes: &mut &[u8]) -> Option<usize> {
    let (&first, mut rest) = bytes.split_first()?;
    let mut len = usize::from(first & 0x7f);
    let mut byte = first;
    let mut shift = 7;
    while byte & 0x80 != 0 {
        let (&next, after) = rest.split_first()?;
        if shift > 21 {
            return None;
        }
        len |= usize::from(next & 0x7f) << shift;
        (byte, rest, shift) = (next, after, shift + 7);
    }
    *bytes = rest;
    Some(len)
}

#[inline]
pub(crate) fn take<'b>(bytes: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (head, tail) = bytes.split_at_checked(len)?;
    *bytes = tail;
    Some(head)
}

/// A view of encoded selector attributes.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    labels: &'a [u8],
    slots: &'a [u8],
    flags: u8,
    layout: Option<u32>,
}

impl<'a> Attributes<'a> {
    /// Creates a view of `bytes`. If the version of the bytes is unknown or the bytes are truncated, the view
    /// has no labels, values or layout.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        const ABSENT: Attributes = Attributes { labels: &[], slots: &[], flags: 0, layout: None };
        let bytes = split_author(bytes).0;
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_LEN>() else { return ABSENT };
        let [VERSION, flags, a, b, c, d, labels_len @ ..] = *header else { return ABSENT };
        let labels_len = usize::try_from(u32::from_le_bytes(labels_len)).unwrap_or(usize::MAX);
        let Some((labels, slots)) = body.split_at_checked(labels_len) else { return ABSENT };
        let layout = (flags & IS_TOO_LARGE == 0).then_some(u32::from_le_bytes([a, b, c, d]));
        Attributes { labels, slots, flags, layout }
    }

    /// Returns the value of the label `key`. The search takes one step for each label with a shorter key.
    #[inline]
    pub fn label(&self, key: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        while !rest.is_empty() {
            let key_len = take_len(&mut rest)?;
            let value_len = take_len(&mut rest)?;
            if key_len > key.len() {
                return None;
            }
            let candidate = take(&mut rest, key_len)?;
            let value = take(&mut rest, value_len)?;
            if candidate == key.as_bytes() {
                return std::str::from_utf8(value).ok();
            }
        }
        None
    }

    /// Returns the labels, sorted by length of the key, then by key.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let text = |bytes| std::str::from_utf8(bytes).ok();
        self.raw_labels().map_while(move |(key, value)| Some((text(key)?, text(value)?)))
    }

    /// Returns the labels as raw bytes.
    pub fn raw_labels(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.labels;
        std::iter::from_fn(move || {
            let key_len = take_len(&mut rest)?;
            let value_len = take_len(&mut rest)?;
            Some((take(&mut rest, key_len)?, take(&mut rest, value_len)?))
        })
    }

    /// Returns the values of the present slots as raw bytes.
    pub fn raw_fields(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.slots;
        std::iter::from_fn(move || {
            let len = take_len(&mut rest)?;
            take(&mut rest, len)
        })
    }

    /// Returns the value of a slot; empty if the slot is absent.
    #[inline]
    pub fn field(&self, slot: usize) -> &'a str {
        self.raw_fields().nth(slot).and_then(|value| std::str::from_utf8(value).ok()).unwrap_or("")
    }

    /// Returns whether the object has finalizers.
    pub fn has_finalizers(&self) -> bool {
        self.flags & HAS_FINALIZERS != 0
    }

    /// Returns whether the object has a deletion timestamp.
    pub fn is_deleting(&self) -> bool {
        self.flags & IS_DELETING != 0
    }

    /// Returns whether the object has fields in another store (etcd) that this release does not know
    /// ([`note_unknown`]).
    pub fn has_unknown(&self) -> bool {
        self.flags & HAS_UNKNOWN != 0
    }

    /// Returns the fingerprint of the written slots ([`layout`]); `None` if the bytes are not attributes, or
    /// if the attributes were too large to be encoded.
    pub fn layout(&self) -> Option<u32> {
        self.layout
    }
}

/// The selection of a list, a watch or a deletecollection: objects that match both selectors.
#[derive(Clone, Debug)]
pub struct Selection {
    label: LabelSelector,
    field: FieldSelector,
    layout: u32,
}

impl Selection {
    /// Creates a selection by both selectors; `field` was resolved for the storage `stored`.
    pub fn new(label: LabelSelector, field: FieldSelector, stored: &ResourceTable) -> Self {
        Selection { label, field, layout: layout(stored) }
    }

    /// Creates a selection of every object of every storage.
    pub const fn everything() -> Self {
        Selection { label: LabelSelector::everything(), field: FieldSelector::everything(), layout: 0 }
    }

    /// Parses the query forms of both selectors for `resource`, whose storage is described by `stored`.
    ///
    /// # Errors
    /// 400. The label selector is checked first. Source: docs/api/selectors.md.
    pub fn parse(
        label: &str,
        field: &str,
        resource: &ResourceTable,
        stored: &ResourceTable,
    ) -> Result<Self, Status> {
        let label = LabelSelector::parse(label)?;
        Ok(Selection::new(label, FieldSelector::parse(field, resource, stored)?, stored))
    }

    /// Returns whether every object is selected.
    pub fn is_everything(&self) -> bool {
        self.label.is_everything() && self.field.is_everything()
    }

    /// Returns the label selector.
    pub fn label(&self) -> &LabelSelector {
        &self.label
    }

    /// Returns the field selector.
    pub fn field(&self) -> &FieldSelector {
        &self.field
    }

    /// Returns the fingerprint of the slots to which the field selector refers.
    pub fn layout(&self) -> u32 {
        self.layout
    }

    /// Returns whether the selection depends on the attributes; otherwise name and namespace suffice.
    pub fn needs_attributes(&self) -> bool {
        !self.label.is_everything() || self.field.needs_slots()
    }

    /// Returns whether the attributes lack the values that this selection compares. The attributes lack the values if
    /// the attributes were written with other slots, were too large, or are damaged. The caller then uses
    /// [`Selection::matches_object`].
    #[inline]
    pub fn is_outdated(&self, attributes: &Attributes) -> bool {
        match attributes.layout {
            Some(layout) => layout != self.layout && self.field.needs_slots(),
            None => !self.is_everything(),
        }
    }

    /// Returns whether the object is selected, without allocating. The attributes must not be outdated.
    #[inline]
    pub fn matches(&self, name: &str, namespace: &str, attributes: &Attributes) -> bool {
        self.label.matches(|key| attributes.label(key))
            && self.field.matches(name, namespace, |slot| attributes.field(slot))
    }

    /// Returns whether the selection selects `object`, without using its attributes. `stored` is the storage
    /// of the selection.
    pub fn matches_object(
        &self,
        name: &str,
        namespace: &str,
        stored: &ResourceTable,
        object: &Object,
    ) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        let texts: Vec<Cow<str>> = slots(stored).map(|slot| select(slot, object)).collect();
        self.label.matches(|key| labels?.get(key)?.as_str())
            && self.field.matches(name, namespace, |slot| texts.get(slot).map_or("", |text| text))
    }
}

#[cfg(test)]
#[path = "attributes_test.rs"]
mod tests;
