//! Benchmark of flow control: what a small client notices of a flood.
//!
//! One client does a get, a list of ten objects and a create, again and again with a pause. Beside it, another user floods
//! the server with lists of a large collection and with writes, over many connections. Latencies of the small client are
//! told without the flood, with it under flow control, and with it under the two plain bounds of requests at once.
//!
//! Both users are ordinary ones, so they share a priority level and differ by their flow. `BENCH_SECONDS` sets the length of
//! each part. Load and server share the machine, and the flood's reading of lists takes as much of it as the server's
//! writing, so the ratio counts and not the times.

use std::cell::Cell;
use std::time::{Duration, Instant};

use benches::cluster::{CONFIG_MAPS, PODS, fill_pods};
use benches::load::Connection;
use benches::report::{quantile, row, time};
use benches::{Runtime, data, scale};
use futures_util::future::{join, join_all};
use tests::{Options, Server};

/// Between two rounds of the small client.
const PAUSE: Duration = Duration::from_millis(100);

/// Tokens of the two users.
const TOKENS: &str = "flood-token,flood,1\nsmall-token,small,2\n";

/// A complete request with a token.
fn request(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    let content = match body.len() {
        0 => String::new(),
        len => format!("content-type: application/json\r\ncontent-length: {len}\r\n"),
    };
    format!("{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n{content}\r\n{body}")
        .into_bytes()
}

fn start(runtime: &Runtime, is_shared: bool) -> Server {
    let server = runtime.run(Server::start(Options {
        files: vec![("tokens", TOKENS.to_owned())],
        flags: vec![
            "--token-auth-file=$dir/tokens".to_owned(),
            "--authorization-mode=AlwaysAllow".to_owned(),
            format!("--enable-priority-and-fairness={is_shared}"),
        ],
        ..Options::default()
    }));
    fill_pods(runtime, &server, scale(20_000, 50));
    server
}

/// How many requests of the flood were answered.
#[derive(Default)]
struct Counts {
    served: Cell<u64>,
    refused: Cell<u64>,
}

/// Sends one request after the other, until it is dropped: the last lists may take minutes.
async fn flood(server: &Server, counts: &Counts, make: impl Fn(u64) -> Vec<u8>) {
    let client = server.client().anonymous();
    let mut connection = Connection::open(&client).await;
    for n in 0.. {
        match connection.exchange(&make(n), |_| {}).await {
            Ok(answer) if answer.status < 300 => counts.served.update(|count| count + 1),
            Ok(_) => {
                counts.refused.update(|count| count + 1);
                // As clients do that are asked to come back later, though earlier than they are told.
                tokio::time::sleep(PAUSE).await;
            }
            Err(_) => connection = Connection::open(&client).await,
        }
    }
}

/// Latencies of the small client over a time, sorted, and how many of its requests were refused.
async fn small(server: &Server, part: &str, length: Duration) -> (Vec<Duration>, u64) {
    let mut connection = Connection::open(&server.client().anonymous()).await;
    let (mut latencies, mut refused) = (Vec::new(), 0);
    let began = Instant::now();
    for round in 0.. {
        if began.elapsed() > length {
            break;
        }
        let name = format!("small-{part}-{round}");
        for request in [
            request("GET", &format!("{PODS}/web-000001"), "small-token", ""),
            request("GET", &format!("{PODS}?limit=10"), "small-token", ""),
            request("POST", CONFIG_MAPS, "small-token", &data::config_map(&name)),
        ] {
            let sent = Instant::now();
            let answer = connection.exchange(&request, |_| {}).await.expect("the server answers");
            match answer.status {
                200 | 201 => latencies.push(sent.elapsed()),
                429 => refused += 1,
                other => panic!("{other}"),
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    latencies.sort_unstable();
    (latencies, refused)
}

fn report(part: &str, (latencies, refused): &(Vec<Duration>, u64), flooded: &Counts) {
    let cells = [
        time(quantile(latencies, 0.5)),
        time(quantile(latencies, 0.99)),
        latencies.len().to_string(),
        refused.to_string(),
        flooded.served.get().to_string(),
        flooded.refused.get().to_string(),
    ];
    row(part, &cells.each_ref().map(String::as_str));
}

fn main() {
    let runtime = Runtime::new();
    let seconds = std::env::var("BENCH_SECONDS").ok().and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(scale(20, 1)));
    let connections: u64 = scale(200, 4);
    row("small client", &["p50", "p99", "requests", "refused", "flood served", "flood refused"]);
    for (is_shared, part) in [(true, "flow control"), (false, "plain bounds")] {
        let server = start(&runtime, is_shared);
        let calm = runtime.run(small(&server, "calm", length));
        report(&format!("{part}, calm"), &calm, &Counts::default());
        let counts = Counts::default();
        let lists =
            (0..connections).map(|_| flood(&server, &counts, |_| request("GET", PODS, "flood-token", "")));
        let writes = (0..connections).map(|of| {
            let make = move |n| {
                request("POST", CONFIG_MAPS, "flood-token", &data::config_map(&format!("f{of}-{n}")))
            };
            flood(&server, &counts, make)
        });
        let flooding = join(join_all(lists), join_all(writes));
        let measured = std::thread::scope(|threads| {
            let (over, until_over) = tokio::sync::oneshot::channel();
            // On a thread of its own, as its client would be: it does not wait for the flood's reading.
            let measured = threads.spawn(|| {
                let measured = Runtime::new().run(small(&server, "flood", length));
                let _ = over.send(());
                measured
            });
            runtime.run(async {
                tokio::select! {
                    _ = until_over => {}
                    _ = flooding => {}
                }
            });
            measured.join().expect("it measures")
        });
        report(&format!("{part}, flood"), &measured, &counts);
    }
}
