//! Saved states of the whole store, and their restoration.
//!
//! ```text
//! save ────► a root of the index, pinned in memory
//! restore ─► pinned root ─┐
//!            newest root ─┴─► keys that differ ─► conditional writes ─► newest root, pinned instead of the old root
//! ```
//!
//! A restoration is a sequence of ordinary records: the log only grows, revisions only rise, and recovery needs no new
//! rules. (A record that resets the whole index was rejected: recovery, checkpoints, backups and watches would each
//! need to interpret it.) The restored objects have new resource versions and are otherwise unchanged. Watches end with
//! 410, because the revisions of the watches become unreadable, as after a compaction. The history before a restored
//! state is compacted, so that repeated restorations do not fill the disk.
//!
//! A crash during a restoration leaves a state in which only some objects are restored. The client must restore
//! again.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{
    Change, ChangedKey, CommitError, Engine, Expected, LEDGER_KEY, Payload, ReadError, Revision, Snapshot,
    Write,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use values::clock;

/// Maximum number of saved states.
const SAVED_MAX: usize = 64;

/// Maximum length of a name.
const NAME_BYTES_MAX: usize = 253;

/// Maximum number of attempts of a restoration, which starts again if other clients write at the same time.
const ROUNDS_MAX: usize = 16;

/// Number of writes that are proposed together.
const WRITES_TOGETHER: usize = 4096;

/// The reason why a state cannot be saved or restored.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFailure {
    /// The name is not allowed.
    #[error(
        "invalid name {0:?}: expected 1 to {NAME_BYTES_MAX} letters, digits, dots, hyphens and underscores"
    )]
    Name(String),
    /// There are too many saved states.
    #[error(
        "cannot save the snapshot: there are already {SAVED_MAX} snapshots, which is the maximum; delete a snapshot first"
    )]
    TooMany,
    /// No state has this name.
    #[error("there is no snapshot {0:?}; snapshots do not survive a restart of the server")]
    Unknown(String),
    /// Other clients keep writing.
    #[error(
        "cannot restore the snapshot: other clients wrote objects during each of {ROUNDS_MAX} attempts; stop these clients \
         and try again"
    )]
    Contended,
    /// A saved state cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// The store refuses a write.
    #[error(transparent)]
    Refused(#[from] CommitError),
}

/// The saved states of a server. The states exist until the process ends.
#[derive(Default)]
pub struct StateSnapshots(Mutex<BTreeMap<String, Saved>>);

struct Saved {
    snapshot: Snapshot,
    saved_at: String,
    restored: u64,
}

impl Saved {
    fn to_value(&self, name: &str) -> Value {
        json!({
            "name": name,
            "savedAt": self.saved_at,
            "resourceVersion": self.snapshot.revision().to_string(),
            "objects": self.snapshot.count_prefix(b""),
            "restored": self.restored,
        })
    }
}

