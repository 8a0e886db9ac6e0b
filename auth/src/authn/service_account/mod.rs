//! Service account tokens: signed claims that name an account (docs/api/authentication.md#service-account-tokens).
//!
//! ```text
//! token ─ issuer ours? ─ signature (remembered by digest) ─ audience ─┬ bound:  dates ─ account ─ bound object ─┬► User
//!                                                                     └ legacy: secret ─ account ───────────────┘
//! ```
//!
//! Only the result of the signature check is cached. Dates, audiences and objects are checked at every use, so a
//! token ends as soon as its account or pod is deleted. A token without audiences is for this server. Keys are replaced
//! together with that cache, so that no token outlives the key that it was checked with.

mod bound;
mod claims;
mod elsewhere;
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
pub use elsewhere::{AnswerError, assemble, key_id_of};
pub use issue::{Draft, Drafts, IssueError, Issued, TokenIssuer, TokenSpec};

/// Most cached signature checks; each costs about 1 KiB.
const REMEMBERED_MAX: usize = 8192;

/// One existence of a named object, from its creation to its deletion.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Incarnation {
    /// Its uid.
    pub uid: String,
    /// Time of its deletion, if it is being deleted.
    pub deleted: Option<SystemTime>,
}

/// The secret of a legacy token.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TokenSecret {
    /// Whether it is being deleted.
    pub is_deleted: bool,
    /// Its uid.
    pub uid: String,
    /// The token in it.
    pub token: Vec<u8>,
    /// The label that says that the token, unused for long, counts no more.
    pub invalid_by: Option<String>,
    /// Whether a label says that the token was used today.
    pub is_use_noted: bool,
}

/// Looks up accounts and the objects that tokens are bound to. Must not wait for I/O.
pub trait AccountSource: Send + Sync {
    /// The service account `name` in `namespace`.
    fn service_account(&self, namespace: &str, name: &str) -> Option<Incarnation>;
    /// The pod `name` in `namespace`.
    fn pod(&self, namespace: &str, name: &str) -> Option<Incarnation>;
    /// The secret `name` in `namespace`.
    fn secret(&self, namespace: &str, name: &str) -> Option<Incarnation>;
    /// The node `name`.
    fn node(&self, name: &str) -> Option<Incarnation>;
    /// The secret `name` in `namespace` as the place of a legacy token.
    fn token_secret(&self, namespace: &str, name: &str) -> Option<TokenSecret>;
    /// Takes note that the token of a secret is used today; `uid` is that of the secret.
    fn note_use(&self, namespace: &str, secret: &str, uid: &str);
}

