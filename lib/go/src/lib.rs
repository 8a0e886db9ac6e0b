//! Text formats of the Go standard library: quoted strings, durations, base64, IP addresses, paths and URLs, with
//! Go's error messages, including those of JSON, and the text that joins several errors. Clients of the
//! reference server rely on these texts, and configuration files are written in these formats.
//!
//! This crate does not depend on objects, requests or expressions.

pub mod address;
pub mod base64;
pub mod date;
pub mod duration;
mod errors;
pub mod json;
pub mod path;
mod quote;
pub mod url;

pub use errors::join_errors;
pub use quote::{Quoted, QuotedList, is_printable, quote, quote_bytes};
