//! The request's path through the server, in order:
//!
//! ```text
//! audit id → request info → authenticate → authorize → route ─┬─ resource: negotiate → read body → verb
//!                                                              └─ document: discovery · OpenAPI · health · version
//! ```
//!
//! Whatever a stage refuses becomes a `Status` here, and every response gets the common headers here
//! (semantics §3.1). Knows no files and no flags.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use auth::authz::Mode;
use auth::{Attributes, Authenticated, Authenticator, Authorized, Authorizer, Credentials, User};
use bytes::Bytes;
use engine::{CommitError, Engine};
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, HeaderName, WARNING};
use http::request::Parts as Head;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::admission::{self, namespace_lifecycle::Creations};
use crate::allocation::{Allocations, Ranges};
use crate::backup::{self, Backups};
use crate::bootstrap;
use crate::compress;
use crate::controllers;
use crate::discovery::Discovery;
use crate::discovery::catalog::{Catalog, registry_groups};
use crate::features::{Feature, Features};
use crate::health;
use crate::loopback::Loopback;
use crate::metrics::Metrics;
use crate::naming::Naming;
use crate::negotiate::{Formats, Offer, Output};
use crate::openapi::OpenApi;
use crate::policy::EnginePolicy;
use crate::query::Query;
use crate::rendition::lengths::Lengths;
use crate::request::{RequestError, RequestInfo};
use crate::response::{Response, respond_status, respond_text};
use crate::schema::registry::{Registry, Resource};
use crate::server::websocket::Upgrade;
use crate::server::{BODY_BYTES_MAX, BodyError, ConnectionInfo, Handler, Lifecycle, Request, read_body};
use crate::status::{Reason, Status, Subject};
use crate::strategy::Endpoint;
use crate::verbs::token::Tokens;
use crate::verbs::{self, Call};
use crate::warning;

/// How long a read waits for a revision that has not happened (semantics §8.2).
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// Bounds that an operator may set.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest a request may take that is not long-running.
    pub request_timeout: Duration,
    /// Shortest lifetime of a watch whose client names none.
    pub min_request_timeout: Duration,
    /// How long unfinished start-up counts as alive.
    pub livez_grace_period: Duration,
    /// How long an event lives after each write; zero: until somebody deletes it.
    pub event_ttl: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request_timeout: Duration::from_secs(60),
            min_request_timeout: Duration::from_secs(1800),
            livez_grace_period: Duration::ZERO,
            event_ttl: Duration::from_secs(3_600),
        }
    }
}

/// The server: everything a request may need, shared by all of them.
pub struct Api {
    /// The revision log.
    pub engine: Engine,
    /// Resource types.
    pub registry: Registry,
    /// Vocabulary.
    pub naming: &'static Naming,
    /// Encodings.
    pub formats: Formats,
    /// Who asks.
    pub authenticator: Authenticator,
    /// Whether they may.
    pub authorizer: Authorizer,
    /// Stage of the process.
    pub lifecycle: Lifecycle,
    /// Bounds.
    pub limits: Limits,
    /// Discovery documents.
    pub discovery: Discovery,
    /// OpenAPI documents.
    pub openapi: OpenApi,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Backups under way.
    pub backups: Backups,
    /// Lengths of objects in lists that announce them.
    pub lengths: Arc<Lengths>,
    /// The resource every namespaced write looks at.
    pub namespaces: Arc<Resource>,
    /// The plugins that every write passes.
    pub admission: admission::Chain,
    /// Creations under way, for whoever must know that none is left that saw an older state.
    pub creations: Creations,
    /// PEM of the certificates by which clients inside know the server; every namespace has a copy.
    pub root_ca: String,
    /// Addresses and ports of services.
    pub allocations: Allocations,
    /// How tokens of service accounts are made.
    pub tokens: Tokens,
    /// Switches of behaviour.
    pub features: Features,
    /// Where this server is reached from inside the cluster, for its own service; `None` when nobody can say.
    pub advertised: Option<SocketAddr>,
    /// Whether a garbage collector runs that acts on `orphan` and `foregroundDeletion`.
    pub collects_garbage: bool,
    /// Which controllers run.
    pub controllers: controllers::Selection,
}

