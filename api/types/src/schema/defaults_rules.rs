//! Rules for defaults that depend on other fields. A type has at most one rule
//! (docs/api/validation.md#defaults).
//!
//! A rule runs after the plain values of its object were set, and before the nested structs get their
//! defaults.

use hashbrown::HashSet;
use quantity::Quantity;

use super::defaults_aliases as aliases;
use super::table::Message;
use super::typed_object::TypedObject;
use values::image;
use values::json::{self, Key, Object, Value};
use values::naming::Naming;

/// A function that fills in defaults that depend on other members.
pub(super) type DefaultRule = fn(&mut TypedObject, &'static Naming);

include!(concat!(env!("OUT_DIR"), "/default_rules.rs"));

/// Returns the default rule of a type.
pub(super) fn default_rule(message: &Message) -> Option<DefaultRule> {
    DEFAULT_RULES.get(usize::from(message.default_rule.checked_sub(1)?)).copied()
}

fn rolling_update(strategy: &mut TypedObject, values: [(&str, Value); 2]) {
    if strategy.text("type") == "RollingUpdate"
        && let Some(mut rolling) = strategy.child_or_new("rollingUpdate")
    {
        for (name, value) in values {
            rolling.fill(name, || value);
        }
    }
}

fn deployment_strategy(strategy: &mut TypedObject, _: &'static Naming) {
    rolling_update(strategy, [("maxUnavailable", "25%".into()), ("maxSurge", "25%".into())]);
}

fn daemon_set_strategy(strategy: &mut TypedObject, _: &'static Naming) {
    rolling_update(strategy, [("maxUnavailable", Value::Int(1)), ("maxSurge", Value::Int(0))]);
    // The internal form in the reference server has both numbers, regardless of the type of the strategy.
    if let Some(mut rolling) = strategy.child("rollingUpdate") {
        for name in ["maxUnavailable", "maxSurge"] {
            rolling.fill(name, || Value::Int(0));
        }
    }
}

/// Completes `rollingUpdate` only if the client left the type empty or chose a rolling update.
fn stateful_set_strategy(strategy: &mut TypedObject, _: &'static Naming) {
    if strategy.is_unset("type") {
        strategy.set("type", "RollingUpdate".into());
        let _ = strategy.child_or_new("rollingUpdate");
    }
    if let Some(mut rolling) = strategy.child("rollingUpdate") {
        // `maxUnavailable` stays absent: its default is behind a feature gate that is off.
        rolling.fill("partition", || Value::Int(0));
    }
}

fn autoscaler_behavior(behavior: &mut TypedObject, _: &'static Naming) {
    let policy = |kind: &str, value: i64| {
        let members =
            [("type", kind.into()), ("value", Value::Int(value)), ("periodSeconds", Value::Int(15))];
        Value::Object(members.into_iter().map(|(name, value)| (Key::Borrowed(name), value)).collect())
    };
    if let Some(mut up) = behavior.child_or_new("scaleUp") {
        up.fill("stabilizationWindowSeconds", || Value::Int(0));
        up.fill("selectPolicy", || "Max".into());
        up.fill("policies", || Value::Array(vec![policy("Pods", 4), policy("Percent", 100)]));
    }
    if let Some(mut down) = behavior.child_or_new("scaleDown") {
        down.fill("selectPolicy", || "Max".into());
        down.fill("policies", || Value::Array(vec![policy("Percent", 100)]));
    }
}

fn template_labels(workload: &TypedObject) -> Option<Object> {
    let labels = workload.object.get("spec")?.at(&["template", "metadata", "labels"])?.as_object()?;
    (!labels.is_empty()).then(|| labels.clone())
}

fn copy_labels(workload: &mut TypedObject, labels: &Option<Object>) {
    if let (Some(labels), Some(mut metadata)) = (labels, workload.child_or_new("metadata")) {
        metadata.fill("labels", || Value::Object(labels.clone()));
    }
}

fn job(job: &mut TypedObject, _: &'static Naming) {
    let labels = template_labels(job);
    copy_labels(job, &labels);
    let Some(mut spec) = job.child_or_new("spec") else { return };
    if spec.is_unset("completions") && spec.is_unset("parallelism") {
        spec.set("completions", Value::Int(1));
    }
    let per_index = !spec.is_unset("backoffLimitPerIndex");
    let failure_policy = !spec.is_unset("podFailurePolicy");
    spec.fill("parallelism", || Value::Int(1));
    spec.fill("backoffLimit", || Value::Int(if per_index { i64::from(i32::MAX) } else { 6 }));
    spec.fill("completionMode", || "NonIndexed".into());
    spec.fill("suspend", || Value::Bool(false));
    let replacement = if failure_policy { "Failed" } else { "TerminatingOrFailed" };
    spec.fill("podReplacementPolicy", || replacement.into());
    spec.fill("manualSelector", || Value::Bool(false));
}

fn replication_controller(controller: &mut TypedObject, _: &'static Naming) {
    let labels = template_labels(controller);
    copy_labels(controller, &labels);
    if let (Some(labels), Some(mut spec)) = (labels, controller.child_or_new("spec")) {
        spec.fill("selector", || Value::Object(labels));
    }
}

/// Returns the pull policy of an image: `Always` if its tag is mutable by convention (`latest`).
fn pull_policy(image: &str) -> &'static str {
    if image::is_latest(image) { "Always" } else { "IfNotPresent" }
}

