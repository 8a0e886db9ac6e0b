//! Legacy tokens that are in use: authentication names their secrets, and a controller writes the day on these
//! (docs/api/authentication.md#service-account-tokens).

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use values::naming::Naming;

/// Most secrets that wait. What finds no room is named again by the next use of its token.
const WAITING_MAX: usize = 1024;

/// A secret whose token is in use.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct TokenUse {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub secret: String,
    /// Its uid.
    pub uid: String,
}

/// Secrets in use on which the day is not written yet.
#[derive(Debug, Default)]
pub struct TokenUses {
    waiting: Mutex<BTreeSet<TokenUse>>,
    arrived: Notify,
}

impl TokenUses {
    /// Adds a secret.
    pub fn add(&self, namespace: &str, secret: &str, uid: &str) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING_MAX {
            let [namespace, secret, uid] = [namespace, secret, uid].map(str::to_owned);
            waiting.insert(TokenUse { namespace, secret, uid });
            self.arrived.notify_one();
        }
    }

    /// Takes all that wait, or those that come next. For one caller at a time.
    pub async fn take(&self) -> BTreeSet<TokenUse> {
        loop {
            let taken = std::mem::take(&mut *self.waiting.lock());
            if !taken.is_empty() {
                return taken;
            }
            self.arrived.notified().await;
        }
    }
}

/// The label of a secret that says on which day its token was used last.
pub fn last_used_label(naming: &Naming) -> String {
    naming.label("legacy-token-last-used")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_secret_waits_once_and_only_so_many_wait() {
        let uses = TokenUses::default();
        for at in 0..WAITING_MAX + 5 {
            uses.add("ns", &format!("{at:04}"), "u");
            uses.add("ns", &format!("{at:04}"), "u");
        }
        let taken: Vec<String> = uses.take().await.into_iter().map(|used| used.secret).collect();
        assert_eq!(taken, (0..WAITING_MAX).map(|at| format!("{at:04}")).collect::<Vec<_>>());
        let (next, ()) = tokio::join!(uses.take(), async { uses.add("ns", "later", "u") });
        assert_eq!(next.first().map(|used| used.secret.as_str()), Some("later"));
    }
}
