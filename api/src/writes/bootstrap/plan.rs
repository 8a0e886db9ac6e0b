//! Decides the step for one bundled object by comparing the existing object with the wanted object.
//!
//! | kind | missing | exists |
//! |---|---|---|
//! | namespace, priority class | create | keep |
//! | role | create | add missing rules, labels, annotations, selectors; additional rules may stay |
//! | binding | create | add missing subjects, labels, annotations; another role: replace |
//! | mandatory flow control | create | restore the spec, except for seats without limits, and the annotation |
//! | suggested flow control | create | restore the spec unless the annotation is off |
//!
//! Roles and bindings whose autoupdate annotation is `"false"` are not changed
//! (docs/api/bootstrap.md#default-roles-and-bindings). The rules for flow control are in
//! docs/api/bootstrap.md#flow-control-objects.

use auth::authz::Rule;
use auth::authz::escalation::{compact, uncovered};

use super::desired::{Desired, Kind, autoupdate_annotation, autoupdate_spec_annotation};
use crate::state::policy::rules::{read_rules, write_rule};
use types::features::boolean;
use values::json::{Object, Value};
use values::naming::Naming;

/// The step that brings one object into its wanted state.
#[derive(Clone, Debug, PartialEq)]
pub enum BootstrapStep {
    /// The object already has its wanted state.
    Keep,
    /// The object must be created.
    Create(Value),
    /// The object must be updated to this value, which contains the resourceVersion that was read.
    Update(Value),
    /// The existing object must be deleted, and then an object with this value must be created.
    Replace(Value),
}

/// Compares the existing object with the wanted object and returns the step.
pub fn plan(existing: Option<&Value>, desired: &Desired, naming: &Naming) -> BootstrapStep {
    let Some(existing) = existing else { return BootstrapStep::Create(desired.object.clone()) };
    let changed = match desired.kind {
        Kind::Namespace | Kind::PriorityClass => None,
        Kind::Role | Kind::Binding if annotation(existing, &autoupdate_annotation(naming)) == "false" => None,
        Kind::Role => role(existing, &desired.object),
        Kind::Binding => {
            if !same(existing.get("roleRef"), desired.object.get("roleRef")) {
                return BootstrapStep::Replace(desired.object.clone());
            }
            binding(existing, &desired.object)
        }
        Kind::MandatoryFlowControl => flow_control(existing, &desired.object, true, naming),
        Kind::SuggestedFlowControl => flow_control(existing, &desired.object, false, naming),
    };
    changed.map_or(BootstrapStep::Keep, BootstrapStep::Update)
}

fn annotation<'o>(object: &'o Value, name: &str) -> &'o str {
    object.str_at(&["metadata", "annotations", name])
}

/// A copy of an object for changes. The copy is made at the first change.
struct Draft<'o> {
    original: &'o Value,
    changed: Option<Object>,
}

