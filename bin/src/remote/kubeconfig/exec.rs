//! Credentials that a program prints (docs/api/client-configuration.md#programs-that-know-credentials).
//!
//! The program gets an ExecCredential in the environment variable `…_EXEC_INFO`, and prints an ExecCredential
//! with a status. After a time limit, the program is killed. Its output is read only up to a maximum size.
//! The program inherits the standard error of this process. Its output is a secret, so errors never contain
//! the output.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use values::json::{self, Object, Value};
use values::naming::{self, Naming};
use values::type_meta::type_of;
use wire::outgoing::Identity;

use super::file_members::text_of;

/// Time limits of a program that needs no input, and of a program that may prompt a person.
const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_INTERACTIVE: Duration = Duration::from_secs(10 * 60);

/// Maximum size of the program's output.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The settings for running a program.
pub(super) struct Exec {
    command: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    api_version: String,
    naming: &'static Naming,
    interaction: Interaction,
    install_hint: Option<String>,
    /// The cluster information for the program, if the kubeconfig enables it.
    cluster: Option<Object>,
}

/// Whether a program may use standard input.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Interaction {
    Never,
    IfAvailable,
    Always,
}

/// The credential that a program printed.
#[derive(Clone, Default, Eq, PartialEq)]
pub(super) struct Credential {
    /// A certificate, a token, or both.
    pub(super) identity: Identity,
    /// Expiry in seconds since the epoch, or `None` if the credential is valid until this process ends.
    pub(super) expires: Option<i64>,
}

impl Exec {
    /// Parses the member `exec` of a user. A relative path is relative to `dir`.
    pub(super) fn read(exec: &Value, cluster: &Value, dir: &Path, user: &str) -> anyhow::Result<Exec> {
        let command = text_of(exec, "command").with_context(|| format!("exec of {user:?} has no command"))?;
        let api_version = text_of(exec, "apiVersion");
        let api_version = api_version.with_context(|| format!("exec of {user:?} has no apiVersion"))?;
        let (group, version) = api_version.split_once('/').unwrap_or((&api_version, ""));
        let known = naming::ALL.iter().find(|naming| naming.group("client.authentication", true) == group);
        let Some(naming) = known.filter(|_| matches!(version, "v1" | "v1beta1")) else {
            bail!("exec plugin: invalid apiVersion {api_version:?}");
        };
        let interaction = match exec.str_at(&["interactiveMode"]) {
            "Never" => Interaction::Never,
            "IfAvailable" => Interaction::IfAvailable,
            "Always" => Interaction::Always,
            "" if version == "v1beta1" => Interaction::IfAvailable,
            "" => bail!("interactiveMode must be specified for {user} to use exec authentication plugin"),
            other => bail!("invalid interactiveMode for {user}: {other:?}"),
        };
        let list = |name: &str| exec.get(name).and_then(Value::as_array).unwrap_or_default();
        let arguments = list("args").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let mut environment = Vec::new();
        for variable in list("env") {
            let name = text_of(variable, "name");
            let name = name.with_context(|| format!("env variable name must be specified for {user}"))?;
            environment.push((name, variable.str_at(&["value"]).to_owned()));
        }
        // As in a shell, a name without a slash is looked up in `PATH`.
        let path = PathBuf::from(&command);
        let command = if command.contains('/') { dir.join(path) } else { path };
        let wants_cluster = exec.get("provideClusterInfo").and_then(Value::as_bool) == Some(true);
        Ok(Exec {
            command,
            arguments,
            environment,
            naming,
            interaction,
            install_hint: text_of(exec, "installHint"),
            cluster: wants_cluster.then(|| cluster_info(cluster, group, dir)).transpose()?,
            api_version,
        })
    }

