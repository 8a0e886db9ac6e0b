//! Tokens of an external signer. The signer returns a header and a signature for claims. The server checks
//! the header and the signature before a client receives the token
//! (docs/api/authentication.md#external-signers).
//!
//! The response of the signer is not trusted. The algorithm must be an algorithm with which this server
//! itself can sign, so `none` and shared secrets are not possible. The signature is verified with the key
//! that the header names.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use go::quote;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::authn::VerificationKey;
use crate::authn::jws::{Compact, TOKEN_BYTES_MAX};
use crate::authn::signing::is_signed_by_named;

/// Size limit of a key id in bytes, as in kube-apiserver.
pub const KEY_ID_BYTES_MAX: usize = 1 << 10;

/// Algorithms that the header of a token may name.
const ALGORITHMS: [&str; 4] = ["RS256", "ES256", "ES384", "ES512"];

/// Reasons why the response of a signer is refused. The texts equal the texts of the same errors in
/// kube-apiserver.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The header is not base64.
    #[error("while validating header: while unwrapping header: {0}")]
    Encoding(base64::DecodeError),
    /// The header is not the expected JSON object.
    #[error("while validating header: while parsing header JSON: {0}")]
    Header(serde_json::Error),
    /// The type in the header is not `JWT`.
    #[error("while validating header: bad type")]
    Type,
    /// The header names no key.
    #[error("while validating header: key id missing")]
    NoKey,
    /// The key id in the header is too long.
    #[error("while validating header: key id longer than 1 kb")]
    LongKey,
    /// The header names an algorithm that is not allowed.
    #[error("while validating header: bad signing algorithm {}", quote(.0))]
    Algorithm(String),
    /// The signature is empty.
    #[error("empty signature returned")]
    NoSignature,
    /// The token would exceed the size limit of this server.
    #[error("the token has {0} bytes, more than {max}", max = TOKEN_BYTES_MAX)]
    Long(usize),
    /// The key that the header names is unknown or did not sign the claims.
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

/// Checks a header, and returns the id of the key in the header.
///
/// # Errors
/// Returns the reason why the header is refused.
pub fn key_id_of(header: &str) -> Result<String, AnswerError> {
    let bytes = URL_SAFE_NO_PAD.decode(header).map_err(AnswerError::Encoding)?;
    // Parse a map first, because serde would accept an array as a structure.
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

/// Joins a header, claims and a signature to a token, and checks that one of `keys` signed the token. The
/// three parts are in base64url.
///
/// # Errors
/// Returns the reason why the response is refused.
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
    if Compact::parse(&token).is_ok_and(|parsed| is_signed_by_named(&parsed, keys)) {
        Ok(token)
    } else {
        Err(AnswerError::Signature(id))
    }
}

#[cfg(test)]
#[path = "external_signer_test.rs"]
mod tests;
