//! Verification of the signatures of certificates (RFC 5280, section 4.1) and of certificate requests (RFC 2986,
//! section 4.2).

use rustls_pki_types::SignatureVerificationAlgorithm;
use x509_parser::asn1_rs::{Any, BitString, FromDer, ToDer};
use x509_parser::x509::AlgorithmIdentifier;

/// A signature in a parsed document, with the bytes that the signature covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct DocumentSignature<'d> {
    pub(super) message: &'d [u8],
    pub(super) algorithm: &'d AlgorithmIdentifier<'d>,
    pub(super) value: &'d BitString<'d>,
}

impl DocumentSignature<'_> {
    /// Returns whether the signature was made with `key`, the content of a SubjectPublicKeyInfo.
    pub(super) fn is_by(&self, key: &[u8]) -> bool {
        let Ok((rest, key_algorithm)) = Any::from_der(key) else { return false };
        let Ok((_, key)) = BitString::from_der(rest) else { return false };
        let Some(algorithm) = identifier(self.algorithm) else { return false };
        let fits = |known: &&&dyn SignatureVerificationAlgorithm| {
            known.public_key_alg_id().as_ref() == key_algorithm.data
                && known.signature_alg_id().as_ref() == algorithm
        };
        let is_whole = key.unused_bits == 0 && self.value.unused_bits == 0;
        let mut known = webpki::ALL_VERIFICATION_ALGS.iter().filter(fits);
        is_whole
            && known.any(|known| known.verify_signature(&key.data, self.message, &self.value.data).is_ok())
    }
}

/// Returns the content of an AlgorithmIdentifier in DER.
fn identifier(algorithm: &AlgorithmIdentifier<'_>) -> Option<Vec<u8>> {
    let mut der = algorithm.algorithm.to_der_vec().ok()?;
    if let Some(parameters) = &algorithm.parameters {
        der.extend(parameters.to_der_vec().ok()?);
    }
    Some(der)
}
