//! Issues bound tokens for service accounts.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use serde_json::json;

use super::accounts::Reference;
use super::bound::Private;
use crate::authn::{NameDomains, SigningKey, VerificationKey, hex};
use crate::identity::service_account_user;

/// An issuer of tokens for service accounts that signs with its own key.
pub struct TokenIssuer {
    drafts: Drafts,
    key: RwLock<Arc<SigningKey>>,
}

/// A builder of the claims of tokens. Another component signs the claims.
#[derive(Clone, Debug)]
pub struct Drafts {
    issuer: String,
    domains: NameDomains,
}

/// A token before it is signed.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Claims of the token, in JSON.
    pub claims: Vec<u8>,
    /// Id of the token (`jti`), for the audit event.
    pub id: String,
    /// End of validity, in seconds since the Unix epoch.
    pub expires: u64,
}

/// The specification of a new token.
#[derive(Clone, Debug)]
pub struct TokenSpec {
    /// Namespace of the service account.
    pub namespace: String,
    /// Service account of the token.
    pub account: Reference,
    /// Audiences of the token. A token without audiences is for the server that verifies it.
    pub audiences: Vec<String>,
    /// Time at which the validity starts.
    pub issued: SystemTime,
    /// Time for which the token is valid.
    pub lifetime: Duration,
    /// Age after which each use of the token is recorded in the audit event.
    pub warn_after: Option<Duration>,
    /// Pod to which the token is bound, if any.
    pub pod: Option<Reference>,
    /// Secret to which the token is bound, if any.
    pub secret: Option<Reference>,
    /// Node of the pod to which the token is bound. If the token is bound to neither a pod nor a secret, the
    /// field has the node to which the token is bound.
    pub node: Option<Reference>,
}

/// A new signed token.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Token in compact form.
    pub token: String,
    /// Id of the token (`jti`), for the audit event.
    pub id: String,
    /// End of validity, in seconds since the Unix epoch.
    pub expires: u64,
}

/// The error if the cryptography library returned no signature or no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("signing a service account token failed")]
pub struct TokenIssueError;

impl Drafts {
    /// Creates a builder of tokens that name `issuer`.
    pub fn new(issuer: impl Into<String>, domains: NameDomains) -> Drafts {
        Drafts { issuer: issuer.into(), domains }
    }

    /// Builds the claims of a token.
    ///
    /// # Errors
    /// Fails if no random bytes are available for the token id.
    pub fn draft(&self, spec: &TokenSpec) -> Result<Draft, TokenIssueError> {
        let id = random_uuid().ok_or(TokenIssueError)?;
        let issued = spec.issued.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
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
        Ok(Draft { claims: claims.to_string().into_bytes(), id, expires })
    }
}

impl TokenIssuer {
    /// Creates an issuer with the name `issuer`, which signs with `key`.
    pub fn new(issuer: impl Into<String>, key: SigningKey, domains: NameDomains) -> TokenIssuer {
        TokenIssuer { drafts: Drafts::new(issuer, domains), key: RwLock::new(Arc::new(key)) }
    }

    /// Replaces the signing key for all later tokens.
    pub fn replace_key(&self, key: SigningKey) {
        *self.key.write() = Arc::new(key);
    }

    /// Returns the public key, which verifies the tokens of this issuer.
    pub fn public_key(&self) -> VerificationKey {
        self.key.read().public().clone()
    }

    /// Issues a token. The cost is one signature: tens of microseconds with an elliptic curve key, about a
    /// millisecond with an RSA key.
    ///
    /// # Errors
    /// Fails if the cryptography library fails.
    pub fn issue(&self, spec: &TokenSpec) -> Result<Issued, TokenIssueError> {
        let Draft { claims, id, expires } = self.drafts.draft(spec)?;
        let token = self.key.read().clone().sign(&claims).ok_or(TokenIssueError)?;
        Ok(Issued { token, id, expires })
    }
}

/// Returns a random (version 4) UUID.
fn random_uuid() -> Option<String> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex(&bytes);
    Some([&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-"))
}
