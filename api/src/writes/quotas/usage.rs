//! The usage of one object: the amounts of the resources that quotas count, and the properties that decide
//! which quotas cover the object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use quantity::Quantity;

use crate::writes::pod::{self, AmountKind, Amounts};
use objects::device_limits::RESULTS_MAX;
use types::schema::registry::Resource;
use values::clock;
use values::json::{Object, Value};
use values::naming::Naming;
use values::object::{at, meta};
use values::qos::qos_class;

/// API resources whose objects are also counted under the plain plural name.
const COUNTED: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// Names of the compute resources of pods.
const SIZES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Compute resources that every container must set if a quota counts them.
const REQUIRED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// The properties of an object that quotas need. This type does not borrow the object, so that the decider
/// can use the value.
#[derive(Clone, Debug)]
pub struct Usage {
    kind: Kind,
    /// The resource that counts objects of this kind, for example `count/deployments.apps`.
    count_name: String,
    domain: &'static str,
    /// The amount of each resource that the object uses.
    pub amounts: Amounts,
}

/// The kind of the object.
#[derive(Clone, Debug)]
enum Kind {
    Pod(Pod),
    /// A volume claim. `of_storage_class` is the text between the class and the resource in names that count
    /// claims of one class (see the function [`of_storage_class`]).
    Claim {
        attributes_class: String,
        of_storage_class: String,
    },
    /// A device claim. `of_device_class` is the text after the device class in names that count devices (see
    /// the function [`of_device_class`]).
    Devices {
        of_device_class: String,
    },
    Service,
    Other {
        plain_name: Option<String>,
    },
}

/// The properties of a pod on which scopes and required sizes depend.
#[derive(Clone, Debug)]
struct Pod {
    is_terminating: bool,
    is_best_effort: bool,
    priority_class: String,
    has_distant_affinity: bool,
    /// The sizes that each container sets, by container name. Empty if the pod itself sets its sizes.
    sizes: Vec<(String, BTreeSet<String>)>,
}

/// Returns the name of the quota resource that counts the objects of an API resource.
pub fn count_name(resource: &Resource) -> String {
    format!("count/{}", resource.qualified())
}

impl Usage {
    /// Returns the usage of an object of an API resource.
    pub fn from_object(naming: &'static Naming, resource: &Resource, object: &Object) -> Usage {
        let count_name = count_name(resource);
        let mut amounts = Amounts::from([(count_name.clone(), one())]);
        let is = |plural: &str| resource.is_of("", plural);
        let kind = if is("pods") {
            if is_counted(object) {
                pod_amounts(naming.domain, object, &mut amounts);
            }
            Kind::Pod(Pod::from_object(naming, object))
        } else if is("services") {
            service_amounts(object, &mut amounts);
            Kind::Service
        } else if is("persistentvolumeclaims") {
            let of_storage_class = of_storage_class(naming);
            claim_amounts(naming, &of_storage_class, object, &mut amounts);
            let attributes_class = pod::text(object, "volumeAttributesClassName").to_owned();
            Kind::Claim { attributes_class, of_storage_class }
        } else if resource.is_of("resource", "resourceclaims") {
            let of_device_class = of_device_class(naming);
            device_amounts(&of_device_class, object, &mut amounts);
            Kind::Devices { of_device_class }
        } else {
            let plain_name = COUNTED.iter().find(|plural| is(plural)).map(|plural| (*plural).to_owned());
            if let Some(name) = &plain_name {
                amounts.insert(name.clone(), one());
            }
            Kind::Other { plain_name }
        };
        Usage { kind, count_name, domain: naming.domain, amounts }
    }

    /// Returns whether objects of this kind can use the quota resource `name`.
    pub fn concerns(&self, name: &str) -> bool {
        if name == self.count_name {
            return true;
        }
        match &self.kind {
            Kind::Pod(_) => is_of_pods(self.domain, name),
            Kind::Service => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
            Kind::Claim { of_storage_class, .. } => is_of_claims(of_storage_class, name),
            Kind::Devices { of_device_class } => name.ends_with(of_device_class),
            Kind::Other { plain_name } => plain_name.as_deref() == Some(name),
        }
    }

