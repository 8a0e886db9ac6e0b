//! Tests that issuers behave as docs/api/authentication.md#issuers describes, with generated keys and
//! documents in memory.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::*;
use crate::authn::VerificationKey;
use crate::authn::jws::Algorithm;
use crate::document::Document;

const NOW: u64 = 1_800_000_000;

/// A store of documents by address, which records the addresses that were read.
#[derive(Default)]
struct Documents {
    texts: Mutex<HashMap<String, String>>,
    read: Mutex<Vec<String>>,
    fresh_for: Mutex<Duration>,
}

impl Fetch for Documents {
    fn get(&self, url: &str, token: Option<&str>) -> DocumentFuture {
        self.read.lock().push(url.to_owned());
        let text = self.texts.lock().get(url).cloned();
        // A document below `/for/<token>` requires this token.
        let expected = url.split_once("/for/").map(|(_, token)| token);
        let (code, reason) = match &text {
            _ if expected.is_some() && expected != token => (401, "Unauthorized"),
            None => (404, "Not Found"),
            Some(_) => (200, "OK"),
        };
        let fresh_for = *self.fresh_for.lock();
        let body = text.unwrap_or_default().into_bytes();
        let status = format!("{code} {reason}");
        Box::pin(
            async move { Ok(FetchedDocument { code, status, content_type: String::new(), fresh_for, body }) },
        )
    }
}

struct Signer {
    pair: KeyPair,
    key: EcdsaKeyPair,
}

impl Signer {
    fn new() -> Signer {
        let pair = KeyPair::generate().unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pair.serialized_der()).unwrap();
        Signer { pair, key }
    }

    fn jwk(&self, kid: &str) -> Value {
        let key = VerificationKey::from_pem(self.pair.public_key_pem().as_bytes()).unwrap();
        let mut jwk = key[0].to_jwk();
        jwk["kid"] = kid.into();
        jwk
    }

    fn token(&self, header: Value, claims: &Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

fn publish(documents: &Documents, keys: &[Value]) {
    let mut texts = documents.texts.lock();
    let configuration = json!({"issuer": "https://i.example", "jwks_uri": "https://i.example/keys"});
    texts.insert("https://i.example/.well-known/openid-configuration".to_owned(), configuration.to_string());
    texts.insert("https://i.example/keys".to_owned(), json!({ "keys": keys }).to_string());
}

fn contents(jwt: Value) -> settings::Settings {
    let value = json!({"apiVersion": "g/v1", "kind": "AuthenticationConfiguration", "jwt": [jwt]});
    file::read(&Document::from_value("", &value), "g").unwrap().settings
}

fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => panic!("documents in memory are read without waiting"),
    }
}

fn issuers(settings: &settings::Settings, documents: &Arc<Documents>) -> Issuers {
    settings.validate(&[], None, true).unwrap();
    let jwt = &settings.jwt[0];
    let issuer = Issuer::new(jwt, vec![Algorithm::Es256], documents.clone()).unwrap();
    Issuers::new(vec![Arc::new(issuer)], NameDomains::new("example.org"))
}

fn outcome(issuers: &Issuers, token: &str) -> String {
    match at_once(issuers.authenticate(token, &[], UNIX_EPOCH + Duration::from_secs(NOW))) {
        Ok(Some(accepted)) => {
            let user = accepted.user;
            format!("{}/{}/{}/{:?}", user.name, user.uid, user.groups.join("+"), user.extra)
        }
        Ok(None) => "not ours".to_owned(),
        Err(cause) => cause.to_string(),
    }
}

