//! A small API server behind this one, with its own TLS, watches and tables: it is killed, slow, or reports
//! wrong resources (docs/api/extension-servers.md).

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tests::{Client, Options, PATIENCE, Server};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::fixture::Fixture;
use crate::hook::Hook;
use crate::kubectl::Kubectl;

const GROUP: &str = "small.example.com";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const THINGS: &str = "/apis/small.example.com/v1/namespaces/default/things";

/// Services that refer to the extension server.
const SERVICES: [&str; 2] = ["small", "other"];

/// Behaviours of the extension server, as values of `mode`.
const HONEST: u8 = 0;
const SLOW: u8 = 1;
const LYING: u8 = 2;
/// The server answers discovery requests slowly, and other requests immediately.
const RETICENT: u8 = 3;

/// The server answers with bytes that are not valid HTTP.
const RAW: u8 = 4;

/// The name of HTTP/2 in the TLS handshake.
const HTTP_2: &[u8] = b"h2";

/// Delay of a slow server: longer than the timeout of discovery requests.
const DELAY: Duration = Duration::from_secs(30);

/// The timeout of the server's requests for discovery and documents.
const TIMEOUT: Duration = Duration::from_secs(5);

type Body = BoxBody<Bytes, Infallible>;

/// An extension server; dropping it ends the server and its connections.
struct Extension {
    port: u16,
    certificate: String,
    mode: Arc<AtomicU8>,
    connections: Arc<AtomicUsize>,
    /// Number of delayed requests that have ended.
    ended: Arc<AtomicUsize>,
    tasks: JoinHandle<()>,
}

/// A delayed request; it ends when the response begins, or when the client disconnects.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

impl Extension {
    async fn start() -> Extension {
        Extension::speaking(&[]).await
    }

    /// Starts a server that offers these protocols in the TLS handshake.
    async fn speaking(protocols: &[&[u8]]) -> Extension {
        let key = KeyPair::generate().unwrap();
        let made = CertificateParams::new(SERVICES.map(|name| format!("{name}.default.svc")))
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![made.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mode = Arc::new(AtomicU8::new(HONEST));
        let shown = mode.clone();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let ended = Arc::new(AtomicUsize::new(0));
        let over = ended.clone();
        let tasks = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let (acceptor, mode, over) = (acceptor.clone(), shown.clone(), over.clone());
                open.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    if mode.load(Ordering::Relaxed) == RAW {
                        let _ = answer_raw(stream).await;
                        return;
                    }
                    let service =
                        service_fn(|request| answer(request, mode.load(Ordering::Relaxed), over.clone()));
                    // A client that disconnects does not fail the test.
                    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
                    let stream = TokioIo::new(stream);
                    if is_http2 {
                        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = server.serve_connection(stream, service).await;
                    } else {
                        let server = hyper::server::conn::http1::Builder::new();
                        let _ = server.serve_connection(stream, service).await;
                    }
                });
            }
        });
        Extension { port, certificate: made.pem(), mode, connections, ended, tasks }
    }

    /// Registers the server, and waits until it is available and in the discovery documents.
    async fn register(&self, client: &Client) {
        self.register_as(client, "v1", "small").await;
        until(client, "v1", "Passed").await;
        until_documented(client).await;
    }

    /// Registers the server for a version, behind a service of that name.
    async fn register_as(&self, client: &Client, version: &str, service: &str) {
        let spec = json!({"type": "ExternalName", "externalName": "localhost"});
        let object = json!({"metadata": {"name": service}, "spec": spec});
        assert_eq!(client.post("/api/v1/namespaces/default/services", &object).await.status, 201);
        let api_service = json!({"metadata": {"name": format!("{version}.{GROUP}")}, "spec": {
            "group": GROUP, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15,
            "caBundle": STANDARD.encode(&self.certificate),
            "service": {"namespace": "default", "name": service, "port": self.port},
        }});
        let made = client.post(API_SERVICES, &api_service).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
}

fn condition(api_service: &Value) -> &Value {
    &api_service["status"]["conditions"][0]
}

