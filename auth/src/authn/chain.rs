//! The chain of authenticators: their order, and the combination of their results.
//!
//! The first authenticator that succeeds decides. If no authenticator succeeds and at least one reports an error,
//! the response is a 401: a request with an invalid token or certificate is never treated as anonymous. Only a
//! request without any credential is anonymous (docs/api/authentication.md#authenticators). Authenticators that
//! decide locally run before authenticators that may call another server.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::authenticator::{Accepted, Cause, Credentials, RemoteTokenAuthenticator, TokenAuthenticator};
use super::bearer::{self, Bearer, ProtocolError};
use super::request_header::RequestHeaders;
use super::token_response_cache::TokenResponseCache;
use super::x509::ClientCertificates;
use crate::identity::User;

/// The identity of a request.
#[derive(Clone, Debug)]
pub enum Authenticated {
    /// A credential proves this user.
    User(Arc<User>),
    /// The request has no credential.
    Anonymous(Arc<User>),
}

impl Authenticated {
    /// Returns the user, authenticated or anonymous.
    pub fn user(&self) -> &Arc<User> {
        match self {
            Authenticated::User(user) | Authenticated::Anonymous(user) => user,
        }
    }
}

/// Reasons for a 401 response. Clients get only the text `Unauthorized`; the text of this error is for logs
/// and reviews.
#[derive(Debug)]
pub enum AuthnError {
    /// The request has a credential that was refused.
    InvalidCredential {
        /// Errors of the authenticators that examined the credential, in order.
        causes: Vec<Cause>,
    },
    /// The request has no credential, and anonymous requests are not allowed.
    NoCredential,
}

impl std::error::Error for AuthnError {}

impl fmt::Display for AuthnError {
    /// Formats one cause as its text, and several causes as `[a, b]`. A text that occurs several times is
    /// written only once.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AuthnError::InvalidCredential { causes } = self else {
            return f.write_str("no credentials provided");
        };
        f.write_str(&go::join_errors(causes).unwrap_or_default())
    }
}

/// The requests without credentials that the server accepts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Anonymous {
    /// The server accepts no anonymous requests.
    #[default]
    Refused,
    /// The server accepts all anonymous requests.
    Accepted,
    /// The server accepts anonymous requests only for exactly these paths.
    OnPaths(Vec<String>),
}

impl Anonymous {
    fn accepts(&self, path: &str) -> bool {
        match self {
            Anonymous::Refused => false,
            Anonymous::Accepted => true,
            Anonymous::OnPaths(paths) => paths.iter().any(|open| open == path),
        }
    }
}

/// The chain of authenticators. The authenticators run in a fixed order that does not depend on the order of
/// the `with_` calls. The chain is built once at start and is cheap to share.
#[derive(Default)]
pub struct Authenticator {
    request_headers: Option<RequestHeaders>,
    certificates: Option<Arc<ClientCertificates>>,
    ignores_other_certificates: bool,
    tokens: Vec<Arc<dyn TokenAuthenticator>>,
    remote: Vec<Arc<dyn RemoteTokenAuthenticator>>,
    remembered: TokenResponseCache<Accepted>,
    audiences: Vec<String>,
    anonymous: Anonymous,
}

impl Authenticator {
    /// Creates a chain without authenticators.
    pub fn new() -> Authenticator {
        Authenticator::default()
    }

    /// Adds the authenticating proxy.
    #[must_use]
    pub fn with_request_headers(mut self, headers: RequestHeaders) -> Authenticator {
        self.request_headers = Some(headers);
        self
    }

    /// Adds client certificates. The caller keeps a handle to replace the CA bundle.
    #[must_use]
    pub fn with_certificates(mut self, certificates: Arc<ClientCertificates>) -> Authenticator {
        self.certificates = Some(certificates);
        self
    }