/// What an [`Api`] is made of; the rest follows from it.
pub struct Parts {
    /// Vocabulary.
    pub naming: &'static Naming,
    /// The revision log.
    pub engine: Engine,
    /// Who asks.
    pub authenticator: Authenticator,
    /// Stage of the process.
    pub lifecycle: Lifecycle,
    /// Bounds.
    pub limits: Limits,
    /// Where clients reach the server.
    pub address: SocketAddr,
    /// PEM of the certificates by which clients inside know the server.
    pub root_ca: String,
    /// What is handed out to services.
    pub ranges: Ranges,
    /// How tokens of service accounts are made.
    pub tokens: Tokens,
    /// Switches of behaviour.
    pub features: Features,
    /// Where the server is reached from inside the cluster.
    pub advertised: Option<SocketAddr>,
    /// Whether finalizers of the garbage collector are set, and it runs unless it is deselected.
    pub collects_garbage: bool,
    /// Which controllers run.
    pub controllers: controllers::Selection,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Api {
    /// Puts the server together, with the authorizers of `modes` in their order.
    ///
    /// # Errors
    /// The engine was closed meanwhile.
    pub fn assemble(parts: Parts, modes: &[Mode]) -> Result<Self, engine::TailError> {
        let Parts { naming, engine, authenticator, lifecycle, limits, address, root_ca, .. } = parts;
        let event_ttl = Some(limits.event_ttl).filter(|ttl| !ttl.is_zero());
        let registry = Registry::with_event_ttl(naming, event_ttl);
        let rbac_group = naming.group("rbac.authorization", true);
        let authorizer = Authorizer::new(modes, Arc::new(EnginePolicy::new(engine.clone())?), rbac_group);
        let catalog = Arc::new(Catalog::new(registry_groups(&registry, |_| true)));
        let other_paths = health::paths();
        let namespaces = registry.resource("", "v1", "namespaces").cloned();
        Ok(Api {
            discovery: Discovery::new(catalog.clone(), naming, address.to_string(), other_paths.clone()),
            openapi: OpenApi::new(catalog, naming, &other_paths),
            metrics: parts.metrics,
            backups: Backups::default(),
            lengths: Arc::default(),
            namespaces: namespaces.expect("a test holds that namespaces are built in"),
            allocations: Allocations::new(engine.clone(), &registry, parts.ranges),
            tokens: parts.tokens,
            formats: Formats { naming, cbor: parts.features.has(Feature::CborServingAndStorage) },
            features: parts.features,
            advertised: parts.advertised,
            collects_garbage: parts.collects_garbage,
            controllers: parts.controllers,
            engine,
            registry,
            naming,
            authenticator,
            authorizer,
            lifecycle,
            limits,
            admission: admission::Chain::default(),
            creations: Creations::default(),
            root_ca,
        })
    }

    /// Makes the objects that every cluster starts with, where they are missing (semantics §14.2), and gives the
    /// aggregated roles among them their rules, so that who is let in afterwards has the rights they stand for.
    pub async fn bootstrap(&self) -> Result<bootstrap::Outcome, Status> {
        let outcome = bootstrap::reconcile(&Loopback::new(self), self.naming).await?;
        controllers::aggregation::reconcile(self).await?;
        controllers::own_service::ensure(self).await?;
        Ok(outcome)
    }

    /// Waits until the store has reached `revision`, for a bounded time; 0 is always reached.
    pub async fn wait_for_revision(&self, revision: u64) -> Result<(), Status> {
        if revision <= self.engine.revision() {
            return Ok(());
        }
        let reached = tokio::time::timeout(FRESHNESS_WAIT, self.engine.reached(revision)).await;
        reached.map_err(|_| Status::too_large_resource_version(revision, self.engine.revision(), 1))
    }

    /// What a client hears when the engine took a write for another reason than a conflict.
    pub fn commit_failed(&self, error: &CommitError) -> Status {
        match error {
            CommitError::Conflict { .. } => Status::internal("unexpected conflict"),
            CommitError::KeyLength { .. }
            | CommitError::AttributesTooLarge { .. }
            | CommitError::ValueTooLarge { .. } => {
                Status::new(Reason::RequestEntityTooLarge, error.to_string())
            }
            CommitError::Refused { .. } | CommitError::Closed => {
                tracing::error!(%error, "write refused by the store");
                Status::new(Reason::ServiceUnavailable, error.to_string())
            }
            CommitError::Damaged(error) => Status::new(Reason::StorageReadError, error.to_string()),
            CommitError::StampOutOfRange { .. } => Status::internal(error),
        }
    }

    /// A PUT that creates needs the permission to create as well (semantics §5.2 step 4).
    pub async fn authorize_create(&self, call: &Call<'_>) -> Result<(), Status> {
        let attributes = Attributes { verb: "create", ..*call.proof.attributes() };
        self.authorizer
            .authorize(&attributes)
            .await
            .map(drop)
            .map_err(|denied| forbidden(&attributes, &denied.message))
    }

    async fn authenticate(&self, parts: &Head, connection: &ConnectionInfo) -> Result<Arc<User>, Status> {
        let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let credentials = Credentials { authorization: header, certificates: &connection.certificates };
        match self.authenticator.authenticate(&credentials).await {
            Ok(Authenticated::User(user) | Authenticated::Anonymous(user)) => Ok(user),
            Err(error) => {
                tracing::debug!(%error, "authentication failed");
                Err(Status::unauthorized())
            }
        }
    }

    /// Everything between the connection and the response body.
    async fn respond(&self, request: Request, connection: &ConnectionInfo) -> Response {
        let (parts, incoming) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = match RequestInfo::parse(&parts.method, parts.uri.path(), &query) {
            Ok(info) => info,
            Err(RequestError::Escape) => {
                return respond_text(StatusCode::BAD_REQUEST, "400 Bad Request: invalid URL escape\n");
            }
            Err(error) => {
                let text = format!(
                    "Internal Server Error: \"{}\": failed to create RequestInfo: {error}",
                    escape_html(parts.uri.path())
                );
                return respond_text(StatusCode::INTERNAL_SERVER_ERROR, text);
            }
        };
        // Errors are written in the form asked for where that is possible, and as indented JSON otherwise.
        let plain = self.formats.output(&parts.headers, &query, Offer::Plain);
        let pretty = plain.as_ref().is_ok_and(|output| output.pretty);
        let errors = plain.as_ref().unwrap_or(&Output::FALLBACK);
        let user = match self.authenticate(&parts, connection).await {
            Ok(user) => user,
            Err(status) => return respond_status(&status, errors),
        };
        tracing::debug!(verb = info.verb, path = %info.path, user = %user.name, "request");
        if let Err(status) = refuse_impersonation(&parts.headers) {
            return refused(&status, errors);
        }
        let attributes = Attributes {
            user: &user,
            verb: info.verb,
            resource_request: info.is_resource,
            group: &info.group,
            version: &info.version,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            path: &info.path,
        };
        let proof = match self.authorizer.authorize(&attributes).await {
            Ok(proof) => proof,
            Err(denied) => return refused(&forbidden(&attributes, &denied.message), errors),
        };
        let work = async {
            if info.is_resource {
                self.serve_resource(&parts, incoming, &query, &info, &proof, errors).await
            } else {
                self.serve_document(&parts, incoming, &query, &info, pretty).await
            }
        };
        let result = if info.is_long_running() {
            work.await
        } else {
            match tokio::time::timeout(self.timeout(&query), work).await {
                Ok(result) => result,
                Err(_) => Ok(timed_out()),
            }
        };
        result.unwrap_or_else(|status| respond_status(&status, errors))
    }

    /// `?timeout=` where it is given and sensible, else the operator's bound (semantics §3.3).
    fn timeout(&self, query: &Query) -> Duration {
        let asked = query.first("timeout").and_then(parse_duration).filter(|asked| !asked.is_zero());
        asked.map_or(self.limits.request_timeout, |asked| asked.min(self.limits.request_timeout))
    }

    async fn serve_resource(
        &self,
        parts: &Head,
        incoming: crate::server::Incoming,
        query: &Query,
        info: &RequestInfo,
        proof: &Authorized<'_>,
        errors: &Output,
    ) -> Result<Response, Status> {
        if let Some(text) = query.first("timeout")
            && parse_duration(text).is_none()
        {
            let quoted = crate::field::go_quote(text);
            return Err(Status::bad_request(format!(
                "invalid timeout specified in the request URL - time: invalid duration {quoted}"
            )));
        }
        let Some(resource) = self.registry.resource(&info.group, &info.version, &info.resource) else {
            if self.registry.version(&info.group, &info.version).is_none() {
                return Ok(not_found_page());
            }
            return Err(Status::no_such_route());
        };
        check_scope(resource, info)?;
        check_method(parts, resource, info)?;
        let offer = match info.verb {
            "watch" => Offer::Watch,
            "list" => Offer::List,
            _ => Offer::Object,
        };
        let output = self.formats.output(&parts.headers, query, offer)?;
        let body = match info.verb {
            "create" | "update" | "patch" | "delete" | "deletecollection" => {
                match info.verb {
                    "create" | "update" => drop(self.formats.input(&parts.headers)?),
                    "patch" => drop(verbs::patch::kind_of(self.formats, &parts.headers)?),
                    _ => {}
                }
                self.read(incoming).await?
            }
            _ => Bytes::new(),
        };
        if !body.is_empty() && matches!(info.verb, "delete" | "deletecollection") {
            self.formats.input(&parts.headers)?;
        }
        let mut call = Call {
            api: self,
            proof,
            info,
            resource,
            query,
            headers: &parts.headers,
            user: proof.user(),
            output,
            upgrade: parts.extensions.get::<Upgrade>().cloned(),
            warnings: Vec::new(),
        };
        if !resource.table.deprecated.is_empty() {
            call.warnings.push(deprecation(resource, self.naming));
        }
        let result = run(&mut call, &body).await;
        let warnings = std::mem::take(&mut call.warnings);
        let mut response = match result {
            Ok(response)
                if info.is_long_running()
                    || !self.features.has(Feature::ApiResponseCompression)
                    || !compress::is_accepted(&parts.headers) =>
            {
                response
            }
            Ok(response) => compress::gzip(response).await,
            Err(status) => respond_status(&status, errors),
        };
        for header in warning::headers(&warnings) {
            response.headers_mut().append(WARNING, header);
        }
        Ok(response)
    }

    async fn read(&self, incoming: crate::server::Incoming) -> Result<Bytes, Status> {
        read_body(incoming, BODY_BYTES_MAX, self.limits.request_timeout).await.map_err(|error| match error {
            BodyError::TooLarge => Status::too_large(BODY_BYTES_MAX),
            BodyError::Timeout => {
                Status::new(Reason::Timeout, "Timeout: request body did not arrive in time")
            }
            BodyError::Disconnected => Status::bad_request("unable to read the request body"),
        })
    }

    /// Paths outside the resource API.
    async fn serve_document(
        &self,
        parts: &Head,
        incoming: crate::server::Incoming,
        query: &Query,
        info: &RequestInfo,
        pretty: bool,
    ) -> Result<Response, Status> {
        let path = info.path.as_str();
        if path == backup::PATH {
            return backup::respond(self, &parts.method, &self.read(incoming).await?).await;
        }
        if let Some(response) = health::respond(self, path, query) {
            return Ok(response);
        }
        if let Some(response) = self.metrics.respond(path, &self.engine) {
            return Ok(response);
        }
        let is_read = matches!(parts.method, Method::GET | Method::HEAD);
        let response = if path == "/version" || path == "/version/" {
            Some(crate::version::respond().map(Into::into))
        } else if let Some(response) = self.discovery.respond(path, &parts.headers, pretty) {
            Some(response.map(Into::into))
        } else {
            self.openapi.respond(path, parts.uri.query(), &parts.headers).map(|r| r.map(Into::into))
        };
        match response {
            Some(_) if !is_read => Err(Status::method_not_allowed()),
            Some(response) => Ok(response),
            None => Ok(not_found_page()),
        }
    }
}

impl Handler for Api {
    async fn handle(&self, mut request: Request, connection: &Arc<ConnectionInfo>) -> Response {
        const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
        let audit_id = match request.headers().get(&AUDIT_ID) {
            Some(given) => given.clone(),
            None => HeaderValue::from_str(&crate::names::uid()).unwrap_or(HeaderValue::from_static("")),
        };
        let is_head = request.method() == Method::HEAD;
        if let Some(upgrade) = Upgrade::asked(&request, connection) {
            request.extensions_mut().insert(upgrade);
        }
        let mut response = self.respond(request, connection).await;
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, audit_id);
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        if is_head {
            // The length is that of the body a GET would get; the body itself is not sent.
            if let Some(length) = hyper::body::Body::size_hint(response.body()).exact() {
                response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            *response.body_mut() = crate::server::Body::empty();
        }
        response
    }
}

/// Runs the verb (spec §4.2).
async fn run(call: &mut Call<'_>, body: &Bytes) -> Result<Response, Status> {
    if call.resource.table.storage.is_none() {
        return verbs::reviews::serve(call, body).await;
    }
    if !call.info.subresource.is_empty() {
        return verbs::subresource::serve(call, body).await;
    }
    match call.info.verb {
        "get" => verbs::read::get(call).await,
        "list" => verbs::list::list(call).await,
        "watch" => verbs::watch::watch(call).await,
        "create" => verbs::write::create(call, body).await,
        "update" => verbs::write::update(call, body, Endpoint::Main).await,
        "patch" => verbs::patch::patch(call, body, Endpoint::Main).await,
        "delete" => verbs::delete::delete(call, body).await,
        "deletecollection" => verbs::delete::delete_collection(call, body).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// A cluster-scoped resource has no namespaced path, and a namespaced one is written only inside a namespace.
fn check_scope(resource: &Resource, info: &RequestInfo) -> Result<(), Status> {
    let namespaced_path = !info.namespace.is_empty() && info.resource != "namespaces";
    if namespaced_path != resource.namespaced() && (namespaced_path || info.name_in_path) {
        return Err(Status::no_such_route());
    }
    if resource.namespaced() && !namespaced_path && !matches!(info.verb, "list" | "watch") {
        // The path for all namespaces exists, for reading only.
        return Err(Status::method_not_allowed());
    }
    if !info.subpath.is_empty() && info.subresource != "proxy" {
        return Err(Status::no_such_route());
    }
    Ok(())
}

/// 405 for what the resource does not do at all, 404 for subresources it does not have.
fn check_method(parts: &Head, resource: &Resource, info: &RequestInfo) -> Result<(), Status> {
    if info.verb == "proxy" {
        // The paths of long ago: still told apart for authorization, served no more (semantics §3.2).
        return Err(Status::no_such_route());
    }
    if info.legacy_watch && !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    if !info.subresource.is_empty() {
        let known = resource.table.subresources.iter().find(|table| table.name == info.subresource);
        let Some(table) = known else { return Err(Status::no_such_route()) };
        return if table.verbs.contains(&info.verb) { Ok(()) } else { Err(Status::method_not_allowed()) };
    }
    let wants_name = matches!(info.verb, "get" | "update" | "patch" | "delete");
    let is_create_on_item = info.verb == "create" && info.name_in_path;
    let known = resource.table.verbs.contains(&info.verb);
    if !known || is_create_on_item || wants_name && info.name.is_empty() || parts.method == Method::OPTIONS {
        return Err(Status::method_not_allowed());
    }
    Ok(())
}

/// Refuses a request that asks to run as another user. Serving it with the caller's own rights would do what the
/// caller did not ask for.
///
/// # Errors
/// 403 naming the user to impersonate, where the request names one.
fn refuse_impersonation(headers: &HeaderMap) -> Result<(), Status> {
    const PREFIX: &str = "impersonate-";
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(());
    }
    let name = headers.get("impersonate-user").and_then(|name| name.to_str().ok()).unwrap_or_default();
    let subject = Subject { group: "", kind: "users", name };
    Err(Status::forbidden(subject, "impersonation is not available on this server"))
}

/// The answer to a request that may not go on.
fn refused(status: &Status, output: &Output) -> Response {
    let mut response = respond_status(status, output);
    response.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn forbidden(attributes: &Attributes<'_>, message: &str) -> Status {
    let subject = Subject { group: attributes.group, kind: attributes.resource, name: attributes.name };
    Status::forbidden(subject, message)
}

fn deprecation(resource: &Resource, naming: &Naming) -> String {
    let table = resource.table;
    let mut text = format!("{} {} is deprecated in v{}+", resource.api_version, table.kind, table.deprecated);
    if table.kind == "Endpoints" {
        text.push_str("; use discovery");
        text.push_str(naming.group_suffix);
        text.push_str("/v1 EndpointSlice");
    }
    text
}

/// The answer to paths under no known prefix (semantics §1.3).
fn not_found_page() -> Response {
    respond_text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// The 504 of the request timeout: a bare encoding without kind and apiVersion (semantics §1.5).
fn timed_out() -> Response {
    const BODY: &str = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete \
        within the allotted timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n";
    respond_text(StatusCode::GATEWAY_TIMEOUT, BODY)
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A Go duration such as `1m30s`, `500ms`, `1.5h`; a negative one is zero. `None` when it is no duration.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if let Some(positive) = text.strip_prefix('-') {
        return if positive.starts_with(['+', '-']) {
            None
        } else {
            parse_duration(positive).map(|_| Duration::ZERO)
        };
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = tail;
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, want) in [
            ("30s", Some(30_000)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("500ms", Some(500)),
            ("0", Some(0)),
            ("", None),
            ("5", None),
            ("-5s", Some(0)),
            ("--5s", None),
            ("-", None),
            ("+", None),
            ("5x", None),
            ("s", None),
            ("1e400s", None),
        ] {
            assert_eq!(parse_duration(text).map(|d| d.as_millis()), want, "{text}");
        }
    }
}
