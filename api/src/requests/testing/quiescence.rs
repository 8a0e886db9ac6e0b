//! `/testing/quiescence`: waits until all activity of the server has ended.

use std::time::Duration;

use engine::Revision;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::FeatureCall;
use super::input::{Span, decoded};
use values::status::{Status, StatusReason};

/// Default time without writes after which the server is quiescent.
const QUIET: Duration = Duration::from_millis(100);

/// Default and maximum time of the whole wait. The maximum is below a minute, the default time limit of a
/// request.
const TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUT_MAX: Duration = Duration::from_secs(50);

/// Interval of the checks of watches and writes.
const LOOK: Duration = Duration::from_millis(1);

/// The body of a `POST`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    r#for: Option<Span>,
    timeout: Option<Span>,
}

/// Waits until no write has been committed for the requested time, no write is in progress, and every watch has
/// sent all changes.
pub(super) async fn respond(call: &FeatureCall<'_>) -> Result<Value, Status> {
    if *call.method() != Method::POST {
        return Err(Status::method_not_allowed());
    }
    let options: Wanted =
        if call.body.is_empty() { Wanted::default() } else { decoded(call.request, call.body)? };
    let quiet = options.r#for.map_or(QUIET, |span| span.0);
    let timeout = options.timeout.map_or(TIMEOUT, |span| span.0);
    if timeout > TIMEOUT_MAX || quiet > timeout {
        return Err(Status::bad_request(format!(
            "invalid for={quiet:?} and timeout={timeout:?}: for must not exceed timeout, and timeout must not exceed \
             {TIMEOUT_MAX:?}"
        )));
    }
    let began = Instant::now();
    let mut seen = call.engine.revision();
    match tokio::time::timeout(timeout, until_quiet(call, quiet, &mut seen)).await {
        Ok(revision) => Ok(json!({
            "resourceVersion": revision.to_string(),
            "waitedMilliseconds": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        })),
        Err(_) => Err(Status::new(
            StatusReason::Timeout,
            format!(
                "activity did not end within {timeout:?}: the newest revision is {}, {} writes are in progress, and {} \
                 open watches have not sent all changes up to revision {seen}",
                call.engine.revision(),
                call.features.writes.count(),
                call.features.watches.behind(seen)
            ),
        )),
    }
}

/// Waits until all activity has ended, and returns the newest revision. Sets `seen` to the revision that the
/// wait expects the watches to reach.
async fn until_quiet(call: &FeatureCall<'_>, quiet: Duration, seen: &mut Revision) -> Revision {
    let (engine, watches) = (call.engine, &call.features.watches);
    loop {
        let revision = engine.revision();
        *seen = revision;
        if tokio::time::timeout(quiet, engine.reached(revision.next())).await.is_ok() {
            continue;
        }
        while watches.behind(revision) > 0 {
            watches.request_progress();
            tokio::time::sleep(LOOK).await;
        }
        if call.features.writes.count() > 0 {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        if engine.revision() == revision {
            return revision;
        }
    }
}
