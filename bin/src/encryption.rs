//! The file of `--encryption-provider-config`, and its reading again while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use api::state::secrecy::{Rule, Secrecy, config};
use api::types::schema::registry::Registry;
use api::values::naming::Naming;

use crate::issuers::opening;
use crate::reload::{INTERVAL, Watched};

/// What the flags ask for.
#[derive(Clone, Debug)]
pub struct EncryptionConfig {
    path: PathBuf,
    is_reloaded: bool,
    naming: &'static Naming,
}

impl EncryptionConfig {
    /// Of a file that was checked.
    ///
    /// # Errors
    /// What is wrong with it, in the words of kube-apiserver.
    pub fn read(path: &Path, is_reloaded: bool, naming: &'static Naming) -> anyhow::Result<EncryptionConfig> {
        let config = EncryptionConfig { path: path.to_owned(), is_reloaded, naming };
        config.rules()?;
        Ok(config)
    }

    fn rules(&self) -> anyhow::Result<Vec<Rule>> {
        let shown = auth::go::quote(&self.path.to_string_lossy());
        let bytes = std::fs::read(&self.path).map_err(|error| {
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
        config::read(bytes, self.naming).map_err(|wrong| {
            let shown = auth::go::quote(&self.path.to_string_lossy());
            match wrong {
                config::Wrong::Form(why) => anyhow!(
                    "error while parsing file: error decoding encryption provider configuration file {shown}: {why}"
                ),
                config::Wrong::Content(why) => anyhow!("error while parsing file: {why}"),
            }
        })
    }

    /// Puts the file into force.
    ///
    /// # Errors
    /// It was changed since it was checked, and is wrong now.
    pub fn enforce(&self) -> anyhow::Result<Arc<Secrecy>> {
        let registry = Registry::new(self.naming);
        let mut watched = Watched::new(vec![self.path.clone()]);
        let secrecy = Arc::new(Secrecy::new(self.rules()?, &registry, self.naming));
        if self.is_reloaded {
            let (config, used) = (self.clone(), Arc::downgrade(&secrecy));
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(INTERVAL).await;
                    let Some(secrecy) = used.upgrade() else { break };
                    let Some([bytes]) = watched.changed() else { continue };
                    match config.parse(bytes) {
                        Ok(rules) => {
                            secrecy.replace(rules);
                            tracing::info!(file = %config.path.display(), "encryption of stored values: other rules");
                        }
                        Err(error) => {
                            tracing::error!(%error, "encryption of stored values: the former rules stay in force");
                        }
                    }
                }
            });
        }
        Ok(secrecy)
    }
}
