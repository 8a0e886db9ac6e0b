//! Requests for a resource that has a route: media types, body, verb, and the metrics about them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;

use super::body::read;
use super::charging::{Relay, charged};
use super::checks::{check_custom_method, check_custom_request};
use super::deprecated::{deprecation, note_deprecated, warn};
use crate::requests::history;
use crate::requests::past;
use crate::requests::request::{Permitted, Request};
use crate::requests::verbs::{self, Call, Wire};
use crate::requests::{large_requests, request_labels};
use objects::negotiate::{Encoding, Formats, Objects, Offer, Output, Transform};
use objects::representation::answer::respond_status;
use objects::request::{HistoryVerb, RequestInfo, Verb};
use objects::store::{self, Component, Pending};
use objects::strategy::Endpoint;
use types::features::Feature;
use types::schema::registry::Resource;
use values::memory::Charge;
use values::query::Query;
use values::status::Status;
use wire::compress;
use wire::metrics::requests::Labels;
use wire::response::Response;
use wire::server::Incoming;
use wire::server::upgrade::{Switch, attach};
use wire::server::websocket::Upgrade;

/// Serves a request for a resource that has a route.
pub(super) async fn serve(permitted: Permitted<'_>, resource: &Arc<Resource>) -> Result<Response, Status> {
    let Permitted { request, proof, incoming, newest } = permitted;
    let mut routed = Routed::new(request, resource);
    let relay = routed.is_relayed().then(|| Relay::begin(request)).transpose()?;
    routed.check()?;
    let formats = request.server().types.formats.with_objects(objects(resource, &request.info));
    let offer = match request.info.verb {
        Verb::Watch => Offer::Watch,
        Verb::List => Offer::List,
        _ => Offer::Object,
    };
    let output = formats.output(request.headers(), &request.query, offer);
    let output = output.map_err(|status| routed.refused_by_form(status))?;
    let mut input = routed.read(incoming, formats, output).await?;
    let mut call = Call {
        request,
        proof,
        derived_from: None,
        info: &request.info,
        resource,
        output,
        upgrade: request.head.extensions.get::<Upgrade>().cloned(),
        wire: input.wire.take(),
        warnings: Vec::new(),
    };
    if !resource.table.deprecated.is_empty() {
        call.warnings.push(deprecation(resource));
    }
    // The handler of a built-in type begins here, so the use of a deprecated version is recorded here.
    if !routed.is_custom() {
        note_deprecated(request, resource);
    }
    let result = routed.run(&mut call, input, newest).await;
    let result = match relay {
        Some(relay) => result.map(|response| relay.charge(response)),
        None => result,
    };
    let mut response = routed.encoded(result).await;
    warn(&mut response, &call.warnings);
    Ok(routed.measured(response))
}

/// A request for a resource that has a route, with the data that its metrics need.
struct Routed<'r> {
    request: &'r Request<'r>,
    resource: &'r Arc<Resource>,
    /// Whether the request opens a connection through the server.
    connects: bool,
    /// Whether the request is an apply. The value is valid after the kind of the patch has been read.
    applies: bool,
}

/// The body of a request, and the memory that is charged for the request until its verb has ended.
#[derive(Default)]
struct Input {
    body: Bytes,
    /// Body and connection, if the request is for a connection through the server.
    wire: Option<Wire>,
    /// Size of the body and of the stored object that the verb reads.
    bytes: usize,
    /// Charges for the body and for the memory that its processing needs.
    charges: Option<(Charge, Charge)>,
}

impl<'r> Routed<'r> {
    fn new(request: &'r Request<'r>, resource: &'r Arc<Resource>) -> Self {
        let mut subresources = resource.table.subresources.iter();
        let connects = subresources.any(|table| table.connect && table.name == request.info.subresource);
        Routed { request, resource, connects, applies: false }
    }

    /// Returns whether another server or the agent of a node gives the response.
    fn is_relayed(&self) -> bool {
        self.connects || self.request.info.subresource == "log"
    }

    fn is_custom(&self) -> bool {
        self.resource.table.message.custom
    }

