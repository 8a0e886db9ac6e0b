//! Keys and digital signatures of JSON web tokens in compact form:
//! `base64url(header).base64url(claims).base64url(signature)`.
//!
//! A key fixes its algorithm: a token's header is compared with the key and never selects how to verify. `none` and
//! the shared-secret algorithms do not exist here. jsonwebtoken signs and verifies, except for ES512, which it does
//! not implement and which uses the same cryptography library directly.

use std::collections::HashSet;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, ParsedPublicKey, RsaKeyPair, VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{DecodingKey, EncodingKey, Validation};
use rustls_pki_types::pem::{self, PemObject, SectionKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use x509_parser::asn1_rs::{Any, Integer, OctetString, Sequence};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::sha256;

/// Longest token accepted; ours are about 1 KiB, and the claims are decoded before the signature is verified.
pub(super) const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Not PEM.
    #[error("not a PEM file")]
    Pem(#[source] pem::Error),
    /// No key in the file.
    #[error("holds no key")]
    Empty,
    /// Several private keys where one is needed.
    #[error("holds {0} private keys, expected one")]
    ManyPrivate(usize),
    /// A section that is not a usable key.
    #[error("section {position}: {problem}")]
    Unusable {
        /// Position of the section in the file, from 1.
        position: usize,
        /// The problem with it.
        problem: &'static str,
    },
}

/// How a key signs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Algorithm {
    Rs256,
    Es256,
    Es384,
    Es512,
}

impl Algorithm {
    const ALL: [Algorithm; 4] = [Algorithm::Rs256, Algorithm::Es256, Algorithm::Es384, Algorithm::Es512];

    fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::Es512 => "ES512",
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
            Algorithm::Es512 => &signature::ECDSA_P521_SHA512_FIXED,
        }
    }

    /// The name in the `jsonwebtoken` crate; `None` if the crate does not implement it.
    fn known(self) -> Option<jsonwebtoken::Algorithm> {
        match self {
            Algorithm::Rs256 => Some(jsonwebtoken::Algorithm::RS256),
            Algorithm::Es256 => Some(jsonwebtoken::Algorithm::ES256),
            Algorithm::Es384 => Some(jsonwebtoken::Algorithm::ES384),
            Algorithm::Es512 => None,
        }
    }

    fn ecdsa(self) -> Option<&'static EcdsaSigningAlgorithm> {
        match self {
            Algorithm::Rs256 => None,
            Algorithm::Es256 => Some(&signature::ECDSA_P256_SHA256_FIXED_SIGNING),
            Algorithm::Es384 => Some(&signature::ECDSA_P384_SHA384_FIXED_SIGNING),
            Algorithm::Es512 => Some(&signature::ECDSA_P521_SHA512_FIXED_SIGNING),
        }
    }
}

/// A public key that verifies tokens.
#[derive(Clone, Debug)]
pub struct VerificationKey {
    id: String,
    algorithm: Algorithm,
    verifier: Verifier,
}

#[derive(Clone, Debug)]
enum Verifier {
    Known(jsonwebtoken::Algorithm, DecodingKey),
    P521(ParsedPublicKey),
}

/// Why a token is refused by any verifier.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Unsound {
    /// No known key signed it.
    Signature,
    /// A required claim is missing or malformed.
    Claim(&'static str),
}

/// Claims that every token must have. The caller checks their values at every use of the token, because the result of
/// this check is cached; only the issuer is compared here.
const REQUIRED_CLAIMS: [&str; 3] = ["exp", "aud", "iss"];

