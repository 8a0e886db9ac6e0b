//! The flags and the configuration file of authorization, and the authorizer chain built from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use api::state::policy::NodeAuthorizer;
use auth::Authorizer;
use auth::authz::abac::Policies;
use auth::authz::config::{self, AuthorizerSettings};
use auth::authz::webhook::{FailurePolicy, Settings, Webhook};
use auth::authz::{Conditions, Mode, Module, NodePolicy};
use clap::Args;
use engine::Engine;
use go::quote;
use wire::metrics::Metrics;
use wire::outgoing::Egress;
use wire::typed;

use crate::flags::duration;
use crate::flags::problems::{FlagError, Problems, path_text};
use crate::flags::profile::Profile;
use crate::flags::value_parsers::List;
use crate::host::files::{self, opening};
use crate::host::reload::{self, FileGroup};
use crate::remote::webhooks::Remote;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct AuthorizationFlags {
    /// Authorizers that decide requests, in this order, separated by commas. Possible values: ABAC,
    /// AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook. Default: RBAC.
    #[arg(long, value_name = "MODES")]
    pub authorization_mode: Vec<List>,

    /// File with the rules of the authorizer ABAC, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    pub authorization_policy_file: Option<PathBuf>,

    /// Kubeconfig of the server that the authorizer Webhook calls.
    #[arg(long, value_name = "FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,

    /// API version of the SubjectAccessReview objects that the authorizer Webhook sends. Possible values: v1,
    /// v1beta1. Default: v1beta1.
    #[arg(long, value_name = "VERSION")]
    pub authorization_webhook_version: Option<String>,

    /// How long a permission from the authorizer Webhook is cached. Default: 5m0s.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_clamped, allow_hyphen_values = true)]
    pub authorization_webhook_cache_authorized_ttl: Option<Duration>,

    /// How long a refusal from the authorizer Webhook is cached. Default: 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_clamped, allow_hyphen_values = true)]
    pub authorization_webhook_cache_unauthorized_ttl: Option<Duration>,

    /// Configuration of the authorizers (AuthorizationConfiguration). Replaces --authorization-mode and the
    /// --authorization-webhook-* flags. Reloaded when the file changes.
    #[arg(long, value_name = "FILE")]
    pub authorization_config: Option<PathBuf>,
}

/// The authorizers in their order, and the file that they were read from.
#[derive(Clone)]
pub struct AuthorizationSettings {
    parts: Vec<ConfiguredAuthorizer>,
    file: Option<PathBuf>,
    naming: Profile,
    /// The egress for connections to webhooks.
    egress: Egress,
}

/// An authorizer before the store is open. The authorizer of nodes reads the store, so it is built later.
#[derive(Clone)]
enum ConfiguredAuthorizer {
    Whole(Mode, Module),
    Node,
}

impl ConfiguredAuthorizer {
    fn mode(&self) -> Mode {
        match self {
            ConfiguredAuthorizer::Whole(mode, _) => *mode,
            ConfiguredAuthorizer::Node => Mode::Node,
        }
    }
}

impl std::fmt::Display for AuthorizationSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { "," } else { "" }, part.mode())?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for AuthorizationSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuthorizationSettings({self})")
    }
}

/// The default authorization mode.
const DEFAULT: &str = "RBAC";

/// How long the permissions and the refusals of a webhook are cached, if flags configure the webhook.
const AUTHORIZED_TTL: Duration = Duration::from_secs(5 * 60);
const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);

impl AuthorizationSettings {
    /// Returns whether every user may make every request.
    pub fn allows_all(&self) -> bool {
        self.parts.iter().any(|part| part.mode() == Mode::AlwaysAllow)
    }

    /// Returns the authorizers. `nodes` has the rules for nodes, which read the store.
    pub fn modules(&self, nodes: &Arc<dyn NodePolicy>) -> Vec<Module> {
        let module = |part: &ConfiguredAuthorizer| match part {
            ConfiguredAuthorizer::Whole(_, module) => module.clone(),
            ConfiguredAuthorizer::Node => Module::Node(nodes.clone()),
        };
        self.parts.iter().map(module).collect()
    }

    /// Returns the rules for nodes. The rules depend on the objects in the store of `engine`.
    pub fn nodes(&self, engine: Engine) -> Arc<dyn NodePolicy> {
        Arc::new(NodeAuthorizer::new(engine, self.naming))
    }

