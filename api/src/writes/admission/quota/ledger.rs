//! The accounts of all namespaces that have quotas: writes take shares of the quotas, recounts correct the usage.
//!
//! ```text
//! write ───────► take ──► request ─┐
//!                                  ▼
//!                      Account::book (a short lock, never held across a wait)
//!                                  ▲                     │
//! recount ─► count ─► finish ──────┘                     ▼
//!                                      decider: one task for each namespace, only while there is work
//!                                        1. decides for all requests of the book with one update of each quota
//!                                        2. applies a finished recount
//!                                      and answers each request through a channel of its own
//!
//! share ─ kept at revision r ──► book: the write is stored at r
//!       └ dropped ─────────────► book: the amounts are due back; wakes the decider
//! ```
//!
//! The decider waits for the store and for nothing else. A write waits for its answer only, and holds no share
//! meanwhile. A recount counts beside the writes and waits for none of them. So no task waits for another one that needs
//! something it holds. (An earlier protocol let a recount hold the turn of the namespace until all shares were closed,
//! while the owners of decided shares queued behind it for the same turn.)
//!
//! # How a recount counts each write once
//!
//! A recount begins in the book, then takes a snapshot S of the store, counts S, and hands the totals to the decider. The
//! usage that the decider stores for a quota is the sum of
//! - the total in S,
//! - the shares that were kept since the recount began at a revision after S: they are not in S,
//! - the shares that are open: they may be in S or not. A share that is kept later at a revision in S was counted twice,
//!   and its surplus is given back then. A share that is dropped gives back what this sum added for it.
//!
//! A share that was kept before the recount began is in S, because a write is visible before its share is kept. So the
//! usage is never too low, and it is exact as soon as the shares of that moment are closed.
//!
//! A crash between the update of a quota and the write leaves the usage too high; the recount at the next start corrects
//! it.

use std::sync::Arc;
use std::time::Duration;

use engine::Revision;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::account::{Account, Share, is_used};
use super::usage::Usage;
use crate::writes::admission::Pending;
use crate::writes::admission::pod::Amounts;
use values::json::{Object, Value};
use values::status::Status;

/// Longest wait of a write for its decision, as in kube-apiserver.
const DECISION_WAIT: Duration = Duration::from_secs(10);

/// Number of accounts below which no account is checked for whether its namespace still has quotas.
const UNSWEPT: usize = 64;

/// The accounts of all namespaces that have quotas.
#[derive(Default)]
pub struct Ledger {
    accounts: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    by_namespace: HashMap<String, Arc<Account>>,
    /// Number of accounts after the last removal of accounts whose namespace has no quotas.
    swept: usize,
}

/// The quotas in a store, as the ledger reads and writes them.
pub trait QuotaStore: Send + Sync {
    /// Returns whether the namespace has a quota.
    fn has_any(&self, namespace: &str) -> bool;

    /// Returns the quotas of a namespace, each with the revision at which it was read.
    ///
    /// # Errors
    /// A quota cannot be read.
    fn read(&self, namespace: &str) -> Result<Vec<(Revision, Object)>, Status>;

    /// Replaces the status of a quota that was read at revision `seen`. `false` if it has changed since.
    fn replace(&self, seen: Revision, quota: Object) -> Pending<'_, bool>;
}

/// A write that asks for a share of the quotas.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Usage of the object as it will be stored.
    pub usage: Usage,
    /// Usage of the object as it is stored; `None` for a new object.
    pub before: Option<Usage>,
    /// Beginning of the keys of its resource in the store.
    pub key_prefix: String,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

/// Why a write gets no share.
pub enum Refusal {
    /// A quota does not allow it.
    Exceeded(String),
    /// No decision was made.
    Failed(Status),
}

/// The usage of one quota in a snapshot of the store.
#[derive(Clone, Debug)]
pub struct Total {
    /// Identity of the quota.
    pub uid: String,
    /// `spec.hard` of the quota that was counted.
    pub hard: Value,
    /// The usage of each resource in `hard`.
    pub used: Amounts,
}

