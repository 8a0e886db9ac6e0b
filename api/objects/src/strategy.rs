//! Changes that the server makes to an object before it is stored, in addition to defaulting. These changes
//! limit a write to the fields that its endpoint may write, and increment the generation.
//!
//! All functions are pure functions on objects. The schema tables contain the data (paths, and the kinds with
//! generations). Behavior that tables cannot express is a `Strategy` in `strategy/kinds.rs`, which the schema
//! of a kind selects (option `strategy`). This module contains no names of kinds.

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
use values::json::{self, Object, Value};
use values::naming::Naming;
use values::object::{self, copy_path, meta, same_at, set_meta};
use values::status::Status;

include!(concat!(env!("SCHEMA_TABLES"), "/strategies.rs"));

/// Behavior of a kind that its tables do not express.
#[derive(Clone, Copy)]
struct Strategy {
    /// Completes a new object after decoding and defaulting.
    create: Option<fn(&mut Object, &mut Creation)>,
    /// Completes the first object, which will replace the second object. The endpoint is that of the write.
    /// The caller has already limited the first object to the fields that the endpoint may write.
    update: Option<fn(Endpoint, &mut Object, &Object)>,
    /// Collects the warnings for the writer of a valid object.
    warnings: Option<fn(&mut warnings::Texts, warnings::WrittenObject)>,
    /// Collects the warnings for the writer of a valid status.
    status_warnings: Option<fn(&mut warnings::Texts, warnings::WrittenObject)>,
    /// Fields that are dropped because their feature is disabled.
    dropped: &'static [Dropped],
    /// Completes an object at its first deletion if a controller must clean up before the object is removed.
    delete: Option<fn(&mut Object, &Naming)>,
    /// Whether a new object counts as stored without its status. Reading the object adds the status. The
    /// first write after the creation is then stored even if it is a no-op.
    completed_by_reading: bool,
}

/// Strategy of a kind whose behavior the tables express completely.
const NONE: Strategy = Strategy {
    create: None,
    update: None,
    warnings: None,
    status_warnings: None,
    dropped: &[],
    delete: None,
    completed_by_reading: false,
};

/// Context of a creation.
struct Creation<'a> {
    user: &'a User,
    naming: &'a Naming,
    /// Whether the writer set the labels of the object. If not, defaulting set the labels.
    is_labelled: bool,
    /// Warnings for the writer.
    warnings: Vec<String>,
}

/// Returns the strategy that the schema of a kind selects.
fn strategy_of(resource: &Resource) -> Option<&'static Strategy> {
    STRATEGIES.get(usize::from(resource.table.behavior.strategy.checked_sub(1)?))
}

/// Endpoint through which a write is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Endpoint {
    /// The path of the resource itself.
    Main,
    /// The subresource `/status` of the object.
    Status,
    /// The subresource `/scale`, through which a write changes only the replica count of the parent.
    Scale,
    /// The subresource `/binding` of pods. The handler of the subresource changes the object itself.
    Binding,
    /// The subresource `/finalize` of namespaces.
    Finalize,
    /// The subresource `/approval` of certificate signing requests.
    Approval,
    /// The subresource `/ephemeralcontainers` of pods.
    EphemeralContainers,
    /// The subresource `/resize` of pods.
    Resize,
}

impl Endpoint {
    /// Returns the name of the subresource; empty for the resource itself.
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

    /// Returns the endpoint of a subresource that reads and writes its parent object. Returns `None` for
    /// other subresources.
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

/// Removes the metadata that only the server may set (docs/api/writes.md#system-metadata).
pub fn wipe_system_metadata(object: &mut Object) {
    let metadata = object::metadata_mut(object);
    metadata.retain(|name, _| !SYSTEM_METADATA.contains(&name));
}

/// Sets the namespace of an object to the namespace of the request, or removes it if the resource is
/// cluster-scoped.
///
/// # Errors
/// 400 if the object names another namespace.
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

/// Prepares a new object for its creation, after decoding and defaulting. Returns warnings about fields of
/// the sent object that the prepared object no longer contains. `is_labelled` is `true` if the writer set the
/// labels; otherwise defaulting set the labels.
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
    let Some(strategy) = strategy_of(resource) else { return Vec::new() };
    drop_unused(strategy.dropped, object, None);
    let mut creation = Creation { user, naming, is_labelled, warnings: Vec::new() };
    if let Some(create) = strategy.create {
        create(object, &mut creation);
    }
    creation.warnings
}

/// Returns whether the first write after the creation of an object is stored even if readers cannot see a
/// difference (docs/api/writes.md#writes-without-effect).
pub fn is_completed_by_reading(resource: &Resource) -> bool {
    strategy_of(resource).is_some_and(|strategy| strategy.completed_by_reading)
}