    /// Parses the new contents of the configuration file. Webhooks may be added and removed. The other
    /// authorizers must stay, but their order may change.
    fn changed(&self, bytes: &[u8]) -> anyhow::Result<AuthorizationSettings> {
        let settings = contents(bytes, self.naming).map_err(|why| anyhow!(why))?;
        // The policy file of ABAC is read only at the start.
        let abac = || {
            let known = self.parts.iter().find_map(|part| match part {
                ConfiguredAuthorizer::Whole(Mode::Abac, module) => Some(module.clone()),
                _ => None,
            });
            known.ok_or_else(|| anyhow!("no policies were read at the start"))
        };
        let parts = of_file(&settings, abac, self.naming, &self.egress)?;
        let others = |parts: &[ConfiguredAuthorizer]| {
            let others = parts.iter().map(|part| part.mode().name()).filter(|name| *name != "Webhook");
            let mut others: Vec<&str> = others.collect();
            others.sort_unstable();
            others
        };
        let (before, now) = (others(&self.parts), others(&parts));
        if before != now {
            bail!("authorizers other than webhooks must stay: {before:?}, not {now:?}");
        }
        Ok(AuthorizationSettings {
            parts,
            file: self.file.clone(),
            naming: self.naming,
            egress: self.egress.clone(),
        })
    }

    /// Applies changes of the configuration file while the server runs.
    pub async fn follow(
        mut self,
        nodes: Arc<dyn NodePolicy>,
        authorizer: Arc<Authorizer>,
        metrics: Arc<Metrics>,
    ) {
        let Some(path) = self.file.clone() else { return };
        let reloads = &metrics.reloads.1;
        let mut watched = FileGroup::new(vec![path]);
        reloads.uses(&watched.contents()[0]);
        loop {
            tokio::time::sleep(reload::BUNDLE_INTERVAL).await;
            let Some([bytes]) = watched.changed() else { continue };
            match self.changed(bytes) {
                Ok(changed) => {
                    self = changed;
                    authorizer.replace(self.modules(&nodes));
                    reloads.succeeded(bytes);
                    tracing::info!(authorizers = %self, "authorization configuration reloaded");
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(
                        %error,
                        "authorization configuration not reloaded, the old one stays in use: correct the file"
                    );
                    reloads.failed();
                }
            }
        }
    }
}

impl AuthorizationFlags {
    /// Reads the files that the flags name, and returns the settings. Adds an error for each wrong flag, or an error if
    /// a file cannot be used.
    pub fn settings(
        &self,
        naming: Profile,
        egress: &Egress,
        problems: &mut Problems,
    ) -> Option<AuthorizationSettings> {
        let mut found = Problems::default();
        self.check(&mut found);
        problems.take_all(found)?;
        let egress = egress.clone();
        let Some(path) = self.authorization_config.clone() else {
            let modes = names(self).join(",");
            let parts = problems.take_for("authorization-mode", modes, of_flags(self, naming, &egress))?;
            return Some(AuthorizationSettings { parts, file: None, naming, egress });
        };
        let parts = problems.take_for(
            "authorization-config",
            path.display(),
            self.of_configuration(&path, naming, &egress),
        )?;
        Some(AuthorizationSettings { parts, file: Some(path), naming, egress })
    }

    fn of_configuration(
        &self,
        path: &Path,
        naming: Profile,
        egress: &Egress,
    ) -> anyhow::Result<Vec<ConfiguredAuthorizer>> {
        let failed = |why: String| anyhow!("failed to load AuthorizationConfiguration from file: {why}");
        let bytes = files::read(path).map_err(|error| failed(opening(path, &error).to_string()))?;
        let settings = contents(&bytes, naming).map_err(failed)?;
        let policy = self.authorization_policy_file.clone().unwrap_or_default();
        let abac = || Ok(Module::Abac(Arc::new(policies(&policy)?)));
        of_file(&settings, abac, naming, egress)
    }

    /// Returns whether a flag is given that `--authorization-config` replaces.
    fn names_authorizers(&self) -> bool {
        !self.authorization_mode.is_empty()
            || self.authorization_webhook_config_file.is_some()
            || self.authorization_webhook_version.is_some()
            || self.authorization_webhook_cache_authorized_ttl.is_some()
            || self.authorization_webhook_cache_unauthorized_ttl.is_some()
    }

