//! Maps keys of the engine to keys of etcd and back. The keys of etcd have the layout of kube-apiserver
//!
//! ```text
//! /registry/pods/<namespace>/<name>                  /core/pods/<namespace>/<name>
//! /registry/services/specs/…, minions/…, …           /core/services/…, /core/nodes/…
//! /registry/<group>/<plural>/…                       /custom:<group>/<plural>/…
//! ```
//!
//! Both directions are pure functions. All other keys (allocations, leases of servers, other prefixes) are
//! not objects.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use types::schema::etcd_path::etcd_path;
use types::schema::registry::{Registry, Resource};

/// Prefix of the engine's keys of custom types.
const CUSTOM: &[u8] = b"/custom:";

/// The mapping between the keys of the engine and the keys of etcd.
pub struct Keys {
    /// Prefix of all keys, with a trailing slash.
    prefix: String,
    /// Paths in etcd and types, by key prefix of the engine.
    paths: HashMap<String, (String, Arc<Resource>)>,
    /// Types by path in etcd. The paths have no leading and trailing slashes.
    resources: HashMap<String, Arc<Resource>>,
}

/// Returns the group and the plural name of the custom type of an engine key.
pub(super) fn custom_type(key: &[u8]) -> Option<(&str, &str)> {
    let rest = std::str::from_utf8(key.strip_prefix(CUSTOM)?).ok()?;
    let (group, rest) = rest.split_once('/')?;
    Some((group, rest.split_once('/')?.0))
}

/// The meaning of a key of etcd.
#[derive(Clone, Debug)]
pub enum KeyMeaning {
    /// An object of a built-in type.
    Builtin(Arc<Resource>, Bytes),
    /// An object of a custom type.
    Custom(Bytes),
    /// A key that is not an object.
    Other,
}

impl KeyMeaning {
    /// Returns the key of the engine; `None` if the etcd key is not an object.
    pub fn key(&self) -> Option<&Bytes> {
        match self {
            KeyMeaning::Builtin(_, key) | KeyMeaning::Custom(key) => Some(key),
            KeyMeaning::Other => None,
        }
    }
}

impl Keys {
    /// Returns the mapping for the types in `registry`. `prefix` is the common prefix in etcd, such as
    /// `/registry`.
    pub fn new(registry: &Registry, prefix: &str) -> Keys {
        let (mut paths, mut resources) = (HashMap::new(), HashMap::new());
        for resource in registry.stored() {
            let start = &resource.stored().key_prefix;
            let path = etcd_path(resource);
            resources.insert(path.clone(), resource.clone());
            paths.insert(start.clone(), (path, resource.clone()));
        }
        let prefix = format!("/{}/", prefix.trim_matches('/'));
        let prefix = if prefix == "//" { "/".to_owned() } else { prefix };
        Keys { prefix, paths, resources }
    }

    /// Returns the common prefix of all keys of objects.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the meaning of a key of etcd.
    pub fn place(&self, key: &[u8]) -> KeyMeaning {
        let rest = key.strip_prefix(self.prefix.as_bytes()).and_then(|rest| std::str::from_utf8(rest).ok());
        let Some(rest) = rest else { return KeyMeaning::Other };
        let Some((first, after)) = rest.split_once('/') else { return KeyMeaning::Other };
        let second = after.split_once('/');
        // Try the longer path first: `services/specs` does not belong to a resource `services`.
        if let Some((second, name)) = second
            && let Some(resource) = self.resources.get(&format!("{first}/{second}"))
        {
            return builtin(resource, name).unwrap_or(KeyMeaning::Other);
        }
        if let Some(resource) = self.resources.get(first) {
            return builtin(resource, after).unwrap_or(KeyMeaning::Other);
        }
        match second {
            // The group of a custom type contains a dot. The first segment of all other paths contains no
            // dot.
            Some((plural, name)) if first.contains('.') && !name.is_empty() => {
                KeyMeaning::Custom(format!("/custom:{first}/{plural}/{name}").into())
            }
            _ => KeyMeaning::Other,
        }
    }

    /// Returns the etcd key for a key of the engine, and the type of the object if it is built in. Returns
    /// `None` if the key is not the key of an object.
    pub fn etcd_key(&self, key: &[u8]) -> Option<(Bytes, Option<&Arc<Resource>>)> {
        let text = std::str::from_utf8(key).ok()?;
        if let Some(rest) = key.strip_prefix(CUSTOM) {
            return Some(([self.prefix.as_bytes(), rest].concat().into(), None));
        }
        let end = text.match_indices('/').nth(2)?.0 + 1;
        let (path, resource) = self.paths.get(&text[..end])?;
        Some((format!("{}{path}/{}", self.prefix, &text[end..]).into(), Some(resource)))
    }
}

fn builtin(resource: &Arc<Resource>, name: &str) -> Option<KeyMeaning> {
    // The name of a namespaced object has two segments: a namespace and a name. Other names have one segment.
    let segments = name.split('/').filter(|segment| !segment.is_empty()).count();
    let expected = if resource.namespaced() { 2 } else { 1 };
    let fits = segments == expected && name.matches('/').count() + 1 == expected;
    fits.then(|| {
        KeyMeaning::Builtin(resource.clone(), format!("{}{name}", resource.stored().key_prefix).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;

    #[test]
    fn keys_are_translated_to_and_from_those_of_the_reference_server() {
        let keys = Keys::new(&Registry::new(&KUBERNETES), "/registry");
        for (theirs, ours) in [
            ("/registry/pods/default/web", "/core/pods/default/web"),
            ("/registry/minions/a", "/core/nodes/a"),
            ("/registry/controllers/default/a", "/core/replicationcontrollers/default/a"),
            ("/registry/services/specs/default/a", "/core/services/default/a"),
            ("/registry/services/endpoints/default/a", "/core/endpoints/default/a"),
            ("/registry/ingress/default/a", "/networking/ingresses/default/a"),
            ("/registry/ipaddresses/10.0.0.1", "/networking/ipaddresses/10.0.0.1"),
            ("/registry/clusterroles/system:node", "/rbac.authorization/clusterroles/system:node"),
            ("/registry/apiregistration.k8s.io/apiservices/v1.", "/apiregistration/apiservices/v1."),
            (
                "/registry/apiextensions.k8s.io/customresourcedefinitions/things.g.example",
                "/apiextensions/customresourcedefinitions/things.g.example",
            ),
            ("/registry/g.example/things/default/a", "/custom:g.example/things/default/a"),
            ("/registry/g.example/things/a", "/custom:g.example/things/a"),
            ("/registry/ranges/servicenodeports", ""),
            ("/registry/masterleases/10.1.1.1", ""),
            ("/registry/pods/default", ""),
            ("/registry/pods/default/a/b", ""),
            ("/registry/pods", ""),
            ("compact_rev_key", ""),
            ("/other/pods/default/web", ""),
        ] {
            let place = keys.place(theirs.as_bytes());
            assert_eq!(place.key().map_or(&b""[..], |key| key), ours.as_bytes(), "{theirs}");
            let back = keys.etcd_key(ours.as_bytes()).map(|(key, _)| key);
            let want = (!matches!(place, KeyMeaning::Other)).then(|| Bytes::from(theirs));
            assert_eq!(back, want, "{ours}");
        }
        assert_eq!(Keys::new(&Registry::new(&KUBERNETES), "other").prefix(), "/other/");
    }
}
