//! Profiles of the process, in the format of pprof (`profile.proto` of github.com/google/pprof), for `/debug/pprof/`.
//!
//! ```text
//! timer ─ signal ─► cpu.rs ──┐
//!                            ├─ stacks (stack.rs) ─► names (names.rs) ─► document.rs ─► gzip
//! allocator ─────► heap.rs ──┘
//! ```
//!
//! A processor profile costs something while it is taken. Of allocations one in two mebibytes is noted all the time, unless
//! `--profiling=false`: what holds memory can only be told by who saw it allocated.

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

/// Turns of the work that reads symbol tables. Each run takes some megabytes, so there is one at a time.
static TURN: Semaphore = Semaphore::const_new(1);

/// Reads symbol tables, which takes some tens of milliseconds, while other tasks go on.
async fn in_background<T: Default + Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // The semaphore is never closed.
    let Ok(turn) = TURN.acquire().await else { return T::default() };
    let work = move || {
        // The work keeps its turn when the client goes away, because it cannot be stopped.
        let _turn = turn;
        work()
    };
    // It fails when the runtime ends, and the connection with it.
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}
