//! Loading of checkpoints. Every entry is checked in addition to the checksums.
//!
//! `file ─► header ─► segments and their marks ─► CheckpointLoader ─► keys and versions, each checked ─► tree, with Bloom filters`

use bytes::Bytes;

use super::{
    BLOCK_HEAD_BYTES, BLOCKS_START, CHECKPOINT_VERSION, CheckpointContents, ENTRY_HEAD_BYTES, HEADER_BYTES,
    MAGIC, MARK_BYTES, SEGMENT_HEAD_BYTES, SegmentImage, VERSION_BYTES, block_crc,
};
use crate::bloom::{BLOOM_BYTES, BloomFilter};
use crate::header::{NUMBER_END, RECORDS_START, u32_at, u64_at};
use crate::history::{self, RecordLocation, Version};
use crate::index::{Builder, KeySlot, Tree, TreeSize};
use crate::io::File;
use crate::record::{ALIGN, HEAD_BYTES};
use crate::sabotage;
use crate::segment::PositionMark;
use crate::types::{CommitTime, KEY_BYTES_MAX, REVISION_END, Revision, SegmentNumber};

/// Maximum number of threads that read a checkpoint, and the minimum number of bytes for each thread.
const THREADS_MAX: usize = 4;
const PART_BYTES: u64 = 8 * 1024 * 1024;

/// Loads the checkpoint of `revision` from `file`, without its keys. Returns `None` if the checkpoint is
/// damaged.
pub(crate) fn load(revision: Revision, file: &dyn File) -> Option<CheckpointLoader<'_>> {
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
    let mut contents = CheckpointContents {
        store: u64_at(&header, 16),
        revision: Revision::new(u64_at(&header, 32)),
        oldest: Revision::new(u64_at(&header, 40)),
        time: CommitTime::from_ms(u64_at(&header, 48)),
        lost_revisions: u64_at(&header, 72),
        numbers_given: SegmentNumber::new(u32_at(&header, 88)),
        segments: Vec::new(),
    };
    let sound = contents.revision == revision
        && revision < REVISION_END
        && contents.oldest <= revision
        && contents.lost_revisions <= revision.get()
        && contents.time < CommitTime::END
        && contents.numbers_given.get() < NUMBER_END
        && (BLOCKS_START..=file.size()).contains(&end);
    if !sound {
        return None;
    }
    let salt = u64_at(&header, 24);
    let mut blocks = Blocks { file, at: BLOCKS_START, end, salt };
    let bloom_kind = u32_at(&header, 92);
    let blooms_end = u64_at(&header, 96);
    if bloom_kind != 0 && !(end..=file.size()).contains(&blooms_end) {
        return None;
    }
    let blooms = Blooms {
        kind: bloom_kind,
        blocks: Blocks { file, at: end, end: if bloom_kind == 0 { end } else { blooms_end }, salt },
        block: Bytes::new(),
        at: 0,
    };
    let count = u32_at(&header, 12) as usize;
    while contents.segments.len() < count {
        let block = blocks.next()??;
        let mut rest = &block[..];
        while !rest.is_empty() {
            contents.segments.push(decode_segment(&mut rest, contents.numbers_given)?);
        }
    }
    (contents.segments.len() == count && count > 0).then_some(())?;
    let size = TreeSize { keys: u64_at(&header, 56), key_bytes: 0, versions: u64_at(&header, 64) };
    Some(CheckpointLoader { contents, blocks, size, blooms })
}

/// A checkpoint whose keys have not been read yet.
pub(crate) struct CheckpointLoader<'f> {
    pub contents: CheckpointContents,
    blocks: Blocks<'f>,
    /// Expected numbers of keys and versions.
    size: TreeSize,
    blooms: Blooms<'f>,
}

