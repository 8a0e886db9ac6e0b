//! Conversion between autoscaling/v1 and v2 HorizontalPodAutoscaler.
//!
//! v1 has one metric, the average CPU utilization. All other values of v2 are stored in annotations of the v1
//! object, as JSON with the structure that v1 clients expect:
//!
//! ```text
//! v2                                   v1
//! spec.metrics: the CPU utilization ◄─► spec.targetCPUUtilizationPercentage
//! spec.metrics: all others          ◄─► annotation …/metrics, sources with flat names (targetAverageValue …)
//! spec.behavior                     ◄─► annotation …/behavior, names capitalized
//! status.currentMetrics             ◄─► annotation …/current-metrics; CPU also in currentCPUUtilizationPercentage
//! status.conditions                 ◄─► annotation …/conditions
//! ```
//!
//! The annotations exist only in v1: conversion to v2 reads and removes them. A malformed annotation counts
//! as absent. A v1 object without any metric gets the default CPU target. After a conversion to v1 and back,
//! the CPU metric comes last, as in the reference server. The order of metrics has no meaning.

use crate::schema::builtin;
use crate::schema::conform::conform;
use values::json::{self, Object, Value};
use values::naming::Naming;

/// Target of the average CPU utilization, in percent, for an autoscaler without metrics.
const CPU_UTILIZATION_DEFAULT: i64 = 80;

const METRICS: &str = "autoscaling.alpha.{domain}/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.{domain}/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.{domain}/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.{domain}/conditions";
/// Annotations in which versions that are no longer served stored the tolerances.
const TOLERANCES: [&str; 2] =
    ["autoscaling.alpha.{domain}/scale-up-tolerance", "autoscaling.alpha.{domain}/scale-down-tolerance"];

