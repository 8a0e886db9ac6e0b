//! Service account tokens: signed claims that name a service account
//! (docs/api/authentication.md#service-account-tokens).
//!
//! ```text
//! token ─ issuer ours? ─ signature (cached by digest) ─ audience ─┬ bound:  dates ─ account ─ bound object ─┬► User
//!                                                                 └ legacy: secret ─ account ───────────────┘
//! ```
//!
//! Only the result of the signature check is cached. Dates, audiences and objects are checked at every use,
//! so a token expires when its account or pod is deleted. A token without audiences is valid for this server.
//! Replacing the keys also replaces the cache, so that a token is refused after its key was removed.

mod accounts;
mod bound;
mod claims;
mod external_signer;
mod issue;
mod legacy;
mod token_error;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};

use super::authenticator::{Accepted, Cause, TokenAuthenticator};
use super::jws::{self, Compact};
use super::signing::{is_signed, is_signed_by_named};
use super::{NameDomains, VerificationKey, sha256};
pub use accounts::{AccountSource, Incarnation, Reference, TokenSecret};
use claims::AccountClaims;
pub use external_signer::{AnswerError, assemble, key_id_of};
pub use issue::{Draft, Drafts, Issued, TokenIssueError, TokenIssuer, TokenSpec};
pub use token_error::TokenError;

/// Maximum number of cached signature checks; each takes about 1 KiB.
const REMEMBERED_MAX: usize = 8192;

/// The verified contents of a token.
struct Signed {
    audiences: Vec<String>,
    kind: Kind,
}

enum Kind {
    BoundToken(bound::BoundToken),
    Legacy(legacy::Legacy),
}

/// The authenticator of service account tokens.
pub struct ServiceAccountTokens {
    issuers: HashSet<String>,
    keys: RwLock<Arc<Keys>>,
    accounts: Arc<dyn AccountSource>,
    domains: NameDomains,
    /// Audiences of this server, which apply to tokens without audiences.
    audiences: Vec<String>,
    /// Whether a legacy token must still be in its secret.
    lookup: bool,
    /// Whether an external signer chooses the key ids.
    names_keys: bool,
}

/// The keys, and the cache of tokens that these keys signed.
struct Keys {
    keys: Vec<VerificationKey>,
    signed: Mutex<HashMap<[u8; 32], Arc<Signed>>>,
}

impl Keys {
    fn new(keys: Vec<VerificationKey>) -> RwLock<Arc<Keys>> {
        RwLock::new(Arc::new(Keys { keys, signed: Mutex::default() }))
    }
}

impl ServiceAccountTokens {
    /// Creates an authenticator that accepts tokens of `issuers` and legacy tokens, if one of `keys` signed
    /// them.
    pub fn new(
        issuers: Vec<String>,
        keys: Vec<VerificationKey>,
        accounts: Arc<dyn AccountSource>,
        domains: NameDomains,
    ) -> ServiceAccountTokens {
        ServiceAccountTokens {
            issuers: issuers.into_iter().collect(),
            keys: Keys::new(keys),
            accounts,
            domains,
            audiences: Vec::new(),
            lookup: true,
            names_keys: false,
        }
    }

    /// Sets the audiences of this server, which apply to tokens without audiences.
    #[must_use]
    pub fn with_audiences(mut self, audiences: Vec<String>) -> ServiceAccountTokens {
        self.audiences = audiences;
        self
    }

    /// Replaces the keys. Tokens that other keys signed are refused from then on.
    pub fn replace_keys(&self, keys: Vec<VerificationKey>) {
        *self.keys.write() = Keys::new(keys).into_inner();
    }

    /// Accepts legacy tokens without a lookup of their secrets (`--service-account-lookup=false`).
    #[must_use]
    pub fn without_lookup(mut self) -> ServiceAccountTokens {
        self.lookup = false;
        self
    }

    /// Treats key ids as ids of an external signer: a token with an unknown key id is refused. Without this
    /// setting, all keys are tried for such a token.
    #[must_use]
    pub fn with_named_keys(mut self) -> ServiceAccountTokens {
        self.names_keys = true;
        self
    }

    /// Returns the key id in a token of one of the issuers, if no known key has this id.
    pub fn unknown_key(&self, token: &str) -> Option<String> {
        let issuer = jws::unverified_issuer(token)?;
        if !self.issuers.contains(&issuer) && issuer != self.domains.legacy_issuer() {
            return None;
        }
        let id = Compact::parse(token).ok()?.header.kid;
        let keys = self.keys.read().clone();
        (!id.is_empty() && !keys.keys.iter().any(|key| key.id() == id)).then_some(id)
    }

    /// Verifies a token for the audiences `target` and returns its account. Returns `None` if the token names
    /// another issuer.
    ///
    /// # Errors
    /// Fails if the token names one of the issuers and is refused.
    pub fn verify(
        &self,
        token: &str,
        target: &[String],
        now: SystemTime,
    ) -> Result<Option<Accepted>, TokenError> {
        let Some(signed) = self.signed(token)? else { return Ok(None) };
        let named = if signed.audiences.is_empty() { &self.audiences } else { &signed.audiences };
        let audiences: Vec<String> =
            target.iter().filter(|audience| named.contains(audience)).cloned().collect();
        if audiences.is_empty() {
            return Err(TokenError::Audience { token: named.clone(), target: target.to_vec() });
        }
        let user = match &signed.kind {
            Kind::BoundToken(bound) => {
                bound.check(&*self.accounts, now)?;
                bound.user(&self.domains)
            }
            Kind::Legacy(legacy) => {
                if self.lookup {
                    legacy.check(&*self.accounts, token)?;
                }
                legacy.user()
            }
        };
        Ok(Some(Accepted { user: Arc::new(user), audiences }))
    }

    /// Parses the token and verifies its signature, or returns the cached result.
    fn signed(&self, token: &str) -> Result<Option<Arc<Signed>>, TokenError> {
        let digest = sha256(token.as_bytes());
        let keys = self.keys.read().clone();
        if let Some(signed) = keys.signed.lock().get(&digest) {
            return Ok(Some(signed.clone()));
        }
        let is_legacy = match jws::unverified_issuer(token) {
            Some(issuer) if issuer == self.domains.legacy_issuer() => true,
            Some(issuer) if self.issuers.contains(&issuer) => false,
            _ => return Ok(None),
        };
        let Ok(token) = Compact::parse(token) else { return Ok(None) };
        let is_signed = if self.names_keys { is_signed_by_named } else { is_signed };
        if !is_signed(&token, &keys.keys) {
            return Err(TokenError::Signature);
        }
        let claims = AccountClaims::read(&token.payload)?;
        let kind = if is_legacy {
            Kind::Legacy(legacy::Legacy::read(&claims, &self.domains)?)
        } else {
            Kind::BoundToken(bound::BoundToken::read(&claims, &self.domains)?)
        };
        let signed = Arc::new(Signed { audiences: claims.audiences, kind });
        let mut remembered = keys.signed.lock();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(digest, signed.clone());
        Ok(Some(signed))
    }
}

impl TokenAuthenticator for ServiceAccountTokens {
    fn authenticate(
        &self,
        token: &str,
        target: &[String],
        now: SystemTime,
    ) -> Result<Option<Accepted>, Cause> {
        Ok(self.verify(token, target, now)?)
    }

    fn knows_audiences(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
