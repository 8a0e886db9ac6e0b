//! Construction of all `Status` objects: the errors of every layer become a Status here (docs/api/errors.md).

pub mod agent;

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt::Write;
use std::ops::{Deref, DerefMut};

use http::StatusCode;

use crate::field::FieldError;
use crate::json::{Object, Value};
use crate::memory::{MemoryExhausted, RETRY_AFTER_S};

/// Machine-readable reason of a failure, which clients branch on. Codes:
/// docs/api/errors.md#reasons-and-codes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StatusReason {
    /// The server gives no reason.
    Unknown,
    /// 401: the request has no valid credentials.
    Unauthorized,
    /// 403: the user lacks the permission.
    Forbidden,
    /// 404: the object or path does not exist.
    NotFound,
    /// 409: an object of this name exists already.
    AlreadyExists,
    /// 409: the object has changed, or another manager owns the fields.
    Conflict,
    /// 410: the revision was compacted, or the token expired.
    Expired,
    /// 422: the object fails validation.
    Invalid,
    /// 500: the server failed unexpectedly.
    InternalError,
    /// 500: the bytes of an object cannot be read.
    StorageReadError,
    /// 504: the request did not finish in time.
    Timeout,
    /// 429: the client must retry later.
    TooManyRequests,
    /// 400: the request is malformed.
    BadRequest,
    /// 405: the resource does not support the method.
    MethodNotAllowed,
    /// 406: no offered media type is acceptable.
    NotAcceptable,
    /// 413: the request body is too large.
    RequestEntityTooLarge,
    /// 415: the media type of the body is unknown.
    UnsupportedMediaType,
    /// 503: the server is temporarily unavailable.
    ServiceUnavailable,
}

impl StatusReason {
    /// Returns the reason as written in a Status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Expired => "Expired",
            Self::Invalid => "Invalid",
            Self::InternalError => "InternalError",
            Self::StorageReadError => "StorageReadError",
            Self::Timeout => "Timeout",
            Self::TooManyRequests => "TooManyRequests",
            Self::BadRequest => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }

    fn code(self) -> StatusCode {
        match self {
            Self::Unknown | Self::InternalError | Self::StorageReadError => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists | Self::Conflict => StatusCode::CONFLICT,
            Self::Expired => StatusCode::GONE,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::RequestEntityTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// An entry of `details.causes`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cause {
    /// Type of the cause; written under the key `reason`.
    pub reason: String,
    /// Human-readable description of the failure.
    pub message: String,
    /// Path of the field; empty if the cause has no field.
    pub field: String,
}

/// Details of an error: its object and causes. Empty details are still written where the template requires
/// them (`"details":{}`).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Details {
    /// Name of the object concerned.
    pub name: String,
    /// API group with its suffix.
    pub group: String,
    /// Plural resource in most errors; the kind in `Invalid`.
    pub kind: String,
    /// UID of the object concerned.
    pub uid: String,
    /// Causes of the failure, in order.
    pub causes: Vec<Cause>,
    /// Seconds to wait before a retry; if not 0, also sent as `Retry-After`.
    pub retry_after_seconds: u32,
}

/// An error response in the form of a Kubernetes `Status`.
///
/// The fields are boxed. Hundreds of functions return this error, and without the box each of them would
/// contain code that moves and drops the fields.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub struct Status(Box<StatusFields>);

/// The fields of a [`Status`].
#[derive(Clone, Debug)]
pub struct StatusFields {
    /// HTTP status code, also written in the body.
    pub code: StatusCode,
    /// Machine-readable reason of the failure.
    pub reason: StatusReason,
    /// Human-readable description of the failure.
    pub message: String,
    /// Details, if the template has any.
    pub details: Option<Box<Details>>,
    /// `metadata.continue`: a token that continues an expired list inconsistently, at a newer revision
    /// (docs/api/lists.md#continue-tokens).
    pub continue_token: Option<String>,
    /// Fields that are copied from the Status of another server when its response is passed on.
    pub remote: Option<Box<RemoteStatus>>,
}

/// The fields of a Status that come from another server.
#[derive(Clone, Debug, Default)]
pub struct RemoteStatus {
    /// Outcome of the request; empty means `Failure`.
    pub status: String,
    /// Reason; may be a text that is not a [`StatusReason`].
    pub reason: String,
    /// Metadata of the Status object.
    pub metadata: Object,
}

