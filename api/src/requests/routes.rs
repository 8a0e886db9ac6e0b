//! Routes: which resource, document or stream a permitted request gets, and which requests are refused
//! because their path or method is unknown.
//!
//! ```text
//! Permitted ─┬─ version of an extension server: pass it on
//!            ├─ resource that only another server on the same store serves: pass it on
//!            ├─ resource: known? ─► scope ─► method ─► negotiate ─► read the body ─► verb ─► compress, warn
//!            └─ other path: backup · health · metrics · flow control · version · discovery · OpenAPI
//! ```
//!
//! This module knows which verbs a resource has, but not what they do.

mod charging;
#[cfg(test)]
mod deprecated_test;
mod passing;

use std::fmt::Write;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use auth::Authorized;
use bytes::Bytes;
use go::duration;
use http::header::WARNING;
use http::request::Parts as Head;
use http::{Method, StatusCode};

pub use self::charging::charged;
use self::charging::{Relay, document_at};
use self::passing::{elsewhere, forward, pass_on};
use crate::requests::verbs::{self, Call, Wire};
use crate::requests::{counted, large_requests, scrape};
use crate::state::audit::Trail;
use crate::state::backup;
use crate::state::debug;
use crate::state::fairness;
use crate::state::health;
use crate::state::log_files;
use crate::state::zpages;
use crate::writes::context::Context;
use objects::conversion::Conversions;
use objects::negotiate::{Encoding, Objects, Offer, Output, Transform};
use objects::representation::{self, answer::respond_status};
use objects::request::{RequestInfo, Verb};
use objects::store::{self, Part, Pending};
use objects::strategy::Endpoint;
use types::features::Feature;
use types::schema::registry::{Registry, Resource};
use types::served::Served;
use values::memory::{Account, Charge, MemoryExhausted};
use values::query::Query;
use values::status::{Status, StatusReason, Subject};
use values::warning;
use wire::compress;
use wire::response::{Response, respond_text};
use wire::server::upgrade::{Switch, attach};
use wire::server::websocket::Upgrade;
use wire::server::{BODY_BYTES_MAX, Body, BodyError, Incoming, read_charged};

/// A permitted request with everything that is needed to serve it.
pub struct Permitted<'e> {
    /// The components of the server.
    pub context: &'e Context,
    /// The types that were served when the request began.
    pub types: &'e Arc<Served>,
    /// Method, URL and headers of the request.
    pub head: &'e Head,
    /// Query parameters of the URL.
    pub query: &'e Query,
    /// Parsed method and URL.
    pub info: &'e RequestInfo,
    /// Proof that the request was authorized.
    pub proof: &'e Authorized<'e>,
    /// The request body, which was not read yet.
    pub incoming: Incoming,
    /// Representation of error responses.
    pub errors: &'e Output,
    /// Whether the client asked for indented text.
    pub pretty: bool,
    /// The audit trail of the request, if it has one.
    pub trail: Option<&'e Trail>,
    /// Time at which the head of the request was read.
    pub received: Instant,
    /// IP address of the client.
    pub peer: IpAddr,
    /// Account that memory for the response is charged to.
    pub account: Account,
    /// Resolves when the store has all writes that were acknowledged before the request. `None` if the
    /// pipeline did not start this check in advance.
    pub newest: Option<Pending<'e, Result<(), Status>>>,
}

