//! What a failing disk does to writers: nobody is told "ok" for what may be lost, nobody reads what was refused.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::io::{Dir, File, Storage, SystemClock};
use crate::testing::TempDir;
use crate::{Change, CommitError, Durability, Engine, Expected, Options, Payload, Refusal, Write};

/// A real directory whose disk fails on demand.
struct Failing {
    dir: Dir,
    switches: Arc<Switches>,
}

#[derive(Default)]
struct Switches {
    /// Bytes that never were written to before cannot be written.
    full: AtomicBool,
    /// The next write of more than a block is cut in half and fails for want of room, as on a file system that
    /// copies on write.
    full_once: AtomicBool,
    sync_fails: AtomicBool,
    syncs: AtomicU64,
}

struct FailingFile {
    file: Arc<dyn File>,
    switches: Arc<Switches>,
    written: AtomicU64,
}

impl Failing {
    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        let written = AtomicU64::new(file.written(0).unwrap().map_or(0, |range| range.end));
        Arc::new(FailingFile { file, switches: self.switches.clone(), written })
    }
}

impl Storage for Failing {
    fn list(&self) -> io::Result<Vec<String>> {
        self.dir.list()
    }
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(self.dir.create(name, size)?))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(self.dir.open(name)?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.dir.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.dir.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.dir.sync_dir()
    }
    fn entropy(&self) -> u64 {
        4
    }
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path(name)
    }
}

