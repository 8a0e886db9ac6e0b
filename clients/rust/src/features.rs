//! A client of the test features.

use std::time::Duration;

use http::{Method, Request};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Reason why a call of the test features failed.
#[derive(Debug, thiserror::Error)]
pub enum FeatureError {
    /// The server refused the call, or cannot be reached.
    #[error(transparent)]
    Refused(#[from] kube::Error),
    /// The response cannot be decoded.
    #[error("unexpected answer of {path}: {source}")]
    Answer {
        /// Path of the call.
        path: String,
        /// The error of the decoder.
        source: serde_json::Error,
    },
    /// The call cannot be encoded.
    #[error("invalid call of {path}: {source}")]
    Call {
        /// Path of the call.
        path: String,
        /// The error of the encoder.
        source: http::Error,
    },
}

/// A pattern of requests. An empty list matches everything. In a text, `*` matches any characters.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RequestPattern {
    /// Verbs, as in roles: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verbs: Vec<String>,
    /// API groups. The core group is the empty text.
    pub groups: Vec<String>,
    /// Resources. A subresource follows after a slash: `pods`, `pods/status`.
    pub resources: Vec<String>,
    /// Namespaces of the objects.
    pub namespaces: Vec<String>,
    /// Names of objects, as in the path.
    pub names: Vec<String>,
    /// Paths of the URL. A request that is not for a resource matches only a pattern with paths.
    pub paths: Vec<String>,
    /// Names of the users who send the requests.
    pub users: Vec<String>,
    /// Values of the header `User-Agent`.
    pub user_agents: Vec<String>,
}

/// The disturbance of a watch.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchEffect {
    /// The watch stays open, but sends nothing more.
    Stall,
    /// A stalled watch sends events again.
    Resume,
    /// The watch ends in the same way as at its timeout.
    Close,
    /// The connection breaks in the middle of the response.
    Break,
    /// The watch ends with a 410, so that informers list again.
    Expire,
}

/// The effect of a rule on a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FaultEffect {
    /// No effect other than the delay of the rule.
    Delay,
    /// The request is answered with an HTTP status code, and with `Retry-After` if `retry_after_s` is not 0.
    Error {
        /// Status code, 400 to 599.
        code: u16,
        /// Seconds in `Retry-After`.
        retry_after_s: u32,
    },
    /// The connection breaks, and the request is not served.
    CloseBefore,
    /// The request is served, but the connection breaks before the response.
    CloseAfter,
    /// A read returns the state at an earlier point: a resource version, a time, or a negative duration.
    StaleAt(String),
    /// A watch is disturbed after a number of changes.
    Watch {
        /// The disturbance.
        effect: WatchEffect,
        /// Number of changes that the watch sends before the disturbance.
        after_changes: u64,
    },
}

/// A rule that makes requests fail, delays them, or lets them read an old state.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// The requests to which the rule applies.
    pub pattern: RequestPattern,
    /// Number of matching requests that pass before the rule applies.
    pub skip: u64,
    /// Number of matching requests to which the rule applies; `None` means all.
    pub count: Option<u64>,
    /// Time that a matching request waits.
    pub delay: Duration,
    /// The effect on a matching request.
    pub effect: FaultEffect,
}

impl Fault {
    /// Returns a rule for all requests for resources.
    pub fn new(effect: FaultEffect) -> Fault {
        Fault { pattern: RequestPattern::default(), skip: 0, count: None, delay: Duration::ZERO, effect }
    }

    /// Returns a rule that answers requests with an HTTP status code.
    pub fn error(code: u16) -> Fault {
        Fault::new(FaultEffect::Error { code, retry_after_s: 0 })
    }

    /// Restricts this rule to the requests that match `pattern`.
    #[must_use]
    pub fn on(self, pattern: RequestPattern) -> Fault {
        Fault { pattern, ..self }
    }

    /// Limits this rule to `count` matching requests.
    #[must_use]
    pub fn times(self, count: u64) -> Fault {
        Fault { count: Some(count), ..self }
    }

