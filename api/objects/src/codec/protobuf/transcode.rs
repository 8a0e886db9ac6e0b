//! Transcodes stored JSON directly to protobuf, without a tree. Transcoding is the fast path for serving objects
//! (docs/api/encodings.md#protobuf).
//!
//! ```text
//! {"name":"c","env":[…],"ports":[…]}    members in JSON order, each looked up by name in the type's plan
//!         │
//! 0a 01 63 │12 00│ 32 … 3a …            fields in wire order; absent fields that must be written are copied
//!                                       from the plan as one run of bytes between two fields
//! ```
//!
//! Fields are written in the order of the JSON members. If the JSON order of a struct differs from its wire
//! order, the fields of the struct are reordered once, at the end of the struct. This module does not handle
//! unusual text (escaped names, white space, scalars that are not canonical, duplicate members) and a few
//! rare kinds. In these cases the caller decodes the text to a tree and encodes the tree, which handles all
//! kinds and produces the error messages. The agreement test checks that both ways give the same bytes.

use std::str::from_utf8;

use smallvec::SmallVec;

use super::encode::{
    EncodeError, IntOrText, encode, write_duration, write_int_or_text, write_one_bytes, write_time,
    write_zero,
};
use super::memo::{Memo, MemoLookup};
use super::wire::{write_bool, write_bytes, write_delimited, write_double, write_int};
use types::schema::compiled::{Wire, WireMember};
use types::schema::scalars::time;
use types::schema::table::{Field, Kind, Message, Shape, WireMeaning};
use values::base64_text as base64;
use values::cancellation;
use values::json::DEPTH_MAX;
use values::json::scan::Scan;

/// Appends the protobuf form of an object, which is given as JSON text of type `message`, without envelope.
///
/// # Errors
/// Fails if the text does not match the type. In this case `out` is unchanged.
pub fn transcode(message: &Message, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    if straight(message, json, out).is_ok() {
        return Ok(());
    }
    out.truncate(start);
    let decoded = types::schema::decode::decode(message, json)?;
    encode(message, &decoded.object, out)
}

/// Transcodes a sequence of objects and caches the encoded forms of their parts (`Memo`). The types of the
/// objects must outlive the transcoder.
#[derive(Debug, Default)]
pub struct Transcoder {
    memo: Memo,
    sorted: Vec<u8>,
}

impl Transcoder {
    /// Appends the protobuf form of an object, like the function [`transcode`].
    ///
    /// # Errors
    /// Fails if the text does not match the type. In this case `out` is unchanged.
    pub fn transcode(
        &mut self,
        message: &Message,
        json: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let start = out.len();
        if self.straight(message, json, out).is_ok_and(|read| read == json.len()) {
            return Ok(());
        }
        out.truncate(start);
        let decoded = types::schema::decode::decode(message, json)?;
        encode(message, &decoded.object, out)
    }

    /// Appends the protobuf form of the value of type `message` at the start of `json`. Any text may follow
    /// the value. If the text is unusual, returns `false` and leaves `out` unchanged.
    pub fn transcode_start(&mut self, message: &Message, json: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let is_written = self.straight(message, json, out).is_ok();
        if !is_written {
            out.truncate(start);
        }
        is_written
    }

    /// Appends the protobuf form of the object at the start of `json`, and returns the length of the object
    /// in `json`. Fails if the text is unusual.
    fn straight(&mut self, message: &Message, json: &[u8], out: &mut Vec<u8>) -> Result<usize, Unusual> {
        let sorted = std::mem::take(&mut self.sorted);
        let memo = Some(&mut self.memo);
        let mut writer = Writer { scan: Scan::new(json), sorted, depth: 0, place: 0, memo };
        let written = writer.object(Plan::for_message(message)?, out);
        let read = writer.scan.position();
        self.sorted = writer.sorted;
        written.map(|()| read)
    }
}

