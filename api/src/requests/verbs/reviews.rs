//! Virtual resource types: the objects are questions or operations, and are never stored.
//!
//! Reviews return the identity or the permissions of a user (docs/api/authorization.md#access-reviews);
//! `bindings` is the older path of `pods/binding`; `componentstatuses` is a read-only list about this
//! process.

use std::time::Duration;

use auth::authn::AuthnError;
use auth::authz::{Rule, Verdict};
use auth::{Attributes, Decision, User};
use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, StatusCode};

use super::write::{decode_body, scope_to_request};
use super::{Call, admit, review_selectors, subresource};
use crate::writes::plugin::Options;
use crate::writes::write::ownership::{self, Tracking};
use objects::conversion::Conversions;
use objects::representation::{Renderer, refuse_object_transform};
use objects::request::Verb;
use objects::strategy::Endpoint;
use objects::user_info;
use objects::validation::StructView;
use types::options::ListOptions;
use types::schema::encode::encode;
use values::clock;
use values::field::FieldError;
use values::json::{Object, Value, parse};
use values::object::{at, meta, set_meta};
use values::query::WriteOptions;
use values::status::{Status, Subject};
use wire::outgoing::{self, ClientTls, Credentials};
use wire::response::Response;

/// Serves a resource that has no storage.
pub async fn serve(call: &mut Call<'_>, body: &Bytes) -> Result<Response, Status> {
    match (&*call.resource.table.kind, call.info.verb) {
        ("ComponentStatus", Verb::Get | Verb::List | Verb::Watch) => component_status(call).await,
        ("Binding", Verb::Create) => subresource::bind_from_collection(call, body).await,
        (_, Verb::Create) => review(call, body).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// Answers a review: returns the same object with its status filled in.
async fn review(call: &mut Call<'_>, body: &Bytes) -> Result<Response, Status> {
    let options = WriteOptions::from_query(
        &call.request.query,
        "CreateOptions",
        &call.server().types.naming.meta_group(),
    )?;
    let mut object = decode_body(call, body, &options)?;
    scope_to_request(call, &mut object)?;
    admit::command(call, Options::Create(&options), &mut object).await?;
    let kind = &call.resource.table.kind;
    let status = match &**kind {
        "SelfSubjectReview" => {
            answer_anew(&mut object);
            set_meta(&mut object, "creationTimestamp", Some(clock::now().into()));
            let mut status = Object::new();
            status.push("userInfo", user_info::info(call.proof.user()).into());
            status
        }
        "TokenReview" => token_review(call, &object).await?,
        "SelfSubjectRulesReview" => {
            let status = rules_review(call, &object)?;
            answer_anew(&mut object);
            object.insert("metadata", Object::new().into());
            object.insert("spec", Object::new().into());
            status
        }
        "SubjectAccessReview" | "SelfSubjectAccessReview" | "LocalSubjectAccessReview" => {
            access_review(call, &object).await?
        }
        _ => return Err(Status::method_not_allowed()),
    };
    object.insert("status", status.into());
    Renderer::respond_foreign(&call.output, StatusCode::CREATED, &call.resource.table.message, &object)
}

/// Removes the contents of the request, because the response is a new object.
fn answer_anew(object: &mut Object) {
    object.retain(|name, _| matches!(name, "kind" | "apiVersion"));
}

async fn token_review(call: &Call<'_>, object: &Object) -> Result<Object, Status> {
    let token = at(object, "spec.token").and_then(Value::as_str).unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences = string_list(at(object, "spec.audiences"));
    let mut status = Object::new();
    let authenticator = &call.server().access.authenticator;
    match authenticator.review_token(token, &audiences, clock::system_time()).await {
        Ok(accepted) => {
            status.push("authenticated", true.into());
            status.push("user", user_info::info(&accepted.user).into());
            if !accepted.audiences.is_empty() {
                status.push("audiences", accepted.audiences.as_slice().into());
            }
        }
        Err(AuthnError::NoCredential) => status.push("user", Object::new().into()),
        Err(error @ AuthnError::InvalidCredential { .. }) => {
            status.push("user", Object::new().into());
            status.push("error", error.to_string().into());
        }
    }
    Ok(status)
}

fn string_list(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Answers a SubjectAccessReview or one of its two variants.
async fn access_review(call: &Call<'_>, object: &Object) -> Result<Object, Status> {
    let kind = &*call.resource.table.kind;
    let spec = object.get("spec").and_then(Value::as_object);
    let resource = spec.and_then(|spec| spec.get("resourceAttributes")).filter(|value| !value.is_null());
    let non_resource =
        spec.and_then(|spec| spec.get("nonResourceAttributes")).filter(|value| !value.is_null());
    let user =
        if kind == "SelfSubjectAccessReview" { call.proof.user().clone() } else { reviewed_user(spec) };
    let mut errors = Vec::new();
    check_attributes(resource, non_resource, &mut errors);
    if kind != "SelfSubjectAccessReview" && user.name.is_empty() && user.groups.is_empty() {
        errors.push(FieldError::invalid(
            "spec.user",
            &"".into(),
            "at least one of user or group must be specified",
        ));
    }
    if let Some(attributes) = resource {
        review_selectors::check(attributes, &mut errors);
    }
    check_metadata(call, object, &mut errors);
    if kind == "LocalSubjectAccessReview" {
        check_local(object, resource, non_resource, &mut errors);
    }
    if !errors.is_empty() {
        return Err(Status::invalid(Subject { group: &call.resource.group, kind: "", name: "" }, &errors));
    }
    let text = |value: Option<&Value>, name: &str| value.map_or("", |value| value.str_at(&[name])).to_owned();
    let parts = ["verb", "group", "version", "resource", "subresource", "namespace", "name"];
    let [verb, group, version, resource_name, subresource, namespace, name] =
        parts.map(|part| text(resource, part));
    let (requirements, ignored) = review_selectors::read(resource);
    let (path, path_verb) = (text(non_resource, "path"), text(non_resource, "verb"));
    let attributes = Attributes {
        user: &user,
        verb: if resource.is_some() { &verb } else { &path_verb },
        resource_request: resource.is_some(),
        group: &group,
        version: if version.is_empty() { "*" } else { &version },
        resource: &resource_name,
        subresource: &subresource,
        namespace: &namespace,
        name: &name,
        path: &path,
        selectors: requirements.selectors(),
    };
    let Verdict { decision, error } = call.server().access.authorizer.decide(&attributes).await;
    let mut status = Object::new();
    status.push("allowed", decision.is_allowed().into());
    if matches!(decision, Decision::Deny { .. }) {
        status.push("denied", true.into());
    }
    let reason = decision.reason().to_string();
    if !reason.is_empty() {
        status.push("reason", reason.into());
    }
    if let Some(errors) = go::join_errors(error.into_iter().chain(ignored)) {
        status.push("evaluationError", errors.into());
    }
    Ok(status)
}

/// Refuses a review that asks about both a resource and a path, or about neither.
fn check_attributes(resource: Option<&Value>, non_resource: Option<&Value>, errors: &mut Vec<FieldError>) {
    match (resource, non_resource) {
        (None, None) => errors.push(FieldError::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        (Some(_), Some(given)) => errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            &non_resource_error_value(given),
            "cannot be specified in combination with resourceAttributes",
        )),
        _ => {}
    }
}

/// Refuses `metadata`, except for the namespace of a local review.
fn check_metadata(call: &Call<'_>, object: &Object, errors: &mut Vec<FieldError>) {
    let is_local = &*call.resource.table.kind == "LocalSubjectAccessReview";
    let metadata = StructView::from_object(object).child("metadata");
    if metadata.members().any(|(name, value)| !(is_local && name == "namespace" || is_empty(value))) {
        let why = if is_local { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid("metadata", &metadata_error_value(call, object), why));
    }
}

/// Refuses a local review about a namespace other than its own, or about a path.
fn check_local(
    object: &Object,
    resource: Option<&Value>,
    non_resource: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let namespace = resource.map(|resource| resource.str_at(&["namespace"]));
    if let Some(namespace) = namespace.filter(|namespace| *namespace != meta(object, "namespace")) {
        errors.push(FieldError::invalid(
            "spec.resourceAttributes.namespace",
            &namespace.into(),
            "must match metadata.namespace",
        ));
    }
    if let Some(given) = non_resource {
        errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            &non_resource_error_value(given),
            "disallowed on this kind of request",
        ));
    }
}