/// Limits `new` to the changes that an update of `old` through `endpoint` may make, and increments the
/// generation if necessary.
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
    if let Some(strategy) = strategy_of(resource) {
        drop_unused(strategy.dropped, new, Some(old));
        if let Some(update) = strategy.update {
            update(endpoint, new, old);
        }
    }
    restore_system_metadata(new, old);
    let counted = &resource.table.generation_on;
    let is_custom = resource.table.message.custom;
    // A binding and a status do not change the generation: a binding completes the specification like
    // defaulting, and a status does not belong to the specification.
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

/// Prepares an object at its first deletion if its kind needs a cleanup by a controller. Returns whether the
/// kind needs such a cleanup.
pub fn begin_deletion(resource: &Resource, object: &mut Object, naming: &Naming) -> bool {
    let delete = strategy_of(resource).and_then(|strategy| strategy.delete);
    if let Some(delete) = delete {
        delete(object, naming);
    }
    delete.is_some()
}

/// Returns whether this kind has its own deletion behavior.
pub fn has_own_deletion(resource: &Resource) -> bool {
    resource.table.behavior.spec_finalizers
        || strategy_of(resource).is_some_and(|strategy| strategy.delete.is_some())
}

/// Returns whether two objects are equal except for their metadata.
fn same_outside_metadata(a: &Object, b: &Object) -> bool {
    let others = |object: &Object| object.len() - usize::from(object.contains("metadata"));
    others(a) == others(b)
        && a.iter().all(|(name, value)| name == "metadata" || b.get(name).is_some_and(|other| other == value))
}

/// Returns the warnings for the writer of a valid object. Only writes of the resource itself and of its
/// status produce warnings.
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
    let advice = strategy_of(resource).and_then(|strategy| match endpoint {
        Endpoint::Main => strategy.warnings,
        Endpoint::Status => strategy.status_warnings,
        _ => None,
    });
    advice.map_or_else(Vec::new, |advice| {
        warnings::Texts::collect(advice, warnings::WrittenObject { new, old, naming })
    })
}

/// Resets `new` to `old`, except for `paths` and for the metadata members `resourceVersion` and
/// `managedFields`.
fn only(new: &mut Object, old: &Object, paths: &[&'static str]) {
    let mut kept = old.clone();
    for path in paths {
        copy_path(&mut kept, new, path);
    }
    copy_path(&mut kept, new, "metadata.resourceVersion");
    copy_path(&mut kept, new, "metadata.managedFields");
    *new = kept;
}

/// Limits `new` to the changes that a resize may make: the resources of the pod, and the resources and resize
/// policies of its containers. If the containers or their order differ, `new` keeps its containers, and
/// validation refuses the change.
fn take_resources(new: &mut Object, old: &Object) {
    let mut kept = old.clone();
    for list in ["containers", "initContainers"] {
        let requested =
            new.get("spec").and_then(|spec| spec.get(list)).and_then(Value::as_array).unwrap_or_default();
        let Some(spec) = kept.get_mut("spec").and_then(Value::as_object_mut) else { continue };
        let own = spec.get(list).and_then(Value::as_array).unwrap_or_default();
        if !own
            .iter()
            .map(|item| item.str_at(&["name"]))
            .eq(requested.iter().map(|item| item.str_at(&["name"])))
        {
            spec.insert(list, Value::Array(requested.to_vec()));
            continue;
        }
        let own = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, source) in own.zip(requested) {
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

/// Copies from the stored object the metadata that an update may omit but not change
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

/// Sorts a map of strings by key, which is the order in the stored form.
pub fn sort_members(members: &mut Object) {
    json::sort_members(members.members_mut());
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing;

    #[test]
    fn deletion_timestamp_is_kept_and_its_grace_period_is_filled_in() {
        const OLD: &str = r#""deletionTimestamp":"2024-01-01T00:00:00Z","deletionGracePeriodSeconds":0"#;
        let metadata = |members: &str| testing::object(&format!(r#"{{"metadata":{{"uid":"u",{members}}}}}"#));
        for (given, want) in [
            (r#""name":"a""#, format!(r#""name":"a",{OLD}"#)),
            (
                r#""name":"a","deletionTimestamp":null,"deletionGracePeriodSeconds":null"#,
                format!(r#""name":"a",{OLD}"#),
            ),
            // Validation refuses this change later.
            (
                r#""deletionTimestamp":"2025-01-01T00:00:00Z","deletionGracePeriodSeconds":5"#,
                OLD.replace("Seconds\":0", "Seconds\":5"),
            ),
        ] {
            let mut new = metadata(given);
            restore_system_metadata(&mut new, &metadata(OLD));
            let expected = metadata(&want);
            assert!(Value::from(new.clone()).is_same_in_any_order(&expected.into()), "{given}: {new:?}");
        }
    }
}