fn container(container: &mut TypedObject, _: &'static Naming) {
    let policy = pull_policy(container.text("image"));
    container.fill("imagePullPolicy", || policy.into());
}

/// Makes a volume without a source an empty directory.
fn volume(volume: &mut TypedObject, _: &'static Naming) {
    let has_source = volume.object.iter().any(|(name, value)| name != "name" && !value.is_null());
    if !has_source {
        volume.set("emptyDir", Value::Object(Object::new()));
    }
    if let Some(mut source) = volume.child("image") {
        let policy = pull_policy(source.text("reference"));
        source.fill("pullPolicy", || policy.into());
    }
}

/// Adds the entries of `from` that `list` lacks, if `is_included` selects their names.
fn complete(list: &mut Object, from: &Object, is_included: impl Fn(&str) -> bool) {
    let known: HashSet<&str> = list.iter().map(|(name, _)| name).collect();
    let missing = from.iter().filter(|(name, _)| is_included(name) && !known.contains(name));
    let added: Vec<(Key, Value)> =
        missing.map(|(name, value)| (Key::Owned(name.to_owned()), value.clone())).collect();
    drop(known);
    if !added.is_empty() {
        list.members_mut().extend(added);
        json::sort_members(list.members_mut());
    }
}

/// Completes the resource list at a field. An empty result leaves the field absent.
fn complete_field(node: &mut TypedObject, field: &str, from: &Object, is_included: impl Fn(&str) -> bool) {
    let mut list = node.map(field).cloned().unwrap_or_default();
    complete(&mut list, from, is_included);
    if !list.is_empty() {
        node.set(field, Value::Object(list));
    }
}

/// Maximum length of lists that are compared without a hash set.
const FEW: usize = 16;

/// Completes the resource list at one field with entries of the list at another field.
fn complete_from(node: &mut TypedObject, field: &str, from: &str) {
    let Some(from) = node.map(from) else { return };
    let is_complete = |list: &Object| {
        from.len() <= FEW && list.len() <= FEW && from.iter().all(|(name, _)| list.contains(name))
    };
    if !node.map(field).is_some_and(is_complete) {
        let from = from.clone();
        complete_field(node, field, &from, |_| true);
    }
}

fn limit_range_item(item: &mut TypedObject, _: &'static Naming) {
    if item.text("type") != "Container" {
        return;
    }
    for (field, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
        complete_from(item, field, from);
    }
}

/// Sets the label that contains the name of the namespace.
fn namespace(namespace: &mut TypedObject, naming: &'static Naming) {
    let Some(mut metadata) = namespace.child_or_new("metadata") else { return };
    let name = metadata.text("name").to_owned();
    if name.is_empty() {
        return;
    }
    let label = naming.label("metadata.name");
    let mut labels = metadata.map("labels").cloned().unwrap_or_default();
    if labels.insert(label, name.into()).is_none() {
        json::sort_members(labels.members_mut());
    }
    metadata.set("labels", Value::Object(labels));
}

fn node_status(status: &mut TypedObject, _: &'static Naming) {
    if let Some(capacity) = status.map("capacity").cloned() {
        status.fill("allocatable", || Value::Object(capacity));
    }
}

