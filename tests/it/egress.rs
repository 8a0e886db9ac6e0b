//! Connections to other servers through a proxy of their network (docs/api/egress.md): each protocol and
//! transport, the connections that use the proxy, and proxies that refuse.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivateKeyDer;
use serde_json::json;
use tests::Server;
use tests::server::{Options, TempDir};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::agent::{Agent, Keys};
use crate::etcd::cluster::Etcd;
use crate::hook::Hook;
use crate::nodes::{PODS, message, node, pod};
use crate::support::until_root_certificates;

/// The protocol and transport of a proxy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    ConnectByTcp,
    ConnectByTls,
    ConnectByUnix,
    GrpcByUnix,
}

/// A proxy, which redirects every host to this machine, except for `refused`.
struct Proxy {
    kind: Kind,
    dir: TempDir,
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Proxy {
    async fn start(kind: Kind) -> Proxy {
        let dir = TempDir::new();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut port = 0;
        let serve = {
            let seen = seen.clone();
            move |stream: Box<dyn Stream>| {
                let seen = seen.clone();
                tokio::spawn(async move {
                    match kind {
                        Kind::GrpcByUnix => konnectivity(stream, seen).await,
                        _ => connect(stream, &seen).await,
                    }
                });
            }
        };
        match kind {
            Kind::ConnectByUnix | Kind::GrpcByUnix => {
                let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
                tokio::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        serve(Box::new(stream));
                    }
                });
            }
            Kind::ConnectByTcp | Kind::ConnectByTls => {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                port = listener.local_addr().unwrap().port();
                let acceptor = (kind == Kind::ConnectByTls).then(|| acceptor(&dir));
                tokio::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        match &acceptor {
                            None => serve(Box::new(stream)),
                            Some(acceptor) => {
                                if let Ok(stream) = acceptor.accept(stream).await {
                                    serve(Box::new(stream));
                                }
                            }
                        }
                    }
                });
            }
        }
        Proxy { kind, dir, port, seen }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns an egress configuration that reaches these networks through the proxy.
    fn configuration(&self, networks: &[&str]) -> String {
        let protocol = if self.kind == Kind::GrpcByUnix { "GRPC" } else { "HTTPConnect" };
        let port = self.port;
        let transport = match self.kind {
            Kind::ConnectByUnix | Kind::GrpcByUnix => json!({"uds": {"udsName": self.file("socket")}}),
            Kind::ConnectByTcp => json!({"tcp": {"url": format!("http://127.0.0.1:{port}")}}),
            Kind::ConnectByTls => json!({"tcp": {"url": format!("https://127.0.0.1:{port}"), "tlsConfig": {
                "caBundle": self.file("ca.crt"),
                "clientCert": self.file("client.crt"),
                "clientKey": self.file("client.key"),
            }}}),
        };
        let selection = |network: &&str| json!({"name": network, "connection": {"proxyProtocol": protocol, "transport": transport}});
        let selections: Vec<_> = networks.iter().map(selection).collect();
        json!({"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
            "egressSelections": selections})
        .to_string()
    }

    /// Returns the targets that clients requested.
    fn take_targets(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock())
    }
}

/// Creates keys in `dir`; clients must have the client key from there.
fn acceptor(dir: &TempDir) -> TlsAcceptor {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let signed = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &issuer).unwrap(), key)
    };
    let (client, client_key) = signed("apiserver");
    for (name, pem) in [
        ("ca.crt", authority.pem()),
        ("client.crt", client.pem()),
        ("client.key", client_key.serialize_pem()),
    ] {
        std::fs::write(dir.path().join(name), pem).unwrap();
    }
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let (certificate, key) = signed("127.0.0.1");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Connects to a requested target.
async fn reach(target: &str, seen: &Mutex<Vec<String>>) -> Result<TcpStream, String> {
    seen.lock().push(target.to_owned());
    let (host, port) = target.rsplit_once(':').unwrap();
    if host == "refused.invalid" {
        return Err("not this one".to_owned());
    }
    TcpStream::connect(("127.0.0.1", port.parse().unwrap())).await.map_err(|error| error.to_string())
}