/// Waits until the condition of a version's APIService has a reason, and returns its message.
async fn until(client: &Client, version: &str, reason: &str) -> String {
    let has = |object: Option<&Value>| object.is_some_and(|object| condition(object)["reason"] == reason);
    let found = client.until(&format!("{API_SERVICES}/{version}.{GROUP}"), has).await;
    let found = found.unwrap_or_else(|| panic!("no condition with the reason {reason}"));
    condition(&found)["message"].as_str().unwrap_or_default().to_owned()
}

/// Waits until discovery has the resources of the version, and the OpenAPI index has its document.
async fn until_documented(client: &Client) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let index = client.get("/openapi/v3").await.json();
        if discovered(client).await.1 && index["paths"][format!("apis/{GROUP}/v1")].is_object() {
            return;
        }
        assert!(Instant::now() < deadline, "the documents do not have the group");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn thing(name: &str) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Thing",
           "metadata": {"name": name, "namespace": "default", "resourceVersion": "7"}, "spec": {"size": 3}})
}

fn full(value: &Value) -> Body {
    Full::new(Bytes::from(value.to_string())).boxed()
}

async fn answer(
    request: Request<Incoming>,
    mode: u8,
    ended: Arc<AtomicUsize>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path();
    if mode == SLOW || mode == RETICENT && (path == "/apis" || path.starts_with("/openapi")) {
        let _waiting = Waiting(ended);
        tokio::time::sleep(DELAY).await;
    }
    let query = request.uri().query().unwrap_or_default();
    let accept = request.headers().get("accept").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let version = format!("apis/{GROUP}/v1");
    let other_version = format!("apis/{GROUP}/v2");
    let mut code = 200;
    let body = match path.trim_start_matches('/') {
        document if document == version && mode == LYING => {
            full(&json!({"kind": "APIResourceList", "resources": {"no": "list"}, "groupVersion": 7}))
        }
        document if document == version || document == other_version => full(&json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": document.trim_start_matches("apis/"),
            "resources": [{"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing",
                           "shortNames": ["th"], "verbs": ["get", "list", "watch"]}],
        })),
        "openapi/v3" => full(&json!({"paths": {
            version.as_str(): {"serverRelativeURL": format!("/openapi/v3/{version}?hash=AB")}}})),
        "openapi/v2" => full(&json!({"swagger": "2.0",
            "paths": {format!("/{version}/things"): {"get": {"responses": {"200": {"description": "OK",
                "schema": {"$ref": "#/definitions/small.Thing"}}}}}, "/version/": {}},
            "definitions": {"small.Thing": {"type": "object", "properties": {
                "metadata": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}}},
                "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"type": "object", "description": "another"}}})),
        document if document == format!("openapi/v3/{version}") => {
            full(&json!({"openapi": "3.0.0", "info": {"title": "small", "version": "1"}, "paths": {}}))
        }
        _ if path.ends_with("/things") && query.contains("watch=") => {
            let line = |event: Value| Ok::<_, Infallible>(Frame::data(Bytes::from(format!("{event}\n"))));
            let begin = ["a", "b"].map(|name| line(json!({"type": "ADDED", "object": thing(name)})));
            BodyExt::boxed(StreamBody::new(stream::iter(begin).chain(stream::pending())))
        }
        _ if path.ends_with("/things") && accept.contains("as=Table") => full(&json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "7"},
            "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
                                  {"name": "Size", "type": "integer", "format": "", "description": "", "priority": 0}],
            "rows": [{"cells": ["a", 3], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                      "metadata": {"name": "a", "namespace": "default"}}}],
        })),
        _ if path.ends_with("/things") => {
            full(&json!({"kind": "ThingList", "apiVersion": format!("{GROUP}/v1"),
            "metadata": {"resourceVersion": "7"}, "items": [thing("a"), thing("b")]}))
        }
        _ if path.ends_with("/things/a") => full(&thing("a")),
        _ => {
            code = 404;
            full(
                &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
            )
        }
    };
    let response = Response::builder().status(code).header("content-type", "application/json");
    Ok(response.body(body).unwrap())
}

