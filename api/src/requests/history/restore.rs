//! The way back: the state of an earlier revision is written again, as an update, or as a create if the object
//! is gone. The write takes the whole write path, with the permissions, the options and the admission of any
//! other write.

use engine::{Revision, SnapshotError};

use super::{authorize, served};
use crate::requests::verbs::{Call, write};
use objects::negotiate::Input;
use objects::store;
use values::json::{self, Object, Value};
use values::object::set_meta;
use values::status::Status;
use wire::response::Response;

/// Metadata that is not restored: the server sets it, or it is a precondition.
const OWN: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Writes the state of the revision in the query to the object in the path. A `resourceVersion` in the query
/// is a precondition.
///
/// # Errors
/// 404 if the object did not exist at the revision, 410 if the revision is no longer retained, or the errors
/// of an update.
pub async fn restore(call: &mut Call<'_>) -> Result<Response, Status> {
    authorize(call).await?;
    let revision = call.request.query.first("revision").unwrap_or_default();
    let revision = revision.parse::<Revision>().map_err(|_| {
        Status::bad_request(format!("invalid revision {revision:?}: the revision to restore is a number"))
    })?;
    if call.server().types.formats.input(call.request.headers())? != Input::Json {
        return Err(Status::unsupported_media_type(&["application/json"]));
    }
    store::check_key_name(&call.info.name)?;
    let key = store::key(call.resource, call.info.namespace_of(call.resource), &call.info.name);
    let view = call.store().view_at(revision).map_err(|error| match error {
        SnapshotError::Compacted { oldest } => Status::expired(format!(
            "revision {revision} is no longer retained: the oldest revision that can be restored is {oldest}"
        )),
        SnapshotError::Future { current } => Status::bad_request(format!(
            "revision {revision} is in the future: the newest revision is {current}"
        )),
    })?;
    let Some(entry) = view.get(&key) else {
        return Err(Status::not_found(call.subject(&call.info.name)));
    };
    let Value::Object(mut object) = served(call, store::read(entry)?.record).await? else {
        return Err(Status::internal("a stored state is an object"));
    };
    clear(&mut object, call.request.query.first("resourceVersion"));
    let mut body = Vec::new();
    json::write(&Value::Object(object), &mut body);
    write::restore(call, &body).await
}

/// Removes the metadata of the earlier state that does not apply to the restored one.
fn clear(object: &mut Object, precondition: Option<&str>) {
    for name in OWN {
        set_meta(object, name, None);
    }
    if let Some(version) = precondition.filter(|version| !version.is_empty()) {
        set_meta(object, "resourceVersion", Some(version.into()));
    }
}
