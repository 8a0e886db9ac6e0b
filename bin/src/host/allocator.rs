//! The allocator of the server: mimalloc. If the default alignment is sufficient, only the size is passed to
//! mimalloc.
//!
//! The crate `mimalloc` passes an alignment with every allocation. Functions with an alignment are slower,
//! and enlarge blocks of a kilobyte or more if the size is not a power of two. So this allocator omits the
//! alignment if every block already has it. The reasons for mimalloc are in
//! docs/decisions/0007-mimalloc-without-huge-pages.md.
//!
//! Each allocation and each free is reported to the heap profile (profiles/heap.rs). A free is reported
//! before the block is freed, because another thread may get its address afterwards.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

use crate::host::profiles::heap;

unsafe extern "C" {
    /// Frees the empty pages of the calling thread, and returns the free memory of all threads to the system.
    /// The crate declares this function only with a feature that needs another dependency.
    fn mi_collect(force: bool);
}

/// Returns free memory to the system: memory that the calling thread has freed, and memory that other threads
/// have returned to the allocator.
pub fn collect() {
    // SAFETY: the function has no preconditions, and touches only free memory.
    unsafe { mi_collect(true) }
}

/// Alignment of every block that has at least this size, as with C's `malloc` (`MI_MAX_ALIGN_SIZE`).
const ALIGNED: usize = 16;

/// The global allocator of the server.
pub struct Allocator;

/// Reports a block of `bytes` bytes to the heap profile, and returns the block. A null pointer is not
/// reported.
#[inline]
fn report_allocation(block: *mut u8, bytes: usize) -> *mut u8 {
    if !block.is_null() {
        heap::allocated(block, bytes);
    }
    block
}

fn is_aligned_by_itself(size: usize, align: usize) -> bool {
    align <= ALIGNED && align <= size
}

// SAFETY: all blocks come from mimalloc, and its functions can free and resize a block that any other
// function of mimalloc allocated. A block has the requested size and alignment: either the alignment was
// passed, or mimalloc aligns each block for any type that fits into the block, up to `ALIGNED`. The functions
// do not unwind, and return a null pointer if they fail.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe {
            if is_aligned_by_itself(layout.size(), layout.align()) {
                mi_malloc(layout.size()).cast()
            } else {
                mi_malloc_aligned(layout.size(), layout.align()).cast()
            }
        };
        report_allocation(block, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe {
            if is_aligned_by_itself(layout.size(), layout.align()) {
                mi_zalloc(layout.size()).cast()
            } else {
                mi_zalloc_aligned(layout.size(), layout.align()).cast()
            }
        };
        report_allocation(block, layout.size())
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        heap::freed(block);
        // SAFETY: the caller got the block from this allocator.
        unsafe { mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // If the allocation fails, the old block still exists, but the heap profile no longer counts it.
        heap::freed(block);
        // SAFETY: the caller got the block from this allocator, and the size and alignment are valid as in
        // `alloc`.
        let block = unsafe {
            if is_aligned_by_itself(size, layout.align()) {
                mi_realloc(block.cast(), size).cast()
            } else {
                mi_realloc_aligned(block.cast(), size, layout.align()).cast()
            }
        };
        report_allocation(block, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_blocks_have_the_requested_alignment_and_keep_their_bytes() {
        let mut kept = Vec::new();
        for align in (0..13).map(|power| 1_usize << power) {
            for size in (1..200).chain([255, 1_000, 1_025, 3_000, 5_000, 70_000, 3 << 20]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the size is not zero, and all writes lie inside the blocks.
                unsafe {
                    let zeroed = Allocator.alloc_zeroed(layout);
                    assert!(zeroed.addr().is_multiple_of(align), "{layout:?}");
                    assert!(
                        std::slice::from_raw_parts(zeroed, size).iter().all(|&byte| byte == 0),
                        "{layout:?}"
                    );
                    let block = Allocator.alloc(layout);
                    assert!(block.addr().is_multiple_of(align), "{layout:?}");
                    block.write_bytes(7, size);
                    let larger = Allocator.realloc(block, layout, size * 3);
                    assert!(larger.addr().is_multiple_of(align), "{layout:?}");
                    assert!(
                        std::slice::from_raw_parts(larger, size).iter().all(|&byte| byte == 7),
                        "{layout:?}"
                    );
                    Allocator.dealloc(zeroed, layout);
                    // Some blocks stay allocated, so that later blocks do not always get the same addresses.
                    let layout = Layout::from_size_align(size * 3, align).unwrap();
                    match size % 3 {
                        0 => kept.push((larger, layout)),
                        _ => Allocator.dealloc(larger, layout),
                    }
                }
            }
        }
        for (block, layout) in kept {
            // SAFETY: each block was allocated with this layout, and is freed once.
            unsafe { Allocator.dealloc(block, layout) };
        }
    }
}
