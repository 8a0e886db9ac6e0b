//! Conversion of the resource lists of extension servers to the aggregated form
//! (docs/api/extension-servers.md#groups-of-extension-servers).

use hashbrown::HashMap;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::accept::{AGGREGATED_GROUP, AGGREGATED_KIND, AGGREGATED_VERSION};
use super::foreign::object;
use super::message_of;
use crate::schema::builtin;
use crate::schema::decode::decode;
use values::json::{Object, Value};
use values::naming::Naming;

const LIST_KIND: &str = "APIResourceList";

/// Returns the media type of the aggregated document in JSON.
pub fn aggregated_media_type(naming: &Naming) -> String {
    media_type(naming, AGGREGATED_VERSION)
}

/// Returns the `Accept` header for extension servers: the aggregated document in any version, the newest
/// first. Servers of older releases have only the beta version, which has the same form.
pub fn aggregated_media_types(naming: &Naming) -> String {
    AGGREGATED_VERSIONS.map(|version| media_type(naming, version)).join(",")
}

/// Versions of the aggregated document.
const AGGREGATED_VERSIONS: [&str; 2] = [AGGREGATED_VERSION, "v2beta1"];

fn media_type(naming: &Naming, version: &str) -> String {
    let group = naming.group(AGGREGATED_GROUP, true);
    format!("application/json;g={group};v={version};as={AGGREGATED_KIND}")
}

/// Returns whether a response declares that it is the aggregated document.
pub fn is_aggregated(headers: &HeaderMap, naming: &Naming) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_there = |part_name: &str| kind.split(';').any(|part| part.trim() == part_name);
    AGGREGATED_VERSIONS.iter().any(|version| media_type(naming, version).split(';').all(is_there))
}

/// Returns the resources of a version in an aggregated document; empty if the document does not contain the
/// version. Returns `None` for another document.
pub fn of_version(naming: &Naming, body: &[u8], group: &str, version: &str) -> Option<Vec<Value>> {
    let document = read(naming, body, AGGREGATED_KIND)?;
    let groups = list(document.get("items"));
    let mut versions = groups
        .iter()
        .filter(|one| one.str_at(&["metadata", "name"]) == group)
        .flat_map(|one| list(one.get("versions")));
    let found = versions.rfind(|one| one.str_at(&["version"]) == version);
    let mut resources = found.map(|one| list(one.get("resources")).to_vec()).unwrap_or_default();
    resources.iter_mut().for_each(name_kinds);
    Some(resources)
}

/// Adds an empty kind to a resource or subresource without a kind, because clients require this member.
fn name_kinds(resource: &mut Value) {
    let Value::Object(resource) = resource else { return };
    if resource.get("responseKind").is_none_or(Value::is_null) {
        resource.insert("responseKind", kind_of(&Value::Null));
    }
    if let Some(subresources) = resource.get_mut("subresources").and_then(Value::as_array_mut) {
        subresources.iter_mut().for_each(name_kinds);
    }
}

/// Converts the resources of a plain list. Returns `None` for another document, or if a subresource has
/// another scope than its resource.
pub fn of_list(naming: &Naming, body: &[u8]) -> Option<Vec<Value>> {
    let document = read(naming, body, LIST_KIND)?;
    let listed = list(document.get("resources"));
    let mut entries: Vec<Entry> = Vec::new();
    // If several resources have the same name, the last resource gets the subresources.
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    for one in listed.iter().filter(|one| !one.str_at(&["name"]).contains('/')) {
        by_name.insert(one.str_at(&["name"]), entries.len());
        entries.push(Entry::from_resource(one));
    }
    for one in listed {
        let Some((parent, name)) = one.str_at(&["name"]).split_once('/') else { continue };
        let at = *by_name.entry(parent).or_insert_with(|| {
            entries.push(Entry::without_resource(parent, scope(one)));
            entries.len() - 1
        });
        let entry = entries.get_mut(at).filter(|entry| entry.scope == scope(one))?;
        entry.subresources.push(object([
            ("subresource", name.into()),
            ("responseKind", kind_of(one)),
            ("verbs", verbs(one)),
        ]));
    }
    Some(entries.into_iter().map(Entry::written).collect())
}

/// Decodes a document of `kind`. The document may omit its kind.
fn read(naming: &Naming, body: &[u8], kind: &str) -> Option<Object> {
    let message = builtin::message(naming, &message_of(kind))?;
    let document = decode(message, body).ok()?.object;
    let named = document.get("kind").and_then(Value::as_str).unwrap_or_default();
    (named.is_empty() || named == kind).then_some(document)
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).unwrap_or_default()
}

/// A resource with its subresources.
struct Entry {
    scope: &'static str,
    members: Object,
    subresources: Vec<Value>,
}

impl Entry {
    fn from_resource(one: &Value) -> Entry {
        let singular = one.str_at(&["singularName"]);
        let mut entry = Entry::new(one.str_at(&["name"]), scope(one), kind_of(one), singular, verbs(one));
        for member in ["shortNames", "categories"] {
            if let Some(names) = one.get(member).filter(|names| !names.is_null()) {
                entry.members.push(member, names.clone());
            }
        }
        entry
    }

    /// Creates an entry for subresources whose resource is not in the list.
    fn without_resource(name: &str, scope: &'static str) -> Entry {
        Entry::new(name, scope, kind_of(&Value::Null), "", Value::Null)
    }

