//! Benchmark of admission. The benchmark measures:
//!
//! - the server's CPU time for each pod create, with the default plugins and without plugins;
//! - the CPU time that each of a hundred policies adds, if all of them match the pod and allow it;
//! - the latency that a webhook on this machine adds, compared with a bare HTTPS exchange with the webhook.
//!
//! The benchmark measures latencies over one connection, and CPU time over several connections. Commits are
//! durable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::cluster::pod_creates;
use benches::load::{self, Outcome};
use benches::{Runtime, process, scale};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tests::{Options, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Number of connections in the CPU measurements.
const CONNECTIONS: usize = 16;

/// Number of policies that match every pod.
const POLICIES: usize = 100;

/// Default plugins. The server of the comparison runs without these plugins.
const DEFAULT: &str = "NamespaceLifecycle,LimitRanger,ServiceAccount,TaintNodesByCondition,PodSecurity,Priority,\
    DefaultTolerationSeconds,DefaultStorageClass,StorageObjectInUseProtection,PersistentVolumeClaimResize,RuntimeClass,\
    CertificateApproval,CertificateSigning,ClusterTrustBundleAttest,CertificateSubjectRestriction,DefaultIngressClass,\
    PodTopologyLabels,PodResizeValidator,MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,\
    ValidatingAdmissionWebhook,ResourceQuota";

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn main() {
    let runtime = Runtime::new();
    let start = |flags: &[String]| {
        runtime.run(Server::start(Options { flags: flags.to_vec(), ..Options::default() }))
    };
    let bare = start(&[format!("--disable-admission-plugins={DEFAULT}")]);
    let server = start(&[]);
    runtime.run(account(&server));

    let without = cpu_us(&runtime, &bare, "without");
    let with = cpu_us(&runtime, &server, "default");
    line(&format!("pod create, no plugin: {without:.0} us of CPU"));
    line(&format!("pod create, default plugins: {with:.0} us of CPU, {:.2} times as much", with / without));
    runtime.run(policies(&server));
    let policed = cpu_us(&runtime, &server, "policies");
    let each = (policed - with) / POLICIES as f64;
    line(&format!("pod create, {POLICIES} policies more: {policed:.0} us of CPU, {each:.2} us a policy"));
    drop(server);

    let server = start(&[]);
    runtime.run(account(&server));
    let before = latency(&runtime, &server, "alone");
    let hook = runtime.run(Hook::start());
    runtime.run(hook.configure(&server));
    let after = latency(&runtime, &server, "hooked");
    let exchange = runtime.run(hook.exchange(scale(500, 10)));
    let added = after.saturating_sub(before);
    line(&format!("pod create: {before:.0?}; with a webhook {after:.0?}, which is {added:.0?} more"));
    line(&format!("limit: bare HTTPS exchange with the webhook, on a connection of its own: {exchange:.0?}"));
}

/// Waits until the default service account exists, because creates of pods need the account.
async fn account(server: &Server) {
    let path = "/api/v1/namespaces/default/serviceaccounts/default";
    assert!(server.client().until(path, |found| found.is_some()).await.is_some(), "no account");
}

/// Returns the server's CPU time for each created pod: the minimum of several rounds.
fn cpu_us(runtime: &Runtime, server: &Server, stem: &str) -> f64 {
    let (count, rounds) = (scale(4_000, 32), scale(5, 1));
    let mut least = f64::MAX;
    for round in 0..rounds {
        let requests = pod_creates(&format!("{stem}-{round}"), count);
        let mut connections = runtime.run(load::connect(server.client(), CONNECTIONS));
        let before = process::cpu_time(server.pid());
        runtime.run(load::run(&mut connections, &requests, 201));
        let spent = process::cpu_time(server.pid()) - before;
        least = least.min(spent.as_secs_f64() * 1e6 / count as f64);
    }
    least
}

/// Returns the latency of creates on one connection: the smallest median of several rounds.
fn latency(runtime: &Runtime, server: &Server, stem: &str) -> Duration {
    let (count, rounds) = (scale(1_000, 16), scale(3, 1));
    let round = |round: usize| {
        let requests = pod_creates(&format!("{stem}-{round}"), count);
        let mut connections = runtime.run(load::connect(server.client(), 1));
        let outcome: Outcome = runtime.run(load::run(&mut connections, &requests, 201));
        outcome.quantile(0.5)
    };
    (0..rounds).map(round).min().expect("there was a round")
}

/// Creates policies for pods, each with its binding.
async fn policies(server: &Server) {
    let client = server.client();
    for at in 0..POLICIES {
        let policy = format!(
            r#"{{"metadata":{{"name":"p{at}"}},"spec":{{"matchConstraints":{{"resourceRules":[{{"apiGroups":[""],
            "apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["pods"]}}]}},"validations":[{{"expression":
            "object.spec.containers.all(c, !c.image.endsWith(':latest{at}'))"}}]}}}}"#
        );
        let binding = format!(
            r#"{{"metadata":{{"name":"p{at}"}},"spec":{{"policyName":"p{at}","validationActions":["Deny"]}}}}"#
        );
        for (kind, body) in
            [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
        {
            send(client, &format!("{GROUP}/{kind}"), &body).await;
        }
    }
}

