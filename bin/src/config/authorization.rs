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
use engine::Engine;
use go::quote;
use wire::metrics::Metrics;
use wire::outgoing::Egress;
use wire::typed;

use crate::config::checks::Flaws;
use crate::config::issuers::opening;
use crate::config::webhooks::Remote;
use crate::flags::{AuthorizationFlags, List, Profile};
use crate::host::reload::{self, Watched};

/// The authorizers in their order, and the file that they were read from.
#[derive(Clone)]
pub struct AuthorizationConfig {
    parts: Vec<Part>,
    file: Option<PathBuf>,
    naming: Profile,
    /// How the server connects to webhooks.
    egress: Egress,
}

/// An authorizer before the store is open; those that read the store are built from it.
#[derive(Clone)]
enum Part {
    Whole(Mode, Module),
    Node,
}

impl Part {
    fn mode(&self) -> Mode {
        match self {
            Part::Whole(mode, _) => *mode,
            Part::Node => Mode::Node,
        }
    }
}

impl std::fmt::Display for AuthorizationConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { "," } else { "" }, part.mode())?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for AuthorizationConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuthorizationConfig({self})")
    }
}

/// The default authorization mode.
const DEFAULT: &str = "RBAC";

/// How long answers of a webhook that is configured by flags are cached: permissions, and refusals.
const AUTHORIZED_TTL: Duration = Duration::from_secs(5 * 60);
const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);

impl AuthorizationConfig {
    /// Checks the flags and reads the files that they name.
    ///
    /// # Errors
    /// An error that lists all problems.
    pub fn from_flags(flags: AuthorizationFlags, naming: Profile, egress: &Egress) -> anyhow::Result<Self> {
        let mut flaws = Flaws::default();
        check(&flags, &mut flaws);
        flaws.none()?;
        let egress = egress.clone();
        let Some(path) = flags.authorization_config.clone() else {
            let parts = of_flags(&flags, naming, &egress)?;
            return Ok(AuthorizationConfig { parts, file: None, naming, egress });
        };
        let failed = |why: String| anyhow!("failed to load AuthorizationConfiguration from file: {why}");
        let bytes =
            crate::host::files::read(&path).map_err(|error| failed(opening(&path, &error).to_string()))?;
        let settings = contents(&bytes, naming).map_err(failed)?;
        let policy = flags.authorization_policy_file.unwrap_or_default();
        let abac = || Ok(Module::Abac(Arc::new(policies(&policy)?)));
        let parts = of_file(&settings, abac, naming, &egress)?;
        Ok(AuthorizationConfig { parts, file: Some(path), naming, egress })
    }

    /// Returns whether every user may make every request.
    pub fn allows_all(&self) -> bool {
        self.parts.iter().any(|part| part.mode() == Mode::AlwaysAllow)
    }

    /// Returns the authorizers over a store.
    pub fn modules(&self, nodes: &Arc<dyn NodePolicy>) -> Vec<Module> {
        let module = |part: &Part| match part {
            Part::Whole(_, module) => module.clone(),
            Part::Node => Module::Node(nodes.clone()),
        };
        self.parts.iter().map(module).collect()
    }

    /// Returns the rules for node agents, which depend on the objects of a store.
    pub fn nodes(&self, engine: Engine) -> Arc<dyn NodePolicy> {
        Arc::new(NodeAuthorizer::new(engine, self.naming))
    }

