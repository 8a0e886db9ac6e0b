//! Hostile requests for the test features: each request gets a precise error and has no effect.

use serde_json::{Value, json};

use super::{PATHS, control, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_bodies_on_test_paths_are_refused() {
    let server = server(&[]).await;
    let client = server.client();
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(50_000), close.repeat(50_000));
    let bodies = [
        "{".to_owned(),
        "nonsense".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        "1".to_owned(),
        "\"text\"".to_owned(),
        "{\"unknown\": 1}".to_owned(),
        "{\"\\ud800\": 1}".to_owned(),
        "{} {}".to_owned(),
        "\u{feff}{}".to_owned(),
        deep("[", "]"),
        deep("{\"a\":", "}"),
        format!("{{\"match\": {}}}", deep("[", "]")),
        format!("{{\"time\": \"{}\"}}", "9".repeat(1_000_000)),
        format!("{{\"advance\": \"{}h\"}}", "9".repeat(1_000_000)),
        format!("{{\"match\": {{\"names\": [\"{}\"]}}, \"error\": {{\"code\": 500}}}}", "*a".repeat(100_000)),
        "{\"match\": {\"verbs\": \"get\"}, \"error\": {\"code\": 500}}".to_owned(),
        "{\"match\": {}, \"error\": {\"code\": 200}}".to_owned(),
        "{\"match\": {}, \"error\": {\"code\": 99999}}".to_owned(),
        "{\"error\": {\"code\": -1}}".to_owned(),
        "{\"error\": {\"code\": 500, \"retryAfterSeconds\": -1}}".to_owned(),
        "{\"error\": {\"code\": 500}, \"close\": \"before\"}".to_owned(),
        "{\"close\": \"during\"}".to_owned(),
        "{\"skip\": -1, \"close\": \"before\"}".to_owned(),
        "{\"count\": 1.5, \"close\": \"before\"}".to_owned(),
        "{\"delay\": \"-1s\"}".to_owned(),
        "{\"staleAt\": \"tomorrow\"}".to_owned(),
        "{\"staleAt\": 7}".to_owned(),
        "{\"watch\": {\"effect\": \"resume\"}}".to_owned(),
        "{\"watch\": {\"effect\": \"close\", \"for\": \"1s\"}}".to_owned(),
        "{\"watch\": {\"effect\": \"stall\", \"for\": \"-1s\"}}".to_owned(),
        "{\"effect\": \"explode\"}".to_owned(),
        "{\"effect\": \"close\", \"for\": \"1s\"}".to_owned(),
        "{\"for\": \"-1s\"}".to_owned(),
        "{\"for\": \"1h\"}".to_owned(),
    ];
    for (method, path) in PATHS.into_iter().filter(|(method, _)| matches!(*method, "PUT" | "POST")) {
        if path.starts_with("/snapshots") {
            continue;
        }
        for body in &bodies {
            let reply = client.send(method, &format!("/testing{path}"), &[], body.as_bytes()).await;
            let shown = reply.text();
            assert!(
                matches!(reply.status, 400 | 413),
                "{method} {path} {body:.80}: {} {shown}",
                reply.status
            );
            assert!(shown.len() < 4096, "{method} {path} {body:.80}: an error of {} bytes", shown.len());
        }
    }
    for bytes in [&b"\xff\xfe"[..], b"\0", b"{\"time\": \"\xff\"}"] {
        assert_eq!(client.send("PUT", "/testing/clock", &[], bytes).await.status, 400);
    }
    let large = vec![b' '; 4 << 20];
    assert_eq!(client.send("POST", "/testing/faults", &[], &large).await.status, 413);

    assert_eq!(control(client, "GET", "/faults", Value::Null).await, json!({"items": []}));
    assert_eq!(control(client, "GET", "/clock", Value::Null).await["ahead"], "0s");
    assert!(!server.log().contains("panic"), "{}", server.log());
}

#[tokio::test]
async fn unknown_test_paths_and_methods_are_refused() {
    let server = server(&[]).await;
    let client = server.client();
    for (method, path, want) in [
        ("GET", "/unknown", 404),
        ("GET", "/clock/", 404),
        ("GET", "/clock/x", 404),
        ("GET", "//clock", 404),
        ("GET", "/faults/0", 404),
        ("GET", "/faults/-1", 404),
        ("GET", "/faults/99999999999999999999999", 404),
        ("DELETE", "/faults/x", 404),
        ("GET", "/faults/1/x", 404),
        ("GET", "/snapshots/a/b/c", 404),
        ("DELETE", "/snapshots/absent", 404),
        ("PATCH", "/clock", 405),
        ("POST", "/clock", 405),
        ("PUT", "/faults", 405),
        ("PUT", "/faults/1", 405),
        ("GET", "/quiescence", 405),
        ("POST", "/requests", 405),
        ("POST", "/snapshots", 405),
        ("GET", "/snapshots/a", 405),
        ("GET", "/snapshots/a/restore", 405),
        ("DELETE", "/watches", 405),
        ("DELETE", "", 405),
    ] {
        let reply = client.send(method, &format!("/testing{path}"), &[], b"").await;
        assert_eq!(reply.status, want, "{method} {path}: {}", reply.text());
    }
    // This path only resembles the paths of the test features.
    assert_eq!(client.get("/testingx/clock").await.status, 404);
}
