//! A durable image of the index, so that opening reads the log's end only. The layout is in `docs/format.md`.
//!
//! ```text
//! root ─► Writer: blocks of 256 KiB ─► header ─► sync ─► rename ─► sync the directory
//!         segments, then keys, then the keys' Bloom filters
//! file ─► load: header, blocks, every entry checked ─► tree, segments, marks
//! ```
//!
//! It is written from an immutable root, so no commit waits for it. It may be missing or damaged: then the log is
//! read instead. Hence a load has two outcomes only, and nothing in it is believed for its checksum alone.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::bloom::{BLOOM_BYTES, BloomFilter};
use crate::header::{NUMBER_END, RECORDS_START, u32_at, u64_at};
use crate::history::{self, Place, Version};
use crate::index::{Builder, Cursor, Size, Slot, Tree};
use crate::io::{File, Storage};
use crate::record::{ALIGN, HEAD_BYTES, REVISION_END};
use crate::sabotage;
use crate::segment::Mark;
use crate::snapshot::Root;
use crate::throttle::WriteThrottle;
use crate::types::{CommitTime, KEY_BYTES_MAX, Revision, SegmentNumber};

/// Name of a checkpoint that is being written.
pub(crate) const NEXT_NAME: &str = "next.checkpoint";

/// The checkpoint format this release writes, and the newest it reads.
const CHECKPOINT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"REVCKPT\n";
pub(crate) const HEADER_BYTES: usize = 128;
const BLOCKS_START: u64 = 4096;
const BLOCK_HEAD_BYTES: usize = 8;
/// A block that has grown to this is written.
const BLOCK_BYTES: usize = 256 * 1024;
const VERSION_BYTES: usize = 32;
const ENTRY_HEAD_BYTES: usize = 8;
const SEGMENT_HEAD_BYTES: usize = 24;
const MARK_BYTES: usize = 16;

/// File name of the checkpoint of `revision`.
pub(crate) fn name(revision: Revision) -> String {
    format!("{revision:020}.checkpoint")
}

/// The revision of the checkpoint with that file name.
pub(crate) fn revision(name: &str) -> Option<Revision> {
    let digits = name.strip_suffix(".checkpoint").filter(|d| d.len() == 20)?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// What a checkpoint says beside the index.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct About {
    pub store: u64,
    pub revision: Revision,
    pub oldest: Revision,
    /// Time of the newest record.
    pub time: CommitTime,
    pub lost_revisions: u64,
    /// Numbers of segments given so far.
    pub numbers_given: SegmentNumber,
    /// The segments of the log in order.
    pub segments: Vec<SegmentImage>,
}

/// What a checkpoint says of a segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SegmentImage {
    pub number: SegmentNumber,
    pub salt: u64,
    /// Where its records ended.
    pub end: u64,
    pub marks: Vec<Mark>,
}

/// What a new checkpoint must say that its root does not know.
pub(crate) struct Beside {
    pub time: CommitTime,
    pub lost_revisions: u64,
    pub numbers_given: SegmentNumber,
    /// Of what kind the root's Bloom filters are; 0: it has none.
    pub signed: u32,
}

/// Writes one checkpoint, a block at a time.
pub(crate) struct Writer {
    root: Arc<Root>,
    beside: Beside,
    salt: u64,
    file: Arc<dyn File>,
    cursor: Cursor,
    offset: u64,
    throttle: WriteThrottle,
    written: Size,
    /// Where the blocks of keys end, once they are all written. Then come the Bloom filters, on a walk of their own.
    keys_end: Option<u64>,
}

impl Writer {
    /// Begins the image of `root`, with the segments it names.
    pub fn begin(
        storage: &dyn Storage,
        throttle: WriteThrottle,
        root: Arc<Root>,
        beside: Beside,
    ) -> io::Result<Writer> {
        let salt = storage.entropy();
        let segments = segment_blocks(&root);
        let size = root.tree.size();
        let keys =
            size.keys * ENTRY_HEAD_BYTES as u64 + size.key_bytes + size.versions * VERSION_BYTES as u64;
        let keys = keys + if beside.signed == 0 { 0 } else { size.keys * BLOOM_BYTES as u64 };
        let blocks = keys / BLOCK_BYTES as u64 + 2;
        let before: usize = segments.iter().map(|block| block.len() + BLOCK_HEAD_BYTES).sum();
        // A bound: keys share prefixes. What is not written takes no room.
        let len = BLOCKS_START + before as u64 + keys + blocks * BLOCK_HEAD_BYTES as u64;
        let file = storage.create(NEXT_NAME, len)?;
        let cursor = root.tree.cursor(b"");
        let (offset, written, keys_end) = (BLOCKS_START, Size::default(), None);
        let mut writer = Writer { root, beside, salt, file, cursor, offset, throttle, written, keys_end };
        for block in segments {
            writer.write_block(&block)?;
        }
        Ok(writer)
    }

