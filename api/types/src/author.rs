//! The author of a write, as it is stored with the attributes of a record (docs/format.md#authors).
//!
//! ```text
//! 0  kind of write: 1 put, 2 delete
//! 1  user, user agent, field manager, audit ID, source address, subresource: len (varint) ‖ text …
//! ```
//!
//! A reader treats absent texts as empty, and ignores texts that follow the last one that it knows. Longer
//! texts are cut, so an author has a bounded size. A delete that the store makes by itself copies the
//! attributes of the state that it removes; the kind of write then shows that the author is that of the
//! state.

use std::borrow::Cow;

use crate::attributes::{push_len, take, take_len};

/// Maximum size of an encoded author in bytes.
pub const AUTHOR_BYTES_MAX: usize = 512;

/// Maximum lengths of the texts, in the order in which they are stored.
const TEXT_BYTES_MAX: [usize; 6] = [160, 96, 96, 64, 46, 24];

const LENGTHS_BYTES_MAX: usize = 2 * TEXT_BYTES_MAX.len();

const _: () = {
    let (mut sum, mut at) = (1 + LENGTHS_BYTES_MAX, 0);
    while at < TEXT_BYTES_MAX.len() {
        sum += TEXT_BYTES_MAX[at];
        at += 1;
    }
    assert!(sum <= AUTHOR_BYTES_MAX);
};

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// The end of a text that was cut.
const CUT: &str = "…";

/// The author of a write. Texts that are not known are empty.
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
    pub source: Cow<'a, str>,
    /// Subresource through which the object was written.
    pub subresource: Cow<'a, str>,
}

impl<'a> WriteAuthor<'a> {
    fn texts(&self) -> [&str; 6] {
        [&self.user, &self.user_agent, &self.manager, &self.request_id, &self.source, &self.subresource]
    }

    /// Encodes the author in at most [`AUTHOR_BYTES_MAX`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let texts = self.texts();
        let len: usize = texts.iter().map(|text| text.len()).sum();
        let mut out = Vec::with_capacity((1 + LENGTHS_BYTES_MAX + len).min(AUTHOR_BYTES_MAX));
        out.push(if self.deletes { DELETE } else { PUT });
        for (text, max) in texts.into_iter().zip(TEXT_BYTES_MAX) {
            let text = cut(text, max);
            push_len(text.len(), &mut out);
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    /// Decodes an author; `None` for bytes that are not one.
    pub fn decode(bytes: &'a [u8]) -> Option<WriteAuthor<'a>> {
        let (&kind, mut rest) = bytes.split_first()?;
        let deletes = match kind {
            PUT => false,
            DELETE => true,
            _ => return None,
        };
        let mut next = || {
            let text = take_len(&mut rest).and_then(|len| take(&mut rest, len)).unwrap_or_default();
            String::from_utf8_lossy(text)
        };
        Some(WriteAuthor {
            deletes,
            user: next(),
            user_agent: next(),
            manager: next(),
            request_id: next(),
            source: next(),
            subresource: next(),
        })
    }
}

/// Returns a text of at most `max` bytes, with [`CUT`] at its end if it was longer.
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

    fn author(texts: [&str; 6]) -> WriteAuthor<'_> {
        let [user, user_agent, manager, request_id, source, subresource] = texts.map(Cow::Borrowed);
        WriteAuthor { deletes: false, user, user_agent, manager, request_id, source, subresource }
    }

    #[test]
    fn an_author_survives_the_round_trip() {
        let texts = ["alice", "kubectl/v1.36", "kubectl-edit", "0f3e", "192.0.2.7", "status"];
        for deletes in [false, true] {
            let author = WriteAuthor { deletes, ..author(texts) };
            assert_eq!(WriteAuthor::decode(&author.encode()), Some(author));
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "ä".repeat(1000);
        let encoded = author([&long; 6]).encode();
        assert!(encoded.len() <= AUTHOR_BYTES_MAX, "{}", encoded.len());
        let decoded = WriteAuthor::decode(&encoded).unwrap();
        assert_eq!(decoded.user, format!("{}…", "ä".repeat(78)));
        assert_eq!(decoded.subresource, format!("{}…", "ä".repeat(10)));
    }

    #[test]
    fn bytes_of_other_releases_and_damaged_bytes_are_read_as_far_as_they_go() {
        let encoded = author(["alice", "kubectl", "", "", "", ""]).encode();
        for len in 1..encoded.len() {
            let decoded = WriteAuthor::decode(&encoded[..len]).unwrap();
            assert!(decoded.user.is_empty() || decoded.user == "alice", "{decoded:?}");
        }
        let mut longer = encoded.clone();
        longer.extend([3, b'n', b'e', b'w']);
        assert_eq!(WriteAuthor::decode(&longer).unwrap().user_agent, "kubectl");
        for bytes in [&b""[..], b"\x00", b"\x07alice"] {
            assert_eq!(WriteAuthor::decode(bytes), None);
        }
        assert_eq!(WriteAuthor::decode(b"\x01\xff\xff\xff").unwrap(), author([""; 6]));
    }
}
