//! Protobuf codec that follows the tables of `schema::table` (docs/api/encodings.md#protobuf), without
//! generated code.
//!
//! ```text
//! request body ─envelope─► kind, raw ─decode─► tree (canonical, as schema::decode makes it) ─► …
//! stored JSON ─transcode─► raw ─envelope─► response
//!      └─ unusual ─schema::decode─► tree ─encode─► raw
//! ```
//!
//! `wire` handles tags and lengths. `decode`, `encode` and `transcode` handle messages. `envelope` handles
//! the outer message, which contains another message.

pub mod decode;
pub mod encode;
pub mod envelope;
mod memo;
mod transcode;
pub mod unknown;
mod wire;

#[cfg(test)]
mod agreement_test;

pub use decode::decode;
pub use encode::{EncodeError, encode};
pub use memo::MEMO_BYTES;
pub use transcode::{Transcoder, transcode};
pub use wire::Reader;
pub use wire::{write_bytes, write_delimited};