/// A recount under way. Dropping it ends the recount.
pub struct Recount {
    account: Arc<Account>,
    id: u64,
    store: Arc<dyn QuotaStore>,
}

impl Ledger {
    /// Returns the account of a namespace, after removing those of namespaces without quotas if the number of accounts
    /// has doubled since the last time. A server whose controller recounts calls [`Ledger::forget`]; this is for servers
    /// that run no such controller.
    fn account(&self, store: &dyn QuotaStore, namespace: &str) -> Arc<Account> {
        let mut accounts = self.accounts.lock();
        if accounts.by_namespace.len() >= UNSWEPT.max(2 * accounts.swept)
            && !accounts.by_namespace.contains_key(namespace)
        {
            accounts.by_namespace.retain(|namespace, account| is_used(account) || store.has_any(namespace));
            accounts.swept = accounts.by_namespace.len();
        }
        let account = accounts.by_namespace.entry_ref(namespace);
        account.or_insert_with(|| Arc::new(Account::new(namespace))).clone()
    }

    /// Removes the account of a namespace without quotas. Returns `false` if a write or a recount still uses it.
    pub fn forget(&self, namespace: &str) -> bool {
        let accounts = &mut self.accounts.lock().by_namespace;
        let is_used = accounts.get(namespace).is_some_and(is_used);
        if !is_used {
            accounts.remove(namespace);
        }
        !is_used
    }

    /// Takes a share of the quotas of a namespace. Returns `None` for a dry run that the quotas allow.
    ///
    /// # Errors
    /// A quota does not allow it, or no decision was made in time. Nothing is taken then.
    pub async fn take(
        &self,
        store: Arc<dyn QuotaStore>,
        namespace: &str,
        ask: Ask,
    ) -> Result<Option<Share>, Refusal> {
        let account = self.account(&*store, namespace);
        let decision = account.request(&store, ask);
        match timeout(DECISION_WAIT, decision).await {
            Ok(Ok(decision)) => decision,
            // In time but without a decision: the decider was ended, as by the end of the process.
            Ok(Err(_)) | Err(_) => Err(Refusal::Failed(timed_out())),
        }
    }

    /// Begins a recount of the quotas of a namespace. Take the snapshot to count after this call. A recount of the same
    /// namespace that is still under way has no effect any more.
    pub fn recount(&self, store: Arc<dyn QuotaStore>, namespace: &str) -> Recount {
        let account = self.account(&*store, namespace);
        let id = account.begin_recount();
        Recount { account, id, store }
    }
}

#[cfg(test)]
impl Ledger {
    /// The namespaces that have an account.
    pub(super) fn namespaces(&self) -> Vec<String> {
        self.accounts.lock().by_namespace.keys().cloned().collect()
    }
}

/// The revision of the counted snapshot that has the keys which begin so.
pub type SnapshotRevision = dyn Fn(&str) -> Revision + Send + Sync;

impl Recount {
    /// Stores `totals` as the status of the quotas, corrected by the writes under way. Returns `false` if a quota was not
    /// among the counted ones or its `spec.hard` has changed since, so that another recount is due.
    ///
    /// # Errors
    /// The store failed.
    pub async fn finish(self, totals: Vec<Total>, at: Box<SnapshotRevision>) -> Result<bool, Status> {
        let done = self.account.finish_recount(&self.store, self.id, totals, at);
        // Without an answer the decider was ended, as by the end of the process.
        done.await.unwrap_or(Ok(false))
    }
}

impl Drop for Recount {
    fn drop(&mut self) {
        self.account.end_recount(self.id);
    }
}

pub(super) fn timed_out() -> Status {
    Status::internal("resource quota evaluation timed out")
}

#[cfg(test)]
#[path = "ledger_test.rs"]
mod tests;
