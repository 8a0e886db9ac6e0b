//! Stored JSON straight to protobuf, without a tree: the fast path for serving objects
//! (docs/api/encodings.md#protobuf).
//!
//! ```text
//! {"name":"c","env":[…],"ports":[…]}    members in JSON order, each looked up by name in the type's plan
//!         │
//! 0a 01 63 │12 00│ 32 … 3a …            fields in wire order; absent fields that must be written are copied
//!                                       from the plan as one run of bytes between two fields
//! ```
//!
//! Fields are written in the order of their members. If a struct's JSON order differs from its wire order, its fields
//! are reordered once, at its end. Unusual text (escaped names, white space, scalars that are not canonical, duplicate
//! members) and a few rare kinds are left to the path through the tree, which handles all kinds and words the errors.
//! Both paths give the same bytes; the agreement test checks that.

use std::str::from_utf8;

use smallvec::SmallVec;

use super::encode::{EncodeError, encode, write_zero};
use super::wire::{write_bool, write_bytes, write_delimited, write_double, write_int};
use crate::json::DEPTH_MAX;
use crate::json::scan::Scan;
use crate::schema::plans::{Below, Plans};
use crate::schema::scalars::{bytes as base64, duration, quantity, time};
use crate::schema::table::{Field, Kind, Message, Place, Shape};

/// Appends the protobuf form of an object given as JSON text of type `message`, without envelope.
///
/// # Errors
/// Text that does not match the type; nothing is appended then.
pub fn transcode(message: &'static Message, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    if straight(message, json, out).is_ok() {
        return Ok(());
    }
    out.truncate(start);
    let decoded = crate::schema::decode::decode(message, json)?;
    encode(message, &decoded.object, out)
}

/// The text needs the path through the tree.
#[derive(Debug)]
pub(super) struct Unusual;

/// Appends the protobuf form of a text without unusual parts; after an error `out` holds a partial result.
pub(super) fn straight(message: &'static Message, json: &[u8], out: &mut Vec<u8>) -> Result<(), Unusual> {
    let plan = PLANS.of(message).as_ref().ok_or(Unusual)?;
    let mut writer = Writer { scan: Scan::new(json), sorted: Vec::new(), depth: 0 };
    writer.object(plan, out)?;
    if writer.scan.is_at_end() { Ok(()) } else { Err(Unusual) }
}

/// The prepared encoding of a type.
struct Plan {
    message: &'static Message,
    /// By position in `Message::fields`.
    members: Vec<Member>,
    /// The encodings of absent fields, in wire order.
    zeros: Vec<u8>,
    /// Offset in `zeros` of each rank; one more at the end.
    zeros_at: Vec<u32>,
}

/// The prepared encoding of a field.
struct Member {
    field: &'static Field,
    /// Position in wire order, counted without gaps; [`NO_RANK`] for fields without a protobuf form.
    rank: u16,
    /// The struct that protobuf nests it in, with that struct's field number.
    nested_in: Option<(u32, Below<Option<Plan>>)>,
    /// The type of its values, if a struct.
    below: Option<Below<Option<Plan>>>,
}

/// The rank of fields that have none.
const NO_RANK: u16 = u16::MAX;

/// `None` for types without a protobuf form.
static PLANS: Plans<Option<Plan>> = Plans::new(Plan::make);

impl Plan {
    fn make(message: &'static Message) -> Option<Plan> {
        if message.wire.is_empty() && !message.fields.is_empty() {
            return None;
        }
        let member = |field: &'static Field| Member {
            field,
            rank: NO_RANK,
            nested_in: None,
            below: Below::of_kind(field.kind),
        };
        let mut members: Vec<Member> = message.fields.iter().map(member).collect();
        let (mut zeros, mut zeros_at) = (Vec::new(), Vec::with_capacity(message.wire.len() + 1));
        for (rank, wire) in message.wire.iter().enumerate() {
            let rank = u16::try_from(rank).ok()?;
            zeros_at.push(u32::try_from(zeros.len()).ok()?);
            write_zero(message, wire, &mut zeros).ok()?;
            match wire.place {
                Place::Field(at) => members[usize::from(at)].rank = rank,
                Place::Inlined(at) => {
                    let inlined = &message.inlined[usize::from(at)];
                    for member in members.iter_mut().filter(|member| member.field.inlined == Some(at)) {
                        member.rank = rank;
                        member.nested_in = Some((wire.number, Below::new(inlined.message)));
                    }
                }
            }
        }
        zeros_at.push(u32::try_from(zeros.len()).ok()?);
        Some(Plan { message, members, zeros, zeros_at })
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<&Member> {
        self.message.position(name).map(|at| &self.members[usize::from(at)])
    }

