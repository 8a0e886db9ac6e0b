//! Encodings other than JSON. Each encoding has one file or folder, and converts between bytes and trees or
//! stored JSON.

pub mod cbor;
pub mod protobuf;

#[cfg(test)]
mod agreement_test;
