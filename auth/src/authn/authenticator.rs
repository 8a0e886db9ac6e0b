//! The interface of authenticators: the credentials, the results and the errors.

use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use super::bearer::{self, Bearer, ProtocolError};
use super::jwt::TokenRefused;
use super::service_account::TokenError;
use super::webhook_error::WebhookError;
use super::x509::{CertificateError, PeerCertificates};
use crate::identity::User;

/// The header fields of a request, for authenticators that read more fields than `Authorization`.
pub trait HeaderFields: Sync {
    /// Calls `visit` with the name and value of each field, in the order in which the client sent them.
    fn each(&self, visit: &mut dyn FnMut(&str, &str));
}

/// The credentials of a request.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'r> {
    /// Path of the request. Anonymous requests may be allowed only for some paths.
    pub path: &'r str,
    /// All header fields of the request, if there are any.
    pub headers: Option<&'r dyn HeaderFields>,
    /// The first `Authorization` header, without changes.
    pub authorization: Option<&'r str>,
    /// The protocols that a WebSocket request offers. A browser sends its token as one of these protocols.
    pub protocols: Option<&'r str>,
    /// Certificate chain of the peer. The handshake has proved only that the peer has the private key of the
    /// leaf. The authenticator verifies the chain.
    pub certificates: Option<&'r PeerCertificates>,
}

impl Credentials<'_> {
    /// Returns a warning about these credentials for the response, if any.
    pub fn warning(&self) -> Option<&'static str> {
        let header = self.authorization?;
        (bearer::parse(header) == Bearer::ExtraSpace).then_some(bearer::EXTRA_SPACE_WARNING)
    }
}

/// The result of a token authenticator that has accepted a token.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// User that the token identifies.
    pub user: Arc<User>,
    /// The requested audiences that are also audiences of the token, in the order of the request. Empty if
    /// this kind of token has no audiences.
    pub audiences: Vec<String>,
}

impl Accepted {
    /// Creates the result for a token that has no audiences and is therefore valid for this server.
    pub fn for_this_server(user: Arc<User>) -> Accepted {
        Accepted { user, audiences: Vec::new() }
    }
}

/// The error of one authenticator.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// No authenticator recognizes the token.
    #[error("invalid bearer token")]
    UnknownToken,
    /// The client certificate cannot be verified.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A WebSocket protocol contains a token that cannot be used.
    #[error(transparent)]
    Protocol(ProtocolError),
    /// The common name of the proxy's certificate is not allowed.
    #[error("x509: subject with cn={0} is not in the allowed list")]
    ProxyName(String),
    /// The token is a service account token that was refused.
    #[error(transparent)]
    ServiceAccount(#[from] TokenError),
    /// The token names a configured issuer, which refused it.
    #[error(transparent)]
    Issuer(#[from] TokenRefused),
    /// The webhook refused the token or did not answer.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
}

/// An authenticator of bearer tokens that decides without waiting.
pub trait TokenAuthenticator: Send + Sync {
    /// Returns the user of a token, or `None` if the token has another kind. If the token has audiences, one
    /// of them must be in `target`. A token without audiences is valid for the server's own audiences.
    ///
    /// # Errors
    /// Fails if the token has this kind and is refused.
    fn authenticate(
        &self,
        token: &str,
        target: &[String],
        now: SystemTime,
    ) -> Result<Option<Accepted>, Cause>;

    /// Returns whether tokens of this kind have audiences.
    fn knows_audiences(&self) -> bool {
        false
    }
}

/// The future that a [`RemoteTokenAuthenticator`] returns.
pub type Answer<'t> = Pin<Box<dyn Future<Output = Result<Option<Accepted>, Cause>> + Send + 't>>;

/// An authenticator of bearer tokens that may have to call another server.
pub trait RemoteTokenAuthenticator: Send + Sync {
    /// Authenticates a token like [`TokenAuthenticator::authenticate`]. The future must complete within a
    /// bounded time.
    fn authenticate<'t>(&'t self, token: &'t str, target: &'t [String], now: SystemTime) -> Answer<'t>;

    /// Returns whether tokens of this kind have audiences.
    fn knows_audiences(&self) -> bool {
        false
    }

    /// Returns whether an accepted token may be cached for some seconds. The result must be false if the
    /// decision also depends on objects of this server.
    fn is_remembered(&self) -> bool {
        true
    }

    /// Returns a counter that changes when cached results become invalid.
    fn generation(&self) -> u64 {
        0
    }
}
