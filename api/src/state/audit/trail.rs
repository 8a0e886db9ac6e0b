//! The audit trail of one request: the collected data, and an event for each audit stage
//! (docs/api/audit.md#audit-events).
//!
//! The stages of a request share the trail. A lock protects the data that the stages add. The lock is never
//! held across a wait.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use auth::User;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::policy::{AuditDecision, AuditLevel, AuditStage};
use super::{Auditor, Event, Latency};
use objects::request::RequestInfo;
use objects::user_info;
use values::clock;
use values::json::{self, Object, Value};
use values::naming::Naming;
use values::object::meta;
use wire::metrics::Metrics;

/// Maximum length of a user agent in an event, in bytes.
const AGENT_BYTES_MAX: usize = 1024;

/// The properties of a request at its arrival.
pub struct Arrival<'r> {
    /// The naming profile in use.
    pub naming: &'static Naming,
    /// Verb and target of the request.
    pub info: &'r RequestInfo,
    /// The user; `None` if authentication failed.
    pub user: Option<&'r User>,
    /// Path and query as they were sent.
    pub uri: String,
    /// Identifier of the request in the audit log.
    pub audit_id: String,
    /// The headers of the request.
    pub headers: &'r HeaderMap,
    /// Address of the peer.
    pub peer: IpAddr,
    /// The counters of `/metrics`.
    pub metrics: &'r Arc<Metrics>,
}

/// The audit trail of one request.
pub struct Trail {
    auditor: Auditor,
    metrics: Arc<Metrics>,
    decision: AuditDecision,
    api_version: String,
    audit_id: String,
    /// The members of the event from `requestURI` to `userAgent`.
    arrival: Object,
    received: String,
    found: Mutex<Found>,
}

/// Data that the stages of the request add.
struct Found {
    impersonated: Option<Object>,
    constraint: Option<&'static str>,
    reference: Option<Reference>,
    status: Option<Object>,
    request: Option<Value>,
    response: Option<Value>,
    annotations: BTreeMap<String, String>,
    /// Measurements for the latency annotations, which are added once the response has been sent.
    latency: Option<Latency>,
    /// Whether the patch of the request is not JSON.
    lacks_patch: bool,
}

/// The object that a request concerns.
#[derive(Default)]
struct Reference {
    resource: String,
    namespace: String,
    name: String,
    uid: String,
    group: String,
    version: String,
    resource_version: String,
    subresource: String,
}

