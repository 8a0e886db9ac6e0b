//! Returns memory that the allocator keeps for later to the system, by a timer.
//!
//! ```text
//! every second: has the process worked since the last return? is it quiet now, or has it grown much? ─► one task on each
//! worker thread ─► allocator::collect
//! ```
//!
//! The allocator returns memory when the thread that owns it allocates again. After a burst of requests no
//! thread does, so hundreds of megabytes stayed until the next request. Pages belong to the thread that
//! allocated from them, so each worker thread has to collect its own.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::host::allocator;
use crate::host::process;

/// Interval of the timer.
const TICK: Duration = Duration::from_secs(1);

/// Processor time since the last return after which there may be memory to return. An idle server uses less
/// in several seconds.
const WORK: Duration = Duration::from_millis(50);

/// Processor time in one tick below which the server counts as quiet.
const QUIET: Duration = Duration::from_millis(100);

/// Growth since the last return after which a busy server returns memory too. Returned memory has to be
/// obtained from the system again, so a busy server keeps less than this for later.
const GROWTH_BYTES: u64 = 64 << 20;

/// Maximum time that a worker thread waits for the others, so that each of them gets one of the tasks.
const MEETING: Duration = Duration::from_millis(5);

/// Pause between two checks while a worker thread waits.
const MEETING_STEP: Duration = Duration::from_micros(100);

/// Observations at the last return and at the last tick.
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

/// Returns memory periodically, as long as the runtime lives.
pub async fn run() {
    let mut observed = Observed::default();
    loop {
        tokio::time::sleep(TICK).await;
        // Without /proc there are no measurements, and the allocator keeps its memory.
        let Some((cpu, resident_bytes)) = process::spent() else { return };
        if !observed.is_due(cpu, resident_bytes) {
            continue;
        }
        let began = Instant::now();
        let threads = collect_on_all_workers().await;
        let Some((cpu, left_bytes)) = process::spent() else { return };
        observed.returned(cpu, left_bytes);
        tracing::trace!(
            threads,
            resident_bytes,
            left_bytes,
            elapsed_us = began.elapsed().as_micros() as u64,
            "memory returned to the system"
        );
    }
}

thread_local! {
    /// The last round in which this thread has collected.
    static ROUND: Cell<usize> = const { Cell::new(0) };
}

/// Collects on each worker thread of the runtime that is free within [`MEETING`]; returns their number.
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
        // A task fails only if the runtime ends.
        let _ = task.await;
    }
    arrived.load(Ordering::Relaxed)
}

/// Collects unless this thread has done so in this round, and occupies the thread until the others have
/// arrived.
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
    fn memory_is_returned_after_work_once_it_is_quiet_or_when_much_was_added() {
        const MIB: u64 = 1 << 20;
        // Processor time in milliseconds and resident megabytes at each tick, and whether memory is returned.
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
    fn every_worker_thread_collects() {
        for workers in [1, 2, 4] {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build().unwrap();
            let most = runtime.block_on(async {
                // On a busy machine a thread may arrive too late, so the test tries several times.
                let mut most = 0;
                for _ in 0..50 {
                    most = most.max(tokio::spawn(collect_on_all_workers()).await.unwrap());
                }
                most
            });
            assert_eq!(most, workers);
        }
    }
}
