//! Groups of extension servers in the discovery documents, merged with the groups of this server
//! (docs/api/extension-servers.md#groups-of-extension-servers).
//!
//! The documents of this server are built first; the groups of other servers are inserted by priority. If
//! another server serves a version instead of this server, the version is listed once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::documents;
use super::swagger::Swagger;
use crate::schema::registry::Group;
use crate::schema::versions::compare_versions;
use values::json::{Object, Value};

/// A version of a group for which an extension server is registered.
#[derive(Clone, Debug, PartialEq)]
pub struct Foreign {
    /// Name of the group.
    pub group: String,
    /// Name of the version.
    pub version: String,
    /// Priority of the group; higher values come first.
    pub group_priority: u32,
    /// Priority of the version; higher values come first.
    pub version_priority: u32,
    /// Whether the APIService names no server and this server does not serve the version either. Plain
    /// documents list such a version; the aggregated document does not.
    pub is_unserved: bool,
    /// Resources in the aggregated form; `None` while the extension server does not answer.
    pub resources: Option<Arc<[Value]>>,
    /// Path and hash of the version's OpenAPI document, if the extension server has one.
    pub openapi: Option<String>,
    /// Content of the OpenAPI v2 document about this version.
    pub swagger: Option<Arc<Swagger>>,
}

/// Returns the versions of each foreign group, in order, with the priority of the group: the highest group priority
/// among the versions.
fn groups(foreign: &[Foreign]) -> BTreeMap<&str, (u32, Vec<&Foreign>)> {
    let mut groups: BTreeMap<&str, (u32, Vec<&Foreign>)> = BTreeMap::new();
    for one in foreign {
        let (priority, versions) = groups.entry(&one.group).or_default();
        *priority = (*priority).max(one.group_priority);
        versions.push(one);
    }
    for (_, versions) in groups.values_mut() {
        versions.sort_by(|a, b| {
            let by_priority = b.version_priority.cmp(&a.version_priority);
            by_priority.then_with(|| compare_versions(&a.version, &b.version))
        });
    }
    groups
}

/// Inserts the entries of foreign groups among the entries of `own`, in discovery order. `add` adds versions
/// to an entry of `own`, and `make` creates the entry of a foreign group.
fn merged<'g>(
    entries: Vec<Value>,
    own: impl Iterator<Item = &'g Arc<Group>>,
    foreign: &[Foreign],
    add: impl Fn(&mut Value, &[&Foreign]),
    make: impl Fn(&str, &[&Foreign]) -> Value,
) -> Vec<Value> {
    let mut foreign = groups(foreign);
    let mut all: Vec<(u32, &str, Value)> = Vec::with_capacity(entries.len() + foreign.len());
    for (group, mut entry) in own.zip(entries) {
        if let Some((_, versions)) = foreign.remove(&*group.name) {
            add(&mut entry, &versions);
        }
        all.push((group.priority, &group.name, entry));
    }
    all.extend(foreign.iter().map(|(name, (priority, versions))| (*priority, *name, make(name, versions))));
    all.sort_by(|(a, name, _), (b, other, _)| b.cmp(a).then_with(|| name.cmp(other)));
    all.into_iter().map(|(_, _, entry)| entry).collect()
}

/// Builds `/apis` with the foreign groups.
pub(super) fn group_list<'g>(
    mut list: Value,
    own: impl Iterator<Item = &'g Arc<Group>>,
    foreign: &[Foreign],
) -> Value {
    if let Some(entries) = list_at(&mut list, "groups").filter(|_| !foreign.is_empty()) {
        let add = |entry: &mut Value, versions: &[&Foreign]| add_versions(entry, versions);
        let make = |name: &str, versions: &[&Foreign]| entry(name, versions, Object::new());
        *entries = merged(std::mem::take(entries), own, foreign, add, make);
    }
    list
}

/// Builds `/apis/<group>` from the versions of this server and of extension servers; `None` if the group does
/// not exist.
pub(super) fn group(own: Option<&Group>, name: &str, foreign: &[Foreign]) -> Option<Value> {
    let mut groups = groups(foreign);
    let versions = groups.remove(name).map(|(_, versions)| versions);
    match (own, versions) {
        (Some(own), versions) => {
            let mut group = documents::group(own);
            add_versions(&mut group, &versions.unwrap_or_default());
            Some(group)
        }
        (None, Some(versions)) => {
            let mut head = Object::with_capacity(5);
            head.push("kind", "APIGroup".into());
            head.push("apiVersion", "v1".into());
            Some(entry(name, &versions, head))
        }
        (None, None) => None,
    }
}

