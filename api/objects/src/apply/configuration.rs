//! Applies a configuration: computes the resulting object and its field ownership (docs/api/apply.md#apply).
//!
//! ```text
//! configuration ─► check ─► merge into the live object ─► prune ─► conflicts? ─► object and managed fields
//!                                                          │
//!                        fields the manager applied last time that have no owner now
//! ```
//!
//! The computation is a pure function of its arguments. The caller passes both objects in the version of the
//! request, and the result has the same version. The field sets of managers that wrote in another version are
//! compared in their own version.

use super::check::{TypeError, check, check_live, join};
use super::collect::{field_set, with_named_fields};
use super::conflict::{Conflict, Conflicts};
use super::managed::{Entry, Managed, ManagerOperation};
use super::merge::{merge, remove};
use super::nulls::Nulls;
use super::reconcile::reconcile;
use super::reset::Reset;
use super::track::{TrackedChanges, Writer, created, put_managed_fields, take_back};
use super::typed::OwnershipType;
use super::versions::Versions;
use crate::patch::restore::restore;
use types::schema::conform::{conform, conforms_in_place};
use types::schema::decode_raw::CompactError;
use types::schema::table::Message;
use values::field::{FieldSet, NESTING_MAX};
use values::json::{Object, Value};
use values::object::meta;

/// Manager that owns the fields that an object had before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Reason why a configuration cannot be applied.
#[derive(Debug)]
pub enum ApplyError {
    /// The configuration does not match its schema.
    Configuration(String),
    /// The live object does not match its schema, which changed since the object was written.
    Mistyped(String),
    /// The live object has elements that cannot be distinguished.
    Live(String),
    /// The configuration would change fields of other managers.
    Conflicts(Conflicts),
}

/// Reason why the result of an apply does not match the type of the object.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The result cannot be written as an object.
    #[error("{0}")]
    Object(String),
    /// The result cannot be converted to the built-in type.
    #[error("{0}")]
    Version(String),
}

/// The result of an apply.
#[derive(Debug)]
pub struct Applied {
    /// The merged object, without managed fields. The object is not yet decoded by its schema.
    pub object: Object,
    managed: Option<Value>,
    nulls: Nulls,
    /// Whether the field set of the manager is nested deeper than its text form permits.
    is_too_deep: bool,
}

impl Applied {
    /// Returns the object in the canonical form of its type `message`, with its managed fields. `known` is already
    /// canonical, so parts that the object shares with `known` are not decoded again.
    ///
    /// # Errors
    /// Fails if a value does not fit its field.
    pub fn conformed(self, message: &Message, known: &Object) -> Result<Object, ConvertError> {
        let mut object = self.object;
        if !conforms_in_place(message, &mut object, known) {
            let mut value = object.into();
            if !message.custom {
                restore(message, &mut value).map_err(ConvertError::Version)?;
            }
            object = conform(message, value).map_err(|error| ConvertError::Object(error.to_string()))?.object;
        }
        self.nulls.put_back(message, &mut object);
        if self.is_too_deep {
            return Err(ConvertError::Object(CompactError::Depth.to_string()));
        }
        put_managed_fields(&mut object, self.managed);
        Ok(object)
    }
}

/// Applies `config` to `live`. Only `live` may have managed fields in its metadata. If no object exists,
/// `live` is the empty object.
///
/// # Errors
/// See [`ApplyError`]. After an error, the object is unchanged.
pub fn apply(
    versions: &Versions<'_>,
    writer: &Writer<'_>,
    reset: &Reset,
    live: &Object,
    config: &Object,
    force: bool,
) -> Result<Applied, ApplyError> {
    let message = versions.message();
    let errors = check(message, config);
    if !errors.is_empty() {
        return Err(ApplyError::Configuration(join(&errors)));
    }
    // The server writes objects of built-in types by their schema, so only custom objects need a check.
    if message.custom {
        let errors = check_live(message, live);
        if !errors.is_empty() {
            return Err(ApplyError::Mistyped(join(&errors)));
        }
    }
    let live_error = |error: TypeError| ApplyError::Live(error.to_string());
    let (first, text);
    let mut managed = Managed::stored(live);
    if managed.is_empty() {
        first = before_first_apply(versions, writer, reset, live);
        managed = Managed::stored(&first);
    }
    for entry in managed.entries_mut() {
        if entry.manager.api_version == versions.own.api_version && !entry.is_current(message) {
            let set = reconcile(message, entry.set().into_owned());
            entry.set_fields(set);
        }
    }
    let mut merged = merge(message, live, config).map_err(live_error)?;
    super::track::take_managed_fields(&mut merged);

    let manager = writer.manager(ManagerOperation::Apply, versions.own.api_version);
    let last = managed.take(&manager);
    let last_time = last.as_ref().map(|last| last.time.clone()).unwrap_or_default();
    let owned = reset.owned(field_set(message, config));
    let is_too_deep = owned.depth() >= NESTING_MAX;
    text = owned.text();
    // Most applies include all fields of the previous apply.
    let given_up = last.filter(|last| {
        last.manager.api_version != versions.own.api_version
            || last.text() != Some(&*text) && !last.set().is_subset(&owned)
    });
    if let Some(last) = &given_up {
        let applied = reset.applied(field_set(message, config));
        managed.put(Entry::new(manager.clone(), writer.now.into(), applied));
        merged = prune(versions, merged, &managed, last);
        managed.take(&manager);
    }

    let mut changes = TrackedChanges::new(*versions, reset, live, &merged);
    if !force && let Some(conflicts) = conflicts(&managed, &mut changes) {
        return Err(ApplyError::Conflicts(conflicts));
    }
    // The entry keeps the time of the manager's last change of the object: an apply without changes does not update the
    // time, and a manager that has not changed the object yet has no time.
    let is_new = meta(live, "name").is_empty();
    let time = if changes.own.is_same() && !is_new { last_time } else { writer.now.into() };
    take_back(&mut managed, &mut changes, None);
    if !owned.is_empty() {
        managed.put(Entry::of_text(manager, time, &text));
    }
    let managed = managed.into_value();
    let nulls = Nulls::collect(message, config, live);
    Ok(Applied { object: merged, managed, nulls, is_too_deep })
}