fn persistent_volume(volume: &mut TypedObject, _: &'static Naming) {
    if let Some(mut spec) = volume.child_or_new("spec") {
        spec.fill("persistentVolumeReclaimPolicy", || "Retain".into());
        spec.fill("volumeMode", || "Filesystem".into());
    }
}

fn pod(pod: &mut TypedObject, naming: &'static Naming) {
    aliases::pod_template(pod, naming);
    let Some(mut spec) = pod.child_or_new("spec") else { return };
    let host_network = spec.object.get("hostNetwork").and_then(Value::as_bool) == Some(true);
    for list in ["containers", "initContainers"] {
        spec.each(list, |mut container| {
            if let Some(mut resources) = container.child("resources") {
                complete_from(&mut resources, "requests", "limits");
            }
            if host_network {
                container.each("ports", |mut port| {
                    let own = port.object.get("containerPort").cloned().unwrap_or(Value::Int(0));
                    port.fill("hostPort", || own);
                });
            }
        });
    }
    pod_resources(&mut spec);
    spec.fill("enableServiceLinks", || Value::Bool(true));
}

/// Completes the pod-level resources if some pod-level resources are set. The containers and the limits determine the
/// other values.
fn pod_resources(spec: &mut TypedObject) {
    let Some(resources) = spec.object.get("resources") else { return };
    let given =
        |list: &str| resources.get(list).and_then(Value::as_object).filter(|list| !list.is_empty()).cloned();
    let (limits, requests) = (given("limits"), given("requests"));
    if limits.is_none() && requests.is_none() {
        return;
    }
    let huge = |name: &str| name.starts_with("hugepages-");
    let container_limits = aggregate(spec, "limits");
    let container_requests = aggregate(spec, "requests");
    let Some(mut resources) = spec.child("resources") else { return };
    let requests = requests.unwrap_or_default();
    complete_field(&mut resources, "limits", &container_limits, |name| {
        huge(name) && !requests.contains(name)
    });
    if let Some(limits) = resources.map("limits").cloned() {
        complete_field(&mut resources, "requests", &container_requests, |name| {
            matches!(name, "cpu" | "memory")
        });
        complete_field(&mut resources, "requests", &limits, |name| {
            matches!(name, "cpu" | "memory") || huge(name)
        });
    }
}

/// Returns the total resources of the containers. The resources of running containers are added up. An init
/// container needs its resources in addition to the resources of the sidecars that started before it.
fn aggregate(spec: &TypedObject, list: &str) -> Object {
    let containers = |name: &str| {
        let items = spec.object.get(name).and_then(Value::as_array).unwrap_or_default();
        items.iter().map(|container| {
            let resources = container.at(&["resources", list]).and_then(Value::as_object);
            (container.str_at(&["restartPolicy"]) == "Always", resources)
        })
    };
    let quantities = |resources: Option<&Object>| {
        let members = resources.into_iter().flat_map(Object::iter);
        let parse = |text: &Value| text.as_str().and_then(|text| Quantity::parse(text).ok());
        members.filter_map(|(name, text)| Some((name.to_owned(), parse(text)?))).collect::<Vec<_>>()
    };
    let mut sum: std::collections::BTreeMap<String, Quantity> = Default::default();
    let mut peak = sum.clone();
    for (_, resources) in containers("containers") {
        for (name, quantity) in quantities(resources) {
            let total = sum.entry(name).or_insert(Quantity::ZERO);
            *total = total.plus(quantity);
        }
    }
    let mut sidecars = peak.clone();
    for (is_sidecar, resources) in containers("initContainers") {
        for (name, quantity) in quantities(resources) {
            let started = sidecars.entry(name.clone()).or_insert(Quantity::ZERO);
            let now = started.plus(quantity);
            if is_sidecar {
                *started = now;
                let total = sum.entry(name.clone()).or_insert(Quantity::ZERO);
                *total = total.plus(quantity);
            }
            let most = peak.entry(name).or_insert(Quantity::ZERO);
            if now > *most {
                *most = now;
            }
        }
    }
    for (name, quantity) in peak {
        let total = sum.entry(name).or_insert(Quantity::ZERO);
        if quantity > *total {
            *total = quantity;
        }
    }
    sum.into_iter().map(|(name, quantity)| (Key::Owned(name), quantity.to_text().into())).collect()
}