    /// Collects problems of the flags, without reading the files that they name.
    fn check(&self, problems: &mut Problems) {
        let (policy, webhook) = (&self.authorization_policy_file, &self.authorization_webhook_config_file);
        if self.authorization_config.is_some() {
            if self.names_authorizers() {
                let text = "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags \
                     are defined";
                let path = path_text(self.authorization_config.as_deref());
                problems.add(FlagError::worded("authorization-config", path, text));
            }
            return;
        }
        let names = names(self);
        let mut wrong = |flag: &str, value: String, text: String| {
            problems.add(FlagError::worded(flag, value, text));
        };
        for name in &names {
            let text = match Mode::by_name(name) {
                None => format!("authorization-mode {} is not a valid mode", quote(name)),
                Some(Mode::Abac) if policy.is_none() => {
                    "authorization-mode ABAC's authorization policy file not passed".to_owned()
                }
                Some(Mode::Webhook) if webhook.is_none() => {
                    "authorization-mode Webhook's authorization config file not passed".to_owned()
                }
                Some(_) => continue,
            };
            wrong("authorization-mode", name.clone(), text);
        }
        for (file, flag, mode) in [
            (policy, "authorization-policy-file", "ABAC"),
            (webhook, "authorization-webhook-config-file", "Webhook"),
        ] {
            if file.is_some() && !names.iter().any(|name| name == mode) {
                wrong(
                    flag,
                    path_text(file.as_deref()),
                    format!("cannot specify --{flag} without mode {mode}"),
                );
            }
        }
        if names.iter().enumerate().any(|(at, name)| names[..at].contains(name)) {
            let quoted: Vec<String> = names.iter().map(|name| quote(name)).collect();
            let text = format!("authorization-mode [{}] has mode specified more than once", quoted.join(" "));
            wrong("authorization-mode", names.join(","), text);
        }
    }
}

/// Returns the names of the authorizers in the flags.
fn names(flags: &AuthorizationFlags) -> Vec<String> {
    if flags.authorization_mode.is_empty() {
        return vec![DEFAULT.to_owned()];
    }
    let names = List::all(&flags.authorization_mode);
    if names.is_empty() { vec![Mode::AlwaysAllow.to_string()] } else { names }
}

/// Returns the authorizers that the flags name. The caller must have checked the flags.
fn of_flags(
    flags: &AuthorizationFlags,
    naming: Profile,
    egress: &Egress,
) -> anyhow::Result<Vec<ConfiguredAuthorizer>> {
    let (policy, webhook) = (&flags.authorization_policy_file, &flags.authorization_webhook_config_file);
    let failed = |why: anyhow::Error| anyhow!("invalid authorization config: {why:#}");
    let part = |name: &str| -> anyhow::Result<ConfiguredAuthorizer> {
        let mode = Mode::by_name(name).unwrap_or(Mode::AlwaysDeny);
        Ok(match (mode, policy, webhook) {
            (Mode::Abac, Some(path), _) => {
                ConfiguredAuthorizer::Whole(mode, Module::Abac(Arc::new(policies(path)?)))
            }
            (Mode::Webhook, _, Some(path)) => {
                let version = flags.authorization_webhook_version.as_deref().unwrap_or("v1beta1");
                if !matches!(version, "v1" | "v1beta1") {
                    bail!(
                        "unsupported webhook authorizer version {}, supported versions are \"v1\", \"v1beta1\"",
                        quote(version)
                    );
                }
                let settings = Settings {
                    group: naming.group("authorization", true),
                    version: version.to_owned(),
                    authorized_ttl: flags
                        .authorization_webhook_cache_authorized_ttl
                        .unwrap_or(AUTHORIZED_TTL),
                    unauthorized_ttl: flags
                        .authorization_webhook_cache_unauthorized_ttl
                        .unwrap_or(UNAUTHORIZED_TTL),
                    failure_policy: FailurePolicy::NoOpinion,
                    conditions: Conditions::default(),
                };
                let remote = Remote::read(path, None, naming)?.through(egress);
                ConfiguredAuthorizer::Whole(
                    mode,
                    Module::Webhook(Arc::new(Webhook::new(Arc::new(remote), settings))),
                )
            }
            (Mode::AlwaysAllow, ..) => ConfiguredAuthorizer::Whole(mode, Module::AlwaysAllow),
            (Mode::Rbac, ..) => ConfiguredAuthorizer::Whole(mode, Module::Rbac),
            (Mode::Node, ..) => ConfiguredAuthorizer::Node,
            (Mode::AlwaysDeny | Mode::Abac | Mode::Webhook, ..) => {
                ConfiguredAuthorizer::Whole(mode, Module::AlwaysDeny)
            }
        })
    };
    names(flags).iter().map(|name| part(name).map_err(failed)).collect()
}

