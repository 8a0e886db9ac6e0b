//! Validation: the checks that every object passes before it is stored
//! (docs/api/writes.md#preparation-and-validation, docs/api/writes.md#what-an-update-keeps,
//! docs/api/validation.md).
//!
//! ```text
//! metadata ─► walk: each field against its schema, then the rules its type names ─► on update: immutable fields
//! ```
//!
//! Checks of a single field are declared in the schema files (options `check`, `union`, `immutable`). Checks
//! of several fields are functions in `rules/`, with one file per topic. The schema of a type selects its
//! function (option `rule`). [`custom::validate`] checks objects of custom types, including their status.
//! Validation collects all failures and does not stop at the first failure. Objects must be in stored form,
//! after defaulting and after the strategy. This module does not read the store: checks that need other
//! objects belong to admission. `docs/validation.md` lists the coverage of each kind.

mod diff;
pub mod embedded;
mod internal;
pub mod metadata;
pub mod names;
mod path;
mod rules;
mod scalar_formats;
mod walk;

pub use path::FieldPath;
pub use rules::view::StructView;
pub use scalar_formats::{ADDRESS, DRIVER_MAX, address, address_fault, network};

use crate::custom;
use crate::custom::definition::Definition;
use crate::custom::definition::conditions::Findings;
use crate::custom::validate::ValidationResult;
use types::schema::table::{Message, NameRule, ResourceTable, Scope};
use values::field::{FieldError, is_enough};
use values::json::{Object, Value};
use values::naming::Naming;

/// The settings of a server that affect which objects are valid.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The naming profile in use.
    pub naming: &'static Naming,
    /// Whether containers may be privileged.
    pub allows_privileged: bool,
}

impl Settings {
    /// Returns the default settings of a server with this naming profile.
    pub const fn new(naming: &'static Naming) -> Settings {
        Settings { naming, allows_privileged: false }
    }
}

/// State of one validation: the object, its context, and the failures so far.
pub(crate) struct Validator<'v> {
    naming: &'static Naming,
    allows_privileged: bool,
    /// Schema type of the object.
    message: &'v Message,
    /// Name of the schema type of the object.
    kind: &'v str,
    /// API group of the request; empty if the group is unknown.
    group: &'v str,
    object: StructView<'v>,
    /// The stored object on an update; `None` on create.
    old: Option<StructView<'v>>,
    /// Whether only the status is checked, by the rules for statuses.
    is_status: bool,
    errors: Vec<FieldError>,
}

impl Validator<'_> {
    /// Returns whether enough failures are collected to stop. Loops over data from clients call this method before each
    /// iteration.
    fn has_enough(&self) -> bool {
        is_enough(&self.errors)
    }

    fn is_create(&self) -> bool {
        self.old.is_none()
    }

    /// Returns the struct at `path` in the stored object.
    fn before(&self, path: &FieldPath) -> StructView<'_> {
        StructView::from(self.old.and_then(|old| path.value(old)))
    }

    fn required(&mut self, path: impl Into<String>, detail: &str) {
        self.errors.push(FieldError::required(path, detail));
    }

    fn forbidden(&mut self, path: impl Into<String>, detail: impl Into<String>) {
        self.errors.push(FieldError::forbidden(path, detail));
    }

    fn invalid(&mut self, path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) {
        let path = path.into();
        let value = internal::at(self.message, &path, value.into());
        self.errors.push(FieldError::invalid(path, &value, detail));
    }

    fn duplicate(&mut self, path: impl Into<String>, value: impl Into<Value>) {
        let path = path.into();
        let value = internal::at(self.message, &path, value.into());
        self.errors.push(FieldError::duplicate(path, &value));
    }

    fn not_found(&mut self, path: impl Into<String>, value: impl Into<Value>) {
        self.errors.push(FieldError::not_found(path, &value.into()));
    }

    fn not_supported(&mut self, path: impl Into<String>, value: impl Into<Value>, supported: &[&str]) {
        let path = path.into();
        let value = internal::at(self.message, &path, value.into());
        self.errors.push(FieldError::not_supported(path, &value, supported));
    }

    /// Adds an `Invalid value` failure. `place` is the location of `value` in the object, which differs from
    /// the path of the failure.
    fn invalid_from(&mut self, path: impl Into<String>, place: &str, value: Value, detail: &str) {
        let value = internal::at(self.message, place, value);
        self.errors.push(FieldError::invalid(path, &value, detail));
    }

    /// Adds a `Forbidden` failure with the difference between the old and the new struct at `place`.
    fn forbidden_change(&mut self, path: &str, detail: &str, place: &str, [old, new]: [StructView; 2]) {
        let form = |version: StructView| internal::at(self.message, place, version.to_value());
        let detail = format!("{detail}\n{}", diff::unified(&form(old), &form(new)));
        self.forbidden(path, detail);
    }

    /// Adds a `Forbidden` failure with the difference between the old and the new list at `place`.
    fn forbidden_list_change(&mut self, path: &FieldPath, detail: &str, place: &str, lists: [Value; 2]) {
        let [old, new] = lists.map(|list| internal::at(self.message, place, list));
        self.forbidden(path, format!("{detail}\n{}", diff::unified(&old, &new)));
    }

    /// Adds a `Forbidden` failure with the difference between the old and the new source of a volume.
    fn forbidden_source_change(&mut self, path: &str, detail: &str, old: &Object, new: &Object) {
        let form = |source: &Object| {
            let source = Value::Object(source.clone());
            let mut form = internal::at(self.message, "spec", source);
            if let Some(form) = form.as_object_mut() {
                let inside = |name: &str| internal::VOLUME_SOURCES.contains(&name);
                form.retain(|name, _| inside(name));
            }
            form
        };
        let detail = format!("{detail}\n{}", diff::unified(&form(old), &form(new)));
        self.forbidden(path, detail);
    }

    /// Returns whether there are failures at a path or below it.
    fn has_errors_in(&self, path: &FieldPath) -> bool {
        let place = path.to_string();
        self.errors.iter().any(|error| is_within(&error.path, &place))
    }

    /// Adds the failures at and below a path again, because the reference server checks this path twice.
    fn repeat(&mut self, path: &FieldPath) {
        if self.has_enough() {
            return;
        }
        let place = path.to_string();
        let found: Vec<FieldError> =
            self.errors.iter().filter(|error| is_within(&error.path, &place)).cloned().collect();
        self.errors.extend(found);
    }

    /// Removes the failures at and below a path, because the reference server does not check this path.
    fn forget(&mut self, path: &FieldPath) {
        let place = path.to_string();
        self.errors.retain(|error| !is_within(&error.path, &place));
    }

    /// Adds an `Invalid value` failure for each fault.
    fn refuse(&mut self, path: &FieldPath, value: &str, faults: names::Faults) {
        metadata::refuse(&mut self.errors, path, value, faults);
    }
}

