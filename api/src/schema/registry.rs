//! What the server serves, by name: groups, versions and resources under the names of one vocabulary.
//!
//! ```text
//! Registry ─ groups in discovery order ─ versions, preferred first ─ resources by plural ─ subresources by name
//! ```
//!
//! The views own their composed names and borrow everything else from the tables. Building all of them takes well
//! under a millisecond, so a change makes a new registry; one that is in use never changes.
//! This module knows no requests and no store: of keys it only makes the prefix of a resource.

use std::sync::Arc;
use std::time::Duration;

use super::builtin;
use super::table::{GroupTable, Message, ResourceTable, Scope, StorageTable, SubresourceTable, VersionTable};
use crate::naming::Naming;

/// All that is served.
#[derive(Debug)]
pub struct Registry {
    naming: &'static Naming,
    /// In discovery order: priority descending, then name.
    groups: Vec<Arc<Group>>,
    /// Positions in `groups`, sorted by name.
    by_name: Vec<usize>,
}

/// One API group.
#[derive(Debug)]
pub struct Group {
    /// Full name; empty for the core group.
    pub name: String,
    /// Its data.
    pub table: &'static GroupTable,
    /// Preferred first.
    pub versions: Vec<Arc<Version>>,
}

/// One version of a group.
#[derive(Debug)]
pub struct Version {
    /// `<group>/<version>`, or the version alone for the core group.
    pub api_version: String,
    /// Full group name.
    pub group: String,
    /// `v1`, `v2`.
    pub version: &'static str,
    /// Its data.
    pub table: &'static VersionTable,
    /// Sorted by plural.
    pub resources: Vec<Arc<Resource>>,
}

/// One resource of a group version.
#[derive(Debug)]
pub struct Resource {
    /// Its data: plural, kind, verbs, rules.
    pub table: &'static ResourceTable,
    /// Full group name.
    pub group: String,
    /// `v1`, `v2`.
    pub version: &'static str,
    /// `apiVersion` of its objects.
    pub api_version: String,
    /// How it is stored; `None` for virtual types.
    pub storage: Option<Storage>,
    /// Sorted by name.
    pub subresources: Vec<Subresource>,
}

/// The stored form of a resource, which several versions, or even two groups, can share.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Full group name of the stored form.
    pub group: String,
    /// `apiVersion` of the stored form.
    pub api_version: String,
    /// Kind of the stored form.
    pub kind: &'static str,
    /// Type of the stored form.
    pub message: &'static Message,
    /// Data of the stored form.
    pub table: &'static ResourceTable,
    /// Start of all its keys, `/<group>/<resource>/`. The group is written without the vendor's suffix (`core` for
    /// the core group), so that a data directory does not depend on the vocabulary.
    pub key_prefix: String,
    /// How long an object lives after each write; `None`: for ever.
    pub ttl: Option<Duration>,
}

/// One subresource.
#[derive(Debug)]
pub struct Subresource {
    /// Its data.
    pub table: &'static SubresourceTable,
    /// Full group name of the body's kind.
    pub group: String,
    /// `apiVersion` of the body.
    pub api_version: String,
}

impl Registry {
    /// The built-in types under the names of `naming`, none of whose objects expire.
    pub fn new(naming: &'static Naming) -> Registry {
        Registry::with_event_ttl(naming, None)
    }

    /// The built-in types under the names of `naming`. Events live for `event_ttl` after each write; `None`: until
    /// somebody deletes them.
    pub fn with_event_ttl(naming: &'static Naming, event_ttl: Option<Duration>) -> Registry {
        let tables = builtin::groups(naming);
        let group = |table| Arc::new(group(naming, table, tables, event_ttl));
        let mut groups: Vec<_> = tables.iter().map(group).collect();
        groups.sort_by(|a, b| b.table.priority.cmp(&a.table.priority).then_with(|| a.name.cmp(&b.name)));
        let mut by_name: Vec<_> = (0..groups.len()).collect();
        by_name.sort_by(|&a, &b| groups[a].name.cmp(&groups[b].name));
        Registry { naming, groups, by_name }
    }

    /// The vocabulary of all names here.
    pub fn naming(&self) -> &'static Naming {
        self.naming
    }

    /// All groups, the core included, in discovery order: priority descending, then name.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// The group with this full name; the core group's is empty.
    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        let at = self.by_name.binary_search_by(|&at| self.groups[at].name.as_str().cmp(name)).ok()?;
        self.groups.get(self.by_name[at])
    }

    /// One version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&Arc<Version>> {
        self.group(group)?.version(version)
    }

    /// A resource by its name in URLs.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.version(group, version)?.resource(plural)
    }

    /// A resource by the kind of its objects. Kinds of lists and of operations are no resources.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.version(group, version)?.resources.iter().find(|resource| resource.table.kind == kind)
    }

    /// Every resource of every version, in discovery order.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources)
    }
}

