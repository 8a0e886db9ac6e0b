//! Interfaces to the disk and to the clock. The disk has named files in one directory, which are written at
//! offsets and read through a mapping.
//!
//! `engine → Storage, File → (Dir | a simulated disk)`. No other module accesses the files of an open store.
//!
//! Bytes are durable only after [`File::sync_data`] has returned `Ok`. Names are durable only after
//! [`Storage::sync_dir`] has returned `Ok`. Reads are coherent with writes: the next [`File::read`] returns
//! the bytes that [`File::write_at`] wrote. The real disk relies on the contract of `platform` for this.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::platform::{self, Mapping, cannot_lock_directories, written_stretch};

/// A directory of files, real or simulated.
pub trait Storage: Send + Sync {
    /// Returns the names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Creates a file of `size` zero bytes, or replaces the file of that name. The bytes need not be
    /// allocated.
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Changes the name of a file atomically. Open handles stay valid.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Open handles, and bytes read from the file, stay valid.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Returns the approximate number of bytes that the disk can still take. The default implementation
    /// returns no limit.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    /// Returns the approximate number of bytes that the files of this directory can take in total: their
    /// allocated blocks plus the free space. The default implementation returns no limit.
    fn capacity(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    /// Returns an unpredictable number; a simulated disk derives it from its seed.
    fn entropy(&self) -> u64;
    /// Returns the file's path, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// An open file of fixed size.
pub trait File: Send + Sync {
    /// Returns the size in bytes, which is fixed when the file is created or opened.
    fn size(&self) -> u64;
    /// Writes all of `bytes` at `offset`; the range must lie within the size. After an error any part of
    /// `bytes` may be written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Allocates blocks for the `len` bytes at `offset`; the range must lie within the size. The bytes were
    /// never written and stay zeros. If the disk is full, the call fails and changes nothing. The default
    /// implementation writes the zeros.
    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; usize::try_from(len).map_err(io::Error::other)?])
    }
    /// Returns once everything written before is durable. After an error it is unknown which parts are
    /// durable, and later calls cannot change that.
    fn sync_data(&self) -> io::Result<()>;
    /// Returns once the disk has taken these bytes, perhaps only into its cache. The bytes are not durable,
    /// but the next [`File::sync_data`] of any file has less to do. No later sync reports an error of this
    /// call again.
    fn write_out(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Starts to write these bytes to the disk without waiting, so that the next [`File::sync_data`] has less to do.
    /// The sync also reports an error of this write.
    fn begin_write_out(&self, _offset: u64, _len: u64) {}
    /// Returns the bytes at `offset..offset + len`, without a copy on a real disk. The returned bytes keep
    /// the file's contents alive. Fails if the range does not lie within the size. A real disk is read only
    /// when a caller accesses the bytes, and bytes that cannot be read then are zeros (`platform/mapping.rs`), so
    /// callers verify checksums.
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes>;
    /// Returns the bytes that [`File::read`] would return, if they stay in memory as long as the file is
    /// open. The call changes no reference count, because processors that read the same file at the same time
    /// would contend for it. The default implementation returns `None`.
    fn in_memory(&self, _offset: u64, _len: usize) -> Option<&[u8]> {
        None
    }
    /// Begins to load the bytes that [`File::in_memory`] would return into the processor's cache, if they are mapped.
    fn prefetch(&self, offset: u64, len: usize) {
        if let Some(bytes) = self.in_memory(offset, len) {
            prefetch(bytes);
        }
    }
    /// Copies the bytes at `offset` to `out`. A real file is not mapped for this call. The call is for bytes
    /// that no reader will need again soon, and for a disk that may fail while the file is mapped.
    fn read_into(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        out.copy_from_slice(&self.read(offset, out.len())?);
        Ok(())
    }
    /// Returns the number of pages that the disk could not read when a caller accessed bytes of
    /// [`File::read`]. The bytes of such pages are zeros.
    fn unreadable_pages(&self) -> u64 {
        0
    }
    /// Hints that the bytes read so far will probably not be read again soon, so they need not stay in the
    /// process's memory. Bytes that a caller still holds stay valid.
    fn release_pages(&self) {}
    /// Maps these bytes into the process's memory for later reads, if they are in the page cache. Returns false if
    /// files of this kind cannot be mapped ahead.
    fn map_ahead(&self, _offset: u64, _len: u64) -> bool {
        false
    }
    /// Returns the first range at or after `offset` that may hold bytes other than zeros, clipped to begin at
    /// `offset`. The default implementation returns the whole rest of the file.
    fn written(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        Ok((offset < self.size()).then(|| offset..self.size()))
    }
}

