//! Kinds of values: scalars, structs, arbitrary JSON, and lists and maps of all these kinds.
//!
//! ```text
//! Kind ─┬─ scalar · any JSON
//!       ├─ struct ─► Message ─► its fields' kinds
//!       ├─ list ─► Element ─► Kind
//!       └─ map  ─► Element ─► Kind
//! ```
//!
//! Each field, list element and map value has a kind, and also defines the meaning of `null`.
//! A kind does not depend on the path of the value. This module describes only the outermost layer of a value's
//! encoding in protobuf and OpenAPI.

use super::handle::{Ref, Slice, Text};
use super::limits::Limits;
use super::table::Message;

/// Unknown-field policy of a struct: the treatment of members that the struct does not declare.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Unknown {
    /// The members are dropped. Callers can request a report of the dropped members.
    #[default]
    Prune,
    /// The members are dropped as with `Prune`, but server-side apply accepts the members, because an outer struct
    /// preserves its unknown fields.
    PruneApplied,
    /// The members are kept unchanged.
    Preserve,
    /// An unknown member is an error.
    Refuse,
}

/// The meaning of `null` and empty values.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Empty {
    /// The meaning in built-in types: `null` counts as absent, and so does an empty list or map. `pointer`
    /// and `omit_empty` determine which zero values count as absent.
    #[default]
    Absent,
    /// All given values are kept unchanged, but `null` is not a value: a member that is `null` counts as
    /// absent, and validation rejects a list element that is `null`.
    Kept,
    /// All given values are kept unchanged, including `null`.
    Nullable,
}

/// The type of a list's elements or of a map's values.
#[derive(Clone, Debug)]
pub struct Element {
    /// Kind of the element.
    pub kind: Kind,
    /// Meaning of `null`; with [`Empty::Absent`], the zero value of the kind.
    pub empty: Empty,
    /// Constraints that validation checks in addition to the kind.
    pub limits: Option<Ref<Limits>>,
}

/// The type of a list.
#[derive(Debug)]
pub struct List {
    /// The type of the list's elements.
    pub item: Element,
    /// The way in which server-side apply merges the list.
    pub merge: ListType,
    /// Whether protobuf wraps the elements in a message of their own, {1 repeated}.
    pub wrapped: bool,
}

/// The type of a map with string keys.
#[derive(Debug)]
pub struct Map {
    /// The type of the map's values.
    pub value: Element,
    /// Whether the map is owned and replaced as a whole.
    pub atomic: bool,
}

/// The kind of a value, on the wire and in JSON.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A boolean, `true` or `false`.
    Bool,
    /// A signed 32-bit integer.
    Int32,
    /// A signed 64-bit integer.
    Int64,
    /// A 64-bit floating point number.
    Double,
    /// A string of Unicode text.
    String,
    /// A byte string; base64 in JSON.
    Bytes,
    /// A struct with declared fields.
    Message(Ref<Message>),
    /// A time in RFC 3339 with second precision; message {1 seconds, 2 nanos} in protobuf.
    Time,
    /// A time in RFC 3339 with microsecond precision.
    MicroTime,
    /// A duration as Go writes it; message {1 nanoseconds}.
    Duration,
    /// A quantity as text (a number is accepted); message {1 string}.
    Quantity,
    /// An integer or a string; message {1 type, 2 intVal, 3 strVal}.
    IntOrString,
    /// Any embedded object; message {1 raw}.
    RawExtension,
    /// The field set of a managed-fields entry; message {1 Raw}. A tree contains the JSON text of the field
    /// set, as a string.
    FieldsV1,
    /// Any JSON value; message {1 raw}.
    Json,
    /// A schema (the contained message), or an array of schemas.
    SchemaOrArray(Ref<Message>),
    /// A schema (the contained message), or a boolean.
    SchemaOrBool(Ref<Message>),
    /// A schema (the contained message), or an array of strings.
    SchemaOrStrings(Ref<Message>),
    /// A list of elements of any kind.
    List(Ref<List>),
    /// A map from strings to values of any kind.
    Map(Ref<Map>),
}

/// The outermost layer of a kind, with the distinctions that protobuf and the published documents make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// A single value, neither list nor map.
    Single,
    /// A list of single values.
    List,
    /// A map from strings to single values.
    Map,
    /// A list of strings that protobuf wraps in one message, {1 repeated string} (`Verbs`).
    WrappedList,
    /// A map from strings to lists of strings. Protobuf wraps each list in a message (`ExtraValue`).
    MapOfLists,
}

impl Kind {
    /// Returns the outermost layer.
    #[inline]
    pub fn shape(&self) -> Shape {
        match self {
            Kind::List(list) if list.wrapped => Shape::WrappedList,
            Kind::List(_) => Shape::List,
            Kind::Map(map) => match &map.value.kind {
                Kind::List(list) if list.wrapped => Shape::MapOfLists,
                _ => Shape::Map,
            },
            _ => Shape::Single,
        }
    }

    /// Returns the kind inside the layer that [`shape`](Kind::shape) returns; the kind itself if the kind is a single
    /// value.
    #[inline]
    pub fn element(&self) -> &Kind {
        match self {
            Kind::List(list) => &list.item.kind,
            Kind::Map(map) => match &map.value.kind {
                Kind::List(list) if list.wrapped => &list.item.kind,
                value => value,
            },
            other => other,
        }
    }

    /// Returns the struct of this kind, even if the kind also allows other values.
    pub fn message(&self) -> Option<&Ref<Message>> {
        match self {
            Kind::Message(message)
            | Kind::SchemaOrArray(message)
            | Kind::SchemaOrBool(message)
            | Kind::SchemaOrStrings(message) => Some(message),
            _ => None,
        }
    }
}

/// The way in which apply merges a list (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ListType {
    /// The list is replaced as a whole.
    Atomic,
    /// The list is a set of scalars.
    Set,
    /// These members of an element form the key of the element.
    Map(Slice<Text>),
}
