//! The keys and issuers of service account tokens.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use api::state::policy::EngineAccounts;
use api::state::tokens::external::{External, IssuerDescription};
use api::state::tokens::{EXTENDED_LIFETIME, IssuerDocuments, TokenSigner, Tokens};
use auth::authn::service_account::{Drafts, ServiceAccountTokens, TokenIssuer};
use auth::authn::{NameDomains, SigningKey, VerificationKey};
use parking_lot::RwLock;

use crate::config::Config;
use crate::config::named_file::NamedFile;
use crate::flags::duration;
use crate::host::machine;
use crate::host::pki;

/// Builds the issuer and the verifier. Without a configured key and without an external signer, the server
/// stores a key in its data directory, so that tokens stay valid after a restart.
///
/// # Errors
/// A key is invalid, or the maximum lifetime of tokens exceeds the maximum of the external signer.
pub fn prepare(
    config: &Config,
    accounts: Arc<EngineAccounts>,
    address: SocketAddr,
    domains: &NameDomains,
    external: Option<External>,
) -> anyhow::Result<(Arc<ServiceAccountTokens>, Tokens)> {
    let flags = &config.authentication.tokens;
    let issuer = flags.issuers.first().cloned().unwrap_or_default();
    let (keys, signer, documents) = match external {
        Some(external) => (external.keys(), TokenSigner::External(Arc::new(external)), None),
        None => {
            let signing = flags.signing_key.as_ref().map(|file| file.bytes.as_slice());
            let others: Vec<&[u8]> = flags.keys.iter().map(|file| file.bytes.as_slice()).collect();
            let keys = Keys::read(config, signing, &others)?;
            let documents = keys.documents(config, address);
            let issuer = TokenIssuer::new(issuer.clone(), keys.signing, domains.clone());
            (keys.verifying, TokenSigner::Own(issuer), documents)
        }
    };
    let uses = accounts.uses();
    let mut verifier = ServiceAccountTokens::new(flags.issuers.clone(), keys, accounts, domains.clone())
        .with_audiences(flags.audiences.clone());
    if !flags.lookup {
        verifier = verifier.without_lookup();
    }
    let (mut lifetime_max, mut extended_lifetime) = (flags.lifetime_max, EXTENDED_LIFETIME);
    let verifier = match &signer {
        TokenSigner::Own(_) => Arc::new(verifier),
        TokenSigner::External(external) => {
            let longest = external.lifetime_max();
            if let Some(given) = lifetime_max.filter(|given| *given > longest) {
                bail!(
                    "service-account-max-token-expiration cannot be set longer than the token expiration supported by \
                     service-account-signing-endpoint: {} > {}",
                    duration::duration_text(given),
                    duration::duration_text(longest)
                );
            }
            lifetime_max = lifetime_max.or(Some(longest));
            extended_lifetime = extended_lifetime.min(longest);
            let verifier = Arc::new(verifier.with_named_keys());
            let about = IssuerDescription {
                issuer: issuer.clone(),
                keys_uri: flags.keys_uri.clone(),
                address: published_address(config, address),
            };
            external.use_for(Drafts::new(issuer, domains.clone()), about, verifier.clone());
            verifier
        }
    };
    let tokens = Tokens {
        signer,
        audiences: flags.audiences.clone(),
        lifetime_max,
        extends: flags.extends,
        extended_lifetime,
        documents: RwLock::new(documents),
        uses,
    };
    Ok((verifier, tokens))
}

/// Returns the host and port under which published documents name this server.
fn published_address(config: &Config, address: SocketAddr) -> String {
    machine::readers_authority(
        address,
        config.service.advertise_address,
        config.service.external_hostname.as_deref(),
    )
}

/// The keys of service account tokens.
pub struct Keys {
    /// The key that signs new tokens.
    pub signing: SigningKey,
    /// The keys that verify tokens; the signing key is one of them.
    pub verifying: Vec<VerificationKey>,
}

impl Keys {
    /// Reads keys from the contents of the configured files. Uses the server's own key if no signing key is
    /// configured.
    ///
    /// # Errors
    /// A file does not contain a key.
    pub fn read(config: &Config, signing: Option<&[u8]>, others: &[&[u8]]) -> anyhow::Result<Keys> {
        let flags = &config.authentication.tokens;
        let displayed_path = |file: &NamedFile| file.path.display().to_string();
        let signing = match (signing, &flags.signing_key) {
            (Some(bytes), Some(file)) => SigningKey::from_pem(bytes).with_context(|| displayed_path(file))?,
            _ => own_key(&config.store.data_dir.join("pki"))?,
        };
        let mut verifying: Vec<VerificationKey> = Vec::new();
        for (bytes, file) in others.iter().zip(&flags.keys) {
            verifying.extend(VerificationKey::from_pem(bytes).with_context(|| displayed_path(file))?);
        }
        if !verifying.iter().any(|key| key.id() == signing.public().id()) {
            verifying.insert(0, signing.public().clone());
        }
        Ok(Keys { signing, verifying })
    }

    /// Returns the discovery documents that programs read to verify the tokens of a server at `address`.
    pub fn documents(&self, config: &Config, address: SocketAddr) -> Option<IssuerDocuments> {
        let flags = &config.authentication.tokens;
        let issuer = flags.issuers.first().map(String::as_str).unwrap_or_default();
        let published = published_address(config, address);
        IssuerDocuments::new(issuer, &self.verifying, flags.keys_uri.as_deref(), &published)
    }
}

fn own_key(dir: &Path) -> anyhow::Result<SigningKey> {
    let pem = pki::private_key(dir, "service-accounts")?;
    SigningKey::from_pem(pem.as_bytes()).context("cannot use the key of service account tokens")
}
