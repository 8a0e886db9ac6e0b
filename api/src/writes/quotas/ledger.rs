//! The quota accounts of all namespaces that have quotas. Writes take shares of the quotas, and recounts
//! correct the usage.
//!
//! ```text
//! write ───────► take ──► request ─┐
//!                                  ▼
//!                      Account::book (a short lock, never held across a wait)
//!                                  ▲                     │
//! recount ─► count ─► finish ──────┘                     ▼
//!                                      decider: one task for each namespace, only while there is work
//!                                        1. decides all requests of the book with one update of each quota
//!                                        2. applies a finished recount
//!                                      and answers each request through a channel of its own
//!
//! share ─ kept at revision r ──► book: the write is stored at r
//!       └ dropped ─────────────► book: the amounts are due back; wakes the decider
//! ```
//!
//! The decider waits only for the store. A write waits only for its decision, and owns no share while it
//! waits. A recount runs concurrently with writes and does not wait for writes. Therefore these tasks cannot
//! deadlock. (An earlier protocol could deadlock: a recount held a lock until all shares of the namespace
//! were released, and the owners of these shares waited for the same lock.)
//!
//! # How a recount counts each write once
//!
//! A recount registers in the book, takes a snapshot S of the store, counts S, and sends the totals to the
//! decider. The usage that the decider stores for a quota is the sum of
//! - the total in S,
//! - the shares that were kept after the recount began, at a revision after S: S does not contain their
//!   writes,
//! - the open shares: S may or may not contain their writes. If a share is later kept at a revision in S, its
//!   write was counted twice, and the decider subtracts the share once. If a share is dropped, the decider
//!   subtracts the amounts that this sum contains for the share.
//!
//! The write of a share that was kept before the recount began is in S, because a write is visible before its
//! share is kept. Therefore the usage is never too low. The usage becomes exact when the shares that are open
//! during the recount are closed.
//!
//! If the server crashes between the update of a quota and the write, the usage is too high. The recount at
//! the next start corrects the usage.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::account::{Account, Share, is_used};
use super::inputs::{QuotaRefusal, QuotaRequest, QuotaStore, SnapshotRevision, Total, timed_out};
use values::status::Status;

/// Longest wait of a write for its decision, as in kube-apiserver.
const DECISION_WAIT: Duration = Duration::from_secs(10);

/// Number of accounts below which the ledger does not remove the accounts of namespaces without quotas.
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

/// A recount in progress. Dropping this value ends the recount.
pub struct Recount {
    account: Arc<Account>,
    id: u64,
    store: Arc<dyn QuotaStore>,
}

impl Ledger {
    /// Returns the account of a namespace. If the number of accounts has doubled since the last removal, this
    /// function first removes the accounts of namespaces without quotas. This removal is for servers without
    /// the quota controller, which calls [`Ledger::forget`].
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

    /// Removes the account of a namespace without quotas. Returns `false` if a write or a recount still uses
    /// the account.
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
    /// Fails if a quota does not allow the write, or if no decision was made in time. In both cases, the function takes
    /// no share.
    pub async fn take(
        &self,
        store: Arc<dyn QuotaStore>,
        namespace: &str,
        ask: QuotaRequest,
    ) -> Result<Option<Share>, QuotaRefusal> {
        let account = self.account(&*store, namespace);
        let decision = account.request(&store, ask);
        match timeout(DECISION_WAIT, decision).await {
            Ok(Ok(decision)) => decision,
            // The decision timed out, or the decider was stopped, for example because the process ends.
            Ok(Err(_)) | Err(_) => Err(QuotaRefusal::Failed(timed_out())),
        }
    }

    /// Begins a recount of the quotas of a namespace. Take the snapshot for the count after this call. An
    /// earlier recount of the same namespace that is still in progress will have no effect.
    pub fn recount(&self, store: Arc<dyn QuotaStore>, namespace: &str) -> Recount {
        let account = self.account(&*store, namespace);
        let id = account.begin_recount();
        Recount { account, id, store }
    }
}

#[cfg(test)]
impl Ledger {
    /// Returns the namespaces that have an account.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        self.accounts.lock().by_namespace.keys().cloned().collect()
    }
}

impl Recount {
    /// Stores `totals` as the usage in the status of the quotas, corrected by concurrent writes. Returns
    /// `false` if another recount is needed, because `totals` lacks a quota or the `spec.hard` of a quota has
    /// changed.
    ///
    /// # Errors
    /// Fails if the store failed.
    pub async fn finish(self, totals: Vec<Total>, at: Box<SnapshotRevision>) -> Result<bool, Status> {
        let done = self.account.finish_recount(&self.store, self.id, totals, at);
        // The channel closes without an answer if the decider was stopped, for example because the process
        // ends.
        done.await.unwrap_or(Ok(false))
    }
}

impl Drop for Recount {
    fn drop(&mut self) {
        self.account.end_recount(self.id);
    }
}

#[cfg(test)]
#[path = "ledger_test.rs"]
mod tests;
