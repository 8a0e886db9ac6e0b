//! Deletion of one object by the write path (docs/api/delete.md). The deletion has two phases if finalizers
//! or a grace period delay the removal of the object, and one phase otherwise.
//!
//! The first phase sets the deletion time and, if necessary, finalizers. The second phase removes the object
//! when the grace period has ended and all finalizers are removed. Preconditions are checked in every round,
//! so that they are true for the version that is removed.

use super::intent::{
    Caller, Current, DELETION_WITHOUT_ADMISSION, FunctionSource, Presence, RequestedChange, WriteIntent,
    WriteOutcome, WrittenObject, precondition_failed,
};
use objects::store::{self, Stored};
use objects::strategy;
use types::options::{DeleteOptions, Propagation};
use types::schema::registry::Resource;
use values::clock;
use values::json::{Object, Value};
use values::object::{at, finalizers, meta, set_finalizers, set_meta};
use values::status::{Status, Subject};

/// Finalizer that keeps an owner until its dependents no longer refer to it.
pub const ORPHAN: &str = "orphan";

/// Finalizer that keeps an owner until its dependents are removed.
pub const FOREGROUND: &str = "foregroundDeletion";

/// Deletes one object. If the removal must wait, marks the object as deleted.
///
/// # Errors
/// 404 if the object does not exist, 409 if a precondition in the options fails, or the refusal of the write
/// path.
pub async fn delete_object<C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'_>,
    options: &DeleteOptions,
) -> Result<WriteOutcome, Status> {
    let mut is_stopped = false;
    let outcome = {
        let mut source = FunctionSource::for_stored(|_: &mut C, current: Option<&mut Current>| {
            let Some(current) = current else { return Ok(RequestedChange::AsItIs) };
            let mut object = current.take(intent.write.resource)?;
            check_preconditions(intent.write.resource, intent.write.name, options, &object, &current.stored)?;
            let phase = first_phase(intent, &mut object, options);
            is_stopped = matches!(phase, Phase::RemoveAs) && is_stopped_first(intent, &object);
            Ok(match phase {
                Phase::Pending => RequestedChange::AsItIs,
                Phase::Wait => RequestedChange::Marked(object),
                Phase::RemoveAs if is_stopped => RequestedChange::Marked(object),
                Phase::RemoveAs => RequestedChange::Gone(object),
                Phase::Remove => RequestedChange::GoneAsStored(object),
            })
        });
        super::write(caller, intent, &mut source).await?
    };
    match outcome {
        WriteOutcome::Updated(marked) if is_stopped => remove_marked(caller, intent, marked).await,
        outcome => Ok(outcome),
    }
}

/// Returns whether the mark is stored in a separate write, even if the object is then removed at once. The
/// node agent stops a pod when it reads the mark.
fn is_stopped_first(intent: &WriteIntent<'_>, object: &Object) -> bool {
    let node = at(object, "spec.nodeName").and_then(Value::as_str).unwrap_or_default();
    intent.write.resource.table.graceful_delete && !intent.write.dry_run() && !node.is_empty()
}

/// Removes an object that this request has marked. If another writer has added a finalizer in the meantime,
/// the object stays. If another writer has removed the object, the result is the marked object as the removed
/// object.
async fn remove_marked<C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'_>,
    marked: WrittenObject,
) -> Result<WriteOutcome, Status> {
    let uid = meta(&store::decode_stored(intent.write.resource, &marked.value)?, "uid").to_owned();
    let intent = WriteIntent {
        leaves_out: DELETION_WITHOUT_ADMISSION,
        presence: Presence::IfThere,
        seen: None,
        ..*intent
    };
    let mut source = FunctionSource::for_stored(|_: &mut C, current: Option<&mut Current>| {
        let Some(current) = current else { return Ok(RequestedChange::AsItIs) };
        let object = current.take(intent.write.resource)?;
        let grace = at(&object, "metadata.deletionGracePeriodSeconds").and_then(Value::as_i64);
        if meta(&object, "uid") == uid && grace == Some(0) && finalizers(&object).is_empty() {
            return Ok(RequestedChange::GoneAsStored(object));
        }
        current.put_back(object);
        Ok(RequestedChange::AsItIs)
    });
    Ok(match super::write(caller, &intent, &mut source).await? {
        WriteOutcome::Missing => WriteOutcome::Removed(marked),
        WriteOutcome::Unchanged(_) => WriteOutcome::Updated(marked),
        outcome => outcome,
    })
}

