//! Who may take how much of the quotas of a namespace, one decision after the other.
//!
//! ```text
//! writes ─► waiting ─► the one whose turn it is decides for all that wait ─► one update of each quota ─► shares
//! share ─ the write is stored ─► kept
//!       └ dropped ─────────────► given back by the next decision
//! ```
//!
//! Deciding for many at once makes one update of the quota out of those of sixty-four writers, and no two of them see the
//! same usage. A recount has the turn too, and waits for the shares that are open: it sees every write that was counted,
//! and none twice.
//!
//! A crash between the update and the write leaves too much counted, and never too little; the recount at the next start
//! corrects it.

use std::sync::Arc;
use std::time::Duration;

use engine::Revision;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{MutexGuard, Notify};
use tokio::time::timeout;

use super::hold::{Quota, to_value};
use super::usage::Usage;
use crate::objects::store;
use crate::objects::strategy::Endpoint;
use crate::types::schema::registry::Resource;
use crate::values::json::Object;
use crate::values::retry::{Attempts, Exhausted};
use crate::values::status::Status;
use crate::writes::admission::pod::Amounts;
use crate::writes::admission::{Charge, Lookup, Writer};

/// Longest wait of a write for its turn, and of a recount for open shares.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// As many accounts are kept without a look at which namespaces still have quotas.
const UNSWEPT: usize = 64;

/// The accounts of all namespaces that have quotas.
#[derive(Default)]
pub struct Ledger {
    accounts: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    by_namespace: HashMap<String, Arc<Account>>,
    /// How many there were after those of namespaces without quotas were forgotten.
    swept: usize,
}

/// The decisions of one namespace.
#[derive(Default)]
struct Account {
    turn: tokio::sync::Mutex<()>,
    waiting: Mutex<Vec<Arc<Request>>>,
    /// What dropped shares give back: by identity of the quota.
    returned: Mutex<Vec<(String, Amounts)>>,
    /// Shares whose write has not ended.
    open: Mutex<usize>,
    closed: Notify,
}

/// What a write asks for.
pub struct Ask {
    /// Of the object as it will be.
    pub usage: Usage,
    /// How much more than before; negative for less.
    pub delta: Amounts,
    /// Whether nothing is taken, because nothing will be stored.
    pub dry_run: bool,
}

struct Request {
    ask: Ask,
    decision: Mutex<Option<Decision>>,
}

/// A share, or why there is none.
type Decision = Result<Option<Share>, String>;

/// What a write took of the quotas.
pub struct Share {
    account: Arc<Account>,
    /// By identity of the quota.
    taken: Vec<(String, Amounts)>,
    is_kept: bool,
}

impl Share {
    fn open(account: &Arc<Account>, taken: Vec<(String, Amounts)>) -> Share {
        *account.open.lock() += 1;
        Share { account: account.clone(), taken, is_kept: false }
    }
}

impl Charge for Share {
    fn keep(mut self: Box<Self>) {
        self.is_kept = true;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.is_kept {
            self.account.returned.lock().append(&mut self.taken);
        }
        *self.account.open.lock() -= 1;
        self.account.closed.notify_waiters();
    }
}

/// Why a write gets no share.
pub enum Refusal {
    /// A quota does not allow it.
    Exceeded(String),
    /// It could not be decided.
    Failed(Status),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Refusal {
        Refusal::Failed(status)
    }
}

/// The quotas of a namespace in a store.
#[derive(Clone, Copy)]
pub struct Quotas<'q> {
    /// The store.
    pub lookup: &'q Lookup,
    /// The resource of quotas.
    pub resource: &'q Resource,
    /// Who writes their status.
    pub writer: &'q dyn Writer,
    /// The namespace.
    pub namespace: &'q str,
}

