//! Construction of the JSON trees of the discovery documents from the registry
//! (docs/api/discovery.md#discovery-documents, #aggregated-discovery).
//!
//! Members are in the reference server's declaration order. This module does not depend on HTTP.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::accept::{AGGREGATED_GROUP, AGGREGATED_KIND, AGGREGATED_VERSION};
use crate::schema::registry::{Group, GroupVersion, Resource, Storage, Subresource};
use crate::schema::table::Text;
use values::json::{Object, Value};
use values::naming::Naming;

/// Builds `/api`: the versions of the core group and the address of the server.
pub(super) fn api_versions(core: Option<&Group>, server_address: &str) -> Value {
    let versions = core
        .map_or(Vec::new(), |group| group.versions.iter().map(|version| (*version.version).into()).collect());
    let address = object([("clientCIDR", "0.0.0.0/0".into()), ("serverAddress", server_address.into())]);
    object([
        ("kind", "APIVersions".into()),
        ("versions", Value::Array(versions)),
        ("serverAddressByClientCIDRs", Value::Array(vec![address])),
    ])
}

/// Builds `/apis`: all named groups.
pub(super) fn group_list<'a>(groups: impl Iterator<Item = &'a Arc<Group>>) -> Value {
    let groups = groups.map(|group| Value::Object(group_members(group, Object::new()))).collect();
    object([("kind", "APIGroupList".into()), ("apiVersion", "v1".into()), ("groups", Value::Array(groups))])
}

/// Builds `/apis/<group>`: one group.
pub(super) fn group(group: &Group) -> Value {
    let mut head = Object::with_capacity(5);
    head.push("kind", "APIGroup".into());
    head.push("apiVersion", "v1".into());
    group_members(group, head).into()
}

fn group_members(group: &Group, mut to: Object) -> Object {
    let version = |version: &GroupVersion| {
        object([
            ("groupVersion", version.api_version.as_str().into()),
            ("version", (*version.version).into()),
        ])
    };
    to.push("name", group.name.as_str().into());
    to.push("versions", Value::Array(group.versions.iter().map(|each| version(each)).collect()));
    if let Some(preferred) = group.versions.first() {
        to.push("preferredVersion", version(preferred));
    }
    to
}

/// Builds `/api/v1` and `/apis/<group>/<version>`: the resources and subresources of one version, in path
/// order.
pub(super) fn resource_list(version: &GroupVersion) -> Value {
    let mut resources = Vec::with_capacity(version.resources.len() * 2);
    for resource in &version.resources {
        resources.push(api_resource(resource));
        for subresource in ordered_subresources(resource) {
            resources.push(api_subresource(resource, subresource, version));
        }
    }
    let mut list = Object::with_capacity(4);
    list.push("kind", "APIResourceList".into());
    // The list of the core group never had an `apiVersion`, and old clients rely on the absence of the member.
    if !version.group.is_empty() {
        list.push("apiVersion", "v1".into());
    }
    list.push("groupVersion", version.api_version.as_str().into());
    list.push("resources", Value::Array(resources));
    list.into()
}

/// Returns the subresources in the order of the reference server: by name, except that the status comes
/// before the scale in custom types.
fn ordered_subresources(resource: &Resource) -> impl Iterator<Item = &Subresource> {
    let is_custom = resource.is_custom();
    let (forward, backward) = (resource.subresources.iter(), resource.subresources.iter().rev());
    forward.filter(move |_| !is_custom).chain(backward.filter(move |_| is_custom))
}

fn api_resource(resource: &Resource) -> Value {
    let mut entry = Object::with_capacity(9);
    let table = &resource.table;
    entry.push("name", text(&table.plural));
    entry.push("singularName", text(&table.singular));
    entry.push("namespaced", resource.namespaced().into());
    entry.push("kind", text(&table.kind));
    entry.push("verbs", words(resource.discovery_verbs()));
    push_texts(&mut entry, "shortNames", &table.short_names);
    push_texts(&mut entry, "categories", &table.categories);
    if let Some(storage) = &resource.storage {
        let hash =
            storage_version_hash(storage, resource.stored_api_version(), table.behavior.hashed_version);
        entry.push("storageVersionHash", hash.into());
    }
    entry.into()
}

fn api_subresource(resource: &Resource, subresource: &Subresource, version: &GroupVersion) -> Value {
    let mut entry = Object::with_capacity(7);
    let table = &subresource.table;
    entry.push("name", format!("{}/{}", resource.table.plural, table.name).into());
    entry.push("singularName", "".into());
    entry.push("namespaced", resource.namespaced().into());
    if subresource.group != version.group || table.version != version.version {
        entry.push("group", subresource.group.as_str().into());
        entry.push("version", text(&table.version));
    }
    entry.push("kind", text(&table.kind));
    entry.push("verbs", words(table.verbs));
    entry.into()
}

