//! Client certificates: the subject of the certificate is the user
//! (docs/api/authentication.md#client-certificates).
//!
//! ```text
//! chain ─ digest ─► verified under this bundle and not expired? ────────────► User
//!                   └─ no: path to the CA bundle, client usage, dates ─► subject ─┘
//! ```
//!
//! A leaf that is in the bundle needs no path (`trusted_leaf.rs`). Path building refuses a CA certificate
//! (`CA:TRUE`) as a leaf. As in Go's verifier, such a leaf is nevertheless accepted if an authority of the
//! bundle signed it directly.
//!
//! The TLS handshake proves only that the peer has the private key of the leaf. This authenticator verifies
//! the chain with the current bundle. Replacing the bundle also applies to open connections, and drops all
//! cached results. A client with an unknown certificate may still authenticate with a token.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use parking_lot::{Mutex, RwLock};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, RequiredEkuNotFoundContext};
use x509_parser::asn1_rs::Any;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::NameDomains;
use super::certificate_signature::DocumentSignature;
use super::trusted_leaf::{self, TrustedLeaves, Unfit, Usage};
use crate::identity::User;

/// Maximum number of cached chains. A cached chain takes about 1 KiB. The verification of a chain takes a few
/// hundred microseconds.
const REMEMBERED_MAX: usize = 4096;

/// Object identifier of the subject attribute that contains the uid of the user.
const UID_ATTRIBUTE: &str = "1.3.6.1.4.1.57683.2";

/// Reasons why a certificate file cannot be used as a CA bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The file is not valid PEM.
    #[error("not a PEM file")]
    Pem(#[source] pem::Error),
    /// The file contains no certificate.
    #[error("holds no certificate")]
    Empty,
    /// A certificate cannot be used as a certificate authority.
    #[error("certificate {position} cannot be used as a certificate authority")]
    Unusable {
        /// Position in the file; the first certificate has position 1.
        position: usize,
        /// Error from the certificate library.
        #[source]
        source: webpki::Error,
    },
}

/// Reasons why a client certificate is refused.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The chain does not end at the CA bundle, is outside its validity, or is not for client authentication.
    #[error("verifying the client certificate: {0}")]
    Unverified(webpki::Error),
    /// The certificate needs no path, but is outside its validity or is not for client authentication.
    #[error("verifying the client certificate: {0}")]
    Unfit(Unfit),
    /// The certificate cannot be parsed.
    #[error("the client certificate is malformed")]
    Malformed,
    /// A subject attribute is not text in a known encoding.
    #[error("subject attribute {0} of the client certificate is not readable text")]
    UnreadableAttribute(String),
    /// The id attribute occurs twice.
    #[error("the client certificate holds more than one user id")]
    ManyIds,
    /// The id attribute is empty.
    #[error("the user id of the client certificate is empty")]
    EmptyId,
}

/// The certificates that a peer has sent, beginning with the peer's own certificate. Derived values are
/// computed once per connection.
#[derive(Default)]
pub struct PeerCertificates {
    certificates: Vec<CertificateDer<'static>>,
    digest: OnceLock<[u8; 32]>,
    expires: OnceLock<Option<SystemTime>>,
}

impl PeerCertificates {
    /// Creates a chain of certificates. An empty list means that the peer has sent no certificate.
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> PeerCertificates {
        PeerCertificates { certificates, ..PeerCertificates::default() }
    }

    /// Returns the certificates, beginning with the peer's own certificate.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// Returns whether the peer has sent no certificate.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// Returns the time from which the chain must be verified again. Returns `None` if there are no
    /// certificates, or if a certificate cannot be parsed.
    pub fn expires(&self) -> Option<SystemTime> {
        *self.expires.get_or_init(|| expiry(&self.certificates))
    }

    /// Returns the SHA-256 of all certificates. A certificate in DER contains its length, so the
    /// concatenation is unambiguous.
    fn digest(&self) -> [u8; 32] {
        *self.digest.get_or_init(|| {
            let mut context = digest::Context::new(&digest::SHA256);
            self.certificates.iter().for_each(|certificate| context.update(certificate));
            let mut digest = [0; 32];
            digest.copy_from_slice(context.finish().as_ref());
            digest
        })
    }
}

/// A bundle of certificate authorities that sign client certificates.
pub struct CaBundle {
    anchors: Vec<TrustAnchor<'static>>,
    leaves: TrustedLeaves,
}

/// The check of the extended key usages in a client's chain: client authentication, any usage, or no
/// extension is accepted (RFC 5280, section 4.2.1.12).
struct OfClients;

