//! Profiles of the server (docs/api/operations.md#debugging), taken while it serves requests.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::json;
use tests::client::Reply;
use tests::{Options, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// A user without any permissions.
const TOKENS: &str = "stranger-token,stranger,1\n";

/// Checks that a profile contains these words in its string table.
fn holds(reply: &Reply, file: &str, words: &[&str]) {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header_all("content-type"), ["application/octet-stream"]);
    assert_eq!(reply.header_all("content-disposition"), [format!("attachment; filename=\"{file}\"")]);
    let mut profile = Vec::new();
    GzDecoder::new(&*reply.body).read_to_end(&mut profile).expect("the profile is compressed with gzip");
    for word in words {
        let found = profile.windows(word.len()).any(|bytes| bytes == word.as_bytes());
        assert!(found, "{word} is not in {file}: {}", String::from_utf8_lossy(&profile));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profiles_under_load_are_served_to_permitted_users() {
    let server = Server::start(Options {
        flags: vec!["--token-auth-file=$dir/tokens.csv".to_owned()],
        files: vec![("tokens.csv", TOKENS.to_owned())],
        ..Options::default()
    })
    .await;
    let client = server.client();
    let stranger = client.with_token("stranger-token");
    for path in
        ["/debug/pprof/", "/debug/pprof/profile?seconds=1", "/debug/pprof/heap", "/debug/pprof/symbol"]
    {
        assert_eq!(stranger.get(path).await.status, 403, "{path}");
    }

    let profile = |seconds: u32| {
        let client = client.another();
        async move { client.get(&format!("/debug/pprof/profile?seconds={seconds}")).await }
    };
    let taken = tokio::spawn(profile(3));
    // The signals of the profiler interrupt the server's work, which must continue.
    let mut made = 0;
    while !taken.is_finished() {
        let map = json!({"metadata": {"name": format!("m{made}")}, "data": {"k": "v"}});
        let reply = client.post("/api/v1/namespaces/default/configmaps", &map).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        made += 1;
        if made == 20 {
            let busy = profile(1).await;
            let why = "Could not enable CPU profiling: cpu profiling already in use\n";
            assert_eq!((busy.status, &*busy.text()), (500, why));
        }
    }
    assert!(made > 20, "{made} objects in 3 seconds");
    holds(&taken.await.unwrap(), "profile", &["samples", "nanoseconds", "cluster-apiserver", "tokio::"]);
    for file in ["heap", "allocs"] {
        holds(&client.get(&format!("/debug/pprof/{file}")).await, file, &["inuse_space", "alloc_space"]);
    }

    assert_eq!(client.get("/debug/pprof/symbol").await.text(), "num_symbols: 1\n");
    let named = client.send("POST", "/debug/pprof/symbol", &[], b"0x1+x+").await.text();
    assert_eq!(named, "num_symbols: 1\n");
    assert_eq!(client.get("/debug/pprof/goroutine").await.status, 404);
}

/// Sends a request to a debug socket, and returns the head and the body of the response.
async fn send_to_socket(socket: &Path, request: &str) -> (String, String) {
    let mut stream = UnixStream::connect(socket).await.expect("the server listens");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_owned(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_debug_socket_needs_no_credential() {
    let mut server = Server::start(Options {
        flags: ["--debug-socket-path=$dir/debug.sock", "--profiling=false"].map(str::to_owned).to_vec(),
        ..Options::default()
    })
    .await;
    let socket = server.data_dir().join("debug.sock");
    assert_eq!(server.client().get("/debug/pprof/").await.status, 404);
    let close = "Host: h\r\nConnection: close\r\n";
    for (request, status, words) in [
        (format!("GET /debug/pprof/ HTTP/1.1\r\n{close}\r\n"), "200", "where processor time is spent"),
        (format!("GET /debug/pprof/heap HTTP/1.1\r\n{close}\r\n"), "200", ""),
        (format!("GET /debug/pprof/profile?seconds=1 HTTP/1.1\r\n{close}\r\n"), "200", ""),
        (format!("GET /debug/pprof/symbol HTTP/1.1\r\n{close}\r\n"), "200", "num_symbols: 1\n"),
        (
            format!("PUT /debug/flags/v HTTP/1.1\r\n{close}Content-Length: 1\r\n\r\n2"),
            "200",
            "verbosity to 2\n",
        ),
        (
            format!("PUT /debug/flags/v HTTP/1.1\r\n{close}Content-Length: 1\r\n\r\nx"),
            "400",
            "invalid syntax",
        ),
        (format!("PUT /debug/flags/v HTTP/1.1\r\n{close}Content-Length: 2000000\r\n\r\n"), "400", "too long"),
        // The socket serves no other paths.
        (format!("GET /api/v1/secrets HTTP/1.1\r\n{close}\r\n"), "404", "404 page not found\n"),
        (format!("GET /readyz HTTP/1.1\r\n{close}\r\n"), "404", "404 page not found\n"),
        ("\u{1}\r\n\r\n".to_owned(), "400", ""),
    ] {
        let (head, body) = send_to_socket(&socket, &request).await;
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")) && body.contains(words),
            "{request}: {head} {body}"
        );
    }
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&socket), 0o600);

    // The server replaces the socket of a killed process, and removes its own socket at its end.
    server.kill();
    assert!(socket.exists());
    server.restart().await;
    let (head, _) = send_to_socket(&socket, &format!("GET /debug/pprof/ HTTP/1.1\r\n{close}\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(server.terminate(), Some(0));
    assert!(!socket.exists());

    // The server keeps a file that is not a socket, and runs without a debug socket.
    std::fs::write(&socket, "mine").unwrap();
    server.restart().await;
    assert_eq!(server.client().get("/readyz").await.status, 200);
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "mine");
    server.until_logged("debug socket not opened", 1).await;
}
