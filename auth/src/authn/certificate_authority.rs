//! A certificate authority, which issues certificates for requests (RFC 5280).
//!
//! ```text
//! Request (subject, names, key) + usages + time ─► to be signed ─ key of the authority ─► certificate, PEM
//! ```
//!
//! From its request a certificate takes only the subject, the names and the key. The caller decides what the
//! key may be used for, and for how long. No certificate outlives its authority, and the authority issues no
//! CA certificates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, RsaKeyPair};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificate_request::{Names, Request};
use super::der::{self, element, sequence};

/// How far the start of a certificate's validity lies in the past, for clients whose clocks are behind.
pub const BACKDATE: Duration = Duration::from_secs(5 * 60);

/// A lifetime shorter than this counts from the time of issue. A longer lifetime includes the backdating.
const SHORT: Duration = Duration::from_secs(8 * 60 * 60);

/// Reasons why a certificate and a key do not form an authority.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AuthorityError {
    /// The certificate is not readable PEM.
    #[error("no readable PEM certificate")]
    Certificate,
    /// The certificate is not a CA certificate.
    #[error("the certificate is not that of an authority")]
    NoAuthority,
    /// The key is not PEM of a supported kind.
    #[error("no readable RSA, P-256, P-384 or P-521 private key")]
    Key,
    /// The key belongs to another certificate.
    #[error("certificate and key do not fit")]
    Mismatch,
}

/// Reasons why no certificate is issued.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum IssueError {
    /// The certificate of the authority has expired.
    #[error(
        "refusing to sign a certificate that expired in the past: the certificate of the authority has expired"
    )]
    Expired,
    /// A usage for which no certificate is issued.
    #[error("unrecognized usage {0:?}")]
    Usage(String),
    /// The cryptography library failed, or the clock has an impossible time.
    #[error("the certificate cannot be signed")]
    Unsigned,
}

/// A certificate authority with its signing key.
pub struct Authority {
    /// Subject of the authority, in DER.
    subject: Vec<u8>,
    /// Key identifier of the authority.
    key_id: Vec<u8>,
    /// Last second in which the authority is valid, since the Unix epoch.
    ends: u64,
    signer: Signer,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("ends", &self.ends).finish_non_exhaustive()
    }
}

pub(super) enum Signer {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair, Curve),
}

/// An elliptic curve with the hash of its size, and the object identifier of that signature algorithm.
type Curve = (&'static EcdsaSigningAlgorithm, &'static [u8]);

const CURVES: [Curve; 3] = [
    (&signature::ECDSA_P256_SHA256_ASN1_SIGNING, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02]),
    (&signature::ECDSA_P384_SHA384_ASN1_SIGNING, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03]),
    (&signature::ECDSA_P521_SHA512_ASN1_SIGNING, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04]),
];

/// Object identifier of sha256WithRSAEncryption.
const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];

/// Object identifiers of extensions, below id-ce.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];

/// A permitted use of a certificate's key: a bit of KeyUsage, or a purpose of ExtendedKeyUsage.
enum Usage {
    Bit(u8),
    Purpose(&'static [u8]),
}

impl Usage {
    /// Parses a usage name. Only the usages that the signers of this server issue are known.
    fn read(text: &str) -> Option<Usage> {
        Some(match text {
            "digital signature" => Usage::Bit(0x80),
            "key encipherment" => Usage::Bit(0x20),
            "server auth" => Usage::Purpose(&[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01]),
            "client auth" => Usage::Purpose(&[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02]),
            _ => return None,
        })
    }
}

impl Authority {
    /// Creates an authority from a certificate and its key, as PEM. If the text has several certificates, the
    /// first is used.
    ///
    /// # Errors
    /// The certificate or the key cannot be used, or they do not belong together.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Authority, AuthorityError> {
        let der = CertificateDer::from_pem_slice(certificate).map_err(|_| AuthorityError::Certificate)?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| AuthorityError::Certificate)?;
        if !parsed.is_ca() {
            return Err(AuthorityError::NoAuthority);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| AuthorityError::Key)?;
        let signer = Signer::read(key.secret_der()).ok_or(AuthorityError::Key)?;
        let public = &*parsed.public_key().subject_public_key.data;
        if signer.public() != public {
            return Err(AuthorityError::Mismatch);
        }
        let said = parsed.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        // RFC 5280, section 4.2.1.2, method 1, with SHA-256 instead of SHA-1.
        let key_id = said.unwrap_or_else(|| digest::digest(&digest::SHA256, public).as_ref()[..20].to_vec());
        let ends = parsed.validity().not_after.timestamp().try_into().unwrap_or(0);
        Ok(Authority { subject: parsed.subject().as_raw().to_vec(), key_id, ends, signer })
    }

    /// Issues a certificate for `lifetime`, as PEM. `usages` are names of the API: `digital signature`, `key
    /// encipherment`, `client auth`, `server auth`.
    ///
    /// # Errors
    /// The authority has expired, or a usage is not one of these.
    pub fn issue(
        &self,
        request: &Request,
        usages: &[&str],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<String, IssueError> {
        let now = now.duration_since(UNIX_EPOCH).map_err(|_| IssueError::Unsigned)?;
        if now.as_secs() >= self.ends {
            return Err(IssueError::Expired);
        }
        let end = now + if lifetime < SHORT { lifetime } else { lifetime.saturating_sub(BACKDATE) };
        let validity = [now.saturating_sub(BACKDATE).as_secs(), end.as_secs().min(self.ends)];
        let [begin, end] = validity.map(time);
        let validity = sequence(&[&begin.ok_or(IssueError::Unsigned)?, &end.ok_or(IssueError::Unsigned)?]);
        let signed = sequence(&[
            &element(0xa0, &element(der::INTEGER, &[2])),
            &element(der::INTEGER, &serial()?),
            &self.signer.algorithm(),
            &self.subject,
            &validity,
            &request.subject_der,
            &request.key_der,
            &element(0xa3, &self.extensions(request, usages)?),
        ]);
        let signature = self.signer.sign(&signed).ok_or(IssueError::Unsigned)?;
        let certificate = sequence(&[&signed, &self.signer.algorithm(), &der::bit_string(&signature)]);
        Ok(der::pem("CERTIFICATE", &certificate))
    }

    fn extensions(&self, request: &Request, usages: &[&str]) -> Result<Vec<u8>, IssueError> {
        let (mut bits, mut purposes) = (0, Vec::new());
        for usage in usages {
            match Usage::read(usage).ok_or_else(|| IssueError::Usage((*usage).to_owned()))? {
                Usage::Bit(bit) => bits |= bit,
                Usage::Purpose(purpose) => purposes.push(element(der::OBJECT_IDENTIFIER, purpose)),
            }
        }
        let mut extensions = Vec::new();
        if bits != 0 {
            let unused = bits.trailing_zeros() as u8;
            let usage = element(der::BIT_STRING, &[unused, bits]);
            extensions.push(extension(KEY_USAGE, true, &usage));
        }
        if !purposes.is_empty() {
            extensions.push(extension(
                EXTENDED_KEY_USAGE,
                false,
                &element(der::SEQUENCE, &purposes.concat()),
            ));
        }
        extensions.push(extension(BASIC_CONSTRAINTS, true, &sequence(&[])));
        extensions.push(extension(AUTHORITY_KEY_ID, false, &sequence(&[&element(0x80, &self.key_id)])));
        if !request.names.is_empty() {
            // The names are critical if the subject is empty, because they alone identify the holder (RFC
            // 5280, section 4.1.2.6).
            let is_critical = request.subject_der.len() <= 2;
            extensions.push(extension(SUBJECT_ALT_NAME, is_critical, &names(&request.names)));
        }
        Ok(element(der::SEQUENCE, &extensions.concat()))
    }
}

