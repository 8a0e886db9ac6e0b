//! Reads the current context of a kubeconfig: the address of a server, the verification of its certificate,
//! and the credentials.
//!
//! Relative paths are relative to the directory of the kubeconfig. Each call of [`Settings::material`] reads
//! the files with certificates, keys and tokens again. A setting that is not supported causes an error with
//! its name.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use auth::authn::key_pair;
use http::Uri;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use values::json::Value;
use values::yaml;
use wire::outgoing::{Credentials, Endpoint, Identity};

use super::exec::{self, Exec};
use super::file_members::text_of;
use crate::host::authorities::system_authorities;
use crate::host::files;

/// The address of a server and the credentials for this server. Files with credentials are not read yet.
// The type does not implement `Debug`, because keys and tokens must not be logged.
pub struct Settings {
    /// URL of the server.
    pub server: String,
    /// Namespace of the context; empty if the context has no namespace.
    pub namespace: String,
    /// Name that the server's certificate must have, if it is not the host of the address.
    pub server_name: Option<String>,
    /// URL of a proxy for connections to the server.
    proxy: Option<String>,
    /// Whether the server's certificate is not verified.
    is_unverified: bool,
    authorities: Option<ValueSource>,
    certificate: Option<(ValueSource, ValueSource)>,
    token: Option<ValueSource>,
    password: Option<(String, String)>,
    /// Headers that impersonate another user.
    headers: Vec<(String, String)>,
    /// A program that prints credentials.
    pub(super) exec: Option<Exec>,
}

/// A value in the kubeconfig itself, or in another file.
pub(super) enum ValueSource {
    Here(Vec<u8>),
    File(PathBuf),
}

/// The contents of the files when they were last read.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Material {
    /// PEM of the CAs of the server, or `None` for the CAs of the system.
    pub authorities: Option<Vec<u8>>,
    /// The credentials of this process.
    pub identity: Identity,
}

impl Settings {
    /// Reads the current context of a kubeconfig.
    ///
    /// # Errors
    /// The file or a setting is missing, unreadable or not supported. The error is one line with the path.
    pub fn read(path: &Path) -> anyhow::Result<Settings> {
        let text =
            files::read_if_there(path)?.with_context(|| format!("{} does not exist", path.display()))?;
        let reading = Reading { dir: path.parent().unwrap_or(Path::new("")) };
        reading.settings(&text).with_context(|| path.display().to_string())
    }

    /// Removes the credentials and the CAs of the server, for connections without TLS.
    pub(super) fn forget_credentials(&mut self) {
        (self.authorities, self.certificate, self.token, self.exec) = (None, None, None, None);
    }

    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// A file is missing, or the token is not valid text.
    pub fn material(&self) -> anyhow::Result<Material> {
        let certificate = match &self.certificate {
            Some((chain, key)) => Some((chain.bytes()?, key.bytes()?)),
            None => None,
        };
        let token = match &self.token {
            Some(token) => {
                let token = String::from_utf8(token.bytes()?).ok().context("the token is not UTF-8 text")?;
                Some(token.trim().to_owned()).filter(|token| !token.is_empty())
            }
            None => None,
        };
        Ok(Material {
            authorities: self.authorities.as_ref().map(ValueSource::bytes).transpose()?,
            identity: Identity { certificate, token, password: self.password.clone() },
        })
    }

    /// Returns the endpoint of `url` with these credentials. `from_program` are the credentials from a
    /// program, which have precedence over credentials in files.
    ///
    /// # Errors
    /// The credentials are invalid.
    pub(super) fn endpoint(
        &self,
        url: &Uri,
        material: &Material,
        from_program: Option<&exec::Credential>,
    ) -> anyhow::Result<Endpoint> {
        if is_plain(url) {
            let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
            let target = url.path_and_query().map_or("/", |target| target.as_str());
            let endpoint = Endpoint::at_port(host, url.port_u16().unwrap_or(80), target, None);
            return endpoint.map_err(anyhow::Error::msg);
        }
        let has_certificate = |pem: &Vec<u8>| CertificateDer::pem_slice_iter(pem).any(|one| one.is_ok());
        if material.authorities.as_ref().is_some_and(|pem| !has_certificate(pem)) {
            bail!("unable to load root certificates: unable to parse bytes as PEM block");
        }
        if let Some((chain, key)) = &material.identity.certificate
            && let Some(why) = key_pair::problem(chain, key)
        {
            bail!(why);
        }
        let mut identity = material.identity.clone();
        if let Some(from_program) = from_program {
            identity.certificate = from_program.identity.certificate.clone().or(identity.certificate);
            identity.token = from_program.identity.token.clone().or(identity.token);
        }
        let system;
        let authorities = match &material.authorities {
            Some(authorities) => authorities,
            None if self.is_unverified => &Vec::new(),
            None => {
                system = system_authorities();
                &system
            }
        };
        let credentials = Credentials {
            authorities,
            otherwise: &[],
            server_name: self.server_name.as_deref(),
            identity: Some(&identity),
            is_unverified: self.is_unverified,
            headers: &self.headers,
            proxy: self.proxy.as_deref(),
        };
        Endpoint::with(url.clone(), &credentials).map_err(anyhow::Error::msg)
    }
}

/// Returns whether a URL has no encryption. Credentials are not sent to such a server.
pub(super) fn is_plain(url: &Uri) -> bool {
    url.scheme_str() == Some("http")
}

impl ValueSource {
    pub(super) fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        match self {
            ValueSource::Here(bytes) => Ok(bytes.clone()),
            ValueSource::File(path) => {
                files::read_if_there(path)?.with_context(|| format!("{} does not exist", path.display()))
            }
        }
    }
}

