//! Checks whether a server can use a serving certificate and its key in PEM (RFC 7468).
//!
//! ```text
//! certificate blocks ─► the first one's public key ─┐
//! first key block ────► its public key ─────────────┴─► equal?
//! ```
//!
//! Error texts equal the texts of Go's TLS package and never contain key material. If this crate does not
//! support the type of a key, the key is assumed to be valid.

use x509_parser::asn1_rs::Sequence;
use x509_parser::oid_registry::OID_PKCS1_RSAENCRYPTION;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::private_key::PrivateKey;
use super::trust_anchors::{Block, Blocks};

const CERTIFICATE: &str = "CERTIFICATE";
const KEY: &str = "PRIVATE KEY";

/// Returns the reason why a server cannot use a certificate and a key, if any.
pub fn problem(certificate: &[u8], key: &[u8]) -> Option<String> {
    let (certificate, key) = (String::from_utf8_lossy(certificate), String::from_utf8_lossy(key));
    let (certificates, others): (Vec<Block>, Vec<Block>) =
        Blocks(&certificate).partition(|block| block.label == CERTIFICATE);
    let Some(certificate) = certificates.first() else {
        return Some(match &*others {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [one] if one.label.ends_with(KEY) => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may \
                 have been switched"
                    .to_owned()
            }
            others => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
                 following types: {}",
                labels(others)
            ),
        });
    };
    let is_key = |block: &Block| {
        block.label.strip_suffix(KEY).is_some_and(|kind| kind.is_empty() || kind.ends_with(' '))
    };
    let blocks: Vec<Block> = Blocks(&key).collect();
    let Some(key) = blocks.iter().find(|block| is_key(block)) else {
        return Some(match &*blocks {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            [one] if one.label == CERTIFICATE => {
                "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
            }
            others => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of \
                 the following types: {}",
                labels(others)
            ),
        });
    };
    let Ok((_, certificate)) = X509Certificate::from_der(&certificate.content) else {
        return Some("x509: malformed certificate".to_owned());
    };
    if !Sequence::from_der(&key.content).is_ok_and(|(after, _)| after.is_empty()) {
        return Some("tls: failed to parse private key".to_owned());
    }
    let key = PrivateKey::from_der(&key.content)?;
    let is_rsa = certificate.public_key().algorithm.algorithm == OID_PKCS1_RSAENCRYPTION;
    if is_rsa != key.is_rsa() {
        return Some("tls: private key type does not match public key type".to_owned());
    }
    let is_own = key.public() == &*certificate.public_key().subject_public_key.data;
    (!is_own).then(|| "tls: private key does not match public key".to_owned())
}

/// Formats the labels of blocks as `[A B]`.
fn labels(blocks: &[Block]) -> String {
    let labels: Vec<&str> = blocks.iter().map(|block| block.label).collect();
    format!("[{}]", labels.join(" "))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn a_key_pair_is_a_certificate_with_its_own_private_key() {
        let pair = || {
            let key = KeyPair::generate().unwrap();
            (CertificateParams::default().self_signed(&key).unwrap().pem(), key.serialize_pem())
        };
        let ((certificate, key), (_, other)) = (pair(), pair());
        let garbage = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
        for (certificate, key, want) in [
            (&*certificate, &*key, None),
            (
                &format!("text\n{}{certificate}", garbage("OTHER")),
                &format!("{}{key}", garbage("EC PARAMETERS")),
                None,
            ),
            ("x", &key, Some("tls: failed to find any PEM data in certificate input")),
            (
                &key,
                &key,
                Some(
                    "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched",
                ),
            ),
            (
                &format!("{}{}", garbage("A"), garbage("B")),
                &key,
                Some(
                    "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [A B]",
                ),
            ),
            (&certificate, "", Some("tls: failed to find any PEM data in key input")),
            (
                &certificate,
                &certificate,
                Some("tls: found a certificate rather than a key in the PEM for the private key"),
            ),
            (
                &certificate,
                &garbage("MY PRIVATE KEYS"),
                Some(
                    "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [MY PRIVATE KEYS]",
                ),
            ),
            (&garbage("CERTIFICATE"), &key, Some("x509: malformed certificate")),
            (&certificate, &garbage("PRIVATE KEY"), Some("tls: failed to parse private key")),
            (&certificate, &other, Some("tls: private key does not match public key")),
        ] {
            let found = problem(certificate.as_bytes(), key.as_bytes());
            assert_eq!(found.as_deref(), want, "{certificate}{key}");
        }
    }
}
