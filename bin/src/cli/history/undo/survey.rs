//! The objects of one type, now and at the point, with the properties that a comparison needs.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use anyhow::Context;
use http::{Method, StatusCode};
use serde_json::Value;
use values::object::SERVER_METADATA;

use super::super::discovery::ResourceType;
use super::super::point::Point;
use crate::remote::client::{Client, ResponseTooLarge};

/// Number of objects in a chunk of a list, by default.
const CHUNK: usize = 500;

/// Number of objects in a chunk if the objects are large.
const CHUNK_OF_LARGE: usize = 20;

/// The member of a type in which another component binds an object to another object. Neither a user nor a restore can
/// change this member.
const BINDINGS: [(&str, &str); 3] =
    [("pods", "nodeName"), ("persistentvolumeclaims", "volumeName"), ("persistentvolumes", "claimRef")];

/// Namespace and name of an object.
pub type ObjectKey = (String, String);

/// A reference to an owner.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnerReference {
    pub uid: String,
    pub api_version: String,
    pub kind: String,
    pub name: String,
    /// Whether the owner is the controller of the object.
    pub is_controller: bool,
}

/// An object in one of the two lists.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObjectState {
    pub uid: String,
    pub version: String,
    /// Fingerprint of the members that users set.
    pub fingerprint: u64,
    pub owners: Vec<OwnerReference>,
    pub is_deleting: bool,
}

impl ObjectState {
    /// Reads an object from a list. `type_name` is the qualified name of the type.
    pub fn from_object(mut object: Value, type_name: &str, has_status: bool) -> (ObjectKey, ObjectState) {
        let metadata = &object["metadata"];
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let key = (text(metadata, "namespace"), text(metadata, "name"));
        let references = metadata["ownerReferences"].as_array().into_iter().flatten();
        let owners = references.map(|reference| OwnerReference {
            uid: text(reference, "uid"),
            api_version: text(reference, "apiVersion"),
            kind: text(reference, "kind"),
            name: text(reference, "name"),
            is_controller: reference["controller"].as_bool() == Some(true),
        });
        let mut surveyed = ObjectState {
            uid: text(metadata, "uid"),
            version: text(metadata, "resourceVersion"),
            fingerprint: 0,
            owners: owners.collect(),
            is_deleting: metadata["deletionTimestamp"].is_string(),
        };
        clear(&mut object, type_name, has_status);
        let mut hasher = DefaultHasher::new();
        hash(&object, &mut hasher);
        surveyed.fingerprint = hasher.finish();
        (key, surveyed)
    }

    /// Returns the controller of the object.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owners.iter().find(|owner| owner.is_controller)
    }
}

/// Removes the members that the server sets, and the uids of owners and of jobs. If an owner or a job is created again,
/// it has a new uid.
fn clear(object: &mut Value, type_name: &str, has_status: bool) {
    if let Some((_, member)) = BINDINGS.iter().find(|(bound, _)| *bound == type_name)
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.remove(*member);
    }
    if let Some(members) = object.as_object_mut() {
        members.remove("apiVersion");
        members.remove("kind");
        if has_status {
            members.remove("status");
        }
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for name in SERVER_METADATA {
        metadata.remove(name);
    }
    let references = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
    for reference in references.into_iter().flatten() {
        reference.as_object_mut().map(|members| members.remove("uid"));
    }
    // The server generates these labels of a job from its uid.
    for path in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        if let Some(labels) = object.pointer_mut(path).and_then(Value::as_object_mut) {
            labels.retain(|name, _| name != "controller-uid" && !name.ends_with("/controller-uid"));
        }
    }
}

/// Hashes a value. The order of members has no influence, because two versions of a type may have their members in
/// different orders.
fn hash(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            (0u8, sorted.len()).hash(hasher);
            for (name, value) in sorted {
                name.hash(hasher);
                hash(value, hasher);
            }
        }
        Value::Array(items) => {
            (1u8, items.len()).hash(hasher);
            items.iter().for_each(|item| hash(item, hasher));
        }
        flat => (2u8, flat.to_string()).hash(hasher),
    }
}

/// A list of the objects of one type.
#[derive(Debug, Default)]
pub struct ObjectList {
    pub objects: BTreeMap<ObjectKey, ObjectState>,
    /// Revision of the list.
    pub revision: Option<u64>,
    /// Whether the user lacks the permission to list the type.
    pub is_forbidden: bool,
    /// Whether the server does not serve the list, because the type is not stored or no longer exists.
    pub is_unavailable: bool,
}