impl Trail {
    /// Begins the trail of a request; returns `None` if the policy does not record the request.
    pub fn begin(auditor: &Auditor, arrival: &Arrival<'_>) -> Option<Trail> {
        let Arrival { naming, info, user, uri, audit_id, headers, peer, metrics } = arrival;
        let decision = auditor.policy.decide(*user, info);
        metrics.audit.levels.count(&[decision.level.as_str()]);
        if decision.level == AuditLevel::None {
            return None;
        }
        let mut members = Object::with_capacity(5);
        members.push("requestURI", uri.as_str().into());
        members.push("verb", info.verb_name().into());
        members.push("user", user.map(user_info::info).unwrap_or_default().into());
        let sources = source_addresses(headers, *peer);
        members.push("sourceIPs", Value::Array(sources.iter().map(|ip| ip.to_string().into()).collect()));
        let agent =
            headers.get(http::header::USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        if let Some(agent) = agent.filter(|agent| !agent.is_empty()) {
            members.push("userAgent", shortened(&agent).into());
        }
        let reference = info.is_resource.then(|| Reference {
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            group: info.group.clone(),
            version: info.version.clone(),
            subresource: info.subresource.clone(),
            ..Reference::default()
        });
        Some(Trail {
            auditor: auditor.clone(),
            metrics: Arc::clone(metrics),
            decision,
            api_version: naming.api_version("audit", true, "v1"),
            audit_id: audit_id.clone(),
            arrival: members,
            received: clock::now_micros(),
            found: Mutex::new(Found {
                lacks_patch: false,
                impersonated: None,
                constraint: None,
                reference,
                status: None,
                request: None,
                response: None,
                annotations: BTreeMap::new(),
                latency: None,
            }),
        })
    }

    /// Records the impersonated user, and the verb of the constrained permission for the impersonation.
    pub fn impersonate(&self, user: &User, constraint: Option<&'static str>) {
        let mut found = self.found.lock();
        found.impersonated = Some(user_info::info(user));
        found.constraint = constraint;
    }

    /// Returns whether the object of the request is recorded.
    pub fn wants_request(&self) -> bool {
        self.decision.level >= AuditLevel::Request
    }

    /// Returns whether the object of the response is recorded.
    pub fn wants_response(&self) -> bool {
        self.decision.level >= AuditLevel::RequestResponse
    }

    /// Completes the object reference with metadata of the request's object.
    pub fn refer_to(&self, object: &Object) {
        let mut found = self.found.lock();
        let Some(reference) = &mut found.reference else { return };
        for (known, name) in [
            (&mut reference.namespace, "namespace"),
            (&mut reference.name, "name"),
            (&mut reference.uid, "uid"),
            (&mut reference.resource_version, "resourceVersion"),
        ] {
            if known.is_empty() {
                known.push_str(meta(object, name));
            }
        }
    }

    /// Records the object of the request.
    pub fn request(&self, object: Value) {
        let object = self.recorded(object);
        self.found.lock().request = Some(object);
    }

    /// Records that the patch of the request is not JSON, so that later events cannot be written as JSON
    /// (docs/api/audit.md#audit-events).
    pub fn lacks_patch(&self) {
        self.found.lock().lacks_patch = true;
    }

    /// Records the object of the response.
    pub fn response(&self, object: Value) {
        let object = self.recorded(object);
        self.found.lock().response = Some(object);
    }

    /// Records the outcome: the status code, and the response body if it is a Status object.
    pub fn status(&self, code: StatusCode, status: Option<&Object>) {
        let mut outcome = Object::with_capacity(6);
        outcome.push("metadata", Value::Object(Object::new()));
        for name in ["status", "message", "reason", "details"] {
            if let Some(value) = status.and_then(|status| status.get(name)) {
                outcome.push(name, value.clone());
            }
        }
        outcome.push("code", Value::Int(code.as_u16().into()));
        self.found.lock().status = Some(outcome);
    }

    /// Adds an annotation. If the key already has a value, this value is kept.
    pub fn annotate(&self, key: String, value: String) {
        self.found.lock().annotations.entry(key).or_insert(value);
    }

    /// Stores the measurements for the latency annotations, which are added once the response has been sent.
    pub fn note_latency(&self, latency: Latency) {
        self.found.lock().latency = Some(latency);
    }

    /// Writes the event of a stage, unless the policy omits the stage. Returns false if the event was lost;
    /// the loss is logged.
    pub fn reach(&self, stage: AuditStage) -> bool {
        if self.decision.omits.contains(stage) {
            return true;
        }
        let is_sent = stage == AuditStage::ResponseComplete;
        if let Some(latency) = is_sent.then(|| self.found.lock().latency.take()).flatten() {
            latency
                .annotations(Instant::now())
                .into_iter()
                .for_each(|(key, value)| self.annotate(key, value));
        }
        self.metrics.audit.events.count(&[]);
        match self.auditor.sink.record(&self.event(stage)) {
            Ok(()) => true,
            Err(error) => {
                self.metrics.audit.errors.count(&["backend"]);
                tracing::error!(%error, audit_id = self.audit_id, stage = stage.as_str(), "audit event lost");
                false
            }
        }
    }

    /// Returns whether the request is refused if its first event is lost.
    pub fn is_strict(&self) -> bool {
        self.auditor.strict
    }

    fn event(&self, stage: AuditStage) -> Event {
        let found = self.found.lock();
        let mut event = Object::with_capacity(18);
        event.push("kind", "Event".into());
        event.push("apiVersion", self.api_version.as_str().into());
        event.push("level", self.decision.level.as_str().into());
        event.push("auditID", self.audit_id.as_str().into());
        event.push("stage", stage.as_str().into());
        for (name, value) in self.arrival.iter() {
            event.push(name.to_owned(), value.clone());
            if name == "user"
                && let Some(user) = &found.impersonated
            {
                event.push("impersonatedUser", user.clone().into());
                if let Some(constraint) = found.constraint {
                    let members = [("impersonationConstraint".into(), constraint.into())];
                    event.push("authenticationMetadata", Object::from_iter(members).into());
                }
            }
        }
        if let Some(reference) = &found.reference {
            event.push("objectRef", reference.to_object().into());
        }
        for (name, object) in [("requestObject", &found.request), ("responseObject", &found.response)] {
            if name == "requestObject"
                && let Some(status) = &found.status
            {
                event.push("responseStatus", status.clone().into());
            }
            if let Some(object) = object {
                event.push(name, object.clone());
            }
        }
        event.push("requestReceivedTimestamp", self.received.as_str().into());
        event.push("stageTimestamp", clock::now_micros().into());
        if !found.annotations.is_empty() {
            let mut annotations = Object::with_capacity(found.annotations.len());
            for (key, value) in &found.annotations {
                annotations.push(key.clone(), value.as_str().into());
            }
            event.push("annotations", annotations.into());
        }
        Event { members: event, lacks_patch: found.lacks_patch }
    }

    /// Returns the object with field sets as JSON, or without its managed fields.
    fn recorded(&self, mut object: Value) -> Value {
        let omits = self.decision.omits_managed_fields;
        if let Some(members) = object.as_object_mut() {
            settle_managed_fields(members, omits);
            let items = members.get_mut("items").and_then(Value::as_array_mut);
            for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
                settle_managed_fields(item, omits);
            }
            let rows = members.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten();
            for row in rows.filter_map(Value::as_object_mut) {
                if let Some(object) = row.get_mut("object").and_then(Value::as_object_mut) {
                    settle_managed_fields(object, omits);
                }
            }
        }
        object
    }
}

