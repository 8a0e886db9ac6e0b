//! Flags of what leaves the process in other ways than by answers: traces, and the store's files.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use values::naming::Naming;
use wire::outgoing::Networks;

use super::forms;
use crate::egress;
use crate::encryption::EncryptionConfig;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct SecrecyFlags {
    /// Through which proxies other servers are reached (EgressSelectorConfiguration).
    #[arg(long, value_name = "FILE")]
    pub egress_selector_config_file: Option<PathBuf>,

    /// Where traces of requests go, by the OpenTelemetry protocol over gRPC, and how many are traced (TracingConfiguration).
    #[arg(long, value_name = "FILE")]
    pub tracing_config_file: Option<PathBuf>,

    /// Which values are encrypted where they are stored, and with which keys (EncryptionConfiguration).
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,

    /// Read --encryption-provider-config again when it changes.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = forms::boolean, action = clap::ArgAction::Set)]
    pub encryption_provider_config_automatic_reload: bool,
}

impl SecrecyFlags {
    /// How other servers are reached.
    ///
    /// # Errors
    /// The file, or one that it names, is missing or wrong.
    pub fn networks(&self, naming: &'static Naming) -> anyhow::Result<Networks> {
        let path = self.egress_selector_config_file.as_deref();
        path.map_or_else(|| Ok(Networks::default()), |path| egress::read(path, naming))
    }

    /// How stored values are encrypted, if they are.
    ///
    /// # Errors
    /// The file is missing or wrong.
    pub fn encryption(&self, naming: &'static Naming) -> anyhow::Result<Option<EncryptionConfig>> {
        let is_reloaded = self.encryption_provider_config_automatic_reload;
        match &self.encryption_provider_config {
            Some(path) => EncryptionConfig::read(path, is_reloaded, naming).map(Some),
            None if is_reloaded => bail!(
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
            ),
            None => Ok(None),
        }
    }
}