impl<'o> Draft<'o> {
    fn new(original: &'o Value) -> Draft<'o> {
        Draft { original, changed: None }
    }

    fn edit(&mut self) -> &mut Object {
        let original = self.original;
        self.changed.get_or_insert_with(|| original.as_object().cloned().unwrap_or_default())
    }

    fn finish(self) -> Option<Value> {
        self.changed.map(Value::Object)
    }

    /// Adds missing labels and annotations. Existing labels and annotations keep their values.
    fn add_metadata(&mut self, desired: &Value) {
        for map in ["labels", "annotations"] {
            let there = self.original.at(&["metadata", map]);
            let members = desired.at(&["metadata", map]).and_then(Value::as_object);
            for (name, value) in members.into_iter().flat_map(Object::iter) {
                if there.and_then(|there| there.get(name)).is_none() {
                    let metadata = self.edit().object_entry("metadata");
                    metadata.object_entry(map).insert(name.to_owned(), value.clone());
                }
            }
        }
    }

    /// Appends `items` to the list in the member `name` of `object`.
    fn append(object: &mut Object, name: &'static str, items: impl IntoIterator<Item = Value>) {
        let slot = object.entry(name);
        if !matches!(slot, Value::Array(_)) {
            *slot = Value::Array(Vec::new());
        }
        if let Value::Array(list) = slot {
            list.extend(items);
        }
    }
}

fn role(existing: &Value, desired: &Value) -> Option<Value> {
    let mut draft = Draft::new(existing);
    draft.add_metadata(desired);
    let aggregated = |role: &Value| role.get("aggregationRule").is_some_and(|rule| !rule.is_null());
    // A controller computes the rules of an aggregated role, so do not compare them.
    if !(aggregated(existing) && aggregated(desired)) {
        let held: Vec<Rule> = read_rules(existing.get("rules"));
        let missing = compact(uncovered(&held, &read_rules(desired.get("rules"))));
        if !missing.is_empty() {
            Draft::append(draft.edit(), "rules", missing.iter().map(write_rule));
        }
    }
    let selectors = |role: &'_ Value| -> Vec<Value> {
        let list = role.at(&["aggregationRule", "clusterRoleSelectors"]);
        list.and_then(Value::as_array).unwrap_or_default().to_vec()
    };
    let there = selectors(existing);
    let mut missing = selectors(desired);
    missing.retain(|selector| !there.iter().any(|other| same(Some(other), Some(selector))));
    if !missing.is_empty() {
        Draft::append(draft.edit().object_entry("aggregationRule"), "clusterRoleSelectors", missing);
    }
    draft.finish()
}

fn binding(existing: &Value, desired: &Value) -> Option<Value> {
    let mut draft = Draft::new(existing);
    draft.add_metadata(desired);
    let subjects = |binding: &'_ Value| -> Vec<Value> {
        binding.get("subjects").and_then(Value::as_array).unwrap_or_default().to_vec()
    };
    let there = subjects(existing);
    let mut missing = subjects(desired);
    missing.retain(|subject| !there.iter().any(|other| same(Some(other), Some(subject))));
    if !missing.is_empty() {
        Draft::append(draft.edit(), "subjects", missing);
    }
    draft.finish()
}

fn flow_control(existing: &Value, desired: &Value, mandatory: bool, naming: &Naming) -> Option<Value> {
    let name = autoupdate_spec_annotation(naming);
    let annotated = boolean(annotation(existing, &name));
    // If the annotation is missing or invalid, the spec is restored only if no client has changed it.
    let is_unchanged = || existing.at(&["metadata", "generation"]).and_then(Value::as_i64) == Some(1);
    let follows = mandatory || annotated.unwrap_or_else(is_unchanged);
    let mut draft = Draft::new(existing);
    if annotated != Some(follows) {
        let annotations = draft.edit().object_entry("metadata").object_entry("annotations");
        annotations.insert(name, follows.to_string().into());
    }
    if follows && !follows_already(existing.get("spec"), desired.get("spec")) {
        draft.edit().insert("spec", desired.get("spec").cloned().unwrap_or_default());
    }
    draft.finish()
}

/// Returns whether the existing spec equals the desired spec. The member `exempt` may differ, because
/// operators may set the seats of a level without limits.
fn follows_already(existing: Option<&Value>, desired: Option<&Value>) -> bool {
    const SEATS: &str = "exempt";
    let seats = existing.and_then(|spec| spec.get(SEATS)).filter(|seats| !seats.is_null());
    match (desired, seats) {
        (Some(Value::Object(spec)), Some(seats)) if spec.contains(SEATS) => {
            let mut desired = spec.clone();
            desired.insert(SEATS, seats.clone());
            same(existing, Some(&desired.into()))
        }
        _ => same(existing, desired),
    }
}

/// Returns whether two values are equivalent: the order of members does not matter, and `null` equals a
/// missing member.
pub(super) fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a.filter(|a| !a.is_null()), b.filter(|b| !b.is_null())) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.iter().all(|(name, value)| same(Some(value), b.get(name)))
                && b.iter().all(|(name, value)| a.contains(name) || value.is_null())
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(Some(a), Some(b)))
        }
        (a, b) => a == b,
    }
}