/// Writes the responses of a connection byte by byte. A path that ends with `headers` returns the head of the
/// request.
async fn answer_raw<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> std::io::Result<()> {
    let mut head = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        head.push(byte[0]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8_lossy(&std::mem::take(&mut head)).into_owned();
        let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let answer = match path.rsplit('/').next().unwrap_or_default() {
            "headers" => {
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}",
                    text.len()
                )
            }
            "switch" => {
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nbytes"
                    .to_owned()
            }
            "framing" => "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\
                          Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                .to_owned(),
            _ => {
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}".to_owned()
            }
        };
        stream.write_all(answer.as_bytes()).await?;
        stream.flush().await?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identity_headers_of_clients_and_framing_headers_of_extension_servers_are_not_forwarded() {
    let flags = [
        "requestheader-username-headers=X-Remote-User,X-Custom-User",
        "requestheader-client-ca-file=$dir/ca.crt",
    ];
    let ca = rcgen::generate_simple_self_signed(vec!["proxy".to_owned()]).unwrap().cert.pem();
    let server = Server::start(Options {
        naming: "kubernetes",
        flags: flags.map(|flag| format!("--{flag}")).to_vec(),
        files: vec![("ca.crt", ca)],
        ..Options::default()
    })
    .await;
    let client = server.client();
    let extension = Extension::start().await;
    extension.mode.store(RAW, Ordering::Relaxed);
    extension.register_as(client, "v1", "small").await;
    until(client, "v1", "Passed").await;

    // All spellings that a receiver may interpret as the name of an identity header.
    let claims = [
        ("X-Remote-User", "mallory"),
        ("X_Remote_User", "mallory"),
        ("x-remote_user", "mallory"),
        ("X.Remote.Group", "mallory"),
        ("X_Remote_Group", "mallory"),
        ("X-Remote-Extra_Scopes", "mallory"),
        ("x_remote_extra-a", "mallory"),
        ("X-Remote_Uid", "mallory"),
        ("Impersonate_User", "mallory"),
        ("X-Custom-User", "mallory"),
        ("X_Custom_User", "mallory"),
        ("X-Other", "harmless"),
    ];
    let seen = client.send("GET", &format!("{THINGS}/headers"), &claims, b"").await;
    let seen = seen.text().to_ascii_lowercase();
    assert!(!seen.contains("mallory"), "{seen}");
    assert!(seen.contains("x-other: harmless"), "{seen}");
    assert_eq!(seen.lines().filter(|line| line.starts_with("x-remote-user:")).count(), 1, "{seen}");

    // The client did not request another protocol.
    let switched = client.another().send("GET", &format!("{THINGS}/switch"), &[], b"").await;
    assert_eq!(switched.status, 502, "{}", switched.text());

    // The response body consists of the chunks; a contradicting length header is ignored.
    let framed = client.another().send("GET", &format!("{THINGS}/framing"), &[], b"").await;
    assert_eq!((framed.status, &*framed.text()), (200, "hello"));
    assert!(framed.header_all("content-length").is_empty(), "{:?}", framed.headers);
}

