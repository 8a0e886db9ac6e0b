//! JSON web signatures in compact form (RFC 7515),
//! `base64url(header).base64url(payload).base64url(signature)`, and the public keys that verify these
//! signatures.
//!
//! The type of a key determines its algorithms. The header of a token can select only one of these
//! algorithms, so neither `none` nor a shared secret can replace a signature. Keys and key addresses in a
//! header (`jwk`, `jku`, `x5c`, `x5u`) are never used.
//!
//! The crate `jsonwebtoken` verifies signatures, except ES512, which it does not support. This module
//! verifies ES512 with aws-lc-rs. The decoder of `jsonwebtoken` is not used, because its error texts differ
//! from the error texts of kube-apiserver.

use std::borrow::Cow;

use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use go::base64::raw_url;
use go::json::syntax_error;
use jsonwebtoken::DecodingKey;
use serde::Deserialize;
use serde_json::{Value, json};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey as Parsed;
use x509_parser::x509::SubjectPublicKeyInfo;

pub use super::token_header::Header;
use crate::json_error::{unfit, unfit_member};

/// Size limit of a token in bytes. Usual tokens have 1 to 2 KiB; tokens with the groups of a large directory
/// have tens of KiB. The payload is decoded before the signature is verified, so the limit bounds the work
/// that an unauthenticated client can cause.
pub(super) const TOKEN_BYTES_MAX: usize = 256 << 10;

/// A signature algorithm of RFC 7518 that uses public keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
}

impl Algorithm {
    /// All algorithms, grouped by the type of their keys.
    pub const ALL: [Algorithm; 9] = [
        Algorithm::Rs256,
        Algorithm::Rs384,
        Algorithm::Rs512,
        Algorithm::Ps256,
        Algorithm::Ps384,
        Algorithm::Ps512,
        Algorithm::Es256,
        Algorithm::Es384,
        Algorithm::Es512,
    ];

    /// Returns the algorithm with this name in a header.
    pub fn by_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Returns the name of the algorithm in a header.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Rs384 => "RS384",
            Algorithm::Rs512 => "RS512",
            Algorithm::Ps256 => "PS256",
            Algorithm::Ps384 => "PS384",
            Algorithm::Ps512 => "PS512",
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::Es512 => "ES512",
        }
    }

    /// Returns the algorithm as a value of `jsonwebtoken`; `None` if `jsonwebtoken` does not support the
    /// algorithm.
    fn in_jsonwebtoken(self) -> Option<jsonwebtoken::Algorithm> {
        match self {
            Algorithm::Rs256 => Some(jsonwebtoken::Algorithm::RS256),
            Algorithm::Rs384 => Some(jsonwebtoken::Algorithm::RS384),
            Algorithm::Rs512 => Some(jsonwebtoken::Algorithm::RS512),
            Algorithm::Ps256 => Some(jsonwebtoken::Algorithm::PS256),
            Algorithm::Ps384 => Some(jsonwebtoken::Algorithm::PS384),
            Algorithm::Ps512 => Some(jsonwebtoken::Algorithm::PS512),
            Algorithm::Es256 => Some(jsonwebtoken::Algorithm::ES256),
            Algorithm::Es384 => Some(jsonwebtoken::Algorithm::ES384),
            Algorithm::Es512 => None,
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            Algorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
            Algorithm::Es512 => &signature::ECDSA_P521_SHA512_FIXED,
        }
    }
}

/// A token split into its parts. Nothing is verified yet.
pub struct Compact<'t> {
    /// The parsed header of the token.
    pub header: Header,
    /// The payload, which is decoded from base64url.
    pub payload: Vec<u8>,
    /// The bytes that the signature covers.
    signed: Cow<'t, [u8]>,
    signature: Vec<u8>,
}

impl<'t> Compact<'t> {
    /// Splits a token into its parts.
    ///
    /// # Errors
    /// Fails if the input is not a signed token. The string is the error message of kube-apiserver.
    pub fn parse(token: &'t str) -> Result<Compact<'t>, String> {
        const PARTS: &str = "go-jose/go-jose: compact JWS format must have three parts";
        if token.len() > TOKEN_BYTES_MAX {
            return Err(format!("it has {} bytes, and at most {TOKEN_BYTES_MAX} are accepted", token.len()));
        }
        let [encoded_header, payload, signature] = three_parts(token).ok_or(PARTS)?;
        let signed = &token[..token.len() - signature.len() - 1];
        let header = raw_url(encoded_header)?;
        let payload = raw_url(payload)?;
        let signature = raw_url(signature)?;
        let header = Header::read(&header)?;
        let signed = if header.has_plain_payload {
            Cow::Owned([encoded_header.as_bytes(), b".", &payload].concat())
        } else {
            Cow::Borrowed(signed.as_bytes())
        };
        Ok(Compact { header, payload, signed, signature })
    }

    /// Returns whether `key` signed the token with the algorithm that the header names.
    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        let Some(algorithm) = Algorithm::by_name(&self.header.alg) else { return false };
        !self.header.needs_unknown && key.verifies(algorithm, &self.signed, &self.signature)
    }
}

