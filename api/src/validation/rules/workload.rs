//! What runs pods from a template: selector and template must agree, counts are not negative (semantics §5.7).

use hashbrown::HashMap;

use super::super::is_same;
use super::super::metadata::labels;
use super::super::path::Path;
use super::{Check, given, members, not_negative, not_supported, pod, selector, text, top};
use crate::field::FieldError;
use crate::json::{Object, Value};

const MISMATCH: &str = "`selector` does not match template `labels`";

/// Longest name of a cron job: its jobs get eleven characters more.
const CRON_JOB_NAME_MAX: usize = 52;

pub(super) fn pod_template(check: &mut Check) {
    let faults = &mut *check.errors;
    pod::template(&Path::ROOT.child("template"), top(check.object, "template"), faults);
}

/// Selector and template of a workload whose pods run forever.
fn selected_template(check: &mut Check, kind: &str) {
    let spec = top(check.object, "spec");
    let root = Path::ROOT.child("spec");
    let path = root.child("template");
    let faults = &mut *check.errors;
    let template = given(spec, "template");
    if let Some(selector) = given(spec, "selector") {
        let place = root.child("selector");
        selector::validate(&place, Some(selector), faults);
        if selector::is_empty(selector) {
            let detail = format!("empty selector is invalid for {kind}");
            faults.push(FieldError::invalid(place, selector, detail));
        } else {
            let found = given(given(template, "metadata"), "labels");
            if !selector::selects(selector, found) {
                let empty = Value::Object(Object::new());
                let metadata = path.child("metadata");
                faults.push(FieldError::invalid(metadata.child("labels"), found.unwrap_or(&empty), MISMATCH));
            }
        }
    }
    if kind == "statefulset" {
        pod::template_metadata(&path, template, faults);
    } else {
        pod::template(&path, template, faults);
    }
    runs_forever(&path, template, faults);
    counts(&root, spec, faults);
}

fn runs_forever(path: &Path, template: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = given(template, "spec");
    let place = path.child("spec");
    let policy = text(spec, "restartPolicy");
    if matches!(policy, "OnFailure" | "Never") {
        errors.push(not_supported(&place.child("restartPolicy"), &policy.into(), &["Always"]));
    }
    if given(spec, "activeDeadlineSeconds").is_some() {
        let detail = "activeDeadlineSeconds in ReplicaSet is not Supported";
        errors.push(FieldError::forbidden(place.child("activeDeadlineSeconds"), detail));
    }
}

fn counts(path: &Path, spec: Option<&Value>, errors: &mut Vec<FieldError>) {
    for name in ["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        not_negative(&path.child(name), given(spec, name), errors);
    }
}

pub(super) fn replica_set(check: &mut Check) {
    selected_template(check, "deployment"); // the reference server's own words
}

pub(super) fn deployment(check: &mut Check) {
    selected_template(check, "deployment");
    let spec = top(check.object, "spec");
    let root = Path::ROOT.child("spec");
    let faults = &mut *check.errors;
    let number = |name: &str| given(spec, name).and_then(Value::as_i64);
    let ready = number("minReadySeconds").unwrap_or(0);
    if let Some(deadline) = number("progressDeadlineSeconds")
        && deadline <= ready
    {
        let detail = "must be greater than minReadySeconds";
        faults.push(FieldError::invalid(
            root.child("progressDeadlineSeconds"),
            &Value::Int(deadline),
            detail,
        ));
    }
    let strategy = given(spec, "strategy");
    let place = root.child("strategy");
    let rolling = given(strategy, "rollingUpdate");
    let rolling_path = place.child("rollingUpdate");
    match text(strategy, "type") {
        "Recreate" if rolling.is_some() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            faults.push(FieldError::forbidden(rolling_path, detail));
        }
        "RollingUpdate" => rolling_amounts(&rolling_path, rolling, faults),
        _ => {}
    }
}

/// How many pods may be away, or too many, during an update; not none of either.
fn rolling_amounts(path: &Path, rolling: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut nothing = true;
    for name in ["maxUnavailable", "maxSurge"] {
        let Some(value) = given(rolling, name) else { continue };
        amount(&path.child(name), value, errors);
        nothing &= is_none_at_all(value);
    }
    if let Some(value) = given(rolling, "maxUnavailable").filter(|_| nothing) {
        let detail = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(path.child("maxUnavailable"), value, detail));
    }
}