impl ExtendedKeyUsageValidator for OfClients {
    fn validate(&self, usages: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        const CLIENT: KeyPurposeId<'_> = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 2]);
        const ANY: KeyPurposeId<'_> = KeyPurposeId::new(&[0x55, 0x1d, 0x25, 0]);
        let mut present = Vec::new();
        for usage in usages {
            let usage = usage?;
            if [CLIENT, ANY].contains(&usage) {
                return Ok(());
            }
            present.push(usage.to_decoded_oid());
        }
        if present.is_empty() {
            return Ok(());
        }
        let required = webpki::KeyUsage::client_auth();
        Err(webpki::Error::RequiredEkuNotFoundContext(RequiredEkuNotFoundContext { required, present }))
    }
}

impl CaBundle {
    /// Reads a file of PEM certificates. Other PEM sections are skipped.
    ///
    /// # Errors
    /// Fails if the text is not PEM, if it contains no certificate, or if a certificate cannot be used as an
    /// authority.
    pub fn from_pem(text: &[u8]) -> Result<CaBundle, BundleError> {
        let mut anchors = Vec::new();
        let mut leaves = TrustedLeaves::default();
        for (at, certificate) in CertificateDer::pem_slice_iter(text).enumerate() {
            let certificate = certificate.map_err(BundleError::Pem)?;
            let anchor = webpki::anchor_from_trusted_cert(&certificate)
                .map_err(|source| BundleError::Unusable { position: at + 1, source })?;
            anchors.push(anchor.to_owned());
            leaves.add(&certificate);
        }
        if anchors.is_empty() { Err(BundleError::Empty) } else { Ok(CaBundle { anchors, leaves }) }
    }

    /// Returns whether both bundles contain an authority with the same name and the same key.
    pub fn overlaps(&self, other: &CaBundle) -> bool {
        let is_same = |a: &TrustAnchor<'_>, b: &TrustAnchor<'_>| {
            (&a.subject, &a.subject_public_key_info) == (&b.subject, &b.subject_public_key_info)
        };
        self.anchors.iter().any(|own| other.anchors.iter().any(|theirs| is_same(own, theirs)))
    }

    /// Checks that `chain` (leaf first) ends at this bundle, or that its leaf is in this bundle. Also checks
    /// that the chain is valid at `now`, and that it is for client authentication.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<(), CertificateError> {
        let (leaf, intermediates) = chain.split_first().ok_or(CertificateError::Malformed)?;
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO));
        let parsed = webpki::EndEntityCert::try_from(leaf).map_err(CertificateError::Unverified)?;
        if let Some(result) = self.leaves.check(leaf, Usage::Client, now) {
            return result.map_err(CertificateError::Unfit);
        }
        let path = parsed.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &self.anchors,
            intermediates,
            now,
            OfClients,
            None,
            None,
        );
        match path {
            Ok(_) => Ok(()),
            Err(webpki::Error::CaUsedAsEndEntity) if self.signed(leaf) => {
                trusted_leaf::fit(leaf, Usage::Client, now).map_err(CertificateError::Unfit)
            }
            Err(error) => Err(CertificateError::Unverified(error)),
        }
    }

    /// Returns whether an authority of the bundle signed a certificate directly. Authorities with name
    /// constraints are ignored, because only path building applies these constraints.
    fn signed(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
        let Ok((_, issuer)) = Any::from_der(parsed.issuer().as_raw()) else { return false };
        let signature = DocumentSignature {
            message: parsed.tbs_certificate.as_ref(),
            algorithm: &parsed.signature_algorithm,
            value: &parsed.signature_value,
        };
        let named =
            |anchor: &&TrustAnchor<'_>| *anchor.subject == *issuer.data && anchor.name_constraints.is_none();
        self.anchors.iter().filter(named).any(|anchor| signature.is_by(&anchor.subject_public_key_info))
    }
}

/// The authenticator of client certificates.
pub struct ClientCertificates {
    trust: RwLock<Arc<Trust>>,
    credential_id_key: String,
}

/// A bundle and the chains that were verified with it. The bundle and the chains are replaced together, so
/// that a cached result is never used after its authority was removed.
struct Trust {
    bundle: CaBundle,
    verified: Mutex<HashMap<[u8; 32], Verified>>,
}

#[derive(Clone)]
struct Verified {
    user: Option<Arc<User>>,
    /// Earliest end of validity of the certificates in the chain.
    expires: SystemTime,
}

