//! Unmaps the code of the start-up, which an idle server does not run again.
//!
//! During the start, the process runs most of the code in the binary once: it reads flags and certificates, and builds
//! the types. For each page that the process uses, the kernel maps 16 pages. All mapped pages count as resident memory
//! of the process, although an idle server runs only a tenth of the code.
//!
//! The pages are unchanged copies of the file, so they remain in the page cache of the kernel after they are unmapped.
//! If memory is short, the kernel can reclaim unmapped pages sooner than mapped pages. If unmapped code runs again, the
//! kernel maps 16 pages in about a microsecond, without reading the file.

use std::ffi::{c_int, c_void};

use libc::{MADV_DONTNEED, PF_W, PT_LOAD, dl_iterate_phdr, dl_phdr_info, madvise};

/// Unmaps the segments of the binary that cannot be written. Returns the size of the unmapped segments in bytes, or 0
/// if the kernel refused.
pub fn unmap() -> usize {
    let mut bytes = 0_usize;
    // SAFETY: the function calls `unmap_segments` before it returns, with a valid description and this pointer.
    unsafe { dl_iterate_phdr(Some(unmap_segments), (&raw mut bytes).cast()) };
    bytes
}

/// Unmaps the segments of one object that cannot be written, and adds their size to the number at `total`.
/// Returns 1, which ends the iteration after the first object, the binary itself.
///
/// # Safety
/// `info` must describe a loaded object, and `total` must point to a `usize` that no other code uses.
unsafe extern "C" fn unmap_segments(info: *mut dl_phdr_info, _: usize, total: *mut c_void) -> c_int {
    // SAFETY: the caller guarantees that both pointers are valid.
    let (info, total) = unsafe { (&*info, &mut *total.cast::<usize>()) };
    // SAFETY: the object has this many program headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    for header in headers.iter().filter(|header| header.p_type == PT_LOAD && header.p_flags & PF_W == 0) {
        let begin = (info.dlpi_addr + header.p_vaddr) as usize;
        let end = begin + header.p_memsz as usize;
        // A segment may begin within a page. The kernel rounds the end itself.
        let begin = begin & !(rustix::param::page_size() - 1);
        // SAFETY: the pages were never written, so the file has the same bytes, and the next access maps them
        // again.
        if unsafe { madvise(begin as *mut c_void, end - begin, MADV_DONTNEED) } == 0 {
            *total += end - begin;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the resident bytes of this process that are pages of files.
    fn file_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    #[test]
    fn unmapped_code_pages_are_not_resident_and_still_run() {
        let before = file_bytes();
        assert!(unmap() > 1 << 20);
        let after = file_bytes();
        assert!(after < before, "{after} of {before} bytes are resident");
        assert!(unmap() > 1 << 20);
    }
}
