//! The calls of the operating system that the standard library does not have. No other file of this crate calls the
//! system except through the standard library, so a port to another system only needs another implementation of this
//! module.
//!
//! Each function states its contract. A call that only saves work or room may do nothing on a system that lacks it; the
//! description of the function says so.
//!
//! ```text
//! must work    a mapped file is coherent with writes, and reads as zeros where the disk fails (mapping.rs); free_bytes
//! may refuse   allocate, rename_in_one_step: the callers then take another way
//! may do nothing   write_out, begin_write_out, release, map_ahead, written_stretch (all is data), lower_priority
//! ```
//!
//! The implementation is for Linux. The contract of this module relies on `pwrite` and shared mappings that use the
//! same page cache.

mod mapping;

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, FallocateFlags, OFlags, RenameFlags, SeekFrom, fallocate, renameat_with, seek};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use rustix::process::{getpriority_process, setpriority_process};

pub(crate) use mapping::Mapping;

/// Returns whether the error of a lock on a directory means that the file system does not support such locks. NFS
/// implements such locks with locks of byte ranges, which need a file that is open for writing.
pub(crate) fn cannot_lock_directories(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EBADF | libc::EISDIR | libc::EINVAL | libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP)
    )
}

/// Returns the number of bytes that an unprivileged process can still write to the file system of `file`.
pub(crate) fn free_bytes(file: &File) -> io::Result<u64> {
    let system = rustix::fs::fstatvfs(file)?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Returns the number of bytes that the blocks of a file take on the disk.
pub(crate) fn allocated_bytes(metadata: &std::fs::Metadata) -> u64 {
    metadata.blocks() * 512
}

/// Allocates blocks for bytes that were never written; the bytes stay zeros. Returns false if the file system cannot
/// allocate.
pub(crate) fn allocate(file: &File, offset: u64, len: u64) -> io::Result<bool> {
    match fallocate(file, FallocateFlags::empty(), offset, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        allocated => Ok(allocated.map(|()| true)?),
    }
}

/// Writes bytes to the disk and waits until the disk has taken them. The bytes may not be durable afterwards. Does
/// nothing on a system or a file system without this call.
pub(crate) fn write_out(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let Err(error) = sync_range(file, offset, len, flags) else { return Ok(()) };
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP) => Ok(()),
        _ => Err(error),
    }
}

/// Begins to write bytes to the disk without waiting. If the call fails, a later sync writes the bytes or reports the
/// error.
pub(crate) fn begin_write_out(file: &File, offset: u64, len: u64) {
    let _ = sync_range(file, offset, len, libc::SYNC_FILE_RANGE_WRITE);
}

fn sync_range(file: &File, offset: u64, len: u64, flags: libc::c_uint) -> io::Result<()> {
    let (offset, len) = (offset.cast_signed(), len.cast_signed());
    // SAFETY: the descriptor is open as long as `file` lives, and the call accesses no memory of this
    // process.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the system take the pages of a mapped file out of the memory of the process. The system may ignore this advice;
/// then it only keeps the pages longer.
///
/// # Safety The bytes must be a whole mapping of a file, shared with the file and read-only, so that the next access to
/// a released page reads the same bytes.
pub(crate) unsafe fn release(bytes: &[u8]) {
    let start = bytes.as_ptr().cast_mut().cast();
    // SAFETY: guaranteed by the caller.
    let _ = unsafe { madvise(start, bytes.len(), Advice::LinuxDontNeed) };
}

/// Returns the size of a page of memory in bytes.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Maps pages of a mapped file into the memory of the process, if all of them are in the page cache. A system without
/// this call maps the pages when they are read. The bytes must begin at a page boundary.
pub(crate) fn map_ahead(bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let mut in_memory = vec![0_u8; bytes.len().div_ceil(page_bytes())];
    let start = bytes.as_ptr().cast_mut().cast::<libc::c_void>();
    // SAFETY: the range is borrowed, so it stays mapped, and the buffer has a byte for each of its pages. The call
    // fails if the range does not begin at a page.
    let known = unsafe { libc::mincore(start, bytes.len(), in_memory.as_mut_ptr()) };
    if known == 0 && in_memory.iter().all(|page| page & 1 != 0) {
        // SAFETY: as above. The call has the same effect as reading the pages: it maps them and changes no bytes.
        let _ = unsafe { madvise(start, bytes.len(), Advice::LinuxPopulateRead) };
    }
}

/// Returns the first range at or after `offset` of a file of `size` bytes that may hold bytes other than zeros, clipped
/// to begin at `offset`. Returns the whole rest if the file system cannot distinguish holes from data.
pub(crate) fn written_stretch(file: &File, size: u64, offset: u64) -> io::Result<Option<Range<u64>>> {
    if offset >= size {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(_) => return Ok(Some(offset..size)),
    };
    let end = seek(file, SeekFrom::Hole(start)).unwrap_or(size);
    Ok(Some(start.max(offset)..end.min(size)))
}

/// The two ways to rename a directory in one step.
#[derive(Clone, Copy)]
pub(crate) enum RenameKind {
    /// Both directories exist and exchange their names.
    Exchange,
    /// The new name must be free.
    NoReplace,
}

/// Renames in one step: a crash leaves either the old names or the new ones.
///
/// # Errors
/// [`is_not_supported`] recognizes the error of a file system without this call.
pub(crate) fn rename_in_one_step(from: &Path, to: &Path, kind: RenameKind) -> io::Result<()> {
    let flags = match kind {
        RenameKind::Exchange => RenameFlags::EXCHANGE,
        RenameKind::NoReplace => RenameFlags::NOREPLACE,
    };
    Ok(renameat_with(CWD, from, CWD, to, flags)?)
}

/// Returns whether the file system does not support a rename in one step.
pub(crate) fn is_not_supported(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP))
}

/// Opens a file for reading without waiting. If the path is a pipe, a usual open would wait forever.
pub(crate) fn open_without_waiting(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// Lowers the priority of the calling thread: adds `levels` to its nice value, of which 19 is the largest. If the call is
/// refused, commits wait a little longer for background work.
pub(crate) fn lower_priority(levels: i32) {
    // On Linux these calls concern the calling thread, not the process.
    if let Ok(nice) = getpriority_process(None) {
        let _ = setpriority_process(None, nice + levels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_lowers_the_priority_of_the_calling_thread() {
        fn nice() -> i32 {
            getpriority_process(None).unwrap()
        }
        let before = nice();
        let lower_twice = move || {
            [3, 3].map(|levels| {
                lower_priority(levels);
                nice() - before
            })
        };
        let lowered = std::thread::spawn(lower_twice).join().unwrap();
        assert_eq!(lowered, [3, 6].map(|levels| levels.min(19 - before)));
        assert_eq!(nice(), before);
    }
}
