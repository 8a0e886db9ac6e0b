//! Flags of what leaves the process in other ways than by answers: traces, and the store's files.

use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::Args;

use super::forms;
use crate::issuers::opening;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct SecrecyFlags {
    /// Where traces of requests go, by the OpenTelemetry protocol over gRPC, and how many are traced (TracingConfiguration).
    #[arg(long, value_name = "FILE")]
    pub tracing_config_file: Option<PathBuf>,

    /// Not supported: objects are not encrypted in the store. A file that is named ends the start.
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,

    /// Only together with --encryption-provider-config.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = forms::boolean, action = clap::ArgAction::Set)]
    pub encryption_provider_config_automatic_reload: bool,
}

impl SecrecyFlags {
    /// Refuses what the server does not do, by name.
    ///
    /// # Errors
    /// Encryption is asked for.
    pub fn check(&self) -> anyhow::Result<()> {
        let Some(path) = &self.encryption_provider_config else {
            if self.encryption_provider_config_automatic_reload {
                bail!(
                    "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
                );
            }
            return Ok(());
        };
        std::fs::read(path).map_err(|error| {
            anyhow!(
                "error while parsing file: error while loading file: error reading encryption provider configuration file \
                 {}: {}",
                auth::go::quote(&path.to_string_lossy()),
                opening(path, &error)
            )
        })?;
        bail!("--encryption-provider-config is not supported: objects are not encrypted in the store")
    }
}