    /// Returns whether the objects with these two usages are in the same scopes.
    pub fn has_scopes_of(&self, other: &Usage) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Pod(pod), Kind::Pod(other)) => {
                pod.is_terminating == other.is_terminating
                    && pod.is_best_effort == other.is_best_effort
                    && pod.priority_class == other.priority_class
                    && pod.has_distant_affinity == other.has_distant_affinity
            }
            (Kind::Claim { attributes_class, .. }, Kind::Claim { attributes_class: other_class, .. }) => {
                attributes_class == other_class
            }
            // Quotas with scopes cover no other kinds.
            _ => true,
        }
    }

    /// Returns whether the object uses less of a quota than it did with the usage `before`, so that a recount
    /// is due.
    pub fn is_below(&self, before: &Usage) -> bool {
        let is_less =
            |(name, amount): (&String, &Quantity)| self.amounts.get(name).is_none_or(|now| now < amount);
        !self.has_scopes_of(before) || before.amounts.iter().any(is_less)
    }

    /// Returns whether the object is in a scope.
    pub fn is_in(&self, scope: &QuotaScope) -> bool {
        match (&self.kind, scope.name.as_str()) {
            (Kind::Pod(pod), "Terminating") => pod.is_terminating,
            (Kind::Pod(pod), "NotTerminating") => !pod.is_terminating,
            (Kind::Pod(pod), "BestEffort") => pod.is_best_effort,
            (Kind::Pod(pod), "NotBestEffort") => !pod.is_best_effort,
            (Kind::Pod(pod), "PriorityClass") => scope.selects(&pod.priority_class),
            (Kind::Pod(pod), "CrossNamespacePodAffinity") => pod.has_distant_affinity,
            (Kind::Claim { attributes_class, .. }, "VolumeAttributesClass") => {
                scope.selects(attributes_class)
            }
            _ => false,
        }
    }

    /// Returns a text that lists the sizes that a quota counts and that some containers do not set, for
    /// example `limits.cpu for: a,b; …`. Returns `None` if all sizes are set.
    pub fn unnamed_sizes<'n>(&self, counted: impl Iterator<Item = &'n str>) -> Option<String> {
        let Kind::Pod(pod) = &self.kind else { return None };
        let counted: Vec<&str> = counted.filter(|name| REQUIRED.contains(name)).collect();
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (container, named) in &pod.sizes {
            for name in counted.iter().filter(|name| !named.contains(**name)) {
                missing.entry(name).or_default().insert(container);
            }
        }
        let line = |(name, containers): (&&str, &BTreeSet<&str>)| {
            format!("{name} for: {}", containers.iter().copied().collect::<Vec<_>>().join(","))
        };
        let lines: Vec<String> = missing.iter().map(line).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

/// A scope of a quota, which limits the objects that the quota covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QuotaScope {
    name: String,
    operator: String,
    values: Vec<String>,
}

impl QuotaScope {
    /// Returns the scopes of a quota.
    pub fn all_of(quota: &Object) -> Vec<QuotaScope> {
        let names = at(quota, "spec.scopes").and_then(Value::as_array).unwrap_or_default();
        let plain = names.iter().filter_map(Value::as_str).map(|name| QuotaScope {
            name: name.to_owned(),
            operator: "Exists".to_owned(),
            values: Vec::new(),
        });
        let expressions = at(quota, "spec.scopeSelector.matchExpressions").and_then(Value::as_array);
        plain.chain(expressions.unwrap_or_default().iter().map(QuotaScope::read)).collect()
    }

