//! Helpers of several test files: the `kube` crate's client for a server, tokens, and a repeatable random generator.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kube::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use rcgen::KeyPair;
use serde_json::Value;
use tests::{PATIENCE, Server};

pub use testkit::{Random, reference};

/// A self-signed certificate, in PEM and then base64, for the status of a certificate request.
pub const CERTIFICATE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJjRENDQVJXZ0F3SUJBZ0lVVjltN1lLMHljdGgvOC9zNE4vcnBsNFF3dEE4d0NnWUlLb1pJemowRUF3SXcKRERFS01BZ0dBMVVFQXd3QllUQWdGdzB5TmpFeE1qVXdNekkyTURkYUdBOHlNVEkyTVRFd01UQXpNall3TjFvdwpEREVLTUFnR0ExVUVBd3dCWVRCWk1CTUdCeXFHU000OUFnRUdDQ3FHU000OUF3RUhBMElBQklkRkN3K25ibjA0CnAxRDVIZkpvWHRxaFo0bmplaGhTYVA1cmZhSFpubkZoajZsbG1YeUhBY1BZS1Q3OGwrRFdIRE9aSlZpZVBKLy8KY05lV01XcmJ2bk9qVXpCUk1CMEdBMVVkRGdRV0JCUjZRemhYUnRYd2RiakRWcEl6SEswb2cyUHMxREFmQmdOVgpIU01FR0RBV2dCUjZRemhYUnRYd2RiakRWcEl6SEswb2cyUHMxREFQQmdOVkhSTUJBZjhFQlRBREFRSC9NQW9HCkNDcUdTTTQ5QkFNQ0Ewa0FNRVlDSVFDcUpTamN0R29obDFXZk1OeDJIc2ZXZGIrMUZJMHN0bHVlYUNyZ2NTVjMKcUFJaEFOSUtRZFZHMS9meHV1S2UyZlBBcjRDZzFoN0l2WFhCbnB4NWt6QmpRbHRWCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";

/// Starts a server with the `kubernetes` naming profile, and returns a client from its kubeconfig.
pub async fn upstream() -> (Server, kube::Client) {
    let server = Server::start_upstream().await;
    let client = kube_client(&server).await;
    (server, client)
}

/// Returns the administrator's client, created as a user creates it.
pub async fn kube_client(server: &Server) -> kube::Client {
    kube::Client::try_from(kube_config(server).await).expect("a client can use the kubeconfig")
}

/// Reads the server's kubeconfig into a configuration of the `kube` crate.
pub async fn kube_config(server: &Server) -> kube::Config {
    let file = Kubeconfig::read_from(server.kubeconfig()).expect("the server writes a valid kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    config.expect("the kubeconfig is complete")
}

/// Waits until the object satisfies `condition`, and returns the object. An absent object is `None`.
pub async fn until<K>(api: &Api<K>, name: &str, condition: impl Fn(Option<&K>) -> bool) -> Option<K>
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let waiting = await_condition(api.clone(), name, condition);
    tokio::time::timeout(PATIENCE, waiting).await.expect("the condition holds").expect("the watch continues")
}

/// Waits until the controllers have created their config maps in the namespaces of a new server with the naming profile
/// `kubernetes`, for tests that observe the creation of config maps.
pub async fn until_root_certificates(client: &tests::Client) {
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let map = format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt");
        client.until(&map, |found| found.is_some()).await;
    }
}

/// Returns the Status of a refused operation.
#[track_caller]
pub fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> kube::core::Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("expected a Status, not {other:?}"),
    }
}

/// Returns the anonymous memory of a process in bytes.
pub fn anonymous_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the status has RssAnon");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Returns a pod of 900 000 empty containers in 2.7 MB of JSON, which would need some hundred times as much
/// memory.
pub fn pod_of_many_containers() -> String {
    let containers = vec!["{}"; 900_000].join(",");
    format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"containers":[{containers}]}}}}"#)
}

/// Reads the size of a test from an environment variable; `otherwise` is the default.
pub fn from_environment(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Reads a value of `/metrics`.
pub async fn metric(server: &Server, name: &str) -> u64 {
    let reply = server.client().another().get("/metrics").await;
    let text = reply.text();
    assert_eq!(reply.status, 200, "{text}");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// Encodes the header or the claims of a token.
pub fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// Returns a token with this header and these claims, signed by a key (ES256).
pub fn signed(key: &KeyPair, header: &Value, claims: &Value) -> String {
    let text = format!("{}.{}", encoded(header), encoded(claims));
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.serialized_der()).unwrap();
    let signature = pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}
