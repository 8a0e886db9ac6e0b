//! Decodes protobuf to a tree. The result is canonical: equal to the result of `schema::decode` for the JSON
//! of the same object.
//!
//! ```text
//! bytes ──Reader──► slots, one per field ──► members in schema order, zeros dropped or written as in JSON
//! ```
//!
//! A field that occurs several times follows the rules of protobuf: the last scalar wins, lists are
//! concatenated, and structs are merged. To merge several occurrences of a struct, the decoder collects their
//! bytes while it reads the parent, and then decodes the concatenated bytes once. Unknown fields are dropped.
//! Three limits protect against hostile input: the decoder refers to slices instead of copies, the depth of
//! stored JSON is the maximum depth, and the number of members is limited. The last limit is needed because
//! two bytes of protobuf can expand to a whole struct with all fields that JSON always contains.

use smallvec::SmallVec;

use super::envelope::{self, Unknown};
use super::wire::{Data, Reader, WireError};
use types::schema::decode_form::{is_always_written, is_left_out, zero, zero_field};
use types::schema::decode_raw::compact;
use types::schema::decoded::DecodeError;
use types::schema::registry::Registry;
use types::schema::scalars::time;
use types::schema::table::{Field, Kind, Message, Shape, WireMeaning};
use values::base64_text as base64;
use values::cancellation;
use values::field::go_quote;
use values::json::plain_number;
use values::json::{self, DEPTH_MAX, Key, Object, Value};

/// Maximum number of members and elements of one object, which is about 100 MB of tree. Larger objects would
/// exceed the size limit of stored JSON, except in contrived cases.
pub const NODES_MAX: usize = 1 << 20;

/// Maximum number of levels of nesting, counted as in JSON. This limit is one level less than the limit of the parser
/// of stored JSON.
const LEVELS_MAX: usize = DEPTH_MAX - 1;

/// Range of times that the text form of a time can represent, in seconds since the epoch.
const TIME_RANGE: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// Decodes the protobuf form of an object of type `message`, without envelope.
///
/// `registry` provides the types of enveloped objects that are embedded in the object. The protobuf form does
/// not contain `kind` and `apiVersion`, so the result lacks `kind` and `apiVersion`.
///
/// # Errors
/// The bytes are not a valid message of this type: they are truncated, have a wrong wire type, are nested too
/// deep, have more than [`NODES_MAX`] members, or contain text that the field does not accept. Source:
/// docs/api/encodings.md#protobuf.
pub fn decode(registry: &Registry, message: &Message, bytes: &[u8]) -> Result<Object, DecodeError> {
    let mut decoder = Decoder { registry, nodes_left: NODES_MAX };
    decoder.object(message, &[bytes], 1)
}

struct Decoder<'r> {
    registry: &'r Registry,
    nodes_left: usize,
}

/// The occurrences of one field that have been read so far.
enum Slot<'b> {
    Value(Value),
    /// Bytes of a message, possibly in several pieces.
    Parts(Parts<'b>),
}

/// Pieces of the bytes of one message; in nearly all cases a single piece.
type Parts<'b> = SmallVec<[&'b [u8]; 1]>;

impl<'b> Slot<'b> {
    const ABSENT: Self = Slot::Value(Value::Null);

    fn add(&mut self, bytes: &'b [u8]) {
        match self {
            Slot::Parts(parts) => parts.push(bytes),
            Slot::Value(_) => *self = Slot::Parts(SmallVec::from_slice(&[bytes])),
        }
    }

    fn items(&mut self) -> &mut Vec<Value> {
        if !matches!(self, Slot::Value(Value::Array(_))) {
            *self = Slot::Value(Value::Array(Vec::new()));
        }
        match self {
            Slot::Value(Value::Array(items)) => items,
            _ => unreachable!("the slot was set to an array"),
        }
    }

    fn members(&mut self) -> &mut Vec<(Key, Value)> {
        if !matches!(self, Slot::Value(Value::Object(_))) {
            *self = Slot::Value(Value::Object(Object::new()));
        }
        match self {
            Slot::Value(Value::Object(object)) => object.members_mut(),
            _ => unreachable!("the slot was set to an object"),
        }
    }
}

