//! Tests that the authenticator of client certificates accepts the certificates that an authority issued, but
//! only during their validity.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, DnValue, IsCa, KeyPair, KeyUsagePurpose, PublicKeyData,
    SanType, SignatureAlgorithm,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};
use yasna::tags::{TAG_PRINTABLESTRING, TAG_UTF8STRING};

use super::*;
use crate::authn::NameDomains;
use crate::authn::x509::{CaBundle, ClientCertificates, PeerCertificates};

const HOUR: Duration = Duration::from_secs(3600);
const CLIENT: [&str; 3] = ["digital signature", "key encipherment", "client auth"];

fn authority(algorithm: &'static SignatureAlgorithm) -> (String, Authority) {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.not_after = rcgen::date_time_ymd(2060, 1, 1);
    let certificate = params.self_signed(&key).unwrap().pem();
    let authority = Authority::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    (certificate, authority)
}

fn request(names: Vec<SanType>) -> Request {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "jane");
    params.distinguished_name.push(DnType::OrganizationName, DnValue::Utf8String("dév".to_owned()));
    params.subject_alt_names = names;
    Request::from_pem(params.serialize_request(&key).unwrap().pem().unwrap().as_bytes()).unwrap()
}

#[test]
fn a_certificate_identifies_the_subject_of_its_request() {
    let algorithms = [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ECDSA_P521_SHA512,
        &rcgen::PKCS_RSA_SHA256,
    ];
    for algorithm in algorithms {
        let (bundle, authority) = authority(algorithm);
        let now = SystemTime::now();
        let certificate = authority.issue(&request(vec![]), &CLIENT, HOUR, now).unwrap();
        let chain =
            PeerCertificates::new(vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()]);
        let clients = ClientCertificates::new(
            CaBundle::from_pem(bundle.as_bytes()).unwrap(),
            &NameDomains::new("example.org"),
        );
        let user = clients.user(&chain, now).unwrap().unwrap();
        assert_eq!((&*user.name, &*user.groups[0]), ("jane", "dév"), "{algorithm:?}");
        assert!(clients.user(&chain, now + HOUR + Duration::from_secs(2)).is_err(), "{algorithm:?}");
        let server = authority.issue(&request(vec![]), &["server auth"], HOUR, now).unwrap();
        let chain = PeerCertificates::new(vec![CertificateDer::from_pem_slice(server.as_bytes()).unwrap()]);
        assert!(clients.user(&chain, now).is_err(), "not for clients");
    }
}

/// Returns a subject whose only set contains two organizations and a common name. The strings have two
/// different types.
fn odd_subject() -> Vec<u8> {
    let attribute = |writer: DERWriter<'_>, id: u64, tag: Tag, text: &str| {
        writer.write_sequence(|writer| {
            writer.next().write_oid(&ObjectIdentifier::from_slice(&[2, 5, 4, id]));
            writer.next().write_tagged_implicit(tag, |writer| writer.write_bytes(text.as_bytes()));
        });
    };
    sequence(|writer| {
        writer.next().write_set(|writer| {
            attribute(writer.next(), 10, TAG_PRINTABLESTRING, "b");
            attribute(writer.next(), 10, TAG_UTF8STRING, "a");
            attribute(writer.next(), 3, TAG_UTF8STRING, "jane");
        });
    })
}