/// Serves a permitted request.
///
/// # Errors
/// The status is the response to send instead.
pub async fn serve(request: Permitted<'_>) -> Result<Response, Status> {
    // Clients cannot set a deadline for streams.
    let timeout = request.query.first("timeout").filter(|text| !text.is_empty());
    if let Some(text) = timeout.filter(|_| !request.info.is_long_running())
        && let Err(error) = duration::parse(text)
    {
        let message = format!("invalid timeout specified in the request URL - {error}");
        return Err(Status::bad_request(message));
    }
    // Such a path is authorized like the path it resembles, and has no route.
    if request.info.path.starts_with("//") {
        return Ok(not_found_page());
    }
    if let Some(extension) = request.context.extensions().of_path(&request.info.path) {
        let relay = Relay::begin(&request)?;
        return Ok(relay.charge(Box::pin(forward(request, &extension)).await?));
    }
    // The version's OpenAPI document comes from the extension server too.
    if let Some(version) = request.info.path.strip_prefix("/openapi/v3")
        && let Some(extension) = request.context.extensions().of_path(version.trim_end_matches('/'))
        && extension.has_openapi()
    {
        let relay = Relay::begin(&request)?;
        return Ok(relay.charge(Box::pin(forward(request, &extension)).await?));
    }
    let servers = elsewhere(&request);
    if !servers.is_empty() {
        let relay = Relay::begin(&request)?;
        return Ok(relay.charge(Box::pin(pass_on(request, servers)).await?));
    }
    if request.info.is_resource {
        serve_resource(request).await
    } else {
        serve_charged_document(request).await
    }
}

/// Serves a path outside the resource API; memory for the response is charged before it is produced.
async fn serve_charged_document(request: Permitted<'_>) -> Result<Response, Status> {
    let (account, errors) = (request.account.clone(), request.errors);
    let Some(document) = document_at(&request.info.path) else {
        return Ok(charged(serve_document(request).await?, &account, errors));
    };
    let (charge, _) = account.document(document).await.map_err(Status::no_memory)?;
    let response = serve_document(request).await?;
    let bytes = response.body().uncharged_bytes();
    if bytes == 0 {
        return Ok(response);
    }
    let charge = account.made(document, bytes, charge).map_err(Status::no_memory)?;
    Ok(response.map(|body| body.charged(charge)))
}

/// Serves requests for a resource or one of its subresources.
async fn serve_resource(request: Permitted<'_>) -> Result<Response, Status> {
    let Permitted { types, head, info, errors, .. } = request;
    let Some(resource) = types.registry().resource(&info.group, &info.version, &info.resource) else {
        let mut resources = types.registry().resources();
        // All paths below a built-in group belong to it; custom resources have only the paths that they
        // serve.
        let is_built_in =
            |resource: &Resource| resource.group == info.group && !resource.table.message.custom;
        if !resources.any(|resource| is_built_in(resource)) {
            return Ok(not_found_page());
        }
        return Err(Status::no_such_route());
    };
    if resource.table.message.custom {
        if !has_custom_path(resource, info) {
            return Ok(not_found_page());
        }
        if let Some(fault) = resource.fault() {
            let name = format!("{}.{}", info.resource, info.group);
            return Err(Status::internal(format!("type of definition {name} cannot be served: {fault}")));
        }
    } else {
        check_scope(resource, info)?;
        check_method(head, resource, info)?;
    }
    match serve_routed(request, resource).await {
        // Requests that are refused before the verb begins also get the warning.
        Err(status) if !resource.table.deprecated.is_empty() => {
            let mut response = respond_status(&status, errors);
            warn(&mut response, &[deprecation(resource)]);
            Ok(response)
        }
        result => result,
    }
}

