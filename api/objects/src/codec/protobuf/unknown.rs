//! Fields of a later release that the schema does not contain. This module detects unknown fields in a message, and
//! preserves the unknown fields when the known fields change.
//!
//! ```text
//! old bytes ─ unknown fields, by the location of their message ─┐
//! new bytes ────────────────────────────────────────────────────┴─► new bytes with them, by ascending number
//! ```
//!
//! An old message corresponds to the new message in the same field. Elements of a list are matched by their keys if the
//! list has keys; otherwise they are matched by position if both lists have the same length. Entries of a map are
//! matched by their key. A message without a match in the new bytes is lost, together with its unknown fields.

use super::wire::{Data, Reader, WireError, write_delimited};
use types::schema::table::{Field, Kind, ListType, Message, Shape, WireMeaning};

/// Maximum depth of nesting that is searched. Except for schemas, no known type is nested deeper.
const LEVELS_MAX: usize = 64;

/// A field with its encoded bytes.
struct Raw<'b> {
    number: u32,
    data: Data<'b>,
    /// Bytes of the field, including its tag.
    bytes: &'b [u8],
}

fn fields(bytes: &[u8]) -> Result<Vec<Raw<'_>>, WireError> {
    let mut reader = Reader::new(bytes);
    let mut fields = Vec::new();
    let mut start = 0;
    while let Some((number, data)) = reader.next()? {
        let end = bytes.len() - reader.remaining();
        fields.push(Raw { number, data, bytes: &bytes[start..end] });
        start = end;
    }
    Ok(fields)
}

/// Returns the struct with a field number, and the field if the struct is the value of a field.
fn nested(message: &Message, number: u32) -> Option<(&Message, Option<&Field>)> {
    match message.wire_field(number)? {
        WireMeaning::Inlined(at) => Some((&message.inlined[usize::from(at)].message, None)),
        WireMeaning::Field(at) => {
            let field = &message.fields[usize::from(at)];
            let Kind::Message(inner) = field.element() else { return None };
            Some((inner, Some(field)))
        }
    }
}

/// Returns whether a message, or a message inside it, has fields that the schema does not contain.
///
/// # Errors
/// Fails if the bytes are not a message.
pub fn has_unknown(message: &Message, bytes: &[u8]) -> Result<bool, WireError> {
    has_unknown_at(message, bytes, 0)
}