/// Returns the resource with its group, as messages write it: `deployments.apps`, `pods`.
pub fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// The object that a message is about: a resource or kind in a group, with a name.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// API group with its suffix.
    pub group: &'a str,
    /// Plural resource, or the kind where the template requires it.
    pub kind: &'a str,
    /// Name of the object; may be empty.
    pub name: &'a str,
}

impl Subject<'_> {
    fn qualified(&self) -> String {
        qualified(self.kind, self.group)
    }

    fn details(&self) -> Details {
        Details {
            name: self.name.to_owned(),
            group: self.group.to_owned(),
            kind: self.kind.to_owned(),
            ..Details::default()
        }
    }
}

impl Deref for Status {
    type Target = StatusFields;

    fn deref(&self) -> &StatusFields {
        &self.0
    }
}

impl DerefMut for Status {
    fn deref_mut(&mut self) -> &mut StatusFields {
        &mut self.0
    }
}

impl Status {
    /// Creates a status with `reason`, the code that belongs to it, and no details.
    pub fn new(reason: StatusReason, message: impl Into<String>) -> Self {
        Self::from_parts(reason, message.into())
    }

    fn from_parts(reason: StatusReason, message: String) -> Self {
        let fields = StatusFields {
            code: reason.code(),
            reason,
            message,
            details: None,
            continue_token: None,
            remote: None,
        };
        Status(Box::new(fields))
    }

    /// Returns the description of the failure.
    pub fn into_message(mut self) -> String {
        std::mem::take(&mut self.message)
    }

    /// Returns the same status with another reason and its code.
    #[must_use]
    pub fn with_reason(mut self, reason: StatusReason) -> Self {
        self.code = reason.code();
        self.reason = reason;
        self
    }

    fn with_details(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Returns 404 for an object that does not exist.
    pub fn not_found(subject: Subject) -> Self {
        let message = format!("{} \"{}\" not found", subject.qualified(), subject.name);
        Self::new(StatusReason::NotFound, message).with_details(subject.details())
    }

    /// Returns 409 for a name that is in use. `deleting` says that the existing object is being deleted.
    pub fn already_exists(subject: Subject, deleting: bool) -> Self {
        let prefix = if deleting { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} \"{}\" already exists", subject.qualified(), subject.name);
        Self::new(StatusReason::AlreadyExists, message).with_details(subject.details())
    }

    /// Returns 409 after every attempt to generate a free name failed.
    pub fn generated_name_taken(subject: Subject) -> Self {
        let message = format!(
            "{} \"{}\" already exists, the server was not able to generate a unique name for the object",
            subject.qualified(),
            subject.name
        );
        let details = Details { retry_after_seconds: 1, ..subject.details() };
        Self::new(StatusReason::AlreadyExists, message).with_details(details)
    }

