//! Verification of a peer whose own certificate is in the set of trusted certificates. Such a certificate
//! needs no certification path, whether it is a CA certificate or not.
//!
//! Servers often use a self-signed certificate with `CA:TRUE`, and their clients trust this certificate. Path
//! building (RFC 5280, section 6) refuses a CA certificate as the end of a path. Therefore this module builds
//! no path: like Go's verifier, the module trusts the certificate and checks only its fields. The caller
//! checks the name, and the handshake proves that the peer has the private key.

use std::collections::HashSet;

use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::sha256;

/// The purpose for which the peer uses its certificate. A certificate without extended key usages is valid
/// for all purposes (RFC 5280, section 4.2.1.12).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Usage {
    /// The peer authenticates as a client.
    Client,
    /// The peer authenticates as a server.
    Server,
}

/// Reasons why a trusted certificate is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unfit {
    /// The certificate cannot be parsed.
    #[error("the certificate is malformed")]
    Malformed,
    /// The certificate is not valid yet.
    #[error("the certificate is not valid yet")]
    NotYet {
        /// First second of validity, counted from the Unix epoch.
        not_before: i64,
    },
    /// The certificate has expired.
    #[error("the certificate has expired")]
    Expired {
        /// Last second of validity, counted from the Unix epoch.
        not_after: i64,
    },
    /// The extended key usages do not include this purpose.
    #[error("the certificate is for another usage")]
    Usage,
}

/// The trusted certificates, identified by their digests.
#[derive(Clone, Debug, Default)]
pub struct TrustedLeaves(HashSet<[u8; 32]>);

impl TrustedLeaves {
    /// Adds a certificate to the set.
    pub fn add(&mut self, certificate: &CertificateDer<'_>) {
        self.0.insert(sha256(certificate));
    }

    /// Returns whether `leaf`, if it is in the set, is valid for `usage` at the time `now`. `None` means that
    /// the certificate is not in the set, so it needs a certification path.
    pub fn check(&self, leaf: &CertificateDer<'_>, usage: Usage, now: UnixTime) -> Option<Result<(), Unfit>> {
        self.0.contains(&sha256(leaf)).then(|| fit(leaf, usage, now))
    }
}

/// Checks that a certificate without a certification path is within its validity, and that it may be used for
/// `usage`.
pub(super) fn fit(leaf: &CertificateDer<'_>, usage: Usage, now: UnixTime) -> Result<(), Unfit> {
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|_| Unfit::Malformed)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let (not_before, not_after) =
        (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
    if now < not_before {
        return Err(Unfit::NotYet { not_before });
    }
    if now > not_after {
        return Err(Unfit::Expired { not_after });
    }
    let usages = leaf.extended_key_usage().map_err(|_| Unfit::Malformed)?;
    let is_for = usages.is_none_or(|usages| {
        let usages = usages.value;
        usages.any
            || match usage {
                Usage::Client => usages.client_auth,
                Usage::Server => usages.server_auth,
            }
    });
    if is_for { Ok(()) } else { Err(Unfit::Usage) }
}
