//! Validation: is this object one the server stores? (semantics §5.1 step 9, §5.2 step 7, §5.7)
//!
//! ```text
//! metadata ─► required fields and closed sets, by schema ─► rules of the kind ─► on update: what may not change
//! ```
//!
//! Everything that is wrong is collected; nothing stops at the first fault. Objects are in stored form, defaulted,
//! and as the strategy prepared them. Nothing here reads the store: checks that need other objects are admission's.

pub mod metadata;
pub mod names;
mod path;
mod required;
mod rules;

use crate::field::FieldError;
use crate::json::{Object, Value};
use crate::naming::Naming;
use crate::schema::table::ResourceTable;

/// Normalises what a kind keeps in another form than it takes (a secret's `stringData`); before validation.
/// `old` is the stored object on update.
pub fn prepare(resource: &ResourceTable, object: &mut Object, old: Option<&Object>) {
    if let Some(prepare) = rules::of(resource.message).prepare {
        prepare(object, old);
    }
}

/// What is wrong with a new object. Metadata is complete: name, namespace and uid are set.
pub fn create(resource: &ResourceTable, naming: &Naming, object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    content(resource, naming, object, &mut errors);
    metadata::validate_metadata_create(
        resource.name_rule,
        resource.scope,
        naming,
        metadata_of(object),
        &mut errors,
    );
    errors
}

/// What is wrong with an update through the resource itself.
pub fn update(resource: &ResourceTable, naming: &Naming, new: &Object, old: &Object) -> Vec<FieldError> {
    update_through("", resource, naming, new, old)
}

/// What is wrong with an update through a subresource that writes its parent (`status`, `ephemeralcontainers`,
/// `resize`, `binding` …; empty for the resource itself).
///
/// The strategy has already put back what the subresource may not write, so the kind's rules on what an update may
/// change are only asked for the resource itself, and the rest of the object is not judged again for `status`.
pub fn update_through(
    subresource: &str,
    resource: &ResourceTable,
    naming: &Naming,
    new: &Object,
    old: &Object,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata::validate_metadata_update(naming, metadata_of(new), metadata_of(old), &mut errors);
    if subresource == "status" {
        return errors;
    }
    content(resource, naming, new, &mut errors);
    if subresource.is_empty() {
        immutable(resource, new, old, &mut errors);
        let mut check = rules::Check { naming, object: new, errors: &mut errors };
        for rule in rules::of(resource.message).update {
            rule(&mut check, old);
        }
    }
    errors
}

fn content(resource: &ResourceTable, naming: &Naming, object: &Object, errors: &mut Vec<FieldError>) {
    required::validate(resource.message, object, errors);
    let mut check = rules::Check { naming, object, errors };
    for rule in rules::of(resource.message).always {
        rule(&mut check);
    }
}

/// Paths that no update changes (the tables' `immutable`).
fn immutable(resource: &ResourceTable, new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    for path in resource.immutable {
        let (new_value, old_value) = (at(new, path), at(old, path));
        if path.starts_with("status.") || is_same(new_value, old_value) {
            continue;
        }
        let error = match rules::other_words(resource.message, path) {
            Some(detail) => FieldError::forbidden(*path, detail),
            None => FieldError::invalid(*path, new_value.unwrap_or(&Value::Null), "field is immutable"),
        };
        errors.push(error);
    }
}

fn is_same(a: Option<&Value>, b: Option<&Value>) -> bool {
    a.filter(|value| !value.is_null()) == b.filter(|value| !value.is_null())
}

/// The value at a dotted path.
fn at<'v>(object: &'v Object, path: &str) -> Option<&'v Value> {
    let mut steps = path.split('.');
    let first = object.get(steps.next()?)?;
    steps.try_fold(first, |value, step| value.get(step))
}

fn metadata_of(object: &Object) -> &Object {
    static EMPTY: Object = Object::new();
    object.get("metadata").and_then(Value::as_object).unwrap_or(&EMPTY)
}

#[cfg(test)]
#[path = "validation_test.rs"]
mod tests;
