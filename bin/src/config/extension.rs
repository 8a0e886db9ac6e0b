//! The credentials that this server presents to extension servers, from the flags.

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::state::extension::{IdentityClaims, Settings};
use wire::outgoing::Networks;
use wire::server::ServingCertificate;

use crate::config::authentication::AuthenticationConfig;
use crate::config::issuers::opening;
use crate::flags::ExtensionFlags;
use crate::host::authorities::system_authorities;

/// The credentials that this server presents to extension servers.
#[derive(Clone, Debug)]
pub struct ExtensionConfig {
    /// Files of the client certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Contents of the files, and the authentication settings that are published.
    pub settings: Settings,
}

impl ExtensionConfig {
    /// Checks the flags; publishes the settings of `authentication` to extension servers.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn from_flags(
        flags: ExtensionFlags,
        authentication: &AuthenticationConfig,
        networks: &Networks,
    ) -> anyhow::Result<Self> {
        let certificate = match (flags.proxy_client_cert_file, flags.proxy_client_key_file) {
            // As in kube-apiserver, one file without the other has no effect.
            (None, _) | (_, None) => None,
            (Some(chain), Some(key)) => Some((chain, key)),
        };
        Self::read(certificate, authentication, networks)
    }

    /// Reads the certificate and the key.
    ///
    /// # Errors
    /// A file cannot be read, or the files do not belong together.
    pub fn read(
        certificate: Option<(PathBuf, PathBuf)>,
        authentication: &AuthenticationConfig,
        networks: &Networks,
    ) -> anyhow::Result<Self> {
        let mut settings = Settings {
            certificate: None,
            system: system_authorities(),
            networks: networks.clone(),
            authentication: told(authentication),
            claims: claims(authentication),
        };
        if let Some((chain, key)) = &certificate {
            let open = |path: &PathBuf| crate::host::files::read(path).map_err(|error| opening(path, &error));
            let pair = (open(chain)?, open(key)?);
            ServingCertificate::from_pem(&pair.0, &pair.1)?;
            settings.certificate = Some(pair);
        }
        Ok(ExtensionConfig { certificate, settings })
    }

    /// Returns the files that may change.
    pub fn files(&self) -> Vec<PathBuf> {
        self.certificate.iter().flat_map(|(chain, key)| [chain.clone(), key.clone()]).collect()
    }
}

/// Publishes the server's own authority to extension servers if no file names the authorities of clients:
/// this authority authenticates the administrator's kubeconfig, for example. If there is a file, only its
/// contents are published, as by kube-apiserver.
pub fn tell_own_authority(settings: &mut Settings, own: &[u8]) {
    let own = String::from_utf8_lossy(own).into_owned();
    settings.authentication.entry(CLIENT_BUNDLE.to_owned()).or_insert(own);
}

/// The ConfigMap member that has the authorities of clients.
const CLIENT_BUNDLE: &str = "client-ca-file";

/// Returns the headers in which a front proxy names the user, from the flags.
fn claims(authentication: &AuthenticationConfig) -> IdentityClaims {
    let Some(proxy) = &authentication.proxy else { return IdentityClaims::default() };
    let headers = &proxy.headers;
    IdentityClaims::new(
        headers.user.iter().chain(&headers.uid).chain(&headers.groups),
        &headers.extra_prefixes,
    )
}

/// Returns the members of the ConfigMap that extension servers read: bundles as they are, lists as JSON.
fn told(authentication: &AuthenticationConfig) -> BTreeMap<String, String> {
    let mut told = BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if let Some(bundle) = &authentication.client_ca {
        told.insert(CLIENT_BUNDLE.to_owned(), text(&bundle.bytes));
    }
    if let Some(proxy) = &authentication.proxy {
        told.insert("requestheader-client-ca-file".to_owned(), text(&proxy.client_ca.bytes));
        let headers = &proxy.headers;
        for (name, list) in [
            ("username-headers", &headers.user),
            ("uid-headers", &headers.uid),
            ("group-headers", &headers.groups),
            ("extra-headers-prefix", &headers.extra_prefixes),
            ("allowed-names", &proxy.allowed_names),
        ] {
            let list: Vec<String> = list.iter().map(|one| go::quote(one)).collect();
            told.insert(format!("requestheader-{name}"), format!("[{}]", list.join(",")));
        }
    }
    told
}
