//! SIGTERM ends the process within `--shutdown-deadline`, even if something hangs (docs/api/operations.md#shutdown).
//! Acknowledged writes exist after the next start, and the log contains the numbers of lost events and requests.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tests::{Client, Options, PATIENCE, Server, TempDir, spawn};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::hook::Hook;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Value of `--shutdown-deadline`. In these tests, hanging operations would not end by themselves within ten times this
/// time.
const DEADLINE: Duration = Duration::from_secs(3);

/// Additional time for a slow machine.
const MARGIN: Duration = Duration::from_secs(24);

/// Exit codes of a complete shutdown, and of an exit at the deadline.
const CODES: [Option<i32>; 2] = [Some(0), Some(3)];

fn options(flags: &[&str], files: Vec<(&'static str, String)>) -> Options {
    let deadline = format!("--shutdown-deadline={}s", DEADLINE.as_secs());
    let flags = flags.iter().map(|flag| (*flag).to_owned()).chain([deadline]).collect();
    Options { flags, files, ..Options::default() }
}

/// Ends the server with SIGTERM, checks that it ends in time and that earlier writes exist after a restart,
/// and returns a number from the log's last line.
async fn ends_in_time(mut server: Server, number: &str) -> u64 {
    let written = server.client().another().post(MAPS, &json!({"metadata": {"name": "written"}})).await;
    assert_eq!(written.status, 201, "{}", written.text());
    let begun = Instant::now();
    let (code, mut server) = tokio::task::spawn_blocking(move || (server.terminate(), server)).await.unwrap();
    assert!(begun.elapsed() < DEADLINE + MARGIN, "after {:?}: {}", begun.elapsed(), server.log());
    assert!(CODES.contains(&code), "{code:?}: {}", server.log());
    let log = server.log();
    let line = log.lines().rev().find(|line| line.contains(&format!("{number}=")));
    let line = line.unwrap_or_else(|| panic!("no line has {number}: {log}"));
    let digits = line.split(&format!("{number}=")).nth(1).unwrap_or_default();
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    server.restart_with(&["--audit-policy-file="]).await;
    assert_eq!(server.client().get(&format!("{MAPS}/written")).await.status, 200);
    digits.parse().unwrap()
}

/// Starts a server that accepts connections, reads nothing, and sends nothing.
async fn silent() -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok(connection) = listener.accept().await {
            held.push(connection);
        }
    });
    (port, task)
}

/// Starts a webhook that never responds.
async fn hanging() -> Hook {
    Hook::start(|_| std::future::pending::<Value>()).await
}

