//! Tokens of external issuers: OpenID Connect providers, and other signers of JSON web tokens that publish
//! their keys (docs/api/authentication.md#issuers).
//!
//! ```text
//! token ─ iss (not verified) ─► issuer ─ claims of time and audience ─ signature ─► claims ─ mapping, rules ─► User
//!                                  └─ keys: discovery, then a key set that is read again when no key verifies
//! ```
//!
//! The server requests only keys from the issuer, and never sends a token to the issuer. Error texts equal
//! the texts of kube-apiserver. Clients get these texts only in token reviews.

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

use super::authenticator::{Accepted, Answer, Cause, RemoteTokenAuthenticator};
use super::{NameDomains, jws};
pub use issuer::{Issuer, TokenRefused};
pub use provider::{DocumentFuture, Fetch, FetchedDocument, Provider};
pub use settings::Settings;

/// The issuers whose tokens are accepted. A change of the configuration replaces all issuers.
pub struct Issuers {
    issuers: RwLock<Arc<[Arc<Issuer>]>>,
    generation: AtomicU64,
    domains: NameDomains,
}

impl Issuers {
    /// Creates an authenticator that accepts tokens of `issuers`.
    pub fn new(issuers: Vec<Arc<Issuer>>, domains: NameDomains) -> Issuers {
        Issuers { issuers: RwLock::new(issuers.into()), generation: AtomicU64::new(0), domains }
    }

    /// Replaces the accepted issuers and invalidates cached results.
    pub fn replace(&self, issuers: Vec<Arc<Issuer>>) {
        *self.issuers.write() = issuers.into();
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns the accepted issuers.
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
