//! The author of a write, which is stored with the attributes of a record (docs/format.md#authors).
//!
//! ```text
//! 0  kind of write: 3 put, 4 delete
//! 1  flags: 1 the manager is the user agent before its first slash, 2 the audit ID is the 16 bytes of a UUID,
//!    4 the source is an IPv4 address of 4 bytes, 8 an IPv6 address of 16 bytes; without both flags there is no source
//! 2  user, user agent, field manager, audit ID, source, subresource: len (varint) ‖ text …
//! ```
//!
//! A part that a flag describes has no length. Every record contains an author, so the size of the author
//! matters: the flags save about a third of the size. Earlier builds wrote all parts as texts, without flags,
//! and with the kind 1 for a put and 2 for a delete.
//!
//! A reader treats absent texts as empty, and ignores texts after the subresource. Long texts are cut, so an
//! author has a bounded size. If the store itself deletes an object (expiry), the record of the deletion has
//! a copy of the attributes of the deleted object. The kind of write in this copy is the kind of the last
//! write, so readers can see that the author did not request the deletion.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::attributes::{
    AUTHOR_LEN_BYTES, FLAGS_AT, HAS_AUTHOR, HEADER_LEN, push_len, split_author, take, take_len,
};

/// Maximum size of an encoded author in bytes.
pub const AUTHOR_BYTES_MAX: usize = 512;

/// Maximum lengths of the texts.
const USER_BYTES_MAX: usize = 160;
const USER_AGENT_BYTES_MAX: usize = 96;
const MANAGER_BYTES_MAX: usize = 96;
const REQUEST_ID_BYTES_MAX: usize = 64;
const SUBRESOURCE_BYTES_MAX: usize = 24;

/// Bytes of kind and flags, of the longest address, and of the length of each text.
const HEAD_BYTES: usize = 2;
const ADDRESS_BYTES_MAX: usize = 16;
const LENGTHS_BYTES_MAX: usize = 2 * 5;

const _: () = assert!(
    HEAD_BYTES
        + LENGTHS_BYTES_MAX
        + USER_BYTES_MAX
        + USER_AGENT_BYTES_MAX
        + MANAGER_BYTES_MAX
        + REQUEST_ID_BYTES_MAX
        + ADDRESS_BYTES_MAX
        + SUBRESOURCE_BYTES_MAX
        <= AUTHOR_BYTES_MAX
);

const PUT_AS_TEXTS: u8 = 1;
const DELETE_AS_TEXTS: u8 = 2;
const PUT: u8 = 3;
const DELETE: u8 = 4;

const MANAGER_IS_AGENT: u8 = 1;
const ID_IS_UUID: u8 = 2;
const SOURCE_IS_V4: u8 = 4;
const SOURCE_IS_V6: u8 = 8;

/// Length of a UUID as text, and the positions of its hyphens.
const UUID_TEXT_BYTES: usize = 36;
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// The last characters of a text that was cut.
const CUT: &str = "…";

/// The author of a write. Unknown texts are empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WriteAuthor<'a> {
    /// Whether the write is a delete.
    pub deletes: bool,
    /// Name of the user.
    pub user: Cow<'a, str>,
    /// User agent of the client.
    pub user_agent: Cow<'a, str>,
    /// Field manager of the write.
    pub manager: Cow<'a, str>,
    /// Audit ID of the request.
    pub request_id: Cow<'a, str>,
    /// IP address of the client.
    pub source: Option<IpAddr>,
    /// Subresource through which the object was written.
    pub subresource: Cow<'a, str>,
}

