//! Issuers of tokens: an identity provider signs tokens with every algorithm, changes its keys, and publishes invalid
//! documents (docs/api/authentication.md#issuers).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, RsaEncoding, RsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tests::{Client, Options, PATIENCE, Server};

use crate::hook::Hook;

enum Key {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
}

/// The algorithms of RSA keys, and their signature schemes.
const RSA: [(&str, &dyn RsaEncoding); 6] = [
    ("RS256", &signature::RSA_PKCS1_SHA256),
    ("RS384", &signature::RSA_PKCS1_SHA384),
    ("RS512", &signature::RSA_PKCS1_SHA512),
    ("PS256", &signature::RSA_PSS_SHA256),
    ("PS384", &signature::RSA_PSS_SHA384),
    ("PS512", &signature::RSA_PSS_SHA512),
];

/// The algorithms of elliptic curve keys.
const CURVES: [(&str, &EcdsaSigningAlgorithm); 3] = [
    ("ES256", &signature::ECDSA_P256_SHA256_FIXED_SIGNING),
    ("ES384", &signature::ECDSA_P384_SHA384_FIXED_SIGNING),
    ("ES512", &signature::ECDSA_P521_SHA512_FIXED_SIGNING),
];

impl Key {
    fn rsa() -> Key {
        Key::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    fn ec(curve: &'static EcdsaSigningAlgorithm) -> Key {
        Key::Ec(EcdsaKeyPair::generate(curve).unwrap())
    }

    /// Returns the public key as a member of a key set.
    fn jwk(&self, kid: &str) -> Value {
        let der = match self {
            Key::Rsa(pair) => pair.public_key().as_der().unwrap().as_ref().to_vec(),
            Key::Ec(pair) => pair.public_key().as_der().unwrap().as_ref().to_vec(),
        };
        let pem = format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            base64::engine::general_purpose::STANDARD.encode(der)
        );
        let mut jwk = auth::authn::VerificationKey::from_pem(pem.as_bytes()).unwrap()[0].to_jwk();
        // An RSA key may sign with all RSA algorithms.
        jwk.as_object_mut().unwrap().remove("alg");
        jwk["kid"] = kid.into();
        jwk
    }

    fn sign(&self, algorithm: &str, text: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Key::Rsa(pair) => {
                let (_, encoding) = RSA.iter().find(|(name, _)| *name == algorithm).unwrap();
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &random, text, &mut signature).unwrap();
                signature
            }
            Key::Ec(pair) => pair.sign(&random, text).unwrap().as_ref().to_vec(),
        }
    }
}

/// The provider's responses by path; other paths return `{}`.
type Documents = Arc<Mutex<HashMap<String, Value>>>;

/// An identity provider that publishes a set of keys.
struct Provider {
    hook: Hook,
    documents: Documents,
}

impl Provider {
    async fn start() -> Provider {
        let documents = Documents::default();
        let answers = documents.clone();
        let hook = Hook::start(move |request| {
            let answer = answers.lock().get(request["path"].as_str().unwrap_or_default()).cloned();
            async move { answer.unwrap_or(json!({})) }
        })
        .await;
        let provider = Provider { hook, documents };
        let issuer = provider.issuer();
        let discovery = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")});
        provider.documents.lock().insert("/.well-known/openid-configuration".to_owned(), discovery);
        provider
    }

    fn issuer(&self) -> String {
        self.hook.url("")
    }

    fn publish(&self, keys: &[(&str, &Key)]) {
        let keys: Vec<Value> = keys.iter().map(|(id, key)| key.jwk(id)).collect();
        self.documents.lock().insert("/keys".to_owned(), json!({ "keys": keys }));
    }

    /// Starts a server that trusts the provider, and waits until it has read the keys.
    async fn server(&self, flags: &[&str]) -> Server {
        let mut all = vec![
            format!("--oidc-issuer-url={}", self.issuer()),
            "--oidc-client-id=me".to_owned(),
            "--oidc-ca-file=$dir/issuer.pem".to_owned(),
            "--oidc-username-prefix=-".to_owned(),
            "--oidc-groups-claim=groups".to_owned(),
        ];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let files = vec![("issuer.pem", self.hook.certificate.clone())];
        Server::start(Options { flags: all, files, ..Options::default() }).await
    }