    /// Returns 409 with the text `cause`.
    pub fn conflict(subject: Subject, cause: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{}\": {cause}", subject.qualified(), subject.name);
        Self::new(StatusReason::Conflict, message).with_details(subject.details())
    }

    /// Returns 409 for a write with a stale resourceVersion.
    pub fn stale(subject: Subject) -> Self {
        let cause =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(subject, cause)
    }

    /// Returns 409 for an apply that would change fields of other managers. The details contain only causes
    /// (docs/api/apply.md#apply-conflicts).
    pub fn apply_conflict(message: impl Into<String>, causes: Vec<Cause>) -> Self {
        Self::new(StatusReason::Conflict, message).with_details(Details { causes, ..Details::default() })
    }

    /// Returns 422 for an object that fails validation; `subject.kind` is the kind. The message contains
    /// equal lines only once, but the causes contain all of them.
    pub fn invalid(subject: Subject, errors: &[FieldError]) -> Self {
        let mut seen = HashSet::with_capacity(errors.len());
        let lines: Vec<String> =
            errors.iter().map(ToString::to_string).filter(|line| seen.insert(line.clone())).collect();
        let mut message = format!("{} \"{}\" is invalid", subject.qualified(), subject.name);
        match lines.as_slice() {
            [] => {}
            [line] => {
                let _ = write!(message, ": {line}");
            }
            lines => {
                let _ = write!(message, ": [{}]", lines.join(", "));
            }
        }
        let causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.kind.reason().to_owned(),
                message: error.body(),
                field: if error.path.is_empty() { "<nil>".to_owned() } else { error.path.clone() },
            })
            .collect();
        Self::new(StatusReason::Invalid, message).with_details(Details { causes, ..subject.details() })
    }

    /// Returns 500 without a reason, for failures that the reference server does not assign to an object. The
    /// message consists only of the errors.
    pub fn unclassified(errors: &[FieldError]) -> Self {
        let message = go::join_errors(errors.iter().map(ToString::to_string)).unwrap_or_default();
        Self::new(StatusReason::Unknown, message)
    }

    /// Returns 403 about an object; `subject.kind` is the plural resource and may be empty.
    pub fn forbidden(subject: Subject, why: &str) -> Self {
        let message = match (subject.kind.is_empty(), subject.name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{} is forbidden: {why}", subject.qualified()),
            (false, false) => format!("{} \"{}\" is forbidden: {why}", subject.qualified(), subject.name),
        };
        Self::new(StatusReason::Forbidden, message).with_details(subject.details())
    }

    /// Returns 401 without further explanation.
    pub fn unauthorized() -> Self {
        Self::new(StatusReason::Unauthorized, "Unauthorized")
    }

    /// Returns 400 with exactly this message.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusReason::BadRequest, message)
    }

    /// Returns 405 for an action that the handler of a resource does not support.
    pub fn not_supported(action: &str, subject: Subject) -> Self {
        let message = format!("{action} is not supported on resources of kind \"{}\"", subject.qualified());
        let details = Details { name: String::new(), ..subject.details() };
        Self::new(StatusReason::MethodNotAllowed, message).with_details(details)
    }

    /// Returns 500 with the error as its cause.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        Self::internal_of(error.to_string())
    }

    fn internal_of(error: String) -> Self {
        let cause = Cause { message: error.clone(), ..Cause::default() };
        Self::new(StatusReason::InternalError, format!("Internal error occurred: {error}"))
            .with_details(Details { causes: vec![cause], ..Details::default() })
    }

    /// Returns 413 for a body of more than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        Self::new(StatusReason::RequestEntityTooLarge, format!("Request entity too large: limit is {limit}"))
    }

    /// Returns 429 if no memory is free for the request now, and 413 if the request needs more than the
    /// budget.
    pub fn no_memory(error: MemoryExhausted) -> Self {
        match error {
            MemoryExhausted::Busy => Self::new(StatusReason::TooManyRequests, error.to_string())
                .with_details(Details { retry_after_seconds: RETRY_AFTER_S, ..Details::default() }),
            MemoryExhausted::Never { .. } => {
                Self::new(StatusReason::RequestEntityTooLarge, error.to_string())
            }
        }
    }

    /// Returns 406 with a list of the supported media types.
    pub fn not_acceptable<T: Borrow<str>>(accepted: &[T]) -> Self {
        let list = accepted.join(", ");
        Self::new(StatusReason::NotAcceptable, format!("only the following media types are accepted: {list}"))
    }

    /// Returns 406 from routing, before the clauses of `Accept` are evaluated
    /// (docs/api/errors.md#routing-errors).
    pub fn no_such_representation(available: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
        Self::new(StatusReason::NotAcceptable, message).with_details(Details::default())
    }

    /// Returns 415 from routing, for a patch of an unknown kind (docs/api/errors.md#routing-errors).
    pub fn no_such_patch() -> Self {
        Self::new(StatusReason::UnsupportedMediaType, "415: Unsupported Media Type")
            .with_details(Details::default())
    }

    /// Returns 415 with a list of the supported media types.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let list = accepted.join(", ");
        Self::new(
            StatusReason::UnsupportedMediaType,
            format!(
                "the body of the request was in an unknown format - accepted media types include: {list}"
            ),
        )
    }

    /// Returns 504 for a revision that the store has not reached yet (docs/api/errors.md#messages).
    pub fn too_large_resource_version(requested: u64, current: u64, retry_after_seconds: u32) -> Self {
        let cause = Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        Self::new(
            StatusReason::Timeout,
            format!("Timeout: Too large resource version: {requested}, current: {current}"),
        )
        .with_details(Details { causes: vec![cause], retry_after_seconds, ..Details::default() })
    }

    /// Returns 410 with exactly this message.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusReason::Expired, message)
    }

    /// Returns the 404 of routing, which names no object (docs/api/errors.md#routing-errors).
    pub fn no_such_route() -> Self {
        Self::new(StatusReason::NotFound, "the server could not find the requested resource")
            .with_details(Details::default())
    }

    /// Returns the 405 of routing, which names no object.
    pub fn method_not_allowed() -> Self {
        Self::new(
            StatusReason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        )
        .with_details(Details::default())
    }

    /// Returns 422 for a patch that cannot be applied. The specific text is dropped, as in the reference
    /// server.
    pub fn unprocessable() -> Self {
        Self::new(StatusReason::Invalid, "the server rejected our request due to an error in our request")
            .with_details(Details::default())
    }

    /// Returns the Status as a tree, with members in the order of the reference server.
    pub fn to_value(&self) -> Value {
        let mut metadata = Object::new();
        if let Some(token) = &self.continue_token {
            metadata.push("continue", token.as_str().into());
        }
        let (mut outcome, mut reason) = ("Failure", self.reason.as_str());
        if let Some(remote) = &self.remote {
            metadata.clone_from(&remote.metadata);
            reason = &remote.reason;
            if !remote.status.is_empty() {
                outcome = &remote.status;
            }
        }
        let mut status = Object::with_capacity(8);
        status.push("kind", "Status".into());
        status.push("apiVersion", "v1".into());
        status.push("metadata", metadata.into());
        status.push("status", outcome.into());
        push_text(&mut status, "message", &self.message);
        push_text(&mut status, "reason", reason);
        if let Some(details) = &self.details {
            status.push("details", details.to_value());
        }
        status.push("code", Value::Int(self.code.as_u16().into()));
        status.into()
    }
}

