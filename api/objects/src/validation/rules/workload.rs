//! Rules for deployments, replica sets, stateful sets and daemon sets: the selector must match the template,
//! and the update strategy must permit progress (docs/api/validation.md#workloads).

use super::super::is_same;
use super::super::path::FieldPath;
use super::super::{Validator, scalar_formats};
use super::common::by_name;
use super::{StructView, selector};
use types::schema::ROLLBACK_REVISION;
use types::schema::table::ValueFormat;
use values::json::Value;

const MISMATCH: &str = "`selector` does not match template `labels`";
const PERCENT: &str = "must not be greater than 100%";

/// Names in the error messages of a workload.
struct WorkloadNames {
    kind: &'static str,
    /// The kind that contains the template of the pods.
    template_kind: &'static str,
}

/// Checks the selector and the template of a workload. Error messages contain `names`.
fn selected_template(validator: &mut Validator, path: &FieldPath, spec: StructView, names: &WorkloadNames) {
    let template = spec.child("template");
    let template_path = path.child("template");
    let label_selector = spec.child("selector");
    if label_selector.is_there() && !selector::is_readable(label_selector) {
        if !unreadable(validator, path, label_selector, names.kind) {
            return;
        }
    } else if label_selector.is_there() {
        if selector::is_empty(label_selector) {
            let detail = format!("empty selector is invalid for {}", names.kind);
            validator.invalid(path.child("selector"), label_selector.to_value(), detail);
        } else {
            matching(validator, &template_path, label_selector, template);
        }
    } else {
        refuse_labels(validator, &template_path, template.child("metadata").child("labels"));
    }
    runs_forever(validator, &template_path, template, names.template_kind);
}

/// Handles an invalid selector. Except for daemon sets, the selector is refused as a whole, and errors of the
/// template are removed. Returns whether the rest of the template should be checked.
fn unreadable(validator: &mut Validator, path: &FieldPath, label_selector: StructView, kind: &str) -> bool {
    let (detail, goes_on) = match kind {
        "daemonset" => return true,
        "statefulset" => ("", true),
        _ => ("invalid label selector", false),
    };
    validator.forget(&path.child("template"));
    validator.invalid(path.child("selector"), label_selector.to_value(), detail);
    goes_on
}

/// Checks that the selector matches the labels of the template.
pub(super) fn matching(
    validator: &mut Validator,
    path: &FieldPath,
    label_selector: StructView,
    template: StructView,
) {
    let labels = template.child("metadata").child("labels");
    if !selector::selects(label_selector, labels) {
        refuse_labels(validator, path, labels);
    }
}

/// Refuses the labels of a template that the selector does not match. A missing selector matches no labels.
pub(super) fn refuse_labels(validator: &mut Validator, path: &FieldPath, labels: StructView) {
    let shown = labels.object().cloned().map_or(Value::Null, Value::Object);
    let metadata = path.child("metadata");
    validator.invalid(metadata.child("labels"), shown, MISMATCH);
}

fn runs_forever(validator: &mut Validator, path: &FieldPath, template: StructView, kind: &str) {
    let spec = template.child("spec");
    let place = path.child("spec");
    let policy = spec.text("restartPolicy");
    if policy != "Always" {
        validator.not_supported(place.child("restartPolicy"), policy, &["Always"]);
    }
    if spec.has("activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        validator.forbidden(place.child("activeDeadlineSeconds"), detail);
    }
}

/// Checks a replica set. As in the reference server, the messages are the same as for deployments.
pub(super) fn replica_set(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    selected_template(
        validator,
        path,
        spec,
        &WorkloadNames { kind: "deployment", template_kind: "ReplicaSet" },
    );
}

pub(super) fn deployment(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    selected_template(
        validator,
        path,
        spec,
        &WorkloadNames { kind: "deployment", template_kind: "ReplicaSet" },
    );
    let ready = spec.int("minReadySeconds").unwrap_or(0);
    if let Some(deadline) = spec.int("progressDeadlineSeconds")
        && deadline <= ready
    {
        let detail = "must be greater than minReadySeconds";
        validator.invalid(path.child("progressDeadlineSeconds"), deadline, detail);
    }
}