impl ClientCertificates {
    /// Creates an authenticator that accepts users whose chain ends at `bundle`. `domains` defines the key of
    /// the extra value that contains the id of the certificate.
    pub fn new(bundle: CaBundle, domains: &NameDomains) -> ClientCertificates {
        let trust = RwLock::new(Arc::new(Trust::new(bundle)));
        ClientCertificates { trust, credential_id_key: domains.extra("credential-id") }
    }

    /// Replaces the bundle. The change also applies to open connections.
    pub fn replace_bundle(&self, bundle: CaBundle) {
        *self.trust.write() = Arc::new(Trust::new(bundle));
    }

    /// Returns the user of `chain` (leaf first). Returns `None` if the chain is empty, or if the subject has
    /// no common name.
    ///
    /// The cost is a lookup for a cached chain, and usually one or two signature verifications for any other
    /// chain.
    ///
    /// # Errors
    /// Fails if the chain cannot be verified, or if the subject cannot be read.
    pub fn user(
        &self,
        chain: &PeerCertificates,
        now: SystemTime,
    ) -> Result<Option<Arc<User>>, CertificateError> {
        if chain.is_empty() {
            return Ok(None);
        }
        let trust = self.trust.read().clone();
        let id = chain.digest();
        if let Some(known) = trust.verified.lock().get(&id)
            && now < known.expires
        {
            return Ok(known.user.clone());
        }
        trust.bundle.verify(chain.certificates(), now)?;
        let user = self.subject(&chain.certificates()[0])?.map(Arc::new);
        let expires = chain.expires().ok_or(CertificateError::Malformed)?;
        trust.remember(id, Verified { user: user.clone(), expires }, now);
        Ok(user)
    }

    /// Reads the user from the subject of the leaf: the last common name is the user name, and the
    /// organizations are the groups.
    fn subject(&self, leaf: &CertificateDer<'_>) -> Result<Option<User>, CertificateError> {
        let (_, certificate) = X509Certificate::from_der(leaf).map_err(|_| CertificateError::Malformed)?;
        let (mut name, mut uids) = ("", Vec::new());
        let mut groups = Vec::new();
        for attribute in certificate.subject().iter_attributes() {
            let kind = attribute.attr_type();
            let is_name = *kind == x509_parser::oid_registry::OID_X509_COMMON_NAME;
            let is_group = *kind == x509_parser::oid_registry::OID_X509_ORGANIZATION_NAME;
            let is_uid = kind.to_id_string() == UID_ATTRIBUTE;
            if !(is_name || is_group || is_uid) {
                continue;
            }
            let unreadable = |_| CertificateError::UnreadableAttribute(kind.to_id_string());
            let value = attribute.as_str().map_err(unreadable)?;
            if is_name {
                name = value;
            } else if is_group {
                groups.push(value.to_owned());
            } else {
                uids.push(value);
            }
        }
        if name.is_empty() {
            return Ok(None);
        }
        let uid = match *uids {
            [] => "",
            [""] => return Err(CertificateError::EmptyId),
            [uid] => uid,
            _ => return Err(CertificateError::ManyIds),
        };
        let mut user = User::new(name, groups);
        uid.clone_into(&mut user.uid);
        let fingerprint = digest::digest(&digest::SHA256, leaf);
        let credential_id = format!("X509SHA256={}", super::hex(fingerprint.as_ref()));
        user.extra.insert(self.credential_id_key.clone(), vec![credential_id]);
        user.mark_authenticated();
        Ok(Some(user))
    }
}

impl Trust {
    fn new(bundle: CaBundle) -> Trust {
        Trust { bundle, verified: Mutex::default() }
    }

    fn remember(&self, id: [u8; 32], verified: Verified, now: SystemTime) {
        let mut known = self.verified.lock();
        if known.len() >= REMEMBERED_MAX {
            known.retain(|_, entry| now < entry.expires);
            // If the cache is full of valid chains, clear the cache. Clearing is rare, and costs one more
            // verification of each chain.
            if known.len() >= REMEMBERED_MAX {
                known.clear();
            }
        }
        known.insert(id, verified);
    }
}

/// Returns the earliest time at which a certificate of a chain expires. Returns `None` if there are no
/// certificates, or if a certificate cannot be parsed.
fn expiry(chain: &[CertificateDer<'_>]) -> Option<SystemTime> {
    let mut first = None;
    for certificate in chain {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let last = parsed.validity().not_after.timestamp().try_into().unwrap_or(0);
        first = Some(first.map_or(last, |first: u64| first.min(last)));
    }
    // The validity includes its last second.
    UNIX_EPOCH.checked_add(Duration::from_secs(first?.checked_add(1)?))
}

#[cfg(test)]
#[path = "x509_test.rs"]
mod tests;
