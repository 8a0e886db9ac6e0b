//! Certificate requests (PKCS #10 in PEM): whom the certificate would be for.

use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer, X509CertificationRequest};

/// The subject of a request: who the holder of the certificate would be.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Subject {
    /// The last common name; empty without one.
    pub common_name: String,
    /// All organizations, in their order.
    pub organizations: Vec<String>,
}

/// Why a request cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// Not PEM, or PEM of something else.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NoRequest,
    /// The block has no PKCS #10 request.
    #[error("malformed certificate request")]
    Malformed,
    /// A part of the subject is no text.
    #[error("malformed subject")]
    MalformedSubject,
}

/// Checks that `pem` holds a request first. The signature is not checked.
///
/// # Errors
/// There is none, or it is malformed.
pub fn check(pem: &[u8]) -> Result<(), RequestError> {
    subject(pem).map(drop)
}

/// Reads the subject of the first request in `pem`. The signature is not checked.
///
/// # Errors
/// There is none, or it is malformed.
pub fn subject(pem: &[u8]) -> Result<Subject, RequestError> {
    let (_, block) = parse_x509_pem(pem).map_err(|_| RequestError::NoRequest)?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(RequestError::NoRequest);
    }
    let (_, request) =
        X509CertificationRequest::from_der(&block.contents).map_err(|_| RequestError::Malformed)?;
    let mut subject = Subject::default();
    for attribute in request.certification_request_info.subject.iter_attributes() {
        let text = || attribute.as_str().map(str::to_owned).map_err(|_| RequestError::MalformedSubject);
        if *attribute.attr_type() == OID_X509_COMMON_NAME {
            subject.common_name = text()?;
        } else if *attribute.attr_type() == OID_X509_ORGANIZATION_NAME {
            subject.organizations.push(text()?);
        }
    }
    Ok(subject)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn the_subject_of_a_request_is_read() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let read = subject(request.as_bytes()).unwrap();
        assert_eq!(
            (&*read.common_name, read.organizations),
            ("system:node:a", vec!["system:nodes".to_owned()])
        );
        let certificate = params.self_signed(&key).unwrap().pem();
        let label = |text: &str| format!("-----{text} CERTIFICATE REQUEST-----");
        let cut = format!("{}\nAAAA\n{}\n", label("BEGIN"), label("END"));
        for (text, want) in [
            ("", RequestError::NoRequest),
            (&*certificate, RequestError::NoRequest),
            (&*cut, RequestError::Malformed),
        ] {
            assert_eq!(subject(text.as_bytes()).unwrap_err(), want, "{text}");
        }
    }
}