/// Checks the revision of a rollback, which was a member of deployments in former versions.
pub(super) fn rollback(validator: &mut Validator, path: &FieldPath, deployment: StructView) {
    let revision = deployment.child("metadata").child("annotations").text(ROLLBACK_REVISION);
    if let Ok(revision) = revision.parse::<i64>()
        && revision < 0
    {
        let (spec, detail) = (path.child("spec"), scalar_formats::NOT_NEGATIVE);
        validator.invalid(spec.child("rollback").child("version"), Value::Int(revision), detail);
    }
}

/// Checks the update strategy of a deployment.
pub(super) fn deployment_strategy(validator: &mut Validator, path: &FieldPath, strategy: StructView) {
    let rolling = strategy.child("rollingUpdate");
    let place = path.child("rollingUpdate");
    match strategy.text("type") {
        "Recreate" if rolling.is_there() => {
            validator.forbidden(place, "may not be specified when strategy `type` is 'Recreate'");
        }
        "RollingUpdate" if !rolling.is_there() => {
            validator.required(place, "this should be defaulted and never be nil");
        }
        "RollingUpdate" => {
            let (away, more) = rolling_update(validator, &place, rolling);
            if is_nothing(away) && is_nothing(more) {
                let value = away.cloned().unwrap_or(Value::Int(0));
                validator.invalid(place.child("maxUnavailable"), value, "may not be 0 when `maxSurge` is 0");
            }
            not_over_all(validator, &place.child("maxUnavailable"), away);
        }
        "Recreate" => {}
        _ => validator.not_supported(path, strategy.to_value(), &["Recreate", "RollingUpdate"]),
    }
}

/// Checks the maximum numbers of unavailable and surplus pods, and returns both. Each number is a count or a
/// percentage. The check only applies to rolling updates.
fn rolling_update<'v>(
    validator: &mut Validator,
    place: &FieldPath,
    rolling: StructView<'v>,
) -> (Option<&'v Value>, Option<&'v Value>) {
    let mut amount = |name| {
        let amount = rolling.get(name);
        if let Some(amount) = amount {
            scalar_formats::value(
                ValueFormat::CountOrPercent,
                &place.child(name),
                amount,
                &mut validator.errors,
            );
        }
        amount
    };
    (amount("maxUnavailable"), amount("maxSurge"))
}

/// Refuses a percentage above 100.
pub(super) fn not_over_all(validator: &mut Validator, path: &FieldPath, amount: Option<&Value>) {
    if let Some(amount @ Value::String(text)) = amount
        && scalar_formats::is_percent(text)
        && text.trim_end_matches('%').parse::<u64>().is_ok_and(|percent| percent > 100)
    {
        validator.invalid(path, amount.clone(), PERCENT);
    }
}

/// Returns whether a count or percentage is zero.
fn is_nothing(amount: Option<&Value>) -> bool {
    match amount {
        Some(Value::Int(count)) => *count == 0,
        Some(Value::String(text)) if scalar_formats::is_percent(text) => {
            text.trim_end_matches('%').bytes().all(|byte| byte == b'0')
        }
        // A text that is not a percentage counts as 0.
        Some(Value::String(text)) => text.parse::<i64>().unwrap_or(0) == 0,
        _ => true,
    }
}

pub(super) fn daemon_set(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    selected_template(
        validator,
        path,
        spec,
        &WorkloadNames { kind: "daemonset", template_kind: "DaemonSet" },
    );
}

/// Checks the update strategy of a daemon set.
pub(super) fn daemon_set_strategy(validator: &mut Validator, path: &FieldPath, strategy: StructView) {
    match strategy.text("type") {
        "RollingUpdate" => {}
        "OnDelete" => return,
        _ => return validator.not_supported(path, strategy.to_value(), &["RollingUpdate", "OnDelete"]),
    }
    let rolling = strategy.child("rollingUpdate");
    let place = path.child("rollingUpdate");
    if !rolling.is_there() {
        return validator.required(place, "");
    }
    let (away, more) = rolling_update(validator, &place, rolling);
    match (is_nothing(away), is_nothing(more)) {
        (true, true) => {
            validator.required(place.child("maxUnavailable"), "cannot be 0 when maxSurge is 0");
        }
        (false, false) => {
            let value = more.cloned().unwrap_or_default();
            validator.invalid(
                place.child("maxSurge"),
                value,
                "may not be set when maxUnavailable is non-zero",
            );
        }
        _ => {}
    }
    not_over_all(validator, &place.child("maxUnavailable"), away);
    not_over_all(validator, &place.child("maxSurge"), more);
}

