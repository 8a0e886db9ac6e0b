//! A client's certificate that is an authority itself, issued by one of the bundle.
//!
//! Path building (RFC 5280, section 6) refuses an authority as the end of a path. Go's verifier takes it: what a certificate
//! may issue does not matter for the client that shows it. Only direct issuance is looked at, and no issuer that constrains
//! names. Dates and usages of the certificate are checked elsewhere (`trusted_leaf.rs`).

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The authorities of a bundle.
#[derive(Default)]
pub(super) struct Issuers(Vec<CertificateDer<'static>>);

impl Issuers {
    /// Adds an authority.
    pub(super) fn add(&mut self, certificate: CertificateDer<'static>) {
        self.0.push(certificate);
    }

    /// Whether one of the authorities has issued the certificate. Costs a signature check for each of the issuer's name.
    pub(super) fn have_issued(&self, certificate: &CertificateDer<'_>) -> bool {
        X509Certificate::from_der(certificate)
            .is_ok_and(|(_, certificate)| self.0.iter().any(|issuer| has_issued(issuer, &certificate)))
    }
}

fn has_issued(issuer: &CertificateDer<'_>, certificate: &X509Certificate<'_>) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(issuer) else { return false };
    let is_issuer = parsed.is_ca()
        && matches!(parsed.name_constraints(), Ok(None))
        && parsed.subject().as_raw() == certificate.issuer().as_raw();
    // The type is named after its usual use; here it holds the issuer's key.
    let Ok(key) = webpki::EndEntityCert::try_from(issuer) else { return false };
    let (signed, signature) = (certificate.tbs_certificate.as_ref(), &certificate.signature_value.data);
    is_issuer
        && webpki::ALL_VERIFICATION_ALGS
            .iter()
            .any(|algorithm| key.verify_signature(*algorithm, signed, signature).is_ok())
}
