//! Shared modules of the benchmarks: load for a real server over real sockets, and baselines.
//!
//! ```text
//! bench ─┬─► load (raw HTTP/1.1 over TLS, prepared bytes) ─┬─► server process ─► process (its CPU time, its memory)
//!        ├─► http2 (many watches over one connection) ─────┘
//!        └─► raw (the same bytes over TLS, or into a file, with nothing in between)
//! ```
//!
//! Load and server run on the same machine and compete for its cores. Rates are therefore lower bounds, and
//! the benchmarks also report the server's CPU time. `BENCH_SMALL=1` or cargo's test mode reduces every bench
//! to a second. Such a run shows that the bench works, but its results have no meaning.

pub mod cluster;
pub mod data;
pub mod http2;
pub mod load;
pub mod marks;
pub mod process;
pub mod raw;
pub mod records;
pub mod report;
pub mod socket;

use std::future::Future;

/// Returns whether cargo runs the bench as a test and not as a measurement.
pub fn is_small() -> bool {
    // Cargo passes `--bench` only for measurements.
    let measures = std::env::args().any(|argument| argument == "--bench");
    let is_test = std::env::args().any(|argument| argument == "--test");
    std::env::var_os("BENCH_SMALL").is_some() || is_test || !measures
}

/// Returns `full` in a measurement, or `small` in a test.
pub fn scale<T>(full: T, small: T) -> T {
    if is_small() { small } else { full }
}

/// The runtime of the load. The runtime has only one thread, so that the server can use the rest of the
/// machine.
pub struct Runtime(tokio::runtime::Runtime);

impl Runtime {
    /// Creates a runtime on the calling thread.
    #[expect(clippy::new_without_default, reason = "starting a runtime is not a default")]
    pub fn new() -> Self {
        Runtime(tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts"))
    }

    /// Runs `work` to completion.
    pub fn run<F: Future>(&self, work: F) -> F::Output {
        self.0.block_on(work)
    }
}
