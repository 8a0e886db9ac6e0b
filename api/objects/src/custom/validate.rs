//! Validation of custom objects against their schema.
//!
//! ```text
//! value ─ check ─► type ─► allOf, anyOf, oneOf, not ─► text, format, number ─► elements ─► enum ─► members
//!                                                                               └──────── check ◄────────┘
//! object ─► schema ─► scale ─► embedded objects ─► sets and keyed lists ─► rules
//! ```
//!
//! The errors have the order of the checks. Passed checks are counted for alternative schemas: if none of the
//! schemas matches, the errors of the schema with the most passed checks are reported.
//!
//! On an update, errors at unchanged values are dropped (`same`). An object that was valid under an older
//! schema can then still be changed at other values.
//!
//! A large schema and a large object together can need more checks than a request may take, because a schema
//! in `allOf` is checked for each element of a list. `Checks` counts the work. When the count reaches `FUEL`,
//! validation ends with a separate error. The number and the size of errors are limited by [`ERRORS_MAX`] and
//! [`ERROR_BYTES_MAX`] when errors are created.

use std::cell::{Cell, OnceCell};

use super::format;
use super::inner_check::InnerCheck;
use super::keywords::{invalid, outside_of_set, text_error, too_many, type_error, unplaced, wrong_type};
use super::lists;
use super::lookup::MemberLookup;
use super::number::{self, NumberFault};
use super::path::ValuePath;
use super::rules::Rules;
use super::scale;
use super::unchanged::{Unchanged, limits_of};
use types::schema::limits::{Limits, Schemas};
use types::schema::table::{Empty, Kind, Message, ResourceTable, Slot};
use values::cancellation;
use values::field::{ERROR_BYTES_MAX, ERRORS_MAX, FieldError, FieldErrorKind, go_quote};
use values::json::{Object, Value};

/// Maximum units of work for one object. A unit is about the check of a scalar, and a release build checks
/// ten million scalars per second. The largest request has one and a half million values.
const FUEL: u64 = 10_000_000;

/// Number of bytes of error text that cost one unit.
const BYTES_PER_UNIT: usize = 64;

/// Number of comparisons with `enum` values or with names that cost one unit.
const COMPARISONS_PER_UNIT: usize = 8;

/// Result of the validation of a write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValidationResult {
    /// Reasons why the write is refused.
    pub errors: Vec<FieldError>,
    /// Warnings for the writer about rules that unchanged values violate.
    pub warnings: Vec<String>,
}

/// Validates an object of a resource. On an update, `old` is the stored object. `subresource` is the
/// subresource of the update; empty for the resource itself. The metadata of the object is checked only
/// against the constraints in the schema; `inner` checks the metadata of embedded objects. A write of
/// `status` is checked only against the schema of the status, without `inner`.
pub fn object(
    table: &ResourceTable,
    subresource: &str,
    new: &Object,
    old: Option<&Object>,
    inner: InnerCheck,
) -> ValidationResult {
    let message: &Message = &table.message;
    let mut errors = match subresource {
        "status" => status(message, new, old),
        _ => whole(message, new, old),
    };
    if let Some(paths) = table.subresources.iter().find_map(|subresource| subresource.scale.as_ref()) {
        errors.extend(scale::errors(paths, new, subresource == "status"));
    }
    // A write of the status does not check embedded objects.
    if subresource != "status" {
        lists::inner(message, new, inner, &mut errors);
    }
    if old.is_none_or(|old| !lists::has_repeated(message, old)) {
        lists::repeated(message, new, &mut errors);
    }
    let mut warnings = Vec::new();
    if let Some(rules) = table.rules.as_deref().and_then(Slot::get::<Rules>) {
        if blocks_rules(&errors) {
            errors.push(FieldError::invalid("", &Value::Null, NOT_CHECKED));
        } else {
            let verdict = rules.evaluate(message, new, old);
            errors.extend(verdict.errors);
            warnings = verdict.warnings;
        }
    }
    ValidationResult { errors, warnings }
}

