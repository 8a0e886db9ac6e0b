//! A simulated disk, and an engine on it that does nothing by itself (feature `fault`).
//!
//! ```text
//! test ─ plan: operation → verdict ─► Disk ◄─ Storage, File ─ engine
//!          proceed, fail, be full,     │
//!          lie, lose power             └─ names: now, on the platter, changed since
//!                                         files: now, on the platter, written since
//! ```
//!
//! The disk keeps only the promises that a real disk keeps. After a power loss, unsynced bytes may be there
//! or not, in any order, sector by sector and byte by byte. Names are durable only once the directory was
//! synced. Bytes that a failed sync did not write to the platter stay readable until the power is lost, and
//! are never written again, regardless of the results of later syncs. All choices follow from a seed, and
//! operations are numbered, so that a failure can be reproduced.
//!
//! A power loss has two parts: from the verdict on, every operation fails; then [`Disk::restore_power`]
//! decides what remains. A killed process is a power loss that keeps everything ([`Disk::restart`]).

mod content;
mod stepper;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};

use self::content::{Content, PAGE_BYTES};
pub use self::stepper::{Stepper, now, open, open_with_threads};
use crate::io::{Clock, File, Storage};
pub use crate::sabotage::{Sabotage, Sabotaged};

/// Pseudo-random numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence of the given seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next 64 bits of the sequence.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which must be at least 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns true once in `n` times on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Kind of an operation on the disk.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// A read of a file, which changes nothing and is not counted.
    Read,
    /// The creation of a file.
    Create,
    /// A write to a file.
    Write,
    /// A sync of a file.
    Sync,
    /// A rename of a file.
    Rename,
    /// The removal of a file.
    Remove,
    /// A sync of the directory.
    SyncDir,
}

/// The description of a disk operation that is passed to a plan.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// Number of operations on the disk before this one; reads are not counted.
    pub number: u64,
    /// Kind of the operation.
    pub kind: Kind,
    /// The present name of the file; for a rename the new name, for the directory an empty string.
    pub name: &'a str,
}

/// Outcome of an operation, chosen by a plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The operation succeeds as usual.
    Proceed,
    /// The operation fails with an input/output error. A part of a write may have been done. After a failed
    /// sync, some of the bytes are on the platter. The other bytes reach the platter only if the engine
    /// writes them again.
    Fail,
    /// The operation fails because no space is left; a part of a write may have been done.
    Full,
    /// A sync reports success without doing anything. Other operations succeed as usual.
    Lie,
    /// The power is lost during the operation.
    LosePower,
    /// The operation succeeds, but the power is lost before the engine gets the result.
    LosePowerAfter,
}

/// Time of the clock of a new disk: a day in 2026.
const TIME_AT_START_MS: u64 = 1_790_000_000_000;

