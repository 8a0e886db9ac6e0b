//! The chain of authenticators: the order in which they are asked, and how their answers combine.
//!
//! The first success decides. Without a success, any error means 401: an invalid token or certificate never falls
//! back to anonymous. Only a request without any credential is anonymous (docs/api/authentication.md#authenticators).
//! Authenticators that know their answer are asked before those that may have to ask another server.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use super::bearer::{self, Bearer, ProtocolError};
use super::remembered::Remembered;
use super::request_header::RequestHeaders;
use super::service_account::TokenError;
use super::x509::{CertificateError, ClientCertificates, PeerCertificates};
use crate::identity::User;

/// The header fields of a request, for authenticators that read more than `Authorization`.
pub trait HeaderFields: Sync {
    /// Calls `visit` with name and value of each field, in the order in which they were sent.
    fn each(&self, visit: &mut dyn FnMut(&str, &str));
}

/// The credentials of a request.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'r> {
    /// The path asked for, which may be open to anonymous requests.
    pub path: &'r str,
    /// The header fields.
    pub headers: Option<&'r dyn HeaderFields>,
    /// The first `Authorization` header, as sent.
    pub authorization: Option<&'r str>,
    /// The WebSocket protocols of a request that asks for that, among which a browser sends its token.
    pub protocols: Option<&'r str>,
    /// The peer's certificate chain. The handshake proved only that the peer holds the leaf's key; the
    /// authenticator verifies the chain.
    pub certificates: Option<&'r PeerCertificates>,
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

/// What a token authenticator found out.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The user of the token.
    pub user: Arc<User>,
    /// Which of the audiences asked for the token has, in the order of the question; empty if this kind of token names
    /// none.
    pub audiences: Vec<String>,
}

impl Accepted {
    /// A token that names no audiences, and is therefore for this server.
    pub fn for_this_server(user: Arc<User>) -> Accepted {
        Accepted { user, audiences: Vec::new() }
    }
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
    /// The WebSocket protocols carry an unusable token.
    #[error(transparent)]
    Protocol(ProtocolError),
    /// The name of a proxy's certificate is not one of those allowed.
    #[error("x509: subject with cn={0} is not in the allowed list")]
    ProxyName(String),
    /// The token is a service account token and was refused.
    #[error(transparent)]
    ServiceAccount(#[from] TokenError),
    /// The token is one of an issuer and was refused.
    #[error(transparent)]
    Issuer(#[from] super::jwt::TokenRefused),
    /// The webhook refused the token or gave no answer.
    #[error(transparent)]
    Webhook(#[from] super::webhook::WebhookError),
}

impl std::error::Error for AuthnError {}

impl fmt::Display for AuthnError {
    /// Formats one cause as is, several as `[a, b]`; a text that occurs twice is shown once.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AuthnError::InvalidCredential { causes } = self else {
            return f.write_str("no credentials provided");
        };
        f.write_str(&go::join_errors(causes).unwrap_or_default())
    }
}

/// A kind of bearer token that is judged without waiting.
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
    ) -> Result<Option<Accepted>, Cause>;

    /// Whether tokens of this kind name audiences.
    fn knows_audiences(&self) -> bool {
        false
    }
}

/// What a [`RemoteTokenAuthenticator`] answers later.
pub type Answer<'t> = Pin<Box<dyn Future<Output = Result<Option<Accepted>, Cause>> + Send + 't>>;

/// A kind of bearer token for which another server may have to be asked.
pub trait RemoteTokenAuthenticator: Send + Sync {
    /// As [`TokenAuthenticator::authenticate`]. Must end within a bounded time.
    fn authenticate<'t>(&'t self, token: &'t str, target: &'t [String], now: SystemTime) -> Answer<'t>;

    /// Whether tokens of this kind name audiences.
    fn knows_audiences(&self) -> bool {
        false
    }

    /// Whether an answer counts for some seconds. One that also depends on objects of this server does not.
    fn is_remembered(&self) -> bool {
        true
    }

    /// Changes when earlier answers count no more.
    fn generation(&self) -> u64 {
        0
    }
}

/// Which requests without credentials are served.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Anonymous {
    /// None.
    #[default]
    Refused,
    /// All.
    Accepted,
    /// Those for exactly these paths.
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

/// The chain of authenticators, asked in a fixed order, independent of the order of the `with_` calls. Built once at
/// start; cheap to share.
#[derive(Default)]
pub struct Authenticator {
    request_headers: Option<RequestHeaders>,
    certificates: Option<Arc<ClientCertificates>>,
    ignores_other_certificates: bool,
    tokens: Vec<Arc<dyn TokenAuthenticator>>,
    remote: Vec<Arc<dyn RemoteTokenAuthenticator>>,
    remembered: Remembered<Accepted>,
    audiences: Vec<String>,
    anonymous: Anonymous,
}

impl Authenticator {
    /// A chain without authenticators.
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

    /// Takes a request with a certificate that does not verify for one without: clients were not asked for theirs
    /// (docs/api/authentication.md#client-certificates).
    #[must_use]
    pub fn ignoring_other_certificates(mut self) -> Authenticator {
        self.ignores_other_certificates = true;
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
        self.tokens.push(Arc::new(tokens));
        self
    }

    /// The same, for one that is changed while it is asked.
    #[must_use]
    pub fn with_shared_tokens(mut self, tokens: Arc<dyn TokenAuthenticator>) -> Authenticator {
        self.tokens.push(tokens);
        self
    }

