//! The server's allocator: mimalloc, asked by size alone where that is aligned enough.
//!
//! The crate `mimalloc` asks for an alignment with every allocation. That takes a longer way, and blocks of a kilobyte or more
//! whose size is no power of two are made larger then. What has no more than the alignment that every block has is asked for
//! without one here. Why mimalloc: docs/decisions/0007-mimalloc-without-huge-pages.md.
//!
//! The heap profile (profiles/heap.rs) is told of each block, before another one can have its address.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

use crate::profiles::heap;

unsafe extern "C" {
    /// Frees the empty pages of the calling thread, and gives the free memory of all threads back to the system. The crate
    /// declares it behind a feature that needs another dependency.
    fn mi_collect(force: bool);
}

/// Gives memory that the calling thread has freed back to the system, and what other threads gave back to the allocator.
pub fn collect() {
    // SAFETY: the function has no preconditions, and touches free memory only.
    unsafe { mi_collect(true) }
}

/// As C's `malloc`, a block is aligned for any type of its size up to this alignment (`MI_MAX_ALIGN_SIZE`).
const ALIGNED: usize = 16;

/// mimalloc.
pub struct Allocator;

/// A block of so many bytes that was allocated, or null.
#[inline]
fn told(block: *mut u8, bytes: usize) -> *mut u8 {
    if !block.is_null() {
        heap::allocated(block, bytes);
    }
    block
}

fn is_aligned_by_itself(size: usize, align: usize) -> bool {
    align <= ALIGNED && align <= size
}

// SAFETY: all blocks are mimalloc's, which frees and resizes them whichever of its functions they come from. A block has the
// wanted size and alignment: by request, or since mimalloc aligns each block for any type that fits it, up to `ALIGNED`. None of
// its functions unwinds, and failure is a null pointer.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe {
            match is_aligned_by_itself(layout.size(), layout.align()) {
                true => mi_malloc(layout.size()).cast(),
                false => mi_malloc_aligned(layout.size(), layout.align()).cast(),
            }
        };
        told(block, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe {
            match is_aligned_by_itself(layout.size(), layout.align()) {
                true => mi_zalloc(layout.size()).cast(),
                false => mi_zalloc_aligned(layout.size(), layout.align()).cast(),
            }
        };
        told(block, layout.size())
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        heap::freed(block);
        // SAFETY: the caller has the block from this allocator.
        unsafe { mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Where there is no memory for it, the old block stays, and is not told of any more.
        heap::freed(block);
        // SAFETY: the caller has the block from this allocator; the rest as above.
        let block = unsafe {
            match is_aligned_by_itself(size, layout.align()) {
                true => mi_realloc(block.cast(), size).cast(),
                false => mi_realloc_aligned(block.cast(), size, layout.align()).cast(),
            }
        };
        told(block, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_wanted_alignment_and_keep_their_bytes() {
        let mut kept = Vec::new();
        for align in (0..13).map(|power| 1_usize << power) {
            for size in (1..200).chain([255, 1_000, 1_025, 3_000, 5_000, 70_000, 3 << 20]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the size is not zero, and what is written lies inside the blocks.
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
                    // Some stay, so that later blocks are not always the same.
                    let layout = Layout::from_size_align(size * 3, align).unwrap();
                    match size % 3 {
                        0 => kept.push((larger, layout)),
                        _ => Allocator.dealloc(larger, layout),
                    }
                }
            }
        }
        for (block, layout) in kept {
            // SAFETY: each was made with this layout, and is freed once.
            unsafe { Allocator.dealloc(block, layout) };
        }
    }
}
