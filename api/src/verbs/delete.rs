//! delete and deletecollection: two phases where something holds the object, one otherwise.

use http::StatusCode;

use super::list::{ListStream, Page};
use super::options::{DeleteOptions, ListOptions, Propagation};
use super::selected::{Found, Need};
use super::write::intent;
use super::{Call, force_delete};
use crate::admission::Options;
use crate::clock;
use crate::features::Feature;
use crate::field::FieldError;
use crate::json::{Object, Value};
use crate::object::{at, finalizers, meta, set_finalizers, set_meta};
use crate::query::invalid_options;
use crate::representation::answer::{respond_object, respond_success};
use crate::representation::refuse_list_transform;
use crate::response::Response;
use crate::schema::registry::Resource;
use crate::status::{Details, Status, Subject};
use crate::store::{self, Stored};
use crate::strategy::{self, Endpoint};
use crate::write::intent::DELETION;
use crate::write::{self, Caller, Current, InStoredForm, Intent, Outcome, Wanted};

/// Finalizer that keeps an owner until its dependents lost it.
pub const ORPHAN: &str = "orphan";

/// Finalizer that keeps an owner until its dependents are gone.
pub const FOREGROUND: &str = "foregroundDeletion";

/// DELETE of an item.
pub async fn delete(call: &mut Call<'_>, body: &[u8]) -> Result<Response, Status> {
    let mut options = DeleteOptions::read(call, body)?;
    refuse_list_transform(&call.output, call.resource)?;
    if options.ignore_store_read_error && call.api.features().has(Feature::AllowUnsafeMalformedObjectDeletion)
    {
        force_delete::check_options(&options, &call.api.naming().meta_group())?;
        return force_delete::delete(call, &options).await;
    }
    let name = call.info.name.clone();
    let warning = call.resource.table.behavior.delete_warning;
    if !warning.is_empty() && chooses_nothing(&options) {
        call.warnings.push(warning.to_owned());
    }
    if call.resource.table.behavior.spec_finalizers && options.uid.is_none() {
        // Whatever admission says of this namespace is not said of another of its name.
        let stored = call.store().get(&store::key(call.resource, "", &name))?;
        let object = stored.map(|stored| stored.object(call.resource)).transpose()?;
        options.uid = object.map(|object| meta(&object, "uid").to_owned());
    }
    let mut intent = intent(call, Endpoint::Main, Options::Delete(&options), "");
    intent.leaves_out = DELETION;
    match delete_object(call, &intent, &options).await? {
        Outcome::Removed(written) if call.resource.table.delete_returns_object => {
            respond_object(call.renderer()?, StatusCode::OK, &written.value).await
        }
        Outcome::Removed(written) => {
            let object = store::decode_stored(call.resource, &written.value)?;
            let details = Details {
                name,
                group: call.resource.group.clone(),
                kind: call.resource.table.plural.clone().into_owned(),
                uid: meta(&object, "uid").to_owned(),
                ..Details::default()
            };
            Ok(respond_success(StatusCode::OK, &success(&details, None), &call.output))
        }
        // Still there, waiting for finalizers or its grace period.
        waiting => {
            let code =
                if options.orphan_dependents == Some(false) { StatusCode::ACCEPTED } else { StatusCode::OK };
            let written = waiting.written().ok_or_else(|| Status::not_found(call.subject(&name)))?;
            respond_object(call.renderer()?, code, &written.value).await
        }
    }
}

/// The Status of a success; deletions carry no code, bindings and evictions do.
pub fn success(details: &Details, code: Option<StatusCode>) -> Object {
    let mut status = Object::new();
    status.push("kind", "Status".into());
    status.push("apiVersion", "v1".into());
    status.push("metadata", Object::new().into());
    status.push("status", "Success".into());
    if *details != Details::default() {
        status.push("details", details.to_value());
    }
    if let Some(code) = code {
        status.push("code", Value::Int(code.as_u16().into()));
    }
    status
}

fn chooses_nothing(options: &DeleteOptions) -> bool {
    options.propagation.is_none() && options.orphan_dependents.is_none()
}

/// Deletes one object, or marks it as deleted where something holds it.
///
/// # Errors
/// 404 if there is none, 409 if it is not the one that the options mean, or what the write path refuses.
pub async fn delete_object<C: Caller>(
    caller: &mut C,
    intent: &Intent<'_>,
    options: &DeleteOptions,
) -> Result<Outcome, Status> {
    let mut source = InStoredForm(|_: &mut C, current: Option<&mut Current>| {
        let Some(current) = current else { return Ok(Wanted::AsItIs) };
        let mut object = current.take(intent.resource)?;
        check_preconditions(intent.resource, intent.name, options, &object, &current.stored)?;
        Ok(match first_phase(intent, &mut object, options) {
            Phase::Pending => Wanted::AsItIs,
            Phase::Wait => Wanted::Marked(object),
            Phase::RemoveAs => Wanted::Gone(object),
            Phase::Remove => Wanted::GoneAsStored(object),
        })
    });
    write::write(caller, intent, &mut source).await
}

