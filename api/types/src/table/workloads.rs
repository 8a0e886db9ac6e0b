//! Cell functions of workloads: jobs, autoscalers, revisions.

use std::borrow::Cow;

use super::cell::{Cell, Function};
use super::duration;
use super::functions::first_of;
use super::row::{Output, Row, text_of};
use values::json::Value;

/// Functions for the cells of workloads.
pub static FUNCTIONS: &[Function] = &[
    Function::reading("jobStatus", "metadata.deletionTimestamp,status.conditions{type,status}", job_status),
    Function::reading("jobCompletions", "spec{completions,parallelism},status.succeeded", job_completions),
    Function::reading("jobDuration", "status{startTime,completionTime}", job_duration),
    Function::reading("hpaTargets", "spec.metrics,status.currentMetrics", hpa_targets),
    Function::reading(
        "controllerOwner",
        "metadata.ownerReferences{apiVersion,kind,name,controller}",
        controller_owner,
    ),
];

/// Computes the first applicable state of a job.
fn job_status<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    for ended in ["Complete", "Failed"] {
        if row.condition_is_true(ended) {
            return Output::text(ended);
        }
    }
    if row.is_deleted() {
        return Output::text("Terminating");
    }
    let underway = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
    Output::text(underway.into_iter().find(|kind| row.condition_is_true(kind)).unwrap_or("Running"))
}

/// Computes the numbers of succeeded and desired pods. In a job without a number of completions, one of the
/// parallel pods must succeed.
fn job_completions<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let succeeded = row.int(&["status", "succeeded"]);
    let parallelism = row.int(&["spec", "parallelism"]);
    Output::text(match row.at(&["spec", "completions"]).and_then(Value::as_i64) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    })
}

/// Computes the time from start to completion, or to now.
fn job_duration<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let Some(start) = duration::time(row.str(&["status", "startTime"])) else { return Output::Unset };
    let end = duration::time(row.str(&["status", "completionTime"])).unwrap_or(row.now);
    Output::text(duration::human(duration::seconds_between(start, end)))
}

/// Computes `cpu: 10%/80%, 5/10 (avg) + 1 more...`.
fn hpa_targets<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let metrics = row.list(&["spec", "metrics"]);
    if metrics.is_empty() {
        return Output::text("<none>");
    }
    let statuses = row.list(&["status", "currentMetrics"]);
    let texts: Vec<Cow<str>> =
        metrics.iter().enumerate().map(|(at, metric)| metric_target(metric, statuses.get(at))).collect();
    Output::text(first_of(&texts, 2, ", "))
}

/// Formats the current value and the target of a metric.
fn metric_target<'r>(metric: &'r Value, status: Option<&'r Value>) -> Cow<'r, str> {
    // A status belongs to the metric at the same position; a status of another type was computed for an
    // older spec.
    let source = match metric.str_at(&["type"]) {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        "External" => "external",
        _ => return Cow::Borrowed("<unknown type>"),
    };
    let target = |member| quantity(metric.at(&[source, "target", member]));
    let status = status.filter(|it| it.get(source).is_some_and(|part| !part.is_null()));
    let measured = |member| quantity(status.and_then(|it| it.at(&[source, "current", member])));
    // The cell distinguishes a status without the quantity from a missing status, except for averages of
    // objects and external metrics.
    let absent = if status.is_some() { "<nil>" } else { "<unknown>" };
    let current = |member| measured(member).unwrap_or(Cow::Borrowed(absent));
    let target_text = |member| target(member).unwrap_or(Cow::Borrowed("<nil>"));
    Cow::Owned(match source {
        "resource" | "containerResource" => {
            let name = metric.str_at(&[source, "name"]);
            match target("averageValue") {
                Some(target) => format!("{name}: {}/{target}", current("averageValue")),
                None => {
                    let percent = |it: Option<&Value>| it.and_then(Value::as_i64).map(|n| format!("{n}%"));
                    let current =
                        percent(status.and_then(|it| it.at(&[source, "current", "averageUtilization"])));
                    let target = percent(metric.at(&[source, "target", "averageUtilization"]));
                    format!(
                        "{name}: {}/{}",
                        current.as_deref().unwrap_or("<unknown>"),
                        target.as_deref().unwrap_or("<auto>")
                    )
                }
            }
        }
        "pods" => format!("{}/{}", current("averageValue"), target_text("averageValue")),
        _ => match target("averageValue") {
            Some(target) => {
                format!("{}/{target} (avg)", measured("averageValue").unwrap_or(Cow::Borrowed("<unknown>")))
            }
            None => format!("{}/{}", current("value"), target_text("value")),
        },
    })
}

fn quantity(value: Option<&Value>) -> Option<Cow<'_, str>> {
    value.filter(|value| !value.is_null()).map(text_of)
}

/// Computes `deployment.apps/web`: the controlling owner of the object.
fn controller_owner<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let owners = row.list(&["metadata", "ownerReferences"]);
    let controls = |owner: &&Value| owner.get("controller").and_then(Value::as_bool) == Some(true);
    let Some(owner) = owners.iter().find(controls) else { return Output::Unset };
    let mut kind = owner.str_at(&["kind"]).to_lowercase();
    if let Some((group, _)) = owner.str_at(&["apiVersion"]).split_once('/') {
        kind.push('.');
        kind.push_str(&group.to_lowercase());
    }
    Output::text(format!("{kind}/{}", owner.str_at(&["name"])))
}