/// A source of the time of day. The time may stand still or jump; the engine makes sure that commit times
/// never go back.
pub trait Clock: Send + Sync {
    /// Returns the time in milliseconds since 1970.
    fn now_ms(&self) -> u64;
}

/// The time of day of the operating system.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        millis(SystemTime::now())
    }
}

/// A clock that the opener of the store provides.
pub struct FunctionClock(pub fn() -> SystemTime);

impl Clock for FunctionClock {
    fn now_ms(&self) -> u64 {
        millis(self.0())
    }
}

/// Returns the milliseconds since 1970. A clock set to before 1970 counts as 1970.
fn millis(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Size of the pieces in which unreadable bytes are replaced by zeros.
const PIECE_BYTES: usize = 4096;

/// Reads like [`File::read_into`], with zeros in place of unreadable pieces. Returns the offset of the first
/// unreadable piece and its error; `None` if all bytes could be read.
pub(crate) fn read_around(file: &dyn File, offset: u64, out: &mut [u8]) -> Option<(u64, io::Error)> {
    if file.read_into(offset, out).is_ok() {
        return None;
    }
    let mut first = None;
    let mut at = offset;
    for piece in out.chunks_mut(PIECE_BYTES) {
        if let Err(error) = file.read_into(at, piece) {
            piece.fill(0);
            first.get_or_insert((at, error));
        }
        at += piece.len() as u64;
    }
    first
}

/// Bytes of a line of the processor's cache.
const CACHE_LINE_BYTES: usize = 64;

/// Begins to load bytes into the processor's cache. This has no effect for pages that are not mapped.
#[inline]
fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(CACHE_LINE_BYTES) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction is only a hint to the cache; the program cannot observe a read of memory.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}

/// Returns whether the error means that the disk or the quota is full. Unlike a failure of the disk, this
/// condition may pass.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Name of the file that is locked, in addition to the directory, while a store is in use. The file stays
/// empty. Releases that do not lock directories look only at this file.
pub(crate) const LOCK_NAME: &str = "lock";

/// Number of attempts to take the lock, and the interval between them, before the store counts as in use.
const LOCK_LOOKS_MAX: u32 = 5;
const LOCK_LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A real directory, locked against a second opening for as long as this value lives.
pub struct Dir {
    path: PathBuf,
    handle: fs::File,
    _lock: fs::File,
}

impl Dir {
    /// Opens and locks the directory; creates it with mode 0700 if it does not exist. Returns `Ok(None)` if
    /// it is locked already. An error comes with the name of the operation that failed.
    pub fn open(path: &Path) -> Result<Option<Dir>, (&'static str, io::Error)> {
        make_durable_dir(path).map_err(|e| ("create the store's directory", e))?;
        let handle = fs::File::open(path).map_err(|e| ("open the store's directory", e))?;
        let lock = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK_NAME))
            .map_err(|e| ("open the lock file", e))?;
        // The directory is locked first, because the lock file can be removed, but a directory that contains
        // segments cannot.
        let is_ours = match lock_exclusively(&handle) {
            Err(error) if cannot_lock_directories(&error) => lock_exclusively(&lock),
            Ok(true) => lock_exclusively(&lock),
            refused => refused,
        };
        let is_ours = is_ours.map_err(|e| ("lock the store", e))?;
        Ok(is_ours.then(|| Dir { path: path.to_owned(), handle, _lock: lock }))
    }
}