impl StateSnapshots {
    /// Saves the newest state under a name, and returns a description of the state. The state replaces an earlier state
    /// with this name.
    ///
    /// # Errors
    /// The name is invalid, or there are too many saved states.
    pub async fn save(&self, engine: &Engine, name: &str) -> Result<Value, SnapshotFailure> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_valid) {
            return Err(SnapshotFailure::Name(name.to_owned()));
        }
        let mut saved = self.0.lock().await;
        if saved.len() >= SAVED_MAX && !saved.contains_key(name) {
            return Err(SnapshotFailure::TooMany);
        }
        let new = Saved { snapshot: engine.snapshot(), saved_at: clock::now_micros(), restored: 0 };
        let shown = new.to_value(name);
        saved.insert(name.to_owned(), new);
        Ok(shown)
    }

    /// Returns the descriptions of all saved states.
    pub async fn list(&self) -> Vec<Value> {
        self.0.lock().await.iter().map(|(name, saved)| saved.to_value(name)).collect()
    }

    /// Removes a saved state and returns its description.
    ///
    /// # Errors
    /// No state has this name.
    pub async fn remove(&self, name: &str) -> Result<Value, SnapshotFailure> {
        let removed = self.0.lock().await.remove(name);
        removed.map(|saved| saved.to_value(name)).ok_or_else(|| SnapshotFailure::Unknown(name.to_owned()))
    }

    /// Makes the state of the store equal to a saved state. Returns the description of the saved state with the number
    /// of writes. Restorations run one after the other.
    ///
    /// # Errors
    /// No state has this name, other clients keep writing, or the store cannot be read or written.
    pub async fn restore(&self, engine: &Engine, name: &str) -> Result<Value, SnapshotFailure> {
        let mut saved = self.0.lock().await;
        let saved = saved.get_mut(name).ok_or_else(|| SnapshotFailure::Unknown(name.to_owned()))?;
        let mut written = 0;
        for _ in 0..ROUNDS_MAX {
            let newest = engine.snapshot();
            let writes = writes(&saved.snapshot, &newest)?;
            if writes.is_empty() {
                // The next restoration compares with this root, and the segments of the old root are released.
                saved.snapshot = newest;
                saved.restored += 1;
                forget(engine, saved.snapshot.revision(), written);
                let mut shown = saved.to_value(name);
                shown["writes"] = json!(written);
                return Ok(shown);
            }
            // Watches end now, and can begin again only when these writes are complete.
            engine.pass_over(Revision::new(newest.revision().get() + writes.len() as u64));
            written += commit(engine, writes).await?;
        }
        Err(SnapshotFailure::Contended)
    }
}

/// Returns the writes that change the newest state into a saved state.
fn writes(saved: &Snapshot, newest: &Snapshot) -> Result<Vec<Write>, SnapshotFailure> {
    let mut writes = Vec::new();
    for ChangedKey { key, before, after } in saved.changed_keys(newest) {
        if key == LEDGER_KEY {
            continue;
        }
        let expected = after.as_ref().map_or(Expected::Absent, |after| Expected::Revision(after.revision()));
        let change = match (&before, &after) {
            (Some(before), after) => {
                let payload = before.payload()?;
                if let Some(after) = after
                    && is_same(&payload, &after.payload()?)
                {
                    continue;
                }
                let ttl = before.expires_s().map(|at| Duration::from_secs(left_s(at)));
                Change::Put(Payload { ttl, ..payload })
            }
            (None, Some(_)) => Change::Delete(None),
            (None, None) => continue,
        };
        writes.push(Write { key, expected, change });
    }
    Ok(writes)
}

fn is_same(one: &Payload, other: &Payload) -> bool {
    (&one.attributes, &one.value, one.stamp_at) == (&other.attributes, &other.value, other.stamp_at)
}

/// Returns the seconds until a key expires, on the clock of the server.
fn left_s(expires_s: u32) -> u64 {
    u64::try_from(i64::from(expires_s) - clock::now_seconds()).unwrap_or(0)
}