    /// Parses the file's new contents. Webhooks may be added and removed; for other authorizers only the
    /// order may change.
    fn changed(&self, bytes: &[u8]) -> anyhow::Result<AuthorizationConfig> {
        let settings = contents(bytes, self.naming).map_err(|why| anyhow!(why))?;
        // The policy file is read only at the start.
        let abac = || {
            let known = self.parts.iter().find_map(|part| match part {
                Part::Whole(Mode::Abac, module) => Some(module.clone()),
                _ => None,
            });
            known.ok_or_else(|| anyhow!("no policies were read at the start"))
        };
        let parts = of_file(&settings, abac, self.naming, &self.egress)?;
        let others = |parts: &[Part]| {
            let others = parts.iter().map(|part| part.mode().name()).filter(|name| *name != "Webhook");
            let mut others: Vec<&str> = others.collect();
            others.sort_unstable();
            others
        };
        let (before, now) = (others(&self.parts), others(&parts));
        if before != now {
            bail!("authorizers other than webhooks must stay: {before:?}, not {now:?}");
        }
        Ok(AuthorizationConfig {
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
        let mut watched = Watched::new(vec![path]);
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

/// Collects problems of the flags, without reading the files that they name.
pub fn check(flags: &AuthorizationFlags, flaws: &mut Flaws) {
    if flags.authorization_config.is_some() {
        if flags.names_authorizers() {
            flaws.push(
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags \
                 are defined"
                    .to_owned(),
            );
        }
        return;
    }
    let names = names(flags);
    let (policy, webhook) = (&flags.authorization_policy_file, &flags.authorization_webhook_config_file);
    for name in &names {
        match Mode::of(name) {
            None => flaws.push(format!("authorization-mode {} is not a valid mode", quote(name))),
            Some(Mode::Abac) if policy.is_none() => {
                flaws.push("authorization-mode ABAC's authorization policy file not passed".to_owned());
            }
            Some(Mode::Webhook) if webhook.is_none() => {
                flaws.push("authorization-mode Webhook's authorization config file not passed".to_owned());
            }
            Some(_) => {}
        }
    }
    for (file, flag, mode) in [
        (policy, "--authorization-policy-file", "ABAC"),
        (webhook, "--authorization-webhook-config-file", "Webhook"),
    ] {
        if file.is_some() && !names.iter().any(|name| name == mode) {
            flaws.push(format!("cannot specify {flag} without mode {mode}"));
        }
    }
    if names.iter().enumerate().any(|(at, name)| names[..at].contains(name)) {
        let quoted: Vec<String> = names.iter().map(|name| quote(name)).collect();
        flaws.push(format!("authorization-mode [{}] has mode specified more than once", quoted.join(" ")));
    }
}

/// Returns the names of the authorizers.
fn names(flags: &AuthorizationFlags) -> Vec<String> {
    if flags.authorization_mode.is_empty() {
        return vec![DEFAULT.to_owned()];
    }
    let names = List::all(&flags.authorization_mode);
    if names.is_empty() { vec![Mode::AlwaysAllow.to_string()] } else { names }
}

/// Returns the authorizers that the flags name. The flags must have been checked.
fn of_flags(flags: &AuthorizationFlags, naming: Profile, egress: &Egress) -> anyhow::Result<Vec<Part>> {
    let (policy, webhook) = (&flags.authorization_policy_file, &flags.authorization_webhook_config_file);
    let failed = |why: anyhow::Error| anyhow!("invalid authorization config: {why:#}");
    let part = |name: &str| -> anyhow::Result<Part> {
        let mode = Mode::of(name).unwrap_or(Mode::AlwaysDeny);
        Ok(match (mode, policy, webhook) {
            (Mode::Abac, Some(path), _) => Part::Whole(mode, Module::Abac(Arc::new(policies(path)?))),
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
                Part::Whole(mode, Module::Webhook(Arc::new(Webhook::new(Arc::new(remote), settings))))
            }
            (Mode::AlwaysAllow, ..) => Part::Whole(mode, Module::AlwaysAllow),
            (Mode::Rbac, ..) => Part::Whole(mode, Module::Rbac),
            (Mode::Node, ..) => Part::Node,
            (Mode::AlwaysDeny | Mode::Abac | Mode::Webhook, ..) => Part::Whole(mode, Module::AlwaysDeny),
        })
    };
    names(flags).iter().map(|name| part(name).map_err(failed)).collect()
}

/// Reads a policy file, whose lines are JSON or YAML.
fn policies(path: &Path) -> anyhow::Result<Policies> {
    let shown = path.display();
    let bytes = crate::host::files::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::IsADirectory => {
            anyhow!("error reading policy file {shown}: {}", opening(path, &error))
        }
        _ => opening(path, &error),
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let read = Policies::parse(&text, |line| typed::document(line.as_bytes()));
    read.map_err(|error| anyhow!("error reading policy file {shown}{error}"))
}

/// Returns why a file that the flags name cannot be read.
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

/// Returns the authorizers that a file names; `abac` builds the one that has its own policy file.
fn of_file(
    settings: &[AuthorizerSettings],
    abac: impl Fn() -> anyhow::Result<Module>,
    naming: Profile,
    egress: &Egress,
) -> anyhow::Result<Vec<Part>> {
    let modes = Mode::ALL.map(Mode::name);
    config::validate(settings, &modes, file_fault).map_err(|why| anyhow!(why))?;
    let part = |AuthorizerSettings { kind, webhook, .. }: &AuthorizerSettings| -> anyhow::Result<Part> {
        let mode = Mode::of(kind).unwrap_or(Mode::AlwaysDeny);
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
                Part::Whole(mode, Module::Webhook(Arc::new(Webhook::new(Arc::new(remote), settings))))
            }
            (Mode::AlwaysAllow, _) => Part::Whole(mode, Module::AlwaysAllow),
            (Mode::Rbac, _) => Part::Whole(mode, Module::Rbac),
            (Mode::Node, _) => Part::Node,
            (Mode::Abac, _) => Part::Whole(mode, abac()?),
            (Mode::AlwaysDeny | Mode::Webhook, _) => Part::Whole(mode, Module::AlwaysDeny),
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
    use crate::config::Config;
    use crate::flags;
    use crate::host::files::scratch::Scratch;
    use std::ffi::OsString;

    fn of(dir: &Path, arguments: &[String]) -> Result<String, String> {
        let line = ["cluster-apiserver".to_owned(), format!("--data-dir={}", dir.display())];
        let words = line.iter().chain(arguments).map(OsString::from);
        let flags = flags::parse(words).map_err(|stop| format!("{stop:?}"))?.flags();
        let config = Config::from_flags(flags).map_err(|error| format!("{error:#}"))?;
        Ok(config.authorization.to_string())
    }

    #[test]
    fn modes_and_files_fit_together() {
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
            assert_eq!(of(&dir, &arguments), want, "{arguments:?}");
        }
    }
}
