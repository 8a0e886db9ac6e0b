//! The plugin LimitRanger: the limit ranges of a namespace set default amounts for containers, and limit the
//! amounts that containers, pods and volume claims may request.

use std::sync::Arc;

use quantity::Quantity;

use super::Parsed;
use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::pod::{self, AmountKind, Amounts};
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use values::json::{Object, Value};
use values::object::{at, meta, metadata_mut};
use values::status::Status;

/// The admission plugin LimitRanger.
pub struct LimitRanger {
    store: Arc<ObjectStorage>,
    ranges: Parsed<Vec<Limit>>,
    /// The annotation of a pod that names the defaults that the plugin set.
    annotation: String,
}

/// An item of a limit range.
struct Limit {
    kind: String,
    min: Amounts,
    max: Amounts,
    ratio: Amounts,
    default: Amounts,
    default_request: Amounts,
}

/// Parses the limits of a limit range.
fn parse(object: &Object) -> Vec<Limit> {
    let items = at(object, "spec.limits").and_then(Value::as_array).unwrap_or_default();
    let limit = |item: &Value| Limit {
        kind: item.str_at(&["type"]).to_owned(),
        min: pod::amounts(item.get("min")),
        max: pod::amounts(item.get("max")),
        ratio: pod::amounts(item.get("maxLimitRequestRatio")),
        default: pod::amounts(item.get("default")),
        default_request: pod::amounts(item.get("defaultRequest")),
    };
    items.iter().map(limit).collect()
}

impl LimitRanger {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> LimitRanger {
        LimitRanger {
            ranges: Parsed::new(&server.store, server.types.resource("", "v1", "limitranges"), parse),
            annotation: server.types.naming.label("limit-ranger"),
            store: server.store.clone(),
        }
    }

    fn complete(&self, record: &mut AdmissionRecord<'_, &mut Object>) -> Result<(), Status> {
        if !record.write.resource.is_of("", "pods") || is_deleting(record.old) {
            return Ok(());
        }
        let ranges = self.ranges.list(&self.store, record.write.namespace)?;
        let Some(new) = &mut record.new else { return Ok(()) };
        for limits in &*ranges {
            self.fill(new, limits);
        }
        Ok(())
    }

    /// Applies the defaults of one limit range to the containers of a pod.
    fn fill(&self, pod: &mut Object, limits: &[Limit]) {
        let (mut requests, mut defaults) = (Amounts::new(), Amounts::new());
        for limit in limits.iter().filter(|limit| limit.kind == "Container") {
            requests.extend(limit.default_request.clone());
            defaults.extend(limit.default.clone());
        }
        let mut said = Vec::new();
        for (list, what) in [(pod::MAIN, "container"), (pod::INIT, "init container")] {
            for container in pod::list_mut(pod, list) {
                let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                for (bound, amounts, word) in
                    [(AmountKind::Requests, &requests, "request"), (AmountKind::Limits, &defaults, "limit")]
                {
                    let set = fill_in(container, bound, amounts);
                    if !set.is_empty() {
                        said.push(format!("{} {word} for {what} {name}", set.join(", ")));
                    }
                }
            }
        }
        if !said.is_empty() {
            let text = format!("LimitRanger plugin set: {}", said.join("; "));
            metadata_mut(pod).object_entry("annotations").insert(self.annotation.clone(), text.into());
        }
    }

    fn check(&self, record: &AdmissionRecord<'_, &Object>) -> Result<(), Status> {
        let Some(new) = record.new.filter(|_| !is_deleting(record.old)) else { return Ok(()) };
        let is_pod = record.write.resource.is_of("", "pods");
        for limits in &*self.ranges.list(&self.store, record.write.namespace)? {
            let faults = if is_pod { faults_of_pod(new, limits) } else { faults_of_claim(new, limits) };
            if let Some(faults) = go::join_errors(faults) {
                return Err(record.forbidden(&faults));
            }
        }
        Ok(())
    }
}

fn is_deleting(object: Option<&Object>) -> bool {
    object.is_some_and(|object| !meta(object, "deletionTimestamp").is_empty())
}

