//! A follower's store on a real disk: refused batches, its files, its backups, and a change of role.

use std::pin::pin;

use engine::fault::{Random, now};
use engine::offline::{self, Receiver, RestorePoint, Store};
use engine::{
    Applied, ApplyError, Change, CommitError, Durability, Engine, Expected, Options, Payload, Refusal,
    Revision, Role, Write,
};

use crate::script::Script;

#[path = "../support/mod.rs"]
mod support;
use support::TempDir;

fn options(dir: &TempDir, role: Role) -> Options {
    Options { segment_bytes: 64 * 1024, role, ..Options::new(dir.path()) }
}

async fn apply(engine: &Engine, script: &Script, until: Revision, random: &mut Random) {
    while engine.revision() < until {
        engine.apply(script.batch(engine.revision(), random)).await.unwrap();
    }
}

/// Returns a revision in the middle between 0 and `newest`.
fn half(newest: Revision) -> Revision {
    Revision::new(newest.get() / 2)
}

fn put(key: &str, revision: u64) -> Applied {
    let change = Change::Put(Payload { value: "v".into(), ..Payload::default() });
    Applied {
        revision: Revision::new(revision),
        created: Revision::new(revision),
        key: key.to_owned().into(),
        change,
    }
}

fn write(key: &str) -> Write {
    Write { key: key.to_owned().into(), expected: Expected::Any, change: Change::Put(Payload::default()) }
}

#[tokio::test]
async fn a_follower_applies_records_in_order_and_refuses_writes() {
    let dir = TempDir::new();
    let engine = Engine::open(options(&dir, Role::Follower)).unwrap();
    assert!(matches!(engine.commit(write("/a")).await, Err(CommitError::Refused(Refusal::Follower))));
    assert_eq!(engine.apply(vec![put("/a", 5), put("/b", 5), put("/c", 9)]).await.unwrap(), Revision::new(9));
    assert!(
        matches!(engine.apply(vec![put("/d", 9)]).await, Err(ApplyError::NotNewer { newest }) if newest == Revision::new(9))
    );
    let torn = vec![put("/d", 10), put("/a", 11)];
    assert!(
        matches!(engine.apply(torn).await, Err(ApplyError::Created { at: 1, created }) if created == Revision::new(5))
    );
    assert_eq!(engine.revision(), Revision::new(9), "nothing of a refused batch is there");
    let keys = |at| engine.snapshot_at(Revision::new(at)).unwrap().count_prefix(b"/");
    assert_eq!([4, 5, 8, 9].map(keys), [0, 2, 2, 3]);
    engine.close().await;
    assert!(matches!(engine.apply(vec![put("/d", 10)]).await, Err(ApplyError::Closed)));

    let dir = TempDir::new();
    let engine = Engine::open(options(&dir, Role::Leader)).unwrap();
    assert!(matches!(engine.apply(vec![put("/a", 5)]).await, Err(ApplyError::Leader)));
}

#[tokio::test]
async fn a_reopened_follower_has_the_same_state_with_and_without_a_checkpoint() {
    let script = Script::new(7, 2_000);
    let dir = TempDir::new();
    let mut random = Random::new(7);
    for part in 1..=4 {
        let engine = Engine::open(options(&dir, Role::Follower)).unwrap();
        if part > 1 {
            script.check(&engine, &mut random);
        }
        apply(&engine, &script, Revision::new(script.newest().get() * part / 4), &mut random).await;
        script.check(&engine, &mut random);
        if part == 3 {
            engine.compact(half(engine.revision())).await.unwrap();
            engine.settled().await;
            script.check(&engine, &mut random);
        }
        engine.checkpoint().await;
        engine.close().await;
        if part == 2 {
            dir.remove_checkpoints();
        }
    }
    assert!(dir.segments().len() > 3);
    let store = Store::open(dir.path()).unwrap();
    let survey = offline::survey(&store, |damage| panic!("{damage}"), |_| ());
    assert_eq!((survey.revision, survey.damages), (script.newest(), 0));
    assert!(survey.torn.is_none());
}

