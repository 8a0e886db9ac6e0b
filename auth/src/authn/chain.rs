//! The chain of authenticators: the order in which they are asked, and how their answers combine.
//!
//! The first success decides. Without a success, any error means 401: an invalid token or certificate never falls
//! back to anonymous. Only a request without any credential is anonymous (docs/api/authentication.md#authenticators).

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use rustls_pki_types::CertificateDer;

use super::bearer::{self, Bearer};
use super::service_account::TokenError;
use super::x509::{CertificateError, ClientCertificates};
use crate::identity::User;

/// The credentials of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'r> {
    /// The first `Authorization` header, as sent.
    pub authorization: Option<&'r str>,
    /// The peer's certificate chain, leaf first. The handshake proved only that the peer holds the leaf's key; the
    /// authenticator verifies the chain.
    pub certificates: &'r [CertificateDer<'r>],
}

impl Credentials<'_> {
    /// A warning about these credentials that the response carries.
    pub fn warning(&self) -> Option<&'static str> {
        let header = self.authorization?;
        (bearer::parse(header) == Bearer::ExtraSpace).then_some(bearer::EXTRA_SPACE_WARNING)
    }
}

/// The identity of a request.
#[derive(Clone, Debug)]
pub enum Authenticated {
    /// A user proved by a credential.
    User(Arc<User>),
    /// No credential was presented.
    Anonymous(Arc<User>),
}

impl Authenticated {
    /// The user, proved or anonymous.
    pub fn user(&self) -> &Arc<User> {
        match self {
            Authenticated::User(user) | Authenticated::Anonymous(user) => user,
        }
    }
}

/// Why a request is answered with 401. Clients see only `Unauthorized`; the text is for logs and reviews.
#[derive(Debug)]
pub enum AuthnError {
    /// A credential was presented and refused.
    InvalidCredential {
        /// The errors of the authenticators that examined it, in order.
        causes: Vec<Cause>,
    },
    /// No credential was presented, and anonymous requests are not allowed.
    NoCredential,
}

/// An authenticator's error.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// No authenticator knows the token.
    #[error("invalid bearer token")]
    UnknownToken,
    /// The client certificate does not verify.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The token is a service account token and was refused.
    #[error(transparent)]
    ServiceAccount(#[from] TokenError),
}

impl std::error::Error for AuthnError {}

impl fmt::Display for AuthnError {
    /// Formats one cause as is, several as `[a, b]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthnError::NoCredential => f.write_str("no credentials provided"),
            AuthnError::InvalidCredential { causes } => match causes.as_slice() {
                [only] => only.fmt(f),
                causes => {
                    f.write_str("[")?;
                    for (at, cause) in causes.iter().enumerate() {
                        write!(f, "{}{cause}", if at > 0 { ", " } else { "" })?;
                    }
                    f.write_str("]")
                }
            },
        }
    }
}

/// A kind of bearer token.
pub trait TokenAuthenticator: Send + Sync {
    /// The token's user; `None` if the token is not of this kind. A token that names audiences must name one of
    /// `target`; a token without audiences is valid for the server's own.
    ///
    /// # Errors
    /// The token is of this kind and is refused.
    fn authenticate(
        &self,
        token: &str,
        target: &[String],
        now: SystemTime,
    ) -> Result<Option<Arc<User>>, Cause>;

    /// Whether tokens of this kind name audiences.
    fn knows_audiences(&self) -> bool {
        false
    }
}

/// The chain of authenticators, asked in a fixed order, independent of the order of the `with_` calls. Built once at
/// start; cheap to share.
#[derive(Default)]
pub struct Authenticator {
    certificates: Option<Arc<ClientCertificates>>,
    tokens: Vec<Box<dyn TokenAuthenticator>>,
    audiences: Vec<String>,
    anonymous: Option<Arc<User>>,
}

impl Authenticator {
    /// A chain without authenticators.
    pub fn new() -> Authenticator {
        Authenticator::default()
    }

    /// Adds client certificates. The caller keeps a handle to replace the CA bundle.
    #[must_use]
    pub fn with_certificates(mut self, certificates: Arc<ClientCertificates>) -> Authenticator {
        self.certificates = Some(certificates);
        self
    }

    /// Sets the audiences of the server itself (`--api-audiences`).
    #[must_use]
    pub fn with_audiences(mut self, audiences: Vec<String>) -> Authenticator {
        self.audiences = audiences;
        self
    }

    /// Adds a kind of bearer token, asked after those added before.
    #[must_use]
    pub fn with_tokens(mut self, tokens: impl TokenAuthenticator + 'static) -> Authenticator {
        self.tokens.push(Box::new(tokens));
        self
    }

    /// Accepts requests without credentials as `system:anonymous` (docs/api/authentication.md#anonymous-requests).
    #[must_use]
    pub fn with_anonymous(mut self) -> Authenticator {
        self.anonymous = Some(Arc::new(User::anonymous()));
        self
    }

    /// Authenticates a request. Takes microseconds, or one signature verification for a credential that is not
    /// cached.
    ///
    /// # Errors
    /// The request must be answered with 401.
    pub async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Authenticated, AuthnError> {
        self.authenticate_at(credentials, SystemTime::now())
    }

    /// [`Self::authenticate`] at a given time; no authenticator waits for I/O.
    pub fn authenticate_at(
        &self,
        shown: &Credentials<'_>,
        now: SystemTime,
    ) -> Result<Authenticated, AuthnError> {
        let mut causes = Vec::new();
        if let Some(certificates) = &self.certificates {
            match certificates.user(shown.certificates, now) {
                Ok(Some(user)) => return Ok(Authenticated::User(user)),
                Ok(None) => {}
                Err(found) => causes.push(found.into()),
            }
        }
        if let Some(Bearer::Token(token)) = shown.authorization.map(bearer::parse) {
            match self.token_user(token, &self.audiences, now) {
                Ok(user) => return Ok(Authenticated::User(user)),
                Err(found) => causes.extend(found),
            }
        }
        if !causes.is_empty() {
            return Err(AuthnError::InvalidCredential { causes });
        }
        match &self.anonymous {
            Some(anonymous) => Ok(Authenticated::Anonymous(anonymous.clone())),
            None => Err(AuthnError::NoCredential),
        }
    }

    /// The user of a token with one of the audiences `target`, as for a token review.
    ///
    /// # Errors
    /// No authenticator accepts the token. The first cause is always [`Cause::UnknownToken`].
    pub fn review_token(
        &self,
        token: &str,
        target: &[String],
        now: SystemTime,
    ) -> Result<Arc<User>, AuthnError> {
        let target = if target.is_empty() { &self.audiences } else { target };
        self.token_user(token, target, now).map_err(|causes| AuthnError::InvalidCredential { causes })
    }

    fn token_user(&self, token: &str, target: &[String], now: SystemTime) -> Result<Arc<User>, Vec<Cause>> {
        let for_this_server = target.iter().any(|audience| self.audiences.contains(audience));
        let mut causes = vec![Cause::UnknownToken];
        for authenticator in &self.tokens {
            if !(for_this_server || self.audiences.is_empty() || authenticator.knows_audiences()) {
                continue;
            }
            match authenticator.authenticate(token, target, now) {
                Ok(Some(user)) => return Ok(user),
                Ok(None) => {}
                Err(cause) => causes.push(cause),
            }
        }
        Err(causes)
    }
}
