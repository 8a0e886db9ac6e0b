//! Legacy tokens that are in use: authentication records their secrets, and a controller writes the day to
//! the secrets (docs/api/authentication.md#service-account-tokens).

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use values::naming::Naming;

/// Maximum number of secrets whose last-used label is still to be written. A secret beyond the limit is
/// recorded again at the next use of its token.
const WAITING_MAX: usize = 1024;

/// A secret whose token is in use.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct TokenUse {
    /// Namespace of the secret.
    pub namespace: String,
    /// Name of the secret.
    pub secret: String,
    /// The uid of the secret.
    pub uid: String,
}

/// Token secrets in use whose last-used date has not been stored yet.
#[derive(Debug, Default)]
pub struct TokenUses {
    waiting: Mutex<BTreeSet<TokenUse>>,
    arrived: Notify,
}

impl TokenUses {
    /// Adds a secret whose token was used.
    pub fn add(&self, namespace: &str, secret: &str, uid: &str) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING_MAX {
            let [namespace, secret, uid] = [namespace, secret, uid].map(str::to_owned);
            waiting.insert(TokenUse { namespace, secret, uid });
            self.arrived.notify_one();
        }
    }

    /// Waits until there is at least one waiting secret, and takes all waiting secrets. Only one caller may
    /// wait at a time.
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

/// Returns the label of a secret with the day of the last use of its token.
pub fn last_used_label(naming: &Naming) -> String {
    naming.label("legacy-token-last-used")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn token_uses_wait_once_for_each_secret_up_to_a_limit() {
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
