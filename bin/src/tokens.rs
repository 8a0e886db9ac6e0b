//! The keys and issuers of service account tokens.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use api::state::policy::EngineAccounts;
use api::state::tokens::{IssuerDocuments, Tokens};
use auth::authn::service_account::{ServiceAccountTokens, TokenIssuer};
use auth::authn::{NameDomains, SigningKey, VerificationKey};
use parking_lot::RwLock;

use crate::config::{Config, NamedFile};
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
    let signing = flags.signing_key.as_ref().map(|file| file.bytes.as_slice());
    let others: Vec<&[u8]> = flags.keys.iter().map(|file| file.bytes.as_slice()).collect();
    let keys = Keys::read(config, signing, &others)?;
    let documents = RwLock::new(keys.documents(config, address));
    let issuer = flags.issuers.first().cloned().unwrap_or_default();
    let Keys { signing, verifying } = keys;
    let mut verifier = ServiceAccountTokens::new(flags.issuers.clone(), verifying, accounts, domains.clone())
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

/// The keys of service account tokens.
pub struct Keys {
    /// Signs.
    pub signing: SigningKey,
    /// Verify; the signing key is one of them.
    pub verifying: Vec<VerificationKey>,
}

impl Keys {
    /// Reads the contents of the configured files; without a signing key the server's own is used.
    ///
    /// # Errors
    /// One is not a key.
    pub fn read(config: &Config, signing: Option<&[u8]>, others: &[&[u8]]) -> anyhow::Result<Keys> {
        let flags = &config.authentication.tokens;
        let shown = |file: &NamedFile| file.path.display().to_string();
        let signing = match (signing, &flags.signing_key) {
            (Some(bytes), Some(file)) => SigningKey::from_pem(bytes).with_context(|| shown(file))?,
            _ => own_key(&config.data_dir.join("pki"))?,
        };
        let mut verifying: Vec<VerificationKey> = Vec::new();
        for (bytes, file) in others.iter().zip(&flags.keys) {
            verifying.extend(VerificationKey::from_pem(bytes).with_context(|| shown(file))?);
        }
        if !verifying.iter().any(|key| key.id() == signing.public().id()) {
            verifying.insert(0, signing.public().clone());
        }
        Ok(Keys { signing, verifying })
    }

    /// What others read to verify tokens of a server at `address`.
    pub fn documents(&self, config: &Config, address: SocketAddr) -> Option<IssuerDocuments> {
        let flags = &config.authentication.tokens;
        let issuer = flags.issuers.first().map(String::as_str).unwrap_or_default();
        let shown =
            host::readers_authority(address, config.advertise_address, config.external_hostname.as_deref());
        IssuerDocuments::new(issuer, &self.verifying, flags.keys_uri.as_deref(), &shown)
    }
}

fn own_key(dir: &Path) -> anyhow::Result<SigningKey> {
    let pem = pki::private_key(dir, "service-accounts")?;
    SigningKey::from_pem(pem.as_bytes()).context("cannot use the key of service account tokens")
}
