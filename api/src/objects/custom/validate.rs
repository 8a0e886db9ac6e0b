//! Validation of custom objects against their schema.
//!
//! ```text
//! value ─ check ─► type ─► allOf, anyOf, oneOf, not ─► text, format, number ─► elements ─► closed set ─► members
//!                                                                               └──────── check ◄────────┘
//! object ─► schema ─► scale ─► embedded objects ─► sets and keyed lists ─► rules
//! ```
//!
//! The order of the checks is the order of the errors. Each check that is passed counts: where one of several schemas
//! would do and none does, the errors of the one with the most passed checks are reported.
//!
//! On an update, errors at a value that is as it was are dropped (`same`), so that an object that was valid under an
//! older schema can be changed elsewhere.

use super::format;
use super::keywords::{invalid, outside_of_set, text_error, too_many, type_error, unplaced, wrong_type};
use super::lists;
use super::number::{self, Fault};
use super::path::Path;
use super::rules::Rules;
use super::same::{Before, limits_of};
use super::scale;
use crate::types::schema::limits::{Limits, Schemas};
use crate::types::schema::table::{Empty, Kind, Message, ResourceTable, Slot};
use crate::values::cancellation;
use crate::values::field::{FieldError, FieldErrorKind, go_quote};
use crate::values::json::{Object, Value};

/// What is to be said of a write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// Why it is refused.
    pub errors: Vec<FieldError>,
    /// What its writer is warned of: rules that are broken by values that are as they were.
    pub warnings: Vec<String>,
}

/// Appends what is wrong with the kind, the version and the metadata of an object that is inside of another one, at a path.
pub type InnerCheck = fn(&str, &Object, &mut Vec<FieldError>);

/// What is wrong with an object of a resource; `old` is the stored one on an update, through the `subresource` or, if that
/// is empty, the resource itself. Metadata is not looked at, but for what the schema says of it, and what `inner` says of that
/// of the objects in it. Through `status`, the schema of the status alone counts, and `inner` is not asked.
pub fn object(
    table: &ResourceTable,
    subresource: &str,
    new: &Object,
    old: Option<&Object>,
    inner: InnerCheck,
) -> Judgement {
    let message: &Message = &table.message;
    let before = old.map(|old| Before::Object(message, old));
    let mut errors = match subresource {
        "status" => status(message, new, before),
        _ => whole(message, new, before),
    };
    if let Some(paths) = table.subresources.iter().find_map(|subresource| subresource.scale.as_ref()) {
        errors.extend(scale::errors(paths, new, subresource == "status"));
    }
    // A write of the status does not look at the objects inside of the object.
    if subresource != "status" {
        errors.extend(lists::inner(message, new, inner));
    }
    if old.is_none_or(|old| lists::repeated(message, old).is_empty()) {
        errors.extend(lists::repeated(message, new));
    }
    let mut warnings = Vec::new();
    if let Some(rules) = table.rules.as_deref().and_then(Slot::get::<Rules>) {
        if blocks_rules(&errors) {
            errors.push(FieldError::invalid("", &Value::Null, NOT_CHECKED));
        } else {
            let verdict = rules.judge(message, new, old);
            errors.extend(verdict.errors);
            warnings = verdict.warnings;
        }
    }
    Judgement { errors, warnings }
}

/// What the schema says of an object.
fn whole(message: &Message, new: &Object, old: Option<Before>) -> Vec<FieldError> {
    let mut checked = Outcome::default();
    let limits = message.limits.as_deref();
    if let Some(schemas) = limits.and_then(|limits| limits.schemas.as_deref()) {
        checked.merge(combined(schemas, &Value::Object(new.clone()), old, &Path::Root));
    }
    let shape = Shape { kind: None, members: Members::Struct(message), empty: Empty::Kept };
    members(shape, limits, new, old, &Path::Root, &mut checked);
    checked.errors
}

/// What the schema of the status says of the status of an object. The sentences name values from the status on.
fn status(message: &Message, new: &Object, old: Option<Before>) -> Vec<FieldError> {
    let (Some(field), Some(value)) = (message.field("status"), new.get("status")) else { return Vec::new() };
    let limits = limits_of(&field.kind, field.limits.as_deref());
    let old = old.and_then(|old| old.member("status"));
    let checked = check(Shape::of(&field.kind, field.empty), limits, value, old, &Path::Root);
    checked.errors.into_iter().map(|error| placed("status", ".", error)).collect()
}

