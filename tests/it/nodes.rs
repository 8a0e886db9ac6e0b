//! Connections to nodes (docs/api/nodes.md), with the node agent of these tests: logs, commands, forwarded ports and
//! proxies.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use rustls::ServerConfig;
use serde_json::{Value, json};
use tests::server::Options;
use tests::{Client, PATIENCE, Server};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::agent::{Agent, Keys};

pub const PODS: &str = "/api/v1/namespaces/default/pods";

/// Starts a server that has credentials for agents.
async fn server(keys: &Keys) -> Server {
    let files = vec![
        ("agent-ca.crt", keys.authority.clone()),
        ("client.crt", keys.client_certificate.clone()),
        ("client.key", keys.client_key.clone()),
    ];
    let flags = [
        "--kubelet-certificate-authority=$dir/agent-ca.crt",
        "--kubelet-client-certificate=$dir/client.crt",
        "--kubelet-client-key=$dir/client.key",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
    ];
    let flags = flags.map(str::to_owned).to_vec();
    Server::start(Options { flags, files, ..Options::default() }).await
}

/// Creates a node whose agent listens on a port of this machine.
pub async fn node(client: &Client, name: &str, port: u16) {
    let node = json!({"metadata": {"name": name}, "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    let made = client.post("/api/v1/nodes", &node).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

/// Creates a running pod on a node.
pub async fn pod(client: &Client, name: &str, node: &str, containers: &[&str]) {
    let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name, "image": "i"})).collect();
    let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": containers}});
    let made = client.post(PODS, &pod).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let running = json!({"status": {"phase": "Running"}});
    assert_eq!(client.patch(&format!("{PODS}/{name}/status"), "merge", &running).await.status, 200);
}

/// Starts a server with an agent, and creates a pod `p` on its node `n`.
pub async fn cluster() -> (Server, Agent, Keys) {
    let keys = Keys::new();
    let agent = Agent::start(&keys).await;
    let server = server(&keys).await;
    node(server.client(), "n", agent.address.port()).await;
    pod(server.client(), "p", "n", &["c"]).await;
    (server, agent, keys)
}