    /// Writes the next block; false when there are no more.
    pub fn step(&mut self) -> io::Result<bool> {
        if self.keys_end.is_none() && !self.step_keys()? {
            self.keys_end = Some(self.offset);
            self.cursor = self.root.tree.cursor(b"");
        }
        match self.keys_end {
            Some(_) if self.beside.signed == 0 => Ok(false),
            Some(_) => self.step_blooms(),
            None => Ok(true),
        }
    }

    fn step_blooms(&mut self) -> io::Result<bool> {
        let slots = std::iter::from_fn(|| self.cursor.next_slot()).take(BLOCK_BYTES / BLOOM_BYTES);
        let block: Vec<u8> = slots.flat_map(|(_, slot)| slot.bloom.to_bytes()).collect();
        if block.is_empty() {
            return Ok(false);
        }
        self.write_block(&block)?;
        Ok(true)
    }

    fn step_keys(&mut self) -> io::Result<bool> {
        let mut block = Vec::with_capacity(BLOCK_BYTES + 4096);
        let mut before = Bytes::new();
        while block.len() < BLOCK_BYTES {
            let Some((key, slot)) = self.cursor.next_slot() else { break };
            let versions = encode_entry(&mut block, &before, &key, &slot);
            self.written.keys += 1;
            self.written.key_bytes += key.len() as u64;
            self.written.versions += versions;
            before = key;
        }
        if block.is_empty() {
            return Ok(false);
        }
        self.write_block(&block)?;
        Ok(true)
    }

    /// Makes the checkpoint count, once every block is written and the log is synced up to its revision. Returns its
    /// name.
    pub fn finish(self, storage: &dyn Storage) -> io::Result<String> {
        debug_assert_eq!(self.written, self.root.tree.size(), "a tree knows its size");
        self.file.write_at(0, &self.header())?;
        if !sabotage::checkpoint_named_before_sync() {
            self.file.sync_data()?;
        }
        let name = name(self.root.revision);
        storage.rename(NEXT_NAME, &name)?;
        if !sabotage::checkpoint_name_not_synced() {
            storage.sync_dir()?;
        }
        Ok(name)
    }

    /// The root it is the image of.
    pub fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// Where the image ends.
    pub fn end(&self) -> u64 {
        self.offset
    }

    fn write_block(&mut self, contents: &[u8]) -> io::Result<()> {
        let mut block = Vec::with_capacity(BLOCK_HEAD_BYTES + contents.len());
        block.extend_from_slice(&[0; 4]);
        block.extend_from_slice(&(contents.len() as u32).to_le_bytes());
        block.extend_from_slice(contents);
        let crc = block_crc(&block[4..], self.salt, self.offset).to_le_bytes();
        block[..4].copy_from_slice(&crc);
        self.throttle.write(&*self.file, self.offset, &block)?;
        self.offset += block.len() as u64;
        Ok(())
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&CHECKPOINT_VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&(self.root.segments.in_order().len() as u32).to_le_bytes());
        let store = self.root.segments.in_order().first().map_or(0, |segment| segment.header.store);
        for (at, number) in [
            (16, store),
            (24, self.salt),
            (32, self.root.revision.get()),
            (40, self.root.oldest.get()),
            (48, self.beside.time.ms()),
            (56, self.written.keys),
            (64, self.written.versions),
            (72, self.beside.lost_revisions),
            (80, self.keys_end.unwrap_or(self.offset)),
            (96, if self.beside.signed == 0 { 0 } else { self.offset }),
        ] {
            header[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        header[88..92].copy_from_slice(&self.beside.numbers_given.get().to_le_bytes());
        header[92..96].copy_from_slice(&self.beside.signed.to_le_bytes());
        let crc = crc32fast::hash(&header[..124]).to_le_bytes();
        header[124..].copy_from_slice(&crc);
        header
    }
}

/// The contents of the blocks that say what segments there are.
fn segment_blocks(root: &Root) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let mut block = Vec::new();
    for segment in root.segments.in_order() {
        // Marks of records younger than the root may be there already.
        let marks = segment.marks_until(root.revision);
        block.extend_from_slice(&segment.header.number.get().to_le_bytes());
        block.extend_from_slice(&(marks.len() as u32).to_le_bytes());
        block.extend_from_slice(&segment.header.salt.to_le_bytes());
        block.extend_from_slice(&root.end_of(segment).to_le_bytes());
        for mark in marks {
            block.extend_from_slice(&mark.revision.get().to_le_bytes());
            block.extend_from_slice(&mark.offset.to_le_bytes());
        }
        if block.len() >= BLOCK_BYTES {
            blocks.push(std::mem::take(&mut block));
        }
    }
    blocks.extend((!block.is_empty()).then_some(block));
    blocks
}

