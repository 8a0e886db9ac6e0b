//! Backups of an open store, frame by frame and from its directory: complete backups, backups on top of
//! earlier ones, transfers that are cut off or changed, and backups while reclamation removes the files that
//! are being copied.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::header::Header;
use crate::offline::backup::{copy, steady};
use crate::offline::target::Target;
use crate::offline::{
    BackupSummary, Listed, LogItem, OfflineError, Receiver, RestorePoint, Store, backup, restore, survey,
};
use crate::testing::{Random, TempDir};
use crate::transfer::{DATA_BYTES, FRAME_HEAD, Frame, HeldSegment, SegmentAnnouncement};
use crate::types::Revision;
use crate::{
    BackupError, Change, CompactError, Engine, Expected, Options, Outgoing, Payload, SEGMENT_BYTES_MIN,
    Snapshot, SnapshotError, Write,
};

/// Size limit that is large enough for the descriptions of all held segments.
const HELD_MAX: usize = 1 << 20;

fn open(temp: &TempDir) -> Engine {
    open_dir(&temp.path().join("store"))
}

fn open_dir(dir: &Path) -> Engine {
    Engine::open(Options { segment_bytes: SEGMENT_BYTES_MIN, ..Options::new(dir) }).unwrap()
}

async fn put(engine: &Engine, key: &str, value: &[u8]) -> Revision {
    let (key, value) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value));
    let change = Change::Put(Payload { value, ..Payload::default() });
    engine.commit(Write { key, expected: Expected::Any, change }).await.unwrap().revision
}

/// Commits `puts` puts of 8 kB to `keys` keys; seven of them fill a segment.
async fn fill(engine: &Engine, puts: u64, keys: u64) {
    for n in 0..puts {
        put(engine, &format!("/k/{}", n % keys), format!("{n:08}").repeat(1_000).as_bytes()).await;
    }
}

fn frames(mut outgoing: Outgoing) -> Vec<Bytes> {
    std::iter::from_fn(|| outgoing.next_frame()).collect()
}

fn receive(target: &Path, pieces: impl IntoIterator<Item = Bytes>) -> Result<BackupSummary, OfflineError> {
    let mut receiver = Receiver::begin(target)?;
    receiver.held(HELD_MAX, |_, _| ());
    for piece in pieces {
        receiver.take(&piece, |_| ())?;
    }
    receiver.ready()?.place()
}

/// Takes a backup of an open store.
fn back_up(engine: &Engine, target: &Path) -> BackupSummary {
    let mut receiver = Receiver::begin(target).unwrap();
    let held = receiver.held(HELD_MAX, |_, _| ());
    for frame in frames(engine.backup(&held).unwrap()) {
        receiver.take(&frame, |damage| panic!("{damage}")).unwrap();
    }
    receiver.ready().unwrap().place().unwrap()
}

/// Returns revision, key and value of every record.
fn records(dir: &Path) -> Vec<(Revision, Bytes, Option<Bytes>)> {
    let store = Store::open(dir).unwrap();
    let records = store.records().filter_map(|found| match found {
        LogItem::Record(record) => Some((record.revision(), record.key(), record.value())),
        LogItem::Damage(damage) => panic!("{damage}"),
        LogItem::Torn { .. } => None,
    });
    records.collect()
}

/// Returns key and value of every key that exists at `revision`.
fn states(engine: &Engine, revision: Revision) -> Vec<(Bytes, Bytes)> {
    states_of(&engine.snapshot_at(revision).unwrap())
}

