//! End-to-end tests of audit (docs/api/audit.md): every request is in the log once, large objects are
//! complete, and an unreachable webhook affects requests only as its mode specifies.
//!
//! `AUDITED_REQUESTS`, `AUDITED_OBJECTS` and `AUDIT_OUTAGE_SECONDS` set the size of the tests.

use std::future::ready;
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::{Client, Options, PATIENCE, Server};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::hook::Hook;
use crate::support::from_environment;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Number of concurrent clients.
const CLIENTS: usize = 16;

/// Returns a policy with a single level for ConfigMaps, which records only the events of complete responses.
fn policy(level: &str) -> (&'static str, String) {
    let text = format!(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\n\
         rules: [{{level: {level}, resources: [{{group: '', resources: [configmaps]}}]}}]\n"
    );
    ("policy", text)
}

/// Starts a server with an audit policy of this level, and with additional flags.
async fn server(level: &str, files: Vec<(&'static str, String)>, flags: &[&str]) -> Server {
    let own = [
        "--audit-policy-file=$dir/policy",
        "--controllers=",
        // All requests must run concurrently, even on a slow machine.
        "--enable-priority-and-fairness=false",
    ];
    let flags = own.iter().chain(flags).map(|flag| (*flag).to_owned()).collect();
    let files = files.into_iter().chain([policy(level)]).collect();
    Server::start(Options { flags, files, ..Options::default() }).await
}

/// Runs `request` for each number below `end`, several at a time.
async fn each<F: Future<Output = ()> + Send>(
    client: &Client,
    end: usize,
    request: impl Fn(Client, usize) -> F + Clone + Send + 'static,
) {
    let next = Arc::new(AtomicUsize::new(0));
    let clients = (0..CLIENTS).map(|_| {
        let (client, next, request) = (client.another(), next.clone(), request.clone());
        tokio::spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= end {
                    return;
                }
                request(client.clone(), n).await;
            }
        })
    });
    for client in join_all(clients).await {
        client.unwrap();
    }
}

/// Returns the number of a request, from the audit id in its header.
fn number(event: &Value) -> Option<usize> {
    event["auditID"].as_str()?.strip_prefix("request-")?.parse().ok()
}