impl Quotas<'_> {
    /// Whether there is any.
    pub fn are_there(&self) -> bool {
        let prefix = store::collection(self.resource, self.namespace);
        self.lookup.snapshot().prefix(&prefix).next().is_some()
    }

    fn read(&self) -> Result<Vec<(Revision, Object)>, Status> {
        let entries = self.lookup.snapshot().prefix(&store::collection(self.resource, self.namespace));
        let object = |entry: engine::Entry| {
            let revision = entry.revision();
            Ok((revision, store::read(entry)?.object(self.resource)?))
        };
        entries.map(object).collect()
    }
}

impl Ledger {
    /// The account of a namespace. Where others recount the quotas, the accounts of namespaces that have none any more are
    /// forgotten here, once for each doubling of their number.
    fn account(&self, quotas: Quotas<'_>) -> Arc<Account> {
        let mut accounts = self.accounts.lock();
        if accounts.by_namespace.len() >= UNSWEPT.max(2 * accounts.swept)
            && !accounts.by_namespace.contains_key(quotas.namespace)
        {
            accounts
                .by_namespace
                .retain(|namespace, account| is_used(account) || Quotas { namespace, ..quotas }.are_there());
            accounts.swept = accounts.by_namespace.len();
        }
        accounts.by_namespace.entry_ref(quotas.namespace).or_default().clone()
    }

    /// Forgets the account of a namespace without quotas, unless a write still uses it; says whether it could.
    fn forget(&self, namespace: &str) -> bool {
        let accounts = &mut self.accounts.lock().by_namespace;
        let is_used = accounts.get(namespace).is_some_and(is_used);
        if !is_used {
            accounts.remove(namespace);
        }
        !is_used
    }

    /// Asks for a share of the quotas of a namespace; none where no quota counts anything of it.
    ///
    /// # Errors
    /// A quota does not allow it, or it could not be decided in time.
    pub async fn take(&self, quotas: Quotas<'_>, ask: Ask) -> Result<Option<Share>, Refusal> {
        let account = self.account(quotas);
        let request = Arc::new(Request { ask, decision: Mutex::new(None) });
        account.waiting.lock().push(request.clone());
        let turn = account.my_turn().await.inspect_err(|_| {
            account.waiting.lock().retain(|other| !Arc::ptr_eq(other, &request));
        })?;
        if request.decision.lock().is_none() {
            let mut waiting = std::mem::take(&mut *account.waiting.lock());
            // The one that took it out of the list may have been cut off.
            if !waiting.iter().any(|other| Arc::ptr_eq(other, &request)) {
                waiting.push(request.clone());
            }
            waiting.retain(|request| request.decision.lock().is_none());
            account.decide(quotas, &waiting).await?;
        }
        drop(turn);
        let decision = request.decision.lock().take();
        match decision {
            Some(decision) => decision.map_err(Refusal::Exceeded),
            None => Err(Refusal::Failed(timed_out())),
        }
    }