/// Returns the path attributes for error messages: both members, with the names of the internal type.
fn non_resource_error_value(given: &Value) -> Value {
    let mut object = Object::new();
    object.push("Path", given.str_at(&["path"]).into());
    object.push("Verb", given.str_at(&["verb"]).into());
    object.into()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        value => value.is_null(),
    }
}

/// Returns the metadata of a review for error messages, with the managed fields of the writer.
fn metadata_error_value(call: &Call<'_>, object: &Object) -> Value {
    let mut tracked = object.clone();
    let manager = ownership::manager(&call.request.query, call.request.headers());
    let (registry, resource, endpoint) = (call.request.types().registry(), call.resource, Endpoint::Main);
    Tracking { registry, resource, endpoint, manager: &manager, conversions: &Conversions::default() }
        .create(&mut tracked);
    let mut metadata = tracked.get("metadata").cloned().unwrap_or_default();
    let entries = metadata.as_object_mut().and_then(|metadata| metadata.get_mut("managedFields"));
    let entries = entries.and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
        // In a tree the field set is text.
        let fields =
            entry.get("fieldsV1").and_then(Value::as_str).and_then(|text| parse(text.as_bytes()).ok());
        if let Some(fields) = fields {
            entry.insert("fieldsV1", fields);
        }
    }
    metadata
}

