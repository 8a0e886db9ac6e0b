//! The history of one object: the retained states of the object, their authors, and the restore of a state
//! (docs/api/history.md#the-history-of-an-object).
//!
//! ```text
//! GET  /history/<object>          ─► log: versions of the key ─► authors, changed fields, patches
//! POST /history/<object>/restore  ─► restore: the state of a revision ─► the write path
//! ```
//!
//! Both requests need permission for the verbs `get` and `history` on the object, in addition to the verb of
//! the request, because the response of a restore also contains the earlier state.

mod item;
mod log;
mod owners;
mod restore;

use auth::Attributes;

pub use self::log::log;
pub use self::restore::restore;
use crate::requests::verbs::Call;
use objects::store;
use types::convert;
use types::schema::encode::encode;
use values::json::{self, Value};
use values::status::{Status, StatusReason};

/// The verb that a user needs to read or restore earlier states of an object.
const VERB: &str = "history";

/// Checks that the user has the verb `history` on the object.
///
/// # Errors
/// 403 without the permission, 404 for a path that names no object.
async fn authorize(call: &Call<'_>) -> Result<(), Status> {
    if !call.info.subresource.is_empty() || !call.info.name_in_path {
        return Err(Status::no_such_route());
    }
    permit(call, VERB).await
}

/// Checks that the user has a verb on the object.
///
/// # Errors
/// 403 without the permission.
async fn permit(call: &Call<'_>, verb: &str) -> Result<(), Status> {
    let attributes = Attributes { verb, ..*call.proof.attributes() };
    match call.server().access.authorizer.authorize(&attributes).await {
        Ok(_) => Ok(()),
        Err(denied) => Err(Status::forbidden(call.subject(&call.info.name), &denied.message)),
    }
}

/// Converts a stored state to the requested version.
///
/// # Errors
/// 500 if the state cannot be read.
async fn convert_to_requested(call: &Call<'_>, stored: engine::Record) -> Result<Value, Status> {
    let resource = call.resource;
    let kept = stored.value.clone();
    // The definition may no longer have the version in which the state was stored. In that case the response
    // contains the state in its stored version.
    let record = match call.server().outgoing.converter.convert_record(resource, stored).await {
        Ok(record) => record,
        Err(error) if error.reason == StatusReason::StorageReadError => return Err(error),
        Err(_) => return parsed(&kept),
    };
    if resource.is_stored_form() {
        return parsed(&record.value);
    }
    let object = store::decode_stored(resource, &record.value)?;
    let object = convert::to_served(resource, object, call.server().types.naming)?;
    let mut text = Vec::with_capacity(record.value.len());
    encode(&resource.table.message, &object, &mut text);
    parsed(&text)
}

fn parsed(text: &[u8]) -> Result<Value, Status> {
    json::parse(text).map_err(|error| Status::new(StatusReason::StorageReadError, error.to_string()))
}
