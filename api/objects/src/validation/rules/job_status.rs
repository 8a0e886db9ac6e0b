//! Rules for the status of jobs: counters must be consistent, and a finished job stays finished.
//!
//! A rule is only checked if the update changes one of the members that the rule reads. A change of the spec
//! may have made other members invalid, and the controller must be able to correct them one at a time.

use super::super::Validator;
use super::super::path::FieldPath;
use super::StructView;
use super::common::{SeenStrings, invalid_without_value};
use super::job::{count_indexes, first_common_index};
use super::status::is_unchanged;

/// Conditions of a job whose status is true.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
struct State {
    complete: bool,
    failed: bool,
    failing: bool,
    succeeding: bool,
}

impl State {
    fn from_status(status: StructView) -> Self {
        let is_true = |kind: &str| {
            status
                .structs("conditions")
                .any(|condition| condition.text("type") == kind && condition.text("status") == "True")
        };
        State {
            complete: is_true("Complete"),
            failed: is_true("Failed"),
            failing: is_true("FailureTarget"),
            succeeding: is_true("SuccessCriteriaMet"),
        }
    }

    fn is_finished(self) -> bool {
        self.complete || self.failed
    }
}

pub(super) fn job(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let spec = validator.object.child("spec");
    let old = validator.old.map_or(StructView::from(None), |old| old.child("status"));
    let (now, before) = (State::from_status(status), State::from_status(old));
    uncounted(validator, path, status);
    states(validator, path, now, before, spec);
    times(validator, path, status, old, now, before, spec);
    ends(validator, path, status, now, before);
    indexes(validator, path, status, spec);
    progress(validator, path, status, old, spec);
}

/// Checks that each uncounted pod is listed once.
fn uncounted(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let place = path.child("uncountedTerminatedPods");
    let lists = status.child("uncountedTerminatedPods");
    let mut seen = SeenStrings::new();
    for list in ["succeeded", "failed"] {
        let place = place.child(list);
        for (at, uid) in lists.texts(list).enumerate() {
            if validator.has_enough() {
                return;
            }
            if uid.is_empty() {
                validator.invalid(place.index(at), uid, "must not be empty");
            } else if !seen.insert(uid) {
                validator.duplicate(place.index(at), uid);
            }
        }
    }
}

