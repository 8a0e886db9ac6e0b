//! Profiles of the process, in the format of pprof (`profile.proto` of github.com/google/pprof), for
//! `/debug/pprof/`.
//!
//! ```text
//! timer ─ signal ─► cpu.rs ──┐
//!                            ├─ stacks (stack.rs) ─► names (names.rs) ─► document.rs ─► gzip
//! allocator ─────► heap.rs ──┘
//! ```
//!
//! A processor profile has a cost only while it runs. Allocations are sampled all the time (one for every two
//! mebibytes), because the stack of a block can be recorded only when the block is allocated.
//! `--profiling=false` disables the sampling if there is no debug socket.

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

    fn memory(&self, selected: MemoryProfile) -> BoxFuture<'static, Vec<u8>> {
        Box::pin(in_background(move || document::of_memory(&heap::samples(), selected)))
    }

    fn names(&self, addresses: Vec<u64>) -> BoxFuture<'static, Vec<(u64, String)>> {
        Box::pin(in_background(move || {
            let mapped = addresses.iter().filter_map(|&address| usize::try_from(address).ok()).collect();
            let names = names::Names::for_addresses(&mapped);
            let named = addresses.into_iter().filter_map(|address| {
                let name = names.name(usize::try_from(address).ok()?)?;
                Some((address, name.to_owned()))
            });
            named.collect()
        }))
    }
}

/// Permit for work that reads symbol tables. There is one permit, because the work needs some megabytes of
/// memory.
static TURN: Semaphore = Semaphore::const_new(1);

/// Runs work that reads symbol tables, which takes some tens of milliseconds, without blocking other tasks.
async fn in_background<T: Default + Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // The semaphore is never closed.
    let Ok(turn) = TURN.acquire().await else { return T::default() };
    let work = move || {
        // The permit moves into the work, because the work continues when the client disconnects.
        let _turn = turn;
        work()
    };
    // An error is possible only when the runtime ends, and then the connection ends as well.
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}
