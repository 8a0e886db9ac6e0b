//! A peer's certificate that is itself among the trusted ones: it needs no path, whether it is an authority or not.
//!
//! A self-signed certificate is often both what a server shows and the authority that clients are given, with `CA:TRUE`
//! in it. Path building (RFC 5280, section 6) refuses an authority as the end of a path. There is no path to build here:
//! the certificate is trusted as it is, so only what it says of itself is checked. Go's verifier does the same. The name
//! is the caller's to check, and the possession of the key is proven by the handshake.

use std::collections::HashSet;

use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::sha256;

/// What a certificate is shown for. One without extended key usages is for all (RFC 5280, section 4.2.1.12).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Usage {
    /// By a client.
    Client,
    /// By a server.
    Server,
}

/// Why a trusted certificate does not count.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unfit {
    /// It cannot be parsed.
    #[error("the certificate is malformed")]
    Malformed,
    /// It begins later.
    #[error("the certificate is not valid yet")]
    NotYet {
        /// Its first second, since 1970.
        not_before: i64,
    },
    /// It has ended.
    #[error("the certificate has expired")]
    Expired {
        /// Its last second, since 1970.
        not_after: i64,
    },
    /// Its extended key usages are others.
    #[error("the certificate is for another usage")]
    Usage,
}

/// The trusted certificates, by their digests.
#[derive(Clone, Debug, Default)]
pub struct TrustedLeaves(HashSet<[u8; 32]>);

impl TrustedLeaves {
    /// Adds a certificate.
    pub fn add(&mut self, certificate: &CertificateDer<'_>) {
        self.0.insert(sha256(certificate));
    }

    /// Whether `leaf` is fit for `usage` at a time, if it is one of these, byte for byte; `None`: it needs a path.
    pub fn judge(&self, leaf: &CertificateDer<'_>, usage: Usage, now: UnixTime) -> Option<Result<(), Unfit>> {
        self.0.contains(&sha256(leaf)).then(|| fit(leaf, usage, now))
    }
}

/// Whether a certificate that needs no further path is within its validity and for `usage`.
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
