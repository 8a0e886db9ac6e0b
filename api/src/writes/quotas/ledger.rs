//! The quota accounts of all namespaces that have quotas: writes take shares of the quotas, recounts correct
//! the usage.
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
//! The decider waits only for the store. A write waits only for its decision, and holds no share while it
//! waits. A recount counts concurrently with the writes and waits for none of them. Therefore these tasks
//! cannot deadlock. (An earlier protocol could deadlock: a recount held the turn of the namespace until all
//! shares were closed, and the owners of these shares waited for the same turn.)
//!
//! # How a recount counts each write once
//!
//! A recount begins in the book, then takes a snapshot S of the store, counts S, and hands the totals to the
//! decider. The usage that the decider stores for a quota is the sum of
//! - the total in S,
//! - the shares that were kept at a revision after S since the recount began: they are not in S,
//! - the open shares: they may be in S or not. If a share is later kept at a revision in S, it was counted
//!   twice, and the decider then subtracts it once. If a share is dropped, the decider subtracts the amount
//!   that this sum contains for it.
//!
//! A share that was kept before the recount began is in S, because a write is visible before its share is
//! kept. So the usage is never too low, and it is exact as soon as the shares that are open at that time are
//! closed.
//!
//! A crash between the update of a quota and the write leaves the usage too high; the recount at the next
//! start corrects it.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::account::{Account, Share, is_used};
use super::inputs::{Ask, QuotaStore, Refusal, SnapshotRevision, Total, timed_out};
use values::status::Status;

/// Longest wait of a write for its decision, as in kube-apiserver.
const DECISION_WAIT: Duration = Duration::from_secs(10);

/// Minimum number of accounts at which the ledger removes accounts of namespaces without quotas.
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

/// A recount under way. Dropping it ends the recount.
pub struct Recount {
    account: Arc<Account>,
    id: u64,
    store: Arc<dyn QuotaStore>,
}

impl Ledger {
    /// Returns the account of a namespace. If the number of accounts has doubled since the last removal, this
    /// first removes the accounts of namespaces without quotas. A server whose controller recounts calls
    /// [`Ledger::forget`]; the removal here is for servers without that controller.
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
    /// it.
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
    /// A quota does not allow the write, or no decision was made in time. Nothing is taken in these cases.
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
            // The decision timed out, or the decider was stopped, as at the end of the process.
            Ok(Err(_)) | Err(_) => Err(Refusal::Failed(timed_out())),
        }
    }

    /// Begins a recount of the quotas of a namespace. Take the snapshot to count after this call. A recount
    /// of the same namespace that is still under way loses its effect.
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
    /// Stores `totals` as the status of the quotas, corrected by the writes under way. Returns `false` if a
    /// quota was not among the counted ones or its `spec.hard` has changed since, so that another recount is
    /// due.
    ///
    /// # Errors
    /// Fails if the store failed.
    pub async fn finish(self, totals: Vec<Total>, at: Box<SnapshotRevision>) -> Result<bool, Status> {
        let done = self.account.finish_recount(&self.store, self.id, totals, at);
        // The channel closes without an answer if the decider was stopped, as at the end of the process.
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