/// Encodes a certificate as a PEM block (RFC 7468).
pub fn certificate_pem(der: &[u8]) -> String {
    der::pem("CERTIFICATE", der)
}

/// Returns the last second in which a certificate is valid, since the Unix epoch; `None` if the DER is
/// malformed.
pub fn end_of(der: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

fn extension(kind: &[u8], is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if is_critical { element(der::BOOLEAN, &[0xff]) } else { Vec::new() };
    sequence(&[&element(der::OBJECT_IDENTIFIER, kind), &critical, &element(der::OCTET_STRING, value)])
}

fn names(names: &Names) -> Vec<u8> {
    let texts = |tag: u8, texts: &[String]| -> Vec<u8> {
        texts.iter().flat_map(|text| element(tag, text.as_bytes())).collect()
    };
    let addresses: Vec<u8> = names.addresses.iter().flat_map(|address| element(0x87, address)).collect();
    sequence(&[&texts(0x82, &names.dns), &texts(0x81, &names.emails), &addresses, &texts(0x86, &names.uris)])
}

/// Returns a random serial number of 127 bits. It is positive, and its highest bit is set.
fn serial() -> Result<[u8; 16], IssueError> {
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| IssueError::Unsigned)?;
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

/// Encodes a time, with a two-digit year until 2049 (RFC 5280, section 4.1.2.5).
fn time(seconds: u64) -> Option<Vec<u8>> {
    let time = jiff::Timestamp::from_second(seconds.try_into().ok()?).ok()?.to_zoned(jiff::tz::TimeZone::UTC);
    let text = time.strftime("%Y%m%d%H%M%SZ").to_string();
    Some(match time.year() {
        1950..=2049 => element(der::UTC_TIME, &text.as_bytes()[2..]),
        _ => element(der::GENERALIZED_TIME, text.as_bytes()),
    })
}

impl Signer {
    pub(super) fn read(der: &[u8]) -> Option<Signer> {
        if let Ok(pair) = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)) {
            return Some(Signer::Rsa(pair));
        }
        let read = |curve: Curve| {
            let pair = EcdsaKeyPair::from_private_key_der(curve.0, der).ok()?;
            Some(Signer::Ecdsa(pair, curve))
        };
        CURVES.into_iter().find_map(read)
    }

    pub(super) fn public(&self) -> &[u8] {
        match self {
            Signer::Rsa(pair) => pair.public_key().as_ref(),
            Signer::Ecdsa(pair, _) => pair.public_key().as_ref(),
        }
    }

    fn algorithm(&self) -> Vec<u8> {
        match self {
            Signer::Rsa(_) => sequence(&[&element(der::OBJECT_IDENTIFIER, RSA_SHA256), &[0x05, 0x00]]),
            Signer::Ecdsa(_, curve) => sequence(&[&element(der::OBJECT_IDENTIFIER, curve.1)]),
        }
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Signer::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            Signer::Ecdsa(pair, _) => Some(pair.sign(&random, message).ok()?.as_ref().to_vec()),
        }
    }
}

#[cfg(test)]
#[path = "certificate_authority_test.rs"]
mod tests;