/// Returns whether a path is `place` or below it.
fn is_within(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Normalizes fields whose accepted form differs from the stored form, such as `stringData` of a secret.
/// The caller must call this function before validation.
pub fn prepare(resource: &ResourceTable, object: &mut Object) {
    if let Some(normalize) = rules::normalization(resource) {
        normalize(object, None);
    }
}

/// Normalizes the fields of an object that will replace `old`.
pub fn prepare_update(resource: &ResourceTable, object: &mut Object, old: &Object) {
    if let Some(normalize) = rules::normalization(resource) {
        normalize(object, Some(old));
    }
}

/// Returns the failures of a new object. The metadata must be complete: name, namespace and uid are set.
pub fn create(resource: &ResourceTable, settings: Settings, object: &Object) -> Vec<FieldError> {
    create_in("", resource, settings, object)
}

/// Returns the failures of a new object, like [`create`]. If several groups serve the type, `group` is the
/// group of the request.
pub fn create_in(
    group: &str,
    resource: &ResourceTable,
    settings: Settings,
    object: &Object,
) -> Vec<FieldError> {
    if resource.message.custom {
        let mut errors = Vec::new();
        metadata::validate_metadata_create(
            resource.name_rule,
            resource.scope,
            metadata_of(object),
            &mut errors,
        );
        errors.extend(custom::validate::object(resource, "", object, None, embedded::check).errors);
        return errors;
    }
    let mut validator = Validator { group, ..validator(resource, settings, object, None) };
    metadata::validate_metadata_create(
        resource.name_rule,
        resource.scope,
        metadata_of(object),
        &mut validator.errors,
    );
    finalizer_names(&mut validator, resource, metadata_of(object));
    walk::object(&mut validator, &resource.message, object);
    // Some kinds have their own rules for the base of a generated name. The reference server checks the base
    // before the name.
    validator.errors.sort_by_key(|error| error.path != "metadata.generateName");
    validator.errors
}

/// Returns the failures of the metadata of a view, such as a scale, through which a namespaced object is
/// written. The checks are the same as for new objects.
pub fn metadata_of_view(naming: &Naming, view: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata::validate_metadata_create(
        NameRule::Subdomain,
        Scope::Namespaced,
        metadata_of(view),
        &mut errors,
    );
    metadata::validate_finalizer_names(naming, metadata_of(view), &mut errors);
    errors
}

fn validator<'v>(
    resource: &'v ResourceTable,
    settings: Settings,
    object: &'v Object,
    old: Option<&'v Object>,
) -> Validator<'v> {
    let (object, old) = (StructView::from_object(object), old.map(StructView::from_object));
    let Settings { naming, allows_privileged } = settings;
    Validator {
        naming,
        allows_privileged,
        message: &resource.message,
        kind: &resource.message.name,
        group: "",
        object,
        old,
        is_status: false,
        errors: Vec::new(),
    }
}

/// Checks that the finalizers of an object have a domain, if the kind requires a domain.
fn finalizer_names(validator: &mut Validator, resource: &ResourceTable, metadata: &Object) {
    if !resource.behavior.plain_finalizers {
        metadata::validate_finalizer_names(validator.naming, metadata, &mut validator.errors);
    }
}