/// Returns the errors of the schema for a whole object.
fn whole(message: &Message, new: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let limits = message.limits.as_deref();
    let schemas = limits.and_then(|limits| limits.schemas.as_deref());
    // The schemas in `allOf`, `anyOf`, `oneOf` and `not` are checked against a value, and not against an
    // object.
    let value = schemas.map(|_| Value::Object(new.clone()));
    let new = value.as_ref().and_then(Value::as_object).unwrap_or(new);
    let checks = Checks::new(message, new, old);
    let mut checked = Outcome::default();
    if let (Some(schemas), Some(value)) = (schemas, &value) {
        checked.merge(checks.combined(schemas, value, &ValuePath::Root));
    }
    let shape = Shape { kind: None, members: Members::Struct(message), empty: Empty::Kept };
    checks.members(shape, limits, new, &ValuePath::Root, &mut checked);
    checks.errors(checked)
}

/// Returns the errors of the schema of the status. The messages of these errors contain paths relative to the
/// status.
fn status(message: &Message, new: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let (Some(field), Some(value)) = (message.field("status"), new.get("status")) else { return Vec::new() };
    let limits = limits_of(&field.kind, field.limits.as_deref());
    let checks = Checks::new(message, new, old);
    let checked = checks.check(Shape::for_kind(&field.kind, field.empty), limits, value, &ValuePath::Root);
    checks.errors(checked).into_iter().map(|error| placed("status", ".", error)).collect()
}

/// Prepends `place` to the path of an error. The path in the error begins at the value at `place`.
pub(super) fn placed(place: &str, separator: &str, error: FieldError) -> FieldError {
    let separator = if error.path.is_empty() { "" } else { separator };
    // The path of an error in a map begins with a dot.
    let below = error.path.strip_prefix('.').unwrap_or(&error.path);
    FieldError { path: format!("{place}{separator}{below}"), ..error }
}

/// Text of the error for an object whose validation was stopped because of too many checks.
const EXHAUSTED: &str = "the object was not checked completely: the schemas that its type combines and the elements of the \
    object are together too many; use fewer of one or the other";

/// Error text if the rules could not be evaluated.
const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing \
    errors to complete validation";

/// Returns whether the errors prevent the evaluation of rules, because there is no valid object.
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

/// Returns the errors of one value of a kind, such as a default. The paths in the errors begin at the value. If `inner`
/// finds errors, further checks are skipped.
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
        lists::inner(message, object, inner, &mut errors);
        if !errors.is_empty() {
            return errors;
        }
    }
    let checks = Checks::of_value();
    let checked =
        checks.check(Shape::for_kind(kind, empty), limits_of(kind, limits), value, &ValuePath::Root);
    checks.errors(checked)
}

/// Result of checking a value.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    /// Total size of the errors in bytes.
    bytes: usize,
    /// Number of checks that passed.
    passed: usize,
}

impl Outcome {
    /// Adds an error. If no more errors are collected, the error is not created.
    fn add(&mut self, error: impl FnOnce() -> FieldError) {
        if !self.is_full() {
            self.push(error());
        }
    }

    fn push(&mut self, error: FieldError) {
        if !self.is_full() && !self.errors.contains(&error) {
            self.bytes += error.bytes();
            self.errors.push(error);
        }
    }

    /// Returns whether a limit of errors is reached, so that no more errors are collected.
    fn is_full(&self) -> bool {
        self.errors.len() >= ERRORS_MAX || self.bytes >= ERROR_BYTES_MAX
    }

