//! Durable images of the index, so that opening reads only the end of the log. `docs/format.md` describes the
//! layout.
//!
//! ```text
//! root ─► CheckpointWriter: blocks of 256 KiB ─► header ─► sync ─► rename ─► sync the directory
//!         segments, then keys, then the keys' Bloom filters
//! file ─► load (load.rs): header, blocks, every entry checked ─► tree, segments, marks
//! ```
//!
//! A checkpoint is written from an immutable root, so no commit waits for it. A checkpoint may be missing or
//! damaged; opening then reads the log instead. So loading a checkpoint succeeds or fails as a whole, and
//! every entry is checked in addition to the checksum.

mod load;

use std::io;
use std::sync::Arc;

use bytes::Bytes;

pub(crate) use self::load::{CheckpointLoader, load};
use crate::bloom::BLOOM_BYTES;
use crate::history;
use crate::index::{Cursor, KeySlot, TreeSize};
use crate::io::{File, Storage};
use crate::sabotage;
use crate::segment::PositionMark;
use crate::snapshot::Root;
use crate::throttle::WriteThrottle;
use crate::types::{CommitTime, Revision, SegmentNumber};

/// Name of a checkpoint file that is being written.
pub(crate) const NEXT_NAME: &str = "next.checkpoint";

/// Version of the checkpoint format that this release writes, and the newest that it reads.
const CHECKPOINT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"REVCKPT\n";
pub(crate) const HEADER_BYTES: usize = 128;
const BLOCKS_START: u64 = 4096;
const BLOCK_HEAD_BYTES: usize = 8;
/// Size at which a block is written.
const BLOCK_BYTES: usize = 256 * 1024;
const VERSION_BYTES: usize = 32;
const ENTRY_HEAD_BYTES: usize = 8;
const SEGMENT_HEAD_BYTES: usize = 24;
const MARK_BYTES: usize = 16;

/// Minimum size of the log for which a checkpoint is useful: reading a smaller log takes almost no time.
pub(crate) const WORTH_BYTES: u64 = 8 * 1024 * 1024;

/// Returns the file name of the checkpoint of `revision`.
pub(crate) fn name(revision: Revision) -> String {
    format!("{revision:020}.checkpoint")
}

/// Returns the revision of the checkpoint with the given file name.
pub(crate) fn revision(name: &str) -> Option<Revision> {
    let digits = name.strip_suffix(".checkpoint").filter(|d| d.len() == 20)?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Contents of a checkpoint other than the index.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct CheckpointContents {
    pub store: u64,
    pub revision: Revision,
    pub oldest: Revision,
    /// Time of the newest record.
    pub time: CommitTime,
    pub lost_revisions: u64,
    /// Highest segment number given so far.
    pub numbers_given: SegmentNumber,
    /// The segments of the log, in order.
    pub segments: Vec<SegmentImage>,
}

/// Description of a segment in a checkpoint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SegmentImage {
    pub number: SegmentNumber,
    pub salt: u64,
    /// Offset at which the records of the segment ended.
    pub end: u64,
    pub marks: Vec<PositionMark>,
}

/// Values that a new checkpoint stores in addition to its root.
pub(crate) struct CheckpointMetadata {
    pub time: CommitTime,
    pub lost_revisions: u64,
    pub numbers_given: SegmentNumber,
    /// Kind of the root's Bloom filters; 0 if it has none.
    pub bloom_kind: u32,
}

/// Writer of a checkpoint, one block at a time.
pub(crate) struct CheckpointWriter {
    root: Arc<Root>,
    metadata: CheckpointMetadata,
    salt: u64,
    file: Arc<dyn File>,
    cursor: Cursor,
    offset: u64,
    throttle: WriteThrottle,
    written: TreeSize,
    /// Offset at which the blocks of keys end; `None` until all of them are written. A second walk over the
    /// index then writes the Bloom filters.
    keys_end: Option<u64>,
}

