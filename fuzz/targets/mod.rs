//! The fuzz targets, one file for each area.

pub mod accept;
pub mod apply;
pub mod attributes;
pub mod codecs;
pub mod continue_token;
pub mod credentials;
pub mod engine_decode;
pub mod engine_model;
pub mod engine_recovery;
pub mod expressions;
pub mod json_text;
pub mod patch;
mod patch_model;
pub mod patch_round_trip;
pub mod request;
pub mod scalars;
pub mod schema;
pub mod selectors;
pub mod table;
pub mod validation;
pub mod writes;
pub mod yaml_layout;

use values::json::{Value, write};
use values::status::Status;

/// Writes `value` as compact JSON.
fn text(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write(value, &mut out);
    out
}

/// Checks the invariants of every refusal: one of the given codes, a message, and a body that can be encoded.
fn check_refusal(status: &Status, codes: &[u16]) {
    assert!(codes.contains(&status.code.as_u16()), "{} {}", status.code, status.message);
    assert!(!status.message.is_empty());
    let body = text(&status.to_value());
    assert!(values::json::parse(&body).is_ok(), "{}", String::from_utf8_lossy(&body));
}
