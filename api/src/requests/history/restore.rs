//! Restore: writes the state of an earlier revision again, as an update, or as a create if the object no
//! longer exists. The write passes the whole write path, with the permissions, the options and the admission
//! of any other write.

use engine::{Revision, SnapshotError};

use super::owners::update_owners;
use super::{authorize, convert_to_requested, permit};
use crate::requests::verbs::{Call, write};
use objects::negotiate::Input;
use objects::store;
use values::json::{self, Object, Value};
use values::object::{SERVER_METADATA, set_meta};
use values::status::Status;
use wire::response::Response;

/// Writes the state of the revision in the query to the object in the path. A `resourceVersion` in the query
/// is a precondition.
///
/// # Errors
/// 404 if the object did not exist at the revision, 410 if the revision is no longer retained, or the errors
/// of an update.
pub async fn restore(call: &mut Call<'_>) -> Result<Response, Status> {
    authorize(call).await?;
    permit(call, "get").await?;
    let revision = call.request.query.first("revision").unwrap_or_default();
    let revision = revision.parse::<Revision>().map_err(|_| {
        Status::bad_request(format!("invalid revision {revision:?}: the revision to restore is a number"))
    })?;
    if call.server().types.formats.input(call.request.headers())? != Input::Json {
        return Err(Status::unsupported_media_type(&["application/json"]));
    }
    store::check_key_name(&call.info.name)?;
    let key = store::key(call.resource, call.info.namespace_of(call.resource), &call.info.name);
    let view = call.store().view_at(revision).map_err(|error| match error {
        SnapshotError::Compacted { oldest } => Status::expired(format!(
            "revision {revision} is no longer retained: the oldest revision that can be restored is {oldest}"
        )),
        SnapshotError::Future { current } => Status::bad_request(format!(
            "revision {revision} is in the future: the newest revision is {current}"
        )),
    })?;
    let Some(entry) = view.get(&key) else {
        return Err(Status::not_found(call.subject(&call.info.name)));
    };
    // Three copies are in memory at one time: the decoded state, the body of the PUT, and the object that is
    // decoded from this body.
    let bytes = entry.stored_len();
    let charge = call.server().operations.memory.work(bytes, bytes).await.map_err(Status::no_memory)?;
    let Value::Object(mut object) = convert_to_requested(call, store::read(entry)?.record).await? else {
        return Err(Status::internal("a stored state is an object"));
    };
    clear(&mut object, call.request.query.first("resourceVersion"));
    if call.resource.is_of("batch", "jobs") && call.store().entry(&key).is_none() {
        release_selector(&mut object);
    }
    update_owners(call, &mut object).await?;
    let result = write_state(call, object).await;
    drop(charge);
    result
}

/// Removes the selector that the server generated for a job. The selector contains the uid of the deleted job.
fn release_selector(job: &mut Object) {
    let Some(Value::Object(spec)) = job.get_mut("spec") else { return };
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    spec.remove("selector");
    let labels = spec.get_mut("template").and_then(|template| match template {
        Value::Object(template) => template.object_entry("metadata").get_mut("labels"),
        _ => None,
    });
    if let Some(Value::Object(labels)) = labels {
        labels.retain(|name, _| !matches!(name.rsplit('/').next(), Some("controller-uid" | "job-name")));
    }
}

/// Writes the state. If another service now has an address or a node port of the restored service, the server
/// allocates a new address or node port.
async fn write_state(call: &mut Call<'_>, state: Object) -> Result<Response, Status> {
    let mut state = Value::Object(state);
    loop {
        let warned = call.warnings.len();
        let mut body = Vec::new();
        json::write(&state, &mut body);
        let refused = match write::restore(call, &body).await {
            Err(status) if call.resource.is_of("", "services") => status,
            result => return result,
        };
        let released = match &mut state {
            Value::Object(service) => taken_field(&refused).is_some_and(|field| release(service, field)),
            _ => false,
        };
        if !released {
            return Err(refused);
        }
        call.warnings.truncate(warned);
        call.warnings.push(format!("{}: the service gets others", refused.message));
    }
}

/// A group of fields that the server allocates for a service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AllocatedField {
    Addresses,
    NodePorts,
}

/// Returns the fields that a service cannot get back, because another service uses their values.
fn taken_field(refused: &Status) -> Option<AllocatedField> {
    if refused.message.contains("provided IP is already allocated") {
        return Some(AllocatedField::Addresses);
    }
    refused.message.contains("provided port is already allocated").then_some(AllocatedField::NodePorts)
}

/// Removes allocated fields from a service. Returns whether the service had at least one of these fields.
fn release(service: &mut Object, field: AllocatedField) -> bool {
    let Some(Value::Object(spec)) = service.get_mut("spec") else { return false };
    match field {
        AllocatedField::Addresses => {
            let removed = ["clusterIP", "clusterIPs"].map(|name| spec.remove(name).is_some());
            removed.contains(&true)
        }
        AllocatedField::NodePorts => {
            let mut removed = spec.remove("healthCheckNodePort").is_some();
            let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten() {
                if let Value::Object(port) = port {
                    removed |= port.remove("nodePort").is_some();
                }
            }
            removed
        }
    }
}

/// Removes the metadata of the earlier state that does not apply to the restored object.
fn clear(object: &mut Object, precondition: Option<&str>) {
    for name in SERVER_METADATA {
        set_meta(object, name, None);
    }
    if let Some(version) = precondition.filter(|version| !version.is_empty()) {
        set_meta(object, "resourceVersion", Some(version.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::status::StatusReason;
    use values::testing::object;

    #[test]
    fn a_restored_job_gets_a_new_selector_unless_it_has_a_manual_one() {
        let labels = r#""labels":{"a":"b","controller-uid":"u","job-name":"j","batch.kubernetes.io/controller-uid":"u"}"#;
        for (manual, want) in [
            (
                "false",
                r#"{"spec":{"manualSelector":false,"template":{"metadata":{"labels":{"a":"b"}}}}}"#
                    .to_owned(),
            ),
            (
                "true",
                format!(
                    r#"{{"spec":{{"manualSelector":true,"selector":{{}},"template":{{"metadata":{{{labels}}}}}}}}}"#
                ),
            ),
        ] {
            let mut job = object(&format!(
                r#"{{"spec":{{"manualSelector":{manual},"selector":{{}},"template":{{"metadata":{{{labels}}}}}}}}}"#
            ));
            release_selector(&mut job);
            assert_eq!(job, object(&want), "{manual}");
        }
    }

    #[test]
    fn a_restored_service_gives_up_only_addresses_and_ports_that_other_services_have() {
        let service = r#"{"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ports":[{"port":1,"nodePort":2}]}}"#;
        for (message, want) in [
            (
                "failed to allocate IP 10.0.0.1: provided IP is already allocated",
                r#"{"spec":{"ports":[{"port":1,"nodePort":2}]}}"#,
            ),
            (
                "Invalid value: 2: provided port is already allocated",
                r#"{"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ports":[{"port":1}]}}"#,
            ),
            ("another error", service),
        ] {
            let mut given = object(service);
            let field = taken_field(&Status::new(StatusReason::Invalid, message));
            assert_eq!(field.is_some_and(|field| release(&mut given, field)), want != service, "{message}");
            assert_eq!(given, object(want), "{message}");
            assert!(!field.is_some_and(|field| release(&mut given, field)), "{message}: nothing is left");
        }
    }
}
