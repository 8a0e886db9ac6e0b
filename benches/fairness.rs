//! Benchmark of flow control: the effect of a flood on a small client.
//!
//! ```text
//! this process: the small client ─┐
//! the flood, a separate process  ─┴─► server
//! ```
//!
//! In each turn, the small client sends a get, a list of ten objects and a create. A pause follows each turn.
//! At the same time, another user floods the server with lists of a large collection, and a third user floods
//! the server with writes. Each of these two users has many connections. The bench reports the latencies of
//! the small client without the flood, with the flood under flow control, and with the flood under the two
//! plain limits on concurrent requests.
//!
//! All clients are ordinary users, so all of them share a priority level, and each user has its own flow.
//! Each round has a part without the flood and a part with the flood. The bench reports the median of the
//! rounds, because the other load on the machine varies. `BENCH_SECONDS` sets the total length of all rounds
//! of a part. To simulate load from other machines, the server has half of the cores and the clients have the
//! other half. The flood has the lowest scheduling class, so it uses the cores of the clients only when the
//! small client is idle.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use benches::cluster::{CONFIG_MAPS, PODS, fill_pods};
use benches::load::Connection;
use benches::process::{Halves, cpu_time, yield_to_others};
use benches::report::{median, quantile, row, time};
use benches::{Runtime, data, scale};
use tests::client::Identity;
use tests::{Client, Options, Server};
use tokio::task::LocalSet;

/// Pause between two turns of the small client. Each turn has three requests.
const PAUSE: Duration = Duration::from_millis(50);

/// Time that a refused client of the flood waits before its next request.
const COMES_BACK: Duration = Duration::from_millis(100);

/// Pause before the measurement of each part. During the pause, the flood opens its connections and fills the
/// queues, and the last requests of the previous part end.
const SETTLES: Duration = Duration::from_secs(2);

/// Number of rounds. Each round measures every part once.
const ROUNDS: usize = 5;

/// Contents of the token file with the users.
const TOKENS: &str = "lists-token,lists,1\nwrites-token,writes,2\nsmall-token,small,3\n";

/// Environment variable that passes the path of the server's kubeconfig to the process of the flood.
const FLOOD: &str = "BENCH_FLOOD";

/// Returns a complete request with a token.
fn request(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    let content = match body.len() {
        0 => String::new(),
        len => format!("content-type: application/json\r\ncontent-length: {len}\r\n"),
    };
    format!("{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n{content}\r\n{body}")
        .into_bytes()
}

fn start(runtime: &Runtime, halves: &Halves, is_shared: bool) -> Server {
    let options = Options {
        files: vec![("tokens", TOKENS.to_owned())],
        flags: vec![
            "--token-auth-file=$dir/tokens".to_owned(),
            "--authorization-mode=AlwaysAllow".to_owned(),
            format!("--enable-priority-and-fairness={is_shared}"),
        ],
        ..Options::default()
    };
    let server = halves.on_servers(|| runtime.run(Server::start(options)));
    fill_pods(runtime, &server, scale(20_000, 50));
    server
}

/// Counts of the responses to the flood.
#[derive(Default)]
struct Counts {
    /// Number of bytes of lists. The client counts these bytes while they arrive, because the last lists are
    /// still incomplete when the flood ends.
    bytes: Cell<u64>,
    writes: Cell<u64>,
    refused: Cell<u64>,
}

/// Sends one request after the other until the caller drops the future.
async fn flood(client: Client, counts: Rc<Counts>, make: impl Fn(u64) -> Vec<u8>) {
    let mut connection = Connection::open(&client).await;
    for n in 0.. {
        let request = make(n);
        let is_list = request.starts_with(b"GET");
        let seen = |piece: &[u8]| {
            if is_list {
                counts.bytes.update(|bytes| bytes + piece.len() as u64);
            }
        };
        match connection.exchange(&request, seen).await {
            Ok(answer) if answer.status < 300 => counts.writes.update(|count| count + u64::from(!is_list)),
            Ok(_) => {
                counts.refused.update(|count| count + 1);
                // A refused client waits before its next request, but for a shorter time than the response
                // asks.
                tokio::time::sleep(COMES_BACK).await;
            }
            Err(_) => connection = Connection::open(&client).await,
        }
    }
}

/// Runs the flood until standard input ends, then prints the counts of its responses.
fn be_flood(kubeconfig: &Path) {
    yield_to_others();
    let identity = Identity::from_kubeconfig(kubeconfig).expect("the server has written it");
    let client = Client::new(identity).anonymous();
    let connections: u64 = scale(200, 4);
    let counts = Rc::<Counts>::default();
    let part = std::process::id();
    // Lists and writes have separate tasks. In a single task, the lists would leave no time for the writes,
    // because a list always has more bytes to read.
    let flooding = LocalSet::new();
    for of in 0..connections {
        let list = |_| request("GET", PODS, "lists-token", "");
        flooding.spawn_local(flood(client.another(), counts.clone(), list));
        let write = move |n| {
            let name = format!("f{part}-{of}-{n}");
            request("POST", CONFIG_MAPS, "writes-token", &data::config_map(&name))
        };
        flooding.spawn_local(flood(client.another(), counts.clone(), write));
    }
    let (over, until_over) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        let _ = over.send(());
    });
    Runtime::new().run(async {
        tokio::select! {
            _ = until_over => {}
            _ = flooding => {}
        }
    });
    let line = [counts.bytes.get(), counts.writes.get(), counts.refused.get()].map(|count| count.to_string());
    let _ = std::io::Write::write_all(&mut std::io::stdout(), (line.join(" ") + "\n").as_bytes());
}

