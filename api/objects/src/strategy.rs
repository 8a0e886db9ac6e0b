//! What the server itself does to an object on its way in, beyond defaults: which parts each endpoint may write,
//! and generation.
//!
//! Functions from objects to objects. The data (which paths, which kinds count generations) is in the schema tables;
//! what tables cannot say is a `Strategy` in `strategy/kinds.rs`, which a kind names in the schema (option
//! `strategy`). Nothing here knows a kind by its name.

mod dropped;
mod kinds;
pub mod owners;
mod pods;
mod storage;
mod warnings;

use auth::User;
use dropped::{Dropped, drop_unused};

use crate::validation;
use types::schema::decode_form::reset;
use types::schema::registry::Resource;
use values::json::{Object, Value};
use values::naming::Naming;
use values::object::{self, copy_path, meta, same_at, set_meta};
use values::status::Status;

include!(concat!(env!("SCHEMA_TABLES"), "/strategies.rs"));

/// What a kind gets beyond what its tables say.
#[derive(Clone, Copy)]
struct Strategy {
    /// Completes a new object that is decoded and defaulted.
    create: Option<fn(&mut Object, &mut Creation)>,
    /// Completes the first object, about to replace the second through an endpoint. It is already limited to what the
    /// endpoint may write.
    update: Option<fn(Endpoint, &mut Object, &Object)>,
    /// What the writer of a valid object is warned of.
    warnings: Option<fn(&mut warnings::Texts, warnings::Written)>,
    /// What the writer of a valid status is warned of.
    status_warnings: Option<fn(&mut warnings::Texts, warnings::Written)>,
    /// Fields that are not stored, because what they are for is off.
    dropped: &'static [Dropped],
    /// Completes an object that is deleted for the first time and waits for a controller to clear up behind it.
    delete: Option<fn(&mut Object, &Naming)>,
    /// Whether a new object counts as stored without its status, which reading completes: the first write after the
    /// creation then stores something new, even if it says nothing new.
    completed_by_reading: bool,
}

/// Nothing beyond what the tables say.
const NONE: Strategy = Strategy {
    create: None,
    update: None,
    warnings: None,
    status_warnings: None,
    dropped: &[],
    delete: None,
    completed_by_reading: false,
};

/// What is known about a creation beside the object.
struct Creation<'a> {
    user: &'a User,
    naming: &'a Naming,
    /// Whether the labels of the object are the writer's, not a default.
    is_labelled: bool,
    /// What the writer is warned of.
    warnings: Vec<String>,
}

/// The strategy that the kind of a resource names.
fn of(resource: &Resource) -> Option<&'static Strategy> {
    STRATEGIES.get(usize::from(resource.table.behavior.strategy.checked_sub(1)?))
}

/// Which way a write came in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Endpoint {
    /// The resource itself.
    Main,
    /// `/status`.
    Status,
    /// `/scale`; only the replica count of the parent is taken.
    Scale,
    /// `/binding` of pods; the verb itself says what changes.
    Binding,
    /// `/finalize` of namespaces.
    Finalize,
    /// `/approval` of certificate signing requests.
    Approval,
    /// `/ephemeralcontainers` of pods.
    EphemeralContainers,
    /// `/resize` of pods.
    Resize,
}

impl Endpoint {
    /// Name of the subresource; empty for the resource itself.
    pub fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Binding => "binding",
            Self::Finalize => "finalize",
            Self::Approval => "approval",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
        }
    }

    /// The endpoint of a subresource that reads and writes its parent object; `None` for the others.
    pub fn of_parent(subresource: &str) -> Option<Self> {
        Some(match subresource {
            "" => Self::Main,
            "status" => Self::Status,
            "finalize" => Self::Finalize,
            "approval" => Self::Approval,
            "ephemeralcontainers" => Self::EphemeralContainers,
            "resize" => Self::Resize,
            _ => return None,
        })
    }
}

/// Members of `metadata` that a client cannot set at creation.
const SYSTEM_METADATA: [&str; 5] =
    ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

/// Wipes what only the system may set (docs/api/writes.md#system-metadata).
pub fn wipe_system_metadata(object: &mut Object) {
    let metadata = object::metadata_mut(object);
    metadata.retain(|name, _| !SYSTEM_METADATA.contains(&name));
}

