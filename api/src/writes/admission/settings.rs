//! Selection and configuration of plugins: the flags `--enable-admission-plugins`,
//! `--disable-admission-plugins` and the file of `--admission-control-config-file`. These flags do not change
//! the order of the plugins.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use auth::strict::{MemberType, Object};

use super::default_toleration_seconds::DefaultTolerationSeconds;
use super::files::Files;
use super::order::{PLUGINS, Registration};
use crate::writes::server::MakePlugin;
use values::field::go_quote;
use values::json::{self, Value};
use values::naming::{self, Naming};
use values::yaml;
use wire::config_type::ConfigType;
use wire::typed::Typed;

/// The selected plugins with their constructors, in the order in which they run.
#[derive(Clone)]
pub struct Settings {
    plugins: Vec<(&'static str, MakePlugin)>,
    reaches_endpoints: bool,
}

/// The reason why the server cannot start with the admission settings of the operator.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unusable {
    /// The settings are invalid; the text describes why.
    #[error("{0}")]
    Wrong(String),
    /// A file that the settings name cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

/// The location of a plugin's configuration.
enum Source {
    Here(Value),
    File(String),
}

impl Source {
    /// Returns the text of the configuration. An inline configuration is returned as JSON.
    fn text(&self, files: &dyn Files) -> Result<Vec<u8>, Unusable> {
        match self {
            Source::Here(config) => {
                let mut text = Vec::new();
                json::write_sorted(config, &mut text);
                Ok(text)
            }
            Source::File(path) => files.read(path).map_err(Unusable::Unreadable),
        }
    }
}

/// The admission settings of the operator.
#[derive(Clone, Copy, Debug)]
pub struct Wishes<'w> {
    /// Plugins to run in addition to the default plugins.
    pub enable: &'w [String],
    /// Plugins that must not run.
    pub disable: &'w [String],
    /// All plugins to run. If this list is set, it replaces the two lists above.
    pub all: Option<&'w [String]>,
    /// Content of the configuration file.
    pub config: Option<&'w [u8]>,
    /// The naming profile, which contains the name of the API group of the configuration.
    pub naming: &'static Naming,
}

impl Default for Wishes<'_> {
    fn default() -> Self {
        Wishes { enable: &[], disable: &[], all: None, config: None, naming: &naming::KUBERNETES }
    }
}

impl Wishes<'_> {
    /// Returns whether a plugin is selected.
    fn want(&self, plugin: &Registration) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == plugin.name);
        match self.all {
            Some(all) => named(all),
            None => named(self.enable) || plugin.by_default && !named(self.disable),
        }
    }

    /// Returns an error for each unknown name, and an error if plugins are both enabled and disabled.
    pub fn errors(&self) -> Vec<String> {
        let lists = [
            ("admission-control", self.all.unwrap_or_default()),
            ("enable-admission-plugins", self.enable),
            ("disable-admission-plugins", self.disable),
        ];
        let is_unknown = |name: &&String| PLUGINS.iter().all(|plugin| plugin.name != **name);
        let unknown = |(flag, names): (&str, &[String])| -> Vec<String> {
            let names = names.iter().filter(is_unknown);
            names.map(|name| format!("{flag} plugin {} is unknown", go_quote(name))).collect()
        };
        let mut errors: Vec<String> = lists.into_iter().flat_map(unknown).collect();
        let both: BTreeSet<&str> =
            self.enable.iter().filter(|name| self.disable.contains(name)).map(String::as_str).collect();
        if !both.is_empty() {
            let both = both.into_iter().collect::<Vec<_>>().join(" ");
            errors.push(format!(
                "[{both}] in enable-admission-plugins and disable-admission-plugins overlapped"
            ));
        }
        errors
    }
}

impl Registration {
    /// Parses the configuration of a plugin.
    fn document(&self, text: &[u8], naming: &'static Naming) -> Result<Value, String> {
        match self.config {
            Some(config) => config.config_type.read(text, naming),
            None => Ok(yaml::parse(text).map_err(|error| error.to_string())?.value),
        }
    }
}

