//! Tests docs/api/client-configuration.md#certificates-of-servers with generated server certificates.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

use super::super::error::Failure;
use super::*;

/// A certificate and its PEM.
type CertificateAndPem = (CertificateDer<'static>, String);

/// Returns a server certificate for `a.example` that is valid in 2025 and 2026 and has `CA:TRUE`. `change`
/// can modify these parameters. The certificate is self-signed if `issuer` is `None`.
fn certificate(
    issuer: Option<&Issuer<'_, KeyPair>>,
    change: impl FnOnce(&mut CertificateParams),
) -> CertificateAndPem {
    let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2025, 1, 1);
    params.not_after = date_time_ymd(2026, 12, 31);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let made = match issuer {
        Some(issuer) => params.signed_by(&key, issuer),
        None => params.self_signed(&key),
    };
    let made = made.unwrap();
    (made.der().clone(), made.pem())
}

/// Returns the result of verifying a certificate on 2026-01-01.
fn verified(leaf: &CertificateDer<'_>, bundle: &str) -> String {
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_767_225_600));
    let name = ServerName::try_from("a.example").unwrap();
    let authorities = Authorities::read(bundle.as_bytes()).unwrap();
    match authorities.verify_server_cert(leaf, &[], &name, &[], now) {
        Ok(_) => "right".to_owned(),
        Err(Error::InvalidCertificate(why)) => format!("{why:?}"),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_server_certificate_in_the_bundle_needs_no_path_but_a_valid_name_usage_and_time() {
    let usages = |usages: &[ExtendedKeyUsagePurpose]| {
        let usages = usages.to_vec();
        certificate(None, move |params| params.extended_key_usages = usages)
    };
    let (_, stranger) = certificate(None, |_| ());
    for (case, (leaf, pem), want) in [
        ("as openssl makes it", certificate(None, |_| ()), "right"),
        ("no authority", certificate(None, |params| params.is_ca = IsCa::ExplicitNoCa), "right"),
        ("for servers", usages(&[ExtendedKeyUsagePurpose::ServerAuth]), "right"),
        ("for all", usages(&[ExtendedKeyUsagePurpose::Any]), "right"),
        ("for clients", usages(&[ExtendedKeyUsagePurpose::ClientAuth]), "InvalidPurpose"),
        (
            "over",
            certificate(None, |params| params.not_after = date_time_ymd(2025, 12, 31)),
            "ExpiredContext",
        ),
        (
            "not yet",
            certificate(None, |params| params.not_before = date_time_ymd(2026, 6, 1)),
            "NotValidYetContext",
        ),
        (
            "for another name",
            certificate(None, |params| params.subject_alt_names.clear()),
            "NotValidForNameContext",
        ),
    ] {
        let got = verified(&leaf, &format!("{stranger}{pem}"));
        assert!(got.starts_with(want), "{case}: {got}");
        assert_ne!(verified(&leaf, &stranger), "right", "{case}: without it among the authorities");
    }
}

#[test]
fn a_server_certificate_outside_the_bundle_needs_a_path_to_an_authority() {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let no_authority = |params: &mut CertificateParams| params.is_ca = IsCa::NoCa;
    let (leaf, pem) = certificate(Some(&issuer), no_authority);
    let (twin, _) = certificate(Some(&issuer), no_authority);
    for (case, leaf, bundle, want) in [
        ("its authority is known", &leaf, authority.as_str(), "right"),
        ("it is known itself", &leaf, pem.as_str(), "right"),
        ("one of the same names is", &twin, pem.as_str(), "UnknownIssuer"),
        ("there are none", &leaf, "", "UnknownIssuer"),
    ] {
        assert_eq!(verified(leaf, bundle), want, "{case}");
    }
}

#[test]
fn a_bundle_must_be_pem_with_at_least_one_readable_certificate() {
    let (_, pem) = certificate(None, |_| ());
    let odd = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (text, usable) in [
        (pem.clone(), Some(true)),
        (format!("{odd}{pem}"), Some(true)),
        ("no certificate".to_owned(), Some(false)),
        (odd.to_owned(), None),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n".to_owned(), None),
    ] {
        let got = Authorities::read(text.as_bytes()).ok().map(|authorities| !authorities.is_empty());
        assert_eq!(got, usable, "{text}");
        assert_eq!(!Authorities::read_leniently(text.as_bytes()).is_empty(), usable == Some(true));
    }
}

/// Often the certificate of the server and the certificate of another authority both have `CA:TRUE`.
#[test]
fn a_server_with_the_certificate_of_a_foreign_authority_is_refused() {
    let ((leaf, _), (_, stranger)) = (certificate(None, |_| ()), certificate(None, |_| ()));
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_767_225_600));
    let name = ServerName::try_from("a.example").unwrap();
    let authorities = Authorities::read(stranger.as_bytes()).unwrap();
    let error = authorities.verify_server_cert(&leaf, &[], &name, &[], now).unwrap_err();
    let said = Failure::handshake(&std::io::Error::other(error), None).to_string();
    assert_eq!(said, "tls: failed to verify certificate: x509: certificate signed by unknown authority");
}

#[test]
fn a_bundle_without_a_readable_certificate_is_a_fault() {
    let (_, pem) = certificate(None, |_| ());
    let odd = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (text, fault) in [
        (String::new(), None),
        (pem.clone(), None),
        (format!("{odd}{pem}"), None),
        ("\n".to_owned(), Some("unable to parse bytes as PEM block")),
        ("no certificate".to_owned(), Some("unable to parse bytes as PEM block")),
        (odd.to_owned(), Some("no valid certificate authority data seen")),
    ] {
        assert_eq!(Authorities::fault(text.as_bytes()), fault, "{text}");
    }
}
