//! Field ownership after writes other than apply: creates, updates, and the other patches
//! (docs/api/apply.md#ownership-of-updates).
//!
//! ```text
//! live ──┐            ┌─ other managers lose what they owned of removed, modified and added fields
//!        ├─ compare ──┤
//! new ───┘            └─ the writer owns modified and added fields, with the current time
//! ```
//!
//! An existing object without managed fields is not tracked. A new object is always tracked.

use super::compare::{Comparison, compare};
use super::managed::{Entry, Managed, Manager, ManagerOperation, Requested};
use super::new_object_fields;
use super::reconcile::reconcile;
use super::reset::Reset;
use super::text;
use super::versions::{KindVersion, Versions};
use types::schema::decode_form::zero_object;
use values::json::{Object, Value};

/// The manager name of a request, its subresource, and the time.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'w> {
    /// Name of the field manager.
    pub manager: &'w str,
    /// Subresource through which the request writes; empty for the object itself.
    pub subresource: &'w str,
    /// Current time with second precision, as RFC 3339.
    pub now: &'w str,
}

impl<'w> Writer<'w> {
    /// Returns the manager of this writer.
    pub fn manager<'t>(&self, operation: ManagerOperation, api_version: &'t str) -> Manager<'t>
    where
        'w: 't,
    {
        Manager {
            name: if self.manager.is_empty() { "unknown" } else { self.manager }.into(),
            operation,
            api_version: api_version.into(),
            subresource: self.subresource.into(),
        }
    }
}

/// Sets the managed fields of `new`, a new object in the version of the request.
pub fn created(versions: &Versions<'_>, writer: &Writer<'_>, reset: &Reset, new: &mut Object) {
    let given = take_managed_fields(new);
    let nothing = zero_object(versions.message());
    let value = {
        let mut base = match Managed::requested(&given, &Managed::default()) {
            Requested::These(managed) => managed,
            Requested::Nothing | Requested::Reset => Managed::default(),
        };
        // The creation sets the fields that identify the object, so no manager keeps them.
        base.entries_mut().retain_mut(|entry| {
            let left = Reset::without_identity(entry.set().into_owned());
            let is_kept = !left.is_empty();
            entry.set_fields(left);
            is_kept
        });
        let message = versions.message();
        let text = if base.is_empty() && reset.owns_all() {
            new_object_fields::text(message, &nothing, new, reset.skipped())
        } else {
            None
        };
        match text {
            Some(text) => owned_by_one(
                writer.manager(ManagerOperation::Update, versions.own.api_version),
                writer,
                &text,
            ),
            None => follow(versions, writer, reset, base, &nothing, new),
        }
    };
    put_managed_fields(new, value);
}

/// Sets the managed fields of `new`, which replaces `live`. Both objects are in the version of the request.
pub fn updated(versions: &Versions<'_>, writer: &Writer<'_>, reset: &Reset, live: &Object, new: &mut Object) {
    let given = take_managed_fields(new);
    let value = {
        let stored = Managed::stored(live);
        let base = match Managed::requested(&given, &stored) {
            // Writes through a subresource cannot change managed fields.
            _ if !writer.subresource.is_empty() => stored,
            Requested::Nothing => stored,
            Requested::Reset => Managed::default(),
            Requested::These(managed) => managed,
        };
        if base.is_empty() { None } else { follow(versions, writer, reset, base, live, new) }
    };
    put_managed_fields(new, value);
}

/// Removes the managed fields from an object and returns their value.
pub fn take_managed_fields(object: &mut Object) -> Value {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    metadata.and_then(|metadata| metadata.remove("managedFields")).unwrap_or_default()
}

/// Sets the managed fields of an object that has no managed fields.
pub fn put_managed_fields(object: &mut Object, value: Option<Value>) {
    if let Some(value) = value {
        values::object::metadata_mut(object).insert("managedFields", value);
    }
}

/// Returns the managed fields of an object if one manager owns all fields.
fn owned_by_one(manager: Manager<'_>, writer: &Writer<'_>, text: &str) -> Option<Value> {
    let mut managed = Managed::default();
    let entry = Entry::of_text(manager, writer.now.into(), text);
    if !entry.is_empty() {
        managed.put(entry);
    }
    managed.into_value()
}

