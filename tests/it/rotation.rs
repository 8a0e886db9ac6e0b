//! Rotation without a restart. The authorities of clients and of the proxy, the keys of service account tokens, and the
//! serving certificate are in files. New contents of these files take effect shortly after they were written
//! (docs/api/authentication.md).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use tests::client::Identity;
use tests::{Client, Options, PATIENCE, Server};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

/// A certificate authority with its key and certificate.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Returns the administrator's client, but with a certificate of this authority.
    fn client(&self, server: &Server, name: &str) -> Client {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem().into_bytes();
        let key = key.serialize_pem().into_bytes();
        Client::new(Identity { certificate, key, ..server.client().identity().clone() })
    }

    /// Returns a certificate for servers on this machine, and its key.
    fn serving(&self) -> (String, String) {
        let params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn write(path: &Path, text: &str) {
    // Rename the new file, so that the server never reads an incomplete file.
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}

/// Returns the user as which the server authenticates the client.
async fn who(client: &Client, headers: &[(&str, &str)]) -> Result<String, u16> {
    let mut all = vec![("content-type", "application/json")];
    all.extend(headers);
    let reply = client.send("POST", REVIEWS, &all, b"{}").await;
    match reply.status {
        201 => Ok(reply.json()["status"]["userInfo"]["username"].as_str().unwrap().to_owned()),
        status => Err(status),
    }
}

/// The names of authorities in the server's handshake, in DER.
#[derive(Debug, Default)]
struct RecordingResolver(parking_lot::Mutex<Vec<Vec<u8>>>);

impl rustls::client::ResolvesClientCert for RecordingResolver {
    fn resolve(
        &self,
        names: &[&[u8]],
        _: &[rustls::SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        *self.0.lock() = names.iter().map(|name| name.to_vec()).collect();
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Returns the names of the authorities that a server sends in a handshake.
async fn announced_authorities(
    server: &Server,
    version: &'static rustls::SupportedProtocolVersion,
) -> Vec<String> {
    let resolver = Arc::new(RecordingResolver::default());
    let identity = server.client().identity();
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&identity.authority).map(Result::unwrap));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(resolver.clone());
    let stream = tokio::net::TcpStream::connect(&identity.address).await.unwrap();
    let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let names = resolver.0.lock().clone();
    // The common name is the last text in a name.
    names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tls_handshake_names_the_accepted_client_authorities() {
    let (old, new) = (Authority::new("old authority"), Authority::new("new authority"));
    let options = Options {
        flags: vec!["--client-ca-file=$dir/clients.pem".to_owned()],
        files: vec![("clients.pem", old.pem.clone())],
        ..Options::default()
    };
    let server = Server::start(options).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let names = announced_authorities(&server, version).await;
        assert_eq!(names.len(), 2, "the names are the server's own CA and the CA of the file: {names:?}");
        assert!(names.iter().any(|name| name.ends_with("old authority")), "{names:?}");
    }
    write(&server.data_dir().join("clients.pem"), &new.pem);
    becomes("the name of the new authority", Ok("named"), async || {
        let names = announced_authorities(&server, &rustls::version::TLS13).await;
        let has = |end: &str| names.iter().any(|name| name.ends_with(end));
        if has("new authority") && !has("old authority") { Ok("named".to_owned()) } else { Err(0) }
    })
    .await;
}

/// Retries until the result is `expected`.
async fn becomes(what: &str, expected: Result<&str, u16>, ask: impl AsyncFn() -> Result<String, u16>) {
    let begun = Instant::now();
    loop {
        let got = ask().await;
        if got.as_ref().map(String::as_str).map_err(|status| *status) == expected {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {got:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Returns the id of the key that signed a token.
fn key_id(token: &str) -> Value {
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    serde_json::from_slice::<Value>(&header).unwrap()["kid"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_and_proxy_authorities_can_be_replaced_without_a_restart() {
    let (old, new, front, later) =
        (Authority::new("old"), Authority::new("new"), Authority::new("front"), Authority::new("later"));
    let options = Options {
        flags: vec![
            "--client-ca-file=$dir/clients.pem".to_owned(),
            "--requestheader-client-ca-file=$dir/front.pem".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-allowed-names=proxy".to_owned(),
        ],
        files: vec![("clients.pem", old.pem.clone()), ("front.pem", front.pem.clone())],
        ..Options::default()
    };
    let server = Server::start(options).await;
    let [of_old, of_new] = [&old, &new].map(|authority| authority.client(&server, "jane"));
    let [proxy, later_proxy] = [&front, &later].map(|authority| authority.client(&server, "proxy"));
    let carol = [("x-remote-user", "carol")];
    assert_eq!(who(&of_old, &[]).await, Ok("jane".to_owned()));
    assert_eq!(who(&of_new, &[]).await, Err(401));
    assert_eq!(who(&proxy, &carol).await, Ok("carol".to_owned()));
    assert_eq!(who(&later_proxy, &carol).await, Err(401));
    // After invalid contents were written, the server continues to use the old authorities.
    write(&server.data_dir().join("clients.pem"), "nothing");
    write(&server.data_dir().join("front.pem"), "nothing");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(who(&of_old, &[]).await, Ok("jane".to_owned()));
    assert_eq!(who(&proxy, &carol).await, Ok("carol".to_owned()));
    write(&server.data_dir().join("clients.pem"), &new.pem);
    write(&server.data_dir().join("front.pem"), &later.pem);
    becomes("a client of the new authority", Ok("jane"), async || who(&of_new, &[]).await).await;
    becomes("a client of the old authority", Err(401), async || who(&of_old, &[]).await).await;
    becomes("the new proxy", Ok("carol"), async || who(&later_proxy, &carol).await).await;
    becomes("the old proxy", Err(401), async || who(&proxy, &carol).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_account_signing_keys_can_be_replaced_without_a_restart() {
    let (old, new) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let options = Options {
        flags: vec![
            "--service-account-issuer=https://issuer.example".to_owned(),
            "--service-account-signing-key-file=$dir/signing.pem".to_owned(),
            "--service-account-key-file=$dir/keys.pem".to_owned(),
        ],
        files: vec![("signing.pem", old.serialize_pem()), ("keys.pem", old.public_key_pem())],
        ..Options::default()
    };
    let server = Server::start(options).await;
    let client = server.client();
    client
        .until("/api/v1/namespaces/default/serviceaccounts/default", |found| found.is_some())
        .await
        .unwrap();
    let token = async || {
        let reply = client.post(TOKENS, &json!({"spec": {}})).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()["status"]["token"].as_str().unwrap().to_owned()
    };
    let key_ids = async || {
        let keys = client.get("/openid/v1/jwks").await.json();
        keys["keys"].as_array().into_iter().flatten().map(|key| key["kid"].clone()).collect::<Vec<Value>>()
    };
    let by_old = token().await;
    let account = Ok("system:serviceaccount:default:default");
    becomes("a token of the old key", account, async || who(&client.with_token(&by_old), &[]).await).await;
    let ids = key_ids().await;
    // Verifiers get the new key before a token is signed with it. Verifiers keep the old key as long as tokens of
    // that key are valid.
    write(&server.data_dir().join("keys.pem"), &(old.public_key_pem() + &new.public_key_pem()));
    write(&server.data_dir().join("signing.pem"), &new.serialize_pem());
    becomes("the keys that are published", Ok("2"), async || Ok(key_ids().await.len().to_string())).await;
    // The new key may be published before the server signs with it.
    becomes("the key that signs", Ok("new"), async || {
        let is_old = ids.contains(&key_id(&token().await));
        Ok(if is_old { "old" } else { "new" }.to_owned())
    })
    .await;
    let by_new = token().await;
    becomes("a token of the new key", account, async || who(&client.with_token(&by_new), &[]).await).await;
    becomes("a token of the old key", account, async || who(&client.with_token(&by_old), &[]).await).await;
    write(&server.data_dir().join("keys.pem"), &new.public_key_pem());
    becomes("a token of the old key", Err(401), async || who(&client.with_token(&by_old), &[]).await).await;
    becomes("a token of the new key", account, async || who(&client.with_token(&by_new), &[]).await).await;
    let left = key_ids().await;
    assert!(left.len() == 1 && !ids.contains(&left[0]), "{ids:?} became {left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_serving_certificate_can_be_replaced_without_a_restart() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (certificate, key) = old.serving();
    let options = Options {
        flags: vec![
            "--tls-cert-file=$dir/tls.pem".to_owned(),
            "--tls-private-key-file=$dir/tls.key".to_owned(),
        ],
        files: vec![("tls.pem", certificate + &old.pem), ("tls.key", key)],
        ..Options::default()
    };
    let server = Server::start(options).await;
    let trusting = |authority: &Authority| {
        Client::new(Identity {
            authority: authority.pem.clone().into_bytes(),
            ..server.client().identity().clone()
        })
    };
    assert!(trusting(&old).connect().await.is_ok());
    assert!(trusting(&new).connect().await.is_err());
    let (certificate, key) = new.serving();
    // Between the two writes, the certificate and the key do not match, so the server continues to use the old pair.
    write(&server.data_dir().join("tls.pem"), &certificate);
    write(&server.data_dir().join("tls.key"), &key);
    let shown = async |authority: &Authority| match trusting(authority).connect().await {
        Ok(_) => Ok(String::new()),
        Err(_) => Err(0),
    };
    becomes("the new certificate", Ok(""), async || shown(&new).await).await;
    becomes("the old certificate", Err(0), async || shown(&old).await).await;
    let log = server.until_logged("serving certificate reloaded", 1).await;
    let said = |line: &&str| line.contains("INFO") && line.contains("serving certificate reloaded");
    let line = log.lines().find(said).unwrap_or_else(|| panic!("the reload is not in {log}"));
    assert!(line.contains("expires=\"") && !line.contains("expires=\"\""), "{line}");
}
