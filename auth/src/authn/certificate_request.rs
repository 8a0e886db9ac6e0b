//! Certificate requests (PKCS #10 in PEM, RFC 2986): the subject, the names and the key for the requested
//! certificate.
//!
//! The signature of a request proves that the sender has the private key. [`Request::from_pem`] verifies this
//! signature; [`subject`] does not. RFC 5280, section 4.2.1.6, defines the kinds of names. Other kinds of names
//! in a request are ignored.

use x509_parser::asn1_rs::{Any, Oid};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{
    OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519, OID_X509_COMMON_NAME,
    OID_X509_ORGANIZATION_NAME,
};
use x509_parser::prelude::{FromDer, X509CertificationRequest};
use yasna::DERWriter;
use yasna::models::ObjectIdentifier;

use super::certificate_signature::DocumentSignature;
use super::trust_anchors::Blocks;

/// Identifier byte of an ASN.1 sequence.
const SEQUENCE: u8 = 0x30;

/// Size limit of a request in bytes. A request with many names has a few thousand bytes.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Object identifiers of attributes in a name (id-at).
const COMMON_NAME: &[u64] = &[2, 5, 4, 3];
const ORGANIZATION: &[u64] = &[2, 5, 4, 10];

/// The subject of a request, which becomes the subject of the certificate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RequestedSubject {
    /// The last common name; empty if there is no common name.
    pub common_name: String,
    /// All organizations, in the order of the request.
    pub organizations: Vec<String>,
}

/// The alternative names of a request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Names {
    /// DNS names, as in the request.
    pub dns: Vec<String>,
    /// Email addresses, as in the request.
    pub emails: Vec<String>,
    /// IP addresses of 4 or 16 bytes.
    pub addresses: Vec<Vec<u8>>,
    /// URIs, as in the request.
    pub uris: Vec<String>,
}

impl Names {
    /// Returns whether the request has no alternative names.
    pub fn is_empty(&self) -> bool {
        *self == Names::default()
    }
}

/// A certificate request with a verified signature.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// The subject that is requested for the certificate.
    pub subject: RequestedSubject,
    /// Alternative names of the subject.
    pub names: Names,
    /// The subject in DER, as in the request.
    pub(super) subject_der: Vec<u8>,
    /// The public key with its algorithm, in DER.
    pub(super) key_der: Vec<u8>,
}

/// Reasons why a request cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// The text is not PEM, or the PEM block has another type.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NoRequest,
    /// The block does not contain a PKCS #10 request.
    #[error("malformed certificate request")]
    Malformed,
    /// The block is empty.
    #[error("asn1: syntax error: sequence truncated")]
    Empty,
    /// The block ends within the tag or the length.
    #[error("asn1: syntax error: truncated tag or length")]
    TruncatedLength,
    /// The block is shorter than the length in its header.
    #[error("asn1: syntax error: data truncated")]
    TruncatedData,
    /// Bytes follow the request.
    #[error("asn1: syntax error: trailing data")]
    TrailingData,
    /// The block does not begin with an ASN.1 sequence.
    #[error(
        "asn1: structure error: tags don't match (16 vs {{class:{class} tag:{tag} length:{length} \
         isCompound:{is_compound}}}) {{optional:false explicit:false application:false private:false \
         defaultValue:<nil> tag:<nil> stringType:0 timeType:0 set:false omitEmpty:false}} \
         certificateRequest @{offset}"
    )]
    NoSequence {
        /// Class of the tag.
        class: u8,
        /// Number of the tag.
        tag: u8,
        /// Length of the content in bytes.
        length: usize,
        /// Whether the content consists of ASN.1 elements.
        is_compound: bool,
        /// Offset of the content in the block.
        offset: usize,
    },
    /// A value of the subject is not text.
    #[error("malformed subject")]
    MalformedSubject,
    /// The key in the request did not sign the request, or the kind of the key is not supported.
    #[error("the signature of the certificate request cannot be verified")]
    Signature,
    /// The elliptic curve key in the request did not sign the request.
    #[error("x509: ECDSA verification failure")]
    EcdsaSignature,
    /// The Ed25519 key in the request did not sign the request.
    #[error("x509: Ed25519 verification failure")]
    Ed25519Signature,
    /// The RSA key in the request did not sign the request.
    #[error("crypto/rsa: verification error")]
    RsaSignature,
}

impl RequestError {
    /// Returns the error for a signature that does not match a key of this algorithm.
    fn signature(algorithm: &Oid<'_>) -> RequestError {
        let known = [
            (OID_KEY_TYPE_EC_PUBLIC_KEY, RequestError::EcdsaSignature),
            (OID_SIG_ED25519, RequestError::Ed25519Signature),
            (OID_PKCS1_RSAENCRYPTION, RequestError::RsaSignature),
        ];
        let found = known.into_iter().find(|(known, _)| known == algorithm);
        found.map_or(RequestError::Signature, |(_, error)| error)
    }
}

