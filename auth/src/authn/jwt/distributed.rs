//! Distributed claims: a token may say that a claim is elsewhere, and where (OpenID Connect Core 1.0, section 5.6.2).
//!
//! ```text
//! _claim_names ─► name of a source ─► _claim_sources ─► endpoint, access token ─► a token with the claim
//!                                                                                     └─ verified as its own issuer's
//! ```
//!
//! Only groups are looked up, and only where a claim, not an expression, gives them. The token that comes back may have
//! another issuer: its keys are found as those of any issuer, and it must be for the same audiences. Claims are not
//! remembered beyond the token that names them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use go::quote;
use parking_lot::Mutex;
use serde_json::Value;

use super::claims::Claims;
use super::provider::{Fetch, Provider};
use crate::authn::jws;
use crate::strict::text_of;

/// Most issuers of distributed claims that are remembered: endpoints name them, so there could be any number.
const PROVIDERS_MAX: usize = 64;

/// Least time between two attempts to find the keys of one.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);

/// Finds one claim.
pub(super) struct Distributed {
    claim: String,
    fetch: Arc<dyn Fetch>,
    providers: Mutex<HashMap<String, Known>>,
}

struct Known {
    provider: Arc<Provider>,
    attempted: Option<Instant>,
}

/// A source of claims.
struct Source {
    endpoint: String,
    access_token: String,
}

/// A token with a claim, and the keys that should have signed it.
pub(super) struct Found {
    pub(super) token: String,
    pub(super) provider: Arc<Provider>,
    endpoint: String,
}

impl Distributed {
    pub(super) fn new(claim: String, fetch: Arc<dyn Fetch>) -> Distributed {
        Distributed { claim, fetch, providers: Mutex::default() }
    }

    /// The token that has the claim, if the claims say that it is elsewhere; it is not verified yet.
    pub(super) async fn find(&self, claims: &Claims) -> Result<Option<Found>, String> {
        let Some(Source { endpoint, access_token }) = self.source(claims)? else { return Ok(None) };
        let read = self.fetch.get(&endpoint, Some(access_token.as_str()).filter(|token| !token.is_empty()));
        let failed = |why: String| format!("while getting distributed claim {}: {why}", quote(&self.claim));
        let answered = read.await.map_err(failed)?;
        if !(200..=226).contains(&answered.code) {
            return Err(failed(format!("error while getting distributed claim JWT: {}", answered.status)));
        }
        let token = String::from_utf8_lossy(&answered.body).trim().to_owned();
        let issuer = jws::issuer_named_by(&token).map_err(|why| {
            let claim = quote(&self.claim);
            format!("getting untrusted issuer from endpoint {endpoint} failed for claim {claim}: {why}")
        })?;
        let provider = self.provider(&issuer).await.ok_or_else(|| {
            format!(
                "verifying untrusted issuer {issuer} failed: verifier not initialized for issuer: {}",
                quote(&issuer)
            )
        })?;
        Ok(Some(Found { token, provider, endpoint }))
    }

    /// Puts the claim of a verified token among the claims of the token that named it.
    pub(super) fn put(&self, found: &Found, mut from: Claims, claims: &mut Claims) -> Result<(), String> {
        let Some(value) = from.remove(&self.claim) else {
            return Err(format!(
                "jwt returned by distributed claim endpoint {} did not contain claim: {}",
                quote(&found.endpoint),
                self.claim
            ));
        };
        claims.insert(self.claim.clone(), value);
        Ok(())
    }

    /// Where the claim is, if it is elsewhere. The claims are verified: their members have the right types, and sources
    /// that are named are there.
    fn source(&self, claims: &Claims) -> Result<Option<Source>, String> {
        if claims.contains_key(&self.claim) {
            return Ok(None);
        }
        let Some(names) = claims.get("_claim_names") else { return Ok(None) };
        let sources = claims.get("_claim_sources").ok_or("oidc: no claim sources")?;
        let name = names.get(&self.claim).and_then(Value::as_str);
        let source = name.map(|name| &sources[name]).map(|source| Source {
            endpoint: text_of(source, "endpoint"),
            access_token: text_of(source, "access_token"),
        });
        // A source without an endpoint has the claims in itself; these are not read.
        Ok(source.filter(|source| !source.endpoint.is_empty()))
    }

    /// The keys of an issuer, once they can be found.
    async fn provider(&self, issuer: &str) -> Option<Arc<Provider>> {
        let provider = {
            let mut providers = self.providers.lock();
            if !providers.contains_key(issuer) && providers.len() >= PROVIDERS_MAX {
                providers.clear();
            }
            let known = providers.entry(issuer.to_owned()).or_insert_with(|| Known {
                provider: Arc::new(Provider::new(issuer, None, self.fetch.clone())),
                attempted: None,
            });
            if known.provider.is_ready() {
                return Some(known.provider.clone());
            }
            if known.attempted.is_some_and(|at| at.elapsed() < DISCOVERY_INTERVAL) {
                return None;
            }
            known.attempted = Some(Instant::now());
            known.provider.clone()
        };
        match provider.discover().await {
            Ok(()) => Some(provider),
            Err(error) => {
                tracing::warn!(issuer, %error, "keys of an issuer of distributed claims cannot be discovered");
                None
            }
        }
    }
}