    fn new(name: &str, scope: &'static str, kind: Value, singular: &str, verbs: Value) -> Entry {
        let mut members = Object::with_capacity(8);
        members.push("resource", name.into());
        members.push("responseKind", kind);
        members.push("scope", scope.into());
        members.push("singularResource", singular.into());
        members.push("verbs", verbs);
        Entry { scope, members, subresources: Vec::new() }
    }

    fn written(mut self) -> Value {
        if !self.subresources.is_empty() {
            self.members.push("subresources", Value::Array(self.subresources));
        }
        self.members.into()
    }
}

fn scope(one: &Value) -> &'static str {
    match one.get("namespaced").and_then(Value::as_bool) {
        Some(true) => "Namespaced",
        _ => "Cluster",
    }
}

fn kind_of(one: &Value) -> Value {
    let member = |name: &'static str| (name, one.str_at(&[name]).into());
    object([member("group"), member("version"), member("kind")])
}

fn verbs(one: &Value) -> Value {
    one.get("verbs").cloned().unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use values::json::write;
    use values::naming::KUBERNETES;

    fn text(resources: Option<Vec<Value>>) -> String {
        let Some(resources) = resources else { return String::new() };
        let mut out = Vec::new();
        write(&Value::Array(resources), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn unaggregated_resource_lists_are_converted_to_aggregated_ones() {
        let thing =
            r#"{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get"]}"#;
        let short = thing.replace("\"verbs\"", r#""shortNames":["th"],"categories":["all"],"verbs""#);
        let kind = r#"{"group":"","version":"","kind":"Thing"}"#;
        let shown = format!(
            r#"{{"resource":"things","responseKind":{kind},"scope":"Namespaced","singularResource":"thing","verbs":["get"]"#
        );
        let status = r#"{"name":"things/status","namespaced":true,"kind":"Thing","verbs":["get"]}"#;
        let sub = |verbs: &str| {
            let status = format!(r#"{{"subresource":"status","responseKind":{kind},"verbs":{verbs}}}"#);
            format!(r#""subresources":[{status}]"#)
        };
        let no_kind = r#"{"group":"","version":"","kind":""}"#;
        let alone = format!(
            r#"[{{"resource":"things","responseKind":{no_kind},"scope":"Namespaced","singularResource":"","verbs":null,{}}}]"#,
            sub(r#"["get"]"#)
        );
        for (resources, want) in [
            (String::new(), "[]".to_owned()),
            (thing.to_owned(), format!("[{shown}}}]")),
            (short, format!(r#"[{shown},"shortNames":["th"],"categories":["all"]}}]"#)),
            (format!("{status},{thing}"), format!("[{shown},{}}}]", sub(r#"["get"]"#))),
            (status.to_owned(), alone),
            (status.replace("true", "false") + "," + thing, String::new()),
            ("5".to_owned(), String::new()),
        ] {
            let body = format!(r#"{{"kind":"APIResourceList","apiVersion":"v1","resources":[{resources}]}}"#);
            assert_eq!(text(of_list(&KUBERNETES, body.as_bytes())), want, "{body}");
        }
        for body in [r#"{"kind":"Status"}"#, r#"{"resources":{"no":"list"}}"#, "[]", ""] {
            assert_eq!(of_list(&KUBERNETES, body.as_bytes()), None, "{body}");
        }
        assert_eq!(text(of_list(&KUBERNETES, b"{}")), "[]");
    }

    #[test]
    fn resources_of_a_version_are_found_in_an_aggregated_document() {
        let thing = r#"{"resource":"things","scope":"Cluster","singularResource":"","verbs":["get"]}"#;
        let version =
            |name: &str, resources: &str| format!(r#"{{"version":"{name}","resources":[{resources}]}}"#);
        let group = |name: &str, versions: &str| {
            format!(r#"{{"metadata":{{"name":"{name}"}},"versions":[{versions}]}}"#)
        };
        let items = [
            group("a.io", &[version("v1", ""), version("v2", thing)].join(",")),
            group("b.io", &version("v1", thing)),
        ];
        let body = format!(r#"{{"kind":"APIGroupDiscoveryList","items":[{}]}}"#, items.join(","));
        // Clients require a kind.
        let no_kind = r#","responseKind":{"group":"","version":"","kind":""}}"#;
        let things = format!("[{}{no_kind}]", thing.trim_end_matches('}'));
        for (group, version, want) in
            [("a.io", "v2", &*things), ("b.io", "v1", &things), ("a.io", "v1", "[]"), ("c.io", "v1", "[]")]
        {
            let found = text(of_version(&KUBERNETES, body.as_bytes(), group, version));
            assert_eq!(found, want, "{group} {version}");
        }
        assert_eq!(of_version(&KUBERNETES, br#"{"kind":"APIGroupList"}"#, "a.io", "v1"), None);
    }

    #[test]
    fn is_aggregated_recognizes_the_content_type_of_aggregated_discovery() {
        for (kind, want) in [
            ("application/json", false),
            ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", true),
            ("application/json; as=APIGroupDiscoveryList; v=v2; g=apidiscovery.k8s.io", true),
            ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", true),
            ("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList", false),
            ("application/json;g=other.io;v=v2;as=APIGroupDiscoveryList", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            assert_eq!(is_aggregated(&headers, &KUBERNETES), want, "{kind}");
        }
    }
}