impl CheckpointLoader<'_> {
    /// Returns the size of the checkpoint without its header, in bytes.
    pub fn bytes(&self) -> u64 {
        self.blooms.blocks.end - BLOCKS_START
    }

    /// Returns the index, without the versions that are not needed to read at `oldest` and later. Also
    /// returns whether the index has Bloom filters of the given kind for all keys; if not, the Bloom filters
    /// of the index are meaningless. Several threads read a large checkpoint. Returns `None` if the
    /// checkpoint is damaged.
    pub fn tree(self, oldest: Revision, kind: u32) -> Option<(Tree, bool)> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let parts = self.blocks.parts(threads.min((self.bytes() / PART_BYTES) as usize).max(1));
        let (first, others) = parts.split_first()?;
        let read = |blocks: &Blocks<'_>| self.build_part(blocks.clone(), oldest);
        let parts: Option<Vec<TreePart>> = std::thread::scope(|scope| {
            let spawn = |blocks| {
                let spawned = std::thread::Builder::new().spawn_scoped(scope, move || read(blocks));
                spawned.map_err(|_| blocks)
            };
            let others: Vec<_> = others.iter().map(spawn).collect();
            let others = others.into_iter().map(|spawned| match spawned {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(blocks) => read(blocks),
            });
            std::iter::once_with(|| read(first)).chain(others).collect()
        });
        let mut whole = TreePart::default();
        for part in parts? {
            whole.append(part)?;
        }
        (whole.read.size == self.size).then_some(())?;
        let mut tree = whole.builder.finish();
        let is_right = self.blooms.kind == kind || sabotage::bloom_kind_ignored();
        let mut has_blooms = kind != 0 && self.blooms.kind != 0 && is_right;
        if has_blooms {
            let (mut blooms, mut left_out) = (self.blooms.enumerate(), whole.left_out.into_iter().peekable());
            let remaining = std::iter::from_fn(|| {
                loop {
                    let next = blooms.next();
                    has_blooms &= next.is_some();
                    let (at, bloom) = next?;
                    if left_out.next_if_eq(&(at as u64)).is_none() {
                        return Some(bloom);
                    }
                }
            });
            tree.set_blooms(&mut { remaining });
        }
        Some((tree, has_blooms))
    }

    /// Builds the index of a part of the keys, without Bloom filters.
    fn build_part(&self, blocks: Blocks<'_>, oldest: Revision) -> Option<TreePart> {
        let mut part = TreePart::default();
        let (builder, left_out) = (&mut part.builder, &mut part.left_out);
        let mut at = 0;
        part.read = self.visit_blocks(blocks, |key, versions| {
            versions.truncate(history::needed_count(versions.iter().copied(), oldest));
            match history::from_newest_first(versions) {
                Some((newest, older)) => {
                    builder.push(key, KeySlot { newest, older, bloom: BloomFilter::UNKNOWN })
                }
                None => left_out.push(at),
            }
            at += 1;
        })?;
        Some(part)
    }

    /// Returns whether the checkpoint has a Bloom filter for each key, or no Bloom filters at all.
    pub fn blooms_are_sound(&self) -> bool {
        let blooms = self.blooms.clone();
        blooms.kind == 0 || blooms.count() as u64 == self.size.keys
    }

    /// Calls `visit` for each key, in ascending order, with its versions, newest first; there is at least one
    /// version. Only one block is in memory at a time. Returns `None` if the checkpoint is damaged; the calls
    /// made before may then be incomplete.
    pub fn visit_keys(self, visit: impl FnMut(&[u8], &mut Vec<Version>)) -> Option<()> {
        let read = self.visit_blocks(self.blocks.clone(), visit)?;
        (read.size == self.size).then_some(())
    }

    /// Calls `visit` as [`CheckpointLoader::visit_keys`] does, but only for the keys in `blocks`. Each block
    /// can be read alone, because the prefix compression of keys begins anew in each block.
    fn visit_blocks(
        &self,
        blocks: Blocks<'_>,
        mut visit: impl FnMut(&[u8], &mut Vec<Version>),
    ) -> Option<Read> {
        let mut ends: Vec<_> = self.contents.segments.iter().map(|s| (s.number, s.end)).collect();
        ends.sort_unstable();
        let mut read = Read::default();
        let mut key = Vec::new();
        let mut versions = Vec::new();
        for block in blocks {
            let block = block?;
            let mut rest = &block[..];
            key.clear();
            while !rest.is_empty() {
                decode_entry(&mut rest, &mut key, &mut versions)?;
                let ascending = read.size.keys == 0 || key > read.last;
                let descending = versions.is_sorted_by(|a: &Version, b: &Version| a.revision > b.revision);
                let newest = versions.first()?;
                if !ascending
                    || !descending
                    || newest.revision > self.contents.revision
                    || !versions.iter().all(|version| is_sound(version, &ends))
                {
                    return None;
                }
                if read.size.keys == 0 {
                    read.first.clone_from(&key);
                }
                read.size.keys += 1;
                read.size.versions += versions.len() as u64;
                read.last.clone_from(&key);
                visit(&key, &mut versions);
            }
        }
        Some(read)
    }
}

/// Size of the keys that were read, with the first and the last of these keys.
#[derive(Default)]
struct Read {
    size: TreeSize,
    first: Vec<u8>,
    last: Vec<u8>,
}

/// The index of consecutive keys.
#[derive(Default)]
struct TreePart {
    builder: Builder,
    read: Read,
    /// Positions of the keys that are not needed, counted in all keys that were read.
    left_out: Vec<u64>,
}

impl TreePart {
    /// Appends `part`. Returns `None` unless the keys of `part` follow the keys of this part.
    fn append(&mut self, part: TreePart) -> Option<()> {
        if part.read.size.keys == 0 {
            return Some(());
        }
        let before = self.read.size.keys;
        if before == 0 {
            self.read.first = part.read.first;
        } else if part.read.first <= self.read.last {
            return None;
        }
        self.builder.append(part.builder);
        self.left_out.extend(part.left_out.into_iter().map(|at| before + at));
        self.read.size.keys += part.read.size.keys;
        self.read.size.versions += part.read.size.versions;
        self.read.last = part.read.last;
        Some(())
    }
}

