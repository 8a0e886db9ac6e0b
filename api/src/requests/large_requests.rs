//! Large requests next to small ones: a poll that works on megabytes must not block the other tasks of its
//! thread.
//!
//! ```text
//! small ─► polled by the runtime's thread
//! large ─► polled by the same thread, whose other tasks and sockets move to another thread meanwhile
//! ```
//!
//! Decoding, defaulting, validating and encoding an object of 3 MB takes tenths of a second, without a point to
//! pause. A runtime has one thread for each core. When all threads are busy, the runtime polls its sockets only
//! after some tens of task polls. A few large requests could take most of these polls, and all other requests
//! would wait for seconds. The memory budget limits the number of concurrent large requests
//! (`values/memory.rs`).

use std::future::Future;
use std::pin::Pin;

use tokio::runtime::{Handle, RuntimeFlavor};

/// Maximum size of a small request: the size of the request body plus the size of the object that the request
/// changes. The work on a small request takes one or two milliseconds.
const SMALL_BYTES_MAX: usize = 128 * 1024;

/// Polls `work`, which handles this number of bytes. Large work runs on the current thread, while another
/// thread takes over the other tasks.
#[expect(
    clippy::disallowed_methods,
    reason = "the task is the request's alone, or its connection's, which waits for it"
)]
pub(super) async fn poll_large<F: Future>(bytes: usize, mut work: Pin<&mut F>) -> F::Output {
    let has_others = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    let is_large = bytes > SMALL_BYTES_MAX && has_others();
    std::future::poll_fn(|cx| {
        if is_large { tokio::task::block_in_place(|| work.as_mut().poll(cx)) } else { work.as_mut().poll(cx) }
    })
    .await
}
