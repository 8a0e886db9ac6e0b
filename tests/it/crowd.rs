//! Many hostile clients at once: the memory that they make the server use stays below the configured total,
//! and another client is served meanwhile (docs/decisions/0014-memory-for-requests-is-one-account.md).
//!
//! `CROWD_CLIENTS` sets the number of hostile clients.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use objects::codec::protobuf::envelope;
use serde_json::json;
use tests::{Client, Options, PATIENCE, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use values::memory;

use crate::support::{anonymous_bytes, from_environment, pod_of_many_containers};

/// Default number of hostile clients.
const CLIENTS: usize = 100;

/// Duration of the test: the time for each client, and the minimum for all clients together.
const LASTS: (Duration, Duration) = (Duration::from_millis(40), Duration::from_secs(6));

/// Maximum duration of a request of the other client.
const SERVED_WITHIN: Duration = Duration::from_secs(40);

/// Number of concurrent requests of a client that reads no responses.
const UNREAD: usize = 40;

/// Memory of TLS and HTTP for each connection.
const FRAMING_BYTES: u64 = 60 * 1024;

/// Other memory of the process: threads, the allocator's free lists, the responses to the other client.
const SLACK_BYTES: u64 = 64 * 1024 * 1024;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The behaviour that a hostile client repeats.
#[derive(Clone, Copy, Debug)]
enum HostileBehaviour {
    /// Requests a large object in this media type several times on one connection, and reads nothing.
    Unread(&'static str),
    /// Lists objects and reads only the head of the response.
    UnreadList(&'static str),
    /// Sends half a request body.
    Half,
    /// Sends the beginnings of many request bodies of unknown length.
    Beginnings,
    /// Sends a small body that needs much memory: a pod of 900 000 containers.
    Containers,
    /// Sends a small protobuf body that needs much memory: 700 000 entries of a map.
    Entries,
    /// Announces a body that exceeds the limit.
    Excess,
}

const BEHAVIOURS: [HostileBehaviour; 10] = [
    HostileBehaviour::Unread("application/json"),
    HostileBehaviour::Unread("application/vnd.kubernetes.protobuf"),
    HostileBehaviour::Unread("application/yaml"),
    HostileBehaviour::UnreadList("application/json"),
    HostileBehaviour::UnreadList("application/yaml"),
    HostileBehaviour::Half,
    HostileBehaviour::Beginnings,
    HostileBehaviour::Containers,
    HostileBehaviour::Entries,
    HostileBehaviour::Excess,
];

/// The large request bodies, which all clients share.
#[derive(Clone)]
struct Bodies {
    containers: Bytes,
    entries: Bytes,
}

impl Bodies {
    fn new() -> Bodies {
        let mut map = b"\x0a\x03\x0a\x01a".to_vec();
        map.extend([0x12, 0].repeat(700_000));
        let mut entries = Vec::new();
        let wrapped = envelope::wrap("v1", "ConfigMap", &mut entries, |out| {
            out.extend_from_slice(&map);
            Ok::<_, Infallible>(())
        });
        wrapped.expect("nothing fails");
        Bodies { containers: pod_of_many_containers().into(), entries: entries.into() }
    }
}

/// A client with a hostile behaviour; it ends only with an error, such as a refusal or a closed connection.
struct Hostile {
    client: Client,
    bodies: Bodies,
    /// Number of requests of this client that have reached the server.
    reached: Arc<AtomicUsize>,
}

/// The bearer token that all hostile clients use.
const TOKEN: &str = "hostile";

type Broken = Box<dyn std::error::Error + Send + Sync>;

impl Hostile {
    async fn go_on(&self, behaviour: HostileBehaviour) -> Result<(), Broken> {
        match behaviour {
            HostileBehaviour::Unread(accept) => self.unread(accept).await,
            HostileBehaviour::UnreadList(accept) => {
                let answer = self.client.another().try_open("GET", MAPS, &[("accept", accept)], b"").await?;
                self.has_reached();
                std::future::pending::<()>().await;
                drop(answer);
                Ok(())
            }
            HostileBehaviour::Half => {
                let head = self.head("POST", MAPS, "content-length: 2900000\r\n");
                self.raw(&[head.as_bytes(), &self.bodies.containers[..1_450_000]].concat()).await
            }
            HostileBehaviour::Excess => {
                let head = self.head("POST", MAPS, "content-length: 100000000000\r\n");
                self.raw(&[head.as_bytes(), &self.bodies.containers[..100_000]].concat()).await?;
                tokio::time::sleep(Duration::from_millis(500)).await;
                Ok(())
            }
            HostileBehaviour::Beginnings => self.beginnings().await,
            HostileBehaviour::Containers => {
                let path = "/api/v1/namespaces/default/pods?dryRun=All";
                self.post(path, "application/json", &self.bodies.containers).await
            }
            HostileBehaviour::Entries => {
                let path = format!("{MAPS}?dryRun=All");
                self.post(&path, "application/vnd.kubernetes.protobuf", &self.bodies.entries).await
            }
        }
    }

    fn has_reached(&self) {
        self.reached.fetch_add(1, Relaxed);
    }

    fn head(&self, method: &str, path: &str, more: &str) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             {more}\r\n",
            TOKEN
        )
    }

    /// Sends bytes, and waits for the end of the connection.
    async fn raw(&self, bytes: &[u8]) -> Result<(), Broken> {
        let mut stream = self.client.connect().await?;
        stream.write_all(bytes).await?;
        stream.flush().await?;
        self.has_reached();
        let mut answer = [0; 1024];
        while stream.read(&mut answer).await? > 0 {}
        Ok(())
    }

    async fn post(&self, path: &str, media_type: &str, body: &[u8]) -> Result<(), Broken> {
        let answer = self.client.try_open("POST", path, &[("content-type", media_type)], body).await?;
        self.has_reached();
        answer.into_body().collect().await?;
        Ok(())
    }

    /// Sends requests on a connection whose flow control window has no room for responses.
    async fn unread(&self, accept: &str) -> Result<(), Broken> {
        let io = TokioIo::new(self.client.connect_http2().await?);
        let mut http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = http.initial_stream_window_size(0).handshake(io).await?;
        let mut answers = JoinSet::new();
        for _ in 0..UNREAD {
            let request = hyper::Request::get(format!("https://x{MAPS}/big"))
                .header("authorization", format!("Bearer {}", TOKEN))
                .header("accept", accept)
                .body(Full::new(Bytes::new()))?;
            let mut sender = sender.clone();
            answers.spawn(async move {
                let answer = sender.send_request(request).await;
                std::future::pending::<()>().await;
                drop(answer);
            });
        }
        self.has_reached();
        Ok(connection.await?)
    }

    /// Sends bodies until the server accepts no more of them.
    async fn beginnings(&self) -> Result<(), Broken> {
        let io = TokioIo::new(self.client.connect_http2().await?);
        let http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = http.handshake(io).await?;
        let mut answers = JoinSet::new();
        for _ in 0..UNREAD {
            let pieces = self.bodies.containers.slice(..100_000);
            let pieces = futures_util::stream::iter([Ok::<_, Infallible>(Frame::data(pieces))]);
            let request = hyper::Request::post(format!("https://x{MAPS}"))
                .header("authorization", format!("Bearer {}", TOKEN))
                .header("content-type", "application/json")
                .body(StreamBody::new(pieces.chain(futures_util::stream::pending())))?;
            let mut sender = sender.clone();
            answers.spawn(async move { sender.send_request(request).await.map(drop) });
        }
        self.has_reached();
        Ok(connection.await?)
    }
}

/// Measures the maximum memory of a process, in a separate thread.
fn watch_memory(pid: u32, is_over: Arc<AtomicBool>) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut most = 0;
        while !is_over.load(Relaxed) {
            most = most.max(anonymous_bytes(pid));
            std::thread::sleep(Duration::from_millis(20));
        }
        most
    })
}