impl Decoder<'_> {
    fn object(&mut self, message: &Message, parts: &[&[u8]], level: usize) -> Result<Object, DecodeError> {
        check_level(level)?;
        let mut slots: SmallVec<[Slot; 12]> = message.fields.iter().map(|_| Slot::ABSENT).collect();
        let mut inlined: SmallVec<[Parts; 1]> = message.inlined.iter().map(|_| Parts::new()).collect();
        for part in parts {
            let mut reader = Reader::new(part);
            while let Some((number, data)) = reader.next().map_err(|error| no_field(message, error))? {
                match message.wire_field(number) {
                    Some(WireMeaning::Field(at)) => {
                        let (field, slot) = (&message.fields[usize::from(at)], &mut slots[usize::from(at)]);
                        self.field(field, data, slot, level).map_err(|error| within(&field.name, error))?;
                    }
                    Some(WireMeaning::Inlined(at)) => {
                        inlined[usize::from(at)].push(data.bytes().map_err(fail)?)
                    }
                    None => {}
                }
            }
        }
        for (at, parts) in inlined.iter().enumerate().filter(|(_, parts)| !parts.is_empty()) {
            let inner = self.object(&message.inlined[at].message, parts, level)?;
            let mut members = inner.into_members().into_iter().peekable();
            for (field, slot) in message.fields.iter().zip(&mut slots) {
                if field.inlined.map(usize::from) == Some(at)
                    && let Some((_, value)) = members.next_if(|(name, _)| *name == field.name)
                {
                    *slot = Slot::Value(value);
                }
            }
        }
        self.members(message, slots, level)
    }

    /// Returns the JSON members of the slots, in schema order.
    fn members<'b>(
        &mut self,
        message: &Message,
        slots: impl IntoIterator<Item = Slot<'b>>,
        level: usize,
    ) -> Result<Object, DecodeError> {
        let mut members = Vec::with_capacity(message.fields.len().min(8));
        for (field, slot) in message.fields.iter().zip(slots) {
            let value = match slot {
                Slot::Value(value) => value,
                Slot::Parts(parts) if field.shape() == Shape::WrappedList => {
                    self.strings(&parts).map_err(|error| within(&field.name, error))?
                }
                Slot::Parts(parts) => {
                    let value = self.value(field.element(), &parts, level + 1);
                    value.map_err(|error| within(&field.name, error))?
                }
            };
            let value = match value {
                value if !is_left_out(field, &value) => value,
                _ if !is_always_written(field) => continue,
                _ => {
                    let zero = zero_field(field);
                    self.spend(nodes(&zero))?;
                    zero
                }
            };
            members.push((field.name.clone(), sorted(field.shape(), value)));
        }
        self.spend(members.len())?;
        Ok(members.into_iter().collect())
    }

    /// Adds one occurrence of a field.
    fn field<'b>(
        &mut self,
        field: &Field,
        data: Data<'b>,
        slot: &mut Slot<'b>,
        level: usize,
    ) -> Result<(), DecodeError> {
        let wrong = |error| wire_error(field, error);
        match field.shape() {
            Shape::Single => match scalar(field.element(), data).map_err(wrong)? {
                Some(value) => *slot = Slot::Value(value),
                None => slot.add(data.bytes().map_err(wrong)?),
            },
            Shape::WrappedList => slot.add(data.bytes().map_err(wrong)?),
            Shape::List => {
                if let (Data::Bytes(packed), Some(wire)) = (data, packable(field.element())) {
                    return self.packed(field, packed, wire, slot);
                }
                self.spend(1)?;
                let at = slot.items().len();
                let item = self.element(field, data, level + 2);
                slot.items().push(item.map_err(|error| within(&format!("[{at}]"), error))?);
            }
            Shape::Map | Shape::MapOfLists => {
                self.spend(1)?;
                let (name, value) = self.entry(field, data.bytes().map_err(wrong)?, level + 2)?;
                slot.members().push((Key::Owned(name), value));
            }
        }
        finite(slot)
    }

    /// Decodes a packed list of numbers. The reference server writes no packed lists, but protobuf readers must accept
    /// packed lists.
    fn packed(
        &mut self,
        field: &Field,
        bytes: &[u8],
        wire: u8,
        slot: &mut Slot<'_>,
    ) -> Result<(), DecodeError> {
        let mut reader = Reader::new(bytes);
        while let Some(data) = reader.packed(wire).map_err(fail)? {
            self.spend(1)?;
            if let Some(value) = scalar(field.element(), data).map_err(|error| wire_error(field, error))? {
                slot.items().push(value);
                finite(slot)?;
            }
        }
        Ok(())
    }

    /// Decodes one element of a list, or one value of a map.
    fn element(&mut self, field: &Field, data: Data<'_>, level: usize) -> Result<Value, DecodeError> {
        cancellation::step();
        match scalar(field.element(), data).map_err(|error| wire_error(field, error))? {
            Some(value) => Ok(value),
            None => {
                let bytes = data.bytes().map_err(|error| wire_error(field, error))?;
                self.value(field.element(), &[bytes], level)
            }
        }
    }

    /// Decodes one entry of a map, which is the message {1 key, 2 value}.
    fn entry(&mut self, field: &Field, bytes: &[u8], level: usize) -> Result<(String, Value), DecodeError> {
        cancellation::step();
        let (mut name, mut given) = ("", None);
        let mut reader = Reader::new(bytes);
        while let Some((number, data)) = reader.next().map_err(fail)? {
            match number {
                1 => name = data.string().map_err(|error| wire_error(field, error))?,
                2 => given = Some(data),
                _ => {}
            }
        }
        let value = match (field.shape(), given) {
            (Shape::MapOfLists, given) => {
                let bytes = given.map_or(Ok(&[][..]), Data::bytes);
                self.strings(&[bytes.map_err(|error| wire_error(field, error))?])
            }
            (_, Some(data)) => self.element(field, data, level),
            (_, None) if matches!(field.element(), Kind::Bytes) => Ok(Value::String(String::new())),
            (_, None) => Ok(zero(field.element())),
        };
        Ok((name.to_owned(), value.map_err(|error| within(name, error))?))
    }

    /// Decodes a list of strings, which is the message {1 repeated string}.
    fn strings(&mut self, parts: &[&[u8]]) -> Result<Value, DecodeError> {
        let mut items = Vec::new();
        each(parts, |number, data| {
            if number == 1 {
                self.spend(1)?;
                items.push(Value::from(data.string().map_err(fail)?));
            }
            Ok(())
        })?;
        Ok(Value::Array(items))
    }

    /// Decodes a value that is a message on the wire.
    fn value(&mut self, kind: &Kind, parts: &[&[u8]], level: usize) -> Result<Value, DecodeError> {
        cancellation::step();
        match kind {
            Kind::Message(message) => self.object(message, parts, level).map(Value::Object),
            Kind::Time | Kind::MicroTime => moment(kind, parts),
            Kind::Duration => {
                let mut nanos = 0;
                each(parts, |number, data| {
                    if number == 1 {
                        nanos = data.varint().map_err(fail)? as i64;
                    }
                    Ok(())
                })?;
                Ok(go::duration::to_text(nanos).into())
            }
            Kind::Quantity => {
                let text = last_string(parts)?.unwrap_or("0");
                Ok(Value::String(quantity::canonical(text).map_err(fail)?.into_owned()))
            }
            Kind::IntOrString => int_or_string(parts),
            Kind::FieldsV1 => {
                let raw = std::str::from_utf8(last_bytes(parts)?.unwrap_or_default()).map_err(fail)?;
                // Only text that begins like a JSON object is a field set.
                if !raw.starts_with('{') {
                    return Ok(Value::Null);
                }
                // `compact` does not check the JSON, and the text is untrusted, so the decoder parses the text once.
                self.any(raw.as_bytes(), level)?;
                let text = compact(raw).map_err(fail)?;
                Ok(Value::String(text))
            }
            Kind::RawExtension | Kind::Json => {
                let raw = last_bytes(parts)?.unwrap_or_default();
                if matches!(kind, Kind::RawExtension) && raw.starts_with(&envelope::PREFIX) {
                    return self.embedded(raw, level);
                }
                self.any(raw, level)
            }
            Kind::SchemaOrArray(message) | Kind::SchemaOrBool(message) | Kind::SchemaOrStrings(message) => {
                self.schema_or(kind, message, parts, level)
            }
            Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::Double | Kind::String | Kind::Bytes => {
                unreachable!("scalars are read by `scalar`")
            }
            Kind::List(_) | Kind::Map(_) => Err(fail("lists of lists have no protobuf form")),
        }
    }

    /// Parses JSON text inside protobuf.
    fn any(&mut self, text: &[u8], level: usize) -> Result<Value, DecodeError> {
        if text.is_empty() {
            return Ok(Value::Null);
        }
        let value = json::parse(text).map_err(|error| fail(format!("raw value is not JSON: {error}")))?;
        check_level(level + depth(&value).saturating_sub(1))?;
        self.spend(nodes(&value))?;
        Ok(value)
    }

    /// Decodes an enveloped object inside an embedded one.
    fn embedded(&mut self, raw: &[u8], level: usize) -> Result<Value, DecodeError> {
        let unknown = Unknown::read(raw).map_err(fail)?;
        if unknown.holds_json() {
            return self.any(unknown.raw, level);
        }
        let (group, version) = unknown.api_version.split_once('/').unwrap_or(("", unknown.api_version));
        let known = self.registry.by_kind(group, version, unknown.kind);
        let Some(message) = known.map(|resource| &*resource.table.message) else {
            let (kind, version) = (go_quote(unknown.kind), go_quote(unknown.api_version));
            return Err(fail(format!("no kind {kind} is registered for version {version}")));
        };
        let mut object = self.object(message, &[unknown.raw], level)?;
        unknown.name(&mut object);
        Ok(object.into())
    }

    /// Decodes the unions of the schema language, which are {1 schema, 2 list} or {1 allowed, 2 schema}.
    fn schema_or(
        &mut self,
        kind: &Kind,
        message: &Message,
        parts: &[&[u8]],
        level: usize,
    ) -> Result<Value, DecodeError> {
        let (mut schema, mut items, mut allows) = (Parts::new(), Vec::new(), false);
        for part in parts {
            let mut reader = Reader::new(part);
            while let Some((number, data)) = reader.next().map_err(fail)? {
                match (kind, number) {
                    (Kind::SchemaOrBool(_), 1) => allows = data.varint().map_err(fail)? != 0,
                    (Kind::SchemaOrBool(_), 2) => schema.push(data.bytes().map_err(fail)?),
                    (_, 1) => schema.push(data.bytes().map_err(fail)?),
                    (Kind::SchemaOrStrings(_), 2) => {
                        self.spend(1)?;
                        items.push(Value::from(data.string().map_err(fail)?));
                    }
                    (_, 2) => {
                        self.spend(1)?;
                        let item = self.object(message, &[data.bytes().map_err(fail)?], level + 1);
                        let at = items.len();
                        items.push(item.map_err(|error| within(&format!("[{at}]"), error))?.into());
                    }
                    _ => {}
                }
            }
        }
        if !items.is_empty() {
            return Ok(Value::Array(items));
        }
        if !schema.is_empty() {
            return self.object(message, &schema, level).map(Value::Object);
        }
        Ok(if matches!(kind, Kind::SchemaOrBool(_)) { Value::Bool(allows) } else { Value::Null })
    }

    fn spend(&mut self, nodes: usize) -> Result<(), DecodeError> {
        match self.nodes_left.checked_sub(nodes) {
            Some(left) => self.nodes_left = left,
            None => return Err(fail(format!("object has more than {NODES_MAX} members"))),
        }
        Ok(())
    }
}