pub(super) fn stateful_set(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    if !validator.is_create() {
        // These fields are immutable, and stored values of older releases must remain valid.
        validator.forget(&path.child("serviceName"));
        validator.forget(&path.child("volumeClaimTemplates"));
    }
    selected_template(
        validator,
        path,
        spec,
        &WorkloadNames { kind: "statefulset", template_kind: "StatefulSet" },
    );
    let management = spec.text("podManagementPolicy");
    if !matches!(management, "" | "OrderedReady" | "Parallel") {
        let place = path.child("podManagementPolicy");
        validator.invalid(place, management, "must be 'OrderedReady' or 'Parallel'");
    }
    if let Some(start) = spec.child("ordinals").int("start").filter(|start| *start < 0) {
        validator.invalid(path.child("ordinals.start"), start, scalar_formats::NOT_NEGATIVE);
    }
    strategy(validator, &path.child("updateStrategy"), spec.child("updateStrategy"));
    let retention = spec.child("persistentVolumeClaimRetentionPolicy");
    let place = path.child("persistentVolumeClaimRetentionPolicy");
    for name in ["whenDeleted", "whenScaled"] {
        let policy = retention.text(name);
        if retention.is_there() && !matches!(policy, "Retain" | "Delete") {
            validator.not_supported(place.child(name), policy, &["Retain", "Delete"]);
        }
    }
}

fn strategy(validator: &mut Validator, path: &FieldPath, strategy: StructView) {
    let rolling = strategy.child("rollingUpdate");
    let place = path.child("rollingUpdate");
    match strategy.text("type") {
        "" => validator.required(path, ""),
        "OnDelete" if rolling.is_there() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            validator.invalid(place, rolling.to_value(), detail);
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            if let Some(partition) = rolling.int("partition").filter(|partition| *partition < 0) {
                validator.invalid(place.child("partition"), partition, scalar_formats::NOT_NEGATIVE);
            }
            if let Some(away) = rolling.get("maxUnavailable") {
                let place = place.child("maxUnavailable");
                if is_nothing(Some(away)) {
                    validator.invalid(place, away.clone(), "cannot be 0");
                }
                not_over_all(validator, &place, Some(away));
            }
        }
        _ => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            validator.invalid(path, strategy.to_value(), detail);
        }
    }
}

/// Checks that an update changes only the mutable members.
pub(super) fn stateful_set_update(validator: &mut Validator, new: StructView, old: StructView) {
    const FREE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let (new, old) = (new.child("spec"), old.child("spec"));
    let differs = |a: StructView, b: StructView| {
        a.members().any(|(name, value)| !FREE.contains(&name) && !is_same(Some(value), b.get(name)))
    };
    if differs(new, old) || differs(old, new) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                      'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                      'minReadySeconds' are forbidden";
        validator.forbidden("spec", detail);
    }
}

pub(super) fn replication_controller(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let label_selector = spec.child("selector");
    if label_selector.members().next().is_none() {
        validator.required(path.child("selector"), "");
    }
    let template = spec.child("template");
    let place = path.child("template");
    if !template.is_there() {
        return validator.required(place, "");
    }
    let labels = template.child("metadata").child("labels");
    let found = by_name(labels);
    if label_selector.members().any(|(name, value)| found.get(name) != Some(&value)) {
        refuse_labels(validator, &place, labels);
    }
    runs_forever(validator, &place, template, "ReplicationController");
}

/// Checks a controller revision. The revision contains an object and is immutable.
pub(super) fn controller_revision(validator: &mut Validator, path: &FieldPath, revision: StructView) {
    if !validator.is_create() {
        return;
    }
    match revision.get("data") {
        Some(Value::Object(_)) => {}
        None => validator.required(path.child("data"), "data is mandatory"),
        Some(_) => validator.required(path.child("data"), "data must be a valid JSON object"),
    }
}