/// Serves HTTP `CONNECT`.
async fn connect(mut stream: Box<dyn Stream>, seen: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap();
    assert_eq!(head, format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"));
    match reach(target, seen).await {
        Ok(mut other) => {
            stream.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n").await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut other).await;
        }
        Err(_) => {
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await;
        }
    }
}

/// Serves the packets of a konnectivity server, with one connection in each call.
async fn konnectivity(stream: Box<dyn Stream>, seen: Arc<Mutex<Vec<String>>>) {
    let service = hyper::service::service_fn(move |request: http::Request<Incoming>| {
        let seen = seen.clone();
        async move {
            assert_eq!(request.uri().path(), "/ProxyService/Proxy");
            assert_eq!(request.headers()["content-type"], "application/grpc");
            let (answers, waiting) = mpsc::channel::<Bytes>(4);
            tokio::spawn(carry(request.into_body(), answers, seen));
            let frames = futures_util::stream::unfold(waiting, |mut waiting| async move {
                let packet = waiting.recv().await?;
                Some((Ok::<_, std::convert::Infallible>(Frame::data(packet)), waiting))
            });
            let response = http::Response::builder().header("content-type", "application/grpc");
            Ok::<_, std::convert::Infallible>(response.body(StreamBody::new(frames.boxed())).unwrap())
        }
    });
    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

/// The id of the connection.
const CONNECTION: u64 = 77;

async fn carry(mut body: Incoming, answers: mpsc::Sender<Bytes>, seen: Arc<Mutex<Vec<String>>>) {
    let mut gathered = BytesMut::new();
    let mut other: Option<tokio::net::tcp::OwnedWriteHalf> = None;
    while let Some(Ok(frame)) = body.frame().await {
        gathered.extend_from_slice(frame.data_ref().unwrap());
        while gathered.len() >= 5 {
            let len = u32::from_be_bytes(gathered[1..5].try_into().unwrap()) as usize;
            if gathered.len() < 5 + len {
                break;
            }
            let packet = fields(&gathered.split_to(5 + len)[5..]);
            let number = |field: u64| packet.get(&field).map_or(0, |value| value.0);
            let inner = |field: u64| fields(&packet[&field].1);
            match number(1) {
                0 => {
                    let dial = inner(2);
                    assert_eq!(dial[&1].1, b"tcp");
                    let reached = reach(std::str::from_utf8(&dial[&2].1).unwrap(), &seen).await;
                    let error = reached.as_ref().err().cloned().unwrap_or_default();
                    let mut dialed = Vec::new();
                    put_bytes(&mut dialed, 1, error.as_bytes());
                    put_number(&mut dialed, 2, CONNECTION);
                    put_number(&mut dialed, 3, dial[&3].0);
                    answers.send(framed(1, 3, &dialed)).await.unwrap();
                    let Ok(stream) = reached else { return };
                    let (mut read, write) = stream.into_split();
                    other = Some(write);
                    let answers = answers.clone();
                    tokio::spawn(async move {
                        let mut buffer = vec![0; 16 * 1024];
                        while let Ok(read @ 1..) = read.read(&mut buffer).await {
                            let mut data = Vec::new();
                            put_number(&mut data, 1, CONNECTION);
                            put_bytes(&mut data, 3, &buffer[..read]);
                            if answers.send(framed(4, 4, &data)).await.is_err() {
                                return;
                            }
                        }
                        let mut closed = Vec::new();
                        put_number(&mut closed, 2, CONNECTION);
                        let _ = answers.send(framed(3, 6, &closed)).await;
                    });
                }
                4 => {
                    let data = inner(4);
                    assert_eq!(data[&1].0, CONNECTION);
                    if other.as_mut().unwrap().write_all(&data[&3].1).await.is_err() {
                        return;
                    }
                }
                2 => other = None,
                kind => panic!("a packet of kind {kind}"),
            }
        }
    }
}

/// Returns the fields of a protobuf message: numbers and texts.
fn fields(mut message: &[u8]) -> HashMap<u64, (u64, Vec<u8>)> {
    fn number(message: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = message[0];
            *message = &message[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = HashMap::new();
    while !message.is_empty() {
        let tag = number(&mut message);
        let value = number(&mut message);
        let mut text = Vec::new();
        if tag & 7 == 2 {
            text = message[..value as usize].to_vec();
            message = &message[value as usize..];
        }
        found.insert(tag >> 3, (value, text));
    }
    found
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_number(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Returns a packet of a kind with one payload, as a gRPC message.
fn framed(kind: u64, field: u64, payload: &[u8]) -> Bytes {
    let mut packet = Vec::new();
    put_number(&mut packet, 1, kind);
    put_bytes(&mut packet, field, payload);
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(packet.len() as u32);
    message.put_slice(&packet);
    message.freeze()
}

/// Starts a server of plain HTTP that sends a long text on each connection.
async fn plain() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let read = stream.read(&mut request).await.unwrap();
                assert!(request[..read].starts_with(b"GET /x HTTP/1.1\r\n"));
                let body = "0123456789".repeat(100_000);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
            });
        }
    });
    port
}