async fn send(client: &tests::Client, path: &str, body: &str) {
    let reply = client.send("POST", path, &[("content-type", "application/json")], body.as_bytes()).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
}

/// A webhook that allows every request.
struct Hook {
    port: u16,
    certificate: rcgen::Certificate,
}

impl Hook {
    async fn start() -> Hook {
        let key = KeyPair::generate().expect("keys can be made");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("it can be signed");
        let chain = vec![certificate.der().clone()];
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .expect("key and certificate fit");
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let _ = stream.set_nodelay(true);
                    if let Ok(stream) = acceptor.accept(stream).await {
                        answer(stream).await;
                    }
                });
            }
        });
        Hook { port, certificate }
    }

    async fn configure(&self, server: &Server) {
        let bundle = base64(self.certificate.pem().as_bytes());
        let body = format!(
            r#"{{"metadata":{{"name":"hook"}},"webhooks":[{{"name":"hook.example.com","admissionReviewVersions":["v1"],
            "sideEffects":"None","clientConfig":{{"url":"https://localhost:{}/","caBundle":"{bundle}"}},"rules":[{{
            "apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE"]}}]}}]}}"#,
            self.port
        );
        send(server.client(), &format!("{GROUP}/validatingwebhookconfigurations"), &body).await;
    }

    /// Returns the median time of a request that has about the size of an admission review. Each request uses
    /// a new connection.
    async fn exchange(&self, count: usize) -> Duration {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("it is a certificate");
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost").expect("a name");
        let body =
            format!(r#"{{"request":{{"uid":"x","padding":"{}"}}}}"#, "x".repeat(benches::data::POD_BYTES));
        let request =
            format!("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let mut times = Vec::new();
        for _ in 0..count {
            let began = Instant::now();
            let stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("it listens");
            let _ = stream.set_nodelay(true);
            let mut stream = connector.connect(name.clone(), stream).await.expect("it speaks TLS");
            stream.write_all(request.as_bytes()).await.expect("it reads");
            let mut text = [0; 1024];
            let read = stream.read(&mut text).await.expect("it answers");
            assert!(text[..read].starts_with(b"HTTP/1.1 200"));
            times.push(began.elapsed());
        }
        times.sort_unstable();
        times[times.len() / 2]
    }
}

/// Responds to the requests of a connection.
async fn answer(mut stream: tokio_rustls::server::TlsStream<TcpStream>) {
    let mut text = Vec::new();
    let mut part = [0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut part).await {
        text.extend_from_slice(&part[..count]);
        let Some(body) = memchr::memmem::find(&text, b"\r\n\r\n").map(|at| at + 4) else { continue };
        let head = String::from_utf8_lossy(&text[..body]).to_lowercase();
        let length =
            head.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next()?.parse().ok());
        if text.len() < body + length.unwrap_or(0) {
            continue;
        }
        let uid = memchr::memmem::find(&text, br#""uid":""#).map_or(&b""[..], |at| {
            let rest = &text[at + 7..];
            &rest[..memchr::memchr(b'"', rest).unwrap_or(0)]
        });
        let uid = String::from_utf8_lossy(uid);
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{uid}","allowed":true}}}}"#
        );
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        text.clear();
    }
}

/// Encodes bytes in base64 with padding (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let all =
            chunk.iter().fold(0_u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let sextet = all >> (18 - 6 * at) & 63;
            text.push(if at <= chunk.len() { ALPHABET[sextet as usize].into() } else { '=' });
        }
    }
    text
}

#[expect(clippy::print_stdout, reason = "a bench reports on stdout")]
fn line(text: &str) {
    println!("{text}");
}