/// Sets the amounts that a container leaves out, and returns a description of each amount that was set.
fn fill_in(container: &mut Object, bound: AmountKind, amounts: &Amounts) -> Vec<String> {
    let resources = container.get("resources");
    let given = resources.and_then(|resources| resources.get(bound.name()));
    let missing: Vec<String> =
        amounts.keys().filter(|name| given.is_none_or(|given| given.get(name).is_none())).cloned().collect();
    for name in &missing {
        let amount = amounts[name].to_text();
        container.object_entry("resources").object_entry(bound.name()).insert(name.clone(), amount.into());
    }
    missing
}

/// The requests and limits of a container, pod or claim, for the check against the limits of this `kind`.
struct Usage<'u> {
    kind: &'u str,
    requests: Amounts,
    limits: Amounts,
}

impl Usage<'_> {
    fn faults(&self, limit: &Limit, faults: &mut Vec<String>) {
        faults.extend(limit.min.iter().filter_map(|(name, bound)| self.min(name, *bound)));
        faults.extend(limit.max.iter().filter_map(|(name, bound)| self.max(name, *bound)));
        faults.extend(limit.ratio.iter().filter_map(|(name, bound)| self.ratio(name, *bound)));
    }

    fn min(&self, name: &str, bound: Quantity) -> Option<String> {
        let rule = self.rule("minimum", name, bound);
        let Some(request) = self.requests.get(name) else {
            return Some(format!("{rule}.  No request is specified"));
        };
        if *request < bound {
            return Some(format!("{rule}, but request is {}", request.to_text()));
        }
        let limit = self.limits.get(name).filter(|limit| **limit < bound)?;
        Some(format!("{rule}, but limit is {}", limit.to_text()))
    }

    fn max(&self, name: &str, bound: Quantity) -> Option<String> {
        let rule = self.rule("maximum", name, bound);
        let Some(limit) = self.limits.get(name) else {
            return Some(format!("{rule}.  No limit is specified"));
        };
        if *limit > bound {
            return Some(format!("{rule}, but limit is {}", limit.to_text()));
        }
        self.max_request(name, bound)
    }

    fn max_request(&self, name: &str, bound: Quantity) -> Option<String> {
        let request = self.requests.get(name).filter(|request| **request > bound)?;
        Some(format!("{}, but request is {}", self.rule("maximum", name, bound), request.to_text()))
    }

    fn ratio(&self, name: &str, bound: Quantity) -> Option<String> {
        let rule = format!("{name} max limit to request ratio per {} is {}", self.kind, bound.to_text());
        let Some(request) = self.requests.get(name).filter(|request| !request.is_zero()) else {
            return Some(format!("{rule}, but no request is specified or request is 0"));
        };
        let Some(limit) = self.limits.get(name).filter(|limit| !limit.is_zero()) else {
            return Some(format!("{rule}, but no limit is specified or limit is 0"));
        };
        let ratio = limit.to_f64() / request.to_f64();
        (ratio > bound.to_f64()).then(|| format!("{rule}, but provided ratio is {ratio:.6}"))
    }

    fn rule(&self, word: &str, name: &str, bound: Quantity) -> String {
        format!("{word} {name} usage per {} is {}", self.kind, bound.to_text())
    }
}

fn faults_of_pod(new: &Object, limits: &[Limit]) -> Vec<String> {
    let mut faults = Vec::new();
    for limit in limits {
        match limit.kind.as_str() {
            "Container" => {
                for container in [pod::MAIN, pod::INIT].iter().flat_map(|list| pod::list(new, list)) {
                    let of = |bound: AmountKind| pod::amounts(container.at(&["resources", bound.name()]));
                    let (requests, limits) = (of(AmountKind::Requests), of(AmountKind::Limits));
                    Usage { kind: &limit.kind, requests, limits }.faults(limit, &mut faults);
                }
            }
            "Pod" => {
                let of = |bound| pod::of_pod_alone(new, bound);
                let (requests, limits) = (of(AmountKind::Requests), of(AmountKind::Limits));
                Usage { kind: &limit.kind, requests, limits }.faults(limit, &mut faults);
            }
            _ => {}
        }
    }
    faults
}