    /// Makes this rule let the first `skip` matching requests pass.
    #[must_use]
    pub fn after(self, skip: u64) -> Fault {
        Fault { skip, ..self }
    }

    /// Adds a delay to this rule.
    #[must_use]
    pub fn delayed(self, delay: Duration) -> Fault {
        Fault { delay, ..self }
    }

    fn to_json(&self) -> Value {
        let mut rule = json!({ "match": self.pattern, "skip": self.skip, "delay": text(self.delay) });
        if let Some(count) = self.count {
            rule["count"] = count.into();
        }
        match &self.effect {
            FaultEffect::Delay => {}
            FaultEffect::Error { code, retry_after_s } => {
                rule["error"] = json!({ "code": code, "retryAfterSeconds": retry_after_s });
            }
            FaultEffect::CloseBefore => rule["close"] = "before".into(),
            FaultEffect::CloseAfter => rule["close"] = "after".into(),
            FaultEffect::StaleAt(point) => rule["staleAt"] = point.as_str().into(),
            FaultEffect::Watch { effect, after_changes } => {
                rule["watch"] = json!({ "effect": effect, "afterChanges": after_changes });
            }
        }
        rule
    }
}

/// The number of a rule on the server.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub struct FaultId(pub u64);

/// The time of the server.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct Clock {
    /// The time in RFC 3339.
    pub time: String,
    /// Whether the time is frozen.
    pub frozen: bool,
    /// The duration by which the time is ahead of the clock of the machine, in the notation of Go.
    pub ahead: String,
}

/// A position in the record of requests.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub struct Mark(pub u64);

/// A request in the record.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRequest {
    /// The verb, as in roles.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// API version of the resource.
    pub version: String,
    /// Plural name of the resource; empty if the request is not for a resource.
    pub resource: String,
    /// Name of the subresource, if any.
    pub subresource: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object, as in the path.
    pub name: String,
    /// Path and query of the URL.
    pub uri: String,
    /// Name of the user.
    pub user: String,
    /// Value of the header `User-Agent`.
    pub user_agent: String,
    /// HTTP status code of the response.
    pub code: u16,
    /// Number of the rule that was applied, if any.
    pub fault: Option<u64>,
    /// The body that the client sent, if it is JSON.
    pub body: Option<Value>,
}

/// The result of waiting for quiescence.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Quiescence {
    /// The newest resource version.
    pub resource_version: String,
}

/// Result of saving a snapshot of the state.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SavedSnapshot {
    /// Name of the snapshot.
    pub name: String,
    /// Number of objects in the saved state.
    pub objects: u64,
}

/// Result of restoring a snapshot.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RestoredSnapshot {
    /// Name of the snapshot.
    pub name: String,
    /// Number of objects that were written or deleted.
    pub writes: u64,
}

/// A client of the test features of a server.
#[derive(Clone)]
pub struct TestFeatures {
    client: kube::Client,
}

#[derive(Deserialize)]
struct RecordPage {
    items: Vec<RecordedRequest>,
    mark: Mark,
}

#[derive(Deserialize)]
struct MarkOnly {
    mark: Mark,
}

#[derive(Deserialize)]
struct RuleOnly {
    id: FaultId,
}

#[derive(Deserialize)]
struct DisturbedOnly {
    disturbed: usize,
}

impl TestFeatures {
    pub(crate) fn new(client: kube::Client) -> TestFeatures {
        TestFeatures { client }
    }

    /// Returns the time of the server.
    ///
    /// # Errors
    /// See [`FeatureError`]. All other methods have the same errors.
    pub async fn clock(&self) -> Result<Clock, FeatureError> {
        self.call(Method::GET, "/testing/clock", Value::Null).await
    }

    /// Sets the time of the server to a time in RFC 3339.
    pub async fn set_time(&self, time: &str) -> Result<Clock, FeatureError> {
        self.call(Method::PUT, "/testing/clock", json!({ "time": time })).await
    }