/// Gives an object the namespace of its request, or none where its resource is in no namespace.
///
/// # Errors
/// 400 for an object that names another namespace.
pub fn scope_to(resource: &Resource, namespace: &str, object: &mut Object) -> Result<(), Status> {
    let given = meta(object, "namespace");
    if !resource.namespaced() {
        set_meta(object, "namespace", None);
    } else if given.is_empty() {
        set_meta(object, "namespace", Some(namespace.into()));
    } else if given != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Makes a decoded, defaulted object what a new one looks like; returns what its writer is warned of, which what the
/// object then looks like no longer shows. `is_labelled` says whether its labels are the writer's, not a default.
pub fn prepare_create(
    resource: &Resource,
    object: &mut Object,
    user: &User,
    naming: &Naming,
    is_labelled: bool,
) -> Vec<String> {
    let table = &resource.table;
    if let Some(rules) = &table.status
        && !rules.kept_on_create
    {
        for path in rules.kept_by_main.iter().filter(|path| path.starts_with("status")) {
            reset(&resource.stored().message, object, path);
        }
    }
    if table.message.custom || !table.generation_on.is_empty() {
        set_meta(object, "generation", Some(Value::Int(1)));
    }
    let Some(strategy) = of(resource) else { return Vec::new() };
    drop_unused(strategy.dropped, object, None);
    let mut creation = Creation { user, naming, is_labelled, warnings: Vec::new() };
    if let Some(create) = strategy.create {
        create(object, &mut creation);
    }
    creation.warnings
}

/// Whether the first write after the creation of an object stores something new, even if it changes nothing that a
/// reader sees (docs/api/writes.md#writes-without-effect).
pub fn is_completed_by_reading(resource: &Resource) -> bool {
    of(resource).is_some_and(|strategy| strategy.completed_by_reading)
}

/// Makes `new` what an update through `endpoint` may make of `old`, and counts the generation.
pub fn prepare_update(resource: &Resource, endpoint: Endpoint, new: &mut Object, old: &Object) {
    match endpoint {
        Endpoint::Main => {
            for path in resource.table.status.iter().flat_map(|rules| &*rules.kept_by_main) {
                copy_path(new, old, path);
            }
        }
        Endpoint::Status if resource.table.message.custom => only(new, old, &["status"]),
        Endpoint::Status => {
            for path in resource.table.status.iter().flat_map(|rules| &*rules.kept_by_status) {
                if *path == "metadata" {
                    let mut metadata =
                        old.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
                    metadata.remove("managedFields");
                    if let Some(fields) =
                        new.get("metadata").and_then(|metadata| metadata.get("managedFields"))
                    {
                        metadata.insert("managedFields", fields.clone());
                    }
                    new.insert("metadata", metadata.into());
                } else {
                    copy_path(new, old, path);
                }
            }
        }
        Endpoint::Scale | Endpoint::Binding => {}
        Endpoint::Finalize => copy_path(new, old, "status"),
        Endpoint::Approval => only(new, old, &["status.conditions", "metadata"]),
        Endpoint::EphemeralContainers => {
            only(new, old, &["spec.ephemeralContainers", "metadata.generateName"])
        }
        Endpoint::Resize => take_resources(new, old),
    }
    if let Some(strategy) = of(resource) {
        drop_unused(strategy.dropped, new, Some(old));
        if let Some(update) = strategy.update {
            update(endpoint, new, old);
        }
    }
    restore_system_metadata(new, old);
    let counted = &resource.table.generation_on;
    let is_custom = resource.table.message.custom;
    // A binding completes the specification, as a default does, and a status is none: the generation stays.
    if is_custom || !counted.is_empty() && !matches!(endpoint, Endpoint::Binding | Endpoint::Status) {
        let before =
            old.get("metadata").and_then(|metadata| metadata.get("generation")).and_then(Value::as_i64);
        let changed = if is_custom {
            endpoint != Endpoint::Status && !same_outside_metadata(new, old)
        } else {
            counted.iter().any(|path| !same_at(new, old, path))
        };
        let generation = before.unwrap_or(0) + i64::from(changed);
        set_meta(new, "generation", (generation > 0).then_some(Value::Int(generation)));
    } else {
        copy_path(new, old, "metadata.generation");
    }
}

/// Marks an object that is deleted for the first time, if a controller clears up behind its kind; says whether one does.
pub fn begin_deletion(resource: &Resource, object: &mut Object, naming: &Naming) -> bool {
    let delete = of(resource).and_then(|strategy| strategy.delete);
    if let Some(delete) = delete {
        delete(object, naming);
    }
    delete.is_some()
}

/// Whether the kind begins the deletion of its objects in its own way, and not as most do.
pub fn has_own_deletion(resource: &Resource) -> bool {
    resource.table.behavior.spec_finalizers || of(resource).is_some_and(|strategy| strategy.delete.is_some())
}

/// Whether two objects are equal but for their metadata.
fn same_outside_metadata(a: &Object, b: &Object) -> bool {
    let others = |object: &Object| object.len() - usize::from(object.contains("metadata"));
    others(a) == others(b)
        && a.iter().all(|(name, value)| name == "metadata" || b.get(name).is_some_and(|other| other == value))
}

/// What the writer of a valid object is warned of; only the resource itself and its status warn.
pub fn warnings(
    resource: &Resource,
    endpoint: Endpoint,
    naming: &'static Naming,
    new: &Object,
    old: Option<&Object>,
) -> Vec<String> {
    if resource.table.message.custom && endpoint == Endpoint::Main {
        return validation::metadata::finalizer_warnings(naming, new, old);
    }
    let advice = of(resource).and_then(|strategy| match endpoint {
        Endpoint::Main => strategy.warnings,
        Endpoint::Status => strategy.status_warnings,
        _ => None,
    });
    advice.map_or_else(Vec::new, |advice| warnings::Texts::of(advice, warnings::Written { new, old, naming }))
}

/// Keeps of `new` only the given paths (and the metadata of `new`); everything else is as in `old`.
fn only(new: &mut Object, old: &Object, paths: &[&'static str]) {
    let mut kept = old.clone();
    for path in paths {
        copy_path(&mut kept, new, path);
    }
    copy_path(&mut kept, new, "metadata.resourceVersion");
    copy_path(&mut kept, new, "metadata.managedFields");
    *new = kept;
}

/// A resize takes the resources of the pod, and the resources and resize policies of its containers. Containers that are not the same ones in the same
/// order are left for validation to refuse.
fn take_resources(new: &mut Object, old: &Object) {
    let mut kept = old.clone();
    for list in ["containers", "initContainers"] {
        let wanted =
            new.get("spec").and_then(|spec| spec.get(list)).and_then(Value::as_array).unwrap_or_default();
        let Some(spec) = kept.get_mut("spec").and_then(Value::as_object_mut) else { continue };
        let own = spec.get(list).and_then(Value::as_array).unwrap_or_default();
        if !own.iter().map(|item| item.str_at(&["name"])).eq(wanted.iter().map(|item| item.str_at(&["name"])))
        {
            spec.insert(list, Value::Array(wanted.to_vec()));
            continue;
        }
        let own = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, source) in own.zip(wanted) {
            if let (Some(target), Some(source)) = (container.as_object_mut(), source.as_object()) {
                copy_path(target, source, "resources");
                copy_path(target, source, "resizePolicy");
            }
        }
    }
    copy_path(&mut kept, new, "spec.resources");
    copy_path(&mut kept, new, "metadata.generateName");
    copy_path(&mut kept, new, "metadata.resourceVersion");
    copy_path(&mut kept, new, "metadata.managedFields");
    *new = kept;
}

/// What an update may omit but never change: filled in from the stored object
/// (docs/api/writes.md#what-an-update-keeps).
fn restore_system_metadata(new: &mut Object, old: &Object) {
    let old_meta = |name: &str| old.get("metadata").and_then(|metadata| metadata.get(name)).cloned();
    for name in ["creationTimestamp", "selfLink"] {
        set_meta(new, name, old_meta(name));
    }
    if meta(new, "uid").is_empty() {
        set_meta(new, "uid", old_meta("uid"));
    }
    if let Some(time) = old_meta("deletionTimestamp") {
        set_meta(new, "deletionTimestamp", Some(time));
    }
    const GRACE: &str = "deletionGracePeriodSeconds";
    let is_given = object::at(new, "metadata.deletionGracePeriodSeconds").is_some_and(|own| !own.is_null());
    if let (Some(seconds), false) = (old_meta(GRACE), is_given) {
        set_meta(new, GRACE, Some(seconds));
    }
}

/// Orders a string map as it is written: by key.
pub fn sort_members(members: &mut Object) {
    members.members_mut().sort_by(|(a, _), (b, _)| a.cmp(b));
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing;

    #[test]
    fn a_deletion_stays_and_its_grace_period_is_filled_in() {
        const OLD: &str = r#""deletionTimestamp":"2024-01-01T00:00:00Z","deletionGracePeriodSeconds":0"#;
        let metadata = |members: &str| testing::object(&format!(r#"{{"metadata":{{"uid":"u",{members}}}}}"#));
        for (given, want) in [
            (r#""name":"a""#, format!(r#""name":"a",{OLD}"#)),
            (
                r#""name":"a","deletionTimestamp":null,"deletionGracePeriodSeconds":null"#,
                format!(r#""name":"a",{OLD}"#),
            ),
            // Validation refuses a change.
            (
                r#""deletionTimestamp":"2025-01-01T00:00:00Z","deletionGracePeriodSeconds":5"#,
                OLD.replace("Seconds\":0", "Seconds\":5"),
            ),
        ] {
            let mut new = metadata(given);
            restore_system_metadata(&mut new, &metadata(OLD));
            let wanted = metadata(&want);
            assert!(Value::from(new.clone()).is_same_in_any_order(&wanted.into()), "{given}: {new:?}");
        }
    }
}
