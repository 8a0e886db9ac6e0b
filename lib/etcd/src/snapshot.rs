//! A snapshot file of etcd (`etcdctl snapshot save`): the keys at its newest revision, and the positions of
//! their values.
//!
//! ```text
//! file ─ digest ─► meta page ─► root bucket ─► bucket `key`: revision → key, value, columns ─► newest state of each key
//! ```
//!
//! The file is a tree of pages (bbolt): a page has a header of 16 bytes, then elements that point into the
//! page. The content is not trusted: each offset is checked against the page, each page number against the
//! file, and each page is visited at most once. The memory is proportional to the number of keys, at most
//! [`KEYS_MAX`]; values are read from the file on demand.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use prost::Message;
use sha2::{Digest, Sha256};

use crate::rpc::KeyValue;

/// Maximum number of keys in a snapshot.
pub const KEYS_MAX: usize = 20_000_000;

/// Maximum size of a page with its overflow, in bytes: far above the largest value that etcd accepts by
/// default.
const PAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Maximum depth of the tree. A tree of 64 levels would have more pages than any file.
const DEPTH_MAX: usize = 64;

/// Possible page sizes in bytes, the usual size first.
const PAGE_SIZES: [usize; 7] = [4096, 16384, 65536, 8192, 32768, 1024, 2048];

/// Size in bytes of the digest at the end. The second number divides the length of a file without a digest.
const DIGEST: (usize, u64) = (32, 512);

/// Number of bytes that are hashed at a time.
const PIECE_BYTES: usize = 1 << 20;

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 16;
const ELEMENT_BYTES: usize = 16;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const IS_BUCKET: u32 = 0x01;

/// The reasons why a file is not a readable snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The content is not a valid snapshot.
    #[error("the file is not a valid snapshot of etcd: {0}")]
    Unsound(String),
}

fn unsound(why: impl Into<String>) -> SnapshotError {
    SnapshotError::Unsound(why.into())
}

/// The position of a value in the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct ValueLocation {
    offset: u64,
    len: u32,
}

/// A key at the newest revision.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Key {
    /// Name of the key.
    pub key: Bytes,
    /// Revision that wrote the current value.
    pub mod_revision: i64,
    location: ValueLocation,
}

/// An open snapshot file.
#[derive(Debug)]
pub struct Snapshot {
    file: File,
    keys: Vec<Key>,
    revision: i64,
    has_digest: bool,
}

impl Snapshot {
    /// Reads the keys of a file, and verifies its digest if it has one.
    ///
    /// # Errors
    /// The file cannot be read, or is not a valid snapshot.
    pub fn open(path: &Path) -> Result<Snapshot, SnapshotError> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let has_digest = len % DIGEST.1 == DIGEST.0 as u64;
        let len = if has_digest { len - DIGEST.0 as u64 } else { len };
        if has_digest {
            compare_digest(&file, len)?;
        }
        let mut pages = Pages { file: &file, len, page_bytes: 0, visited: HashSet::new() };
        let root = pages.meta()?;
        let mut keys: HashMap<Bytes, (i64, ValueLocation)> = HashMap::new();
        let mut revision = 0;
        let bucket = pages.bucket(root, b"key")?.ok_or_else(|| unsound("there is no bucket of keys"))?;
        pages.walk(bucket, &mut |name, value, location| {
            let (main, is_gone) = read_revision(name).ok_or_else(|| unsound("a key is not a revision"))?;
            let kv = KeyValue::decode(value).map_err(|error| unsound(error.to_string()))?;
            revision = revision.max(main);
            if is_gone {
                keys.remove(&kv.key);
                return Ok(());
            }
            if kv.mod_revision != main {
                return Err(unsound(format!("revision {main} has a state of {}", kv.mod_revision)));
            }
            keys.insert(Bytes::copy_from_slice(&kv.key), (main, location));
            if keys.len() > KEYS_MAX { Err(unsound(format!("more than {KEYS_MAX} keys"))) } else { Ok(()) }
        })?;
        let mut keys: Vec<Key> = keys
            .into_iter()
            .map(|(key, (mod_revision, location))| Key { key, mod_revision, location })
            .collect();
        keys.sort_by(|a, b| (a.mod_revision, &a.key).cmp(&(b.mod_revision, &b.key)));
        Ok(Snapshot { file, keys, revision, has_digest })
    }

    /// Returns the newest revision.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns whether the file has a digest, which was verified. A copy of a member's own database file has
    /// no digest.
    pub fn has_digest(&self) -> bool {
        self.has_digest
    }

    /// Returns the keys, by ascending revision.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Reads the value and properties of a key of this snapshot.
    ///
    /// # Errors
    /// The file changed since it was opened.
    pub fn read(&self, key: &Key) -> Result<KeyValue, SnapshotError> {
        let mut bytes = vec![0; key.location.len as usize];
        self.file.read_exact_at(&mut bytes, key.location.offset)?;
        let kv = KeyValue::decode(Bytes::from(bytes)).map_err(|error| unsound(error.to_string()))?;
        if kv.key == key.key && kv.mod_revision == key.mod_revision {
            Ok(kv)
        } else {
            Err(unsound("it changed while it was read"))
        }
    }
}