fn encode_entry(block: &mut Vec<u8>, before: &[u8], key: &[u8], slot: &Slot) -> u64 {
    let shared = before.iter().zip(key).take_while(|(a, b)| a == b).count();
    let start = block.len();
    block.extend_from_slice(&(shared as u16).to_le_bytes());
    block.extend_from_slice(&((key.len() - shared) as u16).to_le_bytes());
    block.extend_from_slice(&[0; 4]);
    block.extend_from_slice(&key[shared..]);
    let mut versions = 0u32;
    for version in history::iter(&slot.newest, &slot.older) {
        block.extend_from_slice(&version.revision.get().to_le_bytes());
        block.extend_from_slice(&version.created.get().to_le_bytes());
        block.extend_from_slice(&version.segment.get().to_le_bytes());
        block.extend_from_slice(&version.expires_s.to_le_bytes());
        block.extend_from_slice(&version.place.to_bytes());
        versions += 1;
    }
    block[start + 4..start + 8].copy_from_slice(&versions.to_le_bytes());
    versions.into()
}

/// Reads the checkpoint of `revision` in `file` without its keys. `None`: it is damaged.
pub(crate) fn load(revision: Revision, file: &dyn File) -> Option<Loading<'_>> {
    if file.size() < BLOCKS_START {
        return None;
    }
    let header = file.read(0, HEADER_BYTES).ok()?;
    let crc_is_right = crc32fast::hash(&header[..124]) == u32_at(&header, 124);
    if header[..8] != MAGIC
        || !(crc_is_right || sabotage::crc_ignored())
        || u32_at(&header, 8) > CHECKPOINT_VERSION
    {
        return None;
    }
    let end = u64_at(&header, 80);
    let mut about = About {
        store: u64_at(&header, 16),
        revision: Revision::new(u64_at(&header, 32)),
        oldest: Revision::new(u64_at(&header, 40)),
        time: CommitTime::from_ms(u64_at(&header, 48)),
        lost_revisions: u64_at(&header, 72),
        numbers_given: SegmentNumber::new(u32_at(&header, 88)),
        segments: Vec::new(),
    };
    let sound = about.revision == revision
        && revision < REVISION_END
        && about.oldest <= revision
        && about.lost_revisions <= revision.get()
        && about.time < CommitTime::END
        && about.numbers_given.get() < NUMBER_END
        && (BLOCKS_START..=file.size()).contains(&end);
    if !sound {
        return None;
    }
    let salt = u64_at(&header, 24);
    let mut blocks = Blocks { file, at: BLOCKS_START, end, salt };
    let signed = u32_at(&header, 92);
    let blooms_end = u64_at(&header, 96);
    if signed != 0 && !(end..=file.size()).contains(&blooms_end) {
        return None;
    }
    let blooms = Blooms {
        kind: signed,
        blocks: Blocks { file, at: end, end: if signed == 0 { end } else { blooms_end }, salt },
        block: Bytes::new(),
    };
    let count = u32_at(&header, 12) as usize;
    while about.segments.len() < count {
        let mut block = blocks.next()??;
        while !block.is_empty() {
            about.segments.push(decode_segment(&mut block, about.numbers_given)?);
        }
    }
    (about.segments.len() == count && count > 0).then_some(())?;
    let size = Size { keys: u64_at(&header, 56), key_bytes: 0, versions: u64_at(&header, 64) };
    Some(Loading { about, blocks, size, blooms })
}