/// The parameters of a list: the type, the selected objects, and the point.
#[derive(Clone, Copy)]
pub struct Scope<'s> {
    pub resource: &'s ResourceType,
    pub version: &'s str,
    /// Namespace of the objects; empty for all namespaces.
    pub namespace: &'s str,
    pub selector: Option<&'s str>,
    /// The point at which the objects are listed; `None` means the present.
    pub point: Option<&'s Point>,
}

/// Lists the objects of a type, in chunks.
///
/// # Errors
/// The server cannot be reached, or refuses the list. A missing permission or an unknown path is not an error.
pub async fn list(client: &Client, scope: Scope<'_>) -> anyhow::Result<ObjectList> {
    let prefix = scope.point.map(Point::prefix).unwrap_or_default();
    let path = scope.resource.collection(scope.version, scope.namespace);
    let selector = scope.selector.map(|text| format!("&labelSelector={}", query_value(text)));
    let selector = selector.unwrap_or_default();
    let type_name = scope.resource.qualified();
    let (mut listed, mut token, mut chunk_len) = (ObjectList::default(), String::new(), CHUNK);
    loop {
        let url = format!("{prefix}{path}?limit={chunk_len}{selector}&continue={token}");
        let response = match client.exchange(Method::GET, &url, None).await {
            Err(error) if error.is::<ResponseTooLarge>() && chunk_len > CHUNK_OF_LARGE => {
                chunk_len = CHUNK_OF_LARGE;
                continue;
            }
            response => response?,
        };
        match response.code {
            StatusCode::OK => {}
            StatusCode::FORBIDDEN => return Ok(ObjectList { is_forbidden: true, ..listed }),
            // Resources that are not stored have no history. Other types may have been removed since
            // discovery.
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                return Ok(ObjectList { is_unavailable: true, ..listed });
            }
            _ => return Err(client.refused(&response)).with_context(|| format!("cannot list {path}")),
        }
        let mut chunk = response.json()?;
        let metadata = &chunk["metadata"];
        let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
        listed.revision = listed.revision.or_else(|| text("resourceVersion").parse().ok());
        token = query_value(&text("continue"));
        if let Value::Array(items) = chunk["items"].take() {
            let state = |item| ObjectState::from_object(item, &type_name, scope.resource.has_status);
            listed.objects.extend(items.into_iter().map(state));
        }
        if token.is_empty() {
            return Ok(listed);
        }
    }
}

/// Escapes the value of a query parameter.
pub fn query_value(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(byte.into()),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_fingerprint_of_an_object_covers_only_the_fields_that_users_set() {
        let object = json!({
            "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n", "uid": "1", "resourceVersion": "5",
                "ownerReferences": [{"uid": "u", "kind": "K", "name": "o", "apiVersion": "v1", "controller": true}]},
            "spec": {"a": 1, "nodeName": "n"}, "status": {"b": 1},
        });
        let with = |pointer: &str, value: Value| {
            let mut object = object.clone();
            *object.pointer_mut(pointer).unwrap() = value;
            object
        };
        let (key, first) = ObjectState::from_object(object.clone(), "pods", true);
        assert_eq!(key, ("n".to_owned(), "a".to_owned()));
        assert_eq!(first.controller().map(|owner| &*owner.uid), Some("u"));
        for (pointer, value, is_equal) in [
            ("/metadata/uid", json!("2"), true),
            ("/metadata/resourceVersion", json!("6"), true),
            ("/metadata/ownerReferences/0/uid", json!("v"), true),
            ("/metadata/ownerReferences/0/name", json!("p"), false),
            ("/status/b", json!(2), true),
            ("/spec/nodeName", json!("m"), true),
            ("/spec/a", json!(2), false),
            ("/spec", json!({"a": 1, "b": null}), false),
        ] {
            let (_, other) = ObjectState::from_object(with(pointer, value), "pods", true);
            assert_eq!(other.fingerprint == first.fingerprint, is_equal, "{pointer}");
        }
        let states = [object.clone(), with("/status/b", json!(2))]
            .map(|object| ObjectState::from_object(object, "pods", false).1);
        assert_ne!(states[0].fingerprint, states[1].fingerprint);
        assert_eq!(query_value("a in (b, c)"), "a%20in%20%28b%2C%20c%29");
    }
}
