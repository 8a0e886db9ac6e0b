//! Text forms of the Go standard library that clients and operators see: quoted strings and durations.

pub mod duration;
mod quote;
pub mod url;

pub(crate) use quote::QuotedList;
pub use quote::{Quoted, quote};