    /// Reads one requirement of a scope selector.
    pub fn read(expression: &Value) -> QuotaScope {
        let values = expression.get("values").and_then(Value::as_array).unwrap_or_default();
        QuotaScope {
            name: expression.str_at(&["scopeName"]).to_owned(),
            operator: expression.str_at(&["operator"]).to_owned(),
            values: values.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }

    /// Returns whether this scope and another scope have the same name.
    pub fn is_like(&self, other: &QuotaScope) -> bool {
        self.name == other.name
    }

    /// Returns whether the scope selects a class. An empty `class` means that the object has no class.
    fn selects(&self, class: &str) -> bool {
        let is_listed = self.values.iter().any(|value| value == class);
        match self.operator.as_str() {
            "Exists" => !class.is_empty(),
            "DoesNotExist" => class.is_empty(),
            "In" => !class.is_empty() && is_listed,
            "NotIn" => class.is_empty() || !is_listed,
            _ => false,
        }
    }
}

/// Formats a scope in the notation of Go.
impl fmt::Display for QuotaScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{} {} [{}]}}", self.name, self.operator, self.values.join(" "))
    }
}

impl Pod {
    fn from_object(naming: &Naming, object: &Object) -> Pod {
        let whole = at(object, "spec.resources");
        let names_sizes_itself = ["requests", "limits"].iter().any(|bound| {
            let amounts = whole.and_then(|whole| whole.get(bound)).and_then(Value::as_object);
            amounts.is_some_and(|amounts| !amounts.is_empty())
        });
        let sizes = [pod::MAIN, pod::INIT]
            .iter()
            .flat_map(|list| pod::list(object, list))
            .filter(|_| !names_sizes_itself)
            .map(|container| {
                let of = |bound: AmountKind| pod::amounts(container.at(&["resources", bound.name()]));
                let mut amounts = Amounts::new();
                sizes(naming.domain, &of(AmountKind::Requests), &of(AmountKind::Limits), &mut amounts);
                (container.str_at(&["name"]).to_owned(), amounts.into_keys().collect())
            });
        Pod {
            is_terminating: has_deadline(object),
            is_best_effort: qos_class(object) == "BestEffort",
            priority_class: pod::text(object, "priorityClassName").to_owned(),
            has_distant_affinity: has_distant_affinity(object),
            sizes: sizes.collect(),
        }
    }
}

/// Returns whether an update adds or removes the deadline of a pod. Such an update moves the pod between the scopes
/// `NotTerminating` and `Terminating`.
pub fn moves_between_deadline_scopes(old: &Object, new: &Object) -> bool {
    has_deadline(old) != has_deadline(new)
}

fn has_deadline(pod: &Object) -> bool {
    let deadline = at(pod, "spec.activeDeadlineSeconds").and_then(Value::as_i64);
    deadline.is_some_and(|seconds| seconds >= 0)
}

