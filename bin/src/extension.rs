//! How extension servers know this one, from the flags.

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::state::extension::{IdentityClaims, Settings};
use wire::outgoing::Networks;
use wire::server::ServingCertificate;

use crate::authentication::AuthenticationConfig;
use crate::authorities::system_authorities;
use crate::flags::ExtensionFlags;
use crate::issuers::opening;

/// How extension servers know this one.
#[derive(Clone, Debug)]
pub struct ExtensionConfig {
    /// Files of the certificate and the key for them.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The same as it was read.
    pub settings: Settings,
}

impl ExtensionConfig {
    /// Takes the flags, and tells extension servers what `authentication` believes.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn from_flags(
        flags: ExtensionFlags,
        authentication: &AuthenticationConfig,
        networks: &Networks,
    ) -> anyhow::Result<Self> {
        let certificate = match (flags.proxy_client_cert_file, flags.proxy_client_key_file) {
            // As kube-apiserver: one file alone is no certificate.
            (None, _) | (_, None) => None,
            (Some(chain), Some(key)) => Some((chain, key)),
        };
        Self::read(certificate, authentication, networks)
    }

    /// Reads the files.
    ///
    /// # Errors
    /// One cannot be read, or they do not belong together.
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
            let open = |path: &PathBuf| crate::files::read(path).map_err(|error| opening(path, &error));
            let pair = (open(chain)?, open(key)?);
            ServingCertificate::from_pem(&pair.0, &pair.1)?;
            settings.certificate = Some(pair);
        }
        Ok(ExtensionConfig { certificate, settings })
    }

    /// Files that may change.
    pub fn files(&self) -> Vec<PathBuf> {
        self.certificate.iter().flat_map(|(chain, key)| [chain.clone(), key.clone()]).collect()
    }
}

/// Where no file names the authorities of clients, tells extension servers of the server's own: it authenticates clients, as
/// of the administrator's kubeconfig. A file alone is told as it is, as kube-apiserver does.
pub fn tell_own_authority(settings: &mut Settings, own: &[u8]) {
    let own = String::from_utf8_lossy(own).into_owned();
    settings.authentication.entry(CLIENT_BUNDLE.to_owned()).or_insert(own);
}

/// The member with the authorities of clients.
const CLIENT_BUNDLE: &str = "client-ca-file";

/// The headers by which the flags let a proxy in front say who asks.
fn claims(authentication: &AuthenticationConfig) -> IdentityClaims {
    let Some(proxy) = &authentication.proxy else { return IdentityClaims::default() };
    let headers = &proxy.headers;
    IdentityClaims::new(
        headers.user.iter().chain(&headers.uid).chain(&headers.groups),
        &headers.extra_prefixes,
    )
}

/// The members of the ConfigMap that extension servers read: bundles as they are, lists as JSON.
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
