//! A cache for the responses of other servers about tokens, so that the next requests of a client need no
//! call.
//!
//! The cache contains only digests of tokens. The caller decides which responses are cached: the chain caches
//! only accepted tokens, and the webhook authenticator also caches refusals.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use parking_lot::Mutex;

use super::authenticator::Accepted;

/// Lifetime of a cached response about an accepted token. If an issuer revokes a token, this server may still
/// accept the token for this time.
const LIFETIME: Duration = Duration::from_secs(10);

/// Maximum number of cached responses; each takes about 1 KiB.
const REMEMBERED_MAX: usize = 8192;

/// Cached responses, by the digest of the token.
pub(super) struct TokenResponseCache<A> {
    lifetime: Duration,
    answers: Mutex<HashMap<[u8; 32], (SystemTime, A)>>,
}

impl Default for TokenResponseCache<Accepted> {
    fn default() -> TokenResponseCache<Accepted> {
        TokenResponseCache::new(LIFETIME)
    }
}

impl<A: Clone> TokenResponseCache<A> {
    /// Creates a cache that keeps responses for `lifetime`. Zero disables the cache.
    pub(super) fn new(lifetime: Duration) -> TokenResponseCache<A> {
        TokenResponseCache { lifetime, answers: Mutex::default() }
    }

    /// Returns the cached response about a token for the audiences `target`, if the response is recent and
    /// has this generation of authenticators.
    pub(super) fn find(&self, token: &str, target: &[String], generation: u64, now: SystemTime) -> Option<A> {
        let key = key(token, target, generation);
        let answers = self.answers.lock();
        let (end, answer) = answers.get(&key)?;
        // A clock that was set back must not extend the lifetime of a response.
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

/// Returns the digest of all data on which a response depends. Each part is preceded by its length.
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
    fn a_cached_token_response_is_used_for_its_lifetime_even_if_the_clock_jumps() {
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        let target = ["a".to_owned()];
        let remembered = TokenResponseCache::new(Duration::from_secs(5));
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
        let never = TokenResponseCache::new(Duration::ZERO);
        never.keep("t", &target, 0, at(100), 7);
        assert_eq!(never.find("t", &target, 0, at(100)), None);
        let forever = TokenResponseCache::new(Duration::MAX);
        forever.keep("t", &target, 0, at(100), 7);
        assert_eq!(forever.find("t", &target, 0, at(100)), None);
    }

    #[test]
    fn the_token_response_cache_is_bounded() {
        let remembered = TokenResponseCache::new(Duration::from_secs(5));
        for at in 0..=REMEMBERED_MAX {
            remembered.keep(&at.to_string(), &[], 0, UNIX_EPOCH, at);
        }
        assert!(remembered.answers.lock().len() <= REMEMBERED_MAX);
    }
}
