//! Benchmark of watches of ConfigMaps and pods: speed of delivery to many watchers, memory of idle watches,
//! and watchers that stop reading.
//!
//! - **fan-out** measures the delivery of writes at full speed to 1, 100 and 1000 watchers. Each watcher has
//!   its own connection.
//! - **paced** measures the delivery of 10, 200 and 1000 writes per second to 1000 watchers. The watchers
//!   have a connection each, or share ten connections. The latency begins before the client sends the write,
//!   and ends when the event arrives at the socket of a watcher. The kernel records the arrival time
//!   ([`benches::socket`]). The results also include the server's counters of rendered events and of sent
//!   events. The run fails if the server closes a watch. Watchers usually run on other machines, so the
//!   thread of the watchers yields the cores to the server.
//! - **replay** measures events that the server reads from history.
//! - **initial** measures a watch-list of 50 000 pods up to its bookmark, in every encoding. The results are
//!   ratios to JSON.
//! - **stopped** measures a watcher that stops reading for a minute under load and then continues.
//! - **idle** measures the server memory for each of 10 000 watches without events.
//!
//! Except in the paced part, an event counts as delivered when the watcher has read the bytes of the event.
//! The baseline sends the same bytes over the same number of bare TLS connections. Load, watchers and server
//! share the machine. `BENCH_SECONDS` sets the length of the paced part, and `BENCH_STOP_SECONDS` sets the
//! time for which the watcher stops. The benchmark does not measure selectors, and measures changes only in
//! JSON.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime};

use benches::cluster::{CONFIG_MAPS, PODS, config_map_creates, fill_pods};
use benches::http2::Streams;
use benches::load::{self, Connection, Stream};
use benches::marks::Marks;
use benches::report::{rate, row, time};
use benches::{Runtime, cluster, process, raw, scale};
use futures_util::future::{join, join_all};
use tests::Server;

/// Number of connections that write.
const WRITERS: usize = 16;

/// Number of objects that are written repeatedly.
const OBJECTS: usize = 100;

/// Writes per second in the paced part.
const PACES: [u64; 3] = [10, 200, 1_000];

/// Writes per second while a watcher stops.
const PACE_OF_STOPPED: u64 = 1_000;

/// Number of connections that the watchers share in the measurement with shared connections.
const SHARED_CONNECTIONS: usize = 10;

/// Maximum number of watches on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1_000;

type Measurement = fn(&Runtime);

fn main() {
    let runtime = Runtime::new();
    // As in criterion, an argument selects the measurements whose names contain the argument.
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let measurements: [(&str, Measurement); 6] = [
        ("fan-out", fan_out),
        ("paced", paced),
        ("replay", replay),
        ("initial", initial),
        ("stopped", stopped),
        ("idle", idle),
    ];
    for (name, measurement) in measurements {
        if filter.as_ref().is_none_or(|filter| name.contains(filter.as_str())) {
            measurement(&runtime);
        }
    }
}

fn fan_out(runtime: &Runtime) {
    let server = cluster::start(runtime);
    let loopback = raw::Loopback::start();
    row("fan-out", &["events", "time", "delivered/s", "bare TLS/s", "CPU each"]);
    for watchers in [1, scale(100, 4), scale(1_000, 8)] {
        let events: usize = scale(if watchers > 100 { 5_000 } else { 20_000 }, 50);
        let mut streams = runtime.run(open(&server, watchers));
        let mut writers = runtime.run(load::connect(server.client(), WRITERS));
        let requests = config_map_creates(&format!("fan-{watchers}"), events);
        let cpu = process::cpu_time(server.pid());
        let start = Instant::now();
        let (_, bytes) = runtime.run(join(
            load::run(&mut writers, &requests, 201),
            join_all(streams.iter_mut().map(|stream| stream.lines(events as u64))),
        ));
        let took = start.elapsed();
        let spent = process::cpu_time(server.pid()) - cpu;
        let mut peers = runtime.run(join_all((0..watchers).map(|_| loopback.connect())));
        let start = Instant::now();
        runtime.run(join_all(peers.iter_mut().map(|peer| peer.exchange(100, bytes[0]))));
        let bare = start.elapsed();
        let delivered = (events * watchers) as f64;
        row(
            &format!("{watchers} watchers, writing included"),
            &[
                &events.to_string(),
                &time(took),
                &format!("{:.0}", delivered / took.as_secs_f64()),
                &format!("{:.0}", delivered / bare.as_secs_f64()),
                &time(spent.div_f64(delivered)),
            ],
        );
    }
}

