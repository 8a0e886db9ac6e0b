//! The configuration of pod security: what namespaces without labels have, and what is exempt.

use super::level::{Level, LevelVersion, Policy, Version};
use crate::objects::validation::{View, names};
use crate::values::field::FieldError;
use crate::values::json::Value;

/// The configuration.
#[derive(Debug, Eq, PartialEq)]
pub struct Config {
    /// The policy of a namespace whose labels say nothing.
    pub defaults: Policy,
    /// What is never checked.
    pub exempt: Exemptions,
}

/// What is never checked.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Exemptions {
    /// Writes of these users.
    pub users: Vec<String>,
    /// Everything in these namespaces.
    pub namespaces: Vec<String>,
    /// Pods of these runtime classes.
    pub runtime_classes: Vec<String>,
}

/// Without a configuration everything is allowed.
impl Default for Config {
    fn default() -> Config {
        Config { defaults: Policy::PRIVILEGED, exempt: Exemptions::default() }
    }
}

impl Config {
    /// Reads a `PodSecurityConfiguration`.
    ///
    /// # Errors
    /// Every value that is wrong.
    pub fn parse(config: &Value) -> Result<Config, String> {
        let kind = config.str_at(&["kind"]);
        if kind != "PodSecurityConfiguration" {
            return Err(format!("no kind \"PodSecurityConfiguration\" but {kind:?}"));
        }
        let config = View::from(Some(config));
        let mut errors = Vec::new();
        let defaults = config.child("defaults");
        let mut mode = |name: &str| mode(defaults, name, &mut errors);
        let defaults = Policy { enforce: mode("enforce"), audit: mode("audit"), warn: mode("warn") };
        let exemptions = config.child("exemptions");
        let mut list =
            |name: &str, check: fn(&str) -> Vec<String>| list(exemptions, name, check, &mut errors);
        let exempt = Exemptions {
            namespaces: list("namespaces", names::label),
            runtime_classes: list("runtimeClasses", names::subdomain),
            users: list("usernames", |_| Vec::new()),
        };
        match errors.as_slice() {
            [] => Ok(Config { defaults, exempt }),
            [error] => Err(error.to_string()),
            errors => {
                let lines: Vec<_> = errors.iter().map(FieldError::to_string).collect();
                Err(format!("[{}]", lines.join(", ")))
            }
        }
    }
}

/// The default of one mode.
fn mode(defaults: View<'_>, name: &str, errors: &mut Vec<FieldError>) -> LevelVersion {
    let mut of = LevelVersion::PRIVILEGED;
    let mut refuse = |name: &str, value: &Value, why| {
        errors.push(FieldError::invalid(format!("defaults.{name}"), value, why));
    };
    if let Some(value) = defaults.get(name) {
        match Level::parse(value.as_str().unwrap_or_default()) {
            Ok(level) => of.level = level,
            Err(why) => refuse(name, value, why),
        }
    }
    let name = format!("{name}-version");
    if let Some(value) = defaults.get(&name) {
        match Version::parse(value.as_str().unwrap_or_default()) {
            Ok(version) => of.version = version,
            Err(why) => refuse(&name, value, why),
        }
    }
    of
}

/// One list of exemptions.
fn list(
    exemptions: View<'_>,
    name: &str,
    check: fn(&str) -> Vec<String>,
    errors: &mut Vec<FieldError>,
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (at, item) in exemptions.items(name).iter().enumerate() {
        let path = format!("exemptions.{name}[{at}]");
        let text = item.as_str().unwrap_or_default();
        let wrong = if text.is_empty() { vec![format!("{name} must not be empty")] } else { check(text) };
        errors.extend(wrong.into_iter().map(|why| FieldError::invalid(&*path, item, why)));
        if found.iter().any(|other| other == text) {
            errors.push(FieldError::duplicate(path, item));
        } else {
            found.push(text.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::codec::yaml;

    #[test]
    fn configurations_are_read_or_refused_with_all_that_is_wrong() {
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
                    "defaults.enforce: Invalid value: \"x\": must be one of privileged, baseline, restricted",
                ),
            ),
            (
                "defaults: {audit-version: '1'}\nexemptions: {usernames: [a, a]}",
                Err("[defaults.audit-version: Invalid value: \"1\": must be \"latest\" or \"v1.x\", \
                     exemptions.usernames[1]: Duplicate value: \"a\"]"),
            ),
        ] {
            let text = format!("kind: PodSecurityConfiguration\n{text}");
            let got = Config::parse(&yaml::parse(text.as_bytes()).unwrap().value).map(|config| {
                let Policy { enforce, audit, warn } = config.defaults;
                let exempt =
                    [&config.exempt.users, &config.exempt.namespaces, &config.exempt.runtime_classes];
                let [users, namespaces, classes] = exempt.map(|list| list.join(","));
                format!("{enforce} {audit} {warn} {users}/{namespaces}/{classes}")
            });
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
        assert!(Config::parse(&Value::Null).is_err());
    }
}
