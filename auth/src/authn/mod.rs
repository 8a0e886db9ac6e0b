//! Authentication: finds the user of a request. The first authenticator that accepts a credential decides.
//!
//! `authenticating proxy → client certificate → bearer token (static file → service account → bootstrap → issuers →
//! webhook) → anonymous` (docs/api/authentication.md#authenticators)

mod authenticator;
pub mod bearer;
pub mod bootstrap;
pub mod certificate_authority;
pub mod certificate_request;
mod certificate_signature;
mod chain;
pub mod jws;
pub mod jwt;
pub mod key_pair;
mod private_key;
pub mod request_header;
pub mod service_account;
mod signing;
pub mod token_file;
mod token_header;
mod token_response_cache;
pub mod trust_anchors;
pub mod trusted_leaf;
pub mod webhook;
mod webhook_error;
pub mod x509;

use std::fmt::Write;

use aws_lc_rs::digest;

pub use authenticator::{
    Accepted, Answer, Cause, Credentials, HeaderFields, RemoteTokenAuthenticator, TokenAuthenticator,
};
pub use chain::{Anonymous, Authenticated, Authenticator, AuthnError};
pub use signing::{KeyError, SigningKey, VerificationKey};

/// Names that contain a domain and are used in the data of users and tokens. For example, with the domain
/// `example.org`, a key is `authentication.example.org/credential-id`. The caller passes the domain, so this
/// crate contains no vendor names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NameDomains {
    domain: String,
}

impl NameDomains {
    /// Creates the names that are derived from `domain`.
    pub fn new(domain: impl Into<String>) -> NameDomains {
        NameDomains { domain: domain.into() }
    }

    /// Returns the key under which users have the extra value `fact`.
    pub fn extra(&self, fact: &str) -> String {
        format!("authentication.{}/{fact}", self.domain)
    }

    /// Returns the name of the private claim in service account tokens.
    pub fn claim(&self) -> &str {
        &self.domain
    }

    /// Returns the issuer of legacy service account tokens: `example/serviceaccount`.
    pub fn legacy_issuer(&self) -> String {
        format!("{}/serviceaccount", self.domain.split('.').next().unwrap_or_default())
    }

    /// Returns the name of a claim in legacy service account tokens: `example.org/serviceaccount/<claim>`.
    pub fn legacy_claim(&self, claim: &str) -> String {
        format!("{}/serviceaccount/{claim}", self.domain)
    }

    /// Returns the type of secrets that store bootstrap tokens.
    pub fn bootstrap_type(&self) -> String {
        format!("bootstrap.{}/token", self.domain)
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to memory cannot fail");
        text
    })
}
