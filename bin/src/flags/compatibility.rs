//! Flags of the releases that the server emulates.

use clap::Args;
use types::version::AskedReleases;

use super::forms;
use crate::config::checks::Flaws;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Default, Args)]
pub struct CompatibilityFlags {
    /// Release whose APIs and feature gates the server emulates, such as 1.35. Possible values: the server's
    /// own release and the three before it. Default: its own release.
    #[arg(long, value_name = "RELEASE", value_delimiter = ',')]
    pub emulated_version: Vec<String>,

    /// Oldest release of control plane components that may run with this server. Default: the release before
    /// --emulated-version.
    #[arg(long, value_name = "RELEASE", value_delimiter = ',')]
    pub min_compatibility_version: Vec<String>,

    /// Also serve stable APIs of releases after --emulated-version. Requires an --emulated-version other than
    /// the server's own. All supported releases have the same stable APIs.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = forms::boolean, action = clap::ArgAction::Set)]
    pub emulation_forward_compatible: bool,

    /// Also accept APIs of releases after --emulated-version in --runtime-config. Requires an
    /// --emulated-version other than the server's own.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = forms::boolean, action = clap::ArgAction::Set)]
    pub runtime_config_emulation_forward_compatible: bool,
}

impl CompatibilityFlags {
    /// Returns the releases in the flags.
    ///
    /// # Errors
    /// A value is not a version.
    pub fn asked(&self) -> Result<AskedReleases, String> {
        AskedReleases::parse(&self.emulated_version, &self.min_compatibility_version)
    }

    /// Adds errors for releases out of range, and for flags that require a release other than the server's own.
    pub fn check(&self, asked: AskedReleases, flaws: &mut Flaws) {
        for why in asked.releases().err().into_iter().flatten() {
            flaws.push(why);
        }
        for (is_set, option) in [
            (self.emulation_forward_compatible, "EmulationForwardCompatible"),
            (self.runtime_config_emulation_forward_compatible, "RuntimeConfigEmulationForwardCompatible"),
        ] {
            if is_set && asked.is_own() {
                flaws.push(format!(
                    "ServerRunOptions.{option} cannot be set to true if the emulation version is the same as the binary \
                     version"
                ));
            }
        }
    }
}
