//! `/testing/watches`: the open watches.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::FeatureCall;
use super::input::{Span, decoded};
use crate::state::testing::{RequestPattern, WatchDisturbance};
use values::status::Status;

/// The body of a `POST`: which watches are disturbed, and how.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Disturbance {
    #[serde(default)]
    r#match: RequestPattern,
    effect: WatchDisturbance,
    r#for: Option<Span>,
}

/// Lists or disturbs the open watches.
pub(super) fn respond(call: &FeatureCall<'_>) -> Result<Value, Status> {
    let watches = &call.features.watches;
    match *call.method() {
        Method::GET => Ok(json!({ "items": watches.list() })),
        Method::POST => {
            let Disturbance { r#match: pattern, effect, r#for: lasts } = decoded(call.request, call.body)?;
            if lasts.is_some() && effect != WatchDisturbance::Stall {
                return Err(Status::bad_request("the field for is allowed only with the effect stall"));
            }
            Ok(json!({ "disturbed": watches.disturb(&pattern, effect, lasts.map(|span| span.0)) }))
        }
        _ => Err(Status::method_not_allowed()),
    }
}
