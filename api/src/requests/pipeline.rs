//! The request chain: every request is one [`Exchange`], which passes the steps of `Exchange::run` in order.
//!
//! ```text
//! received ─► request info ─► edge ─► authenticate ─► impersonate ─► take turn ─► authorize ─► serve (routes.rs) ─┐
//!                 └──────────────────┴─ refused ─┴──────────────┴────────────┴──────────────────────────┴─► finish
//! ```
//!
//! A step either lets the request pass and stores its result in the exchange, or ends the request with a
//! response. In both cases, and also after a panic in a step, the exchange reaches `Exchange::finish`.
//! Therefore the code that processes every request with its response (common headers, the request log,
//! traces, audit) is in one module: `finish`. This module does not depend on resource types or verbs; `routes` handles
//! resource types and verbs.

mod fields;
mod finish;
mod refusal;
mod tested;

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::{Attributes, Authenticated, Authorized, Credentials, User};
use engine::KeyRange;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use go::duration;
use http::header::{AUTHORIZATION, HeaderName, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;

use self::fields::Fields;
use crate::requests::past;
use crate::requests::request::{Permitted, Request};
use crate::requests::request_labels;
use crate::requests::routes;
use crate::state::audit::{self, Arrival, Trail, answer};
use crate::state::fairness::{self, Permit, Work};
use crate::state::impersonation;
use crate::writes::origin::Origin;
use crate::writes::server::Server;
use crate::writes::server::access::forbidden;
use objects::negotiate::{Offer, Output};
use objects::representation::answer::respond_status;
use objects::request::{RequestError, RequestInfo, Verb};
use objects::store::{self, Component, Pending};
use values::cancellation::{self, CancellationReason, CancellationToken, Cancelled};
use values::clock;
use values::memory::Account;
use values::query::Query;
use values::request_scope::{ClientOrigin, RequestScope};
use values::status::{self, Status, Subject};
use wire::metrics::requests::Labels;
use wire::response::{Response, respond_text};
use wire::server::upgrade::Switch;
use wire::server::websocket::{self, Upgrade};
use wire::server::{self, ConnectionInfo, Handler, InFlight, Incoming, panic_response};
use wire::traces::{self, Trace};

/// Header with the ID of the request in logs and audit events.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A request in the pipeline, with the results of the steps that have run.
pub struct Exchange<'c> {
    request: Request<'c>,
    /// The reason why the URL cannot be parsed.
    url_error: Option<RequestError>,
    /// The request body. The step that serves the request takes the body.
    incoming: Option<Incoming>,
    /// Whether the request has no valid credentials.
    is_anonymous: bool,
    /// Durations of the steps, in order.
    stages: Vec<(&'static str, Duration)>,
    /// Collects the durations and webhook calls that lower layers report for the request.
    scope: Arc<RequestScope>,
    /// Full reason of a refusal, for the log. The client does not get all details.
    refusal: Option<String>,
    /// The trace, if the request is traced.
    trace: Option<Trace>,
    /// A warning about the credentials.
    warning: Option<&'static str>,
    /// Flow schema and priority level that flow control selected for the request.
    flow: Option<Arc<fairness::Ids>>,
    /// Token that cancels the computations of the request.
    token: CancellationToken,
}

/// The response of the step that ended a request.
type Ended = Box<Response>;

impl<'c> Exchange<'c> {
    /// Creates the exchange of a request that was just received.
    fn received(
        server: &'c Server,
        request: server::Request,
        connection: &'c Arc<ConnectionInfo>,
    ) -> Exchange<'c> {
        let upgrade = Upgrade::requested(&request, connection);
        let switch = Switch::requested(&request, connection);
        let (mut head, incoming) = request.into_parts();
        if let Some(switch) = switch {
            head.extensions.insert(switch);
        }
        if let Some(upgrade) = upgrade {
            head.extensions.insert(upgrade);
        }
        let token = head.extensions.remove().unwrap_or_default();
        let audit_id = match head.headers.get(&AUDIT_ID) {
            Some(given) => given.clone(),
            None => HeaderValue::from_str(&values::names::uid()).unwrap_or(HeaderValue::from_static("")),
        };
        let query = Query::parse(head.uri.query().unwrap_or_default());
        // Errors have the requested representation, if possible. Otherwise errors are indented JSON.
        let plain = server.types.formats.output(&head.headers, &query, Offer::Plain);
        let pretty = plain.as_ref().is_ok_and(|output| output.pretty);
        let (info, url_error) = match RequestInfo::parse(&head.method, head.uri.path(), &query) {
            Ok(info) => (info, None),
            Err(error) => {
                (RequestInfo { path: head.uri.path().to_owned(), ..RequestInfo::default() }, Some(error))
            }
        };
        let scope = RequestScope::new(ClientOrigin {
            audit_id: audit_id.clone(),
            user_agent: head.headers.get(USER_AGENT).cloned(),
            source: connection.remote.ip(),
        });
        let request = Request {
            origin: Origin::new(server),
            connection,
            received: Instant::now(),
            head,
            query,
            info: Arc::new(info),
            audit_id,
            errors: plain.unwrap_or(Output::FALLBACK),
            pretty,
            user: None,
            impersonated: None,
            trail: None,
            account: Account::new(server.operations.memory.clone(), connection.allotment.clone()),
            past: None,
            tested: tested::notes(server),
        };
        Exchange {
            request,
            url_error,
            incoming: Some(incoming),
            is_anonymous: false,
            stages: Vec::new(),
            scope,
            refusal: None,
            trace: None,
            warning: None,
            flow: None,
            token,
        }
    }

    /// Runs the steps in order. An error is the response of the step that ended the request.
    async fn run(&mut self) -> Result<Response, Ended> {
        let charge = self.request.server().operations.memory.request(&self.request.connection.allotment);
        let charge = charge.map_err(|error| self.answer(&Status::no_memory(error)))?;
        let info = self.read_url()?;
        let in_flight = self.enter(&info)?;
        let user = self.authenticate().await?;
        let mut query = self.query_newest(&info);
        let newest = query.clone().map(|newest| Box::pin(newest) as Pending<'_, _>);
        let mut permitted = pin!(self.permitted(user, &info, newest));
        let answer = poll_fn(|cx| {
            // The query to the other server proceeds while the request passes the steps.
            if query.as_mut().is_some_and(|query| query.poll_unpin(cx).is_ready()) {
                query = None;
            }
            permitted.as_mut().poll(cx)
        });
        let (response, permit) = answer.await?;
        // A stream releases its flow control permit when the stream begins. Any other request keeps its permit
        // until the response is sent.
        let held = permit.filter(|_| !info.is_long_running());
        let response = match (held, in_flight) {
            (None, None) => response,
            held => response.map(|body| body.with(held)),
        };
        Ok(response.map(|body| body.keeping(charge)))
    }

    /// Runs the steps after authentication.
    async fn permitted(
        &mut self,
        user: Arc<User>,
        info: &Arc<RequestInfo>,
        newest: Option<Pending<'_, Result<(), Status>>>,
    ) -> Result<(Response, Option<Permit>), Ended> {
        self.begin_trail(&user, info)?;
        let user = self.impersonate(user, info).await?;
        if self.request.tested.is_some() {
            Box::pin(self.disturb(&user)).await?;
        }
        let attributes = attributes_of(&user, info);
        let permit = self.take_turn(&attributes, info).await?;
        let proof = self.authorize(&attributes).await?;
        let response = self.serve(info, &proof, newest).await?;
        Ok((self.disturbed(response), permit))
    }

    /// Begins the query for the newest revision that other servers have acknowledged, for a consistent read. The
    /// query begins only for authenticated users, but before authorization.
    fn query_newest(&self, info: &RequestInfo) -> Option<Shared<Pending<'c, Result<(), Status>>>> {
        let backends = &self.request.server().store.backends;
        backends.main().ledger()?;
        if !info.is_resource || !routes::reads_newest(info, &self.request.query) {
            return None;
        }
        let resource = self.request.types().registry().resource(&info.group, &info.version, &info.resource);
        let resource = resource.filter(|resource| resource.table.storage.is_some())?;
        Some(backends.backend_for(resource).ledger()?.current().shared())
    }

    /// Refuses a request whose URL cannot be parsed.
    fn read_url(&mut self) -> Result<Arc<RequestInfo>, Ended> {
        match self.url_error.take() {
            None => Ok(self.request.info.clone()),
            Some(RequestError::Escape) => {
                Err(Box::new(respond_text(StatusCode::BAD_REQUEST, "400 Bad Request: invalid URL escape\n")))
            }
            Some(error) => {
                let target = self.target();
                Err(self.undecided(&format!("failed to create RequestInfo: {error}, {target}")))
            }
        }
    }

    /// Answers requests that a draining server no longer accepts, and preflight requests of browsers. Counts the
    /// requests for which the shutdown waits. The shutdown waits for all requests except streams. The shutdown also
    /// waits for watches if the server ends watches during the drain.
    fn enter(&self, info: &RequestInfo) -> Result<Option<InFlight>, Ended> {
        let (server, lifecycle) = (self.request.server(), &self.request.server().operations.lifecycle);
        if let Some(answer) =
            server.access.edge.answer(server.types.naming, lifecycle.stage(), &self.request.head)
        {
            return Err(Box::new(answer));
        }
        let is_awaited = !info.is_long_running()
            || info.verb == Verb::Watch && !server.operations.limits.watch_grace.is_zero();
        Ok((server.access.edge.refuses_when_leaving && is_awaited).then(|| lifecycle.enter()))
    }

    /// Authenticates the user.
    async fn authenticate(&mut self) -> Result<Arc<User>, Ended> {
        // A header with bytes outside ASCII is an invalid token; the request is not treated as a request without a
        // token.
        let header = self.request.head.headers.get(AUTHORIZATION);
        let header = header.map(fields::text);
        let protocols = websocket::protocols(&self.request.head.headers);
        // The authenticator compares the decoded path with the paths that are open to anonymous requests.
        let path = percent_decode_str(self.request.head.uri.path()).decode_utf8_lossy();
        let credentials = Credentials {
            path: &path,
            headers: Some(&Fields(&self.request.head.headers)),
            authorization: header.as_deref(),
            protocols: protocols.as_deref(),
            certificates: Some(&self.request.connection.certificates),
        };
        self.warning = credentials.warning();
        let began = Instant::now();
        let authenticator = &self.request.server().access.authenticator;
        let mut authenticated = authenticator.authenticate(&credentials, clock::system_time()).await;
        if self.request.tested.is_some()
            && !matches!(authenticated, Ok(Authenticated::User(_)))
            && let Some(administrator) = Box::pin(tested::administrator(authenticator, &credentials)).await
        {
            authenticated = Ok(administrator);
        }
        let (took, metrics) = (began.elapsed(), &self.request.server().operations.metrics);
        metrics.stages.time(&["authentication"], took);
        self.begin_trace(authenticated.as_ref().ok().map(|authenticated| &**authenticated.user()));
        self.passed("authentication", took);
        self.is_anonymous = !matches!(authenticated, Ok(Authenticated::User(_)));
        match authenticated {
            Ok(Authenticated::User(user) | Authenticated::Anonymous(user)) => {
                metrics.authenticated("success", took);
                metrics.users.count(&[user_metric_label(&user.name)]);
                if let Some(left) = self.request.connection.time_left() {
                    metrics.client_certificates.record(&[], left.as_secs());
                }
                Ok(self.request.user.insert(user).clone())
            }
            Err(error) => {
                metrics.authenticated("error", took);
                self.refusal = Some(error.to_string());
                let refusal = self.answer(&Status::unauthorized());
                if let Some(trail) = self.trail_of(None, &self.request.info) {
                    answer::unauthenticated(&trail, &refusal);
                }
                Err(refusal)
            }
        }
    }

    /// Replaces the user if the request contains impersonation headers and the user has the permission. Afterwards
    /// the impersonation headers are removed.
    async fn impersonate(&mut self, user: Arc<User>, info: &RequestInfo) -> Result<Arc<User>, Ended> {
        let requested = impersonation::requested_user(&self.request.head.headers)
            .map_err(|status| self.answer(&status))?;
        let Some(requested) = requested else { return Ok(user) };
        let attributes = attributes_of(&user, info);
        let began = Instant::now();
        let decided = self.request.server().access.authorizer.impersonate(&attributes, &requested).await;
        self.passed("impersonation", began.elapsed());
        let (decision, mode) = match &decided {
            Ok(acting) => ("allowed", acting.constraint.unwrap_or("legacy")),
            Err(_) => ("denied", ""),
        };
        self.request.server().operations.metrics.impersonations.count(&[decision, mode]);
        self.request
            .server()
            .operations
            .metrics
            .impersonation_durations
            .time(&[decision, mode], began.elapsed());
        let acting = decided.map_err(|refused| {
            self.refusal = Some(refused.message.clone());
            let subject = Subject { group: &refused.group, kind: &refused.resource, name: &refused.name };
            self.forbid(&impersonation::refusal(&self.request.head.headers, subject, &refused.message))
        })?;
        impersonation::remove(&mut self.request.head.headers);
        if let Some(trail) = &self.request.trail {
            trail.impersonate(&acting.user, acting.constraint);
        }
        Ok(self.request.impersonated.insert(Arc::new(acting.user)).clone())
    }

    /// Returns the audit trail that the audit policy requires for the request.
    fn trail_of(&self, user: Option<&User>, info: &RequestInfo) -> Option<Trail> {
        let uri = self.request.head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        let arrival = Arrival {
            naming: self.request.server().types.naming,
            info,
            user,
            uri,
            audit_id: String::from_utf8_lossy(self.request.audit_id.as_bytes()).into_owned(),
            headers: &self.request.head.headers,
            peer: self.request.connection.remote.ip(),
            metrics: &self.request.server().operations.metrics,
        };
        Trail::begin(self.request.server().access.auditor.as_ref()?, &arrival)
    }

    /// Begins the audit trail. If the first event is lost and audit is strict, the request is refused.
    fn begin_trail(&mut self, user: &User, info: &RequestInfo) -> Result<(), Ended> {
        let Some(trail) = self.trail_of(Some(user), info) else { return Ok(()) };
        let is_kept = trail.reach(audit::AuditStage::RequestReceived);
        if !is_kept && trail.is_strict() {
            self.request.server().operations.metrics.audit.rejected.count(&[]);
            return Err(self.undecided("failed to store audit event"));
        }
        self.request.trail = Some(Arc::new(trail));
        Ok(())
    }

    /// Records the decision of the authorizers in the audit trail.
    fn annotate_decision(&self, decision: &str, reason: &auth::decision::Reason) {
        let Some(trail) = &self.request.trail else { return };
        let group = self.request.server().types.naming.group("authorization", true);
        trail.annotate(format!("{group}/decision"), decision.to_owned());
        trail.annotate(format!("{group}/reason"), reason.to_string());
    }

    /// Records in the audit trail that the authorizers failed.
    fn annotate_undecided(&self) {
        let Some(trail) = &self.request.trail else { return };
        let group = self.request.server().types.naming.group("authorization", true);
        trail.annotate(format!("{group}/reason"), "internal error".to_owned());
    }

    /// Waits until the request may run. Flow control does not apply to streams, except watches.
    async fn take_turn(
        &mut self,
        attributes: &Attributes<'_>,
        info: &RequestInfo,
    ) -> Result<Option<Permit>, Ended> {
        if info.is_long_running() && info.verb != Verb::Watch {
            return Ok(None);
        }
        let began = Instant::now();
        let work = || self.work(info);
        let turn = self.request.server().access.fairness.turn(attributes, self.time_allowed(), work).await;
        self.request.server().operations.metrics.stages.time(&["priorityandfairness"], began.elapsed());
        self.passed("apf-queue-wait", began.elapsed());
        self.flow = turn.ids;
        self.request.connection.set_crowded(turn.permit.as_ref().is_ok_and(Permit::is_crowded));
        turn.permit.map(Some).map_err(|retry_after_s| {
            self.count_refusal(info, StatusCode::TOO_MANY_REQUESTS);
            let text = "Too many requests, please try again later.\n";
            let mut response = respond_text(StatusCode::TOO_MANY_REQUESTS, text);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after_s));
            Box::new(response)
        })
    }

    /// Estimates the work of the request. The estimated size of a list is the number of objects that
    /// it reads, multiplied by the size of the first object.
    fn work(&self, info: &RequestInfo) -> Work {
        match info.verb {
            Verb::List | Verb::Watch => {}
            Verb::Get | Verb::Proxy => return Work::Other,
            Verb::Other("get" | "head" | "options") => return Work::Other,
            _ => return Work::Write,
        }
        let begins_with_all = || {
            self.request.query.first("sendInitialEvents") == Some("true")
                || self.request.query.first("resourceVersion").is_none()
        };
        let registry = self.request.types().registry();
        let resource = registry.resource(&info.group, &info.version, &info.resource);
        // Requests such as reviews read nothing from the store.
        let Some(resource) = resource.filter(|resource| resource.storage.is_some()) else {
            return Work::Other;
        };
        if !info.name.is_empty() || info.verb == Verb::Watch && !begins_with_all() {
            return Work::Other;
        }
        let view = self.request.server().store.open_for(Component::Estimates).about(resource).view();
        let prefix = store::collection(resource, &info.namespace);
        let count = view.count(&KeyRange::prefix(&prefix));
        let limit =
            self.request.query.first("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
        let selects =
            ["labelSelector", "fieldSelector"].iter().any(|name| self.request.query.first(name).is_some());
        // A list with selectors reads more than it returns.
        let read =
            limit.map_or(count, |limit: u64| limit.min(count).max(if selects { count / 2 } else { 0 }));
        let first = view.prefix(&prefix).next().map_or(0, |entry| entry.stored_len() as u64);
        Work::List(read.saturating_mul(first))
    }

    /// Runs the authorizers.
    async fn authorize<'a>(&mut self, attributes: &'a Attributes<'a>) -> Result<Authorized<'a>, Ended> {
        let began = Instant::now();
        let decided = self.request.server().access.authorizer.authorize(attributes).await;
        let (took, metrics) = (began.elapsed(), &self.request.server().operations.metrics);
        metrics.stages.time(&["authorization"], took);
        self.passed("authorization", took);
        let result = match &decided {
            Ok(_) => "allowed",
            Err(denied) if denied.error.is_some() => "error",
            Err(denied) if denied.is_final => "denied",
            Err(_) => "no-opinion",
        };
        metrics.authorized(result, took);
        match &decided {
            Ok(proof) => self.annotate_decision("allow", proof.reason()),
            Err(denied) if denied.error.is_some() => self.annotate_undecided(),
            Err(denied) => self.annotate_decision("forbid", &denied.reason),
        }
        decided.map_err(|denied| {
            self.refusal = Some(refusal::reason(attributes, &denied));
            match &denied.error {
                None => self.forbid(&forbidden(attributes, &denied.message)),
                Some(error) => self.undecided(error),
            }
        })
    }

    /// Resolves the earlier point of the request, if the request has one, and replaces the types of the request
    /// by the types that were served at this point.
    async fn resolve_point(&mut self) -> Result<(), Ended> {
        let request = &self.request;
        let stale = request.tested.as_ref().and_then(|notes| notes.stale_at.as_ref());
        let Some(point) = request.info.as_of.as_ref().or(stale) else { return Ok(()) };
        let (server, method) = (request.server(), &request.head.method);
        let resolved = past::resolve(server, method, &request.info, point, request.trail()).await;
        let (past, types) = resolved.map_err(|status| self.answer(&status))?;
        self.request.past = Some(past);
        self.request.origin.types = types;
        Ok(())
    }

    /// Serves a permitted request within its time limit.
    async fn serve(
        &mut self,
        info: &RequestInfo,
        proof: &Authorized<'_>,
        newest: Option<Pending<'_, Result<(), Status>>>,
    ) -> Result<Response, Ended> {
        let Some(incoming) = self.incoming.take() else {
            return Err(self.answer(&Status::internal("a request is served once")));
        };
        self.resolve_point().await?;
        // The future is boxed, because otherwise each enclosing future would contain and move its state.
        let permitted = Permitted { request: &self.request, proof, incoming, newest };
        let work = Box::pin(routes::serve(permitted));
        let work = traces::within(self.trace.as_ref().map(Trace::context), work);
        let work = cancellation::within(self.token.clone(), work);
        let began = Instant::now();
        let result = if info.is_long_running() {
            work.await
        } else {
            // The timer ends a request that is waiting. The token ends a request that is computing.
            let time = self.time_allowed();
            self.token.cancel_at(began + time);
            let served = tokio::time::timeout(time, work).await;
            self.passed("serving", began.elapsed());
            served.unwrap_or(Err(Cancelled(CancellationReason::Deadline)))
        };
        match result {
            Ok(result) => result.map_err(|status| self.answer(&status)),
            Err(Cancelled(CancellationReason::Shutdown)) => Err(self.answer(&Status::new(
                status::StatusReason::ServiceUnavailable,
                "the server ended before the request was done; nothing was stored",
            ))),
            // A client that disconnected does not receive the response, but the log and the audit event
            // contain it.
            Err(Cancelled(CancellationReason::Deadline | CancellationReason::Gone)) => {
                self.count_termination(info, StatusCode::GATEWAY_TIMEOUT);
                Err(Box::new(timed_out()))
            }
        }
    }

    /// Counts a request that the server ends before the verb has completed.
    fn count_termination(&self, info: &RequestInfo, code: StatusCode) {
        if let Some(labels) = self.labels(info).filter(|_| info.is_resource) {
            request_labels::count_end(
                &self.request.server().operations.metrics,
                code,
                "apiserver",
                labels,
                &info.path,
            );
        }
    }

    /// Counts a request that is refused for lack of capacity.
    fn count_refusal(&self, info: &RequestInfo, code: StatusCode) {
        if let Some(labels) = self.labels(info) {
            self.request.server().operations.metrics.requests.refuse(labels, code);
        }
    }

    /// Returns the labels of a request that ends early; `None` for types that are not served, so that clients
    /// cannot create series.
    fn labels<'l>(&self, info: &'l RequestInfo) -> Option<Labels<'l>> {
        let labels = request_labels::ended(info, &self.request.head.headers, &self.request.query);
        if !info.is_resource {
            return Some(labels);
        }
        let resource =
            self.request.types().registry().resource(&info.group, &info.version, &info.resource)?;
        let known = resource.table.subresources.iter().any(|table| table.name == info.subresource);
        Some(Labels { subresource: if known { labels.subresource } else { "" }, ..labels })
    }

    /// Returns the time limit of the request: a positive value of `?timeout=`, but at most the operator's
    /// timeout.
    fn time_allowed(&self) -> Duration {
        let bound = self.request.server().operations.limits.request_timeout;
        let requested = self.request.query.first("timeout").and_then(|text| duration::parse(text).ok());
        let requested = requested.and_then(|nanos| u64::try_from(nanos).ok()).filter(|nanos| *nanos > 0);
        requested.map_or(bound, |nanos| Duration::from_nanos(nanos).min(bound))
    }

    /// Returns an error response in the requested representation.
    fn answer(&self, status: &Status) -> Ended {
        Box::new(respond_status(status, &self.request.errors))
    }

    /// Returns the response to a forbidden request.
    fn forbid(&self, status: &Status) -> Ended {
        let mut response = self.answer(status);
        response
            .headers_mut()
            .insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    /// Returns the response to a request that could not be authorized because of an error, as a text that no
    /// browser interprets as HTML.
    fn undecided(&self, error: &str) -> Ended {
        let target = values::field::go_quote(self.target());
        let text = format!("Internal Server Error: {target}: {error}\n");
        let text = escape_html(&text);
        let mut response = respond_text(StatusCode::INTERNAL_SERVER_ERROR, text);
        response
            .headers_mut()
            .insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Box::new(response)
    }

    /// Returns path and query as the client sent them.
    fn target(&self) -> &str {
        self.request.head.uri.path_and_query().map_or("/", |target| target.as_str())
    }
}