fn paced(runtime: &Runtime) {
    let server = cluster::start(runtime);
    let watchers = scale(1_000, 20);
    runtime.run(cluster::create(&server, &config_map_creates("paced", OBJECTS)));
    row(
        &format!("paced, {watchers} watchers"),
        &["events", "delivered/s", "p50", "p99", "max", "CPU", "rendered", "sent"],
    );
    let parts =
        PACES.iter().flat_map(|&pace| ["a connection each", "ten connections"].map(|name| (pace, name)));
    for (pace, name) in parts {
        let events = pace * seconds("BENCH_SECONDS", 20);
        let (ready, are_ready) = std::sync::mpsc::sync_channel(1);
        let listen = || {
            let runtime = Runtime::new();
            let mut audience = match name {
                "ten connections" => Audience::Http2(runtime.run(open_shared(&server, watchers))),
                _ => Audience::Http1(runtime.run(open(&server, watchers))),
            };
            process::yield_to_others();
            ready.send(()).expect("they are waited for");
            let latencies = RefCell::new(Latencies::default());
            let delivered = |sent_us: u64, arrived_us: u64| {
                latencies.borrow_mut().add(arrived_us.saturating_sub(sent_us));
            };
            runtime.run(audience.follow(events, &delivered));
            latencies.into_inner()
        };
        let (mut begun, mut cpu, mut before) = (Instant::now(), Duration::ZERO, (0, 0));
        let counters = || (counter(runtime, &server, "rendered"), counter(runtime, &server, "sent"));
        let latencies = std::thread::scope(|scope| {
            let listening = scope.spawn(listen);
            are_ready.recv().expect("all watches open");
            (before, cpu, begun) = (counters(), process::cpu_time(server.pid()), Instant::now());
            runtime.run(write_paced(&server, pace, events));
            listening.join().expect("all watches go on")
        });
        let took = begun.elapsed();
        let spent = process::cpu_time(server.pid()) - cpu;
        let after = counters();
        assert_eq!(
            latencies.count,
            events * watchers as u64,
            "an event for each watcher, and no watch closed"
        );
        row(
            &format!("{pace} writes/s, {name}"),
            &[
                &events.to_string(),
                &format!("{:.0}", latencies.count as f64 / took.as_secs_f64()),
                &time(latencies.quantile(0.5)),
                &time(latencies.quantile(0.99)),
                &time(latencies.quantile(1.0)),
                &format!("{:.2} cores", spent.as_secs_f64() / took.as_secs_f64()),
                &(after.0 - before.0).to_string(),
                &(after.1 - before.1).to_string(),
            ],
        );
    }
}

fn replay(runtime: &Runtime) {
    let server = cluster::start(runtime);
    let events: u64 = scale(50_000, 50);
    let from = runtime.run(revision(&server));
    runtime.run(cluster::create(&server, &config_map_creates("replay", events as usize)));
    row("replay", &["events", "time", "per second", "rate"]);
    for _ in 0..scale(3, 1) {
        let connection = runtime.run(Connection::open(server.client()));
        let start = Instant::now();
        let bytes = runtime.run(async {
            let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}");
            connection.follow(&load::request("GET", &path, "")).await.lines(events).await
        });
        let took = start.elapsed();
        let per_second = format!("{:.0}", events as f64 / took.as_secs_f64());
        row("from the revision before", &[&events.to_string(), &time(took), &per_second, &rate(bytes, took)]);
    }
}

