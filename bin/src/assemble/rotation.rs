//! Rotation of credentials without a restart. The server reads the files of CAs, signing keys and client
//! certificates periodically. Valid new contents replace the old contents.
//!
//! ```text
//! files ─ changed? ─► checked ─┬─ valid ─► replaced as a whole: authorities, keys, certificates
//!                              └─ not ───► one warning; the old ones stay in use
//! ```
//!
//! The new CAs also apply to open connections. A token that a removed key signed is refused at once. The server reloads
//! its own CA in the same way, because the command `certs rotate-ca` replaces that file.

use std::path::PathBuf;
use std::sync::Arc;

use api::state::tokens::TokenSigner;
use api::writes::server::Server as Api;
use auth::authn::x509::{CaBundle, ClientCertificates};
use wire::server::ServerTls;

use crate::assemble::authenticators::Bundles;
use crate::assemble::credentials::Credentials;
use crate::assemble::tokens;
use crate::config::Config;
use crate::config::authentication::AuthenticationSettings;
use crate::config::extension;
use crate::config::issuers;
use crate::config::named_file::NamedFile;
use crate::host::expiry;
use crate::host::reload::{self, FileGroup};

/// The components whose credentials are replaced.
pub struct Followed<'s> {
    /// The authenticators that use the files.
    pub bundles: &'s Bundles,
    /// The TLS settings of the server, which include the names of CAs that handshakes send.
    pub tls: &'s ServerTls,
    /// The server, which signs tokens and connects to extension servers.
    pub api: &'s Arc<Api>,
}

/// Reloads the credential files of `config` when they change, while the server runs.
pub async fn follow(config: &Config, credentials: &Credentials, followed: &Followed<'_>) {
    let issuers = async {
        if let Some(issuers) = &followed.bundles.issuers {
            let reloads = &followed.api.operations.metrics.reloads.0;
            issuers::follow(&config.authentication.issuers, issuers, reloads).await;
        }
    };
    let signer = async {
        if let TokenSigner::External(external) = &followed.api.access.tokens.signer {
            external.follow().await;
        }
    };
    tokio::join!(
        credentials.follow(&followed.api.operations.metrics),
        follow_authorities(config, credentials, followed),
        follow_keys(config, credentials, followed),
        config.nodes.follow(&followed.api.operations.metrics),
        issuers,
        signer
    );
}

fn path(file: &NamedFile) -> PathBuf {
    file.path.clone()
}

/// Reloads the CA bundles of clients and proxies, and the client certificate for extension servers. The
/// server also publishes both CA bundles to extension servers.
async fn follow_authorities(config: &Config, credentials: &Credentials, followed: &Followed<'_>) {
    let mut authentication = config.authentication.clone();
    let mut clients = FileGroup::new(authentication.client_ca.iter().map(path).collect());
    let mut proxies =
        FileGroup::new(authentication.proxy.iter().map(|proxy| path(&proxy.client_ca)).collect());
    let mut own = FileGroup::new(config.extensions.files());
    let mut own_cas = credentials.own_cas().unwrap_or_default();
    loop {
        tokio::time::sleep(reload::BUNDLE_INTERVAL).await;
        let mut is_changed = false;
        if let Ok(now) = credentials.own_cas()
            && now != own_cas
        {
            is_changed |= reload_own_cas(&authentication, credentials, followed, &now);
            own_cas = now;
        }
        if let (Some([bundle]), Some(file)) = (clients.changed(), &mut authentication.client_ca) {
            let joined = credentials.client_cas(Some(bundle));
            if reload_bundle("--client-ca-file", joined.as_deref(), bundle, &followed.bundles.clients) {
                is_changed = true;
                file.bytes.clone_from(bundle);
                followed.tls.name_authorities(&joined.unwrap_or_default());
                expiry::watch(&followed.api.operations.metrics, "client-ca", bundle);
            }
        }
        if let (Some([bundle]), Some(certificates), Some(proxy)) =
            (proxies.changed(), &followed.bundles.proxies, &mut authentication.proxy)
            && reload_bundle("--requestheader-client-ca-file", Ok(bundle), bundle, certificates)
        {
            is_changed = true;
            proxy.client_ca.bytes.clone_from(bundle);
            expiry::watch(&followed.api.operations.metrics, "requestheader-client-ca", bundle);
        }
        is_changed |= own.changed().is_some();
        if is_changed {
            match extension::ExtensionSettings::read(
                config.extensions.certificate.clone(),
                &authentication,
                &config.extensions.settings.networks,
            ) {
                Ok(mut read) => {
                    match credentials.client_cas(None) {
                        Ok(own) => extension::publish_own_authority(&mut read.settings, &own),
                        Err(error) => {
                            let error = format!("{error:#}");
                            tracing::warn!(
                                error,
                                "the server's own CA is not published to extension servers"
                            );
                        }
                    }
                    if let Some((chain, _)) = &read.settings.certificate {
                        expiry::watch(&followed.api.operations.metrics, "proxy-client", chain);
                    }
                    followed.api.outgoing.peers.replace_certificate(read.settings.certificate.clone());
                    followed.api.outgoing.extensions.replace_settings(read.settings);
                    tracing::info!("credentials for extension servers reloaded");
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(
                        error,
                        "credentials for extension servers not reloaded, the old ones stay in use: correct the files"
                    );
                }
            }
        }
    }
}

