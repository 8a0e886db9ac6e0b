//! The server process: the lock of the data directory, the state that survives a restart, and the drain on SIGTERM
//! (docs/api/operations.md#shutdown).

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::client::Identity;
use tests::server::{TempDir, binary};
use tests::{Client, Options, PATIENCE, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{kube_client, upstream};

/// Starts another process on a data directory, and waits for its exit.
fn start_another(directory: &Path, naming: &str) -> Output {
    let mut command = Command::new(binary());
    command.arg(format!("--data-dir={}", directory.display())).arg(format!("--naming={naming}"));
    command
        .arg("--secure-port=free")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .expect("the server runs")
}

#[test]
fn a_failed_start_writes_one_record_in_the_log_format() {
    let directory = TempDir::new();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let in_file = format!("--data-dir={}", file.display());
    // Rows: an unknown flag, an invalid value, a missing file, a directory that cannot be created.
    for naming in ["kubernetes", "cluster"] {
        for wrong in ["--no-such-flag", "--secure-port=x", "--audit-policy-file=/none/at/all", &in_file] {
            for (format, is_json) in [("text", false), ("json", true)] {
                let output = Command::new(binary())
                    .args(["--secure-port=free", wrong])
                    .args([format!("--naming={naming}"), format!("--log-format={format}")])
                    .current_dir(directory.path())
                    .env_remove("RUST_LOG")
                    .stdin(Stdio::null())
                    .output()
                    .expect("the server runs");
                let text = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(1), "{wrong}: {text}");
                if is_json {
                    for line in text.lines() {
                        serde_json::from_str::<serde_json::Value>(line)
                            .unwrap_or_else(|error| panic!("{wrong}: {error} in {line}"));
                    }
                    let last = text.lines().last().unwrap_or_default();
                    let record: serde_json::Value = serde_json::from_str(last).unwrap();
                    assert_eq!(
                        (&record["level"], &record["message"]),
                        (&json!("ERROR"), &json!("command failed"))
                    );
                    assert!(!record["error"].as_str().unwrap_or_default().is_empty(), "{record}");
                } else {
                    let is_record = |line: &&str| {
                        line.starts_with('E') && line.contains(" main.rs:1] \"command failed\" err=")
                    };
                    assert_eq!(text.lines().filter(is_record).count(), 1, "{wrong}: {text}");
                    assert!(!text.lines().any(|line| line.starts_with("error: ")), "{wrong}: {text}");
                }
            }
        }
    }
}