type Plan = Box<dyn FnMut(&Operation<'_>) -> Verdict + Send>;

/// A simulated disk with one directory. Clones are handles to the same disk.
#[derive(Clone)]
pub struct Disk(Arc<Shared>);

struct Shared {
    state: Mutex<DiskState>,
    resumed: Condvar,
}

struct DiskState {
    random: Random,
    plan: Option<Plan>,
    operations: u64,
    powered: bool,
    /// Kind and file name of the operation during which a plan last cut the power.
    cut: Option<(Kind, String)>,
    /// Number of power losses: files opened before a power loss are unusable after it.
    epoch: u64,
    stalled: bool,
    /// Milliseconds since 1970. Changes only by [`Disk::pass`].
    now_ms: u64,
    /// Pages that may still be allocated; `None` means any number.
    free_pages: Option<u64>,
    files: BTreeMap<u64, Content>,
    files_made: u64,
    /// The directory for reads, and the directory on the platter.
    names: BTreeMap<String, u64>,
    stable_names: BTreeMap<String, u64>,
    unsynced_names: Vec<NameChange>,
}

#[derive(Clone)]
enum NameChange {
    Set { name: String, file: u64 },
    Rename { from: String, to: String, file: u64 },
    Remove { name: String },
}

impl Disk {
    /// Creates an empty disk on which nothing fails.
    pub fn new(seed: u64) -> Disk {
        let state = DiskState {
            random: Random(seed),
            plan: None,
            operations: 0,
            powered: true,
            cut: None,
            epoch: 0,
            stalled: false,
            now_ms: TIME_AT_START_MS,
            free_pages: None,
            files: BTreeMap::new(),
            files_made: 0,
            names: BTreeMap::new(),
            stable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
        };
        Disk(Arc::new(Shared { state: Mutex::new(state), resumed: Condvar::new() }))
    }

    /// Creates a disk with these files on its platter.
    pub fn with_files(seed: u64, files: &BTreeMap<String, Vec<u8>>) -> Disk {
        let disk = Disk::new(seed);
        for (name, bytes) in files {
            disk.put(name, bytes);
        }
        disk
    }

    /// Lets `plan` decide the outcome of every operation from now on. The plan must not use the disk.
    pub fn follow(&self, plan: impl FnMut(&Operation<'_>) -> Verdict + Send + 'static) {
        self.0.state.lock().plan = Some(Box::new(plan));
    }

    /// Removes the plan. From now on, operations fail only for lack of space.
    pub fn behave(&self) {
        self.0.state.lock().plan = None;
    }

    /// Returns the number of operations so far; reads are not counted.
    pub fn operations(&self) -> u64 {
        self.0.state.lock().operations
    }

    /// Returns whether the power is on.
    pub fn has_power(&self) -> bool {
        self.0.state.lock().powered
    }

    /// Returns the operation during which the plan last cut the power, and the name of its file.
    pub fn cut(&self) -> Option<(Kind, String)> {
        self.0.state.lock().cut.clone()
    }

    /// Cuts the power now.
    pub fn lose_power(&self) {
        self.0.state.lock().powered = false;
        self.resume();
    }

    /// Restores the power. `seed` decides which unsynced bytes and names remain.
    pub fn restore_power(&self, seed: u64) {
        let mut random = Random(seed);
        let mut state = self.0.state.lock();
        let pages = state.free_pages.map(|free| free + state.used_pages());
        let changes = std::mem::take(&mut state.unsynced_names);
        let kept = match random.below(4) {
            0 => Vec::new(),
            1 => changes,
            2 => changes[..random.below(changes.len() as u64 + 1) as usize].to_vec(),
            _ => changes.into_iter().filter(|_| random.one_in(2)).collect(),
        };
        kept.iter().for_each(|change| change.apply(&mut state.stable_names));
        state.names = state.stable_names.clone();
        let named: Vec<u64> = state.names.values().copied().collect();
        state.files.retain(|file, _| named.contains(file));
        state.files.values_mut().for_each(|content| content.lose_power(&mut random));
        // Files that are gone free their pages. Files that have reappeared take their pages again.
        state.free_pages = pages.map(|pages| pages.saturating_sub(state.used_pages()));
        state.start_again();
    }

    /// Simulates a process that was killed while the machine kept running: everything written is there,
    /// synced or not.
    pub fn restart(&self) {
        self.0.state.lock().start_again();
    }

    /// Blocks all operations until [`Disk::resume`]; reads continue.
    pub fn stall(&self) {
        self.0.state.lock().stalled = true;
    }

    /// Ends a [`Disk::stall`].
    pub fn resume(&self) {
        self.0.state.lock().stalled = false;
        self.0.resumed.notify_all();
    }

    /// Advances the clock, which otherwise stands still, even across power losses.
    pub fn pass(&self, time: Duration) {
        self.0.state.lock().now_ms += time.as_millis() as u64;
    }

    /// Returns the time of the clock, in milliseconds since 1970.
    pub fn time_ms(&self) -> u64 {
        self.0.state.lock().now_ms
    }

    /// Limits how many more pages of 4096 bytes can be written for the first time; `None` removes the limit.
    /// Allocated pages can always be written again.
    pub fn limit_free_pages(&self, pages: Option<u64>) {
        self.0.state.lock().free_pages = pages;
    }

    /// Returns the bytes of the blocks that the files take, unfinished files included.
    pub fn used_bytes(&self) -> u64 {
        self.0.state.lock().used_pages() * PAGE_BYTES
    }

    /// Returns the names and contents of all files.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.0.state.lock();
        state.names.iter().map(|(name, file)| (name.clone(), state.files[file].now().to_vec())).collect()
    }

    /// Changes a file's bytes without the engine's knowledge, on the platter as well. Does nothing if the
    /// file does not exist.
    pub fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.state.lock();
        let file = state.names.get(name).copied();
        if let Some(content) = file.and_then(|file| state.files.get_mut(&file)) {
            content.damage(change);
        }
    }

    /// Makes the page of 4096 bytes at `offset` of a file unreadable until it is written as a whole. A
    /// mapping shows zeros there, as on a real disk (`mapping.rs`); other reads fail.
    pub fn spoil(&self, name: &str, offset: u64) {
        let mut state = self.0.state.lock();
        let file = state.names.get(name).copied();
        if let Some(content) = file.and_then(|file| state.files.get_mut(&file)) {
            content.spoil(offset);
        }
    }

    /// Puts a file on the platter without the engine's knowledge.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.0.state.lock();
        let file = state.make_file(Content::stable(bytes.to_vec()));
        state.names.insert(name.into(), file);
        state.stable_names.insert(name.into(), file);
    }

    /// Removes a file from the platter without the engine's knowledge.
    pub fn take(&self, name: &str) {
        let mut state = self.0.state.lock();
        state.names.remove(name);
        state.stable_names.remove(name);
    }

    /// Begins an operation of an engine that opened the disk in `epoch`, and returns its outcome. Stalled
    /// operations wait here.
    fn begin(
        &self,
        epoch: Option<u64>,
        kind: Kind,
        name: impl FnOnce(&DiskState) -> String,
    ) -> io::Result<(MutexGuard<'_, DiskState>, Verdict)> {
        let mut state = self.0.state.lock();
        while state.stalled && kind != Kind::Read {
            self.0.resumed.wait(&mut state);
        }
        // Mapped bytes stay readable as long as a reader holds them.
        let usable = state.powered && epoch.is_none_or(|epoch| epoch == state.epoch);
        if !usable && kind != Kind::Read {
            return Err(io::Error::other("the power is off"));
        }
        let number = state.operations;
        state.operations += u64::from(kind != Kind::Read);
        let mut verdict = Verdict::Proceed;
        if let Some(mut plan) = state.plan.take() {
            let name = name(&state);
            verdict = plan(&Operation { number, kind, name: &name });
            state.plan = Some(plan);
            if matches!(verdict, Verdict::LosePower | Verdict::LosePowerAfter) {
                state.powered = false;
                state.cut = Some((kind, name));
            }
        }
        Ok((state, verdict))
    }

    fn handle(&self, file: u64, epoch: u64, size: u64) -> Arc<dyn File> {
        Arc::new(Handle { disk: self.clone(), file, epoch, size })
    }
}

