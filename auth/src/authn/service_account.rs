//! Service account tokens: signed claims that name an account and optionally the pod, secret or node they are bound
//! to (docs/api/authentication.md#service-account-tokens).
//!
//! ```text
//! token ─ issuer ours? ─ signature (remembered by digest) ─ dates ─ audience ─ account ─ bound object ─► User
//! ```
//!
//! Only the result of the signature check is cached. Dates, audiences and objects are checked at every use, so a
//! token ends as soon as its account or pod is deleted. Every claim that a check needs is required: a token without
//! `aud` or `exp` is refused.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::signing::{Unsound, unverified_claims, verified_claims};
use super::{Cause, NameDomains, SigningKey, TokenAuthenticator, VerificationKey, sha256};
use crate::go::QuotedList;
use crate::identity::{User, service_account_groups, service_account_user};

/// Tolerated clock difference, and how long the tokens of a deleted object stay valid.
const LEEWAY: Duration = Duration::from_secs(60);

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
}

/// Why a token of this server's issuers is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// No known key verifies the signature.
    #[error("service account token is not signed by a known key")]
    Signature,
    /// The claims do not have the expected form.
    #[error("service account token claims are malformed: {0}")]
    Malformed(&'static str),
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
    /// The account or the bound object is gone.
    #[error("service account token has been invalidated")]
    Invalidated,
    /// Another object has the name now.
    #[error("{kind} UID ({current}) does not match claim ({claimed})")]
    OtherIncarnation {
        /// The kind of the object.
        kind: &'static str,
        /// Its current uid.
        current: String,
        /// The uid in the token.
        claimed: String,
    },
}

/// The claim that names the account and the bound objects.
#[derive(Deserialize)]
struct Issuer {
    iss: String,
}

/// The claims that every token carries; times in seconds since 1970.
#[derive(Debug, Deserialize)]
struct Claims {
    #[serde(default)]
    sub: String,
    aud: OneOrMany,
    exp: u64,
    nbf: Option<u64>,
    iat: Option<u64>,
    #[serde(default)]
    jti: String,
    #[serde(flatten)]
    other: HashMap<String, serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// The claim under the server's own domain.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Private {
    namespace: String,
    serviceaccount: Reference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnafter: Option<u64>,
}

/// A named object and its uid.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Reference {
    /// Name of the object.
    pub name: String,
    /// Uid of the object.
    pub uid: String,
}

/// The verified contents of a token.
struct Signed {
    subject: String,
    audiences: Vec<String>,
    expires: u64,
    not_before: u64,
    issued: u64,
    id: String,
    private: Private,
}

/// The authenticator of service account tokens.
pub struct ServiceAccountTokens {
    issuers: HashSet<String>,
    keys: Vec<VerificationKey>,
    accounts: Arc<dyn AccountSource>,
    domains: NameDomains,
    signed: Mutex<HashMap<[u8; 32], Arc<Signed>>>,
}

impl ServiceAccountTokens {
    /// Accepts tokens of any of `issuers`, signed by any of `keys`.
    pub fn new(
        issuers: Vec<String>,
        keys: Vec<VerificationKey>,
        accounts: Arc<dyn AccountSource>,
        domains: NameDomains,
    ) -> ServiceAccountTokens {
        ServiceAccountTokens {
            issuers: issuers.into_iter().collect(),
            keys,
            accounts,
            domains,
            signed: Mutex::default(),
        }
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
    ) -> Result<Option<Arc<User>>, TokenError> {
        let Some(signed) = self.signed(token)? else { return Ok(None) };
        check_dates(&signed, now)?;
        if !signed.audiences.iter().any(|audience| target.contains(audience)) {
            return Err(TokenError::Audience { token: signed.audiences.clone(), target: target.to_vec() });
        }
        self.check_objects(&signed.private, now)?;
        Ok(Some(Arc::new(self.user(&signed))))
    }