/// Returns the JSON form of a scalar; `None` for kinds that are messages on the wire.
fn scalar(kind: &Kind, data: Data<'_>) -> Result<Option<Value>, WireError> {
    let value = match kind {
        Kind::Bool => Value::Bool(data.varint()? != 0),
        Kind::Int32 => Value::Int(i64::from(data.varint()? as i32)),
        Kind::Int64 => Value::Int(data.varint()? as i64),
        Kind::Double => plain_number(data.double()?),
        Kind::String => Value::from(data.string()?),
        Kind::Bytes => Value::String(base64::encode(data.bytes()?)),
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// Returns the wire type of a kind that may be packed in a list.
fn packable(kind: &Kind) -> Option<u8> {
    match kind {
        Kind::Bool | Kind::Int32 | Kind::Int64 => Some(0),
        Kind::Double => Some(1),
        _ => None,
    }
}

/// Refuses doubles that JSON cannot represent.
fn finite(slot: &Slot<'_>) -> Result<(), DecodeError> {
    let last = match slot {
        Slot::Value(Value::Array(items)) => items.last(),
        Slot::Value(value) => Some(value),
        Slot::Parts(_) => None,
    };
    match last {
        Some(Value::Float(number)) if !number.is_finite() => {
            Err(fail(format!("json: unsupported value: {number}")))
        }
        _ => Ok(()),
    }
}

/// Decodes a point in time, which is {1 seconds, 2 nanos}. An empty message is the zero time.
fn moment(kind: &Kind, parts: &[&[u8]]) -> Result<Value, DecodeError> {
    if parts.iter().all(|part| part.is_empty()) {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0i64, 0i32);
    each(parts, |number, data| {
        match number {
            1 => seconds = data.varint().map_err(fail)? as i64,
            2 => nanos = data.varint().map_err(fail)? as i32,
            _ => {}
        }
        Ok(())
    })?;
    if matches!(kind, Kind::Time) {
        nanos = 0; // JSON has second precision
    }
    // Microseconds are truncated before the carry into seconds.
    let micros = nanos / 1000;
    let seconds = seconds.saturating_add(i64::from(micros.div_euclid(1_000_000)));
    let micros = micros.rem_euclid(1_000_000).unsigned_abs();
    if !TIME_RANGE.contains(&seconds) {
        return Err(fail("year outside of range [0,9999]"));
    }
    Ok(match kind {
        _ if seconds == time::ZERO_SECONDS && micros == 0 => Value::Null,
        Kind::Time => time::format_seconds(seconds).into(),
        _ => time::format_micros(seconds, micros).into(),
    })
}

/// Decodes an integer or a string, which is {1 type, 2 integer, 3 string}.
fn int_or_string(parts: &[&[u8]]) -> Result<Value, DecodeError> {
    let (mut which, mut int, mut text) = (0, 0, "");
    for part in parts {
        let mut reader = Reader::new(part);
        while let Some((number, data)) = reader.next().map_err(fail)? {
            match number {
                1 => which = data.varint().map_err(fail)? as i64,
                2 => int = data.varint().map_err(fail)? as i32,
                3 => text = data.string().map_err(fail)?,
                _ => {}
            }
        }
    }
    match which {
        0 => Ok(Value::Int(int.into())),
        1 => Ok(text.into()),
        other => Err(fail(format!("impossible type {other} of an integer or string"))),
    }
}

/// Returns the last occurrence of field 1 in a message that has no other fields.
fn last_bytes<'b>(parts: &[&'b [u8]]) -> Result<Option<&'b [u8]>, DecodeError> {
    let mut found = None;
    for part in parts {
        let mut reader = Reader::new(part);
        while let Some((number, data)) = reader.next().map_err(fail)? {
            if number == 1 {
                found = Some(data.bytes().map_err(fail)?);
            }
        }
    }
    Ok(found)
}

