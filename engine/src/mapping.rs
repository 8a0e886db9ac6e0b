//! A file mapped for reading that outlives what the disk cannot read.
//!
//! ```text
//! a reader looks at a page ─► the disk fails ─► SIGBUS ─► handler: is it a page of ours? ─► zeros in its place
//!          ▲                                                 └─ no: the handler before it gets it     
//!          └───────────────────────── looks again, and sees zeros ◄──────────────────────────┘
//! ```
//!
//! Looking at memory cannot return an error. Where a page of a mapping cannot be read, or lies behind the end of a file
//! that was made shorter, the kernel sends a signal that ends the process. Ours is told of it first and puts a
//! page of zeros there instead: the checksums of the records in it do not match then, so these are told as damaged, by
//! key and revision, and everything else goes on being served. How many pages that were is counted.
//!
//! The handler does only what may be done at any moment: it reads atomics and asks the kernel for a page. So the regions
//! that are mapped stand in a list whose entries stay for good and are used again. Linux only, as `io.rs` is.

use std::fs::File;
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use memmap2::{Mmap, MmapOptions};
use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// The first bytes of a file, in memory. Dropping it gives the memory back.
pub(crate) struct Mapping {
    /// Given free before the memory is.
    region: Listed,
    memory: Mmap,
}

impl Mapping {
    /// Maps the first `len` bytes, at least one, of `file`.
    ///
    /// # Safety
    /// Bytes of the file that a reader looks at must not be written meanwhile.
    pub unsafe fn new(file: &File, len: usize) -> io::Result<Mapping> {
        watch_for_bus_errors()?;
        // SAFETY: the caller's.
        let memory = unsafe { MmapOptions::new().len(len).map(file)? };
        let region = Region::list(memory.as_ptr() as usize, len);
        Ok(Mapping { region, memory })
    }

    /// How many of its pages could not be read when a reader looked at them. They read as zeros since.
    pub fn unreadable_pages(&self) -> u64 {
        self.region.0.unreadable.load(Ordering::Relaxed)
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

/// Where something is mapped. Entries of a list that only grows.
struct Region {
    /// 0: nothing is.
    start: AtomicUsize,
    end: AtomicUsize,
    /// Pages of it that could not be read.
    unreadable: AtomicU64,
    next: Option<&'static Region>,
}

/// The first entry; null: there is none.
static REGIONS: AtomicPtr<Region> = AtomicPtr::new(ptr::null_mut());
/// Those that say nothing at present. Held while the list is changed.
static FREE: Mutex<Vec<&'static Region>> = Mutex::new(Vec::new());

/// An entry that speaks of a region until this is dropped.
struct Listed(&'static Region);

impl Region {
    fn list(start: usize, len: usize) -> Listed {
        let mut free = FREE.lock();
        let region = free.pop().unwrap_or_else(|| {
            // SAFETY: what the pointer is set to lives for good.
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
        // Last: before that it says nothing.
        region.start.store(start, Ordering::Release);
        Listed(region)
    }

    /// The one that `address` lies in. Takes no lock and no memory.
    fn of(address: usize) -> Option<&'static Region> {
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

/// Bytes of a page.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Who had the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Has the handler hear of pages that cannot be read, from the first call on.
fn watch_for_bus_errors() -> io::Result<()> {
    static DONE: Mutex<bool> = Mutex::new(false);
    let mut done = DONE.lock();
    if *done {
        return Ok(());
    }
    PAGE_BYTES.store(rustix::param::page_size(), Ordering::Relaxed);
    let mut before = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed, and the place for the answer is large enough. Zeros are a valid `sigaction`.
    let before = unsafe {
        if libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        before.assume_init()
    };
    let _ = BEFORE.set(before);
    // SAFETY: the handler has the Bloom filter that SA_SIGINFO asks for, and does only what may be done in one. Zeros are a
    // valid `sigaction`.
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

/// Called by the kernel on the thread that looked at a page which cannot be read.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over what SA_SIGINFO promises. Where a process has sent the signal there is no address, and
    // the code says so.
    let (address, is_fault) = unsafe { ((*info).si_addr() as usize, (*info).si_code > 0) };
    if is_fault
        && let Some(region) = Region::of(address)
        && put_zeros(address)
    {
        region.unreadable.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: the former handler was valid, and has the Bloom filter that its flags say. `sigaction` and `raise` may be called
    // here.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, before, ptr::null_mut());
                // A fault comes again by itself.
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

/// Puts a page of zeros where `address` is, which lies in a mapped region. False when the system has
/// none to give.
fn put_zeros(address: usize) -> bool {
    let page_bytes = PAGE_BYTES.load(Ordering::Relaxed);
    let page = (address & !(page_bytes - 1)) as *mut libc::c_void;
    // SAFETY: the page belongs to a mapping of ours, which stays mapped while a reader looks at it; it stays readable, and
    // no reader has seen other bytes in it, or else only ones that were checked.
    unsafe { mmap_anonymous(page, page_bytes, ProtFlags::READ, MapFlags::PRIVATE | MapFlags::FIXED).is_ok() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::testing::TempDir;

    /// A file of so many pages, each full of its number, from 1 on.
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
        // SAFETY: nothing writes to it any more.
        unsafe { Mapping::new(file, pages * page_bytes()).unwrap() }
    }

    #[test]
    fn pages_that_cannot_be_read_are_zeros_and_the_others_what_they_were() {
        let temp = TempDir::new();
        let (broken, sound) = (file(&temp, "broken", 5), file(&temp, "sound", 5));
        let (broken_map, sound_map) = (map(&broken, 5), map(&sound, 5));
        // Behind the end of a file there is nothing that could be read.
        broken.set_len(2 * page_bytes() as u64).unwrap();
        let firsts =
            |map: &Mapping| -> Vec<u8> { map.as_ref().iter().step_by(page_bytes()).copied().collect() };
        assert_eq!(firsts(&broken_map), [1, 2, 0, 0, 0]);
        assert_eq!(firsts(&sound_map), [1, 2, 3, 4, 5]);
        assert_eq!((broken_map.unreadable_pages(), sound_map.unreadable_pages()), (3, 0));
        // And they stay as they are, also when what was read is given back meanwhile.
        assert_eq!(firsts(&broken_map), [1, 2, 0, 0, 0]);
        assert_eq!(broken_map.unreadable_pages(), 3);
        assert!(broken_map.as_ref()[2 * page_bytes()..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn many_threads_may_look_at_the_same_page_and_regions_come_and_go() {
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
    fn an_address_is_looked_up_in_what_is_mapped_at_present() {
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
            let found = Region::of(address).is_some_and(|region| ptr::eq(region, map.region.0));
            assert_eq!(found, is_ours, "{:x} from the start", address.wrapping_sub(start));
        }
        let region = map.region.0;
        drop(map);
        assert!(Region::of(start).is_none_or(|other| !ptr::eq(other, region)));
    }
}
