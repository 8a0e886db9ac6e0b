//! The request chain: every request is one [`Exchange`] that passes the stages of `Exchange::run` in their order.
//!
//! ```text
//! received ─► request info ─► authenticate ─► impersonate ─► take turn ─► authorize ─► serve (routes.rs) ─┐
//!                 └──────────────────┴─ refused ─┴──────────────┴────────────┴──────────────────────────┴─► finish
//! ```
//!
//! A stage either lets the request pass and leaves what it found in the exchange, or ends it with an answer. Either
//! way, and also after a panic in a stage, the exchange reaches `Exchange::finish`, so the code that
//! must see every request with its answer (common headers, the request log, audit, later metrics) has one place.
//! Knows no resource types and no verbs; those begin at `routes`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::authn::HeaderFields;
use auth::go::duration;
use auth::{Attributes, Authenticated, Authorized, Credentials, User};
use futures_util::FutureExt;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, HeaderName, RETRY_AFTER, USER_AGENT, WARNING,
};
use http::request::Parts as Head;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::audit::{self, Arrival, Trail, answer};
use crate::context::{Context, forbidden};
use crate::fairness::{self, Permit, Work};
use crate::impersonation;
use crate::negotiate::{Offer, Output};
use crate::query::Query;
use crate::representation::answer::respond_status;
use crate::request::{RequestError, RequestInfo, Verb};
use crate::response::{Response, respond_text};
use crate::routes::{self, Permitted};
use crate::served::Served;
use crate::server::memory::Account;
use crate::server::websocket::{self, Upgrade};
use crate::server::{ConnectionInfo, Handler, Incoming, Request, panic_response};
use crate::status::{Status, Subject};
use crate::store;
use crate::warning;

/// Names the request in logs and audit events.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// UIDs of the flow schema and the priority level by which a request was classified.
const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// One request on its way through the stages, with all that they have found out so far.
pub struct Exchange<'c> {
    context: &'c Context,
    /// The types that are served, from the first stage to the last.
    types: Arc<Served>,
    connection: &'c ConnectionInfo,
    received: Instant,
    head: Head,
    query: Query,
    /// The body; taken by the stage that serves the request.
    incoming: Option<Incoming>,
    audit_id: HeaderValue,
    /// How errors are written: as the client asked where that is possible.
    errors: Output,
    /// Whether the client asked for indented text.
    pretty: bool,
    /// What is asked for, once the URL was read.
    info: Option<Arc<RequestInfo>>,
    /// Who asks, once authenticated.
    user: Option<Arc<User>>,
    /// As whom the request runs, where that is another user.
    impersonated: Option<Arc<User>>,
    /// A warning about the credentials.
    warning: Option<&'static str>,
    /// The audit trail, if the request is audited, from authentication to its answer.
    trail: Option<Arc<Trail>>,
    /// What flow control classified the request by.
    flow: Option<Arc<fairness::Ids>>,
}

/// The answer of the stage that ended a request.
type Ended = Box<Response>;

