//! Encodings other than JSON: each one file or folder, each from and to the tree or the stored bytes.

pub mod cbor;
pub mod protobuf;
pub mod yaml;

#[cfg(test)]
mod agreement_test;