    fn merge(&mut self, other: Outcome) {
        self.passed += other.passed;
        if self.errors.is_empty() {
            (self.errors, self.bytes) = (other.errors, other.bytes);
        } else {
            other.errors.into_iter().for_each(|error| self.push(error));
        }
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Records the result of one completed validator, and counts the validator.
    fn ran(&mut self, error: Option<FieldError>) {
        self.passed += 1;
        if let Some(error) = error {
            self.push(error);
        }
    }
}

/// Expected type of a value, without the limits.
#[derive(Clone, Copy)]
struct Shape<'t> {
    /// Kind of the value; `None` for the object itself, and for schemas that only add constraints.
    kind: Option<&'t Kind>,
    members: Members<'t>,
    empty: Empty,
}

/// Source of the description of a value's members and elements.
#[derive(Clone, Copy)]
enum Members<'t> {
    /// The kind of the value.
    Kind,
    /// This struct describes the members.
    Struct(&'t Message),
    /// A schema in `allOf`, `anyOf`, `oneOf` or `not`.
    Schemas(Option<&'t Schemas>),
}

impl<'t> Shape<'t> {
    fn for_kind(kind: &'t Kind, empty: Empty) -> Self {
        Shape { kind: Some(kind), members: Members::Kind, empty }
    }

    /// Returns the shape for a schema that only adds constraints to a value whose type another schema
    /// declares.
    fn of_restriction(limits: &'t Limits) -> Self {
        Shape { kind: None, members: Members::Schemas(limits.schemas.as_deref()), empty: Empty::Kept }
    }

    /// Returns the permitted JSON types, separated by commas; empty if any type is permitted.
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

    /// Returns the struct that describes the members, if there is one.
    fn message(&self) -> Option<&'t Message> {
        match (self.kind, self.members) {
            (Some(Kind::Message(message)), _) => Some(message),
            (_, Members::Struct(message)) => Some(message),
            _ => None,
        }
    }
}

/// The type of an object, the stored object and the new object.
type Update<'c> = (&'c Message, &'c Object, &'c Object);

/// State of the checks of one object.
struct Checks<'c> {
    update: Option<Update<'c>>,
    /// Unchanged values, computed when the first error is found.
    unchanged: OnceCell<Unchanged>,
    /// Remaining units of work.
    fuel: Cell<u64>,
}

impl<'c> Checks<'c> {
    fn new(message: &'c Message, new: &'c Object, old: Option<&'c Object>) -> Checks<'c> {
        Checks { update: old.map(|old| (message, old, new)), ..Checks::of_value() }
    }

    fn of_value() -> Checks<'c> {
        Checks { update: None, unchanged: OnceCell::new(), fuel: Cell::new(FUEL) }
    }

    fn spend(&self, units: usize) {
        self.fuel.set(self.fuel.get().saturating_sub(units as u64));
    }

    /// Returns whether the units of work are used up, so that the checks must end.
    fn is_exhausted(&self) -> bool {
        self.fuel.get() == 0
    }

    /// Returns the errors to report. If the units of work are used up, earlier errors are dropped, because a
    /// check that ended early has no valid result.
    fn errors(&self, outcome: Outcome) -> Vec<FieldError> {
        if self.is_exhausted() {
            return vec![FieldError::invalid("", &Value::Null, EXHAUSTED)];
        }
        outcome.errors
    }

    /// Returns whether a value equals the stored value.
    fn is_unchanged(&self, value: &Value) -> bool {
        let Some((message, old, new)) = self.update else { return false };
        self.unchanged.get_or_init(|| Unchanged::of_object(message, old, new)).has(value)
    }

    /// Checks a value, and drops the errors of the value if the value is unchanged.
    fn check(&self, shape: Shape, limits: Option<&Limits>, value: &Value, path: &ValuePath) -> Outcome {
        let mut checked = self.check_anew(shape, limits, value, path);
        if !checked.is_valid() && self.is_unchanged(value) {
            checked.errors.clear();
            checked.bytes = 0;
        }
        checked
    }

