//! Periodically returns memory to the system that the allocator keeps for later allocations.
//!
//! ```text
//! every second: has the process worked since the last return? is it quiet now, or has it grown much? ─► one task on each
//! worker thread ─► allocator::collect
//! ```
//!
//! Without this task, the allocator returns memory only when the owning thread allocates again. After a burst
//! of requests no thread allocates, so the process would keep hundreds of megabytes until the next request.
//! Pages belong to the thread that allocated from them, so each worker thread must collect its own pages.
//!
//! Shortly after the start, this task also unmaps the code of the start-up ([`code_pages`]).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::host::allocator;
use crate::host::platform::{code_pages, process};

/// Interval of the timer.
const TICK: Duration = Duration::from_secs(1);

/// Processor time since the last return after which there may be memory to return. An idle server needs many
/// seconds to use this much.
const WORK: Duration = Duration::from_millis(50);

/// The server counts as quiet if it used less processor time in one tick.
const QUIET: Duration = Duration::from_millis(100);

/// Growth since the last return after which a busy server also returns memory. A busy server keeps up to this
/// much memory, because it would soon have to get returned memory from the system again.
const GROWTH_BYTES: u64 = 64 << 20;

/// Time after which the task no longer unmaps code, because later the mapped code may be the code of
/// requests.
const START_MAX: Duration = Duration::from_secs(30);

/// Maximum time that a worker thread waits for the other worker threads. While a thread waits, it cannot run
/// a second task, so each thread gets one task.
const MEETING: Duration = Duration::from_millis(5);

/// Pause between two checks while a worker thread waits.
const MEETING_STEP: Duration = Duration::from_micros(100);

/// The measurements at the last return and at the last tick.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    /// Processor time at the last return.
    returned_at: Duration,
    /// Processor time at the last tick.
    ticked_at: Duration,
    /// Resident memory after the last return.
    resident_bytes: u64,
}

impl Observed {
    /// Returns whether memory should be returned at this tick.
    fn is_due(&mut self, cpu: Duration, resident_bytes: u64) -> bool {
        let worked = cpu.saturating_sub(self.returned_at);
        let worked_now = cpu.saturating_sub(std::mem::replace(&mut self.ticked_at, cpu));
        let has_grown = resident_bytes >= self.resident_bytes + GROWTH_BYTES;
        worked >= WORK && (worked_now < QUIET || has_grown)
    }

    /// Records that memory was returned.
    fn returned(&mut self, cpu: Duration, resident_bytes: u64) {
        *self = Observed { returned_at: cpu, ticked_at: cpu, resident_bytes };
    }
}

/// Returns memory periodically, as long as the runtime exists.
pub async fn run() {
    let mut observed = Observed::default();
    let started = Instant::now();
    loop {
        tokio::time::sleep(TICK).await;
        // Without /proc there are no measurements, and the allocator keeps its memory.
        let Some((cpu, resident_bytes)) = process::spent() else { return };
        if !observed.is_due(cpu, resident_bytes) {
            continue;
        }
        let began = Instant::now();
        let threads = collect_on_all_workers().await;
        let unmapped_bytes = if started.elapsed() < START_MAX { code_pages::unmap() } else { 0 };
        let Some((cpu, left_bytes)) = process::spent() else { return };
        observed.returned(cpu, left_bytes);
        tracing::trace!(
            threads,
            resident_bytes,
            left_bytes,
            unmapped_bytes,
            elapsed_us = began.elapsed().as_micros() as u64,
            "memory returned to the system"
        );
    }
}

thread_local! {
    /// The last round in which this thread has collected.
    static ROUND: Cell<usize> = const { Cell::new(0) };
}

/// Collects on each worker thread of the runtime that is free within [`MEETING`]. Returns the number of these
/// threads.
async fn collect_on_all_workers() -> usize {
    static ROUNDS: AtomicUsize = AtomicUsize::new(0);
    let round = ROUNDS.fetch_add(1, Ordering::Relaxed) + 1;
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    let arrived = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..workers)
        .map(|_| {
            let arrived = arrived.clone();
            tokio::spawn(async move { collect_once(round, &arrived, workers) })
        })
        .collect();
    for task in tasks {
        // A task can fail only if the runtime ends.
        let _ = task.await;
    }
    arrived.load(Ordering::Relaxed)
}

/// Collects, if this thread has not yet collected in this round. Then blocks the thread until the other
/// threads have collected, up to [`MEETING`].
fn collect_once(round: usize, arrived: &AtomicUsize, workers: usize) {
    if ROUND.replace(round) == round {
        return;
    }
    let until = Instant::now() + MEETING;
    allocator::collect();
    arrived.fetch_add(1, Ordering::Relaxed);
    while arrived.load(Ordering::Relaxed) < workers && Instant::now() < until {
        std::thread::sleep(MEETING_STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_to_the_system_after_work_or_a_large_increase() {
        const MIB: u64 = 1 << 20;
        // Each tick has the processor time in milliseconds, the resident megabytes, and whether memory is
        // returned.
        let ticks = [
            (20, 100, false), // no work yet
            (40, 100, false),
            (60, 160, true), // work, and quiet
            (80, 160, false),
            (900, 170, false),   // busy, and not much larger
            (1_800, 250, true),  // busy, and 90 MiB larger
            (2_700, 250, false), // busy without growth
            (2_705, 250, true),  // the burst is over
            (2_710, 250, false),
            (2_715, 250, false),
        ];
        let mut observed = Observed::default();
        observed.returned(Duration::ZERO, 100 * MIB);
        for (at, (cpu, resident, want)) in ticks.into_iter().enumerate() {
            let (cpu, resident) = (Duration::from_millis(cpu), resident * MIB);
            assert_eq!(observed.is_due(cpu, resident), want, "tick {at}");
            if want {
                observed.returned(cpu, resident);
            }
        }
    }

    #[test]
    fn every_worker_thread_collects_its_free_memory() {
        for workers in [1, 2, 4] {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build().unwrap();
            let most = runtime.block_on(async {
                // On a busy machine a thread may arrive too late, so the test tries many times.
                let (mut most, until) = (0_usize, Instant::now() + Duration::from_secs(60));
                while most < workers && Instant::now() < until {
                    most = most.max(tokio::spawn(collect_on_all_workers()).await.unwrap());
                }
                most
            });
            assert_eq!(most, workers);
        }
    }
}