pub async fn message(client: &Client, path: &str) -> (u16, String) {
    let reply = client.get(path).await;
    (reply.status, reply.json()["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_logs_are_the_answer_of_the_node_agent() {
    let (server, agent, _keys) = cluster().await;
    let client = server.client();
    pod(client, "many", "n", &["absent", "refused", "broken", "moved"]).await;
    let upstream_path = "/containerLogs/default/p/c";
    for (query, want) in [
        ("", upstream_path.to_owned()),
        ("?container=c", upstream_path.to_owned()),
        (
            "?tailLines=5&timestamps=true&previous=1&limitBytes=100&sinceSeconds=7",
            format!(
                "{upstream_path}?limitBytes=100&previous=true&sinceSeconds=7&tailLines=5&timestamps=true"
            ),
        ),
        ("?sinceTime=2020-01-02T03:04:05Z", format!("{upstream_path}?sinceTime=2020-01-02T03%3A04%3A05Z")),
    ] {
        let reply = client.get(&format!("{PODS}/p/log{query}")).await;
        assert_eq!((reply.status, reply.text()), (200, format!("{want}\n")), "{query}");
        assert_eq!(reply.header_all("content-type"), ["text/plain"]);
    }
    let location = "https://192.0.2.1/";
    for (path, code, want) in [
        (
            "many/log?container=absent",
            404,
            "the server could not find the requested resource ( pods/log many)".to_owned(),
        ),
        ("many/log?container=refused", 400, "container is waiting to start".to_owned()),
        ("many/log?container=broken", 500, "Internal error occurred: the disk is gone".to_owned()),
        ("many/log?container=moved", 500, format!("Get \"{location}\": redirects forbidden")),
        (
            "p/log?stream=Stdout",
            422,
            "PodLogOptions \"p\" is invalid: stream: Forbidden: may not be specified".to_owned(),
        ),
        (
            "p/log?sinceTime=2020-01-02T03:04:05Z&sinceSeconds=7",
            422,
            "PodLogOptions \"p\" is invalid: []: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
                .to_owned(),
        ),
        (
            "p/log?sinceTime=then",
            400,
            "parsing time \"then\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"then\" as \"2006\""
                .to_owned(),
        ),
    ] {
        assert_eq!(message(client, &format!("{PODS}/{path}")).await, (code, want), "{path}");
    }
    // A followed log continues until the client disconnects, which the agent notices.
    let response = client.another().open("GET", &format!("{PODS}/p/log?follow=true"), &[], b"").await;
    let mut body = response.into_body();
    let mut heard = String::new();
    while !heard.contains("line 3") {
        let frame = body.frame().await.unwrap().unwrap();
        heard.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    assert!(heard.starts_with(&format!("{upstream_path}?follow=true\nline 0\n")), "{heard}");
    assert_eq!(agent.seen.open.load(SeqCst), 1);
    drop(body);
    until("the agent sees that the log is not followed any more", || agent.seen.open.load(SeqCst) == 0).await;
    // If the agent ends, the response is aborted.
    let response = client.another().open("GET", &format!("{PODS}/p/log?follow=true"), &[], b"").await;
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    agent.kill();
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            break;
        }
    }
    let (code, why) = message(client, &format!("{PODS}/p/log")).await;
    let port = agent.address.port();
    let dial = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!((code, why), (500, format!("Get \"https://127.0.0.1:{port}{upstream_path}\": {dial}")));
}

pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Opens a port of this machine that sends all received bytes back.
pub async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_forward_requests_and_rewrite_links() {
    let (server, _agent, _keys) = cluster().await;
    let client = server.client();
    let proxy = "/api/v1/nodes/n/proxy";
    for (method, path, body) in [
        ("GET", "/some/path?b=2&a=%20x", ""),
        ("POST", "/some/path/", "a body"),
        ("PUT", "/x", "a body"),
        ("PATCH", "/x", "{}"),
        ("DELETE", "/x", ""),
        ("OPTIONS", "/x", ""),
        ("POST", "", ""),
    ] {
        let headers =
            [("connection", "x-own"), ("x-own", "1"), ("x-kept", "2"), ("x-forwarded-for", "192.0.2.7")];
        let reply = client.send(method, &format!("{proxy}{path}"), &headers, body.as_bytes()).await;
        assert_eq!(reply.status, 200, "{method} {path} {}", reply.text());
        assert!(reply.header_all("access-control-allow-origin").is_empty());
        let heard = reply.json();
        let want = if path.is_empty() { "/" } else { path };
        assert_eq!(
            (&heard["method"], &heard["url"], &heard["body"]),
            (&method.into(), &want.into(), &body.into())
        );
        let headers = &heard["headers"];
        assert_eq!((&headers["x-own"], &headers["x-kept"]), (&Value::Null, &"2".into()));
        assert_eq!(headers["x-forwarded-for"], "192.0.2.7, 127.0.0.1");
        let uri = format!("{proxy}{}", path.split('?').next().unwrap());
        assert_eq!(headers["x-forwarded-uri"], uri);
        assert_eq!(headers["host"], client.identity().address);
    }
    let moved = client.get(&format!("{proxy}?a=b")).await;
    assert_eq!((moved.status, moved.header_all("location")), (301, vec![format!("{proxy}/?a=b")]));
    let moved = client.get(&format!("{proxy}/moved")).await;
    assert_eq!((moved.status, moved.header_all("location")), (302, vec![format!("{proxy}/elsewhere?a=b")]));
    let page = client.get(&format!("{proxy}/page")).await;
    let want = format!(
        "<a href=\"{proxy}/stats/summary\">s</a><a href=\"x\">x</a><img src='https://example.com/i'>"
    );
    assert_eq!(page.text(), want);
    let head = client.send("HEAD", &format!("{proxy}/stats/summary"), &[], b"").await;
    assert_eq!(
        (head.status, head.header_all("content-length"), head.body.len()),
        (200, vec!["25".to_owned()], 0)
    );
    // An upgrade to any protocol becomes a tunnel.
    let mut stream = client.connect().await.unwrap();
    let request = format!(
        "GET {proxy}/any?x=1 HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: echo\r\nauthorization: Basic eA==\r\n\r\n"
    );
    stream.write_all(request.replace("authorization: Basic eA==\r\n", "").as_bytes()).await.unwrap();
    let mut stream = BufReader::new(stream);
    let head = head_of(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 101 ") && head.to_lowercase().contains("upgrade: echo"), "{head}");
    stream.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"hello");
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("the tunnel ends");
    for (path, code, want) in [
        ("/api/v1/nodes/n:x:y:z/proxy/", 400, "invalid node request \"n:x:y:z\""),
        ("/api/v1/nodes/n:80/proxy/", 400, "address not allowed"),
        ("/api/v1/nodes/ftp:n:80/proxy/", 400, "invalid node request \"ftp:n:80\""),
        ("/api/v1/nodes/m/proxy/", 404, "nodes \"m\" not found"),
        ("/api/v1/namespaces/default/pods/p/proxy/", 400, "address not allowed"),
        ("/api/v1/namespaces/default/pods/q:80/proxy/", 404, "pods \"q\" not found"),
        (
            "/api/v1/namespaces/default/services/kubernetes/proxy/",
            503,
            "no endpoints available for service \"kubernetes\"",
        ),
        (
            "/api/v1/namespaces/default/services/https:kubernetes:99/proxy/",
            503,
            "no service port 99 found for service \"kubernetes\"",
        ),
        ("/api/v1/nodes/n/proxy/x?dryRun=All", 400, "dryRun is not supported"),
    ] {
        assert_eq!(message(client, path).await, (code, want.to_owned()), "{path}");
    }
}

/// Reads the head of a response.
pub async fn head_of<S: tokio::io::AsyncRead + Unpin>(stream: &mut BufReader<S>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let read = tokio::time::timeout(PATIENCE, stream.read_line(&mut head)).await.expect("more data");
        assert_ne!(read.unwrap(), 0, "{head}");
    }
    head
}