/// A checkpoint whose keys are still to be read.
pub(crate) struct Loading<'f> {
    pub about: About,
    blocks: Blocks<'f>,
    /// How many keys and versions there should be.
    size: Size,
    blooms: Blooms<'f>,
}

impl Loading<'_> {
    /// Bytes of the image.
    pub fn bytes(&self) -> u64 {
        self.blooms.blocks.end - BLOCKS_START
    }

    /// The index, without what is not needed to read at `oldest` and later, and whether all of it is signed in the way
    /// of that kind; where it is not, its Bloom filters say nothing. `None`: it is damaged.
    pub fn tree(self, oldest: Revision, kind: u32) -> Option<(Tree, bool)> {
        let mut builder = Builder::default();
        let mut blooms = self.blooms.clone();
        let is_right = blooms.kind == kind || sabotage::bloom_kind_ignored();
        let mut has_blooms = kind != 0 && blooms.kind != 0 && is_right;
        self.each(|key, versions| {
            let bloom = if has_blooms { blooms.next() } else { None };
            has_blooms = bloom.is_some();
            versions.truncate(history::kept(versions.iter(), oldest));
            if let Some((newest, older)) = history::from_newest_first(versions) {
                builder.push(key, Slot { newest, older, bloom: bloom.unwrap_or(BloomFilter::UNKNOWN) });
            }
        })?;
        Some((builder.finish(), has_blooms))
    }

    /// Whether there is a Bloom filter for each key, or none at all.
    pub fn blooms_are_sound(&self) -> bool {
        let blooms = self.blooms.clone();
        blooms.kind == 0 || blooms.count() as u64 == self.size.keys
    }

    /// Tells each key, in ascending order, and its versions, newest first; there is at least one. Memory is one block.
    /// `None`: it is damaged, and what was told before may not be all of it.
    pub fn each(mut self, mut tell: impl FnMut(&[u8], &mut Vec<Version>)) -> Option<()> {
        let mut ends: Vec<_> = self.about.segments.iter().map(|s| (s.number, s.end)).collect();
        ends.sort_unstable();
        let mut found = Size::default();
        let mut key = Vec::new();
        let mut last_key = Vec::new();
        let mut versions = Vec::new();
        for block in self.blocks.by_ref() {
            let mut block = block?;
            key.clear();
            while !block.is_empty() {
                decode_entry(&mut block, &mut key, &mut versions)?;
                let ascending = found.keys == 0 || key > last_key;
                let descending = versions.is_sorted_by(|a: &Version, b: &Version| a.revision > b.revision);
                let newest = versions.first()?;
                if !ascending
                    || !descending
                    || newest.revision > self.about.revision
                    || !versions.iter().all(|version| is_sound(version, &ends))
                {
                    return None;
                }
                found.keys += 1;
                found.versions += versions.len() as u64;
                last_key.clone_from(&key);
                tell(&key, &mut versions);
            }
        }
        (found == self.size).then_some(())
    }
}

/// Whether the version can lie where it says, given the segments and where their records end.
fn is_sound(version: &Version, ends: &[(SegmentNumber, u64)]) -> bool {
    let end = ends.binary_search_by_key(&version.segment, |&(number, _)| number).map(|at| ends[at].1);
    version.revision > Revision::ZERO
        && (Revision::FIRST..=version.revision).contains(&version.created)
        && version.len() >= HEAD_BYTES
        && version.len().is_multiple_of(ALIGN)
        && version.offset() >= RECORDS_START
        && end.is_ok_and(|end| version.offset() + version.len() as u64 <= end)
}

/// The Bloom filters of the keys, in the order of these; of kind 0 there are none. Ends early where one is damaged.
#[derive(Clone)]
struct Blooms<'f> {
    kind: u32,
    blocks: Blocks<'f>,
    /// What is left of the last block.
    block: Bytes,
}

impl Iterator for Blooms<'_> {
    type Item = BloomFilter;

    fn next(&mut self) -> Option<BloomFilter> {
        if self.block.is_empty() {
            self.block = self.blocks.next()??;
        }
        let bytes = take(&mut self.block, BLOOM_BYTES)?;
        Some(BloomFilter::from_bytes(bytes.first_chunk().copied()?))
    }
}