fn last_string<'b>(parts: &[&'b [u8]]) -> Result<Option<&'b str>, DecodeError> {
    let bytes = last_bytes(parts)?;
    bytes.map(std::str::from_utf8).transpose().map_err(|_| fail(WireError::Utf8))
}

/// Calls `take` for every field.
fn each(
    parts: &[&[u8]],
    mut take: impl FnMut(u32, Data<'_>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    for part in parts {
        let mut reader = Reader::new(part);
        while let Some((number, data)) = reader.next().map_err(fail)? {
            take(number, data)?;
        }
    }
    Ok(())
}

/// Sorts the entries of a map by key. If keys are equal, the last entry wins.
fn sorted(shape: Shape, value: Value) -> Value {
    let Value::Object(mut object) = value else { return value };
    if matches!(shape, Shape::Map | Shape::MapOfLists) {
        let members = object.members_mut();
        if !members.is_sorted_by(|(a, _), (b, _)| a < b) {
            json::sort_members(members); // stable: entries with equal keys keep their order
            members.reverse();
            members.dedup_by(|(a, _), (b, _)| a == b);
            members.reverse();
        }
        object.index_members();
    }
    object.into()
}

/// Returns the number of members and elements in a tree.
fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(|item| 1 + nodes(item)).sum(),
        Value::Object(members) => members.iter().map(|(_, member)| 1 + nodes(member)).sum(),
        _ => 0,
    }
}