/// Commits writes, and returns the number of stored writes. If another client has changed a key before, the next round
/// writes this key.
async fn commit(engine: &Engine, writes: Vec<Write>) -> Result<usize, SnapshotFailure> {
    let mut stored = 0;
    let mut writes = writes.into_iter();
    loop {
        let together: Vec<_> =
            writes.by_ref().take(WRITES_TOGETHER).map(|write| engine.commit(write)).collect();
        if together.is_empty() {
            return Ok(stored);
        }
        for outcome in join_all(together).await {
            match outcome {
                Ok(_) => stored += 1,
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Compacts the history before a restored state, in the background.
fn forget(engine: &Engine, revision: Revision, written: usize) {
    if written > 0 {
        let engine = engine.clone();
        // An error means that the history is compacted already, or that the store is closed.
        tokio::spawn(async move {
            let _ = engine.compact(revision).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use testkit::TempDir;

    use super::*;

    async fn put(engine: &Engine, key: &str, value: &str) {
        let payload = Payload {
            value: Bytes::copy_from_slice(value.as_bytes()),
            stamp_at: Some(0),
            ..Payload::default()
        };
        let key = Bytes::copy_from_slice(key.as_bytes());
        let write = Write { key, expected: Expected::Any, change: Change::Put(payload) };
        engine.commit(write).await.unwrap();
    }

    async fn delete(engine: &Engine, key: &str) {
        let key = Bytes::copy_from_slice(key.as_bytes());
        engine.commit(Write { key, expected: Expected::Any, change: Change::Delete(None) }).await.unwrap();
    }

    /// Returns the keys and values, without revisions and times.
    fn state(engine: &Engine) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let entries = engine.snapshot().prefix(b"");
        entries.map(|entry| (text(entry.key()), text(&entry.payload().unwrap().value))).collect()
    }

    #[tokio::test]
    async fn a_restored_snapshot_has_the_saved_objects_at_newer_revisions() {
        let dir = TempDir::new();
        let engine = Engine::open(engine::Options::new(dir.path())).unwrap();
        let snapshots = StateSnapshots::default();
        for key in ["/a", "/b", "/c"] {
            put(&engine, key, "old").await;
        }
        let saved = state(&engine);
        snapshots.save(&engine, "clean").await.unwrap();
        let tail_from = engine.revision();

        put(&engine, "/a", "new").await;
        delete(&engine, "/b").await;
        put(&engine, "/d", "new").await;
        let before = engine.revision();
        let tail = engine.tail(tail_from, Bytes::new()).unwrap().complete().unwrap();
        let shown = snapshots.restore(&engine, "clean").await.unwrap();
        assert_eq!((shown["writes"].clone(), shown["restored"].clone()), (json!(3), json!(1)));
        assert_eq!(state(&engine), saved);
        assert_eq!(engine.revision().since(before), 3);
        let stamp = engine.snapshot().get(b"/b").unwrap();
        assert!(stamp.read().unwrap().value.starts_with(stamp.revision().to_string().as_bytes()));
        let mut tail = tail;
        assert!(tail.next(1).await.is_err(), "a watch from before must list again");
        assert!(engine.tail(engine.revision(), Bytes::new()).unwrap().complete().is_ok());

        // A second restoration writes nothing. After a restart the store has the restored state.
        assert_eq!(snapshots.restore(&engine, "clean").await.unwrap()["writes"], json!(0));
        engine.close().await;
        drop(engine);
        assert_eq!(state(&Engine::open(engine::Options::new(dir.path())).unwrap()), saved);
    }

    #[tokio::test]
    async fn a_thousand_restorations_keep_the_store_small() {
        let dir = TempDir::new();
        let options =
            engine::Options { durability: engine::Durability::Relaxed, ..engine::Options::new(dir.path()) };
        let engine = Engine::open(engine::Options { segment_bytes: 256 * 1024, ..options }).unwrap();
        let snapshots = StateSnapshots::default();
        let value = "v".repeat(1000);
        for n in 0..100 {
            put(&engine, &format!("/{n}"), &value).await;
        }
        let saved = state(&engine);
        snapshots.save(&engine, "clean").await.unwrap();
        for n in 0..1000 {
            put(&engine, &format!("/{}", n % 100), "changed").await;
            put(&engine, &format!("/new-{n}"), &value).await;
            snapshots.restore(&engine, "clean").await.unwrap();
        }
        assert_eq!(state(&engine), saved);
        engine.settled().await;
        let stats = engine.stats();
        assert!(stats.record_bytes < 2_000_000, "{stats:?}");
        assert!(stats.versions < 1000, "{stats:?}");
    }

    #[tokio::test]
    async fn names_and_numbers_are_limited() {
        let dir = TempDir::new();
        let engine = Engine::open(engine::Options::new(dir.path())).unwrap();
        let snapshots = StateSnapshots::default();
        for name in ["", "a/b", "a b", "ä", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(matches!(snapshots.save(&engine, name).await, Err(SnapshotFailure::Name(_))), "{name}");
        }
        for n in 0..SAVED_MAX {
            snapshots.save(&engine, &n.to_string()).await.unwrap();
        }
        assert!(matches!(snapshots.save(&engine, "more").await, Err(SnapshotFailure::TooMany)));
        assert!(snapshots.save(&engine, "0").await.is_ok());
        assert!(matches!(snapshots.restore(&engine, "more").await, Err(SnapshotFailure::Unknown(_))));
        assert!(matches!(snapshots.remove("more").await, Err(SnapshotFailure::Unknown(_))));
        assert_eq!(snapshots.list().await.len(), SAVED_MAX);
    }
}
