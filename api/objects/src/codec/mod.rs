//! Encodings other than JSON, one file or folder for each. They convert to and from trees or stored bytes.

pub mod cbor;
pub mod protobuf;

#[cfg(test)]
mod agreement_test;