/// Makes one manager the owner of all fields that the object had before its first apply.
fn before_first_apply(versions: &Versions<'_>, writer: &Writer<'_>, reset: &Reset, live: &Object) -> Object {
    let mut first = live.clone();
    super::track::take_managed_fields(&mut first);
    created(versions, &Writer { manager: BEFORE_FIRST_APPLY, ..*writer }, reset, &mut first);
    first
}

/// Returns the conflicts: the fields of other managers that the apply changes.
fn conflicts(others: &Managed<'_>, changes: &mut TrackedChanges<'_>) -> Option<Conflicts> {
    let conflicts = others.entries().iter().filter_map(|entry| {
        let found = changes.at(&entry.manager.api_version)?;
        if !entry.owns_any(&found.modified) && !entry.owns_any(&found.added) {
            return None;
        }
        let brought = found.clone().into_changed();
        let fields = entry.set().into_owned().intersection(&brought).into_owned();
        Some(Conflict { manager: entry.manager.clone().into_owned(), fields })
    });
    Conflicts::from_list(conflicts.collect())
}

/// Removes from `merged` the fields that the manager applied last time, does not apply now, and no other
/// manager owns.
///
/// The function first removes all fields of the last apply and then restores owned fields with their
/// ancestors. Fields that are still missing stay removed only if they are fields of the last apply.
fn prune(versions: &Versions<'_>, merged: Object, managed: &Managed<'_>, last: &Entry<'_>) -> Object {
    let own = versions.own;
    let Some(at) = versions.at(&last.manager.api_version) else { return merged };
    let last_set = last.set();
    if last_set.is_empty() {
        return merged;
    }
    let Some(converted) = versions.convert(merged.clone(), own, at) else { return merged };
    let of = OwnershipType::of_message(at.message);
    let last_named = with_named_fields(of, last_set.into_owned());
    let mut pruned = remove(at.message, &converted, &last_named);

    // Owned fields are restored version by version. The version of the last apply is converted first,
    // because the conversion of the other versions may need fields that pruning removes.
    let mut known: Vec<&str> = vec![at.api_version];
    for entry in managed.entries() {
        if !known.contains(&&*entry.manager.api_version) {
            known.push(&entry.manager.api_version);
        }
    }
    let (mut whole, mut here) = (converted.clone(), at);
    for version in known {
        let Some(there) = versions.at(version) else { continue };
        let owners = managed.entries().iter().filter(|entry| entry.manager.api_version == version);
        let owned = owners.fold(FieldSet::new(), |all, entry| all.union(entry.set().into_owned()));
        if owned.is_empty() {
            continue;
        }
        let (Some(whole_there), Some(pruned_there)) =
            (versions.convert(whole.clone(), here, there), versions.convert(pruned.clone(), here, there))
        else {
            continue;
        };
        (whole, pruned, here) =
            (whole_there.clone(), add_back(there.message, &whole_there, &pruned_there, owned), there);
    }

    let Some(pruned) = versions.convert(pruned, here, at) else { return merged };
    let named = |object: &Object| with_named_fields(of, field_set(at.message, object)).into_owned();
    let gone = named(&converted).difference(&named(&pruned)).intersection(&last_named);
    let result = remove(at.message, &converted, &gone);
    versions.convert(result, at, own).unwrap_or(merged)
}

/// Returns `whole` without the fields that are missing in `pruned` and that no manager owns.
fn add_back(message: &Message, whole: &Object, pruned: &Object, owned: FieldSet<'_>) -> Object {
    let of = OwnershipType::of_message(message);
    let kept = with_named_fields(of, field_set(message, pruned)).union(with_named_fields(of, owned));
    let gone = with_named_fields(of, field_set(message, whole)).difference(&kept);
    remove(message, whole, &gone)
}

#[cfg(test)]
#[path = "configuration_test.rs"]
mod tests;