/// Returns the failures of an update through the resource itself.
pub fn update(resource: &ResourceTable, settings: Settings, new: &Object, old: &Object) -> Vec<FieldError> {
    update_through("", resource, settings, new, old).errors
}

/// Returns the failures and warnings of an update through a subresource that writes its parent (`status`,
/// `ephemeralcontainers`, `resize`, `binding` …; empty for the resource itself).
///
/// The strategy has already reset the fields that the subresource may not write. Therefore the rules of a
/// kind for permitted changes apply only to the resource itself. A subresource has its own rules. For
/// `status`, only the status is checked.
pub fn update_through(
    subresource: &str,
    resource: &ResourceTable,
    settings: Settings,
    new: &Object,
    old: &Object,
) -> ValidationResult {
    update_in("", subresource, resource, settings, [new, old])
}

/// Returns the failures and warnings of an update, like [`update_through`]. If several groups serve the type,
/// `group` is the group of the request.
pub fn update_in(
    group: &str,
    subresource: &str,
    resource: &ResourceTable,
    settings: Settings,
    [new, old]: [&Object; 2],
) -> ValidationResult {
    let mut validator = Validator { group, ..validator(resource, settings, new, Some(old)) };
    let is_whole = subresource.is_empty() && resource.behavior.metadata_again;
    update_of_metadata(&mut validator, resource, is_whole, metadata_of(new), metadata_of(old));
    if resource.message.custom {
        let result = custom::validate::object(resource, subresource, new, Some(old), embedded::check);
        validator.errors.extend(result.errors);
        return ValidationResult { errors: validator.errors, ..result };
    }
    let before = validator.errors.len();
    if subresource == "status" {
        validator.is_status = true;
        walk::status(&mut validator, &resource.message, new);
    } else {
        walk::object(&mut validator, &resource.message, new);
    }
    if subresource.is_empty() {
        if resource.behavior.checked_twice && !validator.has_enough() {
            validator.errors.extend_from_within(before..);
        }
        immutable(&mut validator, resource, new, old);
    }
    if let Some(rule) = rules::on_update(resource, subresource) {
        rule(&mut validator, StructView::from_object(new), StructView::from_object(old));
    }
    ValidationResult { errors: validator.errors, ..ValidationResult::default() }
}

/// Checks the metadata of an update: twice by the rules for changes, and once or twice by the rules for new
/// objects. The reference server reports each failure once for each of these checks. Only the checks of new
/// objects include finalizers.
fn update_of_metadata(
    validator: &mut Validator,
    resource: &ResourceTable,
    is_whole: bool,
    new: &Object,
    old: &Object,
) {
    let root = FieldPath::ROOT.child("metadata");
    metadata::validate_metadata_update(new, old, &mut validator.errors);
    validator.errors.extend_from_within(..);
    let is_sound = validator.errors.is_empty();
    for pass in 0..=usize::from(is_whole) {
        let before = validator.errors.len();
        if is_sound {
            metadata::validate_finalizers(&root, new, &mut validator.errors);
        } else {
            metadata::require_name(&root, new, &mut validator.errors);
            metadata::validate_new(&root, new, &mut validator.errors);
        }
        if !resource.message.custom {
            finalizer_names(validator, resource, new);
        }
        if pass == 0 && is_sound && validator.errors.len() == before {
            return;
        }
    }
}

/// Returns facts about a stored definition of a custom type, without the names of the definition.
pub fn findings<'f>(naming: &Naming, definition: &Definition, object: &'f Object) -> Findings<'f> {
    rules::definition::findings(naming, definition, object)
}

/// Refuses changes of the paths that are immutable (option `immutable` of the tables).
fn immutable(validator: &mut Validator, resource: &ResourceTable, new: &Object, old: &Object) {
    for path in resource.immutable {
        if new.shares(path, old) {
            continue;
        }
        let (new_value, old_value) = (at(new, path), at(old, path));
        if path.starts_with("status.") || is_same(new_value, old_value) {
            continue;
        }
        let refusal = resource.behavior.refusals.iter().find(|(other, _)| other == path);
        match refusal.map(|(_, detail)| *detail) {
            Some("") => {} // the update rule of the kind reports the change
            Some(detail) => validator.forbidden(*path, detail),
            None => {
                let new_value =
                    new_value.cloned().unwrap_or_else(|| internal::absent(&resource.message, path));
                validator.invalid(*path, new_value, "field is immutable");
            }
        }
    }
}

/// Returns whether two members are equal. The order of struct members is ignored.
fn is_same(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a.filter(|value| !value.is_null()), b.filter(|value| !value.is_null())) {
        (Some(a), Some(b)) => a.is_same_in_any_order(b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// Returns whether two structs have the same members, in any order.
fn is_same_struct(a: StructView, b: StructView) -> bool {
    let holds =
        |a: StructView, b: StructView| a.members().all(|(name, value)| is_same(Some(value), b.get(name)));
    holds(a, b) && holds(b, a)
}

/// Returns the value at a dotted path.
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
