//! Protobuf by schema (semantics §18): the tables of `schema::table` are all there is, no message is generated code.
//!
//! ```text
//! body ─envelope─► kind, raw ─decode─► tree (canonical, as schema::decode makes it) ─► …
//! stored JSON ─schema::decode─► tree ─encode─► raw ─envelope─► response
//! ```
//!
//! `wire` knows tags and lengths, `decode` and `encode` know messages, `envelope` knows what is around them.
//! [`transcode`] is the seam for serving: today it goes through a tree, and nobody outside can tell.

pub mod decode;
pub mod encode;
pub mod envelope;
mod wire;

#[cfg(test)]
mod agreement_test;
#[cfg(test)]
pub(super) mod generate;

pub use decode::decode;
pub use encode::{EncodeError, encode};
pub use wire::{write_bytes, write_delimited};

use crate::schema::table::Message;

/// Appends the protobuf form of an object given as JSON text of type `message`, without envelope.
///
/// # Errors
/// Text that is not of that type; nothing is appended then.
pub fn transcode(message: &'static Message, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let decoded = crate::schema::decode::decode(message, json)?;
    encode(message, &decoded.object, out)
}
