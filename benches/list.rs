//! Benchmark of lists of 50 000 pods of 3.5 KiB over one HTTP/1.1 connection. The client lists the pods in
//! every encoding, with a selector for a hundredth of the pods, in pages of 500, and compressed. In addition,
//! the benchmark compares the encodings with JSON. For this comparison, each round measures every encoding
//! once. Each measurement reports the time (best of several rounds), the server's CPU time, the time to the
//! first byte, and the server's anonymous memory before, during (maximum) and after the list.
//!
//! The same run measures the baselines. The first baseline sends the same number of bytes over bare TLS, both
//! from memory and from the processor's cache. Each of these exchanges follows a list. The second baseline
//! copies the same number of bytes through memory. The client runs on one of the machine's cores. The
//! benchmark does not measure HTTP/2 or concurrent lists.

use std::time::{Duration, Instant};

use benches::cluster::{PODS, SLOTS, fill_pods};
use benches::load::{self, Connection};
use benches::report::{mib, percent, rate, row, time};
use benches::{Runtime, data, process, raw, scale};
use tests::{Options, Server};

/// Number of objects in a page. Clients use this page size by default.
const PAGE: usize = 500;

/// Number of bytes of the response between two reads of the server's memory.
const LOOK_BYTES: u64 = 4 << 20;

