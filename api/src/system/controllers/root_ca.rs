//! Maintains a config map in every active namespace, with the certificates by which pods verify the server.
//! Changed config maps are restored (docs/api/controllers.md#root-ca-publisher).

use std::sync::Arc;

use super::Ending;
use super::per_namespace::{self, NamespaceObject};
use crate::writes::server::Server;
use values::json::{Object, Value};
use values::naming::Naming;

/// Key of the certificates in the config map.
const KEY: &str = "ca.crt";

/// Runs the controller, which follows namespaces and config maps.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let naming = server.types.naming;
    let (name, controller) = (naming.root_ca_config_map, "root-ca-cert-publisher");
    let mut root_ca = server.operations.root_ca.subscribe();
    loop {
        let certificates = root_ca.borrow_and_update().clone();
        let make = |existing| desired_map(naming, &certificates, existing);
        let desired = NamespaceObject { resource: "configmaps", name, controller, make };
        tokio::select! {
            ending = per_namespace::follow(server.clone(), desired) => return ending,
            // The server keeps the sender, so this future resolves only when there is a new CA.
            _ = root_ca.changed() => {}
        }
    }
}

/// Returns the config map with only this data and this annotation; `None` if the existing config map is
/// correct. The labels, the other annotations and the identity of an existing config map are unchanged.
fn desired_map(naming: &Naming, certificates: &str, existing: Option<Value>) -> Option<Value> {
    let annotation = naming.label("description");
    let description = format!(
        "Contains a CA bundle that can be used to verify the {0}-apiserver when using internal endpoints such as the \
         internal service IP or {1}.default.svc. No other usage is guaranteed across distributions of {2} clusters.",
        naming.system_prefix.trim_end_matches('-'),
        naming.word,
        naming.title,
    );
    let existing = existing.unwrap_or_else(|| {
        let members = [("kind", "ConfigMap"), ("apiVersion", "v1")];
        Object::from_iter(members.map(|(name, value)| (name.into(), value.into()))).into()
    });
    let data = existing.get("data").and_then(Value::as_object);
    let is_right = data.is_some_and(|data| data.len() == 1)
        && existing.str_at(&["data", KEY]) == certificates
        && existing.get("binaryData").is_none()
        && existing.str_at(&["metadata", "annotations", &annotation]) == description;
    if is_right {
        return None;
    }
    let Value::Object(mut object) = existing else { return None };
    let annotations = object.object_entry("metadata").object_entry("annotations");
    annotations.insert(annotation, description.into());
    object.insert("data", Object::from_iter([(KEY.into(), certificates.into())]).into());
    object.remove("binaryData");
    Some(object.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::parse;
    use values::naming::KUBERNETES;

    #[test]
    fn the_root_ca_map_is_repaired_only_where_it_differs() {
        let made = desired_map(&KUBERNETES, "PEM", None).unwrap();
        assert_eq!(made.str_at(&["data", "ca.crt"]), "PEM");
        let description = KUBERNETES.label("description");
        let text = made.str_at(&["metadata", "annotations", &description]);
        let host = format!("{}.default.svc", KUBERNETES.profile);
        assert!(text.contains("verify the kube-apiserver") && text.contains(&host), "{text}");
        assert_eq!(desired_map(&KUBERNETES, "PEM", Some(made.clone())), None);
        for edit in [
            r#"{"data":{"ca.crt":"other"}}"#,
            r#"{"data":{"ca.crt":"PEM","more":"x"}}"#,
            r#"{"binaryData":{"x":"AA=="}}"#,
            r#"{"metadata":{"labels":{"a":"b"}}}"#,
        ] {
            let mut object = made.as_object().unwrap().clone();
            for (name, value) in parse(edit.as_bytes()).unwrap().as_object().unwrap().iter() {
                object.insert(name.to_owned(), value.clone());
            }
            let right = desired_map(&KUBERNETES, "PEM", Some(object.into())).unwrap();
            assert_eq!(right.get("data"), made.get("data"), "{edit}");
            assert_eq!(right.get("binaryData"), None, "{edit}");
            assert_eq!(right.str_at(&["metadata", "annotations", &description]), text, "{edit}");
            assert_eq!(right.at(&["metadata", "labels", "a"]).is_some(), edit.contains("labels"), "{edit}");
        }
    }
}
