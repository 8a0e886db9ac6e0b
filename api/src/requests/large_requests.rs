//! Large requests next to small ones: a poll that works on megabytes must not block the other tasks of its
//! thread.
//!
//! ```text
//! small ─► polled by the runtime's thread
//! large ─► polled by the same thread, whose other tasks and sockets move to another thread meanwhile
//! ```
//!
//! Decoding, defaulting, validating and encoding an object of 3 MB takes tenths of a second, without a point
//! to pause. A runtime has one thread for each core, and polls its sockets only after some tens of task polls
//! when all threads are busy: a few large requests in sequence would be most of these polls, and all other
//! requests would wait for seconds. The number of concurrent large requests is bounded by the memory that
//! they are charged (`values/memory.rs`).

use std::future::Future;
use std::pin::Pin;

use tokio::runtime::{Handle, RuntimeFlavor};

/// Maximum size of a body, together with the object that it changes, that is handled like any other request:
/// within a millisecond or two.
const SMALL_BYTES_MAX: usize = 128 * 1024;

/// Runs `work` that handles this number of bytes; large work runs in place while another thread takes over
/// the other tasks.
#[expect(
    clippy::disallowed_methods,
    reason = "the task is the request's alone, or its connection's, which waits for it"
)]
pub(super) async fn beside_others<F: Future>(bytes: usize, mut work: Pin<&mut F>) -> F::Output {
    let has_others = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    let is_large = bytes > SMALL_BYTES_MAX && has_others();
    std::future::poll_fn(|cx| match is_large {
        true => tokio::task::block_in_place(|| work.as_mut().poll(cx)),
        false => work.as_mut().poll(cx),
    })
    .await
}
