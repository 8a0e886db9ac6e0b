//! Reads the current context of a kubeconfig: the address of a server, how its certificate is verified, and
//! the credentials.
//!
//! Relative paths are relative to the file. [`Settings::material`] reads the files that it names, each time
//! it is called. Settings that are not supported are refused by name.

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
use super::form::text_of;
use crate::host::authorities::system_authorities;
use crate::host::files;

/// The address of a server and the credentials for it. Files are not read yet.
// Without `Debug`, because keys and tokens must not reach a log.
pub struct Settings {
    /// URL of the server.
    pub server: String,
    /// Name to expect in the server's certificate, if it is not the host of the address.
    pub server_name: Option<String>,
    /// URL of a proxy for connections to the server.
    proxy: Option<String>,
    /// Whether the server's certificate is not verified.
    is_unverified: bool,
    authorities: Option<Held>,
    certificate: Option<(Held, Held)>,
    token: Option<Held>,
    password: Option<(String, String)>,
    /// Headers that impersonate another user.
    headers: Vec<(String, String)>,
    /// A program that prints credentials.
    pub(super) exec: Option<Exec>,
}

/// A value in the kubeconfig itself, or in another file.
pub(super) enum Held {
    Here(Vec<u8>),
    File(PathBuf),
}

/// The contents of the files at one time.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Material {
    /// PEM of the server's authorities; `None`: those of the system.
    pub authorities: Option<Vec<u8>>,
    /// The credentials of this process.
    pub identity: Identity,
}

impl Settings {
    /// Reads the current context of a kubeconfig.
    ///
    /// # Errors
    /// Returns one line with the path if something is missing, unreadable or unsupported.
    pub fn read(path: &Path) -> anyhow::Result<Settings> {
        let text =
            files::read_if_there(path)?.with_context(|| format!("{} does not exist", path.display()))?;
        let reading = Reading { dir: path.parent().unwrap_or(Path::new("")) };
        reading.settings(&text).with_context(|| path.display().to_string())
    }

    /// Drops the credentials and the server's authorities, for connections without TLS.
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
            authorities: self.authorities.as_ref().map(Held::bytes).transpose()?,
            identity: Identity { certificate, token, password: self.password.clone() },
        })
    }

    /// Returns the endpoint of `url` with these credentials; those of a program have precedence over those of
    /// files.
    ///
    /// # Errors
    /// The credentials are invalid.
    pub(super) fn endpoint(
        &self,
        url: &Uri,
        material: &Material,
        given: Option<&exec::Credential>,
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
        if let Some(given) = given {
            identity.certificate = given.identity.certificate.clone().or(identity.certificate);
            identity.token = given.identity.token.clone().or(identity.token);
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

impl Held {
    pub(super) fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        match self {
            Held::Here(bytes) => Ok(bytes.clone()),
            Held::File(path) => {
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
        // A user that does not exist has no credentials.
        let user = named(&config, "users", "user", user_name).unwrap_or(&Value::Null);
        if user.get("auth-provider").is_some_and(|provider| !provider.is_null()) {
            bail!("auth-provider of {user_name:?} is not supported here: use exec, a token or a certificate");
        }
        let authorities = self.held(cluster, "certificate-authority", "certificate-authority-data")?;
        let is_unverified = cluster.get("insecure-skip-tls-verify").and_then(Value::as_bool) == Some(true);
        if is_unverified && authorities.is_some() {
            bail!("specifying a root certificates file with the insecure flag is not allowed");
        }
        let pair = (
            self.held(user, "client-certificate", "client-certificate-data")?,
            self.held(user, "client-key", "client-key-data")?,
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

    /// Returns the token of a user. A token file has precedence over a token in the kubeconfig, which may be
    /// an old copy of it.
    pub(super) fn token(&self, user: &Value) -> Option<Held> {
        match (text_of(user, "tokenFile"), text_of(user, "token")) {
            (Some(file), _) => Some(Held::File(self.dir.join(file))),
            (None, Some(token)) => Some(Held::Here(token.into_bytes())),
            (None, None) => None,
        }
    }

    /// Returns the decoded base64 of the member `data`, or the file that the member `file` names.
    pub(super) fn held(&self, from: &Value, file: &str, data: &str) -> anyhow::Result<Option<Held>> {
        if let Some(text) = text_of(from, data) {
            let bytes = go::base64::standard(&text).map_err(|why| anyhow!("{data} is not base64: {why}"))?;
            return Ok(Some(Held::Here(bytes)));
        }
        Ok(text_of(from, file).map(|file| Held::File(self.dir.join(file))))
    }
}

/// Returns the headers of a user that impersonates another one.
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

/// Returns the entry with this name in a list.
pub(super) fn named<'c>(config: &'c Value, list: &str, kind: &str, name: &str) -> anyhow::Result<&'c Value> {
    let entries = config.get(list).and_then(Value::as_array).unwrap_or_default();
    let entry = entries.iter().find(|entry| entry.str_at(&["name"]) == name);
    entry.and_then(|entry| entry.get(kind)).with_context(|| format!("there is no {kind} {name:?}"))
}

#[cfg(test)]
#[path = "settings_test.rs"]
mod tests;