/// Returns how often each number below `end` is in the log; `judge` checks each event.
fn numbers(server: &Server, end: usize, judge: impl Fn(&Value, usize)) -> Vec<u8> {
    let mut seen = vec![0_u8; end];
    let paths = std::fs::read_dir(server.data_dir()).unwrap().map(|entry| entry.unwrap().path());
    // The log consists of the current file and the rotated files.
    let is_log = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("audit") && path.extension().is_some_and(|extension| extension == "log")
    };
    for path in paths.filter(is_log) {
        for line in BufReader::new(std::fs::File::open(path).unwrap()).lines() {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let Some(n) = number(&event) else { continue };
            judge(&event, n);
            seen[n] += 1;
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_in_the_audit_log_once() {
    /// Distance between two requests that create an object of a megabyte. All other requests get an object that
    /// does not exist.
    const PERIOD: usize = 5000;
    let is_large = |n: usize| n % PERIOD == PERIOD / 2;
    let requests = from_environment("AUDITED_REQUESTS", 20_000);
    let mut server = server(
        "RequestResponse",
        Vec::new(),
        &[
            "--audit-log-path=$dir/audit.log",
            "--audit-log-mode=batch",
            "--audit-log-batch-max-wait=1s",
            "--audit-log-batch-buffer-size=100000",
        ],
    )
    .await;
    each(server.client(), requests, move |client, n| async move {
        let id = format!("request-{n}");
        let headers = [("audit-id", id.as_str()), ("content-type", "application/json")];
        let (reply, status) = if is_large(n) {
            (client.send("POST", MAPS, &headers, large(n).as_bytes()).await, 201)
        } else {
            (client.send("GET", &format!("{MAPS}/m{n}"), &headers, b"").await, 404)
        };
        assert_eq!((reply.status, reply.header_all("audit-id")), (status, vec![id]));
    })
    .await;
    // The end of the process writes all queued events.
    assert_eq!(server.terminate(), Some(0));
    let seen = numbers(&server, requests, |event, n| {
        assert_eq!(event["stage"], "ResponseComplete", "{n}");
        if is_large(n) {
            assert_whole(event, n);
        } else {
            assert_eq!(event["objectRef"]["name"], format!("m{n}"), "{event}");
            assert_eq!(event["responseObject"]["code"], 404, "{event}");
        }
    });
    assert!(seen.iter().all(|count| *count == 1), "{:?}", seen.iter().position(|count| *count != 1));
}

/// Size of the value of a large object, in bytes.
const LONG: usize = 1_000_000;

fn large(n: usize) -> String {
    json!({"metadata": {"name": format!("m{n}")}, "data": {"k": "x".repeat(LONG)}}).to_string()
}

/// Checks that the event of a large object contains the whole request and response.
fn assert_whole(event: &Value, n: usize) {
    for object in ["requestObject", "responseObject"] {
        assert_eq!(event[object]["metadata"]["name"], format!("m{n}"), "{object} of {n}");
        assert_eq!(event[object]["data"]["k"].as_str().map(str::len), Some(LONG), "{object} of {n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_one_megabyte_are_complete_in_the_audit_log() {
    let objects = from_environment("AUDITED_OBJECTS", 40);
    let mut server = server("RequestResponse", Vec::new(), &["--audit-log-path=$dir/audit.log"]).await;
    each(server.client(), objects, |client, n| async move {
        let id = format!("request-{n}");
        let headers = [("audit-id", id.as_str()), ("content-type", "application/json")];
        assert_eq!(client.send("POST", MAPS, &headers, large(n).as_bytes()).await.status, 201);
    })
    .await;
    assert_eq!(server.terminate(), Some(0));
    let seen = numbers(&server, objects, assert_whole);
    assert!(seen.iter().all(|count| *count == 1), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scale_updates_are_in_the_audit_log() {
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
                  rules: [{level: Request, resources: [{group: apps, resources: [deployments/scale]}]}]\n";
    let flags = ["--audit-policy-file=$dir/policy", "--audit-log-path=$dir/audit.log", "--controllers="];
    let mut server = Server::start(Options {
        flags: flags.map(str::to_owned).to_vec(),
        files: vec![("policy", policy.to_owned())],
        ..Options::default()
    })
    .await;
    let client = server.client();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    assert_eq!(client.post(path, &json!({"metadata": {"name": "d"}, "spec": spec})).await.status, 201);
    let path = format!("{path}/d/scale");
    let scale = |replicas: u32| {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "default"},
            "spec": {"replicas": replicas}})
    };
    let patch = json!({"spec": {"replicas": 2}});
    for (n, (method, query, content_type, body)) in [
        ("PUT", "", "application/json", scale(1)),
        ("PATCH", "", "application/merge-patch+json", patch),
        ("PATCH", "?fieldManager=m&force=true", "application/apply-patch+yaml", scale(3)),
    ]
    .iter()
    .enumerate()
    {
        let id = format!("request-{n}");
        let headers = [("audit-id", id.as_str()), ("content-type", content_type)];
        let body = body.to_string();
        let reply = client.send(method, &format!("{path}{query}"), &headers, body.as_bytes()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(server.terminate(), Some(0));
    let seen = numbers(&server, 3, |event, n| {
        assert_eq!(event["requestObject"]["spec"]["replicas"], n + 1, "{event}");
    });
    assert_eq!(seen, [1; 3]);
}

/// A port that forwards to another port, or is closed.
struct Gate {
    port: u16,
    to: u16,
    task: Option<JoinHandle<()>>,
    /// The socket of a closed gate. The socket does not listen, but keeps other processes from taking the port.
    closed: Option<TcpSocket>,
}

impl Gate {
    async fn open_to(to: u16) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut gate = Gate { port, to, task: None, closed: None };
        gate.lead(listener);
        gate
    }

    fn lead(&mut self, listener: TcpListener) {
        let to = self.to;
        self.task = Some(tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut from, _)) = listener.accept().await {
                open.spawn(async move {
                    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", to)).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut stream).await;
                });
            }
        }));
    }

    /// Closes the port and all its connections.
    async fn close(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], self.port).into()).unwrap();
        self.closed = Some(socket);
    }

    fn reopen(&mut self) {
        let socket = self.closed.take().expect("the gate is closed");
        self.lead(socket.listen(128).unwrap());
    }
}

