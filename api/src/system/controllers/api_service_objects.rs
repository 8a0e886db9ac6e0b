//! The stored APIServices and the objects that they refer to.

use super::collections::objects;
use crate::writes::bootstrap::ObjectTarget;
use engine::Snapshot;
use objects::store;
use types::schema::registry::Resource;
use values::json::Value;

pub(super) const GROUP: &str = "apiregistration";

pub(super) fn target(group: &'static str, resource: &'static str, name: &str) -> ObjectTarget {
    ObjectTarget { group, version: "v1", resource, namespace: String::new(), name: name.to_owned() }
}

/// Returns the objects of a collection, or of one namespace.
pub(super) fn all(snapshot: &Snapshot, resource: &Resource, namespace: &str) -> Vec<Value> {
    let objects = objects(snapshot, &store::collection(resource, namespace));
    objects.into_iter().map(|(_, object)| object).collect()
}
