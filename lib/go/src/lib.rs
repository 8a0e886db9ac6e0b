//! Texts as the standard library of Go reads and writes them: quoted strings, durations, base64, IP addresses and URLs, with
//! its error messages, those of JSON among them, and how several errors are one. Clients of the reference server know them, and
//! configuration files are written for it.
//!
//! Nothing here knows objects, requests or expressions.

pub mod address;
pub mod base64;
pub mod date;
pub mod duration;
mod errors;
pub mod json;
mod quote;
pub mod url;

pub use errors::join_errors;
pub use quote::{Quoted, QuotedList, is_printable, quote, quote_bytes};
