//! Constants, which are both literals of a syntax tree and values that need no evaluation.

use std::sync::Arc;

/// A constant of the language.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// The literal `null`, the only value of its type.
    Null,
    /// The literals `true` and `false`.
    Bool(bool),
    /// A signed integer: `1`, `-1`, `0x1`.
    Int(i64),
    /// An unsigned integer: `1u`.
    Uint(u64),
    /// A floating point number: `1.0`.
    Double(f64),
    /// A text literal: `'text'`.
    String(Arc<str>),
    /// A bytes literal: `b'text'`.
    Bytes(Arc<[u8]>),
}
