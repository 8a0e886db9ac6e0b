//! Selection of the built-in types that the server serves. The default is the types of stable versions;
//! `--runtime-config` changes the selection (docs/api/operations.md#runtime-config).
//!
//! Disabled types still exist in the store, and the components of the server still use these types. Only requests do
//! not find disabled types.

use std::collections::BTreeMap;

use crate::schema::registry::Registry;
use crate::version::Releases;
use values::naming::Naming;

/// Predicate that decides whether a setting applies to a version.
type IsMeant = fn(&str) -> bool;

/// Settings for whole stages, in the order in which they are applied. Settings for a version or a resource
/// are applied after the settings for stages.
const STAGES: [(&str, IsMeant); 4] = [
    ("api/all", |_| true),
    ("api/ga", |version| stage(version) == Some("")),
    ("api/beta", |version| stage(version) == Some("beta")),
    ("api/alpha", |version| stage(version) == Some("alpha")),
];

/// Former groups whose types have moved to other groups. Settings may still name these groups.
const FORMER_GROUPS: &[&str] = &["extensions"];

/// Groups that the reference server registers, but that have no types in this server. Each entry is the stem,
/// and whether the group has the suffix of the naming profile.
const EMPTY_GROUPS: &[(&str, bool)] =
    &[("admission", true), ("imagepolicy", true), ("internal.apiserver", true), ("storagemigration", true)];

/// A type: stem of its group, version and plural name.
type Named = (&'static str, &'static str, &'static str);

/// Types that are served only if a feature is enabled, with the gate of the feature.
const GATED: &[(Named, &str)] = &[(("certificates", "v1beta1", "clustertrustbundles"), "ClusterTrustBundle")];

/// Types that are newer than the oldest release that the server can emulate, with the minor number of the
/// release that introduced them.
const INTRODUCED: &[(Named, u32)] = &[
    (("admissionregistration", "v1", "mutatingadmissionpolicies"), 36),
    (("admissionregistration", "v1", "mutatingadmissionpolicybindings"), 36),
    (("admissionregistration", "v1beta1", "mutatingadmissionpolicies"), 34),
    (("admissionregistration", "v1beta1", "mutatingadmissionpolicybindings"), 34),
    (("resource", "v1", "deviceclasses"), 34),
    (("resource", "v1", "resourceclaims"), 34),
    (("resource", "v1", "resourceclaimtemplates"), 34),
    (("resource", "v1", "resourceslices"), 34),
    (("resource", "v1beta2", "devicetaintrules"), 36),
    (("resource", "v1alpha3", "resourcepoolstatusrequests"), 36),
    (("storage", "v1", "volumeattributesclasses"), 34),
];

/// Type without which the server does not start.
const NEEDED: Named = ("apiregistration", "v1", "apiservices");

/// The set of types that are not served: group, version and plural name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Enablement {
    off: Vec<(String, String, String)>,
}