impl VerificationKey {
    /// Reads all keys of a PEM file: public keys, certificates, and the public halves of private keys.
    ///
    /// # Errors
    /// Not PEM, no key, or a section that is no RSA (2048 bits or more), P-256, P-384 or P-521 key.
    pub fn from_pem(text: &[u8]) -> Result<Vec<VerificationKey>, KeyError> {
        let mut keys = Vec::new();
        for (at, section) in <(SectionKind, Vec<u8>)>::pem_slice_iter(text).enumerate() {
            let (kind, der) = section.map_err(KeyError::Pem)?;
            let unusable = |problem| KeyError::Unusable { position: at + 1, problem };
            match kind {
                SectionKind::PublicKey => keys.push(VerificationKey::from_spki(&der).map_err(unusable)?),
                SectionKind::Certificate => {
                    let (_, certificate) =
                        X509Certificate::from_der(&der).map_err(|_| unusable("malformed certificate"))?;
                    keys.push(VerificationKey::from_spki(certificate.public_key().raw).map_err(unusable)?);
                }
                SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
                    keys.push(SigningKey::from_der(&der).map_err(unusable)?.public);
                }
                _ => {}
            }
        }
        if keys.is_empty() { Err(KeyError::Empty) } else { Ok(keys) }
    }

    /// Reads a DER subject public key info.
    fn from_spki(der: &[u8]) -> Result<VerificationKey, &'static str> {
        // Each parser refuses the keys of the others, including other curves, so the first that accepts is the right
        // one.
        let parsed = Algorithm::ALL.into_iter().find_map(|algorithm| {
            ParsedPublicKey::new(algorithm.verification(), der).ok().map(|key| (algorithm, key))
        });
        let (algorithm, key) = parsed.ok_or("no RSA, P-256, P-384 or P-521 public key")?;
        if algorithm == Algorithm::Rs256 && der.len() < RSA_2048_SPKI_LEN_MIN {
            return Err("an RSA key must have 2048 bits or more");
        }
        let verifier = match algorithm.known() {
            Some(known) if algorithm == Algorithm::Rs256 => {
                Verifier::Known(known, DecodingKey::from_rsa_der(der))
            }
            Some(known) => Verifier::Known(known, DecodingKey::from_ec_der(der)),
            None => Verifier::P521(key),
        };
        Ok(VerificationKey { id: URL_SAFE_NO_PAD.encode(sha256(der)), algorithm, verifier })
    }

    /// `kid`: unpadded base64url of the SHA-256 of the DER public key
    /// (docs/api/authentication.md#service-account-tokens).
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Name of the algorithm, as `alg` writes it.
    pub fn algorithm(&self) -> &'static str {
        self.algorithm.name()
    }

    /// The claims of a token that this key signed for one of `issuers`; the caller checks dates and audiences.
    fn verify(&self, token: &str, issuers: &HashSet<String>) -> Result<Value, Unsound> {
        match &self.verifier {
            Verifier::Known(algorithm, key) => {
                let mut validation = Validation::new(*algorithm);
                validation.set_required_spec_claims(&REQUIRED_CLAIMS);
                validation.iss = Some(issuers.clone());
                // A verified token is cached, so the caller checks its dates and audiences at every use. A check here
                // would only run at the first use.
                (validation.validate_exp, validation.validate_nbf, validation.validate_aud) =
                    (false, false, false);
                jsonwebtoken::decode(token, key, &validation).map(|sound| sound.claims).map_err(|error| {
                    match error.into_kind() {
                        ErrorKind::MissingRequiredClaim(claim) => Unsound::of_claim(&claim),
                        ErrorKind::InvalidIssuer => Unsound::Claim("iss is not ours"),
                        ErrorKind::Json(_) => Unsound::Claim("they cannot be read"),
                        _ => Unsound::Signature,
                    }
                })
            }
            Verifier::P521(key) => {
                let (signed, signature) = token.rsplit_once('.').ok_or(Unsound::Signature)?;
                let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Unsound::Signature)?;
                key.verify_sig(signed.as_bytes(), &signature).map_err(|_| Unsound::Signature)?;
                let claims = unverified_claims(token).ok_or(Unsound::Claim("they cannot be read"))?;
                check_claims(&claims, issuers)?;
                Ok(claims)
            }
        }
    }
}

/// The checks of `Validation` for ES512.
fn check_claims(claims: &Value, issuers: &HashSet<String>) -> Result<(), Unsound> {
    let is_missing = |name: &&&str| claims.get(**name).is_none_or(Value::is_null);
    if let Some(missing) = REQUIRED_CLAIMS.iter().find(is_missing) {
        return Err(Unsound::of_claim(missing));
    }
    match claims["iss"].as_str() {
        Some(issuer) if issuers.contains(issuer) => Ok(()),
        _ => Err(Unsound::Claim("iss is not ours")),
    }
}

impl Unsound {
    fn of_claim(name: &str) -> Unsound {
        Unsound::Claim(match name {
            "exp" => "exp is missing",
            "aud" => "aud is missing",
            _ => "iss is missing",
        })
    }
}

/// The modulus alone has 256 bytes; an exponent of 3 and the wrapping add at least 30.
const RSA_2048_SPKI_LEN_MIN: usize = 256 + 30;

/// A private key that signs tokens, and its public half.
pub struct SigningKey {
    signer: Signer,
    public: VerificationKey,
}

enum Signer {
    Known(jsonwebtoken::Algorithm, EncodingKey),
    P521(EcdsaKeyPair),
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Reads the one private key of a PEM file, in any of the usual forms.
    ///
    /// # Errors
    /// Not PEM, no private key or several, or one of another kind than RSA, P-256, P-384, P-521.
    pub fn from_pem(text: &[u8]) -> Result<SigningKey, KeyError> {
        let mut found = Vec::new();
        for (at, section) in <(SectionKind, Vec<u8>)>::pem_slice_iter(text).enumerate() {
            let (kind, der) = section.map_err(KeyError::Pem)?;
            if matches!(
                kind,
                SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey
            ) {
                found.push((at + 1, der));
            }
        }
        match found.as_slice() {
            [] => Err(KeyError::Empty),
            [(position, der)] => SigningKey::from_der(der)
                .map_err(|problem| KeyError::Unusable { position: *position, problem }),
            several => Err(KeyError::ManyPrivate(several.len())),
        }
    }