/// Checks that the exit code is 1, and that the error is a single line with all `words`.
#[track_caller]
fn assert_refused(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let is_error = text.contains(r#"] "command failed" err=""#);
    assert!(is_error && text.ends_with('\n'), "{text}");
    for word in words {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_can_be_used_by_one_server_only() {
    let server = Server::start_upstream().await;
    let directory = server.data_dir().display().to_string();
    let kubeconfig = std::fs::read(server.kubeconfig()).unwrap();
    assert_refused(&start_another(server.data_dir(), "kubernetes"), &[&directory, "in use"]);
    // The first process is not affected, and its kubeconfig still works.
    assert_eq!(std::fs::read(server.kubeconfig()).unwrap(), kubeconfig);
    assert_eq!(server.client().post(MAPS, &map("a")).await.status, 201);
    assert_refused(&start_another(server.data_dir(), "cluster"), &["--naming=kubernetes"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_a_later_release_is_refused_and_not_changed() {
    let mut server = Server::start_upstream().await;
    assert_eq!(server.client().post(MAPS, &map("a")).await.status, 201);
    assert_eq!(server.terminate(), Some(0));
    // Change both copies of the header so that they look like the header of a later release: magic, version,
    // and a matching checksum.
    let path = server.data_dir().join("log/0000000001.segment");
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut original = [0; 128];
    file.read_exact_at(&mut original, 0).unwrap();
    let mut later = original;
    later[8..12].copy_from_slice(&7u32.to_le_bytes());
    let crc = crc32(&later[..124]);
    later[124..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(
        crc32(&original[..124]).to_le_bytes(),
        original[124..],
        "the header's layout is as documented"
    );
    for copy in [0, 2048] {
        file.write_all_at(&later, copy).unwrap();
    }
    assert_refused(&start_another(server.data_dir(), "kubernetes"), &["0000000001.segment", "format 7"]);
    for copy in [0, 2048] {
        file.write_all_at(&original, copy).unwrap();
    }
    server.restart().await;
    assert_eq!(server.client().get(&format!("{MAPS}/a")).await.json()["data"], json!({"k": "v"}));
}

/// Returns the CRC-32 (IEEE) of a few bytes.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_objects_revisions_and_credentials() {
    let mut server = Server::start_upstream().await;
    let before = server.client().identity().clone();
    let created = server.client().post(MAPS, &map("a")).await.json();
    let namespaces = server.client().get("/api/v1/namespaces").await.json();
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    assert_eq!(server.client().post("/api/v1/namespaces/default/services", &service).await.status, 201);
    let paths = [
        "/api/v1/namespaces",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        // The server's own service has the server's port, which changes at each restart here.
        "/api/v1/services?fieldSelector=metadata.name!%3Dkubernetes",
    ];
    let mut lists = Vec::new();
    for path in paths {
        lists.push(server.client().get(path).await.json()["items"].clone());
    }
    for stop in ["terminate", "kill"] {
        if stop == "kill" {
            server.kill();
        } else {
            assert_eq!(server.terminate(), Some(0));
        }
        server.restart().await;
        let now = server.client().identity();
        assert_eq!(
            (&now.authority, &now.certificate, &now.key),
            (&before.authority, &before.certificate, &before.key)
        );
        // The credentials of the first start are still valid, even if the address of the server has
        // changed.
        let old = tests::client::Identity { address: now.address.clone(), ..before.clone() };
        let client = tests::Client::new(old);
        assert_eq!(client.get(&format!("{MAPS}/a")).await.json(), created);
        for (path, list) in paths.iter().zip(&lists) {
            assert_eq!(client.get(path).await.json()["items"], *list, "{path} after {stop}");
        }
    }
    let newest = namespaces["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let next = server.client().post(MAPS, &map("b")).await.json();
    assert!(next["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > newest);

    let client = kube_client(&server).await;
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_watches_cleanly_and_finishes_requests() {
    let (mut server, client) = upstream().await;
    let plain = server.client().clone();
    let mut watches = Vec::new();
    for i in 0..20 {
        let path = if i % 2 == 0 { MAPS } else { "/api/v1/pods" };
        let path = format!("{path}?watch=1&resourceVersion=0&timeoutSeconds=600");
        watches.push(plain.another().open("GET", &path, &[], b"").await);
    }
    let watching = tokio::spawn(async move {
        let mut ended = 0;
        for watch in watches {
            // An aborted stream would return an error here.
            let body =
                watch.into_body().collect().await.expect("the watch ends with the last chunk").to_bytes();
            assert!(body.is_empty() || body.ends_with(b"\n"), "the last event is complete");
            ended += 1;
        }
        ended
    });
    // The request body is still being sent when the signal arrives.
    let mut slow = plain.connect().await.unwrap();
    let body = map("slow").to_string();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         expect: 100-continue\r\n\r\n",
        plain.identity().address,
        body.len()
    );
    let (first, rest) = body.split_at(10);
    slow.write_all(format!("{head}{first}").as_bytes()).await.unwrap();
    slow.flush().await.unwrap();
    // The server requests the rest, so it is reading the body.
    let mut interim = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    slow.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    let finishing = tokio::spawn({
        let rest = rest.to_owned();
        async move {
            tokio::time::sleep(Duration::from_millis(400)).await;
            slow.write_all(rest.as_bytes()).await.unwrap();
            slow.flush().await.unwrap();
            let mut reply = Vec::new();
            // The connection is closed after the reply, with or without a TLS close.
            let _ = slow.read_to_end(&mut reply).await;
            String::from_utf8_lossy(&reply).into_owned()
        }
    });
    // Other clients have writes in flight.
    let writing = tokio::spawn(async move {
        let api: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::default_namespaced(client);
        let mut acknowledged = 0;
        loop {
            let object = serde_json::from_value(map(&format!("w{acknowledged:05}"))).unwrap();
            if api.create(&kube::api::PostParams::default(), &object).await.is_err() {
                return acknowledged;
            }
            acknowledged += 1;
        }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let begun = Instant::now();
    let (mut server, code) = tokio::task::spawn_blocking(move || {
        let code = server.terminate();
        (server, code)
    })
    .await
    .unwrap();
    assert_eq!(code, Some(0));
    assert!(begun.elapsed() < PATIENCE, "the drain took {:?}", begun.elapsed());
    assert_eq!(watching.await.unwrap(), 20);
    let reply = finishing.await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 201 "), "{reply}");
    let acknowledged = writing.await.unwrap();

    server.restart().await;
    assert_eq!(server.client().get(&format!("{MAPS}/slow")).await.status, 200);
    let list = server.client().get(MAPS).await.json();
    let names =
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap());
    assert!(names.filter(|name| name.starts_with('w')).count() >= acknowledged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_the_shutdown_delay_all_requests_are_served_but_readyz_fails() {
    // The delay is long enough for the requests of this test on a slow machine.
    let flags = vec!["--shutdown-delay-duration=15s".to_owned()];
    let mut server = Server::start(Options { flags, ..Options::default() }).await;
    let client = server.client().clone();
    let mut watch =
        client.another().watch(&format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Dlate")).await;
    let ending = tokio::task::spawn_blocking(move || server.terminate());
    while client.get("/readyz").await.status != 500 {
        assert!(!ending.is_finished(), "the server ended before it reported that it shuts down");
    }
    assert_eq!(client.get("/livez").await.status, 200);
    // New connections are accepted too, because a load balancer may still send them.
    assert_eq!(client.another().post(MAPS, &map("late")).await.status, 201);
    // A watch that was already open lasts until the end of the delay.
    assert_eq!(watch.expect().await.1, "late");
    assert_eq!(ending.await.unwrap(), Some(0));
    assert!(client.try_get("/readyz").await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_connections_are_refused_while_the_last_request_finishes() {
    let mut server = Server::start(Options::default()).await;
    let client = server.client().clone();
    let mut stream = client.connect().await.unwrap();
    let body = map("slow").to_string();
    let (first, rest) = body.as_bytes().split_at(10);
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Expect: 100-continue\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), first].concat()).await.unwrap();
    stream.flush().await.unwrap();
    // The server requests the body, so this request is in progress.
    let mut interim = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    let ending = tokio::task::spawn_blocking(move || server.terminate());
    let began = Instant::now();
    loop {
        match TcpStream::connect(&client.identity().address).await {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => break,
            _ => assert!(began.elapsed() < PATIENCE && !ending.is_finished(), "the server still listens"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!ending.is_finished(), "the server waits for the request");
    stream.write_all(rest).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 201");
    drop(stream);
    assert_eq!(ending.await.unwrap(), Some(0));
}

/// Starts a server that logs every request to the standard error `log`.
fn start_logging_to(directory: &TempDir, log: impl Into<Stdio>) -> Running {
    let child = Command::new(binary())
        .arg(format!("--data-dir={}", directory.path().display()))
        .args(["--naming=kubernetes", "--secure-port=free", "-v=9"])
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    Running(child.expect("the server runs"))
}

/// A process that is killed when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the server is ready, and returns the administrator's client.
async fn when_ready(directory: &TempDir) -> Client {
    let begun = Instant::now();
    loop {
        let identity = Identity::from_kubeconfig(&directory.path().join("admin.kubeconfig"));
        if let Some(client) = identity.map(Client::new)
            && client.try_get("/readyz").await.is_some_and(|reply| reply.status == 200)
        {
            return client;
        }
        assert!(begun.elapsed() < PATIENCE, "the server was not ready in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_standard_error_loses_log_lines_but_does_not_block_the_server() {
    for log in ["closed pipe", "unread pipe", "full disk"] {
        let directory = TempDir::new();
        let mut child = match log {
            "full disk" => {
                let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full exists");
                start_logging_to(&directory, full)
            }
            _ => start_logging_to(&directory, Stdio::piped()),
        };
        if log == "closed pipe" {
            drop(child.0.stderr.take());
        }
        let client = when_ready(&directory).await;
        // The log contains the path, so its lines exceed the capacity of a pipe and of the server's queue.
        let path = format!("/api/v1/namespaces/{}", "x".repeat(8_000));
        for request in 0..400 {
            let answer = tokio::time::timeout(PATIENCE, client.get(&path));
            assert_eq!(answer.await.expect(log).status, 404, "request {request}: {log}");
        }
        let metrics = client.get("/metrics").await.text();
        let dropped =
            metrics.lines().find_map(|line| line.strip_prefix("apiserver_log_lines_dropped_total "));
        let dropped: u64 = dropped.expect("the metrics have the number of dropped lines").parse().unwrap();
        assert!(dropped > 0, "{log}");
        let pid = rustix::process::Pid::from_raw(child.0.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = tokio::task::spawn_blocking(move || child.0.wait().unwrap()).await.unwrap();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_and_sigint_end_the_server_like_sigterm() {
    for signal in [Signal::HUP, Signal::INT] {
        let mut server = Server::start_upstream().await;
        assert_eq!(server.end_with(signal), Some(0), "{signal:?}");
    }
}

/// A container has such a process namespace if the command of the container was started from outside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_session_is_outside_its_process_namespace_watches_its_parent() {
    let namespace = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
    let tried = Command::new("unshare").args(namespace).arg("true").output();
    if !tried.as_ref().is_ok_and(|output| output.status.success()) {
        return testkit::skip(&format!("no process namespace can be made here: {tried:?}"));
    }
    let directory = TempDir::new();
    // The shell is the first process of the namespace, and the parent of the server.
    let mut command = Command::new("unshare");
    command.args(namespace).args(["sh", "-c", "\"$@\" & wait", "sh"]).arg(binary());
    command.arg("--exit-with-parent").arg(format!("--data-dir={}", directory.path().display()));
    command.args(["--naming=kubernetes", "--secure-port=free"]).env_remove("RUST_LOG").stdin(Stdio::null());
    let running = Running(command.stderr(Stdio::null()).spawn().expect("unshare runs"));
    let client = when_ready(&directory).await;
    // The end of `unshare` ends the shell, which is the parent of the server.
    drop(running);
    let begun = Instant::now();
    while client.try_get("/readyz").await.is_some() {
        assert!(begun.elapsed() < PATIENCE, "the server did not end in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
