//! Samples of running threads. A timer counts the processor time of all threads, and sends a signal to one of the
//! running threads.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

/// The function that takes a sample.
static SAMPLE: OnceLock<fn()> = OnceLock::new();

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: each thread has its own `errno`. A signal handler must restore this value.
    let errno = unsafe { *libc::__errno_location() };
    if let Some(sample) = SAMPLE.get() {
        sample();
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Installs a signal handler that calls `sample` on the interrupted thread for each signal of the timer. The handler
/// stays until the process ends. A later call of this function does not replace `sample`.
///
/// `sample` runs in a signal handler, so it must not allocate memory or take a lock.
pub fn install(sample: fn()) {
    let _ = SAMPLE.set(sample);
    // SAFETY: all fields of the action are set, and zero is a valid mask. The handler is never removed,
    // because a signal may arrive after the timer is stopped.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut());
    }
}

/// Sets the processor time between two signals. The period must be shorter than a second. Zero stops the
/// timer.
pub fn set_timer(period: Duration) {
    let value = libc::timeval { tv_sec: 0, tv_usec: libc::suseconds_t::from(period.subsec_micros() as i32) };
    let timer = libc::itimerval { it_interval: value, it_value: value };
    // SAFETY: the pointer is valid. The call cannot fail with these arguments.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, ptr::null_mut()) };
}
