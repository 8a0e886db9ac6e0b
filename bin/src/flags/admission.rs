//! Flags of admission: which plugins run, and their configuration.

use std::path::PathBuf;

use api::writes::admission::Wishes;
use clap::Args;

use super::Profile;
use super::forms::{List, boolean, integer};
use crate::config::checks::Flaws;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct AdmissionFlags {
    /// Admission plugins to run in addition to the default ones, separated by commas.
    #[arg(long, value_name = "NAMES")]
    pub enable_admission_plugins: Vec<List>,
    /// Admission plugins not to run, separated by commas.
    #[arg(long, value_name = "NAMES")]
    pub disable_admission_plugins: Vec<List>,
    /// Deprecated: all admission plugins to run, separated by commas. Cannot be combined with
    /// --enable-admission-plugins and --disable-admission-plugins.
    #[arg(long, value_name = "NAMES")]
    pub admission_control: Vec<List>,
    /// Configuration of the admission plugins (AdmissionConfiguration, YAML or JSON).
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
    /// Connect to a webhook that is a service at one of the service's endpoints instead of its cluster IP.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub enable_aggregator_routing: bool,

    /// How long a pod stays on a node that is not ready, in seconds. Applies to pods that set no toleration
    /// of their own.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true,
          value_parser = integer::<i64>)]
    pub default_not_ready_toleration_seconds: i64,
    /// How long a pod stays on a node that is unreachable, in seconds. Applies to pods that set no toleration
    /// of their own.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true,
          value_parser = integer::<i64>)]
    pub default_unreachable_toleration_seconds: i64,
}

/// The names of admission plugins in the flags.
#[derive(Clone, Debug)]
pub struct PluginNames {
    enable: Vec<String>,
    disable: Vec<String>,
    all: Option<Vec<String>>,
}

impl AdmissionFlags {
    /// Returns the names of the plugins in the flags.
    pub fn names(&self) -> PluginNames {
        PluginNames {
            enable: List::all(&self.enable_admission_plugins),
            disable: List::all(&self.disable_admission_plugins),
            all: (!self.admission_control.is_empty()).then(|| List::all(&self.admission_control)),
        }
    }

    /// Adds the errors in the names of plugins.
    pub fn check(&self, naming: Profile, flaws: &mut Flaws) {
        let is_given =
            !self.enable_admission_plugins.is_empty() || !self.disable_admission_plugins.is_empty();
        if is_given && !self.admission_control.is_empty() {
            flaws.push(
                "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive"
                    .to_owned(),
            );
        }
        for why in self.names().wishes(naming).errors() {
            flaws.push(why);
        }
    }
}

impl PluginNames {
    /// Returns the names as wishes, without a configuration of the plugins.
    pub fn wishes(&self, naming: Profile) -> Wishes<'_> {
        let PluginNames { enable, disable, all } = self;
        Wishes { enable, disable, all: all.as_deref(), config: None, naming }
    }
}