/// The outcomes of the other client's requests.
#[derive(Debug, Default)]
struct Served {
    count: usize,
    slowest: (Duration, String),
    refused: Vec<String>,
}

/// Runs a client with small requests in a separate thread and runtime. Every other request uses a new
/// connection.
fn other_client(client: Client, is_over: Arc<AtomicBool>) -> JoinHandle<Served> {
    let small = json!({"metadata": {"name": "small"}, "data": {"k": "v"}}).to_string();
    let run = async move {
        let mut served = Served::default();
        let mut kept = client.another();
        while !is_over.load(Relaxed) {
            for (method, path, body, code) in [
                ("GET", format!("{MAPS}/small"), "", 200),
                ("GET", format!("{MAPS}?limit=1"), "", 200),
                ("POST", format!("{MAPS}?dryRun=All"), small.as_str(), 409),
                ("PUT", format!("{MAPS}/small"), small.as_str(), 200),
                ("GET", "/readyz".to_owned(), "", 200),
            ] {
                let began = Instant::now();
                let headers = [("content-type", "application/json")];
                let reply = kept.try_send(method, &path, &headers, body.as_bytes()).await;
                let (took, what) = (began.elapsed(), format!("{method} {path}"));
                let got = reply.map_or_else(|| "no answer".to_owned(), |reply| reply.status.to_string());
                if got != code.to_string() {
                    served.refused.push(format!("{what}: {got}"));
                }
                served.count += 1;
                served.slowest = std::mem::take(&mut served.slowest).max((took, what));
            }
            kept = if served.count % 2 == 0 { client.another() } else { kept };
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        served
    };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime starts").block_on(run)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_hostile_clients_use_a_bounded_total_of_memory_and_others_are_served() {
    let clients = from_environment("CROWD_CLIENTS", CLIENTS);
    let server = Server::start(Options {
        flags: vec!["--token-auth-file=$dir/tokens.csv".to_owned()],
        files: vec![("tokens.csv", "hostile,hostile,1\nother,other,2\n".to_owned())],
        ..Options::default()
    })
    .await;
    let admin = server.client();
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let subjects = ["hostile", "other"].map(|name| json!({"kind": "User", "name": name}));
    let binding = json!({
        "metadata": {"name": "crowd"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": subjects,
    });
    assert_eq!(admin.post(bindings, &binding).await.status, 201);
    for (name, bytes) in [("big", 1_000_000), ("small", 1)] {
        let map = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(bytes)}});
        assert_eq!(admin.post(MAPS, &map).await.status, 201);
    }

    let before = anonymous_bytes(server.pid());
    let is_over = Arc::new(AtomicBool::new(false));
    let memory = watch_memory(server.pid(), is_over.clone());
    let other = other_client(admin.with_token("other"), is_over.clone());
    let bodies = Bodies::new();
    let reached = BEHAVIOURS.map(|_| Arc::<AtomicUsize>::default());
    let mut crowd = JoinSet::new();
    for (behaviour, reached) in BEHAVIOURS.iter().copied().zip(&reached).cycle().take(clients) {
        let hostile =
            Hostile { client: admin.with_token(TOKEN), bodies: bodies.clone(), reached: reached.clone() };
        crowd.spawn(async move {
            loop {
                if hostile.go_on(behaviour).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        });
    }
    tokio::time::sleep((LASTS.0 * clients as u32).max(LASTS.1)).await;
    // On a slow machine some clients have to wait for the responses to other clients. Wait until at least one client
    // of each behaviour has reached the server.
    let missing = || BEHAVIOURS.iter().zip(&reached).find(|(_, reached)| reached.load(Relaxed) == 0);
    let began = Instant::now();
    while missing().is_some() && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    is_over.store(true, Relaxed);
    let served = tokio::task::spawn_blocking(|| other.join().expect("the other client ends")).await.unwrap();
    let most = tokio::task::spawn_blocking(|| memory.join().expect("memory can be read")).await.unwrap();
    crowd.shutdown().await;

    let of_requests = memory::CONNECTION_REQUESTS * memory::REQUEST_BYTES;
    let of_connection = memory::CONNECTION_BYTES + memory::CONNECTION_BODY_BYTES + of_requests;
    let window = 2 * u64::from(wire::server::Limits::default().http2_window_bytes);
    let each = of_connection as u64 + window + FRAMING_BYTES;
    let allowed = memory::TOTAL_BYTES as u64 + clients as u64 * each + SLACK_BYTES;
    let added = most.saturating_sub(before);
    eprintln!("{clients} clients: {} MiB of {} added, {served:?}", added >> 20, allowed >> 20);
    assert!(missing().is_none(), "{:?} did not reach the server", missing());
    assert!(added <= allowed, "{clients} hostile clients added {} MiB", added >> 20);
    assert!(served.refused.is_empty(), "{:?}", served.refused);
    assert!(served.count > 20 && served.slowest.0 < SERVED_WITHIN, "{served:?}");
}