/// A flat name in an annotation, and the path of the value in v2.
type Flat = (&'static str, &'static [&'static str]);

/// The member name of a source, the flat name of the number that is written even if v2 has no such number,
/// and the flat names of all members.
type Source = (&'static str, &'static str, &'static [Flat]);

/// Sources of target metrics.
static SPECS: [Source; 5] = [
    (
        "object",
        "targetValue",
        &[
            ("target", &["describedObject"]),
            ("metricName", &["metric", "name"]),
            ("targetValue", &["target", "value"]),
            ("selector", &["metric", "selector"]),
            ("averageValue", &["target", "averageValue"]),
        ],
    ),
    (
        "pods",
        "targetAverageValue",
        &[
            ("metricName", &["metric", "name"]),
            ("targetAverageValue", &["target", "averageValue"]),
            ("selector", &["metric", "selector"]),
        ],
    ),
    (
        "resource",
        "",
        &[
            ("name", &["name"]),
            ("targetAverageUtilization", &["target", "averageUtilization"]),
            ("targetAverageValue", &["target", "averageValue"]),
        ],
    ),
    (
        "containerResource",
        "",
        &[
            ("name", &["name"]),
            ("targetAverageUtilization", &["target", "averageUtilization"]),
            ("targetAverageValue", &["target", "averageValue"]),
            ("container", &["container"]),
        ],
    ),
    (
        "external",
        "",
        &[
            ("metricName", &["metric", "name"]),
            ("metricSelector", &["metric", "selector"]),
            ("targetValue", &["target", "value"]),
            ("targetAverageValue", &["target", "averageValue"]),
        ],
    ),
];

/// Sources of measured metrics, in the form of [`SPECS`].
static STATUSES: [Source; 5] = [
    (
        "object",
        "currentValue",
        &[
            ("target", &["describedObject"]),
            ("metricName", &["metric", "name"]),
            ("currentValue", &["current", "value"]),
            ("selector", &["metric", "selector"]),
            ("averageValue", &["current", "averageValue"]),
        ],
    ),
    (
        "pods",
        "currentAverageValue",
        &[
            ("metricName", &["metric", "name"]),
            ("currentAverageValue", &["current", "averageValue"]),
            ("selector", &["metric", "selector"]),
        ],
    ),
    (
        "resource",
        "currentAverageValue",
        &[
            ("name", &["name"]),
            ("currentAverageUtilization", &["current", "averageUtilization"]),
            ("currentAverageValue", &["current", "averageValue"]),
        ],
    ),
    (
        "containerResource",
        "currentAverageValue",
        &[
            ("name", &["name"]),
            ("currentAverageUtilization", &["current", "averageUtilization"]),
            ("currentAverageValue", &["current", "averageValue"]),
            ("container", &["container"]),
        ],
    ),
    (
        "external",
        "currentValue",
        &[
            ("metricName", &["metric", "name"]),
            ("metricSelector", &["metric", "selector"]),
            ("currentValue", &["current", "value"]),
            ("currentAverageValue", &["current", "averageValue"]),
        ],
    ),
];

/// A list of metrics. The lists of targets and of measured values differ only in names.
#[derive(Clone, Copy)]
struct List {
    sources: &'static [Source; 5],
    /// Type of a list element in v2.
    message: &'static str,
    /// Member of a source that contains the numbers.
    numbers: &'static str,
}

const SPEC_LIST: List = List { sources: &SPECS, message: "api.autoscaling.v2.MetricSpec", numbers: "target" };
const STATUS_LIST: List =
    List { sources: &STATUSES, message: "api.autoscaling.v2.MetricStatus", numbers: "current" };

/// Converts a v2 object to v1.
pub(super) fn to_v1(mut object: Object, naming: &Naming) -> Object {
    let mut annotated: Vec<(&str, Value)> = Vec::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let mut metrics = take_list(spec, "metrics");
        if let Some(at) = metrics.iter().position(is_cpu_utilization) {
            let target = metrics.remove(at).at(&["resource", "target", "averageUtilization"]).cloned();
            spec.insert("targetCPUUtilizationPercentage", target.unwrap_or_default());
        }
        let flat = metrics.into_iter().map(|metric| SPEC_LIST.flat(metric, naming)).collect();
        annotated.push((METRICS, Value::Array(flat)));
        if let Some(behavior) = spec.remove("behavior").filter(|behavior| !behavior.is_null()) {
            annotated.push((BEHAVIOR, capitalized(&behavior, &BEHAVIOR_MEMBERS)));
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let metrics = take_list(status, "currentMetrics");
        let utilization = |metric: &Value| {
            let cpu = metric.str_at(&["type"]) == "Resource" && metric.str_at(&["resource", "name"]) == "cpu";
            metric
                .at(&["resource", "current", "averageUtilization"])
                .filter(|value| cpu && !value.is_null())
                .cloned()
        };
        if let Some(utilization) = metrics.iter().rev().find_map(utilization) {
            status.insert("currentCPUUtilizationPercentage", utilization);
        }
        // The CPU metric also stays in the list of the annotation, because its raw value has no field in v1.
        let flat = metrics.into_iter().map(|metric| STATUS_LIST.flat(metric, naming)).collect();
        annotated.push((CURRENT_METRICS, Value::Array(flat)));
        annotated.push((CONDITIONS, Value::Array(take_list(status, "conditions"))));
    }
    // Annotations with these names in a v2 object were set by a client and have no meaning.
    drop_annotations(&mut object, naming);
    annotated.retain(|(_, value)| value.as_array().is_none_or(|items| !items.is_empty()));
    if !annotated.is_empty() {
        let annotations = object.object_entry("metadata").object_entry("annotations");
        for (name, value) in annotated {
            let mut text = Vec::new();
            json::write(&value, &mut text);
            annotations.insert(naming.fill(name), Value::String(String::from_utf8_lossy(&text).into_owned()));
        }
    }
    object
}

/// Converts a v1 object to v2.
pub(super) fn to_v2(mut object: Object, naming: &Naming) -> Object {
    let annotation = |name: &str| {
        let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
        let text = annotations.and_then(|annotations| annotations.get(&naming.fill(name))?.as_str());
        text.and_then(|text| json::parse(text.as_bytes()).ok())
    };
    let mut metrics = annotation(METRICS).and_then(|list| SPEC_LIST.nested(list, naming)).unwrap_or_default();
    let current = annotation(CURRENT_METRICS).and_then(|list| STATUS_LIST.nested(list, naming));
    let conditions = annotation(CONDITIONS).and_then(|list| {
        elements(list, |it| canonical("api.autoscaling.v2.HorizontalPodAutoscalerCondition", it, naming))
    });
    let behavior = annotation(BEHAVIOR)
        .map(|behavior| uncapitalized(behavior, &BEHAVIOR_MEMBERS))
        .and_then(|it| canonical("api.autoscaling.v2.HorizontalPodAutoscalerBehavior", it, naming))
        .filter(|behavior| behavior.as_object().is_some_and(|members| !members.is_empty()));
    drop_annotations(&mut object, naming);

    let spec = object.object_entry("spec");
    let target = spec.remove("targetCPUUtilizationPercentage").filter(|target| !target.is_null());
    if let Some(target) = target {
        metrics.push(cpu("target", Some("Utilization"), target));
    } else if metrics.is_empty() {
        metrics.push(cpu("target", Some("Utilization"), Value::Int(CPU_UTILIZATION_DEFAULT)));
    }
    spec.insert("metrics", Value::Array(metrics));
    if let Some(behavior) = behavior {
        spec.insert("behavior", behavior);
    }

    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let utilization =
            status.remove("currentCPUUtilizationPercentage").filter(|utilization| !utilization.is_null());
        // The annotation contains all metrics, so it takes precedence over the number.
        let current =
            current.or_else(|| utilization.map(|utilization| vec![cpu("current", None, utilization)]));
        if let Some(current) = current {
            status.insert("currentMetrics", Value::Array(current));
        }
        if let Some(conditions) = conditions {
            status.insert("conditions", Value::Array(conditions));
        }
    }
    object
}

/// Returns whether the number field of v1 can represent a metric without loss.
fn is_cpu_utilization(metric: &Value) -> bool {
    let plain = cpu(
        "target",
        Some("Utilization"),
        metric.at(&["resource", "target", "averageUtilization"]).cloned().unwrap_or_default(),
    );
    plain.at(&["resource", "target", "averageUtilization"]).is_some_and(|value| value.as_i64().is_some())
        && plain == *metric
}

/// Returns the CPU metric, with members in schema order.
fn cpu(numbers: &'static str, kind: Option<&str>, utilization: Value) -> Value {
    let mut inner = Object::new();
    if let Some(kind) = kind {
        inner.push("type", kind.into());
    }
    inner.push("averageUtilization", utilization);
    let mut resource = Object::new();
    resource.push("name", "cpu".into());
    resource.push(numbers, inner.into());
    let mut metric = Object::new();
    metric.push("type", "Resource".into());
    metric.push("resource", resource.into());
    metric.into()
}

impl List {
    /// Converts a metric to flat names. If the flat form would lose a part of the metric, returns the v2 form
    /// unchanged.
    fn flat(self, metric: Value, naming: &Naming) -> Value {
        if self.nested_one(self.renamed(&metric, None), naming).as_ref() == Some(&metric) {
            self.renamed(&metric, Some("0"))
        } else {
            metric
        }
    }

    /// Converts a metric to flat names. If v2 lacks the number that is always written, `absent` is written
    /// instead.
    fn renamed(self, metric: &Value, absent: Option<&str>) -> Value {
        let mut flat = Object::new();
        flat.push("type", metric.get("type").cloned().unwrap_or_default());
        for (source, always, names) in self.sources {
            let Some(nested) = metric.get(source).filter(|nested| !nested.is_null()) else { continue };
            let mut members = Object::new();
            for (name, path) in *names {
                let given = nested.at(path).filter(|value| !value.is_null()).cloned();
                let absent = absent.filter(|_| name == always).map(Value::from);
                if let Some(value) = given.or(absent) {
                    members.push(*name, value);
                }
            }
            flat.push(*source, members.into());
        }
        flat.into()
    }

    /// Converts the metrics of an annotation to v2; returns `None` if `list` is not a list of metrics.
    fn nested(self, list: Value, naming: &Naming) -> Option<Vec<Value>> {
        elements(list, |metric| self.nested_one(metric, naming))
    }

    fn nested_one(self, metric: Value, naming: &Naming) -> Option<Value> {
        let Value::Object(mut metric) = metric else { return None };
        for (source, _, names) in self.sources {
            let Some(flat) = metric.get_mut(source).and_then(Value::as_object_mut) else { continue };
            // Depending on the source, one of these two members marks the v2 form: the member is present, and
            // is not a flat name.
            let own_form = ["metric", self.numbers].iter().any(|own| {
                flat.get(own).is_some_and(|it| it.as_object().is_some())
                    && !names.iter().any(|(name, _)| name == own)
            });
            if !own_form {
                *flat = self.nested_source(std::mem::take(flat), names);
            }
        }
        canonical(self.message, Value::Object(metric), naming)
    }

    fn nested_source(self, mut flat: Object, names: &'static [Flat]) -> Object {
        let is_given = |flat: &Object, name: &str| flat.get(name).is_some_and(|value| !value.is_null());
        // Some writers set the value to 0 if only an average is given. 0 is not a valid target, so it counts
        // as absent.
        if self.numbers == "target" && is_given(&flat, "averageValue") {
            let zero = |value: &Value| value.as_str() == Some("0") || value.as_i64() == Some(0);
            if flat.get("targetValue").is_some_and(zero) {
                flat.remove("targetValue");
            }
        }
        let mut nested = Object::new();
        for (name, path) in names {
            let Some(value) = flat.remove(name).filter(|value| !value.is_null()) else { continue };
            match path {
                [member] => {
                    nested.insert(*member, value);
                }
                [outer, inner] => {
                    nested.object_entry(*outer).insert(*inner, value);
                }
                _ => {}
            }
        }
        if self.numbers == "target" {
            let target = nested.object_entry("target");
            let kind = match () {
                () if target.contains("averageUtilization") => "Utilization",
                () if target.contains("averageValue") => "AverageValue",
                () => "Value",
            };
            target.insert("type", kind.into());
        }
        nested
    }
}

/// Converts every element with `each`. Returns `None` if `list` is not a list, or if an element is malformed.
fn elements(list: Value, each: impl Fn(Value) -> Option<Value>) -> Option<Vec<Value>> {
    match list {
        Value::Array(items) => items.into_iter().map(each).collect(),
        _ => None,
    }
}

/// Returns `value` in the canonical form of the type `message`; `None` if `value` does not have this type.
fn canonical(message: &str, value: Value, naming: &Naming) -> Option<Value> {
    let message = builtin::message(naming, message)?;
    Some(conform(message, value).ok()?.object.into())
}

/// Removes a list from an object and returns the list; an absent list is empty.
fn take_list(object: &mut Object, name: &str) -> Vec<Value> {
    match object.remove(name) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Removes the annotations in which v1 stores the values for which it has no fields.
pub fn drop_annotations(object: &mut Object, naming: &Naming) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    for name in [METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS].into_iter().chain(TOLERANCES) {
        annotations.remove(&naming.fill(name));
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// A member of the behavior, with its own members.
struct Member(&'static str, &'static [Member]);

static BEHAVIOR_MEMBERS: [Member; 2] = [Member("scaleUp", &RULES), Member("scaleDown", &RULES)];
static RULES: [Member; 4] = [
    Member("stabilizationWindowSeconds", &[]),
    Member("selectPolicy", &[]),
    Member("policies", &POLICY),
    Member("tolerance", &[]),
];
static POLICY: [Member; 3] = [Member("type", &[]), Member("value", &[]), Member("periodSeconds", &[])];

/// Converts the behavior to the form of the annotation: names are capitalized, and absent members are null.
fn capitalized(value: &Value, members: &'static [Member]) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(|item| capitalized(item, members)).collect()),
        Value::Object(object) if !members.is_empty() => {
            let named = members.iter().map(|Member(name, below)| {
                let value = object.get(name).map_or(Value::Null, |value| capitalized(value, below));
                (capital(name).into(), value)
            });
            Value::Object(named.collect())
        }
        other => other.clone(),
    }
}

/// Converts the behavior from the form of the annotation. Names of known members match in any case and get
/// their v2 form. Null members are dropped.
fn uncapitalized(value: Value, members: &'static [Member]) -> Value {
    match value {
        Value::Array(items) => {
            Value::Array(items.into_iter().map(|item| uncapitalized(item, members)).collect())
        }
        Value::Object(object) if !members.is_empty() => {
            let mut plain = Object::with_capacity(members.len());
            for (given, value) in object.into_members() {
                let known = members.iter().find(|Member(name, _)| name.eq_ignore_ascii_case(&given));
                if let Some(Member(name, below)) = known.filter(|_| !value.is_null()) {
                    plain.insert(*name, uncapitalized(value, below));
                }
            }
            plain.into()
        }
        other => other,
    }
}

fn capital(name: &str) -> String {
    let mut name = name.to_owned();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    name
}