impl<'a> WriteAuthor<'a> {
    /// Appends the encoded author, which has at most [`AUTHOR_BYTES_MAX`] bytes.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([if self.deletes { DELETE } else { PUT }, 0]);
        let mut flags = 0;
        push_text(&self.user, USER_BYTES_MAX, out);
        let agent = cut(&self.user_agent, USER_AGENT_BYTES_MAX);
        push_text(&agent, USER_AGENT_BYTES_MAX, out);
        if !self.manager.is_empty() && before_slash(&agent) == self.manager {
            flags |= MANAGER_IS_AGENT;
        } else {
            push_text(&self.manager, MANAGER_BYTES_MAX, out);
        }
        match uuid(&self.request_id) {
            Some(id) => {
                flags |= ID_IS_UUID;
                out.extend(id);
            }
            None => push_text(&self.request_id, REQUEST_ID_BYTES_MAX, out),
        }
        match self.source {
            Some(IpAddr::V4(address)) => {
                flags |= SOURCE_IS_V4;
                out.extend(address.octets());
            }
            Some(IpAddr::V6(address)) => {
                flags |= SOURCE_IS_V6;
                out.extend(address.octets());
            }
            None => {}
        }
        if !self.subresource.is_empty() {
            push_text(&self.subresource, SUBRESOURCE_BYTES_MAX, out);
        }
        out[start + 1] = flags;
    }

    /// Returns encoded attributes in which this author replaces any other author. The author is omitted if
    /// the attributes would exceed the limit of the engine. Selectors do not depend on the author.
    pub fn added_to(&self, attributes: &[u8]) -> Vec<u8> {
        let attributes = split_author(attributes).0;
        let mut out = Vec::with_capacity(attributes.len() + self.encoded_len_max() + AUTHOR_LEN_BYTES);
        out.extend_from_slice(attributes);
        let Some(flags) = out.get_mut(FLAGS_AT) else { return out };
        *flags &= !HAS_AUTHOR;
        if attributes.len() < HEADER_LEN || out.capacity() > engine::ATTRIBUTES_BYTES_MAX {
            return out;
        }
        out[FLAGS_AT] |= HAS_AUTHOR;
        self.append_to(&mut out);
        let len = (out.len() - attributes.len()) as u16;
        out.extend(len.to_le_bytes());
        out
    }

    /// Returns the encoded author.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_to(&mut out);
        out
    }

    /// Returns an upper limit of the length of the encoded author.
    fn encoded_len_max(&self) -> usize {
        let texts = [&self.user, &self.user_agent, &self.manager, &self.request_id, &self.subresource];
        let len: usize = texts.iter().map(|text| text.len()).sum();
        (HEAD_BYTES + LENGTHS_BYTES_MAX + ADDRESS_BYTES_MAX + len).min(AUTHOR_BYTES_MAX)
    }

    /// Decodes an author; `None` if the bytes are not an author.
    pub fn decode(bytes: &'a [u8]) -> Option<WriteAuthor<'a>> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            PUT_AS_TEXTS | DELETE_AS_TEXTS => Some(WriteAuthor::from_texts(kind == DELETE_AS_TEXTS, rest)),
            PUT | DELETE => {
                let (&flags, rest) = rest.split_first()?;
                Some(WriteAuthor::from_parts(kind == DELETE, flags, rest))
            }
            _ => None,
        }
    }

    fn from_texts(deletes: bool, mut rest: &'a [u8]) -> WriteAuthor<'a> {
        let mut next = || take_text(&mut rest);
        WriteAuthor {
            deletes,
            user: next(),
            user_agent: next(),
            manager: next(),
            request_id: next(),
            source: next().parse().ok(),
            subresource: next(),
        }
    }

    fn from_parts(deletes: bool, flags: u8, mut rest: &'a [u8]) -> WriteAuthor<'a> {
        let has = |flag| flags & flag != 0;
        let (user, user_agent) = (take_text(&mut rest), take_text(&mut rest));
        let manager = if has(MANAGER_IS_AGENT) {
            Cow::Owned(before_slash(&user_agent).to_owned())
        } else {
            take_text(&mut rest)
        };
        let request_id = if has(ID_IS_UUID) {
            take_array(&mut rest).map(|id| Cow::Owned(uuid_text(id))).unwrap_or_default()
        } else {
            take_text(&mut rest)
        };
        let source = if has(SOURCE_IS_V4) {
            take_array(&mut rest).map(|octets: [u8; 4]| Ipv4Addr::from(octets).into())
        } else if has(SOURCE_IS_V6) {
            take_array(&mut rest).map(|octets: [u8; 16]| Ipv6Addr::from(octets).into())
        } else {
            None
        };
        WriteAuthor {
            deletes,
            user,
            user_agent,
            manager,
            request_id,
            source,
            subresource: take_text(&mut rest),
        }
    }
}

fn push_text(text: &str, max: usize, out: &mut Vec<u8>) {
    let text = cut(text, max);
    push_len(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Cow<'a, str> {
    let text = take_len(rest).and_then(|len| take(rest, len)).unwrap_or_default();
    String::from_utf8_lossy(text)
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    take(rest, N)?.try_into().ok()
}

fn before_slash(agent: &str) -> &str {
    agent.split_once('/').map_or(agent, |(name, _)| name)
}

/// Returns the bytes of a UUID whose text is in the canonical form, in lower case.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let text: &[u8; UUID_TEXT_BYTES] = text.as_bytes().try_into().ok()?;
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 16];
    let mut at = 0;
    for byte in &mut bytes {
        if HYPHENS.contains(&at) {
            if text[at] != b'-' {
                return None;
            }
            at += 1;
        }
        *byte = digit(text[at])? << 4 | digit(text[at + 1])?;
        at += 2;
    }
    Some(bytes)
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(UUID_TEXT_BYTES);
    for byte in bytes {
        if HYPHENS.contains(&text.len()) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0xf] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    text
}

