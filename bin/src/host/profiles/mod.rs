//! Profiles of the process, in the format of pprof (`profile.proto` of github.com/google/pprof), for
//! `/debug/pprof/`.
//!
//! ```text
//! timer ─ signal ─► cpu.rs ──┐
//!                            ├─ stacks (stack.rs) ─► names (names.rs) ─► document.rs ─► gzip
//! allocator ─────► heap.rs ──┘
//! ```
//!
//! A processor profile has a cost only while it is taken. Allocations are sampled all the time (one in two
//! mebibytes), unless `--profiling=false`: the user of a block can only be recorded when the block is
//! allocated.

mod cpu;
mod document;
pub mod heap;
mod names;
mod stack;

use std::time::Duration;

use api::state::debug::{MemoryProfile, Profiles};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

/// The profiles of this process.
pub struct OwnProfiles;

impl Profiles for OwnProfiles {
    fn processor(&self, length: Duration) -> BoxFuture<'static, Option<Vec<u8>>> {
        Box::pin(async move {
            let samples = cpu::samples(length).await?;
            Some(in_background(move || document::of_processor(&samples, length)).await)
        })
    }

    fn memory(&self, shown: MemoryProfile) -> BoxFuture<'static, Vec<u8>> {
        Box::pin(in_background(move || document::of_memory(&heap::samples(), shown)))
    }

    fn names(&self, addresses: Vec<u64>) -> BoxFuture<'static, Vec<(u64, String)>> {
        Box::pin(in_background(move || {
            let wanted = addresses.iter().filter_map(|&address| usize::try_from(address).ok()).collect();
            let names = names::Names::of(&wanted);
            let named = addresses.into_iter().filter_map(|address| {
                let name = names.name(usize::try_from(address).ok()?)?;
                Some((address, name.to_owned()))
            });
            named.collect()
        }))
    }
}

/// Permit for work that reads symbol tables. Each run needs some megabytes, so only one runs at a time.
static TURN: Semaphore = Semaphore::const_new(1);

/// Runs work that reads symbol tables, which takes some tens of milliseconds, without blocking other tasks.
async fn in_background<T: Default + Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // The semaphore is never closed.
    let Ok(turn) = TURN.acquire().await else { return T::default() };
    let work = move || {
        // The work keeps its permit when the client disconnects, because it cannot be stopped.
        let _turn = turn;
        work()
    };
    // This fails only when the runtime ends, together with the connection.
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}