    /// Adds a kind of bearer token that other servers know, asked after all that this one knows.
    #[must_use]
    pub fn with_remote_tokens(mut self, tokens: Arc<dyn RemoteTokenAuthenticator>) -> Authenticator {
        self.remote.push(tokens);
        self
    }

    /// Accepts requests without credentials as `system:anonymous` (docs/api/authentication.md#anonymous-requests).
    #[must_use]
    pub fn with_anonymous(mut self, anonymous: Anonymous) -> Authenticator {
        self.anonymous = anonymous;
        self
    }

    /// Authenticates a request. Takes microseconds, or one signature verification for a credential that is not
    /// cached; a token that only another server knows takes as long as that server.
    ///
    /// # Errors
    /// The request must be answered with 401.
    pub async fn authenticate(&self, shown: &Credentials<'_>) -> Result<Authenticated, AuthnError> {
        let now = SystemTime::now();
        let mut causes = match self.known_user(shown, now) {
            Ok(user) => return Ok(Authenticated::User(user)),
            Err(causes) => causes,
        };
        for token in Tokens::of(shown).iter() {
            match self.remote_user(token, &self.audiences, now).await {
                Ok(accepted) => return Ok(Authenticated::User(accepted.user)),
                Err(found) => causes.extend(found),
            }
        }
        self.without_user(shown, causes)
    }

    /// [`Self::authenticate`] at a given time, without asking other servers.
    ///
    /// # Errors
    /// The request must be answered with 401.
    pub fn authenticate_at(
        &self,
        shown: &Credentials<'_>,
        now: SystemTime,
    ) -> Result<Authenticated, AuthnError> {
        match self.known_user(shown, now) {
            Ok(user) => Ok(Authenticated::User(user)),
            Err(causes) => self.without_user(shown, causes),
        }
    }

    /// The user of a token with one of the audiences `target`, as for a token review. The token is read as it would be
    /// behind `Bearer` in a header: space around it is dropped, and what follows it too. Without a token there, the user
    /// is that of a request without credentials (docs/api/authentication.md#identity-reviews).
    ///
    /// # Errors
    /// No authenticator accepts the token; the first cause is [`Cause::UnknownToken`]. Or there is none, and anonymous
    /// requests are not allowed.
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

    /// The user that this server knows by one of the credentials, or why not.
    fn known_user(&self, shown: &Credentials<'_>, now: SystemTime) -> Result<Arc<User>, Vec<Cause>> {
        let mut causes = Vec::new();
        if let Some(headers) = &self.request_headers {
            match headers.user(shown, now) {
                Ok(Some(user)) => return Ok(Arc::new(user)),
                Ok(None) => {}
                Err(found) => causes.push(found),
            }
        }
        if let (Some(certificates), Some(chain)) = (&self.certificates, shown.certificates) {
            match certificates.user(chain, now) {
                Ok(Some(user)) => return Ok(user),
                Ok(None) => {}
                Err(_) if self.ignores_other_certificates => {}
                Err(found) => causes.push(found.into()),
            }
        }
        let tokens = Tokens::of(shown);
        causes.extend(tokens.error.map(Cause::Protocol));
        for token in tokens.iter() {
            match self.token_user(token, &self.audiences, now) {
                Ok(accepted) => return Ok(accepted.user),
                Err(found) => causes.extend(found),
            }
        }
        Err(causes)
    }

    /// The answer to a request that no authenticator accepted.
    fn without_user(&self, shown: &Credentials<'_>, causes: Vec<Cause>) -> Result<Authenticated, AuthnError> {
        if !causes.is_empty() {
            Err(AuthnError::InvalidCredential { causes })
        } else if self.anonymous.accepts(shown.path) {
            Ok(Authenticated::Anonymous(Arc::new(User::anonymous())))
        } else {
            Err(AuthnError::NoCredential)
        }
    }

    /// Which of the audiences asked for are this server's own, as they are asked for; `None` if none is, so that tokens
    /// without audiences do not count.
    fn own_audiences(&self, target: &[String]) -> Option<Vec<String>> {
        let own: Vec<String> =
            target.iter().filter(|asked| self.audiences.contains(asked)).cloned().collect();
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
    fn of(shown: &Credentials<'r>) -> Tokens<'r> {
        let header = match shown.authorization.map(bearer::parse) {
            Some(Bearer::Token(token)) => Some(token),
            _ => None,
        };
        match shown.protocols.map(bearer::protocol_token) {
            Some(Ok(protocol)) => Tokens { header, protocol, error: None },
            Some(Err(error)) => Tokens { header, protocol: None, error: Some(error) },
            None => Tokens { header, protocol: None, error: None },
        }
    }

    /// In the order in which they are tried.
    fn iter(&self) -> impl Iterator<Item = &str> {
        self.header.into_iter().chain(self.protocol.as_deref())
    }
}

/// A token without audiences has those of this server.
fn with_audiences(accepted: Accepted, own: Option<Vec<String>>) -> Accepted {
    match accepted.audiences.is_empty() {
        true => Accepted { audiences: own.unwrap_or_default(), ..accepted },
        false => accepted,
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
    fn a_reviewed_token_is_read_as_in_a_header() {
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
    fn a_token_has_its_audiences_as_they_are_asked_for() {
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
