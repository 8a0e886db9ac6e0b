//! A certificate authority that issues certificates for certificate requests (RFC 5280).
//!
//! ```text
//! Request (subject, names, key) + usages + time ─► to be signed ─ key of the authority ─► certificate, PEM
//! ```
//!
//! A certificate contains only the subject, the names and the key of its request. The caller decides on the
//! permitted uses of the key and on the lifetime. A certificate never expires later than its authority, and
//! the authority issues no CA certificates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use pem::{EncodeConfig, LineEnding, Pem};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};
use yasna::models::{ObjectIdentifier, TaggedDerValue};
use yasna::tags::{TAG_GENERALIZEDTIME, TAG_UTCTIME};
use yasna::{DERWriter, DERWriterSeq, Tag};

use super::certificate_request::{Names, Request};
use super::private_key::PrivateKey;
use super::sha256;

/// Time between the beginning of a certificate's validity and its issue, for clients whose clocks are slow.
pub const BACKDATE: Duration = Duration::from_secs(5 * 60);

/// A lifetime that is shorter than this value is counted from the time of issue. A longer lifetime is counted
/// from the beginning of the validity.
const SHORT: Duration = Duration::from_secs(8 * 60 * 60);

/// Reasons why a certificate and a key cannot be used as an authority.
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
pub enum CertificateIssueError {
    /// The certificate of the authority has expired.
    #[error(
        "refusing to sign a certificate that expired in the past: the certificate of the authority has expired"
    )]
    Expired,
    /// The authority issues no certificates for this usage.
    #[error("unrecognized usage {0:?}")]
    Usage(String),
    /// The cryptography library failed, or the time of the clock is outside the supported range.
    #[error("the certificate cannot be signed")]
    Unsigned,
}

/// A certificate authority with its signing key.
pub struct Authority {
    /// Subject of the authority, in DER.
    subject: Vec<u8>,
    /// Key identifier of the authority.
    key_id: Vec<u8>,
    /// Last second in which the authority is valid, counted from the Unix epoch.
    ends: u64,
    key: PrivateKey,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("ends", &self.ends).finish_non_exhaustive()
    }
}

/// Object identifiers of extensions (RFC 5280, section 4.2).
const SUBJECT_ALT_NAME: &[u64] = &[2, 5, 29, 17];
const BASIC_CONSTRAINTS: &[u64] = &[2, 5, 29, 19];
const AUTHORITY_KEY_ID: &[u64] = &[2, 5, 29, 35];
const KEY_USAGE: &[u64] = &[2, 5, 29, 15];
const EXTENDED_KEY_USAGE: &[u64] = &[2, 5, 29, 37];

