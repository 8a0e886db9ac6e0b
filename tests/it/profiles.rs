//! Profiles of the server (docs/api/operations.md#debugging), taken while it works.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::json;
use tests::client::Reply;
use tests::{Options, Server};

/// Nobody's rights come with this user.
const TOKENS: &str = "stranger-token,stranger,1\n";

/// The bytes of a profile that has these words; they are strings of its table.
fn holds(reply: &Reply, file: &str, words: &[&str]) {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header_all("content-type"), ["application/octet-stream"]);
    assert_eq!(reply.header_all("content-disposition"), [format!("attachment; filename=\"{file}\"")]);
    let mut profile = Vec::new();
    GzDecoder::new(&*reply.body).read_to_end(&mut profile).expect("it is compressed");
    for word in words {
        let found = profile.windows(word.len()).any(|bytes| bytes == word.as_bytes());
        assert!(found, "{word} is not in {file}: {}", String::from_utf8_lossy(&profile));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profiles_are_taken_under_load_for_who_may_see_them() {
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
    // Its signals interrupt what the server does, which goes on.
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
