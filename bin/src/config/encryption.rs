//! The file of `--encryption-provider-config`, and its reload while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use api::state::secrecy::{KeyService, Rule, Secrecy, config, refresh};
use types::schema::registry::Registry;
use values::naming::Naming;

use crate::config::issuers::opening;
use crate::host::reload::{INTERVAL, Watched};
use crate::remote::kms::Socket;

/// The configured encryption of stored values.
#[derive(Clone, Debug)]
pub struct EncryptionConfig {
    path: PathBuf,
    is_reloaded: bool,
    naming: &'static Naming,
}

impl EncryptionConfig {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// The problem of the file, in the words of kube-apiserver.
    pub fn read(path: &Path, is_reloaded: bool, naming: &'static Naming) -> anyhow::Result<EncryptionConfig> {
        let config = EncryptionConfig { path: path.to_owned(), is_reloaded, naming };
        config.rules()?;
        Ok(config)
    }

    fn rules(&self) -> anyhow::Result<Vec<Rule>> {
        let shown = go::quote(&self.path.to_string_lossy());
        let bytes = crate::host::files::read(&self.path).map_err(|error| {
            anyhow!(
                "error while parsing file: error while loading file: error reading encryption provider configuration file \
                 {shown}: {}",
                opening(&self.path, &error)
            )
        })?;
        if bytes.is_empty() {
            return Err(anyhow!(
                "error while parsing file: error while loading file: encryption provider configuration file {shown} is empty"
            ));
        }
        self.parse(&bytes)
    }

    fn parse(&self, bytes: &[u8]) -> anyhow::Result<Vec<Rule>> {
        let connect = |path: &str, timeout| Arc::new(Socket::new(path, timeout)) as Arc<dyn KeyService>;
        config::read(bytes, self.naming, &connect).map_err(|wrong| {
            let shown = go::quote(&self.path.to_string_lossy());
            match wrong {
                config::Wrong::Form(why) => anyhow!(
                    "error while parsing file: error decoding encryption provider configuration file {shown}: {why}"
                ),
                config::Wrong::Content(why) => anyhow!("error while parsing file: {why}"),
            }
        })
    }

    /// Puts the file into force, and starts the tasks that reload it and check its key services.
    ///
    /// # Errors
    /// The file has changed since the check, and is now invalid.
    pub fn enforce(&self) -> anyhow::Result<Arc<Secrecy>> {
        let registry = Registry::new(self.naming);
        let mut watched = Watched::new(vec![self.path.clone()]);
        let secrecy = Arc::new(Secrecy::new(self.rules()?, &registry, self.naming));
        // The server starts even if a key service cannot be reached: values under its keys are refused until
        // it can.
        let is_well = secrecy.refresh().inspect_err(log).is_ok();
        if secrecy.has_services() || self.is_reloaded {
            ask_again(&secrecy, is_well)?;
        }
        if self.is_reloaded {
            let (config, used) = (self.clone(), Arc::downgrade(&secrecy));
            tokio::spawn(async move {
                // Contents of the file whose key services cannot be reached yet.
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
                    // Calls of key services block.
                    let asked = tokio::task::spawn_blocking(move || (refresh(&rules), rules)).await;
                    let Ok((outcome, rules)) = asked else { continue };
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
            });
        }
        Ok(secrecy)
    }
}

/// How often key services are asked for their status: healthy services, and others.
const HEALTHY_INTERVAL: Duration = Duration::from_secs(60);
const UNHEALTHY_INTERVAL: Duration = Duration::from_secs(10);

/// Asks the key services for their status periodically, as long as the encryption is in use.
fn ask_again(secrecy: &Arc<Secrecy>, mut is_well: bool) -> anyhow::Result<()> {
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
