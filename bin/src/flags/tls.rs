//! Flags of TLS.

use std::path::{Path, PathBuf};

use clap::Args;
use wire::server::{NamedCertificate, TlsSettings};

use super::forms;
use crate::config::issuers::opening;

/// Cipher suites that the flag accepts: those of Go's library. The server never offers the weak ones among them.
const KNOWN_SUITES: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct TlsFlags {
    /// Serve HTTP/1.1 only, not HTTP/2.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = forms::boolean, action = clap::ArgAction::Set)]
    pub disable_http2_serving: bool,

    /// Largest number of concurrent requests on an HTTP/2 connection. 0 means the server's own default.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true, value_parser = forms::integer::<i64>)]
    pub http2_max_streams_per_connection: i64,

    /// Let other processes of the same user listen on the same port (SO_REUSEPORT). The system distributes
    /// connections among them. Use it for several servers on the same etcd, or to start the next server
    /// before the previous one ends.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = forms::boolean, action = clap::ArgAction::Set)]
    pub permit_port_sharing: bool,

    /// TLS 1.2 cipher suites that the server offers, separated by commas. Default: the suites that are
    /// considered secure.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,

    /// Oldest version of TLS that the server offers. Possible values: VersionTLS10, VersionTLS11,
    /// VersionTLS12, VersionTLS13. VersionTLS12 is the oldest that is supported: older values mean the same.
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub tls_min_version: String,

    /// Key exchange groups that the server offers, as IANA numbers separated by commas.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = forms::integer::<u16>)]
    pub tls_curve_preferences: Vec<u16>,

    /// A certificate and its private key (PEM) for clients that request certain host names, as CERT,KEY or
    /// CERT,KEY:NAMES. Without NAMES, the names in the certificate count. *.example.com stands for any first
    /// label. Repeatable. Reloaded when the files change.
    #[arg(long, value_name = "FILES", value_parser = named_files)]
    pub tls_sni_cert_key: Vec<NamedFiles>,
}

/// The files of a certificate, and the host names that it is used for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamedFiles {
    /// The file of the certificate chain (PEM).
    pub certificate: PathBuf,
    /// The file of the private key (PEM).
    pub key: PathBuf,
    /// The host names. If empty, the names in the certificate count.
    pub names: Vec<String>,
}

impl NamedFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// The files cannot be read, or the key does not belong to the certificate.
    pub fn read(&self) -> anyhow::Result<NamedCertificate> {
        let open = |path: &Path| crate::host::files::read(path).map_err(|error| opening(path, &error));
        let read = || -> anyhow::Result<NamedCertificate> {
            let (chain, key) = (open(&self.certificate)?, open(&self.key)?);
            Ok(NamedCertificate::from_pem(&chain, &key, self.names.clone())?)
        };
        read().map_err(|error| anyhow::anyhow!("failed to load SNI cert and key: {error:#}"))
    }
}

fn named_files(text: &str) -> Result<NamedFiles, String> {
    let (files, names) = match text.split_once(':') {
        Some((_, names)) if names.trim().is_empty() => {
            return Err("empty names list is not allowed".to_owned());
        }
        Some((files, names)) => (files, names.split(',').map(|name| name.trim().to_owned()).collect()),
        None => (text, Vec::new()),
    };
    match files.split(',').map(str::trim).collect::<Vec<_>>()[..] {
        [certificate, key] => Ok(NamedFiles { certificate: certificate.into(), key: key.into(), names }),
        _ => Err("expected comma separated certificate and key file paths".to_owned()),
    }
}

impl TlsFlags {
    /// Returns the largest number of concurrent requests on an HTTP/2 connection, if the operator sets one.
    pub fn streams_max(&self) -> Option<u32> {
        let given = u64::try_from(self.http2_max_streams_per_connection).ok().filter(|given| *given > 0)?;
        Some(u32::try_from(given).unwrap_or(u32::MAX))
    }

    /// Returns the settings in the flags.
    ///
    /// # Errors
    /// A name is unknown, or the settings leave nothing to offer.
    pub fn settings(&self) -> Result<TlsSettings, String> {
        let is_modern = match self.tls_min_version.as_str() {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            other => return Err(format!("unknown tls version {}", go::quote(other))),
        };
        let mut suites = Vec::new();
        for name in &self.tls_cipher_suites {
            if !KNOWN_SUITES.contains(&name.as_str()) {
                return Err(format!("Cipher suite {name} not supported or doesn't exist"));
            }
            // Accept the former names of these suites.
            suites.push(match name.strip_suffix("_POLY1305") {
                Some(_) => format!("{name}_SHA256"),
                None => name.clone(),
            });
        }
        let settings = TlsSettings {
            serves_http2: !self.disable_http2_serving,
            is_modern,
            suites,
            groups: self.tls_curve_preferences.clone(),
        };
        settings.check()?;
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_to_offer_is_checked() {
        for (suites, version, groups, want) in [
            (&[][..], "", &[][..], ""),
            (&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], "VersionTLS12", &[29, 23], ""),
            (&["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"], "", &[], ""),
            (&["TLS_NOPE"], "", &[], "Cipher suite TLS_NOPE not supported or doesn't exist"),
            (&["TLS_RSA_WITH_RC4_128_SHA"], "", &[], ""),
            (&["TLS_AES_128_GCM_SHA256"], "", &[], ""),
            (&["TLS_RSA_WITH_RC4_128_SHA"], "VersionTLS13", &[], ""),
            (&[], "VersionTLS14", &[], "unknown tls version \"VersionTLS14\""),
            (&[], "", &[1], "--tls-curve-preferences: the server has none of these"),
        ] {
            let flags = TlsFlags {
                disable_http2_serving: false,
                http2_max_streams_per_connection: 0,
                permit_port_sharing: false,
                tls_cipher_suites: suites.iter().map(|name| (*name).to_owned()).collect(),
                tls_min_version: version.to_owned(),
                tls_curve_preferences: groups.to_vec(),
                tls_sni_cert_key: Vec::new(),
            };
            assert_eq!(flags.settings().err().unwrap_or_default(), want, "{suites:?} {version} {groups:?}");
        }
    }

    #[test]
    fn certificates_for_names_are_two_files() {
        let files = |names: &[&str]| NamedFiles {
            certificate: "a.crt".into(),
            key: "a.key".into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        for (text, want) in [
            ("a.crt,a.key", Some(files(&[]))),
            ("a.crt, a.key:*.example.com,b", Some(files(&["*.example.com", "b"]))),
            ("a.crt", None),
            ("a,b,c", None),
            ("a.crt,a.key:", None),
        ] {
            assert_eq!(named_files(text).ok(), want, "{text}");
        }
        assert_eq!(named_files("a,b: ").unwrap_err(), "empty names list is not allowed");
    }
}