impl CheckpointWriter {
    /// Begins the image of `root` by writing the blocks of its segments.
    pub fn begin(
        storage: &dyn Storage,
        throttle: WriteThrottle,
        root: Arc<Root>,
        metadata: CheckpointMetadata,
    ) -> io::Result<CheckpointWriter> {
        let salt = storage.entropy();
        let segments = segment_blocks(&root);
        let unsigned = if metadata.bloom_kind == 0 { root.tree.size().keys * BLOOM_BYTES as u64 } else { 0 };
        let keys = image_bytes(&root) - unsigned;
        let blocks = keys / BLOCK_BYTES as u64 + 2;
        let before: usize = segments.iter().map(|block| block.len() + BLOCK_HEAD_BYTES).sum();
        // The length is an upper bound, because keys share prefixes. Bytes that are not written take no disk
        // space.
        let len = BLOCKS_START + before as u64 + keys + blocks * BLOCK_HEAD_BYTES as u64;
        let file = storage.create(NEXT_NAME, len)?;
        let cursor = root.tree.cursor(b"");
        let (offset, written, keys_end) = (BLOCKS_START, TreeSize::default(), None);
        let mut writer =
            CheckpointWriter { root, metadata, salt, file, cursor, offset, throttle, written, keys_end };
        for block in segments {
            writer.write_block(&block)?;
        }
        Ok(writer)
    }

    /// Writes the next block. Returns false if all blocks are written.
    pub fn step(&mut self) -> io::Result<bool> {
        if self.keys_end.is_none() && !self.step_keys()? {
            self.keys_end = Some(self.offset);
            self.cursor = self.root.tree.cursor(b"");
        }
        match self.keys_end {
            Some(_) if self.metadata.bloom_kind == 0 => Ok(false),
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

    /// Completes the checkpoint and returns its file name. All blocks must be written, and the log must be
    /// synced up to the revision of the checkpoint.
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

    /// Returns the root that the checkpoint stores.
    pub fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// Returns the offset at which the checkpoint ends.
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
            (48, self.metadata.time.ms()),
            (56, self.written.keys),
            (64, self.written.versions),
            (72, self.metadata.lost_revisions),
            (80, self.keys_end.unwrap_or(self.offset)),
            (96, if self.metadata.bloom_kind == 0 { 0 } else { self.offset }),
        ] {
            header[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        header[88..92].copy_from_slice(&self.metadata.numbers_given.get().to_le_bytes());
        header[92..96].copy_from_slice(&self.metadata.bloom_kind.to_le_bytes());
        let crc = crc32fast::hash(&header[..124]).to_le_bytes();
        header[124..].copy_from_slice(&crc);
        header
    }
}

/// Returns the maximum number of bytes that the keys and the Bloom filters of `root` take in a checkpoint.
/// Shared prefixes make the actual size smaller.
pub(crate) fn image_bytes(root: &Root) -> u64 {
    let size = root.tree.size();
    size.keys * (ENTRY_HEAD_BYTES + BLOOM_BYTES) as u64
        + size.key_bytes
        + size.versions * VERSION_BYTES as u64
}

/// Encodes the blocks that describe the segments.
fn segment_blocks(root: &Root) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let mut block = Vec::new();
    for segment in root.segments.in_order() {
        // Marks of records that are newer than the root may already exist.
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

fn encode_entry(block: &mut Vec<u8>, before: &[u8], key: &[u8], slot: &KeySlot) -> u64 {
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
        block.extend_from_slice(&version.location.to_bytes());
        versions += 1;
    }
    block[start + 4..start + 8].copy_from_slice(&versions.to_le_bytes());
    versions.into()
}

fn block_crc(bytes: &[u8], salt: u64, offset: u64) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&salt.to_le_bytes());
    crc.update(&offset.to_le_bytes());
    crc.update(bytes);
    crc.finalize()
}
