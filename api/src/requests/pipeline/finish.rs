//! The end of an exchange: the headers that every response has, and the reports about the request in the log,
//! in the trace and in the audit event.

use std::time::{Duration, Instant};

use auth::User;
use auth::identity::MASTERS;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderName, USER_AGENT, WARNING};
use http::{HeaderValue, Method};

use super::{AUDIT_ID, Exchange};
use crate::state::audit::{Latency, answer};
use values::warning;
use wire::response::Response;
use wire::traces::Parent;

/// Headers with the UIDs of the flow schema and the priority level of a request.
const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Duration from which a request that is not a stream counts as slow.
const SLOW: Duration = Duration::from_millis(500);

impl Exchange<'_> {
    /// Begins the trace of the request, if the request is sampled. Only administrators can request sampling
    /// with a trace header. Otherwise any client could cause the server to trace all requests of the client.
    pub(super) fn begin_trace(&mut self, user: Option<&User>) {
        let Some(tracer) = self.request.server().operations.tracer.as_ref() else { return };
        let is_trusted = user.is_some_and(|user| user.groups.iter().any(|group| group == MASTERS));
        self.trace = tracer.begin(Parent::from_headers(&self.request.head.headers).filter(|_| is_trusted));
    }

    /// Records the duration of a step.
    pub(super) fn passed(&mut self, stage: &'static str, took: Duration) {
        self.stages.push((stage, took));
        if let Some(trace) = &mut self.trace {
            trace.stage(stage, took);
        }
    }

    /// Reports the durations of the steps of a slow request, in the log and in its audit event.
    fn tell_slow(&self, response: &Response) {
        if self.request.info.is_long_running() {
            return;
        }
        if let Some(trail) = &self.request.trail {
            trail.note_latency(self.latency());
        }
        let took = self.request.received.elapsed();
        if took < SLOW {
            return;
        }
        let spent = self.scope.spent();
        let layers = [
            ("store", spent.storage),
            ("mutating webhooks", spent.mutating_webhooks),
            ("validating webhooks", spent.validating_webhooks),
            ("serialization", spent.serialization),
        ];
        let layers = layers.into_iter().filter(|(_, took)| took.as_millis() > 0);
        let shown = |(name, took): (&str, Duration)| format!("{name} {} ms", took.as_millis());
        let stages: Vec<String> = self.stages.iter().copied().map(shown).collect();
        let layers: Vec<String> = layers.map(shown).collect();
        let webhooks: Vec<String> =
            spent.calls.iter().map(|(name, took)| shown((name.as_str(), *took))).collect();
        let (_, resource) = self.subject();
        tracing::warn!(
            verb = self.request.info.verb_name(),
            resource,
            path = %self.request.info.path,
            user = %self.request.user.as_ref().map_or("", |user| user.name.as_str()),
            audit_id = %String::from_utf8_lossy(self.request.audit_id.as_bytes()),
            status = response.status().as_u16(),
            elapsed_ms = took.as_millis() as u64,
            stages = stages.join(", "),
            layers = layers.join(", "),
            webhooks = webhooks.join(", "),
            "slow request"
        );
    }

    /// Returns the annotations about the latency of the request, except the annotations that are known only
    /// after the response is sent.
    fn latency(&self) -> Latency {
        let group = self.request.server().types.naming.group("apiserver.latency", true);
        let stages = self.stages.iter().copied().filter(|(stage, _)| *stage != "serving");
        Latency {
            group,
            received: self.request.received,
            answered: Instant::now(),
            stages: stages.collect(),
            scope: self.scope.clone(),
        }
    }

    /// Returns verb and resource, such as `get` and `deployments.apps/scale`.
    fn subject(&self) -> (&str, String) {
        let info = &self.request.info;
        if !info.is_resource {
            return (self.request.head.method.as_str(), String::new());
        }
        let dot = if info.group.is_empty() { "" } else { "." };
        let slash = if info.subresource.is_empty() { "" } else { "/" };
        let resource = format!("{}{dot}{}{slash}{}", info.resource, info.group, info.subresource);
        (info.verb_name(), resource)
    }

    /// Ends the trace and queues its spans.
    fn end_trace(&mut self, response: &Response) {
        let Some(trace) = self.trace.take() else { return };
        let (verb, resource) = self.subject();
        let name = if resource.is_empty() { verb.to_owned() } else { format!("{verb} {resource}") };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let attributes = vec![
            ("http.request.method", self.request.head.method.as_str().to_owned()),
            ("url.path", self.request.head.uri.path().to_owned()),
            ("http.response.status_code", response.status().as_str().to_owned()),
            ("audit-id", text(self.request.audit_id.as_bytes())),
            ("enduser.id", self.request.user.as_ref().map_or_else(String::new, |user| user.name.clone())),
            (
                "user_agent.original",
                text(self.request.head.headers.get(USER_AGENT).map_or(b"", |agent| agent.as_bytes())),
            ),
        ];
        let lost = trace.end(name, attributes, response.status().is_server_error());
        self.request.server().operations.metrics.spans_dropped.add(lost);
    }

    /// Completes the response to a served or refused request, and reports the request.
    pub(super) fn finish(mut self, mut response: Response) -> Response {
        self.log(&response);
        self.record(&response);
        self.explain(&response);
        self.tell_slow(&response);
        self.end_trace(&response);
        self.request.server().access.edge.complete(&self.request.head, self.is_anonymous, &mut response);
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, self.request.audit_id);
        for header in warning::headers(&self.warning.map(str::to_owned).into_iter().collect::<Vec<_>>()) {
            headers.append(WARNING, header);
        }
        if let Some(flow) = self.flow {
            headers.insert(FLOW_SCHEMA, flow.schema.clone());
            headers.insert(PRIORITY_LEVEL, flow.level.clone());
        }
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        if self.request.head.method == Method::HEAD {
            // The header contains the length of the body that a GET would return; the body itself is not
            // sent.
            if let Some(length) = hyper::body::Body::size_hint(response.body()).exact() {
                // A response that was proxied has set the length already.
                response.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
            }
            *response.body_mut() = wire::server::Body::empty();
        }
        match self.request.trail {
            Some(trail) => {
                let long_running = self.request.info.is_long_running();
                answer::answered(trail, long_running, response)
            }
            None => response,
        }
    }

    /// Logs the request when the head of the response is known. At this time the body of a list or watch has
    /// not been sent. Each of the three log targets corresponds to a level of detail of the log
    /// (docs/api/operations.md#the-log).
    fn log(&self, response: &Response) {
        macro_rules! line {
            ($target:literal) => {
                if tracing::enabled!(target: $target, tracing::Level::DEBUG) {
                    let agent = self.request.head.headers.get(USER_AGENT);
                    let agent = agent.map(|agent| String::from_utf8_lossy(agent.as_bytes()));
                    tracing::debug!(
                        target: $target,
                        verb = self.request.info.verb_name(),
                        path = %self.request.info.path,
                        user = %self.request.user.as_ref().map_or("", |user| user.name.as_str()),
                        impersonated = %self.request.impersonated.as_ref().map_or("", |user| user.name.as_str()),
                        agent = %agent.unwrap_or_default(),
                        peer = %self.request.connection.remote,
                        audit_id = %String::from_utf8_lossy(self.request.audit_id.as_bytes()),
                        resource = self.subject().1,
                        status = response.status().as_u16(),
                        elapsed_us = self.request.received.elapsed().as_micros() as u64,
                        "request"
                    );
                }
            };
        }
        let code = response.status();
        if code.is_client_error() || code.is_server_error() {
            line!("request::failed");
        } else if matches!(self.request.head.method, Method::GET | Method::HEAD | Method::OPTIONS) {
            line!("request::read");
        } else {
            line!("request::write");
        }
    }
}