/// Serves requests for a resource that have a route.
async fn serve_routed(request: Permitted<'_>, resource: &Arc<Resource>) -> Result<Response, Status> {
    let connects = resource
        .table
        .subresources
        .iter()
        .any(|table| table.connect && table.name == request.info.subresource);
    let relays = connects || request.info.subresource == "log";
    let relay = relays.then(|| Relay::begin(&request)).transpose()?;
    let Permitted {
        context,
        types,
        head,
        query,
        info,
        proof,
        incoming,
        errors,
        trail,
        received,
        peer,
        newest,
        ..
    } = request;
    let account = request.account;
    let is_custom = resource.table.message.custom;
    let mut applies = false;
    let refused = |status: Status, applies: bool| {
        let labels = counted::labels(resource, info, query, applies);
        // Dropping the measurement counts the request.
        drop(context.metrics().requests.measure(labels, status.code, received));
        status
    };
    // The reference server checks media types before it passes a request to the handler of a built-in type,
    // which counts requests; the handler of custom types checks media types itself.
    let refused_by_form = |status| if is_custom { refused(status, false) } else { status };
    if is_custom {
        check_custom_method(resource, info)?;
        // Requests that are refused from here on count as uses of the deprecated version.
        note_deprecated(context, resource, info, trail);
        check_custom_request(context, head, resource, info).map_err(refused_by_form)?;
    }
    let offer = match info.verb {
        Verb::Watch => Offer::Watch,
        Verb::List => Offer::List,
        _ => Offer::Object,
    };
    let formats = context.formats().of(objects(resource, info));
    let output = formats.output(&head.headers, query, offer).map_err(refused_by_form)?;
    let mut wire = None;
    let mut charges = None;
    let mut bytes = 0;
    let body = match info.verb {
        _ if connects => {
            let switch = head.extensions.get::<Switch>().cloned();
            wire = Some(Wire { head, incoming, switch, peer });
            Bytes::new()
        }
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
            match info.verb {
                Verb::Create | Verb::Update => {
                    formats.input(&head.headers).map_err(refused_by_form)?;
                }
                Verb::Patch => {
                    applies = verbs::patch::kind_of(resource, context.formats(), &head.headers)?.is_apply();
                }
                _ => {}
            }
            let refused = |status| refused(status, applies);
            let (body, held) = read(context, incoming, &account).await.map_err(refused)?;
            let stored_bytes = stored_bytes(context, resource, info);
            bytes = body.len() + stored_bytes;
            let work = context.memory().work(body.len(), stored_bytes).await;
            charges = Some((held, work.map_err(|error| refused(Status::no_memory(error)))?));
            let labels = [&*resource.group, &*resource.table.plural, counted::body_verb(info.verb)];
            context.metrics().requests.bodies.record(&labels, body.len() as u64);
            body
        }
        // Any other encoding is rendered from the stored form, so charge its size as well.
        Verb::Get if output.encoding != Encoding::Json || output.transform != Transform::None => {
            bytes = stored_bytes(context, resource, info);
            Bytes::new()
        }
        _ => Bytes::new(),
    };
    if !body.is_empty() && matches!(info.verb, Verb::Delete | Verb::DeleteCollection) {
        context.formats().input(&head.headers).map_err(refused_by_form)?;
    }
    let conversions = Conversions::default();
    let mut call = Call {
        api: context,
        types,
        proof,
        derived_from: None,
        info,
        resource,
        query,
        headers: &head.headers,
        user: proof.user(),
        output,
        upgrade: head.extensions.get::<Upgrade>().cloned(),
        wire,
        warnings: Vec::new(),
        conversions: &conversions,
        trail,
        account: account.clone(),
    };
    if !resource.table.deprecated.is_empty() {
        call.warnings.push(deprecation(resource));
    }
    // The handler of a built-in type begins here, so the use of a deprecated version is noted here.
    if !is_custom {
        note_deprecated(context, resource, info, trail);
    }
    let inflight = (!info.is_long_running()).then(|| context.metrics().requests.enter(!is_read(info.verb)));
    let began = Instant::now();
    let result = large_requests::beside_others(bytes, pin!(run(&mut call, &body, newest))).await;
    if matches!(info.verb, Verb::Create | Verb::Update | Verb::Patch) {
        let labels = [shown_validation(query.first("fieldValidation"))];
        context.metrics().field_validations.time(&labels, began.elapsed());
    }
    let result = match relay {
        Some(relay) => result.map(|response| relay.charge(response)),
        None => result,
    };
    drop((inflight, charges, body));
    let warnings = std::mem::take(&mut call.warnings);
    let mut response = match result {
        Ok(response)
            if info.is_long_running()
                || !context.features().has(Feature::ApiResponseCompression)
                || !compress::is_accepted(&head.headers) =>
        {
            response
        }
        Ok(response) => compress::gzip(charged(response, &account, errors), &account).await,
        Err(status) => respond_status(&status, errors),
    };
    warn(&mut response, &warnings);
    let labels = counted::labels(resource, info, query, applies);
    if info.is_long_running()
        && let Some(open) = context.metrics().requests.open(labels)
    {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            attach(&response, open);
        } else {
            response = response.map(|body| body.with(open));
        }
    }
    let measured = context.metrics().requests.measure(labels, response.status(), received);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        attach(&response, measured);
        return Ok(response);
    }
    if hyper::body::Body::is_end_stream(response.body()) {
        return Ok(response); // dropping the measurement counts the request
    }
    Ok(match measured {
        Some(measured) => response.map(|body| body.observed(measured)),
        None => response,
    })
}