    /// Parses the token and verifies its signature, or takes both from the cache.
    fn signed(&self, token: &str) -> Result<Option<Arc<Signed>>, TokenError> {
        let digest = sha256(token.as_bytes());
        if let Some(signed) = self.signed.lock().get(&digest) {
            return Ok(Some(signed.clone()));
        }
        match unverified_claims::<Issuer>(token) {
            Some(Issuer { iss }) if self.issuers.contains(&iss) => {}
            _ => return Ok(None),
        }
        let claims: Claims =
            verified_claims(token, &self.keys, &self.issuers).map_err(|unsound| match unsound {
                Unsound::Signature => TokenError::Signature,
                Unsound::Claim(why) => TokenError::Malformed(why),
            })?;
        let signed = Arc::new(self.read(claims)?);
        let mut remembered = self.signed.lock();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(digest, signed.clone());
        Ok(Some(signed))
    }

    fn read(&self, mut claims: Claims) -> Result<Signed, TokenError> {
        let missing = TokenError::Malformed;
        let private = claims.other.remove(self.domains.claim()).ok_or(missing("the account is missing"))?;
        let private: Private =
            serde_json::from_value(private).map_err(|_| missing("the account cannot be read"))?;
        let subject = service_account_user(&private.namespace, &private.serviceaccount.name);
        if claims.sub != subject {
            return Err(missing("sub is not the account"));
        }
        let audiences = match claims.aud {
            OneOrMany::One(audience) => vec![audience],
            OneOrMany::Many(audiences) => audiences,
        };
        Ok(Signed {
            subject,
            audiences,
            expires: claims.exp,
            not_before: claims.nbf.unwrap_or(0),
            issued: claims.iat.unwrap_or(0),
            id: claims.jti,
            private,
        })
    }

    fn check_objects(&self, claimed: &Private, now: SystemTime) -> Result<(), TokenError> {
        let namespace = &claimed.namespace;
        let account = &claimed.serviceaccount;
        let living = self.accounts.service_account(namespace, &account.name);
        check_object("service account", account, living, now)?;
        if let Some(secret) = &claimed.secret {
            check_object("secret", secret, self.accounts.secret(namespace, &secret.name), now)?;
        }
        if let Some(pod) = &claimed.pod {
            check_object("pod", pod, self.accounts.pod(namespace, &pod.name), now)?;
        }
        // For a pod's token the node describes the pod; a token bound to the node itself ends with the node.
        if let (Some(node), None, None) = (&claimed.node, &claimed.pod, &claimed.secret) {
            check_object("node", node, self.accounts.node(&node.name), now)?;
        }
        Ok(())
    }

    fn user(&self, signed: &Signed) -> User {
        let private = &signed.private;
        let mut user = User::new(signed.subject.clone(), service_account_groups(&private.namespace));
        user.uid = private.serviceaccount.uid.clone();
        let mut add = |fact: &str, value: String| {
            user.extra.insert(self.domains.extra(fact), vec![value]);
        };
        if !signed.id.is_empty() {
            add("credential-id", format!("JTI={}", signed.id));
        }
        if let Some(pod) = &private.pod {
            add("pod-name", pod.name.clone());
            add("pod-uid", pod.uid.clone());
        }
        if let Some(node) = &private.node {
            add("node-name", node.name.clone());
            add("node-uid", node.uid.clone());
        }
        user.mark_authenticated();
        user
    }
}

impl TokenAuthenticator for ServiceAccountTokens {
    fn authenticate(
        &self,
        token: &str,
        target: &[String],
        now: SystemTime,
    ) -> Result<Option<Arc<User>>, Cause> {
        Ok(self.verify(token, target, now)?)
    }

    fn knows_audiences(&self) -> bool {
        true
    }
}

fn check_dates(signed: &Signed, now: SystemTime) -> Result<(), TokenError> {
    let seconds = seconds_of(now);
    let leeway = LEEWAY.as_secs();
    if seconds > signed.expires.saturating_add(leeway) {
        Err(TokenError::Expired)
    } else if seconds.saturating_add(leeway) < signed.not_before {
        Err(TokenError::NotYetValid)
    } else if seconds.saturating_add(leeway) < signed.issued {
        Err(TokenError::IssuedInFuture)
    } else {
        Ok(())
    }
}