    /// Moves the time of the server forward.
    pub async fn advance(&self, by: Duration) -> Result<Clock, FeatureError> {
        self.call(Method::PUT, "/testing/clock", json!({ "advance": text(by) })).await
    }

    /// Freezes the time of the server, or lets it run again.
    pub async fn freeze(&self, frozen: bool) -> Result<Clock, FeatureError> {
        self.call(Method::PUT, "/testing/clock", json!({ "frozen": frozen })).await
    }

    /// Makes the time of the server follow the clock of the machine again.
    pub async fn reset_clock(&self) -> Result<Clock, FeatureError> {
        self.call(Method::DELETE, "/testing/clock", Value::Null).await
    }

    /// Adds a rule, and returns its number.
    pub async fn add_fault(&self, fault: &Fault) -> Result<FaultId, FeatureError> {
        let added: RuleOnly = self.call(Method::POST, "/testing/faults", fault.to_json()).await?;
        Ok(added.id)
    }

    /// Removes the rule with this number.
    pub async fn remove_fault(&self, id: FaultId) -> Result<(), FeatureError> {
        self.call(Method::DELETE, &format!("/testing/faults/{}", id.0), Value::Null).await.map(|_: Value| ())
    }

    /// Removes all rules from the server.
    pub async fn clear_faults(&self) -> Result<(), FeatureError> {
        self.call(Method::DELETE, "/testing/faults", Value::Null).await.map(|_: Value| ())
    }

    /// Disturbs all open watches that match `pattern`, and returns the number of these watches.
    pub async fn disturb_watches(
        &self,
        pattern: &RequestPattern,
        effect: WatchEffect,
    ) -> Result<usize, FeatureError> {
        let order = json!({ "match": pattern, "effect": effect });
        let answer: DisturbedOnly = self.call(Method::POST, "/testing/watches", order).await?;
        Ok(answer.disturbed)
    }

    /// Returns the current position in the record of requests.
    pub async fn mark(&self) -> Result<Mark, FeatureError> {
        let answer: MarkOnly = self.call(Method::GET, "/testing/requests", Value::Null).await?;
        Ok(answer.mark)
    }

    /// Returns the recorded requests after `mark`, with their bodies.
    pub async fn requests_since(&self, mark: Mark) -> Result<Vec<RecordedRequest>, FeatureError> {
        let (mut mark, mut requests) = (mark, Vec::new());
        loop {
            let path = format!("/testing/requests?bodies=true&since={}", mark.0);
            let page: RecordPage = self.call(Method::GET, &path, Value::Null).await?;
            if page.items.is_empty() {
                return Ok(requests);
            }
            requests.extend(page.items);
            mark = page.mark;
        }
    }

    /// Waits until no object was written for the time `quiet`, and every watch has sent all events.
    pub async fn quiesce(&self, quiet: Duration, timeout: Duration) -> Result<Quiescence, FeatureError> {
        let parameters = json!({ "for": text(quiet), "timeout": text(timeout) });
        self.call(Method::POST, "/testing/quiescence", parameters).await
    }

    /// Saves a snapshot of all objects under a name.
    pub async fn save(&self, name: &str) -> Result<SavedSnapshot, FeatureError> {
        self.call(Method::PUT, &format!("/testing/snapshots/{name}"), Value::Null).await
    }

    /// Restores a snapshot. Watches end with 410, so that informers list again.
    pub async fn restore(&self, name: &str) -> Result<RestoredSnapshot, FeatureError> {
        self.call(Method::POST, &format!("/testing/snapshots/{name}/restore"), Value::Null).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> Result<T, FeatureError> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).body(body);
        let request = request.map_err(|source| FeatureError::Call { path: path.to_owned(), source })?;
        let answer = self.client.request_text(request).await?;
        serde_json::from_str(&answer).map_err(|source| FeatureError::Answer { path: path.to_owned(), source })
    }
}

/// Formats a duration in the notation of the server.
fn text(duration: Duration) -> String {
    format!("{}ns", duration.as_nanos())
}