/// Starts a server that knows the keys of agents and reaches these networks through the proxy.
async fn server(keys: &Keys, proxy: &Proxy, networks: &[&str]) -> Server {
    let files = vec![
        ("agent-ca.crt", keys.authority.clone()),
        ("client.crt", keys.client_certificate.clone()),
        ("client.key", keys.client_key.clone()),
        ("egress.yaml", proxy.configuration(networks)),
    ];
    let flags = [
        "--kubelet-certificate-authority=$dir/agent-ca.crt",
        "--kubelet-client-certificate=$dir/client.crt",
        "--kubelet-client-key=$dir/client.key",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        "--egress-selector-config-file=$dir/egress.yaml",
    ];
    let flags = flags.map(str::to_owned).to_vec();
    Server::start(Options { flags, files, ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_pods_and_services_are_reached_through_the_cluster_egress_proxy() {
    for kind in [Kind::ConnectByTcp, Kind::ConnectByTls, Kind::ConnectByUnix, Kind::GrpcByUnix] {
        let (keys, proxy) = (Keys::new(), Proxy::start(kind).await);
        let agent = Agent::start(&keys).await;
        let server = server(&keys, &proxy, &["cluster"]).await;
        let client = server.client();
        let agent_port = agent.address.port();
        node(client, "n", agent_port).await;
        pod(client, "p", "n", &["c"]).await;
        let reply = client.get(&format!("{PODS}/p/log")).await;
        assert_eq!(
            (reply.status, reply.text()),
            (200, "/containerLogs/default/p/c\n".to_owned()),
            "{kind:?}"
        );
        assert_eq!(proxy.take_targets(), [format!("127.0.0.1:{agent_port}")], "{kind:?}");

        // This address is reachable only through the proxy.
        let port = plain().await;
        let status = json!({"status": {"podIP": "192.0.2.7", "podIPs": [{"ip": "192.0.2.7"}]}});
        assert_eq!(client.patch(&format!("{PODS}/p/status"), "merge", &status).await.status, 200);
        let reply = client.get(&format!("{PODS}/p:{port}/proxy/x")).await;
        assert_eq!((reply.status, reply.text().len()), (200, 1_000_000), "{kind:?}");
        assert_eq!(proxy.take_targets(), [format!("192.0.2.7:{port}")], "{kind:?}");

        // When the client disconnects, a followed log ends at the agent.
        let response = client.another().open("GET", &format!("{PODS}/p/log?follow=true"), &[], b"").await;
        let mut body = response.into_body();
        body.frame().await.unwrap().unwrap();
        let open = || agent.seen.open.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(open(), 1);
        drop(body);
        crate::nodes::until("the agent sees that the client no longer follows the log", || open() == 0).await;

        let refused = json!({"metadata": {"name": "far"}, "status": {
            "addresses": [{"type": "Hostname", "address": "refused.invalid"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}});
        assert_eq!(client.post("/api/v1/nodes", &refused).await.status, 201);
        pod(client, "q", "far", &["c"]).await;
        let (code, why) = message(client, &format!("{PODS}/q/log")).await;
        let said = match kind {
            Kind::GrpcByUnix => "not this one".to_owned(),
            _ => {
                let at = match kind {
                    Kind::ConnectByUnix => proxy.file("socket").display().to_string(),
                    _ => format!("127.0.0.1:{}", proxy.port),
                };
                format!("proxy error from {at} while dialing refused.invalid:1, code 403: 403 Forbidden")
            }
        };
        let want = format!("Get \"https://refused.invalid:1/containerLogs/default/q/c\": {said}");
        assert_eq!((code, why), (500, want), "{kind:?}");
        let metrics = client.get("/metrics").await.text();
        let (protocol, transport) = match kind {
            Kind::ConnectByTcp | Kind::ConnectByTls => ("http_connect", "tcp"),
            Kind::ConnectByUnix => ("http_connect", "uds"),
            Kind::GrpcByUnix => ("grpc", "uds"),
        };
        let counted = format!(
            "apiserver_egress_dialer_dial_failure_count{{protocol=\"{protocol}\",transport=\"{transport}\",stage=\"proxy\"}} 1"
        );
        assert!(metrics.contains(&counted), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_with_a_url_are_reached_through_the_control_plane_egress_proxy() {
    let hook = Hook::named("hook.invalid", |review| async move {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": review["request"]["uid"], "allowed": true, "warnings": ["seen"]}})
    })
    .await;
    let (keys, proxy) = (Keys::new(), Proxy::start(Kind::ConnectByUnix).await);
    let server = server(&keys, &proxy, &["controlplane"]).await;
    let client = server.client();
    let url = format!("https://hook.invalid:{}/", hook.port());
    let configuration = json!({"metadata": {"name": "w"}, "webhooks": [{
        "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
        "clientConfig": {"url": url, "caBundle": hook.ca_bundle()},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]}]});
    until_root_certificates(client).await;
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(client.post(path, &configuration).await.status, 201);
    let maps = "/api/v1/namespaces/default/configmaps";
    let made = client.post(maps, &json!({"metadata": {"name": "m"}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.header_all("warning"), ["299 - \"seen\""]);
    assert_eq!(proxy.take_targets(), [format!("hook.invalid:{}", hook.port())]);
    // Without the proxy the node is unreachable: there is no direct connection.
    drop(proxy);
    hook.end().await;
    let refused = client.post(maps, &json!({"metadata": {"name": "o"}})).await;
    assert_eq!(refused.status, 500, "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_members_are_reached_through_the_etcd_egress_proxy() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let proxy = Proxy::start(Kind::ConnectByUnix).await;
    let mut options = etcd.options(&["--egress-selector-config-file=$dir/egress.yaml"]);
    options.files.push(("egress.yaml", proxy.configuration(&["etcd"])));
    let server = Server::start(options).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let made = server.client().post(maps, &json!({"metadata": {"name": "m"}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(server.client().get(&format!("{maps}/m")).await.status, 200);
    let seen = proxy.take_targets();
    let urls = etcd.urls();
    assert!(
        !seen.is_empty() && seen.iter().all(|target| urls == format!("http://{target}")),
        "{seen:?} {urls}"
    );
}
