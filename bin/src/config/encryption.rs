//! The file of `--encryption-provider-config`, and its reload while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use api::state::secrecy::{KeyService, Rule, Secrecy, config, refresh};
use clap::Args;
use futures_util::FutureExt;
use types::schema::registry::Registry;
use values::naming::Naming;

use crate::flags::problems::FlagError;
use crate::flags::value_parsers;
use crate::host::files::{self, opening};
use crate::host::reload::{FileGroup, INTERVAL};
use crate::remote::kms::Socket;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct EncryptionFlags {
    /// File that configures which stored values are encrypted, and with which keys (EncryptionConfiguration).
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,

    /// Reload --encryption-provider-config when the file changes.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = value_parsers::boolean, action = clap::ArgAction::Set)]
    pub encryption_provider_config_automatic_reload: bool,
}

impl EncryptionFlags {
    /// Returns the settings, or `None` if stored values are not encrypted.
    ///
    /// # Errors
    /// The file is missing or invalid.
    pub fn settings(&self, naming: &'static Naming) -> Result<Option<EncryptionSettings>, FlagError> {
        let is_reloaded = self.encryption_provider_config_automatic_reload;
        let Some(path) = &self.encryption_provider_config else {
            if is_reloaded {
                let text = "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config";
                return Err(FlagError::worded("encryption-provider-config-automatic-reload", "true", text));
            }
            return Ok(None);
        };
        let settings = EncryptionSettings::read(path, is_reloaded, naming);
        settings.map(Some).map_err(|why| FlagError::worded("encryption-provider-config", path.display(), why))
    }
}

/// The configured encryption of stored values.
#[derive(Clone, Debug)]
pub struct EncryptionSettings {
    path: PathBuf,
    is_reloaded: bool,
    naming: &'static Naming,
}

impl EncryptionSettings {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// The file is missing or invalid. The message equals the message of kube-apiserver.
    pub fn read(
        path: &Path,
        is_reloaded: bool,
        naming: &'static Naming,
    ) -> anyhow::Result<EncryptionSettings> {
        let config = EncryptionSettings { path: path.to_owned(), is_reloaded, naming };
        config.rules()?;
        Ok(config)
    }

    fn rules(&self) -> anyhow::Result<Vec<Rule>> {
        let quoted = go::quote(&self.path.to_string_lossy());
        let bytes = files::read(&self.path).map_err(|error| {
            anyhow!(
                "error while parsing file: error while loading file: error reading encryption provider configuration file \
                 {quoted}: {}",
                opening(&self.path, &error)
            )
        })?;
        if bytes.is_empty() {
            return Err(anyhow!(
                "error while parsing file: error while loading file: encryption provider configuration file {quoted} is empty"
            ));
        }
        self.parse(&bytes)
    }

    fn parse(&self, bytes: &[u8]) -> anyhow::Result<Vec<Rule>> {
        let connect = |path: &str, timeout| Arc::new(Socket::new(path, timeout)) as Arc<dyn KeyService>;
        config::read(bytes, self.naming, &connect).map_err(|wrong| {
            let quoted = go::quote(&self.path.to_string_lossy());
            match wrong {
                config::Wrong::Form(why) => anyhow!(
                    "error while parsing file: error decoding encryption provider configuration file {quoted}: {why}"
                ),
                config::Wrong::Content(why) => anyhow!("error while parsing file: {why}"),
            }
        })
    }

    /// Returns the encryption that the file configures. Starts the tasks that reload the file and check its
    /// key services.
    ///
    /// # Errors
    /// The file has changed since the check, and is now invalid.
    pub fn enforce(&self) -> anyhow::Result<Arc<Secrecy>> {
        let registry = Registry::new(self.naming);
        let mut watched = FileGroup::new(vec![self.path.clone()]);
        let secrecy = Arc::new(Secrecy::new(self.rules()?, &registry, self.naming));
        // The server starts even if a key service cannot be reached. Until the service is available, requests
        // for values that its keys encrypt fail.
        let is_well = secrecy.refresh().inspect_err(log).is_ok();
        if secrecy.has_services() || self.is_reloaded {
            start_status_thread(&secrecy, is_well)?;
        }
        if self.is_reloaded {
            let (config, used) = (self.clone(), Arc::downgrade(&secrecy));
            let following = async move {
                // New contents of the file that are not in use yet, because a key service in them cannot be
                // reached.
                let mut waiting = None;
                loop {
                    tokio::time::sleep(INTERVAL).await;
                    let Some(secrecy) = used.upgrade() else { break };
                    if let Some([bytes]) = watched.changed() {
                        waiting = Some(bytes.clone());
                    }
                    let Some(bytes) = waiting.take() else { continue };
                    let rules = match config.parse(&bytes) {
                        Ok(rules) => rules,
                        Err(error) => {
                            tracing::error!(
                                %error,
                                "encryption configuration not reloaded, the old one stays in use: correct the file"
                            );
                            continue;
                        }
                    };
                    // Calls of key services block the thread.
                    let refreshed = tokio::task::spawn_blocking(move || (refresh(&rules), rules)).await;
                    let Ok((outcome, rules)) = refreshed else { continue };
                    match outcome {
                        Ok(()) => {
                            secrecy.replace(rules);
                            tracing::info!(file = %config.path.display(), "encryption configuration reloaded");
                        }
                        Err(error) => {
                            log(&error);
                            waiting = Some(bytes);
                        }
                    }
                }
            };
            tokio::spawn(following.boxed());
        }
        Ok(secrecy)
    }
}

/// Intervals of the status requests to key services: while all services are healthy, and while a service is
/// not healthy.
const HEALTHY_INTERVAL: Duration = Duration::from_secs(60);
const UNHEALTHY_INTERVAL: Duration = Duration::from_secs(10);

/// Starts a thread that requests the status of the key services periodically, as long as the encryption is in
/// use.
fn start_status_thread(secrecy: &Arc<Secrecy>, mut is_well: bool) -> anyhow::Result<()> {
    let used = Arc::downgrade(secrecy);
    let ask = move || {
        loop {
            std::thread::sleep(if is_well { HEALTHY_INTERVAL } else { UNHEALTHY_INTERVAL });
            let Some(secrecy) = used.upgrade() else { break };
            is_well = secrecy.refresh().inspect_err(log).is_ok();
        }
    };
    std::thread::Builder::new()
        .name("key-services".to_owned())
        .spawn(ask)
        .context("cannot start the thread of the key services")?;
    Ok(())
}

fn log(error: &String) {
    tracing::error!(%error, "key service (KMS) of the encryption configuration not available: start it");
}
