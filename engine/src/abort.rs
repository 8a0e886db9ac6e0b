//! The end of a process in which an invariant of the store is broken.

use std::panic::AssertUnwindSafe;

/// Runs `work` and ends the process if `work` panics. A panic means that an invariant is broken, so nothing
/// that the store would read or write afterwards can be trusted. Acknowledged writes are on disk, and the
/// next opening recovers them.
pub(crate) fn or_abort<T>(work: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        tracing::error!(
            "an invariant of the store is broken; the process ends, and a restart recovers the store"
        );
        std::process::abort()
    })
}
