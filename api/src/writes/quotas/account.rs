//! The quota decisions of one namespace: a book of requests, and a task that decides the requests. The module
//! `ledger` describes the protocol and its reasons.

use std::sync::Arc;

use engine::Revision;
use futures_util::FutureExt;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::hold::{Quota, to_value};
use super::inputs::{QuotaRefusal, QuotaRequest, QuotaStore, SnapshotRevision, Total, timed_out};
use crate::writes::plugin::Charge;
use crate::writes::pod::{self, Amounts};
use values::object::{at, meta, same_at, same_values};
use values::retry::{Attempts, AttemptsExhausted};
use values::status::Status;

/// The quota decisions of one namespace.
pub struct Account {
    namespace: String,
    /// The lock is held only for single steps, never across an await. The owner of this lock takes no other
    /// lock.
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    requests: Vec<Request>,
    finished: Option<Finished>,
    /// Amounts that the next decision gives back to the quotas.
    due: Vec<Taken>,
    /// Shares whose write has not ended.
    open: HashMap<u64, OpenShare>,
    /// Number of the newest share or recount.
    last: u64,
    recount: Option<RecountLog>,
    /// Whether the decider task is running.
    is_deciding: bool,
}

/// A write that waits for its decision.
struct Request {
    ask: Arc<QuotaRequest>,
    store: Arc<dyn QuotaStore>,
    answer: oneshot::Sender<Decision>,
}

/// The decision for a write: a share, `None` for an allowed dry run, or the refusal.
type Decision = Result<Option<Share>, QuotaRefusal>;

/// The amounts of one quota that a write has taken.
#[derive(Clone, Debug)]
struct Taken {
    /// Uid of the quota. The usage of a later quota with the same name does not contain these amounts.
    uid: String,
    amounts: Amounts,
    /// The revision of a recount's snapshot, if that recount added these amounts. The snapshot may already
    /// contain the write.
    added_to: Option<Revision>,
}

struct OpenShare {
    ask: Arc<QuotaRequest>,
    taken: Vec<Taken>,
}

/// The shares of writes that were stored after a recount began.
struct RecountLog {
    id: u64,
    shares: Vec<(Arc<QuotaRequest>, Revision)>,
}

/// A recount whose totals are known.
struct Finished {
    id: u64,
    totals: Vec<Total>,
    at: Box<SnapshotRevision>,
    store: Arc<dyn QuotaStore>,
    answer: oneshot::Sender<Result<bool, Status>>,
}

/// The amounts that a write took from the quotas of its namespace. Dropping the share gives the amounts back.
pub struct Share {
    account: Arc<Account>,
    id: u64,
    store: Arc<dyn QuotaStore>,
    is_closed: bool,
}

impl Charge for Share {
    fn keep(mut self: Box<Self>, stored: Option<Revision>) {
        self.is_closed = true;
        self.account.keep(self.id, stored);
        // The decider subtracts the amounts that a recount counted twice.
        self.account.wake(&self.store);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.is_closed {
            self.account.give_back(self.id);
            self.account.wake(&self.store);
        }
    }
}

/// Returns whether a write, a recount or the decider uses an account.
pub fn is_used(account: &Arc<Account>) -> bool {
    Arc::strong_count(account) > 1
}

/// The account of a running decider. If the decider panics, dropping this value allows the start of another
/// decider.
struct Deciding(Arc<Account>);

impl Drop for Deciding {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.book.lock().is_deciding = false;
        }
    }
}

impl Account {
    pub fn new(namespace: &str) -> Account {
        Account { namespace: namespace.to_owned(), book: Mutex::default() }
    }

    /// Adds a request to the book of the decider. The decision arrives in the returned channel. If the
    /// receiver is dropped, the request takes no share.
    pub fn request(
        self: &Arc<Self>,
        store: &Arc<dyn QuotaStore>,
        ask: QuotaRequest,
    ) -> oneshot::Receiver<Decision> {
        let (answer, decision) = oneshot::channel();
        let request = Request { ask: Arc::new(ask), store: store.clone(), answer };
        self.book.lock().requests.push(request);
        self.wake(store);
        decision
    }

    pub fn begin_recount(&self) -> u64 {
        let book = &mut *self.book.lock();
        book.last += 1;
        book.recount = Some(RecountLog { id: book.last, shares: Vec::new() });
        book.last
    }

    /// Passes the totals of a recount to the decider.
    pub fn finish_recount(
        self: &Arc<Self>,
        store: &Arc<dyn QuotaStore>,
        id: u64,
        totals: Vec<Total>,
        at: Box<SnapshotRevision>,
    ) -> oneshot::Receiver<Result<bool, Status>> {
        let (answer, done) = oneshot::channel();
        self.book.lock().finished = Some(Finished { id, totals, at, store: store.clone(), answer });
        self.wake(store);
        done
    }

