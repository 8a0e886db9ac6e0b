//! Location of a type's objects in the etcd of kube-apiserver, below the key prefix (docs/api/etcd.md#keys).
//!
//! ```text
//! key of the engine                     path
//! /core/pods/                           pods
//! /core/services/                       services/specs
//! /apiregistration/apiservices/         apiregistration.k8s.io/apiservices
//! /custom:<group>/<plural>/             <group>/<plural>
//! ```
//!
//! The replica's map of keys (`state/replica/keys.rs`) and errors that print keys (`objects/store.rs`)
//! use these paths.

use super::registry::Resource;

/// Paths that differ from the plural, each with the stem of the group and the plural.
const PATHS: &[(&str, &str, &str)] = &[
    ("core", "nodes", "minions"),
    ("core", "replicationcontrollers", "controllers"),
    ("core", "services", "services/specs"),
    ("core", "endpoints", "services/endpoints"),
    ("networking", "ingresses", "ingress"),
];

/// Groups whose paths contain the group name. The plurals of other groups are unique.
const WITH_GROUP: &[&str] = &["apiextensions", "apiregistration"];

/// Returns the path of the objects of `resource`, without slashes at both ends.
pub fn etcd_path(resource: &Resource) -> String {
    let start = resource.stored().key_prefix.trim_matches('/');
    if let Some(custom) = start.strip_prefix("custom:") {
        return custom.to_owned();
    }
    let (stem, plural) = start.split_once('/').unwrap_or(("", start));
    let known = PATHS.iter().find(|(group, name, _)| (*group, *name) == (stem, plural));
    match known {
        Some((_, _, path)) => (*path).to_owned(),
        None if WITH_GROUP.contains(&stem) => format!("{}/{plural}", resource.group),
        None => plural.to_owned(),
    }
}
