//! `/testing/clock`: the time of the server.

use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::FeatureCall;
use super::input::{Span, decoded, shortened};
use values::clock;
use values::status::Status;

/// The body of a `PUT`. The new time is `time` plus `advance`. The default of `time` is the current time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    time: Option<String>,
    advance: Option<Span>,
    frozen: Option<bool>,
}

/// Reads, sets or resets the clock.
pub(super) fn respond(call: &FeatureCall<'_>) -> Result<Value, Status> {
    match call.request.head.method {
        Method::GET => {}
        Method::PUT => set(&decoded(call.request, call.body)?)?,
        Method::DELETE => clock::reset(),
        _ => return Err(Status::method_not_allowed()),
    }
    if call.request.head.method != Method::GET {
        call.engine.clock_moved();
    }
    Ok(clock_state())
}

fn set(change: &Change) -> Result<(), Status> {
    let Change { time, advance, frozen } = change;
    if time.is_none() && advance.is_none() && frozen.is_none() {
        return Err(Status::bad_request(
            "nothing to change: set at least one of the fields time, advance and frozen",
        ));
    }
    let base = match time {
        None => clock::timestamp(),
        Some(text) => text.parse::<Timestamp>().map_err(|_| {
            Status::bad_request(format!(
                "invalid time {:?}: expected a time in RFC 3339 such as 2030-01-01T00:00:00Z",
                shortened(text)
            ))
        })?,
    };
    let advance = advance.map_or_else(Default::default, |span| span.0);
    let time = base
        .checked_add(advance)
        .map_err(|_| Status::bad_request(format!("the time is out of range: {base} plus {advance:?}")))?;
    clock::set(time, frozen.unwrap_or_else(clock::is_frozen)).map_err(Status::bad_request)
}

/// Returns the state of the clock: the time, whether the clock is stopped, and the difference to the clock of
/// the machine.
fn clock_state() -> Value {
    let (time, machine) = (clock::timestamp(), Timestamp::now());
    let ahead = i64::try_from(time.duration_since(machine).as_millis()).unwrap_or_default();
    json!({
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        "frozen": clock::is_frozen(),
        "ahead": go::duration::to_text(ahead.saturating_mul(1_000_000)),
    })
}
