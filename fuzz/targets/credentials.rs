//! Credentials: headers, tokens, token files, keys and certificates.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use auth::authn::bearer::{self, Bearer};
use auth::authn::service_account::{AccountSource, Incarnation, ServiceAccountTokens, TokenSecret};
use auth::authn::token_file::{StaticTokens, TokenFileError};
use auth::authn::x509::{CaBundle, ClientCertificates, PeerCertificates};
use auth::authn::{Anonymous, Credentials, NameDomains, SigningKey, VerificationKey};
use auth::identity::{ANONYMOUS, AUTHENTICATED};
use auth::{Authenticated, Authenticator};
use rustls_pki_types::CertificateDer;

/// A time at which the certificates of the corpus are valid.
const NOW: Duration = Duration::from_secs(1_800_000_000);

const CA: &[u8] = include_bytes!("../corpus/certificates/ca.der");

/// A source without accounts, so that a forged token that passes all other checks is refused.
struct NoAccounts;

impl AccountSource for NoAccounts {
    fn service_account(&self, _: &str, _: &str) -> Option<Incarnation> {
        None
    }

    fn pod(&self, _: &str, _: &str) -> Option<Incarnation> {
        None
    }

    fn secret(&self, _: &str, _: &str) -> Option<Incarnation> {
        None
    }

    fn node(&self, _: &str) -> Option<Incarnation> {
        None
    }

    fn token_secret(&self, _: &str, _: &str) -> Option<TokenSecret> {
        None
    }

    fn note_use(&self, _: &str, _: &str, _: &str) {}
}

/// Passes an `Authorization` header to every token authenticator; no authenticator may accept it.
pub fn credentials(data: &[u8]) {
    static AUTHENTICATOR: OnceLock<Authenticator> = OnceLock::new();
    let authenticator = AUTHENTICATOR.get_or_init(|| {
        let domains = NameDomains::new("example.org");
        let keys = VerificationKey::from_pem(&pem("CERTIFICATE", CA)).expect("the corpus has an authority");
        let accounts =
            ServiceAccountTokens::new(vec!["issuer".to_owned()], keys, Arc::new(NoAccounts), domains);
        let tokens = StaticTokens::parse(b"an-unguessable-token,user,1").expect("a good file");
        Authenticator::new().with_tokens(tokens).with_tokens(accounts).with_anonymous(Anonymous::Accepted)
    });
    let Ok(header) = std::str::from_utf8(data) else { return };
    let bearer = bearer::parse(header);
    if let Bearer::Token(token) = bearer {
        assert!(!token.is_empty() && !token.contains(' ') && header.contains(token));
    }
    let shown = Credentials { authorization: Some(header), ..Credentials::default() };
    match authenticator.authenticate_at(&shown, SystemTime::UNIX_EPOCH + NOW) {
        Ok(Authenticated::Anonymous(user)) => {
            assert!(!matches!(bearer, Bearer::Token(_)), "a wrong token is not as good as none");
            assert_eq!(user.name, ANONYMOUS);
        }
        Ok(Authenticated::User(user)) => panic!("{header:?} came in as {}", user.name),
        Err(error) => one_line(&error.to_string()),
    }
    assert_eq!(shown.warning().is_some(), bearer == Bearer::ExtraSpace);
}

/// Reads a token file: an error is one line with the position, and a valid file is read completely. Also
/// builds a file from the bytes; all tokens of this file must be found.
pub fn token_file(data: &[u8]) {
    let lines = data.iter().filter(|&&byte| byte == b'\n').count() + 1;
    match StaticTokens::parse(data) {
        Ok(tokens) => assert!(tokens.len() <= lines),
        Err(error) => {
            if let TokenFileError::Syntax { begins, line, .. } = &error {
                assert!(begins <= line && (1..=lines).contains(line), "{error}");
            }
            one_line(&error.to_string());
        }
    }
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let names: Vec<String> = data.chunks(7).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    let line =
        |(at, name): (usize, &String)| format!("t{at},{},{},\"g{at},h\"\r\n", quoted(name), quoted(name));
    let file: String = names.iter().enumerate().map(line).collect();
    let tokens = StaticTokens::parse(file.as_bytes()).unwrap_or_else(|error| panic!("{error} in {file:?}"));
    let authenticator = Authenticator::new().with_tokens(tokens);
    for (at, name) in names.iter().enumerate() {
        let header = format!("Bearer t{at}");
        let shown = Credentials { authorization: Some(&header), ..Credentials::default() };
        let user =
            authenticator.authenticate_at(&shown, SystemTime::UNIX_EPOCH + NOW).expect("it is in the file");
        assert_eq!((&user.user().name, &user.user().uid), (name, name));
        let group = format!("g{at}");
        assert!(name == ANONYMOUS || user.user().groups == [group.as_str(), "h", AUTHENTICATED]);
    }
}

/// Reads certificates in DER, one after the other, and files of certificates and keys in PEM.
pub fn certificates(data: &[u8]) {
    static KNOWN: OnceLock<ClientCertificates> = OnceLock::new();
    let certificates = KNOWN.get_or_init(|| {
        let bundle = CaBundle::from_pem(&pem("CERTIFICATE", CA)).expect("the corpus has an authority");
        ClientCertificates::new(bundle, &NameDomains::new("example.org"))
    });
    let chain = PeerCertificates::new(chain(data));
    match certificates.user(&chain, SystemTime::UNIX_EPOCH + NOW) {
        Ok(Some(user)) => assert!(!user.name.is_empty() && user.in_group(AUTHENTICATED)),
        Ok(None) => {}
        Err(error) => one_line(&error.to_string()),
    }
    let mut files = vec![data.to_vec()];
    files
        .extend(["CERTIFICATE", "PUBLIC KEY", "PRIVATE KEY", "EC PRIVATE KEY"].map(|label| pem(label, data)));
    for file in files {
        if let Err(error) = CaBundle::from_pem(&file) {
            one_line(&error.to_string());
        }
        match VerificationKey::from_pem(&file) {
            Ok(keys) => assert!(keys.iter().all(|key| !key.id().is_empty() && !key.algorithm().is_empty())),
            Err(error) => one_line(&error.to_string()),
        }
        match SigningKey::from_pem(&file) {
            Ok(key) => assert!(!key.public().id().is_empty()),
            Err(error) => one_line(&error.to_string()),
        }
    }
}

/// Splits concatenated DER sequences; the last part is the rest.
fn chain(mut data: &[u8]) -> Vec<CertificateDer<'static>> {
    let mut chain = Vec::new();
    while !data.is_empty() && chain.len() < 4 {
        let len = match data {
            [0x30, 0x82, high, low, ..] => 4 + usize::from(u16::from_be_bytes([*high, *low])),
            _ => data.len(),
        };
        let (one, rest) = data.split_at(len.min(data.len()));
        chain.push(CertificateDer::from(one.to_vec()));
        data = rest;
    }
    chain
}

fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    let mut out = format!("-----BEGIN {label}-----\n");
    let text = values::base64_text::encode(der);
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out.into_bytes()
}

/// Checks that a text has one line, because errors are printed in a log or on a terminal.
fn one_line(text: &str) {
    assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
}