    fn labels(&self) -> Labels<'r> {
        request_labels::labels(self.resource, &self.request.info, &self.request.query, self.applies)
    }

    /// Counts a request that is refused before its verb runs.
    fn refused(&self, status: Status) -> Status {
        let requests = &self.request.server().operations.metrics.requests;
        // Dropping the measurement counts the request.
        drop(requests.measure(self.labels(), status.code, self.request.received));
        status
    }

    /// Counts a request for a custom type that is refused because of its media types. The reference server
    /// checks media types before it passes a request to the handler of a built-in type, which counts requests;
    /// the handler of custom types checks media types itself.
    fn refused_by_form(&self, status: Status) -> Status {
        if self.is_custom() { self.refused(status) } else { status }
    }

    /// Checks the method and the media type of a request for a custom type.
    fn check(&self) -> Result<(), Status> {
        let (request, resource) = (self.request, self.resource);
        if !self.is_custom() {
            return Ok(());
        }
        check_custom_method(resource, &request.info)?;
        // Requests that are refused after this line count as uses of the deprecated version.
        note_deprecated(request, resource);
        let checked = check_custom_request(request.server(), &request.head, resource, &request.info);
        checked.map_err(|status| self.refused_by_form(status))
    }

    /// Reads the body, if the verb has one, and checks its media type.
    async fn read(&mut self, incoming: Incoming, formats: Formats, output: Output) -> Result<Input, Status> {
        let (request, headers) = (self.request, self.request.headers());
        match request.info.verb {
            _ if self.connects => {
                let switch = request.head.extensions.get::<Switch>().cloned();
                Ok(Input { wire: Some(Wire { incoming, switch }), ..Input::default() })
            }
            Verb::Create | Verb::Update => {
                formats.input(headers).map_err(|status| self.refused_by_form(status))?;
                self.read_body(incoming).await
            }
            Verb::Patch => {
                let kind = verbs::patch::kind_of(self.resource, request.server().types.formats, headers)?;
                self.applies = kind.is_apply();
                self.read_body(incoming).await
            }
            Verb::Delete | Verb::DeleteCollection => {
                let input = self.read_body(incoming).await?;
                if !input.body.is_empty() {
                    let checked = request.server().types.formats.input(headers);
                    checked.map_err(|status| self.refused_by_form(status))?;
                }
                Ok(input)
            }
            // Any other encoding is rendered from the stored form, so charge its size as well.
            Verb::Get if output.encoding != Encoding::Json || output.transform != Transform::None => {
                Ok(Input { bytes: stored_bytes(request, self.resource), ..Input::default() })
            }
            _ => Ok(Input::default()),
        }
    }

    async fn read_body(&self, incoming: Incoming) -> Result<Input, Status> {
        let (server, resource) = (self.request.server(), self.resource);
        let (body, held) = read(self.request, incoming).await.map_err(|status| self.refused(status))?;
        let stored_bytes = stored_bytes(self.request, resource);
        let work = server.operations.memory.work(body.len(), stored_bytes).await;
        let work = work.map_err(|error| self.refused(Status::no_memory(error)))?;
        let labels =
            [&*resource.group, &*resource.table.plural, request_labels::body_verb(self.request.info.verb)];
        server.operations.metrics.requests.bodies.record(&labels, body.len() as u64);
        Ok(Input { bytes: body.len() + stored_bytes, body, wire: None, charges: Some((held, work)) })
    }

    /// Runs the verb, and releases the charges for the body.
    async fn run(
        &self,
        call: &mut Call<'r>,
        input: Input,
        newest: Option<Pending<'_, Result<(), Status>>>,
    ) -> Result<Response, Status> {
        let (info, metrics) = (&self.request.info, &self.request.server().operations.metrics);
        let Input { body, bytes, charges, .. } = input;
        let inflight = (!info.is_long_running()).then(|| metrics.requests.enter(!is_read(info.verb)));
        let began = Instant::now();
        let result = large_requests::poll_large(bytes, pin!(run(call, &body, newest))).await;
        if matches!(info.verb, Verb::Create | Verb::Update | Verb::Patch) {
            let labels = [validation_metric_label(self.request.query.first("fieldValidation"))];
            metrics.field_validations.time(&labels, began.elapsed());
        }
        drop((inflight, charges));
        result
    }

    /// Returns the response of the verb, compressed if the client accepts compression, or the response for the
    /// error of the verb.
    async fn encoded(&self, result: Result<Response, Status>) -> Response {
        let Request { info, account, errors, .. } = self.request;
        let is_plain = info.is_long_running()
            || !self.request.server().types.features.has(Feature::ApiResponseCompression)
            || !compress::is_accepted(self.request.headers());
        match result {
            Ok(response) if is_plain => response,
            Ok(response) => compress::gzip(charged(response, account, errors), account).await,
            Err(status) => respond_status(&status, errors),
        }
    }

    /// Counts the request when its response has been sent.
    fn measured(&self, mut response: Response) -> Response {
        let requests = &self.request.server().operations.metrics.requests;
        let labels = self.labels();
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if self.request.info.is_long_running()
            && let Some(open) = requests.open(labels)
        {
            if switches {
                attach(&response, open);
            } else {
                response = response.map(|body| body.with(open));
            }
        }
        let measured = requests.measure(labels, response.status(), self.request.received);
        if switches {
            attach(&response, measured);
            return response;
        }
        if hyper::body::Body::is_end_stream(response.body()) {
            return response; // dropping the measurement counts the request
        }
        match measured {
            Some(measured) => response.map(|body| body.observed(measured)),
            None => response,
        }
    }
}

