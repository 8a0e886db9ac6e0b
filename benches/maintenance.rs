//! Benchmark of maintenance: the cost of maintenance for writers, and the disk space of a store under load.
//!
//! In the first part, the store compacts and reclaims a log of 5 GB while one writer continues. More than
//! half of this log is dead. The benchmark compares the median and the slowest hundredth of the commit times
//! with the commit times on an idle store.
//!
//! The second part simulates an hour of overwrites at twenty times the speed. The store keeps history for
//! fifteen seconds instead of five minutes, and 64 writers overwrite random keys for three minutes. The
//! benchmark compares the disk space with the live and retained bytes.
//!
//! The argument `reclaim` runs only the first part, and the argument `churn` runs only the second part.

use std::path::Path;
use std::time::{Duration, Instant};

use benches::records::put;
use benches::{raw, scale};
use bytes::Bytes;
use engine::{Durability, Engine, Options, Write};
use futures_util::future::join_all;
use tests::server::TempDir;

/// The server uses the same allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VALUE_BYTES: usize = 3584;

/// A repeatable sequence of pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    /// Returns a number below `end`.
    fn below(&mut self, end: usize) -> usize {
        // This generator is Marsaglia's xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn main() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let is_wanted = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    runtime.block_on(async {
        if is_wanted("reclaim") {
            reclaim().await;
        }
        if is_wanted("churn") {
            churn().await;
        }
    });
}

/// Measures the commits of one writer while the store compacts 5 GB. The baselines are commits on an idle
/// store, and writes to a plain file.
async fn reclaim() {
    let directory = TempDir::new();
    let store = directory.path().join("log");
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    let (keys, writes) = scale((500_000, 1_430_000), (300, 900));
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let filling =
        Options { durability: Durability::Relaxed, history_retention: Duration::MAX, ..Options::new(&store) };
    let engine = Engine::open(filling.clone()).expect("the store opens");
    for _ in 0..writes / 100 {
        let commits: Vec<_> = (0..100).map(|_| engine.commit(put(numbers.below(keys), &value))).collect();
        assert!(join_all(commits).await.iter().all(Result::is_ok));
    }
    engine.close().await;
    drop(engine);
    let durable = Options { durability: Durability::Sync, ..filling };
    let engine = Engine::open(durable).expect("the store opens");
    engine.settled().await;

    let count = scale(50_000, 50);
    let mut raw = raw::RawLog::create(directory.path(), 64 << 20).expect("the disk takes writes");
    let record = vec![b'x'; VALUE_BYTES + 128];
    let mut bare = || -> Vec<_> {
        let append = |_| {
            let start = Instant::now();
            raw.append(&record).expect("the disk takes writes");
            start.elapsed()
        };
        (0..count).map(append).collect()
    };
    report("limit: write and sync", &mut bare());
    report("quiet", &mut quiet(&engine, &mut numbers, keys, &value, count).await);

    let before = (engine.stats(), disk_bytes(&store));
    let start = Instant::now();
    let compacting = engine.clone();
    let settling = async {
        compacting.compact(before.0.revision).await.expect("the store is open");
        compacting.settled().await;
    };
    tokio::pin!(settling);
    let mut busy = Vec::new();
    loop {
        // This loop polls the maintenance only between commits, so that polling does not add to the time of a
        // commit.
        busy.push(timed(&engine, put(numbers.below(keys), &value)).await);
        let over = std::future::poll_fn(|context| {
            std::task::Poll::Ready(settling.as_mut().poll(context).is_ready())
        });
        if over.await {
            break;
        }
    }
    let took = start.elapsed();
    report("during compaction and reclamation", &mut busy);
    let after = (engine.stats(), disk_bytes(&store));
    line(&format!(
        "{} MiB of log, {} on disk; {:.1} s later {} on disk, {} copied, {} live",
        before.0.record_bytes >> 20,
        before.1 >> 20,
        took.as_secs_f64(),
        after.1 >> 20,
        (after.0.rewritten_bytes - before.0.rewritten_bytes) >> 20,
        after.0.live_bytes >> 20,
    ));
    // Maintenance may still run after the last commits, so wait for its end.
    engine.settled().await;
    report("idle again", &mut quiet(&engine, &mut numbers, keys, &value, count).await);
    report("limit again", &mut bare());
    engine.close().await;
}

/// Measures the commits of one writer on an idle store.
async fn quiet(
    engine: &Engine,
    numbers: &mut Numbers,
    keys: usize,
    value: &Bytes,
    count: usize,
) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..count {
        times.push(timed(engine, put(numbers.below(keys), value)).await);
    }
    times
}

async fn timed(engine: &Engine, write: Write) -> Duration {
    let start = Instant::now();
    engine.commit(write).await.expect("the disk takes writes");
    start.elapsed()
}

/// Compares disk space with live and retained bytes, while 64 writers overwrite random keys.
async fn churn() {
    let directory = TempDir::new();
    let store = directory.path().join("log");
    let retention = scale(Duration::from_secs(15), Duration::from_millis(50));
    let engine = Engine::open(Options { history_retention: retention, ..Options::new(&store) });
    let engine = engine.expect("the store opens");
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    let keys = scale(100_000, 300);
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let (mut worst, mut sum, mut samples) = (0.0_f64, 0.0, 0_u32);
    let start = Instant::now();
    let mut sampled = start;
    while start.elapsed() < 12 * retention {
        let commits: Vec<_> = (0..64).map(|_| engine.commit(put(numbers.below(keys), &value))).collect();
        assert!(join_all(commits).await.iter().all(Result::is_ok));
        // The store reaches a steady state only after two retention times, so samples before this time do not
        // count.
        if sampled.elapsed() > retention / 20 && start.elapsed() > 2 * retention {
            sampled = Instant::now();
            let live = engine.stats().live_bytes;
            let factor = disk_bytes(&store) as f64 / live as f64;
            worst = worst.max(factor);
            sum += factor;
            samples += 1;
        }
    }
    let stats = engine.stats();
    line(&format!(
        "churn: {:.0} commits/s, {} MiB written, {} copied, {} live or retained; the disk holds {:.2} times that on \
         average, {worst:.2} times at most, in {samples} looks",
        stats.commits as f64 / start.elapsed().as_secs_f64(),
        (stats.commits * VALUE_BYTES as u64) >> 20,
        stats.rewritten_bytes >> 20,
        stats.live_bytes >> 20,
        sum / f64::from(samples.max(1)),
    ));
    engine.close().await;
}

/// Returns the bytes that the files of `directory` use on disk, without holes.
fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(directory).expect("the store is a directory").flatten();
    // The engine may delete a file after the listing and before the read of its metadata.
    files.filter_map(|file| Some(file.metadata().ok()?.blocks() * 512)).sum()
}

fn report(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    line(&format!(
        "commit, {what}: {} of them, median {:.0?}, 99th of 100 {:.0?}, 999th of 1000 {:.0?}, slowest {:.0?}",
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    ));
}

#[expect(clippy::print_stdout, reason = "a bench reports on stdout")]
fn line(text: &str) {
    println!("{text}");
}