/// Reads the subject of the first request in `pem`. The signature is not verified.
///
/// # Errors
/// Fails if `pem` contains no request, or if the request is malformed.
pub fn subject(pem: &[u8]) -> Result<RequestedSubject, RequestError> {
    let block = block(pem)?;
    subject_of(&request_of(&block)?)
}

/// Returns the first block of `pem`, which must be a request.
fn block(pem: &[u8]) -> Result<Vec<u8>, RequestError> {
    if pem.len() > REQUEST_BYTES_MAX {
        return Err(RequestError::Malformed);
    }
    let text = String::from_utf8_lossy(pem);
    let block = Blocks(&text).next().filter(|block| block.label == "CERTIFICATE REQUEST");
    Ok(block.ok_or(RequestError::NoRequest)?.content)
}

/// Parses the content of a block as a request.
fn request_of(der: &[u8]) -> Result<X509CertificationRequest<'_>, RequestError> {
    check_sequence(der)?;
    match X509CertificationRequest::from_der(der) {
        Ok(([], request)) => Ok(request),
        Ok(_) => Err(RequestError::TrailingData),
        Err(_) => Err(RequestError::Malformed),
    }
}

/// Checks that `der` begins with a complete sequence. The content of the sequence is not checked.
fn check_sequence(der: &[u8]) -> Result<(), RequestError> {
    let (tag, first) = match *der {
        [] => return Err(RequestError::Empty),
        [_] => return Err(RequestError::TruncatedLength),
        [tag, first, ..] => (tag, first),
    };
    let (length, offset) = match first {
        short @ 0..=0x7f => (usize::from(short), 2),
        long @ 0x81..=0x84 => {
            let offset = 2 + usize::from(long & 0x7f);
            let bytes = der.get(2..offset).ok_or(RequestError::TruncatedLength)?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), offset)
        }
        _ => return Err(RequestError::Malformed),
    };
    if tag != SEQUENCE {
        let (class, is_compound, tag) = (tag >> 6, tag & 0x20 != 0, tag & 0x1f);
        return Err(RequestError::NoSequence { class, tag, length, is_compound, offset });
    }
    if der.len() - offset < length {
        return Err(RequestError::TruncatedData);
    }
    Ok(())
}

fn subject_of(request: &X509CertificationRequest<'_>) -> Result<RequestedSubject, RequestError> {
    let mut subject = RequestedSubject::default();
    for attribute in request.certification_request_info.subject.iter_attributes() {
        let is = |oid: &Oid<'_>| attribute.attr_type() == oid;
        let text = || attribute.as_str().map(str::to_owned).map_err(|_| RequestError::MalformedSubject);
        if is(&OID_X509_COMMON_NAME) {
            subject.common_name = text()?;
        } else if is(&OID_X509_ORGANIZATION_NAME) {
            subject.organizations.push(text()?);
        }
    }
    Ok(subject)
}

/// Writes an attribute with a single value of a name.
fn write_attribute(writer: DERWriter<'_>, kind: &[u64], text: &str) {
    writer.write_set(|values| {
        values.next().write_sequence(|attribute| {
            attribute.next().write_oid(&ObjectIdentifier::from_slice(kind));
            attribute.next().write_utf8_string(text);
        });
    });
}

impl Request {
    /// Returns the request of a client with this user name and these groups. The request has no alternative names.
    /// `key_der` is the client's public key with its algorithm, in DER. The caller must have the private key.
    pub fn of_client(user: &str, groups: &[String], key_der: Vec<u8>) -> Request {
        let subject_der = yasna::construct_der(|writer| {
            writer.write_sequence(|attributes| {
                for group in groups {
                    write_attribute(attributes.next(), ORGANIZATION, group);
                }
                write_attribute(attributes.next(), COMMON_NAME, user);
            });
        });
        Request {
            subject: RequestedSubject { common_name: user.to_owned(), organizations: groups.to_vec() },
            names: Names::default(),
            subject_der,
            key_der,
        }
    }

    /// Reads the first request in `pem`, and verifies that the key in the request signed the request.
    ///
    /// # Errors
    /// Fails if `pem` contains no request, if the request is malformed, or if the signature is wrong.
    pub fn from_pem(pem: &[u8]) -> Result<Request, RequestError> {
        let block = block(pem)?;
        let request = request_of(&block)?;
        let info = &request.certification_request_info;
        let (_, key) = Any::from_der(info.subject_pki.raw).map_err(|_| RequestError::Malformed)?;
        let signature = DocumentSignature {
            message: info.raw,
            algorithm: &request.signature_algorithm,
            value: &request.signature_value,
        };
        if !signature.is_by(key.data) {
            return Err(RequestError::signature(&info.subject_pki.algorithm.algorithm));
        }
        let mut names = Names::default();
        for extension in request.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(alternative) = extension {
                alternative.general_names.iter().for_each(|name| names.add(name));
            }
        }
        let subject = subject_of(&request)?;
        let (subject_der, key_der) = (info.subject.as_raw().to_vec(), info.subject_pki.raw.to_vec());
        Ok(Request { subject, names, subject_der, key_der })
    }
}

