//! The catalog: all served groups, versions and resources, as discovery and OpenAPI read them.
//!
//! ```text
//! registry ──────┐
//! custom types  ─┼─► Group … ─► Catalog::new (merge, sort) ─► discovery documents, OpenAPI documents
//! other servers ─┘
//! ```
//!
//! Invariants after [`Catalog::new`]: group names are unique; groups are ordered by descending priority, then name;
//! versions by descending priority, then by [`compare_versions`]; resources by plural, subresources by name.
//! A catalog is immutable; a change of the served types makes a new one that shares unchanged versions.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::json::Value;
use crate::schema::registry::{self, Registry};
use crate::schema::table::{Message, Ref, Text};
use crate::schema::versions::compare_versions;

/// Everything that is served, in discovery order.
#[derive(Debug, Default)]
pub struct Catalog {
    groups: Vec<Group>,
}

/// One API group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Full name; empty for the core group.
    pub name: String,
    /// Higher comes first.
    pub priority: u32,
    /// Versions; the first one after sorting is the preferred one.
    pub versions: Vec<Arc<Version>>,
}

/// One version of a group.
#[derive(Clone, Debug)]
pub struct Version {
    /// Full name of the group.
    pub group: String,
    /// `v1`, `v1beta1` …
    pub version: String,
    /// Higher comes first inside the group.
    pub priority: u32,
    /// The resources may be out of date: the server that owns them could not be asked.
    pub stale: bool,
    /// Resources sorted by plural.
    pub resources: Vec<Resource>,
}

/// Group, version and kind of one body.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Gvk {
    /// Full group name; empty for the core group.
    pub group: Text,
    /// Version.
    pub version: Text,
    /// Kind.
    pub kind: Text,
}

/// The schema of a request or response body, for OpenAPI.
#[derive(Clone, Debug)]
pub enum Definition {
    /// A type known to this server field by field.
    Type(Ref<Message>),
    /// A custom type.
    Custom(Arc<CustomDefinition>),
    /// Another server publishes the schema.
    Elsewhere,
}

impl Definition {
    /// Whether the type is not built in.
    pub fn is_custom(&self) -> bool {
        match self {
            Definition::Type(message) => message.custom,
            Definition::Custom(_) => true,
            Definition::Elsewhere => false,
        }
    }
}

/// The schema of one version of a custom type, as its author wrote it.
#[derive(Clone, Debug)]
pub struct CustomDefinition {
    /// The OpenAPI v3 schema of the version; `null` when it has none.
    pub schema: Value,
}

/// One resource.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Name in URLs.
    pub plural: Text,
    /// Lower-case kind.
    pub singular: Text,
    /// Group, version and kind of the objects; normally the group and version it is listed in.
    pub gvk: Gvk,
    /// Kind of lists; empty where there are none.
    pub list_kind: Text,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Verbs, sorted.
    pub verbs: Vec<Text>,
    /// Short names.
    pub short_names: Vec<Text>,
    /// Categories.
    pub categories: Vec<Text>,
    /// The stored form, which the storage version hash names; `None` for virtual types.
    pub storage: Option<Gvk>,
    /// Subresources sorted by name.
    pub subresources: Vec<Subresource>,
    /// The type of the objects.
    pub definition: Definition,
    /// Strategic merge patches and protobuf are understood (built-in types).
    pub strategic: bool,
    /// A completed delete answers with the object instead of a Status.
    pub delete_returns_object: bool,
}

/// One subresource.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `status`, `scale` …
    pub name: Text,
    /// Group, version and kind of the body.
    pub gvk: Gvk,
    /// Verbs, sorted.
    pub verbs: Vec<Text>,
    /// A connection instead of an object; the definition then describes its query parameters.
    pub connect: bool,
    /// The type of the body.
    pub definition: Definition,
}

impl Catalog {
    /// Merges groups of the same name (and versions of the same name in them) and sorts everything.
    ///
    /// A merged group or version has the highest priority of its parts; where two parts define the same
    /// plural, the earlier part wins.
    pub fn new(parts: Vec<Group>) -> Self {
        let mut groups: Vec<Group> = Vec::with_capacity(parts.len());
        for part in parts {
            match groups.iter_mut().find(|group| group.name == part.name) {
                None => groups.push(part),
                Some(group) => {
                    group.priority = group.priority.max(part.priority);
                    for version in part.versions {
                        match group.versions.iter_mut().find(|known| known.version == version.version) {
                            None => group.versions.push(version),
                            Some(known) => merge_version(Arc::make_mut(known), &version),
                        }
                    }
                }
            }
        }
        for group in &mut groups {
            for version in &mut group.versions {
                if !version.resources.is_sorted_by(|a, b| a.plural <= b.plural) {
                    Arc::make_mut(version).resources.sort_by(|a, b| a.plural.cmp(&b.plural));
                }
            }
            group.versions.sort_by(|a, b| {
                b.priority.cmp(&a.priority).then_with(|| compare_versions(&a.version, &b.version))
            });
        }
        groups.retain(|group| !group.versions.is_empty());
        groups.sort_by(|a, b| (Reverse(a.priority), &a.name).cmp(&(Reverse(b.priority), &b.name)));
        Catalog { groups }
    }

    /// All groups in discovery order; the core group is the one without a name.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The groups below `/apis`, in discovery order.
    pub fn named_groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| !group.name.is_empty())
    }

    /// The group called `name`.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// One version of one group.
    pub fn version(&self, group: &str, version: &str) -> Option<&Arc<Version>> {
        self.group(group)?.versions.iter().find(|known| known.version == version)
    }
}