/// Checks conditions that exclude each other or require each other.
fn states(validator: &mut Validator, path: &FieldPath, now: State, before: State, spec: StructView) {
    let place = path.child("conditions");
    let completes = now.complete != before.complete;
    let fails = now.failed != before.failed;
    let is_failing = now.failing != before.failing;
    let is_succeeding = now.succeeding != before.succeeding;
    let has_policy = spec.has("successPolicy");
    for (is_wrong, detail) in [
        (
            (completes || fails) && now.complete && now.failed,
            "cannot set Complete=True and Failed=true conditions",
        ),
        (
            (completes || is_failing) && now.complete && now.failing,
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            (fails || is_failing) && now.failed && !now.failing,
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            (completes || is_succeeding) && now.complete && !now.succeeding,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (now.succeeding && now.failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (
            now.succeeding && now.failing,
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (
            has_policy && now.complete && !now.succeeding,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
        (before.failed && !now.failed, "cannot disable the terminal Failed=True condition"),
        (before.complete && !now.complete, "cannot disable the terminal Complete=True condition"),
        (before.failing && !now.failing, "cannot disable the terminal FailureTarget=True condition"),
        (before.succeeding && !now.succeeding, "cannot disable the SuccessCriteriaMet=True condition"),
        (
            before.complete && !before.succeeding && now.succeeding,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        ),
    ] {
        if is_wrong {
            validator.errors.push(invalid_without_value(&place, detail));
        }
    }
}

/// Checks the start and completion times. All times have the same format, so the texts have the same order as
/// the times.
fn times(
    validator: &mut Validator,
    path: &FieldPath,
    status: StructView,
    old: StructView,
    now: State,
    before: State,
    spec: StructView,
) {
    let (start, end) = (status.text("startTime"), status.text("completionTime"));
    let start_changes = !is_unchanged(validator, status, "startTime");
    let end_changes = !is_unchanged(validator, status, "completionTime");
    let completes = now.complete != before.complete;
    let place = path.child("completionTime");
    if (completes || end_changes) && !end.is_empty() && !now.complete {
        let detail = "cannot set completionTime when there is no Complete=True condition";
        validator.invalid(place, end, detail);
    }
    if (completes || end_changes) && end.is_empty() && now.complete {
        validator.required(place, "completionTime is required for Complete jobs");
    }
    if (start_changes || end_changes) && !start.is_empty() && !end.is_empty() && end < start {
        validator.invalid(place, end, "completionTime cannot be set before startTime");
    }
    if end_changes && !end.is_empty() && !old.text("completionTime").is_empty() {
        validator.invalid(place, end, "completionTime cannot be mutated");
    }
    if start_changes && !old.text("startTime").is_empty() && !spec.is_true("suspend") {
        let value = status.get("startTime").cloned().unwrap_or_default();
        let detail = "field is immutable for unsuspended job once set";
        validator.invalid(path.child("startTime"), value, detail);
    }
}

/// Checks that a finished job has a start time, and has no active, terminating or uncounted pods.
fn ends(validator: &mut Validator, path: &FieldPath, status: StructView, now: State, before: State) {
    let finishes = now.is_finished() != before.is_finished();
    let concerns = |validator: &Validator, name: &str| {
        now.is_finished() && (finishes || !is_unchanged(validator, status, name))
    };
    for name in ["active", "terminating"] {
        if let Some(count) = status.int(name).filter(|count| *count > 0)
            && concerns(validator, name)
        {
            validator.invalid(path.child(name), count, format!("{name}>0 is invalid for finished job"));
        }
    }
    if concerns(validator, "startTime") && !status.has("startTime") {
        validator.required(path.child("startTime"), "startTime is required for finished job");
    }
    let pods = status.child("uncountedTerminatedPods");
    let is_open = ["succeeded", "failed"].iter().any(|list| !pods.items(list).is_empty());
    if is_open && concerns(validator, "uncountedTerminatedPods") {
        let detail = "uncountedTerminatedPods needs to be empty for finished job";
        validator.invalid(path.child("uncountedTerminatedPods"), pods.to_value(), detail);
    }
}

/// Checks completed and failed indexes: the syntax must be valid, the job must be indexed, and an index must
/// not be in both lists.
fn indexes(validator: &mut Validator, path: &FieldPath, status: StructView, spec: StructView) {
    let completed_changes = !is_unchanged(validator, status, "completedIndexes");
    let failed_changes = !is_unchanged(validator, status, "failedIndexes");
    let completed = status.text("completedIndexes");
    let failed = status.get("failedIndexes").and_then(values::json::Value::as_str);
    let completions = spec.int("completions");
    let per_index = spec.has("backoffLimitPerIndex");
    let place = path.child("completedIndexes");
    if completed_changes {
        if let Some(Err(fault)) = completions.map(|completions| count_indexes(completed, completions)) {
            validator.invalid(place, completed, format!("error parsing completedIndexes: {fault}"));
        }
        if !completed.is_empty() && spec.text("completionMode") != "Indexed" {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            validator.invalid(place, completed, detail);
        }
    }
    let Some(failed) = failed else { return };
    let place = path.child("failedIndexes");
    if failed_changes {
        if per_index
            && let Some(Err(fault)) = completions.map(|completions| count_indexes(failed, completions))
        {
            validator.invalid(place, failed, format!("error parsing failedIndexes: {fault}"));
        }
        if !per_index {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            validator.invalid(place, failed, detail);
        }
    }
    if (failed_changes || completed_changes)
        && let Some(completions) = completions
        && let Some(index) = first_common_index(completed, failed, completions)
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        validator.invalid(place, failed, detail);
    }
}

/// Checks that counters do not decrease, and that there are at least as many active pods as ready pods.
fn progress(
    validator: &mut Validator,
    path: &FieldPath,
    status: StructView,
    old: StructView,
    spec: StructView,
) {
    let active = status.int("active").unwrap_or(0);
    let ready_changes =
        !is_unchanged(validator, status, "ready") || !is_unchanged(validator, status, "active");
    if let Some(ready) = status.int("ready").filter(|ready| ready_changes && *ready > active) {
        validator.invalid(path.child("ready"), ready, "cannot set more ready pods than active");
    }
    // The completions of an indexed job may decrease if they equal the parallelism.
    let can_shrink =
        spec.text("completionMode") == "Indexed" && spec.int("completions") == spec.int("parallelism");
    for (name, counts) in [("failed", true), ("succeeded", !can_shrink)] {
        let count = status.int(name).unwrap_or(0);
        if counts && count < old.int(name).unwrap_or(0) {
            validator.invalid(path.child(name), count, format!("cannot decrease the {name} counter"));
        }
    }
}