/// Adds the warnings to the response headers.
fn warn(response: &mut Response, warnings: &[String]) {
    for header in warning::headers(warnings) {
        response.headers_mut().append(WARNING, header);
    }
}

fn is_read(verb: Verb) -> bool {
    matches!(verb, Verb::Get | Verb::List | Verb::Watch)
}

/// Reads the request body, within its limits.
async fn read(context: &Context, incoming: Incoming, account: &Account) -> Result<(Bytes, Charge), Status> {
    let timeout = context.limits().request_timeout;
    read_charged(incoming, BODY_BYTES_MAX, timeout, account).await.map_err(|error| match error {
        BodyError::NoMemory => Status::no_memory(MemoryExhausted::Busy),
        BodyError::TooLarge => Status::too_large(BODY_BYTES_MAX),
        BodyError::Timeout => {
            Status::new(StatusReason::Timeout, "Timeout: request body did not arrive in time")
        }
        BodyError::Disconnected => Status::bad_request("unable to read the request body"),
    })
}

/// Returns the size of the stored object that a request changes, or shows in another representation; 0 if the
/// request names no object.
fn stored_bytes(context: &Context, resource: &Resource, info: &RequestInfo) -> usize {
    if info.name.is_empty() || resource.storage.is_none() {
        return 0;
    }
    let key = store::key(resource, info.namespace_of(resource), &info.name);
    context.open_for(Part::Estimates).entry(&key).map_or(0, |entry| entry.stored_len())
}

/// Serves paths outside the resource API.
async fn serve_document(request: Permitted<'_>) -> Result<Response, Status> {
    let Permitted { context, types, head, query, info, proof, incoming, pretty, account, .. } = request;
    let path = info.path.as_str();
    let engine = context.engine_for_path(proof, path);
    if path == backup::PATH {
        let source = backup::BackupSource {
            engine,
            backups: context.backups(),
            shutdown: context.lifecycle().shutdown(),
            naming: context.naming(),
        };
        return backup::respond(source, &head.method, &read(context, incoming, &account).await?.0).await;
    }
    if context.edge().is_debugged {
        let asked =
            debug::DebugRequest { method: &head.method, path, query: head.uri.query().unwrap_or_default() };
        let body = if asked.has_body() { read(context, incoming, &account).await?.0 } else { Bytes::new() };
        if let Some(response) = context.debugging().respond_to(asked, &body).await {
            return Ok(response);
        }
    }
    let checked = health::HealthInputs {
        backends: context.backends(),
        stage: context.lifecycle().stage(),
        naming: context.naming(),
        within_grace: context.is_within_livez_grace(),
        secrecy: context.secrecy().map(|secrecy| &**secrecy),
        is_shared: context.fairness().is_shared(),
        has_certificate: context.extensions().settings().certificate.is_some(),
        metrics: context.metrics(),
    };
    if let Some(response) = health::respond(&checked, path, query) {
        return Ok(response);
    }
    let sources = scrape::Sources {
        metrics: context.metrics(),
        engine,
        backends: context.backends(),
        registry: types.registry(),
        fairness: context.fairness(),
        features: context.features(),
        version: context.version(),
        memory: context.memory(),
    };
    if let Some(response) = scrape::respond_to(&sources, &head.method, path) {
        return Ok(response);
    }
    if let Some(response) = fairness::respond(context.fairness(), path, query) {
        return Ok(response);
    }
    if let Some(files) = context.log_files()
        && let Some(answer) = log_files::respond_to(files, &account, &head.method, path, &head.headers).await
    {
        return answer;
    }
    let pages = zpages::ZpagesSources {
        naming: context.naming(),
        features: context.features(),
        version: context.version(),
        flags: context.flags(),
        age: context.age(),
    };
    if let Some(answer) = zpages::respond_to(&pages, path, &head.headers) {
        return answer;
    }
    if let Some(documents) = context.tokens().documents()
        && let Some(answer) = documents.respond(&head.method, path, &head.headers)
    {
        return answer;
    }
    let response = if path.strip_suffix('/').unwrap_or(path) == "/version" {
        Some(context.version().respond(&head.headers)?.map(Into::into))
    } else if let Some(answer) = types.discovery().respond(path, &head.headers, pretty) {
        let body: fn(Bytes) -> Body = if answer.is_shared { Body::shared } else { Body::from };
        Some(representation::discovery(context.naming(), answer)?.map(body))
    } else {
        types.openapi().respond(path, head.uri.query(), &head.headers).map(|r| r.map(Body::shared))
    };
    match response {
        Some(response) if is_sent_compressed(head, &response) => Ok(compress::gzip(response, &account).await),
        Some(_) if !has_method(context.builtin(), path, &head.method) => Err(Status::method_not_allowed()),
        Some(response) => Ok(response),
        None if is_below_own_prefix(context.builtin(), types.registry(), path) => {
            Err(Status::no_such_route())
        }
        None => Ok(not_found_page()),
    }
}

