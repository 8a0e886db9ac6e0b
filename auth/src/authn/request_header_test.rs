use super::*;
use crate::authn::NameDomains;
use crate::authn::x509::{CaBundle, PeerCertificates};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls_pki_types::CertificateDer;

struct Fields<'f>(&'f [(&'f str, &'f str)]);

impl HeaderFields for Fields<'_> {
    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in self.0 {
            visit(name, value);
        }
    }
}

struct Authority(Issuer<'static, KeyPair>, String);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority(Issuer::new(params, key), pem)
    }

    fn certificate(&self, name: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        params.signed_by(&KeyPair::generate().unwrap(), &self.0).unwrap().der().clone()
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn request_headers_authenticate_only_behind_a_proxy_with_a_valid_certificate() {
    let (front, other) = (Authority::new(), Authority::new());
    let bundle = CaBundle::from_pem(front.1.as_bytes()).unwrap();
    let names = HeaderNames {
        user: words("X-User X-Remote-User"),
        uid: words("X-Remote-Uid"),
        groups: words("X-Group X-Remote-Group"),
        extra_prefixes: words("X-Remote-Extra-"),
    };
    let proxies = Arc::new(ClientCertificates::new(bundle, &NameDomains::new("example.org")));
    let headers = RequestHeaders::new(proxies, words("proxy"), names);
    let (proxy, stranger) = (front.certificate("proxy"), front.certificate("stranger"));
    let forged = other.certificate("proxy");
    const NONE: &str = "not this authenticator";
    for (certificate, fields, want) in [
        (Some(&proxy), &[("x-remote-user", "carol")][..], "carol//system:authenticated/{}"),
        (
            Some(&proxy),
            &[("x-remote-user", "carol"), ("x-remote-user", "dave"), ("x-remote-uid", "7")],
            "carol/7/system:authenticated/{}",
        ),
        (
            Some(&proxy),
            &[("x-remote-user", "carol"), ("x-user", "eve")], // the order of the flag counts
            "eve//system:authenticated/{}",
        ),
        (Some(&proxy), &[("x-user", ""), ("x-remote-user", "carol")], "carol//system:authenticated/{}"),
        (
            Some(&proxy),
            &[("x-remote-user", "c"), ("x-remote-group", "a, b"), ("x-remote-group", ""), ("x-group", "c")],
            "c//c+a, b+system:authenticated/{}",
        ),
        (
            Some(&proxy),
            &[
                ("x-remote-user", "c"),
                ("x-remote-extra-acme.com%2Fteam", "a"),
                ("X-Remote-Extra-Acme.com%2fteam", "b"),
                ("x-remote-extra-50%", "%20"),
                ("x-remote-ex", "short"),
            ],
            r#"c//system:authenticated/{"50%": ["%20"], "acme.com/team": ["a", "b"]}"#,
        ),
        (Some(&proxy), &[], NONE),
        (Some(&proxy), &[("x-remote-user", "")], NONE),
        (None, &[("x-remote-user", "carol"), ("x-remote-group", "system:masters")], NONE),
        (
            Some(&stranger),
            &[("x-remote-user", "carol")],
            "x509: subject with cn=stranger is not in the allowed list",
        ),
        (
            Some(&forged),
            &[("x-remote-user", "carol")],
            "verifying the client certificate: InvalidSignatureForPublicKey",
        ),
        (Some(&forged), &[], "verifying the client certificate: InvalidSignatureForPublicKey"),
    ] {
        let fields = Fields(fields);
        let chain = PeerCertificates::new(certificate.into_iter().cloned().collect());
        let shown =
            Credentials { headers: Some(&fields), certificates: Some(&chain), ..Credentials::default() };
        let got = match headers.user(&shown, SystemTime::now()) {
            Ok(Some(user)) => {
                format!("{}/{}/{}/{:?}", user.name, user.uid, user.groups.join("+"), user.extra)
            }
            Ok(None) => NONE.to_owned(),
            Err(cause) => cause.to_string(),
        };
        assert_eq!(got, want, "{:?}", fields.0);
    }
}
