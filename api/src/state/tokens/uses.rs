//! Secrets whose legacy tokens are in use: authentication names them, and a controller writes the day on them
//! (docs/api/authentication.md#service-account-tokens).

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::values::clock;
use crate::values::naming::Naming;

/// Most secrets that wait. What finds no room is named again by the next use of its token.
const WAITING_MAX: usize = 1024;

/// Secrets in use on which the day is not written yet, by namespace and name.
#[derive(Debug, Default)]
pub struct TokenUses {
    waiting: Mutex<BTreeSet<(String, String)>>,
    arrived: Notify,
}

impl TokenUses {
    /// Adds a secret.
    pub fn add(&self, namespace: &str, secret: &str) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING_MAX {
            waiting.insert((namespace.to_owned(), secret.to_owned()));
            self.arrived.notify_one();
        }
    }

    /// Takes one that waits, or the next one. For one caller at a time.
    pub async fn next(&self) -> (String, String) {
        loop {
            if let Some(found) = self.waiting.lock().pop_first() {
                return found;
            }
            self.arrived.notified().await;
        }
    }
}

/// The label of a secret that says on which day its token was used last.
pub fn last_used_label(naming: &Naming) -> String {
    naming.label("legacy-token-last-used")
}

/// The day as the label says it.
pub fn today() -> String {
    clock::now().chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_secret_waits_once_and_only_so_many_wait() {
        let uses = TokenUses::default();
        for at in 0..WAITING_MAX + 5 {
            uses.add("ns", &format!("{at:04}"));
            uses.add("ns", &format!("{at:04}"));
        }
        for at in 0..WAITING_MAX {
            assert_eq!(uses.next().await, ("ns".to_owned(), format!("{at:04}")));
        }
        let (next, ()) = tokio::join!(uses.next(), async { uses.add("ns", "later") });
        assert_eq!(next.1, "later");
    }

    #[test]
    fn days_have_the_form_of_the_label() {
        let digits: String = today().chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(digits, "0000-00-00");
    }
}