    /// Treats a client certificate that cannot be verified as absent. Use this method if the server does not
    /// request certificates from clients (docs/api/authentication.md#client-certificates).
    #[must_use]
    pub fn ignoring_other_certificates(mut self) -> Authenticator {
        self.ignores_other_certificates = true;
        self
    }

    /// Sets the audiences of this server (`--api-audiences`).
    #[must_use]
    pub fn with_audiences(mut self, audiences: Vec<String>) -> Authenticator {
        self.audiences = audiences;
        self
    }

    /// Adds an authenticator of bearer tokens. The new authenticator runs after the authenticators that were
    /// added before.
    #[must_use]
    pub fn with_tokens(mut self, tokens: impl TokenAuthenticator + 'static) -> Authenticator {
        self.tokens.push(Arc::new(tokens));
        self
    }

    /// Adds an authenticator of bearer tokens that the caller can change while the authenticator is in use.
    #[must_use]
    pub fn with_shared_tokens(mut self, tokens: Arc<dyn TokenAuthenticator>) -> Authenticator {
        self.tokens.push(tokens);
        self
    }

    /// Adds an authenticator that calls other servers. The new authenticator runs after all local
    /// authenticators.
    #[must_use]
    pub fn with_remote_tokens(mut self, tokens: Arc<dyn RemoteTokenAuthenticator>) -> Authenticator {
        self.remote.push(tokens);
        self
    }

    /// Accepts requests without credentials as `system:anonymous`
    /// (docs/api/authentication.md#anonymous-requests).
    #[must_use]
    pub fn with_anonymous(mut self, anonymous: Anonymous) -> Authenticator {
        self.anonymous = anonymous;
        self
    }

    /// Authenticates a request at the time `now`. The decision takes microseconds, or one signature
    /// verification for a credential that is not cached. For a token that only another server can verify, the
    /// decision takes as long as the response of that server.
    ///
    /// # Errors
    /// Fails if the request must be answered with 401.
    pub async fn authenticate(
        &self,
        credentials: &Credentials<'_>,
        now: SystemTime,
    ) -> Result<Authenticated, AuthnError> {
        let mut causes = match self.known_user(credentials, now) {
            Ok(user) => return Ok(Authenticated::User(user)),
            Err(causes) => causes,
        };
        for token in Tokens::presented_in(credentials).iter() {
            match self.remote_user(token, &self.audiences, now).await {
                Ok(accepted) => return Ok(Authenticated::User(accepted.user)),
                Err(found) => causes.extend(found),
            }
        }
        self.without_user(credentials, causes)
    }

    /// Authenticates a request like [`Self::authenticate`], but without calls to other servers.
    ///
    /// # Errors
    /// Fails if the request must be answered with 401.
    pub fn authenticate_at(
        &self,
        credentials: &Credentials<'_>,
        now: SystemTime,
    ) -> Result<Authenticated, AuthnError> {
        match self.known_user(credentials, now) {
            Ok(user) => Ok(Authenticated::User(user)),
            Err(causes) => self.without_user(credentials, causes),
        }
    }

    /// Returns the user of a token with one of the audiences `target`, for a token review. The token is
    /// parsed like the text after `Bearer` in a header: spaces around the token, and all text after the
    /// token, are dropped. If no token remains, the result equals the result for a request without
    /// credentials (docs/api/authentication.md#identity-reviews).
    ///
    /// # Errors
    /// Fails if no authenticator accepts the token; the first cause is [`Cause::UnknownToken`]. The error is the
    /// same if there is no token and anonymous requests are not allowed.
    pub async fn review_token(
        &self,
        token: &str,
        target: &[String],
        now: SystemTime,
    ) -> Result<Accepted, AuthnError> {
        let target = if target.is_empty() { &self.audiences } else { target };
        let header = format!("Bearer {token}");
        let Bearer::Token(token) = bearer::parse(&header) else {
            let found = self.without_user(&Credentials::default(), Vec::new())?;
            return Ok(Accepted { user: found.user().clone(), audiences: target.to_vec() });
        };
        let mut causes = match self.token_user(token, target, now) {
            Ok(accepted) => return Ok(accepted),
            Err(causes) => causes,
        };
        match self.remote_user(token, target, now).await {
            Ok(accepted) => return Ok(accepted),
            Err(found) => causes.extend(found),
        }
        Err(AuthnError::InvalidCredential { causes })
    }