fn merge_version(known: &mut Version, part: &Version) {
    known.priority = known.priority.max(part.priority);
    known.stale |= part.stale;
    for resource in &part.resources {
        if !known.resources.iter().any(|other| other.plural == resource.plural) {
            known.resources.push(resource.clone());
        }
    }
}

impl Version {
    /// `<group>/<version>`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether the schemas of this version are ours to publish.
    pub fn has_definitions(&self) -> bool {
        self.resources.iter().any(|resource| !matches!(resource.definition, Definition::Elsewhere))
    }

    /// Path without slashes at the ends: `api/v1`, `apis/apps/v1`.
    pub fn path(&self) -> String {
        if self.group.is_empty() {
            format!("api/{}", self.version)
        } else {
            format!("apis/{}/{}", self.group, self.version)
        }
    }
}

impl Resource {
    /// Whether the resource has `verb`.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

impl Subresource {
    /// Whether the subresource has `verb`.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

/// The groups of the registry with the resources for which `served` returns true, ready for [`Catalog::new`].
pub fn registry_groups(registry: &Registry, served: impl Fn(&registry::Resource) -> bool) -> Vec<Group> {
    let version = |version: &Arc<registry::Version>| {
        let resources: Vec<Resource> =
            version.resources.iter().filter(|each| served(each)).map(|each| from_registry(each)).collect();
        (!resources.is_empty()).then(|| {
            Arc::new(Version {
                group: version.group.clone(),
                version: version.version.clone().into_owned(),
                priority: version.priority,
                stale: false,
                resources,
            })
        })
    };
    let group = |group: &Arc<registry::Group>| Group {
        name: group.name.clone(),
        priority: group.priority,
        versions: group.versions.iter().filter_map(version).collect(),
    };
    registry.groups().iter().map(group).collect()
}

fn from_registry(resource: &registry::Resource) -> Resource {
    let table = &resource.table;
    let gvk = |group: &str, version: &Text, kind: &Text| Gvk {
        group: Text::Owned(group.to_owned()),
        version: version.clone(),
        kind: kind.clone(),
    };
    let subresource = |sub: &registry::Subresource| Subresource {
        name: sub.table.name.into(),
        gvk: gvk(&sub.group, &sub.table.version, &sub.table.kind),
        verbs: texts(sub.table.verbs),
        connect: sub.table.connect,
        definition: Definition::Type(sub.table.message.clone()),
    };
    Resource {
        plural: table.plural.clone(),
        singular: table.singular.clone(),
        gvk: gvk(&resource.group, &resource.version, &table.kind),
        list_kind: table.list_kind.clone(),
        namespaced: resource.namespaced(),
        verbs: texts(table.verbs),
        short_names: table.short_names.to_vec(),
        categories: table.categories.to_vec(),
        storage: match (&resource.storage, &table.storage) {
            (Some(stored), Some(home)) => Some(gvk(&stored.group, &home.version, &stored.table.kind)),
            _ => None,
        },
        subresources: resource.subresources.iter().map(subresource).collect(),
        definition: Definition::Type(table.message.clone()),
        strategic: !table.message.custom,
        delete_returns_object: table.delete_returns_object,
    }
}

fn texts(names: &'static [&'static str]) -> Vec<Text> {
    names.iter().map(|name| Text::Borrowed(*name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(group: &str, version: &str, priority: u32, plurals: &[&'static str]) -> Arc<Version> {
        let resource = |plural: &&'static str| Resource {
            plural: Text::Borrowed(plural),
            singular: "".into(),
            gvk: Gvk { group: "".into(), version: "v1".into(), kind: "".into() },
            list_kind: "".into(),
            namespaced: false,
            verbs: Vec::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            storage: None,
            subresources: Vec::new(),
            definition: Definition::Elsewhere,
            strategic: false,
            delete_returns_object: false,
        };
        Arc::new(Version {
            group: group.to_owned(),
            version: version.to_owned(),
            priority,
            stale: false,
            resources: plurals.iter().map(resource).collect(),
        })
    }

    fn group(name: &str, priority: u32, versions: Vec<Arc<Version>>) -> Group {
        Group { name: name.to_owned(), priority, versions }
    }

    #[test]
    fn groups_are_ordered_by_priority_then_name_and_merged_by_name() {
        let catalog = Catalog::new(vec![
            group("b.example", 1000, vec![version("b.example", "v1", 100, &["things"])]),
            group("a.example", 1000, vec![version("a.example", "v1alpha1", 100, &["as"])]),
            group("apps", 17800, vec![version("apps", "v1", 15, &["deployments"])]),
            group("empty", 20000, vec![]),
            group(
                "a.example",
                1000,
                vec![
                    version("a.example", "v2", 100, &["as"]),
                    version("a.example", "v1alpha1", 100, &["zs", "as", "bs"]),
                ],
            ),
        ]);
        let got: Vec<String> = catalog
            .groups()
            .iter()
            .flat_map(|group| &group.versions)
            .map(|version| {
                let plurals: Vec<&str> = version.resources.iter().map(|r| r.plural.as_ref()).collect();
                format!("{} {}", version.api_version(), plurals.join(","))
            })
            .collect();
        assert_eq!(
            got,
            ["apps/v1 deployments", "a.example/v2 as", "a.example/v1alpha1 as,bs,zs", "b.example/v1 things"]
        );
    }
}
