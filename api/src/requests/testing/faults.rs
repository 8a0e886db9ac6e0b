//! `/testing/faults`: the rules that disturb requests.

use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::FeatureCall;
use super::input::{Span, decoded, shortened};
use crate::requests::past::PastPoint;
use crate::state::testing::{
    FaultEffect, FaultRule, InjectedError, RequestPattern, WatchDisturbance, WatchFault,
};
use values::status::Status;

/// The body of a `POST`: a rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RuleBody {
    #[serde(default)]
    r#match: RequestPattern,
    #[serde(default)]
    skip: u64,
    count: Option<u64>,
    delay: Option<Span>,
    error: Option<ErrorBody>,
    close: Option<CloseBody>,
    stale_at: Option<String>,
    watch: Option<WatchBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ErrorBody {
    code: u16,
    reason: Option<String>,
    message: Option<String>,
    #[serde(default)]
    retry_after_seconds: u32,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CloseBody {
    Before,
    After,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WatchBody {
    effect: WatchDisturbance,
    #[serde(default)]
    after_changes: u64,
    r#for: Option<Span>,
}

/// Lists, adds or removes rules.
pub(super) fn respond(call: &FeatureCall<'_>) -> Result<Value, Status> {
    let rules = &call.features.faults;
    match *call.method() {
        Method::GET => Ok(json!({ "items": rules.list() })),
        Method::POST => {
            let text = serde_json::from_slice(call.body).unwrap_or_default();
            let rule = decoded::<RuleBody>(call.request, call.body)?.checked(text)?;
            rules.add(rule).map_err(Status::bad_request)
        }
        Method::DELETE => Ok(json!({ "removed": rules.clear() })),
        _ => Err(Status::method_not_allowed()),
    }
}

/// Returns or removes one rule.
pub(super) fn respond_one(call: &FeatureCall<'_>, id: &str) -> Result<Value, Status> {
    let rules = &call.features.faults;
    let unknown = || {
        let mut status = Status::no_such_route();
        status.message = format!("there is no fault rule {id:?}");
        status
    };
    let number = id.parse::<u64>().map_err(|_| unknown())?;
    match *call.method() {
        Method::GET => rules.get(number).ok_or_else(unknown),
        Method::DELETE => rules.remove(number).ok_or_else(unknown),
        _ => Err(Status::method_not_allowed()),
    }
}

impl RuleBody {
    /// Converts the body to a rule; `text` is the body as the client sent it.
    fn checked(self, text: Value) -> Result<FaultRule, Status> {
        let RuleBody { r#match: pattern, skip, count, delay, error, close, stale_at, watch } = self;
        let effects = [error.is_some(), close.is_some(), stale_at.is_some(), watch.is_some()];
        match effects.iter().filter(|given| **given).count() {
            0 if delay.is_none() => {
                return Err(Status::bad_request(
                    "the rule has no effect: set one of the fields delay, error, close, staleAt and watch",
                ));
            }
            0 | 1 => {}
            _ => {
                return Err(Status::bad_request(
                    "the rule has several effects: set only one of the fields error, close, staleAt and watch",
                ));
            }
        }
        let effect = if let Some(error) = error {
            FaultEffect::Error(error.checked()?)
        } else if let Some(close) = close {
            match close {
                CloseBody::Before => FaultEffect::CloseBefore,
                CloseBody::After => FaultEffect::CloseAfter,
            }
        } else if let Some(point) = stale_at {
            PastPoint::parse(shortened(&point))?;
            FaultEffect::Stale(point)
        } else if let Some(watch) = watch {
            FaultEffect::Watch(watch.checked()?)
        } else {
            FaultEffect::None
        };
        let delay = delay.map_or_else(Default::default, |span| span.0);
        Ok(FaultRule { pattern, skip, count, delay, effect, text })
    }
}

impl ErrorBody {
    fn checked(self) -> Result<InjectedError, Status> {
        let code = StatusCode::from_u16(self.code)
            .ok()
            .filter(|code| code.is_client_error() || code.is_server_error());
        let code = code.ok_or_else(|| {
            Status::bad_request(format!("invalid error code {}: expected a code from 400 to 599", self.code))
        })?;
        let (reason, message) = default_error(code);
        Ok(InjectedError {
            code,
            reason: self.reason.unwrap_or_else(|| reason.to_owned()),
            message: self.message.unwrap_or_else(|| message.to_owned()),
            retry_after_s: self.retry_after_seconds,
        })
    }
}

/// Returns the default reason and message of an error code. The reason is the same as in kube-apiserver.
fn default_error(code: StatusCode) -> (&'static str, &'static str) {
    match code.as_u16() {
        400 => ("BadRequest", "injected: bad request"),
        401 => ("Unauthorized", "injected: unauthorized"),
        403 => ("Forbidden", "injected: forbidden"),
        404 => ("NotFound", "injected: not found"),
        405 => ("MethodNotAllowed", "injected: method not allowed"),
        409 => (
            "Conflict",
            "injected: the object has been modified; please apply your changes to the latest version and try again",
        ),
        410 => ("Expired", "injected: too old resource version"),
        413 => ("RequestEntityTooLarge", "injected: request entity too large"),
        422 => ("Invalid", "injected: invalid"),
        429 => ("TooManyRequests", "injected: too many requests, please try again later"),
        500 => ("InternalError", "injected: internal error"),
        503 => ("ServiceUnavailable", "injected: service unavailable"),
        504 => ("Timeout", "injected: timeout"),
        _ => ("", "injected error"),
    }
}

impl WatchBody {
    fn checked(self) -> Result<WatchFault, Status> {
        let WatchBody { effect, after_changes, r#for: lasts } = self;
        if effect == WatchDisturbance::Resume {
            return Err(Status::bad_request(
                "invalid watch effect \"resume\": expected stall, close, break or expire",
            ));
        }
        if lasts.is_some() && effect != WatchDisturbance::Stall {
            return Err(Status::bad_request("the field watch.for is allowed only with the effect stall"));
        }
        Ok(WatchFault { disturbance: effect, after_changes, stalls_for: lasts.map(|span| span.0) })
    }
}
