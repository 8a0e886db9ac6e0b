//! Tests that service account tokens behave as docs/api/authentication.md#service-account-tokens describes.

use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::KeyPair;

use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::authn::SigningKey;

/// The account `robot` in `ns`, and the objects to which tokens are bound. The uid of an object is
/// `<kind>-1`.
struct Objects {
    uid_of_account: &'static str,
    account_deleted: Option<SystemTime>,
    pod: bool,
    /// The token that all secrets contain.
    token: String,
    /// The secrets whose use was recorded, as `namespace/name uid`.
    noted: Option<&'static Mutex<Vec<String>>>,
}

impl AccountSource for Objects {
    fn service_account(&self, namespace: &str, name: &str) -> Option<Incarnation> {
        let uid = self.uid_of_account.to_owned();
        (namespace == "ns" && name == "robot").then_some(Incarnation { uid, deleted: self.account_deleted })
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<Incarnation> {
        let found = self.pod && namespace == "ns" && name == "p";
        found.then(|| Incarnation { uid: "pod-1".to_owned(), deleted: None })
    }

    fn secret(&self, _: &str, _: &str) -> Option<Incarnation> {
        None
    }

    fn node(&self, name: &str) -> Option<Incarnation> {
        (name == "n").then(|| Incarnation { uid: "node-1".to_owned(), deleted: None })
    }

    fn token_secret(&self, namespace: &str, name: &str) -> Option<TokenSecret> {
        let token = self.token.clone().into_bytes();
        let secret = TokenSecret { uid: "u".to_owned(), token, ..TokenSecret::default() };
        match (namespace, name) {
            ("ns", "s") => Some(secret),
            ("ns", "deleted") => Some(TokenSecret { is_deleted: true, ..secret }),
            ("ns", "unused") => Some(TokenSecret {
                invalid_by: Some("example.org/legacy-token-invalid-since".to_owned()),
                ..secret
            }),
            ("ns", "noted") => Some(TokenSecret { is_use_noted: true, ..secret }),
            _ => None,
        }
    }

    fn note_use(&self, namespace: &str, secret: &str, uid: &str) {
        if let Some(noted) = self.noted {
            noted.lock().push(format!("{namespace}/{secret} {uid}"));
        }
    }
}

const LIVING: Objects = Objects {
    uid_of_account: "account-1",
    account_deleted: None,
    pod: true,
    token: String::new(),
    noted: None,
};

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn reference(name: &str, uid: &str) -> Reference {
    Reference { name: name.to_owned(), uid: uid.to_owned() }
}

fn spec() -> TokenSpec {
    TokenSpec {
        namespace: "ns".to_owned(),
        account: reference("robot", "account-1"),
        audiences: vec!["api".to_owned()],
        issued: now(),
        lifetime: Duration::from_secs(3600),
        warn_after: None,
        pod: None,
        secret: None,
        node: None,
    }
}

fn domains() -> NameDomains {
    NameDomains::new("example.org")
}

fn issuer(pem: &str) -> TokenIssuer {
    TokenIssuer::new("https://issuer", SigningKey::from_pem(pem.as_bytes()).unwrap(), domains())
}

fn verifier(issuers: &[&TokenIssuer], objects: Objects) -> ServiceAccountTokens {
    let keys = issuers.iter().map(|issuer| issuer.public_key().clone()).collect();
    let issuers = vec!["https://issuer".to_owned()];
    ServiceAccountTokens::new(issuers, keys, Arc::new(objects), domains())
        .with_audiences(vec!["api".to_owned()])
}

fn outcome(tokens: &ServiceAccountTokens, token: &str, at: SystemTime) -> String {
    match tokens.verify(token, &["api".to_owned()], at) {
        Ok(Some(accepted)) => accepted.user.name.clone(),
        Ok(None) => "not ours".to_owned(),
        Err(error) => error.to_string(),
    }
}

const ROBOT: &str = "system:serviceaccount:ns:robot";

#[test]
fn tokens_of_every_key_kind_are_issued_and_verified() {
    let pems = [
        ("RS256", KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap().serialize_pem()),
        ("ES256", KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap().serialize_pem()),
        ("ES384", KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem()),
        ("ES512", KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512).unwrap().serialize_pem()),
    ];
    let issuers: Vec<TokenIssuer> = pems.iter().map(|(_, pem)| issuer(pem)).collect();
    let all: Vec<&TokenIssuer> = issuers.iter().collect();
    for ((algorithm, pem), by) in pems.iter().zip(&issuers) {
        assert_eq!(by.public_key().algorithm(), *algorithm);
        // A key file may contain the private key or the public key. Both files give the same key id.
        let public_pem = KeyPair::from_pem(pem).unwrap().public_key_pem();
        let public = VerificationKey::from_pem(public_pem.as_bytes()).unwrap();
        assert_eq!(public[0].id(), by.public_key().id(), "{algorithm}");
        assert_eq!(VerificationKey::from_pem(pem.as_bytes()).unwrap()[0].id(), public[0].id());
        let issued = by.issue(&spec()).unwrap();
        let tokens = verifier(&all, LIVING);
        assert_eq!(outcome(&tokens, &issued.token, now()), ROBOT, "{algorithm}");
        assert_eq!(outcome(&tokens, &issued.token, now()), ROBOT, "{algorithm}, remembered");
        let others: Vec<&TokenIssuer> =
            all.iter().copied().filter(|other| !std::ptr::eq(*other, by)).collect();
        let unknown = outcome(&verifier(&others, LIVING), &issued.token, now());
        assert_eq!(unknown, "go-jose/go-jose: error in cryptographic primitive", "{algorithm}");
    }
}