fn start_flood(server: &Server) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("a bench knows its path"));
    command.args(std::env::args().skip(1)).env(FLOOD, server.kubeconfig());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the flood starts")
}

/// Ends the flood. Returns the counts of the flood: bytes of lists, writes, and refused requests.
fn end_flood(mut flood: Child) -> Vec<u64> {
    drop(flood.stdin.take());
    let mut line = String::new();
    let output = flood.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut line).expect("the flood says what it was answered");
    flood.wait().expect("the flood ends");
    line.split_whitespace().filter_map(|count| count.parse().ok()).collect()
}

/// Runs the small client for the time `length`. Returns the sorted latencies and the number of refused
/// requests.
async fn small(server: &Server, part: &str, length: Duration) -> (Vec<(usize, Duration)>, u64) {
    let mut connection = Connection::open(&server.client().anonymous()).await;
    let (mut latencies, mut refused) = (Vec::new(), 0);
    let began = Instant::now();
    for round in 0.. {
        if began.elapsed() > length {
            break;
        }
        let name = format!("small-{part}-{round}");
        for (kind, request) in [
            request("GET", &format!("{PODS}/web-000001"), "small-token", ""),
            request("GET", &format!("{PODS}?limit=10"), "small-token", ""),
            request("POST", CONFIG_MAPS, "small-token", &data::config_map(&name)),
        ]
        .into_iter()
        .enumerate()
        {
            let sent = Instant::now();
            let answer = connection.exchange(&request, |_| {}).await.expect("the server answers");
            match answer.status {
                200 | 201 => latencies.push((kind, sent.elapsed())),
                429 => refused += 1,
                other => panic!("{other}"),
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    latencies.sort_unstable_by_key(|(_, latency)| *latency);
    (latencies, refused)
}

/// Returns p50 and p99 of the latencies of the small client in a round. The first pair is for all requests,
/// and the other pairs are for each kind of request.
fn quantiles(latencies: &[(usize, Duration)]) -> [[Duration; 2]; 4] {
    [None, Some(0), Some(1), Some(2)].map(|selected| {
        let all = latencies.iter().filter(|(kind, _)| selected.is_none_or(|selected| *kind == selected));
        let of_kind: Vec<Duration> = all.map(|(_, latency)| *latency).collect();
        [0.5, 0.99].map(|share| quantile(&of_kind, share))
    })
}

/// The rounds of one part of the bench.
#[derive(Default)]
struct PartResults {
    quantiles: Vec<[[Duration; 2]; 4]>,
    refused: u64,
    /// Sums of the counts that [`end_flood`] returns.
    flooded: [u64; 3],
    flooded_for: Duration,
    busy: Duration,
}

impl PartResults {
    /// Prints a row with the results of all rounds. The total time of these rounds is `length`.
    fn report(&self, name: &str, length: Duration) {
        let middle = |kind: usize, share: usize| {
            time(median(self.quantiles.iter().map(|round| round[kind][share]).collect()))
        };
        let mut cells = vec![middle(0, 0), middle(0, 1)];
        cells.extend((1..4).map(|kind| format!("{} / {}", middle(kind, 0), middle(kind, 1))));
        let per_second = |count: u64| count as f64 / self.flooded_for.max(length).as_secs_f64();
        cells.extend([
            self.refused.to_string(),
            format!("{:.0} MB", per_second(self.flooded[0]) / 1e6),
            format!("{:.0}", per_second(self.flooded[1])),
            format!("{:.0}", per_second(self.flooded[2])),
            format!("{:.0} %", self.busy.as_secs_f64() / length.as_secs_f64() * 100.0),
        ]);
        row(name, &cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

fn main() {
    if let Some(kubeconfig) = std::env::var_os(FLOOD) {
        return be_flood(Path::new(&kubeconfig));
    }
    let runtime = Runtime::new();
    let halves = Halves::divide();
    let seconds = std::env::var("BENCH_SECONDS").ok().and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(scale(50, 1)));
    let rounds = scale(ROUNDS, 1);
    row(
        "small client",
        &[
            "p50",
            "p99",
            "get",
            "list",
            "create",
            "refused",
            "flood reads/s",
            "flood writes/s",
            "flood refused/s",
            "server busy",
        ],
    );
    for (is_shared, manner) in [(true, "flow control"), (false, "plain bounds")] {
        let server = start(&runtime, &halves, is_shared);
        let mut parts = [("calm", PartResults::default()), ("flood", PartResults::default())];
        for round in 0..rounds {
            for (name, part) in &mut parts {
                let flood = (*name == "flood").then(|| start_flood(&server));
                let began = Instant::now();
                std::thread::sleep(SETTLES);
                let before = cpu_time(server.pid());
                let stem = format!("{name}-{round}");
                let (latencies, refused) = runtime.run(small(&server, &stem, length / rounds as u32));
                part.busy += cpu_time(server.pid()).saturating_sub(before);
                part.quantiles.push(quantiles(&latencies));
                part.refused += refused;
                part.flooded_for += began.elapsed();
                for (sum, count) in part.flooded.iter_mut().zip(flood.map(end_flood).unwrap_or_default()) {
                    *sum += count;
                }
            }
        }
        for (name, part) in &parts {
            part.report(&format!("{manner}, {name}"), length);
        }
    }
}
