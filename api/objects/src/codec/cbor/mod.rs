//! CBOR: converts items to trees and trees to items, as the codec of the reference server does
//! (docs/api/encodings.md#cbor, RFC 8949).
//!
//! ```text
//! request body ──decode──► tree ─► schema::conform ─► …          tree + schema ──encode──► d9 d9 f7 item
//! ```
//!
//! Strings and names are written as *byte* strings. Byte fields are written as byte strings under tag 22
//! (base64 expected later). A reader without the schema then gets the same text as from JSON. The codec is
//! our own, because a head takes only a dozen lines, and no available crate reads byte strings as names.

mod decode;
mod encode;

pub use decode::{CborError, parse};
pub use encode::{encode, write, write_array_head, write_map_head, write_text};

/// The self-described tag (RFC 8949), with which every document begins.
pub const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// Major types, which are the upper three bits of a head.
mod major {
    pub(super) const UNSIGNED: u8 = 0;
    pub(super) const NEGATIVE: u8 = 1;
    pub(super) const BYTES: u8 = 2;
    pub(super) const TEXT: u8 = 3;
    pub(super) const ARRAY: u8 = 4;
    pub(super) const MAP: u8 = 5;
    pub(super) const TAG: u8 = 6;
    pub(super) const SIMPLE: u8 = 7;
}

/// The tags that the decoder interprets.
mod tag {
    pub(super) const TIME_TEXT: u64 = 0;
    pub(super) const POSITIVE_BIGNUM: u64 = 2;
    pub(super) const NEGATIVE_BIGNUM: u64 = 3;
    pub(super) const BASE64_URL: u64 = 21;
    pub(super) const BASE64: u64 = 22;
    pub(super) const BASE16: u64 = 23;
}
