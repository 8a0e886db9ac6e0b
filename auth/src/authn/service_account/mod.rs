//! Service account tokens: signed claims that name an account
//! (docs/api/authentication.md#service-account-tokens).
//!
//! ```text
//! token ─ issuer ours? ─ signature (cached by digest) ─ audience ─┬ bound:  dates ─ account ─ bound object ─┬► User
//!                                                                 └ legacy: secret ─ account ───────────────┘
//! ```
//!
//! Only the result of the signature check is cached. Dates, audiences and objects are checked at every use,
//! so a token ends as soon as its account or pod is deleted. A token without audiences is for this server.
//! Replacing the keys also replaces the cache, so that no token outlives the key that verified it.

mod bound;
mod claims;
mod external_signer;
mod issue;
mod legacy;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use go::QuotedList;
use parking_lot::{Mutex, RwLock};
use serde::Serialize;

use super::chain::Accepted;
use super::jws::{self, Compact};
use super::signing::{is_signed, is_signed_by_named};
use super::{Cause, NameDomains, TokenAuthenticator, VerificationKey, sha256};
use claims::Claims;
pub use external_signer::{AnswerError, assemble, key_id_of};
pub use issue::{Draft, Drafts, IssueError, Issued, TokenIssuer, TokenSpec};

/// Maximum number of cached signature checks; each takes about 1 KiB.
const REMEMBERED_MAX: usize = 8192;

/// An instance of a named object, from its creation to its deletion.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Incarnation {
    /// Uid of the object.
    pub uid: String,
    /// Deletion time, if the object is being deleted.
    pub deleted: Option<SystemTime>,
}

/// The secret that stores a legacy token.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TokenSecret {
    /// Whether the secret is being deleted.
    pub is_deleted: bool,
    /// Uid of the secret.
    pub uid: String,
    /// Token that the secret contains.
    pub token: Vec<u8>,
    /// Name of the label that marks the token as invalid after a long time without use; `None` if it is not set.
    pub invalid_by: Option<String>,
    /// Whether a label records that the token was used today.
    pub is_use_noted: bool,
}

/// A lookup of service accounts and of the objects that tokens are bound to. Implementations must not wait
/// for I/O.
pub trait AccountSource: Send + Sync {
    /// Returns the service account `name` in `namespace`.
    fn service_account(&self, namespace: &str, name: &str) -> Option<Incarnation>;
    /// Returns the pod `name` in `namespace`.
    fn pod(&self, namespace: &str, name: &str) -> Option<Incarnation>;
    /// Returns the secret `name` in `namespace`.
    fn secret(&self, namespace: &str, name: &str) -> Option<Incarnation>;
    /// Returns the node with this name.
    fn node(&self, name: &str) -> Option<Incarnation>;
    /// Returns the secret `name` in `namespace` with the legacy token that it contains.
    fn token_secret(&self, namespace: &str, name: &str) -> Option<TokenSecret>;
    /// Records that the token of a secret is used today; `uid` is that of the secret.
    fn note_use(&self, namespace: &str, secret: &str, uid: &str);
}

/// Reasons why a token of this server's issuers is refused. The texts are those of kube-apiserver, because
/// token reviews show them.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// No known key verifies the signature.
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
    /// The claims are not a JSON object.
    #[error("service account token claims are malformed")]
    Malformed,
    /// A claim has the wrong JSON type.
    #[error("{0}")]
    WrongType(String),
    /// A time is not a number.
    #[error("go-jose/go-jose/jwt: expected number value to unmarshal NumericDate")]
    NoDate,
    /// The audiences are neither a string nor a list of strings.
    #[error("go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience")]
    NoAudience,
    /// The time is after `exp`.
    #[error("service account token has expired")]
    Expired,
    /// The time is before `nbf`.
    #[error("service account token is not valid yet")]
    NotYetValid,
    /// The time is before `iat`.
    #[error("service account token is issued in the future")]
    IssuedInFuture,
    /// The token has no audience that is accepted here.
    #[error("token audiences {} is invalid for the target audiences {}", QuotedList(.token), QuotedList(.target))]
    Audience {
        /// The audiences of the token.
        token: Vec<String>,
        /// Audiences that the check accepts.
        target: Vec<String>,
    },
    /// The token names no account.
    #[error("resource name may not be empty")]
    NoName,
    /// The token names no namespace.
    #[error("the server could not find the requested resource")]
    NoNamespace,
    /// The account does not exist.
    #[error("serviceaccounts \"{0}\" not found")]
    NoAccount(String),
    /// The account is being deleted.
    #[error("service account {namespace}/{name} has been deleted")]
    AccountDeleted {
        /// Namespace of the account.
        namespace: String,
        /// Name of the account.
        name: String,
    },
    /// The bound object no longer exists.
    #[error("service account token has been invalidated")]
    Invalidated,
    /// A newer object has the name of the bound object.
    #[error("{kind} UID ({current}) does not match {claim} ({claimed})")]
    OtherIncarnation {
        /// Kind of the bound object.
        kind: &'static str,
        /// Uid of the current object.
        current: String,
        /// Name of the claim in messages.
        claim: &'static str,
        /// Uid in the token.
        claimed: String,
    },
    /// A legacy token lacks a claim.
    #[error("{0} claim is missing")]
    MissingClaim(&'static str),
    /// The subject of a legacy token is not its account.
    #[error("sub claim is invalid")]
    OtherSubject,
    /// The secret of a legacy token no longer exists.
    #[error("Token has been invalidated")]
    SecretGone,
    /// The secret of a legacy token contains another token.
    #[error("Token does not match server's copy")]
    OtherToken,
    /// The account of a legacy token is being deleted.
    #[error("ServiceAccount {namespace}/{name} has been deleted")]
    LegacyAccountDeleted {
        /// Namespace of the account.
        namespace: String,
        /// Name of the account.
        name: String,
    },
    /// A newer account has the name of a legacy token's account.
    #[error("ServiceAccount UID ({current}) does not match claim ({claimed})")]
    OtherAccount {
        /// Uid of the current account.
        current: String,
        /// Uid in the token.
        claimed: String,
    },
    /// A legacy token is invalid because it was unused for a long time.
    #[error(
        "the token in secret {namespace}/{secret} for service account {namespace}/{account} has been marked invalid. \
         Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{label}' label \
         from the secret to temporarily allow use of this token"
    )]
    MarkedInvalid {
        /// Namespace of the secret and the account.
        namespace: String,
        /// Name of the secret.
        secret: String,
        /// Name of the account.
        account: String,
        /// Label that marks the token as invalid.
        label: String,
    },
}