/// The text has unusual parts, so the caller must decode it to a tree and encode the tree.
#[derive(Debug)]
pub(super) struct Unusual;

/// Appends the protobuf form of a text that has no unusual parts. After an error, `out` contains a partial
/// result.
pub(super) fn straight(message: &Message, json: &[u8], out: &mut Vec<u8>) -> Result<(), Unusual> {
    let mut writer = Writer { scan: Scan::new(json), sorted: Vec::new(), depth: 0, place: 0, memo: None };
    writer.object(Plan::for_message(message)?, out)?;
    if writer.scan.is_at_end() { Ok(()) } else { Err(Unusual) }
}

/// The compiled encoding of a type.
#[derive(Clone, Copy)]
struct Plan<'m> {
    message: &'m Message,
    wire: &'m Wire,
}

/// Rank of a field that has no protobuf field of its own.
const NO_RANK: u16 = u16::MAX;

impl<'m> Plan<'m> {
    /// Returns the plan of a type. Fails for types without a protobuf form.
    #[inline]
    fn for_message(message: &'m Message) -> Result<Self, Unusual> {
        let wire = message.compiled.wire.get_or_init(|| make(message).map(Box::new));
        Ok(Plan { message, wire: wire.as_deref().ok_or(Unusual)? })
    }

    /// Returns the field with this name.
    #[inline]
    fn find(self, name: &[u8]) -> Option<(&'m Field, &'m WireMember)> {
        let at = self.message.position(name)?;
        Some((&self.message.fields[at], &self.wire.members[at]))
    }

    /// Returns the encoding of the fields with ranks `from..to` in an object that lacks these fields.
    #[inline]
    fn zeros(self, from: usize, to: usize) -> &'m [u8] {
        &self.wire.zeros[self.wire.zeros_at[from] as usize..self.wire.zeros_at[to] as usize]
    }

    /// Returns the number of ranks, which is also the end of the range of all ranks.
    fn end(self) -> usize {
        self.wire.zeros_at.len() - 1
    }
}

/// Compiles the encoding of a type; returns `None` for types without a protobuf form.
fn make(message: &Message) -> Option<Wire> {
    if message.wire.is_empty() && !message.fields.is_empty() {
        return None;
    }
    let member = |_| WireMember { rank: NO_RANK, nested_in: None };
    let mut members: Vec<WireMember> = message.fields.iter().map(member).collect();
    let (mut zeros, mut zeros_at) = (Vec::new(), Vec::with_capacity(message.wire.len() + 1));
    for (rank, wire) in message.wire.iter().enumerate() {
        let rank = u16::try_from(rank).ok()?;
        zeros_at.push(u32::try_from(zeros.len()).ok()?);
        write_zero(message, wire, &mut zeros).ok()?;
        match wire.place {
            WireMeaning::Field(at) => members[usize::from(at)].rank = rank,
            WireMeaning::Inlined(at) => {
                for (field, member) in message.fields.iter().zip(&mut members) {
                    if field.inlined == Some(at) {
                        *member = WireMember { rank, nested_in: Some((wire.number, at)) };
                    }
                }
            }
        }
    }
    zeros_at.push(u32::try_from(zeros.len()).ok()?);
    Some(Wire { members, zeros, zeros_at })
}

/// A field that was written: the rank, and the range of the output.
type Written = (u16, usize, usize);

struct Writer<'t> {
    scan: Scan<'t>,
    /// Buffer for reordering fields.
    sorted: Vec<u8>,
    depth: usize,
    /// Hash of the current location in the object. Locations with the same hash share a slot of the memo.
    place: u32,
    /// Cache of encoded parts; `None` for a single object.
    memo: Option<&'t mut Memo>,
}