/// Sends requests that hang, and returns once the server processes them.
async fn in_flight(client: &Client, requests: Vec<(&'static str, String, Value)>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (method, path, body) in requests {
        let client = client.another();
        tasks.spawn(async move {
            let headers = [("content-type", "application/json")];
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let _ = client.try_send(method, &path, &headers, body.as_bytes()).await;
        });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    tasks
}

fn audited(hook: &Hook, mode: &str) -> Options {
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": hook.url("/audit"),
                      "certificate-authority-data": hook.ca_bundle()}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}]});
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
                  rules: [{level: Metadata, resources: [{group: '', resources: [secrets]}]}]\n";
    options(
        &[
            "--audit-policy-file=$dir/policy",
            "--audit-webhook-config-file=$dir/hook.json",
            &format!("--audit-webhook-mode={mode}"),
            "--audit-webhook-batch-max-size=5",
            "--audit-webhook-batch-max-wait=10ms",
        ],
        vec![("policy", policy.to_owned()), ("hook.json", kubeconfig.to_string())],
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_audit_webhook_does_not_delay_the_shutdown() {
    let hook = hanging().await;
    let server = Server::start(audited(&hook, "batch")).await;
    for n in 0..50 {
        let path = format!("/api/v1/namespaces/default/secrets/s{n}");
        assert_eq!(server.client().get(&path).await.status, 404);
    }
    // All events wait in the queue, because the webhook never answered the first batch.
    assert!(ends_in_time(server, "audit_events_lost").await >= 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_waiting_for_an_audit_webhook_are_aborted_at_shutdown() {
    let hook = hanging().await;
    let server = Server::start(audited(&hook, "blocking")).await;
    let path = || "/api/v1/namespaces/default/secrets/none".to_owned();
    let _waiting = in_flight(server.client(), vec![("GET", path(), Value::Null)]).await;
    ends_in_time(server, "requests_cut").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_waiting_for_a_webhook_are_aborted_at_shutdown() {
    let hook = hanging().await;
    let server = Server::start(options(&[], Vec::new())).await;
    let webhook = json!({"metadata": {"name": "hanging"}, "webhooks": [{"name": "hanging.example.com",
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
        "clientConfig": {"url": hook.url("/"), "caBundle": hook.ca_bundle()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"]}]}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(server.client().post(path, &webhook).await.status, 201);
    let begun = Instant::now();
    let mut waiting = JoinSet::new();
    while waiting.is_empty() || hook.connections() == 0 {
        assert!(begun.elapsed() < PATIENCE, "the webhook is never called");
        let secrets = || "/api/v1/namespaces/default/secrets".to_owned();
        waiting = in_flight(
            server.client(),
            (0..3)
                .map(|n| {
                    (
                        "POST",
                        secrets(),
                        json!({"metadata": {"name": format!("{}-{n}", begun.elapsed().as_millis())}}),
                    )
                })
                .collect(),
        )
        .await;
    }
    assert!(ends_in_time(server, "requests_cut").await >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_waiting_for_an_extension_server_are_aborted_at_shutdown() {
    let (port, _held) = silent().await;
    let server = Server::start(options(&[], Vec::new())).await;
    let client = server.client();
    let spec = json!({"type": "ExternalName", "externalName": "localhost"});
    let service = json!({"metadata": {"name": "silent"}, "spec": spec});
    assert_eq!(client.post("/api/v1/namespaces/default/services", &service).await.status, 201);
    let api_service = json!({"metadata": {"name": "v1.silent.example.com"}, "spec": {
        "group": "silent.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "silent", "port": port}}});
    let made = client.post("/apis/apiregistration.k8s.io/v1/apiservices", &api_service).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let things = "/apis/silent.example.com/v1/things".to_owned();
    let _waiting = in_flight(client, vec![("GET", things, Value::Null)]).await;
    ends_in_time(server, "requests_cut").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_do_not_read_are_disconnected_at_shutdown() {
    let server = Server::start(options(&[], Vec::new())).await;
    for n in 0..12 {
        let big = json!({"metadata": {"name": format!("big-{n}")}, "data": {"k": "x".repeat(900_000)}});
        assert_eq!(server.client().post(MAPS, &big).await.status, 201);
    }
    let mut unread = Vec::new();
    for query in ["", "?watch=1&resourceVersion=0", "?pretty=1"] {
        let client = server.client().another();
        let answer = client.open("GET", &format!("{MAPS}{query}"), &[], b"").await;
        let mut body = answer.into_body();
        assert!(tokio::time::timeout(PATIENCE, body.frame()).await.unwrap().is_some());
        unread.push((client, body));
    }
    assert!(ends_in_time(server, "connections_cut").await >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_trace_collector_does_not_delay_the_shutdown() {
    let (port, _held) = silent().await;
    let config = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: 127.0.0.1:{port}\n\
         samplingRatePerMillion: 1000000\n"
    );
    let flags = ["--tracing-config-file=$dir/tracing"];
    let server = Server::start(options(&flags, vec![("tracing", config)])).await;
    for _ in 0..30 {
        assert_eq!(server.client().get("/version").await.status, 200);
    }
    assert!(ends_in_time(server, "spans_lost").await >= 30);
}

/// Sends SIGTERM to a server that hangs during its start.
async fn start_ends_in_time(directory: &TempDir, options: &Options, hangs: impl Fn() -> bool) {
    for (name, content) in &options.files {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    let mut child = spawn(options, directory.path());
    let log = || std::fs::read_to_string(directory.path().join("server.log")).unwrap_or_default();
    let begun = Instant::now();
    while !hangs() {
        assert!(begun.elapsed() < PATIENCE, "{}", log());
        assert!(child.try_wait().unwrap().is_none(), "{}", log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let begun = Instant::now();
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if begun.elapsed() > DEADLINE + MARGIN {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let ended = ended.unwrap_or_else(|| panic!("the server does not end: {}", log()));
    assert!(ended.code().is_some(), "{ended}: {}", log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_waits_for_etcd_can_be_interrupted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, is_asked) = tokio::sync::watch::channel(false);
    let _held = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok(connection) = listener.accept().await {
            held.push(connection);
            let _ = seen.send(true);
        }
    });
    let options = options(&[&format!("--etcd-servers=http://127.0.0.1:{port}")], Vec::new());
    start_ends_in_time(&TempDir::new(), &options, || *is_asked.borrow()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_waits_for_a_kms_can_be_interrupted() {
    let directory = TempDir::new();
    let socket = directory.path().join("kms.socket");
    let listener = UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let config = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n\
         resources: [{{resources: [secrets], providers: [{{kms: {{apiVersion: v2, name: one, \
         endpoint: 'unix://{}', timeout: 600s}}}}]}}]\n",
        socket.display()
    );
    let options =
        options(&["--encryption-provider-config=$dir/encryption.yaml"], vec![("encryption.yaml", config)]);
    let held = parking_lot::Mutex::new(Vec::new());
    let hangs = || {
        held.lock().extend(listener.accept().ok());
        !held.lock().is_empty()
    };
    start_ends_in_time(&directory, &options, hangs).await;
}
