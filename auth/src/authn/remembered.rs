//! A cache of other servers' responses about tokens, so that the next requests of a client need no call.
//!
//! Tokens are identified by their digest only. The caller decides which responses it keeps: the chain keeps
//! acceptances, the webhook also keeps refusals.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use parking_lot::Mutex;

use super::authenticator::Accepted;

/// Lifetime of a cached acceptance. A token that its issuer revokes still works here for this long.
const LIFETIME: Duration = Duration::from_secs(10);

/// Maximum number of cached responses; each takes about 1 KiB.
const REMEMBERED_MAX: usize = 8192;

/// Cached responses, by the digest of the token.
pub(super) struct Remembered<A> {
    lifetime: Duration,
    answers: Mutex<HashMap<[u8; 32], (SystemTime, A)>>,
}

impl Default for Remembered<Accepted> {
    fn default() -> Remembered<Accepted> {
        Remembered::new(LIFETIME)
    }
}

impl<A: Clone> Remembered<A> {
    /// Creates a cache that keeps responses for `lifetime`; zero disables it.
    pub(super) fn new(lifetime: Duration) -> Remembered<A> {
        Remembered { lifetime, answers: Mutex::default() }
    }

    /// Returns the cached response about a token for `target`, if it is recent and of this generation of
    /// authenticators.
    pub(super) fn find(&self, token: &str, target: &[String], generation: u64, now: SystemTime) -> Option<A> {
        let key = key(token, target, generation);
        let answers = self.answers.lock();
        let (end, answer) = answers.get(&key)?;
        // A clock that was set back does not extend the lifetime of a response.
        let is_recent = now < *end && end.duration_since(now).is_ok_and(|rest| rest <= self.lifetime);
        is_recent.then(|| answer.clone())
    }

    /// Stores a response about a token.
    pub(super) fn keep(&self, token: &str, target: &[String], generation: u64, now: SystemTime, answer: A) {
        let Some(end) = now.checked_add(self.lifetime).filter(|end| now < *end) else { return };
        let key = key(token, target, generation);
        let mut answers = self.answers.lock();
        if answers.len() >= REMEMBERED_MAX {
            answers.retain(|_, (end, _)| now < *end);
            if answers.len() >= REMEMBERED_MAX {
                answers.clear();
            }
        }
        answers.insert(key, (end, answer));
    }
}

/// Returns the digest of everything that a response depends on. Each part is preceded by its length.
fn key(token: &str, target: &[String], generation: u64) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&generation.to_be_bytes());
    for part in std::iter::once(token).chain(target.iter().map(String::as_str)) {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let mut id = [0; 32];
    id.copy_from_slice(context.finish().as_ref());
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn an_answer_counts_for_its_lifetime_by_any_clock() {
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        let target = ["a".to_owned()];
        let remembered = Remembered::new(Duration::from_secs(5));
        remembered.keep("t", &target, 0, at(100), 7);
        for (token, target, generation, now, want) in [
            ("t", &target[..], 0, 100, Some(7)),
            ("t", &target, 0, 104, Some(7)),
            ("t", &target, 0, 105, None),
            ("t", &target, 0, 99, None), // the clock was set back
            ("t", &target, 1, 100, None),
            ("t", &[], 0, 100, None),
            ("ta", &[], 0, 100, None),
        ] {
            let found = remembered.find(token, target, generation, at(now));
            assert_eq!(found, want, "{token} {target:?} {generation} {now}");
        }
        let never = Remembered::new(Duration::ZERO);
        never.keep("t", &target, 0, at(100), 7);
        assert_eq!(never.find("t", &target, 0, at(100)), None);
        let forever = Remembered::new(Duration::MAX);
        forever.keep("t", &target, 0, at(100), 7);
        assert_eq!(forever.find("t", &target, 0, at(100)), None);
    }

    #[test]
    fn answers_are_bounded() {
        let remembered = Remembered::new(Duration::from_secs(5));
        for at in 0..=REMEMBERED_MAX {
            remembered.keep(&at.to_string(), &[], 0, UNIX_EPOCH, at);
        }
        assert!(remembered.answers.lock().len() <= REMEMBERED_MAX);
    }
}