fn follow<'t>(
    versions: &Versions<'t>,
    writer: &'t Writer<'_>,
    reset: &'t Reset,
    mut managed: Managed<'t>,
    live: &'t Object,
    new: &'t Object,
) -> Option<Value> {
    let mut changes = TrackedChanges::new(*versions, reset, live, new);
    let manager = writer.manager(ManagerOperation::Update, versions.own.api_version);
    if owns_all_of_it(&managed, &manager, &changes) {
        take_back(&mut managed, &mut changes, Some(&manager));
        managed.renew(&manager, writer.now.into());
    } else {
        take_back(&mut managed, &mut changes, None);
        let brought = changes.own.into_changed();
        if !brought.is_empty() {
            managed.give(manager, writer.now.into(), brought);
            if let Some(entry) = managed.entries_mut().last_mut() {
                let left = Reset::without_identity(entry.set().into_owned());
                entry.set_fields(left);
            }
        }
    }
    managed.cap();
    managed.into_value()
}

/// Returns whether the writer changes only fields that it already owns, so that removing and adding the
/// fields would result in the same set. The function reads only the text of the set, and returns false if the
/// text is not sufficient.
fn owns_all_of_it(managed: &Managed<'_>, writer: &Manager<'_>, changes: &TrackedChanges<'_>) -> bool {
    let Comparison { removed, modified, added } = &changes.own;
    if modified.is_empty() && added.is_empty() {
        return false;
    }
    let Some(text) = managed.get(writer).and_then(Entry::text) else { return false };
    text::common(text, removed) == Some(0)
        && [modified, added].iter().all(|brought| text::common(text, brought) == Some(brought.len()))
        && text::is_current(text, changes.versions.message()) == Some(true)
}

/// The changes between two versions of an object, computed for each API version on demand.
pub(super) struct TrackedChanges<'t> {
    versions: Versions<'t>,
    reset: &'t Reset,
    live: &'t Object,
    new: &'t Object,
    /// Changes in the version of the request.
    pub(super) own: Comparison<'t>,
    others: Vec<(KindVersion<'t>, Comparison<'static>)>,
}

impl<'t> TrackedChanges<'t> {
    /// Compares `live` and `new`, both in the version of the request. The changes are limited to those that
    /// the endpoint may make.
    pub(super) fn new(versions: Versions<'t>, reset: &'t Reset, live: &'t Object, new: &'t Object) -> Self {
        let own = reset.filter(compare(versions.message(), live, new, reset.skipped()));
        TrackedChanges { versions, reset, live, new, own, others: Vec::new() }
    }

    /// Returns the changes in `api_version`; `None` if that version is no longer served.
    pub(super) fn at(&mut self, api_version: &str) -> Option<&Comparison<'t>> {
        let own = self.versions.own;
        if api_version == own.api_version {
            return Some(&self.own);
        }
        let version = self.versions.at(api_version)?;
        let at = match self.others.iter().position(|(known, _)| known.api_version == version.api_version) {
            Some(at) => at,
            None => {
                let live = self.versions.convert(self.live.clone(), own, version)?;
                let new = self.versions.convert(self.new.clone(), own, version)?;
                let found = compare(version.message, &live, &new, self.reset.skipped());
                self.others.push((version, self.reset.filter(found.into_owned())));
                self.others.len() - 1
            }
        };
        Some(&self.others[at].1)
    }
}

/// Removes the changed fields (removed, modified or added) from the entries of every manager except `writer`.
/// Drops managers without fields and managers whose version is no longer served.
pub(super) fn take_back<'t>(
    managed: &mut Managed<'t>,
    changes: &mut TrackedChanges<'t>,
    writer: Option<&Manager<'_>>,
) {
    let own = changes.versions.own;
    managed.entries_mut().retain_mut(|entry| {
        if writer.is_some_and(|writer| entry.manager.is(writer)) {
            return true;
        }
        let Some(found) = changes.at(&entry.manager.api_version) else { return false };
        let lost = [&found.removed, &found.modified, &found.added];
        if !lost.iter().any(|lost| entry.owns_any(lost)) {
            return !entry.is_empty();
        }
        let mut set = entry.set().into_owned();
        if entry.manager.api_version == own.api_version {
            set = reconcile(own.message, set);
        }
        let left = lost.iter().fold(set, |left, lost| left.difference(lost));
        let is_empty = left.is_empty();
        entry.set_fields(left);
        !is_empty
    });
}

#[cfg(test)]
#[path = "track_test.rs"]
mod tests;
