//! The credentials that this server presents to extension servers, from the flags.

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::state::extension::{IdentityClaims, Settings};
use clap::Args;
use wire::outgoing::Networks;
use wire::server::ServingCertificate;

use crate::config::authentication::AuthenticationSettings;
use crate::flags::problems::{FlagError, path_text};
use crate::host::authorities::system_authorities;
use crate::host::files::{self, opening};

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
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
    /// Returns the settings. The result includes the settings of `authentication` that are published to
    /// extension servers.
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
            FlagError::worded(
                "proxy-client-cert-file",
                path_text(self.proxy_client_cert_file.as_deref()),
                why,
            )
        })
    }

    /// Returns the name of the missing flag if the client certificate for peers or its key is not given.
    pub fn missing_for_peers(&self) -> Option<&'static str> {
        match (&self.proxy_client_cert_file, &self.proxy_client_key_file) {
            (None, _) => Some("--proxy-client-cert-file"),
            (Some(_), None) => Some("--proxy-client-key-file"),
            (Some(_), Some(_)) => None,
        }
    }
}

impl ExtensionSettings {
    /// Reads the client certificate and its key.
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

    /// Returns the files that must be reloaded when they change.
    pub fn files(&self) -> Vec<PathBuf> {
        self.certificate.iter().flat_map(|(chain, key)| [chain.clone(), key.clone()]).collect()
    }
}

/// Publishes the server's own CA to extension servers if no CA bundle of clients is configured. Extension
/// servers need this CA to verify the certificate in the administrator's kubeconfig, for example. If a bundle
/// is configured, only the bundle is published, as in kube-apiserver.
pub fn publish_own_authority(settings: &mut Settings, own: &[u8]) {
    let own = String::from_utf8_lossy(own).into_owned();
    settings.authentication.entry(CLIENT_BUNDLE.to_owned()).or_insert(own);
}

/// The member of the ConfigMap that contains the CA bundle of clients.
const CLIENT_BUNDLE: &str = "client-ca-file";

/// Returns the request headers in which a front proxy sends the user, from the flags.
fn claims(authentication: &AuthenticationSettings) -> IdentityClaims {
    let Some(proxy) = &authentication.proxy else { return IdentityClaims::default() };
    let headers = &proxy.headers;
    IdentityClaims::new(
        headers.user.iter().chain(&headers.uid).chain(&headers.groups),
        &headers.extra_prefixes,
    )
}

/// Returns the members of the ConfigMap that extension servers read: CA bundles as PEM, lists as JSON.
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