/// The encodings of initial events.
const FORMS: [(&str, &str); 5] = [
    ("json", "application/json"),
    ("protobuf", "application/vnd.kubernetes.protobuf"),
    ("table", "application/json;as=Table;v=v1;g=meta.k8s.io"),
    ("metadata", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
    ("metadata, protobuf", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
];

/// Measures every encoding once in each round, so that all encodings run under the same conditions. The
/// ratios compare the best rounds of the encodings.
fn initial(runtime: &Runtime) {
    let server = cluster::start(runtime);
    let pods = scale(50_000, 600);
    fill_pods(runtime, &server, pods);
    let mut peer = runtime.run(raw::Loopback::start().connect());
    let mut best = [(Duration::MAX, Duration::MAX, Duration::MAX, 0); FORMS.len()];
    for _ in 0..scale(5, 1) {
        for ((name, accept), best) in FORMS.iter().zip(&mut best) {
            let connection = runtime.run(Connection::open(server.client()));
            let path = format!(
                "{PODS}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
            );
            let cpu = process::cpu_time(server.pid());
            let start = Instant::now();
            let bytes = runtime.run(async {
                let mut stream = connection.follow(&load::get(&path, &[("accept", accept)])).await;
                // The bookmark is an additional event.
                let events = pods as u64 + 1;
                if name.contains("protobuf") {
                    frames(&mut stream, events).await
                } else {
                    stream.lines(events).await
                }
            });
            best.0 = best.0.min(start.elapsed());
            best.1 = best.1.min(process::cpu_time(server.pid()) - cpu);
            let start = Instant::now();
            runtime.run(peer.exchange(100, bytes)).expect("the loopback answers");
            best.2 = best.2.min(start.elapsed());
            best.3 = bytes;
        }
    }
    row(
        &format!("watch-list of {pods} pods"),
        &["bytes", "time", "of json", "rate", "bare TLS", "CPU", "of json"],
    );
    let of = |part: Duration, whole: Duration| format!("{:.2}", part.as_secs_f64() / whole.as_secs_f64());
    for ((name, _), (took, spent, bare, bytes)) in FORMS.iter().zip(best) {
        row(
            &format!("{name}, to its bookmark"),
            &[
                &format!("{:.1} MB", bytes as f64 / 1e6),
                &time(took),
                &of(took, best[0].0),
                &rate(bytes, took),
                &rate(bytes, bare),
                &time(spent),
                &of(spent, best[0].1),
            ],
        );
    }
}

/// Reads `events` protobuf events. Each event begins with its length in four bytes. Returns the number of
/// bytes read.
async fn frames(stream: &mut Stream, mut events: u64) -> u64 {
    let (mut length, mut length_bytes, mut left, mut bytes) = (0_usize, 0, 0, 0);
    while events > 0 {
        let mut piece = stream.next().await;
        bytes += piece.len() as u64;
        while !piece.is_empty() {
            if left > 0 {
                let taken = left.min(piece.len());
                (left, piece) = (left - taken, &piece[taken..]);
                events -= u64::from(left == 0);
                continue;
            }
            (length, length_bytes) = (length << 8 | usize::from(piece[0]), length_bytes + 1);
            piece = &piece[1..];
            if length_bytes == 4 {
                (left, length, length_bytes) = (length, 0, 0);
            }
        }
    }
    bytes
}

/// Measures a watcher that stops reading, and checks that every event arrives once and in order over the same
/// connection.
fn stopped(runtime: &Runtime) {
    let server = cluster::start(runtime);
    runtime.run(cluster::create(&server, &config_map_creates("paced", OBJECTS)));
    let stop = seconds("BENCH_STOP_SECONDS", 60);
    let events = PACE_OF_STOPPED * (stop + 2);
    let mut stream = runtime.run(open(&server, 1)).remove(0);
    let before = process::memory(server.pid()).anonymous;
    let begun = Instant::now();
    let follow = async {
        let mut revisions = Marks::new("\"resourceVersion\":\"");
        let mut newest = 0;
        let mut in_order = |revision: u64| {
            assert!(revision > newest, "{revision} after {newest}");
            newest = revision;
        };
        while revisions.seen < PACE_OF_STOPPED {
            revisions.look(stream.next().await, &mut in_order);
        }
        tokio::time::sleep(Duration::from_secs(stop)).await;
        let resumed = (begun.elapsed(), revisions.seen);
        while revisions.seen < events {
            revisions.look(stream.next().await, &mut in_order);
        }
        assert_eq!(revisions.seen, events);
        resumed
    };
    let (_, (resumed, seen)) = runtime.run(join(write_paced(&server, PACE_OF_STOPPED, events), follow));
    let after = process::memory(server.pid()).anonymous;
    row("stopped", &["stood still", "events", "behind", "caught up", "RssAnon +"]);
    row(
        "one watcher under load",
        &[
            &format!("{stop} s"),
            &events.to_string(),
            &(PACE_OF_STOPPED * resumed.as_secs()).saturating_sub(seen).to_string(),
            &format!("{:.1?}", begun.elapsed() - resumed),
            &format!("{} KiB", after.saturating_sub(before)),
        ],
    );
}

fn idle(runtime: &Runtime) {
    let watches: u32 = scale(10_000, 40);
    row("idle", &["watches", "VmRSS each", "RssAnon each", "opening all"]);
    for (name, per_connection) in
        [("many on each connection", scale(STREAMS_MAX, 10)), ("a connection each", 1)]
    {
        let server = cluster::start(runtime);
        // The memory of this first request does not count as memory of the watches.
        let from = runtime.run(revision(&server));
        let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}");
        let before = process::memory(server.pid());
        let start = Instant::now();
        let mut connections = Vec::new();
        for _ in 0..watches / per_connection {
            let mut connection = runtime.run(Streams::open(server.client()));
            runtime
                .run(connection.get_many(&path, "application/json", per_connection))
                .expect("the watches open");
            connections.push(connection);
        }
        let opened = start.elapsed();
        let after = process::memory(server.pid());
        let each = |after: u64, before: u64| {
            format!("{:.1} KiB", after.saturating_sub(before) as f64 / f64::from(watches))
        };
        row(
            name,
            &[
                &watches.to_string(),
                &each(after.resident, before.resident),
                &each(after.anonymous, before.anonymous),
                &time(opened),
            ],
        );
    }
}

/// The connections of the watchers.
enum Audience {
    /// Each watcher has its own connection.
    Http1(Vec<Stream>),
    /// The watchers share connections. The second value is the number of watchers on the connection.
    Http2(Vec<(Streams, u32)>),
}

impl Audience {
    /// Reads until each watcher has `events` events. Passes the send time and the arrival time of each event
    /// to `delivered`.
    async fn follow(&mut self, events: u64, delivered: &impl Fn(u64, u64)) {
        match self {
            Audience::Http1(streams) => {
                join_all(streams.iter_mut().map(async |stream| {
                    let mut marks = sent_marks();
                    while marks.seen < events {
                        let (piece, arrived_us) = stream.next_arrived().await;
                        marks.look(piece, |sent_us| delivered(sent_us, arrived_us));
                    }
                    assert_eq!(marks.seen, events);
                }))
                .await;
            }
            Audience::Http2(connections) => {
                join_all(connections.iter_mut().map(async |(streams, watchers)| {
                    let mut marks: Vec<Marks> = (0..*watchers).map(|_| sent_marks()).collect();
                    while marks.iter().any(|marks| marks.seen < events) {
                        // The streams have the numbers 1, 3, 5 …, so the index of a watcher is half of the
                        // number.
                        let look = |stream: u32, piece: &[u8], arrived_us: u64| {
                            marks[stream as usize / 2].look(piece, |sent_us| delivered(sent_us, arrived_us));
                        };
                        streams.read(look).await.expect("the connection goes on");
                        assert_eq!(streams.ended, 0, "a watch was closed");
                    }
                }))
                .await;
            }
        }
    }
}

/// Creates a reader of the send time in objects, in microseconds since 1970.
fn sent_marks() -> Marks {
    Marks::new("\"sent\":\"")
}

/// Writes at the given rate; each object contains the send time, in microseconds since 1970.
async fn write_paced(server: &Server, pace: u64, writes: u64) {
    let begun = Instant::now();
    let mut connections = load::connect(server.client(), WRITERS).await;
    let next = Cell::new(0);
    join_all(connections.iter_mut().map(async |connection| {
        loop {
            let write = next.replace(next.get() + 1);
            if write >= writes {
                return;
            }
            let due = begun + Duration::from_micros(write * 1_000_000 / pace);
            tokio::time::sleep_until(due.into()).await;
            let name = format!("paced-{:06}", write as usize % OBJECTS);
            let object = format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"app":"bench"}}}},"data":{{"sent":"{}"}}}}"#,
                SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970").as_micros()
            );
            connection.expect(200, &load::request("PUT", &format!("{CONFIG_MAPS}/{name}"), &object)).await;
        }
    }))
    .await;
}