/// A reference to an object by name and uid.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Reference {
    /// Name of the object.
    pub name: String,
    /// Uid of the object; empty if it is unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The verified contents of a token.
struct Signed {
    audiences: Vec<String>,
    kind: Kind,
}

enum Kind {
    Bound(bound::Bound),
    Legacy(legacy::Legacy),
}

/// The authenticator of service account tokens.
pub struct ServiceAccountTokens {
    issuers: HashSet<String>,
    keys: RwLock<Arc<Keys>>,
    accounts: Arc<dyn AccountSource>,
    domains: NameDomains,
    /// Audiences of tokens that name no audience.
    audiences: Vec<String>,
    /// Whether the secrets of legacy tokens are looked up.
    lookup: bool,
    /// Whether an external signer chose the key ids.
    names_keys: bool,
}

/// The keys, and the cache of tokens that they signed.
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
    /// Creates an authenticator that accepts tokens of any of `issuers`, and legacy tokens, signed by any of
    /// `keys`.
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

    /// Sets the audiences of tokens that name none, which are this server's own.
    #[must_use]
    pub fn with_audiences(mut self, audiences: Vec<String>) -> ServiceAccountTokens {
        self.audiences = audiences;
        self
    }

    /// Replaces the keys. Tokens of keys that are not in the new set are refused.
    pub fn replace_keys(&self, keys: Vec<VerificationKey>) {
        *self.keys.write() = Keys::new(keys).into_inner();
    }

    /// Accepts legacy tokens without a lookup of their secret (`--service-account-lookup=false`).
    #[must_use]
    pub fn without_lookup(mut self) -> ServiceAccountTokens {
        self.lookup = false;
        self
    }

    /// Treats key ids as chosen by an external signer: a token with an unknown key id is refused, instead of
    /// being tried with all keys.
    #[must_use]
    pub fn with_named_keys(mut self) -> ServiceAccountTokens {
        self.names_keys = true;
        self
    }

    /// Returns the key id of a token of one of the issuers, if the token names a key that is not known.
    pub fn unknown_key(&self, token: &str) -> Option<String> {
        let issuer = jws::unverified_issuer(token)?;
        if !self.issuers.contains(&issuer) && issuer != self.domains.legacy_issuer() {
            return None;
        }
        let id = Compact::parse(token).ok()?.header.kid;
        let keys = self.keys.read().clone();
        (!id.is_empty() && !keys.keys.iter().any(|key| key.id() == id)).then_some(id)
    }

    /// Verifies a token and returns its account, for one of the audiences `target`; `None` if the token does
    /// not name one of the issuers.
    ///
    /// # Errors
    /// The token names one of the issuers and is refused.
    pub fn verify(
        &self,
        token: &str,
        target: &[String],
        now: SystemTime,
    ) -> Result<Option<Accepted>, TokenError> {
        let Some(signed) = self.signed(token)? else { return Ok(None) };
        let named = if signed.audiences.is_empty() { &self.audiences } else { &signed.audiences };
        let audiences: Vec<String> = target.iter().filter(|asked| named.contains(asked)).cloned().collect();
        if audiences.is_empty() {
            return Err(TokenError::Audience { token: named.clone(), target: target.to_vec() });
        }
        let user = match &signed.kind {
            Kind::Bound(bound) => {
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
        let claims = Claims::read(&token.payload)?;
        let kind = if is_legacy {
            Kind::Legacy(legacy::Legacy::read(&claims, &self.domains)?)
        } else {
            Kind::Bound(bound::Bound::read(&claims, &self.domains)?)
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