#[test]
fn a_certificate_has_the_bytes_of_the_requested_subject_and_key() {
    let (_, authority) = authority(&rcgen::PKCS_ECDSA_P256_SHA256);
    for algorithm in [&rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_RSA_SHA256] {
        let pair = KeyPair::generate_for(algorithm).unwrap();
        let key = PrivateKey::from_der(&pair.serialize_der()).unwrap();
        let info = sequence(|writer| {
            writer.next().write_u8(0);
            writer.next().write_der(&odd_subject());
            writer.next().write_der(&pair.subject_public_key_info());
            writer.next().write_tagged(Tag::context(0), |_| ());
        });
        let signature = key.sign(&info).unwrap();
        let request = sequence(|writer| {
            writer.next().write_der(&info);
            writer.next().write_der(&key.algorithm());
            writer.next().write_bitvec_bytes(&signature, 8 * signature.len());
        });
        let request = Request::from_pem(pem_block("CERTIFICATE REQUEST", &request).as_bytes()).unwrap();
        assert_eq!((&*request.subject.common_name, request.subject.organizations.len()), ("jane", 2));
        let certificate = authority.issue(&request, &CLIENT, HOUR, SystemTime::now()).unwrap();
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        assert_eq!(parsed.subject().as_raw(), odd_subject());
        assert_eq!(parsed.public_key().raw, pair.subject_public_key_info());
        let usage = parsed.key_usage().unwrap().unwrap();
        assert!(usage.critical && usage.value.flags == 0b101, "{usage:?}");
    }
}

#[test]
fn a_certificate_has_the_requested_content_and_does_not_outlive_its_authority() {
    let (_, authority) = authority(&rcgen::PKCS_ECDSA_P256_SHA256);
    let names = vec![
        SanType::DnsName("a.example".try_into().unwrap()),
        SanType::IpAddress("fd00::7".parse().unwrap()),
    ];
    let request = request(names);
    let year_2000 = 946_684_800;
    for (now, lifetime, begin, end) in [
        (year_2000, HOUR, year_2000 - 300, year_2000 + 3600),
        (year_2000, HOUR * 8, year_2000 - 300, year_2000 + 8 * 3600 - 300),
        (year_2000, HOUR * 24 * 365 * 70, year_2000 - 300, 2_840_140_800), // 2060-01-01
        (2_600_000_000, HOUR, 2_600_000_000 - 300, 2_600_000_000 + 3600),  // after 2049
    ] {
        let at = UNIX_EPOCH + Duration::from_secs(now);
        let pem = authority.issue(&request, &["client auth"], lifetime, at).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let (rest, parsed) = X509Certificate::from_der(&der).unwrap();
        assert!(rest.is_empty() && !parsed.is_ca() && parsed.version.0 == 2);
        let validity = parsed.validity();
        let got = (validity.not_before.timestamp(), validity.not_after.timestamp());
        assert_eq!(got, (begin as i64, end as i64), "{now} {lifetime:?}");
        assert_eq!(parsed.issuer().to_string(), "CN=ca");
        assert!(parsed.key_usage().unwrap().is_none());
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth && !usage.any);
        let names = parsed.subject_alternative_name().unwrap().unwrap().value;
        assert_eq!(names.general_names.len(), 2, "{names:?}");
    }
    let late = UNIX_EPOCH + Duration::from_secs(2_840_140_800);
    assert_eq!(authority.issue(&request, &[], HOUR, late), Err(CertificateIssueError::Expired));
    let odd = authority.issue(&request, &["cert sign"], HOUR, UNIX_EPOCH);
    assert_eq!(odd, Err(CertificateIssueError::Usage("cert sign".to_owned())));
}

#[test]
fn an_authority_is_a_certificate_and_its_own_key() {
    let (certificate, _) = authority(&rcgen::PKCS_ECDSA_P256_SHA256);
    let other = KeyPair::generate().unwrap();
    let leaf = CertificateParams::default().self_signed(&other).unwrap().pem();
    let key = other.serialize_pem();
    for (certificate, key, want) in [
        ("", &*key, AuthorityError::Certificate),
        (&*certificate, "", AuthorityError::Key),
        (&*certificate, &*key, AuthorityError::Mismatch),
        (&*leaf, &*key, AuthorityError::NoAuthority),
    ] {
        let got = Authority::from_pem(certificate.as_bytes(), key.as_bytes());
        assert_eq!(got.unwrap_err(), want);
    }
}