    fn token(&self, key: &Key, header: &Value, claims: Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut all = json!({"iss": self.issuer(), "aud": "me", "sub": "carol", "exp": now + 600});
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(header), encode(&all));
        let signature = key.sign(header["alg"].as_str().unwrap(), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Returns the user of a token, or the code of the refusal.
async fn who(client: &Client, token: &str) -> Result<Value, u16> {
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let reply = client.with_token(token).post(reviews, &json!({})).await;
    match reply.status {
        201 => Ok(reply.json()["status"]["userInfo"].clone()),
        status => Err(status),
    }
}

/// Waits until a token is accepted, because the keys are read after the start.
async fn accepted(client: &Client, token: &str) {
    let begun = Instant::now();
    while who(client, token).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "the token is never accepted");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_algorithm_is_accepted_if_it_is_allowed_and_its_key_is_published() {
    let provider = Provider::start().await;
    let rsa = Key::rsa();
    let curves = CURVES.map(|(name, curve)| (name, Key::ec(curve)));
    let mut keys = vec![("rsa", &rsa)];
    keys.extend(curves.iter().map(|(name, key)| (*name, key)));
    provider.publish(&keys);
    let names: Vec<&str> = RSA.iter().map(|(name, _)| *name).chain(CURVES.map(|(name, _)| name)).collect();
    let server = provider.server(&[&format!("--oidc-signing-algs={}", names.join(","))]).await;
    let signed = |name: &str| {
        let (kid, key) =
            curves.iter().find(|(curve, _)| *curve == name).map_or(("rsa", &rsa), |(kid, key)| (*kid, key));
        provider.token(key, &json!({"alg": name, "kid": kid}), json!({"groups": [name]}))
    };
    accepted(server.client(), &signed("RS256")).await;
    for name in &names {
        let user = who(server.client(), &signed(name)).await;
        let want = json!({"username": "carol", "groups": [name, "system:authenticated"]});
        assert_eq!(user, Ok(want), "{name}");
    }
    // A key is not accepted with another key's algorithm.
    let other = provider.token(&curves[0].1, &json!({"alg": "ES256", "kid": "ES384"}), json!({}));
    assert_eq!(who(server.client(), &other).await, Err(401));

    let narrow = provider.server(&[]).await;
    accepted(narrow.client(), &signed("RS256")).await;
    for name in names.iter().filter(|name| **name != "RS256") {
        assert_eq!(who(narrow.client(), &signed(name)).await, Err(401), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn issuer_keys_can_change_without_a_restart() {
    let provider = Provider::start().await;
    let (old, new) = (Key::rsa(), Key::rsa());
    provider.publish(&[("old", &old)]);
    let server = provider.server(&[]).await;
    let header = |kid: &str| json!({"alg": "RS256", "kid": kid});
    accepted(server.client(), &provider.token(&old, &header("old"), json!({}))).await;
    let by_new = |claims: Value| provider.token(&new, &header("new"), claims);
    assert_eq!(who(server.client(), &by_new(json!({"jti": "1"}))).await, Err(401), "not published yet");
    provider.publish(&[("old", &old), ("new", &new)]);
    accepted(server.client(), &by_new(json!({"jti": "2"}))).await;
    provider.publish(&[("new", &new)]);
    // The old key is accepted until the server fetches the keys again. A token with an unknown key makes the
    // server fetch the keys.
    let unknown = provider.token(&new, &header("unknown"), json!({}));
    let begun = Instant::now();
    for turn in 0.. {
        assert!(begun.elapsed() < PATIENCE, "a removed key is still accepted");
        assert_eq!(who(server.client(), &unknown).await, Err(401));
        let late = provider.token(&old, &header("old"), json!({"jti": turn.to_string()}));
        if who(server.client(), &late).await == Err(401) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distributed_group_claims_are_fetched_from_their_endpoint() {
    let provider = Provider::start().await;
    let key = Key::rsa();
    provider.publish(&[("k", &key)]);
    let server = provider.server(&[]).await;
    let header = json!({"alg": "RS256", "kid": "k"});
    accepted(server.client(), &provider.token(&key, &header, json!({}))).await;
    let named = |endpoint: String| {
        let sources = json!({"src": {"endpoint": endpoint, "access_token": "at"}});
        let claims = json!({"_claim_names": {"groups": "src"}, "_claim_sources": sources});
        provider.token(&key, &header, claims)
    };
    // At this path the provider returns JSON, which is not a token.
    assert_eq!(who(server.client(), &named(provider.hook.url("/claims"))).await, Err(401));
    assert_eq!(who(server.client(), &named("http://localhost:1/plain".to_owned())).await, Err(401));
    assert!(
        provider.hook.authorizations().contains(&"Bearer at".to_owned()),
        "the endpoint receives the bearer token"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answers_of_a_misbehaving_issuer_are_not_accepted() {
    let provider = Provider::start().await;
    let key = Key::rsa();
    provider.publish(&[("k", &key)]);
    let issuer = provider.issuer();
    for discovery in [
        json!({}),
        json!("text"),
        json!({"issuer": "https://other.example", "jwks_uri": format!("{issuer}/keys")}),
        json!({"issuer": issuer, "jwks_uri": "http://localhost/keys"}),
        json!({"issuer": issuer, "jwks_uri": format!("{issuer}/none")}),
        json!({"issuer": issuer, "jwks_uri": 7}),
    ] {
        let shown = discovery.to_string();
        provider.documents.lock().insert("/.well-known/openid-configuration".to_owned(), discovery);
        let server = provider.server(&[]).await;
        let token = provider.token(&key, &json!({"alg": "RS256", "kid": "k"}), json!({}));
        for _ in 0..5 {
            assert_eq!(who(server.client(), &token).await, Err(401), "{shown}");
        }
        assert_eq!(server.client().get("/api/v1/namespaces").await.status, 200);
    }
}