fn states_of(snapshot: &Snapshot) -> Vec<(Bytes, Bytes)> {
    snapshot.prefix(b"").map(|entry| (entry.key().clone(), entry.read().unwrap().value)).collect()
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[tokio::test]
async fn a_received_backup_equals_the_log_and_the_next_one_transfers_only_new_segments() {
    let temp = TempDir::new();
    let (engine, target) = (open(&temp), temp.path().join("backup"));
    fill(&engine, 20, 15).await;
    let first = back_up(&engine, &target);
    assert_eq!((first.revision, first.copied.0, first.kept.0), (Revision::new(20), 3, 0));
    assert_eq!(records(&target).len(), 20);
    fill(&engine, 9, 9).await;
    let kept = target.join("0000000001.segment");
    let before = inode(&kept);
    let second = back_up(&engine, &target);
    assert_eq!((second.revision, second.copied.0, second.kept.0), (Revision::new(29), 3, 2));
    assert!(second.copied.1 < first.copied.1, "only what is new: {second:?}");
    assert_eq!(inode(&kept), before);
    assert!(!temp.path().join("backup.next").exists());
    engine.close().await;
    assert_eq!(records(&target), records(&temp.path().join("store")));
    let surveyed = survey(&Store::open(&target).unwrap(), |damage| panic!("{damage}"), |_| ());
    assert_eq!((surveyed.revision, surveyed.damages), (Revision::new(29), 0));
    assert_eq!(open_dir(&target).revision(), Revision::new(29), "it is a store like any other");
}

#[tokio::test]
async fn a_backup_is_received_in_pieces_of_any_size() {
    let temp = TempDir::new();
    let engine = open(&temp);
    fill(&engine, 20, 15).await;
    let stream = frames(engine.backup(b"").unwrap()).concat();
    for len in [1, 15, 17, 4_096, DATA_BYTES + FRAME_HEAD, stream.len()] {
        let target = temp.path().join(format!("in-{len}"));
        let pieces = stream.chunks(len).map(Bytes::copy_from_slice);
        assert_eq!(receive(&target, pieces).unwrap().revision, Revision::new(20));
        assert_eq!(records(&target).len(), 20);
    }
}

#[tokio::test]
async fn an_incomplete_or_changed_transfer_is_refused_and_the_previous_backup_remains() {
    let temp = TempDir::new();
    let (engine, target) = (open(&temp), temp.path().join("backup"));
    fill(&engine, 8, 4).await;
    back_up(&engine, &target);
    let before = records(&target);
    fill(&engine, 8, 4).await;
    let frames = frames(engine.backup(b"").unwrap());
    let stream = frames.concat();
    let mut random = Random(7);
    let boundaries = frames.iter().scan(0, |end, frame| {
        *end += frame.len();
        Some(*end)
    });
    let mut cuts: Vec<usize> = boundaries.filter(|end| *end < stream.len()).chain([0, 1]).collect();
    cuts.extend((0..30).map(|_| random.below(stream.len() as u64) as usize));
    for cut in cuts {
        let error = receive(&target, [Bytes::copy_from_slice(&stream[..cut])]).unwrap_err();
        assert!(matches!(error, OfflineError::CutShort { .. }), "{cut}: {error}");
    }
    for _ in 0..30 {
        let mut changed = stream.clone();
        let at = random.below(stream.len() as u64) as usize;
        changed[at] ^= 1 << random.below(8);
        let error = receive(&target, [changed.into()]).unwrap_err();
        // A changed length may announce more bytes than follow.
        let is_told = matches!(error, OfflineError::NoBackup { .. } | OfflineError::CutShort { .. });
        assert!(is_told, "{at}: {error}");
    }
    for left_out in 0..frames.len() {
        let pieces = frames.iter().enumerate().filter(|(at, _)| *at != left_out);
        receive(&target, pieces.map(|(_, frame)| frame.clone())).unwrap_err();
    }
    assert_eq!(records(&target), before);
    assert!(!temp.path().join("backup.next").exists());
}

#[tokio::test]
async fn the_reason_of_an_aborted_transfer_is_reported() {
    let temp = TempDir::new();
    let engine = open(&temp);
    fill(&engine, 8, 4).await;
    let mut outgoing = engine.backup(b"").unwrap();
    let begun: Vec<_> = (0..3).map(|_| outgoing.next_frame().unwrap()).collect();
    let last = outgoing.give_up("the server\nis shutting down");
    assert_eq!(outgoing.next_frame(), None);
    let error = receive(&temp.path().join("backup"), begun.into_iter().chain([last])).unwrap_err();
    assert_eq!(error.to_string(), "the server ended the transfer: the server is shutting down");
}

#[tokio::test]
async fn a_segment_that_reclamation_removes_during_a_transfer_is_sent_completely() {
    let temp = TempDir::new();
    let (engine, target) = (open(&temp), temp.path().join("backup"));
    fill(&engine, 30, 3).await;
    let want = states(&engine, Revision::new(30));
    let mut outgoing = engine.backup(b"").unwrap();
    let mut stream = vec![outgoing.next_frame().unwrap()];
    fill(&engine, 30, 3).await;
    reclaim(&engine).await;
    assert!(!temp.path().join("store/0000000001.segment").exists(), "reclaim has done its work");
    stream.extend(frames(outgoing));
    let done = receive(&target, stream).unwrap();
    assert_eq!(done.revision, Revision::new(30));
    let copy = open_dir(&target);
    assert_eq!((copy.revision(), states(&copy, Revision::new(30))), (Revision::new(30), want));
    copy.close().await;
    // The present store has no segment in common with the backup; a new backup succeeds nevertheless.
    let now = back_up(&engine, &target);
    assert_eq!((now.revision, now.oldest), (Revision::new(60), Revision::new(60)));
    assert_eq!(states(&open_dir(&target), Revision::new(60)), states(&engine, Revision::new(60)));
}

#[tokio::test]
async fn a_held_segment_is_skipped_only_if_header_end_and_last_record_are_equal() {
    let temp = TempDir::new();
    let (engine, target) = (open(&temp), temp.path().join("backup"));
    fill(&engine, 20, 15).await;
    back_up(&engine, &target);
    let path = target.join("0000000001.segment");
    let flip = |at: u64| {
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    };
    // The receiver has a segment with a damaged value, or with another salt than the server's segment.
    for at in [4_096 + 5_000, 24] {
        flip(at);
        if at == 24 {
            flip(2_048 + at);
        }
        assert_eq!(back_up(&engine, &target).kept.0, 1, "{at}");
        assert_eq!(records(&target).len(), 20);
    }
    // The receiver has the same segment, but with another last record.
    let mut receiver = Receiver::begin(&target).unwrap();
    let held = HeldSegment::decode(&receiver.held(HELD_MAX, |_, _| ())).unwrap();
    assert_eq!(held.len(), 2);
    let is_sent = |changed: HeldSegment| {
        let outgoing = engine.backup(&HeldSegment::encode(&[changed], HELD_MAX)).unwrap();
        frames(outgoing).len()
    };
    let none = is_sent(HeldSegment { end: 1, ..held[0] });
    assert_eq!(is_sent(held[0]), none - 1, "its records are one frame");
    let (offset, checksums) = held[0].last.unwrap();
    for last in [
        None,
        Some((offset, [0; 8])),
        Some((offset + 8, checksums)),
        Some((1, checksums)),
        Some((u64::MAX, checksums)),
    ] {
        assert_eq!(is_sent(HeldSegment { last, ..held[0] }), none, "{last:?}");
    }
    assert_eq!(is_sent(HeldSegment { header: Header { store: 1, ..held[0].header }, ..held[0] }), none);
    assert!(matches!(engine.backup(b"nonsense"), Err(BackupError::Held)));
}

#[tokio::test]
async fn malformed_transfers_are_refused() {
    let temp = TempDir::new();
    let engine = open(&temp);
    fill(&engine, 20, 15).await;
    let honest = frames(engine.backup(b"").unwrap());
    let decoded: Vec<Frame<'_>> = honest
        .iter()
        .enumerate()
        .map(|(number, bytes)| Frame::decode(bytes, number as u32).unwrap().unwrap().0)
        .collect();
    let Frame::Segment(second) = decoded[3] else { panic!("{decoded:?}") };
    let kind = std::mem::discriminant::<Frame<'_>>;
    let try_with = |what: &str, want: &str, change: &dyn Fn(&mut Vec<Frame<'_>>)| {
        let mut frames = decoded.clone();
        change(&mut frames);
        let bytes = frames.iter().enumerate().map(|(number, frame)| frame.encode(number as u32));
        let error = receive(&temp.path().join("backup"), bytes).unwrap_err();
        assert_eq!(error.to_string(), format!("the received data are not a backup: {want}"), "{what}");
    };
    assert_eq!(kind(&decoded[2]), kind(&Frame::Data(b"")));
    let (order, belong) = ("its frames come in no order", "a segment does not belong to the others");
    try_with("no start", order, &|frames| drop(frames.remove(0)));
    try_with("two starts", order, &|frames| frames.insert(0, frames[0].clone()));
    try_with("records first", "records come without their segment", &|frames| drop(frames.remove(1)));
    try_with("fewer records", "a segment has fewer records than it was said to have", &|frames| {
        frames.remove(2);
    });
    try_with("more records", "a segment has more records than it was said to have", &|frames| {
        frames.insert(2, frames[2].clone());
    });
    try_with("twice the same", belong, &|frames| frames[5] = frames[3].clone());
    try_with("out of order", belong, &|frames| frames[3] = frames[1].clone());
    try_with("of another store", belong, &|frames| {
        let header = Header { store: 1, ..second.header };
        frames[3] = Frame::Segment(SegmentAnnouncement { header, ..second });
    });
    try_with("a huge file", belong, &|frames| {
        frames[3] = Frame::Segment(SegmentAnnouncement { size: u64::MAX, ..second });
    });
    try_with("left out", "a segment is left out that is not there", &|frames| {
        frames[3] = Frame::Segment(SegmentAnnouncement { held: true, ..second });
    });
    try_with("one less", "its segments make no log", &|frames| drop(frames.drain(3..5)));
    try_with("none", "its segments make no log", &|frames| drop(frames.drain(1..frames.len() - 1)));
    try_with("more behind the end", "something comes behind its end", &|frames| frames.push(Frame::End));
    assert!(!temp.path().join("backup").exists());
    let error =
        receive(&temp.path().join("backup"), [Bytes::from("HTTP/1.1 200 OK\r\n\r\nHello")]).unwrap_err();
    assert_eq!(error.to_string(), "the received data are not a backup: a frame is damaged or missing");
}

#[tokio::test]
async fn a_backup_of_another_store_is_not_replaced_and_damage_is_copied_and_reported() {
    let (temp, other) = (TempDir::new(), TempDir::new());
    let target = temp.path().join("backup");
    let (engine, stranger) = (open(&temp), open(&other));
    fill(&engine, 20, 15).await;
    fill(&stranger, 3, 3).await;
    back_up(&engine, &target);
    let before = records(&target);
    let error = receive(&target, frames(stranger.backup(b"").unwrap())).unwrap_err();
    assert!(matches!(error, OfflineError::OtherStore { .. }), "{error}");
    assert_eq!(records(&target), before);

    let damaged = temp.path().join("store/0000000001.segment");
    let file = fs::File::options().write(true).open(&damaged).unwrap();
    file.write_all_at(b"rot", 4_096 + 5_000).unwrap();
    let mut receiver = Receiver::begin(&temp.path().join("new")).unwrap();
    let mut reported = Vec::new();
    for frame in frames(engine.backup(b"").unwrap()) {
        receiver.take(&frame, |damage| reported.push(damage.clone())).unwrap();
    }
    let done = receiver.ready().unwrap().place().unwrap();
    assert_eq!(
        (done.damages, reported.len(), reported[0].revisions),
        (1, 1, Some((Revision::FIRST, Revision::FIRST)))
    );
    // A sound copy in the earlier backup is better than the damaged one in the store.
    assert_eq!((back_up(&engine, &target).kept.0, records(&target)), (2, before));
}

#[tokio::test]
async fn a_backup_lacks_only_unreadable_records_and_reports_them() {
    let temp = TempDir::new();
    let engine = open(&temp);
    fill(&engine, 20, 20).await;
    let want: Vec<_> =
        engine.snapshot().prefix(b"").map(|entry| (entry.revision(), entry.read().unwrap().value)).collect();
    let outgoing = engine.backup(b"").unwrap();
    // The end of the file is cut off, so six records of the first segment cannot be read.
    let first = temp.path().join("store/0000000001.segment");
    let first = fs::File::options().write(true).open(first).unwrap();
    first.set_len(4_096 + 8_192).unwrap();
    let target = temp.path().join("backup");
    let mut receiver = Receiver::begin(&target).unwrap();
    let mut reported = Vec::new();
    for frame in frames(outgoing) {
        receiver.take(&frame, |damage| reported.push(damage.clone())).unwrap();
    }
    assert_eq!(receiver.ready().unwrap().place().unwrap().damages, reported.len() as u64);
    let lost: Vec<_> = reported
        .iter()
        .map(|damage| damage.revisions.map(|(first, last)| (first.get(), last.get())))
        .collect();
    assert_eq!(lost, [Some((2, 2)), Some((3, 7))], "the second has its head");
    let copy = open_dir(&target);
    assert_eq!((copy.revision(), copy.stats().lost_revisions), (Revision::new(20), 5));
    for (revision, value) in want {
        let entry = copy.snapshot().get(format!("/k/{}", revision.before()).as_bytes());
        let read = entry.map(|entry| entry.read().ok().map(|record| record.value));
        let expected = match revision.get() {
            2 => Some(None),
            3..=7 => None,
            _ => Some(Some(value)),
        };
        assert_eq!(read, expected, "{revision}");
    }
}

#[tokio::test]
async fn with_relaxed_durability_a_backup_contains_only_synced_records() {
    let temp = TempDir::new();
    let options =
        Options { durability: crate::Durability::Relaxed, ..Options::new(temp.path().join("store")) };
    let engine = Engine::open(options).unwrap();
    for n in 0..20 {
        put(&engine, &format!("/k/{n}"), b"value").await;
        let outgoing = engine.backup(b"").unwrap();
        assert!(outgoing.revision() > Revision::new(n) && engine.stats().synced >= outgoing.revision());
    }
    let empty = Engine::open(Options::new(temp.path().join("empty"))).unwrap();
    assert_eq!(back_up(&empty, &temp.path().join("backup")).revision, Revision::ZERO);
    assert_eq!(open_dir(&temp.path().join("backup")).revision(), Revision::ZERO);
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, engine.close()).await.unwrap();
}