/// The measured requests. Each request has a name, a value of `Accept` and a value of `Accept-Encoding`.
const FORMS: &[(&str, &str, &str)] = &[
    ("json", "application/json", ""),
    ("protobuf", "application/vnd.kubernetes.protobuf", ""),
    ("yaml", "application/yaml", ""),
    ("cbor", "application/cbor", ""),
    ("table", "application/json;as=Table;v=v1;g=meta.k8s.io", ""),
    ("metadata", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", ""),
    (
        "metadata, protobuf",
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "",
    ),
    ("json, gzip", "application/json", "gzip"),
];

fn main() {
    let runtime = Runtime::new();
    let options = Options {
        flags: vec!["--feature-gates=CBORServingAndStorage=true".to_owned()],
        ..Options::default()
    };
    let server = runtime.run(Server::start(options));
    let pods = scale(50_000, 600);
    fill_pods(&runtime, &server, pods);
    // As in criterion, an argument selects the measurements whose names contain the argument.
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let is_wanted = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    let mut bench = Bench {
        connection: runtime.run(Connection::open(server.client())),
        peer: runtime.run(raw::Loopback::start_with(vec![b'x'; pods * 2 * data::POD_BYTES]).connect()),
        cached_peer: runtime.run(raw::Loopback::start().connect()),
        rounds: scale(7, 1),
        pods,
        runtime,
        server,
    };

    row(
        &format!("list of {pods} pods"),
        &["bytes", "time", "rate", "bare TLS", "of that", "CPU", "per CPU s", "first byte"],
    );
    for (name, accept, encoding) in FORMS.iter().filter(|(name, ..)| is_wanted(name)) {
        bench.list(name, PODS, accept, encoding);
    }
    for (name, accept, encoding) in FORMS.iter().filter(|(name, ..)| is_wanted(name)) {
        let path = format!("{PODS}?labelSelector=slot%3D7");
        bench.list(&format!("{name}, 1 in {SLOTS} by label"), &path, accept, encoding);
    }
    if is_wanted("ratio") {
        bench.ratios();
    }
    if is_wanted("pages") {
        bench.pages();
    }
}

/// Server, client and baselines of the measurement.
struct Bench {
    runtime: Runtime,
    server: Server,
    connection: Connection,
    /// A peer that sends as many bytes as a list has, from memory.
    peer: raw::Peer,
    /// A peer that sends the same number of bytes from the processor's cache.
    cached_peer: raw::Peer,
    rounds: u32,
    pods: usize,
}

impl Bench {
    fn list(&mut self, name: &str, path: &str, accept: &str, encoding: &str) {
        let request = load::get(path, &[("accept", accept), ("accept-encoding", encoding)]);
        let pid = self.server.pid();
        // Only this first request measures the memory, because each read of the memory takes time.
        let before = process::memory(pid).anonymous;
        let (mut during, mut seen, mut next) = (before, 0, LOOK_BYTES);
        let look = |piece: &[u8]| {
            seen += piece.len() as u64;
            if seen >= next {
                next = seen + LOOK_BYTES;
                during = during.max(process::memory(pid).anonymous);
            }
        };
        let sent = Instant::now();
        let answer = self.runtime.run(self.connection.exchange(&request, look)).expect("the server answers");
        let first = sent.elapsed();
        assert_eq!(answer.status, 200, "{name}");
        let after = process::memory(pid).anonymous;

        let (mut best, mut first_byte) = (Duration::MAX, Duration::MAX);
        let (mut bare, mut cached) = (Duration::MAX, Duration::MAX);
        let mut spent = Duration::ZERO;
        for _ in 0..self.rounds {
            let cpu = process::cpu_time(pid);
            let sent = Instant::now();
            let answer = self.runtime.run(self.connection.expect(200, &request));
            best = best.min(sent.elapsed());
            first_byte = first_byte.min(answer.first_byte - sent);
            spent += process::cpu_time(pid) - cpu;
            for (peer, took) in [(&mut self.peer, &mut bare), (&mut self.cached_peer, &mut cached)] {
                let start = Instant::now();
                self.runtime.run(peer.exchange(100, answer.body_bytes)).expect("the loopback answers");
                *took = start.elapsed().min(*took);
            }
        }
        let spent = spent / self.rounds;
        let bytes = answer.body_bytes;
        row(
            name,
            &[
                &format!("{:.1} MB", bytes as f64 / 1e6),
                &time(best),
                &rate(bytes, best),
                &rate(bytes, bare),
                &percent(bare.as_secs_f64(), best.as_secs_f64()),
                &time(spent),
                &rate(bytes, spent),
                &time(first_byte),
            ],
        );
        row(
            "  memory before, during, after",
            &[&mib(before), &mib(during), &mib(after), "first time", &time(first), "memcpy", &memcpy(bytes)],
        );
        row("  bare TLS of bytes that stay in the cache", &["", "", "", &rate(bytes, cached)]);
    }

    /// Measures every representation as a ratio to JSON. Each round measures every representation once, so
    /// that all representations run under the same conditions.
    fn ratios(&mut self) {
        let pid = self.server.pid();
        let mut best = [(Duration::MAX, Duration::MAX, Duration::MAX); FORMS.len()];
        for _ in 0..self.rounds {
            for ((name, accept, encoding), best) in FORMS.iter().zip(&mut best) {
                let request = load::get(PODS, &[("accept", accept), ("accept-encoding", encoding)]);
                let cpu = process::cpu_time(pid);
                let sent = Instant::now();
                let answer = self.runtime.run(self.connection.exchange(&request, |_| ()));
                let answer = answer.expect("the server answers");
                assert_eq!(answer.status, 200, "{name}");
                best.0 = best.0.min(sent.elapsed());
                best.1 = best.1.min(process::cpu_time(pid) - cpu);
                best.2 = best.2.min(answer.first_byte - sent);
            }
        }
        row("ratio to json, best of each", &["time", "of json", "CPU", "of json", "first byte"]);
        let of = |part: Duration, whole: Duration| format!("{:.2}", part.as_secs_f64() / whole.as_secs_f64());
        for ((name, ..), (took, spent, first_byte)) in FORMS.iter().zip(best) {
            let cells =
                [time(took), of(took, best[0].0), time(spent), of(spent, best[0].1), time(first_byte)];
            row(name, &cells.each_ref().map(String::as_str));
        }
    }

    fn pages(&mut self) {
        let mut best = Duration::MAX;
        let pid = self.server.pid();
        let (mut spent, mut bytes) = (Duration::ZERO, 0);
        for _ in 0..self.rounds {
            let cpu = process::cpu_time(pid);
            let start = Instant::now();
            let (pages, read) = self.runtime.run(all_pages(&mut self.connection));
            best = best.min(start.elapsed());
            spent += process::cpu_time(pid) - cpu;
            assert_eq!(pages, self.pods.div_ceil(PAGE));
            bytes = read;
        }
        let spent = spent / self.rounds;
        row(
            &format!("json, pages of {PAGE}"),
            &[
                &format!("{:.1} MB", bytes as f64 / 1e6),
                &time(best),
                &rate(bytes, best),
                "",
                "",
                &time(spent),
                &rate(bytes, spent),
            ],
        );
    }
}

/// Reads the list page by page. Returns the number of pages and the number of bytes.
async fn all_pages(connection: &mut Connection) -> (usize, u64) {
    let mut token = String::new();
    let (mut pages, mut bytes) = (0, 0);
    loop {
        let request = load::request("GET", &format!("{PODS}?limit={PAGE}{token}"), "");
        let mut head = Vec::new();
        let look = |piece: &[u8]| {
            if head.len() < 1024 {
                head.extend_from_slice(&piece[..piece.len().min(1024)]);
            }
        };
        let answer = connection.exchange(&request, look).await.expect("the server answers");
        assert_eq!(answer.status, 200);
        pages += 1;
        bytes += answer.body_bytes;
        let head = String::from_utf8_lossy(&head);
        let metadata = head.split("\"items\"").next().unwrap_or_default();
        let Some((_, rest)) = metadata.split_once("\"continue\":\"") else { return (pages, bytes) };
        token = format!("&continue={}", rest.split('"').next().unwrap_or_default());
    }
}

/// Returns the rate of copying this many bytes through memory.
fn memcpy(bytes: u64) -> String {
    let source = vec![1u8; usize::try_from(bytes).expect("a list fits the memory")];
    let mut target = vec![0u8; source.len()];
    let start = Instant::now();
    std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&source));
    rate(bytes, start.elapsed())
}
