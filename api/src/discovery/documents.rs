//! Builds the JSON trees of the discovery documents from the catalog (docs/api/discovery.md#discovery-documents,
//! #aggregated-discovery).
//!
//! Members are in the reference server's declaration order. This module does not know HTTP.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::accept::{AGGREGATED_GROUP, AGGREGATED_KIND, AGGREGATED_VERSION};
use super::catalog::{Definition, Group, Gvk, Resource, Subresource, Version};
use crate::json::{Object, Value};
use crate::naming::Naming;
use crate::schema::table::Text;

/// `/api`: the versions of the core group and where to reach the server.
pub(super) fn api_versions(core: Option<&Group>, server_address: &str) -> Value {
    let versions = core.map_or(Vec::new(), |group| {
        group.versions.iter().map(|version| version.version.as_str().into()).collect()
    });
    let address = object([("clientCIDR", "0.0.0.0/0".into()), ("serverAddress", server_address.into())]);
    object([
        ("kind", "APIVersions".into()),
        ("versions", Value::Array(versions)),
        ("serverAddressByClientCIDRs", Value::Array(vec![address])),
    ])
}

/// `/apis`: every named group.
pub(super) fn group_list<'a>(groups: impl Iterator<Item = &'a Group>) -> Value {
    let groups = groups.map(|group| Value::Object(group_members(group, Object::new()))).collect();
    object([("kind", "APIGroupList".into()), ("apiVersion", "v1".into()), ("groups", Value::Array(groups))])
}

/// `/apis/<group>`: one group.
pub(super) fn group(group: &Group) -> Value {
    let mut head = Object::with_capacity(5);
    head.push("kind", "APIGroup".into());
    head.push("apiVersion", "v1".into());
    group_members(group, head).into()
}

fn group_members(group: &Group, mut to: Object) -> Object {
    let version = |version: &Version| {
        object([("groupVersion", version.api_version().into()), ("version", version.version.as_str().into())])
    };
    to.push("name", group.name.as_str().into());
    to.push("versions", Value::Array(group.versions.iter().map(|each| version(each)).collect()));
    if let Some(preferred) = group.versions.first() {
        to.push("preferredVersion", version(preferred));
    }
    to
}

/// `/api/v1`, `/apis/<group>/<version>`: the resources and subresources of one version, in path order.
pub(super) fn resource_list(version: &Version) -> Value {
    let mut resources = Vec::with_capacity(version.resources.len() * 2);
    for resource in &version.resources {
        resources.push(api_resource(resource, version));
        for subresource in &resource.subresources {
            resources.push(api_subresource(resource, subresource, version));
        }
    }
    let mut list = Object::with_capacity(4);
    list.push("kind", "APIResourceList".into());
    // The core group has always been answered without, and clients of old have come to rely on it.
    if !version.group.is_empty() {
        list.push("apiVersion", "v1".into());
    }
    list.push("groupVersion", version.api_version().into());
    list.push("resources", Value::Array(resources));
    list.into()
}

fn api_resource(resource: &Resource, version: &Version) -> Value {
    let mut entry = Object::with_capacity(9);
    entry.push("name", text(&resource.plural));
    entry.push("singularName", text(&resource.singular));
    entry.push("namespaced", resource.namespaced.into());
    push_foreign(&mut entry, &resource.gvk, version);
    entry.push("kind", text(&resource.gvk.kind));
    entry.push("verbs", texts(&resource.verbs));
    push_texts(&mut entry, "shortNames", &resource.short_names);
    push_texts(&mut entry, "categories", &resource.categories);
    if let Some(stored) = &resource.storage {
        entry.push("storageVersionHash", storage_version_hash(stored).into());
    }
    entry.into()
}

fn api_subresource(resource: &Resource, subresource: &Subresource, version: &Version) -> Value {
    let mut entry = Object::with_capacity(7);
    entry.push("name", format!("{}/{}", resource.plural, subresource.name).into());
    entry.push("singularName", "".into());
    entry.push("namespaced", resource.namespaced.into());
    push_foreign(&mut entry, &subresource.gvk, version);
    entry.push("kind", text(&subresource.gvk.kind));
    entry.push("verbs", texts(&subresource.verbs));
    entry.into()
}

/// Group and version of a body that is not of the list's own.
fn push_foreign(entry: &mut Object, gvk: &Gvk, version: &Version) {
    if gvk.group != version.group || gvk.version != version.version {
        entry.push("group", text(&gvk.group));
        entry.push("version", text(&gvk.version));
    }
}

/// Base64 of the first 8 bytes of SHA-256 over `<group>/<version>/<Kind>` of the stored form.
fn storage_version_hash(stored: &Gvk) -> String {
    let mut hash = Sha256::new();
    for part in [&stored.group, "/", &stored.version, "/", &stored.kind] {
        hash.update(part.as_bytes());
    }
    STANDARD.encode(&hash.finalize()[..8])
}

/// The aggregated form: every version and resource of `groups` at once.
pub(super) fn aggregated<'a>(groups: impl Iterator<Item = &'a Group>, naming: &Naming) -> Value {
    let items = groups.map(aggregated_group).collect();
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
            ("version", version.version.as_str().into()),
            ("resources", Value::Array(resources)),
            ("freshness", if version.stale { "Stale" } else { "Current" }.into()),
        ])
    });
    object([("metadata", metadata.into()), ("versions", Value::Array(versions.collect()))])
}

fn aggregated_resource(resource: &Resource, version: &Version) -> Value {
    let mut entry = Object::with_capacity(8);
    entry.push("resource", text(&resource.plural));
    entry.push("responseKind", response_kind(&resource.gvk, &resource.definition, version));
    entry.push("scope", if resource.namespaced { "Namespaced" } else { "Cluster" }.into());
    entry.push("singularResource", text(&resource.singular));
    entry.push("verbs", texts(&resource.verbs));
    push_texts(&mut entry, "shortNames", &resource.short_names);
    push_texts(&mut entry, "categories", &resource.categories);
    if !resource.subresources.is_empty() {
        let subresources = resource.subresources.iter().map(|sub| {
            object([
                ("subresource", text(&sub.name)),
                ("responseKind", response_kind(&sub.gvk, &resource.definition, version)),
                ("verbs", texts(&sub.verbs)),
            ])
        });
        entry.push("subresources", Value::Array(subresources.collect()));
    }
    entry.into()
}

/// Built-in types leave group and version empty where they equal those of the listing; custom types name them.
fn response_kind(gvk: &Gvk, parent: &Definition, version: &Version) -> Value {
    let own = gvk.group == version.group && gvk.version == version.version;
    let implied = own && !parent.is_custom();
    let or_empty = |name: &Text| if implied { "".into() } else { text(name) };
    object([("group", or_empty(&gvk.group)), ("version", or_empty(&gvk.version)), ("kind", text(&gvk.kind))])
}

/// `/`: the sorted paths of the server, each once.
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

    #[test]
    fn storage_version_hashes_are_those_of_the_reference() {
        for (group, version, kind, want) in
            [("", "v1", "Pod", "xPOwRZ+Yhw8="), ("apps", "v1", "Deployment", "8aSe+NMegvE=")]
        {
            let stored = Gvk { group: group.into(), version: version.into(), kind: kind.into() };
            assert_eq!(storage_version_hash(&stored), want);
        }
    }
}