impl Writer<'_> {
    fn object(&mut self, plan: Plan<'_>, out: &mut Vec<u8>) -> Result<(), Unusual> {
        if !self.scan.take(b'{') || self.depth >= DEPTH_MAX {
            return Err(Unusual);
        }
        if self.scan.take(b'}') {
            out.extend_from_slice(&plan.wire.zeros);
            return Ok(());
        }
        self.depth += 1;
        self.members(plan, false, out)?;
        self.depth -= 1;
        if self.scan.take(b'}') { Ok(()) } else { Err(Unusual) }
    }

    /// Writes members up to the end of the object. For a nested struct, writes only the consecutive members
    /// that belong to the struct.
    fn members(&mut self, plan: Plan<'_>, nested: bool, out: &mut Vec<u8>) -> Result<(), Unusual> {
        let begin = out.len();
        let mut written: SmallVec<[Written; 16]> = SmallVec::new();
        let (mut next, mut in_order) = (0, true);
        loop {
            let before = self.scan;
            let name = self.scan.name().filter(|name| !name.is_escaped).ok_or(Unusual)?;
            let found = plan.find(name.raw).filter(|(_, member)| member.rank != NO_RANK);
            let Some((field, member)) = found else {
                if nested {
                    self.scan = before;
                    break;
                }
                self.scan.value().ok_or(Unusual)?;
                if self.scan.more(b'}').ok_or(Unusual)? {
                    continue;
                }
                break;
            };
            let rank = usize::from(member.rank);
            in_order &= rank >= next;
            if in_order {
                out.extend_from_slice(plan.zeros(next, rank));
                next = rank + 1;
            }
            let start = out.len();
            let is_over = match member.nested_in {
                Some((number, inner)) => {
                    let inner = Plan::for_message(&plan.message.inlined[usize::from(inner)].message)?;
                    self.scan = before;
                    write_delimited(number, out, |out| self.members(inner, true, out))?;
                    // The scanner is at the closing brace, or at the next member after its comma.
                    self.scan.peek() == b'}'
                }
                None => {
                    if !self.scan.word("null") {
                        self.field(field, out)?;
                    } else if in_order {
                        out.extend_from_slice(plan.zeros(rank, rank + 1));
                    }
                    !self.scan.more(b'}').ok_or(Unusual)?
                }
            };
            if out.len() > start {
                written.push((member.rank, start, out.len()));
            }
            if is_over {
                break;
            }
        }
        if in_order {
            out.extend_from_slice(plan.zeros(next, plan.end()));
            return Ok(());
        }
        self.put_in_order(plan, begin, &mut written, out)
    }

    /// Replaces the output from `begin` by the fields in `written` in wire order, and inserts the zero values
    /// of absent fields.
    fn put_in_order(
        &mut self,
        plan: Plan<'_>,
        begin: usize,
        written: &mut [Written],
        out: &mut Vec<u8>,
    ) -> Result<(), Unusual> {
        written.sort_unstable_by_key(|(rank, ..)| *rank);
        self.sorted.clear();
        let mut next = 0;
        for (rank, start, end) in written {
            let rank = usize::from(*rank);
            if rank < next {
                return Err(Unusual); // the field occurs twice
            }
            self.sorted.extend_from_slice(plan.zeros(next, rank));
            self.sorted.extend_from_slice(&out[*start..*end]);
            next = rank + 1;
        }
        self.sorted.extend_from_slice(plan.zeros(next, plan.end()));
        out.truncate(begin);
        out.extend_from_slice(&self.sorted);
        Ok(())
    }

    /// Writes the value of a member; the caller has handled `null`.
    fn field(&mut self, field: &Field, out: &mut Vec<u8>) -> Result<(), Unusual> {
        let is_part = match field.shape() {
            Shape::Single => is_structure(field.element()),
            Shape::List | Shape::Map => true,
            Shape::WrappedList | Shape::MapOfLists => return Err(Unusual),
        };
        if !is_part {
            return self.value(field, field.number, out);
        }
        self.part(field, 0, out, |writer, out| match field.shape() {
            Shape::List => writer.list(field, out),
            Shape::Map => writer.map(field, out),
            _ => writer.value(field, field.number, out),
        })
    }

    /// Writes a value of `field` that is a JSON object or list. Copies the cached form of the value, or calls
    /// `write`. `index` distinguishes the elements of a list from each other and from the list itself.
    #[inline]
    fn part(
        &mut self,
        field: &Field,
        index: u32,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Self, &mut Vec<u8>) -> Result<(), Unusual>,
    ) -> Result<(), Unusual> {
        let Some(memo) = &mut self.memo else { return write(self, out) };
        let outer = self.place;
        let place = (outer.rotate_left(5) ^ (field.number << 8 | index & 0xff)).wrapping_mul(0x9e37_79b1);
        let slot = match memo.look(field, place, self.depth, self.scan.rest()) {
            MemoLookup::Part(text_len, bytes) => {
                out.extend_from_slice(bytes);
                self.scan.skip(text_len);
                return Ok(());
            }
            MemoLookup::New(slot) => Some(slot),
            MemoLookup::Nothing => None,
        };
        let (before, start) = (self.scan, out.len());
        self.place = place;
        write(self, out)?;
        self.place = outer;
        if let (Some(memo), Some(slot)) = (&mut self.memo, slot) {
            let text = &before.rest()[..self.scan.position() - before.position()];
            memo.keep(slot, field, self.depth, text, &out[start..]);
        }
        Ok(())
    }

    fn list(&mut self, field: &Field, out: &mut Vec<u8>) -> Result<(), Unusual> {
        if !self.scan.take(b'[') {
            return Err(Unusual);
        }
        if self.scan.take(b']') {
            return Ok(());
        }
        let mut index = 0u32;
        loop {
            index = index.wrapping_add(1);
            if is_structure(field.element()) {
                self.part(field, index, out, |writer, out| writer.value(field, field.number, out))?;
            } else {
                self.value(field, field.number, out)?;
            }
            if !self.scan.more(b']').ok_or(Unusual)? {
                self.scan.take(b']');
                return Ok(());
            }
        }
    }

    fn map(&mut self, field: &Field, out: &mut Vec<u8>) -> Result<(), Unusual> {
        if !self.scan.take(b'{') {
            return Err(Unusual);
        }
        if self.scan.take(b'}') {
            return Ok(());
        }
        let mut last: &[u8] = b"";
        let mut is_first = true;
        loop {
            let name = self.scan.name().filter(|name| !name.is_escaped).ok_or(Unusual)?.raw;
            if !is_first && name <= last {
                return Err(Unusual);
            }
            (last, is_first) = (name, false);
            write_delimited(field.number, out, |out| {
                write_bytes(1, name, out);
                self.value(field, 2, out)
            })?;
            if !self.scan.more(b'}').ok_or(Unusual)? {
                self.scan.take(b'}');
                return Ok(());
            }
        }
    }

    /// Writes one value as field `number`. The value `null` is unusual.
    fn value(&mut self, field: &Field, number: u32, out: &mut Vec<u8>) -> Result<(), Unusual> {
        cancellation::step();
        match field.element() {
            Kind::String => {
                let text = self.scan.string().ok_or(Unusual)?;
                if text.is_escaped {
                    write_bytes(number, &text.unescaped().ok_or(Unusual)?, out);
                } else {
                    write_bytes(number, text.raw, out);
                }
            }
            Kind::Message(message) => {
                let plan = Plan::for_message(message)?;
                write_delimited(number, out, |out| self.object(plan, out))?;
            }
            Kind::Bool => {
                let value = self.scan.word("true");
                if !value && !self.scan.word("false") {
                    return Err(Unusual);
                }
                write_bool(number, value, out);
            }
            Kind::Int32 => write_int(number, self.parsed::<i32>()?.into(), out),
            Kind::Int64 => write_int(number, self.parsed()?, out),
            Kind::Double => write_double(number, self.parsed()?, out),
            Kind::Bytes => {
                let text = self.plain_text()?;
                let bytes = base64::decode(text).ok_or(Unusual)?;
                // Outside of lists and maps, empty bytes are not written.
                if !bytes.is_empty() || field.shape() != Shape::Single {
                    write_bytes(number, &bytes, out);
                }
            }
            Kind::Quantity => {
                let text = self.plain_text()?;
                let text = quantity::canonical(text).map_err(|_| Unusual)?;
                write_one_bytes(number, text.as_bytes(), out);
            }
            Kind::IntOrString => {
                let value = match self.scan.peek() {
                    b'"' => IntOrText::Text(self.plain_text()?),
                    _ => IntOrText::Int(self.parsed::<i32>()?.into()),
                };
                write_int_or_text(number, value, out);
            }
            Kind::Time | Kind::MicroTime => {
                let text = self.plain_text()?;
                let moment = time::unix(text).filter(|time| time.0 != time::ZERO_SECONDS).ok_or(Unusual)?;
                write_time(number, field.element(), Some(moment), out);
            }
            Kind::Duration => {
                let nanos = go::duration::parse(self.plain_text()?).map_err(|_| Unusual)?;
                write_duration(number, nanos, out);
            }
            Kind::FieldsV1 | Kind::RawExtension | Kind::Json => {
                write_one_bytes(number, self.embedded()?, out);
            }
            Kind::SchemaOrArray(_) | Kind::SchemaOrBool(_) | Kind::SchemaOrStrings(_) => return Err(Unusual),
            Kind::List(_) | Kind::Map(_) => return Err(Unusual),
        }
        Ok(())
    }

    /// Reads a number. Fails if the text does not parse as `T`.
    fn parsed<T: std::str::FromStr>(&mut self) -> Result<T, Unusual> {
        let text = self.scan.number().ok_or(Unusual)?;
        // All parsers agree on `0`, but not on other spellings of zero.
        let is_plain = !text.starts_with("-0") && !text.starts_with('+');
        text.parse().ok().filter(|_| is_plain).ok_or(Unusual)
    }

    /// Reads a string without escapes.
    fn plain_text(&mut self) -> Result<&'_ str, Unusual> {
        let text = self.scan.string().filter(|text| !text.is_escaped).ok_or(Unusual)?;
        from_utf8(text.raw).map_err(|_| Unusual)
    }

    /// Reads an object that protobuf stores as text.
    fn embedded(&mut self) -> Result<&'_ [u8], Unusual> {
        let text = self.scan.value().ok_or(Unusual)?;
        if text.starts_with(b"{") { Ok(text) } else { Err(Unusual) }
    }
}

