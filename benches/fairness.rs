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
use std::rc::Rc;
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

/// Sends one request after the other until `is_over`. Says how many were served, and how many refused.
async fn flood(server: &Server, is_over: &Cell<bool>, make: impl Fn(u64) -> Vec<u8>) -> [u64; 2] {
    let client = server.client().anonymous();
    let mut connection = Connection::open(&client).await;
    let mut counts = [0, 0];
    let mut n = 0;
    while !is_over.get() {
        n += 1;
        match connection.exchange(&make(n), |_| {}).await {
            Ok(answer) if answer.status < 300 => counts[0] += 1,
            Ok(_) => {
                counts[1] += 1;
                // As clients do that are asked to come back later, though earlier than they are told.
                tokio::time::sleep(PAUSE).await;
            }
            Err(_) => connection = Connection::open(&client).await,
        }
    }
    counts
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

fn report(part: &str, (latencies, refused): &(Vec<Duration>, u64), flooded: [u64; 2]) {
    let cells = [
        time(quantile(latencies, 0.5)),
        time(quantile(latencies, 0.99)),
        latencies.len().to_string(),
        refused.to_string(),
        flooded[0].to_string(),
        flooded[1].to_string(),
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
        report(&format!("{part}, calm"), &calm, [0, 0]);
        let is_over = Rc::new(Cell::new(false));
        let lists =
            (0..connections).map(|_| flood(&server, &is_over, |_| request("GET", PODS, "flood-token", "")));
        let writes = (0..connections).map(|of| {
            let make = move |n| {
                request("POST", CONFIG_MAPS, "flood-token", &data::config_map(&format!("f{of}-{n}")))
            };
            flood(&server, &is_over, make)
        });
        let measured = async {
            let measured = small(&server, "flood", length).await;
            is_over.set(true);
            measured
        };
        let (flooded, measured) = runtime.run(join(join(join_all(lists), join_all(writes)), measured));
        let all = flooded.0.iter().chain(&flooded.1);
        let total = all.fold([0, 0], |[served, refused], counts| [served + counts[0], refused + counts[1]]);
        report(&format!("{part}, flood"), &measured, total);
    }
}
