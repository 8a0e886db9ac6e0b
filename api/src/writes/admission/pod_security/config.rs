//! The configuration of pod security: the defaults for namespaces without labels, and the exemptions.

use super::level::{Level, LevelVersion, LevelsByMode, Version};
use objects::validation::{StructView, names};
use values::field::FieldError;
use values::json::Value;

/// The configuration of the PodSecurity plugin.
#[derive(Debug, Eq, PartialEq)]
pub struct Config {
    /// The policy of a namespace without policy labels.
    pub defaults: LevelsByMode,
    /// Users, namespaces and pods that are never checked.
    pub exempt: Exemptions,
}

/// Users, namespaces and pods that are never checked.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Exemptions {
    /// Users whose writes are not checked.
    pub users: Vec<String>,
    /// Namespaces in which pods are not checked.
    pub namespaces: Vec<String>,
    /// Runtime classes whose pods are not checked.
    pub runtime_classes: Vec<String>,
}

/// The default, without a configuration, allows everything.
impl Default for Config {
    fn default() -> Config {
        Config { defaults: LevelsByMode::PRIVILEGED, exempt: Exemptions::default() }
    }
}

impl Config {
    /// Reads a `PodSecurityConfiguration`. The types of the members are already checked.
    ///
    /// # Errors
    /// Returns a text with all invalid defaults or, if the defaults are valid, with all invalid exemptions.
    pub fn parse(config: &Value) -> Result<Config, String> {
        let config = StructView::from(Some(config));
        let defaults = config.child("defaults");
        let mut errors = Vec::new();
        let mut mode = |name: &str, error_name: &str| mode(defaults, name, error_name, &mut errors);
        let defaults = LevelsByMode {
            enforce: mode("enforce", "Enforce"),
            audit: mode("audit", "Audit"),
            warn: mode("warn", "Warn"),
        };
        none("configuration error", &errors)?;
        let exemptions = config.child("exemptions");
        let mut list =
            |name: &str, check: fn(&str) -> Vec<String>| list(exemptions, name, check, &mut errors);
        let exempt = Exemptions {
            namespaces: list("namespaces", names::label),
            runtime_classes: list("runtimeClasses", names::subdomain),
            users: list("usernames", |_| Vec::new()),
        };
        none("invalid", &errors)?;
        Ok(Config { defaults, exempt })
    }
}

/// Fails if `errors` is not empty. `what` names the part of the configuration that has these errors.
fn none(what: &str, errors: &[String]) -> Result<(), String> {
    go::join_errors(errors).map_or(Ok(()), |errors| Err(format!("PodSecurity {what}: {errors}")))
}

/// Reads the default of one mode. `error_name` is the name of the mode in errors.
fn mode(defaults: StructView<'_>, name: &str, error_name: &str, errors: &mut Vec<String>) -> LevelVersion {
    let mut of = LevelVersion::PRIVILEGED;
    let version = format!("{name}-version");
    let (level, version) = (defaults.text(name), defaults.text(&version));
    if !level.is_empty() {
        match Level::parse(level) {
            Ok(level) => of.level = level,
            Err(why) => errors.push(format!("{error_name}.Level: {why}")),
        }
    }
    if !version.is_empty() {
        match Version::parse(version) {
            Ok(version) => of.version = version,
            Err(why) => errors.push(format!("{error_name}.Version: {why}")),
        }
    }
    of
}

/// Reads one list of exemptions. Any user name is allowed.
fn list(
    exemptions: StructView<'_>,
    name: &str,
    check: fn(&str) -> Vec<String>,
    errors: &mut Vec<String>,
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (at, item) in exemptions.items(name).iter().enumerate() {
        let path = format!("exemptions.{name}[{at}]");
        let text = item.as_str().unwrap_or_default();
        let wrong = check(text);
        let error = if !wrong.is_empty() {
            FieldError::invalid(path, item, wrong.join(", "))
        } else if text.is_empty() {
            FieldError::required(path, "")
        } else if found.iter().any(|other| other == text) {
            FieldError::duplicate(path, item)
        } else {
            found.push(text.to_owned());
            continue;
        };
        errors.push(error.to_string());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::yaml;

    #[test]
    fn a_pod_security_configuration_is_read_or_refused_with_all_its_errors() {
        for (text, want) in [
            ("", Ok("privileged:latest privileged:latest privileged:latest //")),
            (
                "defaults: {enforce: baseline, enforce-version: v1.30, warn: restricted}\nexemptions: {usernames: [bob], \
                 namespaces: [a, b], runtimeClasses: [r]}",
                Ok("baseline:v1.30 privileged:latest restricted:latest bob/a,b/r"),
            ),
            (
                "defaults: {enforce: x}",
                Err(
                    "PodSecurity configuration error: Enforce.Level: must be one of privileged, baseline, restricted",
                ),
            ),
            (
                "defaults: {audit-version: '1', warn: z}\nexemptions: {usernames: [a, a]}",
                Err(
                    "PodSecurity configuration error: [Audit.Version: must be \"latest\" or \"v1.x\", Warn.Level: must be \
                     one of privileged, baseline, restricted]",
                ),
            ),
            (
                "exemptions: {usernames: [a, a, '']}",
                Err(
                    "PodSecurity invalid: [exemptions.usernames[1]: Duplicate value: \"a\", exemptions.usernames[2]: \
                     Required value]",
                ),
            ),
        ] {
            let got = Config::parse(&yaml::parse(text.as_bytes()).unwrap().value).map(|config| {
                let LevelsByMode { enforce, audit, warn } = config.defaults;
                let exempt =
                    [&config.exempt.users, &config.exempt.namespaces, &config.exempt.runtime_classes];
                let [users, namespaces, classes] = exempt.map(|list| list.join(","));
                format!("{enforce} {audit} {warn} {users}/{namespaces}/{classes}")
            });
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
        assert_eq!(Config::parse(&Value::Null), Ok(Config::default()));
    }
}