/// Parses the name of an entry: the numbers `main` and `sub` of the revision with eight bytes each, separated
/// by `_`, and followed by a `t` if the key is deleted at this revision. Returns `main` and whether the key
/// is deleted.
fn read_revision(name: &[u8]) -> Option<(i64, bool)> {
    let (main, rest) = name.split_first_chunk::<8>()?;
    let is_gone = match rest {
        [b'_', sub @ ..] if sub.len() == 8 => false,
        [b'_', sub @ .., b't'] if sub.len() == 8 => true,
        _ => return None,
    };
    let main = i64::from_be_bytes(*main);
    (main > 0).then_some((main, is_gone))
}

fn compare_digest(file: &File, len: u64) -> Result<(), SnapshotError> {
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < len {
        let piece_len = PIECE_BYTES.min(usize::try_from(len - at).unwrap_or(PIECE_BYTES));
        file.read_exact_at(&mut piece[..piece_len], at)?;
        digest.update(&piece[..piece_len]);
        at += piece_len as u64;
    }
    let mut noted = [0; DIGEST.0];
    file.read_exact_at(&mut noted, len)?;
    if digest.finalize()[..] == noted[..] {
        Ok(())
    } else {
        Err(unsound("its digest does not match its content"))
    }
}

/// The pages of a file.
struct Pages<'f> {
    file: &'f File,
    len: u64,
    page_bytes: usize,
    visited: HashSet<u64>,
}

/// A page with its overflow.
struct Page {
    offset: u64,
    flags: u16,
    count: usize,
    bytes: Vec<u8>,
}

/// A bucket: either a page of its own, or a small page inside the value that names the bucket.
enum Bucket {
    Page(u64),
    Inline(Page),
}

type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8], ValueLocation) -> Result<(), SnapshotError>;

/// A callback for elements, with the flags of the element.
type VisitElement<'v> = &'v mut dyn FnMut(u32, &[u8], &[u8], ValueLocation) -> Result<(), SnapshotError>;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