fn is_none_at_all(amount: &Value) -> bool {
    match amount {
        Value::Int(n) => *n == 0,
        Value::String(text) => text.trim_end_matches('%').bytes().all(|byte| byte == b'0'),
        _ => false,
    }
}

/// A count that is not negative, or a percentage.
fn amount(path: &Path, value: &Value, errors: &mut Vec<FieldError>) {
    match value {
        Value::Int(_) => not_negative(path, Some(value), errors),
        Value::String(text) => {
            let digits = text.strip_suffix('%').unwrap_or_default();
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  \
                              or '93%', regex used for validation is '[0-9]+%')";
                errors.push(FieldError::invalid(path, value, detail));
            }
        }
        _ => {}
    }
}

pub(super) fn daemon_set(check: &mut Check) {
    selected_template(check, "daemonset");
    let strategy = given(top(check.object, "spec"), "updateStrategy");
    let root = Path::ROOT.child("spec");
    let place = root.child("updateStrategy");
    let faults = &mut *check.errors;
    if text(strategy, "type") == "RollingUpdate" {
        let rolling = given(strategy, "rollingUpdate");
        for name in ["maxUnavailable", "maxSurge"] {
            if let Some(value) = given(rolling, name) {
                amount(&place.child("rollingUpdate").child(name), value, faults);
            }
        }
    }
}

pub(super) fn stateful_set(check: &mut Check) {
    selected_template(check, "statefulset");
}

/// Everything but these members stays as it was made.
pub(super) fn stateful_set_update(check: &mut Check, old: &Object) {
    const FREE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let (new, old) = (top(check.object, "spec"), old.get("spec"));
    let differs = |a: Option<&Value>, b: Option<&Value>| {
        members(a).any(|(name, value)| !FREE.contains(&name) && !is_same(Some(value), given(b, name)))
    };
    if differs(new, old) || differs(old, new) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                      'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                      'minReadySeconds' are forbidden";
        check.errors.push(FieldError::forbidden("spec", detail));
    }
}

pub(super) fn replication_controller(check: &mut Check) {
    let spec = top(check.object, "spec");
    let root = Path::ROOT.child("spec");
    let path = root.child("template");
    let faults = &mut *check.errors;
    let wanted = given(spec, "selector");
    if members(wanted).next().is_none() {
        faults.push(FieldError::required(root.child("selector"), ""));
    }
    labels(&root.child("selector"), wanted, faults);
    match given(spec, "template") {
        None => faults.push(FieldError::required(path, "")),
        template => {
            let found = given(given(template, "metadata"), "labels");
            let label: HashMap<&str, &Value> = members(found).collect();
            if members(wanted).any(|(name, value)| label.get(name) != Some(&value)) {
                let metadata = path.child("metadata");
                let empty = Value::Object(Object::new());
                faults.push(FieldError::invalid(metadata.child("labels"), found.unwrap_or(&empty), MISMATCH));
            }
            pod::template(&path, template, faults);
            runs_forever(&path, template, faults);
        }
    }
    counts(&root, spec, faults);
}

pub(super) fn job(check: &mut Check) {
    let faults = &mut *check.errors;
    job_specification(&Path::ROOT.child("spec"), top(check.object, "spec"), true, faults);
}

fn job_specification(path: &Path, spec: Option<&Value>, is_job: bool, errors: &mut Vec<FieldError>) {
    for name in
        ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]
    {
        not_negative(&path.child(name), given(spec, name), errors);
    }
    if text(spec, "completionMode") == "Indexed" && given(spec, "completions").is_none() {
        let detail = "when completion mode is Indexed";
        errors.push(FieldError::required(path.child("completions"), detail));
    }
    let template_path = path.child("template");
    let template = given(spec, "template");
    match given(spec, "selector") {
        Some(selector) => {
            selector::validate(&path.child("selector"), Some(selector), errors);
            let found = given(given(template, "metadata"), "labels");
            if is_job && !selector::selects(selector, found) {
                let metadata = template_path.child("metadata");
                let empty = Value::Object(Object::new());
                errors.push(FieldError::invalid(metadata.child("labels"), found.unwrap_or(&empty), MISMATCH));
            }
        }
        None if is_job => errors.push(FieldError::required(path.child("selector"), "")),
        None => {}
    }
    pod::template(&template_path, template, errors);
    let policy = text(given(template, "spec"), "restartPolicy");
    if policy == "Always" || policy.is_empty() {
        let spec_path = template_path.child("spec");
        let place = spec_path.child("restartPolicy");
        let mut error = not_supported(&place, &policy.into(), &[]);
        error.detail = "supported values: \"OnFailure\", \"Never\"".to_owned();
        errors.push(error);
    }
}