/// Splits a token into encoded header, payload and signature.
fn three_parts(token: &str) -> Option<[&str; 3]> {
    let mut parts = token.split('.');
    let three = [parts.next()?, parts.next()?, parts.next()?];
    parts.next().is_none().then_some(three)
}

/// Returns the issuer that a token names. The issuer is not verified; use it only to find the verifier.
/// Returns `None` if the text is not a token or names no issuer.
pub fn unverified_issuer(token: &str) -> Option<String> {
    issuer_named_by(token).ok().filter(|issuer| !issuer.is_empty())
}

/// Returns the issuer that a token names, without verification; empty if the token names no issuer.
///
/// # Errors
/// Fails with kube-apiserver's error text if the input is not a token.
pub(super) fn issuer_named_by(token: &str) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Named {
        iss: Option<String>,
    }
    if token.trim().starts_with('{') {
        return Err("token is not compact JWT".to_owned());
    }
    let Some([_, payload, _]) = three_parts(token).filter(|_| token.len() <= TOKEN_BYTES_MAX) else {
        return Err("malformed token".to_owned());
    };
    let payload = raw_url(payload).map_err(|why| format!("error decoding token: {why}"))?;
    // Fast path for nearly all tokens, without a tree of the other claims.
    if payload.starts_with(b"{")
        && let Ok(Named { iss }) = serde_json::from_slice(&payload)
    {
        return Ok(iss.unwrap_or_default());
    }
    let failed = |why: String| format!("while unmarshaling token: {why}");
    let claims = serde_json::from_slice::<Value>(&payload);
    let claims = claims.map_err(|why| failed(syntax_error(&payload).unwrap_or_else(|| why.to_string())))?;
    const CLAIMS: &str = "struct { Issuer string \"json:\\\"iss\\\"\" }";
    match claims {
        Value::Null => Ok(String::new()),
        Value::Object(mut claims) => match claims.remove("iss") {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(issuer)) => Ok(issuer),
            Some(other) => Err(failed(unfit_member(&other, ".iss", "string"))),
        },
        other => Err(failed(unfit(&other, CLAIMS))),
    }
}

/// A public key with the algorithms that can use the key.
#[derive(Clone, Debug)]
pub struct PublicKey {
    /// The algorithms that can use the key. The list is not empty. This server signs with the first
    /// algorithm.
    algorithms: Vec<Algorithm>,
    verifier: Verifier,
    numbers: Numbers,
}

/// A public key, as the type of the library that verifies signatures with this key.
#[derive(Clone)]
enum Verifier {
    Library(DecodingKey),
    /// A key on P-521, which `jsonwebtoken` does not support.
    P521(ParsedPublicKey),
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verifier::Library(_) => "Library",
            Verifier::P521(_) => "P521",
        })
    }
}

/// The numbers of a public key in big-endian order.
#[derive(Clone, Debug)]
enum Numbers {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    Point { x: Vec<u8>, y: Vec<u8> },
}