/// A histogram of delivery times.
#[derive(Default)]
struct Latencies {
    /// Number of deliveries for each tenth of a millisecond.
    buckets: Vec<u64>,
    count: u64,
}

impl Latencies {
    const BUCKET: Duration = Duration::from_micros(100);

    fn add(&mut self, us: u64) {
        let at = us as usize / Self::BUCKET.as_micros() as usize;
        if at >= self.buckets.len() {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] += 1;
        self.count += 1;
    }

    /// Returns the time that `share` of the deliveries did not exceed.
    fn quantile(&self, share: f64) -> Duration {
        let rank = (self.count as f64 * share) as u64;
        let mut seen = 0;
        let at = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        Self::BUCKET * (at.map_or(0, |at| at as u32) + 1)
    }
}

/// Opens watches at the current version. Each watch has its own connection. A watch without a version would
/// begin with all objects.
async fn open(server: &Server, count: usize) -> Vec<Stream> {
    let from = revision(server).await;
    let request = load::request("GET", &format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}"), "");
    let mut streams = Vec::with_capacity(count);
    for connection in load::connect(server.client(), count).await {
        streams.push(connection.follow(&request).await);
    }
    streams
}

/// Opens watches at the current version over shared connections.
async fn open_shared(server: &Server, count: usize) -> Vec<(Streams, u32)> {
    let from = revision(server).await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}");
    let each = (count / SHARED_CONNECTIONS) as u32;
    let mut connections = Vec::new();
    for _ in 0..SHARED_CONNECTIONS {
        let mut connection = Streams::open(server.client()).await;
        connection.get_many(&path, "application/json", each).await.expect("the watches open");
        connections.push((connection, each));
    }
    connections
}

/// Returns the store's current revision.
async fn revision(server: &Server) -> String {
    let mut connection = Connection::open(server.client()).await;
    let list = load::request("GET", &format!("{CONFIG_MAPS}?limit=1"), "");
    let mut head = String::new();
    connection
        .exchange(&list, |piece| head.push_str(&String::from_utf8_lossy(piece)))
        .await
        .expect("an answer");
    let (_, rest) = head.split_once("\"resourceVersion\":\"").expect("lists have a version");
    rest.split('"').next().expect("there is always a first").to_owned()
}

/// Returns the value of the server's counter `what` of watch events.
fn counter(runtime: &Runtime, server: &Server, what: &str) -> u64 {
    let text = runtime.run(server.client().get("/metrics")).text();
    let name = format!("apiserver_watch_events_{what}_total ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("the server counts it");
    line.parse().expect("a number")
}

/// Returns the number of seconds in the environment variable `name`. The default is `usual` in a measurement,
/// and 1 in a test.
fn seconds(name: &str, usual: u64) -> u64 {
    let given = std::env::var(name).ok().map(|text| text.parse().expect("a number of seconds"));
    given.unwrap_or(scale(usual, 1))
}