impl Group {
    /// One of its versions.
    pub fn version(&self, version: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|candidate| candidate.version == version)
    }
}

impl Version {
    /// A resource by its name in URLs.
    pub fn resource(&self, plural: &str) -> Option<&Arc<Resource>> {
        let at = self.resources.binary_search_by(|resource| resource.table.plural.cmp(plural)).ok()?;
        self.resources.get(at)
    }
}

impl Resource {
    /// `<plural>.<group>`, or the plural alone in the core group: how messages name a resource.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.table.plural.to_owned()
        } else {
            format!("{}.{}", self.table.plural, self.group)
        }
    }

    /// Whether its objects live in namespaces.
    pub fn namespaced(&self) -> bool {
        self.table.scope == Scope::Namespaced
    }

    /// How it is stored. Virtual types are served apart and never get as far as to ask.
    pub fn stored(&self) -> &Storage {
        self.storage.as_ref().expect("virtual types never reach the store")
    }

    /// Whether the served form is the stored form, so that stored bytes are served as they are.
    pub fn is_stored_form(&self) -> bool {
        self.storage.as_ref().is_none_or(|storage| storage.api_version == self.api_version)
    }

    /// One of its subresources.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        let at = self.subresources.binary_search_by(|subresource| subresource.table.name.cmp(name)).ok()?;
        self.subresources.get(at)
    }
}

fn group(
    naming: &Naming,
    table: &'static GroupTable,
    tables: &'static [GroupTable],
    event_ttl: Option<Duration>,
) -> Group {
    let name = naming.group(table.stem, table.suffixed);
    let versions = table
        .versions
        .iter()
        .map(|version| {
            let api_version = naming.api_version(table.stem, table.suffixed, version.version);
            let resources = version.resources.iter().map(|resource| {
                Arc::new(Resource {
                    table: resource,
                    group: name.clone(),
                    version: version.version,
                    api_version: api_version.clone(),
                    storage: resource.storage.as_ref().map(|home| storage(naming, home, tables, event_ttl)),
                    subresources: resource
                        .subresources
                        .iter()
                        .map(|table| subresource(naming, table))
                        .collect(),
                })
            });
            let resources = resources.collect();
            Arc::new(Version {
                api_version: api_version.clone(),
                group: name.clone(),
                version: version.version,
                table: version,
                resources,
            })
        })
        .collect();
    Group { name, table, versions }
}

fn storage(
    naming: &Naming,
    home: &StorageTable,
    tables: &'static [GroupTable],
    event_ttl: Option<Duration>,
) -> Storage {
    let stored = tables
        .iter()
        .filter(|group| group.stem == home.group)
        .flat_map(|group| group.versions)
        .filter(|version| version.version == home.version)
        .flat_map(|version| version.resources)
        .find(|resource| resource.plural == home.resource)
        .expect("a test holds that every stored form is a built-in resource");
    let stem = if home.group.is_empty() { "core" } else { home.group };
    Storage {
        group: naming.group(home.group, home.group_suffixed),
        api_version: naming.api_version(home.group, home.group_suffixed, home.version),
        kind: stored.kind,
        message: stored.message,
        table: stored,
        key_prefix: format!("/{stem}/{}/", home.resource),
        // Both groups of events are stored as one.
        ttl: event_ttl.filter(|_| home.group.is_empty() && home.resource == "events"),
    }
}

