//! Encodings other than JSON, one file or folder each; they convert to and from trees or stored bytes.

pub mod cbor;
pub mod protobuf;

#[cfg(test)]
mod agreement_test;
