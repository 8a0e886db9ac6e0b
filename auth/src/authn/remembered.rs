//! Answers of other servers about tokens, kept for some time, so that a client's next requests need no call.
//!
//! A token is known by its digest only. What is kept is the caller's choice: the chain keeps acceptances, the webhook
//! refusals too.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use parking_lot::Mutex;

use super::chain::Accepted;

/// How long an acceptance counts. A token that its issuer takes back works here for this long.
const LIFETIME: Duration = Duration::from_secs(10);

/// Most answers kept; each costs about 1 KiB.
const REMEMBERED_MAX: usize = 8192;

/// Answers by token.
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
    /// Keeps answers for `lifetime`; none if it is zero.
    pub(super) fn new(lifetime: Duration) -> Remembered<A> {
        Remembered { lifetime, answers: Mutex::default() }
    }

    /// The answer about a token for `target`, if there is a recent one of this generation of authenticators.
    pub(super) fn find(&self, token: &str, target: &[String], generation: u64, now: SystemTime) -> Option<A> {
        let key = key(token, target, generation);
        let answers = self.answers.lock();
        let (end, answer) = answers.get(&key)?;
        // A clock that was set back does not make an answer last longer.
        let is_recent = now < *end && end.duration_since(now).is_ok_and(|rest| rest <= self.lifetime);
        is_recent.then(|| answer.clone())
    }

    /// Keeps an answer.
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

/// Digest of everything an answer depends on; each part is preceded by its length.
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