fn subresource(naming: &Naming, table: &'static SubresourceTable) -> Subresource {
    Subresource {
        table,
        group: naming.group(table.group, table.group_suffixed),
        api_version: naming.api_version(table.group, table.group_suffixed, table.version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming;
    use crate::schema::table::{Kind, Shape};

    #[test]
    fn every_vocabulary_has_a_registry_and_every_resource_is_found_by_name_and_kind() {
        for naming in naming::ALL {
            let registry = Registry::new(naming);
            assert_eq!(registry.resources().count(), 66);
            for resource in registry.resources() {
                let Resource { group, version, table, .. } = &**resource;
                assert!(Arc::ptr_eq(resource, registry.resource(group, version, table.plural).unwrap()));
                assert!(Arc::ptr_eq(resource, registry.by_kind(group, version, table.kind).unwrap()));
                assert_eq!(
                    resource.storage.is_none(),
                    !table.verbs.contains(&"update"),
                    "{}",
                    resource.qualified()
                );
                for subresource in &resource.subresources {
                    assert!(resource.subresource(subresource.table.name).is_some());
                }
            }
        }
    }

    #[test]
    fn names_follow_the_vocabulary_and_keys_do_not() {
        for naming in naming::ALL {
            let registry = Registry::new(naming);
            let group = format!("networking{}", naming.group_suffix);
            let ingresses = registry.resource(&group, "v1", "ingresses").unwrap();
            assert_eq!(ingresses.api_version, format!("{group}/v1"));
            assert_eq!(ingresses.qualified(), format!("ingresses.{group}"));
            assert_eq!(ingresses.storage.as_ref().unwrap().key_prefix, "/networking/ingresses/");
            let token = registry.resource("", "v1", "serviceaccounts").unwrap().subresource("token").unwrap();
            assert_eq!(token.api_version, naming.api_version("authentication", true, "v1"));
        }
    }

    #[test]
    fn two_groups_and_two_versions_can_share_one_stored_form() {
        let registry = Registry::new(&naming::KUBERNETES);
        for (group, version, plural, stored, prefix) in [
            ("", "v1", "events", "v1", "/core/events/"),
            ("events{suffix}", "v1", "events", "v1", "/core/events/"),
            (
                "autoscaling",
                "v1",
                "horizontalpodautoscalers",
                "autoscaling/v2",
                "/autoscaling/horizontalpodautoscalers/",
            ),
        ] {
            let resource = registry.resource(&naming::KUBERNETES.fill(group), version, plural).unwrap();
            let storage = resource.storage.as_ref().unwrap();
            assert_eq!((storage.api_version.as_str(), storage.key_prefix.as_str()), (stored, prefix));
            assert_eq!(storage.kind, resource.table.kind);
        }
        let regarding = registry.resource(&naming::KUBERNETES.group("events", true), "v1", "events").unwrap();
        assert!(regarding.table.message.field("regarding").is_some());
        assert!(regarding.storage.as_ref().unwrap().message.field("involvedObject").is_some());
    }

    #[test]
    fn discovery_order_is_priority_then_name_then_version_priority() {
        // Semantics §2.5.
        let registry = Registry::new(&naming::KUBERNETES);
        let order: Vec<_> = registry.groups().iter().map(|group| group.name.as_str()).collect();
        let group = |stem| naming::KUBERNETES.group(stem, true);
        assert_eq!(order[..4], [&group("apiregistration"), "", "apps", &group("events")]);
        assert_eq!(order.last(), Some(&&*group("flowcontrol.apiserver")));
        let autoscaling = registry.group("autoscaling").unwrap();
        let versions: Vec<_> = autoscaling.versions.iter().map(|version| version.version).collect();
        assert_eq!(versions, ["v2", "v1"]);
        assert!(registry.group("core").is_none());
        assert!(registry.version("apps", "v2").is_none());
        assert!(registry.resource("apps", "v1", "pods").is_none());
    }

    /// Follows a dotted path through single structs; maps and scalars end it.
    fn leads_somewhere(message: &Message, path: &str) -> bool {
        let (head, rest) = path.split_once('.').unwrap_or((path, ""));
        let Some(field) = message.field(head) else { return false };
        match field.kind {
            _ if rest.is_empty() => true,
            Kind::Message(inner) if field.shape == Shape::Single => leads_somewhere(inner, rest),
            _ => false,
        }
    }

    #[test]
    fn every_path_in_the_rules_names_a_field() {
        let registry = Registry::new(&naming::CLUSTER);
        for resource in registry.resources() {
            let table = resource.table;
            let status = table.status.as_ref();
            let kept = status.map_or([&[] as &[_]; 4], |status| {
                [status.kept_by_main, status.kept_by_status, status.reset_by_main, status.reset_by_status]
            });
            for path in kept.into_iter().flatten().chain(table.immutable).chain(table.generation_on) {
                assert!(leads_somewhere(table.message, path), "{}: {path}", resource.qualified());
            }
            let Some(storage) = &resource.storage else { continue };
            for path in
                table.selectable.iter().flat_map(|field| field.path.split('|')).filter(|p| !p.is_empty())
            {
                assert!(leads_somewhere(storage.message, path), "{}: {path}", resource.qualified());
            }
            let has_status = table.subresources.iter().any(|subresource| subresource.name == "status");
            assert_eq!(has_status, table.status.is_some(), "{}", resource.qualified());
        }
    }
}