/// Returns the size of the stored object that a request changes or reads; 0 if the request names no object.
fn stored_bytes(request: &Request<'_>, resource: &Resource) -> usize {
    let info = &request.info;
    if info.name.is_empty() || resource.storage.is_none() {
        return 0;
    }
    let key = store::key(resource, info.namespace_of(resource), &info.name);
    let store = request.server().store.open_for(Component::Estimates);
    let entry = match request.past {
        None => store.entry(&key),
        Some(past) => store.about(resource).view_at(past.revision).ok().and_then(|view| view.get(&key)),
    };
    entry.map_or(0, |entry| entry.stored_len())
}

/// Runs the verb. Futures of rare verbs, and of verbs with a large state, are boxed: otherwise the future
/// of every request would contain space for these futures.
async fn run(
    call: &mut Call<'_>,
    body: &Bytes,
    newest: Option<Pending<'_, Result<(), Status>>>,
) -> Result<Response, Status> {
    match call.info.history {
        None => {}
        Some(_) if call.resource.table.storage.is_none() => return Err(Status::no_such_route()),
        Some(HistoryVerb::Log) => return Box::pin(history::log(call)).await,
        Some(HistoryVerb::Restore) => return Box::pin(history::restore(call)).await,
    }
    if call.resource.table.storage.is_none() {
        if call.request.past.is_some() {
            return Err(past::not_stored(call.resource));
        }
        return Box::pin(verbs::reviews::serve(call, body)).await;
    }
    match newest {
        Some(newest) => newest.await?,
        None if !wants_newest(call) => {}
        None if is_read(call.info.verb) => call.server().store.current(call.resource).await?,
        None => call.server().store.current_for_write(call.resource).await?,
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

/// Returns whether the request must read all writes that were acknowledged before the request. The result is
/// true for reads without a resourceVersion, and for writes that read the store outside the write path
/// (docs/api/etcd.md#consistency).
fn wants_newest(call: &Call<'_>) -> bool {
    if is_read(call.info.verb) {
        reads_newest(call.info, &call.request.query)
    } else {
        !call.writes_from_copy()
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
    // A subresource that supports only POST is an operation on the object, not a part of the object.
    let is_posted = subresource.is_some_and(|table| !table.connect && *table.verbs == ["create"]);
    let is_review = resource.table.storage.is_none() && *resource.table.verbs == ["create"];
    if is_posted || is_review { Objects::Operation } else { Objects::Typed }
}

fn is_read(verb: Verb) -> bool {
    matches!(verb, Verb::Get | Verb::List | Verb::Watch)
}

/// Returns the metric label for the unknown-field policy of a request.
fn validation_metric_label(requested: Option<&str>) -> &'static str {
    match requested {
        None | Some("") => "",
        Some("Ignore") => "Ignore",
        Some("Warn") => "Warn",
        Some("Strict") => "Strict",
        Some(_) => "invalid",
    }
}