#[test]
fn the_user_of_a_token_is_its_account() {
    let by = issuer(&KeyPair::generate().unwrap().serialize_pem());
    let bound =
        TokenSpec { pod: Some(reference("p", "pod-1")), node: Some(reference("gone", "x")), ..spec() };
    let issued = by.issue(&bound).unwrap();
    let user =
        verifier(&[&by], LIVING).verify(&issued.token, &["api".to_owned()], now()).unwrap().unwrap().user;
    assert_eq!(user.name, ROBOT);
    assert_eq!(user.uid, "account-1");
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
    let extra = |fact: &str| user.extra[&format!("authentication.example.org/{fact}")].join(",");
    assert_eq!(extra("credential-id"), format!("JTI={}", issued.id));
    assert_eq!([extra("pod-name"), extra("pod-uid"), extra("node-name")], ["p", "pod-1", "gone"]);
}

#[test]
fn a_token_expires_with_its_lifetime_and_the_objects_that_it_is_bound_to() {
    let by = issuer(&KeyPair::generate().unwrap().serialize_pem());
    let plain = spec();
    let for_pod = TokenSpec { pod: Some(reference("p", "pod-1")), ..spec() };
    let deleted = |ago| Objects { account_deleted: Some(now() - Duration::from_secs(ago)), ..LIVING };
    let second = Duration::from_secs(1);
    let expired = "service account token has expired";
    let invalidated = "service account token has been invalidated";
    for (spec, objects, at, want) in [
        (plain.clone(), LIVING, now(), ROBOT),
        (plain.clone(), LIVING, now() + 3660 * second, ROBOT),
        (plain.clone(), LIVING, now() + 3660 * second + Duration::from_nanos(1), expired),
        (plain.clone(), LIVING, now() - 60 * second, ROBOT),
        (plain.clone(), LIVING, now() - 61 * second, "service account token is not valid yet"),
        (plain.clone(), deleted(30), now(), ROBOT),
        (plain.clone(), deleted(61), now(), "service account ns/robot has been deleted"),
        (
            plain.clone(),
            Objects { uid_of_account: "account-2", ..LIVING },
            now(),
            "service account UID (account-2) does not match claim (account-1)",
        ),
        (
            TokenSpec { account: reference("other", "u"), ..plain.clone() },
            LIVING,
            now(),
            "serviceaccounts \"other\" not found",
        ),
        (
            TokenSpec { namespace: "no".to_owned(), ..plain.clone() },
            LIVING,
            now(),
            "serviceaccounts \"robot\" not found",
        ),
        (for_pod.clone(), LIVING, now(), ROBOT),
        (for_pod.clone(), Objects { pod: false, ..LIVING }, now(), invalidated),
        (
            TokenSpec { pod: Some(reference("p", "pod-0")), ..plain.clone() },
            LIVING,
            now(),
            "pod UID (pod-1) does not match service account pod ref claim (pod-0)",
        ),
        (TokenSpec { secret: Some(reference("s", "u")), ..plain.clone() }, LIVING, now(), invalidated),
        (TokenSpec { node: Some(reference("n", "node-1")), ..plain.clone() }, LIVING, now(), ROBOT),
        (TokenSpec { node: Some(reference("m", "node-1")), ..plain.clone() }, LIVING, now(), invalidated),
        (
            TokenSpec { audiences: vec!["a".to_owned(), "b".to_owned()], ..plain.clone() },
            LIVING,
            now(),
            r#"token audiences ["a" "b"] is invalid for the target audiences ["api"]"#,
        ),
        (TokenSpec { audiences: vec![], ..plain.clone() }, LIVING, now(), ROBOT),
    ] {
        let issued = by.issue(&spec).unwrap();
        assert_eq!(outcome(&verifier(&[&by], objects), &issued.token, at), want, "{spec:?}");
    }
}