/// Adds the foreign groups to the aggregated form.
pub(super) fn aggregated<'g>(
    mut document: Value,
    own: impl Iterator<Item = &'g Arc<Group>>,
    foreign: &[Foreign],
) -> Value {
    if let Some(entries) = list_at(&mut document, "items").filter(|_| !foreign.is_empty()) {
        let versions_of =
            |versions: &[&Foreign]| versions.iter().map(|one| aggregated_version(one)).collect();
        let add = |entry: &mut Value, versions: &[&Foreign]| {
            if let Some(list) = list_at(entry, "versions") {
                list.retain(|own| versions.iter().all(|one| one.version != own.str_at(&["version"])));
                let mut more: Vec<Value> = versions_of(versions);
                list.append(&mut more);
            }
        };
        let make = |name: &str, versions: &[&Foreign]| {
            object([
                ("metadata", object([("name", name.into())])),
                ("versions", Value::Array(versions_of(versions))),
            ])
        };
        *entries = merged(std::mem::take(entries), own, foreign, add, make);
    }
    document
}

pub(super) fn list_at<'v>(value: &'v mut Value, member: &str) -> Option<&'v mut Vec<Value>> {
    match value.as_object_mut()?.get_mut(member)? {
        Value::Array(list) => Some(list),
        _ => None,
    }
}

pub(super) fn object<const N: usize>(members: [(&'static str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

fn group_version(one: &Foreign) -> Value {
    let Foreign { group, version, .. } = one;
    object([("groupVersion", format!("{group}/{version}").into()), ("version", version.as_str().into())])
}

fn add_versions(entry: &mut Value, versions: &[&Foreign]) {
    if let Some(list) = list_at(entry, "versions") {
        let more =
            versions.iter().filter(|one| list.iter().all(|own| one.version != own.str_at(&["version"])));
        let mut more: Vec<Value> = more.map(|one| group_version(one)).collect();
        list.append(&mut more);
    }
}

fn entry(name: &str, versions: &[&Foreign], mut to: Object) -> Value {
    to.push("name", name.into());
    to.push("versions", Value::Array(versions.iter().map(|one| group_version(one)).collect()));
    if let Some(preferred) = versions.first() {
        to.push("preferredVersion", group_version(preferred));
    }
    to.into()
}

/// Builds one version with its resources; the version is marked as stale while its server does not answer.
fn aggregated_version(one: &Foreign) -> Value {
    let mut version = Object::with_capacity(3);
    version.push("version", one.version.as_str().into());
    if let Some(resources) = one.resources.as_deref().filter(|resources| !resources.is_empty()) {
        version.push("resources", Value::Array(resources.to_vec()));
    }
    version.push("freshness", if one.resources.is_some() { "Current" } else { "Stale" }.into());
    version.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::{parse, write};

    fn foreign(group: &str, version: &str, group_priority: u32, version_priority: u32) -> Foreign {
        let (group, version) = (group.to_owned(), version.to_owned());
        Foreign {
            group,
            version,
            group_priority,
            version_priority,
            is_unserved: false,
            resources: None,
            openapi: None,
            swagger: None,
        }
    }

    fn text(value: &Value) -> String {
        let mut out = Vec::new();
        write(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn discovery_sorts_groups_by_priority_and_versions_within_them() {
        let all = [
            foreign("b", "v1", 5, 1),
            foreign("a", "v1", 5, 1),
            foreign("c", "v1", 9, 1),
            foreign("a", "v2", 1, 7),
        ];
        let list = group_list(parse(br#"{"groups":[]}"#).unwrap(), std::iter::empty(), &all);
        let version =
            |of: &str| format!(r#"{{"groupVersion":"{of}","version":"{}"}}"#, of.split_once('/').unwrap().1);
        let one = |name: &str| {
            let v1 = version(&format!("{name}/v1"));
            format!(r#"{{"name":"{name}","versions":[{v1}],"preferredVersion":{v1}}}"#)
        };
        let (v2, v1) = (version("a/v2"), version("a/v1"));
        let a = format!(r#"{{"name":"a","versions":[{v2},{v1}],"preferredVersion":{v2}}}"#);
        assert_eq!(text(&list), format!(r#"{{"groups":[{},{a},{}]}}"#, one("c"), one("b")));
        assert!(group(None, "none", &all).is_none());
    }

    #[test]
    fn a_version_without_a_resource_list_is_stale() {
        let resources = |list: &[Value]| Some(Arc::from(list));
        let thing = parse(br#"{"resource":"things"}"#).unwrap();
        for (resources, want) in [
            (resources(&[thing]), r#""resources":[{"resource":"things"}],"freshness":"Current""#),
            (resources(&[]), r#""freshness":"Current""#),
            (None, r#""freshness":"Stale""#),
        ] {
            let all = [Foreign { resources, ..foreign("a", "v1", 1, 1) }];
            let document = aggregated(parse(br#"{"items":[]}"#).unwrap(), std::iter::empty(), &all);
            let version = format!(r#"{{"version":"v1",{want}}}"#);
            let group = format!(r#"{{"metadata":{{"name":"a"}},"versions":[{version}]}}"#);
            assert_eq!(text(&document), format!(r#"{{"items":[{group}]}}"#));
        }
    }
}
