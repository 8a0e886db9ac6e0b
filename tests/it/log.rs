//! The log lines that an operator needs: the address at the start, the user of each request, and the findings of the
//! start (docs/api/operations.md#the-log).

use std::time::{Duration, Instant};

use serde_json::json;
use tests::{Options, PATIENCE, Server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Waits until the log has `count` lines with a text, and returns them.
async fn lines(server: &Server, text: &str, count: usize) -> Vec<String> {
    let began = Instant::now();
    loop {
        let log = server.log();
        let found: Vec<String> = log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect();
        if found.len() >= count || began.elapsed() > PATIENCE {
            assert_eq!(found.len(), count, "{text} in {log}");
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_verbosity_each_request_logs_one_line_with_user_and_outcome() {
    let server = Server::start(Options {
        files: vec![("tokens", "secret-word,joe,1\n".to_owned())],
        flags: vec!["-v=4".to_owned(), "--token-auth-file=$dir/tokens".to_owned()],
        ..Options::default()
    })
    .await;
    let client = server.client().with_token("secret-word");
    for n in 0..50 {
        let headers = [("user-agent", "probe/1.0 (a test)")];
        let reply = client.send("GET", &format!("{MAPS}/one-{n}"), &headers, b"").await;
        assert_eq!(reply.status, 403, "{}", reply.text());
    }
    let logged = lines(&server, "agent=probe/1.0 (a test)", 50).await;
    for (n, line) in logged.iter().enumerate() {
        for part in [
            "request ",
            "verb=\"get\" ",
            &format!("path={MAPS}/one-{n} "),
            "user=joe ",
            "peer=127.0.0.1:",
            "status=403 ",
            "elapsed_us=",
            "resource=\"configmaps\"",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
    let log = server.log();
    // The log has a single line for a request. The log has no lines about frames, and no line with a token.
    assert_eq!(log.lines().filter(|line| line.contains("/one-7 ")).count(), 1);
    assert!(!log.contains(" h2::") && !log.contains("secret-word"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_startup_log_says_how_to_connect_and_whether_the_last_run_was_interrupted() {
    const RECOVERED: &str = "the store was not closed";
    let mut server = Server::start_upstream().await;
    let kubeconfig = server.kubeconfig();
    let connect = format!("connect=\"export KUBECONFIG={}\"", kubeconfig.display());
    lines(&server, &connect, 1).await;
    lines(&server, RECOVERED, 0).await;
    for n in 0..3 {
        let made = server.client().post(MAPS, &json!({"metadata": {"name": format!("m{n}")}})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    server.kill();
    server.restart().await;
    let said = lines(&server, RECOVERED, 1).await;
    assert!(said[0].contains("revision=") && said[0].contains("noted="), "{said:?}");
    assert_eq!(server.terminate(), Some(0));
    server.restart().await;
    lines(&server, &connect, 3).await;
    lines(&server, RECOVERED, 1).await;

    // The version is known if the program was built from a checkout.
    let version = server.client().get("/version").await.json();
    let text = |name: &str| version[name].as_str().unwrap_or_default().to_owned();
    if std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.git")).exists() {
        assert_eq!(text("gitCommit").len(), 40, "{version}");
        assert_eq!(text("buildDate").len(), "2026-01-01T00:00:00Z".len(), "{version}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_missing_segments_is_not_treated_as_new() {
    let mut server = Server::start_upstream().await;
    let made = server.client().post(MAPS, &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(server.terminate(), Some(0));
    let log = server.data_dir().join("log");
    let aside = server.data_dir().join("aside");
    // First remove only the segment, then all files of the log directory. The credentials and the files `profile` and
    // `defaults` next to the directory remain.
    for whole in [false, true] {
        let segments: Vec<_> = std::fs::read_dir(&log)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "segment"))
            .collect();
        assert_eq!(segments.len(), 1, "{segments:?}");
        let lost = if whole { &log } else { &segments[0] };
        std::fs::rename(lost, &aside).unwrap();
        let output = std::process::Command::new(tests::server::binary())
            .arg(format!("--data-dir={}", server.data_dir().display()))
            .args(["--naming=kubernetes", "--secure-port=free"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains("the store is missing: ") && text.contains("restore the store from a backup"),
            "{text}"
        );
        std::fs::rename(&aside, lost).unwrap();
    }
    server.restart().await;
    assert_eq!(server.client().get(&format!("{MAPS}/a")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_authorities_from_the_environment_are_reported_at_startup() {
    const SAID: &str = "CA certificates of the system not read";
    for (file, why) in [
        ("$dir/none.pem", "open $dir/none.pem: no such file or directory"),
        ("$dir/empty.pem", "$dir/empty.pem has no certificate"),
    ] {
        let server = Server::start(Options {
            files: vec![("empty.pem", "nothing\n".to_owned())],
            environment: vec![("SSL_CERT_FILE", file.to_owned())],
            ..Options::default()
        })
        .await;
        let why = format!("SSL_CERT_FILE: {}", why.replace("$dir", &server.data_dir().display().to_string()));
        let said = lines(&server, SAID, 1).await;
        assert!(said[0].contains(&why) && said[0].contains(" WARN "), "{why}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_401_and_403_are_explained_at_the_default_log_level() {
    let server = Server::start(Options {
        files: vec![("tokens", "secret-word,joe,1\n".to_owned())],
        flags: vec!["--token-auth-file=$dir/tokens".to_owned()],
        ..Options::default()
    })
    .await;
    let ask = async |token: &str, path: &str, id: &str, more: &[(&str, &str)]| {
        let headers: Vec<(&str, &str)> = [("audit-id", id)].into_iter().chain(more.iter().copied()).collect();
        server.client().with_token(token).send("GET", path, &headers, b"").await.status
    };
    assert_eq!(ask("wrong-word", &format!("{MAPS}?limit=1"), "first", &[]).await, 401);
    assert_eq!(ask("secret-word", &format!("{MAPS}/m"), "second", &[]).await, 403);
    assert_eq!(ask("secret-word", MAPS, "third", &[("impersonate-user", "ann")]).await, 403);
    for (id, text, parts) in [
        ("first", "request unauthenticated", [r#"reason="invalid bearer token""#, "verb=\"list\""]),
        (
            "second",
            "request forbidden",
            [
                r#"reason="User \"joe\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"default\": no authorizer allows it""#,
                "user=\"joe\"",
            ],
        ),
        ("third", "request forbidden", ["User \\\"joe\\\" cannot impersonate", "user=\"joe\""]),
    ] {
        let said = lines(&server, &format!("audit_id=\"{id}\""), 1).await;
        let path = if id == "second" { format!("path=\"{MAPS}/m\"") } else { format!("path=\"{MAPS}\"") };
        for part in [text, parts[0], parts[1], &path, "peer=\"127.0.0.1:"] {
            assert!(said[0].contains(part), "{part} is not in {}", said[0]);
        }
    }
    // A client that is refused repeatedly does not fill the log: the log gets a hundred lines, and then ten per second.
    let began = Instant::now();
    for _ in 0..300 {
        assert_eq!(ask("wrong-word", MAPS, "many", &[]).await, 401);
    }
    let log = server.until_logged("audit_id=\"many\"", 1).await;
    let count = log.lines().filter(|line| line.contains("audit_id=\"many\"")).count();
    let bound = 110 + 10 * began.elapsed().as_secs() as usize;
    assert!((1..=bound).contains(&count), "{count} of {bound}");
    assert!(!log.contains("wrong-word") && !log.contains("secret-word"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_verbosity_level_logs_the_documented_requests() {
    let mut server = Server::start_upstream().await;
    for (level, expected) in [
        (0, [false, false, false]),
        (1, [true, false, false]),
        (2, [true, true, false]),
        (3, [true, true, true]),
    ] {
        server.restart_with(&[format!("-v={level}").as_str()]).await;
        let client = server.client();
        let name = format!("level-{level}");
        let agent = format!("probe-{level}");
        let headers = [("user-agent", agent.as_str()), ("content-type", "application/json")];
        let map = json!({"metadata": {"name": name}}).to_string();
        let path = format!("{MAPS}/{name}");
        assert_eq!(client.send("GET", &path, &headers, b"").await.status, 404);
        assert_eq!(client.send("POST", MAPS, &headers, map.as_bytes()).await.status, 201);
        assert_eq!(client.send("GET", &path, &headers, b"").await.status, 200);
        // The end of the process writes the lines that are still queued.
        server.terminate();
        let log = server.log();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(&agent)).collect();
        let has = |part: &str| lines.iter().any(|line| line.contains(part));
        let found = [has("status=404"), has("status=201"), has("status=200")];
        assert_eq!(found, expected, "-v={level}: {lines:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_startup_log_names_version_and_commit() {
    let server = Server::start_upstream().await;
    let version = server.client().get("/version").await.json();
    let said = lines(&server, "connect=\"export KUBECONFIG=", 1).await;
    for (field, member) in [("version", "gitVersion"), ("commit", "gitCommit")] {
        let part = format!("{field}=\"{}\"", version[member].as_str().unwrap());
        assert!(said[0].contains(&part), "{part} is not in {}", said[0]);
    }
}