/// The effect of a delete on an object.
enum Phase {
    /// The object is removed, and its final state is the stored state.
    Remove,
    /// The object is removed, and its final state contains the deletion mark.
    RemoveAs,
    /// The object is marked and stays until finalizers and grace period have ended.
    Wait,
    /// The object is already marked, and this delete is ignored.
    Pending,
}

/// Decides the effect of the delete, and sets the deletion mark in `object` if necessary.
fn first_phase(on: &WriteIntent<'_>, object: &mut Object, options: &DeleteOptions) -> Phase {
    let deleted_at = clock::parse_seconds(meta(object, "deletionTimestamp"));
    let graceful = on.write.resource.table.graceful_delete;
    let mut changed = false;
    if deleted_at.is_none() && strategy::begin_deletion(on.write.resource, object, on.server().types.naming) {
        set_meta(object, "deletionTimestamp", Some(clock::now().into()));
        return Phase::Wait;
    }
    if let (true, Some(deleted_at)) = (graceful, deleted_at) {
        let current = at(object, "metadata.deletionGracePeriodSeconds").and_then(Value::as_i64);
        match (current, options.grace_period_seconds) {
            // The earlier delete set no grace period, so there is no grace period to change.
            (None, _) => {}
            // A repeated delete can only make the grace period shorter.
            (Some(current), Some(requested)) if requested < current => {
                let until = (deleted_at - current + requested).max(clock::now_seconds());
                let requested =
                    if until > deleted_at - current + requested && requested > 0 { 1 } else { requested };
                mark_deleted(object, until, requested);
                changed = true;
            }
            (Some(_), _) => return Phase::Pending,
        }
    }
    changed |= mark_finalizers(on, object, options);
    if on.write.resource.table.behavior.spec_finalizers
        && at(object, "spec.finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    {
        // A namespace stays until its content is deleted, regardless of the finalizers in its metadata.
        if deleted_at.is_some() {
            return if changed { Phase::Wait } else { Phase::Pending };
        }
        object.object_entry("status").insert("phase", "Terminating".into());
        set_meta(object, "deletionTimestamp", Some(clock::now().into()));
        return Phase::Wait;
    }
    if deleted_at.is_none() {
        let grace = if graceful { grace_period(object, options) } else { 0 };
        // An object without a grace period and finalizers is removed without a mark.
        if graceful || !finalizers(object).is_empty() {
            mark_deleted(object, clock::now_seconds() + grace, grace);
            count_generation(object);
            changed = true;
        }
    }
    let grace = at(object, "metadata.deletionGracePeriodSeconds").and_then(Value::as_i64);
    if !graceful && grace.is_none() && !finalizers(object).is_empty() {
        // The strategy of the type has marked the object, but has not set a grace period.
        set_meta(object, "deletionGracePeriodSeconds", Some(Value::Int(0)));
        changed = true;
    }
    let grace = grace.unwrap_or(0);
    match finalizers(object).is_empty() && grace == 0 {
        true if changed => Phase::RemoveAs,
        true => Phase::Remove,
        // A repeated delete of a marked object passes admission again, even if nothing is written.
        false => Phase::Wait,
    }
}

fn mark_deleted(object: &mut Object, until: i64, grace: i64) {
    set_meta(object, "deletionTimestamp", Some(clock::format_seconds(until).into()));
    set_meta(object, "deletionGracePeriodSeconds", Some(Value::Int(grace)));
}

fn count_generation(object: &mut Object) {
    if let Some(generation) = at(object, "metadata.generation").and_then(Value::as_i64).filter(|n| *n > 0) {
        set_meta(object, "generation", Some(Value::Int(generation + 1)));
    }
}

