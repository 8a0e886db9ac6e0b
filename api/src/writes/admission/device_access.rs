//! Administrator access to devices. Claims and claim templates may request administrator access, and the
//! status of a claim may grant it, but only in a namespace with the required label
//! (docs/api/writes.md#device-access).
//!
//! `requests or results with adminAccess ─► namespace ─► its label ─► field error`
//!
//! The requests of a claim never change, so only new claims are checked. A status is checked only if the old
//! status granted no administrator access.

use crate::writes::server::Server;
use types::schema::registry::Resource;
use values::field::FieldError;
use values::json::{Object, Value};
use values::object::at;
use values::status::Status;

/// Returns the field error if an object requests or grants administrator access that its namespace does not
/// allow. Only claims and claim templates can request or grant such access. The objects are in the stored
/// form.
///
/// # Errors
/// Fails if the namespace cannot be read.
pub fn refused(
    server: &Server,
    resource: &Resource,
    subresource: &str,
    namespace: &str,
    new: &Object,
    old: Option<&Object>,
) -> Result<Option<FieldError>, Status> {
    let of = |plural: &str| resource.is_of("resource", plural);
    let path = match (subresource, old) {
        ("", None) if of("resourceclaims") => requested_admin_path(new, "spec.devices.requests"),
        ("", None) if of("resourceclaimtemplates") => requested_admin_path(new, "spec.spec.devices.requests"),
        ("status", Some(old)) if of("resourceclaims") => {
            let granted = |object: &Object| granted_admin_path(object, "status.allocation.devices.results");
            granted(new).filter(|_| granted(old).is_none())
        }
        _ => None,
    };
    let Some(place) = path else { return Ok(None) };
    let label = format!("resource.{}", server.types.naming.label("admin-access"));
    let namespaces = server.types.resource("", "v1", "namespaces");
    let labels = server.store.get(&namespaces, "", namespace)?;
    let labels = labels.as_ref().and_then(|namespace| at(namespace, "metadata.labels"));
    let is_allowed = labels.and_then(|labels| labels.get(&label)).and_then(Value::as_str) == Some("true");
    Ok((!is_allowed).then(|| {
        FieldError::forbidden(
            place,
            format!("admin access to devices requires the `{label}: true` label on the containing namespace"),
        )
    }))
}

/// Returns the path of the first request for administrator access in the list at `path`. Templates use the
/// same field as claims.
fn requested_admin_path(object: &Object, path: &str) -> Option<String> {
    let index = first(object, path, |request| request.get("exactly").is_some_and(is_for_administrators))?;
    Some(format!("spec.devices.requests[{index}].adminAccess"))
}

/// Returns the path of the first device with administrator access in the list at `path`.
fn granted_admin_path(object: &Object, path: &str) -> Option<String> {
    Some(format!("{path}[{}].adminAccess", first(object, path, is_for_administrators)?))
}

fn first(object: &Object, path: &str, is_meant: impl Fn(&Value) -> bool) -> Option<usize> {
    at(object, path)?.as_array()?.iter().position(is_meant)
}

fn is_for_administrators(value: &Value) -> bool {
    value.get("adminAccess").and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use crate::writes::write::server_fixture::TestServer;

    #[tokio::test]
    async fn admin_access_to_devices_needs_a_label_of_the_namespace() {
        let server = TestServer::start();
        let labels =
            r#"{"metadata":{"name":"labelled","labels":{"resource.kubernetes.io/admin-access":"true"}}}"#;
        for namespace in [r#"{"metadata":{"name":"plain"}}"#, labels] {
            assert_eq!(server.send("POST /api/v1/namespaces", namespace).await.0, 201);
        }
        let spec = |access: &str| {
            format!(
                r#"{{"devices":{{"requests":[{{"name":"q","exactly":{{"deviceClassName":"c"}}}},
                    {{"name":"r","exactly":{{"deviceClassName":"c","adminAccess":{access}}}}}]}}}}"#
            )
        };
        let why = "spec.devices.requests[1].adminAccess: Forbidden: admin access to devices requires the \
                   `resource.kubernetes.io/admin-access: true` label on the containing namespace";
        let refused = |kind: &str| format!("422 {kind}.resource.k8s.io \"x\" is invalid: {why}");
        for (namespace, plural, access, want) in [
            ("plain", "resourceclaims", "true", refused("ResourceClaim")),
            ("plain", "resourceclaimtemplates", "true", refused("ResourceClaimTemplate")),
            ("plain", "resourceclaims", "false", "201 ".to_owned()),
            ("labelled", "resourceclaims", "true", "201 ".to_owned()),
            ("labelled", "resourceclaimtemplates", "true", "201 ".to_owned()),
        ] {
            let spec = spec(access);
            let spec = if plural == "resourceclaims" { spec } else { format!(r#"{{"spec":{spec}}}"#) };
            let body = format!(r#"{{"metadata":{{"name":"x"}},"spec":{spec}}}"#);
            let path = format!("POST /apis/resource.k8s.io/v1/namespaces/{namespace}/{plural}");
            let (code, _, answer) = server.send(&path, &body).await;
            let got = format!("{code} {}", answer.str_at(&["message"]));
            assert_eq!(got, want, "{namespace} {plural} {access}");
        }
        let granted = r#"{"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"a.b","pool":"p",
            "device":"d","adminAccess":true}]}}}}"#;
        for (namespace, is_allowed) in [("plain", false), ("labelled", true)] {
            let path =
                format!("MERGE /apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/x/status");
            let (_, _, answer) = server.send(&path, granted).await;
            let why = "status.allocation.devices.results[0].adminAccess: Forbidden";
            let message = answer.str_at(&["message"]);
            assert_eq!(message.contains(why), !is_allowed, "{namespace}: {message}");
        }
    }
}
