//! Hostile input: every malformed or excessive request gets an error, and the server keeps running.

use std::fmt::Write as _;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde_json::json;
use tests::{Client, Options, PATIENCE, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::fixture::{Fixture, agrees, names, outcome, report, shared};
use crate::support::Random;

/// Maximum memory of the server after all these requests, in KiB; a request body has at most 3 MiB, and few
/// are processed at a time.
const RSS_MAX_KIB: u64 = 600 * 1024;

async fn fixture(topic: &str) -> Fixture {
    static SLOT: Mutex<Weak<Server>> = Mutex::const_new(Weak::new());
    Fixture::on(shared(&SLOT, Options::default()).await, topic).await
}

/// Checks that the server runs, is healthy and uses little memory, and that no handler has panicked.
async fn unharmed(fixture: &Fixture) {
    assert_eq!(fixture.client.another().get("/readyz").await.text(), "ok");
    let log = fixture.server().log();
    assert!(!log.contains("panic"), "{log}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", fixture.server().pid())).unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let rss: u64 = rss.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(rss < RSS_MAX_KIB, "{rss} KiB");
}

/// Sends bytes unchanged and returns everything received until the server closes.
async fn raw(client: &Client, bytes: &[u8]) -> String {
    let mut stream = client.connect().await.expect("the server accepts connections");
    // The server may close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the server closes");
    String::from_utf8_lossy(&answer).into_owned()
}

