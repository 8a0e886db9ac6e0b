//! Large requests beside small ones: a poll that works on megabytes does not keep a thread of the runtime from the others.
//!
//! ```text
//! small ─► polled by the runtime's thread
//! large ─► polled by the same thread, whose other tasks and sockets go to another one meanwhile
//! ```
//!
//! To decode, default, validate and encode an object of 3 MB takes tenths of a second, without a place to pause. A runtime has
//! a thread for each core, and looks at its sockets after some tens of polls when all threads are busy: a few large requests
//! that follow each other would be most of these polls, and all others would wait for seconds. How many there are at one time
//! is bounded by the memory that they are charged (`values/memory.rs`).

use std::future::Future;
use std::pin::Pin;

use tokio::runtime::{Handle, RuntimeFlavor};

/// Bytes of a body, and of the object that it changes, that are worked on as those of any other request: within a millisecond
/// or two.
const SMALL_BYTES_MAX: usize = 128 * 1024;

/// What becomes of `work` on so many bytes.
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