fn plain() -> Value {
    json!({
        "issuer": {"url": "https://i.example", "audiences": ["me"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": "p:"}},
    })
}

const JANE: &str = "p:jane//system:authenticated/{}";

#[test]
fn only_valid_tokens_of_the_issuer_for_this_audience_and_time_are_accepted() {
    let (signer, stranger) = (Signer::new(), Signer::new());
    let documents = Arc::new(Documents::default());
    publish(&documents, &[signer.jwk("k")]);
    let issuers = issuers(&contents(plain()), &documents);
    let es256 = || json!({"alg": "ES256", "kid": "k"});
    let good = || json!({"iss": "https://i.example", "aud": "me", "sub": "jane", "exp": NOW + 60});
    let with = |name: &str, value: Value| {
        let mut claims = good();
        claims[name] = value;
        claims
    };
    let without = |name: &str| {
        let mut claims = good();
        claims.as_object_mut().unwrap().remove(name);
        claims
    };
    let early = signer.token(es256(), &good());
    assert_eq!(outcome(&issuers, &early), "oidc: authenticator not initialized");
    at_once(issuers.all()[0].provider().discover()).unwrap();
    let unsigned = "oidc: verify token: failed to verify signature: failed to verify id token signature";
    let algorithm = |got: &str| {
        format!(
            "oidc: verify token: oidc: id token signed with unsupported algorithm, expected [\"ES256\"] got \"{got}\""
        )
    };
    let (signed, _) = early.rsplit_once('.').unwrap();
    let spoiled = format!("{signed}.{}", URL_SAFE_NO_PAD.encode([1; 64]));
    for (case, token, want) in [
        ("good", signer.token(es256(), &good()), JANE.to_owned()),
        ("no key id", signer.token(json!({"alg": "ES256"}), &good()), JANE.to_owned()),
        ("several audiences", signer.token(es256(), &with("aud", json!(["x", "me"]))), JANE.to_owned()),
        ("another key", stranger.token(es256(), &good()), unsigned.to_owned()),
        ("unknown key id", signer.token(json!({"alg": "ES256", "kid": "../k"}), &good()), unsigned.to_owned()),
        (
            "a key in the header",
            stranger.token(json!({"alg": "ES256", "jwk": stranger.jwk("k"), "jku": "https://evil"}), &good()),
            unsigned.to_owned(),
        ),
        ("an extension", signer.token(json!({"alg": "ES256", "crit": ["exp"]}), &good()), unsigned.to_owned()),
        (
            "an extension that changes nothing",
            signer.token(json!({"alg": "ES256", "crit": ["b64"], "b64": true}), &good()),
            JANE.to_owned(),
        ),
        (
            "a payload that should be signed as it is",
            signer.token(json!({"alg": "ES256", "b64": false}), &good()),
            unsigned.to_owned(),
        ),
        ("spoiled", spoiled, unsigned.to_owned()),
        ("no algorithm", signer.token(json!({"kid": "k"}), &good()), algorithm("")),
        ("none", signer.token(json!({"alg": "none"}), &good()), algorithm("none")),
        (
            "an odd key id",
            signer.token(json!({"alg": "ES256", "kid": 5}), &good()),
            "oidc: verify token: oidc: malformed jwt: failed to unmarshal key ID: json: cannot unmarshal number into Go \
             value of type string: \"5\""
                .to_owned(),
        ),
        (
            "no signature",
            format!("{signed}.AAAA="),
            "oidc: verify token: oidc: malformed jwt: illegal base64 data at input byte 4".to_owned(),
        ),
        ("a shared secret", signer.token(json!({"alg": "HS256"}), &good()), algorithm("HS256")),
        ("another issuer", signer.token(es256(), &with("iss", json!("https://x"))), "not ours".to_owned()),
        ("no issuer", signer.token(es256(), &without("iss")), "not ours".to_owned()),
        (
            "another audience",
            signer.token(es256(), &with("aud", json!("you"))),
            "oidc: verify token: oidc: expected audience \"me\" got [\"you\"]".to_owned(),
        ),
        (
            "no audience",
            signer.token(es256(), &without("aud")),
            "oidc: verify token: oidc: expected audience \"me\" got []".to_owned(),
        ),
        (
            "expired",
            signer.token(es256(), &with("exp", json!(NOW - 1))),
            "oidc: verify token: oidc: token is expired (Token Expiry: 2027-01-15 07:59:59 +0000 UTC)".to_owned(),
        ),
        (
            "no end",
            signer.token(es256(), &without("exp")),
            "oidc: verify token: oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)".to_owned(),
        ),
        ("nearly valid", signer.token(es256(), &with("nbf", json!(NOW + 299))), JANE.to_owned()),
        (
            "not yet valid",
            signer.token(es256(), &with("nbf", json!(NOW + 301))),
            "oidc: verify token: oidc: current time 2027-01-15 08:00:00 +0000 UTC before the nbf (not before) time: \
             2027-01-15 08:05:01 +0000 UTC"
                .to_owned(),
        ),
        (
            "no user",
            signer.token(es256(), &without("sub")),
            "oidc: parse username claims \"sub\": claim not present".to_owned(),
        ),
    ] {
        assert_eq!(outcome(&issuers, &token), want, "{case}");
    }
    for _ in 0..100 {
        outcome(&issuers, &stranger.token(es256(), &good()));
    }
    let read = documents.read.lock();
    assert!(read.iter().all(|url| url.starts_with("https://i.example/")), "{read:?}");
    assert!(read.len() <= 20, "wrong signatures must not cause a read each: {read:?}");
}

#[test]
fn fresh_keys_are_kept_and_stale_keys_are_kept_if_a_fetch_fails() {
    let (first, second) = (Signer::new(), Signer::new());
    let documents = Arc::new(Documents::default());
    publish(&documents, &[first.jwk("k")]);
    let issuers = issuers(&contents(plain()), &documents);
    at_once(issuers.all()[0].provider().discover()).unwrap();
    let es256 = || json!({"alg": "ES256"});
    let good = json!({"iss": "https://i.example", "aud": "me", "sub": "jane", "exp": NOW + 60});
    let first = || outcome(&issuers, &first.token(es256(), &good));
    let new = || outcome(&issuers, &second.token(es256(), &good));
    const FAILED: &str = "oidc: verify token: failed to verify signature: ";
    assert_eq!(first(), JANE);
    publish(&documents, &[json!({"kty": "nope"})]);
    assert!(new().starts_with(&format!("{FAILED}fetching keys oidc: failed to decode keys: ")));
    assert_eq!(first(), JANE);
    *documents.fresh_for.lock() = Duration::from_secs(3600);
    publish(&documents, &[second.jwk("k")]);
    assert_eq!(new(), JANE);
    publish(&documents, &[]);
    assert_eq!(first(), format!("{FAILED}failed to verify id token signature"));
    assert_eq!(new(), JANE);
}

#[test]
fn distributed_group_claims_are_resolved() {
    let signer = Signer::new();
    let documents = Arc::new(Documents::default());
    publish(&documents, &[signer.jwk("k")]);
    let mut with_groups = plain();
    with_groups["claimMappings"]["groups"] = json!({"claim": "groups", "prefix": "g:"});
    let issuers = issuers(&contents(with_groups), &documents);
    at_once(issuers.all()[0].provider().discover()).unwrap();
    let es256 = || json!({"alg": "ES256", "kid": "k"});
    let base = |exp: u64| json!({"iss": "https://i.example", "aud": "me", "sub": "jane", "exp": exp});
    let put =
        |place: &str, text: String| documents.texts.lock().insert(format!("https://c.example/{place}"), text);
    let claims = |exp: u64, name: &str, value: Value| {
        let mut claims = base(exp);
        claims[name] = value;
        signer.token(es256(), &claims)
    };
    put("good/for/at", claims(NOW + 60, "groups", json!(["a", "b"])));
    put("old/for/at", claims(NOW - 60, "groups", json!(["a"])));
    put("other/for/at", claims(NOW + 60, "others", json!(["a"])));
    put("stranger/for/at", Signer::new().token(es256(), &base(NOW + 60)));
    put("text/for/at", "text".to_owned());
    put("hello/for/at", format!("a.{}.b", URL_SAFE_NO_PAD.encode("hello")));
    put("list/for/at", format!("a.{}.b", URL_SAFE_NO_PAD.encode("[]")));
    put("object/for/at", "{}".to_owned());
    let mut foreign = base(NOW + 60);
    foreign["iss"] = json!("https://x.example");
    put("foreign/for/at", signer.token(es256(), &foreign));
    const FAILED: &str = "oidc: could not expand distributed claims: ";
    let jane = |groups: &str| format!("p:jane//{groups}system:authenticated/{{}}");
    let at = |place: &str, token: &str| json!({"src": {"endpoint": format!("https://c.example/{place}/for/at"), "access_token": token}});
    for (sources, want) in [
        (at("good", "at"), jane("g:a+g:b+")),
        (
            at("good", "no"),
            format!(
                "{FAILED}while getting distributed claim \"groups\": error while getting distributed claim JWT: 401 \
                     Unauthorized"
            ),
        ),
        (
            at("old", "at"),
            format!(
                "{FAILED}verify distributed claim token: oidc: token is expired (Token Expiry: 2027-01-15 07:59:00 \
                     +0000 UTC)"
            ),
        ),
        (
            at("other", "at"),
            format!(
                "{FAILED}jwt returned by distributed claim endpoint \"https://c.example/other/for/at\" did not \
                     contain claim: groups"
            ),
        ),
        (
            at("stranger", "at"),
            format!(
                "{FAILED}verify distributed claim token: failed to verify signature: failed to verify id token \
                     signature"
            ),
        ),
        (
            at("text", "at"),
            format!(
                "{FAILED}getting untrusted issuer from endpoint https://c.example/text/for/at failed for claim \
                     \"groups\": malformed token"
            ),
        ),
        (
            at("hello", "at"),
            format!(
                "{FAILED}getting untrusted issuer from endpoint https://c.example/hello/for/at failed for claim \
                     \"groups\": while unmarshaling token: invalid character 'h' looking for beginning of value"
            ),
        ),
        (
            at("list", "at"),
            format!(
                "{FAILED}getting untrusted issuer from endpoint https://c.example/list/for/at failed for claim \
                     \"groups\": while unmarshaling token: json: cannot unmarshal array into Go value of type struct {{ \
                     Issuer string \"json:\\\"iss\\\"\" }}"
            ),
        ),
        (
            at("object", "at"),
            format!(
                "{FAILED}getting untrusted issuer from endpoint https://c.example/object/for/at failed for claim \
                     \"groups\": token is not compact JWT"
            ),
        ),
        (
            at("foreign", "at"),
            format!(
                "{FAILED}verifying untrusted issuer https://x.example failed: verifier not initialized for issuer: \
                     \"https://x.example\""
            ),
        ),
        (json!({"src": {"JWT": "x"}}), jane("")),
        (
            json!({}),
            "oidc: verify token: oidc: source does not exist".to_owned(),
        ),
        (
            json!(7),
            "oidc: verify token: oidc: failed to unmarshal claims: json: cannot unmarshal number into Go struct field \
             idToken._claim_sources of type map[string]oidc.claimSource"
                .to_owned(),
        ),
    ] {
        let mut all = base(NOW + 60);
        all["_claim_names"] = json!({"groups": "src"});
        all["_claim_sources"] = sources.clone();
        assert_eq!(outcome(&issuers, &signer.token(es256(), &all)), want, "{sources}");
    }
}

#[test]
fn a_discovery_document_must_name_its_issuer() {
    let documents = Arc::new(Documents::default());
    let issuers = issuers(&contents(plain()), &documents);
    let discover = || at_once(issuers.all()[0].provider().discover()).map_err(|error| error.to_string());
    assert_eq!(discover(), Err("404 Not Found".to_owned()));
    let set = |text: &str| {
        let url = "https://i.example/.well-known/openid-configuration".to_owned();
        documents.texts.lock().insert(url, text.to_owned());
    };
    set(r#"{"issuer": "https://i.example/", "jwks_uri": "https://i.example/keys"}"#);
    assert!(discover().unwrap_err().contains("did not match"));
    set(r#"{"issuer": "https://i.example", "jwks_uri": "http://i.example/keys"}"#);
    assert!(discover().unwrap_err().contains("https"));
    set("<html>");
    assert!(discover().is_err());
    assert!(!issuers.all()[0].provider().is_ready());
    set(r#"{"issuer": "https://i.example"}"#);
    assert_eq!(discover(), Ok(()));
    assert!(issuers.all()[0].provider().is_ready());
}

#[test]
fn claims_are_mapped_to_the_user_as_configured() {
    let signer = Signer::new();
    let documents = Arc::new(Documents::default());
    publish(&documents, &[signer.jwk("k")]);
    let mapped = json!({
        "username": {"expression": "claims.name"},
        "groups": {"expression": "claims.?groups.orValue([])"},
        "uid": {"expression": "string(claims.n)"},
        "extra": [{"key": "example.com/a", "valueExpression": "claims.?a.orValue('')"}],
    });
    let jwt = json!({
        "issuer": {"url": "https://i.example", "audiences": ["me"]},
        "claimValidationRules": [
            {"claim": "hd", "requiredValue": "x"},
            {"expression": "claims.n > 1", "message": "too small"},
        ],
        "claimMappings": mapped,
        "userValidationRules": [
            {"expression": "!user.groups.exists(g, g.startsWith('system:'))", "message": "reserved"},
        ],
    });
    let issuers = issuers(&contents(jwt), &documents);
    at_once(issuers.all()[0].provider().discover()).unwrap();
    for (claims, want) in [
        (json!({"name": "jane"}), "jane/2/system:authenticated/{}"),
        (
            json!({"name": "jane", "groups": ["a", "", "b"], "a": ["x"], "jti": "7", "n": 2.5}),
            "jane/2.5/a+b+system:authenticated/{\"authentication.example.org/credential-id\": [\"JTI=7\"], \
             \"example.com/a\": [\"x\"]}",
        ),
        (json!({"name": ""}), "oidc: empty username via CEL expression is not allowed"),
        (
            json!({"name": 5}),
            "oidc: error evaluating username claim expression: username claim expression must return a string",
        ),
        (
            json!({}),
            "oidc: error evaluating username claim expression: expression 'claims.name' resulted in error: no such key: \
             name",
        ),
        (
            json!({"name": "jane", "groups": [1]}),
            "oidc: error evaluating group claim expression: expression must return a string or a list of strings",
        ),
        (
            json!({"name": "jane", "hd": "y"}),
            "oidc: required claim hd value does not match. Got = y, want = x",
        ),
        (
            json!({"name": "jane", "n": 1}),
            "oidc: error evaluating claim validation expression: validation expression 'claims.n > 1' failed: too small",
        ),
        (
            json!({"name": "jane", "groups": "system:masters"}),
            "oidc: error evaluating user info validation rule: validation expression \
             '!user.groups.exists(g, g.startsWith('system:'))' failed: reserved",
        ),
    ] {
        let mut all = json!({"iss": "https://i.example", "aud": "me", "exp": NOW + 60, "hd": "x", "n": 2});
        for (name, value) in claims.as_object().unwrap() {
            all[name] = value.clone();
        }
        let token = signer.token(json!({"alg": "ES256", "kid": "k"}), &all);
        assert_eq!(outcome(&issuers, &token), want, "{claims}");
    }
}

#[test]
fn expressions_without_a_result_are_reported_before_other_errors() {
    let signer = Signer::new();
    let documents = Arc::new(Documents::default());
    publish(&documents, &[signer.jwk("k")]);
    let jwt = json!({
        "issuer": {"url": "https://i.example", "audiences": ["me"]},
        "claimValidationRules": [{"expression": "claims.n == 1", "message": "m"}, {"expression": "claims.m == 2"}],
        "claimMappings": {
            "username": {"claim": "sub", "prefix": ""},
            "uid": {"expression": "claims.u"},
            "extra": [
                {"key": "example.com/a", "valueExpression": "claims.a.split(',')"},
                {"key": "example.com/b", "valueExpression": "claims.b"},
            ],
        },
    });
    let mut plain = jwt.clone();
    plain["claimMappings"]["extra"] = json!([{"key": "example.com/b", "valueExpression": "claims.b"}]);
    let missing = |name: &str| format!("expression 'claims.{name}' resulted in error: no such key: {name}");
    let rule = "oidc: error evaluating claim validation expression: ";
    for (jwt, claims, want) in [
        (&jwt, json!({}), format!("oidc: error evaluating uid claim expression: {}", missing("u"))),
        (&jwt, json!({"u": "1", "a": "x"}), missing("b")),
        (
            &jwt,
            json!({"u": "1", "a": "x", "b": "y"}),
            "oidc: error evaluating extra claim expression: claims.a.split(','): \
             expression must return a string or a list of strings"
                .to_owned(),
        ),
        (
            &plain,
            json!({"u": "1", "b": "y", "n": 2}),
            format!("{rule}expression 'claims.m == 2' resulted in error: no such key: m"),
        ),
        (
            &plain,
            json!({"u": "1", "b": "y", "n": 2, "m": 3}),
            format!("{rule}validation expression 'claims.n == 1' failed: m"),
        ),
    ] {
        let issuers = issuers(&contents(jwt.clone()), &documents);
        at_once(issuers.all()[0].provider().discover()).unwrap();
        let mut all = json!({"iss": "https://i.example", "aud": "me", "exp": NOW + 60, "sub": "jane"});
        for (name, value) in claims.as_object().unwrap() {
            all[name] = value.clone();
        }
        let token = signer.token(json!({"alg": "ES256", "kid": "k"}), &all);
        assert_eq!(outcome(&issuers, &token), want, "{claims}");
    }
}

#[test]
fn an_authentication_configuration_is_decoded_strictly() {
    const GROUP: &str = "apiserver.example";
    for (value, want) in [
        (json!(null), "Object 'Kind' is missing in 'TEXT'"),
        (json!({"kind": "AuthenticationConfiguration"}), "Object 'apiVersion' is missing in 'TEXT'"),
        (
            json!({"kind": "AuthorizationConfiguration", "apiVersion": "apiserver.example/v1"}),
            "expected AuthenticationConfiguration, got *apiserver.AuthorizationConfiguration",
        ),
        (
            json!({"kind": "AuthenticationConfiguration", "apiVersion": "a/b/c"}),
            "unexpected GroupVersion string: a/b/c",
        ),
        (
            json!({"kind": "AuthenticationConfiguration", "apiVersion": "apiserver.example/"}),
            "Object 'apiVersion' is missing in 'TEXT'",
        ),
        (
            json!({"Kind": "AuthenticationConfiguration", "APIversion": "apiserver.example/v1"}),
            "strict decoding error: unknown field \"APIversion\", unknown field \"Kind\"",
        ),
        (
            json!({"Kind": 5}),
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type \
             string",
        ),
        (
            json!({"kind": "AuthenticationConfiguration", "apiVersion": "apiserver.example/__internal", "jwt": []}),
            "strict decoding error: unknown field \"jwt\"",
        ),
        (
            json!({"kind": "AuthenticationConfiguration", "apiVersion": "/v1"}),
            "no kind \"AuthenticationConfiguration\" is registered for version \"v1\" in scheme \"apiserver\"",
        ),
        (
            json!({"kind": "AuthenticationConfiguration", "apiVersion": "v1"}),
            "no kind \"AuthenticationConfiguration\" is registered for version \"v1\" in scheme \"apiserver\"",
        ),
        (
            json!({"kind": "EncryptionConfiguration", "apiVersion": "apiserver.example/v1"}),
            "expected AuthenticationConfiguration, got *apiserver.EncryptionConfiguration",
        ),
        (
            json!({"kind": "EncryptionConfiguration", "apiVersion": "apiserver.example/v1beta1"}),
            "no kind \"EncryptionConfiguration\" is registered for version \"apiserver.example/v1beta1\" in scheme \
             \"apiserver\"",
        ),
        (
            json!([]),
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { \
             APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        ),
        (
            json!({"kind": 5}),
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type \
             string",
        ),
    ] {
        assert_eq!(file::read(&Document::from_value("TEXT", &value), GROUP).unwrap_err(), want);
    }
    for (name, value, want) in [
        ("foo", json!(1), "strict decoding error: unknown field \"foo\""),
        (
            "jwt",
            json!([{}, {"issuer": {"x": 1}}]),
            "strict decoding error: unknown field \"jwt[1].issuer.x\"",
        ),
        (
            "jwt",
            json!({}),
            "json: cannot unmarshal object into Go struct field AuthenticationConfiguration.jwt of type \
             []v1.JWTAuthenticator",
        ),
        (
            "jwt",
            json!([{"issuer": {"url": 5}}]),
            "json: cannot unmarshal number into Go struct field Issuer.jwt.issuer.url of type string",
        ),
    ] {
        let mut file = json!({"kind": "AuthenticationConfiguration", "apiVersion": "apiserver.example/v1"});
        file[name] = value;
        assert_eq!(file::read(&Document::from_value("TEXT", &file), GROUP).unwrap_err(), want);
    }
    let text = "{\"kind\":\"AuthenticationConfiguration\",\"apiVersion\":\"apiserver.example/v1\",\"z\":1,\"jwt\":[],\"a\":1,\
                \"jwt\":[{\"b\":1,\"b\":2}],\"z\":1}";
    let document = Document::new(text.as_bytes(), text.as_bytes(), None).unwrap();
    let want = "strict decoding error: unknown field \"z\", unknown field \"a\", duplicate field \"jwt\", unknown field \
                \"jwt[0].b\"";
    assert_eq!(file::read(&document, GROUP).unwrap_err(), want);
}
