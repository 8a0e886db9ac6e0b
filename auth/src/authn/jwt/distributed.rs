//! Distributed claims: a token can refer to an endpoint that returns a claim (OpenID Connect Core 1.0,
//! section 5.6.2).
//!
//! ```text
//! _claim_names ─► name of a source ─► _claim_sources ─► endpoint, access token ─► a token with the claim
//!                                                                                     └─ verified with its issuer's keys
//! ```
//!
//! Only the groups claim is fetched, and only if the mapping takes the groups from a claim instead of an
//! expression. The returned token can have another issuer. The keys of that issuer are discovered like the
//! keys of a configured issuer. The returned token must have one of the configured audiences. Fetched claims
//! are cached only together with the token that refers to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use go::quote;
use parking_lot::Mutex;
use serde_json::Value;

use super::claims::TokenClaims;
use super::provider::{Fetch, Provider};
use crate::authn::jws;
use crate::strict::text_of;

/// Maximum number of cached issuers of distributed claims. The number needs a limit, because endpoints choose
/// the issuers.
const PROVIDERS_MAX: usize = 64;

/// Minimum time between two attempts to discover the keys of one issuer.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);

/// A resolver of one distributed claim.
pub(super) struct Distributed {
    claim: String,
    fetch: Arc<dyn Fetch>,
    providers: Mutex<HashMap<String, Known>>,
}

struct Known {
    provider: Arc<Provider>,
    attempted: Option<Instant>,
}

/// The endpoint of a claim.
struct Source {
    endpoint: String,
    access_token: String,
}

/// A token with the claim, and the provider of the keys that verify the token.
pub(super) struct Found {
    pub(super) token: String,
    pub(super) provider: Arc<Provider>,
    endpoint: String,
}

impl Distributed {
    pub(super) fn new(claim: String, fetch: Arc<dyn Fetch>) -> Distributed {
        Distributed { claim, fetch, providers: Mutex::default() }
    }

    /// Fetches the token with the claim from an endpoint, if the claims refer to an endpoint. The token is
    /// not verified yet.
    pub(super) async fn find(&self, claims: &TokenClaims) -> Result<Option<Found>, String> {
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

    /// Copies the claim from a verified token to the claims of the token that refers to the endpoint.
    pub(super) fn copy_claim(
        &self,
        found: &Found,
        mut from: TokenClaims,
        claims: &mut TokenClaims,
    ) -> Result<(), String> {
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

    /// Returns the source of the claim, if the claim is distributed.
    /// [`Registered::read`](super::claims::Registered::read) has checked `claims`: the members have the right
    /// types, and every named source exists.
    fn source(&self, claims: &TokenClaims) -> Result<Option<Source>, String> {
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
        // A source without an endpoint contains the claims (aggregated claims). Aggregated claims are not
        // supported.
        Ok(source.filter(|source| !source.endpoint.is_empty()))
    }

    /// Returns the provider of an issuer's keys, or `None` if the keys cannot be discovered now.
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
