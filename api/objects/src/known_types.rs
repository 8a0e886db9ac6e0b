//! The types that an endpoint reads before it refuses the object (docs/api/writes.md#request-body).
//!
//! The reference server has three registries of types: one registry for custom resource definitions, one for
//! registrations of extension servers (`APIService`), and one for all other groups. If the type of a body is
//! in the registry of the endpoint, the body is decoded, and then refused because the type cannot be
//! converted. Otherwise the type is not registered. The registries also contain versions that are not
//! served.

use std::sync::Arc;

use types::schema::builtin;
use types::schema::conform::conform;
use types::schema::registry::{Registry, Resource};
use types::schema::table::Message;
use values::json::Value;
use values::naming::Naming;

/// The name of a type: the kind and the version of its objects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TypeName<'n> {
    /// Kind of the objects.
    pub kind: &'n str,
    /// Group and version, as in the member `apiVersion`.
    pub api_version: &'n str,
}

impl<'n> TypeName<'n> {
    /// Creates a name from its parts.
    pub fn new(kind: &'n str, api_version: &'n str) -> Self {
        TypeName { kind, api_version }
    }
}

/// A registry of types.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Scheme {
    Definitions,
    Registrations,
    Others,
}

impl Scheme {
    fn for_api_version(api_version: &str) -> Self {
        match group_stem(api_version) {
            "apiextensions" => Scheme::Definitions,
            "apiregistration" => Scheme::Registrations,
            _ => Scheme::Others,
        }
    }

    /// Returns the source location at which the reference server creates the registry. Error messages contain
    /// this location.
    fn name(self) -> &'static str {
        match self {
            Scheme::Definitions => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:56",
            Scheme::Registrations => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:32",
            Scheme::Others => "pkg/api/legacyscheme/scheme.go:30",
        }
    }
}

/// Returns the first label of a group; empty for the core group.
fn group_stem(api_version: &str) -> &str {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    group.split('.').next().unwrap_or_default()
}

/// Returns the package of the reference server that contains the internal type of all versions of a kind.
fn package(api_version: &str) -> &str {
    match group_stem(api_version) {
        "" | "events" => "core",
        stem => stem,
    }
}

/// Returns whether an endpoint for objects of version `own_version` reads objects of this type.
pub fn is_known(
    registry: &Registry,
    TypeName { kind, api_version }: TypeName<'_>,
    own_version: &str,
) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_resource = |kind| {
        registry.by_kind(group, version, kind).is_some_and(|resource| !resource.table.message.custom)
            || is_listed(registry.naming(), UNSERVED, TypeName::new(kind, api_version))
    };
    let is_in_scheme = Scheme::for_api_version(api_version) == Scheme::for_api_version(own_version)
        && (is_resource(kind)
            || kind.strip_suffix("List").is_some_and(is_resource)
            || is_listed(registry.naming(), WITHOUT_RESOURCE, TypeName::new(kind, api_version)));
    let has_options = api_version == own_version
        || api_version == "v1" && Scheme::for_api_version(own_version) != Scheme::Registrations;
    let is_common = has_options && is_meta(IN_ALL_VERSIONS, kind);
    is_in_scheme || is_common || is_meta(UNVERSIONED, kind)
}

/// Returns two versions of a kind: the served version whose schema fits objects of `api_version`, and the
/// version `own_version`. Returns `None` if both versions have the same schema. If the version is not served
/// and belongs to another group, the result contains a served version of that group.
pub fn other_form<'r>(
    registry: &'r Registry,
    TypeName { kind, api_version }: TypeName<'_>,
    own_version: &str,
) -> Option<(&'r Arc<Resource>, &'r Arc<Resource>)> {
    let split = |api_version: &'_ str| match api_version.split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), api_version.to_owned()),
    };
    let ((group, version), (own_group, own)) = (split(api_version), split(own_version));
    let own = registry.by_kind(&own_group, &own, kind)?;
    let served = registry.by_kind(&group, &version, kind).or_else(|| {
        let versions = &registry.group(&group).filter(|_| group != own_group)?.versions;
        versions.iter().find_map(|version| registry.by_kind(&group, &version.version, kind))
    })?;
    (!std::ptr::eq(&*served.table.message, &*own.table.message)).then_some((served, own))
}

/// Types in versions that are not served. Each line contains one version.
const UNSERVED: &str = include_str!("../../bootstrap/unserved_types.txt");

/// Types of objects that belong to no resource. Each line contains one version.
const WITHOUT_RESOURCE: &str = include_str!("../../bootstrap/types_without_resource.txt");

/// Kinds that exist in every version of every group.
const IN_ALL_VERSIONS: &[&str] = &[
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "UpdateOptions",
    "WatchEvent",
];

