//! Tokens of other issuers: OpenID Connect providers, and whatever else signs JSON web tokens and publishes its keys
//! (docs/api/authentication.md#issuers).
//!
//! ```text
//! token ─ iss (not verified) ─► issuer ─ claims of time and audience ─ signature ─► claims ─ mapping, rules ─► User
//!                                  └─ keys: discovery, then a key set that is read again when no key verifies
//! ```
//!
//! The issuer is only asked for its keys, never about a token. The texts of errors are those of kube-apiserver, which
//! token reviews show; clients see nothing of them.

mod claims;
mod distributed;
pub mod expression;
pub mod file;
mod issuer;
mod provider;
pub mod settings;
mod validate;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::RwLock;

use super::chain::{Accepted, Answer, RemoteTokenAuthenticator};
use super::{Cause, NameDomains, jws};
pub use issuer::{Issuer, TokenRefused};
pub use provider::{Answered, Answering, Fetch, Provider};
pub use settings::Settings;

/// The issuers whose tokens are accepted, replaced as a whole when their configuration changes.
pub struct Issuers {
    issuers: RwLock<Arc<[Arc<Issuer>]>>,
    generation: AtomicU64,
    domains: NameDomains,
}

impl Issuers {
    /// Accepts the tokens of `issuers`.
    pub fn new(issuers: Vec<Arc<Issuer>>, domains: NameDomains) -> Issuers {
        Issuers { issuers: RwLock::new(issuers.into()), generation: AtomicU64::new(0), domains }
    }

    /// Accepts the tokens of other issuers from now on; what was remembered of tokens counts no more.
    pub fn replace(&self, issuers: Vec<Arc<Issuer>>) {
        *self.issuers.write() = issuers.into();
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The issuers.
    pub fn all(&self) -> Arc<[Arc<Issuer>]> {
        self.issuers.read().clone()
    }
}

impl RemoteTokenAuthenticator for Issuers {
    fn authenticate<'t>(&'t self, token: &'t str, _: &'t [String], now: SystemTime) -> Answer<'t> {
        Box::pin(async move {
            let Some(named) = jws::unverified_issuer(token) else { return Ok(None) };
            let issuers = self.all();
            let Some(issuer) = issuers.iter().find(|issuer| issuer.url() == named) else { return Ok(None) };
            let user = issuer.user(token, &self.domains, now).await.map_err(Cause::Issuer)?;
            Ok(Some(Accepted::for_this_server(Arc::new(user))))
        })
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
