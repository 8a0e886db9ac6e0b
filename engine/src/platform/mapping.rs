//! File mappings that survive read errors of the disk.
//!
//! ```text
//! a reader accesses a page ─► the disk fails ─► SIGBUS ─► handler: is it a page of a mapping? ─► zeros in its place
//!          ▲                                                 └─ no: call the handler installed before
//!          └───────────────────────── accesses it again, and reads zeros ◄───────────────────────┘
//! ```
//!
//! An access to memory cannot return an error. If a page of a mapping cannot be read, or lies behind the end
//! of a file that was made shorter, the kernel sends a signal that ends the process. The handler of this
//! module receives the signal first and maps a page of zeros at the same address. The checksums of the
//! records in that page then do not match, so these records are reported as damaged, by key and revision, and
//! everything else is served as before. The number of such pages is counted.
//!
//! The handler only does what is allowed in a signal handler: it reads atomics and asks the kernel for a
//! page. So the mapped regions are in a list whose entries are never freed, only reused.

use std::fs::File;
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use memmap2::{Mmap, MmapOptions};
use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// The first bytes of a file, mapped into memory. Dropping the value unmaps the bytes.
pub(crate) struct Mapping {
    /// Released before the memory is unmapped: fields drop in the order of their declaration.
    region: Listed,
    memory: Mmap,
}

impl Mapping {
    /// Maps the first `len` bytes, at least one, of `file`.
    ///
    /// # Safety
    /// Bytes of the file that a reader accesses must not be written at the same time.
    pub unsafe fn new(file: &File, len: usize) -> io::Result<Mapping> {
        watch_for_bus_errors()?;
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { MmapOptions::new().len(len).map(file)? };
        let region = Region::list(memory.as_ptr() as usize, len);
        Ok(Mapping { region, memory })
    }

    /// Returns the number of pages that could not be read when a reader accessed them. Since then, these
    /// pages read as zeros.
    pub fn unreadable_pages(&self) -> u64 {
        self.region.0.unreadable.load(Ordering::Relaxed)
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

/// A mapped region: an entry of a list that only grows.
struct Region {
    /// Address of the first byte; 0 if the entry is unused.
    start: AtomicUsize,
    end: AtomicUsize,
    /// Pages of the region that could not be read.
    unreadable: AtomicU64,
    next: Option<&'static Region>,
}

/// The first entry; null if the list is empty.
static REGIONS: AtomicPtr<Region> = AtomicPtr::new(ptr::null_mut());
/// The unused entries. Locked while the list is changed.
static FREE: Mutex<Vec<&'static Region>> = Mutex::new(Vec::new());

/// An entry that describes a region until this guard is dropped.
struct Listed(&'static Region);

impl Region {
    fn list(start: usize, len: usize) -> Listed {
        let mut free = FREE.lock();
        let region = free.pop().unwrap_or_else(|| {
            // SAFETY: entries that the pointer is set to are never freed.
            let next = unsafe { REGIONS.load(Ordering::Acquire).as_ref() };
            let region = Box::leak(Box::new(Region {
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                unreadable: AtomicU64::new(0),
                next,
            }));
            REGIONS.store(region, Ordering::Release);
            region
        });
        region.unreadable.store(0, Ordering::Relaxed);
        region.end.store(start + len, Ordering::Relaxed);
        // The start is stored last, because an entry with a start is in use.
        region.start.store(start, Ordering::Release);
        Listed(region)
    }

    /// Returns the region that contains `address`. Takes no lock and allocates no memory.
    fn containing(address: usize) -> Option<&'static Region> {
        // SAFETY: as in `list`.
        let mut next = unsafe { REGIONS.load(Ordering::Acquire).as_ref() };
        while let Some(region) = next {
            let start = region.start.load(Ordering::Acquire);
            let end = region.end.load(Ordering::Relaxed);
            if start != 0 && (start..end).contains(&address) && region.start.load(Ordering::Acquire) == start
            {
                return Some(region);
            }
            next = region.next;
        }
        None
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut free = FREE.lock();
        self.0.start.store(0, Ordering::Release);
        free.push(self.0);
    }
}

/// Size of a page in bytes.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The signal action that was installed before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler for unreadable pages at the first call.
fn watch_for_bus_errors() -> io::Result<()> {
    static DONE: Mutex<bool> = Mutex::new(false);
    let mut done = DONE.lock();
    if *done {
        return Ok(());
    }
    PAGE_BYTES.store(rustix::param::page_size(), Ordering::Relaxed);
    let mut before = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call changes nothing, and the buffer for the answer is large enough. Zeros are a valid
    // `sigaction`.
    let before = unsafe {
        if libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        before.assume_init()
    };
    let _ = BEFORE.set(before);
    // SAFETY: the handler has the parameters that SA_SIGINFO requires, and does only what is allowed in a
    // signal handler. Zeros are a valid `sigaction`.
    let changed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut())
    };
    if changed != 0 {
        return Err(io::Error::last_os_error());
    }
    *done = true;
    Ok(())
}