/// An error of a value that stands at `place` and was checked as if it stood at the top.
pub(super) fn placed(place: &str, separator: &str, error: FieldError) -> FieldError {
    let separator = if error.path.is_empty() { "" } else { separator };
    // A map at the top of a schema begins its keys with a dot.
    let below = error.path.strip_prefix('.').unwrap_or(&error.path);
    FieldError { path: format!("{place}{separator}{below}"), ..error }
}

/// What is said where rules could not be asked.
const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing \
    errors to complete validation";

/// Whether errors leave the rules of a schema without an object that they can be asked of.
fn blocks_rules(errors: &[FieldError]) -> bool {
    errors.iter().any(|error| {
        matches!(
            error.kind,
            FieldErrorKind::NotSupported
                | FieldErrorKind::Required
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
                | FieldErrorKind::TypeInvalid
        )
    })
}

/// What is wrong with one value of a kind, such as a default, as if it stood at the top of an object. Where `inner` finds
/// something, nothing else is looked for.
pub fn value(
    kind: &Kind,
    empty: Empty,
    limits: Option<&Limits>,
    value: &Value,
    inner: InnerCheck,
) -> Vec<FieldError> {
    if let (Kind::Message(message), Value::Object(object)) = (kind, value)
        && message.custom
    {
        let mut errors = Vec::new();
        if message.embedded {
            inner("", object, &mut errors);
        }
        errors.extend(lists::inner(message, object, inner));
        if !errors.is_empty() {
            return errors;
        }
    }
    check(Shape::of(kind, empty), limits_of(kind, limits), value, None, &Path::Root).errors
}

/// What came of checking a value.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    /// Checks that were passed.
    passed: usize,
}

impl Outcome {
    fn add(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.passed += other.passed;
        if self.errors.is_empty() {
            self.errors = other.errors;
        } else {
            other.errors.into_iter().for_each(|error| self.add(error));
        }
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Counts a validator that ran, beside what it counted itself.
    fn ran(&mut self, error: Option<FieldError>) {
        self.passed += 1;
        if let Some(error) = error {
            self.add(error);
        }
    }
}

/// What a value is to be, apart from its limits.
#[derive(Clone, Copy)]
struct Shape<'t> {
    /// The kind; `None` for the object itself, and for schemas that only restrict.
    kind: Option<&'t Kind>,
    members: Members<'t>,
    empty: Empty,
}

