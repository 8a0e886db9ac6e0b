//! The managed fields of a scale: the entries of its parent object that own the replica count
//! (docs/api/apply.md#managed-fields).
//!
//! ```text
//! parent  apps/v1         .spec.replicas and others ──to_scale──►  autoscaling/v1  .spec.replicas
//!         apps/v1         others, and .spec.replicas ◄─to_parent─  the new owner, through `scale`
//! ```
//!
//! Entries that are written through a scale have no time, as in the reference server.

use std::borrow::Cow;

use super::managed::{Entry, Managed, Manager};
use super::versions::Versions;
use values::field::{Element, FieldSet};
use values::json::{Object, Value};

/// Path of the replica count in a scale and in parents of built-in types.
const REPLICAS: [Element<'static>; 2] =
    [Element::Field(Cow::Borrowed("spec")), Element::Field(Cow::Borrowed("replicas"))];

/// Path of the replica count in a parent.
#[derive(Clone, Debug)]
pub struct Replicas<'t>(Vec<Element<'t>>);

impl<'t> Replicas<'t> {
    /// Returns the path of the replica count for built-in types.
    pub fn builtin() -> Self {
        Replicas(REPLICAS.to_vec())
    }

    /// Returns the path that consists of these steps.
    pub fn at(steps: impl Iterator<Item = &'t str>) -> Self {
        Replicas(steps.map(Element::field).collect())
    }
}

fn only<'t>(path: &[Element<'t>]) -> FieldSet<'t> {
    let mut set = FieldSet::new();
    set.insert(path);
    set
}

/// Returns the managed fields of the scale of `parent`.
pub fn to_scale(
    parent: &Object,
    versions: &Versions<'_>,
    scale_version: &str,
    replicas: &Replicas<'_>,
) -> Option<Value> {
    let mut managed = Managed::default();
    for entry in Managed::stored(parent).entries() {
        if versions.at(&entry.manager.api_version).is_some() && entry.set().has(&replicas.0) {
            let manager = Manager { api_version: scale_version.into(), ..entry.manager.clone() }.into_owned();
            managed.put(Entry::new(manager, entry.time.to_string().into(), only(&REPLICAS)));
        }
    }
    managed.into_value()
}

/// Returns the managed fields of `parent` after a write of its scale, given the managed fields of `scale`.
/// The scale was written in the version of the request.
pub fn to_parent(
    parent: &Object,
    versions: &Versions<'_>,
    scale: &Object,
    replicas: &Replicas<'_>,
) -> Option<Value> {
    let mut managed = Managed::stored(parent);
    let scaled = Managed::stored(scale);
    let mut left: Vec<&Entry<'_>> =
        scaled.entries().iter().filter(|entry| entry.set().has(&REPLICAS)).collect();
    let is_same = |a: &Manager<'_>, b: &Manager<'_>| {
        (a.operation, &a.name, &a.subresource) == (b.operation, &b.name, &b.subresource)
    };
    managed.entries_mut().retain_mut(|entry| {
        if versions.at(&entry.manager.api_version).is_none() {
            return false;
        }
        if !entry.set().has(&replicas.0) {
            return true;
        }
        if let Some(at) = left.iter().position(|other| is_same(&other.manager, &entry.manager)) {
            left.swap_remove(at);
            return true;
        }
        let others = entry.set().into_owned().difference(&only(&replicas.0));
        let is_empty = others.is_empty();
        entry.set_fields(others);
        !is_empty
    });
    for entry in left {
        let manager = Manager { api_version: versions.own.api_version.into(), ..entry.manager.clone() };
        managed.give(manager, "".into(), only(&replicas.0));
    }
    managed.into_value()
}