impl Settings {
    /// Reads the settings of the operator.
    ///
    /// # Errors
    /// Fails if a name is unknown, if a plugin is both enabled and disabled, or if a configuration cannot be
    /// read.
    pub fn parse(wishes: &Wishes<'_>, files: &dyn Files) -> Result<Settings, Unusable> {
        if let Some(errors) = go::join_errors(wishes.errors()) {
            return Err(Unusable::Wrong(errors));
        }
        let failed =
            |what: &str, why: String| Unusable::Wrong(format!("failed to apply admission: {what}: {why}"));
        let configured = match wishes.config {
            Some(text) => configurations(text, wishes.naming)
                .map_err(|why| failed("failed to read plugin config", why))?,
            None => Vec::new(),
        };
        let mut plugins = Vec::new();
        for plugin in PLUGINS.iter().filter(|plugin| wishes.want(plugin)) {
            let Some(configure) = plugin.configure else { continue };
            let source = configured.iter().find(|(name, _)| name == plugin.name).map(|(_, source)| source);
            let text = source.map(|source| source.text(files)).transpose()?;
            let unmade = format!("couldn't init admission plugin {:?}", plugin.name);
            let config = text.map(|text| plugin.document(&text, wishes.naming)).transpose();
            let config = config.map_err(|why| failed(&unmade, why))?;
            let is_late = plugin.config.is_some_and(|of| of.is_checked_late);
            let make = configure(config.as_ref(), files).map_err(|why| {
                if is_late {
                    failed(&format!("failed to initialize admission plugin {:?}", plugin.name), why)
                } else {
                    failed(&unmade, why)
                }
            })?;
            plugins.push((plugin.name, make));
        }
        Ok(Settings { plugins, reaches_endpoints: false })
    }

    /// Sets whether the server connects to the endpoints of a webhook's service instead of its cluster IP.
    pub fn reaching_endpoints(mut self, reaches: bool) -> Settings {
        self.reaches_endpoints = reaches;
        self
    }

    /// Returns whether the server connects to the endpoints of a webhook's service instead of its cluster IP.
    pub fn reaches_endpoints(&self) -> bool {
        self.reaches_endpoints
    }

    /// Returns the settings without the plugin `name`.
    pub fn without(mut self, name: &str) -> Settings {
        self.plugins.retain(|(other, _)| *other != name);
        self
    }

    /// Returns the settings with other default tolerations. `seconds` are the times for which pods tolerate a
    /// node that is not ready, and a node that is unreachable.
    pub fn tolerating(mut self, seconds: [i64; 2]) -> Settings {
        let make: MakePlugin =
            Arc::new(move |server| Arc::new(DefaultTolerationSeconds::new(server, seconds)));
        for (name, made) in &mut self.plugins {
            if *name == DefaultTolerationSeconds::NAME {
                *made = make.clone();
            }
        }
        self
    }

    /// Returns the settings with an additional plugin that runs after all other plugins.
    pub fn with_last(mut self, name: &'static str, make: MakePlugin) -> Settings {
        self.plugins.push((name, make));
        self
    }

    /// Returns the plugins with their constructors, in order.
    pub fn plugins(&self) -> Vec<(&'static str, MakePlugin)> {
        self.plugins.clone()
    }

    /// Returns the names of the plugins, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.plugins.iter().map(|(name, _)| *name)
    }
}