/// Returns the numbers of the events that a webhook received, in order and without duplicates.
fn received(hook: &Hook) -> Vec<usize> {
    let lists = hook.received();
    let events = lists.iter().filter_map(|list| list["items"].as_array()).flatten();
    let mut numbers: Vec<usize> = events.filter_map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Returns the number of lost events of a plugin.
async fn lost(client: &Client, plugin: &str) -> usize {
    let page = client.get("/metrics").await.text();
    let series = format!("apiserver_audit_error_total{{plugin=\"{plugin}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&series)).map_or(0, |value| value.parse().unwrap())
}

/// Waits until the number of events that a plugin has not lost is in `kept`, and returns the number of lost events. The
/// second event of a request follows the response, so the server may count the event a little later.
async fn until_lost(client: &Client, plugin: &str, events: usize, kept: &RangeInclusive<usize>) -> usize {
    let begun = Instant::now();
    loop {
        let lost = lost(client, plugin).await;
        if kept.contains(&(events - lost)) {
            return lost;
        }
        assert!(begun.elapsed() < PATIENCE, "{plugin}: {lost} of {events} lost; kept: {kept:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn send_request(client: &Client, n: usize) -> u16 {
    let id = format!("request-{n}");
    client.send("GET", MAPS, &[("audit-id", &id)], b"").await.status
}

/// Sends requests for the duration of an outage, and returns their number. On a slow machine single requests may take
/// as long as the outage.
async fn send_requests(client: &Client, mode: &str, status: u16, outage: Duration) -> usize {
    let begun = Instant::now();
    let (mut requests, mut slow) = (0, 0);
    while begun.elapsed() < outage || 2 * slow > requests {
        requests += 1;
        let sent = Instant::now();
        assert_eq!(send_request(client, requests).await, status, "{mode}");
        slow += usize::from(sent.elapsed() >= outage);
        assert!(begun.elapsed() < PATIENCE, "{mode}: requests wait for the unavailable backend");
        tokio::time::sleep(outage / 200).await;
    }
    requests
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_audit_webhook_has_the_effect_that_its_mode_specifies() {
    const ROOM: usize = 50;
    let outage = Duration::from_secs(from_environment("AUDIT_OUTAGE_SECONDS", 3) as u64);
    for (mode, fails, loses) in
        [("batch", false, BATCH), ("blocking", false, ALL), ("blocking-strict", true, ALL)]
    {
        let hook = Hook::start(|_| async { json!({}) }).await;
        let mut gate = Gate::open_to(hook.port()).await;
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": format!("https://localhost:{}/audit", gate.port),
                          "certificate-authority-data": hook.ca_bundle()}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}]});
        // This policy records all stages, so a request is refused if its first event is lost.
        let whole = policy("Metadata").1.replace("omitStages: [RequestReceived, ResponseStarted]\n", "");
        let files = vec![("hook.json", kubeconfig.to_string()), ("all", whole)];
        let server = server(
            "Metadata",
            files,
            &[
                "--audit-policy-file=$dir/all",
                "--audit-webhook-config-file=$dir/hook.json",
                &format!("--audit-webhook-mode={mode}"),
                &format!("--audit-webhook-batch-buffer-size={ROOM}"),
                "--audit-webhook-batch-max-size=10",
                "--audit-webhook-batch-max-wait=100ms",
                // Five attempts take 8.1 times as long as the first pause, so the outage ends before the last attempt
                // on a slow machine, too.
                &format!("--audit-webhook-initial-backoff={}ms", outage.as_millis() / 2),
            ],
        )
        .await;
        let client = server.client();
        assert_eq!(send_request(client, 0).await, 200);
        let begun = Instant::now();
        while received(&hook) != [0] {
            assert!(begun.elapsed() < PATIENCE, "{mode}: {:?}", hook.received());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        gate.close().await;
        let requests = send_requests(client, mode, if fails { 500 } else { 200 }, outage).await;
        let plugin = match mode {
            "batch" => "buffered",
            "blocking" => "webhook",
            _ => "backend",
        };
        // Each request has two audit events. A request that is refused because its
        // first event was lost has only that event.
        let events = requests * if fails { 1 } else { 2 };
        let lost = until_lost(client, plugin, events, &loses(events, ROOM)).await;
        gate.reopen();
        assert_eq!(send_request(client, requests + 1).await, 200, "{mode}: the backend is available again");
        let begun = Instant::now();
        // The first event that did not fit into the queue may have been the first or the second event of the last
        // request.
        while received(&hook).len() < 2 + (events - lost) / 2 - 1
            || !received(&hook).contains(&(requests + 1))
        {
            assert!(
                begun.elapsed() < PATIENCE,
                "{mode}: received {:?} of {requests} requests",
                received(&hook)
            );
            if mode == "batch" {
                // The event of that request may have been lost because the queue was full.
                send_request(client, requests + 1).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The number of events that a mode keeps during an outage, from the number of events and the size of the
/// queue.
type Keeps = fn(usize, usize) -> RangeInclusive<usize>;

/// The mode keeps the queue, the batch that is being sent, and a batch that was taken out of the queue before the
/// outage was noticed.
const BATCH: Keeps = |events, room| events.min(room)..=events.min(room + 2 * 10);

/// The mode loses all events.
const ALL: Keeps = |_, _| 0..=0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_objects_are_audited_in_every_encoding() {
    let forms = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
    let mut server = server("RequestResponse", Vec::new(), &["--audit-log-path=$dir/audit.log"]).await;
    let client = server.client().clone();
    let headers = |n: usize, accept: &'static str| {
        [("audit-id", format!("request-{n}")), ("accept", accept.to_owned())]
    };
    for (n, accept) in forms.into_iter().enumerate() {
        let name = format!("m{n}");
        let body = json!({"metadata": {"name": name}, "data": {"k": "v"}}).to_string();
        for (n, method, path, body) in [
            (2 * n, "POST", MAPS.to_owned(), body.as_bytes()),
            (2 * n + 1, "GET", format!("{MAPS}/{name}"), &b""[..]),
        ] {
            let headers = headers(n, accept);
            let mut headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (*name, &**value)).collect();
            headers.push(("content-type", "application/json"));
            let answer = client.send(method, &path, &headers, body).await;
            assert!(answer.status < 300, "{method} {accept}: {}", answer.text());
        }
    }
    assert_eq!(server.terminate(), Some(0));
    let seen = numbers(&server, 2 * forms.len(), |event, n| {
        let object = &event["responseObject"];
        assert_eq!(
            (object["kind"].as_str(), object["data"]["k"].as_str()),
            (Some("ConfigMap"), Some("v")),
            "{n}: {event}"
        );
    });
    assert!(seen.iter().all(|count| *count == 1), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_events_reach_a_webhook() {
    let hook = Hook::start(|_| ready(json!({}))).await;
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {
            "server": hook.url("/audit"), "certificate-authority-data": hook.ca_bundle(),
        }}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    });
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Request", "resources": [{"group": "", "resources": ["configmaps"]}], "verbs": ["create"]}],
    });
    let server = Server::start(Options {
        flags: vec![
            "--audit-policy-file=$dir/policy.json".to_owned(),
            "--audit-webhook-config-file=$dir/hook.json".to_owned(),
            "--audit-webhook-batch-max-wait=100ms".to_owned(),
        ],
        files: vec![("policy.json", policy.to_string()), ("hook.json", kubeconfig.to_string())],
        ..Options::default()
    })
    .await;
    let path = "/api/v1/namespaces/default/configmaps";
    for n in 0..20 {
        let made = server.client().post(path, &json!({"metadata": {"name": format!("m{n}")}})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let names = || {
        let lists = hook.received();
        let events = lists.iter().flat_map(|list| list["items"].as_array().unwrap());
        let ours = events.filter(|event| event["objectRef"]["namespace"] == "default");
        let mut names: Vec<String> = ours
            .map(|event| event["requestObject"]["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    let mut expected: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
    expected.sort();
    let begun = Instant::now();
    while names().len() < expected.len() && begun.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(names(), expected);
}
