//! Loads and checks the kubeconfig files of webhooks. The messages equal the messages of kube-apiserver's
//! client library.
//!
//! `bytes ─► YAML ─► kind ─► types of members ─► context, user and cluster in use ─► result`

use std::path::Path;

use anyhow::{anyhow, bail};
use go::quote;
use go::url::Url;
use values::json::Value;
use values::type_meta::type_of;
use wire::typed;

use super::file_members;
use crate::host::files::opening;

/// Source location in the client library's error about an unknown kind.
const SCHEME: &str = "k8s.io/client-go/tools/clientcmd/api/latest/latest.go:50";

const NO_CONFIGURATION: &str =
    "no configuration has been provided, try setting KUBERNETES_MASTER environment variable";

/// Loads a kubeconfig file.
///
/// # Errors
/// The file cannot be read, or is not a kubeconfig.
pub fn load(path: &Path) -> anyhow::Result<Value> {
    if let Err(error) = std::fs::metadata(path) {
        bail!("{}", opening(path, &error).to_string().replacen("open ", "stat ", 1));
    }
    let failed = |why: String| anyhow!("error loading config file \"{}\": {why}", path.display());
    let text = crate::host::files::read(path).map_err(|error| failed(opening(path, &error).to_string()))?;
    decode(&text).map_err(failed)
}

fn decode(text: &[u8]) -> Result<Value, String> {
    let document = values::yaml::parse(text).map_err(|error| error.to_string())?;
    let config = document.value;
    let (kind, api_version) = type_of(&config);
    if !matches!(api_version, "" | "v1") || !matches!(kind, "" | "Config") {
        let kind = if kind.is_empty() { "Config" } else { kind };
        let version = if api_version.is_empty() { "v1" } else { api_version };
        return Err(format!(
            "no kind {} is registered for version {} in scheme {}",
            quote(kind),
            quote(version),
            quote(SCHEME)
        ));
    }
    typed::document_of(&config)?.check(&file_members::CONFIG, "v1")?;
    Ok(config)
}

/// Returns the contents of the entry with this name in a list. The contents are null if the entry has none.
fn entry<'c>(config: &'c Value, list: &str, kind: &str, name: &str) -> Option<&'c Value> {
    let entries = config.get(list).and_then(Value::as_array).unwrap_or_default();
    let entry = entries.iter().find(|entry| entry.str_at(&["name"]) == name)?;
    Some(entry.get(kind).unwrap_or(&Value::Null))
}

/// Checks the current context, its cluster and its user.
///
/// # Errors
/// The configuration is invalid, or no cluster is configured. The error has all problems.
pub fn confirm(path: &Path, config: &Value) -> anyhow::Result<()> {
    let current = config.str_at(&["current-context"]);
    let context = entry(config, "contexts", "context", current);
    let mut faults = Faults { dir: path.parent().unwrap_or(Path::new("")), found: Vec::new() };
    if context.is_none() && !current.is_empty() {
        faults.add(format!("context was not found for specified context: {current}"));
    }
    let named = |kind: &str| context.map_or("", |context| context.str_at(&[kind]));
    let user = entry(config, "users", "user", named("user"));
    if let Some(user) = user {
        faults.of_user(user, named("user"));
    }
    let cluster = entry(config, "clusters", "cluster", named("cluster"));
    match cluster {
        Some(cluster) => faults.of_cluster(cluster, named("cluster")),
        None if faults.found.is_empty() => faults.add(NO_CONFIGURATION.to_owned()),
        None => faults.add("cluster has no server defined".to_owned()),
    }
    let dir = faults.dir;
    faults.end()?;
    let server = cluster.map_or("", |cluster| cluster.str_at(&["server"]));
    // If the connection is not encrypted, the server sends no credentials and verifies no certificate, so
    // skip the checks below.
    if server.starts_with("http://") {
        return Ok(());
    }
    if let Some(user) = user {
        check_token_file(user, dir)?;
    }
    let has = |member: &str| cluster.is_some_and(|cluster| !cluster.str_at(&[member]).is_empty());
    let is_unverified = cluster.and_then(|cluster| cluster.get("insecure-skip-tls-verify")?.as_bool());
    if is_unverified == Some(true) && (has("certificate-authority") || has("certificate-authority-data")) {
        bail!("specifying a root certificates file with the insecure flag is not allowed");
    }
    Ok(())
}

/// Returns why a URL is not valid for a proxy, or `None` if it is valid.
fn proxy_fault(url: &str) -> Option<String> {
    match Url::parse(url) {
        Err(_) => Some(format!("could not parse: {url}")),
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https" | "socks5") => None,
        Ok(parsed) => {
            Some(format!("unsupported scheme {}, must be http, https, or socks5", quote(parsed.scheme())))
        }
    }
}

/// Checks that the token file of a user can be read. If the user also has a token, the file is not checked.
fn check_token_file(user: &Value, dir: &Path) -> anyhow::Result<()> {
    let file = user.str_at(&["tokenFile"]);
    if file.is_empty() || !user.str_at(&["token"]).is_empty() {
        return Ok(());
    }
    let path = dir.join(file);
    crate::host::files::read(&path).map(drop).map_err(|error| opening(&path, &error))
}