impl File for FailingFile {
    fn size(&self) -> u64 {
        self.file.size()
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if self.switches.full.load(Ordering::SeqCst) && end > self.written.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let real = bytes.len() > 4096 && bytes.iter().any(|&b| b != 0);
        if real && self.switches.full_once.swap(false, Ordering::SeqCst) {
            self.file.write_at(offset, &bytes[..bytes.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.written.fetch_max(end, Ordering::SeqCst);
        self.file.write_at(offset, bytes)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.switches.syncs.fetch_add(1, Ordering::SeqCst);
        if self.switches.sync_fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is on fire"));
        }
        self.file.sync_data()
    }
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.file.read(offset, len)
    }
    fn written(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.file.written(offset)
    }
}

fn open(temp: &TempDir, durability: Durability) -> (Engine, Arc<Switches>) {
    let switches = Arc::new(Switches::default());
    let dir = Dir::open(temp.path()).unwrap().unwrap();
    let storage = Arc::new(Failing { dir, switches: switches.clone() });
    let options = Options { durability, segment_bytes: 256 * 1024, ..Options::new(temp.path()) };
    (Engine::open_on(storage, Arc::new(SystemClock), &options, 64).unwrap(), switches)
}

async fn put(engine: &Engine, key: &'static str, len: usize) -> Result<u64, CommitError> {
    let payload = Payload { value: vec![b'x'; len].into(), ..Payload::default() };
    let write = Write { key: key.into(), expected: Expected::Any, change: Change::Put(payload) };
    engine.commit(write).await.map(|done| done.revision)
}

fn refusal(result: Result<u64, CommitError>) -> Refusal {
    match result {
        Err(CommitError::Refused(refusal)) => refusal,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_taken_until_the_store_is_reopened() {
    let temp = TempDir::new();
    let (engine, switches) = open(&temp, Durability::Sync);
    put(&engine, "/a", 10).await.unwrap();
    switches.sync_fails.store(true, Ordering::SeqCst);
    let failed = refusal(put(&engine, "/b", 10).await);
    assert_eq!(failed.to_string(), "sync failed (the disk is on fire); the store must be reopened");
    assert_eq!(engine.health(), Err(failed.clone()));
    // The disk saying "fine" again proves nothing about what it dropped.
    switches.sync_fails.store(false, Ordering::SeqCst);
    let syncs = switches.syncs.load(Ordering::SeqCst);
    assert_eq!(refusal(put(&engine, "/c", 10).await), failed);
    // Reads go on, and do not see the write of unknown fate.
    assert_eq!(engine.revision(), 1);
    let snapshot = engine.snapshot();
    assert!(snapshot.get(b"/a").unwrap().read().is_ok());
    assert!(snapshot.get(b"/b").is_none());
    engine.close().await;
    assert_eq!(switches.syncs.load(Ordering::SeqCst), syncs);
    drop(engine);
    let (engine, _) = open(&temp, Durability::Sync);
    assert!(engine.health().is_ok());
    // It was there after all, whole; what was refused afterwards was not.
    assert_eq!(engine.revision(), 2);
    assert!(engine.snapshot().get(b"/b").unwrap().read().is_ok());
    assert_eq!(put(&engine, "/c", 10).await.unwrap(), 3);
}

#[tokio::test]
async fn with_relaxed_durability_a_failed_background_sync_stops_the_writes() {
    let temp = TempDir::new();
    let (engine, switches) = open(&temp, Durability::Relaxed);
    put(&engine, "/a", 10).await.unwrap();
    while engine.stats().synced < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    switches.sync_fails.store(true, Ordering::SeqCst);
    // Acknowledged before the sync, which is what relaxed means.
    put(&engine, "/b", 10).await.unwrap();
    while engine.health().is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(matches!(refusal(put(&engine, "/c", 10).await), Refusal::LogFailed { operation: "sync", .. }));
    assert_eq!(engine.stats().synced, 1);
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_takes_them_again_by_itself() {
    let temp = TempDir::new();
    let (engine, switches) = open(&temp, Durability::Sync);
    let mut newest = put(&engine, "/a", 10).await.unwrap();
    switches.full.store(true, Ordering::SeqCst);
    // What was allocated ahead may still be used up; then it is over, whether in a segment or between two.
    let refused = loop {
        match put(&engine, "/a", 20_000).await {
            Ok(revision) => newest = revision,
            result => break refusal(result),
        }
    };
    assert_eq!(refused, Refusal::DiskFull);
    assert_eq!(engine.health(), Err(Refusal::DiskFull));
    assert_eq!(refusal(put(&engine, "/b", 200_000).await), Refusal::DiskFull);
    assert_eq!(engine.revision(), newest);
    assert!(engine.snapshot().get(b"/b").is_none());
    switches.full.store(false, Ordering::SeqCst);
    // Nobody writes while readiness says no, so it has to find out alone.
    let recovered = async {
        while engine.health().is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), recovered).await.unwrap();
    // The refused writes got no revision.
    assert_eq!(put(&engine, "/b", 10).await.unwrap(), newest + 1);
    engine.close().await;
    drop(engine);
    let (engine, _) = open(&temp, Durability::Sync);
    assert_eq!((engine.revision(), engine.stats().keys, engine.stats().lost_revisions), (newest + 1, 2, 0));
}

#[tokio::test]
async fn what_is_left_of_a_refused_write_never_comes_back() {
    let temp = TempDir::new();
    let (engine, switches) = open(&temp, Durability::Sync);
    put(&engine, "/a", 10).await.unwrap();
    switches.full_once.store(true, Ordering::SeqCst);
    // Three in a batch or not: whichever the disk choked on is gone.
    let (a, b, c) =
        tokio::join!(put(&engine, "/1", 3_000), put(&engine, "/2", 3_000), put(&engine, "/3", 3_000));
    let taken = [a, b, c].into_iter().filter(|result| result.is_ok()).count() as u64;
    // Another batch may have been small enough to pass; a single large one is not.
    if taken == 3 {
        assert_eq!(refusal(put(&engine, "/4", 9_000).await), Refusal::DiskFull);
    }
    assert_eq!(engine.revision(), 1 + taken);
    assert_eq!(put(&engine, "/5", 1).await.unwrap(), 2 + taken);
    engine.close().await;
    drop(engine);
    let (engine, _) = open(&temp, Durability::Sync);
    assert_eq!((engine.revision(), engine.stats().keys), (2 + taken, 2 + taken));
}