/// Compacts everything before the newest revision and waits until the superseded files are removed.
async fn reclaim(engine: &Engine) {
    engine.compact(engine.revision()).await.unwrap();
    engine.settled().await;
    engine.checkpoint().await;
}

#[tokio::test]
async fn a_segment_that_reclamation_removes_during_an_offline_read_is_not_a_loss() {
    let temp = TempDir::new();
    let (engine, source) = (open(&temp), temp.path().join("store"));
    fill(&engine, 30, 3).await;
    let want = states(&engine, Revision::new(30));
    // The test removes the files after the directory was listed and before the files are opened: the next
    // attempt finds the replacements.
    let listed = Listed::read(&source).unwrap();
    let (store, revision) = steady(&source).unwrap();
    fill(&engine, 30, 3).await;
    reclaim(&engine).await;
    assert!(!source.join("0000000001.segment").exists(), "reclaim has done its work");
    assert!(Store::from_listed(&source, listed).unwrap().is_none(), "a file went away");
    let now = temp.path().join("now");
    let done = backup(&source, &now, |damage| panic!("{damage}"), |_, _| ()).unwrap().place().unwrap();
    assert_eq!((done.revision, done.oldest), (Revision::new(60), Revision::new(60)));
    assert_eq!(states(&open_dir(&now), Revision::new(60)), states(&engine, Revision::new(60)));
    // The files are removed after they were opened and before they are copied: the open files stay readable.
    let then = temp.path().join("then");
    let target = Target::begin(&then).unwrap();
    let done = copy(&store, revision, target, |damage| panic!("{damage}"), |_, _| ());
    assert_eq!(done.unwrap().place().unwrap().revision, Revision::new(30));
    assert_eq!(states(&open_dir(&then), Revision::new(30)), want);
}

