//! The verb get: returns one object from its stored bytes.

use std::time::Instant;

use http::StatusCode;

use super::Call;
use crate::writes::accesses;
use objects::representation;
use objects::representation::answer::respond_stored;
use objects::store;
use types::options::version_number;
use values::status::Status;
use wire::response::Response;

/// Returns the object named in the path (docs/api/lists.md#resource-versions, docs/api/lists.md#get).
pub async fn get(call: &mut Call<'_>) -> Result<Response, Status> {
    if call.request.query.flag("export") {
        return Err(Status::bad_request(
            "the export parameter, deprecated since v1.14, is no longer supported",
        ));
    }
    let version = call.request.query.first("resourceVersion").unwrap_or_default();
    let at_least = version_number(version)?;
    let reads_store = accesses::reads_object_from_store(call.resource, version);
    call.reach_revision(at_least).await?;
    store::check_key_name(&call.info.name)?;
    let key = store::key(call.resource, call.info.namespace_of(call.resource), &call.info.name);
    let began = Instant::now();
    let stored = call.stored(&key).await?;
    if reads_store {
        call.server().accessed(call.resource, "get", began);
    }
    let Some(stored) = stored else {
        return Err(Status::not_found(call.subject(&call.info.name)));
    };
    let renderer = call.renderer()?;
    representation::refuse_list_transform(&call.output, call.resource)?;
    respond_stored(renderer, StatusCode::OK, &stored.record.value).await
}