/// Returns whether the response is the one document that is compressed, for a client that accepts gzip.
fn is_sent_compressed(head: &Head, response: &Response) -> bool {
    head.uri.path() == "/openapi/v2"
        && response.status() == StatusCode::OK
        && compress::is_accepted(&head.headers)
}

/// Returns whether `method` may be used for a document. The index, the list of groups, each group, versions
/// of custom types and the OpenAPI documents accept any method. The resources of a built-in version, the
/// versions of the core group and the server's version are routes for GET only.
fn has_method(builtin: &Registry, path: &str, method: &Method) -> bool {
    let is_below =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if path == "/" || is_below("/openapi") {
        return true;
    }
    if is_below("/apis") {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty()).skip(1);
        let is_built_in = segments.next().is_some_and(|group| builtin.group(group).is_some());
        return !is_built_in || segments.next().is_none() || *method == Method::GET;
    }
    *method == Method::GET
}

/// Returns whether a path is below `/version`, the core group or a group of built-in types. All paths below
/// these prefixes belong to the server. A group does not count if the operator has disabled all its versions.
fn is_below_own_prefix(builtin: &Registry, served: &Registry, path: &str) -> bool {
    if path.starts_with("/api/") || path.starts_with("/version/") {
        return true;
    }
    let below = path.strip_prefix("/apis/").and_then(|rest| rest.split_once('/'));
    let is_own = |group: &str| builtin.group(group).is_some() && served.group(group).is_some();
    below.is_some_and(|(group, rest)| !rest.is_empty() && is_own(group))
}