    fn check_anew(&self, shape: Shape, limits: Option<&Limits>, value: &Value, path: &ValuePath) -> Outcome {
        cancellation::step();
        let mut checked = Outcome::default();
        self.spend(1);
        if self.is_exhausted() {
            return checked;
        }
        let types = shape.types(limits);
        if value.is_null() {
            if !types.is_empty() && shape.empty != Empty::Nullable {
                checked.add(|| wrong_type(path, types, "null"));
            } else {
                checked.passed += 1;
            }
            if let Some(error) = limits.and_then(|limits| self.outside_of_set(limits, value, path)) {
                checked.push(error);
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
            checked.merge(self.combined(schemas, value, path));
        }
        checked.passed += 2;
        match value {
            Value::String(text) => {
                self.spend(text.len() / BYTES_PER_UNIT);
                checked.ran(limits.and_then(|limits| text_error(limits, text, path)));
                if let Some(has_format) = format::has(format, text) {
                    checked.ran((!has_format).then(|| wrong_type(path, format, text)));
                }
            }
            Value::Int(_) | Value::Float(_) => {
                let is_integer = matches!(shape.kind, Some(Kind::Int32 | Kind::Int64));
                let default = || number::fault_of_format(number::DEFAULT, value);
                let own = if is_integer && limits.is_none() { default() } else { None };
                let faults = limits.into_iter().flat_map(|limits| number::faults(limits, is_integer, value));
                for fault in own.into_iter().chain(faults) {
                    checked.push(match fault {
                        NumberFault::Value(sentence) => invalid(path, value, &sentence),
                        NumberFault::Format(sentence) => unplaced(format!("{sentence} in {path}")),
                    });
                }
                checked.passed += 2;
            }
            _ => {}
        }
        self.parts(shape, limits, value, path, &mut checked);
        checked.passed += 1;
        self.spend(checked.bytes / BYTES_PER_UNIT);
        checked
    }

    fn outside_of_set(&self, limits: &Limits, value: &Value, path: &ValuePath) -> Option<FieldError> {
        self.spend(limits.enumeration.len() / COMPARISONS_PER_UNIT);
        outside_of_set(limits, value, path)
    }

    /// Checks the elements, the `enum` and the members of a value.
    fn parts(
        &self,
        shape: Shape,
        limits: Option<&Limits>,
        value: &Value,
        path: &ValuePath,
        checked: &mut Outcome,
    ) {
        if let Value::Array(items) = value {
            self.elements(shape, limits, items, path, checked);
            checked.passed += 2;
        }
        if checked.is_full() {
            return;
        }
        checked.ran(limits.and_then(|limits| self.outside_of_set(limits, value, path)));
        if let Value::Object(object) = value {
            self.members(shape, limits, object, path, checked);
            checked.passed += 1;
        }
    }

    fn elements(
        &self,
        shape: Shape,
        limits: Option<&Limits>,
        items: &[Value],
        path: &ValuePath,
        checked: &mut Outcome,
    ) {
        let item = match (shape.kind, shape.members) {
            (Some(Kind::List(list)), _) => {
                let item = Shape::for_kind(&list.item.kind, list.item.empty);
                Some((item, limits_of(&list.item.kind, list.item.limits.as_deref())))
            }
            (_, Members::Schemas(Some(Schemas { items: Some(item), .. }))) => {
                Some((Shape::of_restriction(item), Some(item)))
            }
            _ => None,
        };
        if let Some((shape, limits)) = item {
            for (at, value) in items.iter().enumerate() {
                if checked.is_full() || self.is_exhausted() {
                    return;
                }
                checked.merge(self.check(shape, limits, value, &path.index(at)));
            }
        }
        let (min, max) = limits.map_or((None, None), |limits| limits.items);
        let count = Value::Int(i64::try_from(items.len()).unwrap_or(i64::MAX));
        if let Some(min) = min.filter(|min| (items.len() as u64) < *min) {
            checked.add(|| invalid(path, &count, &format!("should have at least {min} items")));
        }
        if let Some(max) = max.filter(|max| items.len() as u64 > *max) {
            checked.add(|| too_many(path, items.len(), max));
        }
    }

    fn members(
        &self,
        shape: Shape,
        limits: Option<&Limits>,
        object: &Object,
        path: &ValuePath,
        checked: &mut Outcome,
    ) {
        let (min, max) = limits.map_or((None, None), |limits| limits.members);
        let len = object.len() as u64;
        if let Some(min) = min.filter(|min| len < *min) {
            let count = Value::Int(i64::try_from(len).unwrap_or(i64::MAX));
            return checked.add(|| invalid(path, &count, &format!("should have at least {min} properties")));
        }
        if let Some(max) = max.filter(|max| len > *max) {
            return checked.add(|| too_many(path, object.len(), max));
        }
        if let Some(message) = shape.message() {
            // Members are in the order of fields; preserved unknown members come last.
            for (name, value) in object.iter() {
                if checked.is_full() || self.is_exhausted() {
                    return;
                }
                let Some(field) = message.field(name) else { continue };
                let limits = limits_of(&field.kind, field.limits.as_deref());
                let path = path.child(name);
                let shape = match (&field.kind, limits) {
                    // Other code validates the metadata that every object has. Only the constraints of the
                    // schema are checked here.
                    (Kind::Message(inner), None) if !inner.custom => continue,
                    (Kind::Message(inner), Some(limits)) if !inner.custom => Shape::of_restriction(limits),
                    (kind, _) => Shape::for_kind(kind, field.empty),
                };
                checked.merge(self.check(shape, limits, value, &path));
            }
        } else if let Some(Kind::Map(map)) = shape.kind {
            let limits = limits_of(&map.value.kind, map.value.limits.as_deref());
            let shape = Shape::for_kind(&map.value.kind, map.value.empty);
            for (key, value) in object.iter() {
                if checked.is_full() || self.is_exhausted() {
                    return;
                }
                checked.merge(self.check(shape, limits, value, &path.key(key)));
            }
        }
        let Some(limits) = limits else { return };
        let described = limits.schemas.as_deref().map_or(&[][..], |schemas| &schemas.properties);
        let lookups = described.len() + limits.required.len();
        self.spend(lookups / COMPARISONS_PER_UNIT);
        let lookup = MemberLookup::new(object, lookups);
        for (name, part) in described {
            if checked.is_full() || self.is_exhausted() {
                return;
            }
            if let Some(value) = lookup.get(name) {
                let shape = Shape::of_restriction(part);
                checked.merge(self.check(shape, Some(part), value, &path.child(name)));
            }
        }
        for name in &limits.required {
            if checked.is_full() {
                return;
            }
            if lookup.get(name).is_none() {
                checked.push(FieldError::required(path.child(name).to_string(), ""));
            }
        }
    }

    /// Checks a value against the schemas in `allOf`, `anyOf`, `oneOf` and `not`.
    fn combined(&self, schemas: &Schemas, value: &Value, path: &ValuePath) -> Outcome {
        let mut checked = Outcome::default();
        let check = |part: &Limits| self.check_anew(Shape::of_restriction(part), Some(part), value, path);
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
                checked.push(failed("must validate at least one schema (anyOf)"));
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
                    checked.push(failed(found));
                    best.into_iter().for_each(|best| checked.merge(best));
                }
                (count, ..) => {
                    let found = format!(
                        "must validate one and only one schema (oneOf). Found {count} valid alternatives"
                    );
                    checked.push(failed(&found));
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
                checked.push(failed(&format!("must validate all the schemas (allOf){none}")));
            }
        }
        if schemas.not.as_ref().is_some_and(|part| check(part).is_valid()) {
            checked.push(failed("must not validate the schema (not)"));
        }
        checked
    }
}

#[cfg(test)]
#[path = "validate_test.rs"]
mod tests;