impl Reference {
    fn to_object(&self) -> Object {
        let mut object = Object::with_capacity(8);
        for (name, text) in [
            ("resource", &self.resource),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("uid", &self.uid),
            ("apiGroup", &self.group),
            ("apiVersion", &self.version),
            ("resourceVersion", &self.resource_version),
            ("subresource", &self.subresource),
        ] {
            if !text.is_empty() {
                object.push(name, text.as_str().into());
            }
        }
        object
    }
}

/// Converts field sets, which are text in object trees, to the JSON form that clients receive. If `omit` is
/// set, removes the managed fields instead.
fn settle_managed_fields(object: &mut Object, omit: bool) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if omit {
        metadata.remove("managedFields");
        return;
    }
    let entries = metadata.get_mut("managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
        let Some(fields) = entry.get_mut("fieldsV1") else { continue };
        if let Some(set) = fields.as_str().and_then(|text| json::parse(text.as_bytes()).ok()) {
            *fields = set;
        }
    }
}

/// Returns the source addresses of the request: first the addresses that proxies report, which may be false,
/// and last the address of the peer.
fn source_addresses(headers: &HeaderMap, peer: IpAddr) -> Vec<IpAddr> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut addresses: Vec<IpAddr> =
        text("x-forwarded-for").split(',').filter_map(|address| address.trim().parse().ok()).collect();
    if let Ok(real) = text("x-real-ip").trim().parse()
        && !addresses.contains(&real)
    {
        addresses.push(real);
    }
    if addresses.last() != Some(&peer) {
        addresses.push(peer);
    }
    addresses
}