/// Returns whether an affinity of the pod refers to other namespaces.
fn has_distant_affinity(pod: &Object) -> bool {
    let list = |affinity: &str, list: &str| {
        let path = format!("spec.affinity.{affinity}.{list}");
        at(pod, &path).and_then(Value::as_array).unwrap_or_default()
    };
    let is_distant = |term: &Value| {
        let namespaces = term.get("namespaces").and_then(Value::as_array).unwrap_or_default();
        !namespaces.is_empty() || term.get("namespaceSelector").is_some_and(|selector| !selector.is_null())
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|affinity| {
        list(affinity, "requiredDuringSchedulingIgnoredDuringExecution").iter().any(is_distant)
            || list(affinity, "preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .filter_map(|weighted| weighted.get("podAffinityTerm"))
                .any(is_distant)
    })
}

fn one() -> Quantity {
    Quantity::whole(1)
}

/// Returns whether the pod counts toward the usage. A pod that has ended, or whose grace period has expired,
/// uses no quota.
fn is_counted(pod: &Object) -> bool {
    let phase = at(pod, "status.phase").and_then(Value::as_str).unwrap_or_default();
    if matches!(phase, "Succeeded" | "Failed") {
        return false;
    }
    let grace = at(pod, "metadata.deletionGracePeriodSeconds").and_then(Value::as_i64);
    let until = clock::parse_seconds(meta(pod, "deletionTimestamp"));
    match (until, grace) {
        (Some(deleted), Some(grace)) => clock::now_seconds() <= deleted.saturating_add(grace),
        _ => true,
    }
}

fn pod_amounts(domain: &str, object: &Object, amounts: &mut Amounts) {
    amounts.insert("pods".to_owned(), one());
    let (requests, limits) =
        (pod::of_pod(object, AmountKind::Requests), pod::of_pod(object, AmountKind::Limits));
    sizes(domain, &requests, &limits, amounts);
}

/// Adds requests and limits to `amounts`, with the names of quota resources.
fn sizes(domain: &str, requests: &Amounts, limits: &Amounts, amounts: &mut Amounts) {
    for (name, amount) in requests {
        let is_plain = SIZES.contains(&name.as_str()) || name.starts_with("hugepages-");
        if is_plain {
            amounts.insert(name.clone(), *amount);
        }
        if is_plain || pod::is_extended(domain, name) {
            amounts.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits.iter().filter(|(name, _)| SIZES.contains(&name.as_str())) {
        amounts.insert(format!("limits.{name}"), *amount);
    }
}

fn is_of_pods(domain: &str, name: &str) -> bool {
    let (bound, size) = match name.split_once('.') {
        Some(("requests", size)) => ("requests", size),
        Some(("limits", size)) => ("limits", size),
        _ => ("", name),
    };
    match bound {
        "limits" => SIZES.contains(&size),
        "requests" => {
            SIZES.contains(&size) || size.starts_with("hugepages-") || pod::is_extended(domain, size)
        }
        _ => name == "pods" || SIZES.contains(&name) || name.starts_with("hugepages-"),
    }
}

fn service_amounts(service: &Object, amounts: &mut Amounts) {
    let ports = pod::list(service, "ports");
    let kind = pod::text(service, "type");
    let node_ports = match kind {
        "NodePort" => ports.len(),
        "LoadBalancer" => {
            let allocate = at(service, "spec.allocateLoadBalancerNodePorts").and_then(Value::as_bool);
            let is_set = |port: &&Value| port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) != 0;
            if allocate == Some(false) { ports.iter().filter(is_set).count() } else { ports.len() }
        }
        _ => 0,
    };
    amounts.insert("services".to_owned(), one());
    amounts.insert("services.nodeports".to_owned(), Quantity::whole(node_ports as i64));
    amounts.insert("services.loadbalancers".to_owned(), Quantity::whole(i64::from(kind == "LoadBalancer")));
}

fn claim_amounts(naming: &Naming, of_class: &str, claim: &Object, amounts: &mut Amounts) {
    let annotation = format!("volume.beta.{}/storage-class", naming.domain);
    let class = pod::annotation(claim, &annotation).unwrap_or_else(|| pod::text(claim, "storageClassName"));
    amounts.insert("persistentvolumeclaims".to_owned(), one());
    if !class.is_empty() {
        amounts.insert(format!("{class}{of_class}persistentvolumeclaims"), one());
    }
    let requested = at(claim, "spec.resources.requests.storage").and_then(pod::quantity);
    // Volumes never shrink, so the allocated size counts until the claim is removed.
    let given = at(claim, "status.allocatedResources.storage").and_then(pod::quantity);
    let size = match (requested, given) {
        (Some(requested), Some(given)) => Some(if given > requested { given } else { requested }),
        (requested, given) => requested.or(given),
    };
    if let Some(size) = size {
        amounts.insert("requests.storage".to_owned(), size);
        if !class.is_empty() {
            amounts.insert(format!("{class}{of_class}requests.storage"), size);
        }
    }
}

/// Returns the text between the storage class and the resource in names that count claims of one class, for
/// example in `fast.storageclass.storage.k8s.io/requests.storage`.
fn of_storage_class(naming: &Naming) -> String {
    format!(".storageclass.{}/", naming.group("storage", true))
}

fn is_of_claims(of_class: &str, name: &str) -> bool {
    const NAMES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
    NAMES.contains(&name) || name.split_once(of_class).is_some_and(|(_, name)| NAMES.contains(&name))
}

/// Returns the text after the device class in names that count devices, for example in
/// `gold.deviceclass.resource.k8s.io/devices`.
fn of_device_class(naming: &Naming) -> String {
    format!(".deviceclass.{}/devices", naming.group("resource", true))
}

/// Adds the maximum number of devices of each class that a claim can get. If a request has alternatives, the
/// alternative with the largest number of a class counts for that class.
fn device_amounts(of_class: &str, claim: &Object, amounts: &mut Amounts) {
    let requests = at(claim, "spec.devices.requests").and_then(Value::as_array).unwrap_or_default();
    for request in requests {
        let alternatives = request.get("firstAvailable").and_then(Value::as_array).unwrap_or_default();
        let exactly = request.get("exactly").filter(|_| alternatives.is_empty());
        let mut most: BTreeMap<String, i64> = BTreeMap::new();
        for one in alternatives.iter().chain(exactly) {
            let count = match one.str_at(&["allocationMode"]) {
                "ExactCount" => one.get("count").and_then(Value::as_i64).unwrap_or(0),
                "All" => RESULTS_MAX as i64,
                _ => 0,
            };
            let class = most.entry(format!("{}{of_class}", one.str_at(&["deviceClassName"]))).or_default();
            *class = count.max(*class);
        }
        for (name, count) in most {
            let amount = amounts.entry(name).or_insert(Quantity::ZERO);
            *amount = amount.plus(Quantity::whole(count));
        }
    }
}

/// Returns whether a quota resource counts whole objects: each object uses exactly 1, regardless of its
/// contents.
pub fn counts_objects(name: &str) -> bool {
    name.starts_with("count/") || COUNTED.contains(&name)
}

/// Returns the API resource whose objects use a quota resource, as full group name and plural.
pub fn counted_by<'n>(naming: &Naming, name: &'n str) -> (&'n str, &'n str) {
    if let Some(counted) = name.strip_prefix("count/") {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return (group, plural);
    }
    match name {
        "services" | "services.nodeports" | "services.loadbalancers" => ("", "services"),
        name if is_of_claims(&of_storage_class(naming), name) => ("", "persistentvolumeclaims"),
        name if name.ends_with(&of_device_class(naming)) => {
            let group = name.rsplit_once(".deviceclass.").map_or("", |(_, rest)| rest);
            (group.strip_suffix("/devices").unwrap_or(group), "resourceclaims")
        }
        name if COUNTED.contains(&name) => ("", name),
        _ => ("", "pods"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::schema::registry::Registry;
    use values::naming::KUBERNETES;
    use values::testing::object;

    #[test]
    fn usage_of_an_object_is_computed_for_every_counted_resource() {
        let registry = Registry::new(&KUBERNETES);
        let container = r#"{"name":"c","resources":{"requests":{"cpu":"100m","x.io/gpu":"2","hugepages-2Mi":"4Mi"},"limits":{"memory":"1Gi"}}}"#;
        for (group, plural, text, want) in [
            ("", "configmaps", "{}".to_owned(), "configmaps=1 count/configmaps=1"),
            ("apps", "deployments", "{}".to_owned(), "count/deployments.apps=1"),
            (
                "",
                "pods",
                format!(r#"{{"spec":{{"containers":[{container}]}}}}"#),
                "count/pods=1 cpu=100m hugepages-2Mi=4Mi limits.memory=1Gi pods=1 requests.cpu=100m \
                 requests.hugepages-2Mi=4Mi requests.x.io/gpu=2",
            ),
            (
                "",
                "pods",
                format!(r#"{{"spec":{{"containers":[{container}]}},"status":{{"phase":"Failed"}}}}"#),
                "count/pods=1",
            ),
            (
                "",
                "services",
                r#"{"spec":{"type":"NodePort","ports":[{"port":1},{"port":2}]}}"#.to_owned(),
                "count/services=1 services=1 services.loadbalancers=0 services.nodeports=2",
            ),
            (
                "",
                "persistentvolumeclaims",
                r#"{"spec":{"storageClassName":"fast","resources":{"requests":{"storage":"1Gi"}}}}"#
                    .to_owned(),
                "count/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/persistentvolumeclaims=1 \
                 fast.storageclass.storage.k8s.io/requests.storage=1Gi persistentvolumeclaims=1 requests.storage=1Gi",
            ),
            (
                "resource.k8s.io",
                "resourceclaims",
                r#"{"spec":{"devices":{"requests":[
                    {"exactly":{"deviceClassName":"gold","allocationMode":"ExactCount","count":2}},
                    {"exactly":{"deviceClassName":"tin","allocationMode":"All"}},
                    {"firstAvailable":[{"deviceClassName":"gold","allocationMode":"ExactCount","count":1},
                        {"deviceClassName":"gold","allocationMode":"ExactCount","count":3}]}]}}}"#
                    .to_owned(),
                "count/resourceclaims.resource.k8s.io=1 gold.deviceclass.resource.k8s.io/devices=5 \
                 tin.deviceclass.resource.k8s.io/devices=32",
            ),
        ] {
            let resource = registry.resource(group, "v1", plural).unwrap();
            let usage = Usage::from_object(&KUBERNETES, resource, &object(&text));
            let shown = usage.amounts.iter().map(|(name, amount)| format!("{name}={}", amount.to_text()));
            assert_eq!(shown.collect::<Vec<_>>().join(" "), want, "{plural} {text}");
            for name in usage.amounts.keys() {
                assert!(usage.concerns(name), "{plural} {name}");
                assert_eq!(counted_by(&KUBERNETES, name), (group, plural), "{name}");
            }
        }
    }

    #[test]
    fn quota_scopes_select_pods() {
        let registry = Registry::new(&KUBERNETES);
        let pods = registry.resource("", "v1", "pods").unwrap();
        for (pod, scope, is_in) in [
            (r#"{"activeDeadlineSeconds":5}"#, r#""scopes":["Terminating"]"#, true),
            ("{}", r#""scopes":["NotTerminating"]"#, true),
            ("{}", r#""scopes":["BestEffort"]"#, true),
            ("{}", r#""scopes":["NotBestEffort"]"#, false),
            ("{}", r#""scopes":["PriorityClass"]"#, false),
            (r#"{"priorityClassName":"a"}"#, r#""scopes":["PriorityClass"]"#, true),
            (
                r#"{"priorityClassName":"a"}"#,
                r#""scopeSelector":{"matchExpressions":[{"scopeName":"PriorityClass","operator":"In","values":["a"]}]}"#,
                true,
            ),
            (
                r#"{"priorityClassName":"a"}"#,
                r#""scopeSelector":{"matchExpressions":[{"scopeName":"PriorityClass","operator":"NotIn","values":["a"]}]}"#,
                false,
            ),
            (
                r#"{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"namespaces":["x"]}]}}}"#,
                r#""scopes":["CrossNamespacePodAffinity"]"#,
                true,
            ),
        ] {
            let usage = Usage::from_object(&KUBERNETES, pods, &object(&format!(r#"{{"spec":{pod}}}"#)));
            let scopes = QuotaScope::all_of(&object(&format!(r#"{{"spec":{{{scope}}}}}"#)));
            assert_eq!(scopes.iter().all(|scope| usage.is_in(scope)), is_in, "{pod} {scope}");
        }
    }
}
