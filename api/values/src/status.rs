//! Builds all `Status` objects: the errors of every layer become a Status here (docs/api/errors.md).

pub mod agent;

use engine::Revision;
use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt::Write;

use http::StatusCode;

use crate::field::FieldError;
use crate::json::{Object, Value};
use crate::memory::{Exhausted, RETRY_AFTER_S};

/// Why a request failed, as clients branch on it. Codes: docs/api/errors.md#reasons-and-codes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// No reason given.
    Unknown,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 409, the object exists.
    AlreadyExists,
    /// 409, the object changed or is owned.
    Conflict,
    /// 410.
    Expired,
    /// 422.
    Invalid,
    /// 500.
    InternalError,
    /// 500, bytes of an object cannot be read.
    StorageReadError,
    /// 504.
    Timeout,
    /// 429.
    TooManyRequests,
    /// 400.
    BadRequest,
    /// 405.
    MethodNotAllowed,
    /// 406.
    NotAcceptable,
    /// 413.
    RequestEntityTooLarge,
    /// 415.
    UnsupportedMediaType,
    /// 503.
    ServiceUnavailable,
}

impl Reason {
    /// The reason as it is written.
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

/// One cause among `details.causes`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cause {
    /// Type of the cause; written under the key `reason`.
    pub reason: String,
    /// The description of the failure.
    pub message: String,
    /// Path of the field; empty for none.
    pub field: String,
}

/// The subject of the error. An empty one is still written where the template requires it (`"details":{}`).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Details {
    /// Object name.
    pub name: String,
    /// API group, in full.
    pub group: String,
    /// Plural resource for most errors, the Kind for `Invalid`.
    pub kind: String,
    /// Identity of the object.
    pub uid: String,
    /// Causes, in order.
    pub causes: Vec<Cause>,
    /// Seconds to wait before trying again; also sent as `Retry-After` when not 0.
    pub retry_after_seconds: u32,
}

/// An error on its way to the client.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// HTTP code, also in the body.
    pub code: StatusCode,
    /// Reason.
    pub reason: Reason,
    /// Message.
    pub message: String,
    /// Details, if the template has any. Boxed: errors travel in every `Result`.
    pub details: Option<Box<Details>>,
    /// `metadata.continue`: the token that continues inconsistently after an expired one
    /// (docs/api/lists.md#continue-tokens).
    pub continue_token: Option<String>,
    /// What another server said in its own words, where its answer is handed on.
    pub said: Option<Box<Said>>,
}

/// Parts of a Status that another server wrote.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The outcome; empty: `Failure`.
    pub status: String,
    /// The reason, whether it is known here or not.
    pub reason: String,
    /// Metadata of the Status.
    pub metadata: Object,
}

/// The qualified resource of messages: `deployments.apps`, `pods`.
pub fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// The object that most messages name: a resource (or kind) in a group, with a name.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// API group, in full.
    pub group: &'a str,
    /// Plural resource, or the Kind where the template wants it.
    pub kind: &'a str,
    /// Object name; may be empty.
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

