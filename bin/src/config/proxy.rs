//! Flags of an authenticating proxy, which sends the user in request headers.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use auth::authn::request_header::HeaderNames;
use auth::authn::x509::CaBundle;
use clap::Args;
use go::quote;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::config::named_file::{NamedFile, named};
use crate::flags::problems::{FlagError, Problems};

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Default, Args)]
pub struct ProxyFlags {
    /// CA bundle (PEM) that the client certificate of an authenticating proxy is verified against. Requires
    /// --requestheader-username-headers. Reloaded when the file changes.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,

    /// Common names that the client certificate of an authenticating proxy may have, separated by commas.
    /// Default: all names.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,

    /// Request headers in which an authenticating proxy sends the user name, separated by commas. The server
    /// uses the first header with a value.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_username_headers: Vec<String>,

    /// Request headers in which an authenticating proxy sends the uid of the user, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<String>,

    /// Request headers in which an authenticating proxy sends groups of the user, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_group_headers: Vec<String>,

    /// Prefixes of the request headers in which an authenticating proxy sends extra values of the user,
    /// separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

/// Settings of an authenticating proxy.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// CAs that the proxy's certificate is verified against.
    pub client_ca: NamedFile,
    /// Common names that the proxy's certificate may have. An empty list allows every name.
    pub allowed_names: Vec<String>,
    /// Headers in which the proxy sends the user.
    pub headers: HeaderNames,
}

impl ProxyFlags {
    /// Adds an error for each invalid name of a header or a proxy certificate.
    pub fn check_names(&self, problems: &mut Problems) {
        for (flag, values) in [
            ("requestheader-username-headers", &self.requestheader_username_headers),
            ("requestheader-uid-headers", &self.requestheader_uid_headers),
            ("requestheader-group-headers", &self.requestheader_group_headers),
            ("requestheader-extra-headers-prefix", &self.requestheader_extra_headers_prefix),
            ("requestheader-allowed-names", &self.requestheader_allowed_names),
        ] {
            if values.iter().any(|value| value.trim().is_empty()) {
                let text = format!("empty value in \"{flag}\"");
                problems.add(FlagError::worded(flag, values.join(","), text));
            }
        }
        let uid = &self.requestheader_uid_headers;
        let is_standard = |name: &String| name.eq_ignore_ascii_case("X-Remote-Uid");
        if !uid.is_empty() && !uid.iter().any(is_standard) {
            let text = "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation \
                        will not work";
            problems.add(FlagError::worded("requestheader-uid-headers", uid.join(","), text));
        }
    }

    /// Returns the settings, or `None` if no proxy is configured. `clients` has the CAs of the client
    /// certificates of users.
    ///
    /// # Errors
    /// The file cannot be used, or users could present their own client certificates as the certificate of
    /// the proxy.
    pub fn settings(&self, clients: Option<&CaBundle>) -> Result<Option<ProxySettings>, FlagError> {
        let Some(path) = &self.requestheader_client_ca_file else { return Ok(None) };
        let settings = self.with_authorities(path, clients);
        settings
            .map(Some)
            .map_err(|why| FlagError::worded("requestheader-client-ca-file", path.display(), why))
    }

    fn with_authorities(&self, path: &Path, clients: Option<&CaBundle>) -> anyhow::Result<ProxySettings> {
        let client_ca = named(path.to_owned())?;
        let bundle = check_bundle("request-header", &client_ca)?;
        let headers = HeaderNames {
            user: self.requestheader_username_headers.clone(),
            uid: self.requestheader_uid_headers.clone(),
            groups: self.requestheader_group_headers.clone(),
            extra_prefixes: self.requestheader_extra_headers_prefix.clone(),
        };
        if headers.user.is_empty() {
            tracing::warn!(
                "--requestheader-username-headers names no header: a proxy cannot authenticate users until it does"
            );
        }
        let allowed_names = self.requestheader_allowed_names.clone();
        if allowed_names.is_empty() && clients.is_some_and(|clients| clients.overlaps(&bundle)) {
            bail!(
                "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; \
                 --requestheader-allowed-names must be specified to ensure regular client certificates cannot set \
                 authenticating proxy headers for arbitrary users"
            );
        }
        Ok(ProxySettings { client_ca, allowed_names, headers })
    }
}

/// Parses a CA bundle. If the file has no certificates, the error has the message of kube-apiserver.
pub fn check_bundle(purpose: &str, file: &NamedFile) -> anyhow::Result<CaBundle> {
    let name = format!("{purpose}::{}", file.path.display());
    if file.bytes.is_empty() {
        bail!("missing content for CA bundle {}", quote(&name));
    }
    let failed = |why: &str| anyhow!("error loading CA bundle for {}: {why}", quote(&name));
    let count = CertificateDer::pem_slice_iter(&file.bytes).filter(Result::is_ok).count();
    if count == 0 {
        return Err(failed("data does not contain any valid RSA or ECDSA certificates"));
    }
    CaBundle::from_pem(&file.bytes).map_err(|error| failed(&error.to_string()))
}