/// Returns the user that a review is about.
fn reviewed_user(spec: Option<&Object>) -> User {
    let text = |name: &str| {
        spec.and_then(|spec| spec.get(name)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let extra = spec.and_then(|spec| spec.get("extra")).and_then(Value::as_object);
    let extra = extra.into_iter().flat_map(Object::iter);
    User {
        name: text("user"),
        uid: text("uid"),
        groups: string_list(spec.and_then(|spec| spec.get("groups"))),
        extra: extra.map(|(name, values)| (name.to_owned(), string_list(Some(values)))).collect(),
    }
}

/// Returns the permissions of the caller in a namespace, as lists of rules.
fn rules_review(call: &Call<'_>, object: &Object) -> Result<Object, Status> {
    let namespace = at(object, "spec.namespace").and_then(Value::as_str).unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let listed = call.server().access.authorizer.rules_for(call.proof.user(), namespace);
    let mut resource_rules = Vec::new();
    let mut non_resource_rules = Vec::new();
    let mut push = |rule: &Rule| {
        let mut entry = Object::new();
        entry.push("verbs", rule.verbs.as_slice().into());
        let members: [(&'static str, &Vec<String>); 3] = [
            ("apiGroups", &rule.api_groups),
            ("resources", &rule.resources),
            ("resourceNames", &rule.resource_names),
        ];
        if !rule.non_resource_urls.is_empty() {
            entry.push("nonResourceURLs", rule.non_resource_urls.as_slice().into());
            non_resource_rules.push(Value::Object(entry));
            return;
        }
        for (name, list) in members.into_iter().filter(|(_, list)| !list.is_empty()) {
            entry.push(name, list.as_slice().into());
        }
        resource_rules.push(Value::Object(entry));
    };
    listed.rules.iter().for_each(&mut push);
    let mut status = Object::new();
    status.push("resourceRules", Value::Array(resource_rules));
    status.push("nonResourceRules", Value::Array(non_resource_rules));
    status.push("incomplete", listed.is_incomplete.into());
    if let Some(error) = go::join_errors(&listed.errors) {
        status.push("evaluationError", error.into());
    }
    Ok(status)
}

/// Returns the status of the store and of the two components that the reference server probes on its own
/// host.
async fn component_status(call: &Call<'_>) -> Result<Response, Status> {
    let message = &call.resource.table.message;
    let name = call.info.name.as_str();
    let verb = call.info.verb;
    if verb == Verb::Get {
        let component = match PROBED.iter().find(|(known, _)| *known == name) {
            Some(&(name, port)) => component(call, name, probed(port).await),
            None if name == STORE_COMPONENT => stored(call),
            None => {
                return Err(Status::not_found(Subject { group: "", kind: "componentstatus", name }));
            }
        };
        return Renderer::respond_foreign(&call.output, StatusCode::OK, message, &component);
    }
    let meta_group = call.server().types.naming.meta_group();
    let is_watch = verb == Verb::Watch;
    let options = ListOptions::from_query(&call.request.query, call.selection()?, is_watch, &meta_group)?;
    if is_watch {
        return Err(Status::not_supported(verb.as_str(), call.subject("")));
    }
    refuse_object_transform(&call.output, call.resource)?;
    let probed = PROBED.map(|(name, port)| async move { component(call, name, probed(port).await) });
    let mut components = vec![stored(call)];
    components.extend(join_all(probed).await);
    let mut listed = Vec::new();
    for component in components {
        let name = meta(&component, "name");
        if options.selection.matches_object(name, "", &call.resource.table, &component) {
            let mut encoded = Vec::new();
            encode(message, &component, &mut encoded);
            listed.push(encoded.into());
        }
    }
    call.renderer()?.respond_foreign_list(call.store().revision(), &listed)
}

/// Returns the component status of the store.
fn stored(call: &Call<'_>) -> Object {
    let health = call.store().health();
    let mut store = component(
        call,
        STORE_COMPONENT,
        health.as_ref().map(|()| "ok".to_owned()).map_err(|_| String::new()),
    );
    if let Err(error) = health
        && let Some(Value::Array(conditions)) = store.get_mut("conditions")
        && let Some(condition) = conditions.first_mut().and_then(Value::as_object_mut)
    {
        condition.push("error", error.to_string().into());
    }
    store
}

/// Returns a component with its health condition.
fn component(call: &Call<'_>, name: &str, health: Result<String, String>) -> Object {
    let mut condition = Object::new();
    condition.push("type", "Healthy".into());
    condition.push("status", if health.is_ok() { "True" } else { "False" }.into());
    let message = health.unwrap_or_else(|why| why);
    if !message.is_empty() {
        condition.push("message", message.into());
    }
    let mut component = Object::new();
    component.push("kind", call.resource.table.kind.clone().into());
    component.push("apiVersion", call.resource.api_version.as_str().into());
    component.object_entry("metadata").insert("name", name.into());
    component.push("conditions", Value::Array(vec![condition.into()]));
    component
}

/// Returns the text with which a component on this host reports its health.
///
/// # Errors
/// The reason why the component did not answer or is not healthy.
async fn probed(port: u16) -> Result<String, String> {
    let tls = ClientTls::new(&Credentials { is_unverified: true, ..Credentials::default() })?;
    let endpoint = outgoing::Endpoint::at_port("127.0.0.1", port, "/healthz", Some(&tls))?;
    let answered = outgoing::get_at_most(&endpoint, HeaderMap::new(), PROBED_WITHIN, HEALTH_BYTES_MAX).await;
    let (head, said) = answered.map_err(|failure| failure.to_string())?;
    match head.status.as_u16() {
        200..400 => Ok(String::from_utf8_lossy(&said).into_owned()),
        code => Err(format!("HTTP probe failed with statuscode: {code}")),
    }
}

/// Components of the control plane, with the ports of their health endpoints.
const PROBED: [(&str, u16); 2] = [("controller-manager", 10257), ("scheduler", 10259)];

/// Time limit of a probe, and maximum size of its response.
const PROBED_WITHIN: Duration = Duration::from_secs(20);
const HEALTH_BYTES_MAX: usize = 10 * 1024;

/// Name of the component status of the store.
const STORE_COMPONENT: &str = "etcd-0";
