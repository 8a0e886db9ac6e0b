//! Private keys that sign certificates: RSA and the elliptic curves P-256, P-384 and P-521.

use rcgen::{KeyPair, PublicKeyData, SignatureAlgorithm, SigningKey};
use rustls_pki_types::PrivateKeyDer;
use yasna::models::ObjectIdentifier;

/// A private key with the object identifier of its signature algorithm.
#[derive(Debug)]
pub(super) struct PrivateKey {
    pair: KeyPair,
    algorithm_id: &'static [u64],
}

/// A signature algorithm with its object identifier (RFC 8017, appendix A.2.4, and RFC 5758, section 3.2).
type Algorithm = (&'static SignatureAlgorithm, &'static [u64]);

/// The signature algorithms, one for each type of key.
const ALGORITHMS: [Algorithm; 4] = [
    (&rcgen::PKCS_RSA_SHA256, &[1, 2, 840, 113_549, 1, 1, 11]),
    (&rcgen::PKCS_ECDSA_P256_SHA256, &[1, 2, 840, 10_045, 4, 3, 2]),
    (&rcgen::PKCS_ECDSA_P384_SHA384, &[1, 2, 840, 10_045, 4, 3, 3]),
    (&rcgen::PKCS_ECDSA_P521_SHA512, &[1, 2, 840, 10_045, 4, 3, 4]),
];

impl PrivateKey {
    /// Reads a key in PKCS #8, PKCS #1 or SEC 1 format; `None` if the key is malformed or has another type.
    pub(super) fn from_der(der: &[u8]) -> Option<PrivateKey> {
        // For elliptic curve keys, the parser accepts PKCS #8 and SEC 1 format in both variants.
        let forms = [PrivateKeyDer::Pkcs8(der.into()), PrivateKeyDer::Pkcs1(der.into())];
        ALGORITHMS.into_iter().find_map(|(algorithm, algorithm_id)| {
            let read = |form| KeyPair::from_der_and_sign_algo(form, algorithm).ok();
            Some(PrivateKey { pair: forms.iter().find_map(read)?, algorithm_id })
        })
    }

    /// Returns whether the key is an RSA key.
    pub(super) fn is_rsa(&self) -> bool {
        self.pair.is_compatible(&rcgen::PKCS_RSA_SHA256)
    }

    /// Returns the public key, without its algorithm.
    pub(super) fn public(&self) -> &[u8] {
        self.pair.der_bytes()
    }

    /// Returns the AlgorithmIdentifier of the signatures of this key in DER.
    pub(super) fn algorithm(&self) -> Vec<u8> {
        yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_oid(&ObjectIdentifier::from_slice(self.algorithm_id));
                if self.is_rsa() {
                    writer.next().write_null();
                }
            });
        })
    }

    /// Returns the signature over `message`; `None` if the cryptography library fails.
    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.pair.sign(message).ok()
    }
}
