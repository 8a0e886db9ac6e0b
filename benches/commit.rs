//! Benchmark of commits of 1 KiB with 1, 64 and 1024 writers, compared with plain writes of batches of the
//! same size.
//!
//! A round has three phases of a third of a second each: commits, plain writes that append to a growing file
//! as a log does, and plain writes that overwrite allocated blocks. Each plain write is synced, and has the
//! mean size of a batch of the engine. The phases alternate, so that a disk whose speed varies affects all
//! phases in the same way. The result is the time and the CPU time of a commit, each as the median of the
//! rounds. The CPU time of the engine includes all threads of the engine and the writers. Commits are
//! durable. The writers are tasks on one thread. Each writer starts its next commit as soon as its previous
//! commit has returned.

use std::path::Path;
use std::time::{Duration, Instant};

use benches::records::put;
use benches::report::percent;
use benches::{process, raw, scale};
use bytes::Bytes;
use engine::{Engine, Options, Write};
use tests::server::TempDir;

/// The server uses the same allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VALUE_BYTES: usize = 1024;
/// Size of the file that is overwritten.
const OVERWRITTEN_BYTES: u64 = 64 << 20;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
    let (slice, rounds) = scale((Duration::from_millis(333), 15), (Duration::from_millis(5), 1));
    let scratch = TempDir::new();
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    for writers in [1, 64, 1024] {
        let directory = scratch.path().join(writers.to_string());
        let engine = Engine::open(Options::new(directory.join("log"))).expect("the store opens");
        let writes: Vec<_> = (0..writers).map(|at| put(at, &value)).collect();
        let mut plain = Plain::create(&directory);
        // The first round inserts the keys and allocates memory.
        let rounds: Vec<_> = (0..=rounds)
            .map(|_| {
                let ours = commit_for(slice, &runtime, &engine, &writes);
                // Background work of the store must not slow down the baseline.
                runtime.block_on(engine.settled());
                let appended = plain.run_for(slice, &ours, |plain| &mut plain.appended);
                let overwritten = plain.run_for(slice, &ours, |plain| &mut plain.overwritten);
                Round { ours, appended, overwritten }
            })
            .skip(1)
            .collect();
        report(writers, &rounds);
        runtime.block_on(engine.close());
        drop(engine);
        std::fs::remove_dir_all(&directory).expect("it is ours");
    }
}

/// The results of a round, for the engine and for the two baselines. Each measurement takes a third of the
/// round's time.
struct Round {
    ours: Committed,
    appended: Cost,
    overwritten: Cost,
}

/// Cost of a commit, in microseconds.
#[derive(Clone, Copy)]
struct Cost {
    time: f64,
    cpu: f64,
}

impl Cost {
    /// Returns the cost of one commit, from the total time and CPU time of `commits` commits.
    fn per_commit(commits: f64, elapsed: Duration, cpu: Duration) -> Cost {
        Cost { time: elapsed.as_secs_f64() * 1e6 / commits, cpu: cpu.as_secs_f64() * 1e6 / commits }
    }
}

struct Committed {
    cost: Cost,
    /// Mean number of commits in a batch.
    in_a_batch: f64,
    /// Mean number of bytes in a batch.
    batch_bytes: f64,
}

/// Commits repeatedly with a writer for each of `writes` until `slice` has passed.
fn commit_for(
    slice: Duration,
    runtime: &tokio::runtime::Runtime,
    engine: &Engine,
    writes: &[Write],
) -> Committed {
    let before = (process::cpu_time(std::process::id()), engine.stats());
    let start = Instant::now();
    runtime.block_on(async {
        let writers: Vec<_> = writes
            .iter()
            .map(|write| {
                let (engine, write) = (engine.clone(), write.clone());
                tokio::spawn(async move {
                    while start.elapsed() < slice {
                        engine.commit(write.clone()).await.expect("the disk takes writes");
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.expect("writers do not panic");
        }
    });
    let elapsed = start.elapsed();
    let cpu = process::cpu_time(std::process::id()).saturating_sub(before.0);
    let stats = engine.stats();
    let commits = (stats.commits - before.1.commits) as f64;
    let batches = (stats.batches - before.1.batches) as f64;
    Committed {
        cost: Cost::per_commit(commits, elapsed, cpu),
        in_a_batch: commits / batches,
        batch_bytes: (stats.record_bytes - before.1.record_bytes) as f64 / batches,
    }
}

/// Plain files for the baselines.
struct Plain {
    appended: raw::RawLog,
    overwritten: raw::RawLog,
}

impl Plain {
    fn create(directory: &Path) -> Plain {
        let create = |name: &str, filled| {
            let path = directory.join(name);
            std::fs::create_dir(&path).and_then(|()| raw::RawLog::create(&path, filled))
        };
        Plain {
            appended: create("appended", 0).expect("the disk takes writes"),
            overwritten: create("overwritten", OVERWRITTEN_BYTES).expect("the disk takes writes"),
        }
    }

    /// Writes and syncs batches of the same size as the batches of `ours` until `slice` has passed. Returns
    /// the cost of one commit in these batches.
    fn run_for(
        &mut self,
        slice: Duration,
        ours: &Committed,
        file: impl FnOnce(&mut Plain) -> &mut raw::RawLog,
    ) -> Cost {
        let batch = vec![b'x'; ours.batch_bytes as usize];
        let file = file(self);
        let before = process::cpu_time(std::process::id());
        let start = Instant::now();
        let mut batches = 0;
        while start.elapsed() < slice {
            file.append(&batch).expect("the disk takes writes");
            batches += 1;
        }
        let elapsed = start.elapsed();
        let cpu = process::cpu_time(std::process::id()).saturating_sub(before);
        Cost::per_commit(f64::from(batches) * ours.in_a_batch, elapsed, cpu)
    }
}

fn report(writers: usize, rounds: &[Round]) {
    let median = |of: &dyn Fn(&Round) -> f64| benches::report::median(rounds.iter().map(of).collect());
    let cost = |of: &dyn Fn(&Round) -> Cost| {
        let (time, cpu) = (median(&|round| of(round).time), median(&|round| of(round).cpu));
        format!("{time:.2} us ({cpu:.2} of CPU)")
    };
    // A ratio of medians would combine different rounds, so compute the ratio of each round, and then the
    // median.
    let share =
        |of: &dyn Fn(&Round) -> Cost| percent(median(&|round| of(round).time / round.ours.cost.time), 1.0);
    line(&format!(
        "{writers} writers: a commit takes {}, {:.0}/s, {:.1} in a batch of {:.0} bytes",
        cost(&|round| round.ours.cost),
        1e6 / median(&|round| round.ours.cost.time),
        median(&|round| round.ours.in_a_batch),
        median(&|round| round.ours.batch_bytes),
    ));
    line(&format!(
        "    limits: the same batches appended and synced {}, of whose bytes/s commits reach {}; written over others {}, {}; \
         medians of {} rounds side by side",
        cost(&|round| round.appended),
        share(&|round| round.appended),
        cost(&|round| round.overwritten),
        share(&|round| round.overwritten),
        rounds.len(),
    ));
}

#[expect(clippy::print_stdout, reason = "a bench reports on stdout")]
fn line(text: &str) {
    println!("{text}");
}
