//! Deletion of an object that cannot be read (gate `AllowUnsafeMalformedObjectDeletion`).
//!
//! An object whose bytes are damaged, or do not form an object of its kind, cannot be returned or updated.
//! Therefore the write path cannot delete such an object. A user with a second permission may remove the
//! object. The deletion ignores finalizers, preconditions and dependents, because the object cannot be read. The
//! request is refused if the object can be read.

use auth::Attributes;
use engine::{Change, Expected};
use http::StatusCode;

use super::command::success;
use super::{Call, admit};
use crate::writes::plugin::Options;
use crate::writes::write::author::{WritingUser, authored_by};
use crate::writes::write::commit::{Attempt, commit};
use objects::representation::answer::respond_success;
use objects::store;
use types::options::DeleteOptions;
use values::field::FieldError;
use values::query::invalid_options;
use values::retry::{Attempts, AttemptsExhausted};
use values::status::{Details, Status, StatusReason};
use wire::response::Response;

/// Name of the option in error messages.
pub const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// The verb of the additional permission.
const VERB: &str = "unsafe-delete-ignore-read-errors";

/// Refuses options that depend on the contents of the object, which cannot be read.
///
/// # Errors
/// 422 that names each of these options.
pub fn check_options(options: &DeleteOptions, meta_group: &str) -> Result<(), Status> {
    let set = [
        (options.dry_run, ".dryRun"),
        (options.propagation.is_some(), ".propagationPolicy"),
        (options.orphan_dependents.is_some(), ".orphanDependents"),
        (options.grace_period_seconds.is_some(), ".gracePeriodSeconds"),
        (options.uid.is_some() || options.resource_version.is_some(), ".preconditions"),
    ];
    let errors: Vec<FieldError> = set
        .into_iter()
        .filter(|(set, _)| *set)
        .map(|(_, name)| {
            FieldError::invalid(OPTION, &true.into(), format!("cannot be set together with {name}"))
        })
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(invalid_options("DeleteOptions", meta_group, &errors)) }
}

/// Removes the object of a permitted request if the object cannot be read.
///
/// # Errors
/// 403 without the second permission, 422 for an object that can be read or does not exist, or the error of
/// the store.
pub async fn delete(call: &mut Call<'_>, options: &DeleteOptions) -> Result<Response, Status> {
    let name = call.info.name.as_str();
    admit::deletion(call, Options::Delete(options)).await?;
    let attributes = Attributes { verb: VERB, ..*call.proof.attributes() };
    if let Err(denied) = call.server().access.authorizer.authorize(&attributes).await {
        let why = format!("not permitted to do \"{VERB}\", reason: {}", denied.message);
        return Err(Status::forbidden(call.subject(name), &why));
    }
    let namespace = call.info.namespace_of(call.resource);
    let key = store::key(call.resource, namespace, name);
    let mut attempts = Attempts::new();
    loop {
        let Some(entry) = call.store().entry(&key) else { return Err(refuse(call)) };
        let revision = entry.revision();
        match store::read(entry).and_then(|stored| stored.object(call.resource)) {
            Err(error) if error.reason == StatusReason::StorageReadError => {}
            Ok(_) => return Err(refuse(call)),
            Err(error) => return Err(error),
        }
        // The log needs a final state for watchers. The object cannot be read, so only its location is
        // known.
        let change = Change::Delete(Some(store::payload(
            call.resource,
            &store::remains(call.resource, namespace, name),
        )));
        let writer =
            WritingUser { user: &call.proof.user().name, manager: "", subresource: "", is_client: true };
        let change = authored_by(call.server(), &call.store(), writer, change, &[]);
        let expected = Expected::Revision(revision);
        match commit(call.store(), key.clone(), expected, change).await? {
            Attempt::Committed(_) => break,
            Attempt::Conflict(_) | Attempt::Again => {}
        }
        attempts.again().await.map_err(|AttemptsExhausted| Status::stale(call.subject(name)))?;
    }
    tracing::warn!(
        key = %String::from_utf8_lossy(&key),
        user = call.proof.user().name,
        "unreadable object deleted"
    );
    let kind = call.resource.table.kind.clone().into_owned();
    let details = Details { name: name.to_owned(), kind, ..Details::default() };
    let code = StatusCode::OK;
    Ok(respond_success(code, &success(&details, Some(code)), &call.output))
}

fn refuse(call: &Call<'_>) -> Status {
    let why = "is exclusively used to delete corrupt object(s), try again by removing this option";
    let error = FieldError::invalid(OPTION, &true.into(), why);
    Status::invalid(call.subject(&call.info.name), &[error])
}