impl<'c> Exchange<'c> {
    /// A request that was just received.
    fn received(context: &'c Context, request: Request, connection: &'c Arc<ConnectionInfo>) -> Exchange<'c> {
        let upgrade = Upgrade::asked(&request, connection);
        let (mut head, incoming) = request.into_parts();
        if let Some(upgrade) = upgrade {
            head.extensions.insert(upgrade);
        }
        let audit_id = match head.headers.get(&AUDIT_ID) {
            Some(given) => given.clone(),
            None => HeaderValue::from_str(&crate::names::uid()).unwrap_or(HeaderValue::from_static("")),
        };
        let query = Query::parse(head.uri.query().unwrap_or_default());
        // Errors are written in the form asked for where that is possible, and as indented JSON otherwise.
        let plain = context.formats().output(&head.headers, &query, Offer::Plain);
        let pretty = plain.as_ref().is_ok_and(|output| output.pretty);
        Exchange {
            context,
            types: context.types(),
            connection,
            received: Instant::now(),
            head,
            query,
            incoming: Some(incoming),
            audit_id,
            errors: plain.unwrap_or(Output::FALLBACK),
            pretty,
            info: None,
            user: None,
            impersonated: None,
            warning: None,
            trail: None,
            flow: None,
        }
    }

    /// The stages in their order. An error is the answer of the stage that ended the request.
    async fn run(&mut self) -> Result<Response, Ended> {
        let info = self.read_url()?;
        let user = self.authenticate().await?;
        self.begin_trail(&user, &info)?;
        let user = self.impersonate(user, &info).await?;
        let attributes = attributes_of(&user, &info);
        let permit = self.take_turn(&attributes, &info).await?;
        let proof = self.authorize(&attributes).await?;
        let response = self.serve(&info, &proof).await?;
        // A stream has had its turn once it begins; what is still to be sent of another answer belongs to it.
        Ok(match permit {
            Some(permit) if !info.is_long_running() => response.map(|body| body.with(permit)),
            _ => response,
        })
    }

    /// Reads what the URL and the method ask for.
    fn read_url(&mut self) -> Result<Arc<RequestInfo>, Ended> {
        let path = self.head.uri.path();
        let info = RequestInfo::parse(&self.head.method, path, &self.query).map_err(|error| match error {
            RequestError::Escape => {
                Box::new(respond_text(StatusCode::BAD_REQUEST, "400 Bad Request: invalid URL escape\n"))
            }
            error => {
                let path = escape_html(path);
                let text =
                    format!("Internal Server Error: \"{path}\": failed to create RequestInfo: {error}");
                Box::new(respond_text(StatusCode::INTERNAL_SERVER_ERROR, text))
            }
        })?;
        Ok(self.info.insert(Arc::new(info)).clone())
    }

    /// Finds out who asks.
    async fn authenticate(&mut self) -> Result<Arc<User>, Ended> {
        // Bytes outside ASCII make a token that no authenticator knows, not a request without one.
        let header = self.head.headers.get(AUTHORIZATION);
        let header = header.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let protocols = websocket::protocols(&self.head.headers);
        let credentials = Credentials {
            path: self.head.uri.path(),
            headers: Some(&Fields(&self.head.headers)),
            authorization: header.as_deref(),
            protocols: protocols.as_deref(),
            certificates: &self.connection.certificates,
        };
        self.warning = credentials.warning();
        let began = Instant::now();
        let authenticated = self.context.authenticator().authenticate(&credentials).await;
        let (took, metrics) = (began.elapsed(), self.context.metrics());
        metrics.stages.time(&["authentication"], took);
        match authenticated {
            Ok(Authenticated::User(user) | Authenticated::Anonymous(user)) => {
                metrics.authentication.record("success", took);
                metrics.users.count(&[shown_user(&user.name)]);
                if let Some(left) = self.connection.time_left() {
                    metrics.client_certificates.record(&[], left.as_secs());
                }
                Ok(self.user.insert(user).clone())
            }
            Err(error) => {
                metrics.authentication.record("error", took);
                tracing::debug!(%error, "authentication failed");
                let refusal = self.answer(&Status::unauthorized());
                if let Some(trail) = self.info.as_ref().and_then(|info| self.trail_of(None, info)) {
                    answer::unauthenticated(&trail, &refusal);
                }
                Err(refusal)
            }
        }
    }

    /// Replaces the user where the request asks for it and the user may. From here on there are no such headers.
    async fn impersonate(&mut self, user: Arc<User>, info: &RequestInfo) -> Result<Arc<User>, Ended> {
        let wanted = impersonation::wanted(&self.head.headers).map_err(|status| self.answer(&status))?;
        let Some(wanted) = wanted else { return Ok(user) };
        let attributes = attributes_of(&user, info);
        let decided = self.context.authorizer().impersonate(&attributes, &wanted).await;
        let acting = decided.map_err(|refused| {
            let subject = Subject { group: &refused.group, kind: &refused.resource, name: &refused.name };
            self.forbid(&Status::forbidden(subject, &refused.message))
        })?;
        impersonation::remove(&mut self.head.headers);
        if let Some(trail) = &self.trail {
            trail.impersonate(&acting);
        }
        Ok(self.impersonated.insert(Arc::new(acting)).clone())
    }

    /// The trail that the audit policy wants of the request.
    fn trail_of(&self, user: Option<&User>, info: &RequestInfo) -> Option<Trail> {
        let uri = self.head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        let arrival = Arrival {
            naming: self.context.naming(),
            info,
            user,
            uri,
            audit_id: String::from_utf8_lossy(self.audit_id.as_bytes()).into_owned(),
            headers: &self.head.headers,
            peer: self.connection.remote.ip(),
            metrics: self.context.metrics(),
        };
        Trail::begin(self.context.auditor()?, &arrival)
    }

    /// Begins the audit trail. A request whose first event is lost is refused where audit is strict.
    fn begin_trail(&mut self, user: &User, info: &RequestInfo) -> Result<(), Ended> {
        let Some(trail) = self.trail_of(Some(user), info) else { return Ok(()) };
        let is_kept = trail.reach(audit::Stage::RequestReceived);
        if !is_kept && trail.is_strict() {
            self.context.metrics().audit.rejected.count(&[]);
            let path = escape_html(self.head.uri.path());
            let text = format!("Internal Server Error: \"{path}\": failed to store audit event\n");
            return Err(Box::new(respond_text(StatusCode::INTERNAL_SERVER_ERROR, text)));
        }
        self.trail = Some(Arc::new(trail));
        Ok(())
    }

    /// Records the decision of the authorizers.
    fn annotate_decision(&self, decision: &str, reason: &auth::decision::Reason) {
        let Some(trail) = &self.trail else { return };
        let group = self.context.naming().group("authorization", true);
        trail.annotate(format!("{group}/decision"), decision.to_owned());
        trail.annotate(format!("{group}/reason"), reason.to_string());
    }

    /// Waits until the request may run. Streams other than watches are none of flow control's.
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
        let turn = self.context.fairness().turn(attributes, self.time_allowed(), work).await;
        self.context.metrics().stages.time(&["priorityandfairness"], began.elapsed());
        self.flow = turn.ids;
        turn.permit.map(Some).map_err(|retry_after_s| {
            self.count_termination(info, StatusCode::TOO_MANY_REQUESTS);
            let text = "Too many requests, please try again later.\n";
            let mut response = respond_text(StatusCode::TOO_MANY_REQUESTS, text);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after_s));
            Box::new(response)
        })
    }

    /// What the request is going to take: a list as many bytes as its objects have, if all are like the first one.
    fn work(&self, info: &RequestInfo) -> Work {
        match info.verb {
            Verb::List | Verb::Watch => {}
            Verb::Get | Verb::Proxy => return Work::Other,
            Verb::Other("get" | "head" | "options") => return Work::Other,
            _ => return Work::Write,
        }
        let begins_with_all = || {
            self.query.first("sendInitialEvents") == Some("true")
                || self.query.first("resourceVersion").is_none()
        };
        let registry = self.types.registry();
        let Some(resource) = registry.resource(&info.group, &info.version, &info.resource) else {
            return Work::Other;
        };
        if !info.name.is_empty() || info.verb == Verb::Watch && !begins_with_all() {
            return Work::Other;
        }
        let snapshot = self.context.engine().snapshot();
        let prefix = store::collection(resource, &info.namespace);
        let count = snapshot.count_prefix(&prefix);
        let limit = self.query.first("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
        let selects = ["labelSelector", "fieldSelector"].iter().any(|name| self.query.first(name).is_some());
        // A list that selects reads more than it returns.
        let read =
            limit.map_or(count, |limit: u64| limit.min(count).max(if selects { count / 2 } else { 0 }));
        let first = snapshot.prefix(&prefix).next().map_or(0, |entry| entry.stored_len() as u64);
        Work::List(read.saturating_mul(first))
    }

    /// Asks the authorizers.
    async fn authorize<'a>(&self, attributes: &'a Attributes<'a>) -> Result<Authorized<'a>, Ended> {
        let began = Instant::now();
        let decided = self.context.authorizer().authorize(attributes).await;
        let (took, metrics) = (began.elapsed(), self.context.metrics());
        metrics.stages.time(&["authorization"], took);
        let result = match &decided {
            Ok(_) => "allowed",
            Err(denied) if denied.error.is_some() => "error",
            Err(denied) if denied.is_final => "denied",
            Err(_) => "no-opinion",
        };
        metrics.authorization.record(result, took);
        match &decided {
            Ok(proof) => self.annotate_decision("allow", proof.reason()),
            Err(denied) => self.annotate_decision("forbid", &denied.reason),
        }
        decided.map_err(|denied| match &denied.error {
            None => self.forbid(&forbidden(attributes, &denied.message)),
            Some(error) => self.undecided(error),
        })
    }

    /// Serves a permitted request, within its time.
    async fn serve(&mut self, info: &RequestInfo, proof: &Authorized<'_>) -> Result<Response, Ended> {
        let Some(incoming) = self.incoming.take() else {
            return Err(self.answer(&Status::internal("a request is served once")));
        };
        let work = routes::serve(Permitted {
            context: self.context,
            types: &self.types,
            head: &self.head,
            query: &self.query,
            info,
            proof,
            incoming,
            errors: &self.errors,
            pretty: self.pretty,
            trail: self.trail.as_deref(),
            received: self.received,
            peer: self.connection.remote.ip(),
            account: Account::new(self.context.memory().clone(), self.connection.allotment.clone()),
        });
        let result = if info.is_long_running() {
            work.await
        } else {
            match tokio::time::timeout(self.time_allowed(), work).await {
                Ok(result) => result,
                Err(_) => {
                    self.count_termination(info, StatusCode::GATEWAY_TIMEOUT);
                    return Err(Box::new(timed_out()));
                }
            }
        };
        result.map_err(|status| self.answer(&status))
    }

    /// Counts a request that is ended before it is done, if it is for a type that is served.
    fn count_termination(&self, info: &RequestInfo, code: StatusCode) {
        let registry = self.types.registry();
        let Some(resource) = registry.resource(&info.group, &info.version, &info.resource) else { return };
        let labels = routes::labels(resource, info, &self.query, false);
        let known = resource.table.subresources.iter().any(|table| table.name == info.subresource);
        self.context.metrics().terminations.count(&[
            code.as_str(),
            "apiserver",
            labels.group,
            labels.resource,
            labels.scope,
            if known { labels.subresource } else { "" },
            labels.verb,
            labels.version,
        ]);
    }

    /// `?timeout=` where it is given and positive, at most the operator's bound.
    fn time_allowed(&self) -> Duration {
        let bound = self.context.limits().request_timeout;
        let asked = self.query.first("timeout").and_then(|text| duration::parse(text).ok());
        let asked = asked.and_then(|nanos| u64::try_from(nanos).ok()).filter(|nanos| *nanos > 0);
        asked.map_or(bound, |nanos| Duration::from_nanos(nanos).min(bound))
    }

    /// An error in the form asked for.
    fn answer(&self, status: &Status) -> Ended {
        Box::new(respond_status(status, &self.errors))
    }

    /// The answer to a request that may not go on.
    fn forbid(&self, status: &Status) -> Ended {
        let mut response = self.answer(status);
        response
            .headers_mut()
            .insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    /// The answer to a request of which an authorizer could not tell whether it may go on.
    fn undecided(&self, error: &str) -> Ended {
        let target = self.head.uri.path_and_query().map_or("/", |target| target.as_str());
        let text = format!("Internal Server Error: {}: {error}\n", crate::field::go_quote(target));
        let mut response = respond_text(StatusCode::INTERNAL_SERVER_ERROR, text);
        response
            .headers_mut()
            .insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Box::new(response)
    }

    /// Completes the answer of a request, served or refused, and reports the request.
    fn finish(self, mut response: Response) -> Response {
        self.log(&response);
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, self.audit_id);
        for header in warning::headers(&self.warning.map(str::to_owned).into_iter().collect::<Vec<_>>()) {
            headers.append(WARNING, header);
        }
        if let Some(flow) = self.flow {
            headers.insert(FLOW_SCHEMA, flow.schema.clone());
            headers.insert(PRIORITY_LEVEL, flow.level.clone());
        }
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        if self.head.method == Method::HEAD {
            // The length is that of the body a GET would get; the body itself is not sent.
            if let Some(length) = hyper::body::Body::size_hint(response.body()).exact() {
                response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            *response.body_mut() = crate::server::Body::empty();
        }
        match self.trail {
            Some(trail) => {
                let long_running = self.info.is_some_and(|info| info.is_long_running());
                answer::answered(trail, long_running, response)
            }
            None => response,
        }
    }

    /// One line for each request, once its answer is known; the body of a list or watch is still to be sent then.
    fn log(&self, response: &Response) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let agent = self.head.headers.get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        tracing::debug!(
            verb = self.info.as_ref().map_or("", |info| info.verb.as_str()),
            path = %self.info.as_ref().map_or(self.head.uri.path(), |info| info.path.as_str()),
            user = %self.user.as_ref().map_or("", |user| user.name.as_str()),
            impersonated = %self.impersonated.as_ref().map_or("", |user| user.name.as_str()),
            agent = %agent.unwrap_or_default(),
            peer = %self.connection.remote,
            audit_id = %String::from_utf8_lossy(self.audit_id.as_bytes()),
            status = response.status().as_u16(),
            elapsed_us = self.received.elapsed().as_micros() as u64,
            "request"
        );
    }
}

