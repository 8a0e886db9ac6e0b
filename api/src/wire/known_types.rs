//! The types that an endpoint reads before it refuses them (docs/api/writes.md#request-body).
//!
//! The reference server has three registries of types: one for definitions of custom types, one for registrations of
//! other servers, and one for all other groups. A body of a type in the endpoint's registry is read, and then found to be
//! unconvertible; any other type is not registered. It knows types in versions that are not served, too.

use crate::types::schema::registry::Registry;
use crate::values::naming::Naming;

/// Kind and version of an object.
pub type Named<'n> = (&'n str, &'n str);

/// A registry of types.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Scheme {
    Definitions,
    Registrations,
    Others,
}

impl Scheme {
    fn of(api_version: &str) -> Self {
        match group_stem(api_version) {
            "apiextensions" => Scheme::Definitions,
            "apiregistration" => Scheme::Registrations,
            _ => Scheme::Others,
        }
    }

    /// The place in the reference server that makes it, by which errors name it.
    fn name(self) -> &'static str {
        match self {
            Scheme::Definitions => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:56",
            Scheme::Registrations => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:32",
            Scheme::Others => "pkg/api/legacyscheme/scheme.go:30",
        }
    }
}

/// The first label of a group; empty for the core group.
fn group_stem(api_version: &str) -> &str {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    group.split('.').next().unwrap_or_default()
}

/// The package of the reference server's own type behind all versions of a kind.
fn package(api_version: &str) -> &str {
    match group_stem(api_version) {
        "" | "events" => "core",
        stem => stem,
    }
}

/// Whether an endpoint for objects of version `own_version` reads objects of a type.
pub fn is_known(registry: &Registry, (kind, api_version): Named<'_>, own_version: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_resource = |kind| {
        registry.by_kind(group, version, kind).is_some_and(|resource| !resource.table.message.custom)
            || is_listed(registry.naming(), UNSERVED, (kind, api_version))
    };
    let is_in_scheme = Scheme::of(api_version) == Scheme::of(own_version)
        && (is_resource(kind)
            || kind.strip_suffix("List").is_some_and(is_resource)
            || is_listed(registry.naming(), WITHOUT_RESOURCE, (kind, api_version)));
    let has_options =
        api_version == own_version || api_version == "v1" && Scheme::of(own_version) != Scheme::Registrations;
    let is_common = has_options && is_listed(registry.naming(), IN_ALL_VERSIONS, (kind, "any"));
    let is_unversioned = is_listed(registry.naming(), UNVERSIONED, (kind, api_version));
    is_in_scheme || is_common || is_unversioned
}

/// Types in versions that are not served.
const UNSERVED: &str = include_str!("../../bootstrap/unserved_types.txt");

/// Types of objects that no resource has.
const WITHOUT_RESOURCE: &str = include_str!("../../bootstrap/types_without_resource.txt");

/// Kinds that every version of every group has.
const IN_ALL_VERSIONS: &str =
    "any CreateOptions DeleteOptions GetOptions ListOptions PatchOptions UpdateOptions WatchEvent";

/// Kinds that all registries have.
const UNVERSIONED: &str = "v1 APIGroup APIGroupList APIResourceList APIVersions Status";

/// Whether a line of `types`, a version followed by kinds, has a type.
fn is_listed(naming: &Naming, types: &str, (kind, api_version): Named<'_>) -> bool {
    naming.fill(types).lines().any(|line| {
        let mut words = line.split(' ');
        words.next() == Some(api_version) && words.any(|known| known == kind)
    })
}

/// Why an object of a known type cannot be one of another.
pub fn unconvertible((kind, api_version): Named<'_>, (own_kind, own_version): Named<'_>) -> String {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    format!("converting ({version}.{kind}) to ({}.{own_kind}): unknown conversion", package(own_version))
}

/// Why an object of an unknown type cannot be read where `own_version` is expected.
pub fn not_registered((kind, api_version): Named<'_>, own_version: &str) -> String {
    let scheme = Scheme::of(own_version).name();
    format!("no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"{scheme}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::naming::KUBERNETES;

    #[test]
    fn an_endpoint_knows_the_types_of_its_registry() {
        let registry = Registry::new(&KUBERNETES);
        for (kind, api_version, own_version, want) in [
            ("Pod", "v1", "apps/v1", true),
            ("PodList", "v1", "v1", true),
            ("PodListList", "v1", "v1", false),
            ("List", "v1", "v1", true),
            ("List", "apps/v1", "apps/v1", false),
            ("Scale", "autoscaling/v1", "apps/v1", true),
            ("Scale", "apps/v1", "apps/v1", false),
            ("Foo", "v1", "v1", false),
            // What the groups of definitions and registrations know is known nowhere else, nor the other way round.
            ("CustomResourceDefinition", "apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1", true),
            ("CustomResourceDefinition", "apiextensions.k8s.io/v1", "v1", false),
            ("CustomResourceDefinition", "apiextensions.k8s.io/v1", "apiregistration.k8s.io/v1", false),
            ("Pod", "v1", "apiextensions.k8s.io/v1", false),
            ("List", "v1", "apiregistration.k8s.io/v1", false),
            ("Status", "v1", "apiregistration.k8s.io/v1", true),
            ("Status", "apps/v1", "apps/v1", false),
            ("DeleteOptions", "v1", "apps/v1", true),
            ("DeleteOptions", "apps/v1", "apps/v1", true),
            ("DeleteOptions", "apps/v9", "apps/v1", false),
            // Versions that are not served.
            ("Deployment", "apps/v1beta1", "apps/v1", true),
            ("DeploymentList", "apps/v1beta1", "v1", true),
            ("Deployment", "extensions/v1beta1", "v1", true),
            ("CertificateSigningRequest", "certificates.k8s.io/v1beta1", "v1", true),
            ("APIService", "apiregistration.k8s.io/v1beta1", "v1", false),
            ("Deployment", "apps/v1beta3", "apps/v1", false),
            ("ConfigMap", "apps/v1beta1", "v1", false),
            ("apps/v1beta1", "apps/v1beta1", "v1", false),
            ("CertificateSigningRequest", "certificates.example.com/v1beta1", "v1", false),
        ] {
            let got = is_known(&registry, (kind, api_version), own_version);
            assert_eq!(got, want, "{kind} {api_version} for {own_version}");
        }
    }

    #[test]
    fn errors_name_types_by_package_and_registries_by_place() {
        let own = ("ConfigMap", "v1");
        assert_eq!(
            unconvertible(("Scale", "autoscaling/v1"), own),
            "converting (v1.Scale) to (core.ConfigMap): unknown conversion"
        );
        assert_eq!(
            not_registered(("Foo", "a/v1"), own.1),
            "no kind \"Foo\" is registered for version \"a/v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        );
        assert!(not_registered(own, "apiextensions.k8s.io/v1").contains("apiextensions-apiserver"));
    }
}
