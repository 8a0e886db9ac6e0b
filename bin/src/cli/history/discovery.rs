//! The types that a server serves, from its discovery documents, and the names that a user may write for a
//! type.

use anyhow::{Context, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::{Method, StatusCode};
use serde_json::Value;

use crate::remote::client::Client;

/// Maximum number of concurrent requests of a command.
pub const CONCURRENT: usize = 8;

/// A type of objects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ResourceType {
    /// API group; empty for the core group.
    pub group: String,
    /// Versions in which the type is served. The preferred version is first.
    pub versions: Vec<String>,
    /// Plural name, as in paths.
    pub plural: String,
    singular: String,
    /// Kind of the objects.
    pub kind: String,
    short_names: Vec<String>,
    /// Whether objects have a namespace.
    pub is_namespaced: bool,
    verbs: Vec<String>,
    /// Whether the status is a subresource.
    pub has_status: bool,
}

impl ResourceType {
    /// Returns the plural name with the group: `deployments.apps`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns whether the type supports a verb.
    pub fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// Returns the path of the objects in a namespace, or of all objects if the namespace is empty.
    pub fn collection(&self, version: &str, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        if self.is_namespaced && !namespace.is_empty() {
            return format!("{root}/{version}/namespaces/{}/{}", escaped(namespace), self.plural);
        }
        format!("{root}/{version}/{}", self.plural)
    }

    /// Returns the path of an object in the preferred version.
    pub fn object(&self, namespace: &str, name: &str) -> String {
        let version = self.versions.first().map(String::as_str).unwrap_or_default();
        self.object_in(version, namespace, name)
    }

    /// Returns the path of an object in a version.
    pub fn object_in(&self, version: &str, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.collection(version, namespace), escaped(name))
    }

    fn is_named(&self, name: &str) -> bool {
        [&self.plural, &self.singular, &self.kind].iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Escapes a name for a segment of a path.
fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                text.push(byte.into())
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// The types of a server.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// All types, in the order of the server.
    pub types: Vec<ResourceType>,
}

impl Discovery {
    /// Reads the types that a server serves. Reads the types at an earlier point if `prefix` is the path
    /// prefix of that point. Versions that cannot be read are left out, such as the versions of an extension
    /// server that is down.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses to list its versions.
    pub async fn read(client: &Client, prefix: &str) -> anyhow::Result<Discovery> {
        let mut versions = Vec::new();
        let core = client.find(&format!("{prefix}/api")).await?.unwrap_or_default();
        versions.extend(texts(&core["versions"]).map(|version| (String::new(), version)));
        let groups = client.find(&format!("{prefix}/apis")).await?.unwrap_or_default();
        for group in groups["groups"].as_array().into_iter().flatten() {
            let name = group["name"].as_str().unwrap_or_default();
            let preferred = group["preferredVersion"]["version"].as_str().unwrap_or_default();
            let all = group["versions"].as_array().into_iter().flatten();
            let mut all: Vec<&str> = all.filter_map(|version| version["version"].as_str()).collect();
            all.sort_by_key(|version| *version != preferred);
            versions.extend(all.into_iter().map(|version| (name.to_owned(), version.to_owned())));
        }
        let documents = versions.into_iter().map(async |(group, version)| {
            let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
            let path = format!("{prefix}{root}/{version}");
            let response = client.exchange(Method::GET, &path, None).await?;
            let document = if response.code == StatusCode::OK { response.json()? } else { Value::Null };
            anyhow::Ok((group, version, document))
        });
        let documents: Vec<_> = stream::iter(documents).buffered(CONCURRENT).try_collect().await?;
        let mut discovery = Discovery::default();
        for (group, version, document) in &documents {
            discovery.add(group, version, document);
        }
        Ok(discovery)
    }

    /// Adds the types in the discovery document of a version.
    fn add(&mut self, group: &str, version: &str, document: &Value) {
        let resources = || document["resources"].as_array().into_iter().flatten();
        let name = |resource: &Value| resource["name"].as_str().unwrap_or_default().to_owned();
        let names: Vec<String> = resources().map(name).collect();
        for resource in resources() {
            let plural = name(resource);
            if plural.is_empty() || plural.contains('/') {
                continue;
            }
            let known = |known: &&mut ResourceType| known.group == group && known.plural == plural;
            if let Some(known) = self.types.iter_mut().find(known) {
                known.versions.push(version.to_owned());
                continue;
            }
            let text = |member: &str| resource[member].as_str().unwrap_or_default().to_owned();
            self.types.push(ResourceType {
                group: group.to_owned(),
                versions: vec![version.to_owned()],
                singular: text("singularName"),
                kind: text("kind"),
                short_names: texts(&resource["shortNames"]).collect(),
                is_namespaced: resource["namespaced"].as_bool() == Some(true),
                verbs: texts(&resource["verbs"]).collect(),
                has_status: names.contains(&format!("{plural}/status")),
                plural,
            });
        }
    }