/// Returns the base64 of the first 8 bytes of SHA-256 over `<group>/<version>/<Kind>` of the stored form; the
/// core group is empty. A `hashed_version` that is not empty replaces the stored version.
fn storage_version_hash(storage: &Storage, api_version: &str, hashed_version: &str) -> String {
    let mut hash = Sha256::new();
    if storage.group.is_empty() {
        hash.update("/");
    }
    match hashed_version {
        "" => hash.update(api_version.as_bytes()),
        version => hash.update(format!("{}/{version}", storage.group).as_bytes()),
    }
    hash.update(format!("/{}", storage.kind).as_bytes());
    STANDARD.encode(&hash.finalize()[..8])
}

/// Builds the aggregated form: all versions and resources of `groups`.
pub(super) fn aggregated<'a>(groups: impl Iterator<Item = &'a Arc<Group>>, naming: &Naming) -> Value {
    let items = groups.map(|group| aggregated_group(group)).collect();
    object([
        ("kind", AGGREGATED_KIND.into()),
        ("apiVersion", naming.api_version(AGGREGATED_GROUP, true, AGGREGATED_VERSION).into()),
        ("metadata", Object::new().into()),
        ("items", Value::Array(items)),
    ])
}

fn aggregated_group(group: &Group) -> Value {
    let mut metadata = Object::new();
    if !group.name.is_empty() {
        metadata.push("name", group.name.as_str().into());
    }
    let versions = group.versions.iter().map(|version| {
        let resources = version.resources.iter().map(|each| aggregated_resource(each, version)).collect();
        object([
            ("version", (*version.version).into()),
            ("resources", Value::Array(resources)),
            ("freshness", "Current".into()),
        ])
    });
    object([("metadata", metadata.into()), ("versions", Value::Array(versions.collect()))])
}

fn aggregated_resource(resource: &Resource, version: &GroupVersion) -> Value {
    let mut entry = Object::with_capacity(8);
    let table = &resource.table;
    let is_custom = resource.is_custom();
    entry.push("resource", text(&table.plural));
    let own = response_kind(&resource.group, &resource.version, &table.kind, is_custom, version);
    entry.push("responseKind", own);
    entry.push("scope", if resource.namespaced() { "Namespaced" } else { "Cluster" }.into());
    entry.push("singularResource", text(&table.singular));
    entry.push("verbs", words(resource.discovery_verbs()));
    push_texts(&mut entry, "shortNames", &table.short_names);
    push_texts(&mut entry, "categories", &table.categories);
    if !resource.subresources.is_empty() {
        let subresources = ordered_subresources(resource).map(|sub| {
            let kind = response_kind(&sub.group, &sub.table.version, &sub.table.kind, is_custom, version);
            object([
                ("subresource", sub.table.name.into()),
                ("responseKind", kind),
                ("verbs", words(sub.table.verbs)),
            ])
        });
        entry.push("subresources", Value::Array(subresources.collect()));
    }
    entry.into()
}

/// Returns the kind of a response. For a built-in type, group and version are empty if they equal the group and version
/// of the listing; for a custom type, group and version are always set.
fn response_kind(group: &str, name: &str, kind: &str, is_custom: bool, version: &GroupVersion) -> Value {
    let is_own = group == version.group && name == version.version;
    let (group, name) = if is_own && !is_custom { ("", "") } else { (group, name) };
    object([("group", group.into()), ("version", name.into()), ("kind", kind.into())])
}

/// Builds `/`: the sorted paths of the server without duplicates.
pub(super) fn root_paths(mut paths: Vec<String>) -> Value {
    paths.sort_unstable();
    paths.dedup();
    object([("paths", Value::Array(paths.into_iter().map(Value::from).collect()))])
}

fn object<const N: usize>(members: [(&'static str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

fn text(name: &Text) -> Value {
    Value::String(name.clone().into_owned())
}

fn words(names: &[&'static str]) -> Value {
    Value::Array(names.iter().map(|name| (*name).into()).collect())
}

fn texts(names: &[Text]) -> Value {
    Value::Array(names.iter().map(text).collect())
}

fn push_texts(entry: &mut Object, name: &'static str, names: &[Text]) {
    if !names.is_empty() {
        entry.push(name, texts(names));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::registry::Registry;
    use values::naming::KUBERNETES;

    #[test]
    fn storage_version_hashes_are_those_of_the_reference() {
        let registry = Registry::new(&KUBERNETES);
        for (group, plural, want) in [
            ("", "pods", "xPOwRZ+Yhw8="),
            ("apps", "deployments", "8aSe+NMegvE="),
            ("admissionregistration.k8s.io", "mutatingadmissionpolicies", "LYmCf+UMVdg="),
            ("apiextensions.k8s.io", "customresourcedefinitions", "jfWCUB31mvA="),
        ] {
            let resource = registry.resource(group, "v1", plural).unwrap();
            let hashed_version = resource.table.behavior.hashed_version;
            assert_eq!(
                storage_version_hash(resource.stored(), resource.stored_api_version(), hashed_version),
                want
            );
        }
    }
}