fn faults_of_claim(claim: &Object, limits: &[Limit]) -> Vec<String> {
    let requests = pod::amounts(at(claim, "spec.resources.requests"));
    let mut faults = Vec::new();
    for limit in limits.iter().filter(|limit| limit.kind == "PersistentVolumeClaim") {
        let usage = Usage { kind: &limit.kind, requests: requests.clone(), limits: Amounts::new() };
        faults.extend(limit.min.iter().filter_map(|(name, bound)| usage.min(name, *bound)));
        for (name, bound) in &limit.max {
            if requests.contains_key(name) {
                faults.extend(usage.max_request(name, *bound));
            } else {
                faults.push(format!("{}.  No request is specified", usage.rule("maximum", name, *bound)));
            }
        }
    }
    faults
}

impl Plugin for LimitRanger {
    fn handles(&self, target: &Target<'_>) -> bool {
        let resizes = target.subresource == "resize" && target.resource.is_of("", "pods");
        match target.operation {
            Operation::Create => target.is("", "pods") || target.is("", "persistentvolumeclaims"),
            // An update cannot change the containers of a pod, except for their sizes.
            Operation::Update => resizes || target.is("", "persistentvolumeclaims"),
            Operation::Delete | Operation::Connect => false,
        }
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        self.complete(record).into()
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        self.check(record).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn pod_level_resources_take_precedence_over_those_of_containers() {
        let limits =
            parse(&object(r#"{"spec":{"limits":[{"type":"Pod","max":{"cpu":"1","memory":"1Gi"}}]}}"#));
        for (own, want) in [
            (r#""cpu":"500m""#, ""),
            (r#""cpu":"2""#, "maximum cpu usage per Pod is 1, but limit is 2"),
            (r#""memory":"1Gi""#, "maximum cpu usage per Pod is 1, but limit is 3"),
        ] {
            let containers = r#"[{"name":"c","resources":{"limits":{"cpu":"3","memory":"1Mi"}}}]"#;
            let text =
                format!(r#"{{"spec":{{"resources":{{"limits":{{{own}}}}},"containers":{containers}}}}}"#);
            assert_eq!(faults_of_pod(&object(&text), &limits).join(" "), want, "{own}");
        }
    }

    #[test]
    fn resources_outside_a_limit_range_are_refused_with_the_limit() {
        let pod = |resources: &str| {
            format!(r#"{{"spec":{{"containers":[{{"name":"c","resources":{resources}}}]}}}}"#)
        };
        for (limit, resources, want) in [
            (
                r#"{"type":"Container","min":{"cpu":"1"}}"#,
                "{}",
                "minimum cpu usage per Container is 1.  No request is specified",
            ),
            (
                r#"{"type":"Container","min":{"cpu":"100m"}}"#,
                r#"{"requests":{"cpu":"50m"}}"#,
                "minimum cpu usage per Container is 100m, but request is 50m",
            ),
            (
                r#"{"type":"Container","min":{"cpu":"1"}}"#,
                r#"{"requests":{"cpu":"1"},"limits":{"cpu":"500m"}}"#,
                "minimum cpu usage per Container is 1, but limit is 500m",
            ),
            (
                r#"{"type":"Pod","max":{"memory":"1Gi"}}"#,
                "{}",
                "maximum memory usage per Pod is 1Gi.  No limit is specified",
            ),
            (
                r#"{"type":"Pod","max":{"memory":"1Gi"}}"#,
                r#"{"requests":{"memory":"2Gi"},"limits":{"memory":"1Gi"}}"#,
                "maximum memory usage per Pod is 1Gi, but request is 2Gi",
            ),
            (
                r#"{"type":"Container","maxLimitRequestRatio":{"cpu":"2"}}"#,
                r#"{"requests":{"cpu":"100m"},"limits":{"cpu":"1"}}"#,
                "cpu max limit to request ratio per Container is 2, but provided ratio is 10.000000",
            ),
            (
                r#"{"type":"Container","maxLimitRequestRatio":{"cpu":"2"}}"#,
                r#"{"limits":{"cpu":"1"}}"#,
                "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ),
            (r#"{"type":"Container","max":{"cpu":"2"}}"#, r#"{"limits":{"cpu":"2000m"}}"#, ""),
        ] {
            let limits = parse(&object(&format!(r#"{{"spec":{{"limits":[{limit}]}}}}"#)));
            assert_eq!(
                faults_of_pod(&object(&pod(resources)), &limits).join(" "),
                want,
                "{limit} {resources}"
            );
        }
    }
}
