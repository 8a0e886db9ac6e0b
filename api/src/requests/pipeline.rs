//! The request chain: every request is one [`Exchange`] that passes the stages of `Exchange::run` in their order.
//!
//! ```text
//! received ─► request info ─► edge ─► authenticate ─► impersonate ─► take turn ─► authorize ─► serve (routes.rs) ─┐
//!                 └──────────────────┴─ refused ─┴──────────────┴────────────┴──────────────────────────┴─► finish
//! ```
//!
//! A stage either lets the request pass and leaves what it found in the exchange, or ends it with an answer. Either
//! way, and also after a panic in a stage, the exchange reaches `Exchange::finish`, so the code that
//! must see every request with its answer (common headers, the request log, traces, audit) has one place: `ending`.
//! Knows no resource types and no verbs; those begin at `routes`.

mod ending;
mod fields;
mod refusal;

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::{Attributes, Authenticated, Authorized, Credentials, User};
use engine::KeyRange;
use futures_util::FutureExt;
use futures_util::future::Shared;
use go::duration;
use http::header::{AUTHORIZATION, HeaderName, RETRY_AFTER};
use http::request::Parts as Head;
use http::{HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;

use self::fields::Fields;
use crate::requests::counted;
use crate::requests::routes::{self, Permitted};
use crate::state::audit::{self, Arrival, Trail, answer};
use crate::state::fairness::{self, Permit, Work};
use crate::state::impersonation;
use crate::writes::context::{Context, forbidden};
use objects::negotiate::{Offer, Output};
use objects::representation::answer::respond_status;
use objects::request::{RequestError, RequestInfo, Verb};
use objects::store::{self, Part, Pending};
use types::served::Served;
use values::cancellation::{self, Cancelled, Reason, Token};
use values::memory::Account;
use values::query::Query;
use values::request_scope::RequestScope;
use values::status::{self, Status, Subject};
use wire::metrics::requests::Labels;
use wire::response::{Response, respond_text};
use wire::server::upgrade::Switch;
use wire::server::websocket::{self, Upgrade};
use wire::server::{ConnectionInfo, Handler, InFlight, Incoming, Request, panic_response};
use wire::traces::{self, Trace};

/// Names the request in logs and audit events.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

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
    /// Whether the client did not say who it is, or could not prove it.
    is_anonymous: bool,
    /// How long the stages took, in order.
    stages: Vec<(&'static str, Duration)>,
    /// Collects the durations and webhook calls that the layers below report for the request.
    scope: Arc<RequestScope>,
    /// Why the request is refused, for the log: clients are not told all of it.
    refusal: Option<String>,
    /// The trace, if the request is traced.
    trace: Option<Trace>,
    /// A warning about the credentials.
    warning: Option<&'static str>,
    /// The audit trail, if the request is audited, from authentication to its answer.
    trail: Option<Arc<Trail>>,
    /// What flow control classified the request by.
    flow: Option<Arc<fairness::Ids>>,
    /// Ends the computations of the request.
    token: Token,
}

/// The answer of the stage that ended a request.
type Ended = Box<Response>;

impl<'c> Exchange<'c> {
    /// A request that was just received.
    fn received(context: &'c Context, request: Request, connection: &'c Arc<ConnectionInfo>) -> Exchange<'c> {
        let upgrade = Upgrade::asked(&request, connection);
        let switch = Switch::asked(&request, connection);
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
            scope: RequestScope::new(audit_id.clone()),
            refusal: None,
            audit_id,
            errors: plain.unwrap_or(Output::FALLBACK),
            pretty,
            info: None,
            user: None,
            impersonated: None,
            is_anonymous: false,
            stages: Vec::new(),
            trace: None,
            warning: None,
            trail: None,
            flow: None,
            token,
        }
    }

    /// The stages in their order. An error is the answer of the stage that ended the request.
    async fn run(&mut self) -> Result<Response, Ended> {
        let charge = self.context.memory().request(&self.connection.allotment);
        let charge = charge.map_err(|error| self.answer(&Status::no_memory(error)))?;
        let info = self.read_url()?;
        let in_flight = self.enter(&info)?;
        let user = self.authenticate().await?;
        let mut asking = self.ask_newest(&info);
        let newest = asking.clone().map(|newest| Box::pin(newest) as Pending<'_, _>);
        let mut permitted = pin!(self.permitted(user, &info, newest));
        let answer = poll_fn(|context| {
            // What is asked of another server is on its way while the request passes the stages.
            if asking.as_mut().is_some_and(|asking| asking.poll_unpin(context).is_ready()) {
                asking = None;
            }
            permitted.as_mut().poll(context)
        });
        let (response, permit) = answer.await?;
        // A stream has had its turn once it begins; what is still to be sent of another answer belongs to it.
        let held = permit.filter(|_| !info.is_long_running());
        let response = match (held, in_flight) {
            (None, None) => response,
            held => response.map(|body| body.with(held)),
        };
        Ok(response.map(|body| body.keeping(charge)))
    }

    /// The stages from authentication on.
    async fn permitted(
        &mut self,
        user: Arc<User>,
        info: &Arc<RequestInfo>,
        newest: Option<Pending<'_, Result<(), Status>>>,
    ) -> Result<(Response, Option<Permit>), Ended> {
        self.begin_trail(&user, info)?;
        let user = self.impersonate(user, info).await?;
        let attributes = attributes_of(&user, info);
        let permit = self.take_turn(&attributes, info).await?;
        let proof = self.authorize(&attributes).await?;
        Ok((self.serve(info, &proof, newest).await?, permit))
    }

    /// Begins to find out what other servers have acknowledged, for a read that is to have all of that: of those who are known,
    /// and before it is known whether they may.
    fn ask_newest(&self, info: &RequestInfo) -> Option<Shared<Pending<'c, Result<(), Status>>>> {
        let backends = self.context.backends();
        backends.main().ledger()?;
        if !info.is_resource || !routes::reads_newest(info, &self.query) {
            return None;
        }
        let resource = self.types.registry().resource(&info.group, &info.version, &info.resource);
        let resource = resource.filter(|resource| resource.table.storage.is_some())?;
        Some(backends.of(resource).ledger()?.current().shared())
    }

    /// Reads what the URL and the method ask for.
    fn read_url(&mut self) -> Result<Arc<RequestInfo>, Ended> {
        let path = self.head.uri.path();
        let info = RequestInfo::parse(&self.head.method, path, &self.query).map_err(|error| match error {
            RequestError::Escape => {
                Box::new(respond_text(StatusCode::BAD_REQUEST, "400 Bad Request: invalid URL escape\n"))
            }
            error => self.undecided(&format!("failed to create RequestInfo: {error}, {}", self.target())),
        })?;
        Ok(self.info.insert(Arc::new(info)).clone())
    }

    /// Ends what a leaving server does not take any more and what browsers ask in advance, and counts what it waits for:
    /// streams are none of that, but for watches that it ends in their time.
    fn enter(&self, info: &RequestInfo) -> Result<Option<InFlight>, Ended> {
        let (context, lifecycle) = (self.context, self.context.lifecycle());
        if let Some(answer) = context.edge().answer(context.naming(), lifecycle.stage(), &self.head) {
            return Err(Box::new(answer));
        }
        let is_awaited =
            !info.is_long_running() || info.verb == Verb::Watch && !context.limits().watch_grace.is_zero();
        Ok((context.edge().refuses_when_leaving && is_awaited).then(|| lifecycle.enter()))
    }

    /// Finds out who asks.
    async fn authenticate(&mut self) -> Result<Arc<User>, Ended> {
        // Bytes outside ASCII make a token that no authenticator knows, not a request without one.
        let header = self.head.headers.get(AUTHORIZATION);
        let header = header.map(fields::text);
        let protocols = websocket::protocols(&self.head.headers);
        // Paths that are open to anonymous requests are compared without escapes.
        let path = percent_decode_str(self.head.uri.path()).decode_utf8_lossy();
        let credentials = Credentials {
            path: &path,
            headers: Some(&Fields(&self.head.headers)),
            authorization: header.as_deref(),
            protocols: protocols.as_deref(),
            certificates: Some(&self.connection.certificates),
        };
        self.warning = credentials.warning();
        let began = Instant::now();
        let authenticated = self.context.authenticator().authenticate(&credentials).await;
        let (took, metrics) = (began.elapsed(), self.context.metrics());
        metrics.stages.time(&["authentication"], took);
        self.begin_trace(authenticated.as_ref().ok().map(|authenticated| &**authenticated.user()));
        self.passed("authentication", took);
        self.is_anonymous = !matches!(authenticated, Ok(Authenticated::User(_)));
        match authenticated {
            Ok(Authenticated::User(user) | Authenticated::Anonymous(user)) => {
                metrics.authenticated("success", took);
                metrics.users.count(&[shown_user(&user.name)]);
                if let Some(left) = self.connection.time_left() {
                    metrics.client_certificates.record(&[], left.as_secs());
                }
                Ok(self.user.insert(user).clone())
            }
            Err(error) => {
                metrics.authenticated("error", took);
                self.refusal = Some(error.to_string());
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
        let began = Instant::now();
        let decided = self.context.authorizer().impersonate(&attributes, &wanted).await;
        self.passed("impersonation", began.elapsed());
        let (decision, mode) = match &decided {
            Ok(acting) => ("allowed", acting.constraint.unwrap_or("legacy")),
            Err(_) => ("denied", ""),
        };
        self.context.metrics().impersonations.count(&[decision, mode]);
        self.context.metrics().impersonation_durations.time(&[decision, mode], began.elapsed());
        let acting = decided.map_err(|refused| {
            self.refusal = Some(refused.message.clone());
            let subject = Subject { group: &refused.group, kind: &refused.resource, name: &refused.name };
            self.forbid(&impersonation::refusal(&self.head.headers, subject, &refused.message))
        })?;
        impersonation::remove(&mut self.head.headers);
        if let Some(trail) = &self.trail {
            trail.impersonate(&acting.user, acting.constraint);
        }
        Ok(self.impersonated.insert(Arc::new(acting.user)).clone())
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
            return Err(self.undecided("failed to store audit event"));
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

    /// Records that the authorizers failed.
    fn annotate_undecided(&self) {
        let Some(trail) = &self.trail else { return };
        let group = self.context.naming().group("authorization", true);
        trail.annotate(format!("{group}/reason"), "internal error".to_owned());
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
        self.passed("apf-queue-wait", began.elapsed());
        self.flow = turn.ids;
        self.connection.set_crowded(turn.permit.as_ref().is_ok_and(Permit::is_crowded));
        turn.permit.map(Some).map_err(|retry_after_s| {
            self.count_refusal(info, StatusCode::TOO_MANY_REQUESTS);
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
        let resource = registry.resource(&info.group, &info.version, &info.resource);
        // Reviews and the like are answered from nothing that is stored.
        let Some(resource) = resource.filter(|resource| resource.storage.is_some()) else {
            return Work::Other;
        };
        if !info.name.is_empty() || info.verb == Verb::Watch && !begins_with_all() {
            return Work::Other;
        }
        let view = self.context.open_for(Part::Estimates).about(resource).view();
        let prefix = store::collection(resource, &info.namespace);
        let count = view.count(&KeyRange::prefix(&prefix));
        let limit = self.query.first("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
        let selects = ["labelSelector", "fieldSelector"].iter().any(|name| self.query.first(name).is_some());
        // A list that selects reads more than it returns.
        let read =
            limit.map_or(count, |limit: u64| limit.min(count).max(if selects { count / 2 } else { 0 }));
        let first = view.prefix(&prefix).next().map_or(0, |entry| entry.stored_len() as u64);
        Work::List(read.saturating_mul(first))
    }

    /// Asks the authorizers.
    async fn authorize<'a>(&mut self, attributes: &'a Attributes<'a>) -> Result<Authorized<'a>, Ended> {
        let began = Instant::now();
        let decided = self.context.authorizer().authorize(attributes).await;
        let (took, metrics) = (began.elapsed(), self.context.metrics());
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
            self.refusal = Some(refusal::of(attributes, &denied));
            match &denied.error {
                None => self.forbid(&forbidden(attributes, &denied.message)),
                Some(error) => self.undecided(error),
            }
        })
    }

    /// Serves a permitted request, within its time.
    async fn serve(
        &mut self,
        info: &RequestInfo,
        proof: &Authorized<'_>,
        newest: Option<Pending<'_, Result<(), Status>>>,
    ) -> Result<Response, Ended> {
        let Some(incoming) = self.incoming.take() else {
            return Err(self.answer(&Status::internal("a request is served once")));
        };
        // On the heap: its state is moved with each future around it.
        let work = Box::pin(routes::serve(Permitted {
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
            account: self.account(),
            newest,
        }));
        let work = traces::within(self.trace.as_ref().map(Trace::context), work);
        let work = cancellation::within(self.token.clone(), work);
        let began = Instant::now();
        let result = if info.is_long_running() {
            work.await
        } else {
            // The timer ends what waits, the token what computes.
            let time = self.time_allowed();
            self.token.cancel_at(began + time);
            let served = tokio::time::timeout(time, work).await;
            self.passed("serving", began.elapsed());
            served.unwrap_or(Err(Cancelled(Reason::Deadline)))
        };
        match result {
            Ok(result) => result.map_err(|status| self.answer(&status)),
            Err(Cancelled(Reason::Shutdown)) => Err(self.answer(&Status::new(
                status::Reason::ServiceUnavailable,
                "the server ended before the request was done; nothing was stored",
            ))),
            // A client that is gone does not receive the answer; the log and the audit event have it.
            Err(Cancelled(Reason::Deadline | Reason::Gone)) => {
                self.count_termination(info, StatusCode::GATEWAY_TIMEOUT);
                Err(Box::new(timed_out()))
            }
        }
    }

    /// Where memory for the request is charged.
    fn account(&self) -> Account {
        Account::new(self.context.memory().clone(), self.connection.allotment.clone())
    }

    /// Counts a request that is ended before it is done.
    fn count_termination(&self, info: &RequestInfo, code: StatusCode) {
        if let Some(labels) = self.labels(info).filter(|_| info.is_resource) {
            counted::count_end(self.context.metrics(), code, "apiserver", labels, &info.path);
        }
    }

    /// Counts a request that is refused for lack of room.
    fn count_refusal(&self, info: &RequestInfo, code: StatusCode) {
        if let Some(labels) = self.labels(info) {
            self.context.metrics().requests.refuse(labels, code);
        }
    }

    /// What a request that ends early is counted under; nothing for types that are not served, so that clients cannot make up
    /// series.
    fn labels<'l>(&self, info: &'l RequestInfo) -> Option<Labels<'l>> {
        let labels = counted::ended(info, &self.head.headers, &self.query);
        if !info.is_resource {
            return Some(labels);
        }
        let resource = self.types.registry().resource(&info.group, &info.version, &info.resource)?;
        let known = resource.table.subresources.iter().any(|table| table.name == info.subresource);
        Some(Labels { subresource: if known { labels.subresource } else { "" }, ..labels })
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

    /// The answer to a request of which it is not known whether it may go on, as a text that no browser takes for HTML.
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

    /// Path and query as the client sent them.
    fn target(&self) -> &str {
        self.head.uri.path_and_query().map_or("/", |target| target.as_str())
    }
}

impl Handler for Context {
    fn handshake_failed(&self) {
        self.metrics().tls_errors.count(&[]);
    }

    async fn handle(&self, request: Request, connection: &Arc<ConnectionInfo>) -> Response {
        let mut exchange = Exchange::received(self, request, connection);
        let scope = exchange.scope.clone();
        let outcome = AssertUnwindSafe(scope.within(exchange.run())).catch_unwind().await;
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
        // Every answer passes here, also those that a stage ended with.
        let response = routes::charged(response, &exchange.account(), &exchange.errors);
        exchange.finish(response)
    }
}

/// What the authorizers look at.
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