fn has_unknown_at(message: &Message, bytes: &[u8], level: usize) -> Result<bool, WireError> {
    if level == LEVELS_MAX {
        return Ok(false);
    }
    let mut reader = Reader::new(bytes);
    while let Some((number, data)) = reader.next()? {
        if message.wire_field(number).is_none() {
            return Ok(true);
        }
        let (Some((inner, field)), Data::Bytes(bytes)) = (nested(message, number), data) else { continue };
        let bytes = match field.map(Field::shape) {
            Some(Shape::Map) => member(bytes, 2)?,
            Some(Shape::WrappedList | Shape::MapOfLists) => continue,
            _ => bytes,
        };
        if has_unknown_at(inner, bytes, level + 1)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the new bytes of a message with the unknown fields of the old bytes.
///
/// # Errors
/// Fails if the bytes are not a message.
pub fn graft(message: &Message, old: &[u8], new: &[u8]) -> Result<Vec<u8>, WireError> {
    graft_at(message, old, new, 0)
}

fn graft_at(message: &Message, old: &[u8], new: &[u8], level: usize) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::with_capacity(new.len() + 64);
    if level == LEVELS_MAX {
        out.extend_from_slice(new);
        return Ok(out);
    }
    let (old, new) = (fields(old)?, fields(new)?);
    let mut kept = old.iter().filter(|raw| message.wire_field(raw.number).is_none()).peekable();
    for (at, raw) in new.iter().enumerate() {
        while let Some(unknown) = kept.next_if(|unknown| unknown.number < raw.number) {
            out.extend_from_slice(unknown.bytes);
        }
        let (Some((inner, field)), Data::Bytes(bytes)) = (nested(message, raw.number), raw.data) else {
            out.extend_from_slice(raw.bytes);
            continue;
        };
        let same = |others: &[Raw<'_>]| others.iter().filter(|other| other.number == raw.number).count();
        let position = same(&new[..at]);
        let mut partners = old.iter().filter(|other| other.number == raw.number);
        let partner = match field {
            None => partners.next_back(),
            Some(field) => match field.shape() {
                Shape::Single => partners.next_back(),
                Shape::Map => {
                    let key = member(bytes, 1)?;
                    partners.find(|other| is(other.data, |other| Ok(member(other, 1)? == key)))
                }
                Shape::List => match field.list_type() {
                    ListType::Map(names) => {
                        let numbers: Vec<u32> = names.iter().filter_map(|name| number(inner, name)).collect();
                        let keys = keys(bytes, &numbers)?;
                        partners
                            .find(|other| is(other.data, |other| Ok(self::keys(other, &numbers)? == keys)))
                    }
                    _ if same(&old) == same(&new) => partners.nth(position),
                    _ => None,
                },
                Shape::WrappedList | Shape::MapOfLists => None,
            },
        };
        let Some(Data::Bytes(partner)) = partner.map(|partner| partner.data) else {
            out.extend_from_slice(raw.bytes);
            continue;
        };
        if field.is_some_and(|field| field.shape() == Shape::Map) {
            let value = graft_at(inner, member(partner, 2)?, member(bytes, 2)?, level + 1)?;
            write_delimited(raw.number, &mut out, |out| {
                for entry in fields(bytes)? {
                    match entry.number {
                        2 => write_delimited(2, out, |out| {
                            out.extend_from_slice(&value);
                            Ok::<_, WireError>(())
                        })?,
                        _ => out.extend_from_slice(entry.bytes),
                    }
                }
                Ok::<_, WireError>(())
            })?;
            continue;
        }
        let grafted = graft_at(inner, partner, bytes, level + 1)?;
        write_delimited(raw.number, &mut out, |out| {
            out.extend_from_slice(&grafted);
            Ok::<_, WireError>(())
        })?;
    }
    kept.for_each(|unknown| out.extend_from_slice(unknown.bytes));
    Ok(out)
}

fn is(data: Data<'_>, test: impl Fn(&[u8]) -> Result<bool, WireError>) -> bool {
    matches!(data, Data::Bytes(bytes) if test(bytes).unwrap_or(false))
}

fn number(message: &Message, name: &str) -> Option<u32> {
    message.fields.iter().find(|field| field.name == name).map(|field| field.number)
}

/// Returns the bytes of the last field with this number; empty if there is no such field.
fn member(bytes: &[u8], number: u32) -> Result<&[u8], WireError> {
    let mut reader = Reader::new(bytes);
    let mut found = &[][..];
    while let Some((at, data)) = reader.next()? {
        if let (true, Data::Bytes(bytes)) = (at == number, data) {
            found = bytes;
        }
    }
    Ok(found)
}

/// Returns the encoded key fields that identify a list element.
fn keys<'b>(bytes: &'b [u8], numbers: &[u32]) -> Result<Vec<&'b [u8]>, WireError> {
    let fields = fields(bytes)?;
    Ok(fields.iter().filter(|raw| numbers.contains(&raw.number)).map(|raw| raw.bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::super::wire::{write_bytes, write_int};
    use super::*;
    use types::schema::builtin;
    use values::naming::KUBERNETES;

    /// Returns a message whose fields are appended by `build`.
    fn message(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        build(&mut out);
        out
    }

    fn container(name: &str, unknown: bool) -> Vec<u8> {
        message(|out| {
            write_bytes(1, name.as_bytes(), out);
            if unknown {
                write_bytes(900, name.as_bytes(), out);
            }
        })
    }

    /// Returns a pod spec with containers as field 2, and with an unknown field before and after the
    /// containers.
    fn spec(containers: &[Vec<u8>], unknown: bool) -> Vec<u8> {
        message(|out| {
            containers.iter().for_each(|container| write_bytes(2, container, out));
            if unknown {
                write_int(901, 7, out);
            }
        })
    }

    #[test]
    fn unknown_fields_stay_in_the_message_that_contained_them() {
        let pod_spec = builtin::message(&KUBERNETES, "api.core.v1.PodSpec").unwrap();
        let (a, b, c) = (container("a", true), container("b", true), container("c", false));
        let (plain_a, plain_b) = (container("a", false), container("b", false));
        let old = spec(&[a.clone(), b.clone()], true);
        for (new, want) in [
            (spec(&[plain_a.clone(), plain_b.clone()], false), old.clone()),
            // Elements are matched by their keys, not by position. Removing an element removes its unknown
            // fields.
            (spec(&[c.clone(), plain_b.clone()], false), spec(&[c.clone(), b.clone()], true)),
            (spec(&[], false), spec(&[], true)),
        ] {
            assert!(!has_unknown(pod_spec, &new).unwrap());
            assert_eq!(graft(pod_spec, &old, &new).unwrap(), want);
        }
        assert!(has_unknown(pod_spec, &old).unwrap());
        assert!(has_unknown(pod_spec, &spec(&[a], false)).unwrap());
        assert_eq!(graft(pod_spec, &plain_spec(), &plain_spec()).unwrap(), plain_spec());
        assert!(graft(pod_spec, b"\x12\x05", b"").is_err());
    }

    fn plain_spec() -> Vec<u8> {
        spec(&[container("a", false)], false)
    }
}