/// Locks `file` until it is closed. Returns false if another open file has the lock.
///
/// The lock belongs to the open file, not to the process, so that a second opening in this process fails as
/// well.
fn lock_exclusively(file: &fs::File) -> io::Result<bool> {
    let mut looks = 0;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            // A tool that checks whether the store is in use takes the lock for a moment.
            Err(fs::TryLockError::WouldBlock) if looks < LOCK_LOOKS_MAX => looks += 1,
            Err(fs::TryLockError::WouldBlock) => return Ok(false),
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
        std::thread::sleep(LOCK_LOOK_INTERVAL);
    }
}

/// Creates `path` and its missing parents, and makes the name of each one durable. If a crash could remove
/// the directory of a store, the store would not be durable, even if its files are synced.
fn make_durable_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make_durable_dir(parent)?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        // Another process created the directory in the meantime.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    fs::File::open(parent)?.sync_all()
}

impl Storage for Dir {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // All names that the store uses are UTF-8, so other names are skipped.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.path.join(name))?;
        file.set_len(size)?;
        Ok(Arc::new(RealFile { file, size, map: OnceLock::new() }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        let size = file.metadata()?.len();
        Ok(Arc::new(RealFile { file, size, map: OnceLock::new() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        platform::free_bytes(&self.handle)
    }

    fn capacity(&self) -> io::Result<u64> {
        let mut taken = 0u64;
        for entry in fs::read_dir(&self.path)? {
            // A file that another process removes in the meantime takes no room.
            taken += entry?.metadata().map_or(0, |metadata| platform::allocated_bytes(&metadata));
        }
        Ok(self.free_bytes()?.saturating_add(taken))
    }

    fn entropy(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        // The standard library seeds its hash maps from the operating system.
        std::collections::hash_map::RandomState::new().build_hasher().finish()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

struct RealFile {
    file: fs::File,
    size: u64,
    /// The whole file, mapped at the first read; every read returns a slice of it.
    map: OnceLock<Mapped>,
}

/// A mapped file. The bytes and their slices keep the mapping alive.
struct Mapped {
    bytes: Bytes,
    mapping: Arc<Mapping>,
}

impl RealFile {
    fn map(&self) -> io::Result<&Mapped> {
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        let size = usize::try_from(self.size).map_err(io::Error::other)?;
        // SAFETY: no reader accesses bytes that are still being written: readers stay below the published end
        // of the log, and recovery runs before there is a writer.
        let mapping = Arc::new(unsafe { Mapping::new(&self.file, size)? });
        let map = Mapped { bytes: Bytes::from_owner(Shared(mapping.clone())), mapping };
        // Two threads may have mapped the file at the same time; the first mapping is kept and the other one
        // is dropped.
        Ok(self.map.get_or_init(|| map))
    }

    /// Checks that a write stays within the size. Any other write would make the file longer than its
    /// mapping.
    fn check_end(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "write past the end of the file")),
        }
    }
}

impl File for RealFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_end(offset, bytes.len() as u64)?;
        self.file.write_all_at(bytes, offset)
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_end(offset, len)?;
        if !platform::allocate(&self.file, offset, len)? {
            // If the file system cannot allocate blocks, a write of zeros allocates them.
            self.file.write_all_at(&vec![0; len as usize], offset)?;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write_out(&self, offset: u64, len: u64) -> io::Result<()> {
        platform::write_out(&self.file, offset, len)
    }

    fn begin_write_out(&self, offset: u64, len: u64) {
        platform::begin_write_out(&self.file, offset, len);
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let end = offset.checked_add(len as u64).filter(|&end| end <= self.size);
        match end {
            Some(end) if end > offset => Ok(self.map()?.bytes.slice(offset as usize..end as usize)),
            Some(_) => Ok(Bytes::new()),
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "read past the end of the file")),
        }
    }

    fn in_memory(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        (*self.map().ok()?.mapping).as_ref().get(start..start.checked_add(len)?)
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn unreadable_pages(&self) -> u64 {
        self.map.get().map_or(0, |map| map.mapping.unreadable_pages())
    }

    fn release_pages(&self) {
        if let Some(Mapped { bytes, .. }) = self.map.get() {
            // SAFETY: the range is the whole of a mapping that `bytes` keeps alive. The mapping is shared
            // with its file and read-only.
            unsafe { platform::release(bytes) };
        }
    }

    fn map_ahead(&self, offset: u64, len: u64) -> bool {
        let Ok(map) = self.map() else { return false };
        let page_bytes = platform::page_bytes() as u64;
        let start = offset / page_bytes * page_bytes;
        let end = offset.saturating_add(len).min(self.size);
        let Some(bytes) = map.bytes.get(start as usize..end as usize) else { return false };
        platform::map_ahead(bytes);
        true
    }

    fn written(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        written_stretch(&self.file, self.size, offset)
    }
}

/// A shared owner of a mapping.
struct Shared(Arc<Mapping>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn a_mapped_read_returns_bytes_written_after_the_mapping() {
        let temp = TempDir::new();
        let dir = Dir::open(temp.path()).unwrap().unwrap();
        let file = dir.create("f", 1 << 16).unwrap();
        assert_eq!(&file.read(100, 3).unwrap()[..], [0, 0, 0]);
        file.write_at(100, b"abc").unwrap();
        assert_eq!(&file.read(100, 3).unwrap()[..], b"abc");
        assert!(file.read((1 << 16) - 1, 2).is_err());
        assert!(file.write_at((1 << 16) - 1, b"ab").is_err());
    }

    #[test]
    fn bytes_that_are_mapped_ahead_equal_the_file() {
        let temp = TempDir::new();
        let dir = Dir::open(temp.path()).unwrap().unwrap();
        let file = dir.create("f", 1 << 16).unwrap();
        file.write_at(5_000, b"abc").unwrap();
        for (offset, len) in [(0, 1 << 16), (5_001, 1), (1 << 15, 1 << 20), (1 << 16, 1)] {
            assert!(file.map_ahead(offset, len), "{offset} {len}");
        }
        assert!(!file.map_ahead(1 << 17, 1), "nothing is there");
        file.prefetch(5_000, 3);
        file.prefetch((1 << 16) - 1, 2);
        assert_eq!(&file.read(5_000, 3).unwrap()[..], b"abc");
        file.release_pages();
        assert!(file.map_ahead(0, 1 << 16));
        assert_eq!(file.in_memory(5_000, 3), Some(&b"abc"[..]));
    }

    #[test]
    fn reserved_bytes_are_zeros_with_blocks_and_do_not_count_as_written() {
        let temp = TempDir::new();
        let dir = Dir::open(temp.path()).unwrap().unwrap();
        let file = dir.create("f", 1 << 20).unwrap();
        file.write_at(0, b"abc").unwrap();
        file.reserve(1 << 16, 1 << 17).unwrap();
        let blocks = {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(temp.path().join("f")).unwrap().blocks()
        };
        assert!(blocks * 512 >= 1 << 17, "{blocks}");
        assert!(file.read(1 << 16, 1 << 17).unwrap().iter().all(|&byte| byte == 0));
        file.write_at(1 << 16, b"def").unwrap();
        assert_eq!(&file.read(1 << 16, 4).unwrap()[..], b"def\0");
        assert!(file.reserve(1 << 19, 1 << 20).is_err(), "beyond the end");
    }

    /// A file of bytes with the value 1; some of its ranges cannot be read.
    struct Failing(&'static [(u64, u64)]);

    impl File for Failing {
        fn size(&self) -> u64 {
            1 << 20
        }
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            unreachable!("the test does not write")
        }
        fn sync_data(&self) -> io::Result<()> {
            unreachable!("the test does not write")
        }
        fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            if self.0.iter().any(|&(start, end)| start < offset + len as u64 && offset < end) {
                Err(io::Error::other("bad sector"))
            } else {
                Ok(vec![1; len].into())
            }
        }
    }

    #[test]
    fn unreadable_pages_are_read_as_zeros_and_the_first_offset_is_reported() {
        const PAGE: u64 = PIECE_BYTES as u64;
        // Columns: unreadable ranges when four pages are read from offset 100 on; which pages are zeros; the
        // first unreadable offset.
        let cases: [(&[(u64, u64)], _, _); 7] = [
            (&[], [false; 4], None),
            (&[(0, 100)], [false; 4], None),
            (&[(0, 101)], [true, false, false, false], Some(100)),
            (&[(PAGE + 100, PAGE + 101)], [false, true, false, false], Some(PAGE + 100)),
            (&[(2 * PAGE, 3 * PAGE)], [false, true, true, false], Some(PAGE + 100)),
            (&[(90, 110), (4 * PAGE + 99, 5 * PAGE)], [true, false, false, true], Some(100)),
            (&[(4 * PAGE + 100, 5 * PAGE)], [false; 4], None),
        ];
        for (bad, zeros, first) in cases {
            let mut out = vec![9; 4 * PIECE_BYTES];
            let got = read_around(&Failing(bad), 100, &mut out);
            assert_eq!(
                got.map(|(at, error)| (at, error.to_string())),
                first.map(|at| (at, "bad sector".into()))
            );
            for (piece, is_zero) in out.chunks(PIECE_BYTES).zip(zeros) {
                assert!(piece.iter().all(|&byte| byte == u8::from(!is_zero)), "{bad:?}");
            }
        }
    }

    #[test]
    fn releasing_pages_changes_no_bytes() {
        let temp = TempDir::new();
        let dir = Dir::open(temp.path()).unwrap().unwrap();
        let file = dir.create("f", 1 << 16).unwrap();
        file.release_pages();
        file.write_at(100, b"abc").unwrap();
        let read = file.read(100, 3).unwrap();
        file.release_pages();
        file.write_at(200, b"def").unwrap();
        assert_eq!(&read[..], b"abc");
        assert_eq!(&file.read(200, 3).unwrap()[..], b"def");
    }

    #[test]
    fn read_bytes_stay_valid_after_the_file_is_removed() {
        let temp = TempDir::new();
        let dir = Dir::open(temp.path()).unwrap().unwrap();
        let file = dir.create("f", 4096).unwrap();
        file.write_at(0, b"abc").unwrap();
        let read = file.read(0, 3).unwrap();
        dir.remove("f").unwrap();
        drop((file, dir));
        assert_eq!(&read[..], b"abc");
    }

    #[test]
    fn written_ranges_of_a_file_are_found_and_holes_skipped() {
        let temp = TempDir::new();
        let dir = Dir::open(temp.path()).unwrap().unwrap();
        let file = dir.create("f", 1 << 20).unwrap();
        file.write_at(1 << 16, b"abc").unwrap();
        let found = file.written(0).unwrap().unwrap();
        assert!(found.start <= 1 << 16 && found.end > 1 << 16, "{found:?}");
        assert_eq!(file.written(1 << 20).unwrap(), None);
    }

    #[test]
    fn a_directory_is_locked_against_a_second_open() {
        let temp = TempDir::new();
        let first = Dir::open(temp.path()).unwrap().unwrap();
        assert!(Dir::open(temp.path()).unwrap().is_none());
        drop(first);
        assert!(Dir::open(temp.path()).unwrap().is_some());
    }

    #[test]
    fn a_directory_stays_locked_when_its_lock_file_is_removed() {
        let temp = TempDir::new();
        let first = Dir::open(temp.path()).unwrap().unwrap();
        fs::remove_file(temp.path().join(LOCK_NAME)).unwrap();
        assert!(Dir::open(temp.path()).unwrap().is_none());
        drop(first);
        assert!(Dir::open(temp.path()).unwrap().is_some());
    }
}