    /// Authenticates the credentials without calls to other servers. Returns the user, or the errors of all
    /// authenticators.
    fn known_user(&self, credentials: &Credentials<'_>, now: SystemTime) -> Result<Arc<User>, Vec<Cause>> {
        let mut causes = Vec::new();
        if let Some(headers) = &self.request_headers {
            match headers.user(credentials, now) {
                Ok(Some(user)) => return Ok(Arc::new(user)),
                Ok(None) => {}
                Err(found) => causes.push(found),
            }
        }
        if let (Some(certificates), Some(chain)) = (&self.certificates, credentials.certificates) {
            match certificates.user(chain, now) {
                Ok(Some(user)) => return Ok(user),
                Ok(None) => {}
                Err(_) if self.ignores_other_certificates => {}
                Err(found) => causes.push(found.into()),
            }
        }
        let tokens = Tokens::presented_in(credentials);
        causes.extend(tokens.error.map(Cause::Protocol));
        for token in tokens.iter() {
            match self.token_user(token, &self.audiences, now) {
                Ok(accepted) => return Ok(accepted.user),
                Err(found) => causes.extend(found),
            }
        }
        Err(causes)
    }

    /// Returns the result for a request that no authenticator accepted.
    fn without_user(
        &self,
        credentials: &Credentials<'_>,
        causes: Vec<Cause>,
    ) -> Result<Authenticated, AuthnError> {
        if !causes.is_empty() {
            Err(AuthnError::InvalidCredential { causes })
        } else if self.anonymous.accepts(credentials.path) {
            Ok(Authenticated::Anonymous(Arc::new(User::anonymous())))
        } else {
            Err(AuthnError::NoCredential)
        }
    }

    /// Returns the requested audiences that are also audiences of this server, in the order of the request.
    /// The result is `None` if there is no such audience; tokens without audiences are not accepted in this
    /// case.
    fn own_audiences(&self, target: &[String]) -> Option<Vec<String>> {
        let own: Vec<String> =
            target.iter().filter(|audience| self.audiences.contains(audience)).cloned().collect();
        (!own.is_empty() || self.audiences.is_empty()).then_some(own)
    }

    fn token_user(&self, token: &str, target: &[String], now: SystemTime) -> Result<Accepted, Vec<Cause>> {
        let own = self.own_audiences(target);
        let mut causes = vec![Cause::UnknownToken];
        for authenticator in &self.tokens {
            if own.is_none() && !authenticator.knows_audiences() {
                continue;
            }
            match authenticator.authenticate(token, target, now) {
                Ok(Some(accepted)) => return Ok(with_audiences(accepted, own)),
                Ok(None) => {}
                Err(cause) => causes.push(cause),
            }
        }
        Err(causes)
    }

    async fn remote_user(
        &self,
        token: &str,
        target: &[String],
        now: SystemTime,
    ) -> Result<Accepted, Vec<Cause>> {
        if self.remote.is_empty() {
            return Err(Vec::new());
        }
        let generation = self.remote.iter().map(|remote| remote.generation()).sum();
        if let Some(accepted) = self.remembered.find(token, target, generation, now) {
            return Ok(accepted);
        }
        let own = self.own_audiences(target);
        let mut causes = Vec::new();
        for authenticator in &self.remote {
            if own.is_none() && !authenticator.knows_audiences() {
                continue;
            }
            match authenticator.authenticate(token, target, now).await {
                Ok(Some(accepted)) => {
                    let accepted = with_audiences(accepted, own);
                    if authenticator.is_remembered() {
                        self.remembered.keep(token, target, generation, now, accepted.clone());
                    }
                    return Ok(accepted);
                }
                Ok(None) => {}
                Err(cause) => causes.push(cause),
            }
        }
        Err(causes)
    }
}