/// Returns a text of at most `max` bytes, with [`CUT`] at its end if `text` was longer.
fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return text.into();
    }
    let end = text.floor_char_boundary(max - CUT.len());
    format!("{}{CUT}", &text[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0a1f63c0-1e23-4a58-9d39-0b6c4f0f9a63";

    fn author(texts: [&str; 6]) -> WriteAuthor<'_> {
        let source = texts[4].parse().ok();
        let [user, user_agent, manager, request_id, _, subresource] = texts.map(Cow::Borrowed);
        WriteAuthor { deletes: false, user, user_agent, manager, request_id, source, subresource }
    }

    #[test]
    fn an_author_survives_the_round_trip_in_few_bytes() {
        for (texts, len) in [
            (["alice", "kubectl/v1.36", "kubectl", UUID, "192.0.2.7", ""], 2 + 6 + 14 + 16 + 4),
            (
                ["alice", "kubectl/v1.36", "kubectl-edit", UUID, "192.0.2.7", "status"],
                2 + 6 + 14 + 13 + 16 + 4 + 7,
            ),
            (["alice", "curl", "curl", "0f3e", "2001:db8::7", ""], 2 + 6 + 5 + 5 + 16),
            (["system:apiserver", "", "", "", "", ""], 2 + 17 + 1 + 1 + 1),
            (["", "/", "", &UUID.to_uppercase(), "", "scale"], 2 + 1 + 2 + 1 + 37 + 6),
            (["", "a", "a/b", &UUID.replace('-', "_"), "::1", ""], 2 + 1 + 2 + 4 + 37 + 16),
        ] {
            for deletes in [false, true] {
                let author = WriteAuthor { deletes, ..author(texts) };
                let encoded = author.encode();
                assert_eq!(WriteAuthor::decode(&encoded), Some(author.clone()), "{texts:?}");
                assert_eq!(encoded.len(), len, "{texts:?}");
                assert!(encoded.len() <= author.encoded_len_max(), "{texts:?}");
            }
        }
    }

    #[test]
    fn long_author_texts_are_truncated_between_characters() {
        let long = "ä".repeat(1000);
        let author = author([&long, &long, &long, &long, "2001:db8::7", &long]);
        let encoded = author.encode();
        assert!(encoded.len() <= AUTHOR_BYTES_MAX, "{}", encoded.len());
        let decoded = WriteAuthor::decode(&encoded).unwrap();
        assert_eq!(decoded.user, format!("{}…", "ä".repeat(78)));
        assert_eq!(decoded.subresource, format!("{}…", "ä".repeat(10)));
    }

    #[test]
    fn authors_stored_as_texts_by_earlier_builds_are_decoded() {
        let texts = ["alice", "kubectl/v1.36", "kubectl-edit", "0f3e", "192.0.2.7", "status"];
        for (kind, deletes) in [(PUT_AS_TEXTS, false), (DELETE_AS_TEXTS, true)] {
            let mut bytes = vec![kind];
            texts.iter().for_each(|text| push_text(text, 100, &mut bytes));
            assert_eq!(WriteAuthor::decode(&bytes), Some(WriteAuthor { deletes, ..author(texts) }));
        }
    }

    #[test]
    fn unknown_and_damaged_author_bytes_are_decoded_as_far_as_possible() {
        let encoded = author(["alice", "kubectl/v1", "kubectl", UUID, "192.0.2.7", "status"]).encode();
        for len in 2..encoded.len() {
            let decoded = WriteAuthor::decode(&encoded[..len]).unwrap();
            assert!(decoded.user.is_empty() || decoded.user == "alice", "{decoded:?}");
        }
        let mut longer = encoded.clone();
        longer.extend([3, b'n', b'e', b'w']);
        assert_eq!(WriteAuthor::decode(&longer).unwrap().user_agent, "kubectl/v1");
        for bytes in [&b""[..], b"\x00", b"\x03", b"\x07alice"] {
            assert_eq!(WriteAuthor::decode(bytes), None);
        }
        for bytes in [&b"\x01\xff\xff\xff"[..], b"\x03\x00\xff\xff\xff", b"\x03\xff"] {
            assert_eq!(WriteAuthor::decode(bytes).unwrap(), author([""; 6]), "{bytes:?}");
        }
    }
}