    /// Appends the encodings of these ranks' fields when absent.
    #[inline]
    fn zeros(&self, from: usize, to: usize) -> &[u8] {
        &self.zeros[self.zeros_at[from] as usize..self.zeros_at[to] as usize]
    }

    /// Number of ranks.
    fn end(&self) -> usize {
        self.zeros_at.len() - 1
    }
}

/// A written field: its rank, and its range of the output.
type Written = (u16, usize, usize);

struct Writer<'t> {
    scan: Scan<'t>,
    /// Buffer for reordering fields.
    sorted: Vec<u8>,
    depth: usize,
}

impl Writer<'_> {
    fn object(&mut self, plan: &'static Plan, out: &mut Vec<u8>) -> Result<(), Unusual> {
        if !self.scan.take(b'{') || self.depth >= DEPTH_MAX {
            return Err(Unusual);
        }
        if self.scan.take(b'}') {
            out.extend_from_slice(&plan.zeros);
            return Ok(());
        }
        self.depth += 1;
        self.members(plan, false, out)?;
        self.depth -= 1;
        if self.scan.take(b'}') { Ok(()) } else { Err(Unusual) }
    }

    /// Writes members up to the end of the object; of a nested struct, the consecutive members that belong to it.
    fn members(&mut self, plan: &'static Plan, nested: bool, out: &mut Vec<u8>) -> Result<(), Unusual> {
        let begin = out.len();
        let mut written: SmallVec<[Written; 16]> = SmallVec::new();
        let (mut next, mut in_order) = (0, true);
        loop {
            let before = self.scan;
            let name = self.scan.name().filter(|name| !name.is_escaped).ok_or(Unusual)?;
            let Some(member) = plan.find(name.raw).filter(|member| member.rank != NO_RANK) else {
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
            let is_over = match &member.nested_in {
                Some((number, inner)) => {
                    let inner = inner.plan(&PLANS).as_ref().ok_or(Unusual)?;
                    self.scan = before;
                    write_delimited(*number, out, |out| self.members(inner, true, out))?;
                    // Either at the end, or at the next member after its comma.
                    self.scan.peek() == b'}'
                }
                None => {
                    if !self.scan.word("null") {
                        self.field(member, out)?;
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

    /// Replaces everything from `begin` on by the fields in `written`, in wire order, with the zeros of absent fields
    /// between.
    fn put_in_order(
        &mut self,
        plan: &'static Plan,
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
                return Err(Unusual); // twice
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

    /// The value of a member; the caller has handled `null`.
    fn field(&mut self, member: &'static Member, out: &mut Vec<u8>) -> Result<(), Unusual> {
        let field = member.field;
        match field.shape {
            Shape::Single => self.value(member, field.number, out),
            Shape::List => {
                if !self.scan.take(b'[') {
                    return Err(Unusual);
                }
                if self.scan.take(b']') {
                    return Ok(());
                }
                loop {
                    self.value(member, field.number, out)?;
                    if !self.scan.more(b']').ok_or(Unusual)? {
                        self.scan.take(b']');
                        return Ok(());
                    }
                }
            }
            Shape::Map => self.map(member, out),
            Shape::WrappedList | Shape::MapOfLists => Err(Unusual),
        }
    }

    fn map(&mut self, member: &'static Member, out: &mut Vec<u8>) -> Result<(), Unusual> {
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
            write_delimited(member.field.number, out, |out| {
                write_bytes(1, name, out);
                self.value(member, 2, out)
            })?;
            if !self.scan.more(b'}').ok_or(Unusual)? {
                self.scan.take(b'}');
                return Ok(());
            }
        }
    }

    /// One value under `number`; a `null` is unusual.
    fn value(&mut self, member: &'static Member, number: u32, out: &mut Vec<u8>) -> Result<(), Unusual> {
        match member.field.kind {
            Kind::String => {
                let text = self.scan.string().ok_or(Unusual)?;
                if text.is_escaped {
                    write_bytes(number, &text.unescaped().ok_or(Unusual)?, out);
                } else {
                    write_bytes(number, text.raw, out);
                }
            }
            Kind::Message(_) => {
                let below = member.below.as_ref().ok_or(Unusual)?;
                let plan = below.plan(&PLANS).as_ref().ok_or(Unusual)?;
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
                if !bytes.is_empty() || member.field.shape != Shape::Single {
                    write_bytes(number, &bytes, out);
                }
            }
            Kind::Quantity => {
                let text = self.plain_text()?;
                let text = quantity::canonical(text).map_err(|_| Unusual)?;
                write_delimited(number, out, |out| {
                    write_bytes(1, text.as_bytes(), out);
                    Ok(())
                })?;
            }
            Kind::IntOrString => {
                let (which, int, text) = match self.scan.peek() {
                    b'"' => (1, 0, self.plain_text()?),
                    _ => (0, self.parsed::<i32>()?, ""),
                };
                write_delimited(number, out, |out| {
                    write_int(1, which, out);
                    write_int(2, int.into(), out);
                    write_bytes(3, text.as_bytes(), out);
                    Ok(())
                })?;
            }
            Kind::Time | Kind::MicroTime => {
                let text = self.plain_text()?;
                let (seconds, nanos) =
                    time::unix(text).filter(|time| time.0 != time::ZERO_SECONDS).ok_or(Unusual)?;
                let nanos = if matches!(member.field.kind, Kind::Time) { 0 } else { nanos / 1000 * 1000 };
                write_delimited(number, out, |out| {
                    write_int(1, seconds, out);
                    write_int(2, nanos.into(), out);
                    Ok(())
                })?;
            }
            Kind::Duration => {
                let nanos = duration::parse(self.plain_text()?).map_err(|_| Unusual)?;
                write_delimited(number, out, |out| {
                    write_int(1, nanos, out);
                    Ok(())
                })?;
            }
            Kind::FieldsV1 => {
                let text = self.embedded()?;
                write_delimited(number, out, |out| {
                    write_bytes(1, text, out);
                    Ok(())
                })?;
            }
            Kind::RawExtension | Kind::Json => {
                let text = self.embedded()?;
                write_delimited(number, out, |out| {
                    write_bytes(1, text, out);
                    Ok(())
                })?;
            }
            Kind::SchemaOrArray(_) | Kind::SchemaOrBool(_) | Kind::SchemaOrStrings(_) => return Err(Unusual),
        }
        Ok(())
    }

    /// A number, if its text parses as its type.
    fn parsed<T: std::str::FromStr>(&mut self) -> Result<T, Unusual> {
        let text = self.scan.number().ok_or(Unusual)?;
        // Of the forms of zero, only `0` means the same to all parsers.
        let is_plain = !text.starts_with("-0") && !text.starts_with('+');
        text.parse().ok().filter(|_| is_plain).ok_or(Unusual)
    }

    /// A string without escapes.
    fn plain_text(&mut self) -> Result<&'_ str, Unusual> {
        let text = self.scan.string().filter(|text| !text.is_escaped).ok_or(Unusual)?;
        from_utf8(text.raw).map_err(|_| Unusual)
    }

    /// An object that protobuf holds as text.
    fn embedded(&mut self) -> Result<&'_ [u8], Unusual> {
        let text = self.scan.value().ok_or(Unusual)?;
        if text.starts_with(b"{") { Ok(text) } else { Err(Unusual) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::KUBERNETES;
    use crate::schema::builtin;

    #[test]
    fn unusual_texts_give_the_bytes_of_the_path_through_the_tree() {
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
            let decoded = crate::schema::decode::decode(pod, text.as_bytes()).unwrap().object;
            encode(pod, &decoded, &mut tree).unwrap();
            transcode(pod, text.as_bytes(), &mut out).unwrap();
            assert_eq!(out, tree, "{text}");
            assert!(!is_usual || fast == tree, "{text}");
        }
    }

    #[test]
    fn text_of_another_type_is_an_error_and_appends_nothing() {
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
}