/// Returns the freshness of the version in aggregated discovery, and whether its resources are listed.
async fn discovered(client: &Client) -> (String, bool) {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let list = client.send("GET", "/apis", &[("accept", accept)], b"").await.json();
    let groups = list["items"].as_array().unwrap();
    let group = groups.iter().find(|group| group["metadata"]["name"] == GROUP).expect("the group is listed");
    let version = &group["versions"][0];
    (version["freshness"].as_str().unwrap_or_default().to_owned(), version["resources"].is_array())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_server_is_served_as_a_part_of_the_api() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let extension = Extension::start().await;
    extension.register(client).await;
    assert_eq!(discovered(client).await, ("Current".to_owned(), true));

    let mut watch = client.watch(&format!("{THINGS}?watch=1")).await;
    assert_eq!(watch.expect().await, ("ADDED".to_owned(), "a".to_owned(), "7".to_owned()));
    assert_eq!(watch.expect().await.1, "b");

    let index = client.get("/openapi/v3").await.json();
    let url = index["paths"][format!("apis/{GROUP}/v1")]["serverRelativeURL"]
        .as_str()
        .expect("the group is listed");
    assert_eq!(client.get(url).await.json()["info"]["title"], "small");
    assert!(index["paths"]["apis/apps/v1"].is_object());
    let swagger = client.get("/openapi/v2").await.json();
    let item = &swagger["paths"][format!("/apis/{GROUP}/v1/things")];
    assert_eq!(item["get"]["responses"]["200"]["schema"]["$ref"], "#/definitions/small.Thing");
    let renamed = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2";
    let thing = &swagger["definitions"]["small.Thing"]["properties"]["metadata"];
    assert_eq!(thing["$ref"], format!("#/definitions/{renamed}"));
    assert_eq!(swagger["definitions"][renamed]["description"], "another");
    let compact = [("accept", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")];
    assert_eq!(client.send("GET", "/openapi/v2", &compact, b"").await.status, 200);

    if let Some(kubectl) = Kubectl::find(&server).await {
        let shown = kubectl.run("get th", "").await;
        assert_eq!(shown.out, "NAME   SIZE\na      3\n", "{shown:?}");
        let shown = kubectl.run("get things.v1.small.example.com a -o jsonpath={.spec.size}", "").await;
        assert_eq!(shown.out, "3", "{shown:?}");
        let shown = kubectl.run("api-resources --api-group=small.example.com -o name", "").await;
        assert_eq!(shown.out, "things.small.example.com\n", "{shown:?}");
    }

    // After the extension server is killed, its watches end, its requests fail immediately, and other requests are not
    // affected.
    drop(extension);
    assert!(watch.next().await.is_none());
    let failed = client.get(THINGS).await;
    assert_eq!(failed.status, 503, "{}", failed.text());
    assert_eq!(client.get("/apis").await.status, 200);
    assert_eq!(client.get("/api/v1/namespaces").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_or_misbehaving_extension_server_affects_only_its_own_requests() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let extension = Extension::start().await;
    extension.register(client).await;

    extension.mode.store(LYING, Ordering::Relaxed);
    // The server omits invalid discovery data, and its documents stay valid.
    for path in ["/apis", &format!("/apis/{GROUP}"), "/apis/apps/v1"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    discovered(client).await;

    extension.mode.store(SLOW, Ordering::Relaxed);
    let stuck = {
        let client = client.another();
        tokio::spawn(async move { client.try_get(THINGS).await })
    };
    // A change of the APIService triggers a check, which gets no response.
    let patch = json!({"spec": {"versionPriority": 16}});
    let patched = client.patch(&format!("{API_SERVICES}/v1.{GROUP}"), "merge", &patch).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    let began = Instant::now();
    for path in ["/apis", "/api", "/api/v1/namespaces", "/apis/apps/v1/deployments"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    assert!(began.elapsed() < DELAY, "documents waited for a server that does not answer");
    let message = until(client, "v1", "FailedDiscoveryCheck").await;
    assert!(message.contains("deadline exceeded"), "{message}");
    assert_eq!(discovered(client).await.0, "Stale");
    let page = client.get("/metrics").await.text();
    let name = format!("name=\"v1.{GROUP}\"");
    for line in [
        format!("aggregator_unavailable_apiservice{{{name}}} 1"),
        format!("aggregator_unavailable_apiservice_total{{{name},reason=\"FailedDiscoveryCheck\"}}"),
        // Versions of this server itself count as available.
        "aggregator_unavailable_apiservice{name=\"v1.\"} 0".to_owned(),
        "aggregator_unavailable_apiservice{name=\"v1.apps\"} 0".to_owned(),
    ] {
        assert!(page.lines().any(|shown| shown.starts_with(&line)), "{line} is not in\n{page}");
    }
    stuck.abort();
    // A removed APIService no longer counts as unavailable.
    let removed = client.delete(&format!("{API_SERVICES}/v1.{GROUP}")).await;
    assert_eq!(removed.status, 200, "{}", removed.text());
    let line = format!("aggregator_unavailable_apiservice{{{name}}}");
    let deadline = Instant::now() + PATIENCE;
    while client.get("/metrics").await.text().contains(&line) {
        assert!(Instant::now() < deadline, "{line} is still in the metrics");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_server_is_listed_while_another_one_does_not_answer() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let (slow, honest) = (Extension::start().await, Extension::start().await);
    slow.mode.store(SLOW, Ordering::Relaxed);
    let began = Instant::now();
    slow.register_as(client, "v1", "small").await;
    // Wait until the check of the slow server has begun.
    while slow.connections.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    honest.register_as(client, "v2", "other").await;
    until(client, "v2", "Passed").await;
    let waiting = client.get(&format!("{API_SERVICES}/v1.{GROUP}")).await.json();
    // On a slow machine the check of the slow server may have ended.
    assert!(condition(&waiting).is_null() || began.elapsed() >= TIMEOUT, "{waiting}");

    // A change of the APIService during a check triggers another check afterwards.
    let patch = json!({"spec": {"versionPriority": 16}});
    let patched = client.patch(&format!("{API_SERVICES}/v1.{GROUP}"), "merge", &patch).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    slow.mode.store(HONEST, Ordering::Relaxed);
    until(client, "v1", "Passed").await;
    until_documented(client).await;
    assert_eq!(discovered(client).await.0, "Current");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_server_is_available_before_it_published_its_resources() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let extension = Extension::start().await;
    extension.mode.store(RETICENT, Ordering::Relaxed);
    let began = Instant::now();
    extension.register_as(client, "v1", "small").await;
    until(client, "v1", "Passed").await;
    let ended = extension.ended.load(Ordering::Relaxed);
    assert!(ended == 0 || began.elapsed() >= TIMEOUT, "{ended} delayed requests have ended");
    assert_eq!(client.get(THINGS).await.status, 200);
    assert_eq!(discovered(client).await, ("Stale".to_owned(), false));
    // After the next check with a valid response, the documents have the resources.
    extension.mode.store(HONEST, Ordering::Relaxed);
    let patch = json!({"spec": {"versionPriority": 16}});
    let patched = client.patch(&format!("{API_SERVICES}/v1.{GROUP}"), "merge", &patch).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    until_documented(client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxied_requests_share_connections_and_watches_do_not_block_them() {
    for (protocols, watches, connections_max) in [(&[][..], 8, 14), (&[HTTP_2][..], 250, 8)] {
        let server = Server::start_upstream().await;
        let client = server.client();
        let extension = Extension::speaking(protocols).await;
        extension.register(client).await;
        let before = extension.connections.load(Ordering::Relaxed);
        for _ in 0..100 {
            assert_eq!(client.get(THINGS).await.status, 200);
        }
        let mut open = Vec::new();
        for _ in 0..watches {
            let mut watch = client.watch(&format!("{THINGS}?watch=1")).await;
            assert_eq!(watch.expect().await.1, "a", "{protocols:?}");
            open.push(watch);
        }
        assert_eq!(client.get(THINGS).await.status, 200);
        // The availability checks use connections of their own.
        let made = extension.connections.load(Ordering::Relaxed) - before;
        assert!(made <= connections_max, "{made} connections for {watches} watches, {protocols:?}");
        // Idle connections end shortly after the server, and a request that finds a closed connection uses
        // another connection.
        drop(open);
        drop(extension);
        let deadline = Instant::now() + PATIENCE;
        while client.get(THINGS).await.status != 503 {
            assert!(Instant::now() < deadline, "the extension server still responds");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_service_whose_spec_no_longer_has_a_service_is_available_and_listed() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let name = format!("v1.{GROUP}");
    let spec = |service: Value| {
        json!({"group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
               "insecureSkipTLSVerify": !service.is_null(), "service": service})
    };
    let service = json!({"namespace": "default", "name": "none", "port": 443});
    let made = client.post(API_SERVICES, &json!({"metadata": {"name": name}, "spec": spec(service)})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    until(client, "v1", "ServiceNotFound").await;

    let path = format!("{API_SERVICES}/{name}");
    let mut object = client.get(&path).await.json();
    object["spec"] = spec(Value::Null);
    let put = client.put(&path, &object).await;
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(until(client, "v1", "Local").await, "Local APIServices are always available");
    let group = client.get(&format!("/apis/{GROUP}")).await;
    assert_eq!((group.status, &group.json()["versions"][0]["version"]), (200, &json!("v1")));
    assert_eq!(client.get(&format!("/apis/{GROUP}/v1")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_request_header_authorities_extension_servers_get_the_client_ca_of_this_server() {
    let server = Server::start_upstream().await;
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let map = server.client().until(path, |map| map.is_some()).await.unwrap();
    let own = std::fs::read_to_string(server.data_dir().join("pki/ca.crt")).unwrap();
    let bare = |pem: &str| pem.lines().map(str::trim).collect::<String>();
    assert_eq!(bare(map["data"]["client-ca-file"].as_str().unwrap()), bare(&own));
    assert_eq!(map["data"].as_object().unwrap().len(), 1, "{map}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_a_version_go_to_its_extension_server() {
    let fixture = Fixture::new("extended").await;
    let group = format!("{}.example.com", fixture.ns);
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/v1"), "resources": [
        {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get", "list"]},
    ]});
    let answer = move |request: Value| {
        let is_list = request["path"].as_str().is_some_and(|path| path.ends_with("/v1"));
        ready(if is_list { list.clone() } else { json!({"kind": "Thing", "asked": request}) })
    };
    let hook = Hook::start(answer).await;
    let services = format!("/api/v1/namespaces/{}/services", fixture.ns);
    let service =
        json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    assert_eq!(fixture.client.post(&services, &service).await.status, 201);
    let api_services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let path = format!("{api_services}/v1.{group}");
    let api_service = json!({
        "metadata": {"name": format!("v1.{group}")},
        "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "caBundle": hook.ca_bundle(),
            "service": {"namespace": fixture.ns, "name": "ext", "port": hook.port()},
        },
    });
    let made = fixture.client.post(api_services, &api_service).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let until = async |reason: &str| {
        let has = |object: Option<&Value>| {
            object.is_some_and(|object| object["status"]["conditions"][0]["reason"] == reason)
        };
        let found = fixture.client.until(&path, has).await;
        found.unwrap_or_else(|| panic!("no condition with the reason {reason}"))
    };
    // The certificate does not have the name of the service.
    let found = until("FailedDiscoveryCheck").await;
    let message = found["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains(&format!("not ext.{}.svc", fixture.ns)), "{message}");
    let things = format!("/apis/{group}/v1/namespaces/{}/things", fixture.ns);
    let refused = fixture.client.get(&things).await;
    assert_eq!((refused.status, refused.text().as_str()), (503, "service unavailable\n"));

    let patch = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    let patched = fixture.client.patch(&path, "merge", &patch).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    until("Passed").await;
    let forged = [("x-remote-user", "somebody"), ("x-remote-group", "system:masters")];
    let reply = fixture.client.send("GET", &format!("{things}/a?x=%20y"), &forged, b"").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let request = reply.json()["asked"].clone();
    assert_eq!(request["path"], format!("{things}/a?x=+y"));
    assert_eq!(request["headers"]["x-remote-user"], "cluster-admin");
    assert!(request["headers"].get("authorization").is_none(), "{request}");
    let groups = fixture.client.get("/apis").await.json();
    assert!(groups["groups"].as_array().unwrap().iter().any(|one| one["name"] == *group), "{groups}");
    assert_eq!(
        fixture.client.get(&format!("/apis/{group}")).await.json()["preferredVersion"]["version"],
        "v1"
    );

    // The built-in versions have their own APIServices. An absent extension server affects only its own
    // requests.
    let built_in = fixture.client.get(&format!("{api_services}/v1.apps")).await.json();
    assert_eq!(built_in["status"]["conditions"][0]["reason"], "Local");
    hook.end().await;
    let failed = fixture.client.get(&things).await;
    assert_eq!(failed.status, 503, "{}", failed.text());
    assert_eq!(fixture.client.get("/apis").await.status, 200);
    assert_eq!(fixture.client.delete(&path).await.status, 200);
    let deadline = Instant::now() + PATIENCE;
    while fixture.client.get(&things).await.status != 404 {
        assert!(Instant::now() < deadline, "the version is still served");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