/// The default contains the plugins that run unless they are disabled.
impl Default for Settings {
    fn default() -> Settings {
        struct None;
        impl Files for None {
            fn read(&self, _: &str) -> Result<Vec<u8>, String> {
                Err("no files".to_owned())
            }
        }
        Settings::parse(&Wishes::default(), &None)
            .expect("a test holds that the default plugins need no configuration")
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Plugins whose configuration may be the whole file, without a kind. This format is older than the versioned
/// configuration.
const UNVERSIONED: [(&str, &str); 2] =
    [("imagePolicy", "ImagePolicyWebhook"), ("podNodeSelectorPluginConfig", "PodNodeSelector")];

/// Type of the configuration file for all plugins.
const FILE: ConfigType = ConfigType {
    names: &[
        ("apiserver.config", &["v1"], "AdmissionConfiguration"),
        ("apiserver", &["v1alpha1"], "AdmissionConfiguration"),
    ],
    scheme: "apiserver/pkg/server/options/admission.go:51",
    form: &Object {
        name: "AdmissionConfiguration",
        members: &[
            ("apiVersion", MemberType::Text),
            ("kind", MemberType::Text),
            ("plugins", MemberType::List(&MemberType::Object(&PLUGIN))),
        ],
    },
    is_implied: false,
};

const PLUGIN: Object = Object {
    name: "AdmissionPluginConfiguration",
    members: &[("name", MemberType::Text), ("path", MemberType::Text), ("configuration", MemberType::Any)],
};

/// Returns the source of the configuration of each plugin in an AdmissionConfiguration. The source is the
/// inline configuration or, if the plugin has no inline configuration, the file that `path` names.
fn configurations(text: &[u8], naming: &'static Naming) -> Result<Vec<(String, Source)>, String> {
    let typed = Typed::read(text)?;
    let config = typed.document();
    let version = match typed.check_named().and_then(|()| FILE.version(config, naming)) {
        Ok(version) => version,
        Err(_) if UNVERSIONED.iter().any(|(member, _)| config.get(member).is_some()) => {
            return Ok(UNVERSIONED
                .iter()
                .map(|(_, plugin)| ((*plugin).to_owned(), Source::Here(config.clone())))
                .collect());
        }
        Err(why) => return Err(why),
    };
    typed.check(FILE.form, version)?;
    let plugins = config.get("plugins").and_then(Value::as_array).unwrap_or_default();
    let mut found = Vec::with_capacity(plugins.len());
    for plugin in plugins {
        let name = plugin.str_at(&["name"]);
        let own = plugin.get("configuration").filter(|own| !own.is_null());
        let source = match (own, plugin.str_at(&["path"])) {
            (Some(own), _) => Source::Here(own.clone()),
            (None, "") => continue,
            (None, path) => Source::File(path.to_owned()),
        };
        found.push((name.to_owned(), source));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";

    /// A file reader that returns the path of a file as the content of the file. Only the file `none` does
    /// not exist.
    struct Paths;

    impl Files for Paths {
        fn read(&self, path: &str) -> Result<Vec<u8>, String> {
            if path == "none" { Err("no file".to_owned()) } else { Ok(format!("path: {path}").into()) }
        }
    }

    fn names(list: &str) -> Vec<String> {
        list.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_enable_and_disable_plugins_without_changing_their_order() {
        let of = |enable: &str, disable: &str| {
            let (enable, disable) = (names(enable), names(disable));
            let settings =
                Settings::parse(&Wishes { enable: &enable, disable: &disable, ..Wishes::default() }, &Paths);
            settings.map(|settings| settings.names().collect::<Vec<_>>())
        };
        let default: Vec<_> = Settings::default().names().collect();
        assert!(default.contains(&"NamespaceLifecycle") && !default.contains(&"AlwaysDeny"));
        let more = of("AlwaysDeny AlwaysAdmit", "NamespaceLifecycle").unwrap();
        assert_eq!((more.first(), more.last()), (Some(&"AlwaysAdmit"), Some(&"AlwaysDeny")));
        assert!(!more.contains(&"NamespaceLifecycle"));
        for (enable, disable, why) in [
            ("A", "", "enable-admission-plugins plugin \"A\" is unknown"),
            (
                "A B",
                "B",
                "[enable-admission-plugins plugin \"A\" is unknown, enable-admission-plugins plugin \"B\" is unknown, \
                 disable-admission-plugins plugin \"B\" is unknown, [B] in enable-admission-plugins and \
                 disable-admission-plugins overlapped]",
            ),
            ("AlwaysDeny", "AlwaysAdmit B", "disable-admission-plugins plugin \"B\" is unknown"),
            (
                "Priority AlwaysDeny",
                "AlwaysDeny Priority",
                "[AlwaysDeny Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
            ),
        ] {
            assert_eq!(of(enable, disable).unwrap_err(), Unusable::Wrong(why.to_owned()));
        }
    }

    #[test]
    fn configuration_files_are_read_only_for_enabled_plugins() {
        let unmade = "failed to apply admission: couldn't init admission plugin \"EventRateLimit\": ";
        for (enable, path, want) in [
            ("", "none", None),
            ("EventRateLimit", "none", Some(Unusable::Unreadable("no file".to_owned()))),
            (
                "EventRateLimit",
                "a",
                Some(Unusable::Wrong(format!("{unmade}Object 'Kind' is missing in 'path: a'"))),
            ),
        ] {
            let enable = names(enable);
            let config = format!("{HEAD}plugins: [{{name: EventRateLimit, path: {path}}}]");
            let wishes = Wishes { enable: &enable, config: Some(config.as_bytes()), ..Wishes::default() };
            assert_eq!(Settings::parse(&wishes, &Paths).err(), want, "{enable:?} {path}");
        }
    }

    #[test]
    fn plugin_configurations_are_inline_or_in_a_named_file() {
        let plugins = |text: &str| format!("{HEAD}plugins: [{text}]");
        for (text, want) in [
            (HEAD.to_owned(), Ok("")),
            (plugins("{name: A, configuration: {a: 1}}"), Ok("A={\"a\":1}")),
            (plugins("{name: A, path: p}"), Ok("A=p")),
            (plugins("{name: A}"), Ok("")),
            (plugins("{name: A, path: p, configuration: {}}"), Ok("A={}")),
            (
                plugins("{name: A, more: 1}") + "\nother: 1",
                Err("strict decoding error: unknown field \"other\", unknown field \"plugins[0].more\""),
            ),
            (
                format!("{HEAD}plugins: []\nplugins: []\n"),
                Err("strict decoding error: yaml: unmarshal errors:\n  line 4: key \"plugins\" already set in map"),
            ),
            (
                r#"{"kind":"AdmissionConfiguration","apiVersion":"apiserver.config.k8s.io/v1","plugins":[{"name":"A","name":"B"}]}"#
                    .to_owned(),
                Err("strict decoding error: duplicate field \"plugins[0].name\""),
            ),
            (
                plugins("{name: 5}"),
                Err(
                    "json: cannot unmarshal number into Go struct field AdmissionPluginConfiguration.plugins.name of \
                     type string",
                ),
            ),
            (
                format!("{HEAD}plugins: x"),
                Err(
                    "json: cannot unmarshal string into Go struct field AdmissionConfiguration.plugins of type \
                     []v1.AdmissionPluginConfiguration",
                ),
            ),
            (
                "imagePolicy: {}".to_owned(),
                Ok("ImagePolicyWebhook={\"imagePolicy\":{}} PodNodeSelector={\"imagePolicy\":{}}"),
            ),
            ("a: 1\n".to_owned(), Err("Object 'Kind' is missing in 'a: 1\n'")),
            (
                "{[".to_owned(),
                Err(
                    "couldn't get version/kind; json parse error: invalid character '[' looking for beginning of object \
                     key string",
                ),
            ),
            (
                "a".to_owned(),
                Err(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type \
                     struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                     \"json:\\\"kind,omitempty\\\"\" }",
                ),
            ),
            (
                "{\"plugins\":".to_owned(),
                Err("couldn't get version/kind; json parse error: unexpected end of JSON input"),
            ),
            (
                "kind: AdmissionConfiguration".to_owned(),
                Err("Object 'apiVersion' is missing in 'kind: AdmissionConfiguration'"),
            ),
            (
                "kind: Other\napiVersion: v1".to_owned(),
                Err("no kind \"Other\" is registered for version \"v1\" in scheme \
                     \"k8s.io/apiserver/pkg/server/options/admission.go:51\""),
            ),
            (
                HEAD.replace("/v1", "/v2"),
                Err(
                    "no kind \"AdmissionConfiguration\" is registered for version \"apiserver.config.k8s.io/v2\" in \
                     scheme \"k8s.io/apiserver/pkg/server/options/admission.go:51\"",
                ),
            ),
        ] {
            let got = configurations(text.as_bytes(), &naming::KUBERNETES).map(|found| {
                let shown = found.iter().map(|(name, source)| match source {
                    Source::Here(value) => format!("{name}={}", values::testing::text(value)),
                    Source::File(path) => format!("{name}={path}"),
                });
                shown.collect::<Vec<_>>().join(" ")
            });
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }
}