/// What describes the members and elements of a value.
#[derive(Clone, Copy)]
enum Members<'t> {
    /// The kind.
    Kind,
    /// This struct.
    Struct(&'t Message),
    /// The schema that restricts.
    Schemas(Option<&'t Schemas>),
}

impl<'t> Shape<'t> {
    fn of(kind: &'t Kind, empty: Empty) -> Self {
        Shape { kind: Some(kind), members: Members::Kind, empty }
    }

    /// Of a schema that restricts a value which gets its type elsewhere.
    fn of_restriction(limits: &'t Limits) -> Self {
        Shape { kind: None, members: Members::Schemas(limits.schemas.as_deref()), empty: Empty::Kept }
    }

    /// The JSON types that are allowed, separated by commas; empty for any.
    fn types(&self, limits: Option<&'t Limits>) -> &'t str {
        if limits.is_some_and(|limits| limits.any_type) {
            return "";
        }
        match (self.kind, self.members) {
            (Some(Kind::Bool), _) => "boolean",
            (Some(Kind::Int32 | Kind::Int64), _) => "integer",
            (Some(Kind::Double), _) => "number",
            (Some(Kind::IntOrString), _) => "integer,string",
            (Some(Kind::List(_)), _) => "array",
            (Some(Kind::Map(_) | Kind::Message(_)), _) => "object",
            (Some(Kind::Json | Kind::RawExtension), _) => "",
            (Some(_), _) => "string",
            (None, Members::Schemas(Some(schemas))) => &schemas.kind,
            (None, _) => "",
        }
    }

    /// The struct that describes the members, if there is one.
    fn message(&self) -> Option<&'t Message> {
        match (self.kind, self.members) {
            (Some(Kind::Message(message)), _) => Some(message),
            (_, Members::Struct(message)) => Some(message),
            _ => None,
        }
    }
}

/// Checks a value; errors are dropped if it is the old one.
fn check(shape: Shape, limits: Option<&Limits>, value: &Value, old: Option<Before>, path: &Path) -> Outcome {
    cancellation::step();
    let mut checked = check_anew(shape, limits, value, old, path);
    if !checked.is_valid() && old.is_some_and(|old| old.is(value)) {
        checked.errors.clear();
    }
    checked
}

fn check_anew(
    shape: Shape,
    limits: Option<&Limits>,
    value: &Value,
    old: Option<Before>,
    path: &Path,
) -> Outcome {
    let mut checked = Outcome::default();
    let types = shape.types(limits);
    if value.is_null() {
        if !types.is_empty() && shape.empty != Empty::Nullable {
            checked.add(wrong_type(path, types, "null"));
        } else {
            checked.passed += 1;
        }
        if let Some(error) = limits.and_then(|limits| outside_of_set(limits, value, path)) {
            checked.add(error);
        }
        return checked;
    }
    let format = limits.map_or("", |limits| &*limits.format);
    if !types.is_empty() || !format.is_empty() {
        match type_error(types, format, value, path) {
            Some(error) => checked.ran(Some(error)),
            None => checked.passed += 2,
        }
    }
    if let Some(schemas) = limits.and_then(|limits| limits.schemas.as_deref()) {
        checked.merge(combined(schemas, value, old, path));
    }
    checked.passed += 2;
    match value {
        Value::String(text) => {
            checked.ran(limits.and_then(|limits| text_error(limits, text, path)));
            if let Some(has_format) = format::has(format, text) {
                checked.ran((!has_format).then(|| wrong_type(path, format, text)));
            }
        }
        Value::Int(_) | Value::Float(_) => {
            for fault in limits.into_iter().flat_map(|limits| number::faults(limits, value)) {
                checked.add(match fault {
                    Fault::Value(sentence) => invalid(path, value, &sentence),
                    Fault::Format(sentence) => unplaced(format!("{sentence} in {path}")),
                });
            }
            checked.passed += 2;
        }
        _ => {}
    }
    parts(shape, limits, value, old, path, &mut checked);
    checked.passed += 1;
    checked
}

/// Checks elements, the closed set, and members.
fn parts(
    shape: Shape,
    limits: Option<&Limits>,
    value: &Value,
    old: Option<Before>,
    path: &Path,
    checked: &mut Outcome,
) {
    if let Value::Array(items) = value {
        elements(shape, limits, items, old, path, checked);
        checked.passed += 2;
    }
    checked.ran(limits.and_then(|limits| outside_of_set(limits, value, path)));
    if let Value::Object(object) = value {
        members(shape, limits, object, old, path, checked);
        checked.passed += 1;
    }
}

fn elements(
    shape: Shape,
    limits: Option<&Limits>,
    items: &[Value],
    old: Option<Before>,
    path: &Path,
    checked: &mut Outcome,
) {
    let old_of = |item: &Value| old.and_then(|old| old.item(item));
    match (shape.kind, shape.members) {
        (Some(Kind::List(list)), _) => {
            let item = Shape::of(&list.item.kind, list.item.empty);
            let item_limits = limits_of(&list.item.kind, list.item.limits.as_deref());
            for (at, value) in items.iter().enumerate() {
                checked.merge(check(item, item_limits, value, old_of(value), &path.index(at)));
            }
        }
        (_, Members::Schemas(Some(Schemas { items: Some(item), .. }))) => {
            for (at, value) in items.iter().enumerate() {
                let shape = Shape::of_restriction(item);
                checked.merge(check(shape, Some(item), value, old_of(value), &path.index(at)));
            }
        }
        _ => {}
    }
    let (min, max) = limits.map_or((None, None), |limits| limits.items);
    let count = Value::Int(i64::try_from(items.len()).unwrap_or(i64::MAX));
    if let Some(min) = min.filter(|min| (items.len() as u64) < *min) {
        checked.add(invalid(path, &count, &format!("should have at least {min} items")));
    }
    if let Some(max) = max.filter(|max| items.len() as u64 > *max) {
        checked.add(too_many(path, items.len(), max));
    }
}

fn members(
    shape: Shape,
    limits: Option<&Limits>,
    object: &Object,
    old: Option<Before>,
    path: &Path,
    checked: &mut Outcome,
) {
    let (min, max) = limits.map_or((None, None), |limits| limits.members);
    let len = object.len() as u64;
    if let Some(min) = min.filter(|min| len < *min) {
        let count = Value::Int(i64::try_from(len).unwrap_or(i64::MAX));
        return checked.add(invalid(path, &count, &format!("should have at least {min} properties")));
    }
    if let Some(max) = max.filter(|max| len > *max) {
        return checked.add(too_many(path, object.len(), max));
    }
    let old_of = |name: &str| old.and_then(|old| old.member(name));
    if let Some(message) = shape.message() {
        // Members are in the order of fields, preserved ones come last.
        for (name, value) in object.iter() {
            let Some(field) = message.field(name) else { continue };
            let limits = limits_of(&field.kind, field.limits.as_deref());
            let path = path.child(name);
            match &field.kind {
                // What every object has is checked elsewhere, but for what the schema says of it.
                Kind::Message(inner) if !inner.custom => {
                    if let Some(limits) = limits {
                        let shape = Shape::of_restriction(limits);
                        checked.merge(check(shape, Some(limits), value, old_of(name), &path));
                    }
                }
                kind => {
                    checked.merge(check(Shape::of(kind, field.empty), limits, value, old_of(name), &path))
                }
            }
        }
    } else if let Some(Kind::Map(map)) = shape.kind {
        let limits = limits_of(&map.value.kind, map.value.limits.as_deref());
        let shape = Shape::of(&map.value.kind, map.value.empty);
        for (key, value) in object.iter() {
            checked.merge(check(shape, limits, value, old_of(key), &path.key(key)));
        }
    }
    if let Some(schemas) = limits.and_then(|limits| limits.schemas.as_deref()) {
        for (name, part) in &schemas.properties {
            if let Some(value) = object.get(name) {
                let path = path.child(name);
                checked.merge(check(Shape::of_restriction(part), Some(part), value, old_of(name), &path));
            }
        }
    }
    for name in limits.into_iter().flat_map(|limits| &limits.required) {
        if !object.contains(name) {
            checked.add(FieldError::required(path.child(name).to_string(), ""));
        }
    }
}

/// Checks a value against the schemas beside the one that describes it.
fn combined(schemas: &Schemas, value: &Value, old: Option<Before>, path: &Path) -> Outcome {
    let mut checked = Outcome::default();
    let check = |part: &Limits| check_anew(Shape::of_restriction(part), Some(part), value, old, path);
    let failed = |sentence: &str| unplaced(format!("{} {sentence}", go_quote(&path.to_string())));
    if !schemas.any_of.is_empty() {
        let mut best: Option<Outcome> = None;
        for part in &schemas.any_of {
            let outcome = check(part);
            let is_valid = outcome.is_valid();
            if is_valid || best.as_ref().is_none_or(|best| outcome.passed > best.passed) {
                best = Some(outcome);
            }
            if is_valid {
                break;
            }
        }
        if best.as_ref().is_some_and(|best| !best.is_valid()) {
            checked.add(failed("must validate at least one schema (anyOf)"));
        }
        best.into_iter().for_each(|best| checked.merge(best));
    }
    if !schemas.one_of.is_empty() {
        let (mut best, mut first): (Option<Outcome>, Option<Outcome>) = (None, None);
        let mut valid = 0;
        for part in &schemas.one_of {
            let outcome = check(part);
            if outcome.is_valid() {
                valid += 1;
                first.get_or_insert(outcome);
            } else if best.as_ref().is_none_or(|best| outcome.passed > best.passed) {
                best = Some(outcome);
            }
        }
        match (valid, first, best) {
            (1, Some(first), _) => checked.merge(first),
            (0, _, best) => {
                let found = "must validate one and only one schema (oneOf). Found none valid";
                checked.add(failed(found));
                best.into_iter().for_each(|best| checked.merge(best));
            }
            (count, ..) => {
                let found = format!(
                    "must validate one and only one schema (oneOf). Found {count} valid alternatives"
                );
                checked.add(failed(&found));
            }
        }
    }
    if !schemas.all_of.is_empty() {
        let mut valid = 0;
        for part in &schemas.all_of {
            let outcome = check(part);
            valid += usize::from(outcome.is_valid());
            checked.merge(outcome);
        }
        if valid < schemas.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            checked.add(failed(&format!("must validate all the schemas (allOf){none}")));
        }
    }
    if schemas.not.as_ref().is_some_and(|part| check(part).is_valid()) {
        checked.add(failed("must not validate the schema (not)"));
    }
    checked
}

#[cfg(test)]
#[path = "validate_test.rs"]
mod tests;