/// Reads a policy file. Each line is a JSON or YAML document.
fn policies(path: &Path) -> anyhow::Result<Policies> {
    let displayed_path = path.display();
    let bytes = files::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::IsADirectory => {
            anyhow!("error reading policy file {displayed_path}: {}", opening(path, &error))
        }
        _ => opening(path, &error),
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let read = Policies::parse(&text, |line| typed::document(line.as_bytes()));
    read.map_err(|error| anyhow!("error reading policy file {displayed_path}{error}"))
}

/// Returns why a file cannot be read, or `None` if it can.
fn file_fault(path: &str) -> Option<String> {
    match std::fs::metadata(path) {
        Ok(file) if file.is_file() => None,
        Ok(_) => Some("must be a regular file".to_owned()),
        Err(error) => {
            let why = opening(Path::new(path), &error).to_string();
            Some(format!("error loading file: {}", why.replacen("open ", "stat ", 1)))
        }
    }
}

/// Parses the contents of a configuration file; an empty file has no authorizers.
fn contents(bytes: &[u8], naming: Profile) -> Result<Vec<AuthorizerSettings>, String> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    config::read(&typed::document(bytes)?, &naming.group("apiserver.config", true))
}

/// Returns the authorizers in a configuration file. `abac` builds the authorizer ABAC, which has its own
/// policy file.
fn of_file(
    settings: &[AuthorizerSettings],
    abac: impl Fn() -> anyhow::Result<Module>,
    naming: Profile,
    egress: &Egress,
) -> anyhow::Result<Vec<ConfiguredAuthorizer>> {
    let modes = Mode::ALL.map(Mode::name);
    config::validate(settings, &modes, file_fault).map_err(|why| anyhow!(why))?;
    let part = |AuthorizerSettings { kind, webhook, .. }: &AuthorizerSettings| -> anyhow::Result<ConfiguredAuthorizer> {
        let mode = Mode::by_name(kind).unwrap_or(Mode::AlwaysDeny);
        Ok(match (mode, webhook) {
            (Mode::Webhook, Some(webhook)) => {
                let settings = Settings {
                    group: naming.group("authorization", true),
                    version: webhook.version.clone(),
                    authorized_ttl: webhook.authorized.time(),
                    unauthorized_ttl: webhook.unauthorized.time(),
                    failure_policy: webhook.failure_policy(),
                    conditions: Conditions::new(&webhook.conditions).map_err(|why| anyhow!(why))?,
                };
                let remote =
                    Remote::read(Path::new(webhook.file()), Some(webhook.timeout()), naming)?.through(egress);
                ConfiguredAuthorizer::Whole(mode, Module::Webhook(Arc::new(Webhook::new(Arc::new(remote), settings))))
            }
            (Mode::AlwaysAllow, _) => ConfiguredAuthorizer::Whole(mode, Module::AlwaysAllow),
            (Mode::Rbac, _) => ConfiguredAuthorizer::Whole(mode, Module::Rbac),
            (Mode::Node, _) => ConfiguredAuthorizer::Node,
            (Mode::Abac, _) => ConfiguredAuthorizer::Whole(mode, abac()?),
            (Mode::AlwaysDeny | Mode::Webhook, _) => ConfiguredAuthorizer::Whole(mode, Module::AlwaysDeny),
        })
    };
    settings
        .iter()
        .map(|each| part(each).map_err(|why| anyhow!("invalid authorization config: {why:#}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::line;
    use crate::config::Config;
    use crate::host::files::scratch::Scratch;
    use std::ffi::OsString;

    fn authorization_text(dir: &Path, arguments: &[String]) -> Result<String, String> {
        let line = ["cluster-apiserver".to_owned(), format!("--data-dir={}", dir.display())];
        let words = line.iter().chain(arguments).map(OsString::from);
        let flags = line::parse(words).map_err(|stop| format!("{stop:?}"))?.flags();
        let config = Config::from_flags(&flags).map_err(|error| format!("{error:#}"))?;
        Ok(config.authorization.to_string())
    }

    #[test]
    fn authorization_modes_and_their_files_must_match() {
        let dir = Scratch::new();
        let file = |name: &str, text: &str| {
            std::fs::write(dir.join(name), text).unwrap();
            dir.join(name).display().to_string()
        };
        let policy = file("policy", "{\"user\":\"a\"}\n");
        let config = file(
            "config",
            "apiVersion: apiserver.config.cluster.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- {type: Node, name: \
             node}\n- {type: RBAC, name: rbac}\n",
        );
        for (arguments, want) in [
            (vec![], Ok("RBAC".to_owned())),
            (vec!["--authorization-mode=AlwaysDeny,RBAC".to_owned()], Ok("AlwaysDeny,RBAC".to_owned())),
            (vec!["--authorization-mode=Node,RBAC".to_owned()], Ok("Node,RBAC".to_owned())),
            (
                vec!["--authorization-mode=ABAC".to_owned(), format!("--authorization-policy-file={policy}")],
                Ok("ABAC".to_owned()),
            ),
            (vec![format!("--authorization-config={config}")], Ok("Node,RBAC".to_owned())),
            (
                vec!["--authorization-mode=rbac".to_owned()],
                Err("authorization-mode \"rbac\" is not a valid mode".to_owned()),
            ),
            (
                vec!["--authorization-mode=RBAC,RBAC".to_owned()],
                Err("authorization-mode [\"RBAC\" \"RBAC\"] has mode specified more than once".to_owned()),
            ),
            (
                vec!["--authorization-mode=Node".to_owned(), "--authorization-mode=RBAC".to_owned()],
                Ok("Node,RBAC".to_owned()),
            ),
            (vec!["--authorization-mode=".to_owned()], Ok("AlwaysAllow".to_owned())),
            (
                vec!["--authorization-mode=RBAC".to_owned(), "--authorization-mode=RBAC".to_owned()],
                Err("authorization-mode [\"RBAC\" \"RBAC\"] has mode specified more than once".to_owned()),
            ),
            (
                vec!["--authorization-mode=ABAC".to_owned(), format!("--authorization-policy-file={}", dir.display())],
                Err(format!(
                    "invalid authorization config: error reading policy file {0}: read {0}: is a directory",
                    dir.display()
                )),
            ),
            (
                vec![
                    "--authorization-mode=ABAC".to_owned(),
                    format!("--authorization-policy-file={}", file("braces", "{user: a}\n")),
                ],
                Err(format!(
                    "invalid authorization config: error reading policy file {}, line 1: {{user: a}}: couldn't get \
                     version/kind; json parse error: invalid character 'u' looking for beginning of object key string",
                    dir.join("braces").display()
                )),
            ),
            (
                vec!["--authorization-mode=ABAC,Webhook,Foo".to_owned()],
                Err("[authorization-mode ABAC's authorization policy file not passed, authorization-mode Webhook's \
                     authorization config file not passed, authorization-mode \"Foo\" is not a valid mode]"
                    .to_owned()),
            ),
            (
                vec![format!("--authorization-config={config}"), "--authorization-mode=RBAC".to_owned()],
                Err("--authorization-config can not be specified when --authorization-mode or \
                     --authorization-webhook-* flags are defined"
                    .to_owned()),
            ),
            (
                vec![format!("--authorization-config={}", file("empty", ""))],
                Err("authorizers: Required value: at least one authorization mode must be defined".to_owned()),
            ),
            (
                vec![format!(
                    "--authorization-config={}",
                    file("tabs", "apiVersion: v1\nkind: AuthorizationConfiguration\n\tauthorizers: []\n")
                )],
                Err("failed to load AuthorizationConfiguration from file: yaml: line 3: found a tab character that \
                     violates indentation"
                    .to_owned()),
            ),
            (
                vec!["--authorization-webhook-cache-authorized-ttl=5".to_owned()],
                Err("Refuse(\"invalid argument \\\"5\\\" for \\\"--authorization-webhook-cache-authorized-ttl\\\" flag: \
                     time: missing unit in duration \\\"5\\\"\")"
                    .to_owned()),
            ),
            (
                vec!["--authorization-mode=Webhook".to_owned(), format!("--authorization-webhook-config-file={policy}x")],
                Err(format!("invalid authorization config: stat {policy}x: no such file or directory")),
            ),
        ] {
            assert_eq!(authorization_text(&dir, &arguments), want, "{arguments:?}");
        }
    }
}