/// Runs the verb. Verbs with a large state and rare verbs are boxed: otherwise every request would carry
/// space for them.
async fn run(
    call: &mut Call<'_>,
    body: &Bytes,
    newest: Option<Pending<'_, Result<(), Status>>>,
) -> Result<Response, Status> {
    if call.resource.table.storage.is_none() {
        return Box::pin(verbs::reviews::serve(call, body)).await;
    }
    match newest {
        Some(newest) => newest.await?,
        None if !wants_newest(call) => {}
        None if is_read(call.info.verb) => call.api.current(call.resource).await?,
        None => call.api.current_for_write(call.resource).await?,
    }
    if !call.info.subresource.is_empty() {
        return Box::pin(verbs::subresource::serve(call, body)).await;
    }
    match call.info.verb {
        Verb::Get => verbs::read::get(call).await,
        Verb::List => Box::pin(verbs::list::list(call)).await,
        Verb::Watch => verbs::watch::watch(call).await,
        Verb::Create => verbs::write::create(call, body).await,
        Verb::Update => verbs::write::update(call, body, Endpoint::Main).await,
        Verb::Patch => verbs::patch::patch(call, body, Endpoint::Main).await,
        Verb::Delete => verbs::delete::delete(call, body).await,
        Verb::DeleteCollection => Box::pin(verbs::delete::delete_collection(call, body)).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// Returns whether the request must see everything that was acknowledged before it. Reads without a
/// resourceVersion must, and writes that read the store outside the write path
/// (docs/api/etcd.md#consistency).
fn wants_newest(call: &Call<'_>) -> bool {
    match is_read(call.info.verb) {
        true => reads_newest(call.info, call.query),
        false => !call.writes_from_copy(),
    }
}

/// Returns whether the request is a read without a resourceVersion.
pub fn reads_newest(info: &RequestInfo, query: &Query) -> bool {
    let given = |name| query.first(name).is_some_and(|text| !text.is_empty());
    is_read(info.verb) && !given("resourceVersion") && !given("continue")
}

/// Returns the class of objects that an endpoint accepts and returns. The scale of a custom type is a
/// built-in type.
fn objects(resource: &Resource, info: &RequestInfo) -> Objects {
    if resource.table.message.custom && info.subresource != "scale" {
        return Objects::Custom;
    }
    let mut subresources = resource.table.subresources.iter();
    let subresource = subresources.find(|table| table.name == info.subresource);
    // A subresource that can only be posted is an operation on the object, not a part of it.
    let is_posted = subresource.is_some_and(|table| !table.connect && *table.verbs == ["create"]);
    let is_review = resource.table.storage.is_none() && *resource.table.verbs == ["create"];
    if is_posted || is_review { Objects::Operation } else { Objects::Typed }
}

/// Returns whether a custom type has the path. The path must match the scope of the type; the path across all
/// namespaces is only for reads.
fn has_custom_path(resource: &Resource, info: &RequestInfo) -> bool {
    match (resource.namespaced(), info.namespace.is_empty()) {
        (true, true) => matches!(info.verb, Verb::List | Verb::Watch),
        (namespaced, without_namespace) => namespaced != without_namespace,
    }
}

/// Returns 404 for subresources that a custom type does not have, and 405 for verbs that it does not have.
fn check_custom_method(resource: &Resource, info: &RequestInfo) -> Result<(), Status> {
    let subject = Subject { group: &resource.group, kind: &resource.table.plural, name: &info.name };
    let verbs: &[&str] = if info.subresource.is_empty() {
        resource.table.verbs
    } else {
        let mut subresources = resource.table.subresources.iter();
        let Some(table) = subresources.find(|table| table.name == info.subresource) else {
            return Err(Status::not_found(subject));
        };
        table.verbs
    };
    let verb = info.verb.as_str();
    if verbs.contains(&verb) { Ok(()) } else { Err(Status::not_supported(verb, subject)) }
}

/// Returns 415 for kinds of patches that custom types do not support, and 400 for a request that needs a name
/// and has none.
fn check_custom_request(
    context: &Context,
    head: &Head,
    resource: &Resource,
    info: &RequestInfo,
) -> Result<(), Status> {
    if info.verb == Verb::Patch {
        verbs::patch::kind_of(resource, context.formats(), &head.headers)?;
    }
    let needs_name = matches!(info.verb, Verb::Get | Verb::Update | Verb::Patch | Verb::Delete);
    if needs_name && info.name.is_empty() {
        return Err(Status::bad_request("name must be provided"));
    }
    Ok(())
}

/// Checks that the path matches the scope: a cluster-scoped resource has no namespaced path, and a namespaced
/// one is written only inside a namespace.
fn check_scope(resource: &Resource, info: &RequestInfo) -> Result<(), Status> {
    // A namespace object counts as being in its own namespace, so the segments of the path are checked.
    let mut segments = info.path.split('/').skip_while(|segment| *segment != "namespaces");
    let is_namespace = info.resource == "namespaces" && segments.nth(2) != Some("namespaces");
    let namespaced_path = !info.namespace.is_empty() && !is_namespace;
    if namespaced_path != resource.namespaced() && (namespaced_path || info.name_in_path) {
        return Err(Status::no_such_route());
    }
    if resource.namespaced() && !namespaced_path {
        // The path for all namespaces exists only for resources with a list verb, and only for reads.
        if !resource.table.verbs.contains(&"list") {
            return Err(Status::no_such_route());
        }
        if !matches!(info.verb, Verb::List | Verb::Watch) {
            return Err(Status::method_not_allowed());
        }
    }
    if !info.subpath.is_empty() && info.subresource != "proxy" {
        return Err(Status::no_such_route());
    }
    Ok(())
}

/// Returns 405 for verbs that the resource does not have, and 404 for subresources that it does not have.
fn check_method(head: &Head, resource: &Resource, info: &RequestInfo) -> Result<(), Status> {
    if info.verb == Verb::Proxy {
        // These legacy paths are still recognized for authorization, but no longer served.
        return Err(Status::no_such_route());
    }
    if info.legacy_watch && !(info.subresource.is_empty() && resource.can("watch")) {
        return Err(Status::no_such_route()); // only resources that can be watched have such a path
    }
    if info.legacy_watch && !matches!(head.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    if !info.subresource.is_empty() {
        let known = resource.table.subresources.iter().find(|table| table.name == info.subresource);
        let Some(table) = known else { return Err(Status::no_such_route()) };
        if table.connect && info.subresource == "proxy" {
            return Ok(()); // the target of a proxy may support any method
        }
        return if table.verbs.contains(&info.verb.as_str()) && head.method != Method::HEAD {
            Ok(())
        } else {
            Err(Status::method_not_allowed())
        };
    }
    const ON_ITEMS: [&str; 4] = ["get", "update", "patch", "delete"];
    if info.name_in_path && !resource.table.verbs.iter().any(|verb| ON_ITEMS.contains(verb)) {
        return Err(Status::no_such_route()); // a resource for commands only, which has no items
    }
    let wants_name = matches!(info.verb, Verb::Get | Verb::Update | Verb::Patch | Verb::Delete);
    let is_create_on_item = info.verb == Verb::Create && info.name_in_path;
    // A watch of a resource that can only be listed has the path of the list, which refuses it.
    let known = resource.can(info.verb.as_str()) || info.verb == Verb::Watch && resource.can("list");
    let is_unrouted = matches!(head.method, Method::OPTIONS | Method::HEAD);
    if !known || is_create_on_item || wants_name && info.name.is_empty() || is_unrouted {
        return Err(Status::method_not_allowed());
    }
    Ok(())
}

/// Returns the metric label for the unknown-field policy of a request.
fn shown_validation(asked: Option<&str>) -> &'static str {
    match asked {
        None | Some("") => "",
        Some("Ignore") => "Ignore",
        Some("Warn") => "Warn",
        Some("Strict") => "Strict",
        Some(_) => "invalid",
    }
}

/// Notes the use of a deprecated version in the metrics and in the audit event.
fn note_deprecated(context: &Context, resource: &Resource, info: &RequestInfo, trail: Option<&Trail>) {
    if resource.table.deprecated.is_empty() {
        return;
    }
    // Custom types do not state when they will be removed.
    let removed = resource.table.behavior.removed;
    let labels = [&*resource.group, removed, &resource.table.plural, &info.subresource, &info.version];
    context.metrics().deprecated.set(&labels, 1);
    if let Some(trail) = trail {
        trail.annotate(context.naming().own("deprecated"), true.to_string());
        if !removed.is_empty() {
            trail.annotate(context.naming().own("removed-release"), removed.to_owned());
        }
    }
}

fn deprecation(resource: &Resource) -> String {
    let table = &resource.table;
    if table.message.custom {
        return table.deprecated.clone().into_owned();
    }
    let mut text = format!("{} {} is deprecated in v{}+", resource.api_version, table.kind, table.deprecated);
    if !table.behavior.removed.is_empty() {
        let _ = write!(text, ", unavailable in v{}+", table.behavior.removed);
    }
    if !table.behavior.replacement.is_empty() {
        text.push_str("; use ");
        text.push_str(table.behavior.replacement);
    }
    text
}

/// Returns the response for paths without a known prefix.
fn not_found_page() -> Response {
    respond_text(StatusCode::NOT_FOUND, "404 page not found\n")
}