#[test]
fn small_batches_are_applied_by_the_caller_during_maintenance() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for (seed, durability) in
        [(1, Durability::Replicated), (2, Durability::Replicated), (3, Durability::Sync)]
    {
        let script = Script::new(seed, 1_500);
        let dir = TempDir::new();
        let mut random = Random::new(seed);
        let (mut at_once, mut waited) = (0, 0);
        for part in 1..=3 {
            let options = Options { segment_bytes: 128 * 1024, durability, ..options(&dir, Role::Follower) };
            let engine = Engine::open(options).unwrap();
            while engine.revision() < Revision::new(script.newest().get() * part / 3) {
                let mut applying = pin!(engine.apply(script.batch(engine.revision(), &mut random)));
                let applied = match now(applying.as_mut()) {
                    Some(applied) => (applied, at_once += 1).0,
                    None => (runtime.block_on(applying), waited += 1).0,
                };
                let (applied, stats) = (applied.unwrap(), engine.stats());
                assert!(
                    durability == Durability::Replicated || stats.synced >= applied,
                    "{applied} {stats:?}"
                );
                if random.one_in(200) {
                    // The compaction continues while more batches are applied.
                    let _ = now(engine.compact(half(engine.revision())));
                }
            }
            runtime.block_on(engine.settled());
            script.check(&engine, &mut random);
            runtime.block_on(engine.close());
            let late = put("/late", engine.revision().next().get());
            assert!(matches!(now(engine.apply(vec![late])), Some(Err(ApplyError::Closed))));
        }
        match durability {
            // The thread syncs a batch that reaches the segment's end.
            Durability::Replicated => assert!(at_once > 0 && waited > 0, "{at_once} {waited}"),
            // The thread syncs all batches. The thread may finish before an interrupted caller polls,
            // so some batches count as complete at once, and many on a busy machine.
            _ => assert!(at_once < waited, "{at_once} of {waited} beside: a sync is not for the caller"),
        }
        let engine = Engine::open(options(&dir, Role::Follower)).unwrap();
        assert_eq!(engine.revision(), script.newest());
        script.check(&engine, &mut random);
    }
}

#[tokio::test]
async fn a_backup_of_a_follower_and_its_restore_equal_the_follower() {
    let script = Script::new(8, 1_500);
    let (dir, copies) = (TempDir::new(), TempDir::new());
    let mut random = Random::new(8);
    let engine = Engine::open(options(&dir, Role::Follower)).unwrap();
    apply(&engine, &script, half(script.newest()), &mut random).await;
    let (received, copied) = (copies.path().join("received"), copies.path().join("copied"));
    for until in [half(script.newest()), script.newest()] {
        apply(&engine, &script, until, &mut random).await;
        let mut receiver = Receiver::begin(&received).unwrap();
        let held = receiver.held(1 << 20, |_, _| ());
        let mut outgoing = engine.backup(&held).unwrap();
        while let Some(frame) = outgoing.next_frame() {
            receiver.take(&frame, |damage| panic!("{damage}")).unwrap();
        }
        assert_eq!(receiver.ready().unwrap().place().unwrap().damages, 0);
        let ready = offline::backup(dir.path(), &copied, |damage| panic!("{damage}"), |_, _| ()).unwrap();
        assert_eq!(ready.place().unwrap().revision, engine.revision());
    }
    engine.close().await;
    for copy in [&received, &copied] {
        let options = Options { role: Role::Follower, ..Options::new(copy) };
        let engine = Engine::open(options).unwrap();
        assert_eq!((engine.revision(), engine.stats().lost_revisions), (script.newest(), 0));
        script.check(&engine, &mut random);
        engine.close().await;
    }
    // The store is restored at a revision that may be inside a gap, and at the newest revision.
    let restored = copies.path().join("restored");
    let middle = half(script.newest());
    for point in [RestorePoint::Revision(middle), RestorePoint::Newest] {
        offline::restore(&copied, &restored, point, false, |damage| panic!("{damage}"), |_, _| ()).unwrap();
        let engine = Engine::open(Options::new(&restored)).unwrap();
        let at = if point == RestorePoint::Newest { script.newest() } else { middle };
        script.check_at_as(&engine, Revision::new(engine.revision().get()), at);
        engine.close().await;
        std::fs::remove_dir_all(&restored).unwrap();
    }
}

