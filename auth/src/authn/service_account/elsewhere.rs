//! Tokens that are signed elsewhere: the header and the signature that a signer made of claims, checked before a client gets
//! the token (docs/api/authentication.md#external-signers).
//!
//! What the signer says is not believed: the algorithm is one that this server signs with itself, so neither `none` nor a
//! shared secret, and the signature is verified with the key that the header names.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use go::quote;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::authn::VerificationKey;
use crate::authn::jws::{Compact, TOKEN_BYTES_MAX};
use crate::authn::signing::is_signed_by_named;

/// Longest id of a key: what kube-apiserver takes.
pub const KEY_ID_BYTES_MAX: usize = 1 << 10;

/// The algorithms that a header may name.
const ALGORITHMS: [&str; 4] = ["RS256", "ES256", "ES384", "ES512"];

/// What is wrong with the answer of a signer, in the words of kube-apiserver where it has some.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The header is not base64.
    #[error("while validating header: while unwrapping header: {0}")]
    Encoding(base64::DecodeError),
    /// The header is not the expected object.
    #[error("while validating header: while parsing header JSON: {0}")]
    Header(serde_json::Error),
    /// The header is of another type.
    #[error("while validating header: bad type")]
    Type,
    /// The header names no key.
    #[error("while validating header: key id missing")]
    NoKey,
    /// The header names a key by too long a name.
    #[error("while validating header: key id longer than 1 kb")]
    LongKey,
    /// Another algorithm.
    #[error("while validating header: bad signing algorithm {}", quote(.0))]
    Algorithm(String),
    /// No signature.
    #[error("empty signature returned")]
    NoSignature,
    /// The token would be too long for this server.
    #[error("the token has {0} bytes, more than {max}", max = TOKEN_BYTES_MAX)]
    Long(usize),
    /// The key that the header names did not sign the claims, or is unknown.
    #[error("the signature is not one of the key {}", quote(.0))]
    Signature(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    #[serde(default)]
    alg: String,
    #[serde(default)]
    kid: String,
    #[serde(default)]
    typ: String,
}

/// The id of the key that a header names, if the header is as it should be.
///
/// # Errors
/// What is wrong with it.
pub fn key_id_of(header: &str) -> Result<String, AnswerError> {
    let bytes = URL_SAFE_NO_PAD.decode(header).map_err(AnswerError::Encoding)?;
    // A structure could also be read from an array.
    let members: Map<String, Value> = serde_json::from_slice(&bytes).map_err(AnswerError::Header)?;
    let Header { alg, kid, typ } = serde_json::from_value(members.into()).map_err(AnswerError::Header)?;
    match kid.len() {
        _ if typ != "JWT" => Err(AnswerError::Type),
        0 => Err(AnswerError::NoKey),
        len if len > KEY_ID_BYTES_MAX => Err(AnswerError::LongKey),
        _ if !ALGORITHMS.contains(&alg.as_str()) => Err(AnswerError::Algorithm(alg)),
        _ => Ok(kid),
    }
}

/// The token of a header, claims and a signature, each in base64url, if one of `keys` signed it.
///
/// # Errors
/// What is wrong with it.
pub fn assemble(
    header: &str,
    claims: &str,
    signature: &str,
    keys: &[VerificationKey],
) -> Result<String, AnswerError> {
    let id = key_id_of(header)?;
    if signature.is_empty() {
        return Err(AnswerError::NoSignature);
    }
    let token = [header, claims, signature].join(".");
    if token.len() > TOKEN_BYTES_MAX {
        return Err(AnswerError::Long(token.len()));
    }
    match Compact::parse(&token).is_ok_and(|parsed| is_signed_by_named(&parsed, keys)) {
        true => Ok(token),
        false => Err(AnswerError::Signature(id)),
    }
}

#[cfg(test)]
#[path = "elsewhere_test.rs"]
mod tests;