/// A permitted use of a certificate's key: a bit of KeyUsage, or a purpose of ExtendedKeyUsage.
enum Usage {
    Bit(u8),
    Purpose(&'static [u64]),
}

impl Usage {
    /// Parses a usage name. Only the usages for which the signers of this server issue certificates are
    /// supported.
    fn read(text: &str) -> Option<Usage> {
        Some(match text {
            "digital signature" => Usage::Bit(0x80),
            "key encipherment" => Usage::Bit(0x20),
            "server auth" => Usage::Purpose(&[1, 3, 6, 1, 5, 5, 7, 3, 1]),
            "client auth" => Usage::Purpose(&[1, 3, 6, 1, 5, 5, 7, 3, 2]),
            _ => return None,
        })
    }
}

impl Authority {
    /// Creates an authority from a certificate and its key in PEM. If the text has several certificates, the
    /// first certificate is used.
    ///
    /// # Errors
    /// Fails if the certificate or the key cannot be used, or if they do not match.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Authority, AuthorityError> {
        let der = CertificateDer::from_pem_slice(certificate).map_err(|_| AuthorityError::Certificate)?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| AuthorityError::Certificate)?;
        if !parsed.is_ca() {
            return Err(AuthorityError::NoAuthority);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| AuthorityError::Key)?;
        let key = PrivateKey::from_der(key.secret_der()).ok_or(AuthorityError::Key)?;
        let public = &*parsed.public_key().subject_public_key.data;
        if key.public() != public {
            return Err(AuthorityError::Mismatch);
        }
        let subject_key_id =
            parsed.extensions().iter().find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
                _ => None,
            });
        // The method is method 1 of RFC 5280, section 4.2.1.2, with SHA-256 instead of SHA-1.
        let key_id = subject_key_id.unwrap_or_else(|| sha256(public)[..20].to_vec());
        let ends = parsed.validity().not_after.timestamp().try_into().unwrap_or(0);
        Ok(Authority { subject: parsed.subject().as_raw().to_vec(), key_id, ends, key })
    }

    /// Issues a certificate with a lifetime, and returns it in PEM. `usages` are usage names of the API:
    /// `digital signature`, `key encipherment`, `client auth`, `server auth`.
    ///
    /// # Errors
    /// Fails if the authority has expired, or if a usage is not supported.
    pub fn issue(
        &self,
        request: &Request,
        usages: &[&str],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<String, CertificateIssueError> {
        let now = now.duration_since(UNIX_EPOCH).map_err(|_| CertificateIssueError::Unsigned)?;
        if now.as_secs() >= self.ends {
            return Err(CertificateIssueError::Expired);
        }
        let end = now + if lifetime < SHORT { lifetime } else { lifetime.saturating_sub(BACKDATE) };
        let begin = time(now.saturating_sub(BACKDATE).as_secs()).ok_or(CertificateIssueError::Unsigned)?;
        let end = time(end.as_secs().min(self.ends)).ok_or(CertificateIssueError::Unsigned)?;
        let (bits, purposes) = read_usages(usages)?;
        let serial = serial()?;
        let algorithm = self.key.algorithm();
        let signed = sequence(|writer| {
            writer.next().write_tagged(Tag::context(0), |writer| writer.write_u8(2));
            writer.next().write_bigint_bytes(&serial, true);
            writer.next().write_der(&algorithm);
            writer.next().write_der(&self.subject);
            writer.next().write_sequence(|writer| {
                writer.next().write_tagged_der(&begin);
                writer.next().write_tagged_der(&end);
            });
            writer.next().write_der(&request.subject_der);
            writer.next().write_der(&request.key_der);
            writer.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence(|writer| self.write_extensions(writer, request, bits, &purposes));
            });
        });
        let signature = self.key.sign(&signed).ok_or(CertificateIssueError::Unsigned)?;
        Ok(certificate_pem(&sequence(|writer| {
            writer.next().write_der(&signed);
            writer.next().write_der(&algorithm);
            writer.next().write_bitvec_bytes(&signature, 8 * signature.len());
        })))
    }

    fn write_extensions(
        &self,
        writer: &mut DERWriterSeq<'_>,
        request: &Request,
        bits: u8,
        purposes: &[&[u64]],
    ) {
        if bits != 0 {
            let used = 8 - bits.trailing_zeros() as usize;
            write_extension(writer, KEY_USAGE, true, |writer| writer.write_bitvec_bytes(&[bits], used));
        }
        if !purposes.is_empty() {
            write_extension(writer, EXTENDED_KEY_USAGE, false, |writer| {
                writer.write_sequence(|writer| {
                    purposes.iter().for_each(|id| writer.next().write_oid(&ObjectIdentifier::from_slice(id)));
                });
            });
        }
        write_extension(writer, BASIC_CONSTRAINTS, true, |writer| writer.write_sequence(|_| ()));
        write_extension(writer, AUTHORITY_KEY_ID, false, |writer| {
            writer.write_sequence(|writer| write_implicit(writer, 0, &self.key_id));
        });
        if !request.names.is_empty() {
            // The extension with the names is critical if the subject is empty, because then only the names
            // identify the holder (RFC 5280, section 4.1.2.6).
            let is_critical = request.subject_der.len() <= 2;
            write_extension(writer, SUBJECT_ALT_NAME, is_critical, |writer| {
                writer.write_sequence(|writer| write_names(writer, &request.names));
            });
        }
    }
}