impl Enablement {
    /// Parses pairs such as `apps/v1=false`, `api/beta=true` and `apps/v1/deployments=false`, separated by
    /// commas, about the types of `registry`. If a key occurs several times, the last value counts. A key
    /// without a value means true.
    ///
    /// # Errors
    /// The key is malformed, the value is not a boolean, or the group or version does not exist. The messages
    /// have the wording of the reference server.
    pub fn parse(text: &str, registry: &Registry) -> Result<Enablement, String> {
        let mut wishes: BTreeMap<&str, &str> = BTreeMap::new();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            wishes.insert(key.trim(), value.trim());
        }
        if wishes.len() == 1 && wishes.get("api/all") == Some(&"false") {
            return Err("invalid key with only api/all=false".to_owned());
        }
        let is_stage = |key: &str| STAGES.iter().any(|(name, _)| *name == key);
        let mut named = Vec::new();
        let mut unknown = Vec::new();
        for (key, value) in wishes.iter().filter(|(key, _)| !is_stage(key)) {
            let key_parts = Key::read(key).ok_or_else(|| format!("runtime-config invalid key {key}"))?;
            if !is_registered(key_parts.group, registry) {
                unknown.push(format!("{}/{}", key_parts.group, key_parts.version));
            }
            named.push((*key, key_parts, *value));
        }
        if !unknown.is_empty() {
            return Err(format!("unknown api groups {}", unknown.join(",")));
        }
        let mut is_on: Vec<_> =
            registry.resources().map(|resource| (resource, stage(&resource.version) == Some(""))).collect();
        for (name, is_meant) in STAGES {
            let Some(value) = wishes.get(name) else { continue };
            let enabled = match *value {
                "true" => true,
                "false" => false,
                other => return Err(format!("invalid value {name}={other}")),
            };
            for (_, on) in is_on.iter_mut().filter(|(resource, _)| is_meant(&resource.version)) {
                *on = enabled;
            }
        }
        // A setting for a resource takes precedence over a setting for its version.
        named.sort_by_key(|(_, key, _)| key.plural.is_some());
        for (text, key, value) in named {
            let is_missing =
                has_types(key.group, registry) && registry.version(key.group, key.version).is_none();
            if is_missing && !matches!(stage(key.version), Some("alpha" | "beta")) {
                return Err(format!("group version {} that has not been registered", key.group_version()));
            }
            let enabled = boolean(value)
                .ok_or_else(|| format!("invalid value of {text}: {value}, err: {}", not_boolean(value)))?;
            key.check_plural(text)?;
            for (resource, on) in &mut is_on {
                let is_version = (&*resource.group, &*resource.version) == (key.group, key.version);
                if is_version && key.plural.is_none_or(|plural| plural == resource.table.plural) {
                    *on = enabled;
                }
            }
        }
        let off = is_on.into_iter().filter(|(_, on)| !on).map(|(resource, _)| {
            (resource.group.clone(), resource.version.to_string(), resource.table.plural.to_string())
        });
        Ok(Enablement { off: off.collect() })
    }

    /// Checks that the server can start with the enabled types.
    ///
    /// # Errors
    /// A message that names the version that must be served, in the wording of the reference server.
    pub fn check(&self, naming: &Naming) -> Result<(), String> {
        let (stem, version, plural) = NEEDED;
        let group = naming.group(stem, true);
        let is_needed =
            |off: &(String, String, String)| off.0 == group && off.1 == version && off.2 == plural;
        if self.off.iter().any(is_needed) {
            return Err(format!("API group/version {group}/{version} must be enabled"));
        }
        Ok(())
    }

    /// Additionally disables the types whose features are disabled.
    #[must_use]
    pub fn gated(self, naming: &Naming, is_open: impl Fn(&str) -> bool) -> Enablement {
        let closed = GATED.iter().filter(|(_, gate)| !is_open(gate));
        self.without(naming, closed.map(|(named, _)| *named))
    }

    /// Additionally disables the types that the emulated release does not have yet.
    #[must_use]
    pub fn released(self, naming: &Naming, releases: Releases) -> Enablement {
        let later = INTRODUCED.iter().filter(|(_, minor)| *minor > releases.emulated);
        self.without(naming, later.map(|(named, _)| *named))
    }

    fn without(mut self, naming: &Naming, types: impl Iterator<Item = Named>) -> Enablement {
        for (stem, version, plural) in types {
            let meant = (naming.group(stem, true), version.to_owned(), plural.to_owned());
            if !self.off.contains(&meant) {
                self.off.push(meant);
            }
        }
        self
    }

    /// Returns `registry` without the disabled types.
    pub fn enabled_types(&self, registry: &Registry) -> Registry {
        self.off
            .iter()
            .fold(registry.clone(), |served, (group, version, plural)| served.without(group, version, plural))
    }
}

fn has_types(group: &str, registry: &Registry) -> bool {
    registry.groups().iter().any(|known| known.name == group)
}

/// Returns whether settings may name a group.
fn is_registered(group: &str, registry: &Registry) -> bool {
    let naming = registry.naming();
    has_types(group, registry)
        || FORMER_GROUPS.contains(&group)
        || EMPTY_GROUPS.iter().any(|(stem, suffixed)| naming.group(stem, *suffixed) == group)
}

