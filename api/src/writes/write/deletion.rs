//! Deletion of one object by the write path: in two phases if something keeps the object, otherwise in one
//! (docs/api/delete.md).
//!
//! The first phase marks the object with a time and finalizers. The second phase removes it once nothing
//! keeps it. Preconditions are checked in the round that writes, so that they hold for the version that is
//! removed.

use super::intent::{
    Caller, Current, DELETION_UNASKED, Made, Outcome, Presence, Wanted, WriteIntent, Written,
    precondition_failed,
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

/// Finalizer that keeps an owner until its dependents are gone.
pub const FOREGROUND: &str = "foregroundDeletion";

/// Deletes one object, or marks it as deleted if something keeps it.
///
/// # Errors
/// 404 if the object does not exist, 409 if a precondition in the options does not match, or the refusal of
/// the write path.
pub async fn delete_object<C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'_>,
    options: &DeleteOptions,
) -> Result<Outcome, Status> {
    let mut is_stopped = false;
    let outcome = {
        let mut source = Made::stored(|_: &mut C, current: Option<&mut Current>| {
            let Some(current) = current else { return Ok(Wanted::AsItIs) };
            let mut object = current.take(intent.write.resource)?;
            check_preconditions(intent.write.resource, intent.write.name, options, &object, &current.stored)?;
            let phase = first_phase(intent, &mut object, options);
            is_stopped = matches!(phase, Phase::RemoveAs) && is_stopped_first(intent, &object);
            Ok(match phase {
                Phase::Pending => Wanted::AsItIs,
                Phase::Wait => Wanted::Marked(object),
                Phase::RemoveAs if is_stopped => Wanted::Marked(object),
                Phase::RemoveAs => Wanted::Gone(object),
                Phase::Remove => Wanted::GoneAsStored(object),
            })
        });
        super::write(caller, intent, &mut source).await?
    };
    match outcome {
        Outcome::Updated(marked) if is_stopped => remove_marked(caller, intent, marked).await,
        outcome => Ok(outcome),
    }
}

/// Returns whether the object is marked in a separate write, although it is removed at once. The node agent
/// stops a pod when it sees the mark.
fn is_stopped_first(intent: &WriteIntent<'_>, object: &Object) -> bool {
    let node = at(object, "spec.nodeName").and_then(Value::as_str).unwrap_or_default();
    intent.write.resource.table.graceful_delete && !intent.write.dry_run() && !node.is_empty()
}

/// Removes an object that this request has just marked. The object stays if another writer has added a
/// finalizer in the meantime. If another writer has removed the object, this function returns the marked
/// object as removed.
async fn remove_marked<C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'_>,
    marked: Written,
) -> Result<Outcome, Status> {
    let uid = meta(&store::decode_stored(intent.write.resource, &marked.value)?, "uid").to_owned();
    let intent =
        WriteIntent { leaves_out: DELETION_UNASKED, presence: Presence::IfThere, seen: None, ..*intent };
    let mut source = Made::stored(|_: &mut C, current: Option<&mut Current>| {
        let Some(current) = current else { return Ok(Wanted::AsItIs) };
        let object = current.take(intent.write.resource)?;
        let grace = at(&object, "metadata.deletionGracePeriodSeconds").and_then(Value::as_i64);
        if meta(&object, "uid") == uid && grace == Some(0) && finalizers(&object).is_empty() {
            return Ok(Wanted::GoneAsStored(object));
        }
        current.put_back(object);
        Ok(Wanted::AsItIs)
    });
    Ok(match super::write(caller, &intent, &mut source).await? {
        Outcome::Missing => Outcome::Removed(marked),
        Outcome::Unchanged(_) => Outcome::Updated(marked),
        outcome => outcome,
    })
}

/// The effect of a delete on an object.
enum Phase {
    /// The object is removed as it is.
    Remove,
    /// The object is removed, and its final state contains the deletion mark.
    RemoveAs,
    /// The object is marked and waits.
    Wait,
    /// The object is already waiting, and this delete is ignored.
    Pending,
}

/// Decides the phase and marks `object` accordingly.
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
            // The object was not deleted gracefully before, so there is nothing left to wait for.
            (None, _) => {}
            // The grace period may only become shorter.
            (Some(current), Some(asked)) if asked < current => {
                let until = (deleted_at - current + asked).max(clock::now_seconds());
                let asked = if until > deleted_at - current + asked && asked > 0 { 1 } else { asked };
                mark_deleted(object, until, asked);
                changed = true;
            }
            (Some(_), _) => return Phase::Pending,
        }
    }
    changed |= mark_finalizers(on, object, options);
    if on.write.resource.table.behavior.spec_finalizers
        && at(object, "spec.finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    {
        // A namespace waits for its content, regardless of its own finalizers.
        if deleted_at.is_some() {
            return if changed { Phase::Wait } else { Phase::Pending };
        }
        object.object_entry("status").insert("phase", "Terminating".into());
        set_meta(object, "deletionTimestamp", Some(clock::now().into()));
        return Phase::Wait;
    }
    if deleted_at.is_none() {
        let grace = if graceful { grace_period(object, options) } else { 0 };
        // An object without grace period and finalizers is removed without a mark.
        if graceful || !finalizers(object).is_empty() {
            mark_deleted(object, clock::now_seconds() + grace, grace);
            count_generation(object);
            changed = true;
        }
    }
    let grace = at(object, "metadata.deletionGracePeriodSeconds").and_then(Value::as_i64);
    if !graceful && grace.is_none() && !finalizers(object).is_empty() {
        // The type marked the object without setting a grace period.
        set_meta(object, "deletionGracePeriodSeconds", Some(Value::Int(0)));
        changed = true;
    }
    let grace = grace.unwrap_or(0);
    match finalizers(object).is_empty() && grace == 0 {
        true if changed => Phase::RemoveAs,
        true => Phase::Remove,
        // A repeated delete of a waiting object passes admission again, even if nothing is written.
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

/// Returns the grace period of a pod in seconds: the option, else the pod's own setting; 0 if the pod is on
/// no node or has finished.
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

/// Sets the two garbage-collection finalizers according to the options and the default of the kind. Returns
/// whether anything changed.
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
    let mut wanted: Vec<String> =
        existing.iter().filter(|name| !matches!(name.as_str(), ORPHAN | FOREGROUND)).cloned().collect();
    if collected && on.server().operations.collects_garbage {
        wanted.extend(
            [(orphan, ORPHAN), (foreground, FOREGROUND)]
                .into_iter()
                .filter(|(on, _)| *on)
                .map(|(_, name)| name.to_owned()),
        );
    }
    if wanted == existing {
        return false;
    }
    set_finalizers(object, wanted.into_iter().map(Value::String).collect());
    true
}

/// Returns a 409 unless the object satisfies the preconditions of the caller.
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
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let cause = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). \
             The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(subject, &cause));
    }
    let revision = stored.entry.revision().to_string();
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != revision) {
        let cause = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({revision}). The object might have been modified"
        );
        return Err(Status::conflict(subject, &cause));
    }
    Ok(())
}

/// Checks the preconditions for a kind with its own deletion, for which the reference server uses other
/// texts.
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
    for (what, wanted, found) in pairs {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            let subject = Subject { group: &resource.group, kind: &resource.table.plural, name };
            return Err(Status::conflict(subject, &precondition_failed(what, wanted, found)));
        }
    }
    Ok(())
}