/// The problems of a user and a cluster. A relative path is relative to `dir`.
struct Faults<'p> {
    dir: &'p Path,
    found: Vec<String>,
}

impl Faults<'_> {
    fn add(&mut self, fault: String) {
        self.found.push(fault);
    }

    fn end(self) -> anyhow::Result<()> {
        match go::join_errors(self.found) {
            None => Ok(()),
            Some(faults) => bail!("invalid configuration: {faults}"),
        }
    }

    /// Adds a problem if the member is the path of a file that cannot be opened. `what` describes the file in
    /// the error.
    fn of_file(&mut self, from: &Value, member: &str, what: &str, owner: &str) {
        let file = from.str_at(&[member]);
        let path = self.dir.join(file);
        if !file.is_empty()
            && let Err(error) = std::fs::File::open(&path)
        {
            let why = opening(&path, &error);
            self.add(format!("unable to read {what} {} for {owner} due to {why}", path.display()));
        }
    }

    fn of_user(&mut self, user: &Value, name: &str) {
        let has = |member: &str| !user.str_at(&[member]).is_empty();
        if has("client-certificate") || has("client-certificate-data") {
            if has("client-certificate") && has("client-certificate-data") {
                self.add(format!(
                    "client-cert-data and client-cert are both specified for {name}. client-cert-data will override."
                ));
            }
            if has("client-key") && has("client-key-data") {
                self.add(format!(
                    "client-key-data and client-key are both specified for {name}; client-key-data will override"
                ));
            }
            if !has("client-key") && !has("client-key-data") {
                self.add(format!(
                    "client-key-data or client-key must be specified for {name} to use the clientCert authentication \
                     method."
                ));
            }
            self.of_file(user, "client-certificate", "client-cert", name);
            self.of_file(user, "client-key", "client-key", name);
        }
        if let Some(exec) = user.get("exec").filter(|exec| !exec.is_null()) {
            self.of_exec(exec, name, user.get("auth-provider").is_some_and(|provider| !provider.is_null()));
        }
        if has("token") && (has("username") || has("password")) {
            self.add(format!(
                "more than one authentication method found for {name}; found [token basicAuth], only one is allowed"
            ));
        }
        let is_filled = |member: &str| match user.get(member) {
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(members)) => !members.is_empty(),
            _ => has(member),
        };
        if ["as-uid", "as-groups", "as-user-extra"].into_iter().any(is_filled) && !has("as") {
            self.add(format!("requesting uid, groups or user-extra for {name} without impersonating a user"));
        }
    }

    fn of_exec(&mut self, exec: &Value, name: &str, has_provider: bool) {
        if has_provider {
            self.add(format!(
                "authProvider cannot be provided in combination with an exec plugin for {name}"
            ));
        }
        for member in ["command", "apiVersion"] {
            if exec.str_at(&[member]).is_empty() {
                self.add(format!("{member} must be specified for {name} to use exec authentication plugin"));
            }
        }
        for variable in exec.get("env").and_then(Value::as_array).unwrap_or_default() {
            if variable.str_at(&["name"]).is_empty() {
                self.add(format!(
                    "env variable name must be specified for {name} to use exec authentication plugin"
                ));
            }
        }
        // Only the versions before v1 have a default for this member.
        let version = exec.str_at(&["apiVersion"]).rsplit('/').next().unwrap_or_default();
        match exec.str_at(&["interactiveMode"]) {
            "Never" | "IfAvailable" | "Always" => {}
            "" if matches!(version, "v1beta1" | "v1alpha1") => {}
            "" => self.add(format!(
                "interactiveMode must be specified for {name} to use exec authentication plugin"
            )),
            mode => self.add(format!("invalid interactiveMode for {name}: {}", quote(mode))),
        }
    }

    fn of_cluster(&mut self, cluster: &Value, name: &str) {
        let has = |member: &str| !cluster.str_at(&[member]).is_empty();
        if !has("server") {
            self.add(match name {
                "" => "default cluster has no server defined".to_owned(),
                name => format!("no server found for cluster {}", quote(name)),
            });
        }
        let proxy = cluster.str_at(&["proxy-url"]);
        if let Some(why) = Some(proxy).filter(|url| !url.is_empty()).and_then(proxy_fault) {
            let (proxy, name) = (quote(proxy), quote(name));
            self.add(format!("invalid 'proxy-url' {proxy} for cluster {name}: {why}"));
        }
        if has("certificate-authority") && has("certificate-authority-data") {
            self.add(format!(
                "certificate-authority-data and certificate-authority are both specified for {name}. \
                 certificate-authority-data will override."
            ));
        }
        self.of_file(cluster, "certificate-authority", "certificate-authority", name);
    }
}

#[cfg(test)]
#[path = "usable_test.rs"]
mod tests;