impl DiskState {
    fn start_again(&mut self) {
        self.powered = true;
        self.epoch += 1;
    }

    /// Returns the number of pages that the named files take.
    fn used_pages(&self) -> u64 {
        self.names.values().map(|file| self.files[file].pages()).sum()
    }

    fn make_file(&mut self, content: Content) -> u64 {
        self.files_made += 1;
        self.files.insert(self.files_made, content);
        self.files_made
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
    }

    fn name_of(&self, file: u64) -> String {
        let found = self.names.iter().find(|(_, named)| **named == file);
        found.map_or_else(String::new, |(name, _)| name.clone())
    }

    /// Writes as many bytes as there is room for.
    fn write(&mut self, file: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(content) = self.files.get_mut(&file) else { return Err(io::ErrorKind::NotFound.into()) };
        if !content.can_be_written(offset..offset + bytes.len() as u64) {
            return refused(Verdict::Fail);
        }
        let (mut fits, mut taken) = (bytes.len(), 0);
        if let Some(free) = self.free_pages {
            for page in content.pages_missing(offset..offset + bytes.len() as u64) {
                if taken == free {
                    fits = (page as u64 * PAGE_BYTES).saturating_sub(offset) as usize;
                    break;
                }
                taken += 1;
            }
            self.free_pages = Some(free - taken);
        }
        content.write(offset, &bytes[..fits]);
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Frees the pages of a file that has no name any more.
    fn free(&mut self, file: u64) {
        let pages = self.files.get(&file).map_or(0, Content::pages);
        self.free_pages = self.free_pages.map(|free| free + pages);
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Set { name, file } => {
                names.insert(name.clone(), *file);
            }
            NameChange::Rename { from, to, file } => {
                names.retain(|name, named| name != from || named != file);
                names.insert(to.clone(), *file);
            }
            NameChange::Remove { name } => {
                names.remove(name);
            }
        }
    }
}

/// Returns an error if the verdict means that the caller of the operation gets an error.
fn refused(verdict: Verdict) -> io::Result<()> {
    match verdict {
        Verdict::Proceed | Verdict::Lie => Ok(()),
        Verdict::Fail => Err(io::Error::other("input/output error")),
        Verdict::Full => Err(io::ErrorKind::StorageFull.into()),
        Verdict::LosePower | Verdict::LosePowerAfter => Err(io::Error::other("the power is off")),
    }
}

/// Returns whether an operation with this verdict takes effect. The effect is not durable before a sync.
fn takes_effect(verdict: Verdict) -> bool {
    !matches!(verdict, Verdict::Fail | Verdict::Full)
}