/// Signs any header and claims with the key.
fn forge(key: &EcdsaKeyPair, header: &str, claims: &str) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

#[test]
fn malformed_own_tokens_are_refused_and_foreign_tokens_are_ignored() {
    let pair = KeyPair::generate().unwrap();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pair.serialized_der()).unwrap();
    let by = issuer(&pair.serialize_pem());
    let es256 = r#"{"alg":"ES256"}"#;
    let account = r#""example.org":{"namespace":"ns","serviceaccount":{"name":"robot","uid":"account-1"}}"#;
    let head = format!(r#""iss":"https://issuer","sub":"{ROBOT}""#);
    let full = format!(r#"{{{head},"aud":"api","exp":1800003600,{account}}}"#);
    let unsigned =
        format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(&full));
    let signature = "go-jose/go-jose: error in cryptographic primitive";
    let no_date = "go-jose/go-jose/jwt: expected number value to unmarshal NumericDate";
    let no_audience = "go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience";
    let no =
        |found: &str, wanted: &str| format!("json: cannot unmarshal {found} into Go value of type {wanted}");
    for (case, token, want) in [
        ("nothing missing", forge(&key, es256, &full), ROBOT.to_owned()),
        (
            "an end beyond 64 bits",
            forge(&key, es256, &full.replace("1800003600", "1e20")),
            "service account token has expired".to_owned(),
        ),
        ("unknown kid", forge(&key, r#"{"alg":"ES256","kid":"x"}"#, &full), ROBOT.to_owned()),
        ("another algorithm", forge(&key, r#"{"alg":"HS256"}"#, &full), signature.to_owned()),
        ("no signature", unsigned, signature.to_owned()),
        ("an extension", forge(&key, r#"{"alg":"ES256","crit":["exp"]}"#, &full), signature.to_owned()),
        ("no algorithm", forge(&key, "{}", &full), signature.to_owned()),
        ("an odd key id", forge(&key, r#"{"alg":"ES256","kid":5}"#, &full), "not ours".to_owned()),
        ("an odd signature", format!("{}=", forge(&key, es256, &full)), "not ours".to_owned()),
        (
            "no audience",
            forge(&key, es256, &format!(r#"{{{head},"exp":1800003600,{account}}}"#)),
            ROBOT.to_owned(),
        ),
        ("no end", forge(&key, es256, &format!(r#"{{{head},"aud":["api"],{account}}}"#)), ROBOT.to_owned()),
        (
            "no account",
            forge(&key, es256, &format!(r#"{{{head},"aud":["api"],"exp":1800003600}}"#)),
            "resource name may not be empty".to_owned(),
        ),
        (
            "an account in another form",
            forge(&key, es256, &full.replace(r#"{"name":"robot","uid":"account-1"}"#, "5")),
            no("number", "serviceaccount.ref"),
        ),
        (
            "no private claims",
            forge(&key, es256, &format!(r#"{{{head},"example.org":"x"}}"#)),
            no("string", "serviceaccount.kubernetes"),
        ),
        (
            "a namespace in another form",
            forge(&key, es256, &full.replace(r#""namespace":"ns""#, r#""namespace":[]"#)),
            no("array", "string"),
        ),
        (
            "an age for a warning in another form",
            forge(&key, es256, &full.replace(r#""namespace""#, r#""warnafter":"1","namespace""#)),
            no_date.to_owned(),
        ),
        (
            "an end that is text",
            forge(&key, es256, &full.replace("1800003600", r#""x""#)),
            no_date.to_owned(),
        ),
        ("no end in words", forge(&key, es256, &full.replace("1800003600", "null")), ROBOT.to_owned()),
        ("a number as audience", forge(&key, es256, &full.replace(r#""api""#, "5")), no_audience.to_owned()),
        (
            "numbers as audiences",
            forge(&key, es256, &full.replace(r#""api""#, "[5]")),
            no_audience.to_owned(),
        ),
        ("null as audience", forge(&key, es256, &full.replace(r#""api""#, "null")), no_audience.to_owned()),
        (
            "a number as subject",
            forge(&key, es256, &full.replace(&format!(r#""{ROBOT}""#), "5")),
            no("number", "string"),
        ),
        (
            "no namespace",
            forge(&key, es256, &full.replace(r#""namespace":"ns","#, "")),
            "the server could not find the requested resource".to_owned(),
        ),
        (
            "no uid",
            forge(&key, es256, &full.replace(r#","uid":"account-1""#, "")),
            "service account UID (account-1) does not match claim ()".to_owned(),
        ),
        // The user is the account in the private claims. Only the owner of the key can sign another subject.
        ("another subject", forge(&key, es256, &full.replace(ROBOT, "system:admin")), ROBOT.to_owned()),
        (
            "another issuer",
            forge(&key, es256, &full.replace("https://issuer", "https://x")),
            "not ours".to_owned(),
        ),
        ("no issuer", forge(&key, es256, "{}"), "not ours".to_owned()),
        ("claims are no object", forge(&key, es256, "[[[["), "not ours".to_owned()),
        ("no dots", "abc".to_owned(), "not ours".to_owned()),
        ("bad base64", "a!.b.c".to_owned(), "not ours".to_owned()),
        ("too long", format!("{}.a.b", "a".repeat(1 << 20)), "not ours".to_owned()),
    ] {
        assert_eq!(outcome(&verifier(&[&by], LIVING), &token, now()), want, "{case}");
    }
}

#[test]
fn a_service_account_token_has_the_requested_audiences_that_it_names() {
    let by = issuer(&KeyPair::generate().unwrap().serialize_pem());
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (named, target, want) in [
        (&["a", "b"][..], &["b", "c", "a"][..], &["b", "a"][..]),
        (&["a", "a"], &["a"], &["a"]),
        (&["a"], &["a", "a"], &["a", "a"]),
        (&[], &["api", "x"], &["api"]),
    ] {
        let issued = by.issue(&TokenSpec { audiences: list(named), ..spec() }).unwrap();
        let accepted = verifier(&[&by], LIVING).verify(&issued.token, &list(target), now()).unwrap().unwrap();
        assert_eq!(accepted.audiences, list(want), "{named:?} of {target:?}");
    }
}

#[test]
fn a_key_verifies_its_own_algorithms_only() {
    use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RSA_PKCS1_SHA512, RSA_PSS_SHA384, RsaEncoding, RsaKeyPair};
    let pair = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let key = RsaKeyPair::from_pkcs8(pair.serialized_der()).unwrap();
    let by = issuer(&pair.serialize_pem());
    let claims = format!(
        r#"{{"iss":"https://issuer","sub":"{ROBOT}","aud":"api","exp":1800003600,"example.org":
           {{"namespace":"ns","serviceaccount":{{"name":"robot","uid":"account-1"}}}}}}"#
    );
    let token = |algorithm: &str, signature: &dyn Fn(&str) -> Vec<u8>| {
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"{algorithm}"}}"#));
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(&claims));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature(&signed)))
    };
    let rsa = |encoding: &'static dyn RsaEncoding| {
        let key = &key;
        move |signed: &str| {
            let mut out = vec![0; key.public_modulus_len()];
            key.sign(encoding, &SystemRandom::new(), signed.as_bytes(), &mut out).unwrap();
            out
        }
    };
    // An attacker could sign with the public key as the shared secret of HMAC, if the server accepted HMAC.
    let mac = |signed: &str| {
        let secret =
            aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, pair.public_key_pem().as_bytes());
        aws_lc_rs::hmac::sign(&secret, signed.as_bytes()).as_ref().to_vec()
    };
    let signature = "go-jose/go-jose: error in cryptographic primitive";
    for (token, want) in [
        (token("RS256", &rsa(&RSA_PKCS1_SHA256)), ROBOT),
        (token("RS512", &rsa(&RSA_PKCS1_SHA512)), ROBOT),
        (token("PS384", &rsa(&RSA_PSS_SHA384)), ROBOT),
        (token("PS256", &rsa(&RSA_PKCS1_SHA256)), signature),
        (token("RS384", &rsa(&RSA_PKCS1_SHA256)), signature),
        (token("ES256", &rsa(&RSA_PKCS1_SHA256)), signature),
        (token("none", &|_: &str| Vec::new()), signature),
        (token("HS256", &mac), signature),
    ] {
        assert_eq!(outcome(&verifier(&[&by], LIVING), &token, now()), want, "{token}");
    }
}

#[test]
fn a_legacy_token_is_valid_while_its_secret_exists() {
    let pair = KeyPair::generate().unwrap();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pair.serialized_der()).unwrap();
    let by = issuer(&pair.serialize_pem());
    let claims = |secret: &str| {
        format!(
            r#"{{"iss":"example/serviceaccount","sub":"{ROBOT}","example.org/serviceaccount/namespace":"ns",
               "example.org/serviceaccount/secret.name":"{secret}",
               "example.org/serviceaccount/service-account.name":"robot",
               "example.org/serviceaccount/service-account.uid":"account-1"}}"#
        )
    };
    let es256 = r#"{"alg":"ES256"}"#;
    let renamed = Objects { uid_of_account: "account-2", ..LIVING };
    let deleted = Objects { account_deleted: Some(now()), ..LIVING };
    let copy = "Token does not match server's copy";
    let gone = "Token has been invalidated";
    for (case, objects, claims, stored, want) in [
        ("right", LIVING, claims("s"), true, ROBOT),
        ("another token in the secret", LIVING, claims("s"), false, copy),
        ("no secret", LIVING, claims("none"), true, gone),
        ("secret being deleted", LIVING, claims("deleted"), true, gone),
        (
            "marked",
            LIVING,
            claims("unused"),
            true,
            "the token in secret ns/unused for service account ns/robot has been marked invalid. Use tokens from the \
             TokenRequest API or manually created secret-based tokens, or remove the \
             'example.org/legacy-token-invalid-since' label from the secret to temporarily allow use of this token",
        ),
        (
            "another account",
            renamed,
            claims("s"),
            true,
            "ServiceAccount UID (account-2) does not match claim (account-1)",
        ),
        ("account being deleted", deleted, claims("s"), true, "ServiceAccount ns/robot has been deleted"),
        ("no subject", LIVING, claims("s").replace(ROBOT, ""), true, "sub claim is missing"),
        ("another subject", LIVING, claims("s").replace(ROBOT, "admin"), true, "sub claim is invalid"),
        ("no secret name", LIVING, claims(""), true, "secretName claim is missing"),
    ] {
        let token = forge(&key, es256, &claims);
        let token_stored = if stored { token.clone() } else { "other".to_owned() };
        let tokens = verifier(&[&by], Objects { token: token_stored, ..objects });
        assert_eq!(outcome(&tokens, &token, now()), want, "{case}");
    }
    let token = forge(&key, es256, &claims("none"));
    assert_eq!(outcome(&verifier(&[&by], LIVING).without_lookup(), &token, now()), ROBOT);

    // The use of a token is recorded once a day, even if the token is refused because it was not used for a
    // long time.
    static NOTED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    for secret in ["s", "unused", "noted", "deleted", "none"] {
        let token = forge(&key, es256, &claims(secret));
        let objects = Objects { token: token.clone(), noted: Some(&NOTED), ..LIVING };
        outcome(&verifier(&[&by], objects), &token, now());
    }
    assert_eq!(*NOTED.lock(), ["ns/s u", "ns/unused u"]);
}

#[test]
fn private_keys_in_older_pem_formats_are_accepted() {
    let pem = |label: &str, der: &[u8]| {
        let body = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    };
    // The PKCS #1 key (RFC 8017) is the content of the PKCS #8 structure after the first 26 bytes, which
    // contain the version and the algorithm.
    let rsa = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let pkcs1 = pem("RSA PRIVATE KEY", &rsa.serialized_der()[26..]);
    let ec = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, ec.serialized_der()).unwrap();
    let sec1: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der().unwrap();
    let sec1 = pem("EC PRIVATE KEY", sec1.as_ref());
    for (older, newer) in [(pkcs1, rsa.serialize_pem()), (sec1, ec.serialize_pem())] {
        let by = issuer(&older);
        assert_eq!(by.public_key().id(), issuer(&newer).public_key().id());
        let issued = by.issue(&spec()).unwrap();
        assert_eq!(outcome(&verifier(&[&by], LIVING), &issued.token, now()), ROBOT);
    }
}

#[test]
fn a_key_file_that_cannot_be_used_is_refused() {
    let private = KeyPair::generate().unwrap().serialize_pem();
    let short = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().public_key_pem();
    for (text, message) in [
        (String::new(), "holds no key"),
        (short, "section 1: no RSA, P-256, P-384 or P-521 public key"),
        (
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----".to_owned(),
            "section 1: no RSA, P-256, P-384 or P-521 private key",
        ),
    ] {
        assert_eq!(VerificationKey::from_pem(text.as_bytes()).unwrap_err().to_string(), message);
    }
    let two = format!("{private}{private}");
    assert_eq!(
        SigningKey::from_pem(two.as_bytes()).unwrap_err().to_string(),
        "holds 2 private keys, expected one"
    );
    assert_eq!(VerificationKey::from_pem(two.as_bytes()).unwrap().len(), 2);
}

/// Returns the result of a future that completes immediately.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => panic!("no authenticator of this chain waits"),
    }
}

#[test]
fn a_token_is_valid_for_its_audience_and_a_static_token_for_this_server() {
    // The rows of docs/api/authentication.md#authenticators and #identity-reviews: the audiences of the
    // review, and whether each token is accepted.
    let by = issuer(&KeyPair::generate().unwrap().serialize_pem());
    let bound = by.issue(&TokenSpec { audiences: vec!["vault".to_owned()], ..spec() }).unwrap().token;
    let chain = crate::Authenticator::new()
        .with_audiences(vec!["api".to_owned()])
        .with_tokens(crate::authn::token_file::StaticTokens::parse(b"plain,joe,1").unwrap())
        .with_tokens(verifier(&[&by], LIVING));
    for (audiences, plain_counts, bound_counts) in [
        (vec![], true, false),
        (vec!["api"], true, false),
        (vec!["vault"], false, true),
        (vec!["x", "vault", "api"], true, true),
    ] {
        let audiences: Vec<String> = audiences.into_iter().map(str::to_owned).collect();
        let known = |token: &str| at_once(chain.review_token(token, &audiences, now())).is_ok();
        assert_eq!((known("plain"), known(&bound)), (plain_counts, bound_counts), "{audiences:?}");
    }
    let refused = at_once(chain.review_token(&bound, &[], now())).unwrap_err().to_string();
    let why = r#"token audiences ["vault"] is invalid for the target audiences ["api"]"#;
    assert_eq!(refused, format!("[invalid bearer token, {why}]"));
}