fn check_object(
    kind: &'static str,
    claimed: &Reference,
    current: Option<Incarnation>,
    now: SystemTime,
) -> Result<(), TokenError> {
    let current = current.ok_or(TokenError::Invalidated)?;
    if current.uid != claimed.uid {
        return Err(TokenError::OtherIncarnation {
            kind,
            current: current.uid,
            claimed: claimed.uid.clone(),
        });
    }
    match current.deleted.map(|since| now.duration_since(since)) {
        Some(Ok(ago)) if ago > LEEWAY => Err(TokenError::Invalidated),
        _ => Ok(()),
    }
}

fn seconds_of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Issues tokens for service accounts.
pub struct TokenIssuer {
    issuer: String,
    key: SigningKey,
    domains: NameDomains,
}

/// Contents of a new token.
#[derive(Clone, Debug)]
pub struct TokenSpec {
    /// Namespace of the account.
    pub namespace: String,
    /// The account.
    pub account: Reference,
    /// Audiences; a token without any is accepted nowhere.
    pub audiences: Vec<String>,
    /// Start of validity.
    pub issued: SystemTime,
    /// Length of validity.
    pub lifetime: Duration,
    /// Age after which a use of the token is noted in the audit record.
    pub warn_after: Option<Duration>,
    /// Pod that the token is bound to.
    pub pod: Option<Reference>,
    /// Secret that the token is bound to.
    pub secret: Option<Reference>,
    /// Node of the pod, or, without pod and secret, the node that the token is bound to.
    pub node: Option<Reference>,
}

/// A new token.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The token.
    pub token: String,
    /// Its id (`jti`), for the audit record.
    pub id: String,
    /// End of validity, in seconds since 1970.
    pub expires: u64,
}

/// The cryptography library returned no signature or no randomness.
#[derive(Debug, thiserror::Error)]
#[error("signing a service account token failed")]
pub struct IssueError;

impl TokenIssuer {
    /// Signs with `key` as `issuer`.
    pub fn new(issuer: impl Into<String>, key: SigningKey, domains: NameDomains) -> TokenIssuer {
        TokenIssuer { issuer: issuer.into(), key, domains }
    }

    /// The public half of the key, which verifies the tokens issued here.
    pub fn public_key(&self) -> &VerificationKey {
        self.key.public()
    }

    /// Issues a token. Costs one signature: tens of microseconds with an elliptic curve, a millisecond with RSA.
    ///
    /// # Errors
    /// The cryptography library failed.
    pub fn issue(&self, spec: &TokenSpec) -> Result<Issued, IssueError> {
        let id = random_uuid().ok_or(IssueError)?;
        let issued = seconds_of(spec.issued);
        let expires = issued.saturating_add(spec.lifetime.as_secs());
        let private = Private {
            namespace: spec.namespace.clone(),
            serviceaccount: spec.account.clone(),
            pod: spec.pod.clone(),
            secret: spec.secret.clone(),
            node: spec.node.clone(),
            warnafter: spec.warn_after.map(|after| issued.saturating_add(after.as_secs())),
        };
        let claims = json!({
            "iss": self.issuer,
            "sub": service_account_user(&spec.namespace, &spec.account.name),
            "aud": spec.audiences,
            "iat": issued,
            "nbf": issued,
            "exp": expires,
            "jti": id,
            self.domains.claim(): private,
        });
        let token = self.key.sign(&claims).ok_or(IssueError)?;
        Ok(Issued { token, id, expires })
    }
}

/// A random (version 4) UUID.
fn random_uuid() -> Option<String> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = super::hex(&bytes);
    Some([&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-"))
}

#[cfg(test)]
#[path = "service_account_test.rs"]
mod tests;