/// The context for parsing a kubeconfig.
pub(super) struct Reading<'p> {
    /// Base directory of relative paths.
    pub(super) dir: &'p Path,
}

impl Reading<'_> {
    fn settings(&self, text: &[u8]) -> anyhow::Result<Settings> {
        let config = yaml::parse(text)?.value;
        let current = config.str_at(&["current-context"]);
        if current.is_empty() {
            bail!("current-context is not set");
        }
        let context = named(&config, "contexts", "context", current)?;
        let (cluster_name, user_name) = (context.str_at(&["cluster"]), context.str_at(&["user"]));
        let cluster = named(&config, "clusters", "cluster", cluster_name)?;
        // If the user does not exist, there are no credentials.
        let user = named(&config, "users", "user", user_name).unwrap_or(&Value::Null);
        if user.get("auth-provider").is_some_and(|provider| !provider.is_null()) {
            bail!("auth-provider of {user_name:?} is not supported here: use exec, a token or a certificate");
        }
        let authorities =
            self.value_source(cluster, "certificate-authority", "certificate-authority-data")?;
        let is_unverified = cluster.get("insecure-skip-tls-verify").and_then(Value::as_bool) == Some(true);
        if is_unverified && authorities.is_some() {
            bail!("specifying a root certificates file with the insecure flag is not allowed");
        }
        let pair = (
            self.value_source(user, "client-certificate", "client-certificate-data")?,
            self.value_source(user, "client-key", "client-key-data")?,
        );
        let certificate = match pair {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            // As in kube-apiserver, a key without a certificate has no effect.
            (None, _) => None,
            (Some(_), None) => bail!("user {user_name:?} has a client-certificate without a client-key"),
        };
        let token = self.token(user);
        let password =
            text_of(user, "username").map(|name| (name, text_of(user, "password").unwrap_or_default()));
        if password.is_some() && token.is_some() {
            bail!("user {user_name:?} has both a token and a password");
        }
        let exec = user.get("exec").filter(|exec| !exec.is_null());
        let exec = exec.map(|exec| Exec::read(exec, cluster, self.dir, user_name)).transpose()?;
        Ok(Settings {
            server: text_of(cluster, "server")
                .with_context(|| format!("cluster {cluster_name:?} has no server"))?,
            namespace: text_of(context, "namespace").unwrap_or_default(),
            server_name: text_of(cluster, "tls-server-name"),
            proxy: text_of(cluster, "proxy-url"),
            is_unverified,
            authorities,
            certificate,
            token,
            password,
            headers: acting_as(user).with_context(|| format!("user {user_name:?}"))?,
            exec,
        })
    }

    /// Returns the token of a user. A token file has precedence over a token in the kubeconfig, because the
    /// kubeconfig may have an old copy of the token.
    pub(super) fn token(&self, user: &Value) -> Option<ValueSource> {
        match (text_of(user, "tokenFile"), text_of(user, "token")) {
            (Some(file), _) => Some(ValueSource::File(self.dir.join(file))),
            (None, Some(token)) => Some(ValueSource::Here(token.into_bytes())),
            (None, None) => None,
        }
    }

    /// Returns the decoded base64 of the member `data`, or else the file in the member `file`.
    pub(super) fn value_source(
        &self,
        from: &Value,
        file: &str,
        data: &str,
    ) -> anyhow::Result<Option<ValueSource>> {
        if let Some(text) = text_of(from, data) {
            let bytes = go::base64::standard(&text).map_err(|why| anyhow!("{data} is not base64: {why}"))?;
            return Ok(Some(ValueSource::Here(bytes)));
        }
        Ok(text_of(from, file).map(|file| ValueSource::File(self.dir.join(file))))
    }
}

/// Returns the impersonation headers of a user, which are empty if the user impersonates no other user.
fn acting_as(user: &Value) -> anyhow::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    headers.extend(text_of(user, "as").map(|name| ("impersonate-user".to_owned(), name)));
    headers.extend(text_of(user, "as-uid").map(|uid| ("impersonate-uid".to_owned(), uid)));
    let texts = |list: Option<&Value>| -> Vec<String> {
        let texts = list.and_then(Value::as_array).unwrap_or_default().iter();
        texts.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    for group in texts(user.get("as-groups")) {
        headers.push(("impersonate-group".to_owned(), group));
    }
    let extra = user.get("as-user-extra").and_then(Value::as_object);
    for (key, values) in extra.into_iter().flat_map(|extra| extra.iter()) {
        let key: String = key.bytes().map(in_header_name).collect();
        for value in texts(Some(values)) {
            headers.push((format!("impersonate-extra-{key}"), value));
        }
    }
    if !headers.is_empty() && text_of(user, "as").is_none() {
        bail!("requesting groups, uid or extra values without impersonating a user name");
    }
    Ok(headers)
}

/// Escapes a byte of a key for the name of a header.
fn in_header_name(byte: u8) -> String {
    match byte {
        b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte.to_ascii_lowercase()).to_string(),
        _ => format!("%{byte:02X}"),
    }
}

/// Returns the contents of the entry with this name in a list.
pub(super) fn named<'c>(config: &'c Value, list: &str, kind: &str, name: &str) -> anyhow::Result<&'c Value> {
    let entries = config.get(list).and_then(Value::as_array).unwrap_or_default();
    let entry = entries.iter().find(|entry| entry.str_at(&["name"]) == name);
    entry.and_then(|entry| entry.get(kind)).with_context(|| format!("there is no {kind} {name:?}"))
}

#[cfg(test)]
#[path = "settings_test.rs"]
mod tests;
