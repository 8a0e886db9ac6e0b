//! The keys and issuers of service account tokens.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use api::policy::EngineAccounts;
use api::tokens::{IssuerDocuments, Tokens};
use auth::authn::service_account::{ServiceAccountTokens, TokenIssuer};
use auth::authn::{NameDomains, SigningKey, VerificationKey};

use crate::config::Config;
use crate::{host, pki};

/// Builds issuer and verifier. Without a configured key the server stores one in its data directory, so that tokens
/// stay valid after a restart.
pub fn prepare(
    config: &Config,
    accounts: Arc<EngineAccounts>,
    address: SocketAddr,
    domains: &NameDomains,
) -> anyhow::Result<(ServiceAccountTokens, Tokens)> {
    let flags = &config.authentication.tokens;
    let signing = match &flags.signing_key {
        Some(file) => SigningKey::from_pem(&file.bytes).with_context(|| file.path.display().to_string())?,
        None => own_key(&config.data_dir.join("pki"))?,
    };
    let mut keys: Vec<VerificationKey> = Vec::new();
    for file in &flags.keys {
        keys.extend(VerificationKey::from_pem(&file.bytes).with_context(|| file.path.display().to_string())?);
    }
    if !keys.iter().any(|key| key.id() == signing.public().id()) {
        keys.insert(0, signing.public().clone());
    }
    let issuer = flags.issuers.first().cloned().unwrap_or_default();
    let advertised = host::advertised_address(address, config.advertise_address).unwrap_or(address);
    let shown = match &config.external_hostname {
        Some(name) => format!("{name}:{}", advertised.port()),
        None => advertised.to_string(),
    };
    let documents = IssuerDocuments::new(&issuer, &keys, flags.keys_uri.as_deref(), &shown);
    let mut verifier = ServiceAccountTokens::new(flags.issuers.clone(), keys, accounts, domains.clone())
        .with_audiences(flags.audiences.clone());
    if !flags.lookup {
        verifier = verifier.without_lookup();
    }
    let tokens = Tokens {
        issuer: TokenIssuer::new(issuer, signing, domains.clone()),
        audiences: flags.audiences.clone(),
        lifetime_max: flags.lifetime_max,
        extends: flags.extends,
        documents,
    };
    Ok((verifier, tokens))
}

fn own_key(dir: &Path) -> anyhow::Result<SigningKey> {
    let pem = pki::private_key(dir, "service-accounts")?;
    SigningKey::from_pem(pem.as_bytes()).context("cannot use the key of service account tokens")
}