    /// Sets totals and usage of the quotas of a namespace to what `count` finds; it is called while no write that was
    /// counted is under way. A namespace without quotas loses its account. Says whether it could.
    ///
    /// # Errors
    /// The store failed.
    pub async fn recount(
        &self,
        quotas: Quotas<'_>,
        count: impl Fn(&Object) -> Result<Object, Status>,
    ) -> Result<bool, Status> {
        if !quotas.are_there() {
            return Ok(self.forget(quotas.namespace));
        }
        let account = self.account(quotas);
        let _turn = account.my_turn().await?;
        if timeout(TURN_WAIT, account.settled()).await.is_err() {
            return Ok(false);
        }
        let mut attempts = Attempts::new();
        loop {
            let mut is_done = true;
            for (seen, quota) in quotas.read()? {
                let counted = count(&quota)?;
                if !crate::values::object::same_at(&counted, &quota, "status") {
                    is_done &=
                        quotas.writer.replace(quotas.resource, Endpoint::Status, seen, counted).await?;
                }
            }
            if is_done {
                account.returned.lock().clear();
                return Ok(true);
            }
            if let Err(Exhausted) = attempts.again().await {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
impl Ledger {
    /// The namespaces that have an account.
    pub(super) fn namespaces(&self) -> Vec<String> {
        self.accounts.lock().by_namespace.keys().cloned().collect()
    }
}

/// Whether a write or a recount holds an account.
fn is_used(account: &Arc<Account>) -> bool {
    Arc::strong_count(account) > 1
}

impl Account {
    async fn my_turn(&self) -> Result<MutexGuard<'_, ()>, Status> {
        timeout(TURN_WAIT, self.turn.lock()).await.map_err(|_| timed_out())
    }

    /// Resolves when no share is open.
    async fn settled(&self) {
        loop {
            let closed = self.closed.notified();
            if *self.open.lock() == 0 {
                return;
            }
            closed.await;
        }
    }

    /// Decides for all of `waiting`, in their order, with one update of each quota.
    async fn decide(self: &Arc<Self>, quotas: Quotas<'_>, waiting: &[Arc<Request>]) -> Result<(), Status> {
        let mut attempts = Attempts::new();
        loop {
            let stored = quotas.read()?;
            let mut held: Vec<Quota> = stored.iter().map(|(_, object)| Quota::parse(object)).collect();
            let returned = std::mem::take(&mut *self.returned.lock());
            for (uid, taken) in &returned {
                if let Some(quota) = held.iter_mut().find(|quota| quota.uid == *uid) {
                    quota.give_back(taken);
                }
            }
            let decisions: Vec<_> = waiting.iter().map(|request| request.ask.decide(&mut held)).collect();
            let mut written = Vec::new();
            let mut outcome = Ok(true);
            for ((seen, object), quota) in stored.iter().zip(&held) {
                if quota.used == Quota::parse(object).used {
                    written.push(&quota.uid);
                    continue;
                }
                let mut object = object.clone();
                object.object_entry("status").insert("used", to_value(&quota.used));
                outcome = quotas.writer.replace(quotas.resource, Endpoint::Status, *seen, object).await;
                if !matches!(outcome, Ok(true)) {
                    break;
                }
                written.push(&quota.uid);
            }
            if matches!(outcome, Ok(true)) {
                for (request, decision) in waiting.iter().zip(decisions) {
                    let taken = |taken: Vec<_>| (!taken.is_empty()).then(|| Share::open(self, taken));
                    *request.decision.lock() = Some(decision.map(taken));
                }
                return Ok(());
            }
            // A quota changed meanwhile. What was taken of others is given back; what was given back to it is still due.
            let taken = decisions.into_iter().flatten().flatten();
            let mut due: Vec<_> = taken.filter(|(uid, _)| written.contains(&uid)).collect();
            due.extend(returned.into_iter().filter(|(uid, _)| !written.contains(&uid)));
            self.returned.lock().append(&mut due);
            outcome?;
            if let Err(Exhausted) = attempts.again().await {
                return Err(timed_out());
            }
        }
    }
}

impl Ask {
    /// Takes the delta of every quota that covers the object, or of none. What is said first is what is missing, then
    /// what is exceeded.
    fn decide(&self, quotas: &mut [Quota]) -> Result<Vec<(String, Amounts)>, String> {
        let covering: Vec<usize> = (0..quotas.len()).filter(|at| quotas[*at].covers(&self.usage)).collect();
        for at in &covering {
            quotas[*at].check(&self.usage)?;
        }
        let mut taken: Vec<(usize, Amounts)> = Vec::new();
        for at in covering {
            match quotas[at].take(&self.delta) {
                Ok(amounts) if amounts.is_empty() => {}
                Ok(amounts) => taken.push((at, amounts)),
                Err(why) => {
                    taken.iter().for_each(|(at, amounts)| quotas[*at].give_back(amounts));
                    return Err(why);
                }
            }
        }
        if self.dry_run {
            taken.drain(..).for_each(|(at, amounts)| quotas[at].give_back(&amounts));
        }
        Ok(taken.into_iter().map(|(at, amounts)| (quotas[at].uid.clone(), amounts)).collect())
    }
}

fn timed_out() -> Status {
    Status::internal("resource quota evaluation timed out")
}
