//! Flags of admission: which plugins run, and their configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use api::writes::admission::{self, Unusable, Wishes};
use auth::authn::webhook::Reviewer;
use clap::Args;
use wire::outgoing::{Identities, Networks};

use crate::flags::problems::{FlagError, Problems, path_text};
use crate::flags::profile::Profile;
use crate::flags::value_parsers::{List, boolean, integer};
use crate::host::authorities;
use crate::host::files::{self, opening};
use crate::remote::webhooks::{self, Remote};

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct AdmissionFlags {
    /// Accept pods with privileged containers.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub allow_privileged: bool,

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

    /// Connect to webhooks that are services through an endpoint of the service instead of its cluster IP.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub enable_aggregator_routing: bool,

    /// How long a pod stays on a node that is not ready, in seconds. A pod can override this value with its
    /// own toleration.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true,
          value_parser = integer::<i64>)]
    pub default_not_ready_toleration_seconds: i64,

    /// How long a pod stays on a node that is unreachable, in seconds. A pod can override this value with its
    /// own toleration.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true,
          value_parser = integer::<i64>)]
    pub default_unreachable_toleration_seconds: i64,
}

/// Settings of admission plugins and privileged pods.
#[derive(Clone, Debug)]
pub struct AdmissionSettings {
    /// The enabled admission plugins and their configuration.
    pub plugins: admission::Settings,
    /// Whether containers may be privileged.
    pub allow_privileged: bool,
}

/// The names of admission plugins in the flags.
struct PluginNames {
    enable: Vec<String>,
    disable: Vec<String>,
    all: Option<Vec<String>>,
}

impl PluginNames {
    /// Returns the enabled and disabled names and the contents of the configuration file as [`Wishes`].
    fn wishes<'n>(&'n self, naming: Profile, config: Option<&'n [u8]>) -> Wishes<'n> {
        let PluginNames { enable, disable, all } = self;
        Wishes { enable, disable, all: all.as_deref(), config, naming }
    }
}

impl AdmissionFlags {
    fn names(&self) -> PluginNames {
        PluginNames {
            enable: List::all(&self.enable_admission_plugins),
            disable: List::all(&self.disable_admission_plugins),
            all: (!self.admission_control.is_empty()).then(|| List::all(&self.admission_control)),
        }
    }

    /// Adds an error for each invalid name of a plugin.
    fn check_names(&self, naming: Profile, problems: &mut Problems) {
        let is_given =
            !self.enable_admission_plugins.is_empty() || !self.disable_admission_plugins.is_empty();
        if is_given && !self.admission_control.is_empty() {
            let text = "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive";
            let value = List::all(&self.admission_control).join(",");
            problems.add(FlagError::worded("admission-control", value, text));
        }
        let names = self.names();
        for why in names.wishes(naming, None).errors() {
            let flag = ["enable-admission-plugins", "disable-admission-plugins"]
                .into_iter()
                .find(|flag| why.starts_with(flag));
            let (flag, values) = match flag {
                Some("disable-admission-plugins") => ("disable-admission-plugins", &names.disable),
                _ => ("enable-admission-plugins", &names.enable),
            };
            problems.add(FlagError::worded(flag, values.join(","), why));
        }
    }

    /// Reads the configuration file, and returns the settings. Adds an error for each invalid name of a
    /// plugin. Adds an error for an unusable file only if all names are valid.
    pub fn settings(
        &self,
        naming: Profile,
        networks: &Networks,
        problems: &mut Problems,
    ) -> Option<AdmissionSettings> {
        let mut found = Problems::default();
        self.check_names(naming, &mut found);
        problems.take_all(found)?;
        let plugins = problems.take(self.plugins(naming, networks))?;
        Some(AdmissionSettings { plugins, allow_privileged: self.allow_privileged })
    }

    /// Reads the configuration file, and returns the plugins that run. The caller must have checked the names
    /// of plugins.
    fn plugins(&self, naming: Profile, networks: &Networks) -> Result<admission::Settings, FlagError> {
        let path = self.admission_control_config_file.as_deref();
        let wrong = |why: anyhow::Error| {
            let error = FlagError::worded("admission-control-config-file", path_text(path), &why);
            match why.downcast_ref() {
                Some(Unusable::Unreadable(_)) => error.fatal(),
                _ => error,
            }
        };
        let text = path.map(read_configuration).transpose().map_err(wrong)?;
        let names = self.names();
        let wishes = names.wishes(naming, text.as_deref());
        let directory = path.and_then(Path::parent).unwrap_or(Path::new(""));
        let files = ConfigurationFiles { directory, naming, networks: networks.clone() };
        let plugins =
            admission::Settings::parse(&wishes, &files).map_err(|error| wrong(anyhow::Error::from(error)))?;
        Ok(plugins.reaching_endpoints(self.enable_aggregator_routing).tolerating([
            self.default_not_ready_toleration_seconds,
            self.default_unreachable_toleration_seconds,
        ]))
    }
}

fn read_configuration(path: &Path) -> anyhow::Result<Vec<u8>> {
    files::read(path).map_err(|error| {
        anyhow!(
            "failed to apply admission: failed to read plugin config: unable to read admission control \
             configuration from {} [{}]",
            go::quote(&path.display().to_string()),
            opening(path, &error)
        )
    })
}

/// The files that the admission configuration refers to. Relative paths start at the directory of the
/// configuration.
struct ConfigurationFiles<'d> {
    directory: &'d Path,
    naming: Profile,
    networks: Networks,
}

impl admission::Files for ConfigurationFiles<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let path = self.directory.join(path);
        let path = std::path::absolute(&path).unwrap_or(path);
        files::read(&path).map_err(|error| {
            let path_text = path.to_string_lossy();
            if error.raw_os_error().is_none() {
                return format!("Couldn't open admission plugin configuration {path_text}: {error}");
            }
            let step = if error.kind() == std::io::ErrorKind::IsADirectory { "read" } else { "open" };
            format!(
                "Couldn't open admission plugin configuration {path_text}: &fs.PathError{{Op:\"{step}\", Path:{}, Err:{:#x}}}",
                go::quote(&path_text),
                error.raw_os_error().unwrap_or_default()
            )
        })
    }

    fn networks(&self) -> Networks {
        self.networks.clone()
    }

    fn system_authorities(&self) -> Vec<u8> {
        authorities::system_authorities()
    }

    fn identities(&self, path: &str) -> Result<Identities, String> {
        webhooks::identities(Path::new(path)).map_err(|error| format!("{error:#}"))
    }

    fn reviewer(&self, path: &str, pause: Duration) -> Result<Arc<dyn Reviewer>, String> {
        let path = if path.is_empty() { PathBuf::new() } else { self.directory.join(path) };
        let remote = Remote::read(&path, None, self.naming);
        let remote = remote.map_err(|error| format!("{error:#}"))?.through(&self.networks.direct());
        Ok(Arc::new(remote.of_agent("Go-http-client/1.1").pausing(pause)))
    }
}
