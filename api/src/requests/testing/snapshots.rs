//! `/testing/snapshots`: saved states of the whole store.

use http::Method;
use serde_json::{Value, json};

use super::FeatureCall;
use crate::state::testing::SnapshotFailure;
use values::status::{Status, StatusReason};

/// Lists the saved states.
pub(super) async fn respond(call: &FeatureCall<'_>) -> Result<Value, Status> {
    match *call.method() {
        Method::GET => Ok(json!({ "items": call.features.snapshots.list().await })),
        _ => Err(Status::method_not_allowed()),
    }
}

/// Saves or removes a state.
pub(super) async fn respond_one(call: &FeatureCall<'_>, name: &str) -> Result<Value, Status> {
    let snapshots = &call.features.snapshots;
    match *call.method() {
        Method::PUT => {
            check_store(call)?;
            snapshots.save(call.engine, name).await
        }
        Method::DELETE => snapshots.remove(name).await,
        _ => return Err(Status::method_not_allowed()),
    }
    .map_err(refused)
}

/// Restores a saved state.
pub(super) async fn restore(call: &FeatureCall<'_>, name: &str) -> Result<Value, Status> {
    if *call.method() != Method::POST {
        return Err(Status::method_not_allowed());
    }
    check_store(call)?;
    call.features.snapshots.restore(call.engine, name).await.map_err(refused)
}

/// Returns an error if the store is shared with other servers.
fn check_store(call: &FeatureCall<'_>) -> Result<(), Status> {
    if call.request.server().store.ledger().is_none() {
        return Ok(());
    }
    Err(Status::bad_request(
        "snapshots require the server's own store: start the server without --etcd-servers",
    ))
}

fn refused(failure: SnapshotFailure) -> Status {
    let reason = match failure {
        SnapshotFailure::Name(_) | SnapshotFailure::TooMany => StatusReason::BadRequest,
        SnapshotFailure::Unknown(_) => StatusReason::NotFound,
        SnapshotFailure::Contended => StatusReason::Conflict,
        SnapshotFailure::Unreadable(_) | SnapshotFailure::Refused(_) => StatusReason::InternalError,
    };
    Status::new(reason, failure.to_string())
}