/// Applies a change of the server's own CAs to the authentication of clients, and to the CAs that the server publishes
/// in the cluster. Returns whether the change was applied.
fn reload_own_cas(
    authentication: &AuthenticationSettings,
    credentials: &Credentials,
    followed: &Followed<'_>,
    own_cas: &str,
) -> bool {
    let file = authentication.client_ca.as_ref().map(|file| file.bytes.as_slice());
    let joined = credentials.client_cas(file);
    let replaced = reload_bundle("own CA", joined.as_deref(), own_cas.as_bytes(), &followed.bundles.clients);
    if replaced {
        followed.tls.name_authorities(&joined.unwrap_or_default());
        match credentials.reload_serving() {
            Ok(root_ca) => followed.api.operations.replace_root_ca(root_ca),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(
                    error,
                    "certificates of the changed CA not in use, the old ones stay: correct the files"
                );
            }
        }
    }
    replaced
}

/// Replaces a CA bundle if the new bundle is valid. Returns whether the bundle was replaced.
fn reload_bundle<B: AsRef<[u8]>>(
    flag: &str,
    bundle: Result<B, &anyhow::Error>,
    file: &[u8],
    certificates: &ClientCertificates,
) -> bool {
    let read = |bytes: &[u8]| CaBundle::from_pem(bytes).map_err(anyhow::Error::from);
    let whole = match bundle {
        Ok(bundle) => read(file).and_then(|_| read(bundle.as_ref())),
        Err(error) => Err(anyhow::anyhow!("{error:#}")),
    };
    match whole {
        Ok(bundle) => {
            certificates.replace_bundle(bundle);
            tracing::info!(flag, "CA bundle reloaded");
            true
        }
        Err(error) => {
            tracing::warn!(
                flag,
                error = %format!("{error:#}"),
                "CA bundle not reloaded, the old one stays in use: correct the file"
            );
            false
        }
    }
}

/// Reloads the key files of service account tokens when they change.
async fn follow_keys(config: &Config, credentials: &Credentials, followed: &Followed<'_>) {
    let flags = &config.authentication.tokens;
    let paths: Vec<PathBuf> = flags.signing_key.iter().chain(&flags.keys).map(path).collect();
    if paths.is_empty() {
        return;
    }
    let mut watched = FileGroup::new(paths);
    loop {
        tokio::time::sleep(reload::BUNDLE_INTERVAL).await;
        let Some(contents) = watched.changed() else { continue };
        let (signing, others) = contents.split_at(flags.signing_key.iter().count());
        let signing = signing.first().map(Vec::as_slice);
        let others: Vec<&[u8]> = others.iter().map(Vec::as_slice).collect();
        match tokens::Keys::read(config, signing, &others) {
            Ok(keys) => {
                let documents = keys.documents(config, credentials.address());
                let verifying = keys.verifying.clone();
                // Replace the verification keys before the signing key, so that no new token is refused.
                followed.bundles.tokens.replace_keys(verifying);
                followed.api.access.tokens.replace(keys.signing, documents);
                tracing::info!(keys = keys.verifying.len(), "keys of service account tokens reloaded");
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(
                    error,
                    "keys of service account tokens not reloaded, the old ones stay in use: correct the files"
                );
            }
        }
    }
}
