//! Heap profile of the process. On average, one block is sampled for every two mebibytes that are allocated.
//! The block and its stack are recorded until the block is freed.
//!
//! ```text
//! allocated: bytes left of this thread's interval ── used up ─► stack ─► table
//! freed:     counter of the block's slot ── not zero ─► table
//! ```
//!
//! The lengths of intervals are exponentially distributed, so that every byte has the same probability of
//! being sampled. The size of a sampled block determines the number of blocks that it represents (as in the
//! heap profiles of Go and tcmalloc). An allocation costs a subtraction, and a free costs a lookup in a small
//! table.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{MutexGuard, PoisonError};

use super::stack::{self, DEPTH};

/// Average number of allocated bytes between two samples (as in tcmalloc). Recording a sample takes some tens
/// of microseconds, and a request allocates about 100 KiB.
pub const INTERVAL: usize = 2 * 1024 * 1024;

/// Maximum number of distinct stacks. Blocks of further stacks are counted together, without a stack.
const STACKS_MAX: usize = 4096;

/// Number of frames of this module at the beginning of every stack.
const OWN_FRAMES: usize = 2;

/// Whether allocations are sampled. The flag is global because the allocator belongs to the process.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Number of sampled blocks in each slot. The address of a block determines its slot. A counter that has
/// reached its maximum never changes again.
static SLOTS: [AtomicU8; 1 << SLOT_BITS] = [const { AtomicU8::new(0) }; 1 << SLOT_BITS];
const SLOT_BITS: u32 = 14;

#[expect(clippy::disallowed_types, reason = "it waits without allocating, as parking_lot's does not")]
static TABLE: std::sync::Mutex<Table> = std::sync::Mutex::new(Table::new());

thread_local! {
    // The value has no destructor, so allocations of a thread that is ending are still counted.
    static THREAD: Thread = const { Thread { left: Cell::new(0), random: Cell::new(0), is_inside: Cell::new(false) } };
}

struct Thread {
    /// Remaining bytes of the interval.
    left: Cell<i64>,
    /// State of the random number generator; zero before the first allocation.
    random: Cell<u64>,
    /// Whether this thread is using the table. Allocations and frees of the table itself are not sampled.
    is_inside: Cell<bool>,
}

/// Starts to sample allocations.
pub fn start() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// Records that a block was allocated. `block` must not be null.
#[inline]
pub fn allocated(block: *mut u8, bytes: usize) {
    if !IS_ON.load(Ordering::Relaxed) {
        return;
    }
    THREAD.with(|thread| {
        // A block has at most `isize::MAX` bytes.
        let left = thread.left.get() - bytes as i64;
        thread.left.set(left);
        if left < 0 {
            note(thread, block, bytes);
        }
    });
}

/// Records that a block is about to be freed.
#[inline]
pub fn freed(block: *mut u8) {
    if slot(block.addr()).load(Ordering::Relaxed) != 0 {
        forget(block.addr());
    }
}

#[inline]
fn slot(address: usize) -> &'static AtomicU8 {
    let hash = (address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &SLOTS[(hash >> (u64::BITS - SLOT_BITS)) as usize]
}

#[cold]
#[inline(never)]
fn note(thread: &Thread, block: *mut u8, bytes: usize) {
    let is_first = thread.random.get() == 0;
    if is_first {
        thread.random.set((&raw const *thread).addr() as u64 | 1);
    }
    thread.left.set(interval(thread));
    if is_first || thread.is_inside.replace(true) {
        return;
    }
    let mut frames = [0; DEPTH];
    let len = stack::fill(&mut frames, stack::FirstFrame::Frame(OWN_FRAMES));
    table().add(block.addr(), bytes, &frames[..len]);
    thread.is_inside.set(false);
}

#[cold]
#[inline(never)]
fn forget(address: usize) {
    THREAD.with(|thread| {
        if !thread.is_inside.replace(true) {
            table().remove(address);
            thread.is_inside.set(false);
        }
    });
}