fn service(service: &mut TypedObject, _: &'static Naming) {
    if let Some(mut spec) = service.child_or_new("spec") {
        // The rule of the service runs before the plain values of its spec are set.
        spec.fill("sessionAffinity", || "None".into());
        spec.fill("type", || "ClusterIP".into());
        let kind = spec.text("type").to_owned();
        match spec.text("sessionAffinity") {
            "None" => {
                spec.object.remove("sessionAffinityConfig");
            }
            "ClientIP" => {
                if let Some(mut config) = spec.child_or_new("sessionAffinityConfig")
                    && let Some(mut client) = config.child_or_new("clientIP")
                {
                    client.fill("timeoutSeconds", || Value::Int(10800));
                }
            }
            _ => {}
        }
        spec.each("ports", |mut port| {
            let target = port.object.get("targetPort");
            let open = target.is_none_or(|target| {
                target.is_null() || target.as_i64() == Some(0) || target.as_str() == Some("")
            });
            if open && let Some(own) = port.object.get("port").cloned() {
                port.set("targetPort", own);
            }
        });
        let external = spec.object.get("externalIPs").and_then(Value::as_array);
        let has_external = external.is_some_and(|ips| !ips.is_empty());
        let outside = matches!(kind.as_str(), "NodePort" | "LoadBalancer");
        if outside || (kind == "ClusterIP" && has_external) {
            spec.fill("externalTrafficPolicy", || "Cluster".into());
        }
        if outside || kind == "ClusterIP" {
            spec.fill("internalTrafficPolicy", || "Cluster".into());
        }
        if kind == "LoadBalancer" {
            spec.fill("allocateLoadBalancerNodePorts", || Value::Bool(true));
        }
    }
    // The type is read from a settled spec too, because the spec is settled if only the status is written.
    let kind = service.object.get("spec").and_then(|spec| spec.get("type"));
    if kind.and_then(Value::as_str) == Some("LoadBalancer")
        && let Some(mut status) = service.child("status")
        && let Some(mut balancer) = status.child("loadBalancer")
    {
        balancer.each("ingress", |mut ingress| {
            if !ingress.text("ip").is_empty() {
                ingress.fill("ipMode", || "VIP".into());
            }
        });
    }
}

fn network_policy(spec: &mut TypedObject, _: &'static Naming) {
    let egress = spec.object.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    spec.fill("policyTypes", || {
        let types = ["Ingress", "Egress"].into_iter().take(1 + usize::from(egress));
        Value::Array(types.map(Value::from).collect())
    });
}

fn subject(subject: &mut TypedObject, naming: &'static Naming) {
    if matches!(subject.text("kind"), "User" | "Group") {
        subject.fill("apiGroup", || naming.group("rbac.authorization", true).into());
    }
}

fn device_count(request: &mut TypedObject, _: &'static Naming) {
    if request.text("allocationMode") == "ExactCount" {
        request.fill("count", || Value::Int(1));
    }
}

/// Fills in the defaults of a device request of v1beta1. The request names a device class unless it has
/// alternatives.
fn device_request(request: &mut TypedObject, naming: &'static Naming) {
    if !request.text("deviceClassName").is_empty() {
        request.fill("allocationMode", || "ExactCount".into());
        device_count(request, naming);
    }
}

fn device_taint(taint: &mut TypedObject, _: &'static Naming) {
    taint.fill("timeAdded", || values::clock::now().into());
}

fn custom_definition(definition: &mut TypedObject, _: &'static Naming) {
    if let Some(mut spec) = definition.child_or_new("spec")
        && let Some(mut names) = spec.child_or_new("names")
    {
        let kind = names.text("kind").to_owned();
        names.fill("singular", || kind.to_lowercase().into());
        if !kind.is_empty() {
            names.fill("listKind", || format!("{kind}List").into());
        }
    }
    let stored = {
        let versions = definition.object.get("spec").and_then(|spec| spec.get("versions"));
        let mut versions = versions.and_then(Value::as_array).unwrap_or_default().iter();
        versions.find(|version| version.get("storage").and_then(Value::as_bool) == Some(true)).cloned()
    };
    if let (Some(version), Some(mut status)) = (stored, definition.child_or_new("status")) {
        status.fill("storedVersions", || Value::Array(vec![version.str_at(&["name"]).into()]));
    }
}
