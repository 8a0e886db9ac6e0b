//! Contents of a simulated file: the bytes that reads see, the bytes on the platter, and the writes in
//! between.
//!
//! A power loss keeps a part of the writes that are not on the platter, as on a real disk: no write, all
//! writes, all bytes up to some offset, or a different part in each sector (or page). A sector then has the
//! state after any number of the writes to it, and the next write may be torn in its middle.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Random;

/// Unit of allocation and of the kernel's write-back.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Unit that a disk usually writes atomically.
const SECTOR_BYTES: usize = 512;

/// The bytes of a file.
pub(super) struct Content {
    now: Vec<u8>,
    platter: Vec<u8>,
    /// Whether the file's size is on the platter.
    sized: bool,
    /// Pages that have blocks.
    allocated: Vec<bool>,
    /// Writes since the last sync, in order: offset and bytes.
    unsynced: Vec<(usize, Vec<u8>)>,
    /// Pages that the platter cannot read any more; in a mapping they read as zeros.
    unreadable: BTreeSet<usize>,
}

impl Content {
    /// Creates a new file of `size` zeros without blocks, unsynced.
    pub fn new(size: usize) -> Content {
        let pages = size.div_ceil(PAGE_BYTES as usize);
        Content {
            now: vec![0; size],
            platter: vec![0; size],
            sized: false,
            allocated: vec![false; pages],
            unsynced: Vec::new(),
            unreadable: BTreeSet::new(),
        }
    }

    /// Creates a file that is on the platter.
    pub fn stable(bytes: Vec<u8>) -> Content {
        let mut content = Content::new(0);
        content.damage(|old| *old = bytes);
        content.sized = true;
        content
    }

    /// Returns the bytes that reads see.
    pub fn now(&self) -> &[u8] {
        &self.now
    }

    /// Returns the number of pages that have blocks.
    pub fn pages(&self) -> u64 {
        self.allocated.iter().filter(|&&allocated| allocated).count() as u64
    }

    /// Returns the pages of a range that have no blocks.
    pub fn pages_missing(&self, range: Range<u64>) -> impl Iterator<Item = usize> {
        pages(range).filter(|&page| !self.allocated[page])
    }

    /// Returns the number of unreadable pages.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.len() as u64
    }

    /// Returns whether all of a range can be read.
    pub fn can_be_read(&self, range: Range<u64>) -> bool {
        range.is_empty() || self.unreadable.range(pages(range)).next().is_none()
    }

    /// Makes the page at `offset` unreadable.
    pub fn spoil(&mut self, offset: u64) {
        let start = (offset - offset % PAGE_BYTES) as usize;
        self.damage(|bytes| {
            let end = bytes.len().min(start + PAGE_BYTES as usize);
            bytes[start..end].fill(0);
        });
        self.unreadable.insert(start / PAGE_BYTES as usize);
    }

    /// Returns whether a range can be written. Unreadable pages can be written only as a whole, which makes
    /// them readable again.
    pub fn can_be_written(&mut self, range: Range<u64>) -> bool {
        let whole = range.start.div_ceil(PAGE_BYTES) as usize..(range.end / PAGE_BYTES) as usize;
        self.unreadable.retain(|page| !whole.contains(page));
        self.can_be_read(range)
    }

    /// Writes bytes within the size.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        pages(offset..offset + bytes.len() as u64).for_each(|page| self.allocated[page] = true);
        let offset = offset as usize;
        self.now[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.unsynced.push((offset, bytes.to_vec()));
    }

    /// Writes everything to the platter.
    pub fn sync(&mut self) {
        for (offset, bytes) in self.unsynced.drain(..) {
            self.platter[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        self.sized = true;
    }

    /// Fails a sync. Only a part of the writes reaches the platter. The kernel marks the other pages as clean,
    /// so their bytes can still be read but are never written.
    pub fn fail_sync(&mut self, random: &mut Random) {
        self.keep(random);
        self.unsynced.clear();
    }

    /// Loses the power: only the bytes on the platter remain.
    pub fn lose_power(&mut self, random: &mut Random) {
        if !self.sized && random.one_in(3) {
            *self = Content::stable(Vec::new());
            return;
        }
        self.keep(random);
        self.unsynced.clear();
        self.sized = true;
        self.now.clone_from(&self.platter);
    }

    /// Changes the bytes that reads see and the bytes on the platter.
    pub fn damage(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.now);
        self.platter.clone_from(&self.now);
        self.unsynced.clear();
        self.allocated.clear();
        self.allocated.resize(self.now.len().div_ceil(PAGE_BYTES as usize), true);
    }

    /// Returns the first range of pages with blocks at or after `offset`.
    pub fn written(&self, offset: u64) -> Option<Range<u64>> {
        let page = (offset / PAGE_BYTES) as usize;
        let first = page + self.allocated.get(page..)?.iter().position(|&allocated| allocated)?;
        let count = self.allocated[first..].iter().take_while(|&&allocated| allocated).count();
        let start = (first as u64 * PAGE_BYTES).max(offset);
        let end = ((first + count) as u64 * PAGE_BYTES).min(self.now.len() as u64);
        (start < end).then_some(start..end)
    }

    /// Writes a random part of the unsynced bytes to the platter.
    fn keep(&mut self, random: &mut Random) {
        let writes = &self.unsynced;
        let platter = &mut self.platter;
        match random.below(6) {
            0 => {}
            1 => {
                let mut left = match random.below(2) {
                    // The disk keeps either all of the writes, or the writes up to some byte.
                    0 => usize::MAX,
                    _ => random.below(writes.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() + 1)
                        as usize,
                };
                for (offset, bytes) in writes {
                    let len = bytes.len().min(left);
                    platter[*offset..offset + len].copy_from_slice(&bytes[..len]);
                    left -= len;
                }
            }
            2 => keep_units(platter, writes, PAGE_BYTES as usize, false, random),
            kind => keep_units(platter, writes, SECTOR_BYTES, kind == 3, random),
        }
    }
}

/// Gives each unit the state after some of the writes to it. If `torn`, the unit also gets a part of the next
/// write.
fn keep_units(platter: &mut [u8], writes: &[(usize, Vec<u8>)], unit: usize, torn: bool, random: &mut Random) {
    let mut touched: BTreeMap<usize, Vec<&(usize, Vec<u8>)>> = BTreeMap::new();
    for write in writes {
        for number in write.0 / unit..(write.0 + write.1.len()).div_ceil(unit) {
            touched.entry(number).or_default().push(write);
        }
    }
    // A few, half, or most of the units get at least one of their writes.
    let chance = [1, 4, 7][random.below(3) as usize];
    for (number, writes) in touched {
        let range = number * unit..(number + 1) * unit;
        let mut left = if random.below(8) < chance {
            1 + random.below(writes.len() as u64) as usize
        } else {
            random.below(writes.len() as u64) as usize
        };
        for (offset, bytes) in writes {
            let tear = if left == 0 && torn { random.below(unit as u64 + 1) as usize } else { unit };
            let start = range.start.max(*offset);
            let end = (range.start + tear).min(offset + bytes.len());
            if (left > 0 || torn) && start < end {
                platter[start..end].copy_from_slice(&bytes[start - offset..end - offset]);
            }
            if left == 0 {
                break;
            }
            left -= 1;
        }
    }
}

fn pages(range: Range<u64>) -> Range<usize> {
    (range.start / PAGE_BYTES) as usize..range.end.div_ceil(PAGE_BYTES) as usize
}