#[tokio::test]
async fn the_last_write_before_a_store_became_idle_is_known_durable() {
    let temp = TempDir::new();
    let (engine, source) = (open(&temp), temp.path().join("store"));
    for _ in 0..2 {
        fill(&engine, 3, 3).await;
        // No later record shows that the last write is durable.
        let noted = async {
            while Store::open(&source).unwrap().synced() < engine.revision() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), noted).await.expect("it is noted");
        let surveyed = survey(&Store::open(&source).unwrap(), |damage| panic!("{damage}"), |_| ());
        assert_eq!(surveyed.revision, engine.revision());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_full_load_and_maintenance_each_backup_is_exactly_the_state_at_its_revision() {
    /// Number of writers, each with keys of its own.
    const WRITERS: u64 = 64;
    let temp = TempDir::new();
    let engine = open(&temp);
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        let (engine, stop) = (engine.clone(), stop.clone());
        tasks.push(tokio::spawn(async move {
            let mut random = Random(writer);
            while !stop.load(Ordering::Relaxed) {
                let key = format!("/k/{writer}/{}", random.below(3));
                if random.below(4) > 0 {
                    let value = format!("{:016x}", random.next()).repeat(random.below(200) as usize);
                    put(&engine, &key, value.as_bytes()).await;
                } else {
                    let write =
                        Write { key: key.into(), expected: Expected::Any, change: Change::Delete(None) };
                    // The key does not always exist.
                    let _ = engine.commit(write).await;
                }
            }
        }));
    }
    tasks.push(tokio::spawn({
        let (engine, stop) = (engine.clone(), stop.clone());
        async move {
            while !stop.load(Ordering::Relaxed) {
                match engine.compact(Revision::new(engine.revision().get().saturating_sub(20))).await {
                    Ok(()) | Err(CompactError::Compacted { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }));
    let (target, mut round) = (temp.path().join("backup"), 0);
    while round < 6 || engine.stats().rewritten_bytes == 0 {
        round += 1;
        let mut receiver = Receiver::begin(&target).unwrap();
        let held = receiver.held(HELD_MAX, |_, _| ());
        let (outgoing, snapshot) = loop {
            let outgoing = engine.backup(&held).unwrap();
            match engine.snapshot_at(outgoing.revision()) {
                Ok(snapshot) => break (outgoing, snapshot),
                // The revision was compacted in the meantime.
                Err(SnapshotError::Compacted { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        };
        let revision = outgoing.revision();
        let done = tokio::task::spawn_blocking(move || {
            for frame in frames(outgoing) {
                receiver.take(&frame, |damage| panic!("{damage}")).unwrap();
            }
            receiver.ready().unwrap().place().unwrap()
        });
        let done = done.await.unwrap();
        assert_eq!(done.revision, revision);
        let restored = temp.path().join(format!("restored-{round}"));
        let created =
            restore(&target, &restored, RestorePoint::Newest, false, |damage| panic!("{damage}"), |_, _| ());
        assert_eq!(created.unwrap().from_revision, revision);
        assert_eq!(states_of(&open_dir(&restored).snapshot()), states_of(&snapshot), "revision {revision}");
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_restore_before_the_first_record_is_refused_and_leaves_nothing() {
    let temp = TempDir::new();
    let engine = open(&temp);
    let first = put(&engine, "/k", b"v").await;
    engine.close().await;
    let (source, target) = (temp.path().join("store"), temp.path().join("restored"));
    for point in [RestorePoint::Time(1), RestorePoint::Revision(Revision::ZERO)] {
        let refused = restore(&source, &target, point, false, |_| (), |_, _| ()).unwrap_err();
        assert!(
            matches!(refused, OfflineError::BeforeFirst { first: error_first, time_ms, .. } if error_first == first && time_ms > 1),
            "{point:?}: {refused}"
        );
        assert!(!target.exists(), "{point:?}");
    }
}