/// Returns a random number of bytes until the next sampled block.
fn interval(thread: &Thread) -> i64 {
    // xorshift64 (Marsaglia 2003).
    let mut random = thread.random.get();
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    thread.random.set(random);
    let uniform = ((random >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    (-uniform.ln() * INTERVAL as f64) as i64 + 1
}

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Totals of all blocks that one stack allocated, estimated from the sampled blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amounts {
    pub allocated: Amount,
    pub freed: Amount,
}

/// An estimated number of blocks, and the sum of their sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    pub blocks: f64,
    pub bytes: f64,
}

impl Amount {
    /// Returns the number of blocks of this size that one sampled block represents.
    fn for_sampled_block(bytes: usize) -> Amount {
        let bytes = bytes.max(1) as f64;
        let blocks = 1.0 / -(-bytes / INTERVAL as f64).exp_m1();
        Amount { blocks, bytes: blocks * bytes }
    }

    fn add(&mut self, other: Amount) {
        self.blocks += other.blocks;
        self.bytes += other.bytes;
    }
}

type Hasher = BuildHasherDefault<DefaultHasher>;

struct Table {
    stacks: Vec<Amounts>,
    /// The index in `stacks` for each stack.
    places: HashMap<Box<[usize]>, usize, Hasher>,
    /// The index of the stack and the size of each sampled block, by its address.
    live: HashMap<usize, (usize, usize), Hasher>,
}

impl Table {
    const fn new() -> Table {
        Table {
            stacks: Vec::new(),
            places: HashMap::with_hasher(Hasher::new()),
            live: HashMap::with_hasher(Hasher::new()),
        }
    }

    fn place(&mut self, frames: &[usize]) -> usize {
        let frames = match self.places.get(frames) {
            Some(&place) => return place,
            None if self.stacks.len() < STACKS_MAX => frames,
            None => &[],
        };
        let next = self.stacks.len();
        let place = *self.places.entry(frames.into()).or_insert(next);
        if place == next {
            self.stacks.push(Amounts::default());
        }
        place
    }

    fn add(&mut self, address: usize, bytes: usize, frames: &[usize]) {
        let place = self.place(frames);
        self.stacks[place].allocated.add(Amount::for_sampled_block(bytes));
        if let Some((place, bytes)) = self.live.insert(address, (place, bytes)) {
            // An earlier block at this address was freed by a thread that was using the table, so the free
            // was not recorded.
            self.stacks[place].freed.add(Amount::for_sampled_block(bytes));
            return;
        }
        let _ =
            slot(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_add(1));
    }

    fn remove(&mut self, address: usize) {
        let Some((place, bytes)) = self.live.remove(&address) else { return };
        self.stacks[place].freed.add(Amount::for_sampled_block(bytes));
        let less = |count: u8| (count < u8::MAX).then(|| count.saturating_sub(1));
        let _ = slot(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Returns all stacks with their amounts since the start.
pub fn samples() -> Vec<(Box<[usize]>, Amounts)> {
    THREAD.with(|thread| {
        let was_inside = thread.is_inside.replace(true);
        let table = table();
        let samples = table.places.iter().map(|(frames, &place)| (frames.clone(), table.stacks[place]));
        let samples = samples.collect();
        drop(table);
        thread.is_inside.set(was_inside);
        samples
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::profiles::names::Names;

    const BLOCKS: usize = 8192;
    const BLOCK: usize = 32 * 1024;

    #[inline(never)]
    fn hoards() -> Vec<Vec<u8>> {
        // Allocate the whole capacity first, because a vector that grows frees its old block.
        let mut hoard = Vec::with_capacity(BLOCKS);
        for _ in 0..BLOCKS {
            hoard.push(std::hint::black_box(Vec::with_capacity(BLOCK)));
        }
        std::hint::black_box(hoard)
    }

    fn hoarded() -> Amounts {
        let samples = samples();
        let names =
            Names::for_addresses(&samples.iter().flat_map(|(stack, _)| stack.iter().copied()).collect());
        let is_it = |stack: &[usize]| {
            stack.iter().any(|&frame| names.name(frame).is_some_and(|name| name.contains("hoards")))
        };
        let mut sum = Amounts::default();
        for (_, amounts) in samples.iter().filter(|(stack, _)| is_it(stack)) {
            sum.allocated.add(amounts.allocated);
            sum.freed.add(amounts.freed);
        }
        sum
    }

    #[test]
    fn allocations_appear_in_the_heap_profile_until_they_are_freed() {
        start();
        let hoard = hoards();
        // The expected number of samples of 256 MiB is 128. Half or twice this number would differ by more
        // than five standard deviations.
        let bytes = (BLOCKS * BLOCK) as f64;
        let held = hoarded();
        assert!((0.5..2.0).contains(&(held.allocated.bytes / bytes)), "{held:?}");
        assert_eq!(held.freed, Amount::default());
        // Free the blocks in another thread.
        std::thread::spawn(move || drop(hoard)).join().unwrap();
        let freed = hoarded();
        assert_eq!(freed.allocated, held.allocated);
        assert!((freed.freed.bytes / held.allocated.bytes - 1.0).abs() < 1e-6, "{freed:?}");
    }

    #[test]
    fn the_number_of_profiled_stacks_is_bounded_and_no_allocation_is_lost() {
        let mut table = Table::new();
        for at in 0..STACKS_MAX + 100 {
            // No real allocation has these addresses.
            table.add(at, 1 << 30, &[at + 1, 2, 3]);
        }
        assert_eq!((table.stacks.len(), table.places.len()), (STACKS_MAX + 1, STACKS_MAX + 1));
        let bytes: f64 = table.stacks.iter().map(|amounts| amounts.allocated.bytes).sum();
        assert!((bytes / ((STACKS_MAX + 100) as f64 * f64::from(1 << 30)) - 1.0).abs() < 1e-6);
        for at in 0..STACKS_MAX + 100 {
            table.remove(at);
        }
        assert!(table.live.is_empty());
        assert!(table.stacks.iter().all(|amounts| amounts.allocated == amounts.freed));
    }
}