/// Returns the bits of KeyUsage and the purposes of ExtendedKeyUsage for names of usages.
fn read_usages(usages: &[&str]) -> Result<(u8, Vec<&'static [u64]>), CertificateIssueError> {
    let (mut bits, mut purposes) = (0, Vec::new());
    for usage in usages {
        match Usage::read(usage).ok_or_else(|| CertificateIssueError::Usage((*usage).to_owned()))? {
            Usage::Bit(bit) => bits |= bit,
            Usage::Purpose(purpose) => purposes.push(purpose),
        }
    }
    Ok((bits, purposes))
}

/// Encodes a certificate as a PEM block (RFC 7468).
pub fn certificate_pem(der: &[u8]) -> String {
    pem_block("CERTIFICATE", der)
}

/// Encodes a PEM block (RFC 7468).
pub(super) fn pem_block(label: &str, der: &[u8]) -> String {
    pem::encode_config(&Pem::new(label, der), EncodeConfig::new().set_line_ending(LineEnding::LF))
}

/// Returns the last second in which a certificate is valid, counted from the Unix epoch. Returns `None` if
/// the DER is malformed.
pub fn end_of(der: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// Encodes a DER sequence.
fn sequence(write: impl FnOnce(&mut DERWriterSeq<'_>)) -> Vec<u8> {
    yasna::construct_der(|writer| writer.write_sequence(write))
}

fn write_extension(
    writer: &mut DERWriterSeq<'_>,
    id: &[u64],
    is_critical: bool,
    value: impl FnOnce(DERWriter<'_>),
) {
    writer.next().write_sequence(|writer| {
        writer.next().write_oid(&ObjectIdentifier::from_slice(id));
        if is_critical {
            writer.next().write_bool(true);
        }
        writer.next().write_bytes(&yasna::construct_der(value));
    });
}

/// Writes bytes with an implicit context-specific tag.
fn write_implicit(writer: &mut DERWriterSeq<'_>, tag: u64, bytes: &[u8]) {
    writer.next().write_tagged_implicit(Tag::context(tag), |writer| writer.write_bytes(bytes));
}

fn write_names(writer: &mut DERWriterSeq<'_>, names: &Names) {
    names.dns.iter().for_each(|name| write_implicit(writer, 2, name.as_bytes()));
    names.emails.iter().for_each(|name| write_implicit(writer, 1, name.as_bytes()));
    names.addresses.iter().for_each(|address| write_implicit(writer, 7, address));
    names.uris.iter().for_each(|name| write_implicit(writer, 6, name.as_bytes()));
}

/// Returns a random positive serial number with exactly 127 significant bits, so that the length is always
/// the same.
fn serial() -> Result<[u8; 16], CertificateIssueError> {
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| CertificateIssueError::Unsigned)?;
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

/// Encodes a time. Years until 2049 have two digits (RFC 5280, section 4.1.2.5).
fn time(seconds: u64) -> Option<TaggedDerValue> {
    let time = jiff::Timestamp::from_second(seconds.try_into().ok()?).ok()?.to_zoned(jiff::tz::TimeZone::UTC);
    let text = time.strftime("%Y%m%d%H%M%SZ").to_string();
    Some(match time.year() {
        1950..=2049 => TaggedDerValue::from_tag_and_bytes(TAG_UTCTIME, text.as_bytes()[2..].to_vec()),
        _ => TaggedDerValue::from_tag_and_bytes(TAG_GENERALIZEDTIME, text.into_bytes()),
    })
}

#[cfg(test)]
#[path = "certificate_authority_test.rs"]
mod tests;