impl Handler for Context {
    async fn handle(&self, request: Request, connection: &Arc<ConnectionInfo>) -> Response {
        let mut exchange = Exchange::received(self, request, connection);
        let outcome = AssertUnwindSafe(exchange.run()).catch_unwind().await;
        let response = match outcome {
            Ok(Ok(response)) => response,
            Ok(Err(ended)) => *ended,
            Err(_) => {
                // The panic hook has logged the text and the place; this ties them to a request.
                let (method, path) = (&exchange.head.method, exchange.head.uri.path());
                tracing::error!(%method, path, remote = %connection.remote, "request handler panicked");
                if let Some(trail) = exchange.trail.take() {
                    answer::panicked(&trail);
                }
                panic_response()
            }
        };
        exchange.finish(response)
    }
}

/// The headers of a request, for authenticators. Values that are not text are left out.
struct Fields<'h>(&'h HeaderMap);

impl HeaderFields for Fields<'_> {
    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in self.0 {
            if let Ok(value) = std::str::from_utf8(value.as_bytes()) {
                visit(name.as_str(), value);
            }
        }
    }
}

/// What the authorizers look at.
fn attributes_of<'a>(user: &'a User, info: &'a RequestInfo) -> Attributes<'a> {
    Attributes {
        user,
        verb: info.verb.as_str(),
        resource_request: info.is_resource,
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource: &info.subresource,
        namespace: &info.namespace,
        name: &info.name,
        path: &info.path,
    }
}

/// The 504 of the request timeout: a bare encoding without kind and apiVersion
/// (docs/api/errors.md#encoding-of-errors).
fn timed_out() -> Response {
    const BODY: &str = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete \
        within the allotted timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n";
    respond_text(StatusCode::GATEWAY_TIMEOUT, BODY)
}

/// Under which name requests of a user are counted, so that users do not make series.
fn shown_user(name: &str) -> &str {
    match name {
        "admin" | "client" | "kube_proxy" | "kubelet" => name,
        email if email.contains('@') => "email_id",
        _ => "other",
    }
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