/// The parsed key of a setting.
#[derive(Clone, Copy)]
struct Key<'k> {
    group: &'k str,
    version: &'k str,
    plural: Option<&'k str>,
}

impl<'k> Key<'k> {
    fn read(text: &'k str) -> Option<Key<'k>> {
        let mut parts = text.split('/');
        let (group, version, plural) = (parts.next()?, parts.next()?, parts.next());
        if parts.next().is_some() {
            return None;
        }
        Some(Key { group, version, plural })
    }

    /// Checks the form of the resource's name; `text` is the whole key.
    fn check_plural(&self, text: &str) -> Result<(), String> {
        match self.plural {
            Some(plural) if plural.to_lowercase() != plural => Err(format!(
                "invalid key {text}: group/version/resource and resource is always lowercase plural, not {plural:?}"
            )),
            _ => Ok(()),
        }
    }

    fn group_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Returns the stage in the name of a version: `beta` in `v2beta1`, empty in `v2`; `None` for other names.
fn stage(version: &str) -> Option<&str> {
    let rest = version.strip_prefix('v')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits(rest) {
        return Some("");
    }
    ["alpha", "beta"]
        .into_iter()
        .find(|stage| rest.split_once(stage).is_some_and(|(before, after)| digits(before) && digits(after)))
}

/// Parses a boolean by Go's rules; an empty text is true.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "" | "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn not_boolean(text: &str) -> String {
    format!("strconv.ParseBool: parsing {text:?}: invalid syntax")
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;

    /// Returns whether each of `types` is served with these settings.
    fn are_served(wishes: &str, types: &[(&str, &str, &str)]) -> Result<Vec<bool>, String> {
        let registry = Registry::new(&KUBERNETES);
        let left = Enablement::parse(wishes, &registry)?.enabled_types(&registry);
        let is_there =
            |(group, version, plural): &(&str, &str, &str)| left.resource(group, version, plural).is_some();
        Ok(types.iter().map(is_there).collect())
    }

    #[test]
    fn runtime_config_disables_versions_and_resources() {
        let types = [
            ("", "v1", "pods"),
            ("apps", "v1", "deployments"),
            ("apps", "v1", "daemonsets"),
            ("autoscaling", "v1", "horizontalpodautoscalers"),
            ("autoscaling", "v2", "horizontalpodautoscalers"),
        ];
        for (wishes, want) in [
            ("", [true; 5]),
            ("autoscaling/v1=false", [true, true, true, false, true]),
            ("apps/v1/deployments=false", [true, false, true, true, true]),
            ("apps/v1/deployments=true,apps/v1=false", [true, true, false, true, true]),
            ("api/all=false,apps/v1", [false, true, true, false, false]),
            ("api/ga=false,/v1=true", [true, false, false, false, false]),
            ("api/beta=false,api/alpha=true", [true; 5]),
            ("apps/v1=false,apps/v1=true", [true; 5]),
            ("extensions/v1beta1=true,apps/v1beta1=true", [true; 5]),
            (" apps/v1 = false ,", [true, false, false, true, true]),
            ("storagemigration.k8s.io/v1beta1=true,internal.apiserver.k8s.io/v1alpha1=true", [true; 5]),
            ("admission.k8s.io/v1=true", [true; 5]),
        ] {
            assert_eq!(are_served(wishes, &types), Ok(want.to_vec()), "{wishes}");
        }
    }

    #[test]
    fn runtime_config_enables_all_versions_of_a_stability_level() {
        let types = [
            ("admissionregistration.k8s.io", "v1alpha1", "mutatingadmissionpolicies"),
            ("admissionregistration.k8s.io", "v1beta1", "mutatingadmissionpolicies"),
            ("resource.k8s.io", "v1alpha3", "devicetaintrules"),
            ("resource.k8s.io", "v1beta1", "resourceclaims"),
            ("resource.k8s.io", "v1beta2", "devicetaintrules"),
        ];
        for (wishes, want) in [
            ("", [false; 5]),
            ("api/all=true", [true; 5]),
            ("api/alpha=true", [true, false, true, false, false]),
            ("api/beta=true", [false, true, false, true, true]),
            ("resource.k8s.io/v1beta1=true", [false, false, false, true, false]),
        ] {
            assert_eq!(are_served(wishes, &types), Ok(want.to_vec()), "{wishes}");
        }
    }

    #[test]
    fn every_type_in_the_enablement_tables_exists() {
        let registry = Registry::new(&KUBERNETES);
        let gated = GATED.iter().map(|(named, _)| *named);
        let introduced = INTRODUCED.iter().map(|(named, _)| *named);
        for (stem, version, plural) in gated.chain(introduced).chain([NEEDED]) {
            let group = KUBERNETES.group(stem, true);
            assert!(registry.resource(&group, version, plural).is_some(), "{group}/{version} {plural}");
        }
    }

    #[test]
    fn types_newer_than_the_emulated_release_are_not_served() {
        let registry = Registry::new(&KUBERNETES);
        let types = [
            ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies"),
            ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"),
            ("admissionregistration.k8s.io", "v1beta1", "mutatingadmissionpolicies"),
            ("resource.k8s.io", "v1", "deviceclasses"),
            ("resource.k8s.io", "v1beta2", "deviceclasses"),
            ("resource.k8s.io", "v1beta2", "devicetaintrules"),
            ("resource.k8s.io", "v1beta1", "resourceclaims"),
        ];
        for (emulated, want) in [
            (36, [true; 7]),
            (35, [false, true, true, true, true, false, true]),
            (34, [false, true, true, true, true, false, true]),
            (33, [false, true, false, false, true, false, true]),
        ] {
            let releases = Releases { emulated, ..Releases::default() };
            let enablement = Enablement::parse("api/beta=true", &registry).unwrap();
            let left = enablement.released(&KUBERNETES, releases).enabled_types(&registry);
            for ((group, version, plural), want) in types.iter().zip(want) {
                let is_there = left.resource(group, version, plural).is_some();
                assert_eq!(is_there, want, "{emulated}: {group}/{version}/{plural}");
            }
        }
    }

    #[test]
    fn disabling_api_services_is_refused() {
        let refused = "API group/version apiregistration.k8s.io/v1 must be enabled";
        for (wishes, want) in [
            ("", Ok(())),
            ("apiregistration.k8s.io/v1=false", Err(refused)),
            ("apiregistration.k8s.io/v1/apiservices=false", Err(refused)),
            ("api/all=false,/v1=true", Err(refused)),
            ("api/all=false,apiregistration.k8s.io/v1=true", Ok(())),
        ] {
            let enablement = Enablement::parse(wishes, &Registry::new(&KUBERNETES)).unwrap();
            assert_eq!(enablement.check(&KUBERNETES), want.map_err(str::to_owned), "{wishes}");
        }
    }

    #[test]
    fn invalid_runtime_config_entries_are_refused_with_a_reason() {
        for (wishes, want) in [
            ("nope.example.com/v1=true", "unknown api groups nope.example.com/v1"),
            ("a=b=c", "runtime-config invalid key a"),
            ("apps=true", "runtime-config invalid key apps"),
            ("api/v1=true", "unknown api groups api/v1"),
            (
                "apps/v1/Deployments=true",
                "invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not \
                 \"Deployments\"",
            ),
            ("apps/v1/a/b=true", "runtime-config invalid key apps/v1/a/b"),
            ("api/all=x", "invalid value api/all=x"),
            ("api/all=false", "invalid key with only api/all=false"),
            ("apps/v9=true", "group version apps/v9 that has not been registered"),
            (
                "apps/v1=yes",
                "invalid value of apps/v1: yes, err: strconv.ParseBool: parsing \"yes\": invalid syntax",
            ),
        ] {
            assert_eq!(are_served(wishes, &[]), Err(want.to_owned()), "{wishes}");
        }
    }
}
