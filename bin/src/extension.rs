//! How extension servers know this one, from the flags.

use std::collections::BTreeMap;

use api::extension::Settings;

use crate::authentication::AuthenticationConfig;
use crate::config::read;
use crate::flags::ExtensionFlags;

/// Reads the certificate for extension servers, and tells them what `authentication` believes.
///
/// # Errors
/// A file cannot be read, or one of two is missing.
pub fn settings(flags: &ExtensionFlags, authentication: &AuthenticationConfig) -> anyhow::Result<Settings> {
    let certificate = match (&flags.proxy_client_cert_file, &flags.proxy_client_key_file) {
        // As kube-apiserver: one file alone is no certificate.
        (None, _) | (_, None) => None,
        (Some(chain), Some(key)) => {
            Some((read("--proxy-client-cert-file", chain)?, read("--proxy-client-key-file", key)?))
        }
    };
    Ok(Settings { certificate, authentication: told(authentication) })
}

/// The members of the ConfigMap that extension servers read: bundles as they are, lists as JSON.
fn told(authentication: &AuthenticationConfig) -> BTreeMap<String, String> {
    let mut told = BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if let Some(bundle) = &authentication.client_ca {
        told.insert("client-ca-file".to_owned(), text(&bundle.bytes));
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
            let list: Vec<String> = list.iter().map(|one| auth::go::quote(one)).collect();
            told.insert(format!("requestheader-{name}"), format!("[{}]", list.join(",")));
        }
    }
    told
}