    fn from_der(der: &[u8]) -> Result<SigningKey, &'static str> {
        const UNUSABLE: &str = "no RSA, P-256, P-384 or P-521 private key";
        let rsa = RsaKeyPair::from_pkcs8(der).map(|pair| (pair, inside_pkcs8(der)));
        let rsa = rsa.or_else(|_| RsaKeyPair::from_der(der).map(|pair| (pair, Some(der.to_vec()))));
        if let Ok((pair, inner)) = rsa {
            let spki = pair.public_key().as_der().map_err(|_| UNUSABLE)?;
            let key = EncodingKey::from_rsa_der(&inner.ok_or(UNUSABLE)?);
            let public = VerificationKey::from_spki(spki.as_ref())?;
            return Ok(SigningKey { signer: Signer::Known(jsonwebtoken::Algorithm::RS256, key), public });
        }
        let mut curves = Algorithm::ALL.into_iter().filter_map(Algorithm::ecdsa);
        let pair =
            curves.find_map(|curve| EcdsaKeyPair::from_private_key_der(curve, der).ok()).ok_or(UNUSABLE)?;
        let spki = pair.public_key().as_der().map_err(|_| UNUSABLE)?;
        let public = VerificationKey::from_spki(spki.as_ref())?;
        let signer = match public.algorithm.known() {
            Some(known) => {
                let pkcs8 = pair.to_pkcs8v1().map_err(|_| UNUSABLE)?;
                Signer::Known(known, EncodingKey::from_ec_der(pkcs8.as_ref()))
            }
            None => Signer::P521(pair),
        };
        Ok(SigningKey { signer, public })
    }

    /// The public half.
    pub fn public(&self) -> &VerificationKey {
        &self.public
    }

    /// Signs claims and returns the complete token; `None` if the cryptography library fails.
    pub(super) fn sign(&self, claims: &impl Serialize) -> Option<String> {
        match &self.signer {
            Signer::Known(algorithm, key) => {
                let mut header = jsonwebtoken::Header::new(*algorithm);
                header.typ = None;
                header.kid = Some(self.public.id.clone());
                jsonwebtoken::encode(&header, claims, key).ok()
            }
            Signer::P521(pair) => {
                // Algorithm names and key ids are ASCII without characters to escape.
                let header = format!(r#"{{"alg":"{}","kid":"{}"}}"#, self.public.algorithm(), self.public.id);
                let mut token = URL_SAFE_NO_PAD.encode(header);
                token.push('.');
                URL_SAFE_NO_PAD.encode_string(serde_json::to_vec(claims).ok()?, &mut token);
                let signature = pair.sign(&SystemRandom::new(), token.as_bytes()).ok()?;
                token.push('.');
                URL_SAFE_NO_PAD.encode_string(signature, &mut token);
                Some(token)
            }
        }
    }
}

/// The key inside a PKCS #8 envelope (RFC 5208: version, algorithm, key).
fn inside_pkcs8(der: &[u8]) -> Option<Vec<u8>> {
    let (_, envelope) = Sequence::from_der(der).ok()?;
    let (rest, _) = Integer::from_der(&envelope.content).ok()?;
    let (rest, _) = Any::from_der(rest).ok()?;
    let (_, key) = OctetString::from_der(rest).ok()?;
    Some(key.into_cow().into_owned())
}

/// The signature parameters in a token's header.
#[derive(Deserialize)]
struct Header {
    // As text: the claims of a token with an unknown algorithm are still read.
    alg: String,
    #[serde(default)]
    kid: String,
    /// Extensions that a verifier must understand; this one understands none.
    crit: Option<serde::de::IgnoredAny>,
}

/// The claims of a token, not verified, to find its issuer. `None` if the text does not have the form of a token.
pub(super) fn unverified_claims<C: DeserializeOwned>(token: &str) -> Option<C> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    jsonwebtoken::dangerous::insecure_decode_claims(token).ok()
}

/// The claims of a token that one of `keys` signed for one of `issuers`. A known key id selects its key; otherwise
/// all keys of the token's algorithm are tried.
///
/// # Errors
/// No key verifies the token, or a required claim is missing.
pub(super) fn verified_claims<C: DeserializeOwned>(
    token: &str,
    keys: &[VerificationKey],
    issuers: &HashSet<String>,
) -> Result<C, Unsound> {
    let header = token.split_once('.').and_then(|(header, _)| URL_SAFE_NO_PAD.decode(header).ok());
    let header = header.and_then(|header| serde_json::from_slice::<Header>(&header).ok());
    let Some(header) = header.filter(|header| header.crit.is_none()) else { return Err(Unsound::Signature) };
    let id_is_known = keys.iter().any(|key| key.id == header.kid);
    let candidates = keys.iter().filter(|key| !id_is_known || key.id == header.kid);
    let claims = candidates
        .filter(|key| key.algorithm() == header.alg)
        .map(|key| key.verify(token, issuers))
        .find(|outcome| !matches!(outcome, Err(Unsound::Signature)))
        .unwrap_or(Err(Unsound::Signature))?;
    serde_json::from_value(claims).map_err(|_| Unsound::Claim("they cannot be read"))
}
