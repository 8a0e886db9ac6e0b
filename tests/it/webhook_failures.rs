//! Admission webhooks that do not respond, or respond incorrectly (docs/api/webhooks.md): each failure
//! affects only its own request. The tests also cover webhooks behind services, and the identity that this
//! server presents to them.

use std::future::ready;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::{Client, Options, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::server::TlsStream;

use crate::hook::Hook;

const CONFIGURATIONS: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
];

/// Seconds that the server waits for a webhook that never responds, and for each other webhook. The second limit is long
/// enough for a slow machine, so that the failures of the other webhooks are reported.
const SECONDS: [u32; 2] = [2, 30];

/// Creates a webhook configuration for creations of ConfigMaps in one namespace.
async fn configure(client: &Client, kind: usize, ns: &str, seconds: u32, to: Value) {
    let body = json!({"metadata": {"name": ns}, "webhooks": [{
        "name": "hook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
        "timeoutSeconds": seconds, "clientConfig": to,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}},
    }]});
    let made = client.post(CONFIGURATIONS[kind], &body).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

async fn namespace(client: &Client, name: &str) {
    let made = client.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

/// Starts a server without controllers, because controllers would also write into the namespaces.
async fn server(flags: &[&str], files: Vec<(&'static str, String)>) -> Server {
    let mut flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    flags.push("--controllers=".to_owned());
    Server::start(Options { flags, files, ..Options::default() }).await
}

/// Failures of a server that accepts connections.
#[derive(Clone, Copy, Debug)]
enum ServerFailure {
    Hangs,
    StreamsForEver,
    SlowHeaders,
    Closes,
    Megabytes,
    Says(&'static str, &'static str),
    Redirects,
    OtherUid,
    OtherKind,
    BadPatch,
    NoPatchType,
}

/// Reads a request and returns its body.
async fn read(stream: &mut TlsStream<TcpStream>) -> Option<Value> {
    let mut text = Vec::new();
    loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await.ok().filter(|count| *count > 0)?;
        text.extend_from_slice(&part[..count]);
        let Some(at) = text.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        if text.starts_with(b"GET") {
            return Some(Value::Null);
        }
        if let Ok(body) = serde_json::from_slice(&text[at + 4..]) {
            return Some(body);
        }
    }
}

/// Serves a connection with one of the failures. Writing to the stream fails if the client has disconnected.
async fn fail(failure: ServerFailure, mut stream: TlsStream<TcpStream>) {
    let Some(review) = read(&mut stream).await else { return };
    let answer = |code: &str, headers: &str, body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 {code}\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}content-length: \
             {length}\r\n\r\n{body}"
        )
    };
    let uid = review["request"]["uid"].as_str().unwrap_or_default();
    let response = |uid: &str, version: &str, more: &str| {
        format!(
            r#"{{"apiVersion":"{version}","kind":"AdmissionReview","response":{{"uid":"{uid}","allowed":true{more}}}}}"#
        )
    };
    let v1 = "admission.k8s.io/v1";
    let text = match failure {
        ServerFailure::Hangs => return tokio::time::sleep(Duration::from_secs(60)).await,
        ServerFailure::Closes => return,
        ServerFailure::StreamsForEver => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            while stream.write_all(b"1\r\n \r\n").await.is_ok() && stream.flush().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            return;
        }
        ServerFailure::SlowHeaders => {
            for byte in b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}" {
                if stream.write_all(&[*byte]).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            return;
        }
        ServerFailure::Megabytes => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
            while stream.write_all(&chunk).await.is_ok() {}
            return;
        }
        ServerFailure::Says(code, body) => answer(code, "", body),
        ServerFailure::Redirects => answer("307 Temporary Redirect", "location: /again\r\n", ""),
        ServerFailure::OtherUid => answer("200 OK", "", &response("other", v1, "")),
        ServerFailure::OtherKind => answer("200 OK", "", &response(uid, "admission.k8s.io/v1beta1", "")),
        ServerFailure::BadPatch => {
            let patch = STANDARD.encode("no patch");
            answer(
                "200 OK",
                "",
                &response(uid, v1, &format!(r#","patchType":"JSONPatch","patch":"{patch}""#)),
            )
        }
        ServerFailure::NoPatchType => {
            let patch = STANDARD.encode("[]");
            answer("200 OK", "", &response(uid, v1, &format!(r#","patch":"{patch}""#)))
        }
    };
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.flush().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// The message about a webhook that never responds.
const NEVER: &str = "context deadline exceeded";

/// The failures, the kind of configuration, and the message that the client gets.
const FAILURES: &[(ServerFailure, usize, &str)] = &[
    (ServerFailure::Hangs, 1, NEVER),
    (ServerFailure::StreamsForEver, 1, NEVER),
    (ServerFailure::SlowHeaders, 0, NEVER),
    (ServerFailure::Closes, 1, "EOF"),
    (ServerFailure::Megabytes, 0, "http: response body too large"),
    (
        ServerFailure::Says("500 Internal Server Error", "{}"),
        1,
        "an error on the server (\"unknown\") has prevented the request",
    ),
    (ServerFailure::Says("200 OK", "hello"), 1, "couldn't get version/kind; json parse error"),
    (ServerFailure::Says("200 OK", "{"), 0, "couldn't get version/kind; json parse error"),
    (ServerFailure::Says("200 OK", ""), 0, "0-length response with status code: 200"),
    (ServerFailure::Redirects, 1, "stopped after 10 redirects"),
    (ServerFailure::OtherUid, 0, "received invalid webhook response: expected response.uid="),
    (ServerFailure::OtherKind, 1, "unknown conversion"),
    (ServerFailure::BadPatch, 0, "received undecodable patch in webhook response"),
    (ServerFailure::NoPatchType, 0, "webhook returned response.patch but not response.patchType"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_webhook_affects_only_its_own_request() {
    let server = server(&[], Vec::new()).await;
    let client = server.client();
    let mut hooks = Vec::new();
    for (at, (failure, kind, expected)) in FAILURES.iter().enumerate() {
        let hook = Hook::raw("localhost", move |stream| fail(*failure, stream)).await;
        let to = json!({"url": hook.url("/review"), "caBundle": hook.ca_bundle()});
        hooks.push((hook, format!("way-{at}"), *kind, to, *expected));
    }
    // Two more failures: a certificate of an unknown authority, and a server that has ended.
    let (a, b) = (Hook::start(ready).await, Hook::start(ready).await);
    let url = a.url("/review");
    hooks.push((a, "authority".to_owned(), 1, json!({"url": url, "caBundle": b.ca_bundle()}), "x509: "));
    // The socket does not listen, and as long as it is bound, no other process can take its port.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("https://127.0.0.1:{}/review", closed.local_addr().unwrap().port());
    let to = json!({"url": url, "caBundle": b.ca_bundle()});
    hooks.push((b, "gone".to_owned(), 0, to, "connect: connection refused"));
    for (_, ns, kind, to, expected) in &hooks {
        namespace(client, ns).await;
        let seconds = SECONDS[usize::from(*expected != NEVER)];
        configure(client, *kind, ns, seconds, to.clone()).await;
    }
    namespace(client, "quiet").await;

    let map = json!({"metadata": {"name": "m"}});
    let failing = hooks.iter().map(|(_, ns, _, _, expected)| {
        let (client, map) = (client.another(), &map);
        async move {
            let reply = client.post(&format!("/api/v1/namespaces/{ns}/configmaps"), map).await;
            let message = reply.json()["message"].as_str().unwrap_or_default().to_owned();
            let is_right = reply.status == 500 && message.contains(expected);
            (!is_right).then(|| format!("{ns}: want {expected:?}, got {} {message}", reply.status))
        }
    });
    // Meanwhile other clients write and read.
    let others = async {
        for at in 0..50 {
            let body = json!({"metadata": {"name": format!("m{at}")}});
            let made = client.another().post("/api/v1/namespaces/quiet/configmaps", &body).await;
            assert_eq!(made.status, 201, "{}", made.text());
        }
    };
    let (wrong, ()) = tokio::join!(join_all(failing), others);
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // With the other failure policy the same writes are stored.
    for (_, ns, kind, ..) in &hooks {
        let path = format!("{}/{ns}", CONFIGURATIONS[*kind]);
        let ignore = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
        assert_eq!(client.patch(&path, "json", &ignore).await.status, 200);
    }
    let ignoring = hooks.iter().map(|(_, ns, ..)| {
        let (client, map) = (client.another(), &map);
        async move { (ns, client.post(&format!("/api/v1/namespaces/{ns}/configmaps"), map).await.status) }
    });
    for (ns, code) in join_all(ignoring).await {
        assert_eq!(code, 201, "{ns}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_behind_a_service_receives_the_user_of_the_request() {
    let inject = |review: Value| {
        let patch = json!([
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "proxy", "image": "proxy:1"}},
            {"op": "add", "path": "/metadata/labels", "value": {"injected": "true"}},
        ]);
        ready(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch",
            "patch": STANDARD.encode(patch.to_string()),
        }}))
    };
    let hook = Hook::named("injector.hooks.svc", inject).await;
    // The port is part of the name unless it is the default port of HTTPS.
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "users": [
        {"name": format!("*.hooks.svc:{}", hook.port()), "user": {"token": "for-hooks"}},
        {"name": "*.hooks.svc", "user": {"token": "for-another-port"}},
        {"name": "*", "user": {"token": "for-others"}},
    ]});
    let directory = tests::TempDir::new();
    let file = directory.path().join("hooks.json");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let plugin = |name: &str| {
        json!({"name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": file.display().to_string(),
        }})
    };
    let admission = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [plugin("MutatingAdmissionWebhook")],
    });
    let flags =
        ["--admission-control-config-file=$dir/admission.json", "--disable-admission-plugins=ServiceAccount"];
    let server = server(&flags, vec![("admission.json", admission.to_string())]).await;
    let client = server.client();
    for ns in ["hooks", "apps"] {
        namespace(client, ns).await;
    }
    let service = json!({"metadata": {"name": "injector"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let made = client.post("/api/v1/namespaces/hooks/services", &service).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let to = json!({"caBundle": hook.ca_bundle(), "service": {
        "namespace": "hooks", "name": "injector", "path": "/inject", "port": hook.port(),
    }});
    let body = json!({"metadata": {"name": "injector"}, "webhooks": [{
        "name": "injector.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": to,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "apps"}},
        "objectSelector": {"matchExpressions": [{"key": "inject", "operator": "NotIn", "values": ["no"]}]},
    }]});
    let made = client.post(CONFIGURATIONS[0], &body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let pod = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "c", "image": "a:1"}]}});
    let pods = "/api/v1/namespaces/apps/pods";
    let made = client.post(pods, &pod("a", json!({}))).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let containers = made.json()["spec"]["containers"].clone();
    // The server sets defaults in the added container.
    assert_eq!(containers[1]["name"], "proxy");
    assert_eq!(containers[1]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(made.json()["metadata"]["labels"]["injected"], "true");
    let made = client.post(pods, &pod("b", json!({"inject": "no"}))).await;
    assert_eq!(made.json()["spec"]["containers"].as_array().unwrap().len(), 1, "{}", made.text());
    assert_eq!(hook.received().len(), 1);
    assert_eq!(hook.authorizations(), ["Bearer for-hooks"]);
}
