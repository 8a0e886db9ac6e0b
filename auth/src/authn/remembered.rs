//! Answers of other servers about tokens, kept for some seconds, so that a client's next requests need no call.
//!
//! A token is known by its digest only. Refusals are not kept.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use parking_lot::Mutex;

use super::chain::Accepted;

/// How long an answer counts. A token that its issuer takes back works here for this long.
const LIFETIME: Duration = Duration::from_secs(10);

/// Most answers kept; each costs about 1 KiB.
const REMEMBERED_MAX: usize = 8192;

/// Answers by token.
#[derive(Default)]
pub(super) struct Remembered(Mutex<HashMap<[u8; 32], (SystemTime, Accepted)>>);

impl Remembered {
    /// The answer about a token for `target`, if there is a recent one of this generation of authenticators.
    pub(super) fn find(
        &self,
        token: &str,
        target: &[String],
        generation: u64,
        now: SystemTime,
    ) -> Option<Accepted> {
        let answers = self.0.lock();
        let (end, accepted) = answers.get(&key(token, target, generation))?;
        // A clock that was set back does not make an answer last longer.
        let is_recent = now < *end && end.duration_since(now).is_ok_and(|rest| rest <= LIFETIME);
        is_recent.then(|| accepted.clone())
    }

    /// Keeps an answer.
    pub(super) fn keep(
        &self,
        token: &str,
        target: &[String],
        generation: u64,
        now: SystemTime,
        accepted: &Accepted,
    ) {
        let mut answers = self.0.lock();
        if answers.len() >= REMEMBERED_MAX {
            answers.retain(|_, (end, _)| now < *end);
            if answers.len() >= REMEMBERED_MAX {
                answers.clear();
            }
        }
        answers.insert(key(token, target, generation), (now + LIFETIME, accepted.clone()));
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