/// A key of a JSON web key set (RFC 7517). Other members, such as `use` and `alg`, do not restrict the use of
/// the key.
#[derive(Debug, Deserialize)]
pub struct Jwk {
    #[serde(default)]
    kty: String,
    /// Id of the key; empty if it is absent.
    #[serde(default)]
    pub kid: String,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

/// Minimum size of an RSA key, in bytes of its modulus.
const RSA_MODULUS_BYTES_MIN: usize = 256;

impl PublicKey {
    /// Reads a subject public key info in DER.
    ///
    /// # Errors
    /// Returns the reason why the key cannot be used.
    pub fn from_spki(der: &[u8]) -> Result<PublicKey, &'static str> {
        const UNUSABLE: &str = "no RSA, P-256, P-384 or P-521 public key";
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| UNUSABLE)?;
        let numbers = match info.parsed() {
            Ok(Parsed::RSA(key)) => {
                Numbers::Rsa { modulus: trimmed(key.modulus), exponent: trimmed(key.exponent) }
            }
            Ok(Parsed::EC(point)) => Numbers::of_point(point.data()).ok_or(UNUSABLE)?,
            _ => return Err(UNUSABLE),
        };
        PublicKey::parsed(der, numbers).ok_or(UNUSABLE)?.of_sufficient_size()
    }

    /// Reads a key of a key set; `None` if the key is malformed or of another kind.
    pub fn from_jwk(jwk: &Jwk) -> Option<PublicKey> {
        let number = |text: &str| URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| !bytes.is_empty());
        let (numbers, raw) = match jwk.kty.as_str() {
            "RSA" => {
                let (modulus, exponent) = (trimmed(&number(&jwk.n)?), trimmed(&number(&jwk.e)?));
                let raw = der_sequence(&[der_integer(&modulus), der_integer(&exponent)]);
                (Numbers::Rsa { modulus, exponent }, raw)
            }
            "EC" => {
                let len = match jwk.crv.as_str() {
                    "P-256" => 32,
                    "P-384" => 48,
                    "P-521" => 66,
                    _ => return None,
                };
                let (x, y) = (number(&jwk.x)?, number(&jwk.y)?);
                if x.len() != len || y.len() != len {
                    return None;
                }
                let raw = [&[UNCOMPRESSED][..], &x, &y].concat();
                (Numbers::Point { x, y }, raw)
            }
            _ => return None,
        };
        PublicKey::parsed(&raw, numbers)?.of_sufficient_size().ok()
    }

    /// Parses the bytes with the parser of every algorithm. A parser accepts only keys of its own type and
    /// curve, so the algorithms whose parsers succeed are the algorithms of this key. aws-lc-rs parses the
    /// key, because `jsonwebtoken` does not check keys before it uses them.
    fn parsed(bytes: &[u8], numbers: Numbers) -> Option<PublicKey> {
        let parsed = |algorithm: Algorithm| ParsedPublicKey::new(algorithm.verification(), bytes).ok();
        let algorithms: Vec<_> =
            Algorithm::ALL.into_iter().filter(|algorithm| parsed(*algorithm).is_some()).collect();
        let verifier = match (algorithms.first()?, &numbers) {
            (Algorithm::Es512, _) => Verifier::P521(parsed(Algorithm::Es512)?),
            (_, Numbers::Rsa { modulus, exponent }) => {
                Verifier::Library(DecodingKey::from_rsa_raw_components(modulus, exponent))
            }
            (_, Numbers::Point { x, y }) => {
                Verifier::Library(DecodingKey::from_ec_der(&[&[UNCOMPRESSED][..], x, y].concat()))
            }
        };
        Some(PublicKey { algorithms, verifier, numbers })
    }

    fn of_sufficient_size(self) -> Result<PublicKey, &'static str> {
        match &self.numbers {
            Numbers::Rsa { modulus, .. } if modulus.len() < RSA_MODULUS_BYTES_MIN => {
                Err("an RSA key must have 2048 bits or more")
            }
            _ => Ok(self),
        }
    }

    /// Returns the algorithm with which this server signs with a key of this type.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithms.first().copied().unwrap_or(Algorithm::Rs256)
    }

    fn verifies(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        if !self.algorithms.contains(&algorithm) {
            return false;
        }
        match (&self.verifier, algorithm.in_jsonwebtoken()) {
            (Verifier::Library(key), Some(algorithm)) => {
                let signature = URL_SAFE_NO_PAD.encode(signature);
                jsonwebtoken::crypto::verify(&signature, signed, key, algorithm).unwrap_or(false)
            }
            (Verifier::P521(key), None) => key.verify_sig(signed, signature).is_ok(),
            // This case does not occur: the algorithms of a key belong to the library of its verifier.
            (Verifier::Library(_), None) | (Verifier::P521(_), Some(_)) => false,
        }
    }

    /// Returns the key as a member of a key set, with the id `kid`.
    pub fn to_jwk(&self, kid: &str) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let algorithm = self.algorithm();
        match &self.numbers {
            Numbers::Rsa { modulus, exponent } => json!({
                "use": "sig", "kty": "RSA", "kid": kid, "alg": algorithm.name(),
                "n": text(modulus), "e": text(exponent),
            }),
            Numbers::Point { x, y } => {
                let curve = match algorithm {
                    Algorithm::Es256 => "P-256",
                    Algorithm::Es384 => "P-384",
                    _ => "P-521",
                };
                json!({
                    "use": "sig", "kty": "EC", "kid": kid, "crv": curve, "alg": algorithm.name(),
                    "x": text(x), "y": text(y),
                })
            }
        }
    }
}

/// First byte of an uncompressed point (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;

impl Numbers {
    fn of_point(bytes: &[u8]) -> Option<Numbers> {
        let (&UNCOMPRESSED, rest) = bytes.split_first()? else { return None };
        let (x, y) = rest.split_at_checked(rest.len() / 2)?;
        Some(Numbers::Point { x: x.to_vec(), y: y.to_vec() })
    }
}

/// Removes the leading zeros of a big-endian number.
fn trimmed(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros..].to_vec()
}

/// Encodes a non-negative DER integer.
fn der_integer(number: &[u8]) -> Vec<u8> {
    let sign = number.first().is_none_or(|first| first & 0x80 != 0);
    let mut content = if sign { vec![0] } else { Vec::new() };
    content.extend_from_slice(number);
    der(0x02, &content)
}

fn der_sequence(members: &[Vec<u8>]) -> Vec<u8> {
    der(0x30, &members.concat())
}

/// Encodes a DER element: tag, length, content (X.690, section 8.1).
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len();
    let mut out = vec![tag];
    if len < 0x80 {
        out.push(len as u8);
    } else {
        let bytes = len.to_be_bytes();
        let bytes = trimmed(&bytes);
        out.push(0x80 | bytes.len() as u8);
        out.extend_from_slice(&bytes);
    }
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
#[path = "jws_test.rs"]
mod tests;