impl Storage for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        let (state, verdict) = self.begin(None, Kind::Read, |_| String::new())?;
        refused(verdict)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        let (mut state, verdict) = self.begin(None, Kind::Create, |_| name.into())?;
        let file = if takes_effect(verdict) {
            let file = state.make_file(Content::new(size as usize));
            if let Some(replaced) = state.names.get(name).copied() {
                state.free(replaced);
            }
            state.change_name(NameChange::Set { name: name.into(), file });
            file
        } else {
            0
        };
        refused(verdict)?;
        Ok(self.handle(file, state.epoch, size))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let (state, verdict) = self.begin(None, Kind::Read, |_| name.into())?;
        refused(verdict)?;
        let &file = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.handle(file, state.epoch, state.files[&file].now().len() as u64))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (mut state, verdict) = self.begin(None, Kind::Rename, |_| to.into())?;
        if takes_effect(verdict) {
            let &file = state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
            if let Some(replaced) = state.names.get(to).copied() {
                state.free(replaced);
            }
            state.change_name(NameChange::Rename { from: from.into(), to: to.into(), file });
        }
        refused(verdict)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (mut state, verdict) = self.begin(None, Kind::Remove, |_| name.into())?;
        if takes_effect(verdict) {
            let &file = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
            state.free(file);
            state.change_name(NameChange::Remove { name: name.into() });
        }
        refused(verdict)
    }

    fn sync_dir(&self) -> io::Result<()> {
        let (mut state, verdict) = self.begin(None, Kind::SyncDir, |_| String::new())?;
        if matches!(verdict, Verdict::Proceed | Verdict::LosePowerAfter) {
            state.stable_names = state.names.clone();
            state.unsynced_names.clear();
        }
        refused(verdict)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let free = self.0.state.lock().free_pages;
        Ok(free.map_or(u64::MAX, |pages| pages * PAGE_BYTES))
    }

    fn capacity(&self) -> io::Result<u64> {
        Ok(self.free_bytes()?.saturating_add(self.used_bytes()))
    }

    fn entropy(&self) -> u64 {
        self.0.state.lock().random.next()
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/simulated").join(name)
    }
}

impl Clock for Disk {
    fn now_ms(&self) -> u64 {
        self.time_ms()
    }
}

/// An open file of the simulated disk.
struct Handle {
    disk: Disk,
    file: u64,
    epoch: u64,
    size: u64,
}

impl Handle {
    fn begin(&self, kind: Kind) -> io::Result<(MutexGuard<'_, DiskState>, Verdict)> {
        self.disk.begin(Some(self.epoch), kind, |state| state.name_of(self.file))
    }
}

impl File for Handle {
    fn size(&self) -> u64 {
        self.size
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.size) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "write past the end of the file"));
        }
        let (mut state, verdict) = self.begin(Kind::Write)?;
        let part = if takes_effect(verdict) {
            bytes.len()
        } else {
            state.random.below(bytes.len() as u64 + 1) as usize
        };
        let written = state.write(self.file, offset, &bytes[..part]);
        refused(verdict).and(written)
    }

    fn sync_data(&self) -> io::Result<()> {
        let (mut state, verdict) = self.begin(Kind::Sync)?;
        let DiskState { files, random, .. } = &mut *state;
        let Some(content) = files.get_mut(&self.file) else { return Err(io::ErrorKind::NotFound.into()) };
        match verdict {
            Verdict::Proceed | Verdict::LosePowerAfter => content.sync(),
            Verdict::Fail | Verdict::Full => content.fail_sync(random),
            Verdict::Lie | Verdict::LosePower => {}
        }
        refused(verdict)
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let (state, verdict) = self.disk.begin(None, Kind::Read, |state| state.name_of(self.file))?;
        refused(verdict)?;
        let content = state.files.get(&self.file).ok_or(io::ErrorKind::NotFound)?;
        let end = offset.checked_add(len as u64).filter(|&end| end <= content.now().len() as u64);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(Bytes::copy_from_slice(&content.now()[offset as usize..end as usize]))
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        out.copy_from_slice(&self.read(offset, out.len())?);
        let state = self.disk.0.state.lock();
        let content = state.files.get(&self.file).ok_or(io::ErrorKind::NotFound)?;
        let can_be_read = content.can_be_read(offset..offset + out.len() as u64);
        refused(if can_be_read { Verdict::Proceed } else { Verdict::Fail })
    }

    fn unreadable_pages(&self) -> u64 {
        self.disk.0.state.lock().files.get(&self.file).map_or(0, Content::unreadable)
    }

    fn written(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let state = self.disk.0.state.lock();
        let content = state.files.get(&self.file).ok_or(io::ErrorKind::NotFound)?;
        Ok(content.written(offset))
    }
}

#[cfg(test)]
#[path = "fault_test.rs"]
mod tests;