/// The blocks of a checkpoint one after the other.
#[derive(Clone)]
struct Blocks<'f> {
    file: &'f dyn File,
    /// Where the next one begins, and the last one ends.
    at: u64,
    end: u64,
    salt: u64,
}

impl Blocks<'_> {
    /// The contents of the next one; `None` when it is damaged.
    fn read(&self) -> Option<Bytes> {
        let head = self.file.read(self.at, BLOCK_HEAD_BYTES).ok()?;
        let len = BLOCK_HEAD_BYTES as u64 + u64::from(u32_at(&head, 4));
        if len > self.end - self.at {
            return None;
        }
        let block = self.file.read(self.at, len as usize).ok()?;
        let is_sound = block_crc(&block[4..], self.salt, self.at) == u32_at(&head, 0);
        (is_sound || sabotage::crc_ignored()).then(|| block.slice(BLOCK_HEAD_BYTES..))
    }
}

impl Iterator for Blocks<'_> {
    /// Its contents; `None` when it is damaged, and then there is no other.
    type Item = Option<Bytes>;

    fn next(&mut self) -> Option<Option<Bytes>> {
        if self.at == self.end {
            return None;
        }
        let read = self.read();
        self.at = match &read {
            Some(contents) => self.at + (BLOCK_HEAD_BYTES + contents.len()) as u64,
            None => self.end,
        };
        Some(read)
    }
}

fn block_crc(bytes: &[u8], salt: u64, offset: u64) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&salt.to_le_bytes());
    crc.update(&offset.to_le_bytes());
    crc.update(bytes);
    crc.finalize()
}

/// Takes `len` bytes from the front.
fn take(block: &mut Bytes, len: usize) -> Option<Bytes> {
    (len <= block.len()).then(|| block.split_to(len))
}

fn decode_segment(block: &mut Bytes, numbers_given: SegmentNumber) -> Option<SegmentImage> {
    let head = take(block, SEGMENT_HEAD_BYTES)?;
    let marks = take(block, (u32_at(&head, 4) as usize).checked_mul(MARK_BYTES)?)?;
    let marks: Vec<_> = marks
        .chunks_exact(MARK_BYTES)
        .map(|mark| Mark { revision: Revision::new(u64_at(mark, 0)), offset: u64_at(mark, 8) })
        .collect();
    let image = SegmentImage {
        number: SegmentNumber::new(u32_at(&head, 0)),
        salt: u64_at(&head, 8),
        end: u64_at(&head, 16),
        marks,
    };
    let sound = (SegmentNumber::FIRST..=numbers_given).contains(&image.number)
        && image.end >= RECORDS_START
        && image.marks.is_sorted_by(|a, b| a.revision < b.revision && a.offset < b.offset)
        && image.marks.iter().all(|mark| {
            mark.revision > Revision::ZERO
                && (RECORDS_START..image.end).contains(&mark.offset)
                && mark.offset.is_multiple_of(ALIGN as u64)
        });
    sound.then_some(image)
}

/// Turns `key`, the one before it, into the next key, and fills `versions` with its versions.
fn decode_entry(block: &mut Bytes, key: &mut Vec<u8>, versions: &mut Vec<Version>) -> Option<()> {
    let head = take(block, ENTRY_HEAD_BYTES)?;
    let shared = usize::from(u16::from_le_bytes([head[0], head[1]]));
    let rest = take(block, u16::from_le_bytes([head[2], head[3]]).into())?;
    let stored = take(block, (u32_at(&head, 4) as usize).checked_mul(VERSION_BYTES)?)?;
    if shared > key.len() || !(1..=KEY_BYTES_MAX).contains(&(shared + rest.len())) {
        return None;
    }
    key.truncate(shared);
    key.extend_from_slice(&rest);
    versions.clear();
    versions.extend(stored.chunks_exact(VERSION_BYTES).map(|version| Version {
        revision: Revision::new(u64_at(version, 0)),
        created: Revision::new(u64_at(version, 8)),
        segment: SegmentNumber::new(u32_at(version, 16)),
        expires_s: u32_at(version, 20),
        place: Place::from_bytes([
            version[24],
            version[25],
            version[26],
            version[27],
            version[28],
            version[29],
            version[30],
            version[31],
        ]),
    }));
    Some(())
}