/// Returns a client's request for a WebSocket.
pub fn websocket(path: &str, protocol: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: {protocol}\r\n\r\n"
    )
}

/// Sends bytes on a new connection, and returns all received bytes as text.
pub async fn send_raw(client: &Client, sent: &[u8]) -> String {
    let mut stream = client.connect().await.unwrap();
    stream.write_all(sent).await.unwrap();
    let mut said = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("the connection ends");
    String::from_utf8_lossy(&said).into_owned()
}

/// Starts a node agent that sends this response, instead of a correct response, to each request.
pub async fn liar(answer: &'static [u8], then_waits: bool) -> u16 {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let _ = stream.write_all(answer).await;
                let _ = stream.flush().await;
                if answer.is_empty() && then_waits {
                    std::future::pending().await
                }
                let _ = stream.shutdown().await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_misbehaving_agents_are_errors_of_their_requests() {
    // Without configured authorities every certificate is accepted.
    let server = Server::start_upstream().await;
    let client = server.client();
    let endless: &'static [u8] = {
        let header = format!("x-long: {}\r\n", "y".repeat(1000));
        let text = format!("HTTP/1.1 101 Switching Protocols\r\n{}", header.repeat(1000));
        Box::leak(text.into_bytes().into_boxed_slice())
    };
    let mut agents: Vec<(&str, u16)> = Vec::new();
    for (name, answer) in [
        ("refuses", &b"HTTP/1.1 403 Forbidden\r\ncontent-length: 3\r\n\r\nno\n"[..]),
        ("ignores", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        ("garbage", b"\x16\x03\x01garbage, and more of it\r\n\r\n"),
        ("leaves", b""),
        ("endless", endless),
        ("switches", b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\nno frames at all"),
    ] {
        let port = liar(answer, false).await;
        agents.push((name, port));
        node(client, name, port).await;
        pod(client, name, name, &["c"]).await;
    }
    let spdy = |name: &str| {
        format!(
            "POST {PODS}/{name}/exec?command=x&stdout=1 HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\
             x-stream-protocol-version: v4.channel.k8s.io\r\ncontent-length: 0\r\n\r\n"
        )
    };
    for (name, spdy_says, v5_says) in [
        ("refuses", "HTTP/1.1 403 Forbidden", "unable to upgrade connection: no"),
        ("ignores", "invalid upgrade response: status code 200", "unable to upgrade connection: ok"),
        ("garbage", "malformed HTTP response", "malformed HTTP response"),
        ("leaves", "EOF", "EOF"),
        ("endless", "headers exceeded", "headers exceeded"),
        ("switches", "no frames at all", "error reading from error stream: "),
    ] {
        // The request has no `content-length` header, and the connection ends directly with the response.
        let request = spdy(name).replace("content-length: 0\r\n", "");
        let mut stream = BufReader::new(client.connect().await.unwrap());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        let begun = Instant::now();
        while !String::from_utf8_lossy(&said).contains(spdy_says) {
            assert!(begun.elapsed() < PATIENCE, "{name}: {}", String::from_utf8_lossy(&said));
            let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut said)).await.expect("more data");
            assert_ne!(read.unwrap(), 0, "{name}: {}", String::from_utf8_lossy(&said));
        }
        let request = websocket(&format!("{PODS}/{name}/exec?command=x&stdout=1"), "v5.channel.k8s.io");
        let said = send_raw(client, request.as_bytes()).await;
        assert!(said.contains("sec-websocket-protocol: v5.channel.k8s.io"), "{name}: {said}");
        assert!(said.contains(v5_says) && said.contains("InternalError"), "{name}: {said}");
        let forward = websocket(&format!("{PODS}/{name}/portforward"), "SPDY/3.1+portforward.k8s.io");
        if name != "switches" {
            let mut stream = BufReader::new(client.connect().await.unwrap());
            stream.write_all(forward.as_bytes()).await.unwrap();
            let head = head_of(&mut stream).await;
            let code = if name == "refuses" { "403" } else { "500" };
            assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{name}: {head}");
        }
    }
    for (name, want) in [
        ("refuses", "no\n ( pods/log refuses)".to_owned()),
        ("garbage", "malformed HTTP response".to_owned()),
        ("leaves", "EOF".to_owned()),
        ("endless", "headers exceeded".to_owned()),
    ] {
        let (code, why) = message(client, &format!("{PODS}/{name}/log")).await;
        assert!(
            why.contains(&want) && code == if name == "refuses" { 403 } else { 500 },
            "{name}: {code} {why}"
        );
        if name != "refuses" {
            let (code, why) = message(client, &format!("/api/v1/nodes/{name}/proxy/x")).await;
            assert!(
                code == 503 && why.starts_with("error trying to reach service: "),
                "{name}: {code} {why}"
            );
        }
    }
    assert_eq!(
        message(client, &format!("{PODS}/leaves/exec?command=x")).await,
        (400, "Upgrade request required".to_owned())
    );
    assert_eq!(client.get("/readyz").await.status, 200);
    // The certificates of the server and the agent have unrelated authorities.
    let keys = Keys::new();
    let agent = Agent::start(&keys).await;
    node(client, "strict", agent.address.port()).await;
    pod(client, "strict", "strict", &["c"]).await;
    let (code, _) = message(client, &format!("{PODS}/strict/log")).await;
    assert_eq!(code, 500);
    let other = server_with_other_authority().await;
    node(other.client(), "n", agent.address.port()).await;
    pod(other.client(), "p", "n", &["c"]).await;
    let (code, why) = message(other.client(), &format!("{PODS}/p/log")).await;
    assert!(code == 500 && why.contains("tls: failed to verify certificate: x509: "), "{code} {why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_credentials_for_node_agents_can_be_replaced() {
    let keys = Keys::new();
    let agent = Agent::start(&keys).await;
    let server = server_with_other_authority().await;
    let client = server.client();
    node(client, "n", agent.address.port()).await;
    pod(client, "p", "n", &["c"]).await;
    assert_eq!(client.get(&format!("{PODS}/p/log")).await.status, 500);
    for (name, content) in [
        ("agent-ca.crt", &keys.authority),
        ("client.crt", &keys.client_certificate),
        ("client.key", &keys.client_key),
    ] {
        std::fs::write(server.data_dir().join(name), content).unwrap();
    }
    let begun = Instant::now();
    while client.get(&format!("{PODS}/p/log")).await.status != 200 {
        assert!(begun.elapsed() < PATIENCE, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let page = client.get("/metrics").await.text();
    let shown = "apiserver_certificate_expiration_timestamp_seconds{certificate=\"kubelet-client\"}";
    assert!(page.lines().any(|line| line.starts_with(shown)), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_agents_that_do_not_answer_time_out() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let port = liar(b"", true).await;
    node(client, "slow", port).await;
    pod(client, "p", "slow", &["c"]).await;
    let exec = format!("{PODS}/p/exec?command=x&stdout=1");
    let spdy = format!(
        "POST {exec} HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\
         x-stream-protocol-version: v4.channel.k8s.io\r\n\r\n"
    );
    let spdy = async {
        let mut stream = BufReader::new(client.connect().await.unwrap());
        stream.write_all(spdy.as_bytes()).await.unwrap();
        head_of(&mut stream).await
    };
    let websocket = websocket(&exec, "v5.channel.k8s.io");
    let (log_client, other) = (client.another(), client.another());
    let log_path = format!("{PODS}/p/log");
    let log = message(&log_client, &log_path);
    let said = send_raw(client, websocket.as_bytes());
    let others = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        other.get("/readyz").await.status
    };
    let ((code, why), head, said, others) = tokio::join!(log, spdy, said, others);
    assert_eq!(others, 200);
    assert!(code == 500 && why.ends_with("timeout awaiting response headers"), "{code} {why}");
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    assert!(said.contains("InternalError"), "{said}");
}

async fn server_with_other_authority() -> Server {
    server(&Keys::new()).await
}