impl Handler for Server {
    fn handshake_failed(&self) {
        self.operations.metrics.tls_errors.count(&[]);
    }

    fn handle<'h>(
        &'h self,
        request: server::Request,
        connection: &'h Arc<ConnectionInfo>,
    ) -> BoxFuture<'h, Response> {
        Box::pin(handled(self, request, connection))
    }
}

/// Returns the request attributes for the authorizers.
fn attributes_of<'a>(user: &'a User, info: &'a RequestInfo) -> Attributes<'a> {
    Attributes {
        user,
        verb: info.verb_name(),
        resource_request: info.is_resource,
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: &info.namespace,
        name: &info.name,
        path: &info.path,
        selectors: info.requirements.selectors(),
    }
}

/// Returns the 504 response for the request timeout. This response has no kind and no apiVersion
/// (docs/api/errors.md#encoding-of-errors).
fn timed_out() -> Response {
    const BODY: &str = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete \
        within the allotted timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n";
    respond_text(StatusCode::GATEWAY_TIMEOUT, BODY)
}

/// Returns the name under which requests of a user are counted. Four system users keep their names, and all
/// other users share two names, so that the number of series stays small.
fn user_metric_label(name: &str) -> &str {
    match name {
        "admin" | "client" | "kube_proxy" | "kubelet" => name,
        email if email.contains('@') => "email_id",
        _ => "other",
    }
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

async fn handled(server: &Server, request: server::Request, connection: &Arc<ConnectionInfo>) -> Response {
    let mut exchange = Exchange::received(server, request, connection);
    let scope = exchange.scope.clone();
    let outcome = AssertUnwindSafe(scope.within(exchange.run())).catch_unwind().await;
    let response = match outcome {
        Ok(Ok(response)) => response,
        Ok(Err(ended)) => *ended,
        Err(_) => {
            // The panic hook has logged the message and the location; this line links them to a request.
            let (method, path) = (&exchange.request.head.method, exchange.request.head.uri.path());
            tracing::error!(%method, path, remote = %connection.remote, "request handler panicked");
            if let Some(trail) = exchange.request.trail.take() {
                answer::panicked(&trail);
            }
            panic_response()
        }
    };
    // Every response reaches this line, including the response of a step that ended the request.
    let response = routes::charged(response, &exchange.request.account, &exchange.request.errors);
    exchange.finish(response)
}