    pub fn end_recount(&self, id: u64) {
        let book = &mut *self.book.lock();
        if book.recount.as_ref().is_some_and(|recount| recount.id == id) {
            book.recount = None;
        }
    }

    /// Closes a share whose write is stored. `stored` is the revision of the write, if it is known.
    fn keep(&self, id: u64, stored: Option<Revision>) {
        let book = &mut *self.book.lock();
        let Some(share) = book.open.remove(&id) else { return };
        let Some(stored) = stored else { return };
        let is_twice = |taken: &Taken| taken.added_to.is_some_and(|snapshot| stored <= snapshot);
        book.due.extend(share.taken.into_iter().filter(is_twice));
        if let Some(recount) = &mut book.recount {
            recount.shares.push((share.ask, stored));
        }
    }

    /// Closes a share whose write is not stored.
    fn give_back(&self, id: u64) {
        let book = &mut *self.book.lock();
        if let Some(share) = book.open.remove(&id) {
            book.due.extend(share.taken);
        }
    }

    /// Starts the decider if it has work and is not running. If there is no runtime, for example because the
    /// process ends, this function does nothing, and the waiting writes stay in the account.
    fn wake(self: &Arc<Self>, store: &Arc<dyn QuotaStore>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut book = self.book.lock();
        if book.is_deciding || !book.has_work() {
            return;
        }
        book.is_deciding = true;
        drop(book);
        runtime.spawn(run(Deciding(self.clone()), store.clone()).boxed());
    }

    /// Decides all `requests` in their order, updates each quota once, and sends the decisions.
    async fn decide(self: &Arc<Self>, store: &dyn QuotaStore, requests: Vec<Request>) {
        match self.decisions(store, &requests).await {
            Ok(decisions) => {
                for (request, decision) in requests.into_iter().zip(decisions) {
                    let decision = match decision {
                        Ok(_) if request.ask.dry_run => Ok(None),
                        Ok(taken) => Ok(Some(self.open(request.store, request.ask, taken))),
                        Err(why) => Err(QuotaRefusal::Exceeded(why)),
                    };
                    // If the write no longer waits, `send` returns the share in its error. Dropping the share
                    // gives the amounts back.
                    drop(request.answer.send(decision));
                }
            }
            Err(status) => {
                for request in requests {
                    drop(request.answer.send(Err(QuotaRefusal::Failed(status.clone()))));
                }
            }
        }
    }

    fn open(
        self: &Arc<Self>,
        store: Arc<dyn QuotaStore>,
        ask: Arc<QuotaRequest>,
        taken: Vec<Taken>,
    ) -> Share {
        let mut book = self.book.lock();
        book.last += 1;
        let id = book.last;
        book.open.insert(id, OpenShare { ask, taken });
        Share { account: self.clone(), id, store, is_closed: false }
    }

    /// Decides `requests`, updates the quotas by the decisions and by the amounts that are due back, and
    /// returns the decisions.
    async fn decisions(
        &self,
        store: &dyn QuotaStore,
        requests: &[Request],
    ) -> Result<Vec<Result<Vec<Taken>, String>>, Status> {
        let mut attempts = Attempts::new();
        loop {
            let stored = store.read(&self.namespace)?;
            let mut quotas: Vec<Quota> = stored.iter().map(|(_, object)| Quota::parse(object)).collect();
            let due = std::mem::take(&mut self.book.lock().due);
            for taken in &due {
                if let Some(quota) = quotas.iter_mut().find(|quota| quota.uid == taken.uid) {
                    quota.give_back(&taken.amounts);
                }
            }
            let decisions: Vec<_> = requests.iter().map(|request| request.ask.decide(&mut quotas)).collect();
            let mut written = Vec::new();
            let mut outcome = Ok(true);
            for ((seen, object), quota) in stored.iter().zip(&quotas) {
                if quota.used != Quota::parse(object).used {
                    let mut object = object.clone();
                    object.object_entry("status").insert("used", to_value(&quota.used));
                    outcome = store.replace(*seen, object).await;
                    if !matches!(outcome, Ok(true)) {
                        break;
                    }
                }
                written.push(&quota.uid);
            }
            if matches!(outcome, Ok(true)) {
                return Ok(decisions);
            }
            // A quota has changed in the meantime, so the decision starts again. Amounts that were taken from
            // an already updated quota must be returned to that quota. Amounts that are due to the other
            // quotas stay due.
            let taken = decisions.into_iter().flatten().flatten();
            let mut due_still: Vec<_> = taken.filter(|taken| written.contains(&&taken.uid)).collect();
            due_still.extend(due.into_iter().filter(|taken| !written.contains(&&taken.uid)));
            self.book.lock().due.append(&mut due_still);
            outcome?;
            if let Err(AttemptsExhausted) = attempts.again().await {
                return Err(timed_out());
            }
        }
    }

