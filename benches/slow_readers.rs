//! Benchmark of slow readers and their effect on writers. In this benchmark, 200 clients read a collection of
//! 200 MB at 100 KB/s each, in several encodings, while another client writes. The bench reports the server's
//! anonymous memory before, during (maximum) and after the reads, and the latency of writes without readers
//! and with readers. The bench does not measure the speed of lists.
//!
//! Writes use memory too, because the index grows with every object. The client that writes therefore has a
//! first run of the same length without readers. Before this first run, a warm-up fills recent events and the
//! allocator's free lists. From the growth during the reads, the bench subtracts the memory that the writes
//! used, as measured in the first run.
//!
//! The command is `cargo bench -p benches --bench slow_readers`. The run fails if the readers add more memory
//! than a limit.

use std::time::{Duration, Instant};

use benches::cluster::{CONFIG_MAPS, config_map_creates};
use benches::load::{self, Connection, Outcome, Stream};
use benches::process::memory;
use benches::{Runtime, cluster, scale};
use futures_util::future::join_all;
use objects::negotiate::{JSON, YAML};
use values::naming::KUBERNETES;

/// Bytes that each client reads per second.
const BYTES_PER_SECOND: u64 = 100_000;

/// Size of an object.
const OBJECT_BYTES: usize = 100_000;

/// Maximum anonymous memory that all readers together may add to the server, in KiB.
const ADDED_KIB_MAX: u64 = 64 * 1024;

/// Interval between two reads of the server's memory.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Returns the representations of the collection. The clients take these representations in turn.
fn forms() -> [(String, &'static str); 5] {
    let table = format!("{JSON};as=Table;v=v1;g={}", KUBERNETES.meta_group());
    [
        (JSON.to_owned(), ""),
        (KUBERNETES.protobuf_media_type.to_owned(), ""),
        (YAML.to_owned(), ""),
        (table, "?includeObject=Object"),
        (JSON.to_owned(), "?watch=1"),
    ]
}

fn main() {
    let runtime = Runtime::new();
    let server = cluster::start(&runtime);
    let (clients, objects) = (scale(200, 10), scale(2_000, 50));
    let lasts = scale(Duration::from_secs(60), Duration::from_secs(1));
    let filler = "0123456789".repeat(OBJECT_BYTES / 10);
    let body = |at: usize| format!(r#"{{"metadata":{{"name":"m{at:05}"}},"data":{{"k":"{filler}"}}}}"#);
    runtime.run(async {
        let mut connection = Connection::open(server.client()).await;
        for at in 0..objects {
            connection.expect(201, &load::request("POST", CONFIG_MAPS, &body(at))).await;
        }
    });
    let megabytes = objects * OBJECT_BYTES / 1_000_000;
    print_line(&format!(
        "{clients} clients, {megabytes} MB at {} KB/s each, {lasts:?}",
        BYTES_PER_SECOND / 1000
    ));

    runtime.run(write(&server, "warm", lasts / 4));
    let unread = memory(server.pid()).anonymous;
    let (alone, most_alone) = runtime.run(async {
        let end = Instant::now() + lasts;
        tokio::join!(write(&server, "alone", lasts), highest(server.pid(), end))
    });
    row("writes alone", &alone);
    let before = memory(server.pid()).anonymous;
    let (beside, read, most) = runtime.run(async {
        let forms = forms();
        let opened = (0..clients).map(async |at| {
            let (accept, query) = &forms[at % forms.len()];
            let request =
                format!("GET {CONFIG_MAPS}{query} HTTP/1.1\r\nhost: bench\r\naccept: {accept}\r\n\r\n");
            Connection::open(server.client()).await.follow(request.as_bytes()).await
        });
        let streams = join_all(opened).await;
        let end = Instant::now() + lasts;
        let reading = join_all(streams.into_iter().map(|stream| read_slowly(stream, end)));
        let looking = highest(server.pid(), end);
        let ((read, most), beside) =
            tokio::join!(async { tokio::join!(reading, looking) }, write(&server, "beside", lasts));
        (beside, read.into_iter().sum::<u64>(), most)
    });
    row("writes beside readers", &beside);
    let mib = |kib: u64| kib as f64 / 1024.0;
    print_line(&format!("read {:>38.1} MB/s", read as f64 / 1e6 / lasts.as_secs_f64()));
    print_line(&format!(
        "anonymous memory {:>14.1} MiB before, {:.1} at most, {:.1} after",
        mib(before),
        mib(most),
        mib(memory(server.pid()).anonymous)
    ));
    let of_writes_alone = most_alone.saturating_sub(unread);
    let writes = [alone.latencies.len(), beside.latencies.len()];
    let of_writes = of_writes_alone as f64 * (writes[1] as f64 / writes[0].max(1) as f64).min(1.0);
    let added = most.saturating_sub(before);
    print_line(&format!("{} writes alone added {:>6.1} MiB", writes[0], mib(of_writes_alone)));
    print_line(&format!("{} writes and the readers {:>6.1} MiB", writes[1], mib(added)));
    let of_readers = added.saturating_sub(of_writes as u64);
    print_line(&format!("readers alone {:>24.1} MiB, limit {}", mib(of_readers), ADDED_KIB_MAX / 1024));
    assert!(of_readers < ADDED_KIB_MAX, "slow readers cost too much memory");
}

/// Reads a stream at the limited rate until `end`. Returns the number of bytes.
async fn read_slowly(mut stream: Stream, end: Instant) -> u64 {
    let start = Instant::now();
    let mut bytes = 0;
    while Instant::now() < end {
        bytes += stream.next().await.len() as u64;
        let due = start + Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND as f64);
        tokio::time::sleep_until(due.min(end).into()).await;
    }
    bytes
}

/// Measures the anonymous memory repeatedly until `end`. Returns the maximum in KiB.
async fn highest(pid: u32, end: Instant) -> u64 {
    let mut most = 0;
    while Instant::now() < end {
        most = most.max(memory(pid).anonymous);
        tokio::time::sleep(LOOK_EVERY).await;
    }
    most
}

/// Writes one small object after the other until the time `lasts` has passed.
async fn write(server: &tests::Server, stem: &str, lasts: Duration) -> Outcome {
    let mut connection = Connection::open(server.client()).await;
    let start = Instant::now();
    let mut latencies = Vec::new();
    let mut requests = config_map_creates(stem, 100_000).into_iter();
    while start.elapsed() < lasts
        && let Some(request) = requests.next()
    {
        let sent = Instant::now();
        connection.expect(201, &request).await;
        latencies.push(sent.elapsed());
    }
    latencies.sort_unstable();
    Outcome { elapsed: start.elapsed(), latencies }
}

fn row(name: &str, outcome: &Outcome) {
    print_line(&format!(
        "{name:<22} {:>8.0}/s  p50 {:>9.2?}  p99 {:>9.2?}",
        outcome.rate(),
        outcome.quantile(0.5),
        outcome.quantile(0.99)
    ));
}

#[expect(clippy::print_stdout, reason = "a bench reports on stdout")]
fn print_line(line: &str) {
    println!("{line}");
}