fn shortened(agent: &str) -> String {
    if agent.len() <= AGENT_BYTES_MAX {
        return agent.to_owned();
    }
    let end = (0..=AGENT_BYTES_MAX).rev().find(|&at| agent.is_char_boundary(at)).unwrap_or_default();
    format!("{}...TRUNCATED", &agent[..end])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;

    use super::*;
    use crate::state::audit::{AuditPolicy, Sink};
    use values::naming::KUBERNETES;
    use values::query::Query;

    /// A sink that keeps events, or loses them if the flag is set.
    struct MemorySink(Mutex<Vec<String>>, bool);

    impl Sink for MemorySink {
        fn record(&self, event: &Event) -> std::io::Result<()> {
            if self.1 {
                return Err(std::io::Error::other("no room"));
            }
            let mut text = Vec::new();
            json::write(&event.members.clone().into(), &mut text);
            self.0.lock().push(String::from_utf8(text).unwrap());
            Ok(())
        }
    }

    fn trail(rule: &str, path: &str, sink: &Arc<MemorySink>) -> Option<Trail> {
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{rule}]");
        let policy = Arc::new(AuditPolicy::parse(text.as_bytes(), &KUBERNETES).unwrap());
        let auditor = Auditor { policy, sink: sink.clone(), strict: true };
        let user = User::new("joe", ["devs"]);
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", "203.0.113.9, 198.51.100.7, what".parse().unwrap());
        headers.insert("x-real-ip", "203.0.113.9".parse().unwrap());
        headers.insert("user-agent", "a".repeat(2000).parse().unwrap());
        Trail::begin(
            &auditor,
            &Arrival {
                naming: &KUBERNETES,
                info: &RequestInfo::parse(&Method::POST, path, &Query::parse("")).unwrap(),
                user: Some(&user),
                uri: path.to_owned(),
                audit_id: "id".to_owned(),
                headers: &headers,
                metrics: &Arc::default(),
                peer: IpAddr::from([127, 0, 0, 1]),
            },
        )
    }

    #[test]
    fn an_audit_event_contains_the_data_known_at_its_stage() {
        let sink = Arc::new(MemorySink(Mutex::default(), false));
        let path = "/api/v1/namespaces/n/pods";
        assert!(trail("{level: None}", path, &sink).is_none());
        let rule = "{level: Request, omitStages: [ResponseStarted], omitManagedFields: true}";
        let trail = trail(rule, path, &sink).unwrap();
        assert!(trail.reach(AuditStage::RequestReceived) && trail.reach(AuditStage::ResponseStarted));
        let object = json::parse(br#"{"metadata":{"name":"a","managedFields":[]}}"#).unwrap();
        trail.refer_to(object.as_object().unwrap());
        trail.request(object);
        trail.impersonate(&User::new("kim", ["ops"]), None);
        trail.annotate("k".to_owned(), "first".to_owned());
        trail.annotate("k".to_owned(), "second".to_owned());
        trail.status(StatusCode::CREATED, None);
        assert!(trail.reach(AuditStage::ResponseComplete));
        let events = sink.0.lock();
        let events: Vec<Value> = events.iter().map(|event| json::parse(event.as_bytes()).unwrap()).collect();
        let [received, complete] = events.as_slice() else { panic!("{events:?}") };
        let text = |value: Option<&Value>| {
            let mut text = Vec::new();
            json::write(value.unwrap_or(&Value::Null), &mut text);
            String::from_utf8(text).unwrap()
        };
        for (event, member, want) in [
            (received, "stage", r#""RequestReceived""#),
            (received, "user", r#"{"username":"joe","groups":["devs"]}"#),
            (received, "impersonatedUser", "null"),
            (complete, "impersonatedUser", r#"{"username":"kim","groups":["ops"]}"#),
            (received, "sourceIPs", r#"["203.0.113.9","198.51.100.7","127.0.0.1"]"#),
            (received, "objectRef", r#"{"resource":"pods","namespace":"n","apiVersion":"v1"}"#),
            (received, "responseStatus", "null"),
            (complete, "objectRef", r#"{"resource":"pods","namespace":"n","name":"a","apiVersion":"v1"}"#),
            (complete, "responseStatus", r#"{"metadata":{},"code":201}"#),
            (complete, "requestObject", r#"{"metadata":{"name":"a"}}"#),
            (complete, "annotations", r#"{"k":"first"}"#),
        ] {
            assert_eq!(text(event.get(member)), want, "{member}");
        }
        assert_eq!(received.str_at(&["userAgent"]).len(), AGENT_BYTES_MAX + "...TRUNCATED".len());
    }

    #[test]
    fn reach_returns_false_if_the_audit_event_is_lost() {
        let sink = Arc::new(MemorySink(Mutex::default(), true));
        assert!(!trail("{level: Metadata}", "/version", &sink).unwrap().reach(AuditStage::RequestReceived));
    }
}
