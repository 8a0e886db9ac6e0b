//! Keys of service account tokens: reads PEM files, and signs claims
//! (docs/api/authentication.md#service-account-tokens).

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, RsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::pem::{self, PemObject, SectionKind};
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::jws::{Compact, PublicKey};
use super::sha256;

/// Reasons why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file is not valid PEM.
    #[error("not a PEM file")]
    Pem(#[source] pem::Error),
    /// The file contains no key.
    #[error("holds no key")]
    Empty,
    /// The file contains several private keys, but exactly one is needed.
    #[error("holds {0} private keys, expected one")]
    ManyPrivate(usize),
    /// A section of the file is not a usable key.
    #[error("section {position}: {problem}")]
    Unusable {
        /// Position of the section in the file; the first section has position 1.
        position: usize,
        /// Reason why the key is unusable.
        problem: &'static str,
    },
}

/// A public key that verifies tokens.
#[derive(Clone, Debug)]
pub struct VerificationKey {
    id: String,
    key: PublicKey,
}

impl VerificationKey {
    /// Reads all public keys of a PEM file. The file can contain public keys, certificates and private keys.
    ///
    /// # Errors
    /// Fails if the text is not PEM, if it contains no key, or if a section is not an RSA (2048 bits or
    /// more), P-256, P-384 or P-521 key.
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

    /// Reads a subject public key info in DER. `id` is the key id that an external signer uses.
    ///
    /// # Errors
    /// Fails if the key is not an RSA (2048 bits or more), P-256, P-384 or P-521 key.
    pub fn named(id: impl Into<String>, der: &[u8]) -> Result<VerificationKey, &'static str> {
        Ok(VerificationKey { id: id.into(), key: PublicKey::from_spki(der)? })
    }

    /// Reads a subject public key info in DER.
    fn from_spki(der: &[u8]) -> Result<VerificationKey, &'static str> {
        Ok(VerificationKey { id: URL_SAFE_NO_PAD.encode(sha256(der)), key: PublicKey::from_spki(der)? })
    }

    /// Returns the key id (`kid`): the SHA-256 of the DER public key in unpadded base64url, or the id that an
    /// external signer uses (docs/api/authentication.md#service-account-tokens).
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the name (`alg`) of the algorithm with which this server signs with a key of this type.
    pub fn algorithm(&self) -> &'static str {
        self.key.algorithm().name()
    }

    /// Returns the key as a member of a key set.
    pub fn to_jwk(&self) -> Value {
        self.key.to_jwk(&self.id)
    }
}

/// Returns whether one of `keys` signed the token. If a key has the key id of the token, only this key is
/// tried; otherwise all keys are tried.
pub(super) fn is_signed(token: &Compact<'_>, keys: &[VerificationKey]) -> bool {
    let kid = token.header.kid.as_str();
    let id_is_known = keys.iter().any(|key| key.id == kid);
    let mut candidates = keys.iter().filter(|key| !id_is_known || key.id == kid);
    candidates.any(|key| token.is_signed_by(&key.key))
}

/// Returns whether one of `keys` signed the token, for keys whose ids an external signer chooses. Only keys
/// with the key id of the token are tried. If the token has no key id, all keys are tried.
pub(super) fn is_signed_by_named(token: &Compact<'_>, keys: &[VerificationKey]) -> bool {
    let kid = token.header.kid.as_str();
    let mut candidates = keys.iter().filter(|key| kid.is_empty() || key.id == kid);
    candidates.any(|key| token.is_signed_by(&key.key))
}

/// A private key that signs tokens, with the public key.
pub struct SigningKey {
    signer: Signer,
    public: VerificationKey,
}

enum Signer {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
}

/// The elliptic curves, each with the hash function of the same size.
const CURVES: [&EcdsaSigningAlgorithm; 3] = [
    &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
    &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
    &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
];

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Reads the only private key of a PEM file, in PKCS #8, PKCS #1 or SEC 1 format.
    ///
    /// # Errors
    /// Fails if the text is not PEM, if it does not contain exactly one private key, or if the key is not an
    /// RSA, P-256, P-384 or P-521 key.
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
        if let Ok(pair) = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)) {
            let spki = pair.public_key().as_der().map_err(|_| UNUSABLE)?;
            let public = VerificationKey::from_spki(spki.as_ref())?;
            return Ok(SigningKey { signer: Signer::Rsa(pair), public });
        }
        let mut curves = CURVES.into_iter();
        let pair =
            curves.find_map(|curve| EcdsaKeyPair::from_private_key_der(curve, der).ok()).ok_or(UNUSABLE)?;
        let spki = pair.public_key().as_der().map_err(|_| UNUSABLE)?;
        let public = VerificationKey::from_spki(spki.as_ref())?;
        Ok(SigningKey { signer: Signer::Ecdsa(pair), public })
    }

    /// Returns the public key.
    pub fn public(&self) -> &VerificationKey {
        &self.public
    }

    /// Signs claims in JSON and returns the complete token. Returns `None` if the cryptography library fails.
    pub(super) fn sign(&self, claims: &[u8]) -> Option<String> {
        // The JSON needs no escapes, because algorithm names and key ids contain only ASCII characters that
        // JSON does not escape.
        let header = format!(r#"{{"alg":"{}","kid":"{}"}}"#, self.public.algorithm(), self.public.id);
        self.sign_with(&URL_SAFE_NO_PAD.encode(header), &URL_SAFE_NO_PAD.encode(claims))
    }

    /// Signs a header and claims that are already encoded in base64url.
    pub(super) fn sign_with(&self, header: &str, claims: &str) -> Option<String> {
        let mut token = [header, claims].join(".");
        let signature = self.signature(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Some(token)
    }

    fn signature(&self, signed: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.signer {
            Signer::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, signed, &mut signature).ok()?;
                Some(signature)
            }
            Signer::Ecdsa(pair) => Some(pair.sign(&random, signed).ok()?.as_ref().to_vec()),
        }
    }
}