/// The tokens of a request.
struct Tokens<'r> {
    header: Option<&'r str>,
    protocol: Option<String>,
    error: Option<ProtocolError>,
}

impl<'r> Tokens<'r> {
    fn presented_in(credentials: &Credentials<'r>) -> Tokens<'r> {
        let header = match credentials.authorization.map(bearer::parse) {
            Some(Bearer::Token(token)) => Some(token),
            _ => None,
        };
        match credentials.protocols.map(bearer::protocol_token) {
            Some(Ok(protocol)) => Tokens { header, protocol, error: None },
            Some(Err(error)) => Tokens { header, protocol: None, error: Some(error) },
            None => Tokens { header, protocol: None, error: None },
        }
    }

    /// Iterates over the tokens in the order in which they are tried.
    fn iter(&self) -> impl Iterator<Item = &str> {
        self.header.into_iter().chain(self.protocol.as_deref())
    }
}

/// Sets the audiences `own` of this server if a token has no audiences.
fn with_audiences(accepted: Accepted, own: Option<Vec<String>>) -> Accepted {
    if accepted.audiences.is_empty() {
        Accepted { audiences: own.unwrap_or_default(), ..accepted }
    } else {
        accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::token_file::StaticTokens;

    fn at_once<T>(future: impl Future<Output = T>) -> T {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(future).poll(&mut context) {
            std::task::Poll::Ready(result) => result,
            std::task::Poll::Pending => panic!("no other server is asked"),
        }
    }

    #[test]
    fn a_reviewed_token_is_parsed_like_a_bearer_header() {
        for (token, anonymous, want) in [
            ("secret", Anonymous::Refused, "joe [\"api\"]"),
            ("secret ", Anonymous::Refused, "joe [\"api\"]"),
            ("secret x", Anonymous::Refused, "joe [\"api\"]"),
            ("other", Anonymous::Accepted, "invalid bearer token"),
            (" secret", Anonymous::Accepted, "system:anonymous [\"api\"]"),
            (" ", Anonymous::Accepted, "system:anonymous [\"api\"]"),
            (" secret", Anonymous::Refused, "no credentials provided"),
        ] {
            let chain = Authenticator::new()
                .with_audiences(vec!["api".to_owned()])
                .with_tokens(StaticTokens::parse(b"secret,joe,1").unwrap())
                .with_anonymous(anonymous);
            let got = match at_once(chain.review_token(token, &[], SystemTime::UNIX_EPOCH)) {
                Ok(Accepted { user, audiences }) => format!("{} {audiences:?}", user.name),
                Err(error) => error.to_string(),
            };
            assert_eq!(got, want, "{token:?}");
        }
    }

    #[test]
    fn a_static_token_has_the_requested_audiences() {
        let chain = Authenticator::new()
            .with_audiences(vec!["api".to_owned(), "other".to_owned()])
            .with_tokens(StaticTokens::parse(b"secret,joe,1").unwrap());
        for (target, want) in [
            (&[][..], "[\"api\", \"other\"]"),
            (&["other", "x", "api"], "[\"other\", \"api\"]"),
            (&["api", "api"], "[\"api\", \"api\"]"),
            (&["x"], "invalid bearer token"),
        ] {
            let target: Vec<String> = target.iter().map(|audience| (*audience).to_owned()).collect();
            let got = match at_once(chain.review_token("secret", &target, SystemTime::UNIX_EPOCH)) {
                Ok(accepted) => format!("{:?}", accepted.audiences),
                Err(error) => error.to_string(),
            };
            assert_eq!(got, want, "{target:?}");
        }
    }
}