/// Kinds that exist in all registries, under any version.
const UNVERSIONED: &[&str] = &["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

/// Returns whether `kind` is one of these kinds of the meta group.
fn is_meta(kinds: &[&str], kind: &str) -> bool {
    kinds.contains(&kind)
}

/// Returns whether `types` lists a type. A line of `types` contains a version and then kinds.
fn is_listed(naming: &Naming, types: &str, TypeName { kind, api_version }: TypeName<'_>) -> bool {
    naming.fill(types).lines().any(|line| {
        let mut words = line.split(' ');
        words.next() == Some(api_version) && words.any(|known| known == kind)
    })
}

/// Returns the message for an object of a known type that cannot be converted to the expected type.
pub fn unconvertible(TypeName { kind, api_version }: TypeName<'_>, own: TypeName<'_>) -> String {
    // The types of the meta group are the same in all versions.
    let version = if is_meta(IN_ALL_VERSIONS, kind) || is_meta(UNVERSIONED, kind) {
        "v1"
    } else {
        api_version.rsplit('/').next().unwrap_or_default()
    };
    format!(
        "converting ({version}.{kind}) to ({}.{}): unknown conversion",
        package(own.api_version),
        own.kind
    )
}

/// Returns the reason why an object of a known type is not accepted as an object of another type. Either the
/// object does not fit the type that it names, or there is no conversion from that type.
pub fn unreadable_as(registry: &Registry, object: Value, given: TypeName<'_>, own: TypeName<'_>) -> String {
    let misfit = message_of(registry, given).and_then(|message| conform(message, object).err());
    misfit.map_or_else(|| unconvertible(given, own), |error| error.to_string())
}

/// Returns the schema of a known type. Returns `None` for a type without a resource, except for two types of
/// the meta group.
fn message_of<'r>(
    registry: &'r Registry,
    TypeName { kind, api_version }: TypeName<'_>,
) -> Option<&'r Message> {
    match kind {
        "Status" => Some(builtin::STATUS),
        "DeleteOptions" => Some(builtin::DELETE_OPTIONS),
        _ => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            registry.by_kind(group, version, kind).map(|resource| &*resource.table.message)
        }
    }
}

/// Returns the message for an object of an unknown type where `own_version` is expected.
pub fn not_registered(TypeName { kind, api_version }: TypeName<'_>, own_version: &str) -> String {
    let scheme = Scheme::for_api_version(own_version).name();
    format!("no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"{scheme}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;

    #[test]
    fn is_known_accepts_only_the_types_of_the_registry_of_the_endpoint() {
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
            // The registries of definitions and of registrations have no types in common with each other or
            // with the third registry.
            ("CustomResourceDefinition", "apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1", true),
            ("CustomResourceDefinition", "apiextensions.k8s.io/v1", "v1", false),
            ("CustomResourceDefinition", "apiextensions.k8s.io/v1", "apiregistration.k8s.io/v1", false),
            ("Pod", "v1", "apiextensions.k8s.io/v1", false),
            ("List", "v1", "apiregistration.k8s.io/v1", false),
            ("Status", "v1", "apiregistration.k8s.io/v1", true),
            ("Status", "apps/v1", "apps/v1", true),
            ("Status", "apps/v9", "v1", true),
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
            let got = is_known(&registry, TypeName::new(kind, api_version), own_version);
            assert_eq!(got, want, "{kind} {api_version} for {own_version}");
        }
    }

    #[test]
    fn other_form_finds_the_version_with_another_form_of_the_kind() {
        let registry = Registry::new(&KUBERNETES);
        for (kind, api_version, own_version, want) in [
            ("HorizontalPodAutoscaler", "autoscaling/v1", "autoscaling/v2", Some("autoscaling/v1")),
            ("Event", "events.k8s.io/v1", "v1", Some("events.k8s.io/v1")),
            ("Event", "events.k8s.io/v1beta1", "v1", Some("events.k8s.io/v1")),
            ("Event", "v1", "events.k8s.io/v1", Some("v1")),
            ("Deployment", "apps/v1beta1", "apps/v1", None),
            ("Deployment", "extensions/v1beta1", "apps/v1", None),
            ("Pod", "v1", "v1", None),
        ] {
            let got = other_form(&registry, TypeName::new(kind, api_version), own_version);
            assert_eq!(
                got.map(|(other, _)| &*other.api_version),
                want,
                "{kind} {api_version} for {own_version}"
            );
        }
    }

    #[test]
    fn an_object_of_a_wrong_type_is_decoded_as_that_type_before_it_is_refused() {
        let registry = Registry::new(&KUBERNETES);
        let own = TypeName::new("Deployment", "apps/v1");
        for (given, object, want) in [
            (
                TypeName::new("Status", "apps/v1"),
                r#"{"kind":"Status","status":{"replicas":1}}"#,
                "json: cannot unmarshal object into Go struct field Status.status of type string",
            ),
            (
                TypeName::new("Status", "apps/v1"),
                r#"{"kind":"Status","spec":{"replicas":1}}"#,
                "converting (v1.Status) to (apps.Deployment): unknown conversion",
            ),
            (
                TypeName::new("ReplicaSet", "apps/v1"),
                r#"{"spec":{"replicas":"1"}}"#,
                "json: cannot unmarshal string into Go struct field ReplicaSetSpec.spec.replicas of type int32",
            ),
            (
                TypeName::new("ReplicaSetList", "apps/v1"),
                r#"{"spec":{"replicas":"1"}}"#,
                "converting (v1.ReplicaSetList) to (apps.Deployment): unknown conversion",
            ),
        ] {
            let object = values::json::parse(object.as_bytes()).unwrap();
            assert_eq!(unreadable_as(&registry, object, given, own), want, "{given:?}");
        }
    }

    #[test]
    fn conversion_errors_name_types_by_package_and_registries_by_source_file() {
        let own = TypeName::new("ConfigMap", "v1");
        assert_eq!(
            unconvertible(TypeName::new("Scale", "autoscaling/v1"), own),
            "converting (v1.Scale) to (core.ConfigMap): unknown conversion"
        );
        for kind in ["DeleteOptions", "Status"] {
            assert_eq!(
                unconvertible(TypeName::new(kind, "autoscaling/v2"), own),
                format!("converting (v1.{kind}) to (core.ConfigMap): unknown conversion")
            );
        }
        assert_eq!(
            not_registered(TypeName::new("Foo", "a/v1"), own.api_version),
            "no kind \"Foo\" is registered for version \"a/v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        );
        assert!(not_registered(own, "apiextensions.k8s.io/v1").contains("apiextensions-apiserver"));
    }
}
