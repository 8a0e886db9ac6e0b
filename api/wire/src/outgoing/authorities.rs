//! Verification of the certificates of other servers.
//!
//! ```text
//! certificate ─┬─ itself one of the authorities ─► dates, usage ─┬─► name
//!              └─ another ─► path to one of the authorities ─────┘
//! ```
//!
//! A certificate that is itself trusted needs no path, as in Go's verifier: clients are often configured with
//! the self-signed certificate of a server, with `CA:TRUE`, as the authority for this server. The handshake
//! proves possession of the key in both cases.

use std::sync::Arc;

use auth::authn::trusted_leaf::{TrustedLeaves, Unfit, Usage};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// The trusted certificates against which the certificates of servers are verified.
#[derive(Debug)]
pub struct Authorities {
    roots: RootCertStore,
    leaves: TrustedLeaves,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Authorities {
    fn none() -> Authorities {
        let algorithms = provider().signature_verification_algorithms;
        Authorities { roots: RootCertStore::empty(), leaves: TrustedLeaves::default(), algorithms }
    }

    /// Parses PEM. Certificates that cannot be parsed are skipped, if at least one certificate can be parsed.
    ///
    /// # Errors
    /// The text is not PEM, or no certificate in it can be parsed.
    pub fn read(text: &[u8]) -> Result<Authorities, String> {
        let mut authorities = Authorities::none();
        let mut unusable = None;
        for certificate in CertificateDer::pem_slice_iter(text) {
            let certificate =
                certificate.map_err(|_| "the certificates of the authorities are no PEM".to_owned())?;
            unusable = authorities.add(certificate).err().or(unusable);
        }
        match unusable.filter(|_| authorities.is_empty()) {
            Some(error) => Err(error.to_string()),
            None => Ok(authorities),
        }
    }

    /// Returns the reason why the text in a configuration contains no usable authority, with the wording of
    /// Go's clients. An empty text is valid and means the authorities of the system.
    pub fn fault(text: &[u8]) -> Option<&'static str> {
        let is_usable = Authorities::read(text).is_ok_and(|authorities| !authorities.is_empty());
        if text.is_empty() || is_usable {
            return None;
        }
        let has_block =
            PemObject::pem_slice_iter(text).any(|block: Result<CertificateDer<'_>, _>| block.is_ok());
        Some(if has_block {
            "no valid certificate authority data seen"
        } else {
            "unable to parse bytes as PEM block"
        })
    }

    /// Parses the PEM of the system; certificates that cannot be parsed are skipped.
    pub fn read_leniently(text: &[u8]) -> Authorities {
        let mut authorities = Authorities::none();
        for certificate in CertificateDer::pem_slice_iter(text).filter_map(Result::ok) {
            let _ = authorities.add(certificate);
        }
        authorities
    }

    fn add(&mut self, certificate: CertificateDer<'_>) -> Result<(), Error> {
        self.roots.add(certificate.clone())?;
        self.leaves.add(&certificate);
        Ok(())
    }

    /// Returns whether there are no authorities, so that no certificate is accepted.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Converts the authorities to a verifier for the configuration of a TLS client.
    pub fn into_verifier(self) -> Arc<dyn ServerCertVerifier> {
        Arc::new(self)
    }
}

impl ServerCertVerifier for Authorities {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        match self.leaves.check(leaf, Usage::Server, now) {
            Some(result) => result.map_err(|unfit| error(unfit, now))?,
            None => verify_server_cert_signed_by_trust_anchor(
                &parsed,
                &self.roots,
                intermediates,
                now,
                self.algorithms.all,
            )?,
        }
        verify_server_name(&parsed, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Returns the cryptography of outgoing connections.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Converts the reason to an error of rustls. This error determines the TLS alert that rustls sends.
fn error(unfit: Unfit, time: UnixTime) -> Error {
    // A certificate may have expired before 1970; the clamped time is in the past as well.
    let at = |seconds: i64| {
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    };
    Error::InvalidCertificate(match unfit {
        Unfit::Malformed => CertificateError::BadEncoding,
        Unfit::NotYet { not_before } => {
            CertificateError::NotValidYetContext { time, not_before: at(not_before) }
        }
        Unfit::Expired { not_after } => CertificateError::ExpiredContext { time, not_after: at(not_after) },
        Unfit::Usage => CertificateError::InvalidPurpose,
    })
}

#[cfg(test)]
#[path = "authorities_test.rs"]
mod tests;
