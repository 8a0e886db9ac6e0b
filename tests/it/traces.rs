//! End-to-end tests of traces (docs/api/operations.md#traces). An administrator begins a trace. The spans of the
//! trace arrive at a collector of the OpenTelemetry protocol, and the trace continues in the webhooks that the server
//! calls.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use serde_json::json;
use tests::{Options, Server};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::hook::Hook;
use crate::support::until_root_certificates;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A received span: the id of the trace, the id of the span, the id of the parent, and the name.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
}

/// Returns the length-delimited fields of a protobuf message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = bytes.split_first().expect("the number is complete");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let skipped = match key & 7 {
            0 => {
                varint(&mut bytes);
                0
            }
            1 => 8,
            2 => {
                let length = varint(&mut bytes) as usize;
                let (field, rest) = bytes.split_at(length);
                found.push((key >> 3, field));
                bytes = rest;
                0
            }
            5 => 4,
            other => panic!("wire type {other}"),
        };
        bytes = &bytes[skipped..];
    }
    found
}

/// Returns the spans of a call.
fn spans(message: &[u8]) -> Vec<Span> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let below = |messages: Vec<&[u8]>, number: u64| -> Vec<Vec<u8>> {
        let all = messages.into_iter().flat_map(fields);
        all.filter(|(field, _)| *field == number).map(|(_, bytes)| bytes.to_vec()).collect()
    };
    let resources = below(vec![message], 1);
    let scopes = below(resources.iter().map(Vec::as_slice).collect(), 2);
    let spans = below(scopes.iter().map(Vec::as_slice).collect(), 2);
    let read = |span: &Vec<u8>| {
        let parts: BTreeMap<u64, &[u8]> = fields(span).into_iter().collect();
        let part = |number: u64| hex(parts.get(&number).copied().unwrap_or_default());
        let name = String::from_utf8_lossy(parts.get(&5).copied().unwrap_or_default()).into_owned();
        Span { trace: part(1), id: part(2), parent: part(4), name }
    };
    spans.iter().map(read).collect()
}

/// Starts a collector, and returns its port and the received spans.
async fn collector() -> (u16, Arc<Mutex<Vec<Span>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let collected = Arc::new(Mutex::new(Vec::new()));
    let seen = collected.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = seen.clone();
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let seen = seen.clone();
                async move {
                    assert_eq!(
                        request.uri().path(),
                        "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
                    );
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    seen.lock().extend(spans(&body[5..]));
                    let answer = http::Response::builder()
                        .header("content-type", "application/grpc")
                        .header("grpc-status", "0");
                    Ok::<_, Infallible>(answer.body(Full::new(Bytes::new())).unwrap())
                }
            });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    (port, collected)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_continues_through_the_server_to_webhooks_and_reaches_the_collector() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const ABOVE: &str = "b7ad6b7169203331";
    const OTHER: &str = "11111111111111111111111111111111";
    let (port, collected) = collector().await;
    let heads = Arc::new(Mutex::new(Vec::new()));
    let heard = heads.clone();
    let hook = Hook::raw("localhost", move |stream| {
        let heard = heard.clone();
        async move {
            let mut stream = BufReader::new(stream);
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") {
                let begin = head.len();
                if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                    return;
                }
                let line = head[begin..].to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            let _ = stream.read_exact(&mut body).await;
            heard.lock().push(head.to_ascii_lowercase());
            let _ = stream
                .write_all(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .await;
            let _ = stream.shutdown().await;
        }
    })
    .await;
    let config = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: 127.0.0.1:{port}\n\
         samplingRatePerMillion: 0\n"
    );
    let mut server = Server::start(Options {
        flags: ["--tracing-config-file=$dir/tracing", "--token-auth-file=$dir/tokens"]
            .map(str::to_owned)
            .to_vec(),
        files: vec![("tracing", config), ("tokens", "joe-token,joe,1\n".to_owned())],
        ..Options::default()
    })
    .await;
    let client = server.client();
    let webhook = json!({"metadata": {"name": "traced"}, "webhooks": [{"name": "traced.example.com",
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
        "clientConfig": {"url": hook.url("/"), "caBundle": hook.ca_bundle()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}]}]});
    until_root_certificates(client).await;
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(client.post(path, &webhook).await.status, 201);
    let traced = format!("00-{TRACE}-{ABOVE}-01");
    let mut made = 0;
    while heads.lock().is_empty() {
        made += 1;
        let map = json!({"metadata": {"name": format!("m{made}")}}).to_string();
        let headers = [("traceparent", traced.as_str()), ("content-type", "application/json")];
        assert_eq!(client.send("POST", MAPS, &headers, map.as_bytes()).await.status, 201);
    }
    // Users who are not administrators cannot begin a trace.
    let other = format!("00-{OTHER}-{ABOVE}-01");
    let joe = client.with_token("joe-token");
    assert_eq!(joe.send("GET", "/version", &[("traceparent", &other)], b"").await.status, 200);
    // At its end the server sends all queued spans.
    assert_eq!(server.terminate(), Some(0));
    let collected = collected.lock();
    assert!(collected.iter().all(|span| span.trace == TRACE), "{collected:?}");
    let roots: Vec<&Span> = collected.iter().filter(|span| span.parent == ABOVE).collect();
    assert_eq!(roots.len(), made, "{collected:?}");
    for root in &roots {
        let below = collected.iter().filter(|span| span.parent == root.id).count();
        assert!(below >= 3, "{below} stages of {root:?} in {collected:?}");
    }
    let heads = heads.lock();
    let begin = format!("\r\ntraceparent: 00-{TRACE}-");
    let after = heads[0].split_once(&begin).unwrap_or_else(|| panic!("{}", heads[0])).1;
    assert!(collected.iter().any(|span| after.starts_with(&span.id)), "{after} is not in {collected:?}");
}