/// Signal handler: the kernel calls it on the thread that accessed an unreadable page.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the arguments that SA_SIGINFO promises. A signal from a process has no address,
    // and its `si_code` is not positive.
    let (address, is_fault) = unsafe { ((*info).si_addr() as usize, (*info).si_code > 0) };
    if is_fault
        && let Some(region) = Region::containing(address)
        && put_zeros(address)
    {
        region.unreadable.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: `sigaction` returned the former handler, and the flags of the handler determine its parameters. A
    // signal handler may call `sigaction` and `raise`.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, before, ptr::null_mut());
                // A fault occurs again by itself.
                if !is_fault {
                    libc::raise(signal);
                }
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler)(signal),
        }
    }
}

/// Maps a page of zeros at `address`, which lies in a mapped region. Returns false if the system has no memory for
/// the page.
fn put_zeros(address: usize) -> bool {
    let page_bytes = PAGE_BYTES.load(Ordering::Relaxed);
    let page = (address & !(page_bytes - 1)) as *mut libc::c_void;
    // SAFETY: the page belongs to a mapping of this module, which stays mapped while a reader accesses it. The
    // page stays readable. The bytes of the page become zeros; a reader that has not verified the bytes before
    // detects the change by the checksum.
    unsafe { mmap_anonymous(page, page_bytes, ProtFlags::READ, MapFlags::PRIVATE | MapFlags::FIXED).is_ok() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::testing::TempDir;

    /// Creates a file of `pages` pages. Each byte of a page has the page's number, from 1 on.
    fn file(temp: &TempDir, name: &str, pages: u8) -> File {
        let path = temp.path().join(name);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        for page in 0..pages {
            file.write_all_at(&vec![page + 1; page_bytes()], u64::from(page) * page_bytes() as u64).unwrap();
        }
        file
    }

    fn page_bytes() -> usize {
        rustix::param::page_size()
    }

    fn map(file: &File, pages: usize) -> Mapping {
        // SAFETY: nothing writes to the file any more.
        unsafe { Mapping::new(file, pages * page_bytes()).unwrap() }
    }

    #[test]
    fn unreadable_pages_of_a_mapping_are_zeros_and_other_pages_are_unchanged() {
        let temp = TempDir::new();
        let (broken, sound) = (file(&temp, "broken", 5), file(&temp, "sound", 5));
        let (broken_map, sound_map) = (map(&broken, 5), map(&sound, 5));
        // Pages behind the end of a file cannot be read.
        broken.set_len(2 * page_bytes() as u64).unwrap();
        let firsts =
            |map: &Mapping| -> Vec<u8> { map.as_ref().iter().step_by(page_bytes()).copied().collect() };
        assert_eq!(firsts(&broken_map), [1, 2, 0, 0, 0]);
        assert_eq!(firsts(&sound_map), [1, 2, 3, 4, 5]);
        assert_eq!((broken_map.unreadable_pages(), sound_map.unreadable_pages()), (3, 0));
        // The next reads get the same zeros, and the pages are not counted again.
        assert_eq!(firsts(&broken_map), [1, 2, 0, 0, 0]);
        assert_eq!(broken_map.unreadable_pages(), 3);
        assert!(broken_map.as_ref()[2 * page_bytes()..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn many_threads_can_read_the_same_page_while_regions_are_mapped_and_unmapped() {
        let temp = TempDir::new();
        let name = |number: usize| format!("file-{number}");
        std::thread::scope(|scope| {
            for number in 0..4 {
                let file = file(&temp, &name(number), 9);
                scope.spawn(move || {
                    for _ in 0..50 {
                        file.set_len(9 * page_bytes() as u64).unwrap();
                        let map = map(&file, 9);
                        file.set_len(page_bytes() as u64).unwrap();
                        std::thread::scope(|scope| {
                            for _ in 0..3 {
                                scope.spawn(|| {
                                    assert_eq!(map.as_ref()[0], 1);
                                    assert!(map.as_ref()[page_bytes()..].iter().all(|&byte| byte == 0));
                                });
                            }
                        });
                        assert!((8..=24).contains(&map.unreadable_pages()), "{}", map.unreadable_pages());
                    }
                });
            }
        });
    }

    #[test]
    fn an_address_is_looked_up_among_the_current_mappings() {
        let temp = TempDir::new();
        let file = file(&temp, "file", 3);
        let map = map(&file, 3);
        let start = map.as_ref().as_ptr() as usize;
        for (address, is_ours) in [
            (start, true),
            (start + 3 * page_bytes() - 1, true),
            (start + 3 * page_bytes(), false),
            (start - 1, false),
            (0, false),
        ] {
            let found = Region::containing(address).is_some_and(|region| ptr::eq(region, map.region.0));
            assert_eq!(found, is_ours, "{:x} from the start", address.wrapping_sub(start));
        }
        let region = map.region.0;
        drop(map);
        assert!(Region::containing(start).is_none_or(|other| !ptr::eq(other, region)));
    }
}