impl Details {
    /// Reads the details in the Status of another server.
    pub fn read(details: &Value) -> Details {
        let text = |name: &str| details.str_at(&[name]).to_owned();
        let causes = details.get("causes").and_then(Value::as_array).unwrap_or_default();
        let cause = |cause: &Value| Cause {
            reason: cause.str_at(&["reason"]).to_owned(),
            message: cause.str_at(&["message"]).to_owned(),
            field: cause.str_at(&["field"]).to_owned(),
        };
        let seconds = details.get("retryAfterSeconds").and_then(Value::as_i64);
        Details {
            name: text("name"),
            group: text("group"),
            kind: text("kind"),
            uid: text("uid"),
            causes: causes.iter().map(cause).collect(),
            retry_after_seconds: seconds.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(0),
        }
    }

    /// Returns the details as a tree, without empty members.
    pub fn to_value(&self) -> Value {
        let mut details = Object::new();
        push_text(&mut details, "name", &self.name);
        push_text(&mut details, "group", &self.group);
        push_text(&mut details, "kind", &self.kind);
        push_text(&mut details, "uid", &self.uid);
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut object = Object::new();
                push_text(&mut object, "reason", &cause.reason);
                push_text(&mut object, "message", &cause.message);
                push_text(&mut object, "field", &cause.field);
                Value::Object(object)
            });
            details.push("causes", Value::Array(causes.collect()));
        }
        if self.retry_after_seconds > 0 {
            details.push("retryAfterSeconds", Value::Int(self.retry_after_seconds.into()));
        }
        details.into()
    }
}

fn push_text(object: &mut Object, name: &'static str, text: &str) {
    if !text.is_empty() {
        object.push(name, text.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn text(status: &Status) -> String {
        let mut out = Vec::new();
        json::write(&status.to_value(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_status_is_written_with_its_documented_members() {
        let pod = Subject { group: "", kind: "pods", name: "x" };
        let deployment = Subject { group: "apps", kind: "Deployment", name: "d" };
        for (status, want) in [
            (
                Status::not_found(pod),
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"pods"},"code":404}"#,
            ),
            (
                Status::unauthorized(),
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#,
            ),
            (
                Status::no_such_route(),
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#,
            ),
            (
                Status::invalid(
                    deployment,
                    &[FieldError::required("spec.a", ""), FieldError::invalid("spec.b", &"q".into(), "bad")],
                ),
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Deployment.apps \"d\" is invalid: [spec.a: Required value, spec.b: Invalid value: \"q\": bad]","reason":"Invalid","details":{"name":"d","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueRequired","message":"Required value","field":"spec.a"},{"reason":"FieldValueInvalid","message":"Invalid value: \"q\": bad","field":"spec.b"}]},"code":422}"#,
            ),
        ] {
            assert_eq!(text(&status), want);
        }
    }
}