    /// Stores the totals of a recount. Returns whether the recount has counted all quotas.
    async fn settle(&self, finished: &Finished) -> Result<bool, Status> {
        let Finished { id, totals, at: snapshot, store, .. } = finished;
        let mut attempts = Attempts::new();
        loop {
            let (mut is_complete, mut is_written) = (true, true);
            for (seen, object) in store.read(&self.namespace)? {
                let hard = at(&object, "spec.hard").cloned().unwrap_or_default();
                let is_of =
                    |total: &&Total| total.uid == meta(&object, "uid") && same_values(&total.hard, &hard);
                let Some(total) = totals.iter().find(is_of) else {
                    is_complete = false;
                    continue;
                };
                let mut counted = object.clone();
                counted.object_entry("status").insert("hard", hard);
                let used = self.book.lock().usage(*id, &Quota::parse(&counted), total, &**snapshot);
                // Another recount has begun, and its log contains the shares that were kept in the meantime.
                let Some(used) = used else { return Ok(false) };
                counted.object_entry("status").insert("used", to_value(&used));
                if !same_at(&counted, &object, "status") {
                    is_written &= store.replace(seen, counted).await?;
                }
            }
            if is_written {
                return Ok(is_complete);
            }
            if let Err(AttemptsExhausted) = attempts.again().await {
                return Ok(false);
            }
        }
    }
}

/// Runs the decider: a task that decides requests until the book is empty.
async fn run(deciding: Deciding, store: Arc<dyn QuotaStore>) {
    let account = &deciding.0;
    loop {
        let (requests, finished, has_decisions) = {
            let mut book = account.book.lock();
            // Drop the requests of writes that no longer wait.
            book.requests.retain(|request| !request.answer.is_closed());
            if !book.has_work() {
                book.is_deciding = false;
                return;
            }
            let has_decisions = !book.requests.is_empty() || !book.due.is_empty();
            (std::mem::take(&mut book.requests), book.finished.take(), has_decisions)
        };
        let writer = requests.first().map_or(&store, |request| &request.store).clone();
        if has_decisions {
            account.decide(&*writer, requests).await;
        }
        if let Some(finished) = finished {
            let outcome = account.settle(&finished).await;
            drop(finished.answer.send(outcome));
        }
    }
}

impl Book {
    fn has_work(&self) -> bool {
        !self.requests.is_empty() || !self.due.is_empty() || self.finished.is_some()
    }

    /// Returns the usage of a quota: the total in a snapshot, plus the shares that may be missing from the
    /// snapshot. Returns `None` if a later recount has begun.
    fn usage(
        &mut self,
        recount: u64,
        quota: &Quota,
        total: &Total,
        snapshot: &SnapshotRevision,
    ) -> Option<Amounts> {
        let log = self.recount.as_ref().filter(|log| log.id == recount)?;
        let mut used = total.used.clone();
        for (ask, stored) in &log.shares {
            if *stored > snapshot(&ask.key_prefix) {
                pod::add(&mut used, &quota.change(ask));
            }
        }
        for share in self.open.values_mut() {
            let amounts = quota.change(&share.ask);
            pod::add(&mut used, &amounts);
            share.taken.retain(|taken| taken.uid != quota.uid);
            if !amounts.is_empty() {
                let added_to = Some(snapshot(&share.ask.key_prefix));
                share.taken.push(Taken { uid: quota.uid.clone(), amounts, added_to });
            }
        }
        // The sum does not contain the amounts that are due back, so do not subtract them.
        self.due.retain(|taken| taken.uid != quota.uid);
        quota.bounded(&mut used);
        Some(used)
    }
}

impl QuotaRequest {
    /// Takes the usage of the write from every quota that covers the object. If one quota refuses, nothing is
    /// taken. The error names missing sizes or, if all sizes are set, the quota that would be exceeded.
    fn decide(&self, quotas: &mut [Quota]) -> Result<Vec<Taken>, String> {
        let covering: Vec<usize> = (0..quotas.len()).filter(|at| quotas[*at].covers(&self.usage)).collect();
        for at in &covering {
            quotas[*at].check(&self.usage)?;
        }
        let mut taken: Vec<(usize, Amounts)> = Vec::new();
        for at in covering {
            let change = quotas[at].change(self);
            match quotas[at].take(&change) {
                Ok(()) if change.is_empty() => {}
                Ok(()) => taken.push((at, change)),
                Err(why) => {
                    taken.iter().for_each(|(at, amounts)| quotas[*at].give_back(amounts));
                    return Err(why);
                }
            }
        }
        if self.dry_run {
            taken.drain(..).for_each(|(at, amounts)| quotas[at].give_back(&amounts));
        }
        let taken = taken.into_iter();
        Ok(taken
            .map(|(at, amounts)| Taken { uid: quotas[at].uid.clone(), amounts, added_to: None })
            .collect())
    }
}