/// Why a token of this server's issuers is refused. The texts are those of kube-apiserver, which token reviews show.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// No known key verifies the signature.
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
    /// The claims are no JSON object.
    #[error("service account token claims are malformed")]
    Malformed,
    /// A claim is of another JSON type.
    #[error("{0}")]
    WrongType(String),
    /// A time is no number.
    #[error("go-jose/go-jose/jwt: expected number value to unmarshal NumericDate")]
    NoDate,
    /// The audiences are no text and no list of texts.
    #[error("go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience")]
    NoAudience,
    /// Past `exp`.
    #[error("service account token has expired")]
    Expired,
    /// Before `nbf`.
    #[error("service account token is not valid yet")]
    NotYetValid,
    /// Before `iat`.
    #[error("service account token is issued in the future")]
    IssuedInFuture,
    /// None of the token's audiences is accepted here.
    #[error("token audiences {} is invalid for the target audiences {}", QuotedList(.token), QuotedList(.target))]
    Audience {
        /// The audiences of the token.
        token: Vec<String>,
        /// The audiences that the check asked for.
        target: Vec<String>,
    },
    /// The token names no account.
    #[error("resource name may not be empty")]
    NoName,
    /// The token names no namespace, and there is no such account outside of one.
    #[error("the server could not find the requested resource")]
    NoNamespace,
    /// The account does not exist.
    #[error("serviceaccounts \"{0}\" not found")]
    NoAccount(String),
    /// The account is being deleted.
    #[error("service account {namespace}/{name} has been deleted")]
    AccountDeleted {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The bound object is gone.
    #[error("service account token has been invalidated")]
    Invalidated,
    /// Another object has the name now.
    #[error("{kind} UID ({current}) does not match {claim} ({claimed})")]
    OtherIncarnation {
        /// The kind of the object.
        kind: &'static str,
        /// Its current uid.
        current: String,
        /// What names the claim.
        claim: &'static str,
        /// The uid in the token.
        claimed: String,
    },
    /// A legacy token lacks a claim.
    #[error("{0} claim is missing")]
    MissingClaim(&'static str),
    /// A legacy token whose subject is not its account.
    #[error("sub claim is invalid")]
    OtherSubject,
    /// The secret of a legacy token is gone.
    #[error("Token has been invalidated")]
    SecretGone,
    /// The secret of a legacy token has another token.
    #[error("Token does not match server's copy")]
    OtherToken,
    /// The account of a legacy token is being deleted.
    #[error("ServiceAccount {namespace}/{name} has been deleted")]
    LegacyAccountDeleted {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Another account has the name of a legacy token's account.
    #[error("ServiceAccount UID ({current}) does not match claim ({claimed})")]
    OtherAccount {
        /// The uid of the account.
        current: String,
        /// The uid in the token.
        claimed: String,
    },
    /// A legacy token that was unused for long.
    #[error(
        "the token in secret {namespace}/{secret} for service account {namespace}/{account} has been marked invalid. \
         Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{label}' label \
         from the secret to temporarily allow use of this token"
    )]
    MarkedInvalid {
        /// Namespace of the secret and the account.
        namespace: String,
        /// The secret.
        secret: String,
        /// The account.
        account: String,
        /// The label that marks it.
        label: String,
    },
}

/// A named object and its uid.
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
    /// Audiences of tokens that name none.
    audiences: Vec<String>,
    /// Whether the secrets of legacy tokens are looked up.
    lookup: bool,
    /// Whether the keys have the names that a signer elsewhere gave them.
    names_keys: bool,
}

/// Keys, and the tokens that they were seen to have signed.
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
    /// Accepts tokens of any of `issuers`, and legacy tokens, signed by any of `keys`.
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

    /// Sets the audiences of tokens that name none: those of this server.
    #[must_use]
    pub fn with_audiences(mut self, audiences: Vec<String>) -> ServiceAccountTokens {
        self.audiences = audiences;
        self
    }

    /// Verifies with these keys from now on. Tokens of keys that are not among them are refused.
    pub fn replace_keys(&self, keys: Vec<VerificationKey>) {
        *self.keys.write() = Keys::new(keys).into_inner();
    }

    /// Accepts legacy tokens without their secret (`--service-account-lookup=false`).
    #[must_use]
    pub fn without_lookup(mut self) -> ServiceAccountTokens {
        self.lookup = false;
        self
    }

    /// The keys have names of a signer elsewhere: a token that names an unknown one is signed by none of them.
    #[must_use]
    pub fn with_named_keys(mut self) -> ServiceAccountTokens {
        self.names_keys = true;
        self
    }

    /// The id of the key of a token that is of one of the issuers, if it names one that is not known.
    pub fn unknown_key(&self, token: &str) -> Option<String> {
        let issuer = jws::unverified_issuer(token)?;
        if !self.issuers.contains(&issuer) && issuer != self.domains.legacy_issuer() {
            return None;
        }
        let id = Compact::parse(token).ok()?.header.kid;
        let keys = self.keys.read().clone();
        (!id.is_empty() && !keys.keys.iter().any(|key| key.id() == id)).then_some(id)
    }

    /// The account of a token with one of the audiences `target`; `None` if it is not a token of one of the issuers.
    ///
    /// # Errors
    /// The token is of one of the issuers and is refused.
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

    /// Parses the token and verifies its signature, or takes both from the cache.
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
        let kind = match is_legacy {
            true => Kind::Legacy(legacy::Legacy::read(&claims, &self.domains)?),
            false => Kind::Bound(bound::Bound::read(&claims, &self.domains)?),
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
