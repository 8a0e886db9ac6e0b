//! Flags of releases: the release that the server emulates, feature gates, and the API versions that are served.

use clap::Args;
use types::enablement::Enablement;
use types::features::Features;
use types::schema::registry::Registry;
use types::version::{Releases, RequestedReleases};

use crate::flags::problems::{FlagError, Problems};
use crate::flags::profile::Profile;
use crate::flags::value_parsers;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Default, Args)]
pub struct ReleaseFlags {
    /// Feature gates to turn on or off, as Name=true,Name=false. AllAlpha means all alpha gates, and AllBeta
    /// means all beta gates.
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Vec<String>,

    /// Built-in API versions and resources to serve or not, as
    /// group/version=true,group/version/resource=false. api/all means all versions; api/ga, api/beta and
    /// api/alpha mean all versions of one stability level.
    #[arg(long, value_name = "PAIRS")]
    pub runtime_config: Vec<String>,

    /// Release whose APIs and feature gates the server emulates, such as 1.35. Possible values: the server's
    /// own release and the three releases before it. Default: the server's own release.
    #[arg(long, value_name = "RELEASE", value_delimiter = ',')]
    pub emulated_version: Vec<String>,

    /// Oldest release of control plane components that may run with this server. Default: the release before
    /// --emulated-version.
    #[arg(long, value_name = "RELEASE", value_delimiter = ',')]
    pub min_compatibility_version: Vec<String>,

    /// Also serve stable APIs of releases after --emulated-version. Requires an --emulated-version other than
    /// the server's own. All supported releases have the same stable APIs.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = value_parsers::boolean, action = clap::ArgAction::Set)]
    pub emulation_forward_compatible: bool,

    /// Also accept APIs of releases after --emulated-version in --runtime-config. Requires an
    /// --emulated-version other than the server's own.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = value_parsers::boolean, action = clap::ArgAction::Set)]
    pub runtime_config_emulation_forward_compatible: bool,
}

/// The releases whose behaviour the server emulates, and their feature gates.
#[derive(Clone, Debug)]
pub struct ReleaseSettings {
    /// The releases whose behaviour the server emulates.
    pub releases: Releases,
    /// Feature gates, with their values.
    pub features: Features,
}

impl ReleaseFlags {
    /// Returns the settings. Adds an error for each release that is not a version, and for each gate that is not a pair
    /// of a name and a value. [`check_releases`](Self::check_releases) checks the ranges of releases.
    pub fn settings(&self, problems: &mut Problems) -> Option<ReleaseSettings> {
        let requested = problems.take(self.requested_releases())?;
        let releases = requested.releases().unwrap_or_default();
        let gates = self.feature_gates.join(",");
        let features = Features::parse(&gates, releases);
        let features = problems.take_for("feature-gates", gates, features)?;
        Some(ReleaseSettings { releases, features })
    }

    /// Returns the releases that the flags name.
    fn requested_releases(&self) -> Result<RequestedReleases, FlagError> {
        RequestedReleases::parse(&self.emulated_version, &self.min_compatibility_version)
            .map_err(|why| FlagError::worded("emulated-version", self.emulated_version.join(","), why))
    }

    /// Adds an error for each release that is out of range, and for each flag that is only allowed if the server
    /// emulates another release than its own.
    pub fn check_releases(&self, problems: &mut Problems) {
        let Some(requested) = problems.take(self.requested_releases()) else { return };
        for why in requested.releases().err().into_iter().flatten() {
            problems.add(FlagError::worded("emulated-version", self.emulated_version.join(","), why));
        }
        for (is_set, flag, option) in [
            (self.emulation_forward_compatible, "emulation-forward-compatible", "EmulationForwardCompatible"),
            (
                self.runtime_config_emulation_forward_compatible,
                "runtime-config-emulation-forward-compatible",
                "RuntimeConfigEmulationForwardCompatible",
            ),
        ] {
            if is_set && requested.is_own() {
                let text = format!(
                    "ServerRunOptions.{option} cannot be set to true if the emulation version is the same as the binary \
                     version"
                );
                problems.add(FlagError::worded(flag, "true", text));
            }
        }
    }

    /// Checks that the server serves the types that configure flow control.
    ///
    /// # Errors
    /// `--runtime-config` turns these types off.
    pub fn check_flow_control(&self, naming: Profile) -> Result<(), FlagError> {
        let wishes = self.runtime_config.iter().flat_map(|text| text.split(',')).map(str::trim);
        let wishes: Vec<&str> = wishes.collect();
        let own = naming.api_version("flowcontrol.apiserver", true, "v1");
        for key in [&*own, "api/ga", "api/all"] {
            let is = |value: &str| wishes.iter().any(|wish| *wish == format!("{key}={value}"));
            if is("false") {
                let text = format!(
                    "--runtime-config={key}=false conflicts with --enable-priority-and-fairness=true"
                );
                return Err(FlagError::worded("runtime-config", self.runtime_config.join(","), text));
            }
            if is("true") {
                break;
            }
        }
        Ok(())
    }

    /// Returns the built-in types that are served.
    ///
    /// # Errors
    /// A pair of `--runtime-config` is invalid, or names an unknown type.
    pub fn enablement(&self, naming: Profile, release: &ReleaseSettings) -> Result<Enablement, FlagError> {
        let pairs = self.runtime_config.join(",");
        let wrong = |why: String| FlagError::worded("runtime-config", &pairs, why);
        let enablement = Enablement::parse(&pairs, &Registry::new(naming)).map_err(wrong)?;
        enablement.check(naming).map_err(wrong)?;
        let features = &release.features;
        Ok(enablement.gated(naming, |gate| features.is_open(gate)).released(naming, release.releases))
    }
}