/// Returns the number of levels of nesting, which is 0 for scalars.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.iter().map(|(_, member)| depth(member)).max().unwrap_or(0),
        _ => 0,
    }
}

fn check_level(level: usize) -> Result<(), DecodeError> {
    if level > LEVELS_MAX { Err(fail("exceeded max depth")) } else { Ok(()) }
}

fn fail(message: impl ToString) -> DecodeError {
    DecodeError { message: message.to_string(), path: String::new() }
}

fn wire_error(field: &Field, error: WireError) -> DecodeError {
    fail(format!("{error} for field {}", go_name(field)))
}

/// Returns the error for a tag that does not begin a field of a message.
fn no_field(message: &Message, error: WireError) -> DecodeError {
    let name = &message.name;
    match error {
        WireError::IllegalTag { number, wire } => {
            fail(format!("proto: {name}: illegal tag {number} (wire type {wire})"))
        }
        WireError::EndOfGroup => fail(format!("proto: {name}: wiretype end group for non-group")),
        error => fail(error),
    }
}

/// Returns the field name in the spelling of the error messages of the reference server.
fn go_name(field: &Field) -> String {
    match (&*field.name, &field.kind) {
        ("metadata", Kind::Message(message)) => message.name.clone().into_owned(),
        ("uid", _) => "UID".to_owned(),
        ("apiVersion", _) => "APIVersion".to_owned(),
        (name, _) => {
            let mut letters = name.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        }
    }
}

/// Prepends `step` to the path of the error.
fn within(step: &str, mut error: DecodeError) -> DecodeError {
    let dot = if error.path.is_empty() || error.path.starts_with('[') { "" } else { "." };
    error.path = format!("{step}{dot}{}", error.path);
    error
}
