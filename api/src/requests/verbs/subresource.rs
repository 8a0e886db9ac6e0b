//! Dispatches the verbs of subresources.

use bytes::Bytes;
use http::StatusCode;

use super::command::{decode_own, put_condition, success};
use super::{Call, admit, connect, eviction, log, patch, read, scale, token, write};
use crate::writes::plugin::Options;
use crate::writes::write::intent::BINDING;
use crate::writes::write::{Current, FunctionSource, RequestedChange};
use objects::representation::answer::respond_success;
use objects::request::Verb;
use objects::strategy::Endpoint;
use types::schema::table::SubresourceTable;
use values::json::{Object, Value};
use values::object::{at, meta, set_meta};
use values::query::WriteOptions;
use values::status::{Details, Status};
use wire::response::Response;

/// Runs a permitted request on a subresource.
pub async fn serve(call: &mut Call<'_>, body: &Bytes) -> Result<Response, Status> {
    let name = call.info.subresource.as_str();
    let Some(table) = call.resource.table.subresources.iter().find(|table| table.name == name) else {
        return Err(Status::no_such_route());
    };
    // The target of a proxy may support any method.
    if !table.verbs.contains(&call.info.verb.as_str()) && name != "proxy" {
        return Err(Status::method_not_allowed());
    }
    match (name, call.info.verb, Endpoint::of_parent(name)) {
        ("scale", Verb::Get, _) => scale::get(call, table).await,
        ("scale", Verb::Update, _) => scale::update(call, table, body).await,
        ("scale", Verb::Patch, _) => scale::patch(call, table, body).await,
        (_, Verb::Get, Some(_)) => read::get(call).await,
        (_, Verb::Update, Some(endpoint)) => write::update(call, body, endpoint).await,
        (_, Verb::Patch, Some(endpoint)) => patch::patch(call, body, endpoint).await,
        ("binding", Verb::Create, _) => bind(call, table, body).await,
        ("eviction", Verb::Create, _) => eviction::evict(call, table, body).await,
        ("token", Verb::Create, _) => token::request(call, table, body).await,
        ("log", Verb::Get, _) => log::read(call).await,
        _ if table.connect => connect::connect(call).await,
        _ => Err(Status::no_such_route()),
    }
}

/// Binds a pod with the Binding in the body.
async fn bind(call: &mut Call<'_>, table: &SubresourceTable, body: &[u8]) -> Result<Response, Status> {
    let options = WriteOptions::from_query(
        &call.request.query,
        "CreateOptions",
        &call.server().types.naming.meta_group(),
    )?;
    let mut binding = decode_own(call, table, body, &options, &[])?;
    write::scope_to_request(call, &mut binding)?;
    admit::mutate(call, Options::Create(&options), &mut binding).await?;
    let name = call.info.name.clone();
    if meta(&binding, "name") != name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    admit::validate(call, Options::Create(&options), &binding).await?;
    bind_pod(call, &binding, &name, &options).await
}

/// Binds a pod with a Binding that is posted to the collection and contains the name of the pod.
pub async fn bind_from_collection(call: &mut Call<'_>, body: &[u8]) -> Result<Response, Status> {
    let options = WriteOptions::from_query(
        &call.request.query,
        "CreateOptions",
        &call.server().types.naming.meta_group(),
    )?;
    let mut binding = write::decode_body(call, body, &options)?;
    let name = meta(&binding, "name").to_owned();
    if name.is_empty() {
        return Err(Status::bad_request("name must be provided"));
    }
    admit::command(call, Options::Create(&options), &mut binding).await?;
    let Some(pods) = call.request.types().registry().resource("", "v1", "pods") else {
        return Err(Status::no_such_route());
    };
    // The permission to create bindings is the permission to bind a pod. The access to the pod is derived from
    // this permission.
    let info = objects::request::RequestInfo {
        name: name.clone(),
        verb: Verb::Create,
        subresource: "binding".to_owned(),
        ..call.info.clone()
    };
    let mut on_pod = Call {
        request: call.request,
        proof: call.proof,
        derived_from: Some(call.reach()),
        info: &info,
        resource: pods,
        output: call.output,
        upgrade: None,
        wire: None,
        warnings: Vec::new(),
    };
    let response = bind_pod(&mut on_pod, &binding, &name, &options).await;
    call.warnings.extend(on_pod.warnings);
    response
}

/// Assigns a pod to the node in the binding. Fails if the pod is already assigned.
async fn bind_pod(
    call: &mut Call<'_>,
    binding: &Object,
    name: &str,
    options: &WriteOptions,
) -> Result<Response, Status> {
    let text = |path: &str| at(binding, path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (target, target_kind) = (text("target.name"), text("target.kind"));
    let mut errors = Vec::new();
    if !matches!(target_kind.as_str(), "" | "Node") {
        let supported = ["Node", "<empty>"];
        errors.push(values::field::FieldError::not_supported("target.kind", &target_kind.into(), &supported));
    }
    if target.is_empty() {
        errors.push(values::field::FieldError::required("target.name", ""));
    }
    if !errors.is_empty() {
        return Err(Status::unclassified(&errors));
    }
    let mut intent = write::intent(call, Endpoint::Binding, Options::Create(options), "");
    intent.leaves_out = BINDING;
    let mut source = FunctionSource::for_stored(|call: &mut Call<'_>, current: Option<&mut Current>| {
        let Some(current) = current else { return Ok(RequestedChange::AsItIs) };
        let revision = current.revision().to_string();
        let old = current.live(call.server(), call.resource)?;
        for (what, name, found) in
            [("UID", "uid", meta(old, "uid")), ("ResourceVersion", "resourceVersion", &revision)]
        {
            let expected = meta(binding, name);
            if !expected.is_empty() && expected != found {
                return Err(intent.unmet(what, expected, found));
            }
        }
        let refuse = |why: &str| {
            Err(Status::conflict(
                values::status::Subject { group: "", kind: "pods/binding", name: &call.info.name },
                why,
            ))
        };
        let host = at(old, "spec.nodeName").and_then(Value::as_str).unwrap_or_default();
        if !meta(old, "deletionTimestamp").is_empty() {
            return refuse(&format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        if !host.is_empty() {
            return refuse(&format!("pod {name} is already assigned to node \"{host}\""));
        }
        if at(old, "spec.schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
            return refuse(&format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        let mut pod = old.clone();
        set_meta(&mut pod, "resourceVersion", None);
        for map in ["labels", "annotations"] {
            let Some(added) = at(binding, &format!("metadata.{map}")).and_then(Value::as_object) else {
                continue;
            };
            let target = values::object::metadata_mut(&mut pod).object_entry(map);
            for (key, value) in added.iter() {
                target.insert(key.to_owned(), value.clone());
            }
            objects::strategy::sort_members(target);
        }
        pod.object_entry("spec").insert("nodeName", target.as_str().into());
        let status = pod.object_entry("status");
        status.remove("nominatedNodeName");
        set_condition(status, "PodScheduled", "True");
        Ok(RequestedChange::Object(pod))
    });
    crate::writes::write::write(call, &intent, &mut source).await?;
    let code = StatusCode::CREATED;
    Ok(respond_success(code, &success(&Details::default(), Some(code)), &call.output))
}

/// Sets a condition without a reason.
fn set_condition(status: &mut Object, kind: &str, value: &str) {
    let mut condition = Object::new();
    condition.push("type", kind.into());
    condition.push("status", value.into());
    condition.push("lastProbeTime", Value::Null);
    condition.push("lastTransitionTime", values::clock::now().into());
    put_condition(status, condition);
}