impl Pages<'_> {
    /// Finds the newer valid meta page, and returns the number of the root bucket's page.
    fn meta(&mut self) -> Result<u64, SnapshotError> {
        let mut newest: Option<(u64, u64)> = None;
        for (size, number) in PAGE_SIZES.into_iter().flat_map(|size| [(size, 0), (size, 1)]) {
            let mut bytes = [0; HEADER_BYTES + 64];
            let offset = size as u64 * number;
            if offset + bytes.len() as u64 > self.len {
                continue;
            }
            self.file.read_exact_at(&mut bytes, offset)?;
            let meta = &bytes[HEADER_BYTES..];
            let is_sound = u32_at(meta, 0) == Some(MAGIC)
                && u32_at(meta, 4) == Some(VERSION)
                && u32_at(meta, 8) == Some(size as u32)
                && u64_at(meta, 56) == Some(fnv1a(&meta[..56]));
            let (Some(root), Some(transaction)) = (u64_at(meta, 16), u64_at(meta, 48)) else { continue };
            if is_sound && newest.is_none_or(|(newest, _)| transaction > newest) {
                newest = Some((transaction, root));
                self.page_bytes = size;
            }
        }
        newest.map(|(_, root)| root).ok_or_else(|| unsound("it has no valid meta page"))
    }

    fn page(&mut self, number: u64) -> Result<Page, SnapshotError> {
        if !self.visited.insert(number) {
            return Err(unsound(format!("page {number} is used twice")));
        }
        let outside = || unsound(format!("page {number} is not in the file"));
        let offset = number.checked_mul(self.page_bytes as u64).ok_or_else(outside)?;
        let end = offset.checked_add(self.page_bytes as u64).filter(|end| *end <= self.len);
        end.ok_or_else(outside)?;
        let mut bytes = vec![0; self.page_bytes];
        self.file.read_exact_at(&mut bytes, offset)?;
        let overflow = u32_at(&bytes, 12).unwrap_or_default() as usize;
        let needed = overflow.checked_add(1).and_then(|pages| pages.checked_mul(self.page_bytes));
        let needed = needed.filter(|needed| *needed <= PAGE_BYTES_MAX && offset + *needed as u64 <= self.len);
        let needed = needed.ok_or_else(|| unsound(format!("page {number} is larger than the file")))?;
        if overflow > 0 {
            bytes.resize(needed, 0);
            self.file.read_exact_at(&mut bytes[self.page_bytes..], offset + self.page_bytes as u64)?;
        }
        if u64_at(&bytes, 0) != Some(number) {
            return Err(unsound(format!("page {number} has another number")));
        }
        Ok(Page::read(bytes, offset))
    }

    /// Returns the bucket with the name `bucket_name` in the bucket at page `root`.
    fn bucket(&mut self, root: u64, bucket_name: &[u8]) -> Result<Option<Bucket>, SnapshotError> {
        let mut found = None;
        self.elements(Bucket::Page(root), 0, &mut |flags, name, value, location| {
            if flags & IS_BUCKET != 0 && name == bucket_name {
                let page = u64_at(value, 0).ok_or_else(|| unsound("a bucket has no head"))?;
                found = Some(match page {
                    0 => Bucket::Inline(Page::read(value[16..].to_vec(), location.offset + 16)),
                    page => Bucket::Page(page),
                });
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Visits the elements of a bucket in order.
    fn walk(&mut self, bucket: Bucket, visit: Visit<'_>) -> Result<(), SnapshotError> {
        self.elements(bucket, 0, &mut |flags, name, value, location| match flags & IS_BUCKET {
            0 => visit(name, value, location),
            _ => Err(unsound("a bucket stands among the keys")),
        })
    }

    fn elements(
        &mut self,
        bucket: Bucket,
        depth: usize,
        visit: VisitElement<'_>,
    ) -> Result<(), SnapshotError> {
        if depth > DEPTH_MAX {
            return Err(unsound(format!("it is deeper than {DEPTH_MAX} pages")));
        }
        let page = match bucket {
            Bucket::Page(number) => self.page(number)?,
            Bucket::Inline(page) => page,
        };
        let outside = || unsound("an element is not in its page");
        for at in 0..page.count {
            let element = HEADER_BYTES + at * ELEMENT_BYTES;
            let word =
                |at: usize| u32_at(&page.bytes, element + at).map(|word| word as usize).ok_or_else(outside);
            match page.flags {
                BRANCH => {
                    let child = u64_at(&page.bytes, element + 8).ok_or_else(outside)?;
                    self.elements(Bucket::Page(child), depth + 1, visit)?;
                }
                LEAF => {
                    let (flags, pos, key_len, value_len) = (word(0)?, word(4)?, word(8)?, word(12)?);
                    let start = element.checked_add(pos).ok_or_else(outside)?;
                    let middle = start.checked_add(key_len).ok_or_else(outside)?;
                    let end = middle.checked_add(value_len).ok_or_else(outside)?;
                    let name = page.bytes.get(start..middle).ok_or_else(outside)?;
                    let value = page.bytes.get(middle..end).ok_or_else(outside)?;
                    if flags as u32 & IS_BUCKET != 0 && value.len() < 16 {
                        return Err(unsound("a bucket has no head"));
                    }
                    let location =
                        ValueLocation { offset: page.offset + middle as u64, len: value_len as u32 };
                    visit(flags as u32, name, value, location)?;
                }
                flags => return Err(unsound(format!("a page of an unknown form ({flags:#x})"))),
            }
        }
        Ok(())
    }
}

impl Page {
    fn read(bytes: Vec<u8>, offset: u64) -> Page {
        let flags = u16_at(&bytes, 8).unwrap_or_default();
        let count = usize::from(u16_at(&bytes, 10).unwrap_or_default());
        Page { offset, flags, count, bytes }
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
#[path = "snapshot_test.rs"]
mod tests;