/// What a delete does to an object now.
enum Phase {
    /// It goes as it is.
    Remove,
    /// It goes, and its final state says so.
    RemoveAs,
    /// It is marked and waits.
    Wait,
    /// It waits already, and this delete changes nothing.
    Pending,
}

/// Decides the phase and marks `object` accordingly.
fn first_phase(on: &Intent<'_>, object: &mut Object, options: &DeleteOptions) -> Phase {
    let deleted_at = clock::parse_seconds(meta(object, "deletionTimestamp"));
    let graceful = on.resource.table.graceful_delete;
    let mut changed = false;
    if deleted_at.is_none() && strategy::begin_deletion(on.resource, object, on.api.naming()) {
        set_meta(object, "deletionTimestamp", Some(clock::now().into()));
        return Phase::Wait;
    }
    if let (true, Some(deleted_at)) = (graceful, deleted_at) {
        let current = at(object, "metadata.deletionGracePeriodSeconds").and_then(Value::as_i64);
        match (current, options.grace_period_seconds) {
            // Not deleted gracefully before, so there is nothing left to wait for.
            (None, _) => {}
            // The time may only become shorter.
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
    if on.resource.table.behavior.spec_finalizers
        && at(object, "spec.finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    {
        // A namespace waits for its content, whatever its own finalizers say.
        if deleted_at.is_some() {
            return if changed { Phase::Wait } else { Phase::Pending };
        }
        object.object_entry("status").insert("phase", "Terminating".into());
        set_meta(object, "deletionTimestamp", Some(clock::now().into()));
        return Phase::Wait;
    }
    if deleted_at.is_none() {
        let grace = if graceful { grace_period(object, options) } else { 0 };
        // What goes at once and without grace goes as it is.
        if graceful || !finalizers(object).is_empty() {
            mark_deleted(object, clock::now_seconds() + grace, grace);
            count_generation(object);
            changed = true;
        }
    }
    let grace = at(object, "metadata.deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    match finalizers(object).is_empty() && grace == 0 {
        true if changed => Phase::RemoveAs,
        true => Phase::Remove,
        false if changed => Phase::Wait,
        false => Phase::Pending,
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

/// Seconds a pod may take: the option, else its own wish; none where nobody runs it.
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

/// Sets the two garbage-collection finalizers as the options and the kind's default want them; returns whether
/// anything changed.
fn mark_finalizers(on: &Intent<'_>, object: &mut Object, options: &DeleteOptions) -> bool {
    let existing: Vec<String> = finalizers(object).into_iter().map(str::to_owned).collect();
    let has = |name: &str| existing.iter().any(|finalizer| finalizer == name);
    let nothing_chosen = chooses_nothing(options);
    let by_default = on.resource.stored().table.orphans_by_default;
    let collected = !on.resource.stored().table.behavior.uncollected;
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
    if collected && on.api.collects_garbage() {
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

/// 409 unless the object is the one the caller means.
pub fn check_preconditions(
    resource: &Resource,
    name: &str,
    options: &DeleteOptions,
    object: &Object,
    stored: &Stored,
) -> Result<(), Status> {
    if resource.table.behavior.spec_finalizers {
        return check_preconditions_of_content(resource, name, options, object, stored);
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

/// The same for a namespace, whose deletion the reference server words differently.
fn check_preconditions_of_content(
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
            let cause = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            return Err(Status::conflict(subject, &cause));
        }
    }
    Ok(())
}

/// DELETE of a collection: the items that the selectors pick, one after the other, and the list of them.
pub async fn delete_collection(call: &mut Call<'_>, body: &[u8]) -> Result<Response, Status> {
    let meta_group = call.api.naming().meta_group();
    let options = DeleteOptions::read(call, body)?;
    if options.ignore_store_read_error {
        let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
        let error =
            FieldError::invalid("ignoreStoreReadErrorWithClusterBreakingPotential", &true.into(), why);
        return Err(invalid_options("DeleteOptions", &meta_group, &[error]));
    }
    let list_options = ListOptions::from_query(call.query, call.selection()?, false, &meta_group)?;
    let page = Page::find(call, list_options).await?;
    let renderer = call.renderer()?;
    crate::representation::refuse_object_transform(&call.output, call.resource)?;
    let mut left = page.items;
    let mut objects = page.objects();
    while left > 0
        && let Some(found) = objects.next(Need::Places).await?
    {
        let entry = match found {
            Found::Pause => {
                tokio::task::yield_now().await;
                continue;
            }
            Found::Entry(entry) => entry,
            Found::Record(stored) => stored.entry,
        };
        left -= 1;
        let (namespace, name) = store::identity(call.resource, entry.key());
        let mut intent = intent(call, Endpoint::Main, Options::Delete(&options), "");
        (intent.leaves_out, intent.namespace, intent.name) = (DELETION, namespace, name);
        match delete_object(call, &intent, &options).await {
            Ok(_) => {}
            Err(status) if status.code == StatusCode::NOT_FOUND => {}
            Err(status) => return Err(status),
        }
    }
    // The answer lists the items as they were; the page's snapshot still has them, so none was kept aside.
    ListStream::respond(renderer, page).await
}
