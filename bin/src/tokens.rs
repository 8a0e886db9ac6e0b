//! The keys and issuers of service account tokens.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use api::policy::EngineAccounts;
use api::tokens::Tokens;
use auth::authn::service_account::{ServiceAccountTokens, TokenIssuer};
use auth::authn::{NameDomains, SigningKey, VerificationKey};
use engine::Engine;

use crate::config::Config;
use crate::pki;

/// Builds issuer and verifier. Without a configured key the server stores one in its data directory, so that tokens
/// stay valid after a restart.
pub fn prepare(
    config: &Config,
    engine: Engine,
    domains: &NameDomains,
) -> anyhow::Result<(ServiceAccountTokens, Tokens)> {
    let flags = &config.tokens;
    let signing = match &flags.signing_key {
        Some(file) => SigningKey::from_pem(&file.bytes).with_context(|| file.path.display().to_string())?,
        None => own_key(&config.data_dir.join("pki"))?,
    };
    let mut keys = vec![signing.public().clone()];
    for file in &flags.keys {
        keys.extend(VerificationKey::from_pem(&file.bytes).with_context(|| file.path.display().to_string())?);
    }
    let accounts = Arc::new(EngineAccounts::new(engine));
    let issuer = flags.issuers.first().cloned().unwrap_or_default();
    let verifier = ServiceAccountTokens::new(flags.issuers.clone(), keys, accounts, domains.clone());
    let tokens = Tokens {
        issuer: TokenIssuer::new(issuer, signing, domains.clone()),
        audiences: flags.audiences.clone(),
        lifetime_max: flags.lifetime_max,
        extends: flags.extends,
    };
    Ok((verifier, tokens))
}

fn own_key(dir: &Path) -> anyhow::Result<SigningKey> {
    let pem = pki::private_key(dir, "service-accounts")?;
    SigningKey::from_pem(pem.as_bytes()).context("cannot use the key of service account tokens")
}