/// Returns whether the JSON form of a value of this kind is an object.
#[inline]
fn is_structure(kind: &Kind) -> bool {
    matches!(kind, Kind::Message(_) | Kind::FieldsV1 | Kind::RawExtension | Kind::Json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::schema::builtin;
    use values::naming::KUBERNETES;

    #[test]
    fn unusual_json_is_transcoded_to_the_same_protobuf_bytes_as_by_the_general_path() {
        let pod = builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap();
        for (text, is_usual) in [
            (r#"{}"#, true),
            (r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#, true),
            (r#"{"metadata":{"name":"a\n\u003c"}}"#, true),
            (r#"{"metadata":{"labels":{"a":"1","b":"2"}}}"#, true),
            (r#"{"metadata":{"creationTimestamp":null,"labels":null},"spec":null}"#, true),
            (r#"{"unknown":{"a":[1]},"spec":{"nodeName":"n","containers":[]}}"#, true),
            (r#"{"spec":{"terminationGracePeriodSeconds":0,"hostNetwork":false,"priority":-1}}"#, true),
            (
                r#"{"spec":{"initContainers":[{"name":"i"}],"containers":[{"name":"c","env":[],"envFrom":[{}]}]}}"#,
                true,
            ),
            (r#"{"spec":{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1024Mi"}},{"name":"w"}]}}"#, true),
            (r#"{"spec":{"volumes":[{"emptyDir":{},"name":"v","hostPath":{"path":"/"}}]}}"#, false),
            (r#"{"metadata":{"labels":{"b":"1","a":"2"}}}"#, false),
            (r#"{"metadata":{"labels":{"a":null}}}"#, false),
            (r#"{"metadata":{"name":"a","name":"b"}}"#, false),
            (r#"{"metadata":{"n\u0061me":"a"}}"#, false),
            (r#"{ "metadata":{"name":"a"}}"#, false),
            (r#"{"metadata":{"name":"a"}} "#, false),
            (r#"{"metadata":{"creationTimestamp":"0001-01-01T00:00:00Z"}}"#, false),
            (r#"{"spec":{"containers":[null]}}"#, false),
        ] {
            let (mut fast, mut out, mut tree) = (Vec::new(), Vec::new(), Vec::new());
            assert_eq!(straight(pod, text.as_bytes(), &mut fast).is_ok(), is_usual, "{text}");
            let decoded = types::schema::decode::decode(pod, text.as_bytes()).unwrap().object;
            encode(pod, &decoded, &mut tree).unwrap();
            transcode(pod, text.as_bytes(), &mut out).unwrap();
            assert_eq!(out, tree, "{text}");
            assert!(!is_usual || fast == tree, "{text}");
        }
    }

    #[test]
    fn transcoding_json_of_another_type_is_an_error_and_appends_nothing() {
        let pod = builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap();
        let deep = format!("{{\"spec\":{}", "{\"affinity\":".repeat(100_000));
        for text in [
            "",
            "{",
            "[]",
            "{\"metadata\":3}",
            "{\"spec\":{\"nodeName\":[]}}",
            "{\"metadata\":{\"name\":\"a\"",
            &deep,
        ] {
            let mut out = b"before".to_vec();
            assert!(transcode(pod, text.as_bytes(), &mut out).is_err(), "{text:.40}");
            assert_eq!(out, b"before", "{text:.40}");
        }
    }

    #[test]
    fn a_reused_transcoder_gives_the_same_bytes_as_a_new_one_and_its_cache_is_bounded() {
        let pod = builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap();
        let mut alike = Transcoder::default();
        for at in 0..500_usize {
            let value = "v".repeat(at * 37 % 3000);
            let containers: Vec<String> = (0..at % 12)
                .map(|nr| {
                    format!(
                        r#"{{"name":"c{nr}","image":"i{}","env":[{{"name":"A","value":"{value}"}}]}}"#,
                        at / 7
                    )
                })
                .collect();
            let text = format!(
                r#"{{"metadata":{{"name":"a{at}","labels":{{"app":"{}"}}}},"spec":{{"containers":[{}]}}}}"#,
                at / 5,
                containers.join(",")
            );
            let (mut want, mut got) = (Vec::new(), Vec::new());
            transcode(pod, text.as_bytes(), &mut want).unwrap();
            alike.transcode(pod, text.as_bytes(), &mut got).unwrap();
            assert_eq!(got, want, "{at}");
            assert!(alike.memo.cached_bytes() <= crate::codec::protobuf::MEMO_BYTES, "{at}");
        }
        // The text after the value is not read.
        let mut got = Vec::new();
        assert!(alike.transcode_start(pod, br#"{"spec":{"nodeName":"n"}},"more":[}"#, &mut got));
        let mut want = Vec::new();
        transcode(pod, br#"{"spec":{"nodeName":"n"}}"#, &mut want).unwrap();
        assert_eq!(got, want);
        assert!(!alike.transcode_start(pod, br#"{"spec":{"nodeName":[]}}"#, &mut got));
        assert_eq!(got, want, "nothing is appended");
    }
}
