//! Flags of the releases that the server is like.

use clap::Args;
use types::version::AskedReleases;

use super::forms;
use crate::flaws::Flaws;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Default, Args)]
pub struct CompatibilityFlags {
    /// Release whose gates and versions the server has, as 1.35; its own or one of the three before.
    #[arg(long, value_name = "RELEASE", value_delimiter = ',')]
    pub emulated_version: Vec<String>,

    /// Oldest release that may run beside it. Default: the one before --emulated-version.
    #[arg(long, value_name = "RELEASE", value_delimiter = ',')]
    pub min_compatibility_version: Vec<String>,

    /// Only together with --emulated-version: serve stable APIs of later releases too. They are the same in all of these.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = forms::boolean, action = clap::ArgAction::Set)]
    pub emulation_forward_compatible: bool,

    /// Only together with --emulated-version: let --runtime-config name APIs of later releases too.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = forms::boolean, action = clap::ArgAction::Set)]
    pub runtime_config_emulation_forward_compatible: bool,
}

impl CompatibilityFlags {
    /// The releases that are asked for.
    ///
    /// # Errors
    /// A version that is none.
    pub fn asked(&self) -> Result<AskedReleases, String> {
        AskedReleases::parse(&self.emulated_version, &self.min_compatibility_version)
    }

    /// Says which releases are out of range, and what needs another release than the server's own.
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
