//! The credentials that this server presents to extension servers, from the flags.

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::state::extension::{IdentityClaims, Settings};
use clap::Args;
use wire::outgoing::Networks;
use wire::server::ServingCertificate;

use crate::config::authentication::AuthenticationSettings;
use crate::flags::problems::{FlagError, shown};
use crate::host::authorities::system_authorities;
use crate::host::files::{self, opening};

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct ExtensionFlags {
    /// Client certificate (PEM) that this server presents to extension servers and peers.
    #[arg(long, value_name = "FILE")]
    pub proxy_client_cert_file: Option<PathBuf>,

    /// Private key (PEM) of --proxy-client-cert-file.
    #[arg(long, value_name = "FILE")]
    pub proxy_client_key_file: Option<PathBuf>,
}

/// The credentials that this server presents to extension servers.
#[derive(Clone, Debug)]
pub struct ExtensionSettings {
    /// Files of the client certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Contents of the files, and the authentication settings that are published.
    pub settings: Settings,
}

impl ExtensionFlags {
    /// Returns the settings; publishes the settings of `authentication` to extension servers.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn settings(
        &self,
        authentication: &AuthenticationSettings,
        networks: &Networks,
    ) -> Result<ExtensionSettings, FlagError> {
        // As in kube-apiserver, one file without the other has no effect.
        let certificate = self.proxy_client_cert_file.clone().zip(self.proxy_client_key_file.clone());
        ExtensionSettings::read(certificate, authentication, networks).map_err(|why| {
            FlagError::worded("proxy-client-cert-file", shown(self.proxy_client_cert_file.as_deref()), why)
        })
    }

    /// Returns the flag that is missing for connections to peers: the client certificate or its key.
    pub fn missing_for_peers(&self) -> Option<&'static str> {
        match (&self.proxy_client_cert_file, &self.proxy_client_key_file) {
            (None, _) => Some("--proxy-client-cert-file"),
            (Some(_), None) => Some("--proxy-client-key-file"),
            (Some(_), Some(_)) => None,
        }
    }
}

impl ExtensionSettings {
    /// Reads the certificate and the key.
    ///
    /// # Errors
    /// A file cannot be read, or the files do not belong together.
    pub fn read(
        certificate: Option<(PathBuf, PathBuf)>,
        authentication: &AuthenticationSettings,
        networks: &Networks,
    ) -> anyhow::Result<Self> {
        let mut settings = Settings {
            certificate: None,
            system: system_authorities(),
            networks: networks.clone(),
            authentication: published(authentication),
            claims: claims(authentication),
        };
        if let Some((chain, key)) = &certificate {
            let open = |path: &PathBuf| files::read(path).map_err(|error| opening(path, &error));
            let pair = (open(chain)?, open(key)?);
            ServingCertificate::from_pem(&pair.0, &pair.1)?;
            settings.certificate = Some(pair);
        }
        Ok(ExtensionSettings { certificate, settings })
    }

    /// Returns the files that may change.
    pub fn files(&self) -> Vec<PathBuf> {
        self.certificate.iter().flat_map(|(chain, key)| [chain.clone(), key.clone()]).collect()
    }
}

/// Publishes the server's own authority to extension servers if no file names the authorities of clients:
/// this authority authenticates the administrator's kubeconfig, for example. If there is a file, only its
/// contents are published, as by kube-apiserver.
pub fn publish_own_authority(settings: &mut Settings, own: &[u8]) {
    let own = String::from_utf8_lossy(own).into_owned();
    settings.authentication.entry(CLIENT_BUNDLE.to_owned()).or_insert(own);
}

/// The ConfigMap member that has the authorities of clients.
const CLIENT_BUNDLE: &str = "client-ca-file";

/// Returns the headers in which a front proxy names the user, from the flags.
fn claims(authentication: &AuthenticationSettings) -> IdentityClaims {
    let Some(proxy) = &authentication.proxy else { return IdentityClaims::default() };
    let headers = &proxy.headers;
    IdentityClaims::new(
        headers.user.iter().chain(&headers.uid).chain(&headers.groups),
        &headers.extra_prefixes,
    )
}

/// Returns the members of the ConfigMap that extension servers read: bundles as they are, lists as JSON.
fn published(authentication: &AuthenticationSettings) -> BTreeMap<String, String> {
    let mut members = BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if let Some(bundle) = &authentication.client_ca {
        members.insert(CLIENT_BUNDLE.to_owned(), text(&bundle.bytes));
    }
    if let Some(proxy) = &authentication.proxy {
        members.insert("requestheader-client-ca-file".to_owned(), text(&proxy.client_ca.bytes));
        let headers = &proxy.headers;
        for (name, list) in [
            ("username-headers", &headers.user),
            ("uid-headers", &headers.uid),
            ("group-headers", &headers.groups),
            ("extra-headers-prefix", &headers.extra_prefixes),
            ("allowed-names", &proxy.allowed_names),
        ] {
            let list: Vec<String> = list.iter().map(|one| go::quote(one)).collect();
            members.insert(format!("requestheader-{name}"), format!("[{}]", list.join(",")));
        }
    }
    members
}