#[tokio::test]
async fn a_damaged_record_of_a_follower_is_reported_at_every_opening_and_ends_tails() {
    let dir = TempDir::new();
    let engine = Engine::open(options(&dir, Role::Follower)).unwrap();
    let transaction = ["/a", "/b", "/c"].map(|key| put(key, 20));
    engine.apply([vec![put("/x", 10)], transaction.to_vec(), vec![put("/y", 30)]].concat()).await.unwrap();
    engine.close().await;
    dir.remove_checkpoints();
    // The head of the record of /b is damaged, so its key is unknown.
    let path = &dir.segments()[0];
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(2).position(|two| two == b"/b").unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, &bytes).unwrap();
    for opening in 0..3 {
        let store = Store::open(dir.path()).unwrap();
        let mut damages = Vec::new();
        let survey = offline::survey(&store, |damage| damages.push(damage.clone()), |_| ());
        assert!(
            survey.damages >= 1 && damages[0].revisions == Some((Revision::new(20), Revision::new(20))),
            "{damages:?}"
        );
        let engine = Engine::open(options(&dir, Role::Follower)).unwrap();
        assert!(engine.stats().lost_revisions > 0);
        let mut tail = engine.tail(Revision::new(10), bytes::Bytes::new()).unwrap();
        let got = tail.next(10).await.map(|events| events.len());
        assert!(matches!(got, Err(engine::TailError::Damaged { .. })), "{got:?}");
        let mut tail = engine.tail(Revision::new(20), bytes::Bytes::new()).unwrap();
        assert_eq!(tail.next(10).await.unwrap()[0].revision, Revision::new(30));
        engine
            .apply(vec![put(&format!("/{opening}"), (Revision::new(engine.revision().get() + 10)).get())])
            .await
            .unwrap();
        engine.close().await;
    }
}

#[tokio::test]
async fn a_store_can_change_its_role_between_openings() {
    let dir = TempDir::new();
    let mut revision = 0;
    for (round, role) in
        [Role::Leader, Role::Follower, Role::Follower, Role::Leader, Role::Follower].into_iter().enumerate()
    {
        let engine = Engine::open(options(&dir, role)).unwrap();
        assert_eq!((engine.revision(), engine.stats().lost_revisions), (Revision::new(revision), 0));
        let key = format!("/{round}");
        revision = match role {
            Role::Leader => (engine.commit(write(&key)).await.unwrap().revision).get(),
            Role::Follower => (engine
                .apply(vec![put(&key, revision + 5), put("/x", revision + 5)])
                .await
                .unwrap_or_else(|error| panic!("{error}")))
            .get(),
        };
        if role == Role::Follower {
            let change = Change::Delete(None);
            let gone = Applied {
                revision: Revision::new(revision + 1),
                created: Revision::new(revision),
                key: "/x".into(),
                change,
            };
            revision = engine.apply(vec![gone]).await.unwrap().get();
        }
        let mut tail = engine.tail(Revision::ZERO, "/0".into()).unwrap();
        assert_eq!(tail.next(9).await.unwrap()[0].revision, Revision::new(1));
        assert_eq!(engine.snapshot().count_prefix(b"/"), round as u64 + 1);
        engine.close().await;
    }
    let store = Store::open(dir.path()).unwrap();
    let survey = offline::survey(&store, |damage| panic!("{damage}"), |_| ());
    assert_eq!((survey.revision, survey.damages), (Revision::new(revision), 0));
}
