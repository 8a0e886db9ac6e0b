//! Tests the ledger with a model of a store and a paused clock. A write that gets no quota decision fails
//! after ten seconds of the paused clock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::Revision;
use quantity::Quantity;
use tokio::time::{Instant, sleep};

use super::super::usage::Usage;
use super::*;
use crate::writes::plugin::{Charge, Pending};
use crate::writes::pod;
use types::schema::registry::Registry;
use values::json::{Object, Value};
use values::naming::KUBERNETES;
use values::object::{at, meta, set_meta};
use values::testing::{object, text};

const COMMIT: Duration = Duration::from_millis(5);

/// A store of quotas and config maps, in which each write takes the time [`COMMIT`].
#[derive(Default)]
struct Model {
    revision: AtomicU64,
    quotas: Mutex<BTreeMap<String, (Revision, Object)>>,
    /// Names of config maps, each with the revision of its creation.
    maps: Mutex<BTreeMap<u64, Revision>>,
    /// Whether the next replacement fails because the quota has changed.
    conflicts: Mutex<bool>,
}

impl Model {
    fn next(&self) -> Revision {
        Revision::new(self.revision.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn put(&self, mut quota: Object) {
        let uid = format!("uid-{}", meta(&quota, "name"));
        set_meta(&mut quota, "uid", Some(uid.into()));
        let name = meta(&quota, "name").to_owned();
        let revision = self.next();
        self.quotas.lock().insert(name, (revision, quota));
    }

    /// Changes the limits in the specification of a quota, like the update of a client.
    fn edit(&self, name: &str, hard: &str) {
        let revision = self.next();
        let mut quotas = self.quotas.lock();
        let (seen, quota) = quotas.get_mut(name).unwrap();
        *seen = revision;
        quota.object_entry("spec").insert("hard", Value::Object(object(hard)));
    }

    fn used(&self, name: &str, resource: &str) -> Quantity {
        let quotas = self.quotas.lock();
        let used = pod::amounts(at(&quotas[name].1, "status.used"));
        used.get(resource).copied().unwrap_or(Quantity::ZERO)
    }

    /// Counts the stored config maps. Returns the totals and the revision of the count.
    fn count(&self) -> (Vec<Total>, Revision) {
        let count = Quantity::whole(self.maps.lock().len() as i64);
        let total = |(_, quota): &(Revision, Object)| {
            let hard = at(quota, "spec.hard").cloned().unwrap_or_default();
            let used = pod::amounts(Some(&hard)).into_keys().map(|name| (name, count)).collect();
            Total { uid: meta(quota, "uid").to_owned(), hard, used }
        };
        let totals = self.quotas.lock().values().map(total).collect();
        (totals, Revision::new(self.revision.load(Ordering::Relaxed)))
    }
}

impl QuotaStore for Model {
    fn has_any(&self, _: &str) -> bool {
        !self.quotas.lock().is_empty()
    }

    fn read(&self, _: &str) -> Result<Vec<(Revision, Object)>, Status> {
        Ok(self.quotas.lock().values().cloned().collect())
    }

    fn replace(&self, seen: Revision, quota: Object) -> Pending<'_, bool> {
        Box::pin(async move {
            sleep(COMMIT).await;
            let mut quotas = self.quotas.lock();
            let stored = quotas.get_mut(meta(&quota, "name")).unwrap();
            if stored.0 != seen || std::mem::take(&mut *self.conflicts.lock()) {
                return Ok(false);
            }
            *stored = (self.next(), quota);
            Ok(true)
        })
    }
}

/// A ledger, and a model with one quota that has been counted.
struct Bench {
    ledger: Ledger,
    model: Arc<Model>,
    maps: Registry,
}

impl Bench {
    fn new(hard: &str) -> Bench {
        let model = Arc::new(Model::default());
        let used: Vec<String> = object(hard).iter().map(|(name, _)| format!(r#""{name}":"0""#)).collect();
        let quota = format!(
            r#"{{"metadata":{{"name":"q"}},"spec":{{"hard":{hard}}},"status":{{"hard":{hard},"used":{{{}}}}}}}"#,
            used.join(",")
        );
        model.put(object(&quota));
        Bench { ledger: Ledger::default(), model, maps: Registry::new(&KUBERNETES) }
    }

    fn quota_request(&self) -> QuotaRequest {
        let maps = self.maps.resource("", "v1", "configmaps").unwrap();
        let usage = Usage::from_object(&KUBERNETES, maps, &Object::new());
        QuotaRequest { usage, before: None, key_prefix: maps.stored().key_prefix.clone(), dry_run: false }
    }

    async fn take(&self) -> Result<Share, String> {
        match self.ledger.take(self.model.clone(), "n", self.quota_request()).await {
            Ok(share) => Ok(share.expect("it is not a dry run")),
            Err(QuotaRefusal::Exceeded(why)) => Err(why),
            Err(QuotaRefusal::Failed(status)) => panic!("{status}"),
        }
    }

    /// Takes a share of the quota and stores a config map.
    async fn create(&self, name: u64) -> Result<(), String> {
        let share = self.take().await?;
        sleep(COMMIT).await;
        let revision = self.model.next();
        self.model.maps.lock().insert(name, revision);
        Box::new(share).keep(Some(revision));
        Ok(())
    }

    /// Runs a recount. The count takes the time `takes`.
    async fn recount(&self, takes: Duration) -> bool {
        let recount = self.ledger.recount(self.model.clone(), "n");
        let (totals, revision) = self.model.count();
        sleep(takes).await;
        recount.finish(totals, Box::new(move |_| revision)).await.unwrap()
    }

    fn used(&self) -> String {
        self.model.used("q", "configmaps").to_text()
    }
}

/// Replays the sequence of events that blocked a namespace in the earlier protocol: the first decision is
/// for a write that is still queued behind a recount.
#[tokio::test(start_paused = true)]
async fn recounts_and_writes_do_not_wait_for_each_other() {
    let bench = Bench::new(r#"{"configmaps":"9"}"#);
    let began = Instant::now();
    let (a, b, recount, c, d) = tokio::join!(
        bench.create(1),
        bench.create(2),
        bench.recount(COMMIT),
        bench.create(3),
        bench.create(4)
    );
    assert_eq!((a, b, recount, c, d), (Ok(()), Ok(()), true, Ok(()), Ok(())));
    assert!(began.elapsed() < 10 * COMMIT, "{:?}", began.elapsed());
    assert!(bench.recount(COMMIT).await);
    assert_eq!(bench.used(), "4");
}

#[tokio::test(start_paused = true)]
async fn a_recount_ends_while_a_share_is_open() {
    let bench = Bench::new(r#"{"configmaps":"9"}"#);
    let open = bench.take().await.ok().unwrap();
    let began = Instant::now();
    assert!(bench.recount(COMMIT).await);
    assert_eq!(bench.create(1).await, Ok(()));
    assert!(began.elapsed() < 10 * COMMIT, "{:?}", began.elapsed());
    assert_eq!(bench.used(), "2");
    drop(open);
    sleep(2 * COMMIT).await;
    assert_eq!(bench.used(), "1", "the share is given back without another write");
}

/// Checks that a share that is open during the count is counted once, whether its write is stored before the
/// count, after the count, or not at all.
#[tokio::test(start_paused = true)]
async fn a_write_during_a_recount_is_counted_once() {
    enum End {
        StoredBefore,
        StoredAfter,
        Failed,
    }
    for (end, closes_during_count, want) in [
        (End::StoredBefore, true, "1"),
        (End::StoredBefore, false, "1"),
        (End::StoredAfter, true, "1"),
        (End::StoredAfter, false, "1"),
        (End::Failed, true, "0"),
        (End::Failed, false, "0"),
    ] {
        let bench = Bench::new(r#"{"configmaps":"9"}"#);
        let share = bench.take().await.ok().unwrap();
        let store = || {
            let revision = bench.model.next();
            bench.model.maps.lock().insert(1, revision);
            revision
        };
        let recount = bench.ledger.recount(bench.model.clone(), "n");
        let before = matches!(end, End::StoredBefore).then(store);
        let (totals, counted) = bench.model.count();
        let stored = if matches!(end, End::StoredAfter) { Some(store()) } else { before };
        let close = |share: Share| match stored {
            Some(revision) => Box::new(share).keep(Some(revision)),
            None => drop(share),
        };
        let finish = |recount: Recount| recount.finish(totals, Box::new(move |_| counted));
        if closes_during_count {
            close(share);
            assert!(finish(recount).await.unwrap());
        } else {
            assert!(finish(recount).await.unwrap());
            assert_ne!(bench.used(), "0", "an open share may be stored");
            close(share);
        }
        sleep(2 * COMMIT).await;
        assert_eq!(bench.used(), want);
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_changes_during_a_recount_is_counted_again() {
    let bench = Bench::new(r#"{"configmaps":"9"}"#);
    assert_eq!(bench.create(1).await, Ok(()));
    let recount = bench.ledger.recount(bench.model.clone(), "n");
    let (totals, revision) = bench.model.count();
    bench.model.edit("q", r#"{"configmaps":"9","count/configmaps":"9"}"#);
    assert!(!recount.finish(totals, Box::new(move |_| revision)).await.unwrap());
    // A write that was decided with the old limits also counts toward the new limits.
    let open = bench.take().await.ok().unwrap();
    assert!(bench.recount(COMMIT).await);
    assert_eq!(bench.model.used("q", "count/configmaps").to_text(), "2");
    drop(open);
    sleep(2 * COMMIT).await;
    assert_eq!(bench.model.used("q", "count/configmaps").to_text(), "1");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_dropped_before_the_decision_takes_no_quota() {
    let bench = Bench::new(r#"{"configmaps":"1"}"#);
    // The writer stops waiting before the decision (first case) and during the decision (second case).
    for patience in [Duration::ZERO, COMMIT / 2] {
        assert!(timeout(patience, bench.take()).await.is_err());
        sleep(4 * COMMIT).await;
        assert_eq!(bench.used(), "0");
    }
    assert_eq!(bench.create(1).await, Ok(()));
    *bench.model.conflicts.lock() = true;
    let refused = bench.create(2).await.unwrap_err();
    assert_eq!(
        refused,
        "exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1"
    );
}

/// Runs creations, failing writes, deletions, edits and recounts in an order that depends on the seed. Checks
/// that the usage is never less than the number of stored objects, that the usage is exact at the end, and
/// that no write waits long.
#[tokio::test(start_paused = true)]
async fn each_write_is_counted_once_in_any_order_of_writes_deletes_edits_and_recounts() {
    const WRITERS: u64 = 64;
    for seed in 0..40_u64 {
        let bench = &Bench::new(r#"{"configmaps":"100000"}"#);
        // This simple multiplicative generator is sufficient: the orders must differ, but the numbers need
        // not be good random numbers.
        let dice = AtomicU64::new(seed * 2 + 1);
        let roll = |sides: u64| {
            let step = |state: u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(97));
            (dice.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).unwrap() >> 33) % sides
        };
        let longest = AtomicU64::new(0);
        let writers = (0..WRITERS).map(|writer| {
            let (roll, longest) = (&roll, &longest);
            async move {
                for at in 0..20 {
                    sleep(Duration::from_micros(roll(4_000))).await;
                    let began = Instant::now();
                    let share = bench.take().await.unwrap();
                    longest.fetch_max(began.elapsed().as_millis() as u64, Ordering::Relaxed);
                    sleep(Duration::from_micros(roll(9_000))).await;
                    if roll(8) == 0 {
                        continue;
                    }
                    let (name, revision) = (writer * 1_000 + at, bench.model.next());
                    bench.model.maps.lock().insert(name, revision);
                    let stored = Quantity::whole(bench.model.maps.lock().len() as i64);
                    assert!(bench.model.used("q", "configmaps") >= stored, "too little at {revision:?}");
                    sleep(Duration::from_micros(roll(500))).await;
                    Box::new(share).keep(Some(revision));
                    if roll(2) == 0 {
                        bench.model.next();
                        bench.model.maps.lock().remove(&name);
                    }
                }
            }
        });
        let writing = futures_util::future::join_all(writers);
        let others = async {
            loop {
                sleep(Duration::from_micros(roll(20_000))).await;
                match roll(3) {
                    0 => bench.model.edit("q", r#"{"configmaps":"100001"}"#),
                    1 => bench.model.edit("q", r#"{"configmaps":"100002","count/configmaps":"7000"}"#),
                    _ => {
                        bench.recount(Duration::from_micros(roll(30_000))).await;
                    }
                }
            }
        };
        tokio::select! {
            _ = writing => {}
            () = others => {}
        }
        assert!(longest.into_inner() < 200, "seed {seed}: a write waited for its share");
        // After this pause, the amounts of failed writes and the amounts that were counted twice have been
        // given back.
        sleep(10 * COMMIT).await;
        assert!(bench.recount(COMMIT).await, "seed {seed}");
        assert_eq!(bench.used(), bench.model.maps.lock().len().to_string(), "seed {seed}");
        let quota = bench.model.quotas.lock()["q"].1.clone();
        let hard = |part: &str| at(&quota, part).map(text);
        assert_eq!(hard("spec.hard"), hard("status.hard"), "seed {seed}");
    }
}
