//! Processor profile of the process. A timer that counts processor time sends a signal to a running thread.
//! The signal handler records the stack of this thread.
//!
//! ```text
//! SIGPROF ─► free slot ─► written ─► drained every 100 ms into counts by stack
//! ```
//!
//! The handler allocates nothing and takes no lock. Only one profile is taken at a time.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::stack::{self, DEPTH};
use crate::host::platform::sampling;

/// Processor time between two samples.
pub const PERIOD: Duration = Duration::from_millis(10);

/// Interval at which recorded samples are collected.
const DRAIN: Duration = Duration::from_millis(100);

/// Maximum number of samples between two collections. The number is enough for 400 processors.
const SLOTS: usize = 4096;

/// Maximum number of stacks in a profile. Samples of further stacks are counted together, without a stack.
const STACKS_MAX: usize = 50_000;

/// Number of samples of each stack.
pub type Samples = HashMap<Box<[usize]>, u64>;

// These variables are global, because the signal handler that takes the samples can access only global
// variables.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static NOTED: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];

/// A sample. The frames belong to the thread that changed the state from free to being written. Once the
/// state is written, the frames belong to the thread that collects samples.
struct Slot {
    state: AtomicUsize,
    frames: UnsafeCell<[usize; DEPTH]>,
}

const FREE: usize = 0;
const BEING_WRITTEN: usize = 1;
/// Lowest state of a written slot. The state is the sum of this value and the number of frames.
const WRITTEN: usize = 2;

// SAFETY: the state determines which thread may access the frames.
unsafe impl Sync for Slot {}

impl Slot {
    const fn new() -> Slot {
        Slot { state: AtomicUsize::new(FREE), frames: UnsafeCell::new([0; DEPTH]) }
    }

    /// Records the stack at which the calling thread was interrupted. Does nothing if the slot is not free.
    fn note(&self) {
        if self.state.compare_exchange(FREE, BEING_WRITTEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        // SAFETY: the state was free, and now reserves the frames for writes by this thread.
        let frames = unsafe { &mut *self.frames.get() };
        let len = stack::fill(frames, stack::FirstFrame::Interrupted);
        self.state.store(WRITTEN + len, Ordering::Release);
    }

    fn take(&self, samples: &mut Samples) {
        let Some(len) = self.state.load(Ordering::Acquire).checked_sub(WRITTEN) else { return };
        // SAFETY: the slot is written, and there is only one reader.
        let frames = unsafe { &*self.frames.get() };
        let frames = &frames[..len];
        let has_room = samples.len() < STACKS_MAX;
        match samples.get_mut(frames) {
            Some(count) => *count += 1,
            None => *samples.entry(if has_room { frames.into() } else { [].into() }).or_default() += 1,
        }
        self.state.store(FREE, Ordering::Release);
    }
}

/// Records the stack at which the calling thread was interrupted. The signal handler calls this function.
fn note() {
    NOTED[NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS].note();
}

/// A running profile. Dropping this value ends the profile.
struct Running;

impl Running {
    fn begin() -> Option<Running> {
        if IS_RUNNING.swap(true, Ordering::AcqRel) {
            return None;
        }
        let running = Running;
        // Call the unwinder once, because its initialisation must not happen in the signal handler.
        stack::fill(&mut [0; DEPTH], stack::FirstFrame::Frame(0));
        drain(&mut Samples::new());
        sampling::install(note);
        sampling::set_timer(PERIOD);
        Some(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        sampling::set_timer(Duration::ZERO);
        IS_RUNNING.store(false, Ordering::Release);
    }
}

fn drain(samples: &mut Samples) {
    NOTED.iter().for_each(|slot| slot.take(samples));
}

/// Takes a profile for the given time. Returns `None` if another profile is running.
pub async fn samples(length: Duration) -> Option<Samples> {
    let running = Running::begin()?;
    let mut samples = Samples::new();
    let until = Instant::now() + length;
    while Instant::now() < until {
        tokio::time::sleep_until(until.min(Instant::now() + DRAIN)).await;
        drain(&mut samples);
    }
    drop(running);
    Some(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::profiles::names::Names;

    #[inline(never)]
    fn spins(until_over: &AtomicBool) -> u64 {
        let mut sum = 0_u64;
        while !until_over.load(Ordering::Relaxed) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        sum
    }

    #[tokio::test]
    async fn a_cpu_profile_names_running_functions_and_excludes_a_second_profile() {
        let over: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let spinning = std::thread::spawn(|| spins(over));
        let first = tokio::spawn(samples(Duration::from_secs(2)));
        while !IS_RUNNING.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
        assert!(samples(Duration::from_secs(1)).await.is_none());
        let spinning_in = |taken: &Samples| -> u64 {
            let names = Names::for_addresses(&taken.keys().flatten().copied().collect());
            let is_spinning = |stack: &[usize]| {
                stack.iter().any(|&frame| names.name(frame).is_some_and(|name| name.ends_with("::spins")))
            };
            taken.iter().filter(|(stack, _)| is_spinning(stack)).map(|(_, count)| count).sum()
        };
        let mut taken = first.await.unwrap().unwrap();
        // On a busy machine the spinning thread may hardly run during a profile, so the test takes several.
        for _ in 0..10 {
            if spinning_in(&taken) >= 3 {
                break;
            }
            taken = samples(Duration::from_secs(2)).await.unwrap();
        }
        over.store(true, Ordering::Relaxed);
        spinning.join().unwrap();
        let in_it = spinning_in(&taken);
        assert!(in_it >= 3, "{in_it} of {} samples", taken.values().sum::<u64>());
        // Dropping a running profile ends it, so that the next profile can start.
        drop(tokio::time::timeout(Duration::from_millis(10), samples(Duration::from_secs(60))).await);
        assert!(samples(Duration::ZERO).await.is_some());
    }
}
