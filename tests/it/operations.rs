//! Operation of the server: shutdowns without lost requests, and the effect of flags (docs/api/operations.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::server::TempDir;
use tests::{Client, Options, PATIENCE, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixDatagram;
use tokio::sync::Semaphore;

use crate::hook::Hook;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn flags(flags: &[&str]) -> Options {
    Options { flags: flags.iter().map(|flag| (*flag).to_owned()).collect(), ..Options::default() }
}

/// Waits until a counter has at least this value.
async fn reaches(counter: &AtomicUsize, value: usize) {
    let begun = Instant::now();
    while counter.load(Ordering::Relaxed) < value {
        assert!(begun.elapsed() < PATIENCE, "{counter:?} of {value}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Creates objects until the server is gone. Counts the acknowledged objects in `made`. Returns their names, and the
/// number of requests that the server accepted without a response.
async fn create_until_refused(client: Client, writer: usize, made: Arc<AtomicUsize>) -> (Vec<String>, usize) {
    let (mut acknowledged, mut unanswered) = (Vec::new(), 0);
    for n in 0.. {
        let client = client.another();
        let name = format!("w{writer}-{n}");
        let body = json!({"metadata": {"name": name}}).to_string();
        // A refused connection does not count as a request.
        if client.connect().await.is_err() {
            break;
        }
        match client.try_send("POST", MAPS, &[("content-type", "application/json")], body.as_bytes()).await {
            Some(reply) if reply.status == 201 => {
                acknowledged.push(name);
                made.fetch_add(1, Ordering::Relaxed);
            }
            Some(reply) if reply.status == 429 => break,
            Some(reply) => panic!("{} {}", reply.status, reply.text()),
            // The port was closed between the two connections.
            None if client.connect().await.is_err() => break,
            None => unanswered += 1,
        }
    }
    (acknowledged, unanswered)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_under_load_fails_no_accepted_request() {
    for with_retry_after in [false, true] {
        let mut server = Server::start(flags(&[
            "--shutdown-delay-duration=500ms",
            &format!("--shutdown-send-retry-after={with_retry_after}"),
        ]))
        .await;
        let client = server.client().clone();
        let mut watch = client.watch(&format!("{MAPS}?watch=1")).await;
        let made = Arc::<AtomicUsize>::default();
        let writers: Vec<_> =
            (0..50).map(|n| tokio::spawn(create_until_refused(client.another(), n, made.clone()))).collect();
        reaches(&made, 51).await;
        let code = tokio::task::spawn_blocking(move || (server.terminate(), server)).await.unwrap();
        let (Some(0), mut server) = code else { panic!("{:?}: {}", code.0, code.1.log()) };
        let mut acknowledged = Vec::new();
        for outcome in join_all(writers).await {
            let (names, unanswered) = outcome.unwrap();
            assert_eq!(unanswered, 0, "with 429: {with_retry_after}\n{}", server.log());
            acknowledged.extend(names);
        }
        assert!(acknowledged.len() > 50, "{}", acknowledged.len());
        // The watch ended regularly.
        while watch.next().await.is_some() {}
        assert!(server.log().contains("connections_cut=0"), "{}", server.log());
        server.restart().await;
        let list = server.client().get(MAPS).await.json();
        let stored: Vec<&str> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|map| map["metadata"]["name"].as_str())
            .collect();
        let missing: Vec<_> = acknowledged.iter().filter(|name| !stored.contains(&name.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_server_refuses_new_requests_while_others_finish() {
    // The webhook responds when the test allows it. The server also creates config maps, which do not count.
    let (called, may_answer) = (Arc::<AtomicUsize>::default(), Arc::new(Semaphore::new(0)));
    let answer = {
        let (called, may_answer) = (called.clone(), may_answer.clone());
        move |review: Value| {
            let is_own = review["request"]["name"] != "kube-root-ca.crt";
            called.fetch_add(usize::from(is_own), Ordering::Relaxed);
            let may_answer = may_answer.clone();
            async move {
                if is_own {
                    may_answer.acquire().await.expect("the semaphore is open").forget();
                }
                json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                       "response": {"uid": review["request"]["uid"], "allowed": true}})
            }
        }
    };
    let hook = Hook::start(answer).await;
    let mut server = Server::start(flags(&["--shutdown-send-retry-after"])).await;
    let client = server.client().clone();
    let webhook = json!({"metadata": {"name": "slow"}, "webhooks": [{"name": "slow.example.com",
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
        "clientConfig": {"url": hook.url("/slow"), "caBundle": hook.ca_bundle()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}]}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(client.post(path, &webhook).await.status, 201);
    // Creations are fast until the webhook takes effect.
    let slow = {
        let (client, called) = (client.another(), called.clone());
        tokio::spawn(async move {
            for n in 0.. {
                let made = client.post(MAPS, &json!({"metadata": {"name": format!("m{n}")}})).await;
                if called.load(Ordering::Relaxed) > 0 || made.status != 201 {
                    return made;
                }
            }
            unreachable!()
        })
    };
    reaches(&called, 1).await;
    let slow_again = {
        let client = client.another();
        tokio::spawn(async move { client.post(MAPS, &json!({"metadata": {"name": "last"}})).await })
    };
    reaches(&called, 2).await;
    let ends = tokio::task::spawn_blocking(move || (server.terminate(), server));
    let begun = Instant::now();
    let refused = loop {
        // The server serves requests until it has received the signal.
        let reply = client.another().get("/api/v1/namespaces").await;
        if reply.status != 200 {
            break reply;
        }
        assert!(begun.elapsed() < PATIENCE, "requests are still served");
    };
    assert_eq!(refused.status, 429, "{}", refused.text());
    let header = |name: &str| refused.header_all(name).join("|");
    assert_eq!((header("retry-after").as_str(), header("connection").as_str()), ("5", "close"));
    assert_eq!(refused.text(), "The apiserver is shutting down, please try again later.\n");
    assert_eq!(client.another().get("/livez").await.status, 200);
    assert_eq!(client.another().get("/readyz").await.status, 500);
    may_answer.add_permits(100);
    assert_eq!(slow_again.await.unwrap().status, 201);
    assert_eq!(slow.await.unwrap().status, 201);
    assert_eq!(ends.await.unwrap().0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_flags_take_effect_in_every_answer() {
    let server = Server::start(flags(&[
        "--strict-transport-security-directives=max-age=31536000,includeSubDomains",
        "--cors-allowed-origins=//example\\.com(:|$)",
        "--tls-min-version=VersionTLS13",
        "--allow-metric-labels=apiserver_request_total,resource='configmaps'",
    ]))
    .await;
    let client = server.client();
    for (method, path, origin, status, allowed) in [
        ("GET", "/api", "https://example.com", 200, "https://example.com"),
        ("OPTIONS", MAPS, "https://example.com:1", 204, "https://example.com:1"),
        ("OPTIONS", MAPS, "https://example.org", 405, ""),
        ("GET", "/nothing", "https://example.org", 404, ""),
    ] {
        let reply = client.send(method, path, &[("origin", origin)], b"").await;
        let header = |name: &str| reply.header_all(name).join("|");
        assert_eq!(
            (reply.status, header("access-control-allow-origin").as_str()),
            (status, allowed),
            "{path} {origin}"
        );
        assert_eq!(header("strict-transport-security"), "max-age=31536000; includeSubDomains");
    }
    assert_eq!(client.get("/api/v1/pods").await.status, 200);
    assert_eq!(client.get(MAPS).await.status, 200);
    let page = client.get("/metrics").await.text();
    let totals: Vec<&str> =
        page.lines().filter(|line| line.starts_with("apiserver_request_total{")).collect();
    let has = |resource: &str| totals.iter().any(|line| line.contains(&format!("resource=\"{resource}\"")));
    assert_eq!([has("configmaps"), has("unexpected"), has("pods")], [true, true, false], "{totals:?}");
    let flagz = client.send("GET", "/flagz", &[("accept", "text/plain")], b"").await;
    assert!(
        flagz.status == 200 && flagz.text().contains("max-age=31536000,includeSubDomains"),
        "{}",
        flagz.text()
    );
    assert!(
        client.send("GET", "/statusz", &[("accept", "*/*")], b"").await.text().contains("Binary version")
    );
    assert_eq!(client.anonymous().get("/flagz").await.status, 403);
    let level = client.send("PUT", "/debug/flags/v", &[], b"4").await;
    assert_eq!((level.status, level.text().trim()), (200, "successfully set klog.logging.verbosity to 4"));
    assert_eq!(client.send("PUT", "/debug/flags/v", &[], b"much").await.status, 400);
    assert_eq!(client.anonymous().send("PUT", "/debug/flags/v", &[], b"4").await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_manager_is_notified_of_start_and_end() {
    let directory = TempDir::new();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let hear = async || {
        let mut message = [0; 64];
        let length =
            tokio::time::timeout(tests::PATIENCE, manager.recv(&mut message)).await.unwrap().unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let mut child = tokio::process::Command::new(tests::server::binary())
        .arg(format!("--data-dir={}", directory.path().display()))
        .arg("--secure-port=free")
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "100000")
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    assert_eq!(hear().await, "READY=1\n");
    for _ in 0..3 {
        assert_eq!(hear().await, "WATCHDOG=1\n");
    }
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut heard = hear().await;
    while heard == "WATCHDOG=1\n" {
        heard = hear().await;
    }
    assert_eq!(heard, "STOPPING=1\n");
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_files_are_served_if_the_operator_enables_it() {
    let server = Server::start(flags(&["--enable-logs-handler=true"])).await;
    let client = server.client();
    for (path, accept, want) in [
        ("/logs/", "*/*", 200),
        ("/logs/none-such", "*/*", 404),
        ("/logs/../../../etc/passwd", "*/*", 404),
        ("/logs/none-such", "application/json", 406),
    ] {
        let reply = client.send("GET", path, &[("accept", accept)], b"").await;
        assert_eq!(reply.status, want, "{path} {accept}: {}", reply.text());
    }
    assert_eq!(client.anonymous().get("/logs/").await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beta_version_serves_the_objects_of_the_stable_version() {
    let beta = "/apis/networking.k8s.io/v1beta1/ipaddresses";
    let usual = Server::start_upstream().await;
    assert_eq!(usual.client().get(beta).await.status, 404, "the beta version is disabled by default");
    let server = Server::start(Options {
        flags: vec!["--runtime-config=networking.k8s.io/v1beta1=true".to_owned()],
        ..Options::default()
    })
    .await;
    let client = server.client();
    let address = json!({"metadata": {"name": "10.1.2.3"},
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "a"}}});
    let made = client.post(beta, &address).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let warning = made.header_all("warning").join("");
    assert!(warning.contains("is deprecated in v1.34+, unavailable in v1.37+"), "{warning}");
    assert_eq!(made.json()["apiVersion"], "networking.k8s.io/v1beta1");
    let stable = client.get("/apis/networking.k8s.io/v1/ipaddresses/10.1.2.3").await.json();
    assert_eq!((&stable["apiVersion"], &stable["spec"]), (&json!("networking.k8s.io/v1"), &address["spec"]));
    let page = client.get("/metrics").await.text();
    let series = "apiserver_requested_deprecated_apis{group=\"networking.k8s.io\",removed_release=\"1.37\",\
                  resource=\"ipaddresses\",subresource=\"\",version=\"v1beta1\"} 1";
    assert!(page.lines().any(|line| line == series), "{series}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_closed_by_chance_so_that_clients_find_other_servers() {
    let server = Server::start(flags(&["--goaway-chance=0.02"])).await;
    let client = server.client();
    let mut ended = 0;
    for _ in 0..20 {
        let stream = client.connect_http2().await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        let connection = tokio::spawn(connection);
        for _ in 0..200 {
            let request = hyper::Request::get("https://server/livez").body(String::new()).unwrap();
            match sender.send_request(request).await {
                Ok(answer) => assert_eq!(answer.status(), 200),
                Err(error) => {
                    // The connection ended between two requests, or before a request was accepted, so the
                    // client may send the request again.
                    let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    let is_untaken = why.contains("not a result of an error");
                    assert!(error.is_closed() || error.is_canceled() || is_untaken, "{error}: {why}");
                    ended += 1;
                    break;
                }
            }
        }
        connection.abort();
    }
    assert!(ended > 10, "{ended} of 20 connections with 200 requests ended; 98 % are expected");
}

/// Returns the maximum number of streams of an HTTP/2 connection, from the server's SETTINGS (RFC 9113,
/// 6.5.2).
async fn streams_offered(server: &Server) -> Option<u32> {
    const SETTINGS: u8 = 4;
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    let mut stream = server.client().connect_http2().await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], SETTINGS, "the first frame is not SETTINGS");
    let mut settings = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    stream.read_exact(&mut settings).await.unwrap();
    let entries = settings.chunks(6).map(|entry| {
        let name = u16::from_be_bytes([entry[0], entry[1]]);
        (name, u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]))
    });
    entries.filter(|(name, _)| *name == MAX_CONCURRENT_STREAMS).map(|(_, value)| value).next()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_learn_the_maximum_number_of_concurrent_streams_per_connection() {
    for (given, want) in [("0", 1000), ("-1", 1000), ("7", 7), ("99999999999", u32::MAX)] {
        let flag = format!("--http2-max-streams-per-connection={given}");
        let server = Server::start(flags(&[&flag, "--controllers="])).await;
        assert_eq!(streams_offered(&server).await, Some(want), "{given}");
        assert_eq!(server.client().get("/readyz").await.status, 200, "{given}");
    }
}