/// Returns whether the version can be at its position, given the segments and the ends of their records.
fn is_sound(version: &Version, ends: &[(SegmentNumber, u64)]) -> bool {
    let end = ends.binary_search_by_key(&version.segment, |&(number, _)| number).map(|at| ends[at].1);
    version.revision > Revision::ZERO
        && (Revision::FIRST..=version.revision).contains(&version.created)
        && version.len() >= HEAD_BYTES
        && version.len().is_multiple_of(ALIGN)
        && version.offset() >= RECORDS_START
        && end.is_ok_and(|end| version.offset() + version.len() as u64 <= end)
}

/// Iterator over the Bloom filters of the keys, in the order of the keys; empty for kind 0. The iterator ends
/// early at a damaged block.
#[derive(Clone)]
struct Blooms<'f> {
    kind: u32,
    blocks: Blocks<'f>,
    /// The current block, and the offset of the next filter in the block.
    block: Bytes,
    at: usize,
}

impl Iterator for Blooms<'_> {
    type Item = BloomFilter;

    fn next(&mut self) -> Option<BloomFilter> {
        if self.at == self.block.len() {
            (self.block, self.at) = (self.blocks.next()??, 0);
        }
        let bytes = self.block[self.at..].first_chunk().copied()?;
        self.at += BLOOM_BYTES;
        Some(BloomFilter::from_bytes(bytes))
    }
}

/// Iterator over the blocks of a checkpoint.
#[derive(Clone)]
struct Blocks<'f> {
    file: &'f dyn File,
    /// Offset of the next block, and the offset at which the last block ends.
    at: u64,
    end: u64,
    salt: u64,
}

impl<'f> Blocks<'f> {
    /// Splits the blocks into at most `count` parts of about the same size. If a block is damaged, returns
    /// all blocks as a single part.
    fn parts(&self, count: usize) -> Vec<Blocks<'f>> {
        let part_bytes = ((self.end - self.at) / count as u64).max(1);
        let mut parts = Vec::new();
        let (mut start, mut at) = (self.at, self.at);
        while at < self.end {
            let Some(len) = self.len_at(at) else { return vec![self.clone()] };
            at += len;
            if at - start >= part_bytes || at == self.end {
                parts.push(Blocks { at: start, end: at, ..self.clone() });
                start = at;
            }
        }
        if parts.is_empty() { vec![self.clone()] } else { parts }
    }

    /// Returns the size of the block at `at`, including its head.
    fn len_at(&self, at: u64) -> Option<u64> {
        let head = self.file.read(at, BLOCK_HEAD_BYTES).ok()?;
        let len = BLOCK_HEAD_BYTES as u64 + u64::from(u32_at(&head, 4));
        (len <= self.end - at).then_some(len)
    }

    /// Returns the contents of the next block; `None` if the block is damaged.
    fn read(&self) -> Option<Bytes> {
        let len = self.len_at(self.at)?;
        let block = self.file.read(self.at, len as usize).ok()?;
        let is_sound = block_crc(&block[4..], self.salt, self.at) == u32_at(&block, 0);
        (is_sound || sabotage::crc_ignored()).then(|| block.slice(BLOCK_HEAD_BYTES..))
    }
}

impl Iterator for Blocks<'_> {
    /// The contents of a block. A damaged block is `None` and ends the iteration.
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

/// Takes `len` bytes from the front of `block`.
fn take<'b>(block: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (taken, rest) = block.split_at_checked(len)?;
    *block = rest;
    Some(taken)
}

fn decode_segment(block: &mut &[u8], numbers_given: SegmentNumber) -> Option<SegmentImage> {
    let head = take(block, SEGMENT_HEAD_BYTES)?;
    let marks = take(block, (u32_at(head, 4) as usize).checked_mul(MARK_BYTES)?)?;
    let marks: Vec<_> = marks
        .chunks_exact(MARK_BYTES)
        .map(|mark| PositionMark { revision: Revision::new(u64_at(mark, 0)), offset: u64_at(mark, 8) })
        .collect();
    let image = SegmentImage {
        number: SegmentNumber::new(u32_at(head, 0)),
        salt: u64_at(head, 8),
        end: u64_at(head, 16),
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

/// Decodes the next entry. The caller passes the previous key in `key`. The function replaces it by the key
/// of the entry, and fills `versions`.
fn decode_entry(block: &mut &[u8], key: &mut Vec<u8>, versions: &mut Vec<Version>) -> Option<()> {
    let head = take(block, ENTRY_HEAD_BYTES)?;
    let shared = usize::from(u16::from_le_bytes([head[0], head[1]]));
    let rest = take(block, u16::from_le_bytes([head[2], head[3]]).into())?;
    let stored = take(block, (u32_at(head, 4) as usize).checked_mul(VERSION_BYTES)?)?;
    if shared > key.len() || !(1..=KEY_BYTES_MAX).contains(&(shared + rest.len())) {
        return None;
    }
    key.truncate(shared);
    key.extend_from_slice(rest);
    versions.clear();
    versions.extend(stored.chunks_exact(VERSION_BYTES).map(|version| Version {
        revision: Revision::new(u64_at(version, 0)),
        created: Revision::new(u64_at(version, 8)),
        segment: SegmentNumber::new(u32_at(version, 16)),
        expires_s: u32_at(version, 20),
        location: RecordLocation::from_bytes([
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