    /// Runs the program.
    ///
    /// # Errors
    /// The program cannot be run, fails, exceeds the time limit, or prints no credential.
    pub(super) async fn run(&self) -> anyhow::Result<Credential> {
        let has_terminal = std::io::stdin().is_terminal();
        let is_interactive = match (self.interaction, has_terminal) {
            (Interaction::Always, false) => {
                bail!("exec plugin cannot support interactive mode: standard input is not a terminal")
            }
            (Interaction::Always | Interaction::IfAvailable, true) => true,
            (Interaction::Never, _) | (Interaction::IfAvailable, false) => false,
        };
        let name = self.command.display();
        let mut command = Command::new(&self.command);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env(format!("{}_EXEC_INFO", self.naming.word.to_uppercase()), self.input(is_interactive))
            .stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let hint = self.install_hint.as_ref().map(|hint| format!(": {hint}")).unwrap_or_default();
        let mut child = command.spawn().with_context(|| match hint.as_str() {
            "" => format!("exec: cannot run {name}"),
            hint => format!("exec: cannot run {name}{hint}"),
        })?;
        let mut text = Vec::new();
        let out = child.stdout.take().context("exec: no output")?;
        let running = async {
            out.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut text).await?;
            child.wait().await
        };
        let timeout = if is_interactive { TIMEOUT_INTERACTIVE } else { TIMEOUT };
        let status = tokio::time::timeout(timeout, running).await;
        let status = status.ok().with_context(|| format!("exec: {name} did not end in time"))??;
        if !status.success() {
            bail!("exec: {name} failed with {status}");
        }
        if text.len() as u64 > ANSWER_BYTES_MAX {
            bail!("exec: {name} printed too much");
        }
        self.credential(&text)
    }

    fn input(&self, is_interactive: bool) -> String {
        let mut spec = Object::new();
        if let Some(cluster) = &self.cluster {
            spec.push("cluster", cluster.clone().into());
        }
        spec.push("interactive", Value::Bool(is_interactive));
        let mut input = Object::new();
        input.push("kind", "ExecCredential".into());
        input.push("apiVersion", self.api_version.as_str().into());
        input.push("spec", spec.into());
        let mut text = Vec::new();
        json::write(&input.into(), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Parses the output of the program.
    fn credential(&self, text: &[u8]) -> anyhow::Result<Credential> {
        let answer = json::parse(text).map_err(|_| anyhow::anyhow!("exec plugin: the output is not JSON"))?;
        let (kind, version) = type_of(&answer);
        if kind != "ExecCredential" {
            bail!("exec plugin: the output is not an ExecCredential");
        }
        if version != self.api_version {
            bail!(
                "exec plugin is configured to use API version {}, plugin returned version {version}",
                self.api_version
            );
        }
        let Some(status) = answer.get("status").filter(|status| status.as_object().is_some()) else {
            bail!("exec plugin didn't return a status field");
        };
        let pem = |name| text_of(status, name).map(String::into_bytes);
        let certificate = match (pem("clientCertificateData"), pem("clientKeyData")) {
            (Some(chain), Some(key)) => Some((chain, key)),
            (None, None) => None,
            _ => bail!("exec plugin returned only certificate or key, not both"),
        };
        let token = text_of(status, "token");
        if token.is_none() && certificate.is_none() {
            bail!("exec plugin didn't return a token or cert/key pair");
        }
        let expires = match text_of(status, "expirationTimestamp") {
            Some(time) => {
                let seconds = values::clock::parse_seconds(&time);
                Some(seconds.with_context(|| format!("exec plugin: {time:?} is not a time"))?)
            }
            None => None,
        };
        Ok(Credential { identity: Identity { certificate, token, password: None }, expires })
    }
}

/// Returns the cluster information for a program: the settings of the cluster in the kubeconfig, and the
/// extension of the cluster for such programs.
fn cluster_info(cluster: &Value, group: &str, dir: &Path) -> anyhow::Result<Object> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let mut info = Object::new();
    for name in ["server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression"]
    {
        if let Some(value) = cluster.get(name).filter(|value| !value.is_null()) {
            info.push(name, value.clone());
        }
    }
    let authorities =
        match (text_of(cluster, "certificate-authority-data"), text_of(cluster, "certificate-authority")) {
            (Some(data), _) => Some(data),
            (None, Some(file)) => {
                let path = dir.join(file);
                Some(
                    STANDARD
                        .encode(crate::host::files::read(&path).with_context(|| path.display().to_string())?),
                )
            }
            (None, None) => None,
        };
    if let Some(authorities) = authorities {
        info.push("certificate-authority-data", authorities.into());
    }
    let name = format!("{group}/exec");
    let extensions = cluster.get("extensions").and_then(Value::as_array).unwrap_or_default();
    let extension = extensions.iter().find(|extension| extension.str_at(&["name"]) == name);
    if let Some(config) = extension.and_then(|extension| extension.get("extension")) {
        info.push("config", config.clone());
    }
    Ok(info)
}

#[cfg(test)]
#[path = "exec_test.rs"]
mod tests;