    /// Returns the type that `text` names. As in kubectl, the text is a plural name, a singular name, a kind or a short
    /// name. A dot and the group may follow, or a dot, a version, another dot and the group.
    ///
    /// # Errors
    /// No type has the name.
    pub fn resolve(&self, text: &str) -> anyhow::Result<&ResourceType> {
        let (name, rest) = text.split_once('.').unwrap_or((text, ""));
        let is_in = |known: &&ResourceType| {
            let of_version = rest.split_once('.').or(Some((rest, "")));
            let is_version = of_version.is_some_and(|(version, group)| {
                known.group == group && known.versions.iter().any(|known| known == version)
            });
            rest.is_empty()
                || known.group == rest
                || known.group.starts_with(&format!("{rest}."))
                || is_version
        };
        let named = self.types.iter().filter(is_in).find(|known| known.is_named(name));
        let short =
            |known: &&ResourceType| known.short_names.iter().any(|short| short.eq_ignore_ascii_case(name));
        match named.or_else(|| self.types.iter().filter(is_in).find(short)) {
            Some(found) => Ok(found),
            None => {
                bail!("the server has no resource type {text:?}; \"kubectl api-resources\" lists the types")
            }
        }
    }

    /// Returns the type with this group and plural name.
    pub fn find(&self, group: &str, plural: &str) -> Option<&ResourceType> {
        self.types.iter().find(|known| known.group == group && known.plural == plural)
    }

    /// Returns the type of the members `apiVersion` and `kind` of a reference.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&ResourceType> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        self.types.iter().find(|known| known.group == group && known.kind == kind)
    }
}

fn texts(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
}

/// Returns the namespace and the name of an object for messages.
pub fn object_label(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Returns the types of a server.
///
/// # Errors
/// The errors of [`Discovery::read`].
pub async fn now(client: &Client) -> anyhow::Result<Discovery> {
    Discovery::read(client, "").await.context("cannot read the resource types of the server")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn discovery() -> Discovery {
        let mut discovery = Discovery::default();
        let resource = |name: &str, kind: &str, short: &str| {
            json!({
                "name": name, "singularName": kind.to_lowercase(), "kind": kind, "namespaced": true,
                "verbs": ["get", "list"], "shortNames": [short],
            })
        };
        discovery.add("", "v1", &json!({"resources": [resource("events", "Event", "ev")]}));
        let apps = [resource("deployments", "Deployment", "deploy"), json!({"name": "deployments/status"})];
        discovery.add("apps", "v1", &json!({"resources": apps}));
        discovery.add("events.k8s.io", "v1", &json!({"resources": [resource("events", "Event", "ev")]}));
        discovery.add("g.example.com", "v2", &json!({"resources": [resource("gears", "Gear", "gr")]}));
        discovery.add("g.example.com", "v1", &json!({"resources": [resource("gears", "Gear", "gr")]}));
        discovery
    }

    #[test]
    fn a_type_is_found_by_each_of_its_names() {
        let discovery = discovery();
        for (text, want) in [
            ("deployments", "deployments.apps"),
            ("Deployment", "deployments.apps"),
            ("deploy", "deployments.apps"),
            ("deployments.apps", "deployments.apps"),
            ("deployments.v1.apps", "deployments.apps"),
            ("events", "events"),
            ("ev", "events"),
            ("events.events.k8s.io", "events.events.k8s.io"),
            ("events.events", "events.events.k8s.io"),
            ("gears.g.example.com", "gears.g.example.com"),
            ("gr.v1.g.example.com", "gears.g.example.com"),
            ("pods", ""),
            ("deployments.v2.apps", ""),
            ("", ""),
        ] {
            let got = discovery.resolve(text).map(ResourceType::qualified).unwrap_or_default();
            assert_eq!(got, want, "{text}");
        }
        assert!(discovery.resolve("deploy").unwrap().has_status);
        assert_eq!(discovery.of_kind("g.example.com/v1", "Gear").unwrap().versions, ["v2", "v1"]);
        assert_eq!(discovery.of_kind("v1", "Event").unwrap().group, "");
    }

    #[test]
    fn discovered_types_give_the_paths_of_their_objects() {
        let discovery = discovery();
        let gears = discovery.resolve("gr").unwrap();
        assert_eq!(gears.object("n", "a"), "/apis/g.example.com/v2/namespaces/n/gears/a");
        assert_eq!(gears.collection("v1", ""), "/apis/g.example.com/v1/gears");
        assert_eq!(
            discovery.resolve("ev").unwrap().object("n", "a%/b"),
            "/api/v1/namespaces/n/events/a%25%2Fb"
        );
    }
}
