//! Builds the chain of authenticators from the checked flags of authentication.

use std::sync::Arc;

use anyhow::Context;
use api::state::policy::EngineAccounts;
use api::state::tokens::TokenSigner;
use api::state::tokens::external::UnknownKeys;
use auth::Authenticator;
use auth::authn::NameDomains;
use auth::authn::bootstrap::BootstrapTokens;
use auth::authn::jwt::Issuers;
use auth::authn::request_header::RequestHeaders;
use auth::authn::service_account::ServiceAccountTokens;
use auth::authn::x509::{CaBundle, ClientCertificates};

use crate::config::authentication::AuthenticationSettings;
use crate::flags::profile::Profile;

/// The authenticators in a chain that get new keys and certificates when the configured files change.
pub struct Bundles {
    /// Authenticator of client certificates.
    pub clients: Arc<ClientCertificates>,
    /// Authenticator of the proxy's certificates, if a proxy is configured.
    pub proxies: Option<Arc<ClientCertificates>>,
    /// Issuers of accepted tokens, if any are configured.
    pub issuers: Option<Arc<Issuers>>,
    /// Authenticator of service account tokens.
    pub tokens: Arc<ServiceAccountTokens>,
}

/// Builds the chain. `client_cas` is the PEM bundle of the CAs of client certificates.
///
/// # Errors
/// A CA bundle, an issuer or the webhook in the settings is invalid. The message has one line.
pub fn chain(
    config: &AuthenticationSettings,
    client_cas: &[u8],
    naming: Profile,
    accounts: Arc<EngineAccounts>,
    tokens: Arc<ServiceAccountTokens>,
    signer: &TokenSigner,
) -> anyhow::Result<(Authenticator, Bundles)> {
    let domains = &NameDomains::new(naming.domain);
    let bundle = CaBundle::from_pem(client_cas).context("--client-ca-file")?;
    let clients = Arc::new(ClientCertificates::new(bundle, domains));
    let mut chain = Authenticator::new()
        .with_certificates(clients.clone())
        .with_audiences(config.tokens.audiences.clone())
        .with_anonymous(config.anonymous.clone());
    if config.client_ca.is_none() && config.proxy.is_none() {
        // The operator configured no authority, so the server trusts only its own authority and ignores
        // certificates of other authorities.
        chain = chain.ignoring_other_certificates();
    }
    let mut proxies = None;
    if let Some(proxy) = &config.proxy {
        let bundle = CaBundle::from_pem(&proxy.client_ca.bytes).context("--requestheader-client-ca-file")?;
        let certificates = proxies.insert(Arc::new(ClientCertificates::new(bundle, domains))).clone();
        let (allowed, headers) = (proxy.allowed_names.clone(), proxy.headers.clone());
        chain = chain.with_request_headers(RequestHeaders::new(certificates, allowed, headers));
    }
    if let Some(tokens) = &config.token_auth {
        chain = chain.with_tokens(tokens.clone());
    }
    chain = chain.with_shared_tokens(tokens.clone());
    if config.bootstrap_tokens {
        chain = chain.with_tokens(BootstrapTokens::new(accounts, domains.bootstrap_type()));
    }
    if let TokenSigner::External(external) = signer {
        chain = chain.with_remote_tokens(Arc::new(UnknownKeys(external.clone())));
    }
    let mut issuers = None;
    if config.issuers.is_used() {
        let built = issuers.insert(Arc::new(config.issuers.build(domains)?));
        chain = chain.with_remote_tokens(built.clone());
    }
    if let Some(webhook) = &config.webhook {
        let tokens = webhook.build(config.tokens.audiences.clone(), naming)?;
        chain = chain.with_remote_tokens(Arc::new(tokens));
    }
    Ok((chain, Bundles { clients, proxies, issuers, tokens }))
}
