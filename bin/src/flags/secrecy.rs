//! Flags of data that leave the process other than in responses: requests to other servers, traces, and stored values.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use values::naming::Naming;
use wire::outgoing::Networks;

use super::forms;
use crate::config::egress;
use crate::config::encryption::EncryptionConfig;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct SecrecyFlags {
    /// Configuration of the proxies through which the server connects to other servers
    /// (EgressSelectorConfiguration).
    #[arg(long, value_name = "FILE")]
    pub egress_selector_config_file: Option<PathBuf>,

    /// Configuration of traces: how many requests are traced, and the OpenTelemetry collector to which traces
    /// are sent over gRPC (TracingConfiguration).
    #[arg(long, value_name = "FILE")]
    pub tracing_config_file: Option<PathBuf>,

    /// Configuration of encryption: which stored values are encrypted, and with which keys
    /// (EncryptionConfiguration).
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,

    /// Reload --encryption-provider-config when the file changes.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = forms::boolean, action = clap::ArgAction::Set)]
    pub encryption_provider_config_automatic_reload: bool,
}

impl SecrecyFlags {
    /// Returns the networks through which the server connects to other servers.
    ///
    /// # Errors
    /// The file, or a file that it names, is missing or invalid.
    pub fn networks(&self, naming: &'static Naming) -> anyhow::Result<Networks> {
        let path = self.egress_selector_config_file.as_deref();
        path.map_or_else(|| Ok(Networks::default()), |path| egress::read(path, naming))
    }

    /// Returns the configuration of encryption, or `None` if stored values are not encrypted.
    ///
    /// # Errors
    /// The file is missing or invalid.
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