/// The template and how much is to be done stay, unless the job is suspended or indexed.
pub(super) fn job_update(check: &mut Check, old: &Object) {
    let (new, old_spec) = (top(check.object, "spec"), old.get("spec"));
    let faults = &mut *check.errors;
    let member = |spec, name| given(spec, name);
    if !is_same(member(new, "completions"), member(old_spec, "completions")) {
        let elastic = text(new, "completionMode") == "Indexed"
            && is_same(member(new, "completions"), member(new, "parallelism"));
        if !elastic {
            let value = member(new, "completions").unwrap_or(&Value::Null);
            faults.push(FieldError::invalid("spec.completions", value, "field is immutable"));
        }
    }
    let (template, former) = (member(new, "template"), member(old_spec, "template"));
    if !is_same(template, former) {
        let suspended = member(old_spec, "suspend").and_then(Value::as_bool) == Some(true);
        let started =
            old.get("status").and_then(|status| status.get("startTime")).is_some_and(|time| !time.is_null());
        let directed = suspended && !started && same_but_directives(template, former);
        if let Some(template) = template.filter(|_| !directed) {
            faults.push(FieldError::invalid("spec.template", template, "field is immutable"));
        }
    }
}

/// Where pods of a suspended job may go can still be said, and what they need.
fn same_but_directives(new: Option<&Value>, old: Option<&Value>) -> bool {
    let strip = |template: Option<&Value>| {
        let mut template = template.cloned().unwrap_or_default();
        if let Some(template) = template.as_object_mut() {
            if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|name, _| !matches!(name, "labels" | "annotations"));
            }
            if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
                spec.retain(|name, _| {
                    !matches!(name, "nodeSelector" | "tolerations" | "schedulingGates" | "affinity")
                });
                for list in ["containers", "initContainers"] {
                    let containers = spec.get_mut(list).and_then(Value::as_array_mut);
                    for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                        container.remove("resources");
                    }
                }
            }
        }
        template
    };
    let others = |template: Option<&Value>| {
        let mut affinity = template.and_then(|template| template.at(&["spec", "affinity"])).cloned();
        if let Some(affinity) = affinity.as_mut().and_then(Value::as_object_mut) {
            affinity.remove("nodeAffinity");
        }
        affinity.filter(|affinity| affinity.as_object().is_some_and(|members| !members.is_empty()))
    };
    strip(new) == strip(old) && others(new) == others(old)
}

pub(super) fn cron_job(check: &mut Check) {
    let spec = top(check.object, "spec");
    let root = Path::ROOT.child("spec");
    let faults = &mut *check.errors;
    let name = top(check.object, "metadata").map_or("", |metadata| metadata.str_at(&["name"]));
    if name.len() > CRON_JOB_NAME_MAX {
        let detail = format!("must be no more than {CRON_JOB_NAME_MAX} characters");
        faults.push(FieldError::invalid("metadata.name", &name.into(), detail));
    }
    let schedule = text(spec, "schedule");
    if !schedule.is_empty() && !schedule.starts_with('@') {
        let fields: Vec<&str> = schedule.split_whitespace().filter(|field| !field.contains('=')).collect();
        if fields.len() != 5 {
            let detail = format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" "));
            faults.push(FieldError::invalid(root.child("schedule"), &schedule.into(), detail));
        }
    }
    if schedule.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        faults.push(FieldError::invalid(root.child("schedule"), &schedule.into(), detail));
    }
    for name in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(&root.child(name), given(spec, name), faults);
    }
    let template = given(spec, "jobTemplate");
    let path = root.child("jobTemplate");
    job_specification(&path.child("spec"), given(template, "spec"), false, faults);
    let template_spec = given(template, "spec");
    if given(template_spec, "manualSelector").and_then(Value::as_bool) == Some(true) {
        let value = Value::Bool(true);
        let spec_path = path.child("spec");
        let place = spec_path.child("manualSelector");
        faults.push(not_supported(&place, &value, &["nil", "false"]));
    }
}
