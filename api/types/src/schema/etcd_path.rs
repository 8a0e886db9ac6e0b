//! Where kube-apiserver keeps the objects of a type in etcd, below its prefix (docs/api/etcd.md#keys).
//!
//! ```text
//! key of the engine                     path
//! /core/pods/                           pods
//! /core/services/                       services/specs
//! /apiregistration/apiservices/         apiregistration.k8s.io/apiservices
//! /custom:<group>/<plural>/             <group>/<plural>
//! ```
//!
//! Used by the replica's map of keys (`state/replica/keys.rs`), and for the keys that errors show (`objects/store.rs`).

use super::registry::Resource;

/// Paths that are not the plural: by stem of the group and plural.
const PATHS: &[(&str, &str, &str)] = &[
    ("core", "nodes", "minions"),
    ("core", "replicationcontrollers", "controllers"),
    ("core", "services", "services/specs"),
    ("core", "endpoints", "services/endpoints"),
    ("networking", "ingresses", "ingress"),
];

/// Groups whose path has their name in it; the others' plurals are unique.
const WITH_GROUP: &[&str] = &["apiextensions", "apiregistration"];

/// The path of the objects of `resource`, without slashes at its ends.
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
