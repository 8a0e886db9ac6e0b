//! What a value can be: scalars, structs, any JSON, and lists and maps of all of them.
//!
//! ```text
//! Kind ─┬─ scalar · any JSON
//!       ├─ struct ─► Message ─► its fields' kinds
//!       ├─ list ─► Element ─► Kind
//!       └─ map  ─► Element ─► Kind
//! ```
//!
//! Fields, elements of lists and values of maps each have a kind, and say for themselves what `null` means there.
//! Nothing here knows where a value stands, or what protobuf and OpenAPI make of it beyond the outermost layer.

use super::handle::{Ref, Slice, Text};
use super::limits::Limits;
use super::table::Message;

/// What becomes of members that a struct does not declare.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Unknown {
    /// They are dropped, and reported to callers who ask for that.
    #[default]
    Prune,
    /// They are dropped like the ones above, but server-side apply takes them: a struct around this one keeps its own.
    PruneApplied,
    /// They are kept as they are.
    Preserve,
    /// They are an error.
    Refuse,
}

/// What `null` and empty values mean.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Empty {
    /// As in built-in types: `null` is the same as nothing given, and so is an empty list or map; `pointer` and
    /// `omit_empty` say which zeros are.
    #[default]
    Absent,
    /// Everything that was given is kept as it is, but `null` is no value: a member that is `null` counts as not given,
    /// and validation refuses an element of a list that is.
    Kept,
    /// Everything that was given is kept as it is, `null` too.
    Nullable,
}

/// One element of a list, or one value of a map.
#[derive(Clone, Debug)]
pub struct Element {
    /// What it is.
    pub kind: Kind,
    /// What `null` means; of [`Empty::Absent`], the zero value of the kind.
    pub empty: Empty,
    /// What validation asks of it beyond its kind.
    pub limits: Option<Ref<Limits>>,
}

/// A list.
#[derive(Debug)]
pub struct List {
    /// What its elements are.
    pub item: Element,
    /// How server-side apply merges it.
    pub merge: ListType,
    /// Protobuf wraps the elements in a message of their own, {1 repeated}.
    pub wrapped: bool,
}

/// A map from string.
#[derive(Debug)]
pub struct Map {
    /// What its values are.
    pub value: Element,
    /// Owned and replaced as one.
    pub atomic: bool,
}

/// What one value is, on the wire and in JSON.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Boolean.
    Bool,
    /// 32-bit integer.
    Int32,
    /// 64-bit integer.
    Int64,
    /// Double.
    Double,
    /// String.
    String,
    /// Bytes; base64 in JSON.
    Bytes,
    /// A struct.
    Message(Ref<Message>),
    /// RFC 3339 with seconds; message {1 seconds, 2 nanos} in protobuf.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// Go duration text; message {1 nanoseconds}.
    Duration,
    /// Quantity text (a number is accepted); message {1 string}.
    Quantity,
    /// Integer or string; message {1 type, 2 intVal, 3 strVal}.
    IntOrString,
    /// Any embedded object; message {1 raw}.
    RawExtension,
    /// The field set of a managed-fields entry; message {1 Raw}. A tree has its JSON text, as a string.
    FieldsV1,
    /// Any JSON value; message {1 raw}.
    Json,
    /// A schema (the message given), or an array of them.
    SchemaOrArray(Ref<Message>),
    /// A schema (the message given), or a boolean.
    SchemaOrBool(Ref<Message>),
    /// A schema (the message given), or an array of strings.
    SchemaOrStrings(Ref<Message>),
    /// A list of anything.
    List(Ref<List>),
    /// A map from string to anything.
    Map(Ref<Map>),
}

/// The outermost layer of a kind, as protobuf and the published documents tell them apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// One value.
    Single,
    /// A list.
    List,
    /// A map from string.
    Map,
    /// A list of strings that protobuf wraps in one message, {1 repeated string} (`Verbs`).
    WrappedList,
    /// A map from string to lists of strings, each wrapped like that (`ExtraValue`).
    MapOfLists,
}

impl Kind {
    /// The outermost layer.
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

    /// What is inside the layer that [`shape`](Kind::shape) names; the kind itself where that is a single value.
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

    /// The struct that the kind is, alone or beside something else.
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

/// How apply merges a list (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ListType {
    /// Replaced as one.
    Atomic,
    /// A set of scalars.
    Set,
    /// Keyed by these members of the elements.
    Map(Slice<Text>),
}