fn request(fixture: &Fixture, line: &str, headers: &str, body: &str) -> Vec<u8> {
    let line = fixture.full(line);
    format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n{body}").into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_request_bodies_are_refused() {
    let fixture = fixture("bodies").await;
    fixture.make("$core/configmaps", &[json!({"metadata": {"name": "a"}, "data": {"k": "v"}})]).await;
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    let arrays = nested("[", "]");
    let objects = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let unclosed = "[".repeat(3_000_000);
    let mut members = String::new();
    let mut repeated = String::new();
    for n in 0..250_000 {
        let _ = write!(members, "\"{n:06}\":\"\",");
        repeated.push_str("\"a\":\"\",");
    }
    let (members, repeated) = (members.trim_end_matches(','), repeated.trim_end_matches(','));
    let wrap = |inner: &str| format!(r#"{{"metadata":{{"name":"x"}},{inner}}}"#);
    let digits = "9".repeat(1_000_000);
    let mut wrong = Vec::new();
    for (what, request, body, want) in [
        ("deep arrays", "POST $core/configmaps", arrays.clone(), "400 BadRequest: …"),
        ("deep objects", "POST $core/configmaps", objects.clone(), "4…"),
        ("deep and unclosed", "POST $core/configmaps", unclosed.clone(), "400 BadRequest: …"),
        (
            "deep inside a known field",
            "POST $core/configmaps",
            wrap(&format!("\"data\":{arrays}")),
            "400 BadRequest: …",
        ),
        (
            "deep inside an unknown field",
            "POST $core/configmaps?dryRun=All",
            wrap(&format!("\"what\":{arrays}")),
            "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): couldn't get \
             version/kind; json parse error: invalid character '[' exceeded max depth …",
        ),
        (
            "deep inside an unknown field, but not too deep",
            // Unknown fields are skipped without being kept.
            "POST $core/configmaps?dryRun=All",
            wrap(&format!("\"what\":{}{}", "[".repeat(9_000), "]".repeat(9_000))),
            "201 ConfigMap",
        ),
        (
            "deep inside a free-form field",
            "POST $apps/controllerrevisions",
            wrap(&format!("\"revision\":1,\"data\":{objects}")),
            "400 BadRequest: …",
        ),
        ("deep update", "PUT $core/configmaps/a", objects.clone(), "400 BadRequest: …"),
        ("deep merge patch", "PATCH $core/configmaps/a", objects.clone(), "400 BadRequest: …"),
        (
            "deep strategic patch",
            "PATCH $core/configmaps/a | Content-Type: application/strategic-merge-patch+json",
            objects.clone(),
            "400 BadRequest: …",
        ),
        (
            "deep JSON patch",
            "PATCH $core/configmaps/a | Content-Type: application/json-patch+json",
            format!(r#"[{{"op":"add","path":"/data/x","value":{arrays}}}]"#),
            "400 BadRequest: …",
        ),
        // Unknown fields of other bodies are skipped as well, at any depth.
        (
            "deep unknown options",
            "DELETE $core/configmaps/a",
            format!(r#"{{"dryRun":["All"],"what":{objects}}}"#),
            "200 Success",
        ),
        (
            "deep options",
            "DELETE $core/configmaps/a",
            format!(r#"{{"preconditions":{objects},"dryRun":{arrays}}}"#),
            "400 BadRequest: …",
        ),
        (
            "deep review",
            "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            wrap(&format!("\"spec\":{objects}")),
            "4…",
        ),
        (
            "a quarter of a million members",
            "POST $core/configmaps?dryRun=All",
            format!("{{\"metadata\":{{\"name\":\"x\"}},\"data\":{{{members}}}}}"),
            "201 ConfigMap",
        ),
        ("as many unknown ones", "POST $core/configmaps?dryRun=All", wrap(members), "201 ConfigMap"),
        (
            "as many unknown ones, strictly",
            "POST $core/configmaps?fieldValidation=Strict",
            wrap(members),
            "400 BadRequest: …",
        ),
        ("as many repeated ones", "POST $core/configmaps?dryRun=All", wrap(repeated), "201 ConfigMap"),
        (
            "as many repeated keys of a map",
            "POST $core/configmaps?dryRun=All",
            wrap(&format!("\"data\":{{{repeated}}}")),
            "201 ConfigMap",
        ),
        (
            "as many labels",
            "POST $core/configmaps?dryRun=All",
            format!("{{\"metadata\":{{\"name\":\"x\",\"labels\":{{{members}}}}}}}"),
            "201 ConfigMap",
        ),
        (
            "as many members of a patch",
            "PATCH $core/configmaps/a?dryRun=All",
            format!("{{\"data\":{{{members}}}}}"),
            "200 ConfigMap",
        ),
        (
            "as many repeated members of a patch",
            "PATCH $core/configmaps/a?dryRun=All",
            format!("{{{repeated}}}"),
            "200 ConfigMap",
        ),
        (
            "a very long number",
            "POST $apps/deployments",
            wrap(&format!("\"spec\":{{\"replicas\":{digits}}}")),
            "400 BadRequest: …",
        ),
        (
            "a very large exponent",
            "POST $apps/deployments",
            wrap("\"spec\":{\"replicas\":1e999999999}"),
            "400 BadRequest: …",
        ),
        (
            "a number below everything",
            "POST $apps/deployments",
            wrap("\"spec\":{\"replicas\":-99999999999999999999}"),
            "400 BadRequest: …",
        ),
        (
            "a very long name",
            "POST $core/configmaps",
            format!(r#"{{"metadata":{{"name":"{}"}}}}"#, "x".repeat(2_000_000)),
            "422 Invalid: …",
        ),
        ("half a surrogate", "POST $core/configmaps", r#"{"metadata":{"name":"\ud800"}}"#.to_owned(), "4…"),
        (
            "a control character",
            "POST $core/configmaps",
            "{\"metadata\":{\"name\":\"a\u{1}\"}}".to_owned(),
            "400 BadRequest: …",
        ),
        (
            "a zero",
            "POST $core/configmaps",
            r#"{"metadata":{"name":"a\u0000b"}}"#.to_owned(),
            "422 Invalid: …",
        ),
        (
            "a deep pointer",
            "PATCH $core/configmaps/a | Content-Type: application/json-patch+json",
            format!(r#"[{{"op":"add","path":"{}","value":1}}]"#, "/a".repeat(1_000_000)),
            "422 Invalid: …",
        ),
        (
            "a huge list of owners",
            "POST $core/configmaps?dryRun=All",
            format!(
                r#"{{"metadata":{{"name":"x","ownerReferences":[{}]}}}}"#,
                vec![r#"{"apiVersion":"v1","kind":"A","name":"n","uid":"u"}"#; 50_000].join(",")
            ),
            "201 ConfigMap",
        ),
        (
            "a huge list of finalizers",
            "POST $core/configmaps?dryRun=All",
            format!(
                r#"{{"metadata":{{"name":"x","finalizers":[{}]}}}}"#,
                vec![r#""example.com/f""#; 150_000].join(",")
            ),
            "…",
        ),
        (
            "a huge merge by key",
            "PATCH $core/pods/none | Content-Type: application/strategic-merge-patch+json",
            format!(
                r#"{{"spec":{{"containers":[{}]}}}}"#,
                (0..60_000).map(|n| format!(r#"{{"name":"c{n}"}}"#)).collect::<Vec<_>>().join(",")
            ),
            "404 NotFound: …",
        ),
    ] {
        let reply = tokio::time::timeout(PATIENCE, fixture.send(request, &body)).await;
        let Ok(reply) = reply else {
            wrong.push(format!("{what}: no answer within {PATIENCE:?}"));
            continue;
        };
        let got = outcome(&reply);
        if !agrees(&got, want) {
            wrong.push(format!("{what}: want {want}, got {}", got.chars().take(300).collect::<String>()));
        }
        if reply.body.len() > 4_000_000 + body.len() * 3 {
            wrong.push(format!("{what}: an answer of {} bytes", reply.body.len()));
        }
    }
    report(&wrong);
    unharmed(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_that_would_expand_enormously_are_refused() {
    let fixture = fixture("bombs").await;
    let filler = "x".repeat(500_000);
    fixture.make("$core/configmaps", &[json!({"metadata": {"name": "a"}, "data": {"k": filler}})]).await;
    // Each copy doubles the size of the metadata.
    let copies: Vec<_> = (0..40)
        .map(|n| json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/c{n}")}))
        .collect();
    let keyed: Vec<_> =
        (0..10_000).map(|_| json!({"op": "copy", "from": "/data/k", "path": "/data/n"})).collect();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": (0..2_000).map(|n| json!({"name": format!("c{n}"), "image": "i"})).collect::<Vec<_>>()}});
    fixture.make("$core/pods", &[pod]).await;
    let merges = json!({"spec": {"containers": (0..2_000).rev().map(|n| json!({"name": format!("c{n}"), "image": "j"})).collect::<Vec<_>>()}});
    for (what, request, body, want) in [
        (
            "copies of copies",
            "PATCH $core/configmaps/a | Content-Type: application/json-patch+json",
            json!(copies),
            &[413, 422][..],
        ),
        (
            "a great many copies",
            "PATCH $core/configmaps/a | Content-Type: application/json-patch+json",
            json!(keyed),
            &[413, 422],
        ),
        (
            "a long merge by key",
            "PATCH $core/pods/p?dryRun=All | Content-Type: application/strategic-merge-patch+json",
            merges,
            &[200, 422],
        ),
    ] {
        let reply =
            tokio::time::timeout(PATIENCE, fixture.send(request, &body.to_string())).await.expect(what);
        assert!(want.contains(&reply.status), "{what}: {}", outcome(&reply));
    }
    unharmed(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_urls_and_headers_are_refused() {
    let fixture = fixture("heads").await;
    let client = &fixture.client;
    let long = "x".repeat(60_000);
    let brackets = "(".repeat(20_000);
    let commas = ",".repeat(60_000);
    let terms = vec!["a=b"; 10_000].join(",");
    let mut wrong = Vec::new();
    for (what, line, headers, want) in [
        ("an escape that is none", "GET /api/v1/namespaces/%zz/pods", String::new(), "400"),
        ("bytes that are no text", "GET /api/v1/namespaces/%ff%fe/pods", String::new(), "400"),
        ("climbing dots", "GET /api/v1/namespaces/../../../etc/passwd", String::new(), "404"),
        ("escaped slashes", "GET $core/configmaps/..%2f..%2fsecrets%2fx", String::new(), "404"),
        ("a zero in a name", "GET $core/configmaps/a%00b", String::new(), "404"),
        ("only slashes", "GET /api/v1/////////", String::new(), ""),
        ("a long name", &format!("GET $core/configmaps/{long}"), String::new(), "4"),
        ("a long query", &format!("GET $core/configmaps?{long}={long}"), String::new(), ""),
        (
            "brackets",
            &format!("GET $core/configmaps?labelSelector=a%20in%20{brackets}"),
            String::new(),
            "400",
        ),
        ("commas", &format!("GET $core/configmaps?labelSelector={commas}"), String::new(), "400"),
        ("many terms", &format!("GET $core/configmaps?labelSelector={terms}"), String::new(), "200"),
        (
            "many field terms",
            &format!("GET $core/configmaps?fieldSelector={}", vec!["metadata.name!%3Da"; 3_000].join(",")),
            String::new(),
            "200",
        ),
        ("a garbled token", "GET $core/configmaps?continue=%ff%00%fe", String::new(), "400"),
        ("a huge limit", "GET $core/configmaps?limit=9223372036854775807", String::new(), "200"),
        (
            "a huge version",
            "GET $core/configmaps?resourceVersion=18446744073709551615&resourceVersionMatch=Exact",
            String::new(),
            "504",
        ),
        (
            "a version beyond numbers",
            "GET $core/configmaps?resourceVersion=18446744073709551616",
            String::new(),
            "400",
        ),
        (
            "a huge timeout",
            "GET $core/configmaps?watch=1&timeoutSeconds=-9223372036854775808",
            String::new(),
            "200",
        ),
        ("a huge header", "GET $core/configmaps", format!("X-Long: {}\r\n", "y".repeat(300_000)), "431"),
        ("a great many headers", "GET $core/configmaps", "A: b\r\n".repeat(20_000), "431"),
        ("a header without a name", "GET $core/configmaps", ": x\r\n".to_owned(), "400"),
        ("a header of raw bytes", "GET $core/configmaps", "Accept: \u{fffd}\u{1}\r\n".to_owned(), "4"),
        ("commas to accept", "GET $core/configmaps", format!("Accept: {}\r\n", ",".repeat(50_000)), ""),
        (
            "clauses to accept",
            "GET $core/configmaps",
            format!("Accept: {}\r\n", "a/b;q=0.1,".repeat(8_000)),
            "406",
        ),
        ("an odd weight", "GET $core/configmaps", "Accept: application/json;q=NaN\r\n".to_owned(), "200"),
        (
            "a token of many parts",
            "GET $core/configmaps",
            format!("Authorization: Bearer {}\r\n", "a.".repeat(30_000)),
            "",
        ),
        (
            "two lengths",
            "POST $core/configmaps",
            "Content-Length: 2\r\nContent-Length: 3\r\n".to_owned(),
            "400",
        ),
        ("a length below zero", "POST $core/configmaps", "Content-Length: -1\r\n".to_owned(), "400"),
        (
            "a length beyond numbers",
            "POST $core/configmaps",
            "Content-Length: 99999999999999999999999\r\n".to_owned(),
            "400",
        ),
        ("a method of its own", "BREW $core/configmaps", String::new(), "4"),
        ("a tunnel", "CONNECT example.com:443", String::new(), "4"),
        ("no path", "GET *", String::new(), "4"),
    ] {
        let answer = raw(client, &request(&fixture, line, &headers, "")).await;
        let got = answer.strip_prefix("HTTP/1.1 ").unwrap_or(&answer);
        if !got.starts_with(want) {
            wrong.push(format!("{what}: want {want}, got {:?}", got.chars().take(200).collect::<String>()));
        }
    }
    report(&wrong);
    unharmed(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_with_contradictory_framing_are_refused() {
    let fixture = fixture("frames").await;
    let json = "Content-Type: application/json\r\n";
    let chunked = format!("{json}Transfer-Encoding: chunked\r\n");
    let good = fixture.full(r#"{"metadata":{"name":"framed"}}"#);
    let mut wrong = Vec::new();
    for (what, headers, body, want) in [
        (
            "chunks as they should be",
            chunked.clone(),
            format!("{:x}\r\n{good}\r\n0\r\n\r\n", good.len()),
            "201",
        ),
        ("chunks of no size", chunked.clone(), "zz\r\n{}\r\n0\r\n\r\n".to_owned(), "400"),
        ("a chunk beyond numbers", chunked.clone(), "fffffffffffffffff\r\n{}\r\n0\r\n\r\n".to_owned(), "400"),
        ("a chunk without its end", chunked.clone(), "2\r\n{}{}\r\n0\r\n\r\n".to_owned(), "400"),
        (
            "a chunk with endless extensions",
            chunked.clone(),
            format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(200_000)),
            "4",
        ),
        (
            "both framings",
            format!("{json}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n"),
            "0\r\n\r\n".to_owned(),
            "4",
        ),
        ("an unknown encoding", format!("{json}Transfer-Encoding: gzip\r\n"), "{}".to_owned(), "4"),
        (
            "more chunks than a body may have",
            chunked.clone(),
            format!("{}0\r\n\r\n", format!("10000\r\n{}\r\n", " ".repeat(65_536)).repeat(50)),
            "413",
        ),
    ] {
        let answer = raw(&fixture.client, &request(&fixture, "POST $core/configmaps", &headers, &body)).await;
        let got = answer.strip_prefix("HTTP/1.1 ").unwrap_or(&answer);
        if !got.starts_with(want) {
            wrong.push(format!("{what}: want {want}, got {:?}", got.chars().take(200).collect::<String>()));
        }
    }
    // The body is shorter than announced, and the client disconnects.
    for sent in ["", "{", &good] {
        let head =
            request(&fixture, "POST $core/configmaps", &format!("{json}Content-Length: 5000\r\n"), sent);
        let mut stream = fixture.client.connect().await.unwrap();
        stream.write_all(&head).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ =
            tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the server closes");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if !(answer.is_empty() || answer.starts_with("HTTP/1.1 400")) {
            wrong.push(format!("a truncated body: {answer}"));
        }
    }
    report(&wrong);
    // The server stored nothing of these bodies.
    assert_eq!(
        names(&fixture.get("$core/configmaps?fieldSelector=metadata.name!%3Dkube-root-ca.crt").await),
        ["framed"]
    );
    unharmed(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_not_utf8_are_refused() {
    let fixture = fixture("utf8").await;
    let path = fixture.full("$core/configmaps");
    for bytes in [
        &b"{\"metadata\":{\"name\":\"\xff\xfe\"}}"[..],
        b"{\"metadata\":{\"name\":\"a\"},\"data\":{\"\xc3\x28\":\"x\"}}",
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\0}\0",
        b"\0\0\0\0",
        b"{\"a\xed\xa0\x80\":1}",
    ] {
        let reply = fixture.client.send("POST", &path, &[("content-type", "application/json")], bytes).await;
        assert!(reply.status == 400 || reply.status == 422, "{bytes:?}: {}", outcome(&reply));
    }
    unharmed(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_disconnect_leave_no_state_behind() {
    let fixture = Fixture::on(Arc::new(Server::start(Options::default()).await), "gone").await;
    fixture
        .make("$core/configmaps", &[json!({"metadata": {"name": "a"}, "data": {"k": "x".repeat(200_000)}})])
        .await;
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", fixture.server().pid())).unwrap().count();
    let before = descriptors();
    for n in 0..40 {
        let request = match n % 4 {
            // The connection breaks in the middle of a head, of a body, of a watch, or before a long response
            // is read.
            0 => b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nX-Half".to_vec(),
            1 => request(&fixture, "POST $core/configmaps", "Content-Length: 100000\r\n", "{\"metadata\":"),
            2 => request(&fixture, "GET $core/configmaps?watch=1", "", ""),
            _ => request(&fixture, "GET $core/configmaps", "", "").repeat(20),
        };
        let mut stream = fixture.client.connect().await.unwrap();
        stream.write_all(&request).await.unwrap();
        stream.flush().await.unwrap();
        if n % 4 == 2 {
            let mut some = [0; 64];
            let _ = stream.read(&mut some).await;
        }
        // The socket is dropped without a close: the peer sees a reset or an early end.
        if n % 8 < 4 {
            stream.get_ref().0.set_zero_linger().unwrap();
        }
        drop(stream);
    }
    // The watches of closed connections end at the next event.
    fixture.send("PATCH $core/configmaps/a", r#"{"data":{"n":"1"}}"#).await;
    let deadline = Instant::now() + PATIENCE;
    while descriptors() > before {
        assert!(Instant::now() < deadline, "{} descriptors, {before} before", descriptors());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    unharmed(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_watchers_do_not_delay_others() {
    let fixture = fixture("dawdle").await;
    // Open connections that send only the beginning of a request, each with another length.
    let mut open = Vec::new();
    for n in 0..60 {
        let mut stream = fixture.client.connect().await.unwrap();
        let half = match n % 3 {
            0 => b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nX-Slow: ".to_vec(),
            1 => request(&fixture, "POST $core/configmaps", "Content-Length: 1000\r\n", "{"),
            _ => request(&fixture, "POST $core/configmaps", "Transfer-Encoding: chunked\r\n", "5\r\n{\"a"),
        };
        stream.write_all(&half).await.unwrap();
        stream.flush().await.unwrap();
        open.push(stream);
    }
    // Also open connections with an unfinished TLS handshake.
    let mut silent = Vec::new();
    for _ in 0..60 {
        silent.push(TcpStream::connect(&fixture.client.identity().address).await.unwrap());
    }
    let start = Instant::now();
    for n in 0..50 {
        fixture.make("$core/secrets", &[json!({"metadata": {"name": format!("m{n}")}})]).await;
    }
    assert_eq!(fixture.get("$core/secrets").await["items"].as_array().unwrap().len(), 50);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    drop((open, silent));
    unharmed(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_random_requests_do_not_affect_other_requests() {
    let fixture = fixture("garbage").await;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    // Send random bytes to the port, without TLS.
    for _ in 0..100 {
        let mut stream = TcpStream::connect(&fixture.client.identity().address).await.unwrap();
        let bytes = garbage(&mut random, 300);
        let _ = stream.write_all(&bytes).await;
        drop(stream);
    }
    // Send random bytes through TLS, without HTTP.
    for _ in 0..50 {
        let bytes = garbage(&mut random, 600);
        let mut stream = fixture.client.connect().await.unwrap();
        let _ = stream.write_all(&bytes).await;
        let _ = stream.write_all(b"\r\n\r\n").await;
        drop(stream);
    }
    // Send random requests.
    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    let words = [
        "api",
        "apis",
        "v1",
        "apps",
        "namespaces",
        &fixture.ns,
        "pods",
        "configmaps",
        "watch",
        "status",
        "scale",
        "x",
        "",
        "%2e",
        "..",
        "rbac.authorization.k8s.io",
        "roles",
        "proxy",
        "openapi",
        "v3",
        "healthz",
    ];
    let parameters = [
        "watch=0",
        "limit=",
        "limit=1",
        "continue=abc",
        "labelSelector=a%20in",
        "fieldSelector=x",
        "dryRun=All",
        "dryRun=x",
        "pretty",
        "timeout=1x",
        "resourceVersion=0",
        "resourceVersion=x",
        "fieldValidation=Strict",
        "timeoutSeconds=-1",
    ];
    let bodies = [
        "",
        "{}",
        "[]",
        "null",
        "1",
        "\"x\"",
        "{\"metadata\":{}}",
        "{\"metadata\":null}",
        "{\"metadata\":[]}",
        "{\"spec\":{\"containers\":[null]}}",
        "{\"kind\":\"Status\"}",
        "[{\"op\":\"add\"}]",
        "{\"$patch\":\"delete\"}",
        "{\"metadata\":{\"name\":\"x\",\"labels\":{\"a\":null}}}",
        "{\"metadata\":{\"name\":\"x\"},\"spec\":{\"template\":{\"spec\":{\"containers\":[{}]}}}}",
    ];
    let types = [
        "application/json",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "text/plain",
        "application/yaml",
    ];
    let mut answers = 0;
    for _ in 0..3_000 {
        let method = pick(&mut random, &methods);
        let mut path = String::new();
        // The namespace of the other tests on this server must survive.
        let start = if random.below(2) == 0 { fixture.full("/api/v1/namespaces/$ns") } else { String::new() };
        path.push_str(&start);
        for _ in 0..random.below(6) {
            path.push('/');
            path.push_str(pick(&mut random, &words));
        }
        if path.is_empty() {
            path.push('/');
        }
        for n in 0..random.below(3) {
            path.push(if n == 0 { '?' } else { '&' });
            path.push_str(pick(&mut random, &parameters));
        }
        if path.contains("/watch") && !path.contains("timeoutSeconds")
            || method == "DELETE" && path.ends_with(&fixture.ns)
        {
            continue;
        }
        let headers = [("content-type", pick(&mut random, &types))];
        let reply = tokio::time::timeout(
            PATIENCE,
            fixture.client.send(method, &path, &headers, pick(&mut random, &bodies).as_bytes()),
        )
        .await;
        let reply = reply.unwrap_or_else(|_| panic!("no answer to {method} {path}"));
        assert!(
            reply.status < 500 || reply.status == 504 || !reply.text().contains("panic"),
            "{method} {path}: {}",
            reply.text()
        );
        answers += 1;
    }
    assert!(answers > 2_000);
    unharmed(&fixture).await;
}

/// Returns a random element of `from`.
fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[usize::try_from(random.below(from.len() as u64)).unwrap()]
}

/// Returns fewer than `most` random bytes.
fn garbage(random: &mut Random, most: u64) -> Vec<u8> {
    (0..random.below(most)).map(|_| random.next().to_le_bytes()[0]).collect()
}