impl Status {
    /// A status of `reason` with the code that belongs to it and no details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Status {
            code: reason.code(),
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
            said: None,
        }
    }

    /// The same with another reason and its code.
    #[must_use]
    pub fn with_reason(self, reason: Reason) -> Self {
        Status { code: reason.code(), reason, ..self }
    }

    fn with_details(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// 404 for an object.
    pub fn not_found(subject: Subject) -> Self {
        let message = format!("{} \"{}\" not found", subject.qualified(), subject.name);
        Self::new(Reason::NotFound, message).with_details(subject.details())
    }

    /// 409, the name is taken; `deleting` when the object that has it is being deleted.
    pub fn already_exists(subject: Subject, deleting: bool) -> Self {
        let prefix = if deleting { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} \"{}\" already exists", subject.qualified(), subject.name);
        Self::new(Reason::AlreadyExists, message).with_details(subject.details())
    }

    /// 409 after every attempt to generate a free name failed.
    pub fn generated_name_taken(subject: Subject) -> Self {
        let message = format!(
            "{} \"{}\" already exists, the server was not able to generate a unique name for the object",
            subject.qualified(),
            subject.name
        );
        let details = Details { retry_after_seconds: 1, ..subject.details() };
        Self::new(Reason::AlreadyExists, message).with_details(details)
    }

    /// 409 with the reason why.
    pub fn conflict(subject: Subject, cause: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{}\": {cause}", subject.qualified(), subject.name);
        Self::new(Reason::Conflict, message).with_details(subject.details())
    }

    /// 409 for a write at an old resourceVersion.
    pub fn stale(subject: Subject) -> Self {
        let cause =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(subject, cause)
    }

    /// 409 for an apply that would take fields from others; details have the causes only
    /// (docs/api/apply.md#apply-conflicts).
    pub fn apply_conflict(message: impl Into<String>, causes: Vec<Cause>) -> Self {
        Self::new(Reason::Conflict, message).with_details(Details { causes, ..Details::default() })
    }

    /// 422; `subject.kind` is the Kind. Equal lines are said once, causes stay as they are.
    pub fn invalid(subject: Subject, errors: &[FieldError]) -> Self {
        let mut said = HashSet::with_capacity(errors.len());
        let lines: Vec<String> =
            errors.iter().map(ToString::to_string).filter(|line| said.insert(line.clone())).collect();
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
        Self::new(Reason::Invalid, message).with_details(Details { causes, ..subject.details() })
    }

    /// 500 without a reason for failures that the reference server does not assign to an object: the lines alone.
    pub fn unclassified(errors: &[FieldError]) -> Self {
        let message = go::join_errors(errors.iter().map(ToString::to_string)).unwrap_or_default();
        Self::new(Reason::Unknown, message)
    }

    /// 403 about an object; `subject.kind` is the plural resource and may be empty.
    pub fn forbidden(subject: Subject, why: &str) -> Self {
        let message = match (subject.kind.is_empty(), subject.name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{} is forbidden: {why}", subject.qualified()),
            (false, false) => format!("{} \"{}\" is forbidden: {why}", subject.qualified(), subject.name),
        };
        Self::new(Reason::Forbidden, message).with_details(subject.details())
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(Reason::Unauthorized, "Unauthorized")
    }

    /// 400 with exactly this text.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// 405 from a resource handler.
    pub fn not_supported(action: &str, subject: Subject) -> Self {
        let message = format!("{action} is not supported on resources of kind \"{}\"", subject.qualified());
        let details = Details { name: String::new(), ..subject.details() };
        Self::new(Reason::MethodNotAllowed, message).with_details(details)
    }

    /// 500 with its cause.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        let error = error.to_string();
        let cause = Cause { message: error.clone(), ..Cause::default() };
        Self::new(Reason::InternalError, format!("Internal error occurred: {error}"))
            .with_details(Details { causes: vec![cause], ..Details::default() })
    }

    /// 413 for a body over `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        Self::new(Reason::RequestEntityTooLarge, format!("Request entity too large: limit is {limit}"))
    }

    /// 429 for a request for which there is no memory now, and 413 for one for which there never is.
    pub fn no_memory(error: Exhausted) -> Self {
        match error {
            Exhausted::Busy => Self::new(Reason::TooManyRequests, error.to_string())
                .with_details(Details { retry_after_seconds: RETRY_AFTER_S, ..Details::default() }),
            Exhausted::Never { .. } => Self::new(Reason::RequestEntityTooLarge, error.to_string()),
        }
    }

    /// 406 listing the supported media types.
    pub fn not_acceptable<T: Borrow<str>>(accepted: &[T]) -> Self {
        let list = accepted.join(", ");
        Self::new(Reason::NotAcceptable, format!("only the following media types are accepted: {list}"))
    }

    /// 406 raised by routing, before any clause of `Accept` is weighed (docs/api/errors.md#routing-errors).
    pub fn no_such_representation(available: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
        Self::new(Reason::NotAcceptable, message).with_details(Details::default())
    }

    /// 415 raised by routing, for a patch of an unknown kind (docs/api/errors.md#routing-errors).
    pub fn no_such_patch() -> Self {
        Self::new(Reason::UnsupportedMediaType, "415: Unsupported Media Type")
            .with_details(Details::default())
    }

    /// 415 listing the supported media types.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let list = accepted.join(", ");
        Self::new(
            Reason::UnsupportedMediaType,
            format!(
                "the body of the request was in an unknown format - accepted media types include: {list}"
            ),
        )
    }

    /// 504 for a revision that has not been reached yet (docs/api/errors.md#messages).
    pub fn too_large_resource_version(asked: Revision, current: Revision, retry_after_seconds: u32) -> Self {
        let cause = Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        Self::new(
            Reason::Timeout,
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        )
        .with_details(Details { causes: vec![cause], retry_after_seconds, ..Details::default() })
    }

    /// 410 with exactly this text.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(Reason::Expired, message)
    }

    /// 404 raised by routing, without an object (docs/api/errors.md#routing-errors).
    pub fn no_such_route() -> Self {
        Self::new(Reason::NotFound, "the server could not find the requested resource")
            .with_details(Details::default())
    }

    /// 405 raised by routing.
    pub fn method_not_allowed() -> Self {
        Self::new(Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
            .with_details(Details::default())
    }

    /// 422 for a patch that cannot be carried out; the specific text is dropped, as upstream drops it.
    pub fn unprocessable() -> Self {
        Self::new(Reason::Invalid, "the server rejected our request due to an error in our request")
            .with_details(Details::default())
    }

    /// The object as a tree, members in upstream's order.
    pub fn to_value(&self) -> Value {
        let mut metadata = Object::new();
        if let Some(token) = &self.continue_token {
            metadata.push("continue", token.as_str().into());
        }
        let (mut outcome, mut reason) = ("Failure", self.reason.as_str());
        if let Some(said) = &self.said {
            metadata.clone_from(&said.metadata);
            reason = &said.reason;
            if !said.status.is_empty() {
                outcome = &said.status;
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
    /// The details that another server gave.
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

    /// The members that are not empty.
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
    fn every_status_is_written_with_its_members() {
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