/// Returns the grace period of a pod in seconds: the value in the options or, if the options have no value,
/// the value in the pod. The result is 0 if the pod has no node or has finished.
fn grace_period(object: &Object, options: &DeleteOptions) -> i64 {
    let text = |path: &str| at(object, path).and_then(Value::as_str).unwrap_or_default();
    if text("spec.nodeName").is_empty() || matches!(text("status.phase"), "Succeeded" | "Failed") {
        return 0;
    }
    let own = at(object, "spec.terminationGracePeriodSeconds").and_then(Value::as_i64);
    match options.grace_period_seconds.or(own).unwrap_or(0) {
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

/// Sets or removes the two garbage collection finalizers, depending on the options and on the default of the
/// kind. Returns whether the finalizers changed.
fn mark_finalizers(on: &WriteIntent<'_>, object: &mut Object, options: &DeleteOptions) -> bool {
    let existing: Vec<String> = finalizers(object).into_iter().map(str::to_owned).collect();
    let has = |name: &str| existing.iter().any(|finalizer| finalizer == name);
    let nothing_chosen = options.choose_no_propagation();
    let by_default = on.write.resource.stored().table.orphans_by_default;
    let collected = !on.write.resource.stored().table.behavior.uncollected;
    let orphan = match (options.propagation, options.orphan_dependents) {
        (Some(policy), _) => policy == Propagation::Orphan,
        (None, Some(orphan)) => orphan,
        (None, None) => has(ORPHAN) || by_default && !has(FOREGROUND),
    };
    let foreground = match options.propagation {
        Some(policy) => policy == Propagation::Foreground,
        None => nothing_chosen && has(FOREGROUND),
    };
    let mut desired: Vec<String> =
        existing.iter().filter(|name| !matches!(name.as_str(), ORPHAN | FOREGROUND)).cloned().collect();
    if collected && on.server().operations.collects_garbage {
        desired.extend(
            [(orphan, ORPHAN), (foreground, FOREGROUND)]
                .into_iter()
                .filter(|(on, _)| *on)
                .map(|(_, name)| name.to_owned()),
        );
    }
    if desired == existing {
        return false;
    }
    set_finalizers(object, desired.into_iter().map(Value::String).collect());
    true
}

/// Checks the preconditions in the options. The error is a 409.
pub fn check_preconditions(
    resource: &Resource,
    name: &str,
    options: &DeleteOptions,
    object: &Object,
    stored: &Stored,
) -> Result<(), Status> {
    if strategy::has_own_deletion(resource) {
        return check_own_preconditions(resource, name, options, object, stored);
    }
    let subject = Subject { group: &resource.group, kind: &resource.table.kind, name };
    let uid = meta(object, "uid");
    if let Some(expected) = options.uid.as_deref().filter(|expected| *expected != uid) {
        let cause = format!(
            "the UID in the precondition ({expected}) does not match the UID in record ({uid}). \
             The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(subject, &cause));
    }
    let revision = stored.entry.revision().to_string();
    if let Some(expected) = options.resource_version.as_deref().filter(|expected| *expected != revision) {
        let cause = format!(
            "the ResourceVersion in the precondition ({expected}) does not match the ResourceVersion in record \
             ({revision}). The object might have been modified"
        );
        return Err(Status::conflict(subject, &cause));
    }
    Ok(())
}

/// Checks the preconditions for a kind whose deletion has its own code in kube-apiserver, with the texts of
/// that code.
fn check_own_preconditions(
    resource: &Resource,
    name: &str,
    options: &DeleteOptions,
    object: &Object,
    stored: &Stored,
) -> Result<(), Status> {
    let revision = stored.entry.revision().to_string();
    let pairs = [
        ("UID", options.uid.as_deref(), meta(object, "uid")),
        ("ResourceVersion", options.resource_version.as_deref(), &revision),
    ];
    for (what, expected, found) in pairs {
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            let subject = Subject { group: &resource.group, kind: &resource.table.plural, name };
            return Err(Status::conflict(subject, &precondition_failed(what, expected, found)));
        }
    }
    Ok(())
}
