//! Tests that client certificates behave as docs/api/authentication.md#client-certificates describes. The
//! tests generate the chains.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

use super::*;
use crate::authn::{Anonymous, Authenticated, Authenticator, AuthnError, Credentials};

type Authority = Issuer<'static, KeyPair>;

/// Creates a certificate authority that is self-signed, or that the authority `under` signs.
fn authority(name: &str, under: Option<&Authority>) -> (Authority, CertificateDer<'static>, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = match under {
        Some(issuer) => params.signed_by(&key, issuer).unwrap(),
        None => params.self_signed(&key).unwrap(),
    };
    (Issuer::new(params, key), certificate.der().clone(), certificate.pem())
}

/// Creates a client certificate that is valid in 2025 and 2026. `change` modifies the certificate before it
/// is signed.
fn leaf(issuer: &Authority, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = date_time_ymd(2025, 1, 1);
    params.not_after = date_time_ymd(2026, 12, 31);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
}

fn named(name: &str) -> impl FnOnce(&mut CertificateParams) {
    move |params| params.distinguished_name.push(DnType::CommonName, name)
}

fn certificates(pem: &str) -> ClientCertificates {
    ClientCertificates::new(CaBundle::from_pem(pem.as_bytes()).unwrap(), &NameDomains::new("example.org"))
}

/// Returns 2026-01-01, which is within the validity of the leaf.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_767_225_600)
}

#[test]
fn the_subject_of_a_client_certificate_is_the_user() {
    let (ca, _, pem) = authority("ca", None);
    let leaf = leaf(&ca, |params| {
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "jane");
        name.push(DnType::OrganizationName, "dev");
        name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), "ops");
        name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), "id-1");
    });
    let user = certificates(&pem).user(&PeerCertificates::new(vec![leaf.clone()]), now()).unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "id-1"));
    assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
    let fingerprint = crate::authn::hex(&crate::authn::sha256(&leaf));
    assert_eq!(user.extra["authentication.example.org/credential-id"], [format!("X509SHA256={fingerprint}")]);
}

#[test]
fn client_certificates_are_verified_for_path_usage_and_time() {
    let (ca, ca_der, pem) = authority("ca", None);
    let (stranger, ..) = authority("stranger", None);
    let (middle, middle_der, _) = authority("middle", Some(&ca));
    let by_middle = leaf(&middle, named("jane"));
    let tampered = {
        let mut bytes = leaf(&ca, named("jane")).to_vec();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        CertificateDer::from(bytes)
    };
    let uid = |value: &'static str| {
        leaf(&ca, move |params| {
            named("jane")(params);
            params.distinguished_name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), value);
        })
    };
    let certificates = certificates(&pem);
    for (case, chain, want) in [
        ("no certificate", vec![], "no user"),
        ("known authority", vec![leaf(&ca, named("jane"))], "jane"),
        ("no common name", vec![leaf(&ca, |_| {})], "no user"),
        ("through a middle authority", vec![by_middle.clone(), middle_der.clone()], "jane"),
        ("middle authority not sent", vec![by_middle], "verifying the client certificate: UnknownIssuer"),
        (
            "unknown authority",
            vec![leaf(&stranger, named("jane"))],
            "verifying the client certificate: UnknownIssuer",
        ),
        ("signature does not fit", vec![tampered], "verifying the client certificate: InvalidSignature"),
        (
            "not a certificate",
            vec![CertificateDer::from(vec![48, 1, 2])],
            "verifying the client certificate: BadDer",
        ),
        ("an authority of the bundle as the client", vec![ca_der], "ca"),
        ("an authority under one of the bundle as the client", vec![middle_der.clone()], "middle"),
        (
            "an authority under an unknown one as the client",
            vec![authority("middle", Some(&stranger)).1],
            "verifying the client certificate: CaUsedAsEndEntity",
        ),
        (
            "an authority for servers as the client",
            vec![leaf(&ca, |params| {
                named("jane")(params);
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            })],
            "verifying the client certificate: the certificate is for another usage",
        ),
        (
            "an expired authority as the client",
            vec![leaf(&ca, |params| {
                named("jane")(params);
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                params.not_after = date_time_ymd(2025, 12, 31);
            })],
            "verifying the client certificate: CertExpired",
        ),
        (
            "meant for any usage",
            vec![leaf(&ca, |params| {
                named("jane")(params);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any];
            })],
            "jane",
        ),
        (
            "expired",
            vec![leaf(&ca, |params| {
                named("jane")(params);
                params.not_after = date_time_ymd(2025, 12, 31);
            })],
            "verifying the client certificate: CertExpired",
        ),
        (
            "not valid yet",
            vec![leaf(&ca, |params| {
                named("jane")(params);
                params.not_before = date_time_ymd(2026, 6, 1);
            })],
            "verifying the client certificate: CertNotValidYet",
        ),
        (
            "meant for servers",
            vec![leaf(&ca, |params| {
                named("jane")(params);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            })],
            "verifying the client certificate: RequiredEkuNotFound",
        ),
        (
            "no usage at all",
            vec![leaf(&ca, |params| {
                named("jane")(params);
                params.extended_key_usages.clear();
            })],
            "jane",
        ),
        ("an id", vec![uid("7")], "jane"),
        ("an empty id", vec![uid("")], "the user id of the client certificate is empty"),
    ] {
        let got = match certificates.user(&PeerCertificates::new(chain), now()) {
            Ok(Some(user)) => user.name.clone(),
            Ok(None) => "no user".to_owned(),
            Err(error) => error.to_string(),
        };
        assert!(got.starts_with(want), "{case}: {got}");
    }
}

