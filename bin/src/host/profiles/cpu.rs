//! Processor profile of the process: a timer that counts processor time sends a signal to a running thread,
//! whose signal handler records the stack.
//!
//! ```text
//! SIGPROF ─► free slot ─► written ─► drained every 100 ms into counts by stack
//! ```
//!
//! The handler allocates nothing and takes no lock. Only one profile is taken at a time.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::stack::{self, DEPTH};

/// Processor time between two samples.
pub const PERIOD: Duration = Duration::from_millis(10);

/// Interval at which recorded samples are collected.
const DRAIN: Duration = Duration::from_millis(100);

/// Maximum number of samples between two collections: enough for 400 processors.
const SLOTS: usize = 4096;

/// Maximum number of stacks in a profile; samples of further stacks are counted without a stack.
const STACKS_MAX: usize = 50_000;

/// Number of samples of each stack.
pub type Samples = HashMap<Box<[usize]>, u64>;

// The handler of a signal takes the samples, and a handler reaches nothing but globals.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static NOTED: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];

/// A sample. The thread that changed the state from free to being written, or that reads it as written, has
/// exclusive access to the frames.
struct Slot {
    state: AtomicUsize,
    frames: UnsafeCell<[usize; DEPTH]>,
}

const FREE: usize = 0;
const BEING_WRITTEN: usize = 1;
/// First of the states of a written slot; the number of frames is the difference to this value.
const WRITTEN: usize = 2;

// SAFETY: the state determines which thread may access the frames.
unsafe impl Sync for Slot {}

impl Slot {
    const fn new() -> Slot {
        Slot { state: AtomicUsize::new(FREE), frames: UnsafeCell::new([0; DEPTH]) }
    }

    /// Records where the calling thread was interrupted; a slot that is not free is left unchanged.
    fn note(&self) {
        if self.state.compare_exchange(FREE, BEING_WRITTEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        // SAFETY: the state was free, and now says that this thread writes the frames.
        let frames = unsafe { &mut *self.frames.get() };
        let len = stack::fill(frames, stack::From::Interrupted);
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

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: the value belongs to the calling thread. A signal handler has to restore it.
    let errno = unsafe { *libc::__errno_location() };
    NOTED[NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS].note();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// A profile that is being taken; dropping this value ends it.
struct Running;

impl Running {
    fn begin() -> Option<Running> {
        if IS_RUNNING.swap(true, Ordering::AcqRel) {
            return None;
        }
        let running = Running;
        // The unwinder's initialisation must happen outside of the signal handler.
        stack::fill(&mut [0; DEPTH], stack::From::Frame(0));
        drain(&mut Samples::new());
        // SAFETY: all fields of the action are set, and zero is a valid mask. The handler stays installed,
        // because a signal may arrive late.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut());
        }
        set_timer(PERIOD);
        Some(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        set_timer(Duration::ZERO);
        IS_RUNNING.store(false, Ordering::Release);
    }
}

/// Sets the processor time between two signals; zero stops the timer.
fn set_timer(period: Duration) {
    let value = libc::timeval { tv_sec: 0, tv_usec: libc::suseconds_t::from(period.subsec_micros() as i32) };
    let timer = libc::itimerval { it_interval: value, it_value: value };
    // SAFETY: the pointer is valid. The call cannot fail with these arguments.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, ptr::null_mut()) };
}

fn drain(samples: &mut Samples) {
    NOTED.iter().for_each(|slot| slot.take(samples));
}

/// Takes a profile over the given time; `None` while another profile is taken.
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
    async fn a_profile_names_what_runs_and_one_is_taken_at_a_time() {
        let over: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let spinning = std::thread::spawn(|| spins(over));
        let first = tokio::spawn(samples(Duration::from_secs(2)));
        while !IS_RUNNING.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
        assert!(samples(Duration::from_secs(1)).await.is_none());
        let taken = first.await.unwrap().unwrap();
        over.store(true, Ordering::Relaxed);
        spinning.join().unwrap();
        let names = Names::of(&taken.keys().flatten().copied().collect());
        let is_spinning = |stack: &[usize]| {
            stack.iter().any(|&frame| names.name(frame).is_some_and(|name| name.ends_with("::spins")))
        };
        let in_it: u64 = taken.iter().filter(|(stack, _)| is_spinning(stack)).map(|(_, count)| count).sum();
        assert!(in_it >= 3, "{in_it} of {} samples", taken.values().sum::<u64>());
        // The previous profile was given up, so the next one can be taken.
        drop(tokio::time::timeout(Duration::from_millis(10), samples(Duration::from_secs(60))).await);
        assert!(samples(Duration::ZERO).await.is_some());
    }
}