impl Names {
    fn add(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => self.dns.push((*name).to_owned()),
            GeneralName::RFC822Name(name) => self.emails.push((*name).to_owned()),
            GeneralName::URI(name) => self.uris.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => self.addresses.push(bytes.to_vec()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::super::certificate_authority::pem_block;
    use super::*;

    #[test]
    fn the_subject_of_a_request_is_read() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.subject_alt_names = vec![
            SanType::DnsName("a.example".try_into().unwrap()),
            SanType::IpAddress([10, 0, 0, 7].into()),
            SanType::URI("spiffe://a".try_into().unwrap()),
        ];
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let read = subject(request.as_bytes()).unwrap();
        assert_eq!(
            (&*read.common_name, &read.organizations),
            ("system:node:a", &vec!["system:nodes".to_owned()])
        );
        let whole = Request::from_pem(request.as_bytes()).unwrap();
        assert_eq!(whole.subject, read);
        let Names { dns, emails, addresses, uris } = whole.names;
        assert_eq!((dns, emails), (vec!["a.example".to_owned()], vec![]));
        assert_eq!((addresses, uris), (vec![vec![10, 0, 0, 7]], vec!["spiffe://a".to_owned()]));

        let certificate = params.self_signed(&key).unwrap().pem();
        let huge = " ".repeat(REQUEST_BYTES_MAX + 1);
        for (text, want) in [
            ("", RequestError::NoRequest),
            (&*certificate, RequestError::NoRequest),
            (&*huge, RequestError::Malformed),
        ] {
            assert_eq!(subject(text.as_bytes()).unwrap_err(), want, "{text}");
            assert_eq!(Request::from_pem(text.as_bytes()).unwrap_err(), want, "{text}");
        }
    }

    #[test]
    fn a_certificate_request_is_one_complete_der_sequence_in_pem() {
        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap();
        let whole = request.der().to_vec();
        let other = |class, tag, length, is_compound| RequestError::NoSequence {
            class,
            tag,
            length,
            is_compound,
            offset: 2,
        };
        for (der, want) in [
            (vec![], RequestError::Empty),
            (vec![0x30], RequestError::TruncatedLength),
            (vec![0x30, 0x82, 1], RequestError::TruncatedLength),
            (vec![0; 3], other(0, 0, 0, false)),
            (b"hello".to_vec(), other(1, 8, 101, true)),
            (vec![0x30, 0x80], RequestError::Malformed),
            (vec![0x30, 0], RequestError::Malformed),
            (whole[..whole.len() - 1].to_vec(), RequestError::TruncatedData),
            ([&*whole, &[0]].concat(), RequestError::TrailingData),
        ] {
            let text = pem_block("CERTIFICATE REQUEST", &der);
            assert_eq!(Request::from_pem(text.as_bytes()), Err(want), "{der:?}");
        }
        assert_eq!(
            other(1, 8, 101, true).to_string(),
            "asn1: structure error: tags don't match (16 vs {class:1 tag:8 length:101 isCompound:true}) \
             {optional:false explicit:false application:false private:false defaultValue:<nil> tag:<nil> \
             stringType:0 timeType:0 set:false omitEmpty:false} certificateRequest @2"
        );
        // The headers of the block, and text before and after the block, are ignored.
        let text = request.pem().unwrap().replacen("REQUEST-----\n", "REQUEST-----\nname: value\n\n", 1);
        assert!(Request::from_pem(format!("before\n{text}after\n").as_bytes()).is_ok());
    }

    #[test]
    fn a_request_must_be_signed_by_its_own_key() {
        let algorithms = [
            (&rcgen::PKCS_ECDSA_P256_SHA256, RequestError::EcdsaSignature),
            (&rcgen::PKCS_ECDSA_P384_SHA384, RequestError::EcdsaSignature),
            (&rcgen::PKCS_ED25519, RequestError::Ed25519Signature),
            (&rcgen::PKCS_RSA_SHA256, RequestError::RsaSignature),
        ];
        for (algorithm, want) in algorithms {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let request = CertificateParams::default().serialize_request(&key).unwrap();
            assert!(Request::from_pem(request.pem().unwrap().as_bytes()).is_ok(), "{algorithm:?}");
            let mut der = request.der().to_vec();
            let at = der.iter().rposition(|byte| *byte != 0).unwrap();
            der[at] ^= 1;
            let text = pem_block("CERTIFICATE REQUEST", &der);
            assert_eq!(Request::from_pem(text.as_bytes()), Err(want), "{algorithm:?}");
        }
    }
}