#[test]
fn a_client_certificate_in_the_bundle_needs_no_path_but_a_valid_usage_and_time() {
    // The rules are in docs/api/authentication.md#client-certificates.
    let made = |change: fn(&mut CertificateParams)| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        (certificate.der().clone(), certificate.pem())
    };
    let (.., other) = authority("other", None);
    let refused = |why: &str| format!("verifying the client certificate: {why}");
    for (change, want) in [
        ((|_| ()) as fn(&mut CertificateParams), "jane".to_owned()),
        (|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth], "jane".to_owned()),
        (|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any], "jane".to_owned()),
        (
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
            refused("the certificate is for another usage"),
        ),
        (|params| params.not_after = date_time_ymd(2025, 12, 31), refused("the certificate has expired")),
        (|params| params.not_before = date_time_ymd(2026, 6, 1), refused("the certificate is not valid yet")),
    ] {
        let (leaf, pem) = made(change);
        let got = |bundle: &str| match certificates(bundle)
            .user(&PeerCertificates::new(vec![leaf.clone()]), now())
        {
            Ok(user) => user.unwrap().name.clone(),
            Err(error) => error.to_string(),
        };
        assert_eq!(got(&format!("{other}{pem}")), want);
        assert!(got(&other).starts_with(&refused("C")), "without it in the bundle: {want}");
    }
}

#[test]
fn a_verified_chain_is_cached_until_it_expires_or_the_bundle_changes() {
    let (ca, _, pem) = authority("ca", None);
    let (.., other_pem) = authority("other", None);
    let chain = PeerCertificates::new(vec![leaf(&ca, named("jane"))]);
    let certificates = certificates(&pem);
    let first = certificates.user(&chain, now()).unwrap().unwrap();
    let again = certificates.user(&chain, now()).unwrap().unwrap();
    assert!(Arc::ptr_eq(&first, &again), "verified once");
    let after_its_end = now() + Duration::from_secs(366 * 86_400);
    assert!(certificates.user(&chain, after_its_end).is_err());
    certificates.replace_bundle(CaBundle::from_pem(other_pem.as_bytes()).unwrap());
    assert!(certificates.user(&chain, now()).is_err());
    certificates.replace_bundle(CaBundle::from_pem(format!("{other_pem}\n{pem}").as_bytes()).unwrap());
    assert_eq!(certificates.user(&chain, now()).unwrap().unwrap().name, "jane");
}

#[test]
fn a_bundle_without_valid_authorities_is_refused() {
    for (text, message) in [
        ("", "holds no certificate"),
        ("just text", "holds no certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n", "not a PEM file"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "certificate 1 cannot be used as a certificate authority",
        ),
    ] {
        let error = CaBundle::from_pem(text.as_bytes()).err().unwrap();
        assert_eq!(error.to_string(), message, "{text}");
    }
}

#[test]
fn an_invalid_certificate_is_not_anonymous_but_a_token_is_still_accepted() {
    // The rules are in docs/api/authentication.md#authenticators and #client-certificates.
    let (_, _, pem) = authority("ca", None);
    let (stranger, ..) = authority("stranger", None);
    let bad = PeerCertificates::new(vec![leaf(&stranger, named("jane"))]);
    let none = PeerCertificates::default();
    let tokens = crate::authn::token_file::StaticTokens::parse(b"good,joe,1").unwrap();
    let chain = Authenticator::new()
        .with_certificates(Arc::new(certificates(&pem)))
        .with_tokens(tokens)
        .with_anonymous(Anonymous::Accepted);
    for (authorization, certificates, want) in [
        (None, &none, "anonymous system:anonymous"),
        (None, &bad, "401 verifying the client certificate: UnknownIssuer"),
        (Some("Bearer good"), &bad, "user joe"),
        (Some("Bearer good"), &none, "user joe"),
        (Some("Bearer wrong"), &none, "401 invalid bearer token"),
        (
            Some("Bearer wrong"),
            &bad,
            "401 [verifying the client certificate: UnknownIssuer, invalid bearer token]",
        ),
        (Some("Basic good"), &none, "anonymous system:anonymous"),
        (Some("Bearer  good"), &none, "anonymous system:anonymous"),
    ] {
        let credentials =
            Credentials { authorization, certificates: Some(certificates), ..Credentials::default() };
        let got = match chain.authenticate_at(&credentials, now()) {
            Ok(Authenticated::User(user)) => format!("user {}", user.name),
            Ok(Authenticated::Anonymous(user)) => format!("anonymous {}", user.name),
            Err(error) => format!("401 {error}"),
        };
        assert_eq!(got, want, "{authorization:?} and {} certificates", certificates.certificates().len());
        let warned = credentials.warning().is_some();
        assert_eq!(warned, authorization == Some("Bearer  good"));
    }
    let unasked = Authenticator::new()
        .with_certificates(Arc::new(certificates(&pem)))
        .ignoring_other_certificates()
        .with_anonymous(Anonymous::Accepted);
    let shown = Credentials { certificates: Some(&bad), ..Credentials::default() };
    let found = unasked.authenticate_at(&shown, now());
    assert!(matches!(found, Ok(Authenticated::Anonymous(_))), "clients were not asked: {found:?}");
    let closed = Authenticator::new();
    let none = closed.authenticate_at(&Credentials::default(), now());
    assert!(matches!(none, Err(AuthnError::NoCredential)));
}
