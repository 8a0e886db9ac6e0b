//! Ingresses of the versions before `v1`. These versions are not served, but a patch may still name such a version.
//!
//! ```text
//! spec.backend {serviceName, servicePort, resource}  ──► spec.defaultBackend {service: {name, port}, resource}
//! spec.rules[].http.paths[].backend                  ──► the same
//! ```
//!
//! Fields that exist only in `v1` are unknown in the older form and are dropped.

use crate::schema::decoded::Decoded;
use values::json::{Object, Value};

/// Returns whether a kind of an API version is the older form of an ingress.
pub fn is_older(kind: &str, group: &str, version: &str) -> bool {
    kind == "Ingress" && version == "v1beta1" && (group == "extensions" || group.starts_with("networking."))
}

/// Converts an ingress of the older form to the form of `v1`, before it is decoded by schema. Unknown fields
/// are added to the findings of strict decoding.
pub fn to_v1(ingress: &mut Object, strict: &mut Vec<String>) {
    let mut unknown = |path: &str| strict.push(format!("unknown field \"{path}\""));
    let Some(spec) = ingress.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.remove("defaultBackend").is_some() {
        unknown("spec.defaultBackend");
    }
    if let Some(mut backend) = spec.remove("backend") {
        backend_to_v1(&mut backend, "spec.backend", &mut unknown);
        spec.insert("defaultBackend", backend);
    }
    let Some(Value::Array(rules)) = spec.get_mut("rules") else { return };
    for (at, rule) in rules.iter_mut().enumerate() {
        let http = rule.as_object_mut().and_then(|rule| rule.get_mut("http")?.as_object_mut());
        let Some(Value::Array(paths)) = http.and_then(|http| http.get_mut("paths")) else { continue };
        for (path_at, path) in paths.iter_mut().enumerate() {
            let Some(path) = path.as_object_mut() else { continue };
            if let Some(backend) = path.get_mut("backend") {
                let place = format!("spec.rules[{at}].http.paths[{path_at}].backend");
                backend_to_v1(backend, &place, &mut unknown);
            }
            if path.get("pathType").is_none_or(Value::is_null) {
                path.insert("pathType", "ImplementationSpecific".into());
            }
        }
    }
}

fn backend_to_v1(backend: &mut Value, place: &str, unknown: &mut impl FnMut(&str)) {
    let Some(backend) = backend.as_object_mut() else { return };
    if backend.remove("service").is_some() {
        unknown(&format!("{place}.service"));
    }
    let (name, port) = (backend.remove("serviceName"), backend.remove("servicePort"));
    if name.is_none() && port.is_none() {
        return;
    }
    let mut service = Object::new();
    service.insert("name", name.unwrap_or_else(|| "".into()));
    match port {
        Some(Value::Null) | None => {}
        Some(port) => {
            let kind = if port.as_str().is_some() { "name" } else { "number" };
            let port: Object = [(kind.to_owned().into(), port)].into_iter().collect();
            service.insert("port", port.into());
        }
    }
    backend.insert("service", service.into());
}

/// Returns `decoded`, with the findings of the conversion (`found`) before the findings of decoding.
pub fn with_findings(mut decoded: Decoded, mut found: Vec<String>) -> Decoded {
    found.append(&mut decoded.strict);
    Decoded { strict: found, ..decoded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::{object, text};

    #[test]
    fn an_ingress_of_an_older_version_is_decoded_as_v1() {
        for (older, want, unknown) in [
            (
                r#"{"spec":{"backend":{"serviceName":"s","servicePort":80}}}"#,
                r#"{"spec":{"defaultBackend":{"service":{"name":"s","port":{"number":80}}}}}"#,
                "",
            ),
            (
                r#"{"spec":{"defaultBackend":{"service":{"name":"s"}}}}"#,
                r#"{"spec":{}}"#,
                r#"unknown field "spec.defaultBackend""#,
            ),
            (
                r#"{"spec":{"rules":[{"http":{"paths":[{"backend":{"serviceName":"s","servicePort":"p"}}]}}]}}"#,
                r#"{"spec":{"rules":[{"http":{"paths":[{"backend":{"service":{"name":"s","port":{"name":"p"}}},"pathType":"ImplementationSpecific"}]}}]}}"#,
                "",
            ),
            (
                r#"{"spec":{"rules":[{},{"http":{"paths":[{"backend":{"service":{}},"pathType":"Exact"}]}}]}}"#,
                r#"{"spec":{"rules":[{},{"http":{"paths":[{"backend":{},"pathType":"Exact"}]}}]}}"#,
                r#"unknown field "spec.rules[1].http.paths[0].backend.service""#,
            ),
            (r#"{"spec":5}"#, r#"{"spec":5}"#, ""),
        ] {
            let (mut ingress, mut strict) = (object(older), Vec::new());
            to_v1(&mut ingress, &mut strict);
            assert_eq!(
                (text(&ingress.into()), strict.join(", ")),
                (want.to_owned(), unknown.to_owned()),
                "{older}"
            );
        }
    }
}
