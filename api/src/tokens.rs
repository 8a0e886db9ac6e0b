//! The settings by which tokens of service accounts are made.

use std::time::Duration;

use auth::authn::service_account::TokenIssuer;

/// How tokens are made here.
pub struct Tokens {
    /// Signs them.
    pub issuer: TokenIssuer,
    /// Whom they are for unless somebody else is named: this server.
    pub audiences: Vec<String>,
    /// Longest a token may last.
    pub lifetime_max: Option<Duration>,
    /// Whether tokens of clients that do not renew them last longer than they ask.
    pub extends: bool,
}
