//! A disk that is full, that fails, or that hangs: writers get errors, and readers are not affected.

use std::time::Duration;

use bytes::Bytes;
use engine::fault::{self, Disk, Kind, Sabotage, Sabotaged, Verdict};
use engine::{
    Change, CommitError, Committed, Durability, Expected, KeyRange, Options, Payload, Refusal, Revision,
    Write,
};

fn put(key: &str, len: usize) -> Write {
    let payload = Payload { value: vec![b'v'; len].into(), ..Payload::default() };
    Write {
        key: Bytes::copy_from_slice(key.as_bytes()),
        expected: Expected::Any,
        change: Change::Put(payload),
    }
}

fn options() -> Options {
    Options { segment_bytes: 16 * 1024, ..Options::new("/simulated") }
}

#[track_caller]
fn refusal(outcome: Result<Committed, CommitError>) -> Refusal {
    match outcome {
        Err(CommitError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else_and_writes_resume_by_themselves() {
    for pages in 0..4 {
        let disk = Disk::new(pages);
        let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
        let mut tail = engine.tail(Revision::ZERO, Bytes::new()).unwrap();
        stepper.write(&engine, put("/a", 100)).unwrap();
        disk.limit_free_pages(Some(pages));
        let mut newest = 1;
        let refused = loop {
            match stepper.write(&engine, put("/b", 3_000)) {
                Ok(done) => newest = done.revision.get(),
                outcome => break refusal(outcome),
            }
            assert!(newest < 50, "the disk is never full");
        };
        assert_eq!((refused, engine.health()), (Refusal::DiskFull, Err(Refusal::DiskFull)));
        // Readers continue, and get nothing of the refused writes.
        assert_eq!(engine.snapshot().count(&KeyRange::all()), if newest > 1 { 2 } else { 1 });
        assert_eq!(fault::now(tail.next(100)).unwrap().unwrap().len() as u64, newest);
        for _ in 0..3 {
            stepper.commit();
            stepper.keep();
            assert_eq!(engine.health(), Err(Refusal::DiskFull));
        }
        // Killing the process in this state loses nothing, and a full disk does not prevent opening.
        drop((engine, stepper, tail));
        disk.restart();
        let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
        assert_eq!(engine.revision(), Revision::new(newest));
        assert_eq!(refusal(stepper.write(&engine, put("/b", 15_000))), Refusal::DiskFull);
        disk.limit_free_pages(None);
        // Even without any write, the store itself checks for room.
        stepper.commit();
        assert_eq!(engine.health(), Ok(()));
        assert_eq!(stepper.write(&engine, put("/c", 3_000)).unwrap().revision, Revision::new(newest + 1));
    }
}

#[test]
fn after_a_failed_sync_no_write_is_acknowledged_until_the_store_is_reopened() {
    let durabilities = [Durability::Sync, Durability::Relaxed, Durability::Replicated];
    let cases = (0..20).flat_map(|seed| durabilities.map(|durability| (seed, durability)));
    for (seed, durability) in cases {
        let disk = Disk::new(seed);
        let (engine, mut stepper) = fault::open(&disk, &Options { durability, ..options() }).unwrap();
        stepper.write(&engine, put("/a", 100)).unwrap();
        while stepper.keep() {}
        disk.follow(|operation| match operation.kind {
            Kind::Sync => Verdict::Fail,
            _ => Verdict::Proceed,
        });
        let met = stepper.write(&engine, put("/b", 100));
        while stepper.keep() {}
        disk.behave();
        let failed = Refusal::LogFailed { operation: "sync", reason: "input/output error".into() };
        assert_eq!(failed.to_string(), "sync failed (input/output error); the store must be reopened");
        assert_eq!(engine.health(), Err(failed.clone()));
        match durability {
            // Readers do not get the write, because it is unknown whether it is on disk.
            Durability::Sync => {
                let error = met.unwrap_err();
                assert!(
                    matches!(&error, CommitError::OutcomeUnknown(reason) if *reason == failed),
                    "{error}"
                );
                assert_eq!(engine.revision(), Revision::new(1));
            }
            // Relaxed durability acknowledges the write before it is durable, but never reports it as
            // durable.
            Durability::Relaxed | Durability::Replicated => {
                assert_eq!(met.unwrap().revision, Revision::new(2))
            }
        }
        assert_eq!(fault::now(engine.failed()), Some(failed.clone()));
        let operations = disk.operations();
        for _ in 0..5 {
            assert_eq!(refusal(stepper.write(&engine, put("/c", 100))), failed);
        }
        stepper.close();
        assert_eq!(disk.operations(), operations, "nothing more is asked of the disk");
        assert_eq!(engine.stats().synced, Revision::new(1));
        disk.restart();
        let (engine, stepper) = fault::open(&disk, &options()).unwrap();
        let found = engine.revision();
        assert!(engine.health().is_ok() && engine.snapshot().get(b"/c").is_none());
        // Every state that can be read now must also survive a power loss.
        drop((engine, stepper));
        disk.lose_power();
        disk.restore_power(seed);
        assert_eq!(fault::open(&disk, &options()).unwrap().0.revision(), found);
    }
}

#[test]
fn remains_of_a_refused_write_never_become_visible() {
    for seed in 0..50 {
        let disk = Disk::new(seed);
        let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
        stepper.write(&engine, put("/a", 10)).unwrap();
        // On a file system that copies on write, a write into allocated blocks can fail because the disk is
        // full. This plan simulates such a failure.
        let mut met = false;
        disk.follow(move |operation| match operation.kind {
            Kind::Write if !std::mem::replace(&mut met, true) => Verdict::Full,
            _ => Verdict::Proceed,
        });
        assert_eq!(refusal(stepper.write(&engine, put("/b", 3_000))), Refusal::DiskFull);
        assert_eq!((engine.revision(), engine.snapshot().count(&KeyRange::all())), (Revision::new(1), 1));
        // The new record is shorter than the refused one, so bytes of the refused record would remain behind
        // it.
        if seed % 2 == 0 {
            assert_eq!(stepper.write(&engine, put("/c", 10)).unwrap().revision, Revision::new(2));
        }
        let newest = engine.revision();
        drop((engine, stepper));
        disk.restart();
        let (engine, _stepper) = fault::open(&disk, &options()).unwrap();
        assert_eq!(
            (engine.revision(), engine.snapshot().get(b"/b").is_none()),
            (newest, true),
            "seed {seed}"
        );
    }
}

#[test]
fn a_refused_large_batch_leaves_no_record_of_its_already_written_pieces() {
    for protected in [true, false] {
        let disk = Disk::new(1);
        let options = Options { segment_bytes: 256 * 1024, ..options() };
        let (engine, mut stepper) = fault::open(&disk, &options).unwrap();
        stepper.hand_over_in_pieces(4096);
        stepper.write(&engine, put("/a", 10)).unwrap();
        // There is room for sixteen pieces in addition to what was allocated ahead.
        disk.limit_free_pages(Some(16));
        let keys: Vec<_> = (0..60).map(|n| format!("/b{n}")).collect();
        let mut answers: Vec<_> = keys.iter().map(|key| Box::pin(engine.commit(put(key, 3_000)))).collect();
        assert!(answers.iter_mut().all(|answer| fault::now(answer.as_mut()).is_none()));
        let taken_away = (!protected).then(|| Sabotaged::with(Sabotage::RefusedWriteLeft));
        stepper.commit();
        drop(taken_away);
        for answer in &mut answers {
            assert_eq!(refusal(fault::now(answer.as_mut()).unwrap()), Refusal::DiskFull);
        }
        assert_eq!((engine.revision(), engine.snapshot().count(&KeyRange::all())), (Revision::new(1), 1));
        drop(answers);
        drop((engine, stepper));
        disk.restart();
        let (engine, _stepper) = fault::open(&disk, &options).unwrap();
        assert_eq!(engine.revision() == Revision::new(1), protected, "revision {}", engine.revision());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_resumes_writes_by_itself_when_the_disk_has_space_again() {
    let disk = Disk::new(1);
    let options = Options { segment_bytes: 256 * 1024, ..options() };
    let engine = fault::open_with_threads(&disk, &options).unwrap();
    let mut newest = engine.commit(put("/a", 10)).await.unwrap().revision;
    disk.limit_free_pages(Some(3));
    // Space that was allocated ahead can still be used; then writes are refused, within a segment or between
    // two.
    let refused = loop {
        match engine.commit(put("/a", 20_000)).await {
            Ok(done) => newest = done.revision,
            outcome => break refusal(outcome),
        }
    };
    assert_eq!((refused, engine.health()), (Refusal::DiskFull, Err(Refusal::DiskFull)));
    assert_eq!(refusal(engine.commit(put("/b", 200_000)).await), Refusal::DiskFull);
    disk.limit_free_pages(None);
    // Clients do not write while the server is not ready.
    let recovered = async {
        while engine.health().is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), recovered).await.expect("it looks for room");
    // The refused writes got no revision.
    assert_eq!(engine.commit(put("/b", 10)).await.unwrap().revision, newest.next());
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_disk_hangs_reads_and_tails_continue_and_writes_share_a_batch() {
    let disk = Disk::new(1);
    let engine = fault::open_with_threads(&disk, &options()).unwrap();
    engine.commit(put("/a", 10)).await.unwrap();
    let before = engine.stats().batches;
    disk.stall();
    let writes = (0..50).map(|n| put(&format!("/k/{n:02}"), 100));
    let mut writers: Vec<_> = writes.map(|write| Box::pin(engine.commit(write))).collect();
    // All writes are in the queue now.
    assert!(writers.iter_mut().all(|writer| fault::now(writer).is_none()));
    let snapshot = engine.snapshot();
    assert_eq!(
        (snapshot.revision(), snapshot.get(b"/a").unwrap().read().unwrap().value.len()),
        (Revision::new(1), 10)
    );
    let mut tail = engine.tail(Revision::ZERO, Bytes::new()).unwrap();
    assert_eq!(tail.next(10).await.unwrap().len(), 1);
    assert!(tokio::time::timeout(Duration::from_millis(20), tail.next(10)).await.is_err());
    assert_eq!(engine.revision(), Revision::new(1));
    disk.resume();
    for writer in writers {
        writer.await.unwrap();
    }
    let mut seen = 1;
    while seen < 51 {
        for event in tail.next(100).await.unwrap() {
            assert_eq!(event.revision, Revision::new(seen + 1));
            seen += 1;
        }
    }
    // The first batch is being written while the disk hangs; all later writes share the next batch.
    assert!(engine.stats().batches - before <= 2);
    engine.close().await;
    assert_eq!(fault::open(&disk, &options()).unwrap().0.revision(), Revision::new(51));
}
